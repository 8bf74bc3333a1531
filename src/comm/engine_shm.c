// SPDX-License-Identifier: MIT
// Collectives over shared memory: one state machine for all of them; shm_reduce.c and shm_move.c say what each does.
//
//         post record           all records there, equal
//   POST -------------> GATHERING ---------------------> inline:   combine all payloads, end
//                                                        WORKING:  others' buffers in place -> LEAVING -> end
//                                                        STAGING:  chunks through the stages -> end
//
//   path     when                            flag phases
//   inline   contribution <= 2 KiB           one: everybody reads all payloads
//   direct   the buffers that others use     two: "my buffer is ready", "I have done my part"
//            are in arenas on every rank
//   pulled   else, if it is large, where     the same; sums that all are to get are read from their owners when these have
//            all can read others' memory     them, so a third: "my sums are there"
//   staged   otherwise                       two per 256 KiB chunk, on the stages' double buffers
//
// Each rank computes the elements it owns in fixed order, so all ranks get equal bits on any path. Records are a
// ring: operation s may be posted once s - 16 has ended on every rank, which each rank publishes as a count. A staged
// operation starts when all earlier ones of its group have ended here; the order is the same everywhere, so the stage
// of a group has one user at a time. Buffers of different ranks may lie at different offsets of their arenas.
#include "agree_internal.h"
#include "shm_internal.h"
#include "strands_internal.h"

enum { SMALL_TOTAL = 32 * 1024 }; // most bytes that all payloads of an inline operation may have together

static void barrier_combine(tr_request *r) { (void)r; }
static const tr__collective barrier = {.combine = barrier_combine};

static const tr__collective *const collectives[TR__KINDS] = {
    [TR__ALLREDUCE] = &tr__shm_allreduce,
    [TR__REDUCE] = &tr__shm_reduce,
    [TR__REDUCE_SCATTER] = &tr__shm_reduce_scatter,
    [TR__REDUCE_SCATTER_V] = &tr__shm_reduce_scatter_v,
    [TR__ALLGATHER] = &tr__shm_allgather,
    [TR__ALLGATHER_V] = &tr__shm_allgather_v,
    [TR__ALLTOALL] = &tr__shm_alltoall,
    [TR__ALLTOALL_V] = &tr__shm_alltoall_v,
    [TR__BROADCAST] = &tr__shm_broadcast,
    [TR__GATHER] = &tr__shm_gather,
    [TR__SCATTER] = &tr__shm_scatter,
    [TR__BARRIER] = &barrier,
};

static tr__ring *ring_of(const tr_group *g, int index) { return tr__shm_ring(g, index); }
static tr__record *record_of(const tr_request *r, int index) { return tr__shm_record(r, index); }

static int contributes(const tr_request *r) { return !collectives[r->kind]->only_root || r->group->index == r->root; }

// All-to-all-v alone has contributions of which others know nothing beforehand.
static int is_inline(const tr_request *r) {
  return r->most <= TR__INLINE && r->all <= SMALL_TOTAL && !collectives[r->kind]->post;
}

// ---- posting and agreeing -----------------------------------------------------------------------

// Has operation seq - 16 ended on every rank, so that our record may be overwritten? Looks at others only if needed.
static int may_post(tr_request *r) {
  tr_group *g = r->group;
  if (tr__ahead(r->seq, g->all_ended) < TR__RING) return 1;
  uint32_t least = g->ended;
  for (int i = 0; i < g->size; i++) {
    uint64_t tag = atomic_load_explicit(&ring_of(g, i)->ended, memory_order_acquire);
    uint32_t ended = tag >> 32 == g->epoch ? (uint32_t)tag : g->base;
    if (tr__ahead(ended, least) < 0 || (ended == least && i == 0)) r->awaits = g->ranks[i];
    if (tr__ahead(ended, least) < 0) least = ended;
  }
  g->all_ended = least;
  return tr__ahead(r->seq, least) < TR__RING;
}

static void fill(tr_request *r, tr__record *record) {
  const tr__job *job = r->group->comm->job;
  record->place = tr__job_place(job, r->src, r->nbyte);
  record->dst_place = r->dst_nbyte ? tr__job_place(job, r->dst, r->dst_nbyte) : TR__NOWHERE;
}

