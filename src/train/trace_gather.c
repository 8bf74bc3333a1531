// SPDX-License-Identifier: MIT
// Clocks and events of a trace's ranks, over the communicator. A rank's clock is compared with rank 0's:
//
//     rank 0   t0 ----.         .---> t1      offset = t - (t0 + t1) / 2, error (t1 - t0) / 2,
//     rank r           '-- t --'              of the fastest of some round trips
//
// Ranks of one machine have one clock. Machines do not, and their clocks drift by some millionths, so ranks that others have started
// compare them before the first step and once more at the end, where rank 0 takes the events of all and puts their times on its
// own clock, by the line through both offsets. What a job that failed leaves of such a trace is rank 0's part.
#include "train/timing_internal.h"
#include "trireme/base/clock.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUND_TRIPS = 8, CLOCK_TAG = 0, RING_TAG = 1 };

// ---- clocks

// Rank 0's half of the round trips with `rank`.
static tr_status ask_clock(tr__trainer *t, int rank, tr__clock *out) {
  tr_group *world = tr_comm_world(t->comm);
  *out = (tr__clock){.error = INT64_MAX};
  for (int i = 0; i < ROUND_TRIPS; i++) {
    int64_t asked = tr_clock_ns(), told = 0;
    TR_TRY(tr_group_send(world, rank, CLOCK_TAG, &asked, sizeof asked, NULL));
    TR_TRY(tr_group_recv(world, rank, CLOCK_TAG, &told, sizeof told, NULL));
    int64_t error = (tr_clock_ns() - asked + 1) / 2;
    if (error < out->error) *out = (tr__clock){.offset = told - (asked + error), .error = error, .at = asked + error};
  }
  return TR_OK;
}

static tr_status tell_clock(const tr__trainer *t) {
  tr_group *world = tr_comm_world(t->comm);
  for (int i = 0; i < ROUND_TRIPS; i++) {
    int64_t asked;
    TR_TRY(tr_group_recv(world, 0, CLOCK_TAG, &asked, sizeof asked, NULL));
    int64_t now = tr_clock_ns();
    TR_TRY(tr_group_send(world, 0, CLOCK_TAG, &now, sizeof now, NULL));
  }
  return TR_OK;
}

tr_status tr__trace_join(tr__trainer *t) {
  tr__ring *ring = tr__trace_ring(t->trace, t->rank);
  // So that no step pays for the pages.
  memset(ring->under_way, 0, t->part->program.nop * sizeof *ring->under_way);
  memset(ring->event, 0, ring->capacity * sizeof *ring->event);
  if (gethostname(ring->host, sizeof ring->host - 1) != 0) snprintf(ring->host, sizeof ring->host, "host");
  tr_comm_beat(t->comm);
  if (t->rank > 0) return tell_clock(t);
  for (int r = 1; r < tr_comm_size(t->comm); r++)
    TR_TRY(ask_clock(t, r, &tr__trace_ring(t->trace, r)->clock[TR__CLOCK_BEGIN]));
  return TR_OK;
}

// Rank 0's time when that rank's clock showed `ns`. Offsets within their errors are none.
static int64_t on_our_clock(const tr__clock clock[2], int64_t ns) {
  const tr__clock *begin = &clock[TR__CLOCK_BEGIN], *end = &clock[TR__CLOCK_END];
  if (llabs(begin->offset) <= begin->error && llabs(end->offset) <= end->error) return ns;
  double passed = (double)(ns - begin->offset - begin->at) / (double)(end->at - begin->at);
  return ns - begin->offset - (int64_t)(passed * (double)(end->offset - begin->offset));
}

// ---- events

static uint64_t kept(const tr__ring *ring) { return ring->count < ring->capacity ? ring->count : ring->capacity; }

static tr_status send_ring(const tr__trainer *t) {
  tr_group *world = tr_comm_world(t->comm);
  const tr__ring *ring = tr__trace_ring(t->trace, t->rank);
  TR_TRY(tr_group_send(world, 0, RING_TAG, ring, sizeof *ring, NULL));
  TR_TRY(tr_group_send(world, 0, RING_TAG, ring->under_way, t->part->program.nop * sizeof *ring->under_way, NULL));
  return tr_group_send(world, 0, RING_TAG, ring->event, kept(ring) * sizeof *ring->event, NULL);
}

static void move_events(tr__ring *ring, uint32_t nop) {
  const uint64_t n = kept(ring);
  for (uint64_t i = 0; i < n; i++) {
    ring->event[i].begin = on_our_clock(ring->clock, ring->event[i].begin);
    ring->event[i].end = on_our_clock(ring->clock, ring->event[i].end);
  }
  for (uint32_t i = 0; i < ring->depth; i++) ring->open[i].begin = on_our_clock(ring->clock, ring->open[i].begin);
  for (uint32_t i = 0; i < nop; i++)
    if (ring->under_way[i].begin) ring->under_way[i].begin = on_our_clock(ring->clock, ring->under_way[i].begin);
}

static tr_status take_ring(const tr__trainer *t, int rank) {
  tr_group *world = tr_comm_world(t->comm);
  tr__ring *ring = tr__trace_ring(t->trace, rank), sent;
  const uint32_t nop = tr_train_part_of(t->plan, rank)->program.nop;
  TR_TRY(tr_group_recv(world, rank, RING_TAG, &sent, sizeof sent, NULL));
  ring->count = sent.count;
  ring->depth = sent.depth < TR__OPEN_SLICES ? sent.depth : TR__OPEN_SLICES;
  memcpy(ring->open, sent.open, sizeof ring->open);
  memcpy(ring->host, sent.host, sizeof ring->host);
  TR_TRY(tr_group_recv(world, rank, RING_TAG, ring->under_way, nop * sizeof *ring->under_way, NULL));
  TR_TRY(tr_group_recv(world, rank, RING_TAG, ring->event, kept(ring) * sizeof *ring->event, NULL));
  move_events(ring, nop);
  return TR_OK;
}

tr_status tr__trace_gather(tr__trainer *t) {
  tr_comm_activity(t->comm, "trace", -1, -1);
  if (t->rank > 0) {
    TR_TRY(tell_clock(t));
    return send_ring(t);
  }
  for (int r = 1; r < tr_comm_size(t->comm); r++) {
    TR_TRY(ask_clock(t, r, &tr__trace_ring(t->trace, r)->clock[TR__CLOCK_END]));
    TR_TRY(take_ring(t, r));
  }
  t->trace->whole = 1;
  return TR_OK;
}
