// SPDX-License-Identifier: MIT
// The proof that a schedule can run, in three walks over its lists:
//
//   1. every pass is one that its rank may do now: known, on the rank where its stage lives, F before R before B or I before W;
//   2. every stage has seen every micro-batch forward and backward;
//   3. all ranks take their lists in order, each going on as soon as what the next pass waits for is there. What one rank ends
//      wakes at most two others, so this takes time proportional to the number of passes. If nobody can go on, the heads are
//      blocked in a circle.
#include "schedule_internal.h"
#include "trireme/base/text.h"
#include <stdio.h>
#include <stdlib.h>

// What has happened to a micro-batch in a stage (walks 1 and 2); what other ranks may use (walk 3).
enum { SEEN_F = 1, SEEN_R = 2, SEEN_I = 4, SEEN_B = 8, SEEN_W = 16, OUT = 32, GRADIENT = 64 };

typedef struct proof {
  const tr_schedule *schedule;
  uint8_t *state;    // [S][m]
  uint32_t *next;    // [p] how far each rank has come
  int *awake;        // [p] ranks to look at
  uint8_t *is_awake; // [p]
  int nawake;
  int *fault; // rank whose list is wrong
} proof;

static uint8_t *state_of(const proof *p, int stage, int microbatch) {
  return &p->state[(size_t)stage * (size_t)p->schedule->m + (size_t)microbatch];
}

// ---- shape

static tr_status check_map(const tr_schedule *s) {
  int each = s->map == TR_STAGES_LINEAR ? 1 : s->map == TR_STAGES_LOOP ? s->v : 2;
  int64_t stages = (s->map == TR_STAGES_BOTH ? 1 : (int64_t)each) * s->p;
  if (s->v != each || s->S != stages)
    return tr_error(TR_ERR_PLAN, "schedule %s: S %d stage%s on p %d rank%s, v %d on each, do not make a map %s",
                    s->name, s->S, tr_text_plural(s->S, "s"), s->p, tr_text_plural(s->p, "s"), s->v,
                    tr__stage_map_name(s->map));
  if (s->map == TR_STAGES_BOTH && (s->p % 2 || s->m % 2))
    return tr_error(TR_ERR_PLAN,
                    "schedule %s: map both needs even numbers of ranks and of micro-batches, not p %d, m %d", s->name,
                    s->p, s->m);
  return TR_OK;
}

static tr_status check_shape(const tr_schedule *s) {
  if (s->p < 1 || s->S < 1 || s->S > TR__SCHEDULE_STAGES)
    return tr_error(TR_ERR_PLAN, "schedule %s: S %d stage%s on p %d rank%s; 1 to %d stages work", s->name, s->S,
                    tr_text_plural(s->S, "s"), s->p, tr_text_plural(s->p, "s"), (int)TR__SCHEDULE_STAGES);
  if (s->m < 1 || s->m > TR_STEP_MICROBATCHES)
    return tr_error(TR_ERR_PLAN, "schedule %s: m %d micro-batches; m 1 to %d works", s->name, s->m,
                    TR_STEP_MICROBATCHES);
  if ((int64_t)s->S * s->m > TR__SCHEDULE_PASSES)
    return tr_error(TR_ERR_PLAN, "schedule %s: S %d stages and m %d micro-batches need more than %d passes", s->name,
                    s->S, s->m, (int)TR__SCHEDULE_PASSES);
  return check_map(s);
}

// ---- walk 1

static tr_status wrong_pass(const proof *p, int rank, uint32_t index, const char *rule) {
  const tr_schedule *s = p->schedule;
  *p->fault = rank;
  return tr_error(TR_ERR_PLAN, "schedule %s: rank %d, pass %u (%s) %s", s->name, rank, index - s->begin[rank],
                  tr__pass_token(&s->pass[index]).text, rule);
}

static tr_status check_place(const proof *p, int rank, uint32_t index, int stage, int microbatch) {
  const tr_schedule *s = p->schedule;
  char rule[96];
  if (stage >= s->S) return wrong_pass(p, rank, index, "is of a stage that does not exist");
  if (microbatch < 0 || microbatch >= s->m)
    return wrong_pass(p, rank, index, "is of a micro-batch that does not exist");
  int home = tr_schedule_rank(s, stage, microbatch);
  if (home == rank) return TR_OK;
  snprintf(rule, sizeof rule, "is of a stage that lives on rank %d (map %s)", home, tr__stage_map_name(s->map));
  return wrong_pass(p, rank, index, rule);
}

