// SPDX-License-Identifier: MIT
// The data of a run: which tokenizer, which files, and text made into tokens once. Token files are read as they are, and so
// is plain text by the byte tokenizer; any other text is tokenized into a cache whose name follows from the text
// (path, size, time), the tokenizer and the settings, so that the next start finds it.
#include "train/saving_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/cpu.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/data/tokenize.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int is_token_file(const char *path) {
  char index[4096];
  if (tr_text_ends_in(path, ".bin") || tr_text_ends_in(path, ".idx")) return 1;
  return snprintf(index, sizeof index, "%s.idx", path) < (int)sizeof index && tr_file_exists(index);
}

// Text that the byte tokenizer can read in place.
static int is_plain(const char *path) {
  static const char *const other[] = {".jsonl", ".ndjson", ".json", ".gz", ".zst"};
  for (size_t i = 0; i < sizeof other / sizeof *other; i++)
    if (tr_text_ends_in(path, other[i])) return 0;
  return 1;
}

// ---- lists in settings

// The parts of "a,b,c" in `out`, which the caller frees with free_list. A text that names an existing file is one part,
// commas and all.
static tr_status split_list(const char *text, int may_be_file, char ***out, size_t *count) {
  size_t n = 1;
  for (const char *c = text; *c; c++) n += *c == ',';
  if (may_be_file && tr_file_exists(text)) n = 1;
  char **list = calloc(n, sizeof *list);
  int failed = !list;
  for (size_t i = 0; i < n && !failed; i++) {
    size_t length = n == 1 ? strlen(text) : strcspn(text, ",");
    list[i] = strndup(text, length);
    failed = !list[i];
    text += length + 1;
  }
  *out = list;
  *count = list ? n : 0;
  return failed ? tr_error(TR_ERR_MEMORY, "no memory for a list of %zu names", n) : TR_OK;
}

static void free_list(char **list, size_t count) {
  for (size_t i = 0; i < count; i++) free(list[i]);
  free(list);
}

static tr_status parse_weights(const tr_train_config *c, const tr_options *options, size_t npath, double **out) {
  char **word = NULL;
  size_t count = 0;
  if (!*c->data.weights) return TR_OK;
  tr_status status = split_list(c->data.weights, 0, &word, &count);
  *out = status == TR_OK ? calloc(count + 1, sizeof **out) : NULL;
  if (status == TR_OK && !*out) status = tr_error(TR_ERR_MEMORY, "no memory for %zu shares", count);
  if (status == TR_OK && count != npath)
    status = tr_options_error(options, "data.weights", "%zu shares for the %zu files of data.path", count, npath);
  for (size_t i = 0; i < count && status == TR_OK; i++) {
    if (tr_parse_real(word[i], &(*out)[i]) < 0 || !(isfinite((*out)[i]) && (*out)[i] > 0))
      status = tr_options_error(options, "data.weights", "'%.40s' is no share; numbers above 0 are", word[i]);
  }
  free_list(word, count);
  return status;
}

// ---- the tokenizer

// Which kinds of files there are.
static tr_status kinds_of_files(const tr_train_config *c, int *text, int *tokens) {
  char **path;
  size_t npath;
  TR_TRY(split_list(c->data.path, 1, &path, &npath));
  *text = *tokens = 0;
  for (size_t i = 0; i < npath; i++) *(is_token_file(path[i]) ? tokens : text) = 1;
  free_list(path, npath);
  return TR_OK;
}

// Whether the folder is a checkpoint of a run on bytes.
static int is_byte_checkpoint(const char *folder) {
  char path[4200];
  json_t *json;
  snprintf(path, sizeof path, "%s/trainer.json", folder);
  if (!*folder || !tr_file_exists(path) || tr_json_load(path, TRAINER_LIMIT, &json) < 0) return 0;
  const char *name = json_string_value(json_object_get(json, "tokenizer"));
  int is_bytes = name && strcmp(name, "byte") == 0;
  json_decref(json);
  return is_bytes;
}

// data.tokenizer=auto: that of the model folder, else none for token files and bytes for text. *name "": none.
static tr_status choose_tokenizer(const tr_train_plan *plan, const tr_options *options, char *name, size_t nbyte) {
  const tr_train_config *c = plan->config;
  int text, tokens;
  TR_TRY(kinds_of_files(c, &text, &tokens));
  int n = snprintf(name, nbyte, "%s/tokenizer.json", plan->from);
  if (*plan->from && n > 0 && (size_t)n < nbyte && tr_file_exists(name)) return TR_OK;
  snprintf(name, nbyte, "%s", text ? "byte" : "");
  if (is_byte_checkpoint(plan->from) || (*plan->from && tr_arch_sizes_of(&plan->arch).vocab == 256)) return TR_OK;
  if (text && tokens)
    return tr_options_error(options, "data.path",
                            "token files and text together need a tokenizer; give data.tokenizer");
  if (text && *plan->model_folder)
    return tr_options_error(options, "data.path",
                            "%s has weights but no tokenizer.json; give data.tokenizer (byte, or a file)",
                            plan->model_folder);
  return TR_OK;
}

