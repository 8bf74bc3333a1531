// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Random valid schedules with random costs against a brute-force longest path that knows nothing of programs; what cannot run, or
// makes no sense, is refused by name; a million operations and a hundred thousand ranks go through.
#include "sim/sim_case.h"

// ---- random schedules: any order in which everything can be done, cut into lists

static uint64_t next(uint64_t *seed) {
  *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return *seed >> 33;
}

static int below(uint64_t *seed, int n) { return (int)(next(seed) % (uint64_t)n); }

enum { MOST = 4096 };

typedef struct maker {
  tr_schedule *s;
  uint64_t seed;
  tr_pass list[MOST]; // in the order in which they are done
  int rank_of[MOST], n;
  uint8_t forward[MOST], back[MOST], weights[MOST]; // by (stage, micro-batch)
} maker;

static int at(const maker *k, int stage, int mb) { return stage * k->s->m + mb; }

static int forward_ready(const maker *k, int stage, int mb) {
  return !k->forward[at(k, stage, mb)] && (stage == 0 || k->forward[at(k, stage - 1, mb)]);
}

static int back_ready(const maker *k, int stage, int mb) {
  return k->forward[at(k, stage, mb)] && !k->back[at(k, stage, mb)] &&
         (stage == k->s->S - 1 || k->back[at(k, stage + 1, mb)]);
}

static void put(maker *k, tr_pass pass) {
  k->rank_of[k->n] = tr_schedule_rank(k->s, pass.stage, pass.microbatch);
  k->list[k->n++] = pass;
}

// A random pass that is ready beside F(stage, mb), on the same rank, as the pair's other half; 0: none was found.
static int put_pair(maker *k, int stage, int mb) {
  for (int attempt = 0; attempt < 8; attempt++) {
    const int other = below(&k->seed, k->s->S), j = below(&k->seed, k->s->m);
    if (!back_ready(k, other, j) || tr_schedule_rank(k->s, other, j) != tr_schedule_rank(k->s, stage, mb)) continue;
    put(k, (tr_pass){TR_OP_X, (uint16_t)stage, (uint16_t)other, mb, j});
    k->forward[at(k, stage, mb)] = 1;
    k->back[at(k, other, j)] = k->weights[at(k, other, j)] = 1;
    return 1;
  }
  return 0;
}

// Does one thing for a random stage and micro-batch, if there is one to do.
static void put_any(maker *k) {
  const int stage = below(&k->seed, k->s->S), mb = below(&k->seed, k->s->m), i = at(k, stage, mb);
  const uint16_t s = (uint16_t)stage;
  if (forward_ready(k, stage, mb)) {
    if (below(&k->seed, 3) == 0 && put_pair(k, stage, mb)) return;
    put(k, (tr_pass){TR_OP_F, s, 0, mb, 0});
    k->forward[i] = 1;
  } else if (back_ready(k, stage, mb)) {
    const int split = below(&k->seed, 2);
    put(k, (tr_pass){split ? TR_OP_I : TR_OP_B, s, 0, mb, 0});
    k->back[i] = 1;
    k->weights[i] = !split;
  } else if (k->back[i] && !k->weights[i]) {
    put(k, (tr_pass){TR_OP_W, s, 0, mb, 0});
    k->weights[i] = 1;
  }
}

