// SPDX-License-Identifier: MIT
// `trireme tokenize`: text to token files, text to a vocabulary, and single texts to numbers and back.
//
// The work is tr_tokenize's and tr_bpe_trainer's; here are arguments, the line of progress, and Ctrl-C, which is held back
// and asked for twice a second, so that stopping is an orderly end with work that can be gone on with. A second one is not.
#include "cli/arguments_internal.h"
#include "cli/cli_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/cpu.h"
#include "trireme/base/file.h"
#include "trireme/base/text.h"
#include "trireme/data/text_reader.h"
#include "trireme/data/tokenize.h"
#include "trireme/token/train_bpe.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_THREADS = 1024, MOST_VOCAB = 1 << 24, UNSET = -1, MIN_COUNT = 2 };
static const char *const default_special[] = {"<|endoftext|>"};
static const char *const patterns[] = {"gpt2", "llama3", "qwen"};
static const tr_corpus_format formats[] = {TR_CORPUS_MEGATRON, TR_CORPUS_NANOGPT, TR_CORPUS_LLMC};

static void print_help(void) {
  printf("usage: trireme tokenize INPUT... --tokenizer T --output OUT [OPTIONS]\n"
         "       trireme tokenize INPUT... --train-bpe N --output tokenizer.json [OPTIONS]\n"
         "       trireme tokenize --tokenizer T --encode TEXT | --decode \"NUMBERS\"\n\n"
         "Write the tokens of text files to OUT.bin and OUT.idx, learn a byte-level BPE vocabulary of N tokens, or "
         "show\n"
         "what a tokenizer makes of a text. INPUT is plain text (one document), or JSON lines where it is named "
         ".jsonl,\n"
         ".json or .ndjson; either may be compressed with gzip or zstd. Tokens of a document are followed by the\n"
         "tokenizer's end token. Work that was stopped (Ctrl-C) or killed goes on when the same command is given "
         "again.\n\n"
         "  --tokenizer T         byte, a tokenizer.json, or a folder with one\n"
         "  --output OUT          what to write; must not exist\n"
         "  --format F            megatron (the default), nanogpt or llm.c\n"
         "  --key NAME            the member of a JSON line that holds the text (text)\n"
         "  --split-blank-lines   documents of plain text end at blank lines\n"
         "  --no-end              no end token after documents\n"
         "  --threads N           threads that encode (one per processor)\n"
         "  --train-bpe N         learn N tokens: 256 bytes, merges, special tokens\n"
         "  --pattern P           how text is cut into words: gpt2 (the default), llama3 or qwen\n"
         "  --special TEXT        a special token, \"<|endoftext|>\" unless given; may be repeated\n"
         "  --encode TEXT         print the numbers of a text\n"
         "  --decode \"NUMBERS\"    print the text of numbers\n\n"
         "examples:\n"
         "  trireme tokenize books/*.jsonl.zst --train-bpe 32000 --output tokenizer.json\n"
         "  trireme tokenize books/*.jsonl.zst --tokenizer tokenizer.json --output books\n"
         "  trireme tokenize --tokenizer tokenizer.json --encode \"The oars rose and fell.\"\n");
}

typedef struct request {
  const char *tokenizer, *output, *key, *encode, *decode;
  const char *const *path;
  size_t npath;
  int format, pattern, split, no_end;
  int64_t threads, vocab;
  tr__argument_list special;
} request;

// Names are made of it by adding .bin, so that "/dev/null" would not be what it says.
static tr_status check_output(const char *output) {
  struct stat about;
  if (!output || !*output) return tr__cli_usage("tokenize", "give --output: the name of what to write");
  if (output[strlen(output) - 1] == '/')
    return tr__cli_usage("tokenize", "--output '%s' is a folder; give the name of what to write in it", output);
  if (stat(output, &about) == 0 && !S_ISREG(about.st_mode))
    return tr__cli_usage("tokenize", "--output '%s' is %s; give the name of a file to write", output,
                         S_ISDIR(about.st_mode) ? "a folder" : "no file");
  return TR_OK;
}

