// SPDX-License-Identifier: MIT
// Building and reading models: growing lists of values, parameters, units and pieces, and the checks that make a list
// of pieces a model. Failed add calls are remembered and reported once, by tr_model_finish.
#include "trireme/model/model.h"
#include "model/model_internal.h"
#include "model/piece_internal.h"
#include <stdlib.h>
#include <string.h>

static void *list_push(tr__model_list *list, size_t size) {
  if (list->count == list->capacity) {
    int capacity = list->capacity ? 2 * list->capacity : 16;
    void *item = realloc(list->item, size * (size_t)capacity);
    if (!item) return NULL;
    list->item = item;
    list->capacity = capacity;
  }
  void *slot = (char *)list->item + size * (size_t)list->count++;
  memset(slot, 0, size);
  return slot;
}

// The first failure of building is kept for tr_model_finish.
int tr__model_fail(tr_model *model, const char *what, const char *name, const char *why) {
  if (model->failed == TR_OK) {
    model->failed = TR_ERR_CONFIG;
    tr_error(TR_ERR_CONFIG, "model '%s': %s '%s' %s", model->name, what, name ? name : "(unnamed)", why);
    strncpy(model->failure, tr_status_text(), sizeof model->failure - 1);
  }
  return -1;
}

tr_status tr_model_create(const char *name, tr_model **out) {
  tr_model *model = calloc(1, sizeof *model);
  if (model) model->name = strdup(name);
  if (!model || !model->name) {
    free(model);
    return tr_error(TR_ERR_MEMORY, "no memory for model '%s'", name);
  }
  model->positions = INT64_MAX;
  *out = model;
  return TR_OK;
}

void tr_model_destroy(tr_model *model) {
  if (!model) return;
  for (int i = 0; i < model->unit.count; i++) free(((char **)model->unit.item)[i]);
  for (int i = 0; i < model->param.count; i++) free((char *)((tr_param *)model->param.item)[i].name);
  for (int i = 0; i < model->value.count; i++) free((char *)((tr_value *)model->value.item)[i].name);
  for (int i = 0; i < model->piece.count; i++) {
    tr_piece *piece = &((tr_piece *)model->piece.item)[i];
    free((char *)piece->name);
    if (piece->config_nbyte) free((void *)piece->config);
  }
  free(model->last_reader);
  free(model->last_user);
  free(model->packs);
  free(model->unit_first);
  free(model->whole_param);
  free(model->range_begin);
  free(model->boundary);
  free(model->unit.item);
  free(model->param.item);
  free(model->value.item);
  free(model->piece.item);
  free(model->name);
  free(model);
}

int tr__piece_has_param(tr_model *model, const char *piece, int param, int ndim) {
  int known = param >= 0 && param < model->param.count;
  if (known && tr_model_param(model, param)->shape.ndim == ndim) return 1;
  tr__model_fail(model, "piece", piece, known ? "uses a parameter of another shape" : "uses an unknown parameter");
  return 0;
}

int tr__piece_has_width(tr_model *model, const char *piece, int value, int64_t width) {
  int known = value >= 0 && value < model->value.count;
  if (known && tr_model_value(model, value)->width == width) return 1;
  tr__model_fail(model, "piece", piece,
                 known ? "has a value whose width does not fit its parameters" : "has a port on an unknown value");
  return 0;
}

int tr_model_add_unit(tr_model *model, const char *name) {
  if (!name) return tr__model_fail(model, "unit", name, "needs a name");
  char **unit = list_push(&model->unit, sizeof *unit);
  if (!unit || !(*unit = strdup(name))) return tr__model_fail(model, "unit", name, "does not fit in memory");
  return model->unit.count - 1;
}

int tr_model_add_param(tr_model *model, int unit, const tr_param *param) {
  if (!param->name) return tr__model_fail(model, "parameter", NULL, "needs a name");
  if (unit < 0 || unit >= model->unit.count)
    return tr__model_fail(model, "parameter", param->name, "names no known unit");
  tr_param *slot = list_push(&model->param, sizeof *slot);
  if (!slot) return tr__model_fail(model, "parameter", param->name, "does not fit in memory");
  *slot = *param;
  slot->unit = unit;
  slot->name = strdup(param->name);
  if (!slot->name) return tr__model_fail(model, "parameter", param->name, "does not fit in memory");
  return model->param.count - 1;
}

int tr_model_add_value(tr_model *model, const char *name, tr_value_kind kind, int64_t width) {
  if (!name) return tr__model_fail(model, "value", name, "needs a name");
  if (width < 1) return tr__model_fail(model, "value", name, "needs a width of at least 1");
  tr_value *slot = list_push(&model->value, sizeof *slot);
  if (!slot) return tr__model_fail(model, "value", name, "does not fit in memory");
  *slot = (tr_value){.name = strdup(name), .kind = kind, .width = width};
  if (!slot->name) return tr__model_fail(model, "value", name, "does not fit in memory");
  return model->value.count - 1;
}

