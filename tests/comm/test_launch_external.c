// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Ranks that somebody else has started: processes with torchrun's variables that meet on one host. Started by mpirun or srun
// itself, this program is one rank of the conformance suite, or, given a number and a folder, of a job whose calls differ in that way
// (tests/cli/test_mpi.sh, tests/cli/test_mpi_faults.sh, tests/cli/test_hosts.sh).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/comm_internal.h"
#include "comm/conformance.h"
#include "comm/differ.h"
#include "comm/processes.h"
#include "trireme/base/clock.h"

typedef struct told { // by one rank
  tr_status status;
  tr_launch_report report;
  double seconds;
  uint64_t hash;
  char text[400];
} told;

typedef struct job {
  int size, missing; // missing: rank that is not started, -1 none
  tr_launch_options options[4];
  tr_rank_main rank_main;
  void *user;
} job;

static told *shared; // [4], seen by all

static void set_number(const char *name, int value) {
  char text[16];
  snprintf(text, sizeof text, "%d", value);
  setenv(name, text, 1);
}

_Noreturn static void be_rank(const job *j, int rank) {
  signal(SIGSEGV, SIG_DFL); // the test's own handler would go on with its other tests
  set_number("RANK", rank);
  set_number("LOCAL_RANK", rank);
  set_number("WORLD_SIZE", j->size);
  set_number("LOCAL_WORLD_SIZE", j->size);
  told *t = &shared[rank];
  double begin = tr_clock_seconds();
  t->status = tr_launch(&j->options[rank], j->rank_main, j->user, &t->report);
  t->seconds = tr_clock_seconds() - begin;
  snprintf(t->text, sizeof t->text, "%s", tr_status_text());
  _exit(tr_status_exit_code(t->status));
}

static job job_of(int size, tr_rank_main rank_main, void *user) {
  job j = {.size = size, .missing = -1, .rank_main = rank_main, .user = user};
  for (int r = 0; r < 4; r++) {
    tr_launch_options_init(&j.options[r]);
    j.options[r].nrank = size;
    j.options[r].deadline = 20;
    j.options[r].grace = 10;
    j.options[r].arena_nbyte = (size_t)12 << 20;
  }
  return j;
}

// Start the ranks, wait for all.
static void run(const job *j) {
  pid_t pid[4];
  memset(shared, 0, 4 * sizeof *shared);
  fflush(NULL);
  for (int r = 0; r < j->size; r++) {
    pid[r] = r == j->missing ? -1 : fork();
    if (pid[r] == 0) be_rank(j, r);
  }
  for (int r = 0; r < j->size; r++)
    if (pid[r] > 0) waitpid(pid[r], NULL, 0);
}

static void ranks_meet_and_conform(void **state) {
  (void)state;
  cf_options options = {.large = 5003};
  for (int size = 2; size <= 3; size++) {
    job j = job_of(size, cf_main, &options);
    run(&j);
    for (int r = 0; r < size; r++) {
      if (shared[r].status != TR_OK) print_error("rank %d of %d: %s\n", r, size, shared[r].report.text);
      assert_int_equal(shared[r].status, TR_OK);
      assert_string_equal(shared[r].report.text, "");
    }
  }
}

static tr_status hash_of_sum(tr_comm *comm, void *user) {
  size_t n = 50021;
  float *x = tr_arena_alloc(tr_comm_arena(comm), n * 4);
  (void)user;
  cf_fill(TR_F32, x, n, tr_comm_rank(comm), 0, 1);
  TR_TRY(tr_group_allreduce(tr_comm_world(comm), x, x, n, TR_F32, TR_SUM, NULL));
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < n * 4; i++) h = (h ^ ((unsigned char *)x)[i]) * 1099511628211u;
  shared[tr_comm_rank(comm)].hash = h;
  return TR_OK;
}

