// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves the memory plan of values by running random models on it with numbers: every cell of memory starts as
// garbage, pieces read and write only where the plan says, and each reads exactly what a rank with separate
// memory for everything would. Before each unit's backward pass the recompute area is garbage again, and only the pieces
// that the plan names run again. Parts of models, whose ranges get values and gradients from elsewhere, do the same.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/model/gpt2.h"
#include "trireme/step/values.h"
#include <math.h>
#include <stdlib.h>

enum { VALUES = 128, ROWS = 3 };

static tr_status nothing(const tr_piece_call *call) {
  (void)call;
  return TR_OK;
}
static const tr_piece_ops ops[2] = {
    {.kind = "test", .forward = nothing, .backward_input = nothing, .backward_weight = nothing},
    {.kind = "cheap", .cheap = 1, .forward = nothing, .backward_input = nothing, .backward_weight = nothing}};

// One memory of cells (one per TR_ARENA_ALIGN bytes) for each class of each range, and what every value and gradient should
// hold.
enum { RANGES = 4 };
typedef struct world {
  const tr_model *model;
  tr_value_plan plan;
  tr_value_facts facts;
  int split, recompute;
  double *cell[RANGES][TR_PLACE_CLASSES];
  double value[VALUES], grad[VALUES];
} world;

static uint32_t draw(uint64_t *random, uint32_t n) {
  *random = *random * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*random >> 33) % n;
}

// ---- random models

// Reads activations [low, high), those that nobody has read first.
static void random_ports(uint64_t *random, int *unread, int *nunread, int low, int high, int limit, tr_piece *piece) {
  int nin = 1 + (int)draw(random, limit < 3 ? (uint32_t)limit : 3);
  for (int k = 0; k < nin; k++) {
    int value, again = 0;
    if (*nunread > 0 && (*nunread > 2 || draw(random, 2)))
      value = unread[--*nunread];
    else
      value = low + (int)draw(random, (uint32_t)(high - low));
    for (int j = 0; j < piece->nin; j++) again |= piece->in[j].value == value;
    if (again) continue;
    for (int u = 0; u < *nunread; u++)
      if (unread[u] == value) unread[u] = unread[--*nunread];
    unsigned use = draw(random, 3) == 0 ? TR_USE_I : draw(random, 2) ? TR_USE_W : 0;
    if (draw(random, 2)) use |= TR_ALIAS_GRAD;
    piece->in[piece->nin++] = (tr_port){.value = value, .use = use};
  }
}

// Every few pieces a unit begins: with the piece that uses its only parameter.
static void random_unit(tr_model *model, uint64_t *random, int p, tr_piece *piece) {
  char name[32];
  if (p > 0 && draw(random, 4)) return;
  snprintf(name, sizeof name, "parameter.%d", p);
  tr_param param = {.name = name, .shape = {.ndim = 1, .dim = {1}}};
  piece->param[piece->nparam++] = tr_model_add_param(model, tr_model_add_unit(model, "unit"), &param);
}

// Activations are values 0 .. n - 1 in the order in which they are written; all of one width, so that any may share.
static tr_model *random_model(uint64_t seed) {
  uint64_t random = seed * 99 + 3;
  int n = 2 + (int)draw(&random, 24), unread[VALUES], nunread = 0;
  tr_model *model;
  assert_int_equal(tr_model_create("random", &model), TR_OK);
  for (int v = 0; v < n; v++) tr_model_add_value(model, "activation", TR_VALUE_ACTIVATION, 17);
  int loss = tr_model_add_value(model, "loss", TR_VALUE_STATE, 1);
  for (int p = 0; p <= n; p++) {
    tr_piece piece = {
        .name = "piece", .ops = &ops[draw(&random, 2)], .nout = 1, .out = {{.value = p == n ? loss : p}}};
    random_unit(model, &random, p, &piece);
    if (p > 0) random_ports(&random, unread, &nunread, 0, p, p, &piece);
    while (p == n && nunread > 0 && piece.nin < TR_PIECE_PORTS)
      piece.in[piece.nin++] = (tr_port){.value = unread[--nunread]};
    if (p == n)
      for (int k = 0; k < piece.nin; k++) piece.in[k].use &= ~(unsigned)TR_ALIAS_GRAD; // the loss has another width
    if (draw(&random, 3) == 0) piece.out[0].use |= TR_USE_DW;
    if (draw(&random, 4) == 0) piece.out[0].use |= TR_USE_I;
    if (draw(&random, 3) == 0) {
      int state = tr_model_add_value(model, "state", TR_VALUE_STATE, 2);
      piece.out[piece.nout++] = (tr_port){.value = state, .use = draw(&random, 2) ? TR_USE_I : 0};
    }
    tr_model_add_piece(model, &piece);
    if (p < n) unread[nunread++] = p;
  }
  if (tr_model_finish(model) == TR_OK) return model;
  tr_model_destroy(model); // too many values were never read: the caller draws again
  return NULL;
}

