// SPDX-License-Identifier: MIT
// From text to token numbers: an encoder holds what one thread writes while it does so.
//
// A text passes through four stages, each calling the next on the parts that it leaves: added tokens of the raw text are
// cut out, what lies between is normalized, added tokens of the normalized text are cut out, and the rest is cut into words
// that the model turns into numbers. Words that were seen lately come from a cache.
#include "token/tokenizer_internal.h"

#include <stdlib.h>

enum { BATCH = 16 }; // words looked up together, see cache.c

struct tr_encoder {
  const tr_tokenizer *tokenizer;
  tr__cache *cache;
  void *model_work;
  tr__split_work split;
  tr_text repaired, normalized, alphabet;
  int flags; // of the text being encoded
};

void tr_tokens_free(tr_tokens *tokens) {
  free(tokens->data);
  *tokens = (tr_tokens){0};
}

tr_status tr_tokens_reserve(tr_tokens *tokens, size_t more) {
  if (more <= tokens->capacity - tokens->size) return TR_OK;
  size_t limit = SIZE_MAX / 4 / sizeof *tokens->data;
  int32_t *data = NULL;
  size_t capacity = tokens->capacity < 64 ? 64 : tokens->capacity;
  if (more < limit - tokens->size) {
    while (capacity < tokens->size + more) capacity *= 2;
    data = realloc(tokens->data, capacity * sizeof *data);
  }
  if (!data) return tr_error(TR_ERR_MEMORY, "no memory for %zu more tokens", more);
  tokens->data = data;
  tokens->capacity = capacity;
  return TR_OK;
}

tr_status tr_encoder_create(const tr_tokenizer *tokenizer, tr_encoder **out) {
  tr_encoder *encoder = calloc(1, sizeof *encoder);
  if (!encoder) return tr_error(TR_ERR_MEMORY, "no memory for an encoder");
  encoder->tokenizer = tokenizer;
  tr_status status = TR_OK;
  if (!tokenizer->bytes) {
    size_t nbyte = tokenizer->model->ops->work_nbyte;
    encoder->model_work = calloc(1, nbyte ? nbyte : 1);
    if (!encoder->model_work) status = tr_error(TR_ERR_MEMORY, "no memory for an encoder");
    if (status == TR_OK) status = tr__cache_create(&encoder->cache);
    if (status == TR_OK) status = tr__split_work_init(&encoder->split);
  }
  if (status == TR_OK)
    *out = encoder;
  else
    tr_encoder_destroy(encoder);
  return status;
}

void tr_encoder_destroy(tr_encoder *encoder) {
  if (!encoder) return;
  if (encoder->model_work && encoder->tokenizer->model->ops->work_free)
    encoder->tokenizer->model->ops->work_free(encoder->model_work);
  free(encoder->model_work);
  tr__cache_free(encoder->cache);
  tr__split_work_clear(&encoder->split);
  tr_text_free(&encoder->repaired);
  tr_text_free(&encoder->normalized);
  tr_text_free(&encoder->alphabet);
  free(encoder);
}

static tr_status append(tr_tokens *out, const int32_t *number, size_t n) {
  TR_TRY(tr_tokens_reserve(out, n));
  for (size_t i = 0; i < n; i++) out->data[out->size + i] = number[i];
  out->size += n;
  return TR_OK;
}

static tr_status encode_bytes(const char *text, size_t nbyte, tr_tokens *out) {
  TR_TRY(tr_tokens_reserve(out, nbyte));
  for (size_t i = 0; i < nbyte; i++) out->data[out->size + i] = (unsigned char)text[i];
  out->size += nbyte;
  return TR_OK;
}

// ---- the fourth stage: words

static tr_status run_model(tr_encoder *e, const char *word, size_t nbyte, tr_tokens *out) {
  const tr__model *model = e->tokenizer->model;
  if (!tr__splitter_is_bytes(e->tokenizer->splitter))
    return model->ops->encode(model, e->model_work, word, nbyte, out);
  if (model->ops->encode_bytes) return model->ops->encode_bytes(model, e->model_work, word, nbyte, out);
  e->alphabet.size = 0;
  tr__bytes_to_alphabet(word, nbyte, &e->alphabet);
  if (e->alphabet.failed) return TR_ERR_MEMORY;
  return model->ops->encode(model, e->model_work, e->alphabet.data, e->alphabet.size, out);
}

static tr_status encode_batch(tr_encoder *e, const tr__probe *probe, size_t n, tr_tokens *out) {
  for (size_t i = 0; i < n; i++) {
    TR_TRY(tr_tokens_reserve(out, TR__CACHE_NUMBERS));
    if (tr__cache_find(&probe[i], out)) continue;
    size_t size = out->size;
    TR_TRY(run_model(e, probe[i].word, probe[i].nbyte, out));
    tr__cache_put(&probe[i], out->data + size, out->size - size);
  }
  return TR_OK;
}

