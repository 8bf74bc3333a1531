// SPDX-License-Identifier: MIT
// One option value: from text into the caller's struct, back into text, and in words what is accepted.
//
// A value printed here and read again is the same value: integers in full, real numbers with the fewest
// digits that read back to the same bits, the extra word ("auto") as the word. Text must be UTF-8, since a
// run file can hold nothing else.
#include "base/option_internal.h"
#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tr__option_text(const tr_text *text) { return text->data ? text->data : ""; }
const char *tr__option_default(const tr_option *row) { return row->def ? row->def : ""; }

static char folded(char c) { return c == '-' ? '_' : c; }

int tr__option_name_equal(const char *a, const char *b) {
  while (*a && folded(*a) == folded(*b)) a++, b++;
  return *a == *b;
}

const char *tr__option_next_word(const char **rest, size_t *n) {
  const char *word = *rest;
  if (!word || !*word) return NULL;
  *n = strcspn(word, "|");
  *rest = word + *n + (word[*n] == '|');
  return word;
}

// Index of `value` in "a|b|c", or -1. Upper and lower case, dash and underscore are the same ("AdamW").
static int word_index(const char *choices, const char *value) {
  size_t n, m = strlen(value);
  const char *rest = choices, *word;
  for (int i = 0; (word = tr__option_next_word(&rest, &n)); i++) {
    size_t j = 0;
    while (n == m && j < n &&
           folded((char)tolower((unsigned char)word[j])) == folded((char)tolower((unsigned char)value[j])))
      j++;
    if (n == m && j == n) return i;
  }
  return -1;
}

void tr__option_real(double value, tr_text *out) {
  char digits[40];
  if (fabs(value) < 1e15 && value == rint(value) && !(value == 0 && signbit(value))) {
    tr_text_append(out, "%.0f", value);
    return;
  }
  for (int precision = 1; precision <= DBL_DECIMAL_DIG; precision++) {
    double back = 0;
    (void)snprintf(digits, sizeof digits, "%.*g", precision, value);
    for (char *c = digits; *c; c++)
      if (*c == ',') *c = '.'; // a locale with a decimal comma
    if (tr_parse_real(digits, &back) == TR_OK && back == value) break;
  }
  tr_text_append(out, "%s", digits);
}

static void append_range(const tr_option *row, tr_text *out) {
  if (row->min == row->max) return;
  double beyond = row->type == TR_OPTION_INT ? 9e15 : 1e300; // no bound a person would want to read
  int low = row->min > -beyond, high = row->max < beyond;
  tr_text_append(out, low && high ? " from " : low ? " of at least " : high ? " of at most " : "");
  if (low) tr__option_real(row->min, out);
  if (low && high) tr_text_append(out, " to ");
  if (high) tr__option_real(row->max, out);
}

static void append_words(const char *choices, tr_text *out) {
  size_t n;
  const char *word, *rest = choices;
  for (const char *between = ""; (word = tr__option_next_word(&rest, &n)); between = ", ")
    tr_text_append(out, "%s%.*s", between, (int)n, word);
}

void tr__option_accepted(const tr_option *row, tr_text *out) {
  static const char *const what[] = {
      [TR_OPTION_INT] = "a whole number", [TR_OPTION_REAL] = "a number",  [TR_OPTION_DURATION] = "a duration",
      [TR_OPTION_BOOL] = "true or false", [TR_OPTION_CHOICE] = "one of ", [TR_OPTION_STRING] = "text"};
  tr_text_append(out, "%s", what[row->type]);
  if (row->type == TR_OPTION_CHOICE) append_words(row->choices, out);
  if (row->type > TR_OPTION_DURATION) return;
  append_range(row, out);
  if (row->type == TR_OPTION_DURATION)
    tr_text_append(out, row->min == row->max ? " such as 30s, 5min or 2h" : " s");
  else if (row->unit && *row->unit)
    tr_text_append(out, " (%s)", row->unit);
  if (!row->choices) return;
  tr_text_append(out, ", or ");
  append_words(row->choices, out);
}

static void *field(const tr_option *row, void *object) { return (char *)object + row->offset; }

static tr_status check_range(const tr_option *row, const char *value, double number) {
  if (row->min == row->max || (number >= row->min && number <= row->max)) return TR_OK;
  return tr_error(TR_ERR_CONFIG, "%.60s is out of range", value);
}

