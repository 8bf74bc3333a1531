// SPDX-License-Identifier: MIT
// Tables as comma-separated text (RFC 4180): a header and rows, fields in quotes where they hold commas or line ends.
#include "plan/csv_internal.h"
#include "trireme/base/file.h"
#include "trireme/base/text.h"
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 256 << 20, COLUMNS_MOST = 256 };

// Cuts one field at *at, in place, and moves *at behind it. 1: another field follows in this row.
static int cut_field(char **at, char **field) {
  char *from = *at, *to = *at;
  *field = to;
  if (*from == '"') {
    for (from++; *from && !(from[0] == '"' && from[1] != '"'); from++) {
      if (*from == '"') from++;
      *to++ = *from;
    }
    if (*from == '"') from++;
  }
  while (*from && *from != ',' && *from != '\n' && *from != '\r') *to++ = *from++;
  int more = *from == ',';
  if (from[0] == '\r' && from[1] == '\n') from++;
  if (*from) from++;
  *to = '\0';
  *at = from;
  return more;
}

static tr_status grow(tr__csv *csv, size_t need, size_t *room) {
  if (need <= *room) return TR_OK;
  *room = need * 2;
  char **more = realloc(csv->field, *room * sizeof *more);
  if (!more) return tr_error(TR_ERR_MEMORY, "no memory for a table of %zu fields", need);
  csv->field = more;
  return TR_OK;
}

static tr_status check_names(const tr__csv *csv, const char *path) {
  for (size_t i = 0; i < csv->ncolumn; i++)
    if (tr__csv_column(csv, csv->field[i]) != (int)i)
      return tr_error(TR_ERR_DATA, "%s: column '%.40s' stands there twice", path, csv->field[i]);
  return TR_OK;
}

static tr_status cut(tr__csv *csv, const char *path) {
  size_t n = 0, room = 0;
  for (char *at = csv->text + tr_text_mark(csv->text, strlen(csv->text)); *at;) {
    size_t first = n, columns = 0;
    for (int more = 1; more; columns++, n++) {
      TR_TRY(grow(csv, n + 1, &room));
      more = cut_field(&at, &csv->field[n]);
      if (columns >= COLUMNS_MOST) return tr_error(TR_ERR_DATA, "%s: more than %d columns", path, COLUMNS_MOST);
    }
    if (columns == 1 && *csv->field[first] == '\0') {
      n = first; // an empty line
      continue;
    }
    if (csv->ncolumn == 0) csv->ncolumn = columns;
    if (columns != csv->ncolumn)
      return tr_error(TR_ERR_DATA, "%s: row %zu has %zu columns, the header has %zu", path, csv->nrow, columns,
                      csv->ncolumn);
    csv->nrow++;
  }
  if (csv->nrow == 0)
    return tr_error(TR_ERR_DATA, "%s is empty; a header with the columns' names was expected", path);
  csv->nrow--;
  return check_names(csv, path);
}

tr_status tr__csv_load(const char *path, tr__csv *out) {
  size_t nbyte;
  *out = (tr__csv){0};
  TR_TRY(tr_file_read(path, FILE_LIMIT, &out->text, &nbyte));
  tr_status status = strlen(out->text) < nbyte ? tr_error(TR_ERR_DATA, "%s holds a zero byte; it is no table", path)
                                               : cut(out, path);
  if (status < 0) tr__csv_unload(out);
  return status;
}

void tr__csv_unload(tr__csv *csv) {
  free(csv->field);
  free(csv->text);
  *csv = (tr__csv){0};
}

int tr__csv_column(const tr__csv *csv, const char *name) {
  for (size_t i = 0; i < csv->ncolumn; i++)
    if (strcmp(csv->field[i], name) == 0) return (int)i;
  return -1;
}

const char *tr__csv_at(const tr__csv *csv, size_t row, int column) {
  return column < 0 ? "" : csv->field[(row + 1) * csv->ncolumn + (size_t)column];
}
