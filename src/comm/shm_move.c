// SPDX-License-Identifier: MIT
// Collectives of the shared memory engine that copy.
//
//   inline   everybody copies what is meant for it out of the payloads
//   direct   everybody copies what is meant for it straight from the others' buffers, in arenas or in their own memory: each
//            byte is read once and written once. A gather is the reverse where the root's result lies in an arena: everybody
//            writes its block there.
//   staged   through the stages: each byte twice, but for what a rank has for itself
//
// Each rank begins with its own block and goes on with that of the next index, so that ranks do not all read the same
// source first. Only all-to-all-v has sizes that others do not know: its records carry where blocks start, and small data
// behind that.
#include "agree_internal.h"
#include "shm_internal.h"

static size_t block_nbyte(const tr_request *r) { return r->nelem * r->width; }
static int is_root(const tr_request *r) { return r->group->index == r->root; }

// Does rank i have something for this rank?
static int has_for_us(const tr_request *r, int i) {
  switch (r->kind) {
  case TR__BROADCAST: return i == r->root && !is_root(r);
  case TR__SCATTER: return i == r->root;
  case TR__GATHER: return is_root(r);
  default: return 1;
  }
}

// Do contributions hold a block for each rank, or the same for all?
static int in_blocks(const tr_request *r) {
  return r->kind == TR__ALLTOALL || r->kind == TR__ALLTOALL_V || r->kind == TR__SCATTER;
}

static const uint64_t *starts_of(const tr_request *r, int i) { return tr__shm_record(r, i)->words; }

// Where what rank i has for this rank lies in its contribution, and where it belongs.
typedef struct span {
  size_t from;
  char *dst;
  size_t nbyte;
} span;

static span span_of(const tr_request *r, int i) {
  int own = r->group->index;
  size_t block = block_nbyte(r), width = r->width;
  switch (r->kind) {
  case TR__ALLGATHER_V: return (span){0, r->dst + r->start[i] * width, (r->start[i + 1] - r->start[i]) * width};
  case TR__ALLTOALL: return (span){(size_t)own * block, r->dst + (size_t)i * block, block};
  case TR__ALLTOALL_V: {
    const uint64_t *start = starts_of(r, i);
    size_t first = tr__shm_record(r, i)->place == TR__WITHIN ? start[0] : 0;
    return (span){(start[own] - first) * width, r->dst + r->dst_start[i] * width,
                  (start[own + 1] - start[own]) * width};
  }
  case TR__BROADCAST: return (span){0, r->dst, block};
  case TR__SCATTER: return (span){(size_t)own * block, r->dst, block};
  default: return (span){0, r->dst + (size_t)i * block, block};
  }
}

static void move_combine(tr_request *r) {
  for (int i = 0; i < r->group->size; i++) {
    if (!has_for_us(r, i)) continue;
    span s = span_of(r, i);
    tr__shm_copy(s.dst, (const char *)tr__shm_record(r, i)->payload + s.from, s.nbyte);
  }
}

// All-to-all: what a rank has for itself is not in its payload, which so takes fewer lines; the blocks after it are one further
// forward.
static size_t alltoall_inline_in(const tr_request *r, char *payload) {
  const size_t block = block_nbyte(r), before = (size_t)r->group->index * block, after = r->nbyte - before - block;
  tr__shm_copy(payload, r->src, before);
  tr__shm_copy(payload + before, r->src + before + block, after);
  return before + after;
}

static void alltoall_combine(tr_request *r) {
  const int own = r->group->index;
  const size_t block = block_nbyte(r);
  for (int i = 0; i < r->group->size; i++) {
    const char *payload = (const char *)tr__shm_record(r, i)->payload + (size_t)(own - (own > i)) * block;
    tr__shm_copy(r->dst + (size_t)i * block, i == own ? r->src + (size_t)own * block : payload, block);
  }
}

// Bytes [offset, offset + n) of rank i's contribution. 0: it has gone.
static int fetch(tr_request *r, int i, size_t offset, char *to, size_t n) {
  tr__record *record = tr__shm_record(r, i);
  if (record->place == TR__WITHIN)
    tr__shm_copy(to, (const char *)(record->words + r->group->size + 1) + offset, n);
  else if (i == r->group->index)
    tr__shm_copy(to, r->src + offset, n);
  else
    return tr__shm_fetch(r, i, record->place, offset, to, n);
  return 1;
}

