// SPDX-License-Identifier: MIT
// Saving and loading checkpoints against the disk: bytes per second, and their share of what a plain loop of direct 4 MiB
// transfers reaches in the same run (the twin of `dd bs=4M oflag=direct`, which does not wait for the disk's own
// cache, as a save does). Also how fast a folder of three files is opened, and what is left of the speed of threads
// that compute, one per core, while a save runs beside them.
//
//   bench_ckpt [FOLDER [BYTES [ROUNDS]]]      default: the current folder, 1e9, 3
#include "trireme/base/clock.h"
#include "trireme/base/cpu.h"
#include "trireme/base/file.h"
#include "trireme/base/sort.h"
#include "trireme/base/text.h"
#include "trireme/ckpt/saver.h"
#include "trireme/ckpt/tensors.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4 << 20, SHARDS = 3, TENSORS = 48, MOST_THREADS = 64, PATH = 512 };

typedef struct bench {
  char folder[PATH], twin[PATH + 64], checkpoint[PATH + 64];
  size_t nbyte; // of all tensors
  float *weights, *back;
  tr_safetensors_item item[SHARDS * TENSORS];
  char name[SHARDS * TENSORS][32], file_name[SHARDS][64];
  tr_ckpt_file file[SHARDS + 1];
  const char *text[SHARDS + 1];
} bench;

static _Noreturn void stop(const char *what) {
  fprintf(stderr, "bench_ckpt: %s: %s\n", what, *tr_status_text() ? tr_status_text() : strerror(errno));
  exit(1);
}

// ---- the disk

static double twin_write(const bench *b) {
  void *block;
  if (posix_memalign(&block, 4096, BLOCK) != 0) stop("memory");
  memcpy(block, b->weights, BLOCK);
  unlink(b->twin);
  int fd = open(b->twin, O_WRONLY | O_CREAT | O_DIRECT, 0666);
  if (fd < 0) stop(b->twin);
  double begin = tr_clock_seconds();
  for (size_t done = 0; done < b->nbyte; done += BLOCK)
    if (write(fd, block, BLOCK) != BLOCK) stop(b->twin);
  double seconds = tr_clock_seconds() - begin;
  if (fsync(fd) != 0 || close(fd) != 0) stop(b->twin);
  free(block);
  return seconds;
}

static double twin_read(const bench *b) {
  void *block;
  if (posix_memalign(&block, 4096, BLOCK) != 0) stop("memory");
  int fd = open(b->twin, O_RDONLY | O_DIRECT);
  if (fd < 0) stop(b->twin);
  double begin = tr_clock_seconds();
  while (read(fd, block, BLOCK) > 0) continue;
  double seconds = tr_clock_seconds() - begin;
  close(fd);
  free(block);
  return seconds;
}

static void forget(const char *path) {
  int fd = open(path, O_RDONLY);
  if (fd < 0 || fdatasync(fd) != 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) stop(path);
  close(fd);
}

// ---- checkpoints

static void *touched(size_t nbyte) {
  void *memory = mmap(NULL, nbyte, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) stop("memory");
  madvise(memory, nbyte, MADV_HUGEPAGE);
  memset(memory, 1, nbyte);
  return memory;
}

static void prepare(bench *b) {
  size_t each = b->nbyte / (SHARDS * TENSORS) / sizeof(float);
  b->nbyte = each * SHARDS * TENSORS * sizeof(float);
  b->weights = touched(b->nbyte);
  b->back = touched(b->nbyte);
  uint64_t seed = 1;
  for (size_t i = 0; i < b->nbyte / sizeof(float); i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    b->weights[i] = (float)(seed >> 40);
  }
  size_t file_of[SHARDS * TENSORS];
  for (size_t i = 0; i < SHARDS * TENSORS; i++) {
    snprintf(b->name[i], sizeof b->name[i], "layer.%zu.weight", i);
    b->item[i] = (tr_safetensors_item){b->name[i], TR_F32, TR_F32, {1, {(int64_t)each}}, b->weights + i * each, 0};
    file_of[i] = i / TENSORS;
  }
  for (size_t f = 0; f < SHARDS; f++) {
    tr_tensors_file_name("model", f, SHARDS, b->file_name[f], sizeof b->file_name[f]);
    b->file[f] = (tr_ckpt_file){b->file_name[f], b->item + f * TENSORS, TENSORS, NULL};
  }
  char *index;
  if (tr_tensors_index_text("model", b->item, SHARDS * TENSORS, file_of, SHARDS, &index) < 0) stop("index");
  b->file[SHARDS] = (tr_ckpt_file){"model.safetensors.index.json", NULL, 0, NULL};
  b->text[SHARDS] = index;
}

