// SPDX-License-Identifier: MIT
// Waiting without hanging: the ladder of pauses, and whom to blame when time is up.
//
//   rounds 1 .. spins   PAUSE        (2000 when every thread has its own core; else a peer may need ours: none, or 40 where
//                                    the peer is known to be bound to another core)
//   until 2 ms          sched_yield
//   then                nanosleep, 50 us growing to 1 ms
//
// Anything that moves sets the ladder back to its start. From the second stage on the wait is shown to the other
// ranks (whom, in what), and about every millisecond it looks for an end: an aborted job, an awaited rank that has
// already ended, or the deadline. The deadline belongs to the rank that everybody waits for in the end: if we wait
// for B and B waits for C, it is C's progress counter that must stand still, and C that is blamed. A rank that was stopped
// while it waited still shows that it waits, for what may have come long since; but it does not look any more, so it is
// the one. Ranks that wait for each other in a circle, and all look, are all named.
#include "comm_internal.h"
#include "trireme/base/clock.h"
#include <sched.h>
#include <stdio.h>

enum {
  YIELD_NS = 2000000,
  SLEEP_NS = 50000,
  SLEEP_MOST_NS = 1000000,
  SLEEP_NET_NS = 100000, // messages to other hosts move only when this rank looks
  LOOK_NS = 1000000,
  ENDED_ROUNDS = 2, // of progress: a script sees one round later what an operation within its host has brought
  GAP_NS = 500000000,
  ON_ITS_WAY_NS = 2000000000 // what a rank of another host sent before it ended may still be on its way
};

static inline void pause_core(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  atomic_signal_fence(memory_order_seq_cst);
#endif
}

void tr__ladder_begin(tr__ladder *l, tr__kind kind, const tr_group *group, uint32_t seq, uint64_t nbyte) {
  *l = (tr__ladder){.kind = kind, .group = group->name, .seq = seq - group->base + 1, .nbyte = nbyte};
  l->published = -2;
  l->ended_seen = l->root = -1;
}

static void publish(tr__ladder *l, tr_comm *comm, int awaits, int64_t now) {
  tr__rank_page *page = tr__page(comm);
  if (l->published == -2) {
    atomic_store_explicit(&page->seq, l->seq, memory_order_relaxed);
    atomic_store_explicit(&page->nbyte, l->nbyte, memory_order_relaxed);
    tr__name_store(page->group, l->group);
    atomic_store_explicit(&page->wait_since, now, memory_order_relaxed);
    atomic_store_explicit(&page->kind, (uint32_t)l->kind, memory_order_relaxed);
    tr__hook(comm, l->kind, TR__AT_WAIT);
  }
  if (l->published != awaits) {
    atomic_store_explicit(&page->looked, now, memory_order_relaxed);
    atomic_store_explicit(&page->awaits, awaits, memory_order_release); // seen with the time of a look
  }
  l->published = awaits;
}

static tr_status blame(tr__ladder *l, tr_comm *comm, int root, int waiter, int64_t now) {
  char who[TR__WHO], doing[120], wait[160];
  if (root < 0) {
    tr__describe_wait(comm->job, comm->rank, wait, sizeof wait);
    return tr__fail(comm, comm->rank, TR_ERR_TIMEOUT, "rank %d made no progress for %.1f s in %s", comm->rank,
                    (double)(now - l->root_since) * 1e-9, wait);
  }
  tr__describe_rank(comm->job, root, who, sizeof who);
  tr__describe_activity(comm->job, root, doing, sizeof doing);
  tr__describe_wait(comm->job, waiter, wait, sizeof wait);
  return tr__fail(comm, root, TR_ERR_TIMEOUT,
                  "%s made no progress for %.1f s: it was in %s; rank %d waits for it in %s", who,
                  (double)(now - l->root_since) * 1e-9, doing, waiter, wait);
}

static tr_status blame_circle(tr_comm *comm, int first) {
  char sentence[TR__SENTENCE], wait[160];
  int used =
      snprintf(sentence, sizeof sentence, "ranks wait for each other for %.1f s:", comm->job->options.deadline);
  int rank = first;
  for (int hop = 0; hop < 4 && rank >= 0 && used < (int)sizeof sentence; hop++) {
    int next = atomic_load(&comm->job->page[rank].awaits);
    tr__describe_wait(comm->job, rank, wait, sizeof wait);
    used += snprintf(sentence + used, sizeof sentence - (size_t)used, "%s rank %d for rank %d in %s", hop ? "," : "",
                     rank, next, wait);
    rank = next == first ? -1 : next;
  }
  return tr__fail(comm, first, TR_ERR_TIMEOUT, "%s", sentence);
}

