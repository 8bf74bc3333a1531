// SPDX-License-Identifier: MIT
// Pictures of the plans around a plan: the cube of tensor, pipeline and data parallelism with the cells in which a plan fits, and the
// frontier of time against memory.
//
// The cube is seen from above one corner: tensor parallelism goes down to the right, the pipeline down to the left, data parallelism
// up. Its cells are powers of two; each is the best plan of exactly these degrees on as many devices as they make.
#include "cli/plan_page_internal.h"
#include "trireme/plan/frontier.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEGREES = 24, SIDE = 15, SHOWN = 200 };

typedef struct cell {
  tr_plan plan;
  int exists, fits;
  double step, per_device, lacking;
} cell;

typedef struct cube {
  int ntp, npp, ndp; // powers of two along each side
  cell *at;          // [ntp][npp][ndp]
  double best;       // tokens per second and device of the fastest cell
  int fits, exists;
} cube;

static int powers(double most) { return most < 1 ? 1 : 1 + (int)floor(log2(most) + 1e-9); }

static cell *cell_at(const cube *q, int a, int b, int d) { return &q->at[(a * q->npp + b) * q->ndp + d]; }

static tr_search_options options_of(const tr__plan_case *k, const tr_plan *degrees) {
  tr_search_options o;
  tr_search_options_init(&o);
  o.fixed.batch = k->plan.batch;
  o.fixed.sequence = k->plan.sequence;
  o.fixed.number = k->plan.number;
  o.fixed.tp = degrees->tp;
  o.fixed.pp = degrees->pp;
  o.fixed.dp = degrees->dp;
  o.fixed.cp = o.fixed.ep = 1;
  o.top = 1;
  o.closed = 1;
  return o;
}

static tr_status fill_cell(const tr__plan_case *k, tr_search_result *found, cell *out) {
  const int64_t devices = tr_plan_devices(&out->plan), host = k->cluster.host_devices;
  tr_cluster part = k->cluster;
  if (devices > host && devices % host) return TR_OK;
  part.host_devices = devices < host ? devices : host;
  part.hosts = devices / part.host_devices;
  const tr_search_options o = options_of(k, &out->plan);
  tr_status status = tr_search(&k->model, &part, &o, found);
  if (status != TR_OK && status != TR_ERR_PLAN) return status;
  out->fits = status == TR_OK;
  out->exists = out->fits || isfinite(found->lacking);
  out->lacking = found->lacking;
  if (!out->fits) return TR_OK;
  out->plan = found->top[0].plan;
  out->step = found->top[0].prediction.step;
  out->per_device = found->top[0].prediction.tokens_per_device;
  return TR_OK;
}

static tr_status find_cube(const tr__plan_case *k, cube *q) {
  const double devices = (double)tr_plan_devices(&k->plan);
  q->ntp = powers(fmin(fmin((double)k->model.heads, 2 * (double)k->cluster.domain), devices));
  q->npp = powers(fmin((double)k->model.layers, devices));
  q->ndp = powers(fmin((double)k->plan.batch, devices));
  q->at = calloc((size_t)q->ntp * (size_t)q->npp * (size_t)q->ndp, sizeof *q->at);
  tr_search_result *found = malloc(sizeof *found);
  tr_status status = q->at && found ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory for a cube of plans");
  for (int a = 0; a < q->ntp && status == TR_OK; a++)
    for (int b = 0; b < q->npp && status == TR_OK; b++)
      for (int d = 0; d < q->ndp && status == TR_OK; d++) {
        cell *c = cell_at(q, a, b, d);
        tr_plan_init(&c->plan);
        c->plan.tp = 1 << a, c->plan.pp = 1 << b, c->plan.dp = 1 << d;
        if ((double)tr_plan_devices(&c->plan) > devices) continue;
        status = fill_cell(k, found, c);
        q->best = fmax(q->best, c->per_device);
        q->exists += c->exists, q->fits += c->fits;
      }
  free(found);
  return status;
}

// ---- drawing it

typedef struct view {
  tr_text *out;
  double x, y; // of the corner with degrees of one, on the floor
} view;

static void place(const view *v, double a, double b, double d, double *x, double *y) {
  *x = v->x + (a - b) * SIDE * 1.7;
  *y = v->y + (a + b) * SIDE * 0.85 - d * SIDE * 1.6;
}

