// SPDX-License-Identifier: MIT
// Schedules with one stage per rank, stage r on rank r.
//
//   gpipe    Huang et al. 2019: all F, then all B. m micro-batches alive.
//   1f1b     PipeDream with a flush (Narayanan et al. 2021): rank r does `ahead` = p - 1 - r forward passes, then F and B in turn,
//            so p - r micro-batches are alive. The eager form goes 2 (p - 1 - r) ahead: a gradient may then take a message's time
//            longer without anybody waiting.
//   zb_*     Qi et al. 2024: B is split in I, which the stage before waits for, and W, which nobody waits for. W follows `lag`
//            passes behind I and fills the bubble. With e micro-batches more than zb_h1 a rank goes min(p - 1 - r, e) further
//            ahead and its W lag r + e - min(p - 1 - r, e): then every rank has p + e alive.
#include "schedule_internal.h"

static int smaller(int a, int b) { return a < b ? a : b; }

void tr__generate_naive(const tr__schedule_shape *shape, int rank, tr__pass_list *out) {
  for (int i = 0; i < shape->m; i++) {
    tr__pass_add(out, TR_OP_F, rank, i);
    tr__pass_add(out, TR_OP_B, rank, i);
  }
}

void tr__generate_gpipe(const tr__schedule_shape *shape, int rank, tr__pass_list *out) {
  for (int i = 0; i < shape->m; i++) tr__pass_add(out, TR_OP_F, rank, i);
  for (int i = 0; i < shape->m; i++) tr__pass_add(out, TR_OP_B, rank, i);
}

void tr__generate_gpipe_lifo(const tr__schedule_shape *shape, int rank, tr__pass_list *out) {
  for (int i = 0; i < shape->m; i++) tr__pass_add(out, TR_OP_F, rank, i);
  for (int i = shape->m - 1; i >= 0; i--) tr__pass_add(out, TR_OP_B, rank, i);
}

static void generate_in_turn(int m, int rank, int ahead, tr__pass_list *out) {
  for (int i = 0; i < smaller(ahead, m); i++) tr__pass_add(out, TR_OP_F, rank, i);
  for (int i = 0; i < m; i++) {
    if (ahead + i < m) tr__pass_add(out, TR_OP_F, rank, ahead + i);
    tr__pass_add(out, TR_OP_B, rank, i);
  }
}

void tr__generate_1f1b(const tr__schedule_shape *shape, int rank, tr__pass_list *out) {
  generate_in_turn(shape->m, rank, shape->p - 1 - rank, out);
}

void tr__generate_1f1b_eager(const tr__schedule_shape *shape, int rank, tr__pass_list *out) {
  generate_in_turn(shape->m, rank, 2 * (shape->p - 1 - rank), out);
}

static void generate_split(const tr__schedule_shape *shape, int rank, int extra, tr__pass_list *out) {
  int behind = shape->p - 1 - rank, further = smaller(behind, extra);
  int m = shape->m, ahead = behind + further, lag = rank + extra - further;
  for (int i = 0; i < smaller(ahead, m); i++) tr__pass_add(out, TR_OP_F, rank, i);
  for (int i = 0; i < m; i++) {
    if (ahead + i < m) tr__pass_add(out, TR_OP_F, rank, ahead + i);
    tr__pass_add(out, TR_OP_I, rank, i);
    if (i >= lag) tr__pass_add(out, TR_OP_W, rank, i - lag);
  }
  for (int i = m > lag ? m - lag : 0; i < m; i++) tr__pass_add(out, TR_OP_W, rank, i);
}

void tr__generate_zb_h1(const tr__schedule_shape *shape, int rank, tr__pass_list *out) {
  generate_split(shape, rank, 0, out);
}

void tr__generate_zb_h2(const tr__schedule_shape *shape, int rank, tr__pass_list *out) {
  generate_split(shape, rank, shape->p - 1, out);
}

void tr__generate_zb_e(const tr__schedule_shape *shape, int rank, tr__pass_list *out) {
  generate_split(shape, rank, shape->extra, out);
}

tr_status tr__rule_zb_e(const tr__schedule_shape *shape) {
  int p = shape->p, m = shape->m, extra = shape->extra;
  if (extra > p - 1)
    return tr_error(TR_ERR_PLAN, "schedule %s: with p %d at most p - 1 micro-batches more are of use; zb_e%d works",
                    shape->name, p, smaller(p - 1, m > p ? m - p : 0));
  if (extra > 0 && m < p + extra)
    return tr_error(TR_ERR_PLAN,
                    "schedule %s: p + %d = %d micro-batches are alive, but m is %d; m %d or zb_e%d works",
                    shape->name, extra, p + extra, m, p + extra, m > p ? m - p : 0);
  return TR_OK;
}
