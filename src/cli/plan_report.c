// SPDX-License-Identifier: MIT
// The report of a plan's word (plan_words_internal.h): numbers as people read them in a growing text, and as they are in a JSON
// object; one of the two is printed at the end.
#include "cli/cli_internal.h"
#include "cli/plan_words_internal.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL = 44, CELL = 13, NAME_CELL = 18 };

// ---- arguments

tr_status tr__plan_options(const char *word, int argc, char **argv, const tr__argument *table, size_t n) {
  char command[64];
  size_t npath;
  snprintf(command, sizeof command, "plan %s", word);
  TR_TRY(tr__cli_parse_paths(command, argc, argv, table, n, &npath));
  return npath ? tr__cli_usage(command, "'%.80s' is no option", argv[1]) : TR_OK;
}

tr_status tr__plan_split(const char *word, const char *option, const char *text, char (*field)[TR__PLAN_FIELD],
                         size_t least, size_t most, const char *form, size_t *n) {
  char command[64];
  snprintf(command, sizeof command, "plan %s", word);
  *n = 0;
  for (const char *at = text; at; at = strchr(at, ':')) {
    if (*at == ':' && at != text) at++;
    size_t length = strcspn(at, ":");
    if (*n == most || length == 0 || length >= TR__PLAN_FIELD) {
      *n = 0;
      break;
    }
    snprintf(field[(*n)++], TR__PLAN_FIELD, "%.*s", (int)length, at);
  }
  return *n >= least ? TR_OK : tr__cli_usage(command, "%s takes %s, not '%.80s'", option, form, text);
}

tr_status tr__plan_field(const char *word, const char *option, const char *text, const char *field, int time,
                         double *out) {
  char command[64];
  int64_t count;
  snprintf(command, sizeof command, "plan %s", word);
  tr_status status = time ? tr_parse_duration(field, out) : tr_parse_real(field, out);
  if (status < 0 && !time && tr_parse_count(field, &count) == TR_OK) status = TR_OK, *out = (double)count;
  if (status == TR_OK && *out >= 0 && *out <= (time ? 1e12 : 1e18)) return TR_OK;
  return tr__cli_usage(command, "'%s' in %s %.80s is no %s", field, option, text,
                       time ? "time such as 30s or 50000h, at most 1e12 s" : "number from 0 to 1e18");
}

// ---- numbers as people read them

