// SPDX-License-Identifier: MIT
// What software can do, by its kind and the year of a run: a row of a table names a framework, not what overlaps in it.
//
// Four kinds. Megatron: Megatron-LM, -Core, NeMo, Bridge and what is built on them. DeepSpeed, alone or below Megatron. PyTorch:
// programs of PyTorch's own parts, FSDP or not. XLA: compiled as a whole, Gaudi's graphs too. A feature is there from the year in which releases of
// the kind had it; words of a row's notes that name a feature (eager, async TP, all-to-all overlap, no overlap) go first. No rule is about
// one program or source.
#include "plan/runs_internal.h"
#include <string.h>

enum { NEVER = 9999, ALWAYS = 0 };

typedef struct kind {
  const char *name;
  const char *words[5];   // any of these in a framework's name; the first kind that matches
  int fused_attention;    // scores stay out of memory: from this year on
  int newest_attention;   // in kernels for the newest devices
  int fused_kernels;      // elementwise, by hand or compiled
  int gradients, weights; // reductions, gathers of updated weights beside computation
  int tensor;             // tensor-parallel traffic beside products
  int input_gradients;    // its backward half beside the weights' gradients
  int sums;               // of gradients in f32, from micro-batch to micro-batch
} kind;

static const kind kinds[] = {
    {.name = "XLA",
     .words = {"MaxText", "Gaudi"},
     .fused_attention = 2023,
     .newest_attention = NEVER,
     .fused_kernels = ALWAYS,
     .gradients = 2023,
     .weights = NEVER,
     .tensor = NEVER,
     .input_gradients = NEVER,
     .sums = ALWAYS},
    {.name = "DeepSpeed",
     .words = {"DeepSpeed"},
     .fused_attention = NEVER, // an option that its published runs do not name
     .newest_attention = NEVER,
     .fused_kernels = ALWAYS,
     .gradients = NEVER, // below stage 2
     .weights = NEVER,
     .tensor = NEVER,
     .input_gradients = NEVER,
     .sums = ALWAYS}, // in bf16
    {.name = "PyTorch",
     .words = {"FSDP", "torchtitan", "Composer"},
     .fused_attention = 2023,
     .newest_attention = NEVER,
     .fused_kernels = 2024, // torch.compile
     .gradients = 2023,
     .weights = NEVER,
     .tensor = NEVER, // asynchronous tensor parallelism is named where it is on
     .input_gradients = NEVER,
     .sums = 2025},
    {.name = "Megatron",
     .words = {"Megatron", "NeMo", "Bridge"},
     .fused_attention = 2023,
     .newest_attention = 2023,
     .fused_kernels = ALWAYS,
     .gradients = 2023,
     .weights = 2023,
     .tensor = 2023,
     .input_gradients = 2022,
     .sums = 2021},
};
enum { KINDS = sizeof kinds / sizeof *kinds, XLA = 0, DEEPSPEED = 1, PYTORCH = 2, MEGATRON = 3 };

static int has(const char *in, const char *word) { return strcasestr(in, word) != NULL; }

// Whatever names none is of PyTorch's parts.
static int kind_of(const char *framework) {
  for (int k = 0; k < KINDS; k++)
    for (int i = 0; kinds[k].words[i]; i++)
      if (has(framework, kinds[k].words[i])) return k;
  return PYTORCH;
}

static int shards_weights(const char *framework) {
  return has(framework, "FSDP") || has(framework, "torchtitan") || has(framework, "MaxText");
}

int tr__software_zero(const char *framework, int64_t year) {
  if (shards_weights(framework) || has(framework, "ZeRO-3")) return 3;
  return kind_of(framework) == MEGATRON && year >= kinds[MEGATRON].gradients;
}