static int ports_known(const tr_model *model, const tr_port *port, int n) {
  for (int i = 0; i < n; i++)
    if (port[i].value < 0 || port[i].value >= model->value.count) return 0;
  return 1;
}

// Nothing on two ports: each would take the other's gradient for the first contribution.
static int ports_distinct(const tr_piece *piece) {
  for (int i = 0; i < piece->nin; i++)
    for (int j = 0; j < i; j++)
      if (piece->in[i].value == piece->in[j].value) return 0;
  for (int i = 0; i < piece->nparam; i++)
    for (int j = 0; j < i; j++)
      if (piece->param[i] == piece->param[j]) return 0;
  return 1;
}

// Gradients that share memory exist and have one size.
static int aliases_fit(const tr_model *model, const tr_piece *piece) {
  const tr_value *out = tr_model_value(model, piece->out[0].value);
  for (int i = 0; i < piece->nin; i++) {
    const tr_value *in = tr_model_value(model, piece->in[i].value);
    if (piece->in[i].use & TR_ALIAS_GRAD &&
        (in->width != out->width || in->kind != out->kind || out->kind == TR_VALUE_STATE))
      return 0;
  }
  return 1;
}

// What travels cannot be added to anything, and nothing is computed when it has come.
static int exchange_fits(const tr_model *model, const tr_piece *piece) {
  for (int i = 0; i < piece->nin; i++)
    if (tr_model_value(model, piece->in[i].value)->kind == TR_VALUE_ACTIVATION &&
        (piece->in[i].use & (TR_SET_GRAD | TR_ALIAS_GRAD)) != TR_SET_GRAD)
      return 0;
  return piece->nparam == 0 && !piece->ops->backward_weight;
}

int tr_model_add_piece(tr_model *model, const tr_piece *piece) {
  const char *name = piece->name;
  if (!name) return tr__model_fail(model, "piece", name, "needs a name");
  if (!piece->ops || !piece->ops->forward) return tr__model_fail(model, "piece", name, "has no forward function");
  if (piece->nin < 0 || piece->nin > TR_PIECE_PORTS || piece->nout < 1 || piece->nout > TR_PIECE_PORTS ||
      piece->nparam < 0 || piece->nparam > TR_PIECE_PARAMS)
    return tr__model_fail(model, "piece", name, "has too many or too few ports or parameters");
  if (!ports_known(model, piece->in, piece->nin) || !ports_known(model, piece->out, piece->nout))
    return tr__model_fail(model, "piece", name, "has a port on an unknown value");
  for (int k = 0; k < piece->nparam; k++)
    if (piece->param[k] < 0 || piece->param[k] >= model->param.count)
      return tr__model_fail(model, "piece", name, "uses an unknown parameter");
  if (!ports_distinct(piece)) return tr__model_fail(model, "piece", name, "names a value or a parameter twice");
  if (piece->ops->exchanges && !exchange_fits(model, piece))
    return tr__model_fail(model, "piece", name, "exchanges, but has parameters or gradients that it would not set");
  if (!aliases_fit(model, piece)) return tr__model_fail(model, "piece", name, "shares gradients that are not alike");
  tr_piece *slot = list_push(&model->piece, sizeof *slot);
  if (!slot) return tr__model_fail(model, "piece", name, "does not fit in memory");
  *slot = *piece;
  slot->index = model->piece.count - 1;
  slot->name = strdup(name);
  if (piece->config_nbyte) {
    void *config = malloc(piece->config_nbyte);
    if (config) memcpy(config, piece->config, piece->config_nbyte);
    slot->config = config;
    if (!config) slot->config_nbyte = 0;
  }
  if (!slot->name || (piece->config_nbyte && !slot->config))
    return tr__model_fail(model, "piece", name, "does not fit in memory");
  return slot->index;
}

