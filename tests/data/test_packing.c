// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
//
// Samples of documents: every pair of tokens inside a document is in one sample exactly once, none crosses a bound, documents
// that fit are whole, no sample is longer than `sequence`, validation gets documents of its own, and what is packed
// first-fit wastes what an independent count says and is as good as a plain quadratic packer.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/token_files.h"
#include <math.h>

enum { NDOC = 500, VOCAB = 1 << 20 };

// A corpus of documents of at most `longest` tokens, some empty, some of one token; token i is the number i.
static int64_t write_numbered(const char *path, uint64_t seed, int64_t longest, int64_t *start) {
  tr_corpus_writer *writer = NULL;
  tr_corpus_writer_options options = {.path = path, .format = TR_CORPUS_MEGATRON, .vocab = VOCAB};
  int32_t token[1000];
  start[0] = 0;
  assert_int_equal(tr_corpus_writer_open(&options, NULL, &writer), TR_OK);
  for (int d = 0; d < NDOC; d++) {
    int64_t length = (int64_t)(next_random(&seed) % (uint64_t)(longest + 1));
    for (int64_t i = 0; i < length; i++) token[i] = (int32_t)(start[d] + i);
    assert_int_equal(tr_corpus_writer_append(writer, token, (size_t)length), TR_OK);
    start[d + 1] = start[d] + length;
  }
  assert_int_equal(tr_corpus_writer_finish(writer), TR_OK);
  return start[NDOC];
}

static tr_source *open_packed(const char *path, tr_packing packing, int64_t sequence, double fraction) {
  tr_source *source = NULL;
  tr_source_options options = {.path = &path,
                               .npath = 1,
                               .sequence = sequence,
                               .val_fraction = fraction,
                               .seed = 3,
                               .packing = packing,
                               .vocab = VOCAB};
  tr_status status = tr_source_open(&options, &source);
  if (status != TR_OK) fail_msg("%s", tr_status_text());
  return source;
}

static int64_t document_of(const int64_t *start, int64_t token) {
  int64_t d = 0;
  while (start[d + 1] <= token) d++;
  return d;
}

// One sequence of a batch: rows of one document that follow each other; a document that fits is whole. Marks the tokens.
static void assert_sequence(const tr_batch *b, int q, const int64_t *start, int64_t sequence, int *uses) {
  int64_t first = b->token[b->start[q]], count = b->start[q + 1] - b->start[q], d = document_of(start, first);
  int64_t done = first - start[d], pairs = start[d + 1] - start[d] - 1;
  assert_int_equal(done % sequence, 0);
  assert_int_equal(count, pairs - done < sequence ? pairs - done : sequence);
  for (int64_t i = 0; i < count; i++) {
    int64_t r = b->start[q] + i;
    assert_int_equal(b->position[r], i);
    assert_int_equal(b->token[r], first + i);
    assert_int_equal(b->target[r], first + i + 1);
    uses[first + i]++;
  }
}

static void assert_part(const tr_source *source, int validation, tr_packing packing, int64_t sequence,
                        const int64_t *start, int *uses) {
  tr_batch batch;
  int64_t rows = 0, samples = tr_source_samples(source, validation);
  assert_int_equal(tr_batch_create(1, sequence, &batch), TR_OK);
  for (int64_t g = 0; g < samples; g++) {
    assert_int_equal(tr_batch_fill(source, validation, &g, 1, &batch), TR_OK);
    assert_in_range(batch.rows, 1, sequence);
    assert_int_equal(batch.rows, tr_source_length(source, validation, g));
    assert_int_equal(batch.valid, batch.rows);
    assert_int_equal(batch.start[batch.nseq], batch.rows);
    if (packing == TR_PACK_DOCUMENTS) assert_int_equal(batch.nseq, 1);
    for (int q = 0; q < batch.nseq; q++) {
      assert_sequence(&batch, q, start, sequence, uses);
      if (q > 0) assert_true(batch.token[batch.start[q]] > batch.token[batch.start[q - 1]]); // file order in a sample
    }
    for (int64_t r = 0; r < batch.rows; r++) assert_int_equal(batch.sample[r], g);
    rows += batch.rows;
  }
  assert_int_equal(tr_source_targets(source, validation), rows);
  if (!validation) {
    double room = (double)samples * (double)sequence;
    assert_true(fabs(tr_source_waste(source) - (room - (double)rows) / room) < 1e-12);
  }
  tr_batch_destroy(&batch);
}

