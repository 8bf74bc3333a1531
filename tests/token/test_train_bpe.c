// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// A learned vocabulary has the merges that a naive trainer finds, the size asked for and the special tokens at its end; it
// loads as a tokenizer that gives back every text; bad options are refused by name.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/json.h"
#include "trireme/base/philox.h"
#include "trireme/token/tokenizer.h"
#include "trireme/token/train_bpe.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

static tr_status try_to_learn(const tr_bpe_trainer_options *options, const char *text, size_t nbyte, tr_text *out) {
  tr_bpe_trainer *trainer;
  *out = (tr_text){0};
  TR_TRY(tr_bpe_trainer_create(options, &trainer));
  tr_status status = tr_bpe_trainer_add(trainer, text, nbyte);
  if (status == TR_OK) status = tr_bpe_trainer_finish(trainer, NULL, NULL, out);
  tr_bpe_trainer_destroy(trainer);
  return status;
}

static json_t *learn(tr_bpe_trainer_options options, const char *text) {
  tr_text out;
  json_t *json = NULL;
  if (!options.pattern) options.pattern = "gpt2";
  if (try_to_learn(&options, text, strlen(text), &out) != TR_OK) fail_msg("%s", tr_status_text());
  assert_int_equal(tr_json_parse(out.data, out.size, "learned", &json), TR_OK);
  tr_text_free(&out);
  return json;
}

static const json_t *merges_of(const json_t *json) {
  return json_object_get(json_object_get(json, "model"), "merges");
}
static const json_t *vocab_of(const json_t *json) { return json_object_get(json_object_get(json, "model"), "vocab"); }

// ---- the naive trainer: words of letters with the blank before them, all pairs counted anew for every merge

enum { LETTERS = 3, MOST_TOKENS = 400, MOST_SYMBOLS = 4096 };

typedef struct naive {
  int symbol[MOST_SYMBOLS]; // words end with -1
  int n;
  char *text[MOST_TOKENS]; // of tokens, in the byte-level alphabet
  int ntoken;
  char merge[MOST_TOKENS][128];
  int nmerge;
} naive;

static void naive_words(naive *t, const char *text) {
  t->n = 0;
  for (const char *c = text; *c; c++) {
    if (*c == ' ' && t->n > 0) t->symbol[t->n++] = -1;
    // The alphabet: '!' .. '~' are 0 .. 93, Latin-1 follows, the blank is the 33rd of what comes last.
    t->symbol[t->n++] = *c == ' ' ? 188 + ' ' : *c - '!';
    assert_true(t->n + 2 < MOST_SYMBOLS);
  }
  t->symbol[t->n++] = -1;
}

static int naive_merge(naive *t, int min_count) {
  static int count[MOST_TOKENS][MOST_TOKENS];
  memset(count, 0, sizeof count);
  int a = -1, b = -1, best = min_count - 1;
  for (int i = 0; i + 1 < t->n; i++)
    if (t->symbol[i] >= 0 && t->symbol[i + 1] >= 0) count[t->symbol[i]][t->symbol[i + 1]]++;
  for (int i = 0; i < t->ntoken; i++)
    for (int k = 0; k < t->ntoken; k++)
      if (count[i][k] > best) best = count[i][k], a = i, b = k;
  if (a < 0) return 0;
  char text[128];
  snprintf(text, sizeof text, "%s%s", t->text[a], t->text[b]);
  int token = 0;
  while (token < t->ntoken && strcmp(t->text[token], text) != 0) token++;
  if (token == t->ntoken) t->text[t->ntoken++] = strdup(text);
  snprintf(t->merge[t->nmerge++], sizeof *t->merge, "%s %s", t->text[a], t->text[b]);
  int out = 0;
  for (int i = 0; i < t->n; i++, out++) {
    int hit = i + 1 < t->n && t->symbol[i] == a && t->symbol[i + 1] == b;
    t->symbol[out] = hit ? token : t->symbol[i];
    i += hit;
  }
  t->n = out;
  return 1;
}

