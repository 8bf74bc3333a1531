// SPDX-License-Identifier: MIT
// Arguments of the commands that take a path and options: one table per command, from which parsing and every message
// about a wrong use come. (train and bench are different: their settings come from option tables.)
#ifndef TRIREME_CLI_ARGUMENTS_INTERNAL_H
#define TRIREME_CLI_ARGUMENTS_INTERNAL_H

#include "trireme/base/option.h"
#include "trireme/base/status.h"
#include <stddef.h>
#include <stdint.h>

typedef enum tr__argument_kind {
  TR__ARGUMENT_FLAG,   // int: set to 1
  TR__ARGUMENT_COUNT,  // int64_t, min <= value <= max
  TR__ARGUMENT_REAL,   // double, min <= value <= max
  TR__ARGUMENT_AMOUNT, // double, min <= value <= max; with a unit if there is one: 80e9, 80GB, 512Mi
  TR__ARGUMENT_PARAMS, // the same of parameters or tokens, where B is a billion: 70B
  TR__ARGUMENT_NUMBER, // double that is a whole number, min <= value <= max: 64, 1e3
  TR__ARGUMENT_TIME,   // double, seconds, min <= value <= max: 5min, 0.4s, 50000h
  TR__ARGUMENT_TEXT,   // const char *
  TR__ARGUMENT_CHOICE, // int: index into `choices`
  TR__ARGUMENT_LIST,   // tr__argument_list: may be given several times
} tr__argument_kind;

enum { TR__ARGUMENT_LIST_MOST = 64 };
typedef struct tr__argument_list {
  const char *item[TR__ARGUMENT_LIST_MOST];
  size_t n;
} tr__argument_list;

typedef struct tr__argument {
  const char *name; // "--tokens"
  tr__argument_kind kind;
  void *out;
  double min, max;
  const char *choices[4]; // ends with NULL
} tr__argument;

// Options of `table` anywhere, and exactly one other argument, *path ("what" it is, for the message when it
// is missing). Everything else is TR_ERR_USAGE naming the argument and what would work.
tr_status tr__cli_parse(const char *command, int argc, char **argv, const tr__argument *table, size_t ntable,
                        const char *what, const char **path);
// The same with any number of other arguments, which are moved to argv[1] .. argv[*npath].
tr_status tr__cli_parse_paths(const char *command, int argc, char **argv, const tr__argument *table, size_t ntable,
                              size_t *npath);

// Settings of a run: the run files among the arguments in their order, then "a.b=c", "--a-b=c", "--a-b c" and "-n RANKS" in
// theirs. `flags` are words that stand alone (TR__ARGUMENT_FLAG). Every other argument goes to `rest`; NULL: there may be
// none.
tr_status tr__cli_settings(const char *command, tr_options *options, int argc, char **argv, const tr__argument *flags,
                           size_t nflag, tr__argument_list *rest);

// The folder to load from: `path` may be a checkpoint, a folder of checkpoints (its newest), a run's folder or a
// Hugging Face folder. `verify`: compare hashes with the manifest where there is one.
tr_status tr__cli_find_checkpoint(const char *path, int verify, char *out, size_t nbyte);

// Whether a schedule is given as a file: what is no schedule's name, and there, or looks like a path.
int tr__cli_is_schedule_file(const char *schedule);

// Length of the character that starts at text[0]: 0 when it may still become whole with more bytes than `n`.
// *valid 0: these bytes are no UTF-8.
size_t tr__cli_character(const char *text, size_t n, int *valid);

#endif