tr_status tr__plan_tokenizer(tr_train_plan *plan, const tr_options *options) {
  const char *setting = plan->config->data.tokenizer;
  char name[sizeof plan->tokenizer_path], inside[sizeof plan->tokenizer_path + 16];
  snprintf(name, sizeof name, "%s", strcmp(setting, "none") == 0 ? "" : setting);
  if (strcmp(setting, "auto") == 0) TR_TRY(choose_tokenizer(plan, options, name, sizeof name));
  if (!*name) return TR_OK;
  int n = snprintf(inside, sizeof inside, "%s/tokenizer.json", name);
  if (n < (int)sizeof name && tr_file_exists(inside)) memcpy(name, inside, sizeof name);
  if (tr_tokenizer_open(name, &plan->tokenizer) < 0)
    return tr_options_error(options, "data.tokenizer", "%s", tr_status_text());
  if (!tr_tokenizer_is_bytes(plan->tokenizer)) memcpy(plan->tokenizer_path, name, sizeof name);
  return TR_OK;
}

// ---- text to tokens

static uint64_t cache_key(const tr_train_plan *plan, const char *path, const struct stat *about) {
  const tr_train_config *c = plan->config;
  tr_text text = {0};
  tr_text_append(&text, "%s %lld %lld %lld %" PRIx64 " %s %d", path, (long long)about->st_size,
                 (long long)about->st_mtim.tv_sec, (long long)about->st_mtim.tv_nsec,
                 tr_tokenizer_hash(plan->tokenizer), c->data.key, c->data.split);
  uint64_t hash = tr_hash_bytes(text.data, text.size);
  tr_text_free(&text);
  return hash;
}

static int say_tokenizing(void *user, const tr_tokenize_progress *p) {
  const tr_train_plan *plan = user;
  if (plan->progress) {
    fprintf(stderr, "\r\033[Ktokenizing  %.0f%%  %.1f MB/s", 100 * p->share,
            p->seconds > 0 ? (double)p->bytes * 1e-6 / p->seconds : 0);
    fflush(stderr);
  }
  return 1;
}

static tr_status tokenize(tr_train_plan *plan, const char *path, const char *cache) {
  const tr_train_config *c = plan->config;
  tr_tokenize_progress done;
  tr_tokenize_options options = {.tokenizer = plan->tokenizer,
                                 .path = &path,
                                 .npath = 1,
                                 .key = c->data.key,
                                 .split = c->data.split,
                                 .output = cache,
                                 .format = TR_CORPUS_MEGATRON,
                                 .end = 1,
                                 .nthread = tr_cpu_count(),
                                 .progress = say_tokenizing,
                                 .user = plan};
  tr_status status = tr_tokenize(&options, &done);
  if (plan->progress) fputs("\r\033[K", stderr);
  if (status < 0) return status;
  printf("tokenized %s: %lld tokens of %lld document%s in %.1f s, kept as %s.bin\n", path, (long long)done.tokens,
         (long long)done.documents, done.documents == 1 ? "" : "s", done.seconds, cache);
  return TR_OK;
}

// Whether the cache holds what it should. Damaged, it is made again.
static int is_sound(const char *cache, const char *bin, const char *idx) {
  tr_corpus *corpus;
  if (!tr_file_exists(bin)) {
    unlink(idx);
    return 0;
  }
  if (tr_corpus_open(&(tr_corpus_options){.path = cache, .end = -1}, &corpus) == TR_OK) {
    tr_corpus_close(corpus);
    return 1;
  }
  tr_log_warn("tokenizing again, because what was kept is damaged: %s", tr_status_text());
  unlink(bin);
  unlink(idx);
  return 0;
}

// Of ranks that others have started the first tokenizes, where all can read it. The deadline counts from the last time that
// the file under way grew.
static tr_status await_tokens(const tr_train_plan *plan, const char *path, const char *bin) {
  char partial[4096 + 320];
  struct stat about;
  off_t size = -1;
  double since = tr_clock_seconds(), deadline = plan->config->run.deadline;
  snprintf(partial, sizeof partial, "%s.partial", bin);
  while (!tr_file_exists(bin)) {
    if (stat(partial, &about) == 0 && about.st_size != size) {
      size = about.st_size;
      since = tr_clock_seconds();
    }
    if (tr_clock_seconds() - since > deadline)
      return tr_error(TR_ERR_TIMEOUT, "rank %d waited %.0f s for rank 0 to tokenize %s; no %s is there or grows",
                      plan->place.rank, deadline, path, partial);
    tr_clock_sleep_ns(20000000);
  }
  return TR_OK;
}