static void make_schedule(uint64_t seed, tr_schedule *out) {
  static maker k;
  k = (maker){.s = out, .seed = seed};
  int p = 1 + below(&k.seed, 5), map = p > 1 ? below(&k.seed, 4) : below(&k.seed, 2);
  if (map == TR_STAGES_BOTH && p % 2) p++;
  const int v = map == TR_STAGES_LINEAR ? 1 : map == TR_STAGES_LOOP ? 1 + below(&k.seed, 3) : 2;
  *out = (tr_schedule){.name = "random", .p = p, .v = v, .map = (tr_stage_map)map};
  out->S = map == TR_STAGES_BOTH || map == TR_STAGES_LINEAR ? p : p * v;
  out->m = map == TR_STAGES_BOTH ? 2 * (1 + below(&k.seed, 3)) : 1 + below(&k.seed, 6);
  for (int left = 1; left > 0;) {
    for (int i = 0; i < 64; i++) put_any(&k);
    left = 0;
    for (int i = 0; i < out->S * out->m; i++) left += !k.weights[i];
  }
  out->begin = calloc((size_t)p + 1, sizeof *out->begin);
  out->pass = malloc(sizeof *out->pass * (size_t)k.n);
  uint32_t n = 0;
  for (int r = 0; r < p; r++) {
    out->begin[r] = n;
    for (int i = 0; i < k.n; i++)
      if (k.rank_of[i] == r) out->pass[n++] = k.list[i];
  }
  out->begin[p] = n;
  if (tr_schedule_check(out) < 0) fail_msg("seed %d: %s", (int)seed, tr_status_text());
}

// ---- the longest path, by trying until nothing moves

typedef struct path {
  const tr_schedule *s;
  int64_t (*cost)[TR_OP_KIND_COUNT];
  int64_t (*wait)[8];
  int64_t forward[MOST], back[MOST], end[MOST]; // by (stage, micro-batch), by pass
} path;

static int64_t arrival(const path *x, const int64_t *made, int from, int to, int mb) {
  const tr_schedule *s = x->s;
  if (from < 0 || from >= s->S) return 0;
  const int a = tr_schedule_rank(s, from, mb), b = tr_schedule_rank(s, to, mb);
  return made[from * s->m + mb] + (a == b ? 0 : x->wait[a][b]);
}

static int64_t cost_of_pass(const path *x, const tr_pass *pass) {
  if (pass->kind != TR_OP_X) return x->cost[pass->stage][pass->kind];
  return x->cost[pass->stage][TR_OP_F] + x->cost[pass->back_stage][TR_OP_B];
}

static int relax(path *x, int rank, uint32_t i) {
  const tr_schedule *s = x->s;
  const tr_pass *pass = &s->pass[i];
  const int x_pair = pass->kind == TR_OP_X, has_f = x_pair || pass->kind == TR_OP_F;
  const int bs = x_pair ? pass->back_stage : pass->stage, bm = x_pair ? pass->back_microbatch : pass->microbatch;
  const int has_b = x_pair || pass->kind == TR_OP_B || pass->kind == TR_OP_I;
  int64_t begin = i > s->begin[rank] ? x->end[i - 1] : 0;
  if (has_f && arrival(x, x->forward, pass->stage - 1, pass->stage, pass->microbatch) > begin)
    begin = arrival(x, x->forward, pass->stage - 1, pass->stage, pass->microbatch);
  if (has_b && arrival(x, x->back, bs + 1, bs, bm) > begin) begin = arrival(x, x->back, bs + 1, bs, bm);
  const int64_t end = begin + cost_of_pass(x, pass);
  const int moved = end != x->end[i];
  x->end[i] = end;
  if (has_f) x->forward[pass->stage * s->m + pass->microbatch] = end;
  if (has_b) x->back[bs * s->m + bm] = end;
  return moved;
}

static int64_t longest_path(path *x) {
  int64_t most = 0;
  for (int moved = 1; moved;) {
    moved = 0;
    for (int r = 0; r < x->s->p; r++)
      for (uint32_t i = x->s->begin[r]; i < x->s->begin[r + 1]; i++) moved |= relax(x, r, i);
  }
  for (uint32_t i = 0; i < x->s->begin[x->s->p]; i++) most = x->end[i] > most ? x->end[i] : most;
  return most;
}

// ---- the comparison

typedef struct prices {
  int64_t cost[16][TR_OP_KIND_COUNT], wait[8][8];
} prices;

