// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// No rank ever hangs: whatever way a rank fails in, the job ends in bounded time with one sentence that names
// the rank, its process, what it was doing and who waited for it; and nothing is left behind.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/comm_internal.h"
#include "comm/processes.h"
#include "trireme/base/clock.h"
#include <signal.h>

typedef struct plan {
  tr_status (*culprit)(tr_comm *comm); // what rank 1 does in step 3
  int32_t pid[8];                      // filled by the ranks
  int32_t saw_status[8];               // what the other ranks' calls returned
  char saw_text[8][400];
} plan;
_Static_assert(sizeof(plan) <= 4096, "a plan lies in one shared page");

static void note(tr_comm *comm, plan *p, tr_status status) {
  p->saw_status[tr_comm_rank(comm)] = status;
  snprintf(p->saw_text[tr_comm_rank(comm)], sizeof p->saw_text[0], "%s", tr_status_text());
}

// Five steps of all-reduces; in step 3 rank 1 fails in its way, the others go on until their calls fail.
static tr_status train(tr_comm *comm, void *user) {
  plan *p = user;
  float *x = tr_arena_alloc(tr_comm_arena(comm), 100000 * sizeof *x);
  memset(x, 0, 100000 * sizeof *x);
  p->pid[tr_comm_rank(comm)] = getpid();
  for (int step = 0; step < 5; step++) {
    tr_comm_activity(comm, "F", step, 7);
    if (step == 3 && tr_comm_rank(comm) == 1) TR_TRY(p->culprit(comm));
    tr_comm_activity(comm, "REDUCE", step, -1);
    tr_status status = tr_group_allreduce(tr_comm_world(comm), x, x, 100000, TR_F32, TR_SUM, NULL);
    if (status < 0) {
      note(comm, p, status);
      return status;
    }
  }
  return TR_OK;
}

typedef struct outcome {
  tr_status status;
  tr_launch_report report;
  double seconds;
  plan *plan;
} outcome;

static tr_launch_options quick_options(int nrank, double deadline) {
  tr_launch_options o;
  tr_launch_options_init(&o);
  o.nrank = nrank;
  o.arena_nbyte = 1 << 20;
  o.deadline = deadline;
  o.grace = 1;
  return o;
}

// Run the plan and check what holds after every failure.
static outcome fail_in(tr_status (*culprit)(tr_comm *comm), int nrank, double deadline) {
  tr_launch_options o = quick_options(nrank, deadline);
  outcome out = {.plan = shared_page()};
  out.plan->culprit = culprit;
  int files = open_files();
  double began = tr_clock_seconds();
  out.status = tr_launch(&o, train, out.plan, &out.report);
  out.seconds = tr_clock_seconds() - began;
  assert_int_equal(open_files(), files);
  assert_int_equal(memory_files_mapped(), 0);
  assert_true(no_children());
  assert_string_equal(out.report.text, tr_status_text());
  return out;
}

static void says(const char *text, const char *part) {
  if (!strstr(text, part)) print_error("expected '%s' in '%s'\n", part, text);
  assert_non_null(strstr(text, part));
}

// How long somebody made no progress is measured: no less than the deadline, but more where nobody looked in time.
static void says_for_how_long(const char *text, const char *before, double least, const char *after) {
  const char *at = strstr(text, before);
  char *end = NULL;
  double seconds = at ? strtod(at + strlen(before), &end) : 0;
  if (!end || seconds < least - 0.05 || strncmp(end, after, strlen(after)) != 0)
    print_error("expected '%s', at least %.1f, '%s' in '%s'\n", before, least, after, text);
  assert_true(end && seconds >= least - 0.05 && strncmp(end, after, strlen(after)) == 0);
}

static void names_rank_1(const outcome *out) {
  char who[48];
  snprintf(who, sizeof who, "rank 1 (pid %d)", out->plan->pid[1]);
  says(out->report.text, who);
  assert_int_equal(out->report.culprit, 1);
}

