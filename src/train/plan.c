// SPDX-License-Identifier: MIT
// From settings to a checked plan: mesh, batch arithmetic, schedule (plan_schedule.c), model (plan_model.c), stages
// (plan_stages.c), step programs (plan_program.c), data (plan_data.c), memory (plan_memory.c). No rank is started before all of it holds; every refusal names the setting, its source, the numbers,
// and the nearest values that work.
#include "train/train_internal.h"
#include "trireme/base/cpu.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FOLDER_BYTES = 3800 };

// These axes are named by the mesh and by run files, and are 1 in every plan that can be executed.
static tr_status check_single_axes(const tr_train_config *c, const tr_options *options) {
  const struct {
    const char *path;
    int64_t degree;
  } axis[] = {{"parallel.tp", c->parallel.tp}, {"parallel.cp", c->parallel.cp}};
  for (size_t i = 0; i < sizeof axis / sizeof *axis; i++)
    if (axis[i].degree != 1)
      return tr_options_error(
          options, axis[i].path,
          "%lld is out of range: this version takes 1; parallel.dp splits the batch, parallel.pp the layers",
          (long long)axis[i].degree);
  return TR_OK;
}

// Ranks that others have started: how many there are is not ours to say, and each process is one of them.
static tr_status plan_place(tr_train_plan *plan, const tr_options *options) {
  const tr_train_config *c = plan->config;
  plan->local = (int)c->run.ranks;
  TR_TRY(tr_launch_placed(&plan->place));
  const tr_launch_place *p = &plan->place;
  if (p->size == 0) return TR_OK;
  plan->local = p->local_size > 0 ? p->local_size : 1;
  if (c->run.ranks != p->size)
    return tr_options_error(options, "run.ranks", "-n %lld, but %s has started %d ranks; leave -n out, or give -n %d",
                            (long long)c->run.ranks, p->starter, p->size, p->size);
  if (c->run.launch == TR_LAUNCH_THREADS)
    return tr_options_error(options, "run.launch",
                            "threads are of one process, but %s has started %d; processes would work", p->starter,
                            p->size);
  return TR_OK;
}

// The numbers of pipeline ranks nearest to what is set that divide the ranks, and numbers of ranks that it divides.
static tr_status refuse_pp(const tr_train_config *c, const tr_options *options) {
  long long pp = c->parallel.pp, ranks = c->run.ranks, below = pp < ranks ? pp : ranks, above = pp;
  while (ranks % below) below--;
  while (above < ranks && ranks % above) above++;
  char more[64] = "";
  if (above <= ranks) snprintf(more, sizeof more, ", parallel.pp=%lld", above);
  return tr_options_error(options, "parallel.pp",
                          "%lld does not divide the %lld rank%s of run.ranks (-n); parallel.pp=%lld%s or -n %lld "
                          "would work",
                          pp, ranks, ranks == 1 ? "" : "s", below, more, (ranks + pp - 1) / pp * pp);
}

static tr_status plan_mesh(tr_train_plan *plan, const tr_options *options) {
  const tr_train_config *c = plan->config;
  TR_TRY(check_single_axes(c, options));
  if (tr_mesh_parse_map(c->parallel.map, plan->mesh.map) < 0)
    return tr_options_error(options, "parallel.map", "%s", tr_status_text());
  int64_t pp = c->parallel.pp;
  if (c->parallel.dp < 0 && c->run.ranks % pp) return refuse_pp(c, options);
  int64_t dp = c->parallel.dp < 0 ? c->run.ranks / pp : c->parallel.dp;
  plan->mesh.degree[TR_AXIS_TP] = plan->mesh.degree[TR_AXIS_CP] = 1;
  plan->mesh.degree[TR_AXIS_PP] = (int)pp;
  plan->mesh.degree[TR_AXIS_DP] = (int)dp;
  char times[32] = "";
  if (pp > 1) snprintf(times, sizeof times, " x pp=%lld", (long long)pp);
  if (dp * pp != c->run.ranks)
    return tr_options_error(
        options, "parallel.dp",
        "dp=%lld%s needs %lld ranks, run.ranks (-n) is %lld; leave parallel.dp at auto or give -n %lld",
        (long long)dp, times, (long long)(dp * pp), (long long)c->run.ranks, (long long)(dp * pp));
  return tr_mesh_check(&plan->mesh, (int)c->run.ranks);
}

