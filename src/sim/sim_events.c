// SPDX-License-Identifier: MIT
// The clock. A heap holds the operations for which nothing is missing, the earliest first, equal times by number; taking one
// out starts it, and since its duration is known, what waits for it learns its end at once. So every operation passes the heap
// once, in the order of time, which is also the order in which messages enter a link and chunks and buffers are counted.
#include "sim/sim_internal.h"
#include <stdlib.h>

typedef struct entry {
  int64_t time;
  uint32_t op;
} entry;

// A pair of ranks in one direction, found by its number from * p + to in a hash table, as few of all pairs exist.
typedef struct link {
  int64_t key, free_at; // key -1: not used
} link;

// Messages that are there; what is read at an instant still is, for those that come at the same instant.
typedef struct level {
  int64_t read_at;
  int count, read, peak; // read: of count, at read_at
} level;

typedef struct run {
  tr__sim_graph *g;
  tr_sim_event *event;
  tr_sim_result *result;
  entry *heap;
  uint32_t nheap, done;
  link *link;
  uint64_t nlink; // a power of two
  level *rank_level, *ring_level;
} run;

// ---- the heap

static int earlier(entry a, entry b) { return a.time != b.time ? a.time < b.time : a.op < b.op; }

static void push(run *s, int64_t time, uint32_t op) {
  const entry new = {time, op};
  uint32_t at = s->nheap++;
  for (; at > 0 && earlier(new, s->heap[(at - 1) / 2]); at = (at - 1) / 2) s->heap[at] = s->heap[(at - 1) / 2];
  s->heap[at] = new;
}

static uint32_t pop(run *s) {
  const uint32_t first = s->heap[0].op;
  const entry last = s->heap[--s->nheap];
  uint32_t at = 0;
  for (;;) {
    uint32_t below = 2 * at + 1;
    if (below >= s->nheap) break;
    if (below + 1 < s->nheap && earlier(s->heap[below + 1], s->heap[below])) below++;
    if (!earlier(s->heap[below], last)) break;
    s->heap[at] = s->heap[below];
    at = below;
  }
  s->heap[at] = last;
  return first;
}

// `op` has ended at `time`, one of the things that `waiting` waits for.
static void release(run *s, uint32_t waiting, uint32_t op, int64_t time) {
  tr__sim_node *node = &s->g->node[waiting];
  if (node->cause == TR__SIM_NONE || time > node->ready) {
    node->ready = time;
    node->cause = op;
  }
  if (--node->missing == 0) push(s, node->ready, waiting);
}

static void release_all(run *s, uint32_t op, int64_t end) {
  const tr__sim_graph *g = s->g;
  s->event[op].end = end;
  s->g->node[op].state = TR__SIM_ENDED;
  s->done++;
  if (g->node[op].next != TR__SIM_NONE) release(s, g->node[op].next, op, end);
  for (uint32_t d = g->first[op]; d < g->first[op + 1]; d++) release(s, g->dependent[d], op, end);
}

// ---- counts

static void change(level *l, int64_t time, int by) {
  if (time > l->read_at) {
    l->count -= l->read;
    l->read = 0;
    l->read_at = time;
  }
  if (by < 0)
    l->read++;
  else if (++l->count > l->peak)
    l->peak = l->count;
}

static void park(run *s, uint32_t recv, int64_t time, int by) {
  const int rank = s->g->node[recv].rank;
  change(&s->rank_level[rank], time, by);
  change(&s->ring_level[s->g->ring_base[rank] + tr__sim_op(s->g, recv)->ring], time, by);
}

// The messages that an operation reads are no longer parked. A RECV is read by the first operation that waits for it.
static void take_messages(run *s, uint32_t op, int64_t time) {
  const tr__sim_graph *g = s->g;
  const int rank = g->node[op].rank;
  const tr_op *o = tr__sim_op(g, op);
  for (uint32_t e = o->edge_begin; e < o->edge_end; e++) {
    const tr_edge *edge = &g->program[rank]->edge[e];
    const uint32_t before = g->base[rank] + edge->op;
    if (edge->step_offset != 0 || g->program[rank]->op[edge->op].kind != TR_OP_RECV || g->node[before].read) continue;
    g->node[before].read = 1;
    park(s, before, time, -1);
  }
}

// ---- what operations cost

static int64_t table_cost(const tr_sim_costs *costs, int stage, tr_op_kind kind) {
  const int64_t *row = costs->stage[stage < costs->nstage ? stage : costs->nstage - 1];
  return kind == TR_OP_B && row[TR_OP_B] < 0 ? row[TR_OP_I] + row[TR_OP_W] : row[kind];
}

