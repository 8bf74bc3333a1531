// SPDX-License-Identifier: MIT
// The operations of `trireme bench comm`: their sizes, what each rank contributes, the call, and whether the result is right.
//
// Contributions repeat with a period of 61 elements and are whole numbers from 0 to 4, so that sums are exact in every
// type: element i of rank r in repetition k is value[(i + 17 r + 5 k) mod 61]. Buffers are then written and checked at the
// speed of a copy, and a result that is left over from the repetition before, or shifted, is seen.
//
// Uneven operations: reduce-scatter-v and all-gather-v give rank r a share that grows with r; all-to-all-v sends
// 1, 2 or 3 units, by (sender + receiver) mod 3.
#include "cli/bench_comm_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PERIOD = 61, CHUNK = PERIOD * 64, TABLE = CHUNK + PERIOD, ROOT = 0 };

const tr__comm_op_info tr__comm_ops[TR__OPS] = {
    [TR__OP_ALLREDUCE] = {"all-reduce", 0, 1, 1, 1, 2},
    [TR__OP_REDUCE] = {"reduce", 0, 1, 1, 1, 0},
    [TR__OP_REDUCE_SCATTER] = {"reduce-scatter", 1, 1, 1, 1, 1},
    [TR__OP_REDUCE_SCATTER_V] = {"reduce-scatter-v", 0, 1, 1, 1, 1},
    [TR__OP_ALLGATHER] = {"all-gather", 1, 0, 1, 1, 1},
    [TR__OP_ALLGATHER_V] = {"all-gather-v", 0, 0, 1, 1, 1},
    [TR__OP_ALLTOALL] = {"all-to-all", 1, 0, 0, 1, 1},
    [TR__OP_ALLTOALL_V] = {"all-to-all-v", 0, 0, 0, 1, 1},
    [TR__OP_BROADCAST] = {"broadcast", 0, 0, 1, 0, 0},
    [TR__OP_GATHER] = {"gather", 1, 0, 1, 1, 1},
    [TR__OP_SCATTER] = {"scatter", 1, 0, 1, 1, 1},
    [TR__OP_SENDRECV] = {"send-receive", 0, 0, 0, 1, 0},
    [TR__OP_BARRIER] = {"barrier", 0, 0, 1, 0, 0},
};

double tr__comm_bus_factor(tr__comm_op op, int nrank) {
  const double most = tr__comm_ops[op].bus_most;
  return most > 0 ? most * (nrank - 1) / nrank : 1;
}

// ---- sizes

static size_t pair_count(size_t unit, int i, int j) { return unit * (1 + (size_t)(i + j) % 3); }

// Elements that rank `i` sends to ranks before `j`.
static size_t pair_start(size_t unit, int i, int j) {
  size_t sum = 0;
  for (int k = 0; k < j; k++) sum += pair_count(unit, i, k);
  return sum;
}

// A third of the pairs each: twice the unit on average.
static size_t pair_unit(size_t nelem, int size) {
  const size_t unit = nelem / (2 * (size_t)size);
  return unit ? unit : 1;
}

static size_t largest_share(size_t unit, int size) {
  size_t most = 0;
  for (int i = 0; i < size; i++) {
    const size_t n = pair_start(unit, i, size);
    if (n > most) most = n;
  }
  return most;
}

void tr__comm_size(tr__comm_op op, tr_dtype type, int nrank, size_t nbyte, size_t *nelem, size_t *actual) {
  const size_t width = tr_dtype_size(type), n = (size_t)nrank;
  size_t count = nbyte / width;
  if (count == 0) count = 1;
  if (tr__comm_ops[op].sliced) count = count / n ? count / n * n : n;
  if (op == TR__OP_ALLTOALL_V) count = largest_share(pair_unit(count, nrank), nrank);
  if (op == TR__OP_BARRIER) count = 0;
  *nelem = count;
  *actual = count * width;
}

// The unit that gave `nelem`, see tr__comm_size.
static size_t unit_of(const tr__comm_work *w) { return w->point->nelem / largest_share(1, w->size); }

// ---- values

static float value_at(size_t i) { return (float)(i * 37 % PERIOD % 5); }

static float reduced_at(const tr__comm_work *w, size_t i) {
  float out = 0;
  for (int r = 0; r < w->size; r++) {
    const float v = value_at((i + 17 * (size_t)r) % PERIOD);
    out = w->reduce == TR_MAX ? fmaxf(out, v) : out + v;
  }
  return w->point->of.type == TR_U8 ? fmodf(out, 256) : out; // bytes wrap
}

static size_t phase_of(int rank, int repetition) { return (17 * (size_t)rank + 5 * (size_t)repetition) % PERIOD; }

