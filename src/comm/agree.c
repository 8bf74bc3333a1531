// SPDX-License-Identifier: MIT
// Calls that differ between ranks: who is to blame, in one sentence that is the same on every rank.
#include "agree_internal.h"
#include <stdio.h>

tr__call tr__call_of(const tr_request *r) {
  return (tr__call){
      .kind = (uint8_t)r->kind, .type = (uint8_t)r->type, .op = (uint8_t)r->op, .root = r->root, .nelem = r->nelem};
}

static void describe(const tr__call *c, char *out, size_t nbyte) {
  static const char *const ops[] = {"sum", "max", "average"};
  tr__kind kind = (tr__kind)c->kind;
  char count[32] = "", op[24] = "", root[24] = "";
  if (kind != TR__ALLTOALL_V) snprintf(count, sizeof count, "%llu ", (unsigned long long)c->nelem);
  if (tr__kind_reduces(kind)) snprintf(op, sizeof op, ", %s", ops[c->op]);
  if (tr__kind_has_root(kind)) snprintf(root, sizeof root, ", root %d", c->root);
  snprintf(out, nbyte, "%s(%s%s%s%s)", tr__kind_name(kind), count, tr_dtype_name((tr_dtype)c->type), op, root);
}

// The call most ranks made is taken as meant; the first rank that made another one is to blame. Same on every rank.
static tr_status disagree(const tr_request *r, const tr__call *const *call) {
  tr_group *g = r->group;
  int meant = 0, most = 0, differs = 0;
  for (int i = 0; i < g->size; i++) {
    int same = 0;
    for (int j = 0; j < g->size; j++) same += tr__calls_equal(call[i], call[j]);
    if (same > most) meant = i, most = same;
  }
  while (tr__calls_equal(call[meant], call[differs])) differs++;
  char a[120], b[120];
  describe(call[differs], a, sizeof a);
  describe(call[meant], b, sizeof b);
  return tr__fail(g->comm, g->ranks[differs], TR_ERR_USAGE,
                  "operation #%u of group '%s' differs: rank %d called %s, rank %d called %s", r->seq - g->base + 1,
                  g->name, g->ranks[differs], a, g->ranks[meant], b);
}

tr_status tr__agree(const tr_request *r, const tr__call *const *call) {
  for (int i = 1; i < r->group->size; i++)
    if (!tr__calls_equal(call[0], call[i])) return disagree(r, call);
  return TR_OK;
}

tr_status tr__agree_count(const tr_request *r, int from, size_t sent) {
  const tr_group *g = r->group;
  size_t expected = r->dst_start[from + 1] - r->dst_start[from];
  if (sent == expected) return TR_OK;
  return tr__fail(
      g->comm, g->ranks[from], TR_ERR_USAGE,
      "operation #%u of group '%s' differs: in %s rank %d sends %zu elements to rank %d, which expects %zu",
      r->seq - g->base + 1, g->name, tr__kind_name(r->kind), g->ranks[from], sent, g->ranks[g->index], expected);
}
