// SPDX-License-Identifier: MIT
// From programs to a graph: what waits for what.
//
//   edges     of the same step, as the program has them; those of earlier steps are done
//   queues    those of a rank (tr_op_queue); one stream: all of its communication is one
//   messages  the nth RECV of a channel waits for the nth SEND into its other end, a ring with the same stage, role and
//             direction on the peer
//
// Bytes: 32 per operation, 8 per edge.
#include "sim/sim_internal.h"
#include <stdlib.h>

static tr_status no_memory(uint32_t n) { return tr_error(TR_ERR_MEMORY, "no memory to simulate %u operations", n); }

// ---- the frame

static tr_status count(tr__sim_graph *g) {
  uint64_t n = 0, rings = 0;
  g->base = malloc(sizeof *g->base * ((size_t)g->p + 1));
  g->ring_base = malloc(sizeof *g->ring_base * ((size_t)g->p + 1));
  if (!g->base || !g->ring_base) return no_memory((uint32_t)g->p);
  for (int r = 0; r < g->p; r++) {
    g->base[r] = (uint32_t)n;
    g->ring_base[r] = (uint32_t)rings;
    n += g->program[r]->nop;
    rings += (uint64_t)g->program[r]->nring;
    if (n > INT32_MAX || rings > INT32_MAX)
      return tr_error(TR_ERR_PLAN, "a pipeline of %d ranks has more than %d operations, too many to simulate", g->p,
                      INT32_MAX);
  }
  g->base[g->p] = g->n = (uint32_t)n;
  g->ring_base[g->p] = (uint32_t)rings;
  g->most = INT64_MAX / 8 / ((int64_t)n + 1);
  return TR_OK;
}

static tr_status make_nodes(tr__sim_graph *g) {
  g->node = malloc(sizeof *g->node * ((size_t)g->n + 1));
  if (!g->node) return no_memory(g->n);
  for (int r = 0; r < g->p; r++)
    for (uint32_t i = g->base[r]; i < g->base[r + 1]; i++)
      g->node[i] =
          (tr__sim_node){.next = TR__SIM_NONE, .partner = TR__SIM_NONE, .cause = TR__SIM_NONE, .rank = (int32_t)r};
  return TR_OK;
}

// ---- edges

static tr_status check_edges(const tr__sim_graph *g, int rank, uint32_t op) {
  const tr_program *program = g->program[rank];
  const tr_op *o = &program->op[op];
  if (o->edge_begin > o->edge_end || o->edge_end > program->nedge)
    return tr_error(TR_ERR_PLAN, "rank %d: operation %u has edges %u to %u of %u", rank, op, o->edge_begin,
                    o->edge_end, program->nedge);
  for (uint32_t e = o->edge_begin; e < o->edge_end; e++)
    if (program->edge[e].op >= program->nop)
      return tr_error(TR_ERR_PLAN, "rank %d: operation %u waits for operation %u of %u", rank, op,
                      program->edge[e].op, program->nop);
  return TR_OK;
}

// Visits all edges of this step: once to count the dependents of each operation, once to store them.
static void visit_edges(tr__sim_graph *g, int store) {
  for (int r = 0; r < g->p; r++)
    for (uint32_t i = 0; i < g->program[r]->nop; i++) {
      const tr_op *op = &g->program[r]->op[i];
      for (uint32_t e = op->edge_begin; e < op->edge_end; e++) {
        if (g->program[r]->edge[e].step_offset != 0) continue;
        const uint32_t before = g->base[r] + g->program[r]->edge[e].op;
        if (store) {
          g->dependent[g->first[before]++] = g->base[r] + i;
          g->node[g->base[r] + i].missing++;
        } else {
          g->first[before + 1]++;
        }
      }
    }
}

static tr_status add_edges(tr__sim_graph *g) {
  uint64_t nedge = 0;
  for (int r = 0; r < g->p; r++) {
    nedge += g->program[r]->nedge;
    for (uint32_t i = 0; i < g->program[r]->nop; i++) TR_TRY(check_edges(g, r, i));
  }
  g->first = calloc((size_t)g->n + 2, sizeof *g->first);
  g->dependent = malloc(sizeof *g->dependent * (nedge + 1));
  if (!g->first || !g->dependent || nedge > UINT32_MAX) return no_memory(g->n);
  visit_edges(g, 0);
  for (uint32_t i = 0; i < g->n; i++) g->first[i + 1] += g->first[i];
  visit_edges(g, 1); // moves each start to its end, which is the next one's start
  for (uint32_t i = g->n; i > 0; i--) g->first[i] = g->first[i - 1];
  g->first[0] = 0;
  return TR_OK;
}

// ---- queues

