// SPDX-License-Identifier: MIT
// Weights by name.
//
// The two lists of names, the model's and the folder's, are matched before anything is copied, and everything that
// does not match is said at once: a wrong folder shows as a list, not as one error per attempt. Names count with and
// without the prefix that the whole model has and its inner part alone has not. Files of other programs also hold what
// is no weight (the causal mask of each attention, rotary frequencies) or is there twice (the output head, when it
// shares the embedding); these are passed over.
#include "trireme/ckpt/weights.h"
#include "ckpt/ckpt_internal.h"
#include "trireme/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const prefixes[] = {"transformer.", "model."};
enum { PREFIXES = sizeof prefixes / sizeof prefixes[0] };

enum { NAMES_LIMIT = 4 };
typedef enum complaint { MISSING, UNEXPECTED, MIS_SHAPED, NOT_REAL, COMPLAINTS } complaint;

// What does not match, by kind: the first names, and how many there are.
typedef struct complaints {
  tr_text names[COMPLAINTS];
  int count[COMPLAINTS];
} complaints;

static void complain(complaints *c, complaint kind, const char *name, const char *detail) {
  if (++c->count[kind] > NAMES_LIMIT) return;
  tr_text_append(&c->names[kind], "%s'%.80s'%s%s", c->count[kind] > 1 ? ", " : "", name, *detail ? " " : "", detail);
}

static const char *bare(const char *name) {
  for (int i = 0; i < PREFIXES; i++) {
    size_t n = strlen(prefixes[i]);
    if (strncmp(name, prefixes[i], n) == 0) return name + n;
  }
  return name;
}

static const tr_safetensors_entry *find(const tr_tensors *tensors, const char *name) {
  char other[TR__ST_NAME_MAX + 16];
  const tr_safetensors_entry *entry = tr_tensors_find(tensors, name);
  if (!entry && bare(name) != name) return tr_tensors_find(tensors, bare(name));
  for (int i = 0; i < PREFIXES && !entry; i++) {
    snprintf(other, sizeof other, "%s%s", prefixes[i], name);
    entry = tr_tensors_find(tensors, other);
  }
  return entry;
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
    complain(c, MISSING, param->name, "");
    return;
  }
  tr_shape shape = stored_shape(param);
  if (tr_shape_equal(&entry->shape, &shape) && is_real(entry->type)) return;
  tr_shape_text(&entry->shape, found, sizeof found);
  tr_shape_text(&shape, wanted, sizeof wanted);
  snprintf(detail, sizeof detail, "(%s %s, wanted %s)", tr_dtype_name(entry->type), found, wanted);
  complain(c, is_real(entry->type) ? MIS_SHAPED : NOT_REAL, entry->name, detail);
}

// In the file without being a weight of this model, and no reason to complain. (A separate head is a
// parameter, so it is found.)
static int passed_over(const char *name) {
  static const char *const endings[] = {".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq"};
  size_t n = strlen(name);
  for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
    size_t m = strlen(endings[i]);
    if (n >= m && strcmp(name + n - m, endings[i]) == 0) return 1;
  }
  return strcmp(bare(name), "lm_head.weight") == 0;
}

static int is_used(const tr_safetensors_entry *entry, const tr_safetensors_entry *const *source, int nparam) {
  for (int i = 0; i < nparam; i++)
    if (source[i] == entry) return 1;
  return 0;
}

static tr_status report(const char *path, complaints *c) {
  static const char *const what[COMPLAINTS] = {"missing", "unexpected", "mis-shaped", "not of a real type"};
  tr_text text = {0};
  int all = 0;
  for (int kind = 0; kind < COMPLAINTS; kind++) {
    int n = c->count[kind];
    const char *names = c->names[kind].failed ? "(no memory for their names)" : c->names[kind].data;
    if (n > 0) tr_text_append(&text, "%s%s %s", all ? "; " : "", what[kind], names);
    if (n > NAMES_LIMIT) tr_text_append(&text, " and %d more", n - NAMES_LIMIT);
    all += n;
    tr_text_free(&c->names[kind]);
  }
  tr_status status = TR_OK;
  if (all > 0)
    status =
        tr_error(TR_ERR_CKPT, "%s: %d tensor%s not match config.json: %s", path, all, all == 1 ? " does" : "s do",
                 text.data && !text.failed ? text.data : "(no memory for their names)");
  tr_text_free(&text);
  return status;
}

tr_status tr_weights_match(const tr_tensors *tensors, const char *path, const tr_model *model,
                           const tr_safetensors_entry **source) {
  complaints c = {0};
  int nparam = tr_model_params(model);
  for (int i = 0; i < nparam; i++) {
    source[i] = find(tensors, tr_model_param(model, i)->name);
    check_param(tr_model_param(model, i), source[i], &c);
  }
  for (size_t i = 0; i < tr_tensors_count(tensors); i++) {
    const tr_safetensors_entry *entry = tr_tensors_at(tensors, i);
    if (!is_used(entry, source, nparam) && !passed_over(entry->name)) complain(&c, UNEXPECTED, entry->name, "");
  }
  return report(path, &c);
}

// `source` is of the whole model, `model` may be a part of it.
static tr_status copy(const tr_safetensors_entry *const *source, const tr_model *model, const tr_layout *layout,
                      tr_dtype type, char *dst, void (*progress)(void *user), void *user) {
  size_t size = tr_dtype_size(type);
  for (int i = 0; i < layout->nparam; i++) {
    int64_t begin = layout->param_offset[i], end = begin + layout->param_count[i];
    int64_t next = i + 1 < layout->nparam ? layout->param_offset[i + 1] : layout->total;
    TR_TRY(tr_safetensors_read(source[tr_model_whole_param(model, i)], tr_model_param(model, i)->transposed, type,
                               dst + (size_t)begin * size));
    memset(dst + (size_t)end * size, 0, (size_t)(next - end) * size); // gaps are zero for ever
    if (progress) progress(user);
  }
  return TR_OK;
}

tr_status tr_weights_load(const char *folder, const tr_model *model, const tr_layout *layout, tr_dtype type,
                          void *dst, void (*progress)(void *user), void *user) {
  tr_tensors *tensors;
  TR_TRY(tr_tensors_open(folder, TR__CKPT_MODEL, &tensors));
  tr_status status;
  const tr_model *whole = tr_model_whole(model);
  const tr_safetensors_entry **source = calloc((size_t)tr_model_params(whole), sizeof *source);
  if (!source)
    status = tr_error(TR_ERR_MEMORY, "no memory for a list of %d tensors", tr_model_params(whole));
  else if ((status = tr_weights_match(tensors, folder, whole, source)) == TR_OK)
    status = copy(source, model, layout, type, dst, progress, user);
  free(source);
  tr_tensors_close(tensors);
  return status;
}

int tr_weights_present(const char *folder) {
  static const char *const name[] = {"model.safetensors", "model.safetensors.index.json"};
  char path[4096];
  int found = 0;
  for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
    int n = snprintf(path, sizeof path, "%s/%s", folder, name[i]);
    found |= n > 0 && n < (int)sizeof path && tr_file_exists(path);
  }
  return found;
}
