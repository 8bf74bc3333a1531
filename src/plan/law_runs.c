// SPDX-License-Identifier: MIT
// Reading a table of runs (law_runs.h): columns are found by their names in the header, others are passed over.
#include "trireme/plan/law_runs.h"
#include "plan/csv_internal.h"
#include "trireme/base/text.h"
#include "trireme/plan/law_money.h"

typedef struct reader {
  const char *path;
  const tr__csv *csv;
} reader;

static tr_status number_at(const reader *t, size_t row, const char *column, double *out) {
  const char *cell = tr__csv_at(t->csv, row, tr__csv_column(t->csv, column));
  if (tr_parse_real(cell, out) == TR_OK) return TR_OK;
  return tr_error(TR_ERR_DATA, "%s: row %zu: %s '%.40s' is no number, as in 1e18", t->path, row + 1, column, cell);
}

static tr_status read_rows(const reader *t, tr_law_runs *out) {
  const tr__csv *csv = t->csv;
  int compute = tr__csv_column(csv, "compute") >= 0;
  if (tr__csv_column(csv, "loss") < 0)
    return tr_error(TR_ERR_DATA, "%s: no column 'loss' in the first line", t->path);
  if (!compute && (tr__csv_column(csv, "params") < 0 || tr__csv_column(csv, "tokens") < 0))
    return tr_error(TR_ERR_DATA, "%s: no column 'compute', nor 'params' and 'tokens', in the first line", t->path);
  if (csv->nrow > TR_LAW_RUNS) return tr_error(TR_ERR_DATA, "%s: more than %d runs", t->path, TR_LAW_RUNS);
  for (out->n = 0; out->n < csv->nrow; out->n++) {
    double params, tokens;
    TR_TRY(number_at(t, out->n, "loss", &out->loss[out->n]));
    if (compute) {
      TR_TRY(number_at(t, out->n, "compute", &out->compute[out->n]));
    } else {
      TR_TRY(number_at(t, out->n, "params", &params));
      TR_TRY(number_at(t, out->n, "tokens", &tokens));
      out->compute[out->n] = tr_law_train_flop(params, tokens);
    }
  }
  return TR_OK;
}

tr_status tr_law_runs_load(const char *path, tr_law_runs *out) {
  tr__csv csv;
  TR_TRY(tr__csv_load(path, &csv));
  tr_status status = read_rows(&(reader){path, &csv}, out);
  tr__csv_unload(&csv);
  return status;
}
