// SPDX-License-Identifier: MIT
// `trireme plan embedding`: embedding tables over devices, each copied, given whole to one or cut by rows, and what a batch looks up
// and moves (law_embedding.h).
#include "cli/cli_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/plan/law_embedding.h"
#include <stdio.h>
#include <stdlib.h>

typedef struct request {
  tr_law_table_budget budget;
  double nbyte, optimizer;
  tr__argument_list list;
  int json;
  tr_law_table table[TR__ARGUMENT_LIST_MOST];
  char name[TR__ARGUMENT_LIST_MOST][TR__PLAN_FIELD];
} request;

static tr_status print_help(void) {
  printf(
      "usage: trireme plan embedding --devices N --memory BYTES --table NAME:ROWS:WIDTH[:LOOKUPS] [--table ...]\n\n"
      "  --table NAME:ROWS:WIDTH:LOOKUPS    a table, and the rows of it that a sample looks up (1)\n"
      "  --devices N --memory BYTES         memory that is for tables, of one device\n"
      "  --batch N                          samples of a device (1024)\n"
      "  --bytes X --state-bytes X          of an element (4); of optimizer state for a row (4: row-wise Adagrad)\n"
      "  --copy-below BYTES                 tables up to this are copied to every device (16MB)\n"
      "  --json                             one JSON object\n\n"
      "example: trireme plan embedding --devices 8 --memory 60GiB --table user:500e6:128 --table item:50e6:128:20 "
      "\\\n"
      "                                --table day:366:128\n");
  return TR_OK;
}

static tr_status take_tables(request *r) {
  const char *const form = "NAME:ROWS:WIDTH[:LOOKUPS] as in item:50e6:128:20";
  for (size_t i = 0; i < r->list.n; i++) {
    char field[4][TR__PLAN_FIELD];
    const char *text = r->list.item[i];
    size_t n;
    tr_law_table *t = &r->table[i];
    *t = (tr_law_table){.name = r->name[i], .nbyte = r->nbyte, .optimizer = r->optimizer, .pooling = 1};
    TR_TRY(tr__plan_split("embedding", "--table", text, field, 3, 4, form, &n));
    TR_TRY(tr__plan_field("embedding", "--table", text, field[1], 0, &t->rows));
    TR_TRY(tr__plan_field("embedding", "--table", text, field[2], 0, &t->width));
    if (n == 4) TR_TRY(tr__plan_field("embedding", "--table", text, field[3], 0, &t->pooling));
    if (!(t->rows >= 1 && t->width >= 1))
      return tr__cli_usage("plan embedding", "--table %.80s has less than a row or an element", text);
    snprintf(r->name[i], TR__PLAN_FIELD, "%s", field[0]);
  }
  return TR_OK;
}

static tr_status parse(int argc, char **argv, request *r) {
  *r = (request){.budget = {.batch = 1024, .copy_below = 16e6}, .nbyte = 4, .optimizer = 4};
  tr_law_table_budget *b = &r->budget;
  int64_t devices = 0;
  const tr__argument options[] = {
      {.name = "--table", .kind = TR__ARGUMENT_LIST, .out = &r->list},
      {.name = "--devices", .kind = TR__ARGUMENT_COUNT, .out = &devices, .min = 1, .max = 1e6},
      {.name = "--memory", .kind = TR__ARGUMENT_AMOUNT, .out = &b->capacity, .min = 1, .max = 1e15},
      {.name = "--batch", .kind = TR__ARGUMENT_AMOUNT, .out = &b->batch, .min = 1, .max = 1e9},
      {.name = "--bytes", .kind = TR__ARGUMENT_REAL, .out = &r->nbyte, .min = 0.125, .max = 16},
      {.name = "--state-bytes", .kind = TR__ARGUMENT_REAL, .out = &r->optimizer, .min = 0, .max = 1e6},
      {.name = "--copy-below", .kind = TR__ARGUMENT_AMOUNT, .out = &b->copy_below, .min = 0, .max = 1e15},
      {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  TR_TRY(tr__plan_options("embedding", argc, argv, options, sizeof options / sizeof *options));
  if (!devices || !(b->capacity > 0)) return tr__cli_usage("plan embedding", "give --devices, and --memory of one");
  if (!r->list.n) return tr__cli_usage("plan embedding", "give a --table NAME:ROWS:WIDTH, as in item:50e6:128");
  b->devices = (double)devices;
  return take_tables(r);
}

static void report_table(tr__plan_report *out, const request *r, const tr_law_table *t) {
  static const char *const cut[] = {"copied", "whole", "by rows"};
  char name[TR__PLAN_FIELD + 32];
  double bytes = tr_law_table_bytes(t), each = t->cut == TR_LAW_TABLE_ROWS ? bytes / r->budget.devices : bytes;
  snprintf(name, sizeof name, t->cut == TR_LAW_TABLE_WHOLE ? "%s, %s on %zu" : "%s, %s", t->name, cut[t->cut],
           t->device);
  tr__plan_row(out, name, (const double[]){t->rows, t->width, bytes, each});
}

static void report(tr__plan_report *out, const request *r, const tr_law_table_result *result) {
  static const tr__plan_column columns[] = {{"table", "table", TR__PLAN_NUMBER},
                                            {"rows", "rows", TR__PLAN_COUNT},
                                            {"width", "width", TR__PLAN_COUNT},
                                            {"in all", "bytes", TR__PLAN_MEMORY},
                                            {"where it is", "part_bytes", TR__PLAN_MEMORY},
                                            {NULL, NULL, TR__PLAN_NUMBER}};
  tr__plan_table(out, "tables", columns);
  for (size_t i = 0; i < r->list.n; i++) report_table(out, r, &r->table[i]);
  tr__plan_head(out, "on the devices");
  tr__plan_value(out, "all tables", "bytes", TR__PLAN_MEMORY, result->total);
  tr__plan_value(out, "on the fullest device", "fullest_bytes", TR__PLAN_MEMORY, result->fullest);
  tr__plan_value(out, "on average", "mean_bytes", TR__PLAN_MEMORY, result->mean);
  tr__plan_value(out, "rows that a device's batch looks up", "lookup_bytes", TR__PLAN_BYTES, result->lookup);
  tr__plan_value(out, "a device receives per forward pass", "moved_bytes", TR__PLAN_BYTES, result->moved);
}

tr_status tr__plan_embedding(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) return print_help();
  request r;
  tr__plan_report out;
  tr_law_table_result result;
  TR_TRY(parse(argc, argv, &r));
  double *load = calloc((size_t)r.budget.devices, sizeof *load);
  if (!load) return tr_error(TR_ERR_MEMORY, "no memory for %.0f devices", r.budget.devices);
  tr_status status = tr_law_tables_place(r.table, r.list.n, &r.budget, load, &result);
  free(load);
  TR_TRY(status);
  tr__plan_begin(&out, "embedding", r.json);
  report(&out, &r, &result);
  return tr__plan_end(&out);
}
