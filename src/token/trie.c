// SPDX-License-Identifier: MIT
// Building the trie of trie_internal.h from a vocabulary.
//
// The texts are sorted; a node is then a range of neighbours that agree in their first `depth` bytes. Ranges are worked off
// level by level, each split by its next byte, so one queue of ranges is also the numbering of the nodes. A byte of a text
// is looked at once: O(bytes) after the sort, at most one node a byte.
#include "token/trie_internal.h"
#include <stdlib.h>

typedef struct text {
  const unsigned char *data;
  size_t nbyte;
  int32_t number;
} text;

typedef struct range {
  uint32_t begin, end; // of sorted texts
} range;

static int by_bytes(const void *a, const void *b) {
  const text *left = a, *right = b;
  size_t n = left->nbyte < right->nbyte ? left->nbyte : right->nbyte;
  int order = memcmp(left->data, right->data, n);
  return order ? order : (left->nbyte > right->nbyte) - (left->nbyte < right->nbyte);
}

// The texts, sorted; *total is their bytes.
static tr_status collect(const tr__vocabulary *vocabulary, text **out, size_t *ntext, size_t *total) {
  int64_t limit = tr__vocabulary_limit(vocabulary);
  text *all = malloc((limit > 0 ? (size_t)limit : 1) * sizeof *all);
  if (!all) return tr_error(TR_ERR_MEMORY, "no memory for %lld pieces", (long long)limit);
  size_t n = 0;
  *total = 0;
  for (int64_t number = 0; number < limit; number++) {
    size_t nbyte = 0;
    const char *data = tr__vocabulary_text(vocabulary, (int32_t)number, &nbyte);
    if (!data || nbyte == 0) continue;
    all[n++] = (text){(const unsigned char *)data, nbyte, (int32_t)number};
    *total += nbyte;
  }
  qsort(all, n, sizeof *all, by_bytes);
  *out = all;
  *ntext = n;
  return TR_OK;
}

// Number the nodes, level by level; `queue` has room for all of them.
static void number_nodes(tr__trie *trie, const text *all, size_t ntext, range *queue) {
  uint32_t next = 1, level_end = 1;
  size_t depth = 0;
  queue[0] = (range){0, (uint32_t)ntext};
  for (uint32_t node = 0; node < next; node++) {
    if (node == level_end) {
      level_end = next;
      depth++;
    }
    uint32_t at = queue[node].begin, end = queue[node].end;
    trie->number[node] = -1;
    trie->first[node] = next;
    if (at < end && all[at].nbyte == depth) trie->number[node] = all[at++].number;
    while (at < end) {
      uint32_t begin = at;
      unsigned char byte = all[at].data[depth];
      while (at < end && all[at].data[depth] == byte) at++;
      trie->label[next] = byte;
      queue[next++] = (range){begin, at};
    }
  }
  trie->first[next] = next;
  trie->nnode = next;
  trie->longest = depth;
}

tr_status tr__trie_build(const tr__vocabulary *vocabulary, tr__trie *out) {
  text *all = NULL;
  size_t ntext = 0, total = 0;
  TR_TRY(collect(vocabulary, &all, &ntext, &total));
  tr_status status = TR_OK;
  range *queue = NULL;
  *out = (tr__trie){0};
  if (total >= UINT32_MAX - 2) {
    status = tr_error(TR_ERR_DATA, "a vocabulary of %zu bytes is larger than 4 GB", total);
    goto free_texts;
  }
  queue = malloc((total + 1) * sizeof *queue);
  out->first = malloc((total + 2) * sizeof *out->first);
  out->label = malloc(total + 1);
  out->number = malloc((total + 1) * sizeof *out->number);
  if (!queue || !out->first || !out->label || !out->number) {
    status = tr_error(TR_ERR_MEMORY, "no memory for a trie of up to %zu nodes", total + 1);
    tr__trie_free(out);
    goto free_texts;
  }
  out->label[0] = 0;
  number_nodes(out, all, ntext, queue);
free_texts:
  free(queue);
  free(all);
  return status;
}

void tr__trie_free(tr__trie *trie) {
  free(trie->first);
  free(trie->label);
  free(trie->number);
  *trie = (tr__trie){0};
}
