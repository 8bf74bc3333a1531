// SPDX-License-Identifier: MIT
// UTF-8, one character at a time, and the byte-level alphabet.
//
// The alphabet gives each byte a printable character: itself where it is printable in Latin-1, and else the next of the
// characters from U+0100 on. Repair follows Unicode's "substitution of maximal subparts" (chapter 3, table 3-8): what starts
// a well-formed sequence and breaks off becomes one U+FFFD, every other byte one of its own.
#include "token/token_internal.h"

#include <string.h>

enum { LATIN_FIRST = 0xA1, SOFT_HYPHEN = 0xAD, ALPHABET_NEXT = 0x100, ALPHABET_END = 0x144 };

// Bytes of the sequence that `lead` begins (0: none), and the range of the byte that follows it.
static int lead_length(unsigned char lead, unsigned char *low, unsigned char *high) {
  *low = 0x80;
  *high = 0xBF;
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (lead == 0xE0) *low = 0xA0;
    if (lead == 0xED) *high = 0x9F;
    return 3;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (lead == 0xF0) *low = 0x90;
    if (lead == 0xF4) *high = 0x8F;
    return 4;
  }
  return 0;
}

// How many bytes of a well-formed sequence stand at `text`; `*whole` when it is complete.
static size_t well_formed(const unsigned char *text, size_t nbyte, int *whole) {
  unsigned char low, high;
  int length = lead_length(text[0], &low, &high);
  *whole = length == 1;
  if (length <= 1) return length == 1;
  size_t n = 1;
  while (n < (size_t)length && n < nbyte && text[n] >= low && text[n] <= high) {
    low = 0x80;
    high = 0xBF;
    n++;
  }
  *whole = n == (size_t)length;
  return n;
}

int tr__utf8_next(const char *text, size_t nbyte, int32_t *character) {
  const unsigned char *byte = (const unsigned char *)text;
  int whole;
  if (nbyte == 0) return 0;
  size_t n = well_formed(byte, nbyte, &whole);
  if (!whole) return 0;
  static const unsigned char mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
  int32_t value = byte[0] & mask[n];
  for (size_t i = 1; i < n; i++) value = value << 6 | (byte[i] & 0x3F);
  *character = value;
  return (int)n;
}

size_t tr__utf8_put(int32_t character, char out[4]) {
  uint32_t c = (uint32_t)character;
  if (c < 0x80) {
    out[0] = (char)c;
    return 1;
  }
  size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  static const unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (size_t i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
  out[0] = (char)(lead[n] | c);
  return n;
}

static int stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= LATIN_FIRST && byte != SOFT_HYPHEN);
}

int32_t tr__byte_to_character(unsigned char byte) {
  if (stands_for_itself(byte)) return byte;
  if (byte == SOFT_HYPHEN) return ALPHABET_END - 1;
  return byte < '!' ? ALPHABET_NEXT + byte : ALPHABET_NEXT + '!' + (byte - 0x7F);
}

int tr__character_to_byte(int32_t character) {
  if (character < ALPHABET_NEXT) return character >= 0 && stands_for_itself(character) ? character : -1;
  if (character < ALPHABET_NEXT + '!') return character - ALPHABET_NEXT;
  if (character < ALPHABET_END - 1) return character - ALPHABET_NEXT - '!' + 0x7F;
  return character < ALPHABET_END ? SOFT_HYPHEN : -1;
}

void tr_utf8_repair(const char *text, size_t nbyte, tr_text *out) {
  const unsigned char *byte = (const unsigned char *)text;
  size_t start = 0; // of what is well-formed and not yet copied
  for (size_t i = 0; i < nbyte;) {
    int whole;
    size_t n = well_formed(byte + i, nbyte - i, &whole);
    if (!whole) {
      tr_text_append_bytes(out, text + start, i - start);
      tr_text_append_bytes(out, "\xEF\xBF\xBD", 3);
      start = i + (n ? n : 1);
    }
    i += n ? n : 1;
  }
  tr_text_append_bytes(out, text + start, nbyte - start);
}

int tr__utf8_valid(const char *text, size_t nbyte) {
  const unsigned char *byte = (const unsigned char *)text;
  for (size_t i = 0; i < nbyte;) {
    uint64_t eight;
    int whole;
    if (nbyte - i >= sizeof eight) {
      memcpy(&eight, byte + i, sizeof eight);
      if (!(eight & UINT64_C(0x8080808080808080))) {
        i += sizeof eight;
        continue;
      }
    }
    i += well_formed(byte + i, nbyte - i, &whole);
    if (!whole) return 0;
  }
  return 1;
}

void tr__bytes_to_alphabet(const char *bytes, size_t nbyte, tr_text *out) {
  for (size_t i = 0; i < nbyte; i++) {
    char character[4];
    size_t n = tr__utf8_put(tr__byte_to_character((unsigned char)bytes[i]), character);
    tr_text_append_bytes(out, character, n);
  }
}