static void scaled(char *out, size_t nbyte, double value, const char *unit) {
  static const struct {
    double factor;
    const char *prefix;
  } step[] = {{1e18, "E"}, {1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  size_t i = 0, n = sizeof step / sizeof *step;
  while (i < n && fabs(value) < step[i].factor) i++;
  snprintf(out, nbyte, "%.4g %s%s", i < n ? value / step[i].factor : value, i < n ? step[i].prefix : "", unit);
}

static void format_time(char *out, size_t nbyte, double seconds) {
  if (seconds < 1e-3)
    snprintf(out, nbyte, "%.3g us", seconds * 1e6);
  else if (seconds < 1)
    snprintf(out, nbyte, "%.4g ms", seconds * 1e3);
  else if (seconds < 120)
    snprintf(out, nbyte, "%.4g s", seconds);
  else if (seconds < 6 * 3600.0)
    snprintf(out, nbyte, "%.1f min", seconds / 60);
  else if (seconds < 3 * 86400.0)
    snprintf(out, nbyte, "%.2f h", seconds / 3600);
  else
    snprintf(out, nbyte, "%.1f days", seconds / 86400);
}

void tr__plan_format(char *out, size_t nbyte, tr__plan_unit unit, double value) {
  if (isnan(value))
    snprintf(out, nbyte, "-");
  else if (isinf(value))
    snprintf(out, nbyte, "never ends");
  else if (unit == TR__PLAN_BYTES)
    scaled(out, nbyte, value, "B");
  else if (unit == TR__PLAN_MEMORY)
    snprintf(out, nbyte, fabs(value) < 1e8 ? "%.3g MiB" : "%.4g GiB",
             value / (fabs(value) < 1e8 ? 1048576 : 1073741824));
  else if (unit == TR__PLAN_AMOUNT)
    tr_format_count(out, nbyte, value);
  else if (unit == TR__PLAN_TIME)
    format_time(out, nbyte, value);
  else if (unit == TR__PLAN_SHARE)
    snprintf(out, nbyte, "%.2f %%", 100 * value);
  else if (unit == TR__PLAN_MONEY)
    snprintf(out, nbyte, fabs(value) < 100 ? "$%.2f" : "$%.0f", value);
  else if (unit == TR__PLAN_COUNT)
    snprintf(out, nbyte, fabs(value) < 1e9 ? "%.0f" : "%.4g", value);
  else
    snprintf(out, nbyte, "%.4g", value);
}

// ---- the report

static void set(tr__plan_report *r, json_t *object, const char *key, json_t *value) {
  if (json_object_set_new(object, key, value) != 0) r->failed = 1;
}

static json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

void tr__plan_begin(tr__plan_report *report, const char *word, int as_json) {
  *report = (tr__plan_report){.as_json = as_json, .root = json_object(), .warnings = json_array()};
  set(report, report->root, "plan", json_string(word));
}

void tr__plan_head(tr__plan_report *report, const char *format, ...) {
  char line[256];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  tr_text_append(&report->text, "%s%s\n", report->text.size ? "\n" : "", line);
}

void tr__plan_value(tr__plan_report *report, const char *label, const char *key, tr__plan_unit unit, double value) {
  char shown[64];
  tr__plan_format(shown, sizeof shown, unit, value);
  tr_text_append(&report->text, "  %-*s %s\n", LABEL, label, shown);
  set(report, report->root, key, number(value));
}

void tr__plan_text(tr__plan_report *report, const char *label, const char *key, const char *text) {
  tr_text_append(&report->text, "  %-*s %s\n", LABEL, label, text);
  set(report, report->root, key, json_string(text));
}

void tr__plan_table(tr__plan_report *report, const char *key, const tr__plan_column *column) {
  report->column = column;
  report->rows = json_array();
  set(report, report->root, key, report->rows);
  tr_text_append(&report->text, "%s  %-*s", report->text.size ? "\n" : "", NAME_CELL, column->title);
  for (const tr__plan_column *c = column + 1; c->title; c++) tr_text_append(&report->text, " %*s", CELL, c->title);
  tr_text_append(&report->text, "\n");
}

void tr__plan_row(tr__plan_report *report, const char *name, const double *value) {
  json_t *row = json_object();
  char shown[64];
  const tr__plan_column *c = report->column;
  if (!name) tr__plan_format(shown, sizeof shown, c->unit, *value);
  set(report, row, c->key, name ? json_string(name) : number(*value));
  tr_text_append(&report->text, "  %-*s", NAME_CELL, name ? name : shown);
  if (!name) value++;
  for (c++; c->title; c++, value++) {
    tr__plan_format(shown, sizeof shown, c->unit, *value);
    tr_text_append(&report->text, " %*s", CELL, shown);
    set(report, row, c->key, number(*value));
  }
  tr_text_append(&report->text, "\n");
  if (json_array_append_new(report->rows, row) != 0) report->failed = 1;
}

void tr__plan_warning(tr__plan_report *report, const tr_law_warning *warning) {
  if (!warning->name) return;
  tr_text_append(&report->text, "\nwarning (%s): %s\n", warning->name, warning->text);
  json_t *json =
      json_pack("{s:s, s:o, s:s}", "name", warning->name, "number", number(warning->number), "text", warning->text);
  if (json_array_append_new(report->warnings, json) != 0) report->failed = 1;
}

void tr__plan_terms(tr__plan_report *report, const double term[TR_TERM_COUNT], double step) {
  static const tr__plan_column column[] = {{"time", "term", TR__PLAN_NUMBER},
                                           {"a step", "seconds", TR__PLAN_TIME},
                                           {"share", "share", TR__PLAN_SHARE},
                                           {0}};
  tr__plan_table(report, "time", column);
  for (int i = 0; i < TR_TERM_COUNT; i++)
    if (term[i] > 0) tr__plan_row(report, tr_time_term_name(i), (double[]){term[i], term[i] / step});
}

tr_status tr__plan_end(tr__plan_report *report) {
  set(report, report->root, "warnings", report->warnings);
  char *json =
      report->as_json && !report->failed ? json_dumps(report->root, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) : NULL;
  int failed = report->failed || report->text.failed || (report->as_json && !json);
  if (!failed) printf("%s%s", json ? json : report->text.data, json ? "\n" : "");
  free(json);
  json_decref(report->root);
  tr_text_free(&report->text);
  return failed ? tr_error(TR_ERR_MEMORY, "no memory for the report") : TR_OK;
}
