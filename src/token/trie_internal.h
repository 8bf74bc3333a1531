// SPDX-License-Identifier: MIT
// A trie over the texts of a vocabulary, for finding all pieces that begin at a place of a text.
//
//   uint32_t node = tr__trie_root();
//   while (at < end && tr__trie_step(trie, &node, *at++)) if (trie->number[node] >= 0) ... // a piece ends here
#ifndef TRIREME_TOKEN_TRIE_INTERNAL_H
#define TRIREME_TOKEN_TRIE_INTERNAL_H

#include "token/token_internal.h"
#include <string.h>

// Nodes are numbered level by level, so the children of a node stand side by side in the order of their bytes, and where
// they end those of the next node begin:
//
//   children of n: first[n] .. first[n + 1] - 1, reached by the bytes label[first[n]] ..
typedef struct tr__trie {
  uint32_t *first;      // of every node and one more
  unsigned char *label; // the byte that leads to a node
  int32_t *number;      // of the piece that ends at a node, -1: none
  uint32_t nnode;
  size_t longest; // bytes of the longest piece
} tr__trie;

tr_status tr__trie_build(const tr__vocabulary *vocabulary, tr__trie *out); // empty texts are left out
void tr__trie_free(tr__trie *trie);

// The node below `*node` by this byte; 0: there is none.
static inline int tr__trie_step(const tr__trie *trie, uint32_t *node, unsigned char byte) {
  uint32_t first = trie->first[*node], n = trie->first[*node + 1] - first;
  const unsigned char *found = n ? memchr(trie->label + first, byte, n) : NULL;
  if (!found) return 0;
  *node = (uint32_t)(found - trie->label);
  return 1;
}

#endif
