// SPDX-License-Identifier: MIT
// The communication lane. It is several queues: collectives, which all ranks of a group start in the same order, pieces that
// exchange, and the messages of each ring, so that none is held up by one to or from somewhere else. The head of a queue starts as
// soon as what it waits for is done, the next one when all that the head consists of has started; what has started ends in any order.
//
// Whoever waits for an operation that has not started yet waits for what holds it up, which is under way: passes are done in
// order by the one who waits, so nothing waits for those.
#include "run/run_internal.h"
#include "trireme/base/clock.h"
#include <stdlib.h>

static const tr_op *op_at(const tr_run *run, uint32_t index) { return &run->options.program->op[index]; }

static uint32_t queues(const tr_run *run) { return TR_QUEUE_RINGS + (uint32_t)run->nring; }

tr_status tr__run_queues_make(tr_run *run) {
  const tr_program *program = run->options.program;
  uint32_t nop = program ? program->nop : 0, at = 0;
  run->queued = calloc((size_t)nop + 1, sizeof *run->queued);
  run->queue = calloc(queues(run), sizeof *run->queue);
  if (!run->queued || !run->queue) return tr_error(TR_ERR_MEMORY, "no memory for the queues of %u operations", nop);
  for (uint32_t q = TR_QUEUE_COLLECTIVES; q < queues(run); q++) {
    run->queue[q].begin = at;
    for (uint32_t i = 0; i < nop; i++)
      if (tr_op_queue(op_at(run, i)) == q) run->queued[at++] = i;
    run->queue[q].end = at;
  }
  return TR_OK;
}

static int64_t rows_of(const tr_run *run, const tr_op *op) { return run->input[op->microbatch].rows; }

static tr_status finish_op(tr_run *run, uint32_t index) {
  const tr_op *op = op_at(run, index);
  if (op->kind == TR_OP_RECV) TR_TRY(tr__ring_received(run, op, rows_of(run, op)));
  if (tr_op_queue(op) == TR_QUEUE_COLLECTIVES) tr__sum_finish(run, op);
  if (op->kind == TR_OP_F) tr__run_hand_over(run, op, rows_of(run, op));
  run->phase[index] = 0;
  tr__run_op_done(run, index);
  return TR_OK;
}

static tr_status start_phase(tr_run *run, const tr_op *op, int phase, tr_request **request) {
  switch ((tr_op_kind)op->kind) {
  case TR_OP_SEND: return tr__ring_send(run, op, rows_of(run, op), request);
  case TR_OP_RECV: return tr__ring_recv(run, op, rows_of(run, op), request);
  case TR_OP_REDUCE:
  case TR_OP_GATHER: return tr__sum_start(run, op, phase, request);
  case TR_OP_F:
  case TR_OP_B: return tr__run_exchange_start(run, op, request);
  default: return tr_error(TR_ERR_INTERNAL, "the executor has no communication %s", tr_op_name((tr_op_kind)op->kind));
  }
}

static int phases_of(const tr_op *op) { return tr_op_queue(op) == TR_QUEUE_COLLECTIVES ? tr__sum_phases(op) : 1; }

static int has_begun(const tr_run *run, uint32_t index) {
  return run->phase[index] > 0 || run->done[index] > (uint64_t)run->step_count;
}

static int has_started_all(const tr_run *run, uint32_t index) {
  return run->phase[index] == phases_of(op_at(run, index)) || run->done[index] > (uint64_t)run->step_count;
}

// The next exchange of an operation, and its end when there is none to wait for any more: then nothing is pending.
static tr_status continue_op(tr_run *run, uint32_t index) {
  const tr_op *op = op_at(run, index);
  run->pending[index] = NULL;
  while (run->phase[index] < phases_of(op)) {
    tr_request *request = NULL;
    TR_TRY(start_phase(run, op, run->phase[index]++, &request));
    run->pending[index] = request;
    if (request) return TR_OK;
  }
  return finish_op(run, index);
}

static int is_ready(const tr_run *run, const tr_op *op) {
  for (uint32_t e = op->edge_begin; e < op->edge_end; e++)
    if (!tr__run_edge_done(run, &run->options.program->edge[e])) return 0;
  return 1;
}

static tr_status start_op(tr_run *run, uint32_t index) {
  tr__run_op_begin(run, index);
  TR_TRY(continue_op(run, index));
  if (run->pending[index]) run->active[run->nactive++] = index;
  return TR_OK;
}

