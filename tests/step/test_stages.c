// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that cuts of a model into stages are the best there are, against all cuts tried one by one: the largest stage is least,
// then the squares, within the memory of a rank; that ranks with several stages are nearly always as even as can be; and that counts of layers cut where they say, or are refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "step/schedule_cases.h"
#include "trireme/step/stages.h"
#include <math.h>

enum { PARTS = 10, STAGES = 8 };

static uint32_t draw(uint64_t *state, uint32_t n) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33) % n;
}

// Whole numbers, so that sums are exact.
static int random_parts(uint64_t *random, tr_stage_part *part) {
  int n = 1 + (int)draw(random, PARTS);
  for (int i = 0; i < n; i++)
    part[i] = (tr_stage_part){.forward = draw(random, 6),
                              .backward = draw(random, 12),
                              .states = draw(random, 20),
                              .activations = draw(random, 5),
                              .layers = i > 0 && i < n - 1};
  return n;
}

// ---- the judge

typedef struct verdict {
  double largest, squares; // of stages
  double rank;             // bytes of the fullest
  double ranks;            // squares of ranks
} verdict;

static verdict judge(const tr_stage_problem *x, const int *bound) {
  const tr_schedule *s = x->schedule;
  verdict out = {0, 0, 0, 0};
  int chunk[2];
  double rank[SC_RANKS];
  tr_stage_sum stage[STAGES];
  assert_int_equal(tr_stages_sum(x, bound, stage, rank), TR_OK);
  for (int i = 0; i < s->S; i++) {
    double work = stage[i].all.forward + stage[i].all.backward;
    double value = x->goal == TR_STAGES_WORK ? work : stage[i].bytes;
    assert_true(stage[i].bytes == stage[i].all.states + stage[i].peak * stage[i].all.activations);
    out.largest = fmax(out.largest, value);
    out.squares += value * value;
  }
  for (int r = 0; r < s->p; r++) {
    double work = 0;
    for (int c = tr_schedule_stages(s, r, chunk); c-- > 0;)
      work += stage[chunk[c]].all.forward + stage[chunk[c]].all.backward;
    const double value = x->goal == TR_STAGES_WORK ? work : rank[r];
    out.rank = fmax(out.rank, rank[r]);
    out.ranks += value * value;
  }
  return out;
}

static int better(const verdict *a, const verdict *b) {
  return a->largest != b->largest ? a->largest < b->largest : a->squares < b->squares;
}

// All cuts of parts [from, n) into stages from s on.
static void try_all(const tr_stage_problem *x, int s, int *bound, verdict *best, double *least_rank) {
  if (s == x->schedule->S) {
    if (bound[s] != x->npart) return;
    verdict one = judge(x, bound);
    *least_rank = fmin(*least_rank, one.rank);
    if ((x->limit <= 0 || one.rank <= x->limit) && better(&one, best)) *best = one;
    return;
  }
  for (int to = bound[s] + 1; to <= x->npart; to++) {
    bound[s + 1] = to;
    try_all(x, s + 1, bound, best, least_rank);
  }
}

// The least squares of ranks of all cuts whose stages are at most `largest`.
static double least_ranks(const tr_stage_problem *x, int s, int *bound, double largest) {
  double least = INFINITY;
  if (s == x->schedule->S) {
    if (bound[s] != x->npart) return INFINITY;
    verdict one = judge(x, bound);
    return one.largest > largest || (x->limit > 0 && one.rank > x->limit) ? INFINITY : one.ranks;
  }
  for (bound[s + 1] = bound[s] + 1; bound[s + 1] <= x->npart; bound[s + 1]++)
    least = fmin(least, least_ranks(x, s + 1, bound, largest));
  return least;
}

typedef struct tally {
  int found, refused, several, even; // several: of them those whose ranks have more stages than one
} tally;

static void one_problem(const tr_stage_problem *x, tally *n) {
  int bound[STAGES + 1], tried[STAGES + 1] = {0};
  verdict best = {INFINITY, INFINITY, INFINITY, INFINITY};
  double least_rank = INFINITY;
  try_all(x, 0, tried, &best, &least_rank);
  tr_status status = tr_stages_balance(x, bound);
  int one_each = x->schedule->v == 1;
  if (status != TR_OK) { // with several stages a rank the search may miss a cut, but it says so
    assert_int_equal(status, TR_ERR_PLAN);
    if (one_each || x->limit <= 0) assert_true(isinf(best.largest));
    n->refused++;
    return;
  }
  verdict made = judge(x, bound);
  assert_int_equal(bound[0], 0);
  assert_int_equal(bound[x->schedule->S], x->npart);
  if (x->limit > 0) assert_true(made.rank <= x->limit);
  if (one_each || x->limit <= 0 || made.largest == best.largest) {
    assert_true(made.largest == best.largest);
    if (one_each) assert_true(made.squares == best.squares);
  }
  n->found++;
  if (one_each) return;
  const double least = least_ranks(x, 0, tried, made.largest);
  assert_true(made.ranks >= least);
  n->several++;
  n->even += made.ranks == least;
}

static void cuts_are_the_best_there_are(void **state) {
  (void)state;
  static const char *const name[] = {"1f1b", "zb_h1", "gpipe", "interleaved", "zbv", "dualpipe"};
  tally all = {0, 0, 0, 0}, within = all;
  for (uint64_t seed = 0; seed < 6000; seed++) {
    uint64_t random = seed * 77 + 5;
    tr_stage_part part[PARTS];
    tr_schedule s;
    const char *which = name[draw(&random, 6)];
    int p = 1 + (int)draw(&random, 4);
    if (!strcmp(which, "dualpipe")) p = 2;
    if (sc_try(which, p, 4 * p, 0, 0, &s) != TR_OK) fail_msg("%s", tr_status_text());
    tr_stage_problem x = {part, random_parts(&random, part), &s, (tr_stage_goal)draw(&random, 2), 0};
    one_problem(&x, &all);
    x.limit = 1 + draw(&random, 300);
    one_problem(&x, &within);
    tr_schedule_destroy(&s);
  }
  assert_true(all.found > 2000 && within.found > 1000 && all.refused + within.refused > 1000);
  assert_true(all.several > 500 && all.even >= all.several - all.several / 50);
}

