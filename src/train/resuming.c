// SPDX-License-Identifier: MIT
// Going on with a run, or starting one from a model folder's weights. Rank 0 looks for the newest checkpoint that verifies;
// all ranks load it. Precision, number of ranks and files may differ from when it was saved.
#include "train/saving_internal.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include <dirent.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

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
    const char *folder = t->saving->folder;
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

// ---- trainer.json

// Where the run was. The folder's name says the step too, and the two must agree.
static tr_status load_position(tr__trainer *t, const json_t *json, const char *path, const char *file) {
  TR_TRY(tr_json_get_int(json, file, "step", 1, &t->step));
  TR_TRY(tr_json_get_int(json, file, "tokens", 1, &t->tokens));
  int64_t updates = t->step;
  TR_TRY(tr_json_get_int(json, file, "updates", 0, &updates));
  if (t->step < 0 || t->tokens < 0 || updates < 0 || updates > t->step ||
      (tr_ckpt_step(path) >= 0 && tr_ckpt_step(path) != t->step))
    return tr_error(TR_ERR_CKPT, "%s: step %lld and tokens %lld cannot be those of %s", file, (long long)t->step,
                    (long long)t->tokens, path);
  tr_run_set_updates(t->run, updates);
  return TR_OK;
}

// The ledger must end where the step says that the next sample is. Only the last step of train.epochs may have been short,
// and nothing can follow it.
static tr_status load_ledger(tr__trainer *t, const json_t *json, const char *file) {
  TR_TRY(tr_ledger_from_json(json_object_get(json, "ledger"), file, &t->ledger));
  int64_t batch = t->plan->config->batch.sequences, used = t->step * batch, end = tr_ledger_end(&t->ledger);
  int is_short = t->step > 0 && end < used && end > used - batch;
  if (end == used || (is_short && t->step >= t->plan->steps)) return TR_OK;
  if (is_short)
    return tr_error(
        TR_ERR_CONFIG,
        "%s: step %lld was the short end of train.epochs (up to sample %lld instead of %lld), and a run cannot go on "
        "beyond it; remove that checkpoint to go on from the one before, or start another run with model.from",
        file, (long long)t->step, (long long)end, (long long)used);
  return tr_error(TR_ERR_CKPT, "%s: the ledger ends at sample %lld, %lld steps use samples up to %lld", file,
                  (long long)end, (long long)t->step, (long long)used);
}

// The settings that differ, each with both values. Both texts are printed from the option table, so they have the same
// lines in the same order; texts of another version are not compared.
static void compare_settings(const char *saved, const char *own, tr_text *out) {
  char section[64] = "";
  while (*saved && *own) {
    int n = (int)strcspn(saved, "\n"), m = (int)strcspn(own, "\n");
    if (*own != ' ') snprintf(section, sizeof section, "%.*s", (int)strcspn(own, ":"), own);
    int key = (int)strcspn(own, ":");
    if (key >= n || key >= m || strncmp(saved, own, (size_t)key) != 0) return;
    if (n != m || strncmp(saved, own, (size_t)n) != 0)
      tr_text_append(out, "%s%s.%.*s%.*s (was%.*s)", out->size ? ", " : "", section, key - 2, own + 2, m - key,
                     own + key, n - key - 1, saved + key + 1);
    saved += n + (saved[n] == '\n');
    own += m + (own[m] == '\n');
  }
}

static void say_wrapped(const char *what, const char *text) {
  tr_text out = {0};
  tr_text_wrap(&out, text, (int)strlen(what), 2);
  printf("%s%s\n", what, out.data ? out.data : text);
  tr_text_free(&out);
}

static void say_changes(const tr__trainer *t, const json_t *json) {
  const char *saved = json_string_value(json_object_get(json, "settings"));
  tr_text own = {0}, changed = {0};
  if (!saved || t->rank != 0) return;
  tr_options_print(t->options, 0, &own);
  if (own.data) compare_settings(saved, own.data, &changed);
  if (changed.size) say_wrapped("settings that changed since the checkpoint: ", changed.data);
  tr_text_free(&own);
  tr_text_free(&changed);
}

static tr_status load_history(tr__trainer *t, const json_t *json, const char *file) {
  struct tr__saving *s = t->saving;
  int64_t failures = 0;
  int ended = 1;
  TR_TRY(tr_json_get_real(json, file, "seconds", 0, &s->seconds_before));
  TR_TRY(tr_json_get_int(json, file, "failures", 0, &failures));
  TR_TRY(tr_json_get_bool(json, file, "ended", 0, &ended));
  s->failures = (int)failures + !ended;
  const json_t *saved = json_object_get(json, "contract");
  tr_text changed = {0};
  if (saved) tr__contract_compare(s->contract, saved, &changed);
  if (changed.size) tr_text_append(&changed, "; the run goes on, but not with the bits that it would have had");
  if (changed.size && t->rank == 0) say_wrapped("since the checkpoint these changed: ", changed.data);
  tr_text_free(&changed);
  say_changes(t, json);
  return TR_OK;
}

