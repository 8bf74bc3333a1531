// SPDX-License-Identifier: MIT
// tier: full
// timeout: 300
// Proves what else a plan may say of a pipeline: tied embeddings, AdamW, clipping, dropout, owned state, number types,
// recomputation, fast kernels, threads; that neither sleeps nor the way in which a step is cut change a bit; that steps
// without a norm are skipped by all ranks; and that a wrong message, and a program of another rank, are refused.
#include "run/pipeline_cases.h"
#include "trireme/model/llama.h"

// One of each kind of placement and of pass.
static const struct {
  const char *name;
  int p, v, m;
} plan[] = {
    {"1f1b", 3, 0, 5},     {"interleaved", 2, 2, 4}, {"zb_h1", 3, 0, 5},    {"zb_h2", 4, 0, 7},
    {"zbv", 2, 0, 4},      {"gpipe", 2, 0, 3},       {"dualpipe", 2, 0, 4}, {"dualpipev", 2, 0, 5},
    {"dualpipe", 4, 0, 8}, {"gpipe_lifo", 2, 0, 3},
};
enum { PLANS = sizeof plan / sizeof *plan };

static ph_case case_of(int i, int dp) {
  ph_case c = ph_default(plan[i].name, plan[i].p, dp, plan[i].m);
  c.v = plan[i].v;
  return c;
}

// ---- training

static void ten_steps(tr_optim_kind kind, int tied) {
  for (int i = 0; i < PLANS; i++) {
    ph_case c = case_of(i, 1 + i % 2);
    c.run.steps = 10;
    c.run.tied = tied;
    c.run.dropout = tied ? 0.1 : 0;
    c.run.optim.kind = kind;
    c.run.clip = i % 3 ? 0.5 : 0;
    c.cut = (ph_cut)(i % 3);
    if (kind == TR_OPTIM_ADAMW) c.run.optim.weight_decay = 0.1, c.run.lr = 0.002;
    pl_check(&c);
  }
}

static void tied_models_train_with_sgd(void **state) {
  (void)state;
  ten_steps(TR_OPTIM_SGD, 1);
}

static void tied_models_train_with_adamw(void **state) {
  (void)state;
  ten_steps(TR_OPTIM_ADAMW, 1);
}

static void untied_models_train_with_adamw(void **state) {
  (void)state;
  ten_steps(TR_OPTIM_ADAMW, 0);
}

static tr_status llama(tr_model **out) {
  tr_llama_config c;
  tr_llama_config_init(&c);
  c.layers = 6;
  c.width = 12;
  c.heads = 4;
  c.heads_kv = 2;
  c.head_dim = 6;
  c.ffn = 10;
  c.vocab = RH_VOCAB;
  c.positions = RH_POSITIONS;
  c.init_std = 0.3;
  c.dropout_attention = 0.1;
  return tr_llama_create(&c, out);
}

static void llama_trains(void **state) {
  (void)state;
  for (int i = 0; i < PLANS; i++) {
    ph_case c = case_of(i, 1);
    c.run.model = llama;
    c.run.tied = 0;
    c.run.steps = 3;
    pl_check(&c);
  }
}

// ---- where state lives, types, kernels

// Of two ranks with other data, and of two copies of each stage.
static void owned_parts_give_the_bits_of_whole_copies(void **state) {
  (void)state;
  for (int i = 0; i < PLANS; i++) {
    ph_case c = case_of(i, i % 3 ? 2 : 1), owned;
    c.run.steps = 4;
    c.run.optim.kind = TR_OPTIM_ADAMW;
    c.run.clip = 0.5;
    c.run.bucket = i % 2 ? 500 : 1 << 20;
    c.run.tied = i % 4 != 0;
    owned = c;
    owned.run.zero = 1;
    pl_same_run(&c, &owned);
  }
}

static void close_to_f32(ph_case c, ph_case low, double allowed) {
  c.run.steps = low.run.steps = 6;
  ph_result *x = ph_run(&c), *y = ph_run(&low);
  for (int step = 0; step < c.run.steps; step++)
    pl_close(&low, "losses", fabs(x->loss[step] - y->loss[step]), allowed, "");
  assert_true(fabs(x->norm[0] / y->norm[0] - 1) < 0.05 && x->norm[0] != y->norm[0]);
  ph_free(x);
  ph_free(y);
}

static void narrow_types_follow_f32(void **state) {
  (void)state;
  for (int i = 0; i < PLANS; i++) {
    ph_case c = case_of(i, 1), low = c, wire = c, both = case_of(i, 2);
    low.run.type = TR_BF16;
    wire.stage_wire = TR_BF16;
    both.run.zero = 1;
    both.run.wire = both.stage_wire = TR_BF16;
    close_to_f32(c, low, 0.05);
    close_to_f32(c, wire, 0.05);
    close_to_f32(case_of(i, 2), both, 0.05);
  }
}

// bf16 activations travel as they are, whatever may be asked for; so do f64 ones.
static void computed_types_travel_unchanged(void **state) {
  (void)state;
  for (int k = 0; k < 2; k++) {
    ph_case c = case_of(k, 1);
    c.run.type = k ? TR_F64 : TR_BF16;
    c.run.tied = 0;
    c.run.steps = 2;
    rh_result *want = rh_run(&c.run);
    ph_result *got = ph_run(&c);
    pl_same_bits(&c, got, want);
    c.stage_wire = TR_BF16;
    ph_result *again = ph_run(&c);
    pl_same_bits(&c, again, want);
    ph_free(got);
    ph_free(again);
    rh_free(want);
  }
}

