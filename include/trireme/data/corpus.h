// SPDX-License-Identifier: MIT
// Token files, read as one long array of tokens with document bounds, whatever program wrote them.
//
//   text      any file, for the byte tokenizer: one token per byte, one document
//   nanogpt   NAME.bin: u16 tokens without a header
//   llm.c     NAME.bin: 256 i32 of header (magic 20240520 version 1: u16 tokens; 20240801 version 7: u32), then tokens
//   megatron  NAME.bin + NAME.idx: tokens of the type that the index gives (u8 i8 i16 i32 i64 u16), sequences, documents
//
// Files are mapped, never read whole, and not trusted: every size and offset is checked before use. A file cut short
// while it is mapped is a named TR_ERR_DATA at the next read. Immutable once open; threads may share one.
#ifndef TRIREME_DATA_CORPUS_H
#define TRIREME_DATA_CORPUS_H

#include "trireme/base/status.h"
#include <stddef.h>
#include <stdint.h>

typedef enum tr_corpus_format {
  TR_CORPUS_TEXT,
  TR_CORPUS_NANOGPT,
  TR_CORPUS_LLMC,
  TR_CORPUS_MEGATRON
} tr_corpus_format;

typedef struct tr_corpus tr_corpus;
typedef struct tr_corpus_options {
  const char *path; // NAME.bin, NAME.idx or NAME of a pair; any file when text
  int text;         // 1: tokens are bytes, unless the file is one of the binary formats by its index or magic number
  int64_t vocab;    // every token read must be below; 0: unchecked
  int32_t end;      // the token that ends a document, where the format has no bounds; -1: one document
} tr_corpus_options;

// TR_ERR_DATA names the file and what would work: missing, empty, a folder, a size that is no whole number of tokens,
// a header that contradicts the file, overlapping or unordered documents. Token ends are looked for only when bounds are
// first needed (tr_corpus_documents).
tr_status tr_corpus_open(const tr_corpus_options *options, tr_corpus **out);
void tr_corpus_close(tr_corpus *corpus); // NULL allowed
const char *tr_corpus_path(const tr_corpus *corpus);
const char *tr_corpus_format_name(const tr_corpus *corpus); // "text", "nanogpt", "llm.c", "megatron"
int64_t tr_corpus_tokens(const tr_corpus *corpus);
uint64_t tr_corpus_hash(const tr_corpus *corpus); // of size, index and contents (above 256 MiB: 256 blocks)
// Find the bounds of documents, if that has not been done. Not for two threads at once.
tr_status tr_corpus_index(tr_corpus *corpus);
int64_t tr_corpus_documents(const tr_corpus *corpus);                  // after tr_corpus_index
int64_t tr_corpus_document_start(const tr_corpus *corpus, int64_t i);  // 0 <= i <= documents: the last is the end
int64_t tr_corpus_document_of(const tr_corpus *corpus, int64_t token); // the document that holds this token
// Tokens first .. first + count - 1 into out. TR_ERR_DATA names file and place of a token that is not in the vocabulary.
tr_status tr_corpus_read(const tr_corpus *corpus, int64_t first, int64_t count, int32_t *out);

// ---- writing
typedef struct tr_corpus_writer tr_corpus_writer;
typedef struct tr_corpus_writer_options {
  const char *path;        // NAME of NAME.bin (and NAME.idx); must not exist unless going on
  tr_corpus_format format; // not TR_CORPUS_TEXT
  int64_t vocab;           // decides the type of a token: u16 up to 65 536, else i32 (megatron) or u32 (llm.c)
} tr_corpus_writer_options;
// How far a writer is: everything before it is on disk after tr_corpus_writer_mark, and a later writer can go on there.
typedef struct tr_corpus_mark {
  int64_t tokens, documents;
  uint64_t hash; // of the tokens so far: checked when going on
  int64_t open;  // tokens of a document that has not ended
} tr_corpus_mark;
// `from` NULL: a new file. Otherwise what lies beyond the mark is cut off. Files are written under temporary names and
// get their own at finish.
tr_status tr_corpus_writer_open(const tr_corpus_writer_options *options, const tr_corpus_mark *from,
                                tr_corpus_writer **out);
tr_status tr_corpus_writer_append(tr_corpus_writer *writer, const int32_t *token, size_t ntoken); // one document
// The beginning of a document that the next append goes on with or ends: for documents larger than memory.
tr_status tr_corpus_writer_append_part(tr_corpus_writer *writer, const int32_t *token, size_t ntoken);
tr_status tr_corpus_writer_mark(tr_corpus_writer *writer, tr_corpus_mark *out); // flush and fsync
// Write the index, name the files, free the writer. It is freed on failure too, and what is written stays for going on.
tr_status tr_corpus_writer_finish(tr_corpus_writer *writer);
void tr_corpus_writer_abandon(tr_corpus_writer *writer, int keep); // free it; keep 1: leave the files for going on

#endif
