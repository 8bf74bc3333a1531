// SPDX-License-Identifier: MIT
// The operations as callers see them: arguments are checked, and what an engine needs to know is put into a request.
//
// What can be seen to be wrong here is refused before anything has happened; what differs between ranks is for the
// engine to find. A request says which bytes of this rank others may read (`src`, `nbyte`) and write (`dst`, `dst_nbyte`),
// and how large contributions are that all ranks know of (`most`, `all`), so that all choose the same path.
#include "comm_internal.h"
#include <stdio.h>

// ---- arguments ----------------------------------------------------------------------------------

typedef struct call {
  tr_group *group;
  tr__kind kind;
  const void *src;
  void *dst;
  size_t nelem; // as in tr__call: equal on all ranks
  tr_dtype type;
  tr_reduce_op op;
  int root;
} call;

static int is_root(const call *c) { return !tr__kind_has_root(c->kind) || c->group->index == c->root; }

// Bytes of `nelem` elements for each rank of the group, or an error when they cannot be counted.
static tr_status check_size(const call *c) {
  const tr_group *g = c->group;
  const char *name = tr__kind_name(c->kind);
  if ((unsigned)c->type >= TR_DTYPE_COUNT)
    return tr_error(TR_ERR_USAGE, "%s of group '%s': no such type: %d", name, g->name, (int)c->type);
  size_t total;
  if (!__builtin_mul_overflow(c->nelem, tr_dtype_size(c->type) * (size_t)g->size, &total) && total <= SIZE_MAX / 2)
    return TR_OK;
  return tr_error(TR_ERR_USAGE, "%s of group '%s': %zu elements for each of %d ranks are too many", name, g->name,
                  c->nelem, g->size);
}

static tr_status check_op(const call *c) {
  if (tr__reduce_supported(c->type, c->op)) return TR_OK;
  return tr_error(TR_ERR_USAGE,
                  "%s of group '%s': operation %d does not work on %s: sum and max work on all types, "
                  "average on floating ones",
                  tr__kind_name(c->kind), c->group->name, (int)c->op,
                  (unsigned)c->type < TR_DTYPE_COUNT ? tr_dtype_name(c->type) : "?");
}

static tr_status check_index(const tr_group *g, tr__kind kind, int index) {
  if (index >= 0 && index < g->size) return TR_OK;
  return tr_error(TR_ERR_USAGE, "%s of group '%s': index %d is not in the group: 0 to %d are", tr__kind_name(kind),
                  g->name, index, g->size - 1);
}

static tr_status check_buffer(const call *c, const void *buffer, size_t nelem) {
  if (buffer || nelem == 0) return TR_OK;
  return tr_error(TR_ERR_USAGE, "%s of group '%s': no buffer for %zu elements", tr__kind_name(c->kind),
                  c->group->name, nelem);
}

static tr_status check_starts(const call *c, const size_t *start) {
  for (int i = 0; i < c->group->size; i++)
    if (start[i] > start[i + 1])
      return tr_error(TR_ERR_USAGE, "%s of group '%s': part %d starts at %zu and ends at %zu", tr__kind_name(c->kind),
                      c->group->name, i, start[i], start[i + 1]);
  return TR_OK;
}

// What holds for every collective call: its root, its size, its buffers of so many elements, and a job that runs.
static tr_status check(const call *c, size_t src_nelem, size_t dst_nelem) {
  if (tr__kind_has_root(c->kind)) TR_TRY(check_index(c->group, c->kind, c->root));
  if (tr__kind_reduces(c->kind)) TR_TRY(check_op(c));
  TR_TRY(check_size(c));
  TR_TRY(check_buffer(c, c->src, src_nelem));
  TR_TRY(check_buffer(c, c->dst, dst_nelem));
  return tr_comm_check(c->group->comm);
}

// ---- requests -----------------------------------------------------------------------------------

static tr_status no_memory(const tr_group *g, tr__kind kind) {
  return tr_error(TR_ERR_MEMORY, "%s of group '%s': no memory for a request", tr__kind_name(kind), g->name);
}

// A request whose ranks contribute `nelem` elements each, all of them or the root alone.
static tr_request *make(const call *c, size_t nelem, int only_root) {
  tr_request *r = tr__request_new(c->group, c->kind);
  if (!r) return NULL;
  r->src = c->src;
  r->dst = c->dst;
  r->nelem = r->extent = c->nelem;
  r->type = r->dst_type = c->type;
  r->op = c->op;
  r->root = c->root;
  r->width = tr_dtype_size(c->type);
  r->most = nelem * r->width;
  r->nbyte = only_root && !is_root(c) ? 0 : r->most;
  r->all = only_root ? r->most : r->most * (size_t)c->group->size;
  return r;
}