static void every_document_is_used_exactly_once(void **state) {
  fixture *f = *state;
  static int uses[2][NDOC * 1000];
  int64_t start[NDOC + 1], total = write_numbered(f->path, 1, 200, start);
  const int64_t sequences[] = {1, 7, 64, 150, 199, 200, 1000};
  const double fractions[] = {0, 0.0001, 0.3};
  for (int packing = TR_PACK_DOCUMENTS; packing <= TR_PACK_FIRST_FIT; packing++) {
    for (size_t i = 0; i < sizeof sequences / sizeof sequences[0]; i++) {
      tr_source *source = open_packed(f->path, (tr_packing)packing, sequences[i], fractions[i % 3]);
      memset(uses, 0, sizeof uses);
      for (int v = 0; v < 2; v++) assert_part(source, v, (tr_packing)packing, sequences[i], start, uses[v]);
      int64_t cut = tr_source_tokens(source, 0); // validation is the last documents
      assert_int_equal(cut + tr_source_tokens(source, 1), total);
      for (int64_t d = 0; d < NDOC; d++) {
        for (int64_t t = start[d]; t < start[d + 1]; t++) {
          int pair = t + 1 < start[d + 1];
          assert_int_equal(uses[0][t], start[d] < cut ? pair : 0);
          assert_int_equal(uses[1][t], start[d] < cut ? 0 : pair);
        }
      }
      if (fractions[i % 3] > 0) assert_true(tr_source_samples(source, 1) >= 1);
      tr_source_close(source);
    }
  }
}

// First-fit decreasing as in a textbook. Returns the number of samples.
static int64_t plain_packer(const int64_t *start, int64_t sequence) {
  static int64_t length[NDOC * 1000], room[NDOC * 1000];
  int64_t n = 0, samples = 0;
  for (int d = 0; d < NDOC; d++) {
    for (int64_t pairs = start[d + 1] - start[d] - 1; pairs > 0; pairs -= sequence) {
      length[n++] = pairs < sequence ? pairs : sequence;
    }
  }
  for (int64_t wanted = sequence; wanted > 0; wanted--) {
    for (int64_t i = 0; i < n; i++) {
      if (length[i] != wanted) continue;
      int64_t s = 0;
      while (s < samples && room[s] < wanted) s++;
      if (s == samples) room[samples++] = sequence;
      room[s] -= wanted;
    }
  }
  return samples;
}

static void first_fit_is_as_good_as_the_plain_packer(void **state) {
  fixture *f = *state;
  const int64_t sequences[] = {1, 2, 10, 64, 100, 199, 1000, 5000};
  for (uint64_t round = 0; round < 4; round++) {
    char path[160];
    int64_t start[NDOC + 1];
    snprintf(path, sizeof path, "%s-%d", f->path, (int)round);
    write_numbered(path, round, 50 << round, start);
    for (size_t i = 0; i < sizeof sequences / sizeof sequences[0]; i++) {
      if (sequences[i] < 10 && round > 0) continue; // many pieces: the plain packer takes too long
      tr_source *source = open_packed(path, TR_PACK_FIRST_FIT, sequences[i], 0);
      int64_t samples = tr_source_samples(source, 0), rows = tr_source_targets(source, 0);
      assert_int_equal(samples, plain_packer(start, sequences[i]));
      int64_t least = (rows + sequences[i] - 1) / sequences[i];
      assert_true(samples >= least && samples <= least * 11 / 9 + 1);
      tr_source_close(source);
    }
  }
}

