// SPDX-License-Identifier: MIT
// Offsets of parameters in the flat buffer, in the order in which the model lists them within their units.
#include "trireme/shard/layout.h"
#include "trireme/base/file.h"
#include <stdlib.h>

static int64_t rounded(int64_t count) { return (count + TR_LAYOUT_ALIGN - 1) / TR_LAYOUT_ALIGN * TR_LAYOUT_ALIGN; }

static void place(const tr_model *model, tr_layout *layout) {
  int64_t at = 0;
  for (int unit = 0; unit < layout->nunit; unit++) {
    layout->unit_start[unit] = at;
    for (int i = 0; i < layout->nparam; i++) {
      const tr_param *param = tr_model_param(model, i);
      if (param->unit != unit) continue;
      layout->param_offset[i] = at;
      layout->param_count[i] = tr_shape_count(&param->shape);
      at += rounded(layout->param_count[i]);
    }
  }
  layout->unit_start[layout->nunit] = layout->total = at;
}

tr_status tr_layout_build(const tr_model *model, tr_layout *out) {
  tr_layout layout = {.nunit = tr_model_units(model), .nparam = tr_model_params(model)};
  layout.unit_start = calloc((size_t)layout.nunit + 1, sizeof(int64_t));
  layout.param_offset = calloc((size_t)layout.nparam + 1, sizeof(int64_t));
  layout.param_count = calloc((size_t)layout.nparam + 1, sizeof(int64_t));
  if (!layout.unit_start || !layout.param_offset || !layout.param_count) {
    tr_layout_destroy(&layout);
    return tr_error(TR_ERR_MEMORY, "no memory for the layout of model '%s'", tr_model_name(model));
  }
  place(model, &layout);
  layout.hash = tr_hash_bytes(layout.unit_start, sizeof(int64_t) * ((size_t)layout.nunit + 1)) ^
                3 * tr_hash_bytes(layout.param_offset, sizeof(int64_t) * (size_t)layout.nparam) ^
                5 * tr_hash_bytes(layout.param_count, sizeof(int64_t) * (size_t)layout.nparam);
  *out = layout;
  return TR_OK;
}

void tr_layout_destroy(tr_layout *layout) {
  free(layout->unit_start);
  free(layout->param_offset);
  free(layout->param_count);
  *layout = (tr_layout){0};
}

static int64_t blocks_of(const tr_layout *layout, int unit) {
  return (layout->unit_start[unit + 1] - layout->unit_start[unit] + TR_LAYOUT_BLOCK - 1) / TR_LAYOUT_BLOCK;
}

int64_t tr_layout_blocks(const tr_layout *layout, int unit) {
  int64_t n = 0;
  for (int u = 0; u < unit; u++) n += blocks_of(layout, u);
  return n;
}

// Element where block `block` of units [unit_begin, unit_end) starts; their end for the number of all blocks.
static int64_t block_start(const tr_layout *layout, int unit_begin, int unit_end, int64_t block) {
  for (int u = unit_begin; u < unit_end; u++) {
    int64_t n = blocks_of(layout, u);
    if (block < n) return layout->unit_start[u] + block * TR_LAYOUT_BLOCK;
    block -= n;
  }
  return layout->unit_start[unit_end];
}

void tr_layout_own(const tr_layout *layout, int unit_begin, int unit_end, int size, int rank, int64_t *first,
                   int64_t *count) {
  int64_t n = 0;
  for (int u = unit_begin; u < unit_end; u++) n += blocks_of(layout, u);
  *first = block_start(layout, unit_begin, unit_end, n * rank / size);
  *count = block_start(layout, unit_begin, unit_end, n * (rank + 1) / size) - *first;
}

size_t tr_layout_segments(const tr_layout *layout, const tr_model *model, int64_t first, int64_t count,
                          tr_optim_segment *out, size_t capacity) {
  size_t n = 0;
  for (int i = 0; i < layout->nparam; i++) {
    int64_t start = layout->param_offset[i], end = start + layout->param_count[i];
    if (start < first) start = first;
    if (end > first + count) end = first + count;
    if (start >= end) continue;
    if (n < capacity)
      out[n] = (tr_optim_segment){(size_t)(start - first), (size_t)(end - start), tr_model_param(model, i)->role};
    n++;
  }
  return n;
}
