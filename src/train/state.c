// SPDX-License-Identifier: MIT
// Saving and resuming a run. Rank 0 writes: with plain data parallelism every rank holds the same state, and a step is
// complete on all ranks before any can save it. All ranks load. What is not a tensor is trainer.json: the step decides the
// samples, the learning rate and every random number, so nothing else needs to be kept.
#include "train/train_internal.h"
#include "trireme/base/json.h"
#include "trireme/ckpt/checkpoint.h"
#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, NAME_BYTES = 192, TRAINER_VERSION = 1 };

static void checkpoints_folder(const tr__trainer *t, char *out) {
  snprintf(out, PATH_BYTES, "%s/checkpoints", t->plan->config->train.folder);
}

// ---- saving
static tr_safetensors_item item_of(const tr__trainer *t, int i, const char *name, tr_dtype type, const void *base) {
  const tr_layout *layout = &t->plan->layout;
  return (tr_safetensors_item){.name = name,
                               .type = type,
                               .stored_type = type,
                               .shape = tr_model_param(t->plan->model, i)->shape,
                               .data = (const char *)base + (size_t)layout->param_offset[i] * tr_dtype_size(type)};
}

// The f32 buffers that make up the optimizer's file: prefix and memory, in file order. Weights of `type` other than
// f32 have master weights there.
static int state_buffers(const tr__trainer *t, tr_dtype type, const char **prefix, float **base) {
  int n = 0;
  if (type != TR_F32) {
    prefix[n] = "master";
    base[n++] = tr_run_master(t->run);
  }
  for (int i = 0; i < tr_optim_state_count(&t->plan->optim); i++) {
    prefix[n] = tr_optim_state_name(&t->plan->optim, i);
    base[n++] = tr_run_state(t->run, i);
  }
  return n;
}

static char *trainer_json(const tr__trainer *t) {
  const tr_train_config *c = t->plan->config;
  char hash[17];
  snprintf(hash, sizeof hash, "%016" PRIx64, t->data_hash);
  tr_text settings = {0};
  tr_options_print(t->options, 0, &settings);
  json_t *json = json_pack("{s:i, s:I, s:I, s:I, s:s, s:I, s:s, s:I, s:I, s:s, s:I, s:s}", "version", TRAINER_VERSION,
                           "step", (json_int_t)t->step, "updates", (json_int_t)tr_run_updates(t->run), "tokens",
                           (json_int_t)t->tokens, "tokenizer", c->data.tokenizer, "seed", (json_int_t)c->train.seed,
                           "data_hash", hash, "batch_sequences", (json_int_t)c->batch.sequences, "sequence",
                           (json_int_t)c->data.sequence, "optimizer", tr__optimizer_word(c), "ranks",
                           (json_int_t)c->run.ranks, "settings", settings.data ? settings.data : "");
  char *text = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
  json_decref(json);
  tr_text_free(&settings);
  return text;
}

static void save_progress(void *user) {
  tr__trainer *t = user;
  tr_comm_beat(t->comm);
  tr__fault_point(t, "SAVE");
}

static tr_status write_checkpoint(tr__trainer *t, tr_safetensors_item *item, char (*name)[NAME_BYTES],
                                  const char *trainer, const char *config) {
  int n = t->plan->layout.nparam, nbuffer;
  const char *prefix[TR_OPTIM_MAX_STATE + 1];
  float *base[TR_OPTIM_MAX_STATE + 1];
  tr_dtype type = tr__train_type(t->plan->config);
  for (int i = 0; i < n; i++) {
    item[i] = item_of(t, i, tr_model_param(t->plan->model, i)->name, type, tr_run_weights(t->run));
    item[i].transpose = tr_model_param(t->plan->model, i)->transposed;
  }
  nbuffer = state_buffers(t, type, prefix, base);
  for (int b = 0; b < nbuffer; b++)
    for (int i = 0; i < n; i++) {
      char *own = name[b * n + i];
      snprintf(own, NAME_BYTES, "%s.%s", prefix[b], tr_model_param(t->plan->model, i)->name);
      item[n + b * n + i] = item_of(t, i, own, TR_F32, base[b]);
    }
  char folder[PATH_BYTES];
  checkpoints_folder(t, folder);
  const tr_train_config *c = t->plan->config;
  tr_ckpt_file file[] = {{.name = "model.safetensors", .item = item, .nitem = (size_t)n},
                         {.name = "config.json", .text = config},
                         {.name = "trainer.json", .text = trainer},
                         {.name = "optimizer.safetensors", .item = item + n, .nitem = (size_t)(nbuffer * n)}};
  tr_ckpt_save_options options = {.folder = folder,
                                  .step = t->step,
                                  .keep = (int)c->checkpoint.keep,
                                  .keep_every = c->checkpoint.keep_every,
                                  .progress = save_progress,
                                  .user = t};
  return tr_ckpt_save(&options, file, nbuffer ? 4 : 3);
}

