// SPDX-License-Identifier: MIT
// Descriptions of models that are planned but not built: config.json of mixtures of experts in Hugging Face form.
//
// Sizes alone are read, from which parameters, FLOPs and bytes follow; fields that change none of them (activation,
// positions, router's loss) are left to whoever builds such a model. What would change them and is not understood here, like
// experts on some layers only or windows on some, is refused by name. Everything else goes to the architectures that the library builds.
#include "trireme/base/json.h"
#include "trireme/plan/workload.h"
#include <string.h>

enum { FILE_LIMIT = 4096, TEXT_LIMIT = 1 << 20, COUNT_LIMIT = 1 << 28 };

// Names of the fields in each family; NULL: it has none.
typedef struct family {
  const char *type, *experts, *expert_ffn, *shared, *shared_ffn, *dense_first, *every;
  int latent;
} family;

static const family families[] = {
    {.type = "mixtral", .experts = "num_local_experts", .expert_ffn = "intermediate_size"},
    {.type = "qwen2_moe",
     .experts = "num_experts",
     .expert_ffn = "moe_intermediate_size",
     .shared_ffn = "shared_expert_intermediate_size",
     .every = "decoder_sparse_step"},
    {.type = "qwen3_moe",
     .experts = "num_experts",
     .expert_ffn = "moe_intermediate_size",
     .every = "decoder_sparse_step"},
    {.type = "deepseek_v2",
     .experts = "n_routed_experts",
     .expert_ffn = "moe_intermediate_size",
     .shared = "n_shared_experts",
     .dense_first = "first_k_dense_replace",
     .every = "moe_layer_freq",
     .latent = 1},
    {.type = "deepseek_v3",
     .experts = "n_routed_experts",
     .expert_ffn = "moe_intermediate_size",
     .shared = "n_shared_experts",
     .dense_first = "first_k_dense_replace",
     .every = "moe_layer_freq",
     .latent = 1},
    {.type = "kimi_k2",
     .experts = "n_routed_experts",
     .expert_ffn = "moe_intermediate_size",
     .shared = "n_shared_experts",
     .dense_first = "first_k_dense_replace",
     .every = "moe_layer_freq",
     .latent = 1},
};

static const family *family_of(const char *type) {
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    if (strcmp(type, families[i].type) == 0) return &families[i];
  return NULL;
}

static tr_status read_count(const json_t *json, const char *name, const char *key, int needed, int64_t *out) {
  if (!key) return TR_OK;
  TR_TRY(tr_json_get_int(json, name, key, needed, out));
  if (*out >= 0 && *out <= COUNT_LIMIT) return TR_OK;
  return tr_error(TR_ERR_CKPT, "%s: %s is %lld; it must be 0 to %d", name, key, (long long)*out, COUNT_LIMIT);
}

static tr_status read_sizes(const json_t *json, const char *name, tr_workload *w) {
  TR_TRY(read_count(json, name, "num_hidden_layers", 1, &w->layers));
  TR_TRY(read_count(json, name, "hidden_size", 1, &w->width));
  TR_TRY(read_count(json, name, "num_attention_heads", 1, &w->heads));
  w->heads_kv = w->heads;
  TR_TRY(read_count(json, name, "num_key_value_heads", 0, &w->heads_kv));
  w->head_dim = w->heads > 0 ? w->width / w->heads : 0;
  TR_TRY(read_count(json, name, "head_dim", 0, &w->head_dim));
  TR_TRY(read_count(json, name, "intermediate_size", 1, &w->ffn));
  TR_TRY(read_count(json, name, "vocab_size", 1, &w->vocab));
  return tr_json_get_bool(json, name, "tie_word_embeddings", 0, &w->tied);
}

// Layers without experts are understood where they are the first of the model.
static tr_status read_dense_layers(const json_t *json, const char *name, tr_workload *w) {
  const json_t *list = json_object_get(json, "mlp_only_layers");
  if (!list || json_is_null(list)) return TR_OK;
  for (size_t i = 0; i < json_array_size(list); i++)
    if (json_integer_value(json_array_get(list, i)) != (json_int_t)i)
      return tr_error(TR_ERR_CKPT, "%s: mlp_only_layers is understood for the first layers of a model only", name);
  if (!json_is_array(list)) return tr_error(TR_ERR_CKPT, "%s: mlp_only_layers must be a list of layers", name);
  w->dense_first = (int64_t)json_array_size(list);
  if (w->dense_first == 0 || w->every == 1) return TR_OK;
  return tr_error(TR_ERR_CKPT, "%s: mlp_only_layers beside decoder_sparse_step %lld is not understood", name,
                  (long long)w->every);
}

