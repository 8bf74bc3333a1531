// SPDX-License-Identifier: MIT
// The ranks of `trireme bench comm`: each point is repeated, and every repetition is one call between a barrier and the time
// at which the slowest rank is through. Buffers are rewritten by their owners before each: what nobody writes stays in the
// reader's cache and flatters the result. Every result is checked, outside the time.
#include "cli/bench_comm_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/sort.h"
#include "trireme/comm/probe.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 2, LEAST = 7, MOST = 1000, PEAKS = 10, LINK_MOST = 16 << 20, SMALL = 8, LARGE = 4 << 20 };
enum { LINK_SIZES = 16, LINK_PASSES = 3, ADDED = 512 << 10 };
static const double burst_seconds = 0.01;

typedef struct bench_rank {
  const tr__comm_job *job;
  tr_comm *comm;
  tr_group *world;
  char *shared, *own; // two buffers each: in the arena, private; NULL when no point needs them
  tr_arena memory;
  tr__comm_work work;
  float *seconds; // [MOST]
} bench_rank;

static int needs(const tr__comm_job *job, int is_private) {
  for (size_t i = 0; i < job->npoint; i++)
    if (job->point[i].of.is_private == is_private) return 1;
  return (job->wants_links || job->npoint == 0) && job->settings->direct != is_private; // links and pairs
}

static tr_status open_rank(bench_rank *b) {
  const size_t both = 2 * tr_arena_rounded(b->job->most);
  b->world = tr_comm_world(b->comm);
  b->seconds = malloc(MOST * sizeof *b->seconds);
  if (!b->seconds) return tr_error(TR_ERR_MEMORY, "no memory for the times of a benchmark");
  if (needs(b->job, 0)) {
    b->shared = tr_arena_alloc(tr_comm_arena(b->comm), both);
    if (!b->shared) return TR_ERR_MEMORY;
  }
  if (needs(b->job, 1)) {
    TR_TRY(tr_arena_create(&b->memory, "private buffers", both));
    b->own = tr_arena_alloc(&b->memory, both);
    tr_arena_prefault(&b->memory, NULL, NULL);
  }
  b->work = (tr__comm_work){.group = b->world, .rank = tr_comm_rank(b->comm), .size = tr_comm_size(b->comm)};
  b->work.reduce = b->job->settings->reduce == 1 ? TR_MAX : TR_SUM;
  return tr__comm_open_work(&b->work);
}

static void close_rank(bench_rank *b) {
  tr__comm_close_work(&b->work);
  if (b->own) tr_arena_destroy(&b->memory);
  free(b->seconds);
}

// ---- a point

static tr_status repeat_once(bench_rank *b, int repetition, float *seconds) {
  tr__comm_rewrite(&b->work, repetition);
  TR_TRY(tr_group_barrier(b->world));
  const int64_t begin = tr_clock_ns();
  TR_TRY(tr__comm_run(&b->work));
  *seconds = (float)((double)(tr_clock_ns() - begin) * 1e-9);
  return tr__comm_verify(&b->work, repetition);
}

// As many as fit the time by the slowest rank's best warm-up: the same number on all ranks.
static tr_status choose_repeats(bench_rank *b, float best, int *out) {
  TR_TRY(tr_group_allreduce(b->world, &best, &best, 1, TR_F32, TR_MAX, NULL));
  const double wanted = b->job->settings->seconds / (best > 1e-7f ? (double)best : 1e-7);
  *out = wanted < LEAST ? LEAST : wanted > MOST ? MOST : (int)wanted;
  return TR_OK;
}

static void digest(const bench_rank *b, tr__comm_point *p, int repeats, uint64_t staged) {
  double sorted[MOST];
  for (int i = 0; i < repeats; i++) sorted[i] = (double)b->seconds[i];
  tr_sort_doubles(sorted, (size_t)repeats);
  p->repeats = repeats;
  p->least = sorted[0], p->median = sorted[repeats / 2], p->p90 = sorted[repeats * 9 / 10];
  p->is_staged = staged > 0;
}