static tr_status check_mode(const request *r) {
  int shows = r->encode || r->decode, learns = r->vocab != UNSET;
  if (learns && r->tokenizer)
    return tr__cli_usage("tokenize", "--train-bpe makes a tokenizer; leave out --tokenizer");
  if (!learns && (r->pattern != UNSET || r->special.n > 0))
    return tr__cli_usage("tokenize", "%s is for --train-bpe", r->special.n > 0 ? "--special" : "--pattern");
  if (!learns && !r->tokenizer)
    return tr__cli_usage("tokenize", "give --tokenizer: byte, a tokenizer.json or a folder with one");
  if (shows && (r->npath > 0 || learns || r->output || (r->encode && r->decode)))
    return tr__cli_usage("tokenize", "%s stands alone, with --tokenizer", r->encode ? "--encode" : "--decode");
  if (shows) return TR_OK;
  if (r->npath == 0) return tr__cli_usage("tokenize", "give text files");
  return check_output(r->output);
}

static tr_status parse(int argc, char **argv, request *r) {
  *r = (request){.path = (const char *const *)argv + 1, .pattern = UNSET, .vocab = UNSET, .threads = tr_cpu_count()};
  const tr__argument table[] = {
      {.name = "--tokenizer", .kind = TR__ARGUMENT_TEXT, .out = &r->tokenizer},
      {.name = "--output", .kind = TR__ARGUMENT_TEXT, .out = &r->output},
      {.name = "--format",
       .kind = TR__ARGUMENT_CHOICE,
       .out = &r->format,
       .choices = {"megatron", "nanogpt", "llm.c", NULL}},
      {.name = "--key", .kind = TR__ARGUMENT_TEXT, .out = &r->key},
      {.name = "--split-blank-lines", .kind = TR__ARGUMENT_FLAG, .out = &r->split},
      {.name = "--no-end", .kind = TR__ARGUMENT_FLAG, .out = &r->no_end},
      {.name = "--threads", .kind = TR__ARGUMENT_COUNT, .out = &r->threads, .min = 1, .max = MOST_THREADS},
      {.name = "--train-bpe", .kind = TR__ARGUMENT_COUNT, .out = &r->vocab, .min = 256, .max = MOST_VOCAB},
      {.name = "--pattern",
       .kind = TR__ARGUMENT_CHOICE,
       .out = &r->pattern,
       .choices = {"gpt2", "llama3", "qwen", NULL}},
      {.name = "--special", .kind = TR__ARGUMENT_LIST, .out = &r->special},
      {.name = "--encode", .kind = TR__ARGUMENT_TEXT, .out = &r->encode},
      {.name = "--decode", .kind = TR__ARGUMENT_TEXT, .out = &r->decode},
  };
  TR_TRY(tr__cli_parse_paths("tokenize", argc, argv, table, sizeof table / sizeof *table, &r->npath));
  return check_mode(r);
}

// ---- one text

static tr_status encode(const tr_tokenizer *tokenizer, const char *text) {
  tr_encoder *encoder;
  tr_tokens tokens = {0};
  TR_TRY(tr_encoder_create(tokenizer, &encoder));
  tr_status status = tr_encode(encoder, text, strlen(text), 0, &tokens);
  for (size_t i = 0; i < tokens.size && status == TR_OK; i++) printf("%s%" PRId32, i ? " " : "", tokens.data[i]);
  if (status == TR_OK) putchar('\n');
  tr_tokens_free(&tokens);
  tr_encoder_destroy(encoder);
  return status;
}

static tr_status parse_numbers(const tr_tokenizer *tokenizer, const char *text, tr_tokens *out) {
  for (const char *c = text + strspn(text, " ,\n\t"); *c; c += strspn(c, " ,\n\t")) {
    char *end;
    errno = 0;
    long long number = strtoll(c, &end, 10);
    if (end == c || (*end && !strchr(" ,\n\t", *end)) || errno)
      return tr__cli_usage("tokenize", "--decode takes numbers with blanks between them, not '%.40s'", c);
    if (number < 0 || number >= tr_tokenizer_vocab(tokenizer))
      return tr__cli_usage("tokenize", "--decode: token %lld is not in the vocabulary of %" PRId64, number,
                           tr_tokenizer_vocab(tokenizer));
    TR_TRY(tr_tokens_reserve(out, 1));
    out->data[out->size++] = (int32_t)number;
    c = end;
  }
  return TR_OK;
}

