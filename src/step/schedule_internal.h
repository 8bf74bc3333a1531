// SPDX-License-Identifier: MIT
// What the generators of schedules share: the shape that was asked for, a rank's list that grows pass by pass, and one row per
// schedule with the rule that its numbers must keep.
//
// A generator writes one rank's list and knows nothing of the other ranks: that the lists fit together is for
// tr_schedule_check to prove.
#ifndef TRIREME_STEP_SCHEDULE_INTERNAL_H
#define TRIREME_STEP_SCHEDULE_INTERNAL_H

#include "trireme/step/schedule.h"

// Limits of a schedule, from a generator or a file: stages are 16 bits wide, and lists are walked.
enum { TR__SCHEDULE_STAGES = 65535, TR__SCHEDULE_PASSES = 1 << 24 };

typedef struct tr__schedule_shape {
  const char *name;
  int p, v, m;
  int group; // micro-batches that go round together
  int extra; // zb_eN: N
} tr__schedule_shape;

typedef struct tr__pass_list {
  tr_pass *pass;
  uint32_t n;
} tr__pass_list;

void tr__pass_add(tr__pass_list *list, tr_op_kind kind, int stage, int microbatch);
void tr__pass_add_pair(tr__pass_list *list, int stage, int microbatch, int back_stage, int back_microbatch);

typedef struct tr__schedule_kind {
  const char *name, *what;
  tr_stage_map map;
  int v;                                              // stages per rank; 0: any number, 2 unless said
  int takes_group;                                    // spec.group may be given
  tr_status (*rule)(const tr__schedule_shape *shape); // NULL: any numbers
  void (*round)(tr__schedule_shape *shape);           // fills in `group` where the schedule chooses it; NULL: p
  void (*generate)(const tr__schedule_shape *shape, int rank, tr__pass_list *out);
} tr__schedule_kind;

// ---- names

typedef struct tr__token {
  char text[64];
} tr__token;
tr__token tr__pass_token(const tr_pass *pass);    // "3F0", "(7F4;0B0)OVERLAP_F_B"
const char *tr__stage_map_name(tr_stage_map map); // "linear"
int tr__stage_map_find(const char *name);         // -1: none

// tr_schedule_check that tells whose list is wrong; -1: nobody's.
tr_status tr__schedule_prove(const tr_schedule *schedule, int *fault);

// ---- generators

// "m 8 or m 12": the nearest numbers of micro-batches below and above m for which `ok`.
typedef struct tr__nearest {
  char text[48];
} tr__nearest;
tr__nearest tr__schedule_nearest(const tr__schedule_shape *shape, int (*ok)(const tr__schedule_shape *shape));

// ---- one stage per rank: schedule_build_line.c
void tr__generate_naive(const tr__schedule_shape *shape, int rank, tr__pass_list *out);
void tr__generate_gpipe(const tr__schedule_shape *shape, int rank, tr__pass_list *out);
void tr__generate_gpipe_lifo(const tr__schedule_shape *shape, int rank, tr__pass_list *out);
void tr__generate_1f1b(const tr__schedule_shape *shape, int rank, tr__pass_list *out);
void tr__generate_1f1b_eager(const tr__schedule_shape *shape, int rank, tr__pass_list *out);
void tr__generate_zb_h1(const tr__schedule_shape *shape, int rank, tr__pass_list *out);
void tr__generate_zb_h2(const tr__schedule_shape *shape, int rank, tr__pass_list *out);
void tr__generate_zb_e(const tr__schedule_shape *shape, int rank, tr__pass_list *out);
tr_status tr__rule_zb_e(const tr__schedule_shape *shape);

// ---- stages laid round the ranks: schedule_build_loop.c
void tr__generate_interleaved(const tr__schedule_shape *shape, int rank, tr__pass_list *out);
void tr__generate_interleaved_zb(const tr__schedule_shape *shape, int rank, tr__pass_list *out);
void tr__generate_looped_bfs(const tr__schedule_shape *shape, int rank, tr__pass_list *out);
tr_status tr__rule_group(const tr__schedule_shape *shape);
tr_status tr__rule_rounds(const tr__schedule_shape *shape);
void tr__round_rounds(tr__schedule_shape *shape);

// ---- two stages per rank that meet in the middle: schedule_build_fold.c
void tr__generate_zbv(const tr__schedule_shape *shape, int rank, tr__pass_list *out);
void tr__generate_dualpipe(const tr__schedule_shape *shape, int rank, tr__pass_list *out);
void tr__generate_dualpipev(const tr__schedule_shape *shape, int rank, tr__pass_list *out);
tr_status tr__rule_dualpipe(const tr__schedule_shape *shape);
tr_status tr__rule_dualpipev(const tr__schedule_shape *shape);

#endif
