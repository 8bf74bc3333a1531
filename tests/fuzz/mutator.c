// SPDX-License-Identifier: MIT
// What libFuzzer is to do with an input: where it is JSON or a table, change values in half of the cases; else bytes, as it does itself.
#include "fuzz/fuzz.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
  uint64_t state = seed;
  size_t written = fuzz_random(&state) % 2 ? fuzz_damage_value(data, size, room, &state) : 0;
  return written ? written : LLVMFuzzerMutate(data, size, room);
}
