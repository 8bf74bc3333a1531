// SPDX-License-Identifier: MIT
// Running scripts: a request is cut into strands, and each strand's steps are taken as far as they go without waiting.
//
// A strand gives the script's parts their sizes and its registers their places, then walks through the steps. Transfers are
// started as they come; only a wait stops, until those it names have ended. The strand ends when all have. Everything a
// strand needs grows to the largest it has had to hold and stays with its lane, so that a step of training allocates nothing.
#include "strands_internal.h"
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, BLOCK = 256 };

tr_dtype tr__wide_type(tr_dtype type) {
  int integer = type == TR_I32 || type == TR_I64 || type == TR_U8;
  return integer || type == TR_F64 ? type : TR_F32;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

// ---- the parts of a strand ----------------------------------------------------------------------

// What a message is cut into: its elements, or those of a rank's block.
static void range_of(const tr_request *r, uint32_t chunk, size_t n, size_t *at, size_t *count) {
  tr_slice(n, (int)r->chunks, (int)chunk, TR__GRAIN, at, count);
}

// Elements [*at, *at + *count) of `side` are part `part` of the strand: 0 the source, 1 the destination.
static void part_of(const tr_request *r, const tr__script *s, uint32_t chunk, int side, int part, size_t *at,
                    size_t *count) {
  int block = s->order ? s->order[part] : part;
  size_t first;
  if (tr__is_vector(r->kind)) {
    range_of(r, chunk, r->nelem, &first, count);
    tr_slice(*count, s->parts, part, TR__GRAIN, at, count);
    *at += first;
    return;
  }
  const size_t *start = r->kind == TR__ALLTOALL_V && side == 1 ? r->dst_start : r->start;
  int own = side == 0 ? r->kind == TR__ALLGATHER || r->kind == TR__ALLGATHER_V || r->kind == TR__GATHER
                      : r->kind == TR__REDUCE_SCATTER || r->kind == TR__REDUCE_SCATTER_V || r->kind == TR__SCATTER;
  range_of(r, chunk, start ? start[block + 1] - start[block] : r->nelem, at, count);
  if (!own) *at += start ? start[block] : (size_t)block * r->nelem;
}

static void cut(tr__strand *s, int side) {
  const tr__script *script = s->script;
  tr__cut *c = &s->cut[side];
  c->sum[0] = 0;
  for (int p = 0; p < script->parts; p++) {
    size_t count;
    part_of(s->request, script, s->chunk, side, p, &c->at[p], &count);
    c->sum[p + 1] = c->sum[p] + count;
  }
  for (int p = script->parts - 1; p >= 0; p--) {
    int joins = p + 1 < script->parts && c->at[p] + c->sum[p + 1] - c->sum[p] == c->at[p + 1];
    c->reach[p] = joins ? c->reach[p + 1] + 1 : 1;
  }
}

// Elements of `count` parts from `first` on, which may go round the end.
static size_t distance(const tr__strand *s, int side, int first, int count) {
  const size_t *sum = s->cut[side].sum;
  int parts = s->script->parts, end = first + count;
  return end <= parts ? sum[end] - sum[first] : sum[parts] - sum[first] + sum[end - parts];
}

static int side_of(tr__run run) { return run.buffer == TR__DEST; }

static tr_dtype type_of(const tr__strand *s, int buffer) {
  const tr_request *r = s->request;
  if (buffer == TR__SOURCE) return r->type;
  if (buffer == TR__DEST) return r->dst_type;
  return s->script->reg[buffer].wide ? tr__wide_type(r->type) : r->type;
}

// Where the k-th part of a run begins.
static char *address(const tr__strand *s, tr__run run, int k) {
  int parts = s->script->parts;
  size_t width = tr_dtype_size(type_of(s, run.buffer));
  if (run.buffer < 0) {
    char *base = run.buffer == TR__DEST ? s->request->dst : (char *)(uintptr_t)s->request->src;
    return base + s->cut[side_of(run)].at[(run.first + k) % parts] * width;
  }
  const tr__register *reg = &s->script->reg[run.buffer];
  size_t at = distance(s, 0, run.first, k);
  if (reg->first != TR__ANY_PART) at += distance(s, 0, reg->first, tr__script_index(run.first - reg->first, parts));
  return s->base[run.buffer] + at * width;
}

static size_t elements(const tr__strand *s, tr__run run) { return distance(s, side_of(run), run.first, run.count); }

static int contiguous(const tr__strand *s, tr__run run) {
  return run.buffer >= 0 || run.count <= s->cut[side_of(run)].reach[run.first];
}

// ---- room ---------------------------------------------------------------------------------------

// The arrays of a lane are of the largest script it has run.
static int grow_arrays(tr__strand *s, const tr__script *script) {
  int parts = script->parts + 1, flights = script->ntransfer, registers = script->nreg;
  int starts = (script->nlocal[0] + script->nlocal[1]) * (script->local + 1);
  for (int side = 0; side < 2 && parts > s->room_parts; side++) {
    free(s->cut[side].at);
    s->cut[side].at = malloc((size_t)parts * (2 * sizeof(size_t) + sizeof(int)));
    if (!s->cut[side].at) return s->room_parts = 0;
    s->cut[side].sum = s->cut[side].at + parts;
    s->cut[side].reach = (int *)(void *)(s->cut[side].sum + parts);
  }
  if (parts > s->room_parts) s->room_parts = parts;
  if (flights > s->room_flights) {
    free(s->flight);
    s->flight = malloc((size_t)flights * sizeof *s->flight);
    s->room_flights = s->flight ? flights : 0;
  }
  if (registers > s->room_registers) {
    free(s->base);
    s->base = malloc((size_t)registers * sizeof *s->base);
    s->room_registers = s->base ? registers : 0;
  }
  if (starts > s->room_starts) {
    free(s->starts);
    s->starts = malloc((size_t)starts * sizeof *s->starts);
    s->room_starts = s->starts ? starts : 0;
  }
  return flights <= s->room_flights && registers <= s->room_registers && starts <= s->room_starts;
}

size_t tr__scratch_size(size_t least) {
  size_t nbyte = least ? 4096 : 0;
  while (nbyte < least) nbyte *= 2;
  return nbyte;
}

static int grow_scratch(tr__strand *s, size_t least) {
  size_t nbyte = tr__scratch_size(least);
  if (least <= s->scratch_nbyte) return 1;
  free(s->scratch);
  s->scratch = aligned_alloc(ALIGN, nbyte);
  s->scratch_nbyte = s->scratch ? nbyte : 0;
  if (s->scratch) memset(s->scratch, 0, nbyte); // faulted in now rather than in a later step
  return s->scratch != NULL;
}

// A lane that has to grow takes the free ones along: the next messages of this size will be theirs.
static int grow(tr__strand *s, size_t scratch) {
  tr__strands *all = s->request->group->strands;
  int done = grow_arrays(s, s->script) && grow_scratch(s, scratch);
  for (int l = 0; l < TR__LANES && done; l++)
    if (!all->lane[l].request) done = grow_arrays(&all->lane[l], s->script) && grow_scratch(&all->lane[l], scratch);
  return done;
}

static size_t longest_part(const tr__strand *s) {
  size_t longest = 0;
  for (int p = 0; p < s->script->parts; p++) {
    size_t n = distance(s, 0, p, 1);
    if (n > longest) longest = n;
  }
  return longest;
}

// The place a register stands for: its home where that is contiguous and of its type, else NULL.
static char *at_home(const tr__strand *s, int i) {
  const tr__register *reg = &s->script->reg[i];
  tr__run run = tr__run_of(reg->home, reg->first, reg->count);
  int is_home = reg->home && type_of(s, i) == type_of(s, reg->home) && contiguous(s, run);
  return is_home ? address(s, run, 0) : NULL;
}

static size_t register_nbyte(const tr__strand *s, int i, size_t longest) {
  const tr__register *reg = &s->script->reg[i];
  size_t n = reg->first == TR__ANY_PART ? (size_t)reg->count * longest : distance(s, 0, reg->first, reg->count);
  return (n * tr_dtype_size(type_of(s, i)) + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t room_of(const tr__strand *s) {
  size_t used = 0, longest = longest_part(s);
  for (int i = 0; i < s->script->nreg; i++)
    if (!at_home(s, i)) used += register_nbyte(s, i, longest);
  return used;
}

size_t tr__script_room(tr_request *r) {
  tr__strand s = {.request = r, .script = r->script};
  size_t nbyte = 0;
  if (grow_arrays(&s, s.script)) {
    cut(&s, 0);
    cut(&s, 1);
    nbyte = room_of(&s);
  }
  tr__lane_free(&s);
  return nbyte;
}

// Give registers their places.
static int place_registers(tr__strand *s) {
  if (!grow(s, room_of(s))) return 0;
  size_t used = 0, longest = longest_part(s);
  for (int i = 0; i < s->script->nreg; i++) {
    char *home = at_home(s, i);
    s->base[i] = home ? home : s->scratch + used;
    if (!home) used += register_nbyte(s, i, longest);
  }
  return 1;
}

// ---- sums ---------------------------------------------------------------------------------------

static void divide(tr_dtype type, void *data, size_t n, int by) {
  if (type == TR_F64)
    for (size_t i = 0; i < n; i++) ((double *)data)[i] /= by;
  else
    for (size_t i = 0; i < n; i++) ((float *)data)[i] /= (float)by;
}

// Sums whose two sources differ in type, averages of what does not list every rank's message, and results narrower than the
// sources: in the wide type, block by block.
static void sum_blocks(const tr__strand *s, char *to, tr_dtype to_type, const char *const *from,
                       const tr_dtype type[2], int nfrom, size_t n, int average) {
  tr_dtype wide = tr__wide_type(s->request->type);
  tr_reduce_op op = s->request->op == TR_MAX ? TR_MAX : TR_SUM;
  _Alignas(ALIGN) char widened[2][BLOCK * 8], sum[BLOCK * 8];
  const char *piece[TR__RANKS], *in = sum;
  char *out = sum;
  for (size_t at = 0; at < n; at += BLOCK) {
    size_t count = smaller(BLOCK, n - at);
    for (int i = 0; i < nfrom; i++) {
      piece[i] = from[i] + at * tr_dtype_size(i < 2 ? type[i] : type[0]);
      char *here = widened[i % 2];
      if (type[0] == type[1]) continue;
      tr__reduce(type[i], wide, op, 1, &piece[i], 1, &here, count);
      piece[i] = here;
    }
    tr__reduce(type[0] == type[1] ? type[0] : wide, wide, op, nfrom, piece, 1, &out, count);
    if (average) divide(wide, sum, count, s->script->size);
    char *place = to + at * tr_dtype_size(to_type);
    tr__reduce(wide, to_type, op, 1, &in, 1, &place, count);
  }
}

static void sum_piece(tr__strand *s, const tr__step *step, char *to, const char *const *from, size_t n) {
  const tr_request *r = s->request;
  const tr__run *source = &s->script->source[step->first];
  tr_dtype to_type = type_of(s, step->to.buffer), type = type_of(s, source[0].buffer);
  tr_dtype types[2] = {type, step->count == 2 ? type_of(s, source[1].buffer) : type};
  int average = step->last && r->op == TR_AVERAGE, all = step->count == s->script->size;
  tr_reduce_op op = r->op == TR_AVERAGE && !average ? TR_SUM : r->op;
  if (step->count == 1 && type == to_type && !average) {
    if (to != from[0]) memcpy(to, from[0], n * tr_dtype_size(type));
  } else if (types[1] != type || (average && !all) || (type == TR_F32 && to_type != TR_F32)) {
    sum_blocks(s, to, to_type, from, types, step->count, n, average);
  } else {
    tr__reduce(type, to_type, op, step->count, from, 1, &to, n);
  }
}

// One piece where all runs are contiguous, else part by part.
static void sum(tr__strand *s, const tr__step *step) {
  const tr__run *source = &s->script->source[step->first];
  const char *from[TR__RANKS];
  int whole = contiguous(s, step->to);
  for (int i = 0; i < step->count; i++) whole &= contiguous(s, source[i]);
  int pieces = whole ? 1 : step->to.count, parts = s->script->parts;
  tr_comm *comm = s->request->group->comm;
  tr__at_work(comm);
  tr__hook(comm, s->request->kind, TR__AT_WORK);
  for (int k = 0; k < pieces; k++) {
    size_t n = whole ? elements(s, step->to) : distance(s, side_of(step->to), (step->to.first + k) % parts, 1);
    for (int i = 0; i < step->count; i++) from[i] = address(s, source[i], k);
    if (n) sum_piece(s, step, address(s, step->to, k), from, n);
    s->request->group->strands->summed += n * (size_t)(step->count - 1);
  }
  tr__worked(comm);
}

// ---- operations of the local group --------------------------------------------------------------

// What each local rank owns of the run: one of them all, or each an equal number of parts.
static size_t *local_starts(tr__strand *s, const tr__step *step, tr__run run) {
  const tr__script *script = s->script;
  int ranks = script->local, number = step->count + (step->peer == TR__LOCAL_GATHER ? script->nlocal[0] : 0);
  size_t *start = s->starts + (size_t)number * (size_t)(ranks + 1);
  for (int l = 0; l <= ranks; l++)
    start[l] = step->first >= 0 ? (l > step->first ? elements(s, run) : 0)
                                : distance(s, 0, run.first, l * (run.count / ranks));
  return start;
}

static tr_status start_local(tr__strand *s, const tr__step *step, tr__flight *flight) {
  tr_request *r = s->request;
  tr__local what = (tr__local)step->peer;
  tr__strands *all = r->group->strands;
  tr_group *local = all->local_group[what];
  tr_reduce_op op = r->op == TR_MAX ? TR_MAX : TR_SUM;
  all->next_local[what]++;
  if (what == TR__LOCAL_REDUCE) {
    char *to = step->to.count ? address(s, step->to, 0) : s->request->dst;
    return tr_group_reduce_scatter_v(local, address(s, step->from, 0), to, local_starts(s, step, step->from), r->type,
                                     tr__wide_type(r->type), op, 1, NULL, NULL, &flight->local);
  }
  char *to = address(s, step->to, 0);
  if (step->first >= 0) // does not write to what the owner has, which may still be on its way to other hosts
    return tr_group_broadcast(local, to, elements(s, step->to), r->type, step->first, &flight->local);
  size_t *start = local_starts(s, step, step->to);
  return tr_group_allgather_v(local, to + start[local->index] * tr_dtype_size(r->type), to, start, r->type,
                              &flight->local);
}

// Local operations are started in one order on all ranks: that of strands, and of steps in a strand.
static int local_turn(const tr__strand *s, const tr__step *step) {
  uint32_t each = (uint32_t)s->script->nlocal[step->peer];
  uint32_t number = s->request->local[step->peer] + s->chunk * each + (uint32_t)step->count;
  return s->request->group->strands->next_local[step->peer] == number;
}

// ---- steps --------------------------------------------------------------------------------------

static tr_status start_transfer(tr__strand *s, const tr__step *step, tr__flight *flight) {
  tr_group *g = s->request->group;
  int sends = step->verb == TR__DO_SEND, lane = (int)(s->number % TR__LANES);
  tr__run run = sends ? step->from : step->to;
  size_t nbyte = elements(s, run) * tr_dtype_size(type_of(s, run.buffer));
  flight->ended = nbyte == 0 && s->request->kind != TR__BARRIER;
  if (flight->ended) return TR_OK;
  char *data = address(s, run, 0);
  if (!sends) return g->engine->transport->recv(g, step->peer, lane, data, nbyte, &flight->transfer);
  g->strands->traffic.messages++;
  g->strands->traffic.bytes += nbyte;
  return g->engine->transport->send(g, step->peer, lane, data, nbyte, &flight->transfer);
}

static tr_status test_local(tr__flight *flight) {
  if (flight->local->status == TR_PENDING) return TR_PENDING;
  tr_request *ended = flight->local;
  flight->local = NULL;
  return tr_request_test(ended);
}

static tr_status test(tr__strand *s, tr__flight *flight) {
  tr_group *g = s->request->group;
  if (flight->ended) return TR_OK;
  int waits_for = flight->local ? flight->local->awaits : g->ranks[flight->transfer.peer];
  tr_status status = flight->local ? test_local(flight) : g->engine->transport->test(g, &flight->transfer);
  if (status == TR_PENDING) s->request->awaits = waits_for;
  if (status != TR_OK) return status;
  flight->ended = 1;
  tr__worked(g->comm);
  return TR_OK;
}

static tr_status wait_for(tr__strand *s, int first, int count) {
  for (int i = first; i < first + count; i++) {
    tr_status status = test(s, &s->flight[i]);
    if (status != TR_OK) return status;
  }
  return TR_OK;
}

static tr_status take(tr__strand *s, const tr__step *step) {
  if (step->verb == TR__DO_WAIT) return wait_for(s, step->first, step->count);
  if (step->verb == TR__DO_SUM) {
    sum(s, step);
    return TR_OK;
  }
  if (step->verb == TR__DO_LOCAL && !local_turn(s, step)) return TR_PENDING;
  tr__flight *flight = &s->flight[s->started];
  *flight = (tr__flight){0};
  TR_TRY(step->verb == TR__DO_LOCAL ? start_local(s, step, flight) : start_transfer(s, step, flight));
  s->started++;
  return TR_OK;
}

static tr_status advance(tr__strand *s) {
  for (; s->step < s->script->nstep; s->step++) {
    tr_status status = take(s, &s->script->step[s->step]);
    if (status != TR_OK) return status;
  }
  return wait_for(s, 0, s->started);
}

// ---- strands of a request -----------------------------------------------------------------------

static tr_status begin_strand(tr__strand *s, tr_request *r) {
  s->request = r;
  s->script = r->script;
  s->chunk = r->in;
  s->step = s->started = 0;
  if (grow_arrays(s, s->script)) {
    cut(s, 0);
    cut(s, 1);
    if (place_registers(s)) return TR_OK;
  }
  return tr__fail(r->group->comm, r->group->comm->rank, TR_ERR_MEMORY,
                  "%s of group '%s' has no memory on rank %d for what it receives", tr__kind_name(r->kind),
                  r->group->name, r->group->comm->rank);
}

static void end_strand(tr__strand *s) {
  s->request->done++;
  s->request = NULL;
  s->number += TR__LANES;
}

// Reduce-scatter-v: elements of this rank's part that are final up to the first strand that is still under way.
static void tell(tr_request *r) {
  size_t first = 0, count = 0;
  uint32_t until = r->in;
  for (int l = 0; l < TR__LANES; l++) {
    const tr__strand *s = &r->group->strands->lane[l];
    if (s->request == r && s->chunk < until) until = s->chunk;
  }
  if (until > 0) range_of(r, until - 1, r->start[r->group->index + 1] - r->start[r->group->index], &first, &count);
  tr__tell_part(r, first + count);
}

static tr_status step_strand(tr__strand *s) {
  tr_request *r = s->request;
  tr_status status = advance(s);
  if (status != TR_OK) return status;
  end_strand(s);
  if (r->kind == TR__REDUCE_SCATTER_V) tell(r);
  return TR_OK;
}

static tr_status begin_strands(tr_request *r) {
  tr__strands *all = r->group->strands;
  while (r->in < r->chunks) {
    tr__strand *s = &all->lane[(r->strand + r->in) % TR__LANES];
    if (s->request || s->number != r->strand + r->in) return TR_PENDING;
    TR_TRY(begin_strand(s, r));
    r->in++;
    tr_status status = step_strand(s);
    if (r->in == 1) tr__hook(r->group->comm, r->kind, TR__AT_READY);
    if (status < 0) return status;
  }
  return TR_PENDING;
}

tr_status tr__script_step(tr_request *r) {
  if (!r->script) TR_TRY(tr__script_begin(r));
  r->awaits = -1;
  int awaits = -1;
  for (uint32_t i = 0; i < TR__LANES; i++) { // the oldest strand first: it is the one to say who is waited for
    tr__strand *s = &r->group->strands->lane[(r->strand + r->done + i) % TR__LANES];
    if (s->request != r) continue;
    tr_status status = step_strand(s);
    if (status < 0) return status;
    if (awaits < 0) awaits = r->awaits;
  }
  tr_status status = begin_strands(r);
  if (status < 0) return status;
  if (awaits >= 0) r->awaits = awaits;
  if (r->done < r->chunks) return TR_PENDING;
  r->group->comm->counters.bytes_staged += r->nbyte;
  if (r->kind == TR__REDUCE_SCATTER_V) tell(r);
  tr__worked(r->group->comm);
  return TR_OK;
}

void tr__script_drop(tr_request *r) {
  tr_group *g = r->group;
  for (int l = 0; g->strands && l < TR__LANES; l++) {
    tr__strand *s = &g->strands->lane[l];
    if (s->request != r) continue;
    for (int i = 0; i < s->started; i++)
      if (!s->flight[i].ended && !s->flight[i].local) g->engine->transport->drop(g, &s->flight[i].transfer);
    s->request = NULL;
  }
}
