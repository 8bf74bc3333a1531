// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 180
// A rank that is killed or stopped in the middle of a script: the others end with a sentence that names it, whichever
// algorithm they are in.
//
// The middle is found by counting: the rank fails at the n-th point at which the hook is called, for many n.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/processes.h"
#include "trireme/comm/launch.h"
#include <signal.h>
#include <string.h>

enum { RANKS = 4, COUNT = 6000, STEPS = 30, CULPRIT = 1 };

typedef struct plan {
  int signal, left; // points until it is raised
  int32_t pid;
} plan;

static void fail_at(void *user, const char *point) {
  plan *p = user;
  (void)point;
  if (--p->left == 0) raise(p->signal);
}

static tr_status all_kinds(tr_group *g, float *a, float *b) {
  TR_TRY(tr_group_allreduce(g, a, b, COUNT, TR_F32, TR_SUM, NULL));
  TR_TRY(tr_group_reduce_scatter(g, a, b, COUNT, TR_F32, TR_SUM, NULL));
  TR_TRY(tr_group_allgather(g, a, b, COUNT, TR_F32, NULL));
  TR_TRY(tr_group_alltoall(g, a, b, COUNT, TR_F32, NULL));
  TR_TRY(tr_group_broadcast(g, a, COUNT, TR_F32, 2, NULL));
  TR_TRY(tr_group_reduce(g, a, b, COUNT, TR_F32, TR_SUM, 3, NULL));
  TR_TRY(tr_group_gather(g, a, b, COUNT, TR_F32, 0, NULL));
  return tr_group_scatter(g, a, b, COUNT, TR_F32, 0, NULL);
}

static tr_status repeat(tr_comm *comm, void *user) {
  plan *p = user;
  float *a = tr_arena_alloc(tr_comm_arena(comm), RANKS * COUNT * sizeof *a);
  float *b = tr_arena_alloc(tr_comm_arena(comm), RANKS * COUNT * sizeof *b);
  for (int step = 0; step < STEPS; step++) {
    tr_comm_activity(comm, "F", step, -1);
    if (step == 1 && tr_comm_rank(comm) == CULPRIT) {
      p->pid = getpid();
      tr_comm_set_hook(comm, fail_at, p);
    }
    TR_TRY(all_kinds(tr_comm_world(comm), a, b));
  }
  return TR_OK;
}

static void fails(const char *demand, int number, int points, tr_status expected, const char *sentence) {
  tr_launch_options o;
  tr_launch_report report;
  tr_launch_options_init(&o);
  o.nrank = RANKS;
  o.arena_nbyte = 1 << 20;
  o.deadline = number == SIGSTOP ? 1.5 : 20;
  o.grace = 1;
  o.any_order = 1;
  plan *p = shared_page();
  *p = (plan){.signal = number, .left = points};
  setenv("TRIREME_COMM", demand, 1);
  tr_status status = tr_launch(&o, repeat, p, &report);
  unsetenv("TRIREME_COMM");
  char who[48];
  snprintf(who, sizeof who, "rank %d (pid %d)", CULPRIT, p->pid);
  if (status != expected || !strstr(report.text, who) || !strstr(report.text, sentence))
    print_error("%s, point %d: %s\n", demand, points, report.text);
  assert_int_equal(status, expected);
  assert_int_equal(report.culprit, CULPRIT);
  assert_non_null(strstr(report.text, who));
  assert_non_null(strstr(report.text, sentence));
  assert_int_equal(memory_files_mapped(), 0);
  assert_true(no_children());
  free_shared_page(p);
}

static const char *const demands[] = {"direct", "ring",  "doubling",    "halving",        "tree",     "chain",
                                      "star",   "bruck", "double-tree", "hierarchical/2", "leaders/2"};
enum { DEMANDS = sizeof demands / sizeof *demands };

static void killed_in_the_middle_is_reported(void **state) {
  (void)state;
  for (int i = 0; i < DEMANDS; i++)
    for (int points = 3; points < 60; points += 7 + i)
      fails(demands[i], SIGKILL, points, TR_ERR_PEER, "signal 9 (Killed)");
}

static void stopped_in_the_middle_is_blamed(void **state) {
  (void)state;
  for (int i = 0; i < DEMANDS; i++) fails(demands[i], SIGSTOP, 5 + 3 * i, TR_ERR_TIMEOUT, "made no progress for ");
}

int main(void) {
  skip_unless_forking_works();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(killed_in_the_middle_is_reported),
      cmocka_unit_test(stopped_in_the_middle_is_blamed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