// Others have the lines of the next record from its last use. Stores now bring as many here as the next operation needs if it
// is like this one, of nbyte bytes of payload: while we wait, not when it is urgent.
static void own_next_lines(const tr_request *r, size_t nbyte) {
  enum { CACHE_LINE = 64 };
  const tr_group *g = r->group;
  if (r->seq + 1 != g->next || tr__ahead(r->seq + 1, g->all_ended) >= TR__RING) return; // already posted, or in use
  tr__record *next = &ring_of(g, g->index)->record[(r->seq + 1) % TR__RING];
  next->call.kind = TR__NONE;
  for (size_t at = CACHE_LINE; at < sizeof *next - sizeof next->payload + nbyte; at += CACHE_LINE)
    ((char *)next)[at] = 0;
}

static size_t inline_in(const tr_request *r, char *payload) {
  if (collectives[r->kind]->inline_in) return collectives[r->kind]->inline_in(r, payload);
  tr__shm_copy(payload, r->src, r->nbyte);
  return r->nbyte;
}

static void post(tr_request *r) {
  tr_group *g = r->group;
  tr__record *record = record_of(r, g->index);
  record->call = tr__call_of(r);
  size_t nbyte = 0; // of the payload
  if (is_inline(r)) {
    if (contributes(r)) nbyte = inline_in(r, (char *)record->payload);
  } else {
    (collectives[r->kind]->post ? collectives[r->kind]->post : fill)(r, record);
    record->reads = collectives[r->kind]->pull && (uint32_t)tr__group_readable(g);
    atomic_store_explicit(&record->stage_in, 0, memory_order_relaxed);
    atomic_store_explicit(&record->stage_done, 0, memory_order_relaxed);
    atomic_store_explicit(&record->stage_out, 0, memory_order_relaxed);
    atomic_store_explicit(&record->finished, 0, memory_order_relaxed);
  }
  atomic_store_explicit(&record->ready, tr__tag(g->epoch, r->seq), memory_order_release);
  own_next_lines(r, nbyte);
  tr__worked(g->comm);
  tr__hook(g->comm, r->kind, TR__AT_READY);
}

// Group index of the peer looked at `i`-th.
static int looked_at(const tr_group *g, int i) {
  i += g->first;
  return i < g->size ? i : i - g->size;
}

static int all_ready(tr_request *r) {
  tr_group *g = r->group;
  uint64_t tag = tr__tag(g->epoch, r->seq);
  for (; r->cursor < g->size; r->cursor++)
    if (atomic_load_explicit(&record_of(r, looked_at(g, r->cursor))->ready, memory_order_acquire) != tag) {
      r->awaits = g->ranks[looked_at(g, r->cursor)];
      return 0;
    }
  return 1;
}

static int all_finished(tr_request *r) {
  tr_group *g = r->group;
  for (; r->cursor < g->size; r->cursor++)
    if (!atomic_load_explicit(&record_of(r, looked_at(g, r->cursor))->finished, memory_order_acquire)) {
      r->awaits = g->ranks[looked_at(g, r->cursor)];
      return 0;
    }
  return 1;
}

static tr_status agree(tr_request *r) {
  const tr__call *call[TR__RANKS];
  for (int i = 0; i < r->group->size; i++) call[i] = &record_of(r, i)->call;
  TR_TRY(tr__agree(r, call));
  return collectives[r->kind]->check ? collectives[r->kind]->check(r) : TR_OK;
}

// ---- the paths ----------------------------------------------------------------------------------

// Count this operation as ended and publish how far all have ended in order.
static tr_status end(tr_request *r) {
  tr_group *g = r->group;
  g->ended_bits |= 1u << (r->seq - g->ended);
  while (g->ended_bits & 1u) {
    g->ended_bits >>= 1;
    g->ended++;
  }
  atomic_store_explicit(&ring_of(g, g->index)->ended, tr__tag(g->epoch, g->ended), memory_order_release);
  tr__worked(g->comm);
  tr__hook(g->comm, r->kind, TR__AT_DONE);
  return TR_OK;
}

