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
#include "trireme/data/data.h"
#include "trireme/mesh/mesh.h"
#include "trireme/model/arch.h"
#include "trireme/optim/optim.h"
#include "trireme/plan/runtime.h"
#include "trireme/shard/layout.h"
#include "trireme/step/program.h"
#include "trireme/step/schedule.h"
#include "trireme/token/tokenizer.h"

// What the CHOICE settings hold, named after their words in the table. (optim.kind, lr.kind, comm.grad_sync and
// run.launch are the enums of their modules.)
typedef enum tr_compute_choice { TR_COMPUTE_F32, TR_COMPUTE_BF16 } tr_compute_choice;
typedef enum tr_wire_choice { TR_WIRE_AUTO, TR_WIRE_F32, TR_WIRE_BF16 } tr_wire_choice;
typedef enum tr_order_choice { TR_ORDER_TREE, TR_ORDER_ANY } tr_order_choice;
typedef enum tr_weights_choice { TR_WEIGHTS_AUTO, TR_WEIGHTS_RANDOM } tr_weights_choice;
typedef enum tr_family_choice {
  TR_FAMILY_GPT2,
  TR_FAMILY_LLAMA,
  TR_FAMILY_MISTRAL,
  TR_FAMILY_QWEN2,
  TR_FAMILY_QWEN3
} tr_family_choice;
typedef enum tr_sampling_choice { TR_SAMPLING_EPOCHS, TR_SAMPLING_REPLACEMENT } tr_sampling_choice;
typedef enum tr_dealing_choice { TR_DEALING_ORDER, TR_DEALING_BALANCED } tr_dealing_choice;
typedef enum tr_changed_choice { TR_CHANGED_REFUSE, TR_CHANGED_ACCEPT } tr_changed_choice;
typedef enum tr_resume_choice { TR_RESUME_AUTO, TR_RESUME_NEVER } tr_resume_choice;
typedef enum tr_nan_choice { TR_NAN_STOP, TR_NAN_SKIP } tr_nan_choice;
typedef enum tr_kernels_choice { TR_KERNELS_CPU, TR_KERNELS_REFERENCE } tr_kernels_choice;
typedef enum tr_progress_choice { TR_PROGRESS_AUTO, TR_PROGRESS_ON, TR_PROGRESS_OFF } tr_progress_choice;

typedef struct tr_train_config {
  struct {
    char *from;        // preset, config.json or model folder; "": the fields below say it all
    int weights, kind; // tr_weights_choice, tr_family_choice
    int64_t layers, width, heads, heads_kv, head_dim, ffn, vocab, positions; // -1, 0: auto, see the table
    double eps, init_std, dropout, dropout_embedding, dropout_residual, dropout_attention; // -1: dropout
    double rope_theta;
    int64_t window;
    int tied, qkv_bias, head_norm;
  } model;
  struct {
    char *path, *weights, *val_path, *tokenizer, *key, *cache;
    double val_fraction;
    int64_t sequence, end;                            // end -1: the tokenizer's
    int packing, documents, sampling, dealing, split; // tr_packing, flag, tr_sampling_choice, tr_dealing_choice, flag
    int changed;                                      // tr_changed_choice: data that differs from the checkpoint's
  } data;
  struct {
    int64_t sequences, micro;
  } batch; // micro -1: as much as divides and fits 80 % of the memory
  struct {
    int64_t dp, tp, pp, cp, zero; // dp -1: what is left of the ranks
    int64_t chunks, group;        // 0: as the schedule has them
    char *map, *schedule, *stages;
  } parallel;
  struct {
    int compute, grad_wire; // tr_compute_choice
    int stage_wire;         // tr_wire_choice
  } precision;
  struct {
    int recompute, pack; // tr_recompute, flag
  } memory;
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
    int tensorboard;
  } train;
  struct {
    int64_t every, keep, keep_every, shard; // every -1: auto
    int background;
    double mtbf; // seconds; -1: as observed
  } checkpoint;
  struct {
    int grad_sync; // tr_grad_sync
    int64_t bucket;
    int order; // tr_order_choice
  } comm;
  struct {
    int64_t ranks, threads; // threads -1: cores / ranks
    double deadline;
    int bind, launch, kernels, progress; // tr_launch_mode, tr_kernels_choice, tr_progress_choice
    char *trace;                         // "": none
    int64_t profile;                     // steps between profile tables, 0: none
  } run;
} tr_train_config;

extern const tr_option tr_train_options[];
extern const size_t tr_train_option_count;

// Start from the table: defaults and environment. The struct belongs to the options from then on. A section `plan` is not read:
// `trireme plan` keeps there what its plan is for.
tr_status tr_train_config_open(tr_train_config *config, tr_options **options);
// Defaults that depend on the model, when all settings are there: data.sequence is no more than what the model that is described
// (model.from, model.positions) takes. A model that cannot be read is left to whoever makes a plan.
tr_status tr_train_settle(const tr_train_config *config, tr_options *options);
// The model that settings ask for, without its weights. The vocabulary is that of model.from or model.vocab.
tr_status tr_train_arch(const tr_train_config *config, const tr_options *options, tr_arch *out);

