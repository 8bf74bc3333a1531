// SPDX-License-Identifier: MIT
// Reading JSON that somebody else wrote, with jansson: typed look-ups whose errors name the file and the key.
#ifndef TRIREME_BASE_JSON_H
#define TRIREME_BASE_JSON_H

#include "trireme/base/status.h"
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

// Parse a text, or a file of at most `limit` bytes; `name` is the file, for messages. Duplicate keys are refused;
// depth is bounded by jansson (2048). TR_ERR_DATA names file and place; TR_ERR_IO when the file cannot be read. The
// caller releases *out with json_decref.
tr_status tr_json_parse(const char *text, size_t nbyte, const char *name, json_t **out);
// The same, but values (not keys) may hold zero bytes: use json_string_length.
tr_status tr_json_parse_with_zeros(const char *text, size_t nbyte, const char *name, json_t **out);
tr_status tr_json_load(const char *path, size_t limit, json_t **out);
// Typed members of an object; TR_ERR_DATA names file, key and type. `required` 0: *out is left as it is when the key
// is absent or null. A string belongs to the object.
tr_status tr_json_get_int(const json_t *object, const char *name, const char *key, int required, int64_t *out);
tr_status tr_json_get_real(const json_t *object, const char *name, const char *key, int required, double *out);
tr_status tr_json_get_bool(const json_t *object, const char *name, const char *key, int required, int *out);
tr_status tr_json_get_string(const json_t *object, const char *name, const char *key, int required, const char **out);

#endif