static tr__pace move_work(tr_request *r) {
  size_t left = TR__PIECE;
  int size = r->group->size;
  while (r->block < size && left) {
    int i = (r->group->index + r->block) % size;
    size_t n = 0, nbyte = 0;
    if (has_for_us(r, i)) {
      span s = span_of(r, i);
      nbyte = s.nbyte;
      n = tr__smaller(left, nbyte - r->at);
      if (n && !fetch(r, i, s.from + r->at, s.dst + r->at, n)) return TR__WAITING;
    }
    r->at += n;
    left -= n;
    if (r->at == nbyte) r->block++, r->at = 0;
  }
  return r->block == size ? TR__DONE : TR__MORE;
}

static void move_stage_work(tr_request *r, size_t at, size_t n, int half) {
  size_t own = in_blocks(r) ? (size_t)r->group->index * n * r->width : 0, done = at * r->width;
  for (int i = 0; i < r->group->size; i++) {
    if (!has_for_us(r, i)) continue;
    span s = span_of(r, i);
    if (done >= s.nbyte) continue;
    size_t count = tr__smaller(n * r->width, s.nbyte - done);
    if (i == r->group->index)
      fetch(r, i, s.from + done, s.dst + done, count);
    else
      tr__shm_copy(s.dst + done, tr__shm_half(r, i, half) + own, count);
  }
}

size_t tr__shm_chunk_whole(const tr_request *r) { return TR__STAGE / r->width; }
size_t tr__shm_chunk_block(const tr_request *r) { return TR__STAGE / (r->width * (size_t)r->group->size); }

void tr__shm_stage_whole(tr_request *r, size_t at, size_t n) {
  size_t done = at * r->width;
  if (done < r->nbyte) tr__shm_copy(tr__shm_own_half(r), r->src + done, tr__smaller(n * r->width, r->nbyte - done));
}

void tr__shm_stage_blocks(tr_request *r, size_t at, size_t n) {
  char *stage = tr__shm_own_half(r);
  for (int i = 0; i < r->group->size; i++) {
    if (i == r->group->index) continue;
    size_t first = r->start ? r->start[i] : (size_t)i * r->nelem;
    size_t count = r->start ? r->start[i + 1] - first : r->nelem;
    if (at < count)
      tr__shm_copy(stage + (size_t)i * n * r->width, r->src + (first + at) * r->width,
                   tr__smaller(n, count - at) * r->width);
  }
}

static int srcs_shared(const tr_request *r) { return tr__shm_srcs_shared(r, 0); }
static int root_src_shared(const tr_request *r) { return tr__shm_srcs_shared(r, 1); }
static int is_other(const tr_request *r) { return !is_root(r); }

// ---- gather: who copies depends on where the result lies ----------------------------------------

static int pushes(const tr_request *r) { return tr__in_arena(tr__shm_record(r, r->root)->dst_place); }
static int gather_direct(const tr_request *r) { return pushes(r) || srcs_shared(r); }
static int gather_free_to_leave(const tr_request *r) { return pushes(r) ? !is_root(r) : is_root(r); }

static tr__pace gather_work(tr_request *r) {
  if (!pushes(r)) return move_work(r);
  size_t n = tr__smaller(TR__PIECE, r->nbyte - r->at);
  tr__shm_copy(tr__shm_dst(r, r->root) + (size_t)r->group->index * r->nbyte + r->at, r->src + r->at, n);
  r->at += n;
  return r->at == r->nbyte ? TR__DONE : TR__MORE;
}

// ---- all-to-all of uneven blocks ----------------------------------------------------------------

static void alltoall_v_post(tr_request *r, tr__record *record) {
  size_t size = (size_t)r->group->size, skip = r->start[0] * r->width, nbyte = r->nbyte - skip;
  for (size_t i = 0; i <= size; i++) record->words[i] = r->start[i];
  record->dst_place = TR__NOWHERE;
  record->place = tr__job_place(r->group->comm->job, r->src, r->nbyte);
  if (nbyte > sizeof record->words - (size + 1) * sizeof *record->words) return;
  record->place = TR__WITHIN;
  if (nbyte) memcpy(record->words + size + 1, r->src + skip, nbyte);
}

