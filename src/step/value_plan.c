// SPDX-License-Identifier: MIT
// The memory plan of values and their gradients, from nothing but the ports of the pieces.
//
// What backward reads lives in a slot of its class (F-I or F-W); everything else is temporary within one
// pass, and temporaries whose lives do not touch share memory: first fit over lifetimes counted in pieces. A
// gradient lives from the backward of its value's last reader to that of its writer; gradients declared
// equal (TR_ALIAS_GRAD) are one.
//
// What enters and leaves a part of a model is in rings, with its gradients. The gradient of what leaves may be one with those
// in front of it, which then accumulate in the ring; that of what enters never is: it goes to another stage.
//
// What pieces write that run again (recompute.c) lives in an area of its own, one for all units, where the first forward
// pass puts it too: first fit in each unit over its forward and then its backward pass. That area is not the one for
// temporaries, because gradients live on there while a unit is computed again.
#include "trireme/step/values.h"
#include <stdlib.h>

typedef struct life {
  int value;
  int begin, end; // inclusive, in execution order
  size_t nbyte, offset;
} life;

typedef struct planner {
  const tr_model *model;
  const tr_value_options *options;
  int nvalue, npiece;
  tr_value_facts facts;
  int *alias; // [values] representative of gradients that are one
  int *item;  // [values] number of its life in a list of those that have one, -1: none
  int *guest; // [values] joined through another port than 0: must be used up before the owner goes on
  tr_value_plan *plan;
} planner;

static size_t value_bytes(const planner *p, int v) {
  const tr_value *value = tr_model_value(p->model, v);
  tr_dtype type = p->options->type;
  if (value->kind == TR_VALUE_STATE) type = tr_wide(type);
  return tr_arena_rounded((size_t)(p->options->rows * value->width) * tr_dtype_size(type));
}

static int representative(const planner *p, int v) {
  for (; p->alias[v] != v; v = p->alias[v])
    p->alias[v] = p->alias[p->alias[v]]; // the way there is halved for the next
  return v;
}

// The highest reader of value v below piece `limit`, -1 if none.
static int reader_below(const planner *p, int v, int limit) {
  for (int i = limit - 1; i >= 0; i--) {
    const tr_piece *piece = tr_model_piece(p->model, i);
    for (int k = 0; k < piece->nin; k++)
      if (piece->in[k].value == v) return i;
  }
  return -1;
}

// Port 0 may share with out[0] when this piece is the last reader, so that nothing was written there before. Another
// port may join only as a guest: if its gradient has been used (by its writer) before an earlier reader of port 0
// adds to it; and its writer shares no further. Called for the last piece first, so that guests are known before
// their writers come.
static void alias_piece(planner *p, int index) {
  const tr_piece *piece = tr_model_piece(p->model, index);
  int out = piece->out[0].value, first = piece->in[0].value;
  if (piece->nin == 0 || !(piece->in[0].use & TR_ALIAS_GRAD) || p->facts.last_reader[first] != index || p->guest[out])
    return;
  if (p->facts.producer[first] < 0) return;
  p->alias[representative(p, first)] = representative(p, out);
  int next_reader = reader_below(p, first, index);
  for (int k = 1; k < piece->nin; k++) {
    int v = piece->in[k].value;
    if (!(piece->in[k].use & TR_ALIAS_GRAD) || p->facts.last_reader[v] != index || reader_below(p, v, index) >= 0)
      continue;
    if (p->facts.producer[v] <= next_reader || p->facts.producer[v] <= p->facts.producer[first]) continue;
    p->alias[representative(p, v)] = representative(p, out);
    p->guest[v] = 1;
  }
}

// First fit: items in order of birth, each at the lowest offset free during its whole life.
static size_t place_lives(life *item, int n) {
  size_t size = 0;
  for (int i = 0; i < n; i++) {
    size_t offset = 0;
    for (int again = 1; again;) {
      again = 0;
      for (int j = 0; j < i; j++) {
        int overlap = item[j].begin <= item[i].end && item[i].begin <= item[j].end;
        if (overlap && offset < item[j].offset + item[j].nbyte && item[j].offset < offset + item[i].nbyte) {
          offset = item[j].offset + item[j].nbyte;
          again = 1;
        }
      }
    }
    item[i].offset = offset;
    if (offset + item[i].nbyte > size) size = offset + item[i].nbyte;
  }
  return size;
}

