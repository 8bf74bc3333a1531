// SPDX-License-Identifier: MIT
// Seven checks of the exercise. Each prints a line: ok, or what was found and what is right. When all are, the two schedules are
// drawn and the table printed. The exit status is the number of checks that failed.
#include "pipeline_draw.h"
#include "pipeline_exercise.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { P = 4, M = 8 };

static const pass_costs plain = {.forward = 1, .backward = 2}, late = {.forward = 1, .backward = 2, .latency = 0.5};
typedef void (*make_list)(int p, int m, int rank, op_list *out);

static int same(double a, double b) { return fabs(a - b) < 1e-9; }

// Keeps the first complaint of a check.
static char complaint[512];
static int wrong(const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (!*complaint) vsnprintf(complaint, sizeof complaint, format, args);
  va_end(args);
  return 0;
}

// ---- 1, 2: lists

static void write_list(const op_list *list, char *out, size_t nbyte) {
  size_t n = 0;
  out[0] = '\0';
  for (int i = 0; i < list->n && i < MOST_OPS && n + 8 < nbyte; i++)
    n += (size_t)snprintf(out + n, nbyte - n, "%s%c%d", i ? " " : "", list->op[i].kind ? list->op[i].kind : '?',
                          list->op[i].micro);
}

static int expect_list(make_list make, int p, int m, int rank, const char *want) {
  op_list list = {0};
  char got[1024];
  make(p, m, rank, &list);
  write_list(&list, got, sizeof got);
  return strcmp(got, want) == 0 || wrong("rank %d of p=%d, m=%d does '%s'; it should do '%s'", rank, p, m, got, want);
}

static int check_gpipe(void) {
  int ok = 1;
  for (int r = 0; r < P; r++)
    ok &= expect_list(gpipe_list, P, M, r, "F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7");
  return ok & expect_list(gpipe_list, 2, 1, 1, "F0 B0");
}

static int check_1f1b(void) {
  static const char *const want[P] = {
      "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7", "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
      "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7", "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"};
  static const char *const few[P] = {"F0 F1 B0 B1", "F0 F1 B0 B1", "F0 F1 B0 B1", "F0 B0 F1 B1"};
  int ok = 1;
  for (int r = 0; r < P; r++) ok &= expect_list(one_f_one_b_list, P, M, r, want[r]);
  for (int r = 0; r < P; r++) ok &= expect_list(one_f_one_b_list, P, 2, r, few[r]); // fewer micro-batches than ranks
  return ok;
}

// ---- 3: times

static int run(make_list make, const char *name, int p, int m, const pass_costs *costs, op_list *list,
               timeline *out) {
  memset(out, 0, sizeof *out);
  for (int r = 0; r < p; r++) {
    list[r].n = 0;
    make(p, m, r, &list[r]);
  }
  return simulate(p, list, costs, out) ||
         wrong("simulate() returns 0 for %s, p=%d, m=%d: the lists can run to their end", name, p, m);
}

static double gpipe_start(int rank, operation o) {
  return o.kind == 'F' ? rank + o.micro : M + P - 1 + 2 * (P - 1 - rank) + 2 * o.micro;
}

static double one_f_one_b_start(int rank, operation o) {
  const int ahead = P - 1 - rank, k = o.micro - ahead;
  if (o.kind == 'B') return P + 2 * ahead + 3 * o.micro;
  return k <= 0 ? rank + o.micro : P + 2 * ahead + 3 * (k - 1) + 2; // when B(k - 1) has ended
}

static int expect_starts(make_list make, const char *name, double (*start)(int, operation)) {
  op_list list[MOST_RANKS];
  timeline t;
  if (!run(make, name, P, M, &plain, list, &t)) return 0;
  for (int r = 0; r < P; r++)
    for (int i = 0; i < list[r].n; i++) {
      const operation o = list[r].op[i];
      if (!same(t.start[r][i], start(r, o)))
        return wrong("%s: %c%d of rank %d starts at %g; it can start at %g", name, o.kind, o.micro, r, t.start[r][i],
                     start(r, o));
    }
  return (same(t.makespan, 33) && list[0].n == 2 * M) ||
         wrong("%s ends at %g; it should end at 33", name, t.makespan);
}

static int check_times(void) {
  static op_list stuck[2];
  timeline t;
  int ok =
      expect_starts(gpipe_list, "GPipe", gpipe_start) & expect_starts(one_f_one_b_list, "1F1B", one_f_one_b_start);
  for (int r = 0; r < 2; r++) stuck[r] = (op_list){.op = {{r ? 'F' : 'B', 0}, {r ? 'B' : 'F', 0}}, .n = 2};
  if (simulate(2, stuck, &plain, &t))
    ok = wrong("simulate() returns 1 although rank 0 does B0 before F0, which can never run");
  return ok;
}

// ---- 4 to 7: numbers

