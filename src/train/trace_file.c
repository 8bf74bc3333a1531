// SPDX-License-Identifier: MIT
// A trace as a file: Chrome's trace events as JSON, one a line, which Perfetto and chrome://tracing read. A rank is a
// process of the trace, its lanes are threads:
//
//   step        step 3: read data | program | evaluation | save
//   compute     F, B, NORM, UPDATE ... of the program, with the pieces that were called inside
//   comm        its communication operations; where several are under way at once, "comm 2" and so on below
//   checkpoint  what the thread that writes checkpoints did
//
// and counters. Arrows are the program's edges between lanes. Times are microseconds of rank 0's clock since the launcher
// began, or rank 0 where others have started the ranks. What had begun and not ended when the job did is drawn up to that moment and says "unfinished".
// (Google, "Trace Event Format".)
#include "train/timing_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LANE_STEP = 1, LANE_COMPUTE, LANE_COMM, LANES = 64, LANE_WRITE = LANE_COMM + LANES, LANE_COUNTERS };
enum { FLUSH_BYTES = 1 << 16 };

typedef struct slice {
  tr__event event;
  int32_t lane, unfinished;
} slice;

typedef struct writer {
  const struct tr__trace *trace;
  const tr_train_plan *plan;
  const tr_train_part *part; // of the rank
  const char *path;
  int fd, rank;
  tr_status status;
  tr_text text;
  const char *comma; // before the next event
  int64_t end;       // of the job
  slice *slice;
  size_t nslice;
  uint64_t events, dropped, flow; // of all ranks
  tr__prediction prediction;
} writer;

// ---- text

static void flush(writer *w) {
  if (w->text.failed && w->status == TR_OK) w->status = tr_error(TR_ERR_MEMORY, "no memory to write %s", w->path);
  if (w->status == TR_OK) w->status = tr_file_write_all(w->fd, w->text.data, w->text.size, w->path);
  w->text.size = 0;
}

// Names come from programs: quotes and control characters are escaped, what is not UTF-8 becomes question marks.
static void put_string(tr_text *out, const char *string) {
  size_t n = strlen(string);
  json_t *valid = json_stringn(string, n);
  tr_text_append_bytes(out, "\"", 1);
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)string[i];
    if (c == '"' || c == '\\' || c < 0x20)
      tr_text_append(out, "\\u%04x", c);
    else
      tr_text_append_bytes(out, c >= 0x80 && !valid ? "?" : string + i, 1);
  }
  tr_text_append_bytes(out, "\"", 1);
  json_decref(valid);
}

