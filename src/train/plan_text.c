// SPDX-License-Identifier: MIT
// A plan as people read it, with notes on settings that work but are hardly meant, and as JSON for programs: the same
// numbers, which are those that the ranks will use.
#include "train/train_internal.h"
#include "trireme/base/cpu.h"
#include <jansson.h>

static const char *plural(int64_t n) { return n == 1 ? "" : "s"; }

static void print_model(const tr_train_plan *plan, tr_text *out) {
  const tr_train_config *c = plan->config;
  char params[32];
  tr_format_count(params, sizeof params, (double)tr_model_count(plan->model));
  tr_text_append(out, "model   gpt2, %s parameters: %lld layer%s, width %lld, %lld head%s, vocabulary %lld\n", params,
                 (long long)c->model.layers, plural(c->model.layers), (long long)c->model.width,
                 (long long)c->model.heads, plural(c->model.heads), (long long)plan->vocab);
}

static void print_data(const tr_train_plan *plan, tr_text *out) {
  const tr_train_config *c = plan->config;
  char tokens[32];
  tr_format_count(tokens, sizeof tokens, (double)plan->samples * (double)c->data.sequence);
  tr_text_append(out, "data    %s: %s tokens, %lld training and %lld validation sequences of %lld", c->data.path,
                 tokens, (long long)plan->samples, (long long)plan->val_samples, (long long)c->data.sequence);
  if (plan->eval_samples < plan->val_samples)
    tr_text_append(out, "; each evaluation uses %lld\n", (long long)plan->eval_samples);
  else
    tr_text_append(out, plan->val_samples ? "; each evaluation uses all %lld\n" : "; no evaluation\n",
                   (long long)plan->val_samples);
}

static void print_layout(const tr_train_plan *plan, tr_text *out) {
  const tr_train_config *c = plan->config;
  int dp = plan->mesh.degree[TR_AXIS_DP];
  tr_text_append(out,
                 "plan    %lld rank%s x %d thread%s, dp=%d, batch %lld = %d x dp %d x accumulation %d, %s, "
                 "%lld step%s\n",
                 (long long)c->run.ranks, plural(c->run.ranks), plan->nthread, plural(plan->nthread), dp,
                 (long long)c->batch.sequences, plan->micro, dp, plan->accumulation, tr_dtype_name(tr__train_type(c)),
                 (long long)plan->steps, plural(plan->steps));
}

static void print_rate_notes(const tr_train_plan *plan, tr_text *out) {
  const tr_lr *lr = &plan->lr;
  if (lr->kind != TR_LR_CONSTANT && lr->min_lr > lr->lr)
    tr_text_append(out, "note    lr.min_lr %g is above lr.lr %g: the learning rate rises to it\n", lr->min_lr,
                   lr->lr);
  if (lr->kind == TR_LR_WSD && lr->decay_steps == 0)
    tr_text_append(out, "note    lr.kind=wsd with lr.decay_steps=0: the learning rate stays at %g to the end\n",
                   lr->lr);
  if (plan->steps > 0 && lr->warmup >= plan->steps)
    tr_text_append(out,
                   "note    lr.warmup of %lld steps takes up all %lld of the run: the learning rate ends at %g\n",
                   (long long)lr->warmup, (long long)plan->steps, tr_lr_at(lr, plan->steps - 1));
}

static void print_notes(const tr_train_plan *plan, tr_text *out) {
  int64_t ranks = plan->config->run.ranks;
  int cores = tr_cpu_count();
  print_rate_notes(plan, out);
  if (ranks * plan->nthread > cores)
    tr_text_append(out, "note    %lld rank%s x %d thread%s on %d core%s: %s take turns\n", (long long)ranks,
                   plural(ranks), plan->nthread, plural(plan->nthread), cores, plural(cores),
                   ranks > 1 ? "ranks" : "threads");
}

void tr_train_plan_print(const tr_train_plan *plan, tr_text *out) {
  char rank_bytes[32];
  tr_format_bytes(rank_bytes, sizeof rank_bytes, (double)plan->rank_nbyte);
  print_model(plan, out);
  print_data(plan, out);
  print_layout(plan, out);
  tr_text_append(out, "memory  %s per rank: %s\n", rank_bytes, plan->memory_text);
  print_notes(plan, out);
}

tr_status tr_train_plan_json(const tr_train_plan *plan, char **text) {
  const tr_train_config *c = plan->config;
  json_t *json = json_pack(
      "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:f}", "parameters",
      (json_int_t)tr_model_count(plan->model), "training_samples", (json_int_t)plan->samples, "validation_samples",
      (json_int_t)plan->val_samples, "evaluation_samples", (json_int_t)plan->eval_samples, "ranks",
      (json_int_t)c->run.ranks, "threads", (json_int_t)plan->nthread, "dp", (json_int_t)plan->mesh.degree[TR_AXIS_DP],
      "batch", (json_int_t)c->batch.sequences, "micro", (json_int_t)plan->micro, "accumulation",
      (json_int_t)plan->accumulation, "steps", (json_int_t)plan->steps, "compute", tr_dtype_name(tr__train_type(c)),
      "memory_bytes", (json_int_t)plan->rank_nbyte, "shared_bytes", (json_int_t)plan->arena_nbyte, "flops_per_token",
      tr_model_flops(plan->model, c->data.sequence));
  *text = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
  json_decref(json);
  return *text ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory to print the plan");
}
