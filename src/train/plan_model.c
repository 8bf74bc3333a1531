// SPDX-License-Identifier: MIT
// Which model a run trains. Either model.from describes it (a preset, a config.json, a folder) and settings that are given
// change single fields, or the settings describe it alone. Vocabulary and positions follow from tokenizer and data
// unless something says otherwise.
#include "train/train_internal.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

// A setting counts when it was given, or when nothing else describes the model.
typedef struct choice {
  const tr_train_config *config;
  const tr_options *options;
  int described; // by model.from
} choice;

static int counts(const choice *c, const char *path) { return !c->described || tr_options_is_set(c->options, path); }

static void take_count(const choice *c, const char *path, int64_t value, int64_t *field) {
  if (counts(c, path)) *field = value;
}

static void take_real(const choice *c, const char *path, double value, double *field) {
  if (counts(c, path)) *field = value;
}

// `own` is -1 when only the common setting says something.
static void take_dropout(const choice *c, const char *path, double own, double *field) {
  if (own >= 0)
    *field = own;
  else if (counts(c, "model.dropout") || tr_options_is_set(c->options, path))
    *field = c->config->model.dropout;
}

static void take_gpt2(const choice *c, tr_gpt2_config *out) {
  const tr_train_config *s = c->config;
  take_count(c, "model.layers", s->model.layers, &out->layers);
  take_count(c, "model.width", s->model.width, &out->width);
  take_count(c, "model.heads", s->model.heads, &out->heads);
  take_count(c, "model.ffn", s->model.ffn, &out->ffn);
  take_real(c, "model.eps", s->model.eps, &out->eps);
  take_real(c, "model.init_std", s->model.init_std, &out->init_std);
  take_dropout(c, "model.dropout_embedding", s->model.dropout_embedding, &out->dropout_embedding);
  take_dropout(c, "model.dropout_residual", s->model.dropout_residual, &out->dropout_residual);
  take_dropout(c, "model.dropout_attention", s->model.dropout_attention, &out->dropout_attention);
  if (counts(c, "model.tied")) out->tied = s->model.tied;
}

static int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

static void take_llama(const choice *c, tr_llama_config *out) {
  const tr_train_config *s = c->config;
  take_count(c, "model.layers", s->model.layers, &out->layers);
  take_count(c, "model.width", s->model.width, &out->width);
  take_count(c, "model.heads", s->model.heads, &out->heads);
  take_count(c, "model.heads_kv", s->model.heads_kv, &out->heads_kv);
  take_count(c, "model.head_dim", s->model.head_dim, &out->head_dim);
  take_count(c, "model.ffn", s->model.ffn ? s->model.ffn : round_up(8 * out->width / 3, 64), &out->ffn);
  take_count(c, "model.window", s->model.window, &out->window);
  take_real(c, "model.eps", s->model.eps, &out->eps);
  take_real(c, "model.init_std", s->model.init_std, &out->init_std);
  take_real(c, "model.rope_theta", s->model.rope_theta, &out->rope.theta);
  take_dropout(c, "model.dropout_attention", s->model.dropout_attention, &out->dropout_attention);
  if (counts(c, "model.tied")) out->tied = s->model.tied;
  if (tr_options_is_set(c->options, "model.qkv_bias")) {
    out->qkv_bias = s->model.qkv_bias;
    out->out_bias = s->model.qkv_bias && out->family != TR_QWEN2; // as attention_bias has it in their config.json
  }
  if (tr_options_is_set(c->options, "model.head_norm")) out->head_norm = s->model.head_norm;
}

static void init_family(int family, tr_arch *out) {
  static const tr_llama_family llama[] = {[TR_FAMILY_LLAMA] = TR_LLAMA,
                                          [TR_FAMILY_MISTRAL] = TR_MISTRAL,
                                          [TR_FAMILY_QWEN2] = TR_QWEN2,
                                          [TR_FAMILY_QWEN3] = TR_QWEN3};
  if (family == TR_FAMILY_GPT2) {
    out->kind = TR_ARCH_GPT2;
    tr_gpt2_config_init(&out->gpt2);
    return;
  }
  out->kind = TR_ARCH_LLAMA;
  tr_llama_config_init(&out->llama);
  out->llama.family = llama[family];
  out->llama.qkv_bias = family == TR_FAMILY_QWEN2;
  out->llama.head_norm = family == TR_FAMILY_QWEN3;
}

// model.from as the folder of a run, or of its checkpoints: the newest one.
static int find_run(tr_train_plan *plan) {
  const char *from = plan->config->model.from;
  char folder[sizeof plan->from];
  snprintf(folder, sizeof folder, "%s/checkpoints", from);
  return (tr_ckpt_find(folder, 0, plan->from, sizeof plan->from) == TR_OK ||
          tr_ckpt_find(from, 0, plan->from, sizeof plan->from) == TR_OK) &&
         tr_arch_load(plan->from, &plan->arch, NULL, 0) == TR_OK;
}

