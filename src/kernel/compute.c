// SPDX-License-Identifier: MIT
// What a kernel runs on: a table, a pool and scratch memory, joined by the table's own state.
//
// Pool and scratch stay the caller's; only the backend state is made and freed here, by the table's functions.
#include "trireme/kernel/kernel.h"

tr_status tr_compute_open(const tr_kernels *kernels, tr_pool *pool, tr_arena *scratch, tr_compute *out) {
  tr_compute compute = {.kernels = kernels, .pool = pool, .scratch = scratch};
  if (kernels->open) TR_TRY(kernels->open(&compute));
  *out = compute;
  return TR_OK;
}

void tr_compute_close(tr_compute *compute) {
  if (compute->kernels && compute->kernels->close) compute->kernels->close(compute);
  *compute = (tr_compute){0};
}
