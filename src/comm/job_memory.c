// SPDX-License-Identifier: MIT
// The job's shared memory: mapped by the launcher before any rank exists, so every rank has it at the same address.
//
// Processes: one memory file for each rank's arena and one for the control range; the files are closed as
// soon as they are mapped, so the memory goes when the last process goes, however it goes. Threads: plain
// anonymous memory. The ranges are sized for the largest use; pages that nobody touches do not exist.
#include "comm_internal.h"
#include "trireme/base/cpu.h"
#include "trireme/base/file.h"
#include "trireme/base/memory.h"
#include "trireme/base/text.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static tr_status refuse(const char *what, size_t nbyte) {
  char size[32];
  tr_format_bytes(size, sizeof size, (double)nbyte);
  return tr_error(TR_ERR_MEMORY, "cannot map %s of %s: %s%s", size, what, strerror(errno), tr_errno_advice(errno));
}

// Map a new memory file of nbyte over the reserved range at `where`.
static tr_status map_file(const char *name, char *where, size_t nbyte) {
  int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd < 0) return refuse(name, nbyte);
  void *got = MAP_FAILED;
  if (ftruncate(fd, (off_t)nbyte) == 0)
    got = mmap(where, nbyte, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  tr_status status = got == MAP_FAILED ? refuse(name, nbyte) : TR_OK;
  close(fd);
  return status;
}

static char *reserve(size_t nbyte, int protection) {
  return mmap(NULL, nbyte, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

// What can be had now: memory that others use counts as gone, as far as the system tells.
static size_t available_memory(void) {
  char line[128];
  size_t have = tr_cpu_memory(), kib;
  FILE *file = fopen("/proc/meminfo", "re");
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "MemAvailable: %zu kB", &kib) == 1 && kib < have / 1024) have = kib * 1024;
  if (file) fclose(file);
  return have;
}

size_t tr__arena_nbyte(const tr__job *job, int rank) {
  const tr_launch_options *o = &job->options;
  return o->arena_of ? o->arena_of[rank] : o->arena_nbyte + (job->hosts.local[rank] == 0 ? o->once_nbyte : 0);
}

static size_t largest_arena(const tr__job *job) {
  size_t most = 0;
  for (int r = 0; r < job->options.nrank; r++)
    if (tr__arena_nbyte(job, r) > most) most = tr__arena_nbyte(job, r);
  return most;
}

static tr_status check_memory(const tr__job *job) {
  const tr_launch_options *o = &job->options;
  size_t have = available_memory();
  double need = 0;
  for (int r = 0; r < o->nrank; r++)
    if (job->hosts.of[r] == job->hosts.own) need += (double)tr__arena_nbyte(job, r);
  if (need <= (double)have) return TR_OK;
  char each[32], all[32], there[32];
  tr_format_bytes(each, sizeof each, need / job->hosts.nlocal);
  tr_format_bytes(all, sizeof all, need);
  tr_format_bytes(there, sizeof there, (double)have);
  return tr_error(TR_ERR_MEMORY,
                  "%d ranks with %s of shared memory each need %s, but %s are available: use fewer "
                  "ranks or a smaller model",
                  job->hosts.nlocal, each, all, there);
}

static tr_status map_arenas(tr__job *job) {
  const tr_launch_options *o = &job->options;
  int threads = o->mode == TR_LAUNCH_THREADS;
  size_t nbyte = job->arena_stride * (size_t)o->nrank;
  job->arenas = reserve(nbyte, threads ? PROT_READ | PROT_WRITE : PROT_NONE);
  if (job->arenas == MAP_FAILED) {
    job->arenas = NULL;
    return refuse("arenas", nbyte);
  }
  for (int r = 0; !threads && r < o->nrank; r++) {
    char name[32];
    snprintf(name, sizeof name, "trireme-rank-%d", r);
    TR_TRY(map_file(name, job->arenas + (size_t)r * job->arena_stride, job->arena_stride));
  }
  return TR_OK;
}

size_t tr_launch_bytes(int nrank, int local, int ngroup) {
  size_t n = (size_t)nrank;
  size_t rings =
      local > 1 ? (size_t)(ngroup * local) * sizeof(tr__ring) : 0; // a rank alone does not post what it does
  return tr__round_to_pages(sizeof(tr__control)) + tr__round_to_pages(n * sizeof(tr__rank_page)) +
         tr__round_to_pages(n * TR__SLOTS * sizeof(tr__mail)) + tr__round_to_pages(rings);
}

// Cut `nbyte` from the control range; `base` NULL only counts.
static void *cut(char *base, size_t *used, size_t nbyte) {
  void *at = base ? base + *used : NULL;
  *used += tr__round_to_pages(nbyte);
  return at;
}

static size_t lay_out(tr__job *job, char *base) {
  size_t n = (size_t)job->options.nrank, used = 0;
  job->control = cut(base, &used, sizeof *job->control);
  job->page = cut(base, &used, n * sizeof *job->page);
  job->view = cut(base, &used, n * sizeof *job->view);
  job->mail = cut(base, &used, n * TR__SLOTS * sizeof *job->mail);
  job->ring = cut(base, &used, n * TR__SLOTS * sizeof *job->ring);
  job->channel = cut(base, &used, n * n * TR__SLOTS * sizeof *job->channel);
  job->stage = cut(base, &used, n * TR__SLOTS * sizeof *job->stage);
  job->courier = cut(base, &used, n * sizeof *job->courier);
  return used;
}

