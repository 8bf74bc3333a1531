// SPDX-License-Identifier: MIT
// Folders of weights into folders of weights.
//
// The new folder is a list of files, as of any checkpoint, whose tensors lie in the maps of the old one: they are
// converted on their way through the writer's buffer, so no tensor is ever whole in memory. The folder is built beside
// its place and moved there when it is complete. Pickle is not read in any form.
#include "trireme/ckpt/convert.h"
#include "ckpt/ckpt_internal.h"
#include "ckpt/convert_internal.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include "trireme/ckpt/weights.h"
#include "trireme/model/arch.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANGE_BLOCK = 1024 };

typedef struct work {
  const tr_convert_options *options;
  tr_model *model;
  tr_tensors *weights, *state;                   // of the source
  tr_safetensors_item *weight_item, *state_item; // of the result
  // Files of the result; names and texts are owned.
  tr_ckpt_file *file;
  char **name, **text;
  size_t nfile;
  uint64_t done, all;
} work;

static int is_real(tr_dtype type) { return type != TR_I32 && type != TR_I64 && type != TR_U8; }

// ---- which tensors

static tr_status too_large(const char *name, double value, tr_dtype type) {
  char quoted[TR__CKPT_QUOTE_MAX];
  double size = fabs(value);
  const char *fits = size < 3.38e38   ? "bf16 or f32 would work"
                     : size < FLT_MAX ? "f32 would work"
                                      : "without a type it stays as it is";
  return tr_error(TR_ERR_CONFIG, "tensor '%s' has the value %g, which is infinite in %s; %s",
                  tr__ckpt_quote(name, quoted), value, tr_dtype_name(type), fits);
}

// No finite number becomes infinite.
static tr_status check_range(const tr_safetensors_entry *entry, tr_dtype type) {
  float stored[RANGE_BLOCK], back[RANGE_BLOCK]; // of at most four bytes each
  tr_safetensors_item item = {entry->name, entry->type, type, entry->shape, entry->data, 0}, exact = item;
  size_t count = (size_t)tr_shape_count(&entry->shape);
  exact.stored_type = TR_F64;
  for (size_t i = 0; i < count; i += RANGE_BLOCK) {
    size_t part = count - i < RANGE_BLOCK ? count - i : RANGE_BLOCK;
    tr__stored_range(&item, i, part, stored);
    tr_convert(type, stored, TR_F32, back, part);
    for (size_t k = 0; k < part; k++) {
      double value = 0;
      if (isfinite(back[k])) continue;
      tr__stored_range(&exact, i + k, 1, &value);
      if (isfinite(value)) return too_large(entry->name, value, type);
    }
  }
  return TR_OK;
}

// Whether numbers of one type may have no place in another.
static int is_narrower(tr_dtype type, tr_dtype than) {
  return type != than && (type == TR_F16 || tr_dtype_size(type) < tr_dtype_size(than));
}

// The name in the result; NULL: left out.
static const char *new_name(const work *w, const tr_safetensors_entry *entry,
                            const tr_safetensors_entry *const *source) {
  if (w->options->names == TR_NAMES_KEEP) return entry->name;
  for (int p = 0; p < tr_model_params(w->model); p++)
    if (source[p] == entry) return tr_model_param(w->model, p)->name;
  return NULL;
}

static tr_status take_weights(work *w, const tr_safetensors_entry *const *source, size_t *count) {
  for (size_t i = 0; i < tr_tensors_count(w->weights); i++) {
    const tr_safetensors_entry *entry = tr_tensors_at(w->weights, i);
    const char *name = new_name(w, entry, source);
    if (!name) continue;
    int changes = w->options->dtype >= 0 && is_real(entry->type);
    tr_dtype type = changes ? (tr_dtype)w->options->dtype : entry->type;
    if (is_narrower(type, entry->type)) TR_TRY(check_range(entry, type));
    w->weight_item[(*count)++] = (tr_safetensors_item){name, entry->type, type, entry->shape, entry->data, 0};
  }
  return TR_OK;
}

