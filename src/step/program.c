// SPDX-License-Identifier: MIT
// Building programs. The schedule (here: each micro-batch forward, then backward) is lowered in one walk; a backward
// pass is cut only where a bucket becomes complete, because that is where a REDUCE has to start, and where values have
// to be computed again before it can go on.
#include "trireme/step/program.h"
#include <stdlib.h>

enum {
  MOST_OPERATIONS = 1 << 16,
  MOST_PAIRS = 1 << 28
}; // of an operation and a communication: the check compares them

static const char *const op_name[TR_OP_KIND_COUNT] = {
#define X(name, text, what) text,
    TR_OP_TABLE(X)
#undef X
};

const char *tr_op_name(tr_op_kind kind) { return op_name[kind]; }

_Static_assert(sizeof(tr_op) <= 128, "an operation record takes at most two cache lines");

typedef struct pending_edge {
  uint32_t op;
  tr_edge edge;
} pending_edge;

// What is being built, with the first failure kept until the end: appending stays readable.
typedef struct lowering {
  tr_program *program;
  const tr_step_model *model;
  const tr_step_options *options;
  pending_edge *edge;
  uint32_t nedge, edge_capacity;
  int held; // range whose values are in the recompute area, -1: none
  int failed;
} lowering;

static uint32_t append_op(lowering *low, tr_op op) {
  tr_program *p = low->program;
  if (p->nop == p->op_capacity) {
    uint32_t capacity = p->op_capacity ? 2 * p->op_capacity : 64;
    tr_op *grown = realloc(p->op, capacity * sizeof *grown);
    if (!grown) {
      low->failed = 1;
      return 0;
    }
    p->op = grown;
    p->op_capacity = capacity;
  }
  p->op[p->nop] = op;
  return p->nop++;
}

// `op` waits for `before` of the step at `step_offset`. Edges may be added in any order; finish()
// sorts them by operation.
static void append_edge(lowering *low, uint32_t op, uint32_t before, int step_offset) {
  if (low->failed) return;
  if (low->nedge == low->edge_capacity) {
    uint32_t capacity = low->edge_capacity ? 2 * low->edge_capacity : 64;
    pending_edge *grown = realloc(low->edge, capacity * sizeof *grown);
    if (!grown) {
      low->failed = 1;
      return;
    }
    low->edge = grown;
    low->edge_capacity = capacity;
  }
  low->edge[low->nedge++] = (pending_edge){op, {before, step_offset}};
}

static tr_op new_op(tr_op_kind kind, tr_lane lane) {
  return (tr_op){.kind = (uint8_t)kind,
                 .lane = (uint8_t)lane,
                 .microbatch = -1,
                 .peer = -1,
                 .slot_fi = -1,
                 .slot_fw = -1,
                 .slot_iw = -1};
}

// ---- buckets: units in the order in which backward completes them, joined while they touch and the bucket is small

static int compare_ready(const tr_step_model *model, int a, int b) {
  int pa = model->unit_last_piece[a], pb = model->unit_last_piece[b];
  return pa != pb ? pb - pa : b - a;
}

static void sort_units(const tr_step_model *model, int *unit) {
  for (int i = 0; i < model->nunit; i++) {
    int at = i;
    for (; at > 0 && compare_ready(model, unit[at - 1], i) > 0; at--) unit[at] = unit[at - 1];
    unit[at] = i;
  }
}

static int64_t bucket_size(const tr_step_model *model, const tr_bucket *bucket) {
  return model->unit_start[bucket->unit_end] - model->unit_start[bucket->unit_begin];
}

static int join_bucket(const tr_step_model *model, tr_bucket *bucket, int unit, int64_t enough) {
  if (bucket_size(model, bucket) >= enough) return 0;
  if (unit == bucket->unit_begin - 1)
    bucket->unit_begin = unit;
  else if (unit == bucket->unit_end)
    bucket->unit_end = unit + 1;
  else
    return 0;
  bucket->last_piece = model->unit_last_piece[unit];
  return 1;
}

static tr_status make_buckets(lowering *low) {
  const tr_step_model *model = low->model;
  tr_program *p = low->program;
  int *unit = malloc(sizeof *unit * (size_t)model->nunit);
  p->bucket = malloc(sizeof *p->bucket * (size_t)model->nunit);
  if (!unit || !p->bucket) {
    free(unit);
    return tr_error(TR_ERR_MEMORY, "no memory for %d buckets", model->nunit);
  }
  sort_units(model, unit);
  for (int i = 0; i < model->nunit; i++)
    if (i == 0 || !join_bucket(model, &p->bucket[p->nbucket - 1], unit[i], low->options->bucket_elements))
      p->bucket[p->nbucket++] = (tr_bucket){unit[i], unit[i] + 1, model->unit_last_piece[unit[i]]};
  free(unit);
  return TR_OK;
}