// What commands a terminal is not passed on to one.
static void print_text(tr_text *text) {
  for (size_t i = 0; i < text->size && isatty(STDOUT_FILENO); i++) {
    unsigned char c = (unsigned char)text->data[i];
    if ((c < ' ' && c != '\n' && c != '\t') || c == 127) text->data[i] = '?';
  }
  if (text->size) fwrite(text->data, 1, text->size, stdout);
  putchar('\n');
}

static tr_status decode(const tr_tokenizer *tokenizer, const char *numbers) {
  tr_tokens tokens = {0};
  tr_text text = {0};
  tr_status status = parse_numbers(tokenizer, numbers, &tokens);
  if (status == TR_OK) status = tr_decode(tokenizer, tokens.data, tokens.size, 0, &text);
  if (status == TR_OK) print_text(&text);
  tr_text_free(&text);
  tr_tokens_free(&tokens);
  return status;
}

// ---- token files

// The one line of progress, on a terminal; "" takes it away.
static void show(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void show(const char *format, ...) {
  if (!isatty(STDERR_FILENO)) return;
  char line[160];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  fprintf(stderr, "\r\033[K%s", line);
}

static const int stops[] = {SIGINT, SIGTERM, SIGHUP};

static void stop_signals(sigset_t *out) {
  sigemptyset(out);
  for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) sigaddset(out, stops[i]);
}

static void hold_back_stops(void) {
  sigset_t set;
  stop_signals(&set);
  pthread_sigmask(SIG_BLOCK, &set, NULL); // threads that are started later inherit it
}

// The first one is taken, and from then on they end the program at once.
static int asked_to_stop(void) {
  sigset_t set;
  stop_signals(&set);
  if (sigtimedwait(&set, NULL, &(struct timespec){0}) < 0) return 0;
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  return 1;
}

static double rate_of(const tr_tokenize_progress *p) {
  return p->seconds > 0 ? (double)p->bytes / 1e6 / p->seconds : 0;
}

static int show_progress(void *user, const tr_tokenize_progress *p) {
  (void)user;
  char tokens[32], left[32];
  tr_format_count(tokens, sizeof tokens, (double)p->tokens);
  tr_format_duration(left, sizeof left, p->share > 0 ? p->seconds / p->share * (1 - p->share) : 0);
  show("%3.0f %%  %s tokens  %.1f MB/s  %s left", 100 * p->share, tokens, rate_of(p), left);
  if (!asked_to_stop()) return 1;
  show("stopping after the documents in work; asked again, at once");
  return 0;
}

static void print_done(const request *r, const tr_tokenize_progress *p) {
  char seconds[32];
  tr_format_duration(seconds, sizeof seconds, p->seconds);
  printf("%" PRId64 " tokens, %" PRId64 " document%s, %.1f MB of text in %s (%.1f MB/s): %s.bin%s%s%s\n", p->tokens,
         p->documents, p->documents == 1 ? "" : "s", (double)p->bytes / 1e6, seconds, rate_of(p), r->output,
         r->format == 0 ? " and " : "", r->format == 0 ? r->output : "", r->format == 0 ? ".idx" : "");
}

static tr_status write_tokens(const request *r, const tr_tokenizer *tokenizer) {
  tr_tokenize_progress done;
  hold_back_stops();
  const tr_tokenize_options options = {.tokenizer = tokenizer,
                                       .path = r->path,
                                       .npath = r->npath,
                                       .key = r->key,
                                       .split = r->split,
                                       .output = r->output,
                                       .format = formats[r->format],
                                       .end = !r->no_end,
                                       .nthread = (int)r->threads,
                                       .progress = show_progress};
  tr_status status = tr_tokenize(&options, &done);
  show("%s", "");
  if (status == TR_PENDING)
    printf("stopped as asked at %.0f %%; the same trireme tokenize command goes on from here\n", 100 * done.share);
  if (status == TR_OK) print_done(r, &done);
  return status;
}

