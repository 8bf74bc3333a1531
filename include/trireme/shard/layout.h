// SPDX-License-Identifier: MIT
// One layout for everything that has the shape of the weights.
//
// A layout gives every parameter an element offset in one flat buffer: unit after unit, parameter after parameter,
// each starting on a multiple of 64 elements (128 bytes for two-byte types), the gaps zero for ever. Weights,
// gradients, master weights, moments and reduced sums all use the same offsets, whatever their element type, so that
// flat kernels, collectives over a range of units, and checkpoints speak of the same numbers. Pure data: built once
// from a model, immutable.
//
//   unit 0                                   unit 1
//   | wte ........ | pad | wpe .... | pad |  | ln_1.weight | pad | ln_1.bias | pad | ...
//   0                                        unit_start[1]
#ifndef TRIREME_SHARD_LAYOUT_H
#define TRIREME_SHARD_LAYOUT_H

#include "trireme/model/model.h"
#include "trireme/optim/optim.h"

enum { TR_LAYOUT_ALIGN = 64 }; // elements
// Units are cut into blocks of this many elements from their start (the last may be shorter). Blocks are what ranks own,
// and each has its own sum of squares, so that a gradient norm has the same bits whoever owns what.
enum { TR_LAYOUT_BLOCK = 8192 };

typedef struct tr_layout {
  int nunit, nparam;
  int64_t *unit_start;   // [nunit + 1]
  int64_t *param_offset; // [nparam]
  int64_t *param_count;  // [nparam]
  int64_t total;         // elements, padding included
  uint64_t hash;         // of all of the above: equal on all ranks of a job
} tr_layout;

tr_status tr_layout_build(const tr_model *model, tr_layout *out); // TR_ERR_MEMORY; the caller destroys *out
void tr_layout_destroy(tr_layout *layout);

int64_t tr_layout_blocks(const tr_layout *layout, int unit); // in units 0 .. unit - 1; unit == nunit: all
// The part of units [unit_begin, unit_end) that `rank` of `size` owns: a run of whole blocks, as even as blocks allow;
// element *first from the layout's start, *count elements (0 allowed). Runs of all ranks follow each other.
void tr_layout_own(const tr_layout *layout, int unit_begin, int unit_end, int size, int rank, int64_t *first,
                   int64_t *count);

// The optimizer segments of elements [first, first + count): one per parameter that intersects, start relative to
// first. Writes at most `capacity` and returns how many there are.
size_t tr_layout_segments(const tr_layout *layout, const tr_model *model, int64_t first, int64_t count,
                          tr_optim_segment *out, size_t capacity);

#endif
