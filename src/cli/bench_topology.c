// SPDX-License-Identifier: MIT
// `trireme bench topology`: what this machine is made of, as hwloc sees it: packages, NUMA nodes, caches, cores, threads, the
// distances between NUMA nodes, and network interfaces. What hwloc does not see, as often in virtual machines and containers,
// is said. Equal neighbours are printed once, with their number.
#include "cli/bench_internal.h"
#include "cli/cli_internal.h"
#include "trireme/base/cpu.h"
#include <dirent.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INTERFACES = 32, HOST_NAME = 128 };

typedef struct interface {
  char name[32];
  long long mbit; // -1: not known
  int up, is_virtual;
} interface;

typedef struct machine {
  hwloc_topology_t topology;
  char host[HOST_NAME];
  interface net[INTERFACES];
  int nnet;
} machine;

// ---- reading

static int read_line(const char *folder, const char *file, char *out, size_t nbyte) {
  char path[512];
  snprintf(path, sizeof path, "/sys/class/net/%s/%s", folder, file);
  FILE *from = fopen(path, "re");
  int got = from && fgets(out, (int)nbyte, from) != NULL;
  if (from) fclose(from);
  if (got) out[strcspn(out, "\n")] = '\0';
  return got;
}

static int compare_interfaces(const void *a, const void *b) {
  return strcmp(((const interface *)a)->name, ((const interface *)b)->name);
}

// hwloc names only interfaces of devices that it sees on a bus; the system names all.
static void read_interfaces(machine *m) {
  char line[64], path[512];
  DIR *folder = opendir("/sys/class/net");
  for (struct dirent *e; folder && m->nnet < INTERFACES && (e = readdir(folder));) {
    if (e->d_name[0] == '.' || strcmp(e->d_name, "lo") == 0) continue;
    if (!read_line(e->d_name, "operstate", line, sizeof line)) continue; // not an interface
    interface *n = &m->net[m->nnet++];
    *n = (interface){.mbit = -1, .up = strcmp(line, "down") != 0};
    snprintf(n->name, sizeof n->name, "%.31s", e->d_name);
    if (read_line(e->d_name, "speed", line, sizeof line)) n->mbit = atoll(line) > 0 ? atoll(line) : -1;
    snprintf(path, sizeof path, "/sys/class/net/%s/device", e->d_name);
    n->is_virtual = access(path, F_OK) != 0;
  }
  if (folder) closedir(folder);
  qsort(m->net, (size_t)m->nnet, sizeof *m->net, compare_interfaces);
}

static tr_status open_machine(machine *m) {
  if (gethostname(m->host, sizeof m->host) != 0) snprintf(m->host, sizeof m->host, "this host");
  m->host[sizeof m->host - 1] = '\0';
  if (hwloc_topology_init(&m->topology) != 0)
    return tr_error(TR_ERR_INTERNAL, "hwloc cannot be started: it has no memory or does not fit this program");
  hwloc_topology_set_icache_types_filter(m->topology, HWLOC_TYPE_FILTER_KEEP_NONE);
  if (hwloc_topology_load(m->topology) != 0) {
    hwloc_topology_destroy(m->topology);
    return tr_error(TR_ERR_INTERNAL, "hwloc cannot read this machine's topology");
  }
  read_interfaces(m);
  return TR_OK;
}

// ---- one object

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
    snprintf(out, nbyte, "package%s%s", model ? ": " : "", model ? model : "");
  else if (o->type == HWLOC_OBJ_NUMANODE) {
    tr_format_bytes(size, sizeof size, (double)o->attr->numanode.local_memory);
    snprintf(out, nbyte, "NUMA node, %s", size);
  } else if (hwloc_obj_type_is_cache(o->type)) {
    tr_format_bytes(size, sizeof size, (double)o->attr->cache.size);
    snprintf(out, nbyte, "%s cache, %s, lines of %u bytes", type, size, o->attr->cache.linesize);
  } else
    snprintf(out, nbyte, "%s", type);
}