static tr_status measure_point(bench_rank *b, size_t index) {
  tr__comm_point *p = &b->job->point[index];
  const size_t room = tr_arena_rounded(b->job->most);
  char *memory = p->of.is_private ? b->own : b->shared;
  b->work.point = p;
  b->work.a = memory, b->work.b = memory + room;
  tr__comm_prepare(&b->work);
  tr_comm_activity(b->comm, tr__comm_ops[p->of.op].name, -1, -1);
  float seconds = 0;
  int repeats;
  for (int i = 0; i < WARM; i++) {
    float warm;
    TR_TRY(repeat_once(b, i, &warm));
    if (i == 0 || warm < seconds) seconds = warm;
  }
  TR_TRY(choose_repeats(b, seconds, &repeats));
  const uint64_t staged = tr_comm_count(b->comm).bytes_staged;
  for (int i = 0; i < repeats; i++) TR_TRY(repeat_once(b, WARM + i, &b->seconds[i]));
  const uint64_t through = tr_comm_count(b->comm).bytes_staged - staged;
  TR_TRY(tr_group_allreduce(b->world, b->seconds, b->seconds, (size_t)repeats, TR_F32, TR_MAX, NULL));
  if (tr_comm_rank(b->comm) == 0) digest(b, p, repeats, through);
  return tr_comm_stop_requested(b->comm) ? tr_error(TR_ERR_PEER, "the benchmark was interrupted") : TR_OK;
}

static void print_point(const bench_rank *b, size_t index) {
  const tr__comm_job *job = b->job;
  if (tr_comm_rank(b->comm) != 0 || job->settings->json) return;
  if (index == 0) tr__comm_print_head(job);
  size_t first = index;
  while (first > 0 && tr__comm_case_length(job, first - 1) > index - first + 1) first--;
  tr__comm_print_row(job, index);
  if (first + tr__comm_case_length(job, first) == index + 1) tr__comm_print_case(job, first, index + 1 - first);
  fflush(stdout);
}

// What all ranks compute at once: each one's best of a few bursts.
static tr_status measure_peak(bench_rank *b) {
  double *rate = malloc((size_t)b->work.size * sizeof *rate), best = 0, sum = 0;
  if (!rate) return tr_error(TR_ERR_MEMORY, "no memory for the peaks of %d ranks", b->work.size);
  tr_status status = tr_group_barrier(b->world);
  for (int i = 0; i < PEAKS; i++) {
    const double own = tr_kernel_peak(TR_F32, 1, burst_seconds);
    if (own > best) best = own;
  }
  if (status == TR_OK) status = tr_group_allgather(b->world, &best, rate, sizeof best, TR_U8, NULL);
  for (int r = 0; r < b->work.size && status == TR_OK; r++) sum += rate[r];
  free(rate);
  if (tr_comm_rank(b->comm) == 0) b->job->results->peak = sum;
  return status;
}

static void note_job(const bench_rank *b) {
  tr__comm_results *out = b->job->results;
  if (tr_comm_rank(b->comm) != 0) return;
  out->hosts = tr_comm_hosts(b->comm);
  snprintf(out->engine, sizeof out->engine, "%s", tr_comm_engine(b->comm));
}

static char *buffers_of(const bench_rank *b) { return b->job->settings->direct ? b->shared : b->own; }

// Hosts with different memories may have left out different sizes.
static tr_status agree(const bench_rank *b) {
  int32_t n[2] = {(int32_t)b->job->npoint, -(int32_t)b->job->npoint};
  TR_TRY(tr_group_allreduce(b->world, n, n, 2, TR_I32, TR_MAX, NULL));
  if (n[0] == -n[1]) return TR_OK;
  return tr_error(TR_ERR_CONFIG,
                  "bench.sizes: %d points fit the memory of one host and %d that of another; give a TO "
                  "that fits all",
                  (int)n[0], (int)-n[1]);
}

