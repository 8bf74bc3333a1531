// SPDX-License-Identifier: MIT
// Collectives on one machine against MPI in one run: all-reduce, reduce-scatter, all-gather and all-to-all of floats, 8 bytes
// to 128 MiB, on 2, 4 and 8 ranks.
//
//   bench_comm [--least] [--first] [LARGEST [ROUNDS [RANKS ...]]]       default: 128Mi 3 2 4 8
//
// Ours with buffers in the arena, as they come and in place, and with private ones in place where there is such a thing; the
// peers (comm_peer.c, one for each MPI that was found when this was built) with their default settings, out of place and in
// place. Of buffers in the arena as they come only all-reduce is in place. Rounds of ours and theirs alternate; buffers are
// rewritten by their owners before each repetition, a time is the slowest rank's from a barrier on, and medians are over all
// repetitions of all rounds. A barrier follows too: a rank that has ended would else look at its result and rewrite its buffer
// in the time of one that shares its core. Before each round the machine is looked at for a moment: when others use more than a tenth of it,
// that is said, as ratios then move; --least compares the least times instead of medians, of which others take less. --first
// leaves out all peers but the first: of ranks that share cores, one of MPICH's operations takes milliseconds.
//
// The last columns are the marks that a healthy machine should reach; exit code 9 when one is missed.
#include "comm_peer.h"
#include "trireme/base/clock.h"
#include "trireme/base/cpu.h"
#include "trireme/base/sort.h"
#include "trireme/base/text.h"
#include "trireme/comm/launch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef TRIREME_COMM_PEERS
#define TRIREME_COMM_PEERS // {"program", "mpiexec -n", "option when ranks share cores"}, ...
#endif

enum { ROUNDS_MOST = 20, SAMPLES = ROUNDS_MOST * PEER_MOST_REPEATS, RANKS_MOST = 64, PEERS_MOST = 2 };
static const double busy_machine = 0.10;

typedef enum way {
  ARENA,
  ARENA_IN_PLACE,
  PRIVATE,
  OUT_OF_PLACE, // of the first peer; then in place, then those of the second
  IN_PLACE,
  WAYS = 3 + 2 * PEERS_MOST
} way;

typedef struct peer_program {
  const char *program, *start, *crowded;
} peer_program;
static peer_program peers[] = {TRIREME_COMM_PEERS{NULL, NULL, NULL}};

typedef struct times {
  int n;
  double seconds[SAMPLES];
} times;

typedef struct bench {
  int ranks, sizes, rounds, least;
  times (*t)[PEER_SIZES][WAYS]; // [PEER_OPS], in memory that the ranks see
  char version[PEERS_MOST][128];
  double busy; // the most that was seen
} bench;

static void note(times *t, double seconds) {
  if (t->n < SAMPLES) t->seconds[t->n++] = seconds;
}

// ---- ours

typedef struct own_rank {
  tr_group *world;
  int rank, size, in_place;
  float *a, *b;
} own_rank;

// Where the result of an operation on n floats stands, and what this rank contributes.
static float *result_of(const own_rank *r, peer_op op, size_t n) {
  if (op == PEER_ALLREDUCE || (r->in_place && op == PEER_ALLGATHER)) return r->a;
  return r->in_place && op == PEER_REDUCE_SCATTER ? r->a + (size_t)r->rank * (n / (size_t)r->size) : r->b;
}
static float *contribution_of(const own_rank *r, peer_op op, size_t n, size_t *count) {
  const size_t per = n / (size_t)r->size;
  *count = op == PEER_ALLGATHER ? per : n;
  return r->in_place && op == PEER_ALLGATHER ? r->a + (size_t)r->rank * per : r->a;
}

static tr_status call(const own_rank *r, peer_op op, size_t n) {
  const size_t per = n / (size_t)r->size;
  size_t count;
  float *from = contribution_of(r, op, n, &count), *to = result_of(r, op, n);
  switch (op) {
  case PEER_ALLREDUCE: return tr_group_allreduce(r->world, from, to, n, TR_F32, TR_SUM, NULL);
  case PEER_REDUCE_SCATTER: return tr_group_reduce_scatter(r->world, from, to, per, TR_F32, TR_SUM, NULL);
  case PEER_ALLGATHER: return tr_group_allgather(r->world, from, to, per, TR_F32, NULL);
  default: return tr_group_alltoall(r->world, from, to, per, TR_F32, NULL);
  }
}

