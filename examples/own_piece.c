// SPDX-License-Identifier: MIT
// A piece of your own: an activation that the library does not have, from its formula to data-parallel runs.
//
// The library's GPT-2 uses GELU. Here we write squared ReLU, y = max(x, 0)^2 (So et al., "Primer", 2021), as
// a piece, put it into a small network that predicts the next byte of a text, prove its gradient, and train
// it on two ranks, all with public headers. 1 piece, 2 model, 3 data, 4 proof, 5 training.
#include "trireme/comm/launch.h"
#include "trireme/model/piece.h"
#include "trireme/run/run.h"
#include <math.h>
#include <stdio.h>

enum { WIDTH = 32, HIDDEN = 4 * WIDTH, SEQUENCE = 32, RANKS = 2, PER_RANK = 4, ROWS = PER_RANK * SEQUENCE };
enum { STEPS = 300, UNITS = 2 };

// ==== 1. The piece: forward, backward for its input, and a declaration of its ports.

// Elements as double, whatever the type of the run is: f64 for the proof below, f32 (or bf16) for training.
static double get(tr_dtype type, const void *data, size_t i) {
  return type == TR_F64 ? ((const double *)data)[i] : (double)tr_load(type, data, i);
}
static void put(tr_dtype type, void *data, size_t i, double value) {
  if (type == TR_F64)
    ((double *)data)[i] = value;
  else
    tr_store(type, data, i, (float)value);
}

// The piece's own numbers, here its width, are copied by the model and come back with every call.
static size_t elements(const tr_piece_call *c) {
  return (size_t)(c->input->rows * *(const int64_t *)c->piece->config);
}

static tr_status relu2_forward(const tr_piece_call *c) {
  for (size_t i = 0; i < elements(c); i++) {
    double x = fmax(get(c->type, c->in[0], i), 0);
    put(c->type, c->out[0], i, x * x);
  }
  return TR_OK;
}

// dx = dy * 2 max(x, 0). Two things to know: in[0] is here only because the port below says TR_USE_I; and
// when add_in is set, another consumer of x has already left its share in din[0], so ours is added to it.
static tr_status relu2_backward(const tr_piece_call *c) {
  for (size_t i = 0; i < elements(c); i++) {
    double dx = get(c->type, c->dout[0], i) * 2 * fmax(get(c->type, c->in[0], i), 0);
    put(c->type, c->din[0], i, c->add_in[0] ? dx + get(c->type, c->din[0], i) : dx);
  }
  return TR_OK;
}

// No parameters, so no backward_weight; no kernels that need scratch memory, so no scratch function.
static const tr_piece_ops relu2_ops = {.kind = "relu2", .forward = relu2_forward, .backward_input = relu2_backward};

// The ports say what is read and written, and what backward will need. From that the library decides which
// buffers live how long, and what may share memory.
static int add_relu2(tr_model *model, const char *name, int x, int y) {
  int64_t width = tr_model_value(model, x)->width;
  tr_piece piece = {.name = name, .ops = &relu2_ops, .unit = -1, .nin = 1, .nout = 1};
  piece.in[0] = (tr_port){.value = x, .use = TR_USE_I};
  piece.out[0] = (tr_port){.value = y};
  piece.config = &width, piece.config_nbyte = sizeof width;
  return tr_model_add_piece(model, &piece);
}

// ==== 2. The model: values (what flows), parameters (in units), pieces (what happens), in order of execution.

static int value(tr_model *m, const char *name, int64_t width) {
  return tr_model_add_value(m, name, TR_VALUE_ACTIVATION, width);
}

static int matrix(tr_model *m, int unit, const char *name, int64_t rows, int64_t columns) {
  tr_param p = {.name = name, .shape = {2, {rows, columns}}, .init = TR_INIT_NORMAL, .std = 0.05};
  return tr_model_add_param(m, unit, &p);
}

static int linear(tr_model *m, int unit, const char *name, int x, int64_t nin, int64_t nout) {
  int weight = matrix(m, unit, name, nout, nin), y = value(m, name, nout);
  tr_piece_linear(m, name, weight, -1, x, y, 0);
  return y;
}