static tr_status measure_points(bench_rank *b) {
  TR_TRY(agree(b));
  TR_TRY(measure_peak(b));
  for (size_t i = 0; i < b->job->npoint; i++) {
    TR_TRY(measure_point(b, i));
    print_point(b, i);
  }
  if (!b->job->wants_links) return TR_OK;
  return tr__comm_links(b->comm, b->job, buffers_of(b), buffers_of(b) + tr_arena_rounded(b->job->most));
}

static tr_status live(tr_comm *comm, void *job, tr_status (*measure)(bench_rank *b)) {
  bench_rank b = {.job = job, .comm = comm};
  tr_status status = open_rank(&b);
  if (status == TR_OK) {
    note_job(&b);
    status = measure(&b);
  }
  if (status == TR_OK && tr_comm_rank(comm) == 0) b.job->results->done = 1;
  close_rank(&b);
  return status;
}

tr_status tr__comm_bench_rank(tr_comm *comm, void *job) { return live(comm, job, measure_points); }

// ---- links: the first pair on one host, and the first on two

static void choose_pair(tr_comm *comm, int between, tr__comm_link *link) {
  link->first = link->second = -1;
  for (int r = 1; r < tr_comm_size(comm) && link->first < 0; r++)
    if ((tr_comm_host(comm, r) != tr_comm_host(comm, 0)) == between) link->first = 0, link->second = r;
}

static int repeats_for(size_t nbyte) { return nbyte <= 64 << 10 ? 300 : nbyte <= 1 << 20 ? 40 : 9; }

typedef struct link_times {
  double bytes[LINK_SIZES], seconds[LINK_SIZES], spread[LINK_SIZES];
  size_t n;
} link_times;

// One pass over the sizes. Within a host the least time counts, as all else is the work of others; between hosts the median,
// as a link may lend a little of its rate.
static tr_status pass_link(tr_group *world, const tr__comm_link *link, int between, char *a, char *b, link_times *t) {
  size_t n = 0;
  for (size_t nbyte = SMALL; nbyte <= link->most; nbyte *= 4, n++) {
    tr_probe_pair pair = {0, 0};
    TR_TRY(tr_probe_between(world, link->first, link->second, a, b, nbyte, repeats_for(nbyte), &pair));
    const double seconds = between ? pair.median : pair.least;
    if (!(pair.least > 0)) continue; // the second of the two
    if (n >= t->n || seconds < t->seconds[n]) t->seconds[n] = seconds, t->spread[n] = pair.median / pair.least;
    t->bytes[n] = (double)nbyte;
  }
  t->n = n;
  return TR_OK;
}

static tr_status fit_link(link_times *t, tr__comm_link *link) {
  TR_TRY(tr_fit_line(t->bytes, t->seconds, t->n, &link->fit));
  double spread[LINK_SIZES];
  memcpy(spread, t->spread, sizeof spread);
  tr_sort_doubles(spread, t->n);
  link->spread = spread[t->n / 2];
  return TR_OK;
}

// Again while nothing can be made of what came out: somebody else may have been busy for a moment. The first of the two knows.
static tr_status measure_link(tr_group *world, tr__comm_link *link, int between, char *a, char *b) {
  const int first = tr_group_rank(world) == link->first;
  link_times times = {.n = 0};
  int32_t again = 1;
  if (first) link->adding = tr_probe_adding((float *)(void *)a, (float *)(void *)b, ADDED);
  for (int i = 0; i < LINK_PASSES && again; i++) {
    TR_TRY(pass_link(world, link, between, a, b, &times));
    if (first) {
      TR_TRY(fit_link(&times, link));
      again = tr_fit_judge(&link->fit) == TR_FIT_VOID;
      TR_TRY(tr_group_send(world, link->second, 0, &again, sizeof again, NULL));
    } else {
      TR_TRY(tr_group_recv(world, link->first, 0, &again, sizeof again, NULL));
    }
  }
  return TR_OK;
}

