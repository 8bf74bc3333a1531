// SPDX-License-Identifier: MIT
// Sections of a description put into a file (bench_describe_internal.h), line by line, so that what people wrote beside them stays:
// a section goes from its key at the beginning of a line to the next such key, or to the comments in front of that.
#include "cli/bench_describe_internal.h"
#include "trireme/base/file.h"
#include "trireme/base/yaml.h"
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 16 << 20 };

int tr__is_description(const char *path) { return tr_text_ends_in(path, ".yaml") || tr_text_ends_in(path, ".yml"); }

static const char *next_line(const char *line) {
  const char *end = strchr(line, '\n');
  return end ? end + 1 : line + strlen(line);
}

// Length of the key that begins a section in this line; 0: it begins none.
static size_t key_length(const char *line) {
  const size_t n = strcspn(line, ":\n");
  return n > 0 && line[n] == ':' && !strchr(" \t#-'\"", line[0]) ? n : 0;
}

static int is_aside(const char *line) { return *line == '#' || *line == '\n'; } // a comment or nothing

// Where the section that begins at `line` ends.
static const char *section_end(const char *line) {
  const char *end = next_line(line), *aside = NULL;
  for (const char *at = end; *at; at = next_line(at)) {
    if (key_length(at) > 0) return aside ? aside : at;
    if (!is_aside(at))
      aside = NULL;
    else if (!aside)
      aside = at;
  }
  return line + strlen(line);
}

static int has_section(const char *text, const char *key, size_t n) {
  for (const char *at = text; *at; at = next_line(at))
    if (key_length(at) == n && strncmp(at, key, n) == 0) return 1;
  return 0;
}

static int is_among(const char *const *names, const char *key, size_t n) {
  for (; names && *names; names++)
    if (strlen(*names) == n && strncmp(*names, key, n) == 0) return 1;
  return 0;
}

static void append(tr_text *out, const char *from, const char *to) {
  tr_text_append_bytes(out, from, (size_t)(to - from));
  if (out->size && out->data[out->size - 1] != '\n') tr_text_append(out, "\n");
}

static void merge(const char *before, const char *text, const char *const *once, tr_text *out) {
  for (const char *at = before; *at;) {
    const size_t n = key_length(at);
    const char *end = n ? section_end(at) : next_line(at);
    if (!n || !has_section(text, at, n) || is_among(once, at, n)) append(out, at, end);
    at = end;
  }
  for (const char *at = text; *at;) {
    const size_t n = key_length(at);
    const char *end = n ? section_end(at) : next_line(at);
    if (!n || !is_among(once, at, n) || !has_section(before, at, n)) append(out, at, end);
    at = end;
  }
}

tr_status tr__description_put(const char *path, const char *text, const char *const *once) {
  char *before = NULL;
  size_t nbyte = 0;
  tr_text out = {0};
  tr_yaml *yaml = NULL;
  tr_status status = tr_file_exists(path) ? tr_file_read(path, FILE_LIMIT, &before, &nbyte) : TR_OK;
  if (status == TR_OK && before) status = tr_yaml_parse(before, nbyte, path, &yaml);
  tr_yaml_free(yaml);
  if (status == TR_OK) merge(before ? before : "", text, once, &out);
  if (out.failed) status = tr_error(TR_ERR_MEMORY, "no memory for %s", path);
  if (status == TR_OK) status = tr_file_write_atomic(path, out.data, out.size);
  tr_text_free(&out);
  free(before);
  return status;
}
