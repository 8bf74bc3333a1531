// SPDX-License-Identifier: MIT
// Collectives over shared memory: one state machine for all of them; the table at the end says what each does.
//
//         post record           all records there, equal
//   POST -------------> GATHERING ---------------------> inline:   combine all payloads, end
//                                                        WORKING:  others' buffers in place -> LEAVING -> end
//                                                        STAGING:  chunks through the stages -> end
//
//   path     when                        all-reduce of n bytes: bytes read and written per rank, flag phases
//   inline   payload <= 2 KiB            P n, n     one: everybody reads all payloads
//   direct   what others read is in an   n, n       two: "my buffer is ready", "my slice is done"; the owner of a
//            arena on every rank                    slice reads its P copies and stores into all P buffers
//   staged   otherwise                   3 n, 3 n   the same two per 256 KiB chunk, on the stages' double buffers
//
// Each rank computes the elements it owns in fixed order, so all ranks get equal bits on any path. Records are a
// ring: operation s may be posted once s - 16 has ended on every rank, which each rank publishes as a count. A staged
// operation starts when all earlier ones of its group have ended here; the order is the same everywhere, so the stage
// of a group has one user at a time. Buffers of different ranks may lie at different offsets of their arenas.
#include "comm_internal.h"
#include <stdio.h>
#include <string.h>

enum {
  SMALL_TOTAL = 32 * 1024, // most bytes that all payloads of an inline operation may have together
  GRAIN = 32,              // slices start on multiples of this many elements
};

typedef struct collective {
  size_t (*payload)(const tr_request *r);    // bytes of one rank's contribution
  void (*combine)(tr_request *r);            // inline: from all payloads to dst
  int (*work)(tr_request *r);                // direct: one bounded piece; nonzero when all is done
  int (*free_to_leave)(const tr_request *r); // direct: nobody reads this rank's buffers, do not wait; NULL: wait
  int only_root;                             // only the root contributes
  size_t (*chunk)(const tr_request *r);      // staged: elements per chunk
  // staged: n elements from `at` into this rank's stage; then from all stages; then from this rank's to dst (or NULL)
  void (*stage_in)(tr_request *r, size_t at, size_t n);
  void (*stage_work)(tr_request *r, size_t at, size_t n, int half);
  void (*stage_out)(tr_request *r, size_t at, size_t n, int half);
} collective;

static const collective collectives[TR__KINDS];

// ---- where things are ---------------------------------------------------------------------------

static tr__ring *ring_of(const tr_group *g, int index) { return tr__ring_of(g->comm->job, g->slot, g->ranks[index]); }
static tr__record *record_of(const tr_request *r, int index) {
  return &ring_of(r->group, index)->record[r->seq % TR__RING];
}
static char *half_of(const tr_request *r, int index, int half) {
  return tr__stage_of(r->group->comm->job, r->group->slot, r->group->ranks[index])->half[half];
}
static char *buffer_of(const tr_request *r, int index) {
  return r->group->comm->job->arenas + record_of(r, index)->place;
}
static int contributes(const tr_request *r, int index) { return !collectives[r->kind].only_root || index == r->root; }
static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static void copy(char *dst, const char *src, size_t nbyte) {
  if (nbyte && dst != src) memcpy(dst, src, nbyte);
}

// dst = op over the ranks' buffers, from a table of one address per rank.
static void reduce(const tr_request *r, const char **src, int ndst, char **dst, size_t n) {
  tr_dtype to = r->kind == TR__REDUCE_SCATTER_V ? r->dst_type : r->type;
  tr__reduce(r->type, to, r->op, r->group->size, src, ndst, dst, n);
}

// ---- sizes --------------------------------------------------------------------------------------

static size_t payload_nbyte(const tr_request *r) { return r->nbyte; }
static size_t chunk_whole(const tr_request *r) { return TR__STAGE / r->width; }
static size_t chunk_shared(const tr_request *r) { return TR__STAGE / (r->width * (size_t)r->group->size); }

static int is_inline(const tr_request *r) {
  size_t payload = collectives[r->kind].payload(r), ranks = contributes(r, -1) ? (size_t)r->group->size : 1;
  return payload <= TR__INLINE && payload * ranks <= SMALL_TOTAL;
}

// ---- all-reduce ---------------------------------------------------------------------------------

