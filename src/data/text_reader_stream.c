// SPDX-License-Identifier: MIT
// The bytes of a text file, decompressed as they are read: plain, gzip (RFC 1952) and Zstandard (RFC 8878).
//
// A compressed file is a row of members (gzip) or frames (zstd), each complete in itself; `inside` says whether the reader
// stands within one, where the file must not end. Output is streamed, so a small file that unpacks to a huge one costs
// time, not memory; a zstd window beyond WINDOW_LOG is refused before it is allocated.
#include "data/text_reader_internal.h"
#include "trireme/base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

enum { INPUT = 1 << 18, HEAD = 16, WINDOW_LOG = 27, MOST_AT_ONCE = 1 << 30 };

struct tr__text_stream {
  const char *path;
  int fd;
  tr_status (*read)(tr__text_stream *s, char *out, size_t room, size_t *got);
  int64_t size, taken;         // of the file
  unsigned char *input;        // compressed bytes read last
  size_t input_size, input_at; // 0 bytes: the file has ended
  int inside;
  int has_inflate;
  z_stream inflate;
  ZSTD_DStream *zstd;
};

static tr_status read_file(tr__text_stream *s, void *out, size_t room, size_t *got) {
  ssize_t n;
  do n = read(s->fd, out, room);
  while (n < 0 && errno == EINTR);
  if (n < 0) return tr_error(TR_ERR_IO, "%s: cannot read: %s", s->path, strerror(errno));
  s->taken += n;
  *got = (size_t)n;
  return TR_OK;
}

static tr_status read_plain(tr__text_stream *s, char *out, size_t room, size_t *got) {
  size_t n = 1;
  for (*got = 0; n > 0 && *got < room; *got += n) TR_TRY(read_file(s, out + *got, room - *got, &n));
  return TR_OK;
}

static tr_status refill(tr__text_stream *s) {
  if (s->input_at < s->input_size) return TR_OK;
  s->input_at = 0;
  return read_file(s, s->input, INPUT, &s->input_size);
}

static tr_status damaged(const tr__text_stream *s, const char *why) {
  return tr_error(TR_ERR_DATA, "%s: damaged at byte %" PRId64 " of the compressed file: %s", s->path,
                  s->taken - (int64_t)(s->input_size - s->input_at), why);
}

static tr_status truncated(const tr__text_stream *s) {
  return tr_error(TR_ERR_DATA,
                  "%s: the compressed file is truncated: it ends at byte %" PRId64 " in the middle of its data",
                  s->path, s->taken);
}

// The next bytes of a member, or zeros between members: tape blocks and some tools pad with them.
static tr_status inflate_some(tr__text_stream *s) {
  z_stream *z = &s->inflate;
  if (!s->inside && s->input[s->input_at] == 0) {
    s->input_at++;
    return TR_OK;
  }
  if (!s->inside) inflateReset(z);
  s->inside = 1;
  z->next_in = s->input + s->input_at;
  z->avail_in = (uInt)(s->input_size - s->input_at);
  int code = inflate(z, Z_NO_FLUSH);
  s->input_at = s->input_size - z->avail_in;
  if (code == Z_STREAM_END) s->inside = 0;
  if (code == Z_MEM_ERROR) return tr_error(TR_ERR_MEMORY, "%s: no memory to decompress it", s->path);
  return code == Z_OK || code == Z_STREAM_END ? TR_OK : damaged(s, z->msg ? z->msg : "no gzip data");
}

static tr_status read_gzip(tr__text_stream *s, char *out, size_t room, size_t *got) {
  s->inflate.next_out = (Bytef *)out;
  s->inflate.avail_out = (uInt)room;
  while (s->inflate.avail_out > 0) {
    TR_TRY(refill(s));
    if (s->input_size == 0) break;
    TR_TRY(inflate_some(s));
  }
  *got = room - s->inflate.avail_out;
  return s->input_size == 0 && s->inside ? truncated(s) : TR_OK;
}

static tr_status zstd_failed(const tr__text_stream *s, size_t code) {
  switch (ZSTD_getErrorCode(code)) {
  case ZSTD_error_frameParameter_windowTooLarge:
    return tr_error(TR_ERR_DATA,
                    "%s: it needs a window of more than %d MiB to decompress; compress it again without --long",
                    s->path, 1 << (WINDOW_LOG - 20));
  case ZSTD_error_memory_allocation: return tr_error(TR_ERR_MEMORY, "%s: no memory to decompress it", s->path);
  default: return damaged(s, ZSTD_getErrorName(code));
  }
}

static tr_status read_zstd(tr__text_stream *s, char *out, size_t room, size_t *got) {
  ZSTD_outBuffer to = {.dst = out, .size = room};
  while (to.pos < to.size) {
    TR_TRY(refill(s));
    if (s->input_size == 0 && !s->inside) break;
    // At the end of the file there may still be output that the decoder has not handed out.
    ZSTD_inBuffer from = {.src = s->input, .size = s->input_size, .pos = s->input_at};
    size_t before = to.pos, code = ZSTD_decompressStream(s->zstd, &to, &from);
    s->input_at = from.pos;
    if (ZSTD_isError(code)) return zstd_failed(s, code);
    s->inside = code != 0;
    if (s->input_size == 0 && s->inside && to.pos == before) return truncated(s);
  }
  *got = to.pos;
  return TR_OK;
}

tr_status tr__text_stream_read(tr__text_stream *stream, char *out, size_t room, size_t *got) {
  return stream->read(stream, out, room < MOST_AT_ONCE ? room : MOST_AT_ONCE, got);
}

double tr__text_stream_share(const tr__text_stream *stream) {
  return stream->size > 0 && stream->taken < stream->size ? (double)stream->taken / (double)stream->size : 1;
}

