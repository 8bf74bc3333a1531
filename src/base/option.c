// SPDX-License-Identifier: MIT
// The option table at work: which row a key means, and applying defaults, environment, run files and arguments.
//
// A key is matched against one list of names: full paths, aliases, and last parts. A full path or alias
// decides alone; a last part ("lr") only if exactly one row ends in it. Nothing about types is known here
// (option_value.c). Within one run file an option given twice under two names is refused, since neither is
// "later" to a reader.
#include "base/option_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_LIMIT = 256 };

// ---- names

static const char *leaf_of(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot ? dot + 1 : path;
}

static void add_name(tr_options *o, const char *text, size_t row, tr__name_kind kind) {
  o->name_text[o->nname] = text;
  o->name_row[o->nname] = row;
  o->name_kind[o->nname++] = kind;
}

// Count aliases and the bytes they take.
static void measure_aliases(const tr_options *o, size_t *count, size_t *nbyte) {
  for (size_t i = 0; i < o->noption; i++) {
    const char *rest = o->table[i].alias;
    size_t n;
    for (; tr__option_next_word(&rest, &n); *nbyte += n + 1) ++*count;
  }
}

static tr_status collect_names(tr_options *o) {
  size_t nalias = 0, nbyte = 0;
  measure_aliases(o, &nalias, &nbyte);
  size_t most = 2 * o->noption + nalias + 1;
  o->name_text = calloc(most, sizeof *o->name_text);
  o->name_row = calloc(most, sizeof *o->name_row);
  o->name_kind = calloc(most, sizeof *o->name_kind);
  o->alias_text = calloc(1, nbyte + 1);
  if (!o->name_text || !o->name_row || !o->name_kind || !o->alias_text)
    return tr_error(TR_ERR_MEMORY, "no memory for a table of %zu options", o->noption);
  for (size_t i = 0; i < o->noption; i++) add_name(o, o->table[i].path, i, TR__NAME_PATH);
  char *to = o->alias_text;
  for (size_t i = 0; i < o->noption; i++) {
    const char *rest = o->table[i].alias, *word;
    for (size_t n; (word = tr__option_next_word(&rest, &n)); to += n + 1) {
      memcpy(to, word, n);
      add_name(o, to, i, TR__NAME_ALIAS);
    }
  }
  for (size_t i = 0; i < o->noption; i++)
    if (strchr(o->table[i].path, '.')) add_name(o, leaf_of(o->table[i].path), i, TR__NAME_LEAF);
  return TR_OK;
}

// "optim" holds "optim.lr".
static int is_inside(const char *name, const char *section) {
  size_t n = strlen(section);
  if (strlen(name) <= n || name[n] != '.') return 0;
  char start[KEY_LIMIT];
  (void)snprintf(start, sizeof start, "%.*s", n < KEY_LIMIT ? (int)n : KEY_LIMIT - 1, name);
  return tr__option_name_equal(start, section);
}

// A table whose rows hide each other is a defect of the program, not of a run file.
static tr_status check_table(const tr_options *o) {
  for (size_t i = 0; i < o->nname; i++) {
    if (o->name_kind[i] == TR__NAME_LEAF) continue;
    for (size_t j = 0; j < o->nname; j++)
      if (j != i && o->name_kind[j] != TR__NAME_LEAF &&
          (tr__option_name_equal(o->name_text[i], o->name_text[j]) ||
           (o->name_kind[i] == o->name_kind[j] && is_inside(o->name_text[j], o->name_text[i]))))
        return tr_error(TR_ERR_INTERNAL, "the option table has \"%s\" beside \"%s\"; one hides the other",
                        o->name_text[i], o->name_text[j]);
  }
  return TR_OK;
}

// How many rows `key` may mean: 0 none, 1 exactly *row, more if it is an ambiguous last part.
static size_t find_rows(const tr_options *o, const char *key, size_t *row) {
  size_t count = 0;
  for (size_t i = 0; i < o->nname; i++) {
    if (!tr__option_name_equal(key, o->name_text[i])) continue;
    if (o->name_kind[i] != TR__NAME_LEAF) {
      *row = o->name_row[i];
      return 1;
    }
    if (count++ == 0) *row = o->name_row[i];
  }
  return count;
}

static int is_section(const tr_options *o, const char *key) {
  for (size_t i = 0; i < o->nname; i++)
    if (o->name_kind[i] != TR__NAME_LEAF && is_inside(o->name_text[i], key)) return 1;
  return 0;
}