static tr_status plan_batch(tr_train_plan *plan, const tr_options *options) {
  const tr_train_config *c = plan->config;
  int64_t batch = c->batch.sequences, dp = plan->mesh.degree[TR_AXIS_DP], micro = c->batch.micro;
  int64_t unit = dp * (micro < 0 ? 1 : micro);
  if (batch % unit) {
    int64_t below = batch / unit * unit, above = below + unit;
    return tr_options_error(options, "batch.sequences",
                            "%lld sequences cannot be dealt to dp=%lld %s in micro-batches of %lld; %lld%s%lld "
                            "would work",
                            (long long)batch, (long long)dp, c->parallel.pp > 1 ? "pipelines" : "ranks",
                            (long long)(micro < 0 ? 1 : micro), (long long)(below ? below : above),
                            below ? " or " : " and ", (long long)(below ? above : 2 * above));
  }
  if (micro < 0) micro = tr__plan_most_micro(plan);
  int64_t passes = batch / (micro * dp);
  if (passes > TR_STEP_MICROBATCHES)
    return tr_options_error(
        options, "batch.sequences",
        "%lld sequences make %lld passes of batch.micro=%lld per rank; at most %d, so batch.micro of "
        "at least %lld or a batch of %lld would work",
        (long long)batch, (long long)passes, (long long)micro, TR_STEP_MICROBATCHES,
        (long long)((batch / dp + TR_STEP_MICROBATCHES - 1) / TR_STEP_MICROBATCHES),
        (long long)(micro * dp * TR_STEP_MICROBATCHES));
  plan->micro = (int)micro;
  plan->accumulation = (int)passes;
  if (micro * c->data.sequence > TR_PLAN_ROWS)
    return tr_options_error(
        options, "batch.micro",
        "%lld sequences of %lld tokens are too many rows at once; a smaller micro-batch would work", (long long)micro,
        (long long)c->data.sequence);
  return tr__plan_schedule(plan, options);
}

static tr_status check_pipeline(const tr_train_plan *plan, const tr_options *options) {
  const tr_train_config *c = plan->config;
  const int pp = plan->mesh.degree[TR_AXIS_PP];
  if (pp > 1 && c->comm.grad_sync == TR_SYNC_EVERY)
    return tr_options_error(
        options, "comm.grad_sync",
        "every is not for pipelines (parallel.pp=%d): their micro-batches end at different times on "
        "different ranks; last would work",
        pp);
  if (c->precision.stage_wire == TR_WIRE_F32 && c->precision.compute == TR_COMPUTE_BF16)
    return tr_options_error(
        options, "precision.stage_wire",
        "f32 would carry no more than the bf16 that precision.compute makes; auto or bf16 would work");
  return TR_OK;
}

// A pipeline adds to a stage's gradients, and reads its weights, all through a step; who gives them up in between, as stages 2
// and 3 do, has to fetch them again for every micro-batch.
static tr_status check_zero(const tr_train_plan *plan, const tr_options *options) {
  const tr_train_config *c = plan->config;
  const int pp = plan->mesh.degree[TR_AXIS_PP];
  if (c->parallel.zero <= 1) return TR_OK;
  if (pp > 1)
    return tr_options_error(
        options, "parallel.zero",
        "%lld gives gradients up after every micro-batch, and a pipeline (parallel.pp=%d) adds to "
        "them until the last one; 1 would work: weights and optimizer state once per machine",
        (long long)c->parallel.zero, pp);
  return tr_options_error(options, "parallel.zero",
                          "%lld is not in this version; 1 would work: weights and optimizer state once per machine",
                          (long long)c->parallel.zero);
}

static tr_status check_wire(const tr_train_config *c, const tr_options *options) {
  if (c->precision.grad_wire == TR_COMPUTE_F32 || c->parallel.zero) return TR_OK;
  return tr_options_error(
      options, "precision.grad_wire",
      "bf16 needs owners that sum in f32: parallel.zero=1 would work, or precision.grad_wire=f32");
}

// How long the run is, in steps and samples.
static void plan_length(tr_train_plan *plan) {
  const tr_train_config *c = plan->config;
  plan->samples = tr_source_samples(plan->source, 0);
  plan->val_samples = tr_source_samples(plan->source, 1);
  int64_t wanted = c->train.eval_samples;
  plan->eval_samples = wanted == 0 || wanted > plan->val_samples ? plan->val_samples : wanted;
  plan->steps = c->train.steps;
  plan->limit = -1;
  if (c->train.epochs > 0) {
    double samples = ceil(c->train.epochs * (double)plan->samples);
    plan->limit = samples < 1 ? 1 : (int64_t)samples;
    plan->steps = (plan->limit + c->batch.sequences - 1) / c->batch.sequences;
  }
}

tr_dtype tr__train_type(const tr_train_config *config) {
  return config->precision.compute == TR_COMPUTE_BF16 ? TR_BF16 : TR_F32;
}

tr_dtype tr__stage_type(const tr_train_config *config) {
  if (config->precision.stage_wire == TR_WIRE_AUTO) return tr__train_type(config);
  return config->precision.stage_wire == TR_WIRE_BF16 ? TR_BF16 : TR_F32;
}

