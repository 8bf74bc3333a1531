// SPDX-License-Identifier: MIT
// `trireme diff`: in what two checkpoints differ, tensor by tensor and setting by setting.
//
// Settings of both sides are made flat ("settings.optim.lr" to "0.1"), whatever file they come from, and compared as
// text. Names and values in files are not trusted: what could command a terminal is shown as '?'.
#include "cli/arguments_internal.h"
#include "cli/cli_internal.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include "trireme/base/yaml.h"
#include "trireme/ckpt/convert.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_LIMIT = 4096, KEY_LIMIT = 512, TEXT_LIMIT = 16 << 20, DEPTH_LIMIT = 40 };

static void print_help(void) {
  printf(
      "usage: trireme diff A B [--all] [--json]\n\n"
      "Compare two checkpoints: folders of checkpoints (the newest is taken), of runs, or of Hugging Face, or two\n"
      ".safetensors files. Prints every tensor that differs, with the largest difference of two elements, that\n"
      "difference over the tensor's largest element, and how many elements differ; then the settings that differ in\n"
      "config.json and trainer.json. The optimizer's tensors are compared when both have them.\n\n"
      "  --all    also the tensors that are the same\n"
      "  --json   one JSON object instead of the tables\n\n"
      "exit codes: 0 the tensors and config.json are the same, 9 they differ, 4 something cannot be read. What\n"
      "differs in trainer.json (the step, the folder) is shown and does not count.\n\n"
      "examples:\n"
      "  trireme diff runs/one-rank runs/two-ranks\n"
      "  trireme diff before/model.safetensors after/model.safetensors --json | jq '.tensors[].name'\n");
}

typedef struct diff {
  const char *given[2];
  char path[2][PATH_LIMIT];
  int is_folder, all, json;
  json_t *tensors, *settings; // rows
  int equal;
} diff;

static tr_status parse(int argc, char **argv, diff *d) {
  size_t npath;
  const tr__argument table[] = {{.name = "--all", .kind = TR__ARGUMENT_FLAG, .out = &d->all},
                                {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &d->json}};
  TR_TRY(tr__cli_parse_paths("diff", argc, argv, table, sizeof table / sizeof *table, &npath));
  if (npath != 2)
    return tr__cli_usage("diff", "give two checkpoints or .safetensors files to compare, not %zu", npath);
  if (!*argv[1] || !*argv[2])
    return tr__cli_usage("diff", "the %s path is empty; an unset variable, perhaps", *argv[1] ? "second" : "first");
  d->given[0] = argv[1];
  d->given[1] = argv[2];
  return TR_OK;
}

// ---- collecting

// A text from outside as JSON that can be printed.
static json_t *safe_text(const char *text) {
  char out[KEY_LIMIT];
  size_t n = strlen(text), length = 0;
  for (size_t i = 0; i < n && length + 5 < sizeof out;) {
    int valid;
    size_t step = tr__cli_character(text + i, n - i, &valid);
    unsigned char c = (unsigned char)text[i];
    if (step == 0) step = n - i, valid = 0;
    if (valid && c >= 0x20 && c != 0x7f && c != 0xc2) {
      memcpy(out + length, text + i, step);
      length += step;
    } else {
      out[length++] = '?';
    }
    i += step;
  }
  return json_stringn(out, length);
}

static json_t *number_or_text(double value) {
  return isfinite(value) ? json_real(value) : json_string(isnan(value) ? "nan" : "inf");
}

static void add_tensor(void *user, const tr_diff_entry *e) {
  diff *d = user;
  if (!d->all && strcmp(e->what, "same") == 0) return;
  json_t *row = json_pack("{s:o, s:s}", "name", safe_text(e->name), "what", e->what);
  if (strcmp(e->what, "different") == 0 || strcmp(e->what, "other type") == 0) {
    json_object_set_new(row, "largest", number_or_text(e->largest));
    json_object_set_new(row, "relative", number_or_text(e->relative));
    json_object_set_new(row, "unequal", json_integer((json_int_t)e->unequal));
  }
  json_array_append_new(d->tensors, row);
}

static int has_tensors(const char *folder, const char *kind) {
  char path[PATH_LIMIT + 64];
  snprintf(path, sizeof path, "%s/%s.safetensors", folder, kind);
  if (tr_file_exists(path)) return 1;
  snprintf(path, sizeof path, "%s/%s.safetensors.index.json", folder, kind);
  return tr_file_exists(path);
}