static tr_status store_number(const tr_option *row, void *object, const char *value) {
  int64_t count = (int64_t)row->word;
  double real = row->word;
  if (word_index(row->choices, value) >= 0) {
    if (row->type == TR_OPTION_INT)
      *(int64_t *)field(row, object) = count;
    else
      *(double *)field(row, object) = real;
    return TR_OK;
  }
  switch (row->type) {
  case TR_OPTION_INT:
    TR_TRY(tr_parse_count(value, &count));
    TR_TRY(check_range(row, value, (double)count));
    *(int64_t *)field(row, object) = count;
    return TR_OK;
  case TR_OPTION_REAL: TR_TRY(tr_parse_real(value, &real)); break;
  default: TR_TRY(tr_parse_duration(value, &real)); break;
  }
  TR_TRY(check_range(row, value, real));
  *(double *)field(row, object) = real;
  return TR_OK;
}

static tr_status store_bool(const tr_option *row, void *object, const char *value) {
  int yes = word_index("true|yes|on|1", value) >= 0;
  if (!yes && word_index("false|no|off|0", value) < 0)
    return tr_error(TR_ERR_CONFIG, "\"%.60s\" is not a truth value", value);
  *(int *)field(row, object) = yes;
  return TR_OK;
}

enum { CHOICE_LIMIT = 64, WORD_LIMIT = 64 };

// The closest of the choices, for people who cannot spell it either; "" if none.
static void closest_choice(const tr_option *row, const char *value, char out[WORD_LIMIT]) {
  char word[CHOICE_LIMIT][WORD_LIMIT];
  const char *list[CHOICE_LIMIT], *rest = row->choices, *next;
  size_t n, count = 0;
  while (count < CHOICE_LIMIT && (next = tr__option_next_word(&rest, &n))) {
    if (n >= WORD_LIMIT) continue;
    memcpy(word[count], next, n);
    word[count][n] = '\0';
    list[count] = word[count];
    count++;
  }
  const char *closest = tr_text_closest(value, list, count);
  (void)snprintf(out, WORD_LIMIT, "%s", closest ? closest : "");
}

static tr_status store_choice(const tr_option *row, void *object, const char *value) {
  int index = word_index(row->choices, value);
  if (index < 0) {
    char closest[WORD_LIMIT];
    closest_choice(row, value, closest);
    if (*closest) return tr_error(TR_ERR_CONFIG, "\"%.60s\" is no choice (did you mean \"%s\"?)", value, closest);
    return tr_error(TR_ERR_CONFIG, "\"%.60s\" is no choice", value);
  }
  *(int *)field(row, object) = index;
  return TR_OK;
}

static tr_status store_string(const tr_option *row, void *object, const char *value) {
  if (!tr__text_is_utf8(value)) return tr_error(TR_ERR_CONFIG, "the text is not valid UTF-8, which run files need");
  char *copy = strdup(value);
  if (!copy) return tr_error(TR_ERR_MEMORY, "no memory for a text of %zu bytes", strlen(value));
  char **place = field(row, object);
  free(*place);
  *place = copy;
  return TR_OK;
}

tr_status tr__option_store(const tr_option *row, void *object, const char *value) {
  switch (row->type) {
  case TR_OPTION_INT:
  case TR_OPTION_REAL:
  case TR_OPTION_DURATION: return store_number(row, object, value);
  case TR_OPTION_BOOL: return store_bool(row, object, value);
  case TR_OPTION_CHOICE: return store_choice(row, object, value);
  case TR_OPTION_STRING: return store_string(row, object, value);
  }
  return tr_error(TR_ERR_INTERNAL, "option %s has no type", row->path);
}

static void value_choice(const tr_option *row, int index, tr_text *out) {
  const char *rest = row->choices, *word;
  size_t n;
  for (int i = 0; (word = tr__option_next_word(&rest, &n)); i++)
    if (i == index) tr_text_append(out, "%.*s", (int)n, word);
}

void tr__option_value(const tr_option *row, const void *object, tr_text *out) {
  const void *place = (const char *)object + row->offset;
  int number = row->type <= TR_OPTION_DURATION;
  int64_t count = row->type == TR_OPTION_INT ? *(const int64_t *)place : 0;
  double real = number && row->type != TR_OPTION_INT ? *(const double *)place : 0;
  if (number && row->choices && (row->type == TR_OPTION_INT ? (double)count : real) == row->word) {
    value_choice(row, 0, out);
    return;
  }
  switch (row->type) {
  case TR_OPTION_INT: tr_text_append(out, "%lld", (long long)count); break;
  case TR_OPTION_REAL:
  case TR_OPTION_DURATION: tr__option_real(real, out); break;
  case TR_OPTION_BOOL: tr_text_append(out, *(const int *)place ? "true" : "false"); break;
  case TR_OPTION_CHOICE: value_choice(row, *(const int *)place, out); break;
  case TR_OPTION_STRING: tr__yaml_scalar(*(char *const *)place, 0, out); break;
  }
}
