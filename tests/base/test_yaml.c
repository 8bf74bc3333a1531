// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Run files become trees with a place for every value; everything a run file must not hold is refused with
// the place and what would work; damaged files never do worse than an error.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/text.h"
#include "trireme/base/yaml.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

static const char run_file[] = "# a run\n"
                               "model: gpt2\n"
                               "optim:\n"
                               "  lr: 6e-4\n"
                               "  name: \"adam w\"\n"
                               "  betas: [0.9, 0.95]\n"
                               "data:\n"
                               "  - path: a.bin\n"
                               "    weight: 2\n"
                               "  - path: 'b.bin'\n"
                               "note: |\n"
                               "  two\n"
                               "  lines\n"
                               "empty:\n";

static tr_yaml *parsed(const char *text) {
  tr_yaml *yaml = NULL;
  if (tr_yaml_parse(text, strlen(text), "run.yaml", &yaml) != TR_OK) fail_msg("%s", tr_status_text());
  return yaml;
}

static void check_place(const tr_yaml_node *node, int line, int column) {
  assert_non_null(node);
  assert_string_equal(node->file, "run.yaml");
  assert_int_equal(node->line, line);
  assert_int_equal(node->column, column);
}

static void values_know_their_place(void **state) {
  (void)state;
  tr_yaml *yaml = parsed(run_file);
  const tr_yaml_node *root = tr_yaml_root(yaml), *optim = tr_yaml_find(root, "optim");
  assert_int_equal(root->kind, TR_YAML_MAP);
  assert_int_equal(root->nchild, 5);
  check_place(root, 2, 1);
  check_place(optim, 4, 3);
  assert_int_equal(optim->key_line, 3);
  assert_int_equal(optim->key_column, 1);
  const tr_yaml_node *lr = tr_yaml_find(optim, "lr"), *name = tr_yaml_find(optim, "name");
  check_place(lr, 4, 7);
  assert_string_equal(lr->value, "6e-4");
  assert_int_equal(lr->quoted, 0);
  check_place(name, 5, 9);
  assert_string_equal(name->value, "adam w");
  assert_int_equal(name->quoted, 1);
  assert_null(tr_yaml_find(optim, "absent"));
  assert_null(tr_yaml_find(lr, "lr"));
  tr_yaml_free(yaml);
  tr_yaml_free(NULL);
}

static void lists_and_blocks_are_read(void **state) {
  (void)state;
  tr_yaml *yaml = parsed(run_file);
  const tr_yaml_node *root = tr_yaml_root(yaml), *data = tr_yaml_find(root, "data");
  const tr_yaml_node *betas = tr_yaml_find(tr_yaml_find(root, "optim"), "betas");
  assert_int_equal(betas->kind, TR_YAML_LIST);
  assert_int_equal(betas->nchild, 2);
  assert_string_equal(betas->child[1]->value, "0.95");
  assert_null(betas->child[1]->key);
  check_place(betas->child[1], 6, 16);
  assert_int_equal(data->nchild, 2);
  assert_string_equal(tr_yaml_find(data->child[1], "path")->value, "b.bin");
  assert_string_equal(tr_yaml_find(root, "note")->value, "two\nlines\n");
  assert_string_equal(tr_yaml_find(root, "empty")->value, "");
  tr_yaml_free(yaml);
}

static void empty_files_are_empty_maps(void **state) {
  static const char *const text[] = {"", "\n\n", "# nothing\n", "---\n", "---\n...\n", "\xef\xbb\xbf", "{}"};
  (void)state;
  for (size_t i = 0; i < COUNT(text); i++) {
    tr_yaml *yaml = parsed(text[i]);
    assert_int_equal(tr_yaml_root(yaml)->kind, TR_YAML_MAP);
    assert_int_equal(tr_yaml_root(yaml)->nchild, 0);
    tr_yaml_free(yaml);
  }
}

