// SPDX-License-Identifier: MIT
// `trireme plan tree`: the decision tree of parallelism with the numbers at each fork, and the rule of thumb by size beside its
// answer (law_tree.h).
#include "cli/cli_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/plan/law_tree.h"
#include "trireme/plan/workload.h"
#include <math.h>
#include <stdio.h>

typedef struct request {
  const char *model;
  tr_law_tree_input in;
  double days;
  int keep, json;
} request;

static tr_status print_help(void) {
  printf(
      "usage: trireme plan tree --model M --memory BYTES --flops F [options]\n"
      "       trireme plan tree --params N --layers N --width N --memory BYTES --flops F [options]\n\n"
      "  --model M                  a dense model: a preset (presets/models), a config.json or the folder of one; "
      "or\n"
      "  --params N --layers N --width N --heads N    its sizes (heads: width / 128)\n"
      "  --sequence N --micro N     tokens of a sequence (2048), sequences of a micro-batch (1)\n"
      "  --keep all|tiled|input     activations: with attention scores, without (the default), block inputs only\n"
      "  --state-bytes X            of a parameter for optimizer state, besides 2 + 2 (12: Adam with master "
      "weights)\n"
      "  --memory BYTES --flops F   of a device; FLOP/s that it reaches\n"
      "  --per-node N --nodes N     devices (8 x 1)\n"
      "  --inside BYTES --between BYTES    bytes per second of a device inside its node (450GB) and between (50GB)\n"
      "  --batch TOKENS             of a step (4e6)\n"
      "  --tokens N --days N        of the whole run, and how long it may take\n"
      "  --json                     one JSON object\n\n"
      "examples: trireme plan tree --params 175e9 --layers 96 --width 12288 --memory 80GiB --flops 500e12 --nodes "
      "128\n"
      "          trireme plan tree --model llama3-70b --memory 80GiB --flops 500e12 --nodes 16\n");
  return TR_OK;
}

static tr_status take_model(request *r) {
  tr_law_tree_input *in = &r->in;
  tr_law_blocks *b = &in->blocks;
  tr_workload w;
  if (in->params > 0 || b->layers > 0 || b->width > 0 || b->heads > 0)
    return tr__cli_usage("plan tree",
                         "--model %.80s has its own sizes; leave --params, --layers, --width, --heads out", r->model);
  TR_TRY(tr_workload_load(r->model, &w, NULL));
  if (w.experts > 0)
    return tr_error(TR_ERR_PLAN,
                    "--model %.80s has %lld experts, and the tree's laws are those of dense models; trireme plan "
                    "--model and trireme plan fit take it",
                    r->model, (long long)w.experts);
  in->params = tr_workload_params(&w);
  b->layers = (double)w.layers, b->width = (double)w.width, b->heads = (double)w.heads;
  return TR_OK;
}

