// SPDX-License-Identifier: MIT
// The schedules with numbers that their rules allow, and what a pipeline must equal.
#ifndef TRIREME_TESTS_RUN_PIPELINE_CASES_H
#define TRIREME_TESTS_RUN_PIPELINE_CASES_H

#include "run/pipeline_harness.h"

typedef struct pl_rule {
  const char *name;
  int v;        // stages per rank, 0: as the schedule has it
  int ascends;  // weight gradients are added in ascending order of micro-batches, on one copy of each stage
  int multiple; // of p, that m must be; 0: any
  int least;    // times p, that m must be at least
  int even;     // p and m
} pl_rule;

static const pl_rule pl_schedule[] = {
    {.name = "naive", .ascends = 1},
    {.name = "gpipe", .ascends = 1},
    {.name = "gpipe_lifo"},
    {.name = "1f1b", .ascends = 1},
    {.name = "1f1b_eager", .ascends = 1},
    {.name = "interleaved", .v = 2, .ascends = 1, .multiple = 1},
    {.name = "interleaved", .v = 3, .ascends = 1, .multiple = 1},
    {.name = "looped_bfs", .v = 2},
    {.name = "zb_h1", .ascends = 1},
    {.name = "zb_h2", .ascends = 1},
    {.name = "zb_e1", .ascends = 1, .least = 2},
    {.name = "interleaved_zb", .v = 2, .ascends = 1, .multiple = 1},
    {.name = "zbv", .ascends = 1},
    {.name = "dualpipe", .least = 2, .even = 1},
    {.name = "dualpipev", .ascends = 1, .least = 2},
    {.name = NULL},
};

// The k-th choice of micro-batches for a schedule on p ranks, and layers enough for its stages: 2 p, fewer than ranks, an odd
// number. Returns 0 where the rule has none.
static inline int pl_numbers(const pl_rule *rule, int p, int k, ph_case *c) {
  int m = k == 0 ? 2 * p : k == 1 ? (p + 1) / 2 : 2 * p + 1, v = rule->v ? rule->v : 2;
  if (strcmp(rule->name, "naive") == 0) m = 1;
  if ((rule->even && p % 2) || (strcmp(rule->name, "zb_e1") == 0 && p == 1)) return 0;
  if (rule->even && m % 2) m++;
  if (rule->multiple) m = k == 0 ? 2 * p : k == 1 ? p : 3 * p;
  if (m < rule->least * p || m > RH_MICRO) return 0;
  if (k > 0 && strcmp(rule->name, "naive") == 0) return 0;
  c->v = rule->v;
  c->run.micro = m;
  c->run.sequences = k == 1 ? c->run.nrank * m + 1 : 2 * c->run.nrank * m - 1; // the first leaves half of them empty
  c->run.layers = p * v - 2 < 3 ? 3 : p * v - 2 + k;
  return 1;
}

static inline const pl_rule *pl_rule_of(const ph_case *c) {
  const pl_rule *rule = pl_schedule;
  while (strcmp(rule->name, c->schedule) != 0) rule++;
  return rule;
}

static inline void pl_close(const ph_case *c, const char *what, double difference, double allowed,
                            const char *tensor) {
  char name[160];
  ph_describe(c, name);
  if (!(difference <= allowed))
    fail_msg("%s: %s differ by %g, allowed %g; %s", name, what, difference, allowed, tensor);
}

// Rule 8 of the architecture.
static inline void pl_equal(const ph_case *c, const ph_result *got, const rh_result *want) {
  char tensor[96];
  for (int step = 0; step < c->run.steps; step++) {
    assert_int_equal(got->tokens[step], want->tokens[step]);
    assert_int_equal(got->skipped[step], want->skipped[step]);
    pl_close(c, "losses", fabs(got->loss[step] - want->loss[step]), 1e-5, "");
    pl_close(c, "norms", fabs(got->norm[step] - want->norm[step]), 1e-5 * (1 + want->norm[step]), "");
    pl_close(c, "clip factors", fabs(got->clip[step] - want->clip[step]), 1e-5, "");
  }
  pl_close(c, "gradients", rh_difference(&c->run, got->gradient, want->gradient, 1, 0, tensor), 1e-5, tensor);
  double allowed = c->run.optim.kind == TR_OPTIM_SGD ? 1e-5 : 1e-4;
  pl_close(c, "weights", rh_difference(&c->run, got->weights, want->weights, 0, 1, tensor), allowed, tensor);
}

static inline void pl_same_bits(const ph_case *c, const ph_result *got, const rh_result *want) {
  size_t nbyte = (size_t)got->total * sizeof(double);
  for (int step = 0; step < c->run.steps; step++) {
    pl_close(c, "bits of losses", fabs(got->loss[step] - want->loss[step]), 0, "");
    pl_close(c, "bits of norms", fabs(got->norm[step] - want->norm[step]), 0, "");
  }
  pl_close(c, "bits of gradients", memcmp(got->gradient, want->gradient, nbyte) != 0, 0, "");
  pl_close(c, "bits of weights", memcmp(got->weights, want->weights, nbyte) != 0, 0, "");
}

// Two ways of one pipeline.
static inline void pl_same_run(const ph_case *a, const ph_case *b) {
  ph_result *x = ph_run(a), *y = ph_run(b);
  size_t nbyte = (size_t)x->total * sizeof(double);
  char name[160];
  ph_describe(a, name);
  for (int step = 0; step < a->run.steps; step++)
    if (x->loss[step] != y->loss[step] || x->norm[step] != y->norm[step]) fail_msg("%s: step %d differs", name, step);
  if (memcmp(x->gradient, y->gradient, nbyte) != 0 || memcmp(x->weights, y->weights, nbyte) != 0)
    fail_msg("%s: gradients or weights differ", name);
  ph_free(x);
  ph_free(y);
}

// The same data on one rank, in one micro-batch; and on as many ranks with other data as the pipeline has, in as many.
static inline rh_case pl_yardstick(const ph_case *c) {
  rh_case one = c->run;
  one.nrank = one.nthread = one.micro = 1;
  one.zero = one.pack = 0;
  one.wire = TR_F32;
  one.mode = TR_LAUNCH_THREADS;
  return one;
}

static inline void pl_check(const ph_case *c) {
  rh_case one = pl_yardstick(c), same = c->run;
  rh_result *want = rh_run(&one), *bits = rh_run(&same);
  ph_result *got = ph_run(c);
  assert_true(want->loss[0] > 2 && want->loss[0] < 6 && want->tokens[0] > 0);
  pl_equal(c, got, want);
  if (pl_rule_of(c)->ascends && !c->run.tied) pl_same_bits(c, got, bits);
  ph_free(got);
  rh_free(want);
  rh_free(bits);
}

#endif
