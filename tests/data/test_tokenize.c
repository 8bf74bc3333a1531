// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Token files from text hold the tokens of every document in order, have the same bytes for every number of threads and
// after being stopped or killed at any moment, and what cannot be done is refused by name.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/tokenize_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/base/philox.h"
#include "trireme/token/train_bpe.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))
enum { INPUTS = 4, PATH = 160, DOCUMENTS = 300, PLAIN_SIZE = 5 << 18 };

static const tr__tokenize_pace calm = {.save_bytes = 1 << 30, .save_seconds = 1e9, .report_seconds = 1e9};
static const tr__tokenize_pace busy = {.save_bytes = 1 << 18, .save_seconds = 1e9, .report_seconds = 0};

static char folder[64];
static char input[INPUTS][PATH];
static const char *inputs[INPUTS];
static char *plain;                  // the text of the plain input
static tr_text documents[DOCUMENTS]; // of each of the two JSON inputs
static tr_tokenizer *bytes, *bpe;

// A path in the folder, good until the end.
static const char *in_folder(const char *name) {
  static char path[64][PATH];
  char wanted[PATH] = "";
  int i = 0;
  snprintf(wanted, PATH, "%s/%s", folder, name);
  while (i < 63 && path[i][0] && strcmp(path[i], wanted) != 0) i++;
  assert_in_range(i, 0, 62);
  return memcpy(path[i], wanted, PATH);
}

static void write_file(const char *path, const void *data, size_t nbyte) {
  FILE *out = fopen(path, "w");
  assert_non_null(out);
  assert_int_equal(fwrite(data, 1, nbyte, out), nbyte);
  assert_int_equal(fclose(out), 0);
}

static void append_words(uint64_t seed, size_t nbyte, tr_text *out) {
  static const char *const word[] = {"The",
                                     " oars",
                                     " rose",
                                     " and",
                                     " fell",
                                     ",",
                                     " row",
                                     "ed",
                                     ".\n",
                                     "\n",
                                     " 12",
                                     "  ",
                                     " \xc3\xa9t\xc3\xa9",
                                     "'ll",
                                     "\xe6\xb5\xb7\n",
                                     "!\n\n",
                                     " \n",
                                     "\xe3\x80\x80"};
  tr_rng_key key = tr_rng_key_make(seed, TR_RNG_TEST, 0);
  for (uint32_t i = 0; out->size < nbyte; i++)
    tr_text_append(out, "%s", word[tr_rng_u32(key, 0, 0, i) % COUNT(word)]);
}

static void make_inputs(void) {
  tr_text lines = {0}, text = {0};
  for (int i = 0; i < DOCUMENTS; i++) {
    append_words((uint64_t)i, (size_t)(i % 50 ? i : 40000), &documents[i]);
    if (documents[i].size == 0) tr_text_append(&documents[i], ".");
    tr_text_append(&lines, "{\"id\": %d, \"text\": \"", i);
    for (const char *c = documents[i].data; *c; c++) tr_text_append(&lines, *c == '\n' ? "\\n" : "%c", *c);
    tr_text_append(&lines, "\"}\n");
  }
  append_words(77, PLAIN_SIZE, &text);
  plain = text.data;
  for (int i = 0; i < INPUTS; i++) inputs[i] = input[i];
  snprintf(input[0], PATH, "%s/a.jsonl", folder);
  snprintf(input[1], PATH, "%s/b.txt", folder);
  snprintf(input[2], PATH, "%s/c.jsonl.gz", folder);
  snprintf(input[3], PATH, "%s/empty.txt", folder);
  write_file(input[0], lines.data, lines.size);
  write_file(input[1], text.data, text.size);
  write_file(input[3], "", 0);
  gzFile gzip = gzopen(input[2], "w");
  assert_int_equal(gzwrite(gzip, lines.data, (unsigned)lines.size), lines.size);
  assert_int_equal(gzclose(gzip), Z_OK);
  tr_text_free(&lines);
}

static tr_tokenizer *learn(const char *pattern, int64_t vocab) {
  static const char *const special[] = {"<|endoftext|>"};
  tr_bpe_trainer *trainer;
  tr_tokenizer *out;
  tr_text json = {0};
  const tr_bpe_trainer_options o = {.vocab = vocab, .pattern = pattern, .special = special, .nspecial = 1};
  assert_int_equal(tr_bpe_trainer_create(&o, &trainer), TR_OK);
  assert_int_equal(tr_bpe_trainer_add(trainer, plain, 100000), TR_OK);
  assert_int_equal(tr_bpe_trainer_finish(trainer, NULL, NULL, &json), TR_OK);
  if (tr_tokenizer_parse(json.data, json.size, pattern, &out) != TR_OK) fail_msg("%s", tr_status_text());
  tr_bpe_trainer_destroy(trainer);
  tr_text_free(&json);
  return out;
}