// Exactly one producer, before every consumer.
static tr_status check_flow(const tr_model *model) {
  int *producer = malloc(sizeof *producer * (size_t)(model->value.count + 1));
  if (!producer) return tr_error(TR_ERR_MEMORY, "no memory to check model '%s'", model->name);
  for (int v = 0; v < model->value.count; v++) producer[v] = -1;
  tr_status status = TR_OK;
  for (int p = 0; p < model->piece.count && status == TR_OK; p++) {
    const tr_piece *piece = tr_model_piece(model, p);
    for (int i = 0; i < piece->nin && status == TR_OK; i++)
      if (producer[piece->in[i].value] < 0 && !tr__model_enters(model, piece->in[i].value))
        status = tr_error(TR_ERR_CONFIG, "model '%s': piece '%s' reads value '%s' before any piece has written it",
                          model->name, piece->name, tr_model_value(model, piece->in[i].value)->name);
    for (int i = 0; i < piece->nout && status == TR_OK; i++) {
      int v = piece->out[i].value;
      if (producer[v] >= 0)
        status = tr_error(TR_ERR_CONFIG, "model '%s': value '%s' is written by pieces '%s' and '%s'", model->name,
                          tr_model_value(model, v)->name, tr_model_piece(model, producer[v])->name, piece->name);
      producer[v] = p;
    }
  }
  free(producer);
  return status;
}

