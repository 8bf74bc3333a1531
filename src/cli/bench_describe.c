// SPDX-License-Identifier: MIT
// The device part of a cluster's description from this machine: prices of the library's kernels (plan/kernel_time.h), measured in steps
// of small models of several sizes, alone and with all cores busy.
//
// Two layers of each model are enough: a piece takes as long in every layer. Sizes are such that products go from far below to near
// their full rate, and activations from a core's own cache to beyond it.
#include "cli/bench_describe_internal.h"
#include "trireme/base/cpu.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
  const char *kind;
  int width, heads, heads_kv, ffn, vocab, sequence, micro;
} shape;

static const shape shapes[] = {
    {"gpt2", 64, 2, 2, 256, 256, 64, 4},      {"gpt2", 128, 4, 4, 512, 256, 128, 2}, {"gpt2", 128, 4, 4, 512, 256, 256, 8},
    {"gpt2", 192, 6, 6, 768, 2048, 256, 2},   {"gpt2", 256, 4, 4, 1024, 65, 64, 2},  {"gpt2", 384, 6, 6, 1536, 65, 256, 8},
    {"gpt2", 512, 8, 8, 2048, 8192, 512, 1},  {"gpt2", 768, 12, 12, 3072, 4096, 128, 1},
    {"llama", 64, 4, 2, 192, 512, 64, 4},     {"llama", 128, 4, 2, 352, 512, 256, 4},
    {"llama", 256, 4, 4, 704, 2048, 128, 2},  {"llama", 384, 6, 2, 1024, 512, 512, 2},
    {"llama", 768, 12, 12, 2048, 4096, 128, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

// ---- one plan

static tr_status set(tr_options *options, const char *key, const char *format, int value) {
  char text[96], number[32];
  snprintf(number, sizeof number, format, value);
  snprintf(text, sizeof text, "%s=%s", key, number);
  return tr_options_apply_argument(options, text);
}

static tr_status set_all(const shape *s, int compute, int ranks, int threads, tr_options *options) {
  char text[64];
  snprintf(text, sizeof text, "model.kind=%s", s->kind);
  TR_TRY(tr_options_apply_argument(options, text));
  const struct {
    const char *key;
    int value;
  } numbers[] = {{"model.layers", 2},           {"model.width", s->width},
                 {"model.heads", s->heads},     {"model.heads_kv", s->heads_kv},
                 {"model.ffn", s->ffn},         {"model.vocab", s->vocab},
                 {"model.positions", s->sequence}, {"data.sequence", s->sequence},
                 {"batch.micro", s->micro},     {"batch.sequences", 2 * s->micro * ranks},
                 {"run.ranks", ranks},          {"run.threads", threads},
                 {"model.dropout", 0}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) TR_TRY(set(options, numbers[i].key, "%d", numbers[i].value));
  return tr_options_apply_argument(options, compute ? "precision.compute=bf16" : "precision.compute=f32");
}

static void dump(const tr__description *d, const tr_train_plan *plan, const tr__bench_samples *s) {
  const tr_model *model = plan->model;
  for (int i = 0; i < tr_model_pieces(model); i++)
    for (int pass = 0; pass < 2; pass++) {
      const double t = tr__bench_sample_median(&s->piece[i][pass]);
      const tr_kernel_work w = tr_piece_work(model, i, plan->micro * plan->config->data.sequence, plan->config->data.sequence);
      const tr_piece *p = tr_model_piece(model, i);
      if (t > 0)
        printf("%s,%s,%d,%d,%d,%g,%g,%g,%g,%g,%.9g,%d,%s,%lld,%lld\n", p->ops->kind, pass ? "backward" : "forward", (int)plan->config->precision.compute,
               (int)plan->config->run.ranks, plan->nthread, w.in, w.out, w.weights, w.flops, w.exps, t, s->piece[i][pass].n, p->name, (long long)plan->sizes.width, (long long)(plan->micro * plan->config->data.sequence));
    }
  const tr_program *program = &plan->part->program;
  for (uint32_t i = 0; i < program->nop; i++) {
    const double t = tr__bench_sample_median(&s->op[i]);
    const tr_op *op = &program->op[i];
    const int64_t *start = plan->part->layout.unit_start;
    if (t > 0) printf("%s,state,%d,%d,%d,0,%lld,0,0,0,%.9g,%d,%u,%lld,0\n", tr_op_name((tr_op_kind)op->kind), (int)plan->config->precision.compute, (int)plan->config->run.ranks, plan->nthread, (long long)(start[op->unit_end] - start[op->unit_begin]), t, s->op[i].n, i, (long long)plan->sizes.width);
  }
  printf("step,step,%d,%d,%d,%d,%u,0,0,0,%.9g,%d,step,%lld,0\n", (int)plan->config->precision.compute, (int)plan->config->run.ranks, plan->nthread, tr_model_pieces(model), program->nop, tr__bench_sample_median(&s->step), s->step.n, (long long)plan->sizes.width);
  fflush(stdout);
  (void)d;
}

static tr_status measure(tr__description *d, const shape *s, int compute, int ranks, int threads) {
  tr_train_config config;
  tr_train_plan plan;
  tr_options *options = NULL;
  tr__bench_samples *samples = malloc(sizeof *samples);
  if (!samples) return tr_error(TR_ERR_MEMORY, "no memory for the times of a benchmark");
  tr_status status = tr_train_config_open(&config, &options);
  if (status == TR_OK) status = set_all(s, compute, ranks, threads, options);
  config.checkpoint.background = 0;
  config.train.steps = 0;
  if (status == TR_OK) status = tr_train_plan_step(&config, options, &plan);
  if (status == TR_OK) {
    status = tr__bench_sampled(&plan, d->seconds, samples);
    if (status == TR_OK) dump(d, &plan, samples);
    tr_train_plan_destroy(&plan);
  }
  tr_options_destroy(options);
  free(samples);
  return status;
}

tr_status tr__describe_kernels(tr__description *d) {
  const int cores = tr_cpu_count();
  const struct {
    int ranks, threads;
  } layout[] = {{1, 1}, {cores, 1}, {1, cores}};
  for (int k = 0; k < (cores > 1 ? 3 : 1); k++)
    for (int compute = 0; compute < 2; compute++)
      for (size_t i = 0; i < SHAPES; i++) TR_TRY(measure(d, &shapes[i], compute, layout[k].ranks, layout[k].threads));
  return TR_OK;
}
