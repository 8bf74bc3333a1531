// SPDX-License-Identifier: MIT
// Text as a stream of documents.
//
//   file -> stream (decompressed bytes) -> data[begin .. end) -> a line, a run of lines or a part
//
// Everything is cut by what the bytes are and never by how they arrived, so a reader that skips to another's offset goes on
// with the same documents and parts. A reader keeps no more than the document that it is about to hand out.
#include "trireme/data/text_reader.h"
#include "data/text_reader_internal.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/token/tokenizer.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { STEP = 1 << 20, PART_LEAST = 1 << 20, PART_MOST = 16 << 20 };
static const size_t default_limit = (size_t)1 << 30;

struct tr_text_reader {
  char *path, *key;
  size_t limit;
  int split, json;
  tr__text_stream *stream;
  char *data; // what has been read and not taken is data[begin .. end)
  size_t capacity, begin, end;
  int finished;         // the stream has no more
  int64_t offset, line; // of data[begin]; lines count from 0
  json_t *document;     // holds the text handed out last
};

static size_t have(const tr_text_reader *r) { return r->end - r->begin; }
static const char *at(const tr_text_reader *r, size_t i) { return r->data + r->begin + i; }

static tr_status grow(tr_text_reader *r, size_t n) {
  memmove(r->data, r->data + r->begin, have(r));
  r->end -= r->begin;
  r->begin = 0;
  if (n <= r->capacity) return TR_OK;
  size_t capacity = n + n / 2;
  char *data = realloc(r->data, capacity);
  if (!data)
    return tr_error(TR_ERR_MEMORY, "%s:%" PRId64 ": no memory for a document of %zu bytes", r->path, r->line + 1, n);
  r->data = data;
  r->capacity = capacity;
  return TR_OK;
}

// At least n bytes from begin on, fewer only at the end of the file.
static tr_status want(tr_text_reader *r, size_t n) {
  if (r->finished || have(r) >= n) return TR_OK;
  if (r->begin + n > r->capacity) TR_TRY(grow(r, n));
  size_t got, room = r->capacity - r->end;
  TR_TRY(tr__text_stream_read(r->stream, r->data + r->end, room, &got));
  r->end += got;
  r->finished = got < room;
  return TR_OK;
}

static void take(tr_text_reader *r, size_t n) {
  const char *c = at(r, 0), *end = c + n;
  while ((c = memchr(c, '\n', (size_t)(end - c)))) c++, r->line++;
  r->begin += n;
  r->offset += (int64_t)n;
}

static tr_status start(tr_text_reader *r) {
  TR_TRY(want(r, 4));
  if (tr__text_stream_is_compressed(at(r, 0), have(r)))
    return tr_error(TR_ERR_DATA, "%s: what it decompresses to is compressed again; decompress it once first",
                    r->path);
  if (have(r) >= 2 && (memcmp(at(r, 0), "\xff\xfe", 2) == 0 || memcmp(at(r, 0), "\xfe\xff", 2) == 0))
    return tr_error(TR_ERR_DATA, "%s: this is UTF-16; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)", r->path);
  take(r, tr_text_mark((const char *)at(r, 0), have(r)));
  return TR_OK;
}

// ---- lines

// The line that starts `from` bytes after begin: its length without and with its line break; 0 with it at the end.
static tr_status find_line(tr_text_reader *r, size_t from, size_t *length, size_t *whole) {
  for (size_t seen = from;;) {
    TR_TRY(want(r, seen + 1));
    const char *newline = memchr(at(r, seen), '\n', have(r) - seen);
    size_t end = newline ? (size_t)(newline - at(r, 0)) : have(r);
    if (end > r->limit)
      return tr_error(TR_ERR_DATA, "%s:%" PRId64 ": this document is longer than the limit of %zu bytes", r->path,
                      r->line + 1, r->limit);
    if (newline || r->finished) {
      *whole = end + (newline != NULL) - from;
      *length = end - from - (newline && end > from && newline[-1] == '\r');
      return TR_OK;
    }
    seen = end;
    TR_TRY(want(r, seen + STEP));
  }
}

static int is_blank(const char *text, size_t nbyte) {
  for (size_t i = 0; i < nbyte; i++)
    if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return 0;
  return 1;
}

static tr_status skip_blank_lines(tr_text_reader *r, size_t *length, size_t *whole) {
  for (;;) {
    TR_TRY(find_line(r, 0, length, whole));
    if (*whole == 0 || !is_blank(at(r, 0), *length)) return TR_OK;
    take(r, *whole);
  }
}

static int hex4(const char *c, const char *end) {
  int value = 0;
  if (end - c < 4) return -1;
  for (int i = 0; i < 4; i++) {
    int letter = c[i] | 0x20, digit = c[i] >= '0' && c[i] <= '9' ? c[i] - '0' : letter - 'a' + 10;
    if (digit < 0 || digit > 15 || (digit < 10 && c[i] > '9')) return -1;
    value = value << 4 | digit;
  }
  return value;
}