static tr_status with_tokenizer(const request *r) {
  tr_tokenizer *tokenizer;
  TR_TRY(tr_tokenizer_open(r->tokenizer, &tokenizer));
  tr_status status = r->encode   ? encode(tokenizer, r->encode)
                     : r->decode ? decode(tokenizer, r->decode)
                                 : write_tokens(r, tokenizer);
  tr_tokenizer_close(tokenizer);
  return status;
}

// ---- learning a vocabulary

static void show_learning(void *user, int64_t done, int64_t all) {
  (void)user;
  show("learning: %" PRId64 " of %" PRId64, done, all);
}

static tr_status read_file(const request *r, const char *path, tr_bpe_trainer *trainer, int64_t *nbyte) {
  tr_text_reader *reader;
  TR_TRY(tr_text_reader_open(&(tr_text_reader_options){.path = path, .key = r->key, .split = r->split}, &reader));
  tr_status status = TR_OK;
  const char *text = "";
  double shown = 0;
  while (status == TR_OK && text) {
    size_t n;
    int ends;
    status = tr_text_reader_next(reader, &text, &n, &ends);
    if (status == TR_OK && text) status = tr_bpe_trainer_add(trainer, text, n);
    *nbyte += (int64_t)n;
    if (tr_clock_seconds() - shown < 0.5) continue;
    shown = tr_clock_seconds();
    show("reading %.60s: %.0f %%", path, 100 * tr_text_reader_share(reader));
  }
  tr_text_reader_close(reader);
  return status;
}

// Before hours of work: that the file can be made.
static tr_status try_output(const char *path) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0 && errno == EEXIST)
    return tr_error(TR_ERR_IO, "%s: exists already; remove it or choose another name", path);
  if (fd < 0) return tr_error(TR_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
  close(fd);
  unlink(path);
  return TR_OK;
}

// The finished text is read back as a tokenizer before it is kept.
static tr_status keep(const request *r, const tr_text *json, int64_t nbyte, double seconds) {
  tr_tokenizer *tokenizer;
  TR_TRY(tr_tokenizer_parse(json->data, json->size, r->output, &tokenizer));
  int64_t vocab = tr_tokenizer_vocab(tokenizer);
  tr_tokenizer_close(tokenizer);
  TR_TRY(tr_file_write_atomic(r->output, json->data, json->size));
  char duration[32];
  tr_format_duration(duration, sizeof duration, seconds);
  printf("%" PRId64 " tokens learned from %.1f MB of text in %s%s: %s\n", vocab, (double)nbyte / 1e6, duration,
         vocab < r->vocab ? " (no more pairs occur twice)" : "", r->output);
  return TR_OK;
}

static tr_status learn_from(const request *r, tr_bpe_trainer *trainer, tr_text *json) {
  double began = tr_clock_seconds();
  int64_t nbyte = 0;
  for (size_t i = 0; i < r->npath; i++) TR_TRY(read_file(r, r->path[i], trainer, &nbyte));
  if (nbyte == 0)
    return tr_error(TR_ERR_DATA, "%s: there is no text in %s", r->path[0], r->npath > 1 ? "it and the others" : "it");
  TR_TRY(tr_bpe_trainer_finish(trainer, show_learning, NULL, json));
  show("%s", "");
  return keep(r, json, nbyte, tr_clock_seconds() - began);
}

static tr_status learn(const request *r) {
  tr_bpe_trainer *trainer;
  tr_text json = {0};
  const tr_bpe_trainer_options options = {.vocab = r->vocab,
                                          .pattern = patterns[r->pattern == UNSET ? 0 : r->pattern],
                                          .special = r->special.n ? r->special.item : default_special,
                                          .nspecial = r->special.n ? r->special.n : 1,
                                          .min_count = MIN_COUNT};
  TR_TRY(try_output(r->output));
  TR_TRY(tr_bpe_trainer_create(&options, &trainer));
  tr_status status = learn_from(r, trainer, &json);
  tr_bpe_trainer_destroy(trainer);
  tr_text_free(&json);
  return status;
}

int tr__cli_tokenize(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) return print_help(), 0;
  request r;
  tr_status status = parse(argc, argv, &r);
  if (status == TR_OK) status = r.vocab != UNSET ? learn(&r) : with_tokenizer(&r);
  return tr__cli_end(status);
}
