// SPDX-License-Identifier: MIT
// The rank object, and the life of one rank from its first to its last word in the control page.
//
// A rank faults in its own arena before anything else, so that no training step pays for page faults and
// memory lies near its owner. Where every rank has its own cores, speed is the aim and it then maps the
// others' arenas too; all ranks begin with their own at the same time, so those pages exist by then.
#include "algorithm.h"
#include "trireme/base/clock.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SPINS = 2000, POPULATE_BYTES = 64 << 20 };

static void beat(void *comm) { tr_comm_beat(comm); }

static tr_status fault_in(char *at, size_t nbyte, tr_comm *comm, tr_arena *arena) {
  int rank = comm->rank, failed = 0;
  for (size_t i = 0; i < nbyte && !failed; i += POPULATE_BYTES) {
    failed = madvise(at + i, nbyte - i < POPULATE_BYTES ? nbyte - i : POPULATE_BYTES, MADV_POPULATE_WRITE) != 0;
    tr_comm_beat(comm);
  }
  if (!failed) return TR_OK;
  if (errno == EINVAL) { // before Linux 5.14
    if (arena) tr_arena_prefault(arena, beat, comm);
    return TR_OK;
  }
  char size[32];
  tr_format_bytes(size, sizeof size, (double)nbyte);
  return tr_error(TR_ERR_MEMORY, "cannot get %s of shared memory for rank %d: %s; use fewer ranks or a smaller model",
                  size, rank, strerror(errno));
}

static size_t arena_pages(const tr__job *job, int rank) { return tr__round_to_pages(tr__arena_nbyte(job, rank)); }

// The arenas this rank will use: its own, then, where speed is the aim, all.
static tr_status fault_in_arenas(tr_comm *comm) {
  const tr__job *job = comm->job;
  TR_TRY(fault_in(comm->arena.base, arena_pages(job, comm->rank), comm, &comm->arena));
  if (!job->spin || job->options.nrank == 1 || job->options.mode != TR_LAUNCH_PROCESSES) return TR_OK;
  for (int r = 0; r < job->options.nrank; r++)
    if (job->hosts.of[r] == job->hosts.own)
      TR_TRY(fault_in(job->arenas + (size_t)r * job->arena_stride, arena_pages(job, r), comm, NULL));
  return TR_OK;
}

// Algorithms as the environment wants them, if a job like this can have them.
static tr_status create_choice(tr_comm *comm) {
  const tr__job *job = comm->job;
  tr_text said = {0};
  TR_TRY(tr__choice_create(job->options.any_order, &comm->choice));
  TR_TRY(tr__choice_check(comm->choice, job->options.nrank, job->hosts.count));
  tr__choice_say(comm->choice, &said);
  if (said.data && comm->rank == 0 && job->options.nrank > 1) tr_log_warn("%s", said.data);
  tr_text_free(&said);
  return TR_OK;
}

static void free_comm(tr_comm *comm) {
  free(comm->bounce);
  free(comm->choice);
  free(comm);
}

tr_status tr__comm_create(tr__job *job, int rank, tr_comm **out) {
  tr_comm *comm = calloc(1, sizeof *comm);
  if (!comm) return tr_error(TR_ERR_MEMORY, "no memory for the object of rank %d", rank);
  comm->job = job;
  comm->rank = rank;
  comm->engine = job->hosts.count > 1                                                ? &tr__engine_mpi
                 : job->options.mode == TR_LAUNCH_THREADS && job->options.nrank == 1 ? &tr__engine_self
                                                                                     : &tr__engine_shm;
  comm->spins = job->spin ? SPINS : 0;
  tr__peer_show(comm);
  char *arena = job->arenas + (size_t)rank * job->arena_stride;
  tr_arena_wrap(&comm->arena, "shared", arena, tr__arena_nbyte(job, rank));
  comm->bounce = aligned_alloc(TR__LINE, TR__BOUNCE); // pages that nobody touches do not exist
  tr_status status = comm->bounce ? fault_in_arenas(comm) : tr_error(TR_ERR_MEMORY, "no memory for rank %d", rank);
  if (status == TR_OK) status = create_choice(comm);
  if (status == TR_OK) status = tr__group_world(comm, &comm->world);
  if (status < 0) {
    free_comm(comm);
    return status;
  }
  tr__enter(comm);
  if (job->net) tr__net_serve(job->net, comm);
  tr__leave(comm);
  *out = comm;
  return TR_OK;
}

