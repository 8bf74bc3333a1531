// SPDX-License-Identifier: MIT
// `trireme bench comm`: what its files share. The command plans points (an operation of one type, place and size), the ranks
// measure them one after the other, rank 0 prints rows as they come, and the command concludes: fits, curves, files.
//
// Results lie in memory that the launcher and all its ranks see. Where ranks are started by somebody else each has its own,
// and only rank 0's becomes `done`: whoever has results reports them.
#ifndef TRIREME_CLI_BENCH_COMM_INTERNAL_H
#define TRIREME_CLI_BENCH_COMM_INTERNAL_H

#include "cli/bench_internal.h"
#include "trireme/comm/fit.h"
#include "trireme/comm/launch.h"
#include "trireme/comm/probe.h"

typedef enum tr__comm_op {
  TR__OP_ALLREDUCE,
  TR__OP_REDUCE,
  TR__OP_REDUCE_SCATTER,
  TR__OP_REDUCE_SCATTER_V,
  TR__OP_ALLGATHER,
  TR__OP_ALLGATHER_V,
  TR__OP_ALLTOALL,
  TR__OP_ALLTOALL_V,
  TR__OP_BROADCAST,
  TR__OP_GATHER,
  TR__OP_SCATTER,
  TR__OP_SENDRECV,
  TR__OP_BARRIER,
  TR__OPS
} tr__comm_op;

typedef struct tr__comm_op_info {
  const char *name;
  int sliced;      // a rank's share is 1 / ranks of the bytes
  int reduces;     // sums or maxima come out
  int knows_in;    // in place
  int knows_out;   // out of place
  double bus_most; // bus bandwidth over algorithm bandwidth for many ranks: 2, 1 x (ranks - 1) / ranks; 0: exactly 1
} tr__comm_op_info;
extern const tr__comm_op_info tr__comm_ops[TR__OPS];
double tr__comm_bus_factor(tr__comm_op op, int nrank); // nccl-tests' definition

typedef struct tr__comm_case {
  tr__comm_op op;
  tr_dtype type;
  int in_place, is_private;
} tr__comm_case;

typedef struct tr__comm_point {
  tr__comm_case of;
  size_t nelem, nbyte; // of the whole operation: what nccl-tests calls its size
  // Results.
  int repeats;
  double median, least, p90; // seconds, of the slowest rank
  int is_staged;             // bytes went through a copy on the way
} tr__comm_point;

enum { TR__COMM_PLACES = 2 }; // of links: within a host, between hosts
typedef struct tr__comm_link {
  int first, second; // the pair that was measured; first -1: there is none
  size_t most;       // bytes of the largest message
  tr_fit fit;
  double spread; // median over least of the times of one size; the middle size's
  double adding; // bytes per second that the first adds to what it has
} tr__comm_link;

typedef struct tr__comm_results {
  int done, hosts;
  char engine[16];
  double peak; // FLOP/s of all ranks at once
  tr__comm_link link[TR__COMM_PLACES];
  tr_probe_verdict verdict; // --preflight
} tr__comm_results;

typedef struct tr__comm_job {
  const tr__bench_settings *settings;
  int nrank, cores; // cores: that the command may use; ranks are bound to fewer
  size_t most;      // bytes of the largest buffer
  int wants_links;
  int speaks; // this process tells what there is to tell: not one of many that others have started, but the first
  tr__comm_results *results; // this and what follows: memory that all see
  tr__comm_point *point;
  size_t npoint;
  double *small, *large; // --matrix: [nrank x nrank] seconds of one way
  char *path;            // and how each pair's messages travel: a letter of tr__comm_path_name
} tr__comm_job;

// ---- operations (bench_comm_ops.c)

// One rank's side of a point. `a` and `b` have room for job->most bytes each.
typedef struct tr__comm_work {
  tr_group *group;
  int rank, size;
  const tr__comm_point *point;
  tr_reduce_op reduce;
  char *a, *b;
  // Made by tr__comm_prepare.
  char *src, *dst;
  size_t *start; // [size + 1] of the operations with uneven counts
  char *values;  // a period of contributed values, again and again
  char *reduced; // and of what they come to
} tr__comm_work;

// How many elements, and bytes, an operation of about `nbyte` has: at least one element a rank.
void tr__comm_size(tr__comm_op op, tr_dtype type, int nrank, size_t nbyte, size_t *nelem, size_t *actual);
tr_status tr__comm_open_work(tr__comm_work *work);
void tr__comm_close_work(tr__comm_work *work);
void tr__comm_prepare(tr__comm_work *work);                       // for work->point
void tr__comm_rewrite(const tr__comm_work *work, int repetition); // what this rank contributes, by its owner
tr_status tr__comm_run(const tr__comm_work *work);
tr_status tr__comm_verify(const tr__comm_work *work, int repetition); // TR_ERR_VERIFY names the first wrong element

// ---- ranks (bench_comm_ranks.c): each is a tr_rank_main over a tr__comm_job

tr_status tr__comm_bench_rank(tr_comm *comm, void *job);
tr_status tr__comm_matrix_rank(tr_comm *comm, void *job);
tr_status tr__comm_preflight_rank(tr_comm *comm, void *job); // bench_comm_pairs.c
tr_status tr__comm_links(tr_comm *comm, const tr__comm_job *job, char *a, char *b);
// How `first` and `second` talk: 's' shared memory, 'c' copied, 'm' MPI, 't' TCP.
const char *tr__comm_path_name(char path);

// ---- reports

const char *tr__comm_case_name(const tr__comm_case *c, char *out, size_t nbyte); // "all-reduce, f32, in place, arena"
// Points from `first` on of the same case.
size_t tr__comm_case_length(const tr__comm_job *job, size_t first);
void tr__comm_print_head(const tr__comm_job *job);
void tr__comm_print_row(const tr__comm_job *job, size_t index);               // before the first of a case its head
void tr__comm_print_case(const tr__comm_job *job, size_t first, size_t n);    // after its last: conclusions and curve
tr_status tr__comm_report(const tr__comm_job *job, tr__bench_report *report); // rows and fits as JSON
tr_status tr__comm_write_links(const tr__comm_job *job, const char *path);
tr_status tr__comm_print_matrix(const tr__comm_job *job); // bench_comm_pairs.c; or as JSON

// ---- drawings (bench_comm_draw.c)

void tr__comm_draw_curve(const tr__comm_point *point, size_t n, tr_text *out); // for a terminal
tr_status tr__comm_write_curves(const tr__comm_job *job, const char *path);    // SVG
tr_status tr__comm_write_matrix(const tr__comm_job *job, const char *path);    // SVG

#endif