// The same on all ranks, as all see the same records.
static int all_read(const tr_request *r) {
  const tr__collective *c = collectives[r->kind];
  const tr_comm *comm = r->group->comm;
  int reads = r->most >= c->pull_least && (!c->pull_most || r->most <= c->pull_most) &&
              (!c->pull_alone || r->most < c->pull_alone || !comm->job->spin);
  reads |= comm->reads_all;
  for (int i = 0; i < r->group->size && reads; i++) reads = record_of(r, i)->reads != 0;
  return reads;
}

static void begin_path(tr_request *r) {
  const tr__collective *c = collectives[r->kind];
  tr_comm_counters *counters = &r->group->comm->counters;
  int direct = c->direct(r);
  r->pulls = !direct && all_read(r);
  direct |= r->pulls;
  r->cursor = 0;
  r->awaits = -1; // all are here; what follows is this rank's own work until it says otherwise
  r->phase = direct ? TR__WORKING : TR__STAGING;
  *(direct ? &counters->bytes_direct : &counters->bytes_staged) += r->nbyte;
  tr__at_work(r->group->comm);
  if (!direct) r->chunks = (uint32_t)((r->extent + c->chunk(r) - 1) / c->chunk(r));
  tr__hook(r->group->comm, r->kind, TR__AT_WORK);
}

static tr_status step_inline(tr_request *r) {
  tr__at_work(r->group->comm);
  tr__hook(r->group->comm, r->kind, TR__AT_WORK);
  if (r->nelem) collectives[r->kind]->combine(r);
  r->group->comm->counters.bytes_direct += r->nbyte;
  return end(r);
}

int tr__shm_fetch(tr_request *r, int i, uint64_t place, size_t offset, char *to, size_t n) {
  const tr_group *g = r->group;
  if (tr__in_arena(place)) {
    tr__shm_copy(to, g->comm->job->arenas + place + offset, n);
    return 1;
  }
  if (tr__peer_read(g->comm, g->ranks[i], to, (place & ~TR__OWN) + offset, n) == TR_OK) return 1;
  r->awaits = g->ranks[i]; // it has gone, or the job is stopping
  return 0;
}

static tr_status step_working(tr_request *r) {
  const tr__collective *c = collectives[r->kind];
  tr__at_work(r->group->comm);
  tr__pace pace = r->pulls ? c->pull(r) : c->work(r);
  if (pace == TR__WAITING) return TR_PENDING;
  tr__worked(r->group->comm);
  if (pace == TR__MORE) return TR_PENDING;
  atomic_store_explicit(&record_of(r, r->group->index)->finished, 1, memory_order_release);
  if (c->free_to_leave && c->free_to_leave(r)) return end(r);
  r->phase = TR__LEAVING;
  return all_finished(r) ? end(r) : TR_PENDING;
}

typedef enum stage_counter { STAGE_IN, STAGE_DONE, STAGE_OUT } stage_counter;

static _Atomic uint32_t *counter_of(tr__record *record, stage_counter counter) {
  return counter == STAGE_IN ? &record->stage_in : counter == STAGE_DONE ? &record->stage_done : &record->stage_out;
}

static void count(tr_request *r, stage_counter counter, uint32_t chunks) {
  atomic_store_explicit(counter_of(record_of(r, r->group->index), counter), chunks, memory_order_release);
}

// Have all ranks got past chunk `chunk`?
static int all_past(tr_request *r, uint32_t chunk, stage_counter counter) {
  for (int i = 0; i < r->group->size; i++) {
    if (atomic_load_explicit(counter_of(record_of(r, i), counter), memory_order_acquire) <= chunk) {
      r->awaits = r->group->ranks[i];
      return 0;
    }
  }
  return 1;
}

typedef struct chunk_range {
  size_t at, n;
} chunk_range;

static chunk_range range_of(const tr_request *r, uint32_t chunk) {
  size_t n = collectives[r->kind]->chunk(r), at = (size_t)chunk * n;
  return (chunk_range){at, tr__smaller(n, r->extent - at)};
}

