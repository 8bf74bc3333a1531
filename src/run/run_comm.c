// SPDX-License-Identifier: MIT
// The communication lane: a queue whose head starts as soon as its edges are satisfied; what has started ends in
// any order. Gradients are summed in place by bucket, each part by its owner where all ranks share the state, else by all
// ranks. Counts and losses are f64 values gathered from all ranks and added in rank order. What sharers write for each other
// needs no copy: there a GATHER is a meeting.
#include "run/run_internal.h"
#include "trireme/base/clock.h"
#include <string.h>

static double *sums_of(const tr_run *run, const tr_op *op) { return run->sums + op->role * run->dp; }

static tr_status meet_sharers(tr_run *run, double *sums, tr_request **request) {
  if (!run->shares) return TR_OK;
  return tr_group_allgather(run->sharers, &sums[run->sharer], sums, sizeof(double), TR_U8, request);
}

static tr_status start_small(tr_run *run, const tr_op *op, tr_request **request) {
  double *sums = sums_of(run, op), own = run->loss_sum;
  if (op->role >= TR_ROLE_SQUARES && op->role <= TR_ROLE_PACKED) return meet_sharers(run, sums, request);
  if (op->role == TR_ROLE_COUNT) {
    own = 0;
    for (int mb = 0; mb < run->options.program->microbatches; mb++) own += (double)run->input[mb].valid;
  }
  sums[run->dp_rank] = own;
  if (run->dp == 1) return TR_OK;
  return tr_group_allgather(run->options.dp, &sums[run->dp_rank], sums, sizeof(double), TR_U8, request);
}

static void finish_small(tr_run *run, const tr_op *op) {
  double sum = 0;
  for (int r = 0; r < run->dp; r++) sum += sums_of(run, op)[r];
  if (op->role == TR_ROLE_COUNT) {
    run->result.tokens = (int64_t)sum;
    run->scale = sum > 0 ? 1.0 / sum : 0;
  } else if (op->role == TR_ROLE_LOSS) {
    run->result.loss = sum * run->scale;
  }
}

static void bucket_range(const tr_run *run, const tr_op *op, size_t *first, size_t *count) {
  const int64_t *start = run->options.layout->unit_start;
  *first = (size_t)start[op->unit_begin];
  *count = (size_t)(start[op->unit_end] - start[op->unit_begin]);
}

static char *element(const tr_run *run, void *base, size_t i) { return (char *)base + i * tr_dtype_size(run->wide); }

static char *narrow(const tr_run *run, size_t i) { return (char *)run->wire + i * tr_dtype_size(run->wire_type); }

// Do owners sum their parts, of all ranks' gradients? Else all of them come to all ranks.
static int is_split(const tr_run *run) { return run->shares && run->nsharer == run->dp; }

// Sums of this rank's part go where its gradients are; their squares follow while they are in the cache.
static tr_status start_own_part(tr_run *run, const tr_op *op, char *src, size_t first, tr_request **request) {
  tr__share *share = &run->share[op->bucket];
  char *own = element(run, run->partial, first + share->start[run->sharer]);
  tr__share_begin(run, op->bucket);
  return tr_group_reduce_scatter_v(run->options.dp, src, own, share->start, run->wire_type, run->wide, TR_SUM,
                                   TR_LAYOUT_BLOCK, run->partial == run->gradients ? tr__share_squares : NULL, share,
                                   request);
}

static tr_status start_gradients(tr_run *run, const tr_op *op, tr_request **request) {
  size_t first, count;
  bucket_range(run, op, &first, &count);
  if (run->dp == 1) return TR_OK;
  char *sums = element(run, run->partial, first), *travel = run->wire ? narrow(run, first) : sums;
  if (run->wire) run->compute.kernels->convert(&run->compute, count, run->wide, sums, run->wire_type, travel);
  if (is_split(run)) return start_own_part(run, op, travel, first, request);
  return tr_group_allreduce(run->options.dp, travel, travel, count, run->wire_type, TR_SUM, request);
}

