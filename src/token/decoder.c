// SPDX-License-Identifier: MIT
// Decoders: from the texts of tokens to text.
//
// A decoder is a flat list of steps, each from a list of texts to a list of texts; at the end they are put together. Bytes
// of a byte-level or byte-fallback vocabulary come out as they are, whether or not they make UTF-8: where the `tokenizers`
// library puts U+FFFD for bytes that do not, the bytes themselves are kept.
#include "token/part_internal.h"
#include "trireme/base/json.h"
#include <stdlib.h>
#include <string.h>

enum { STEPS_MAX = 64 };

static const char part[] = "decoder"; // in messages

// Texts, one after another; text i is the bytes from end[i - 1] to end[i].
typedef struct pieces {
  tr_text text;
  size_t *end, n, capacity;
} pieces;

typedef struct step step;
typedef tr_status (*step_function)(const step *self, const pieces *in, pieces *out);
struct step {
  step_function apply;
  char *find; // the character, prefix, suffix or padding that the step is about
  size_t nfind;
  char *delimiter; // of words, in CTC
  size_t ndelimiter;
  tr__replacement replacement;
  int64_t start, stop; // Strip: how many at most
  int drop_first;      // Metaspace: the blanks of the first text go
  int cleanup;
};

struct tr__decoder {
  step step[STEPS_MAX];
  size_t nstep;
};

// ---- lists of texts

static tr__piece_text piece_at(const pieces *in, size_t i) {
  size_t begin = i ? in->end[i - 1] : 0;
  return (tr__piece_text){in->text.data ? in->text.data + begin : "", in->end[i] - begin};
}

static void add(pieces *out, const char *data, size_t nbyte) { tr_text_append_bytes(&out->text, data, nbyte); }

// What has been added since the last end is a text.
static tr_status end_piece(pieces *out) {
  if (out->n == out->capacity) {
    size_t capacity = out->capacity ? 2 * out->capacity : 64;
    size_t *end = realloc(out->end, capacity * sizeof *end);
    if (!end) return tr_error(TR_ERR_MEMORY, "no memory to decode %zu tokens", capacity);
    out->end = end;
    out->capacity = capacity;
  }
  out->end[out->n++] = out->text.size;
  return TR_OK;
}

static void pieces_free(pieces *list) {
  tr_text_free(&list->text);
  free(list->end);
}

static int begins_with(const char *text, size_t nbyte, const char *with, size_t nwith) {
  return nbyte >= nwith && memcmp(text, with, nwith) == 0;
}

// Copy a text with every `find` replaced.
static void add_replaced(tr_text *out, const char *data, size_t nbyte, const char *find, size_t nfind, const char *to,
                         size_t nto) {
  const char *end = data + nbyte, *found;
  while (nfind && (found = memmem(data, (size_t)(end - data), find, nfind)) != NULL) {
    tr_text_append_bytes(out, data, (size_t)(found - data));
    tr_text_append_bytes(out, to, nto);
    data = found + nfind;
  }
  tr_text_append_bytes(out, data, (size_t)(end - data));
}

// ---- steps

// The bytes of a text in the byte-level alphabet; 0 when a character is not of it.
static int add_alphabet(pieces *out, tr__piece_text piece) {
  size_t before = out->text.size;
  for (size_t i = 0; i < piece.nbyte;) {
    int32_t character;
    int n = tr__utf8_next(piece.data + i, piece.nbyte - i, &character);
    int value = n ? tr__character_to_byte(character) : -1;
    if (value < 0) {
      out->text.size = before;
      return 0;
    }
    char byte = (char)value;
    add(out, &byte, 1);
    i += (size_t)n;
  }
  return 1;
}

static tr_status apply_byte_level(const step *self, const pieces *in, pieces *out) {
  (void)self;
  for (size_t i = 0; i < in->n; i++) {
    tr__piece_text piece = piece_at(in, i);
    if (!add_alphabet(out, piece)) add(out, piece.data, piece.nbyte);
  }
  return end_piece(out);
}