static void put_time(writer *w, const char *key, int64_t ns) {
  if (ns < 0) ns = 0;
  tr_text_append(&w->text, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

static void open_event(writer *w, const char *phase, int lane) {
  tr_text_append(&w->text, "%s\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", w->comma, phase, w->rank, lane);
  w->comma = ",";
}

static void close_event(writer *w) {
  tr_text_append(&w->text, "}");
  if (w->text.size >= FLUSH_BYTES) flush(w);
}

// ---- one rank's slices, in order of lane and time, outer before inner

static int by_time(const void *a, const void *b) {
  const slice *x = a, *y = b;
  if (x->lane != y->lane) return x->lane < y->lane ? -1 : 1;
  if (x->event.begin != y->event.begin) return x->event.begin < y->event.begin ? -1 : 1;
  if (x->event.end != y->event.end) return x->event.end > y->event.end ? -1 : 1;
  return (x->event.kind > y->event.kind) - (x->event.kind < y->event.kind);
}

static int lane_of(const writer *w, const tr__event *event) {
  if (event->kind < TR__SLICES_OF_LOOP) return LANE_STEP;
  if (event->kind == TR__EVENT_WRITE) return LANE_WRITE;
  if (event->kind >= TR__EVENT_ARENAS) return LANE_COUNTERS;
  if (event->kind == TR__EVENT_PIECE) return LANE_COMPUTE;
  return w->part->program.op[event->op].lane == TR_LANE_COMM ? LANE_COMM : LANE_COMPUTE;
}

static void add_slice(writer *w, const tr__event *event, int unfinished) {
  slice *s = &w->slice[w->nslice++];
  *s = (slice){*event, lane_of(w, event), unfinished};
  if (unfinished) s->event.end = w->end;
  if (event->kind != TR__SLICE_EVALUATION) return;
  // Its pieces are on the compute lane, so it is there as well.
  w->slice[w->nslice] = *s;
  w->slice[w->nslice++].lane = LANE_COMPUTE;
}

// Operations under way at the same time, each on a lane that is free.
static void spread_comm(writer *w) {
  int64_t busy_until[LANES] = {0};
  for (size_t i = 0; i < w->nslice; i++) {
    slice *s = &w->slice[i];
    if (s->lane != LANE_COMM) continue;
    int lane = 0;
    while (lane < LANES - 1 && busy_until[lane] > s->event.begin) lane++;
    busy_until[lane] = s->event.end;
    s->lane = LANE_COMM + lane;
  }
  qsort(w->slice, w->nslice, sizeof *w->slice, by_time);
}

// The oldest event of a full ring may have been half replaced when its rank was killed.
static tr_status collect(writer *w, const tr__ring *ring) {
  const uint32_t nop = w->part->program.nop;
  uint64_t count = ring->count, kept = count < ring->capacity ? count : ring->capacity - 1;
  uint32_t depth = ring->depth < TR__OPEN_SLICES ? ring->depth : TR__OPEN_SLICES;
  w->slice = calloc(2 * (kept + depth) + nop + 1, sizeof *w->slice);
  w->nslice = 0;
  if (!w->slice) return tr_error(TR_ERR_MEMORY, "no memory to write %s", w->path);
  for (uint64_t i = count - kept; i < count; i++) add_slice(w, &ring->event[i % ring->capacity], 0);
  for (uint32_t i = 0; i < depth; i++) add_slice(w, &ring->open[i], 1);
  for (uint32_t i = 0; i < nop; i++) {
    const tr__under_way *from = &ring->under_way[i];
    tr__event event = {.begin = from->begin, .step = from->step, .op = (int32_t)i, .kind = TR__EVENT_OP};
    if (from->begin) add_slice(w, &event, 1);
  }
  qsort(w->slice, w->nslice, sizeof *w->slice, by_time);
  spread_comm(w);
  w->events += kept;
  w->dropped += count - kept;
  return TR_OK;
}

// ---- events

static void put_units(writer *w, const tr_op *op) {
  if (op->unit_end <= op->unit_begin) return;
  tr_text_append(&w->text, ",\"units\":\"%d..%d\",\"first_unit\":", op->unit_begin, op->unit_end - 1);
  put_string(&w->text, tr_model_unit_name(w->part->model, op->unit_begin));
}

static void put_group(writer *w, const tr_op *op) {
  int member[256], dp = w->plan->mesh.degree[TR_AXIS_DP];
  tr_text_append(&w->text, ",\"bytes\":%.0f,\"group\":\"dp\",\"ranks\":[", tr__op_bytes(w->plan, w->rank, op));
  tr_mesh_members(&w->plan->mesh, w->rank, TR_AXIS_DP, member);
  for (int i = 0; i < dp; i++) tr_text_append(&w->text, "%s%d", i ? "," : "", member[i]);
  tr_text_append(&w->text, "]");
}

// What belongs to one micro-batch in one stage: "F 1.7" is micro-batch 7 through stage 1.
static int names_pass(const tr_op *op) {
  return op->kind <= TR_OP_R || op->kind == TR_OP_SEND || op->kind == TR_OP_RECV;
}

static void put_peers(writer *w, const tr_op *op) {
  int member[256];
  if (op->kind != TR_OP_SEND && op->kind != TR_OP_RECV) {
    put_group(w, op);
    return;
  }
  tr_mesh_members(&w->plan->mesh, w->rank, TR_AXIS_PP, member);
  tr_text_append(&w->text, ",\"bytes\":%.0f,\"peer\":%d", tr__op_bytes(w->plan, w->rank, op), member[op->peer]);
}

static void put_op(writer *w, const tr__event *e) {
  const tr_op *op = &w->part->program.op[e->op];
  int comm = op->lane == TR_LANE_COMM;
  const char *role = comm ? tr__role_name(op->role) : "";
  tr_text_append(&w->text, ",\"name\":\"%s%s%s", tr_op_name((tr_op_kind)op->kind), *role ? " " : "", role);
  if (w->plan->schedule.p && names_pass(op)) tr_text_append(&w->text, " %d.%d", op->stage, op->microbatch);
  tr_text_append(&w->text, "\",\"cat\":\"%s\",\"args\":{\"step\":%" PRId64 ",\"op\":%d", comm ? "comm" : "compute",
                 e->step, e->op);
  if (w->plan->schedule.p) tr_text_append(&w->text, ",\"stage\":%d", op->stage);
  if (op->microbatch >= 0) tr_text_append(&w->text, ",\"microbatch\":%d", op->microbatch);
  if (op->piece_end > op->piece_begin)
    tr_text_append(&w->text, ",\"pieces\":\"%u..%u\"", op->piece_begin, op->piece_end - 1);
  put_units(w, op);
  if (comm) put_peers(w, op);
}

static void put_piece(writer *w, const tr__event *e) {
  const tr_piece *piece = tr_model_piece(w->part->model, e->piece);
  const tr_op *op = e->op == TR__NO_OP ? NULL : &w->part->program.op[e->op];
  tr_text_append(&w->text, ",\"name\":");
  put_string(&w->text, piece->name);
  tr_text_append(&w->text, ",\"cat\":\"piece\",\"args\":{\"kind\":");
  put_string(&w->text, piece->ops->kind ? piece->ops->kind : "");
  tr_text_append(&w->text, ",\"step\":%" PRId64, e->step);
  if (op)
    tr_text_append(&w->text, ",\"pass\":\"%s\",\"microbatch\":%d", tr__pass_name(tr__pass_of(op)), op->microbatch);
}

static void put_loop(writer *w, const tr__event *e) {
  static const char *const name[] = {[TR__SLICE_STEP] = "step",       [TR__SLICE_DATA] = "read data",
                                     [TR__SLICE_PROGRAM] = "program", [TR__SLICE_EVALUATION] = "evaluation",
                                     [TR__SLICE_SAVE] = "save",       [TR__EVENT_WRITE] = "write checkpoint"};
  tr_text_append(&w->text, ",\"name\":\"%s", name[e->kind]);
  if (e->kind == TR__SLICE_STEP) tr_text_append(&w->text, " %" PRId64, e->step);
  tr_text_append(&w->text, "\",\"cat\":\"loop\",\"args\":{\"step\":%" PRId64, e->step);
}

static void put_counter(writer *w, const tr__event *e) {
  static const char *const name[] = {[TR__EVENT_ARENAS] = "arenas (bytes)",
                                     [TR__EVENT_RESIDENT] = "resident (bytes)",
                                     [TR__EVENT_RATE] = "tokens/s",
                                     [TR__EVENT_LOSS] = "loss"};
  open_event(w, "C", 0);
  put_time(w, "ts", e->begin - w->trace->begin);
  tr_text_append(&w->text, ",\"name\":\"%s\",\"args\":{\"value\":%.9g}", name[e->kind], e->value);
  close_event(w);
}

// At least a nanosecond long, so that arrows have something to start from.
static int64_t length_of(const slice *s) {
  int64_t length = s->event.end - s->event.begin;
  return length > 0 ? length : 1;
}

static void put_slice(writer *w, const slice *s) {
  if (s->lane == LANE_COUNTERS) {
    put_counter(w, &s->event);
    return;
  }
  open_event(w, "X", s->lane);
  put_time(w, "ts", s->event.begin - w->trace->begin);
  put_time(w, "dur", length_of(s));
  if (s->event.kind == TR__EVENT_OP)
    put_op(w, &s->event);
  else if (s->event.kind == TR__EVENT_PIECE)
    put_piece(w, &s->event);
  else
    put_loop(w, &s->event);
  tr_text_append(&w->text, s->unfinished ? ",\"unfinished\":true}" : "}");
  close_event(w);
}

// ---- arrows

static void put_arrow(writer *w, const slice *from, const slice *to) {
  const struct {
    const char *phase;
    const slice *at;
    int64_t time;
  } end[] = {{"s", from, from->event.begin + length_of(from) - 1}, {"f", to, to->event.begin}};
  w->flow++;
  for (int i = 0; i < 2; i++) {
    open_event(w, end[i].phase, end[i].at->lane);
    put_time(w, "ts", end[i].time - w->trace->begin);
    tr_text_append(&w->text, ",\"id\":%" PRIu64 ",\"name\":\"edge\",\"cat\":\"edge\"%s", w->flow,
                   i ? ",\"bp\":\"e\"" : "");
    close_event(w);
  }
}

// Every edge of the program between lanes whose two ends are here, step by step.
static tr_status put_arrows(writer *w) {
  const tr_program *program = &w->part->program;
  int64_t first = INT64_MAX, last = INT64_MIN;
  for (size_t i = 0; i < w->nslice; i++) {
    if (w->slice[i].event.kind != TR__EVENT_OP) continue;
    if (w->slice[i].event.step < first) first = w->slice[i].event.step;
    if (w->slice[i].event.step > last) last = w->slice[i].event.step;
  }
  if (last < first) return TR_OK;
  const slice **at = calloc((size_t)(last - first + 1) * program->nop, sizeof(slice *));
  if (!at) return tr_error(TR_ERR_MEMORY, "no memory to write %s", w->path);
  for (size_t i = 0; i < w->nslice; i++) {
    const tr__event *e = &w->slice[i].event;
    if (e->kind == TR__EVENT_OP) at[(size_t)(e->step - first) * program->nop + (size_t)e->op] = &w->slice[i];
  }
  for (size_t i = 0; i < (size_t)(last - first + 1) * program->nop; i++) {
    const tr_op *op = &program->op[i % program->nop];
    for (uint32_t e = op->edge_begin; at[i] && e < op->edge_end; e++) {
      const tr_edge *edge = &program->edge[e];
      int64_t step = at[i]->event.step + edge->step_offset;
      const slice *from = step < first ? NULL : at[(size_t)(step - first) * program->nop + edge->op];
      if (from && program->op[edge->op].lane != op->lane) put_arrow(w, from, at[i]);
    }
  }
  free(at);
  return TR_OK;
}

// ---- names of processes and threads

static void put_name(writer *w, const char *what, int lane, const char *key, const char *name, int order) {
  open_event(w, "M", lane);
  tr_text_append(&w->text, ",\"name\":\"%s\",\"args\":{\"%s\":", what, key);
  if (name) put_string(&w->text, name);
  if (!name) tr_text_append(&w->text, "%d", order);
  tr_text_append(&w->text, "}");
  close_event(w);
}

static void put_lane(writer *w, int lane, const char *name) {
  put_name(w, "thread_name", lane, "name", name, 0);
  put_name(w, "thread_sort_index", lane, "sort_index", NULL, lane);
}

static void put_names(writer *w, const tr__ring *ring) {
  char text[160];
  snprintf(text, sizeof text, "rank %d (%s)", w->rank, ring->host);
  put_name(w, "process_name", 0, "name", text, 0);
  put_name(w, "process_sort_index", 0, "sort_index", NULL, w->rank);
  snprintf(text, sizeof text, "clock offset %.3f +- %.3f us", (double)ring->clock[TR__CLOCK_BEGIN].offset * 1e-3,
           (double)ring->clock[TR__CLOCK_BEGIN].error * 1e-3);
  put_name(w, "process_labels", 0, "labels", text, 0);
  put_lane(w, LANE_STEP, "step");
  put_lane(w, LANE_COMPUTE, "compute");
  put_lane(w, LANE_COMM, "comm");
  for (size_t i = 0; i < w->nslice; i++) {
    int lane = w->slice[i].lane;
    if (lane == (i ? w->slice[i - 1].lane : 0)) continue;
    if (lane > LANE_COMM && lane < LANE_WRITE) {
      snprintf(text, sizeof text, "comm %d", lane - LANE_COMM + 1);
      put_lane(w, lane, text);
    }
    if (lane == LANE_WRITE) put_lane(w, lane, "checkpoint");
  }
}

// ---- the file

static void put_rank(writer *w, int rank) {
  const tr__ring *ring = tr__trace_ring(w->trace, rank);
  w->rank = rank;
  w->part = tr_train_part_of(w->plan, rank);
  if (!*ring->host) return;
  if (w->status == TR_OK) w->status = collect(w, ring);
  if (w->status == TR_OK) put_names(w, ring);
  for (size_t i = 0; i < w->nslice && w->status == TR_OK; i++) put_slice(w, &w->slice[i]);
  if (w->status == TR_OK) w->status = put_arrows(w);
  free(w->slice);
  w->slice = NULL;
  w->nslice = 0;
}

// How far a rank's clock is ahead of rank 0's, and, where clocks may drift apart, how far it was at the end.
static void put_clock(writer *w, int rank, const tr__ring *ring) {
  const tr__clock *begin = &ring->clock[TR__CLOCK_BEGIN], *end = &ring->clock[TR__CLOCK_END];
  const uint64_t count = ring->count;
  tr_text_append(&w->text, "%s{\"rank\":%d,\"offset_us\":%.3f,\"error_us\":%.3f", rank ? "," : "", rank,
                 (double)begin->offset * 1e-3, (double)begin->error * 1e-3);
  if (end->at)
    tr_text_append(&w->text, ",\"end_offset_us\":%.3f,\"end_error_us\":%.3f", (double)end->offset * 1e-3,
                   (double)end->error * 1e-3);
  tr_text_append(&w->text, ",\"events\":%" PRIu64 ",\"dropped\":%" PRIu64 "}", count,
                 count < ring->capacity ? 0 : count - ring->capacity + 1);
}

static void put_about(writer *w, const char *end) {
  const int ranks = (int)w->plan->config->run.ranks;
  tr_text_append(&w->text, "%s,\"model\":", tr__trace_begins);
  put_string(&w->text, tr_model_name(w->plan->model));
  tr_text_append(&w->text, ",\"ranks\":%d,\"begin\":\"%s\",\"end\":", ranks, w->trace->begin_utc);
  put_string(&w->text, end);
  tr_text_append(&w->text, ",\"clock_offsets\":[");
  for (int r = 0; r < ranks; r++) put_clock(w, r, tr__trace_ring(w->trace, r));
  tr_text_append(&w->text, "]");
  tr__prediction_json(&w->prediction, &w->text);
  tr_text_append(&w->text, "},\"traceEvents\":[");
}

static tr_status write_file(writer *w, const char *end) {
  char temporary[4096], folder[4096];
  const char *slash = strrchr(w->path, '/');
  tr__trace_temporary(w->path, temporary, sizeof temporary);
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - w->path) + 1 : 2, slash ? w->path : "./");
  w->fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (w->fd < 0) return tr_error(TR_ERR_IO, "%s: cannot create: %s", w->path, strerror(errno));
  put_about(w, end);
  for (int r = 0; r < (int)w->plan->config->run.ranks; r++) put_rank(w, r);
  if (w->prediction.made) tr__prediction_events(&w->prediction, w->trace->begin, w->comma, &w->text);
  tr_text_append(&w->text, "\n]}\n");
  flush(w);
  tr_text_free(&w->text);
  int synced = fsync(w->fd) == 0, closed = close(w->fd) == 0;
  if (w->status == TR_OK && (!synced || !closed || rename(temporary, w->path) != 0))
    w->status = tr_error(TR_ERR_IO, "%s: cannot write: %s", w->path, strerror(errno));
  if (w->status == TR_OK) return tr_file_sync_folder(folder);
  unlink(temporary);
  return w->status;
}

