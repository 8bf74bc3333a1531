// SPDX-License-Identifier: MIT
// Programs of the ranks of a pipeline, from a schedule. See program.h for what they promise.
#include "step/lower_internal.h"
#include <stdlib.h>

static const tr_step_options no_options = {.dp = 1};

// ---- what a rank is given

static tr_status take_pieces(const tr_step_model *model, const int *chunk_piece, tr_program *p) {
  for (int c = 0, end = 0; c < p->nchunk; end = chunk_piece[2 * c++ + 1]) {
    int first = chunk_piece[2 * c], last = chunk_piece[2 * c + 1];
    if (first < end || last <= first || last > model->npiece)
      return tr_error(TR_ERR_PLAN, "stage %d on rank %d has pieces %d to %d of %d: chunks ascend and hold pieces",
                      p->chunk[c].stage, p->rank, first, last - 1, model->npiece);
    p->chunk[c].piece_begin = (uint32_t)first;
    p->chunk[c].piece_end = (uint32_t)last;
  }
  return TR_OK;
}

static tr_status check_ranges(const tr_program *p, const tr_step_options *options) {
  for (int r = 0; r < options->nrecompute; r++) {
    int inside = 0;
    for (int c = 0; c < p->nchunk; c++)
      inside |= options->recompute[r].begin >= (int)p->chunk[c].piece_begin &&
                options->recompute[r].end <= (int)p->chunk[c].piece_end;
    if (!inside)
      return tr_error(TR_ERR_PLAN, "recomputation %d covers pieces %d to %d, which are not of one stage", r,
                      options->recompute[r].begin, options->recompute[r].end - 1);
  }
  return TR_OK;
}

static tr_status take_model(tr__lowering *low, const int *chunk_piece) {
  if (!low->model) return TR_OK;
  TR_TRY(tr__lower_check_options(low->model, low->options));
  if (low->options->grad_sync == TR_SYNC_EVERY)
    return tr_error(TR_ERR_PLAN, "gradients of a pipeline cannot be summed after every micro-batch, several of which "
                                 "are under way: comm.grad_sync=last would work");
  TR_TRY(take_pieces(low->model, chunk_piece, low->program));
  return check_ranges(low->program, low->options);
}

// ---- lists

static tr_status list_halves(tr__lowering *low, const tr_schedule *s) {
  const int rank = low->program->rank;
  uint32_t n = s->begin[rank + 1] - s->begin[rank];
  low->half = malloc(sizeof *low->half * (2 * (size_t)n + 1));
  if (!low->half) return tr_error(TR_ERR_MEMORY, "no memory to lower schedule %s", s->name);
  for (uint32_t i = 0; i < n; i++) {
    tr_pass half[2];
    int count = tr__pass_halves(&s->pass[s->begin[rank] + i], half);
    for (int h = 0; h < count; h++) {
      int chunk = tr__lower_chunk(low->program, half[h].stage, tr_schedule_direction(s, half[h].microbatch));
      tr__half *out = &low->half[low->nhalf++];
      *out = tr__half_new(half[h].kind, chunk, half[h].microbatch, i);
      out->pair = count == 2;
      low->split |= half[h].kind == TR_OP_W;
    }
  }
  return TR_OK;
}

static void find_rings(const tr__lowering *low) {
  for (uint32_t i = 0; i < low->nmessage; i++) {
    tr__message *m = &low->message[i];
    m->ring = tr__lower_ring(low->program, m->stage, m->role, m->direction);
  }
}

static tr_status lower_rank(tr__lowering *low, const tr_schedule *s, int rank, const int *chunk_piece) {
  TR_TRY(tr__lower_places(s, rank, low->program));
  TR_TRY(take_model(low, chunk_piece));
  TR_TRY(list_halves(low, s));
  find_rings(low);
  TR_TRY(tr__lower_flags(low));
  TR_TRY(tr__lower_slots(low));
  if (low->model) return tr__lower_training(low);
  uint32_t first_pass;
  return tr__lower_passes(low, TR__NO_OP, &first_pass);
}

static tr_status build_rank(const tr_schedule *s, int rank, const tr__arrivals *arrivals, const tr_step_model *model,
                            const int *chunk_piece, const tr_step_options *options, tr_program *out) {
  tr_program program = {0};
  tr__lowering low = {.program = &program,
                      .model = model,
                      .options = options,
                      .message = &arrivals->message[arrivals->begin[rank]],
                      .nmessage = arrivals->begin[rank + 1] - arrivals->begin[rank]};
  return tr__lower_finish(&low, lower_rank(&low, s, rank, chunk_piece), out);
}

static tr_status check_rank(const tr_schedule *s, int rank) {
  if (rank >= 0 && rank < s->p) return TR_OK;
  return tr_error(TR_ERR_PLAN, "rank %d is not of a pipeline of %d ranks", rank, s->p);
}

tr_status tr_program_build_pipeline(const tr_schedule *schedule, int rank, const tr_step_model *model,
                                    const int *chunk_piece, const tr_step_options *options, tr_program *out) {
  tr__arrivals arrivals;
  TR_TRY(tr_schedule_check(schedule));
  TR_TRY(check_rank(schedule, rank));
  TR_TRY(tr__walk(schedule, rank, 1, &arrivals));
  tr_status status = build_rank(schedule, rank, &arrivals, model, chunk_piece, model ? options : &no_options, out);
  tr__arrivals_free(&arrivals);
  return status;
}

// ---- all ranks

struct tr_walk {
  const tr_schedule *schedule;
  tr__arrivals arrivals;
};

tr_status tr_walk_create(const tr_schedule *schedule, tr_walk **out) {
  TR_TRY(tr_schedule_check(schedule));
  tr_walk *walk = malloc(sizeof *walk);
  if (!walk) return tr_error(TR_ERR_MEMORY, "no memory to lower schedule %s", schedule->name);
  walk->schedule = schedule;
  tr_status status = tr__walk(schedule, 0, schedule->p, &walk->arrivals);
  if (status < 0)
    free(walk);
  else
    *out = walk;
  return status;
}

void tr_walk_destroy(tr_walk *walk) {
  if (!walk) return;
  tr__arrivals_free(&walk->arrivals);
  free(walk);
}

tr_status tr_program_build_rank(tr_walk *walk, int rank, const tr_step_model *model, const int *chunk_piece,
                                const tr_step_options *options, tr_program *out) {
  TR_TRY(check_rank(walk->schedule, rank));
  return build_rank(walk->schedule, rank, &walk->arrivals, model, chunk_piece, options, out);
}

tr_status tr_program_build_ranks(const tr_schedule *schedule, tr_program *out) {
  tr__arrivals arrivals;
  TR_TRY(tr_schedule_check(schedule));
  TR_TRY(tr__walk(schedule, 0, 0, &arrivals));
  tr_status status = TR_OK;
  for (int r = 0; r < schedule->p && status == TR_OK; r++) {
    status = build_rank(schedule, r, &arrivals, NULL, NULL, &no_options, &out[r]);
    for (; status < 0 && r > 0; r--) tr_program_destroy(&out[r - 1]);
  }
  tr__arrivals_free(&arrivals);
  return status;
}
