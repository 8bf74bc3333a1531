// SPDX-License-Identifier: MIT
// `trireme simulate --compare`: several schedules for the same model on the same ranks. The costs are those of a rank's whole
// share, which its chunks divide, and memory counts in whole shares too, so that rows can be compared.
#include "cli/cli_internal.h"
#include "cli/simulate_internal.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 256 };

typedef struct table {
  const tr__simulate_request *r;
  json_t *rows;
  tr_text text, refused;
  int shown;
} table;

// The most micro-batches that a rank holds, in its whole share of the model.
static double peak_of(const tr__simulation *s) {
  int peak = 0;
  for (int r = 0; r < s->schedule.p; r++)
    if (s->result.rank[r].peak_w > peak) peak = s->result.rank[r].peak_w;
  return (double)peak * s->schedule.p / s->schedule.S;
}

static void add_row(table *t, const tr__simulation *s) {
  const tr_sim_result *x = &s->result;
  const double makespan = (double)x->makespan / s->costs.unit_ticks;
  const int copies = s->schedule.map == TR_STAGES_BOTH ? 2 : 1, chunks = s->schedule.S / s->schedule.p;
  if (!t->shown++)
    tr_text_append(&t->text, "%d rank%s, %d micro-batch%s; %s\n%-18s %3s %12s %8s %8s %12s %8s %8s %7s %9s\n",
                   s->schedule.p, tr_text_plural(s->schedule.p, "s"), s->schedule.m,
                   tr_text_plural(s->schedule.m, "es"), s->costs.text, "schedule", "v", "makespan", "bubble",
                   "in span", "idle in span", "peak", "messages", "weights", "ascending");
  tr_text_append(&t->text, "%-18s %3d %12.6g %7.2f%% %7.2f%% %12.6g %8.4g %8lld %6dx %9s\n", s->schedule.name,
                 s->schedule.v, makespan, 100 * x->bubble, 100 * x->span_bubble,
                 (double)x->span_idle / s->costs.unit_ticks, peak_of(s), (long long)x->messages, copies,
                 tr_schedule_ascends(&s->schedule) ? "yes" : "no");
  json_array_append_new(t->rows, json_pack("{s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:I, s:i, s:b}", "schedule",
                                           s->schedule.name, "v", s->schedule.v, "chunks", chunks, "makespan",
                                           makespan, "bubble_fraction", x->bubble, "span_bubble_fraction",
                                           x->span_bubble, "span_idle", (double)x->span_idle / s->costs.unit_ticks,
                                           "peak", peak_of(s), "messages", (json_int_t)x->messages, "weight_copies",
                                           copies, "ascending", tr_schedule_ascends(&s->schedule)));
}

// A schedule whose rule the numbers break is a row too; everything else that fails ends the command.
static tr_status add(table *t, const char *name) {
  tr__simulation s;
  tr_status status = tr__simulate(t->r, name, 1, &s);
  if (status == TR_OK) {
    add_row(t, &s);
    tr__simulation_destroy(&s);
    return TR_OK;
  }
  if (status != TR_ERR_PLAN || strncmp(tr_status_text(), "schedule ", 9) != 0) return status;
  tr_text_append(&t->refused, "%s\n", tr_status_text());
  json_array_append_new(t->rows, json_pack("{s:s, s:s}", "schedule", name, "refused", tr_status_text()));
  return TR_OK;
}

static tr_status add_all(table *t) {
  const char *name;
  for (int i = 0; (name = tr_schedule_known(i, NULL)) != NULL; i++) TR_TRY(add(t, name));
  return TR_OK;
}

static tr_status add_listed(table *t) {
  char name[NAME];
  for (const char *at = t->r->compare;;) {
    const size_t n = strcspn(at, ",");
    if (n == 0 || n >= sizeof name)
      return tr__cli_usage("simulate", "--compare takes names with commas between, as in gpipe,1f1b, not '%.40s'",
                           t->r->compare);
    snprintf(name, sizeof name, "%.*s", (int)n, at);
    TR_TRY(add(t, name));
    if (at[n] == '\0') return TR_OK;
    at += n + 1;
  }
}

static tr_status print_table(table *t) {
  if (t->text.failed || t->refused.failed) return tr_error(TR_ERR_MEMORY, "no memory for the result");
  if (t->r->json) {
    char *text = json_dumps(t->rows, JSON_INDENT(1));
    if (!text) return tr_error(TR_ERR_MEMORY, "no memory for the result");
    printf("{\"schedules\": %s}\n", text);
    free(text);
    return TR_OK;
  }
  if (t->text.data) fputs(t->text.data, stdout);
  if (t->shown)
    printf(
        "peak: micro-batches alive on a rank at most, of its whole share of the model; weights: copies of a stage\n");
  if (t->refused.data) fputs(t->refused.data, stdout);
  return TR_OK;
}

tr_status tr__simulate_compare(const tr__simulate_request *request) {
  table t = {.r = request, .rows = json_array()};
  tr_status status = strcmp(request->compare, "all") == 0 ? add_all(&t) : add_listed(&t);
  if (status == TR_OK) status = print_table(&t);
  json_decref(t.rows);
  tr_text_free(&t.text);
  tr_text_free(&t.refused);
  return status;
}
