// SPDX-License-Identifier: MIT
// Rotary positions (Su et al., "RoFormer") as a piece: rows of query, key and value heads go through, the queries
// and keys turned by their position and, in some families, normed head by head before that.
//
// Frequencies are computed per call, dim / 2 of them: nothing beside the matrix products, and no state to keep. The
// four ways of stretching a trained model to longer sequences are those of Hugging Face's rope_scaling: linear
// (Chen et al., "Extending context window ..."), dynamic (scaled by the length of the sequence), and llama3 (low
// frequencies divided, high ones kept, a ramp between them).
#include "model/piece_internal.h"
#include <math.h>
#include <string.h>

static double llama3_frequency(const tr_rope_config *c, double frequency) {
  const double pi = 3.14159265358979323846;
  double turns = (double)c->original_positions * frequency / (2 * pi); // over the original length
  if (turns < c->low_freq_factor) return frequency / c->factor;
  if (turns > c->high_freq_factor) return frequency;
  double kept = (turns - c->low_freq_factor) / (c->high_freq_factor - c->low_freq_factor);
  return kept * frequency + (1 - kept) * frequency / c->factor;
}

void tr_rope_frequencies(const tr_rope_config *config, int64_t dim, int64_t length, double *frequency) {
  double theta = config->theta;
  if (config->kind == TR_ROPE_DYNAMIC && length > config->original_positions && dim > 2) {
    double stretch = config->factor * (double)length / (double)config->original_positions - (config->factor - 1);
    theta *= pow(stretch, (double)dim / (double)(dim - 2));
  }
  for (int64_t i = 0; i < dim / 2; i++) {
    double f = pow(theta, -2.0 * (double)i / (double)dim);
    if (config->kind == TR_ROPE_LINEAR) f /= config->factor;
    if (config->kind == TR_ROPE_LLAMA3) f = llama3_frequency(config, f);
    frequency[i] = f;
  }
}

static int has_norms(const tr_piece *piece) { return piece->nparam > 0; }
static int64_t row_width(const tr_rotary_config *p) { return (p->heads + 2 * p->heads_kv) * p->dim; }

// What TR_ROPE_DYNAMIC depends on.
static int64_t sequence_length(const tr_piece_call *c) {
  int64_t longest = c->length;
  for (int64_t r = 0; r < c->input->rows; r++)
    if (c->input->position[r] >= longest) longest = c->input->position[r] + 1;
  return longest;
}

static tr_status turn(const tr_piece_call *c, int inverse, void *x) {
  const tr_rotary_config *config = c->piece->config;
  size_t mark = tr_arena_mark(c->compute->scratch);
  double *frequency = tr_arena_alloc(c->compute->scratch, (size_t)(config->dim / 2) * sizeof *frequency);
  if (!frequency) return TR_ERR_MEMORY;
  tr_rope_frequencies(&config->rope, config->dim, sequence_length(c), frequency);
  tr_rope p = {.rows = c->input->rows,
               .count = config->heads + config->heads_kv, // keys lie right behind the queries
               .dim = config->dim,
               .ld = row_width(config),
               .type = c->type,
               .position = c->input->position,
               .frequency = frequency,
               .scale = 1,
               .inverse = inverse};
  c->compute->kernels->rope(c->compute, &p, x);
  tr_arena_reset(c->compute->scratch, mark);
  return TR_OK;
}

// The norm of the query heads (k 0) or key heads (k 1): which elements of a row, and of rstd, are theirs.
static tr_rmsnorm norm_shape(const tr_rotary_config *p, int k, tr_dtype type, int64_t rows) {
  return (tr_rmsnorm){.rows = rows,
                      .count = k ? p->heads_kv : p->heads,
                      .width = p->dim,
                      .ld_x = row_width(p),
                      .ld_y = row_width(p),
                      .type = type,
                      .eps = (float)p->eps};
}
static int64_t norm_offset(const tr_rotary_config *p, int k) { return k ? p->heads * p->dim : 0; }
static void *norm_rstd(const tr_piece_call *c, int k) {
  const tr_rotary_config *p = c->piece->config;
  return tr__element(c->out[1], k ? c->input->rows * p->heads : 0, tr_wide(c->type));
}

