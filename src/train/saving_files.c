// SPDX-License-Identifier: MIT
// The files of a run's checkpoints: which tensors they hold, where this rank has them, and which ranks have which. The files are
// those of the whole model whatever the layout; a rank of a pipeline has memory for the tensors of its part alone.
#include "train/saving_internal.h"
#include <stdlib.h>
#include <string.h>

int tr__state_buffers(const tr__trainer *t, const tr_train_plan *plan, tr_dtype type, const char **prefix,
                      float **base) {
  int n = 0;
  if (type != TR_F32) {
    prefix[n] = "master";
    base[n++] = t ? tr_run_master(t->run) : NULL;
  }
  for (int i = 0; i < tr_optim_state_count(&plan->optim); i++) {
    prefix[n] = tr_optim_state_name(&plan->optim, i);
    base[n++] = t ? tr_run_state(t->run, i) : NULL;
  }
  return n;
}

static int count_own(const tr_train_plan *plan) {
  const char *prefix[TR_OPTIM_MAX_STATE + 1];
  float *base[TR_OPTIM_MAX_STATE + 1];
  return tr__state_buffers(NULL, plan, tr__train_type(plan->config), prefix, base);
}

static tr_safetensors_item item_of(const tr_train_plan *plan, int i, const char *name, tr_dtype type) {
  return (tr_safetensors_item){
      .name = name, .type = type, .stored_type = type, .shape = tr_model_param(plan->model, i)->shape};
}

// Where this rank has the parameters of its part, among n items of the whole model's.
static void point_at(tr_safetensors_item *item, const tr_train_part *part, const void *base) {
  for (int i = 0; i < part->layout.nparam; i++) {
    tr_safetensors_item *own = &item[tr_model_whole_param(part->model, i)];
    own->data = (const char *)base + (size_t)part->layout.param_offset[i] * tr_dtype_size(own->type);
  }
}

static void list_tensors(saved_files *f, const tr_train_plan *plan, const tr__trainer *t) {
  int n = tr_model_params(plan->model);
  const char *prefix[TR_OPTIM_MAX_STATE + 1];
  float *base[TR_OPTIM_MAX_STATE + 1];
  tr_dtype type = tr__train_type(plan->config);
  for (int i = 0; i < n; i++) {
    f->item[i] = item_of(plan, i, tr_model_param(plan->model, i)->name, type);
    f->item[i].transpose = tr_model_param(plan->model, i)->transposed;
  }
  if (t) point_at(f->item, t->part, tr_run_weights(t->run));
  int nbuffer = tr__state_buffers(t, plan, type, prefix, base);
  for (int b = 0; b < nbuffer; b++) {
    for (int i = 0; i < n; i++) {
      char *own = f->name[b * n + i];
      snprintf(own, SAVED_NAME_BYTES, "%s.%s", prefix[b], tr_model_param(plan->model, i)->name);
      f->item[n + b * n + i] = item_of(plan, i, own, TR_F32);
    }
    if (t) point_at(&f->item[n + b * n], t->part, base[b]);
  }
  f->nitem[SAVED_MODEL] = (size_t)n;
  f->nitem[SAVED_OPTIMIZER] = (size_t)(nbuffer * n);
}