static void set_features(const tr__software *s, int of, tr_plan *p) {
  const kind *k = &kinds[of];
  int none = has(s->framework, "no overlap") || has(s->notes, "no overlap");
  p->fused_attention = s->year >= k->fused_attention;
  p->early_attention = s->year < k->newest_attention;
  p->fused_kernels = s->year >= k->fused_kernels && !has(s->notes, "eager");
  if (of == PYTORCH && !shards_weights(s->framework) && !has(s->notes, "compile")) p->fused_kernels = 0;
  p->hides_grads = !none && (s->year >= k->gradients || p->zero >= 2);
  p->hides_weights = p->hides_grads && s->year >= k->weights;
  p->hides_tp = !none && (s->year >= k->tensor || has(s->notes, "async TP"));
  p->hides_input_grads = !none && s->year >= k->input_gradients;
  // An option of Megatron's, which Bridge's recipes set where chunks interleave.
  p->hides_ep = has(s->notes, "all-to-all overlap") || (has(s->framework, "Bridge") && p->vpp > 1);
  p->waits = of == DEEPSPEED && p->pp > 1 && p->recompute == TR_PLAN_RECOMPUTE_FULL;
  p->gathers_matrices = of == DEEPSPEED || of == XLA;
  p->gathers_singly = of == DEEPSPEED && p->zero == 3 && s->year <= 2021;
  if (p->gathers_singly) p->hides_grads = 0;
  int64_t passes = p->dp > 0 && p->micro > 0 ? p->batch / (p->dp * p->micro) : 1;
  p->keeps_gathered = shards_weights(s->framework) && s->year >= 2024 && p->zero == 3 && passes > 1;
}

// Bytes per parameter as programs lay them out. Sums of gradients in f32 take those of autograd in (Megatron: as it multiplies) or are
// beside them; without such sums the update makes f32 copies. NeMo's recipes reduce in bf16; DeepSpeed sums in 16 bits in fp16.
// FSDP shards f32 weights; FSDP2 shards, and updates, weights of the type that the model was built in. PyTorch's own
// optimizers take their steps over all parameters at once since 2.0, with one temporary of each.
static void set_bytes(const tr__software *s, int of, tr_plan *p) {
  int fp16 = has(s->number, "fp16"), wide = s->year >= kinds[of].sums, foreach = of == PYTORCH && s->year >= 2023;
  int nemo = has(s->framework, "Bridge") || (of == MEGATRON && !has(s->framework, "Megatron-"));
  int shards = shards_weights(s->framework), own = has(s->framework, "FSDP2");
  if (of == DEEPSPEED && fp16) wide = 0;
  p->wire_bytes = fp16 || nemo ? 2 : 4;
  p->weight_bytes = shards && !own ? 4 : 2;
  p->state_bytes = own ? 4 : shards ? 8 : 12;
  p->grad_bytes = own || nemo ? 2 : shards ? 4 : !wide ? 2 : of == MEGATRON ? 4 : 6;
  p->update_bytes = wide || nemo || shards || (of == DEEPSPEED && p->zero > 0) ? 0 : 4;
  if (foreach) p->update_bytes += own ? 2 : 4;
  if (has(s->framework, "analytic")) p->grad_bytes = 2;
}

// Bytes per logit of a rank. Plain PyTorch copies logits as f32 and keeps their gradients; compiled, it keeps bf16 alone, and Composer's
// fused loss and XLA's do; FSDP2's tensor parallelism gathers what its ranks have of them: the whole is on each.
static void set_logits(const tr__software *s, tr_plan *p) {
  if (!shards_weights(s->framework)) return;
  int fused = s->year >= 2025 || has(s->framework, "Composer") || has(s->framework, "MaxText");
  p->logit_bytes = fused ? 4 : 13;
  if (has(s->framework, "FSDP2") && p->tp > 1) p->logit_bytes = 8 * (double)p->tp + 4;
}

void tr__software_apply(const tr__software *s, tr_plan *p) {
  int of = kind_of(s->framework);
  if (!s->says_sequence_parallel)
    p->sequence_parallel = p->tp > 1 && ((of == MEGATRON && s->year >= 2023) || (of == PYTORCH && s->year >= 2024));
  set_features(s, of, p);
  set_bytes(s, of, p);
  set_logits(s, p);
}
