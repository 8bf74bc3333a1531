// SPDX-License-Identifier: MIT
// Help for the command line, from the same rows that parse the settings.
//
//   optim:
//     optim.lr  a number from 0 to 1, default 0.001; also --learning-rate
//         Peak learning rate.
#include "base/option_internal.h"
#include <string.h>

static void append_row(const tr_option *row, tr_text *out) {
  tr_text_append(out, "  %s  ", row->path);
  tr__option_accepted(row, out);
  tr_text_append(out, *tr__option_default(row) ? ", default %s" : ", default empty", tr__option_default(row));
  const char *rest = row->alias, *word;
  for (size_t n; (word = tr__option_next_word(&rest, &n));) tr_text_append(out, "; also --%.*s", (int)n, word);
  if (row->env) tr_text_append(out, "; environment %s", row->env);
  tr_text_append(out, "\n      %s\n", row->help ? row->help : "");
}

static int selected(const tr_option *row, const char *prefix) {
  return !prefix || strncmp(row->path, prefix, strlen(prefix)) == 0;
}

// The selected rows of the section of row `first`; the heading comes with the first of them.
static void append_section(const tr_option *table, size_t noption, size_t first, const char *prefix, tr_text *out) {
  size_t n = tr__option_section(table[first].path);
  int headed = 0;
  for (size_t i = first; i < noption; i++) {
    if (tr__option_section(table[i].path) != n || strncmp(table[i].path, table[first].path, n) != 0) continue;
    if (!selected(&table[i], prefix)) continue;
    if (!headed) tr_text_append(out, "%s%.*s:\n", out->size ? "\n" : "", (int)n, table[first].path);
    headed = 1;
    append_row(&table[i], out);
  }
}

void tr_options_help(const tr_option *table, size_t noption, const char *prefix, tr_text *out) {
  for (size_t i = 0; i < noption; i++)
    if (tr__option_first_of(table, i, tr__option_section(table[i].path)))
      append_section(table, noption, i, prefix, out);
}
