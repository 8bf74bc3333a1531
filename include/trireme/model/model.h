// SPDX-License-Identifier: MIT
// Models as lists of pieces.
//
// A model is a list of *values* (what flows: one row per token, `width` features), *parameters* grouped into *units*
// (what is gathered, reduced and updated together: a layer, usually), and *pieces* in execution order. A piece is one
// part of a layer (norm, projection, attention, ...) with ports that name the values it reads and writes, the
// parameters it uses, and three functions: forward, backward for the inputs, backward for the weights. Everything
// else follows from the ports: which buffers live how long, what a backward pass may overwrite or must add to, where
// a collective has to go when an axis splits the work.
//
// A model is built once (create, add..., finish), is immutable afterwards, belongs to its creator, and knows
// neither ranks nor schedules. GPT-2 is built through this same interface (gpt2.h); users add pieces of their own
// in the same way.
//
// Lifetimes. A value needed after its forward pass says so at a port: TR_USE_I (read by backward_input), TR_USE_W
// (read by backward_weight). Its class is then F-I or F-W; else it is scratch. The gradient of a value is scratch
// within a whole backward pass, and of class I-W when the pass is split and a producing port says TR_USE_DW.
#ifndef TRIREME_MODEL_MODEL_H
#define TRIREME_MODEL_MODEL_H

#include "trireme/base/status.h"
#include "trireme/base/text.h"
#include "trireme/comm/comm.h"
#include "trireme/kernel/kernel.h"
#include "trireme/mesh/mesh.h"
#include "trireme/model/role.h"
#include "trireme/tensor/shape.h"
#include <stdint.h>

typedef struct tr_model tr_model;
typedef struct tr_piece tr_piece;

enum { TR_PIECE_PORTS = 4, TR_PIECE_PARAMS = 6 };

// The rows of one micro-batch (what the data module fills): see data.h. Not owned.
typedef struct tr_model_input {
  int64_t rows;
  int nseq;
  const int32_t *token, *target, *position; // [rows]; target < 0: not counted
  const int64_t *sample;                    // [rows] global sample index
  const int32_t *start;                     // [nseq + 1]
  int64_t valid;                            // rows with target >= 0
} tr_model_input;

// Keys and values of one attention piece kept while generating one sequence.
typedef struct tr_kv_cache {
  void *k, *v;
  int64_t length, capacity;
  const int32_t *position;
} tr_kv_cache;

// Everything a piece function gets. in/out follow the piece's ports. Gradient pointers are NULL where none is wanted. The wide
// type is tr_wide(type): f64 in a run in f64, else f32.
typedef struct tr_piece_call {
  const tr_piece *piece;
  const tr_compute *compute;
  const tr_model_input *input;
  tr_dtype type;                                    // of activations and weights
  void *in[TR_PIECE_PORTS], *out[TR_PIECE_PORTS];   // forward values; only those whose use says so in backward
  void *din[TR_PIECE_PORTS], *dout[TR_PIECE_PORTS]; // gradients
  int add_in[TR_PIECE_PORTS];                       // din[i] already holds a contribution: add to it
  const void *param[TR_PIECE_PARAMS];
  const void *packed[TR_PIECE_PARAMS][TR_PACKS]; // of those that the piece declares (tr_piece.pack); NULL: not packed
  void *dparam[TR_PIECE_PARAMS];                 // wide type
  int add_param[TR_PIECE_PARAMS];
  double scale;  // 1 / valid tokens of the whole step: what the loss is multiplied by
  uint64_t seed; // of the run; dropout keys come from (seed, purpose, step)
  int64_t step;
  int training;       // dropout on
  tr_kv_cache *cache; // generating: this piece's cache; NULL otherwise
  float *logits;      // generating: the head writes the last row's logits here; NULL otherwise
  int64_t length;     // generating: tokens of the sequence once all appended ones are through; 0: as positions say
  tr_group *peers;    // pieces that exchange: the ranks that do so with each other; NULL: this rank alone
  tr_request *
      *request; // pieces that exchange: where what has been started is to be told; NULL: block until it has ended
} tr_piece_call;

