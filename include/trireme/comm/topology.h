// SPDX-License-Identifier: MIT
// What this machine is made of, as hwloc sees it: packages, NUMA nodes, caches, cores, threads and their nesting. What
// hwloc does not see, as often in virtual machines and containers, is simply not there: counts are 0.
#ifndef TRIREME_COMM_TOPOLOGY_H
#define TRIREME_COMM_TOPOLOGY_H

#include "trireme/base/status.h"
#include <stddef.h>
#include <stdint.h>

// Parts stand before what is inside them: a part's insides are those after it that are deeper.
typedef struct tr_topology_part {
  char name[112]; // "L2 cache, 2.0 MiB, lines of 64 bytes"
  int depth;      // 0: the machine
  int index;      // among all parts of its kind
  uint64_t nbyte; // of a cache or of a NUMA node's memory, else 0
} tr_topology_part;

typedef struct tr_topology {
  int packages, numa_nodes, caches, cores, threads;
  tr_topology_part *part;
  size_t npart;
  uint64_t *distance; // [numa_nodes x numa_nodes], as the firmware tells them; NULL: not told
} tr_topology;

tr_status tr_topology_read(tr_topology *out);
void tr_topology_free(tr_topology *topology);
size_t tr_topology_inside(const tr_topology *topology, size_t part); // how many parts are inside this one
// Whether two parts are alike, with everything inside them. Pure.
int tr_topology_alike(const tr_topology *topology, size_t a, size_t b);

#endif
