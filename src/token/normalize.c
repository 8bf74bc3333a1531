// SPDX-License-Identifier: MIT
// Normalizers: what happens to a text before it is cut into words.
//
// A normalizer is a flat list of steps, each from one text to the next: "Sequence" adds those of its members, and
// "BertNormalizer" is four of them. Most steps are a map of characters, the others a normal form (unicode_form.c), a
// precompiled map (charsmap.c), stripping, prepending, or the replacement of a string or of what a pattern finds.
//
// Characters that Unicode has added since the versions that the `tokenizers` library and utf8proc were made with may be
// treated differently by the two.
#include "token/normalize_internal.h"
#include "token/part_internal.h"
#include "token/split_internal.h"
#include "trireme/base/json.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { STEPS_MAX = 64 };

static const char part[] = "normalizer"; // in messages

typedef struct step step;
typedef int (*character_map)(int32_t character, int32_t to[3]);
struct step {
  tr_status (*apply)(const step *self, const char *text, size_t nbyte, tr_text *out);
  character_map map; // of apply_map
  int form;          // of apply_form
  int left, right;   // of apply_strip
  char *content;     // of apply_prepend
  size_t ncontent;
  tr__replacement replacement;
  tr__charsmap *charsmap;
};

struct tr__normalizer {
  step step[STEPS_MAX];
  size_t nstep;
};

// ---- maps of characters: how many characters stand for one (in `to`), KEEP: it stays

enum { KEEP = -1 };

static int map_nmt(int32_t c, int32_t to[3]) {
  to[0] = ' ';
  if (c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
      c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD)
    return 1;
  return (c > 0 && c < 0x20) || c == 0x7F || c == 0x8F || c == 0x9F ? 0 : KEEP;
}

static int map_lowercase(int32_t c, int32_t to[3]) {
  if (c == 0x130) { // the one letter whose small form is two characters
    to[0] = 'i';
    to[1] = 0x307;
    return 2;
  }
  to[0] = utf8proc_tolower(c);
  return to[0] == c ? KEEP : 1;
}

static int map_strip_accents(int32_t c, int32_t to[3]) {
  (void)to;
  utf8proc_category_t category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME
             ? 0
             : KEEP;
}

static int map_bert_accents(int32_t c, int32_t to[3]) {
  (void)to;
  return utf8proc_category(c) == UTF8PROC_CATEGORY_MN ? 0 : KEEP;
}

static int map_bert_clean(int32_t c, int32_t to[3]) {
  to[0] = ' ';
  if (c == '\t' || c == '\n' || c == '\r') return 1;
  utf8proc_category_t category = utf8proc_category(c);
  if (c == 0xFFFD || category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
      category == UTF8PROC_CATEGORY_CO)
    return 0;
  return tr__is_space(c) ? 1 : KEEP;
}