tr_status tr__state_save(tr__trainer *t) {
  if (t->rank != 0) return TR_OK;
  tr_comm_activity(t->comm, "SAVE", t->step, -1);
  tr__fault_at_step(t, t->step);
  size_t n = (size_t)t->plan->layout.nparam, most = (1 + TR_OPTIM_MAX_STATE + 1) * n;
  tr_safetensors_item *item = calloc(most, sizeof *item);
  char(*name)[NAME_BYTES] = calloc(most, sizeof *name);
  char *trainer = trainer_json(t), *config = NULL;
  tr_status status = tr_gpt2_config_to_json(
      &t->plan->gpt2, tr__train_type(t->plan->config) == TR_BF16 ? "bfloat16" : "float32", &config);
  if (!item || !name || !trainer) status = tr_error(TR_ERR_MEMORY, "no memory for the tables of a checkpoint");
  if (status == TR_OK) status = write_checkpoint(t, item, name, trainer, config);
  free(item);
  free(name);
  free(trainer);
  free(config);
  return status < 0 ? status : tr__fault_status(t);
}

// ---- resuming

// A folder with nothing but leftovers of a first save that was killed holds no checkpoint; one that has them must
// load.
static int has_checkpoint(const char *folder) {
  DIR *dir = opendir(folder);
  int found = 0;
  for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir))
    found |= strncmp(entry->d_name, "step-", 5) == 0;
  if (dir) closedir(dir);
  return found;
}

static void beat(void *user) { tr_comm_beat(((tr__trainer *)user)->comm); }

// Rank 0 looks and verifies; all ranks load what it found. path "" means: start fresh.
static tr_status agree_on_path(tr__trainer *t, char *path) {
  memset(path, 0, PATH_BYTES);
  if (t->rank == 0) {
    char folder[PATH_BYTES];
    checkpoints_folder(t, folder);
    if (has_checkpoint(folder)) {
      if (t->plan->config->train.resume == TR_RESUME_NEVER)
        return tr_error(TR_ERR_CONFIG,
                        "train.resume is never, but %s holds checkpoints; another train.folder would work", folder);
      tr_comm_activity(t->comm, "verify checkpoint", -1, -1);
      TR_TRY(tr_ckpt_find_watched(folder, 1, beat, t, path, PATH_BYTES));
    }
  }
  return tr_group_broadcast(tr_comm_world(t->comm), path, PATH_BYTES, TR_U8, 0, NULL);
}

// Where the run was. The folder's name says the step too, and the two must agree.
static tr_status load_position(tr__trainer *t, const json_t *json, const char *path, const char *file) {
  int64_t version = 0;
  TR_TRY(tr_json_get_int(json, file, "version", 1, &version));
  TR_TRY(tr_json_get_int(json, file, "step", 1, &t->step));
  TR_TRY(tr_json_get_int(json, file, "tokens", 1, &t->tokens));
  int64_t updates = t->step;
  TR_TRY(tr_json_get_int(json, file, "updates", 0, &updates));
  if (version != TRAINER_VERSION)
    return tr_error(TR_ERR_CKPT, "%s: version %lld is not known; %d is", file, (long long)version, TRAINER_VERSION);
  if (t->step < 0 || t->tokens < 0 || updates < 0 || updates > t->step ||
      (tr_ckpt_step(path) >= 0 && tr_ckpt_step(path) != t->step))
    return tr_error(TR_ERR_CKPT, "%s: step %lld and tokens %lld cannot be those of %s", file, (long long)t->step,
                    (long long)t->tokens, path);
  tr_run_set_updates(t->run, updates);
  return TR_OK;
}

