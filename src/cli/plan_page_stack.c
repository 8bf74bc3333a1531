// SPDX-License-Identifier: MIT
// Pictures of one step of a plan: what the ranks of every place in the pipeline hold, where the time goes, and when which pass runs.
#include "cli/plan_page_internal.h"
#include "trireme/plan/pipeline.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// ---- memory

enum {
  LIBRARIES = TR_ITEM_COUNT,
  PARTS = TR_ITEM_COUNT + 1
}; // beside the items: driver, libraries, what allocators cache

static const char *part_name(int i) {
  return i == LIBRARIES ? "driver, libraries" : tr_memory_item_name((tr_memory_item)i);
}
static double part_of(const tr_footprint *m, int i) { return i == LIBRARIES ? m->process - m->total : m->item[i]; }

static void draw_legend(const tr__page_chart *c, const tr_footprint *rank, int64_t n) {
  double x = c->width - c->right + 16, y = c->top + 6;
  for (int i = PARTS - 1; i >= 0; i--) {
    double most = 0;
    for (int64_t r = 0; r < n; r++) most = fmax(most, part_of(&rank[r], i));
    if (!(most > 0)) continue;
    char classes[24];
    snprintf(classes, sizeof classes, "f%d", i);
    tr__page_box(c->out, classes, x, y - 9, 12, 12, NULL);
    tr__page_label(c->out, x + 18, y + 1, "start", part_name(i));
    y += 20;
  }
}

static void draw_stack(const tr__page_chart *c, int64_t r, double x, double width, const tr_footprint *m) {
  double below = 0;
  for (int i = PARTS - 1; i >= 0; i--) { // what never changes lies at the bottom
    const int k = PARTS - 1 - i;
    const double bytes = part_of(m, k);
    char classes[24], title[128], shown[32];
    if (!(bytes > 0)) continue;
    tr__plan_format(shown, sizeof shown, TR__PLAN_MEMORY, bytes);
    snprintf(title, sizeof title, "place %lld: %s %s", (long long)r, part_name(k), shown);
    snprintf(classes, sizeof classes, "bar f%d", k);
    const double top = tr__page_y(c, below + bytes);
    tr__page_box(c->out, classes, x, top, width, tr__page_y(c, below) - top, title);
    below += bytes;
  }
}

static void draw_stacks(tr__page *page, const tr_footprint *rank, int64_t n) {
  const double room = page->c->cluster.device.memory_gib * 1073741824.0;
  double most = room;
  for (int64_t r = 0; r < n; r++) most = fmax(most, rank[r].process);
  const double bar = n > 40 ? 14 : n > 12 ? 24 : 40, inside = fmax(520, (double)n * (bar + 6));
  tr__page_chart c = {.out = &page->out,
                      .width = 76 + inside + 180,
                      .height = 340,
                      .left = 76,
                      .right = 180,
                      .top = 34,
                      .bottom = 40};
  c.x = (tr__page_axis){0, (double)n, 0, "place in the pipeline", TR__PLAN_COUNT};
  c.y = (tr__page_axis){0, most * 1.06, 0, "bytes on a device", TR__PLAN_MEMORY};
  tr__page_chart_open(&c, "memory", "Memory of the ranks of every place in the pipeline, by what it is for");
  tr_text_append(c.out, "<path class=\"axis\" d=\"M%.1f %.1fV%.1fH%.1f\"/>\n", c.left, c.top, c.height - c.bottom,
                 c.width - c.right);
  for (int k = 0; k <= 4; k++) {
    char shown[32];
    tr__plan_format(shown, sizeof shown, TR__PLAN_MEMORY, k * room / 4);
    tr__page_label(c.out, c.left - 8, tr__page_y(&c, k * room / 4) + 4, "end", shown);
  }
  const int64_t stride = n > 40 ? 8 : n > 16 ? 4 : 1;
  for (int64_t r = 0; r < n; r++) {
    const double x = tr__page_x(&c, (double)r + 0.5) - bar / 2;
    char number[24];
    draw_stack(&c, r, x, bar, &rank[r]);
    snprintf(number, sizeof number, "%lld", (long long)r);
    if (r % stride == 0) tr__page_label(c.out, x + bar / 2, c.height - c.bottom + 16, "middle", number);
  }
  tr__page_label(c.out, c.width - c.right, c.height - 6, "end", c.x.label);
  tr__page_label(c.out, 4, c.top - 12, "start", c.y.label);
  tr__page_mark_y(&c, room, "a device has");
  draw_legend(&c, rank, n);
  tr__page_chart_close(&c);
}

