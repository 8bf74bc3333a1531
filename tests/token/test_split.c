// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// The scanner cuts exactly as PCRE2 cuts with the pattern that it stands for; pre-tokenizers cut as the `tokenizers` library
// documents; patterns mean what Oniguruma means by them; hostile ones are refused or stopped.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "token/split_internal.h"
#include "trireme/base/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

// ---- the scanner against PCRE2

typedef struct twins {
  tr__pattern *pattern[TR__SCAN_QWEN2 + 1];
  tr__matcher *matcher;
  tr__classes *classes;
} twins;

static int setup(void **state) {
  twins *t = calloc(1, sizeof *t);
  assert_non_null(t);
  for (int kind = TR__SCAN_GPT2; kind <= TR__SCAN_QWEN2; kind++) {
    const char *regex = tr__scan_regex((tr__scan_kind)kind);
    assert_int_equal(tr__scan_known(regex, strlen(regex)), kind);
    assert_int_equal(tr__pattern_compile(regex, strlen(regex), "test", &t->pattern[kind]), TR_OK);
  }
  assert_int_equal(tr__matcher_create(&t->matcher), TR_OK);
  assert_int_equal(tr__classes_create(&t->classes), TR_OK);
  *state = t;
  return 0;
}

static int teardown(void **state) {
  twins *t = *state;
  for (int kind = TR__SCAN_GPT2; kind <= TR__SCAN_QWEN2; kind++) tr__pattern_free(t->pattern[kind]);
  tr__matcher_free(t->matcher);
  tr__classes_free(t->classes);
  free(t);
  return 0;
}

// Where the two part; nbyte: nowhere.
static size_t parting(const twins *t, int kind, const char *text, size_t nbyte) {
  tr__matcher_allow(t->matcher, tr__matcher_budget(nbyte));
  for (size_t at = 0; at < nbyte;) {
    size_t begin, end, scanned = tr__scan_next(t->classes, (tr__scan_kind)kind, text, nbyte, at);
    assert_int_equal(tr__pattern_find(t->pattern[kind], t->matcher, text, nbyte, at, &begin, &end), TR_OK);
    if (begin != at || end != scanned) return at;
    at = end;
  }
  return nbyte;
}

static void assert_same_cuts(const twins *t, const char *text, size_t nbyte) {
  for (int kind = TR__SCAN_GPT2; kind <= TR__SCAN_QWEN2; kind++) {
    size_t at = parting(t, kind, text, nbyte);
    if (at == nbyte) continue;
    for (size_t i = at; i < nbyte && i < at + 20; i++) print_message("%02x ", (unsigned char)text[i]);
    fail_msg("pattern %d: cut differently at %zu of %zu bytes", kind, at, nbyte);
  }
}

static void every_pair_and_triple_of_ascii_is_cut_alike(void **state) {
  const twins *t = *state;
  static char text[128 * 128 * 3 + 2];
  for (int a = 0; a < 128; a++) {
    size_t n = 0;
    for (int b = 0; b < 128; b++) {
      char pair[2] = {(char)a, (char)b};
      assert_same_cuts(t, pair, 2);
      for (int c = 0; c < 128; c++) {
        text[n++] = (char)a;
        text[n++] = (char)b;
        text[n++] = (char)c;
      }
    }
    assert_same_cuts(t, text, n);
  }
}

static void every_quadruple_of_a_few_kinds_is_cut_alike(void **state) {
  const twins *t = *state;
  static const char *const few[] = {"a", "S", "1", " ", "\n", "\r", "\t", "'", "!", "s", "\xC5\xBF", "\xE2\x80\x83"};
  enum { N = COUNT(few) };
  for (int i = 0; i < N * N * N * N; i++) {
    char text[16];
    int n =
        snprintf(text, sizeof text, "%s%s%s%s", few[i % N], few[i / N % N], few[i / N / N % N], few[i / N / N / N]);
    assert_same_cuts(t, text, (size_t)n);
  }
}

static uint64_t next_random(uint64_t *seed) {
  *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return *seed >> 33;
}

// PCRE2 and utf8proc know different versions of Unicode: what only one of them knows is no test of the scanner.
static int known_to_both(const twins *t, const tr__pattern *assigned, int32_t c) {
  char text[12];
  size_t n = tr__utf8_put(c, text), begin, end;
  assert_int_equal(tr__pattern_find(assigned, t->matcher, text, n, 0, &begin, &end), TR_OK);
  return (begin == 0) == (utf8proc_category(c) != UTF8PROC_CATEGORY_CN);
}

