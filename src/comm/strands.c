// SPDX-License-Identifier: MIT
// What a group keeps to run scripts, and how a call comes to its script: algorithm, strands, numbers.
//
// Which ranks share a host is found once, when the group is made; so are the groups that algorithms lean on, since making one
// waits for others. A call that was made before finds its script without looking at any algorithm.
#include "agree_internal.h"
#include "strands_internal.h"
#include <stdio.h>
#include <stdlib.h>

enum { STRAND_MOST = 8 << 20 }; // bytes of a strand's message, all ranks' blocks together

// ---- groups a group leans on --------------------------------------------------------------------

// Ranks per host where the members fill hosts in equal blocks, of which the last may be short; 1: in some other way; 0: all
// members are on one host.
static int ranks_per_host(const tr_group *g) {
  const tr_comm *comm = g->comm;
  int forced = comm->choice->forced.local, n = 1;
  if (forced) return forced < g->size ? forced : 0;
  while (n < g->size && tr_comm_host(comm, g->ranks[n]) == tr_comm_host(comm, g->ranks[0])) n++;
  if (n == g->size) return 0;
  for (int i = 1; i < g->size; i++) {
    int same = tr_comm_host(comm, g->ranks[i]) == tr_comm_host(comm, g->ranks[i - 1]);
    if (same != (i % n != 0)) return 1;
  }
  return n;
}

static tr_status create_local(tr_group *g, int local) {
  static const char *const use[TR__LOCALS] = {"reduce", "gather"};
  int first = g->index / local * local, n = g->size - first < local ? g->size - first : local;
  for (int what = 0; what < TR__LOCALS; what++) {
    char name[TR__NAME + 16];
    snprintf(name, sizeof name, "%s/%s", g->name, use[what]);
    TR_TRY(tr__group_create_plain(g->comm, g->ranks + first, n, name, &g->strands->local_group[what]));
  }
  return TR_OK;
}

static tr_status no_memory(const tr_group *g) {
  return tr_error(TR_ERR_MEMORY, "group '%s': no memory for its scripts", g->name);
}

tr_status tr__strands_create(tr_group *g) {
  int compares = g->engine == &tr__engine_mpi && g->comm->job->hosts.compare;
  tr__strands *all = calloc(1, sizeof *all);
  if (!all) return no_memory(g);
  g->strands = all;
  for (uint32_t l = 0; l < TR__LANES; l++) all->lane[l].number = l;
  all->local_size = ranks_per_host(g);
  if (compares) all->compare = tr__compare_create(g);
  tr_status status = compares && !all->compare ? no_memory(g) : TR_OK;
  if (g->engine->transport == &tr__transport_shm) {
    char name[TR__NAME + 16];
    snprintf(name, sizeof name, "%s/lanes", g->name);
    status = tr__group_create_plain(g->comm, g->ranks, g->size, name, &all->shadow);
  }
  if (status == TR_OK && all->local_size > 1) status = create_local(g, all->local_size);
  if (status < 0) tr__strands_destroy(g, 1);
  return status;
}

void tr__lane_free(tr__strand *s) {
  for (int side = 0; side < 2; side++) free(s->cut[side].at);
  free(s->flight);
  free(s->base);
  free(s->starts);
  free(s->scratch);
}

void tr__strands_destroy(tr_group *g, int leave) {
  tr__strands *all = g->strands;
  if (!all) return;
  tr_group *const leans_on[] = {all->shadow, all->local_group[0], all->local_group[1]};
  for (int i = 0; i < 3; i++)
    if (leans_on[i]) leave ? tr_group_destroy(leans_on[i]) : tr__group_free(leans_on[i]);
  for (int l = 0; l < TR__LANES; l++) tr__lane_free(&all->lane[l]);
  while (all->scripts) {
    tr__script *next = all->scripts->next;
    tr__script_free(all->scripts);
    all->scripts = next;
  }
  free(all->compare);
  free(all);
  g->strands = NULL;
}

// ---- calls --------------------------------------------------------------------------------------

static tr__case case_of(const tr_request *r) {
  return (tr__case){.kind = r->kind,
                    .size = r->group->size,
                    .root = r->root,
                    .local = r->group->strands->local_size,
                    .nelem = r->nelem,
                    .width = r->width,
                    .wide = tr_dtype_size(tr__wide_type(r->type)),
                    .start = r->kind == TR__ALLTOALL_V ? NULL : r->start};
}

static tr_status choose(const tr_request *r, const tr__script **out) {
  tr__strands *all = r->group->strands;
  for (int i = 0; i < TR__KNOWN; i++) {
    const tr__known *k = &all->known[i];
    if (k->kind != r->kind || k->nelem != r->nelem || k->type != r->type || k->root != r->root) continue;
    *out = k->script;
    return TR_OK;
  }
  const tr__algorithm *algorithm;
  tr__case c = case_of(r);
  TR_TRY(tr__algorithm_choose(r->group->comm->choice, &c, &algorithm));
  *out = tr__script_find(r->group, r->kind, r->root, algorithm);
  if (!*out)
    return tr_error(TR_ERR_MEMORY, "%s of group '%s': no memory for its script", tr__kind_name(r->kind),
                    r->group->name);
  all->known[all->known_next++ % TR__KNOWN] = (tr__known){r->kind, r->type, r->root, r->nelem, *out};
  return TR_OK;
}

uint32_t tr__script_strands(const tr_request *r) {
  const tr__algorithm *a = r->script->algorithm;
  size_t size = (size_t)r->group->size, n = r->nelem * r->width;
  int vector = tr__is_vector(r->kind);
  size_t pieces = vector && a->pieces ? (size_t)a->pieces : size, most = pieces * r->group->comm->choice->wire;
  if (r->kind == TR__BARRIER || r->kind == TR__ALLTOALL_V) return 1; // all-to-all-v: no rank knows all lengths
  if (r->start)
    n = (r->start[size] - r->start[0]) * r->width;
  else if (!vector)
    n *= size;
  if (a->whole & tr__bit(r->kind)) return n > 0;
  if (most > STRAND_MOST) most = STRAND_MOST;
  return (uint32_t)((n + most - 1) / most);
}

tr_status tr__script_begin(tr_request *r) {
  tr__strands *all = r->group->strands;
  TR_TRY(choose(r, &r->script));
  r->chunks = tr__script_strands(r);
  r->strand = all->next;
  all->next += r->chunks;
  for (int what = 0; what < TR__LOCALS; what++) {
    r->local[what] = all->ticket[what];
    all->ticket[what] += r->chunks * (uint32_t)r->script->nlocal[what];
  }
  return TR_OK;
}

const tr__traffic *tr__script_traffic(const tr_group *g) { return &g->strands->traffic; }
