// SPDX-License-Identifier: MIT
// CRC-32C (Castagnoli), as in RFC 3720, appendix B.4: the checksum of TensorBoard's event files and of frames on a wire.
#ifndef TRIREME_BASE_CRC32C_H
#define TRIREME_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

// Go on from `crc` (0 at the start) over these bytes.
uint32_t tr_crc32c(uint32_t crc, const void *data, size_t nbyte);
// The form in which TFRecord files store it: rotated by 15 bits, plus 0xa282ead8.
uint32_t tr_crc32c_masked(uint32_t crc);

#endif
