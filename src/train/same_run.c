// SPDX-License-Identifier: MIT
// What must stay the same when a run goes on: what decides the shapes and the mathematics of the model, which samples make
// up a step, and what the optimizer's state means. All that differs is said at once, each with both values. Learning
// rate, length, clipping, dropout, layout, precision and everything about reporting may change.
#include "train/saving_internal.h"
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

// Positions that follow from data.sequence (auto) are not said again beside it.
static void compare_models(tr_text *out, const tr__trainer *t, tr_arch saved, int same_sequence) {
  const tr_arch *own = &t->plan->arch;
  if (t->plan->config->model.positions < 0 && !same_sequence && saved.kind == own->kind) {
    if (own->kind == TR_ARCH_GPT2) saved.gpt2.positions = own->gpt2.positions;
    if (own->kind == TR_ARCH_LLAMA) saved.llama.positions = own->llama.positions;
  }
  tr_arch_compare(own, &saved, out);
}

static int same_data(const tr__trainer *t, const json_t *json) {
  const char *hash = json_string_value(json_object_get(json, "data_hash"));
  return hash && strtoull(hash, NULL, 16) == tr_source_hash(t->plan->source);
}

// What decides which tokens sample g is made of.
static void compare_order(tr_text *out, const tr__trainer *t, const json_t *json, int same_windows) {
  static const struct {
    const char *key, *name;
  } part[] = {{"packing", "data.packing"},
              {"documents", "data.documents"},
              {"weights", "data.weights (in 1e-12)"},
              {"sampling", "data.sampling"},
              {"end", "data.end"},
              {"samples", "the number of training samples (data.val_fraction, data.val_path)"}};
  const json_t *own = json_object_get(t->saving->contract, "order");
  const json_t *saved = json_object_get(json_object_get(json, "contract"), "order");
  for (size_t i = 0; saved && i < sizeof part / sizeof *part; i++) {
    const json_t *a = json_object_get(own, part[i].key), *b = json_object_get(saved, part[i].key);
    if (json_equal(a, b) || (strcmp(part[i].key, "samples") == 0 && !same_windows)) continue;
    char *a_text = json_dumps(a, JSON_ENCODE_ANY), *b_text = json_dumps(b, JSON_ENCODE_ANY);
    add(out, part[i].name, a_text ? a_text : "another", "was made with", b_text ? b_text : "none");
    free(a_text);
    free(b_text);
  }
}

static tr_status compare_runs(tr_text *out, const tr__trainer *t, const json_t *json, const char *file,
                              const tr_arch *saved) {
  const tr_train_config *c = t->plan->config;
  const char *made = "was made with", *optimizer = "";
  int64_t seed = 0, batch = 0, sequence = 0;
  TR_TRY(tr_json_get_int(json, file, "seed", 1, &seed));
  TR_TRY(tr_json_get_int(json, file, "batch_sequences", 1, &batch));
  TR_TRY(tr_json_get_int(json, file, "sequence", 1, &sequence));
  TR_TRY(tr_json_get_string(json, file, "optimizer", 1, &optimizer));
  compare_models(out, t, *saved, sequence == c->data.sequence);
  compare_counts(out, "train.seed", c->train.seed, made, seed);
  compare_counts(out, "batch.sequences", c->batch.sequences, made, batch);
  compare_counts(out, "data.sequence", c->data.sequence, made, sequence);
  compare_order(out, t, json, same_data(t, json) && sequence == c->data.sequence);
  if (strcmp(optimizer, tr__optimizer_word(c)) != 0) add(out, "optim.kind", tr__optimizer_word(c), made, optimizer);
  return TR_OK;
}

static tr_status check_data(const tr__trainer *t, const json_t *json, const char *file) {
  const tr_train_config *c = t->plan->config;
  if (same_data(t, json) || c->data.changed == TR_CHANGED_ACCEPT) return TR_OK;
  return tr_error(TR_ERR_DATA, "%s is not the data that %s was trained on; data.changed=accept goes on all the same",
                  c->data.path, file);
}

tr_status tr__same_run(const tr__trainer *t, const char *path, const json_t *json, const char *file) {
  tr_arch saved;
  tr_text differences = {0};
  TR_TRY(tr_arch_load(path, &saved, NULL, 0));
  tr_status status = compare_runs(&differences, t, json, file, &saved);
  if (status == TR_OK && differences.size)
    status = tr_error(TR_ERR_CONFIG, "%s; resume %s with its settings, or use another train.folder", differences.data,
                      path);
  tr_text_free(&differences);
  return status < 0 ? status : check_data(t, json, file);
}
