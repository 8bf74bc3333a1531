// SPDX-License-Identifier: MIT
// Executing a step: the compute lane in list order; before each operation, what it waits for; between pieces, a beat
// for the other ranks' deadlines and a push for the communication under way.
#include "run/run_internal.h"

// After each piece: others see progress, sums move on, a job that is stopping stops here.
static tr_status between_pieces(tr_run *run) {
  if (!run->options.comm) return TR_OK;
  tr_comm_beat(run->options.comm);
  return tr__run_comm_advance(run);
}

static tr_status run_forward(tr_run *run, const tr_op *op) {
  const tr_model_input *input = &run->input[op->microbatch];
  for (uint32_t i = op->piece_begin; i < op->piece_end; i++) {
    TR_TRY(tr__run_piece_forward(run, (int)i, input, op, 1));
    TR_TRY(between_pieces(run));
  }
  tr__run_hand_over(run, op, input->rows);
  return TR_OK;
}

// Only what has to be there again; the rest of these pieces kept what they wrote.
static tr_status run_again(tr_run *run, const tr_op *op) {
  for (uint32_t i = op->piece_begin; i < op->piece_end; i++) {
    if (!run->plan.again[i]) continue;
    TR_TRY(tr__run_piece_forward(run, (int)i, &run->input[op->microbatch], op, 1));
    TR_TRY(between_pieces(run));
  }
  return TR_OK;
}

double tr__run_add_losses(const tr_run *run, const tr_op *op, const tr_model_input *input, int64_t first,
                          int64_t last, double sum) {
  const void *loss = tr__run_resolve(run, op, &run->plan.value[tr_model_loss_value(run->options.model)]);
  for (int64_t r = first; r < last; r++)
    if (input->target[r] >= 0) sum += run->wide == TR_F64 ? ((const double *)loss)[r] : ((const float *)loss)[r];
  return sum;
}

static tr_status run_backward(tr_run *run, const tr_op *op) {
  const tr_model_input *input = &run->input[op->microbatch];
  int last = tr_model_loss_value(run->options.model) < 0 ? -1 : tr_model_pieces(run->options.model) - 1;
  for (uint32_t i = op->piece_end; i-- > op->piece_begin;) {
    TR_TRY(tr__run_piece_backward(run, (int)i, input, op));
    if ((int)i == last && op->kind != TR_OP_W)
      run->losses[op->microbatch] = tr__run_add_losses(run, op, input, 0, input->rows, 0);
    TR_TRY(between_pieces(run));
  }
  return TR_OK;
}

static tr_status run_op(tr_run *run, const tr_op *op) {
  switch ((tr_op_kind)op->kind) {
  case TR_OP_F: return run_forward(run, op);
  case TR_OP_R: return run_again(run, op);
  case TR_OP_B:
  case TR_OP_I:
  case TR_OP_W: return run_backward(run, op);
  case TR_OP_NORM:
  case TR_OP_UPDATE:
  case TR_OP_PUBLISH: return tr__run_state_op(run, op);
  default: return tr_error(TR_ERR_INTERNAL, "the executor has no operation %s", tr_op_name((tr_op_kind)op->kind));
  }
}

int tr__run_edge_done(const tr_run *run, const tr_edge *edge) {
  int64_t needed = run->step_count + 1 + edge->step_offset;
  return needed <= 0 || run->done[edge->op] >= (uint64_t)needed;
}

void tr__run_op_begin(tr_run *run, uint32_t index) {
  for (int i = 0; i < run->options.nobserver; i++) {
    const tr_run_observer *o = &run->options.observer[i];
    if (o->op_begin) o->op_begin(o->user, run->step, index, &run->options.program->op[index]);
  }
}

void tr__run_op_done(tr_run *run, uint32_t index) {
  run->done[index]++;
  for (int i = 0; i < run->options.nobserver; i++) {
    const tr_run_observer *o = &run->options.observer[i];
    if (o->op_end) o->op_end(o->user, run->step, index, &run->options.program->op[index]);
  }
}

static tr_status wait_for_edges(tr_run *run, const tr_op *op) {
  const tr_program *program = run->options.program;
  TR_TRY(tr__run_comm_advance(run));
  for (uint32_t e = op->edge_begin; e < op->edge_end; e++)
    if (!tr__run_edge_done(run, &program->edge[e])) TR_TRY(tr__run_comm_wait(run, program->edge[e].op));
  return TR_OK;
}

static tr_status run_compute_op(tr_run *run, uint32_t index) {
  const tr_op *op = &run->options.program->op[index];
  TR_TRY(wait_for_edges(run, op));
  if (run->options.comm)
    tr_comm_activity(run->options.comm, tr_op_name((tr_op_kind)op->kind), run->step + 1, // people count from one
                     op->kind <= TR_OP_R ? op->microbatch : -1);
  tr__run_op_begin(run, index);
  TR_TRY(run_op(run, op));
  tr__run_op_done(run, index);
  return between_pieces(run);
}

// More rows than were laid out would write past the slots.
tr_status tr__run_check_rows(const tr_run *run, const tr_model_input *input, int n) {
  for (int i = 0; i < n; i++)
    if (input[i].rows < 0 || input[i].rows > run->options.rows)
      return tr_error(TR_ERR_DATA, "a micro-batch of %lld rows: this run was made for at most %lld",
                      (long long)input[i].rows, (long long)run->options.rows);
  return TR_OK;
}

static void begin_step(tr_run *run, int64_t step, double lr, const tr_model_input *input) {
  run->input = input;
  run->step = step;
  run->lr = lr;
  run->scale = 0;
  run->result = (tr_step_result){.clip = 1};
  for (int q = 0; q < TR_QUEUE_RINGS + run->nring; q++) run->queue[q].head = run->queue[q].begin;
  for (int mb = 0; mb < run->options.program->microbatches; mb++) run->losses[mb] = 0;
  for (int i = 0; i < tr_model_params(run->options.model); i++)
    if (run->touched[i]) run->touched[i] = TR__SHARED;
}

tr_status tr_run_step(tr_run *run, int64_t step, double lr, const tr_model_input *input, tr_step_result *result) {
  const tr_program *program = run->options.program;
  if (!program) return tr_error(TR_ERR_USAGE, "this run was made for evaluation only");
  TR_TRY(tr__run_check_rows(run, input, program->microbatches));
  begin_step(run, step, lr, input);
  for (uint32_t i = 0; i < program->nop; i++)
    if (program->op[i].lane == TR_LANE_COMPUTE) TR_TRY(run_compute_op(run, i));
  TR_TRY(tr__run_comm_finish(run));
  run->step_count++;
  if (!run->result.skipped) run->updates++;
  *result = run->result;
  return TR_OK;
}
