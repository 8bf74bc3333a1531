// SPDX-License-Identifier: MIT
// Loss curves from metrics.jsonl: as text for a terminal, as an SVG for everything else.
//
// A run that was resumed has logged some steps twice; the later record is what the weights went through, so a
// record takes back every point at or beyond its step. A line that is no JSON (a run was killed while writing
// it) is skipped. Both drawings average the points into as many bins as they can show.
#include "train/train_internal.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/train/train.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct point {
  double step, loss;
} point;
typedef struct series {
  point *at;
  size_t count, capacity;
} series;

// What is to be drawn, and the range of both axes.
typedef struct curve {
  series train, val;
  double step_min, step_max, low, high;
} curve;

// ---- reading
static void take_back(series *s, double step, int inclusive) {
  while (s->count && (s->at[s->count - 1].step > step || (inclusive && s->at[s->count - 1].step == step))) s->count--;
}

static tr_status push(series *s, double step, double loss) {
  if (s->count == s->capacity) {
    size_t more = s->capacity ? 2 * s->capacity : 256;
    point *larger = reallocarray(s->at, more, sizeof *larger);
    if (!larger) return tr_error(TR_ERR_MEMORY, "no memory for a curve of %zu points", more);
    s->at = larger;
    s->capacity = more;
  }
  s->at[s->count++] = (point){step, loss};
  return TR_OK;
}

static tr_status add_loss(series *s, double step, const json_t *loss) {
  if (!loss) return TR_OK;
  take_back(s, step, 1);
  double value = json_number_value(loss);
  return json_is_number(loss) && fabs(value) < 1e100 ? push(s, step, value) : TR_OK;
}

static tr_status add_record(curve *c, const json_t *record) {
  const json_t *step = json_object_get(record, "step");
  if (!json_is_integer(step) || json_object_get(record, "event")) return TR_OK;
  double at = (double)json_integer_value(step);
  const json_t *loss = json_object_get(record, "loss"), *val_loss = json_object_get(record, "val_loss");
  if (!loss && !val_loss) return TR_OK;
  take_back(&c->val, at, loss != NULL);
  TR_TRY(add_loss(&c->train, at, loss));
  return add_loss(&c->val, at, val_loss);
}

static tr_status read_lines(curve *c, const char *data, size_t nbyte) {
  while (nbyte > 0) {
    const char *end = memchr(data, '\n', nbyte);
    size_t n = end ? (size_t)(end - data) : nbyte;
    json_t *record = json_loadb(data, n, 0, NULL);
    tr_status status = add_record(c, record);
    json_decref(record);
    if (status < 0) return status;
    n += end != NULL;
    data += n;
    nbyte -= n;
  }
  return TR_OK;
}

static void widen(curve *c, const series *s) {
  for (size_t i = 0; i < s->count; i++) {
    c->step_min = fmin(c->step_min, s->at[i].step);
    c->step_max = fmax(c->step_max, s->at[i].step);
    c->low = fmin(c->low, s->at[i].loss);
    c->high = fmax(c->high, s->at[i].loss);
  }
}

static void set_range(curve *c) {
  c->step_min = c->low = INFINITY;
  c->step_max = c->high = -INFINITY;
  widen(c, &c->train);
  widen(c, &c->val);
  if (c->step_max <= c->step_min) c->step_max = c->step_min + 1;
  double least = 1e-3 * fmax(fabs(c->high), 1e-6);
  if (c->high - c->low < least) {
    c->low -= least;
    c->high += least;
  }
}

// The mean step and loss of the points in each of nbin equal parts of the axis; empty parts are left out.
static tr_status reduce(const curve *c, const series *s, int nbin, series *out) {
  *out = (series){0};
  for (size_t i = 0; i < s->count;) {
    double width = (c->step_max - c->step_min) / nbin, bin = floor((s->at[i].step - c->step_min) / width);
    point sum = {0, 0};
    size_t first = i;
    for (; i < s->count && (i == first || floor((s->at[i].step - c->step_min) / width) == bin); i++) {
      sum.step += s->at[i].step;
      sum.loss += s->at[i].loss;
    }
    double n = (double)(i - first);
    TR_TRY(push(out, sum.step / n, sum.loss / n));
  }
  return TR_OK;
}

// ---- text
enum { LABEL = 10, LEAST_COLUMNS = 30, LEAST_ROWS = 8, MOST = 1000 };

typedef struct canvas {
  char *cell;
  int columns, rows;
} canvas; // inside the axes

static int row_of(const curve *c, const canvas *k, double loss) {
  int row = (int)lround((c->high - loss) / (c->high - c->low) * (k->rows - 1));
  return row < 0 ? 0 : row < k->rows ? row : k->rows - 1;
}

static int column_of(const curve *c, const canvas *k, double step) {
  int column = (int)lround((step - c->step_min) / (c->step_max - c->step_min) * (k->columns - 1));
  return column < 0 ? 0 : column < k->columns ? column : k->columns - 1;
}