static tr_status load_trainer(tr__trainer *t, const char *path) {
  char file[PATH_BYTES + 32];
  json_t *json;
  snprintf(file, sizeof file, "%s/trainer.json", path);
  TR_TRY(tr_json_load(file, 1 << 20, &json));
  tr_status status = tr__same_run(t, path, json, file);
  if (status == TR_OK) status = load_position(t, json, path, file);
  json_decref(json);
  return status;
}

static tr_status load_buffer(const tr__trainer *t, const tr_safetensors *file, const char *path, const char *prefix,
                             float *base) {
  for (int i = 0; i < t->plan->layout.nparam; i++) {
    char name[NAME_BYTES];
    const tr_param *param = tr_model_param(t->plan->model, i);
    snprintf(name, sizeof name, "%s.%s", prefix, param->name);
    const tr_safetensors_entry *entry = tr_safetensors_find(file, name);
    if (!entry || !tr_shape_equal(&entry->shape, &param->shape))
      return tr_error(TR_ERR_CKPT, "%s: tensor '%s' is %s", path, name, entry ? "of another shape" : "missing");
    TR_TRY(tr_safetensors_read(entry, 0, TR_F32, base + t->plan->layout.param_offset[i]));
    tr_comm_beat(t->comm);
  }
  return TR_OK;
}

static tr_status load_optimizer(tr__trainer *t, const char *path, tr_dtype saved) {
  const char *prefix[TR_OPTIM_MAX_STATE + 1];
  float *base[TR_OPTIM_MAX_STATE + 1];
  int n = state_buffers(t, saved, prefix, base);
  if (n == 0) return TR_OK;
  char file_path[PATH_BYTES + 32];
  tr_safetensors *file;
  snprintf(file_path, sizeof file_path, "%s/optimizer.safetensors", path);
  TR_TRY(tr_safetensors_open(file_path, &file));
  tr_status status = TR_OK;
  for (int b = 0; b < n && status == TR_OK; b++) status = load_buffer(t, file, file_path, prefix[b], base[b]);
  tr_safetensors_close(file);
  return status;
}

// The type of a checkpoint's weights; other programs' files may mix types, ours do not.
static tr_status saved_type(const char *path, tr_dtype *type) {
  char file_path[PATH_BYTES + 32];
  tr_safetensors *file;
  snprintf(file_path, sizeof file_path, "%s/model.safetensors", path);
  TR_TRY(tr_safetensors_open(file_path, &file));
  *type = tr_safetensors_count(file) > 0 ? tr_safetensors_at(file, 0)->type : TR_F32;
  tr_safetensors_close(file);
  return TR_OK;
}

// Precision may change from one start to the next: f32 weights become the master weights of bf16, and the master
// weights of bf16 go on as f32.
static tr_status load_tensors(tr__trainer *t, const char *path, tr_dtype saved) {
  tr_dtype type = tr__train_type(t->plan->config);
  int widens = type != TR_F32 && saved == TR_F32;
  TR_TRY(tr_model_folder_weights(path, t->plan->model, &t->plan->layout, widens ? TR_F32 : type,
                                 widens ? tr_run_master(t->run) : tr_run_weights(t->run), beat, t));
  tr_comm_beat(t->comm);
  TR_TRY(load_optimizer(t, path, saved));
  if (widens) tr_run_publish(t->run);
  return TR_OK;
}

static void say_resumed(const tr__trainer *t, const char *path, tr_dtype saved) {
  tr_dtype type = tr__train_type(t->plan->config);
  if (t->rank != 0 || t->step >= t->plan->steps) return;
  printf("resuming from %s: %lld of %lld steps done\n", path, (long long)t->step, (long long)t->plan->steps);
  if (type != saved)
    printf("precision changes from %s to %s: the checkpoint's %s go on as the %s\n", tr_dtype_name(saved),
           tr_dtype_name(type), saved == TR_F32 ? "weights" : "f32 master weights",
           saved == TR_F32 ? "f32 master weights" : "weights");
}

tr_status tr__state_resume(tr__trainer *t, int *resumed) {
  char path[PATH_BYTES];
  tr_dtype saved;
  TR_TRY(agree_on_path(t, path));
  *resumed = path[0] != '\0';
  if (!*resumed) return TR_OK;
  tr_comm_activity(t->comm, "load checkpoint", -1, -1);
  TR_TRY(load_trainer(t, path));
  TR_TRY(saved_type(path, &saved));
  TR_TRY(load_tensors(t, path, saved));
  say_resumed(t, path, saved);
  return TR_OK;
}
