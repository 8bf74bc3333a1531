// SPDX-License-Identifier: MIT
// Writing token files as a stream of documents, so that a killed writer loses nothing before its last mark.
//
// Tokens go to NAME.bin.partial. A Megatron index grows beside it as NAME.idx.partial: room for the header, then one
// size per document; byte offsets and document bounds follow from the sizes and are added at the end, so memory does not
// grow with the corpus. Finishing fills in the headers, forces everything to disk, and renames the index before the
// tokens: an index alone is refused by every reader, while tokens alone would pass for another format.
//
//   open --append*--> --mark--> --append*--> finish: NAME.bin, NAME.idx
//                        \... killed: open(from mark) cuts off what lies beyond the mark and goes on
#include "data/corpus_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { BUFFER = 1 << 20, CHUNK = 1 << 14 };

// One of the two files: `buffer` holds what has not been written yet.
typedef struct output {
  char *path, *partial;
  int fd; // -1: not in use
  size_t used;
  unsigned char *buffer;
} output;

struct tr_corpus_writer {
  tr_corpus_format format;
  int64_t vocab;
  size_t unit, header; // bytes of a token, and before the first one
  int64_t tokens, documents;
  int64_t open;       // tokens of a document that has not ended
  XXH3_state_t *hash; // of the tokens appended
  tr_status failed;   // the first failure to write: nothing can be added after it
  output bin, idx;
};

static tr_status io_error(const char *path, const char *verb) {
  return tr_error(TR_ERR_IO, "%s: cannot %s: %s", path, verb, strerror(errno));
}

static tr_status output_flush(output *out) {
  TR_TRY(tr_file_write_all(out->fd, out->buffer, out->used, out->partial));
  out->used = 0;
  return TR_OK;
}

static tr_status output_append(output *out, const void *data, size_t nbyte) {
  const unsigned char *next = data;
  while (nbyte > 0) {
    if (out->used == BUFFER) TR_TRY(output_flush(out));
    size_t n = nbyte < BUFFER - out->used ? nbyte : BUFFER - out->used;
    memcpy(out->buffer + out->used, next, n);
    out->used += n;
    next += n;
    nbyte -= n;
  }
  return TR_OK;
}

static tr_status output_sync(output *out) {
  TR_TRY(output_flush(out));
  return fsync(out->fd) == 0 ? TR_OK : io_error(out->partial, "force to disk");
}

