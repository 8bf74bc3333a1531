// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Every decoder and every post-processor does what the `tokenizers` library does (expected texts are that library's, but
// where bytes are no UTF-8 they are kept); what is wrong in a file is refused by name; random bytes do no harm.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "token/mutate.h"
#include "token/token_internal.h"
#include "trireme/base/json.h"
#include "trireme/base/philox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))
enum { TOKENS_MAX = 16 };

static json_t *read_json(const char *text) {
  json_t *json = NULL;
  if (strcmp(text, "null") != 0) assert_int_equal(tr_json_parse(text, strlen(text), "test", &json), TR_OK);
  return json;
}

static tr_status parse(const char *text, tr__decoder **out) {
  json_t *json = read_json(text);
  tr_status status = tr__decoder_parse(json, "test", out);
  json_decref(json);
  return status;
}

// ---- decoders

// clang-format off
static const struct { const char *json, *token[TOKENS_MAX], *expected; } rows[] = {
    {"null", {"a", "b", "", "c"}, "a b  c"},
    {"null", {NULL}, ""},
    {"{\"type\":\"ByteLevel\"}", {"\u0120a", "\u00C3", "\u00A9", "\u6F22\u0120"}, " a\u00E9\u6F22\u0120"},
    {"{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}", {"\u00E9"}, "\xE9"},
    {"{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"always\",\"split\":true}", {"\u2581\u2581" "a\u2581" "b", "\u2581" "c\u2581"}, "ab c "},
    {"{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"first\"}", {"\u2581" "a", "\u2581" "c"}, "a c"},
    {"{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"never\"}", {"\u2581" "a", "\u2581" "c"}, " a c"},
    {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":true}", {"_a", "_c"}, "a c"},
    {"{\"type\":\"Metaspace\",\"str_rep\":\"_\",\"replacement\":\"_\",\"add_prefix_space\":false}", {"_a", "_c"}, " a c"},
    {"{\"type\":\"ByteFallback\"}", {"a", "<0xE4>", "<0xBD>", "<0xa0>", "b", "<0xzz>", "<0x41", "<0x41>"}, "a\u4F60" "b<0xzz><0x41A"},
    {"{\"type\":\"ByteFallback\"}", {"<0xE4>", "<0xBD>"}, "\xE4\xBD"},
    {"{\"type\":\"Fuse\"}", {"a", "b"}, "ab"},
    {"{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}", {"  a ", " b"}, " a b"},
    {"{\"type\":\"Strip\",\"content\":\" \",\"start\":2,\"stop\":1}", {"  a ", " b  "}, "ab "},
    {"{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":2}", {"   ", "", "  "}, ""},
    {"{\"type\":\"Strip\",\"content\":\"\u2581\",\"start\":1,\"stop\":0}", {"\u2581\u2581" "a"}, "\u2581" "a"},
    {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"\u2581\"},\"content\":\" \"}", {"\u2581" "a\u2581", "b"}, " a b"},
    {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a+\"},\"content\":\"-\"}", {"aab", "a"}, "-b-"},
    {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a+\"},\"content\":\"-\"}", {"aa\xFF", "a"}, "aa\xFF-"},
    {"{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}",
     {"##a", "b", "##c", "do", "not", ".", "n't", "'", "s", "it", "'s", "##", "c##"}, "##a bc do not.n't ' s it's c##"},
    {"{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}", {"a", "b ' c", "do not do not", "  . .", "x", " ' '"}, "a b'c don't don't  .. x ''"},
    {"{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":false}", {"a", ".", "##b"}, "a .b"},
    {"{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"}", {"a</w>b</w>", "c</w>"}, "a b c"},
    {"{\"type\":\"CTC\",\"pad_token\":\"<pad>\",\"word_delimiter_token\":\"|\",\"cleanup\":true}",
     {"a", "a", "<pad>", "a", "|", "b", "|", "|", "do", "|", "not", "<pad>x", " ", "."}, "aa b do notx ."},
    {"{\"type\":\"CTC\",\"pad_token\":\"<pad>\",\"word_delimiter_token\":\"|\",\"cleanup\":true}",
     {"a .", "b ' c", "do not do not", " . .", " |x"}, "a.b'cdo not don't..  x"},
    {"{\"type\":\"CTC\",\"pad_token\":\"<pad>\",\"word_delimiter_token\":\"|\",\"cleanup\":false}", {"a", "a", "<pad>", "a", "|", "b"}, "aa|b"},
    {"{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\u2581\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"
     "{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}", {"\u2581" "a", "<0xC3>", "<0xA9>", "\u2581", "b"}, "a\u00E9 b"},
    {"{\"type\":\"Sequence\",\"decoders\":[]}", {"a", "b"}, "ab"},
};
// clang-format on