static tr_status measure(const own_rank *r, peer_op op, int size, times *out) {
  float seconds[PEER_MOST_REPEATS];
  const size_t n = peer_count(size, r->size);
  const int repeats = peer_repeats(size);
  for (int i = -PEER_WARM; i < repeats; i++) {
    size_t count;
    float *own = contribution_of(r, op, n, &count);
    peer_rewrite(own, count, r->rank, i + PEER_WARM);
    TR_TRY(tr_group_barrier(r->world));
    const int64_t begin = tr_clock_ns();
    TR_TRY(call(r, op, n));
    if (i >= 0) seconds[i] = (float)((double)(tr_clock_ns() - begin) * 1e-9);
    TR_TRY(tr_group_barrier(r->world));
    if (!peer_check(op, result_of(r, op, n), n, r->rank, r->size, i + PEER_WARM))
      return tr_error(TR_ERR_VERIFY, "a wrong result of operation %d, %zu bytes", (int)op, peer_size(size));
  }
  TR_TRY(tr_group_allreduce(r->world, seconds, seconds, (size_t)repeats, TR_F32, TR_MAX, NULL));
  for (int i = 0; i < repeats && r->rank == 0; i++) note(out, (double)seconds[i]);
  return TR_OK;
}

static int knows_in_place(peer_op op) { return op == PEER_REDUCE_SCATTER || op == PEER_ALLGATHER; }

static tr_status measure_all(const bench *b, own_rank *r, way w) {
  for (int op = 0; op < PEER_OPS; op++)
    for (int size = 0; size < b->sizes && (w != ARENA_IN_PLACE || knows_in_place((peer_op)op)); size++)
      TR_TRY(measure(r, (peer_op)op, size, &b->t[op][size][w]));
  return TR_OK;
}

static tr_status rank_main(tr_comm *comm, void *user) {
  const bench *b = user;
  own_rank r = {.world = tr_comm_world(comm), .rank = tr_comm_rank(comm), .size = tr_comm_size(comm)};
  const size_t nbyte = peer_count(b->sizes - 1, r.size) * sizeof(float);
  tr_arena own;
  r.a = tr_arena_alloc(tr_comm_arena(comm), nbyte);
  r.b = tr_arena_alloc(tr_comm_arena(comm), nbyte);
  if (!r.b) return TR_ERR_MEMORY;
  TR_TRY(measure_all(b, &r, ARENA));
  r.in_place = 1;
  TR_TRY(measure_all(b, &r, ARENA_IN_PLACE));
  TR_TRY(tr_arena_create(&own, "private buffers", 2 * tr_arena_rounded(nbyte)));
  tr_arena_prefault(&own, NULL, NULL);
  r.a = tr_arena_alloc(&own, nbyte);
  r.b = tr_arena_alloc(&own, nbyte);
  tr_status status = measure_all(b, &r, PRIVATE);
  tr_arena_destroy(&own);
  return status;
}

static tr_status run_ours(bench *b) {
  tr_launch_options o;
  tr_launch_options_init(&o);
  o.nrank = b->ranks;
  o.arena_nbyte = 2 * tr_arena_rounded(peer_count(b->sizes - 1, b->ranks) * sizeof(float));
  o.deadline = 300;
  return tr_launch(&o, rank_main, b, NULL);
}

// ---- the peers

static void read_line(bench *b, int peer, const char *line) {
  int op, size, in_place;
  double seconds;
  if (sscanf(line, "time %d %d %d %lf", &op, &size, &in_place, &seconds) == 4 && op >= 0 && op < PEER_OPS &&
      size >= 0 && size < PEER_SIZES)
    note(&b->t[op][size][OUT_OF_PLACE + 2 * peer + (in_place != 0)], seconds);
  else if (strncmp(line, "version ", 8) == 0)
    snprintf(b->version[peer], sizeof b->version[peer], "%.*s", (int)strcspn(line + 8, "\n"), line + 8);
  else
    fputs(line, stderr);
}

static tr_status run_peer(bench *b, int peer) {
  const peer_program *p = &peers[peer];
  char command[8192], line[512];
  // A container's only user may well be root. Open MPI asks for both.
  if (geteuid() == 0) setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1), setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  snprintf(command, sizeof command, "%s %d %s '%s' %d", p->start, b->ranks,
           tr_cpu_count() < b->ranks ? p->crowded : "", p->program, b->sizes);
  fflush(stdout);
  FILE *from = popen(command, "r");
  if (!from) return tr_error(TR_ERR_IO, "cannot start %s", p->start);
  while (fgets(line, sizeof line, from)) read_line(b, peer, line);
  if (pclose(from) != 0) return tr_error(TR_ERR_PEER, "the ranks of '%s' ended without a result", command);
  return TR_OK;
}

// ---- how busy the machine is while nothing of this runs

static int read_ticks(double *busy, double *all) {
  double t[8] = {0};
  FILE *file = fopen("/proc/stat", "re");
  const int n = file ? fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5],
                              &t[6], &t[7])
                     : 0;
  if (file) fclose(file);
  *busy = t[0] + t[1] + t[2] + t[5] + t[6] + t[7];
  *all = *busy + t[3] + t[4];
  return n >= 4;
}