// Three faces of a small cube around (a, b, d).
static void draw_cell(const view *v, const cube *q, const cell *c, const tr_plan *own) {
  const int is_own = c->plan.tp == own->tp && c->plan.pp == own->pp && c->plan.dp == own->dp;
  const double share = c->fits && q->best > 0 ? c->per_device / q->best : 0;
  double x, y;
  char title[192];
  const double h = SIDE * 0.62, w = h * 0.866;
  place(v, log2((double)c->plan.tp), log2((double)c->plan.pp), log2((double)c->plan.dp), &x, &y);
  if (c->fits)
    snprintf(title, sizeof title, "tp %lld, pp %lld, dp %lld: %.4g s a step, %.0f tokens/s per device",
             (long long)c->plan.tp, (long long)c->plan.pp, (long long)c->plan.dp, c->step, c->per_device);
  else
    snprintf(title, sizeof title, "tp %lld, pp %lld, dp %lld: lacks at least %.3g GiB", (long long)c->plan.tp,
             (long long)c->plan.pp, (long long)c->plan.dp, c->lacking / 1073741824.0);
  tr_text_append(v->out, "<g class=\"%s\"%s", is_own ? "cell own" : c->fits ? "cell fits" : "cell none", "");
  if (c->fits && !is_own) tr_text_append(v->out, " fill-opacity=\"%.2f\"", 0.25 + 0.75 * share);
  tr_text_append(v->out, "><title>");
  tr__page_escaped(v->out, title);
  tr_text_append(v->out, "</title><path d=\"M%.1f %.1fl%.1f %.1fl%.1f %.1fl%.1f %.1fz\"/>", x, y - h, w, h / 2, -w,
                 h / 2, -w, -h / 2);
  tr_text_append(v->out, "<path class=\"left\" d=\"M%.1f %.1fv%.1fl%.1f %.1fv%.1fz\"/>", x - w, y - h / 2, h, w,
                 h / 2, -h);
  tr_text_append(v->out, "<path class=\"right\" d=\"M%.1f %.1fv%.1fl%.1f %.1fv%.1fz\"/></g>\n", x + w, y - h / 2, h,
                 -w, h / 2, -h);
}

static void draw_side(const view *v, const cube *q, int side) {
  static const char *const name[] = {"tensor", "pipeline", "data"};
  const int n = side == 0 ? q->ntp : side == 1 ? q->npp : q->ndp;
  double x, y;
  for (int k = 0; k < n; k++) {
    char text[40];
    if (side < 2) place(v, side == 0 ? k : -1.2, side == 1 ? k : -1.2, 0, &x, &y);
    // Along the floor's far edges, and up the left corner.
    if (side == 0) place(v, k, q->npp - 0.1, 0, &x, &y);
    if (side == 1) place(v, q->ntp - 0.1, k, 0, &x, &y);
    if (side == 2) place(v, 0, q->npp - 1, k, &x, &y), x -= SIDE * 1.3, y += 4;
    snprintf(text, sizeof text, k == n - 1 ? "%s %d" : "%.0s%d", name[side], 1 << k);
    tr__page_label(v->out, x, y + (side < 2 ? 14 : 0), side == 1 ? "start" : "end", text);
  }
}

static void draw_cube(tr__page *page, const cube *q) {
  const double side = SIDE, width = (q->ntp + q->npp) * side * 1.7 + 240,
               floor_height = (q->ntp + q->npp) * side * 0.85;
  tr__page_chart c = {
      .out = &page->out, .width = fmax(width, 480), .height = floor_height + q->ndp * side * 1.6 + 60};
  view v = {.out = &page->out, .x = 120 + q->npp * side * 1.7, .y = q->ndp * side * 1.6 + 20};
  tr__page_chart_open(&c, "cube", "Degrees of tensor, pipeline and data parallelism in which a plan fits");
  for (int d = 0; d < q->ndp; d++) // from the floor up, from the back to the front
    for (int far = 0; far <= q->ntp + q->npp - 2; far++)
      for (int a = 0; a < q->ntp; a++) {
        const int b = far - a;
        if (b < 0 || b >= q->npp || !cell_at(q, a, b, d)->exists) continue;
        draw_cell(&v, q, cell_at(q, a, b, d), &page->c->plan);
      }
  for (int s = 0; s < 3; s++) draw_side(&v, q, s);
  tr__page_chart_close(&c);
}

