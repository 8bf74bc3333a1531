// SPDX-License-Identifier: MIT
// Causal self-attention as a piece. Training and evaluation attend within the micro-batch's own rows;
// generating appends the new keys and values to the cache and attends over all of it: the same kernel with
// more keys than queries.
#include "model/piece_internal.h"
#include <math.h>
#include <string.h>

// Kernel arguments common to all uses. qkv rows hold heads * dim queries, then heads_kv * dim keys,
// then as many values.
static tr_attention attention_shape(const tr_attention_config *p, tr_dtype type) {
  int64_t row = (p->heads + 2 * p->heads_kv) * p->dim;
  return (tr_attention){.head = (int)p->heads,
                        .head_kv = (int)p->heads_kv,
                        .dim = (int)p->dim,
                        .ld_q = row,
                        .ld_k = row,
                        .ld_v = row,
                        .ld_out = p->heads * p->dim,
                        .type = type,
                        .scale = 1.0f / sqrtf((float)p->dim),
                        .window = p->window,
                        .first = 1,
                        .last = 1,
                        .dropout_stride = p->positions};
}

static tr_attention attention_over_input(const tr_piece_call *c) {
  const tr_attention_config *config = c->piece->config;
  tr_attention p = attention_shape(config, c->type);
  p.nseq = c->input->nseq;
  p.query_start = p.key_start = c->input->start;
  p.query_pos = p.key_pos = c->input->position;
  p.dropout = tr__piece_dropout(c, config->dropout);
  return p;
}

static tr_status attention_over_cache(const tr_piece_call *c) {
  const tr_attention_config *config = c->piece->config;
  tr_kv_cache *cache = c->cache;
  int64_t rows = c->input->rows, width_q = config->heads * config->dim, width_kv = config->heads_kv * config->dim;
  if (cache->length + rows > cache->capacity)
    return tr_error(TR_ERR_DATA, "sequence of %lld tokens is longer than the cache of %lld",
                    (long long)(cache->length + rows), (long long)cache->capacity);
  size_t nbyte = (size_t)width_kv * tr_dtype_size(c->type);
  for (int64_t r = 0; r < rows; r++) {
    const char *key = tr__element(c->in[0], r * (width_q + 2 * width_kv) + width_q, c->type);
    memcpy(tr__element(cache->k, (cache->length + r) * width_kv, c->type), key, nbyte);
    memcpy(tr__element(cache->v, (cache->length + r) * width_kv, c->type), key + nbyte, nbyte);
  }
  cache->length += rows;
  int32_t key_start[2] = {0, (int32_t)cache->length};
  tr_attention p = attention_shape(config, c->type);
  p.nseq = 1;
  p.query_start = c->input->start;
  p.key_start = key_start;
  p.query_pos = c->input->position;
  p.key_pos = cache->position;
  p.ld_k = p.ld_v = width_kv;
  return c->compute->kernels->attention_forward(c->compute, &p, c->in[0], cache->k, cache->v, NULL, c->out[0],
                                                c->out[1]);
}

static tr_status attention_forward(const tr_piece_call *c) {
  if (c->cache) return attention_over_cache(c);
  const tr_attention_config *config = c->piece->config;
  tr_attention p = attention_over_input(c);
  int64_t width_q = config->heads * config->dim, width_kv = config->heads_kv * config->dim;
  return c->compute->kernels->attention_forward(c->compute, &p, c->in[0], tr__element(c->in[0], width_q, c->type),
                                                tr__element(c->in[0], width_q + width_kv, c->type), NULL, c->out[0],
                                                c->out[1]);
}

static tr_status attention_backward(const tr_piece_call *c) {
  const tr_attention_config *config = c->piece->config;
  tr_attention p = attention_over_input(c);
  int64_t k = config->heads * config->dim, v = k + config->heads_kv * config->dim;
  tr_attention_grad g = {.q = c->in[0],
                         .k = tr__element(c->in[0], k, c->type),
                         .v = tr__element(c->in[0], v, c->type),
                         .out = c->out[0],
                         .lse = c->out[1],
                         .dout = c->dout[0],
                         .dq = c->din[0],
                         .dk = tr__element(c->din[0], k, c->type),
                         .dv = tr__element(c->din[0], v, c->type),
                         .grad_type = c->type,
                         .add = c->add_in[0]};
  return c->compute->kernels->attention_backward(c->compute, &p, &g);
}

// The most that any cut of `rows` rows into sequences can take: one sequence of all of them.
static size_t attention_scratch(const tr_piece *piece, const tr_kernels *kernels, tr_dtype type, int64_t rows,
                                int nthread) {
  tr_attention p = attention_shape(piece->config, type);
  int32_t start[2] = {0, (int32_t)rows};
  p.nseq = 1;
  p.query_start = p.key_start = start;
  return kernels->attention_scratch(&p, nthread);
}

// Two products (scores and outputs) over the keys that a token sees on average: half of them, or those of the window,
// which it sees in full but for the first tokens.
static double attention_flops(const tr_piece *piece, int64_t sequence) {
  const tr_attention_config *config = piece->config;
  double n = (double)sequence, window = n;
  if (config->window > 0 && config->window < sequence) window = (double)config->window;
  double keys = (window * (window + 1) / 2 + (n - window) * window) / n;
  return 4.0 * (double)(config->heads * config->dim) * keys;
}

static const tr_piece_ops attention_ops = {.kind = "attention",
                                           .cheap = 1,
                                           .forward = attention_forward,
                                           .backward_input = attention_backward,
                                           .scratch = attention_scratch,
                                           .flops = attention_flops};

int tr_piece_attention(tr_model *model, const char *name, const tr_attention_config *config, int qkv, int out,
                       int lse) {
  if (config->heads < 1 || config->heads_kv < 1 || config->dim < 1 || config->heads % config->heads_kv)
    return tr__model_fail(model, "piece", name, "needs heads that are a multiple of its key heads");
  if (!(config->dropout >= 0 && config->dropout < 1))
    return tr__model_fail(model, "piece", name, "needs a dropout in [0, 1)");
  if (config->window < 0) return tr__model_fail(model, "piece", name, "needs a window of at least 1, or 0 for none");
  if (!tr__piece_has_width(model, name, qkv, (config->heads + 2 * config->heads_kv) * config->dim) ||
      !tr__piece_has_width(model, name, out, config->heads * config->dim) ||
      !tr__piece_has_width(model, name, lse, config->heads))
    return -1;
  const tr_placement heads = {TR_SHARD, 1}, rows = {TR_SHARD, 0};
  tr_piece piece = {.name = name,
                    .ops = &attention_ops,
                    .nin = 1,
                    .in = {{.value = qkv, .use = TR_USE_I, .tp = heads, .cp = rows}},
                    .nout = 2,
                    .out = {{.value = out, .use = TR_USE_I, .tp = heads, .cp = rows},
                            {.value = lse, .use = TR_USE_I, .tp = heads, .cp = rows}},
                    .config = config,
                    .config_nbyte = sizeof *config};
  return tr_model_add_piece(model, &piece);
}