void tr__comm_destroy(tr_comm *comm) {
  if (!comm) return;
  tr__enter(comm);
  if (comm->job->net) tr__net_serve(comm->job->net, NULL);
  tr__leave(comm);
  tr__group_free(comm->world);
  free_comm(comm);
}

// A fault in settings or files is the same wherever it is found; whatever else fails is the fault of one rank.
static int depends_on_rank(tr_status status) {
  return status != TR_ERR_CONFIG && status != TR_ERR_PLAN && status != TR_ERR_DATA && status != TR_ERR_CKPT;
}

static void abort_with_text(tr__job *job, int rank, tr_status status) {
  char sentence[TR__SENTENCE];
  const char *text = *tr_status_text() ? tr_status_text() : tr_status_meaning(status);
  if (depends_on_rank(status))
    snprintf(sentence, sizeof sentence, "rank %d: %s", rank, text);
  else
    snprintf(sentence, sizeof sentence, "%s", text);
  tr__abort(job, rank, status, sentence);
}

tr_status tr__rank_run(tr__job *job, int rank, tr_rank_main rank_main, void *user) {
  tr__rank_page *page = &job->page[rank];
  char label[24];
  snprintf(label, sizeof label, "rank %d", rank);
  tr_log_set_label(label);
  tr_status_clear();
  atomic_store(&page->pid, (int32_t)getpid());
  atomic_store(&page->since, tr_clock_ns());
  atomic_store(&page->life, TR__RUNNING);
  tr_comm *comm = NULL;
  tr_status status = tr__comm_create(job, rank, &comm);
  if (status >= 0) status = rank_main(comm, user);
  if (status < 0) abort_with_text(job, rank, status);
  tr__comm_destroy(comm);
  page->status = status;
  atomic_fetch_add(&page->beat, 1); // the time that a process gets to go begins now
  atomic_store_explicit(&page->life, TR__ENDED, memory_order_release);
  tr_log_set_label("");
  return status;
}

int tr_comm_rank(const tr_comm *comm) { return comm->rank; }
int tr_comm_size(const tr_comm *comm) { return comm->job->options.nrank; }
const char *tr_comm_engine(const tr_comm *comm) { return comm->engine->name; }
int tr_comm_host(const tr_comm *comm, int rank) { return comm->job->hosts.of[rank]; }
int tr_comm_hosts(const tr_comm *comm) { return comm->job->hosts.count; }
tr_arena *tr_comm_arena(tr_comm *comm) { return &comm->arena; }
int tr_comm_spin(const tr_comm *comm) { return comm->job->spin; }
tr_group *tr_comm_world(tr_comm *comm) { return comm->world; }
tr_comm_counters tr_comm_count(const tr_comm *comm) { return comm->counters; }

size_t tr_comm_memory(const tr_comm *comm) { return tr__job_taken(comm->job, comm->rank); }

// Two threads of a rank may count at the same time; that one of them is lost does not matter.
void tr_comm_beat(tr_comm *comm) {
  _Atomic uint64_t *beat = &tr__page(comm)->beat;
  atomic_store_explicit(beat, atomic_load_explicit(beat, memory_order_relaxed) + 1, memory_order_relaxed);
}

void tr_comm_activity(tr_comm *comm, const char *what, int64_t step, int64_t microbatch) {
  tr__rank_page *page = tr__page(comm);
  tr__name_store(page->what, what);
  atomic_store_explicit(&page->step, step, memory_order_relaxed);
  atomic_store_explicit(&page->microbatch, microbatch, memory_order_relaxed);
  atomic_store_explicit(&page->since, tr_clock_ns(), memory_order_relaxed);
  tr_comm_beat(comm);
}

void tr_comm_set_hook(tr_comm *comm, tr_comm_hook hook, void *user) {
  comm->hook = hook;
  comm->hook_user = user;
}

void tr__comm_set_first_sequence(tr_comm *comm, uint32_t sequence) { comm->first_sequence = sequence; }
