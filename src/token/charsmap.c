// SPDX-License-Identifier: MIT
// SentencePiece's precompiled map of characters: a trie in a double array, and the replacements that it leads to.
//
//   base64 of: u32 bytes of the array | the array, u32 each | replacements, each ended by a zero byte
//
// All little-endian. A unit of the array (of "Darts-clone", after Aoe's double array) holds
//
//   bit 31      this unit is a value: its bits 0-30 are the offset of a replacement
//   bits 10-30  where the children stand, shifted left by 8 when bit 9 is set; exclusive or with the unit's own place
//   bit 8       a value stands there itself: the text up to here has a replacement
//   bits 0-7    the byte that led here
//
// As in the `tokenizers` library, what is looked up is a grapheme of fewer than 6 bytes, then each of its characters; the
// shortest text of the map that begins it replaces the whole of it. The file is not trusted: every value is checked when it
// is read, and every step stays inside the array.
#include "token/normalize_internal.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { GRAPHEME_LIMIT = 6 };

struct tr__charsmap {
  uint32_t *unit;
  size_t nunit;
  unsigned char *bytes; // the decoded whole; owns `text`
  const char *text;     // replacements
  size_t ntext;
};

static uint32_t unit_children(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }
static int unit_ends(uint32_t unit) { return (unit >> 8) & 1; }
static uint32_t unit_label(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
static uint32_t unit_value(uint32_t unit) { return unit & ~(1u << 31); }

static int base64_digit(unsigned char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// Into `out`, which has room for 3 bytes to every 4; 0 when it is not base64 with its padding.
static int base64_decode(const char *text, size_t nbyte, unsigned char *out, size_t *nout) {
  if (nbyte % 4 != 0) return 0;
  size_t padding = 0, n = 0;
  while (padding < 2 && padding < nbyte && text[nbyte - 1 - padding] == '=') padding++;
  for (size_t i = 0; i < nbyte; i += 4) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 4; k++) {
      int digit = i + k >= nbyte - padding ? 0 : base64_digit((unsigned char)text[i + k]);
      if (digit < 0) return 0;
      bits = bits << 6 | (uint32_t)digit;
    }
    for (int shift = 16; shift >= 0; shift -= 8) out[n++] = (unsigned char)(bits >> shift);
  }
  *nout = n - padding;
  return 1;
}