static tr_status encode_scanned(tr_encoder *e, const tr__classes *classes, tr__scan_kind scan, const char *text,
                                size_t nbyte, tr_tokens *out) {
  tr__probe probe[BATCH];
  for (size_t at = 0, n; at < nbyte;) {
    for (n = 0; n < BATCH && at < nbyte; n++) {
      size_t end = tr__scan_next(classes, scan, text, nbyte, at);
      tr__cache_aim(e->cache, text + at, end - at, nbyte - at, &probe[n]);
      at = end;
    }
    TR_TRY(encode_batch(e, probe, n, out));
  }
  return TR_OK;
}

static tr_status encode_words(tr_encoder *e, const char *text, size_t nbyte, int first, tr_tokens *out) {
  const tr__classes *classes;
  const tr__pieces *piece = &e->split.piece;
  tr__probe probe[BATCH];
  tr__scan_kind scan = tr__splitter_scan(e->tokenizer->splitter, &classes);
  if (scan != TR__SCAN_NONE) return encode_scanned(e, classes, scan, text, nbyte, out);
  TR_TRY(tr__split(e->tokenizer->splitter, &e->split, text, nbyte, first));
  for (size_t i = 0, n; i < piece->size;) {
    size_t last = piece->data[piece->size - 1].end;
    for (n = 0; n < BATCH && i < piece->size; n++, i++) {
      tr__piece p = piece->data[i];
      tr__cache_aim(e->cache, e->split.text + p.start, p.end - p.start, last - p.start, &probe[n]);
    }
    TR_TRY(encode_batch(e, probe, n, out));
  }
  return TR_OK;
}

// ---- the stages before

typedef tr_status (*stage)(tr_encoder *e, const char *text, size_t nbyte, int first, tr_tokens *out);

// Cut the added tokens of a set out of a text and pass what lies between them on. `first`: the text begins the input.
static tr_status cut_added(tr_encoder *e, const tr__added_set *set, stage next, const char *text, size_t nbyte,
                           int first, tr_tokens *out) {
  size_t past = 0, from = 0;
  tr__added_match match;
  while (tr__added_find(set, text, nbyte, e->flags & TR_ENCODE_PLAIN, past, &from, &match)) {
    if (past < match.start) TR_TRY(next(e, text + past, match.start - past, first && past == 0, out));
    TR_TRY(append(out, &match.number, 1));
    past = match.end;
  }
  return past < nbyte ? next(e, text + past, nbyte - past, first && past == 0, out) : TR_OK;
}

static tr_status encode_normalized(tr_encoder *e, const char *text, size_t nbyte, int first, tr_tokens *out) {
  return cut_added(e, tr__added_normalized(e->tokenizer->added), encode_words, text, nbyte, first, out);
}

static tr_status encode_raw(tr_encoder *e, const char *text, size_t nbyte, int first, tr_tokens *out) {
  if (!e->tokenizer->normalizer) return encode_normalized(e, text, nbyte, first, out);
  e->normalized.size = 0;
  TR_TRY(tr__normalize(e->tokenizer->normalizer, text, nbyte, &e->normalized));
  if (e->normalized.failed) return TR_ERR_MEMORY;
  return encode_normalized(e, e->normalized.data, e->normalized.size, first, out);
}

tr_status tr_encode(tr_encoder *encoder, const char *text, size_t nbyte, int flags, tr_tokens *out) {
  const tr_tokenizer *tokenizer = encoder->tokenizer;
  if (tokenizer->bytes) return encode_bytes(text, nbyte, out);
  encoder->flags = flags;
  tr__matcher_allow(encoder->split.matcher, tr__matcher_budget(nbyte));
  if (!tr__utf8_valid(text, nbyte)) {
    encoder->repaired.size = 0;
    tr_utf8_repair(text, nbyte, &encoder->repaired);
    if (encoder->repaired.failed) return TR_ERR_MEMORY;
    text = encoder->repaired.data;
    nbyte = encoder->repaired.size;
  }
  const tr__template *template = &tokenizer->template;
  int whole = flags & TR_ENCODE_TEMPLATE;
  size_t size = out->size;
  tr_status status = whole ? append(out, template->before, template->nbefore) : TR_OK;
  if (status == TR_OK) status = cut_added(encoder, tr__added_raw(tokenizer->added), encode_raw, text, nbyte, 1, out);
  if (status == TR_OK && whole) status = append(out, template->after, template->nafter);
  if (status != TR_OK) out->size = size; // all of a text or nothing
  return status;
}
