// SPDX-License-Identifier: MIT
// What reading and writing token files share: the fixed parts of the formats, and the inside of an open corpus.
//
//   llm.c     i32 magic, version, count of tokens, 253 zeros; tokens
//   megatron  .idx: "MMIDIDX\0\0", u64 version 1, u8 type, u64 S sequences, u64 D bounds of documents, i32 size[S],
//             i64 byte[S], i64 bound[D], optionally i8 mode[S]; document i is sequences bound[i] .. bound[i + 1] - 1
//
// corpus.c opens files and answers, megatron.c checks an index, token_type.c turns bytes into token numbers.
#ifndef TRIREME_DATA_CORPUS_INTERNAL_H
#define TRIREME_DATA_CORPUS_INTERNAL_H

#include "trireme/base/file.h"
#include "trireme/data/corpus.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are read and written as they are in memory");

#define TR__MEGATRON_MAGIC "MMIDIDX\0" // and the terminating zero
enum {
  TR__MEGATRON_MAGIC_SIZE = 9,
  TR__MEGATRON_HEADER = 34,
  TR__LLMC_HEADER = 1024,
  TR__LLMC_MAGIC_U16 = 20240520,
  TR__LLMC_VERSION_U16 = 1,
  TR__LLMC_MAGIC_U32 = 20240801,
  TR__LLMC_VERSION_U32 = 7
};

// Types of a token, numbered as in a Megatron index.
typedef enum tr__token_type {
  TR__TOKEN_U8 = 1,
  TR__TOKEN_I8,
  TR__TOKEN_I16,
  TR__TOKEN_I32,
  TR__TOKEN_I64,
  TR__TOKEN_F64,
  TR__TOKEN_F32,
  TR__TOKEN_U16,
  TR__TOKEN_U32 // not in Megatron's table
} tr__token_type;
size_t tr__token_size(tr__token_type type); // 0: no type that tokens can have
const char *tr__token_type_name(int type);  // NULL: no such number
// Tokens at `bytes` (aligned for their type) as i32. Returns the largest of them; a negative one counts as larger than
// all others, and one beyond 31 bits is cut in `out`.
uint64_t tr__token_widen(tr__token_type type, const unsigned char *bytes, int64_t count, int32_t *out);

// A mapped file. Its descriptor stays open, so that it is seen when the file becomes shorter.
typedef struct tr__corpus_file {
  char *path; // NULL: not in use
  int fd;
  tr_file_map map;
} tr__corpus_file;

// A checked Megatron index. Its arrays are not aligned in the file.
typedef struct tr__megatron {
  int64_t nsequence, nbound;
  const unsigned char *size, *byte, *bound;
  int64_t *place; // [2 * nsequence] first token and first byte of each; NULL: they lie one after the other
} tr__megatron;

struct tr_corpus {
  tr_corpus_format format;
  tr__token_type type;
  size_t unit, header; // bytes of a token, and before the first one
  int64_t tokens, vocab;
  int32_t end;
  uint64_t hash;
  tr__corpus_file bin, idx;
  tr__megatron megatron;
  int64_t *start; // [ndocument + 1]; NULL before tr_corpus_index
  int64_t ndocument;
};

// tr_corpus_read in two parts: what was copied counts once the file is found whole after it. One check does for many copies.
tr_status tr__corpus_copy(const tr_corpus *corpus, int64_t first, int64_t count, int32_t *out);
tr_status tr__corpus_check(const tr_corpus *corpus);

// Check corpus->idx against corpus->bin and set type, unit, tokens and megatron.
tr_status tr__megatron_open(tr_corpus *corpus);
// The bounds of its documents in tokens: sets start and ndocument.
tr_status tr__megatron_index(tr_corpus *corpus);
// The run of bytes that holds `token`, of which *count tokens follow.
const unsigned char *tr__megatron_run(const tr_corpus *corpus, int64_t token, int64_t *count);

#endif
