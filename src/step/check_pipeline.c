// SPDX-License-Identifier: MIT
// Static proof of the programs of all ranks of a pipeline together: both ends of every channel have the same messages in
// the same order, and nothing waits for ever. The queues of all ranks are walked as far as they go. That what can start
// does start takes nothing from anybody, so the order of the walk does not matter, and where it stops all executions stop.
#include "step/check_internal.h"
#include "step/lower_internal.h"
#include <stdlib.h>

// One end of a channel: its messages in order.
typedef struct end {
  uint32_t *op, n;
  uint32_t started;
  struct end *other;
} end;

typedef struct member {
  const tr_program *program;
  end *end;             // [nring]
  uint32_t *place;      // [nop] of messages: number in their channel
  uint32_t *collective; // those of the communication lane, in order
  uint32_t *exchange;   // pieces that exchange, in order
  unsigned char *done;  // [nop] of all but messages
  uint32_t ncollective, started, nexchange, exchanged, computed, sums[TR_ROLE_DERIVATIVE + 1];
} member;

typedef struct gang {
  member *rank;
  int p, capacity;
} gang;

// ---- channels

static tr_status unlike(const member *a, uint32_t i, const member *b, uint32_t j) {
  const tr_op *own = &a->program->op[i], *other = &b->program->op[j];
  return tr_error(TR_ERR_PLAN,
                  "step program: rank %d, operation %u sends micro-batch %d of stage %d, where rank %d, operation %u "
                  "receives micro-batch %d of stage %d",
                  a->program->rank, i, own->microbatch, own->stage, b->program->rank, j, other->microbatch,
                  other->stage);
}

static tr_status match(const member *a, const end *sends, const member *b, const end *receives) {
  for (uint32_t k = 0; k < sends->n && k < receives->n; k++) {
    const tr_op *own = &a->program->op[sends->op[k]], *other = &b->program->op[receives->op[k]];
    if (own->microbatch != other->microbatch || own->stage != other->stage || own->role != other->role)
      return unlike(a, sends->op[k], b, receives->op[k]);
  }
  if (sends->n == receives->n) return TR_OK;
  const member *more = sends->n > receives->n ? a : b;
  const end *longer = sends->n > receives->n ? sends : receives, *shorter = sends->n > receives->n ? receives : sends;
  return tr__step_broken(more->program, longer->op[shorter->n], "has no partner at its peer");
}

static tr_status join_channel(const gang *g, int r, int ring) {
  const tr_program *p = g->rank[r].program;
  const tr_ring *own = &p->ring[ring];
  end *e = &g->rank[r].end[ring];
  if (own->peer < 0) return TR_OK;
  const member *peer = own->peer < g->p ? &g->rank[own->peer] : NULL;
  int there = peer ? tr__lower_ring(peer->program, own->stage, own->role, own->direction) : -1;
  if (there < 0 || peer->program->ring[there].peer != r)
    return tr_error(TR_ERR_PLAN, "step program: rank %d has a channel behind stage %d that rank %d does not have", r,
                    own->stage, own->peer);
  e->other = &peer->end[there];
  for (uint32_t k = 0; k < e->n && k < e->other->n; k++)
    if (p->op[e->op[k]].kind == peer->program->op[e->other->op[k]].kind)
      return tr__step_broken(p, e->op[k], "does what its partner does too");
  if (e->n == 0 || p->op[e->op[0]].kind == TR_OP_SEND) return match(&g->rank[r], e, peer, e->other);
  return TR_OK;
}

// ---- walking

// What a collective over the pipeline needs: as many of its kind started on every rank that takes part.
static int all_started(const gang *g, int role, uint32_t n) {
  for (int r = 0; r < g->p; r++) {
    const member *m = &g->rank[r];
    uint32_t started = 0, all = 0;
    for (uint32_t k = 0; k < m->ncollective; k++) {
      const tr_op *op = &m->program->op[m->collective[k]];
      if (op->kind != TR_OP_REDUCE || op->role != role) continue;
      all++;
      started += k < m->started;
    }
    if (all > 0 && started < n) return 0;
  }
  return 1;
}