static int64_t wait_of(void *user, int from, int to, int64_t *occupancy) {
  *occupancy = 0;
  return ((const prices *)user)->wait[from][to];
}

static void make_prices(uint64_t seed, prices *out) {
  memset(out, 0, sizeof *out);
  for (int s = 0; s < 16; s++) {
    for (int kind = TR_OP_F; kind <= TR_OP_W; kind++) out->cost[s][kind] = below(&seed, 9); // 0 too
    out->cost[s][TR_OP_X] = -1;
  }
  for (int a = 0; a < 8; a++)
    for (int b = 0; b < 8; b++) out->wait[a][b] = below(&seed, 4);
}

// Every pass starts and ends when the brute force says so.
static void compare_events(const tr_schedule *s, const path *x, const tr_program *const *program,
                           const tr_sim_result *result) {
  for (int r = 0; r < s->p; r++) {
    uint32_t pass = s->begin[r];
    for (uint32_t i = 0; i < program[r]->nop; i++) {
      if (program[r]->op[i].kind > TR_OP_X) continue;
      assert_int_equal(program[r]->op[i].kind, s->pass[pass].kind);
      assert_int_equal(result->event[r][i].end, x->end[pass++]);
    }
    assert_int_equal(pass, s->begin[r + 1]);
  }
}

static void random_schedules_against_brute_force(void **state) {
  (void)state;
  static path x;
  for (uint64_t seed = 0; seed < 600; seed++) {
    tr_schedule s;
    prices price;
    hand by_hand;
    tr_sim_programs programs;
    tr_sim_result result;
    make_schedule(seed, &s);
    make_prices(seed, &price);
    memset(&x, 0, sizeof x);
    x.s = &s, x.cost = price.cost, x.wait = price.wait;
    const int64_t want = longest_path(&x);
    const tr_sim_costs costs = {
        .nstage = 16, .stage = (const int64_t(*)[TR_OP_KIND_COUNT])price.cost, .link = wait_of, .user = &price};
    assert_true(hand_lower(&s, &by_hand));
    assert_int_equal(tr_sim_run(by_hand.pointers, s.p, &costs, &result), TR_OK);
    if (result.makespan != want) fail_msg("seed %d: %d, not %d", (int)seed, (int)result.makespan, (int)want);
    compare_events(&s, &x, by_hand.pointers, &result);
    tr_sim_result_destroy(&result);
    if (tr_sim_lower(&s, &programs) < 0) fail_msg("seed %d: %s", (int)seed, tr_status_text());
    assert_int_equal(tr_sim_run(programs.program, s.p, &costs, &result), TR_OK);
    compare_events(&s, &x, programs.program, &result);
    int peak[8], peak_i[8];
    tr_schedule_peaks(&s, TR_HOLD_UNTIL_W, peak, NULL);
    tr_schedule_peaks(&s, TR_HOLD_UNTIL_I, peak_i, NULL);
    for (int r = 0; r < s.p; r++) {
      assert_int_equal(result.rank[r].peak_w, peak[r]);
      assert_int_equal(result.rank[r].peak_i, peak_i[r]);
    }
    tr_sim_result_destroy(&result);
    tr_sim_programs_destroy(&programs);
    hand_free(&by_hand);
    tr_schedule_destroy(&s);
  }
}

// ---- what is refused

static const int64_t unit_costs[1][TR_OP_KIND_COUNT] = {
    {[TR_OP_F] = 1, [TR_OP_B] = 2, [TR_OP_I] = 1, [TR_OP_W] = 1, [TR_OP_X] = -1}};

static void expect_refused(const tr_program *const *program, int p, const tr_sim_costs *costs, const char *sentence) {
  tr_sim_result result;
  assert_int_equal(tr_sim_run(program, p, costs, &result), TR_ERR_PLAN);
  if (!strstr(tr_status_text(), sentence)) fail_msg("no '%s' in '%s'", sentence, tr_status_text());
}

