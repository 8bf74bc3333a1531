// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that the checksum gives the published answers, in one piece or in several, and differs for any changed byte.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/crc32c.h"

#include <string.h>

enum { SIZE = 48 };

static void published_answers(void **state) {
  (void)state;
  unsigned char zeros[32] = {0}, ones[32], rising[32], falling[32];
  memset(ones, 0xff, sizeof ones);
  for (int i = 0; i < 32; i++) rising[i] = (unsigned char)i, falling[i] = (unsigned char)(31 - i);
  const unsigned char scsi_read[SIZE] = {
      0x01, 0xc0, [16] = 0x14, [22] = 0x04, [27] = 0x14, [31] = 0x18, 0x28, [40] = 0x02};
  const struct {
    const void *data;
    size_t nbyte;
    uint32_t want;
  } rows[] = {
      {"", 0, 0},
      {"a", 1, 0xc1d04330u},
      {"123456789", 9, 0xe3069283u},
      {zeros, 32, 0x8a9136aau}, // from here on: RFC 3720, B.4
      {ones, 32, 0x62a8ab43u},
      {rising, 32, 0x46dd794eu},
      {falling, 32, 0x113fdb5cu},
      {scsi_read, SIZE, 0xd9963a56u},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    uint32_t crc = tr_crc32c(0, rows[i].data, rows[i].nbyte);
    if (crc != rows[i].want) fail_msg("row %zu: %08x instead of %08x", i, crc, rows[i].want);
  }
}

static void pieces_give_the_checksum_of_the_whole(void **state) {
  (void)state;
  unsigned char data[SIZE];
  for (int i = 0; i < SIZE; i++) data[i] = (unsigned char)(i * 37 + 11);
  uint32_t whole = tr_crc32c(0, data, SIZE);
  for (size_t cut = 0; cut <= SIZE; cut++) {
    assert_int_equal(tr_crc32c(tr_crc32c(0, data, cut), data + cut, SIZE - cut), whole);
  }
}

static void a_change_of_any_bit_changes_it(void **state) {
  (void)state;
  unsigned char data[SIZE] = "some bytes whose checksum must notice changes";
  uint32_t whole = tr_crc32c(0, data, SIZE);
  for (int i = 0; i < SIZE * 8; i++) {
    data[i / 8] ^= (unsigned char)(1 << i % 8);
    assert_int_not_equal(tr_crc32c(0, data, SIZE), whole);
    data[i / 8] ^= (unsigned char)(1 << i % 8);
  }
}

static void the_stored_form_is_rotated_and_shifted(void **state) {
  (void)state;
  assert_int_equal(tr_crc32c_masked(0), 0xa282ead8u);
  assert_int_equal(tr_crc32c_masked(0x00008000u), 0xa282ead9u);
  assert_int_equal(tr_crc32c_masked(0x00000001u), 0xa284ead8u);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(published_answers),
      cmocka_unit_test(pieces_give_the_checksum_of_the_whole),
      cmocka_unit_test(a_change_of_any_bit_changes_it),
      cmocka_unit_test(the_stored_form_is_rotated_and_shifted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
