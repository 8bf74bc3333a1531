// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Proves that training on several ranks (as threads) is training on one: losses, gradients, norms, clipping
// and weights, under every way to accumulate, reduce and split the work, with ragged and missing labels; and
// that the bits repeat.
#include "run/parallel_cases.h"
#include "thin.h"

static void sgd_on_any_number_of_ranks(void **state) {
  (void)state;
  static const int ranks[] = {2, 3, 4, 8};
  for (int i = 0; i < 4; i++) {
    rh_case c = pc_training(ranks[i], TR_OPTIM_SGD, TR_LAUNCH_THREADS);
    c.optim.momentum = 0.9 * (i % 2);
    pc_check(&c);
  }
}

static void adamw_with_clipping_and_dropout(void **state) {
  (void)state;
  static const int ranks[] = {2, 3, 8};
  for (int i = 0; i < 3; i++) {
    rh_case c = pc_training(ranks[i], TR_OPTIM_ADAMW, TR_LAUNCH_THREADS);
    c.clip = 0.5;
    c.dropout = 0.1 * (i % 2);
    c.tied = i != 1;
    pc_check(&c);
  }
}

static void one_rank_accumulates(void **state) {
  (void)state;
  rh_case c = pc_training(1, TR_OPTIM_SGD, TR_LAUNCH_THREADS);
  for (int micro = 1; micro <= 3; micro += 2)
    for (int sync = TR_SYNC_LAST; sync <= TR_SYNC_EVERY; sync++) {
      c.micro = micro;
      c.sync = (tr_grad_sync)sync;
      pc_check(&c);
    }
}

// Accumulation, when to reduce, buckets and the split backward pass, all together.
static void every_way_to_reduce(void **state) {
  (void)state;
  static const int64_t bucket[] = {0, 2000, 1 << 30};
  for (int k = 0; k < 12; k += STRIDE) {
    rh_case c = rh_default();
    c.nrank = 2 + k % 2;
    c.micro = k % 4 < 2 ? 3 : 1;
    c.sync = k / 6 ? TR_SYNC_EVERY : TR_SYNC_LAST;
    c.bucket = bucket[k % 3];
    c.split = k / 3 % 2;
    c.dropout = 0.1;
    c.sequences = 11;
    c.steps = 3;
    pc_check(&c);
  }
}

static void ranks_without_valid_targets_and_without_rows(void **state) {
  (void)state;
  rh_case c = rh_default();
  c.nrank = 4;
  c.steps = 2;
  c.labels = RH_FIRST_IGNORED; // rank 0 has rows, none of which counts
  pc_check(&c);
  c.labels = RH_RAGGED;
  c.sequences = 5; // 2, 2, 1, 0
  pc_check(&c);
  c.sequences = 4;
  c.nrank = 8;
  c.sync = TR_SYNC_EVERY;
  c.micro = 2;
  pc_check(&c);
}

static void a_step_without_valid_tokens_changes_nothing(void **state) {
  (void)state;
  rh_case c = rh_default();
  c.nrank = 2;
  c.optim.weight_decay = 0.1;
  c.labels = RH_NONE_VALID;
  rh_result *none = rh_run(&c);
  assert_int_equal(none->tokens[0], 0);
  assert_true(none->skipped[0]);
  assert_true(none->loss[0] == 0 && none->norm[0] == 0);
  c.lr = 0;
  c.labels = RH_RAGGED;
  rh_result *start = rh_run(&c);
  int64_t total = rh_total(&c);
  assert_memory_equal(none->weights, start->weights, (size_t)total * sizeof(double));
  rh_free(none);
  rh_free(start);
}

static void bits_repeat_and_do_not_depend_on_threads(void **state) {
  (void)state;
  rh_case c = pc_training(3, TR_OPTIM_ADAMW, TR_LAUNCH_THREADS), other = c;
  c.steps = other.steps = 4;
  c.dropout = other.dropout = 0.1;
  pc_same_bits(&c, &other);
  for (int nthread = 2; nthread <= 3; nthread++) {
    other.nthread = nthread;
    pc_same_bits(&c, &other);
  }
}

