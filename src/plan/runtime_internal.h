// SPDX-License-Identifier: MIT
// Inside the planner: what the executor's operations on state have to do, for whoever prices them.
#ifndef TRIREME_PLAN_RUNTIME_INTERNAL_H
#define TRIREME_PLAN_RUNTIME_INTERNAL_H

#include "trireme/plan/runtime.h"

size_t tr__runtime_packed_bytes(const tr_runtime_plan *plan, const tr_model *model, int param); // both orders

#endif