static void every_character_is_of_the_same_class(void **state) {
  const twins *t = *state;
  tr__pattern *assigned;
  int unknown = 0, unassigned = 0;
  assert_int_equal(tr__pattern_compile("\\P{Cn}", 6, "test", &assigned), TR_OK);
  for (int32_t c = 0x80; c < 0x110000; c += c >= 0x33480 && c < 0xDFFF0 ? 0x101 : 1) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    char character[5] = "", text[20];
    character[tr__utf8_put(c, character)] = '\0';
    int n = snprintf(text, sizeof text, "a%s1%s!%s ", character, character, character);
    if (c >= 0xE1000 && c % 0x83) continue;
    if (parting(t, TR__SCAN_GPT2, text, (size_t)n) == (size_t)n) continue;
    unknown++;
    if (known_to_both(t, assigned, c)) fail_msg("U+%04X is of another class", (unsigned)c);
  }
  for (int32_t c = 0x378; c <= 0x379; c++) unassigned += known_to_both(t, assigned, c);
  assert_int_equal(unassigned, 2);
  print_message("%d characters are known to only one of utf8proc and PCRE2\n", unknown);
  tr__pattern_free(assigned);
}

static int32_t random_character(uint64_t *seed) {
  static const int32_t nasty[] = {'\'',   'S',    's',    0x17F,   0x212A, 'K',    'L',    'l',    'R',      'e',
                                  'V',    'D',    'T',    'm',     ' ',    ' ',    ' ',    '\n',   '\r',     '\t',
                                  0x0B,   0x0C,   0x85,   0xA0,    0x1680, 0x180E, 0x2003, 0x2028, 0x2029,   0x200B,
                                  0x200D, 0x3000, 0xFEFF, 0xD7FF,  0xE000, 0xFFFF, 0xFFFD, 0x301,  0x10FFFF, 0x10000,
                                  0x660,  0xB2,   0x2160, 0x1F600, 0x4E00, 0x5D0,  0x1C5,  0x2B0,  0x1885,   0xE0100};
  uint64_t r = next_random(seed);
  switch (r % 4) {
  case 0: return nasty[r / 4 % COUNT(nasty)];
  case 1: return (int32_t)(r / 4 % 128);
  case 2: return (int32_t)(r / 4 % 0x3000);
  default: return (int32_t)(r / 4 % 0x110000);
  }
}

static void random_and_nasty_texts_are_cut_alike(void **state) {
  const twins *t = *state;
  tr__pattern *assigned;
  uint64_t seed = 7;
  assert_int_equal(tr__pattern_compile("\\P{Cn}", 6, "test", &assigned), TR_OK);
  for (int round = 0; round < 4000; round++) {
    char text[4 * 60];
    size_t n = 0, length = next_random(&seed) % 60;
    for (size_t i = 0; i < length; i++) {
      int32_t c = random_character(&seed);
      if ((c >= 0xD800 && c <= 0xDFFF) || !known_to_both(t, assigned, c)) continue;
      size_t times = next_random(&seed) % 16 ? 1 : 1 + next_random(&seed) % 5; // and runs
      while (times-- && n + 4 <= sizeof text) n += tr__utf8_put(c, text + n);
    }
    assert_same_cuts(t, text, n);
  }
  tr__pattern_free(assigned);
}

static void long_runs_are_cut_alike_in_one_pass(void **state) {
  const twins *t = *state;
  enum { N = 1 << 20 };
  static const char *const ends[] = {"", "a", "\n", "\n ", "\r\na", "!", "'s", "1"};
  char *text = malloc(N + 8);
  assert_non_null(text);
  for (int kind = 0; kind < 5; kind++) {
    memset(text, " \na!1"[kind], N);
    for (size_t e = 0; e < COUNT(ends); e++) {
      size_t n = N / (kind == 4 ? 64 : 1); // numbers are cut every three or one
      memcpy(text + n, ends[e], strlen(ends[e]));
      assert_same_cuts(t, text, n + strlen(ends[e]));
      memset(text + n, " \na!1"[kind], 8);
    }
  }
  free(text);
}

// ---- pre-tokenizers

typedef struct cut_row {
  const char *json, *text, *words; // words: with | between
} cut_row;

