// SPDX-License-Identifier: MIT
// Which tokens a sample holds.
//
//   stream     n tokens are n - 1 pairs (token, next token); sample w is the pairs from w * sequence on, so each pair is in
//              one sample, and samples overlap by the one token that is the last target of one and starts the next
//   documents  each document is cut so, into pieces; a piece is a sample
//   first fit  pieces are put together into samples of at most `sequence` pairs, longest first, each into the first sample
//              with room (first-fit decreasing; Johnson et al., "Worst-case performance bounds for simple one-dimensional
//              packing algorithms", 1974: at most 11/9 of the fewest samples possible, and in practice hardly any waste)
//
// The first sample with room is found in a tree over samples that keeps the most room below each node, so packing takes
// n log n steps. Tables have one entry per document or piece, whatever the number of tokens.
#include "data/source_internal.h"

#include <stdlib.h>
#include <string.h>

enum { RADIX_BITS = 11, RADIX = 1 << RADIX_BITS };

static tr_status no_memory(const tr__part *part) {
  return tr_error(TR_ERR_MEMORY, "%s: no memory for packing %lld documents", tr_corpus_path(part->corpus),
                  (long long)(part->end - part->first));
}

static int64_t samples_of(int64_t pairs, int64_t sequence) { return pairs > 0 ? (pairs - 1) / sequence + 1 : 0; }

// Tokens of the stream that start a document, but for its first: nothing predicts them.
static int64_t inner_starts(const tr__part *part) {
  int64_t count = 0, last = part->first, ndocument = tr_corpus_documents(part->corpus);
  for (int64_t d = tr_corpus_document_of(part->corpus, part->first) + 1; d < ndocument; d++) {
    int64_t start = tr_corpus_document_start(part->corpus, d);
    if (start >= part->end) break;
    count += start > last; // empty documents start where the next one does
    last = start;
  }
  return count;
}

static tr__run piece_run(const tr__part *part, int64_t piece) {
  int64_t low = 0, high = part->end - part->first - 1; // the first document whose pieces end beyond `piece`
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (part->piece_end[middle] > piece) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  int64_t start = tr_corpus_document_start(part->corpus, part->first + low);
  int64_t pairs = tr_corpus_document_start(part->corpus, part->first + low + 1) - start - 1;
  int64_t done = (piece - (low > 0 ? part->piece_end[low - 1] : 0)) * part->sequence;
  return (tr__run){.first = start + done, .count = pairs - done < part->sequence ? pairs - done : part->sequence};
}

static tr_status cut_documents(tr__part *part) {
  int64_t ndocument = part->end - part->first;
  part->piece_end = malloc((size_t)(ndocument > 0 ? ndocument : 1) * sizeof *part->piece_end);
  if (!part->piece_end) return no_memory(part);
  for (int64_t d = 0; d < ndocument; d++) {
    int64_t pairs = tr_corpus_document_start(part->corpus, part->first + d + 1) -
                    tr_corpus_document_start(part->corpus, part->first + d) - 1;
    part->samples += samples_of(pairs, part->sequence);
    part->rows += pairs > 0 ? pairs : 0;
    part->piece_end[d] = part->samples;
  }
  return TR_OK;
}

// What first fit works on; all arrays have one entry per piece, but for `room`.
typedef struct fitting {
  int64_t npiece, leaves;
  int32_t *length, *order, *spare, *sample;
  int32_t *room; // [2 * leaves] a tree: node i has children 2i and 2i + 1; leaf `leaves + s` is the room in sample s
} fitting;

// Pieces by falling length, those of the same length in order: from the lowest digit of sequence - length to the highest.
static void sort_pieces(fitting *f, int64_t sequence) {
  for (int64_t i = 0; i < f->npiece; i++) f->order[i] = (int32_t)i;
  for (int shift = 0; sequence >> shift > 0; shift += RADIX_BITS) {
    int64_t place[RADIX + 1] = {0};
    for (int64_t i = 0; i < f->npiece; i++) place[((sequence - f->length[i]) >> shift & (RADIX - 1)) + 1]++;
    for (int digit = 0; digit < RADIX; digit++) place[digit + 1] += place[digit];
    for (int64_t i = 0; i < f->npiece; i++) {
      int32_t piece = f->order[i];
      f->spare[place[(sequence - f->length[piece]) >> shift & (RADIX - 1)]++] = piece;
    }
    int32_t *sorted = f->spare;
    f->spare = f->order;
    f->order = sorted;
  }
}