static void table_of_memory(tr_text *out, const tr_footprint *rank, int64_t n) {
  const char *head[PARTS + 3] = {"place"};
  for (int i = 0; i < PARTS; i++) head[i + 1] = part_name(i);
  head[PARTS + 1] = "all";
  tr__page_table(out, "numbers", head);
  for (int64_t r = 0; r < n; r++) {
    char name[24], cell[PARTS + 1][32];
    snprintf(name, sizeof name, "%lld", (long long)r);
    for (int i = 0; i < PARTS; i++) tr__plan_format(cell[i], sizeof cell[i], TR__PLAN_MEMORY, part_of(&rank[r], i));
    tr__plan_format(cell[PARTS], sizeof cell[PARTS], TR__PLAN_MEMORY, rank[r].process);
    tr__page_row(out, name, PARTS + 1, cell);
  }
  tr__page_table_end(out);
}

void tr__page_memory(tr__page *page) {
  const tr__plan_case *c = page->c;
  const int64_t n = c->plan.pp;
  char left[32], same[80];
  tr_footprint *rank = calloc((size_t)n, sizeof *rank);
  tr__page_section(&page->out, "Memory of every rank");
  if (rank && tr_predict_rank_memory(&c->plan, &c->model, &c->cluster, rank) == TR_OK) {
    const double free_bytes = c->cluster.device.memory_gib * 1073741824.0 - page->x.memory.process;
    draw_stacks(page, rank, n);
    const int64_t ranks = tr_plan_devices(&c->plan) / n;
    if (ranks == 1)
      snprintf(same, sizeof same, "Each place in the pipeline is one rank.");
    else
      snprintf(same, sizeof same, "The %lld ranks of one place in the pipeline hold the same.", (long long)ranks);
    tr__plan_format(left, sizeof left, TR__PLAN_MEMORY, fabs(free_bytes));
    tr__page_caption(&page->out,
                     "%s The fullest is place %lld, most of "
                     "it %s; %s %s there.",
                     same, (long long)page->x.memory.stage, tr_memory_item_name(page->x.memory.biggest), left,
                     free_bytes >= 0 ? "are left" : "are lacking");
    table_of_memory(&page->out, rank, n);
  } else {
    page->out.failed = 1;
  }
  tr__page_section_end(&page->out);
  free(rank);
}

// ---- time

// One term behind the other, so that they end at the step.
static void draw_terms(tr__page *page) {
  const tr_prediction *x = &page->x;
  int rows = 1;
  for (int i = 0; i < TR_TERM_COUNT; i++) rows += x->term[i] > 0;
  tr__page_chart c = {
      .out = &page->out, .width = 860, .height = 60 + 26.0 * rows, .left = 96, .right = 150, .top = 30, .bottom = 30};
  c.x = (tr__page_axis){0, x->high * 1.02, 0, "", TR__PLAN_TIME};
  c.y = (tr__page_axis){0, 1, 0, "", TR__PLAN_NUMBER};
  tr__page_chart_open(&c, "step", "The time of a step, term by term");
  double begin = 0, y = c.top;
  for (int i = 0; i <= TR_TERM_COUNT; i++) {
    const int whole = i == TR_TERM_COUNT;
    const double seconds = whole ? x->step : x->term[i];
    char time[32], text[64], classes[24];
    if (!(seconds > 0)) continue;
    tr__plan_format(time, sizeof time, TR__PLAN_TIME, seconds);
    snprintf(text, sizeof text, "%s, %.1f %%", time, 100 * seconds / x->step);
    snprintf(classes, sizeof classes, whole ? "bar whole" : "bar f%d", i);
    const double from = tr__page_x(&c, whole ? 0 : begin), to = tr__page_x(&c, (whole ? 0 : begin) + seconds);
    tr__page_label(c.out, c.left - 8, y + 14, "end", whole ? "a step" : tr_time_term_name((tr_time_term)i));
    tr__page_box(c.out, classes, from, y, fmax(to - from, 1), 18, text);
    tr__page_label(c.out, (whole ? tr__page_x(&c, x->high) : to) + 8, y + 14, "start", text);
    if (!whole) begin += seconds;
    if (whole)
      tr_text_append(c.out, "<path class=\"mark solid\" d=\"M%.1f %.1fH%.1fM%.1f %.1fv10M%.1f %.1fv10\"/>\n",
                     tr__page_x(&c, x->low), y + 9, tr__page_x(&c, x->high), tr__page_x(&c, x->low), y + 4,
                     tr__page_x(&c, x->high), y + 4);
    y += 26;
  }
  tr__page_chart_close(&c);
}