static int over_pipeline(const tr_op *op) {
  return op->kind == TR_OP_REDUCE &&
         (op->role == TR_ROLE_LOSS || op->role == TR_ROLE_SQUARES || op->role == TR_ROLE_TIED);
}

static int is_done(const gang *g, const member *m, uint32_t i) {
  const tr_op *op = &m->program->op[i];
  if (!tr__is_message(op)) return m->done[i];
  const end *e = &m->end[op->ring];
  uint32_t k = m->place[i];
  if (k >= e->started) return 0;
  if (op->kind == TR_OP_RECV) return k < e->other->started;
  return g->capacity < 0 || k < e->other->started + (uint32_t)g->capacity;
}

static int is_ready(const gang *g, const member *m, uint32_t i) {
  const tr_program *p = m->program;
  for (uint32_t e = p->op[i].edge_begin; e < p->op[i].edge_end; e++)
    if (p->edge[e].step_offset == 0 && !is_done(g, m, p->edge[e].op)) return 0;
  return 1;
}

// A collective over the pipeline ends with the last one to start.
static void start_collective(const gang *g, member *m) {
  uint32_t i = m->collective[m->started++];
  const tr_op *op = &m->program->op[i];
  if (!over_pipeline(op)) {
    m->done[i] = 1;
    return;
  }
  uint32_t n = ++m->sums[op->role];
  if (!all_started(g, op->role, n)) return;
  for (int r = 0; r < g->p; r++) {
    member *other = &g->rank[r];
    uint32_t count = 0;
    for (uint32_t k = 0; k < other->started; k++) {
      const tr_op *sum = &other->program->op[other->collective[k]];
      if (sum->kind == TR_OP_REDUCE && sum->role == op->role && ++count == n) other->done[other->collective[k]] = 1;
    }
  }
}

static int advance(const gang *g, member *m) {
  const tr_program *p = m->program;
  int moved = 0;
  for (; m->computed < p->nop; m->computed++) {
    if (p->op[m->computed].lane != TR_LANE_COMPUTE) continue;
    if (!is_ready(g, m, m->computed)) break;
    m->done[m->computed] = 1;
    moved = 1;
  }
  for (; m->started < m->ncollective && is_ready(g, m, m->collective[m->started]); moved = 1) start_collective(g, m);
  for (; m->exchanged < m->nexchange && is_ready(g, m, m->exchange[m->exchanged]); moved = 1)
    m->done[m->exchange[m->exchanged++]] = 1;
  for (int k = 0; k < p->nring; k++)
    for (end *e = &m->end[k]; e->started < e->n && is_ready(g, m, e->op[e->started]); moved = 1) e->started++;
  return moved;
}

// ---- who waits for what

static int blocked_op(const gang *g, const member *m, uint32_t *out) {
  const tr_program *p = m->program;
  for (*out = m->computed; *out < p->nop; ++*out)
    if (p->op[*out].lane == TR_LANE_COMPUTE) return 1;
  if (m->started < m->ncollective || m->exchanged < m->nexchange) {
    *out = m->started < m->ncollective ? m->collective[m->started] : m->exchange[m->exchanged];
    return 1;
  }
  for (uint32_t i = 0; i < p->nop; i++)
    if (!is_done(g, m, i)) {
      *out = i;
      return 1;
    }
  return 0;
}

static void append_op(tr_text *text, const tr_program *p, uint32_t i) {
  const tr_op *op = &p->op[i];
  tr_text_append(text, "%s", tr_op_name((tr_op_kind)op->kind));
  if (op->microbatch >= 0) tr_text_append(text, " of stage %d, micro-batch %d", op->stage, op->microbatch);
}

