// SPDX-License-Identifier: MIT
// `trireme inspect`: what a checkpoint or a .safetensors file holds, as a table or as JSON, and whether its
// bytes are intact.
//
// Everything is collected first, as one JSON object, and then printed from it, so the two forms cannot tell
// different stories. Names in files are not trusted: what could command a terminal is shown as '?'.
#include "cli/arguments_internal.h"
#include "cli/cli_internal.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/data/data.h"
#include "trireme/model/arch.h"
#include "trireme/token/tokenizer.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_LIMIT = 4096, NAME_LIMIT = 256, TRAINER_LIMIT = 64 << 20 };

static void print_help(void) {
  printf(
      "usage: trireme inspect PATH [--tensors] [--ledger] [--verify] [--json]\n\n"
      "Show what PATH holds: a checkpoint, a folder of checkpoints (the newest is taken), the folder of a\n"
      "run, a Hugging Face folder, one .safetensors file, a file of tokens (.bin) or a tokenizer.json.\n\n"
      "  --tensors   also the mean, standard deviation, smallest and largest value of every tensor, how many\n"
      "              of its values are not finite, and the tensors of the optimizer\n"
      "  --ledger    instead of files and tensors: which samples the run has used, each once, and what decides its\n"
      "              bits; with --json or --tensors, besides them\n"
      "  --verify    check every hash of the checkpoint; prints ok, or ends with exit code 4 and says what\n"
      "              has changed\n"
      "  --json      one JSON object instead of the tables\n\n"
      "examples:\n"
      "  trireme inspect runs/demo\n"
      "  trireme inspect runs/demo/checkpoints/step-00000300 --verify\n"
      "  trireme inspect model.safetensors --tensors --json | jq '.tensors[] | select(.nonfinite > 0)'\n");
}

typedef struct request {
  const char *path;
  int tensors, ledger, verify, json;
} request;

