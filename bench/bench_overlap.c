// SPDX-License-Identifier: MIT
// How much of a chain of gradient buckets hides behind computation: all-reduces of BUCKETS x BYTES, each started as soon as "its
// part of the backward pass" (a loop over registers) is computed, waited for at the end, in place in the arena.
//
//   link        |b0 |b1 |b2 |b3 |           alone                     exposed alone: all of it
//   processor   |c0 |c1 |c2 |c3 |
//   link            |b0 |b1 |b2 |b3 |       together                  exposed: time - the computation's
//
// The link allows no better than what the two alone say: a bucket begins when it is computed and the one before has gone.
// Computation is made as long as communication, so that all but one bucket could hide. Two ways: the caller computes and does
// nothing else (silent), or calls tr_comm_progress between pieces of about a millisecond (progress).
//
//   bench_overlap [BUCKETS [BYTES [ROUNDS [RANKS]]]]    RANKS where mpirun or srun has not started them
#include "trireme/base/clock.h"
#include "trireme/base/text.h"
#include "trireme/comm/launch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS_MOST = 64, ROUNDS_MOST = 99, LANES = 16, BURST = 50000, BURSTS = 200 };
typedef enum way { COMMUNICATE, COMPUTE, SILENT, PROGRESS, WAYS } way;
static const double required = 0.8, unsure = 0.1;

typedef struct bench {
  int buckets, rounds, nrank;
  size_t nelem; // of a bucket
} bench;

typedef struct rank_state {
  const bench *of;
  tr_comm *comm;
  float *bucket[BUCKETS_MOST];
  tr_request *request[BUCKETS_MOST];
  int64_t piece;          // steps of the loop that take about a millisecond
  int64_t pieces;         // of them for a bucket
  double began, computed; // clock at the start of a chain; seconds from there to the end of the computation
  double seconds[WAYS][ROUNDS_MOST], until[WAYS][ROUNDS_MOST];
} rank_state;

// Multiply-adds in registers: no memory is used, only the processor.
static float spin(int64_t steps) {
  float x[LANES];
  for (int i = 0; i < LANES; i++) x[i] = (float)i;
  for (int64_t s = 0; s < steps; s++)
    for (int i = 0; i < LANES; i++) x[i] = x[i] * 0.999F + 0.5F;
  float sum = 0;
  for (int i = 0; i < LANES; i++) sum += x[i];
  return sum;
}

static tr_status compute(rank_state *r, way w) {
  volatile float sink;
  for (int64_t i = 0; i < r->pieces; i++) {
    sink = spin(r->piece);
    if (w == PROGRESS) TR_TRY(tr_comm_progress(r->comm));
    tr_comm_beat(r->comm);
  }
  (void)sink;
  return TR_OK;
}

static tr_status chain(rank_state *r, way w) {
  tr_group *world = tr_comm_world(r->comm);
  for (int b = 0; b < r->of->buckets; b++) {
    if (w != COMMUNICATE) TR_TRY(compute(r, w));
    if (w != COMPUTE)
      TR_TRY(tr_group_allreduce(world, r->bucket[b], r->bucket[b], r->of->nelem, TR_F32, TR_SUM, &r->request[b]));
  }
  r->computed = tr_clock_seconds() - r->began;
  for (int b = 0; b < r->of->buckets && w != COMPUTE; b++) TR_TRY(tr_request_wait(r->request[b]));
  return TR_OK;
}

static void fill(const rank_state *r) {
  for (int b = 0; b < r->of->buckets; b++)
    for (size_t i = 0; i < r->of->nelem; i++) r->bucket[b][i] = (float)(b + 1);
}

static tr_status check(const rank_state *r) {
  const int n = tr_comm_size(r->comm);
  for (int b = 0; b < r->of->buckets; b++)
    for (size_t i = 0; i < r->of->nelem; i++)
      if (r->bucket[b][i] != (float)(n * (b + 1)))
        return tr_error(TR_ERR_VERIFY, "bucket %d, element %zu is %g instead of %d", b, i, (double)r->bucket[b][i],
                        n * (b + 1));
  return TR_OK;
}

// Of the slowest rank.
static tr_status take_time(rank_state *r, way w, double *seconds, double *until) {
  tr_group *world = tr_comm_world(r->comm);
  fill(r);
  TR_TRY(tr_group_barrier(world));
  r->began = tr_clock_seconds();
  TR_TRY(chain(r, w));
  float most[2] = {(float)(tr_clock_seconds() - r->began), (float)r->computed};
  TR_TRY(tr_group_allreduce(world, most, most, 2, TR_F32, TR_MAX, NULL));
  *seconds = (double)most[0];
  *until = (double)most[1];
  return w == COMPUTE ? TR_OK : check(r);
}

// Of the round that others disturbed least.
static double least(const double *seconds, int n) {
  double out = seconds[0];
  for (int i = 1; i < n; i++)
    if (seconds[i] < out) out = seconds[i];
  return out;
}

