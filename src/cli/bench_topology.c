// SPDX-License-Identifier: MIT
// `trireme bench topology`: what this machine is made of, as hwloc sees it: packages, NUMA nodes, caches, cores, threads, the
// distances between NUMA nodes, and network interfaces. What hwloc does not see, as often in virtual machines and containers,
// is said. Equal neighbours are printed once, with their number.
#include "cli/bench_internal.h"
#include "cli/cli_internal.h"
#include "trireme/base/cpu.h"
#include "trireme/base/text.h"
#include "trireme/comm/topology.h"
#include <dirent.h>
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
  tr_topology topology;
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
  read_interfaces(m);
  return tr_topology_read(&m->topology);
}

// ---- text

// Parts [at, end), which lie side by side with what is inside them; equal neighbours once.
static void print_parts(const tr_topology *t, size_t at, size_t end) {
  while (at < end) {
    const tr_topology_part *p = &t->part[at];
    const size_t length = 1 + tr_topology_inside(t, at);
    size_t times = 1;
    while (at + times * length < end && tr_topology_alike(t, at, at + times * length)) times++;
    printf("%*s", 2 * p->depth, "");
    if (times > 1) printf("%zu x ", times);
    printf("%s\n", p->name);
    print_parts(t, at + 1, at + length);
    at += times * length;
  }
}

static void print_distances(const tr_topology *t) {
  const int n = t->numa_nodes;
  if (n < 2) return;
  printf("distances between NUMA nodes:%s\n", t->distance ? "" : " not told by this machine");
  for (int i = 0; i < n && t->distance; i++) {
    for (int j = 0; j < n; j++) printf(" %6llu", (unsigned long long)t->distance[i * n + j]);
    printf("\n");
  }
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

static void print_missing(const tr_topology *t) {
  if (t->packages == 0) printf("packages: not told by this machine\n");
  if (t->cores == 0) printf("cores: not told by this machine, only threads\n");
  if (t->caches == 0) printf("caches: not told by this machine\n");
  if (t->numa_nodes == 0) printf("NUMA nodes: not told by this machine\n");
}

static void print_text(const machine *m) {
  const tr_topology *t = &m->topology;
  printf("host %s: %d package%s, %d NUMA node%s, %d core%s, %d thread%s; this process may use %d\n", m->host,
         t->packages, tr_text_plural(t->packages, "s"), t->numa_nodes, tr_text_plural(t->numa_nodes, "s"), t->cores,
         tr_text_plural(t->cores, "s"), t->threads, tr_text_plural(t->threads, "s"), tr_cpu_count());
  print_parts(t, 0, t->npart);
  print_missing(t);
  print_distances(t);
  print_interfaces(m);
  printf("links between ranks are measured by trireme bench comm\n");
}

// ---- JSON

// Parts [at, end) that lie side by side.
static json_t *parts_json(const tr_topology *t, size_t at, size_t end) {
  json_t *list = json_array();
  for (size_t length; list && at < end; at += length) {
    const tr_topology_part *p = &t->part[at];
    length = 1 + tr_topology_inside(t, at);
    json_t *row = json_pack("{s:s, s:i}", "name", p->name, "index", p->index);
    if (row && p->nbyte > 0) json_object_set_new(row, "bytes", json_integer((json_int_t)p->nbyte));
    if (row && length > 1) json_object_set_new(row, "inside", parts_json(t, at + 1, at + length));
    json_array_append_new(list, row);
  }
  return list;
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
  const tr_topology *t = &m->topology;
  json_t *json = json_pack("{s:i, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:o}", "trireme_bench", 1, "benchmark",
                           "topology", "host", m->host, "packages", t->packages, "numa_nodes", t->numa_nodes,
                           "caches", t->caches, "cores", t->cores, "threads", t->threads, "usable_threads",
                           tr_cpu_count(), "parts", parts_json(t, 0, t->npart), "network", interfaces_json(m));
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
  tr_topology_free(&m.topology);
  return status < 0 ? tr__cli_fail(status) : 0;
}
