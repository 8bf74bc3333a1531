// SPDX-License-Identifier: MIT
// Cutting a model into stages: two dynamic programs over sums of runs of parts, then a descent for ranks that have several
// (stages.h says in which order).
#include "trireme/step/stages.h"
#include "trireme/base/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct search {
  const tr_stage_problem *problem;
  tr_stage_goal goal;
  int S, n;
  double cap;                          // bytes of a stage
  double *work, *states, *activations; // [n + 1] sums over the parts before
  double *best;                        // [S + 1][n + 1] the least with s stages over the first j parts
  int *from;                           // [S + 1][n + 1] where the last of them begins
  int *peak;                           // [S] the larger of a stage's copies
  int *chunk_peak;                     // [p][v]
  int *chunk;                          // [v]
} search;

// ---- what a stage takes

static double bytes_of(const search *x, int stage, int from, int to) {
  return x->states[to] - x->states[from] + x->peak[stage] * (x->activations[to] - x->activations[from]);
}

static double value_of(const search *x, int stage, int from, int to) {
  return x->goal == TR_STAGES_WORK ? x->work[to] - x->work[from] : bytes_of(x, stage, from, to);
}

static void add_up(search *x) {
  for (int i = 0; i < x->n; i++) {
    const tr_stage_part *part = &x->problem->part[i];
    x->work[i + 1] = x->work[i] + part->forward + part->backward;
    x->states[i + 1] = x->states[i] + part->states;
    x->activations[i + 1] = x->activations[i] + part->activations;
  }
}

static void find_peaks(search *x) {
  const tr_schedule *s = x->problem->schedule;
  tr_schedule_peaks(s, TR_HOLD_UNTIL_W, NULL, x->chunk_peak);
  for (int r = 0; r < s->p; r++)
    for (int c = tr_schedule_stages(s, r, x->chunk); c-- > 0;) {
      int *peak = &x->peak[x->chunk[c]];
      if (x->chunk_peak[r * s->v + c] > *peak) *peak = x->chunk_peak[r * s->v + c];
    }
}

// Bytes of a rank of a cut, and its work.
static double rank_sums(const search *x, const int *bound, int rank, double *work) {
  const tr_schedule *s = x->problem->schedule;
  double bytes = 0;
  *work = 0;
  int n = tr_schedule_stages(s, rank, x->chunk);
  for (int c = 0; c < n; c++) {
    int stage = x->chunk[c], from = bound[stage], to = bound[stage + 1];
    *work += x->work[to] - x->work[from];
    bytes += x->states[to] - x->states[from];
    bytes += x->chunk_peak[rank * s->v + c] * (x->activations[to] - x->activations[from]);
  }
  return bytes;
}

// The fullest rank of a cut; its number in *rank.
static double fullest(const search *x, const int *bound, int *rank, double *rank_bytes) {
  double most = -1, work;
  *rank = 0;
  for (int r = 0; r < x->problem->schedule->p; r++) {
    double sum = rank_sums(x, bound, r, &work);
    if (rank_bytes) rank_bytes[r] = sum;
    if (sum > most) most = sum, *rank = r;
  }
  return most;
}

// ---- the search

static void search_free(search *x) {
  free(x->work);
  free(x->best);
  free(x->from);
  free(x->peak);
}

static tr_status search_make(const tr_stage_problem *problem, search *x) {
  const tr_schedule *s = problem->schedule;
  size_t n = (size_t)problem->npart + 1, S = (size_t)s->S, chunks = (size_t)s->p * (size_t)s->v;
  *x = (search){.problem = problem,
                .goal = problem->goal,
                .S = s->S,
                .n = problem->npart,
                .cap = INFINITY,
                .work = calloc(3 * n, sizeof *x->work),
                .best = malloc((S + 1) * n * sizeof *x->best),
                .from = malloc((S + 1) * n * sizeof *x->from),
                .peak = calloc(S + chunks + (size_t)s->v, sizeof *x->peak)};
  if (!x->work || !x->best || !x->from || !x->peak) {
    search_free(x);
    return tr_error(TR_ERR_MEMORY, "no memory to cut %d parts into %d stages", problem->npart, s->S);
  }
  x->states = x->work + n;
  x->activations = x->states + n;
  x->chunk_peak = x->peak + S;
  x->chunk = x->chunk_peak + chunks;
  add_up(x);
  find_peaks(x);
  return TR_OK;
}

static size_t at(const search *x, int stages, int parts) {
  return (size_t)stages * ((size_t)x->n + 1) + (size_t)parts;
}

// The best last stage of s over the first j parts: the largest stage is least (`most` infinite), or the sum of squares of
// stages that are at most `most` each. Of equals the one that gives the last stage more, since early stages have more alive.
static void extend(search *x, int s, int j, double most) {
  double best = INFINITY;
  int from = -1;
  for (int i = j - 1; i >= s - 1; i--) {
    double value = value_of(x, s - 1, i, j), before = x->best[at(x, s - 1, i)];
    if (value > most || bytes_of(x, s - 1, i, j) > x->cap) break; // longer runs have more
    double all = isinf(most) ? fmax(before, value) : before + value * value;
    if (all <= best && !isinf(all)) best = all, from = i;
  }
  x->best[at(x, s, j)] = best;
  x->from[at(x, s, j)] = from;
}