// ---- lowering

static uint32_t lower_forward(lowering *low, int mb, int first_of_step, uint32_t count_op) {
  tr_op op = new_op(TR_OP_F, TR_LANE_COMPUTE);
  op.microbatch = mb;
  op.piece_end = (uint32_t)low->model->npiece;
  op.slot_fi = op.slot_fw = 0;
  uint32_t index = append_op(low, op);
  low->held = low->options->nrecompute - 1;
  if (first_of_step) append_edge(low, index, count_op, 0);
  return index;
}

static void append_reduce(lowering *low, int bucket, int mb, uint32_t after) {
  const tr_bucket *b = &low->program->bucket[bucket];
  tr_op op = new_op(TR_OP_REDUCE, TR_LANE_COMM);
  op.role = TR_ROLE_GRADIENT;
  op.bucket = (uint16_t)bucket;
  op.unit_begin = (uint16_t)b->unit_begin;
  op.unit_end = (uint16_t)b->unit_end;
  op.microbatch = mb;
  op.group = 0;
  op.first = mb == 0 || low->options->grad_sync == TR_SYNC_LAST;
  op.last = mb == low->options->microbatches - 1;
  append_edge(low, append_op(low, op), after, 0);
}

// Pieces [begin, end) backward, from the last to the first, as B or as I.
static uint32_t append_backward(lowering *low, tr_op_kind kind, int mb, int begin, int end, int syncing) {
  tr_op op = new_op(kind, TR_LANE_COMPUTE);
  op.microbatch = mb;
  op.piece_begin = (uint32_t)begin;
  op.piece_end = (uint32_t)end;
  op.slot_fi = kind == TR_OP_W ? -1 : 0;
  op.slot_fw = 0;
  op.slot_iw = kind == TR_OP_B ? -1 : 0;
  op.first = low->options->grad_sync == TR_SYNC_EVERY || mb == 0;
  op.last = (uint8_t)syncing;
  return append_op(low, op);
}

// Fills the recompute area for the backward pass that comes to piece `end` - 1, if it reads there and finds another
// range's values. A split pass has given back its F-I slot before W, so R reads F-W only.
static void append_recompute(lowering *low, int mb, int end) {
  const tr_step_range *range = low->options->recompute;
  int r = low->options->nrecompute - 1;
  while (r >= 0 && range[r].begin >= end) r--;
  if (r < 0 || range[r].end < end || r == low->held) return;
  tr_op op = new_op(TR_OP_R, TR_LANE_COMPUTE);
  op.microbatch = mb;
  op.piece_begin = (uint32_t)range[r].begin;
  op.piece_end = (uint32_t)range[r].end;
  op.slot_fi = low->options->split_backward ? -1 : 0;
  op.slot_fw = 0;
  append_op(low, op);
  low->held = r;
}

// Where the part of a pass that starts below `end` stops: at `begin`, or before that where the area has to be filled.
static int cut_for_recompute(const lowering *low, int begin, int end) {
  for (int r = 0; r < low->options->nrecompute; r++) {
    int top = low->options->recompute[r].end;
    if (r != low->held && top > begin && top < end) begin = top;
  }
  return begin;
}

// One pass of kind B, I or W, cut after each piece that completes a bucket which is to be reduced now, and before each
// range that is computed again.
static void lower_cut_pass(lowering *low, tr_op_kind kind, int mb, int syncing) {
  const tr_program *p = low->program;
  int end = low->model->npiece, bucket = 0, reducing = syncing && kind != TR_OP_I;
  while (end > 0) {
    int begin = 0;
    if (reducing && low->options->dp > 1 && bucket < p->nbucket) begin = p->bucket[bucket].last_piece;
    append_recompute(low, mb, end);
    begin = cut_for_recompute(low, begin, end);
    uint32_t op = append_backward(low, kind, mb, begin, end, syncing);
    end = begin;
    for (; reducing && bucket < p->nbucket && p->bucket[bucket].last_piece >= end; bucket++)
      append_reduce(low, bucket, mb, op);
  }
}

