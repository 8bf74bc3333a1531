// SPDX-License-Identifier: MIT
// Architectures behind one description: each function asks the one that the description is of.
#include "trireme/model/arch.h"
#include "model/llama_internal.h"
#include "trireme/base/json.h"
#include <stdio.h>
#include <string.h>

static tr_arch_sizes llama_sizes(const tr_llama_config *c) {
  return (tr_arch_sizes){.name = tr__llama_family_name(c->family),
                         .layers = c->layers,
                         .width = c->width,
                         .heads = c->heads,
                         .heads_kv = tr__llama_heads_kv(c),
                         .head_dim = tr__llama_head_dim(c),
                         .ffn = c->ffn,
                         .vocab = c->vocab,
                         .positions = c->positions,
                         .tied = c->tied};
}

static tr_arch_sizes gpt2_sizes(const tr_gpt2_config *c) {
  return (tr_arch_sizes){.name = "gpt2",
                         .layers = c->layers,
                         .width = c->width,
                         .heads = c->heads,
                         .heads_kv = c->heads,
                         .head_dim = c->width / c->heads,
                         .ffn = c->ffn ? c->ffn : 4 * c->width,
                         .vocab = c->vocab,
                         .positions = c->positions,
                         .tied = c->tied};
}

tr_arch_sizes tr_arch_sizes_of(const tr_arch *arch) {
  return arch->kind == TR_ARCH_GPT2 ? gpt2_sizes(&arch->gpt2) : llama_sizes(&arch->llama);
}

tr_status tr_arch_check(const tr_arch *arch) {
  return arch->kind == TR_ARCH_GPT2 ? tr_gpt2_config_check(&arch->gpt2) : tr_llama_config_check(&arch->llama);
}

tr_status tr_arch_create(const tr_arch *arch, tr_model **out) {
  return arch->kind == TR_ARCH_GPT2 ? tr_gpt2_create(&arch->gpt2, out) : tr_llama_create(&arch->llama, out);
}

tr_status tr_arch_from_json(const json_t *json, const char *name, tr_arch *out) {
  const char *type = "";
  TR_TRY(tr_json_get_string(json, name, "model_type", 1, &type));
  tr_arch arch = {.kind = TR_ARCH_GPT2};
  for (int i = 0; i < TR__LLAMA_FAMILIES; i++)
    if (strcmp(type, tr__llama_family_name(i)) == 0) arch.kind = TR_ARCH_LLAMA;
  if (arch.kind == TR_ARCH_LLAMA) {
    TR_TRY(tr_llama_config_from_json(json, name, &arch.llama));
  } else if (strcmp(type, "gpt2") == 0) {
    TR_TRY(tr_gpt2_config_from_json(json, name, &arch.gpt2));
  } else {
    int foreign = json_object_get(json, "auto_map") != NULL;
    return tr_error(TR_ERR_CKPT,
                    "%s: model_type '%.60s' is not supported%s; gpt2, llama, mistral, qwen2 and qwen3 are", name,
                    type, foreign ? ", and the code that its auto_map names is never run" : "");
  }
  *out = arch;
  return TR_OK;
}

tr_status tr_arch_to_json(const tr_arch *arch, const char *dtype, char **text) {
  if (arch->kind == TR_ARCH_GPT2) return tr_gpt2_config_to_json(&arch->gpt2, dtype, text);
  return tr_llama_config_to_json(&arch->llama, dtype, text);
}

// ---- comparing

static void differ(tr_text *out, const char *what, const char *own, const char *saved) {
  tr_text_append(out, "%smodel.%s is %s, the checkpoint has %s", out->size ? "; " : "", what, own, saved);
}

static void compare_numbers(tr_text *out, const char *what, double own, double saved) {
  char a[32], b[32];
  if (own == saved) return;
  snprintf(a, sizeof a, "%.15g", own);
  snprintf(b, sizeof b, "%.15g", saved);
  differ(out, what, a, b);
}

static void compare_answers(tr_text *out, const char *what, int own, int saved) {
  if (!own != !saved) differ(out, what, own ? "true" : "false", saved ? "true" : "false");
}

static void compare_ropes(tr_text *out, const tr_rope_config *own, const tr_rope_config *saved) {
  compare_numbers(out, "rope.theta", own->theta, saved->theta);
  if (own->kind != saved->kind) {
    differ(out, "rope.kind", tr__rope_kind_name(own->kind), tr__rope_kind_name(saved->kind));
    return;
  }
  if (own->kind != TR_ROPE_DEFAULT) compare_numbers(out, "rope.factor", own->factor, saved->factor);
  if (own->kind != TR_ROPE_LLAMA3) return;
  compare_numbers(out, "rope.low_freq_factor", own->low_freq_factor, saved->low_freq_factor);
  compare_numbers(out, "rope.high_freq_factor", own->high_freq_factor, saved->high_freq_factor);
  compare_numbers(out, "rope.original_positions", (double)own->original_positions, (double)saved->original_positions);
}

static void compare_llamas(tr_text *out, const tr_llama_config *own, const tr_llama_config *saved) {
  compare_numbers(out, "eps", own->eps, saved->eps);
  compare_ropes(out, &own->rope, &saved->rope);
  compare_numbers(out, "window", (double)own->window, (double)saved->window);
  if (own->window && saved->window)
    compare_numbers(out, "window_layer", (double)own->window_layer, (double)saved->window_layer);
  compare_answers(out, "qkv_bias", own->qkv_bias, saved->qkv_bias);
  compare_answers(out, "out_bias", own->out_bias, saved->out_bias);
  compare_answers(out, "mlp_bias", own->mlp_bias, saved->mlp_bias);
  compare_answers(out, "head_norm", own->head_norm, saved->head_norm);
}

void tr_arch_compare(const tr_arch *own, const tr_arch *saved, tr_text *out) {
  tr_arch_sizes a = tr_arch_sizes_of(own), b = tr_arch_sizes_of(saved);
  int gpt2 = own->kind == TR_ARCH_GPT2, wider = a.width != b.width, more_heads = a.heads != b.heads;
  const struct {
    const char *what;
    int64_t own, saved;
    int follows; // from sizes that differ and are named already
  } row[] = {{"layers", a.layers, b.layers, 0},
             {"width", a.width, b.width, 0},
             {"heads", a.heads, b.heads, 0},
             {"heads_kv", a.heads_kv, b.heads_kv, more_heads && (gpt2 || !own->llama.heads_kv)},
             {"head_dim", a.head_dim, b.head_dim, (more_heads || wider) && (gpt2 || !own->llama.head_dim)},
             {"ffn", a.ffn, b.ffn, wider && gpt2 && !own->gpt2.ffn},
             {"vocab", a.vocab, b.vocab, 0},
             {"positions", a.positions, b.positions, 0}};
  if (strcmp(a.name, b.name) != 0) differ(out, "kind", a.name, b.name);
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    if (!row[i].follows) compare_numbers(out, row[i].what, (double)row[i].own, (double)row[i].saved);
  compare_answers(out, "tied", a.tied, b.tied);
  if (own->kind != saved->kind) return;
  if (gpt2)
    compare_numbers(out, "eps", own->gpt2.eps, saved->gpt2.eps);
  else
    compare_llamas(out, &own->llama, &saved->llama);
}