// All other ranks' calls failed with the job's status and sentence, in which they name the rank.
static void others_know(const outcome *out, int nrank) {
  char sentence[sizeof out->report.text + 16];
  int named = strncmp(out->report.text, "rank", 4) == 0;
  snprintf(sentence, sizeof sentence, "%s%s", named ? "" : "rank 1: ", out->report.text);
  for (int r = 0; r < nrank; r++) {
    if (r == 1) continue;
    assert_int_equal(out->plan->saw_status[r], out->status);
    assert_string_equal(out->plan->saw_text[r], sentence);
  }
}

static tr_status killed_in_compute(tr_comm *comm) {
  (void)comm;
  raise(SIGKILL);
  return TR_OK;
}

static void kill_in_compute_is_reported(void **state) {
  (void)state;
  outcome out = fail_in(killed_in_compute, 3, 30);
  assert_int_equal(out.status, TR_ERR_PEER);
  names_rank_1(&out);
  says(out.report.text, "was killed by signal 9 (Killed) while in F of step 3, micro-batch 7");
  assert_int_equal(out.report.signal, SIGKILL);
  others_know(&out, 3);
  assert_true(out.seconds < 15);
  free_shared_page(out.plan);
}

static void die_at(void *user, const char *point) {
  if (strcmp(point, user) == 0) raise(SIGKILL);
}
static tr_status killed_before_reducing(tr_comm *comm) {
  static char point[] = "allreduce.reduce";
  tr_comm_set_hook(comm, die_at, point);
  return TR_OK;
}
static tr_status killed_after_posting(tr_comm *comm) {
  static char point[] = "allreduce.ready";
  tr_comm_set_hook(comm, die_at, point);
  return TR_OK;
}

static void kill_inside_allreduce_is_reported(void **state) {
  (void)state;
  tr_status (*const ways[])(tr_comm *) = {killed_before_reducing, killed_after_posting};
  for (int i = 0; i < 2; i++) {
    outcome out = fail_in(ways[i], 4, 30);
    assert_int_equal(out.status, TR_ERR_PEER);
    names_rank_1(&out);
    says(out.report.text, "was killed by signal 9 (Killed) while in REDUCE of step 3");
    others_know(&out, 4);
    assert_true(out.seconds < 15);
    free_shared_page(out.plan);
  }
}

static tr_status stopped(tr_comm *comm) {
  (void)comm;
  raise(SIGSTOP);
  return TR_OK;
}

static void stopped_rank_is_blamed_after_the_deadline(void **state) {
  (void)state;
  outcome out = fail_in(stopped, 3, 1);
  assert_int_equal(out.status, TR_ERR_TIMEOUT);
  names_rank_1(&out);
  says_for_how_long(out.report.text, "made no progress for ", 1, " s: it was in F of step 3, micro-batch 7; rank ");
  says(out.report.text, "waits for it in all-reduce #4 of group 'world' (391 KiB)");
  others_know(&out, 3);
  assert_true(out.seconds >= 1 && out.seconds < 15);
  free_shared_page(out.plan);
}

// ---- stopped by a clock, wherever that happens to be, waits included

enum { STOPS = 10, MANY = 30000 };

static void stop_here(int signal) {
  (void)signal;
  raise(SIGSTOP);
}

// Rank 1 is stopped in the midst of operations of many kinds, after as many microseconds as `user` says.
static tr_status work_until_stopped(tr_comm *comm, void *user) {
  plan *p = user;
  tr_group *world = tr_comm_world(comm);
  const int rank = tr_comm_rank(comm), n = tr_comm_size(comm);
  float *x = tr_arena_alloc(tr_comm_arena(comm), MANY * sizeof *x), *own = calloc(MANY, sizeof *own);
  size_t start[9];
  for (int i = 0; i <= n; i++) start[i] = (size_t)(MANY / n * i);
  memset(x, 0, MANY * sizeof *x);
  p->pid[rank] = getpid();
  tr_status status = own ? tr_group_barrier(world) : TR_ERR_MEMORY;
  if (rank == 1) {
    signal(SIGALRM, stop_here);
    ualarm((useconds_t)p->saw_status[1], 0);
  }
  for (int step = 0; status == TR_OK; step++) {
    tr_comm_activity(comm, "F", step, -1);
    if (step % 3 == rank) tr_clock_sleep_ns(2000000); // so that the others wait, each in turn
    tr_comm_activity(comm, "REDUCE", step, -1);
    status = tr_group_reduce_scatter_v(world, x, own, start, TR_F32, TR_F32, TR_SUM, 0, NULL, NULL, NULL);
    if (status == TR_OK) status = tr_group_allgather(world, own, x, 1000, TR_F32, NULL);
    if (status == TR_OK) status = tr_group_allreduce(world, x, x, MANY, TR_F32, TR_SUM, NULL);
    if (status == TR_OK) status = tr_group_barrier(world);
  }
  free(own);
  return status;
}

