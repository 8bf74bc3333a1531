// SPDX-License-Identifier: MIT
// The order of a plan's axes over ranks: every permutation of those that are split, the others in their places. Memory does not
// depend on it, computation neither; only which links each group gets.
#include "plan/plan_internal.h"
#include <string.h>

typedef struct orders {
  const tr_plan *of;
  int at[TR_AXIS_COUNT], n; // places of split axes in the plan's map
  int count;
  tr_axis (*out)[TR_AXIS_COUNT];
} orders;

// Fills the places from `next` on with the axes that are not `used`.
static void permute(orders *o, int next, unsigned used, tr_axis map[TR_AXIS_COUNT]) {
  if (next == o->n || next == TR_AXIS_COUNT) { // the second only tells compilers that places end
    memcpy(o->out[o->count++], map, sizeof o->out[0]);
    return;
  }
  for (int i = 0; i < o->n; i++) {
    if (used >> i & 1) continue;
    map[o->at[next]] = o->of->map[o->at[i]];
    permute(o, next + 1, used | 1u << i, map);
  }
}

int tr__orders(const tr_plan *p, tr_axis out[TR__ORDERS][TR_AXIS_COUNT]) {
  orders o = {.of = p, .out = out};
  tr_axis map[TR_AXIS_COUNT];
  memcpy(map, p->map, sizeof map);
  for (int i = 0; i < TR_AXIS_COUNT; i++)
    if (tr__degree(p, p->map[i]) > 1) o.at[o.n++] = i;
  permute(&o, 0, 0, map);
  return o.count;
}