static tr_status cost_of(const run *s, uint32_t i, int64_t *out) {
  const tr_sim_costs *costs = s->g->costs;
  const tr_op *op = tr__sim_op(s->g, i);
  const int rank = s->g->node[i].rank;
  if (costs->op) {
    *out = costs->op(costs->user, rank, i - s->g->base[rank], op);
  } else {
    *out = table_cost(costs, op->stage, (tr_op_kind)op->kind);
    if (op->kind == TR_OP_X && *out < 0)
      *out = table_cost(costs, op->stage, TR_OP_F) + table_cost(costs, op->back_stage, TR_OP_B);
  }
  if (*out >= 0 && *out <= s->g->most) return TR_OK;
  return tr_error(TR_ERR_PLAN, "rank %d: operation %u (%s of stage %d) costs %lld ticks; 0 to %lld can be added up",
                  rank, i - s->g->base[rank], tr_op_name((tr_op_kind)op->kind), op->stage, (long long)*out,
                  (long long)s->g->most);
}

static tr_status message_cost(const run *s, uint32_t send, int64_t *latency, int64_t *occupancy) {
  const tr_sim_costs *costs = s->g->costs;
  const int from = s->g->node[send].rank, to = s->g->node[s->g->node[send].partner].rank;
  *latency = costs->latency;
  *occupancy = costs->occupancy;
  if (costs->link) *latency = costs->link(costs->user, from, to, occupancy);
  if (*latency >= 0 && *occupancy >= 0 && *latency <= s->g->most && *occupancy <= s->g->most) return TR_OK;
  return tr_error(
      TR_ERR_PLAN,
      "a message from rank %d to rank %d takes %lld ticks and keeps its link busy for %lld; 0 to %lld can be "
      "added up",
      from, to, (long long)*latency, (long long)*occupancy, (long long)s->g->most);
}

// ---- the kinds of operations

static void note_compute(run *s, uint32_t op, int64_t begin, int64_t end) {
  tr_sim_rank *rank = &s->result->rank[s->g->node[op].rank];
  const uint32_t cause = s->g->node[op].cause;
  if (rank->first < 0) {
    rank->first = rank->last = begin;
  } else if (cause != TR__SIM_NONE && tr__sim_op(s->g, cause)->kind == TR_OP_RECV && begin > rank->last) {
    const int64_t left = s->event[cause].begin;
    rank->wait_message += begin - (left > rank->last ? left : rank->last);
  }
  rank->busy += end - begin;
  rank->last = end;
}

static tr_status run_compute(run *s, uint32_t op, int64_t time) {
  int64_t cost;
  TR_TRY(cost_of(s, op, &cost));
  take_messages(s, op, time);
  s->event[op].begin = time;
  if (tr__sim_op(s->g, op)->lane == TR_LANE_COMPUTE) note_compute(s, op, time, time + cost);
  release_all(s, op, time + cost);
  return TR_OK;
}

static tr_status least_cost(const run *s, const tr__sim_meeting *meeting, int64_t *out) {
  *out = INT64_MAX;
  for (uint32_t m = meeting->first; m < meeting->first + meeting->size; m++) {
    int64_t cost;
    TR_TRY(cost_of(s, s->g->member[m], &cost));
    if (cost < *out) *out = cost;
  }
  return TR_OK;
}

// The last member to come starts it for all, and it ends for all at once. What it took a member that came early has waiting in
// it, where costs were measured, so the least counts.
static tr_status run_together(run *s, uint32_t op, int64_t time) {
  const tr__sim_graph *g = s->g;
  tr__sim_meeting *meeting = &g->meeting[g->node[op].partner];
  if (--meeting->left > 0) return TR_OK;
  const uint32_t decided = g->node[op].cause;
  int64_t cost;
  TR_TRY(least_cost(s, meeting, &cost));
  for (uint32_t m = meeting->first; m < meeting->first + meeting->size; m++) {
    const uint32_t member = g->member[m];
    s->event[member].begin = g->node[member].ready;
    g->node[member].cause = decided;
    release_all(s, member, time + cost);
  }
  return TR_OK;
}

static link *link_of(run *s, int from, int to) {
  const int64_t key = (int64_t)from * s->g->p + to;
  uint64_t at = (uint64_t)key * UINT64_C(0x9e3779b97f4a7c15) >> 20;
  while (s->link[at & (s->nlink - 1)].key >= 0 && s->link[at & (s->nlink - 1)].key != key) at++;
  s->link[at & (s->nlink - 1)].key = key;
  return &s->link[at & (s->nlink - 1)];
}