// Alike, with everything below: such neighbours are printed once.
static int alike(hwloc_obj_t a, hwloc_obj_t b) {
  char x[256], y[256];
  describe(a, x, sizeof x);
  describe(b, y, sizeof y);
  if (strcmp(x, y) != 0 || a->arity != b->arity || a->memory_arity != b->memory_arity) return 0;
  for (hwloc_obj_t p = a->memory_first_child, q = b->memory_first_child; p && q;
       p = p->next_sibling, q = q->next_sibling)
    if (!alike(p, q)) return 0;
  for (unsigned i = 0; i < a->arity; i++)
    if (!alike(a->children[i], b->children[i])) return 0;
  return 1;
}

// The first of a run of siblings that are alike from `o` on, and how many.
static hwloc_obj_t skip_alike(hwloc_obj_t o, int *n) {
  hwloc_obj_t next = o->next_sibling;
  for (*n = 1; next && alike(o, next); next = next->next_sibling) ++*n;
  return next;
}

// ---- text

static void print_tree(hwloc_obj_t o, int times, int depth) {
  char text[256];
  describe(o, text, sizeof text);
  if (times > 1)
    printf("%*s%d x %s\n", 2 * depth, "", times, text);
  else
    printf("%*s%s\n", 2 * depth, "", text);
  int n;
  for (hwloc_obj_t child = o->memory_first_child, next; child; child = next) {
    next = skip_alike(child, &n);
    print_tree(child, n, depth + 1);
  }
  for (hwloc_obj_t child = o->first_child, next; child; child = next) {
    next = skip_alike(child, &n);
    print_tree(child, n, depth + 1);
  }
}

static int count(const machine *m, hwloc_obj_type_t type) {
  const int n = hwloc_get_nbobjs_by_type(m->topology, type);
  return n > 0 ? n : 0;
}

static int caches(const machine *m) {
  return count(m, HWLOC_OBJ_L1CACHE) + count(m, HWLOC_OBJ_L2CACHE) + count(m, HWLOC_OBJ_L3CACHE);
}

static void print_distances(const machine *m) {
  struct hwloc_distances_s *d;
  unsigned n = 1;
  if (count(m, HWLOC_OBJ_NUMANODE) < 2) return;
  if (hwloc_distances_get_by_type(m->topology, HWLOC_OBJ_NUMANODE, &n, &d, 0, 0) != 0 || n == 0) {
    printf("distances between NUMA nodes: not told\n");
    return;
  }
  printf("distances between NUMA nodes:\n");
  for (unsigned i = 0; i < d->nbobjs; i++) {
    for (unsigned j = 0; j < d->nbobjs; j++) printf(" %6llu", (unsigned long long)d->values[i * d->nbobjs + j]);
    printf("\n");
  }
  hwloc_distances_release(m->topology, d);
}

static void print_interfaces(const machine *m) {
  printf("network:%s\n", m->nnet ? "" : " no interface but loopback");
  for (int i = 0; i < m->nnet; i++) {
    const interface *n = &m->net[i];
    printf("  %s: %s%s, ", n->name, n->up ? "up" : "down", n->is_virtual ? ", without a device" : "");
    if (n->mbit > 0)
      printf("%lld Mbit/s\n", n->mbit);
    else
      printf("speed not told\n");
  }
}

static void print_missing(const machine *m) {
  if (count(m, HWLOC_OBJ_PACKAGE) == 0) printf("packages: not told by this machine\n");
  if (count(m, HWLOC_OBJ_CORE) == 0) printf("cores: not told by this machine, only threads\n");
  if (caches(m) == 0) printf("caches: not told by this machine\n");
  if (count(m, HWLOC_OBJ_NUMANODE) == 0) printf("NUMA nodes: not told by this machine\n");
}

