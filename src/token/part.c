// SPDX-License-Identifier: MIT
// Reading the members that parts of a tokenizer.json have in common; see part_internal.h.
//
// Members that this library does not know are refused rather than passed over: they may decide numbers.
#include "token/part_internal.h"
#include "trireme/base/json.h"
#include <stdlib.h>
#include <string.h>

tr_status tr__part_type(const json_t *json, const char *name, const char *part, const char **type) {
  if (!json_is_object(json)) return tr_error(TR_ERR_DATA, "%s: a %s is no object with a \"type\"", name, part);
  const json_t *value = json_object_get(json, "type");
  if (!json_is_string(value)) return tr_error(TR_ERR_DATA, "%s: a %s has no \"type\" that is a string", name, part);
  *type = json_string_value(value);
  return TR_OK;
}

static int in_list(const char *word, const char *list) {
  size_t n = strlen(word);
  for (const char *at = list; *at; at += strcspn(at, " "), at += strspn(at, " "))
    if (strcspn(at, " ") == n && memcmp(at, word, n) == 0) return 1;
  return 0;
}

tr_status tr__part_fields(const json_t *json, const char *name, const char *part, const char *known) {
  const char *key;
  json_t *value;
  const char *type = json_string_value(json_object_get(json, "type"));
  json_object_foreach((json_t *)json, key, value) {
    if (strcmp(key, "type") != 0 && !in_list(key, known))
      return tr_error(TR_ERR_DATA, "%s: %s \"%s\" has the member \"%.100s\", which is not known (known: %s)", name,
                      part, type ? type : "", key, *known ? known : "none");
  }
  return TR_OK;
}

tr_status tr__part_string(const json_t *json, const char *name, const char *part, const char *key,
                          tr__piece_text *out) {
  const json_t *value = json_object_get(json, key);
  if (!json_is_string(value)) return tr_error(TR_ERR_DATA, "%s: %s: \"%s\" is no string", name, part, key);
  *out = (tr__piece_text){json_string_value(value), json_string_length(value)};
  return TR_OK;
}

tr_status tr__part_character(const json_t *json, const char *name, const char *part, const char *key,
                             tr__piece_text *out) {
  TR_TRY(tr__part_string(json, name, part, key, out));
  int32_t character;
  int n = tr__utf8_next(out->data, out->nbyte, &character);
  if (n == 0 || (size_t)n != out->nbyte)
    return tr_error(TR_ERR_DATA, "%s: %s: \"%s\" is not one character", name, part, key);
  return TR_OK;
}

char *tr__copy_bytes(const char *data, size_t nbyte) {
  char *copy = malloc(nbyte + 1);
  if (!copy) {
    (void)tr_error(TR_ERR_MEMORY, "no memory for %zu bytes of a tokenizer", nbyte);
    return NULL;
  }
  if (nbyte) memcpy(copy, data, nbyte);
  copy[nbyte] = '\0';
  return copy;
}