// Computation as long as communication, on every rank the same amount.
static tr_status calibrate(rank_state *r) {
  volatile float sink;
  double seconds, until, fastest = 0;
  float steps;
  for (int i = 0; i < BURSTS; i++) {
    const double begin = tr_clock_seconds();
    sink = spin(BURST);
    const double took = tr_clock_seconds() - begin;
    if (i == 0 || took < fastest) fastest = took;
  }
  steps = (float)(BURST / fastest * 1e-3);
  (void)sink;
  TR_TRY(take_time(r, COMMUNICATE, &seconds, &until));
  TR_TRY(tr_group_allreduce(tr_comm_world(r->comm), &steps, &steps, 1, TR_F32, TR_MAX, NULL));
  r->piece = (int64_t)steps;
  r->pieces = (int64_t)(seconds * 1e3 / r->of->buckets) + 1;
  return TR_OK;
}

// ---- the report

static double least_exposed(int buckets, double computed, double communicated) {
  double end = 0;
  for (int b = 0; b < buckets; b++) {
    const double ready = computed * (b + 1) / buckets;
    end = (end > ready ? end : ready) + communicated / buckets;
  }
  return end - computed;
}

// Nothing hides more than the link allows: then the computation alone was held up by others.
static const char *verdict(double fell) {
  return fell > 1 + unsure ? "unsure, the machine is busy" : fell >= required ? "met" : "MISSED";
}

static void report(rank_state *r, const bench *b) {
  static const char *const names[WAYS] = {[SILENT] = "silent", [PROGRESS] = "progress"};
  double m[WAYS];
  for (int w = 0; w < WAYS; w++) m[w] = least(r->seconds[w], b->rounds);
  const double allowed = least_exposed(b->buckets, m[COMPUTE], m[COMMUNICATE]), can_fall = m[COMMUNICATE] - allowed;
  printf(
      "%d buckets of %.1f MB on %d ranks, %d hosts: communication alone %.3f s, computation alone %.3f s; the link "
      "allows %.3f s exposed\n",
      b->buckets, (double)b->nelem * 4e-6, b->nrank, tr_comm_hosts(r->comm), m[COMMUNICATE], m[COMPUTE], allowed);
  for (int w = SILENT; w < WAYS; w++) {
    const double exposed = m[w] - m[COMPUTE], fell = (m[COMMUNICATE] - exposed) / can_fall;
    printf(
        "%-9s together %.3f s, of which %.3f s until all was computed; exposed %.3f s: fell by %.1f %% of what the "
        "link allows (mark %.0f %%: %s)\n",
        names[w], m[w], least(r->until[w], b->rounds), exposed, 100 * fell, 100 * required, verdict(fell));
  }
  fflush(stdout);
}

static tr_status rank_main(tr_comm *comm, void *user) {
  const bench *b = user;
  rank_state r = {.of = b, .comm = comm};
  for (int i = 0; i < b->buckets; i++) {
    r.bucket[i] = tr_arena_alloc(tr_comm_arena(comm), b->nelem * sizeof(float));
    if (!r.bucket[i]) return TR_ERR_MEMORY;
  }
  TR_TRY(calibrate(&r));
  for (int round = 0; round < b->rounds; round++)
    for (int w = 0; w < WAYS; w++) TR_TRY(take_time(&r, (way)w, &r.seconds[w][round], &r.until[w][round]));
  if (tr_comm_rank(comm) == 0) report(&r, b);
  return TR_OK;
}

// ---- arguments

static tr_status read_arguments(int argc, char **argv, bench *b) {
  int64_t v[4] = {4, 25000000, 3, 2};
  tr_launch_place place = {0};
  TR_TRY(tr_launch_placed(&place));
  for (int i = 1; i < argc && i <= 4; i++) TR_TRY(tr_parse_count(argv[i], &v[i - 1]));
  if (place.size > 0) v[3] = place.size;
  if (argc > 5 || v[0] < 2 || v[0] > BUCKETS_MOST || v[1] < 4 || v[2] < 1 || v[2] > ROUNDS_MOST || v[3] < 2 ||
      v[3] > 256)
    return tr_error(TR_ERR_USAGE, "usage: bench_overlap [BUCKETS 2..%d [BYTES [ROUNDS 1..%d [RANKS 2..256]]]]",
                    BUCKETS_MOST, ROUNDS_MOST);
  *b = (bench){.buckets = (int)v[0], .rounds = (int)v[2], .nrank = (int)v[3], .nelem = (size_t)v[1] / sizeof(float)};
  return TR_OK;
}

int main(int argc, char **argv) {
  bench b;
  tr_launch_options o;
  tr_launch_options_init(&o);
  tr_status status = read_arguments(argc, argv, &b);
  if (status == TR_OK) {
    o.nrank = b.nrank;
    o.arena_nbyte += (size_t)b.buckets * tr_arena_rounded(b.nelem * sizeof(float));
    o.deadline = 300;
    status = tr_launch(&o, rank_main, &b, NULL);
  }
  if (status < 0) fprintf(stderr, "bench_overlap: %s\n", tr_status_text());
  return tr_status_exit_code(status);
}
