// SPDX-License-Identifier: MIT
// The threads that encode text: a ring of blocks between one caller, who fills and empties them in order, and workers, who
// take the next one that is full.
//
//   released <= encoded in any order <= taken <= submitted     (numbers of blocks; block i lies at i % nblock)
//
// What is in a block and the order of blocks depend on the text alone, so the tokens do not depend on the number of
// threads. A block that cannot be encoded carries its failure to the caller, who meets the failures in order too.
#include "data/tokenize_internal.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BUDGET = 64 << 20, KEEP = 16 << 20, WAIT_NS = 100000000 };

typedef struct worker {
  tr__crew *crew;
  tr_encoder *encoder;
  pthread_t thread;
  int started;
} worker;

struct tr__crew {
  tr__text_block *block;
  unsigned char *done; // [nblock], under the lock
  size_t nblock;
  uint64_t submitted, taken, released; // under the lock where workers see them
  size_t in_work;                      // bytes of text between submitted and released
  atomic_int stop;
  int32_t end;
  pthread_mutex_t lock;
  pthread_cond_t filled, encoded;
  worker *worker;
  int nworker;
};

// ---- blocks

tr_status tr__text_block_add(tr__text_block *block, const char *text, size_t nbyte, int ends) {
  if (block->npiece == block->capacity) {
    size_t capacity = block->capacity ? 2 * block->capacity : 64;
    tr__piece_bounds *piece = realloc(block->piece, capacity * sizeof *piece);
    if (!piece) return tr_error(TR_ERR_MEMORY, "no memory for %zu documents", capacity);
    block->piece = piece;
    block->capacity = capacity;
  }
  tr_text_append_bytes(&block->text, text, nbyte);
  if (block->text.failed) return TR_ERR_MEMORY;
  block->piece[block->npiece++] = (tr__piece_bounds){.text_end = block->text.size, .ends = ends};
  return TR_OK;
}

static void block_free(tr__text_block *block) {
  tr_text_free(&block->text);
  tr_tokens_free(&block->tokens);
  free(block->piece);
}

// A crew that is destroyed ends at the next piece; nobody sees the block then.
static tr_status encode_block(const tr__crew *crew, tr_encoder *encoder, tr__text_block *block) {
  size_t from = 0;
  int32_t end = crew->end;
  for (size_t i = 0; i < block->npiece && !crew->stop; i++) {
    tr__piece_bounds *piece = &block->piece[i];
    TR_TRY(tr_encode(encoder, block->text.data + from, piece->text_end - from, 0, &block->tokens));
    if (piece->ends && end >= 0) {
      TR_TRY(tr_tokens_reserve(&block->tokens, 1));
      block->tokens.data[block->tokens.size++] = end;
    }
    piece->token_end = block->tokens.size;
    from = piece->text_end;
  }
  return TR_OK;
}

// ---- workers

static void *work(void *user) {
  worker *w = user;
  tr__crew *crew = w->crew;
  pthread_mutex_lock(&crew->lock);
  while (!crew->stop) {
    if (crew->taken == crew->submitted) {
      pthread_cond_wait(&crew->filled, &crew->lock); // until a block is submitted or the crew is destroyed
      continue;
    }
    size_t i = crew->taken++ % crew->nblock;
    pthread_mutex_unlock(&crew->lock);
    tr__text_block *block = &crew->block[i];
    block->status = encode_block(crew, w->encoder, block);
    if (block->status < 0) snprintf(block->sentence, sizeof block->sentence, "%s", tr_status_text());
    pthread_mutex_lock(&crew->lock);
    crew->done[i] = 1;
    pthread_cond_signal(&crew->encoded);
  }
  pthread_mutex_unlock(&crew->lock);
  return NULL;
}

static tr_status start_worker(tr__crew *crew, const tr_tokenizer *tokenizer, worker *w) {
  w->crew = crew;
  TR_TRY(tr_encoder_create(tokenizer, &w->encoder));
  int error = pthread_create(&w->thread, NULL, work, w);
  if (error) return tr_error(TR_ERR_MEMORY, "cannot start a thread: %s", strerror(error));
  w->started = 1;
  return TR_OK;
}