static void equal_layers_are_cut_evenly_and_late(void **state) {
  (void)state;
  tr_stage_part part[10];
  int bound[5];
  tr_schedule s;
  for (int i = 0; i < 10; i++) part[i] = (tr_stage_part){.forward = 1, .backward = 2, .layers = 1};
  sc_build("1f1b", 4, 8, 0, &s);
  assert_int_equal(tr_stages_balance(&(tr_stage_problem){part, 10, &s, TR_STAGES_WORK, 0}, bound), TR_OK);
  static const int expected[] = {0, 2, 4, 7, 10};
  assert_memory_equal(bound, expected, sizeof expected);
  tr_schedule_destroy(&s);
}

static void a_limit_moves_layers_to_where_fewer_are_alive(void **state) {
  (void)state;
  tr_stage_part part[8];
  int bound[5];
  double rank[4];
  tr_stage_sum stage[4];
  tr_schedule s;
  for (int i = 0; i < 8; i++) part[i] = (tr_stage_part){.forward = 1, .backward = 2, .activations = 10, .layers = 1};
  sc_build("1f1b", 4, 8, 0, &s);
  tr_stage_problem x = {part, 8, &s, TR_STAGES_WORK, 0};
  assert_int_equal(tr_stages_balance(&x, bound), TR_OK);
  assert_int_equal(tr_stages_sum(&x, bound, stage, rank), TR_OK);
  assert_true(rank[0] == 80 && rank[1] == 60 && rank[2] == 40 && rank[3] == 20);
  assert_int_equal(stage[0].peak, 4);
  x.limit = 60; // the first rank has 4 alive: 1 layer; the second 3: 2; the third 2: 2
  assert_int_equal(tr_stages_balance(&x, bound), TR_OK);
  static const int expected[] = {0, 1, 3, 5, 8};
  assert_memory_equal(bound, expected, sizeof expected);
  x.limit = 30;
  assert_int_equal(tr_stages_balance(&x, bound), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "do not fit into 30 B a rank: cut for memory alone, rank "));
  tr_schedule_destroy(&s);
}

// ---- counts

typedef struct counts {
  const char *layers;
  int bound[5]; // where says is NULL
  const char *says;
} counts;

static void counts_cut_where_they_say(void **state) {
  (void)state;
  static const counts row[] = {
      {"4,3,3,2", {0, 5, 8, 11, 14}, NULL},
      {"0,4,4,4", {0, 1, 5, 9, 14}, NULL},
      {"4,4,4,0", {0, 5, 9, 13, 14}, NULL},
      {"12,0,0,0", {0}, "stage 1 has no layer"},
      {"6,0,3,3", {0}, "stage 1 has no layer"},
      {"4,3,3", {0}, "has 3 counts for 4 stages"},
      {"4,3,3,1,1", {0}, "has 5 counts for 4 stages"},
      {"4,3,3,3", {0}, "makes 13 layers; the model has 12"},
      {"4,3,3,-2", {0}, "entry 3 is no count"},
      {"4,3,,2", {0}, "entry 2 is no count"},
      {"4,3,3,2,", {0}, "entry 3 is no count"},
      {"4,3,3,99999999", {0}, "entry 3 is no count"},
      {"", {0}, "entry 0 is no count"},
      {"4;3", {0}, "entry 0 is no count"},
  };
  tr_stage_part part[14];
  tr_schedule s;
  for (int i = 0; i < 14; i++) part[i] = (tr_stage_part){.layers = i > 0 && i < 13};
  sc_build("1f1b", 4, 8, 0, &s);
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    int bound[5];
    tr_status status = tr_stages_count(&(tr_stage_problem){part, 14, &s, TR_STAGES_WORK, 0}, row[i].layers, bound);
    if (row[i].says) {
      if (status != TR_ERR_PLAN || !strstr(tr_status_text(), row[i].says))
        fail_msg("\"%s\": %s", row[i].layers, tr_status_text());
    } else {
      assert_int_equal(status, TR_OK);
      assert_memory_equal(bound, row[i].bound, sizeof bound);
    }
  }
  tr_schedule_destroy(&s);
}

static void parts_of_several_layers_are_not_cut(void **state) {
  (void)state;
  const tr_stage_part part[] = {{.layers = 2}, {.layers = 2}, {.layers = 0}, {.layers = 2}};
  int bound[3];
  tr_schedule s;
  sc_build("1f1b", 2, 2, 0, &s);
  tr_stage_problem x = {part, 4, &s, TR_STAGES_WORK, 0};
  assert_int_equal(tr_stages_count(&x, "4,2", bound), TR_OK);
  assert_int_equal(bound[1], 3);
  assert_int_equal(tr_stages_count(&x, "3,3", bound), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "stage 0: the model cannot be cut behind 3 layers; 2 works"));
  x.npart = 1;
  assert_int_equal(tr_stages_balance(&x, bound), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "2 stages, but the model can be cut into at most 1"));
  tr_schedule_destroy(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cuts_are_the_best_there_are),
      cmocka_unit_test(equal_layers_are_cut_evenly_and_late),
      cmocka_unit_test(a_limit_moves_layers_to_where_fewer_are_alive),
      cmocka_unit_test(counts_cut_where_they_say),
      cmocka_unit_test(parts_of_several_layers_are_not_cut),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
