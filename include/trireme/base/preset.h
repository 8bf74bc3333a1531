// SPDX-License-Identifier: MIT
// Presets: descriptions as data files that come with the library (models, devices, clusters), found by name in
// $TRIREME_PRESETS, ./presets, and beside the running program (../presets, ../share/trireme/presets). Nothing is fetched.
#ifndef TRIREME_BASE_PRESET_H
#define TRIREME_BASE_PRESET_H

#include "trireme/base/status.h"
#include <stddef.h>

// The file presets/FOLDER/NAME+SUFFIX; 1 when there is one and its path, cut to nbyte, is in `path`.
int tr_preset_find(const char *folder, const char *name, const char *suffix, char *path, size_t nbyte);
// The failure that there is none: "SENTENCE; did you mean 'x'?" (TR_ERR_CONFIG) with the closest name in that folder.
tr_status tr_preset_missing(const char *folder, const char *name, const char *suffix, const char *sentence);

// Names of all presets of a kind, each once, in alphabetical order; the caller frees those that are written, at most `most`.
// Returns how many.
size_t tr_preset_list(const char *folder, const char *suffix, char **name, size_t most);

#endif
