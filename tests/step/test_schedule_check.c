// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Proves that tr_schedule_check takes exactly the schedules that can run: passes are swapped, moved, changed, doubled and left
// out at random, and a judge that knows nothing of worklists, written from the rules, says for each what is true. What cannot
// run is diagnosed with heads, inputs and the circle.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "step/schedule_cases.h"

enum { CELLS = 16 * 32 };

static uint32_t draw(uint64_t *state, uint32_t n) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33) % n;
}

// ---- the judge: tries every rank's next pass again and again until nothing moves

typedef struct judge {
  const tr_schedule *s;
  unsigned char f[CELLS], r[CELLS], b[CELLS], i[CELLS], w[CELLS];
} judge;

static int cell(const judge *j, int stage, int microbatch) { return stage * j->s->m + microbatch; }

// 1: done; 0: has to wait; -1: can never be.
static int do_half(judge *j, int rank, int kind, int stage, int mb, int only_look) {
  if (stage >= j->s->S || mb < 0 || mb >= j->s->m || tr_schedule_rank(j->s, stage, mb) != rank) return -1;
  int c = cell(j, stage, mb), ready = 1;
  switch (kind) {
  case TR_OP_F:
    if (j->f[c]) return -1;
    ready = stage == 0 || j->f[cell(j, stage - 1, mb)];
    if (ready && !only_look) j->f[c] = 1;
    return ready;
  case TR_OP_R:
    if (!j->f[c] || j->b[c] || j->w[c] || j->r[c] > j->i[c]) return -1;
    if (!only_look) j->r[c] = (unsigned char)(1 + j->i[c]);
    return 1;
  case TR_OP_B:
  case TR_OP_I:
    if (!j->f[c] || j->b[c] || j->i[c]) return -1;
    if (stage < j->s->S - 1) {
      int next = cell(j, stage + 1, mb);
      ready = j->b[next] || j->i[next];
    }
    if (ready && !only_look) *(kind == TR_OP_B ? &j->b[c] : &j->i[c]) = 1;
    return ready;
  case TR_OP_W:
    if (!j->i[c] || j->w[c]) return -1;
    if (!only_look) j->w[c] = 1;
    return 1;
  default: return -1;
  }
}

static int do_pass(judge *j, int rank, const tr_pass *pass) {
  if (pass->kind != TR_OP_X) return do_half(j, rank, pass->kind, pass->stage, pass->microbatch, 0);
  int f = do_half(j, rank, TR_OP_F, pass->stage, pass->microbatch, 1);
  int b = do_half(j, rank, TR_OP_B, pass->back_stage, pass->back_microbatch, 1);
  if (f <= 0 || b <= 0) return f < 0 || b < 0 ? -1 : 0;
  do_half(j, rank, TR_OP_F, pass->stage, pass->microbatch, 0);
  return do_half(j, rank, TR_OP_B, pass->back_stage, pass->back_microbatch, 0);
}

static int can_run(const tr_schedule *s) {
  judge j = {.s = s};
  uint32_t next[SC_RANKS];
  memcpy(next, s->begin, sizeof *next * (size_t)s->p);
  for (int moved = 1; moved;) {
    moved = 0;
    for (int r = 0; r < s->p; r++) {
      int done = next[r] < s->begin[r + 1] ? do_pass(&j, r, &s->pass[next[r]]) : 0;
      if (done < 0) return 0;
      next[r] += (uint32_t)done;
      moved |= done;
    }
  }
  for (int c = 0; c < s->S * s->m; c++)
    if (!j.f[c] || !(j.b[c] || (j.i[c] && j.w[c]))) return 0;
  for (int r = 0; r < s->p; r++)
    if (next[r] < s->begin[r + 1]) return 0;
  return 1;
}

// ---- damage

static void swap_two(tr_schedule *s, uint64_t *random, int near) {
  int r = (int)draw(random, (uint32_t)s->p);
  uint32_t n = s->begin[r + 1] - s->begin[r];
  if (n == 0) return;
  uint32_t a = draw(random, n), b = near ? (a + 1) % n : draw(random, n);
  tr_pass *list = &s->pass[s->begin[r]], kept = list[a];
  list[a] = list[b];
  list[b] = kept;
}

