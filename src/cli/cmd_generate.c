// SPDX-License-Identifier: MIT
// `trireme generate`: continue a text with a trained model, printing as it goes.
//
// The model remembers as many tokens as it has positions. When they are used up, the decoder starts again
// from the last half of them: the text goes on without end, at the cost of re-reading half a context now and
// then. Bytes are printed once they make a whole character; what is no character, or would command the
// terminal, shows as U+FFFD there and is passed on unchanged to a file or a pipe.
#include "cli/arguments_internal.h"
#include "cli/cli_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/cpu.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/data/data.h"
#include "trireme/run/decode.h"
#include "trireme/train/train.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_LIMIT = 4096, TOKEN_BYTES = 64, JSON_LIMIT = 1 << 22 };

static void print_help(void) {
  printf("usage: trireme generate CKPT --prompt TEXT [OPTIONS]\n\n"
         "Continue a text with the model in CKPT: a checkpoint, a folder of checkpoints (the newest is taken),\n"
         "the folder of a run, or a Hugging Face folder (config.json, model.safetensors) with a vocabulary of\n"
         "256 bytes.\n\n"
         "  --prompt TEXT        what to continue; \"\" starts from a new line\n"
         "  --tokens N           how many tokens to write (200)\n"
         "  --temperature T      0: always the likeliest token; 1: as the model says; lower is safer (0.8)\n"
         "  --top-k K            draw from the K likeliest tokens only; 0: all (0)\n"
         "  --top-p P            draw from the likeliest tokens that together reach probability P (1)\n"
         "  --seed S             same seed, same text (1234)\n"
         "  --threads N          compute threads (as many as help: one per 4 million parameters, at most all\n"
         "                       cores)\n"
         "  --precision f32|bf16 of weights and activations (f32)\n"
         "  --json               one object at the end: prompt, text (the continuation), tokens, seconds,\n"
         "                       tokens_per_s, seed, checkpoint\n\n"
         "The model sees as many tokens as it has positions. When they are full, the last half of them is fed\n"
         "again and the text goes on from there (a sliding window); of a longer prompt the end is seen.\n\n"
         "examples:\n"
         "  trireme generate runs/demo --prompt '#define '\n"
         "  trireme generate runs/demo/checkpoints/step-00000300 --prompt 'struct ' --temperature 0.6\n"
         "  trireme generate runs/demo --prompt 'int ' --temperature 0 --json | jq -r .text\n");
}

typedef struct request {
  const char *path, *prompt;
  int64_t tokens, threads;
  tr_sampling sampling;
  int bf16, json;
} request;

