// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 400
// Every algorithm, demanded through TRIREME_COMM, over ranks that are threads: operations whose sums must have the contract's
// bits; sums in any order within rounding; what went over the transport against what is claimed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/demand.h"
#include "thin.h"
#include <math.h>

static const int every_size[] = {1, 2, 3, 4, 5, 6, 7, 8, 0}, some[] = {2, 3, 5, 8, 0}, powers[] = {2, 4, 8, 0};
static const int *const any_size = THIN > 1 ? some : every_size;

static void ordered_algorithms_conform(void **state) {
  (void)state;
  over(any_size, (trial){.demand = "direct", .large = 2503});
  over(any_size, (trial){.demand = "allreduce=doubling,barrier=doubling", .large = 2503});
  over(any_size, (trial){.demand = "tree", .large = 2503});
  over(some, (trial){.demand = "star", .large = 2503});
  over(some, (trial){.demand = "chain", .large = 2503});
  over(some, (trial){.demand = "bruck", .large = 2503});
  over(powers, (trial){.demand = "halving", .large = 2503});
  over(powers, (trial){.demand = "doubling", .large = 2503});
}

static void hierarchical_algorithms_conform(void **state) {
  (void)state;
  static const int twos[] = {4, 6, 8, 0}, short_last[] = {3, 5, 7, 8, 0}, eight[] = {8, 0}, seven[] = {7, 0};
  over(twos, (trial){.demand = "hierarchical/2", .large = 2503});
  over(eight, (trial){.demand = "hierarchical/4", .large = 2503});
  over(short_last, (trial){.demand = "leaders/2", .large = 2503});
  over(seven, (trial){.demand = "leaders/4", .large = 2503});
}

// Pieces so short that the same messages are cut into many strands; and many requests at once.
static void strands_conform(void **state) {
  (void)state;
  static const int three[] = {3, 0}, four[] = {4, 0}, eight[] = {8, 0};
  over(three, (trial){.demand = "direct", .large = 5011, .wire = 1000});
  over(four, (trial){.demand = "doubling", .large = 5011, .wire = 1000});
  over(three, (trial){.demand = "tree", .large = 5011, .wire = 1000});
  over(four, (trial){.demand = "chain", .large = 5011, .wire = 1000});
  over(three, (trial){.demand = "bruck", .large = 5011, .wire = 1000});
  over(four, (trial){.demand = "leaders/2", .large = 5011, .wire = 1000});
  over(eight, (trial){.demand = "halving", .large = 5011, .wire = 1000});
  over(eight, (trial){.demand = "hierarchical/2", .large = 5011, .wire = 1000});
}

static void requests_in_any_order_conform(void **state) {
  (void)state;
  static const int four[] = {4, 0}, five[] = {5, 0}, eight[] = {8, 0};
  over(five, (trial){.demand = "direct", .large = 20011, .wire = 4000, .requests = 1});
  over(four, (trial){.demand = "tree", .large = 20011, .wire = 4000, .requests = 1, .delays = 1});
  over(eight, (trial){.demand = "halving,alltoall=bruck,broadcast=chain", .large = 20011, .requests = 1});
}

// ---- sums in any order --------------------------------------------------------------------------

static double magnitude(const tr_group *g, tr_dtype type, size_t i, uint32_t salt) {
  double total = 0;
  for (int r = 0; r < tr_group_size(g); r++) {
    char raw[8];
    cf_element(type, tr_group_member(g, r), i, salt, raw);
    total += fabs((double)tr_load(type, raw, 0));
  }
  return total;
}

static tr_status close_to(tr_group *g, tr_dtype type, const char *data, size_t n, size_t first, uint32_t salt,
                          tr_reduce_op op) {
  double precision = type == TR_F32 ? 1e-6 : 1.0 / 128;
  for (size_t i = 0; i < n; i = cf_next(i, n)) {
    double want = (double)cf_expect_wide(type, g, first + i, salt, op), got = (double)tr_load(type, data, i);
    if (!(fabs(got - want) <= precision * magnitude(g, type, first + i, salt)))
      return cf_wrong(g, "sum in any order", type, n, i);
  }
  return TR_OK;
}