static tr_status match_weights(work *w, size_t *count) {
  tr_status status = TR_OK;
  const tr_safetensors_entry **source = calloc((size_t)tr_model_params(w->model) + 1, sizeof *source);
  w->weight_item = calloc(tr_tensors_count(w->weights) + 1, sizeof *w->weight_item);
  if (!source || !w->weight_item)
    status = tr_error(TR_ERR_MEMORY, "no memory for a list of %zu tensors", tr_tensors_count(w->weights));
  if (status == TR_OK) status = tr_weights_match(w->weights, w->options->from, w->model, source);
  if (status == TR_OK) status = take_weights(w, source, count);
  free(source);
  return status;
}

// The optimizer's tensors, as they are.
static tr_status take_state(work *w, size_t *count) {
  TR_TRY(tr_tensors_open(w->options->from, "optimizer", &w->state));
  *count = tr_tensors_count(w->state);
  w->state_item = calloc(*count + 1, sizeof *w->state_item);
  if (!w->state_item) return tr_error(TR_ERR_MEMORY, "no memory for a list of %zu tensors", *count);
  for (size_t i = 0; i < *count; i++) {
    const tr_safetensors_entry *entry = tr_tensors_at(w->state, i);
    w->state_item[i] = (tr_safetensors_item){entry->name, entry->type, entry->type, entry->shape, entry->data, 0};
  }
  return TR_OK;
}

// ---- which files

// Takes `text` over, whatever happens. item NULL: a file of text.
static tr_status add_file(work *w, const char *name, const tr_safetensors_item *item, size_t nitem, char *text) {
  size_t n = w->nfile + 1;
  tr_ckpt_file *file = reallocarray(w->file, n, sizeof *file);
  if (file) w->file = file;
  char **names = reallocarray(w->name, n, sizeof *names);
  if (names) w->name = names;
  char **texts = reallocarray(w->text, n, sizeof *texts), *copy = strdup(name);
  if (texts) w->text = texts;
  if (!file || !names || !texts || !copy) {
    free(copy);
    free(text);
    return tr_error(TR_ERR_MEMORY, "no memory for a list of %zu files", n);
  }
  w->name[w->nfile] = copy;
  w->text[w->nfile] = text;
  w->file[w->nfile++] = (tr_ckpt_file){.name = copy, .item = item, .nitem = nitem};
  return TR_OK;
}

// Cut into exactly `count` files of about the same size.
static tr_status cut_evenly(const tr_safetensors_item *item, size_t nitem, size_t count, size_t *file_of) {
  uint64_t left = 0;
  if (count > nitem)
    return tr_error(TR_ERR_CONFIG, "%zu tensors cannot be cut into %zu files; at most one file per tensor", nitem,
                    count);
  for (size_t i = 0; i < nitem; i++) left += tr__stored_nbyte(&item[i]);
  for (size_t f = 0, i = 0; f < count; f++) {
    uint64_t target = left / (count - f), used = 0, next = tr__stored_nbyte(&item[i]);
    size_t end = nitem - (count - f - 1); // the later files need a tensor each
    do {
      file_of[i] = f;
      used += next;
      next = ++i < nitem ? tr__stored_nbyte(&item[i]) : 0;
    } while (i < end && (f + 1 == count || used + next / 2 <= target));
    left -= used;
  }
  return TR_OK;
}

static tr_status add_cut(work *w, const char *kind, const tr_safetensors_item *item, size_t nitem,
                         const size_t *file_of, size_t count) {
  char name[TR__CKPT_NAME_MAX], *index = NULL;
  for (size_t f = 0, first = 0, end; f < count; f++, first = end) {
    for (end = first; end < nitem && file_of[end] == f;) end++;
    tr_tensors_file_name(kind, f, count, name, sizeof name);
    TR_TRY(add_file(w, name, item + first, end - first, NULL));
  }
  if (count == 1) return TR_OK;
  TR_TRY(tr_tensors_index_text(kind, item, nitem, file_of, count, &index));
  snprintf(name, sizeof name, "%s" TR__CKPT_INDEX, kind);
  return add_file(w, name, NULL, 0, index);
}

