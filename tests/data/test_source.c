// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
//
// Streams: every pair of tokens of the training part is in a sample exactly once per epoch, the validation part is never
// trained on, batches hold samples end to end without padding, documents are respected when asked for, and files and requests
// that cannot work give errors that say what would.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/token_files.h"
#include <math.h>

// Byte i of a text tells where it is, modulo a prime below 256.
static unsigned char byte_at(int64_t i) { return (unsigned char)(i % 251); }

static void write_text(const char *path, int64_t n) {
  unsigned char *text = malloc((size_t)n + 1);
  assert_non_null(text);
  for (int64_t i = 0; i < n; i++) text[i] = byte_at(i);
  write_bytes(path, text, (size_t)n);
  free(text);
}

static tr_source_options text_options(const char *const *path, int64_t sequence, double fraction) {
  return (tr_source_options){.path = path,
                             .npath = 1,
                             .sequence = sequence,
                             .val_fraction = fraction,
                             .seed = 7,
                             .text = 1,
                             .vocab = 256,
                             .end = -1};
}

static tr_source *open_text(const fixture *f, int64_t nbyte, int64_t sequence, double fraction) {
  const char *path = f->path;
  tr_source *source = NULL;
  write_text(path, nbyte);
  tr_source_options options = text_options(&path, sequence, fraction);
  tr_status status = tr_source_open(&options, &source);
  if (status != TR_OK) fail_msg("%s", tr_status_text());
  return source;
}

static void assert_refused(const tr_source_options *options, tr_status status, const char *words) {
  tr_source *source = NULL;
  assert_failed(tr_source_open(options, &source), status, words);
  assert_null(source);
}

static void samples_are_counted_with_a_short_last_one(void **state) {
  fixture *f = *state;
  const struct {
    int64_t nbyte, sequence, samples;
  } cases[] = {
      {2, 1, 1}, {2, 8, 1}, {3, 1, 2}, {9, 8, 1}, {10, 8, 2}, {17, 8, 2}, {18, 8, 3}, {100, 7, 15}, {1000, 1, 999},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tr_source *source = open_text(f, cases[i].nbyte, cases[i].sequence, 0);
    int64_t samples = tr_source_samples(source, 0), rows = 0;
    assert_int_equal(samples, cases[i].samples);
    assert_int_equal(tr_source_tokens(source, 0), cases[i].nbyte);
    assert_int_equal(tr_source_targets(source, 0), cases[i].nbyte - 1);
    assert_int_equal(tr_source_tokens(source, 1), 0);
    assert_int_equal(tr_source_targets(source, 1), 0);
    assert_int_equal(tr_source_samples(source, 1), 0);
    for (int64_t g = 0; g < samples; g++) {
      int64_t length = tr_source_length(source, 0, g);
      assert_in_range(length, 1, cases[i].sequence);
      rows += length;
    }
    assert_int_equal(rows, cases[i].nbyte - 1);
    double room = (double)(samples * cases[i].sequence);
    assert_true(fabs(tr_source_waste(source) - (room - (double)rows) / room) < 1e-12);
    tr_source_close(source);
  }
}

static void options_that_cannot_work_are_refused(void **state) {
  fixture *f = *state;
  const char *path = f->path, *empty = "", *null = NULL;
  write_text(path, 100);
  tr_source_options good = text_options(&path, 8, 0), o;
  o = good, o.path = &empty;
  assert_refused(&o, TR_ERR_CONFIG, "data.path is empty");
  o = good, o.path = &null;
  assert_refused(&o, TR_ERR_CONFIG, "data.path is empty");
  o = good, o.npath = 0;
  assert_refused(&o, TR_ERR_CONFIG, "names 0 files");
  o = good, o.npath = 1 << 20;
  assert_refused(&o, TR_ERR_CONFIG, "names 1048576 files");
  o = good, o.sequence = 0;
  assert_refused(&o, TR_ERR_CONFIG, "sequence 0");
  o = good, o.sequence = (int64_t)1 << 31;
  assert_refused(&o, TR_ERR_CONFIG, "sequence 2147483648");
  const double fractions[] = {1, -0.1, (double)NAN, HUGE_VAL}, weights[] = {0, -1, (double)NAN, HUGE_VAL};
  for (int i = 0; i < 4; i++) {
    o = good, o.val_fraction = fractions[i];
    assert_refused(&o, TR_ERR_CONFIG, "val_fraction");
    o = good, o.weight = &weights[i];
    assert_refused(&o, TR_ERR_CONFIG, "the weight");
  }
}