static int set_up(void **state) {
  (void)state;
  tr_log_set_level(TR_LOG_ERROR);
  // In memory where the system has such a place: power loss plays no part here, and forcing to disk takes long.
  const char *base = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
  snprintf(folder, sizeof folder, "%s/trireme-tokenize-XXXXXX", base);
  if (!mkdtemp(folder)) return -1;
  make_inputs();
  bpe = learn("gpt2", 320);
  return tr_tokenizer_open("byte", &bytes) == TR_OK ? 0 : -1;
}

static int clean_up(void **state) {
  (void)state;
  tr_tokenizer_close(bytes);
  tr_tokenizer_close(bpe);
  free(plain);
  for (int i = 0; i < DOCUMENTS; i++) tr_text_free(&documents[i]);
  return tr_file_remove_tree(folder) == TR_OK ? 0 : -1;
}

static tr_tokenize_options all_inputs(const char *output) {
  return (tr_tokenize_options){.tokenizer = bpe,
                               .path = inputs,
                               .npath = INPUTS,
                               .output = in_folder(output),
                               .format = TR_CORPUS_MEGATRON,
                               .end = 1,
                               .nthread = 2};
}

// Both files of an output as one text; absent ones are empty.
static tr_text contents(const char *output) {
  static const char *const suffix[] = {".bin", ".idx"};
  tr_text all = {0};
  for (size_t i = 0; i < COUNT(suffix); i++) {
    char path[PATH + 16], *data;
    size_t nbyte;
    snprintf(path, sizeof path, "%s%s", output, suffix[i]);
    if (!tr_file_exists(path)) continue;
    assert_int_equal(tr_file_read(path, 1 << 28, &data, &nbyte), TR_OK);
    tr_text_append_bytes(&all, data, nbyte);
    free(data);
  }
  return all;
}

// Remove the output, and see that nothing but it was left.
static void discard(const char *output) {
  static const struct {
    const char *suffix;
    int expected;
  } file[] = {{".bin", 1}, {".idx", 1}, {".bin.partial", 0}, {".idx.partial", 0}, {".partial.json", 0}};
  for (size_t i = 0; i < COUNT(file); i++) {
    char path[PATH + 16];
    snprintf(path, sizeof path, "%s%s", output, file[i].suffix);
    if (unlink(path) == 0 && !file[i].expected) fail_msg("%s was left", path);
  }
}

static tr_tokenize_progress tokenize(const tr_tokenize_options *o, tr__tokenize_pace pace) {
  tr_tokenize_progress done;
  tr_status status = tr__tokenize(o, pace, &done);
  if (status != TR_OK) fail_msg("%s: %d %s", o->output, status, tr_status_text());
  return done;
}

static tr_text expected_output(tr_tokenize_options o) {
  tokenize(&o, calm);
  tr_text out = contents(o.output);
  discard(o.output);
  return out;
}

static void assert_contents(const char *output, tr_text expected) {
  tr_text got = contents(output);
  assert_int_equal(got.size, expected.size);
  assert_memory_equal(got.data, expected.data, got.size);
  tr_text_free(&got);
}

// ---- what is written

static void encode(tr_encoder *encoder, const char *text, size_t nbyte, tr_tokens *out) {
  assert_int_equal(tr_encode(encoder, text, nbyte, 0, out), TR_OK);
  assert_int_equal(tr_tokens_reserve(out, 1), TR_OK);
  out->data[out->size++] = tr_tokenizer_end(bpe);
}