// Replace *path by the token file made from it.
static tr_status cached(tr_train_plan *plan, char **path) {
  const tr_train_config *c = plan->config;
  char folder[4096], cache[4096 + 300], bin[4096 + 310], idx[4096 + 310];
  struct stat about;
  if (stat(*path, &about) != 0 || !S_ISREG(about.st_mode)) return TR_OK; // the corpus says what is wrong
  const char *base = strrchr(*path, '/');
  snprintf(folder, sizeof folder, *c->data.cache ? "%s" : "%s/data",
           *c->data.cache ? c->data.cache : c->train.folder);
  snprintf(cache, sizeof cache, "%s/%.200s-%016" PRIx64, folder, base ? base + 1 : *path,
           cache_key(plan, *path, &about));
  snprintf(bin, sizeof bin, "%s.bin", cache); // gets its name last
  snprintf(idx, sizeof idx, "%s.idx", cache);
  if (plan->place.rank > 0) {
    TR_TRY(await_tokens(plan, *path, bin));
  } else if (!is_sound(cache, bin, idx)) {
    TR_TRY(tr_file_make_folders(folder));
    tr_status status = tokenize(plan, *path, cache);
    if (status < 0 && !tr_file_exists(bin)) { // another run may have been faster
      tr_error_prefix("data.cache %s", folder);
      return status;
    }
  }
  char *copy = strdup(cache);
  if (!copy) return tr_error(TR_ERR_MEMORY, "no memory for the name of %s", cache);
  free(*path);
  *path = copy;
  return TR_OK;
}

// Before hours are spent on the first file: all of them are there.
static tr_status check_path(const char *path) {
  char bin[4200];
  if (!*path) return tr_error(TR_ERR_DATA, "data.path has an empty name in its list");
  if (is_token_file(path) || access(path, R_OK) == 0) return TR_OK;
  int reason = errno;
  snprintf(bin, sizeof bin, "%s.bin", path);
  if (tr_file_exists(bin))
    return tr_error(TR_ERR_DATA, "%s: cannot be opened: %s; %s is there, name that", path, strerror(reason), bin);
  return tr_error(TR_ERR_DATA, "%s: cannot be opened: %s; name a readable file", path, strerror(reason));
}

static tr_status make_tokens(tr_train_plan *plan, char **path, const tr_options *options, const char *setting) {
  if (is_token_file(*path)) return TR_OK;
  if (!plan->tokenizer)
    return tr_options_error(options, setting, "%s is no token file (.bin), and data.tokenizer is none", *path);
  // Read in place, as one document; with documents to be found it becomes a token file of bytes.
  if (tr_tokenizer_is_bytes(plan->tokenizer) && is_plain(*path) && !plan->config->data.split) return TR_OK;
  return cached(plan, path);
}

// ---- the source

static tr_status open_source(tr_train_plan *plan, const tr_options *options, char **path, size_t npath,
                             const double *weight, char *val_path) {
  const tr_train_config *c = plan->config;
  plan->end = c->data.end >= 0 ? (int32_t)c->data.end : plan->tokenizer ? tr_tokenizer_end(plan->tokenizer) : -1;
  if (plan->end >= plan->sizes.vocab)
    return tr_options_error(options, "data.end", "token %d is not in the vocabulary of %lld", plan->end,
                            (long long)plan->sizes.vocab);
  tr_source_options source = {.path = (const char *const *)path,
                              .weight = weight,
                              .npath = npath,
                              .val_path = val_path,
                              .val_fraction = c->data.val_fraction,
                              .sequence = c->data.sequence,
                              .seed = (uint64_t)c->train.seed,
                              .packing = (tr_packing)c->data.packing,
                              .documents = c->data.documents,
                              .replacement = c->data.sampling == TR_SAMPLING_REPLACEMENT,
                              .text = plan->tokenizer && tr_tokenizer_is_bytes(plan->tokenizer),
                              .vocab = plan->sizes.vocab,
                              .end = plan->end};
  return tr_source_open(&source, &plan->source);
}

tr_status tr__plan_data(tr_train_plan *plan, const tr_options *options) {
  const tr_train_config *c = plan->config;
  char **path = NULL, *val_path = NULL;
  double *weight = NULL;
  size_t npath = 0;
  if (!*c->data.path) return tr_options_error(options, "data.path", "nothing to train on; give data.path=FILE");
  tr_status status = split_list(c->data.path, 1, &path, &npath);
  if (status == TR_OK) status = parse_weights(c, options, npath, &weight);
  for (size_t i = 0; i < npath && status == TR_OK; i++) status = check_path(path[i]);
  if (status == TR_OK && *c->data.val_path) status = check_path(c->data.val_path);
  for (size_t i = 0; i < npath && status == TR_OK; i++) status = make_tokens(plan, &path[i], options, "data.path");
  if (status == TR_OK && *c->data.val_path) {
    val_path = strdup(c->data.val_path);
    status = val_path ? make_tokens(plan, &val_path, options, "data.val_path")
                      : tr_error(TR_ERR_MEMORY, "no memory for the name of %s", c->data.val_path);
  }
  if (status == TR_OK) status = open_source(plan, options, path, npath, weight, val_path);
  free_list(path, npath);
  free(weight);
  free(val_path);
  return status;
}
