// SPDX-License-Identifier: MIT
// `trireme plan rlhf`: what the models of an alignment method take, on the whole job and on one rank, phase by phase, with the
// cache of keys and values and what padding wastes (law_rlhf.h).
#include "cli/cli_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/plan/law_rlhf.h"
#include <math.h>
#include <stdio.h>

typedef struct request {
  tr_law_align align;
  double tp, pp, frozen_ranks, micro, width, sequence, generating, mfu;
  const char *lengths;
  double length[TR__ARGUMENT_LIST_MOST];
  size_t nlength;
  int method, json;
} request;

static tr_status print_help(void) {
  printf(
      "usage: trireme plan rlhf --policy PARAMS [--method ppo|dpo|grpo] [options]\n\n"
      "  --method M                         ppo (the default), dpo or grpo\n"
      "  --policy N --reward N --value N    parameters; reward and value default to the policy's\n"
      "  --tp N --pp N                      over which trained models and the cache are cut (1 x 1)\n"
      "  --frozen-ranks N                   over which frozen models are cut (tp x pp)\n"
      "  --memory BYTES                     of a device (80GB)\n"
      "  --layers N --kv-heads N --head-width N    the policy's (80, 8, 128)\n"
      "  --prompts N --tokens N             answered at once (256), tokens of prompt and answer (1024)\n"
      "  --width N --micro N                activations while training: hidden width (8192), sequences at once (1)\n"
      "  --lengths A:B:C                    tokens of answers that are padded to the longest\n"
      "  --generating X --mfu X             share of a step that generates (0.6), MFU while training (0.45)\n"
      "  --json                             one JSON object\n\n"
      "example: trireme plan rlhf --policy 70e9 --reward 13e9 --value 13e9 --tp 8 --pp 4\n");
  return TR_OK;
}

static tr_status take_lengths(request *r) {
  char field[TR__ARGUMENT_LIST_MOST][TR__PLAN_FIELD];
  size_t n = 0;
  if (!r->lengths) return TR_OK;
  TR_TRY(tr__plan_split("rlhf", "--lengths", r->lengths, field, 1, TR__ARGUMENT_LIST_MOST,
                        "at most 64 numbers, A:B:C", &n));
  for (size_t i = 0; i < n; i++) {
    TR_TRY(tr__plan_field("rlhf", "--lengths", r->lengths, field[i], 0, &r->length[i]));
    if (r->length[i] < 1) return tr__cli_usage("plan rlhf", "--lengths %.80s: an answer has a token", r->lengths);
  }
  r->nlength = n;
  return TR_OK;
}