static void allreduce_combine(tr_request *r) {
  const char *src[TR__RANKS];
  for (int i = 0; i < r->group->size; i++) src[i] = (const char *)record_of(r, i)->payload;
  reduce(r, src, 1, &r->dst, r->nelem);
}

static int allreduce_work(tr_request *r) {
  int size = r->group->size;
  size_t start, count, n = TR__PIECE / r->width / (size_t)size;
  tr_slice(r->nelem, size, r->group->index, GRAIN, &start, &count);
  n = smaller(n > GRAIN ? n : GRAIN, count - r->at);
  const char *src[TR__RANKS];
  char *dst[TR__RANKS];
  for (int i = 0; i < size; i++) src[i] = dst[i] = buffer_of(r, i) + (start + r->at) * r->width;
  reduce(r, src, size, dst, n);
  r->at += n;
  return r->at == count;
}

static void allreduce_stage_in(tr_request *r, size_t at, size_t n) {
  copy(half_of(r, r->group->index, (int)(r->in & 1)), r->src + at * r->width, n * r->width);
}

static void allreduce_stage_work(tr_request *r, size_t at, size_t n, int half) {
  (void)at;
  size_t start, count;
  tr_slice(n, r->group->size, r->group->index, GRAIN, &start, &count);
  const char *src[TR__RANKS];
  char *dst[TR__RANKS];
  for (int i = 0; i < r->group->size; i++) src[i] = dst[i] = half_of(r, i, half) + start * r->width;
  reduce(r, src, r->group->size, dst, count);
}

static void allreduce_stage_out(tr_request *r, size_t at, size_t n, int half) {
  copy(r->dst + at * r->width, half_of(r, r->group->index, half), n * r->width);
}

// ---- reduce-scatter: the same without storing into others' buffers ------------------------------

static void reduce_scatter_combine(tr_request *r) {
  const char *src[TR__RANKS];
  size_t own = (size_t)r->group->index * r->nelem * r->width;
  for (int i = 0; i < r->group->size; i++) src[i] = (const char *)record_of(r, i)->payload + own;
  reduce(r, src, 1, &r->dst, r->nelem);
}

static int reduce_scatter_work(tr_request *r) {
  size_t n = TR__PIECE / r->width / (size_t)r->group->size;
  n = smaller(n > GRAIN ? n : GRAIN, r->nelem - r->at);
  const char *src[TR__RANKS];
  size_t own = ((size_t)r->group->index * r->nelem + r->at) * r->width;
  for (int i = 0; i < r->group->size; i++) src[i] = buffer_of(r, i) + own;
  char *dst = r->dst + r->at * r->width;
  reduce(r, src, 1, &dst, n);
  r->at += n;
  return r->at == r->nelem;
}

// A chunk holds the same n elements of every rank's block, one after the other.
static void reduce_scatter_stage_in(tr_request *r, size_t at, size_t n) {
  char *stage = half_of(r, r->group->index, (int)(r->in & 1));
  for (int i = 0; i < r->group->size; i++)
    copy(stage + (size_t)i * n * r->width, r->src + ((size_t)i * r->nelem + at) * r->width, n * r->width);
}

static void reduce_scatter_stage_work(tr_request *r, size_t at, size_t n, int half) {
  const char *src[TR__RANKS];
  for (int i = 0; i < r->group->size; i++) src[i] = half_of(r, i, half) + (size_t)r->group->index * n * r->width;
  char *dst = r->dst + at * r->width;
  reduce(r, src, 1, &dst, n);
}

// ---- reduce-scatter of uneven parts -------------------------------------------------------------

static size_t own_start(const tr_request *r) { return r->start[r->group->index]; }
static size_t own_count(const tr_request *r) { return r->start[r->group->index + 1] - own_start(r); }

// Elements [at, at + n) of this rank's part, from a table of one address per rank.
static void reduce_part(tr_request *r, const char **src, size_t at, size_t n) {
  char *dst = r->dst + at * tr_dtype_size(r->dst_type);
  reduce(r, src, 1, &dst, n);
  tr__tell_part(r, at + n);
}

static void reduce_scatter_v_combine(tr_request *r) {
  const char *src[TR__RANKS];
  for (int i = 0; i < r->group->size; i++) src[i] = (const char *)record_of(r, i)->payload + own_start(r) * r->width;
  reduce_part(r, src, 0, own_count(r));
}

