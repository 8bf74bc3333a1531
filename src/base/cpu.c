// SPDX-License-Identifier: MIT
// What this processor can do, and how much of the machine this process may use.
//
// An instruction set counts when the processor has it AND the operating system saves its registers (XCR0);
// AMX also needs the kernel's permission, asked for once per process. The answer is kept in one atomic: every
// thread that asks at the same time finds the same. Memory is the smaller of the machine's and the control
// groups' (version 2 or 1).
#include "trireme/base/cpu.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"

#include "base/cpu_internal.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { ISA_UNKNOWN = -1, NCPU_MAX = 1 << 16, CGROUP_TEXT_SIZE = 16384, PATH_SIZE = 4096 };

static atomic_int isa_found = ISA_UNKNOWN;

// The processor itself: the only part that depends on the architecture.
#if defined(__x86_64__)
#include <cpuid.h>

enum { ARCH_REQUEST_STATE = 0x1023, STATE_TILE_DATA = 18 };

static uint64_t saved_states(void) {
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 27))) return 0; // OSXSAVE: XGETBV may be used
  __asm__ __volatile__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return (uint64_t)d << 32 | a;
}

static int has_all(uint64_t value, uint64_t bits) { return (value & bits) == bits; }

static tr_isa detect(void) {
  const uint64_t avx_state = 0x6, avx512_state = 0xE6, tile_state = 0x60000;
  const uint32_t fma_avx_f16c = 1u << 12 | 1u << 28 | 1u << 29; // leaf 1, ecx
  const uint32_t avx2 = 1u << 5;                                // leaf 7, ebx
  const uint32_t f_dq_bw_vl = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
  const uint32_t bf16_tile = 1u << 22 | 1u << 24; // leaf 7, edx
  uint64_t states = saved_states();
  uint32_t a, b, c, d, b7, c7, d7;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) return TR_ISA_BASE;
  if (!has_all(states, avx_state) || !has_all(c, fma_avx_f16c) || !has_all(b7, avx2)) return TR_ISA_BASE;
  if (!has_all(states, avx512_state) || !has_all(b7, f_dq_bw_vl)) return TR_ISA_AVX2;
  if (!has_all(states, tile_state) || !has_all(d7, bf16_tile)) return TR_ISA_AVX512;
  if (syscall(SYS_arch_prctl, ARCH_REQUEST_STATE, STATE_TILE_DATA) != 0) return TR_ISA_AVX512;
  return TR_ISA_AMX;
}

static int brand(char text[49]) {
  uint32_t word[12] = {0};
  for (uint32_t i = 0; i < 3; i++) {
    uint32_t *w = word + (size_t)i * 4;
    if (!__get_cpuid(0x80000002u + i, w, w + 1, w + 2, w + 3)) return 0;
  }
  memcpy(text, word, sizeof word);
  text[48] = '\0';
  return 1;
}
#else
static tr_isa detect(void) { return TR_ISA_BASE; }

static int brand(char text[49]) {
  text[0] = '\0';
  return 0;
}
#endif

const char *tr_isa_name(tr_isa isa) {
  static const char *const name[] = {"base", "avx2", "avx512", "amx"};
  return isa >= TR_ISA_BASE && isa <= TR_ISA_AMX ? name[isa] : "unknown";
}

// TRIREME_ISA lowers what was found; it never raises it.
static tr_isa lowered(tr_isa have) {
  const char *text = getenv("TRIREME_ISA");
  if (!text || !text[0]) return have;
  for (int isa = TR_ISA_BASE; isa <= TR_ISA_AMX; isa++) {
    if (strcmp(text, tr_isa_name((tr_isa)isa)) == 0) return (tr_isa)isa < have ? (tr_isa)isa : have;
  }
  tr_log_warn("TRIREME_ISA='%s' is ignored: give base, avx2, avx512 or amx", text);
  return have;
}

tr_isa tr_cpu_isa(void) {
  int isa = atomic_load_explicit(&isa_found, memory_order_relaxed);
  if (isa == ISA_UNKNOWN) {
    isa = (int)lowered(detect());
    atomic_store_explicit(&isa_found, isa, memory_order_relaxed);
  }
  return (tr_isa)isa;
}

