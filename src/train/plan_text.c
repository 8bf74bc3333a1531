// SPDX-License-Identifier: MIT
// A plan as people read it, with notes on settings that work but are hardly meant, and as JSON for programs: the same
// numbers, which are those that the ranks will use.
#include "train/train_internal.h"
#include "trireme/base/cpu.h"
#include "trireme/base/text.h"
#include <jansson.h>
#include <stdlib.h>

static int has_dropout(const tr_arch *arch) {
  if (arch->kind == TR_ARCH_LLAMA) return arch->llama.dropout_attention > 0;
  return arch->gpt2.dropout_embedding > 0 || arch->gpt2.dropout_residual > 0 || arch->gpt2.dropout_attention > 0;
}

static void print_model(const tr_train_plan *plan, tr_text *out) {
  const tr_arch_sizes *m = &plan->sizes;
  char params[32];
  tr_format_count(params, sizeof params, (double)tr_model_count(plan->model));
  tr_text_append(out, "model   %s, %s parameters: %lld layer%s, width %lld, %lld head%s", m->name, params,
                 (long long)m->layers, tr_text_plural(m->layers, "s"), (long long)m->width, (long long)m->heads,
                 tr_text_plural(m->heads, "s"));
  if (m->heads_kv != m->heads) tr_text_append(out, " (%lld for keys)", (long long)m->heads_kv);
  tr_text_append(out, ", vocabulary %lld", (long long)m->vocab);
  if (*plan->model_folder) tr_text_append(out, ", weights of %s", plan->model_folder);
  if (*plan->from && !*plan->model_folder) tr_text_append(out, ", random weights");
  if (has_dropout(&plan->arch)) tr_text_append(out, ", with dropout");
  tr_text_append(out, "\n");
}

static void print_data(const tr_train_plan *plan, tr_text *out) {
  const tr_train_config *c = plan->config;
  char tokens[32];
  if (!plan->source) {
    tr_text_append(out, "data    none yet: data.path would name them\n");
    return;
  }
  tr_format_count(tokens, sizeof tokens, (double)tr_source_tokens(plan->source, 0));
  tr_text_append(out, "data    %s (%s): %s tokens, %lld training and %lld validation sequences of %s%lld",
                 c->data.path, plan->tokenizer ? tr_tokenizer_name(plan->tokenizer) : "token numbers", tokens,
                 (long long)plan->samples, (long long)plan->val_samples,
                 c->data.packing == TR_PACK_STREAM ? "" : "at most ", (long long)c->data.sequence);
  if (c->data.packing == TR_PACK_FIRST_FIT)
    tr_text_append(out, ", %.1f%% of the room empty", 100 * tr_source_waste(plan->source));
  if (plan->eval_samples < plan->val_samples)
    tr_text_append(out, "; each evaluation uses %lld\n", (long long)plan->eval_samples);
  else
    tr_text_append(out, plan->val_samples ? "; each evaluation uses all %lld\n" : "; no evaluation\n",
                   (long long)plan->val_samples);
}

static void print_layout(const tr_train_plan *plan, tr_text *out) {
  const tr_train_config *c = plan->config;
  int dp = plan->mesh.degree[TR_AXIS_DP], pp = plan->mesh.degree[TR_AXIS_PP];
  char pipeline[24] = "";
  if (pp > 1) snprintf(pipeline, sizeof pipeline, "pp=%d, ", pp);
  tr_text_append(out, "plan    %lld rank%s x %d thread%s, %sdp=%d, batch %lld = %d x dp %d x accumulation %d, %s",
                 (long long)c->run.ranks, tr_text_plural(c->run.ranks, "s"), plan->nthread,
                 tr_text_plural(plan->nthread, "s"), pipeline, dp, (long long)c->batch.sequences, plan->micro, dp,
                 plan->accumulation, tr_dtype_name(tr__train_type(c)));
  if (plan->source) tr_text_append(out, ", %lld step%s", (long long)plan->steps, tr_text_plural(plan->steps, "s"));
  tr_text_append(out, "\n");
}

