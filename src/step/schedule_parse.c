// SPDX-License-Identifier: MIT
// Schedules from text, which may come from anywhere: every number has a limit before it is used, every token that is not known
// is refused with its line, and what was read is proved before anybody sees it.
//
// B has two meanings in files that are about: a whole backward pass (PyTorch today), or the half for inputs, with BW for the
// whole (older files, and the authors of zero bubble). Ours says which in its first line; without one B is the whole and BW is
// refused, since nothing would tell if it were otherwise.
#include "schedule_internal.h"
#include "trireme/base/file.h"
#include "trireme/base/text.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 28, UNKNOWN = -1 };

typedef struct reader {
  const char *name; // of the file
  int line;
  int p, S, m, map; // from the first line; UNKNOWN without one
  int b_is_input;   // "B input"
  tr_schedule made;
  uint32_t capacity;
  int ranks_capacity;
  int *line_of; // [made.p] line of each rank
} reader;

static tr_status refuse(const reader *r, const char *token, size_t size, const char *why) {
  return tr_error(TR_ERR_PLAN, "%s, line %d, token \"%.*s\": %s", r->name, r->line, (int)(size < 40 ? size : 40),
                  token, why);
}

// ---- the first line

// A number of 1 to 5 digits; UNKNOWN: it is none.
static int small_number(const char *text) {
  size_t digits = strspn(text, "0123456789");
  return digits > 0 && digits <= 5 && !text[digits] ? (int)strtol(text, NULL, 10) : UNKNOWN;
}

static int good_name(const char *name) {
  size_t size = strlen(name);
  if (size == 0 || size >= TR_SCHEDULE_NAME) return 0;
  for (; *name; name++)
    if (!isalnum((unsigned char)*name) && !strchr("_-.+", *name)) return 0;
  return 1;
}

static int take_number(int *field, const char *value) {
  if (*field != UNKNOWN) return 0;
  *field = small_number(value);
  return *field != UNKNOWN;
}

// One "key value" of the first line; 0: it makes no sense, or comes a second time.
static int take_field(reader *r, const char *key, const char *value) {
  if (!strcmp(key, "p")) return take_number(&r->p, value);
  if (!strcmp(key, "S")) return take_number(&r->S, value);
  if (!strcmp(key, "m")) return take_number(&r->m, value);
  if (!strcmp(key, "name")) {
    if (r->made.name[0] || !good_name(value)) return 0;
    memcpy(r->made.name, value, strlen(value) + 1);
    return 1;
  }
  if (!strcmp(key, "map")) {
    if (r->map != UNKNOWN) return 0;
    r->map = tr__stage_map_find(value);
    return r->map >= 0;
  }
  if (strcmp(key, "B") || r->b_is_input != UNKNOWN) return 0;
  r->b_is_input = !strcmp(value, "input");
  return r->b_is_input || !strcmp(value, "full");
}

static tr_status read_first_line(reader *r, const char *line, size_t size) {
  static const char start[] = "# trireme schedule ";
  char field[80], key[8], value[64];
  const char *at = line + sizeof start - 1, *end = line + size;
  for (int n = 0; at < end; n++) {
    const char *comma = memchr(at, ',', (size_t)(end - at));
    size_t length = (size_t)((comma ? comma : end) - at);
    snprintf(field, sizeof field, "%.*s", (int)(length < sizeof field ? length : sizeof field - 1), at);
    char extra;
    int good = n == 0 ? !strcmp(field, "1")
                      : sscanf(field, " %7s %63s %c", key, value, &extra) == 2 && take_field(r, key, value);
    if (!good)
      return refuse(r, at, length,
                    n == 0 ? "this reads version 1 of schedule files"
                           : "known are: name NAME, p N, S N, m N, map linear|loop|v|both, B full|input");
    at += length + (comma != NULL);
  }
  if (r->p == UNKNOWN || r->S == UNKNOWN || r->m == UNKNOWN || r->map == UNKNOWN)
    return refuse(r, line, size, "a first line like this gives p, S, m and map");
  return TR_OK;
}

// ---- tokens

typedef struct half {
  tr_op_kind kind;
  int stage, microbatch;
} half;

// Digits at *at up to `limit`, which is left out; UNKNOWN: none, or too large.
static int read_number(const char **at, const char *end, int limit) {
  const char *from = *at;
  int n = 0;
  for (; *at < end && isdigit((unsigned char)**at); ++*at)
    if (n < limit) n = 10 * n + (**at - '0');
  return *at > from && n < limit ? n : UNKNOWN;
}

static const char *read_kind(const reader *r, const char *word, size_t size, tr_op_kind *kind) {
  if (size == 2 && !memcmp(word, "BW", 2)) {
    *kind = TR_OP_B;
    return r->b_is_input == 1
               ? NULL
               : "BW is a whole backward pass only where B is the half for inputs; then begin the file with "
                 "a line \"# trireme schedule 1, p N, S N, m N, map linear|loop|v|both, B input\"";
  }
  static const char letters[] = "FBIWR";
  static const tr_op_kind kinds[] = {TR_OP_F, TR_OP_B, TR_OP_I, TR_OP_W, TR_OP_R};
  const char *letter = size == 1 ? strchr(letters, *word) : NULL;
  if (!letter)
    return memchr(word, '_', size) ? "communication follows from the passes; take the file of passes only"
                                   : "known are F, B, I, W and R between a stage and a micro-batch, and "
                                     "(1F2;0B1)OVERLAP_F_B";
  *kind = kinds[letter - letters];
  if (*kind == TR_OP_B && r->b_is_input == 1) *kind = TR_OP_I;
  return NULL;
}

