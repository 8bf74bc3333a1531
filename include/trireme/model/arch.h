// SPDX-License-Identifier: MIT
// Architectures by name: one description of any model that the library can build, from config.json or a preset, and
// back. Whoever handles models of any kind (training, conversion, inspection) goes through here and never asks which
// family it is.
#ifndef TRIREME_MODEL_ARCH_H
#define TRIREME_MODEL_ARCH_H

#include "trireme/model/gpt2.h"
#include "trireme/model/llama.h"

typedef enum tr_arch_kind { TR_ARCH_GPT2, TR_ARCH_LLAMA } tr_arch_kind;

typedef struct tr_arch {
  tr_arch_kind kind;
  union {
    tr_gpt2_config gpt2;
    tr_llama_config llama;
  };
} tr_arch;

// What every architecture has.
typedef struct tr_arch_sizes {
  const char *name; // "gpt2", "llama", "mistral", "qwen2", "qwen3"
  int64_t layers, width, heads, heads_kv, head_dim, ffn, vocab, positions;
  int tied;
} tr_arch_sizes;
tr_arch_sizes tr_arch_sizes_of(const tr_arch *arch);

tr_status tr_arch_check(const tr_arch *arch);
tr_status tr_arch_create(const tr_arch *arch, tr_model **out); // finished; tr_model_destroy

// Which architecture a config.json (parsed) describes: by model_type. Unknown ones are TR_ERR_CKPT with the list of
// known ones; fields nobody knows are refused by name, with those that only concern other programs ignored; auto_map
// (code to be run by other programs) is never followed, and refused unless the architecture is known without it.
tr_status tr_arch_from_json(const json_t *json, const char *name, tr_arch *out);
tr_status tr_arch_to_json(const tr_arch *arch, const char *dtype, char **text); // the caller frees the text

// The text of a config.json for a model that comes from another one: `own_text` (from tr_arch_to_json), and behind it the
// fields of the original file that only concern other programs and that own_text does not have (eos_token_id,
// transformers_version, ...). What the model computes is said by own_text alone; auto_map and what is true of the original
// file only are left out. The caller frees *out. TR_ERR_IO, TR_ERR_DATA (not a JSON object), TR_ERR_MEMORY.
tr_status tr_config_text_merge(const char *original_path, const char *own_text, char **out);

// From a file: a config.json, a folder that holds one, or the name of a preset (presets/models/NAME.json, looked for
// in $TRIREME_PRESETS, ./presets, and beside the running program: ../presets, ../share/trireme/presets). `path` (may be
// NULL, room for nbyte) gets the file that was read. TR_ERR_CONFIG with "did you mean" when there is no such thing.
tr_status tr_arch_load(const char *name, tr_arch *out, char *path, size_t nbyte);
// The file alone, which the caller reads: for descriptions of what the library does not build.
tr_status tr_arch_find(const char *name, char *path, size_t nbyte);

// Whether two descriptions differ in what changes shapes or mathematics; writes what differs, each with both values,
// as "model.layers is 12, the checkpoint has 6; ..." ("" when nothing does). Dropout does not count.
void tr_arch_compare(const tr_arch *own, const tr_arch *saved, tr_text *out);

#endif