int tr_cpu_count(void) {
  // The kernel refuses a set smaller than its own, whose size it does not tell.
  for (int ncpu = CPU_SETSIZE; ncpu <= NCPU_MAX; ncpu *= 2) {
    cpu_set_t *set = CPU_ALLOC(ncpu);
    if (!set) break;
    size_t nbyte = CPU_ALLOC_SIZE(ncpu);
    int ok = sched_getaffinity(0, nbyte, set) == 0;
    int too_small = !ok && errno == EINVAL;
    int count = ok ? CPU_COUNT_S(nbyte, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
    if (!too_small) break;
  }
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? (int)online : 1;
}

void tr_cpu_name(char *out, size_t nbyte) {
  char text[49];
  struct utsname host;
  if (nbyte == 0) return;
  if (brand(text) && text[strspn(text, " ")]) {
    snprintf(out, nbyte, "%s", text + strspn(text, " "));
  } else {
    snprintf(out, nbyte, "%s processor", uname(&host) == 0 ? host.machine : "unknown");
  }
  size_t n = strlen(out);
  while (n > 0 && out[n - 1] == ' ') out[--n] = '\0';
}

// Small text files of the system; "" when there is none.
static void read_text(const char *path, char *out, size_t nbyte) {
  FILE *file = fopen(path, "re");
  size_t n = file ? fread(out, 1, nbyte - 1, file) : 0;
  out[n] = '\0';
  if (file) fclose(file);
}

static size_t read_limit(const char *folder, const char *name) {
  char path[PATH_SIZE], text[64], *end;
  if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return SIZE_MAX;
  read_text(path, text, sizeof text);
  if (text[0] < '0' || text[0] > '9') return SIZE_MAX; // absent, or "max"
  unsigned long long limit = strtoull(text, &end, 10);
  // Version 1 says "no limit" with a number near 2^63.
  return limit == 0 || limit >= (unsigned long long)INT64_MAX / 2 ? SIZE_MAX : (size_t)limit;
}

// From the group up to the root: each level may be the tightest. Groups a container cannot see are passed over.
static size_t limit_upwards(const char *root, const char *group, size_t ngroup, const char *name) {
  char folder[PATH_SIZE];
  size_t limit = SIZE_MAX, nroot = strlen(root);
  if (nroot + ngroup >= sizeof folder) return limit;
  memcpy(folder, root, nroot);
  memcpy(folder + nroot, group, ngroup);
  folder[nroot + ngroup] = '\0';
  for (;;) {
    size_t here = read_limit(folder, name);
    if (here < limit) limit = here;
    if (strlen(folder) <= nroot) return limit;
    *strrchr(folder + nroot, '/') = '\0';
  }
}

size_t tr__cpu_cgroup_limit(const char *membership, const char *root) {
  char folder[PATH_SIZE];
  size_t limit = SIZE_MAX;
  for (const char *line = membership; *line;) {
    size_t n = strcspn(line, "\n");
    const char *kinds = memchr(line, ':', n);
    const char *group = kinds ? memchr(kinds + 1, ':', n - (size_t)(kinds + 1 - line)) : NULL;
    if (group && group[1] == '/') {
      size_t nkinds = (size_t)(group - kinds - 1), ngroup = n - (size_t)(group + 1 - line), here = SIZE_MAX;
      if (nkinds == 0) { // version 2: one hierarchy, no kinds
        here = limit_upwards(root, group + 1, ngroup, "memory.max");
      } else if (nkinds == 6 && memcmp(kinds + 1, "memory", 6) == 0) {
        snprintf(folder, sizeof folder, "%s/memory", root);
        here = limit_upwards(folder, group + 1, ngroup, "memory.limit_in_bytes");
      }
      if (here < limit) limit = here;
    }
    line += n + (line[n] == '\n');
  }
  return limit;
}

// TRIREME_MEMORY lowers what was found, as TRIREME_ISA does.
static size_t lowered_memory(size_t have) {
  const char *text = getenv("TRIREME_MEMORY");
  int64_t bytes;
  if (!text || !text[0]) return have;
  if (tr_parse_count(text, &bytes) == TR_OK && bytes > 0) return (size_t)bytes < have ? (size_t)bytes : have;
  static atomic_flag said = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&said)) tr_log_warn("TRIREME_MEMORY='%s' is ignored: give bytes, such as 8G", text);
  return have;
}

size_t tr_cpu_memory(void) {
  char membership[CGROUP_TEXT_SIZE];
  struct sysinfo info;
  size_t memory = SIZE_MAX;
  if (sysinfo(&info) == 0) memory = (size_t)info.totalram * info.mem_unit;
  read_text("/proc/self/cgroup", membership, sizeof membership);
  size_t limit = tr__cpu_cgroup_limit(membership, "/sys/fs/cgroup");
  if (limit < memory) memory = limit;
  return lowered_memory(memory);
}