static void bad_files_are_refused_by_name(void **state) {
  fixture *f = *state;
  char val[160];
  const char *path = f->path;
  tr_source_options o = text_options(&path, 8, 0);
  assert_refused(&o, TR_ERR_DATA, f->path); // missing
  write_text(path, 0);
  assert_refused(&o, TR_ERR_DATA, "is empty");
  write_text(path, 1);
  assert_refused(&o, TR_ERR_DATA, "at least 2 tokens");
  write_text(path, 100);
  snprintf(val, sizeof val, "%s/val", f->folder);
  o.val_path = val;
  assert_refused(&o, TR_ERR_DATA, val);
  write_text(val, 1);
  assert_refused(&o, TR_ERR_DATA, val);
  assert_refused(&o, TR_ERR_DATA, "at least 2 tokens");
  o.text = 0;
  assert_refused(&o, TR_ERR_DATA, "needs tokenizing");
}

// Validation gets the fraction, but at least sequence + 1 tokens, and leaves at least as many.
static void validation_is_cut_from_the_end(void **state) {
  fixture *f = *state;
  tr_source *source = open_text(f, 1000, 8, 0.1);
  assert_int_equal(tr_source_tokens(source, 0), 900);
  assert_int_equal(tr_source_tokens(source, 1), 100);
  assert_int_equal(tr_source_samples(source, 1), 13);
  tr_source_close(source);
  source = open_text(f, 1000, 8, 0.0001);
  assert_int_equal(tr_source_tokens(source, 0), 991);
  assert_int_equal(tr_source_tokens(source, 1), 9);
  tr_source_close(source);
  source = open_text(f, 18, 8, 0.5); // the smallest that can be cut
  assert_int_equal(tr_source_tokens(source, 0), 9);
  assert_int_equal(tr_source_tokens(source, 1), 9);
  tr_source_close(source);
}

static void files_too_short_to_cut_are_refused_with_what_would_do(void **state) {
  fixture *f = *state;
  const char *path = f->path;
  tr_source_options o = text_options(&path, 8, 0.1);
  write_text(f->path, 17);
  assert_refused(&o, TR_ERR_DATA, "17 tokens");
  assert_refused(&o, TR_ERR_DATA, "18 tokens in all");
  o.val_fraction = 0.75;
  write_text(f->path, 33);
  assert_refused(&o, TR_ERR_DATA, "36 tokens in all");
  tr_source *source = open_text(f, 36, 8, 0.75); // as the message said
  assert_int_equal(tr_source_tokens(source, 0), 9);
  tr_source_close(source);
}

// Which window a global index means, when there is one corpus: the plain order.
static int64_t expected_window(const tr_source *source, int validation, int64_t index) {
  if (validation) return index;
  int64_t samples = tr_source_samples(source, 0);
  return (int64_t)tr_permute(7, (uint64_t)(index / samples), (uint64_t)samples, (uint64_t)(index % samples));
}

// Add up how often each place of a part is a token, checking every row against the text. `base`: where the part starts.
static void count_pairs(const tr_source *source, int validation, int64_t sequence, int64_t base, const int64_t *index,
                        int count, tr_batch *batch, int *uses) {
  assert_int_equal(tr_batch_fill(source, validation, index, count, batch), TR_OK);
  assert_int_equal(batch->nsample, count);
  assert_int_equal(batch->nseq, count);
  int64_t r = 0, ntoken = tr_source_tokens(source, validation);
  for (int q = 0; q < count; q++) {
    int64_t window = expected_window(source, validation, index[q]), place = window * sequence, sample;
    size_t corpus;
    tr_source_locate(source, validation, index[q], &corpus, &sample);
    assert_int_equal(corpus, 0);
    assert_int_equal(sample, window);
    assert_int_equal(batch->start[q], r);
    assert_int_equal(tr_source_length(source, validation, index[q]), batch->start[q + 1] - r);
    for (int64_t i = 0; r < batch->start[q + 1]; i++, r++, place++) {
      assert_int_equal(batch->position[r], i);
      assert_int_equal(batch->sample[r], index[q]);
      assert_int_equal(batch->token[r], byte_at(base + place));
      assert_int_equal(batch->target[r], byte_at(base + place + 1));
      assert_true(place + 1 < ntoken);
      uses[place]++;
    }
  }
  assert_int_equal(batch->rows, r);
  assert_int_equal(batch->valid, r);
}

