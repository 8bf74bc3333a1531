// SPDX-License-Identifier: MIT
// Which chunks and rings a rank has, and which slot of each everything takes.
//
// What begins and ends with passes of the rank (copies of lifetime classes, slots of rings without a peer) is taken in list
// order, always the lowest free one: as many are used as are alive at once. What a peer sends is there as soon as the peer is
// done, so a slot must have been read for the last time before. `tr__message.known` tells which passes have surely ended
// then: slots given by that make no peer wait, ever. Where this takes many more than the walk does (GPipe: a rank that is late
// would have to hold all gradients), they are given by `before`, the order of the walk, with two slots to spare.
#include "step/lower_internal.h"
#include <stdlib.h>
#include <string.h>

enum { SPARE = 2, LEAVING = 2 };

// ---- chunks and rings

// Chunks ascend by stage.
int tr__lower_chunk(const tr_program *program, int stage, int direction) {
  const tr_chunk *chunk = program->chunk;
  int c = 0;
  for (int end = program->nchunk; c < end;) {
    const int middle = (c + end) / 2;
    if (chunk[middle].stage < stage)
      c = middle + 1;
    else
      end = middle;
  }
  while (c < program->nchunk && chunk[c].stage == stage && chunk[c].direction != direction) c++;
  return c < program->nchunk && chunk[c].stage == stage ? c : -1;
}

// The chunk in front of the boundary has it, or the one behind.
int tr__lower_ring(const tr_program *program, int stage, int role, int direction) {
  const int front = tr__lower_chunk(program, stage, direction), forward = role == TR_ROLE_ACTIVATION;
  const int behind = front < 0 ? tr__lower_chunk(program, stage + 1, direction) : -1;
  int r = -1;
  if (front >= 0) r = forward ? program->chunk[front].ring_out : program->chunk[front].ring_din;
  if (behind >= 0) r = forward ? program->chunk[behind].ring_in : program->chunk[behind].ring_dout;
  if (r < 0 || r >= program->nring) return -1;
  const tr_ring *ring = &program->ring[r];
  return ring->stage == stage && ring->role == role && ring->direction == direction ? r : -1;
}

// The ring behind `stage` on the side of this rank, which has a chunk next to it; `other` is the stage beyond.
static int add_ring(const tr_schedule *s, tr_program *p, int stage, tr_op_role role, int direction, int other) {
  if (other < 0 || other == s->S) return -1;
  int ring = tr__lower_ring(p, stage, role, direction);
  if (ring >= 0) return ring;
  int peer = tr_schedule_rank(s, other, direction ? s->m - 1 : 0);
  p->ring[p->nring] = (tr_ring){.stage = (uint16_t)stage,
                                .role = (uint8_t)role,
                                .direction = (uint8_t)direction,
                                .peer = peer == p->rank ? -1 : peer};
  return p->nring++;
}

static void add_chunk(const tr_schedule *s, tr_program *p, int stage, int direction) {
  tr_chunk chunk = {.stage = (uint16_t)stage, .direction = (uint8_t)direction};
  chunk.ring_in = add_ring(s, p, stage - 1, TR_ROLE_ACTIVATION, direction, stage - 1);
  chunk.ring_out = add_ring(s, p, stage, TR_ROLE_ACTIVATION, direction, stage + 1);
  chunk.ring_din = add_ring(s, p, stage, TR_ROLE_DERIVATIVE, direction, stage + 1);
  chunk.ring_dout = add_ring(s, p, stage - 1, TR_ROLE_DERIVATIVE, direction, stage - 1);
  p->chunk[p->nchunk++] = chunk;
}

