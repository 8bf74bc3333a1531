// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves alignment, bounds, exact exhaustion, marks and peaks of arenas, also over memory that starts
// at an odd address.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/arena.h"

#include <string.h>

static int aligned(const void *p) { return (uintptr_t)p % TR_ARENA_ALIGN == 0; }

static void blocks_are_zeroed_aligned_and_apart(void **state) {
  (void)state;
  tr_arena arena;
  assert_int_equal(tr_arena_create(&arena, "test", 1 << 20), TR_OK);
  char *last_end = arena.base;
  for (size_t n = 1; n < 1000; n += 37) {
    char *block = tr_arena_alloc(&arena, n);
    assert_non_null(block);
    assert_true(aligned(block));
    assert_true(block >= last_end);
    for (size_t i = 0; i < n; i++) assert_int_equal(block[i], 0);
    memset(block, 0xAB, n);
    last_end = block + n;
  }
  assert_true(last_end <= arena.base + arena.used);
  tr_arena_destroy(&arena);
  assert_null(arena.base);
}

static void used_is_the_sum_of_rounded_sizes(void **state) {
  (void)state;
  tr_arena arena;
  size_t sum = 0;
  assert_int_equal(tr_arena_create(&arena, "test", 1 << 16), TR_OK);
  for (size_t n = 0; n < 600; n += 61) {
    assert_non_null(tr_arena_alloc(&arena, n));
    sum += tr_arena_rounded(n);
    assert_int_equal(arena.used, sum);
  }
  tr_arena_destroy(&arena);
}

static void size_is_rounded_up_to_pages_and_can_be_used_fully(void **state) {
  (void)state;
  tr_arena arena;
  assert_int_equal(tr_arena_create(&arena, "test", 5000), TR_OK);
  assert_true(arena.size >= 5000 && arena.size % 4096 == 0);
  char *all = tr_arena_alloc(&arena, arena.size);
  assert_non_null(all);
  memset(all, 1, arena.size);
  assert_null(tr_arena_alloc(&arena, 1));
  void *empty = tr_arena_alloc(&arena, 0);
  assert_non_null(empty);
  assert_true(aligned(empty));
  tr_arena_destroy(&arena);
}

static void exhaustion_names_arena_request_and_rest(void **state) {
  (void)state;
  tr_arena arena;
  assert_int_equal(tr_arena_create(&arena, "activations", 512u << 20), TR_OK);
  assert_non_null(tr_arena_alloc(&arena, 502u << 20));
  size_t used = arena.used;
  tr_status_clear();
  assert_null(tr_arena_alloc(&arena, 64u << 20));
  assert_non_null(strstr(tr_status_text(), "arena 'activations': 64"));
  assert_non_null(strstr(tr_status_text(), "MiB asked for, 10"));
  assert_non_null(strstr(tr_status_text(), "MiB of 512"));
  assert_int_equal(arena.used, used);
  tr_arena_destroy(&arena);
}

static void sizes_near_the_end_of_the_address_space_are_refused(void **state) {
  (void)state;
  tr_arena arena;
  assert_int_equal(tr_arena_create(&arena, "huge", SIZE_MAX), TR_ERR_MEMORY);
  assert_int_equal(tr_arena_create(&arena, "huge", SIZE_MAX / 2), TR_ERR_MEMORY);
  assert_non_null(strstr(tr_status_text(), "huge"));
  assert_int_equal(tr_arena_create(&arena, "test", 4096), TR_OK);
  for (size_t less = 0; less < 300; less++) assert_null(tr_arena_alloc(&arena, SIZE_MAX - less));
  assert_int_equal(arena.used, 0);
  tr_arena_destroy(&arena);
}

static void reset_gives_back_and_peak_remembers(void **state) {
  (void)state;
  tr_arena arena;
  assert_int_equal(tr_arena_create(&arena, "test", 1 << 16), TR_OK);
  assert_non_null(tr_arena_alloc(&arena, 1000));
  size_t mark = tr_arena_mark(&arena);
  void *first = tr_arena_alloc(&arena, 5000);
  size_t peak = arena.used;
  tr_arena_reset(&arena, mark);
  assert_int_equal(arena.used, mark);
  assert_int_equal(arena.peak, peak);
  assert_ptr_equal(tr_arena_alloc(&arena, 10), first);
  assert_int_equal(arena.peak, peak);
  tr_arena_destroy(&arena);
}

static void wrapped_memory_may_start_and_end_anywhere(void **state) {
  (void)state;
  static char memory[2000];
  for (size_t start = 0; start < 200; start += 13) {
    tr_arena arena;
    size_t nbyte = 1500, total = 0;
    tr_arena_wrap(&arena, "wrapped", memory + start, nbyte);
    for (char *block; (block = tr_arena_alloc(&arena, 100)); total += 100) {
      assert_true(aligned(block));
      assert_true(block >= memory + start && block + 100 <= memory + start + nbyte);
    }
    assert_true(total >= 1000);
    assert_true(arena.used <= arena.size);
    tr_arena_destroy(&arena); // leaves the memory alone
    memory[start] = 1;
  }
}

static void prefault_keeps_contents(void **state) {
  (void)state;
  tr_arena arena;
  assert_int_equal(tr_arena_create(&arena, "test", 100000), TR_OK);
  char *block = tr_arena_alloc(&arena, 90000);
  memset(block, 0x5C, 90000);
  tr_arena_prefault(&arena, NULL, NULL);
  for (size_t i = 0; i < 90000; i++) assert_int_equal(block[i], 0x5C);
  tr_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(blocks_are_zeroed_aligned_and_apart),
      cmocka_unit_test(used_is_the_sum_of_rounded_sizes),
      cmocka_unit_test(size_is_rounded_up_to_pages_and_can_be_used_fully),
      cmocka_unit_test(exhaustion_names_arena_request_and_rest),
      cmocka_unit_test(sizes_near_the_end_of_the_address_space_are_refused),
      cmocka_unit_test(reset_gives_back_and_peak_remembers),
      cmocka_unit_test(wrapped_memory_may_start_and_end_anywhere),
      cmocka_unit_test(prefault_keeps_contents),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
