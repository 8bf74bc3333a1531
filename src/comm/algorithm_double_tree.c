// SPDX-License-Identifier: MIT
// Double tree: two binary trees over the ranks, each for half of the message; who is inside one is a leaf of the other.
//
// The first tree is the in-order binary tree over 0 .. P-1 under rank 0: a rank whose lowest set bit is b has the children
// i - b/2 and i + b/2, the latter nearer where the group ends before it. Odd ranks are leaves. The second tree is the same
// over the ranks in reverse order, or, for odd P, moved on by one: there even ranks are leaves.
//
//   all-reduce   sums go up each tree, the result comes down again
//   broadcast    the root hands each tree's root its half, which goes down
//
//                messages     bytes sent   cost, n long and in strands
//   all-reduce   at most 6    at most 3 n  4 lg P alpha + 2 n beta + n gamma
//   broadcast    at most 4    at most 2 n  2 lg P alpha + n beta
//
// As few rounds as trees have and, since every rank's links are busy both ways, nearly the fewest bytes. Sums are in the order
// of the trees, so only where any order will do. Sanders, Speck, Traeff, Two-tree algorithms for full bandwidth broadcast,
// reduction and scan, 2009.
#include "algorithm.h"

typedef struct node {
  int parent, child[2], children; // group indices; parent -1: the root of this tree
} node;

// Children of i in the in-order tree; how many.
static int children(int size, int i, int child[2]) {
  int n = 0, reach = i ? (i & -i) / 2 : 1;
  if (i == 0)
    while (2 * reach < size) reach *= 2;
  else if (reach)
    child[n++] = i - reach;
  while (reach && i + reach >= size) reach /= 2;
  if (reach) child[n++] = i + reach;
  return n;
}

static int place_of(int size, int tree, int rank) {
  if (tree == 0) return rank;
  return size % 2 ? (rank + 1) % size : size - 1 - rank;
}
static int rank_of(int size, int tree, int place) {
  if (tree == 0) return place;
  return size % 2 ? (place + size - 1) % size : size - 1 - place;
}

static node node_of(int size, int tree, int rank) {
  int at = place_of(size, tree, rank), child[2];
  node out = {.parent = -1};
  out.children = children(size, at, child);
  for (int i = 0; i < out.children; i++) out.child[i] = rank_of(size, tree, child[i]);
  for (int p = 0; p < size; p++)
    for (int i = children(size, p, child); i-- > 0;)
      if (child[i] == at) out.parent = rank_of(size, tree, p);
  return out;
}

// Down both trees; in a broadcast the root begins by handing each half to the top of its tree, and is left out below.
static void spread(tr__script *s, const node tree[2], int summed) {
  int root = summed ? -1 : s->root, arrival[2] = {-1, -1};
  for (int t = 0; t < 2; t++) {
    int top = rank_of(s->size, t, 0), from = s->index == top && root >= 0 ? root : tree[t].parent;
    if (from >= 0 && s->index != root) arrival[t] = tr__script_recv(s, from, tr__run_of(TR__DEST, t, 1));
  }
  for (int t = 0; t < 2; t++) {
    int top = rank_of(s->size, t, 0);
    tr__run half = tr__run_of(TR__DEST, t, 1);
    if (s->index == root && top != root) tr__script_send(s, top, half);
    if (arrival[t] >= 0) tr__script_wait(s, arrival[t], 1);
    for (int i = 0; i < tree[t].children; i++)
      if (tree[t].child[i] != root) tr__script_send(s, tree[t].child[i], half);
  }
}

static void build(tr__script *s) {
  int arrival[2][2], in[2][2], up = s->kind == TR__ALLREDUCE;
  node tree[2];
  s->parts = 2;
  for (int t = 0; t < 2; t++) {
    tree[t] = node_of(s->size, t, s->index);
    for (int i = 0; up && i < tree[t].children; i++) {
      in[t][i] = tr__script_register(s, t, 1, 1, 0);
      arrival[t][i] = tr__script_recv(s, tree[t].child[i], tr__run_of(in[t][i], t, 1));
    }
  }
  for (int t = 0; up && t < 2; t++) {
    int top = tree[t].parent < 0, home = tree[t].children ? 0 : TR__SOURCE; // a leaf sends what it has
    tr__run sum = tr__run_of(tr__script_register(s, t, 1, 1, home), t, 1), mine = tr__run_of(TR__SOURCE, t, 1);
    if (!tree[t].children) tr__script_copy(s, sum, mine);
    for (int i = 0; i < tree[t].children; i++) {
      int last = top && i == tree[t].children - 1;
      tr__script_wait(s, arrival[t][i], 1);
      tr__script_add(s, last ? tr__run_of(TR__DEST, t, 1) : sum, i ? sum : mine, tr__run_of(in[t][i], t, 1), last);
    }
    if (!top) tr__script_send(s, tree[t].parent, sum);
  }
  if (up) tr__script_wait_all(s); // in place: what went up lies where the result comes
  spread(s, tree, up);
}

static void claim(const tr__case *c, int index, tr__claim *out) {
  int up = c->kind == TR__ALLREDUCE;
  size_t half = tr__case_run(c, 2, 0, 1) * c->width, strand = half < TR__WIRE / 2 ? half : TR__WIRE / 2;
  *out = (tr__claim){0};
  for (int t = 0; t < 2; t++) {
    node n = node_of(c->size, t, index);
    size_t nelem = tr__case_run(c, 2, t, 1);
    uint64_t down = (uint64_t)n.children, rises = up && n.parent >= 0;
    for (int i = 0; !up && i < n.children; i++) down -= n.child[i] == c->root;
    down += !up && index == c->root && rank_of(c->size, t, 0) != c->root;
    out->messages += nelem ? down + rises : 0;
    out->bytes += (down * c->width + rises * c->wide) * nelem;
    out->sums += up ? (uint64_t)n.children * nelem : 0;
  }
  int depth = tr__log2_up(c->size);
  out->rounds = up ? 4 * depth : 2 * depth + 2;
  out->path_bytes = (uint64_t)(1 + up) * (2 * half + (uint64_t)depth * strand);
  out->path_sums = up ? 2 * (half + (uint64_t)depth * strand) : 0;
}

const tr__algorithm tr__algorithm_double_tree = {
    .name = "double-tree",
    .kinds = 1u << TR__ALLREDUCE | 1u << TR__BROADCAST,
    .pieces = 1,
    .build = build,
    .claim = claim,
};