tr_status tr__lower_places(const tr_schedule *schedule, int rank, tr_program *out) {
  int *stage = malloc(sizeof *stage * (size_t)schedule->v);
  out->chunk = malloc(sizeof *out->chunk * (size_t)schedule->v);
  out->ring = malloc(sizeof *out->ring * 4 * (size_t)schedule->v);
  out->p = schedule->p;
  out->rank = rank;
  out->microbatches = schedule->m;
  if (!stage || !out->chunk || !out->ring) {
    free(stage);
    return tr_error(TR_ERR_MEMORY, "no memory for %d stages of a rank", schedule->v);
  }
  int n = tr_schedule_stages(schedule, rank, stage);
  for (int c = 0; c < n; c++) add_chunk(schedule, out, stage[c], schedule->map == TR_STAGES_BOTH && stage[c] != rank);
  free(stage);
  return TR_OK;
}

tr_step_use tr__lower_use(const tr_step_model *model, const tr_step_options *options, int chunk) {
  if (model && model->use && options->nrecompute == 0) return model->use[chunk];
  return (tr_step_use){TR_OP_W, TR_OP_W};
}

// ---- what begins and ends with passes

typedef struct pool {
  unsigned char *used;
  int *peak;
} pool;

// Of one micro-batch in one chunk: slots, and the pass that reads for the last time what entered it.
typedef struct alive {
  int16_t in, din, fi, fw, iw;
  uint32_t read[2];
} alive;

typedef struct slots {
  tr__lowering *low;
  alive *alive; // [chunks][micro-batches]
  pool *pool;   // [rings + 3 chunks]
  unsigned char *used;
} slots;

static int16_t pool_take(const pool *p) {
  int slot = 0;
  while (p->used[slot]) slot++;
  p->used[slot] = 1;
  if (slot >= *p->peak) *p->peak = slot + 1;
  return (int16_t)slot;
}

static void pool_give(const pool *p, int16_t slot) { p->used[slot] = 0; }

static alive *alive_of(const slots *s, int chunk, int microbatch) {
  return &s->alive[(size_t)chunk * (size_t)s->low->program->microbatches + (size_t)microbatch];
}

static const pool *class_pool(const slots *s, int chunk, int class) {
  return &s->pool[s->low->program->nring + 3 * chunk + class];
}

static int is_local(const slots *s, int ring) { return ring >= 0 && s->low->program->ring[ring].peer < 0; }

// Takes a slot of a ring without a peer, for the chunk beyond it, which reads there.
static int16_t hand_over(const slots *s, const tr__half *half, int ring) {
  if (!is_local(s, ring)) return -1;
  const tr_program *p = s->low->program;
  int to = p->ring[ring].stage + (p->ring[ring].role == TR_ROLE_ACTIVATION);
  alive *reader = alive_of(s, tr__lower_chunk(p, to, p->ring[ring].direction), half->microbatch);
  int16_t slot = pool_take(&s->pool[ring]);
  if (p->ring[ring].role == TR_ROLE_ACTIVATION)
    reader->in = slot;
  else
    reader->din = slot;
  return slot;
}

static void take_slots(const slots *s, tr__half *half) {
  const tr_chunk *chunk = &s->low->program->chunk[half->chunk];
  alive *a = alive_of(s, half->chunk, half->microbatch);
  if (half->kind == TR_OP_F) {
    a->fi = pool_take(class_pool(s, half->chunk, 0));
    a->fw = pool_take(class_pool(s, half->chunk, 1));
    half->slot_out = hand_over(s, half, chunk->ring_out);
  }
  if (half->kind == TR_OP_I) a->iw = pool_take(class_pool(s, half->chunk, 2));
  if (half->kind == TR_OP_B || half->kind == TR_OP_I) half->slot_dout = hand_over(s, half, chunk->ring_dout);
}

