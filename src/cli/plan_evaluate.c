// SPDX-License-Identifier: MIT
// `trireme plan evaluate`: predictions for every row of a table of published runs, as a table, or scored against them.
#include "cli/arguments_internal.h"
#include "cli/cli_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/plan/runs.h"
#include <stdio.h>

static void print_help(void) {
  printf("usage: trireme plan evaluate ROWS.csv [--csv] [--summary]\n\n"
         "Predict step time and memory of every row of a table of training runs (the columns are described in\n"
         "docs/plan.md). Rows that cannot be predicted keep their place, with the reason as their note.\n\n"
         "  --csv       id, predicted_step_time_s, its bounds, predicted_mem_gb, its bounds, note (the default)\n"
         "  --summary   how well predictions meet the measurements in the table, overall and by source\n");
}

tr_status tr__plan_evaluate(int argc, char **argv) {
  int csv = 0, summary = 0;
  const char *path = NULL;
  const tr__argument table[] = {{.name = "--csv", .kind = TR__ARGUMENT_FLAG, .out = &csv},
                                {.name = "--summary", .kind = TR__ARGUMENT_FLAG, .out = &summary}};
  tr_runs runs;
  tr_text text = {0};
  if (tr__cli_wants_help(argc, argv)) return print_help(), TR_OK;
  TR_TRY(tr__cli_parse("plan evaluate", argc, argv, table, 2, "a table of training runs (.csv)", &path));
  TR_TRY(tr_runs_load(path, &runs));
  tr_runs_predict(&runs);
  if (csv || !summary) tr_runs_csv(&runs, &text);
  if (summary) tr_runs_summary(&runs, &text);
  tr_runs_unload(&runs);
  tr_status status = text.failed ? tr_error(TR_ERR_MEMORY, "no memory for the table") : TR_OK;
  if (status == TR_OK) fputs(text.data, stdout);
  tr_text_free(&text);
  return status;
}
