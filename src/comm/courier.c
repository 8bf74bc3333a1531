// SPDX-License-Identifier: MIT
// Sends and receives of the shm engine: one channel per (group, sender, receiver), entries in order.
//
//   sender's buffer   receiver's buffer
//   <= 64 bytes       any                the data lies in the entry; the send ends at once
//   in an arena       any                the receiver copies from the sender's buffer, then counts the entry as taken
//   private           in an arena        the receiver grants its buffer, the sender writes into it
//   private           private            the receiver grants its courier stage (two halves of 256 KiB), the sender
//                                        writes chunks, the receiver copies them out
//
// The stage is only given to a receive whose send is already there, so the transfer needs nothing but both ranks'
// progress and the stage becomes free again: no circle of waits can go through it. Transfers of one channel happen in
// order. A sender may be 16 entries ahead; later sends stay unposted.
#include "comm_internal.h"
#include <string.h>

typedef struct ends { // both ends of a request's channel
  tr__channel *channel;
  tr__entry *entry;
  uint64_t tag;
} ends;

static ends ends_of(const tr_request *r) {
  const tr_group *g = r->group;
  int own = g->ranks[g->index], peer = g->ranks[r->root];
  tr__channel *c = r->kind == TR__SEND ? tr__channel_of(g->comm->job, g->slot, own, peer)
                                       : tr__channel_of(g->comm->job, g->slot, peer, own);
  return (ends){c, &c->entry[r->seq % TR__RING], tr__tag(g->epoch, r->seq)};
}

static tr_status pending(tr_request *r) {
  r->awaits = r->group->ranks[r->root];
  return TR_PENDING;
}

static uint32_t chunk_count(const tr_request *r) { return (uint32_t)((r->nbyte + TR__STAGE - 1) / TR__STAGE); }

static size_t chunk_nbyte(const tr_request *r, uint32_t chunk) {
  size_t at = (size_t)chunk * TR__STAGE;
  return r->nbyte - at < TR__STAGE ? r->nbyte - at : TR__STAGE;
}

// ---- sender -------------------------------------------------------------------------------------

static uint32_t taken(const tr_request *r, const ends *e) {
  uint64_t tag = atomic_load_explicit(&e->channel->taken, memory_order_acquire);
  return tag >> 32 == r->group->epoch ? (uint32_t)tag : r->group->base;
}

static tr_status send_post(tr_request *r) {
  ends e = ends_of(r);
  tr_group *g = r->group;
  if (g->send_posted[r->root] != r->seq || tr__ahead(r->seq, taken(r, &e)) >= TR__RING) return pending(r);
  g->send_posted[r->root]++;
  e.entry->nbyte = r->nbyte;
  e.entry->place = tr__job_place(g->comm->job, r->src, r->nbyte);
  atomic_store_explicit(&e.entry->sent, 0, memory_order_relaxed);
  int small = r->nbyte <= TR__ENTRY_INLINE;
  if (small && r->nbyte) memcpy(e.entry->payload, r->src, r->nbyte);
  if (!small)
    *(e.entry->place == TR__PRIVATE ? &g->comm->counters.bytes_staged : &g->comm->counters.bytes_direct) += r->nbyte;
  atomic_store_explicit(&e.entry->posted, e.tag, memory_order_release);
  tr__worked(g->comm);
  tr__hook(g->comm, TR__SEND, TR__AT_READY);
  r->phase = TR__WORKING;
  r->chunks = chunk_count(r);
  return small ? TR_OK : pending(r);
}

// Posted: write chunks where the receiver has granted a place, end when it has counted the entry as taken.
static tr_status send_work(tr_request *r) {
  ends e = ends_of(r);
  if (tr__ahead(taken(r, &e), r->seq) > 0) return TR_OK;
  if (r->in == r->chunks || atomic_load_explicit(&e.channel->granted, memory_order_acquire) != e.tag)
    return pending(r);
  uint32_t ahead = e.channel->ahead;
  if (r->in - atomic_load_explicit(&e.channel->read, memory_order_acquire) >= ahead) return pending(r);
  tr__hook(r->group->comm, TR__SEND, TR__AT_WORK);
  memcpy(e.channel->grant + (size_t)(r->in % ahead) * TR__STAGE, r->src + (size_t)r->in * TR__STAGE,
         chunk_nbyte(r, r->in));
  r->in++;
  atomic_store_explicit(&e.entry->sent, r->in, memory_order_release);
  tr__worked(r->group->comm);
  return pending(r);
}