// The functions of a kind of piece. backward_input of the last piece (the loss) starts the backward pass.
// backward_weight is NULL for pieces without parameters and for those that give all gradients in backward_input.
typedef struct tr_piece_ops {
  const char *kind; // "linear"
  int cheap; // little work for what it writes (norms, attention, activations): recompute=selective may repeat forward,
             // which must then, as with recompute=full, write the same bits
  // The piece communicates: forward and backward_input start one operation on call->peers, into call->request, and do nothing
  // else but what comes before it; *request NULL: there was nothing to wait for. What it sends and receives are its values and
  // their gradients, so their size is known beforehand. All peers run the same pieces in the same order. In an overlapped pair
  // of passes the other pass computes while the operation is under way. It has no parameters, and sets its gradients (TR_SET_GRAD).
  int exchanges;
  tr_status (*forward)(const tr_piece_call *call);
  tr_status (*backward_input)(const tr_piece_call *call);
  tr_status (*backward_weight)(const tr_piece_call *call);
  // Scratch memory that the kernels of this table will take for at most `rows` rows; NULL: none.
  size_t (*scratch)(const tr_piece *piece, const tr_kernels *kernels, tr_dtype type, int64_t rows, int nthread);
  // Multiply-add work of one forward pass over a full sequence of `sequence` tokens, in FLOPs per token; NULL: 0.
  double (*flops)(const tr_piece *piece, int64_t sequence);
} tr_piece_ops;

enum { TR_USE_I = 1, TR_USE_W = 2, TR_USE_DW = 4, TR_ALIAS_GRAD = 8, TR_SET_GRAD = 16 };
// TR_ALIAS_GRAD on an input: its gradient is the gradient of out[0] unchanged, so both may share memory (the piece
// copies, or adds, when din != dout). TR_SET_GRAD on an input: the piece cannot add to this gradient, so no later
// piece may read the value.

typedef struct tr_port {
  int value; // from tr_model_add_value
  unsigned use;
  tr_placement tp, cp; // along those axes when they split the model; replicate by default
} tr_port;

struct tr_piece {
  const char *name; // "h.0.attn.qkv"; copied by the model
  const tr_piece_ops *ops;
  int unit; // the unit its parameters belong to, -1 when it has none (shared parameters keep their own unit)
  int nin, nout, nparam;
  tr_port in[TR_PIECE_PORTS], out[TR_PIECE_PORTS];
  int param[TR_PIECE_PARAMS];
  unsigned char pack[TR_PIECE_PARAMS]; // bit 1 << tr_pack: this piece's products read the parameter so
  const void *config;                  // piece's own numbers; copied by the model when config_nbyte > 0
  size_t config_nbyte;
  int index; // set by the model
};

typedef enum tr_value_kind {
  TR_VALUE_ACTIVATION, // `type`, has a gradient
  TR_VALUE_STATE,      // wide type, no gradient: statistics kept for backward, losses
} tr_value_kind;

typedef struct tr_value {
  const char *name;
  tr_value_kind kind;
  int64_t width;
} tr_value;

typedef enum tr_init_kind { TR_INIT_ZEROS, TR_INIT_ONES, TR_INIT_NORMAL } tr_init_kind;

typedef struct tr_param {
  const char *name; // as in Hugging Face files
  tr_shape shape;   // in memory: matrices are [out, in]
  tr_param_role role;
  tr_init_kind init;
  double std;     // TR_INIT_NORMAL
  int transposed; // stored as [in, out] in files (GPT-2's Conv1D)
  int unit;
} tr_param;

// ---- building