static void every_pair_is_trained_on_once_per_epoch(void **state) {
  fixture *f = *state;
  enum { NBYTE = 1234, SEQUENCE = 16, EPOCHS = 3, N = 5 };
  tr_source *source = open_text(f, NBYTE, SEQUENCE, 0.1);
  int64_t ntrain = tr_source_tokens(source, 0), samples = tr_source_samples(source, 0), index[N];
  tr_batch batch;
  int uses[NBYTE] = {0}, count;
  assert_int_equal(tr_batch_create(N, SEQUENCE, &batch), TR_OK);
  for (int64_t g = 0; g < samples * EPOCHS; g += count) { // batches go over the ends of epochs
    for (count = 0; count < N && g + count < samples * EPOCHS; count++) index[count] = g + count;
    count_pairs(source, 0, SEQUENCE, 0, index, count, &batch, uses);
  }
  for (int64_t i = 0; i < NBYTE; i++) assert_int_equal(uses[i], i < ntrain - 1 ? EPOCHS : 0);
  tr_batch_destroy(&batch);
  tr_source_close(source);
}

static void validation_is_read_in_file_order_and_ends(void **state) {
  fixture *f = *state;
  enum { NBYTE = 1234, SEQUENCE = 16 };
  tr_source *source = open_text(f, NBYTE, SEQUENCE, 0.1);
  int64_t ntrain = tr_source_tokens(source, 0), nval = tr_source_tokens(source, 1),
          samples = tr_source_samples(source, 1);
  tr_batch batch;
  int uses[NBYTE] = {0};
  assert_int_equal(ntrain + nval, NBYTE);
  assert_int_equal(tr_batch_create(1, SEQUENCE, &batch), TR_OK);
  for (int64_t g = 0; g < samples; g++) count_pairs(source, 1, SEQUENCE, ntrain, &g, 1, &batch, uses);
  for (int64_t i = 0; i < nval; i++) assert_int_equal(uses[i], i < nval - 1 ? 1 : 0);
  assert_failed(tr_batch_fill(source, 1, &samples, 1, &batch), TR_ERR_USAGE, "validation");
  assert_int_equal(tr_batch_fill(source, 1, NULL, 0, &batch), TR_OK); // a rank beyond the end
  tr_batch_destroy(&batch);
  tr_source_close(source);
}

static void a_short_last_sample_has_fewer_rows(void **state) {
  fixture *f = *state;
  enum { SEQUENCE = 8 };
  char val[160];
  const char *path = f->path;
  tr_source *source = NULL;
  snprintf(val, sizeof val, "%s/val", f->folder);
  write_text(path, 12);
  write_text(val, 12);
  tr_source_options options = text_options(&path, SEQUENCE, 0.5);
  options.val_path = val; // then nothing is cut off
  assert_int_equal(tr_source_open(&options, &source), TR_OK);
  assert_int_equal(tr_source_tokens(source, 0), 12);
  assert_int_equal(tr_source_tokens(source, 1), 12);
  assert_int_equal(tr_source_samples(source, 1), 2);
  tr_batch batch;
  const int64_t index[] = {1, 0};
  assert_int_equal(tr_batch_create(2, SEQUENCE, &batch), TR_OK);
  assert_int_equal(tr_batch_fill(source, 1, index, 2, &batch), TR_OK);
  const int32_t token[] = {8, 9, 10, 0, 1, 2, 3, 4, 5, 6, 7}, position[] = {0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 7};
  assert_int_equal(batch.rows, 11);
  assert_int_equal(batch.nseq, 2);
  assert_int_equal(batch.start[1], 3);
  assert_int_equal(batch.start[2], 11);
  assert_memory_equal(batch.token, token, sizeof token);
  assert_memory_equal(batch.position, position, sizeof position);
  tr_batch_destroy(&batch);
  tr_source_close(source);
}