static tr_status any_order_sums(tr_comm *comm, void *user) {
  tr_group *g = tr_comm_world(comm);
  enum { N = 3001 };
  static const tr_dtype types[] = {TR_F32, TR_BF16, TR_F16};
  size_t own = (size_t)tr_group_rank(g) * N;
  char *a = malloc((size_t)tr_group_size(g) * N * 4), *b = malloc(N * 4);
  tr_status status = a && b ? TR_OK : TR_ERR_MEMORY;
  comm->choice->wire = *(const size_t *)user;
  for (uint32_t t = 0; t < 3 && status == TR_OK; t++)
    for (int op = TR_SUM; op <= TR_AVERAGE && status == TR_OK; op++) {
      cf_fill(types[t], a, N, tr_comm_rank(comm), 0, t);
      status = tr_group_allreduce(g, a, a, N, types[t], (tr_reduce_op)op, NULL);
      if (status == TR_OK) status = close_to(g, types[t], a, N, 0, t, (tr_reduce_op)op);
      cf_fill(types[t], a, N * (size_t)tr_group_size(g), tr_comm_rank(comm), 0, t + 8);
      if (status == TR_OK) status = tr_group_reduce_scatter(g, a, b, N, types[t], (tr_reduce_op)op, NULL);
      if (status == TR_OK) status = close_to(g, types[t], b, N, own, t + 8, (tr_reduce_op)op);
    }
  if (status == TR_OK) status = cf_allreduce(g, a, a, N, TR_I32, TR_SUM, 5); // whole numbers have no order
  if (status == TR_OK) status = cf_broadcast(g, a, N, TR_F32, tr_group_size(g) / 2, 6);
  free(a);
  free(b);
  return status;
}

static void sums_in_any_order_are_within_rounding(void **state) {
  (void)state;
  for (int size = 2; size <= 8; size += THIN > 1 ? 3 : 1)
    for (size_t wire = 1000; wire <= TR__WIRE; wire += TR__WIRE - 1000) {
      assert_int_equal(run_demanding("ring", size, 1, any_order_sums, &wire), TR_OK);
      assert_int_equal(run_demanding("double-tree", size, 1, any_order_sums, &wire), TR_OK);
    }
}

static tr_status sum_once(tr_comm *comm, void *user) {
  (void)user;
  float x = 1;
  return tr_group_allreduce(tr_comm_world(comm), &x, &x, 1, TR_F32, TR_SUM, NULL);
}

static void demands_that_cannot_be_met_name_what_can(void **state) {
  (void)state;
  assert_int_equal(run_demanding("ring", 3, 0, sum_once, NULL), TR_ERR_CONFIG);
  assert_string_equal(
      tr_status_text(),
      "TRIREME_COMM demands ring for all-reduce over 3 ranks: it adds in an order of its own, which needs "
      "comm.order: any; direct, doubling, tree, star can do it");
  assert_int_equal(run_demanding("halving", 3, 0, sum_once, NULL), TR_ERR_CONFIG);
  assert_non_null(
      strstr(tr_status_text(), "halving for all-reduce over 3 ranks: the ranks must be a power of two; "));
  assert_int_equal(run_demanding("alltoall=ring", 2, 0, sum_once, NULL), TR_ERR_CONFIG);
  assert_string_equal(tr_status_text(), "TRIREME_COMM: ring cannot do alltoall; direct, bruck can");
}

// ---- what goes over the transport ---------------------------------------------------------------

