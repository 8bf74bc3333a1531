// SPDX-License-Identifier: MIT
// Collectives of the shared memory engine that add.
//
//   all-reduce of n bytes   bytes read and written per rank
//   inline                  P n, n      everybody sums all payloads
//   direct                  n, n        the owner of a slice reads its P copies once and stores the sum into all P results
//   pulled                  2 n, 2 n    the owner reads its P copies, of those in others' own memory a block at a time into a
//                                       buffer that stays in the cache, and stores the sum; the others read it there
//   staged                  2 n, 2 n    everybody copies what others own of its chunk into its stage, sums its slice into its
//                                       stage and its result, and copies the other slices from their owners' stages
//
// A reduce is the same with one result, a reduce-scatter with one slice each for oneself. Blocks of 256 elements are read from
// all P sources in turn (reduce.c) and slices are disjoint, so no two ranks work on the same lines at any time.
#include "shm_internal.h"

enum { GRAIN = 32 }; // slices start on multiples of this many elements
// Reading what is then added is a copy more than adding from a stage that is still in the cache: it gains from here on. Sums that
// all get are read once more, so beyond what the caches hold the stages move less.
enum { SUM_LEAST = 2 << 20, SUM_MOST = 8 << 20 };

// dst = op over the ranks' buffers, from a table of one address per rank.
static void reduce(const tr_request *r, const char **src, int ndst, char **dst, size_t n) {
  tr__reduce(r->type, r->dst_type, r->op, r->group->size, src, ndst, dst, n);
}

// Sum from the payloads, beginning `offset` bytes into each.
static void reduce_payloads(tr_request *r, size_t offset, size_t n) {
  const char *src[TR__RANKS];
  for (int i = 0; i < r->group->size; i++) src[i] = (const char *)tr__shm_record(r, i)->payload + offset;
  reduce(r, src, 1, &r->dst, n);
}

// How many of `left` elements one step takes, in multiples of `grain`.
static size_t piece(const tr_request *r, size_t grain, size_t left) {
  size_t n = TR__PIECE / r->width / (size_t)r->group->size;
  n = n > grain ? n / grain * grain : grain;
  return tr__smaller(n, left);
}

static int srcs_shared(const tr_request *r) { return tr__shm_srcs_shared(r, 0); }

// ---- all-reduce and reduce ----------------------------------------------------------------------

static void allreduce_combine(tr_request *r) { reduce_payloads(r, 0, r->nelem); }

static int allreduce_direct(const tr_request *r) {
  for (int i = 0; i < r->group->size; i++)
    if (!tr__in_arena(tr__shm_record(r, i)->dst_place)) return 0;
  return srcs_shared(r);
}

// One piece of the elements [start, start + count), which are this rank's to sum.
static tr__pace reduce_slice(tr_request *r, size_t start, size_t count, int ndst, char **dst) {
  const char *src[TR__RANKS];
  size_t n = piece(r, GRAIN, count - r->at), offset = (start + r->at) * r->width;
  for (int i = 0; i < r->group->size; i++) src[i] = tr__shm_src(r, i) + offset;
  for (int i = 0; i < ndst; i++) dst[i] += offset;
  reduce(r, src, ndst, dst, n);
  r->at += n;
  return r->at == count ? TR__DONE : TR__MORE;
}

static tr__pace allreduce_work(tr_request *r) {
  char *dst[TR__RANKS];
  size_t start, count;
  tr_slice(r->nelem, r->group->size, r->group->index, GRAIN, &start, &count);
  for (int i = 0; i < r->group->size; i++) dst[i] = tr__shm_dst(r, i);
  return reduce_slice(r, start, count, r->group->size, dst);
}

// ---- from others' own memory

// Elements that one turn reads of each other rank: they fit the bounce buffer.
static size_t block(const tr_request *r) {
  size_t n = TR__BOUNCE / r->width / (size_t)(r->group->size - 1);
  return n > GRAIN ? n / GRAIN * GRAIN : n;
}