static void naive_learn(naive *t, const char *text, int vocab, int min_count, const json_t *learned) {
  const char *key;
  json_t *value;
  *t = (naive){.ntoken = 256};
  json_object_foreach((json_t *)vocab_of(learned), key, value) {
    if (json_integer_value(value) < 256) t->text[json_integer_value(value)] = strdup(key);
  }
  naive_words(t, text);
  while (t->ntoken < vocab && naive_merge(t, min_count)) {
  }
}

static void random_text(uint64_t seed, char *out, int n) {
  tr_rng_key key = tr_rng_key_make(seed, TR_RNG_TEST, 0);
  for (int i = 0; i < n; i++) {
    uint32_t random = tr_rng_u32(key, 0, 0, (uint32_t)i);
    out[i] = random % 7 == 0 && i > 0 && i + 1 < n && out[i - 1] != ' ' ? ' ' : (char)('a' + random / 7 % LETTERS);
  }
  out[n] = '\0';
}

static void merges_are_those_of_a_naive_trainer(void **state) {
  (void)state;
  static naive twin;
  char text[1001];
  for (int seed = 0; seed < 40; seed++) {
    int vocab = 257 + seed * 3, min_count = 1 + seed % 3;
    random_text((uint64_t)seed, text, 100 + seed * 20);
    json_t *json = learn((tr_bpe_trainer_options){.vocab = vocab, .min_count = min_count}, text);
    naive_learn(&twin, text, vocab, min_count, json);
    assert_int_equal(json_array_size(merges_of(json)), twin.nmerge);
    for (int i = 0; i < twin.nmerge; i++)
      assert_string_equal(json_string_value(json_array_get(merges_of(json), (size_t)i)), twin.merge[i]);
    assert_int_equal(json_object_size(vocab_of(json)), twin.ntoken);
    for (int i = 0; i < twin.ntoken; i++) {
      assert_int_equal(json_integer_value(json_object_get(vocab_of(json), twin.text[i])), i);
      free(twin.text[i]);
    }
    json_decref(json);
  }
}

static void tokens_number_bytes_then_merges_then_special_ones(void **state) {
  (void)state;
  static const char *const special[] = {"<|endoftext|>", "<pad>"};
  char text[1001];
  random_text(1, text, 1000);
  json_t *json = learn((tr_bpe_trainer_options){.vocab = 300, .special = special, .nspecial = 2}, text);
  const json_t *vocab = vocab_of(json), *added = json_object_get(json, "added_tokens");
  assert_int_equal(json_object_size(vocab), 298);
  assert_int_equal(json_integer_value(json_object_get(vocab, "!")), 0);
  assert_int_equal(json_integer_value(json_object_get(vocab, "\xc4\x80")), 188); // byte 0 as U+0100
  assert_int_equal(json_integer_value(json_object_get(vocab, "\xc4\xa0")),
                   220); // the blank, as in GPT-2's vocabulary
  assert_int_equal(json_integer_value(json_object_get(vocab, "\xc5\x83")), 255); // byte 0xad as U+0143
  assert_int_equal(json_array_size(added), 2);
  for (size_t i = 0; i < 2; i++) {
    assert_string_equal(json_string_value(json_object_get(json_array_get(added, i), "content")), special[i]);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(added, i), "id")), 298 + i);
  }
  json_decref(json);
}

static void learning_stops_where_no_pair_is_frequent_enough(void **state) {
  (void)state;
  static const char *const special[] = {"<s>"};
  json_t *json =
      learn((tr_bpe_trainer_options){.vocab = 400, .special = special, .nspecial = 1, .min_count = 2}, "abab cd");
  assert_int_equal(json_array_size(merges_of(json)), 1); // a b; (ab, ab) and (c, d) are seen once
  assert_int_equal(
      json_integer_value(json_object_get(json_array_get(json_object_get(json, "added_tokens"), 0), "id")), 257);
  json_decref(json);
}