static tr_status parse(int argc, char **argv, request *r) {
  *r = (request){0};
  const tr__argument table[] = {{.name = "--tensors", .kind = TR__ARGUMENT_FLAG, .out = &r->tensors},
                                {.name = "--ledger", .kind = TR__ARGUMENT_FLAG, .out = &r->ledger},
                                {.name = "--verify", .kind = TR__ARGUMENT_FLAG, .out = &r->verify},
                                {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  return tr__cli_parse("inspect", argc, argv, table, sizeof table / sizeof *table,
                       "what to show: a checkpoint, the folder of a run or a .safetensors file", &r->path);
}

// ---- collecting

// A name as JSON: valid UTF-8 without control characters.
static json_t *safe_name(const char *name) {
  char out[NAME_LIMIT];
  size_t at = 0, n = strlen(name);
  for (size_t i = 0; i < n && at + 5 < sizeof out;) {
    int valid;
    size_t length = tr__cli_character(name + i, n - i, &valid);
    if (length == 0) length = n - i, valid = 0;
    if (valid && (unsigned char)name[i] >= 0x20 && name[i] != 0x7f && (unsigned char)name[i] != 0xc2) {
      memcpy(out + at, name + i, length);
      at += length;
    } else {
      out[at++] = '?';
    }
    i += length;
  }
  return json_stringn(out, at);
}

typedef struct statistics {
  double mean, std, min, max;
  int64_t nonfinite;
} statistics;

// Two passes over blocks of f32: the mean first, then deviations from it. Values that are not
// finite are only counted.
static statistics measure(const tr_safetensors_entry *entry) {
  enum { BLOCK = 4096 };
  float block[BLOCK];
  statistics s = {.min = INFINITY, .max = -INFINITY};
  size_t size = tr_dtype_size(entry->type), n = entry->nbyte / size, finite = 0;
  double sum = 0, squares = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (size_t first = 0; first < n; first += BLOCK) {
      size_t count = n - first < BLOCK ? n - first : BLOCK;
      tr_safetensors_entry part = *entry;
      part.shape = (tr_shape){.ndim = 1, .dim = {(int64_t)count}};
      part.data = (const char *)entry->data + first * size;
      part.nbyte = count * size;
      if (tr_safetensors_read(&part, 0, TR_F32, block) < 0) return s;
      for (size_t i = 0; i < count; i++) {
        if (!isfinite(block[i])) continue;
        finite += pass == 0;
        sum += pass == 0 ? (double)block[i] : 0;
        squares += pass == 1 ? (block[i] - s.mean) * (block[i] - s.mean) : 0;
        s.min = fmin(s.min, block[i]);
        s.max = fmax(s.max, block[i]);
      }
    }
    if (pass == 0 && finite) s.mean = sum / (double)finite;
  }
  if (finite) s.std = sqrt(squares / (double)finite);
  s.nonfinite = (int64_t)(n - finite);
  return s;
}

static json_t *number_or_null(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *describe_tensor(const char *file, const tr_safetensors_entry *entry, int with_statistics) {
  json_t *tensor = json_object(), *shape = json_array();
  for (int i = 0; i < entry->shape.ndim; i++)
    json_array_append_new(shape, json_integer((json_int_t)entry->shape.dim[i]));
  json_object_set_new(tensor, "file", safe_name(file));
  json_object_set_new(tensor, "name", safe_name(entry->name));
  json_object_set_new(tensor, "type", json_string(tr_dtype_name(entry->type)));
  json_object_set_new(tensor, "shape", shape);
  json_object_set_new(tensor, "bytes", json_integer((json_int_t)entry->nbyte));
  if (!with_statistics) return tensor;
  statistics s = measure(entry);
  json_object_set_new(tensor, "mean", number_or_null(s.mean));
  json_object_set_new(tensor, "std", number_or_null(s.std));
  json_object_set_new(tensor, "min", number_or_null(s.min));
  json_object_set_new(tensor, "max", number_or_null(s.max));
  json_object_set_new(tensor, "nonfinite", json_integer((json_int_t)s.nonfinite));
  return tensor;
}

static tr_status add_tensors(const char *path, const char *name, int with_statistics, json_t *tensors) {
  tr_safetensors *file;
  TR_TRY(tr_safetensors_open(path, &file));
  for (size_t i = 0; i < tr_safetensors_count(file); i++)
    json_array_append_new(tensors, describe_tensor(name, tr_safetensors_at(file, i), with_statistics));
  tr_safetensors_close(file);
  return TR_OK;
}

static tr_status add_file(const char *folder, const char *name, const request *r, json_t *about) {
  char path[PATH_LIMIT];
  struct stat info;
  if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
    return tr_error(TR_ERR_CKPT, "%.60s...: the path of '%.40s' is too long", folder, name);
  if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return TR_OK;
  json_t *file = json_object();
  json_object_set_new(file, "name", safe_name(name));
  json_object_set_new(file, "bytes", json_integer((json_int_t)info.st_size));
  json_array_append_new(json_object_get(about, "files"), file);
  int is_model = strncmp(name, "model", 5) == 0 && tr_text_ends_in(name, ".safetensors");
  if (!is_model && !(r->tensors && tr_text_ends_in(name, ".safetensors"))) return TR_OK;
  return add_tensors(path, name, r->tensors, json_object_get(about, "tensors"));
}

static void add_model(const char *folder, json_t *about) {
  tr_arch arch;
  tr_model *model;
  if (tr_arch_load(folder, &arch, NULL, 0) < 0 || tr_arch_create(&arch, &model) < 0)
    return; // a folder of some other model
  tr_arch_sizes c = tr_arch_sizes_of(&arch);
  json_object_set_new(about, "parameters", json_integer((json_int_t)tr_model_count(model)));
  json_object_set_new(about, "model",
                      json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "kind", c.name, "layers", (json_int_t)c.layers,
                                "width", (json_int_t)c.width, "heads", (json_int_t)c.heads, "heads_kv",
                                (json_int_t)c.heads_kv, "vocab", (json_int_t)c.vocab, "positions",
                                (json_int_t)c.positions));
  tr_model_destroy(model);
}

// Ledger and contract of a checkpoint of ours, as its trainer.json has them.
static tr_status add_ledger(const char *folder, json_t *about) {
  char path[PATH_LIMIT];
  json_t *trainer;
  if (snprintf(path, sizeof path, "%s/trainer.json", folder) >= (int)sizeof path || !tr_file_exists(path))
    return tr_error(TR_ERR_CKPT, "%.200s: has no trainer.json, so no ledger; checkpoints of a run have one", folder);
  TR_TRY(tr_json_load(path, TRAINER_LIMIT, &trainer));
  tr_ledger ledger = {0};
  tr_status status = tr_ledger_from_json(json_object_get(trainer, "ledger"), path, &ledger);
  if (status == TR_OK) {
    json_object_set(about, "ledger", json_object_get(trainer, "ledger"));
    json_object_set(about, "contract", json_object_get(trainer, "contract"));
    json_object_set_new(about, "samples", json_integer((json_int_t)tr_ledger_end(&ledger)));
  }
  tr_ledger_free(&ledger);
  json_decref(trainer);
  return status;
}

static tr_status collect_folder(const char *folder, const request *r, json_t *about) {
  struct dirent **list = NULL;
  if (tr_ckpt_step(folder) >= 0) json_object_set_new(about, "step", json_integer((json_int_t)tr_ckpt_step(folder)));
  add_model(folder, about);
  if (r->ledger) TR_TRY(add_ledger(folder, about));
  int n = scandir(folder, &list, NULL, alphasort);
  if (n < 0) return tr_error(TR_ERR_IO, "%s: cannot list the folder: %s", folder, strerror(errno));
  tr_status status = TR_OK;
  for (int i = 0; i < n; i++) {
    if (status == TR_OK) status = add_file(folder, list[i]->d_name, r, about);
    free(list[i]);
  }
  free(list);
  return status;
}

static tr_status add_tokens(const char *path, json_t *about) {
  tr_corpus *corpus;
  TR_TRY(tr_corpus_open(&(tr_corpus_options){.path = path, .end = -1}, &corpus));
  tr_status status = tr_corpus_index(corpus);
  if (status == TR_OK) {
    json_object_set_new(about, "format", json_string(tr_corpus_format_name(corpus)));
    json_object_set_new(about, "tokens", json_integer((json_int_t)tr_corpus_tokens(corpus)));
    json_object_set_new(about, "documents", json_integer((json_int_t)tr_corpus_documents(corpus)));
  }
  tr_corpus_close(corpus);
  return status;
}

static tr_status add_tokenizer(const char *path, json_t *about) {
  tr_tokenizer *tokenizer;
  TR_TRY(tr_tokenizer_open(path, &tokenizer));
  json_object_set_new(about, "vocabulary", json_integer((json_int_t)tr_tokenizer_vocab(tokenizer)));
  json_object_set_new(about, "end", json_integer(tr_tokenizer_end(tokenizer)));
  tr_tokenizer_close(tokenizer);
  return TR_OK;
}

static tr_status collect(const request *r, const char *path, int is_folder, json_t *about) {
  json_object_set_new(about, "path", safe_name(path));
  json_object_set_new(about, "kind", json_string(is_folder ? "checkpoint" : "file"));
  json_object_set_new(about, "files", json_array());
  json_object_set_new(about, "tensors", json_array());
  if (is_folder) return collect_folder(path, r, about);
  if (tr_text_ends_in(path, ".bin") || tr_text_ends_in(path, ".idx")) return add_tokens(path, about);
  if (tr_text_ends_in(path, ".json")) return add_tokenizer(path, about);
  return add_tensors(path, path, r->tensors, json_object_get(about, "tensors"));
}

// ---- printing

static const char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : "";
}
static json_int_t count_of(const json_t *object, const char *key) {
  return json_integer_value(json_object_get(object, key));
}

