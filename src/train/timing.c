// SPDX-License-Identifier: MIT
// The observer that reads the clock: twice for each operation and each piece, and for what the loop does around them.
// It runs where somebody asks for it: on every rank of a traced job or of a pipeline, on rank 0 for profiles and, when there are
// several ranks, for the log line's ratio of communication to computation. Nothing here allocates or calls the system while a
// program runs; memory is sampled between steps, and only for a trace.
#include "train/timing_internal.h"
#include "trireme/base/clock.h"
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static void open_slice(struct tr__timing *m, tr__event event) {
  tr__ring *ring = m->ring;
  uint32_t depth = atomic_load_explicit(&ring->depth, memory_order_relaxed);
  event.begin = tr_clock_ns();
  if (depth < TR__OPEN_SLICES) ring->open[depth] = event;
  atomic_store_explicit(&ring->depth, depth + 1, memory_order_release);
}

static tr__event close_slice(struct tr__timing *m) {
  tr__ring *ring = m->ring;
  int64_t now = tr_clock_ns();
  uint32_t depth = atomic_load_explicit(&ring->depth, memory_order_relaxed) - 1;
  tr__event event = {.begin = now, .kind = -1};
  if (depth < TR__OPEN_SLICES) event = ring->open[depth];
  event.end = now;
  atomic_store_explicit(&ring->depth, depth, memory_order_release);
  if (event.kind >= 0) tr__ring_put(ring, &event);
  return event;
}

// ---- the executor's operations and pieces. Steps are numbered as in the log: the first is 1.

static void op_begin(void *user, int64_t step, uint32_t index, const tr_op *op) {
  struct tr__timing *m = ((tr__trainer *)user)->timing;
  if (op->lane == TR_LANE_COMM) {
    m->ring->under_way[index] = (tr__under_way){tr_clock_ns(), step + 1};
    return;
  }
  m->computing = 1;
  m->piece_ns = 0;
  open_slice(m, (tr__event){.kind = TR__EVENT_OP, .step = step + 1, .op = (int32_t)index, .piece = -1});
}

static void end_comm(const tr__trainer *t, uint32_t index, const tr_op *op) {
  struct tr__timing *m = t->timing;
  tr__under_way *from = &m->ring->under_way[index];
  tr__event event = {.begin = from->begin,
                     .end = tr_clock_ns(),
                     .step = from->step,
                     .op = (int32_t)index,
                     .piece = -1,
                     .kind = TR__EVENT_OP};
  from->begin = 0;
  tr__ring_put(m->ring, &event);
  int64_t waited = m->computing ? 0 : event.end - m->idle_since;
  m->idle_since = event.end;
  if (m->profile) tr__profile_op(m->profile, t, op, waited, event.end - event.begin);
  if (m->bubble) tr__bubble_op(m->bubble, index, op, event.end - event.begin, 0);
}

static void op_end(void *user, int64_t step, uint32_t index, const tr_op *op) {
  (void)step;
  const tr__trainer *t = user;
  struct tr__timing *m = t->timing;
  if (op->lane == TR_LANE_COMM) {
    end_comm(t, index, op);
    return;
  }
  tr__event event = close_slice(m);
  m->computing = 0;
  m->idle_since = event.end;
  const int64_t took = event.end - event.begin, kernels = op->kind <= TR_OP_R ? m->piece_ns : took;
  if (m->bubble) tr__bubble_op(m->bubble, index, op, took, kernels);
  if (op->kind <= TR_OP_R) return; // made of pieces
  m->compute_ns += took;
  if (m->profile) tr__profile_op(m->profile, t, op, event.end - event.begin, 0);
}

static void piece_begin(void *user, int piece, const tr_op *op, const tr_model_input *input) {
  (void)input;
  const tr__trainer *t = user;
  struct tr__timing *m = t->timing;
  int32_t index = op->phase == TR_PHASE_EVAL ? TR__NO_OP : (int32_t)(op - t->part->program.op);
  const int64_t step = t->step + (index != TR__NO_OP); // an evaluation comes when its step is counted
  open_slice(m, (tr__event){.kind = TR__EVENT_PIECE, .step = step, .op = index, .piece = piece});
}

static void piece_end(void *user, int piece, const tr_op *op, const tr_model_input *input) {
  const tr__trainer *t = user;
  struct tr__timing *m = t->timing;
  tr__event event = close_slice(m);
  if (op->phase == TR_PHASE_EVAL) return;
  m->compute_ns += event.end - event.begin;
  m->piece_ns += event.end - event.begin;
  if (m->profile) tr__profile_piece(m->profile, t, piece, op, input, event.end - event.begin);
}

void tr__timing_observe(tr__trainer *t, tr_run_options *options) {
  if (!t->timing) return;
  options->observer[options->nobserver++] = (tr_run_observer){
      .op_begin = op_begin, .op_end = op_end, .piece_begin = piece_begin, .piece_end = piece_end, .user = t};
}

