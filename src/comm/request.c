// SPDX-License-Identifier: MIT
// Operations under way: a request is made, started, tested, waited for.
//
// A request is a small state machine of the group's engine. Starting it appends it to the rank's list of
// requests under way and takes the first step; tr_comm_progress, test and wait step every request in the
// list, so requests may be tested in any order. A blocking call (call.c) is start and wait. Requests come from a
// pool of the group: after the first few steps of training nothing is allocated here.
//
// In a job on several hosts the thread beside the rank steps requests too, while the rank computes: then whoever touches
// them holds the net's mutex (tr__enter, tr__leave).
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
    [TR__REDUCE] = "reduce",
    [TR__REDUCE_SCATTER] = "reduce-scatter",
    [TR__REDUCE_SCATTER_V] = "reduce-scatter-v",
    [TR__ALLGATHER] = "all-gather",
    [TR__ALLGATHER_V] = "all-gather-v",
    [TR__ALLTOALL] = "all-to-all",
    [TR__ALLTOALL_V] = "all-to-all-v",
    [TR__BROADCAST] = "broadcast",
    [TR__GATHER] = "gather",
    [TR__SCATTER] = "scatter",
    [TR__BARRIER] = "barrier",
    [TR__SEND] = "send",
    [TR__RECV] = "receive",
    [TR__CREATE] = "creation",
};
static const char *const hook_names[TR__KINDS] = {
    [TR__NONE] = "none",
    [TR__ALLREDUCE] = "allreduce",
    [TR__REDUCE] = "reduce",
    [TR__REDUCE_SCATTER] = "reduce_scatter",
    [TR__REDUCE_SCATTER_V] = "reduce_scatter_v",
    [TR__ALLGATHER] = "allgather",
    [TR__ALLGATHER_V] = "allgather_v",
    [TR__ALLTOALL] = "alltoall",
    [TR__ALLTOALL_V] = "alltoall_v",
    [TR__BROADCAST] = "broadcast",
    [TR__GATHER] = "gather",
    [TR__SCATTER] = "scatter",
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

static void name_point(tr__kind kind, tr__point point, char *out, size_t nbyte) {
  snprintf(out, nbyte, "%s.%s", hook_names[kind],
           point == TR__AT_WORK && tr__kind_reduces(kind) ? "reduce" : point_names[point]);
}

void tr__hook_call(tr_comm *comm, tr__kind kind, tr__point point) {
  char name[48];
  name_point(kind, point, name, sizeof name);
  comm->hook(comm->hook_user, name);
}

int tr_comm_point(int i, char *out, size_t nbyte) {
  enum { OF_ALL = (TR__CREATE - TR__ALLREDUCE) * TR__POINTS }; // the creation of a group can only be waited in
  if (i < 0 || i > OF_ALL) return 0;
  if (i == OF_ALL)
    name_point(TR__CREATE, TR__AT_WAIT, out, nbyte);
  else
    name_point((tr__kind)(TR__ALLREDUCE + i / TR__POINTS), (tr__point)(i % TR__POINTS), out, nbyte);
  return 1;
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

tr_status tr_group_reserve(tr_group *group, int noperation) {
  int n = 0;
  for (const tr_request *r = group->free; r; r = r->next) n++;
  for (; n < noperation; n += BLOCK_REQUESTS)
    if (!grow_pool(group))
      return tr_error(TR_ERR_MEMORY, "no memory for %d operations of group '%s'", noperation, group->name);
  return TR_OK;
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

static void step_all(tr_comm *comm, int beside) {
  tr_request *next;
  for (tr_request *r = comm->head; r; r = next) {
    next = r->next; // a step unlinks no other request: matched ones end in their own step
    if (!beside || !r->done_part) step(r);
  }
}

void tr__progress(tr_comm *comm) {
  tr__enter(comm);
  if (comm->job->net) tr__net_drive(comm->job->net);
  step_all(comm, 0);
  tr__leave(comm);
}

void tr__progress_beside(tr_comm *comm) { step_all(comm, 1); }

static tr_status status_of(const tr_request *r) {
  tr__enter(r->group->comm);
  tr_status status = r->status;
  tr__leave(r->group->comm);
  return status;
}

tr_status tr_comm_progress(tr_comm *comm) {
  TR_TRY(tr_comm_check(comm));
  tr__progress(comm);
  return tr__aborted(comm->job) ? tr_comm_check(comm) : TR_OK;
}

// End a request because the job ends; it may be under way.
static tr_status give_up(tr_request *r, tr_status status) {
  tr_comm *comm = r->group->comm;
  tr__enter(comm);
  if (r->status == TR_PENDING) {
    if (r->group->engine->drop) r->group->engine->drop(r);
    tr__request_unlink(r);
  }
  tr__request_recycle(r);
  tr__leave(comm);
  return status;
}

// The rank to blame while `r` is pending, -1 while it moves by itself. A collective may be queued behind an older one
// of its group that uses the stage; what goes on elsewhere does not hold it up.
static int awaited(const tr_request *r) {
  tr__enter(r->group->comm);
  int rank = r->awaits;
  for (const tr_request *older = r->group->comm->head; rank < 0 && older && older != r; older = older->next)
    if (older->group == r->group && older->kind < TR__SEND) rank = older->awaits;
  tr__leave(r->group->comm);
  return rank;
}

static tr_status collect(tr_request *r) {
  tr_status status = r->status;
  if (status < 0) status = tr_comm_check(r->group->comm); // record the sentence for this call
  if (status == TR_OK) status = r->status;
  tr__request_recycle(r);
  return status;
}

int tr_request_ended(const tr_request *r) { return status_of(r) != TR_PENDING; }

tr_status tr_request_test(tr_request *r) {
  if (!r) return tr_error(TR_ERR_USAGE, "tr_request_test needs a request");
  tr_comm *comm = r->group->comm;
  if (status_of(r) == TR_PENDING) {
    tr_status stopping = tr_comm_check(comm);
    if (stopping < 0) return give_up(r, stopping);
    tr__progress(comm);
  }
  return status_of(r) == TR_PENDING ? TR_PENDING : collect(r);
}

tr_status tr_request_wait(tr_request *r) {
  if (!r) return tr_error(TR_ERR_USAGE, "tr_request_wait needs a request");
  tr_comm *comm = r->group->comm;
  if (status_of(r) != TR_PENDING) return collect(r);
  tr__ladder ladder;
  tr__ladder_begin(&ladder, r->kind, r->group, r->seq, r->nbyte);
  tr_status stopping = tr_comm_check(comm);
  while (stopping == TR_OK) {
    tr__progress(comm);
    if (status_of(r) != TR_PENDING) break;
    stopping = tr__ladder_wait(&ladder, comm, awaited(r));
  }
  tr__ladder_end(&ladder, comm);
  return stopping < 0 ? give_up(r, stopping) : collect(r);
}

tr_status tr__request_start(tr_request *r, tr_request **out) {
  tr_comm *comm = r->group->comm;
  tr__hook(comm, r->kind, TR__AT_START);
  tr__enter(comm);
  comm->counters.operations++;
  append(r);
  step(r);
  tr_status status = r->status;
  tr__leave(comm);
  if (!out) return status == TR_PENDING ? tr_request_wait(r) : collect(r);
  if (status < 0) return collect(r);
  *out = r;
  return TR_OK;
}
