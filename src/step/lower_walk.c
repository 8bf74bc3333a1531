// SPDX-License-Identifier: MIT
// Which messages a rank receives, in which order, and where in its list.
//
// All ranks' lists are walked at once, one pass per rank in turn; a pass is taken when what it needs is there. At the moment
// when it is taken, its message is appended to the lists of both ends. So all lists are cuts of one global order, in which
// every SEND stands beside its RECV: the earliest pair that is not done is at the head of both lists, and nothing waits for
// ever, even if nothing holds a message that has not been received.
//
// Beside the place in that order, which is one of many, goes what holds in all of them: how many passes of the receiver have
// surely ended before a message is sent, because the pass that makes it depends on them. It is handed on with every message.
#include "step/lower_internal.h"
#include <stdlib.h>

typedef struct walk {
  const tr_schedule *schedule;
  int observer;
  uint32_t *next;    // [p] passes taken
  uint32_t *known;   // [p] passes of the observer that have ended before the rank goes on
  uint32_t *made[2]; // [S][m] activations and gradients: 1 + `known` of who made it, 0: not there yet
  uint32_t *filled;  // [p] messages so far
  uint64_t *awake;   // [p] bits: ranks whose next pass may have what it needs
  tr__arrivals *out;
} walk;

int tr__pass_halves(const tr_pass *pass, tr_pass half[2]) {
  half[0] = *pass;
  if (pass->kind != TR_OP_X) return 1;
  half[0].kind = TR_OP_F;
  half[1] = (tr_pass){.kind = TR_OP_B, .stage = pass->back_stage, .microbatch = pass->back_microbatch};
  return 2;
}

static size_t cell(const tr_schedule *s, int stage, int microbatch) {
  return (size_t)stage * (size_t)s->m + (size_t)microbatch;
}

static int is_backward(const tr_pass *half) { return half->kind == TR_OP_B || half->kind == TR_OP_I; }

// What a pass waits for from another stage; NULL: nothing.
static const uint32_t *input_of(const walk *w, const tr_pass *half) {
  const tr_schedule *s = w->schedule;
  if (half->kind == TR_OP_F && half->stage > 0) return &w->made[0][cell(s, half->stage - 1, half->microbatch)];
  if (is_backward(half) && half->stage + 1 < s->S) return &w->made[1][cell(s, half->stage + 1, half->microbatch)];
  return NULL;
}

// The stage that waits for what a pass makes; -1: none.
static int output_of(const tr_schedule *s, const tr_pass *half) {
  if (half->kind == TR_OP_F) return half->stage + 1 < s->S ? half->stage + 1 : -1;
  return is_backward(half) ? half->stage - 1 : -1;
}

// The rank that receives what a pass of `rank` makes; -1: none.
static int receiver_of(const tr_schedule *s, const tr_pass *half, int rank) {
  int to = output_of(s, half), peer = to < 0 ? rank : tr_schedule_rank(s, to, half->microbatch);
  return peer == rank ? -1 : peer;
}

static void wake(walk *w, int rank) { w->awake[rank / 64] |= UINT64_C(1) << rank % 64; }

static void make(walk *w, int rank, const tr_pass *half) {
  const tr_schedule *s = w->schedule;
  int forward = half->kind == TR_OP_F, peer = receiver_of(s, half, rank);
  if (output_of(s, half) < 0) return;
  wake(w, tr_schedule_rank(s, output_of(s, half), half->microbatch));
  w->made[!forward][cell(s, half->stage, half->microbatch)] = 1 + w->known[rank];
  if (peer < 0 || (w->observer >= 0 && peer != w->observer)) return;
  w->out->message[w->out->begin[peer] + w->filled[peer]++] =
      (tr__message){.before = w->next[peer],
                    .known = w->known[rank],
                    .microbatch = half->microbatch,
                    .stage = (uint16_t)(forward ? half->stage : half->stage - 1),
                    .role = forward ? TR_ROLE_ACTIVATION : TR_ROLE_DERIVATIVE,
                    .direction = (uint8_t)tr_schedule_direction(s, half->microbatch)};
}

static int take(walk *w, int rank) {
  const tr_schedule *s = w->schedule;
  uint32_t at = s->begin[rank] + w->next[rank];
  if (at == s->begin[rank + 1]) return 0;
  tr_pass half[2];
  int n = tr__pass_halves(&s->pass[at], half);
  for (int h = 0; h < n; h++) {
    const uint32_t *input = input_of(w, &half[h]);
    if (input && *input == 0) return 0;
  }
  for (int h = 0; h < n; h++) {
    const uint32_t *input = input_of(w, &half[h]);
    if (input && *input - 1 > w->known[rank]) w->known[rank] = *input - 1;
  }
  w->next[rank]++;
  // One half of an X may send before the other has ended.
  if (rank == w->observer) w->known[rank] = w->next[rank] - (n == 2);
  for (int h = 0; h < n; h++) make(w, rank, &half[h]);
  if (rank == w->observer) w->known[rank] = w->next[rank];
  return 1;
}

static void count_messages(const tr_schedule *s, int observer, uint32_t *begin) {
  for (int r = 0; r < s->p; r++)
    for (uint32_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
      tr_pass half[2];
      for (int h = 0, n = tr__pass_halves(&s->pass[i], half); h < n; h++) {
        int peer = receiver_of(s, &half[h], r);
        if (peer >= 0 && (observer < 0 || peer == observer)) begin[peer + 1]++;
      }
    }
  for (int r = 0; r < s->p; r++) begin[r + 1] += begin[r];
}

// In turn; who has to wait is passed over until somebody has made what it waits for.
static void walk_all(walk *w) {
  const int p = w->schedule->p;
  for (int r = 0; r < p; r++) wake(w, r);
  for (int moved = 1; moved;) {
    moved = 0;
    for (int r = 0; r < p; r++) {
      const uint64_t bit = UINT64_C(1) << r % 64;
      if (w->awake[r / 64] == 0) {
        r |= 63;
      } else if (w->awake[r / 64] & bit) {
        if (take(w, r))
          moved = 1;
        else
          w->awake[r / 64] &= ~bit;
      }
    }
  }
}

tr_status tr__walk(const tr_schedule *schedule, int observer, tr__arrivals *out) {
  size_t p = (size_t)schedule->p, cells = (size_t)schedule->S * (size_t)schedule->m;
  walk w = {.schedule = schedule, .observer = observer, .out = out};
  w.next = calloc(3 * p + 2 * cells, sizeof *w.next);
  w.awake = calloc(p / 64 + 1, sizeof *w.awake);
  out->begin = calloc(p + 1, sizeof *out->begin);
  out->message = NULL;
  if (out->begin) count_messages(schedule, observer, out->begin);
  if (out->begin) out->message = malloc(sizeof *out->message * ((size_t)out->begin[p] + 1));
  if (w.next && w.awake && out->message) {
    w.known = w.next + p;
    w.filled = w.known + p;
    w.made[0] = w.filled + p;
    w.made[1] = w.made[0] + cells;
    walk_all(&w);
  }
  int failed = !w.next || !w.awake || !out->message;
  free(w.next);
  free(w.awake);
  if (!failed) return TR_OK;
  free(out->begin);
  free(out->message);
  return tr_error(TR_ERR_MEMORY, "no memory to lower schedule %s", schedule->name);
}
