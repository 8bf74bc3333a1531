// SPDX-License-Identifier: MIT
// The index of a Megatron pair: checked whole when it is opened, because every offset in it leads into another file.
//
// Sequences usually lie one after the other, as the tools write them; then token t of the corpus is token t of the
// file. If not, a table gives where each begins. The index may change under its map, so what is read from it again
// later (the bounds of documents) is checked again.
#include "data/corpus_internal.h"

#include <stdlib.h>
#include <string.h>

static uint64_t word64(const unsigned char *bytes) {
  uint64_t out;
  memcpy(&out, bytes, sizeof out);
  return out;
}

static int64_t at64(const unsigned char *array, int64_t i) { return (int64_t)word64(array + 8 * i); }

static int32_t at32(const unsigned char *array, int64_t i) {
  int32_t out;
  memcpy(&out, array + 4 * i, sizeof out);
  return out;
}

static tr_status check_type(tr_corpus *corpus, int type) {
  const char *name = type == TR__TOKEN_U32 ? NULL : tr__token_type_name(type);
  if (!name) {
    return tr_error(TR_ERR_DATA, "%s: token type %d is unknown; 1 to 5 and 8 (u8 i8 i16 i32 i64 u16) would work",
                    corpus->idx.path, type);
  }
  if (tr__token_size((tr__token_type)type) == 0) {
    return tr_error(TR_ERR_DATA, "%s: its tokens are of type %s; u8, i8, i16, i32, i64 or u16 would work",
                    corpus->idx.path, name);
  }
  corpus->type = (tr__token_type)type;
  corpus->unit = tr__token_size(corpus->type);
  return TR_OK;
}

static tr_status check_header(tr_corpus *corpus) {
  const unsigned char *data = corpus->idx.map.data;
  const char *path = corpus->idx.path;
  size_t nbyte = corpus->idx.map.nbyte;
  if (nbyte < TR__MEGATRON_HEADER || memcmp(data, TR__MEGATRON_MAGIC, TR__MEGATRON_MAGIC_SIZE) != 0) {
    return tr_error(TR_ERR_DATA, "%s: is no Megatron index (it does not begin with MMIDIDX)", path);
  }
  uint64_t version = word64(data + 9), nsequence = word64(data + 18), nbound = word64(data + 26);
  if (version != 1) {
    return tr_error(TR_ERR_DATA, "%s: version %llu of the Megatron index is not known; version 1 would work", path,
                    (unsigned long long)version);
  }
  TR_TRY(check_type(corpus, data[17]));
  unsigned __int128 needed = TR__MEGATRON_HEADER + (unsigned __int128)nsequence * 12 + (unsigned __int128)nbound * 8;
  if (needed != nbyte && needed + nsequence != nbyte) {
    return tr_error(
        TR_ERR_DATA,
        "%s: %llu sequences and %llu bounds of documents do not make its size of %zu bytes; is it cut short?", path,
        (unsigned long long)nsequence, (unsigned long long)nbound, nbyte);
  }
  tr__megatron *m = &corpus->megatron;
  m->nsequence = (int64_t)nsequence;
  m->nbound = (int64_t)nbound;
  m->size = data + TR__MEGATRON_HEADER;
  m->byte = m->size + 4 * nsequence;
  m->bound = m->byte + 8 * nsequence;
  return TR_OK;
}

// A sequence of this many tokens at this byte lies in the token file.
static int lies_inside(const tr_corpus *corpus, int64_t size, int64_t byte) {
  int64_t unit = (int64_t)corpus->unit, nbyte = (int64_t)corpus->bin.map.nbyte;
  return size >= 0 && byte >= 0 && byte <= nbyte && byte % unit == 0 && size <= (nbyte - byte) / unit;
}

static tr_status check_sequences(tr_corpus *corpus, int *contiguous) {
  const tr__megatron *m = &corpus->megatron;
  int64_t total = 0, unit = (int64_t)corpus->unit, nbyte = (int64_t)corpus->bin.map.nbyte;
  *contiguous = 1;
  for (int64_t s = 0; s < m->nsequence; s++) {
    int64_t size = at32(m->size, s), byte = at64(m->byte, s);
    if (!lies_inside(corpus, size, byte)) {
      return tr_error(TR_ERR_DATA, "%s: sequence %lld of %lld tokens at byte %lld does not lie in %s of %lld bytes",
                      corpus->idx.path, (long long)s, (long long)size, (long long)byte, corpus->bin.path,
                      (long long)nbyte);
    }
    if (size > 0 && byte != total * unit) *contiguous = 0;
    total += size;
    // Each token once at most. This also keeps the sum from running over.
    if (total > nbyte / unit) {
      return tr_error(TR_ERR_DATA, "%s: its sequences have more tokens than the %lld in %s; they overlap",
                      corpus->idx.path, (long long)(nbyte / unit), corpus->bin.path);
    }
  }
  if (*contiguous && total * unit != nbyte) {
    return tr_error(TR_ERR_DATA, "%s: describes %lld tokens, %s holds %lld; the two do not belong together",
                    corpus->idx.path, (long long)total, corpus->bin.path, (long long)(nbyte / unit));
  }
  corpus->tokens = total;
  return TR_OK;
}

