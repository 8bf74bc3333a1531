// SPDX-License-Identifier: MIT
// Sums over ranks: which types and operations there are, and the code for this processor.
//
// The work is in reduce_body.h, built once per instruction set; all have the same bits.
#include "comm_internal.h"
#include "trireme/base/cpu.h"

int tr__reduce_supported(tr_dtype type, tr_reduce_op op) {
  if ((unsigned)type >= TR_DTYPE_COUNT || (unsigned)op > TR_AVERAGE) return 0;
  int integer = type == TR_I32 || type == TR_I64 || type == TR_U8;
  return !(integer && op == TR_AVERAGE);
}

void tr__reduce(tr_dtype type, tr_dtype dst_type, tr_reduce_op op, int nsrc, const char *const *src, int ndst,
                char *const *dst, size_t n) {
  switch (tr_cpu_isa()) {
  case TR_ISA_AMX:
  case TR_ISA_AVX512: tr__reduce_avx512(type, dst_type, op, nsrc, src, ndst, dst, n); break;
  case TR_ISA_AVX2: tr__reduce_avx2(type, dst_type, op, nsrc, src, ndst, dst, n); break;
  case TR_ISA_BASE: tr__reduce_base(type, dst_type, op, nsrc, src, ndst, dst, n); break;
  }
}

void tr__copy(char *dst, const char *src, size_t nbyte) {
  switch (tr_cpu_isa()) {
  case TR_ISA_AMX:
  case TR_ISA_AVX512: tr__copy_avx512(dst, src, nbyte); break;
  case TR_ISA_AVX2: tr__copy_avx2(dst, src, nbyte); break;
  case TR_ISA_BASE: tr__copy_base(dst, src, nbyte); break;
  }
}
