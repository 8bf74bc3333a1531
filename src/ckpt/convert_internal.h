// SPDX-License-Identifier: MIT
// What the two files of the conversion share: texts that go along.
#ifndef TRIREME_CKPT_CONVERT_INTERNAL_H
#define TRIREME_CKPT_CONVERT_INTERNAL_H

#include "trireme/ckpt/convert.h"

// A text file of at most 256 MB as a string that the caller frees. TR_ERR_CKPT when it holds a zero byte.
tr_status tr__convert_read_text(const char *folder, const char *name, char **text);
// The text of a config.json with the name of its number type changed, every other byte as it is; the caller frees it.
tr_status tr__convert_set_dtype(const char *config, const char *dtype, char **out);

#endif