static void change_one(tr_schedule *s, uint64_t *random) {
  if (s->begin[s->p] == 0) return;
  tr_pass *pass = &s->pass[draw(random, s->begin[s->p])];
  switch (draw(random, 5)) {
  case 0: pass->stage = (uint16_t)draw(random, (uint32_t)s->S + 1); break;
  case 1: pass->microbatch = (int32_t)draw(random, (uint32_t)s->m + 2) - 1; break;
  case 2: pass->kind = (uint8_t)draw(random, TR_OP_R + 2); break;
  case 3: pass->back_stage = (uint16_t)draw(random, (uint32_t)s->S); break;
  default: pass->back_microbatch = (int32_t)draw(random, (uint32_t)s->m); break;
  }
}

static void drop_one(tr_schedule *s, uint64_t *random) {
  if (s->begin[s->p] == 0) return;
  uint32_t at = draw(random, s->begin[s->p]);
  memmove(&s->pass[at], &s->pass[at + 1], (s->begin[s->p] - at - 1) * sizeof *s->pass);
  for (int r = 1; r <= s->p; r++)
    if (s->begin[r] > at) s->begin[r]--;
}

// Doubles a pass of some kind at a random place of its rank.
static void insert_one(tr_schedule *s, uint64_t *random) {
  int r = (int)draw(random, (uint32_t)s->p);
  uint32_t n = s->begin[r + 1] - s->begin[r];
  if (n == 0) return;
  uint32_t at = s->begin[r] + draw(random, n + 1);
  tr_pass more = s->pass[s->begin[r] + draw(random, n)];
  if (draw(random, 2)) more.kind = TR_OP_R;
  s->pass = realloc(s->pass, (s->begin[s->p] + 1) * sizeof *s->pass);
  memmove(&s->pass[at + 1], &s->pass[at], (s->begin[s->p] - at) * sizeof *s->pass);
  s->pass[at] = more;
  for (int k = r + 1; k <= s->p; k++) s->begin[k]++;
}

static void exchange(int32_t *microbatch, int a, int b) {
  *microbatch = *microbatch == a ? b : *microbatch == b ? a : *microbatch;
}

// One rank takes two micro-batches in each other's place: its own order stays right.
static void exchange_two(tr_schedule *s, uint64_t *random) {
  int r = (int)draw(random, (uint32_t)s->p), a = (int)draw(random, (uint32_t)s->m),
      b = (int)draw(random, (uint32_t)s->m);
  for (uint32_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
    exchange(&s->pass[i].microbatch, a, b);
    if (s->pass[i].kind == TR_OP_X) exchange(&s->pass[i].back_microbatch, a, b);
  }
}

static void damage(tr_schedule *s, uint64_t *random) {
  switch (draw(random, 12)) {
  case 0: change_one(s, random); break;
  case 1: drop_one(s, random); break;
  case 2: insert_one(s, random); break;
  case 3: swap_two(s, random, 0); break;
  case 4:
  case 5:
  case 6: exchange_two(s, random); break;
  default: swap_two(s, random, 1); break;
  }
}

static void random_schedule(uint64_t *random, tr_schedule *s) {
  for (;;) {
    const char *name = tr_schedule_known((int)draw(random, 15), NULL);
    if (sc_try(name, 1 + (int)draw(random, 4), 1 + (int)draw(random, 10), (int)draw(random, 4), 0, s) == TR_OK)
      return;
  }
}

static void damaged_schedules_are_taken_only_if_they_can_run(void **state) {
  (void)state;
  int taken = 0, stuck = 0, refused = 0;
  for (uint64_t seed = 0; seed < 100000; seed++) {
    uint64_t random = seed * 77 + 5;
    tr_schedule s;
    random_schedule(&random, &s);
    for (int n = 1 + (int)draw(&random, 4); n > 0; n--) damage(&s, &random);
    tr_status status = tr_schedule_check(&s);
    if ((status == TR_OK) != can_run(&s))
      fail_msg("seed %d, %s p %d m %d: %s", (int)seed, s.name, s.p, s.m, status ? tr_status_text() : "taken");
    taken += status == TR_OK;
    if (status == TR_OK) {
      int rank[SC_RANKS], stage[SC_RANKS * 4];
      tr_schedule_peaks(&s, TR_HOLD_UNTIL_W, rank, stage);
      for (int r = 0; r < s.p; r++) assert_true(rank[r] >= 1 && rank[r] <= s.m * s.v);
    } else {
      assert_int_equal(status, TR_ERR_PLAN);
      if (strstr(tr_status_text(), "no rank can go on"))
        stuck++;
      else
        refused++;
    }
    tr_schedule_destroy(&s);
  }
  print_message("%d run, %d get stuck, %d are refused\n", taken, stuck, refused);
  assert_true(taken > 5000 && stuck > 5000 && refused > 5000);
}