// Pieces of whole grains, so that each is told of while it is in the cache.
static int reduce_scatter_v_work(tr_request *r) {
  size_t n = TR__PIECE / r->width / (size_t)r->group->size, left = own_count(r) - r->at;
  n = n > r->grain ? n / r->grain * r->grain : r->grain;
  n = smaller(n, left);
  const char *src[TR__RANKS];
  for (int i = 0; i < r->group->size; i++) src[i] = buffer_of(r, i) + (own_start(r) + r->at) * r->width;
  reduce_part(r, src, r->at, n);
  r->at += n;
  return n == left;
}

// A chunk is a range of the whole; each rank sums what of it is its own.
static void reduce_scatter_v_stage_work(tr_request *r, size_t at, size_t n, int half) {
  size_t first = own_start(r), last = first + own_count(r);
  size_t begin = at > first ? at : first, end = smaller(at + n, last);
  if (begin >= end) return;
  const char *src[TR__RANKS];
  for (int i = 0; i < r->group->size; i++) src[i] = half_of(r, i, half) + (begin - at) * r->width;
  reduce_part(r, src, begin - first, end - begin);
}

// ---- all-gather and broadcast: pull -------------------------------------------------------------

static void allgather_combine(tr_request *r) {
  for (int i = 0; i < r->group->size; i++)
    copy(r->dst + (size_t)i * r->nbyte, (const char *)record_of(r, i)->payload, r->nbyte);
}

// `at` counts bytes over all blocks, beginning with our own, so that ranks do not all read the same source first.
static int allgather_work(tr_request *r) {
  size_t size = (size_t)r->group->size, block = r->at / r->nbyte, within = r->at % r->nbyte;
  size_t index = ((size_t)r->group->index + block) % size;
  size_t n = smaller(TR__PIECE, r->nbyte - within);
  const char *src = (int)index == r->group->index ? r->src : buffer_of(r, (int)index);
  copy(r->dst + index * r->nbyte + within, src + within, n);
  r->at += n;
  return r->at == size * r->nbyte;
}

static void allgather_stage_work(tr_request *r, size_t at, size_t n, int half) {
  for (int i = 0; i < r->group->size; i++)
    copy(r->dst + (size_t)i * r->nbyte + at * r->width, half_of(r, i, half), n * r->width);
}

static void broadcast_combine(tr_request *r) {
  if (r->group->index != r->root) copy(r->dst, (const char *)record_of(r, r->root)->payload, r->nbyte);
}

static int broadcast_work(tr_request *r) {
  if (r->group->index == r->root) return 1;
  size_t n = smaller(TR__PIECE, r->nbyte - r->at);
  copy(r->dst + r->at, buffer_of(r, r->root) + r->at, n);
  r->at += n;
  return r->at == r->nbyte;
}

static int broadcast_free_to_leave(const tr_request *r) { return r->group->index != r->root; }

static void broadcast_stage_work(tr_request *r, size_t at, size_t n, int half) {
  if (r->group->index != r->root) copy(r->dst + at * r->width, half_of(r, r->root, half), n * r->width);
}

static void barrier_combine(tr_request *r) { (void)r; }

static const collective collectives[TR__KINDS] = {
    [TR__ALLREDUCE] = {.payload = payload_nbyte,
                       .combine = allreduce_combine,
                       .work = allreduce_work,
                       .chunk = chunk_whole,
                       .stage_in = allreduce_stage_in,
                       .stage_work = allreduce_stage_work,
                       .stage_out = allreduce_stage_out},
    [TR__REDUCE_SCATTER] = {.payload = payload_nbyte,
                            .combine = reduce_scatter_combine,
                            .work = reduce_scatter_work,
                            .chunk = chunk_shared,
                            .stage_in = reduce_scatter_stage_in,
                            .stage_work = reduce_scatter_stage_work},
    [TR__REDUCE_SCATTER_V] = {.payload = payload_nbyte,
                              .combine = reduce_scatter_v_combine,
                              .work = reduce_scatter_v_work,
                              .chunk = chunk_whole,
                              .stage_in = allreduce_stage_in,
                              .stage_work = reduce_scatter_v_stage_work},
    [TR__ALLGATHER] = {.payload = payload_nbyte,
                       .combine = allgather_combine,
                       .work = allgather_work,
                       .chunk = chunk_whole,
                       .stage_in = allreduce_stage_in,
                       .stage_work = allgather_stage_work},
    [TR__BROADCAST] = {.payload = payload_nbyte,
                       .combine = broadcast_combine,
                       .work = broadcast_work,
                       .free_to_leave = broadcast_free_to_leave,
                       .only_root = 1,
                       .chunk = chunk_whole,
                       .stage_in = allreduce_stage_in,
                       .stage_work = broadcast_stage_work},
    [TR__BARRIER] = {.payload = payload_nbyte, .combine = barrier_combine},
};

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

