// SPDX-License-Identifier: MIT
// Operations from the caller's side: arguments checked, a request made and started, tested, waited for.
//
// A request is a small state machine of the group's engine. Starting it appends it to the rank's list of
// requests under way and takes the first step; tr_comm_progress, test and wait step every request in the
// list, so requests may be tested in any order. A blocking call is start and wait. Requests come from a pool
// of the group: after the first few steps of training nothing is allocated here.
#include "comm_internal.h"
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK_REQUESTS = 32 };

typedef struct request_block {
  struct request_block *next;
  tr_request request[BLOCK_REQUESTS];
} request_block;

static const char *const kind_names[TR__KINDS] = {
    [TR__NONE] = "nothing",
    [TR__ALLREDUCE] = "all-reduce",
    [TR__REDUCE_SCATTER] = "reduce-scatter",
    [TR__REDUCE_SCATTER_V] = "reduce-scatter-v",
    [TR__ALLGATHER] = "all-gather",
    [TR__BROADCAST] = "broadcast",
    [TR__BARRIER] = "barrier",
    [TR__SEND] = "send",
    [TR__RECV] = "receive",
    [TR__CREATE] = "creation",
};
static const char *const hook_names[TR__KINDS] = {
    [TR__NONE] = "none",
    [TR__ALLREDUCE] = "allreduce",
    [TR__REDUCE_SCATTER] = "reduce_scatter",
    [TR__REDUCE_SCATTER_V] = "reduce_scatter_v",
    [TR__ALLGATHER] = "allgather",
    [TR__BROADCAST] = "broadcast",
    [TR__BARRIER] = "barrier",
    [TR__SEND] = "send",
    [TR__RECV] = "recv",
    [TR__CREATE] = "create",
};
static const char *const point_names[TR__POINTS] = {
    [TR__AT_START] = "start", [TR__AT_READY] = "ready", [TR__AT_WORK] = "copy",
    [TR__AT_DONE] = "done",   [TR__AT_WAIT] = "wait",
};

const char *tr__kind_name(tr__kind kind) { return (unsigned)kind < TR__KINDS ? kind_names[kind] : "?"; }

void tr__hook_call(tr_comm *comm, tr__kind kind, tr__point point) {
  char name[48];
  snprintf(name, sizeof name, "%s.%s", hook_names[kind],
           point == TR__AT_WORK && tr__kind_reduces(kind) ? "reduce" : point_names[point]);
  comm->hook(comm->hook_user, name);
}

// ---- requests -----------------------------------------------------------------------------------

static int grow_pool(tr_group *group) {
  request_block *block = calloc(1, sizeof *block);
  if (!block) return 0;
  block->next = group->blocks;
  group->blocks = block;
  for (int i = 0; i < BLOCK_REQUESTS; i++) {
    block->request[i].next = group->free;
    group->free = &block->request[i];
  }
  return 1;
}

tr_request *tr__request_new(tr_group *group, tr__kind kind) {
  if (!group->free && !grow_pool(group)) return NULL;
  tr_request *r = group->free;
  group->free = r->next;
  *r = (tr_request){.group = group, .kind = kind, .status = TR_PENDING, .awaits = -1};
  return r;
}

void tr__request_recycle(tr_request *r) {
  r->next = r->group->free;
  r->group->free = r;
}

void tr__request_unlink(tr_request *r) {
  tr_comm *comm = r->group->comm;
  if (r->prev)
    r->prev->next = r->next;
  else
    comm->head = r->next;
  if (r->next)
    r->next->prev = r->prev;
  else
    comm->tail = r->prev;
  r->next = r->prev = NULL;
}

static void append(tr_request *r) {
  tr_comm *comm = r->group->comm;
  r->prev = comm->tail;
  if (comm->tail)
    comm->tail->next = r;
  else
    comm->head = r;
  comm->tail = r;
}

static void step(tr_request *r) {
  tr_status status = r->group->engine->step(r);
  if (status == TR_PENDING) return;
  tr__request_unlink(r);
  r->status = status;
}

void tr__progress(tr_comm *comm) {
  tr_request *next;
  for (tr_request *r = comm->head; r; r = next) {
    next = r->next; // a step unlinks no other request: matched ones end in their own step
    step(r);
  }
}

tr_status tr_comm_progress(tr_comm *comm) {
  TR_TRY(tr_comm_check(comm));
  tr__progress(comm);
  return tr__aborted(comm->job) ? tr_comm_check(comm) : TR_OK;
}

// End a request because the job ends; it may be under way.
static tr_status give_up(tr_request *r, tr_status status) {
  if (r->status == TR_PENDING) {
    if (r->group->engine->drop) r->group->engine->drop(r);
    tr__request_unlink(r);
  }
  tr__request_recycle(r);
  return status;
}