// Blocks of pieces that read only what their block has, from the one value that entered it to the one that leaves: units
// between which the model can be cut.
static tr_model *random_blocks(uint64_t seed) {
  uint64_t random = seed * 77 + 5;
  int nblock = 2 + (int)draw(&random, 4), unread[VALUES], p = 0, low = 0;
  tr_model *model;
  assert_int_equal(tr_model_create("blocks", &model), TR_OK);
  for (int b = 0; b < nblock; b++) {
    int n = 1 + (int)draw(&random, 4), nunread = 0;
    if (b > 0) unread[nunread++] = low = p - 1;
    for (int i = 0; i < n; i++, p++) {
      tr_piece piece = {.name = "piece", .ops = &ops[draw(&random, 2)], .nout = 1};
      piece.out[0] = (tr_port){.value = tr_model_add_value(model, "activation", TR_VALUE_ACTIVATION, 17)};
      char name[32];
      snprintf(name, sizeof name, "parameter.%d", p);
      tr_param param = {.name = name, .shape = {.ndim = 1, .dim = {1}}};
      if (i == 0) piece.param[piece.nparam++] = tr_model_add_param(model, tr_model_add_unit(model, "unit"), &param);
      if (p > low) random_ports(&random, unread, &nunread, low, p, p - low, &piece);
      while (i == n - 1 && nunread > 0 && piece.nin < TR_PIECE_PORTS)
        piece.in[piece.nin++] = (tr_port){.value = unread[--nunread], .use = draw(&random, 2) ? TR_ALIAS_GRAD : 0};
      if (draw(&random, 3) == 0) piece.out[0].use |= TR_USE_DW;
      if (draw(&random, 4) == 0) piece.out[0].use |= draw(&random, 2) ? TR_USE_I : TR_USE_W;
      tr_model_add_piece(model, &piece);
      unread[nunread++] = p;
    }
  }
  tr_piece last = {.name = "loss", .ops = &ops[0], .nin = 1, .in = {{.value = p - 1}}, .nout = 1};
  last.out[0].value = tr_model_add_value(model, "loss", TR_VALUE_STATE, 1);
  tr_model_add_piece(model, &last);
  if (tr_model_finish(model) == TR_OK) return model;
  tr_model_destroy(model);
  return NULL;
}

// ---- running on the plan

static size_t ncell(const world *w, int v) {
  const tr_value *value = tr_model_value(w->model, v);
  size_t nbyte = (size_t)(ROWS * value->width) * sizeof(float);
  return (nbyte + TR_ARENA_ALIGN - 1) / TR_ARENA_ALIGN;
}

// Areas are one for all ranges; a slot of a ring holds one of the random models' activations.
static size_t class_cells(const world *w, int range, int class) {
  if (class >= TR_PLACE_RING_IN) return (ROWS * 17 * sizeof(float) + TR_ARENA_ALIGN - 1) / TR_ARENA_ALIGN;
  return (w->plan.area[class] + w->plan.size[range][class]) / TR_ARENA_ALIGN;
}

static int owner(const world *w, int v, const tr_place *place) {
  return place->where == TR_PLACE_TEMPORARY || place->where == TR_PLACE_RECOMPUTE ? 0 : w->facts.range[v];
}

static double *cells(const world *w, int v, const tr_place *place) {
  assert_true(place->where != TR_PLACE_NONE && place->offset % TR_ARENA_ALIGN == 0);
  return w->cell[owner(w, v, place)][place->where] + place->offset / TR_ARENA_ALIGN;
}