static void bad_files_are_refused_with_their_place(void **state) {
  static const struct {
    const char *text, *message;
    tr_status status;
  } row[] = {
      {"a: 1\nb: 2\n a: 3\n", "run.yaml:3:3: not valid YAML: mapping values are not allowed", TR_ERR_CONFIG},
      {"a: 1\nb: 2\na: 3\n", "run.yaml:3:1: key \"a\" is given twice, first at line 1; keep one", TR_ERR_CONFIG},
      {"o: {lr: 1, lr: 2}\n", "run.yaml:1:12: key \"lr\" is given twice, first at line 1", TR_ERR_CONFIG},
      {"a: &x 1\n", "run.yaml:1:4: anchor \"x\" is not supported; write the value out", TR_ERR_CONFIG},
      {"a: &x {b: 1}\n", "run.yaml:1:4: anchor \"x\" is not supported", TR_ERR_CONFIG},
      {"a: &x [1]\n", "run.yaml:1:4: anchor \"x\" is not supported", TR_ERR_CONFIG},
      {"a: *x\n", "run.yaml:1:4: alias \"x\" is not supported; write the value out", TR_ERR_CONFIG},
      {"a: !!int 3\n", "run.yaml:1:4: tag \"tag:yaml.org,2002:int\" is not supported; leave it out", TR_ERR_CONFIG},
      {"a: !foo {b: 1}\n", "run.yaml:1:4: tag \"!foo\" is not supported", TR_ERR_CONFIG},
      {"- 1\n- 2\n", "run.yaml:1:1: the file is a list; it must be a map such as", TR_ERR_CONFIG},
      {"hello\n", "run.yaml:1:1: the file is a single value; it must be a map", TR_ERR_CONFIG},
      {"\"\"\n", "run.yaml:1:1: the file is a single value", TR_ERR_CONFIG},
      {"a: 1\n---\nb: 2\n", "run.yaml:2:1: a second document starts here", TR_ERR_CONFIG},
      {"? [x]\n: 1\n", "run.yaml:1:3: a key must be a plain word", TR_ERR_CONFIG},
      {"*x : 1\n", "run.yaml:1:1: alias \"x\" is not supported", TR_ERR_CONFIG},
      {"\"\": 1\n", "run.yaml:1:1: a key is empty", TR_ERR_CONFIG},
      {"a: \"x\\0y\"\n", "run.yaml:1:4: a zero byte cannot stand in a text", TR_ERR_CONFIG},
      {"a: \"x\n",
       "run.yaml:2:1: not valid YAML: found unexpected end of stream; check indentation, quotes and "
       "brackets (while scanning a quoted scalar that starts at line 1)",
       TR_ERR_CONFIG},
      {"a: 1\nb:\t2\n\tc: 3\n", "run.yaml:3:1: not valid YAML: found a tab character that violates indentation",
       TR_ERR_CONFIG},
      {"a: 1\nb: \xff\n", "run.yaml:2:4: a byte is not text: invalid leading UTF-8 octet; save", TR_ERR_CONFIG},
      {"a: \x01\n", "run.yaml:1:4: a byte is not text: control characters are not allowed; save", TR_ERR_CONFIG},
      {"a: [1, 2\nb: 3\n", "not valid YAML: did not find expected ',' or ']'", TR_ERR_CONFIG},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(row); i++) {
    tr_yaml *yaml = NULL;
    assert_int_equal(tr_yaml_parse(row[i].text, strlen(row[i].text), "run.yaml", &yaml), row[i].status);
    if (!strstr(tr_status_text(), row[i].message)) fail_msg("row %zu: %s", i, tr_status_text());
    assert_null(yaml);
  }
}

static void a_key_is_at_most_255_bytes(void **state) {
  (void)state;
  for (int n = 255; n <= 256; n++) {
    tr_text text = {0};
    tr_yaml *yaml = NULL;
    for (int i = 0; i < n; i++) tr_text_append(&text, "k");
    tr_text_append(&text, ": 1\n");
    assert_int_equal(tr_yaml_parse(text.data, text.size, "run.yaml", &yaml), n == 255 ? TR_OK : TR_ERR_CONFIG);
    if (n > 255)
      assert_non_null(strstr(tr_status_text(), "run.yaml:1:1: a key of more than 255 bytes begins with \"kkk"));
    tr_yaml_free(yaml);
    tr_text_free(&text);
  }
}

static tr_status parse_nested(int depth) {
  tr_text text = {0};
  tr_yaml *yaml = NULL;
  for (int i = 1; i < depth; i++) tr_text_append(&text, "{a: ");
  tr_text_append(&text, "1");
  for (int i = 1; i < depth; i++) tr_text_append(&text, "}");
  tr_status status = tr_yaml_parse(text.data, text.size, "run.yaml", &yaml);
  tr_yaml_free(yaml);
  tr_text_free(&text);
  return status;
}

