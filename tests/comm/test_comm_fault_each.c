// SPDX-License-Identifier: MIT
// tier: full
// timeout: 240
// One rank is killed, stopped and slowed down in each operation: the others end with a report that names it, and a rank
// that is only slow is waited for. That they end in time is part of it: within the deadline and 2 s the error is with all
// that wait, and a grace period later the job is over. A machine may stand still for a while, but not three times in a row.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/processes.h"
#include "trireme/base/clock.h"
#include "trireme/comm/launch.h"
#include <signal.h>

enum { RANKS = 3, COUNT = 6000, CULPRIT = 1, FAILING = 1, STEPS = 3 };

// ---- the operations: `a` and `b` have RANKS * COUNT elements

typedef tr_status (*called)(tr_comm *comm, float *a, float *b);

static tr_status allreduce(tr_comm *comm, float *a, float *b) {
  return tr_group_allreduce(tr_comm_world(comm), a, b, COUNT, TR_F32, TR_SUM, NULL);
}
static tr_status reduce(tr_comm *comm, float *a, float *b) {
  return tr_group_reduce(tr_comm_world(comm), a, b, COUNT, TR_F32, TR_SUM, 0, NULL);
}
static tr_status reduce_scatter(tr_comm *comm, float *a, float *b) {
  return tr_group_reduce_scatter(tr_comm_world(comm), a, b, COUNT, TR_F32, TR_SUM, NULL);
}
static const size_t starts[RANKS + 1] = {0, COUNT / 2, COUNT, 2 * COUNT};
static tr_status reduce_scatter_v(tr_comm *comm, float *a, float *b) {
  return tr_group_reduce_scatter_v(tr_comm_world(comm), a, b, starts, TR_F32, TR_F32, TR_SUM, 1, NULL, NULL, NULL);
}
static tr_status allgather(tr_comm *comm, float *a, float *b) {
  return tr_group_allgather(tr_comm_world(comm), a, b, COUNT, TR_F32, NULL);
}
static tr_status allgather_v(tr_comm *comm, float *a, float *b) {
  return tr_group_allgather_v(tr_comm_world(comm), a, b, starts, TR_F32, NULL);
}
static tr_status alltoall(tr_comm *comm, float *a, float *b) {
  return tr_group_alltoall(tr_comm_world(comm), a, b, COUNT, TR_F32, NULL);
}
static const size_t blocks[RANKS + 1] = {0, COUNT, 2 * COUNT, 3 * COUNT};
static tr_status alltoall_v(tr_comm *comm, float *a, float *b) {
  return tr_group_alltoall_v(tr_comm_world(comm), a, blocks, b, blocks, TR_F32, NULL);
}
static tr_status broadcast(tr_comm *comm, float *a, float *b) {
  (void)b;
  return tr_group_broadcast(tr_comm_world(comm), a, COUNT, TR_F32, 0, NULL);
}
static tr_status gather(tr_comm *comm, float *a, float *b) {
  return tr_group_gather(tr_comm_world(comm), a, b, COUNT, TR_F32, 0, NULL);
}
static tr_status scatter(tr_comm *comm, float *a, float *b) {
  return tr_group_scatter(tr_comm_world(comm), a, b, COUNT, TR_F32, 0, NULL);
}
static tr_status barrier(tr_comm *comm, float *a, float *b) {
  (void)a;
  (void)b;
  return tr_group_barrier(tr_comm_world(comm));
}
static tr_status ring(tr_comm *comm, float *a, float *b) {
  tr_group *world = tr_comm_world(comm);
  int rank = tr_comm_rank(comm);
  tr_request *send;
  TR_TRY(tr_group_send(world, (rank + 1) % RANKS, 4, a, COUNT * sizeof *a, &send));
  TR_TRY(tr_group_recv(world, (rank + RANKS - 1) % RANKS, 4, b, COUNT * sizeof *b, NULL));
  return tr_request_wait(send);
}
static tr_status create(tr_comm *comm, float *a, float *b) { // the rank that fails leads
  (void)a;
  (void)b;
  const int ranks[RANKS] = {CULPRIT, 2, 0};
  tr_group *group;
  TR_TRY(tr_group_create(comm, ranks, RANKS, "led", &group));
  TR_TRY(tr_group_barrier(group));
  tr_group_destroy(group);
  return TR_OK;
}