static void plan_rules(tr_train_plan *plan) {
  const tr_train_config *c = plan->config;
  plan->optim = (tr_optim){.kind = (tr_optim_kind)c->optim.kind,
                           .beta1 = c->optim.beta1,
                           .beta2 = c->optim.beta2,
                           .eps = c->optim.eps,
                           .weight_decay = c->optim.weight_decay,
                           .momentum = c->optim.momentum,
                           .nesterov = c->optim.nesterov,
                           .decay_all = c->optim.decay_all};
  plan->lr = (tr_lr){.kind = (tr_lr_kind)c->lr.kind,
                     .lr = c->lr.lr,
                     .min_lr = c->lr.min_lr < 0 ? c->lr.lr / 10 : c->lr.min_lr,
                     .warmup = c->lr.warmup,
                     .steps = plan->steps,
                     .decay_steps = c->lr.decay_steps};
  // Who starts ranks may have given each cores of its own.
  int own_cores = plan->place.size > 0 && tr_cpu_count() < sysconf(_SC_NPROCESSORS_ONLN);
  int64_t threads = c->run.threads < 0 ? tr_cpu_count() / (own_cores ? 1 : plan->local) : c->run.threads;
  plan->nthread = threads < 1 ? 1 : (int)threads;
}

// Room for the longest path below the folder, so that no save can fail on it at the end of a long run.
static tr_status check_folder(const tr_train_config *c, const tr_options *options) {
  size_t n = strlen(c->train.folder);
  if (n == 0) return tr_options_error(options, "train.folder", "the name of the run's folder is empty");
  if (n > FOLDER_BYTES)
    return tr_options_error(options, "train.folder", "%zu bytes are too long for a folder; at most %d", n,
                            FOLDER_BYTES);
  return TR_OK;
}

static tr_status open_data(tr_train_plan *plan, const tr_options *options, const tr_train_plan *like) {
  if (!like) return tr__plan_data(plan, options);
  plan->source = like->source;
  plan->end = like->end;
  return TR_OK;
}

tr_status tr__train_plan(const tr_train_config *config, const tr_options *options, int progress,
                         const tr_train_plan *like, tr_train_plan *out) {
  *out = (tr_train_plan){.config = config, .progress = progress, .tokenizer = like ? like->tokenizer : NULL};
  tr_status status = check_folder(config, options);
  if (status == TR_OK) status = plan_place(out, options);
  if (status == TR_OK && out->place.rank == 0) status = tr__trace_check(config, options); // it writes the file
  if (status == TR_OK) status = plan_mesh(out, options);
  if (status == TR_OK) status = check_zero(out, options);
  if (status == TR_OK) status = check_wire(config, options);
  if (status == TR_OK) status = check_pipeline(out, options);
  if (status == TR_OK) status = plan_batch(out, options);
  if (status == TR_OK) status = tr__plan_from(out, options);
  if (status == TR_OK && !like) status = tr__plan_tokenizer(out, options);
  if (status == TR_OK) status = tr__plan_model(out, options);
  if (status == TR_OK) status = tr__plan_stages(out, options);
  if (status == TR_OK) status = tr__plan_program(out);
  if (status == TR_OK) status = open_data(out, options, like);
  if (status == TR_OK) {
    if (out->source) plan_length(out);
    plan_rules(out);
    status = tr__plan_memory(out);
  }
  if (status == TR_OK) status = tr__plan_fit_micro(out);
  if (status == TR_OK) return TR_OK;
  if (like) out->tokenizer = NULL, out->source = NULL;
  tr_train_plan_destroy(out);
  return status;
}

static tr_status check_memory(tr_train_plan *plan, const tr_options *options) {
  tr_status status = tr__plan_check_memory(plan, options);
  if (status < 0) tr_train_plan_destroy(plan);
  return status;
}

tr_status tr_train_plan_make(const tr_train_config *config, const tr_options *options, int progress,
                             tr_train_plan *out) {
  TR_TRY(tr__train_plan(config, options, progress, NULL, out));
  return check_memory(out, options);
}

tr_status tr_train_plan_step(const tr_train_config *config, const tr_options *options, tr_train_plan *out) {
  const tr_train_plan nothing = {.end = -1};
  TR_TRY(tr__train_plan(config, options, 0, &nothing, out));
  return check_memory(out, options);
}

void tr_train_plan_destroy(tr_train_plan *plan) {
  tr_source_close(plan->source);
  tr_tokenizer_close(plan->tokenizer);
  tr__plan_stages_free(plan);
  tr_model_destroy(plan->model);
  *plan = (tr_train_plan){0};
}