// Elements [at, at + count) of a table's endless repetition, written to or compared with data.
static void write_values(const tr__comm_work *w, char *data, size_t count, size_t at) {
  const size_t width = tr_dtype_size(w->point->of.type), phase = at % PERIOD;
  for (size_t i = 0; i < count; i += CHUNK)
    memcpy(data + i * width, w->values + phase * width, (count - i < CHUNK ? count - i : CHUNK) * width);
}

static tr_status wrong(const tr__comm_work *w, const char *data, const char *expected, size_t n, size_t first) {
  const tr_dtype type = w->point->of.type;
  const size_t width = tr_dtype_size(type);
  size_t i = 0;
  while (i + 1 < n && memcmp(data + i * width, expected + i * width, width) == 0) i++;
  return tr_error(TR_ERR_VERIFY, "%s of %zu bytes gives rank %d a wrong element %zu: %g instead of %g",
                  tr__comm_ops[w->point->of.op].name, w->point->nbyte, w->rank, first + i,
                  (double)tr_load(type, data, i), (double)tr_load(type, expected, i));
}

static tr_status check_values(const tr__comm_work *w, const char *table, const char *data, size_t count, size_t at) {
  const size_t width = tr_dtype_size(w->point->of.type), phase = at % PERIOD;
  for (size_t i = 0; i < count; i += CHUNK) {
    const size_t n = count - i < CHUNK ? count - i : CHUNK;
    if (memcmp(data + i * width, table + phase * width, n * width) != 0)
      return wrong(w, data + i * width, table + phase * width, n, i);
  }
  return TR_OK;
}

tr_status tr__comm_open_work(tr__comm_work *w) {
  const size_t widest = 8;
  w->start = calloc((size_t)w->size + 1, sizeof *w->start);
  w->values = malloc(TABLE * widest);
  w->reduced = malloc(TABLE * widest);
  if (w->start && w->values && w->reduced) return TR_OK;
  return tr_error(TR_ERR_MEMORY, "no memory for the values of a benchmark");
}

void tr__comm_close_work(tr__comm_work *w) {
  free(w->start);
  free(w->values);
  free(w->reduced);
}

// ---- buffers

static void place_starts(tr__comm_work *w) {
  const size_t n = (size_t)w->size, nelem = w->point->nelem;
  const tr__comm_op op = w->point->of.op;
  for (size_t r = 0; r <= n; r++) {
    if (op == TR__OP_ALLTOALL_V)
      w->start[r] = pair_start(unit_of(w), w->rank, (int)r);
    else
      w->start[r] = r == n ? nelem : (size_t)((double)nelem * (double)(r * (r + 1)) / (double)(n * (n + 1)));
  }
}

static void place_buffers(tr__comm_work *w) {
  const size_t width = tr_dtype_size(w->point->of.type), per = w->point->nelem / (size_t)w->size;
  const size_t own = (size_t)w->rank * per * width, own_v = w->start[w->rank] * width;
  const int in = w->point->of.in_place, is_root = w->rank == ROOT;
  w->src = w->a;
  w->dst = in ? w->a : w->b;
  if (!in) return;
  switch (w->point->of.op) {
  case TR__OP_REDUCE_SCATTER: w->dst = w->a + own; break;
  case TR__OP_REDUCE_SCATTER_V: w->dst = w->a + own_v; break;
  case TR__OP_ALLGATHER: w->src = w->a + own; break;
  case TR__OP_ALLGATHER_V: w->src = w->a + own_v; break;
  case TR__OP_GATHER: w->src = is_root ? w->a + own : w->a; break;
  case TR__OP_SCATTER: w->dst = is_root ? w->a + own : w->a; break;
  default: break;
  }
}

void tr__comm_prepare(tr__comm_work *w) {
  const tr_dtype type = w->point->of.type;
  for (size_t i = 0; i < TABLE; i++) {
    tr_store(type, w->values, i, value_at(i % PERIOD));
    tr_store(type, w->reduced, i, reduced_at(w, i % PERIOD));
  }
  place_starts(w);
  place_buffers(w);
}

static size_t contributed(const tr__comm_work *w) {
  const size_t all = w->point->nelem, per = all / (size_t)w->size;
  switch (w->point->of.op) {
  case TR__OP_ALLGATHER:
  case TR__OP_GATHER: return per;
  case TR__OP_ALLGATHER_V: return w->start[w->rank + 1] - w->start[w->rank];
  case TR__OP_ALLTOALL_V: return w->start[w->size];
  case TR__OP_BROADCAST:
  case TR__OP_SCATTER: return w->rank == ROOT ? all : 0;
  default: return all;
  }
}

void tr__comm_rewrite(const tr__comm_work *w, int repetition) {
  write_values(w, w->src, contributed(w), phase_of(w->rank, repetition));
}

// ---- calls