// "3F0" from *at on. Returns what is wrong, or NULL.
static const char *read_half(const reader *r, const char **at, const char *end, half *out) {
  out->stage = read_number(at, end, TR__SCHEDULE_STAGES);
  if (out->stage == UNKNOWN) return "begins with a stage, a number below 65535";
  const char *word = *at;
  while (*at < end && (isalpha((unsigned char)**at) || **at == '_')) ++*at;
  const char *wrong = read_kind(r, word, (size_t)(*at - word), &out->kind);
  if (wrong) return wrong;
  out->microbatch = read_number(at, end, TR_STEP_MICROBATCHES);
  return out->microbatch == UNKNOWN ? "ends in a micro-batch, a number below 4096" : NULL;
}

static const char *read_pair(const reader *r, const char *at, const char *end, tr_pass *out) {
  static const char tail[] = ")OVERLAP_F_B";
  half f, b;
  at++;
  const char *wrong = read_half(r, &at, end, &f);
  if (wrong) return wrong;
  if (at == end || *at++ != ';') return "an overlapped pair is written (1F2;0B1)OVERLAP_F_B";
  wrong = read_half(r, &at, end, &b);
  if (wrong) return wrong;
  if ((size_t)(end - at) != sizeof tail - 1 || memcmp(at, tail, sizeof tail - 1) || f.kind != TR_OP_F ||
      b.kind != TR_OP_B)
    return "an overlapped pair is a forward and a whole backward pass, (1F2;0B1)OVERLAP_F_B";
  *out = (tr_pass){TR_OP_X, (uint16_t)f.stage, (uint16_t)b.stage, f.microbatch, b.microbatch};
  return NULL;
}

static tr_status append(reader *r, tr_pass pass) {
  uint32_t *n = &r->made.begin[r->made.p];
  if (*n == TR__SCHEDULE_PASSES)
    return tr_error(TR_ERR_PLAN, "%s, line %d: more than %d passes", r->name, r->line, (int)TR__SCHEDULE_PASSES);
  if (*n == r->capacity) {
    uint32_t capacity = r->capacity ? 2 * r->capacity : 256;
    tr_pass *grown = realloc(r->made.pass, capacity * sizeof *grown);
    if (!grown) return tr_error(TR_ERR_MEMORY, "%s: no memory for %u passes", r->name, capacity);
    r->made.pass = grown;
    r->capacity = capacity;
  }
  r->made.pass[(*n)++] = pass;
  return TR_OK;
}

static tr_status read_token(reader *r, const char *at, const char *end) {
  while (at < end && isspace((unsigned char)*at)) at++;
  while (at < end && isspace((unsigned char)end[-1])) end--;
  if (at == end) return TR_OK; // an idle slot: lists are taken as fast as they can be
  const char *token = at, *wrong;
  tr_pass pass = {0};
  if (*at == '(') {
    wrong = read_pair(r, at, end, &pass);
  } else {
    half one = {0};
    wrong = read_half(r, &at, end, &one);
    if (!wrong && at != end) wrong = "goes on behind its micro-batch";
    pass = (tr_pass){.kind = (uint8_t)one.kind, .stage = (uint16_t)one.stage, .microbatch = one.microbatch};
  }
  return wrong ? refuse(r, token, (size_t)(end - token), wrong) : append(r, pass);
}

// ---- lines

static tr_status begin_rank(reader *r) {
  int p = r->made.p;
  if (p == TR__SCHEDULE_STAGES)
    return tr_error(TR_ERR_PLAN, "%s, line %d: more than %d ranks", r->name, r->line, (int)TR__SCHEDULE_STAGES);
  if (p + 1 >= r->ranks_capacity) {
    int capacity = r->ranks_capacity ? 2 * r->ranks_capacity : 16;
    uint32_t *begin = realloc(r->made.begin, (size_t)capacity * sizeof *begin);
    if (begin) r->made.begin = begin;
    int *line_of = realloc(r->line_of, (size_t)capacity * sizeof *line_of);
    if (line_of) r->line_of = line_of;
    if (!begin || !line_of) return tr_error(TR_ERR_MEMORY, "%s: no memory for %d ranks", r->name, capacity);
    r->ranks_capacity = capacity;
  }
  if (p == 0) r->made.begin[0] = 0;
  r->line_of[p] = r->line;
  r->made.begin[p + 1] = r->made.begin[p];
  r->made.p = p + 1;
  return TR_OK;
}

static int is_blank(const char *line, size_t size) {
  for (size_t i = 0; i < size; i++)
    if (!isspace((unsigned char)line[i])) return 0;
  return 1;
}

