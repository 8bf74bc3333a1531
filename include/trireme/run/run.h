// SPDX-License-Identifier: MIT
// The executor: runs the step program of one rank.
//
// tr_run_create lays out all memory (weights, gradients, optimizer state, activation slots, scratch) from the model,
// its layout and the program, and binds every symbolic slot to an address; a step then allocates nothing. Gradients
// lie in the rank's shared arena, so that sums over ranks copy nothing. Compute operations run in list order;
// communication operations start as soon as what they wait for is done and advance between pieces.
//
// With `zero` 1 and several ranks in dp, weights, master weights, optimizer state and packed weights exist once per machine, in
// the arena of its first rank of dp, for those of its ranks that share it (`share`). Each sharer owns a part of every bucket of
// the program (tr_layout_own): it sums that part of all ranks' gradients, with its squares, updates it, and writes the new
// weights where all sharers read them. So nothing is summed, updated or kept twice on a machine, and the bits are those of
// `zero` 0. Where dp has ranks on other machines too, gradients are summed over all of dp, then each sharer goes on with its part.
//
// A rank of a pipeline runs its part of the model (tr_model_part) by its own program. What crosses between stages is written
// and read in rings, which lie in the shared arena and travel from slot to slot. All ranks of the pipeline have all
// micro-batches of their place in dp: the first stage reads tokens, the last one targets, and everybody counts. Loss, norm and
// the decision to skip are known to all. Bits do not depend on who has which stage, as long as no parameter is shared and
// weight gradients are added in ascending order of micro-batches.
//
// Life: create, then init_weights or load into the buffers + publish, then steps and evaluations, then destroy. Create,
// init_weights, publish and step are collective over dp and pp.
#ifndef TRIREME_RUN_RUN_H
#define TRIREME_RUN_RUN_H

#include "trireme/comm/comm.h"
#include "trireme/kernel/kernel.h"
#include "trireme/model/model.h"
#include "trireme/optim/optim.h"
#include "trireme/shard/layout.h"
#include "trireme/step/program.h"

typedef struct tr_run tr_run;

// Told about operations and pieces as they happen: tracing, profiles, fault and delay injection. Any function may be
// NULL. All calls come from the thread that runs the step. A communication operation begins when it is started and ends
// when its result is here; several may be open at once. piece_* surround one call of a piece's functions within `op`.
typedef struct tr_run_observer {
  void (*op_begin)(void *user, int64_t step, uint32_t index, const tr_op *op);
  void (*op_end)(void *user, int64_t step, uint32_t index, const tr_op *op);
  void (*piece_begin)(void *user, int piece, const tr_op *op, const tr_model_input *input);
  void (*piece_end)(void *user, int piece, const tr_op *op, const tr_model_input *input);
  void *user;
} tr_run_observer;
enum { TR_RUN_OBSERVERS = 4 };

typedef struct tr_run_options {
  size_t size;               // of this struct, set by init
  const tr_model *model;     // in a pipeline the rank's part
  const tr_layout *layout;   // of that
  const tr_program *program; // NULL: evaluation only, no gradients and no optimizer state
  const tr_kernels *kernels;
  tr_pool *pool;
  tr_comm *comm;   // may be NULL when there is one rank
  tr_group *dp;    // ranks with other data; NULL: one
  tr_group *grads; // ranks whose gradients are summed, where a stage has two copies: dp x copies; NULL: dp
  tr_group *share; // with `zero` 1: of those, ranks that have the state together, on one machine; NULL: all of them
  tr_group *pp;    // ranks of the pipeline, in its order; NULL: one
  tr_group *tied;  // ranks with a copy of a parameter that this rank shares with another stage; NULL: it shares none
  tr_group
      *peers; // ranks that pieces exchange with, for nothing else; NULL: this rank alone, where an exchange is a copy
  tr_dtype type;          // of activations and working weights
  int64_t rows;           // most rows in a micro-batch
  int split_backward;     // as in the program
  tr_grad_sync grad_sync; // as in the program
  tr_recompute recompute; // whose ranges are in the program
  tr_optim optim;
  int zero; // as in the program
  int pack; // keep packed weights, where the kernel table and the pieces gain by them
  tr_dtype
      grad_wire; // type in which gradients travel: f32 or, with zero 1, bf16; sums over several machines travel so too
  tr_dtype stage_wire; // in which activations and their gradients travel between stages: as computed (f32), or bf16
  double clip;         // largest gradient norm, <= 0: no clipping
  uint64_t seed;       // dropout
  int nobserver;
  tr_run_observer observer[TR_RUN_OBSERVERS];
} tr_run_options;
void tr_run_options_init(tr_run_options *options);

