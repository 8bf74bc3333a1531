// SPDX-License-Identifier: MIT
// Static proof that a program ends, and what has ended when.
//
// Queues: the compute lane, and those of the communication lane (tr_op_queue). The program of one rank is executable iff
// taking, again and again, the head of a queue whose edges are satisfied empties all of them; peers are taken to be willing
// (that they are is for check_pipeline.c). Collectives and exchanges add no cycle across ranks because every rank of a group
// lowers the same list and starts them in the same order.
//
// That walk also fills, for every operation, the set of operations that have surely *ended* when it starts. In the compute
// lane one ends before the next starts, so of these the set is all up to one; in the other queues operations only start in
// order, so a sum has ended only for those that wait for it by an edge, directly or through others. All rules ask that set,
// never the list.
#include "step/check_internal.h"
#include <stdlib.h>

int tr__has_ended(const tr__checker *c, uint32_t before, uint32_t op) {
  if (c->program->op[before].lane == TR_LANE_COMPUTE) return before < c->computed[op];
  return c->ended[op * c->nword + c->number[before] / 64] >> c->number[before] % 64 & 1;
}

// `op` starts after `before` has ended, or started, and after all that had ended when `before` started.
static void mark_ended(const tr__checker *c, uint32_t op, uint32_t before, int itself) {
  const tr_op *other = &c->program->op[before];
  int computes = other->lane == TR_LANE_COMPUTE;
  uint32_t computed = itself && computes ? before + 1 : c->computed[before];
  if (computed > c->computed[op]) c->computed[op] = computed;
  for (size_t w = 0; w < c->nword; w++) c->ended[op * c->nword + w] |= c->ended[before * c->nword + w];
  if (itself && !computes && !tr__is_message(other))
    c->ended[op * c->nword + c->number[before] / 64] |= (uint64_t)1 << c->number[before] % 64;
}

static int edges_done(const tr_program *p, const tr_op *op, const unsigned char *done) {
  for (uint32_t e = op->edge_begin; e < op->edge_end; e++)
    if (p->edge[e].step_offset == 0 && !done[p->edge[e].op]) return 0; // earlier steps have ended
  return 1;
}

static void start_op(const tr__checker *c, uint32_t i, uint32_t previous) {
  const tr_op *op = &c->program->op[i];
  if (previous) mark_ended(c, i, previous - 1, op->lane == TR_LANE_COMPUTE);
  for (uint32_t e = op->edge_begin; e < op->edge_end; e++)
    if (c->program->edge[e].step_offset == 0) mark_ended(c, i, c->program->edge[e].op, 1);
}

typedef struct queue {
  uint32_t head, previous; // operations + 1, 0: none
} queue;

static tr_status walk_queues(const tr__checker *c, queue *q, const uint32_t *next, unsigned char *done) {
  const tr_program *p = c->program;
  uint32_t left = p->nop;
  for (int moved = 1; moved;) {
    moved = 0;
    for (int k = 0; k < TR_QUEUE_RINGS + p->nring; k++)
      while (q[k].head && edges_done(p, &p->op[q[k].head - 1], done)) {
        uint32_t i = q[k].head - 1;
        start_op(c, i, q[k].previous);
        done[i] = 1;
        q[k] = (queue){next[i], i + 1};
        left--;
        moved = 1;
      }
  }
  for (int k = 0; left > 0; k++)
    if (q[k].head) return tr__step_broken(p, q[k].head - 1, "can never start: deadlock");
  return TR_OK;
}

tr_status tr__check_deadlock(const tr__checker *c) {
  const tr_program *p = c->program;
  unsigned char *done = calloc(p->nop + 1, 1);
  uint32_t *next = calloc(p->nop + 1, sizeof *next);
  queue *q = calloc(TR_QUEUE_RINGS + (size_t)p->nring, sizeof *q);
  tr_status status = TR_ERR_MEMORY;
  if (done && next && q) {
    for (uint32_t i = p->nop; i-- > 0;) {
      queue *own = &q[tr_op_queue(&p->op[i])];
      next[i] = own->head;
      own->head = i + 1;
    }
    status = walk_queues(c, q, next, done);
  }
  if (!done || !next || !q) status = tr_error(TR_ERR_MEMORY, "no memory to check the step program");
  free(done);
  free(next);
  free(q);
  return status;
}
