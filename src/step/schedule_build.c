// SPDX-License-Identifier: MIT
// Building schedules by name: the table of those that are known, the rules that hold for all, and the walk over ranks.
// How each list is made stands in schedule_build_line.c, _loop.c and _fold.c.
#include "schedule_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// clang-format off
static const tr__schedule_kind kind_table[] = {
  {.name = "naive", .what = "one micro-batch after the other, forward and backward: one rank works at a time",
   .map = TR_STAGES_LINEAR, .v = 1, .generate = tr__generate_naive},
  {.name = "gpipe", .what = "all forward passes, then all backward passes in the same order",
   .map = TR_STAGES_LINEAR, .v = 1, .generate = tr__generate_gpipe},
  {.name = "gpipe_lifo", .what = "all forward passes, then the backward passes from the last to the first",
   .map = TR_STAGES_LINEAR, .v = 1, .generate = tr__generate_gpipe_lifo},
  {.name = "1f1b", .what = "one forward, one backward: at most p micro-batches alive",
   .map = TR_STAGES_LINEAR, .v = 1, .generate = tr__generate_1f1b},
  {.name = "1f1b_eager", .what = "1f1b with twice the forward passes ahead, which hides the time of messages",
   .map = TR_STAGES_LINEAR, .v = 1, .generate = tr__generate_1f1b_eager},
  {.name = "interleaved", .what = "1f1b with v stages per rank: a v-th of the bubble, v times the messages",
   .map = TR_STAGES_LOOP, .takes_group = 1, .rule = tr__rule_group, .generate = tr__generate_interleaved},
  {.name = "interleaved_flex", .what = "interleaved in m div p equal groups, for m that p does not divide",
   .map = TR_STAGES_LOOP, .rule = tr__rule_rounds, .round = tr__round_rounds, .generate = tr__generate_interleaved},
  {.name = "looped_bfs", .what = "all micro-batches through a stage before the next: few large gathers of weights",
   .map = TR_STAGES_LOOP, .generate = tr__generate_looped_bfs},
  {.name = "zb_h1", .what = "1f1b with split backward passes: weight gradients fill the bubble, memory of 1f1b",
   .map = TR_STAGES_LINEAR, .v = 1, .generate = tr__generate_zb_h1},
  {.name = "zb_h2", .what = "no bubble between a rank's first and last pass from m = 2 p - 1 on, twice the memory",
   .map = TR_STAGES_LINEAR, .v = 1, .generate = tr__generate_zb_h2},
  {.name = "zb_e0", .what = "zb_eN, N < p: from zb_h1 (N 0) to zb_h2 (N p - 1), p + N micro-batches alive",
   .map = TR_STAGES_LINEAR, .v = 1, .rule = tr__rule_zb_e, .generate = tr__generate_zb_e},
  {.name = "interleaved_zb", .what = "interleaved with split backward passes; wants fast messages",
   .map = TR_STAGES_LOOP, .takes_group = 1, .rule = tr__rule_group, .generate = tr__generate_interleaved_zb},
  {.name = "zbv", .what = "split backward passes, two stages per rank laid in a V: no bubble, the memory of 1f1b",
   .map = TR_STAGES_V, .v = 2, .generate = tr__generate_zbv},
  {.name = "dualpipe", .what = "micro-batches from both ends, overlapped pairs, every stage twice",
   .map = TR_STAGES_BOTH, .v = 2, .rule = tr__rule_dualpipe, .generate = tr__generate_dualpipe},
  {.name = "dualpipev", .what = "dualpipe cut in half: overlapped pairs, two stages per rank laid in a V",
   .map = TR_STAGES_V, .v = 2, .rule = tr__rule_dualpipev, .generate = tr__generate_dualpipev},
};
// clang-format on
enum { KINDS = sizeof kind_table / sizeof kind_table[0] };

const char *tr_schedule_known(int i, const char **what) {
  if (i < 0 || i >= KINDS) return NULL;
  if (what) *what = kind_table[i].what;
  return kind_table[i].name;
}

void tr__pass_add(tr__pass_list *list, tr_op_kind kind, int stage, int microbatch) {
  list->pass[list->n++] = (tr_pass){.kind = (uint8_t)kind, .stage = (uint16_t)stage, .microbatch = microbatch};
}

void tr__pass_add_pair(tr__pass_list *list, int stage, int microbatch, int back_stage, int back_microbatch) {
  list->pass[list->n++] = (tr_pass){.kind = TR_OP_X,
                                    .stage = (uint16_t)stage,
                                    .microbatch = microbatch,
                                    .back_stage = (uint16_t)back_stage,
                                    .back_microbatch = back_microbatch};
}

static int next_ok(const tr__schedule_shape *shape, int (*ok)(const tr__schedule_shape *shape), int step) {
  tr__schedule_shape other = *shape;
  for (other.m += step; other.m > 0 && other.m <= TR_STEP_MICROBATCHES; other.m += step)
    if (ok(&other)) return other.m;
  return 0;
}

tr__nearest tr__schedule_nearest(const tr__schedule_shape *shape, int (*ok)(const tr__schedule_shape *shape)) {
  int below = next_ok(shape, ok, -1), above = next_ok(shape, ok, 1);
  tr__nearest near = {"no m"};
  if (below && above)
    snprintf(near.text, sizeof near.text, "m %d or m %d", below, above);
  else if (below || above)
    snprintf(near.text, sizeof near.text, "m %d", below ? below : above);
  return near;
}

