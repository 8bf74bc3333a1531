// SPDX-License-Identifier: MIT
// oneDNN for bf16 products on processors with AMX: an engine, a stream per worker, and a cache of primitives
// that only the caller's thread fills, before the workers start. So the hot path takes no lock, and every
// call runs in one thread.
#ifndef TRIREME_KERNEL_CPU_DNNL_INTERNAL_H
#define TRIREME_KERNEL_CPU_DNNL_INTERNAL_H

#include "kernel/cpu_table_internal.h"

// Called after a process has been forked, never before: oneDNN's own state does not survive a fork.
// TR_ERR_MEMORY or TR_ERR_INTERNAL.
tr_status tr__dnnl_open(tr_pool *pool, tr_dnnl **out);
void tr__dnnl_close(tr_dnnl *dnnl); // NULL allowed

// The whole product, cut into blocks of C by sizes only. TR_PENDING when oneDNN has nothing for these types
// or shapes (nothing is written then); TR_ERR_INTERNAL when it fails on the way.
tr_status tr__dnnl_gemm(tr_dnnl *dnnl, tr_pool *pool, const tr_gemm *g);

#endif