static void append_blocked(tr_text *text, const gang *g, const member *m) {
  const tr_program *p = m->program;
  uint32_t i;
  if (!blocked_op(g, m, &i)) return;
  tr_text_append(text, "; rank %d at operation %u (", p->rank, i);
  append_op(text, p, i);
  tr_text_append(text, ")");
  for (uint32_t e = p->op[i].edge_begin; e < p->op[i].edge_end; e++) {
    uint32_t before = p->edge[e].op;
    if (p->edge[e].step_offset || is_done(g, m, before)) continue;
    tr_text_append(text, " waits for %u (", before);
    append_op(text, p, before);
    if (tr__is_message(&p->op[before])) tr_text_append(text, ", rank %d", p->op[before].peer);
    tr_text_append(text, ")");
    return;
  }
  tr_text_append(text, " waits for its partners");
}

static tr_status deadlock(const gang *g) {
  tr_text text = {0};
  tr_text_append(&text, "step program: deadlock with channels that hold %d messages", g->capacity);
  for (int r = 0; r < g->p; r++) append_blocked(&text, g, &g->rank[r]);
  tr_status status = tr_error(TR_ERR_PLAN, "%s", text.data ? text.data : "step program: deadlock");
  tr_text_free(&text);
  return status;
}

static tr_status walk(const gang *g) {
  uint32_t left;
  for (int moved = 1; moved;) {
    moved = 0;
    for (int r = 0; r < g->p; r++) moved |= advance(g, &g->rank[r]);
  }
  for (int r = 0; r < g->p; r++)
    if (blocked_op(g, &g->rank[r], &left)) return deadlock(g);
  return TR_OK;
}

// ---- memory

static void sort_queues(member *m) {
  const tr_program *p = m->program;
  for (uint32_t i = 0; i < p->nop; i++)
    if (tr__is_message(&p->op[i])) m->end[p->op[i].ring].n++;
  uint32_t *at = m->collective;
  for (int k = 0; k < p->nring; k++) {
    m->end[k].op = at;
    at += m->end[k].n;
    m->end[k].n = 0;
  }
  m->collective = at;
  m->exchange = m->place + 2 * p->nop;
  for (uint32_t i = 0; i < p->nop; i++) {
    const tr_op *op = &p->op[i];
    if (tr__is_message(op)) {
      end *e = &m->end[op->ring];
      m->place[i] = e->n;
      e->op[e->n++] = i;
    } else if (tr_op_queue(op) == TR_QUEUE_EXCHANGES) {
      m->exchange[m->nexchange++] = i;
    } else if (op->lane == TR_LANE_COMM) {
      m->collective[m->ncollective++] = i;
    }
  }
}

static tr_status make_member(const tr_program *program, member *m) {
  size_t nop = program->nop;
  *m = (member){.program = program};
  m->end = calloc((size_t)program->nring + 1, sizeof *m->end);
  m->place = calloc(3 * nop + 1, sizeof *m->place);
  m->done = calloc(nop + 1, 1);
  if (!m->end || !m->place || !m->done) return tr_error(TR_ERR_MEMORY, "no memory to check step programs");
  m->collective = m->place + nop;
  sort_queues(m);
  return TR_OK;
}

static tr_status check_gang(gang *g, const tr_program *const *program) {
  for (int r = 0; r < g->p; r++) {
    if (program[r]->p != g->p || program[r]->rank != r)
      return tr_error(TR_ERR_PLAN, "step program: rank %d of %d stands in the place of rank %d of %d",
                      program[r]->rank, program[r]->p, r, g->p);
    TR_TRY(tr__check_links(program[r]));
    TR_TRY(tr__check_rings(program[r]));
    TR_TRY(make_member(program[r], &g->rank[r]));
  }
  for (int r = 0; r < g->p; r++)
    for (int k = 0; k < program[r]->nring; k++) TR_TRY(join_channel(g, r, k));
  return walk(g);
}

tr_status tr_program_check_pipeline(const tr_program *const *program, int p, int capacity) {
  gang g = {.rank = calloc((size_t)p, sizeof *g.rank), .p = p, .capacity = capacity};
  if (!g.rank) return tr_error(TR_ERR_MEMORY, "no memory to check step programs");
  tr_status status = check_gang(&g, program);
  for (int r = 0; r < p; r++) {
    free(g.rank[r].end);
    free(g.rank[r].place);
    free(g.rank[r].done);
  }
  free(g.rank);
  return status;
}