static size_t pieces(const char *const *token, tr__piece_text *out) {
  size_t n = 0;
  for (; n < TOKENS_MAX && token[n]; n++) out[n] = (tr__piece_text){token[n], strlen(token[n])};
  return n;
}

static void decoders_do_what_the_library_does(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(rows); i++) {
    tr__decoder *decoder;
    tr__piece_text token[TOKENS_MAX];
    tr_text out = {0};
    tr_text_append(&out, "before ");
    if (parse(rows[i].json, &decoder) < 0) fail_msg("%s: %s", rows[i].json, tr_status_text());
    assert_int_equal(tr__decoder_run(decoder, token, pieces(rows[i].token, token), &out), TR_OK);
    if (strcmp(out.data + 7, rows[i].expected) != 0)
      fail_msg("%s: row %zu became '%s', not '%s'", rows[i].json, i, out.data + 7, rows[i].expected);
    tr_text_free(&out);
    tr__decoder_free(decoder);
  }
}

static void no_tokens_decode_to_nothing(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(rows); i++) {
    tr__decoder *decoder;
    tr_text out = {0};
    assert_int_equal(parse(rows[i].json, &decoder), TR_OK);
    assert_int_equal(tr__decoder_run(decoder, NULL, 0, &out), TR_OK);
    assert_int_equal(out.size, 0);
    tr_text_free(&out);
    tr__decoder_free(decoder);
  }
}

// clang-format off
static const struct { const char *json, *message; } bad[] = {
    {"[]", "a decoder is no object"},
    {"{\"type\":\"Byte\"}", "decoder \"Byte\" is not known"},
    {"{\"type\":\"Fuse\",\"x\":1}", "has the member \"x\""},
    {"{\"type\":\"Sequence\",\"decoders\":{}}", "no list \"decoders\""},
    {"{\"type\":\"Metaspace\",\"replacement\":\"__\"}", "is not one character"},
    {"{\"type\":\"Metaspace\",\"replacement\":\"\"}", "is not one character"},
    {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}", "\"last\" (first, never or always)"},
    {"{\"type\":\"Strip\",\"content\":\" \",\"start\":1}", "\"stop\""},
    {"{\"type\":\"Strip\",\"content\":\"ab\",\"start\":1,\"stop\":1}", "is not one character"},
    {"{\"type\":\"WordPiece\",\"prefix\":\"##\"}", "\"cleanup\""},
    {"{\"type\":\"WordPiece\",\"cleanup\":true}", "\"prefix\" is no string"},
    {"{\"type\":\"BPEDecoder\"}", "\"suffix\" is no string"},
    {"{\"type\":\"CTC\",\"cleanup\":true,\"pad_token\":\"p\"}", "\"word_delimiter_token\" is no string"},
    {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}", "pattern '('"},
};
// clang-format on

static void what_is_wrong_is_refused_by_name(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(bad); i++) {
    tr__decoder *decoder;
    tr_status status = parse(bad[i].json, &decoder);
    if (status != TR_ERR_DATA || !strstr(tr_status_text(), bad[i].message))
      fail_msg("%s: status %d, '%s' does not say '%s'", bad[i].json, status, tr_status_text(), bad[i].message);
  }
}