static uint32_t queue_of(const tr__sim_graph *g, const tr_op *op) {
  return op->lane == TR_LANE_COMM && g->costs->one_stream ? TR_QUEUE_COLLECTIVES : tr_op_queue(op);
}

static tr_status check_message(const tr__sim_graph *g, int rank, uint32_t i) {
  const tr_program *program = g->program[rank];
  const tr_op *op = &program->op[i];
  if (!tr__sim_is_message(op)) return TR_OK;
  if (op->lane != TR_LANE_COMM || op->ring < 0 || op->ring >= program->nring)
    return tr_error(TR_ERR_PLAN, "rank %d: operation %u (%s) is not in the communication lane with one of %d rings",
                    rank, i, tr_op_name((tr_op_kind)op->kind), program->nring);
  const int peer = program->ring[op->ring].peer;
  if (peer < 0 || peer >= g->p || peer == rank)
    return tr_error(TR_ERR_PLAN, "rank %d: operation %u (%s) talks to rank %d; there are 0 to %d", rank, i,
                    tr_op_name((tr_op_kind)op->kind), peer, g->p - 1);
  return TR_OK;
}

static tr_status add_queues(tr__sim_graph *g) {
  int most = 0;
  for (int r = 0; r < g->p; r++) most = g->program[r]->nring > most ? g->program[r]->nring : most;
  uint32_t *last = malloc(sizeof *last * ((size_t)most + TR_QUEUE_RINGS));
  tr_status status = last ? TR_OK : no_memory(g->n);
  for (int r = 0; r < g->p && status == TR_OK; r++) {
    const tr_program *program = g->program[r];
    for (int q = 0; q < program->nring + TR_QUEUE_RINGS; q++) last[q] = TR__SIM_NONE;
    for (uint32_t i = 0; i < program->nop && status == TR_OK; i++) {
      status = check_message(g, r, i);
      if (status < 0) break;
      const uint32_t queue = queue_of(g, &program->op[i]), before = last[queue];
      if (before != TR__SIM_NONE) {
        g->node[before].next = g->base[r] + i;
        g->node[g->base[r] + i].missing++;
      }
      last[queue] = g->base[r] + i;
    }
  }
  free(last);
  return status;
}

// ---- messages

// All rings by who has them, at whose other end they are, and what crosses them: a hash table.
typedef struct ring_entry {
  uint32_t number; // TR__SIM_NONE: not used
  int32_t rank;
} ring_entry;

typedef struct ring_table {
  ring_entry *entry;
  uint64_t mask;
} ring_table;

// The entry of the ring that `rank` has for `peer`, or the free one where it would be.
static ring_entry *ring_at(const tr__sim_graph *g, const ring_table *table, int rank, int peer, const tr_ring *like) {
  uint64_t key = (uint64_t)rank * (uint64_t)g->p + (uint64_t)peer;
  key = (key << 18 | (uint64_t)like->stage << 2 | (uint64_t)(like->role == TR_ROLE_ACTIVATION) << 1 |
         (uint64_t)(like->direction & 1)) *
        UINT64_C(0x9e3779b97f4a7c15);
  for (uint64_t at = key >> 20;; at++) {
    ring_entry *entry = &table->entry[at & table->mask];
    if (entry->number == TR__SIM_NONE) return entry;
    const tr_ring *ring = &g->program[entry->rank]->ring[entry->number - g->ring_base[entry->rank]];
    if (entry->rank == rank && ring->peer == peer && ring->stage == like->stage && ring->role == like->role &&
        ring->direction == like->direction)
      return entry;
  }
}

static tr_status make_table(const tr__sim_graph *g, ring_table *out) {
  uint64_t n = 16;
  while (n < 2 * (uint64_t)g->ring_base[g->p]) n *= 2;
  *out = (ring_table){malloc(sizeof *out->entry * n), n - 1};
  if (!out->entry) return no_memory(g->n);
  for (uint64_t i = 0; i < n; i++) out->entry[i] = (ring_entry){TR__SIM_NONE, -1};
  for (int r = 0; r < g->p; r++)
    for (int h = 0; h < g->program[r]->nring; h++) {
      const tr_ring *ring = &g->program[r]->ring[h];
      ring_entry *entry = ring_at(g, out, r, ring->peer, ring);
      if (entry->number == TR__SIM_NONE) *entry = (ring_entry){g->ring_base[r] + (uint32_t)h, r};
    }
  return TR_OK;
}

// The number of the ring at the other end of a channel, TR__SIM_NONE if there is none.
static uint32_t other_end(const tr__sim_graph *g, const ring_table *table, int rank, const tr_ring *ring) {
  return ring_at(g, table, ring->peer, rank, ring)->number;
}

static const char *role_name(const tr_ring *ring) {
  return ring->role == TR_ROLE_ACTIVATION ? "the activations" : "the derivatives";
}