static void give_slots(const slots *s, const tr__half *half) {
  const tr_chunk *chunk = &s->low->program->chunk[half->chunk];
  alive *a = alive_of(s, half->chunk, half->microbatch);
  tr_step_use use = tr__lower_use(s->low->model, s->low->options, half->chunk);
  int kind = half->kind, forward = kind == TR_OP_F;
  if (kind == TR_OP_R) return;
  if (kind == TR_OP_B || kind == TR_OP_I) pool_give(class_pool(s, half->chunk, 0), a->fi);
  if (kind == TR_OP_B || kind == TR_OP_W) pool_give(class_pool(s, half->chunk, 1), a->fw);
  if (kind == TR_OP_W) pool_give(class_pool(s, half->chunk, 2), a->iw);
  if (tr__reads_last(kind, use.activation)) {
    a->read[0] = half->entry + 1;
    if (is_local(s, chunk->ring_in)) pool_give(&s->pool[chunk->ring_in], a->in);
  }
  if (!forward && tr__reads_last(kind, use.gradient)) {
    a->read[1] = half->entry + 1;
    if (is_local(s, chunk->ring_din)) pool_give(&s->pool[chunk->ring_din], a->din);
  }
}

static void walk_halves(const slots *s) {
  tr__lowering *low = s->low;
  for (uint32_t i = 0, end; i < low->nhalf; i = end) {
    for (end = i; end < low->nhalf && low->half[end].entry == low->half[i].entry; end++)
      take_slots(s, &low->half[end]);
    for (uint32_t h = i; h < end; h++) give_slots(s, &low->half[h]);
  }
}

// ---- what peers send and receive

static uint32_t last_read(const slots *s, const tr__message *m) {
  int forward = m->role == TR_ROLE_ACTIVATION;
  int chunk = tr__lower_chunk(s->low->program, m->stage + forward, m->direction);
  return alive_of(s, chunk, m->microbatch)->read[!forward];
}

// Gives the messages of a ring slots below `most`, of the free ones that which has been free for longest (for as few as
// possible: most 0, the lowest). Returns how many it took. `until` is scratch, [micro-batches].
static int deal(const slots *s, int ring, int by_known, int most, uint32_t *until) {
  const tr__lowering *low = s->low;
  int n = 0;
  for (uint32_t i = 0; i < low->nmessage; i++) {
    tr__message *m = &low->message[i];
    if (m->ring != ring) continue;
    uint32_t ended = by_known ? m->known : m->before;
    int slot = -1;
    for (int k = 0; k < n; k++)
      if (until[k] <= ended && (slot < 0 || (most > 0 && until[k] < until[slot]))) slot = k;
    if (slot < 0 || n < most) slot = n++;
    until[slot] = last_read(s, m);
    m->slot = (int16_t)slot;
  }
  return n;
}

static void deal_entering(const slots *s, int ring, uint32_t *until) {
  int known = deal(s, ring, 1, 0, until), least = deal(s, ring, 0, 0, until), by_known = known <= least + SPARE;
  s->low->program->ring[ring].slots = deal(s, ring, by_known, by_known ? known : least + SPARE, until);
}

// Every message has a slot of its own.
static void number_entering(const tr__lowering *low) {
  for (uint32_t i = 0; i < low->nmessage; i++)
    low->message[i].slot = (int16_t)low->program->ring[low->message[i].ring].slots++;
}

static void note_entering(const slots *s) {
  const tr_program *p = s->low->program;
  for (uint32_t i = 0; i < s->low->nmessage; i++) {
    const tr__message *m = &s->low->message[i];
    int forward = m->role == TR_ROLE_ACTIVATION;
    alive *a = alive_of(s, tr__lower_chunk(p, m->stage + forward, m->direction), m->microbatch);
    if (forward)
      a->in = m->slot;
    else
      a->din = m->slot;
  }
}

static int16_t leave(const tr__lowering *low, int ring, uint32_t *count) {
  uint32_t k = count[ring]++, n = low->model ? LEAVING : (uint32_t)low->program->microbatches;
  int32_t *taken = &low->program->ring[ring].slots;
  if (k < n) *taken = (int32_t)k + 1;
  return (int16_t)(k % n);
}