// Points, and the straight lines between them when `joined`.
static void plot(const curve *c, const canvas *k, const series *s, char mark, int joined) {
  for (size_t i = 0; i < s->count; i++) {
    int to = column_of(c, k, s->at[i].step), from = joined && i ? column_of(c, k, s->at[i - 1].step) + 1 : to;
    for (int x = from < to ? from : to; x <= to; x++) {
      double loss = s->at[i].loss;
      if (x < to) {
        double share = (double)(x - from + 1) / (to - from + 1);
        loss = s->at[i - 1].loss + share * (s->at[i].loss - s->at[i - 1].loss);
      }
      k->cell[row_of(c, k, loss) * k->columns + x] = mark;
    }
  }
}

static void print_axis(const curve *c, const canvas *k, tr_text *text) {
  char first[32], last[32];
  snprintf(first, sizeof first, "%.0f", c->step_min);
  snprintf(last, sizeof last, "%.0f", c->step_max);
  tr_text_append(text, "%*s +", LABEL, "");
  for (int x = 0; x < k->columns; x++) tr_text_append(text, "-");
  tr_text_append(text, "\n%*s  %s%*s\n", LABEL, "", first, k->columns - (int)strlen(first), last);
}

static void print_canvas(const curve *c, const canvas *k, tr_text *text) {
  for (int y = 0; y < k->rows; y++) {
    double loss = c->high - (c->high - c->low) * y / (k->rows - 1);
    if (y % 4 == 0 || y == k->rows - 1)
      tr_text_append(text, "%*.4g |", LABEL, loss);
    else
      tr_text_append(text, "%*s |", LABEL, "");
    int n = k->columns;
    while (n > 0 && k->cell[y * k->columns + n - 1] == ' ') n--;
    tr_text_append(text, "%.*s\n", n, k->cell + y * k->columns);
  }
  print_axis(c, k, text);
  tr_text_append(text, "%*s  loss by step: * training%s\n", LABEL, "", c->val.count ? "   o validation" : "");
}

static int clamp(int value, int least, int most) { return value < least ? least : value > most ? most : value; }

static tr_status draw_text(const curve *c, int columns, int rows, tr_text *text) {
  canvas k = {.columns = clamp(columns, LEAST_COLUMNS, MOST) - LABEL - 2, .rows = clamp(rows, LEAST_ROWS, MOST) - 3};
  size_t cells = (size_t)k.columns * (size_t)k.rows;
  series train = {0}, val = {0};
  if (!(k.cell = malloc(cells))) return tr_error(TR_ERR_MEMORY, "no memory for a drawing of %zu characters", cells);
  memset(k.cell, ' ', cells);
  tr_status status = reduce(c, &c->train, k.columns, &train);
  if (status == TR_OK) status = reduce(c, &c->val, k.columns, &val);
  if (status == TR_OK) {
    plot(c, &k, &train, '*', 1);
    plot(c, &k, &val, 'o', 0);
    print_canvas(c, &k, text);
  }
  free(train.at);
  free(val.at);
  free(k.cell);
  return status;
}

// ---- SVG
enum { WIDTH = 800, HEIGHT = 450, LEFT = 72, RIGHT = 24, TOP = 56, BOTTOM = 56, SVG_BINS = 1200, TICKS = 7 };

