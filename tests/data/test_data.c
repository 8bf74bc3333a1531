// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
//
// Tokenizers, sources and batches: every token pair of the training part is a sample exactly once per epoch,
// the validation part is never trained on, short samples are padded, and bad files and requests give errors
// that name them instead of crashes or endless waits.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/file.h"
#include "trireme/data/data.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct fixture {
  char folder[64];
  char path[128];
  tr_tokenizer *tokenizer;
} fixture;

static int setup(void **state) {
  fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  strcpy(f->folder, "/tmp/trireme-data-XXXXXX");
  assert_non_null(mkdtemp(f->folder));
  snprintf(f->path, sizeof f->path, "%s/text", f->folder);
  assert_int_equal(tr_tokenizer_open("byte", &f->tokenizer), TR_OK);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  fixture *f = *state;
  tr_tokenizer_close(f->tokenizer);
  tr_status status = tr_file_remove_tree(f->folder);
  free(f);
  return status;
}

// Byte i of the file tells where it is, modulo a prime below 256.
static unsigned char byte_at(int64_t i) { return (unsigned char)(i % 251); }

static void write_file(const char *path, int64_t n) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  for (int64_t i = 0; i < n; i++) fputc(byte_at(i), file);
  assert_int_equal(fclose(file), 0);
}

static tr_source *open_source(const fixture *f, int64_t nbyte, int64_t sequence, double fraction) {
  tr_source *source = NULL;
  write_file(f->path, nbyte);
  tr_source_options options = {.path = f->path, .val_fraction = fraction, .sequence = sequence, .seed = 7};
  assert_int_equal(tr_source_open(f->tokenizer, &options, &source), TR_OK);
  return source;
}

static void assert_refused(const fixture *f, const tr_source_options *options, tr_status status, const char *text) {
  tr_source *source = NULL;
  tr_status_clear();
  assert_int_equal(tr_source_open(f->tokenizer, options, &source), status);
  assert_null(source);
  if (!strstr(tr_status_text(), text)) fail_msg("'%s' does not say '%s'", tr_status_text(), text);
}

static void byte_tokenizer_round_trips_every_byte(void **state) {
  fixture *f = *state;
  char text[256], out[64];
  int32_t token[256];
  size_t n = 0;
  for (int i = 0; i < 256; i++) text[i] = (char)i;
  assert_string_equal(tr_tokenizer_name(f->tokenizer), "byte");
  assert_int_equal(tr_tokenizer_vocab(f->tokenizer), 256);
  assert_int_equal(tr_tokenizer_encode(f->tokenizer, text, sizeof text, token, &n), TR_OK);
  assert_int_equal(n, 256);
  for (int i = 0; i < 256; i++) {
    assert_int_equal(token[i], i);
    assert_int_equal(tr_tokenizer_decode(f->tokenizer, token[i], out), 1);
    assert_int_equal((unsigned char)out[0], i);
  }
  assert_int_equal(tr_tokenizer_encode(f->tokenizer, text, 0, token, &n), TR_OK);
  assert_int_equal(n, 0);
}

static void unknown_tokens_and_tokenizers_are_refused(void **state) {
  fixture *f = *state;
  char out[64];
  tr_tokenizer *none = NULL;
  assert_int_equal(tr_tokenizer_decode(f->tokenizer, -1, out), 0);
  assert_int_equal(tr_tokenizer_decode(f->tokenizer, 256, out), 0);
  assert_int_equal(tr_tokenizer_open("bytes", &none), TR_ERR_CONFIG);
  assert_null(none);
  assert_non_null(strstr(tr_status_text(), "'bytes'"));
  assert_non_null(strstr(tr_status_text(), "there is: byte"));
}