// Neither what spells a special token nor what stands on both sides of one makes a token.
static void special_tokens_are_not_learned_from(void **state) {
  (void)state;
  static const char *const special[] = {"<end>", "<end>ing"};
  json_t *json = learn((tr_bpe_trainer_options){.vocab = 400, .special = special, .nspecial = 2},
                       "xa<end>by<end>xa<end>ingby<end>xa<end>by");
  assert_int_equal(json_array_size(merges_of(json)), 2);
  assert_string_equal(json_string_value(json_array_get(merges_of(json), 0)), "b y");
  assert_string_equal(json_string_value(json_array_get(merges_of(json), 1)), "x a");
  json_decref(json);
}

static void parts_of_a_text_and_order_make_no_difference(void **state) {
  (void)state;
  const tr_bpe_trainer_options options = {.vocab = 320, .pattern = "llama3"};
  static const char text[] = "one two three\nfour five six\nseven";
  tr_text whole, parts = {0};
  tr_bpe_trainer *trainer;
  assert_int_equal(try_to_learn(&options, text, strlen(text), &whole), TR_OK);
  assert_int_equal(tr_bpe_trainer_create(&options, &trainer), TR_OK);
  assert_int_equal(tr_bpe_trainer_add(trainer, text + 28, 5), TR_OK);
  assert_int_equal(tr_bpe_trainer_add(trainer, text, 28), TR_OK);
  assert_int_equal(tr_bpe_trainer_finish(trainer, NULL, NULL, &parts), TR_OK);
  assert_string_equal(whole.data, parts.data);
  tr_bpe_trainer_destroy(trainer);
  tr_text_free(&whole);
  tr_text_free(&parts);
}

static void count_calls(void *user, int64_t done, int64_t all) {
  assert_in_range(done, 1, all);
  ++*(int *)user;
}

// A word of 2 MiB is no burden: every merge would walk through all of it.
static void very_long_words_are_learned_from_in_pieces(void **state) {
  (void)state;
  enum { SIZE = 2 << 20 };
  tr_bpe_trainer *trainer;
  tr_text out = {0};
  int calls = 0;
  char *text = malloc(SIZE + 1);
  random_text(3, text, SIZE);
  for (int i = 0; i < SIZE; i++)
    if (text[i] == ' ') text[i] = 'd';
  assert_int_equal(tr_bpe_trainer_create(&(tr_bpe_trainer_options){.vocab = 700, .pattern = "qwen"}, &trainer),
                   TR_OK);
  assert_int_equal(tr_bpe_trainer_add(trainer, text, SIZE), TR_OK);
  assert_int_equal(tr_bpe_trainer_finish(trainer, count_calls, &calls, &out), TR_OK);
  assert_int_equal(calls, 3);
  tr_bpe_trainer_destroy(trainer);
  tr_text_free(&out);
  free(text);
}