static void look_around(bench *b) {
  double busy, all, busy_then, all_then;
  if (!read_ticks(&busy_then, &all_then)) return;
  tr_clock_sleep_ns(500000000);
  if (!read_ticks(&busy, &all) || all <= all_then) return;
  const double share = (busy - busy_then) / (all - all_then);
  if (share > b->busy) b->busy = share;
}

// ---- the table

typedef struct mark {
  peer_op op;
  int least_ranks, most_ranks;
  way ours, theirs;
  size_t from, to;
  double factor;
} mark;

// A later mark holds where several do.
static const mark marks[] = {
    {PEER_ALLREDUCE, 2, 2, ARENA, OUT_OF_PLACE, 0, SIZE_MAX, 1},
    {PEER_ALLREDUCE, 2, 2, ARENA, OUT_OF_PLACE, 4 << 10, 4 << 10, 2},
    {PEER_ALLREDUCE, 2, 2, ARENA, OUT_OF_PLACE, 32 << 10, 128 << 20, 4},
    {PEER_ALLREDUCE, 4, 8, ARENA, OUT_OF_PLACE, 8, 8, 1.4},
    {PEER_ALLREDUCE, 4, 8, ARENA, OUT_OF_PLACE, 16 << 20, 16 << 20, 5},
    {PEER_REDUCE_SCATTER, 2, 2, ARENA, OUT_OF_PLACE, 1 << 20, 16 << 20, 8},
    {PEER_ALLGATHER, 2, 2, ARENA, OUT_OF_PLACE, 0, SIZE_MAX, 1},
    {PEER_ALLTOALL, 2, 2, ARENA, OUT_OF_PLACE, 0, SIZE_MAX, 1},
    {PEER_ALLREDUCE, 2, 2, PRIVATE, IN_PLACE, 0, SIZE_MAX, 1},
    {PEER_REDUCE_SCATTER, 2, 2, PRIVATE, IN_PLACE, 0, SIZE_MAX, 1},
    {PEER_ALLGATHER, 2, 2, PRIVATE, IN_PLACE, 0, SIZE_MAX, 1},
};

static double required(const bench *b, peer_op op, int size, way ours) {
  double factor = 0;
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
    const mark *m = &marks[i];
    if (m->op == op && m->ours == ours && b->ranks >= m->least_ranks && b->ranks <= m->most_ranks &&
        peer_size(size) >= m->from && peer_size(size) <= m->to)
      factor = m->factor;
  }
  return factor;
}

static double judged(times *t, int least) {
  tr_sort_doubles(t->seconds, (size_t)t->n);
  return t->n ? t->seconds[least ? 0 : t->n / 2] : 0;
}

// The ratio and, where there is one, its mark; returns 1 when that is missed.
static int print_ratio(double ours, double theirs, double factor) {
  if (ours <= 0 || theirs <= 0) return printf(" %8s %13s", "-", ""), 0;
  const double ratio = theirs / ours;
  printf(" %8.2f", ratio);
  if (factor <= 0) return printf(" %13s", ""), 0;
  printf(" %4.1f %-8s", factor, ratio >= factor ? "met" : "MISSED");
  return ratio < factor;
}

// "Open MPI" of "Open MPI v4.1.4".
static int short_name(const char *version) {
  const char *end = version;
  while (*end && !(end[0] == ' ' && (end[1] == 'v' || end[1] == 'V'))) end++;
  return end - version < 11 ? (int)(end - version) : 11;
}

static int print_op(bench *b, peer_op op) {
  static const char *const names[PEER_OPS] = {"all-reduce", "reduce-scatter", "all-gather", "all-to-all"};
  int missed = 0;
  printf("\n%s, %d ranks\n%10s %11s %11s %11s", names[op], b->ranks, "us", "arena", "in place", "private");
  for (int p = 0; peers[p].program; p++) printf(" %11.*s %11s", short_name(b->version[p]), b->version[p], "in place");
  printf(" %8s %13s %10s %9s %13s\n", "arena x", "", "in place x", "private x", "");
  for (int size = 0; size < b->sizes; size++) {
    char bytes[32];
    double m[WAYS] = {0};
    tr_format_bytes(bytes, sizeof bytes, (double)peer_size(size));
    for (int w = 0; w < WAYS; w++) m[w] = judged(&b->t[op][size][w], b->least);
    printf("%10s", bytes);
    for (int w = 0; w < OUT_OF_PLACE || peers[(w - OUT_OF_PLACE) / 2].program; w++)
      if (m[w] > 0)
        printf(" %11.2f", m[w] * 1e6);
      else
        printf(" %11s", "-");
    missed += print_ratio(m[ARENA], m[OUT_OF_PLACE], required(b, op, size, ARENA));
    if (m[ARENA_IN_PLACE] > 0 && m[OUT_OF_PLACE] > 0)
      printf(" %10.2f", m[OUT_OF_PLACE] / m[ARENA_IN_PLACE]);
    else
      printf(" %10s", "-");
    missed += print_ratio(m[PRIVATE], m[IN_PLACE], required(b, op, size, PRIVATE));
    printf("\n");
  }
  return missed;
}

