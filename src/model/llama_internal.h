// SPDX-License-Identifier: MIT
// Shared by what builds, reads, writes and compares descriptions of the Llama family: names of families and of kinds of
// rotary positions, and sizes that follow from others.
#ifndef TRIREME_MODEL_LLAMA_INTERNAL_H
#define TRIREME_MODEL_LLAMA_INTERNAL_H

#include "trireme/model/llama.h"

enum { TR__LLAMA_FAMILIES = 4, TR__ROPE_KINDS = 4 };
const char *tr__llama_family_name(int family); // as model_type
const char *tr__rope_kind_name(int kind);      // as rope_type

static inline int64_t tr__llama_heads_kv(const tr_llama_config *c) { return c->heads_kv ? c->heads_kv : c->heads; }
static inline int64_t tr__llama_head_dim(const tr_llama_config *c) {
  return c->head_dim ? c->head_dim : c->width / c->heads;
}

#endif
