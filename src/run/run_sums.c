// SPDX-License-Identifier: MIT
// Collective operations. Gradients are summed in place by bucket, each part by its owner where all ranks share the state, else by all ranks. Counts and losses are
// f64 values gathered from all ranks and added in rank order. What sharers write for each other needs no copy: there a
// GATHER is a meeting. Some are several exchanges after each other:
//
//   LOSS      over dp, then over the pipeline
//   SQUARES   a meeting of those who own parts, then the units' sums over the pipeline
//   TIED      what is in front of the tied parameter in its bucket and what is behind it over the ranks of this stage, then
//             the parameter over all who have a copy of it
#include "run/run_internal.h"
#include <stdlib.h>
#include <string.h>

static double *sums_of(const tr_run *run, const tr_op *op) { return run->sums + op->role * run->ngrad; }

static double own_number(const tr_run *run, const tr_op *op) {
  double own = 0;
  for (int mb = 0; mb < run->options.program->microbatches; mb++)
    own += op->role == TR_ROLE_COUNT ? (double)run->input[mb].valid : run->losses[mb];
  return own;
}

// One number of each rank in dp.
static tr_status gather_numbers(tr_run *run, const tr_op *op, tr_request **request) {
  double *sums = sums_of(run, op);
  sums[run->dp_rank] = own_number(run, op);
  if (run->dp == 1) return TR_OK;
  return tr_group_allgather(run->options.dp, &sums[run->dp_rank], sums, sizeof(double), TR_U8, request);
}

static double sum_over_dp(const tr_run *run, const tr_op *op) {
  double sum = 0;
  for (int r = 0; r < run->dp; r++) sum += sums_of(run, op)[r];
  return sum;
}

// Those who have no part in the loss report zero.
static tr_status tell_loss(tr_run *run, const tr_op *op, tr_request **request) {
  run->norms[run->pp_rank] = sum_over_dp(run, op);
  if (run->pp == 1) return TR_OK;
  return tr_group_allgather(run->options.pp, &run->norms[run->pp_rank], run->norms, sizeof(double), TR_U8, request);
}

static tr_status tell_squares(tr_run *run, tr_request **request) {
  if (run->pp == 1) return TR_OK;
  tr__norm_own(run);
  size_t nbyte = (size_t)(tr__norm_row(run, 1) - tr__norm_row(run, 0)) * sizeof(double);
  return tr_group_allgather(run->options.pp, tr__norm_row(run, run->pp_rank), tr__norm_row(run, 0), nbyte, TR_U8,
                            request);
}

static tr_status meet_owners(tr_run *run, const tr_op *op, tr_request **request) {
  double *sums = sums_of(run, op);
  if (!run->shares) return TR_OK;
  return tr_group_allgather(run->sharers, &sums[run->sharer], sums, sizeof(double), TR_U8, request);
}

// ---- gradients

static void bucket_range(const tr_run *run, const tr_op *op, size_t *first, size_t *count) {
  const int64_t *start = run->options.layout->unit_start;
  *first = (size_t)start[op->unit_begin];
  *count = (size_t)(start[op->unit_end] - start[op->unit_begin]);
}

static char *element(const tr_run *run, void *base, size_t i) { return (char *)base + i * tr_dtype_size(run->wide); }

static char *narrow(const tr_run *run, size_t i) { return (char *)run->wire + i * tr_dtype_size(run->wire_type); }

// Do owners sum their parts, of all ranks' gradients? Else all of them come to all ranks, and owners go on with their parts.
static int is_split(const tr_run *run) { return run->shares && run->nsharer == run->ngrad; }

// Elements [first, first + count) of gradients as they travel.
static char *as_they_travel(const tr_run *run, size_t first, size_t count) {
  char *sums = element(run, run->partial, first), *travel = run->wire ? narrow(run, first) : sums;
  if (run->wire) run->compute.kernels->convert(&run->compute, count, run->wide, sums, run->wire_type, travel);
  return travel;
}

// Each part by the rank that owns it. Sums go where the gradients are.
static tr_status sum_parts(tr_run *run, size_t first, size_t count, const size_t *start, tr_part_done done,
                           void *user, tr_request **request) {
  char *own = element(run, run->partial, first + start[run->sharer]), *src = as_they_travel(run, first, count);
  return tr_group_reduce_scatter_v(run->grads, src, own, start, run->wire_type, run->wide, TR_SUM, TR_LAYOUT_BLOCK,
                                   done, user, request);
}

