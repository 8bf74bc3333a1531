// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// JSON members are read by type, and a wrong file, key or type is refused by name.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/json.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

static const char document[] = "{\"layers\": 12, \"eps\": 1e-5, \"whole\": 64.0, \"tied\": true, \"kind\": \"gpt2\","
                               " \"none\": null, \"list\": [1], \"map\": {}, \"half\": 0.5, \"huge\": 1e300}";

static json_t *parsed(const char *text) {
  json_t *root = NULL;
  if (tr_json_parse(text, strlen(text), "config.json", &root) != TR_OK) fail_msg("%s", tr_status_text());
  return root;
}

static void members_are_read_by_type(void **state) {
  (void)state;
  json_t *root = parsed(document);
  int64_t layers = 0, whole = 0;
  double eps = 0, layers_as_real = 0;
  int tied = 0;
  const char *kind = NULL;
  assert_int_equal(tr_json_get_int(root, "c", "layers", 1, &layers), TR_OK);
  assert_int_equal(tr_json_get_int(root, "c", "whole", 1, &whole), TR_OK);
  assert_int_equal(tr_json_get_real(root, "c", "eps", 1, &eps), TR_OK);
  assert_int_equal(tr_json_get_real(root, "c", "layers", 1, &layers_as_real), TR_OK);
  assert_int_equal(tr_json_get_bool(root, "c", "tied", 1, &tied), TR_OK);
  assert_int_equal(tr_json_get_string(root, "c", "kind", 1, &kind), TR_OK);
  assert_int_equal(layers, 12);
  assert_int_equal(whole, 64);
  assert_true(eps == 1e-5 && layers_as_real == 12 && tied == 1);
  assert_string_equal(kind, "gpt2");
  json_decref(root);
}

static void optional_members_may_be_absent_or_null(void **state) {
  (void)state;
  json_t *root = parsed(document);
  int64_t count = 7;
  double real = 0.5;
  int yes = 3;
  const char *text = "kept";
  assert_int_equal(tr_json_get_int(root, "c", "absent", 0, &count), TR_OK);
  assert_int_equal(tr_json_get_int(root, "c", "none", 0, &count), TR_OK);
  assert_int_equal(tr_json_get_real(root, "c", "none", 0, &real), TR_OK);
  assert_int_equal(tr_json_get_bool(root, "c", "absent", 0, &yes), TR_OK);
  assert_int_equal(tr_json_get_string(root, "c", "none", 0, &text), TR_OK);
  assert_true(count == 7 && real == 0.5 && yes == 3);
  assert_string_equal(text, "kept");
  json_decref(root);
}

static void wrong_types_are_refused_by_name(void **state) {
  static const struct {
    char wanted; // i r b s
    int required;
    const char *key, *message;
    tr_status status;
  } row[] = {
      {'i', 1, "absent", "config.json: key \"absent\" is missing, wanted an integer", TR_ERR_DATA},
      {'i', 1, "none", "config.json: key \"none\" is null, wanted an integer", TR_ERR_DATA},
      {'i', 0, "kind", "config.json: key \"kind\" is a string, wanted an integer", TR_ERR_DATA},
      {'i', 1, "half", "config.json: key \"half\" is a real number, wanted an integer", TR_ERR_DATA},
      {'i', 1, "huge", "config.json: key \"huge\" is a real number, wanted an integer", TR_ERR_DATA},
      {'r', 1, "tied", "config.json: key \"tied\" is a boolean, wanted a number", TR_ERR_DATA},
      {'r', 1, "list", "config.json: key \"list\" is an array, wanted a number", TR_ERR_DATA},
      {'b', 1, "layers", "config.json: key \"layers\" is an integer, wanted a boolean", TR_ERR_DATA},
      {'s', 1, "map", "config.json: key \"map\" is an object, wanted a string", TR_ERR_DATA},
  };
  (void)state;
  json_t *root = parsed(document);
  for (size_t i = 0; i < COUNT(row); i++) {
    int64_t count;
    double real;
    int yes;
    const char *text, *key = row[i].key;
    tr_status status = row[i].wanted == 'i'   ? tr_json_get_int(root, "config.json", key, row[i].required, &count)
                       : row[i].wanted == 'r' ? tr_json_get_real(root, "config.json", key, row[i].required, &real)
                       : row[i].wanted == 'b' ? tr_json_get_bool(root, "config.json", key, row[i].required, &yes)
                                              : tr_json_get_string(root, "config.json", key, row[i].required, &text);
    assert_int_equal(status, row[i].status);
    assert_string_equal(tr_status_text(), row[i].message);
  }
  int64_t count;
  assert_int_equal(tr_json_get_int(json_object_get(root, "list"), "config.json", "a", 1, &count), TR_ERR_DATA);
  assert_string_equal(tr_status_text(), "config.json: found an array, wanted an object with the key \"a\"");
  assert_int_equal(tr_json_get_int(NULL, "config.json", "a", 0, &count), TR_ERR_DATA);
  json_decref(root);
}