// Addresses of elements [start, start + n) of all contributions: our own, those in arenas, and copies of the others'.
static int fetch_block(tr_request *r, size_t start, size_t n, const char **src) {
  const tr_group *g = r->group;
  size_t offset = start * r->width, nbyte = n * r->width;
  char *bounce = g->comm->bounce;
  for (int i = 0; i < g->size; i++) {
    uint64_t place = tr__shm_record(r, i)->place;
    src[i] = i == g->index ? r->src + offset : tr__in_arena(place) ? tr__shm_src(r, i) + offset : bounce;
    if (src[i] != bounce) continue;
    if (!tr__shm_fetch(r, i, place, offset, bounce, nbyte)) return 0;
    bounce += nbyte;
  }
  return 1;
}

// Our slice first; its sum goes to our own result.
static tr__pace sum_own_slice(tr_request *r) {
  const char *src[TR__RANKS];
  size_t start, count, left = TR__PIECE;
  tr_slice(r->nelem, r->group->size, r->group->index, GRAIN, &start, &count);
  while (r->at < count && left > 0) {
    size_t n = tr__smaller(block(r), count - r->at);
    if (!fetch_block(r, start + r->at, n, src)) return TR__WAITING;
    char *dst = r->dst + (start + r->at) * r->width;
    reduce(r, src, 1, &dst, n);
    r->at += n;
    left -= tr__smaller(left, n * r->width * (size_t)r->group->size);
  }
  return r->at == count ? TR__DONE : TR__MORE;
}

// Then the other slices from their owners, each once its owner has summed it: then it no longer needs what lies here.
static tr__pace fetch_slices(tr_request *r) {
  const tr_group *g = r->group;
  size_t left = TR__PIECE;
  for (; r->block < g->size; r->block++, r->at = 0) {
    int i = (g->index + r->block) % g->size;
    tr__record *record = tr__shm_record(r, i);
    size_t start, count;
    tr_slice(r->nelem, g->size, i, GRAIN, &start, &count);
    if (!atomic_load_explicit(&record->stage_done, memory_order_acquire)) {
      r->awaits = g->ranks[i];
      return TR__WAITING;
    }
    size_t nbyte = count * r->width, n = tr__smaller(left, nbyte - r->at), at = start * r->width + r->at;
    if (n && !tr__shm_fetch(r, i, record->dst_place, at, r->dst + at, n)) return TR__WAITING;
    r->at += n;
    left -= n;
    if (r->at < nbyte) return TR__MORE;
  }
  return TR__DONE;
}

static tr__pace allreduce_pull(tr_request *r) {
  if (r->block > 0) return fetch_slices(r);
  tr__pace pace = sum_own_slice(r);
  if (pace != TR__DONE) return pace;
  atomic_store_explicit(&tr__shm_record(r, r->group->index)->stage_done, 1, memory_order_release);
  r->block = 1;
  r->at = 0;
  return TR__MORE;
}

typedef struct slice {
  size_t start, count; // elements within a chunk
} slice;

static slice slice_of(const tr_request *r, size_t n, int index) {
  slice s;
  tr_slice(n, r->group->size, index, GRAIN, &s.start, &s.count);
  return s;
}

// n elements from `at`, without those of `skip`.
static void stage_around(tr_request *r, size_t at, size_t n, slice skip) {
  char *stage = tr__shm_own_half(r);
  const char *src = r->src + at * r->width;
  size_t end = (skip.start + skip.count) * r->width;
  tr__shm_copy(stage, src, skip.start * r->width);
  tr__shm_copy(stage + end, src + end, n * r->width - end);
}

// Sources of the elements from `at + start` on, `start` of them into the chunk: others' stages and our own buffer.
static void staged_sources(const tr_request *r, size_t at, size_t start, int half, const char **src) {
  for (int i = 0; i < r->group->size; i++) src[i] = tr__shm_half(r, i, half) + start * r->width;
  src[r->group->index] = r->src + (at + start) * r->width;
}