static tr_status start_heads(tr_run *run, int *started) {
  for (uint32_t q = TR_QUEUE_COLLECTIVES; q < queues(run); q++)
    for (tr__queue *queue = &run->queue[q]; queue->head < queue->end; queue->head++) {
      uint32_t index = run->queued[queue->head];
      if (!has_begun(run, index)) {
        if (!is_ready(run, op_at(run, index))) break;
        TR_TRY(start_op(run, index));
        *started = 1;
      }
      if (!has_started_all(run, index)) break;
    }
  return TR_OK;
}

static tr_status finish_active(tr_run *run) {
  uint32_t left = 0;
  for (uint32_t i = 0; i < run->nactive; i++) {
    uint32_t index = run->active[i];
    if (tr_request_ended(run->pending[index])) {
      TR_TRY(tr_request_test(run->pending[index]));
      TR_TRY(continue_op(run, index));
    }
    if (run->pending[index]) run->active[left++] = index;
  }
  run->nactive = left;
  return TR_OK;
}

tr_status tr__run_comm_advance(tr_run *run) {
  if (run->options.comm) TR_TRY(tr_comm_progress(run->options.comm));
  if (run->nactive) TR_TRY(finish_active(run));
  for (int started = 1; started;) { // one that ends at once may be what another queue waits for
    started = 0;
    TR_TRY(start_heads(run, &started));
  }
  return TR_OK;
}

// Wait for one operation that is under way.
static tr_status wait_for(tr_run *run, uint32_t index) {
  int64_t begin = tr_clock_ns();
  TR_TRY(tr_request_wait(run->pending[index]));
  run->result.comm_wait_ns += tr_clock_ns() - begin;
  uint32_t left = 0;
  for (uint32_t i = 0; i < run->nactive; i++)
    if (run->active[i] != index) run->active[left++] = run->active[i];
  run->nactive = left;
  TR_TRY(continue_op(run, index));
  if (run->pending[index]) run->active[run->nactive++] = index;
  return TR_OK;
}

// The operation under way that has to end before `index` can start: the head of its queue, or what that waits for. As many as
// there are: none.
static uint32_t find_blocker(const tr_run *run, uint32_t index) {
  const tr_program *program = run->options.program;
  for (uint32_t hops = 0; hops < program->nop && !run->pending[index]; hops++) {
    const tr__queue *queue = &run->queue[tr_op_queue(op_at(run, index))];
    if (op_at(run, index)->lane != TR_LANE_COMM || queue->head == queue->end) return program->nop;
    index = run->queued[queue->head];
    if (has_begun(run, index)) continue;
    const tr_op *head = op_at(run, index);
    for (uint32_t e = head->edge_begin; e < head->edge_end; e++)
      if (!tr__run_edge_done(run, &program->edge[e])) index = program->edge[e].op;
  }
  return run->pending[index] ? index : program->nop;
}

tr_status tr__run_comm_wait(tr_run *run, uint32_t index) {
  const tr_op *op = op_at(run, index);
  if (run->options.comm)
    tr_comm_activity(run->options.comm, tr_op_name((tr_op_kind)op->kind), run->step + 1, op->microbatch);
  uint64_t before = run->done[index];
  while (run->done[index] == before) {
    uint32_t blocker = find_blocker(run, index);
    if (blocker == run->options.program->nop)
      return tr_error(TR_ERR_INTERNAL, "operation %u (%s) is waited for but cannot start", index,
                      tr_op_name((tr_op_kind)op->kind));
    TR_TRY(wait_for(run, blocker));
    TR_TRY(tr__run_comm_advance(run));
  }
  return TR_OK;
}

tr_status tr__run_comm_finish(tr_run *run) {
  TR_TRY(tr__run_comm_advance(run));
  while (run->nactive > 0) {
    TR_TRY(wait_for(run, run->active[0]));
    TR_TRY(tr__run_comm_advance(run));
  }
  for (uint32_t q = TR_QUEUE_COLLECTIVES; q < queues(run); q++)
    if (run->queue[q].head < run->queue[q].end)
      return tr_error(TR_ERR_INTERNAL, "operation %u never started", run->queued[run->queue[q].head]);
  return TR_OK;
}
