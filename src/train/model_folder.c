// SPDX-License-Identifier: MIT
// Weights from a model folder: config.json and model.safetensors as Hugging Face writes them, or as a
// checkpoint of our own does.
//
// The two lists of names, the model's and the file's, are matched before anything is copied, and everything
// that does not match is said at once: a wrong folder shows as a list, not as one error per attempt. Names
// count with and without "transformer.". Files of older programs also hold what is no weight (the causal mask
// of each attention) or is there twice (the output head, when it shares the embedding); both are passed over.
#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include "trireme/ckpt/safetensors.h"
#include "trireme/train/train.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_LIMIT = 4096, LIST_LIMIT = 20, CONFIG_LIMIT = 1 << 20 };
static const char prefix[] = "transformer.";

static tr_status file_in(const char *folder, const char *name, char path[PATH_LIMIT]) {
  int n = snprintf(path, PATH_LIMIT, "%s/%s", folder, name);
  if (n < 0 || n >= PATH_LIMIT)
    return tr_error(TR_ERR_CKPT, "%.60s...: the path is longer than %d bytes", folder, PATH_LIMIT - 1);
  if (!tr_file_exists(path))
    return tr_error(TR_ERR_CKPT, "%s: no %s in it; a model folder holds config.json and model.safetensors", folder,
                    name);
  return TR_OK;
}

tr_status tr_model_folder_config(const char *folder, tr_gpt2_config *out) {
  char path[PATH_LIMIT];
  json_t *json = NULL;
  TR_TRY(file_in(folder, "config.json", path));
  TR_TRY(tr_json_load(path, CONFIG_LIMIT, &json));
  tr_status status = tr_gpt2_config_from_json(json, path, out);
  json_decref(json);
  return status;
}

// What does not match, one phrase per tensor, at most LIST_LIMIT of them in the sentence.
typedef struct complaints {
  tr_text text;
  int count;
} complaints;

static void complain(complaints *c, const char *what, const char *name, const char *detail) {
  if (++c->count > LIST_LIMIT) return;
  tr_text_append(&c->text, "%s%s '%.80s'%s%s", c->count > 1 ? ", " : "", what, name, *detail ? " " : "", detail);
}

static const char *bare(const char *name) {
  size_t n = sizeof prefix - 1;
  return strncmp(name, prefix, n) == 0 ? name + n : name;
}

static const tr_safetensors_entry *find(const tr_safetensors *file, const char *name) {
  char other[512];
  const tr_safetensors_entry *entry = tr_safetensors_find(file, name);
  if (entry) return entry;
  if (bare(name) != name) return tr_safetensors_find(file, bare(name));
  snprintf(other, sizeof other, "%s%s", prefix, name);
  return tr_safetensors_find(file, other);
}

static tr_shape stored_shape(const tr_param *param) {
  tr_shape shape = param->shape;
  if (param->transposed && shape.ndim == 2) {
    shape.dim[0] = param->shape.dim[1];
    shape.dim[1] = param->shape.dim[0];
  }
  return shape;
}

static int is_real(tr_dtype type) { return type != TR_I32 && type != TR_I64 && type != TR_U8; }

static void check_param(const tr_param *param, const tr_safetensors_entry *entry, complaints *c) {
  char found[128], wanted[128], detail[300];
  if (!entry) {
    complain(c, "missing", param->name, "");
    return;
  }
  tr_shape shape = stored_shape(param);
  if (tr_shape_equal(&entry->shape, &shape) && is_real(entry->type)) return;
  tr_shape_text(&entry->shape, found, sizeof found);
  tr_shape_text(&shape, wanted, sizeof wanted);
  snprintf(detail, sizeof detail, "(%s %s, wanted %s)", tr_dtype_name(entry->type), found, wanted);
  complain(c, is_real(entry->type) ? "mis-shaped" : "not of a real type", entry->name, detail);
}

static int ends_in(const char *name, const char *suffix) {
  size_t n = strlen(name), m = strlen(suffix);
  return n >= m && strcmp(name + n - m, suffix) == 0;
}

// In the file without being a weight of this model, and no reason to complain. (A separate head is a
// parameter, so it is found.)
static int passed_over(const char *name) {
  return ends_in(name, ".attn.bias") || ends_in(name, ".attn.masked_bias") ||
         strcmp(bare(name), "lm_head.weight") == 0;
}

static int is_used(const tr_safetensors_entry *entry, const tr_safetensors_entry *const *source, int nparam) {
  for (int i = 0; i < nparam; i++)
    if (source[i] == entry) return 1;
  return 0;
}

static tr_status report(const char *path, const complaints *c) {
  if (c->count == 0) return TR_OK;
  const char *text = c->text.failed || !c->text.data ? "(no memory for their names)" : c->text.data;
  if (c->count <= LIST_LIMIT)
    return tr_error(TR_ERR_CKPT, "%s: %d tensors do not match config.json: %s", path, c->count, text);
  return tr_error(TR_ERR_CKPT, "%s: %d tensors do not match config.json: %s, and %d more", path, c->count, text,
                  c->count - LIST_LIMIT);
}

// source[i]: where parameter i comes from.
static tr_status match(const tr_safetensors *file, const char *path, const tr_model *model,
                       const tr_safetensors_entry **source) {
  complaints c = {0};
  int nparam = tr_model_params(model);
  for (int i = 0; i < nparam; i++) {
    source[i] = find(file, tr_model_param(model, i)->name);
    check_param(tr_model_param(model, i), source[i], &c);
  }
  for (size_t i = 0; i < tr_safetensors_count(file); i++) {
    const tr_safetensors_entry *entry = tr_safetensors_at(file, i);
    if (!is_used(entry, source, nparam) && !passed_over(entry->name)) complain(&c, "unexpected", entry->name, "");
  }
  tr_status status = report(path, &c);
  tr_text_free(&c.text);
  return status;
}

static tr_status copy(const tr_safetensors_entry *const *source, const tr_model *model, const tr_layout *layout,
                      tr_dtype type, char *dst, void (*progress)(void *user), void *user) {
  size_t size = tr_dtype_size(type);
  for (int i = 0; i < layout->nparam; i++) {
    int64_t begin = layout->param_offset[i], end = begin + layout->param_count[i];
    int64_t next = i + 1 < layout->nparam ? layout->param_offset[i + 1] : layout->total;
    TR_TRY(tr_safetensors_read(source[i], tr_model_param(model, i)->transposed, type, dst + (size_t)begin * size));
    memset(dst + (size_t)end * size, 0, (size_t)(next - end) * size); // gaps are zero for ever
    if (progress) progress(user);
  }
  return TR_OK;
}

tr_status tr_model_folder_weights(const char *folder, const tr_model *model, const tr_layout *layout, tr_dtype type,
                                  void *dst, void (*progress)(void *user), void *user) {
  char path[PATH_LIMIT];
  tr_safetensors *file = NULL;
  TR_TRY(file_in(folder, "model.safetensors", path));
  TR_TRY(tr_safetensors_open(path, &file));
  tr_status status;
  const tr_safetensors_entry **source = calloc((size_t)layout->nparam, sizeof *source);
  if (!source)
    status = tr_error(TR_ERR_MEMORY, "no memory for a list of %d tensors", layout->nparam);
  else if ((status = match(file, path, model, source)) == TR_OK)
    status = copy(source, model, layout, type, dst, progress, user);
  free(source);
  tr_safetensors_close(file);
  return status;
}
