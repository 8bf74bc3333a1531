// SPDX-License-Identifier: MIT
// JSON through jansson: parse with duplicates refused, typed look-ups with errors that name file, key and types.
//
// JSON has one kind of number, so 12.0 is taken where an integer is wanted and 12 where a real number
// is; 12.5 is not an integer. Nothing is guessed beyond that: the text "12" is not a number.
#include "trireme/base/json.h"
#include "trireme/base/file.h"
#include "trireme/base/text.h"
#include <math.h>
#include <stdlib.h>

static tr_status parse(const char *text, size_t nbyte, const char *name, size_t flags, json_t **out) {
  json_error_t error;
  const size_t mark = tr_text_mark(text, nbyte);
  json_t *root = json_loadb(text + mark, nbyte - mark, JSON_REJECT_DUPLICATES | flags, &error);
  if (!root) {
    enum json_error_code code = json_error_code(&error);
    int zero = code == json_error_null_character || code == json_error_null_byte_in_key;
    return tr_error(code == json_error_out_of_memory ? TR_ERR_MEMORY : TR_ERR_DATA, "%s:%d:%d: not valid JSON: %s",
                    name, error.line, error.column, zero ? "a zero byte in a string is not allowed" : error.text);
  }
  *out = root;
  return TR_OK;
}

tr_status tr_json_parse(const char *text, size_t nbyte, const char *name, json_t **out) {
  return parse(text, nbyte, name, 0, out);
}

tr_status tr_json_parse_with_zeros(const char *text, size_t nbyte, const char *name, json_t **out) {
  return parse(text, nbyte, name, JSON_ALLOW_NUL, out);
}

tr_status tr_json_load(const char *path, size_t limit, json_t **out) {
  char *text = NULL;
  size_t nbyte = 0;
  TR_TRY(tr_file_read(path, limit, &text, &nbyte));
  tr_status status = tr_json_parse(text, nbyte, path, out);
  free(text);
  return status;
}

static const char *type_name(const json_t *value) {
  if (!value) return "nothing";
  switch (json_typeof(value)) {
  case JSON_OBJECT: return "an object";
  case JSON_ARRAY: return "an array";
  case JSON_STRING: return "a string";
  case JSON_INTEGER: return "an integer";
  case JSON_REAL: return "a real number";
  case JSON_TRUE:
  case JSON_FALSE: return "a boolean";
  case JSON_NULL: return "null";
  }
  return "something unknown";
}

static tr_status wrong_type(const json_t *value, const char *name, const char *key, const char *wanted) {
  return tr_error(TR_ERR_DATA, "%s: key \"%s\" is %s, wanted %s", name, key, type_name(value), wanted);
}

// *found is NULL when the key may be absent and is.
static tr_status member(const json_t *object, const char *name, const char *key, int required, const char *wanted,
                        const json_t **found) {
  *found = NULL;
  if (!json_is_object(object))
    return tr_error(TR_ERR_DATA, "%s: found %s, wanted an object with the key \"%s\"", name, type_name(object), key);
  const json_t *value = json_object_get(object, key);
  if (!required && (!value || json_is_null(value))) return TR_OK;
  if (!value) return tr_error(TR_ERR_DATA, "%s: key \"%s\" is missing, wanted %s", name, key, wanted);
  *found = value;
  return TR_OK;
}

tr_status tr_json_get_int(const json_t *object, const char *name, const char *key, int required, int64_t *out) {
  const json_t *value;
  TR_TRY(member(object, name, key, required, "an integer", &value));
  if (!value) return TR_OK;
  double real = json_is_real(value) ? json_real_value(value) : 0.5;
  if (json_is_integer(value))
    *out = json_integer_value(value);
  else if (real == rint(real) && fabs(real) <= 0x1p53)
    *out = (int64_t)real;
  else
    return wrong_type(value, name, key, "an integer");
  return TR_OK;
}

tr_status tr_json_get_real(const json_t *object, const char *name, const char *key, int required, double *out) {
  const json_t *value;
  TR_TRY(member(object, name, key, required, "a number", &value));
  if (!value) return TR_OK;
  if (!json_is_number(value)) return wrong_type(value, name, key, "a number");
  *out = json_number_value(value);
  return TR_OK;
}

tr_status tr_json_get_bool(const json_t *object, const char *name, const char *key, int required, int *out) {
  const json_t *value;
  TR_TRY(member(object, name, key, required, "a boolean", &value));
  if (!value) return TR_OK;
  if (!json_is_boolean(value)) return wrong_type(value, name, key, "a boolean");
  *out = json_is_true(value);
  return TR_OK;
}

tr_status tr_json_get_string(const json_t *object, const char *name, const char *key, int required,
                             const char **out) {
  const json_t *value;
  TR_TRY(member(object, name, key, required, "a string", &value));
  if (!value) return TR_OK;
  if (!json_is_string(value)) return wrong_type(value, name, key, "a string");
  *out = json_string_value(value);
  return TR_OK;
}