static tr_status check_bounds(const tr_corpus *corpus) {
  const tr__megatron *m = &corpus->megatron;
  const char *path = corpus->idx.path;
  if (m->nbound < 2) {
    return tr_error(TR_ERR_DATA, "%s: has %lld bounds of documents; one document has two", path,
                    (long long)m->nbound);
  }
  if (at64(m->bound, 0) != 0 || at64(m->bound, m->nbound - 1) != m->nsequence) {
    return tr_error(TR_ERR_DATA, "%s: its documents are sequences %lld to %lld; there are 0 to %lld", path,
                    (long long)at64(m->bound, 0), (long long)at64(m->bound, m->nbound - 1), (long long)m->nsequence);
  }
  for (int64_t i = 1; i < m->nbound; i++) {
    if (at64(m->bound, i) < at64(m->bound, i - 1)) {
      return tr_error(TR_ERR_DATA, "%s: document %lld ends before it begins; the index is damaged", path,
                      (long long)(i - 1));
    }
  }
  return TR_OK;
}

static tr_status changed(const tr_corpus *corpus) {
  return tr_error(TR_ERR_DATA, "%s: changed while in use; start when its writer is done", corpus->idx.path);
}

static tr_status make_places(tr_corpus *corpus) {
  tr__megatron *m = &corpus->megatron;
  m->place = malloc((size_t)m->nsequence * 2 * sizeof *m->place);
  if (!m->place) {
    return tr_error(TR_ERR_MEMORY, "%s: no memory for where its %lld sequences are", corpus->idx.path,
                    (long long)m->nsequence);
  }
  int64_t total = 0;
  for (int64_t s = 0; s < m->nsequence; s++) {
    int64_t size = at32(m->size, s), byte = at64(m->byte, s);
    if (!lies_inside(corpus, size, byte)) return changed(corpus);
    m->place[2 * s] = total;
    m->place[2 * s + 1] = byte;
    total += size;
  }
  return total == corpus->tokens ? TR_OK : changed(corpus);
}

tr_status tr__megatron_open(tr_corpus *corpus) {
  int contiguous;
  TR_TRY(check_header(corpus));
  if (corpus->bin.map.nbyte % corpus->unit != 0) {
    return tr_error(TR_ERR_DATA, "%s: %zu bytes are no whole number of %s tokens", corpus->bin.path,
                    corpus->bin.map.nbyte, tr__token_type_name((int)corpus->type));
  }
  TR_TRY(check_sequences(corpus, &contiguous));
  TR_TRY(check_bounds(corpus));
  return contiguous ? TR_OK : make_places(corpus);
}

tr_status tr__megatron_index(tr_corpus *corpus) {
  const tr__megatron *m = &corpus->megatron;
  int64_t total = 0, bound = 0;
  int64_t *start = malloc((size_t)m->nbound * sizeof *start);
  if (!start) {
    return tr_error(TR_ERR_MEMORY, "%s: no memory for %lld documents", corpus->idx.path, (long long)m->nbound - 1);
  }
  int32_t least = 0;
  for (int64_t s = 0; s < m->nsequence; s++) {
    while (bound < m->nbound && at64(m->bound, bound) <= s) start[bound++] = total;
    int32_t size = at32(m->size, s);
    least = size < least ? size : least;
    total += size;
  }
  while (bound < m->nbound) start[bound++] = total;
  if (least < 0 || total != corpus->tokens) {
    free(start);
    return changed(corpus);
  }
  corpus->start = start;
  corpus->ndocument = m->nbound - 1;
  return TR_OK;
}

const unsigned char *tr__megatron_run(const tr_corpus *corpus, int64_t token, int64_t *count) {
  const int64_t *place = corpus->megatron.place;
  int64_t low = 0,
          high = corpus->megatron.nsequence; // the last sequence in low .. high - 1 that begins at or before it
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (place[2 * middle] <= token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  int64_t end = low + 1 < corpus->megatron.nsequence ? place[2 * (low + 1)] : corpus->tokens;
  *count = end - token;
  return corpus->bin.map.data + place[2 * low + 1] + (size_t)(token - place[2 * low]) * corpus->unit;
}