static void files_hold_the_tokens_of_every_document_in_order(void **state) {
  (void)state;
  tr_tokenize_options o = all_inputs("order");
  tr_tokenize_progress done = tokenize(&o, calm);
  tr_tokens want = {0};
  tr_encoder *encoder;
  int64_t start[2 * DOCUMENTS + 2] = {0};
  assert_int_equal(tr_encoder_create(bpe, &encoder), TR_OK);
  for (int i = 0; i < 2 * DOCUMENTS + 1; i++) {
    const tr_text whole = {.data = plain, .size = strlen(plain)};
    const tr_text *document = i == DOCUMENTS ? &whole : &documents[i < DOCUMENTS ? i : i - 1 - DOCUMENTS];
    encode(encoder, document->data, document->size, &want);
    start[i + 1] = (int64_t)want.size;
  }
  tr_corpus *corpus;
  int32_t *got = malloc(want.size * sizeof *got);
  assert_int_equal(tr_corpus_open(&(tr_corpus_options){.path = o.output, .vocab = 320, .end = -1}, &corpus), TR_OK);
  assert_int_equal(tr_corpus_index(corpus), TR_OK);
  assert_int_equal(tr_corpus_documents(corpus), 2 * DOCUMENTS + 1);
  for (int i = 0; i < 2 * DOCUMENTS + 2; i++) assert_int_equal(tr_corpus_document_start(corpus, i), start[i]);
  assert_int_equal(tr_corpus_tokens(corpus), want.size);
  assert_int_equal(tr_corpus_read(corpus, 0, (int64_t)want.size, got), TR_OK);
  assert_memory_equal(got, want.data, want.size * sizeof *got);
  assert_int_equal(done.tokens, want.size);
  assert_int_equal(done.documents, 2 * DOCUMENTS + 1);
  assert_true(done.share == 1 && done.bytes > PLAIN_SIZE);
  tr_corpus_close(corpus);
  tr_encoder_destroy(encoder);
  tr_tokens_free(&want);
  free(got);
  discard(o.output);
}

// The parts of a large text, encoded each alone, have the tokens of the whole.
static void parts_have_the_tokens_of_the_whole(void **state) {
  (void)state;
  static const char *const pattern[] = {"gpt2", "llama3", "qwen"};
  for (size_t i = 0; i < COUNT(pattern); i++) {
    tr_tokenizer *tokenizer = learn(pattern[i], 330);
    tr_tokenize_options o = all_inputs("parts");
    o.tokenizer = tokenizer;
    o.path = &inputs[1];
    o.npath = 1;
    o.end = 0;
    o.format = TR_CORPUS_NANOGPT;
    tr_text got = expected_output(o);
    tr_tokens want = {0};
    tr_encoder *encoder;
    assert_int_equal(tr_encoder_create(tokenizer, &encoder), TR_OK);
    assert_int_equal(tr_encode(encoder, plain, strlen(plain), 0, &want), TR_OK);
    assert_int_equal(got.size, 2 * want.size);
    for (size_t k = 0; k < want.size; k++)
      assert_int_equal(((const uint16_t *)(const void *)got.data)[k], want.data[k]);
    tr_encoder_destroy(encoder);
    tr_tokens_free(&want);
    tr_text_free(&got);
    tr_tokenizer_close(tokenizer);
  }
}

static void threads_make_no_difference(void **state) {
  (void)state;
  for (int format = TR_CORPUS_NANOGPT; format <= TR_CORPUS_MEGATRON; format++) {
    tr_tokenize_options o = all_inputs("threads");
    o.format = (tr_corpus_format)format;
    o.split = 1;
    o.nthread = 1;
    tr_text one = expected_output(o);
    for (o.nthread = 2; o.nthread < 6; o.nthread += 3) {
      tokenize(&o, busy);
      assert_contents(o.output, one);
      discard(o.output);
    }
    tr_text_free(&one);
  }
}

// ---- going on

// Stops, or dies, when so many reports have told of more text. (On a slow machine some tell of none.)
typedef struct stop_at {
  int calls, call;
  int die;
  int64_t bytes;
} stop_at;

static int stop(void *user, const tr_tokenize_progress *progress) {
  stop_at *s = user;
  assert_true(progress->share >= 0 && progress->share <= 1);
  s->calls += progress->bytes > s->bytes;
  s->bytes = progress->bytes;
  if (s->calls < s->call) return 1;
  if (s->die) raise(SIGKILL);
  return 0;
}

