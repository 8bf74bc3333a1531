// SPDX-License-Identifier: MIT
// Settings as a run file: what --print-config writes, and what a run keeps beside its results.
//
// Loading the output gives the same values, so every text is quoted unless it is plainly safe, and the
// subtrees that were passed through unread are written back with the same structure. Sections appear in the
// order of the table, each once, even where the table's rows are not sorted by section.
#include "base/option_internal.h"
#include <string.h>

// One UTF-8 character at `p`: its length and *code, or 0 if it is not valid.
static size_t utf8_next(const char *p, uint32_t *code) {
  const unsigned char *s = (const unsigned char *)p;
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  size_t n = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : s[0] >= 0xe0 && s[0] < 0xf0 ? 3 : 4;
  if (n == 4 && (s[0] < 0xf0 || s[0] > 0xf4)) return 0;
  uint32_t c = n == 1 ? s[0] : s[0] & (0x7fu >> n);
  for (size_t i = 1; i < n; i++) {
    if ((s[i] & 0xc0) != 0x80) return 0; // also the terminating zero
    c = c << 6 | (s[i] & 0x3f);
  }
  if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
  *code = c;
  return n;
}

int tr__text_is_utf8(const char *text) {
  uint32_t code;
  for (size_t n; *text; text += n)
    if (!(n = utf8_next(text, &code))) return 0;
  return 1;
}

// Characters that YAML cannot hold as they are, or folds like line ends.
static int needs_escape(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0xfeff || c == 0xfffe ||
         c == 0xffff;
}

// Words and numbers of [A-Za-z0-9_./+-] read as themselves in every YAML reader, save the words that mean something.
static int is_plain(const char *value) {
  static const char *const special[] = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  for (size_t i = 0; i < sizeof special / sizeof *special; i++)
    if (strcasecmp(value, special[i]) == 0) return 0;
  if (!*value || !strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_/", *value)) return 0;
  return value[strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-")] == '\0';
}

void tr__yaml_scalar(const char *value, int force, tr_text *out) {
  if (!force && is_plain(value)) {
    tr_text_append(out, "%s", value);
    return;
  }
  tr_text_append(out, "\"");
  uint32_t c = 0;
  for (size_t n; *value; value += n) {
    n = utf8_next(value, &c);
    if (!n) c = 0xfffd, n = 1;
    if (c == '"' || c == '\\')
      tr_text_append(out, "\\%c", (int)c);
    else if (c == '\n')
      tr_text_append(out, "\\n");
    else if (c == '\t')
      tr_text_append(out, "\\t");
    else if (needs_escape(c) || c == 0xfffd)
      tr_text_append(out, "\\u%04X", (unsigned)c);
    else
      tr_text_append_bytes(out, value, n);
  }
  tr_text_append(out, "\"");
}

// A comment ends at a line end, so a file name that has one must not show it.
static void append_comment(const char *text, tr_text *out) {
  tr_text_append(out, "  # ");
  uint32_t c = 0;
  for (size_t n; *text; text += n) {
    n = utf8_next(text, &c);
    if (n && !needs_escape(c))
      tr_text_append_bytes(out, text, n);
    else
      tr_text_append(out, "?");
    if (!n) n = 1;
  }
}

// A scalar passed through: it stays plain if it was, since a reader may tell 12 from "12".
static void print_raw_scalar(const tr_yaml_node *node, tr_text *out) {
  int plain = !node->quoted;
  uint32_t c;
  size_t n;
  for (const char *p = node->value; plain && *p; p += n) {
    n = utf8_next(p, &c);
    if (!n || needs_escape(c)) plain = 0, n = 1;
  }
  if (plain)
    tr_text_append(out, "%s%s", *node->value ? " " : "", node->value);
  else
    tr_text_append(out, " "), tr__yaml_scalar(node->value, 1, out);
}

// What follows "key:" or "-", down to the line's end.
static void print_raw(const tr_yaml_node *node, int indent, tr_text *out) {
  if (node->kind == TR_YAML_SCALAR)
    print_raw_scalar(node, out);
  else if (node->nchild == 0)
    tr_text_append(out, node->kind == TR_YAML_MAP ? " {}" : " []");
  tr_text_append(out, "\n");
  for (size_t i = 0; i < node->nchild; i++) {
    const tr_yaml_node *child = node->child[i];
    tr_text_append(out, "%*s", indent, "");
    if (node->kind == TR_YAML_MAP) tr__yaml_scalar(child->key, 0, out);
    tr_text_append(out, node->kind == TR_YAML_MAP ? ":" : "-");
    print_raw(child, indent + 2, out);
  }
}

size_t tr__option_section(const char *path) { return strcspn(path, "."); }

// Length of row `path` up to the dot after its first n characters (n: a section's length with its dot, or 0).
static size_t part_end(const char *path, size_t n) { return n + strcspn(path + n, "."); }

int tr__option_first_of(const tr_option *table, size_t i, size_t n) {
  for (size_t j = 0; j < i; j++) {
    const char *path = table[j].path;
    if (strncmp(path, table[i].path, n) == 0 && (path[n] == '.' || path[n] == '\0')) return 0;
  }
  return 1;
}

// All rows that agree with row `first` in the first n characters, which end in a dot (or are none).
static void print_section(const tr_options *o, size_t first, size_t n, int indent, int with_source, tr_text *out) {
  for (size_t i = first; i < o->noption; i++) {
    const tr_option *row = &o->table[i];
    size_t end;
    if (strncmp(row->path, o->table[first].path, n) != 0) continue;
    end = part_end(row->path, n);
    if (!tr__option_first_of(o->table, i, end)) continue;
    tr_text_append(out, "%*s%.*s:", indent, "", (int)(end - n), row->path + n);
    if (row->path[end] == '.') {
      tr_text_append(out, "\n");
      print_section(o, i, end + 1, indent + 2, with_source, out);
      continue;
    }
    tr_text_append(out, " ");
    tr__option_value(row, o->object, out);
    if (with_source) append_comment(o->slot[i].source ? o->slot[i].source : "default", out);
    tr_text_append(out, "\n");
  }
}

void tr_options_print(const tr_options *o, int with_source, tr_text *out) {
  if (o->noption) print_section(o, 0, 0, 0, with_source, out);
  for (size_t i = 0; i < o->nsubtree; i++) {
    if (!o->subtree[i].node) continue;
    tr__yaml_scalar(o->subtree[i].key, 0, out);
    tr_text_append(out, ":");
    print_raw(o->subtree[i].node, 2, out);
  }
}