static void depth_has_a_limit(void **state) {
  (void)state;
  assert_int_equal(parse_nested(32), TR_OK);
  assert_int_equal(parse_nested(33), TR_ERR_CONFIG);
  assert_non_null(strstr(tr_status_text(), "run.yaml:1:129: nested deeper than 32 levels"));
  assert_int_equal(parse_nested(5000), TR_ERR_CONFIG);
}

static tr_status parse_many(int n) {
  tr_text text = {0};
  tr_yaml *yaml = NULL;
  for (int i = 0; i < n; i++) tr_text_append(&text, "k%d: 1\n", i);
  tr_status status = tr_yaml_parse(text.data, text.size, "run.yaml", &yaml);
  tr_yaml_free(yaml);
  tr_text_free(&text);
  return status;
}

static void the_number_of_values_has_a_limit(void **state) {
  (void)state;
  assert_int_equal(parse_many(99999), TR_OK); // and the map itself
  assert_int_equal(parse_many(100000), TR_ERR_CONFIG);
  assert_non_null(strstr(tr_status_text(), "run.yaml:100000:9: more than 100000 values"));
}

static void files_are_loaded_or_named(void **state) {
  (void)state;
  char path[] = "/tmp/trireme-yaml-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, run_file, sizeof run_file - 1), (long)sizeof run_file - 1);
  close(fd);
  tr_yaml *yaml = NULL;
  assert_int_equal(tr_yaml_load(path, &yaml), TR_OK);
  assert_string_equal(tr_yaml_root(yaml)->file, path);
  tr_yaml_free(yaml);
  unlink(path);
  assert_int_equal(tr_yaml_load(path, &yaml), TR_ERR_IO);
  assert_non_null(strstr(tr_status_text(), path));
}

static uint32_t draw(uint64_t *seed) {
  *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(*seed >> 33);
}

// One to four edits of a good file: a byte replaced, a piece cut out, a piece doubled.
static size_t mutate(char *text, size_t n, size_t capacity, uint64_t *seed) {
  static const char spice[] = "{}[]:,-&*!|>'\"%@`#?\n\t \\~\xff\x01\xc3";
  for (uint32_t edits = 1 + draw(seed) % 4; edits-- && n > 8;) {
    size_t at = draw(seed) % n, size = 1 + draw(seed) % 8;
    if (size > n - at) size = n - at;
    uint32_t kind = draw(seed) % 4;
    if (kind < 2) {
      text[at] = kind ? spice[draw(seed) % (sizeof spice - 1)] : (char)draw(seed);
    } else if (kind == 2) {
      memmove(text + at, text + at + size, n - at - size);
      n -= size;
    } else if (n + size <= capacity) {
      memmove(text + at + size, text + at, n - at);
      n += size;
    }
  }
  return n;
}

static void damaged_files_do_no_worse_than_an_error(void **state) {
  (void)state;
  uint64_t seed = 2026;
  int nrefused = 0, naccepted = 0;
  for (int i = 0; i < 2000; i++) {
    char scratch[512];
    memcpy(scratch, run_file, sizeof run_file - 1);
    size_t n = mutate(scratch, sizeof run_file - 1, sizeof scratch, &seed);
    char *text = malloc(n); // exact size: reading past the end is seen by the address sanitizer
    assert_non_null(text);
    memcpy(text, scratch, n);
    tr_yaml *yaml = NULL;
    tr_status_clear();
    tr_status status = tr_yaml_parse(text, n, "run.yaml", &yaml);
    free(text);
    if (status == TR_OK)
      assert_int_equal(tr_yaml_root(yaml)->kind, TR_YAML_MAP);
    else if (status != TR_ERR_CONFIG || strncmp(tr_status_text(), "run.yaml:", 9))
      fail_msg("%s", tr_status_text());
    *(status == TR_OK ? &naccepted : &nrefused) += 1;
    tr_yaml_free(yaml);
  }
  assert_true(nrefused > 200 && naccepted > 200); // the edits reach both sides
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_know_their_place),
      cmocka_unit_test(lists_and_blocks_are_read),
      cmocka_unit_test(empty_files_are_empty_maps),
      cmocka_unit_test(bad_files_are_refused_with_their_place),
      cmocka_unit_test(a_key_is_at_most_255_bytes),
      cmocka_unit_test(depth_has_a_limit),
      cmocka_unit_test(the_number_of_values_has_a_limit),
      cmocka_unit_test(files_are_loaded_or_named),
      cmocka_unit_test(damaged_files_do_no_worse_than_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
