// SPDX-License-Identifier: MIT
// The manual page of a command, in roff's man macros, from the rows that parse its settings.
//
// Text is escaped so that a row's sentence cannot become a request: backslash, leading dot and apostrophe,
// and the hyphen, which roff would otherwise set as a typographic one that cannot be pasted into a shell.
#include "base/option_internal.h"
#include <ctype.h>
#include <string.h>

static void append_escaped(const char *text, size_t n, tr_text *out) {
  if (n && (*text == '.' || *text == '\'')) tr_text_append(out, "\\&");
  for (size_t i = 0; i < n; i++) {
    char c = text[i];
    if (c == '\\')
      tr_text_append(out, "\\e");
    else if (c == '-')
      tr_text_append(out, "\\-");
    else if (c == '"')
      tr_text_append(out, "\\(dq"); // a bare one would end a macro's argument
    else
      tr_text_append_bytes(out, c == '\n' ? " " : &c, 1);
  }
}

static void append_string(const char *text, tr_text *out) { append_escaped(text, strlen(text), out); }

static void append_row(const tr_option *row, tr_text *out) {
  tr_text accepted = {0};
  tr__option_accepted(row, &accepted);
  tr_text_append(out, ".TP\n.B ");
  append_string(row->path, out);
  tr_text_append(out, "\n");
  append_string(row->help ? row->help : "", out);
  tr_text_append(out, "\n.br\nAccepted: ");
  append_string(tr__option_text(&accepted), out);
  tr_text_append(out, ". Default: ");
  append_string(*tr__option_default(row) ? row->def : "empty", out);
  tr_text_append(out, ".\n");
  const char *rest = row->alias, *word;
  for (size_t n; (word = tr__option_next_word(&rest, &n));) {
    tr_text_append(out, "Also \\-\\-");
    append_escaped(word, n, out);
    tr_text_append(out, ".\n");
  }
  if (row->env) tr_text_append(out, "Environment: %s.\n", row->env);
  tr_text_free(&accepted);
}

static void append_section(const tr_option *table, size_t noption, size_t first, tr_text *out) {
  size_t n = tr__option_section(table[first].path);
  tr_text_append(out, ".SS ");
  append_escaped(table[first].path, n, out);
  tr_text_append(out, "\n");
  for (size_t i = first; i < noption; i++)
    if (tr__option_section(table[i].path) == n && strncmp(table[i].path, table[first].path, n) == 0)
      append_row(&table[i], out);
}

void tr_options_man(const tr_option *table, size_t noption, const char *command, const char *summary, tr_text *out) {
  tr_text_append(out, ".TH \"");
  for (const char *c = command; *c; c++) tr_text_append(out, *c == '-' ? "\\-" : "%c", toupper((unsigned char)*c));
  tr_text_append(out, "\" 1\n.nh\n.ad l\n.SH NAME\n");
  append_string(command, out);
  tr_text_append(out, " \\- ");
  append_string(summary, out);
  tr_text_append(out, "\n.SH OPTIONS\nEach is a key of a run file, or an argument of the form key=value.\n");
  for (size_t i = 0; i < noption; i++)
    if (tr__option_first_of(table, i, tr__option_section(table[i].path))) append_section(table, noption, i, out);
}