// Takes one pass; returns the rule that it breaks, or NULL.
static const char *take(uint8_t *state, tr_op_kind kind) {
  int done = *state & (SEEN_B | SEEN_W), backward = *state & (SEEN_B | SEEN_I);
  if (kind == TR_OP_F) {
    if (*state & SEEN_F) return "is there twice";
    *state |= SEEN_F;
    return NULL;
  }
  if (!(*state & SEEN_F)) return "comes before its F";
  switch (kind) {
  case TR_OP_R:
    if (done) return "comes after all that would use it";
    if (*state & SEEN_R) return "is there twice";
    *state |= SEEN_R;
    return NULL;
  case TR_OP_B:
  case TR_OP_I:
    if (backward) return "is a second backward pass";
    *state = (uint8_t)((*state & ~SEEN_R) | (kind == TR_OP_B ? SEEN_B : SEEN_I));
    return NULL;
  case TR_OP_W:
    if (*state & SEEN_B) return "comes after a B, which has done its work";
    if (!(*state & SEEN_I)) return "comes before its I";
    if (*state & SEEN_W) return "is there twice";
    *state |= SEEN_W;
    return NULL;
  default: return "is no pass";
  }
}

static tr_status check_pass(const proof *p, int rank, uint32_t index) {
  const tr_pass *pass = &p->schedule->pass[index];
  int pair = pass->kind == TR_OP_X;
  TR_TRY(check_place(p, rank, index, pass->stage, pass->microbatch));
  if (pair) TR_TRY(check_place(p, rank, index, pass->back_stage, pass->back_microbatch));
  const char *rule = NULL;
  if (pair && pass->stage == pass->back_stage && pass->microbatch == pass->back_microbatch)
    rule = "goes forward and backward at once with one micro-batch";
  if (!rule) rule = take(state_of(p, pass->stage, pass->microbatch), pair ? TR_OP_F : (tr_op_kind)pass->kind);
  if (!rule && pair) rule = take(state_of(p, pass->back_stage, pass->back_microbatch), TR_OP_B);
  return rule ? wrong_pass(p, rank, index, rule) : TR_OK;
}

static tr_status check_lists(const proof *p) {
  const tr_schedule *s = p->schedule;
  for (int r = 0; r < s->p; r++)
    for (uint32_t i = s->begin[r]; i < s->begin[r + 1]; i++) TR_TRY(check_pass(p, r, i));
  return TR_OK;
}

// ---- walk 2

static tr_status check_complete(const proof *p) {
  const tr_schedule *s = p->schedule;
  for (int stage = 0; stage < s->S; stage++)
    for (int i = 0; i < s->m; i++) {
      int state = *state_of(p, stage, i);
      const char *lacks = !(state & SEEN_F)           ? "F"
                          : state & (SEEN_B | SEEN_W) ? NULL
                          : state & SEEN_I            ? "W"
                                                      : "backward pass";
      if (!lacks) continue;
      *p->fault = tr_schedule_rank(s, stage, i);
      return tr_error(TR_ERR_PLAN, "schedule %s: rank %d has no %s of stage %d, micro-batch %d", s->name, *p->fault,
                      lacks, stage, i);
    }
  return TR_OK;
}

// ---- walk 3

typedef struct input {
  int missing; // 0, OUT or GRADIENT
  int stage, microbatch;
} input;

static input forward_input(const proof *p, int stage, int microbatch) {
  int there = stage == 0 || *state_of(p, stage - 1, microbatch) & OUT;
  return there ? (input){0} : (input){OUT, stage - 1, microbatch};
}

static input backward_input(const proof *p, int stage, int microbatch) {
  int there = stage == p->schedule->S - 1 || *state_of(p, stage + 1, microbatch) & GRADIENT;
  return there ? (input){0} : (input){GRADIENT, stage + 1, microbatch};
}

static input missing_input(const proof *p, const tr_pass *pass) {
  input first = {0};
  switch (pass->kind) {
  case TR_OP_F: return forward_input(p, pass->stage, pass->microbatch);
  case TR_OP_B:
  case TR_OP_I: return backward_input(p, pass->stage, pass->microbatch);
  case TR_OP_X:
    first = forward_input(p, pass->stage, pass->microbatch);
    return first.missing ? first : backward_input(p, pass->back_stage, pass->back_microbatch);
  default: return first;
  }
}

static void wake(proof *p, int rank) {
  if (p->is_awake[rank]) return;
  p->is_awake[rank] = 1;
  p->awake[p->nawake++] = rank;
}

static void end_forward(proof *p, int stage, int microbatch) {
  *state_of(p, stage, microbatch) |= OUT;
  if (stage + 1 < p->schedule->S) wake(p, tr_schedule_rank(p->schedule, stage + 1, microbatch));
}