// The rank to blame while `r` is pending, -1 while it moves by itself. A collective may be queued behind an older one
// of its group that uses the stage; what goes on elsewhere does not hold it up.
static int awaited(const tr_request *r) {
  if (r->awaits >= 0) return r->awaits;
  for (const tr_request *older = r->group->comm->head; older && older != r; older = older->next)
    if (older->group == r->group && older->kind < TR__SEND && older->awaits >= 0) return older->awaits;
  return -1;
}

static tr_status collect(tr_request *r) {
  tr_status status = r->status;
  if (status < 0) status = tr_comm_check(r->group->comm); // record the sentence for this call
  if (status == TR_OK) status = r->status;
  tr__request_recycle(r);
  return status;
}

tr_status tr_request_test(tr_request *r) {
  if (!r) return tr_error(TR_ERR_USAGE, "tr_request_test needs a request");
  tr_comm *comm = r->group->comm;
  if (r->status == TR_PENDING) {
    tr_status stopping = tr_comm_check(comm);
    if (stopping < 0) return give_up(r, stopping);
    tr__progress(comm);
  }
  return r->status == TR_PENDING ? TR_PENDING : collect(r);
}

tr_status tr_request_wait(tr_request *r) {
  if (!r) return tr_error(TR_ERR_USAGE, "tr_request_wait needs a request");
  tr_comm *comm = r->group->comm;
  if (r->status != TR_PENDING) return collect(r);
  tr__ladder ladder;
  tr__ladder_begin(&ladder, r->kind, r->group, r->seq, r->nbyte);
  tr_status stopping = tr_comm_check(comm);
  while (stopping == TR_OK) {
    tr__progress(comm);
    if (r->status != TR_PENDING) break;
    stopping = tr__ladder_wait(&ladder, comm, awaited(r));
  }
  tr__ladder_end(&ladder, comm);
  return stopping < 0 ? give_up(r, stopping) : collect(r);
}

static tr_status start_request(tr_request *r, tr_request **out) {
  tr_comm *comm = r->group->comm;
  tr__hook(comm, r->kind, TR__AT_START);
  comm->counters.operations++;
  append(r);
  step(r);
  if (!out) return r->status == TR_PENDING ? tr_request_wait(r) : collect(r);
  if (r->status < 0) return collect(r);
  *out = r;
  return TR_OK;
}

// ---- arguments ----------------------------------------------------------------------------------

static tr_status check_call(const tr_group *g, tr__kind kind, const void *a, const void *b, size_t nelem,
                            tr_dtype type) {
  const char *name = tr__kind_name(kind);
  if ((unsigned)type >= TR_DTYPE_COUNT)
    return tr_error(TR_ERR_USAGE, "%s of group '%s': no such type: %d", name, g->name, (int)type);
  size_t total;
  if (__builtin_mul_overflow(nelem, tr_dtype_size(type) * (size_t)g->size, &total) || total > SIZE_MAX / 2)
    return tr_error(TR_ERR_USAGE, "%s of group '%s': %zu elements for each of %d ranks are too many", name, g->name,
                    nelem, g->size);
  if (nelem && (!a || !b))
    return tr_error(TR_ERR_USAGE, "%s of group '%s': no buffer for %zu elements", name, g->name, nelem);
  return tr_comm_check(g->comm);
}

static tr_status check_op(const tr_group *g, tr__kind kind, tr_dtype type, tr_reduce_op op) {
  if (tr__reduce_supported(type, op)) return TR_OK;
  return tr_error(TR_ERR_USAGE,
                  "%s of group '%s': operation %d does not work on %s: sum and max work on all types, "
                  "average on floating ones",
                  tr__kind_name(kind), g->name, (int)op, (unsigned)type < TR_DTYPE_COUNT ? tr_dtype_name(type) : "?");
}

static tr_status check_index(const tr_group *g, tr__kind kind, int index) {
  if (index >= 0 && index < g->size) return TR_OK;
  return tr_error(TR_ERR_USAGE, "%s of group '%s': index %d is not in the group: 0 to %d are", tr__kind_name(kind),
                  g->name, index, g->size - 1);
}

static tr_status no_memory(const tr_group *g, tr__kind kind) {
  return tr_error(TR_ERR_MEMORY, "%s of group '%s': no memory for a request", tr__kind_name(kind), g->name);
}

static tr_request *new_collective(tr_group *g, tr__kind kind, const void *src, void *dst, size_t nelem, tr_dtype type,
                                  tr_reduce_op op, int root) {
  tr_request *r = tr__request_new(g, kind);
  if (!r) return NULL;
  r->src = src;
  r->dst = dst;
  r->nelem = nelem;
  r->type = type;
  r->op = op;
  r->root = root;
  r->width = tr_dtype_size(type);
  r->nbyte = nelem * r->width * (kind == TR__REDUCE_SCATTER ? (size_t)g->size : 1);
  r->seq = g->next++;
  return r;
}

static tr_status collective(tr_group *g, tr__kind kind, const void *src, void *dst, size_t nelem, tr_dtype type,
                            tr_reduce_op op, int root, tr_request **out) {
  tr_request *r = new_collective(g, kind, src, dst, nelem, type, op, root);
  return r ? start_request(r, out) : no_memory(g, kind);
}