// ---- receiver -----------------------------------------------------------------------------------

static tr_status take(tr_request *r, const ends *e) {
  tr_group *g = r->group;
  if (g->comm->courier_user == r) g->comm->courier_user = NULL;
  g->recv_taken[r->root]++;
  atomic_store_explicit(&e->channel->taken, tr__tag(g->epoch, r->seq + 1), memory_order_release);
  tr__worked(g->comm);
  tr__hook(g->comm, TR__RECV, TR__AT_DONE);
  return TR_OK;
}

static tr_status wrong_size(tr_request *r, uint64_t sent) {
  tr_group *g = r->group;
  int from = g->ranks[r->root];
  return tr__fail(g->comm, from, TR_ERR_USAGE,
                  "transfer #%u from rank %d to rank %d in group '%s' differs: %llu bytes are sent, %zu are received",
                  r->seq - g->base + 1, from, g->comm->rank, g->name, (unsigned long long)sent, r->nbyte);
}

// Let the sender write: into our buffer if it lies in an arena, else into the courier stage when nobody else uses it.
static tr_status grant(tr_request *r, const ends *e) {
  tr_comm *comm = r->group->comm;
  int direct = tr__job_place(comm->job, r->dst, r->nbyte) != TR__PRIVATE;
  if (!direct && comm->courier_user) { // queued behind that receive, so for whom it waits
    r->awaits = comm->courier_user->awaits;
    return TR_PENDING;
  }
  if (!direct) comm->courier_user = r;
  e->channel->grant = direct ? r->dst : comm->job->courier[comm->rank].half[0];
  e->channel->ahead = direct ? UINT32_MAX : 2;
  r->chunks = chunk_count(r);
  r->in = direct; // 1: nothing to copy out
  r->phase = TR__STAGING;
  atomic_store_explicit(&e->channel->read, 0, memory_order_relaxed);
  atomic_store_explicit(&e->channel->granted, e->tag, memory_order_release);
  tr__worked(comm);
  return pending(r);
}

static tr_status recv_match(tr_request *r) {
  ends e = ends_of(r);
  if (r->group->recv_taken[r->root] != r->seq) return pending(r);
  if (atomic_load_explicit(&e.entry->posted, memory_order_acquire) != e.tag) return pending(r);
  if (e.entry->nbyte != r->nbyte) return wrong_size(r, e.entry->nbyte);
  if (r->phase == TR__POST) tr__hook(r->group->comm, TR__RECV, TR__AT_WORK);
  if (r->nbyte <= TR__ENTRY_INLINE) {
    if (r->nbyte) memcpy(r->dst, e.entry->payload, r->nbyte);
    return take(r, &e);
  }
  if (e.entry->place == TR__PRIVATE) return grant(r, &e);
  r->phase = TR__WORKING;
  return tr__courier_step(r);
}

static tr_status recv_pull(tr_request *r) {
  ends e = ends_of(r);
  size_t n = r->nbyte - r->at < TR__PIECE ? r->nbyte - r->at : TR__PIECE;
  const char *src = r->group->comm->job->arenas + e.entry->place;
  tr__at_work(r->group->comm);
  if (r->dst != src) memcpy(r->dst + r->at, src + r->at, n);
  r->at += n;
  r->awaits = -1; // all is there: the rest is this rank's own work
  tr__worked(r->group->comm);
  return r->at == r->nbyte ? take(r, &e) : TR_PENDING;
}

static tr_status recv_staged(tr_request *r) {
  ends e = ends_of(r);
  uint32_t sent = atomic_load_explicit(&e.entry->sent, memory_order_acquire);
  int direct = (int)r->in;
  if (direct && sent == r->chunks) return take(r, &e);
  if (direct || sent == r->done) return pending(r);
  const char *half = r->group->comm->job->courier[r->group->comm->rank].half[r->done & 1];
  memcpy(r->dst + (size_t)r->done * TR__STAGE, half, chunk_nbyte(r, r->done));
  r->done++;
  atomic_store_explicit(&e.channel->read, r->done, memory_order_release);
  tr__worked(r->group->comm);
  return r->done == r->chunks ? take(r, &e) : pending(r);
}

tr_status tr__courier_step(tr_request *r) {
  if (r->kind == TR__SEND) return r->phase == TR__POST ? send_post(r) : send_work(r);
  if (r->phase == TR__POST) return recv_match(r);
  return r->phase == TR__WORKING ? recv_pull(r) : recv_staged(r);
}