static tr_saver *saver_of(const bench *b, int background) {
  tr_saver_options options = {.folder = b->folder,
                              .keep = 1,
                              .file = b->file,
                              .nfile = SHARDS + 1,
                              .nwriter = 1,
                              .job = (int64_t)getpid(),
                              .background = background,
                              .deadline = 60};
  tr_saver *saver;
  if (tr_saver_create(&options, &saver) < 0) stop("saver");
  return saver;
}

static double processor_seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

// *busy: seconds of processor time that the save takes once training goes on.
static tr_saved save(const bench *b, tr_saver *saver, double *busy) {
  tr_saved saved;
  if (tr_saver_start(saver, 1, b->text) < 0) stop("save");
  double begin = processor_seconds();
  if (tr_saver_wait(saver, &saved) < 0) stop("save");
  *busy = processor_seconds() - begin;
  return saved;
}

static double load(const bench *b, double *opening) {
  char path[PATH * 2];
  for (int f = 0; f < SHARDS; f++) {
    snprintf(path, sizeof path, "%s/%s", b->checkpoint, b->file_name[f]);
    forget(path);
  }
  tr_tensors *tensors;
  double begin = tr_clock_seconds();
  if (tr_tensors_open(b->checkpoint, "model", &tensors) < 0) stop("open");
  *opening = tr_clock_seconds() - begin;
  char *at = (char *)b->back;
  for (size_t i = 0; i < tr_tensors_count(tensors); i++) {
    const tr_safetensors_entry *entry = tr_tensors_at(tensors, i);
    if (tr_safetensors_read(entry, 0, TR_F32, at) < 0) stop("read");
    at += entry->nbyte;
  }
  double seconds = tr_clock_seconds() - begin;
  tr_tensors_close(tensors);
  if (memcmp(b->weights, b->back, b->nbyte) != 0) stop("what was read is not what was written");
  return seconds;
}

// ---- computing beside a save

typedef struct worker {
  _Alignas(64) atomic_uint_fast64_t count;
  pthread_t thread;
  atomic_int *quit;
} worker;

static void *compute(void *user) {
  worker *w = user;
  double x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  while (!atomic_load_explicit(w->quit, memory_order_relaxed)) {
    for (int i = 0; i < 20000; i++)
      for (int k = 0; k < 8; k++) x[k] = x[k] * 0.999 + 1e-3;
    atomic_fetch_add_explicit(&w->count, 1 + (x[0] > 1e9), memory_order_relaxed);
  }
  return NULL;
}

static uint64_t counted(worker *w, int n) {
  uint64_t sum = 0;
  for (int i = 0; i < n; i++) sum += atomic_load(&w[i].count);
  return sum;
}

// Until the save is done, or for a while when there is none.
static double rounds_per_second(worker *w, int n, tr_saver *saver, tr_saved *saved) {
  double begin = tr_clock_seconds();
  uint64_t first = counted(w, n);
  if (!saver)
    tr_clock_sleep_ns(700000000);
  else if (tr_saver_wait(saver, saved) < 0)
    stop("save");
  return (double)(counted(w, n) - first) / (tr_clock_seconds() - begin);
}