static void programs_that_cannot_run(void **state) {
  (void)state;
  const tr_sim_costs costs = {.nstage = 1, .stage = unit_costs};
  tr_schedule s;
  hand h;
  assert_int_equal(tr_schedule_build(&(tr_schedule_spec){.name = "1f1b", .p = 2, .m = 2}, &s), TR_OK);
  assert_true(hand_lower(&s, &h));
  tr_program *first = &h.program[0], *second = &h.program[1];

  // Rank 0: F0 SEND F1 SEND RECV B0 ..: its first operation waits for the first message back.
  tr_edge *edge = &first->edge[first->nedge];
  uint32_t recv = 0;
  while (first->op[recv].kind != TR_OP_RECV) recv++;
  const tr_op forward = first->op[0];
  *edge = (tr_edge){recv, 0};
  first->op[0].edge_begin = first->nedge, first->op[0].edge_end = ++first->nedge;
  expect_refused(
      h.pointers, 2, &costs,
      "the programs wait for each other for ever: rank 0 at operation 0, F of stage 0 and micro-batch 0, for "
      "the derivatives behind stage 0 of micro-batch 0 from rank 1; rank 1 at operation 1, F of stage 1 and "
      "micro-batch 0, for the activations behind stage 0 of micro-batch 0 from rank 0");
  first->op[0] = forward;
  first->nedge--;

  // A message that nobody reads, one that nobody sends, and two that changed places.
  uint32_t at = 0;
  while (second->op[at].kind != TR_OP_RECV) at++;
  const tr_op receive = second->op[at];
  second->op[at].kind = TR_OP_F, second->op[at].lane = TR_LANE_COMPUTE;
  expect_refused(h.pointers, 2, &costs,
                 "rank 0 sends the activations behind stage 0 of micro-batch 0 where rank 1 receives those of 1");
  second->op[at] = receive;
  const uint16_t stage = second->ring[receive.ring].stage;
  second->ring[receive.ring].stage = 7;
  expect_refused(h.pointers, 2, &costs,
                 "sends the activations behind stage 0 of micro-batch 0, which rank 1 never receives");
  second->ring[receive.ring].stage = stage;
  uint32_t send = 0;
  while (first->op[send].kind != TR_OP_SEND || first->op[send].microbatch != 1) send++;
  first->op[send].kind = TR_OP_REDUCE;
  expect_refused(h.pointers, 2, &costs,
                 "receives the activations behind stage 0 of micro-batch 1, which rank 0 never sends");
  first->op[send].kind = TR_OP_SEND;
  const int32_t peer = first->ring[first->op[send].ring].peer;
  first->ring[first->op[send].ring].peer = 2;
  expect_refused(h.pointers, 2, &costs, "talks to rank 2; there are 0 to 1");
  first->ring[first->op[send].ring].peer = peer;
  edge = &first->edge[0];
  const uint32_t before = edge->op;
  edge->op = 1000;
  expect_refused(h.pointers, 2, &costs, "waits for operation 1000 of");
  edge->op = before;
  tr_sim_result result;
  assert_int_equal(tr_sim_run(h.pointers, 2, &costs, &result), TR_OK);
  tr_sim_result_destroy(&result);
  hand_free(&h);
  tr_schedule_destroy(&s);
}

static int64_t no_link(void *user, int from, int to, int64_t *occupancy) {
  (void)user, (void)from, (void)to;
  *occupancy = 1;
  return -2;
}