static void slices_stage_in(tr_request *r, size_t at, size_t n) {
  stage_around(r, at, n, slice_of(r, n, r->group->index));
}

static void allreduce_stage_work(tr_request *r, size_t at, size_t n, int half) {
  const char *src[TR__RANKS];
  slice s = slice_of(r, n, r->group->index);
  char *dst[] = {tr__shm_half(r, r->group->index, half) + s.start * r->width, r->dst + (at + s.start) * r->width};
  staged_sources(r, at, s.start, half, src);
  reduce(r, src, 2, dst, s.count);
}

static void slices_stage_out(tr_request *r, size_t at, size_t n, int half) {
  for (int i = 0; i < r->group->size; i++) {
    slice s = slice_of(r, n, i);
    if (i == r->group->index) continue;
    tr__shm_copy(r->dst + (at + s.start) * r->width, tr__shm_half(r, i, half) + s.start * r->width,
                 s.count * r->width);
  }
}

const tr__collective tr__shm_allreduce = {.combine = allreduce_combine,
                                          .direct = allreduce_direct,
                                          .work = allreduce_work,
                                          .pull = allreduce_pull,
                                          .pull_least = SUM_LEAST,
                                          .pull_most = SUM_MOST,
                                          .chunk = tr__shm_chunk_whole,
                                          .stage_in = slices_stage_in,
                                          .stage_work = allreduce_stage_work,
                                          .stage_out = slices_stage_out};

static int is_root(const tr_request *r) { return r->group->index == r->root; }

static void reduce_combine(tr_request *r) {
  if (is_root(r)) reduce_payloads(r, 0, r->nelem);
}

// Each rank sums a slice into the root's result; where others cannot write to that, the root sums all.
static tr__pace reduce_work(tr_request *r) {
  size_t start = 0, count = is_root(r) ? r->nelem : 0;
  char *dst = r->dst;
  if (tr__in_arena(tr__shm_record(r, r->root)->dst_place)) {
    tr_slice(r->nelem, r->group->size, r->group->index, GRAIN, &start, &count);
    dst = tr__shm_dst(r, r->root);
  }
  return count == 0 ? TR__DONE : reduce_slice(r, start, count, 1, &dst);
}

static void reduce_stage_work(tr_request *r, size_t at, size_t n, int half) {
  const char *src[TR__RANKS];
  slice s = slice_of(r, n, r->group->index);
  char *dst = tr__shm_half(r, r->group->index, half) + s.start * r->width;
  if (is_root(r)) dst = r->dst + (at + s.start) * r->width;
  staged_sources(r, at, s.start, half, src);
  reduce(r, src, 1, &dst, s.count);
}

static void reduce_stage_out(tr_request *r, size_t at, size_t n, int half) {
  if (is_root(r)) slices_stage_out(r, at, n, half);
}

const tr__collective tr__shm_reduce = {.combine = reduce_combine,
                                       .direct = srcs_shared,
                                       .work = reduce_work,
                                       .chunk = tr__shm_chunk_whole,
                                       .stage_in = slices_stage_in,
                                       .stage_work = reduce_stage_work,
                                       .stage_out = reduce_stage_out};

// ---- reduce-scatter -----------------------------------------------------------------------------

static void reduce_scatter_combine(tr_request *r) {
  reduce_payloads(r, (size_t)r->group->index * r->nelem * r->width, r->nelem);
}

static tr__pace reduce_scatter_work(tr_request *r) {
  const char *src[TR__RANKS];
  size_t n = piece(r, GRAIN, r->nelem - r->at), own = ((size_t)r->group->index * r->nelem + r->at) * r->width;
  for (int i = 0; i < r->group->size; i++) src[i] = tr__shm_src(r, i) + own;
  char *dst = r->dst + r->at * r->width;
  reduce(r, src, 1, &dst, n);
  r->at += n;
  return r->at == r->nelem ? TR__DONE : TR__MORE;
}

