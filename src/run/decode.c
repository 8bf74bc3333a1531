// SPDX-License-Identifier: MIT
// The decoder: forward passes over new rows only. Long prompts go through in chunks of at most CHUNK rows, so
// memory for values does not grow with the prompt; the caches do, and are laid out once.
#include "trireme/run/decode.h"
#include "run/run_internal.h"
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 128 };

struct tr_decoder {
  const tr_model *model;
  const tr_layout *layout;
  const void *weights;
  tr_dtype type;
  int64_t capacity, length;
  tr_value_plan plan;
  tr_arena memory, scratch;
  char *slot[TR_PLACE_CLASSES];
  tr_compute compute;
  tr_kv_cache *cache; // [pieces]; capacity 0 where a piece has none
  int32_t *position;  // [capacity] 0, 1, 2, ...
  int64_t *sample;    // [CHUNK] zeros
  float *logits;      // [vocab]
};

static int is_attention(const tr_piece *piece) { return strcmp(piece->ops->kind, "attention") == 0; }

// Width of the keys of an attention piece: its input holds queries, keys and values side by side.
static int64_t key_width(const tr_decoder *d, const tr_piece *piece) {
  int64_t qkv = tr_model_value(d->model, piece->in[0].value)->width;
  int64_t out = tr_model_value(d->model, piece->out[0].value)->width;
  return (qkv - out) / 2;
}

// Kernel scratch must also do for one query chunk over all cached keys: what `capacity` rows would take is enough.
static size_t scratch_bytes(const tr_decoder *d, const tr_kernels *kernels, int nthread) {
  return tr__kernel_scratch(d->model, kernels, d->type, d->capacity > CHUNK ? d->capacity : CHUNK, nthread);
}

static size_t class_bytes(const tr_decoder *d, int where) { return d->plan.size[0][where] + d->plan.area[where]; }

static size_t memory_bytes(const tr_decoder *d, size_t scratch) {
  size_t total = tr_arena_rounded(scratch);
  for (int i = TR_PLACE_FI; i < TR_PLACE_CLASSES; i++) total += tr_arena_rounded(class_bytes(d, i));
  for (int i = 0; i < tr_model_pieces(d->model); i++) {
    const tr_piece *piece = tr_model_piece(d->model, i);
    if (is_attention(piece))
      total += 2 * tr_arena_rounded((size_t)(d->capacity * key_width(d, piece)) * tr_dtype_size(d->type));
  }
  total += tr_arena_rounded((size_t)d->capacity * sizeof(int32_t)) + tr_arena_rounded(CHUNK * sizeof(int64_t));
  return total + tr_arena_rounded((size_t)tr_model_vocab(d->model) * sizeof(float));
}

static tr_status bind(tr_decoder *d, const tr_kernels *kernels, tr_pool *pool) {
  TR_TRY(tr_value_plan_make(d->model, &(tr_value_options){.type = d->type, .rows = CHUNK}, &d->plan));
  d->cache = calloc((size_t)tr_model_pieces(d->model), sizeof *d->cache);
  if (!d->cache) return tr_error(TR_ERR_MEMORY, "no memory for the caches of the decoder");
  size_t scratch = scratch_bytes(d, kernels, tr_pool_nthread(pool));
  TR_TRY(tr_arena_create(&d->memory, "decoder", memory_bytes(d, scratch)));
  for (int i = TR_PLACE_FI; i < TR_PLACE_CLASSES; i++) d->slot[i] = tr_arena_alloc(&d->memory, class_bytes(d, i));
  d->position = tr_arena_alloc(&d->memory, (size_t)d->capacity * sizeof(int32_t));
  d->sample = tr_arena_alloc(&d->memory, CHUNK * sizeof(int64_t));
  d->logits = tr_arena_alloc(&d->memory, (size_t)tr_model_vocab(d->model) * sizeof(float));
  for (int i = 0; i < tr_model_pieces(d->model); i++) {
    const tr_piece *piece = tr_model_piece(d->model, i);
    if (!is_attention(piece)) continue;
    size_t nbyte = (size_t)(d->capacity * key_width(d, piece)) * tr_dtype_size(d->type);
    void *k = tr_arena_alloc(&d->memory, nbyte), *v = tr_arena_alloc(&d->memory, nbyte);
    d->cache[i] = (tr_kv_cache){.k = k, .v = v, .capacity = d->capacity, .position = d->position};
  }
  void *memory = tr_arena_alloc(&d->memory, scratch);
  if (!memory) return TR_ERR_MEMORY;
  tr_arena_wrap(&d->scratch, "kernel scratch", memory, scratch);
  for (int64_t i = 0; i < d->capacity; i++) d->position[i] = (int32_t)i;
  return tr_compute_open(kernels, pool, &d->scratch, &d->compute);
}