static void stopped_rank_is_named_wherever_it_was_stopped(void **state) {
  (void)state;
  tr_launch_options o = quick_options(3, 1.2);
  o.grace = 0.1;
  for (int i = 0; i < STOPS; i++) {
    outcome out = {.plan = shared_page()};
    out.plan->saw_status[1] = 20000 + 3331 * i;
    out.status = tr_launch(&o, work_until_stopped, out.plan, &out.report);
    assert_int_equal(out.status, TR_ERR_TIMEOUT);
    if (out.report.culprit != 1) print_error("stop %d: %s\n", i, out.report.text);
    names_rank_1(&out);
    says(out.report.text, "of step ");
    free_shared_page(out.plan);
  }
}

static tr_status returns_an_error(tr_comm *comm) {
  (void)comm;
  return tr_error(TR_ERR_DATA, "shard 7 of the data is empty");
}

static void error_of_a_rank_reaches_everybody(void **state) {
  (void)state;
  outcome out = fail_in(returns_an_error, 3, 30);
  assert_int_equal(out.status, TR_ERR_DATA);
  assert_string_equal(out.report.text, "shard 7 of the data is empty");
  assert_int_equal(out.report.culprit, 1);
  assert_int_equal(out.report.signal, 0);
  assert_int_equal(out.report.exit_status, 4);
  others_know(&out, 3);
  free_shared_page(out.plan);
}

static tr_status exits(tr_comm *comm) {
  (void)comm;
  _exit(3);
}

static void early_exit_is_reported(void **state) {
  (void)state;
  outcome out = fail_in(exits, 3, 30);
  assert_int_equal(out.status, TR_ERR_PEER);
  names_rank_1(&out);
  says(out.report.text, "ended with exit status 3 while in F of step 3");
  assert_int_equal(out.report.exit_status, 3);
  others_know(&out, 3);
  free_shared_page(out.plan);
}

static tr_status aborts(tr_comm *comm) {
  tr_clock_sleep_ns(100000000); // the others wait by now
  tr_comm_abort(comm, TR_ERR_NAN, "the loss of step %d is not a number", 3);
  return tr_comm_check(comm);
}

static void abort_reaches_ranks_that_wait(void **state) {
  (void)state;
  outcome out = fail_in(aborts, 4, 30);
  assert_int_equal(out.status, TR_ERR_NAN);
  assert_string_equal(out.report.text, "the loss of step 3 is not a number");
  others_know(&out, 4);
  assert_true(out.seconds < 15);
  free_shared_page(out.plan);
}

// ---- other ways ---------------------------------------------------------------------------------

static tr_status leave_early(tr_comm *comm, void *user) {
  (void)user;
  tr_comm_activity(comm, "EVAL", 2, -1);
  return tr_comm_rank(comm) == 1 ? TR_OK : tr_group_barrier(tr_comm_world(comm));
}

static void rank_that_returns_too_early_is_named_at_once(void **state) {
  (void)state;
  for (int mode = 0; mode < 2; mode++) {
    tr_launch_options o = quick_options(2, 60);
    o.mode = (tr_launch_mode)mode;
    tr_launch_report report;
    double began = tr_clock_seconds();
    assert_int_equal(tr_launch(&o, leave_early, NULL, &report), TR_ERR_PEER);
    says(report.text, "has ended after EVAL of step 2; rank 0 waits for it in barrier #1 of group 'world'");
    assert_int_equal(report.culprit, 1);
    assert_true(tr_clock_seconds() - began < 15);
  }
}

