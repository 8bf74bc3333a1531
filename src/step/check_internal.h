// SPDX-License-Identifier: MIT
// The parts of the static proof of a program, which call each other across files; fields have been checked by then.
#ifndef TRIREME_STEP_CHECK_INTERNAL_H
#define TRIREME_STEP_CHECK_INTERNAL_H

#include "trireme/step/program.h"

// TR_ERR_PLAN: "step program: operation OP (KIND, micro-batch M) RULE".
tr_status tr__step_broken(const tr_program *program, uint32_t op, const char *rule);
tr_status tr__step_check_recompute(const tr_program *program, const tr_step_options *options);

#endif