static void mark_before_utf_8_is_passed_over(void **state) {
  static const char text[] = "\xef\xbb\xbf{\"a\": 1}";
  (void)state;
  json_t *root = NULL;
  assert_int_equal(tr_json_parse(text, sizeof text - 1, "config.json", &root), TR_OK);
  assert_int_equal(json_integer_value(json_object_get(root, "a")), 1);
  json_decref(root);
}

static void bad_documents_are_refused_with_their_place(void **state) {
  static const struct {
    const char *text, *message;
    tr_status status;
  } row[] = {
      {"", "config.json:1:0: not valid JSON: '[' or '{' expected", TR_ERR_DATA},
      {"{\"a\": 1,\n \"a\": 2}", "config.json:2:4: not valid JSON: duplicate object key", TR_ERR_DATA},
      {"{\"a\": 1", "config.json:1:7: not valid JSON", TR_ERR_DATA},
      {"{} {}", "config.json:1:4: not valid JSON: end of file expected", TR_ERR_DATA},
      {"{\"a\": 99999999999999999999}", "not valid JSON: too big integer", TR_ERR_DATA},
      {"{\"a\": nan}", "not valid JSON: invalid token", TR_ERR_DATA},
      {"[\"\xff\"]", "not valid JSON: unable to decode byte 0xff", TR_ERR_DATA},
      {"12", "not valid JSON: '[' or '{' expected", TR_ERR_DATA},
      {"[\"a\\u0000\"]", "config.json:1:10: not valid JSON: a zero byte in a string is not allowed", TR_ERR_DATA},
      {"{\"\\u0000\": 1}", "not valid JSON: a zero byte in a string is not allowed", TR_ERR_DATA},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(row); i++) {
    json_t *root = NULL;
    assert_int_equal(tr_json_parse(row[i].text, strlen(row[i].text), "config.json", &root), row[i].status);
    if (!strstr(tr_status_text(), row[i].message)) fail_msg("row %zu: %s", i, tr_status_text());
    assert_null(root);
  }
}

static void endless_nesting_is_refused(void **state) {
  (void)state;
  static char deep[100000];
  memset(deep, '[', sizeof deep);
  json_t *root = NULL;
  assert_int_equal(tr_json_parse(deep, sizeof deep, "deep.json", &root), TR_ERR_DATA);
  assert_non_null(strstr(tr_status_text(), "maximum parsing depth reached"));
}

static void files_are_loaded_within_their_limit(void **state) {
  (void)state;
  char path[] = "/tmp/trireme-json-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, document, sizeof document - 1), (long)sizeof document - 1);
  close(fd);
  json_t *root = NULL;
  assert_int_equal(tr_json_load(path, 1 << 20, &root), TR_OK);
  assert_int_equal(json_object_size(root), 10);
  json_decref(root);
  assert_true(tr_json_load(path, 10, &root) < 0);
  unlink(path);
  assert_int_equal(tr_json_load(path, 10, &root), TR_ERR_IO);
  assert_non_null(strstr(tr_status_text(), path));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(members_are_read_by_type),
      cmocka_unit_test(optional_members_may_be_absent_or_null),
      cmocka_unit_test(wrong_types_are_refused_by_name),
      cmocka_unit_test(mark_before_utf_8_is_passed_over),
      cmocka_unit_test(bad_documents_are_refused_with_their_place),
      cmocka_unit_test(endless_nesting_is_refused),
      cmocka_unit_test(files_are_loaded_within_their_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