static tr_status load_trainer(tr__trainer *t, const char *path) {
  char file[PATH_BYTES + 32];
  json_t *json;
  int64_t version = 0;
  snprintf(file, sizeof file, "%s/trainer.json", path);
  TR_TRY(tr_json_load(file, TRAINER_LIMIT, &json));
  tr_status status = tr_json_get_int(json, file, "version", 1, &version);
  if (status == TR_OK && version != TRAINER_VERSION)
    status = tr_error(TR_ERR_CKPT, "%s: version %lld is not known; %d is", file, (long long)version, TRAINER_VERSION);
  if (status == TR_OK) status = tr__same_run(t, path, json, file);
  if (status == TR_OK) status = load_position(t, json, path, file);
  if (status == TR_OK) status = load_ledger(t, json, file);
  if (status == TR_OK) status = load_history(t, json, file);
  json_decref(json);
  return status;
}

// ---- tensors

static tr_status load_buffer(const tr__trainer *t, const tr_tensors *tensors, const char *path, const char *prefix,
                             float *base) {
  int index, count;
  tr_run_sharers(t->run, &index, &count);
  for (int i = index; i < t->part->layout.nparam; i += count) { // sharers take turns
    char name[SAVED_NAME_BYTES];
    const tr_param *param = tr_model_param(t->part->model, i);
    snprintf(name, sizeof name, "%s.%s", prefix, param->name);
    const tr_safetensors_entry *entry = tr_tensors_find(tensors, name);
    if (!entry || !tr_shape_equal(&entry->shape, &param->shape))
      return tr_error(TR_ERR_CKPT, "%s: tensor '%s' is %s", path, name, entry ? "of another shape" : "missing");
    TR_TRY(tr_safetensors_read(entry, 0, TR_F32, base + t->part->layout.param_offset[i]));
    tr_comm_beat(t->comm);
  }
  return TR_OK;
}

static tr_status load_optimizer(tr__trainer *t, const char *path, tr_dtype saved) {
  const char *prefix[TR_OPTIM_MAX_STATE + 1];
  float *base[TR_OPTIM_MAX_STATE + 1];
  int n = tr__state_buffers(t, t->plan, saved, prefix, base);
  if (n == 0) return TR_OK;
  tr_tensors *tensors;
  TR_TRY(tr_tensors_open(path, "optimizer", &tensors));
  tr_status status = TR_OK;
  for (int b = 0; b < n && status == TR_OK; b++) status = load_buffer(t, tensors, path, prefix[b], base[b]);
  tr_tensors_close(tensors);
  return status;
}

// The type of a checkpoint's weights; other programs' files may mix types, ours do not.
static tr_status saved_type(const char *path, tr_dtype *type) {
  tr_tensors *tensors;
  TR_TRY(tr_tensors_open(path, "model", &tensors));
  *type = tr_tensors_count(tensors) > 0 ? tr_tensors_at(tensors, 0)->type : TR_F32;
  tr_tensors_close(tensors);
  return TR_OK;
}

// Weights into the master copy when they are wider than the working one, else straight into the working copy. Of those who
// share them one loads.
static tr_status load_weights(tr__trainer *t, const char *path, int widens) {
  int index, count;
  tr_run_sharers(t->run, &index, &count);
  if (index > 0) return TR_OK;
  return tr_weights_load(path, t->part->model, &t->part->layout, widens ? TR_F32 : tr__train_type(t->plan->config),
                         widens ? tr_run_master(t->run) : tr_run_weights(t->run), beat, t);
}

// Precision may change from one start to the next: f32 weights become the master weights of bf16, and the master
// weights of bf16 go on as f32.
static tr_status load_tensors(tr__trainer *t, const char *path, tr_dtype saved) {
  int widens = tr__train_type(t->plan->config) != TR_F32 && saved == TR_F32;
  TR_TRY(load_weights(t, path, widens));
  tr_comm_beat(t->comm);
  // Master weights may be the working ones: whoever shares them must not write them before the narrow ones are there.
  if (tr_comm_size(t->comm) > 1) TR_TRY(tr_group_barrier(tr_comm_world(t->comm)));
  TR_TRY(load_optimizer(t, path, saved));
  return tr_run_publish(t->run);
}

tr_status tr__state_load_weights(tr__trainer *t) {
  tr_comm_activity(t->comm, "load weights", -1, -1);
  TR_TRY(load_weights(t, t->plan->model_folder, tr__train_type(t->plan->config) != TR_F32));
  TR_TRY(tr_run_publish(t->run));
  if (t->rank == 0) printf("starting from the weights of %s\n", t->plan->model_folder);
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
