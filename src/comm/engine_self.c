// SPDX-License-Identifier: MIT
// The engine of a rank alone: one-rank jobs run as a thread, and groups of one rank of every job.
//
// It is also the template of an engine: a table with a name and `step`, which advances a request without
// waiting. With one rank every collective is at most a copy. A send to oneself pairs with the oldest receive of
// its tag, whichever was started first; both are done in the step of the receive, the send notices in its next
// step.
#include "comm_internal.h"
#include <string.h>

static void reduce_scatter_v(tr_request *r) {
  const char *src = r->src + r->start[0] * r->width;
  size_t count = r->start[1] - r->start[0];
  if (count && (src != r->dst || r->type != r->dst_type)) tr_convert(r->type, src, r->dst_type, r->dst, count);
  tr__tell_part(r, count);
}

static tr_status alltoall_v(tr_request *r) {
  const tr_group *g = r->group;
  size_t sent = r->start[1] - r->start[0], received = r->dst_start[1] - r->dst_start[0];
  if (sent != received)
    return tr__fail(g->comm, g->comm->rank, TR_ERR_USAGE,
                    "rank %d sends %zu elements to itself where it expects %zu in %s of group '%s'", g->comm->rank,
                    sent, received, tr__kind_name(r->kind), g->name);
  if (sent) memmove(r->dst + r->dst_start[0] * r->width, r->src + r->start[0] * r->width, sent * r->width);
  return TR_OK;
}

static tr_status copy(tr_request *r) {
  if (r->kind == TR__ALLTOALL_V) return alltoall_v(r);
  if (r->kind == TR__REDUCE_SCATTER_V) {
    reduce_scatter_v(r);
    return TR_OK;
  }
  char *dst = r->dst + (r->kind == TR__ALLGATHER_V ? r->start[0] * r->width : 0);
  if (r->nbyte && r->src != dst) memmove(dst, r->src, r->nbyte);
  return TR_OK;
}

// Is an older transfer of this kind and tag still under way, that comes first?
static int is_first(const tr_request *r) {
  for (const tr_request *older = r->group->comm->head; older && older != r; older = older->next)
    if (older->group == r->group && older->kind == r->kind && older->tag == r->tag && older->phase == TR__POST)
      return 0;
  return 1;
}

static tr_status step_recv(tr_request *r) {
  tr_group *g = r->group;
  r->awaits = g->comm->rank;
  if (!is_first(r)) return TR_PENDING;
  for (tr_request *send = g->comm->head; send; send = send->next) {
    if (send->group != g || send->kind != TR__SEND || send->tag != r->tag || send->phase != TR__POST) continue;
    if (send->nbyte != r->nbyte)
      return tr__fail(g->comm, g->comm->rank, TR_ERR_USAGE,
                      "rank %d receives %zu bytes from itself where it sends %zu in group '%s'", g->comm->rank,
                      r->nbyte, send->nbyte, g->name);
    if (r->nbyte) memmove(r->dst, send->src, r->nbyte);
    send->phase = TR__LEAVING;
    tr__worked(g->comm);
    return TR_OK;
  }
  return TR_PENDING;
}

static tr_status step_send(tr_request *r) {
  if (r->phase == TR__LEAVING) return TR_OK;
  r->awaits = r->group->comm->rank;
  return TR_PENDING;
}

static tr_status self_step(tr_request *r) {
  if (r->kind == TR__SEND) return step_send(r);
  if (r->kind == TR__RECV) return step_recv(r);
  tr__hook(r->group->comm, r->kind, TR__AT_WORK);
  TR_TRY(copy(r));
  r->group->comm->counters.bytes_direct += r->nbyte;
  tr__worked(r->group->comm);
  return TR_OK;
}

const tr_engine tr__engine_self = {
    .name = "self",
    .step = self_step,
};
