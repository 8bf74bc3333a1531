// SPDX-License-Identifier: MIT
// tier: full
// timeout: 300
// Proves that pipelines of processes compute the bits of pipelines of threads, and that a rank that is killed, hangs or fails
// in the middle of a step is named by all others.
#include "run/pipeline_cases.h"
#include <signal.h>
#include <unistd.h>

static const struct {
  const char *name;
  int p, v, m, dp, zero;
} plan[] = {
    {"1f1b", 4, 0, 6, 1, 0},     {"1f1b", 2, 0, 4, 2, 1},  {"interleaved", 2, 2, 4, 2, 0}, {"zb_h2", 3, 0, 5, 1, 0},
    {"dualpipe", 4, 0, 8, 1, 1}, {"zbv", 3, 0, 6, 1, 0},   {"dualpipev", 2, 0, 4, 2, 1},   {"gpipe", 8, 0, 3, 1, 0},
    {"dualpipe", 2, 0, 4, 2, 0}, {"naive", 2, 0, 1, 1, 0},
};
enum { PLANS = sizeof plan / sizeof *plan };

static void processes_and_threads_give_the_same_bits(void **state) {
  (void)state;
  for (int i = 0; i < PLANS; i++) {
    ph_case c = ph_default(plan[i].name, plan[i].p, plan[i].dp, plan[i].m);
    c.v = plan[i].v;
    c.run.zero = plan[i].zero;
    c.run.steps = 3;
    c.run.tied = i % 3 != 0;
    c.run.dropout = 0.1;
    c.run.clip = 0.5;
    c.run.optim.kind = TR_OPTIM_ADAMW;
    ph_result *threads = ph_run(&c);
    c.run.mode = TR_LAUNCH_PROCESSES;
    ph_result *processes = ph_run(&c);
    assert_true(threads->told[0] == processes->told[0]);
    assert_memory_equal(threads->gradient, processes->gradient, (size_t)threads->total * sizeof(double));
    assert_memory_equal(threads->weights, processes->weights, (size_t)threads->total * sizeof(double));
    ph_free(threads);
    ph_free(processes);
  }
}

// ---- faults

enum { CULPRIT = 2, FAULT_STEP = 1, FAULT_MICROBATCH = 2, WORLD = 4 };
typedef enum fault { KILLED, HANGS, FAILS } fault;

typedef struct struck {
  ph_case c;
  fault what;
  tr_op_kind where;
  char said[WORLD][1024]; // by each rank
} struck;

static void strike(void *user, int64_t step, uint32_t index, const tr_op *op) {
  const struck *s = user;
  (void)index;
  if (step != FAULT_STEP || op->kind != s->where || op->microbatch != FAULT_MICROBATCH) return;
  if (s->what == KILLED) raise(SIGKILL);
  while (s->what == HANGS) pause();
}

static tr_status struck_main(tr_comm *comm, void *user) {
  struck *s = user;
  ph_rank r;
  tr_step_result done;
  int rank = tr_comm_rank(comm);
  TR_TRY(ph_open(&s->c, comm, &r));
  tr_run_destroy(r.run);
  if (rank == CULPRIT) r.options.observer[r.options.nobserver++] = (tr_run_observer){.op_begin = strike, .user = s};
  TR_TRY(tr_run_create(&r.options, &r.run));
  tr_status status = tr_run_init_weights(r.run, 5);
  for (int step = 0; step < 4 && status == TR_OK; step++) {
    rh_deal(&s->c.run, step, r.dp_rank, r.rows, r.input);
    if (s->what == FAILS && step == FAULT_STEP && rank == CULPRIT) r.input[0].rows = r.options.rows + 1;
    status = tr_run_step(r.run, step, s->c.run.lr, r.input, &done);
  }
  if (status < 0) snprintf(s->said[rank], sizeof s->said[rank], "%s", tr_status_text());
  ph_close(&r);
  return status;
}

static void strike_pipeline(const char *schedule, int m, fault what, tr_op_kind where, tr_status expected) {
  struck *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  tr_launch_options launch;
  tr_launch_report report;
  assert_true(s != MAP_FAILED);
  s->c = ph_default(schedule, WORLD, 1, m);
  s->c.run.mode = TR_LAUNCH_PROCESSES;
  s->what = what;
  s->where = where;
  ph_launch_options(&s->c, &launch);
  launch.deadline = what == HANGS ? 2 : 20;
  assert_int_equal(tr_launch(&launch, struck_main, s, &report), expected);
  assert_int_equal(report.culprit, CULPRIT);
  for (int rank = 0; rank < WORLD; rank++) {
    if (rank != CULPRIT && !strstr(s->said[rank], "rank 2")) fail_msg("rank %d said '%s'", rank, s->said[rank]);
  }
  assert_true(what != HANGS || strstr(report.text, "step 2, micro-batch 2")); // people count steps from one
  assert_true(what != FAILS || strstr(report.text, "rows"));
  munmap(s, sizeof *s);
}

static void a_rank_that_is_killed_is_named(void **state) {
  (void)state;
  strike_pipeline("1f1b", 6, KILLED, TR_OP_F, TR_ERR_PEER);
  strike_pipeline("zb_h1", 6, KILLED, TR_OP_W, TR_ERR_PEER);
  strike_pipeline("dualpipe", 8, KILLED, TR_OP_SEND, TR_ERR_PEER);
}

static void a_rank_that_hangs_is_named(void **state) {
  (void)state;
  strike_pipeline("1f1b", 6, HANGS, TR_OP_B, TR_ERR_TIMEOUT);
  strike_pipeline("zbv", 6, HANGS, TR_OP_F, TR_ERR_TIMEOUT);
  strike_pipeline("gpipe", 4, HANGS, TR_OP_F, TR_ERR_TIMEOUT);
}

static void a_rank_that_fails_is_named(void **state) {
  (void)state;
  strike_pipeline("1f1b", 6, FAILS, TR_OP_F, TR_ERR_DATA);
}

// The thread sanitizer starts a thread of its own with the first of ours and keeps it; ranks cannot be forked then.
static int forking_works(void) {
  rh_case c = rh_default();
  char line[128];
  int threads = 1;
  rh_free(rh_run(&c));
  FILE *file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file)) sscanf(line, "Threads: %d", &threads);
  if (file) fclose(file);
  return threads == 1;
}

int main(void) {
  if (!forking_works()) {
    printf("skipped: this process keeps a second thread (thread sanitizer), so ranks cannot be forked\n");
    return 77;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(processes_and_threads_give_the_same_bits),
      cmocka_unit_test(a_rank_that_is_killed_is_named),
      cmocka_unit_test(a_rank_that_hangs_is_named),
      cmocka_unit_test(a_rank_that_fails_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