// "zb_e3" is the row "zb_e0" with 3 more micro-batches. Returns NULL if the name is none of ours.
static const tr__schedule_kind *find_kind(const char *name, int *extra) {
  *extra = 0;
  for (int i = 0; i < KINDS; i++)
    if (!strcmp(kind_table[i].name, name)) return &kind_table[i];
  size_t digits = strncmp(name, "zb_e", 4) ? 0 : strspn(name + 4, "0123456789");
  if (digits == 0 || digits > 5 || name[4] == '0' || name[4 + digits]) return NULL;
  *extra = (int)strtol(name + 4, NULL, 10);
  return find_kind("zb_e0", &(int){0});
}

static tr_status refuse_name(const char *name) {
  const char *names[KINDS];
  char list[512] = "";
  for (int i = 0; i < KINDS; i++) {
    names[i] = kind_table[i].name;
    size_t used = strlen(list);
    snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
  }
  const char *near = tr_text_closest(name, names, KINDS);
  return tr_error(TR_ERR_PLAN, "no schedule is called \"%.64s\"%s%s%s; known are %s", name,
                  near ? " (did you mean " : "", near ? near : "", near ? "?)" : "", list);
}

static tr_status check_sizes(const tr__schedule_shape *shape) {
  const char *name = shape->name;
  int most = TR__SCHEDULE_STAGES / shape->v;
  if (shape->p < 1 || shape->p > most)
    return tr_error(TR_ERR_PLAN, "schedule %s: p %d ranks with %d stage%s each; p 1 to %d works", name, shape->p,
                    shape->v, shape->v == 1 ? "" : "s", most);
  if (shape->m < 1 || shape->m > TR_STEP_MICROBATCHES)
    return tr_error(TR_ERR_PLAN, "schedule %s: m %d micro-batches; m 1 to %d works", name, shape->m,
                    TR_STEP_MICROBATCHES);
  int64_t passes = 3 * (int64_t)shape->p * shape->v * shape->m;
  if (passes > TR__SCHEDULE_PASSES)
    return tr_error(TR_ERR_PLAN, "schedule %s: p %d, v %d and m %d make more than %d passes; m up to %d works", name,
                    shape->p, shape->v, shape->m, (int)TR__SCHEDULE_PASSES,
                    TR__SCHEDULE_PASSES / (3 * shape->p * shape->v));
  return TR_OK;
}

static tr_status make_shape(const tr__schedule_kind *kind, const tr_schedule_spec *spec, tr__schedule_shape *shape) {
  const char *name = shape->name;
  if (kind->v && spec->v && spec->v != kind->v)
    return tr_error(TR_ERR_PLAN, "schedule %s: v %d; it has v %d on every rank", name, spec->v, kind->v);
  if (spec->v < 0 || spec->v > TR__SCHEDULE_STAGES)
    return tr_error(TR_ERR_PLAN, "schedule %s: v %d stages per rank; v 1 to %d works", name, spec->v,
                    (int)TR__SCHEDULE_STAGES);
  if (spec->group && !kind->takes_group)
    return tr_error(TR_ERR_PLAN, "schedule %s: group %d; only interleaved and interleaved_zb take a group", name,
                    spec->group);
  shape->p = spec->p;
  shape->m = spec->m;
  shape->v = kind->v ? kind->v : spec->v ? spec->v : 2;
  TR_TRY(check_sizes(shape));
  shape->group = spec->group ? spec->group : spec->p;
  if (kind->round) kind->round(shape);
  return kind->rule ? kind->rule(shape) : TR_OK;
}

// Room for three passes of every stage and micro-batch; what is not used is given back.
static tr_status generate(const tr__schedule_kind *kind, const tr__schedule_shape *shape, tr_schedule *out) {
  size_t most = 3 * (size_t)out->S * (size_t)out->m;
  tr__pass_list list = {.pass = malloc(most * sizeof *list.pass)};
  out->pass = list.pass;
  out->begin = malloc(((size_t)out->p + 1) * sizeof *out->begin);
  if (!out->pass || !out->begin) {
    tr_schedule_destroy(out);
    return tr_error(TR_ERR_MEMORY, "no memory for the %zu passes of schedule %s", most, shape->name);
  }
  for (int r = 0; r < out->p; r++) {
    out->begin[r] = list.n;
    kind->generate(shape, r, &list);
  }
  out->begin[out->p] = list.n;
  tr_pass *fit = realloc(out->pass, list.n * sizeof *fit);
  if (fit) out->pass = fit;
  return TR_OK;
}

static tr_status find_shape(const tr_schedule_spec *spec, const tr__schedule_kind **kind, tr__schedule_shape *shape) {
  const char *name = spec->name ? spec->name : "";
  *shape = (tr__schedule_shape){.name = name};
  *kind = find_kind(name, &shape->extra);
  return *kind ? make_shape(*kind, spec, shape) : refuse_name(name);
}

tr_status tr_schedule_allows(const tr_schedule_spec *spec) {
  const tr__schedule_kind *kind;
  tr__schedule_shape shape;
  return find_shape(spec, &kind, &shape);
}

tr_status tr_schedule_build(const tr_schedule_spec *spec, tr_schedule *out) {
  const tr__schedule_kind *kind;
  tr__schedule_shape shape;
  TR_TRY(find_shape(spec, &kind, &shape));
  tr_schedule made = {.p = shape.p, .v = shape.v, .m = shape.m, .map = kind->map};
  made.S = kind->map == TR_STAGES_BOTH ? shape.p : shape.p * shape.v;
  if (kind->map == TR_STAGES_LOOP && shape.v == 1) made.map = TR_STAGES_LINEAR;
  snprintf(made.name, sizeof made.name, "%s", shape.name);
  TR_TRY(generate(kind, &shape, &made));
  *out = made;
  return TR_OK;
}