static void sums_have_the_bits_of_forked_ranks(void **state) {
  (void)state;
  job j = job_of(3, hash_of_sum, NULL);
  assert_int_equal(tr_launch(&j.options[0], hash_of_sum, NULL, NULL), TR_OK);
  uint64_t forked = shared[0].hash;
  run(&j);
  assert_int_not_equal(forked, 0);
  for (int r = 0; r < 3; r++) assert_int_equal(shared[r].hash, forked);
}

// ---- failures: every rank ends, with one sentence

static tr_status kill_one(tr_comm *comm, void *user) {
  const int *who = user;
  TR_TRY(tr_group_barrier(tr_comm_world(comm)));
  tr_comm_activity(comm, "F", 7, -1);
  if (tr_comm_rank(comm) == *who) raise(SIGKILL);
  return tr_group_barrier(tr_comm_world(comm));
}

static void a_killed_rank_ends_the_job(void **state) {
  (void)state;
  for (int who = 0; who < 3; who++) {
    char text[80];
    job j = job_of(3, kill_one, &who);
    run(&j);
    for (int r = 0; r < 3; r++) {
      if (r == who) continue;
      assert_int_equal(shared[r].status, TR_ERR_PEER);
      assert_int_equal(shared[r].report.culprit, who);
      snprintf(text, sizeof text, "rank %d (pid ", who);
      assert_non_null(strstr(shared[r].report.text, text));
      assert_non_null(strstr(shared[r].report.text, "was killed or has ended while in F of step 7"));
      assert_string_equal(shared[r].text, ""); // a starter may end the ranks any moment: it was said at once
    }
  }
}

static tr_status fail_on_2(tr_comm *comm, void *user) {
  (void)user;
  if (tr_comm_rank(comm) == 2) return tr_error(TR_ERR_IO, "the disk is full");
  return tr_group_barrier(tr_comm_world(comm));
}

static void a_failure_is_that_of_all_and_rank_0_says_it(void **state) {
  (void)state;
  job j = job_of(3, fail_on_2, NULL);
  run(&j);
  for (int r = 0; r < 3; r++) {
    assert_int_equal(shared[r].status, TR_ERR_IO);
    assert_int_equal(shared[r].report.culprit, 2);
    assert_string_equal(shared[r].report.text, "rank 2: the disk is full");
    assert_string_equal(shared[r].text, r == 0 ? "rank 2: the disk is full" : "");
  }
}

static tr_status hang_on_1(tr_comm *comm, void *user) {
  (void)user;
  if (tr_comm_rank(comm) == 1)
    for (;;) pause();
  return tr_group_barrier(tr_comm_world(comm));
}

static void a_stuck_rank_is_named_and_ended(void **state) {
  (void)state;
  job j = job_of(3, hang_on_1, NULL);
  for (int r = 0; r < 3; r++) j.options[r].deadline = 4, j.options[r].grace = 1;
  run(&j);
  assert_int_equal(shared[0].status, TR_ERR_TIMEOUT);
  assert_int_equal(shared[0].report.culprit, 1);
  assert_non_null(strstr(shared[0].report.text, "rank 1 (pid "));
  assert_int_equal(shared[1].status, TR_OK); // it never got to say anything
  assert_true(shared[1].seconds == 0);
}

static void who_does_not_come_is_named(void **state) {
  (void)state;
  job j = job_of(3, hash_of_sum, NULL);
  j.missing = 1;
  for (int r = 0; r < 3; r++) j.options[r].deadline = 2;
  run(&j);
  assert_int_equal(shared[0].status, TR_ERR_TIMEOUT);
  assert_non_null(strstr(shared[0].text, "rank 0 waited in vain for the other ranks of its host to start; missing: "
                                         "rank 1"));
  assert_true(shared[2].status < 0);
}

static void ranks_with_other_settings_are_refused(void **state) {
  (void)state;
  job j = job_of(2, hash_of_sum, NULL);
  j.options[1].arena_nbyte *= 2;
  run(&j);
  for (int r = 0; r < 2; r++) {
    assert_int_equal(shared[r].status, TR_ERR_CONFIG);
    assert_non_null(strstr(shared[r].text, "rank 0 and rank 1 of one host were started with different settings"));
  }
  j = job_of(2, hash_of_sum, NULL);
  j.options[0].nrank = j.options[1].nrank = 3;
  run(&j);
  assert_int_equal(shared[0].status, TR_ERR_USAGE);
  assert_non_null(strstr(shared[0].text, "torchrun has started 2 ranks, 3 are wanted"));
}

