// SPDX-License-Identifier: MIT
// What a stopped run leaves: OUTPUT.partial.json, which says how far it was and of which work it is.
//
// The state is written whole or not at all, after the tokens it speaks of are on disk. "of" is a hash of all that decides
// the output; a state of other work, or one that cannot be read, is no failure: the work starts over.
#include "data/tokenize_internal.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/data/text_reader.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STATE_LIMIT = 1 << 16 };

static tr_status describe_input(const tr_tokenize_options *options, const char *path, int64_t *size, tr_text *all) {
  struct stat about;
  tr_text_reader *reader;
  TR_TRY(tr_text_reader_open(&(tr_text_reader_options){.path = path, .key = options->key}, &reader));
  tr_text_reader_close(reader);
  if (stat(path, &about) != 0) return tr_error(TR_ERR_IO, "%s: cannot stat: %s", path, strerror(errno));
  *size = about.st_size;
  tr_text_append(all, "%s\n%" PRId64 " %" PRId64 ".%09ld\n", path, *size, (int64_t)about.st_mtim.tv_sec,
                 about.st_mtim.tv_nsec);
  return TR_OK;
}

tr_status tr__tokenize_identify(const tr_tokenize_options *options, int64_t *size, uint64_t *identity) {
  tr_text all = {0};
  tr_status status = TR_OK;
  tr_text_append(&all, "1 %016" PRIx64 " %d %d %d %s\n", tr_tokenizer_hash(options->tokenizer), (int)options->format,
                 options->end, options->split, options->key ? options->key : "text");
  for (size_t i = 0; i < options->npath && status == TR_OK; i++)
    status = describe_input(options, options->path[i], &size[i], &all);
  if (status == TR_OK && all.failed) status = TR_ERR_MEMORY;
  if (status == TR_OK) *identity = tr_hash_bytes(all.data, all.size);
  tr_text_free(&all);
  return status;
}

static tr_status state_path(const tr_tokenize_options *options, char **out) {
  if (asprintf(out, "%s.partial.json", options->output) >= 0) return TR_OK;
  *out = NULL;
  return tr_error(TR_ERR_MEMORY, "%s: no memory for its name", options->output);
}

static tr_status get_hash(const json_t *json, const char *path, const char *key, uint64_t *out) {
  const char *text = NULL;
  char *end;
  TR_TRY(tr_json_get_string(json, path, key, 1, &text));
  *out = strtoull(text, &end, 16);
  return *text && !*end ? TR_OK : tr_error(TR_ERR_DATA, "%s: key \"%s\" is no hash", path, key);
}

static tr_status parse_state(const json_t *json, const char *path, uint64_t identity, size_t npath,
                             tr__tokenize_state *s) {
  uint64_t of;
  int64_t input;
  TR_TRY(get_hash(json, path, "of", &of));
  if (of != identity)
    return tr_error(TR_ERR_DATA, "%s: it is of work with other inputs, another tokenizer or other options", path);
  TR_TRY(tr_json_get_int(json, path, "input", 1, &input));
  TR_TRY(tr_json_get_int(json, path, "offset", 1, &s->offset));
  TR_TRY(tr_json_get_int(json, path, "bytes", 1, &s->bytes));
  TR_TRY(tr_json_get_int(json, path, "documents", 1, &s->documents));
  TR_TRY(tr_json_get_real(json, path, "seconds", 1, &s->seconds));
  TR_TRY(tr_json_get_int(json, path, "written_tokens", 1, &s->mark.tokens));
  TR_TRY(tr_json_get_int(json, path, "written_documents", 1, &s->mark.documents));
  TR_TRY(tr_json_get_int(json, path, "written_open", 1, &s->mark.open));
  TR_TRY(get_hash(json, path, "written_hash", &s->mark.hash));
  if (input < 0 || (size_t)input >= npath || s->offset < 0)
    return tr_error(TR_ERR_DATA, "%s: input %" PRId64 " at byte %" PRId64 " is no place in the work", path, input,
                    s->offset);
  s->input = (size_t)input;
  return TR_OK;
}

tr_status tr__tokenize_state_load(const tr_tokenize_options *options, uint64_t identity, tr__tokenize_state *out,
                                  int *found) {
  char *path;
  json_t *json = NULL;
  tr__tokenize_state state = {0};
  *found = 0;
  TR_TRY(state_path(options, &path));
  if (tr_file_exists(path)) {
    tr_status status = tr_json_load(path, STATE_LIMIT, &json);
    if (status == TR_OK) status = parse_state(json, path, identity, options->npath, &state);
    *found = status == TR_OK;
    if (*found)
      *out = state;
    else
      tr_log_warn("starting over, because what is left of earlier work is of no use: %s", tr_status_text());
  }
  json_decref(json);
  free(path);
  return TR_OK;
}

tr_status tr__tokenize_state_save(const tr_tokenize_options *options, uint64_t identity,
                                  const tr__tokenize_state *state) {
  char *path;
  tr_text text = {0};
  TR_TRY(state_path(options, &path));
  const tr_corpus_mark *mark = &state->mark;
  tr_text_append(&text,
                 "{\"of\": \"%016" PRIx64 "\", \"input\": %zu, \"offset\": %" PRId64 ", \"bytes\": %" PRId64
                 ", \"documents\": %" PRId64 ", \"seconds\": %.3f,\n \"written_tokens\": %" PRId64
                 ", \"written_documents\": %" PRId64 ", \"written_open\": %" PRId64
                 ", \"written_hash\": \"%016" PRIx64 "\"}\n",
                 identity, state->input, state->offset, state->bytes, state->documents, state->seconds, mark->tokens,
                 mark->documents, mark->open, mark->hash);
  tr_status status = text.failed ? TR_ERR_MEMORY : tr_file_write_atomic(path, text.data, text.size);
  tr_text_free(&text);
  free(path);
  return status;
}

void tr__tokenize_state_remove(const tr_tokenize_options *options) {
  char *path;
  if (state_path(options, &path) < 0) return;
  unlink(path);
  free(path);
}
