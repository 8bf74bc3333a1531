// SPDX-License-Identifier: MIT
// Which cores a rank runs on: rank r gets cores r * nthread .. of those this process may use, if all ranks fit. More ranks
// than cores are bound where each core gets as many as the others: left alone, ranks that yield to each other gather on
// fewer cores when others use the machine too (4 ranks on 2 cores: 8 bytes in 5.2 us, bound 3.4).
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

// Do all threads fit, or as many on each processor as on the others?
static int comes_out_even(long want, int processors) { return want <= processors || want % processors == 0; }

// Thread i of `want` goes to object i, or, where they are more than the objects, to that of its equal share.
static void bind_threads(hwloc_topology_t topology, int want, int nthread, cpu_set_t *sets) {
  int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
  hwloc_obj_type_t type = cores >= want ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  int objects = hwloc_get_nbobjs_by_type(topology, type), each = want > objects ? want / objects : 1;
  for (int i = 0; i < want; i++) add_object(topology, type, i / each, &sets[i / nthread]);
}

void tr__binding_create(const tr__job *job, tr__binding *binding) {
  const tr_launch_options *o = &job->options;
  binding->sets = NULL;
  int nrank = job->hosts.nlocal;
  if (!o->bind || nrank == 1 || !comes_out_even((long)nrank * o->nthread, tr_cpu_count())) return;
  hwloc_topology_t topology;
  if (!load_topology(&topology)) {
    tr_log_debug("ranks are not bound: the machine's cores could not be read");
    return;
  }
  int processors = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
  if (comes_out_even((long)nrank * o->nthread, processors)) {
    cpu_set_t *sets = calloc((size_t)nrank, sizeof *sets);
    if (sets) bind_threads(topology, nrank * o->nthread, o->nthread, sets);
    binding->sets = sets;
  }
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