static const struct named {
  const char *name;
  called call;
  const char *posted, *working; // hook points; "" none
} operations[] = {
    {"all-reduce", allreduce, "allreduce.ready", "allreduce.reduce"},
    {"reduce", reduce, "reduce.ready", "reduce.reduce"},
    {"reduce-scatter", reduce_scatter, "reduce_scatter.ready", "reduce_scatter.reduce"},
    {"reduce-scatter-v", reduce_scatter_v, "reduce_scatter_v.ready", "reduce_scatter_v.reduce"},
    {"all-gather", allgather, "allgather.ready", "allgather.copy"},
    {"all-gather-v", allgather_v, "allgather_v.ready", "allgather_v.copy"},
    {"all-to-all", alltoall, "alltoall.ready", "alltoall.copy"},
    {"all-to-all-v", alltoall_v, "alltoall_v.ready", "alltoall_v.copy"},
    {"broadcast", broadcast, "broadcast.ready", "broadcast.copy"},
    {"gather", gather, "gather.ready", "gather.copy"},
    {"scatter", scatter, "scatter.ready", "scatter.copy"},
    {"barrier", barrier, "barrier.ready", ""},
    {"send", ring, "send.ready", "recv.copy"},
    {"creation", create, "", ""},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

// ---- the job

typedef enum way { KILLED_BEFORE, KILLED_POSTED, KILLED_AT_WORK, STOPPED, SLOW } way;

typedef struct plan {
  const struct named *operation;
  way way;
  int outside; // buffers outside the arena
  int32_t pid;
  int64_t failed, told[RANKS]; // ns: when the culprit went, and when the others' calls returned an error
} plan;

static void die_at(void *user, const char *point) {
  plan *p = user;
  if (strcmp(point, p->way == KILLED_POSTED ? p->operation->posted : p->operation->working) != 0) return;
  p->failed = tr_clock_ns();
  raise(SIGKILL);
}

static void misbehave(tr_comm *comm, plan *p) {
  p->pid = getpid();
  p->failed = tr_clock_ns();
  switch (p->way) {
  case KILLED_BEFORE: raise(SIGKILL); break;
  case STOPPED: raise(SIGSTOP); break;
  case SLOW: tr_clock_sleep_ns(300000000); break;
  default: tr_comm_set_hook(comm, die_at, p);
  }
}

static tr_status repeat(tr_comm *comm, void *user) {
  plan *p = user;
  static float own[2][RANKS * COUNT];
  float *a = own[0], *b = own[1];
  if (!p->outside) {
    a = tr_arena_alloc(tr_comm_arena(comm), sizeof own[0]);
    b = tr_arena_alloc(tr_comm_arena(comm), sizeof own[0]);
  }
  for (int step = 0; step < STEPS; step++) {
    tr_comm_activity(comm, "F", step, -1);
    if (step == FAILING && tr_comm_rank(comm) == CULPRIT) misbehave(comm, p);
    tr_status status = p->operation->call(comm, a, b);
    if (status < 0) p->told[tr_comm_rank(comm)] = tr_clock_ns();
    TR_TRY(status);
  }
  return TR_OK;
}

static void says(const char *text, const char *part) {
  if (!strstr(text, part)) print_error("expected '%s' in '%s'\n", part, text);
  assert_non_null(strstr(text, part));
}

// A bound on how long a loss is waited for, not on speed: the grace begins when the first rank has found out.
static int ended_in_time(const plan *p, const tr_launch_options *o) {
  const double slack = 2, found = (p->way == STOPPED ? o->deadline : 1) + slack,
               over = (double)(tr_clock_ns() - p->failed) * 1e-9;
  int in_time = over <= found + o->grace;
  for (int r = 0; r < RANKS; r++) {
    double told = (double)(p->told[r] - p->failed) * 1e-9;
    if (told > found) print_error("%s: rank %d was told after %.2f s\n", p->operation->name, r, told);
    in_time &= told <= found;
  }
  if (over > found + o->grace) print_error("%s: it took %.2f s to end\n", p->operation->name, over);
  return in_time;
}

// Whether it ended in time.
static int run_once(const struct named *operation, way how, int outside, tr_status expected) {
  tr_launch_options o;
  tr_launch_report report;
  tr_launch_options_init(&o);
  o.nrank = RANKS;
  o.arena_nbyte = 1 << 20;
  o.deadline = how == STOPPED ? 1 : 20;
  o.grace = 1;
  plan *p = shared_page();
  *p = (plan){.operation = operation, .way = how, .outside = outside};
  int files = open_files();
  tr_status status = tr_launch(&o, repeat, p, &report);
  int in_time = expected == TR_OK || ended_in_time(p, &o);
  if (status != expected) print_error("%s: %s\n", operation->name, report.text);
  assert_int_equal(status, expected);
  if (expected != TR_OK) {
    char who[48];
    snprintf(who, sizeof who, "rank %d (pid %d)", CULPRIT, p->pid);
    says(report.text, who);
    says(report.text,
         how == STOPPED ? "made no progress for " : "was killed by signal 9 (Killed) while in F of step");
    assert_int_equal(report.culprit, CULPRIT);
  }
  assert_int_equal(open_files(), files);
  assert_int_equal(memory_files_mapped(), 0);
  assert_true(no_children());
  free_shared_page(p);
  return in_time;
}

static void run(const struct named *operation, way how, int outside, tr_status expected) {
  for (int attempt = 0; !run_once(operation, how, outside, expected); attempt++) assert_true(attempt < 2);
}

static void killed_before_each_operation_is_reported(void **state) {
  (void)state;
  for (int i = 0; i < OPERATIONS; i++) run(&operations[i], KILLED_BEFORE, i % 2, TR_ERR_PEER);
  assert_int_equal(tr_status_exit_code(TR_ERR_PEER), 6);
}

static void killed_inside_each_operation_is_reported(void **state) {
  (void)state;
  for (int i = 0; i < OPERATIONS; i++)
    for (int outside = 0; outside < 2; outside++) {
      if (*operations[i].posted) run(&operations[i], KILLED_POSTED, outside, TR_ERR_PEER);
      if (*operations[i].working) run(&operations[i], KILLED_AT_WORK, outside, TR_ERR_PEER);
    }
}

static void stopped_in_each_operation_is_blamed(void **state) {
  (void)state;
  for (int i = 0; i < OPERATIONS; i++) run(&operations[i], STOPPED, i % 2, TR_ERR_TIMEOUT);
  assert_int_equal(tr_status_exit_code(TR_ERR_TIMEOUT), 7);
}

static void slow_in_each_operation_is_waited_for(void **state) {
  (void)state;
  for (int i = 0; i < OPERATIONS; i++) run(&operations[i], SLOW, (i + 1) % 2, TR_OK);
}

int main(void) {
  skip_unless_forking_works();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(killed_before_each_operation_is_reported),
      cmocka_unit_test(killed_inside_each_operation_is_reported),
      cmocka_unit_test(stopped_in_each_operation_is_blamed),
      cmocka_unit_test(slow_in_each_operation_is_waited_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
