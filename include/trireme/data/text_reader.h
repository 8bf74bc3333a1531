// SPDX-License-Identifier: MIT
// Text as a stream of documents: plain text, JSON lines ({"text": ...}), either of them compressed with gzip or zstd.
// What a file is follows from its first bytes (compression) and its name (.jsonl, .json, also before .gz and .zst).
#ifndef TRIREME_DATA_TEXT_READER_H
#define TRIREME_DATA_TEXT_READER_H

#include "trireme/base/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct tr_text_reader tr_text_reader;
typedef struct tr_text_reader_options {
  const char *path;
  const char *key;       // JSON lines: the member that holds the text; NULL: "text"
  size_t document_limit; // longest document in bytes; 0: 1 GiB
  int split; // plain text: 0 the whole file is one document, handed out in parts; 1 documents end at blank lines
} tr_text_reader_options;

tr_status tr_text_reader_open(const tr_text_reader_options *options, tr_text_reader **out);
void tr_text_reader_close(tr_text_reader *reader); // NULL allowed
// The next document, or part of one; *text belongs to the reader until the next call; NULL at the end. `ends`: whether a
// document ends here (parts of a large text are cut at line ends, or at most every 16 MiB). TR_ERR_DATA names
// file and line: JSON that is none, a member that is missing or no string, a document beyond the limit, a damaged or
// truncated compressed file.
tr_status tr_text_reader_next(tr_text_reader *reader, const char **text, size_t *nbyte, int *ends);
int64_t tr_text_reader_offset(const tr_text_reader *reader);           // bytes of (uncompressed) text taken so far
double tr_text_reader_share(const tr_text_reader *reader);             // of the file's bytes read so far, 0 .. 1
tr_status tr_text_reader_skip(tr_text_reader *reader, int64_t offset); // to where an earlier reader's offset was

#endif
