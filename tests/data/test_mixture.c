// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
//
// Mixtures: after any number of samples every corpus has had its share within the bound that mixture.c states, each corpus
// gives each of its samples once per epoch of its own, an epoch of a mixture by size is every sample once, and drawing
// with replacement is uniform.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/token_files.h"
#include <math.h>

enum { MOST = 16 };

typedef struct corpora {
  char name[MOST][160];
  const char *path[MOST];
} corpora;

// Text i has samples[i] samples of one pair each; the first byte of text i is i.
static void write_corpora(const fixture *f, corpora *c, size_t n, const int64_t *samples) {
  for (size_t i = 0; i < n; i++) {
    char *text = malloc((size_t)samples[i] + 1);
    assert_non_null(text);
    memset(text, (int)i, (size_t)samples[i] + 1);
    snprintf(c->name[i], sizeof c->name[i], "%s-%zu", f->path, i);
    c->path[i] = c->name[i];
    write_bytes(c->path[i], text, (size_t)samples[i] + 1);
    free(text);
  }
}

static tr_source *open_mixture(const corpora *c, size_t n, const double *weight, uint64_t seed, int replacement) {
  tr_source *source = NULL;
  tr_source_options options = {.path = c->path,
                               .weight = weight,
                               .npath = n,
                               .sequence = 1,
                               .seed = seed,
                               .replacement = replacement,
                               .text = 1,
                               .vocab = 256,
                               .end = -1};
  tr_status status = tr_source_open(&options, &source);
  if (status != TR_OK) fail_msg("%s", tr_status_text());
  return source;
}

// The largest deviation of any corpus from its share at any prefix of the first `count` samples.
static double worst_deviation(const tr_source *source, size_t n, const double *weight, int64_t from, int64_t count,
                              int64_t *taken) {
  double sum = 0, worst = 0;
  for (size_t i = 0; i < n; i++) sum += weight[i];
  for (int64_t g = from; g < from + count; g++) {
    size_t corpus;
    int64_t sample;
    tr_source_locate(source, 0, g, &corpus, &sample);
    assert_true(corpus < n);
    taken[corpus]++;
    for (size_t i = 0; i < n; i++) {
      worst = fmax(worst, fabs((double)taken[i] - (double)(g + 1) * weight[i] / sum));
    }
  }
  return worst;
}

static void shares_are_kept_at_every_prefix(void **state) {
  fixture *f = *state;
  corpora c;
  int64_t samples[MOST];
  uint64_t random = 1;
  for (int i = 0; i < MOST; i++) samples[i] = 5 + i;
  write_corpora(f, &c, MOST, samples);
  const double chosen[][4] = {
      {1, 1, 1, 1}, {0.7, 0.3, 0.0001, 1e-9}, {1e-9, 1, 1e-9, 1}, {1, 2, 3, 4}, {5, 1e300, 1e300, 1}};
  for (int round = 0; round < 100; round++) {
    size_t n = 1 + next_random(&random) % MOST;
    double weight[MOST];
    for (size_t i = 0; i < n; i++) weight[i] = pow(10, -3 * (double)(next_random(&random) % 1000) / 1000);
    if (round < 5) memcpy(weight, chosen[round], sizeof chosen[round]), n = 4;
    int64_t taken[MOST] = {0};
    tr_source *source = open_mixture(&c, n, weight, 9, 0);
    double worst = worst_deviation(source, n, weight, 0, 3000, taken);
    assert_true(worst < fmax(1, ceil(log2((double)n)) / 2));
    tr_source_close(source);
  }
}