static void shape_text(const json_t *tensor, char *out, size_t nbyte) {
  const json_t *dims = json_object_get(tensor, "shape");
  tr_shape shape = {.ndim = (int)json_array_size(dims)};
  for (int i = 0; i < shape.ndim; i++) shape.dim[i] = json_integer_value(json_array_get(dims, (size_t)i));
  tr_shape_text(&shape, out, nbyte);
}

static void print_number(const json_t *tensor, const char *key) {
  const json_t *value = json_object_get(tensor, key);
  if (json_is_number(value))
    printf("  %11.4g", json_number_value(value));
  else
    printf("  %11s", "-");
}

static void print_tensor(const json_t *tensor, int name_width, int with_statistics) {
  char shape[128];
  shape_text(tensor, shape, sizeof shape);
  printf("  %-*s  %-6s  %-16s  %12lld", name_width, text_of(tensor, "name"), text_of(tensor, "type"), shape,
         (long long)count_of(tensor, "bytes"));
  if (with_statistics) {
    print_number(tensor, "mean");
    print_number(tensor, "std");
    print_number(tensor, "min");
    print_number(tensor, "max");
    printf("  %9lld", (long long)count_of(tensor, "nonfinite"));
  }
  putchar('\n');
}

static void print_tensors(const json_t *tensors, int with_statistics) {
  const char *file = "";
  int width = 4;
  double total = 0;
  for (size_t i = 0; i < json_array_size(tensors); i++) {
    int n = (int)strlen(text_of(json_array_get(tensors, i), "name"));
    width = n > width ? n : width;
  }
  for (size_t i = 0; i < json_array_size(tensors); i++) {
    const json_t *tensor = json_array_get(tensors, i);
    if (strcmp(file, text_of(tensor, "file")) != 0) {
      file = text_of(tensor, "file");
      printf("\n%s\n  %-*s  %-6s  %-16s  %12s", file, width, "name", "type", "shape", "bytes");
      if (with_statistics) printf("  %11s  %11s  %11s  %11s  %9s", "mean", "std", "min", "max", "nonfinite");
      putchar('\n');
    }
    print_tensor(tensor, width, with_statistics);
    total += (double)count_of(tensor, "bytes");
  }
  char bytes[32];
  tr_format_bytes(bytes, sizeof bytes, total);
  printf("\ntotal       %zu tensors, %s (%.0f bytes)\n", json_array_size(tensors), bytes, total);
}