static int norm(tr_model *m, int unit, int x) {
  tr_param gamma = {.name = "gamma", .shape = {1, {WIDTH}}, .role = TR_ROLE_NORM, .init = TR_INIT_ONES};
  tr_param beta = {.name = "beta", .shape = {1, {WIDTH}}, .role = TR_ROLE_NORM, .init = TR_INIT_ZEROS};
  int g = tr_model_add_param(m, unit, &gamma), b = tr_model_add_param(m, unit, &beta);
  int y = value(m, "norm", WIDTH), mean = tr_model_add_value(m, "mean", TR_VALUE_STATE, 1);
  int rstd = tr_model_add_value(m, "rstd", TR_VALUE_STATE, 1);
  tr_piece_layernorm(m, "norm", g, b, 1e-5, x, y, mean, rstd);
  return y;
}

static tr_status build_model(tr_model **out) {
  tr_model *m;
  TR_TRY(tr_model_create("relu2-network", &m));
  tr_model_set_limits(m, 256, SEQUENCE); // tokens are bytes
  int first = tr_model_add_unit(m, "embedding"), second = tr_model_add_unit(m, "layer");
  int x = value(m, "x", WIDTH), activated = value(m, "activated", HIDDEN), sum = value(m, "sum", WIDTH);
  int wte = matrix(m, first, "wte", 256, WIDTH), wpe = matrix(m, first, "wpe", SEQUENCE, WIDTH);
  tr_piece_embedding(m, "embedding", wte, wpe, 0, x);
  int up = linear(m, second, "up", x, WIDTH, HIDDEN);
  add_relu2(m, "activation", up, activated); // ours, among the others
  int down = linear(m, second, "down", activated, HIDDEN, WIDTH);
  tr_piece_residual(m, "residual", 0, x, down, sum);
  // The head shares the embedding's weights. Their gradient comes from two pieces, x's from two as well: the
  // library knows from the ports who writes first and who adds.
  int y = norm(m, second, sum), loss = tr_model_add_value(m, "loss", TR_VALUE_STATE, 1);
  tr_piece_head_loss(m, "head", wte, y, loss);
  tr_status status = tr_model_finish(m); // whatever went wrong above is reported here
  if (status < 0) return tr_model_destroy(m), status;
  *out = m;
  return TR_OK;
}

// ==== 3. The data: windows of a text; window g is the same on every rank.

static const char text[] =
    "the rowers of a trireme sit in three banks, one above the other. the upper bank sees the water and keeps the "
    "time; the middle bank follows the upper; the lower bank follows the middle. when all three pull at once the "
    "ship flies, and when one of them is late the oars meet and the ship stands still. ";

typedef struct batch {
  int32_t token[ROWS], target[ROWS], position[ROWS], start[PER_RANK + 1];
  int64_t sample[ROWS];
} batch;

static tr_model_input fill(batch *b, int64_t first) {
  for (int r = 0; r < ROWS; r++) {
    int64_t g = first + r / SEQUENCE, at = g * 11 % (int64_t)(sizeof text - SEQUENCE - 2) + r % SEQUENCE;
    b->token[r] = (unsigned char)text[at];
    b->target[r] = (unsigned char)text[at + 1]; // each byte predicts the next
    b->position[r] = r % SEQUENCE;
    b->sample[r] = g;
  }
  for (int s = 0; s <= PER_RANK; s++) b->start[s] = s * SEQUENCE;
  return (tr_model_input){ROWS, PER_RANK, b->token, b->target, b->position, b->sample, b->start, ROWS};
}

// ==== 4. The proof: the backward pass against finite differences, in f64, where 1e-6 is a lot.

typedef struct job {
  tr_model *model;
  tr_layout layout;
  tr_program alone, together; // the step of one rank, and of each of RANKS
  double worst, first, last;  // what came out
} job;

// One step: forward, backward, sum over ranks, update.
static tr_status build_program(const job *j, int ranks, tr_program *out) {
  int last[UNITS]; // when backward has passed this piece, the unit's gradient is complete and can travel
  for (int i = 0; i < UNITS; i++) last[i] = tr_model_unit_last_piece(j->model, i);
  tr_step_model facts = {.npiece = tr_model_pieces(j->model),
                         .nunit = UNITS,
                         .unit_last_piece = last,
                         .unit_start = j->layout.unit_start};
  tr_step_options options = {.microbatches = 1, .dp = ranks, .grad_sync = TR_SYNC_LAST};
  return tr_program_build(&facts, &options, out);
}