// A run that goes on can do without the folder that it started from: its checkpoints hold the same description.
static int describe_by_checkpoint(tr_train_plan *plan) {
  const tr_train_config *c = plan->config;
  char folder[sizeof plan->from];
  snprintf(folder, sizeof folder, "%s/checkpoints", c->train.folder);
  return c->train.resume == TR_RESUME_AUTO && tr_ckpt_find(folder, 0, plan->from, sizeof plan->from) == TR_OK &&
         tr_arch_load(plan->from, &plan->arch, NULL, 0) == TR_OK;
}

// Files that somebody who names this folder may well take for its weights.
static int has_weight_files(const char *folder) {
  DIR *dir = opendir(folder);
  int found = 0;
  for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir))
    found |= tr_text_ends_in(entry->d_name, ".safetensors") || tr_text_ends_in(entry->d_name, ".bin") ||
             tr_text_ends_in(entry->d_name, ".pt");
  if (dir) closedir(dir);
  return found;
}

// The weights of a folder are taken where there are some. What looks like weights and cannot be read is no reason to start
// from random ones without a word.
static tr_status find_weights(tr_train_plan *plan, const tr_options *options) {
  const tr_train_config *c = plan->config;
  tr_tensors *tensors;
  if (c->model.weights == TR_WEIGHTS_RANDOM || !has_weight_files(plan->from)) return TR_OK;
  if (tr_tensors_open(plan->from, "model", &tensors) < 0) {
    tr_error_prefix("%s: model.from", tr_options_source(options, "model.from"));
    return tr_error(TR_ERR_CKPT, "%s; model.weights=random would take the description alone", tr_status_text());
  }
  tr_tensors_close(tensors);
  snprintf(plan->model_folder, sizeof plan->model_folder, "%s", plan->from);
  return TR_OK;
}

tr_status tr__plan_from(tr_train_plan *plan, const tr_options *options) {
  const tr_train_config *c = plan->config;
  if (!*c->model.from) {
    init_family(c->model.kind, &plan->arch);
    return TR_OK;
  }
  if (tr_options_is_set(options, "model.kind"))
    return tr_options_error(options, "model.kind",
                            "model.from %s says which architecture it is; leave one of the two out", c->model.from);
  const tr_status loaded = tr_arch_load(c->model.from, &plan->arch, NULL, 0);
  if (loaded == TR_OK) {
    snprintf(plan->from, sizeof plan->from, "%s", c->model.from);
    return find_weights(plan, options);
  }
  char *reason = strdup(tr_status_text());
  if (find_run(plan)) {
    free(reason);
    return find_weights(plan, options);
  }
  tr_status status = TR_OK;
  if (!describe_by_checkpoint(plan)) {
    (void)tr_options_error(options, "model.from", "%s", reason ? reason : "cannot be read");
    status = loaded; // a damaged file is no wrong setting
  }
  free(reason);
  return status;
}

// Weights that do not fit are found before any rank starts. When settings made the model another one, they are the reason.
static tr_status check_weights(const tr_train_plan *plan, const tr_options *options, const tr_arch *described) {
  tr_tensors *tensors;
  tr_text changed = {0};
  if (!*plan->model_folder) return TR_OK;
  TR_TRY(tr_tensors_open(plan->model_folder, "model", &tensors));
  const tr_safetensors_entry **source = calloc((size_t)tr_model_params(plan->model), sizeof *source);
  tr_status status = source ? tr_weights_match(tensors, plan->model_folder, plan->model, source)
                            : tr_error(TR_ERR_MEMORY, "no memory for a list of tensors");
  if (status == TR_ERR_CKPT) tr_arch_compare(&plan->arch, described, &changed);
  if (changed.size)
    status = tr_options_error(
        options, "model.from",
        "its weights are of another model than the settings ask for: %s; leave those settings out, or "
        "take model.weights=random",
        changed.data);
  tr_text_free(&changed);
  free(source);
  tr_tensors_close(tensors);
  return status;
}

static tr_status set_vocab(tr_train_plan *plan, const tr_options *options, int64_t *field) {
  const tr_train_config *c = plan->config;
  int64_t known = plan->tokenizer ? tr_tokenizer_vocab(plan->tokenizer) : 0;
  if (c->model.vocab >= 0) *field = c->model.vocab;
  // A preset's vocabulary is that of its own tokenizer; with random weights the run's tokenizer decides.
  else if (known && !*plan->model_folder)
    *field = known;
  else if (!*c->model.from)
    return tr_options_error(options, "model.vocab",
                            "token files do not say how many tokens there are; give model.vocab or data.tokenizer");
  if (*field < known)
    return tr_options_error(options, "model.vocab", "%lld is smaller than the %lld tokens of tokenizer '%s'",
                            (long long)*field, (long long)known, tr_tokenizer_name(plan->tokenizer));
  return TR_OK;
}

