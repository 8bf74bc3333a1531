// SPDX-License-Identifier: MIT
// Pre-tokenizers: from a text to its words.
//
// A chain of pre-tokenizers becomes a flat list of steps. A step either cuts or rewrites. One that cuts looks for matches in
// each word (of a pattern, of a kind of character), and its behaviour says which of the matches and gaps become words and
// which are joined. One that rewrites (a blank put before, blanks replaced, bytes as characters) copies all words into a new
// text. ByteLevel as the last step is not carried out: the words are left as bytes, see tr__splitter_is_bytes.
#include "token/split_internal.h"

#include "token/part_internal.h"
#include "trireme/base/json.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { STEPS_MAX = 64 };

typedef enum behavior { REMOVED, ISOLATED, WITH_PREVIOUS, WITH_NEXT, CONTIGUOUS } behavior;

typedef struct step step;
struct step {
  // Cutting: add the matches and gaps of a text to work->span. Or rewriting: append a word.
  tr_status (*find)(const step *self, tr__split_work *work, const char *text, size_t nbyte);
  void (*rewrite)(const step *self, const char *text, size_t nbyte, int first, tr_text *out);
  behavior behavior;
  int invert;
  tr__pattern *pattern; // owned
  tr__scan_kind scan;
  const tr__classes *classes;
  int (*is)(int32_t character);
  char character[4]; // of CharDelimiterSplit and Metaspace
  size_t ncharacter;
  int prepend_always, prepend_first; // of Metaspace
  int64_t length;                    // of FixedLength
};

struct tr__splitter {
  step step[STEPS_MAX];
  size_t nstep;
  int bytes;
  tr__classes *classes; // for scanning; NULL: no step scans
  const char *name;     // while parsing
};

static const char part[] = "pre_tokenizer"; // in messages

// ---- lists of pieces

static tr_status push(tr__pieces *pieces, size_t start, size_t end, int match) {
  if (pieces->size == pieces->capacity) {
    size_t capacity = pieces->capacity ? 2 * pieces->capacity : 256;
    tr__piece *data = realloc(pieces->data, capacity * sizeof *data);
    if (!data) return tr_error(TR_ERR_MEMORY, "no memory for %zu words", capacity);
    pieces->data = data;
    pieces->capacity = capacity;
  }
  pieces->data[pieces->size++] = (tr__piece){.start = start, .end = end, .match = match};
  return TR_OK;
}

static void swap_pieces(tr__split_work *work) {
  tr__pieces swap = work->piece;
  work->piece = work->spare;
  work->spare = swap;
  work->piece.size = 0;
}

// ---- kinds of characters

int tr__is_space(int32_t c) {
  utf8proc_category_t category = utf8proc_category(c);
  return (c >= 0x9 && c <= 0xD) || c == 0x85 || category == UTF8PROC_CATEGORY_ZS ||
         category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

static int is_number(int32_t c) {
  utf8proc_category_t category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

// The `tokenizers` library takes punctuation from Unicode 8. What became punctuation later is none, and the two that have
// ceased to be some still are.
// clang-format off
static const int32_t later[][2] = {
    {0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},     {0xC84, 0xC84},     {0x1B7D, 0x1B7E},
    {0x2E43, 0x2E4F},   {0x2E52, 0x2E5D},   {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59}, {0x10F86, 0x10F89}, {0x1144B, 0x1144F},
    {0x1145A, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x116B9, 0x116B9}, {0x1183B, 0x1183B}, {0x11944, 0x11946},
    {0x119E2, 0x119E2}, {0x11A3F, 0x11A46}, {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11B00, 0x11B09}, {0x11C41, 0x11C45},
    {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F}, {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16E97, 0x16E9A},
    {0x16FE2, 0x16FE2}, {0x1E95E, 0x1E95F},
};
// clang-format on
static const int32_t once[] = {0x166D, 0x111C9};

static int is_punctuation(int32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  utf8proc_category_t category = utf8proc_category(c);
  if (category < UTF8PROC_CATEGORY_PC || category > UTF8PROC_CATEGORY_PO) return c == once[0] || c == once[1];
  for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
    if (c >= later[i][0] && c <= later[i][1]) return 0;
  }
  return 1;
}

// \w of Rust's regular expressions: letters (circled ones too), marks, decimal digits, connectors, and the two joiners.
int tr__is_word(int32_t c) {
  utf8proc_category_t category = utf8proc_category(c);
  int circled = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
                (c >= 0x1F170 && c <= 0x1F189);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) || category == UTF8PROC_CATEGORY_PC ||
         circled || c == 0x200C || c == 0x200D;
}