// The reference kernels are slow and plain, and can compute in f64.
static tr_status open_run(const job *j, tr_comm *comm, tr_run **out) {
  tr_run_options o;
  tr_run_options_init(&o);
  o.model = j->model, o.layout = &j->layout, o.rows = ROWS;
  o.program = comm ? &j->together : &j->alone;
  o.kernels = comm ? tr_kernels_cpu() : tr_kernels_reference(), o.type = comm ? TR_F32 : TR_F64;
  o.comm = comm, o.dp = comm ? tr_comm_world(comm) : NULL;
  return tr_run_create(&o, out);
}

static tr_status mean_loss(tr_run *run, const tr_model_input *input, double *out) {
  double sequence[PER_RANK];
  TR_TRY(tr_run_eval(run, input, sequence));
  *out = 0;
  for (int s = 0; s < PER_RANK; s++) *out += sequence[s] / (double)input->valid;
  return TR_OK;
}

// (loss(w + h) - loss(w - h)) / 2h for some weights of every parameter. An f64 step updates nothing.
static tr_status compare(tr_run *run, job *j) {
  batch b;
  tr_model_input input = fill(&b, 0);
  tr_step_result result;
  double *weight = tr_run_master(run), *gradient = tr_run_gradients(run), h = 1e-5, above, below;
  tr_run_init_weights(run, 7);
  TR_TRY(tr_run_step(run, 0, 0, &input, &result));
  for (int k = 0; k < 8 * tr_model_params(j->model); k++) {
    int64_t i = j->layout.param_offset[k / 8] + (k % 8 * 2477 + 101) % j->layout.param_count[k / 8];
    double kept = weight[i];
    weight[i] = kept + h;
    TR_TRY(mean_loss(run, &input, &above));
    weight[i] = kept - h;
    TR_TRY(mean_loss(run, &input, &below));
    weight[i] = kept;
    double numeric = (above - below) / (2 * h);
    j->worst = fmax(j->worst, fabs(numeric - gradient[i]) / (1e-3 + fabs(numeric)));
  }
  printf("gradient check: largest relative error %.1e (at most 1e-5 is fine)\n", j->worst);
  return j->worst <= 1e-5 ? TR_OK : tr_error(TR_ERR_VERIFY, "the backward pass is wrong");
}

// ==== 5. The training: every rank runs the same program on its own samples.

static tr_status train(tr_run *run, job *j, int rank) {
  batch b;
  tr_step_result result;
  tr_run_init_weights(run, 1); // from (seed, name, index): equal on all ranks
  for (int64_t step = 0; step < STEPS; step++) {
    tr_model_input input = fill(&b, (step * RANKS + rank) * PER_RANK);
    TR_TRY(tr_run_step(run, step, 3e-3, &input, &result));
    if (rank != 0) continue; // result.loss is the mean over all ranks; one of them tells
    if (step == 0) j->first = result.loss;
    j->last = result.loss;
    if (step % 50 == 0 || step == STEPS - 1) printf("step %3d  loss %.4f\n", (int)step, result.loss);
  }
  return TR_OK;
}

// The life of a rank; with comm NULL, the proof.
static tr_status rank_main(tr_comm *comm, void *user) {
  job *j = user;
  tr_run *run;
  TR_TRY(open_run(j, comm, &run));
  tr_status status = comm ? train(run, j, tr_comm_rank(comm)) : compare(run, j);
  tr_run_destroy(run);
  return status;
}

int main(void) {
  job j = {0};
  tr_launch_options launch;
  tr_launch_options_init(&launch);
  launch.mode = TR_LAUNCH_THREADS, launch.nrank = RANKS; // threads share `j`; processes would not
  tr_status status = build_model(&j.model);
  if (status == TR_OK) status = tr_layout_build(j.model, &j.layout);
  if (status == TR_OK) status = build_program(&j, 1, &j.alone);
  if (status == TR_OK) status = build_program(&j, RANKS, &j.together);
  if (status == TR_OK) status = rank_main(NULL, &j);
  if (status == TR_OK) status = tr_launch(&launch, rank_main, &j, NULL);
  if (status == TR_OK && !(j.last < j.first / 2)) status = tr_error(TR_ERR_VERIFY, "the loss did not fall by half");
  if (status < 0) fprintf(stderr, "%s\n", tr_status_text());
  tr_program_destroy(&j.alone);
  tr_program_destroy(&j.together);
  if (j.model) tr_layout_destroy(&j.layout);
  tr_model_destroy(j.model);
  return status < 0 ? 1 : 0;
}
