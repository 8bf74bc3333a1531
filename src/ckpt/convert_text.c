// SPDX-License-Identifier: MIT
// Texts beside the weights: which files go along with a model, and the one change that a conversion makes to config.json.
//
// That change is made in the text itself, not by parsing and printing: numbers and order stay as their author wrote them,
// and so do fields that this program knows nothing of.
#include "ckpt/ckpt_internal.h"
#include "ckpt/convert_internal.h"
#include "trireme/base/file.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 256000000 };

tr_status tr__convert_read_text(const char *folder, const char *name, char **text) {
  char path[TR__CKPT_PATH_MAX];
  size_t nbyte = 0;
  TR_TRY(tr__ckpt_join(path, folder, name));
  TR_TRY(tr_file_read(path, TEXT_MAX, text, &nbyte));
  if (strlen(*text) == nbyte) return TR_OK;
  free(*text);
  return tr_error(TR_ERR_CKPT, "%s: holds a zero byte at %zu; a text was wanted", path, strlen(*text));
}

// The end of the string that starts with a quote at `at`: behind its closing quote.
static const char *string_end(const char *at) {
  for (at++; *at && *at != '"'; at++)
    if (*at == '\\' && at[1]) at++;
  return *at ? at + 1 : at;
}

static const char *skip_blanks(const char *at) { return at + strspn(at, " \t\r\n"); }

// The value of the outermost object's member "torch_dtype", or "dtype" as newer programs write: a string or null.
static int find_dtype(const char *text, const char **begin, const char **end) {
  int depth = 0;
  for (const char *at = text; *at;) {
    depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
    if (*at != '"') {
      at++;
      continue;
    }
    const char *close = string_end(at), *colon = skip_blanks(close);
    size_t n = (size_t)(close - at);
    int wanted = (n == 13 && strncmp(at, "\"torch_dtype\"", n) == 0) || (n == 7 && strncmp(at, "\"dtype\"", n) == 0);
    at = close;
    if (depth != 1 || *colon != ':' || !wanted) continue;
    *begin = skip_blanks(colon + 1);
    *end = **begin == '"' ? string_end(*begin) : *begin + strcspn(*begin, ",} \t\r\n");
    return 1;
  }
  return 0;
}

tr_status tr__convert_set_dtype(const char *config, const char *dtype, char **out) {
  const char *begin, *end;
  tr_text text = {0};
  if (find_dtype(config, &begin, &end)) {
    tr_text_append_bytes(&text, config, (size_t)(begin - config));
    tr_text_append(&text, "\"%s\"%s", dtype, end);
  } else { // a config.json has members, or it would not have been read
    const char *first = strchr(config, '{');
    size_t head = first ? (size_t)(first - config) + 1 : 0;
    tr_text_append_bytes(&text, config, head);
    tr_text_append(&text, "\n  \"torch_dtype\": \"%s\",%s", dtype, config + head);
  }
  if (text.failed) {
    tr_text_free(&text);
    return tr_error(TR_ERR_MEMORY, "no memory for the text of config.json");
  }
  *out = text.data;
  return TR_OK;
}

const char *tr_convert_side_file(size_t i) {
  static const char *const names[] = {
      "tokenizer.json",
      "tokenizer_config.json",
      "special_tokens_map.json",
      "added_tokens.json",
      "vocab.json",
      "merges.txt",
      "vocab.txt",
      "chat_template.jinja",
      "chat_template.json",
      "generation_config.json",
  };
  return i < sizeof names / sizeof names[0] ? names[i] : NULL;
}
