// SPDX-License-Identifier: MIT
// A plan as people read it, and as JSON for programs: the same numbers, which are those that the ranks will use.
#include "train/train_internal.h"
#include <jansson.h>

void tr_train_plan_print(const tr_train_plan *plan, tr_text *out) {
  const tr_train_config *c = plan->config;
  char params[32], rank_bytes[32], tokens[32];
  tr_format_count(params, sizeof params, (double)tr_model_count(plan->model));
  tr_format_bytes(rank_bytes, sizeof rank_bytes, (double)plan->rank_nbyte);
  tr_format_count(tokens, sizeof tokens, (double)plan->samples * (double)c->data.sequence);
  tr_text_append(out, "model   gpt2, %s parameters: %lld layers, width %lld, %lld heads, vocabulary %lld\n", params,
                 (long long)c->model.layers, (long long)c->model.width, (long long)c->model.heads,
                 (long long)plan->vocab);
  tr_text_append(out, "data    %s: %s tokens, %lld training and %lld validation sequences of %lld\n", c->data.path,
                 tokens, (long long)plan->samples, (long long)plan->eval_samples, (long long)c->data.sequence);
  tr_text_append(
      out, "plan    %lld ranks x %d threads, dp=%d, batch %lld = %d x dp %d x accumulation %d, %s, %lld steps\n",
      (long long)c->run.ranks, plan->nthread, plan->mesh.degree[TR_AXIS_DP], (long long)c->batch.sequences,
      plan->micro, plan->mesh.degree[TR_AXIS_DP], plan->accumulation, c->precision.compute ? "bf16" : "f32",
      (long long)plan->steps);
  tr_text_append(out, "memory  %s per rank: %s\n", rank_bytes, plan->memory_text);
}

tr_status tr_train_plan_json(const tr_train_plan *plan, char **text) {
  const tr_train_config *c = plan->config;
  json_t *json = json_pack(
      "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:f}", "parameters",
      (json_int_t)tr_model_count(plan->model), "training_samples", (json_int_t)plan->samples, "validation_samples",
      (json_int_t)plan->eval_samples, "ranks", (json_int_t)c->run.ranks, "threads", (json_int_t)plan->nthread, "dp",
      (json_int_t)plan->mesh.degree[TR_AXIS_DP], "batch", (json_int_t)c->batch.sequences, "micro",
      (json_int_t)plan->micro, "accumulation", (json_int_t)plan->accumulation, "steps", (json_int_t)plan->steps,
      "compute", c->precision.compute ? "bf16" : "f32", "memory_bytes", (json_int_t)plan->rank_nbyte, "shared_bytes",
      (json_int_t)plan->arena_nbyte, "flops_per_token", tr_model_flops(plan->model, c->data.sequence));
  *text = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
  json_decref(json);
  return *text ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory to print the plan");
}