static void samples_are_counted_with_a_short_last_one(void **state) {
  fixture *f = *state;
  const struct {
    int64_t nbyte, sequence, samples;
  } cases[] = {
      {2, 1, 1}, {2, 8, 1}, {3, 1, 2}, {9, 8, 1}, {10, 8, 2}, {17, 8, 2}, {18, 8, 3}, {100, 7, 15}, {1000, 1, 999},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tr_source *source = open_source(f, cases[i].nbyte, cases[i].sequence, 0);
    assert_int_equal(tr_source_tokens(source, 0), cases[i].nbyte);
    assert_int_equal(tr_source_samples(source, 0), cases[i].samples);
    assert_int_equal(tr_source_tokens(source, 1), 0);
    assert_int_equal(tr_source_samples(source, 1), 0);
    tr_source_close(source);
  }
}

static void options_that_cannot_work_are_refused(void **state) {
  fixture *f = *state;
  write_file(f->path, 100);
  tr_source_options good = {.path = f->path, .sequence = 8}, o;
  o = good, o.path = "";
  assert_refused(f, &o, TR_ERR_CONFIG, "data.path");
  o = good, o.path = NULL;
  assert_refused(f, &o, TR_ERR_CONFIG, "data.path");
  o = good, o.sequence = 0;
  assert_refused(f, &o, TR_ERR_CONFIG, "sequence 0");
  o = good, o.sequence = (int64_t)1 << 31;
  assert_refused(f, &o, TR_ERR_CONFIG, "sequence 2147483648");
  o = good, o.val_fraction = 1;
  assert_refused(f, &o, TR_ERR_CONFIG, "val_fraction 1");
  o = good, o.val_fraction = -0.1;
  assert_refused(f, &o, TR_ERR_CONFIG, "val_fraction -0.1");
  o = good, o.val_fraction = (double)NAN;
  assert_refused(f, &o, TR_ERR_CONFIG, "val_fraction");
}

static void bad_files_are_refused_by_name(void **state) {
  fixture *f = *state;
  tr_source_options o = {.path = f->path, .sequence = 8};
  assert_refused(f, &o, TR_ERR_DATA, f->path); // missing
  assert_refused(f, &o, TR_ERR_DATA, "No such file");
  write_file(f->path, 0);
  assert_refused(f, &o, TR_ERR_DATA, "is empty");
  write_file(f->path, 1);
  assert_refused(f, &o, TR_ERR_DATA, "at least 2 tokens");
  o.path = f->folder;
  assert_refused(f, &o, TR_ERR_DATA, "is a folder");
  o.path = "/dev/null";
  assert_refused(f, &o, TR_ERR_DATA, "not a regular file");
  char fifo[160];
  snprintf(fifo, sizeof fifo, "%s/fifo", f->folder);
  assert_int_equal(mkfifo(fifo, 0600), 0);
  o.path = fifo;
  assert_refused(f, &o, TR_ERR_DATA, "not a regular file"); // and does not wait for a writer
  char below[160];
  snprintf(below, sizeof below, "%s/more", f->path);
  o.path = below;
  assert_refused(f, &o, TR_ERR_DATA, "Not a directory");
}

static void unreadable_files_are_refused(void **state) {
  fixture *f = *state;
  write_file(f->path, 100);
  assert_int_equal(chmod(f->path, 0), 0);
  uid_t user = geteuid();
  if (user == 0 && seteuid(65534) != 0) { // root may read everything, so be nobody for a moment
    print_message("skipped: this user may read everything and cannot become another\n");
    skip();
  }
  tr_source_options o = {.path = f->path, .sequence = 8};
  assert_refused(f, &o, TR_ERR_DATA, "Permission denied");
  assert_int_equal(seteuid(user), 0);
}

static void bad_validation_files_are_refused_by_name(void **state) {
  fixture *f = *state;
  char val[160];
  write_file(f->path, 100);
  snprintf(val, sizeof val, "%s/val", f->folder);
  tr_source_options o = {.path = f->path, .val_path = val, .sequence = 8};
  assert_refused(f, &o, TR_ERR_DATA, val);
  write_file(val, 1);
  assert_refused(f, &o, TR_ERR_DATA, val);
  assert_refused(f, &o, TR_ERR_DATA, "at least 2 tokens");
}

