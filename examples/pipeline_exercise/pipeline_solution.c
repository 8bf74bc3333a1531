// SPDX-License-Identifier: MIT
// A solution of the exercise, as plain as it can be.
#include "pipeline_exercise.h"

static void append(op_list *list, char kind, int micro) { list->op[list->n++] = (operation){kind, micro}; }

void gpipe_list(int p, int m, int rank, op_list *out) {
  (void)p, (void)rank; // all ranks do the same
  out->n = 0;
  for (int i = 0; i < m; i++) append(out, 'F', i);
  for (int i = 0; i < m; i++) append(out, 'B', i);
}

// A rank can be ahead of the last one by as many micro-batches as there are ranks between them.
void one_f_one_b_list(int p, int m, int rank, op_list *out) {
  const int warm_up = m < p - 1 - rank ? m : p - 1 - rank;
  out->n = 0;
  for (int i = 0; i < warm_up; i++) append(out, 'F', i);
  for (int k = 0; warm_up + k < m; k++) {
    append(out, 'F', warm_up + k);
    append(out, 'B', k);
  }
  for (int i = m - warm_up; i < m; i++) append(out, 'B', i);
}

// ---- the simulator

typedef struct run {
  int p;
  const op_list *list;
  const pass_costs *costs;
  timeline *out;
  int next[MOST_RANKS], holds[MOST_RANKS];
  double free_at[MOST_RANKS];
  // When a pass of a micro-batch has ended on a rank, 0: not yet. No pass ends at 0.
  double forward[MOST_RANKS][MOST_OPS], backward[MOST_RANKS][MOST_OPS];
} run;

// When the input of an operation is on its rank; below 0: not known yet.
static double input_at(const run *s, int rank, operation o) {
  const int last = s->p - 1;
  if (o.kind == 'F' && rank == 0) return 0;
  if (o.kind == 'B' && !(s->forward[rank][o.micro] > 0)) return -1;
  if (o.kind == 'B' && rank == last) return s->forward[rank][o.micro];
  const double made = o.kind == 'F' ? s->forward[rank - 1][o.micro] : s->backward[rank + 1][o.micro];
  return made > 0 ? made + s->costs->latency : -1;
}

static void start(run *s, int rank, operation o, double input) {
  const double begin = input > s->free_at[rank] ? input : s->free_at[rank];
  const double end = begin + (o.kind == 'F' ? s->costs->forward : s->costs->backward);
  s->out->start[rank][s->next[rank]++] = begin;
  s->free_at[rank] = end;
  if (end > s->out->makespan) s->out->makespan = end;
  if (o.kind == 'F') {
    s->forward[rank][o.micro] = end;
    if (++s->holds[rank] > s->out->peak[rank]) s->out->peak[rank] = s->holds[rank];
  } else {
    s->backward[rank][o.micro] = end;
    s->holds[rank]--;
  }
}

int simulate(int p, const op_list *list, const pass_costs *costs, timeline *out) {
  run s = {.p = p, .list = list, .costs = costs, .out = out};
  int left = 0;
  *out = (timeline){0};
  for (int r = 0; r < p; r++) left += list[r].n;
  for (int moved = 1; moved && left > 0;) {
    moved = 0;
    for (int r = 0; r < p; r++) {
      if (s.next[r] == list[r].n) continue;
      const operation o = list[r].op[s.next[r]];
      const double input = input_at(&s, r, o);
      if (input < 0) continue;
      start(&s, r, o, input);
      moved = 1;
      left--;
    }
  }
  return left == 0;
}

// ---- the bubble

double bubble_formula(int p, int m) { return (double)(p - 1) / (m + p - 1); }

void bubble_table(int p, const int micro[TABLE_ROWS], table_row row[TABLE_ROWS]) {
  const pass_costs costs = {.forward = 1, .backward = 2};
  for (int i = 0; i < TABLE_ROWS; i++) {
    op_list gpipe[MOST_RANKS], one_f_one_b[MOST_RANKS];
    timeline first, second;
    for (int r = 0; r < p; r++) {
      gpipe_list(p, micro[i], r, &gpipe[r]);
      one_f_one_b_list(p, micro[i], r, &one_f_one_b[r]);
    }
    simulate(p, gpipe, &costs, &first);
    simulate(p, one_f_one_b, &costs, &second);
    row[i] = (table_row){.micro = micro[i],
                         .makespan = second.makespan,
                         .bubble = bubble_formula(p, micro[i]),
                         .peak_gpipe = first.peak[0],
                         .peak_1f1b = second.peak[0]};
  }
}