static tr_status parse(int argc, char **argv, request *r) {
  int64_t seed = 1234;
  *r = (request){.tokens = 200, .sampling = {.temperature = 0.8, .top_p = 1}};
  const tr__argument table[] = {
      {.name = "--prompt", .kind = TR__ARGUMENT_TEXT, .out = &r->prompt},
      {.name = "--tokens", .kind = TR__ARGUMENT_COUNT, .out = &r->tokens, .min = 0, .max = 1e9},
      {.name = "--temperature", .kind = TR__ARGUMENT_REAL, .out = &r->sampling.temperature, .min = 0, .max = 100},
      {.name = "--top-k", .kind = TR__ARGUMENT_COUNT, .out = &r->sampling.top_k, .min = 0, .max = 1e9},
      {.name = "--top-p", .kind = TR__ARGUMENT_REAL, .out = &r->sampling.top_p, .min = 0, .max = 1},
      {.name = "--seed", .kind = TR__ARGUMENT_COUNT, .out = &seed, .min = 0, .max = 1e15},
      {.name = "--threads", .kind = TR__ARGUMENT_COUNT, .out = &r->threads, .min = 1, .max = 1024},
      {.name = "--precision", .kind = TR__ARGUMENT_CHOICE, .out = &r->bf16, .choices = {"f32", "bf16"}},
      {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  TR_TRY(tr__cli_parse("generate", argc, argv, table, sizeof table / sizeof *table,
                       "a checkpoint: its folder, a folder of checkpoints or the folder of a run", &r->path));
  r->sampling.seed = (uint64_t)seed;
  return r->prompt ? TR_OK : tr__cli_usage("generate", "give --prompt TEXT, what to continue (\"\" for nothing)");
}

// ---- what comes out

typedef struct writer {
  tr_text pending; // bytes of a character that is not whole yet
  tr_text all;     // everything so far as valid UTF-8, for --json
  int json, terminal;
} writer;

static int commands_terminal(const char *c, size_t length) {
  unsigned char first = (unsigned char)c[0];
  if (length == 1) return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f;
  return length == 2 && first == 0xc2 && (unsigned char)c[1] < 0xa0;
}

static void put(writer *w, const char *bytes, size_t n, int valid) {
  static const char replacement[] = "\xef\xbf\xbd";
  if (!valid && (w->json || w->terminal)) {
    bytes = replacement;
    n = sizeof replacement - 1;
  }
  if (w->json)
    tr_text_append_bytes(&w->all, bytes, n);
  else
    fwrite(bytes, 1, n, stdout);
}

// Write every whole character; at the `end` what is left as well.
static void flush(writer *w, int end) {
  size_t at = 0;
  while (at < w->pending.size) {
    int valid;
    const char *c = w->pending.data + at;
    size_t length = tr__cli_character(c, w->pending.size - at, &valid);
    if (length == 0 && !end) break;
    if (length == 0) length = w->pending.size - at, valid = 0;
    put(w, c, length, valid && !(w->terminal && commands_terminal(c, length)));
    at += length;
  }
  if (at > 0) memmove(w->pending.data, w->pending.data + at, w->pending.size - at);
  w->pending.size -= at;
  if (!w->json) fflush(stdout);
}

static tr_status write_bytes(writer *w, const char *bytes, size_t n) {
  tr_text_append_bytes(&w->pending, bytes, n);
  flush(w, 0);
  if (w->pending.failed || w->all.failed) return tr_error(TR_ERR_MEMORY, "no memory for the generated text");
  return ferror(stdout) ? tr_error(TR_ERR_IO, "cannot write the text to standard output") : TR_OK;
}

// ---- the model

typedef struct generator {
  char folder[PATH_LIMIT];
  tr_gpt2_config config;
  tr_model *model;
  tr_layout layout;
  tr_arena weights;
  tr_tokenizer *tokenizer;
  tr_pool *pool;
  tr_decoder *decoder;
  int64_t capacity, vocab;
  int32_t *history; // prompt and everything written so far
  int64_t length;
  tr_candidate *work;
} generator;

// The tokenizer that trainer.json names; a folder without one gets the byte tokenizer if its vocabulary fits.
static tr_status open_tokenizer(generator *g) {
  char path[PATH_LIMIT + 16];
  const char *name = NULL;
  json_t *json = NULL;
  snprintf(path, sizeof path, "%s/trainer.json", g->folder);
  if (tr_file_exists(path)) {
    TR_TRY(tr_json_load(path, JSON_LIMIT, &json));
    tr_status status = tr_json_get_string(json, path, "tokenizer", 0, &name);
    if (status == TR_OK && name) status = tr_tokenizer_open(name, &g->tokenizer);
    json_decref(json);
    if (status < 0 || name) return status;
  }
  if (g->config.vocab == 256) return tr_tokenizer_open("byte", &g->tokenizer);
  return tr_error(TR_ERR_CKPT,
                  "%s: nothing says which tokenizer this model uses (no trainer.json with a \"tokenizer\"), and its "
                  "vocabulary of %lld is not that of bytes, 256; a checkpoint made by trireme train would work",
                  g->folder, (long long)g->config.vocab);
}

static tr_status load(generator *g, const request *r) {
  tr_dtype type = r->bf16 ? TR_BF16 : TR_F32;
  TR_TRY(tr__cli_find_checkpoint(r->path, 1, g->folder, sizeof g->folder));
  TR_TRY(tr_model_folder_config(g->folder, &g->config));
  TR_TRY(open_tokenizer(g));
  g->vocab = tr_tokenizer_vocab(g->tokenizer);
  if (g->vocab > g->config.vocab)
    return tr_error(TR_ERR_CKPT, "%s: tokenizer '%s' has %lld tokens, the model only %lld", g->folder,
                    tr_tokenizer_name(g->tokenizer), (long long)g->vocab, (long long)g->config.vocab);
  TR_TRY(tr_gpt2_create(&g->config, &g->model));
  TR_TRY(tr_layout_build(g->model, &g->layout));
  TR_TRY(tr_arena_create(&g->weights, "weights", (size_t)g->layout.total * tr_dtype_size(type)));
  return tr_model_folder_weights(g->folder, g->model, &g->layout, type, g->weights.base, NULL, NULL);
}

// One token at a time is little work: below this many weights per thread, handing it out costs more than it saves.
static int useful_threads(const tr_model *model) {
  int64_t useful = 1 + tr_model_count(model) / 4000000, cores = tr_cpu_count();
  return (int)(useful < cores ? useful : cores);
}

// Tokens of the prompt into the history, and a decoder with room for what is to come.
static tr_status prepare(generator *g, const request *r) {
  size_t nprompt = 0;
  const char *prompt = *r->prompt ? r->prompt : "\n";
  size_t nbyte = strlen(prompt);
  g->history = malloc((nbyte + (size_t)r->tokens) * sizeof *g->history);
  g->work = malloc((size_t)g->config.vocab * sizeof *g->work);
  if (!g->history || !g->work) return tr_error(TR_ERR_MEMORY, "no memory for %lld tokens", (long long)r->tokens);
  TR_TRY(tr_tokenizer_encode(g->tokenizer, prompt, nbyte, g->history, &nprompt));
  g->length = (int64_t)nprompt;
  int64_t most = g->length + r->tokens;
  g->capacity = most < g->config.positions ? most : g->config.positions;
  if (g->length > g->capacity)
    tr_log_warn("the prompt has %lld tokens, the model sees %lld: only the end of it counts", (long long)g->length,
                (long long)g->capacity);
  int threads = r->threads ? (int)r->threads : useful_threads(g->model);
  TR_TRY(tr_pool_create(threads, threads <= tr_cpu_count(), NULL, NULL, &g->pool));
  return tr_decoder_create(g->model, &g->layout, g->weights.base, r->bf16 ? TR_BF16 : TR_F32, tr_kernels_cpu(),
                           g->pool, g->capacity, &g->decoder);
}

// Show the decoder the last `fresh` tokens of the history; when they do not fit, it starts again from the
// last half context.
static tr_status feed(generator *g, int64_t fresh, const float **logits) {
  if (tr_decoder_length(g->decoder) + fresh > g->capacity) {
    int64_t half = g->capacity > 1 ? g->capacity / 2 : 1;
    fresh = fresh > g->capacity ? g->capacity : fresh > half ? fresh : half;
    if (fresh > g->length) fresh = g->length;
    tr_decoder_reset(g->decoder);
  }
  return tr_decoder_append(g->decoder, g->history + g->length - fresh, fresh, logits);
}

static tr_status draw(generator *g, const request *r, int64_t number, const float *logits, int32_t *token) {
  for (int64_t i = 0; i < g->vocab; i++)
    if (!isfinite(logits[i]))
      return tr_error(TR_ERR_NAN,
                      "%s: the model's output for token %lld is not a finite number; its weights are broken",
                      g->folder, (long long)i);
  *token = tr_sample_token(&r->sampling, logits, g->vocab, number, g->work);
  return TR_OK;
}

static tr_status write_tokens(generator *g, const request *r, writer *w) {
  const float *logits = NULL;
  int64_t fresh = g->length;
  for (int64_t i = 0; i < r->tokens; i++) {
    char bytes[TOKEN_BYTES];
    int32_t token = 0;
    TR_TRY(feed(g, fresh, &logits));
    TR_TRY(draw(g, r, i, logits, &token));
    g->history[g->length++] = token;
    fresh = 1;
    TR_TRY(write_bytes(w, bytes, tr_tokenizer_decode(g->tokenizer, token, bytes)));
  }
  return TR_OK;
}

// ---- the command

static tr_status print_json(const request *r, const generator *g, writer *w, double seconds) {
  writer prompt = {.json = 1};
  tr_text_append(&prompt.pending, "%s", r->prompt);
  flush(&prompt, 1);
  json_t *json = json_pack("{s:s, s:s, s:I, s:f, s:f, s:I, s:s}", "prompt", prompt.all.data ? prompt.all.data : "",
                           "text", "", "tokens", (json_int_t)r->tokens, "seconds", seconds, "tokens_per_s",
                           seconds > 0 ? (double)r->tokens / seconds : 0, "seed", (json_int_t)r->sampling.seed,
                           "checkpoint", g->folder);
  // The text may hold zero bytes, so its length is given.
  if (json) json_object_set_new(json, "text", json_stringn(w->all.data ? w->all.data : "", w->all.size));
  char *text = json ? json_dumps(json, JSON_REAL_PRECISION(6)) : NULL;
  tr_status status = text ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory for the JSON object, or the path is no UTF-8");
  if (text) puts(text);
  free(text);
  json_decref(json);
  tr_text_free(&prompt.pending);
  tr_text_free(&prompt.all);
  return status;
}

static tr_status generate(generator *g, const request *r, writer *w) {
  TR_TRY(load(g, r));
  TR_TRY(prepare(g, r));
  if (!r->json) TR_TRY(write_bytes(w, r->prompt, strlen(r->prompt)));
  double begin = tr_clock_seconds();
  TR_TRY(write_tokens(g, r, w));
  flush(w, 1);
  if (r->json) TR_TRY(print_json(r, g, w, tr_clock_seconds() - begin));
  if (!r->json) putchar('\n');
  return fflush(stdout) != 0 || ferror(stdout) ? tr_error(TR_ERR_IO, "cannot write the text to standard output")
                                               : TR_OK;
}

static void close_generator(generator *g) {
  tr_decoder_destroy(g->decoder);
  tr_pool_destroy(g->pool);
  tr_tokenizer_close(g->tokenizer);
  if (g->weights.base) tr_arena_destroy(&g->weights);
  if (g->layout.unit_start) tr_layout_destroy(&g->layout);
  tr_model_destroy(g->model);
  free(g->history);
  free(g->work);
}

int tr__cli_generate(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) return print_help(), 0;
  request r;
  generator g = {0};
  tr_status status = parse(argc, argv, &r);
  writer w = {.json = r.json, .terminal = isatty(STDOUT_FILENO)};
  if (status == TR_OK) status = generate(&g, &r, &w);
  close_generator(&g);
  tr_text_free(&w.pending);
  tr_text_free(&w.all);
  return status < 0 ? tr__cli_fail(status) : 0;
}