static void fast_kernels_and_threads_change_nothing_between_plans(void **state) {
  (void)state;
  for (int i = 0; i < PLANS; i++) {
    ph_case c = case_of(i, 1);
    c.run.kernels = tr_kernels_cpu();
    c.run.nthread = 1 + i % 2;
    c.run.pack = i % 2;
    c.run.tied = 0;
    c.run.steps = 3;
    c.run.dropout = 0.1;
    pl_check(&c);
  }
}

static void recomputation_changes_no_bit(void **state) {
  (void)state;
  for (int i = 0; i < PLANS; i++)
    for (int recompute = TR_RECOMPUTE_SELECTIVE; recompute <= TR_RECOMPUTE_FULL; recompute++) {
      ph_case c = case_of(i, 1), again;
      c.run.dropout = 0.1;
      c.run.steps = 2;
      c.cut = (ph_cut)(i % 3);
      again = c;
      again.run.recompute = (tr_recompute)recompute;
      pl_same_run(&c, &again);
    }
}

// ---- time, and what has no norm

static void sleeps_change_no_bit(void **state) {
  (void)state;
  for (int i = 0; i < PLANS; i++) {
    ph_case c = case_of(i, 1 + (i < 2)), slow;
    c.run.steps = 2;
    slow = c;
    slow.sleeps = 1;
    pl_same_run(&c, &slow);
  }
}

static void empty_and_broken_steps_are_skipped_by_all(void **state) {
  (void)state;
  for (int i = 0; i < PLANS; i++) {
    ph_case c = case_of(i, 1 + i % 2);
    c.run.steps = 3;
    c.run.labels = RH_NONE_VALID;
    ph_result *got = ph_run(&c);
    for (int step = 0; step < 3; step++) assert_true(got->skipped[step] && got->tokens[step] == 0);
    ph_free(got);
    c.run.labels = RH_RAGGED;
    c.run.lr = 1e30; // the first step is fine, and makes nonsense of the weights
    got = ph_run(&c);
    assert_true(!got->skipped[0] && got->skipped[1] && !isfinite(got->norm[1]));
    ph_free(got);
  }
}

// ---- messages

// Rank 0 sends micro-batch 1 where its neighbour expects 0, which every field of a message but its header would allow.
static tr_status wrong_message_main(tr_comm *comm, void *user) {
  const ph_case *c = user;
  ph_rank r;
  tr_step_result done;
  TR_TRY(ph_open(c, comm, &r));
  for (uint32_t i = 0; r.pp_rank == 0 && i < r.program.nop; i++)
    if (r.program.op[i].kind == TR_OP_SEND && r.program.op[i].microbatch < 2) r.program.op[i].microbatch ^= 1;
  rh_deal(&c->run, 0, r.dp_rank, r.rows, r.input);
  r.input[1] = r.input[0]; // of one size
  tr_status status = tr_run_step(r.run, 0, c->run.lr, r.input, &done);
  ph_close(&r);
  return status;
}

static void a_message_that_is_not_the_next_is_refused(void **state) {
  (void)state;
  ph_case c = ph_default("1f1b", 2, 1, 4);
  tr_launch_options launch;
  tr_launch_report report;
  ph_launch_options(&c, &launch);
  assert_int_equal(tr_launch(&launch, wrong_message_main, &c, &report), TR_ERR_INTERNAL);
  assert_non_null(strstr(report.text, "rank 1 of the pipeline got the activation behind stage 0, micro-batch 1"));
  assert_non_null(strstr(report.text, "expected the activation behind stage 0, micro-batch 0"));
}

// A program of another part of the model, or of another place in the pipeline, is no program of this rank.
static tr_status refused_main(tr_comm *comm, void *user) {
  const ph_case *c = user;
  ph_rank r;
  tr_run *run;
  TR_TRY(ph_open(c, comm, &r));
  tr_run_options o = r.options;
  o.pp = NULL;
  assert_int_equal(tr_run_create(&o, &run), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "of 2 in a pipeline, this is rank 0 of 1"));
  o = r.options;
  o.model = r.whole;
  o.layout = &r.whole_layout;
  assert_int_equal(tr_run_create(&o, &run), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "stage"));
  o = r.options;
  o.stage_wire = TR_F64;
  assert_int_equal(tr_run_create(&o, &run), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "activations cannot travel as f64"));
  o = r.options;
  o.tied = NULL;
  assert_int_equal(tr_run_create(&o, &run), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "shared with another stage"));
  o = r.options;
  o.grad_sync = TR_SYNC_EVERY;
  assert_int_equal(tr_run_create(&o, &run), TR_ERR_PLAN);
  ph_close(&r);
  return TR_OK;
}

static void what_is_no_run_of_this_rank_is_refused(void **state) {
  (void)state;
  ph_case c = ph_default("1f1b", 2, 1, 4);
  tr_launch_options launch;
  ph_launch_options(&c, &launch);
  assert_true(rh_works(tr_launch(&launch, refused_main, &c, NULL)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tied_models_train_with_sgd),
      cmocka_unit_test(tied_models_train_with_adamw),
      cmocka_unit_test(untied_models_train_with_adamw),
      cmocka_unit_test(llama_trains),
      cmocka_unit_test(owned_parts_give_the_bits_of_whole_copies),
      cmocka_unit_test(narrow_types_follow_f32),
      cmocka_unit_test(computed_types_travel_unchanged),
      cmocka_unit_test(fast_kernels_and_threads_change_nothing_between_plans),
      cmocka_unit_test(recomputation_changes_no_bit),
      cmocka_unit_test(sleeps_change_no_bit),
      cmocka_unit_test(empty_and_broken_steps_are_skipped_by_all),
      cmocka_unit_test(a_message_that_is_not_the_next_is_refused),
      cmocka_unit_test(what_is_no_run_of_this_rank_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
