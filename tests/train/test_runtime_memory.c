// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that the planner adds up the bytes that the executor lays out (tests/run/test_run_memory.c shows that it takes what
// tr_run_memory_predict says): own, shared and once per host, for models of all families, number types, recomputation, ranks, owned
// parts, narrow wires, packed weights, and pipelines of every kind of schedule; and that its items are these bytes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/train/train.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 8 };

typedef struct settings {
  tr_train_config config;
  tr_options *options;
  tr_train_plan plan;
} settings;

static int open_plan(settings *s, const char *const *argument) {
  memset(s, 0, sizeof *s);
  assert_int_equal(tr_train_config_open(&s->config, &s->options), TR_OK);
  for (; *argument; argument++)
    if (tr_options_apply_argument(s->options, *argument) < 0) fail_msg("%s: %s", *argument, tr_status_text());
  if (tr_train_plan_step(&s->config, s->options, &s->plan) == TR_OK) return 1;
  tr_options_destroy(s->options);
  return 0;
}

static void close_plan(settings *s) {
  tr_train_plan_destroy(&s->plan);
  tr_options_destroy(s->options);
}

static int compare(const settings *s, const char *what) {
  tr_runtime_part part[PLACES];
  tr_runtime_plan runtime;
  const int pp = s->plan.mesh.degree[TR_AXIS_PP], dp = s->plan.mesh.degree[TR_AXIS_DP];
  assert_true(pp <= PLACES);
  tr_train_runtime(&s->plan, part, &runtime);
  for (int r = 0; r < pp; r++) {
    tr_run_options options;
    tr_run_memory need;
    tr_runtime_memory sum;
    size_t items = 0;
    tr_train_run_options(&s->plan, r * dp, &options); // the map has dp inside pp
    assert_ptr_equal(options.program, part[r].program);
    assert_int_equal(tr_run_memory_predict(&options, s->plan.nthread, runtime.dp, runtime.share, &need), TR_OK);
    assert_int_equal(tr_runtime_memory_of(&runtime, r, &sum), TR_OK);
    if (sum.own != need.private_total || sum.shared != need.shared_total || sum.host != need.host_total)
      fail_msg("%s, place %d: own %zu, shared %zu, host %zu; the executor has %zu, %zu, %zu", what, r, sum.own,
               sum.shared, sum.host, need.private_total, need.shared_total, need.host_total);
    for (int i = 0; i < TR_ITEM_COUNT; i++) items += sum.item[i];
    assert_int_equal(items, sum.own + sum.shared + sum.host);
    assert_int_equal(sum.item[TR_ITEM_WEIGHTS], need.weights + need.packed);
    assert_int_equal(sum.item[TR_ITEM_GRADS], need.gradients + need.wire);
    assert_int_equal(sum.item[TR_ITEM_STATES], need.master + need.state);
  }
  return pp;
}

static uint32_t draw(uint64_t *random, uint32_t n) {
  *random = *random * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*random >> 33) % n;
}

#define PICK(list) (list)[draw(&random, sizeof(list) / sizeof *(list))]

static void the_planner_adds_up_what_is_laid_out(void **state) {
  (void)state;
  static const char *const model[] = {"model=gpt2-tiny", "model=llama-tiny", "model=qwen3-tiny", "model=gpt2-1m"};
  static const char *const recompute[] = {"memory.recompute=none", "memory.recompute=selective",
                                          "memory.recompute=full"};
  static const char *const compute[] = {"precision.compute=f32", "precision.compute=bf16"};
  static const char *const grad[] = {"precision.grad_wire=f32", "precision.grad_wire=bf16"};
  static const char *const zero[] = {"parallel.zero=0", "parallel.zero=1"};
  static const char *const pack[] = {"memory.pack=true", "memory.pack=false"};
  static const char *const stage[] = {"precision.stage_wire=auto", "precision.stage_wire=bf16"};
  static const char *const optim[] = {"optim.kind=adamw", "optim.kind=sgd"};
  static const char *const sync[] = {"comm.grad_sync=last", "comm.grad_sync=every"};
  static const char *const schedule[] = {"1f1b", "gpipe", "zb_h1", "zbv", "interleaved", "dualpipe", "dualpipev"};
  static const int degree[][2] = {{1, 1}, {1, 2}, {1, 3}, {2, 1}, {2, 2}, {4, 1}};
  int compared = 0, piped = 0;
  for (uint64_t k = 0; k < 220; k++) {
    uint64_t random = 7 * k + 1;
    char ranks[32], pp[32], order[48], micro[32], all[32], threads[32];
    const int *d = degree[k % 6], m = 1 + (int)draw(&random, 3), passes = 4 << draw(&random, 2);
    snprintf(ranks, sizeof ranks, "run.ranks=%d", d[0] * d[1]);
    snprintf(pp, sizeof pp, "parallel.pp=%d", d[0]);
    snprintf(order, sizeof order, "parallel.schedule=%s", PICK(schedule));
    snprintf(micro, sizeof micro, "batch.micro=%d", m);
    snprintf(all, sizeof all, "batch.sequences=%d", m * passes * d[1]);
    snprintf(threads, sizeof threads, "run.threads=%d", 1 + (int)draw(&random, 2));
    const char *const argument[] = {PICK(model),
                                    "data.sequence=32",
                                    PICK(recompute),
                                    PICK(compute),
                                    PICK(zero),
                                    PICK(grad),
                                    PICK(pack),
                                    PICK(optim),
                                    d[0] == 1 ? PICK(sync) : "comm.grad_sync=last",
                                    d[0] > 1 ? PICK(stage) : "precision.stage_wire=auto",
                                    ranks,
                                    pp,
                                    order,
                                    micro,
                                    all,
                                    threads,
                                    NULL};
    settings s;
    if (!open_plan(&s, argument)) continue; // a combination that train refuses
    piped += compare(&s, order) > 1;
    compared++;
    close_plan(&s);
  }
  assert_true(compared > 100 && piped > 30);
}

int main(void) {
  setenv("TRIREME_PRESETS", TRIREME_TEST_DATA "/../../presets", 1);
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_planner_adds_up_what_is_laid_out)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
