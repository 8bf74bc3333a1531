// SPDX-License-Identifier: MIT
// The mesh: the grid of ranks with named axes, and the groups along them.
//
// An axis is one way to split the work; its degree is how many ways. `map` lays the axes over the ranks, innermost
// (chattiest, neighbouring ranks) first: with map tp,cp,dp,pp rank = tp + TP (cp + CP (dp + DP pp)). A group along an
// axis holds the ranks that differ only in that coordinate, in its order. All functions are pure but tr_mesh_group.
#ifndef TRIREME_MESH_MESH_H
#define TRIREME_MESH_MESH_H

#include "trireme/base/status.h"
#include "trireme/comm/comm.h"
#include <stddef.h>

typedef enum tr_axis { TR_AXIS_TP, TR_AXIS_CP, TR_AXIS_DP, TR_AXIS_PP, TR_AXIS_COUNT } tr_axis;

typedef struct tr_mesh_spec {
  int degree[TR_AXIS_COUNT];
  tr_axis map[TR_AXIS_COUNT]; // innermost first; a permutation of the axes
} tr_mesh_spec;

// How a tensor lies along one axis. `dim` counts from the row dimension (0: rows, 1: features).
typedef enum tr_placement_kind { TR_REPLICATE, TR_SHARD, TR_RAGGED, TR_PARTIAL } tr_placement_kind;
typedef struct tr_placement {
  unsigned char kind, dim;
} tr_placement;

const char *tr_axis_name(tr_axis axis); // "dp"
// "tp,cp,dp,pp" -> map. TR_ERR_CONFIG naming the text when it is not a permutation of the axes.
tr_status tr_mesh_parse_map(const char *text, tr_axis map[TR_AXIS_COUNT]);
// Degrees at least 1 whose product is nrank; TR_ERR_PLAN with the numbers and what would work.
tr_status tr_mesh_check(const tr_mesh_spec *spec, int nrank);
int tr_mesh_coordinate(const tr_mesh_spec *spec, int rank, tr_axis axis);
// Ranks of the group along `axis` that `rank` belongs to; member has room for degree[axis].
void tr_mesh_members(const tr_mesh_spec *spec, int rank, tr_axis axis, int *member);
// The group along `axis` of this rank. Collective over that group. The caller destroys it with tr_group_destroy.
tr_status tr_mesh_group(const tr_mesh_spec *spec, tr_comm *comm, tr_axis axis, tr_group **out);

#endif
