// SPDX-License-Identifier: MIT
// Evaluation: forward passes only. Through a pipeline, inputs follow each other: while one is in a later stage, the next
// is in an earlier one. A rank with several stages takes a group of inputs through one of them, then through the next; the
// group is no larger than the rings at later stages hold, so that what arrives early has a place. Stages of a rank that
// follow each other are passed at once. Of two copies of each stage, those for direction 0 work. Losses are told to all
// ranks at the end.
#include "run/run_internal.h"
#include <limits.h>

typedef struct evaluation {
  tr_run *run;
  const tr_model_input *input;
  int n;
  double *loss; // of each sequence of all inputs
} evaluation;

static tr_status forward(tr_run *run, int chunk, int slot_in, int slot_out, const tr_model_input *input, tr_op *op) {
  *op = (tr_op){.kind = TR_OP_F,
                .phase = TR_PHASE_EVAL,
                .chunk = (uint16_t)chunk,
                .piece_begin = run->chunk[chunk].piece_begin,
                .piece_end = run->chunk[chunk].piece_end,
                .slot_in = (int16_t)slot_in,
                .slot_out = (int16_t)slot_out,
                .slot_din = -1,
                .slot_dout = -1};
  for (uint32_t i = op->piece_begin; i < op->piece_end; i++) {
    TR_TRY(tr__run_piece_forward(run, (int)i, input, op, 0));
    if (run->options.comm) tr_comm_beat(run->options.comm);
    if (run->options.comm) TR_TRY(tr_comm_progress(run->options.comm));
  }
  tr__run_hand_over(run, op, input->rows);
  return TR_OK;
}

static int is_remote(const tr_run *run, int ring) { return ring >= 0 && run->options.program->ring[ring].peer >= 0; }
static int slots_of(const tr_run *run, int ring) { return ring < 0 ? 1 : run->options.program->ring[ring].slots; }

static tr_request **request_of(const tr_run *run, int ring, int slot) {
  for (int r = 0; r < ring; r++) slot += run->options.program->ring[r].slots;
  return &run->eval_request[slot];
}

static tr_status end_of(const tr_run *run, int ring, int slot) {
  tr_request **request = request_of(run, ring, slot), *pending = *request;
  *request = NULL;
  return pending ? tr_request_wait(pending) : TR_OK;
}

static tr_op message(int ring, int input, int slot) {
  return (tr_op){.phase = TR_PHASE_EVAL, .ring = (uint16_t)ring, .microbatch = input, .slot_in = (int16_t)slot};
}

static tr_status expect(const evaluation *e, int ring, int input) {
  int slot = input % slots_of(e->run, ring);
  tr_op op = message(ring, input, slot);
  return tr__ring_recv(e->run, &op, e->input[input].rows, request_of(e->run, ring, slot));
}

static tr_status take(const evaluation *e, int ring, int input) {
  int slot = input % slots_of(e->run, ring);
  tr_op op = message(ring, input, slot);
  TR_TRY(end_of(e->run, ring, slot));
  return tr__ring_received(e->run, &op, e->input[input].rows);
}

static tr_status give(const evaluation *e, int ring, int input) {
  int slot = input % slots_of(e->run, ring);
  tr_op op = message(ring, input, slot);
  return tr__ring_send(e->run, &op, e->input[input].rows, request_of(e->run, ring, slot));
}

static void note_losses(const evaluation *e, const tr_op *op, int input) {
  double *loss = e->loss;
  const tr_model_input *in = &e->input[input];
  for (int i = 0; i < input; i++) loss += e->input[i].nseq;
  for (int s = 0; s < in->nseq; s++) loss[s] = tr__run_add_losses(e->run, op, in, in->start[s], in->start[s + 1], 0);
}

// One input through one stage.
static tr_status pass(const evaluation *e, int chunk, int input) {
  tr_run *run = e->run;
  tr_op op;
  int in = run->chunk[chunk].ring_in, out = run->chunk[chunk].ring_out,
      last = tr_model_ranges(run->options.model) - 1;
  if (is_remote(run, in)) TR_TRY(take(e, in, input));
  if (is_remote(run, out)) TR_TRY(end_of(run, out, input % slots_of(run, out)));
  TR_TRY(forward(run, chunk, input % slots_of(run, in), input % slots_of(run, out), &e->input[input], &op));
  if (is_remote(run, out)) TR_TRY(give(e, out, input));
  if (chunk == last && tr_model_loss_value(run->options.model) >= 0) note_losses(e, &op, input);
  return TR_OK;
}