static tr_status run(bench *b, int *missed) {
  memset(b->t, 0, PEER_OPS * sizeof *b->t);
  for (int round = 0; round < b->rounds; round++) {
    look_around(b);
    TR_TRY(run_ours(b));
    for (int p = 0; peers[p].program; p++) TR_TRY(run_peer(b, p));
  }
  for (int op = 0; op < PEER_OPS; op++) *missed += print_op(b, (peer_op)op);
  for (int p = 0; peers[p].program; p++) printf("%s%s", p ? "; " : "\n", b->version[p]);
  printf("\n");
  fflush(stdout);
  return TR_OK;
}

// ---- arguments

static tr_status usage(void) {
  return tr_error(TR_ERR_USAGE,
                  "usage: bench_comm [--least] [--first] [LARGEST 8..128Mi [ROUNDS 3..%d [RANKS 2..%d ...]]]",
                  ROUNDS_MOST, RANKS_MOST);
}

// Takes --least and --first out of them.
static void read_flags(int *argc, char **argv, bench *b) {
  while (*argc > 1 && strncmp(argv[1], "--", 2) == 0) {
    if (strcmp(argv[1], "--least") == 0)
      b->least = 1;
    else if (strcmp(argv[1], "--first") == 0 && peers[0].program)
      peers[1] = (peer_program){NULL, NULL, NULL};
    else
      return; // no count of bytes: refused with the usage
    for (int i = 2; i < *argc; i++) argv[i - 1] = argv[i];
    --*argc;
  }
}

static tr_status read_arguments(int argc, char **argv, bench *b) {
  int64_t largest = 128 << 20, rounds = 3;
  if (argc > 1 && tr_parse_count(argv[1], &largest) < 0) return usage();
  if (argc > 2 && tr_parse_count(argv[2], &rounds) < 0) return usage();
  if (largest < 8 || rounds < 3 || rounds > ROUNDS_MOST) return usage();
  b->rounds = (int)rounds; // of 3 repetitions at least: medians are of 9 or more
  while (b->sizes < PEER_SIZES && peer_size(b->sizes) <= (size_t)largest) b->sizes++;
  return TR_OK;
}

static tr_status run_all(int argc, char **argv, bench *b, int *missed) {
  static const int usual[] = {2, 4, 8};
  char cpu[128];
  tr_cpu_name(cpu, sizeof cpu);
  printf("%s, %s, %d cores; floats, %s of at least %d; x: times as fast as %s, private as that in place\n", cpu,
         tr_isa_name(tr_cpu_isa()), tr_cpu_count(), b->least ? "the least" : "medians",
         b->rounds * peer_repeats(b->sizes - 1),
         peers[0].program ? "the first MPI" : "MPI, of which there was none when this was built");
  const int n = argc > 3 ? argc - 3 : 3;
  for (int i = 0; i < n; i++) {
    int64_t ranks = usual[i < 3 ? i : 0];
    if (argc > 3 && tr_parse_count(argv[3 + i], &ranks) < 0) return usage();
    if (ranks < 2 || ranks > RANKS_MOST) return usage();
    b->ranks = (int)ranks;
    TR_TRY(run(b, missed));
  }
  return TR_OK;
}

int main(int argc, char **argv) {
  bench b = {.sizes = 0};
  int missed = 0;
  read_flags(&argc, argv, &b);
  tr_status status = read_arguments(argc, argv, &b);
  b.t = mmap(NULL, PEER_OPS * sizeof *b.t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (b.t == MAP_FAILED) status = tr_error(TR_ERR_MEMORY, "no memory for the times");
  if (status == TR_OK) status = run_all(argc, argv, &b, &missed);
  if (status == TR_OK)
    printf("\nothers took up to %.0f %% of the processors between rounds%s\n", 100 * b.busy,
           b.busy > busy_machine ? ": more than 10 %, so ratios move; repeat" : "");
  if (status == TR_OK && missed > 0) status = tr_error(TR_ERR_VERIFY, "%d marks were missed", missed);
  if (status < 0) fprintf(stderr, "bench_comm: %s\n", tr_status_text());
  return tr_status_exit_code(status);
}
