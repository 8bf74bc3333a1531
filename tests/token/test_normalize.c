// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Every normalizer does what the `tokenizers` library does (expected texts are that library's); what is wrong in a file is
// refused by name; precompiled maps cannot be made to read outside themselves; long runs of marks take linear time.
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

static tr_status parse(const char *text, tr__normalizer **out) {
  json_t *json = NULL;
  *out = NULL;
  if (strcmp(text, "null") != 0) assert_int_equal(tr_json_parse(text, strlen(text), "test", &json), TR_OK);
  tr_status status = tr__normalizer_parse(json, "test", out);
  json_decref(json);
  return status;
}

static tr__normalizer *parse_good(const char *text) {
  tr__normalizer *normalizer;
  if (parse(text, &normalizer) < 0) fail_msg("%s: %s", text, tr_status_text());
  return normalizer;
}

// ---- texts

// clang-format off
static const struct { const char *json, *text, *expected; } rows[] = {
    {"{\"type\":\"NFC\"}", "e\u0301 A\u030A \u212B \u1100\u1161\u11A8 q\u0307\u0323 \uFB01", "\u00E9 \u00C5 \u00C5 \uAC01 q\u0323\u0307 \uFB01"},
    {"{\"type\":\"NFD\"}", "\u00E9 \uAC01 \u1EB9\u0301", "e\u0301 \u1100\u1161\u11A8 e\u0323\u0301"},
    {"{\"type\":\"NFKC\"}", "\uFB01 \u00BD \uFF21 \u3392 x\u0301", "fi 1\u20442 A MHz x\u0301"},
    {"{\"type\":\"NFKD\"}", "\uFDFA", "\u0635\u0644\u0649 \u0627\u0644\u0644\u0647 \u0639\u0644\u064A\u0647 \u0648\u0633\u0644\u0645"},
    {"{\"type\":\"NFC\"}", "", ""},
    {"{\"type\":\"NFC\"}", "\u0301", "\u0301"},
    {"{\"type\":\"NFC\"}", "plain", "plain"},
    {"{\"type\":\"NFC\"}", "a\u0338b=\u0338c", "a\u0338b\u2260c"},
    {"{\"type\":\"Lowercase\"}", "ABC \u0130\u03A3 \u1E9E \u00C9", "abc i\u0307\u03C3 \u00DF \u00E9"},
    {"{\"type\":\"StripAccents\"}", "e\u0301\u0903\u20DD \u00E9", "e \u00E9"},
    {"{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}", " \t\u3000a b\u00A0\n", "a b"},
    {"{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true}", " a ", " a"},
    {"{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":false}", " a ", "a "},
    {"{\"type\":\"Strip\"}", " \n ", ""},
    {"{\"type\":\"Prepend\",\"prepend\":\"\u2581\"}", "a", "\u2581" "a"},
    {"{\"type\":\"Prepend\",\"prepend\":\"\u2581\"}", "", ""},
    {"{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"}", " a  b", "\u2581" "a\u2581\u2581" "b"},
    {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"aa\"},\"content\":\"\"}", "aaaaa", "a"},
    {"{\"type\":\"Replace\",\"pattern\":{\"String\":\".\"},\"content\":\"..\"}", "a.b.", "a..b.."},
    {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"}", "a   b c  ", "a b c "},
    {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x*\"},\"content\":\"-\"}", "axxb", "-a-b-"},
    {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x*\"},\"content\":\"-\"}", "", ""},
    {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"^a\"},\"content\":\"-\"}", "a\na", "-\n-"},
    {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"5 $\"}", "a", "5 $"},
    {"{\"type\":\"Nmt\"}", "a\tb\x01\x7F\u200B\uFEFF\u2028\uFFFD\u2581\xC2\x8F" "c\x0B", "a b     c"},
    {"{\"type\":\"ByteLevel\"}", "a \u00E9\n", "a\u0120\u00C3\u00A9\u010A"},
    {"{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,\"strip_accents\":null,\"lowercase\":true}",
     "\u00C9t\u00E9\u6C34A\t\x01\uFFFD\u200B\u00A0z", "ete \u6C34 a  z"},
    {"{\"type\":\"BertNormalizer\",\"clean_text\":false,\"handle_chinese_chars\":false,\"strip_accents\":false,\"lowercase\":true}",
     "\u00C9\t\u6C34", "\u00E9\t\u6C34"},
    {"{\"type\":\"BertNormalizer\",\"lowercase\":false}", "\u00C9", "\u00C9"},
    {"{\"type\":\"Sequence\",\"normalizers\":[]}", "as it is", "as it is"},
    {"{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFD\"},{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"StripAccents\"},"
     "{\"type\":\"Lowercase\"}]},{\"type\":\"Prepend\",\"prepend\":\">\"}]}", "\u00C9A", ">ea"},
    {"null", "as it is", "as it is"},
};
// clang-format on