// ---- finding matches

static tr_status gap_and_match(tr__split_work *work, size_t *past, size_t start, size_t end) {
  if (*past < start) TR_TRY(push(&work->span, *past, start, 0));
  *past = end;
  return push(&work->span, start, end, 1);
}

static size_t character_nbyte(const char *text) {
  unsigned char c = (unsigned char)*text;
  return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

// Empty matches count, but not right behind another match.
static tr_status find_pattern(const step *self, tr__split_work *work, const char *text, size_t nbyte) {
  size_t past = 0, from = 0;
  while (from <= nbyte) {
    size_t start, end;
    TR_TRY(tr__pattern_find(self->pattern, work->matcher, text, nbyte, from, &start, &end));
    if (start > nbyte) break;
    int empty = start == end, stuck = empty && start == past && past > 0;
    if (!stuck) TR_TRY(gap_and_match(work, &past, start, end));
    from = end;
    if (empty) from += end < nbyte ? character_nbyte(text + end) : 1;
  }
  return past < nbyte ? push(&work->span, past, nbyte, 0) : TR_OK;
}

static tr_status find_scan(const step *self, tr__split_work *work, const char *text, size_t nbyte) {
  for (size_t at = 0; at < nbyte;) {
    size_t end = tr__scan_next(self->classes, self->scan, text, nbyte, at);
    TR_TRY(push(&work->span, at, end, 1));
    at = end;
  }
  return TR_OK;
}

static tr_status find_kind(const step *self, tr__split_work *work, const char *text, size_t nbyte) {
  size_t past = 0;
  int32_t c = 0;
  for (size_t at = 0, n; at < nbyte; at += n) {
    n = (size_t)tr__utf8_next(text + at, nbyte - at, &c);
    if (self->is(c)) TR_TRY(gap_and_match(work, &past, at, at + n));
  }
  return past < nbyte ? push(&work->span, past, nbyte, 0) : TR_OK;
}

static tr_status find_character(const step *self, tr__split_work *work, const char *text, size_t nbyte) {
  size_t past = 0;
  for (const char *hit; past < nbyte;) {
    hit = memmem(text + past, nbyte - past, self->character, self->ncharacter);
    if (!hit) break;
    size_t start = (size_t)(hit - text);
    TR_TRY(gap_and_match(work, &past, start, start + self->ncharacter));
  }
  return past < nbyte ? push(&work->span, past, nbyte, 0) : TR_OK;
}

// \w+|[^\w\s]+ : runs of the one and of the other; blanks are the matches.
static tr_status find_words(const step *self, tr__split_work *work, const char *text, size_t nbyte) {
  (void)self;
  size_t start = 0;
  int before = -1;
  int32_t c = 0;
  for (size_t at = 0, n; at < nbyte; at += n) {
    n = (size_t)tr__utf8_next(text + at, nbyte - at, &c);
    int kind = tr__is_space(c) ? 2 : tr__is_word(c);
    if (kind != before && at > 0) {
      TR_TRY(push(&work->span, start, at, before == 2));
      start = at;
    }
    before = kind;
  }
  return nbyte ? push(&work->span, start, nbyte, before == 2) : TR_OK;
}

static tr_status find_length(const step *self, tr__split_work *work, const char *text, size_t nbyte) {
  size_t start = 0;
  int64_t n = 0;
  for (size_t at = 0; at < nbyte; at += character_nbyte(text + at)) {
    if (n++ < self->length) continue;
    TR_TRY(push(&work->span, start, at, 1));
    start = at;
    n = 1;
  }
  return push(&work->span, start, nbyte, 1);
}

// ---- cutting

static int joined(behavior how, int before, int match) {
  switch (how) {
  case WITH_PREVIOUS: return match && !before;
  case WITH_NEXT: return before && !match;
  case CONTIGUOUS: return match == before;
  default: return 0;
  }
}

// The spans of the word at `base` to words.
static tr_status take_spans(const step *self, tr__split_work *work, size_t base) {
  const tr__pieces *spans = &work->span;
  for (size_t i = 0; i < spans->size;) {
    size_t start = spans->data[i].start, last = i;
    while (last + 1 < spans->size && joined(self->behavior, spans->data[last].match != self->invert,
                                            spans->data[last + 1].match != self->invert))
      last++;
    int removed = self->behavior == REMOVED && spans->data[i].match != self->invert;
    size_t end = spans->data[last].end;
    if (!removed && start < end) TR_TRY(push(&work->piece, base + start, base + end, 0));
    i = last + 1;
  }
  return TR_OK;
}

static tr_status cut(const step *self, tr__split_work *work) {
  swap_pieces(work);
  for (size_t i = 0; i < work->spare.size; i++) {
    tr__piece word = work->spare.data[i];
    work->span.size = 0;
    TR_TRY(self->find(self, work, work->text + word.start, word.end - word.start));
    TR_TRY(take_spans(self, work, word.start));
  }
  return TR_OK;
}

// ---- rewriting

static tr_status rewrite(const step *self, tr__split_work *work, int first) {
  tr_text *out = &work->spare_text;
  swap_pieces(work);
  out->size = 0;
  // A first word that does not begin the text shall not begin the new one either.
  if (work->spare.size) tr_text_append_bytes(out, work->text, work->spare.data[0].start);
  for (size_t i = 0; i < work->spare.size; i++) {
    tr__piece word = work->spare.data[i];
    size_t start = out->size;
    self->rewrite(self, work->text + word.start, word.end - word.start, first && word.start == 0, out);
    TR_TRY(push(&work->piece, start, out->size, 0));
  }
  if (out->failed) return tr_error(TR_ERR_MEMORY, "no memory for the words of a text");
  tr_text swap = work->rewritten;
  work->rewritten = *out;
  *out = swap;
  work->text = work->rewritten.data;
  return TR_OK;
}

static void rewrite_prefix(const step *self, const char *text, size_t nbyte, int first, tr_text *out) {
  (void)self;
  (void)first;
  if (nbyte == 0 || text[0] != ' ') tr_text_append_bytes(out, " ", 1);
  tr_text_append_bytes(out, text, nbyte);
}

static void rewrite_bytes(const step *self, const char *text, size_t nbyte, int first, tr_text *out) {
  (void)self;
  (void)first;
  tr__bytes_to_alphabet(text, nbyte, out);
}

static void rewrite_metaspace(const step *self, const char *text, size_t nbyte, int first, tr_text *out) {
  const char *sign = self->character;
  size_t n = self->ncharacter;
  int there = nbyte > 0 && (text[0] == ' ' || (nbyte >= n && memcmp(text, sign, n) == 0));
  if (!there && (self->prepend_always || (self->prepend_first && first))) tr_text_append_bytes(out, sign, n);
  for (size_t at = 0; at < nbyte;) {
    const char *blank = memchr(text + at, ' ', nbyte - at);
    size_t end = blank ? (size_t)(blank - text) : nbyte;
    tr_text_append_bytes(out, text + at, end - at);
    if (blank) tr_text_append_bytes(out, sign, n);
    at = end + 1;
  }
}

// ---- parsing

typedef tr_status (*parse_function)(tr__splitter *s, const json_t *json);

static tr_status add(tr__splitter *s, step added) {
  if (s->nstep == STEPS_MAX) {
    tr__pattern_free(added.pattern);
    return tr_error(TR_ERR_DATA, "%s: pre_tokenizer: more than %d steps", s->name, STEPS_MAX);
  }
  s->step[s->nstep++] = added;
  return TR_OK;
}

static tr_status add_scan(tr__splitter *s, tr__scan_kind kind, behavior how, int invert) {
  if (!s->classes) TR_TRY(tr__classes_create(&s->classes));
  step scanning = {.find = find_scan, .scan = kind, .classes = s->classes, .behavior = how, .invert = invert};
  return add(s, scanning);
}

static tr_status parse_bytelevel(tr__splitter *s, const json_t *json) {
  int prefix = 1, regex = 1, trim = 1;
  TR_TRY(tr__part_fields(json, s->name, part, "add_prefix_space trim_offsets use_regex"));
  TR_TRY(tr_json_get_bool(json, s->name, "add_prefix_space", 1, &prefix));
  TR_TRY(tr_json_get_bool(json, s->name, "use_regex", 0, &regex));
  TR_TRY(tr_json_get_bool(json, s->name, "trim_offsets", 0, &trim)); // of places in the text, which nobody asks for
  if (prefix) TR_TRY(add(s, (step){.rewrite = rewrite_prefix}));
  if (regex) TR_TRY(add_scan(s, TR__SCAN_GPT2, ISOLATED, 0));
  return add(s, (step){.rewrite = rewrite_bytes});
}

static tr_status parse_behavior(tr__splitter *s, const json_t *json, int required, behavior *out) {
  static const char *const names[] = {[REMOVED] = "Removed",
                                      [ISOLATED] = "Isolated",
                                      [WITH_PREVIOUS] = "MergedWithPrevious",
                                      [WITH_NEXT] = "MergedWithNext",
                                      [CONTIGUOUS] = "Contiguous"};
  const char *text = NULL;
  TR_TRY(tr_json_get_string(json, s->name, "behavior", required, &text));
  if (!text) return TR_OK;
  for (int i = REMOVED; i <= CONTIGUOUS; i++) {
    if (strcmp(names[i], text) != 0) continue;
    *out = (behavior)i;
    return TR_OK;
  }
  return tr_error(TR_ERR_DATA,
                  "%s: pre_tokenizer: behavior '%s' is not known; there is: Removed, Isolated, MergedWithPrevious, "
                  "MergedWithNext, Contiguous",
                  s->name, text);
}

// {"Regex": R} or {"String": S}
static tr_status parse_pattern(tr__splitter *s, const json_t *json, tr__piece_text *out, int *regex) {
  const json_t *pattern = json_object_get(json, "pattern");
  *regex = json_object_get(pattern, "Regex") != NULL;
  if (json_object_size(pattern) != 1)
    return tr_error(TR_ERR_DATA, "%s: pre_tokenizer: \"pattern\" is neither {\"Regex\": ...} nor {\"String\": ...}",
                    s->name);
  return tr__part_string(pattern, s->name, part, *regex ? "Regex" : "String", out);
}

static tr_status parse_split(tr__splitter *s, const json_t *json) {
  behavior how = ISOLATED;
  int invert = 0, regex;
  tr__piece_text pattern;
  TR_TRY(tr__part_fields(json, s->name, part, "pattern behavior invert"));
  TR_TRY(parse_pattern(s, json, &pattern, &regex));
  TR_TRY(parse_behavior(s, json, 1, &how));
  TR_TRY(tr_json_get_bool(json, s->name, "invert", 0, &invert));
  tr__scan_kind known = regex ? tr__scan_known(pattern.data, pattern.nbyte) : TR__SCAN_NONE;
  if (known != TR__SCAN_NONE) return add_scan(s, known, how, invert);
  step made = {.find = find_pattern, .behavior = how, .invert = invert};
  TR_TRY(regex ? tr__pattern_compile(pattern.data, pattern.nbyte, s->name, &made.pattern)
               : tr__pattern_literal(pattern.data, pattern.nbyte, s->name, &made.pattern));
  return add(s, made);
}

static tr_status parse_prepend(tr__splitter *s, const json_t *json, step *out) {
  const char *scheme = "always";
  int prefix = 1;
  TR_TRY(tr_json_get_string(json, s->name, "prepend_scheme", 0, &scheme));
  TR_TRY(tr_json_get_bool(json, s->name, "add_prefix_space", 0, &prefix)); // what it was called before
  out->prepend_always = strcmp(scheme, "always") == 0;
  out->prepend_first = strcmp(scheme, "first") == 0;
  int prepends = out->prepend_always || out->prepend_first;
  if (!prepends && strcmp(scheme, "never") != 0)
    return tr_error(TR_ERR_DATA,
                    "%s: pre_tokenizer: prepend_scheme '%s' is not known; there is: first, never, always", s->name,
                    scheme);
  if (!prefix && prepends && json_object_get(json, "prepend_scheme"))
    return tr_error(TR_ERR_DATA, "%s: pre_tokenizer: add_prefix_space is false, but prepend_scheme is '%s'", s->name,
                    scheme);
  if (!prefix) out->prepend_always = out->prepend_first = 0;
  return TR_OK;
}

static tr_status parse_metaspace(tr__splitter *s, const json_t *json) {
  int cuts = 1;
  tr__piece_text sign;
  step made = {.rewrite = rewrite_metaspace};
  TR_TRY(tr__part_fields(json, s->name, part, "replacement prepend_scheme split add_prefix_space str_rep"));
  TR_TRY(tr__part_character(json, s->name, part, "replacement", &sign));
  TR_TRY(tr_json_get_bool(json, s->name, "split", 0, &cuts));
  TR_TRY(parse_prepend(s, json, &made));
  memcpy(made.character, sign.data, sign.nbyte);
  made.ncharacter = sign.nbyte;
  TR_TRY(add(s, made));
  if (!cuts) return TR_OK;
  made.rewrite = NULL;
  made.find = find_character;
  made.behavior = WITH_NEXT;
  return add(s, made);
}

static tr_status add_kind(tr__splitter *s, int (*is)(int32_t), behavior how) {
  return add(s, (step){.find = find_kind, .is = is, .behavior = how});
}

static tr_status parse_digits(tr__splitter *s, const json_t *json) {
  int individual = 0;
  TR_TRY(tr__part_fields(json, s->name, part, "individual_digits"));
  TR_TRY(tr_json_get_bool(json, s->name, "individual_digits", 1, &individual));
  return add_kind(s, is_number, individual ? ISOLATED : CONTIGUOUS);
}

static tr_status parse_punctuation(tr__splitter *s, const json_t *json) {
  behavior how = ISOLATED;
  TR_TRY(tr__part_fields(json, s->name, part, "behavior"));
  TR_TRY(parse_behavior(s, json, 0, &how));
  return add_kind(s, is_punctuation, how);
}

static tr_status parse_whitespace(tr__splitter *s, const json_t *json) {
  TR_TRY(tr__part_fields(json, s->name, part, ""));
  return add(s, (step){.find = find_words, .behavior = REMOVED});
}

static tr_status parse_whitespace_split(tr__splitter *s, const json_t *json) {
  TR_TRY(tr__part_fields(json, s->name, part, ""));
  return add_kind(s, tr__is_space, REMOVED);
}

static tr_status parse_bert(tr__splitter *s, const json_t *json) {
  TR_TRY(parse_whitespace_split(s, json));
  return add_kind(s, is_punctuation, ISOLATED);
}

static tr_status parse_delimiter(tr__splitter *s, const json_t *json) {
  tr__piece_text delimiter;
  step made = {.find = find_character, .behavior = REMOVED};
  TR_TRY(tr__part_fields(json, s->name, part, "delimiter"));
  TR_TRY(tr__part_character(json, s->name, part, "delimiter", &delimiter));
  memcpy(made.character, delimiter.data, delimiter.nbyte);
  made.ncharacter = delimiter.nbyte;
  return add(s, made);
}

static tr_status parse_length(tr__splitter *s, const json_t *json) {
  step made = {.find = find_length, .behavior = ISOLATED, .length = 5};
  TR_TRY(tr__part_fields(json, s->name, part, "length"));
  TR_TRY(tr_json_get_int(json, s->name, "length", 0, &made.length));
  if (made.length < 1) return tr_error(TR_ERR_DATA, "%s: pre_tokenizer: length must be at least 1", s->name);
  return add(s, made);
}

static tr_status parse_one(tr__splitter *s, const json_t *json, int depth);

static tr_status parse_sequence(tr__splitter *s, const json_t *json, int depth) {
  const json_t *list = json_object_get(json, "pretokenizers");
  TR_TRY(tr__part_fields(json, s->name, part, "pretokenizers"));
  if (!json_is_array(list) || depth == TR__PART_DEPTH)
    return tr_error(TR_ERR_DATA,
                    "%s: pre_tokenizer: a Sequence has no list \"pretokenizers\" or is nested too deeply", s->name);
  for (size_t i = 0; i < json_array_size(list); i++) TR_TRY(parse_one(s, json_array_get(list, i), depth + 1));
  return TR_OK;
}

static tr_status parse_one(tr__splitter *s, const json_t *json, int depth) {
  static const struct {
    const char *type;
    parse_function parse;
  } kinds[] = {
      {"ByteLevel", parse_bytelevel},
      {"Split", parse_split},
      {"Metaspace", parse_metaspace},
      {"Digits", parse_digits},
      {"Punctuation", parse_punctuation},
      {"Whitespace", parse_whitespace},
      {"WhitespaceSplit", parse_whitespace_split},
      {"BertPreTokenizer", parse_bert},
      {"CharDelimiterSplit", parse_delimiter},
      {"FixedLength", parse_length},
  };
  const char *type;
  TR_TRY(tr__part_type(json, s->name, part, &type));
  if (strcmp(type, "Sequence") == 0) return parse_sequence(s, json, depth);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (strcmp(kinds[i].type, type) == 0) return kinds[i].parse(s, json);
  }
  return tr_error(TR_ERR_DATA, "%s: pre_tokenizer '%s' is not supported", s->name, type);
}

