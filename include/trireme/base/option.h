// SPDX-License-Identifier: MIT
// The option table: one row per setting, from which parsing, checking, --help, --print-config and the manual page all
// come. A row says where the value lives in the caller's struct, so there is no second list to keep in step.
//
// Order of sources, later wins: default, environment variable, run files in order, key=value arguments in order.
// A key is a dotted path ("optim.weight_decay"); the last part alone is accepted where no other row ends in it.
// Unknown keys and bad values are TR_ERR_CONFIG with file:line:column (or "argument 'x=y'"), the value, what is
// accepted, and "did you mean". Megatron-style and Hugging Face-style names may be given as aliases.
#ifndef TRIREME_BASE_OPTION_H
#define TRIREME_BASE_OPTION_H

#include "trireme/base/status.h"
#include "trireme/base/text.h"
#include "trireme/base/yaml.h"
#include <stddef.h>
#include <stdint.h>

typedef enum tr_option_type {
  TR_OPTION_INT,      // int64_t; counts and sizes with units (tr_parse_count)
  TR_OPTION_REAL,     // double
  TR_OPTION_DURATION, // double, seconds
  TR_OPTION_BOOL,     // int; true/false/yes/no/on/off/1/0
  TR_OPTION_CHOICE,   // int: index into `choices`, "a|b|c"
  TR_OPTION_STRING,   // char *, owned by the struct's option set; NULL never, "" allowed
} tr_option_type;

typedef struct tr_option {
  const char *path; // "optim.lr"
  tr_option_type type;
  size_t offset;       // of the field in the caller's struct
  const char *def;     // default, as text, parsed like any other value
  double min, max;     // numbers only; equal: unchecked
  const char *choices; // CHOICE: "adamw|sgd"; INT, REAL: extra words, "auto" stored as `word`
  double word;         // value stored for the one extra word of a number ("auto" -> -1)
  const char *unit;    // "sequences", "s", "bytes"; may be NULL
  const char *alias;   // other accepted names, "global-batch-size|train_batch_size"; may be NULL
  const char *env;     // environment variable; may be NULL
  const char *help;    // one sentence
} tr_option;

typedef struct tr_options tr_options; // a table bound to a struct, remembering where each value came from

// Bind `table` to `object` (zeroed by the caller) and fill in defaults and environment.
tr_status tr_options_create(const tr_option *table, size_t noption, void *object, tr_options **out);
void tr_options_destroy(tr_options *options); // frees the strings it put into the struct too; NULL allowed

// Also accept a whole subtree unread under this top-level key (the model description, say); fetch it with
// tr_options_subtree (NULL if never given). Call before applying.
tr_status tr_options_allow_subtree(tr_options *options, const char *key);
const tr_yaml_node *tr_options_subtree(const tr_options *options, const char *key);

tr_status tr_options_apply_yaml(tr_options *options, tr_yaml *yaml); // takes ownership of the tree in every case
// The entries of a map as if they were those of a file; the tree that it is in stays the caller's, and outlives subtrees.
tr_status tr_options_apply_map(tr_options *options, const tr_yaml_node *map);
tr_status tr_options_apply_argument(tr_options *options, const char *argument); // "a.b=c", "c=d"; "--a-b=c" too
// Another default, from what the table cannot know; `source` says so where settings are printed. Nothing happens where a value was given.
tr_status tr_options_default(tr_options *options, const char *path, const char *value, const char *source);
int tr_options_is_set(const tr_options *options, const char *path);         // given by anything but the default
const char *tr_options_source(const tr_options *options, const char *path); // "default", "run.yaml:3:7", "argument 3"

// A TR_ERR_CONFIG about one option's value, prefixed with where that value came from: for checks across options.
tr_status tr_options_error(const tr_options *options, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// The effective settings as a run file that loads to the same values, each with its source as a comment if asked.
void tr_options_print(const tr_options *options, int with_source, tr_text *out);
// Help for all options, or those whose path starts with `prefix`: name, type, range, default, sentence.
void tr_options_help(const tr_option *table, size_t noption, const char *prefix, tr_text *out);
// The manual page of `command` ("trireme-train"), in roff: its name with the one-line `summary`, and every option.
void tr_options_man(const tr_option *table, size_t noption, const char *command, const char *summary, tr_text *out);

#endif