// Exactly `nbyte` bytes of what has been written, from `offset` on.
static tr_status output_read(const output *out, int64_t offset, void *data, size_t nbyte) {
  for (size_t done = 0; done < nbyte;) {
    ssize_t n = pread(out->fd, (char *)data + done, nbyte - done, offset + (int64_t)done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error(out->partial, "read");
    if (n == 0) return tr_error(TR_ERR_DATA, "%s: ends before the mark to go on from; start over", out->partial);
    done += (size_t)n;
  }
  return TR_OK;
}

// Write a header over the room left for it.
static tr_status output_patch(const output *out, const void *data, size_t nbyte) {
  if (lseek(out->fd, 0, SEEK_SET) < 0) return io_error(out->partial, "seek");
  return tr_file_write_all(out->fd, data, nbyte, out->partial);
}

// What lies beyond `size` goes; the next byte is written there.
static tr_status output_cut(const output *out, int64_t size) {
  if (ftruncate(out->fd, size) != 0) return io_error(out->partial, "cut to length");
  return lseek(out->fd, size, SEEK_SET) == size ? TR_OK : io_error(out->partial, "seek");
}

static tr_status refuse_existing(const output *out) {
  if (!tr_file_exists(out->path)) return TR_OK;
  return tr_error(TR_ERR_IO, "%s: exists already; remove it or choose another name", out->path);
}

static tr_status output_make(const char *name, const char *ending, output *out) {
  out->buffer = malloc(BUFFER);
  if (asprintf(&out->path, "%s%s", name, ending) < 0) out->path = NULL;
  if (asprintf(&out->partial, "%s%s.partial", name, ending) < 0) out->partial = NULL;
  if (out->buffer && out->path && out->partial) return TR_OK;
  return tr_error(TR_ERR_MEMORY, "%s%s: no memory for writing it", name, ending);
}

static tr_status output_open(output *out, int going_on) {
  do out->fd = open(out->partial, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (going_on ? 0 : O_CREAT), 0666);
  while (out->fd < 0 && errno == EINTR);
  if (out->fd < 0) return io_error(out->partial, going_on ? "open to go on" : "create");
  // File systems without locks are trusted to have one writer.
  if (flock(out->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return tr_error(TR_ERR_IO, "%s: another program is writing it; wait for it or choose another name", out->partial);
  }
  // Again: the writer before may have finished just now, and then what is open is its finished file.
  return going_on ? TR_OK : refuse_existing(out);
}

static void output_close(output *out, int keep) {
  if (out->fd >= 0) {
    if (!keep) unlink(out->partial);
    close(out->fd);
  }
  free(out->path);
  free(out->partial);
  free(out->buffer);
}

static void writer_free(tr_corpus_writer *writer, int keep) {
  output_close(&writer->bin, keep);
  output_close(&writer->idx, keep);
  XXH3_freeState(writer->hash);
  free(writer);
}

static tr_status check_options(const tr_corpus_writer_options *options) {
  if (!options->path || !options->path[0]) return tr_error(TR_ERR_USAGE, "a token file needs a name");
  if (options->format == TR_CORPUS_TEXT) {
    return tr_error(TR_ERR_USAGE, "%s: text is no format of token files; nanogpt, llm.c and megatron are",
                    options->path);
  }
  if (options->vocab < 1 || options->vocab > (int64_t)INT32_MAX + 1) {
    return tr_error(TR_ERR_CONFIG, "%s: a vocabulary of %lld tokens does not work; 1 to 2147483648 would",
                    options->path, (long long)options->vocab);
  }
  if (options->format == TR_CORPUS_NANOGPT && options->vocab > 65536) {
    return tr_error(TR_ERR_CONFIG,
                    "%s: nanogpt files hold 16 bits per token, too few for a vocabulary of %lld; llm.c or megatron "
                    "would work",
                    options->path, (long long)options->vocab);
  }
  return TR_OK;
}

// The tokens up to the mark, hashed again: going on with other tokens than those that were marked would be silent.
static tr_status rehash(tr_corpus_writer *writer, const tr_corpus_mark *mark) {
  int64_t offset = (int64_t)writer->header, left = mark->tokens * (int64_t)writer->unit;
  while (left > 0) {
    size_t n = left < BUFFER ? (size_t)left : BUFFER;
    TR_TRY(output_read(&writer->bin, offset, writer->bin.buffer, n));
    XXH3_64bits_update(writer->hash, writer->bin.buffer, n);
    offset += (int64_t)n;
    left -= (int64_t)n;
  }
  if (XXH3_64bits_digest(writer->hash) != mark->hash) {
    return tr_error(TR_ERR_DATA, "%s: holds other tokens than those that were marked; start over",
                    writer->bin.partial);
  }
  return output_cut(&writer->bin, offset);
}

// Call `each` with runs of the sizes in the index so far.
static tr_status for_sizes(const tr_corpus_writer *writer, int64_t documents,
                           tr_status (*each)(void *user, const int32_t *size, size_t n), void *user) {
  int32_t size[CHUNK];
  for (int64_t first = 0; first < documents; first += CHUNK) {
    size_t n = documents - first < CHUNK ? (size_t)(documents - first) : CHUNK;
    TR_TRY(output_read(&writer->idx, TR__MEGATRON_HEADER + 4 * first, size, n * sizeof *size));
    TR_TRY(each(user, size, n));
  }
  return TR_OK;
}

static tr_status add_sizes(void *user, const int32_t *size, size_t n) {
  for (size_t i = 0; i < n; i++) *(int64_t *)user += size[i];
  return TR_OK;
}

static tr_status go_on(tr_corpus_writer *writer, const tr_corpus_mark *mark) {
  int64_t most = INT64_MAX / 16, total = 0;
  if (mark->tokens < 0 || mark->tokens > most || mark->documents < 0 || mark->documents > most || mark->open < 0 ||
      mark->open > mark->tokens) {
    return tr_error(TR_ERR_DATA, "%s: a mark at %lld tokens and %lld documents is none; start over",
                    writer->bin.partial, (long long)mark->tokens, (long long)mark->documents);
  }
  TR_TRY(rehash(writer, mark));
  if (writer->format == TR_CORPUS_MEGATRON) {
    TR_TRY(for_sizes(writer, mark->documents, add_sizes, &total));
    if (total != mark->tokens - mark->open) {
      return tr_error(TR_ERR_DATA, "%s: its documents have %lld tokens, those of the mark %lld; start over",
                      writer->idx.partial, (long long)total, (long long)(mark->tokens - mark->open));
    }
    TR_TRY(output_cut(&writer->idx, TR__MEGATRON_HEADER + 4 * mark->documents));
  }
  writer->tokens = mark->tokens;
  writer->documents = mark->documents;
  writer->open = mark->open;
  return TR_OK;
}

static tr_status start_new(tr_corpus_writer *writer) {
  static const unsigned char room[TR__LLMC_HEADER];
  TR_TRY(output_cut(&writer->bin, 0));
  TR_TRY(output_append(&writer->bin, room, writer->header));
  if (writer->format != TR_CORPUS_MEGATRON) return TR_OK;
  TR_TRY(output_cut(&writer->idx, 0));
  return output_append(&writer->idx, room, TR__MEGATRON_HEADER);
}

static tr_status open_files(tr_corpus_writer *writer, const char *name, const tr_corpus_mark *from) {
  output *bin = &writer->bin, *idx = &writer->idx;
  TR_TRY(output_make(name, ".bin", bin));
  TR_TRY(output_make(name, ".idx", idx));
  if (!from) {
    TR_TRY(refuse_existing(bin));
    TR_TRY(refuse_existing(idx)); // for every format: beside an index the tokens would be taken for Megatron's
  }
  TR_TRY(output_open(bin, from != NULL));
  if (writer->format == TR_CORPUS_MEGATRON) {
    // A finish that was killed after naming the index only.
    if (from && !tr_file_exists(idx->partial)) (void)rename(idx->path, idx->partial);
    TR_TRY(output_open(idx, from != NULL));
  }
  return from ? go_on(writer, from) : start_new(writer);
}

tr_status tr_corpus_writer_open(const tr_corpus_writer_options *options, const tr_corpus_mark *from,
                                tr_corpus_writer **out) {
  TR_TRY(check_options(options));
  tr_corpus_writer *writer = calloc(1, sizeof *writer);
  if (!writer) return tr_error(TR_ERR_MEMORY, "%s: no memory for writing it", options->path);
  writer->format = options->format;
  writer->vocab = options->vocab;
  writer->unit = options->vocab <= 65536 ? 2 : 4;
  writer->header = options->format == TR_CORPUS_LLMC ? TR__LLMC_HEADER : 0;
  writer->bin.fd = writer->idx.fd = -1;
  writer->hash = XXH3_createState();
  tr_status status = TR_OK;
  if (!writer->hash || XXH3_64bits_reset(writer->hash) != XXH_OK) {
    status = tr_error(TR_ERR_MEMORY, "%s: no memory for its hash", options->path);
  }
  if (status == TR_OK) status = open_files(writer, options->path, from);
  if (status < 0) {
    writer_free(writer, 1); // whatever is there may be somebody's work
    return status;
  }
  *out = writer;
  return TR_OK;
}

static tr_status check_document(const tr_corpus_writer *writer, const int32_t *token, size_t ntoken) {
  size_t room = writer->format == TR_CORPUS_NANOGPT ? SIZE_MAX : INT32_MAX;
  if (writer->format == TR_CORPUS_LLMC) room -= (size_t)writer->tokens;
  if (writer->format == TR_CORPUS_MEGATRON) room -= (size_t)writer->open;
  if (ntoken > room) {
    return tr_error(TR_ERR_DATA, "%s: %s counts at most %d tokens; %s would work", writer->bin.path,
                    writer->format == TR_CORPUS_LLMC ? "an llm.c header" : "a megatron index, for each document,",
                    INT32_MAX,
                    writer->format == TR_CORPUS_LLMC ? "megatron, or several files," : "shorter documents");
  }
  for (size_t i = 0; i < ntoken; i++) {
    if (token[i] < 0 || token[i] >= writer->vocab) {
      return tr_error(TR_ERR_DATA, "%s: token %d at place %lld is not in the vocabulary of %lld", writer->bin.path,
                      token[i], (long long)writer->tokens + (long long)i, (long long)writer->vocab);
    }
  }
  return TR_OK;
}

static tr_status append_tokens(tr_corpus_writer *writer, const int32_t *token, size_t ntoken) {
  uint16_t narrow[CHUNK];
  for (size_t first = 0; first < ntoken; first += CHUNK) {
    size_t n = ntoken - first < CHUNK ? ntoken - first : CHUNK;
    const void *bytes = token + first;
    if (writer->unit == sizeof *narrow) {
      for (size_t i = 0; i < n; i++) narrow[i] = (uint16_t)token[first + i];
      bytes = narrow;
    }
    XXH3_64bits_update(writer->hash, bytes, n * writer->unit);
    TR_TRY(output_append(&writer->bin, bytes, n * writer->unit));
  }
  return TR_OK;
}

static tr_status check_alive(const tr_corpus_writer *writer) {
  if (writer->failed == TR_OK) return TR_OK;
  return tr_error(writer->failed,
                  "%s: could not be written before, so it cannot go on; open it again at the last mark",
                  writer->bin.partial);
}

tr_status tr_corpus_writer_append_part(tr_corpus_writer *writer, const int32_t *token, size_t ntoken) {
  TR_TRY(check_alive(writer));
  TR_TRY(check_document(writer, token, ntoken));
  writer->failed = append_tokens(writer, token, ntoken);
  if (writer->failed < 0) return writer->failed;
  writer->tokens += (int64_t)ntoken;
  writer->open += (int64_t)ntoken;
  return TR_OK;
}

tr_status tr_corpus_writer_append(tr_corpus_writer *writer, const int32_t *token, size_t ntoken) {
  TR_TRY(tr_corpus_writer_append_part(writer, token, ntoken));
  if (writer->format == TR_CORPUS_MEGATRON) {
    int32_t size = (int32_t)writer->open; // within the limit: check_document
    writer->failed = output_append(&writer->idx, &size, sizeof size);
    if (writer->failed < 0) return writer->failed;
  }
  writer->open = 0;
  writer->documents++;
  return TR_OK;
}

static tr_status sync_folder(const tr_corpus_writer *writer) {
  const char *slash = strrchr(writer->bin.path, '/');
  if (!slash) return tr_file_sync_folder(".");
  char *folder = strndup(writer->bin.path, (size_t)(slash - writer->bin.path) + 1);
  if (!folder) return tr_error(TR_ERR_MEMORY, "%s: no memory for its folder's name", writer->bin.path);
  tr_status status = tr_file_sync_folder(folder);
  free(folder);
  return status;
}

static tr_status sync_files(tr_corpus_writer *writer) {
  TR_TRY(output_sync(&writer->bin));
  if (writer->format == TR_CORPUS_MEGATRON) TR_TRY(output_sync(&writer->idx));
  return sync_folder(writer);
}

tr_status tr_corpus_writer_mark(tr_corpus_writer *writer, tr_corpus_mark *out) {
  TR_TRY(check_alive(writer));
  writer->failed = sync_files(writer);
  if (writer->failed < 0) return writer->failed;
  *out = (tr_corpus_mark){.tokens = writer->tokens,
                          .documents = writer->documents,
                          .hash = XXH3_64bits_digest(writer->hash),
                          .open = writer->open};
  return TR_OK;
}

typedef struct pointers {
  tr_corpus_writer *writer;
  int64_t byte;
} pointers;

static tr_status append_pointers(void *user, const int32_t *size, size_t n) {
  pointers *p = user;
  for (size_t i = 0; i < n; i++) {
    TR_TRY(output_append(&p->writer->idx, &p->byte, sizeof p->byte));
    p->byte += (int64_t)size[i] * (int64_t)p->writer->unit;
  }
  return TR_OK;
}

static tr_status finish_index(tr_corpus_writer *writer) {
  unsigned char header[TR__MEGATRON_HEADER] = TR__MEGATRON_MAGIC;
  uint64_t version = 1, sequences = (uint64_t)writer->documents, bounds = sequences + 1;
  pointers p = {.writer = writer};
  TR_TRY(output_flush(&writer->idx)); // so that the sizes can be read back
  TR_TRY(for_sizes(writer, writer->documents, append_pointers, &p));
  for (int64_t i = 0; i <= writer->documents; i++) TR_TRY(output_append(&writer->idx, &i, sizeof i));
  TR_TRY(output_flush(&writer->idx));
  memcpy(header + 9, &version, 8);
  header[17] = writer->unit == 2 ? TR__TOKEN_U16 : TR__TOKEN_I32;
  memcpy(header + 18, &sequences, 8);
  memcpy(header + 26, &bounds, 8);
  return output_patch(&writer->idx, header, sizeof header);
}

static tr_status finish_header(tr_corpus_writer *writer) {
  int32_t header[TR__LLMC_HEADER / 4] = {writer->unit == 2 ? TR__LLMC_MAGIC_U16 : TR__LLMC_MAGIC_U32,
                                         writer->unit == 2 ? TR__LLMC_VERSION_U16 : TR__LLMC_VERSION_U32,
                                         (int32_t)writer->tokens};
  TR_TRY(output_flush(&writer->bin));
  return output_patch(&writer->bin, header, sizeof header);
}

static tr_status name_file(const output *out) {
  return rename(out->partial, out->path) == 0 ? TR_OK : io_error(out->partial, "get its name");
}

static tr_status finish(tr_corpus_writer *writer) {
  int indexed = writer->format == TR_CORPUS_MEGATRON;
  TR_TRY(check_alive(writer));
  if (writer->tokens == 0) return tr_error(TR_ERR_DATA, "%s: there is no token to write", writer->bin.path);
  if (writer->open > 0) return tr_error(TR_ERR_USAGE, "%s: its last document has not ended", writer->bin.path);
  if (indexed) TR_TRY(finish_index(writer));
  if (writer->format == TR_CORPUS_LLMC) TR_TRY(finish_header(writer));
  TR_TRY(sync_files(writer));
  if (indexed) TR_TRY(name_file(&writer->idx));
  tr_status status = name_file(&writer->bin);
  if (status < 0 && indexed) (void)rename(writer->idx.path, writer->idx.partial);
  TR_TRY(status);
  return sync_folder(writer);
}

tr_status tr_corpus_writer_finish(tr_corpus_writer *writer) {
  tr_status status = finish(writer);
  writer_free(writer, writer->tokens > 0);
  return status;
}

void tr_corpus_writer_abandon(tr_corpus_writer *writer, int keep) {
  if (writer) writer_free(writer, keep);
}