static tr_status parse(const char *text, tr__splitter **out) {
  json_t *json;
  TR_TRY(tr_json_parse(text, strlen(text), "test", &json));
  tr_status status = tr__splitter_parse(json, "test", out);
  json_decref(json);
  return status;
}

static void assert_words(const cut_row *row) {
  tr__splitter *splitter = NULL;
  tr__split_work work;
  tr_text got = {0};
  if (parse(row->json, &splitter) != TR_OK) fail_msg("%s: %s", row->json, tr_status_text());
  assert_int_equal(tr__split_work_init(&work), TR_OK);
  for (int again = 0; again < 2; again++) { // work is used again
    got.size = 0;
    tr_text_append(&got, "%s", "");
    assert_int_equal(tr__split(splitter, &work, row->text, strlen(row->text), 1), TR_OK);
    for (size_t i = 0; i < work.piece.size; i++) {
      tr__piece p = work.piece.data[i];
      tr_text_append(&got, "%s%.*s", i ? "|" : "", (int)(p.end - p.start), work.text + p.start);
    }
    if (strcmp(got.data, row->words) != 0)
      fail_msg("%s\n'%s'\n%s\nwanted %s", row->json, row->text, got.data, row->words);
  }
  tr_text_free(&got);
  tr__split_work_clear(&work);
  tr__splitter_free(splitter);
}

#define SPLIT(pattern, how, invert)                                                                                  \
  "{\"type\":\"Split\",\"pattern\":{" pattern "},\"behavior\":\"" how "\",\"invert\":" invert "}"
#define DASH            "\"String\":\"-\""
#define SEQUENCE(list)  "{\"type\":\"Sequence\",\"pretokenizers\":[" list "]}"
#define METASPACE(rest) "{\"type\":\"Metaspace\",\"replacement\":\"_\"" rest "}"

