// SPDX-License-Identifier: MIT
// `trireme plan WORD`: the table of words, and the report that each prints, for people or as one JSON object.
//
// A report is filled value by value; every value has a label for people and a key for programs, so that neither knows more. In
// JSON all is in bytes, seconds, FLOP and shares of one; numbers that do not exist are null.
#ifndef TRIREME_CLI_PLAN_WORDS_INTERNAL_H
#define TRIREME_CLI_PLAN_WORDS_INTERNAL_H

#include "cli/arguments_internal.h"
#include "trireme/base/text.h"
#include "trireme/plan/law_lint.h"
#include "trireme/plan/predict.h"
#include <jansson.h>

// argv[0] is the word. Each prints its own help.
typedef struct tr__plan_word {
  const char *name, *summary;
  tr_status (*run)(int argc, char **argv);
} tr__plan_word;
const tr__plan_word *tr__plan_words(size_t *n);

tr_status tr__plan_batch(int argc, char **argv);
tr_status tr__plan_checkpoint(int argc, char **argv);
tr_status tr__plan_cost(int argc, char **argv);
tr_status tr__plan_embedding(int argc, char **argv);
tr_status tr__plan_evaluate(int argc, char **argv);
tr_status tr__plan_explain(int argc, char **argv);
tr_status tr__plan_exponent(int argc, char **argv);
tr_status tr__plan_fit(int argc, char **argv);
tr_status tr__plan_page(int argc, char **argv);
tr_status tr__plan_precision(int argc, char **argv);
tr_status tr__plan_rlhf(int argc, char **argv);
tr_status tr__plan_scaling(int argc, char **argv);
tr_status tr__plan_search(int argc, char **argv);
tr_status tr__plan_stage_table(int argc, char **argv);
tr_status tr__plan_sync(int argc, char **argv);
tr_status tr__plan_train(int argc, char **argv);
tr_status tr__plan_tree(int argc, char **argv);
tr_status tr__plan_utilisation(int argc, char **argv);
tr_status tr__plan_what_if(int argc, char **argv);

// ---- arguments

// Options only; a word that stands alone is a wrong use.
tr_status tr__plan_options(const char *word, int argc, char **argv, const tr__argument *table, size_t n);
// "A:B:C" into fields, each cut to 64 bytes; TR_ERR_USAGE names the option, the text and the `form` that would work.
enum { TR__PLAN_FIELD = 64 };
tr_status tr__plan_split(const char *word, const char *option, const char *text, char (*field)[TR__PLAN_FIELD],
                         size_t least, size_t most, const char *form, size_t *n);
// A number up to 1e18, or a time up to 1e12 s, of one field: >= 0.
tr_status tr__plan_field(const char *word, const char *option, const char *text, const char *field, int time,
                         double *out);

// ---- the report

typedef enum tr__plan_unit {
  TR__PLAN_NUMBER,
  TR__PLAN_COUNT,
  TR__PLAN_BYTES,  // decimal: 112 GB
  TR__PLAN_MEMORY, // of a device, which come in GiB
  TR__PLAN_TIME,
  TR__PLAN_SHARE,
  TR__PLAN_MONEY,
  TR__PLAN_AMOUNT, // 4.2M
} tr__plan_unit;

void tr__plan_format(char *out, size_t nbyte, tr__plan_unit unit, double value); // as people read it

typedef struct tr__plan_column {
  const char *title, *key; // both NULL ends a table's columns
  tr__plan_unit unit;
} tr__plan_column;

typedef struct tr__plan_report {
  int as_json, failed;
  json_t *root, *rows, *warnings;
  const tr__plan_column *column;
  tr_text text;
} tr__plan_report;

void tr__plan_begin(tr__plan_report *report, const char *word, int as_json);
void tr__plan_head(tr__plan_report *report, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tr__plan_value(tr__plan_report *report, const char *label, const char *key, tr__plan_unit unit, double value);
void tr__plan_text(tr__plan_report *report, const char *label, const char *key, const char *text);
// A table under `key`: the columns (which stay the caller's), then rows with one value each; the first may be a name.
void tr__plan_table(tr__plan_report *report, const char *key, const tr__plan_column *column);
void tr__plan_row(tr__plan_report *report, const char *name, const double *value);
void tr__plan_terms(tr__plan_report *report, const double term[TR_TERM_COUNT], double step); // a table: those above 0
void tr__plan_warning(tr__plan_report *report, const tr_law_warning *warning); // nothing where there is none
tr_status tr__plan_end(tr__plan_report *report);                               // prints, and frees it in every case

#endif