static tr_status begin(tr_request *r, tr_request **out) {
  r->seq = r->group->next++;
  return tr__request_start(r, out);
}

static tr_status issue(const call *c, size_t nelem, int only_root, size_t dst_nelem, tr_request **out) {
  tr_request *r = make(c, nelem, only_root);
  if (!r) return no_memory(c->group, c->kind);
  r->dst_nbyte = dst_nelem * r->width;
  return begin(r, out);
}

// ---- reductions ---------------------------------------------------------------------------------

tr_status tr_group_allreduce(tr_group *g, const void *src, void *dst, size_t nelem, tr_dtype type, tr_reduce_op op,
                             tr_request **request) {
  const call c = {g, TR__ALLREDUCE, src, dst, nelem, type, op, 0};
  TR_TRY(check(&c, nelem, nelem));
  return issue(&c, nelem, 0, nelem, request);
}

tr_status tr_group_reduce(tr_group *g, const void *src, void *dst, size_t nelem, tr_dtype type, tr_reduce_op op,
                          int root, tr_request **request) {
  const call c = {g, TR__REDUCE, src, dst, nelem, type, op, root};
  size_t own = is_root(&c) ? nelem : 0;
  TR_TRY(check(&c, nelem, own));
  return issue(&c, nelem, 0, own, request);
}

tr_status tr_group_reduce_scatter(tr_group *g, void *src, void *dst, size_t nelem, tr_dtype type, tr_reduce_op op,
                                  tr_request **request) {
  const call c = {g, TR__REDUCE_SCATTER, src, dst, nelem, type, op, 0};
  TR_TRY(check(&c, nelem, nelem));
  return issue(&c, nelem * (size_t)g->size, 0, 0, request);
}

// One number for a table of starts: all ranks must pass the same.
static int hash_starts(const size_t *start, int n) {
  uint64_t h = 0x9e3779b97f4a7c15u;
  for (int i = 0; i < n; i++) h = (h ^ start[i]) * 0x100000001b3u, h ^= h >> 29;
  return (int)((h >> 32) & 0x7fffffffu);
}

static tr_status check_widening(const call *c, tr_dtype dst_type) {
  int widens = dst_type == TR_F32 && (c->type == TR_BF16 || c->type == TR_F16);
  if (dst_type == c->type || widens) return TR_OK;
  return tr_error(TR_ERR_USAGE, "%s of group '%s': sums of this type go to the same type, or f32 for narrow floats",
                  tr__kind_name(c->kind), c->group->name);
}

void tr__tell_part(tr_request *r, size_t count) {
  size_t all = r->start[r->group->index + 1] - r->start[r->group->index];
  size_t whole = count == all ? all : count / r->grain * r->grain;
  if (r->done_part && whole > r->told) r->done_part(r->user, r->told, whole - r->told);
  r->told = whole;
}

tr_status tr_group_reduce_scatter_v(tr_group *g, void *src, void *dst, const size_t *start, tr_dtype type,
                                    tr_dtype dst_type, tr_reduce_op op, size_t grain, tr_part_done done, void *user,
                                    tr_request **request) {
  size_t total = start[g->size];
  const call c = {g, TR__REDUCE_SCATTER_V, src, dst, total, type, op, hash_starts(start, g->size + 1)};
  TR_TRY(check_starts(&c, start));
  TR_TRY(check_widening(&c, dst_type));
  TR_TRY(check(&c, total, start[g->index + 1] - start[g->index]));
  tr_request *r = make(&c, total, 0);
  if (!r) return no_memory(g, c.kind);
  r->start = start;
  r->dst_type = dst_type;
  r->grain = grain ? grain : 1;
  r->done_part = done;
  r->user = user;
  return begin(r, request);
}

// ---- copies -------------------------------------------------------------------------------------

tr_status tr_group_allgather(tr_group *g, const void *src, void *dst, size_t nelem, tr_dtype type,
                             tr_request **request) {
  const call c = {g, TR__ALLGATHER, src, dst, nelem, type, TR_SUM, 0};
  TR_TRY(check(&c, nelem, nelem));
  return issue(&c, nelem, 0, 0, request);
}

