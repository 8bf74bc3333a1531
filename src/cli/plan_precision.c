// SPDX-License-Identifier: MIT
// `trireme plan precision`: ranges of the small number types, and what FP8 makes smaller: only what is stored or sent in it
// (law_number.h).
#include "cli/cli_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/plan/law_number.h"
#include <stdio.h>

typedef struct request {
  double params, boundary, weights, wire, activations;
  int json;
} request;

static tr_status print_help(void) {
  printf(
      "usage: trireme plan precision [--params N] [options]\n\n"
      "  --params N           parameters, with 2-byte weights and gradients, and 12 bytes of optimizer state\n"
      "  --boundary BYTES     activations in 16 bits that are sent (a pipeline's boundary, tokens to experts)\n"
      "  --weights X --wire X --activations X    shares of weights that are stored, of gradients and of activations\n"
      "                       that are sent in FP8 (1, 0, 1); products in FP8 alone change no bytes\n"
      "  --json               one JSON object\n\n"
      "example: trireme plan precision --params 7e9 --boundary 201MB\n");
  return TR_OK;
}

static tr_status parse(int argc, char **argv, request *r) {
  *r = (request){.weights = 1, .activations = 1};
  const tr__argument table[] = {
      {.name = "--params", .kind = TR__ARGUMENT_PARAMS, .out = &r->params, .min = 1000, .max = 1e15},
      {.name = "--boundary", .kind = TR__ARGUMENT_PARAMS, .out = &r->boundary, .min = 1, .max = 1e15},
      {.name = "--weights", .kind = TR__ARGUMENT_REAL, .out = &r->weights, .min = 0, .max = 1},
      {.name = "--wire", .kind = TR__ARGUMENT_REAL, .out = &r->wire, .min = 0, .max = 1},
      {.name = "--activations", .kind = TR__ARGUMENT_REAL, .out = &r->activations, .min = 0, .max = 1},
      {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  return tr__plan_options("precision", argc, argv, table, sizeof table / sizeof *table);
}

static void report_formats(tr__plan_report *out) {
  static const tr__plan_column columns[] = {
      {"format", "format", TR__PLAN_NUMBER},   {"bytes", "bytes", TR__PLAN_NUMBER},
      {"largest", "largest", TR__PLAN_NUMBER}, {"smallest", "smallest", TR__PLAN_NUMBER},
      {"step at 1", "step", TR__PLAN_NUMBER},  {NULL, NULL, TR__PLAN_NUMBER}};
  static const struct {
    const char *name;
    tr_law_format format;
  } known[] = {
      {"E4M3", {4, 3, 1}}, {"E5M2", {5, 2, 0}}, {"f16", {5, 10, 0}}, {"bf16", {8, 7, 0}}, {"f32", {8, 23, 0}}};
  tr__plan_table(out, "formats", columns);
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    tr_law_format f = known[i].format;
    tr__plan_row(out, known[i].name,
                 (const double[]){tr_law_format_bytes(f), tr_law_format_largest(f), tr_law_format_smallest(f),
                                  tr_law_format_step(f)});
  }
}

static void report_use(tr__plan_report *out, const char *name, double bytes, double share) {
  double narrow = tr_law_narrowed(bytes, share, 2, 1);
  tr__plan_row(out, name, (const double[]){bytes, narrow, share});
}

tr_status tr__plan_precision(int argc, char **argv) {
  // What a device keeps is counted in GiB, what crosses links in GB.
  static const tr__plan_column kept[] = {{"kept", "what", TR__PLAN_NUMBER},
                                         {"in 16 bits", "wide_bytes", TR__PLAN_MEMORY},
                                         {"with FP8", "narrow_bytes", TR__PLAN_MEMORY},
                                         {"share in FP8", "share", TR__PLAN_SHARE},
                                         {NULL, NULL, TR__PLAN_NUMBER}},
                               sent[] = {{"sent", "what", TR__PLAN_NUMBER},
                                         {"in 16 bits", "wide_bytes", TR__PLAN_BYTES},
                                         {"with FP8", "narrow_bytes", TR__PLAN_BYTES},
                                         {"share in FP8", "share", TR__PLAN_SHARE},
                                         {NULL, NULL, TR__PLAN_NUMBER}};
  if (tr__cli_wants_help(argc, argv)) return print_help();
  request r;
  tr__plan_report out;
  TR_TRY(parse(argc, argv, &r));
  tr__plan_begin(&out, "precision", r.json);
  report_formats(&out);
  if (r.params > 0) {
    tr__plan_table(&out, "kept", kept);
    report_use(&out, "weights", 2 * r.params, r.weights);
    report_use(&out, "optimizer state", 12 * r.params, 0);
  }
  if (r.params > 0 || r.boundary > 0) tr__plan_table(&out, "sent", sent);
  if (r.params > 0) report_use(&out, "gradients", 2 * r.params, r.wire);
  if (r.boundary > 0) report_use(&out, "activations", r.boundary, r.activations);
  return tr__plan_end(&out);
}