// Validation gets the fraction, but at least sequence + 1 tokens, and leaves at least as many.
static void validation_is_cut_from_the_end(void **state) {
  fixture *f = *state;
  tr_source *source = open_source(f, 1000, 8, 0.1);
  assert_int_equal(tr_source_tokens(source, 0), 900);
  assert_int_equal(tr_source_tokens(source, 1), 100);
  assert_int_equal(tr_source_samples(source, 1), 13);
  tr_source_close(source);
  source = open_source(f, 1000, 8, 0.0001);
  assert_int_equal(tr_source_tokens(source, 0), 991);
  assert_int_equal(tr_source_tokens(source, 1), 9);
  tr_source_close(source);
  source = open_source(f, 18, 8, 0.5); // the smallest that can be cut
  assert_int_equal(tr_source_tokens(source, 0), 9);
  assert_int_equal(tr_source_tokens(source, 1), 9);
  tr_source_close(source);
}

static void files_too_short_to_cut_are_refused_with_what_would_do(void **state) {
  fixture *f = *state;
  tr_source_options o = {.path = f->path, .val_fraction = 0.1, .sequence = 8};
  write_file(f->path, 17);
  assert_refused(f, &o, TR_ERR_DATA, "17 tokens");
  assert_refused(f, &o, TR_ERR_DATA, "18 tokens in all");
  o.val_fraction = 0.75;
  write_file(f->path, 33);
  assert_refused(f, &o, TR_ERR_DATA, "36 tokens in all");
  tr_source *source = open_source(f, 36, 8, 0.75); // as the message said
  assert_int_equal(tr_source_tokens(source, 0), 9);
  tr_source_close(source);
}

static int64_t expected_window(const tr_source *source, int validation, int64_t index) {
  if (validation) return index;
  int64_t samples = tr_source_samples(source, 0);
  return (int64_t)tr_permute(7, (uint64_t)(index / samples), (uint64_t)samples, (uint64_t)(index % samples));
}

// Add up how often each place of a part is a token, checking every row against the file. `base`:
// where the part starts.
static void count_pairs(const tr_source *source, int validation, int64_t sequence, int64_t base, int64_t first,
                        int nseq, tr_batch *batch, int *uses) {
  assert_int_equal(tr_batch_fill(source, validation, first, nseq, batch), TR_OK);
  assert_int_equal(batch->nseq, nseq);
  assert_int_equal(batch->rows, nseq * sequence);
  int64_t valid = 0, ntoken = tr_source_tokens(source, validation);
  for (int64_t r = 0; r < batch->rows; r++) {
    assert_int_equal(batch->position[r], r % sequence);
    assert_int_equal(batch->sample[r], first + r / sequence);
    if (batch->target[r] < 0) {
      assert_int_equal(batch->target[r], -1);
      assert_int_equal(batch->token[r], 0);
      continue;
    }
    valid++;
    assert_int_equal(batch->target[r], (batch->token[r] + 1) % 251);
    int64_t window = expected_window(source, validation, first + r / sequence);
    int64_t place = window * sequence + r % sequence;
    assert_true(place + 1 < ntoken);
    assert_int_equal(batch->token[r], byte_at(base + place));
    uses[place]++;
  }
  assert_int_equal(batch->valid, valid);
  for (int q = 0; q <= nseq; q++) assert_int_equal(batch->start[q], q * sequence);
}