// Rank 0 waits for 1, 1 for 2; 2 sleeps: 2 is to blame, whoever's deadline passes first.
static tr_status chain(tr_comm *comm, void *user) {
  (void)user;
  int32_t x = 0;
  tr_group *world = tr_comm_world(comm);
  tr_comm_activity(comm, "B", 5, 1);
  if (tr_comm_rank(comm) == 0) return tr_group_recv(world, 1, 0, &x, 4, NULL);
  if (tr_comm_rank(comm) == 1) {
    TR_TRY(tr_group_recv(world, 2, 0, &x, 4, NULL));
    return tr_group_send(world, 0, 0, &x, 4, NULL);
  }
  for (int i = 0; i < 400 && tr_comm_check(comm) == TR_OK; i++) tr_clock_sleep_ns(10000000);
  return tr_comm_check(comm);
}

static void blame_follows_the_chain_of_waits(void **state) {
  (void)state;
  tr_launch_options o = quick_options(3, 1.5);
  tr_launch_report report;
  assert_int_equal(tr_launch(&o, chain, NULL, &report), TR_ERR_TIMEOUT);
  assert_int_equal(report.culprit, 2);
  says(report.text, "rank 2 (pid ");
  says(report.text, "it was in B of step 5, micro-batch 1; rank 1 waits for it in receive #1 of group 'world' (4 B)");
}

// A rank that beats is never blamed, however long the others wait.
static tr_status slow_but_alive(tr_comm *comm, void *user) {
  (void)user;
  if (tr_comm_rank(comm) == 2)
    for (int i = 0; i < 30; i++) {
      tr_clock_sleep_ns(100000000);
      tr_comm_beat(comm);
    }
  return tr_group_barrier(tr_comm_world(comm));
}

static void progress_extends_the_deadline(void **state) {
  (void)state;
  tr_launch_options o = quick_options(3, 2);
  assert_int_equal(tr_launch(&o, slow_but_alive, NULL, NULL), TR_OK);
}

static tr_status wait_in_a_circle(tr_comm *comm, void *user) {
  (void)user;
  char x[100];
  return tr_group_recv(tr_comm_world(comm), 1 - tr_comm_rank(comm), 0, x, sizeof x, NULL);
}

static void circle_of_waits_names_all(void **state) {
  (void)state;
  tr_launch_options o = quick_options(2, 1.5);
  tr_launch_report report;
  assert_int_equal(tr_launch(&o, wait_in_a_circle, NULL, &report), TR_ERR_TIMEOUT);
  says(report.text, "ranks wait for each other");
  says(report.text, "rank 0 for rank 1 in receive #1 of group 'world'");
  says(report.text, "rank 1 for rank 0 in receive #1 of group 'world'");
}

// Nobody waits for anybody, nobody moves.
static tr_status sleep_forever(tr_comm *comm, void *user) {
  (void)user;
  tr_comm_activity(comm, "LOAD", -1, -1);
  for (int i = 0; i < 1000; i++) tr_clock_sleep_ns(1000000000);
  return TR_OK;
}

static void ranks_that_all_stand_still_are_ended(void **state) {
  (void)state;
  tr_launch_options o = quick_options(2, 1);
  o.grace = 0.4;
  tr_launch_report report;
  assert_int_equal(tr_launch(&o, sleep_forever, NULL, &report), TR_ERR_TIMEOUT);
  says_for_how_long(report.text, "no rank made progress for ", 1, " s: ");
  says(report.text, "was in LOAD");
  assert_true(no_children());
}

// ---- signals to the launcher --------------------------------------------------------------------

typedef struct signals {
  int number, times, apart; // apart: not one wish that came as two signals
} signals;

static void until_asked(tr_comm *comm, double seconds) {
  for (int i = 0; i < seconds * 100 && !tr_comm_stop_requested(comm) && tr_comm_check(comm) == TR_OK; i++) {
    tr_clock_sleep_ns(10000000);
    tr_comm_beat(comm);
  }
}