// Every half gets what it reads and writes; by now all slots are known.
static void fill_halves(const slots *s, uint32_t *count) {
  tr__lowering *low = s->low;
  const tr_program *p = low->program;
  memset(count, 0, sizeof *count * (size_t)p->nring);
  for (uint32_t i = 0; i < low->nhalf; i++) {
    tr__half *h = &low->half[i];
    const tr_chunk *chunk = &p->chunk[h->chunk];
    const alive *a = alive_of(s, h->chunk, h->microbatch);
    tr_step_use use = tr__lower_use(low->model, low->options, h->chunk);
    int kind = h->kind, backward = kind == TR_OP_B || kind == TR_OP_I;
    if (tr__reads(kind, use.activation)) h->slot_in = a->in;
    if (kind != TR_OP_F && kind != TR_OP_R && tr__reads(kind, use.gradient)) h->slot_din = a->din;
    if (kind == TR_OP_F && chunk->ring_out >= 0 && !is_local(s, chunk->ring_out))
      h->slot_out = leave(low, chunk->ring_out, count);
    if (backward && chunk->ring_dout >= 0 && !is_local(s, chunk->ring_dout))
      h->slot_dout = leave(low, chunk->ring_dout, count);
    h->fi = kind == TR_OP_W || (kind == TR_OP_R && low->split) ? -1 : a->fi;
    h->fw = a->fw;
    h->iw = kind == TR_OP_I || kind == TR_OP_W ? a->iw : -1;
  }
}

// ---- all of it

static tr_status allocate(slots *s) {
  const tr_program *p = s->low->program;
  size_t mb = (size_t)p->microbatches, npool = (size_t)p->nring + 3 * (size_t)p->nchunk,
         ncell = (size_t)p->nchunk * mb;
  s->alive = malloc(sizeof *s->alive * (ncell + 1));
  s->pool = malloc(sizeof *s->pool * (npool + 1));
  s->used = calloc(npool * mb + 1, 1);
  if (!s->alive || !s->pool || !s->used) return tr_error(TR_ERR_MEMORY, "no memory for the slots of a step program");
  for (size_t i = 0; i < ncell; i++) s->alive[i] = (alive){.in = -1, .din = -1, .fi = -1, .fw = -1, .iw = -1};
  for (int i = 0; i < p->nring; i++) s->pool[i].peak = &p->ring[i].slots;
  for (int c = 0; c < p->nchunk; c++) {
    int *peak[] = {&p->chunk[c].slots_fi, &p->chunk[c].slots_fw, &p->chunk[c].slots_iw};
    for (int k = 0; k < 3; k++) s->pool[p->nring + 3 * c + k].peak = peak[k];
  }
  for (size_t i = 0; i < npool; i++) s->pool[i].used = s->used + i * mb;
  return TR_OK;
}

tr_status tr__lower_slots(tr__lowering *low) {
  slots s = {.low = low};
  tr_program *p = low->program;
  size_t nscratch = (size_t)(p->nring > p->microbatches ? p->nring : p->microbatches);
  uint32_t *scratch = malloc(sizeof *scratch * (nscratch + 1));
  tr_status status = scratch ? allocate(&s) : tr_error(TR_ERR_MEMORY, "no memory for the slots of a step program");
  if (status == TR_OK) {
    walk_halves(&s);
    for (int ring = 0; low->model && ring < p->nring; ring++)
      if (p->ring[ring].peer >= 0) deal_entering(&s, ring, scratch);
    if (!low->model) number_entering(low);
    note_entering(&s);
    fill_halves(&s, scratch);
    p->slots_fi = p->chunk[0].slots_fi;
    p->slots_fw = p->chunk[0].slots_fw;
    p->slots_iw = p->chunk[0].slots_iw;
  }
  free(scratch);
  free(s.alive);
  free(s.pool);
  free(s.used);
  return status;
}