tr_status tr_decoder_create(const tr_model *model, const tr_layout *layout, const void *weights, tr_dtype type,
                            const tr_kernels *kernels, tr_pool *pool, int64_t capacity, tr_decoder **out) {
  if (capacity < 1 || capacity > tr_model_positions(model) || capacity > INT32_MAX)
    return tr_error(TR_ERR_CONFIG, "a sequence of %lld tokens does not fit the model: at least 1, at most %lld",
                    (long long)capacity, (long long)tr_model_positions(model));
  if (type != TR_F32 && type != TR_BF16)
    return tr_error(TR_ERR_CONFIG, "generating runs in f32 or bf16, not in %s", tr_dtype_name(type));
  tr_decoder *d = calloc(1, sizeof *d);
  if (!d) return tr_error(TR_ERR_MEMORY, "no memory for a decoder");
  d->model = model;
  d->layout = layout;
  d->weights = weights;
  d->type = type;
  d->capacity = capacity;
  tr_status status = bind(d, kernels, pool);
  if (status < 0) {
    tr_decoder_destroy(d);
    return status;
  }
  *out = d;
  return TR_OK;
}

void tr_decoder_destroy(tr_decoder *d) {
  if (!d) return;
  if (d->compute.kernels) tr_compute_close(&d->compute);
  tr_arena_destroy(&d->memory);
  tr_value_plan_free(&d->plan);
  free(d->cache);
  free(d);
}

void tr_decoder_reset(tr_decoder *d) {
  d->length = 0;
  for (int i = 0; i < tr_model_pieces(d->model); i++) d->cache[i].length = 0;
}

int64_t tr_decoder_length(const tr_decoder *d) { return d->length; }

static void *resolve(const tr_decoder *d, const tr_place *place) { return d->slot[place->where] + place->offset; }

static tr_status run_piece(tr_decoder *d, int index, const tr_model_input *input, int64_t length) {
  const tr_piece *piece = tr_model_piece(d->model, index);
  tr_piece_call call = {.piece = piece,
                        .compute = &d->compute,
                        .input = input,
                        .type = d->type,
                        .logits = d->logits,
                        .length = length,
                        .cache = d->cache[index].capacity ? &d->cache[index] : NULL};
  for (int k = 0; k < piece->nin; k++) call.in[k] = resolve(d, &d->plan.value[piece->in[k].value]);
  for (int k = 0; k < piece->nout; k++) call.out[k] = resolve(d, &d->plan.value[piece->out[k].value]);
  for (int k = 0; k < piece->nparam; k++)
    call.param[k] =
        (const char *)d->weights + (size_t)d->layout->param_offset[piece->param[k]] * tr_dtype_size(d->type);
  return piece->ops->forward(&call);
}

tr_status tr_decoder_append(tr_decoder *d, const int32_t *token, int64_t n, const float **logits) {
  if (n < 1 || d->length + n > d->capacity)
    return tr_error(TR_ERR_DATA, "%lld more tokens do not fit: %lld of %lld are used", (long long)n,
                    (long long)d->length, (long long)d->capacity);
  for (int64_t i = 0; i < n; i++)
    if (token[i] < 0 || token[i] >= tr_model_vocab(d->model))
      return tr_error(TR_ERR_DATA, "token %d is outside the vocabulary of %lld", token[i],
                      (long long)tr_model_vocab(d->model));
  int64_t length = d->length + n; // of the whole, whatever the chunks
  while (n > 0) {
    int64_t rows = n < CHUNK ? n : CHUNK;
    int32_t start[2] = {0, (int32_t)rows};
    tr_model_input input = {.rows = rows,
                            .nseq = 1,
                            .token = token,
                            .position = d->position + d->length,
                            .sample = d->sample,
                            .start = start};
    for (int i = 0; i < tr_model_pieces(d->model); i++) TR_TRY(run_piece(d, i, &input, length));
    d->length += rows;
    token += rows;
    n -= rows;
  }
  *logits = d->logits;
  return TR_OK;
}