static void costs_that_cannot_be(void **state) {
  (void)state;
  static const int64_t negative[1][TR_OP_KIND_COUNT] = {{[TR_OP_F] = 1, [TR_OP_B] = -1, [TR_OP_W] = -3}};
  static const int64_t huge[1][TR_OP_KIND_COUNT] = {{[TR_OP_F] = INT64_MAX / 2}};
  tr_schedule s;
  tr_sim_result result;
  assert_int_equal(tr_schedule_build(&(tr_schedule_spec){.name = "gpipe", .p = 2, .m = 2}, &s), TR_OK);
  tr_sim_costs costs = {.nstage = 1, .stage = negative};
  assert_int_equal(tr_sim_schedule(&s, &costs, &result), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "(B of stage 1) costs -3 ticks"));
  costs.stage = huge;
  assert_int_equal(tr_sim_schedule(&s, &costs, &result), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "can be added up"));
  costs.stage = unit_costs;
  costs.link = no_link;
  assert_int_equal(tr_sim_schedule(&s, &costs, &result), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "a message from rank 0 to rank 1 takes -2 ticks"));
  costs = (tr_sim_costs){.nstage = 0};
  assert_int_equal(tr_sim_schedule(&s, &costs, &result), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "costs of 0 stages"));
  tr_schedule_destroy(&s);
}

// One stream without buffers and both ranks sending first: each waits for the other's receive.
static void streams_that_meet_head_on(void **state) {
  (void)state;
  const tr_sim_costs free_costs = {.nstage = 1, .stage = unit_costs};
  tr_sim_costs stream = free_costs;
  tr_program program[2] = {{0}};
  const tr_program *pointers[2] = {&program[0], &program[1]};
  tr_sim_result result;
  for (int r = 0; r < 2; r++) {
    program[r].ring = calloc(2, sizeof *program[r].ring);
    program[r].nring = 2;
    program[r].ring[0] = (tr_ring){.stage = (uint16_t)r, .role = TR_ROLE_ACTIVATION, .peer = 1 - r};
    program[r].ring[1] = (tr_ring){.stage = (uint16_t)(1 - r), .role = TR_ROLE_ACTIVATION, .peer = 1 - r};
    const uint32_t pass = hand_append(&program[r], hand_op(TR_OP_F, r, 0, 0), NULL, 0);
    hand_append(&program[r], hand_op(TR_OP_SEND, r, 0, 0), &pass, 1);
    tr_op receive = hand_op(TR_OP_RECV, 1 - r, 0, 0);
    receive.ring = 1;
    hand_append(&program[r], receive, NULL, 0);
  }
  assert_int_equal(tr_sim_run(pointers, 2, &free_costs, &result), TR_OK);
  assert_int_equal(result.makespan, 1);
  tr_sim_result_destroy(&result);
  stream.one_stream = 1;
  expect_refused(pointers, 2, &stream,
                 "rank 0 at operation 1, SEND of stage 0 and micro-batch 0, for the activations behind stage 0 of "
                 "micro-batch 0 to go to rank 1; rank 1 at operation 1, SEND");
  for (int r = 0; r < 2; r++) {
    free(program[r].op);
    free(program[r].edge);
    free(program[r].ring);
  }
}

// ---- size

static int64_t one_by_one(void *user, int rank, uint32_t index, const tr_op *op) {
  (void)user, (void)rank, (void)index;
  return op->kind == TR_OP_F ? 1 : 2;
}

static void a_million_operations(void **state) {
  (void)state;
  const tr_sim_costs costs = {.op = one_by_one};
  tr_schedule s;
  tr_sim_result result;
  hand h;
  uint64_t n = 0;
  assert_int_equal(tr_schedule_build(&(tr_schedule_spec){.name = "1f1b", .p = 48, .m = 4000}, &s), TR_OK);
  assert_true(hand_lower(&s, &h));
  for (int r = 0; r < s.p; r++) n += h.program[r].nop;
  assert_true(n > 1000000);
  assert_int_equal(tr_sim_run(h.pointers, s.p, &costs, &result), TR_OK);
  assert_int_equal(result.makespan, 3 * (s.m + s.p - 1));
  tr_sim_result_destroy(&result);
  hand_free(&h);
  tr_schedule_destroy(&s);
}

