// SPDX-License-Identifier: MIT
// What data parallelism adds to a step, against MPI in one run: the gradients of GPT-2 124M are summed over two ranks, their
// norm taken and clipped, AdamW applied, and new weights published as bf16.
//
//   bench_update [f32|bf16 [ROUNDS [RANKS]]]      default: bf16, 3, 2
//
// Ours, two ways: `all-reduce`, every rank updates everything; and `sharded`, each rank sums and updates its part and writes
// the weights that all ranks of the machine share. The peer: MPI_Allreduce with the library's default settings, in place and
// out of place, then norm and update by our kernel (so that only communication differs) and by plain C loops.
// Gradients are rewritten by their owners before each repetition; ranks have one thread and a core each; a repetition lasts
// from one barrier to the next. Rounds of ours and theirs alternate; medians of all repetitions. The first update of each
// must give the same weights.
//
// Built where CMake finds MPI. mpiexec starts this program again with --peer.
#include "trireme/base/clock.h"
#include "trireme/base/cpu.h"
#include "trireme/base/sort.h"
#include "trireme/comm/launch.h"
#include "trireme/model/gpt2.h"
#include "trireme/shard/layout.h"
#include "update_plain.h"
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { REPEAT = 3, ROUNDS_MOST = 20, SAMPLES = REPEAT * ROUNDS_MOST, CHECKED = 1009 };
static const double clip = 1.0, rate = 1e-3;

typedef enum update_way {
  ALLREDUCE,
  SHARDED,
  PEER_IN_PLACE,
  PEER_OUT_OF_PLACE,
  PEER_IN_PLACE_LOOP,
  PEER_OUT_OF_PLACE_LOOP,
  WAYS
} update_way;
static const char *const way_name[WAYS] = {
    "trireme, all-reduce", "trireme, sharded",           "MPI, in place",
    "MPI, out of place",   "MPI, in place, plain loops", "MPI, out of place, plain loops"};

typedef struct times {
  int n;
  double reduce[SAMPLES], total[SAMPLES]; // seconds
  double check;                           // of the weights after the first update
} times;

// ---- the work, the same for both

typedef struct work {
  tr_model *model;
  tr_layout layout;
  size_t n;
  tr_dtype type;
  tr_optim optim;
} work;

