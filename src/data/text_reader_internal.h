// SPDX-License-Identifier: MIT
// The lower half of the text reader: the bytes of a file, decompressed as they are read. Nothing here knows of documents.
#ifndef TRIREME_DATA_TEXT_READER_INTERNAL_H
#define TRIREME_DATA_TEXT_READER_INTERNAL_H

#include "trireme/base/status.h"
#include <stddef.h>

typedef struct tr__text_stream tr__text_stream;

// Keeps `path`, which must live as long. What is no file, or a kind of file that cannot be text, is TR_ERR_DATA.
tr_status tr__text_stream_open(const char *path, tr__text_stream **out);
void tr__text_stream_close(tr__text_stream *stream); // NULL allowed
// Fill out[0 .. room), less only at the end of the file. TR_ERR_DATA names file and offset of damaged compressed data.
tr_status tr__text_stream_read(tr__text_stream *stream, char *out, size_t room, size_t *got);
double tr__text_stream_share(const tr__text_stream *stream);       // of the file's bytes read so far, 0 .. 1
int tr__text_stream_is_compressed(const char *head, size_t nbyte); // by the first bytes: gzip or zstd
int tr__text_stream_is_compression(const char *suffix);            // ".gz", ".zst"

#endif
