// SPDX-License-Identifier: MIT
// Sends and receives of the shm engine: one channel per (group, sender, receiver), entries in order.
//
//   sender's buffer   receiver's buffer
//   <= 64 bytes       any                the data lies in the entry; the send ends at once
//   in an arena       any                the receiver copies from the sender's buffer, then counts the entry as taken
//   private           in an arena        the receiver grants its buffer, the sender writes into it
//   private           private            from 32 KiB on the receiver reads the sender's memory, where it can (peer_read.c), but
//                                        from 512 KiB on only where the two may share a core; else it grants its courier stage
//                                        (two halves of 256 KiB), the sender writes chunks, the receiver copies them out
//
// A receive is matched with the oldest entry of its tag that no older receive of that tag is for; entries of other tags
// before it stay. A place is only granted to a receive whose send is already there, so the transfer needs nothing
// but both ranks' progress and the stage becomes free again: no circle of waits can go through it. An entry is used
// again once its send has arrived, so a sender may be 16 entries ahead; later sends stay unposted.
#include "shm_internal.h"

static tr__channel *channel_of(const tr_request *r) {
  const tr_group *g = r->group;
  int own = g->ranks[g->index], peer = g->ranks[r->root];
  return r->kind == TR__SEND ? tr__channel_of(g->comm->job, g->slot, own, peer)
                             : tr__channel_of(g->comm->job, g->slot, peer, own);
}

typedef struct ends { // both ends of a request's transfer
  tr__channel *channel;
  tr__entry *entry;
  _Atomic uint64_t *taken;
  uint64_t tag;
} ends;

