// SPDX-License-Identifier: MIT
// Shared by the architectures: checks of numbers in a description, and of the fields of a config.json.
#ifndef TRIREME_MODEL_CONFIG_INTERNAL_H
#define TRIREME_MODEL_CONFIG_INTERNAL_H

#include "trireme/base/status.h"
#include <jansson.h>
#include <stdint.h>

// TR_ERR_CONFIG naming model.FIELD unless least <= value <= most; unless `part` divides `whole`.
tr_status tr__config_range(const char *field, double value, double least, double most);
tr_status tr__config_divides(const char *part_field, int64_t part, const char *whole_field, int64_t whole);

// Every field of a config.json must be known: one of `known` (ends with NULL; what the reader looks at), or one that
// only concerns other programs. A null says nothing and passes. TR_ERR_CKPT names the field.
tr_status tr__config_fields(const json_t *json, const char *name, const char *const *known);
// A field that only concerns other programs and stays true when the model is trained on: eos_token_id, but not auto_map.
int tr__config_is_foreign(const char *field);
// A yes-or-no field that may be absent, but not have another value than this.
tr_status tr__config_fixed(const json_t *json, const char *name, const char *key, int value);

#endif