static void end_backward(proof *p, int stage, int microbatch) {
  *state_of(p, stage, microbatch) |= GRADIENT;
  if (stage > 0) wake(p, tr_schedule_rank(p->schedule, stage - 1, microbatch));
}

static void end_pass(proof *p, const tr_pass *pass) {
  if (pass->kind == TR_OP_F || pass->kind == TR_OP_X) end_forward(p, pass->stage, pass->microbatch);
  if (pass->kind == TR_OP_B || pass->kind == TR_OP_I) end_backward(p, pass->stage, pass->microbatch);
  if (pass->kind == TR_OP_X) end_backward(p, pass->back_stage, pass->back_microbatch);
}

static int blocked(const proof *p, int rank) { return p->next[rank] < p->schedule->begin[rank + 1]; }

static int waits_for(const proof *p, int rank) {
  input lacks = missing_input(p, &p->schedule->pass[p->next[rank]]);
  return tr_schedule_rank(p->schedule, lacks.stage, lacks.microbatch);
}

// Every blocked rank waits for a blocked one: p steps along lead into a circle.
static void append_circle(proof *p, int rank, tr_text *out) {
  enum { SHOWN = 16 };
  for (int i = 0; i < p->schedule->p; i++) rank = waits_for(p, rank);
  *p->fault = rank;
  tr_text_append(out, "; rank %d", rank);
  int at = rank, n = 0;
  do {
    at = waits_for(p, at);
    if (n++ < SHOWN) tr_text_append(out, " waits for rank %d%s", at, at == rank ? "" : ", which");
  } while (at != rank);
  if (n > SHOWN) tr_text_append(out, " goes on for %d ranks", n - SHOWN);
}

static tr_status stuck(proof *p) {
  enum { SHOWN = 16 };
  const tr_schedule *s = p->schedule;
  tr_text heads = {0};
  int n = 0, first = -1;
  for (int r = 0; r < s->p; r++) {
    if (!blocked(p, r)) continue;
    if (first < 0) first = r;
    const tr_pass *head = &s->pass[p->next[r]];
    input lacks = missing_input(p, head);
    if (n++ < SHOWN)
      tr_text_append(&heads, "%s rank %d at %s lacks %s of stage %d, micro-batch %d", n > 1 ? "," : "", r,
                     tr__pass_token(head).text, lacks.missing == OUT ? "the output" : "the gradient", lacks.stage,
                     lacks.microbatch);
  }
  if (n > SHOWN) tr_text_append(&heads, ", and %d more", n - SHOWN);
  append_circle(p, first, &heads);
  tr_status status = tr_error(TR_ERR_PLAN, "schedule %s cannot run to its end, no rank can go on:%s", s->name,
                              heads.data ? heads.data : "");
  tr_text_free(&heads);
  return status;
}

static tr_status check_runs(proof *p) {
  const tr_schedule *s = p->schedule;
  for (int r = s->p - 1; r >= 0; r--) {
    p->next[r] = s->begin[r];
    wake(p, r);
  }
  while (p->nawake) {
    int rank = p->awake[--p->nawake];
    p->is_awake[rank] = 0;
    while (blocked(p, rank) && !missing_input(p, &s->pass[p->next[rank]]).missing)
      end_pass(p, &s->pass[p->next[rank]++]);
  }
  for (int r = 0; r < s->p; r++)
    if (blocked(p, r)) return stuck(p);
  return TR_OK;
}

static tr_status prove(proof *p) {
  TR_TRY(check_lists(p));
  TR_TRY(check_complete(p));
  return check_runs(p);
}

tr_status tr__schedule_prove(const tr_schedule *schedule, int *fault) {
  *fault = -1;
  TR_TRY(check_shape(schedule));
  size_t ranks = (size_t)schedule->p;
  proof p = {.schedule = schedule,
             .state = calloc((size_t)schedule->S, (size_t)schedule->m),
             .next = calloc(ranks, sizeof *p.next),
             .awake = calloc(ranks, sizeof *p.awake),
             .is_awake = calloc(ranks, 1),
             .fault = fault};
  tr_status status = TR_OK;
  if (p.state && p.next && p.awake && p.is_awake)
    status = prove(&p);
  else
    status = tr_error(TR_ERR_MEMORY, "no memory to check schedule %s", schedule->name);
  free(p.state);
  free(p.next);
  free(p.awake);
  free(p.is_awake);
  return status;
}

tr_status tr_schedule_check(const tr_schedule *schedule) {
  int fault;
  return tr__schedule_prove(schedule, &fault);
}
