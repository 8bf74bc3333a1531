// SPDX-License-Identifier: MIT
// Lesson one: data parallelism by hand. No model, no step program: just ranks, one gradient, and one sum.
//
// Two ranks hold the same weights of a small network (16 inputs, 32 tanh units, 1 output). Each computes the
// gradient of the mean squared error over its own half of 64 examples. After an all-reduce both hold the
// gradient of the whole batch, as if one rank had done all the work. This program checks that against a rank
// that does do all the work.
//
//   build/example_dp_by_hand
//   largest difference over 2 ranks: 7.451e-09 (at most 3e-08 is fine)
#include "trireme/base/philox.h"
#include "trireme/comm/launch.h"
#include <math.h>
#include <stdio.h>

enum { RANKS = 2, EXAMPLES = 64, INPUTS = 16, HIDDEN = 32 };

// All weights in one flat array, so that one call can sum all gradients. This is how the library lays
// out its models too.
typedef struct weights {
  float w1[HIDDEN][INPUTS], b1[HIDDEN], w2[HIDDEN], b2;
} weights;
enum { COUNT = sizeof(weights) / sizeof(float) };

typedef struct examples {
  float x[EXAMPLES][INPUTS], y[EXAMPLES];
} examples;

// Numbers from a counter: the same on every rank without a word between them. This is why nothing is broadcast here.
static void make_numbers(float *out, size_t n, uint64_t seed, float scale) {
  tr_rng_uniform_fill(tr_rng_key_make(seed, TR_RNG_TEST, 0), 0, n, out);
  for (size_t i = 0; i < n; i++) out[i] = scale * (2 * out[i] - 1);
}

static void make_problem(weights *w, examples *e) {
  make_numbers((float *)w, COUNT, 1, 0.25f);
  make_numbers(e->x[0], EXAMPLES * INPUTS, 2, 1.0f);
  for (int i = 0; i < EXAMPLES; i++) e->y[i] = 0.5f * e->x[i][0] - 0.25f * e->x[i][1] * e->x[i][2];
}

// The gradient's own sums are kept in double and rounded once, so that what we compare is the sum over ranks,
// not our loops.
typedef struct sums {
  double w1[HIDDEN][INPUTS], b1[HIDDEN], w2[HIDDEN], b2;
} sums;

// Add the gradient of one example's share of the loss, (output - y)^2 / EXAMPLES.
//
// Look at the divisor: it is the number of examples of the WHOLE batch, not of this rank's half. So the
// ranks' gradients are parts of one sum and simply add up. Had each rank divided by its own count, the
// results would have to be averaged, and that average would be wrong as soon as one rank has fewer examples
// than the other.
static void add_gradient(const weights *w, const float *x, float y, sums *g) {
  double hidden[HIDDEN], output = w->b2;
  for (int h = 0; h < HIDDEN; h++) {
    double sum = w->b1[h];
    for (int i = 0; i < INPUTS; i++) sum += (double)w->w1[h][i] * (double)x[i];
    hidden[h] = tanh(sum);
    output += (double)w->w2[h] * hidden[h];
  }
  double doutput = 2 * (output - (double)y) / EXAMPLES;
  g->b2 += doutput;
  for (int h = 0; h < HIDDEN; h++) {
    g->w2[h] += doutput * hidden[h];
    double dsum = doutput * (double)w->w2[h] * (1 - hidden[h] * hidden[h]); // tanh' = 1 - tanh^2
    g->b1[h] += dsum;
    for (int i = 0; i < INPUTS; i++) g->w1[h][i] += dsum * (double)x[i];
  }
}

static void gradient(const weights *w, const examples *e, int first, int count, float out[COUNT]) {
  sums g = {0};
  for (int i = first; i < first + count; i++) add_gradient(w, e->x[i], e->y[i], &g);
  for (int i = 0; i < COUNT; i++) out[i] = (float)((const double *)&g)[i];
}

// The life of one rank. `user` is shared because ranks are threads here; each writes only its own element of it.
static tr_status rank_main(tr_comm *comm, void *user) {
  double *difference = user;
  int rank = tr_comm_rank(comm), share = EXAMPLES / tr_comm_size(comm);
  weights w;
  examples e;
  float whole[COUNT];
  make_problem(&w, &e);

  // What travels lives in the rank's arena: memory that the other ranks can see, so the sum copies nothing twice.
  float *mine = tr_arena_alloc(tr_comm_arena(comm), COUNT * sizeof(float));
  if (!mine) return TR_ERR_MEMORY;
  gradient(&w, &e, rank * share, share, mine);

  // Every rank of the group makes this call; afterwards `mine` is the sum on all of them, with the same bits.
  // With a request instead of NULL it would only be started, and we could go on computing meanwhile. If the
  // other rank died, this would not hang: it would return TR_ERR_PEER with a sentence that says who.
  TR_TRY(tr_group_allreduce(tr_comm_world(comm), mine, mine, COUNT, TR_F32, TR_SUM, NULL));

  gradient(&w, &e, 0, EXAMPLES, whole);
  for (int i = 0; i < COUNT; i++) difference[rank] = fmax(difference[rank], fabs((double)mine[i] - (double)whole[i]));
  return TR_OK;
}

int main(void) {
  double difference[RANKS] = {0}, largest = 0, limit = 3e-8;
  tr_launch_options options;
  tr_launch_options_init(&options);
  // Processes (the default) do not share `difference`; everything else would be the same.
  options.mode = TR_LAUNCH_THREADS;
  options.nrank = RANKS;
  if (tr_launch(&options, rank_main, difference, NULL) < 0) {
    fprintf(stderr, "%s\n", tr_status_text());
    return 1;
  }
  for (int i = 0; i < RANKS; i++) largest = fmax(largest, difference[i]);
  printf("largest difference over %d ranks: %.3e (at most %.0e is fine)\n", RANKS, largest, limit);
  return largest <= limit ? 0 : 1;
}
