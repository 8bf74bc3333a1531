// SPDX-License-Identifier: MIT
// What `trireme simulate` says of one schedule: a drawing, a line per rank and sums for people; the same and more as one JSON
// object, in the unit of the costs; or its token lists.
#include "cli/cli_internal.h"
#include "cli/simulate_internal.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

enum { DRAWN_RANKS = 64, COLUMNS = 240, COLUMNS_SCALED = 120, COLUMNS_MOST = 10000 };

static double units(const tr__simulation *s, int64_t ticks) { return (double)ticks / s->costs.unit_ticks; }

static tr_status print_text(tr_text *text) {
  tr_status status = text->failed ? tr_error(TR_ERR_MEMORY, "no memory for the result") : TR_OK;
  if (status == TR_OK && text->data) fputs(text->data, stdout);
  tr_text_free(text);
  return status;
}

static tr_status print_lists(const tr__simulation *s) {
  tr_text text = {0};
  tr_schedule_print(&s->schedule, 0, &text);
  return print_text(&text);
}

// ---- for people

// One character for what all times have in common; where that makes lines too long, for a part of the whole.
static int64_t tick_of(const tr__simulation *s) {
  if (s->costs.tick) return s->costs.tick;
  return s->result.makespan <= COLUMNS ? 1 : (s->result.makespan + COLUMNS_SCALED - 1) / COLUMNS_SCALED;
}

static void add_drawing(const tr__simulation *s, tr_text *out) {
  const int64_t tick = tick_of(s);
  if (s->schedule.p > DRAWN_RANKS) {
    tr_text_append(out, "%d ranks are too many lines; --svg and --trace have them all\n", s->schedule.p);
    return;
  }
  tr_sim_draw_text(s->programs.program, &s->result, tick, out);
  tr_text_append(out, "one character is %.6g", units(s, tick));
  if (*s->costs.unit_name) tr_text_append(out, " %s; all times are in %s", s->costs.unit_name, s->costs.unit_name);
  tr_text_append(out, "\n");
}

static void add_ranks(const tr__simulation *s, tr_text *out) {
  tr_text_append(out, "\n%4s %12s %12s %12s %14s %13s %9s %7s\n", "rank", "busy", "idle", "idle inside",
                 "by messages", "chunks alive", "until I", "parked");
  for (int r = 0; r < s->schedule.p && r < DRAWN_RANKS; r++) {
    const tr_sim_rank *rank = &s->result.rank[r];
    tr_text_append(out, "%4d %12.6g %12.6g %12.6g %14.6g %13d %9d %7d\n", r, units(s, rank->busy),
                   units(s, s->result.makespan - rank->busy), units(s, rank->last - rank->first - rank->busy),
                   units(s, rank->wait_message), rank->peak_w, rank->peak_i, rank->parked);
  }
}

// Passes and messages of the critical path, and how much of it the messages are.
static void add_path(const tr__simulation *s, tr_text *out) {
  const tr_sim_result *result = &s->result;
  uint32_t passes = 0, messages = 0;
  int64_t way = 0;
  for (uint32_t k = 0; k < result->ncritical; k++) {
    const uint32_t rank = result->critical[2 * k], i = result->critical[2 * k + 1];
    const tr_op *op = &s->programs.program[rank]->op[i];
    passes += op->lane == TR_LANE_COMPUTE;
    if (op->kind != TR_OP_RECV) continue;
    messages++;
    way += result->event[rank][i].end - result->event[rank][i].begin;
  }
  tr_text_append(out, "critical path   %u pass%s and %u message%s, which take %.6g of it\n", passes,
                 tr_text_plural(passes, "es"), messages, tr_text_plural(messages, "s"), units(s, way));
}

static void add_sums(const tr__simulation *s, const tr__simulate_request *r, tr_text *out) {
  const tr_sim_result *result = &s->result;
  tr_text_append(out, "\nmakespan        %.12g%s%s\n", units(s, result->makespan), *s->costs.unit_name ? " " : "",
                 s->costs.unit_name);
  tr_text_append(out, "bubble          %.2f %% of all ranks' time until then\n", 100 * result->bubble);
  tr_text_append(out, "span bubble     %.2f %% between a rank's first and last pass, at most; %.6g idle\n",
                 100 * result->span_bubble, units(s, result->span_idle));
  add_path(s, out);
  tr_text_append(out, "messages        %lld per step\n", (long long)result->messages);
  tr_text_append(out, "gradients       %s\n",
                 tr_schedule_ascends(&s->schedule)
                     ? "added in ascending order: the bits of every schedule that does"
                     : "not added in ascending order everywhere: equal to other schedules' but for rounding");
  if (s->schedule.map == TR_STAGES_BOTH) tr_text_append(out, "weights         every stage is kept twice\n");
  if (r->stages.replicas > 1)
    tr_text_append(out, "ranks           %lld in %lld replicas, which do the same\n",
                   (long long)(r->stages.replicas * s->schedule.p), (long long)r->stages.replicas);
}

static tr_status check_tick(const tr__simulate_request *r, const tr__simulation *s) {
  const int64_t columns = s->result.makespan / tick_of(s);
  if (columns <= COLUMNS_MOST || s->schedule.p > DRAWN_RANKS) return TR_OK;
  return tr__cli_usage("simulate", "--tick %.40s makes lines of %lld characters, and %d are the most; %.3g works",
                       r->tick, (long long)columns, COLUMNS_MOST, 1.01 * units(s, s->result.makespan) / COLUMNS_MOST);
}

