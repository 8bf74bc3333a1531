// SPDX-License-Identifier: MIT
// Opening token files of every format, and reading from them.
//
// What a path means follows from names first (a pair with an index), then from magic numbers, then from the ending
// .bin; everything else is text. Opening looks at headers and the index only. A read trusts nothing that it got from the
// map before it has asked whether the file is still whole.
//
// Not here: the index of a Megatron pair (megatron.c), and the types of tokens (token_type.c).
#include "data/corpus_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HASHED_WHOLE = 256 << 20, HASHED_BLOCKS = 256, HASHED_BLOCK = 1 << 16, SCANNED = 1 << 12, BLOCK = 64 };

static tr_status check_regular(const tr__corpus_file *file, off_t *nbyte) {
  struct stat about;
  if (fstat(file->fd, &about) != 0) {
    return tr_error(TR_ERR_DATA, "%s: cannot ask for its size: %s", file->path, strerror(errno));
  }
  if (S_ISDIR(about.st_mode)) {
    return tr_error(TR_ERR_DATA, "%s: is a folder; name one file in it", file->path);
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

// Takes `path`, which may be NULL for want of memory. On failure the caller closes what was opened.
static tr_status open_file(char *path, tr__corpus_file *file) {
  off_t nbyte = 0;
  if (!path) return tr_error(TR_ERR_MEMORY, "no memory for the name of a token file");
  file->path = path;
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  do file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  while (file->fd < 0 && errno == EINTR);
  if (file->fd < 0) {
    return tr_error(TR_ERR_DATA, "%s: cannot be opened: %s; name a readable file", path, strerror(errno));
  }
  TR_TRY(check_regular(file, &nbyte));
  TR_TRY(tr_file_map_open(path, &file->map));
  if (file->map.nbyte != (size_t)nbyte) {
    return tr_error(TR_ERR_DATA, "%s: changed while it was being opened; start when its writer is done", path);
  }
  return TR_OK;
}

static void close_file(tr__corpus_file *file) {
  if (!file->path) return;
  tr_file_map_close(&file->map);
  if (file->fd >= 0) close(file->fd);
  free(file->path);
}

// What was read from this file before the call was really in it.
static tr_status check_whole(const tr__corpus_file *file) {
  struct stat about;
  if (!file->path) return TR_OK;
  if (fstat(file->fd, &about) != 0) {
    return tr_error(TR_ERR_DATA, "%s: cannot ask for its size: %s", file->path, strerror(errno));
  }
  if ((uint64_t)about.st_size < file->map.nbyte) {
    return tr_error(
        TR_ERR_DATA,
        "%s: file shrank while in use, from %zu to %lld bytes; put it back and continue from a checkpoint",
        file->path, file->map.nbyte, (long long)about.st_size);
  }
  return tr_file_map_check(&file->map, file->path);
}

static int ends_with(const char *path, const char *ending) {
  size_t n = strlen(path), m = strlen(ending);
  return n > m && strcmp(path + n - m, ending) == 0;
}

// `path` without its ending of 4 characters (if it has one) and with another one; NULL without memory.
static char *with_ending(const char *path, const char *ending) {
  size_t n = strlen(path) - (ends_with(path, ".bin") || ends_with(path, ".idx") ? 4 : 0);
  char *out = malloc(n + strlen(ending) + 1);
  if (out) sprintf(out, "%.*s%s", (int)n, path, ending);
  return out;
}

static int is_regular(const char *path) {
  struct stat about;
  return stat(path, &about) == 0 && S_ISREG(about.st_mode);
}

// The path names a pair: by its index, or because the index lies beside it.
static int names_pair(const char *path, const char *idx) {
  if (ends_with(path, ".idx")) return 1;
  if (!tr_file_exists(idx)) return 0;
  return ends_with(path, ".bin") || !is_regular(path);
}

static tr_status open_pair(tr_corpus *corpus, const char *path) {
  corpus->format = TR_CORPUS_MEGATRON;
  TR_TRY(open_file(with_ending(path, ".idx"), &corpus->idx));
  TR_TRY(open_file(with_ending(path, ".bin"), &corpus->bin));
  return tr__megatron_open(corpus);
}

static tr_status open_llmc(tr_corpus *corpus, int32_t magic) {
  int32_t version, count, known = magic == TR__LLMC_MAGIC_U16 ? TR__LLMC_VERSION_U16 : TR__LLMC_VERSION_U32;
  const tr__corpus_file *file = &corpus->bin;
  corpus->format = TR_CORPUS_LLMC;
  corpus->type = magic == TR__LLMC_MAGIC_U16 ? TR__TOKEN_U16 : TR__TOKEN_U32;
  corpus->unit = tr__token_size(corpus->type);
  corpus->header = TR__LLMC_HEADER;
  if (file->map.nbyte < TR__LLMC_HEADER) {
    return tr_error(TR_ERR_DATA, "%s: has %zu bytes, less than the %d of an llm.c header", file->path,
                    file->map.nbyte, TR__LLMC_HEADER);
  }
  memcpy(&version, file->map.data + 4, sizeof version);
  memcpy(&count, file->map.data + 8, sizeof count);
  if (version != known) {
    return tr_error(TR_ERR_DATA, "%s: version %d of llm.c token files is not known; version %d would work",
                    file->path, version, known);
  }
  if (count < 0 || TR__LLMC_HEADER + (uint64_t)count * corpus->unit != file->map.nbyte) {
    return tr_error(TR_ERR_DATA, "%s: its header counts %d tokens of %s, which do not make its size of %zu bytes",
                    file->path, count, tr__token_type_name((int)corpus->type), file->map.nbyte);
  }
  corpus->tokens = count;
  return TR_OK;
}

static tr_status open_plain(tr_corpus *corpus, tr_corpus_format format, tr__token_type type) {
  const tr__corpus_file *file = &corpus->bin;
  corpus->format = format;
  corpus->type = type;
  corpus->unit = tr__token_size(type);
  corpus->tokens = (int64_t)(file->map.nbyte / corpus->unit);
  if (file->map.nbyte % corpus->unit == 0) return TR_OK;
  return tr_error(TR_ERR_DATA,
                  "%s: %zu bytes are no whole number of u16 tokens (a file without a header, as of nanoGPT)",
                  file->path, file->map.nbyte);
}

static tr_status open_single(tr_corpus *corpus, const tr_corpus_options *options) {
  int32_t magic = 0;
  TR_TRY(open_file(strdup(options->path), &corpus->bin));
  if (corpus->bin.map.nbyte >= sizeof magic) memcpy(&magic, corpus->bin.map.data, sizeof magic);
  if (magic == TR__LLMC_MAGIC_U16 || magic == TR__LLMC_MAGIC_U32) return open_llmc(corpus, magic);
  if (options->text) return open_plain(corpus, TR_CORPUS_TEXT, TR__TOKEN_U8);
  if (ends_with(options->path, ".bin")) return open_plain(corpus, TR_CORPUS_NANOGPT, TR__TOKEN_U16);
  return tr_error(TR_ERR_DATA,
                  "%s: is text, which needs tokenizing first (trireme tokenize makes NAME.bin of it); a token file "
                  "(.bin, .bin with .idx) or the byte tokenizer would work",
                  options->path);
}

// All of a file that is read in no time; of a larger one, blocks all over it.
static uint64_t hash_of(const tr_corpus *corpus) {
  const tr_file_map *map = &corpus->bin.map;
  uint64_t hash[] = {map->nbyte, tr_hash_bytes(corpus->idx.map.data, corpus->idx.map.nbyte), 0};
  if (map->nbyte <= HASHED_WHOLE) {
    hash[2] = tr_hash_bytes(map->data, map->nbyte);
    return tr_hash_bytes(hash, sizeof hash);
  }
  size_t step = (map->nbyte - HASHED_BLOCK) / (HASHED_BLOCKS - 1);
  for (size_t i = 0; i < HASHED_BLOCKS; i++) {
    hash[2] ^= tr_hash_bytes(map->data + i * step, HASHED_BLOCK);
    hash[2] = tr_hash_bytes(hash, sizeof hash);
  }
  return hash[2];
}

static tr_status open_corpus(tr_corpus *corpus, const tr_corpus_options *options) {
  char *idx = with_ending(options->path, ".idx");
  if (!idx) return tr_error(TR_ERR_MEMORY, "%s: no memory for its name", options->path);
  tr_status status = names_pair(options->path, idx) ? open_pair(corpus, options->path) : open_single(corpus, options);
  free(idx);
  TR_TRY(status);
  if (corpus->tokens == 0) {
    return tr_error(TR_ERR_DATA, "%s: is empty; at least 2 tokens are needed", corpus->bin.path);
  }
  corpus->hash = hash_of(corpus);
  TR_TRY(check_whole(&corpus->idx));
  return check_whole(&corpus->bin);
}

tr_status tr_corpus_open(const tr_corpus_options *options, tr_corpus **out) {
  if (!options->path || !options->path[0]) return tr_error(TR_ERR_CONFIG, "the path of a token file is empty");
  tr_corpus *corpus = calloc(1, sizeof *corpus);
  if (!corpus) return tr_error(TR_ERR_MEMORY, "%s: no memory for opening it", options->path);
  corpus->vocab = options->vocab;
  corpus->end = options->end;
  corpus->bin.fd = corpus->idx.fd = -1;
  tr_status status = open_corpus(corpus, options);
  if (status < 0) {
    tr_corpus_close(corpus);
    return status;
  }
  *out = corpus;
  return TR_OK;
}

void tr_corpus_close(tr_corpus *corpus) {
  if (!corpus) return;
  close_file(&corpus->bin);
  close_file(&corpus->idx);
  free(corpus->megatron.place);
  free(corpus->start);
  free(corpus);
}

const char *tr_corpus_path(const tr_corpus *corpus) { return corpus->bin.path; }

const char *tr_corpus_format_name(const tr_corpus *corpus) {
  static const char *const name[] = {[TR_CORPUS_TEXT] = "text",
                                     [TR_CORPUS_NANOGPT] = "nanogpt",
                                     [TR_CORPUS_LLMC] = "llm.c",
                                     [TR_CORPUS_MEGATRON] = "megatron"};
  return name[corpus->format];
}

int64_t tr_corpus_tokens(const tr_corpus *corpus) { return corpus->tokens; }

uint64_t tr_corpus_hash(const tr_corpus *corpus) { return corpus->hash; }

// The bytes of `token`, and how many tokens follow there without a gap.
static const unsigned char *run_at(const tr_corpus *corpus, int64_t token, int64_t *count) {
  if (corpus->megatron.place) return tr__megatron_run(corpus, token, count);
  *count = corpus->tokens - token;
  return corpus->bin.map.data + corpus->header + (size_t)token * corpus->unit;
}

// Tokens have 31 bits at most, whatever the vocabulary.
static uint64_t limit_of(const tr_corpus *corpus) {
  uint64_t most = (uint64_t)INT32_MAX + 1;
  return corpus->vocab > 0 && (uint64_t)corpus->vocab < most ? (uint64_t)corpus->vocab : most;
}

// Name the first token of a run that is beyond the vocabulary; there is one, unless the file has just changed.
static tr_status bad_token(const tr_corpus *corpus, int64_t first, const unsigned char *bytes, int64_t count) {
  uint64_t limit = limit_of(corpus);
  int32_t token = 0;
  int64_t i = 0;
  while (i < count && tr__token_widen(corpus->type, bytes + (size_t)i * corpus->unit, 1, &token) < limit) i++;
  return tr_error(
      TR_ERR_DATA,
      "%s: token %d at place %lld is not in the vocabulary of %llu; these tokens belong to another tokenizer",
      corpus->bin.path, token, (long long)(first + i), (unsigned long long)limit);
}

tr_status tr__corpus_copy(const tr_corpus *corpus, int64_t first, int64_t count, int32_t *out) {
  if (first < 0 || count < 0 || first > corpus->tokens - count) {
    return tr_error(TR_ERR_USAGE, "%s: tokens %lld and %lld more do not exist; it has %lld", corpus->bin.path,
                    (long long)first, (long long)count, (long long)corpus->tokens);
  }
  while (count > 0) {
    int64_t n;
    const unsigned char *bytes = run_at(corpus, first, &n);
    if (n > count) n = count;
    uint64_t most = tr__token_widen(corpus->type, bytes, n, out);
    if (most >= limit_of(corpus)) {
      TR_TRY(check_whole(&corpus->bin));
      return bad_token(corpus, first, bytes, n);
    }
    first += n;
    out += n;
    count -= n;
  }
  return TR_OK;
}

tr_status tr__corpus_check(const tr_corpus *corpus) { return check_whole(&corpus->bin); }

tr_status tr_corpus_read(const tr_corpus *corpus, int64_t first, int64_t count, int32_t *out) {
  TR_TRY(tr__corpus_copy(corpus, first, count, out));
  return tr__corpus_check(corpus);
}

// A growing list of where documents start.
typedef struct starts {
  int64_t *start;
  int64_t count, capacity;
} starts;

static int starts_add(starts *list, int64_t start) {
  if (list->count == list->capacity) {
    int64_t capacity = list->capacity + list->capacity / 2 + SCANNED;
    int64_t *larger = realloc(list->start, (size_t)capacity * sizeof *larger);
    if (!larger) return 0;
    list->start = larger;
    list->capacity = capacity;
  }
  list->start[list->count++] = start;
  return 1;
}

// Add a start behind each end token. Most blocks hold none, and asking for that is a loop without branches.
static int find_ends(starts *list, int32_t end, int64_t first, const int32_t *token, int64_t count) {
  for (int64_t block = 0; block < count; block += BLOCK) {
    int n = count - block < BLOCK ? (int)(count - block) : BLOCK, hits = 0;
    if (n == BLOCK) {
      for (int i = 0; i < BLOCK; i++) hits += token[block + i] == end;
      if (hits == 0) continue;
    }
    for (int i = 0; i < n; i++) {
      if (token[block + i] == end && !starts_add(list, first + block + i + 1)) return 0;
    }
  }
  return 1;
}

static tr_status scan_ends(tr_corpus *corpus, starts *list) {
  int32_t token[SCANNED];
  int enough = starts_add(list, 0);
  for (int64_t first = 0; enough && corpus->end >= 0 && first < corpus->tokens; first += SCANNED) {
    int64_t n = corpus->tokens - first < SCANNED ? corpus->tokens - first : SCANNED;
    TR_TRY(tr_corpus_read(corpus, first, n, token));
    enough = find_ends(list, corpus->end, first, token, n);
  }
  // The last document may lack its end token.
  if (enough && list->start[list->count - 1] < corpus->tokens) enough = starts_add(list, corpus->tokens);
  if (enough) return TR_OK;
  return tr_error(TR_ERR_MEMORY, "%s: no memory for more than %lld documents", corpus->bin.path,
                  (long long)list->count);
}

tr_status tr_corpus_index(tr_corpus *corpus) {
  if (corpus->start) return TR_OK;
  if (corpus->format == TR_CORPUS_MEGATRON) {
    TR_TRY(tr__megatron_index(corpus));
    return check_whole(&corpus->idx);
  }
  starts list = {0};
  tr_status status = scan_ends(corpus, &list);
  if (status < 0) {
    free(list.start);
    return status;
  }
  corpus->start = list.start;
  corpus->ndocument = list.count - 1;
  return TR_OK;
}

int64_t tr_corpus_documents(const tr_corpus *corpus) { return corpus->ndocument; }

int64_t tr_corpus_document_start(const tr_corpus *corpus, int64_t i) { return corpus->start[i]; }

int64_t tr_corpus_document_of(const tr_corpus *corpus, int64_t token) {
  int64_t low = 0, high = corpus->ndocument;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (corpus->start[middle] <= token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}
