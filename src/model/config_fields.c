// SPDX-License-Identifier: MIT
// What every architecture's description is checked with.
//
// config.json files carry whatever the program that wrote them knew. A field that nobody here knows might change the
// mathematics, so it is refused by name; the fields listed below are about generating, classifying, caching, or the
// history of the file, and change nothing in what a model computes.
#include "model/config_internal.h"
#include "trireme/base/json.h"
#include <string.h>

tr_status tr__config_range(const char *field, double value, double least, double most) {
  if (value >= least && value <= most) return TR_OK;
  return tr_error(TR_ERR_CONFIG, "model.%s is %.15g; it must lie between %.15g and %.15g", field, value, least, most);
}

tr_status tr__config_divides(const char *part_field, int64_t part, const char *whole_field, int64_t whole) {
  if (whole % part == 0) return TR_OK;
  int64_t below = part, above = part;
  while (whole % below) below--;
  while (above < whole && whole % above) above++;
  if (above > whole) above = below;
  return tr_error(TR_ERR_CONFIG, "model.%s %lld does not divide model.%s %lld; %lld or %lld would", part_field,
                  (long long)part, whole_field, (long long)whole, (long long)below, (long long)above);
}

// clang-format off
static const char *const of_others[] = {
    "_source", // presets: where the figures are from
    "architectures", "auto_map", "model_type", "torch_dtype", "dtype", "transformers_version", "_name_or_path",
    "_commit_hash", "_attn_implementation_autoset", "attn_implementation", "gradient_checkpointing", "tokenizer_class",
    "prefix", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id", "use_cache",
    // one task or another
    "task_specific_params", "finetuning_task", "problem_type", "id2label", "label2id", "num_labels",
    "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout",
    "classifier_dropout",
    // what a call returns, and how it is run
    "return_dict", "output_attentions", "output_hidden_states", "output_scores", "return_dict_in_generate",
    "torchscript", "use_bfloat16", "tf_legacy_loss", "chunk_size_feed_forward", "is_decoder", "tie_encoder_decoder",
    // generating
    "max_length", "min_length", "max_new_tokens", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences",
    "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
    "suppress_tokens", "begin_suppress_tokens", NULL};
// clang-format on

static int is_in(const char *word, const char *const *list) {
  for (; *list; list++)
    if (strcmp(word, *list) == 0) return 1;
  return 0;
}

// Fields of every architecture that have one setting here. Heads that were cut out would change shapes.
static tr_status check_common(const json_t *json, const char *name) {
  TR_TRY(tr__config_fixed(json, name, "is_encoder_decoder", 0));
  TR_TRY(tr__config_fixed(json, name, "add_cross_attention", 0));
  const json_t *pruned = json_object_get(json, "pruned_heads");
  if (!pruned || (json_is_object(pruned) && json_object_size(pruned) == 0)) return TR_OK;
  return tr_error(TR_ERR_CKPT, "%s: models with pruned_heads are not supported", name);
}

// Of a file that was read, not of one that is written now: code to be run, and where the file came from.
static int is_of_that_file(const char *field) {
  static const char *const fields[] = {"auto_map", "_commit_hash", "_source", "torch_dtype", "dtype", NULL};
  return is_in(field, fields);
}

int tr__config_is_foreign(const char *field) { return is_in(field, of_others) && !is_of_that_file(field); }

tr_status tr__config_fields(const json_t *json, const char *name, const char *const *known) {
  static const char *const common[] = {"is_encoder_decoder", "add_cross_attention", "pruned_heads", NULL};
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)json, key, value) {
    if (json_is_null(value) || is_in(key, known) || is_in(key, common) || is_in(key, of_others)) continue;
    return tr_error(TR_ERR_CKPT, "%s: field '%.60s' is not known and might change what the model computes", name,
                    key);
  }
  return check_common(json, name);
}

tr_status tr__config_fixed(const json_t *json, const char *name, const char *key, int value) {
  int found = value;
  TR_TRY(tr_json_get_bool(json, name, key, 0, &found));
  if (found == value) return TR_OK;
  return tr_error(TR_ERR_CKPT, "%s: %s = %s is not supported; only %s is", name, key, found ? "true" : "false",
                  value ? "true" : "false");
}