static tr_status compare_tensors(diff *d, const char *kind) {
  tr_tensors *side[2] = {NULL, NULL};
  int equal = 1;
  tr_status status = TR_OK;
  for (int i = 0; i < 2 && status == TR_OK; i++) status = tr_tensors_open(d->path[i], kind, &side[i]);
  if (status == TR_OK) status = tr_tensors_diff(side[0], side[1], add_tensor, d, &equal);
  for (int i = 0; i < 2; i++) tr_tensors_close(side[i]);
  d->equal &= equal;
  // What cannot be read to its end is a bad checkpoint here.
  return status == TR_ERR_IO ? tr_error(TR_ERR_CKPT, "%s", tr_status_text()) : status;
}

// ---- settings

static void set_flat(json_t *flat, const char *key, const char *value) {
  json_object_set_new(flat, key, safe_text(value));
}

static void flatten_yaml(json_t *flat, const char *prefix, const tr_yaml_node *node, int depth) {
  for (size_t i = 0; i < node->nchild && depth < DEPTH_LIMIT; i++) {
    const tr_yaml_node *child = node->child[i];
    char key[KEY_LIMIT];
    if (child->key)
      snprintf(key, sizeof key, "%.400s.%.100s", prefix, child->key);
    else
      snprintf(key, sizeof key, "%.400s.%zu", prefix, i);
    if (child->kind == TR_YAML_SCALAR)
      set_flat(flat, key, child->value);
    else
      flatten_yaml(flat, key, child, depth + 1);
  }
}

// A text of several lines is a run file, as trainer.json keeps one.
static int flatten_run_file(json_t *flat, const char *key, const char *text) {
  tr_yaml *yaml;
  if (!strchr(text, '\n') || tr_yaml_parse(text, strlen(text), key, &yaml) < 0) return 0;
  flatten_yaml(flat, key, tr_yaml_root(yaml), 0);
  tr_yaml_free(yaml);
  return 1;
}

static void flatten_json(json_t *flat, const char *prefix, json_t *object, int depth) {
  const char *name;
  json_t *value;
  json_object_foreach(object, name, value) {
    char key[KEY_LIMIT];
    snprintf(key, sizeof key, "%.400s%s%.100s", prefix, *prefix ? "." : "", name);
    if (json_is_object(value) && depth < DEPTH_LIMIT) {
      flatten_json(flat, key, value, depth + 1);
    } else if (!json_is_string(value) || !flatten_run_file(flat, key, json_string_value(value))) {
      char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
      set_flat(flat, key, json_is_string(value) ? json_string_value(value) : text ? text : "");
      free(text);
    }
  }
}

// Empty when the folder has no such file.
static tr_status load_flat(const char *folder, const char *file, json_t **out) {
  char path[PATH_LIMIT + 64];
  json_t *json = NULL, *flat = json_object();
  if (!flat) return tr_error(TR_ERR_MEMORY, "no memory for a table of settings");
  snprintf(path, sizeof path, "%s/%s", folder, file);
  tr_status status = tr_file_exists(path) ? tr_json_load(path, TEXT_LIMIT, &json) : TR_OK;
  if (json) flatten_json(flat, "", json, 0);
  json_decref(json);
  if (status < 0)
    json_decref(flat);
  else
    *out = flat;
  return status;
}

// Whether all settings are the same. Those that only the second has come last.
static int compare_flat(diff *d, const char *file, json_t *a, json_t *b) {
  const char *key;
  json_t *value;
  int same = 1;
  json_object_foreach(a, key, value) {
    json_t *other = json_object_get(b, key);
    if (other && json_equal(value, other)) continue;
    same = 0;
    json_array_append_new(
        d->settings, json_pack("{s:s, s:o, s:O, s:O?}", "file", file, "key", safe_text(key), "a", value, "b", other));
  }
  json_object_foreach(b, key, value) {
    if (json_object_get(a, key)) continue;
    same = 0;
    json_array_append_new(d->settings,
                          json_pack("{s:s, s:o, s:n, s:O}", "file", file, "key", safe_text(key), "a", "b", value));
  }
  return same;
}

// A file that only one of them has is one difference, not as many as it has settings.
static int only_one(diff *d, const char *file, json_t *a, json_t *b) {
  if (!json_object_size(a) == !json_object_size(b)) return 0;
  const char *where = json_object_size(a) ? "only in the first" : "only in the second";
  json_array_append_new(d->settings, json_pack("{s:s, s:s, s:n, s:n}", "file", file, "key", where, "a", "b"));
  return 1;
}

static tr_status compare_settings(diff *d, const char *file, int counts) {
  json_t *a = NULL, *b = NULL;
  tr_status status = load_flat(d->path[0], file, &a);
  if (status == TR_OK) status = load_flat(d->path[1], file, &b);
  if (status == TR_OK && (only_one(d, file, a, b) || !compare_flat(d, file, a, b)) && counts) d->equal = 0;
  json_decref(a);
  json_decref(b);
  return status;
}