// clang-format off
static const cut_row cuts[] = {
    {SPLIT(DASH, "Removed", "false"), "the-final--countdown", "the|final|countdown"},
    {SPLIT(DASH, "Isolated", "false"), "the-final--countdown", "the|-|final|-|-|countdown"},
    {SPLIT(DASH, "MergedWithPrevious", "false"), "the-final--countdown", "the-|final-|-|countdown"},
    {SPLIT(DASH, "MergedWithNext", "false"), "the-final--countdown", "the|-final|-|-countdown"},
    {SPLIT(DASH, "Contiguous", "false"), "the-final--countdown", "the|-|final|--|countdown"},
    {SPLIT(DASH, "Removed", "true"), "the-final--countdown", "-|-|-"},
    {SPLIT("\"String\":\"\"", "Isolated", "false"), "ab c", "a|b| |c"},
    {SPLIT("\"String\":\"a.\"", "Isolated", "false"), "aba.c", "ab|a.|c"},
    {SPLIT("\"Regex\":\"x*\"", "Isolated", "false"), "axb", "a|x|b"},
    {SPLIT("\"Regex\":\"(?=\\\\s)\"", "Isolated", "false"), "a b c", "a| b| c"},
    {SPLIT("\"Regex\":\"a$\"", "Isolated", "false"), "a\na", "a|\n|a"},
    {SPLIT("\"Regex\":\"^b\"", "Isolated", "false"), "b\nb\n", "b|\n|b|\n"},
    {SPLIT("\"Regex\":\"a{1,2}+\"", "Isolated", "false"), "aaaab", "aaaa|b"},
    {SPLIT("\"Regex\":\"(?:ab){1,2}+c\"", "Isolated", "false"), "abababcd", "abababc|d"},
    {SPLIT("\"Regex\":\"a{,2}b\"", "Isolated", "false"), "aaab", "a|aab"},
    {SPLIT("\"Regex\":\"a++|(?i)b\"", "Isolated", "false"), "aaBb", "aa|B|b"},
    {SPLIT("\"Regex\":\"\\\\s++$\"", "Isolated", "false"), "a  \n b  \n", "a  \n b|  \n"},
    {SPLIT("\"Regex\":\"[^\\\\S\\n]+\"", "Isolated", "false"), "a  \n b", "a|  |\n| |b"},
    {SPLIT("\"Regex\":\"\\\\s\"", "Removed", "false"), "a\xE1\xA0\x8E" "b\xC2\x85" "c", "a\xE1\xA0\x8E" "b|c"}, // U+180E is none
    {SPLIT("\"Regex\":\"\\\\h+\"", "Isolated", "false"), "fez 09g", "fe|z |09|g"},
    {SPLIT("\"Regex\":\"\\\\w+\"", "Isolated", "false"), "a\xCC\x81_\xC2\xB2! b", "a\xCC\x81_\xC2\xB2|! |b"},
    {SPLIT("\"Regex\":\"[\\\\w]+\"", "Isolated", "false"), "a\xC2\xB2", "a|\xC2\xB2"},
    {SPLIT("\"Regex\":\"\\\\b\"", "Isolated", "false"), "!\xC2\xB2!a\xC2\xB2!", "!|\xC2\xB2|!|a\xC2\xB2|!"},
    {SPLIT("\"Regex\":\"\\\\bfoo\\\\b\"", "Isolated", "false"), "foo foo1 \xC3\xA9" "foo", "foo| foo1 \xC3\xA9" "foo"},
    {SPLIT("\"Regex\":\"(?m:a.b)\"", "Isolated", "false"), "xa\nb", "x|a\nb"},
    {SPLIT("\"Regex\":\"\\\\p{^L}|\\\\x{62}\"", "Isolated", "false"), "a1b", "a|1|b"},
    {SPLIT("\"Regex\":\"\\\\p{Han}+\"", "Isolated", "false"), "a\xE4\xB8\x80\xE3\x80\x81" "b", "a|\xE4\xB8\x80|\xE3\x80\x81" "b"},
    {SPLIT("\"Regex\":\"[]a]|{|a{x\"", "Isolated", "false"), "]b{", "]|b|{"},
    {SPLIT("\"Regex\":\"(?i:'s|'t)\"", "Isolated", "false"), "a'\xC5\xBF'S", "a|'\xC5\xBF|'S"},
    {METASPACE(""), "ab  cd _e", "_ab|_|_cd|_|_e"},
    {METASPACE(",\"add_prefix_space\":true"), " ab", "_ab"},
    {METASPACE(",\"prepend_scheme\":\"never\""), "ab cd", "ab|_cd"},
    {METASPACE(",\"prepend_scheme\":\"never\",\"add_prefix_space\":false"), "ab cd", "ab|_cd"},
    {METASPACE(",\"prepend_scheme\":\"never\",\"split\":false"), "ab cd", "ab_cd"},
    {SEQUENCE("{\"type\":\"WhitespaceSplit\"}," METASPACE(",\"prepend_scheme\":\"first\"")), "ab cd", "_ab|cd"},
    {SEQUENCE("{\"type\":\"WhitespaceSplit\"}," METASPACE(",\"prepend_scheme\":\"first\"")), " ab cd", "ab|cd"},
    {SEQUENCE("{\"type\":\"WhitespaceSplit\"}," METASPACE("")), "ab cd", "_ab|_cd"},
    {"{\"type\":\"Digits\",\"individual_digits\":true}", "a12b", "a|1|2|b"},
    {"{\"type\":\"Digits\",\"individual_digits\":false}", "a12b3", "a|12|b|3"},
    {"{\"type\":\"Punctuation\"}", "a!?b _", "a|!|?|b |_"},
    {"{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"}", "a!?b", "a|!?|b"},
    {"{\"type\":\"Punctuation\"}", "a\xE2\x80\xA6\xE2\xB9\x92" "b\xE1\x99\xAD", "a|\xE2\x80\xA6|\xE2\xB9\x92" "b|\xE1\x99\xAD"}, // as in Unicode 8
    {"{\"type\":\"Whitespace\"}", "a1_ b!?c", "a1_|b|!?|c"},
    {"{\"type\":\"WhitespaceSplit\"}", " a! b\n", "a!|b"},
    {"{\"type\":\"BertPreTokenizer\"}", "a!? b", "a|!|?|b"},
    {"{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"x\"}", "axbxx", "a|b"},
    {"{\"type\":\"FixedLength\",\"length\":2}", "a\xC3\xA9" "bcd", "a\xC3\xA9|bc|d"},
    {"{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true}", "it's  so", "it|'s| | so"},
    {"{\"type\":\"ByteLevel\",\"add_prefix_space\":true}", "a b", " a| b"},
    {"{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}", "a b", "a b"},
    {SEQUENCE("{\"type\":\"ByteLevel\",\"add_prefix_space\":true}," SPLIT("\"Regex\":\"\\u0120\"", "Removed", "false")), "a b\xC2\xA0", "a|b|\xC3\x82\xC5\x82"},
    {SEQUENCE(""), "a b", "a b"},
    {SEQUENCE(SPLIT(DASH, "Isolated", "false")), "", ""},
};
// clang-format on

