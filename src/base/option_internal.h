// SPDX-License-Identifier: MIT
// What the files of the option table share: the set itself, values in and out, and words for what a row accepts.
//
// option.c finds rows and applies sources; option_value.c reads and writes one value; option_print.c writes
// run files; option_help.c and option_man.c write for people. Only option.c knows how a key is looked up.
#ifndef TRIREME_BASE_OPTION_INTERNAL_H
#define TRIREME_BASE_OPTION_INTERNAL_H

#include "trireme/base/option.h"

typedef enum tr__name_kind { TR__NAME_PATH, TR__NAME_ALIAS, TR__NAME_LEAF } tr__name_kind;

typedef struct tr__option_slot {
  char *source;   // where the value came from; NULL: the default
  int by_default; // which says where another default came from
  int turn;       // number of the source that set it last
} tr__option_slot;

typedef struct tr__option_subtree {
  char *key;
  const tr_yaml_node *node; // NULL until given
} tr__option_subtree;

struct tr_options {
  const tr_option *table;
  size_t noption;
  void *object;
  tr__option_slot *slot; // one per row
  // Every name a row answers to: name_text[i] means row name_row[i].
  const char **name_text;
  size_t *name_row;
  tr__name_kind *name_kind;
  size_t nname;
  char *alias_text; // what alias names point into
  tr_yaml **tree;   // kept, because subtrees point into them
  size_t ntree;
  tr__option_subtree *subtree;
  size_t nsubtree;
  int nargument, nturn;
};

// Read `value` as the row's type, check it and store it in `object`. Failures do not name key or place.
tr_status tr__option_store(const tr_option *row, void *object, const char *value);
// The value in `object` as YAML that reads back the same.
void tr__option_value(const tr_option *row, const void *object, tr_text *out);
// "a whole number of at least 1 sequences, or auto"
void tr__option_accepted(const tr_option *row, tr_text *out);
const char *tr__option_default(const tr_option *row); // as text, never NULL
// "a|b|c": call with *rest at the list; returns the next word and its length, or NULL.
const char *tr__option_next_word(const char **rest, size_t *n);
int tr__option_name_equal(const char *a, const char *b); // dashes and underscores are the same
void tr__option_real(double value, tr_text *out);        // shortest digits that read back the same
const char *tr__option_text(const tr_text *text);        // never NULL

// Length of the part of `path` before its first dot, or of all of it.
size_t tr__option_section(const char *path);
// Whether row i is the first whose path agrees with row i's in the first n characters followed by a dot or the end.
int tr__option_first_of(const tr_option *table, size_t i, size_t n);

// Text as a YAML scalar: plain where that is safe, in double quotes with escapes elsewhere. `force`: always quotes.
void tr__yaml_scalar(const char *value, int force, tr_text *out);
int tr__text_is_utf8(const char *text);

#endif
