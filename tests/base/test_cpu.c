// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that the instruction set found is one the processor reports, that TRIREME_ISA lowers and never raises it,
// that the processor count follows the affinity, and that control group limits are read in both versions.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cpu_internal.h"
#include "trireme/base/cpu.h"
#include "trireme/base/file.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEXT_SIZE = 512 };

// The answer is kept for the life of a process, so each question is asked in a child of its own.
static int isa_with(const char *environment) {
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    if (environment) {
      setenv("TRIREME_ISA", environment, 1);
    } else {
      unsetenv("TRIREME_ISA");
    }
    int first = tr_cpu_isa();
    _exit(first == (int)tr_cpu_isa() ? first : 99);
  }
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static void environment_lowers_and_never_raises(void **state) {
  (void)state;
  int have = isa_with(NULL);
  assert_in_range(have, TR_ISA_BASE, TR_ISA_AMX);
  static const char *const name[] = {"base", "avx2", "avx512", "amx"};
  for (int isa = TR_ISA_BASE; isa <= TR_ISA_AMX; isa++) {
    assert_string_equal(tr_isa_name((tr_isa)isa), name[isa]);
    assert_int_equal(isa_with(name[isa]), isa < have ? isa : have);
  }
  assert_int_equal(isa_with(""), have);
  assert_int_equal(isa_with("nonsense"), have);
}

// The kernel's own list: a flag is shown only when the system enabled it.
static int kernel_lists(const char *flag) {
  char *text = NULL, word[32];
  size_t n = 0;
  assert_int_equal(tr_file_read("/proc/cpuinfo", 1 << 24, &text, &n), TR_OK);
  char *line = strstr(text, "\nflags");
  int found = 0;
  if (line) {
    line[1 + strcspn(line + 1, "\n")] = '\0';
    strcat(strcpy(word, " "), flag);
    char *at = strstr(line, word);
    found = at && (at[strlen(word)] == ' ' || at[strlen(word)] == '\0');
  }
  free(text);
  return found;
}

static void the_instruction_set_agrees_with_the_kernels_list(void **state) {
  (void)state;
  int avx2 = kernel_lists("avx2") && kernel_lists("fma") && kernel_lists("f16c");
  int avx512 = avx2 && kernel_lists("avx512f") && kernel_lists("avx512bw") && kernel_lists("avx512vl") &&
               kernel_lists("avx512dq");
  int isa = isa_with(NULL);
  assert_int_equal(isa >= TR_ISA_AVX2, avx2);
  assert_int_equal(isa >= TR_ISA_AVX512, avx512);
  if (isa == TR_ISA_AMX) assert_true(kernel_lists("amx_tile") && kernel_lists("amx_bf16"));
}

static void the_count_follows_the_affinity(void **state) {
  (void)state;
  cpu_set_t before, one;
  int count = tr_cpu_count();
  assert_true(count >= 1);
  assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
  assert_int_equal(count, CPU_COUNT(&before));
  int cpu = 0;
  while (!CPU_ISSET(cpu, &before)) cpu++;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  assert_int_equal(tr_cpu_count(), 1);
  assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void the_name_is_trimmed_and_fits(void **state) {
  (void)state;
  char name[128], small[6] = "?????";
  tr_cpu_name(name, sizeof name);
  assert_true(name[0] != '\0' && name[0] != ' ' && name[strlen(name) - 1] != ' ');
  tr_cpu_name(small, sizeof small);
  assert_true(strlen(small) <= 5 && strncmp(name, small, strlen(small)) == 0);
}

static void memory_is_at_most_what_the_kernel_reports(void **state) {
  (void)state;
  char *text = NULL;
  size_t n = 0, total_kib = 0;
  assert_int_equal(tr_file_read("/proc/meminfo", 1 << 20, &text, &n), TR_OK);
  assert_int_equal(sscanf(text, "MemTotal: %zu kB", &total_kib), 1);
  free(text);
  assert_in_range(tr_cpu_memory(), 1 << 20, total_kib * 1024);
}

static char root[TEXT_SIZE / 2];

static void put(const char *folder, const char *name, const char *text) {
  char path[TEXT_SIZE];
  snprintf(path, sizeof path, "%s/%s", root, folder);
  assert_int_equal(tr_file_make_folders(path), TR_OK);
  snprintf(path, sizeof path, "%s/%s/%s", root, folder, name);
  assert_int_equal(tr_file_write_atomic(path, text, strlen(text)), TR_OK);
}

static void version_2_takes_the_tightest_level(void **state) {
  (void)state;
  put("a/b/c", "memory.max", "max\n");
  put("a/b", "memory.max", "5000000\n");
  put("a", "memory.max", "7000000\n");
  assert_int_equal(tr__cpu_cgroup_limit("0::/a/b/c\n", root), 5000000);
  assert_int_equal(tr__cpu_cgroup_limit("0::/a\n", root), 7000000);
  assert_true(tr__cpu_cgroup_limit("0::/\n", root) == SIZE_MAX);
  assert_int_equal(tr__cpu_cgroup_limit("0::/a/b/hidden/from/here", root), 5000000);
  put("", "memory.max", "4000000\n"); // a container sees its own group as the root
  assert_int_equal(tr__cpu_cgroup_limit("0::/\n", root), 4000000);
}

static void version_1_reads_the_memory_hierarchy(void **state) {
  (void)state;
  put("memory/job", "memory.limit_in_bytes", "123456789\n");
  put("memory", "memory.limit_in_bytes", "9223372036854771712\n"); // what "none" looks like
  const char *membership = "11:cpu,cpuacct:/job\n4:memory:/job\n1:name=systemd:/x\n0::/x\n";
  assert_int_equal(tr__cpu_cgroup_limit(membership, root), 123456789);
  assert_true(tr__cpu_cgroup_limit("4:memory:/\n", root) == SIZE_MAX);
}

static void malformed_membership_means_no_limit(void **state) {
  (void)state;
  put("", "memory.max", "1000\n");
  static const char *const text[] = {"", "\n", ":", "::", "0:", "0::", "0::x", "\n\n:\n", "garbage", "0:cpu:/\n"};
  for (size_t i = 0; i < sizeof text / sizeof text[0]; i++) {
    assert_true(tr__cpu_cgroup_limit(text[i], root) == SIZE_MAX);
  }
  assert_int_equal(tr__cpu_cgroup_limit("garbage\n0::/", root), 1000);
}

static int make_root(void **state) {
  (void)state;
  const char *base = getenv("TMPDIR");
  snprintf(root, sizeof root, "%s/trireme-cpu-XXXXXX", base && base[0] ? base : "/tmp");
  return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
  (void)state;
  return tr_file_remove_tree(root) == TR_OK ? 0 : -1;
}

#define WITH_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(environment_lowers_and_never_raises),
      cmocka_unit_test(the_instruction_set_agrees_with_the_kernels_list),
      cmocka_unit_test(the_count_follows_the_affinity),
      cmocka_unit_test(the_name_is_trimmed_and_fits),
      cmocka_unit_test(memory_is_at_most_what_the_kernel_reports),
      WITH_ROOT(version_2_takes_the_tightest_level),
      WITH_ROOT(version_1_reads_the_memory_hierarchy),
      WITH_ROOT(malformed_membership_means_no_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