// The order of every sum is the same, so the bits are.
static void splitting_the_backward_pass_or_the_buckets_keeps_the_bits(void **state) {
  (void)state;
  rh_case c = pc_training(2, TR_OPTIM_SGD, TR_LAUNCH_THREADS), other = c;
  c.steps = other.steps = 3;
  c.micro = other.micro = 2;
  other.split = 1;
  pc_same_bits(&c, &other);
  other.bucket = 1 << 30;
  pc_same_bits(&c, &other);
}

// One copy of the state for all ranks, each of which updates its part: the bits are those of whole copies.
static void owned_parts_give_the_same_bits(void **state) {
  (void)state;
  static const int64_t bucket[] = {0, 2000, 1 << 30};
  for (int k = 0; k < 24; k += STRIDE) {
    rh_case c = pc_training(2 + k % 4, k % 3 ? TR_OPTIM_ADAMW : TR_OPTIM_SGD, TR_LAUNCH_THREADS), other;
    c.type = k % 5 == 1 ? TR_BF16 : TR_F32;
    c.micro = k % 4 < 2 ? 3 : 1;
    c.sync = k / 6 % 2 ? TR_SYNC_EVERY : TR_SYNC_LAST;
    c.bucket = bucket[k % 3];
    c.split = k / 3 % 2;
    c.optim.momentum = 0.9 * (k / 2 % 2);
    c.clip = k % 2 ? 0.1 : 0;
    c.dropout = 0.1;
    c.steps = 4;
    c.nthread = 1 + k % 2;
    c.kernels = k % 2 ? tr_kernels_cpu() : NULL;
    other = c;
    other.zero = 1;
    other.pack = k % 2;
    pc_same_bits(&c, &other);
    if (c.type == TR_F32) pc_check(&other);
  }
}

// Layers of several blocks, so that parts begin within units.
static tr_status wide_model(tr_model **out) {
  tr_gpt2_config config;
  tr_gpt2_config_init(&config);
  config.layers = 2;
  config.width = 48;
  config.heads = 4;
  config.vocab = RH_VOCAB;
  config.positions = RH_POSITIONS;
  config.init_std = 0.2;
  return tr_gpt2_create(&config, out);
}

static void parts_that_begin_within_layers_give_the_same_bits(void **state) {
  (void)state;
  for (int nrank = 2; nrank <= 7; nrank++) {
    rh_case c = pc_training(nrank, TR_OPTIM_ADAMW, TR_LAUNCH_THREADS), other;
    c.model = wide_model;
    c.bucket = nrank % 2 ? 20000 : 1 << 30;
    c.steps = 3;
    c.clip = 0.5;
    c.sync = nrank % 3 ? TR_SYNC_LAST : TR_SYNC_EVERY;
    other = c;
    other.zero = 1;
    pc_same_bits(&c, &other);
    pc_check(&other);
  }
}

// A copy for the ranks of each host, some of which may be alone on theirs: the same bits again.
static void a_copy_per_host_gives_the_same_bits(void **state) {
  (void)state;
  static const int hosts[][2] = {{4, 2}, {2, 1}, {6, 3}, {5, 2}, {3, 2}, {6, 2}, {7, 4}, {8, 4}};
  for (int k = 0; k < 16; k += STRIDE) {
    rh_case c = pc_training(hosts[k % 8][0], k % 3 ? TR_OPTIM_ADAMW : TR_OPTIM_SGD, TR_LAUNCH_THREADS), other;
    c.type = k % 5 == 1 ? TR_BF16 : TR_F32;
    c.model = k % 2 ? wide_model : NULL;
    c.bucket = k % 3 ? 20000 : 1 << 30;
    c.sync = k / 4 % 2 ? TR_SYNC_EVERY : TR_SYNC_LAST;
    c.micro = 1 + k % 2;
    c.clip = k % 2 ? 0.1 : 0;
    c.steps = 3;
    other = c;
    other.zero = 1;
    other.per_host = hosts[k % 8][1];
    other.pack = k % 2;
    other.kernels = c.kernels = k % 2 ? tr_kernels_cpu() : NULL;
    pc_same_bits(&c, &other);
    if (c.type == TR_F32) pc_check(&other);
  }
}