static void put_list(tr_text *out, const int *number, int n) {
  for (int i = 0; i < n; i++) tr_text_append(out, "%s%d", i ? "," : "", number[i]);
}

// How many micro-batches each rank keeps at once decides its memory.
static void print_stages(const tr_train_plan *plan, tr_text *out) {
  const tr_schedule *schedule = &plan->schedule;
  int *peak = schedule->p ? calloc((size_t)schedule->p, sizeof *peak) : NULL;
  if (!peak) return;
  tr_schedule_peaks(schedule, TR_HOLD_UNTIL_W, peak, NULL);
  tr_text_append(out, "stages  ");
  put_list(out, plan->stage_layers, schedule->S);
  tr_text_append(out, " layers, schedule %s, %d micro-batch%s, at most ", schedule->name, schedule->m,
                 schedule->m == 1 ? "" : "es");
  put_list(out, peak, schedule->p);
  tr_text_append(out, " at once on the ranks of a pipeline");
  double bubble;
  if (schedule->p > 1 && tr__plan_bubble(plan, &bubble) == TR_OK)
    tr_text_append(out, ", bubble %.1f%% by FLOPs", 100 * bubble);
  tr_text_append(out, "\n");
  free(peak);
}

static void print_micro(const tr_train_plan *plan, tr_text *out) {
  if (*plan->micro_text)
    tr_text_append(out, "micro   %d sequence%s per pass: %s\n", plan->micro, tr_text_plural(plan->micro, "s"),
                   plan->micro_text);
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

static void print_model_notes(const tr_train_plan *plan, tr_text *out) {
  const tr_arch_sizes *own = &plan->sizes, *described = &plan->described;
  if (described->vocab && own->vocab != described->vocab)
    tr_text_append(out, "note    the vocabulary of %lld replaces that of %s, %lld\n", (long long)own->vocab,
                   plan->from, (long long)described->vocab);
  if (described->positions && own->positions != described->positions)
    tr_text_append(out, "note    sequences of at most %lld tokens replace those of %s, %lld\n",
                   (long long)own->positions, plan->from, (long long)described->positions);
}

static void print_sequence_note(const tr_train_plan *plan, tr_text *out) {
  if (plan->settled)
    tr_text_append(out, "note    data.sequence is %lld, since the model takes no more\n",
                   (long long)plan->config->data.sequence);
}

static void print_data_notes(const tr_train_plan *plan, tr_text *out) {
  const tr_train_config *c = plan->config;
  if (!plan->source || (!c->data.documents && c->data.packing == TR_PACK_STREAM)) return;
  for (size_t i = 0; i < tr_source_corpora(plan->source); i++) {
    const tr_corpus *corpus = tr_source_corpus(plan->source, i);
    if (tr_corpus_documents(corpus) == 1)
      tr_text_append(
          out,
          "note    %s is one document: data.end says which token ends one, data.split cuts text at blank lines\n",
          tr_corpus_path(corpus));
  }
}

static void print_notes(const tr_train_plan *plan, tr_text *out) {
  print_data_notes(plan, out);
  print_sequence_note(plan, out);
  print_model_notes(plan, out);
  int64_t ranks = plan->config->run.ranks;
  int cores = tr_cpu_count();
  print_rate_notes(plan, out);
  if (plan->local < ranks && plan->config->parallel.zero)
    tr_text_append(out, "note    ranks are on several hosts: %s\n",
                   plan->schedule.p > 1 ? "those of a host with the same stages share weights and optimizer state"
                   : plan->local > 1    ? "each host has one copy of weights and optimizer state for all its ranks"
                                        : "each host has one copy of weights and optimizer state");
  if (plan->place.size == 0 && ranks * plan->nthread > cores)
    tr_text_append(out, "note    %lld rank%s x %d thread%s on %d core%s: %s take turns\n", (long long)ranks,
                   tr_text_plural(ranks, "s"), plan->nthread, tr_text_plural(plan->nthread, "s"), cores,
                   tr_text_plural(cores, "s"), ranks > 1 ? "ranks" : "threads");
}

static void print_lines(const tr_train_plan *plan, tr_text *out) {
  char rank_bytes[32], once[32], all[32];
  tr_format_bytes(rank_bytes, sizeof rank_bytes, (double)plan->rank_nbyte);
  tr_format_bytes(once, sizeof once, (double)(plan->once_nbyte + plan->talk_nbyte));
  tr_format_bytes(all, sizeof all, (double)plan->total_nbyte);
  print_model(plan, out);
  print_data(plan, out);
  print_layout(plan, out);
  print_stages(plan, out);
  print_micro(plan, out);
  if (plan->schedule.p > 1)
    tr_text_append(out, "memory  at most %s per rank (pipeline rank %d)", rank_bytes, plan->largest);
  else
    tr_text_append(out, "memory  %s per rank", rank_bytes);
  if (plan->once_nbyte)
    tr_text_append(out, " and %s for all, %s together", once, all);
  else if (plan->schedule.p > 1)
    tr_text_append(out, ", %s together", all);
  tr_text_append(out, ": %s\n", plan->memory_text);
  print_notes(plan, out);
}

void tr_train_plan_print(const tr_train_plan *plan, tr_text *out) {
  enum { INDENT = 8 }; // where lines begin behind their word
  tr_text whole = {0};
  print_lines(plan, &whole);
  tr_text_wrap(out, whole.data ? whole.data : "", 0, INDENT);
  out->failed |= whole.failed;
  tr_text_free(&whole);
}

static json_t *pipeline_json(const tr_train_plan *plan) {
  const tr_schedule *schedule = &plan->schedule;
  json_t *layers = json_array(), *memory = json_array();
  for (int s = 0; s < schedule->S; s++) json_array_append_new(layers, json_integer(plan->stage_layers[s]));
  for (int r = 0; r < schedule->p; r++)
    json_array_append_new(memory, json_integer((json_int_t)plan->part[r].rank_nbyte));
  double bubble = 0;
  if (schedule->p > 1) (void)tr__plan_bubble(plan, &bubble);
  return json_pack("{s:i, s:s, s:i, s:i, s:f, s:o, s:o}", "pp", schedule->p, "schedule", schedule->name, "stages",
                   schedule->S, "microbatches", schedule->m, "bubble", bubble, "layers", layers, "memory_bytes",
                   memory);
}

tr_status tr_train_plan_json(const tr_train_plan *plan, char **text) {
  const tr_train_config *c = plan->config;
  json_t *json = json_pack(
      "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:f}", "parameters",
      (json_int_t)tr_model_count(plan->model), "training_samples", (json_int_t)plan->samples, "validation_samples",
      (json_int_t)plan->val_samples, "evaluation_samples", (json_int_t)plan->eval_samples, "ranks",
      (json_int_t)c->run.ranks, "threads", (json_int_t)plan->nthread, "dp", (json_int_t)plan->mesh.degree[TR_AXIS_DP],
      "batch", (json_int_t)c->batch.sequences, "micro", (json_int_t)plan->micro, "accumulation",
      (json_int_t)plan->accumulation, "steps", (json_int_t)plan->steps, "compute", tr_dtype_name(tr__train_type(c)),
      "memory_bytes", (json_int_t)plan->rank_nbyte, "memory_total", (json_int_t)plan->total_nbyte, "shared_bytes",
      (json_int_t)plan->arena_nbyte, "flops_per_token", tr_model_flops(plan->model, c->data.sequence));
  if (json && plan->schedule.p) json_object_set_new(json, "pipeline", pipeline_json(plan));
  *text = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
  json_decref(json);
  return *text ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory to print the plan");
}
