// SPDX-License-Identifier: MIT
// The weights of a model from a folder: config.json and tensors as Hugging Face writes them, or as a checkpoint of our
// own does, in one file or several.
#ifndef TRIREME_CKPT_WEIGHTS_H
#define TRIREME_CKPT_WEIGHTS_H

#include "trireme/ckpt/tensors.h"
#include "trireme/shard/layout.h"

// Which tensor is which parameter: source[tr_model_params(model)]. Names count with and without the prefix of their
// family ("transformer.", "model."). TR_ERR_CKPT lists all that does not match at once: missing, unexpected and
// mis-shaped tensors. Passed over without complaint: what other programs store besides weights (masks, rotary
// frequencies), and the output head where it shares the embedding. `path` is for the message.
tr_status tr_weights_match(const tr_tensors *tensors, const char *path, const tr_model *model,
                           const tr_safetensors_entry **source);
// Match, then copy every parameter to its place in the layout as `type`; gaps become zero. Of a part of a model the whole
// one is matched. progress (may be NULL) is called between tensors. Errors as tr_weights_match and tr_tensors_open. Local.
tr_status tr_weights_load(const char *folder, const tr_model *model, const tr_layout *layout, tr_dtype type,
                          void *dst, void (*progress)(void *user), void *user);
// Whether a folder holds weights: model.safetensors, or an index of it.
int tr_weights_present(const char *folder);

#endif