static void write_cells(const world *w, int v, const tr_place *place, double number) {
  assert_true(place->offset / TR_ARENA_ALIGN + ncell(w, v) <= class_cells(w, owner(w, v, place), place->where));
  for (size_t i = 0; i < ncell(w, v); i++) cells(w, v, place)[i] = number;
}

static void expect_cells(const world *w, int v, const tr_place *place, double number) {
  for (size_t i = 0; i < ncell(w, v); i++)
    if (!(cells(w, v, place)[i] == number))
      fail_msg("'%s' (value %d) was overwritten: %g, not %g", tr_model_value(w->model, v)->name, v,
               cells(w, v, place)[i], number);
}

static void forward(world *w, int begin, int end, int again) {
  for (int p = begin; p < end; p++) {
    const tr_piece *piece = tr_model_piece(w->model, p);
    if (again && !w->plan.again[p]) continue;
    for (int k = 0; k < piece->nin; k++)
      expect_cells(w, piece->in[k].value, &w->plan.value[piece->in[k].value], w->value[piece->in[k].value]);
    for (int k = 0; k < piece->nout; k++) {
      int v = piece->out[k].value;
      w->value[v] = v + 1;
      write_cells(w, v, &w->plan.value[v], w->value[v]);
    }
    for (int k = 0; k < piece->nin; k++)
      expect_cells(w, piece->in[k].value, &w->plan.value[piece->in[k].value], w->value[piece->in[k].value]);
  }
}

// What the backward functions of `piece` for inputs (TR_USE_I) or weights (TR_USE_W) read of the forward pass.
static void expect_saved(const world *w, const tr_piece *piece, unsigned use) {
  for (int k = 0; k < piece->nin; k++)
    if (piece->in[k].use & use)
      expect_cells(w, piece->in[k].value, &w->plan.value[piece->in[k].value], w->value[piece->in[k].value]);
  for (int k = 0; k < piece->nout; k++)
    if (piece->out[k].use & use)
      expect_cells(w, piece->out[k].value, &w->plan.value[piece->out[k].value], w->value[piece->out[k].value]);
}

static int has_grad(const world *w, int v) { return tr_model_value(w->model, v)->kind == TR_VALUE_ACTIVATION; }

static void expect_out_grads(const world *w, const tr_piece *piece, unsigned use) {
  for (int k = 0; k < piece->nout; k++) {
    int v = piece->out[k].value;
    if (has_grad(w, v) && (use == 0 || piece->out[k].use & use))
      expect_cells(w, v, &w->plan.grad[w->split][v], w->grad[v]);
  }
}

static void backward_input(world *w, int p) {
  const tr_piece *piece = tr_model_piece(w->model, p);
  int out = piece->out[0].value;
  const double *shared = has_grad(w, out) ? cells(w, out, &w->plan.grad[w->split][out]) : NULL;
  expect_saved(w, piece, TR_USE_I);
  expect_out_grads(w, piece, 0);
  for (int k = piece->nin; k-- > 0;) { // as the residual does: first the ports that are only read
    int v = piece->in[k].value, first = tr_model_grad_is_first(w->model, p, k);
    int alias = (piece->in[k].use & TR_ALIAS_GRAD) != 0;
    double *din = cells(w, v, &w->plan.grad[w->split][v]);
    double part = alias ? w->grad[out] : 0.5 + p + 100 * k;
    if (!first) expect_cells(w, v, &w->plan.grad[w->split][v], w->grad[v]);
    w->grad[v] = first ? part : w->grad[v] + part;
    if (din == shared)
      assert_true(alias && first);
    else
      write_cells(w, v, &w->plan.grad[w->split][v], w->grad[v]);
  }
  for (int k = 0; k < piece->nin; k++)
    expect_cells(w, piece->in[k].value, &w->plan.grad[w->split][piece->in[k].value], w->grad[piece->in[k].value]);
}

static void backward_weight(world *w, int p) {
  const tr_piece *piece = tr_model_piece(w->model, p);
  expect_saved(w, piece, TR_USE_W);
  expect_out_grads(w, piece, TR_USE_DW);
}