static void stopped_work_goes_on_with_the_same_bytes(void **state) {
  (void)state;
  for (int format = TR_CORPUS_NANOGPT; format <= TR_CORPUS_MEGATRON; format++) {
    tr_tokenize_options o = all_inputs("stopped");
    o.format = (tr_corpus_format)format;
    tr_text want = expected_output(o);
    int stops = 0;
    int64_t tokens = 0;
    tr_status status = TR_PENDING;
    while (status == TR_PENDING) {
      tr_tokenize_progress done;
      o.progress = stop;
      o.user = &(stop_at){.call = 2};
      status = tr__tokenize(&o, busy, &done);
      assert_true(status >= 0 && done.tokens >= tokens);
      tokens = done.tokens;
      stops += status == TR_PENDING;
    }
    assert_true(stops > 1);
    assert_contents(o.output, want);
    discard(o.output);
    tr_text_free(&want);
  }
}

// In a process of its own, killed at the `call`th report or after some time. 1: it finished before.
static int run_and_kill(tr_tokenize_options o, int call, int64_t after_ns) {
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    tr_tokenize_progress done;
    o.progress = stop;
    o.user = &(stop_at){.call = call ? call : 1 << 30, .die = 1};
    _exit(tr__tokenize(&o, busy, &done) == TR_OK ? 0 : 1);
  }
  int how;
  if (!call) {
    tr_clock_sleep_ns(after_ns);
    kill(child, SIGKILL);
  }
  assert_int_equal(waitpid(child, &how, 0), child);
  assert_false(WIFEXITED(how) && WEXITSTATUS(how) != 0);
  return WIFEXITED(how);
}

static void killed_work_goes_on_with_the_same_bytes(void **state) {
  (void)state;
  tr_tokenize_options o = all_inputs("killed");
  tr_text want = expected_output(o);
  int went_on = 0;
  for (int round = 0; round < 10; round++) {
    o.nthread = 1 + round % 3;
    // Killed once or twice, at a report or at any moment, before it may finish.
    int finished = run_and_kill(o, round % 2 ? 0 : 1 + round, round * 7000000);
    if (!finished) finished = run_and_kill(o, round % 2 ? 0 : 1 + round / 3, round * 5000000);
    went_on += !finished && tr_file_exists(in_folder("killed.partial.json"));
    if (!finished) tokenize(&o, busy);
    assert_contents(o.output, want);
    discard(o.output);
  }
  assert_in_range(went_on, 2, 10);
  tr_text_free(&want);
}

static tr_status stop_early(tr_tokenize_options o) {
  tr_tokenize_progress done;
  o.progress = stop;
  o.user = &(stop_at){.call = 2};
  return tr__tokenize(&o, busy, &done);
}

// After a stop, other work under the same name has the bytes it would have had.
static void other_work_starts_over(void **state) {
  (void)state;
  const tr_tokenize_options o = all_inputs("other");
  tr_tokenize_options other[5] = {o, o, o, o, o};
  other[0].end = 0;
  other[1].npath = 2;
  other[2].tokenizer = bytes;
  other[3].format = TR_CORPUS_LLMC;
  other[4].split = 1;
  for (size_t i = 0; i < COUNT(other); i++) {
    tr_text want = expected_output(other[i]);
    assert_int_equal(stop_early(o), TR_PENDING);
    tokenize(&other[i], busy);
    assert_contents(o.output, want);
    tr_text_free(&want);
    unlink(in_folder("other.idx.partial")); // what the first format left is not the second's to remove
    discard(o.output);
  }
}

static void a_changed_input_starts_over(void **state) {
  (void)state;
  const char *path = in_folder("changed.txt");
  tr_tokenize_options o = all_inputs("changed");
  o.path = &path;
  o.npath = 1;
  write_file(path, plain, PLAIN_SIZE);
  assert_int_equal(stop_early(o), TR_PENDING);
  char *text = strdup(plain);
  text[0] = 'X';
  write_file(path, text, PLAIN_SIZE);
  tokenize(&o, busy);
  tr_text got = contents(o.output);
  discard(o.output);
  tr_text want = expected_output(o);
  assert_int_equal(got.size, want.size);
  assert_memory_equal(got.data, want.data, got.size);
  tr_text_free(&got);
  tr_text_free(&want);
  free(text);
}

static void useless_states_start_over(void **state) {
  (void)state;
  static const char *const text[] = {"", "{", "[]", "{\"of\": 1}", "{\"of\": \"0\"}"};
  tr_tokenize_options o = all_inputs("useless");
  tr_text want = expected_output(o);
  for (size_t i = 0; i < COUNT(text) + 2; i++) {
    assert_int_equal(stop_early(o), TR_PENDING);
    if (i < COUNT(text))
      write_file(in_folder("useless.partial.json"), text[i], strlen(text[i]));
    else if (i == COUNT(text))
      assert_int_equal(truncate(in_folder("useless.bin.partial"), 1000), 0);
    else
      assert_int_equal(unlink(in_folder("useless.bin.partial")), 0);
    tokenize(&o, busy);
    assert_contents(o.output, want);
    discard(o.output);
  }
  tr_text_free(&want);
}

// ---- what fails

static void what_cannot_be_done_is_refused_by_name(void **state) {
  (void)state;
  static const struct {
    const char *path, *text, *message;
    tr_status status;
    int nthread;
  } row[] = {
      {NULL, NULL, "there is no text file", TR_ERR_USAGE, 1},
      {"good.txt", "text", "0 threads cannot work", TR_ERR_USAGE, 0},
      {"absent.txt", NULL, "absent.txt: cannot open", TR_ERR_DATA, 1},
      {"nothing.txt", "", "nothing.txt: there is no text in it", TR_ERR_DATA, 1},
      {"blank.jsonl", "\n{\"text\": \"\"}\n", "blank.jsonl: there is no text in it", TR_ERR_DATA, 1},
      {"bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n", "bad.jsonl:2: the object has no text", TR_ERR_DATA, 2},
      {"bad.gz", "\x1f\x8b\x08", "bad.gz: the compressed file is truncated", TR_ERR_DATA, 2},
  };
  for (size_t i = 0; i < COUNT(row); i++) {
    tr_tokenize_progress done;
    tr_tokenize_options o = all_inputs("refused");
    const char *path = row[i].path ? in_folder(row[i].path) : NULL;
    if (row[i].text) write_file(path, row[i].text, strlen(row[i].text));
    o.path = &path;
    o.npath = path != NULL;
    o.nthread = row[i].nthread;
    tr_status status = tr__tokenize(&o, busy, &done);
    if (status != row[i].status || !strstr(tr_status_text(), row[i].message))
      fail_msg("row %zu: %d %s", i, status, tr_status_text());
    tr_text left = contents(o.output);
    assert_int_equal(left.size, 0);
    discard(o.output); // nor anything unfinished
  }
}

static void an_output_that_exists_is_left_alone(void **state) {
  (void)state;
  tr_tokenize_progress done;
  tr_tokenize_options o = all_inputs("exists");
  write_file(in_folder("exists.bin"), "mine", 4);
  assert_int_equal(tr__tokenize(&o, busy, &done), TR_ERR_IO);
  assert_non_null(strstr(tr_status_text(), "exists.bin: exists already"));
  tr_text text = contents(o.output);
  assert_string_equal(text.data, "mine");
  tr_text_free(&text);
  discard(o.output);
  o.output = in_folder("no/such/folder");
  assert_int_equal(tr__tokenize(&o, busy, &done), TR_ERR_IO);
  assert_non_null(strstr(tr_status_text(), "no/such/folder"));
}

// A full disk, here a limit on the size of files: a named failure, and the work goes on when there is room.
static void a_full_disk_costs_only_time(void **state) {
  (void)state;
  tr_tokenize_progress done;
  tr_tokenize_options o = all_inputs("full");
  tr_text want = expected_output(o);
  struct rlimit before, small;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  small.rlim_cur = 1 << 20;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  tr_status status = tr__tokenize(&o, busy, &done);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  assert_int_equal(status, TR_ERR_IO);
  assert_non_null(strstr(tr_status_text(), "full.bin.partial: cannot write"));
  assert_true(tr_file_exists(in_folder("full.partial.json")));
  tokenize(&o, busy);
  assert_contents(o.output, want);
  discard(o.output);
  tr_text_free(&want);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(files_hold_the_tokens_of_every_document_in_order),
      cmocka_unit_test(parts_have_the_tokens_of_the_whole),
      cmocka_unit_test(threads_make_no_difference),
      cmocka_unit_test(stopped_work_goes_on_with_the_same_bytes),
      cmocka_unit_test(killed_work_goes_on_with_the_same_bytes),
      cmocka_unit_test(other_work_starts_over),
      cmocka_unit_test(a_changed_input_starts_over),
      cmocka_unit_test(useless_states_start_over),
      cmocka_unit_test(what_cannot_be_done_is_refused_by_name),
      cmocka_unit_test(an_output_that_exists_is_left_alone),
      cmocka_unit_test(a_full_disk_costs_only_time),
  };
  return cmocka_run_group_tests(tests, set_up, clean_up);
}
