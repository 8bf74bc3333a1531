// SPDX-License-Identifier: MIT
// The transport over MPI, for groups whose ranks are on several hosts.
//
// A message's tag is the group's context and the lane. Contexts are small numbers of which no rank uses one for two groups at a
// time; so a pair of ranks, too. The members of a new group agree on one by messages: each sends its first rank
// the set of those that it uses, and gets the lowest that nobody does. A rank creates one group at a time, so what it has
// sent stays true until the answer.
#include "external_internal.h"
#include "transport.h"
#include "trireme/base/file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tr__net *net_of(const tr_group *g) { return g->comm->job->net; }

// ---- messages

static tr_status keep(tr_group *g, tr__message *message, int peer, size_t nbyte, tr__transfer *transfer) {
  *transfer = (tr__transfer){.handle = message, .nbyte = nbyte, .peer = peer};
  if (message) return TR_OK;
  return tr__fail(g->comm, g->comm->rank, TR_ERR_MEMORY, "%s", tr_status_text());
}

static tr_status mpi_send(tr_group *g, int peer, int lane, const void *data, size_t nbyte, tr__transfer *transfer) {
  int tag = g->context * TR__NET_LANES + lane;
  return keep(g, tr__net_send(net_of(g), g->ranks[peer], tag, data, nbyte, 0), peer, nbyte, transfer);
}

static tr_status mpi_recv(tr_group *g, int peer, int lane, void *data, size_t nbyte, tr__transfer *transfer) {
  int tag = g->context * TR__NET_LANES + lane;
  return keep(g, tr__net_recv(net_of(g), g->ranks[peer], tag, data, nbyte, 0), peer, nbyte, transfer);
}

static tr_status mpi_test(tr_group *g, tr__transfer *transfer) {
  tr__message *message = transfer->handle;
  if (!tr__message_ended(message)) return TR_PENDING;
  size_t came = tr__message_nbyte(message);
  int sent = tr__message_sends(message);
  tr__message_free(net_of(g), message);
  transfer->handle = NULL;
  if (sent || came == transfer->nbyte) return TR_OK;
  return tr__fail(g->comm, g->ranks[transfer->peer], TR_ERR_USAGE,
                  "rank %d expects %zu bytes from rank %d, which sends %zu in group '%s'", g->comm->rank,
                  transfer->nbyte, g->ranks[transfer->peer], came, g->name);
}

// MPI may still write to its buffer: the message is never used again.
static void mpi_drop(tr_group *g, tr__transfer *transfer) {
  (void)g;
  transfer->handle = NULL;
}

const tr__transport tr__transport_mpi = {
    .name = "mpi", .send = mpi_send, .recv = mpi_recv, .test = mpi_test, .drop = mpi_drop};

// ---- contexts

enum { ASK = TR__CONTEXT_CREATE * TR__NET_LANES, ANSWER = ASK + 1 };

typedef struct ask {
  uint64_t key, used; // hash of members and name; contexts
  char name[TR__NAME];
} ask;

typedef struct creation {
  tr_group *group;
  tr__ladder ladder;
  ask own;
  uint64_t answer;      // the context, or one too large
  ask *asked;           // leader: of each member
  tr__message *message; // the one waited for
} creation;

static tr_status wait_for(creation *c, tr__message *message, int rank) {
  tr_comm *comm = c->group->comm;
  tr_status status = message ? TR_OK : TR_ERR_MEMORY;
  while (status == TR_OK && !tr__message_ended(message)) {
    tr__progress(comm);
    if (!tr__message_ended(message)) status = tr__ladder_wait(&c->ladder, comm, rank);
  }
  if (status < 0) return status;
  tr__message_free(comm->job->net, message);
  tr__worked(comm);
  return TR_OK;
}

static tr_status check_ask(const creation *c, int member) {
  const ask *a = &c->asked[member];
  const tr_group *g = c->group;
  if (a->key == c->own.key) return TR_OK;
  return tr__fail(g->comm, g->ranks[member], TR_ERR_USAGE,
                  "rank %d creates group '%.*s' where rank %d creates group '%s': names, ranks or order differ",
                  g->ranks[member], TR__NAME - 1, a->name, g->comm->rank, g->name);
}

static tr_status lead(creation *c) {
  tr_group *g = c->group;
  tr__net *net = net_of(g);
  uint64_t used = c->own.used;
  tr__message *asks[TR__RANKS], *answers[TR__RANKS];
  tr__net_enter(net);
  for (int i = 1; i < g->size; i++) asks[i] = tr__net_recv(net, g->ranks[i], ASK, &c->asked[i], sizeof *c->asked, 0);
  tr__net_leave(net);
  for (int i = 1; i < g->size; i++) {
    TR_TRY(wait_for(c, asks[i], g->ranks[i]));
    TR_TRY(check_ask(c, i));
    used |= c->asked[i].used;
  }
  uint64_t own_ones = (1ull << TR__CONTEXT_CREATE) - 1; // those that groups may have
  c->answer = (used & own_ones) == own_ones ? TR__CONTEXT_CREATE : (uint64_t)__builtin_ctzll(~used);
  tr__net_enter(net);
  for (int i = 1; i < g->size; i++)
    answers[i] = tr__net_send(net, g->ranks[i], ANSWER, &c->answer, sizeof c->answer, 0);
  tr__net_leave(net);
  for (int i = 1; i < g->size; i++) TR_TRY(wait_for(c, answers[i], g->ranks[i]));
  return TR_OK;
}

static tr_status follow(creation *c) {
  tr_group *g = c->group;
  tr__net *net = net_of(g);
  tr__net_enter(net);
  tr__message *asking = tr__net_send(net, g->ranks[0], ASK, &c->own, sizeof c->own, 0);
  tr__message *answer = tr__net_recv(net, g->ranks[0], ANSWER, &c->answer, sizeof c->answer, 0);
  tr__net_leave(net);
  TR_TRY(wait_for(c, asking, g->ranks[0]));
  return wait_for(c, answer, g->ranks[0]);
}

// What members wait for may come after this call has failed, so its place is not on the stack.
tr_status tr__context_join(tr_group *g, const char *name) {
  tr__net *net = net_of(g);
  creation *c = calloc(1, sizeof *c + (size_t)g->size * sizeof *c->asked);
  if (!c) return tr_error(TR_ERR_MEMORY, "group '%s': no memory to create it", g->name);
  uint64_t parts[2] = {tr_hash_bytes(g->ranks, (size_t)g->size * sizeof *g->ranks),
                       tr_hash_bytes(name, strlen(name))};
  c->group = g;
  c->asked = (ask *)(void *)(c + 1);
  c->own = (ask){.key = tr_hash_bytes(parts, sizeof parts), .used = net->contexts};
  snprintf(c->own.name, sizeof c->own.name, "%s", g->name);
  tr__ladder_begin(&c->ladder, TR__CREATE, g, g->base, 0);
  tr_status status = g->index == 0 ? lead(c) : follow(c);
  tr__ladder_end(&c->ladder, g->comm);
  if (status < 0) return status; // the job ends, with `c` perhaps still known to MPI
  g->context = (int)c->answer;
  free(c);
  if (g->context >= TR__CONTEXT_CREATE)
    return tr_error(TR_ERR_USAGE,
                    "group '%s' would be one too many: its ranks are in up to %d groups over hosts already", g->name,
                    TR__CONTEXT_CREATE);
  net->contexts |= 1ull << g->context;
  return TR_OK;
}

void tr__context_leave(tr_group *g) { net_of(g)->contexts &= ~(1ull << g->context); }