static void pre_tokenizers_cut_as_they_are_documented(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(cuts); i++) assert_words(&cuts[i]);
}

static void known_patterns_are_scanned_only_where_that_is_the_same(void **state) {
  (void)state;
  static const struct {
    const char *behavior, *invert;
    int scanned;
  } rows[] = {{"Isolated", "false", 1},
              {"Isolated", "true", 1},
              {"Removed", "true", 1},
              {"Removed", "false", 0},
              {"Contiguous", "false", 0}};
  for (size_t i = 0; i < COUNT(rows); i++) {
    const tr__classes *classes;
    tr__splitter *splitter = NULL;
    json_t *json =
        json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex", tr__scan_regex(TR__SCAN_LLAMA3),
                  "behavior", rows[i].behavior, "invert", rows[i].invert[0] == 't');
    assert_non_null(json);
    assert_int_equal(tr__splitter_parse(json, "test", &splitter), TR_OK);
    assert_int_equal(tr__splitter_scan(splitter, &classes), rows[i].scanned ? TR__SCAN_LLAMA3 : TR__SCAN_NONE);
    tr__splitter_free(splitter);
    json_decref(json);
  }
}

static const struct {
  const char *json, *message;
} bad[] = {
    {"[]", "no object"},
    {"{\"type\":\"Splat\"}", "'Splat' is not supported"},
    {"{\"type\":\"Digits\"}", "individual_digits"},
    {"{\"type\":\"Whitespace\",\"x\":1}", "\"x\""},
    {SPLIT(DASH, "Somehow", "false"), "'Somehow' is not known"},
    {"{\"type\":\"Split\",\"pattern\":\"a\",\"behavior\":\"Isolated\",\"invert\":false}", "neither"},
    {METASPACE(",\"add_prefix_space\":false,\"prepend_scheme\":\"first\""), "add_prefix_space is false"},
    {METASPACE(",\"prepend_scheme\":\"x\""), "'x' is not known"},
    {"{\"type\":\"Metaspace\",\"replacement\":\"ab\"}", "one character"},
    {"{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"\"}", "one character"},
    {"{\"type\":\"FixedLength\",\"length\":0}", "at least 1"},
    {"{\"type\":\"Sequence\"}", "pretokenizers"},
    {SEQUENCE(SEQUENCE(SEQUENCE(SEQUENCE(SEQUENCE(SEQUENCE(SEQUENCE(SEQUENCE(SEQUENCE(SEQUENCE("")))))))))),
     "nested too deeply"},
    {SPLIT("\"Regex\":\"a(\"", "Isolated", "false"), "pattern 'a('"},
    {SPLIT("\"Regex\":\"a)\"", "Isolated", "false"), "a ) too many"},
    {SPLIT("\"Regex\":\"[a[b]]\"", "Isolated", "false"), "class inside a class"},
    {SPLIT("\"Regex\":\"[a&&b]\"", "Isolated", "false"), "intersection"},
    {SPLIT("\"Regex\":\"[a\"", "Isolated", "false"), "without an end"},
    {SPLIT("\"Regex\":\"[\\\\W]\"", "Isolated", "false"), "escape"},
    {SPLIT("\"Regex\":\"(?~ab)\"", "Isolated", "false"), "group of this kind"},
    {SPLIT("\"Regex\":\"(*LIMIT_MATCH=9)a\"", "Isolated", "false"), "starts with *"},
    {SPLIT("\"Regex\":\"a\\\\\"", "Isolated", "false"), "backslash"},
    {SPLIT("\"Regex\":\"\\\\C\"", "Isolated", "false"), "escape"},
    {SPLIT("\"Regex\":\"\\\\p{Nonsense}\"", "Isolated", "false"), "Nonsense"},
    {SPLIT("\"Regex\":\"\\\\pL\"", "Isolated", "false"), "without {}"},
    {SPLIT("\"Regex\":\"a{2}?\"", "Isolated", "false"), "{n}?"},
    {SPLIT("\"Regex\":\"a\\u0000\"", "Isolated", "false"), ""},
};

