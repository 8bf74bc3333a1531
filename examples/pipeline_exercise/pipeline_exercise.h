// SPDX-License-Identifier: MIT
// The exercise: two pipeline schedules, a simulator for them, and the bubble, in five functions of yours (pipeline_exercise.c).
//
// p ranks; rank r holds stage r of a model. m micro-batches pass through all stages, forward ('F') from rank 0 to rank p - 1, then
// backward ('B') from rank p - 1 to rank 0. A rank does one operation at a time, in the order of its list. README.md has the
// rules, `make check` tells what is missing.
#ifndef PIPELINE_EXERCISE_H
#define PIPELINE_EXERCISE_H

enum { MOST_RANKS = 16, MOST_OPS = 128, TABLE_ROWS = 3 };

typedef struct operation {
  char kind; // 'F' or 'B'
  int micro; // 0 .. m - 1
} operation;

typedef struct op_list {
  operation op[MOST_OPS];
  int n;
} op_list;

typedef struct pass_costs {
  double forward, backward; // of one micro-batch on one rank
  double latency;           // from the end of an operation to its result's arrival on a neighbour
} pass_costs;

typedef struct timeline {
  double start[MOST_RANKS][MOST_OPS]; // of the nth operation of each rank's list
  double makespan;                    // when the last operation ends; the first starts at 0
  int peak[MOST_RANKS]; // most micro-batches that a rank holds at once: from the start of F to the end of B
} timeline;

typedef struct table_row {
  int micro;
  double makespan, bubble;   // F = 1, B = 2
  int peak_gpipe, peak_1f1b; // of rank 0
} table_row;

// What `rank` does, in order.
void gpipe_list(int p, int m, int rank, op_list *out);
void one_f_one_b_list(int p, int m, int rank, op_list *out);
// Returns 1 when all lists (one per rank) run to their end, 0 when the ranks wait for each other for ever.
int simulate(int p, const op_list *list, const pass_costs *costs, timeline *out);
// The share of all ranks' time that is idle, for equal stages and no latency, in closed form.
double bubble_formula(int p, int m);
// A row for each number of micro-batches.
void bubble_table(int p, const int micro[TABLE_ROWS], table_row row[TABLE_ROWS]);

#endif
