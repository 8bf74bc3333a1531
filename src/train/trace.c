// SPDX-License-Identifier: MIT
// The memory of a trace: one ring of events per rank, in a mapping that the launcher makes before the ranks exist and
// reads after their end. So a trace is whole however the job ended: a rank that was killed leaves its events up to that
// moment, and no rank has to write anything. Pointers into the mapping hold in all of them, as ranks are forked or threads.
// Ranks that others have started have a mapping each, and rank 0 gets their events at the end (trace_gather.c).
#include "train/timing_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EVENTS = 65536, STEPS = 3, PATH_BYTES = 3800 };

static uint64_t events_of(const tr_program *program) {
  uint64_t step = program->nop + TR__SLICES_OF_LOOP + 4;
  for (uint32_t i = 0; i < program->nop; i++) step += program->op[i].piece_end - program->op[i].piece_begin;
  return step;
}

// At least some whole steps, however long their program is, of whichever rank has the longest.
static uint64_t capacity_of(const tr_train_plan *plan) {
  uint64_t most = EVENTS;
  for (int r = 0; r < plan->mesh.degree[TR_AXIS_PP]; r++)
    if (STEPS * events_of(&plan->part[r].program) > most) most = STEPS * events_of(&plan->part[r].program);
  return most;
}

static size_t under_way_bytes(const tr_train_plan *plan) {
  uint32_t nop = 0;
  for (int r = 0; r < plan->mesh.degree[TR_AXIS_PP]; r++)
    if (plan->part[r].program.nop > nop) nop = plan->part[r].program.nop;
  return tr_arena_rounded((nop + 1) * sizeof(tr__under_way));
}

size_t tr__trace_bytes(const tr_train_plan *plan) {
  if (!*plan->config->run.trace) return 0;
  size_t nbyte = tr_arena_rounded(sizeof(tr__ring)) + under_way_bytes(plan) + capacity_of(plan) * sizeof(tr__event);
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (nbyte + page - 1) / page * page;
}

tr__ring *tr__trace_ring(const struct tr__trace *trace, int rank) {
  return (tr__ring *)(void *)(trace->memory + (size_t)rank * trace->share);
}

static void lay_out(struct tr__trace *trace, int rank) {
  tr__ring *ring = tr__trace_ring(trace, rank);
  char *at = (char *)ring + tr_arena_rounded(sizeof *ring);
  ring->under_way = (tr__under_way *)(void *)at;
  ring->event = (tr__event *)(void *)(at + under_way_bytes(trace->plan));
  ring->capacity = capacity_of(trace->plan);
}

// The folder that `path` lies in.
static void folder_of(const char *path, char *out, size_t nbyte) {
  const char *slash = strrchr(path, '/');
  snprintf(out, nbyte, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1, slash ? path : ".");
}

void tr__trace_temporary(const char *path, char *out, size_t nbyte) {
  snprintf(out, nbyte, "%s.tmp.%d", path, (int)getpid());
}

// What cannot be written at the end is better known now.
static tr_status prove_path(const char *path) {
  char folder[PATH_BYTES + 1], temporary[PATH_BYTES + 32];
  folder_of(path, folder, sizeof folder);
  TR_TRY(tr_file_make_folders(folder));
  tr__trace_temporary(path, temporary, sizeof temporary);
  int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return tr_error(TR_ERR_IO, "run.trace: %s cannot be made: %s", path, strerror(errno));
  close(fd);
  unlink(temporary);
  return TR_OK;
}