// Does nobody use any more what chunk `chunk` left in this rank's stage? What has a stage_out is read there by others.
static int chunk_is_over(tr_request *r, uint32_t chunk) {
  return collectives[r->kind]->stage_out ? all_past(r, chunk, STAGE_OUT) : r->out > chunk;
}

static int stage_in(tr_request *r) {
  if (r->in == r->chunks || (r->in >= 2 && !chunk_is_over(r, r->in - 2))) return 0;
  tr__at_work(r->group->comm);
  chunk_range range = range_of(r, r->in);
  if (contributes(r)) collectives[r->kind]->stage_in(r, range.at, range.n);
  r->in++;
  count(r, STAGE_IN, r->in);
  return 1;
}

static int stage_work(tr_request *r) {
  if (r->done == r->in || !all_past(r, r->done, STAGE_IN)) return 0;
  tr__at_work(r->group->comm);
  chunk_range range = range_of(r, r->done);
  collectives[r->kind]->stage_work(r, range.at, range.n, (int)(r->done & 1));
  r->done++;
  count(r, STAGE_DONE, r->done);
  return 1;
}

static int stage_out(tr_request *r) {
  if (r->out == r->done || !all_past(r, r->out, STAGE_DONE)) return 0;
  tr__at_work(r->group->comm);
  chunk_range range = range_of(r, r->out);
  const tr__collective *c = collectives[r->kind];
  if (c->stage_out) c->stage_out(r, range.at, range.n, (int)(r->out & 1));
  r->out++;
  count(r, STAGE_OUT, r->out);
  return 1;
}

static tr_status step_staging(tr_request *r) {
  if (r->group->ended != r->seq) { // an earlier operation of the group may be using the stage
    r->awaits = -1;
    return TR_PENDING;
  }
  int moved = stage_in(r);
  moved |= stage_work(r);
  moved |= stage_out(r);
  if (moved) {
    r->awaits = -1; // who was missing a moment ago may have done its part meanwhile
    tr__worked(r->group->comm);
  }
  return r->out == r->chunks && chunk_is_over(r, r->chunks - 1) ? end(r) : TR_PENDING;
}

static tr_status step_script(tr_request *r) {
  tr_status status = tr__script_step(r);
  return status == TR_OK ? end(r) : status;
}

static tr_status step_gathering(tr_request *r) {
  if (!all_ready(r)) return TR_PENDING;
  TR_TRY(agree(r));
  if (r->script) {
    r->phase = TR__SCRIPT;
    return step_script(r);
  }
  if (is_inline(r)) return step_inline(r);
  begin_path(r);
  return r->phase == TR__STAGING ? step_staging(r) : step_working(r);
}

static tr_status step_post(tr_request *r) {
  if (!may_post(r)) return TR_PENDING;
  post(r);
  r->phase = TR__GATHERING;
  return step_gathering(r);
}

// Where an algorithm is demanded, what follows the agreement is its script; it is chosen in the order of the calls.
static tr_status first_step(tr_request *r) {
  const tr__strands *s = r->group->strands;
  int demanded = s && tr__choice_demand(r->group->comm->choice, r->kind, s->local_size) != NULL;
  if (demanded && !r->script) TR_TRY(tr__script_begin(r));
  return step_post(r);
}

static tr_status shm_step(tr_request *r) {
  if (r->kind >= TR__SEND) return tr__courier_step(r);
  switch (r->phase) {
  case TR__POST: return first_step(r);
  case TR__GATHERING: return step_gathering(r);
  case TR__WORKING: return step_working(r);
  case TR__STAGING: return step_staging(r);
  case TR__LEAVING: return all_finished(r) ? end(r) : TR_PENDING;
  case TR__SCRIPT: return step_script(r);
  }
  return TR_PENDING;
}

static void shm_drop(tr_request *r) {
  if (r->script)
    tr__script_drop(r);
  else
    tr__courier_drop(r);
}

const tr_engine tr__engine_shm = {
    .name = "shm",
    .join = tr__slot_join,
    .leave = tr__slot_leave,
    .step = shm_step,
    .drop = shm_drop,
    .transport = &tr__transport_shm,
};