static void every_pair_is_trained_on_once_per_epoch(void **state) {
  fixture *f = *state;
  enum { NBYTE = 1234, SEQUENCE = 16, EPOCHS = 3 };
  tr_source *source = open_source(f, NBYTE, SEQUENCE, 0.1);
  int64_t ntrain = tr_source_tokens(source, 0), samples = tr_source_samples(source, 0);
  tr_batch batch;
  int uses[NBYTE] = {0};
  assert_int_equal(tr_batch_create(5, SEQUENCE, &batch), TR_OK);
  for (int64_t first = 0; first < samples * EPOCHS;) { // batches go over the ends of epochs
    int64_t left = samples * EPOCHS - first;
    int nseq = left < 5 ? (int)left : 5;
    count_pairs(source, 0, SEQUENCE, 0, first, nseq, &batch, uses);
    first += nseq;
  }
  for (int64_t i = 0; i < NBYTE; i++) assert_int_equal(uses[i], i < ntrain - 1 ? EPOCHS : 0);
  tr_batch_destroy(&batch);
  tr_source_close(source);
}

static void validation_is_read_in_file_order_and_ends(void **state) {
  fixture *f = *state;
  enum { NBYTE = 1234, SEQUENCE = 16 };
  tr_source *source = open_source(f, NBYTE, SEQUENCE, 0.1);
  int64_t ntrain = tr_source_tokens(source, 0), nval = tr_source_tokens(source, 1),
          samples = tr_source_samples(source, 1);
  tr_batch batch;
  int uses[NBYTE] = {0};
  assert_int_equal(ntrain + nval, NBYTE);
  assert_int_equal(tr_batch_create(1, SEQUENCE, &batch), TR_OK);
  for (int64_t g = 0; g < samples; g++) count_pairs(source, 1, SEQUENCE, ntrain, g, 1, &batch, uses);
  for (int64_t i = 0; i < nval; i++) assert_int_equal(uses[i], i < nval - 1 ? 1 : 0);
  assert_int_equal(tr_batch_fill(source, 1, samples, 1, &batch), TR_ERR_USAGE);
  assert_non_null(strstr(tr_status_text(), "validation"));
  assert_int_equal(tr_batch_fill(source, 1, samples, 0, &batch), TR_OK); // a rank beyond the end
  tr_batch_destroy(&batch);
  tr_source_close(source);
}

static void short_last_sample_is_padded(void **state) {
  fixture *f = *state;
  enum { SEQUENCE = 8 };
  tr_source *source = open_source(f, 8 + 3 + 1, SEQUENCE, 0);
  char val[160];
  snprintf(val, sizeof val, "%s/val", f->folder);
  write_file(val, 4);
  tr_source_close(source);
  tr_source_options options = {.path = f->path, .val_path = val, .sequence = SEQUENCE};
  assert_int_equal(tr_source_open(f->tokenizer, &options, &source), TR_OK);
  assert_int_equal(tr_source_tokens(source, 0), 12); // nothing is cut off when there is a file of its own
  assert_int_equal(tr_source_samples(source, 1), 1);
  tr_batch batch;
  assert_int_equal(tr_batch_create(1, SEQUENCE, &batch), TR_OK);
  memset(batch.token, 0x55, sizeof *batch.token * SEQUENCE); // what an earlier batch left behind
  memset(batch.target, 0x55, sizeof *batch.target * SEQUENCE);
  assert_int_equal(tr_batch_fill(source, 1, 0, 1, &batch), TR_OK);
  const int32_t token[SEQUENCE] = {0, 1, 2}, target[SEQUENCE] = {1, 2, 3, -1, -1, -1, -1, -1};
  assert_memory_equal(batch.token, token, sizeof token);
  assert_memory_equal(batch.target, target, sizeof target);
  assert_int_equal(batch.valid, 3);
  for (int i = 0; i < SEQUENCE; i++) assert_int_equal(batch.position[i], i);
  tr_batch_destroy(&batch);
  tr_source_close(source);
}