// Rank r of replica d is rank d p + r of one large job.
// Ranks with as many chunks as numbers of stages allow, and four rings a chunk.
static void as_many_chunks_as_there_can_be(void **state) {
  (void)state;
  static const int64_t row[1][TR_OP_KIND_COUNT] = {{[TR_OP_F] = 1, [TR_OP_B] = 2}};
  const tr_sim_costs costs = {.nstage = 1, .stage = row};
  for (int p = 1; p <= 2; p++) {
    tr_schedule s;
    tr_sim_result result;
    assert_int_equal(tr_schedule_build(&(tr_schedule_spec){"interleaved", p, 2, 65535 / p, 0}, &s), TR_OK);
    if (tr_sim_schedule(&s, &costs, &result) < 0) fail_msg("%s", tr_status_text());
    assert_int_equal(result.makespan, 3 * (s.m * s.v + p - 1));
    assert_int_equal(result.messages, p == 1 ? 0 : 2 * s.m * (s.S - 1));
    tr_sim_result_destroy(&result);
    tr_schedule_destroy(&s);
  }
}

static void make_replicas(const hand *h, int replicas, tr_program *program, const tr_program **pointers,
                          tr_ring *ring) {
  const int p = h->schedule->p;
  for (int d = 0; d < replicas; d++)
    for (int r = 0; r < p; r++) {
      tr_program *one = &program[d * p + r];
      *one = h->program[r];
      one->ring = ring;
      memcpy(ring, h->program[r].ring, sizeof *ring * (size_t)one->nring);
      for (int i = 0; i < one->nring; i++) ring[i].peer += d * p;
      ring += one->nring;
      pointers[d * p + r] = one;
    }
}

// 6250 replicas of 16 ranks, all simulated, do what one of them does: why one of them is enough.
static void a_hundred_thousand_ranks(void **state) {
  (void)state;
  enum { P = 16, REPLICAS = 6250, RINGS = 4 };
  const tr_sim_costs costs = {.nstage = 1, .stage = unit_costs, .latency = 1, .occupancy = 1};
  tr_program *program = malloc(sizeof *program * P * REPLICAS);
  const tr_program **pointers = malloc(sizeof *pointers * P * REPLICAS);
  tr_ring *ring = malloc(sizeof *ring * P * REPLICAS * RINGS);
  tr_schedule s;
  tr_sim_result one, all;
  hand h;
  assert_int_equal(tr_schedule_build(&(tr_schedule_spec){.name = "1f1b", .p = P, .m = 2}, &s), TR_OK);
  assert_true(hand_lower(&s, &h));
  make_replicas(&h, REPLICAS, program, pointers, ring);
  assert_int_equal(tr_sim_run(h.pointers, P, &costs, &one), TR_OK);
  assert_int_equal(tr_sim_run(pointers, P * REPLICAS, &costs, &all), TR_OK);
  assert_int_equal(all.makespan, one.makespan);
  assert_true(fabs(all.bubble - one.bubble) < 1e-12 && all.span_bubble == one.span_bubble);
  assert_int_equal(all.messages, one.messages * REPLICAS);
  for (int i = 0; i < P * REPLICAS; i++) {
    assert_memory_equal(&all.rank[i], &one.rank[i % P], sizeof *one.rank);
    assert_memory_equal(all.event[i], one.event[i % P], sizeof **one.event * h.program[i % P].nop);
  }
  tr_sim_result_destroy(&one);
  tr_sim_result_destroy(&all);
  free(program);
  free(pointers);
  free(ring);
  hand_free(&h);
  tr_schedule_destroy(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_schedules_against_brute_force),
      cmocka_unit_test(programs_that_cannot_run),
      cmocka_unit_test(costs_that_cannot_be),
      cmocka_unit_test(streams_that_meet_head_on),
      cmocka_unit_test(a_million_operations),
      cmocka_unit_test(as_many_chunks_as_there_can_be),
      cmocka_unit_test(a_hundred_thousand_ranks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
