// SPDX-License-Identifier: MIT
// What this processor can do, asked once. TRIREME_ISA=base|avx2|avx512|amx lowers it, for tests and for comparison;
// TRIREME_MEMORY=8GB lowers the memory.
#ifndef TRIREME_BASE_CPU_H
#define TRIREME_BASE_CPU_H

#include <stddef.h>

// In ascending order. AVX2 implies FMA and F16C; AVX512 means F, BW, VL and DQ; AMX means tile and bf16 as well, with
// the permission of the operating system (arch_prctl).
typedef enum tr_isa { TR_ISA_BASE, TR_ISA_AVX2, TR_ISA_AVX512, TR_ISA_AMX } tr_isa;

tr_isa tr_cpu_isa(void);
const char *tr_isa_name(tr_isa isa);
int tr_cpu_count(void); // processors this process may run on (affinity), at least 1
void tr_cpu_name(char *out, size_t nbyte);
size_t tr_cpu_memory(void); // bytes this process may use: the least of physical memory, cgroup limit, TRIREME_MEMORY

#endif