// What backward needs: a gradient for every activation, and no adding where a piece can only write.
static tr_status check_gradients(const tr_model *model) {
  for (int p = 0; p < model->piece.count; p++) {
    const tr_piece *piece = tr_model_piece(model, p);
    int reads = 0;
    for (int i = 0; i < piece->nin; i++)
      reads |= tr_model_value(model, piece->in[i].value)->kind == TR_VALUE_ACTIVATION;
    if ((reads && !piece->ops->backward_input) ||
        (piece->nparam > 0 && !piece->ops->backward_input && !piece->ops->backward_weight))
      return tr_error(TR_ERR_CONFIG, "model '%s': piece '%s' has no backward function for its %s", model->name,
                      piece->name, reads && !piece->ops->backward_input ? "inputs" : "parameters");
    for (int i = 0; i < piece->nin; i++)
      if (piece->in[i].use & TR_SET_GRAD && model->last_reader[piece->in[i].value] != p)
        return tr_error(TR_ERR_CONFIG,
                        "model '%s': piece '%s' must be the last reader of value '%s': it cannot add to its gradient",
                        model->name, piece->name, tr_model_value(model, piece->in[i].value)->name);
  }
  for (int v = 0; v < model->value.count; v++)
    if (model->last_reader[v] < 0 && tr_model_value(model, v)->kind == TR_VALUE_ACTIVATION &&
        !tr__model_leaves(model, v))
      return tr_error(TR_ERR_CONFIG, "model '%s': no piece reads value '%s'", model->name,
                      tr_model_value(model, v)->name);
  return TR_OK;
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static tr_status check_names(const tr_model *model) {
  int n = model->param.count;
  const char **name = malloc(sizeof *name * ((size_t)n + 1));
  if (!name) return tr_error(TR_ERR_MEMORY, "no memory to check model '%s'", model->name);
  for (int i = 0; i < n; i++) name[i] = tr_model_param(model, i)->name;
  qsort(name, (size_t)n, sizeof *name, compare_names);
  tr_status status = TR_OK;
  for (int i = 1; i < n && status == TR_OK; i++)
    if (strcmp(name[i - 1], name[i]) == 0)
      status = tr_error(TR_ERR_CONFIG, "model '%s': parameter '%s' was added before", model->name, name[i]);
  free(name);
  return status;
}

static tr_status check_params(const tr_model *model) {
  TR_TRY(check_names(model));
  for (int i = 0; i < model->param.count; i++) {
    if (model->last_user[i] < 0)
      return tr_error(TR_ERR_CONFIG, "model '%s': no piece uses parameter '%s'", model->name,
                      tr_model_param(model, i)->name);
    TR_TRY(tr_shape_check(&tr_model_param(model, i)->shape, TR_F64, tr_model_param(model, i)->name));
  }
  return TR_OK;
}

static int *new_facts(int n, int value) {
  int *fact = malloc(sizeof *fact * ((size_t)n + 1));
  for (int i = 0; fact && i < n; i++) fact[i] = value;
  return fact;
}

static tr_status collect_facts(tr_model *model) {
  model->last_reader = new_facts(model->value.count, -1);
  model->last_user = new_facts(model->param.count, -1);
  model->packs = new_facts(model->param.count, 0);
  model->unit_first = new_facts(model->unit.count, 0);
  if (!model->last_reader || !model->last_user || !model->packs || !model->unit_first)
    return tr_error(TR_ERR_MEMORY, "no memory for the facts of model '%s'", model->name);
  for (int p = 0; p < model->piece.count; p++) {
    const tr_piece *piece = tr_model_piece(model, p);
    for (int i = 0; i < piece->nin; i++) model->last_reader[piece->in[i].value] = p;
    for (int k = 0; k < piece->nparam; k++) {
      model->last_user[piece->param[k]] = p;
      model->packs[piece->param[k]] |= piece->pack[k];
    }
  }
  for (int p = model->piece.count; p-- > 0;) {
    const tr_piece *piece = tr_model_piece(model, p);
    for (int k = 0; k < piece->nparam; k++) model->unit_first[tr_model_param(model, piece->param[k])->unit] = p;
  }
  return TR_OK;
}

// A part without the head has none: its last value leaves it.
static tr_status check_loss(const tr_model *model) {
  const tr_piece *last = tr_model_piece(model, model->piece.count - 1);
  if (model->whole && tr_model_loss_value(model) < 0) return TR_OK;
  const tr_value *loss = tr_model_value(model, last->out[0].value);
  if (loss->kind == TR_VALUE_STATE && loss->width == 1 && last->ops->backward_input) return TR_OK;
  return tr_error(TR_ERR_CONFIG,
                  "model '%s': the last piece, '%s', must write the loss (a state of width 1) and start "
                  "the backward pass",
                  model->name, last->name);
}

tr_status tr_model_finish(tr_model *model) {
  if (model->failed != TR_OK) return tr_error(model->failed, "%s", model->failure);
  if (model->piece.count == 0) return tr_error(TR_ERR_CONFIG, "model '%s' has no pieces", model->name);
  TR_TRY(check_flow(model));
  TR_TRY(collect_facts(model));
  TR_TRY(check_params(model));
  TR_TRY(check_loss(model));
  return check_gradients(model);
}

const char *tr_model_name(const tr_model *model) { return model->name; }
int tr_model_units(const tr_model *model) { return model->unit.count; }
const char *tr_model_unit_name(const tr_model *model, int unit) { return ((char **)model->unit.item)[unit]; }
int tr_model_params(const tr_model *model) { return model->param.count; }
const tr_param *tr_model_param(const tr_model *model, int i) { return &((const tr_param *)model->param.item)[i]; }
int tr_model_values(const tr_model *model) { return model->value.count; }
const tr_value *tr_model_value(const tr_model *model, int i) { return &((const tr_value *)model->value.item)[i]; }
int tr_model_pieces(const tr_model *model) { return model->piece.count; }
const tr_piece *tr_model_piece(const tr_model *model, int i) { return &((const tr_piece *)model->piece.item)[i]; }

// The whole model's last piece can only be the last of a part.
int tr_model_loss_value(const tr_model *model) {
  const tr_piece *last = tr_model_piece(model, model->piece.count - 1);
  return last->index == tr_model_pieces(model->whole ? model->whole : model) - 1 ? last->out[0].value : -1;
}

int64_t tr_model_vocab(const tr_model *model) { return model->vocab; }
int64_t tr_model_positions(const tr_model *model) { return model->positions; }

void tr_model_set_limits(tr_model *model, int64_t vocab, int64_t positions) {
  model->vocab = vocab;
  model->positions = positions;
}

int64_t tr_model_count(const tr_model *model) {
  int64_t count = 0;
  for (int i = 0; i < model->param.count; i++) count += tr_shape_count(&tr_model_param(model, i)->shape);
  return count;
}

double tr_model_flops(const tr_model *model, int64_t sequence) {
  double forward = 0;
  for (int p = 0; p < model->piece.count; p++) {
    const tr_piece *piece = tr_model_piece(model, p);
    if (piece->ops->flops) forward += piece->ops->flops(piece, sequence);
  }
  return 3 * forward;
}

int tr_model_grad_is_first(const tr_model *model, int piece, int in) {
  return model->last_reader[tr_model_piece(model, piece)->in[in].value] == piece;
}

int tr_model_param_grad_is_first(const tr_model *model, int piece, int k) {
  return model->last_user[tr_model_piece(model, piece)->param[k]] == piece;
}

int tr_model_exchanges(const tr_model *model) {
  for (int p = 0; p < model->piece.count; p++)
    if (tr_model_piece(model, p)->ops->exchanges) return 1;
  return 0;
}

unsigned tr_model_param_pack(const tr_model *model, int param) { return (unsigned)model->packs[param]; }

int tr_model_unit_last_piece(const tr_model *model, int unit) { return model->unit_first[unit]; }

void tr_param_init(const tr_param *param, uint64_t seed, float *out, int64_t first, int64_t count) {
  if (param->init == TR_INIT_NORMAL) {
    tr_rng_key key = tr_rng_key_make(seed, TR_RNG_WEIGHTS, tr_hash_string(param->name));
    tr_rng_normal_fill(key, (uint64_t)first, (size_t)count, out);
    for (int64_t i = 0; i < count; i++) out[i] = (float)(out[i] * param->std);
  } else {
    float value = param->init == TR_INIT_ONES ? 1.0f : 0.0f;
    for (int64_t i = 0; i < count; i++) out[i] = value;
  }
}
