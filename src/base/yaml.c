// SPDX-License-Identifier: MIT
// Run files as a tree, built from libyaml's events by recursive descent.
//
// Every allocation is a block on one list that belongs to the tree, so building can stop anywhere and freeing is one
// loop. Limits (depth, nodes, bytes) are checked while events arrive, before anything is built from them. What a
// scalar means (number, truth value, text) is not decided here: the option table knows what it wants.
#include "trireme/base/yaml.h"
#include "trireme/base/file.h"
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { DEPTH_LIMIT = 32, KEY_LIMIT = 255, NODE_LIMIT = 100000, BYTE_LIMIT = 16 << 20 };

typedef struct block {
  struct block *next;
  max_align_t data[];
} block;

struct tr_yaml {
  block *blocks;
  tr_yaml_node *root;
  const char *file;
  size_t nnode;
};

typedef struct builder {
  tr_yaml *yaml;
  yaml_parser_t parser;
  yaml_event_t event; // the event being looked at; deleted by next_event
  const char *text;
  size_t nbyte;
} builder;

static void *take(tr_yaml *yaml, size_t nbyte) {
  block *b = calloc(1, sizeof *b + nbyte);
  if (!b) {
    (void)tr_error(TR_ERR_MEMORY, "no memory to read %s", yaml->file ? yaml->file : "a YAML file");
    return NULL;
  }
  b->next = yaml->blocks;
  yaml->blocks = b;
  return b->data;
}

static char *take_text(tr_yaml *yaml, const char *text, size_t n) {
  char *copy = take(yaml, n + 1);
  if (copy) memcpy(copy, text, n);
  return copy;
}

void tr_yaml_free(tr_yaml *yaml) {
  if (!yaml) return;
  for (block *b = yaml->blocks, *next; b; b = next) {
    next = b->next;
    free(b);
  }
  free(yaml);
}

static tr_status error_at(const builder *b, yaml_mark_t mark, const char *what) {
  return tr_error(TR_ERR_CONFIG, "%s:%zu:%zu: %s", b->yaml->file, mark.line + 1, mark.column + 1, what);
}

static tr_status named_error_at(const builder *b, yaml_mark_t mark, const char *what, const char *name,
                                const char *help) {
  return tr_error(TR_ERR_CONFIG, "%s:%zu:%zu: %s \"%.60s\"%s", b->yaml->file, mark.line + 1, mark.column + 1, what,
                  name, help);
}

// Where a byte lies: libyaml's reader errors come with an offset only.
static yaml_mark_t mark_of_offset(const builder *b, size_t offset) {
  yaml_mark_t mark = {.index = offset};
  for (size_t i = 0; i < offset && i < b->nbyte; i++) {
    mark.column++;
    if (b->text[i] == '\n') mark = (yaml_mark_t){.index = offset, .line = mark.line + 1};
  }
  return mark;
}

static tr_status syntax_error(const builder *b) {
  const yaml_parser_t *p = &b->parser;
  if (p->error == YAML_MEMORY_ERROR) return tr_error(TR_ERR_MEMORY, "no memory to read %s", b->yaml->file);
  const char *problem = p->problem ? p->problem : "cannot be read";
  yaml_mark_t mark = p->error == YAML_READER_ERROR ? mark_of_offset(b, p->problem_offset) : p->problem_mark;
  if (p->error == YAML_READER_ERROR)
    return tr_error(TR_ERR_CONFIG, "%s:%zu:%zu: a byte is not text: %s; save the file as UTF-8", b->yaml->file,
                    mark.line + 1, mark.column + 1, problem);
  tr_status status = tr_error(TR_ERR_CONFIG, "%s:%zu:%zu: not valid YAML: %s; check indentation, quotes and brackets",
                              b->yaml->file, mark.line + 1, mark.column + 1, problem);
  if (p->context && p->context_mark.line != mark.line)
    status = tr_error(TR_ERR_CONFIG, "%s (%s that starts at line %zu)", tr_status_text(), p->context,
                      p->context_mark.line + 1);
  return status;
}

static tr_status next_event(builder *b) {
  yaml_event_delete(&b->event);
  if (yaml_parser_parse(&b->parser, &b->event)) return TR_OK;
  b->event = (yaml_event_t){0};
  return syntax_error(b);
}

static tr_status new_node(builder *b, tr_yaml_kind kind, tr_yaml_node **out) {
  yaml_mark_t mark = b->event.start_mark;
  if (b->yaml->nnode >= NODE_LIMIT) return error_at(b, mark, "more than 100000 values; a run file has far fewer");
  tr_yaml_node *node = take(b->yaml, sizeof *node);
  if (!node) return TR_ERR_MEMORY;
  b->yaml->nnode++;
  node->kind = kind;
  node->file = b->yaml->file;
  node->line = (int)mark.line + 1;
  node->column = (int)mark.column + 1;
  *out = node;
  return TR_OK;
}