void tr__job_lay_out(tr__job *job) { lay_out(job, job->shared); }

static tr_status map_control(tr__job *job) {
  size_t nbyte = job->shared_nbyte;
  int threads = job->options.mode == TR_LAUNCH_THREADS;
  job->shared = reserve(nbyte, threads ? PROT_READ | PROT_WRITE : PROT_NONE);
  if (job->shared == MAP_FAILED) {
    job->shared = NULL;
    return refuse("control memory", nbyte);
  }
  if (!threads) TR_TRY(map_file("trireme-control", job->shared, nbyte));
  tr__job_lay_out(job);
  return TR_OK;
}

void tr__job_init_control(tr__job *job) {
  atomic_store(&job->control->epoch, 1u); // the world group's
  for (int r = 0; r < job->options.nrank; r++) {
    atomic_store(&job->page[r].awaits, -1);
    atomic_store(&job->page[r].step, -1);
    atomic_store(&job->page[r].microbatch, -1);
    atomic_store(&job->page[r].slots, 1u); // slot 0 is the world group
  }
}

size_t tr__round_to_pages(size_t n) {
  long page = sysconf(_SC_PAGESIZE);
  size_t to = page > 0 ? (size_t)page : 4096;
  return (n + to - 1) / to * to;
}

// Ranks that others have started may have been bound by them, each to cores of its own.
static int bound_by_others(const tr__job *job) {
  return job->hosts.joined && tr_cpu_count() < sysconf(_SC_NPROCESSORS_ONLN);
}

// What bind.c makes of ranks that are more than the processors, where each computes with one thread.
static int mates_on_a_core(const tr__job *job) {
  const int ranks = job->hosts.nlocal, processors = tr_cpu_count();
  if (!job->options.bind || job->options.nthread != 1 || job->hosts.count > 1 || job->hosts.joined) return 0;
  return ranks > processors && ranks % processors == 0 ? ranks / processors : 0;
}

tr_status tr__job_prepare(tr__job *job) {
  const tr_launch_options *o = &job->options;
  job->spin = (bound_by_others(job) ? 1L : (long)job->hosts.nlocal) * o->nthread <= tr_cpu_count();
  job->mates = mates_on_a_core(job);
  job->arena_stride = tr__round_to_pages(largest_arena(job) + 1);
  job->shared_nbyte = lay_out(job, NULL);
  return check_memory(job);
}

tr_status tr__job_create(const tr_launch_options *options, tr__job *job) {
  memset(job, 0, sizeof *job);
  job->options = *options;
  job->hosts = (tr__hosts){.count = 1, .nlocal = options->nrank};
  for (int r = 0; r < options->nrank; r++) job->hosts.local[r] = (int16_t)r;
  TR_TRY(tr__job_prepare(job));
  tr_status status = map_arenas(job);
  if (status == TR_OK) status = map_control(job);
  if (status < 0) {
    tr__job_destroy(job);
    return status;
  }
  tr__job_init_control(job);
  return TR_OK;
}

void tr__job_destroy(tr__job *job) {
  if (job->arenas) munmap(job->arenas, job->arena_stride * (size_t)job->options.nrank);
  if (job->shared) munmap(job->shared, job->shared_nbyte);
  job->arenas = job->shared = NULL;
}

// Group slots are given out lowest first, so only the front of each table is in use.
static size_t control_taken(const tr__job *job) {
  size_t n = (size_t)job->options.nrank, slots = 0;
  uint64_t used = 0;
  for (size_t r = 0; r < n; r++) used |= atomic_load(&job->page[r].slots);
  while (slots < TR__SLOTS && used >> slots) slots++;
  return tr_memory_shared(job->control, (size_t)((char *)job->ring - (char *)job->control)) +
         tr_memory_shared(job->ring, slots * n * sizeof *job->ring) +
         tr_memory_shared(job->channel, slots * n * n * sizeof *job->channel) +
         tr_memory_shared(job->stage, slots * n * sizeof *job->stage) +
         tr_memory_shared(job->courier, n * sizeof *job->courier);
}

size_t tr__job_taken(const tr__job *job, int rank) {
  if (job->options.mode == TR_LAUNCH_THREADS) return 0;
  size_t arena = tr_memory_shared(job->arenas + (size_t)rank * job->arena_stride, job->arena_stride);
  return arena + (job->hosts.local[rank] == 0 ? control_taken(job) : 0);
}

uint64_t tr__job_place(const tr__job *job, const void *data, size_t nbyte) {
  uintptr_t at = (uintptr_t)data, base = (uintptr_t)job->arenas;
  size_t total = job->arena_stride * (size_t)job->options.nrank;
  if (at < base || at - base >= total || nbyte > job->arena_stride) return TR__OWN | at;
  uint64_t offset = at - base;
  return offset % job->arena_stride + nbyte <= job->arena_stride ? offset : TR__OWN | at;
}