static tr_status read_line(reader *r, const char *line, size_t size) {
  static const char start[] = "# trireme schedule ";
  if (is_blank(line, size)) return TR_OK;
  if (r->line == 1 && size >= sizeof start - 1 && !memcmp(line, start, sizeof start - 1))
    return read_first_line(r, line, size);
  if (*line == '#') return TR_OK;
  TR_TRY(begin_rank(r));
  const char *end = line + size;
  for (const char *at = line; at <= end;) {
    const char *comma = memchr(at, ',', (size_t)(end - at));
    const char *stop = comma ? comma : end;
    TR_TRY(read_token(r, at, stop));
    at = stop + 1;
  }
  return TR_OK;
}

// ---- what the tokens say of the whole

static void count_sizes(const tr_schedule *s, int *stages, int *microbatches) {
  *stages = *microbatches = 0;
  for (uint32_t i = 0; i < s->begin[s->p]; i++) {
    const tr_pass *pass = &s->pass[i];
    if (pass->stage >= *stages) *stages = pass->stage + 1;
    if (pass->microbatch >= *microbatches) *microbatches = pass->microbatch + 1;
  }
}

static int fits(const tr_schedule *s) {
  for (int r = 0; r < s->p; r++)
    for (uint32_t i = s->begin[r]; i < s->begin[r + 1]; i++)
      if (tr_schedule_rank(s, s->pass[i].stage, s->pass[i].microbatch) != r) return 0;
  return 1;
}

static void set_map(tr_schedule *s, tr_stage_map map) {
  s->map = map;
  s->v = map == TR_STAGES_LINEAR ? 1 : map == TR_STAGES_LOOP ? s->S / s->p : 2;
}

// The map on which every pass is where it belongs; without one, that of which most schedules are.
static void guess_map(tr_schedule *s) {
  static const tr_stage_map maps[] = {TR_STAGES_LINEAR, TR_STAGES_BOTH, TR_STAGES_LOOP, TR_STAGES_V};
  for (int i = 0; i < 4; i++) {
    int one = maps[i] == TR_STAGES_LINEAR || maps[i] == TR_STAGES_BOTH;
    set_map(s, maps[i]);
    if ((one ? s->S == s->p : s->S == s->v * s->p) && fits(s)) return;
  }
  set_map(s, s->S > s->p ? TR_STAGES_LOOP : TR_STAGES_LINEAR);
}

static void name_after_file(const reader *r, char *name) {
  const char *slash = strrchr(r->name, '/'), *from = slash ? slash + 1 : r->name;
  size_t size = strcspn(from, ".");
  if (size == 0) from = "custom", size = 6;
  if (size >= TR_SCHEDULE_NAME) size = TR_SCHEDULE_NAME - 1;
  for (size_t i = 0; i < size; i++) name[i] = isalnum((unsigned char)from[i]) ? from[i] : '_';
  name[size] = '\0';
}

static tr_status complete(reader *r) {
  tr_schedule *s = &r->made;
  if (s->p == 0) return tr_error(TR_ERR_PLAN, "%s: no rank's list is in it; one line per rank works", r->name);
  if (!s->name[0]) name_after_file(r, s->name);
  count_sizes(s, &s->S, &s->m);
  if (r->map == UNKNOWN) {
    guess_map(s);
  } else {
    if (r->p != s->p)
      return tr_error(TR_ERR_PLAN, "%s: its first line says p %d, but it has the list%s of %d rank%s", r->name, r->p,
                      tr_text_plural(s->p, "s"), s->p, tr_text_plural(s->p, "s"));
    s->S = r->S;
    s->m = r->m;
    set_map(s, (tr_stage_map)r->map);
  }
  int fault;
  tr_status status = tr__schedule_prove(s, &fault);
  if (status < 0 && fault >= 0)
    tr_error_prefix("%s, line %d", r->name, r->line_of[fault]);
  else if (status < 0)
    tr_error_prefix("%s", r->name);
  return status;
}

static tr_status parse(reader *r, const char *text) {
  text += tr_text_mark(text, strlen(text));
  while (*text) {
    size_t size = strcspn(text, "\n");
    r->line++;
    TR_TRY(read_line(r, text, size));
    text += size + (text[size] == '\n');
  }
  return complete(r);
}

tr_status tr_schedule_parse(const char *name, const char *text, tr_schedule *out) {
  reader r = {.name = name, .p = UNKNOWN, .S = UNKNOWN, .m = UNKNOWN, .map = UNKNOWN, .b_is_input = UNKNOWN};
  tr_status status = parse(&r, text);
  if (status < 0)
    tr_schedule_destroy(&r.made);
  else
    *out = r.made;
  free(r.line_of);
  return status;
}

tr_status tr_schedule_read(const char *path, tr_schedule *out) {
  char *text;
  size_t size;
  TR_TRY(tr_file_read(path, MOST_BYTES, &text, &size));
  tr_status status = strlen(text) == size
                         ? tr_schedule_parse(path, text, out)
                         : tr_error(TR_ERR_PLAN, "%s: a zero byte at %zu; schedules are text", path, strlen(text));
  free(text);
  return status;
}
