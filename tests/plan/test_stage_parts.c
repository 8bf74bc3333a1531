// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 30
// Proves that the parts of a model add up to the model: parameters (a tied embedding once more where two ranks have it), FLOPs,
// states, and times of whole stages; and that embedding, layers and head are told apart.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan_cases.h"
#include "trireme/model/arch.h"
#include "trireme/plan/stage_parts.h"
#include <math.h>

enum { LAYERS = 5, SEQUENCE = 32, MICRO = 3 };

static tr_model *make_model(int llama, int tied, tr_arch *arch) {
  tr_model *model;
  *arch = (tr_arch){.kind = llama ? TR_ARCH_LLAMA : TR_ARCH_GPT2};
  if (llama) {
    tr_llama_config_init(&arch->llama);
    arch->llama.layers = LAYERS;
    arch->llama.width = 64;
    arch->llama.heads = arch->llama.heads_kv = 4;
    arch->llama.head_dim = 16;
    arch->llama.ffn = 128;
    arch->llama.vocab = 96;
    arch->llama.tied = tied;
  } else {
    tr_gpt2_config_init(&arch->gpt2);
    arch->gpt2.layers = LAYERS;
    arch->gpt2.width = 64;
    arch->gpt2.heads = 4;
    arch->gpt2.vocab = 96;
    arch->gpt2.positions = 64;
    arch->gpt2.tied = tied;
  }
  if (tr_arch_create(arch, &model) != TR_OK) fail_msg("%s", tr_status_text());
  return model;
}

static double sum(const double *value, int n) {
  double all = 0;
  for (int i = 0; i < n; i++) all += value[i];
  return all;
}

static int equal(double a, double b) { return fabs(a / b - 1) < 1e-12; }

static void check_parts(const tr_model *model, const tr_stage_parts_options *o, double copy) {
  tr_stage_parts x;
  double state = o->type == TR_BF16 ? 18 : 16;
  assert_int_equal(tr_stage_parts_make(model, o, &x), TR_OK);
  assert_int_equal(x.n, LAYERS + 2);
  assert_true(equal(sum(x.params, x.n), (double)tr_model_count(model) + copy));
  assert_true(equal(sum(x.flops, x.n), tr_model_flops(model, SEQUENCE) * SEQUENCE * MICRO));
  for (int i = 0; i < x.n; i++) {
    int layer = i > 0 && i < LAYERS + 1;
    assert_int_equal(x.part[i].layers, layer);
    assert_true(equal(x.part[i].states, state * x.params[i]));
    if (!o->cluster) assert_true(i == 0 || equal(x.part[i].forward * 3, x.flops[i]));
    if (!o->cluster) assert_true(x.part[i].backward == 2 * x.part[i].forward);
    if (o->cluster) assert_true(x.part[i].forward > 0 && x.part[i].backward > x.part[i].forward);
    if (layer) assert_true(x.part[i].forward == x.part[1].forward && x.part[i].activations == x.part[1].activations);
  }
  assert_true(x.part[0].activations < x.part[1].activations && x.part[LAYERS + 1].forward > 0);
  tr_stage_parts_destroy(&x);
}

static void parts_add_up_to_the_model(void **state) {
  (void)state;
  for (int k = 0; k < 16; k++) {
    int llama = k & 1, tied = k >> 1 & 1, apart = k >> 2 & 1;
    tr_arch arch;
    tr_schedule s;
    tr_model *model = make_model(llama, tied, &arch);
    tr_workload workload = tr_workload_from_arch(&arch);
    tr_cluster cluster = case_cluster(8);
    assert_int_equal(tr_schedule_build(&(tr_schedule_spec){.name = apart ? "1f1b" : "zbv", .p = 2, .m = 4}, &s),
                     TR_OK);
    const tr_stage_parts_options options = {.sequence = SEQUENCE,
                                            .micro = MICRO,
                                            .type = k & 1 ? TR_BF16 : TR_F32,
                                            .schedule = &s,
                                            .workload = &workload,
                                            .cluster = k & 8 ? &cluster : NULL};
    check_parts(model, &options, tied && apart ? 96 * 64 : 0);
    tr_schedule_destroy(&s);
    tr_model_destroy(model);
  }
}

// Times are the planner's: a stage of all parts takes what tr_predict_stage says of the whole model.
static void times_are_those_of_the_planner(void **state) {
  (void)state;
  tr_arch arch;
  tr_schedule s;
  tr_stage_parts x;
  tr_model *model = make_model(1, 0, &arch);
  tr_workload workload = tr_workload_from_arch(&arch);
  tr_cluster cluster = case_cluster(8);
  assert_int_equal(tr_schedule_build(&(tr_schedule_spec){.name = "1f1b", .p = 2, .m = 4}, &s), TR_OK);
  const tr_stage_parts_options options = {SEQUENCE, MICRO, TR_BF16, &s, &workload, &cluster};
  assert_int_equal(tr_stage_parts_make(model, &options, &x), TR_OK);
  tr_plan plan;
  tr_plan_init(&plan);
  plan.sequence = SEQUENCE;
  plan.micro = MICRO;
  const tr_stage_cut all = {0, LAYERS, 1, 1};
  tr_stage_time time = tr_predict_stage(&plan, &workload, &cluster, &all);
  double forward = 0, backward = 0;
  for (int i = 0; i < x.n; i++) forward += x.part[i].forward, backward += x.part[i].backward;
  assert_true(fabs(forward / time.forward - 1) < 1e-9);
  assert_true(fabs(backward / (time.input + time.weights) - 1) < 1e-9);
  tr_stage_parts_destroy(&x);
  tr_schedule_destroy(&s);
  tr_model_destroy(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parts_add_up_to_the_model),
      cmocka_unit_test(times_are_those_of_the_planner),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