static void print_text(const machine *m) {
  printf("host %s: %d package%s, %d NUMA node%s, %d core%s, %d thread%s; this process may use %d\n", m->host,
         count(m, HWLOC_OBJ_PACKAGE), count(m, HWLOC_OBJ_PACKAGE) == 1 ? "" : "s", count(m, HWLOC_OBJ_NUMANODE),
         count(m, HWLOC_OBJ_NUMANODE) == 1 ? "" : "s", count(m, HWLOC_OBJ_CORE),
         count(m, HWLOC_OBJ_CORE) == 1 ? "" : "s", count(m, HWLOC_OBJ_PU), count(m, HWLOC_OBJ_PU) == 1 ? "" : "s",
         tr_cpu_count());
  print_tree(hwloc_get_root_obj(m->topology), 1, 0);
  print_missing(m);
  print_distances(m);
  print_interfaces(m);
  printf("links between ranks are measured by trireme bench comm\n");
}

// ---- JSON

static json_t *tree_json(hwloc_obj_t o) {
  char text[256];
  describe(o, text, sizeof text);
  json_t *json = json_pack("{s:s, s:i}", "name", text, "index", (int)o->logical_index), *list = json_array();
  if (json && hwloc_obj_type_is_cache(o->type))
    json_object_set_new(json, "bytes", json_integer((json_int_t)o->attr->cache.size));
  if (json && o->type == HWLOC_OBJ_NUMANODE)
    json_object_set_new(json, "bytes", json_integer((json_int_t)o->attr->numanode.local_memory));
  for (hwloc_obj_t child = o->memory_first_child; child; child = child->next_sibling)
    json_array_append_new(list, tree_json(child));
  for (hwloc_obj_t child = o->first_child; child; child = child->next_sibling)
    json_array_append_new(list, tree_json(child));
  if (json && json_array_size(list) > 0) json_object_set(json, "below", list);
  json_decref(list);
  return json;
}

static json_t *interfaces_json(const machine *m) {
  json_t *list = json_array();
  for (int i = 0; list && i < m->nnet; i++) {
    const interface *n = &m->net[i];
    json_t *row = json_pack("{s:s, s:b, s:b}", "name", n->name, "up", n->up, "virtual", n->is_virtual);
    if (row && n->mbit > 0) json_object_set_new(row, "mbit_per_s", json_integer(n->mbit));
    json_array_append_new(list, row);
  }
  return list;
}

static tr_status print_object(const machine *m) {
  json_t *json = json_pack("{s:i, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:o}", "trireme_bench", 1, "benchmark",
                           "topology", "host", m->host, "packages", count(m, HWLOC_OBJ_PACKAGE), "numa_nodes",
                           count(m, HWLOC_OBJ_NUMANODE), "caches", caches(m), "cores", count(m, HWLOC_OBJ_CORE),
                           "threads", count(m, HWLOC_OBJ_PU), "usable_threads", tr_cpu_count(), "tree",
                           tree_json(hwloc_get_root_obj(m->topology)), "network", interfaces_json(m));
  char *text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
  json_decref(json);
  if (!text) return tr_error(TR_ERR_MEMORY, "no memory for a description of this machine");
  puts(text);
  free(text);
  return TR_OK;
}

int tr__cli_bench_topology(int argc, char **argv) {
  machine m = {.nnet = 0};
  int json = 0;
  const tr__argument flags[] = {{.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &json}};
  size_t nword = 0;
  tr_status status = tr__cli_parse_paths("bench", argc, argv, flags, 1, &nword);
  if (status == TR_OK && nword > 0)
    status = tr__cli_usage("bench", "topology takes no argument but --json, not '%.80s'", argv[1]);
  if (status == TR_OK) status = open_machine(&m);
  if (status < 0) return tr__cli_fail(status);
  if (json)
    status = print_object(&m);
  else
    print_text(&m);
  hwloc_topology_destroy(m.topology);
  return status < 0 ? tr__cli_fail(status) : 0;
}