static ends ends_of(const tr_request *r) {
  tr__channel *c = channel_of(r);
  uint32_t seq = r->kind == TR__SEND ? r->seq : r->entry;
  return (ends){c, &c->entry[seq % TR__RING], &c->taken[seq % TR__RING], tr__tag(r->group->epoch, seq)};
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

// Sends are posted in order, each in the entry of the sixteenth before it.
static int may_post(const tr_request *r, const ends *e) {
  const tr_group *g = r->group;
  if (g->send_posted[r->root] != r->seq) return 0;
  if (atomic_load_explicit(&e->entry->posted, memory_order_relaxed) >> 32 != g->epoch) return 1; // not used yet
  return atomic_load_explicit(e->taken, memory_order_acquire) == tr__tag(g->epoch, r->seq - TR__RING);
}

static tr_status send_post(tr_request *r) {
  ends e = ends_of(r);
  tr_group *g = r->group;
  if (!may_post(r, &e)) return pending(r);
  g->send_posted[r->root]++;
  e.entry->tag = r->tag;
  e.entry->nbyte = r->nbyte;
  e.entry->place = tr__job_place(g->comm->job, r->src, r->nbyte);
  atomic_store_explicit(&e.entry->sent, 0, memory_order_relaxed);
  int small = r->nbyte <= TR__ENTRY_INLINE;
  if (small && r->nbyte) memcpy(e.entry->payload, r->src, r->nbyte);
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
  if (atomic_load_explicit(e.taken, memory_order_acquire) == e.tag) {
    tr_comm_counters *counters = &r->group->comm->counters;
    *(r->in > 0 ? &counters->bytes_staged : &counters->bytes_direct) += r->nbyte;
    return TR_OK;
  }
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

static int older_receive_waits(const tr_request *r) {
  for (const tr_request *older = r->group->comm->head; older && older != r; older = older->next)
    if (older->kind == TR__RECV && older->group == r->group && older->root == r->root && older->tag == r->tag &&
        older->phase == TR__POST)
      return 1;
  return 0;
}

// The oldest entry that is posted, has no receive yet and has this tag: its number goes to r->entry.
static int find_entry(tr_request *r) {
  const tr_group *g = r->group;
  const tr__channel *c = channel_of(r);
  uint32_t first = g->matched[r->root], bits = g->matched_bits[r->root];
  for (uint32_t seq = first; seq != first + TR__RING; seq++) {
    const tr__entry *entry = &c->entry[seq % TR__RING];
    if (bits >> (seq - first) & 1u) continue;
    if (atomic_load_explicit(&entry->posted, memory_order_acquire) != tr__tag(g->epoch, seq)) return 0;
    if (entry->tag != r->tag) continue;
    r->entry = seq;
    return 1;
  }
  return 0;
}

static void count_matched(const tr_request *r) {
  uint32_t *first = &r->group->matched[r->root], *bits = &r->group->matched_bits[r->root];
  *bits |= 1u << (r->entry - *first);
  for (; *bits & 1u; *bits >>= 1) ++*first;
}

static void release(tr_request *r) {
  tr_comm *comm = r->group->comm;
  if (comm->courier_user == r) comm->courier_user = NULL;
  if (r->phase == TR__STAGING) r->group->granting[r->root] = 0;
}

void tr__courier_drop(tr_request *r) {
  if (r->kind == TR__RECV) release(r);
}

static tr_status take(tr_request *r, const ends *e) {
  tr_group *g = r->group;
  release(r);
  atomic_store_explicit(e->taken, e->tag, memory_order_release);
  tr__worked(g->comm);
  tr__hook(g->comm, TR__RECV, TR__AT_DONE);
  return TR_OK;
}

static tr_status wrong_size(tr_request *r, uint64_t sent) {
  tr_group *g = r->group;
  int from = g->ranks[r->root];
  return tr__fail(
      g->comm, from, TR_ERR_USAGE,
      "transfer with tag %d from rank %d to rank %d in group '%s' differs: %llu bytes are sent, %zu are received",
      r->tag, from, g->comm->rank, g->name, (unsigned long long)sent, r->nbyte);
}

// Let the sender write: into our buffer if it lies in an arena, else into the courier stage; one at a time.
static tr_status grant(tr_request *r, const ends *e) {
  tr_comm *comm = r->group->comm;
  int direct = tr__in_arena(tr__job_place(comm->job, r->dst, r->nbyte));
  if (r->group->granting[r->root]) return pending(r); // to another send of this channel
  if (!direct && comm->courier_user) {                // queued behind that receive, so for whom it waits
    r->awaits = comm->courier_user->awaits;
    return TR_PENDING;
  }
  if (!direct) comm->courier_user = r;
  r->group->granting[r->root] = 1;
  e->channel->grant = direct ? r->dst : comm->job->courier[comm->rank].half[0];
  e->channel->ahead = direct ? UINT32_MAX : 2;
  r->chunks = chunk_count(r);
  r->in = (uint32_t)direct; // 1: nothing to copy out
  r->phase = TR__STAGING;
  atomic_store_explicit(&e->channel->read, 0, memory_order_relaxed);
  atomic_store_explicit(&e->channel->granted, e->tag, memory_order_release);
  tr__worked(comm);
  return pending(r);
}

// Can and should this rank take the data where it lies?
static int pulls(const tr_request *r, const ends *e) {
  const tr_group *g = r->group;
  const tr_comm *comm = g->comm;
  if (tr__in_arena(e->entry->place)) return 1;
  if (r->nbyte >= TR__READ_ALONE && comm->job->spin && !comm->reads_all) return 0;
  return r->nbyte >= TR__READ_LEAST && !tr__in_arena(tr__job_place(comm->job, r->dst, r->nbyte)) &&
         tr__peer_readable(g->comm, g->ranks[r->root]);
}

// Matched: how the data comes is seen from where it lies.
static tr_status recv_begin(tr_request *r) {
  ends e = ends_of(r);
  if (r->nbyte > TR__ENTRY_INLINE) {
    if (!pulls(r, &e)) return grant(r, &e);
    r->phase = TR__WORKING;
    return tr__courier_step(r);
  }
  if (r->nbyte) memcpy(r->dst, e.entry->payload, r->nbyte);
  return take(r, &e);
}

static tr_status recv_match(tr_request *r) {
  if (!find_entry(r) || older_receive_waits(r)) return pending(r);
  ends e = ends_of(r);
  if (e.entry->nbyte != r->nbyte) return wrong_size(r, e.entry->nbyte);
  count_matched(r);
  r->phase = TR__GATHERING;
  tr__hook(r->group->comm, TR__RECV, TR__AT_WORK);
  return recv_begin(r);
}

static tr_status recv_pull(tr_request *r) {
  ends e = ends_of(r);
  size_t n = r->nbyte - r->at < TR__PIECE ? r->nbyte - r->at : TR__PIECE;
  tr__at_work(r->group->comm);
  if (!tr__shm_fetch(r, r->root, e.entry->place, r->at, r->dst + r->at, n)) return TR_PENDING;
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
  switch (r->phase) {
  case TR__POST: return recv_match(r);
  case TR__GATHERING: return recv_begin(r);
  case TR__WORKING: return recv_pull(r);
  default: return recv_staged(r);
  }
}