static void a_learned_tokenizer_gives_back_every_text(void **state) {
  (void)state;
  static const char *const pattern[] = {"gpt2", "llama3", "qwen"}, *const special[] = {"<|endoftext|>"};
  static const char text[] =
      "The oars' rhythm: 1234 strokes,  we'll row!\r\n\n\tL'\xc3\xa9t\xc3\xa9 \xe6\xb5\xb7\xe3\x80\x80"
      "and the oars, the oars; the rhythm of the oars. \xf0\x9f\x9a\xa3 \x01<|endoftext|>The";
  for (size_t i = 0; i < COUNT(pattern); i++) {
    tr_text json, back = {0};
    tr_tokens tokens = {0};
    tr_tokenizer *tokenizer;
    tr_encoder *encoder;
    tr_bpe_trainer_options options = {.vocab = 280, .pattern = pattern[i], .special = special, .nspecial = 1};
    assert_int_equal(try_to_learn(&options, text, strlen(text), &json), TR_OK);
    if (tr_tokenizer_parse(json.data, json.size, "learned", &tokenizer) != TR_OK) fail_msg("%s", tr_status_text());
    assert_int_equal(tr_tokenizer_vocab(tokenizer), 280);
    assert_int_equal(tr_tokenizer_end(tokenizer), 279);
    assert_int_equal(tr_encoder_create(tokenizer, &encoder), TR_OK);
    assert_int_equal(tr_encode(encoder, text, strlen(text), 0, &tokens), TR_OK);
    assert_true(tokens.size < strlen(text) - 30);
    assert_int_equal(tr_decode(tokenizer, tokens.data, tokens.size, 0, &back), TR_OK);
    assert_string_equal(back.data, text);
    tr_tokens_free(&tokens);
    tr_encoder_destroy(encoder);
    tr_tokenizer_close(tokenizer);
    tr_text_free(&back);
    tr_text_free(&json);
  }
}

static void any_bytes_can_be_learned_from(void **state) {
  (void)state;
  char text[512];
  for (int i = 0; i < 512; i++) text[i] = (char)(i * 37);
  for (size_t n = 0; n <= sizeof text; n += 32) {
    tr_text out;
    assert_int_equal(try_to_learn(&(tr_bpe_trainer_options){.vocab = 300, .pattern = "gpt2"}, text, n, &out), TR_OK);
    tr_text_free(&out);
  }
}

static void bad_options_are_refused_by_name(void **state) {
  (void)state;
  static const char *const none[] = {""}, *const twice[] = {"<s>", "<s>"}, *const bytes[] = {"\xff"},
                           *const letter[] = {"a"};
  static const struct {
    tr_bpe_trainer_options options;
    const char *message;
  } row[] = {
      {{.vocab = 255, .pattern = "gpt2"}, "a vocabulary of 255 tokens cannot be learned; 256"},
      {{.vocab = 257, .pattern = "gpt2", .special = twice, .nspecial = 2}, "257 tokens cannot be learned; 258"},
      {{.vocab = (int64_t)1 << 31, .pattern = "gpt2"}, "a vocabulary of 2147483648"},
      {{.vocab = 300, .pattern = "gpt3"}, "there is no pattern 'gpt3'; there are gpt2"},
      {{.vocab = 300, .pattern = "gpt2", .special = none, .nspecial = 1}, "without text"},
      {{.vocab = 300, .pattern = "gpt2", .special = twice, .nspecial = 2}, "'<s>' is given twice"},
      {{.vocab = 300, .pattern = "gpt2", .special = bytes, .nspecial = 1}, "special token 1 is not valid UTF-8"},
      {{.vocab = 300, .pattern = "gpt2", .special = letter, .nspecial = 1}, "'a' is spelled like an ordinary one"},
  };
  for (size_t i = 0; i < COUNT(row); i++) {
    tr_text out;
    tr_status status = try_to_learn(&row[i].options, "text", 4, &out);
    if (status != TR_ERR_CONFIG || !strstr(tr_status_text(), row[i].message))
      fail_msg("row %zu: %d %s", i, status, tr_status_text());
    tr_text_free(&out);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(merges_are_those_of_a_naive_trainer),
      cmocka_unit_test(tokens_number_bytes_then_merges_then_special_ones),
      cmocka_unit_test(learning_stops_where_no_pair_is_frequent_enough),
      cmocka_unit_test(special_tokens_are_not_learned_from),
      cmocka_unit_test(parts_of_a_text_and_order_make_no_difference),
      cmocka_unit_test(very_long_words_are_learned_from_in_pieces),
      cmocka_unit_test(a_learned_tokenizer_gives_back_every_text),
      cmocka_unit_test(any_bytes_can_be_learned_from),
      cmocka_unit_test(bad_options_are_refused_by_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
