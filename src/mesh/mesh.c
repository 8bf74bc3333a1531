// SPDX-License-Identifier: MIT
// Ranks to coordinates and back: mixed-radix arithmetic in the order of the plan's map. Pure apart from
// tr_mesh_group, which asks the communicator for the group.
#include "trireme/mesh/mesh.h"
#include <stdlib.h>
#include <string.h>

static const char *const axis_name[TR_AXIS_COUNT] = {"tp", "cp", "dp", "pp"};

const char *tr_axis_name(tr_axis axis) { return axis_name[axis]; }

tr_status tr_mesh_parse_map(const char *text, tr_axis map[TR_AXIS_COUNT]) {
  int count = 0, seen[TR_AXIS_COUNT] = {0};
  const char *at = text;
  while (*at) {
    int axis = 0;
    while (axis < TR_AXIS_COUNT && strncmp(at, axis_name[axis], 2) != 0) axis++;
    if (axis == TR_AXIS_COUNT || seen[axis] || (at[2] != ',' && at[2] != '\0')) break;
    if (at[2] == ',' && at[3] == '\0') break;
    seen[axis] = 1;
    map[count++] = (tr_axis)axis;
    at += at[2] == ',' ? 3 : 2;
  }
  if (*at || count != TR_AXIS_COUNT)
    return tr_error(TR_ERR_CONFIG, "map '%s' must name each of tp, cp, dp, pp once, innermost first: tp,cp,dp,pp",
                    text);
  return TR_OK;
}

tr_status tr_mesh_check(const tr_mesh_spec *spec, int nrank) {
  long long product = 1;
  for (int axis = 0; axis < TR_AXIS_COUNT; axis++) {
    if (spec->degree[axis] < 1)
      return tr_error(TR_ERR_PLAN, "%s=%d: a degree is at least 1", axis_name[axis], spec->degree[axis]);
    product *= spec->degree[axis];
    if (product > nrank) break;
  }
  if (product == nrank) return TR_OK;
  return tr_error(TR_ERR_PLAN, "tp=%d x cp=%d x dp=%d x pp=%d needs %s%lld ranks, the job has %d",
                  spec->degree[TR_AXIS_TP], spec->degree[TR_AXIS_CP], spec->degree[TR_AXIS_DP],
                  spec->degree[TR_AXIS_PP], product > nrank ? "at least " : "", product, nrank);
}

int tr_mesh_coordinate(const tr_mesh_spec *spec, int rank, tr_axis axis) {
  for (int i = 0; i < TR_AXIS_COUNT; i++) {
    int degree = spec->degree[spec->map[i]];
    if (spec->map[i] == axis) return rank % degree;
    rank /= degree;
  }
  return 0;
}

void tr_mesh_members(const tr_mesh_spec *spec, int rank, tr_axis axis, int *member) {
  int stride = 1;
  for (int i = 0; spec->map[i] != axis; i++) stride *= spec->degree[spec->map[i]];
  int first = rank - tr_mesh_coordinate(spec, rank, axis) * stride;
  for (int i = 0; i < spec->degree[axis]; i++) member[i] = first + i * stride;
}

tr_status tr_mesh_group(const tr_mesh_spec *spec, tr_comm *comm, tr_axis axis, tr_group **out) {
  int *member = malloc(sizeof *member * (size_t)spec->degree[axis]);
  if (!member) return tr_error(TR_ERR_MEMORY, "no memory for the %s group's list of ranks", axis_name[axis]);
  tr_mesh_members(spec, tr_comm_rank(comm), axis, member);
  tr_status status = tr_group_create(comm, member, spec->degree[axis], axis_name[axis], out);
  free(member);
  return status;
}
