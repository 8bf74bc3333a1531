// SPDX-License-Identifier: MIT
// Counting a model: parameters and FLOPs from its sizes. The counts of dense models are those of the models that the
// library builds (tests/plan/test_workload.c compares them), without their biases.
#include "trireme/plan/workload.h"
#include "trireme/base/text.h"

enum { SIZE_MOST = 1 << 28, LAYERS_MOST = 1 << 16, EXPERTS_MOST = 1 << 20 }; // products of two are whole numbers

static int64_t gates(const tr_workload *w) { return w->gated ? 3 : 2; }

tr_workload tr_workload_from_arch(const tr_arch *arch) {
  tr_arch_sizes s = tr_arch_sizes_of(arch);
  tr_workload w = {.layers = s.layers,
                   .width = s.width,
                   .heads = s.heads,
                   .heads_kv = s.heads_kv,
                   .head_dim = s.head_dim,
                   .ffn = s.ffn,
                   .vocab = s.vocab,
                   .gated = arch->kind == TR_ARCH_LLAMA,
                   .tied = s.tied,
                   .positions = arch->kind == TR_ARCH_GPT2 ? s.positions : 0,
                   .every = 1};
  if (arch->kind == TR_ARCH_LLAMA) w.window = arch->llama.window;
  return w;
}

static tr_status within(const char *field, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return TR_OK;
  return tr_error(TR_ERR_CONFIG, "model.%s is %lld; it must be %lld to %lld", field, (long long)value,
                  (long long)least, (long long)most);
}

static tr_status positive(const char *field, int64_t value) { return within(field, value, 1, SIZE_MOST); }

// What a model may have none of.
static tr_status check_rest(const tr_workload *w) {
  const struct {
    const char *field;
    int64_t value, most;
  } row[] = {{"positions", w->positions, SIZE_MOST},
             {"shared", w->shared, EXPERTS_MOST},
             {"dense_first", w->dense_first, w->layers},
             {"q_rank", w->q_rank, SIZE_MOST},
             {"kv_rank", w->kv_rank, SIZE_MOST},
             {"rope_dim", w->rope_dim, w->head_dim},
             {"window", w->window, SIZE_MOST},
             {"window_every", w->window_every, LAYERS_MOST},
             {"predict_more", w->predict_more, w->layers}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) TR_TRY(within(row[i].field, row[i].value, 0, row[i].most));
  return TR_OK;
}

tr_status tr_workload_check(const tr_workload *w) {
  TR_TRY(within("layers", w->layers, 1, LAYERS_MOST));
  TR_TRY(positive("width", w->width));
  TR_TRY(positive("heads", w->heads));
  TR_TRY(positive("heads_kv", w->heads_kv));
  TR_TRY(positive("head_dim", w->head_dim));
  TR_TRY(positive("ffn", w->ffn));
  TR_TRY(positive("vocab", w->vocab));
  TR_TRY(check_rest(w));
  if (w->experts > 0) {
    TR_TRY(within("experts", w->experts, 1, EXPERTS_MOST));
    TR_TRY(within("every", w->every, 0, LAYERS_MOST));
    TR_TRY(positive("expert_ffn", w->expert_ffn));
    TR_TRY(positive("active", w->active));
    if (w->active > w->experts)
      return tr_error(TR_ERR_CONFIG, "model.active is %lld, but the model has only %lld expert%s",
                      (long long)w->active, (long long)w->experts, tr_text_plural(w->experts, "s"));
  }
  if (w->group_limit > w->groups || w->group_limit < 0 || (w->groups > 0 && w->experts % w->groups != 0))
    return tr_error(TR_ERR_CONFIG,
                    "model.groups is %lld of %lld experts, of which a token visits %lld; groups must divide the "
                    "experts and be as many as are visited",
                    (long long)w->groups, (long long)w->experts, (long long)w->group_limit);
  if (w->imbalance != 0 && !(w->imbalance >= 1 && w->imbalance <= 1e4))
    return tr_error(TR_ERR_CONFIG, "model.imbalance is %g; it must be 1 (even) to 10000", w->imbalance);
  if (w->imbalance > 1 && w->experts == 0)
    return tr_error(TR_ERR_CONFIG, "model.imbalance is %g; the model has no experts, so leave it out", w->imbalance);
  if (w->heads % w->heads_kv != 0)
    return tr_error(TR_ERR_CONFIG, "model.heads_kv is %lld; it must divide model.heads, %lld", (long long)w->heads_kv,
                    (long long)w->heads);
  return TR_OK;
}

double tr_workload_attention_params(const tr_workload *w) {
  double h = (double)w->width, a = (double)w->heads, d = (double)w->head_dim;
  if (w->kv_rank > 0) { // down to the ranks and up again; keys and queries also carry rope_dim positions
    double plain = d - (double)w->rope_dim, q = (double)w->q_rank, kv = (double)w->kv_rank;
    double queries = q > 0 ? h * q + q * a * d : h * a * d;
    return queries + h * (kv + (double)w->rope_dim) + kv * a * 2 * plain + a * plain * h;
  }
  return 2 * h * a * d + 2 * h * (double)w->heads_kv * d;
}

double tr_workload_mlp_params(const tr_workload *w) { return (double)(gates(w) * w->width * w->ffn); }

double tr_workload_expert_params(const tr_workload *w) { return (double)(gates(w) * w->width * w->expert_ffn); }

int64_t tr_workload_expert_layers(const tr_workload *w) {
  if (w->experts == 0) return 0;
  int64_t every = w->every > 1 ? w->every : 1, n = w->layers - w->dense_first;
  return n > 0 ? n / every : 0;
}

double tr_workload_params(const tr_workload *w) {
  double sparse = (double)tr_workload_expert_layers(w), dense = (double)w->layers - sparse;
  double embeddings = (double)(w->vocab * w->width) * (w->tied ? 1 : 2) + (double)(w->positions * w->width);
  double router = (double)(w->experts * w->width);
  return embeddings + (double)w->layers * (tr_workload_attention_params(w) + 2 * (double)w->width) +
         dense * tr_workload_mlp_params(w) +
         sparse * ((double)(w->experts + w->shared) * tr_workload_expert_params(w) + router);
}

double tr_workload_active_params(const tr_workload *w) {
  double idle = (double)(w->experts - w->active) * tr_workload_expert_params(w);
  return tr_workload_params(w) - (w->experts > 0 ? (double)tr_workload_expert_layers(w) * idle : 0);
}

double tr_workload_context(const tr_workload *w, int64_t sequence, int causal) {
  double s = (double)sequence, whole = causal ? (s + 1) / 2 : s, t = (double)w->window;
  if (w->window <= 0 || w->window >= sequence) return whole;
  double cut = causal ? t - t * (t - 1) / (2 * s) : t;
  double full = w->window_every > 1 ? 1 / (double)w->window_every : 0;
  return full * whole + (1 - full) * cut;
}

double tr_workload_flops(const tr_workload *w, int64_t sequence, int causal) {
  double sparse = (double)tr_workload_expert_layers(w), dense = (double)w->layers - sparse;
  double matrices =
      (double)w->layers * tr_workload_attention_params(w) + dense * tr_workload_mlp_params(w) +
      sparse * ((double)(w->active + w->shared) * tr_workload_expert_params(w) + (double)(w->experts * w->width)) +
      (double)(w->vocab * w->width);
  double value_dim = (double)(w->head_dim - w->rope_dim), q_dim = (double)w->head_dim;
  double scores = (double)(w->layers * w->heads) * (q_dim + value_dim) * tr_workload_context(w, sequence, causal);
  return 6 * (matrices + scores);
}