// The awaited rank has ended and, seen after that, still has not done its part.
static tr_status check_ended(tr__ladder *l, tr_comm *comm, int awaits, int64_t now) {
  const tr__rank_page *page = &comm->job->page[awaits];
  if (awaits == comm->rank || atomic_load_explicit(&page->life, memory_order_acquire) != TR__ENDED) return TR_OK;
  if (l->ended_seen != awaits) {
    l->ended_seen = awaits; // all it has published is visible from now on
    l->ended_rounds = 0;
    l->ended_since = now;
    return TR_OK;
  }
  if (++l->ended_rounds < ENDED_ROUNDS) return TR_OK;
  const tr__hosts *hosts = &comm->job->hosts;
  if (hosts->of[awaits] != hosts->own && now - l->ended_since < ON_ITS_WAY_NS) return TR_OK;
  char who[TR__WHO], doing[120], wait[160];
  tr__describe_rank(comm->job, awaits, who, sizeof who);
  tr__describe_activity(comm->job, awaits, doing, sizeof doing);
  tr__describe_wait(comm->job, comm->rank, wait, sizeof wait);
  return tr__fail(comm, awaits, TR_ERR_PEER, "%s has ended after %s; rank %d waits for it in %s", who, doing,
                  comm->rank, wait);
}

// A gap between two looks is time in which this rank itself did not run (the job was suspended): it counts for
// nobody.
static void forgive_gap(tr__ladder *l, int64_t last, int64_t now) {
  if (last && l->root_since && now - last > GAP_NS) l->root_since += now - last;
}

static tr_status look(tr__ladder *l, tr_comm *comm, int awaits, int64_t now) {
  TR_TRY(tr_comm_check(comm));
  atomic_store_explicit(&tr__page(comm)->looked, now, memory_order_relaxed);
  int root = -1, circle = 0, waiter = comm->rank;
  uint64_t beat = 0;
  if (awaits >= 0) {
    TR_TRY(check_ended(l, comm, awaits, now));
    root = tr__awaited_root(comm->job, awaits, &waiter, &circle);
    beat = atomic_load_explicit(&comm->job->page[root].beat, memory_order_relaxed);
  }
  if (!l->root_since || root != l->root || beat != l->root_beat) {
    l->root = root;
    l->root_beat = beat;
    l->root_since = now;
  }
  if ((double)(now - l->root_since) <= comm->job->options.deadline * 1e9) return TR_OK;
  return circle ? blame_circle(comm, awaits) : blame(l, comm, root, waiter, now);
}

// A switch between two ranks of a core takes about 1 us: as long is waited for what another core is about to bring.
static int spins(const tr_comm *comm, int awaits) {
  enum { OTHER_CORE = 40 };
  const int mates = comm->job->mates;
  return mates && awaits >= 0 && awaits / mates != comm->rank / mates ? OTHER_CORE : comm->spins;
}

tr_status tr__ladder_wait(tr__ladder *l, tr_comm *comm, int awaits) {
  if (comm->work != l->work) {
    l->work = comm->work;
    if (l->published >= 0) l->published = -1; // work has withdrawn what was shown
    l->round = 0;
    l->began = l->sleep = l->root_since = 0; // own work is not waiting
    l->ended_seen = -1;
  }
  if (++l->round <= spins(comm, awaits)) {
    pause_core();
    return TR_OK;
  }
  int64_t now = tr_clock_ns();
  publish(l, comm, awaits, now);
  if (!l->wait_began) l->wait_began = now;
  if (!l->began) l->began = now;
  if (now - l->checked >= LOOK_NS) {
    forgive_gap(l, l->checked, now);
    l->checked = now;
    TR_TRY(look(l, comm, awaits, now));
  }
  if (now - l->began < YIELD_NS) {
    sched_yield();
    return TR_OK;
  }
  l->sleep = l->sleep ? l->sleep * 2 : SLEEP_NS;
  int64_t most = comm->job->net ? SLEEP_NET_NS : SLEEP_MOST_NS;
  if (l->sleep > most) l->sleep = most;
  tr_clock_sleep_ns(l->sleep);
  return TR_OK;
}

void tr__ladder_end(tr__ladder *l, tr_comm *comm) {
  if (l->wait_began) comm->counters.wait_ns += tr_clock_ns() - l->wait_began;
  if (l->published == -2) return;
  tr__rank_page *page = tr__page(comm);
  atomic_store_explicit(&page->awaits, -1, memory_order_relaxed);
  atomic_store_explicit(&page->kind, TR__NONE, memory_order_relaxed);
}