static int next_chunk(const tr_run *run, int chunk) {
  do chunk++;
  while (chunk < run->nchunk && run->chunk[chunk].direction != 0);
  return chunk;
}

// The first of the stages that follow `chunk`, but not directly on this rank.
static int end_of_run(const tr_run *run, int chunk) {
  int next = next_chunk(run, chunk);
  while (next < run->nchunk && !is_remote(run, run->chunk[next].ring_in)) next = next_chunk(run, next);
  return next;
}

// Inputs [begin, end) through stages [chunk, last) of this rank. What enters the first stages is received as slots become
// free, what enters later ones has been expected from the group's beginning.
static tr_status pass_group(const evaluation *e, int chunk, int last, int begin, int end, int later) {
  int ring = e->run->chunk[chunk].ring_in, remote = is_remote(e->run, ring), ahead = slots_of(e->run, ring);
  for (int i = begin; remote && !later && i < end && i < begin + ahead; i++) TR_TRY(expect(e, ring, i));
  for (int i = begin; i < end; i++) {
    for (int c = chunk; c < last; c = next_chunk(e->run, c)) TR_TRY(pass(e, c, i));
    if (remote && !later && i + ahead < end) TR_TRY(expect(e, ring, i + ahead));
  }
  return TR_OK;
}

static tr_status pass_all(const evaluation *e) {
  tr_run *run = e->run;
  int first = next_chunk(run, -1);
  for (int begin = 0; begin < e->n; begin += run->eval_group) {
    int end = e->n - begin > run->eval_group ? begin + run->eval_group : e->n;
    for (int c = end_of_run(run, first); c < run->nchunk; c = end_of_run(run, c))
      for (int i = begin; i < end; i++) TR_TRY(expect(e, run->chunk[c].ring_in, i));
    for (int c = first; c < run->nchunk; c = end_of_run(run, c))
      TR_TRY(pass_group(e, c, end_of_run(run, c), begin, end, c != first));
  }
  for (int c = first; c < run->nchunk; c = next_chunk(run, c))
    for (int s = 0; is_remote(run, run->chunk[c].ring_out) && s < slots_of(run, run->chunk[c].ring_out); s++)
      TR_TRY(end_of(run, run->chunk[c].ring_out, s));
  return TR_OK;
}

tr_status tr_run_eval_all(tr_run *run, const tr_model_input *input, int n, double *loss_of_sequence) {
  evaluation e = {run, input, n, loss_of_sequence};
  size_t nseq = 0;
  TR_TRY(tr__run_check_rows(run, input, n));
  for (int i = 0; i < n; i++) nseq += (size_t)input[i].nseq;
  if (run->options.comm) tr_comm_activity(run->options.comm, "evaluation", run->step + 1, -1);
  TR_TRY(pass_all(&e));
  if (run->pp == 1) return TR_OK;
  return tr_group_broadcast(run->options.pp, loss_of_sequence, nseq * sizeof(double), TR_U8, run->loss_rank, NULL);
}

tr_status tr_run_eval(tr_run *run, const tr_model_input *input, double *loss_of_sequence) {
  return tr_run_eval_all(run, input, 1, loss_of_sequence);
}

// What the ranks of a pipeline have to know of each other: who has the loss, and how large a group may be.
tr_status tr__eval_bind(tr_run *run) {
  int32_t own[2] = {0, INT_MAX}, *all = (int32_t *)run->norms;
  run->eval_group = INT_MAX;
  for (int c = next_chunk(run, -1); c < run->nchunk; c = next_chunk(run, c)) {
    int ring = run->chunk[c].ring_in;
    own[0] |= c == run->nchunk - 1 && tr_model_loss_value(run->options.model) >= 0;
    if (c != next_chunk(run, -1) && is_remote(run, ring) && slots_of(run, ring) < own[1])
      own[1] = slots_of(run, ring);
  }
  if (run->pp == 1) return TR_OK;
  TR_TRY(tr_group_allgather(run->options.pp, own, all, sizeof own, TR_U8, NULL));
  for (int r = 0; r < run->pp; r++) {
    if (all[2 * r]) run->loss_rank = r;
    if (all[2 * r + 1] < run->eval_group) run->eval_group = all[2 * r + 1];
  }
  return TR_OK;
}
