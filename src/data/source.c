// SPDX-License-Identifier: MIT
// Token sources: text files mapped into memory, cut into parts, tokenized window by window when asked.
//
// A part of n tokens holds n - 1 pairs (token, next token). Window w is the pairs from w * sequence on, so
// windows overlap by the one token that is the last target of one and the first token of the next; every pair
// is in exactly one window. Parts share no token, so no validation token is ever a training target.
//
//   file     | t0 t1 t2 ................ | v0 v1 v2 ........ |
//   window 0   tokens t0..t(s-1), targets t1..ts
//   window 1            tokens ts.., targets t(s+1)..
//
// Not here: the order of windows (permute.c) and the layout of batches (batch.c).
#include "data/source_internal.h"
#include "data/tokenizer_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HASHED = 1 << 20 }; // bytes at either end of the file that go into the hash

static tr_status check_options(const tr_source_options *options) {
  if (!options->path || !options->path[0]) {
    return tr_error(TR_ERR_CONFIG, "data.path is empty; it must name a text file");
  }
  if (options->sequence < 1 || options->sequence >= INT32_MAX) {
    return tr_error(TR_ERR_CONFIG, "sequence %lld does not work; it must be 1 to %d tokens",
                    (long long)options->sequence, INT32_MAX - 1);
  }
  // Written so that a NaN is refused too.
  if (!(options->val_fraction >= 0 && options->val_fraction < 1)) {
    return tr_error(TR_ERR_CONFIG, "val_fraction %g does not work; it must be at least 0 and below 1",
                    options->val_fraction);
  }
  return TR_OK;
}

static tr_status check_regular(const tr__source_file *file, off_t *nbyte) {
  struct stat about;
  if (fstat(file->fd, &about) != 0) {
    return tr_error(TR_ERR_DATA, "%s: cannot ask for its size: %s", file->path, strerror(errno));
  }
  if (S_ISDIR(about.st_mode)) {
    return tr_error(TR_ERR_DATA, "%s: is a folder; name one text file in it", file->path);
  }
  if (!S_ISREG(about.st_mode)) {
    return tr_error(TR_ERR_DATA, "%s: is not a regular file; copy its contents into one", file->path);
  }
  if (about.st_size == 0) {
    return tr_error(TR_ERR_DATA, "%s: is empty; at least 2 tokens are needed", file->path);
  }
  *nbyte = about.st_size;
  return TR_OK;
}

// On failure the caller closes what was opened.
static tr_status open_file(const char *path, tr__source_file *file) {
  off_t nbyte = 0;
  file->fd = -1;
  file->path = strdup(path);
  if (!file->path) return tr_error(TR_ERR_MEMORY, "%s: no memory for its name", path);
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  do file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  while (file->fd < 0 && errno == EINTR);
  if (file->fd < 0) {
    return tr_error(TR_ERR_DATA, "%s: cannot be opened: %s; name a readable text file", path, strerror(errno));
  }
  TR_TRY(check_regular(file, &nbyte));
  TR_TRY(tr_file_map_open(path, &file->map));
  if (file->map.nbyte != (size_t)nbyte) {
    return tr_error(TR_ERR_DATA, "%s: changed while it was being opened; start when its writer is done", path);
  }
  return TR_OK;
}

static void close_file(tr__source_file *file) {
  if (!file->path) return;
  tr_file_map_close(&file->map);
  if (file->fd >= 0) close(file->fd);
  free(file->path);
}

static int64_t file_tokens(const tr_source *source, const tr__source_file *file) {
  return (int64_t)(file->map.nbyte / tr__tokenizer_unit(source->tokenizer));
}

static tr_status whole_file(tr_source *source, int part, const tr__source_file *file) {
  int64_t ntoken = file_tokens(source, file);
  if (ntoken < 2) {
    return tr_error(TR_ERR_DATA,
                    "%s: has %zu bytes, %lld tokens; at least 2 tokens are needed (a token and its next one)",
                    file->path, file->map.nbyte, (long long)ntoken);
  }
  source->part[part] = (tr__source_part){.file = file, .first = 0, .ntoken = ntoken};
  return TR_OK;
}

