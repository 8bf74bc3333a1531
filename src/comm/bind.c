// SPDX-License-Identifier: MIT
// Which cores a rank runs on: rank r gets cores r * nthread .. of those this process may use, if all ranks fit.
//
// The launcher asks hwloc once, with everything but cores left out of the topology; ranks only set their
// affinity. A single rank is not bound: it would gain nothing, and two jobs would meet on the same core.
// Failing is no error.
#include "comm_internal.h"
#include "trireme/base/cpu.h"
#include "trireme/base/log.h"
#include <errno.h>
#include <hwloc.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

static int load_topology(hwloc_topology_t *topology) {
  if (hwloc_topology_init(topology) != 0) return 0;
  hwloc_topology_set_all_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(*topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
  // The x86 component is slow and adds only caches.
  hwloc_topology_set_components(*topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  hwloc_topology_set_flags(*topology, HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING);
  if (hwloc_topology_load(*topology) == 0) return 1;
  hwloc_topology_destroy(*topology);
  return 0;
}

static void add_object(hwloc_topology_t topology, hwloc_obj_type_t type, int index, cpu_set_t *set) {
  hwloc_obj_t object = hwloc_get_obj_by_type(topology, type, (unsigned)index);
  int cpu;
  if (!object) return;
  hwloc_bitmap_foreach_begin(cpu, object->cpuset) CPU_SET((unsigned)cpu, set);
  hwloc_bitmap_foreach_end();
}

void tr__binding_create(const tr__job *job, tr__binding *binding) {
  const tr_launch_options *o = &job->options;
  binding->sets = NULL;
  int nrank = job->hosts.nlocal;
  if (!o->bind || nrank == 1 || (long)nrank * o->nthread > tr_cpu_count()) return;
  hwloc_topology_t topology;
  if (!load_topology(&topology)) {
    tr_log_debug("ranks are not bound: the machine's cores could not be read");
    return;
  }
  int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE), want = nrank * o->nthread;
  hwloc_obj_type_t type = cores >= want ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  cpu_set_t *sets = calloc((size_t)nrank, sizeof *sets);
  for (int i = 0; sets && i < want; i++) add_object(topology, type, i, &sets[i / o->nthread]);
  binding->sets = sets;
  hwloc_topology_destroy(topology);
}

void tr__binding_apply(const tr__binding *binding, int rank) {
  if (!binding->sets) return;
  const cpu_set_t *set = (const cpu_set_t *)binding->sets + rank;
  if (sched_setaffinity(0, sizeof *set, set) != 0) tr_log_debug("rank %d is not bound: %s", rank, strerror(errno));
}

void tr__binding_destroy(tr__binding *binding) {
  free(binding->sets);
  binding->sets = NULL;
}