static void what_is_not_understood_is_refused_by_name(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(bad); i++) {
    tr__splitter *splitter = NULL;
    tr_status status = parse(bad[i].json, &splitter);
    if (status != TR_ERR_DATA) fail_msg("%s: status %d", bad[i].json, status);
    if (!strstr(tr_status_text(), bad[i].message)) fail_msg("%s: '%s'", bad[i].json, tr_status_text());
  }
}

static void hostile_patterns_are_stopped(void **state) {
  const twins *t = *state;
  tr__pattern *pattern;
  size_t begin, end;
  char text[40];
  memset(text, 'a', sizeof text);
  text[sizeof text - 1] = '!';
  assert_int_equal(tr__pattern_compile("(a+)+$", 6, "file", &pattern), TR_OK);
  assert_int_equal(tr__pattern_find(pattern, t->matcher, text, sizeof text, 0, &begin, &end), TR_ERR_DATA);
  assert_non_null(strstr(tr_status_text(), "(a+)+$"));
  assert_int_equal(tr__pattern_next(pattern, text, sizeof text, 0, &begin, &end), TR_ERR_DATA);
  tr__pattern_free(pattern);
}

// Every match is within its limits; all of them together, or one that tries every place, would take hours.
static void patterns_that_scan_again_and_again_are_stopped(void **state) {
  (void)state;
  static const char *const regex[] = {"a*x|a",        "[ab]*x|.", "\\\\p{L}*\\\\d|\\\\p{L}", "a+(?=x)|a",
                                      "a{1,9999}x|a", "a*[xy]",   "(?:a*b|a)*[xy]",          "a*a*[xy]"};
  enum { N = 400000 };
  char json[200], *text = malloc(N);
  assert_non_null(text);
  memset(text, 'a', N);
  for (size_t i = 0; i < COUNT(regex); i++) {
    tr__splitter *splitter = NULL;
    tr__split_work work;
    snprintf(json, sizeof json, SPLIT("\"Regex\":\"%s\"", "Isolated", "false"), regex[i]);
    assert_int_equal(parse(json, &splitter), TR_OK);
    assert_int_equal(tr__split_work_init(&work), TR_OK);
    tr__matcher_allow(work.matcher, 50000000);
    tr_status status = tr__split(splitter, &work, text, N, 1);
    if (status != TR_ERR_DATA || !strstr(tr_status_text(), "takes too long with this text") ||
        !strstr(tr_status_text(), "of 400000"))
      fail_msg("%s: %d %s", regex[i], status, tr_status_text());
    tr__matcher_allow(work.matcher, 50000000);
    assert_int_equal(tr__split(splitter, &work, "aa", 2, 1), TR_OK);
    tr__split_work_clear(&work);
    tr__splitter_free(splitter);
  }
  free(text);
}

// Each repetition keeps something on the stack of compiled code, which is too small for this many.
static void a_full_stack_is_no_error_when_the_limits_allow_more(void **state) {
  const twins *t = *state;
  enum { N = 100000 };
  tr__pattern *pattern;
  size_t begin, end;
  char *text = malloc(2 * N);
  assert_non_null(text);
  for (int i = 0; i < 2 * N; i++) text[i] = i % 2 ? 'b' : 'a';
  assert_int_equal(tr__pattern_compile("(?:(ab)|(a))*", 13, "file", &pattern), TR_OK);
  assert_int_equal(tr__pattern_find(pattern, t->matcher, text, 2 * N, 0, &begin, &end), TR_OK);
  assert_int_equal(begin, 0);
  assert_int_equal(end, 2 * N);
  tr__pattern_free(pattern);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_pair_and_triple_of_ascii_is_cut_alike),
      cmocka_unit_test(every_quadruple_of_a_few_kinds_is_cut_alike),
      cmocka_unit_test(every_character_is_of_the_same_class),
      cmocka_unit_test(random_and_nasty_texts_are_cut_alike),
      cmocka_unit_test(long_runs_are_cut_alike_in_one_pass),
      cmocka_unit_test(pre_tokenizers_cut_as_they_are_documented),
      cmocka_unit_test(known_patterns_are_scanned_only_where_that_is_the_same),
      cmocka_unit_test(what_is_not_understood_is_refused_by_name),
      cmocka_unit_test(hostile_patterns_are_stopped),
      cmocka_unit_test(patterns_that_scan_again_and_again_are_stopped),
      cmocka_unit_test(a_full_stack_is_no_error_when_the_limits_allow_more),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