tr_status tr__crew_create(const tr_tokenizer *tokenizer, int nthread, int32_t end, tr__crew **out) {
  size_t nblock = 2 * (size_t)nthread + 2;
  tr__crew *crew = calloc(1, sizeof *crew);
  if (!crew) return tr_error(TR_ERR_MEMORY, "no memory for %d threads", nthread);
  *crew = (tr__crew){.nblock = nblock,
                     .end = end,
                     .nworker = nthread,
                     .block = calloc(nblock, sizeof *crew->block),
                     .done = calloc(nblock, 1),
                     .worker = calloc((size_t)nthread, sizeof *crew->worker)};
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_mutex_init(&crew->lock, NULL);
  pthread_cond_init(&crew->filled, &monotonic);
  pthread_cond_init(&crew->encoded, &monotonic);
  pthread_condattr_destroy(&monotonic);
  tr_status status = crew->block && crew->done && crew->worker
                         ? TR_OK
                         : tr_error(TR_ERR_MEMORY, "no memory for %d threads", nthread);
  for (int i = 0; i < nthread && status == TR_OK; i++) status = start_worker(crew, tokenizer, &crew->worker[i]);
  if (status == TR_OK)
    *out = crew;
  else
    tr__crew_destroy(crew);
  return status;
}

void tr__crew_destroy(tr__crew *crew) {
  if (!crew) return;
  pthread_mutex_lock(&crew->lock);
  crew->stop = 1;
  pthread_cond_broadcast(&crew->filled);
  pthread_mutex_unlock(&crew->lock);
  for (int i = 0; crew->worker && i < crew->nworker; i++) {
    if (crew->worker[i].started) pthread_join(crew->worker[i].thread, NULL);
    tr_encoder_destroy(crew->worker[i].encoder);
  }
  for (size_t i = 0; crew->block && i < crew->nblock; i++) block_free(&crew->block[i]);
  pthread_cond_destroy(&crew->encoded);
  pthread_cond_destroy(&crew->filled);
  pthread_mutex_destroy(&crew->lock);
  free(crew->worker);
  free(crew->done);
  free(crew->block);
  free(crew);
}

// ---- the caller's side

tr__text_block *tr__crew_vacant(tr__crew *crew) {
  uint64_t busy = crew->submitted - crew->released;
  if (busy == crew->nblock || (busy > 0 && crew->in_work >= BUDGET)) return NULL;
  return &crew->block[crew->submitted % crew->nblock];
}

void tr__crew_submit(tr__crew *crew) {
  crew->in_work += crew->block[crew->submitted % crew->nblock].text.size;
  pthread_mutex_lock(&crew->lock);
  crew->submitted++;
  pthread_cond_signal(&crew->filled);
  pthread_mutex_unlock(&crew->lock);
}

int tr__crew_idle(const tr__crew *crew) { return crew->released == crew->submitted; }

tr__text_block *tr__crew_finished(tr__crew *crew) {
  size_t i = crew->released % crew->nblock;
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += WAIT_NS;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  pthread_mutex_lock(&crew->lock);
  int error = 0;
  while (!crew->done[i] && !error) error = pthread_cond_timedwait(&crew->encoded, &crew->lock, &until);
  int done = crew->done[i];
  pthread_mutex_unlock(&crew->lock);
  return done ? &crew->block[i] : NULL;
}

// Memory of an uncommonly large document is given back.
void tr__crew_release(tr__crew *crew) {
  size_t i = crew->released % crew->nblock;
  tr__text_block *block = &crew->block[i];
  crew->in_work -= block->text.size;
  if (block->text.capacity > KEEP) tr_text_free(&block->text);
  if (block->tokens.capacity > KEEP) tr_tokens_free(&block->tokens);
  block->text.size = block->tokens.size = block->npiece = 0;
  pthread_mutex_lock(&crew->lock);
  crew->done[i] = 0;
  crew->released++;
  pthread_mutex_unlock(&crew->lock);
}
