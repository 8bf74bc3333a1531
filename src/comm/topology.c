// SPDX-License-Identifier: MIT
// hwloc's tree as a list: memory and then processors inside each part, as hwloc nests them.
#include "trireme/comm/topology.h"
#include "trireme/base/text.h"
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void describe(hwloc_obj_t o, char *out, size_t nbyte) {
  char type[32], size[32];
  hwloc_obj_type_snprintf(type, sizeof type, o, 0);
  const char *model = hwloc_obj_get_info_by_name(o, "CPUModel");
  if (o->type == HWLOC_OBJ_PU)
    snprintf(out, nbyte, "thread");
  else if (o->type == HWLOC_OBJ_MACHINE)
    snprintf(out, nbyte, "machine");
  else if (o->type == HWLOC_OBJ_CORE)
    snprintf(out, nbyte, "core");
  else if (o->type == HWLOC_OBJ_PACKAGE)
    snprintf(out, nbyte, "package%s%.80s", model ? ": " : "", model ? model : "");
  else if (o->type == HWLOC_OBJ_NUMANODE) {
    tr_format_bytes(size, sizeof size, (double)o->attr->numanode.local_memory);
    snprintf(out, nbyte, "NUMA node, %s", size);
  } else if (hwloc_obj_type_is_cache(o->type)) {
    tr_format_bytes(size, sizeof size, (double)o->attr->cache.size);
    snprintf(out, nbyte, "%s cache, %s, lines of %u bytes", type, size, o->attr->cache.linesize);
  } else
    snprintf(out, nbyte, "%s", type);
}

// `part` NULL only counts.
static size_t list(hwloc_obj_t o, int depth, tr_topology_part *part, size_t n) {
  if (part) {
    tr_topology_part *p = &part[n];
    *p = (tr_topology_part){.depth = depth, .index = (int)o->logical_index};
    describe(o, p->name, sizeof p->name);
    if (o->type == HWLOC_OBJ_NUMANODE) p->nbyte = o->attr->numanode.local_memory;
    if (hwloc_obj_type_is_cache(o->type)) p->nbyte = o->attr->cache.size;
  }
  n++;
  for (hwloc_obj_t c = o->memory_first_child; c; c = c->next_sibling) n = list(c, depth + 1, part, n);
  for (hwloc_obj_t c = o->first_child; c; c = c->next_sibling) n = list(c, depth + 1, part, n);
  return n;
}

static int count(hwloc_topology_t t, hwloc_obj_type_t type) {
  const int n = hwloc_get_nbobjs_by_type(t, type);
  return n > 0 ? n : 0;
}

static void read_distances(hwloc_topology_t t, tr_topology *out) {
  struct hwloc_distances_s *d;
  unsigned n = 1;
  if (out->numa_nodes < 2 || hwloc_distances_get_by_type(t, HWLOC_OBJ_NUMANODE, &n, &d, 0, 0) != 0 || n == 0) return;
  const size_t all = (size_t)d->nbobjs * d->nbobjs;
  if (d->nbobjs == (unsigned)out->numa_nodes) out->distance = calloc(all, sizeof *out->distance);
  for (size_t i = 0; i < all && out->distance; i++) out->distance[i] = d->values[i];
  hwloc_distances_release(t, d);
}

static tr_status read_parts(hwloc_topology_t t, tr_topology *out) {
  hwloc_obj_t root = hwloc_get_root_obj(t);
  *out = (tr_topology){.packages = count(t, HWLOC_OBJ_PACKAGE),
                       .numa_nodes = count(t, HWLOC_OBJ_NUMANODE),
                       .cores = count(t, HWLOC_OBJ_CORE),
                       .threads = count(t, HWLOC_OBJ_PU),
                       .npart = list(root, 0, NULL, 0)};
  for (hwloc_obj_type_t type = HWLOC_OBJ_L1CACHE; type <= HWLOC_OBJ_L5CACHE; type++) out->caches += count(t, type);
  out->part = calloc(out->npart, sizeof *out->part);
  if (!out->part) return tr_error(TR_ERR_MEMORY, "no memory to list %zu parts of this machine", out->npart);
  list(root, 0, out->part, 0);
  read_distances(t, out);
  return TR_OK;
}

tr_status tr_topology_read(tr_topology *out) {
  hwloc_topology_t t;
  if (hwloc_topology_init(&t) != 0)
    return tr_error(TR_ERR_INTERNAL, "hwloc cannot be started: it has no memory or does not fit this program");
  hwloc_topology_set_icache_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE);
  tr_status status = hwloc_topology_load(t) == 0
                         ? read_parts(t, out)
                         : tr_error(TR_ERR_INTERNAL, "hwloc cannot read this machine's topology");
  hwloc_topology_destroy(t);
  return status;
}

void tr_topology_free(tr_topology *t) {
  free(t->part);
  free(t->distance);
  *t = (tr_topology){0};
}

size_t tr_topology_inside(const tr_topology *t, size_t part) {
  size_t n = 0;
  while (part + 1 + n < t->npart && t->part[part + 1 + n].depth > t->part[part].depth) n++;
  return n;
}

int tr_topology_alike(const tr_topology *t, size_t a, size_t b) {
  const size_t n = tr_topology_inside(t, a);
  if (tr_topology_inside(t, b) != n) return 0;
  for (size_t i = 0; i <= n; i++)
    if (strcmp(t->part[a + i].name, t->part[b + i].name) != 0 ||
        t->part[a + i].depth - t->part[a].depth != t->part[b + i].depth - t->part[b].depth)
      return 0;
  return 1;
}