tr_status tr_model_create(const char *name, tr_model **out);
void tr_model_destroy(tr_model *model);                                   // NULL allowed
int tr_model_add_unit(tr_model *model, const char *name);                 // returns its number
int tr_model_add_param(tr_model *model, int unit, const tr_param *param); // name copied; returns its number
int tr_model_add_value(tr_model *model, const char *name, tr_value_kind kind, int64_t width);
int tr_model_add_piece(tr_model *model, const tr_piece *piece);
void tr_model_set_limits(tr_model *model, int64_t vocab, int64_t positions); // see tr_model_vocab, tr_model_positions
// Check and freeze: every value has one producer before its consumers, every activation a consumer, no piece reads a
// value twice, every parameter has a use, the last piece writes the loss (a TR_VALUE_STATE of width 1). Failures of
// earlier add calls (returning -1) are reported here too. TR_ERR_CONFIG names the value, parameter or piece.
tr_status tr_model_finish(tr_model *model);

// ---- reading (after finish)

const char *tr_model_name(const tr_model *model);
int tr_model_units(const tr_model *model);
const char *tr_model_unit_name(const tr_model *model, int unit);
int tr_model_params(const tr_model *model);
const tr_param *tr_model_param(const tr_model *model, int i);
int tr_model_values(const tr_model *model);
const tr_value *tr_model_value(const tr_model *model, int i);
int tr_model_pieces(const tr_model *model);
const tr_piece *tr_model_piece(const tr_model *model, int i);
int tr_model_loss_value(const tr_model *model); // -1: a part without the head
int64_t tr_model_count(const tr_model *model);  // elements of all parameters
// FLOPs per token of a forward and a backward pass (3 x forward) over sequences of this length.
double tr_model_flops(const tr_model *model, int64_t sequence);
int64_t tr_model_vocab(const tr_model *model);     // largest token + 1 it accepts; set by the builder
int64_t tr_model_positions(const tr_model *model); // longest sequence; INT64_MAX: any

// Whether a backward call is the first to contribute to a gradient, or must add to what is there. Static facts of the
// list of pieces.
int tr_model_grad_is_first(const tr_model *model, int piece, int in);      // no later piece reads this value
int tr_model_param_grad_is_first(const tr_model *model, int piece, int k); // no later piece uses this parameter
int tr_model_exchanges(const tr_model *model);                             // whether a piece of it does
unsigned tr_model_param_pack(const tr_model *model, int param);            // union over the pieces of tr_piece.pack
// Lowest piece that contributes to a gradient of this unit: after its backward the unit's gradient is complete.
int tr_model_unit_last_piece(const tr_model *model, int unit);

// A rank's part of a model that is split by layers: pieces [range[2 c], range[2 c + 1]) for c = 0 .. nrange - 1, ascending and
// disjoint, as a model of its own, with the parameters and units that these pieces use, under the same names. A value that
// enters a range from before it has no producer in the part, one that leaves it no reader: `boundary` tells them. Exactly one
// activation may cross into a range and out of it, which no piece in front of the crossing reads: else TR_ERR_PLAN names the
// piece, and the nearest places where the model can be cut. tr_piece.index stays that of the whole model (dropout keys depend
// on it). A unit that parts share (tied embeddings) has in each the parameters that its pieces use; all of them where its
// first piece is. The part keeps pointers into the whole, which outlives it.
typedef struct tr_model_boundary {
  int in, out; // values of the part; -1: the range starts or ends the model
} tr_model_boundary;
tr_status tr_model_part(const tr_model *whole, const int *range, int nrange, tr_model_boundary *boundary,
                        tr_model **out);
// Ranges of a part, in its own numbers of pieces: one follows the other. A whole model is one range without a boundary.
int tr_model_ranges(const tr_model *model);
void tr_model_range(const tr_model *model, int range, int *begin, int *end, tr_model_boundary *boundary);
// Pieces before which the model can be cut into stages, ascending: where exactly one activation crosses and a unit ends.
// Returns how many, at most `capacity` are written.
int tr_model_cuts(const tr_model *model, int *piece, int capacity);
// The model that a part was cut from, and the parameter of it that parameter i of the part is; of a whole model itself and i.
const tr_model *tr_model_whole(const tr_model *model);
int tr_model_whole_param(const tr_model *model, int i);

// Initial values of a parameter as `type`, from (seed, name, flat index): the same for every layout of ranks.
void tr_param_init(const tr_param *param, uint64_t seed, float *out, int64_t first, int64_t count);

#endif