static tr_status read_experts(const json_t *json, const char *name, const family *f, tr_workload *w) {
  int64_t wide = 0;
  w->every = 1;
  TR_TRY(read_count(json, name, f->experts, 1, &w->experts));
  TR_TRY(read_count(json, name, "num_experts_per_tok", 1, &w->active));
  TR_TRY(read_count(json, name, f->expert_ffn, 1, &w->expert_ffn));
  TR_TRY(read_count(json, name, f->shared, 0, &w->shared));
  TR_TRY(read_count(json, name, f->dense_first, 0, &w->dense_first));
  TR_TRY(read_count(json, name, f->every, 0, &w->every));
  if (w->every == 0)
    return tr_error(TR_ERR_CKPT, "%s: %s is 0; 1, experts on every layer, or more works", name, f->every);
  TR_TRY(read_dense_layers(json, name, w));
  TR_TRY(read_count(json, name, f->shared_ffn, 0, &wide));
  if (wide == 0) return TR_OK;
  if (w->expert_ffn == 0 || wide % w->expert_ffn != 0)
    return tr_error(TR_ERR_CKPT, "%s: %s is %lld; it must be a multiple of %s, %lld", name, f->shared_ffn,
                    (long long)wide, f->expert_ffn, (long long)w->expert_ffn);
  w->shared = wide / w->expert_ffn;
  return TR_OK;
}

// Groups count only where the router keeps to some of them.
static tr_status read_groups(const json_t *json, const char *name, tr_workload *w) {
  const char *method = "";
  TR_TRY(tr_json_get_string(json, name, "topk_method", 0, &method));
  if (strcmp(method, "greedy") == 0) return TR_OK;
  TR_TRY(read_count(json, name, "n_group", 0, &w->groups));
  TR_TRY(read_count(json, name, "topk_group", 0, &w->group_limit));
  if (w->groups <= 1 || w->group_limit == 0) w->groups = w->group_limit = 0;
  return TR_OK;
}

static tr_status read_latent(const json_t *json, const char *name, tr_workload *w) {
  int64_t plain = 0, values = 0;
  TR_TRY(read_count(json, name, "q_lora_rank", 0, &w->q_rank));
  TR_TRY(read_count(json, name, "kv_lora_rank", 1, &w->kv_rank));
  TR_TRY(read_count(json, name, "qk_rope_head_dim", 1, &w->rope_dim));
  TR_TRY(read_count(json, name, "qk_nope_head_dim", 1, &plain));
  TR_TRY(read_count(json, name, "v_head_dim", 1, &values));
  TR_TRY(read_count(json, name, "num_nextn_predict_layers", 0, &w->predict_more));
  if (plain != values)
    return tr_error(TR_ERR_CKPT, "%s: v_head_dim is %lld; only that of qk_nope_head_dim, %lld, is understood", name,
                    (long long)values, (long long)plain);
  w->head_dim = plain + w->rope_dim;
  return read_groups(json, name, w);
}

static tr_status read_window(const json_t *json, const char *name, const family *f, tr_workload *w) {
  int used = strcmp(f->type, "mixtral") == 0;
  TR_TRY(tr_json_get_bool(json, name, "use_sliding_window", 0, &used));
  if (!used) return TR_OK;
  TR_TRY(read_count(json, name, "sliding_window", 0, &w->window));
  if (w->window == 0 || strcmp(f->type, "mixtral") == 0) return TR_OK;
  return tr_error(TR_ERR_CKPT, "%s: use_sliding_window is not understood here, since it holds for some layers only",
                  name);
}

static tr_status read_family(const json_t *json, const char *name, const family *f, tr_workload *out) {
  tr_workload w = {.gated = 1};
  TR_TRY(read_sizes(json, name, &w));
  TR_TRY(read_experts(json, name, f, &w));
  if (f->latent) TR_TRY(read_latent(json, name, &w));
  TR_TRY(read_window(json, name, f, &w));
  if (tr_workload_check(&w) < 0) {
    tr_error_prefix("%s", name);
    return TR_ERR_CKPT;
  }
  *out = w;
  return TR_OK;
}

static tr_status read_built(const json_t *json, const char *name, tr_workload *out) {
  tr_arch arch;
  TR_TRY(tr_arch_from_json(json, name, &arch));
  *out = tr_workload_from_arch(&arch);
  return TR_OK;
}

tr_status tr_workload_load(const char *name, tr_workload *out, int *planned_only) {
  char path[FILE_LIMIT];
  const char *type = "";
  json_t *json = NULL;
  TR_TRY(tr_arch_find(name, path, sizeof path));
  TR_TRY(tr_json_load(path, TEXT_LIMIT, &json));
  tr_status status = tr_json_get_string(json, path, "model_type", 0, &type);
  const family *f = status == TR_OK ? family_of(type) : NULL;
  if (status == TR_OK) status = f ? read_family(json, path, f, out) : read_built(json, path, out);
  if (status == TR_OK && planned_only) *planned_only = f != NULL;
  json_decref(json);
  return status;
}
