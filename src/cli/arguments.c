// SPDX-License-Identifier: MIT
// Reading a command's arguments by its table, finding the checkpoint a path means, and cutting bytes into
// characters: what generate and inspect share.
#include "cli/arguments_internal.h"
#include "cli/cli_internal.h"
#include "trireme/base/file.h"
#include "trireme/base/text.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/step/schedule.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_OPTIONS = 32 };

static tr_status out_of_range(const char *command, const tr__argument *a, const char *value, const char *kind) {
  return tr__cli_usage(command, "%s takes %s between %.15g and %.15g, not '%.80s'", a->name, kind, a->min, a->max,
                       value);
}

static tr_status set_choice(const char *command, const tr__argument *a, const char *value) {
  size_t n = 0;
  while (a->choices[n] && strcmp(a->choices[n], value) != 0) n++;
  if (a->choices[n]) return *(int *)a->out = (int)n, TR_OK;
  tr_text list = {0};
  for (size_t i = 0; i < n; i++) tr_text_append(&list, "%s%s", i ? " or " : "", a->choices[i]);
  const char *closest = tr_text_closest(value, a->choices, n);
  tr_status status =
      tr__cli_usage(command, "%s takes %s, not '%.80s'%s%s%s", a->name, list.data ? list.data : "", value,
                    closest ? "; did you mean '" : "", closest ? closest : "", closest ? "'?" : "");
  tr_text_free(&list);
  return status;
}

static tr_status add_to_list(const char *command, const tr__argument *a, const char *value) {
  tr__argument_list *list = a->out;
  if (list->n == TR__ARGUMENT_LIST_MOST)
    return tr__cli_usage(command, "%s may be given %d times at most", a->name, TR__ARGUMENT_LIST_MOST);
  list->item[list->n++] = value;
  return TR_OK;
}

static tr_status parse_amount(const char *value, double *out) {
  int64_t count;
  if (tr_parse_real(value, out) == TR_OK) return TR_OK;
  TR_TRY(tr_parse_count(value, &count));
  *out = (double)count;
  return TR_OK;
}

// As people count parameters and tokens, and as they are printed: 70.6B.
static tr_status parse_params(const char *value, double *out) {
  char number[64];
  const size_t n = strlen(value);
  if (n < 2 || n >= sizeof number || value[n - 1] != 'B') return parse_amount(value, out);
  snprintf(number, sizeof number, "%.*s", (int)(n - 1), value);
  if (tr_parse_real(number, out) < 0) return parse_amount(value, out);
  *out *= 1e9;
  return TR_OK;
}

static tr_status set_real(const char *command, const tr__argument *a, const char *value,
                          tr_status (*parse)(const char *, double *), const char *kind) {
  double real;
  if (parse(value, &real) < 0 || !(real >= a->min && real <= a->max)) return out_of_range(command, a, value, kind);
  *(double *)a->out = real;
  return TR_OK;
}

static tr_status parse_whole(const char *value, double *out) {
  TR_TRY(parse_amount(value, out));
  return *out == floor(*out) ? TR_OK : TR_ERR_CONFIG;
}

static tr_status set_value(const char *command, const tr__argument *a, const char *value) {
  int64_t count;
  switch (a->kind) {
  case TR__ARGUMENT_COUNT:
    if (tr_parse_count(value, &count) < 0 || (double)count < a->min || (double)count > a->max)
      return out_of_range(command, a, value, "a whole number");
    *(int64_t *)a->out = count;
    return TR_OK;
  case TR__ARGUMENT_REAL: return set_real(command, a, value, tr_parse_real, "a number");
  case TR__ARGUMENT_AMOUNT: return set_real(command, a, value, parse_amount, "a number such as 8e10 or 80GB");
  case TR__ARGUMENT_PARAMS: return set_real(command, a, value, parse_params, "a number such as 8e10 or 80B");
  case TR__ARGUMENT_NUMBER: return set_real(command, a, value, parse_whole, "a whole number");
  case TR__ARGUMENT_TIME:
    return set_real(command, a, value, tr_parse_duration, "a time such as 30s, 5min or 2h, in seconds");
  case TR__ARGUMENT_CHOICE: return set_choice(command, a, value);
  case TR__ARGUMENT_LIST: return add_to_list(command, a, value);
  default: *(const char **)a->out = value; return TR_OK;
  }
}

