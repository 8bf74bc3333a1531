// SPDX-License-Identifier: MIT
// Inside of the cpu file that the pool and the tests use.
//
// Holds the one instruction the pool's spinning needs and the reading of control group limits, apart from the
// files of the running system so that it can be tried on made-up ones. Not part of the public interface.
#ifndef TRIREME_BASE_CPU_INTERNAL_H
#define TRIREME_BASE_CPU_INTERNAL_H

#include <stddef.h>

// Tell the core that this is a waiting loop.
static inline void tr__cpu_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

// The smallest memory limit on the way from a process's control group up to the root of the hierarchy; SIZE_MAX if
// none. `membership` is the text of /proc/self/cgroup, `root` the folder where control groups are mounted.
size_t tr__cpu_cgroup_limit(const char *membership, const char *root);

#endif