static tr_status print_for_people(const tr__simulate_request *r, const tr__simulation *s) {
  tr_text text = {0};
  TR_TRY(check_tick(r, s));
  tr_text_append(&text, "%s: %d rank%s, %d stage%s, %d micro-batch%s; %s\n", s->schedule.name, s->schedule.p,
                 tr_text_plural(s->schedule.p, "s"), s->schedule.S, tr_text_plural(s->schedule.S, "s"), s->schedule.m,
                 tr_text_plural(s->schedule.m, "es"), s->costs.text);
  add_drawing(s, &text);
  add_ranks(s, &text);
  add_sums(s, r, &text);
  return print_text(&text);
}

// ---- as JSON

typedef int64_t (*tick_getter)(const tr__simulation *s, const tr_sim_rank *rank);
typedef int (*count_getter)(const tr_sim_rank *rank);

static int64_t busy_of(const tr__simulation *s, const tr_sim_rank *rank) { return (void)s, rank->busy; }
static int64_t idle_of(const tr__simulation *s, const tr_sim_rank *rank) { return s->result.makespan - rank->busy; }
static int64_t first_of(const tr__simulation *s, const tr_sim_rank *rank) { return (void)s, rank->first; }
static int64_t last_of(const tr__simulation *s, const tr_sim_rank *rank) { return (void)s, rank->last; }
static int64_t wait_of(const tr__simulation *s, const tr_sim_rank *rank) { return (void)s, rank->wait_message; }
static int64_t span_idle_of(const tr__simulation *s, const tr_sim_rank *rank) {
  return (void)s, rank->last - rank->first - rank->busy;
}
static int peak_w_of(const tr_sim_rank *rank) { return rank->peak_w; }
static int peak_i_of(const tr_sim_rank *rank) { return rank->peak_i; }
static int parked_of(const tr_sim_rank *rank) { return rank->parked; }

static void set_times(json_t *root, const char *key, const tr__simulation *s, tick_getter get) {
  json_t *list = json_array();
  for (int r = 0; r < s->schedule.p; r++)
    json_array_append_new(list, json_real(units(s, get(s, &s->result.rank[r]))));
  json_object_set_new(root, key, list);
}

static void set_counts(json_t *root, const char *key, const tr__simulation *s, count_getter get) {
  json_t *list = json_array();
  for (int r = 0; r < s->schedule.p; r++) json_array_append_new(list, json_integer(get(&s->result.rank[r])));
  json_object_set_new(root, key, list);
}

static json_t *path_json(const tr__simulation *s) {
  json_t *list = json_array();
  for (uint32_t k = s->result.ncritical; k-- > 0;) {
    const uint32_t rank = s->result.critical[2 * k], i = s->result.critical[2 * k + 1];
    const tr_op *op = &s->programs.program[rank]->op[i];
    const tr_sim_event event = s->result.event[rank][i];
    json_array_append_new(list,
                          json_pack("{s:i, s:s, s:i, s:i, s:f, s:f}", "rank", (int)rank, "op",
                                    tr_op_name((tr_op_kind)op->kind), "stage", (int)op->stage, "microbatch",
                                    (int)op->microbatch, "begin", units(s, event.begin), "end", units(s, event.end)));
  }
  return list;
}

static json_t *to_json(const tr__simulate_request *r, const tr__simulation *s) {
  const tr_sim_result *x = &s->result;
  const tr_schedule *h = &s->schedule;
  json_t *root = json_pack("{s:s, s:i, s:i, s:i, s:i, s:I, s:s, s:f, s:f, s:f, s:f, s:I, s:b, s:i}", "schedule",
                           h->name, "p", h->p, "v", h->v, "stages", h->S, "m", h->m, "ranks",
                           (json_int_t)(r->stages.replicas * h->p), "unit", s->costs.unit_name, "makespan",
                           units(s, x->makespan), "bubble_fraction", x->bubble, "span_bubble_fraction",
                           x->span_bubble, "span_idle", units(s, x->span_idle), "messages", (json_int_t)x->messages,
                           "ascending", tr_schedule_ascends(h), "weight_copies", h->map == TR_STAGES_BOTH ? 2 : 1);
  if (!root) return NULL;
  set_counts(root, "peak_per_rank", s, peak_w_of);
  set_counts(root, "peak_until_i_per_rank", s, peak_i_of);
  set_counts(root, "parked_per_rank", s, parked_of);
  set_times(root, "busy_per_rank", s, busy_of);
  set_times(root, "idle_per_rank", s, idle_of);
  set_times(root, "span_idle_per_rank", s, span_idle_of);
  set_times(root, "wait_message_per_rank", s, wait_of);
  set_times(root, "first_per_rank", s, first_of);
  set_times(root, "last_per_rank", s, last_of);
  json_object_set_new(root, "critical_path", path_json(s));
  return root;
}

static tr_status print_json(const tr__simulate_request *r, const tr__simulation *s) {
  json_t *root = to_json(r, s);
  char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
  tr_status status = text ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory for the result");
  if (text) puts(text);
  free(text);
  json_decref(root);
  return status;
}

tr_status tr__simulate_report(const tr__simulate_request *r, const tr__simulation *s) {
  if (r->dump) return print_lists(s);
  return r->json ? print_json(r, s) : print_for_people(r, s);
}