static tr_status channel_call(tr_group *g, tr__kind kind, int peer, const void *src, void *dst, size_t nbyte,
                              tr_request **out) {
  TR_TRY(check_index(g, kind, peer));
  TR_TRY(check_call(g, kind, src ? src : dst, dst ? dst : src, nbyte, TR_U8));
  tr_request *r = tr__request_new(g, kind);
  if (!r) return no_memory(g, kind);
  r->src = src;
  r->dst = dst;
  r->nelem = r->nbyte = nbyte;
  r->width = 1;
  r->type = TR_U8;
  r->root = peer;
  r->seq = (kind == TR__SEND ? g->send_next : g->recv_next)[peer]++;
  return start_request(r, out);
}

// ---- the calls ----------------------------------------------------------------------------------

tr_status tr_group_allreduce(tr_group *g, void *data, size_t nelem, tr_dtype type, tr_reduce_op op,
                             tr_request **request) {
  TR_TRY(check_op(g, TR__ALLREDUCE, type, op));
  TR_TRY(check_call(g, TR__ALLREDUCE, data, data, nelem, type));
  return collective(g, TR__ALLREDUCE, data, data, nelem, type, op, 0, request);
}

tr_status tr_group_reduce_scatter(tr_group *g, void *src, void *dst, size_t nelem, tr_dtype type, tr_reduce_op op,
                                  tr_request **request) {
  TR_TRY(check_op(g, TR__REDUCE_SCATTER, type, op));
  TR_TRY(check_call(g, TR__REDUCE_SCATTER, src, dst, nelem, type));
  return collective(g, TR__REDUCE_SCATTER, src, dst, nelem, type, op, 0, request);
}

static uint32_t hash_starts(const size_t *start, int n) {
  uint64_t h = 0x9e3779b97f4a7c15u;
  for (int i = 0; i < n; i++) h = (h ^ start[i]) * 0x100000001b3u, h ^= h >> 29;
  return (uint32_t)(h >> 32) & 0x7fffffffu;
}

static tr_status check_parts(const tr_group *g, const size_t *start, tr_dtype type, tr_dtype dst_type) {
  const char *name = tr__kind_name(TR__REDUCE_SCATTER_V);
  for (int i = 0; i < g->size; i++)
    if (start[i] > start[i + 1])
      return tr_error(TR_ERR_USAGE, "%s of group '%s': part %d starts at %zu and ends at %zu", name, g->name, i,
                      start[i], start[i + 1]);
  int widens = dst_type == TR_F32 && (type == TR_BF16 || type == TR_F16);
  if (dst_type == type || widens) return TR_OK;
  return tr_error(TR_ERR_USAGE, "%s of group '%s': sums of this type go to the same type, or f32 for narrow floats",
                  name, g->name);
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
  TR_TRY(check_op(g, TR__REDUCE_SCATTER_V, type, op));
  TR_TRY(check_parts(g, start, type, dst_type));
  size_t total = start[g->size], own = start[g->index + 1] - start[g->index];
  TR_TRY(check_call(g, TR__REDUCE_SCATTER_V, src, own ? dst : src, total, type));
  tr_request *r =
      new_collective(g, TR__REDUCE_SCATTER_V, src, dst, total, type, op, (int)hash_starts(start, g->size + 1));
  if (!r) return no_memory(g, TR__REDUCE_SCATTER_V);
  r->start = start;
  r->dst_type = dst_type;
  r->grain = grain ? grain : 1;
  r->done_part = done;
  r->user = user;
  return start_request(r, request);
}

tr_status tr_group_allgather(tr_group *g, const void *src, void *dst, size_t nelem, tr_dtype type,
                             tr_request **request) {
  TR_TRY(check_call(g, TR__ALLGATHER, src, dst, nelem, type));
  return collective(g, TR__ALLGATHER, src, dst, nelem, type, TR_SUM, 0, request);
}

tr_status tr_group_broadcast(tr_group *g, void *data, size_t nelem, tr_dtype type, int root, tr_request **request) {
  TR_TRY(check_index(g, TR__BROADCAST, root));
  TR_TRY(check_call(g, TR__BROADCAST, data, data, nelem, type));
  return collective(g, TR__BROADCAST, data, data, nelem, type, TR_SUM, root, request);
}

tr_status tr_group_barrier(tr_group *g) {
  TR_TRY(tr_comm_check(g->comm));
  return collective(g, TR__BARRIER, NULL, NULL, 0, TR_U8, TR_SUM, 0, NULL);
}

tr_status tr_group_send(tr_group *g, int to, const void *data, size_t nbyte, tr_request **request) {
  return channel_call(g, TR__SEND, to, data, NULL, nbyte, request);
}

tr_status tr_group_recv(tr_group *g, int from, void *data, size_t nbyte, tr_request **request) {
  return channel_call(g, TR__RECV, from, NULL, data, nbyte, request);
}