static void lower_backward(lowering *low, int mb) {
  int every = low->options->grad_sync == TR_SYNC_EVERY, syncing = every || mb == low->options->microbatches - 1;
  uint32_t first = low->program->nop;
  if (low->options->split_backward) lower_cut_pass(low, TR_OP_I, mb, syncing);
  lower_cut_pass(low, low->options->split_backward ? TR_OP_W : TR_OP_B, mb, syncing);
  if (!every || mb == 0) return;
  // The pass overwrites gradients that the previous micro-batch's sums still read.
  for (uint32_t i = 0; i < first && !low->failed; i++) {
    const tr_op *op = &low->program->op[i];
    if (op->kind == TR_OP_REDUCE && op->role == TR_ROLE_GRADIENT && op->microbatch == mb - 1)
      append_edge(low, first, i, 0);
  }
}

// The loss is complete when the last backward pass is; it travels beside the gradients.
static uint32_t append_loss(lowering *low) {
  const tr_program *p = low->program;
  uint32_t last = p->nop;
  while (last > 0 && p->op[last - 1].lane != TR_LANE_COMPUTE) last--;
  tr_op loss = new_op(TR_OP_REDUCE, TR_LANE_COMM);
  loss.role = TR_ROLE_LOSS;
  uint32_t index = append_op(low, loss);
  append_edge(low, index, last - 1, 0);
  return index;
}

static uint32_t append_units(lowering *low, tr_op_kind kind, tr_lane lane, int unit_begin, int unit_end) {
  tr_op op = new_op(kind, lane);
  op.unit_begin = (uint16_t)unit_begin;
  op.unit_end = (uint16_t)unit_end;
  return append_op(low, op);
}

// Everything that every rank did `after` an operation is known to all, once this has ended.
static uint32_t append_gather(lowering *low, tr_op_role role, uint32_t after) {
  uint32_t gather = append_units(low, TR_OP_GATHER, TR_LANE_COMM, 0, low->model->nunit);
  if (!low->failed) low->program->op[gather].role = (uint8_t)role;
  append_edge(low, gather, after, 0);
  return gather;
}

// NORM waits for every reduction; with owned parts, for the sums of squares of all owners.
static uint32_t lower_norm(lowering *low) {
  const tr_program *p = low->program;
  uint32_t loss = append_loss(low), squares = loss;
  if (low->options->zero) {
    tr_op op = new_op(TR_OP_REDUCE, TR_LANE_COMM);
    op.role = TR_ROLE_SQUARES;
    squares = append_op(low, op);
  }
  uint32_t norm = append_op(low, new_op(TR_OP_NORM, TR_LANE_COMPUTE)), reader = low->options->zero ? squares : norm;
  for (uint32_t i = 0; i < loss && !low->failed; i++)
    if (p->op[i].kind == TR_OP_REDUCE && p->op[i].role == TR_ROLE_GRADIENT) append_edge(low, reader, i, 0);
  append_edge(low, norm, loss, 0);
  if (low->options->zero) append_edge(low, norm, squares, 0);
  return norm;
}

// Updates wait for NORM, and the first forward of the next step for what was published.
static void lower_state(lowering *low, uint32_t first_forward) {
  const int nunit = low->model->nunit;
  uint32_t norm = lower_norm(low), update = norm, publish = norm;
  for (int unit = 0; unit < nunit; unit++) {
    update = append_units(low, TR_OP_UPDATE, TR_LANE_COMPUTE, unit, unit + 1);
    append_edge(low, update, norm, 0);
  }
  uint32_t whole = low->options->zero ? append_gather(low, TR_ROLE_WEIGHTS, update) : update;
  for (int unit = 0; unit < nunit; unit++) {
    publish = append_units(low, TR_OP_PUBLISH, TR_LANE_COMPUTE, unit, unit + 1);
    append_edge(low, publish, whole, 0);
  }
  append_edge(low, first_forward, low->options->zero ? append_gather(low, TR_ROLE_PACKED, publish) : publish, -1);
}

// Edges of one operation side by side, in the order in which they were added.
static void sort_edges(lowering *low) {
  tr_program *p = low->program;
  p->edge = malloc(sizeof *p->edge * (low->nedge + 1));
  if (!p->edge) {
    low->failed = 1;
    return;
  }
  for (uint32_t e = 0; e < low->nedge; e++) p->op[low->edge[e].op].edge_end++;
  for (uint32_t i = 0, at = 0; i < p->nop; i++) {
    uint32_t count = p->op[i].edge_end;
    p->op[i].edge_begin = p->op[i].edge_end = at;
    at += count;
  }
  for (uint32_t e = 0; e < low->nedge; e++) p->edge[p->op[low->edge[e].op].edge_end++] = low->edge[e].edge;
  p->nedge = low->nedge;
}