static void spoil(const world *w, int range, int class) {
  for (size_t i = 0; i < class_cells(w, range, class); i++) w->cell[range][class][i] = NAN;
}

// Backward over the pieces of a range, for inputs and for weights as the arguments say, cut at units that are computed again.
static void backward(world *w, int range, int input, int weight) {
  tr_step_range again[VALUES];
  tr_model_boundary boundary;
  int n, begin, end;
  tr_model_range(w->model, range, &begin, &end, &boundary);
  assert_int_equal(tr_value_recompute_ranges(w->model, (tr_recompute)w->recompute, again, &n), TR_OK);
  for (int p = end; p-- > begin;) {
    while (n > 0 && again[n - 1].end - 1 > p) n--;
    if (n > 0 && p == again[n - 1].end - 1) {
      spoil(w, 0, TR_PLACE_RECOMPUTE);
      if (!input) spoil(w, range, TR_PLACE_FI);
      forward(w, again[n - 1].begin, again[n - 1].end, 1);
    }
    if (input) backward_input(w, p);
    if (weight) backward_weight(w, p);
  }
}

// What another stage would do: values enter at the begin of a range, and the gradient of what has left at its end.
static void run_range(world *w, int range, int backwards) {
  tr_model_boundary boundary;
  int begin, end;
  tr_model_range(w->model, range, &begin, &end, &boundary);
  if (!backwards) {
    if (boundary.in >= 0) write_cells(w, boundary.in, &w->plan.value[boundary.in], w->value[boundary.in] = 0.25);
    forward(w, begin, end, 0);
    if (boundary.out >= 0) expect_cells(w, boundary.out, &w->plan.value[boundary.out], w->value[boundary.out]);
    return;
  }
  if (boundary.out >= 0)
    write_cells(w, boundary.out, &w->plan.grad[w->split][boundary.out], w->grad[boundary.out] = 0.125);
  backward(w, range, 1, !w->split);
  if (boundary.in >= 0) expect_cells(w, boundary.in, &w->plan.grad[w->split][boundary.in], w->grad[boundary.in]);
  if (boundary.in >= 0) assert_int_equal(w->plan.grad[w->split][boundary.in].where, TR_PLACE_RING_DOUT);
  if (boundary.out >= 0) assert_int_equal(w->plan.grad[w->split][boundary.out].where, TR_PLACE_RING_DIN);
}

static void check_plan(const tr_model *model, int split, int recompute) {
  world w = {.model = model, .split = split, .recompute = recompute};
  tr_value_options options = {.type = TR_F32, .rows = ROWS, .whole = !split, .split = split, .recompute = recompute};
  int n = tr_model_ranges(model);
  assert_true(tr_model_values(model) <= VALUES && n <= RANGES);
  assert_int_equal(tr_value_plan_make(model, &options, &w.plan), TR_OK);
  assert_int_equal(tr_value_facts_make(model, &w.facts), TR_OK);
  for (int r = 0; r < n; r++)
    for (int class = TR_PLACE_FI; class < TR_PLACE_CLASSES; class ++) {
      w.cell[r][class] = malloc(sizeof(double) * (class_cells(&w, r, class) + 1));
      spoil(&w, r, class);
    }
  for (int r = 0; r < n; r++) run_range(&w, r, 0);
  for (int r = n; r-- > 0;) run_range(&w, r, 1);
  for (int r = n; split && r-- > 0;) backward(&w, r, 0, 1);
  for (int r = 0; r < n; r++)
    for (int class = TR_PLACE_FI; class < TR_PLACE_CLASSES; class ++) free(w.cell[r][class]);
  tr_value_facts_free(&w.facts);
  tr_value_plan_free(&w.plan);
}

static void random_models_read_what_was_written(void **state) {
  (void)state;
  int checked = 0;
  for (uint64_t seed = 0; seed < 4000; seed++) {
    tr_model *model = random_model(seed);
    if (!model) continue;
    for (int k = 0; k < 6; k++) check_plan(model, k % 2, k / 2);
    checked++;
    tr_model_destroy(model);
  }
  assert_true(checked > 1000);
}