// Children live in an array that doubles; the smaller ones stay in the block list until the tree goes.
static tr_status add_child(builder *b, tr_yaml_node *parent, tr_yaml_node *child) {
  size_t n = parent->nchild;
  if ((n & (n - 1)) == 0) { // full at 0, 1, 2, 4, 8, ...
    tr_yaml_node **grown = take(b->yaml, (n ? 2 * n : 1) * sizeof(tr_yaml_node *));
    if (!grown) return TR_ERR_MEMORY;
    if (n) memcpy(grown, parent->child, n * sizeof(tr_yaml_node *));
    parent->child = grown;
  }
  parent->child[parent->nchild++] = child;
  return TR_OK;
}

// What a run file does not need, refused by name.
static tr_status refuse_extras(const builder *b) {
  const yaml_event_t *e = &b->event;
  const yaml_char_t *anchor = NULL, *tag = NULL;
  if (e->type == YAML_ALIAS_EVENT)
    return named_error_at(b, e->start_mark, "alias", (const char *)e->data.alias.anchor,
                          " is not supported; write the value out");
  if (e->type == YAML_SCALAR_EVENT) anchor = e->data.scalar.anchor, tag = e->data.scalar.tag;
  if (e->type == YAML_MAPPING_START_EVENT) anchor = e->data.mapping_start.anchor, tag = e->data.mapping_start.tag;
  if (e->type == YAML_SEQUENCE_START_EVENT) anchor = e->data.sequence_start.anchor, tag = e->data.sequence_start.tag;
  if (anchor)
    return named_error_at(b, e->start_mark, "anchor", (const char *)anchor, " is not supported; write the value out");
  if (tag) return named_error_at(b, e->start_mark, "tag", (const char *)tag, " is not supported; leave it out");
  return TR_OK;
}

static tr_status copy_scalar(builder *b, const char **out) {
  const yaml_event_t *e = &b->event;
  const char *value = (const char *)e->data.scalar.value;
  size_t n = e->data.scalar.length;
  if (memchr(value, 0, n)) return error_at(b, e->start_mark, "a zero byte cannot stand in a text; leave it out");
  *out = take_text(b->yaml, value, n);
  return *out ? TR_OK : TR_ERR_MEMORY;
}

static tr_status read_node(builder *b, int depth, tr_yaml_node **out);

static int by_key_then_place(const void *a, const void *b) {
  const tr_yaml_node *x = *(tr_yaml_node *const *)a, *y = *(tr_yaml_node *const *)b;
  int order = strcmp(x->key, y->key);
  if (order) return order;
  if (x->key_line != y->key_line) return x->key_line < y->key_line ? -1 : 1;
  return (x->key_column > y->key_column) - (x->key_column < y->key_column);
}

// Sorting keeps a map of many keys from costing their square.
static tr_status refuse_duplicates(builder *b, const tr_yaml_node *map) {
  if (map->nchild < 2) return TR_OK;
  tr_yaml_node **sorted = take(b->yaml, map->nchild * sizeof(tr_yaml_node *));
  if (!sorted) return TR_ERR_MEMORY;
  memcpy(sorted, map->child, map->nchild * sizeof(tr_yaml_node *));
  qsort(sorted, map->nchild, sizeof(tr_yaml_node *), by_key_then_place);
  for (size_t i = 1; i < map->nchild; i++)
    if (strcmp(sorted[i - 1]->key, sorted[i]->key) == 0)
      return tr_error(TR_ERR_CONFIG, "%s:%d:%d: key \"%.60s\" is given twice, first at line %d; keep one of them",
                      b->yaml->file, sorted[i]->key_line, sorted[i]->key_column, sorted[i]->key,
                      sorted[i - 1]->key_line);
  return TR_OK;
}

// The event is a key; read it and the value after it.
static tr_status read_member(builder *b, int depth, tr_yaml_node *map) {
  yaml_mark_t mark = b->event.start_mark;
  TR_TRY(refuse_extras(b));
  if (b->event.type != YAML_SCALAR_EVENT) return error_at(b, mark, "a key must be a plain word, not a map or a list");
  const char *key = "";
  TR_TRY(copy_scalar(b, &key));
  if (!*key) return error_at(b, mark, "a key is empty; write \"name: value\"");
  if (strlen(key) > KEY_LIMIT) return named_error_at(b, mark, "a key of more than 255 bytes begins with", key, "");
  TR_TRY(next_event(b));
  tr_yaml_node *child;
  TR_TRY(read_node(b, depth + 1, &child));
  child->key = key;
  child->key_line = (int)mark.line + 1;
  child->key_column = (int)mark.column + 1;
  return add_child(b, map, child);
}

static tr_status read_map(builder *b, int depth, tr_yaml_node *map) {
  TR_TRY(next_event(b));
  while (b->event.type != YAML_MAPPING_END_EVENT) {
    TR_TRY(read_member(b, depth, map));
    TR_TRY(next_event(b));
  }
  return refuse_duplicates(b, map);
}