static int compare_birth(const void *a, const void *b) {
  const life *x = a, *y = b;
  return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1) : x->value - y->value;
}

// What a piece reads that runs again is kept until then: with a split backward pass, until W.
static void keep_for_recomputation(planner *p) {
  for (int i = 0; i < p->npiece; i++) {
    const tr_piece *piece = tr_model_piece(p->model, i);
    for (int k = 0; p->plan->again[i] && k < piece->nin; k++)
      p->facts.use[piece->in[k].value] |= p->options->split ? TR_USE_W : TR_USE_I;
  }
}

static tr_place_class class_of(const planner *p, int v) {
  if (p->facts.producer[v] < 0) return TR_PLACE_RING_IN;
  if (p->facts.producer[v] >= 0 && p->plan->again[p->facts.producer[v]]) return TR_PLACE_RECOMPUTE;
  if (p->facts.use[v] & (TR_USE_W | TR_USE_I)) return p->facts.use[v] & TR_USE_W ? TR_PLACE_FW : TR_PLACE_FI;
  return p->facts.last_reader[v] == p->npiece ? TR_PLACE_RING_OUT : TR_PLACE_TEMPORARY;
}

// Where `v` begins in a slot of its range.
static size_t take_slot(const planner *p, tr_place_class where, int v) {
  size_t *size = &p->plan->size[p->facts.range[v]][where], offset = *size;
  *size += value_bytes(p, v);
  return offset;
}

// Gives each of `n` values its offset in an area, and returns how large that has to be.
static size_t place_in_area(planner *p, life *item, int n) {
  qsort(item, (size_t)n, sizeof *item, compare_birth);
  size_t size = place_lives(item, n);
  for (int i = 0; i < n; i++) p->plan->value[item[i].value].offset = item[i].offset;
  return size;
}

static life forward_life(const planner *p, int v) {
  int begin = p->facts.producer[v], end = p->facts.last_reader[v];
  return (life){.value = v, .begin = begin, .end = end < 0 ? begin : end, .nbyte = value_bytes(p, v)};
}

// The unit [begin, end): piece i runs forward at i and backward at 2 end - 1 - i.
static void place_recomputed(planner *p, int begin, int end, life *item) {
  int n = 0;
  for (int v = 0; v < p->nvalue; v++) {
    if (p->plan->value[v].where != TR_PLACE_RECOMPUTE) continue;
    life one = forward_life(p, v);
    if (one.begin < begin || one.begin >= end) continue;
    if (p->facts.lowest_user[v] < end) one.end = 2 * end - 1 - p->facts.lowest_user[v];
    item[n++] = one;
  }
  size_t size = place_in_area(p, item, n);
  if (size > p->plan->area[TR_PLACE_RECOMPUTE]) p->plan->area[TR_PLACE_RECOMPUTE] = size;
}

static void place_values(planner *p, life *item) {
  int n = 0;
  tr_value_recompute(p->model, &p->facts, p->options->recompute, p->plan->again);
  keep_for_recomputation(p);
  for (int v = 0; v < p->nvalue; v++) {
    tr_place_class where = class_of(p, v);
    int in_slot = where == TR_PLACE_FI || where == TR_PLACE_FW;
    p->plan->value[v] = (tr_place){where, in_slot ? take_slot(p, where, v) : 0};
    if (where == TR_PLACE_TEMPORARY) item[n++] = forward_life(p, v);
  }
  p->plan->area[TR_PLACE_TEMPORARY] = place_in_area(p, item, n);
  for (int begin = 0, end; begin < p->npiece; begin = end)
    place_recomputed(p, begin, end = tr_value_unit_end(p->model, begin), item);
}

