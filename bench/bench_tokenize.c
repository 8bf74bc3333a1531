// SPDX-License-Identifier: MIT
// How fast text becomes tokens on one thread: bench_tokenize TOKENIZER.json TEXT [bytes per document].
//
// The text is cut into documents of about 4 KiB at ends of lines, and all of it is encoded six times by one encoder: once to
// warm up, then the median of five. Reading the same bytes is measured in the same run for comparison.
#include "trireme/base/file.h"
#include "trireme/base/sort.h"
#include "trireme/token/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPEAT = 5, LIMIT = 1 << 30 };

// Time that this thread ran: others on the machine do not count.
static double cpu_seconds(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double median(double *seconds) {
  tr_sort_doubles(seconds, REPEAT);
  return seconds[REPEAT / 2];
}

static size_t document_end(const char *text, size_t nbyte, size_t start, size_t wanted) {
  if (nbyte - start <= wanted) return nbyte;
  const char *line = memchr(text + start + wanted, '\n', nbyte - start - wanted);
  return line ? (size_t)(line - text) + 1 : nbyte;
}

static tr_status encode_all(tr_encoder *encoder, const char *text, size_t nbyte, size_t wanted, tr_tokens *tokens) {
  tokens->size = 0;
  for (size_t at = 0, end; at < nbyte; at = end) {
    end = document_end(text, nbyte, at, wanted);
    TR_TRY(tr_encode(encoder, text + at, end - at, 0, tokens));
  }
  return TR_OK;
}

static tr_status measure(const char *name, const char *text, size_t nbyte, size_t wanted) {
  tr_tokenizer *tokenizer;
  tr_encoder *encoder;
  tr_tokens tokens = {0};
  double encode[REPEAT], read[REPEAT], start = cpu_seconds();
  uint64_t sum = 0;
  TR_TRY(tr_tokenizer_open(name, &tokenizer));
  double opened = cpu_seconds() - start;
  TR_TRY(tr_encoder_create(tokenizer, &encoder));
  TR_TRY(encode_all(encoder, text, nbyte, wanted, &tokens));
  for (int i = 0; i < REPEAT; i++) {
    start = cpu_seconds();
    TR_TRY(encode_all(encoder, text, nbyte, wanted, &tokens));
    encode[i] = cpu_seconds() - start;
    start = cpu_seconds();
    for (size_t k = 0; k < nbyte; k++) sum += (unsigned char)text[k];
    read[i] = cpu_seconds() - start;
  }
  double mb = (double)nbyte / 1e6;
  printf("%s: opened in %.0f ms; %.1f MB, %.2f bytes per token\n", name, opened * 1e3, mb,
         (double)nbyte / (double)tokens.size);
  printf("encode %.1f MB/s, adding up the bytes (%llu) %.0f MB/s\n", mb / median(encode), (unsigned long long)sum,
         mb / median(read));
  tr_tokens_free(&tokens);
  tr_encoder_destroy(encoder);
  tr_tokenizer_close(tokenizer);
  return TR_OK;
}

int main(int argc, char **argv) {
  char *text;
  size_t nbyte;
  if (argc < 3) {
    fprintf(stderr, "usage: bench_tokenize TOKENIZER.json TEXT [bytes per document]\n");
    return 2;
  }
  size_t wanted = argc > 3 ? strtoul(argv[3], NULL, 10) : 4096;
  tr_status status = tr_file_read(argv[2], LIMIT, &text, &nbyte);
  if (status == TR_OK) {
    status = measure(argv[1], text, nbyte, wanted);
    free(text);
  }
  if (status != TR_OK) fprintf(stderr, "%s\n", tr_status_text());
  return tr_status_exit_code(status);
}