static tr_status rotary_forward(const tr_piece_call *c) {
  const tr_rotary_config *config = c->piece->config;
  memcpy(c->out[0], c->in[0], (size_t)(c->input->rows * row_width(config)) * tr_dtype_size(c->type));
  for (int k = 0; k < 2 && has_norms(c->piece); k++) {
    tr_rmsnorm p = norm_shape(config, k, c->type, c->input->rows);
    void *y = tr__element(c->out[0], norm_offset(config, k), c->type);
    c->compute->kernels->rmsnorm_forward(c->compute, &p, y, c->param[k], y, norm_rstd(c, k));
  }
  return turn(c, 0, c->out[0]);
}

// Gives the gradients of the norms here too, as a layer's norm does.
static tr_status rotary_backward(const tr_piece_call *c) {
  const tr_rotary_config *config = c->piece->config;
  memcpy(c->din[0], c->dout[0], (size_t)(c->input->rows * row_width(config)) * tr_dtype_size(c->type));
  TR_TRY(turn(c, 1, c->din[0]));
  for (int k = 0; k < 2 && has_norms(c->piece); k++) {
    tr_rmsnorm p = norm_shape(config, k, c->type, c->input->rows);
    void *dx = tr__element(c->din[0], norm_offset(config, k), c->type);
    const void *x = tr__element(c->in[0], norm_offset(config, k), c->type);
    c->compute->kernels->rmsnorm_backward(c->compute, &p, dx, x, c->param[k], norm_rstd(c, k), dx, 0, c->dparam[k],
                                          c->add_param[k]);
  }
  return TR_OK;
}

static size_t rotary_scratch(const tr_piece *piece, const tr_kernels *kernels, tr_dtype type, int64_t rows,
                             int nthread) {
  (void)nthread;
  const tr_rotary_config *config = piece->config;
  size_t most = tr_arena_rounded((size_t)(config->dim / 2) * sizeof(double));
  for (int k = 0; k < 2 && has_norms(piece); k++) {
    tr_rmsnorm p = norm_shape(config, k, type, rows);
    size_t need = kernels->rmsnorm_backward_scratch(&p);
    if (need > most) most = need;
  }
  return most;
}

static const tr_piece_ops rotary_ops = {.kind = "rotary",
                                        .cheap = 1,
                                        .forward = rotary_forward,
                                        .backward_input = rotary_backward,
                                        .scratch = rotary_scratch};

static int norms_fit(tr_model *model, const char *name, const tr_rotary_config *config, int norm_q, int norm_k,
                     int rstd) {
  if (!tr__piece_has_param(model, name, norm_q, 1) || !tr__piece_has_param(model, name, norm_k, 1) ||
      !tr__piece_has_width(model, name, rstd, config->heads + config->heads_kv))
    return 0;
  if (tr_model_param(model, norm_q)->shape.dim[0] == config->dim &&
      tr_model_param(model, norm_k)->shape.dim[0] == config->dim)
    return 1;
  tr__model_fail(model, "piece", name, "has norms that do not fit its heads");
  return 0;
}

int tr_piece_rotary(tr_model *model, const char *name, const tr_rotary_config *config, int norm_q, int norm_k, int x,
                    int y, int rstd) {
  if (config->heads < 1 || config->heads_kv < 1 || config->dim < 2 || config->dim % 2)
    return tr__model_fail(model, "piece", name, "needs heads of an even width");
  int normed = norm_q >= 0 || norm_k >= 0;
  if (normed && !norms_fit(model, name, config, norm_q, norm_k, rstd)) return -1;
  if (!tr__piece_has_width(model, name, x, row_width(config)) ||
      !tr__piece_has_width(model, name, y, row_width(config)))
    return -1;
  const tr_placement heads = {TR_SHARD, 1}, rows = {TR_SHARD, 0};
  tr_piece piece = {
      .name = name,
      .ops = &rotary_ops,
      .nin = 1,
      .in = {{.value = x, .use = TR_SET_GRAD | (normed ? TR_USE_I : 0), .tp = heads, .cp = rows}},
      .nout = normed ? 2 : 1,
      .out = {{.value = y, .tp = heads, .cp = rows}, {.value = rstd, .use = TR_USE_I, .tp = heads, .cp = rows}},
      .nparam = normed ? 2 : 0,
      .param = {norm_q, norm_k},
      .config = config,
      .config_nbyte = sizeof *config};
  return tr_model_add_piece(model, &piece);
}