// What the ranks of one place in the pipeline have, whatever their place in dp. Without a pipeline there is one, of the whole
// model.
typedef struct tr_train_part {
  const tr_model *model; // a part of the plan's, or that itself
  tr_model *own;         // the same when it is a part, else NULL
  tr_layout layout;
  int nchunk;                  // stages that it has
  tr_model_boundary *boundary; // [nchunk]
  tr_step_options step;        // the plan's, with
  tr_step_range *recompute;    // [step.nrecompute]
  tr_program program;
  size_t rank_nbyte, arena_nbyte; // predicted, as the plan's, of one such rank
  size_t once_nbyte;              // of the state, once for those that have it together on a host; 0: parallel.zero=0
  size_t alone_nbyte;             // the same of a rank that has it for itself on its host, in private memory
  size_t even_nbyte;              // rank_nbyte without that and without its share of a checkpoint
} tr_train_part;

// What follows from the settings, checked: everything the ranks need, made once by the launcher. Owns all that it
// points to but config. Text that is not in tokens yet is tokenized once, into data.cache.
typedef struct tr_train_plan {
  const tr_train_config *config;
  tr_arch arch;
  tr_arch_sizes sizes, described; // described: as model.from has them, zeros without it
  char from[4096];                // where the description comes from; "": the settings
  char model_folder[4096];        // whose weights the run starts from; "": random
  tr_tokenizer *tokenizer;        // NULL: the data are token numbers
  char tokenizer_path[4096];      // of its tokenizer.json; "": byte or none
  int32_t end;                    // the token that ends a document, -1: none
  tr_source *source;              // read by all ranks of this machine
  tr_model *model;                // the whole
  tr_schedule schedule;           // of a pipeline; p 0: there is none
  int *stage_piece;               // [S + 1] where its stages begin, and the end
  int *stage_layers;              // [S]
  tr_train_part *part;            // [mesh.degree[TR_AXIS_PP]]
  tr_step_options step;           // what all parts have in common
  tr_mesh_spec mesh;
  tr_launch_place place; // size 0: nobody else starts the ranks
  uint64_t agrees;       // of settings and data: the same in all ranks that others have started
  int local;             // ranks on this host, as far as the starter tells; else 1
  tr_optim optim;
  tr_lr lr;
  int micro, accumulation;
  int settled;         // data.sequence is what tr_train_settle found
  char micro_text[96]; // batch.micro=auto: what kept it from being larger; "": it was given
  int nthread;
  int progress;         // draw progress bars
  int64_t steps;        // of the whole run
  int64_t samples;      // training samples per epoch
  int64_t limit;        // global samples of the whole run, -1: steps decide
  int64_t val_samples;  // validation samples there are
  int64_t eval_samples; // of which each evaluation uses so many
  size_t save_nbyte;    // buffer of a rank's share of a checkpoint, at most
  size_t arena_nbyte;   // shared memory per rank, at most
  size_t
      once_nbyte; // shared memory that exists once for all ranks of a host that have the same weights, all of it together
  size_t talk_nbyte;     // what ranks talk through
  size_t rank_nbyte;     // predicted memory of the largest rank, its shared part included, but for what exists once
  int largest;           // its place in the pipeline
  size_t saves_nbyte;    // shares of a checkpoint of all ranks of the job
  size_t total_nbyte;    // of all ranks of this host together
  char memory_text[480]; // its breakdown
} tr_train_plan;

// `progress`: a person watches, so progress bars are drawn. TR_ERR_MEMORY gives the breakdown of what does not fit and the
// cheapest changes that would.
tr_status tr_train_plan_make(const tr_train_config *config, const tr_options *options, int progress,
                             tr_train_plan *out);
// The same without data (no tokenizer, no source, no samples, 0 steps): all that single steps need, for whoever
// measures them, or asks what a model takes. The vocabulary is that of model.from or model.vocab.
tr_status tr_train_plan_step(const tr_train_config *config, const tr_options *options, tr_train_plan *out);
void tr_train_plan_destroy(tr_train_plan *plan);
const tr_train_part *tr_train_part_of(const tr_train_plan *plan, int rank);
// The plan as the planner knows it (plan/runtime.h); `part` has room for its places in the pipeline. Nothing is owned.
void tr_train_runtime(const tr_train_plan *plan, tr_runtime_part *part, tr_runtime_plan *out);
void tr_train_plan_print(const tr_train_plan *plan, tr_text *out);    // a few lines for people
tr_status tr_train_plan_json(const tr_train_plan *plan, char **text); // one object for programs; free the text

#endif
