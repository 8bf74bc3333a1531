// SPDX-License-Identifier: MIT
// The engine of groups whose ranks are on several hosts: collectives are scripts over the transport, point to point is one
// transfer of it on a lane of its tag.
#include "agree_internal.h"
#include "external_internal.h"
#include "strands_internal.h"

// Transfer of a send or receive; started in its first step.
static tr_status pair_step(tr_request *r) {
  tr_group *g = r->group;
  int lane = TR__LANES + r->tag;
  tr__transfer transfer = {.handle = r->message, .nbyte = r->nbyte, .peer = r->root};
  if (r->phase == TR__POST) {
    r->phase = TR__WORKING;
    r->awaits = g->ranks[r->root];
    if (r->kind == TR__SEND)
      TR_TRY(tr__transport_mpi.send(g, r->root, lane, r->src, r->nbyte, &transfer));
    else
      TR_TRY(tr__transport_mpi.recv(g, r->root, lane, r->dst, r->nbyte, &transfer));
  }
  tr_status status = tr__transport_mpi.test(g, &transfer);
  r->message = transfer.handle;
  if (status != TR_OK) return status;
  if (r->kind == TR__SEND) g->comm->counters.bytes_direct += r->nbyte;
  tr__worked(g->comm);
  return TR_OK;
}

static int is_pair(const tr_request *r) { return r->kind == TR__SEND || r->kind == TR__RECV; }

// Scripts are begun in the order of the calls, whenever these are found to be equal.
static tr_status collective_step(tr_request *r) {
  tr__compare *compare = r->group->strands->compare;
  if (!compare || r->phase == TR__SCRIPT) return tr__script_step(r);
  if (!r->script) TR_TRY(tr__script_begin(r));
  tr_status status = tr__compare_step(compare, r);
  if (status != TR_OK) return status;
  r->phase = TR__SCRIPT;
  return tr__script_step(r);
}

static tr_status mpi_step(tr_request *r) { return is_pair(r) ? pair_step(r) : collective_step(r); }

static void mpi_drop(tr_request *r) {
  if (!is_pair(r)) tr__script_drop(r);
}

const tr_engine tr__engine_mpi = {.name = "mpi",
                                  .join = tr__context_join,
                                  .leave = tr__context_leave,
                                  .step = mpi_step,
                                  .drop = mpi_drop,
                                  .transport = &tr__transport_mpi};