static void normalizers_do_what_the_library_does(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(rows); i++) {
    tr__normalizer *normalizer = parse_good(rows[i].json);
    tr_text out = {0};
    tr_text_append(&out, "before ");
    assert_int_equal(tr__normalize(normalizer, rows[i].text, strlen(rows[i].text), &out), TR_OK);
    if (strcmp(out.data + 7, rows[i].expected) != 0)
      fail_msg("%s: '%s' became '%s', not '%s'", rows[i].json, rows[i].text, out.data + 7, rows[i].expected);
    tr_text_free(&out);
    tr__normalizer_free(normalizer);
  }
}

// clang-format off
static const struct { const char *json, *message; } bad[] = {
    {"[]", "a normalizer is no object"},
    {"{}", "has no \"type\""},
    {"{\"type\":7}", "has no \"type\""},
    {"{\"type\":\"NFX\"}", "normalizer \"NFX\" is not known"},
    {"{\"type\":\"NFC\",\"form\":1}", "has the member \"form\""},
    {"{\"type\":\"Sequence\"}", "no list \"normalizers\""},
    {"{\"type\":\"Sequence\",\"normalizers\":[null]}", "a normalizer is no object"},
    {"{\"type\":\"Strip\",\"strip_left\":1}", "strip_left"},
    {"{\"type\":\"Prepend\"}", "\"prepend\" is no string"},
    {"{\"type\":\"Replace\",\"pattern\":\" \",\"content\":\"\"}", "neither {\"String\""},
    {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\",\"Regex\":\"b\"},\"content\":\"\"}", "neither {\"String\""},
    {"{\"type\":\"Replace\",\"pattern\":{\"String\":7},\"content\":\"\"}", "\"String\" is no string"},
    {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}", "replaces the empty string"},
    {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"}}", "\"content\" is no string"},
    {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}", "pattern '('"},
    {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(a)\"},\"content\":\"$1\"}", "by groups"},
    {"{\"type\":\"Precompiled\"}", "\"precompiled_charsmap\" is no string"},
    {"{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"\"}", "has 0 bytes"},
    {"{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAA\"}", "is not base64"},
    {"{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AA*A\"}", "is not base64"},
    {"{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"A=AA\"}", "is not base64"},
    {"{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAAAA==\"}", "says that 0 are its trie"},
    {"{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"CAAAAAAAAAA=\"}", "has 8 bytes and says that 8"},
    {"{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"BAAAAAAFAAA=\"}", "leads to unit 1 of 1"},
    {"{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"CAAAAAAFAAAJAACA\"}", "replacement at 9 of 0 bytes"},
    {"{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"CAAAAAAFAAABAACAw6k=\"}", "replacement at 1 of 2 bytes"},
    {"{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"BAAAAAAAAACp\"}", "are not UTF-8 at byte 0"},
};
// clang-format on

static void what_is_wrong_is_refused_by_name(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(bad); i++) {
    tr__normalizer *normalizer;
    tr_status status = parse(bad[i].json, &normalizer);
    if (status != TR_ERR_DATA || !strstr(tr_status_text(), bad[i].message))
      fail_msg("%s: status %d, '%s' does not say '%s'", bad[i].json, status, tr_status_text(), bad[i].message);
  }
}

static void use(const json_t *json) {
  static const char text[] = "e\u0301 A\u00C5  \u3000x\n";
  tr__normalizer *normalizer;
  tr_text out = {0};
  if (tr__normalizer_parse(json, "test", &normalizer) < 0) return;
  (void)tr__normalize(normalizer, text, sizeof text, &out); // with its zero byte
  tr_text_free(&out);
  tr__normalizer_free(normalizer);
}

static void spoiled_files_do_no_harm(void **state) {
  (void)state;
  int used = 0;
  for (size_t i = 0; i < COUNT(rows); i++) used += mutate_json(rows[i].json, 300, use);
  assert_true(used > 1000);
}

static char *repeated(const char *unit, size_t n, size_t *nbyte) {
  size_t length = strlen(unit);
  char *text = malloc(n * length + 1);
  assert_non_null(text);
  for (size_t i = 0; i < n; i++) memcpy(text + i * length, unit, length);
  text[n * length] = '\0';
  *nbyte = n * length;
  return text;
}