// Every part of one or two ranges of a model that can be cut; two may follow each other directly.
static void parts_read_what_was_written(void **state) {
  (void)state;
  int checked = 0, held = 0;
  for (uint64_t seed = 0; seed < 600; seed++) {
    tr_model *model = random_blocks(seed), *part;
    int at[VALUES];
    if (!model) continue;
    int n = tr_model_cuts(model, at + 1, VALUES - 2) + 1;
    at[0] = 0;
    at[n] = tr_model_pieces(model);
    for (int i = 0; i < n * n; i++) {
      int range[4] = {at[i / n], at[i / n + 1], at[i % n], at[i % n + 1]}, nrange = 1 + (i / n < i % n);
      tr_model_boundary boundary[2];
      if (i / n > i % n) continue;
      assert_int_equal(tr_model_part(model, range, nrange, boundary, &part), TR_OK);
      for (int k = 0; k < 6; k++) check_plan(part, k % 2, k / 2);
      held +=
          boundary[0].out >= 0 && tr_model_piece(part, range[1] - range[0] - 1)->out[0].use & (TR_USE_I | TR_USE_W);
      checked++;
      tr_model_destroy(part);
    }
    tr_model_destroy(model);
  }
  assert_true(checked > 1000 && held > 100);
}

// Nothing is kept for the sake of selective recomputation.
static void selective_keeps_nothing_more(void **state) {
  (void)state;
  int fewer = 0;
  for (uint64_t seed = 0; seed < 4000; seed++) {
    tr_model *model = random_model(seed);
    tr_value_plan none, selective;
    if (!model) continue;
    tr_value_options options = {.type = TR_F32, .rows = ROWS, .whole = 1};
    assert_int_equal(tr_value_plan_make(model, &options, &none), TR_OK);
    options.recompute = TR_RECOMPUTE_SELECTIVE;
    assert_int_equal(tr_value_plan_make(model, &options, &selective), TR_OK);
    for (int v = 0; v < tr_model_values(model); v++) {
      int kept = selective.value[v].where == TR_PLACE_FI || selective.value[v].where == TR_PLACE_FW;
      assert_true(!kept || selective.value[v].where == none.value[v].where);
      fewer += !kept && (none.value[v].where == TR_PLACE_FI || none.value[v].where == TR_PLACE_FW);
    }
    tr_value_plan_free(&none);
    tr_value_plan_free(&selective);
    tr_model_destroy(model);
  }
  assert_true(fewer > 1000);
}

static tr_model *gpt2(double dropout) {
  tr_gpt2_config config;
  tr_model *model;
  tr_gpt2_config_init(&config);
  config.layers = 4;
  config.width = 24;
  config.heads = 2;
  config.dropout_residual = dropout;
  assert_int_equal(tr_gpt2_create(&config, &model), TR_OK);
  return model;
}

static void gpt2_reads_what_was_written(void **state) {
  (void)state;
  for (int k = 0; k < 12; k++) {
    tr_model *model = gpt2(k / 6 ? 0.1 : 0);
    check_plan(model, k % 2, k / 2 % 3);
    tr_model_destroy(model);
  }
}

// Per layer, temporaries of forward and gradients share one area that does not grow with depth.
static void temporaries_do_not_grow_with_depth(void **state) {
  (void)state;
  size_t size[2];
  tr_value_options options = {.type = TR_F32, .rows = 64, .whole = 1};
  for (int k = 0; k < 2; k++) {
    tr_gpt2_config config;
    tr_model *model;
    tr_value_plan plan;
    tr_gpt2_config_init(&config);
    config.layers = k ? 12 : 2;
    config.width = 24;
    config.heads = 2;
    assert_int_equal(tr_gpt2_create(&config, &model), TR_OK);
    assert_int_equal(tr_value_plan_make(model, &options, &plan), TR_OK);
    size[k] = plan.area[TR_PLACE_TEMPORARY];
    assert_int_equal(plan.size[0][TR_PLACE_IW], 0);
    tr_value_plan_free(&plan);
    tr_model_destroy(model);
  }
  assert_int_equal(size[0], size[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_models_read_what_was_written), cmocka_unit_test(parts_read_what_was_written),
      cmocka_unit_test(selective_keeps_nothing_more),        cmocka_unit_test(gpt2_reads_what_was_written),
      cmocka_unit_test(temporaries_do_not_grow_with_depth),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
