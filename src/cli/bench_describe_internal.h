// SPDX-License-Identifier: MIT
// `trireme bench step|kernel|comm --write FILE.yaml`: parts of a cluster's description, measured on this machine and put into one
// file, beside the parts that are there already.
#ifndef TRIREME_CLI_BENCH_DESCRIBE_INTERNAL_H
#define TRIREME_CLI_BENCH_DESCRIBE_INTERNAL_H

#include "cli/bench_internal.h"
#include "trireme/base/text.h"
#include "trireme/plan/device.h"

int tr__is_description(const char *path); // a name that ends in .yaml or .yml

// Puts the sections of `text` (top-level keys of YAML) into the file in place of its own, or adds them; other sections stay as
// they are, comments too. Those in `once` (names up to NULL) are only added where there are none. TR_ERR_CONFIG where the file is no YAML;
// it is written whole or not at all.
tr_status tr__description_put(const char *path, const char *text, const char *const *once);

// The device that one core of this machine is, as a section `device`, with name, hosts and host_devices.
tr_status tr__describe_device(tr_text *out);

// Prices of the library's kernels, as a section `kernels`: steps of small models with the layouts (ranks x threads) and types
// (bits 1 f32, 2 bf16) that are asked for; `steps` of each, 0: as many as take a while. Says what it does where `quiet` is 0.
typedef struct tr__describe_job {
  const int (*layout)[2];
  int nlayout, types, steps, quiet;
} tr__describe_job;
tr_status tr__describe_kernels(const tr__describe_job *job, tr_text *out);

#endif