tr_status tr__trace_create(const tr_train_plan *plan, struct tr__trace **out) {
  size_t share = tr__trace_bytes(plan), nrank = (size_t)plan->config->run.ranks;
  if (!share) return TR_OK;
  if (plan->place.rank == 0) TR_TRY(prove_path(plan->config->run.trace));
  struct tr__trace *trace = calloc(1, sizeof *trace);
  void *memory =
      trace ? mmap(NULL, share * nrank, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
  if (memory == MAP_FAILED) {
    free(trace);
    return tr_error(TR_ERR_MEMORY, "no memory for a trace of %zu ranks, %zu bytes each; run.trace= leaves it out",
                    nrank, share);
  }
  *trace = (struct tr__trace){
      .plan = plan, .memory = memory, .share = share, .begin = tr_clock_ns(), .whole = plan->place.size == 0};
  tr_clock_utc(trace->begin_utc, sizeof trace->begin_utc);
  for (size_t r = 0; r < nrank; r++) lay_out(trace, (int)r);
  *out = trace;
  return TR_OK;
}

void tr__trace_destroy(struct tr__trace *trace) {
  if (!trace) return;
  munmap(trace->memory, trace->share * (size_t)trace->plan->config->run.ranks);
  free(trace);
}

void tr__ring_put(tr__ring *ring, const tr__event *event) {
  if (!ring->capacity) return;
  uint64_t count = atomic_load_explicit(&ring->count, memory_order_relaxed);
  ring->event[count % ring->capacity] = *event;
  atomic_store_explicit(&ring->count, count + 1, memory_order_release);
}

// ---- the path, before anything is started

// `path` without links and dots, as far as it exists.
static void resolve(const char *path, char *out, size_t nbyte) {
  char part[PATH_BYTES + 1], above[PATH_BYTES + 1], *real = NULL;
  snprintf(part, sizeof part, "%s", path);
  while (!(real = realpath(part, NULL)) && strcmp(part, ".") != 0 && strcmp(part, "/") != 0) {
    folder_of(part, above, sizeof above);
    memcpy(part, above, strlen(above) + 1);
  }
  const char *rest = strcmp(part, ".") == 0 && strncmp(path, "./", 2) != 0 ? path : path + strlen(part);
  while (*rest == '/') rest++;
  snprintf(out, nbyte, "%s%s%s", real ? real : part, *rest ? "/" : "", rest);
  for (size_t n = strlen(out); n > 1 && out[n - 1] == '/'; n--) out[n - 1] = '\0';
  free(real);
}

// The name below train.folder under which the run itself writes what `path` would be; NULL: none.
static const char *name_of_run(const tr_train_config *config, const char *path) {
  static const char *const names[] = {"config.yaml", "metrics.jsonl", "contract.json", "loss.svg",
                                      "checkpoints", "logs",          "events",        "data"};
  char folder[2 * PATH_BYTES], file[2 * PATH_BYTES];
  resolve(config->train.folder, folder, sizeof folder);
  resolve(path, file, sizeof file);
  const size_t n = strlen(folder);
  if (strncmp(file, folder, n) != 0 || file[n] != '/') return NULL;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const size_t k = strlen(names[i]);
    if (strncmp(file + n + 1, names[i], k) == 0 && strchr("/", file[n + 1 + k])) return names[i];
  }
  return NULL;
}

// A file that is there is replaced only if it is empty or an earlier trace.
static int is_other_file(const char *path) {
  char begin[sizeof tr__trace_begins] = "";
  FILE *file = fopen(path, "re");
  if (!file) return errno != ENOENT;
  const size_t n = fread(begin, 1, sizeof begin - 1, file);
  fclose(file);
  return n > 0 && strcmp(begin, tr__trace_begins) != 0;
}

static tr_status check_not_needed(const tr_train_config *config, const tr_options *options) {
  const char *path = config->run.trace, *name = name_of_run(config, path);
  if (name)
    return tr_options_error(options, "run.trace", "'%s' is where the run keeps its %s; another name, like trace.json",
                            path, name);
  if (is_other_file(path))
    return tr_options_error(options, "run.trace",
                            "'%s' is there and is no trace, so it is not replaced; remove it or give another name",
                            path);
  return TR_OK;
}

tr_status tr__trace_check(const tr_train_config *config, const tr_options *options) {
  const char *path = config->run.trace;
  char folder[PATH_BYTES + 1];
  struct stat about;
  size_t n = strlen(path);
  if (n == 0) return TR_OK;
  if (n > PATH_BYTES)
    return tr_options_error(options, "run.trace", "%zu bytes are too long for a path; at most %d", n, PATH_BYTES);
  if (path[n - 1] == '/' || (stat(path, &about) == 0 && !S_ISREG(about.st_mode)))
    return tr_options_error(options, "run.trace", "'%s' is not a file; give the name of one, like trace.json", path);
  for (folder_of(path, folder, sizeof folder); stat(folder, &about) != 0;) {
    if (errno != ENOENT && errno != ENOTDIR)
      return tr_options_error(options, "run.trace", "'%s': %s", path, strerror(errno));
    char above[PATH_BYTES + 1];
    folder_of(folder, above, sizeof above);
    memcpy(folder, above, strlen(above) + 1);
  }
  if (!S_ISDIR(about.st_mode))
    return tr_options_error(options, "run.trace", "'%s' cannot be made: '%s' is not a folder", path, folder);
  if (access(folder, W_OK | X_OK) != 0)
    return tr_options_error(options, "run.trace", "'%s' cannot be made in '%s': %s", path, folder, strerror(errno));
  return check_not_needed(config, options);
}