static void samples_do_not_depend_on_how_they_are_asked_for(void **state) {
  fixture *f = *state;
  enum { SEQUENCE = 8, N = 12 };
  tr_source *source = open_source(f, 60, SEQUENCE, 0); // 8 samples: the range crosses an epoch
  tr_batch all, one;
  assert_int_equal(tr_batch_create(N, SEQUENCE, &all), TR_OK);
  assert_int_equal(tr_batch_create(1, SEQUENCE, &one), TR_OK);
  assert_int_equal(tr_batch_fill(source, 0, 0, N, &all), TR_OK);
  for (int g = N - 1; g >= 0; g--) {
    assert_int_equal(tr_batch_fill(source, 0, g, 1, &one), TR_OK);
    assert_memory_equal(one.token, all.token + g * SEQUENCE, sizeof(int32_t) * SEQUENCE);
    assert_memory_equal(one.target, all.target + g * SEQUENCE, sizeof(int32_t) * SEQUENCE);
  }
  tr_batch_destroy(&one);
  tr_batch_destroy(&all);
  tr_source_close(source);
}

static void seeds_and_epochs_change_the_order(void **state) {
  fixture *f = *state;
  enum { SEQUENCE = 1, N = 200 };
  tr_source *a = open_source(f, N + 1, SEQUENCE, 0), *b = NULL;
  tr_source_options options = {.path = f->path, .sequence = SEQUENCE, .seed = 8};
  assert_int_equal(tr_source_open(f->tokenizer, &options, &b), TR_OK);
  tr_batch first, second, other;
  assert_int_equal(tr_batch_create(N, SEQUENCE, &first), TR_OK);
  assert_int_equal(tr_batch_create(N, SEQUENCE, &second), TR_OK);
  assert_int_equal(tr_batch_create(N, SEQUENCE, &other), TR_OK);
  assert_int_equal(tr_batch_fill(a, 0, 0, N, &first), TR_OK);
  assert_int_equal(tr_batch_fill(a, 0, N, N, &second), TR_OK);
  assert_int_equal(tr_batch_fill(b, 0, 0, N, &other), TR_OK);
  assert_memory_not_equal(first.token, second.token, sizeof(int32_t) * N);
  assert_memory_not_equal(first.token, other.token, sizeof(int32_t) * N);
  tr_batch_destroy(&other);
  tr_batch_destroy(&second);
  tr_batch_destroy(&first);
  tr_source_close(b);
  tr_source_close(a);
}

static void empty_batches_are_valid(void **state) {
  fixture *f = *state;
  tr_source *source = open_source(f, 100, 8, 0);
  tr_batch batch;
  assert_int_equal(tr_batch_create(0, 8, &batch), TR_OK); // a rank that never has any
  assert_int_equal(tr_batch_fill(source, 0, 3, 0, &batch), TR_OK);
  assert_int_equal(batch.nseq, 0);
  assert_int_equal(batch.rows, 0);
  assert_int_equal(batch.valid, 0);
  assert_int_equal(batch.start[0], 0);
  assert_int_equal(tr_batch_fill(source, 1, 0, 0, &batch), TR_OK); // no validation part either
  tr_batch_destroy(&batch);
  tr_batch_destroy(&batch); // harmless
  tr_source_close(source);
}

static void requests_that_do_not_fit_are_refused(void **state) {
  fixture *f = *state;
  tr_source *source = open_source(f, 100, 8, 0);
  tr_batch batch, narrow;
  assert_int_equal(tr_batch_create(2, 8, &batch), TR_OK);
  assert_int_equal(tr_batch_create(2, 7, &narrow), TR_OK);
  assert_int_equal(tr_batch_fill(source, 0, 0, 3, &batch), TR_ERR_USAGE);
  assert_int_equal(tr_batch_fill(source, 0, 0, -1, &batch), TR_ERR_USAGE);
  assert_int_equal(tr_batch_fill(source, 0, -1, 1, &batch), TR_ERR_USAGE);
  assert_int_equal(tr_batch_fill(source, 0, INT64_MAX, 2, &batch), TR_ERR_USAGE);
  assert_int_equal(tr_batch_fill(source, 1, 0, 1, &batch), TR_ERR_USAGE);
  assert_int_equal(tr_batch_fill(source, 0, 0, 2, &narrow), TR_ERR_USAGE);
  assert_int_equal(tr_batch_create(-1, 8, &narrow), TR_ERR_CONFIG);
  assert_int_equal(tr_batch_create(1, 0, &narrow), TR_ERR_CONFIG);
  assert_int_equal(tr_batch_create(1 << 20, 1 << 20, &narrow), TR_ERR_CONFIG);
  tr_batch_destroy(&narrow);
  tr_batch_destroy(&batch);
  tr_source_close(source);
}

