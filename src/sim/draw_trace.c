// SPDX-License-Identifier: MIT
// A timeline as Chrome's trace events ("Trace Event Format"): slices of the compute lane and of reductions, a counter of chunks
// alive, and an arrow per message, from the end of the pass that made it to the start of the one that reads it.
#include "trireme/sim/sim.h"
#include <inttypes.h>
#include <string.h>

enum { THREAD_COMPUTE = 1, THREAD_COMM = 2 };

typedef struct writer {
  const tr_program *program;
  const tr_sim_event *event;
  const tr_sim_trace *trace;
  const char *comma;
  int pid;
  tr_text *out;
} writer;

static double time_us(const writer *w, int64_t tick) {
  return ((double)w->trace->begin_ns + (double)tick * w->trace->ns) * 1e-3;
}

static void open_event(writer *w, const char *phase, int thread) {
  tr_text_append(w->out, "%s\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", w->comma, phase, w->pid, thread);
  w->comma = ",";
}

static void put_names(writer *w, int rank, int has_comm) {
  const char *label = w->trace->label;
  open_event(w, "M", 0);
  tr_text_append(w->out, ",\"name\":\"process_name\",\"args\":{\"name\":\"%s%sGPU%d\"}}", label, *label ? " " : "",
                 rank);
  open_event(w, "M", 0);
  tr_text_append(w->out, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}", w->pid);
  open_event(w, "M", THREAD_COMPUTE);
  tr_text_append(w->out, ",\"name\":\"thread_name\",\"args\":{\"name\":\"compute\"}}");
  if (!has_comm) return;
  open_event(w, "M", THREAD_COMM);
  tr_text_append(w->out, ",\"name\":\"thread_name\",\"args\":{\"name\":\"comm\"}}");
}

static int thread_of(const tr_op *op) { return op->lane == TR_LANE_COMPUTE ? THREAD_COMPUTE : THREAD_COMM; }

static void put_slice(writer *w, uint32_t i) {
  const tr_op *op = &w->program->op[i];
  open_event(w, "X", thread_of(op));
  tr_text_append(w->out, ",\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s", time_us(w, w->event[i].begin),
                 (double)(w->event[i].end - w->event[i].begin) * w->trace->ns * 1e-3,
                 tr_op_name((tr_op_kind)op->kind));
  if (op->microbatch >= 0) tr_text_append(w->out, " %d", op->microbatch);
  if (op->kind == TR_OP_X) tr_text_append(w->out, " + %d", op->back_microbatch);
  tr_text_append(w->out, "\",\"args\":{\"op\":%u,\"stage\":%d", i, op->stage);
  if (op->microbatch >= 0) tr_text_append(w->out, ",\"microbatch\":%d", op->microbatch);
  if (op->kind == TR_OP_X)
    tr_text_append(w->out, ",\"back_stage\":%d,\"back_microbatch\":%d", op->back_stage, op->back_microbatch);
  tr_text_append(w->out, "}}");
}

static void put_alive(writer *w, int64_t time, int alive) {
  open_event(w, "C", 0);
  tr_text_append(w->out, ",\"ts\":%.3f,\"name\":\"chunks alive\",\"args\":{\"chunks\":%d}}", time_us(w, time), alive);
}

static void put_counter(writer *w) {
  int alive = 0;
  for (uint32_t i = 0; i < w->program->nop; i++) {
    const tr_op *op = &w->program->op[i];
    if (op->kind > TR_OP_X || op->piece_begin != (w->program->nchunk ? w->program->chunk[op->chunk].piece_begin : 0))
      continue;
    if (op->kind == TR_OP_F || op->kind == TR_OP_X) put_alive(w, w->event[i].begin, ++alive);
    if (op->kind == TR_OP_B || op->kind == TR_OP_W || op->kind == TR_OP_X) put_alive(w, w->event[i].end, --alive);
  }
}

// The pass whose result a SEND takes.
static const tr_edge *source_of(const tr_program *program, const tr_op *send) {
  for (uint32_t e = send->edge_begin; e < send->edge_end; e++)
    if (program->op[program->edge[e].op].kind <= TR_OP_X) return &program->edge[e];
  return NULL;
}

// One end of the arrow of a message; both ends name it alike.
static void put_arrow(writer *w, const char *phase, const tr_op *pass, int64_t time, const tr_ring *ring,
                      int microbatch) {
  open_event(w, phase, thread_of(pass));
  tr_text_append(w->out, ",\"ts\":%.3f,\"cat\":\"message\",\"name\":\"%s\",\"id\":\"%d.%s%d.%d\"%s}",
                 time_us(w, time), ring->role == TR_ROLE_ACTIVATION ? "activations" : "derivatives",
                 w->trace->pid_base, ring->role == TR_ROLE_ACTIVATION ? "a" : "d", ring->stage, microbatch,
                 *phase == 'f' ? ",\"bp\":\"e\"" : "");
}

static void put_arrows(writer *w, uint32_t i) {
  const tr_program *program = w->program;
  const tr_op *op = &program->op[i];
  if (op->kind == TR_OP_SEND) {
    const tr_edge *source = source_of(program, op);
    if (source)
      put_arrow(w, "s", &program->op[source->op], w->event[source->op].end, &program->ring[op->ring], op->microbatch);
    return;
  }
  for (uint32_t e = op->edge_begin; op->kind <= TR_OP_X && e < op->edge_end; e++) {
    const tr_op *before = &program->op[program->edge[e].op];
    if (before->kind == TR_OP_RECV && program->edge[e].step_offset == 0)
      put_arrow(w, "f", op, w->event[i].begin, &program->ring[before->ring], before->microbatch);
  }
}

void tr_sim_draw_trace_events(const tr_program *const *program, const tr_sim_result *result,
                              const tr_sim_trace *trace, const char *comma, tr_text *out) {
  writer w = {.trace = trace, .comma = comma, .out = out};
  for (int r = 0; r < result->p; r++) {
    int has_comm = 0;
    w.program = program[r];
    w.event = result->event[r];
    w.pid = trace->pid_base + r;
    for (uint32_t i = 0; i < w.program->nop; i++) {
      const tr_op *op = &w.program->op[i];
      const int message = op->kind == TR_OP_SEND || op->kind == TR_OP_RECV;
      if (!message) put_slice(&w, i);
      put_arrows(&w, i);
      has_comm |= !message && op->lane == TR_LANE_COMM;
    }
    put_counter(&w);
    put_names(&w, r, has_comm);
  }
}

void tr_sim_draw_trace(const tr_program *const *program, const tr_sim_result *result, const tr_sim_trace *trace,
                       tr_text *out) {
  tr_text_append(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
  tr_sim_draw_trace_events(program, result, trace, "", out);
  tr_text_append(out, "\n]}\n");
}