static void post(tr_request *r) {
  tr_group *g = r->group;
  tr__record *record = record_of(r, g->index);
  record->kind = (uint8_t)r->kind;
  record->type = (uint8_t)r->type;
  record->op = (uint8_t)r->op;
  record->root = r->root;
  record->nelem = r->nelem;
  int small = is_inline(r);
  record->place = small ? TR__PRIVATE : tr__job_place(g->comm->job, r->src, r->nbyte);
  if (small && contributes(r, g->index)) copy((char *)record->payload, r->src, r->nbyte);
  atomic_store_explicit(&record->stage_in, 0, memory_order_relaxed);
  atomic_store_explicit(&record->stage_done, 0, memory_order_relaxed);
  atomic_store_explicit(&record->finished, 0, memory_order_relaxed);
  atomic_store_explicit(&record->ready, tr__tag(g->epoch, r->seq), memory_order_release);
  tr__worked(g->comm);
  tr__hook(g->comm, r->kind, TR__AT_READY);
}

static int all_ready(tr_request *r) {
  tr_group *g = r->group;
  uint64_t tag = tr__tag(g->epoch, r->seq);
  for (; r->cursor < g->size; r->cursor++)
    if (atomic_load_explicit(&record_of(r, r->cursor)->ready, memory_order_acquire) != tag) {
      r->awaits = g->ranks[r->cursor];
      return 0;
    }
  return 1;
}

static int all_finished(tr_request *r) {
  tr_group *g = r->group;
  for (; r->cursor < g->size; r->cursor++)
    if (!atomic_load_explicit(&record_of(r, r->cursor)->finished, memory_order_acquire)) {
      r->awaits = g->ranks[r->cursor];
      return 0;
    }
  return 1;
}

static int equal_calls(const tr__record *a, const tr__record *b) {
  return a->kind == b->kind && a->type == b->type && a->op == b->op && a->root == b->root && a->nelem == b->nelem;
}

static void describe_call(const tr__record *c, char *out, size_t nbyte) {
  static const char *const ops[] = {"sum", "max", "average"};
  char extra[48] = "";
  if (tr__kind_reduces((tr__kind)c->kind)) snprintf(extra, sizeof extra, ", %s", ops[c->op]);
  if (c->kind == TR__BROADCAST) snprintf(extra, sizeof extra, ", root %d", c->root);
  snprintf(out, nbyte, "%s(%llu %s%s)", tr__kind_name((tr__kind)c->kind), (unsigned long long)c->nelem,
           tr_dtype_name((tr_dtype)c->type), extra);
}

// The call most ranks made is taken as meant; the first rank that made another one is to blame. Same on every rank.
static tr_status disagree(tr_request *r) {
  tr_group *g = r->group;
  int meant = 0, most = 0, differs = 0;
  for (int i = 0; i < g->size; i++) {
    int same = 0;
    for (int j = 0; j < g->size; j++) same += equal_calls(record_of(r, i), record_of(r, j));
    if (same > most) meant = i, most = same;
  }
  while (equal_calls(record_of(r, meant), record_of(r, differs))) differs++;
  char a[80], b[80];
  describe_call(record_of(r, differs), a, sizeof a);
  describe_call(record_of(r, meant), b, sizeof b);
  return tr__fail(g->comm, g->ranks[differs], TR_ERR_USAGE,
                  "operation #%u of group '%s' differs: rank %d called %s, rank %d called %s", r->seq - g->base + 1,
                  g->name, g->ranks[differs], a, g->ranks[meant], b);
}