static void samples_do_not_depend_on_how_they_are_asked_for(void **state) {
  fixture *f = *state;
  enum { SEQUENCE = 8, N = 12 };
  tr_source *source = open_text(f, 60, SEQUENCE, 0); // 8 samples: the range crosses an epoch
  tr_batch all, one;
  int64_t index[N];
  for (int g = 0; g < N; g++) index[g] = (g * 5 + 3) % N;
  assert_int_equal(tr_batch_create(N, SEQUENCE, &all), TR_OK);
  assert_int_equal(tr_batch_create(1, SEQUENCE, &one), TR_OK);
  assert_int_equal(tr_batch_fill(source, 0, index, N, &all), TR_OK);
  for (int q = 0; q < N; q++) {
    assert_int_equal(tr_batch_fill(source, 0, &index[q], 1, &one), TR_OK);
    assert_int_equal(one.rows, all.start[q + 1] - all.start[q]);
    assert_memory_equal(one.token, all.token + all.start[q], sizeof(int32_t) * (size_t)one.rows);
    assert_memory_equal(one.target, all.target + all.start[q], sizeof(int32_t) * (size_t)one.rows);
  }
  tr_batch_destroy(&one);
  tr_batch_destroy(&all);
  tr_source_close(source);
}

static void seeds_and_epochs_change_the_order(void **state) {
  fixture *f = *state;
  enum { N = 200 };
  const char *path = f->path;
  tr_source *a = open_text(f, N + 1, 1, 0), *b = NULL;
  tr_source_options options = text_options(&path, 1, 0);
  options.seed = 8;
  assert_int_equal(tr_source_open(&options, &b), TR_OK);
  int64_t seed = 0, epoch = 0, sample[3];
  size_t corpus;
  for (int64_t g = 0; g < N; g++) {
    tr_source_locate(a, 0, g, &corpus, &sample[0]);
    tr_source_locate(a, 0, g + N, &corpus, &sample[1]);
    tr_source_locate(b, 0, g, &corpus, &sample[2]);
    epoch += sample[0] == sample[1];
    seed += sample[0] == sample[2];
  }
  assert_in_range(epoch, 0, 10); // unrelated orders agree about once
  assert_in_range(seed, 0, 10);
  tr_source_close(b);
  tr_source_close(a);
}

static void empty_batches_are_valid(void **state) {
  fixture *f = *state;
  tr_source *source = open_text(f, 100, 8, 0);
  tr_batch batch;
  assert_int_equal(tr_batch_create(0, 8, &batch), TR_OK); // a rank that never has any
  assert_int_equal(tr_batch_fill(source, 0, NULL, 0, &batch), TR_OK);
  assert_int_equal(batch.nsample, 0);
  assert_int_equal(batch.nseq, 0);
  assert_int_equal(batch.rows, 0);
  assert_int_equal(batch.valid, 0);
  assert_int_equal(batch.start[0], 0);
  assert_int_equal(tr_batch_fill(source, 1, NULL, 0, &batch), TR_OK); // no validation part either
  tr_batch_destroy(&batch);
  tr_batch_destroy(&batch); // harmless
  tr_source_close(source);
  tr_source_close(NULL);
}