static void sequences_are_limited_in_depth_and_length(void **state) {
  (void)state;
  tr_text json = {0};
  tr__normalizer *normalizer;
  for (int i = 0; i < 12; i++) tr_text_append(&json, "{\"type\":\"Sequence\",\"normalizers\":[");
  for (int i = 0; i < 12; i++) tr_text_append(&json, "]}");
  assert_int_equal(parse(json.data, &normalizer), TR_ERR_DATA);
  assert_non_null(strstr(tr_status_text(), "deeper than 8"));
  json.size = 0;
  tr_text_append(&json, "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}");
  for (int i = 0; i < 64; i++) tr_text_append(&json, ",{\"type\":\"NFC\"}");
  tr_text_append(&json, "]}");
  assert_int_equal(parse(json.data, &normalizer), TR_ERR_DATA);
  assert_non_null(strstr(tr_status_text(), "more than 64 steps"));
  tr_text_free(&json);
}

static void a_text_cannot_be_made_to_fill_memory(void **state) {
  (void)state;
  tr_text json = {0}, out = {0};
  tr_text_append(&json, "{\"type\":\"Sequence\",\"normalizers\":[");
  for (int i = 0; i < 40; i++)
    tr_text_append(&json, "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaa\"}",
                   i ? "," : "");
  tr_text_append(&json, "]}");
  tr__normalizer *normalizer = parse_good(json.data);
  assert_int_equal(tr__normalize(normalizer, "a", 1, &out), TR_ERR_DATA);
  assert_non_null(strstr(tr_status_text(), "of a text of"));
  tr__normalizer_free(normalizer);
  tr_text_free(&json);
  tr_text_free(&out);
}

// A sort that takes the square of their number would take hours.
static void a_million_marks_on_one_letter_are_put_in_order(void **state) {
  (void)state;
  size_t nbyte;
  char *marks = repeated("\u0301\u0323", 500000, &nbyte);
  tr__normalizer *normalizer = parse_good("{\"type\":\"NFD\"}");
  tr_text out = {0};
  assert_int_equal(tr__normalize(normalizer, marks, nbyte, &out), TR_OK);
  assert_int_equal(out.size, nbyte);
  for (size_t i = 0; i < nbyte; i += 2) assert_memory_equal(out.data + i, i < nbyte / 2 ? "\u0323" : "\u0301", 2);
  tr__normalizer_free(normalizer);
  tr_text_free(&out);
  free(marks);
}

// Runs long enough for either way of sorting keep marks of one class in their order.
static void marks_of_one_class_keep_their_order(void **state) {
  (void)state;
  tr__normalizer *normalizer = parse_good("{\"type\":\"NFD\"}");
  for (size_t n = 1; n < 200; n = n * 3 + 1) {
    size_t nbyte;
    char *marks = repeated("\u0301\u0323\u0300\u0324", n, &nbyte); // classes 230 220 230 220
    tr_text out = {0};
    assert_int_equal(tr__normalize(normalizer, marks, nbyte, &out), TR_OK);
    assert_int_equal(out.size, nbyte);
    for (size_t i = 0; i < 2 * n; i++) {
      assert_memory_equal(out.data + 2 * i, i % 2 ? "\u0324" : "\u0323", 2);
      assert_memory_equal(out.data + 2 * (2 * n + i), i % 2 ? "\u0300" : "\u0301", 2);
    }
    tr_text_free(&out);
    free(marks);
  }
  tr__normalizer_free(normalizer);
}

// ---- precompiled maps

static void base64(const unsigned char *data, size_t nbyte, char *out) {
  static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < nbyte; i += 3) {
    uint32_t bits = (uint32_t)data[i] << 16 | (i + 1 < nbyte ? (uint32_t)data[i + 1] << 8 : 0) |
                    (i + 2 < nbyte ? data[i + 2] : 0);
    for (int k = 0; k < 4; k++) *out++ = i + (size_t)k > nbyte ? '=' : digit[bits >> (18 - 6 * k) & 63];
  }
  *out = '\0';
}

static tr_status parse_map(const uint32_t *unit, size_t nunit, const char *text, size_t ntext, tr__normalizer **out) {
  static unsigned char bytes[8192];
  static char encoded[12288], json[13000];
  for (size_t i = 0; i < nunit + 1; i++) {
    uint32_t value = i ? unit[i - 1] : (uint32_t)(4 * nunit);
    for (int k = 0; k < 4; k++) bytes[4 * i + (size_t)k] = (unsigned char)(value >> 8 * k);
  }
  memcpy(bytes + 4 + 4 * nunit, text, ntext);
  base64(bytes, 4 + 4 * nunit + ntext, encoded);
  snprintf(json, sizeof json, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"%s\"}", encoded);
  return parse(json, out);
}