static tr_status until_stop(tr_comm *comm, void *user) {
  const signals *s = user;
  int stubborn = s->times > 1 && s->apart;
  for (int step = 0; step < 1000; step++) {
    tr_comm_activity(comm, "F", step, -1);
    TR_TRY(tr_group_barrier(tr_comm_world(comm)));
    if (step == 3 && tr_comm_rank(comm) == 0)
      for (int i = 0; i < s->times; i++) {
        kill(getppid(), s->number);
        until_asked(comm, 10); // two of the same, before one is read, would be one to the system
        if (s->apart) tr_clock_sleep_ns(400000000);
      }
    int32_t stop = tr_comm_stop_requested(comm) && !stubborn;
    // All stop after the same step.
    TR_TRY(tr_group_allreduce(tr_comm_world(comm), &stop, &stop, 1, TR_I32, TR_MAX, NULL));
    if (stop) return TR_OK;
    tr_clock_sleep_ns(5000000);
  }
  return tr_error(TR_ERR_VERIFY, "never asked to stop");
}

static tr_status with_signals(int number, int times, int apart, tr_launch_report *report) {
  tr_launch_options o = quick_options(2, 10);
  signals s = {number, times, apart};
  tr_status status = tr_launch(&o, until_stop, &s, report);
  assert_true(no_children());
  return status;
}

static void first_signal_asks_ranks_to_stop(void **state) {
  (void)state;
  tr_launch_report report;
  assert_int_equal(with_signals(SIGINT, 1, 0, &report), TR_OK);
  assert_int_equal(with_signals(SIGTERM, 1, 0, &report), TR_OK);
  assert_string_equal(report.text, "");
}

// As timeout(1) sends it: to the program, and to its process group.
static void one_wish_may_come_as_two_signals(void **state) {
  (void)state;
  tr_launch_report report;
  assert_int_equal(with_signals(SIGINT, 2, 0, &report), TR_OK);
  assert_string_equal(report.text, "");
}

static void second_signal_ends_at_once(void **state) {
  (void)state;
  tr_launch_report report;
  assert_int_equal(with_signals(SIGINT, 2, 1, &report), TR_ERR_PEER);
  says(report.text, "interrupted twice");
}

// ---- and when the launcher itself is killed -----------------------------------------------------

static tr_status tell_and_sleep(tr_comm *comm, void *user) {
  ((_Atomic int32_t *)user)[tr_comm_rank(comm)] = (int32_t)getpid();
  return sleep_forever(comm, NULL);
}

// Rank 1 copies long after rank 2, for which it waited at first, has copied and ended.
enum { SLOW_NBYTE = 64 << 20 };
static void sleep_before_copying(void *user, const char *point) {
  (void)user;
  if (strcmp(point, "broadcast.copy") == 0) tr_clock_sleep_ns(300000000);
}
static tr_status broadcast_last(tr_comm *comm, void *user) {
  (void)user;
  char *x = tr_arena_alloc(tr_comm_arena(comm), SLOW_NBYTE);
  if (tr_comm_rank(comm) == 1) tr_comm_set_hook(comm, sleep_before_copying, NULL);
  if (tr_comm_rank(comm) == 2) tr_clock_sleep_ns(100000000);
  return tr_group_broadcast(tr_comm_world(comm), x, SLOW_NBYTE, TR_U8, 0, NULL);
}

static void rank_that_did_its_part_and_ended_is_not_blamed(void **state) {
  (void)state;
  tr_launch_options o = quick_options(3, 20);
  o.arena_nbyte = SLOW_NBYTE;
  tr_launch_report report;
  tr_status status = tr_launch(&o, broadcast_last, NULL, &report);
  if (status < 0) print_error("%s\n", report.text);
  assert_int_equal(status, TR_OK);
}

// `signal(SIGCHLD, SIG_IGN)` survives exec, and would hide how a rank ends.
static void kill_is_seen_though_ends_of_children_are_ignored(void **state) {
  (void)state;
  signal(SIGCHLD, SIG_IGN);
  outcome out = fail_in(killed_in_compute, 2, 30);
  assert_true(signal(SIGCHLD, SIG_DFL) == SIG_IGN);
  assert_int_equal(out.status, TR_ERR_PEER);
  assert_int_equal(out.report.signal, SIGKILL);
  free_shared_page(out.plan);
}