// The end of the file becomes the validation part. Each part must hold one whole window, or the numbers
// reported for it would mean little.
static tr_status cut_validation(tr_source *source, double fraction) {
  tr__source_part *train = &source->part[TR__PART_TRAIN];
  int64_t total = train->ntoken, window = source->sequence + 1;
  int64_t wanted = llround(fraction * (double)total), validation = wanted > window ? wanted : window;
  if (total - validation < window) {
    double enough = fmax(2.0 * (double)window, ceil((double)window / (1 - fraction)));
    return tr_error(TR_ERR_DATA,
                    "%s: its %lld tokens cannot be cut at val_fraction %g, because training and validation "
                    "each need %lld (sequence + 1); %.0f tokens in all, a shorter sequence, a smaller "
                    "val_fraction or val_fraction 0 would work",
                    train->file->path, (long long)total, fraction, (long long)window, enough);
  }
  train->ntoken = total - validation;
  source->part[TR__PART_VALIDATION] =
      (tr__source_part){.file = train->file, .first = train->ntoken, .ntoken = validation};
  return TR_OK;
}

static uint64_t hash_file(const tr_file_map *map) {
  size_t n = map->nbyte < HASHED ? map->nbyte : HASHED;
  const uint64_t word[3] = {map->nbyte, tr_hash_bytes(map->data, n), tr_hash_bytes(map->data + map->nbyte - n, n)};
  return tr_hash_bytes(word, sizeof word);
}

static tr_status open_parts(tr_source *source, const tr_source_options *options) {
  tr__source_file *file = source->file;
  TR_TRY(open_file(options->path, &file[TR__PART_TRAIN]));
  TR_TRY(whole_file(source, TR__PART_TRAIN, &file[TR__PART_TRAIN]));
  source->hash = hash_file(&file[TR__PART_TRAIN].map);
  if (options->val_path && options->val_path[0]) {
    TR_TRY(open_file(options->val_path, &file[TR__PART_VALIDATION]));
    return whole_file(source, TR__PART_VALIDATION, &file[TR__PART_VALIDATION]);
  }
  return options->val_fraction > 0 ? cut_validation(source, options->val_fraction) : TR_OK;
}

tr_status tr_source_open(const tr_tokenizer *tokenizer, const tr_source_options *options, tr_source **out) {
  TR_TRY(check_options(options));
  tr_source *source = calloc(1, sizeof *source);
  if (!source) return tr_error(TR_ERR_MEMORY, "%s: no memory for the token source", options->path);
  source->tokenizer = tokenizer;
  source->sequence = options->sequence;
  source->seed = options->seed;
  tr_status status = open_parts(source, options);
  if (status < 0) {
    tr_source_close(source);
    return status;
  }
  *out = source;
  return TR_OK;
}

void tr_source_close(tr_source *source) {
  if (!source) return;
  for (int i = 0; i < TR__NPART; i++) close_file(&source->file[i]);
  free(source);
}

static const tr__source_part *part_of(const tr_source *source, int validation) {
  return &source->part[validation ? TR__PART_VALIDATION : TR__PART_TRAIN];
}

int64_t tr_source_tokens(const tr_source *source, int validation) { return part_of(source, validation)->ntoken; }

int64_t tr_source_samples(const tr_source *source, int validation) {
  int64_t pairs = part_of(source, validation)->ntoken - 1;
  return pairs > 0 ? (pairs - 1) / source->sequence + 1 : 0;
}

uint64_t tr_source_hash(const tr_source *source) { return source->hash; }

tr_status tr__source_check(const tr_source *source, int validation) {
  const tr__source_file *file = part_of(source, validation)->file;
  struct stat about;
  if (!file) return TR_OK; // an absent part has no samples to read
  if (fstat(file->fd, &about) != 0) {
    return tr_error(TR_ERR_DATA, "%s: cannot ask for its size: %s", file->path, strerror(errno));
  }
  if ((uint64_t)about.st_size < file->map.nbyte) {
    return tr_error(
        TR_ERR_DATA,
        "%s: file shrank while in use, from %zu to %lld bytes; put it back and continue from a checkpoint",
        file->path, file->map.nbyte, (long long)about.st_size);
  }
  return TR_OK;
}

tr_status tr__source_window(const tr_source *source, int validation, int64_t window, int32_t *token, int32_t *target,
                            int64_t *count) {
  const tr__source_part *part = part_of(source, validation);
  int64_t first = window * source->sequence, left = part->ntoken - 1 - first;
  size_t unit = tr__tokenizer_unit(source->tokenizer), ntoken;
  size_t nbyte = (size_t)(left < source->sequence ? left : source->sequence) * unit;
  const char *text = (const char *)part->file->map.data + (size_t)(part->first + first) * unit;
  TR_TRY(tr_tokenizer_encode(source->tokenizer, text, nbyte, token, &ntoken));
  TR_TRY(tr_tokenizer_encode(source->tokenizer, text + unit, nbyte, target, &ntoken));
  *count = (int64_t)ntoken;
  return TR_OK;
}
