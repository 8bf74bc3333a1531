// SPDX-License-Identifier: MIT
// Post-processors: the special tokens that stand before and after a sequence.
//
// All of them come down to two lists of numbers. In a "Sequence" only one part may add tokens: the `tokenizers` library
// fails on most others. Pairs of sequences are not a thing of training on text; their templates are passed over.
#include "token/part_internal.h"
#include <stdlib.h>
#include <string.h>

enum { SIDE_MAX = 1024 }; // tokens on one side

static const char part[] = "post_processor"; // in messages

// Put `number` at the front of a list, or at its back.
static tr_status put(int32_t **list, size_t *n, const json_t *number, int front, const char *name) {
  json_int_t value = json_integer_value(number);
  if (!json_is_integer(number) || value < 0 || value > INT32_MAX || *n == SIDE_MAX)
    return tr_error(TR_ERR_DATA, "%s: a %s has a token that is no number from 0 to %d, or more than %d tokens", name,
                    part, INT32_MAX, SIDE_MAX);
  int32_t *grown = realloc(*list, (*n + 1) * sizeof *grown);
  if (!grown) return tr_error(TR_ERR_MEMORY, "no memory for a template");
  *list = grown;
  if (front) memmove(grown + 1, grown, *n * sizeof *grown);
  grown[front ? 0 : *n] = (int32_t)value;
  ++*n;
  return TR_OK;
}

// The numbers of {"SpecialToken": {"id": TEXT}} by way of "special_tokens": {TEXT: {"ids": [...]}}.
static tr_status special_numbers(const json_t *json, const json_t *piece, const char *name, const json_t **ids) {
  const char *text = json_string_value(json_object_get(json_object_get(piece, "SpecialToken"), "id"));
  if (!text) return tr_error(TR_ERR_DATA, "%s: a piece of a template is neither a Sequence nor a SpecialToken", name);
  *ids = json_object_get(json_object_get(json_object_get(json, "special_tokens"), text), "ids");
  if (!json_is_array(*ids))
    return tr_error(TR_ERR_DATA, "%s: the template's \"special_tokens\" have no \"ids\" for \"%s\"", name, text);
  return TR_OK;
}

static tr_status put_piece(const json_t *ids, int front, const char *name, tr__template *out) {
  size_t n = json_array_size(ids);
  for (size_t i = 0; i < n; i++) {
    const json_t *number = json_array_get(ids, front ? n - 1 - i : i);
    TR_TRY(front ? put(&out->before, &out->nbefore, number, 1, name)
                 : put(&out->after, &out->nafter, number, 0, name));
  }
  return TR_OK;
}

static int is_sequence(const json_t *piece) { return json_object_get(piece, "Sequence") != NULL; }

static tr_status read_template(const json_t *json, const char *name, int depth, tr__template *out) {
  (void)depth;
  const json_t *single = json_object_get(json, "single"), *ids = NULL;
  size_t n = json_array_size(single), sequence = n;
  for (size_t i = 0; i < n; i++) {
    const json_t *piece = json_array_get(single, i);
    if (!is_sequence(piece)) continue;
    const char *id = json_string_value(json_object_get(json_object_get(piece, "Sequence"), "id"));
    if (sequence < n || !id || strcmp(id, "A") != 0)
      return tr_error(TR_ERR_DATA, "%s: the template \"single\" holds other sequences than one \"A\"", name);
    sequence = i;
  }
  if (sequence == n)
    return tr_error(TR_ERR_DATA, "%s: the template \"single\" is no list that holds a Sequence", name);
  for (size_t i = sequence; i-- > 0;) {
    TR_TRY(special_numbers(json, json_array_get(single, i), name, &ids));
    TR_TRY(put_piece(ids, 1, name, out));
  }
  for (size_t i = sequence + 1; i < n; i++) {
    TR_TRY(special_numbers(json, json_array_get(single, i), name, &ids));
    TR_TRY(put_piece(ids, 0, name, out));
  }
  return TR_OK;
}

// BERT and RoBERTa: "cls" before and "sep" after, each [text, number].
static tr_status read_pair_of_tokens(const json_t *json, const char *name, int depth, tr__template *out) {
  (void)depth;
  TR_TRY(put(&out->before, &out->nbefore, json_array_get(json_object_get(json, "cls"), 1), 1, name));
  return put(&out->after, &out->nafter, json_array_get(json_object_get(json, "sep"), 1), 0, name);
}

static tr_status read_nothing(const json_t *json, const char *name, int depth, tr__template *out) {
  (void)json, (void)name, (void)depth, (void)out;
  return TR_OK;
}

static tr_status read_any(const json_t *json, const char *name, int depth, tr__template *out);

static tr_status read_sequence(const json_t *json, const char *name, int depth, tr__template *out) {
  const json_t *members = json_object_get(json, "processors");
  if (!json_is_array(members) || depth == TR__PART_DEPTH)
    return tr_error(TR_ERR_DATA, "%s: a %s \"Sequence\" has no list \"processors\", or lies deeper than %d", name,
                    part, TR__PART_DEPTH);
  size_t i;
  json_t *member;
  json_array_foreach(members, i, member) TR_TRY(read_any(member, name, depth + 1, out));
  return TR_OK;
}

static const struct {
  const char *type, *fields;
  tr_status (*read)(const json_t *json, const char *name, int depth, tr__template *out);
} kinds[] = {
    {"TemplateProcessing", "single pair special_tokens", read_template},
    {"RobertaProcessing", "sep cls trim_offsets add_prefix_space", read_pair_of_tokens},
    {"BertProcessing", "sep cls", read_pair_of_tokens},
    {"ByteLevel", "add_prefix_space trim_offsets use_regex", read_nothing}, // concerns offsets only
    {"Sequence", "processors", read_sequence},
};

static tr_status read_any(const json_t *json, const char *name, int depth, tr__template *out) {
  const char *type = NULL;
  TR_TRY(tr__part_type(json, name, part, &type));
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (strcmp(type, kinds[i].type) != 0) continue;
    TR_TRY(tr__part_fields(json, name, part, kinds[i].fields));
    if (out->nbefore + out->nafter > 0 && kinds[i].read != read_nothing)
      return tr_error(TR_ERR_DATA, "%s: a %s \"Sequence\" has more than one part that adds tokens", name, part);
    return kinds[i].read(json, name, depth, out);
  }
  return tr_error(TR_ERR_DATA, "%s: %s \"%s\" is not known", name, part, type);
}

tr_status tr__template_parse(const json_t *json, const char *name, tr__template *out) {
  *out = (tr__template){0};
  if (!json || json_is_null(json)) return TR_OK;
  tr_status status = read_any(json, name, 0, out);
  if (status < 0) tr__template_free(out);
  return status;
}

void tr__template_free(tr__template *template) {
  free(template->before);
  free(template->after);
  *template = (tr__template){0};
}