// Tokens of random bytes from an alphabet that decoders look for.
static void random_tokens_do_no_harm(void **state) {
  (void)state;
  static const char alphabet[] = "<0xE4> .'nt|#\xC3\xA9\xFF\xE2\x96\x81p";
  for (size_t i = 0; i < COUNT(rows); i++) {
    tr__decoder *decoder;
    assert_int_equal(parse(rows[i].json, &decoder), TR_OK);
    for (uint32_t seed = 0; seed < 100; seed++) {
      char *bytes[TOKENS_MAX];
      tr__piece_text token[TOKENS_MAX];
      for (uint32_t t = 0; t < TOKENS_MAX; t++) {
        uint32_t random[4];
        tr_philox4x32((uint32_t[2]){seed, t}, (uint32_t[4]){0, 0, 0, 0}, random);
        size_t n = random[0] % 9;
        bytes[t] = malloc(n + 1); // of its own, so that a sanitizer sees what reads beyond it
        assert_non_null(bytes[t]);
        for (uint32_t k = 0; k < n; k++) {
          tr_philox4x32((uint32_t[2]){seed, t}, (uint32_t[4]){1, k, 0, 0}, random);
          bytes[t][k] = alphabet[random[0] % (sizeof alphabet - 1)];
        }
        token[t] = (tr__piece_text){bytes[t], n};
      }
      tr_text out = {0};
      assert_int_equal(tr__decoder_run(decoder, token, TOKENS_MAX, &out), TR_OK);
      tr_text_free(&out);
      for (size_t t = 0; t < TOKENS_MAX; t++) free(bytes[t]);
    }
    tr__decoder_free(decoder);
  }
}

static void use_decoder(const json_t *json) {
  static const tr__piece_text token[] = {{"\u2581"
                                          "a",
                                          4},
                                         {"<0xC3>", 6},
                                         {"##b ' c", 7},
                                         {"", 0},
                                         {" |", 2}};
  tr__decoder *decoder;
  tr_text out = {0};
  if (tr__decoder_parse(json, "test", &decoder) < 0) return;
  (void)tr__decoder_run(decoder, token, COUNT(token), &out);
  tr_text_free(&out);
  tr__decoder_free(decoder);
}

static void spoiled_files_do_no_harm(void **state) {
  (void)state;
  int used = 0;
  for (size_t i = 0; i < COUNT(rows); i++) used += mutate_json(rows[i].json, 300, use_decoder);
  assert_true(used > 1000);
}

// ---- templates

#define TEMPLATE(single)                                                                                             \
  "{\"type\":\"TemplateProcessing\",\"single\":[" single                                                             \
  "],\"pair\":[],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\","                                                       \
  "\"ids\":[1,2],\"tokens\":[\"<s>\",\"x\"]},\"</s>\":{\"id\":\"</s>\",\"ids\":[3],\"tokens\":[\"</s>\"]}}}"
#define A    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define B    "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}}"
#define E    "{\"SpecialToken\":{\"id\":\"</s>\",\"type_id\":0}}"
#define BERT "{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",5],\"cls\":[\"[CLS]\",4]}"
#define ROBERTA                                                                                                      \
  "{\"type\":\"RobertaProcessing\",\"sep\":[\"</s>\",2],\"cls\":[\"<s>\",0],\"trim_offsets\":true,"                  \
  "\"add_prefix_space\":true}"
#define BYTES             "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":false,\"use_regex\":true}"
#define SEQUENCE(members) "{\"type\":\"Sequence\",\"processors\":[" members "]}"

// clang-format off
static const struct { const char *json, *expected; } templates[] = {
    {"null", "|"},
    {BYTES, "|"},
    {TEMPLATE(A), "|"},
    {TEMPLATE(B "," A), "1 2 |"},
    {TEMPLATE(A "," E "," B), "|3 1 2 "},
    {TEMPLATE(E "," B "," A "," B "," E), "3 1 2 |1 2 3 "},
    {BERT, "4 |5 "},
    {ROBERTA, "0 |2 "},
    {SEQUENCE(BYTES "," TEMPLATE(B "," A)), "1 2 |"},
    {SEQUENCE(TEMPLATE(A "," E) "," BYTES), "|3 "},
    {SEQUENCE(""), "|"},
};