// Give every piece its sample; returns how many samples there are.
static int64_t fit_pieces(fitting *f, int64_t sequence) {
  int64_t samples = 0;
  for (int64_t node = 0; node < 2 * f->leaves; node++) f->room[node] = (int32_t)sequence;
  for (int64_t i = 0; i < f->npiece; i++) {
    int32_t piece = f->order[i], length = f->length[piece];
    int64_t node = 1;
    while (node < f->leaves) node = 2 * node + (f->room[2 * node] < length);
    f->sample[piece] = (int32_t)(node - f->leaves);
    if (f->sample[piece] >= samples) samples = f->sample[piece] + 1;
    f->room[node] -= length;
    while (node > 1) {
      node /= 2;
      int32_t left = f->room[2 * node], right = f->room[2 * node + 1];
      f->room[node] = left > right ? left : right;
    }
  }
  return samples;
}

// The pieces of each sample, in file order.
static tr_status list_pieces(tr__part *part, const fitting *f, int64_t samples) {
  part->piece_start = calloc((size_t)samples + 2, sizeof *part->piece_start);
  part->piece = malloc((size_t)f->npiece * sizeof *part->piece);
  if (!part->piece_start || !part->piece) return no_memory(part);
  int64_t *next = part->piece_start + 1; // while they are handed out, one place further on
  for (int64_t i = 0; i < f->npiece; i++) next[f->sample[i] + 1]++;
  for (int64_t s = 0; s < samples; s++) next[s + 1] += next[s];
  for (int64_t i = 0; i < f->npiece; i++) part->piece[next[f->sample[i]]++] = (int32_t)i;
  part->samples = samples;
  return TR_OK;
}

static tr_status first_fit(tr__part *part) {
  fitting f = {.npiece = part->samples, .leaves = 1};
  tr_status status;
  if (f.npiece > INT32_MAX) {
    return tr_error(TR_ERR_DATA, "%s: has more than %d documents, too many to pack; several files would work",
                    tr_corpus_path(part->corpus), INT32_MAX);
  }
  // Of two samples, the pieces of the later one did not fit into the earlier: together they are more than one sample.
  int64_t most = 2 * (part->rows / part->sequence) + 3;
  while (f.leaves < most && f.leaves < f.npiece) f.leaves *= 2;
  size_t count = (size_t)(f.npiece > 0 ? f.npiece : 1);
  f.length = malloc(count * sizeof *f.length);
  f.order = malloc(count * sizeof *f.order);
  f.spare = malloc(count * sizeof *f.spare);
  f.sample = malloc(count * sizeof *f.sample);
  f.room = malloc((size_t)f.leaves * 2 * sizeof *f.room);
  if (!f.length || !f.order || !f.spare || !f.sample || !f.room) {
    status = no_memory(part);
    goto free_arrays;
  }
  for (int64_t i = 0; i < f.npiece; i++) f.length[i] = (int32_t)piece_run(part, i).count;
  sort_pieces(&f, part->sequence);
  status = list_pieces(part, &f, fit_pieces(&f, part->sequence));
free_arrays:
  free(f.room);
  free(f.sample);
  free(f.spare);
  free(f.order);
  free(f.length);
  return status;
}

tr_status tr__part_pack(tr__part *part, tr_packing packing, int documents) {
  if (packing == TR_PACK_STREAM) {
    part->rows = part->tokens - 1;
    part->samples = samples_of(part->rows, part->sequence);
    part->targets = part->rows - (documents ? inner_starts(part) : 0);
    return TR_OK;
  }
  TR_TRY(cut_documents(part));
  part->targets = part->rows;
  return packing == TR_PACK_FIRST_FIT ? first_fit(part) : TR_OK;
}

void tr__part_free(tr__part *part) {
  free(part->piece_end);
  free(part->piece);
  free(part->piece_start);
}

int64_t tr__part_runs(const tr__part *part, int64_t sample) {
  return part->piece ? part->piece_start[sample + 1] - part->piece_start[sample] : 1;
}

tr__run tr__part_run(const tr__part *part, int64_t sample, int64_t i) {
  if (part->piece) return piece_run(part, part->piece[part->piece_start[sample] + i]);
  if (part->piece_end) return piece_run(part, sample);
  int64_t done = sample * part->sequence, left = part->rows - done;
  return (tr__run){.first = part->first + done, .count = left < part->sequence ? left : part->sequence};
}

int64_t tr__part_length(const tr__part *part, int64_t sample) {
  int64_t rows = 0, nrun = tr__part_runs(part, sample);
  for (int64_t i = 0; i < nrun; i++) rows += tr__part_run(part, sample, i).count;
  return rows;
}