// ---- the loop's slices

void tr__timing_begin(tr__trainer *t, tr__slice slice) {
  if (!t->timing) return;
  const int64_t step = t->step + (slice <= TR__SLICE_PROGRAM); // what comes after the program finds the step counted
  open_slice(t->timing, (tr__event){.kind = (int32_t)slice, .step = step, .op = TR__NO_OP, .piece = -1});
  t->timing->idle_since = tr_clock_ns();
}

static int64_t end_slice(struct tr__timing *m) {
  tr__event event = close_slice(m);
  if (m->profile) tr__profile_slice(m->profile, (tr__slice)event.kind, event.end - event.begin);
  return event.end - event.begin;
}

void tr__timing_end(tr__trainer *t) {
  if (t->timing) end_slice(t->timing);
}

static void count(tr__ring *ring, tr__event_kind kind, int64_t step, double value) {
  int64_t now = tr_clock_ns();
  tr__ring_put(ring, &(tr__event){.begin = now, .end = now, .step = step, .value = value, .kind = (int32_t)kind});
}

// The second number of the file: resident pages.
static double resident_bytes(int fd) {
  char text[128];
  ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
  if (n <= 0) return 0;
  text[n] = '\0';
  char *at;
  strtoll(text, &at, 10);
  return (double)strtoll(at, NULL, 10) * (double)sysconf(_SC_PAGESIZE);
}

static double arena_bytes(tr__trainer *t) {
  return (double)(t->part->rank_nbyte - t->part->arena_nbyte + tr_comm_arena(t->comm)->used);
}

void tr__timing_program(tr__trainer *t, const tr_step_result *result) {
  struct tr__timing *m = t->timing;
  if (!m) return;
  const int64_t took = end_slice(m);
  m->program_ns += took;
  if (m->bubble) tr__bubble_step(m->bubble, took);
  if (!m->ring->capacity) return;
  double seconds = (double)(tr_clock_ns() - m->ring->open[0].begin) * 1e-9;
  count(m->ring, TR__EVENT_ARENAS, t->step + 1, arena_bytes(t));
  count(m->ring, TR__EVENT_RESIDENT, t->step + 1, resident_bytes(m->memory_fd));
  if (t->rank != 0) return;
  if (isfinite(result->loss)) count(m->ring, TR__EVENT_LOSS, t->step + 1, result->loss);
  count(m->ring, TR__EVENT_RATE, t->step + 1, (double)result->tokens / seconds);
}

void tr__timing_wrote(tr__trainer *t, int64_t begin, const tr_saved *saved) {
  if (!t->timing || !t->plan->config->checkpoint.background) return;
  int64_t now = tr_clock_ns(), end = begin + (int64_t)(saved->write * 1e9);
  tr__ring_put(t->timing->ring, &(tr__event){.begin = begin,
                                             .end = end < now ? end : now,
                                             .step = saved->step,
                                             .op = TR__NO_OP,
                                             .piece = -1,
                                             .kind = TR__EVENT_WRITE});
}

double tr__timing_rho(tr__trainer *t) {
  struct tr__timing *m = t->timing;
  if (!m || m->compute_ns <= 0) return -1;
  double rho = (double)(m->program_ns - m->compute_ns) / (double)m->compute_ns;
  m->program_ns = m->compute_ns = 0;
  return rho;
}

// ---- opening

tr_status tr__timing_open(tr__trainer *t) {
  const tr_train_plan *plan = t->plan;
  int speaks = t->rank == 0 && (plan->config->run.profile > 0 || tr_comm_size(t->comm) > 1);
  if (!t->trace && !speaks && plan->schedule.p < 2) return TR_OK;
  struct tr__timing *m = t->timing = calloc(1, sizeof *m);
  if (!m) return tr_error(TR_ERR_MEMORY, "no memory to measure times with");
  m->memory_fd = -1;
  m->ring = t->trace ? tr__trace_ring(t->trace, t->rank) : &m->own;
  if (t->rank == 0 && plan->config->run.profile > 0) TR_TRY(tr__profile_open(t, &m->profile));
  if (plan->schedule.p > 1) TR_TRY(tr__bubble_open(t, &m->bubble));
  if (t->trace) {
    m->memory_fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    return tr__trace_join(t);
  }
  m->own.under_way = calloc(t->part->program.nop + 1, sizeof *m->own.under_way);
  return m->own.under_way ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory to measure times with");
}

void tr__timing_close(tr__trainer *t) {
  struct tr__timing *m = t->timing;
  if (!m) return;
  if (m->memory_fd >= 0) close(m->memory_fd);
  tr__profile_close(m->profile);
  tr__bubble_close(m->bubble);
  free(m->own.under_way);
  free(m);
  t->timing = NULL;
}