static const struct { const char *json, *message; } bad_templates[] = {
    {"[]", "a post_processor is no object"},
    {"{\"type\":\"Template\"}", "post_processor \"Template\" is not known"},
    {"{\"type\":\"TemplateProcessing\"}", "no list that holds a Sequence"},
    {TEMPLATE(B), "no list that holds a Sequence"},
    {TEMPLATE(A "," A), "other sequences than one \"A\""},
    {TEMPLATE("{\"Sequence\":{\"id\":\"B\"}}"), "other sequences than one \"A\""},
    {TEMPLATE(A ",{\"SpecialToken\":{\"id\":\"?\"}}"), "have no \"ids\" for \"?\""},
    {TEMPLATE(A ",7"), "neither a Sequence nor a SpecialToken"},
    {"{\"type\":\"TemplateProcessing\",\"single\":[" A "," B "],\"special_tokens\":{\"<s>\":{\"ids\":[-1]}}}", "no number from 0"},
    {"{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\"],\"cls\":[\"[CLS]\",4]}", "no number from 0"},
    {"{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",5],\"cls\":[\"[CLS]\",4],\"x\":1}", "has the member \"x\""},
    {"{\"type\":\"Sequence\",\"processors\":7}", "no list \"processors\""},
    {SEQUENCE(BERT "," ROBERTA), "more than one part that adds tokens"},
};
// clang-format on

static tr_status parse_template(const char *text, tr__template *out) {
  json_t *json = read_json(text);
  tr_status status = tr__template_parse(json, "test", out);
  json_decref(json);
  return status;
}

static void templates_put_their_tokens_around_a_sequence(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(templates); i++) {
    tr__template template;
    tr_text text = {0};
    if (parse_template(templates[i].json, &template) < 0) fail_msg("%s: %s", templates[i].json, tr_status_text());
    for (size_t k = 0; k < template.nbefore; k++) tr_text_append(&text, "%d ", template.before[k]);
    tr_text_append(&text, "|");
    for (size_t k = 0; k < template.nafter; k++) tr_text_append(&text, "%d ", template.after[k]);
    if (strcmp(text.data, templates[i].expected) != 0)
      fail_msg("%s: '%s', not '%s'", templates[i].json, text.data, templates[i].expected);
    tr_text_free(&text);
    tr__template_free(&template);
  }
}

static void templates_that_are_wrong_are_refused_by_name(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(bad_templates); i++) {
    tr__template template;
    tr_status status = parse_template(bad_templates[i].json, &template);
    if (status != TR_ERR_DATA || !strstr(tr_status_text(), bad_templates[i].message))
      fail_msg("%s: status %d, '%s' does not say '%s'", bad_templates[i].json, status, tr_status_text(),
               bad_templates[i].message);
    assert_null(template.before);
  }
}

static void use_template(const json_t *json) {
  tr__template template;
  if (tr__template_parse(json, "test", &template) == TR_OK) tr__template_free(&template);
}

static void spoiled_templates_do_no_harm(void **state) {
  (void)state;
  int used = 0;
  for (size_t i = 0; i < COUNT(templates); i++) used += mutate_json(templates[i].json, 500, use_template);
  assert_true(used > 500);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(decoders_do_what_the_library_does),
      cmocka_unit_test(no_tokens_decode_to_nothing),
      cmocka_unit_test(what_is_wrong_is_refused_by_name),
      cmocka_unit_test(spoiled_files_do_no_harm),
      cmocka_unit_test(spoiled_templates_do_no_harm),
      cmocka_unit_test(random_tokens_do_no_harm),
      cmocka_unit_test(templates_put_their_tokens_around_a_sequence),
      cmocka_unit_test(templates_that_are_wrong_are_refused_by_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