static tr_status agree(tr_request *r) {
  const tr__record *own = record_of(r, r->group->index);
  for (int i = 0; i < r->group->size; i++)
    if (!equal_calls(own, record_of(r, i))) return disagree(r);
  return TR_OK;
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

static tr__phase choose_path(const tr_request *r) {
  for (int i = 0; i < r->group->size; i++)
    if (contributes(r, i) && record_of(r, i)->place == TR__PRIVATE) return TR__STAGING;
  return TR__WORKING;
}

static void begin_path(tr_request *r) {
  const collective *c = &collectives[r->kind];
  r->cursor = 0;
  r->awaits = -1; // all are here; what follows is this rank's own work until it says otherwise
  r->phase = choose_path(r);
  tr_comm_counters *counters = &r->group->comm->counters;
  *(r->phase == TR__STAGING ? &counters->bytes_staged : &counters->bytes_direct) += r->nbyte;
  tr__at_work(r->group->comm);
  if (r->phase == TR__STAGING) r->chunks = (uint32_t)((r->nelem + c->chunk(r) - 1) / c->chunk(r));
  tr__hook(r->group->comm, r->kind, TR__AT_WORK);
}

static tr_status step_inline(tr_request *r) {
  tr__at_work(r->group->comm);
  tr__hook(r->group->comm, r->kind, TR__AT_WORK);
  if (r->nelem) collectives[r->kind].combine(r);
  r->group->comm->counters.bytes_direct += r->nbyte;
  return end(r);
}

static tr_status step_working(tr_request *r) {
  const collective *c = &collectives[r->kind];
  tr__at_work(r->group->comm);
  int done = c->work(r);
  tr__worked(r->group->comm);
  if (!done) return TR_PENDING;
  atomic_store_explicit(&record_of(r, r->group->index)->finished, 1, memory_order_release);
  if (c->free_to_leave && c->free_to_leave(r)) return end(r);
  r->phase = TR__LEAVING;
  return all_finished(r) ? end(r) : TR_PENDING;
}

// Have all ranks got past chunk `chunk`, in the counter chosen by `done`?
static int all_past(tr_request *r, uint32_t chunk, int done) {
  for (int i = 0; i < r->group->size; i++) {
    tr__record *record = record_of(r, i);
    uint32_t count = atomic_load_explicit(done ? &record->stage_done : &record->stage_in, memory_order_acquire);
    if (count <= chunk) {
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
  size_t n = collectives[r->kind].chunk(r), at = (size_t)chunk * n;
  return (chunk_range){at, smaller(n, r->nelem - at)};
}

static int stage_in(tr_request *r) {
  if (r->in == r->chunks || r->in - r->out >= 2) return 0;
  tr__at_work(r->group->comm);
  chunk_range range = range_of(r, r->in);
  if (contributes(r, r->group->index)) collectives[r->kind].stage_in(r, range.at, range.n);
  r->in++;
  atomic_store_explicit(&record_of(r, r->group->index)->stage_in, r->in, memory_order_release);
  return 1;
}

static int stage_work(tr_request *r) {
  if (r->done == r->in || !all_past(r, r->done, 0)) return 0;
  tr__at_work(r->group->comm);
  chunk_range range = range_of(r, r->done);
  collectives[r->kind].stage_work(r, range.at, range.n, (int)(r->done & 1));
  r->done++;
  atomic_store_explicit(&record_of(r, r->group->index)->stage_done, r->done, memory_order_release);
  return 1;
}

// Once everybody is past a chunk its half is this rank's again.
static int stage_out(tr_request *r) {
  if (r->out == r->done || !all_past(r, r->out, 1)) return 0;
  tr__at_work(r->group->comm);
  chunk_range range = range_of(r, r->out);
  const collective *c = &collectives[r->kind];
  if (c->stage_out) c->stage_out(r, range.at, range.n, (int)(r->out & 1));
  r->out++;
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
  return r->out == r->chunks ? end(r) : TR_PENDING;
}

static tr_status step_gathering(tr_request *r) {
  if (!all_ready(r)) return TR_PENDING;
  TR_TRY(agree(r));
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

static tr_status shm_step(tr_request *r) {
  if (r->kind == TR__SEND || r->kind == TR__RECV) return tr__courier_step(r);
  switch (r->phase) {
  case TR__POST: return step_post(r);
  case TR__GATHERING: return step_gathering(r);
  case TR__WORKING: return step_working(r);
  case TR__STAGING: return step_staging(r);
  case TR__LEAVING: return all_finished(r) ? end(r) : TR_PENDING;
  }
  return TR_PENDING;
}

static void shm_drop(tr_request *r) {
  if (r->group->comm->courier_user == r) r->group->comm->courier_user = NULL;
}

const tr_engine tr__engine_shm = {
    .name = "shm",
    .join = tr__slot_join,
    .leave = tr__slot_leave,
    .step = shm_step,
    .drop = shm_drop,
};