// Reading beyond the new end of a mapped file would raise SIGBUS.
static void shrunken_file_is_an_error_and_a_removed_one_goes_on(void **state) {
  fixture *f = *state;
  tr_source *source = open_source(f, 100000, 8, 0);
  tr_batch batch;
  assert_int_equal(tr_batch_create(2, 8, &batch), TR_OK);
  assert_int_equal(unlink(f->path), 0);
  assert_int_equal(tr_batch_fill(source, 0, 0, 2, &batch), TR_OK);
  tr_source_close(source);
  source = open_source(f, 100000, 8, 0);
  assert_int_equal(truncate(f->path, 1), 0);
  for (int64_t g = 0; g < 100; g++) assert_int_equal(tr_batch_fill(source, 0, g, 2, &batch), TR_ERR_DATA);
  assert_non_null(strstr(tr_status_text(), "file shrank while in use"));
  assert_non_null(strstr(tr_status_text(), f->path));
  tr_batch_destroy(&batch);
  tr_source_close(source);
}

static uint64_t hash_with(const fixture *f, int64_t nbyte, int64_t changed) {
  write_file(f->path, nbyte);
  if (changed >= 0) {
    FILE *file = fopen(f->path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)changed, SEEK_SET), 0);
    fputc(255, file);
    fclose(file);
  }
  tr_source *source = NULL;
  tr_source_options options = {.path = f->path, .sequence = 8, .seed = (uint64_t)nbyte};
  assert_int_equal(tr_source_open(f->tokenizer, &options, &source), TR_OK);
  uint64_t hash = tr_source_hash(source);
  tr_source_close(source);
  return hash;
}

static void hash_tells_size_and_both_ends(void **state) {
  fixture *f = *state;
  const int64_t n = 3 << 20;
  uint64_t plain = hash_with(f, n, -1);
  assert_true(plain == hash_with(f, n, -1));
  assert_true(plain != hash_with(f, n + 1, -1));
  assert_true(plain != hash_with(f, n, 0));
  assert_true(plain != hash_with(f, n, (1 << 20) - 1));
  assert_true(plain != hash_with(f, n, 2 << 20));
  assert_true(plain != hash_with(f, n, n - 1));
  assert_true(hash_with(f, 2, -1) != hash_with(f, 3, -1));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(byte_tokenizer_round_trips_every_byte),
      TEST(unknown_tokens_and_tokenizers_are_refused),
      TEST(samples_are_counted_with_a_short_last_one),
      TEST(options_that_cannot_work_are_refused),
      TEST(bad_files_are_refused_by_name),
      TEST(unreadable_files_are_refused),
      TEST(bad_validation_files_are_refused_by_name),
      TEST(validation_is_cut_from_the_end),
      TEST(files_too_short_to_cut_are_refused_with_what_would_do),
      TEST(every_pair_is_trained_on_once_per_epoch),
      TEST(validation_is_read_in_file_order_and_ends),
      TEST(short_last_sample_is_padded),
      TEST(samples_do_not_depend_on_how_they_are_asked_for),
      TEST(seeds_and_epochs_change_the_order),
      TEST(empty_batches_are_valid),
      TEST(requests_that_do_not_fit_are_refused),
      TEST(shrunken_file_is_an_error_and_a_removed_one_goes_on),
      TEST(hash_tells_size_and_both_ends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
