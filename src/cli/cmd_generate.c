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
#include "trireme/ckpt/weights.h"
#include "trireme/model/arch.h"
#include "trireme/run/decode.h"
#include "trireme/token/tokenizer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_LIMIT = 4096, JSON_LIMIT = 64 << 20, WINDOW = 16, MOST_ENDS = 16 };

static void print_help(void) {
  printf("usage: trireme generate CKPT --prompt TEXT [OPTIONS]\n\n"
         "Continue a text with the model in CKPT: a checkpoint, a folder of checkpoints (the newest is taken),\n"
         "the folder of a run, or a Hugging Face folder (config.json, model.safetensors, tokenizer.json).\n\n"
         "  --prompt TEXT        what to continue; \"\" starts from a new line\n"
         "  --tokens N           how many tokens to write at most; an end-of-text token ends it before (200)\n"
         "  --tokenizer T        byte, a tokenizer.json or a folder that holds one (that of CKPT)\n"
         "  --ids                print token numbers instead of text\n"
         "  --temperature T      0: always the likeliest token; 1: as the model says; lower is safer (0.8)\n"
         "  --top-k K            draw from the K likeliest tokens only; 0: all (0)\n"
         "  --top-p P            draw from the likeliest tokens that together reach probability P (1)\n"
         "  --seed S             same seed, same text (1234)\n"
         "  --threads N          compute threads (as many as help: one per 4 million parameters, at most all\n"
         "                       cores)\n"
         "  --precision f32|bf16 of weights and activations (f32)\n"
         "  --logits             one JSON object, the prompt's tokens and the logits of what comes next, and stop\n"
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
  const char *path, *prompt, *tokenizer;
  int64_t tokens, threads;
  tr_sampling sampling;
  int bf16, json, ids, logits;
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
      {.name = "--tokenizer", .kind = TR__ARGUMENT_TEXT, .out = &r->tokenizer},
      {.name = "--ids", .kind = TR__ARGUMENT_FLAG, .out = &r->ids},
      {.name = "--logits", .kind = TR__ARGUMENT_FLAG, .out = &r->logits},
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
  tr_arch_sizes sizes;
  tr_model *model;
  tr_layout layout;
  tr_arena weights;
  tr_tokenizer *tokenizer;
  tr_pool *pool;
  tr_decoder *decoder;
  int64_t capacity, vocab;
  tr_tokens history; // prompt and everything written so far
  int64_t written;
  int32_t end[MOST_ENDS];
  int nend;
  tr_candidate *work;
} generator;

// The tokenizer in the folder, or bytes where trainer.json says so or the vocabulary is theirs.
static tr_status open_tokenizer(generator *g, const request *r) {
  char path[PATH_LIMIT + 16];
  const char *name = NULL;
  json_t *json = NULL;
  if (r->tokenizer) return tr_tokenizer_open(r->tokenizer, &g->tokenizer);
  snprintf(path, sizeof path, "%s/tokenizer.json", g->folder);
  if (tr_file_exists(path)) return tr_tokenizer_open(path, &g->tokenizer);
  snprintf(path, sizeof path, "%s/trainer.json", g->folder);
  int is_bytes = g->sizes.vocab == 256;
  if (tr_file_exists(path)) {
    TR_TRY(tr_json_load(path, JSON_LIMIT, &json));
    tr_status status = tr_json_get_string(json, path, "tokenizer", 0, &name);
    is_bytes = name && strcmp(name, "byte") == 0;
    json_decref(json);
    TR_TRY(status);
  }
  if (is_bytes) return tr_tokenizer_open("byte", &g->tokenizer);
  return tr_error(TR_ERR_CKPT,
                  "%s: has no tokenizer.json, and nothing says that its tokens are bytes; give --tokenizer "
                  "tokenizer.json (or byte)",
                  g->folder);
}

static void add_end(generator *g, const json_t *value) {
  if (json_is_integer(value) && g->nend < MOST_ENDS) g->end[g->nend++] = (int32_t)json_integer_value(value);
}

// Tokens that end a text: what generation_config.json says, else config.json, else what the tokenizer's names suggest.
static tr_status find_ends(generator *g) {
  static const char *const file[] = {"generation_config.json", "config.json"};
  for (size_t i = 0; i < 2 && g->nend == 0; i++) {
    char path[PATH_LIMIT + 32];
    json_t *json;
    snprintf(path, sizeof path, "%s/%s", g->folder, file[i]);
    if (!tr_file_exists(path)) continue;
    TR_TRY(tr_json_load(path, JSON_LIMIT, &json));
    const json_t *end = json_object_get(json, "eos_token_id");
    add_end(g, end);
    for (size_t k = 0; k < json_array_size(end); k++) add_end(g, json_array_get(end, k));
    json_decref(json);
  }
  if (g->nend == 0 && tr_tokenizer_end(g->tokenizer) >= 0) g->end[g->nend++] = tr_tokenizer_end(g->tokenizer);
  return TR_OK;
}

static int is_end(const generator *g, int32_t token) {
  for (int i = 0; i < g->nend; i++)
    if (g->end[i] == token) return 1;
  return 0;
}

static tr_status load(generator *g, const request *r) {
  tr_arch arch;
  tr_dtype type = r->bf16 ? TR_BF16 : TR_F32;
  TR_TRY(tr__cli_find_checkpoint(r->path, 1, g->folder, sizeof g->folder));
  TR_TRY(tr_arch_load(g->folder, &arch, NULL, 0));
  g->sizes = tr_arch_sizes_of(&arch);
  TR_TRY(open_tokenizer(g, r));
  TR_TRY(find_ends(g));
  g->vocab = tr_tokenizer_vocab(g->tokenizer);
  if (g->vocab > g->sizes.vocab)
    return tr_error(TR_ERR_CKPT, "%s: tokenizer '%s' has %lld tokens, the model only %lld", g->folder,
                    tr_tokenizer_name(g->tokenizer), (long long)g->vocab, (long long)g->sizes.vocab);
  TR_TRY(tr_arch_create(&arch, &g->model));
  TR_TRY(tr_layout_build(g->model, &g->layout));
  TR_TRY(tr_arena_create(&g->weights, "weights", (size_t)g->layout.total * tr_dtype_size(type)));
  return tr_weights_load(g->folder, g->model, &g->layout, type, g->weights.base, NULL, NULL);
}

// One token at a time is little work: below this many weights per thread, handing it out costs more than it saves.
static int useful_threads(const tr_model *model) {
  int64_t useful = 1 + tr_model_count(model) / 4000000, cores = tr_cpu_count();
  return (int)(useful < cores ? useful : cores);
}

static tr_status encode_prompt(generator *g, const char *prompt) {
  tr_encoder *encoder;
  TR_TRY(tr_encoder_create(g->tokenizer, &encoder));
  tr_status status = tr_encode(encoder, prompt, strlen(prompt), TR_ENCODE_TEMPLATE, &g->history);
  tr_encoder_destroy(encoder);
  return status;
}

// Tokens of the prompt into the history, and a decoder with room for what is to come.
static tr_status prepare(generator *g, const request *r) {
  TR_TRY(encode_prompt(g, *r->prompt ? r->prompt : "\n"));
  if (g->history.size == 0) return tr_error(TR_ERR_DATA, "the prompt has no tokens; give some text");
  TR_TRY(tr_tokens_reserve(&g->history, (size_t)r->tokens));
  g->work = malloc((size_t)g->sizes.vocab * sizeof *g->work);
  if (!g->work) return tr_error(TR_ERR_MEMORY, "no memory for %lld candidates", (long long)g->sizes.vocab);
  int64_t length = (int64_t)g->history.size, most = length + r->tokens;
  g->capacity = most < g->sizes.positions ? most : g->sizes.positions;
  if (length > g->capacity)
    tr_log_warn("the prompt has %lld tokens, the model sees %lld: only the end of it counts", (long long)length,
                (long long)g->capacity);
  int threads = r->threads ? (int)r->threads : useful_threads(g->model);
  TR_TRY(tr_pool_create(threads, threads <= tr_cpu_count(), NULL, NULL, &g->pool));
  return tr_decoder_create(g->model, &g->layout, g->weights.base, r->bf16 ? TR_BF16 : TR_F32, tr_kernels_cpu(),
                           g->pool, g->capacity, &g->decoder);
}

// Show the decoder the last `fresh` tokens of the history; when they do not fit, it starts again from the
// last half context.
static tr_status feed(generator *g, int64_t fresh, const float **logits) {
  int64_t length = (int64_t)g->history.size;
  if (tr_decoder_length(g->decoder) + fresh > g->capacity) {
    int64_t half = g->capacity > 1 ? g->capacity / 2 : 1;
    fresh = fresh > g->capacity ? g->capacity : fresh > half ? fresh : half;
    if (fresh > length) fresh = length;
    tr_decoder_reset(g->decoder);
  }
  return tr_decoder_append(g->decoder, g->history.data + length - fresh, fresh, logits);
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

// The text that the last token adds. Some tokens mean something only after others (the bytes of one character, the blank
// before a first word), so the end of the text is decoded with and without it.
static tr_status text_of_last(const generator *g, tr_text *with, size_t *before) {
  size_t n = g->history.size, first = n > WINDOW ? n - WINDOW : 0;
  with->size = 0;
  TR_TRY(tr_decode(g->tokenizer, g->history.data + first, n - first - 1, 1, with));
  *before = with->size;
  with->size = 0;
  TR_TRY(tr_decode(g->tokenizer, g->history.data + first, n - first, 1, with));
  if (*before > with->size) *before = with->size;
  return TR_OK;
}

static tr_status write_last(const generator *g, const request *r, writer *w, tr_text *scratch) {
  char number[16];
  size_t before;
  if (r->ids)
    return write_bytes(w, number,
                       (size_t)snprintf(number, sizeof number, " %d", g->history.data[g->history.size - 1]));
  TR_TRY(text_of_last(g, scratch, &before));
  return scratch->size > before ? write_bytes(w, scratch->data + before, scratch->size - before) : TR_OK;
}

static tr_status write_tokens(generator *g, const request *r, writer *w) {
  const float *logits = NULL;
  int64_t fresh = (int64_t)g->history.size;
  tr_text scratch = {0};
  tr_status status = TR_OK;
  for (int64_t i = 0; i < r->tokens && status == TR_OK; i++) {
    int32_t token = 0;
    status = feed(g, fresh, &logits);
    if (status == TR_OK) status = draw(g, r, i, logits, &token);
    if (status != TR_OK || is_end(g, token)) break;
    g->history.data[g->history.size++] = token;
    g->written++;
    fresh = 1;
    status = write_last(g, r, w, &scratch);
  }
  tr_text_free(&scratch);
  return status;
}

// ---- the command

static tr_status print_json(const request *r, const generator *g, writer *w, double seconds) {
  writer prompt = {.json = 1};
  tr_text_append(&prompt.pending, "%s", r->prompt);
  flush(&prompt, 1);
  json_t *json = json_pack("{s:s, s:s, s:I, s:f, s:f, s:I, s:s}", "prompt", prompt.all.data ? prompt.all.data : "",
                           "text", "", "tokens", (json_int_t)g->written, "seconds", seconds, "tokens_per_s",
                           seconds > 0 ? (double)g->written / seconds : 0, "seed", (json_int_t)r->sampling.seed,
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

static tr_status print_logits(generator *g) {
  const float *logits = NULL;
  TR_TRY(feed(g, (int64_t)g->history.size, &logits));
  json_t *tokens = json_array(), *values = json_array();
  for (size_t i = 0; i < g->history.size; i++) json_array_append_new(tokens, json_integer(g->history.data[i]));
  for (int64_t i = 0; i < g->sizes.vocab; i++)
    json_array_append_new(values, isfinite(logits[i]) ? json_real((double)logits[i]) : json_null());
  json_t *json = json_pack("{s:o, s:o}", "tokens", tokens, "logits", values);
  char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
  tr_status status = text ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory for the logits");
  if (text) puts(text);
  free(text);
  json_decref(json);
  return status;
}

static tr_status generate(generator *g, const request *r, writer *w) {
  TR_TRY(load(g, r));
  TR_TRY(prepare(g, r));
  if (r->logits) return print_logits(g);
  if (!r->json && !r->ids) TR_TRY(write_bytes(w, r->prompt, strlen(r->prompt)));
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
  tr_tokens_free(&g->history);
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
