// SPDX-License-Identifier: MIT
// Measuring for tr_probe. Pairs meet in rounds, as in a tournament: with an odd number m - 1 of places on a circle, i
// plays j in round t when i + j = 2t (mod m - 1), and whoever would play itself plays rank m - 1. So each round has
// disjoint pairs, and m - 1 rounds have them all. probe_judge.c says what the figures mean.
#include "trireme/comm/probe.h"
#include "comm_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/sort.h"
#include "trireme/kernel/kernel.h"
#include <stdlib.h>
#include <string.h>

enum {
  BURSTS = 30,
  SMALL = 8,
  FIRST_REPEATS = 6,
  REPEATS_MOST = 1024,
};
static const double burst_seconds = 0.002, pair_seconds = 0.02;

// ---- a pair

static tr_status there_and_back(tr_group *group, int peer, int begins, const void *out_data, void *in_data,
                                size_t nbyte) {
  if (begins) TR_TRY(tr_group_send(group, peer, 0, out_data, nbyte, NULL));
  TR_TRY(tr_group_recv(group, peer, 0, in_data, nbyte, NULL));
  return begins ? TR_OK : tr_group_send(group, peer, 0, out_data, nbyte, NULL);
}

tr_status tr_probe_between(tr_group *group, int first, int second, const void *out_data, void *in_data, size_t nbyte,
                           int repeats, tr_probe_pair *out) {
  double seconds[REPEATS_MOST];
  const int begins = tr_group_rank(group) == first, peer = begins ? second : first;
  if (repeats < 1 || repeats > REPEATS_MOST)
    return tr_error(TR_ERR_USAGE, "a probe of %d repetitions; 1 to %d would work", repeats, REPEATS_MOST);
  for (int i = -2; i < repeats; i++) {
    const int64_t begin = tr_clock_ns();
    TR_TRY(there_and_back(group, peer, begins, out_data, in_data, nbyte));
    if (i >= 0) seconds[i] = (double)(tr_clock_ns() - begin) * 0.5e-9;
  }
  tr_sort_doubles(seconds, (size_t)repeats);
  if (begins) *out = (tr_probe_pair){seconds[0], seconds[repeats / 2]};
  return TR_OK;
}

// ---- all

tr_status tr_probe_create(int nrank, tr_probe *out) {
  const size_t n = (size_t)nrank;
  tr_probe p = {.nrank = nrank,
                .host = calloc(n, sizeof *p.host),
                .compute = calloc(n, sizeof *p.compute),
                .copy = calloc(n, sizeof *p.copy),
                .small = calloc(n * n, sizeof *p.small),
                .large = calloc(n * n, sizeof *p.large)};
  if (!p.host || !p.compute || !p.copy || !p.small || !p.large) {
    tr_probe_destroy(&p);
    return tr_error(TR_ERR_MEMORY, "no memory for what %d ranks are measured to do", nrank);
  }
  *out = p;
  return TR_OK;
}

void tr_probe_destroy(tr_probe *p) {
  free(p->host);
  free(p->compute);
  free(p->copy);
  free(p->small);
  free(p->large);
  *p = (tr_probe){0};
}

static double best_copy(char *out, const char *in) {
  double least = 1e30;
  for (int i = 0; i < BURSTS; i++) {
    const int64_t begin = tr_clock_ns();
    memcpy(out, in, TR_PROBE_BYTES);
    __asm__ volatile("" : : "r"(out) : "memory");
    const double seconds = (double)(tr_clock_ns() - begin) * 1e-9;
    if (seconds > 0 && seconds < least) least = seconds;
  }
  return TR_PROBE_BYTES / least;
}

double tr_probe_adding(float *to, float *from, size_t nbyte) {
  memset(to, 0, nbyte);
  memset(from, 0, nbyte);
  const char *src[] = {(const char *)to, (const char *)from};
  char *dst[] = {(char *)to};
  double least = 1e30;
  for (int i = 0; i < BURSTS; i++) {
    const int64_t begin = tr_clock_ns();
    tr__reduce(TR_F32, TR_F32, TR_SUM, 2, src, 1, dst, nbyte / sizeof *to);
    const double seconds = (double)(tr_clock_ns() - begin) * 1e-9;
    if (seconds > 0 && seconds < least) least = seconds;
  }
  return (double)nbyte / least;
}

static double best_compute(void) {
  double most = 0;
  for (int i = 0; i < BURSTS; i++) {
    const double rate = tr_kernel_peak(TR_F32, 1, burst_seconds);
    if (rate > most) most = rate;
  }
  return most;
}

