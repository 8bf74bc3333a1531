// SPDX-License-Identifier: MIT
// Comparing the calls of a group over hosts: before a collective moves any data, each rank tells every other which call it made.
//
// Without this, ranks whose calls differ run scripts that do not fit together: messages of wrong lengths, or a wait until the
// deadline. With it an operation begins when all ranks have called it, so it is for finding faults (TRIREME_COMM_DEBUG=1).
//
// What ranks tell travels on a lane of its own, one message from each rank to each other per operation, started in the order
// of the calls; so the n-th message is of the n-th call, and sequences agree by themselves. Calls are compared in order,
// too: nothing of an operation moves while an older one is in doubt. Up to 16 calls are under way, in places that are never
// freed before their messages have ended, so that nothing is allocated after the group is made.
#include "agree_internal.h"
#include "external_internal.h"
#include "transport.h"
#include <stdlib.h>

enum { LANE = TR__NET_LANES - 1 }; // sends and receives have the lanes up to their largest tag

_Static_assert((int)LANE > (int)TR_TAG_MOST + TR__RING, "the lane is not that of any tag");

typedef struct word {
  tr__call call;
  uint64_t sends; // all-to-all-v: elements to the rank that is told, else 0
} word;

typedef struct talk { // with one rank about one call
  word told, heard;
  tr__transfer telling, hearing;
} talk;

struct tr__compare {
  uint32_t posted, agreed; // sequence of the next call to tell of, and to agree on
  talk talk[];             // [TR__RING][size of the group]
};

tr__compare *tr__compare_create(const tr_group *g) {
  tr__compare *c = calloc(1, sizeof *c + TR__RING * (size_t)g->size * sizeof *c->talk);
  if (c) c->posted = c->agreed = g->base;
  return c;
}

static talk *talks_of(tr__compare *c, const tr_request *r) {
  return &c->talk[(r->seq % TR__RING) * (size_t)r->group->size];
}

static tr_status post(tr_request *r, talk *t) {
  tr_group *g = r->group;
  const tr__transport *transport = g->engine->transport;
  for (int i = 0; i < g->size; i++) {
    uint64_t sends = r->kind == TR__ALLTOALL_V ? r->start[i + 1] - r->start[i] : 0;
    t[i].told = t[i].heard = (word){tr__call_of(r), sends};
    if (i == g->index) continue;
    TR_TRY(transport->recv(g, i, LANE, &t[i].heard, sizeof t[i].heard, &t[i].hearing));
    TR_TRY(transport->send(g, i, LANE, &t[i].told, sizeof t[i].told, &t[i].telling));
  }
  return TR_OK;
}

static tr_status test(tr_group *g, tr__transfer *transfer) {
  if (!transfer->handle) return TR_OK; // with itself, or ended before
  tr_status status = g->engine->transport->test(g, transfer);
  if (status == TR_OK) tr__worked(g->comm);
  return status;
}

static tr_status gather(tr_request *r, talk *t) {
  tr_group *g = r->group;
  for (; r->cursor < g->size; r->cursor++) {
    r->awaits = g->ranks[r->cursor];
    tr_status status = test(g, &t[r->cursor].hearing);
    if (status == TR_OK) status = test(g, &t[r->cursor].telling);
    if (status != TR_OK) return status;
  }
  r->awaits = -1;
  return TR_OK;
}

static tr_status agree(const tr_request *r, const talk *t) {
  const tr__call *call[TR__RANKS];
  for (int i = 0; i < r->group->size; i++) call[i] = &t[i].heard.call;
  TR_TRY(tr__agree(r, call));
  for (int i = 0; i < r->group->size && r->kind == TR__ALLTOALL_V; i++)
    TR_TRY(tr__agree_count(r, i, t[i].heard.sends));
  return TR_OK;
}

tr_status tr__compare_step(tr__compare *c, tr_request *r) {
  talk *t = talks_of(c, r);
  if (r->phase == TR__POST) {
    if (r->seq != c->posted || tr__ahead(r->seq, c->agreed) >= TR__RING) return TR_PENDING;
    TR_TRY(post(r, t));
    c->posted++;
    r->phase = TR__GATHERING;
  }
  if (r->seq != c->agreed) return TR_PENDING;
  tr_status status = gather(r, t);
  if (status != TR_OK) return status;
  c->agreed++;
  return agree(r, t);
}
