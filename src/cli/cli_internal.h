// SPDX-License-Identifier: MIT
// The command line: one file per command, each a function that gets its own arguments and returns an exit code.
#ifndef TRIREME_CLI_INTERNAL_H
#define TRIREME_CLI_INTERNAL_H

#include "trireme/base/status.h"

typedef struct tr__command {
  const char *name, *summary;
  int (*run)(int argc, char **argv); // argv[0] is the command's name; returns the exit code
} tr__command;

int tr__cli_train(int argc, char **argv);
int tr__cli_generate(int argc, char **argv);
int tr__cli_inspect(int argc, char **argv);
int tr__cli_tokenize(int argc, char **argv);
int tr__cli_convert(int argc, char **argv);
int tr__cli_diff(int argc, char **argv);
int tr__cli_bench(int argc, char **argv);
int tr__cli_plan(int argc, char **argv);
int tr__cli_simulate(int argc, char **argv);
int tr__cli_man(int argc, char **argv); // the manual pages, generated from the option tables

// Print "trireme: <sentence>" to standard error and return the exit code of `status`.
int tr__cli_fail(tr_status status);
// The exit code of a status: tr__cli_fail where it is a failure; 130 where work was stopped as asked (TR_PENDING) and can go on.
int tr__cli_end(tr_status status);
// Record a wrong use of a command (exit code 2) with a pointer to its --help.
tr_status tr__cli_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
// "--name VALUE" or "--name=VALUE" at argv[*i]: *value is set and *i moved; 0 when argv[*i] is something else.
// A missing value is *value NULL.
int tr__cli_option(int argc, char **argv, int *i, const char *name, const char **value);
int tr__cli_wants_help(int argc, char **argv); // --help or -h among the arguments

#endif
