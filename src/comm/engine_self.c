// SPDX-License-Identifier: MIT
// The engine of a rank alone: one-rank jobs run as a thread, and groups of one rank of every job.
//
// It is also the template of an engine: a table with a name and `step`, which advances a request without
// waiting. With one rank every collective is at most a copy. A send to oneself pairs with the receive of the
// same sequence, whichever was started first; both are done in the step of the receive, the send notices in
// its next step.
#include "comm_internal.h"
#include <string.h>

static void copy(tr_request *r) {
  if (r->kind == TR__REDUCE_SCATTER_V) {
    if (r->nelem && (r->src != r->dst || r->type != r->dst_type))
      tr_convert(r->type, r->src, r->dst_type, r->dst, r->nelem);
    tr__tell_part(r, r->nelem);
    return;
  }
  if (r->nbyte && r->src != r->dst) memmove(r->dst, r->src, r->nbyte);
}

// The receive finds its send, copies and counts itself done; a send is done once the receive of its number is.
static tr_status step_recv(tr_request *r) {
  tr_group *g = r->group;
  for (tr_request *send = g->comm->head; send; send = send->next) {
    if (send->group != g || send->kind != TR__SEND || send->seq != r->seq) continue;
    if (send->nbyte != r->nbyte)
      return tr__fail(g->comm, g->comm->rank, TR_ERR_USAGE,
                      "rank %d receives %zu bytes from itself where it sends %zu in group '%s'", g->comm->rank,
                      r->nbyte, send->nbyte, g->name);
    if (r->nbyte) memmove(r->dst, send->src, r->nbyte);
    send->phase = TR__LEAVING;
    tr__worked(g->comm);
    return TR_OK;
  }
  r->awaits = g->comm->rank;
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
  copy(r);
  r->group->comm->counters.bytes_direct += r->nbyte;
  tr__worked(r->group->comm);
  return TR_OK;
}

const tr_engine tr__engine_self = {
    .name = "self",
    .step = self_step,
};