static int partner(int rank, int size, int round) {
  const int m = size + size % 2, circle = m - 1;
  if (rank == circle) return round;
  const int other = ((2 * round - rank) % circle + circle) % circle;
  return other == rank ? circle : other; // with an odd number of ranks: nobody
}

// The least of as many repetitions as fit a moment: the first of the two says how many.
static tr_status measure_least(tr_group *world, int first, int second, const char *out_data, char *in_data,
                               size_t nbyte, double *out) {
  tr_probe_pair pair = {0, 0}, more = {0, 0};
  int32_t repeats = 0;
  TR_TRY(tr_probe_between(world, first, second, out_data, in_data, nbyte, FIRST_REPEATS, &pair));
  if (tr_group_rank(world) == first) {
    const double fit = pair_seconds / (2 * pair.least);
    repeats = fit < 1 ? 1 : fit > REPEATS_MOST ? REPEATS_MOST : (int32_t)fit;
    TR_TRY(tr_group_send(world, second, 0, &repeats, sizeof repeats, NULL));
  } else {
    TR_TRY(tr_group_recv(world, first, 0, &repeats, sizeof repeats, NULL));
  }
  TR_TRY(tr_probe_between(world, first, second, out_data, in_data, nbyte, repeats, &more));
  *out = more.least < pair.least ? more.least : pair.least;
  return TR_OK;
}

// This rank's row: what its pairs take, where it is the first of the two.
static tr_status measure_pairs(tr_comm *comm, char *out_data, char *in_data, double *small, double *large) {
  const int rank = tr_comm_rank(comm), size = tr_comm_size(comm), rounds = size + size % 2 - 1;
  tr_group *world = tr_comm_world(comm);
  for (int round = 0; round < rounds; round++) {
    const int peer = partner(rank, size, round), first = rank < peer ? rank : peer;
    const int second = rank + peer - first;
    TR_TRY(tr_group_barrier(world));
    if (peer >= size) continue;
    TR_TRY(measure_least(world, first, second, out_data, in_data, SMALL, &small[peer]));
    TR_TRY(measure_least(world, first, second, out_data, in_data, TR_PROBE_BYTES, &large[peer]));
  }
  return tr_group_barrier(world);
}

// All rows to all ranks; what only the first of two knows stands at both places.
static tr_status share(tr_group *world, const double *row, double *all) {
  const size_t n = (size_t)tr_group_size(world);
  TR_TRY(tr_group_allgather(world, row, all, n * sizeof *row, TR_U8, NULL));
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j < i; j++) all[i * n + j] = all[j * n + i];
  return TR_OK;
}

static tr_status measure_all(tr_comm *comm, char *memory, double *row, tr_probe *out) {
  const size_t n = (size_t)tr_comm_size(comm);
  tr_group *world = tr_comm_world(comm);
  char *out_data = memory, *in_data = memory + TR_PROBE_BYTES;
  memset(memory, 1, (size_t)2 * TR_PROBE_BYTES);
  TR_TRY(tr_group_barrier(world));
  double own[2] = {best_compute(), best_copy(out_data, in_data)};
  TR_TRY(tr_group_allgather(world, &own[0], out->compute, sizeof own[0], TR_U8, NULL));
  TR_TRY(tr_group_allgather(world, &own[1], out->copy, sizeof own[1], TR_U8, NULL));
  TR_TRY(measure_pairs(comm, out_data, in_data, row, row + n));
  TR_TRY(share(world, row, out->small));
  return share(world, row + n, out->large);
}

tr_status tr_probe_measure(tr_comm *comm, tr_probe *out) {
  const int n = tr_comm_size(comm);
  tr_arena *arena = tr_comm_arena(comm);
  if (out->nrank != n) return tr_error(TR_ERR_USAGE, "a probe of %d ranks in a job of %d", out->nrank, n);
  for (int r = 0; r < n; r++) out->host[r] = tr_comm_host(comm, r);
  const size_t mark = tr_arena_mark(arena);
  char *memory = tr_arena_alloc(arena, (size_t)2 * TR_PROBE_BYTES);
  if (!memory) return TR_ERR_MEMORY;
  double *row = calloc(2 * (size_t)n, sizeof *row);
  tr_status status = row ? measure_all(comm, memory, row, out)
                         : tr_error(TR_ERR_MEMORY, "no memory for what %d ranks are measured to do", n);
  free(row);
  if (status == TR_OK) tr_arena_reset(arena, mark);
  return status;
}