static tr_status sum_all(tr_run *run, size_t first, size_t count, tr_request **request) {
  char *travel = as_they_travel(run, first, count);
  return tr_group_allreduce(run->grads, travel, travel, count, run->wire_type, TR_SUM, request);
}

// Squares of this rank's part follow its sums while these are in the cache.
static tr_status start_gradients(tr_run *run, const tr_op *op, tr_request **request) {
  size_t first, count;
  bucket_range(run, op, &first, &count);
  if (run->ngrad == 1) return TR_OK;
  if (!is_split(run)) return sum_all(run, first, count, request);
  tr__share *share = &run->share[op->bucket];
  tr__share_begin(run, op->bucket);
  return sum_parts(run, first, count, share->start, run->partial == run->gradients ? tr__share_squares : NULL, share,
                   request);
}

// grad_sync every: the micro-batch's sum joins the step's.
static void add_micro_batch(tr_run *run, const tr_op *op, size_t first, size_t count) {
  char *sum = element(run, run->gradients, first), *part = element(run, run->partial, first);
  if (op->first)
    memcpy(sum, part, count * tr_dtype_size(run->wide));
  else
    run->compute.kernels->add(&run->compute, count, run->wide, part, sum);
}

// The sums that this rank goes on with: all, or its own part.
static void final_range(const tr_run *run, const tr_op *op, size_t *first, size_t *count) {
  bucket_range(run, op, first, count);
  if (!run->shares) return;
  const size_t *start = run->share[op->bucket].start;
  *first += start[run->sharer];
  *count = start[run->sharer + 1] - start[run->sharer];
}

static void widen(tr_run *run, size_t first, size_t count) {
  run->compute.kernels->convert(&run->compute, count, run->wire_type, narrow(run, first), run->wide,
                                element(run, run->partial, first));
}

static void finish_gradients(tr_run *run, const tr_op *op) {
  size_t first, count;
  const int every = run->partial != run->gradients, split = is_split(run);
  final_range(run, op, &first, &count);
  if (run->wire && !split && run->ngrad > 1) widen(run, first, count);
  if (every) add_micro_batch(run, op, first, count);
  if (!run->shares || !op->last || (split && !every)) return; // told of the parts as they came
  if (!split) tr__share_begin(run, op->bucket);
  tr__share_squares(&run->share[op->bucket], 0, count);
}

// ---- a parameter that stages on two ranks share

static int part_has(const tr_model *model, int whole_piece) {
  for (int i = 0; i < tr_model_pieces(model); i++)
    if (tr_model_piece(model, i)->index == whole_piece) return 1;
  return 0;
}

int tr__param_elsewhere(const tr_model *model, int param) {
  const tr_model *whole = tr_model_whole(model);
  if (whole == model) return 0;
  for (int i = 0; i < tr_model_pieces(whole); i++) {
    const tr_piece *piece = tr_model_piece(whole, i);
    for (int k = 0; k < piece->nparam; k++)
      if (piece->param[k] == tr_model_whole_param(model, param) && !part_has(model, i)) return 1;
  }
  return 0;
}

tr_status tr__tied_bind(tr_run *run) {
  const tr_model *model = run->options.model;
  run->tied_param = -1;
  for (int i = 0; run->options.tied && i < tr_model_params(model); i++) {
    if (!tr__param_elsewhere(model, i)) continue;
    if (run->tied_param >= 0)
      return tr_error(TR_ERR_PLAN, "parameters '%s' and '%s' are both shared with another stage: one can be",
                      tr_model_param(model, run->tied_param)->name, tr_model_param(model, i)->name);
    run->tied_param = i;
  }
  if (run->options.tied && run->tied_param < 0)
    return tr_error(TR_ERR_PLAN, "this rank's stages share no parameter with another rank's, but it is in group '%s'",
                    tr_group_name(run->options.tied));
  run->tied_starts = calloc(2 * ((size_t)run->nsharer + 1), sizeof *run->tied_starts);
  return run->tied_starts ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory for the parts of %d ranks", run->nsharer);
}