// Each rank's gradients are rounded to bf16 once, over hosts their sums too: not the bits, but the loss.
static void gradients_may_travel_as_bf16(void **state) {
  (void)state;
  for (int k = 0; k < 6; k++) {
    const int nrank = 2 + k % 2;
    rh_case c = pc_training(nrank, TR_OPTIM_ADAMW, TR_LAUNCH_THREADS), other;
    c.zero = 1;
    c.micro = 2;
    c.per_host = k / 2; // all on one, each on a host of its own, two and one
    c.sync = nrank == 3 ? TR_SYNC_EVERY : TR_SYNC_LAST;
    other = c;
    other.wire = TR_BF16;
    rh_result *exact = rh_run(&c), *rounded = rh_run(&other);
    char tensor[96];
    double difference = rh_difference(&c, rounded->gradient, exact->gradient, 1, 1, tensor);
    assert_true(difference > 1e-5 && difference < 0x1p-7);
    for (int step = 0; step < c.steps; step++) assert_true(fabs(exact->loss[step] - rounded->loss[step]) < 2e-3);
    for (int rank = 1; rank < nrank; rank++) assert_true(rounded->hash[rank] == rounded->hash[0]);
    rh_free(exact);
    rh_free(rounded);
  }
}

// The fast table against the naive one on one rank, and its bits for any number of threads and on every rank.
static void the_fast_kernels_train_the_same_model(void **state) {
  (void)state;
  rh_case c = pc_training(3, TR_OPTIM_ADAMW, TR_LAUNCH_THREADS), plain = pc_yardstick(&c), other;
  c.kernels = tr_kernels_cpu();
  c.dropout = plain.dropout = 0.1;
  c.clip = plain.clip = 1;
  rh_result *got = rh_run(&c), *want = rh_run(&plain);
  pc_equal(&c, got, want);
  rh_free(got);
  rh_free(want);
  other = c;
  other.nthread = 2;
  pc_same_bits(&c, &other);
}

// Guards the harness: a wrong learning rate, another dropout mask or a lost sequence is far outside the tolerances.
static void the_comparison_notices_small_mistakes(void **state) {
  (void)state;
  rh_case c = pc_training(1, TR_OPTIM_SGD, TR_LAUNCH_THREADS), wrong = c;
  char tensor[96];
  c.steps = wrong.steps = 2;
  wrong.lr = 0.0501;
  rh_result *a = rh_run(&c), *b = rh_run(&wrong);
  assert_true(rh_difference(&c, a->weights, b->weights, 0, 1, tensor) > 1e-5);
  wrong.lr = c.lr;
  wrong.dropout = 0.01;
  rh_result *d = rh_run(&wrong);
  assert_true(rh_difference(&c, a->gradient, d->gradient, 1, 0, tensor) > 1e-4);
  rh_free(a);
  rh_free(b);
  rh_free(d);
}

static void a_rank_that_fails_stops_the_others(void **state) {
  (void)state;
  pc_one_failure_stops_all(3, TR_LAUNCH_THREADS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sgd_on_any_number_of_ranks),
      cmocka_unit_test(adamw_with_clipping_and_dropout),
      cmocka_unit_test(one_rank_accumulates),
      cmocka_unit_test(every_way_to_reduce),
      cmocka_unit_test(ranks_without_valid_targets_and_without_rows),
      cmocka_unit_test(a_step_without_valid_tokens_changes_nothing),
      cmocka_unit_test(bits_repeat_and_do_not_depend_on_threads),
      cmocka_unit_test(splitting_the_backward_pass_or_the_buckets_keeps_the_bits),
      cmocka_unit_test(owned_parts_give_the_same_bits),
      cmocka_unit_test(parts_that_begin_within_layers_give_the_same_bits),
      cmocka_unit_test(a_copy_per_host_gives_the_same_bits),
      cmocka_unit_test(gradients_may_travel_as_bf16),
      cmocka_unit_test(the_fast_kernels_train_the_same_model),
      cmocka_unit_test(the_comparison_notices_small_mistakes),
      cmocka_unit_test(a_rank_that_fails_stops_the_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
