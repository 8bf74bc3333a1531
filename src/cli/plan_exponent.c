// SPDX-License-Identifier: MIT
// `trireme plan fit-exponent`: the compute power law of somebody's own runs, from a table with commas: the columns loss, and
// compute (FLOP) or params and tokens, found by their names in the first line. What the law says for a target is
// printed with how far beyond the runs it is.
#include "cli/cli_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/base/file.h"
#include "trireme/plan/law_money.h"
#include "trireme/plan/law_power.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 4 << 20, RUNS = 4096, CELL = 64 };

typedef struct request {
  const char *path;
  double floor, loss, compute;
  int json;
} request;

typedef enum column { LOSS, COMPUTE, PARAMS, TOKENS, KINDS } column;
static const char *const column_name[KINDS] = {"loss", "compute", "params", "tokens"};

typedef struct table {
  const char *path;
  int at[KINDS]; // place of each column, -1: none
  size_t n;
  double compute[RUNS], loss[RUNS];
} table;

static tr_status print_help(void) {
  printf(
      "usage: trireme plan fit-exponent RUNS.csv [--floor E] [--target LOSS] [--at FLOP] [--json]\n\n"
      "Fit loss = floor + scale / FLOP^exponent to runs that were tuned alike. RUNS.csv has a first line with the\n"
      "names of its columns: loss, and compute (FLOP of the run) or params and tokens (6 x params x tokens).\n\n"
      "  --floor E        the loss that no run gets below; fitted from four runs on unless given\n"
      "  --target LOSS    the operations that this loss needs\n"
      "  --at FLOP        the loss that these operations give\n\n"
      "example: printf 'params,tokens,loss\\n1e7,2e8,4.9\\n1e8,2e9,3.9\\n1e9,2e10,3.2\\n' >runs.csv\n"
      "         trireme plan fit-exponent runs.csv --target 2.8\n");
  return TR_OK;
}

// ---- the table

// The cell from *at on, without blanks; *at is moved behind it. Cells have no quotes: they are names and numbers.
static void next_cell(const char **at, const char *end, char *cell) {
  const char *stop = *at;
  while (stop < end && *stop != ',') stop++;
  const char *first = *at, *last = stop;
  while (first < last && (*first == ' ' || *first == '\t')) first++;
  while (last > first && (last[-1] == ' ' || last[-1] == '\t' || last[-1] == '\r')) last--;
  snprintf(cell, CELL, "%.*s", (int)(last - first < CELL - 1 ? last - first : CELL - 1), first);
  *at = stop < end ? stop + 1 : end + 1;
}

static tr_status read_names(table *t, const char *line, const char *end) {
  char cell[CELL];
  for (int k = 0; k < KINDS; k++) t->at[k] = -1;
  for (int i = 0; line <= end; i++) {
    next_cell(&line, end, cell);
    for (int k = 0; k < KINDS; k++) {
      if (strcmp(cell, column_name[k]) != 0) continue;
      if (t->at[k] >= 0) return tr_error(TR_ERR_DATA, "%s:1: column '%s' stands there twice", t->path, cell);
      t->at[k] = i;
    }
  }
  if (t->at[LOSS] < 0) return tr_error(TR_ERR_DATA, "%s:1: no column 'loss' in the first line", t->path);
  if (t->at[COMPUTE] < 0 && (t->at[PARAMS] < 0 || t->at[TOKENS] < 0))
    return tr_error(TR_ERR_DATA, "%s:1: no column 'compute', nor 'params' and 'tokens', in the first line", t->path);
  return TR_OK;
}

static tr_status read_run(table *t, const char *line, const char *end, int number) {
  char cell[CELL];
  double value[KINDS] = {0};
  int seen[KINDS] = {0};
  for (int i = 0; line <= end; i++) {
    next_cell(&line, end, cell);
    for (int k = 0; k < KINDS; k++) {
      if (t->at[k] != i) continue;
      if (tr_parse_real(cell, &value[k]) < 0)
        return tr_error(TR_ERR_DATA, "%s:%d: %s '%s' is no number, as in 1e18", t->path, number, column_name[k],
                        cell);
      seen[k] = 1;
    }
  }
  for (int k = 0; k < KINDS; k++)
    if (t->at[k] >= 0 && !seen[k])
      return tr_error(TR_ERR_DATA, "%s:%d: the line ends before its %s", t->path, number, column_name[k]);
  if (t->n == RUNS) return tr_error(TR_ERR_DATA, "%s: more than %d runs", t->path, RUNS);
  t->loss[t->n] = value[LOSS];
  t->compute[t->n++] = t->at[COMPUTE] >= 0 ? value[COMPUTE] : tr_law_train_flop(value[PARAMS], value[TOKENS]);
  return TR_OK;
}