// ---- opening

static tr_status start_gzip(tr__text_stream *s) {
  s->read = read_gzip;
  s->has_inflate = inflateInit2(&s->inflate, 16 + MAX_WBITS) == Z_OK;
  return s->has_inflate ? TR_OK : tr_error(TR_ERR_MEMORY, "%s: no memory to decompress it", s->path);
}

static tr_status start_zstd(tr__text_stream *s) {
  s->read = read_zstd;
  s->zstd = ZSTD_createDStream();
  if (!s->zstd || ZSTD_isError(ZSTD_DCtx_setParameter(s->zstd, ZSTD_d_windowLogMax, WINDOW_LOG)))
    return tr_error(TR_ERR_MEMORY, "%s: no memory to decompress it", s->path);
  return TR_OK;
}

// What a file is by its first bytes: something to decompress, or something that is no text and what to do about it.
static const struct {
  size_t at;
  const char *magic, *suffix;
  tr_status (*start)(tr__text_stream *s);
  const char *refusal;
} kind[] = {
    {0, "\x1f\x8b", ".gz", start_gzip, NULL},
    {0, "\x28\xb5\x2f\xfd", ".zst", start_zstd, NULL},
    {1, "\x2a\x4d\x18", ".zst", start_zstd, NULL}, // a skippable frame, 0x184D2A5?
    {0,
     "\xfd"
     "7zXZ",
     ".xz", NULL, "an xz file; decompress it, or compress it with gzip or zstd"},
    {4, "1AY&SY", ".bz2", NULL, "a bzip2 file; decompress it, or compress it with gzip or zstd"},
    {0, "PK\x03\x04", ".zip", NULL, "a zip archive; unpack it first"},
    {0, "PAR1\x15", ".parquet", NULL, "a Parquet file; export its texts as JSON lines"},
};
enum { KINDS = sizeof kind / sizeof *kind };

int tr__text_stream_is_compression(const char *suffix) {
  for (size_t i = 0; i < KINDS; i++)
    if (kind[i].start && strcmp(suffix, kind[i].suffix) == 0) return 1;
  return 0;
}

int tr__text_stream_is_compressed(const char *head, size_t nbyte) {
  for (size_t i = 0; i < KINDS; i++) {
    size_t n = strlen(kind[i].magic);
    if (kind[i].start && nbyte >= kind[i].at + n && memcmp(head + kind[i].at, kind[i].magic, n) == 0) return 1;
  }
  return 0;
}

// NAME.bin.gz: tokens, which anything can be read as.
static tr_status refuse_token_files(const char *path) {
  static const char *const names[] = {".bin.gz", ".bin.zst", ".idx.gz", ".idx.zst"};
  size_t n = strlen(path);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    size_t m = strlen(names[i]);
    if (n >= m && strcmp(path + n - m, names[i]) == 0)
      return tr_error(TR_ERR_DATA, "%s: this is named like a compressed token file, not a text; decompress it first",
                      path);
  }
  return TR_OK;
}

static tr_status start(tr__text_stream *s) {
  char head[HEAD] = {0};
  ssize_t n = pread(s->fd, head, HEAD, 0);
  if (n < 0) return tr_error(TR_ERR_IO, "%s: cannot read: %s", s->path, strerror(errno));
  for (size_t i = 0; i < KINDS; i++) {
    if (strncmp(head + kind[i].at, kind[i].magic, strlen(kind[i].magic)) != 0) continue;
    return kind[i].start ? kind[i].start(s) : tr_error(TR_ERR_DATA, "%s: this is %s", s->path, kind[i].refusal);
  }
  const char *suffix = strrchr(s->path, '.');
  if (n > 0 && suffix && tr__text_stream_is_compression(suffix))
    return tr_error(TR_ERR_DATA, "%s: it is named %s but its first bytes are not those of such a file", s->path,
                    suffix);
  s->read = read_plain;
  return TR_OK;
}

static tr_status open_file(tr__text_stream *s) {
  struct stat about;
  s->fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // opening a FIFO must not wait
  if (s->fd < 0)
    return tr_error(errno == ENOENT || errno == ENOTDIR ? TR_ERR_DATA : TR_ERR_IO, "%s: cannot open: %s", s->path,
                    strerror(errno));
  if (fstat(s->fd, &about) != 0) return tr_error(TR_ERR_IO, "%s: cannot stat: %s", s->path, strerror(errno));
  if (S_ISDIR(about.st_mode)) return tr_error(TR_ERR_DATA, "%s: this is a folder; name the files in it", s->path);
  if (!S_ISREG(about.st_mode)) return tr_error(TR_ERR_DATA, "%s: this is no file that can be read again", s->path);
  s->size = about.st_size;
  return TR_OK;
}

tr_status tr__text_stream_open(const char *path, tr__text_stream **out) {
  tr__text_stream *s = calloc(1, sizeof *s);
  if (s) *s = (tr__text_stream){.path = path, .fd = -1, .input = malloc(INPUT)};
  tr_status status = s && s->input ? TR_OK : tr_error(TR_ERR_MEMORY, "%s: no memory to read it", path);
  if (status == TR_OK) status = open_file(s);
  if (status == TR_OK) status = refuse_token_files(path);
  if (status == TR_OK) status = start(s);
  if (status == TR_OK)
    *out = s;
  else
    tr__text_stream_close(s);
  return status;
}

void tr__text_stream_close(tr__text_stream *stream) {
  if (!stream) return;
  if (stream->has_inflate) inflateEnd(&stream->inflate);
  ZSTD_freeDStream(stream->zstd);
  if (stream->fd >= 0) close(stream->fd);
  free(stream->input);
  free(stream);
}