static uint32_t read_u32(const unsigned char *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

// A unit that says that a value stands below it must lead to one, and the value to the start of a character.
static tr_status check_unit(const tr__charsmap *map, size_t place, const char *name) {
  uint32_t unit = map->unit[place];
  if (unit >> 31 || !unit_ends(unit)) return TR_OK;
  size_t below = place ^ unit_children(unit);
  if (below >= map->nunit)
    return tr_error(TR_ERR_DATA, "%s: unit %zu of the precompiled_charsmap leads to unit %zu of %zu", name, place,
                    below, map->nunit);
  uint32_t value = unit_value(map->unit[below]);
  if (value > map->ntext || (value < map->ntext && ((unsigned char)map->text[value] & 0xC0) == 0x80))
    return tr_error(TR_ERR_DATA, "%s: unit %zu of the precompiled_charsmap has its replacement at %u of %zu bytes",
                    name, place, value, map->ntext);
  return TR_OK;
}

static tr_status check_text(const tr__charsmap *map, const char *name) {
  int32_t character;
  for (size_t i = 0; i < map->ntext;) {
    int n = tr__utf8_next(map->text + i, map->ntext - i, &character);
    if (n == 0)
      return tr_error(TR_ERR_DATA, "%s: the replacements of the precompiled_charsmap are not UTF-8 at byte %zu", name,
                      i);
    i += (size_t)n;
  }
  return TR_OK;
}

static tr_status read_map(tr__charsmap *map, const char *base64, size_t nbase64, const char *name) {
  size_t nbyte = 0;
  map->bytes = malloc(nbase64 / 4 * 3 + 3);
  if (!map->bytes) return tr_error(TR_ERR_MEMORY, "no memory for a precompiled_charsmap of %zu bytes", nbase64);
  if (!base64_decode(base64, nbase64, map->bytes, &nbyte))
    return tr_error(TR_ERR_DATA, "%s: the precompiled_charsmap is not base64", name);
  uint32_t narray = nbyte >= 4 ? read_u32(map->bytes) : 0;
  if (narray == 0 || narray % 4 != 0 || narray > nbyte - 4)
    return tr_error(TR_ERR_DATA, "%s: the precompiled_charsmap has %zu bytes and says that %u are its trie", name,
                    nbyte, narray);
  map->nunit = narray / 4;
  map->text = (const char *)map->bytes + 4 + narray;
  map->ntext = nbyte - 4 - narray;
  map->unit = malloc(narray);
  if (!map->unit) return tr_error(TR_ERR_MEMORY, "no memory for a trie of %u bytes", narray);
  for (size_t i = 0; i < map->nunit; i++) map->unit[i] = read_u32(map->bytes + 4 + 4 * i);
  for (size_t i = 0; i < map->nunit; i++) TR_TRY(check_unit(map, i, name));
  return check_text(map, name);
}

tr_status tr__charsmap_parse(const char *base64, size_t nbyte, const char *name, tr__charsmap **out) {
  tr__charsmap *map = calloc(1, sizeof *map);
  if (!map) return tr_error(TR_ERR_MEMORY, "no memory for a precompiled_charsmap");
  tr_status status = read_map(map, base64, nbyte, name);
  if (status < 0) {
    tr__charsmap_free(map);
    return status;
  }
  *out = map;
  return TR_OK;
}

void tr__charsmap_free(tr__charsmap *map) {
  if (!map) return;
  free(map->unit);
  free(map->bytes);
  free(map);
}

// What replaces a text: that of the shortest beginning that the map knows. NULL: none.
static const char *look_up(const tr__charsmap *map, const char *text, size_t nbyte, size_t *nfound) {
  size_t place = unit_children(map->unit[0]);
  for (size_t i = 0; i < nbyte && text[i] != '\0'; i++) {
    unsigned char byte = (unsigned char)text[i];
    place ^= byte;
    if (place >= map->nunit || unit_label(map->unit[place]) != byte) return NULL;
    uint32_t unit = map->unit[place];
    place ^= unit_children(unit);
    if (!unit_ends(unit)) continue;
    size_t at = unit_value(map->unit[place]);
    const char *found = map->text + at, *end = memchr(found, 0, map->ntext - at);
    *nfound = end ? (size_t)(end - found) : map->ntext - at;
    return found;
  }
  return NULL;
}

// Bytes of the grapheme at the front of a text.
static size_t grapheme(const char *text, size_t nbyte) {
  int32_t before, after, state = 0;
  size_t n = (size_t)tr__utf8_next(text, nbyte, &before);
  while (n > 0 && n < nbyte) {
    int more = tr__utf8_next(text + n, nbyte - n, &after);
    if (more == 0 || utf8proc_grapheme_break_stateful(before, after, &state)) break;
    before = after;
    n += (size_t)more;
  }
  return n;
}

// One character, replaced or as it is; its bytes.
static size_t put_character(const tr__charsmap *map, const char *text, size_t nbyte, tr_text *out) {
  int32_t character;
  size_t n = (size_t)tr__utf8_next(text, nbyte, &character), nfound = n;
  const char *found = look_up(map, text, n, &nfound);
  tr_text_append_bytes(out, found ? found : text, nfound);
  return n;
}

tr_status tr__charsmap_apply(const tr__charsmap *map, const char *text, size_t nbyte, tr_text *out) {
  for (size_t i = 0; i < nbyte;) {
    size_t n = grapheme(text + i, nbyte - i), nfound = 0;
    if (n == 0) return tr_error(TR_ERR_INTERNAL, "a text to normalize is not UTF-8");
    size_t end = i + n;
    const char *found = n < GRAPHEME_LIMIT ? look_up(map, text + i, n, &nfound) : NULL;
    if (found) {
      tr_text_append_bytes(out, found, nfound);
      i = end;
    }
    while (i < end) i += put_character(map, text + i, end - i, out);
  }
  return out->failed ? TR_ERR_MEMORY : TR_OK;
}