static void packing_is_the_same_every_time_and_for_every_seed_but_for_the_order(void **state) {
  fixture *f = *state;
  enum { SEQUENCE = 64 };
  int64_t start[NDOC + 1];
  const char *path = f->path;
  write_numbered(path, 5, 50, start);
  tr_source *a = open_packed(path, TR_PACK_FIRST_FIT, SEQUENCE, 0), *b = NULL;
  tr_source_options options = {
      .path = &path, .npath = 1, .sequence = SEQUENCE, .seed = 4, .packing = TR_PACK_FIRST_FIT, .vocab = VOCAB};
  assert_int_equal(tr_source_open(&options, &b), TR_OK);
  int64_t samples = tr_source_samples(a, 0), moved = 0;
  assert_int_equal(tr_source_samples(b, 0), samples);
  tr_batch one, two;
  assert_int_equal(tr_batch_create(1, SEQUENCE, &one), TR_OK);
  assert_int_equal(tr_batch_create(1, SEQUENCE, &two), TR_OK);
  for (int64_t g = 0; g < samples; g++) {
    size_t corpus;
    int64_t sample, other, h = 0;
    tr_source_locate(a, 0, g, &corpus, &sample);
    do tr_source_locate(b, 0, h, &corpus, &other); // the same sample under the other seed
    while (other != sample && ++h < samples);
    moved += h != g;
    assert_int_equal(tr_batch_fill(a, 0, &g, 1, &one), TR_OK);
    assert_int_equal(tr_batch_fill(b, 0, &h, 1, &two), TR_OK);
    assert_int_equal(one.rows, two.rows);
    assert_memory_equal(one.token, two.token, sizeof(int32_t) * (size_t)one.rows);
  }
  assert_true(moved > samples / 2);
  tr_batch_destroy(&two);
  tr_batch_destroy(&one);
  tr_source_close(b);
  tr_source_close(a);
}

static tr_status open_lengths(const fixture *f, int n, const int64_t *length, double fraction, tr_source **out) {
  static int count;
  char path[160];
  const char *name = path;
  snprintf(path, sizeof path, "%s-%d", f->path, count++);
  write_corpus(path, TR_CORPUS_MEGATRON, 300, length, (size_t)n);
  tr_source_options options = {
      .path = &name, .npath = 1, .sequence = 8, .val_fraction = fraction, .packing = TR_PACK_DOCUMENTS, .vocab = 300};
  return tr_source_open(&options, out);
}

// Documents of less than 2 tokens are worth nothing to either part.
static void validation_gets_a_document_that_can_be_predicted(void **state) {
  fixture *f = *state;
  const struct {
    int n;
    int64_t length[6], train, validation; // tokens; 0: refused
    double fraction;
  } cases[] = {
      {3, {5, 6, 7}, 11, 7, 0.01},     {3, {5, 6, 7}, 5, 13, 0.66},  {5, {5, 6, 7, 1, 0}, 11, 8, 0.2},
      {5, {1, 6, 7, 1, 0}, 7, 8, 0.5}, {4, {0, 1, 0, 7}, 0, 0, 0.5}, {1, {100}, 0, 0, 0.1},
      {2, {5, 1}, 0, 0, 0.5},          {3, {5, 6, 7}, 0, 0, 0.99},   {3, {1, 6, 7}, 0, 0, 0.5},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tr_source *source = NULL;
    tr_status status = open_lengths(f, cases[i].n, cases[i].length, cases[i].fraction, &source);
    if (cases[i].train == 0) {
      assert_failed(status, TR_ERR_DATA, "documents cannot be cut at val_fraction");
      continue;
    }
    assert_int_equal(status, TR_OK);
    assert_int_equal(tr_source_tokens(source, 0), cases[i].train);
    assert_int_equal(tr_source_tokens(source, 1), cases[i].validation);
    assert_true(tr_source_samples(source, 0) > 0 && tr_source_samples(source, 1) > 0);
    tr_source_close(source);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(every_document_is_used_exactly_once),
      TEST(first_fit_is_as_good_as_the_plain_packer),
      TEST(packing_is_the_same_every_time_and_for_every_seed_but_for_the_order),
      TEST(validation_gets_a_document_that_can_be_predicted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
