// SPDX-License-Identifier: MIT
// What a checkpoint holds besides tensors and the state of the run, so that it is a whole Hugging Face folder: the tokenizer
// with the files that belong to it, and config.json with the fields of the folder that the run started from. Only the
// first rank reads and makes texts; all ranks know which files there are.
#include "train/saving_internal.h"
#include "trireme/base/file.h"
#include "trireme/ckpt/convert.h"
#include <stdlib.h>
#include <string.h>

enum { SIDE_LIMIT = 256 << 20 };
static const char tokenizer_config[] = "tokenizer_config.json";

// Where a side file of this name is, if it is anywhere: what belongs to the tokenizer lies beside it.
static int find_side(const tr_train_plan *plan, const char *name, char *path, size_t nbyte) {
  const char *slash = strrchr(plan->tokenizer_path, '/');
  int n, of_model = strncmp(name, "generation", 10) == 0;
  if (strcmp(name, "tokenizer.json") == 0) // under any name
    n = snprintf(path, nbyte, "%s", plan->tokenizer_path);
  else if (of_model || !*plan->tokenizer_path)
    n = of_model && *plan->from ? snprintf(path, nbyte, "%s/%s", plan->from, name) : 0;
  else
    n = snprintf(path, nbyte, "%.*s%s", slash ? (int)(slash - plan->tokenizer_path) + 1 : 0, plan->tokenizer_path,
                 name);
  return n > 0 && (size_t)n < nbyte && tr_file_exists(path);
}

void tr__side_files_list(const tr_train_plan *plan, saved_files *f) {
  char path[4096 + 64];
  for (size_t i = 0; tr_convert_side_file(i) && f->nside < SAVED_SIDES; i++) {
    const char *name = tr_convert_side_file(i);
    int made = strcmp(name, tokenizer_config) == 0 && *plan->tokenizer_path;
    if (!made && !find_side(plan, name, path, sizeof path)) continue;
    f->side[f->nside++] = (int)f->nfile;
    f->file[f->nfile++] = (tr_ckpt_file){.name = name};
  }
}

// A tokenizer that came alone: without this file transformers would take the class that goes with the model's type, and
// that class has special tokens of its own.
static char *plain_tokenizer_config(const tr_train_plan *plan) {
  tr_text end = {0};
  int32_t token = tr_tokenizer_end(plan->tokenizer);
  if (token >= 0 && tr_decode(plan->tokenizer, &token, 1, 0, &end) < 0) end.failed = 1;
  json_t *json = json_pack("{s:s, s:I, s:o}", "tokenizer_class", "PreTrainedTokenizerFast", "model_max_length",
                           (json_int_t)plan->sizes.positions, "eos_token",
                           end.size && !end.failed ? json_stringn(end.data, end.size) : json_null());
  char *text = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
  json_decref(json);
  tr_text_free(&end);
  return text;
}

tr_status tr__side_files_read(const tr_train_plan *plan, saved_files *f) {
  char path[4096 + 64];
  size_t nbyte;
  for (int i = 0; i < f->nside; i++) {
    const char *name = f->file[f->side[i]].name;
    if (find_side(plan, name, path, sizeof path))
      TR_TRY(tr_file_read(path, SIDE_LIMIT, &f->side_text[i], &nbyte));
    else if (!(f->side_text[i] = plain_tokenizer_config(plan)))
      return tr_error(TR_ERR_MEMORY, "no memory for %s", tokenizer_config);
    f->text[f->side[i]] = f->side_text[i];
  }
  return TR_OK;
}

// Where config.json says nothing of special tokens, transformers takes numbers of its own.
static tr_status add_token_numbers(const tr_train_plan *plan, char **text) {
  json_t *json = json_loads(*text, 0, NULL);
  if (!json) return tr_error(TR_ERR_INTERNAL, "config.json of the checkpoint is no JSON");
  if (!json_object_get(json, "eos_token_id"))
    json_object_set_new(json, "eos_token_id", plan->end >= 0 ? json_integer(plan->end) : json_null());
  if (!json_object_get(json, "bos_token_id")) json_object_set_new(json, "bos_token_id", json_null());
  char *whole = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
  json_decref(json);
  if (!whole) return tr_error(TR_ERR_MEMORY, "no memory for config.json");
  free(*text);
  *text = whole;
  return TR_OK;
}

// The numbers of special tokens in the folder's config.json hold as long as its tokenizer is kept.
static int keeps_tokenizer(const tr_train_plan *plan) {
  size_t n = strlen(plan->from);
  if (!plan->tokenizer) return 1;
  if (tr_tokenizer_is_bytes(plan->tokenizer)) return plan->described.vocab == 256;
  return strncmp(plan->tokenizer_path, plan->from, n) == 0 && plan->tokenizer_path[n] == '/';
}

tr_status tr__config_text(const tr_train_plan *plan, char **out) {
  char path[4096 + 64], *merged = NULL;
  tr_dtype type = tr__train_type(plan->config);
  TR_TRY(tr_arch_to_json(&plan->arch, type == TR_BF16 ? "bfloat16" : "float32", out));
  snprintf(path, sizeof path, "%s/config.json", plan->from);
  if (*plan->from && keeps_tokenizer(plan) && tr_file_exists(path)) {
    TR_TRY(tr_config_text_merge(path, *out, &merged));
    free(*out);
    *out = merged;
  }
  return add_token_numbers(plan, out);
}