static double sweep(search *x, double most) {
  for (int j = 0; j <= x->n; j++) x->best[at(x, 0, j)] = j == 0 ? 0 : INFINITY;
  for (int s = 1; s <= x->S; s++)
    for (int j = 0; j <= x->n; j++) extend(x, s, j, most);
  return x->best[at(x, x->S, x->n)];
}

// Whether there is a cut within the cap of a stage.
static int cut(search *x, int *bound) {
  double most = sweep(x, INFINITY);
  if (isinf(most)) return 0;
  sweep(x, most);
  bound[x->S] = x->n;
  for (int s = x->S; s > 0; s--) bound[s - 1] = x->from[at(x, s, bound[s])];
  return 1;
}

static double largest_stage(const search *x, int rank, const int *bound) {
  double most = 0;
  int n = tr_schedule_stages(x->problem->schedule, rank, x->chunk);
  for (int c = 0; c < n; c++) most = fmax(most, bytes_of(x, x->chunk[c], bound[x->chunk[c]], bound[x->chunk[c] + 1]));
  return most;
}

// ---- ranks with several stages

enum { EVEN_MOST = 128 }; // stages, as every step tries S^2 moves at S each

// Sum of squares of what ranks have of the goal, with `*most`, the largest; infinite when a stage is empty or over `stage_most`, or a
// rank over the limit.
static double unevenness(const search *x, const int *bound, double stage_most, double *most) {
  double squares = 0;
  *most = 0;
  for (int i = 0; i < x->S; i++)
    if (bound[i] >= bound[i + 1] || value_of(x, i, bound[i], bound[i + 1]) > stage_most ||
        bytes_of(x, i, bound[i], bound[i + 1]) > x->cap)
      return INFINITY;
  for (int r = 0; r < x->problem->schedule->p; r++) {
    double work, bytes = rank_sums(x, bound, r, &work);
    const double value = x->goal == TR_STAGES_WORK ? work : bytes;
    if (x->problem->limit > 0 && bytes > x->problem->limit) return INFINITY;
    squares += value * value;
    *most = fmax(*most, value);
  }
  return squares;
}

static void shift(int *bound, int first, int last, int by) {
  for (int i = first; i <= last; i++) bound[i] += by;
}

// One part from one stage to another, those between handing one on: the move after which ranks are evenest, none more loaded than
// the most loaded is. Returns whether there is one.
static int even_out_once(const search *x, int *bound, double stage_most) {
  double most, after;
  double best = unevenness(x, bound, stage_most, &most) * (1 - 1e-12);
  int first = 0, last = 0, way = 0;
  for (int a = 1; a < x->S; a++)
    for (int b = a; b < x->S; b++)
      for (int by = -1; by <= 1; by += 2) {
        shift(bound, a, b, by);
        const double squares = unevenness(x, bound, stage_most, &after);
        shift(bound, a, b, -by);
        if (squares < best && after <= most * (1 + 1e-12)) best = squares, first = a, last = b, way = by;
      }
  if (way) shift(bound, first, last, way);
  return way != 0;
}

static void even_out(const search *x, int *bound) {
  double stage_most = 0;
  if (x->problem->schedule->v == 1 || x->S > EVEN_MOST) return;
  for (int s = 0; s < x->S; s++) stage_most = fmax(stage_most, value_of(x, s, bound[s], bound[s + 1]));
  while (even_out_once(x, bound, stage_most)) {
  }
}

// Lowers the cap until all ranks are within the limit: each round rules out the largest stage of a rank that is not.
static int cut_within(search *x, int *bound) {
  double limit = x->problem->limit > 0 ? x->problem->limit : INFINITY;
  int rank;
  for (x->cap = limit; cut(x, bound);) {
    if (fullest(x, bound, &rank, NULL) <= limit) return 1;
    x->cap = nextafter(largest_stage(x, rank, bound), 0);
  }
  return 0;
}

static tr_status refuse_limit(search *x, int *bound) {
  char limit[32], bytes[32];
  int rank = 0;
  x->cap = INFINITY;
  x->goal = TR_STAGES_MEMORY;
  (void)cut(x, bound);
  tr_format_bytes(bytes, sizeof bytes, fullest(x, bound, &rank, NULL));
  tr_format_bytes(limit, sizeof limit, x->problem->limit);
  return tr_error(
      TR_ERR_PLAN,
      "%d stages with schedule %s do not fit into %s a rank: cut for memory alone, rank %d takes %s; more ranks, "
      "a schedule with fewer micro-batches alive or a smaller micro-batch works",
      x->S, x->problem->schedule->name, limit, rank, bytes);
}