// ---- sentences

static void expect(const tr_schedule *s, const char *says) {
  if (tr_schedule_check(s) != TR_ERR_PLAN || !strstr(tr_status_text(), says))
    fail_msg("does not say \"%s\": %s", says, tr_status_text());
}

static void blocked_heads_are_named_with_what_they_lack(void **state) {
  (void)state;
  tr_schedule s;
  sc_build("zb_h1", 2, 2, 0, &s); // 0F0,0F1,0I0,0W0,0I1,0W1 and 1F0,1I0,1F1,1I1,1W0,1W1
  tr_pass *list = &s.pass[s.begin[1]], kept = list[0];
  memmove(list, list + 1, 5 * sizeof *list);
  list[5] = kept;
  expect(&s, "rank 1, pass 0 (1I0) comes before its F");
  tr_schedule_destroy(&s);

  // Rank 1 wants the second micro-batch first, which rank 0 sends only after a gradient of the first.
  sc_build("naive", 2, 2, 0, &s);
  list = &s.pass[s.begin[1]];
  for (int i = 0; i < 4; i++) list[i].microbatch = 1 - list[i].microbatch;
  expect(&s, "rank 0 at 0B0 lacks the gradient of stage 1, micro-batch 0, rank 1 at 1F1 lacks the output of stage 0, "
             "micro-batch 1");
  expect(&s, "rank 0 waits for rank 1, which waits for rank 0");
  tr_schedule_destroy(&s);

  sc_build("dualpipe", 2, 4, 0, &s); // the pair of rank 0 waits for both of its inputs
  expect(&(tr_schedule){.name = "x", .p = 2, .v = 2, .S = 2, .m = 3, .map = TR_STAGES_BOTH, .begin = s.begin},
         "even");
  tr_schedule_destroy(&s);
}

static void sizes_are_checked_before_lists(void **state) {
  (void)state;
  uint32_t begin[5] = {0};
  expect(&(tr_schedule){.p = 0, .v = 1, .S = 0, .m = 1, .begin = begin}, "1 to 65535 stages work");
  expect(&(tr_schedule){.p = 2, .v = 1, .S = 3, .m = 1, .begin = begin}, "do not make a map linear");
  expect(&(tr_schedule){.p = 2, .v = 2, .S = 3, .m = 1, .map = TR_STAGES_LOOP, .begin = begin}, "map loop");
  expect(&(tr_schedule){.p = 2, .v = 3, .S = 6, .m = 1, .map = TR_STAGES_V, .begin = begin}, "map v");
  expect(&(tr_schedule){.p = 3, .v = 2, .S = 3, .m = 2, .map = TR_STAGES_BOTH, .begin = begin}, "even numbers");
  expect(&(tr_schedule){.p = 2, .v = 1, .S = 2, .m = 4097, .begin = begin}, "m 1 to 4096");
  expect(&(tr_schedule){.p = 1, .v = 60000, .S = 60000, .m = 4096, .map = TR_STAGES_LOOP, .begin = begin},
         "more than 16777216 passes");
  expect(&(tr_schedule){.name = "x", .p = 2, .v = 1, .S = 2, .m = 2, .begin = begin},
         "rank 0 has no F of stage 0, micro-batch 0");
}

// With many ranks the sentence stays readable: some heads, how many more, and the circle.
static void many_blocked_ranks_are_counted(void **state) {
  (void)state;
  tr_schedule s;
  sc_build("naive", 40, 2, 0, &s);
  for (int r = 1; r < 40; r += 2)
    for (uint32_t i = s.begin[r]; i < s.begin[r + 1]; i++) s.pass[i].microbatch = 1 - s.pass[i].microbatch;
  expect(&s, "and 24 more");
  expect(&s, " waits for rank ");
  tr_schedule_destroy(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(damaged_schedules_are_taken_only_if_they_can_run),
      cmocka_unit_test(blocked_heads_are_named_with_what_they_lack),
      cmocka_unit_test(sizes_are_checked_before_lists),
      cmocka_unit_test(many_blocked_ranks_are_counted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