// The map "e" + U+0301 -> "E", "x" -> "", by hand: a unit is offset << 10 | ends << 8 | label.
static void a_precompiled_map_replaces_graphemes_then_characters(void **state) {
  (void)state;
  enum { LEAF = 1 << 8, NUNIT = 1024 };
  static uint32_t unit[NUNIT];
  const uint32_t base = 256, after_e = 512, after_cc = 768;
  unit[0] = base << 10;
  unit[base ^ 'e'] = (base ^ 'e' ^ after_e) << 10 | 'e';
  unit[after_e ^ 0xCC] = (after_e ^ 0xCC ^ after_cc) << 10 | 0xCC;
  unit[after_cc ^ 0x81] = (after_cc ^ 0x81 ^ 900u) << 10 | LEAF | 0x81;
  unit[900] = 1u << 31 | 0;
  unit[base ^ 'x'] = (base ^ 'x' ^ 901u) << 10 | LEAF | 'x';
  unit[901] = 1u << 31 | 1; // the zero byte after "E": nothing
  tr__normalizer *map;
  assert_int_equal(parse_map(unit, NUNIT, "E\0", 2, &map), TR_OK);
  static const char *const pair[][2] = {
      {"e", "e"},
      {"e\u0301", "E"},
      {"ae\u0301x\u0301xe", "aE"
                            "e"}, // x with its mark is one grapheme, replaced whole
      {"e\u0301\u0301x", "E"},    // the shortest beginning stands for the whole grapheme of 5 bytes
      {"e\u0301\u0301\u0301", "e\u0301\u0301\u0301"}, // 7 bytes: by characters, of which none is in the map
      {"", ""},
  };
  for (size_t i = 0; i < COUNT(pair); i++) {
    tr_text out = {0};
    tr_text_append(&out, "%s", "");
    assert_int_equal(tr__normalize(map, pair[i][0], strlen(pair[i][0]), &out), TR_OK);
    assert_string_equal(out.data, pair[i][1]);
    tr_text_free(&out);
  }
  tr__normalizer_free(map);
}

// Units with children at a multiple of 256, so that labels fit and walks go on, some wild ones, and some values.
static void random_units(uint32_t seed, uint32_t *unit, uint32_t nunit) {
  for (uint32_t i = 0; i < nunit; i++) {
    uint32_t random[4];
    tr_philox4x32((uint32_t[2]){seed, 0}, (uint32_t[4]){i, 0, 0, 0}, random);
    uint32_t offset = i ^ (random[1] % 4 << 8);
    unit[i] = offset << 10 | (i & 0xFF);
    if (i % 256 == 0 && i > 0) unit[i] = 1u << 31 | random[1] % 4;
    if (random[2] % 64 == 0) unit[i] |= 1u << 8;
    if (random[3] % 100 == 0) unit[i] = random[0] & ~(1u << 8);
  }
}

static void random_maps_stay_inside_themselves(void **state) {
  (void)state;
  static uint32_t unit[700];
  static const char text[] = "E\0long replacement\0";
  char all[256];
  size_t n = 0;
  int taken = 0;
  for (int c = 0; c < 128; c++) all[n++] = (char)c;
  memcpy(all + n, "\u00E9\u0301\U0001F600", 8);
  for (uint32_t seed = 0; seed < 2000; seed++) {
    random_units(seed, unit, COUNT(unit));
    tr__normalizer *map;
    if (parse_map(unit, COUNT(unit), text, sizeof text - 1, &map) < 0) continue;
    tr_text out = {0};
    assert_int_equal(tr__normalize(map, all, n + 8, &out), TR_OK);
    taken += out.size != n + 8;
    tr_text_free(&out);
    tr__normalizer_free(map);
  }
  assert_true(taken > 0); // some were not refused, and replaced something
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(normalizers_do_what_the_library_does),
      cmocka_unit_test(what_is_wrong_is_refused_by_name),
      cmocka_unit_test(spoiled_files_do_no_harm),
      cmocka_unit_test(sequences_are_limited_in_depth_and_length),
      cmocka_unit_test(a_text_cannot_be_made_to_fill_memory),
      cmocka_unit_test(a_million_marks_on_one_letter_are_put_in_order),
      cmocka_unit_test(marks_of_one_class_keep_their_order),
      cmocka_unit_test(a_precompiled_map_replaces_graphemes_then_characters),
      cmocka_unit_test(random_maps_stay_inside_themselves),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
