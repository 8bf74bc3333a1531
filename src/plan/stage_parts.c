// SPDX-License-Identifier: MIT
// What lies between two neighbouring places where a model can be cut, added up over its pieces. A value that comes from the part
// before counts where it is read; a parameter that two parts use counts in both, if they are on different ranks.
#include "trireme/plan/stage_parts.h"
#include "trireme/plan/predict.h"
#include <stdlib.h>
#include <string.h>

typedef struct counter {
  const tr_model *model;
  const tr_stage_parts_options *options;
  int tied_apart;                 // first and last stage are on different ranks
  int *cut;                       // [parts + 1] pieces
  unsigned char *params, *values; // [] counted already
} counter;

static double count_params(const counter *c, const tr_piece *piece) {
  double n = 0;
  for (int k = 0; k < piece->nparam; k++) {
    if (c->params[piece->param[k]]) continue;
    c->params[piece->param[k]] = 1;
    n += (double)tr_shape_count(&tr_model_param(c->model, piece->param[k])->shape);
  }
  return n;
}

// Bytes per token of what ports keep, each value once.
static double kept_bytes(const counter *c, const tr_port *port, int n) {
  double bytes = 0;
  for (int k = 0; k < n; k++) {
    if (!(port[k].use & (TR_USE_I | TR_USE_W)) || c->values[port[k].value]) continue;
    const tr_value *value = tr_model_value(c->model, port[k].value);
    tr_dtype type = value->kind == TR_VALUE_STATE ? tr_wide(c->options->type) : c->options->type;
    c->values[port[k].value] = 1;
    bytes += (double)value->width * (double)tr_dtype_size(type);
  }
  return bytes;
}

static double bytes_of_state(tr_dtype type) {
  double wide = (double)tr_dtype_size(tr_wide(type)), weight = (double)tr_dtype_size(type);
  return weight + wide + (weight < wide ? wide : 0) + 2 * sizeof(float);
}

static void count_part(counter *c, int i, tr_stage_parts *out) {
  double tokens = (double)(c->options->micro * c->options->sequence), flops = 0, kept = 0;
  if (c->tied_apart) memset(c->params, 0, (size_t)tr_model_params(c->model));
  memset(c->values, 0, (size_t)tr_model_values(c->model));
  for (int k = c->cut[i]; k < c->cut[i + 1]; k++) {
    const tr_piece *piece = tr_model_piece(c->model, k);
    out->params[i] += count_params(c, piece);
    kept += kept_bytes(c, piece->in, piece->nin) + kept_bytes(c, piece->out, piece->nout);
    if (piece->ops->flops) flops += piece->ops->flops(piece, c->options->sequence);
  }
  out->flops[i] = 3 * flops * tokens;
  out->part[i] = (tr_stage_part){.forward = flops * tokens,
                                 .backward = 2 * flops * tokens,
                                 .states = out->params[i] * bytes_of_state(c->options->type),
                                 .activations = kept * tokens,
                                 .layers = i > 0 && i < out->n - 1};
}

static void set_times(const tr_stage_parts_options *o, tr_stage_parts *out) {
  tr_plan plan;
  tr_plan_init(&plan);
  plan.micro = o->micro;
  plan.sequence = o->sequence;
  for (int i = 0; i < out->n; i++) {
    tr_stage_part *part = &out->part[i];
    const tr_stage_cut alone = {i > 0 ? i - 1 : 0, part->layers, i == 0, i == out->n - 1};
    const tr_stage_time time = tr_predict_stage(&plan, o->workload, o->cluster, &alone);
    part->forward = time.forward;
    part->backward = time.input + time.weights;
  }
}

tr_status tr_stage_parts_make(const tr_model *model, const tr_stage_parts_options *options, tr_stage_parts *out) {
  const tr_schedule *s = options->schedule;
  int ncut = tr_model_cuts(model, NULL, 0);
  size_t n = (size_t)ncut + 1, nparam = (size_t)tr_model_params(model), nvalue = (size_t)tr_model_values(model);
  counter c = {.model = model,
               .options = options,
               .tied_apart = tr_schedule_rank(s, 0, 0) != tr_schedule_rank(s, s->S - 1, 0),
               .cut = calloc(n + 1, sizeof *c.cut),
               .params = calloc(nparam + nvalue, 1)};
  tr_stage_parts made = {(int)n, calloc(n, sizeof *made.part), calloc(n, sizeof(double)), calloc(n, sizeof(double))};
  int enough = c.cut && c.params && made.part && made.params && made.flops;
  if (enough) {
    c.values = c.params + nparam;
    (void)tr_model_cuts(model, c.cut + 1, ncut);
    c.cut[n] = tr_model_pieces(model);
    for (int i = 0; i < made.n; i++) count_part(&c, i, &made);
    if (options->cluster) set_times(options, &made);
    *out = made;
  } else {
    tr_stage_parts_destroy(&made);
  }
  free(c.cut);
  free(c.params);
  return enough ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory for %zu parts of model '%s'", n, tr_model_name(model));
}

void tr_stage_parts_destroy(tr_stage_parts *parts) {
  free(parts->part);
  free(parts->params);
  free(parts->flops);
  *parts = (tr_stage_parts){0};
}