static tr_status sum_tied(tr_run *run, tr_request **request) {
  const tr_layout *layout = run->options.layout;
  char *sums = element(run, run->partial, (size_t)layout->param_offset[run->tied_param]);
  return tr_group_allreduce(run->options.tied, sums, sums, (size_t)layout->param_count[run->tied_param], run->wide,
                            TR_SUM, request);
}

// What is in front of the tied parameter in its bucket, or behind it.
static tr_status sum_beside_tied(tr_run *run, const tr_op *op, int behind, tr_request **request) {
  const tr_layout *layout = run->options.layout;
  size_t first, count, tied = (size_t)layout->param_offset[run->tied_param];
  bucket_range(run, op, &first, &count);
  size_t begin = behind ? tied + (size_t)layout->param_count[run->tied_param] : first,
         end = behind ? first + count : tied;
  if (run->ngrad == 1 || begin >= end) return TR_OK;
  if (!is_split(run)) return sum_all(run, begin, end - begin, request);
  size_t *start = run->tied_starts + (size_t)behind * ((size_t)run->nsharer + 1);
  for (int r = 0; r <= run->nsharer; r++) {
    size_t at = first + run->share[op->bucket].start[r];
    start[r] = (at < begin ? begin : at > end ? end : at) - begin;
  }
  return sum_parts(run, begin, end - begin, start, NULL, NULL, request);
}

// The part of the final sums in [begin, end), as wide numbers again.
static void widen_within(tr_run *run, const tr_op *op, size_t begin, size_t end) {
  size_t first, count;
  final_range(run, op, &first, &count);
  if (begin < first) begin = first;
  if (end > first + count) end = first + count;
  if (begin < end) widen(run, begin, end - begin);
}

static void finish_tied(tr_run *run, const tr_op *op) {
  size_t first, count, tied = (size_t)run->options.layout->param_offset[run->tied_param];
  bucket_range(run, op, &first, &count);
  if (run->wire && !is_split(run) && run->ngrad > 1) {
    widen_within(run, op, first, tied);
    widen_within(run, op, tied + (size_t)run->options.layout->param_count[run->tied_param], first + count);
  }
  if (!run->shares) return;
  final_range(run, op, &first, &count);
  tr__share_begin(run, op->bucket);
  tr__share_squares(&run->share[op->bucket], 0, count);
}

// ---- by role

int tr__sum_phases(const tr_op *op) {
  if (op->role == TR_ROLE_TIED) return 3;
  return op->role == TR_ROLE_LOSS || op->role == TR_ROLE_SQUARES ? 2 : 1;
}

tr_status tr__sum_start(tr_run *run, const tr_op *op, int phase, tr_request **request) {
  switch ((tr_op_role)op->role) {
  case TR_ROLE_GRADIENT: return start_gradients(run, op, request);
  case TR_ROLE_TIED: return phase == 2 ? sum_tied(run, request) : sum_beside_tied(run, op, phase == 1, request);
  case TR_ROLE_COUNT: return gather_numbers(run, op, request);
  case TR_ROLE_LOSS: return phase == 0 ? gather_numbers(run, op, request) : tell_loss(run, op, request);
  case TR_ROLE_SQUARES: return phase == 0 ? meet_owners(run, op, request) : tell_squares(run, request);
  case TR_ROLE_WEIGHTS:
  case TR_ROLE_PACKED: return meet_owners(run, op, request);
  default: return tr_error(TR_ERR_INTERNAL, "the executor has no collective of role %d", op->role);
  }
}

void tr__sum_finish(tr_run *run, const tr_op *op) {
  if (op->role == TR_ROLE_GRADIENT) finish_gradients(run, op);
  if (op->role == TR_ROLE_TIED) finish_tied(run, op);
  if (op->role == TR_ROLE_COUNT) {
    double tokens = sum_over_dp(run, op);
    run->result.tokens = (int64_t)tokens;
    run->scale = tokens > 0 ? 1.0 / tokens : 0;
  }
  if (op->role == TR_ROLE_LOSS) {
    double sum = 0;
    for (int r = 0; r < run->pp; r++) sum += run->norms[r];
    run->result.loss = sum * run->scale;
  }
}