// Colours of their own for dark viewers; the background is drawn, so that it reads on any page.
static const char svg_head[] =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 450\" width=\"800\" height=\"450\" "
    "role=\"img\">\n"
    "<title>Loss by training step</title>\n"
    "<style>\n"
    "text { font: 13px sans-serif; fill: #333 } .title { font-size: 17px } .page { fill: #fff }\n"
    ".axis { stroke: #666; fill: none } .grid { stroke: #ddd }\n"
    ".train { stroke: #1f6fd0; fill: none; stroke-width: 1.6 } .val { stroke: #d9680f; fill: none; "
    "stroke-width: 1.6 }\n"
    ".dot { fill: #d9680f }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "text { fill: #ddd } .page { fill: #1c1c20 } .axis { stroke: #999 } .grid { stroke: #3a3a40 }\n"
    ".train { stroke: #6cb0ff } .val { stroke: #ffae62 } .dot { fill: #ffae62 }\n"
    "}\n"
    "</style>\n"
    "<rect class=\"page\" width=\"800\" height=\"450\"/>\n"
    "<text class=\"title\" x=\"72\" y=\"28\">Loss by training step</text>\n";

static double x_of(const curve *c, double step) {
  return LEFT + (step - c->step_min) / (c->step_max - c->step_min) * (WIDTH - LEFT - RIGHT);
}
static double y_of(const curve *c, double loss) {
  return TOP + (c->high - loss) / (c->high - c->low) * (HEIGHT - TOP - BOTTOM);
}

// The distance of about TICKS ticks over `range`: 1, 2 or 5 times a power of ten.
static double tick_distance(double range) {
  double rough = range / TICKS, power = pow(10, floor(log10(rough))), lead = rough / power;
  return power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
}

static void svg_axes(const curve *c, tr_text *out) {
  double step = fmax(1, tick_distance(c->step_max - c->step_min)), loss = tick_distance(c->high - c->low);
  int digits = loss < 1 ? (int)ceil(-log10(loss) - 1e-9) : 0;
  for (double i = ceil(c->low / loss); i * loss <= c->high; i++) {
    double y = y_of(c, i * loss);
    tr_text_append(out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT, y, WIDTH - RIGHT);
    tr_text_append(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.*f</text>\n", LEFT - 8, y + 4, digits,
                   i * loss);
  }
  for (double i = ceil(c->step_min / step); i * step <= c->step_max; i++) {
    double x = x_of(c, i * step);
    tr_text_append(out, "<path class=\"axis\" d=\"M%.1f %dv5\"/>", x, HEIGHT - BOTTOM);
    tr_text_append(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>\n", x, HEIGHT - BOTTOM + 20,
                   i * step);
  }
  tr_text_append(out, "<path class=\"axis\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP, HEIGHT - BOTTOM, WIDTH - RIGHT);
  tr_text_append(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n", (LEFT + WIDTH - RIGHT) / 2,
                 HEIGHT - 14);
  tr_text_append(out, "<text transform=\"translate(18 %d) rotate(-90)\" text-anchor=\"middle\">loss</text>\n",
                 (TOP + HEIGHT - BOTTOM) / 2);
}

static void svg_line(const curve *c, const series *s, const char *class, tr_text *out) {
  tr_text_append(out, "<polyline class=\"%s\" points=\"", class);
  for (size_t i = 0; i < s->count; i++)
    tr_text_append(out, "%s%.1f,%.1f", i ? " " : "", x_of(c, s->at[i].step), y_of(c, s->at[i].loss));
  tr_text_append(out, "\"/>\n");
}

static void svg_legend(const series *s, const char *class, const char *name, int x, tr_text *out) {
  if (s->count == 0) return;
  const point *last = &s->at[s->count - 1];
  tr_text_append(out, "<path class=\"%s\" d=\"M%d 24h24\"/><text x=\"%d\" y=\"28\">%s %.4g at step %.0f</text>\n",
                 class, x, x + 30, name, last->loss, last->step);
}

static tr_status svg_text(const curve *c, tr_text *out) {
  series train = {0}, val = {0};
  tr_status status = reduce(c, &c->train, SVG_BINS, &train);
  if (status == TR_OK) status = reduce(c, &c->val, SVG_BINS, &val);
  if (status == TR_OK) {
    tr_text_append(out, "%s", svg_head);
    svg_axes(c, out);
    svg_line(c, &train, "train", out);
    svg_line(c, &val, "val", out);
    for (size_t i = 0; i < val.count && val.count <= 60; i++)
      tr_text_append(out, "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>\n", x_of(c, val.at[i].step),
                     y_of(c, val.at[i].loss));
    svg_legend(&c->train, "train", "training", 300, out);
    svg_legend(&c->val, "val", "validation", 550, out);
    tr_text_append(out, "</svg>\n");
    if (out->failed) status = tr_error(TR_ERR_MEMORY, "no memory for an SVG of the loss curve");
  }
  free(train.at);
  free(val.at);
  return status;
}

static tr_status draw_svg(const curve *c, const char *path) {
  tr_text out = {0};
  tr_status status = svg_text(c, &out);
  if (status == TR_OK) status = tr_file_write_atomic(path, out.data, out.size);
  tr_text_free(&out);
  return status;
}

static tr_status draw(curve *c, const char *metrics_path, const char *svg_path, int columns, int rows,
                      tr_text *text) {
  if (c->train.count + c->val.count == 0) {
    tr_text_append(text, "%s: no losses in it yet, so there is no curve to draw\n", metrics_path);
    return TR_OK;
  }
  set_range(c);
  TR_TRY(draw_text(c, columns, rows, text));
  return svg_path ? draw_svg(c, svg_path) : TR_OK;
}

tr_status tr_curve_draw(const char *metrics_path, const char *svg_path, int columns, int rows, tr_text *text) {
  tr_file_map map;
  curve c = {0};
  TR_TRY(tr_file_map_open(metrics_path, &map));
  tr_status status = read_lines(&c, (const char *)map.data, map.nbyte);
  if (status == TR_OK) status = draw(&c, metrics_path, svg_path, columns, rows, text);
  if (status == TR_OK && text->failed) status = tr_error(TR_ERR_MEMORY, "no memory for a drawing of the loss curve");
  free(c.train.at);
  free(c.val.at);
  tr_file_map_close(&map);
  return status;
}

void tr__curve_say(const tr_train_plan *plan) {
  const char *folder = plan->config->train.folder;
  char metrics[4096], svg[4096];
  tr_text text = {0};
  snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", folder);
  snprintf(svg, sizeof svg, "%s/loss.svg", folder);
  if (!tr_file_exists(metrics)) return; // not one step was taken
  if (tr_curve_draw(metrics, svg, 72, 16, &text) < 0)
    tr_log_warn("the loss curve could not be drawn: %s", tr_status_text());
  else if (text.data)
    printf("\n%s\nloss curve  %s\ncheckpoints %s/checkpoints\n", text.data, svg, folder);
  tr_text_free(&text);
}