static int check_bubble(void) {
  static const int size[][2] = {{4, 8}, {4, 4}, {8, 24}, {2, 1}};
  op_list list[MOST_RANKS];
  timeline t;
  for (size_t k = 0; k < sizeof size / sizeof *size; k++) {
    const int p = size[k][0], m = size[k][1];
    const double formula = bubble_formula(p, m);
    if (!run(gpipe_list, "GPipe", p, m, &plain, list, &t)) return 0;
    const double measured = 1 - m * (plain.forward + plain.backward) / t.makespan;
    if (!same(formula, measured))
      return wrong("p=%d, m=%d: the formula gives %.4f; GPipe is idle for %.4f of its time", p, m, formula, measured);
  }
  return same(bubble_formula(4, 8), 3.0 / 11) ||
         wrong("the bubble of p=4, m=8 is %.4f; it should be 0.2727", bubble_formula(4, 8));
}

static int check_peaks(void) {
  op_list list[MOST_RANKS];
  timeline gpipe, alternating;
  if (!run(gpipe_list, "GPipe", P, M, &plain, list, &gpipe)) return 0;
  if (!run(one_f_one_b_list, "1F1B", P, M, &plain, list, &alternating)) return 0;
  for (int r = 0; r < P; r++) {
    if (gpipe.peak[r] != M)
      return wrong("GPipe: rank %d holds %d micro-batches at most; it should be %d", r, gpipe.peak[r], M);
    if (alternating.peak[r] != P - r)
      return wrong("1F1B: rank %d holds %d micro-batches at most; it should be %d", r, alternating.peak[r], P - r);
  }
  return 1;
}

static int check_latency(void) {
  op_list list[MOST_RANKS];
  timeline t;
  if (!run(gpipe_list, "GPipe", P, M, &late, list, &t)) return 0;
  if (!same(t.makespan, 36)) return wrong("GPipe with latency 0.5 ends at %g; it should end at 36", t.makespan);
  if (!run(one_f_one_b_list, "1F1B", P, M, &late, list, &t)) return 0;
  return same(t.makespan, 41) || wrong("1F1B with latency 0.5 ends at %g; it should end at 41", t.makespan);
}

static const int micro[TABLE_ROWS] = {4, 8, 32};

static int check_table(void) {
  static const table_row want[TABLE_ROWS] = {
      {4, 21, 3.0 / 7, 4, 4}, {8, 33, 3.0 / 11, 8, 4}, {32, 105, 3.0 / 35, 32, 4}};
  table_row row[TABLE_ROWS] = {{0}};
  bubble_table(P, micro, row);
  for (int i = 0; i < TABLE_ROWS; i++) {
    const table_row *a = &row[i], *b = &want[i];
    if (a->micro != b->micro || !same(a->makespan, b->makespan) || !same(a->bubble, b->bubble) ||
        a->peak_gpipe != b->peak_gpipe || a->peak_1f1b != b->peak_1f1b)
      return wrong("m=%d: makespan %g, bubble %.4f, peaks %d and %d; it should be %g, %.4f, %d and %d", b->micro,
                   a->makespan, a->bubble, a->peak_gpipe, a->peak_1f1b, b->makespan, b->bubble, b->peak_gpipe,
                   b->peak_1f1b);
  }
  return 1;
}

// ---- all of it

static void show(void) {
  static const struct {
    const char *name;
    make_list make;
  } schedule[] = {{"GPipe", gpipe_list}, {"1F1B", one_f_one_b_list}};
  op_list list[MOST_RANKS];
  table_row row[TABLE_ROWS];
  timeline t;
  for (int k = 0; k < 2; k++) {
    run(schedule[k].make, schedule[k].name, P, M, &plain, list, &t);
    printf("\n%s, p=%d, m=%d, F=1, B=2: ends at %g\n", schedule[k].name, P, M, t.makespan);
    draw(P, list, &plain, &t);
  }
  printf("\np=%d\n   m   makespan   bubble   held by GPU0: GPipe   1F1B\n", P);
  bubble_table(P, micro, row);
  for (int i = 0; i < TABLE_ROWS; i++)
    printf("%4d %10g %7.2f%% %21d %6d\n", row[i].micro, row[i].makespan, 100 * row[i].bubble, row[i].peak_gpipe,
           row[i].peak_1f1b);
}

int main(void) {
  static const struct {
    const char *name;
    int (*check)(void);
  } check[] = {{"the lists of GPipe", check_gpipe},
               {"the lists of 1F1B, m < p too", check_1f1b},
               {"both end at 33, every start is right", check_times},
               {"the bubble equals the formula", check_bubble},
               {"micro-batches held: 8,8,8,8 and 4,3,2,1", check_peaks},
               {"with latency 0.5 they end at 36 and 41", check_latency},
               {"the table of bubbles", check_table}};
  int failed = 0;
  for (int i = 0; i < 7; i++) {
    complaint[0] = '\0';
    const int ok = check[i].check();
    failed += !ok;
    printf("%d. %-40s %s%s\n", i + 1, check[i].name, ok ? "ok" : "not yet: ", ok ? "" : complaint);
  }
  if (failed)
    printf("\n%d of 7 are right; the functions to write are in pipeline_exercise.c\n", 7 - failed);
  else
    show();
  return failed;
}