static tr_status unknown(const char *command, const tr__argument *table, size_t ntable, const char *argument) {
  const char *names[MOST_OPTIONS];
  char word[64];
  size_t n = ntable < MOST_OPTIONS ? ntable : MOST_OPTIONS;
  for (size_t i = 0; i < n; i++) names[i] = table[i].name;
  snprintf(word, sizeof word, "%.*s", (int)strcspn(argument, "="), argument);
  const char *closest = tr_text_closest(word, names, n);
  if (closest) return tr__cli_usage(command, "there is no option '%s'; did you mean '%s'?", word, closest);
  tr_text list = {0};
  for (size_t i = 0; i < n; i++) tr_text_append(&list, "%s%s", i ? " " : "", names[i]);
  tr_status status =
      tr__cli_usage(command, "there is no option '%s'; there are: %s", word, list.data ? list.data : "");
  tr_text_free(&list);
  return status;
}

static tr_status take_option(const char *command, int argc, char **argv, int *i, const tr__argument *table,
                             size_t ntable) {
  const char *argument = argv[*i], *value;
  for (size_t k = 0; k < ntable; k++) {
    const tr__argument *a = &table[k];
    if (a->kind == TR__ARGUMENT_FLAG) {
      if (strcmp(argument, a->name) == 0) return *(int *)a->out = 1, TR_OK;
      continue;
    }
    if (!tr__cli_option(argc, argv, i, a->name, &value)) continue;
    return value ? set_value(command, a, value) : tr__cli_usage(command, "%s needs a value", a->name);
  }
  return unknown(command, table, ntable, argument);
}

tr_status tr__cli_parse_paths(const char *command, int argc, char **argv, const tr__argument *table, size_t ntable,
                              size_t *npath) {
  *npath = 0;
  for (int i = 1; i < argc; i++) {
    if (argv[i][0] == '-' && argv[i][1])
      TR_TRY(take_option(command, argc, argv, &i, table, ntable));
    else
      argv[++*npath] = argv[i]; // never beyond i
  }
  return TR_OK;
}

tr_status tr__cli_parse(const char *command, int argc, char **argv, const tr__argument *table, size_t ntable,
                        const char *what, const char **path) {
  size_t npath;
  TR_TRY(tr__cli_parse_paths(command, argc, argv, table, ntable, &npath));
  if (npath > 1) return tr__cli_usage(command, "'%.80s' and '%.80s' are two paths; give one", argv[1], argv[2]);
  *path = npath ? argv[1] : "";
  return **path ? TR_OK : tr__cli_usage(command, "give %s", what);
}

static int has(const char *folder, const char *name) {
  char path[4096];
  return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && tr_file_exists(path);
}

tr_status tr__cli_find_checkpoint(const char *path, int verify, char *out, size_t nbyte) {
  char below[4096];
  int is_run = !has(path, "manifest.json") && !has(path, "model.safetensors") && has(path, "checkpoints");
  if (!is_run || snprintf(below, sizeof below, "%s/checkpoints", path) >= (int)sizeof below)
    return tr_ckpt_find(path, verify, out, nbyte);
  return tr_ckpt_find(below, verify, out, nbyte);
}

// Over-long forms are refused (a least code point for each length), and surrogates, and what is beyond Unicode.
static int is_code_point(unsigned long code, size_t length) {
  static const unsigned long least[] = {0, 0, 0x80, 0x800, 0x10000};
  return code >= least[length] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
}

int tr__cli_is_schedule_file(const char *schedule) {
  const char *known;
  for (int i = 0; (known = tr_schedule_known(i, NULL)) != NULL; i++)
    if (strcmp(known, schedule) == 0) return 0;
  return tr_file_exists(schedule) || strpbrk(schedule, "/.") != NULL;
}

size_t tr__cli_character(const char *text, size_t n, int *valid) {
  const unsigned char *c = (const unsigned char *)text;
  size_t length = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : c[0] < 0xf5 ? 4 : 0;
  *valid = length == 1;
  if (length < 2) return 1;
  unsigned long code = c[0] & (0x7fu >> length);
  for (size_t i = 1; i < length; i++) {
    if (i == n) return 0;
    if ((c[i] & 0xc0) != 0x80) return i;
    code = code << 6 | (c[i] & 0x3fu);
  }
  *valid = is_code_point(code, length);
  return *valid ? length : 1;
}