static tr_status check_parts(const tr_stage_problem *problem) {
  int S = problem->schedule->S;
  if (problem->npart >= S) return TR_OK;
  return tr_error(TR_ERR_PLAN, "%d stages, but the model can be cut into at most %d; p x v up to %d works", S,
                  problem->npart, problem->npart);
}

tr_status tr_stages_balance(const tr_stage_problem *problem, int *bound) {
  search x;
  TR_TRY(check_parts(problem));
  TR_TRY(search_make(problem, &x));
  tr_status status = cut_within(&x, bound) ? TR_OK : refuse_limit(&x, bound);
  if (status == TR_OK) even_out(&x, bound);
  search_free(&x);
  return status;
}

// ---- given counts

static int count_layers(const tr_stage_problem *problem) {
  int n = 0;
  for (int i = 0; i < problem->npart; i++) n += problem->part[i].layers;
  return n;
}

// The next count of a list; -1: it is none.
static int next_count(const char **at) {
  size_t digits = strspn(*at, "0123456789");
  int n = digits > 0 && digits <= 6 ? (int)strtol(*at, NULL, 10) : -1;
  *at += digits;
  if (**at == ',' && (*at)[1])
    ++*at;
  else if (**at)
    n = -1;
  return n;
}

// The first part from `from` on that is a layer; npart: none.
static int next_layer(const tr_stage_problem *problem, int from) {
  while (from < problem->npart && !problem->part[from].layers) from++;
  return from;
}

// Moves *part behind `layers` layers, and what is no layer before the next one; what is behind the last is for the last stage.
// Returns the layers that it could not cut off, because a part has several.
static int take_layers(const tr_stage_problem *problem, int layers, int *part) {
  int next = next_layer(problem, *part);
  while (next < problem->npart && layers >= problem->part[next].layers) {
    layers -= problem->part[next].layers;
    *part = next + 1;
    next = next_layer(problem, *part);
  }
  if (next < problem->npart) *part = next;
  return layers;
}

static tr_status read_counts(const tr_stage_problem *problem, const char *layers, int *count) {
  int S = problem->schedule->S, n = 0, sum = 0, all = count_layers(problem);
  for (const char *at = layers; n == 0 || *at; n++) {
    int one = next_count(&at);
    if (one < 0 || one > all)
      return tr_error(TR_ERR_PLAN, "layers \"%.80s\": entry %d is no count of layers; \"4,3,3,2\" works", layers, n);
    if (n < S) count[n] = one;
    sum += one;
  }
  if (n != S)
    return tr_error(TR_ERR_PLAN, "layers \"%.80s\" has %d count%s for %d stage%s; one per stage works", layers, n,
                    tr_text_plural(n, "s"), S, tr_text_plural(S, "s"));
  if (sum != all)
    return tr_error(TR_ERR_PLAN, "layers \"%.80s\" makes %d layer%s; the model has %d", layers, sum,
                    tr_text_plural(sum, "s"), all);
  return TR_OK;
}

static tr_status place_counts(const tr_stage_problem *problem, const int *count, int *bound) {
  int S = problem->schedule->S;
  bound[0] = 0;
  for (int s = 0; s < S; s++) {
    bound[s + 1] = bound[s];
    int left = take_layers(problem, count[s], &bound[s + 1]);
    if (left)
      return tr_error(TR_ERR_PLAN, "stage %d: the model cannot be cut behind %d layers; %d works", s, count[s],
                      count[s] - left);
    if (s == S - 1) bound[S] = problem->npart;
    if (bound[s + 1] == bound[s])
      return tr_error(TR_ERR_PLAN, "stage %d has no layer and nothing else either; 1 layer works", s);
  }
  return TR_OK;
}

tr_status tr_stages_count(const tr_stage_problem *problem, const char *layers, int *bound) {
  int *count = calloc((size_t)problem->schedule->S, sizeof *count);
  if (!count) return tr_error(TR_ERR_MEMORY, "no memory for %d stages", problem->schedule->S);
  tr_status status = read_counts(problem, layers, count);
  if (status == TR_OK) status = place_counts(problem, count, bound);
  free(count);
  return status;
}

// ---- what came out

tr_status tr_stages_sum(const tr_stage_problem *problem, const int *bound, tr_stage_sum *stage, double *rank_bytes) {
  search x;
  int rank;
  TR_TRY(search_make(problem, &x));
  for (int s = 0; s < x.S; s++) {
    stage[s] = (tr_stage_sum){.peak = x.peak[s], .bytes = bytes_of(&x, s, bound[s], bound[s + 1])};
    tr_stage_part *all = &stage[s].all;
    for (int i = bound[s]; i < bound[s + 1]; i++) {
      const tr_stage_part *part = &problem->part[i];
      all->forward += part->forward;
      all->backward += part->backward;
      all->states += part->states;
      all->activations += part->activations;
      all->layers += part->layers;
    }
  }
  (void)fullest(&x, bound, &rank, rank_bytes);
  search_free(&x);
  return TR_OK;
}