static tr_status join(tr__sim_graph *g, uint32_t send, uint32_t recv) {
  const int rank = g->node[send].rank;
  const tr_op *s = tr__sim_op(g, send);
  const tr_ring *ring = &g->program[rank]->ring[s->ring];
  if (recv == TR__SIM_NONE)
    return tr_error(TR_ERR_PLAN,
                    "rank %d: operation %u sends %s behind stage %d of micro-batch %d, which rank %d never receives",
                    rank, send - g->base[rank], role_name(ring), ring->stage, s->microbatch, ring->peer);
  if (tr__sim_op(g, recv)->microbatch != s->microbatch)
    return tr_error(TR_ERR_PLAN,
                    "rank %d sends %s behind stage %d of micro-batch %d where rank %d receives those of %d", rank,
                    role_name(ring), ring->stage, s->microbatch, ring->peer, tr__sim_op(g, recv)->microbatch);
  g->node[send].partner = recv;
  g->node[recv].partner = send;
  g->node[recv].missing += !g->costs->one_stream; // there, whoever comes first waits for the other
  return TR_OK;
}

// at[i]: the next RECV of ring i that has no SEND yet; they are chained by `chain`, an entry per operation.
static tr_status pair_messages(tr__sim_graph *g, const ring_table *table, uint32_t *at, uint32_t *chain) {
  for (uint32_t i = 0; i < g->ring_base[g->p]; i++) at[i] = TR__SIM_NONE;
  for (uint32_t i = g->n; i-- > 0;) {
    const tr_op *op = tr__sim_op(g, i);
    if (op->kind != TR_OP_RECV) continue;
    uint32_t *head = &at[g->ring_base[g->node[i].rank] + op->ring];
    chain[i] = *head;
    *head = i;
  }
  for (uint32_t i = 0; i < g->n; i++) {
    const tr_op *op = tr__sim_op(g, i);
    const int rank = g->node[i].rank;
    if (op->kind != TR_OP_SEND) continue;
    const uint32_t end = other_end(g, table, rank, &g->program[rank]->ring[op->ring]);
    const uint32_t recv = end == TR__SIM_NONE ? TR__SIM_NONE : at[end];
    TR_TRY(join(g, i, recv));
    at[end] = chain[recv];
  }
  for (uint32_t i = 0; i < g->n; i++)
    if (tr__sim_op(g, i)->kind == TR_OP_RECV && g->node[i].partner == TR__SIM_NONE) {
      const int rank = g->node[i].rank;
      const tr_ring *ring = &g->program[rank]->ring[tr__sim_op(g, i)->ring];
      return tr_error(
          TR_ERR_PLAN,
          "rank %d: operation %u receives %s behind stage %d of micro-batch %d, which rank %d never sends", rank,
          i - g->base[rank], role_name(ring), ring->stage, tr__sim_op(g, i)->microbatch, ring->peer);
    }
  return TR_OK;
}

static tr_status add_messages(tr__sim_graph *g) {
  uint32_t *at = malloc(sizeof *at * ((size_t)g->ring_base[g->p] + 1));
  uint32_t *chain = malloc(sizeof *chain * ((size_t)g->n + 1));
  ring_table table = {0};
  tr_status status = at && chain ? make_table(g, &table) : no_memory(g->n);
  if (status == TR_OK) status = pair_messages(g, &table, at, chain);
  free(at);
  free(chain);
  free(table.entry);
  return status;
}

static tr_status build(tr__sim_graph *g) {
  if (g->p < 1) return tr_error(TR_ERR_PLAN, "a pipeline of %d ranks cannot be simulated; at least 1", g->p);
  if (!g->costs->op && (!g->costs->stage || g->costs->nstage < 1))
    return tr_error(TR_ERR_PLAN, "there are costs of %d stages; at least 1 is needed", g->costs->nstage);
  TR_TRY(count(g));
  TR_TRY(make_nodes(g));
  TR_TRY(add_edges(g));
  TR_TRY(add_queues(g));
  TR_TRY(add_messages(g));
  return tr__sim_add_meetings(g);
}

tr_status tr__sim_graph_build(const tr_program *const *program, int p, const tr_sim_costs *costs,
                              tr__sim_graph *out) {
  *out = (tr__sim_graph){.program = program, .costs = costs, .p = p};
  tr_status status = build(out);
  if (status < 0) tr__sim_graph_destroy(out);
  return status;
}

void tr__sim_graph_destroy(tr__sim_graph *graph) {
  free(graph->base);
  free(graph->ring_base);
  free(graph->node);
  free(graph->first);
  free(graph->dependent);
  free(graph->meeting);
  free(graph->member);
  *graph = (tr__sim_graph){0};
}
