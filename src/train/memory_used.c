// SPDX-License-Identifier: MIT
// What the job really takes of memory, beside what was predicted: on every rank the private memory that has come since its
// start, the pages of its arena and its part of a trace, added up over the ranks of a host. Each rank counts the most that it
// ever had; other hosts than rank 0's are not said, since each has memory of its own.
//
// Not counted: what the launcher had before (the model's description, tables of the data), page tables, and pages of files,
// which the system takes back when it needs them. Ranks that are threads share one process: rank 0 counts it.
#include "train/timing_internal.h"
#include "trireme/base/memory.h"
#include <string.h>

static int counts_private(const tr__trainer *t) {
  return t->plan->config->run.launch == TR_LAUNCH_PROCESSES || t->rank == 0;
}

void tr__memory_begin(tr__trainer *t) { t->memory_before = tr_memory_private(); }

static size_t now(const tr__trainer *t) {
  size_t own = counts_private(t) ? tr_memory_private() : 0,
         nbyte = own > t->memory_before ? own - t->memory_before : 0;
  if (t->trace) nbyte += tr_memory_shared(tr__trace_ring(t->trace, t->rank), t->trace->share);
  return nbyte + tr_comm_memory(t->comm);
}

tr_status tr__memory_count(tr__trainer *t) {
  uint64_t all[TR__TRAIN_RANKS] = {0};
  size_t own = now(t);
  int n = tr_comm_size(t->comm);
  if (own > t->memory_own) t->memory_own = own;
  all[t->rank] = t->memory_own;
  if (n > 1) TR_TRY(tr_group_allgather(tr_comm_world(t->comm), &all[t->rank], all, sizeof *all, TR_U8, NULL));
  t->memory_used = 0;
  t->memory_ranks = 0;
  for (int r = 0; r < n; r++) {
    if (tr_comm_host(t->comm, r) != tr_comm_host(t->comm, 0)) continue;
    t->memory_used += all[r];
    t->memory_ranks++;
  }
  return TR_OK;
}

tr_status tr__memory_end(tr__trainer *t) {
  char used[32], predicted[32];
  TR_TRY(tr__memory_count(t));
  if (t->rank != 0) return TR_OK;
  tr_format_bytes(used, sizeof used, (double)t->memory_used);
  tr_format_bytes(predicted, sizeof predicted, (double)tr__plan_total(t->plan, t->memory_ranks));
  printf("memory  %s used by %d rank%s%s, %s predicted\n", used, t->memory_ranks, t->memory_ranks == 1 ? "" : "s",
         tr_comm_hosts(t->comm) > 1 ? " of this host" : "", predicted);
  return TR_OK;
}