static tr_status read_list(builder *b, int depth, tr_yaml_node *list) {
  TR_TRY(next_event(b));
  while (b->event.type != YAML_SEQUENCE_END_EVENT) {
    tr_yaml_node *child;
    TR_TRY(read_node(b, depth + 1, &child));
    TR_TRY(add_child(b, list, child));
    TR_TRY(next_event(b));
  }
  return TR_OK;
}

// The event starts a value; on return it is the value's last event.
static tr_status read_node(builder *b, int depth, tr_yaml_node **out) {
  if (depth > DEPTH_LIMIT)
    return error_at(b, b->event.start_mark, "nested deeper than 32 levels; a run file needs three or four");
  TR_TRY(refuse_extras(b));
  yaml_event_type_t type = b->event.type;
  tr_yaml_kind kind = type == YAML_SCALAR_EVENT          ? TR_YAML_SCALAR
                      : type == YAML_MAPPING_START_EVENT ? TR_YAML_MAP
                                                         : TR_YAML_LIST;
  TR_TRY(new_node(b, kind, out));
  if (kind == TR_YAML_MAP) return read_map(b, depth, *out);
  if (kind == TR_YAML_LIST) return read_list(b, depth, *out);
  (*out)->quoted = b->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
  return copy_scalar(b, &(*out)->value);
}

static tr_status empty_root(builder *b) {
  TR_TRY(new_node(b, TR_YAML_MAP, &b->yaml->root));
  b->yaml->root->line = b->yaml->root->column = 1;
  return TR_OK;
}

static tr_status read_stream(builder *b) {
  TR_TRY(next_event(b)); // stream start
  TR_TRY(next_event(b));
  if (b->event.type == YAML_STREAM_END_EVENT) return empty_root(b);
  TR_TRY(next_event(b)); // after the document start
  TR_TRY(read_node(b, 1, &b->yaml->root));
  const tr_yaml_node *root = b->yaml->root;
  if (root->kind == TR_YAML_SCALAR && !*root->value && !root->quoted)
    TR_TRY(empty_root(b)); // "---" alone
  else if (root->kind != TR_YAML_MAP)
    return tr_error(TR_ERR_CONFIG, "%s:%d:%d: the file is a %s; it must be a map such as \"optim: {lr: 1e-3}\"",
                    root->file, root->line, root->column, root->kind == TR_YAML_LIST ? "list" : "single value");
  TR_TRY(next_event(b)); // document end
  TR_TRY(next_event(b));
  if (b->event.type != YAML_STREAM_END_EVENT)
    return error_at(b, b->event.start_mark, "a second document starts here; put it into a file of its own");
  return TR_OK;
}

static tr_status create(const char *name, tr_yaml **out) {
  tr_yaml *yaml = calloc(1, sizeof *yaml);
  if (!yaml) return tr_error(TR_ERR_MEMORY, "no memory to read %s", name);
  yaml->file = take_text(yaml, name, strlen(name));
  if (!yaml->file) {
    tr_yaml_free(yaml);
    return TR_ERR_MEMORY;
  }
  *out = yaml;
  return TR_OK;
}

tr_status tr_yaml_parse(const char *text, size_t nbyte, const char *name, tr_yaml **out) {
  if (nbyte > BYTE_LIMIT)
    return tr_error(TR_ERR_CONFIG, "%s:1:1: %zu bytes are too many; a run file has at most %d", name, nbyte,
                    BYTE_LIMIT);
  builder b = {.text = text, .nbyte = nbyte};
  TR_TRY(create(name, &b.yaml));
  tr_status status = TR_OK;
  if (!yaml_parser_initialize(&b.parser)) {
    status = tr_error(TR_ERR_MEMORY, "no memory to read %s", name);
  } else {
    yaml_parser_set_input_string(&b.parser, (const unsigned char *)(text ? text : ""), nbyte);
    yaml_parser_set_encoding(&b.parser, YAML_UTF8_ENCODING);
    status = read_stream(&b);
    yaml_event_delete(&b.event);
    yaml_parser_delete(&b.parser);
  }
  if (status < 0)
    tr_yaml_free(b.yaml);
  else
    *out = b.yaml;
  return status;
}

tr_status tr_yaml_load(const char *path, tr_yaml **out) {
  char *text = NULL;
  size_t nbyte = 0;
  TR_TRY(tr_file_read(path, BYTE_LIMIT, &text, &nbyte));
  tr_status status = tr_yaml_parse(text, nbyte, path, out);
  free(text);
  return status;
}

const tr_yaml_node *tr_yaml_root(const tr_yaml *yaml) { return yaml->root; }

const tr_yaml_node *tr_yaml_find(const tr_yaml_node *map, const char *key) {
  for (size_t i = 0; map->kind == TR_YAML_MAP && i < map->nchild; i++)
    if (strcmp(map->child[i]->key, key) == 0) return map->child[i];
  return NULL;
}