static tr__option_subtree *find_subtree(const tr_options *o, const char *key) {
  for (size_t i = 0; i < o->nsubtree; i++)
    if (tr__option_name_equal(o->subtree[i].key, key)) return &o->subtree[i];
  return NULL;
}

// The full path somebody may have meant: a close name, or the right last part in the wrong section.
static const char *suggestion(const tr_options *o, const char *key) {
  const char *close = tr_text_closest(key, o->name_text, o->nname);
  if (!close && strchr(key, '.')) close = tr_text_closest(leaf_of(key), o->name_text, o->nname);
  for (size_t i = 0; close && i < o->nname; i++)
    if (o->name_text[i] == close) return o->table[o->name_row[i]].path;
  return NULL;
}

static tr_status unknown_key(const tr_options *o, const char *place, const char *key) {
  const char *meant = suggestion(o, key);
  if (meant) return tr_error(TR_ERR_CONFIG, "%s: unknown option \"%.80s\"; did you mean \"%s\"?", place, key, meant);
  return tr_error(TR_ERR_CONFIG, "%s: unknown option \"%.80s\"; --help lists all of them", place, key);
}

static tr_status ambiguous_key(const tr_options *o, const char *place, const char *key) {
  tr_text list = {0};
  for (size_t i = 0; i < o->nname; i++)
    if (o->name_kind[i] == TR__NAME_LEAF && tr__option_name_equal(key, o->name_text[i]))
      tr_text_append(&list, "%s\"%s\"", list.size ? ", " : "", o->table[o->name_row[i]].path);
  tr_status status =
      tr_error(TR_ERR_CONFIG, "%s: \"%s\" is ambiguous; write one of %s", place, key, tr__option_text(&list));
  tr_text_free(&list);
  return status;
}

static tr_status resolve(const tr_options *o, const char *place, const char *key, size_t *row) {
  size_t count = find_rows(o, key, row);
  if (count == 1) return TR_OK;
  return count ? ambiguous_key(o, place, key) : unknown_key(o, place, key);
}

// ---- setting one row

static tr_status value_error(const tr_option *row, const char *place, const char *what) {
  tr_text accepted = {0};
  tr__option_accepted(row, &accepted);
  tr_status status =
      tr_error(TR_ERR_CONFIG, "%s: %s: %s; accepted: %s", place, row->path, what, tr__option_text(&accepted));
  tr_text_free(&accepted);
  return status;
}

// `source` is remembered; `place` stands in messages.
static tr_status set_row(tr_options *o, size_t i, const char *value, const char *source, const char *place) {
  const tr_option *row = &o->table[i];
  tr_status status = tr__option_store(row, o->object, value);
  if (status == TR_ERR_CONFIG) {
    char reason[512];
    (void)snprintf(reason, sizeof reason, "%s", tr_status_text());
    return value_error(row, place, reason);
  }
  TR_TRY(status);
  char *copy = source ? strdup(source) : NULL;
  if (source && !copy) return tr_error(TR_ERR_MEMORY, "no memory for the source of %s", row->path);
  free(o->slot[i].source);
  o->slot[i].source = copy;
  o->slot[i].by_default = 0;
  return TR_OK;
}

static tr_status set_defaults(tr_options *o) {
  for (size_t i = 0; i < o->noption; i++) {
    const tr_option *row = &o->table[i];
    TR_TRY(set_row(o, i, tr__option_default(row), NULL, "default"));
    const char *value = row->env ? getenv(row->env) : NULL;
    if (!value || !*value) continue;
    char source[KEY_LIMIT];
    (void)snprintf(source, sizeof source, "environment variable %s", row->env);
    TR_TRY(set_row(o, i, value, source, source));
  }
  return TR_OK;
}

tr_status tr_options_create(const tr_option *table, size_t noption, void *object, tr_options **out) {
  tr_options *o = calloc(1, sizeof *o);
  if (!o) return tr_error(TR_ERR_MEMORY, "no memory for a table of %zu options", noption);
  *o = (tr_options){.table = table, .noption = noption, .object = object};
  o->slot = calloc(noption + 1, sizeof *o->slot);
  tr_status status = o->slot ? collect_names(o) : tr_error(TR_ERR_MEMORY, "no memory for %zu options", noption);
  if (status == TR_OK) status = check_table(o);
  if (status == TR_OK) status = set_defaults(o);
  if (status < 0)
    tr_options_destroy(o);
  else
    *out = o;
  return status;
}