static tr_status set_positions(tr_train_plan *plan, const tr_options *options, int64_t *field) {
  const tr_train_config *c = plan->config;
  if (c->model.positions >= 0)
    *field = c->model.positions;
  else if (!*plan->model_folder && (!*c->model.from || *field < c->data.sequence))
    *field = c->data.sequence;
  if (*field >= c->data.sequence) return TR_OK;
  return tr_options_error(options, c->model.positions >= 0 ? "model.positions" : "data.sequence",
                          "%lld positions are fewer than the %lld tokens of data.sequence", (long long)*field,
                          (long long)c->data.sequence);
}

// A setting of the other family that would change the model, and would be passed over.
static tr_status refuse_foreign(const tr_train_plan *plan, const tr_options *options) {
  const tr_train_config *c = plan->config;
  const tr_gpt2_config *g = &plan->arch.gpt2;
  const int gpt2 = plan->arch.kind == TR_ARCH_GPT2;
  const struct {
    const char *path;
    int asks, gpt2; // gpt2: it is a setting of gpt2
  } row[] = {{"model.heads_kv", c->model.heads_kv > 0 && c->model.heads_kv != g->heads, 0},
             {"model.head_dim", c->model.head_dim > 0 && c->model.head_dim * g->heads != g->width, 0},
             {"model.window", c->model.window > 0, 0},
             {"model.head_norm", c->model.head_norm, 0},
             {"model.dropout_embedding", c->model.dropout_embedding > 0, 1},
             {"model.dropout_residual", c->model.dropout_residual > 0, 1}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    if (row[i].gpt2 != gpt2 && row[i].asks && tr_options_is_set(options, row[i].path))
      return tr_options_error(options, row[i].path, "%s; leave it out or take another model.kind",
                              gpt2 ? "gpt2 models have no such thing" : "only gpt2 models have it");
  return TR_OK;
}

// What settings change of the model that is described, or all of it.
static tr_status settle_arch(tr_train_plan *plan, const tr_options *options) {
  choice c = {.config = plan->config, .options = options, .described = *plan->config->model.from != '\0'};
  int is_gpt2 = plan->arch.kind == TR_ARCH_GPT2;
  if (is_gpt2)
    take_gpt2(&c, &plan->arch.gpt2);
  else
    take_llama(&c, &plan->arch.llama);
  TR_TRY(refuse_foreign(plan, options));
  TR_TRY(set_vocab(plan, options, is_gpt2 ? &plan->arch.gpt2.vocab : &plan->arch.llama.vocab));
  return set_positions(plan, options, is_gpt2 ? &plan->arch.gpt2.positions : &plan->arch.llama.positions);
}

// With random weights positions could be more; that takes a data.sequence that asks for them.
tr_status tr_train_settle(const tr_train_config *config, tr_options *options) {
  int64_t most = config->model.positions;
  char value[24], source[96];
  if (tr_options_is_set(options, "data.sequence")) return TR_OK;
  if (most < 0 && *config->model.from) {
    tr_train_plan plan = {.config = config};
    if (tr__plan_from(&plan, options) < 0) return TR_OK;
    most = tr_arch_sizes_of(&plan.arch).positions;
  }
  if (most < 1 || most >= config->data.sequence) return TR_OK;
  snprintf(value, sizeof value, "%lld", (long long)most);
  snprintf(source, sizeof source, "default: what the model takes, at most %lld", (long long)config->data.sequence);
  return tr_options_default(options, "data.sequence", value, source);
}

tr_status tr_train_arch(const tr_train_config *config, const tr_options *options, tr_arch *out) {
  tr_train_plan plan = {.config = config};
  TR_TRY(tr__plan_from(&plan, options));
  TR_TRY(settle_arch(&plan, options));
  *out = plan.arch;
  return TR_OK;
}

tr_status tr__plan_model(tr_train_plan *plan, const tr_options *options) {
  const tr_arch described = plan->arch;
  TR_TRY(settle_arch(plan, options));
  plan->sizes = tr_arch_sizes_of(&plan->arch);
  plan->settled = !tr_options_is_set(options, "data.sequence") &&
                  strcmp(tr_options_source(options, "data.sequence"), "default") != 0;
  if (*plan->config->model.from) plan->described = tr_arch_sizes_of(&described);
  TR_TRY(tr_arch_create(&plan->arch, &plan->model));
  return check_weights(plan, options, &described);
}