static void requests_that_do_not_fit_are_refused(void **state) {
  fixture *f = *state;
  tr_source *source = open_text(f, 100, 8, 0);
  tr_batch batch, narrow;
  const int64_t good[] = {0, 1, 2}, negative[] = {0, -1};
  assert_int_equal(tr_batch_create(2, 8, &batch), TR_OK);
  assert_int_equal(tr_batch_create(2, 7, &narrow), TR_OK);
  assert_failed(tr_batch_fill(source, 0, good, 3, &batch), TR_ERR_USAGE, "3 samples do not fit a batch made for 2");
  assert_failed(tr_batch_fill(source, 0, good, -1, &batch), TR_ERR_USAGE, "-1 samples");
  assert_failed(tr_batch_fill(source, 0, negative, 2, &batch), TR_ERR_USAGE, "sample -1 does not exist");
  assert_failed(tr_batch_fill(source, 1, good, 1, &batch), TR_ERR_USAGE, "does not exist");
  assert_failed(tr_batch_fill(source, 0, good, 2, &narrow), TR_ERR_USAGE, "does not fit");
  const int64_t last = INT64_MAX - 1;
  assert_int_equal(tr_batch_fill(source, 0, &last, 1, &batch), TR_OK);
  assert_int_equal(tr_batch_create(-1, 8, &narrow), TR_ERR_CONFIG);
  assert_int_equal(tr_batch_create(1, 0, &narrow), TR_ERR_CONFIG);
  assert_int_equal(tr_batch_create(1 << 20, 1 << 20, &narrow), TR_ERR_CONFIG);
  tr_batch_destroy(&narrow);
  tr_batch_destroy(&batch);
  tr_source_close(source);
}

static void a_shrunken_file_is_an_error(void **state) {
  fixture *f = *state;
  tr_source *source = open_text(f, 100000, 8, 0);
  tr_batch batch;
  assert_int_equal(tr_batch_create(2, 8, &batch), TR_OK);
  assert_int_equal(truncate(f->path, 1), 0);
  for (int64_t g = 0; g < 100; g++) {
    const int64_t index[] = {g, g + 1};
    assert_failed(tr_batch_fill(source, 0, index, 2, &batch), TR_ERR_DATA, "file shrank while in use");
  }
  tr_batch_destroy(&batch);
  tr_source_close(source);
}

enum { NDOC = 300, SPACE = 65536 };

// Documents of random lengths, some empty; start[NDOC] is the end. Returns a source over them.
static tr_source *open_documents(const fixture *f, uint64_t seed, int64_t sequence, double fraction, int64_t *start) {
  char name[160];
  const char *path = f->path;
  tr_source *source = NULL;
  int64_t length[NDOC];
  start[0] = 0;
  for (int d = 0; d < NDOC; d++) {
    length[d] = (int64_t)(next_random(&seed) % 20);
    start[d + 1] = start[d] + length[d];
  }
  snprintf(name, sizeof name, "%s.bin", f->path);
  unlink(name);
  snprintf(name, sizeof name, "%s.idx", f->path);
  unlink(name);
  write_corpus(f->path, TR_CORPUS_MEGATRON, SPACE, length, NDOC);
  tr_source_options options = {.path = &path,
                               .npath = 1,
                               .sequence = sequence,
                               .val_fraction = fraction,
                               .seed = 7,
                               .documents = 1,
                               .vocab = SPACE};
  tr_status status = tr_source_open(&options, &source);
  if (status != TR_OK) fail_msg("%s", tr_status_text());
  return source;
}

static int starts_document(const int64_t *start, int64_t place) {
  for (int d = 0; d < NDOC; d++) {
    if (start[d] == place) return 1;
  }
  return 0;
}

// Row r of a batch is the token at `place`: is everything about it as the documents say?
static void assert_row(const int64_t *start, int64_t place, int64_t first, int64_t r, const tr_batch *b, int *seq) {
  if (place == first || starts_document(start, place)) {
    assert_int_equal(b->start[*seq], r);
    (*seq)++;
  }
  assert_int_equal(b->position[r], r - b->start[*seq - 1]);
  assert_int_equal(b->token[r], token_at(place, SPACE));
  assert_int_equal(b->target[r], starts_document(start, place + 1) ? -1 : token_at(place + 1, SPACE));
}