void tr_options_destroy(tr_options *o) {
  if (!o) return;
  for (size_t i = 0; o->slot && i < o->noption; i++) {
    free(o->slot[i].source);
    if (o->table[i].type != TR_OPTION_STRING) continue;
    char **text = (void *)((char *)o->object + o->table[i].offset);
    free(*text);
    *text = NULL;
  }
  for (size_t i = 0; i < o->ntree; i++) tr_yaml_free(o->tree[i]);
  for (size_t i = 0; i < o->nsubtree; i++) free(o->subtree[i].key);
  free(o->slot);
  free(o->name_text);
  free(o->name_row);
  free(o->name_kind);
  free(o->alias_text);
  free(o->tree);
  free(o->subtree);
  free(o);
}

// ---- run files

tr_status tr_options_allow_subtree(tr_options *o, const char *key) {
  tr__option_subtree *grown = realloc(o->subtree, (o->nsubtree + 1) * sizeof *grown);
  if (grown) o->subtree = grown;
  char *copy = grown ? strdup(key) : NULL;
  if (!copy) return tr_error(TR_ERR_MEMORY, "no memory for the section %s", key);
  o->subtree[o->nsubtree++] = (tr__option_subtree){.key = copy};
  return TR_OK;
}

const tr_yaml_node *tr_options_subtree(const tr_options *o, const char *key) {
  const tr__option_subtree *found = find_subtree(o, key);
  return found ? found->node : NULL;
}

static void write_place(char out[KEY_LIMIT], const char *file, int line, int column) {
  (void)snprintf(out, KEY_LIMIT, "%.200s:%d:%d", file, line, column);
}

static tr_status apply_scalar(tr_options *o, const tr_yaml_node *node, const char *key, const char *key_place,
                              const char *place) {
  size_t row = 0;
  if (find_rows(o, key, &row) == 0 && is_section(o, key))
    return tr_error(TR_ERR_CONFIG, "%s: \"%s\" is a section of options, not a value; write \"%s.NAME\" or a map",
                    place, key, key);
  TR_TRY(resolve(o, key_place, key, &row));
  if (o->slot[row].turn == o->nturn)
    return tr_error(TR_ERR_CONFIG, "%s: %s was already set at %s of this file (as \"%s\" here); keep one of them",
                    key_place, o->table[row].path, o->slot[row].source, key);
  const char *value = node->value;
  int null = !node->quoted && (strcmp(value, "null") == 0 || strcmp(value, "~") == 0);
  if (null && o->table[row].type == TR_OPTION_STRING) value = "";
  TR_TRY(set_row(o, row, value, place, place));
  o->slot[row].turn = o->nturn;
  return TR_OK;
}

static tr_status not_a_scalar(const tr_options *o, const tr_yaml_node *node, const char *key, const char *key_place,
                              const char *place) {
  size_t row = 0;
  if (node->kind == TR_YAML_LIST && find_rows(o, key, &row) == 0 && is_section(o, key))
    return tr_error(TR_ERR_CONFIG, "%s: \"%s\" is a section of options, not a list; write a map", place, key);
  TR_TRY(resolve(o, key_place, key, &row));
  return value_error(&o->table[row], place,
                     node->kind == TR_YAML_MAP ? "a map is not a value" : "a list is not a value");
}

static tr_status apply_node(tr_options *o, const tr_yaml_node *node, const char *section) {
  char key[KEY_LIMIT], key_place[KEY_LIMIT], place[KEY_LIMIT];
  write_place(key_place, node->file, node->key_line, node->key_column);
  write_place(place, node->file, node->line, node->column);
  int n = snprintf(key, sizeof key, "%s%s%s", section, *section ? "." : "", node->key);
  if (n >= KEY_LIMIT) return unknown_key(o, key_place, node->key);
  tr__option_subtree *subtree = *section ? NULL : find_subtree(o, key);
  if (subtree) {
    subtree->node = node;
    return TR_OK;
  }
  size_t row;
  int opens = is_section(o, key);
  // "optim:" with nothing below it, as when every line of a section is commented out.
  if (node->kind == TR_YAML_SCALAR && !node->quoted && !*node->value && opens) return TR_OK;
  if (node->kind == TR_YAML_SCALAR) return apply_scalar(o, node, key, key_place, place);
  if (node->kind == TR_YAML_LIST || (!opens && (node->nchild == 0 || find_rows(o, key, &row))))
    return not_a_scalar(o, node, key, key_place, place);
  for (size_t i = 0; i < node->nchild; i++) TR_TRY(apply_node(o, node->child[i], key));
  return TR_OK;
}