static tr_status add_tensors(work *w, const char *kind, const tr_safetensors_item *item, size_t nitem) {
  const tr_convert_options *o = w->options;
  size_t count = (size_t)o->shards, *file_of = calloc(nitem + 1, sizeof *file_of);
  if (!file_of) return tr_error(TR_ERR_MEMORY, "no memory for a list of %zu tensors", nitem);
  tr_status status = TR_OK;
  if (o->shards > 0)
    status = cut_evenly(item, nitem, count, file_of);
  else
    count = tr_tensors_cut(item, nitem, o->shard_limit, file_of);
  if (status == TR_OK && count > TR__CKPT_FILE_MAX / 2)
    status = tr_error(TR_ERR_CONFIG, "%zu files; at most %d are possible", count, TR__CKPT_FILE_MAX / 2);
  if (status == TR_OK) status = add_cut(w, kind, item, nitem, file_of, count);
  free(file_of);
  return status;
}

static tr_status add_text(work *w, const char *name) {
  char *text = NULL;
  TR_TRY(tr__convert_read_text(w->options->from, name, &text));
  return add_file(w, name, NULL, 0, text);
}

static tr_status add_config(work *w) {
  static const char *const names[] = {[TR_F32] = "float32", [TR_BF16] = "bfloat16", [TR_F16] = "float16"};
  char *text = NULL, *changed = NULL;
  TR_TRY(tr__convert_read_text(w->options->from, "config.json", &text));
  if (w->options->dtype < 0) return add_file(w, "config.json", NULL, 0, text);
  tr_status status = tr__convert_set_dtype(text, names[w->options->dtype], &changed);
  free(text);
  return status < 0 ? status : add_file(w, "config.json", NULL, 0, changed);
}

static tr_status add_side_files(work *w) {
  for (size_t i = 0; tr_convert_side_file(i); i++)
    if (tr__ckpt_has(w->options->from, tr_convert_side_file(i))) TR_TRY(add_text(w, tr_convert_side_file(i)));
  return TR_OK;
}

static tr_status collect(work *w) {
  size_t nweight = 0, nstate = 0;
  TR_TRY(tr_tensors_open(w->options->from, TR__CKPT_MODEL, &w->weights));
  TR_TRY(match_weights(w, &nweight));
  TR_TRY(add_tensors(w, TR__CKPT_MODEL, w->weight_item, nweight));
  TR_TRY(add_config(w));
  TR_TRY(add_side_files(w));
  if (!w->options->optimizer) return TR_OK;
  TR_TRY(add_text(w, "trainer.json"));
  TR_TRY(take_state(w, &nstate));
  return add_tensors(w, "optimizer", w->state_item, nstate);
}

// ---- writing

static tr_status report(void *user, size_t nbyte) {
  work *w = user;
  w->done += nbyte;
  if (w->options->progress) w->options->progress(w->options->user, w->done < w->all ? w->done : w->all, w->all);
  return TR_OK;
}

// What was converted was what the files had, to the end.
static tr_status check_maps(const tr_tensors *tensors) {
  for (size_t i = 0; tensors && i < tr_tensors_count(tensors); i++)
    TR_TRY(tr__st_check_map(tr_tensors_at(tensors, i)->file));
  return TR_OK;
}

static tr_status build(work *w, const char *temporary) {
  tr__plan plan;
  int64_t step = tr_ckpt_step(w->options->from);
  TR_TRY(tr__plan_make(w->file, w->nfile, 1, NULL, NULL, &plan));
  for (size_t f = 0; f < plan.nfile; f++) w->all += plan.file[f].is_text ? strlen(w->text[f]) : plan.file[f].nbyte;
  tr__build build = {
      .plan = &plan, .folder = temporary, .step = step < 0 ? 0 : step, .file = w->file, .wrote = report, .user = w};
  tr_status status = tr__build_all(&build, (const char *const *)w->text);
  tr__plan_free(&plan);
  return status;
}