static tr_status exchange_ring(const tr__comm_work *w) {
  tr_request *request;
  const int to = (w->rank + 1) % w->size, from = (w->rank + w->size - 1) % w->size;
  TR_TRY(tr_group_recv(w->group, from, 0, w->dst, w->point->nbyte, &request));
  TR_TRY(tr_group_send(w->group, to, 0, w->src, w->point->nbyte, NULL));
  return tr_request_wait(request);
}

tr_status tr__comm_run(const tr__comm_work *w) {
  const tr_dtype type = w->point->of.type;
  const size_t all = w->point->nelem, per = all / (size_t)w->size;
  const int is_root = w->rank == ROOT;
  tr_group *g = w->group;
  switch (w->point->of.op) {
  case TR__OP_ALLREDUCE: return tr_group_allreduce(g, w->src, w->dst, all, type, w->reduce, NULL);
  case TR__OP_REDUCE: return tr_group_reduce(g, w->src, is_root ? w->dst : NULL, all, type, w->reduce, ROOT, NULL);
  case TR__OP_REDUCE_SCATTER: return tr_group_reduce_scatter(g, w->src, w->dst, per, type, w->reduce, NULL);
  case TR__OP_REDUCE_SCATTER_V:
    return tr_group_reduce_scatter_v(g, w->src, w->dst, w->start, type, type, w->reduce, 1, NULL, NULL, NULL);
  case TR__OP_ALLGATHER: return tr_group_allgather(g, w->src, w->dst, per, type, NULL);
  case TR__OP_ALLGATHER_V: return tr_group_allgather_v(g, w->src, w->dst, w->start, type, NULL);
  case TR__OP_ALLTOALL: return tr_group_alltoall(g, w->src, w->dst, per, type, NULL);
  case TR__OP_ALLTOALL_V: return tr_group_alltoall_v(g, w->src, w->start, w->dst, w->start, type, NULL);
  case TR__OP_BROADCAST: return tr_group_broadcast(g, w->src, all, type, ROOT, NULL);
  case TR__OP_GATHER: return tr_group_gather(g, w->src, is_root ? w->dst : NULL, per, type, ROOT, NULL);
  case TR__OP_SCATTER: return tr_group_scatter(g, is_root ? w->src : NULL, w->dst, per, type, ROOT, NULL);
  case TR__OP_SENDRECV: return exchange_ring(w);
  default: return tr_group_barrier(g);
  }
}

// ---- checks

// Block i of the result is what rank i contributed, from `shift` elements of its contribution on.
static tr_status check_blocks(const tr__comm_work *w, int repetition) {
  const size_t width = tr_dtype_size(w->point->of.type), per = w->point->nelem / (size_t)w->size;
  const tr__comm_op op = w->point->of.op;
  for (int i = 0; i < w->size; i++) {
    size_t at = (size_t)i * per, n = per, shift = 0;
    if (op == TR__OP_ALLGATHER_V || op == TR__OP_ALLTOALL_V) at = w->start[i], n = w->start[i + 1] - at;
    if (op == TR__OP_ALLTOALL) shift = (size_t)w->rank * per;
    if (op == TR__OP_ALLTOALL_V) shift = pair_start(unit_of(w), i, w->rank);
    TR_TRY(check_values(w, w->values, w->dst + at * width, n, phase_of(i, repetition) + shift));
  }
  return TR_OK;
}

tr_status tr__comm_verify(const tr__comm_work *w, int repetition) {
  const size_t all = w->point->nelem, per = all / (size_t)w->size, sums = phase_of(0, repetition);
  const int is_root = w->rank == ROOT;
  switch (w->point->of.op) {
  case TR__OP_ALLREDUCE: return check_values(w, w->reduced, w->dst, all, sums);
  case TR__OP_REDUCE: return is_root ? check_values(w, w->reduced, w->dst, all, sums) : TR_OK;
  case TR__OP_REDUCE_SCATTER: return check_values(w, w->reduced, w->dst, per, sums + (size_t)w->rank * per);
  case TR__OP_REDUCE_SCATTER_V:
    return check_values(w, w->reduced, w->dst, w->start[w->rank + 1] - w->start[w->rank], sums + w->start[w->rank]);
  case TR__OP_BROADCAST: return check_values(w, w->values, w->src, all, phase_of(ROOT, repetition));
  case TR__OP_SCATTER:
    return check_values(w, w->values, w->dst, per, phase_of(ROOT, repetition) + (size_t)w->rank * per);
  case TR__OP_SENDRECV:
    return check_values(w, w->values, w->dst, all, phase_of((w->rank + w->size - 1) % w->size, repetition));
  case TR__OP_GATHER: return is_root ? check_blocks(w, repetition) : TR_OK;
  case TR__OP_BARRIER: return TR_OK;
  default: return check_blocks(w, repetition);
  }
}