// A run that had nothing to do leaves an earlier trace alone.
static int is_empty(const struct tr__trace *trace) {
  for (int r = 0; r < (int)trace->plan->config->run.ranks; r++) {
    const tr__ring *ring = tr__trace_ring(trace, r);
    if (ring->count || ring->depth) return 0;
  }
  return 1;
}

static void say(const writer *w) {
  const char *whose = w->trace->whole ? "" : " of rank 0, as the job failed before the others' were there";
  if (w->dropped)
    printf("trace       %s: the newest %" PRIu64 " events%s; %" PRIu64 " older ones had no room\n", w->path,
           w->events, whose, w->dropped);
  else
    printf("trace       %s: %" PRIu64 " events%s\n", w->path, w->events, whose);
  tr__prediction_say(&w->prediction);
}

tr_status tr__trace_write(const struct tr__trace *trace, tr_status job) {
  if (is_empty(trace)) return job;
  char *reason = strdup(job < 0 ? tr_status_text() : "all ranks ended well");
  writer w = {
      .trace = trace, .plan = trace->plan, .path = trace->plan->config->run.trace, .comma = "", .end = tr_clock_ns()};
  tr_status status = tr__prediction_make(trace, &w.prediction);
  if (status == TR_OK) status = write_file(&w, reason ? reason : "");
  if (status == TR_OK) say(&w);
  tr__prediction_free(&w.prediction);
  if (status < 0 && job < 0) tr_log_warn("there is no trace: %s", tr_status_text());
  if (job < 0 && reason) status = tr_error(job, "%s", reason);
  free(reason);
  return status;
}
