// SPDX-License-Identifier: MIT
// What a source needs to know about a tokenizer beyond the public functions: how far apart its tokens are
// in a file. Not for other modules.
#ifndef TRIREME_DATA_TOKENIZER_INTERNAL_H
#define TRIREME_DATA_TOKENIZER_INTERNAL_H

#include "trireme/data/data.h"

size_t tr__tokenizer_unit(const tr_tokenizer *tokenizer); // bytes per token

#endif
