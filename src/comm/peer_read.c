// SPDX-License-Identifier: MIT
// Reading what lies in another rank's own memory: by its address where ranks are threads, by process_vm_readv where they are
// processes, which copies once and without the owner's help.
//
// The system may forbid that (ptrace_scope, a container's filter), and a process number may mean another process here than
// there. So each rank shows where in its memory it keeps a number, and which; whoever reads that number there may read, and
// knows that it is the right process. A rank is tried when it is first asked about and there; what came out holds for good.
#include "shm_internal.h"
#include "trireme/base/clock.h"
#include <errno.h>
#include <sys/uio.h>

enum { UNKNOWN, CAN, CANNOT };

static int same_process(const tr_comm *comm) { return comm->job->options.mode == TR_LAUNCH_THREADS; }

void tr__peer_show(tr_comm *comm) {
  tr__rank_page *page = tr__page(comm);
  comm->shown = (uint64_t)tr_clock_ns() << 8 | (uint64_t)comm->rank | 1u << 8;
  atomic_store_explicit(&page->shown_at, (uint64_t)(uintptr_t)&comm->shown, memory_order_relaxed);
  atomic_store_explicit(&page->shown, comm->shown, memory_order_release);
}

static ssize_t read_memory(int pid, void *to, uint64_t at, size_t n) {
  struct iovec here = {to, n}, there = {(void *)(uintptr_t)at, n};
  return process_vm_readv((pid_t)pid, &here, 1, &there, 1, 0);
}

static int try(const tr_comm *comm, int rank) {
  const tr__rank_page *page = &comm->job->page[rank];
  uint64_t wanted = atomic_load_explicit(&page->shown, memory_order_acquire), got = 0;
  if (!wanted) return UNKNOWN; // it has not come so far
  ssize_t n = read_memory(atomic_load(&page->pid), &got, atomic_load(&page->shown_at), sizeof got);
  return n == (ssize_t)sizeof got && got == wanted ? CAN : CANNOT;
}

int tr__peer_readable(tr_comm *comm, int rank) {
  if (!comm->job->options.read_peers) return 0;
  if (rank == comm->rank || same_process(comm)) return 1;
  if (comm->peer[rank] == UNKNOWN) comm->peer[rank] = (uint8_t)try(comm, rank);
  return comm->peer[rank] == CAN;
}

int tr__group_readable(tr_group *g) {
  while (g->readable < g->size && tr__peer_readable(g->comm, g->ranks[g->readable])) g->readable++;
  return g->readable == g->size;
}

// A rank that has gone is somebody else's to tell of.
tr_status tr__peer_read(tr_comm *comm, int rank, char *to, uint64_t at, size_t n) {
  if (same_process(comm)) {
    tr__shm_copy(to, (const char *)(uintptr_t)at, n);
    return TR_OK;
  }
  while (n > 0) {
    ssize_t got = read_memory(atomic_load_explicit(&comm->job->page[rank].pid, memory_order_relaxed), to, at, n);
    if (got < 0 && errno == ESRCH) return TR_PENDING;
    if (got <= 0)
      return tr__fail(comm, rank, TR_ERR_USAGE, "rank %d cannot read %zu bytes of rank %d's buffer: %s", comm->rank,
                      n, rank, got < 0 ? strerror(errno) : "they are not there");
    to += got, at += (uint64_t)got, n -= (size_t)got;
  }
  return TR_OK;
}