void tr__page_cube(tr__page *page) {
  cube q = {.at = NULL};
  tr__page_section(&page->out, "The cube of degrees");
  if (find_cube(page->c, &q) == TR_OK) {
    draw_cube(page, &q);
    tr__page_caption(
        &page->out,
        "Each cube is the best plan with these degrees, on tp x pp x dp of %lld device%s, for the same batch: the "
        "fuller its colour, the more tokens a second each device does. Hollow ones do not fit; where nothing stands, "
        "the degrees do not divide. %d of %d fit. The dark one is this plan.",
        (long long)tr_plan_devices(&page->c->plan), tr_text_plural(tr_plan_devices(&page->c->plan), "s"), q.fits,
        q.exists);
  } else {
    page->out.failed = 1;
  }
  free(q.at);
  tr__page_section_end(&page->out);
}

// ---- the frontier

static void draw_frontier(tr__page *page, const tr_front_point **point, size_t n) {
  static const char *const head[] = {"plan", "a step", "memory", "MFU", NULL};
  const tr_prediction *own = &page->x;
  double x[SHOWN], y[SHOWN], most_x = own->memory.process, most_y = own->step;
  for (size_t i = 0; i < n; i++) {
    x[i] = point[i]->entry.prediction.memory.process;
    y[i] = point[i]->entry.prediction.step;
    most_x = fmax(most_x, x[i]), most_y = fmax(most_y, fmin(y[i], 20 * y[0]));
  }
  const double room = page->c->cluster.device.memory_gib * 1073741824.0;
  tr__page_chart c = {
      .out = &page->out, .width = 860, .height = 340, .left = 76, .right = 40, .top = 34, .bottom = 44};
  c.x = (tr__page_axis){0, fmax(most_x, room) * 1.03, 0, "memory of the fullest device", TR__PLAN_MEMORY};
  c.y = (tr__page_axis){0, most_y * 1.06, 0, "a step", TR__PLAN_TIME};
  tr__page_chart_open(&c, "frontier", "Plans that no other beats in both time and memory");
  tr__page_axes(&c);
  tr__page_line(&c, 0, NULL, n, x, y);
  for (size_t i = 0; i < n; i++) {
    char title[192];
    tr__plan_case_text(&point[i]->entry.plan, title, sizeof title);
    tr__page_dot(&c, 0, x[i], y[i], title);
  }
  tr__page_dot(&c, 4, own->memory.process, own->step, "this plan");
  if (own->step <= c.y.to && own->memory.process <= c.x.to)
    tr__page_label(&page->out, tr__page_x(&c, own->memory.process) + 8, tr__page_y(&c, own->step) - 8, "start",
                   "this plan");
  tr__page_mark_x(&c, room, "a device has");
  tr__page_chart_close(&c);
  tr__page_table(&page->out, "numbers", head);
  for (size_t i = 0; i < n; i++) {
    char name[192], shown[3][32];
    tr__plan_case_text(&point[i]->entry.plan, name, sizeof name);
    tr__plan_format(shown[0], sizeof shown[0], TR__PLAN_TIME, y[i]);
    tr__plan_format(shown[1], sizeof shown[1], TR__PLAN_MEMORY, x[i]);
    tr__plan_format(shown[2], sizeof shown[2], TR__PLAN_SHARE, point[i]->entry.prediction.mfu);
    tr__page_row(&page->out, name, 3, shown);
  }
  tr__page_table_end(&page->out);
}

void tr__page_frontier(tr__page *page) {
  const tr_front_point *kept[SHOWN];
  tr_plan free_plan;
  tr_frontier f;
  tr_plan_init(&free_plan);
  free_plan.tp = free_plan.pp = free_plan.dp = 0;
  tr_search_options o = options_of(page->c, &free_plan);
  o.fixed.cp = o.fixed.ep = 0;
  tr__page_section(&page->out, "The frontier");
  tr_status status = tr_frontier_find(&page->c->model, &page->c->cluster, &o, TR_FRONT_TIME | TR_FRONT_MEMORY, &f);
  if (status == TR_OK) status = tr_frontier_simulate(&page->c->model, &page->c->cluster, &o, &f);
  if (status == TR_OK) {
    const size_t n = tr_frontier_thin(&f, SHOWN, kept);
    draw_frontier(page, kept, n);
    tr__page_caption(&page->out,
                     "All plans on these devices that no other beats in both time and memory: %zu of %lld that were "
                     "compared by the closed forms, then simulated; those alike to a percent are drawn once.",
                     f.n, (long long)f.predicted);
    tr_frontier_free(&f);
  } else {
    page->out.failed |= status == TR_ERR_MEMORY;
    tr_text_append(&page->out, "<p id=\"frontier\">");
    tr__page_escaped(&page->out, tr_status_text());
    tr_text_append(&page->out, "</p>\n");
  }
  tr__page_section_end(&page->out);
}