// Escapes of half a surrogate pair become \ufffd, in place.
static void repair_surrogates(char *c, size_t nbyte) {
  const char *end = c + nbyte;
  while ((c = memchr(c, '\\', (size_t)(end - c))) && end - c >= 2) {
    int unit = c[1] == 'u' ? hex4(c + 2, end) : -1;
    int high = unit >= 0xd800 && unit <= 0xdbff, low = unit >= 0xdc00 && unit <= 0xdfff;
    int next = high && end - c >= 12 && c[6] == '\\' && c[7] == 'u' ? hex4(c + 8, end) : -1;
    int pair = next >= 0xdc00 && next <= 0xdfff;
    if (low || (high && !pair)) memcpy(c + 2, "fffd", 4);
    c += unit < 0 ? 2 : pair ? 12 : 6;
  }
}

// A line that is no JSON may be one with its broken characters repaired, as those of plain text are.
static json_t *load_line(const tr_text_reader *r, size_t length, json_error_t *error) {
  enum { FLAGS = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL };
  json_t *json = json_loadb(at(r, 0), length, FLAGS, error);
  enum json_error_code code = json ? json_error_unknown : json_error_code(error);
  if (json || (code != json_error_invalid_utf8 && code != json_error_invalid_syntax)) return json;
  tr_text repaired = {0};
  tr_utf8_repair(at(r, 0), length, &repaired);
  if (!repaired.failed) {
    repair_surrogates(repaired.data, repaired.size);
    json = json_loadb(repaired.data, repaired.size, FLAGS, error);
  }
  tr_text_free(&repaired);
  return json;
}

static tr_status parse_line(tr_text_reader *r, size_t length, const char **text, size_t *nbyte) {
  json_error_t error;
  r->document = load_line(r, length, &error);
  if (!r->document)
    return tr_error(json_error_code(&error) == json_error_out_of_memory ? TR_ERR_MEMORY : TR_ERR_DATA,
                    "%s:%" PRId64 ":%d: not valid JSON: %s", r->path, r->line + 1, error.column, error.text);
  const json_t *member = json_object_get(r->document, r->key);
  if (!json_is_object(r->document))
    return tr_error(TR_ERR_DATA, "%s:%" PRId64 ": this line is no JSON object; JSON lines have one object a line",
                    r->path, r->line + 1);
  if (!json_is_string(member))
    return tr_error(TR_ERR_DATA, "%s:%" PRId64 ": the object has no %s \"%s\"; is the text in another one?", r->path,
                    r->line + 1, member ? "text in its member" : "member", r->key);
  *text = json_string_value(member);
  *nbyte = json_string_length(member);
  return TR_OK;
}

// Texts of no bytes are no documents.
static tr_status next_json_line(tr_text_reader *r, const char **text, size_t *nbyte) {
  size_t length, whole;
  while (*nbyte == 0) {
    *text = NULL;
    TR_TRY(skip_blank_lines(r, &length, &whole));
    if (whole == 0) return TR_OK;
    json_decref(r->document);
    TR_TRY(parse_line(r, length, text, nbyte));
    take(r, whole);
  }
  return TR_OK;
}

// Lines up to a blank one, without the last line break.
static tr_status next_paragraph(tr_text_reader *r, const char **text, size_t *nbyte) {
  size_t length, whole, size = 0, end = 0;
  TR_TRY(skip_blank_lines(r, &length, &whole));
  while (whole > 0 && !is_blank(at(r, size), length)) {
    end = size + length;
    size += whole;
    TR_TRY(find_line(r, size, &length, &whole));
  }
  if (size > 0) *text = at(r, 0), *nbyte = end;
  take(r, size);
  return TR_OK;
}

// ---- parts

// Whether white space may end before c, which has three bytes before it. Says yes for a few punctuation marks too.
static int may_end_blank(const unsigned char *c) {
  if (c[-1] < 0x80) return c[-1] <= ' ';
  return c[-2] == 0xc2 || c[-3] == 0xe1 || c[-3] == 0xe2 || (c[-3] == 0xe3 && c[-2] == 0x80 && c[-1] == 0x80);
}