static tr_status check_length(const lowering *low) {
  uint32_t nop = low->program->nop, ncomm = 0;
  for (uint32_t i = 0; i < nop; i++) ncomm += low->program->op[i].lane == TR_LANE_COMM;
  if (nop <= MOST_OPERATIONS && (uint64_t)nop * ncomm <= MOST_PAIRS) return TR_OK;
  return tr_error(TR_ERR_PLAN,
                  "a step program of %u operations, %u of them communication, is too long to be checked: fewer "
                  "micro-batches, comm.grad_sync=last%s or a larger comm.bucket would work",
                  nop, ncomm, low->options->nrecompute ? ", memory.recompute=none" : "");
}

static tr_status finish(lowering *low, tr_program *out) {
  if (!low->failed && check_length(low) < 0) {
    free(low->edge);
    tr_program_destroy(low->program);
    return TR_ERR_PLAN;
  }
  if (!low->failed) sort_edges(low);
  free(low->edge);
  if (low->failed) {
    tr_program_destroy(low->program);
    return tr_error(TR_ERR_MEMORY, "no memory for the step program");
  }
  *out = *low->program;
  return TR_OK;
}

static tr_status check_sizes(const tr_step_model *model, const tr_step_options *options) {
  if (model->nunit > UINT16_MAX)
    return tr_error(TR_ERR_PLAN, "a model of %d units is too long: at most %d", model->nunit, UINT16_MAX);
  if (options->microbatches < 1 || options->microbatches > TR_STEP_MICROBATCHES)
    return tr_error(TR_ERR_PLAN, "a step has 1 to %d micro-batches per rank, not %d", TR_STEP_MICROBATCHES,
                    options->microbatches);
  if (options->zero < 0 || options->zero > 1)
    return tr_error(TR_ERR_PLAN, "ZeRO stage %d is not known: 0 or 1", options->zero);
  if (options->dp < 1) return tr_error(TR_ERR_PLAN, "gradients are summed over at least 1 rank, not %d", options->dp);
  for (int i = 0; i < model->nunit; i++)
    if (model->unit_last_piece[i] < 0 || model->unit_last_piece[i] >= model->npiece)
      return tr_error(TR_ERR_PLAN, "unit %d ends at piece %d of %d", i, model->unit_last_piece[i], model->npiece);
  for (int r = 0, low = 0; r < options->nrecompute; low = options->recompute[r++].end)
    if (options->recompute[r].begin < low || options->recompute[r].end <= options->recompute[r].begin ||
        options->recompute[r].end > model->npiece)
      return tr_error(TR_ERR_PLAN, "recomputation %d covers pieces %d to %d of %d, which must ascend", r,
                      options->recompute[r].begin, options->recompute[r].end - 1, model->npiece);
  return TR_OK;
}

tr_status tr_program_build(const tr_step_model *model, const tr_step_options *options, tr_program *out) {
  TR_TRY(check_sizes(model, options));
  tr_program program = {.microbatches = options->microbatches,
                        .slots_fi = 1,
                        .slots_fw = 1,
                        .slots_iw = options->split_backward ? 1 : 0};
  lowering low = {.program = &program, .model = model, .options = options, .held = -1};
  tr_status status = make_buckets(&low);
  if (status < 0) {
    tr_program_destroy(&program);
    return status;
  }
  tr_op count = new_op(TR_OP_REDUCE, TR_LANE_COMM);
  count.role = TR_ROLE_COUNT;
  uint32_t count_op = append_op(&low, count), first_forward = 0;
  for (int mb = 0; mb < options->microbatches; mb++) {
    uint32_t forward = lower_forward(&low, mb, mb == 0, count_op);
    if (mb == 0) first_forward = forward;
    lower_backward(&low, mb);
  }
  lower_state(&low, first_forward);
  return finish(&low, out);
}

tr_status tr_program_build_eval(const tr_step_model *model, tr_program *out) {
  tr_step_options options = {.microbatches = 1, .dp = 1};
  TR_TRY(check_sizes(model, &options));
  tr_program program = {.microbatches = 1, .slots_fi = 1, .slots_fw = 1};
  lowering low = {.program = &program, .model = model, .options = &options};
  uint32_t forward = lower_forward(&low, 0, 0, 0);
  if (!low.failed) program.op[forward].phase = TR_PHASE_EVAL;
  return finish(&low, out);
}

void tr_program_destroy(tr_program *program) {
  free(program->op);
  free(program->edge);
  free(program->bucket);
  *program = (tr_program){0};
}