// Sums of shares and indices that are near the ends of their types.
static void far_indices_keep_shares(void **state) {
  fixture *f = *state;
  corpora c;
  const int64_t samples[] = {100, 50, 7};
  const double weight[] = {0.5, 0.25, 0.25};
  write_corpora(f, &c, 3, samples);
  tr_source *source = open_mixture(&c, 3, weight, 9, 0);
  int64_t from = INT64_MAX / 4 * 4 - 4000, count[3] = {0};
  for (int64_t g = from; g < from + 4000; g++) {
    size_t corpus;
    int64_t sample;
    tr_source_locate(source, 0, g, &corpus, &sample);
    assert_in_range(sample, 0, samples[corpus] - 1);
    count[corpus]++;
  }
  for (int i = 0; i < 3; i++) assert_true(fabs((double)count[i] - 4000 * weight[i]) <= 2);
  tr_source_close(source);
}

// Epochs of different corpora end at different times.
static void each_corpus_gives_each_sample_once_per_epoch_of_its_own(void **state) {
  fixture *f = *state;
  enum { N = 3, STEPS = 20000 };
  corpora c;
  const int64_t samples[N] = {700, 31, 256};
  const double weight[N] = {0.2, 0.5, 0.3};
  int used[N][700] = {{0}}, order_differs = 0;
  int64_t number[N] = {0}, last[N] = {0};
  write_corpora(f, &c, N, samples);
  tr_source *source = open_mixture(&c, N, weight, 9, 0);
  tr_batch batch;
  assert_int_equal(tr_batch_create(1, 1, &batch), TR_OK);
  for (int64_t g = 0; g < STEPS; g++) {
    size_t i;
    int64_t sample;
    tr_source_locate(source, 0, g, &i, &sample);
    assert_in_range(sample, 0, samples[i] - 1);
    assert_int_equal(used[i][sample], number[i] / samples[i]); // once in each epoch before this one
    used[i][sample]++;
    number[i]++;
    order_differs += sample != last[i];
    last[i] = sample;
    assert_int_equal(tr_batch_fill(source, 0, &g, 1, &batch), TR_OK);
    assert_int_equal(batch.token[0], i); // the batch is of that corpus
  }
  assert_true(order_differs > STEPS / 2);
  for (int i = 0; i < N; i++) assert_true(number[i] > 2 * samples[i]);
  tr_batch_destroy(&batch);
  tr_source_close(source);
}

static void an_epoch_of_a_mixture_by_size_is_every_sample_once(void **state) {
  fixture *f = *state;
  enum { N = 5 };
  corpora c;
  const int64_t samples[N] = {1, 700, 31, 256, 13};
  static int used[N][700];
  write_corpora(f, &c, N, samples);
  tr_source *source = open_mixture(&c, N, NULL, 9, 0);
  assert_int_equal(tr_source_samples(source, 0), 1001);
  memset(used, 0, sizeof used);
  for (int epoch = 1; epoch <= 4; epoch++) {
    for (int64_t g = 1001 * (epoch - 1); g < 1001 * epoch; g++) {
      size_t i;
      int64_t sample;
      tr_source_locate(source, 0, g, &i, &sample);
      used[i][sample]++;
    }
    for (int i = 0; i < N; i++) {
      for (int64_t s = 0; s < samples[i]; s++) assert_int_equal(used[i][s], epoch);
    }
  }
  tr_source_close(source);
}

static void one_corpus_has_the_plain_order_whatever_its_weight(void **state) {
  fixture *f = *state;
  corpora c;
  const int64_t samples = 77;
  const double weight = 0.123;
  write_corpora(f, &c, 1, &samples);
  tr_source *plain = open_mixture(&c, 1, NULL, 9, 0), *weighted = open_mixture(&c, 1, &weight, 9, 0);
  for (int64_t g = 0; g < 1000; g++) {
    size_t corpus;
    int64_t a, b;
    tr_source_locate(plain, 0, g, &corpus, &a);
    tr_source_locate(weighted, 0, g, &corpus, &b);
    assert_int_equal(a, b);
    assert_int_equal(a, tr_permute(9, (uint64_t)(g / samples), (uint64_t)samples, (uint64_t)(g % samples)));
  }
  tr_source_close(weighted);
  tr_source_close(plain);
}