// Rounds per second of all workers while a save runs, over rounds per second just before and after it.
static double speed_beside_a_save(const bench *b, tr_saver *saver, tr_saved *saved) {
  static worker w[MOST_THREADS];
  atomic_int quit = 0;
  int n = tr_cpu_count() < MOST_THREADS ? tr_cpu_count() : MOST_THREADS;
  for (int i = 0; i < n; i++) {
    w[i].quit = &quit;
    atomic_store(&w[i].count, 0);
    if (pthread_create(&w[i].thread, NULL, compute, &w[i]) != 0) stop("thread");
  }
  double before = rounds_per_second(w, n, NULL, NULL);
  if (tr_saver_start(saver, 1, b->text) < 0) stop("save"); // its copy is a stall, and reported as one
  double during = rounds_per_second(w, n, saver, saved), after = rounds_per_second(w, n, NULL, NULL);
  atomic_store(&quit, 1);
  for (int i = 0; i < n; i++) pthread_join(w[i].thread, NULL);
  return during / ((before + after) / 2);
}

static double median(double *x, int n) {
  tr_sort_doubles(x, (size_t)n);
  return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

enum { WRITE, READ, SAVE, BACKGROUND, STALL, BUSY, LOAD, OPEN, SPEED, COLUMNS, MOST_ROUNDS = 32 };

static void report(const char *what, double gbps, const char *twin, double share) {
  printf("%-34s %7.3f GB/s   %5.2f of %s\n", what, gbps, share, twin);
}

int main(int argc, char **argv) {
  static bench b;
  static double t[COLUMNS][MOST_ROUNDS];
  int64_t nbyte = 1000000000, rounds = 3;
  if ((argc > 2 && tr_parse_count(argv[2], &nbyte) < 0) || (argc > 3 && tr_parse_count(argv[3], &rounds) < 0) ||
      nbyte < 2 * BLOCK || rounds < 1 || rounds > MOST_ROUNDS) {
    fprintf(stderr, "usage: bench_ckpt [FOLDER [BYTES [ROUNDS]]], at least %d bytes, at most %d rounds\n", 2 * BLOCK,
            MOST_ROUNDS);
    return 2;
  }
  snprintf(b.folder, sizeof b.folder, "%s/bench-ckpt-%d", argc > 1 ? argv[1] : ".", (int)getpid());
  snprintf(b.twin, sizeof b.twin, "%s/twin", b.folder);
  snprintf(b.checkpoint, sizeof b.checkpoint, "%s/step-00000001", b.folder);
  if (tr_file_make_folders(b.folder) < 0) stop("folder");
  b.nbyte = (size_t)nbyte;
  prepare(&b);
  tr_saver *plain = saver_of(&b, 0), *background = saver_of(&b, 1);
  int n = (int)rounds;
  for (int i = 0; i < n; i++) {
    tr_saved saved;
    t[WRITE][i] = twin_write(&b);
    t[SAVE][i] = save(&b, plain, &t[BUSY][i]).write;
    saved = save(&b, background, &t[BUSY][i]);
    t[BACKGROUND][i] = saved.write;
    t[STALL][i] = saved.stall;
    t[READ][i] = twin_read(&b);
    t[LOAD][i] = load(&b, &t[OPEN][i]);
    t[SPEED][i] = speed_beside_a_save(&b, background, &saved);
  }
  double m[COLUMNS], g = (double)b.nbyte * 1e-9;
  for (int c = 0; c < COLUMNS; c++) m[c] = median(t[c], n);
  printf("%.2f GB in %d files, median of %d rounds, %d cores\n", g, SHARDS, n, tr_cpu_count());
  report("write, direct 4 MiB", g / m[WRITE], "itself", 1);
  report("save", g / m[SAVE], "write", m[WRITE] / m[SAVE]);
  report("save in the background", g / m[BACKGROUND], "write", m[WRITE] / m[BACKGROUND]);
  report("  training waits for the copy", g / m[STALL], "write", m[WRITE] / m[STALL]);
  printf("%-34s %7.1f %% of one core\n", "  its thread computes", 100 * m[BUSY] / m[BACKGROUND]);
  report("read, direct 4 MiB", g / m[READ], "itself", 1);
  report("load, cold", g / m[LOAD], "read", m[READ] / m[LOAD]);
  printf("%-34s %7.2f ms\n", "open, cold", m[OPEN] * 1e3);
  printf("%-34s %7.3f of their speed\n", "threads beside a save", m[SPEED]);
  tr_saver_destroy(background);
  tr_saver_destroy(plain);
  return tr_file_remove_tree(b.folder) < 0;
}
