// SPDX-License-Identifier: MIT
// `trireme convert`: weights into another folder, with another number type, other files, other names.
#include "cli/arguments_internal.h"
#include "cli/cli_internal.h"
#include "trireme/base/text.h"
#include "trireme/ckpt/convert.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_LIMIT = 4096 };

static void print_help(void) {
  printf(
      "usage: trireme convert FROM TO [--dtype f32|bf16|f16] [--shard-size BYTES | --reshard N] [--names "
      "keep|model]\n"
      "                       [--optimizer]\n\n"
      "Write the weights of FROM into the new folder TO, in the form that Hugging Face's programs and this one\n"
      "read: config.json, tensors in safetensors files, and a manifest with their hashes. FROM is a checkpoint, a\n"
      "folder of checkpoints (the newest is taken), the folder of a run, or a Hugging Face folder. Its tensors must\n"
      "be those of its config.json. Files of the tokenizer and of generation settings go along. Pickle files (.bin,\n"
      ".pt) are never read. TO appears whole or not at all.\n\n"
      "  --dtype TYPE       the type of the weights; as they are unless given\n"
      "  --shard-size SIZE  begin a new file when one would have more than this, as 5GB; otherwise one file\n"
      "  --reshard N        N files of about the same size\n"
      "  --names model      names as this library writes them (transformer.h.0..., model.layers.0...), and nothing\n"
      "                     but weights; keep: all tensors under the names that they have (the default)\n"
      "  --optimizer        also the optimizer's state and trainer.json, so that a run can be resumed from TO\n\n"
      "examples:\n"
      "  trireme convert runs/demo model-bf16 --dtype bf16\n"
      "  trireme convert downloads/llama ours --names model --shard-size 5GB\n");
}

typedef struct request {
  const char *from, *to;
  int dtype, names, optimizer;
  int64_t shard_size, shards;
} request;

static tr_status parse(int argc, char **argv, request *r) {
  size_t npath;
  *r = (request){.dtype = -1};
  const tr__argument table[] = {
      {.name = "--dtype", .kind = TR__ARGUMENT_CHOICE, .out = &r->dtype, .choices = {"f32", "bf16", "f16"}},
      {.name = "--shard-size", .kind = TR__ARGUMENT_COUNT, .out = &r->shard_size, .min = 1, .max = 1e15},
      {.name = "--reshard", .kind = TR__ARGUMENT_COUNT, .out = &r->shards, .min = 1, .max = 5000},
      {.name = "--names", .kind = TR__ARGUMENT_CHOICE, .out = &r->names, .choices = {"keep", "model"}},
      {.name = "--optimizer", .kind = TR__ARGUMENT_FLAG, .out = &r->optimizer}};
  TR_TRY(tr__cli_parse_paths("convert", argc, argv, table, sizeof table / sizeof *table, &npath));
  if (npath != 2)
    return tr__cli_usage("convert", "give two paths, the folder to read and the new folder, not %zu", npath);
  if (!*argv[1] || !*argv[2])
    return tr__cli_usage("convert", "the %s path is empty; an unset variable, perhaps",
                         *argv[1] ? "second" : "first");
  if (r->shard_size && r->shards)
    return tr__cli_usage("convert", "--shard-size and --reshard both say how many files there will be; give one");
  r->from = argv[1];
  r->to = argv[2];
  return TR_OK;
}

// On a terminal, how far it is.
static void show(void *user, uint64_t done, uint64_t all) {
  int *shown = user, percent = all ? (int)(100.0 * (double)done / (double)all) : 100;
  if (percent == *shown) return;
  *shown = percent;
  fprintf(stderr, "\r%3d %%%s", percent, percent == 100 ? "\r     \r" : "");
}

static tr_status say(const char *to) {
  tr_tensors *tensors;
  char bytes[32];
  TR_TRY(tr_tensors_open(to, "model", &tensors));
  tr_format_bytes(bytes, sizeof bytes, (double)tr_tensors_bytes(tensors));
  printf("%s: %zu tensors in %zu %s, %s\n", to, tr_tensors_count(tensors), tr_tensors_files(tensors),
         tr_tensors_files(tensors) == 1 ? "file" : "files", bytes);
  tr_tensors_close(tensors);
  return TR_OK;
}

static tr_status convert(const request *r) {
  static const tr_dtype types[] = {TR_F32, TR_BF16, TR_F16};
  char from[PATH_LIMIT];
  int shown = -1;
  // With hashes: a damaged checkpoint must not become one with a fresh manifest.
  TR_TRY(tr__cli_find_checkpoint(r->from, 1, from, sizeof from));
  const tr_convert_options options = {.from = from,
                                      .to = r->to,
                                      .dtype = r->dtype < 0 ? -1 : (int64_t)types[r->dtype],
                                      .shard_limit = (uint64_t)r->shard_size,
                                      .shards = r->shards,
                                      .names = r->names ? TR_NAMES_MODEL : TR_NAMES_KEEP,
                                      .optimizer = r->optimizer,
                                      .progress = isatty(STDERR_FILENO) ? show : NULL,
                                      .user = &shown};
  TR_TRY(tr_convert_folder(&options));
  return say(r->to);
}

int tr__cli_convert(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) return print_help(), 0;
  request r;
  tr_status status = parse(argc, argv, &r);
  if (status == TR_OK) status = convert(&r);
  return status < 0 ? tr__cli_fail(status) : 0;
}
