// SPDX-License-Identifier: MIT
// What bench_comm and its peers under MPI (comm_peer.c) agree on: which operations and sizes, how often, with what values.
// Only C, so that any MPI's compiler builds a peer.
#ifndef TRIREME_BENCH_COMM_PEER_H
#define TRIREME_BENCH_COMM_PEER_H

#include <stddef.h>

typedef enum peer_op { PEER_ALLREDUCE, PEER_REDUCE_SCATTER, PEER_ALLGATHER, PEER_ALLTOALL, PEER_OPS } peer_op;
enum { PEER_SIZES = 10, PEER_WARM = 2, PEER_MOST_REPEATS = 200 };

// Bytes of the whole operation: the larger of a rank's two buffers.
static inline size_t peer_size(int index) {
  static const size_t sizes[PEER_SIZES] = {8,         64,      512,     4 << 10,  32 << 10,
                                           256 << 10, 1 << 20, 4 << 20, 16 << 20, 128 << 20};
  return sizes[index];
}

// Floats of it, a multiple of the ranks.
static inline size_t peer_count(int index, int nrank) {
  const size_t n = peer_size(index) / sizeof(float), per = n / (size_t)nrank;
  return (per ? per : 1) * (size_t)nrank;
}

// Repetitions in one round.
static inline int peer_repeats(int index) {
  const size_t size = peer_size(index);
  return size <= 64 << 10 ? PEER_MOST_REPEATS : size <= 1 << 20 ? 50 : size <= 16 << 20 ? 9 : 3;
}

// Element i of a rank's buffer in one repetition: a small whole number.
static inline float peer_value(size_t i, int rank, int repetition) {
  return (float)((i + (size_t)rank + (size_t)repetition) & 3);
}
static inline void peer_rewrite(float *x, size_t n, int rank, int repetition) {
  for (size_t i = 0; i < n; i++) x[i] = peer_value(i, rank, repetition);
}
static inline float peer_sum(size_t i, int nrank, int repetition) {
  float sum = 0;
  for (int r = 0; r < nrank; r++) sum += peer_value(i, r, repetition);
  return sum;
}

// What element i of the result of rank `rank` is; n: floats of the whole operation.
static inline float peer_result(peer_op op, size_t i, size_t n, int rank, int nrank, int repetition) {
  const size_t per = n / (size_t)nrank;
  switch (op) {
  case PEER_REDUCE_SCATTER: return peer_sum((size_t)rank * per + i, nrank, repetition);
  case PEER_ALLGATHER: return peer_value(i % per, (int)(i / per), repetition);
  case PEER_ALLTOALL: return peer_value((size_t)rank * per + i % per, (int)(i / per), repetition);
  default: return peer_sum(i, nrank, repetition);
  }
}

// Some elements of a result, the first and the last among them; returns 0 when one is wrong.
static inline int peer_check(peer_op op, const float *x, size_t n, int rank, int nrank, int repetition) {
  enum { LOOKS = 31 };
  const size_t count = op == PEER_REDUCE_SCATTER ? n / (size_t)nrank : n;
  for (size_t k = 0; k <= LOOKS; k++) {
    const size_t i = (count - 1) / LOOKS * k < count ? (count - 1) / LOOKS * k : count - 1;
    if (x[i] != peer_result(op, i, n, rank, nrank, repetition)) return 0;
  }
  return x[count - 1] == peer_result(op, count - 1, n, rank, nrank, repetition);
}

#endif