tr_status tr_group_allgather_v(tr_group *g, const void *src, void *dst, const size_t *start, tr_dtype type,
                               tr_request **request) {
  size_t total = start[g->size] - start[0], own = start[g->index + 1] - start[g->index], most = 0;
  const call c = {g, TR__ALLGATHER_V, src, dst, start[g->size], type, TR_SUM, hash_starts(start, g->size + 1)};
  TR_TRY(check_starts(&c, start));
  TR_TRY(check(&c, own, total));
  for (int i = 0; i < g->size; i++)
    if (start[i + 1] - start[i] > most) most = start[i + 1] - start[i];
  tr_request *r = make(&c, most, 0);
  if (!r) return no_memory(g, c.kind);
  r->start = start;
  r->extent = most;
  r->nbyte = own * r->width;
  r->all = total * r->width;
  return begin(r, request);
}

tr_status tr_group_alltoall(tr_group *g, const void *src, void *dst, size_t nelem, tr_dtype type,
                            tr_request **request) {
  const call c = {g, TR__ALLTOALL, src, dst, nelem, type, TR_SUM, 0};
  TR_TRY(check(&c, nelem, nelem));
  return issue(&c, nelem * (size_t)g->size, 0, 0, request);
}

tr_status tr_group_alltoall_v(tr_group *g, const void *src, const size_t *src_start, void *dst,
                              const size_t *dst_start, tr_dtype type, tr_request **request) {
  size_t sent = src_start[g->size], received = dst_start[g->size];
  call c = {g, TR__ALLTOALL_V, src, dst, sent > received ? sent : received, type, TR_SUM, 0};
  TR_TRY(check_starts(&c, src_start));
  TR_TRY(check_starts(&c, dst_start));
  TR_TRY(check(&c, sent - src_start[0], received - dst_start[0]));
  c.nelem = 0; // counts are each rank's own: the engine compares them pair by pair
  tr_request *r = make(&c, 0, 0);
  if (!r) return no_memory(g, c.kind);
  r->start = src_start;
  r->dst_start = dst_start;
  r->nbyte = sent * r->width;
  return begin(r, request);
}

tr_status tr_group_broadcast(tr_group *g, void *data, size_t nelem, tr_dtype type, int root, tr_request **request) {
  const call c = {g, TR__BROADCAST, data, data, nelem, type, TR_SUM, root};
  TR_TRY(check(&c, nelem, nelem));
  return issue(&c, nelem, 1, 0, request);
}

tr_status tr_group_gather(tr_group *g, const void *src, void *dst, size_t nelem, tr_dtype type, int root,
                          tr_request **request) {
  const call c = {g, TR__GATHER, src, dst, nelem, type, TR_SUM, root};
  size_t own = is_root(&c) ? nelem : 0;
  TR_TRY(check(&c, nelem, own));
  return issue(&c, nelem, 0, own * (size_t)g->size, request);
}

tr_status tr_group_scatter(tr_group *g, const void *src, void *dst, size_t nelem, tr_dtype type, int root,
                           tr_request **request) {
  const call c = {g, TR__SCATTER, src, dst, nelem, type, TR_SUM, root};
  TR_TRY(check(&c, is_root(&c) ? nelem : 0, nelem));
  return issue(&c, nelem * (size_t)g->size, 1, 0, request);
}

tr_status tr_group_barrier(tr_group *g) {
  TR_TRY(tr_comm_check(g->comm));
  const call c = {g, TR__BARRIER, NULL, NULL, 0, TR_U8, TR_SUM, 0};
  return issue(&c, 0, 0, 0, NULL);
}

// ---- point to point -----------------------------------------------------------------------------

static tr_status transfer(tr_group *g, tr__kind kind, int peer, int tag, const void *src, void *dst, size_t nbyte,
                          tr_request **out) {
  TR_TRY(check_index(g, kind, peer));
  if (tag < 0 || tag > TR_TAG_MOST)
    return tr_error(TR_ERR_USAGE, "%s of group '%s': tag %d: 0 to %d are tags", tr__kind_name(kind), g->name, tag,
                    TR_TAG_MOST);
  const call c = {g, kind, src, dst, nbyte, TR_U8, TR_SUM, peer};
  TR_TRY(check_size(&c));
  TR_TRY(check_buffer(&c, kind == TR__SEND ? src : dst, nbyte));
  TR_TRY(tr_comm_check(g->comm));
  tr_request *r = make(&c, nbyte, 0);
  if (!r) return no_memory(g, kind);
  r->tag = tag;
  r->seq = (kind == TR__SEND ? g->send_next : g->recv_next)[peer]++;
  return tr__request_start(r, out);
}

tr_status tr_group_send(tr_group *g, int to, int tag, const void *data, size_t nbyte, tr_request **request) {
  return transfer(g, TR__SEND, to, tag, data, NULL, nbyte, request);
}

tr_status tr_group_recv(tr_group *g, int from, int tag, void *data, size_t nbyte, tr_request **request) {
  return transfer(g, TR__RECV, from, tag, NULL, data, nbyte, request);
}