static int is_letter(unsigned char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// First bytes of characters among which none is white space: ASCII letters, U+00C0 to U+0FFF, U+4000 to U+DFFF.
static int starts_word(unsigned char c) {
  return is_letter(c) || (c >= 0xc3 && c <= 0xe0) || (c >= 0xe4 && c <= 0xed);
}

// Whether encoding the text up to c and from c on, each alone, gives the tokens of the whole. Pre-tokenizers like those of
// GPT-2, Llama 3 and Qwen cut at runs of white space, and a run may take in the line breaks in it or what stands before
// them; so such a run must not reach over c, nor be one whose split depends on what follows. That holds for a single
// "\n" between something that is not blank and the start of a word, and for a place between a letter and "\r\n".
static int is_safe_cut(const unsigned char *c) {
  if (c[-1] == '\n') return starts_word(c[0]) && !may_end_blank(c - 1);
  return c[0] == '\r' && is_letter(c[-1]);
}

// The first safe place from `from` on, below `limit`, with one byte known behind it; 0: none.
static size_t find_cut(const tr_text_reader *r, size_t from, size_t limit) {
  const unsigned char *text = (const unsigned char *)at(r, 0);
  for (size_t i = from; i + 1 < limit; i++) {
    const unsigned char *newline = memchr(text + i, '\n', limit - 1 - i);
    if (!newline) return 0;
    i = (size_t)(newline - text);
    if (newline[-1] == '\r' && is_safe_cut(newline - 1)) return i - 1;
    if (is_safe_cut(newline + 1)) return i + 1;
  }
  return 0;
}

// No safe place far and wide: after the last line break, or else between two characters.
static size_t forced_cut(const tr_text_reader *r) {
  const char *newline = memrchr(at(r, 0), '\n', PART_MOST);
  size_t cut = newline ? (size_t)(newline - at(r, 0)) + 1 : PART_MOST;
  for (int i = 0; !newline && i < 3 && (*at(r, cut) & 0xc0) == 0x80; i++) cut--;
  return cut;
}

static tr_status next_part(tr_text_reader *r, const char **text, size_t *nbyte, int *ends) {
  size_t cut = 0, seen = PART_LEAST;
  while (cut == 0) {
    TR_TRY(want(r, seen + STEP));
    size_t limit = have(r) < PART_MOST ? have(r) : PART_MOST;
    cut = find_cut(r, seen, limit);
    if (cut == 0 && have(r) > PART_MOST) cut = forced_cut(r);
    if (cut == 0 && r->finished) break;
    if (limit > seen) seen = limit - 1; // a line break at the very end is looked at again with what follows
  }
  *ends = cut == 0;
  if (*ends) cut = have(r);
  if (cut > 0) *text = at(r, 0), *nbyte = cut;
  take(r, cut);
  return TR_OK;
}

// ---- the reader

static int ends_in(const char *text, size_t n, const char *suffix) {
  size_t m = strlen(suffix);
  return n >= m && memcmp(text + n - m, suffix, m) == 0;
}

static int is_json_lines(const char *path) {
  size_t n = strlen(path);
  const char *dot = strrchr(path, '.');
  if (dot && tr__text_stream_is_compression(dot)) n = (size_t)(dot - path);
  return ends_in(path, n, ".jsonl") || ends_in(path, n, ".json") || ends_in(path, n, ".ndjson");
}

tr_status tr_text_reader_open(const tr_text_reader_options *options, tr_text_reader **out) {
  tr_text_reader *r = calloc(1, sizeof *r);
  if (r)
    *r = (tr_text_reader){.path = strdup(options->path),
                          .key = strdup(options->key ? options->key : "text"),
                          .limit = options->document_limit ? options->document_limit : default_limit,
                          .split = options->split,
                          .json = is_json_lines(options->path),
                          .capacity = 2 * STEP,
                          .data = malloc(2 * STEP)};
  tr_status status = r && r->path && r->key && r->data
                         ? tr__text_stream_open(r->path, &r->stream)
                         : tr_error(TR_ERR_MEMORY, "%s: no memory to read it", options->path);
  if (status == TR_OK)
    *out = r;
  else
    tr_text_reader_close(r);
  return status;
}

void tr_text_reader_close(tr_text_reader *reader) {
  if (!reader) return;
  json_decref(reader->document);
  tr__text_stream_close(reader->stream);
  free(reader->data);
  free(reader->key);
  free(reader->path);
  free(reader);
}

tr_status tr_text_reader_next(tr_text_reader *reader, const char **text, size_t *nbyte, int *ends) {
  *text = NULL;
  *nbyte = 0;
  *ends = 1;
  if (reader->offset == 0) TR_TRY(start(reader));
  if (reader->json) return next_json_line(reader, text, nbyte);
  return reader->split ? next_paragraph(reader, text, nbyte) : next_part(reader, text, nbyte, ends);
}

int64_t tr_text_reader_offset(const tr_text_reader *reader) { return reader->offset; }

double tr_text_reader_share(const tr_text_reader *reader) { return tr__text_stream_share(reader->stream); }

// Reads on to the place instead of seeking: compressed files need it, and line numbers in messages stay right.
tr_status tr_text_reader_skip(tr_text_reader *reader, int64_t offset) {
  if (offset < reader->offset)
    return tr_error(TR_ERR_USAGE, "%s: byte %" PRId64 " lies behind the reader at %" PRId64, reader->path, offset,
                    reader->offset);
  while (reader->offset < offset) {
    TR_TRY(want(reader, 1));
    size_t n = have(reader);
    if (n == 0)
      return tr_error(TR_ERR_DATA,
                      "%s: its text ends at byte %" PRId64 ", before byte %" PRId64 " where reading was to go on",
                      reader->path, reader->offset, offset);
    take(reader, offset - reader->offset < (int64_t)n ? (size_t)(offset - reader->offset) : n);
  }
  return TR_OK;
}