static tr_status call(tr_group *g, tr__kind kind, int root, const size_t *start, char *a, char *b, size_t n) {
  switch (kind) {
  case TR__ALLREDUCE: return tr_group_allreduce(g, a, b, n, TR_BF16, TR_SUM, NULL);
  case TR__REDUCE: return tr_group_reduce(g, a, b, n, TR_BF16, TR_SUM, root, NULL);
  case TR__REDUCE_SCATTER: return tr_group_reduce_scatter(g, a, b, n, TR_BF16, TR_SUM, NULL);
  case TR__REDUCE_SCATTER_V:
    return tr_group_reduce_scatter_v(g, a, b, start, TR_BF16, TR_BF16, TR_SUM, 1, NULL, NULL, NULL);
  case TR__ALLGATHER: return tr_group_allgather(g, a, b, n, TR_BF16, NULL);
  case TR__ALLGATHER_V: return tr_group_allgather_v(g, a, b, start, TR_BF16, NULL);
  case TR__ALLTOALL: return tr_group_alltoall(g, a, b, n, TR_BF16, NULL);
  case TR__BROADCAST: return tr_group_broadcast(g, a, n, TR_BF16, root, NULL);
  case TR__GATHER: return tr_group_gather(g, a, b, n, TR_BF16, root, NULL);
  case TR__SCATTER: return tr_group_scatter(g, a, b, n, TR_BF16, root, NULL);
  default: return tr_group_barrier(g);
  }
}

static tr_status count_one(tr_group *g, const tr__algorithm *algorithm, tr__case c, char *a, char *b) {
  tr__traffic before = *tr__script_traffic(g);
  uint64_t summed = g->strands->summed;
  tr__claim claim;
  TR_TRY(call(g, c.kind, c.root, c.start, a, b, c.nelem));
  tr__traffic after = *tr__script_traffic(g);
  algorithm->claim(&c, g->index, &claim);
  if (after.messages - before.messages == claim.messages && after.bytes - before.bytes == claim.bytes &&
      g->strands->summed - summed == claim.sums)
    return TR_OK;
  return tr_error(TR_ERR_VERIFY, "%s of %zu over %d: %llu messages of %llu bytes, claimed are %llu of %llu",
                  tr__kind_name(c.kind), c.nelem, c.size, (unsigned long long)(after.messages - before.messages),
                  (unsigned long long)(after.bytes - before.bytes), (unsigned long long)claim.messages,
                  (unsigned long long)claim.bytes);
}

static tr_status count_all(tr_comm *comm, void *user) {
  enum { MOST = 8 * 2000 * 2 };
  const tr__algorithm *algorithm = user;
  tr_group *g = tr_comm_world(comm);
  char *a = calloc(1, MOST), *b = calloc(1, MOST);
  tr_status status = a && b ? TR_OK : TR_ERR_MEMORY;
  for (int kind = TR__ALLREDUCE; kind < TR__SEND && status == TR_OK; kind++) {
    const size_t sizes[] = {1, 100, 2000};
    tr__case c = {.kind = (tr__kind)kind, .size = g->size, .root = g->size - 1, .width = 2, .wide = 4};
    c.local = g->strands->local_size;
    if (comm->choice->forced.algorithm[kind] != algorithm || kind == TR__ALLTOALL_V) continue;
    for (int i = 0; i < 3 && status == TR_OK; i++) {
      size_t start[TR__RANKS + 1];
      cf_uneven(g, sizes[i] / 2, 0, start);
      int uneven = kind == TR__REDUCE_SCATTER_V || kind == TR__ALLGATHER_V;
      c.nelem = kind == TR__BARRIER ? 0 : uneven ? start[g->size] : sizes[i];
      c.start = uneven ? start : NULL;
      status = count_one(g, algorithm, c, a, b);
    }
  }
  free(a);
  free(b);
  return status;
}

static void traffic_is_as_claimed(void **state) {
  (void)state;
  for (int i = 0; tr__algorithms[i]; i++)
    for (int size = 2; size <= 8; size++) {
      const tr__algorithm *a = tr__algorithms[i];
      char demand[48];
      snprintf(demand, sizeof demand, "%s%s", a->name, a->hosts ? "/2" : "");
      if ((a->powers_of_two || a->hosts) && size != 4 && size != 8) continue;
      assert_int_equal(run_demanding(demand, size, 1, count_all, a), TR_OK);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ordered_algorithms_conform),
      cmocka_unit_test(hierarchical_algorithms_conform),
      cmocka_unit_test(strands_conform),
      cmocka_unit_test(requests_in_any_order_conform),
      cmocka_unit_test(sums_in_any_order_are_within_rounding),
      cmocka_unit_test(demands_that_cannot_be_met_name_what_can),
      cmocka_unit_test(traffic_is_as_claimed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
