// SPDX-License-Identifier: MIT
// What must stay the same when a run goes on: what decides the shapes and the mathematics of the model, which samples make
// up a step, and what the optimizer's state means. All that differs is said at once, each with both values. Learning
// rate, length, clipping, dropout, layout, precision and everything about reporting may change.
#include "train/train_internal.h"
#include "trireme/base/json.h"
#include <stdlib.h>
#include <string.h>

const char *tr__optimizer_word(const tr_train_config *config) {
  return config->optim.kind == TR_OPTIM_SGD ? "sgd" : "adamw";
}

static void add(tr_text *out, const char *name, const char *own, const char *verb, const char *saved) {
  tr_text_append(out, "%s%s is %s, the checkpoint %s %s", out->size ? "; " : "", name, own, verb, saved);
}

static void compare_counts(tr_text *out, const char *name, int64_t own, const char *verb, int64_t saved) {
  char a[24], b[24];
  if (own == saved) return;
  snprintf(a, sizeof a, "%lld", (long long)own);
  snprintf(b, sizeof b, "%lld", (long long)saved);
  add(out, name, a, verb, b);
}

static void compare_eps(tr_text *out, double own, double saved) {
  char a[32], b[32];
  if (own == saved) return;
  snprintf(a, sizeof a, "%.15g", own);
  snprintf(b, sizeof b, "%.15g", saved);
  add(out, "model.eps", a, "has", b);
}

static int64_t ffn_of(const tr_gpt2_config *config) { return config->ffn ? config->ffn : 4 * config->width; }

// A size that follows from another setting (auto) is not said again beside that one.
static void compare_models(tr_text *out, const tr__trainer *t, const tr_gpt2_config *saved, int same_sequence) {
  const tr_gpt2_config *own = &t->plan->gpt2;
  const tr_train_config *c = t->plan->config;
  const char *has = "has";
  compare_counts(out, "model.layers", own->layers, has, saved->layers);
  compare_counts(out, "model.width", own->width, has, saved->width);
  compare_counts(out, "model.heads", own->heads, has, saved->heads);
  if (own->ffn || own->width == saved->width) compare_counts(out, "model.ffn", ffn_of(own), has, ffn_of(saved));
  compare_counts(out, "model.vocab", own->vocab, has, saved->vocab);
  if (c->model.positions >= 0 || same_sequence)
    compare_counts(out, "model.positions", own->positions, has, saved->positions);
  compare_eps(out, own->eps, saved->eps);
  if (own->tied != saved->tied)
    add(out, "model.tied", own->tied ? "true" : "false", has, saved->tied ? "true" : "false");
}

static tr_status compare_runs(tr_text *out, const tr__trainer *t, const json_t *json, const char *file,
                              const tr_gpt2_config *saved) {
  const tr_train_config *c = t->plan->config;
  const char *made = "was made with", *optimizer = "";
  int64_t seed = 0, batch = 0, sequence = 0;
  TR_TRY(tr_json_get_int(json, file, "seed", 1, &seed));
  TR_TRY(tr_json_get_int(json, file, "batch_sequences", 1, &batch));
  TR_TRY(tr_json_get_int(json, file, "sequence", 1, &sequence));
  TR_TRY(tr_json_get_string(json, file, "optimizer", 1, &optimizer));
  compare_models(out, t, saved, sequence == c->data.sequence);
  compare_counts(out, "train.seed", c->train.seed, made, seed);
  compare_counts(out, "batch.sequences", c->batch.sequences, made, batch);
  compare_counts(out, "data.sequence", c->data.sequence, made, sequence);
  if (strcmp(optimizer, tr__optimizer_word(c)) != 0) add(out, "optim.kind", tr__optimizer_word(c), made, optimizer);
  return TR_OK;
}

static tr_status check_data(const tr__trainer *t, const json_t *json, const char *file) {
  const tr_train_config *c = t->plan->config;
  const char *hash = "";
  TR_TRY(tr_json_get_string(json, file, "data_hash", 1, &hash));
  if (strtoull(hash, NULL, 16) == t->data_hash || c->data.changed == TR_CHANGED_ACCEPT) return TR_OK;
  return tr_error(TR_ERR_DATA, "%s is not the data that %s was trained on; data.changed=accept goes on all the same",
                  c->data.path, file);
}

tr_status tr__same_run(const tr__trainer *t, const char *path, const json_t *json, const char *file) {
  tr_gpt2_config saved;
  tr_text differences = {0};
  TR_TRY(tr_model_folder_config(path, &saved));
  tr_status status = compare_runs(&differences, t, json, file, &saved);
  if (status == TR_OK && differences.size)
    status = tr_error(TR_ERR_CONFIG, "%s; resume %s with its settings, or use another train.folder", differences.data,
                      path);
  tr_text_free(&differences);
  return status < 0 ? status : check_data(t, json, file);
}
