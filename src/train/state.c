// SPDX-License-Identifier: MIT
// Saving and resuming a run. Rank 0 writes: with plain data parallelism every rank holds the same state, and a step is
// complete on all ranks before any can save it. All ranks load. What is not a tensor is trainer.json: the step decides the
// samples, the learning rate and every random number, so nothing else needs to be kept.
#include "train/train_internal.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include "trireme/ckpt/checkpoint.h"
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, NAME_BYTES = 192 };

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

// The f32 buffers that make up the optimizer's file: prefix and memory, in file order.
static int state_buffers(const tr__trainer *t, const char **prefix, float **base) {
  int n = 0;
  if (tr_run_master(t->run) != tr_run_weights(t->run)) {
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
  json_t *json =
      json_pack("{s:i, s:I, s:I, s:s, s:I, s:s, s:I, s:I, s:s, s:I, s:s}", "version", 1, "step", (json_int_t)t->step,
                "tokens", (json_int_t)t->tokens, "tokenizer", c->data.tokenizer, "seed", (json_int_t)c->train.seed,
                "data_hash", hash, "batch_sequences", (json_int_t)c->batch.sequences, "sequence",
                (json_int_t)c->data.sequence, "optimizer", c->optim.kind ? "sgd" : "adamw", "ranks",
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
  tr_dtype type = t->plan->config->precision.compute ? TR_BF16 : TR_F32;
  for (int i = 0; i < n; i++) {
    item[i] = item_of(t, i, tr_model_param(t->plan->model, i)->name, type, tr_run_weights(t->run));
    item[i].transpose = tr_model_param(t->plan->model, i)->transposed;
  }
  nbuffer = state_buffers(t, prefix, base);
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
  tr_comm_activity(t->comm, "SAVE", t->step, 0);
  tr__fault_at_step(t, t->step);
  size_t n = (size_t)t->plan->layout.nparam, most = (1 + TR_OPTIM_MAX_STATE + 1) * n;
  tr_safetensors_item *item = calloc(most, sizeof *item);
  char(*name)[NAME_BYTES] = calloc(most, sizeof *name);
  char *trainer = trainer_json(t), *config = NULL;
  tr_status status =
      tr_gpt2_config_to_json(&t->plan->gpt2, t->plan->config->precision.compute ? "bfloat16" : "float32", &config);
  if (!item || !name || !trainer) status = tr_error(TR_ERR_MEMORY, "no memory for the tables of a checkpoint");
  if (status == TR_OK) status = write_checkpoint(t, item, name, trainer, config);
  free(item);
  free(name);
  free(trainer);
  free(config);
  return status < 0 ? status : tr__fault_status(t);
}

// ---- resuming A folder with nothing but leftovers of a first save that was killed holds no checkpoint; one that has
// them must load.
static int has_checkpoint(const char *folder) {
  DIR *dir = opendir(folder);
  int found = 0;
  for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir))
    found |= strncmp(entry->d_name, "step-", 5) == 0;
  if (dir) closedir(dir);
  return found;
}

// Rank 0 looks and verifies; all ranks load what it found. path "" means: start fresh.
static tr_status agree_on_path(tr__trainer *t, char *path) {
  memset(path, 0, PATH_BYTES);
  if (t->rank == 0) {
    char folder[PATH_BYTES];
    checkpoints_folder(t, folder);
    if (has_checkpoint(folder)) {
      if (t->plan->config->train.resume == 1)
        return tr_error(TR_ERR_CONFIG,
                        "train.resume is never, but %s holds checkpoints; another train.folder would work", folder);
      tr_comm_activity(t->comm, "verify checkpoint", 0, 0);
      TR_TRY(tr_ckpt_find(folder, 1, path, PATH_BYTES));
    }
  }
  return tr_group_broadcast(tr_comm_world(t->comm), path, PATH_BYTES, TR_U8, 0, NULL);
}

static tr_status check_same_run(tr__trainer *t, const json_t *json, const char *file) {
  const tr_train_config *c = t->plan->config;
  int64_t seed = 0, batch = 0, sequence = 0;
  const char *hash = "", *optimizer = "";
  TR_TRY(tr_json_get_int(json, file, "seed", 1, &seed));
  TR_TRY(tr_json_get_int(json, file, "batch_sequences", 1, &batch));
  TR_TRY(tr_json_get_int(json, file, "sequence", 1, &sequence));
  TR_TRY(tr_json_get_string(json, file, "data_hash", 1, &hash));
  TR_TRY(tr_json_get_string(json, file, "optimizer", 1, &optimizer));
  if (seed != c->train.seed || batch != c->batch.sequences || sequence != c->data.sequence ||
      strcmp(optimizer, c->optim.kind ? "sgd" : "adamw") != 0)
    return tr_error(TR_ERR_CONFIG,
                    "%s was made with train.seed=%lld batch.sequences=%lld data.sequence=%lld optim.kind=%s; resume "
                    "with those, or use another train.folder",
                    file, (long long)seed, (long long)batch, (long long)sequence, optimizer);
  if (strtoull(hash, NULL, 16) != t->data_hash && !c->data.changed)
    return tr_error(TR_ERR_DATA,
                    "%s is not the data that %s was trained on; data.changed=accept goes on all the same",
                    c->data.path, file);
  return TR_OK;
}

static tr_status load_trainer(tr__trainer *t, const char *path) {
  char file[PATH_BYTES + 32];
  json_t *json;
  snprintf(file, sizeof file, "%s/trainer.json", path);
  TR_TRY(tr_json_load(file, 1 << 20, &json));
  tr_status status = check_same_run(t, json, file);
  if (status == TR_OK) status = tr_json_get_int(json, file, "step", 1, &t->step);
  if (status == TR_OK) status = tr_json_get_int(json, file, "tokens", 1, &t->tokens);
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
  }
  return TR_OK;
}

static tr_status load_optimizer(tr__trainer *t, const char *path) {
  const char *prefix[TR_OPTIM_MAX_STATE + 1];
  float *base[TR_OPTIM_MAX_STATE + 1];
  int n = state_buffers(t, prefix, base);
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

tr_status tr__state_resume(tr__trainer *t, int *resumed) {
  char path[PATH_BYTES];
  TR_TRY(agree_on_path(t, path));
  *resumed = path[0] != '\0';
  if (!*resumed) return TR_OK;
  tr_comm_activity(t->comm, "load checkpoint", 0, 0);
  TR_TRY(load_trainer(t, path));
  tr_dtype type = t->plan->config->precision.compute ? TR_BF16 : TR_F32;
  TR_TRY(tr_model_folder_weights(path, t->plan->model, &t->plan->layout, type, tr_run_weights(t->run)));
  tr_comm_beat(t->comm);
  TR_TRY(load_optimizer(t, path));
  if (t->rank == 0)
    printf("resuming from %s: %lld of %lld steps done\n", path, (long long)t->step, (long long)t->plan->steps);
  return TR_OK;
}