// Which places of a pipeline have which tensors. Those with the same stages are one side, and a parameter that several sides
// have is the first one's.
static tr_status parts_of_ranks(saved_files *f, const tr_train_plan *plan) {
  const int pp = plan->mesh.degree[TR_AXIS_PP], n = tr_model_params(plan->model);
  const size_t ntensor = f->nitem[SAVED_MODEL] + f->nitem[SAVED_OPTIMIZER];
  if (pp == 1) return TR_OK;
  f->writer_side = calloc((size_t)plan->config->run.ranks, sizeof *f->writer_side);
  f->held = calloc(ntensor, sizeof *f->held);
  if (!f->writer_side || !f->held) return tr_error(TR_ERR_MEMORY, "no memory for the tables of a checkpoint");
  for (int rank = 0; rank < (int)plan->config->run.ranks; rank++)
    f->writer_side[rank] = tr__plan_side(plan, tr_mesh_coordinate(&plan->mesh, rank, TR_AXIS_PP));
  for (int place = pp - 1; place >= 0; place--) // the first one has the last word
    for (int i = 0; i < plan->part[place].layout.nparam; i++)
      f->held[tr_model_whole_param(plan->part[place].model, i)] = tr__plan_side(plan, place);
  for (size_t k = (size_t)n; k < ntensor; k++) f->held[k] = f->held[k % (size_t)n];
  return TR_OK;
}

static void add_text(saved_files *f, const char *name, int *place) {
  *place = (int)f->nfile;
  f->file[f->nfile++] = (tr_ckpt_file){.name = name};
}

// Files of one set of tensors, cut at checkpoint.shard, and their index when there are several.
static tr_status list_set(saved_files *f, int set, const char *name, uint64_t limit) {
  static const char *const index[] = {"model.safetensors.index.json", "optimizer.safetensors.index.json"};
  const tr_safetensors_item *item = f->item + (set == SAVED_MODEL ? 0 : f->nitem[SAVED_MODEL]);
  size_t nitem = f->nitem[set], *file_of = calloc(nitem + 1, sizeof *file_of);
  if (nitem == 0 || !file_of) {
    free(file_of);
    return nitem == 0 ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory for a list of %zu tensors", nitem);
  }
  // A very large state gets larger files rather than more than there is room to list.
  size_t nfile = tr_tensors_cut(item, nitem, limit, file_of), at = 0;
  while (nfile > SAVED_FILES / 3) nfile = tr_tensors_cut(item, nitem, limit *= 2, file_of);
  tr_status status = TR_OK;
  for (size_t k = 0; k < nfile && status == TR_OK; k++) {
    size_t first = at;
    while (at < nitem && file_of[at] == k) at++;
    char *own = f->file_name[f->nfile];
    tr_tensors_file_name(name, k, nfile, own, SAVED_NAME_BYTES);
    f->file[f->nfile++] = (tr_ckpt_file){.name = own, .item = item + first, .nitem = at - first};
  }
  if (status == TR_OK && nfile > 1) {
    status = tr_tensors_index_text(name, item, nitem, file_of, nfile, &f->index[set]);
    int place;
    add_text(f, index[set], &place);
    f->text[place] = f->index[set];
  }
  free(file_of);
  return status;
}

tr_status tr__saved_files_make(const tr_train_plan *plan, const tr__trainer *t, saved_files *f) {
  size_t n = (size_t)tr_model_params(plan->model), nown = (size_t)count_own(plan) * n;
  *f = (saved_files){0};
  f->item = calloc(n + nown, sizeof *f->item);
  f->name = calloc(nown + 1, sizeof *f->name);
  if (!f->item || !f->name) return tr_error(TR_ERR_MEMORY, "no memory for the tables of a checkpoint");
  list_tensors(f, plan, t);
  TR_TRY(parts_of_ranks(f, plan));
  uint64_t limit = (uint64_t)plan->config->checkpoint.shard;
  TR_TRY(list_set(f, SAVED_MODEL, "model", limit));
  TR_TRY(list_set(f, SAVED_OPTIMIZER, "optimizer", limit));
  add_text(f, "config.json", &f->config);
  add_text(f, "trainer.json", &f->trainer);
  tr__side_files_list(plan, f);
  return TR_OK;
}

void tr__saved_files_free(saved_files *f) {
  free(f->item);
  free(f->name);
  free(f->writer_side);
  free(f->held);
  for (int i = 0; i < 2; i++) free(f->index[i]);
  for (int i = 0; i < f->nside; i++) free(f->side_text[i]);
  *f = (saved_files){0};
}