// Equal corpora in one mixture have orders of their own.
static void corpora_have_unrelated_orders(void **state) {
  fixture *f = *state;
  enum { N = 500 };
  corpora c;
  const int64_t samples[] = {N, N};
  int64_t order[2][N], taken[2] = {0}, same = 0;
  write_corpora(f, &c, 2, samples);
  tr_source *source = open_mixture(&c, 2, NULL, 9, 0);
  for (int64_t g = 0; g < 2 * N; g++) {
    size_t i;
    int64_t sample;
    tr_source_locate(source, 0, g, &i, &sample);
    order[i][taken[i]++] = sample;
  }
  for (int n = 0; n < N; n++) same += order[0][n] == order[1][n];
  assert_in_range(same, 0, 10);
  tr_source_close(source);
}

// Chi-squared over 100 samples drawn 100 000 times: mean 99, standard deviation 14.
static void drawing_with_replacement_is_uniform(void **state) {
  fixture *f = *state;
  enum { N = 100, DRAWS = 100000 };
  corpora c;
  const int64_t samples[] = {N, 3};
  int64_t count[N] = {0}, repeats = 0, last = -1;
  double chi = 0;
  write_corpora(f, &c, 2, samples);
  tr_source *source = open_mixture(&c, 1, NULL, 9, 1), *other = open_mixture(&c, 1, NULL, 10, 1);
  int64_t agree = 0;
  for (int64_t g = 0; g < DRAWS; g++) {
    size_t i;
    int64_t sample, with_other_seed;
    tr_source_locate(source, 0, g, &i, &sample);
    tr_source_locate(other, 0, g, &i, &with_other_seed);
    assert_in_range(sample, 0, N - 1);
    count[sample]++;
    repeats += sample == last;
    agree += sample == with_other_seed;
    last = sample;
  }
  for (int s = 0; s < N; s++) chi += pow((double)count[s] - DRAWS / N, 2) / (DRAWS / N);
  assert_true(chi > 99 - 5 * 14 && chi < 99 + 5 * 14); // not too even either: that would be a permutation
  assert_in_range(repeats, DRAWS / N - 160, DRAWS / N + 160);
  assert_in_range(agree, DRAWS / N - 160, DRAWS / N + 160);
  tr_source_close(other);
  tr_source_close(source);
}

static void validation_is_the_parts_of_all_corpora_in_order(void **state) {
  fixture *f = *state;
  corpora c;
  const int64_t samples[] = {99, 49, 199}; // 100, 50 and 200 bytes
  tr_source *source = NULL;
  write_corpora(f, &c, 3, samples);
  tr_source_options options = {
      .path = c.path, .npath = 3, .sequence = 1, .val_fraction = 0.1, .text = 1, .vocab = 256, .end = -1};
  assert_int_equal(tr_source_open(&options, &source), TR_OK);
  const int64_t part[] = {9, 4, 19};
  assert_int_equal(tr_source_tokens(source, 1), 35);
  assert_int_equal(tr_source_samples(source, 1), 9 + 4 + 19);
  assert_int_equal(tr_source_targets(source, 1), 9 + 4 + 19);
  assert_int_equal(tr_source_samples(source, 0), 89 + 44 + 179);
  int64_t g = 0;
  for (size_t i = 0; i < 3; i++) {
    for (int64_t s = 0; s < part[i]; s++, g++) {
      size_t corpus;
      int64_t sample;
      tr_source_locate(source, 1, g, &corpus, &sample);
      assert_int_equal(corpus, i);
      assert_int_equal(sample, s);
    }
  }
  tr_source_close(source);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(shares_are_kept_at_every_prefix),
      TEST(far_indices_keep_shares),
      TEST(each_corpus_gives_each_sample_once_per_epoch_of_its_own),
      TEST(an_epoch_of_a_mixture_by_size_is_every_sample_once),
      TEST(one_corpus_has_the_plain_order_whatever_its_weight),
      TEST(corpora_have_unrelated_orders),
      TEST(drawing_with_replacement_is_uniform),
      TEST(validation_is_the_parts_of_all_corpora_in_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