tr_status tr__splitter_parse(const json_t *json, const char *name, tr__splitter **out) {
  *out = NULL;
  if (!json || json_is_null(json)) return TR_OK;
  tr__splitter *s = calloc(1, sizeof *s);
  if (!s) return tr_error(TR_ERR_MEMORY, "%s: no memory for the pre_tokenizer", name);
  s->name = name;
  tr_status status = parse_one(s, json, 0);
  if (status != TR_OK) {
    tr__splitter_free(s);
    return status;
  }
  if (s->nstep && s->step[s->nstep - 1].rewrite == rewrite_bytes) {
    s->nstep--;
    s->bytes = 1;
  }
  *out = s;
  return TR_OK;
}

void tr__splitter_free(tr__splitter *splitter) {
  if (!splitter) return;
  for (size_t i = 0; i < splitter->nstep; i++) tr__pattern_free(splitter->step[i].pattern);
  tr__classes_free(splitter->classes);
  free(splitter);
}

// ---- use

int tr__splitter_is_bytes(const tr__splitter *splitter) { return splitter && splitter->bytes; }

tr__scan_kind tr__splitter_scan(const tr__splitter *splitter, const tr__classes **classes) {
  *classes = NULL;
  if (!splitter || splitter->nstep != 1) return TR__SCAN_NONE;
  const step *only = &splitter->step[0];
  *classes = only->classes;
  int all = only->behavior == ISOLATED || (only->behavior == REMOVED && only->invert);
  return all ? only->scan : TR__SCAN_NONE;
}

tr_status tr__split(const tr__splitter *splitter, tr__split_work *work, const char *text, size_t nbyte, int first) {
  work->text = text;
  work->piece.size = 0;
  if (nbyte) TR_TRY(push(&work->piece, 0, nbyte, 0));
  for (size_t i = 0; splitter && i < splitter->nstep; i++) {
    const step *s = &splitter->step[i];
    TR_TRY(s->find ? cut(s, work) : rewrite(s, work, first));
  }
  return TR_OK;
}

tr_status tr__split_work_init(tr__split_work *work) {
  *work = (tr__split_work){0};
  return tr__matcher_create(&work->matcher);
}

void tr__split_work_clear(tr__split_work *work) {
  free(work->piece.data);
  free(work->spare.data);
  free(work->span.data);
  tr_text_free(&work->rewritten);
  tr_text_free(&work->spare_text);
  tr__matcher_free(work->matcher);
  *work = (tr__split_work){0};
}