// What a file of tokens or a tokenizer is like.
static void print_data(const json_t *about) {
  if (json_object_get(about, "format"))
    printf("format      %s\ntokens      %lld\ndocuments   %lld\n", text_of(about, "format"),
           (long long)count_of(about, "tokens"), (long long)count_of(about, "documents"));
  if (json_object_get(about, "vocabulary"))
    printf("vocabulary  %lld tokens\nend of text %lld\n", (long long)count_of(about, "vocabulary"),
           (long long)count_of(about, "end"));
}

static void print_ledger(const json_t *about) {
  const json_t *ledger = json_object_get(about, "ledger");
  char *contract = json_dumps(json_object_get(about, "contract"), JSON_INDENT(2));
  printf("\nledger      %lld samples, each used once\n", (long long)count_of(about, "samples"));
  for (size_t i = 0; i < json_array_size(ledger); i++) {
    const json_t *span = json_array_get(ledger, i);
    printf("  %12lld to %12lld  until step %lld on %lld ranks\n", (long long)count_of(span, "first"),
           (long long)count_of(span, "end") - 1, (long long)count_of(span, "step"),
           (long long)count_of(span, "ranks"));
  }
  if (contract) printf("contract    %s\n", contract);
  free(contract);
}

static void print_files(const json_t *files) {
  char bytes[32];
  for (size_t i = 0; i < json_array_size(files); i++) {
    const json_t *file = json_array_get(files, i);
    tr_format_bytes(bytes, sizeof bytes, (double)count_of(file, "bytes"));
    printf("%s  %-24s %10s (%lld bytes)\n", i ? "          " : "files     ", text_of(file, "name"), bytes,
           (long long)count_of(file, "bytes"));
  }
}

static void print_text(const json_t *about, const request *r) {
  const json_t *model = json_object_get(about, "model");
  char count[32];
  printf("%s\n", text_of(about, "path"));
  if (json_object_get(about, "step")) printf("step        %lld\n", (long long)count_of(about, "step"));
  if (model) {
    tr_format_count(count, sizeof count, (double)count_of(about, "parameters"));
    printf("model       %s: %lld layers, width %lld, %lld heads, vocabulary %lld, %lld positions\n",
           text_of(model, "kind"), (long long)count_of(model, "layers"), (long long)count_of(model, "width"),
           (long long)count_of(model, "heads"), (long long)count_of(model, "vocab"),
           (long long)count_of(model, "positions"));
    printf("parameters  %s (%lld)\n", count, (long long)count_of(about, "parameters"));
  }
  int whole = r->tensors || !r->ledger;
  if (whole) print_files(json_object_get(about, "files"));
  print_data(about);
  if (r->ledger && json_object_get(about, "ledger")) print_ledger(about);
  if (whole && json_array_size(json_object_get(about, "tensors")))
    print_tensors(json_object_get(about, "tensors"), r->tensors);
  if (json_object_get(about, "verified"))
    printf("verified    ok: every file and tensor has the hash that the manifest gives\n");
}

static tr_status print(const json_t *about, const request *r) {
  if (r->json) {
    char *text = json_dumps(about, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    if (!text) return tr_error(TR_ERR_MEMORY, "no memory for the JSON object");
    puts(text);
    free(text);
  } else {
    print_text(about, r);
  }
  return fflush(stdout) != 0 || ferror(stdout) ? tr_error(TR_ERR_IO, "cannot write to standard output") : TR_OK;
}

static tr_status inspect(const request *r, json_t *about) {
  char path[PATH_LIMIT];
  struct stat info;
  if (stat(r->path, &info) != 0) return tr_error(TR_ERR_CKPT, "%s: %s", r->path, strerror(errno));
  int is_folder = S_ISDIR(info.st_mode);
  if (!is_folder && r->verify)
    return tr__cli_usage("inspect",
                         "--verify needs a checkpoint's folder: '%.200s' is a file, and its hashes stand in the "
                         "folder's manifest.json",
                         r->path);
  if (is_folder)
    TR_TRY(tr__cli_find_checkpoint(r->path, 0, path, sizeof path));
  else if (snprintf(path, sizeof path, "%s", r->path) >= (int)sizeof path)
    return tr_error(TR_ERR_CKPT, "%.60s...: the path is too long", r->path);
  if (r->verify) {
    TR_TRY(tr_ckpt_verify(path));
    json_object_set_new(about, "verified", json_true());
  }
  TR_TRY(collect(r, path, is_folder, about));
  return print(about, r);
}

int tr__cli_inspect(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) return print_help(), 0;
  request r;
  tr_status status = parse(argc, argv, &r);
  json_t *about = json_object();
  if (status == TR_OK) status = about ? inspect(&r, about) : tr_error(TR_ERR_MEMORY, "no memory for the description");
  json_decref(about);
  return status < 0 ? tr__cli_fail(status) : 0;
}