static tr_status open_work(work *w, tr_dtype type) {
  tr_gpt2_config config;
  *w = (work){.type = type};
  w->optim = (tr_optim){.kind = TR_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
  tr_gpt2_config_init(&config);
  TR_TRY(tr_gpt2_create(&config, &w->model));
  TR_TRY(tr_layout_build(w->model, &w->layout));
  w->n = (size_t)w->layout.total;
  return TR_OK;
}

// A rank's memory: gradients of everything, the rest of elements [first, first + count).
typedef struct state {
  const work *work;
  tr_arena memory, scratch;
  tr_compute c;
  size_t first, count;
  float *g, *w, *moment[TR_OPTIM_MAX_STATE];
  void *working; // NULL: w
  double *squares;
  tr_optim_segment *segment;
  size_t nsegment;
  int64_t step;
} state;

// Small numbers of either sign without any pattern (a multiple of the index alone would have one, and hide other gradients
// from the check).
static void fill(float *x, size_t n, uint32_t salt, float scale) {
  for (size_t i = 0; i < n; i++) {
    uint32_t h = ((uint32_t)i + salt) * 2654435761u;
    h = (h ^ h >> 15) * 2246822519u;
    x[i] = (float)(int32_t)(h ^ h >> 13) * 0x1p-31f * scale;
  }
}

static size_t blocks(size_t n) { return (n + TR_LAYOUT_BLOCK - 1) / TR_LAYOUT_BLOCK; }

// `g`, `w` and `working` are made here unless somebody brings them.
static tr_status open_state(state *s, const work *w, size_t first, size_t count) {
  const size_t nbyte = count * sizeof(float), own = s->w == NULL, type = tr_dtype_size(w->type);
  s->work = w;
  s->first = first, s->count = count;
  s->nsegment = tr_layout_segments(&w->layout, w->model, (int64_t)first, (int64_t)count, NULL, 0);
  s->segment = calloc(s->nsegment + 1, sizeof *s->segment);
  if (!s->segment) return tr_error(TR_ERR_MEMORY, "no memory for a list of segments");
  tr_layout_segments(&w->layout, w->model, (int64_t)first, (int64_t)count, s->segment, s->nsegment);
  TR_TRY(tr_arena_create(&s->memory, "state",
                         (2 + own) * nbyte + count * type + (s->g ? 0 : w->n * sizeof(float)) + blocks(count) * 8 +
                             4096));
  TR_TRY(tr_arena_create(&s->scratch, "scratch", 1 << 20));
  if (!s->g) s->g = tr_arena_alloc(&s->memory, w->n * sizeof(float));
  if (own) s->w = tr_arena_alloc(&s->memory, nbyte);
  for (int i = 0; i < 2; i++) s->moment[i] = tr_arena_alloc(&s->memory, nbyte);
  if (!s->working && w->type != TR_F32) s->working = tr_arena_alloc(&s->memory, count * type);
  s->squares = tr_arena_alloc(&s->memory, blocks(count) * sizeof *s->squares);
  if (!s->squares) return TR_ERR_MEMORY;
  tr_arena_prefault(&s->memory, NULL, NULL);
  fill(s->w, count, (uint32_t)first, 0.02f);
  return tr_compute_open(tr_kernels_cpu(), NULL, &s->scratch, &s->c);
}

static void close_state(state *s) {
  if (s->c.kernels) tr_compute_close(&s->c);
  if (s->memory.base) tr_arena_destroy(&s->memory);
  if (s->scratch.base) tr_arena_destroy(&s->scratch);
  free(s->segment);
}

// Gradients of the same magnitude in every step, large enough to be clipped.
static void rewrite(state *s, int rank) {
  s->step++;
  fill(s->g, s->work->n, (uint32_t)(rank + 1) * 977u + (uint32_t)s->step * 131071u, 1e-3f);
}

static double sum_of_squares(state *s, const float *g) {
  double sum = 0;
  s->c.kernels->sum_squares(&s->c, s->count, TR_LAYOUT_BLOCK, g, s->squares);
  for (size_t i = 0; i < blocks(s->count); i++) sum += s->squares[i];
  return sum;
}

static void update(state *s, const float *g, double squares) {
  tr_optim_update(&s->c, &s->work->optim, s->step, rate, tr_clip_factor(sqrt(squares), clip), s->segment, s->nsegment,
                  s->w, g, s->moment, s->work->type, s->working);
}

static void update_by_loops(state *s, const float *g) {
  const tr_optim *o = &s->work->optim;
  tr_adamw p = {.lr = (float)rate, .beta1 = (float)o->beta1, .beta2 = (float)o->beta2, .eps = (float)o->eps};
  p.bias1 = (float)(1 - pow(o->beta1, (double)s->step));
  p.bias2 = (float)(1 - pow(o->beta2, (double)s->step));
  p.grad_scale = (float)tr_clip_factor(sqrt(plain_squares(s->count, g)), clip);
  for (size_t i = 0; i < s->nsegment; i++) {
    const tr_optim_segment *part = &s->segment[i];
    const size_t at = part->start;
    p.decay = tr_optim_decays(o, part->role) ? (float)o->weight_decay : 0;
    plain_adamw(part->count, &p, s->w + at, g + at, s->moment[0] + at, s->moment[1] + at,
                s->working ? (uint16_t *)s->working + at : NULL);
  }
}

// A sum over some of the published weights of the whole model, each with its own factor.
static double check(const work *w, const void *weights) {
  double sum = 0;
  for (size_t k = 0; k < CHECKED; k++)
    sum += tr_load(w->type, weights, (w->n - 1) / CHECKED * k) * (double)(1 + k % 7);
  return sum;
}

static void note(times *t, double begin, double reduced, double end) {
  if (t->n == SAMPLES) return;
  t->reduce[t->n] = reduced - begin;
  t->total[t->n++] = end - begin;
}

// ---- ours

typedef struct ours {
  const work *work;
  update_way way;
  times *out; // seen by the launcher
} ours;

static tr_status update_allreduce(state *s, tr_group *group, double *reduced) {
  TR_TRY(tr_group_allreduce(group, s->g, s->g, s->work->n, TR_F32, TR_SUM, NULL));
  *reduced = tr_clock_seconds();
  update(s, s->g, sum_of_squares(s, s->g));
  return TR_OK;
}

// Squares are taken while the sums are in the cache.
static void squares_of_part(void *user, size_t first, size_t count) {
  state *s = user;
  s->c.kernels->sum_squares(&s->c, count, TR_LAYOUT_BLOCK, s->g + s->first + first,
                            s->squares + first / TR_LAYOUT_BLOCK);
}

static tr_status update_sharded(state *s, tr_group *group, const size_t *start, double *reduced) {
  enum { RANKS = 256 };
  double squares[RANKS], own = 0, all = 0;
  float *sum = s->g + s->first;
  TR_TRY(tr_group_reduce_scatter_v(group, s->g, sum, start, TR_F32, TR_F32, TR_SUM, TR_LAYOUT_BLOCK, squares_of_part,
                                   s, NULL));
  *reduced = tr_clock_seconds();
  for (size_t i = 0; i < blocks(s->count); i++) own += s->squares[i];
  TR_TRY(tr_group_allgather(group, &own, squares, sizeof own, TR_U8, NULL));
  for (int r = 0; r < tr_group_size(group); r++) all += squares[r];
  update(s, sum, all);
  return TR_OK;
}

// The one place that measures: everything between two barriers. `start`: who owns what, for the sharded way.
static tr_status repeat_ours(const ours *o, state *s, tr_comm *comm, const size_t *start, const void *published) {
  tr_group *world = tr_comm_world(comm);
  for (int i = -1; i < REPEAT; i++) {
    double reduced = 0;
    rewrite(s, tr_comm_rank(comm));
    TR_TRY(tr_group_barrier(world));
    const double begin = tr_clock_seconds();
    if (o->way == SHARDED)
      TR_TRY(update_sharded(s, world, start, &reduced));
    else
      TR_TRY(update_allreduce(s, world, &reduced));
    TR_TRY(tr_group_barrier(world));
    const double end = tr_clock_seconds();
    if (tr_comm_rank(comm) != 0) continue;
    if (i >= 0) note(o->out, begin, reduced, end);
    if (i < 0) o->out->check = check(o->work, published);
  }
  return TR_OK;
}

// Weights that all ranks see, in the type that is published; in f32 they are the master weights themselves.
static tr_status open_ours(const ours *o, state *s, tr_comm *comm, size_t *start, const void **published) {
  const work *w = o->work;
  const int size = tr_comm_size(comm), rank = tr_comm_rank(comm);
  char *shared = NULL;
  s->g = tr_arena_alloc(tr_comm_arena(comm), w->n * sizeof(float));
  if (!s->g) return TR_ERR_MEMORY;
  memset(s->g, 0, w->n * sizeof(float));
  size_t first = 0, count = w->n;
  if (o->way == SHARDED) {
    for (int r = 0; r < size; r++) {
      int64_t at, n;
      tr_layout_own(&w->layout, 0, w->layout.nunit, size, r, &at, &n);
      start[r] = (size_t)at;
      start[r + 1] = (size_t)(at + n);
    }
    first = start[rank], count = start[rank + 1] - start[rank];
    void *all;
    TR_TRY(tr_group_shared(tr_comm_world(comm), w->n * tr_dtype_size(w->type), &all));
    shared = all;
    char *own = shared + first * tr_dtype_size(w->type);
    if (w->type == TR_F32)
      s->w = (void *)own;
    else
      s->working = own;
  }
  TR_TRY(open_state(s, w, first, count));
  *published = shared ? shared : s->working ? s->working : s->w;
  return TR_OK;
}

static tr_status rank_main(tr_comm *comm, void *user) {
  const ours *o = user;
  state s = {0};
  size_t start[257] = {0};
  const void *published = NULL;
  tr_status status = open_ours(o, &s, comm, start, &published);
  if (status == TR_OK) status = repeat_ours(o, &s, comm, start, published);
  close_state(&s);
  return status;
}

static tr_status run_ours(const work *w, update_way way, int ranks, times *out) {
  tr_launch_options o;
  tr_launch_options_init(&o);
  o.nrank = ranks;
  o.arena_nbyte = w->n * sizeof(float) + (1 << 20);
  if (way == SHARDED) o.once_nbyte = w->n * tr_dtype_size(w->type) + (1 << 20);
  o.deadline = 300;
  ours job = {.work = w, .way = way, .out = out};
  return tr_launch(&o, rank_main, &job, NULL);
}

// ---- the peer, in a process of its own under mpiexec

static int peer_failed(const char *what) {
  fprintf(stderr, "bench_update: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  return 1;
}

static void repeat_peer(state *s, float *sum, update_way way, int rank, int said) {
  const int in_place = way == PEER_IN_PLACE || way == PEER_IN_PLACE_LOOP;
  rewrite(s, rank);
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = tr_clock_seconds();
  if (in_place)
    MPI_Allreduce(MPI_IN_PLACE, s->g, (int)s->work->n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  else
    MPI_Allreduce(s->g, sum, (int)s->work->n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  const double reduced = tr_clock_seconds();
  const float *g = in_place ? s->g : sum;
  if (way >= PEER_IN_PLACE_LOOP)
    update_by_loops(s, g);
  else
    update(s, g, sum_of_squares(s, g));
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0 && said) printf("time %d %.9f %.9f\n", (int)way, reduced - begin, tr_clock_seconds() - begin);
}

static int peer_main(int argc, char **argv) {
  int rank, length = 0;
  work w;
  state s = {0};
  tr_dtype type = TR_BF16;
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Get_library_version(version, &length);
  if (argc > 2) tr_dtype_parse(argv[2], &type);
  if (open_work(&w, type) < 0 || open_state(&s, &w, 0, (size_t)w.layout.total) < 0)
    return peer_failed(tr_status_text());
  float *sum = calloc(w.n, sizeof *sum);
  if (!sum) return peer_failed("no memory for the sums");
  memset(sum, 1, w.n * sizeof *sum); // no page is new when it is measured
  // Each way first updates fresh weights once, so that what comes out can be compared.
  for (int way = PEER_IN_PLACE; way < WAYS; way++) {
    s.step = 0;
    fill(s.w, w.n, 0, 0.02f);
    for (int i = 0; i < 2; i++) memset(s.moment[i], 0, w.n * sizeof(float));
    repeat_peer(&s, sum, (update_way)way, rank, 0);
    if (rank == 0) printf("check %d %.17g\n", way, check(&w, s.working ? s.working : s.w));
    for (int i = 0; i < REPEAT; i++) repeat_peer(&s, sum, (update_way)way, rank, 1);
  }
  if (rank == 0) printf("version %.*s\n", (int)strcspn(version, ",\n"), version);
  close_state(&s);
  free(sum);
  MPI_Finalize();
  return 0;
}

static tr_status read_peer(FILE *from, times *t, char *version, size_t nbyte) {
  char line[512];
  while (fgets(line, sizeof line, from)) {
    int which;
    double reduce, total;
    if (sscanf(line, "time %d %lf %lf", &which, &reduce, &total) == 3 && which >= 0 && which < WAYS)
      note(&t[which], 0, reduce, total);
    else if (sscanf(line, "check %d %lf", &which, &total) == 2 && which >= 0 && which < WAYS)
      t[which].check = total;
    else if (strncmp(line, "version ", 8) == 0)
      snprintf(version, nbyte, "%.*s", (int)strcspn(line + 8, "\n"), line + 8);
    else
      fputs(line, stderr);
  }
  return t[WAYS - 1].n > 0 ? TR_OK : tr_error(TR_ERR_PEER, "the ranks of MPI ended without a result");
}

static tr_status run_peer(const work *w, int ranks, times *t, char *version, size_t nbyte) {
  char self[4096], command[8192];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) return tr_error(TR_ERR_IO, "the system does not say where this program is");
  self[n] = '\0';
  // A container's only user may well be root. Open MPI asks for both.
  if (geteuid() == 0) setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1), setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  snprintf(command, sizeof command, "'%s' %s %d %s '%s' --peer %s", TRIREME_MPIEXEC, TRIREME_MPIEXEC_RANKS, ranks,
           tr_cpu_count() < ranks ? "--oversubscribe" : "", self, tr_dtype_name(w->type));
  fflush(stdout);
  FILE *from = popen(command, "r");
  if (!from) return tr_error(TR_ERR_IO, "cannot start %s", TRIREME_MPIEXEC);
  tr_status status = read_peer(from, t, version, nbyte);
  if (pclose(from) != 0 && status == TR_OK) status = tr_error(TR_ERR_PEER, "%s failed", TRIREME_MPIEXEC);
  return status;
}

// ---- both

static double report(update_way w, times *t) {
  tr_sort_doubles(t->reduce, (size_t)t->n);
  tr_sort_doubles(t->total, (size_t)t->n);
  const double total = t->total[t->n / 2];
  printf("%-32s %10.1f %10.1f %18.1f..%.1f\n", way_name[w], t->reduce[t->n / 2] * 1e3, total * 1e3, t->total[0] * 1e3,
         t->total[t->n - 1] * 1e3);
  return total;
}

static double least(double a, double b) { return a < b ? a : b; }

// Weights of some 0.02 x a thousand after one update: rounding to bf16 may differ here and there, a wrong sum does not hide.
static tr_status check_all(const times *t) {
  for (int i = 0; i < WAYS; i++)
    if (!(fabs(t[i].check - t[ALLREDUCE].check) <= 1e-2))
      return tr_error(TR_ERR_VERIFY, "'%s' comes to other weights than '%s': %.9g and %.9g", way_name[i],
                      way_name[ALLREDUCE], t[i].check, t[ALLREDUCE].check);
  return TR_OK;
}

static tr_status print_all(const work *w, times *t, int ranks, int rounds, const char *version) {
  double total[WAYS];
  char cpu[128];
  tr_cpu_name(cpu, sizeof cpu);
  printf("%s, %s, %d cores; %s\n%.1fM parameters, %s weights, %d ranks x 1 thread: sum, norm, clip, AdamW, publish; "
         "medians "
         "of %d\n\n%-32s %10s %10s %20s\n",
         cpu, tr_isa_name(tr_cpu_isa()), tr_cpu_count(), version, (double)w->n * 1e-6, tr_dtype_name(w->type), ranks,
         rounds * REPEAT, "ms", "reduce", "total", "least..most");
  for (int i = 0; i < WAYS; i++) total[i] = report((update_way)i, &t[i]);
  const double kernel = least(total[PEER_IN_PLACE], total[PEER_OUT_OF_PLACE]),
               loops = least(total[PEER_IN_PLACE_LOOP], total[PEER_OUT_OF_PLACE_LOOP]);
  printf("\n");
  for (int i = ALLREDUCE; i <= SHARDED; i++)
    printf("%s: %.2f times as fast as the best of MPI with the same kernel, %.2f with plain loops\n", way_name[i],
           kernel / total[i], loops / total[i]);
  return check_all(t);
}

static tr_status bench(tr_dtype type, int rounds, int ranks) {
  work w;
  char version[256] = "MPI";
  times *t = mmap(NULL, WAYS * sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (t == MAP_FAILED) return tr_error(TR_ERR_MEMORY, "no memory for the times");
  TR_TRY(open_work(&w, type));
  for (int i = 0; i < rounds; i++) {
    TR_TRY(run_ours(&w, ALLREDUCE, ranks, &t[ALLREDUCE]));
    TR_TRY(run_ours(&w, SHARDED, ranks, &t[SHARDED]));
    TR_TRY(run_peer(&w, ranks, t, version, sizeof version));
  }
  return print_all(&w, t, ranks, rounds, version);
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--peer") == 0) return peer_main(argc, argv);
  tr_dtype type = TR_BF16;
  int64_t rounds = 3, ranks = 2;
  tr_status status = argc > 1 ? tr_dtype_parse(argv[1], &type) : TR_OK;
  if (status == TR_OK && argc > 2) status = tr_parse_count(argv[2], &rounds);
  if (status == TR_OK && argc > 3) status = tr_parse_count(argv[3], &ranks);
  if (status == TR_OK &&
      ((type != TR_F32 && type != TR_BF16) || rounds < 1 || rounds > ROUNDS_MOST || ranks < 1 || ranks > 256))
    status = tr_error(TR_ERR_USAGE, "usage: bench_update [f32|bf16 [ROUNDS 1..%d [RANKS 1..256]]]", ROUNDS_MOST);
  if (status == TR_OK) status = bench(type, (int)rounds, (int)ranks);
  if (status < 0) fprintf(stderr, "bench_update: %s\n", tr_status_text());
  return tr_status_exit_code(status);
}