static tr_status hang_up(tr_comm *comm, void *seconds) {
  if (tr_comm_rank(comm) == 0) kill(getppid(), SIGHUP);
  until_asked(comm, *(const double *)seconds);
  return tr_comm_stop_requested(comm) ? tr_error(TR_ERR_VERIFY, "asked to stop") : TR_OK;
}

static void ignored_hangup_does_not_stop_ranks(void **state) {
  (void)state;
  tr_launch_options o = quick_options(2, 20);
  double some = 0.2, most = 15;
  signal(SIGHUP, SIG_IGN); // as nohup does
  tr_status status = tr_launch(&o, hang_up, &some, NULL);
  signal(SIGHUP, SIG_DFL);
  assert_int_equal(status, TR_OK);
  assert_int_equal(tr_launch(&o, hang_up, &most, NULL), TR_ERR_VERIFY);
}

static ssize_t write_never(void *user, const char *data, size_t nbyte) {
  (void)user;
  (void)data;
  pause();
  return (ssize_t)nbyte;
}
static tr_status stay_behind(tr_comm *comm, void *user) {
  (void)user;
  if (tr_comm_rank(comm) == 0) return TR_OK;
  FILE *file = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_never});
  return file && fputs("never written", file) >= 0 ? TR_OK : tr_error(TR_ERR_VERIFY, "no stream");
}

static void process_that_does_not_go_after_its_end_is_killed(void **state) {
  (void)state;
  tr_launch_options o = quick_options(2, 1.5);
  assert_int_equal(tr_launch(&o, stay_behind, NULL, NULL), TR_OK);
  assert_true(no_children());
}

static void ranks_end_with_a_killed_launcher(void **state) {
  (void)state;
  _Atomic int32_t *pids = shared_page();
  pid_t launcher = fork();
  if (launcher == 0) {
    tr_launch_options o = quick_options(2, 60);
    tr_launch(&o, tell_and_sleep, (void *)pids, NULL);
    _exit(0);
  }
  for (int i = 0; i < 1000 && !(pids[0] && pids[1]); i++) tr_clock_sleep_ns(10000000);
  assert_true(pids[0] && pids[1]);
  kill(launcher, SIGKILL);
  waitpid(launcher, NULL, 0);
  int gone = 0;
  for (int i = 0; i < 1000 && gone < 2; i++) {
    gone = 0;
    for (int r = 0; r < 2; r++) {
      char path[64];
      snprintf(path, sizeof path, "/proc/%d/status", pids[r]);
      gone += access(path, F_OK) != 0 || count_lines_with(path, "State:\tZ");
    }
    tr_clock_sleep_ns(10000000);
  }
  assert_int_equal(gone, 2);
  free_shared_page((void *)pids);
}

int main(void) {
  skip_unless_forking_works();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kill_in_compute_is_reported),
      cmocka_unit_test(kill_inside_allreduce_is_reported),
      cmocka_unit_test(stopped_rank_is_blamed_after_the_deadline),
      cmocka_unit_test(stopped_rank_is_named_wherever_it_was_stopped),
      cmocka_unit_test(error_of_a_rank_reaches_everybody),
      cmocka_unit_test(early_exit_is_reported),
      cmocka_unit_test(abort_reaches_ranks_that_wait),
      cmocka_unit_test(rank_that_returns_too_early_is_named_at_once),
      cmocka_unit_test(blame_follows_the_chain_of_waits),
      cmocka_unit_test(progress_extends_the_deadline),
      cmocka_unit_test(circle_of_waits_names_all),
      cmocka_unit_test(ranks_that_all_stand_still_are_ended),
      cmocka_unit_test(first_signal_asks_ranks_to_stop),
      cmocka_unit_test(one_wish_may_come_as_two_signals),
      cmocka_unit_test(second_signal_ends_at_once),
      cmocka_unit_test(rank_that_did_its_part_and_ended_is_not_blamed),
      cmocka_unit_test(kill_is_seen_though_ends_of_children_are_ignored),
      cmocka_unit_test(ignored_hangup_does_not_stop_ranks),
      cmocka_unit_test(process_that_does_not_go_after_its_end_is_killed),
      cmocka_unit_test(ranks_end_with_a_killed_launcher),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