static tr_status run_send(run *s, uint32_t op, int64_t time) {
  const uint32_t partner = s->g->node[op].partner;
  int64_t latency, occupancy, begin = time;
  TR_TRY(message_cost(s, op, &latency, &occupancy));
  if (occupancy > 0) {
    link *way = link_of(s, s->g->node[op].rank, s->g->node[partner].rank);
    if (way->free_at > begin) begin = way->free_at;
    way->free_at = begin + occupancy;
  }
  s->event[op].begin = s->event[partner].begin = begin;
  release_all(s, op, begin + occupancy);
  release(s, partner, op, begin + occupancy + latency);
  return TR_OK;
}

static void run_recv(run *s, uint32_t op, int64_t time) {
  park(s, op, time, 1);
  release_all(s, op, time);
}

// One stream: the first of two partners that comes waits for the other, then both are busy until the message is there.
static tr_status run_meeting(run *s, uint32_t op, int64_t time) {
  const uint32_t partner = s->g->node[op].partner;
  const uint32_t send = tr__sim_op(s->g, op)->kind == TR_OP_SEND ? op : partner, recv = send == op ? partner : op;
  int64_t latency, occupancy;
  if (s->g->node[partner].state != TR__SIM_CAME) return TR_OK;
  TR_TRY(message_cost(s, send, &latency, &occupancy));
  const int64_t end = time + latency + occupancy;
  s->event[send].begin = s->event[recv].begin = time;
  s->g->node[partner].cause = s->g->node[op].cause; // who came last decided
  release_all(s, send, end);
  s->g->node[recv].ready = end;
  s->g->node[recv].state = TR__SIM_MEETS;
  push(s, end, recv);
  return TR_OK;
}

static tr_status start(run *s, uint32_t op) {
  const tr_op *o = tr__sim_op(s->g, op);
  tr__sim_node *node = &s->g->node[op];
  const int meets = node->state == TR__SIM_MEETS;
  node->state = TR__SIM_CAME;
  if (o->kind == TR_OP_REDUCE && node->partner != TR__SIM_NONE) return run_together(s, op, node->ready);
  if (!tr__sim_is_message(o)) return run_compute(s, op, node->ready);
  if (s->g->costs->one_stream && !meets) return run_meeting(s, op, node->ready);
  if (o->kind == TR_OP_SEND) return run_send(s, op, node->ready);
  run_recv(s, op, node->ready);
  return TR_OK;
}

// ---- the loop

static tr_status prepare(run *s) {
  tr__sim_graph *g = s->g;
  const size_t rings = g->ring_base[g->p];
  for (s->nlink = 16; s->nlink < 4 * (uint64_t)rings;) s->nlink *= 2;
  s->heap = malloc(sizeof *s->heap * ((size_t)g->n + 1));
  s->link = malloc(sizeof *s->link * s->nlink);
  s->rank_level = calloc((size_t)g->p, sizeof *s->rank_level);
  s->ring_level = calloc(rings + 1, sizeof *s->ring_level);
  if (!s->heap || !s->link || !s->rank_level || !s->ring_level)
    return tr_error(TR_ERR_MEMORY, "no memory to simulate %u operations", g->n);
  for (uint64_t i = 0; i < s->nlink; i++) s->link[i] = (link){.key = -1};
  for (int r = 0; r < g->p; r++) s->result->rank[r].first = -1;
  for (uint32_t i = 0; i < g->n; i++)
    if (g->node[i].missing == 0) push(s, 0, i);
  return TR_OK;
}

static void finish(run *s) {
  const tr__sim_graph *g = s->g;
  for (int r = 0; r < g->p; r++) {
    if (s->result->rank[r].first < 0) s->result->rank[r].first = 0;
    s->result->rank[r].parked = s->rank_level[r].peak;
    for (uint32_t i = g->ring_base[r]; i < g->ring_base[r + 1]; i++)
      s->result->ring_parked[r][i - g->ring_base[r]] = s->ring_level[i].peak;
  }
}

tr_status tr__sim_events(tr__sim_graph *graph, tr_sim_event *event, tr_sim_result *result) {
  run s = {.g = graph, .event = event, .result = result};
  tr_status status = prepare(&s);
  while (status == TR_OK && s.nheap > 0) status = start(&s, pop(&s));
  if (status == TR_OK && s.done < graph->n) status = tr__sim_blocked(graph);
  if (status == TR_OK) finish(&s);
  free(s.heap);
  free(s.link);
  free(s.rank_level);
  free(s.ring_level);
  return status;
}
