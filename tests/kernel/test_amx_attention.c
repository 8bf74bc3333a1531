// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Attention whose products run on AMX tiles agrees with the reference table, in both directions, and has the same bits for
// 1, 2 and 3 threads. The tiles are emulated (amx_emulated.h); attention_cases.h has the cases.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/amx_emulated.h"
#include "kernel/attention_cases.h"
#include "thin.h"

#define TR_AMX_TABLE emulated_tiles
#include "kernel/amx_body.h"

static int set_up(void **state) {
  conform_setup(state);
  conform_bench *b = *state;
  for (int t = 0; t < CONFORM_TABLE; t++) ((tr_backend *)b->table[t].backend)->amx = &emulated_tiles;
  return 0;
}

static int for_tiles(int heads) { return HEADS[heads].dim % TR_AMX_SIDE == 0; }

static void attention_forward_agrees(void **state) {
  int turn = 0; // walks through the options
  for (int l = 0; l < COUNT(LAYOUTS); l++)
    for (int h = 0; h < COUNT(HEADS); h++)
      for (int i = 0; i < (1 + THIN) / THIN && for_tiles(h); i++, turn += 3)
        check_attention_forward(*state, &LAYOUTS[l], h, TR_BF16, turn % 8);
}

static void attention_backward_agrees(void **state) {
  int turn = 0;
  for (int l = 0; l < COUNT(LAYOUTS); l++)
    for (int h = 0; h < COUNT(HEADS); h++)
      for (int i = 0; i < (1 + THIN) / THIN && for_tiles(h); i++, turn += 13)
        check_attention_backward(*state, &LAYOUTS[l], h, TR_BF16, turn % 32);
}

// Several chunks of keys and of queries, and blocks that lie partly behind the last row.
static void long_sequences_agree(void **state) {
  static const layout longest = {"several chunks", 2, {470, 35}, {470, 100}, {0, 65}, 0, 0};
  for (int h = 0; h < COUNT(HEADS); h++) {
    if (!for_tiles(h) || (THIN > 1 && h % 2)) continue;
    check_attention_forward(*state, &longest, h, TR_BF16, 1);
    check_attention_backward(*state, &longest, h, TR_BF16, 16);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(attention_forward_agrees),
      cmocka_unit_test(attention_backward_agrees),
      cmocka_unit_test(long_sequences_agree),
  };
  return cmocka_run_group_tests(tests, set_up, conform_teardown);
}