// ---- one rank of a real job

// Between hosts an operation goes on, to its end, while the rank computes and asks for nothing.
static tr_status moves_by_itself(tr_comm *comm) {
  enum { N = 1 << 20 };
  tr_request *request;
  float *x = tr_arena_alloc(tr_comm_arena(comm), N * sizeof *x);
  if (!x) return TR_ERR_MEMORY;
  for (int i = 0; i < N; i++) x[i] = (float)tr_comm_rank(comm);
  TR_TRY(tr_group_allreduce(tr_comm_world(comm), x, x, N, TR_F32, TR_SUM, &request));
  double until = tr_clock_seconds() + 20;
  const volatile tr_status *status = &request->status;
  while (*status == TR_PENDING && tr_clock_seconds() < until) tr_comm_beat(comm); // this is the computation
  if (*status == TR_PENDING) return tr_error(TR_ERR_VERIFY, "an all-reduce waits for a rank that computes");
  return tr_request_wait(request);
}

static tr_status started_main(tr_comm *comm, void *options) {
  if (tr_comm_hosts(comm) > 1) TR_TRY(moves_by_itself(comm));
  return cf_main(comm, options);
}

static tr_status start(int nrank, tr_rank_main rank_main, void *user, tr_launch_report *report) {
  tr_launch_options o;
  tr_launch_options_init(&o);
  o.nrank = nrank;
  o.deadline = 30;
  o.arena_nbyte = (size_t)16 << 20;
  tr_status status = tr_launch(&o, rank_main, user, report);
  if (status < 0 && *tr_status_text()) fprintf(stderr, "%s\n", tr_status_text());
  return status;
}

static int be_started(int nrank) {
  cf_options options = {.large = 20011};
  tr_status status = start(nrank, started_main, &options, NULL);
  if (status == TR_OK) printf("a rank conforms\n");
  return tr_status_exit_code(status);
}

// Leaves what each rank's report says in FOLDER/said.RANK, and waits for the others', as starters end all ranks with the first.
static int differ_started(const tr_launch_place *place, int how, const char *folder) {
  tr_launch_report report;
  char path[400], done[400];
  tr_status status = start(place->size, call_differently, &how, &report);
  snprintf(path, sizeof path, "%s/saying.%d", folder, place->rank);
  snprintf(done, sizeof done, "%s/said.%d", folder, place->rank);
  FILE *file = fopen(path, "w");
  if (!file) return 1;
  fprintf(file, "%s, culprit %d\n", report.text, report.culprit);
  if (fclose(file) != 0 || rename(path, done) != 0) return 1;
  double until = tr_clock_seconds() + 20;
  for (int r = 0; r < place->size && tr_clock_seconds() < until;) {
    snprintf(path, sizeof path, "%s/said.%d", folder, r);
    if (access(path, F_OK) == 0)
      r++;
    else
      tr_clock_sleep_ns(5000000);
  }
  return tr_status_exit_code(status);
}

int main(int argc, char **argv) {
  tr_launch_place place;
  if (tr_launch_placed(&place) > 0)
    return argc == 3 ? differ_started(&place, atoi(argv[1]), argv[2]) : be_started(place.size);
  skip_unless_forking_works();
  void *pages = mmap(NULL, 4 * sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return 1;
  shared = pages;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_meet_and_conform),
      cmocka_unit_test(sums_have_the_bits_of_forked_ranks),
      cmocka_unit_test(a_killed_rank_ends_the_job),
      cmocka_unit_test(a_failure_is_that_of_all_and_rank_0_says_it),
      cmocka_unit_test(a_stuck_rank_is_named_and_ended),
      cmocka_unit_test(who_does_not_come_is_named),
      cmocka_unit_test(ranks_with_other_settings_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