void tr__page_step(tr__page *page) {
  const tr_prediction *x = &page->x;
  char low[32], high[32];
  tr__plan_format(low, sizeof low, TR__PLAN_TIME, x->low);
  tr__plan_format(high, sizeof high, TR__PLAN_TIME, x->high);
  tr__page_section(&page->out, "Where a step's time goes");
  draw_terms(page);
  tr__page_caption(&page->out,
                   "What overlaps counts only where it sticks out. Nine in ten comparable runs take %s to %s: the "
                   "line through the last bar.",
                   low, high);
  tr__page_section_end(&page->out);
}

// ---- timeline

// Enough of them for warm-up, steady state and cool-down, in whole rounds of the schedule.
static int64_t shown_of(const tr_plan *p) {
  const int64_t m = p->batch / (p->dp * p->micro), even = p->pp % 2 ? p->pp + 1 : p->pp;
  int64_t shown = p->pp == 1 ? 8 : p->vpp > 1 ? 2 * p->pp : 2 * even;
  if (p->vpp > 1 && m % p->pp) return m;
  return shown < m ? shown : m;
}

void tr__page_timeline(tr__page *page) {
  const tr__plan_case *c = page->c;
  const int64_t m = c->plan.batch / (c->plan.dp * c->plan.micro);
  int64_t shown = shown_of(&c->plan);
  char title[192], bubble[32];
  tr_pipeline *l = NULL;
  tr__page_section(&page->out, "Timeline of a step");
  tr_status status = tr_pipeline_open(&c->plan, &c->model, &c->cluster, shown, &l);
  if (status == TR_ERR_PLAN && shown < m) status = tr_pipeline_open(&c->plan, &c->model, &c->cluster, shown = m, &l);
  if (status == TR_OK) {
    const double whole = 1e-9 * (double)tr_pipeline_result(l)->makespan;
    snprintf(title, sizeof title, "%s, %lld rank%s, %lld micro-batch%s", tr_plan_schedule(&c->plan),
             (long long)c->plan.pp, tr_text_plural(c->plan.pp, "s"), (long long)shown, tr_text_plural(shown, "es"));
    tr_text_append(&page->out, "<div class=\"scroll\" id=\"timeline\">");
    tr_sim_draw_svg(tr_pipeline_programs(l), tr_pipeline_result(l), title, whole < 1 ? 1e6 : 1e9,
                    whole < 1 ? "ms" : "s", &page->out);
    tr_text_append(&page->out, "</div>\n");
    snprintf(bubble, sizeof bubble, "%.1f %%", 100 * tr_pipeline_result(l)->bubble);
    tr__page_caption(
        &page->out,
        "Passes of one pipeline as the simulator runs its step programs, %lld micro-batch%s of the %lld of a step; "
        "the critical path is outlined. Ranks are idle for %s of what is shown.",
        (long long)shown, tr_text_plural(shown, "es"), (long long)m, bubble);
  } else {
    page->out.failed |= status == TR_ERR_MEMORY;
    tr_text_append(&page->out, "<p id=\"timeline\">");
    tr__page_escaped(&page->out, tr_status_text());
    tr_text_append(&page->out, "</p>\n");
  }
  tr_pipeline_close(l);
  tr__page_section_end(&page->out);
}