static tr_status read_lines(table *t, const char *text, size_t nbyte) {
  int number = 0;
  for (const char *line = text, *all = text + nbyte; line < all;) {
    const char *end = memchr(line, '\n', (size_t)(all - line));
    if (!end) end = all;
    number++;
    int blank = strspn(line, " \t\r,") >= (size_t)(end - line);
    if (number == 1)
      TR_TRY(read_names(t, line, end));
    else if (!blank)
      TR_TRY(read_run(t, line, end, number));
    line = end + 1;
  }
  return number ? TR_OK : tr_error(TR_ERR_DATA, "%s is empty; its first line names columns", t->path);
}

static tr_status read_table(const char *path, table *t) {
  char *text;
  size_t nbyte;
  TR_TRY(tr_file_read(path, FILE_LIMIT, &text, &nbyte));
  t->path = path;
  tr_status status = memchr(text, 0, nbyte) ? tr_error(TR_ERR_DATA, "%s is no text: it has zero bytes", path)
                                            : read_lines(t, text, nbyte);
  free(text);
  return status;
}

// ---- the command

static tr_status parse(int argc, char **argv, request *r) {
  *r = (request){.floor = NAN, .loss = NAN, .compute = NAN};
  const tr__argument options[] = {
      {.name = "--floor", .kind = TR__ARGUMENT_REAL, .out = &r->floor, .min = 0, .max = 1e6},
      {.name = "--target", .kind = TR__ARGUMENT_REAL, .out = &r->loss, .min = 1e-9, .max = 1e6},
      {.name = "--at", .kind = TR__ARGUMENT_AMOUNT, .out = &r->compute, .min = 1, .max = 1e40},
      {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  return tr__cli_parse("plan fit-exponent", argc, argv, options, sizeof options / sizeof *options,
                       "the table of runs, as in runs.csv", &r->path);
}

static void report(tr__plan_report *out, const request *r, const table *t, const tr_law_power *law) {
  tr__plan_value(out, "runs", "runs", TR__PLAN_COUNT, (double)t->n);
  tr__plan_value(out, "from (FLOP)", "least_flop", TR__PLAN_NUMBER, law->least);
  tr__plan_value(out, "to (FLOP)", "most_flop", TR__PLAN_NUMBER, law->most);
  tr__plan_value(out, "exponent", "exponent", TR__PLAN_NUMBER, law->exponent);
  tr__plan_value(out, "standard error of the exponent", "exponent_error", TR__PLAN_NUMBER, law->exponent_error);
  tr__plan_value(out, "scale", "scale", TR__PLAN_NUMBER, law->scale);
  tr__plan_value(out, "floor", "floor", TR__PLAN_NUMBER, law->floor);
  tr__plan_value(out, "scatter of the loss above the floor", "residual", TR__PLAN_SHARE, law->residual);
  if (!isnan(r->loss)) {
    double flop = tr_law_power_compute(law, r->loss);
    tr_law_warning far = tr_law_lint_far_extrapolation(law, flop);
    tr__plan_value(out, "operations for the target (FLOP)", "target_flop", TR__PLAN_NUMBER, flop);
    tr__plan_warning(out, &far);
  }
  if (isnan(r->compute)) return;
  tr_law_warning far = tr_law_lint_far_extrapolation(law, r->compute);
  tr__plan_value(out, "loss at these operations", "loss_at", TR__PLAN_NUMBER, tr_law_power_loss(law, r->compute));
  tr__plan_warning(out, &far);
}

static tr_status fit(const request *r, table *t) {
  tr_law_power law;
  tr__plan_report out;
  TR_TRY(read_table(r->path, t));
  tr_status status = tr_law_power_fit(t->n, t->compute, t->loss, r->floor, &law);
  if (status < 0) tr_error_prefix("%s", r->path);
  TR_TRY(status);
  if (r->loss <= law.floor)
    return tr__cli_usage("plan fit-exponent", "--target %.15g is not above the floor %.6g of these runs", r->loss,
                         law.floor);
  tr__plan_begin(&out, "fit-exponent", r->json);
  report(&out, r, t, &law);
  return tr__plan_end(&out);
}

tr_status tr__plan_exponent(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) return print_help();
  request r;
  TR_TRY(parse(argc, argv, &r));
  table *t = calloc(1, sizeof *t);
  if (!t) return tr_error(TR_ERR_MEMORY, "no memory for %d runs", RUNS);
  tr_status status = fit(&r, t);
  free(t);
  return status;
}