static tr_status resolve(diff *d) {
  int folders = 0;
  for (int i = 0; i < 2; i++) {
    struct stat about;
    if (stat(d->given[i], &about) != 0) return tr_error(TR_ERR_CKPT, "%s: %s", d->given[i], strerror(errno));
    folders += S_ISDIR(about.st_mode) ? 1 : 0;
    if (S_ISDIR(about.st_mode))
      TR_TRY(tr__cli_find_checkpoint(d->given[i], 0, d->path[i], PATH_LIMIT));
    else if (snprintf(d->path[i], PATH_LIMIT, "%s", d->given[i]) >= PATH_LIMIT)
      return tr_error(TR_ERR_CKPT, "%.60s...: the path is too long", d->given[i]);
  }
  if (folders == 1)
    return tr__cli_usage("diff", "'%.80s' and '%.80s': one is a folder, one a file; give two of a kind", d->given[0],
                         d->given[1]);
  d->is_folder = folders == 2;
  return TR_OK;
}

static tr_status compare(diff *d) {
  TR_TRY(resolve(d));
  TR_TRY(compare_tensors(d, "model"));
  if (!d->is_folder) return TR_OK;
  if (has_tensors(d->path[0], "optimizer") && has_tensors(d->path[1], "optimizer"))
    TR_TRY(compare_tensors(d, "optimizer"));
  TR_TRY(compare_settings(d, "config.json", 1));
  return compare_settings(d, "trainer.json", 0);
}

// ---- printing

static const char *text_of(const json_t *row, const char *key) {
  const char *text = json_string_value(json_object_get(row, key));
  return text ? text : "-";
}

static void print_number(const json_t *row, const char *key) {
  const json_t *value = json_object_get(row, key);
  if (json_is_real(value))
    printf("  %11.4g", json_real_value(value));
  else
    printf("  %11s", text_of(row, key));
}

static void print_tensors(const json_t *rows) {
  int width = 4;
  size_t i;
  json_t *row;
  if (json_array_size(rows) == 0) return;
  json_array_foreach(rows, i, row) {
    int n = (int)strlen(text_of(row, "name"));
    width = n > width ? n : width;
  }
  printf("\n%-*s  %-18s  %11s  %11s  %12s\n", width, "tensor", "what", "largest", "relative", "unequal");
  json_array_foreach(rows, i, row) {
    printf("%-*s  %-18s", width, text_of(row, "name"), text_of(row, "what"));
    print_number(row, "largest");
    print_number(row, "relative");
    const json_t *unequal = json_object_get(row, "unequal");
    if (unequal)
      printf("  %12lld\n", (long long)json_integer_value(unequal));
    else
      printf("  %12s\n", "-");
  }
}

static void print_settings(const json_t *rows) {
  size_t i;
  json_t *row;
  if (json_array_size(rows) > 0) printf("\n%-14s  %-32s  %s\n", "file", "setting", "values");
  json_array_foreach(rows, i, row) {
    printf("%-14s  %-32s  %s | %s\n", text_of(row, "file"), text_of(row, "key"), text_of(row, "a"),
           text_of(row, "b"));
  }
}

static tr_status print(diff *d) {
  if (d->json) {
    json_t *about = json_pack("{s:o, s:o, s:b, s:O, s:O}", "a", safe_text(d->path[0]), "b", safe_text(d->path[1]),
                              "same", d->equal, "tensors", d->tensors, "settings", d->settings);
    char *text = about ? json_dumps(about, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(about);
    if (!text) return tr_error(TR_ERR_MEMORY, "no memory for the JSON object");
    puts(text);
    free(text);
  } else {
    json_t *a = safe_text(d->path[0]), *b = safe_text(d->path[1]);
    printf("%s\n%s\n", json_string_value(a), json_string_value(b));
    json_decref(a);
    json_decref(b);
    print_tensors(d->tensors);
    print_settings(d->settings);
    printf("\n%s\n", d->equal ? "same" : "different");
  }
  return fflush(stdout) != 0 || ferror(stdout) ? tr_error(TR_ERR_IO, "cannot write to standard output") : TR_OK;
}

int tr__cli_diff(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) return print_help(), 0;
  diff d = {.equal = 1, .tensors = json_array(), .settings = json_array()};
  tr_status status = d.tensors && d.settings ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory for the tables");
  if (status == TR_OK) status = parse(argc, argv, &d);
  if (status == TR_OK) status = compare(&d);
  if (status == TR_OK) status = print(&d);
  json_decref(d.tensors);
  json_decref(d.settings);
  return status < 0 ? tr__cli_fail(status) : d.equal ? 0 : 9;
}
