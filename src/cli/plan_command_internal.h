// SPDX-License-Identifier: MIT
// The parts of `trireme plan`: argv[0] is the part's name.
#ifndef TRIREME_CLI_PLAN_COMMAND_INTERNAL_H
#define TRIREME_CLI_PLAN_COMMAND_INTERNAL_H

#include "trireme/base/status.h"

tr_status tr__plan_search(int argc, char **argv); // options only
tr_status tr__plan_evaluate(int argc, char **argv);

#endif
