// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// When a rank is lost or late, the launcher's standard error and its log say who was missing from which operation and what
// every rank was doing; errors that are nobody's absence say nothing.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/processes.h"
#include "trireme/base/clock.h"
#include "trireme/base/file.h"
#include "trireme/comm/launch.h"
#include <fcntl.h>
#include <signal.h>

typedef struct said {
  char *error, *log; // what the launcher wrote to standard error and to launcher.log; "" when nothing
} said;

static char *read_text(const char *path) {
  char *text = NULL;
  size_t n;
  if (tr_file_read(path, 1 << 20, &text, &n) < 0) text = strdup("");
  return text;
}

// Run ranks with standard error going to a file.
static tr_status launch(int nrank, tr_rank_main rank_main, tr_launch_mode mode, said *out) {
  char folder[] = "/tmp/trireme-report-XXXXXX", error[64], log[64];
  assert_non_null(mkdtemp(folder));
  snprintf(error, sizeof error, "%s/error", folder);
  snprintf(log, sizeof log, "%s/launcher.log", folder);
  tr_launch_options o;
  tr_launch_options_init(&o);
  o.mode = mode;
  o.nrank = nrank;
  o.arena_nbyte = 1 << 20;
  o.deadline = 1;
  o.grace = 1;
  o.log_folder = folder;
  fflush(stderr);
  const int keep = dup(STDERR_FILENO), file = open(error, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  assert_true(keep >= 0 && file >= 0);
  dup2(file, STDERR_FILENO);
  tr_status status = tr_launch(&o, rank_main, NULL, NULL);
  fflush(stderr);
  dup2(keep, STDERR_FILENO);
  close(keep);
  close(file);
  *out = (said){read_text(error), read_text(log)};
  tr_file_remove_tree(folder);
  return status;
}

static void forget(said *s) {
  free(s->error);
  free(s->log);
}

// A line that has all parts, in this order.
static void has_line(const char *text, const char *first, const char *second, const char *third) {
  for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
    char line[512];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    const char *a = strstr(line, first), *b = a ? strstr(a, second) : NULL;
    if (strncmp(line, "[launcher] ", 11) == 0 && b && strstr(b, third)) return;
  }
  print_error("no line with '%s', '%s', '%s' in:\n%s\n", first, second, third, text);
  fail();
}

static tr_status stop_one(tr_comm *comm, void *user) {
  (void)user;
  float x[1000] = {0};
  tr_group *world = tr_comm_world(comm);
  for (int step = 0; step < 5; step++) {
    tr_comm_activity(comm, "F", step, 7);
    if (step == 3 && tr_comm_rank(comm) == 1) raise(SIGSTOP);
    tr_comm_activity(comm, "REDUCE", step, -1);
    TR_TRY(tr_group_allreduce(world, x, x, 1000, TR_F32, TR_SUM, NULL));
  }
  return TR_OK;
}

static void stopped_rank_is_missing(void **state) {
  (void)state;
  said s;
  assert_int_equal(launch(4, stop_one, TR_LAUNCH_PROCESSES, &s), TR_ERR_TIMEOUT);
  const char *const texts[] = {s.error, s.log};
  for (int i = 0; i < 2; i++) {
    has_line(texts[i], "missing from all-reduce #4 of group 'world' (3.9 KiB): ", "rank 1; in it: ", "ranks 0 2 3");
    has_line(texts[i], "rank 0 on ", "(pid ", "in REDUCE of step 3 for ");
    has_line(texts[i], "rank 0 on ", "waiting in all-reduce #4 of group 'world' (3.9 KiB) for rank ", " s");
    has_line(texts[i], "rank 1 on ", "in F of step 3, micro-batch 7 for ", "waiting for nobody");
    has_line(texts[i], "rank 3 on ", "waiting in all-reduce #4", " for ");
  }
  forget(&s);
}

// Two groups wait for the same rank; a receive is an operation of two ranks.
static tr_status two_groups(tr_comm *comm, void *user) {
  (void)user;
  static const int pair[] = {0, 2};
  int32_t x = 0;
  tr_group *group = NULL;
  tr_comm_activity(comm, "B", 5, 1);
  TR_TRY(tr_group_barrier(tr_comm_world(comm))); // all have begun: none misses the other's deadline by starting late
  if (tr_comm_rank(comm) != 1) TR_TRY(tr_group_create(comm, pair, 2, "dp", &group));
  if (tr_comm_rank(comm) == 0) tr_group_barrier(group);
  if (tr_comm_rank(comm) == 1) tr_group_recv(tr_comm_world(comm), 2, 3, &x, 4, NULL);
  for (int i = 0; i < 500 && tr_comm_check(comm) == TR_OK; i++) tr_clock_sleep_ns(10000000);
  tr_group_destroy(group);
  return tr_comm_check(comm);
}

static void operations_of_several_groups_are_told_apart(void **state) {
  (void)state;
  for (int mode = 0; mode < 2; mode++) {
    said s;
    assert_int_equal(launch(3, two_groups, (tr_launch_mode)mode, &s), TR_ERR_TIMEOUT);
    has_line(s.error, "missing from barrier #1 of group 'dp': ", "rank 2; in it: ", "rank 0");
    has_line(s.error, "missing from receive #1 of group 'world' (4 B): ", "rank 2; in it: ", "rank 1");
    has_line(s.error, "rank 2 on ", "in B of step 5, micro-batch 1 for ", "waiting for nobody");
    forget(&s);
  }
}

static tr_status die(tr_comm *comm, void *user) {
  (void)user;
  TR_TRY(tr_group_barrier(tr_comm_world(comm))); // none is lost before the others have begun
  if (tr_comm_rank(comm) == 2) raise(SIGKILL);
  return tr_group_barrier(tr_comm_world(comm));
}

static void lost_rank_is_reported(void **state) {
  (void)state;
  said s;
  assert_int_equal(launch(3, die, TR_LAUNCH_PROCESSES, &s), TR_ERR_PEER);
  has_line(s.error, "rank 2 (pid ", "was killed by signal 9", "");
  has_line(s.error, "rank 0 on ", "(pid ", "in its start");
  has_line(s.error, "rank 2 on ", "(pid ", "lost; was in its start");
  forget(&s);
}

static tr_status fail_alone(tr_comm *comm, void *user) {
  (void)user;
  if (tr_comm_rank(comm) == 1) return tr_error(TR_ERR_DATA, "shard 7 of the data is empty");
  return tr_group_barrier(tr_comm_world(comm));
}

static void other_errors_have_no_table(void **state) {
  (void)state;
  said s;
  assert_int_equal(launch(2, fail_alone, TR_LAUNCH_PROCESSES, &s), TR_ERR_DATA);
  assert_string_equal(s.error, "");
  assert_string_equal(s.log, "");
  forget(&s);
}

int main(void) {
  skip_unless_forking_works();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(stopped_rank_is_missing),
      cmocka_unit_test(operations_of_several_groups_are_told_apart),
      cmocka_unit_test(lost_rank_is_reported),
      cmocka_unit_test(other_errors_have_no_table),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
