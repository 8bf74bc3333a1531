// SPDX-License-Identifier: MIT
// Schedules whose stages go round the ranks v times: chunk c of rank r is stage c p + r.
//
//   interleaved      Narayanan et al. 2021. Micro-batches go round in groups of G: chunk 0 for all of the group, then chunk 1, ...;
//                    backward the same with the chunks from the last to the first. Rank r does 2 (p - 1 - r) + (v - 1) G forward
//                    passes, then F and B in turn. A last group shorter than p would leave ranks idle in every chunk: refused.
//   interleaved_flex The same with R = max(1, m div p) equal groups.
//   interleaved_zb   B split in I and W, (p - 1 - r) + (v - 1) G forward passes ahead, W r passes behind I.
//   looped_bfs       Lamy-Poirier 2023: every chunk for all micro-batches, then all backward from the last pass to the first.
#include "schedule_internal.h"

// Pass k of a rank in the order of groups.
static void find_pass(const tr__schedule_shape *shape, int k, int *chunk, int *microbatch) {
  int first = k / (shape->group * shape->v) * shape->group, left = shape->m - first;
  int n = left < shape->group ? left : shape->group;
  int within = k - first * shape->v;
  *chunk = within / n;
  *microbatch = first + within % n;
}

static void add_forward(const tr__schedule_shape *shape, int rank, int k, tr__pass_list *out) {
  int chunk, microbatch;
  find_pass(shape, k, &chunk, &microbatch);
  tr__pass_add(out, TR_OP_F, chunk * shape->p + rank, microbatch);
}

static void add_backward(const tr__schedule_shape *shape, tr_op_kind kind, int rank, int k, tr__pass_list *out) {
  int chunk, microbatch;
  find_pass(shape, k, &chunk, &microbatch);
  tr__pass_add(out, kind, (shape->v - 1 - chunk) * shape->p + rank, microbatch);
}

void tr__generate_interleaved(const tr__schedule_shape *shape, int rank, tr__pass_list *out) {
  int n = shape->m * shape->v, ahead = 2 * (shape->p - 1 - rank) + (shape->v - 1) * shape->group;
  for (int k = 0; k < n && k < ahead; k++) add_forward(shape, rank, k, out);
  for (int k = 0; k < n; k++) {
    if (ahead + k < n) add_forward(shape, rank, ahead + k, out);
    add_backward(shape, TR_OP_B, rank, k, out);
  }
}

void tr__generate_interleaved_zb(const tr__schedule_shape *shape, int rank, tr__pass_list *out) {
  int n = shape->m * shape->v, ahead = shape->p - 1 - rank + (shape->v - 1) * shape->group;
  for (int k = 0; k < n && k < ahead; k++) add_forward(shape, rank, k, out);
  for (int k = 0; k < n; k++) {
    if (ahead + k < n) add_forward(shape, rank, ahead + k, out);
    add_backward(shape, TR_OP_I, rank, k, out);
    if (k >= rank) add_backward(shape, TR_OP_W, rank, k - rank, out);
  }
  for (int k = n > rank ? n - rank : 0; k < n; k++) add_backward(shape, TR_OP_W, rank, k, out);
}

void tr__generate_looped_bfs(const tr__schedule_shape *shape, int rank, tr__pass_list *out) {
  for (int c = 0; c < shape->v; c++)
    for (int i = 0; i < shape->m; i++) tr__pass_add(out, TR_OP_F, c * shape->p + rank, i);
  for (int c = shape->v - 1; c >= 0; c--)
    for (int i = shape->m - 1; i >= 0; i--) tr__pass_add(out, TR_OP_B, c * shape->p + rank, i);
}

static int groups_fill(const tr__schedule_shape *shape) {
  int left = shape->m % shape->group;
  return shape->group >= shape->p && shape->group <= shape->m && (left == 0 || left >= shape->p);
}

// The group nearest to the one asked for that m and p allow, for m >= p: m itself always is one.
static int nearest_group(const tr__schedule_shape *shape) {
  tr__schedule_shape other = *shape;
  int from = shape->group < shape->p ? shape->p : shape->group > shape->m ? shape->m : shape->group;
  for (int away = 0; away < shape->m; away++)
    for (int sign = -1; sign <= 1; sign += 2) {
      other.group = from + sign * away;
      if (other.group > 0 && groups_fill(&other)) return other.group;
    }
  return shape->m;
}

tr_status tr__rule_group(const tr__schedule_shape *shape) {
  int p = shape->p, m = shape->m, group = shape->group;
  if (m < p)
    return tr_error(TR_ERR_PLAN, "schedule %s: m %d is less than p %d; m %d or schedule interleaved_flex works",
                    shape->name, m, p, p);
  if (group < p || group > m)
    return tr_error(TR_ERR_PLAN, "schedule %s: group %d is not within p %d and m %d; group %d works", shape->name,
                    group, p, m, nearest_group(shape));
  if (groups_fill(shape)) return TR_OK;
  return tr_error(TR_ERR_PLAN,
                  "schedule %s: m %d in groups of %d leaves a last group of %d, less than p %d; %s or group %d works",
                  shape->name, m, group, m % group, p, tr__schedule_nearest(shape, groups_fill).text,
                  nearest_group(shape));
}

void tr__round_rounds(tr__schedule_shape *shape) {
  int rounds = shape->m / shape->p;
  shape->group = shape->m / (rounds ? rounds : 1);
}

static int rounds_divide(const tr__schedule_shape *shape) {
  int rounds = shape->m / shape->p;
  return rounds == 0 || shape->m % rounds == 0;
}

tr_status tr__rule_rounds(const tr__schedule_shape *shape) {
  if (rounds_divide(shape)) return TR_OK;
  return tr_error(TR_ERR_PLAN, "schedule %s: m %d does not divide into m div p = %d equal groups; %s works",
                  shape->name, shape->m, shape->m / shape->p, tr__schedule_nearest(shape, rounds_divide).text);
}
