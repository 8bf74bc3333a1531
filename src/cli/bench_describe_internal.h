// SPDX-License-Identifier: MIT
#ifndef TRIREME_CLI_BENCH_DESCRIBE_INTERNAL_H
#define TRIREME_CLI_BENCH_DESCRIBE_INTERNAL_H
#include "cli/bench_internal.h"
#include "trireme/plan/kernel_time.h"
typedef struct tr__description {
  double seconds;
  tr_kernel_rates rates;
} tr__description;
tr_status tr__describe_kernels(tr__description *description);
#endif