// grad_sync every: the micro-batch's sum joins the step's.
static void add_micro_batch(tr_run *run, const tr_op *op, size_t first, size_t count) {
  char *sum = element(run, run->gradients, first), *part = element(run, run->partial, first);
  if (op->first)
    memcpy(sum, part, count * tr_dtype_size(run->wide));
  else
    run->compute.kernels->add(&run->compute, count, run->wide, part, sum);
}

// The sums that this rank goes on with: of all, or of its own part, whose squares are its too.
static void finish_gradients(tr_run *run, const tr_op *op) {
  size_t first, count;
  const int every = run->partial != run->gradients, split = is_split(run);
  tr__share *share = &run->share[op->bucket];
  bucket_range(run, op, &first, &count);
  if (run->shares) {
    first += share->start[run->sharer];
    count = share->start[run->sharer + 1] - share->start[run->sharer];
  }
  if (run->wire && !split && run->dp > 1)
    run->compute.kernels->convert(&run->compute, count, run->wire_type, narrow(run, first), run->wide,
                                  element(run, run->partial, first));
  if (every) add_micro_batch(run, op, first, count);
  if (!run->shares || !op->last || (split && !every)) return; // told of the parts as they came
  if (!split) tr__share_begin(run, op->bucket);
  tr__share_squares(share, 0, count);
}

static void finish_op(tr_run *run, uint32_t index) {
  const tr_op *op = &run->options.program->op[index];
  if (op->role == TR_ROLE_GRADIENT)
    finish_gradients(run, op);
  else
    finish_small(run, op);
  run->pending[index] = NULL;
  tr__run_op_done(run, index);
}

static int is_ready(const tr_run *run, const tr_op *op) {
  for (uint32_t e = op->edge_begin; e < op->edge_end; e++)
    if (!tr__run_edge_done(run, &run->options.program->edge[e])) return 0;
  return 1;
}

static tr_status start_op(tr_run *run, uint32_t index) {
  const tr_op *op = &run->options.program->op[index];
  tr__run_op_begin(run, index);
  tr_request *request = NULL;
  if (op->role == TR_ROLE_GRADIENT)
    TR_TRY(start_gradients(run, op, &request));
  else
    TR_TRY(start_small(run, op, &request));
  run->pending[index] = request;
  if (request)
    run->active[run->nactive++] = index;
  else
    finish_op(run, index);
  return TR_OK;
}

tr_status tr__run_comm_advance(tr_run *run) {
  const tr_program *program = run->options.program;
  if (!program) return TR_OK;
  uint32_t left = 0;
  for (uint32_t i = 0; i < run->nactive; i++) {
    uint32_t index = run->active[i];
    tr_status status = tr_request_test(run->pending[index]);
    if (status < 0) return status;
    if (status == TR_OK)
      finish_op(run, index);
    else
      run->active[left++] = index;
  }
  run->nactive = left;
  while (run->comm_head < program->nop) {
    const tr_op *op = &program->op[run->comm_head];
    if (op->lane == TR_LANE_COMM) {
      if (!is_ready(run, op)) break;
      TR_TRY(start_op(run, run->comm_head));
    }
    run->comm_head++;
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
  finish_op(run, index);
  return TR_OK;
}

tr_status tr__run_comm_finish(tr_run *run) {
  TR_TRY(tr__run_comm_advance(run));
  while (run->nactive > 0) {
    TR_TRY(wait_for(run, run->active[0]));
    TR_TRY(tr__run_comm_advance(run));
  }
  return TR_OK;
}

// One that has not started stands in the queue behind others: the oldest under way ends first, then the lane moves on.
tr_status tr__run_comm_wait(tr_run *run, uint32_t index) {
  if (run->options.comm) tr_comm_activity(run->options.comm, "REDUCE", run->step + 1, -1);
  uint64_t before = run->done[index];
  while (run->done[index] == before) {
    if (!run->pending[index] && run->nactive == 0)
      return tr_error(TR_ERR_INTERNAL, "operation %u is waited for but cannot start", index);
    TR_TRY(wait_for(run, run->pending[index] ? index : run->active[0]));
    TR_TRY(tr__run_comm_advance(run));
  }
  return TR_OK;
}
