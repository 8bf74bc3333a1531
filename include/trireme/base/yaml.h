// SPDX-License-Identifier: MIT
// Run files as a tree: YAML read with libyaml, every value with its file, line and column.
//
// Only what a run file needs: mappings, sequences and scalars; no anchors, aliases or tags (refused by name), depth
// at most 32, at most 100 000 nodes, duplicate keys refused, and keys above 255 bytes (printed with escapes, longer ones would
// be more than YAML reads as a key). Nodes belong to the tree and go with it.
#ifndef TRIREME_BASE_YAML_H
#define TRIREME_BASE_YAML_H

#include "trireme/base/status.h"
#include <stddef.h>

typedef enum tr_yaml_kind { TR_YAML_SCALAR, TR_YAML_MAP, TR_YAML_LIST } tr_yaml_kind;

typedef struct tr_yaml_node {
  tr_yaml_kind kind;
  const char *key;          // name within its map, NULL in a list and at the root
  const char *value;        // scalar text, NULL otherwise
  const char *file;         // as given by the caller
  int line, column;         // from 1
  int key_line, key_column; // of the key, 0 without one
  int quoted;               // the scalar stood in quotes
  struct tr_yaml_node **child;
  size_t nchild;
} tr_yaml_node;

typedef struct tr_yaml tr_yaml;

tr_status tr_yaml_load(const char *path, tr_yaml **out); // TR_ERR_CONFIG "run.yaml:3:7: ..." or TR_ERR_IO
tr_status tr_yaml_parse(const char *text, size_t nbyte, const char *name, tr_yaml **out);
void tr_yaml_free(tr_yaml *yaml);                                           // NULL allowed
const tr_yaml_node *tr_yaml_root(const tr_yaml *yaml);                      // a map; an empty file is an empty map
const tr_yaml_node *tr_yaml_find(const tr_yaml_node *map, const char *key); // NULL if absent

#endif