static int map_bert_chinese(int32_t c, int32_t to[3]) {
  static const int32_t range[][2] = {
      {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
      {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F},
  };
  for (size_t i = 0; i < sizeof range / sizeof *range; i++) {
    if (c < range[i][0] || c > range[i][1]) continue;
    to[0] = to[2] = ' ';
    to[1] = c;
    return 3;
  }
  return KEEP;
}

static tr_status apply_map(const step *self, const char *text, size_t nbyte, tr_text *out) {
  size_t start = 0; // of what stays and is not yet copied
  for (size_t i = 0; i < nbyte;) {
    int32_t character, to[3];
    int n = tr__utf8_next(text + i, nbyte - i, &character);
    if (n == 0) return tr_error(TR_ERR_INTERNAL, "a text to normalize is not UTF-8");
    int nto = self->map(character, to);
    i += (size_t)n;
    if (nto == KEEP) continue;
    tr_text_append_bytes(out, text + start, i - (size_t)n - start);
    for (int k = 0; k < nto; k++) {
      char bytes[4];
      tr_text_append_bytes(out, bytes, tr__utf8_put(to[k], bytes));
    }
    start = i;
  }
  tr_text_append_bytes(out, text + start, nbyte - start);
  return TR_OK;
}

// ---- the other steps

static tr_status apply_byte_level(const step *self, const char *text, size_t nbyte, tr_text *out) {
  (void)self;
  for (size_t i = 0; i < nbyte; i++) {
    char bytes[4];
    tr_text_append_bytes(out, bytes, tr__utf8_put(tr__byte_to_character((unsigned char)text[i]), bytes));
  }
  return TR_OK;
}

static tr_status apply_form(const step *self, const char *text, size_t nbyte, tr_text *out) {
  return tr__unicode_form(text, nbyte, self->form, out);
}

static tr_status apply_charsmap(const step *self, const char *text, size_t nbyte, tr_text *out) {
  return tr__charsmap_apply(self->charsmap, text, nbyte, out);
}

static tr_status apply_strip(const step *self, const char *text, size_t nbyte, tr_text *out) {
  size_t begin = 0, end = 0; // end: after the last character that is no blank
  int32_t character = 0;
  for (size_t i = 0; i < nbyte;) {
    i += (size_t)tr__utf8_next(text + i, nbyte - i, &character);
    if (!tr__is_space(character)) end = i;
    if (end == 0) begin = i;
  }
  if (!self->left) begin = 0;
  if (!self->right) end = nbyte;
  if (end > begin) tr_text_append_bytes(out, text + begin, end - begin);
  return TR_OK;
}

static tr_status apply_prepend(const step *self, const char *text, size_t nbyte, tr_text *out) {
  if (nbyte) tr_text_append_bytes(out, self->content, self->ncontent);
  tr_text_append_bytes(out, text, nbyte);
  return TR_OK;
}

static tr_status apply_replace(const step *self, const char *text, size_t nbyte, tr_text *out) {
  return tr__replacement_apply(&self->replacement, text, nbyte, out);
}

// ---- reading

static tr_status read_strip(step *added, const json_t *json, const char *name) {
  added->left = added->right = 1;
  TR_TRY(tr_json_get_bool(json, name, "strip_left", 0, &added->left));
  return tr_json_get_bool(json, name, "strip_right", 0, &added->right);
}

static tr_status read_prepend(step *added, const json_t *json, const char *name) {
  return tr__part_content(json, name, part, "prepend", &added->content, &added->ncontent);
}

static tr_status read_replace(step *added, const json_t *json, const char *name) {
  return tr__replacement_parse(json, name, part, &added->replacement);
}

static tr_status read_precompiled(step *added, const json_t *json, const char *name) {
  tr__piece_text base64;
  TR_TRY(tr__part_string(json, name, part, "precompiled_charsmap", &base64));
  return tr__charsmap_parse(base64.data, base64.nbyte, name, &added->charsmap);
}

static tr_status add_step(tr__normalizer *self, const char *name, const step *prototype, step **out) {
  if (self->nstep == STEPS_MAX)
    return tr_error(TR_ERR_DATA, "%s: a normalizer has more than %d steps", name, STEPS_MAX);
  self->step[self->nstep] = *prototype;
  *out = &self->step[self->nstep++];
  return TR_OK;
}

// Accents are stripped where letters are made small, unless the file says otherwise.
static tr_status read_bert(tr__normalizer *self, const json_t *json, const char *name, int depth) {
  (void)depth;
  int clean = 1, chinese = 1, lowercase = 1;
  TR_TRY(tr_json_get_bool(json, name, "clean_text", 0, &clean));
  TR_TRY(tr_json_get_bool(json, name, "handle_chinese_chars", 0, &chinese));
  TR_TRY(tr_json_get_bool(json, name, "lowercase", 0, &lowercase));
  int accents = lowercase;
  TR_TRY(tr_json_get_bool(json, name, "strip_accents", 0, &accents));
  const struct {
    int wanted;
    step step;
  } all[] = {
      {clean, {.apply = apply_map, .map = map_bert_clean}},
      {chinese, {.apply = apply_map, .map = map_bert_chinese}},
      {accents, {.apply = apply_form, .form = 0}},
      {accents, {.apply = apply_map, .map = map_bert_accents}},
      {lowercase, {.apply = apply_map, .map = map_lowercase}},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    step *added;
    if (all[i].wanted) TR_TRY(add_step(self, name, &all[i].step, &added));
  }
  return TR_OK;
}

static tr_status read_any(tr__normalizer *self, const json_t *json, const char *name, int depth);

static tr_status read_sequence(tr__normalizer *self, const json_t *json, const char *name, int depth) {
  const json_t *members = json_object_get(json, "normalizers");
  if (!json_is_array(members) || depth == TR__PART_DEPTH)
    return tr_error(TR_ERR_DATA, "%s: a normalizer \"Sequence\" has no list \"normalizers\", or lies deeper than %d",
                    name, TR__PART_DEPTH);
  size_t i;
  json_t *member;
  json_array_foreach(members, i, member) TR_TRY(read_any(self, member, name, depth + 1));
  return TR_OK;
}

typedef struct kind {
  const char *type, *fields;
  step prototype;                                                       // one step,
  tr_status (*read)(step *added, const json_t *json, const char *name); // with settings (NULL: none),
  tr_status (*expand)(tr__normalizer *self, const json_t *json, const char *name, int depth); // or several
} kind;

// clang-format off
static const kind kinds[] = {
    {"NFD", "", {.apply = apply_form, .form = 0}, NULL, NULL},
    {"NFC", "", {.apply = apply_form, .form = TR__FORM_COMPOSE}, NULL, NULL},
    {"NFKD", "", {.apply = apply_form, .form = TR__FORM_COMPAT}, NULL, NULL},
    {"NFKC", "", {.apply = apply_form, .form = TR__FORM_COMPAT | TR__FORM_COMPOSE}, NULL, NULL},
    {"Lowercase", "", {.apply = apply_map, .map = map_lowercase}, NULL, NULL},
    {"StripAccents", "", {.apply = apply_map, .map = map_strip_accents}, NULL, NULL},
    {"Nmt", "", {.apply = apply_map, .map = map_nmt}, NULL, NULL},
    {"ByteLevel", "", {.apply = apply_byte_level}, NULL, NULL},
    {"Strip", "strip_left strip_right", {.apply = apply_strip}, read_strip, NULL},
    {"Prepend", "prepend", {.apply = apply_prepend}, read_prepend, NULL},
    {"Replace", "pattern content", {.apply = apply_replace}, read_replace, NULL},
    {"Precompiled", "precompiled_charsmap", {.apply = apply_charsmap}, read_precompiled, NULL},
    {"BertNormalizer", "clean_text handle_chinese_chars strip_accents lowercase", {0}, NULL, read_bert},
    {"Sequence", "normalizers", {0}, NULL, read_sequence},
};
// clang-format on

static tr_status read_any(tr__normalizer *self, const json_t *json, const char *name, int depth) {
  const char *type = NULL;
  TR_TRY(tr__part_type(json, name, part, &type));
  for (const kind *row = kinds; row < kinds + sizeof kinds / sizeof *kinds; row++) {
    if (strcmp(type, row->type) != 0) continue;
    TR_TRY(tr__part_fields(json, name, part, row->fields));
    if (row->expand) return row->expand(self, json, name, depth);
    step *added = NULL;
    TR_TRY(add_step(self, name, &row->prototype, &added));
    return row->read ? row->read(added, json, name) : TR_OK;
  }
  return tr_error(TR_ERR_DATA, "%s: normalizer \"%s\" is not known", name, type);
}

tr_status tr__normalizer_parse(const json_t *json, const char *name, tr__normalizer **out) {
  *out = NULL;
  if (!json || json_is_null(json)) return TR_OK;
  tr__normalizer *self = calloc(1, sizeof *self);
  if (!self) return tr_error(TR_ERR_MEMORY, "no memory for a normalizer");
  tr_status status = read_any(self, json, name, 0);
  if (status < 0) {
    tr__normalizer_free(self);
    return status;
  }
  *out = self;
  return TR_OK;
}

void tr__normalizer_free(tr__normalizer *normalizer) {
  if (!normalizer) return;
  for (size_t i = 0; i < normalizer->nstep; i++) {
    step *own = &normalizer->step[i];
    free(own->content);
    tr__replacement_free(&own->replacement);
    tr__charsmap_free(own->charsmap);
  }
  free(normalizer);
}

tr_status tr__normalize(const tr__normalizer *normalizer, const char *text, size_t nbyte, tr_text *out) {
  size_t nstep = normalizer ? normalizer->nstep : 0, now = nbyte;
  tr_text between[2] = {{0}, {0}};
  tr_status status = TR_OK;
  const char *from = text;
  if (nstep == 0) tr_text_append_bytes(out, text, nbyte);
  for (size_t i = 0; i < nstep && status == TR_OK; i++) {
    const step *self = &normalizer->step[i];
    tr_text *to = i + 1 < nstep ? &between[i % 2] : out;
    size_t start = to == out ? out->size : 0;
    to->size = start;
    status = self->apply(self, from, now, to);
    if (status == TR_OK && to->failed) status = TR_ERR_MEMORY;
    now = to->size - start;
    from = to->data ? to->data + start : "";
    if (status == TR_OK) status = tr__check_growth(nbyte, now);
  }
  tr_text_free(&between[0]);
  tr_text_free(&between[1]);
  return out->failed ? TR_ERR_MEMORY : status;
}