tr_status tr_options_apply_yaml(tr_options *o, tr_yaml *yaml) {
  tr_yaml **grown = realloc(o->tree, (o->ntree + 1) * sizeof(tr_yaml *));
  if (!grown) {
    tr_yaml_free(yaml);
    return tr_error(TR_ERR_MEMORY, "no memory for run file %zu", o->ntree + 1);
  }
  o->tree = grown;
  o->tree[o->ntree++] = yaml;
  return tr_options_apply_map(o, tr_yaml_root(yaml));
}

tr_status tr_options_apply_map(tr_options *o, const tr_yaml_node *map) {
  o->nturn++;
  for (size_t i = 0; i < map->nchild; i++) TR_TRY(apply_node(o, map->child[i], ""));
  return TR_OK;
}

// ---- arguments

static tr_status no_equals_sign(const tr_options *o, const char *place, const char *key) {
  size_t row = 0;
  const char *example = find_rows(o, key, &row) == 1 ? o->table[row].path : suggestion(o, key);
  if (example) return tr_error(TR_ERR_CONFIG, "%s: settings have the form key=value; write %s=VALUE", place, example);
  return tr_error(TR_ERR_CONFIG, "%s: settings have the form key=value", place);
}

static tr_status no_such_section(const tr_options *o, const char *place, const char *key) {
  char top[KEY_LIMIT];
  (void)snprintf(top, sizeof top, "%.*s", (int)strcspn(key, "."), key);
  if (find_subtree(o, top))
    return tr_error(TR_ERR_CONFIG, "%s: the section \"%s\" is read from run files only; put \"%s\" into one", place,
                    top, key);
  if (is_section(o, key))
    return tr_error(TR_ERR_CONFIG, "%s: \"%s\" is a section of options; write %s.NAME=VALUE", place, key, key);
  return TR_OK;
}

tr_status tr_options_apply_argument(tr_options *o, const char *argument) {
  char place[KEY_LIMIT], key[KEY_LIMIT], source[32];
  o->nargument++;
  (void)snprintf(place, sizeof place, "argument '%.120s'", argument);
  (void)snprintf(source, sizeof source, "argument %d", o->nargument);
  const char *start = strncmp(argument, "--", 2) == 0 ? argument + 2 : argument;
  size_t n = strcspn(start, "=");
  (void)snprintf(key, sizeof key, "%.*s", n < KEY_LIMIT ? (int)n : KEY_LIMIT - 1, start);
  if (!start[n] || n == 0) return no_equals_sign(o, place, key);
  size_t row = 0;
  if (find_rows(o, key, &row) == 0) TR_TRY(no_such_section(o, place, key));
  TR_TRY(resolve(o, place, key, &row));
  return set_row(o, row, start + n + 1, source, place);
}

// ---- asking

static tr__option_slot *slot_of(const tr_options *o, const char *path) {
  for (size_t i = 0; i < o->noption; i++)
    if (strcmp(o->table[i].path, path) == 0) return &o->slot[i];
  return NULL;
}

int tr_options_is_set(const tr_options *o, const char *path) {
  const tr__option_slot *slot = slot_of(o, path);
  return slot && slot->source && !slot->by_default;
}

const char *tr_options_source(const tr_options *o, const char *path) {
  const tr__option_slot *slot = slot_of(o, path);
  return slot && slot->source ? slot->source : "default";
}

tr_status tr_options_default(tr_options *o, const char *path, const char *value, const char *source) {
  tr__option_slot *slot = slot_of(o, path);
  if (!slot) return tr_error(TR_ERR_INTERNAL, "there is no option \"%s\"", path);
  if (slot->source && !slot->by_default) return TR_OK;
  TR_TRY(set_row(o, (size_t)(slot - o->slot), value, source, source));
  slot->by_default = 1;
  return TR_OK;
}

tr_status tr_options_error(const tr_options *o, const char *path, const char *format, ...) {
  va_list args;
  va_start(args, format);
  tr_status status = tr_error_v(TR_ERR_CONFIG, format, args);
  va_end(args);
  tr_error_prefix("%s: %s", tr_options_source(o, path), path);
  return status;
}