tr_status tr__comm_links(tr_comm *comm, const tr__comm_job *job, char *a, char *b) {
  tr_group *world = tr_comm_world(comm);
  const int rank = tr_comm_rank(comm);
  for (int between = 0; between < TR__COMM_PLACES; between++) {
    tr__comm_link link = {.most = job->most < LINK_MOST ? job->most : LINK_MOST};
    choose_pair(comm, between, &link);
    tr_comm_activity(comm, "links", -1, -1);
    if (link.first >= 0 && (rank == link.first || rank == link.second))
      TR_TRY(measure_link(world, &link, between, a, b));
    if (rank == 0) job->results->link[between] = link;
    TR_TRY(tr_group_barrier(world));
  }
  return TR_OK;
}

// ---- every pair

const char *tr__comm_path_name(char path) {
  switch (path) {
  case 's': return "shared";
  case 'c': return "copy";
  case 'm': return "MPI";
  case 't': return "TCP";
  default: return "";
  }
}

static char path_of(tr_comm *comm, int peer, int direct, uint64_t staged) {
  const int same = tr_comm_host(comm, tr_comm_rank(comm)) == tr_comm_host(comm, peer);
  if (!same) return strcmp(tr_comm_engine(comm), "tcp") == 0 ? 't' : 'm';
  return direct && staged == 0 ? 's' : 'c';
}

static tr_status measure_pair(bench_rank *b, int i, int j) {
  const tr__comm_job *job = b->job;
  const int rank = tr_comm_rank(b->comm), n = job->nrank;
  char *a = buffers_of(b), *in = a + tr_arena_rounded(job->most);
  tr_probe_pair small = {0, 0}, large = {0, 0};
  if (rank != i && rank != j) return TR_OK;
  TR_TRY(tr_probe_between(b->world, i, j, a, in, SMALL, 200, &small));
  const uint64_t staged = tr_comm_count(b->comm).bytes_staged;
  TR_TRY(tr_probe_between(b->world, i, j, a, in, job->most < LARGE ? job->most : LARGE, LEAST, &large));
  if (rank != i) return TR_OK;
  const char path = path_of(b->comm, j, job->settings->direct, tr_comm_count(b->comm).bytes_staged - staged);
  job->small[i * n + j] = job->small[j * n + i] = small.median;
  job->large[i * n + j] = job->large[j * n + i] = large.median;
  job->path[i * n + j] = job->path[j * n + i] = path;
  return TR_OK;
}

// Rank 0 has results where ranks share no memory too: whoever measured a pair sends it what came out.
static tr_status collect_pair(bench_rank *b, int i, int j) {
  const tr__comm_job *job = b->job;
  const int rank = tr_comm_rank(b->comm), at = i * job->nrank + j, back = j * job->nrank + i;
  double message[3] = {job->small[at], job->large[at], job->path[at]};
  if (i > 0 && rank == i) TR_TRY(tr_group_send(b->world, 0, 0, message, sizeof message, NULL));
  if (i > 0 && rank == 0) {
    TR_TRY(tr_group_recv(b->world, i, 0, message, sizeof message, NULL));
    job->small[at] = job->small[back] = message[0];
    job->large[at] = job->large[back] = message[1];
    job->path[at] = job->path[back] = (char)message[2];
  }
  return tr_group_barrier(b->world);
}

static tr_status measure_matrix(bench_rank *b) {
  tr_comm_activity(b->comm, "pairs", -1, -1);
  memset(buffers_of(b), 1, 2 * tr_arena_rounded(b->job->most));
  for (int i = 0; i < b->job->nrank; i++)
    for (int j = i + 1; j < b->job->nrank; j++) {
      TR_TRY(measure_pair(b, i, j));
      TR_TRY(collect_pair(b, i, j));
      if (tr_comm_stop_requested(b->comm)) return tr_error(TR_ERR_PEER, "the benchmark was interrupted");
    }
  return TR_OK;
}

tr_status tr__comm_matrix_rank(tr_comm *comm, void *job) { return live(comm, job, measure_matrix); }