static tr_status apply_metaspace(const step *self, const pieces *in, pieces *out) {
  for (size_t i = 0; i < in->n; i++) {
    tr__piece_text piece = piece_at(in, i);
    size_t nblank = i == 0 && self->drop_first ? 0 : 1;
    add_replaced(&out->text, piece.data, piece.nbyte, self->find, self->nfind, " ", nblank);
    TR_TRY(end_piece(out));
  }
  return TR_OK;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The byte that "<0x41>" stands for; -1: the text is no such token.
static int byte_of_token(tr__piece_text piece) {
  if (piece.nbyte != 6 || memcmp(piece.data, "<0x", 3) != 0 || piece.data[5] != '>') return -1;
  int high = hex_digit(piece.data[3]), low = hex_digit(piece.data[4]);
  return high < 0 || low < 0 ? -1 : high << 4 | low;
}

// Neighbouring bytes make one text.
static tr_status apply_byte_fallback(const step *self, const pieces *in, pieces *out) {
  (void)self;
  int open = 0;
  for (size_t i = 0; i < in->n; i++) {
    tr__piece_text piece = piece_at(in, i);
    int value = byte_of_token(piece);
    if (value >= 0) {
      char byte = (char)value;
      add(out, &byte, 1);
      open = 1;
      continue;
    }
    if (open) TR_TRY(end_piece(out));
    open = 0;
    add(out, piece.data, piece.nbyte);
    TR_TRY(end_piece(out));
  }
  return open ? end_piece(out) : TR_OK;
}

static tr_status apply_fuse(const step *self, const pieces *in, pieces *out) {
  (void)self;
  add(out, in->text.data, in->text.size);
  return end_piece(out);
}

static tr_status apply_replace(const step *self, const pieces *in, pieces *out) {
  for (size_t i = 0; i < in->n; i++) {
    tr__piece_text piece = piece_at(in, i);
    TR_TRY(tr__replacement_apply(&self->replacement, piece.data, piece.nbyte, &out->text));
    TR_TRY(end_piece(out));
  }
  return TR_OK;
}

static tr_status apply_strip(const step *self, const pieces *in, pieces *out) {
  for (size_t i = 0; i < in->n; i++) {
    tr__piece_text piece = piece_at(in, i);
    const char *begin = piece.data, *end = begin + piece.nbyte;
    size_t n = self->nfind;
    for (int64_t k = 0; k < self->start && begins_with(begin, (size_t)(end - begin), self->find, n); k++) begin += n;
    for (int64_t k = 0; k < self->stop && (size_t)(end - begin) >= n && memcmp(end - n, self->find, n) == 0; k++)
      end -= n;
    add(out, begin, (size_t)(end - begin));
    TR_TRY(end_piece(out));
  }
  return TR_OK;
}

// What tokens of words leave before punctuation and in contractions goes, one kind after another, from `begin` on.
static void clean(tr_text *text, size_t begin) {
  static const char *const pair[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  if (!text->data || text->failed) return;
  for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
    char *at = text->data + begin, *end = text->data + text->size, *to = at, *found;
    size_t nfind = strlen(pair[i][0]), nto = strlen(pair[i][1]); // never longer than what it replaces
    while ((found = memmem(at, (size_t)(end - at), pair[i][0], nfind)) != NULL) {
      memmove(to, at, (size_t)(found - at));
      to += found - at;
      memcpy(to, pair[i][1], nto);
      to += nto;
      at = found + nfind;
    }
    memmove(to, at, (size_t)(end - at));
    text->size = (size_t)(to + (end - at) - text->data);
  }
}

static tr_status apply_word_piece(const step *self, const pieces *in, pieces *out) {
  for (size_t i = 0; i < in->n; i++) {
    tr__piece_text piece = piece_at(in, i);
    size_t begin = out->text.size;
    int goes_on = i > 0 && begins_with(piece.data, piece.nbyte, self->find, self->nfind);
    size_t skip = goes_on ? self->nfind : 0;
    if (i > 0 && !goes_on) add(out, " ", 1);
    add(out, piece.data + skip, piece.nbyte - skip);
    if (self->cleanup) clean(&out->text, begin);
    TR_TRY(end_piece(out));
  }
  return TR_OK;
}

static tr_status apply_bpe(const step *self, const pieces *in, pieces *out) {
  for (size_t i = 0; i < in->n; i++) {
    tr__piece_text piece = piece_at(in, i);
    add_replaced(&out->text, piece.data, piece.nbyte, self->find, self->nfind, " ", i + 1 < in->n);
    TR_TRY(end_piece(out));
  }
  return TR_OK;
}

// Repetitions count once, padding goes, and with the cleaning the delimiter of words becomes a blank.
static tr_status apply_ctc(const step *self, const pieces *in, pieces *out) {
  tr_text plain = {0};
  tr_status status = TR_OK;
  for (size_t i = 0; i < in->n && status == TR_OK; i++) {
    tr__piece_text piece = piece_at(in, i), before = i ? piece_at(in, i - 1) : piece;
    if (i > 0 && before.nbyte == piece.nbyte && memcmp(before.data, piece.data, piece.nbyte) == 0) continue;
    size_t begin = out->text.size;
    plain.size = 0;
    add_replaced(&plain, piece.data, piece.nbyte, self->find, self->nfind, "", 0);
    if (self->cleanup) clean(&plain, 0);
    if (plain.failed) status = TR_ERR_MEMORY;
    if (status == TR_OK)
      add_replaced(&out->text, plain.data, plain.size, self->cleanup ? self->delimiter : "",
                   self->cleanup ? self->ndelimiter : 0, " ", 1);
    if (status == TR_OK && out->text.size > begin) status = end_piece(out);
  }
  tr_text_free(&plain);
  return status;
}

// ---- reading

static tr_status read_find(step *added, const json_t *json, const char *name, const char *key) {
  return tr__part_content(json, name, part, key, &added->find, &added->nfind);
}

static tr_status read_metaspace(step *added, const json_t *json, const char *name) {
  tr__piece_text character;
  const char *scheme = NULL;
  int prefix = 1;
  TR_TRY(tr__part_character(json, name, part, "replacement", &character));
  TR_TRY(tr_json_get_bool(json, name, "add_prefix_space", 0, &prefix));
  TR_TRY(tr_json_get_string(json, name, "prepend_scheme", 0, &scheme));
  added->drop_first = scheme ? strcmp(scheme, "never") != 0 : prefix;
  if (scheme && added->drop_first && strcmp(scheme, "first") != 0 && strcmp(scheme, "always") != 0)
    return tr_error(TR_ERR_DATA, "%s: \"prepend_scheme\" of a %s is \"%s\" (first, never or always)", name, part,
                    scheme);
  return read_find(added, json, name, "replacement");
}

static tr_status read_replace(step *added, const json_t *json, const char *name) {
  return tr__replacement_parse(json, name, part, &added->replacement);
}

static tr_status read_strip(step *added, const json_t *json, const char *name) {
  tr__piece_text character;
  TR_TRY(tr__part_character(json, name, part, "content", &character));
  TR_TRY(tr_json_get_int(json, name, "start", 1, &added->start));
  TR_TRY(tr_json_get_int(json, name, "stop", 1, &added->stop));
  return read_find(added, json, name, "content");
}

static tr_status read_word_piece(step *added, const json_t *json, const char *name) {
  TR_TRY(tr_json_get_bool(json, name, "cleanup", 1, &added->cleanup));
  return read_find(added, json, name, "prefix");
}

static tr_status read_bpe(step *added, const json_t *json, const char *name) {
  return read_find(added, json, name, "suffix");
}

static tr_status read_ctc(step *added, const json_t *json, const char *name) {
  TR_TRY(tr_json_get_bool(json, name, "cleanup", 1, &added->cleanup));
  TR_TRY(tr__part_content(json, name, part, "word_delimiter_token", &added->delimiter, &added->ndelimiter));
  return read_find(added, json, name, "pad_token");
}

static const struct {
  const char *type, *fields;
  step_function apply;
  tr_status (*read)(step *added, const json_t *json, const char *name); // NULL: it has no settings
} kinds[] = {
    {"ByteLevel", "add_prefix_space trim_offsets use_regex", apply_byte_level, NULL}, // which concern encoding only
    {"Metaspace", "replacement prepend_scheme add_prefix_space split str_rep", apply_metaspace, read_metaspace},
    {"ByteFallback", "", apply_byte_fallback, NULL},
    {"Fuse", "", apply_fuse, NULL},
    {"Replace", "pattern content", apply_replace, read_replace},
    {"Strip", "content start stop", apply_strip, read_strip},
    {"WordPiece", "prefix cleanup", apply_word_piece, read_word_piece},
    {"BPEDecoder", "suffix", apply_bpe, read_bpe},
    {"CTC", "pad_token word_delimiter_token cleanup", apply_ctc, read_ctc},
};

static tr_status read_any(tr__decoder *self, const json_t *json, const char *name, int depth);

static tr_status read_sequence(tr__decoder *self, const json_t *json, const char *name, int depth) {
  const json_t *members = json_object_get(json, "decoders");
  if (!json_is_array(members) || depth == TR__PART_DEPTH)
    return tr_error(TR_ERR_DATA, "%s: a %s \"Sequence\" has no list \"decoders\", or lies deeper than %d", name, part,
                    TR__PART_DEPTH);
  size_t i;
  json_t *member;
  json_array_foreach(members, i, member) TR_TRY(read_any(self, member, name, depth + 1));
  return TR_OK;
}

static tr_status read_any(tr__decoder *self, const json_t *json, const char *name, int depth) {
  const char *type = NULL;
  TR_TRY(tr__part_type(json, name, part, &type));
  if (strcmp(type, "Sequence") == 0) return read_sequence(self, json, name, depth);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (strcmp(type, kinds[i].type) != 0) continue;
    TR_TRY(tr__part_fields(json, name, part, kinds[i].fields));
    if (self->nstep == STEPS_MAX)
      return tr_error(TR_ERR_DATA, "%s: a %s has more than %d steps", name, part, STEPS_MAX);
    step *added = &self->step[self->nstep++];
    added->apply = kinds[i].apply;
    return kinds[i].read ? kinds[i].read(added, json, name) : TR_OK;
  }
  return tr_error(TR_ERR_DATA, "%s: %s \"%s\" is not known", name, part, type);
}