static tr_status parse(int argc, char **argv, request *r) {
  *r = (request){.keep = TR_LAW_KEEP_TILED};
  tr_law_tree_input *in = &r->in;
  tr_law_blocks *b = &in->blocks;
  *in = (tr_law_tree_input){.roles = tr_law_roles_mixed_adam(),
                            .blocks = {.sequence = 2048, .micro = 1},
                            .per_node = 8,
                            .nodes = 1,
                            .inside = {0, 450e9},
                            .between = {0, 50e9},
                            .batch_tokens = 4e6};
  const tr__argument table[] = {
      {.name = "--model", .kind = TR__ARGUMENT_TEXT, .out = &r->model},
      {.name = "--params", .kind = TR__ARGUMENT_PARAMS, .out = &in->params, .min = 1000, .max = 1e15},
      {.name = "--layers", .kind = TR__ARGUMENT_NUMBER, .out = &b->layers, .min = 1, .max = 1e5},
      {.name = "--width", .kind = TR__ARGUMENT_NUMBER, .out = &b->width, .min = 1, .max = 1e7},
      {.name = "--heads", .kind = TR__ARGUMENT_NUMBER, .out = &b->heads, .min = 1, .max = 1e6},
      {.name = "--sequence", .kind = TR__ARGUMENT_NUMBER, .out = &b->sequence, .min = 1, .max = 1e9},
      {.name = "--micro", .kind = TR__ARGUMENT_NUMBER, .out = &b->micro, .min = 1, .max = 1e6},
      {.name = "--keep", .kind = TR__ARGUMENT_CHOICE, .out = &r->keep, .choices = {"all", "tiled", "input"}},
      {.name = "--state-bytes", .kind = TR__ARGUMENT_REAL, .out = &in->roles.optimizer, .min = 0, .max = 64},
      {.name = "--memory", .kind = TR__ARGUMENT_AMOUNT, .out = &in->capacity, .min = 1e6, .max = 1e15},
      {.name = "--flops", .kind = TR__ARGUMENT_AMOUNT, .out = &in->flops, .min = 1e6, .max = 1e18},
      {.name = "--per-node", .kind = TR__ARGUMENT_NUMBER, .out = &in->per_node, .min = 1, .max = 1e5},
      {.name = "--nodes", .kind = TR__ARGUMENT_NUMBER, .out = &in->nodes, .min = 1, .max = 1e6},
      {.name = "--inside", .kind = TR__ARGUMENT_AMOUNT, .out = &in->inside.bandwidth, .min = 1, .max = 1e15},
      {.name = "--between", .kind = TR__ARGUMENT_AMOUNT, .out = &in->between.bandwidth, .min = 1, .max = 1e15},
      {.name = "--batch", .kind = TR__ARGUMENT_PARAMS, .out = &in->batch_tokens, .min = 1, .max = 1e12},
      {.name = "--tokens", .kind = TR__ARGUMENT_PARAMS, .out = &in->tokens, .min = 1, .max = 1e18},
      {.name = "--days", .kind = TR__ARGUMENT_REAL, .out = &r->days, .min = 0.001, .max = 1e5},
      {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  TR_TRY(tr__plan_options("tree", argc, argv, table, sizeof table / sizeof *table));
  if (r->model) TR_TRY(take_model(r));
  if (!(in->params > 0 && b->layers > 0 && b->width > 0))
    return tr__cli_usage("plan tree", "give the model: --model M, or --params, --layers and --width");
  if (!(in->capacity > 0 && in->flops > 0))
    return tr__cli_usage("plan tree", "give the device: --memory and --flops");
  if ((r->days > 0) != (in->tokens > 0))
    return tr__cli_usage("plan tree", "--tokens and --days ask together whether replicas are needed; give both");
  if (!(b->heads > 0)) b->heads = ceil(b->width / 128);
  in->seconds = r->days * 86400;
  in->keep = (tr_law_keep)r->keep;
  return TR_OK;
}

static void report_fork(tr__plan_report *out, json_t *forks, const tr_law_fork *f) {
  tr_text_append(&out->text, "%s  %.4g against %.4g %s: %s\n      %s\n", f->question, f->have, f->limit, f->unit,
                 f->yes ? "yes" : "no", f->text);
  json_t *json = json_pack("{s:s, s:o, s:o, s:s, s:b, s:s}", "question", f->question, "have", json_real(f->have),
                           "limit", json_real(f->limit), "unit", f->unit, "yes", f->yes, "text", f->text);
  if (json_array_append_new(forks, json) != 0) out->failed = 1;
}

static void report_answer(tr__plan_report *out, const tr_law_tree *t) {
  static const char *const split[] = {"copies (data parallelism)", "ZeRO", "a pipeline", "tensor parallelism",
                                      "three dimensions"};
  tr__plan_head(out, "the tree's answer");
  tr__plan_text(out, "split", "split", split[t->split]);
  tr__plan_value(out, "tensor parallel", "tp", TR__PLAN_COUNT, t->tp);
  tr__plan_value(out, "pipeline stages", "pp", TR__PLAN_COUNT, t->pp);
  tr__plan_value(out, "data parallel", "dp", TR__PLAN_COUNT, t->dp);
  tr__plan_value(out, "ZeRO stage", "zero", TR__PLAN_COUNT, t->zero);
  if (t->zero) tr__plan_value(out, "over ranks", "shard", TR__PLAN_COUNT, t->shard);
  tr__plan_value(out, t->fits ? "on the fullest rank, which fits" : "on the fullest rank, which does not fit",
                 "rank_bytes", TR__PLAN_MEMORY, t->rank_bytes);
  tr__plan_head(out, "the rule of thumb");
  tr_text_append(&out->text, "  %s\n", t->thumb_text);
  json_t *thumb = json_pack("{s:s, s:b, s:s}", "says", t->thumb, "right", t->thumb_right, "text", t->thumb_text);
  if (json_object_set_new(out->root, "rule_of_thumb", thumb) != 0) out->failed = 1;
}

tr_status tr__plan_tree(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) return print_help();
  request r;
  tr_law_tree tree;
  tr__plan_report out;
  TR_TRY(parse(argc, argv, &r));
  tr_law_tree_walk(&r.in, &tree);
  tr__plan_begin(&out, "tree", r.json);
  json_t *forks = json_array();
  for (size_t i = 0; i < tree.n; i++) report_fork(&out, forks, &tree.fork[i]);
  if (json_object_set_new(out.root, "forks", forks) != 0) out.failed = 1;
  report_answer(&out, &tree);
  const tr_law_tree_input *in = &r.in;
  double params = in->params / (tree.tp * tree.pp);
  double rest = tree.rank_bytes - tr_law_state_bytes(in->roles, params, tree.zero, tree.shard);
  tr_law_warning needless =
      tr_law_lint_needless_sharding(in->roles, params, tree.zero, tree.shard, rest, in->capacity);
  tr__plan_warning(&out, &needless);
  return tr__plan_end(&out);
}
