// SPDX-License-Identifier: MIT
// Settings from the command line: run files first, so that arguments win wherever they stand. What train and bench share.
#include "cli/arguments_internal.h"
#include "cli/cli_internal.h"
#include "trireme/train/config.h"
#include <stdio.h>
#include <string.h>

typedef struct settings {
  const char *command;
  tr_options *options;
  const tr__argument *flags;
  size_t nflag;
  tr__argument_list *rest;
} settings;

static int is_run_file(const char *argument) {
  size_t n = strlen(argument);
  const char *equals = strchr(argument, '=');
  if (equals && !memchr(argument, '/', (size_t)(equals - argument)))
    return 0; // key=FILE.yaml; runs/lr=1/config.yaml is a file
  return (n > 5 && strcmp(argument + n - 5, ".yaml") == 0) || (n > 4 && strcmp(argument + n - 4, ".yml") == 0);
}

static int *flag_of(const settings *s, const char *argument) {
  for (size_t i = 0; i < s->nflag; i++)
    if (strcmp(argument, s->flags[i].name) == 0) return s->flags[i].out;
  return NULL;
}

// How many arguments from `argument` on belong together: a name that stands apart from its value takes the next one too.
static int span(const settings *s, const char *argument) {
  if (strcmp(argument, "-n") == 0) return 2;
  return strncmp(argument, "--", 2) == 0 && !strchr(argument, '=') && !flag_of(s, argument) ? 2 : 1;
}

static tr_status apply_ranks(tr_options *options, const char *value) {
  char text[64];
  int64_t ranks;
  size_t row = 0;
  while (strcmp(tr_train_options[row].path, "run.ranks") != 0) row++;
  double min = tr_train_options[row].min, max = tr_train_options[row].max;
  if (tr_parse_count(value, &ranks) < 0 || (double)ranks < min || (double)ranks > max)
    return tr_error(TR_ERR_CONFIG, "-n takes the number of ranks, from %.0f to %.0f, not '%.40s'", min, max, value);
  snprintf(text, sizeof text, "run.ranks=%lld", (long long)ranks);
  return tr_options_apply_argument(options, text);
}

// "--num-layers 3" is "--num-layers=3".
static tr_status apply_pair(tr_options *options, const char *name, const char *value) {
  tr_text text = {0};
  tr_text_append(&text, "%s=%s", name, value);
  tr_status status = text.failed ? tr_error(TR_ERR_MEMORY, "no memory for the argument %.80s", name)
                                 : tr_options_apply_argument(options, text.data);
  tr_text_free(&text);
  return status;
}

static tr_status apply_rest(const settings *s, const char *argument) {
  if (!s->rest) return tr__cli_usage(s->command, "'%s' is neither a run file (*.yaml) nor key=value", argument);
  if (s->rest->n == TR__ARGUMENT_LIST_MOST)
    return tr__cli_usage(s->command, "'%.80s' is one argument too many: at most %d", argument,
                         TR__ARGUMENT_LIST_MOST);
  s->rest->item[s->rest->n++] = argument;
  return TR_OK;
}

// value: the next argument, for a name that stands apart from it; NULL: there is none.
static tr_status apply_argument(const settings *s, const char *argument, const char *value) {
  int *flag = flag_of(s, argument);
  if (flag) return *flag = 1, TR_OK;
  if (strncmp(argument, "-n", 2) == 0) {
    if (argument[2]) value = argument + 2 + (argument[2] == '=');
    return value && *value ? apply_ranks(s->options, value)
                           : tr__cli_usage(s->command, "-n needs the number of ranks");
  }
  if (is_run_file(argument)) return TR_OK; // read before: arguments win over files wherever they stand
  if (strchr(argument, '=')) return tr_options_apply_argument(s->options, argument);
  if (strncmp(argument, "--", 2) == 0 && value && strncmp(value, "--", 2) != 0)
    return apply_pair(s->options, argument, value);
  if (argument[0] == '-') return tr__cli_usage(s->command, "there is no option '%s' without a value", argument);
  return apply_rest(s, argument);
}

tr_status tr__cli_settings(const char *command, tr_options *options, int argc, char **argv, const tr__argument *flags,
                           size_t nflag, tr__argument_list *rest) {
  const settings s = {command, options, flags, nflag, rest};
  for (int i = 1; i < argc; i += span(&s, argv[i])) {
    tr_yaml *yaml;
    if (!is_run_file(argv[i])) continue;
    TR_TRY(tr_yaml_load(argv[i], &yaml));
    TR_TRY(tr_options_apply_yaml(options, yaml));
  }
  for (int i = 1; i < argc; i += span(&s, argv[i]))
    TR_TRY(apply_argument(&s, argv[i], i + 1 < argc ? argv[i + 1] : NULL));
  return TR_OK;
}
