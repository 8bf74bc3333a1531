// SPDX-License-Identifier: MIT
// All-reduce of two ranks on one machine, 8 bytes to 64 MiB, buffers in the arena, rewritten by their owners
// before each repetition (a buffer that nobody writes stays in the reader's cache and flatters the result).
//
// The limit is taken in the same run: each rank reads as many bytes of the other's freshly written buffer as its
// slice has, plus its own slice, both ranks at once, the same two flag phases around it. The last column is limit /
// time: 1 would mean that adding and storing cost nothing. Times are medians; p10 is printed beside them.
#include "trireme/base/clock.h"
#include "trireme/comm/launch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 << 20, REPEAT_MOST = 400 };

typedef struct result {
  double median, p10;
} result;
typedef double (*measured)(tr_comm *comm, float *data, size_t n);

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void rewrite(float *data, size_t n) {
  for (size_t i = 0; i < n; i++) data[i] = 0.5f;
}

static double time_allreduce(tr_comm *comm, float *data, size_t n) {
  int64_t began = tr_clock_ns();
  if (tr_group_allreduce(tr_comm_world(comm), data, data, n, TR_F32, TR_SUM, NULL) < 0) return -1;
  return (double)(tr_clock_ns() - began) * 1e-3;
}

// memcpy into a small buffer reads at full speed and writes only to the first-level cache.
static double time_limit(tr_comm *comm, float *data, size_t n) {
  static char sink[8192];
  int rank = tr_comm_rank(comm);
  const char *base[2];
  base[rank] = (const char *)data;
  // The other's copy lies as deep in its arena.
  int64_t mine = (int64_t)(intptr_t)tr_comm_arena(comm)->base, both[2];
  if (tr_group_allgather(tr_comm_world(comm), &mine, both, 1, TR_I64, NULL) < 0) return -1;
  base[1 - rank] = (const char *)data + (both[1 - rank] - both[rank]);
  size_t start, count;
  tr_slice(n, 2, rank, 32, &start, &count);
  if (tr_group_barrier(tr_comm_world(comm)) < 0) return -1;
  int64_t began = tr_clock_ns();
  for (int r = 0; r < 2; r++)
    for (size_t at = 0; at < count * 4; at += sizeof sink) {
      size_t left = count * 4 - at;
      memcpy(sink, base[r] + start * 4 + at, left < sizeof sink ? left : sizeof sink);
      __asm__ volatile("" : : "r"(sink) : "memory");
    }
  if (tr_group_barrier(tr_comm_world(comm)) < 0) return -1;
  return (double)(tr_clock_ns() - began) * 1e-3;
}

static tr_status repeat(tr_comm *comm, float *data, size_t n, measured what, result *out) {
  double times[REPEAT_MOST];
  size_t nbyte = n * 4;
  int count = nbyte <= 1 << 16 ? REPEAT_MOST : nbyte <= 1 << 21 ? 100 : nbyte <= 1 << 24 ? 15 : 7;
  for (int i = -2; i < count; i++) {
    rewrite(data, n);
    TR_TRY(tr_group_barrier(tr_comm_world(comm)));
    double us = what(comm, data, n);
    if (us < 0) return tr_comm_check(comm);
    if (i >= 0) times[i] = us;
  }
  qsort(times, (size_t)count, sizeof *times, by_size);
  *out = (result){times[count / 2], times[count / 10]};
  return TR_OK;
}

static tr_status bench(tr_comm *comm, void *user) {
  (void)user;
  float *data = tr_arena_alloc(tr_comm_arena(comm), MOST);
  if (!data) return TR_ERR_MEMORY;
  memset(data, 0, MOST);
  if (tr_comm_rank(comm) == 0)
    printf("%10s %12s %12s %9s %12s %9s\n", "bytes", "us", "us p10", "GB/s", "limit us", "of limit");
  static const size_t sizes[] = {8, 64, 512, 4096, 32 << 10, 256 << 10, 2 << 20, 16 << 20, MOST};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    size_t nbyte = sizes[s];
    result sum, limit;
    TR_TRY(repeat(comm, data, nbyte / 4, time_allreduce, &sum));
    TR_TRY(repeat(comm, data, nbyte / 4, time_limit, &limit));
    if (tr_comm_rank(comm) == 0)
      printf("%10zu %12.2f %12.2f %9.2f %12.2f %9.2f\n", nbyte, sum.median, sum.p10,
             (double)nbyte / sum.median * 1e-3, limit.median, limit.median / sum.median);
  }
  return TR_OK;
}

int main(void) {
  tr_launch_options o;
  tr_launch_options_init(&o);
  o.nrank = 2;
  o.arena_nbyte = MOST + 4096;
  tr_launch_report report;
  tr_status status = tr_launch(&o, bench, NULL, &report);
  if (status < 0) fprintf(stderr, "%s\n", report.text);
  return tr_status_exit_code(status);
}