tr_status tr__decoder_parse(const json_t *json, const char *name, tr__decoder **out) {
  *out = NULL;
  if (!json || json_is_null(json)) return TR_OK;
  tr__decoder *self = calloc(1, sizeof *self);
  if (!self) return tr_error(TR_ERR_MEMORY, "no memory for a decoder");
  tr_status status = read_any(self, json, name, 0);
  if (status < 0) {
    tr__decoder_free(self);
    return status;
  }
  *out = self;
  return TR_OK;
}

void tr__decoder_free(tr__decoder *decoder) {
  if (!decoder) return;
  for (size_t i = 0; i < decoder->nstep; i++) {
    free(decoder->step[i].find);
    free(decoder->step[i].delimiter);
    tr__replacement_free(&decoder->step[i].replacement);
  }
  free(decoder);
}

// ---- decoding

static void join_by_blanks(const tr__piece_text *token, size_t ntoken, tr_text *out) {
  for (size_t i = 0; i < ntoken; i++) {
    if (i) tr_text_append_bytes(out, " ", 1);
    tr_text_append_bytes(out, token[i].data, token[i].nbyte);
  }
}

static tr_status run_step(const step *self, const pieces *in, pieces *out, size_t ntext) {
  out->n = out->text.size = 0;
  TR_TRY(self->apply(self, in, out));
  if (out->text.failed) return TR_ERR_MEMORY;
  return tr__check_growth(ntext, out->text.size);
}

tr_status tr__decoder_run(const tr__decoder *decoder, const tr__piece_text *token, size_t ntoken, tr_text *out) {
  pieces list[2] = {{{0}, NULL, 0, 0}, {{0}, NULL, 0, 0}};
  pieces *now = &list[0], *next = &list[1];
  tr_status status = TR_OK;
  if (!decoder) join_by_blanks(token, ntoken, out);
  for (size_t i = 0; decoder && i < ntoken && status == TR_OK; i++) {
    add(now, token[i].data, token[i].nbyte);
    status = end_piece(now);
  }
  if (now->text.failed) status = TR_ERR_MEMORY;
  size_t ntext = now->text.size + ntoken; // a token may add a blank
  for (size_t i = 0; decoder && i < decoder->nstep && status == TR_OK; i++) {
    status = run_step(&decoder->step[i], now, next, ntext);
    pieces *last = now;
    now = next;
    next = last;
  }
  if (status == TR_OK && now->text.size) tr_text_append_bytes(out, now->text.data, now->text.size);
  pieces_free(&list[0]);
  pieces_free(&list[1]);
  return out->failed ? TR_ERR_MEMORY : status;
}