static void a_stream_is_cut_at_document_bounds(void **state) {
  fixture *f = *state;
  for (int64_t sequence = 1; sequence <= 64; sequence *= 4) {
    int64_t start[NDOC + 1], targets[2] = {0}, base = 0;
    tr_source *source = open_documents(f, (uint64_t)sequence, sequence, 0.2, start);
    tr_batch batch;
    assert_int_equal(tr_batch_create(1, sequence, &batch), TR_OK);
    for (int validation = 0; validation < 2; validation++) {
      int64_t rows = 0;
      for (int64_t g = 0; g < tr_source_samples(source, validation); g++) {
        int64_t first = base + expected_window(source, validation, g) * sequence, valid = 0;
        int seq = 0;
        assert_int_equal(tr_batch_fill(source, validation, &g, 1, &batch), TR_OK);
        for (int64_t r = 0; r < batch.rows; r++) {
          assert_row(start, first + r, first, r, &batch, &seq);
          valid += batch.target[r] >= 0;
        }
        assert_int_equal(batch.nseq, seq);
        assert_int_equal(batch.start[seq], batch.rows);
        assert_int_equal(batch.valid, valid);
        assert_int_equal(tr_source_length(source, validation, g), batch.rows);
        targets[validation] += valid;
        rows += batch.rows;
      }
      assert_int_equal(rows, tr_source_tokens(source, validation) - 1);
      assert_int_equal(targets[validation], tr_source_targets(source, validation));
      base = tr_source_tokens(source, 0);
    }
    tr_batch_destroy(&batch);
    tr_source_close(source);
  }
}

static void a_stream_of_single_tokens_is_refused(void **state) {
  fixture *f = *state;
  const char *path = f->path;
  const int64_t length[] = {1, 1, 0, 1, 1};
  write_corpus(path, TR_CORPUS_MEGATRON, SPACE, length, 5);
  tr_source_options options = {.path = &path, .npath = 1, .sequence = 4, .documents = 1};
  assert_refused(&options, TR_ERR_DATA, "none of its documents has at least 2 tokens");
  options.packing = TR_PACK_FIRST_FIT;
  assert_refused(&options, TR_ERR_DATA, "none of its documents has at least 2 tokens");
}

static uint64_t hash_of(const char *const *path, size_t npath, int64_t sequence, tr_packing packing) {
  tr_source *source = NULL;
  tr_source_options options = text_options(path, sequence, 0);
  options.npath = npath;
  options.packing = packing;
  assert_int_equal(tr_source_open(&options, &source), TR_OK);
  uint64_t hash = tr_source_hash(source);
  assert_int_equal(tr_source_corpora(source), npath);
  for (size_t i = 0; i < npath; i++) assert_string_equal(tr_corpus_path(tr_source_corpus(source, i)), path[i]);
  tr_source_close(source);
  return hash;
}

static void hash_is_of_contents_and_their_order(void **state) {
  fixture *f = *state;
  char name[3][160];
  for (int i = 0; i < 3; i++) {
    snprintf(name[i], sizeof name[i], "%s-%d", f->path, i);
    write_text(name[i], 100 + (i < 2 ? 0 : 1)); // the first two are equal
  }
  const char *ac[] = {name[0], name[2]}, *ca[] = {name[2], name[0]}, *bc[] = {name[1], name[2]},
             *aa[] = {name[0], name[0]};
  uint64_t hash = hash_of(ac, 2, 8, TR_PACK_STREAM);
  assert_true(hash != hash_of(ca, 2, 8, TR_PACK_STREAM));
  assert_true(hash == hash_of(bc, 2, 5, TR_PACK_DOCUMENTS));
  assert_true(hash != hash_of(ac, 1, 8, TR_PACK_STREAM));
  assert_true(hash != hash_of(aa, 2, 8, TR_PACK_STREAM));
  assert_true(hash_of(aa, 1, 8, TR_PACK_STREAM) != hash_of(aa, 2, 8, TR_PACK_STREAM));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(samples_are_counted_with_a_short_last_one),
      TEST(options_that_cannot_work_are_refused),
      TEST(bad_files_are_refused_by_name),
      TEST(validation_is_cut_from_the_end),
      TEST(files_too_short_to_cut_are_refused_with_what_would_do),
      TEST(every_pair_is_trained_on_once_per_epoch),
      TEST(validation_is_read_in_file_order_and_ends),
      TEST(a_short_last_sample_has_fewer_rows),
      TEST(samples_do_not_depend_on_how_they_are_asked_for),
      TEST(seeds_and_epochs_change_the_order),
      TEST(empty_batches_are_valid),
      TEST(requests_that_do_not_fit_are_refused),
      TEST(a_shrunken_file_is_an_error),
      TEST(a_stream_is_cut_at_document_bounds),
      TEST(a_stream_of_single_tokens_is_refused),
      TEST(hash_is_of_contents_and_their_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
