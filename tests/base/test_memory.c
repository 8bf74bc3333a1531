// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 30
// Proves that memory is counted when it is touched, not when it is mapped, and given back when it is unmapped; and that
// shared memory counts whoever touched it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "thread_sanitizer.h"
#include "trireme/base/memory.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 24 << 20, SLACK = 1 << 20 };

static char *map(int kind) {
  char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
  assert_true(memory != MAP_FAILED);
  return memory;
}

static void private_memory_counts_when_touched(void **state) {
  (void)state;
  size_t before = tr_memory_private();
  // 0: a system that does not say. The thread sanitizer takes private memory of its own for every byte that is touched.
  if (before == 0 || THREAD_SANITIZER) skip();
  char *memory = map(MAP_PRIVATE);
  assert_true(tr_memory_private() < before + SLACK);
  memset(memory, 1, BYTES);
  size_t with = tr_memory_private();
  assert_true(with > before + BYTES - SLACK && with < before + BYTES + SLACK);
  munmap(memory, BYTES);
  assert_true(tr_memory_private() < before + SLACK);
}

static void shared_memory_counts_whoever_touched_it(void **state) {
  (void)state;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *memory = map(MAP_SHARED);
  assert_int_equal(tr_memory_shared(memory, BYTES), 0);
  memory[5 * page] = 1;
  assert_int_equal(tr_memory_shared(memory, BYTES), page);
  assert_int_equal(tr_memory_shared(memory, 5 * page), 0);
  assert_int_equal(tr_memory_shared(memory, 5 * page + 1), page);
  pid_t child = fork();
  if (child == 0) {
    memset(memory + BYTES / 2, 1, BYTES / 2);
    _exit(0);
  }
  int how;
  assert_int_equal(waitpid(child, &how, 0), child);
  assert_int_equal(tr_memory_shared(memory, BYTES), page + BYTES / 2);
  munmap(memory, BYTES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(private_memory_counts_when_touched),
      cmocka_unit_test(shared_memory_counts_whoever_touched_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