static tr__pace reduce_scatter_pull(tr_request *r) {
  const char *src[TR__RANKS];
  size_t left = TR__PIECE, own = (size_t)r->group->index * r->nelem;
  while (r->at < r->nelem && left > 0) {
    size_t n = tr__smaller(block(r), r->nelem - r->at);
    if (!fetch_block(r, own + r->at, n, src)) return TR__WAITING;
    char *dst = r->dst + r->at * r->width;
    reduce(r, src, 1, &dst, n);
    r->at += n;
    left -= tr__smaller(left, n * r->width * (size_t)r->group->size);
  }
  return r->at == r->nelem ? TR__DONE : TR__MORE;
}

static void reduce_scatter_stage_work(tr_request *r, size_t at, size_t n, int half) {
  const char *src[TR__RANKS];
  size_t own = (size_t)r->group->index;
  for (int i = 0; i < r->group->size; i++) src[i] = tr__shm_half(r, i, half) + own * n * r->width;
  src[own] = r->src + (own * r->nelem + at) * r->width;
  char *dst = r->dst + at * r->width;
  reduce(r, src, 1, &dst, n);
}

const tr__collective tr__shm_reduce_scatter = {.combine = reduce_scatter_combine,
                                               .direct = srcs_shared,
                                               .work = reduce_scatter_work,
                                               .pull = reduce_scatter_pull,
                                               .pull_least = SUM_LEAST,
                                               .chunk = tr__shm_chunk_block,
                                               .stage_in = tr__shm_stage_blocks,
                                               .stage_work = reduce_scatter_stage_work};

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
  for (int i = 0; i < r->group->size; i++)
    src[i] = (const char *)tr__shm_record(r, i)->payload + own_start(r) * r->width;
  reduce_part(r, src, 0, own_count(r));
}

// Pieces of whole grains, so that each is told of while it is in the cache.
static tr__pace reduce_scatter_v_work(tr_request *r) {
  const char *src[TR__RANKS];
  size_t left = own_count(r) - r->at, n = piece(r, r->grain, left);
  for (int i = 0; i < r->group->size; i++) src[i] = tr__shm_src(r, i) + (own_start(r) + r->at) * r->width;
  reduce_part(r, src, r->at, n);
  r->at += n;
  return n == left ? TR__DONE : TR__MORE;
}

static tr__pace reduce_scatter_v_pull(tr_request *r) {
  const char *src[TR__RANKS];
  size_t n = tr__smaller(block(r), own_count(r) - r->at);
  if (!fetch_block(r, own_start(r) + r->at, n, src)) return TR__WAITING;
  reduce_part(r, src, r->at, n);
  r->at += n;
  return r->at == own_count(r) ? TR__DONE : TR__MORE;
}

// A chunk is a range of the whole; what of it is our own.
static slice own_part(const tr_request *r, size_t at, size_t n) {
  size_t first = own_start(r), last = first + own_count(r);
  size_t begin = at > first ? at : first, end = tr__smaller(at + n, last);
  return begin < end ? (slice){begin - at, end - begin} : (slice){0, 0};
}

static void reduce_scatter_v_stage_in(tr_request *r, size_t at, size_t n) {
  stage_around(r, at, n, own_part(r, at, n));
}

static void reduce_scatter_v_stage_work(tr_request *r, size_t at, size_t n, int half) {
  const char *src[TR__RANKS];
  slice part = own_part(r, at, n);
  if (part.count == 0) return;
  staged_sources(r, at, part.start, half, src);
  reduce_part(r, src, at + part.start - own_start(r), part.count);
}

const tr__collective tr__shm_reduce_scatter_v = {.combine = reduce_scatter_v_combine,
                                                 .direct = srcs_shared,
                                                 .work = reduce_scatter_v_work,
                                                 .pull = reduce_scatter_v_pull,
                                                 .pull_least = SUM_LEAST,
                                                 .chunk = tr__shm_chunk_whole,
                                                 .stage_in = reduce_scatter_v_stage_in,
                                                 .stage_work = reduce_scatter_v_stage_work};