// What lowering needs to know of a model, or of a rank's part of one. `layout` outlives it.
typedef struct tr_run_step_model {
  tr_step_model model; // of the lists below
  int *unit_last_piece, *unit_chunk_piece, *tied, *comm_piece;
  int *chunk_piece; // [2 ranges] for tr_program_build_pipeline
  tr_step_use *use;
} tr_run_step_model;
tr_status tr_run_step_model_make(const tr_model *model, const tr_layout *layout, tr_run_step_model *out);
void tr_run_step_model_free(tr_run_step_model *model);

// Bytes per rank, by what they are for. Exactly what tr_run_create takes.
typedef struct tr_run_memory {
  size_t weights, packed, master, state, gradients, wire, activations, rings, recompute, temporaries, kernel_scratch;
  size_t tables;        // small lists beside the rest
  size_t private_total; // all but what lies in the shared arena
  size_t shared_total;  // in each rank's arena: what travels, and small sums
  size_t host_total;    // once, in the arena of the first sharer: weights, master and state with `zero` 1
} tr_run_memory;
// Bytes of the packed form of a parameter; 0 where it has none: nobody gains by it, or `pack` is off.
size_t tr_run_packed_bytes(const tr_run_options *options, int param, tr_pack use);
// `ngrad`: ranks whose gradients are summed; `nshare`: those of them on one machine, which share the state. Groups and the
// communicator may be missing still.
tr_status tr_run_memory_predict(const tr_run_options *options, int nthread, int ngrad, int nshare,
                                tr_run_memory *out);

// Collective over dp and pp. All that `options` points to is kept, not owned. TR_ERR_MEMORY says what is missing; the job's error.
tr_status tr_run_create(const tr_run_options *options, tr_run **out);
void tr_run_destroy(tr_run *run); // NULL allowed

tr_status tr_run_init_weights(tr_run *run, uint64_t seed); // collective; from (seed, name, index), then published
// Collective. After writing master weights (or weights, where they are the same): refresh what is made from them.
tr_status tr_run_publish(tr_run *run);
// Who writes one copy of the state: *index of *count ranks that share it; 0 of 1 where each rank has its own.
void tr_run_sharers(const tr_run *run, int *index, int *count);
// Buffers in the layout's order, owned by the run, perhaps shared (tr_run_sharers). The master weights are f32, or f64 when
// `type` is; where `type` has that width already they are the working weights themselves.
void *tr_run_master(tr_run *run);
void *tr_run_weights(tr_run *run); // type
// Wide type; after a step: the sum over ranks, not clipped; with `zero` 1 only in the parts that this rank owns.
void *tr_run_gradients(tr_run *run);
float *tr_run_state(tr_run *run, int i); // optimizer state i, NULL if it has none
const tr_layout *tr_run_layout(const tr_run *run);
// Updates done so far: the number that AdamW's bias correction counts. A skipped step is none. Part of what a checkpoint
// holds; set after loading one.
int64_t tr_run_updates(const tr_run *run);
void tr_run_set_updates(tr_run *run, int64_t updates);

typedef struct tr_step_result {
  double loss;          // mean over the step's valid tokens, all ranks
  double norm;          // global gradient norm before clipping
  double clip;          // factor applied
  int64_t tokens;       // valid tokens, all ranks
  int skipped;          // the norm was not finite: nothing was updated
  int64_t comm_wait_ns; // time this rank waited for sums
} tr_step_result;

// Collective over dp and pp. One step on this rank's micro-batches input[0 .. microbatches - 1] (rows may be 0);
// `step` from 0 numbers updates. A step without any valid token updates nothing (skipped). A norm that is not
// finite is reported, not repaired.
tr_status tr_run_step(tr_run *run, int64_t step, double lr, const tr_model_input *input, tr_step_result *result);

// Forward only, collective over pp: the loss of each sequence of the input, summed over its valid rows in f64.
tr_status tr_run_eval(tr_run *run, const tr_model_input *input, double *loss_of_sequence);
// The same for n inputs, of all sequences behind each other; in a pipeline they follow each other through the stages.
tr_status tr_run_eval_all(tr_run *run, const tr_model_input *input, int n, double *loss_of_sequence);

#endif
