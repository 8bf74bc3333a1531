// SPDX-License-Identifier: MIT
// Which messages a rank receives, in which order, and where in its list.
//
// All ranks' lists are walked at once, one pass per rank in turn; a pass is taken when what it needs is there. At the moment
// when it is taken, its message is appended to the lists of both ends. So all lists are cuts of one global order, in which
// every SEND stands beside its RECV: the earliest pair that is not done is at the head of both lists, and nothing waits for
// ever, even if nothing holds a message that has not been received.
//
// Beside the place in that order, which is one of many, goes what holds in all of them: how many passes of the receiver have
// surely ended before a message is sent, because the pass that makes it depends on them. Every rank has such a number for each
// receiver, hands them on with every message, and takes the larger of its own and those that come: passes x receivers steps.
#include "step/lower_internal.h"
#include <stdlib.h>
#include <string.h>

typedef struct walk {
  const tr_schedule *schedule;
  int first, width; // receivers: ranks `first` .. `first` + `width` - 1; 0: all, of whom nothing is counted
  uint32_t *next;   // [p] passes taken
  uint32_t *known;  // [p][width] passes of each receiver that have ended before the rank goes on
  // [S][m] activations and gradients: 0: not there; 1 + where in `handed` is what its maker knew.
  uint32_t *made[2];
  uint32_t *handed; // [nhanded][width] on their way; each is taken once
  uint32_t *unused; // [nunused] places in it that are free again
  uint32_t nhanded, room, nunused;
  uint32_t *filled; // [p] messages so far
  uint64_t *awake;  // [p] bits: ranks whose next pass may have what it needs
  int failed;
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
static uint32_t *input_of(const walk *w, const tr_pass *half) {
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

// ---- what is known of receivers

static uint32_t *known_by(const walk *w, int rank) { return w->known + (size_t)rank * (size_t)w->width; }
static uint32_t *handed_at(const walk *w, uint32_t place) { return w->handed + (size_t)place * (size_t)w->width; }

static int is_receiver(const walk *w, int rank) {
  return w->width == 0 || (rank >= w->first && rank < w->first + w->width);
}

static void know(const walk *w, int rank, uint32_t passes) {
  if (w->width > 0 && is_receiver(w, rank)) known_by(w, rank)[rank - w->first] = passes;
}

static int grow(walk *w) {
  const uint32_t room = w->room ? 2 * w->room : 64;
  uint32_t *handed = realloc(w->handed, sizeof *handed * room * (size_t)w->width);
  if (handed) w->handed = handed;
  uint32_t *unused = handed ? realloc(w->unused, sizeof *unused * room) : NULL;
  if (!unused) return 0;
  w->unused = unused;
  w->room = room;
  return 1;
}

// Returns what `made` says of it.
static uint32_t hand_on(walk *w, int rank) {
  if (w->width == 0) return 1;
  if (w->nunused == 0 && w->nhanded == w->room && !grow(w)) {
    w->failed = 1;
    return 0;
  }
  const uint32_t place = w->nunused ? w->unused[--w->nunused] : w->nhanded++;
  memcpy(handed_at(w, place), known_by(w, rank), sizeof *w->known * (size_t)w->width);
  return 1 + place;
}

static void learn(walk *w, int rank, uint32_t made) {
  if (w->width == 0) return;
  uint32_t *own = known_by(w, rank);
  const uint32_t *theirs = handed_at(w, made - 1);
  for (int r = 0; r < w->width; r++) own[r] = theirs[r] > own[r] ? theirs[r] : own[r];
  w->unused[w->nunused++] = made - 1;
}

// ---- passes

static void make(walk *w, int rank, const tr_pass *half) {
  const tr_schedule *s = w->schedule;
  int forward = half->kind == TR_OP_F, peer = receiver_of(s, half, rank);
  if (output_of(s, half) < 0) return;
  wake(w, tr_schedule_rank(s, output_of(s, half), half->microbatch));
  w->made[!forward][cell(s, half->stage, half->microbatch)] = hand_on(w, rank);
  if (peer < 0 || !is_receiver(w, peer)) return;
  w->out->message[w->out->begin[peer] + w->filled[peer]++] =
      (tr__message){.before = w->next[peer],
                    .known = w->width ? known_by(w, rank)[peer - w->first] : 0,
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
    if (input) learn(w, rank, *input);
  }
  w->next[rank]++;
  know(w, rank, w->next[rank] - (n == 2)); // one half of an X may send before the other has ended
  for (int h = 0; h < n; h++) make(w, rank, &half[h]);
  know(w, rank, w->next[rank]);
  return 1;
}

static void count_messages(const walk *w, uint32_t *begin) {
  const tr_schedule *s = w->schedule;
  for (int r = 0; r < s->p; r++)
    for (uint32_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
      tr_pass half[2];
      for (int h = 0, n = tr__pass_halves(&s->pass[i], half); h < n; h++) {
        int peer = receiver_of(s, &half[h], r);
        if (peer >= 0 && is_receiver(w, peer)) begin[peer + 1]++;
      }
    }
  for (int r = 0; r < s->p; r++) begin[r + 1] += begin[r];
}

// In turn; who has to wait is passed over until somebody has made what it waits for.
static void walk_all(walk *w) {
  const int p = w->schedule->p;
  for (int r = 0; r < p; r++) wake(w, r);
  for (int moved = 1; moved && !w->failed;) {
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

static void prepare(walk *w) {
  const tr_schedule *s = w->schedule;
  size_t p = (size_t)s->p, cells = (size_t)s->S * (size_t)s->m, width = (size_t)w->width;
  w->next = calloc((2 + width) * p + 2 * cells, sizeof *w->next);
  w->awake = calloc(p / 64 + 1, sizeof *w->awake);
  w->out->begin = calloc(p + 1, sizeof *w->out->begin);
  if (w->out->begin) count_messages(w, w->out->begin);
  if (w->out->begin) w->out->message = malloc(sizeof *w->out->message * ((size_t)w->out->begin[p] + 1));
  w->failed = !w->next || !w->awake || !w->out->message;
  if (w->failed) return;
  w->filled = w->next + p;
  w->known = w->filled + p;
  w->made[0] = w->known + width * p;
  w->made[1] = w->made[0] + cells;
}

tr_status tr__walk(const tr_schedule *schedule, int first, int width, tr__arrivals *out) {
  walk w = {.schedule = schedule, .first = first, .width = width, .out = out};
  *out = (tr__arrivals){0};
  prepare(&w);
  if (!w.failed) walk_all(&w);
  free(w.next);
  free(w.awake);
  free(w.handed);
  free(w.unused);
  if (!w.failed) return TR_OK;
  tr__arrivals_free(out);
  return tr_error(TR_ERR_MEMORY, "no memory to lower schedule %s", schedule->name);
}

void tr__arrivals_free(tr__arrivals *arrivals) {
  free(arrivals->begin);
  free(arrivals->message);
  *arrivals = (tr__arrivals){0};
}
