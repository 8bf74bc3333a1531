// SPDX-License-Identifier: MIT
// CRC-32C byte by byte over a table of 256 remainders.
//
// The remainder of a byte is the exclusive or of the remainders of its bits, so eight constants give the table at compile
// time. About half a gigabyte per second, enough for what it guards; a processor's own instruction would give more.
#include "trireme/base/crc32c.h"

#define BIT(i, b, remainder) ((i) >> (b)&1 ? (remainder) : 0u)
#define R1(i)                                                                                                        \
  BIT(i, 0, 0xf26b8303u) ^ BIT(i, 1, 0xe13b70f7u) ^ BIT(i, 2, 0xc79a971fu) ^ BIT(i, 3, 0x8ad958cfu) ^                \
      BIT(i, 4, 0x105ec76fu) ^ BIT(i, 5, 0x20bd8edeu) ^ BIT(i, 6, 0x417b1dbcu) ^ BIT(i, 7, 0x82f63b78u)
#define R4(i)  R1(i), R1(i + 1), R1(i + 2), R1(i + 3)
#define R16(i) R4(i), R4(i + 4), R4(i + 8), R4(i + 12)
#define R64(i) R16(i), R16(i + 16), R16(i + 32), R16(i + 48)

static const uint32_t remainder_of_byte[256] = {R64(0), R64(64), R64(128), R64(192)};

uint32_t tr_crc32c(uint32_t crc, const void *data, size_t nbyte) {
  const unsigned char *p = data;
  crc = ~crc;
  for (size_t i = 0; i < nbyte; i++) crc = crc >> 8 ^ remainder_of_byte[(crc ^ p[i]) & 0xff];
  return ~crc;
}

uint32_t tr_crc32c_masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }
