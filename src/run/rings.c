// SPDX-License-Identifier: MIT
// What crosses between stages. A ring's slots hold the values of one micro-batch each, where pieces of the stages at both
// ends write and read them. Where the other end is on another rank, a slot lies in the shared arena behind a header, and both
// travel as one message, from slot to slot, without a copy in between:
//
//   | header | values of slot 0 | header | values of slot 1 | ...
//
// Where values travel in a narrower type, messages are slots of their own, and conversion is the copy between. The header
// says what the message is; the receiver knows what must come next on each channel, and takes nothing else.
#include "run/run_internal.h"
#include <string.h>

typedef struct header {
  uint32_t mark;
  uint16_t stage;
  uint8_t role, direction;
  int32_t microbatch;
  uint32_t phase;
  int64_t step;
  uint64_t nbyte; // of the values
} header;
enum { MARK = 0x52495454, HEADER = TR_ARENA_ALIGN };

tr_dtype tr__ring_type(const tr_run_options *o) {
  return o->stage_wire == TR_BF16 && o->type == TR_F32 ? TR_BF16 : o->type;
}

// Elements of a row of what the ring holds: of what enters or leaves a chunk at one of its ends.
static int64_t ring_width(const tr_run_options *o, int ring) {
  const tr_chunk *chunk = o->program->chunk;
  for (int c = 0; c < o->program->nchunk; c++) {
    int begin, end, value = -1;
    tr_model_boundary boundary;
    tr_model_range(o->model, c, &begin, &end, &boundary);
    if (chunk[c].ring_in == ring || chunk[c].ring_dout == ring) value = boundary.in;
    if (chunk[c].ring_out == ring || chunk[c].ring_din == ring) value = boundary.out;
    if (value >= 0) return tr_model_value(o->model, value)->width;
  }
  return 0;
}

void tr__ring_sizes_of(const tr_run_options *o, int ring, tr__ring_sizes *out) {
  int remote = o->program->ring[ring].peer >= 0, converted = tr__ring_type(o) != o->type;
  out->width = ring_width(o, ring);
  size_t nelem = (size_t)(o->rows * out->width);
  out->values = !remote || converted ? tr_arena_rounded(nelem * tr_dtype_size(o->type)) : 0;
  out->message = remote ? HEADER + tr_arena_rounded(nelem * tr_dtype_size(tr__ring_type(o))) : 0;
}

tr_status tr__rings_bind(tr_run *run, tr_arena *shared) {
  for (int r = 0; r < run->nring; r++) {
    const tr_ring *ring = &run->options.program->ring[r];
    tr__bound_ring *bound = &run->ring[r];
    tr__ring_sizes sizes;
    tr__ring_sizes_of(&run->options, r, &sizes);
    bound->width = sizes.width;
    bound->tag = (ring->stage * 2 + (ring->role == TR_ROLE_DERIVATIVE)) * 2 + ring->direction;
    if (sizes.message) {
      bound->message_stride = bound->values_stride = sizes.message;
      bound->message = tr_arena_alloc(shared, (size_t)ring->slots * sizes.message);
      if (!bound->message) return TR_ERR_MEMORY;
      memset(bound->message, 0, (size_t)ring->slots * sizes.message);
      bound->values = bound->message + HEADER;
      tr_group_expect(run->options.pp, ring->peer);
    }
    if (sizes.values) {
      bound->values_stride = sizes.values;
      tr_arena *arena = tr__run_values_travel(&run->options) ? shared : &run->memory;
      bound->values = tr_arena_alloc(arena, (size_t)ring->slots * sizes.values);
      if (!bound->values) return TR_ERR_MEMORY;
      if (arena == shared) memset(bound->values, 0, (size_t)ring->slots * sizes.values);
    }
  }
  return TR_OK;
}

static header header_of(const tr_run *run, const tr_op *op, int64_t rows) {
  const tr_ring *ring = &run->options.program->ring[op->ring];
  return (header){.mark = MARK,
                  .stage = ring->stage,
                  .role = ring->role,
                  .direction = ring->direction,
                  .microbatch = op->microbatch,
                  .phase = op->phase,
                  .step = run->step,
                  .nbyte = (uint64_t)(rows * run->ring[op->ring].width) * tr_dtype_size(run->stage_type)};
}

static char *message_of(const tr_run *run, const tr_op *op) {
  const tr__bound_ring *ring = &run->ring[op->ring];
  return ring->message + (size_t)op->slot_in * ring->message_stride;
}

// Between the values of a slot and its message, where these are two.
static void convert(tr_run *run, const tr_op *op, int64_t rows, int receiving) {
  char *values = tr__ring_values(run, op->ring, op->slot_in), *travels = message_of(run, op) + HEADER;
  size_t n = (size_t)(rows * run->ring[op->ring].width);
  if (values == travels) return;
  if (receiving)
    run->compute.kernels->convert(&run->compute, n, run->stage_type, travels, run->options.type, values);
  else
    run->compute.kernels->convert(&run->compute, n, run->options.type, values, run->stage_type, travels);
}

tr_status tr__ring_send(tr_run *run, const tr_op *op, int64_t rows, tr_request **request) {
  header own = header_of(run, op, rows);
  char *message = message_of(run, op);
  convert(run, op, rows, 0);
  memcpy(message, &own, sizeof own);
  return tr_group_send(run->options.pp, run->options.program->ring[op->ring].peer, run->ring[op->ring].tag, message,
                       HEADER + own.nbyte, request);
}

tr_status tr__ring_recv(tr_run *run, const tr_op *op, int64_t rows, tr_request **request) {
  return tr_group_recv(run->options.pp, run->options.program->ring[op->ring].peer, run->ring[op->ring].tag,
                       message_of(run, op), HEADER + header_of(run, op, rows).nbyte, request);
}

static const char *what(int role) { return role == TR_ROLE_DERIVATIVE ? "the gradient" : "the activation"; }

tr_status tr__ring_received(tr_run *run, const tr_op *op, int64_t rows) {
  header want = header_of(run, op, rows), got;
  memcpy(&got, message_of(run, op), sizeof got);
  if (memcmp(&got, &want, sizeof got) != 0)
    return tr_error(
        TR_ERR_INTERNAL,
        "rank %d of the pipeline got %s behind stage %d, micro-batch %d of step %lld (%llu bytes) from rank "
        "%d, where it expected %s behind stage %d, micro-batch %d of step %lld (%llu bytes)",
        run->pp_rank, what(got.role), got.stage, got.microbatch, (long long)got.step, (unsigned long long)got.nbyte,
        run->options.program->ring[op->ring].peer, what(want.role), want.stage, want.microbatch, (long long)want.step,
        (unsigned long long)want.nbyte);
  convert(run, op, rows, 1);
  return TR_OK;
}