// What each rank sends us must be as long as what we expect; the longest block of all says how many chunks there are.
static tr_status alltoall_v_check(tr_request *r) {
  const tr_group *g = r->group;
  int own = g->index;
  for (int i = 0; i < g->size; i++) {
    const uint64_t *start = starts_of(r, i);
    TR_TRY(tr__agree_count(r, i, start[own + 1] - start[own]));
  }
  for (int i = 0; i < g->size && !srcs_shared(r); i++)
    for (int j = 0; j < g->size; j++) {
      size_t count = starts_of(r, i)[j + 1] - starts_of(r, i)[j];
      if (count > r->extent) r->extent = count;
    }
  return TR_OK;
}

static int alltoall_v_free_to_leave(const tr_request *r) {
  return tr__shm_record(r, r->group->index)->place == TR__WITHIN;
}

// ---- the tables ---------------------------------------------------------------------------------

const tr__collective tr__shm_allgather = {.combine = move_combine,
                                          .direct = srcs_shared,
                                          .work = move_work,
                                          .pull = move_work,
                                          .pull_least = TR__READ_LEAST,
                                          .chunk = tr__shm_chunk_whole,
                                          .stage_in = tr__shm_stage_whole,
                                          .stage_work = move_stage_work};
const tr__collective tr__shm_allgather_v = {.combine = move_combine,
                                            .direct = srcs_shared,
                                            .work = move_work,
                                            .pull = move_work,
                                            .pull_least = TR__READ_LEAST,
                                            .chunk = tr__shm_chunk_whole,
                                            .stage_in = tr__shm_stage_whole,
                                            .stage_work = move_stage_work};
const tr__collective tr__shm_alltoall = {.inline_in = alltoall_inline_in,
                                         .combine = alltoall_combine,
                                         .direct = srcs_shared,
                                         .work = move_work,
                                         .pull = move_work,
                                         .pull_least = TR__READ_LEAST,
                                         .chunk = tr__shm_chunk_block,
                                         .stage_in = tr__shm_stage_blocks,
                                         .stage_work = move_stage_work};
const tr__collective tr__shm_alltoall_v = {.post = alltoall_v_post,
                                           .check = alltoall_v_check,
                                           .direct = srcs_shared,
                                           .work = move_work,
                                           .pull = move_work,
                                           .free_to_leave = alltoall_v_free_to_leave,
                                           .chunk = tr__shm_chunk_block,
                                           .stage_in = tr__shm_stage_blocks,
                                           .stage_work = move_stage_work};
const tr__collective tr__shm_broadcast = {.only_root = 1,
                                          .combine = move_combine,
                                          .direct = root_src_shared,
                                          .work = move_work,
                                          .pull = move_work,
                                          .pull_least = TR__READ_LEAST,
                                          .pull_alone = TR__READ_ALONE,
                                          .free_to_leave = is_other,
                                          .chunk = tr__shm_chunk_whole,
                                          .stage_in = tr__shm_stage_whole,
                                          .stage_work = move_stage_work};
const tr__collective tr__shm_gather = {.combine = move_combine,
                                       .direct = gather_direct,
                                       .work = gather_work,
                                       .pull = gather_work,
                                       .pull_least = TR__READ_LEAST,
                                       .pull_alone = TR__READ_ALONE,
                                       .free_to_leave = gather_free_to_leave,
                                       .chunk = tr__shm_chunk_whole,
                                       .stage_in = tr__shm_stage_whole,
                                       .stage_work = move_stage_work};
const tr__collective tr__shm_scatter = {.only_root = 1,
                                        .combine = move_combine,
                                        .direct = root_src_shared,
                                        .work = move_work,
                                        .pull = move_work,
                                        .pull_least = TR__READ_LEAST,
                                        .pull_alone = TR__READ_ALONE,
                                        .free_to_leave = is_other,
                                        .chunk = tr__shm_chunk_block,
                                        .stage_in = tr__shm_stage_blocks,
                                        .stage_work = move_stage_work};
