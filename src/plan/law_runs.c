// SPDX-License-Identifier: MIT
// Reading a table of runs (law_runs.h). Cells have no quotes, since they are names and numbers; columns are found by the names in
// the first line, and others are passed over.
#include "trireme/plan/law_runs.h"
#include "trireme/base/file.h"
#include "trireme/base/text.h"
#include "trireme/plan/law_money.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 4 << 20, CELL = 64 };

typedef enum column { LOSS, COMPUTE, PARAMS, TOKENS, KINDS } column;
static const char *const column_name[KINDS] = {"loss", "compute", "params", "tokens"};

typedef struct reader {
  const char *path;
  int at[KINDS]; // place of each column, -1: none
  tr_law_runs *out;
} reader;

// The next cell of the line that goes on at *at, without blanks; 0 when there is none. A cell that is too long is cut with dots, so
// that it is no number.
static int next_cell(const char **at, const char *end, char *cell) {
  if (!*at) return 0;
  const char *stop = *at;
  while (stop < end && *stop != ',') stop++;
  const char *first = *at, *last = stop;
  while (first < last && (*first == ' ' || *first == '\t')) first++;
  while (last > first && (last[-1] == ' ' || last[-1] == '\t' || last[-1] == '\r')) last--;
  int whole = last - first < CELL;
  snprintf(cell, CELL, "%.*s%s", whole ? (int)(last - first) : CELL - 4, first, whole ? "" : "...");
  *at = stop < end ? stop + 1 : NULL;
  return 1;
}

static int is_blank(const char *line, const char *end) {
  while (line < end && strchr(" \t\r,", *line)) line++;
  return line == end;
}

static tr_status read_names(reader *t, const char *line, const char *end) {
  char cell[CELL];
  for (int k = 0; k < KINDS; k++) t->at[k] = -1;
  for (int i = 0; next_cell(&line, end, cell); i++) {
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

static tr_status read_run(reader *t, const char *line, const char *end, int number) {
  char cell[CELL];
  double value[KINDS] = {0};
  int seen[KINDS] = {0};
  for (int i = 0; next_cell(&line, end, cell); i++) {
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
  if (t->out->n == TR_LAW_RUNS) return tr_error(TR_ERR_DATA, "%s: more than %d runs", t->path, TR_LAW_RUNS);
  t->out->loss[t->out->n] = value[LOSS];
  t->out->compute[t->out->n++] =
      t->at[COMPUTE] >= 0 ? value[COMPUTE] : tr_law_train_flop(value[PARAMS], value[TOKENS]);
  return TR_OK;
}

static tr_status read_lines(reader *t, const char *text, size_t nbyte) {
  int number = 0;
  for (const char *line = text, *all = text + nbyte; line < all;) {
    const char *end = memchr(line, '\n', (size_t)(all - line));
    if (!end) end = all;
    number++;
    if (number == 1)
      TR_TRY(read_names(t, line, end));
    else if (!is_blank(line, end))
      TR_TRY(read_run(t, line, end, number));
    line = end < all ? end + 1 : all;
  }
  return number ? TR_OK : tr_error(TR_ERR_DATA, "%s is empty; its first line names columns", t->path);
}

tr_status tr_law_runs_read(const char *text, size_t nbyte, const char *name, tr_law_runs *out) {
  reader t = {.path = name, .out = out};
  out->n = 0;
  if (memchr(text, 0, nbyte)) return tr_error(TR_ERR_DATA, "%s is no text: it has zero bytes", name);
  return read_lines(&t, text, nbyte);
}

tr_status tr_law_runs_load(const char *path, tr_law_runs *out) {
  char *text;
  size_t nbyte;
  TR_TRY(tr_file_read(path, FILE_LIMIT, &text, &nbyte));
  tr_status status = tr_law_runs_read(text, nbyte, path, out);
  free(text);
  return status;
}