static tr_status parse(int argc, char **argv, request *r) {
  *r = (request){.tp = 1, .pp = 1, .micro = 1, .width = 8192, .generating = 0.6, .mfu = 0.45};
  tr_law_align *a = &r->align;
  tr_law_cache *c = &a->cache;
  *a = (tr_law_align){.trained = tr_law_roles_mixed_adam(), .frozen = {.weight = 2}, .capacity = 80e9};
  *c = (tr_law_cache){.layers = 80, .kv_heads = 8, .head_width = 128, .tokens = 1024, .sequences = 256, .nbyte = 2};
  const tr__argument table[] = {
      {.name = "--method", .kind = TR__ARGUMENT_CHOICE, .out = &r->method, .choices = {"ppo", "dpo", "grpo"}},
      {.name = "--policy", .kind = TR__ARGUMENT_PARAMS, .out = &a->policy, .min = 1000, .max = 1e15},
      {.name = "--reward", .kind = TR__ARGUMENT_PARAMS, .out = &a->reward, .min = 1000, .max = 1e15},
      {.name = "--value", .kind = TR__ARGUMENT_PARAMS, .out = &a->value, .min = 1000, .max = 1e15},
      {.name = "--tp", .kind = TR__ARGUMENT_NUMBER, .out = &r->tp, .min = 1, .max = 1e6},
      {.name = "--pp", .kind = TR__ARGUMENT_NUMBER, .out = &r->pp, .min = 1, .max = 1e6},
      {.name = "--frozen-ranks", .kind = TR__ARGUMENT_NUMBER, .out = &r->frozen_ranks, .min = 1, .max = 1e8},
      {.name = "--memory", .kind = TR__ARGUMENT_AMOUNT, .out = &a->capacity, .min = 1e6, .max = 1e15},
      {.name = "--layers", .kind = TR__ARGUMENT_NUMBER, .out = &c->layers, .min = 1, .max = 1e5},
      {.name = "--kv-heads", .kind = TR__ARGUMENT_NUMBER, .out = &c->kv_heads, .min = 1, .max = 1e5},
      {.name = "--head-width", .kind = TR__ARGUMENT_NUMBER, .out = &c->head_width, .min = 1, .max = 1e5},
      {.name = "--prompts", .kind = TR__ARGUMENT_AMOUNT, .out = &c->sequences, .min = 1, .max = 1e9},
      {.name = "--tokens", .kind = TR__ARGUMENT_PARAMS, .out = &c->tokens, .min = 1, .max = 1e9},
      {.name = "--width", .kind = TR__ARGUMENT_NUMBER, .out = &r->width, .min = 1, .max = 1e7},
      {.name = "--micro", .kind = TR__ARGUMENT_NUMBER, .out = &r->micro, .min = 1, .max = 1e6},
      {.name = "--lengths", .kind = TR__ARGUMENT_TEXT, .out = &r->lengths},
      {.name = "--generating", .kind = TR__ARGUMENT_REAL, .out = &r->generating, .min = 0, .max = 1},
      {.name = "--mfu", .kind = TR__ARGUMENT_REAL, .out = &r->mfu, .min = 0, .max = 1},
      {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  TR_TRY(tr__plan_options("rlhf", argc, argv, table, sizeof table / sizeof *table));
  if (!(a->policy > 0))
    return tr__cli_usage("plan rlhf", "give --policy, the parameters of the model that is trained");
  a->method = (tr_law_method)r->method;
  if (!(a->reward > 0)) a->reward = a->policy;
  if (!(a->value > 0)) a->value = a->policy;
  a->parts = r->tp * r->pp;
  a->frozen_parts = r->frozen_ranks > 0 ? r->frozen_ranks : a->parts;
  const tr_law_blocks blocks = {c->layers, r->width, r->width / c->head_width, c->tokens, r->micro};
  // A pipeline's first stage holds as many micro-batches as there are stages, so its depth divides nothing here.
  a->activation = tr_law_activation_bytes(&blocks, TR_LAW_KEEP_TILED, r->tp, r->tp > 1);
  return take_lengths(r);
}

static void report_models(tr__plan_report *out, const request *r, const tr_law_align_memory *m) {
  static const tr__plan_column columns[] = {{"model", "model", TR__PLAN_NUMBER},
                                            {"bytes a param", "bytes_per_param", TR__PLAN_NUMBER},
                                            {"in all", "bytes", TR__PLAN_MEMORY},
                                            {"on a rank", "rank_bytes", TR__PLAN_MEMORY},
                                            {NULL, NULL, TR__PLAN_NUMBER}};
  const tr_law_align *a = &r->align;
  const double trained = tr_law_roles_sum(a->trained), frozen = tr_law_roles_sum(a->frozen);
  tr__plan_table(out, "models", columns);
  tr__plan_row(out, "policy", (const double[]){trained, m->policy, m->rank_policy});
  tr__plan_row(out, "reference", (const double[]){frozen, m->reference, m->reference / a->frozen_parts});
  if (m->reward > 0) tr__plan_row(out, "reward", (const double[]){frozen, m->reward, m->reward / a->frozen_parts});
  if (m->value > 0) tr__plan_row(out, "value", (const double[]){trained, m->value, m->rank_value});
}

static void report(tr__plan_report *out, const request *r) {
  static const char *const method[] = {"ppo", "dpo", "grpo"};
  const tr_law_align_memory m = tr_law_align_bytes(&r->align);
  tr__plan_text(out, "method", "method", method[r->method]);
  report_models(out, r, &m);
  tr__plan_head(out, "on the whole job");
  tr__plan_value(out, "states", "bytes", TR__PLAN_MEMORY, m.total);
  tr__plan_value(out, "devices that these alone fill", "devices", TR__PLAN_COUNT, m.devices);
  tr__plan_head(out, "on a rank");
  tr__plan_value(out, "keys and values", "cache_bytes", TR__PLAN_MEMORY, m.rank_cache);
  tr__plan_value(out, "while generating", "generate_bytes", TR__PLAN_MEMORY, m.generate);
  tr__plan_value(out, "while scoring", "score_bytes", TR__PLAN_MEMORY, m.score);
  tr__plan_value(out, "while training", "train_bytes", TR__PLAN_MEMORY, m.train);
  tr__plan_value(out, "left in the worst phase", "left_bytes", TR__PLAN_MEMORY, m.left);
  tr__plan_head(out, "time");
  double generating = r->align.method == TR_LAW_DPO ? 0 : r->generating;
  tr__plan_value(out, "share of a step that generates", "generating", TR__PLAN_SHARE, generating);
  tr__plan_value(out, "MFU over the whole step", "mfu", TR__PLAN_SHARE, tr_law_effective_mfu(generating, r->mfu));
  if (r->nlength)
    tr__plan_value(out, "padding to the longest answer", "padding", TR__PLAN_SHARE,
                   tr_law_padding_waste(r->length, r->nlength));
}

tr_status tr__plan_rlhf(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) return print_help();
  request r;
  tr__plan_report out;
  TR_TRY(parse(argc, argv, &r));
  tr__plan_begin(&out, "rlhf", r.json);
  report(&out, &r);
  return tr__plan_end(&out);
}