// Lives of gradients in backward time: piece i runs at npiece - 1 - i. Members of an alias live as one.
static int gradient_lives(const planner *p, const tr_place *grad, life *item) {
  int n = 0;
  for (int v = 0; v < p->nvalue; v++) {
    const int has_life = representative(p, v) == v && grad[v].where == TR_PLACE_TEMPORARY;
    p->item[v] = has_life ? n : -1;
    if (has_life) item[n++] = (life){.value = v, .begin = p->npiece, .end = 0, .nbyte = value_bytes(p, v)};
  }
  for (int v = 0; v < p->nvalue; v++) {
    const int begin = p->npiece - 1 - p->facts.last_reader[v], end = p->npiece - 1 - p->facts.producer[v],
              at = p->item[representative(p, v)];
    if (at < 0) continue;
    if (begin < item[at].begin) item[at].begin = begin;
    if (end > item[at].end) item[at].end = end;
  }
  return n;
}

// Of whole passes, where gradients may be one, or of split ones, where some have to be kept from I to W.
static void place_gradients(planner *p, int split, life *item) {
  tr_place *grad = p->plan->grad[split];
  for (int v = 0; v < p->nvalue; v++) p->alias[v] = v, p->guest[v] = 0;
  for (int i = p->npiece; !split && i-- > 0;) alias_piece(p, i);
  for (int v = 0; v < p->nvalue; v++) {
    if (tr_model_value(p->model, v)->kind != TR_VALUE_ACTIVATION || p->facts.last_reader[v] < 0) continue;
    tr_place_class where = split && p->facts.use[v] & TR_USE_DW ? TR_PLACE_IW : TR_PLACE_TEMPORARY;
    if (p->facts.producer[v] < 0) where = TR_PLACE_RING_DOUT;
    if (p->facts.last_reader[v] == p->npiece) where = TR_PLACE_RING_DIN;
    grad[v] = (tr_place){where, where == TR_PLACE_IW ? take_slot(p, where, v) : 0};
  }
  int n = gradient_lives(p, grad, item);
  qsort(item, (size_t)n, sizeof *item, compare_birth);
  size_t size = place_lives(item, n);
  if (size > p->plan->area[TR_PLACE_TEMPORARY]) p->plan->area[TR_PLACE_TEMPORARY] = size;
  for (int i = 0; i < n; i++) grad[item[i].value].offset = item[i].offset;
  for (int v = 0; v < p->nvalue; v++)
    if (grad[v].where == TR_PLACE_TEMPORARY) grad[v] = grad[representative(p, v)];
}

tr_status tr_value_plan_make(const tr_model *model, const tr_value_options *options, tr_value_plan *out) {
  planner p = {.model = model,
               .options = options,
               .nvalue = tr_model_values(model),
               .npiece = tr_model_pieces(model),
               .plan = out};
  size_t n = (size_t)p.nvalue;
  TR_TRY(tr_value_facts_make(model, &p.facts));
  *out = (tr_value_plan){.value = calloc(n, sizeof *out->value),
                         .grad = {calloc(n, sizeof **out->grad), calloc(n, sizeof **out->grad)},
                         .again = calloc((size_t)p.npiece, 1),
                         .size = calloc((size_t)tr_model_ranges(model), sizeof *out->size)};
  int *numbers = malloc(3 * n * sizeof *numbers);
  life *item = malloc(n * sizeof *item);
  tr_status status = TR_OK;
  if (!out->value || !out->grad[0] || !out->grad[1] || !out->again || !out->size || !numbers || !item) {
    tr_value_plan_free(out);
    status = tr_error(TR_ERR_MEMORY, "no memory to plan %zu values", n);
  } else {
    p.alias = numbers;
    p.guest = numbers + n;
    p.item = numbers + 2 * n;
    place_values(&p, item);
    if (options->whole) place_gradients(&p, 0, item);
    if (options->split) place_gradients(&p, 1, item);
  }
  free(numbers);
  free(item);
  tr_value_facts_free(&p.facts);
  return status;
}

void tr_value_plan_free(tr_value_plan *plan) {
  free(plan->value);
  free(plan->grad[0]);
  free(plan->grad[1]);
  free(plan->again);
  free(plan->size);
  *plan = (tr_value_plan){0};
}
