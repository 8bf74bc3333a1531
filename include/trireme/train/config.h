// SPDX-License-Identifier: MIT
// The settings of a training run: one struct, filled and checked by one option table, and what follows from it.
//
// `trireme train RUN.yaml [MORE.yaml ...] [key=value ...]` is tr_train_config_load. Everything that can be wrong is
// found here, before a rank is started or a byte of the model is allocated: TR_ERR_CONFIG and TR_ERR_PLAN name the
// setting, where its value came from, and what would work.
#ifndef TRIREME_TRAIN_CONFIG_H
#define TRIREME_TRAIN_CONFIG_H

#include "trireme/base/option.h"
#include "trireme/comm/launch.h"
#include "trireme/mesh/mesh.h"
#include "trireme/model/gpt2.h"
#include "trireme/optim/optim.h"
#include "trireme/shard/layout.h"
#include "trireme/step/program.h"

// What the CHOICE settings hold, named after their words in the table. (optim.kind, lr.kind, comm.grad_sync and
// run.launch are the enums of their modules.)
typedef enum tr_compute_choice { TR_COMPUTE_F32, TR_COMPUTE_BF16 } tr_compute_choice;
typedef enum tr_changed_choice { TR_CHANGED_REFUSE, TR_CHANGED_ACCEPT } tr_changed_choice;
typedef enum tr_resume_choice { TR_RESUME_AUTO, TR_RESUME_NEVER } tr_resume_choice;
typedef enum tr_nan_choice { TR_NAN_STOP, TR_NAN_SKIP } tr_nan_choice;
typedef enum tr_kernels_choice { TR_KERNELS_CPU, TR_KERNELS_REFERENCE } tr_kernels_choice;
typedef enum tr_progress_choice { TR_PROGRESS_AUTO, TR_PROGRESS_ON, TR_PROGRESS_OFF } tr_progress_choice;

typedef struct tr_train_config {
  struct {
    int kind;
    int64_t layers, width, heads, ffn, vocab, positions; // vocab, positions -1: from the tokenizer and data.sequence
    double eps, init_std, dropout, dropout_embedding, dropout_residual, dropout_attention; // -1: dropout
    int tied;
  } model;
  struct {
    char *path, *val_path, *tokenizer;
    double val_fraction;
    int64_t sequence;
    int changed; // tr_changed_choice: data that differs from the checkpoint's
  } data;
  struct {
    int64_t sequences, micro;
  } batch; // micro -1: as much as divides, at most 8
  struct {
    int64_t dp, tp, pp, cp; // dp -1: what is left of the ranks
    char *map;
  } parallel;
  struct {
    int compute; // tr_compute_choice
  } precision;
  struct {
    int kind, nesterov, decay_all; // tr_optim_kind
    double beta1, beta2, eps, weight_decay, momentum, clip;
  } optim;
  struct {
    int kind;          // tr_lr_kind
    double lr, min_lr; // min_lr -1: lr / 10
    int64_t warmup, decay_steps;
  } lr;
  struct {
    int64_t steps, seed, log_every, eval_every, eval_samples;
    double epochs; // 0: steps decide
    char *folder;
    int resume; // tr_resume_choice
    int nan;    // tr_nan_choice
  } train;
  struct {
    int64_t every, keep, keep_every;
  } checkpoint;
  struct {
    int grad_sync; // tr_grad_sync
    int64_t bucket;
  } comm;
  struct {
    int64_t ranks, threads; // threads -1: cores / ranks
    double deadline;
    int bind, launch, kernels, progress; // tr_launch_mode, tr_kernels_choice, tr_progress_choice
  } run;
} tr_train_config;

extern const tr_option tr_train_options[];
extern const size_t tr_train_option_count;

// Start from the table: defaults and environment. The struct belongs to the options from then on.
tr_status tr_train_config_open(tr_train_config *config, tr_options **options);

// What follows from the settings, checked: everything the ranks need, made once by the launcher. Owns model, layout,
// program.
typedef struct tr_train_plan {
  const tr_train_config *config;
  tr_gpt2_config gpt2;
  tr_model *model;
  tr_layout layout;
  tr_program program;
  tr_step_options step;
  tr_mesh_spec mesh;
  tr_optim optim;
  tr_lr lr;
  int64_t vocab;
  int micro, accumulation;
  int nthread;
  int progress;          // draw a progress bar; set by whoever knows whether a person watches
  int64_t steps;         // of the whole run
  int64_t samples;       // training samples per epoch
  int64_t limit;         // global samples of the whole run, -1: steps decide
  int64_t val_samples;   // validation samples there are
  int64_t eval_samples;  // of which each evaluation uses so many
  size_t arena_nbyte;    // shared memory per rank
  size_t rank_nbyte;     // predicted memory of one rank, shared part included
  char memory_text[256]; // its breakdown
} tr_train_plan;

tr_status tr_train_plan_make(const tr_train_config *config, const tr_options *options, tr_train_plan *out);
void tr_train_plan_destroy(tr_train_plan *plan);
void tr_train_plan_print(const tr_train_plan *plan, tr_text *out);    // a few lines for people
tr_status tr_train_plan_json(const tr_train_plan *plan, char **text); // one object for programs; free the text

#endif