// Where to build: beside `to`, which may not have been given its folder yet.
static tr_status beside(const char *to, char parent[TR__CKPT_PATH_MAX], char temporary[TR__CKPT_PATH_MAX]) {
  size_t n = strlen(to);
  while (n > 1 && to[n - 1] == '/') n--;
  size_t base = n;
  while (base > 0 && to[base - 1] != '/') base--;
  snprintf(parent, TR__CKPT_PATH_MAX, "%.*s", base ? (int)base : 1, base ? to : ".");
  int length = snprintf(temporary, TR__CKPT_PATH_MAX, "%.*s.%.*s.tmp-%d", (int)base, to, (int)(n - base), to + base,
                        (int)getpid());
  if (n == base || length >= TR__CKPT_PATH_MAX)
    return tr_error(TR_ERR_USAGE, "%.60s: cannot be the name of a new folder", to);
  return tr_file_make_folders(parent);
}

static tr_status place(const work *w, const char *temporary, const char *parent) {
  const char *to = w->options->to;
  TR_TRY(check_maps(w->weights));
  TR_TRY(check_maps(w->state));
  int failed = renameat2(AT_FDCWD, temporary, AT_FDCWD, to, RENAME_NOREPLACE) != 0;
  if (failed && (errno == EINVAL || errno == ENOSYS)) failed = rename(temporary, to) != 0;
  if (failed) return tr_error(TR_ERR_IO, "%s: cannot rename %s to it: %s", to, temporary, strerror(errno));
  return tr_file_sync_folder(parent);
}

static tr_status write_folder(work *w) {
  char temporary[TR__CKPT_PATH_MAX], parent[TR__CKPT_PATH_MAX];
  TR_TRY(beside(w->options->to, parent, temporary));
  TR_TRY(tr_file_remove_tree(temporary)); // of a process that had our number
  TR_TRY(build(w, temporary));
  tr_status status = place(w, temporary, parent);
  if (status < 0) tr__save_give_up(temporary, status);
  return status;
}

// ---- the whole

static tr_status check_options(const tr_convert_options *o) {
  if (o->dtype >= 0 && o->dtype != TR_F32 && o->dtype != TR_BF16 && o->dtype != TR_F16)
    return tr_error(TR_ERR_USAGE, "weights are converted to f32, bf16 or f16, not to %s",
                    tr_dtype_name((tr_dtype)o->dtype));
  if (o->dtype >= 0 && o->optimizer)
    return tr_error(TR_ERR_USAGE, "what is to be resumed keeps its number types: the precision of a run may change "
                                  "when it is resumed. Leave out the type or the optimizer");
  if (o->shards < 0 || o->shards > TR__CKPT_FILE_MAX / 2)
    return tr_error(TR_ERR_USAGE, "1 to %d files are possible, not %lld", TR__CKPT_FILE_MAX / 2,
                    (long long)o->shards);
  if (tr_file_exists(o->to))
    return tr_error(TR_ERR_CONFIG, "%s: is there already; give the name of a new folder", o->to);
  if (!tr_file_exists(o->from)) return tr_error(TR_ERR_CKPT, "%s: %s", o->from, strerror(errno));
  if (o->optimizer && !tr__ckpt_has(o->from, "trainer.json"))
    return tr_error(TR_ERR_CKPT,
                    "%s: no trainer.json in it, so there is no run to be resumed; leave out the optimizer", o->from);
  if (!tr__ckpt_has(o->from, "config.json"))
    return tr_error(TR_ERR_CKPT, "%s: no config.json in it, so it is not known which model its tensors are of",
                    o->from);
  return TR_OK;
}

static tr_status load_model(const char *folder, tr_model **out) {
  char path[TR__CKPT_PATH_MAX];
  tr_arch arch;
  TR_TRY(tr__ckpt_join(path, folder, "config.json"));
  TR_TRY(tr_arch_load(path, &arch, NULL, 0));
  return tr_arch_create(&arch, out);
}

tr_status tr_convert_folder(const tr_convert_options *options) {
  work w = {.options = options};
  TR_TRY(check_options(options));
  tr_status status = load_model(options->from, &w.model);
  if (status == TR_OK) status = collect(&w);
  if (status == TR_OK) status = write_folder(&w);
  for (size_t f = 0; f < w.nfile; f++) {
    free(w.name[f]);
    free(w.text[f]);
  }
  free(w.file);
  free(w.name);
  free(w.text);
  free(w.state_item);
  free(w.weight_item);
  tr_tensors_close(w.state);
  tr_tensors_close(w.weights);
  tr_model_destroy(w.model);
  return status;
}
