// SPDX-License-Identifier: MIT
// Reading JSON that somebody else wrote, with jansson: typed look-ups whose errors name the file and the key.
#ifndef TRIREME_BASE_JSON_H
#define TRIREME_BASE_JSON_H

#include "trireme/base/status.h"
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

// Parse text of at most `limit` bytes; duplicate keys are refused; depth is bounded by jansson (2048).
tr_status tr_json_parse(const char *text, size_t nbyte, const char *name, json_t **out);
tr_status tr_json_load(const char *path, size_t limit, json_t **out);
// Typed members of an object. `required` 0: leaves *out as it is when the key is absent or null.
tr_status tr_json_get_int(const json_t *object, const char *name, const char *key, int required, int64_t *out);
tr_status tr_json_get_real(const json_t *object, const char *name, const char *key, int required, double *out);
tr_status tr_json_get_bool(const json_t *object, const char *name, const char *key, int required, int *out);
tr_status tr_json_get_string(const json_t *object, const char *name, const char *key, int required, const char **out);

#endif
