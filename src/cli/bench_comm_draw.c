// SPDX-License-Identifier: MIT
// Drawings of `trireme bench comm`: bandwidth over size, both by their logarithms, as text and as SVG; and the map of pairs.
#include "cli/bench_comm_internal.h"
#include "trireme/base/file.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static double rate_of(const tr__comm_point *p) { return (double)p->nbyte / p->median; }

typedef struct axes {
  double bytes_low, bytes_high, rate_low, rate_high; // logarithms to base 2 and 10
} axes;

static void axes_begin(axes *a) { *a = (axes){INFINITY, -INFINITY, INFINITY, -INFINITY}; }

static void widen(axes *a, const tr__comm_point *p) {
  if (p->nbyte == 0) return;
  const double bytes = log2((double)p->nbyte), rate = log10(rate_of(p));
  a->bytes_low = fmin(a->bytes_low, bytes), a->bytes_high = fmax(a->bytes_high, bytes);
  a->rate_low = fmin(a->rate_low, rate), a->rate_high = fmax(a->rate_high, rate);
}

static void axes_end(axes *a) {
  if (!(a->bytes_high > a->bytes_low)) a->bytes_high = a->bytes_low + 1;
  if (!(a->rate_high > a->rate_low + 1e-3)) a->rate_low -= 0.05, a->rate_high += 0.05;
}

// ---- text

enum { COLUMNS = 72, ROWS = 12 };

static int position(double value, double low, double high, int cells) {
  const int at = (int)lround((value - low) / (high - low) * (cells - 1));
  return at < 0 ? 0 : at < cells ? at : cells - 1;
}

// Straight lines between points: column by column from the one before.
static void plot(const axes *a, const tr__comm_point *p, size_t n, char cell[ROWS][COLUMNS + 1]) {
  int from = -1;
  double before = 0;
  for (size_t i = 0; i < n; i++) {
    if (p[i].nbyte == 0) continue;
    const int to = position(log2((double)p[i].nbyte), a->bytes_low, a->bytes_high, COLUMNS);
    const double rate = log10(rate_of(&p[i]));
    for (int x = from < 0 ? to : from + 1; x <= to; x++) {
      const double share = from < 0 ? 1 : (double)(x - from) / (to - from);
      const double at = from < 0 ? rate : before + share * (rate - before);
      cell[ROWS - 1 - position(at, a->rate_low, a->rate_high, ROWS)][x] = x == to ? '*' : '.';
    }
    from = to, before = rate;
  }
}

void tr__comm_draw_curve(const tr__comm_point *point, size_t n, tr_text *out) {
  char cell[ROWS][COLUMNS + 1], first[32], last[32];
  axes a;
  axes_begin(&a);
  for (size_t i = 0; i < n; i++) widen(&a, &point[i]);
  if (!isfinite(a.bytes_low)) return;
  axes_end(&a);
  for (int y = 0; y < ROWS; y++) memset(cell[y], ' ', COLUMNS), cell[y][COLUMNS] = '\0';
  plot(&a, point, n, cell);
  tr_text_append(out, "%10s\n", "alg GB/s");
  for (int y = 0; y < ROWS; y++) {
    const double rate = a.rate_high - (a.rate_high - a.rate_low) * y / (ROWS - 1);
    int used = COLUMNS;
    while (used > 0 && cell[y][used - 1] == ' ') used--;
    if (y % 3 == 0 || y == ROWS - 1)
      tr_text_append(out, "%10.3g |%.*s\n", pow(10, rate - 9), used, cell[y]);
    else
      tr_text_append(out, "%10s |%.*s\n", "", used, cell[y]);
  }
  tr_format_bytes(first, sizeof first, exp2(a.bytes_low));
  tr_format_bytes(last, sizeof last, exp2(a.bytes_high));
  tr_text_append(out, "%10s +", "");
  for (int x = 0; x < COLUMNS; x++) tr_text_append(out, "-");
  tr_text_append(out, "\n%10s  %s%*s\n", "", first, COLUMNS - (int)strlen(first), last);
}

// ---- SVG of curves

enum { WIDTH = 960, HEIGHT = 520, LEFT = 72, RIGHT = 280, TOP = 56, BOTTOM = 56, COLOURS = 8, LEGEND = 26 };

static const char *const colour[COLOURS] = {"#1f6fd0", "#d9680f", "#2a9d55", "#c0392b",
                                            "#8e5bc0", "#8a6d3b", "#d6489b", "#3aa6a6"};

static const char style[] =
    "<style>\ntext { font: 13px sans-serif; fill: #333 } .title { font-size: 17px } .page { fill: #fff }\n"
    ".axis { stroke: #666; fill: none } .grid { stroke: #ddd } .curve { fill: none; stroke-width: 1.8 }\n"
    "@media (prefers-color-scheme: dark) {\ntext { fill: #ddd } .page { fill: #1c1c20 } .axis { stroke: #999 } "
    ".grid { stroke: #3a3a40 }\n}\n</style>\n";

static void svg_begin(tr_text *out, int width, int height, const char *title) {
  tr_text_append(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                 "role=\"img\">\n<title>%s</title>\n%s<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n"
                 "<text class=\"title\" x=\"%d\" y=\"28\">%s</text>\n",
                 width, height, width, height, title, style, width, height, LEFT, title);
}

static double x_of(const axes *a, double log_bytes) {
  return LEFT + (log_bytes - a->bytes_low) / (a->bytes_high - a->bytes_low) * (WIDTH - LEFT - RIGHT);
}
static double y_of(const axes *a, double log_rate) {
  return TOP + (a->rate_high - log_rate) / (a->rate_high - a->rate_low) * (HEIGHT - TOP - BOTTOM);
}

static void svg_axes(const axes *a, tr_text *out) {
  char size[32];
  for (double power = ceil(a->rate_low - 1e-9); power <= a->rate_high + 1e-9; power++) {
    const double y = y_of(a, power);
    tr_text_append(out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT, y, WIDTH - RIGHT);
    tr_text_append(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", LEFT - 8, y + 4,
                   pow(10, power - 9));
  }
  for (double power = ceil(a->bytes_low / 3) * 3; power <= a->bytes_high; power += 3) {
    const double x = x_of(a, power);
    tr_format_bytes(size, sizeof size, exp2(power));
    tr_text_append(out, "<path class=\"axis\" d=\"M%.1f %dv5\"/>", x, HEIGHT - BOTTOM);
    tr_text_append(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x, HEIGHT - BOTTOM + 20,
                   size);
  }
  tr_text_append(out, "<path class=\"axis\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP, HEIGHT - BOTTOM, WIDTH - RIGHT);
  tr_text_append(out,
                 "<text transform=\"translate(18 %d) rotate(-90)\" text-anchor=\"middle\">algorithm GB/s</text>\n",
                 (TOP + HEIGHT - BOTTOM) / 2);
}

static void svg_curve(const axes *a, const tr__comm_point *p, size_t n, int index, tr_text *out) {
  char name[96];
  const char *c = colour[index % COLOURS];
  tr_text_append(out, "<polyline class=\"curve\" stroke=\"%s\"%s points=\"", c,
                 index / COLOURS % 2 ? " stroke-dasharray=\"6 3\"" : "");
  for (size_t i = 0; i < n; i++)
    if (p[i].nbyte > 0)
      tr_text_append(out, "%.1f,%.1f ", x_of(a, log2((double)p[i].nbyte)), y_of(a, log10(rate_of(&p[i]))));
  tr_text_append(out, "\"/>\n");
  if (index >= LEGEND) return;
  tr_text_append(out, "<path class=\"curve\" stroke=\"%s\" d=\"M%d %dh20\"/><text x=\"%d\" y=\"%d\">%s</text>\n", c,
                 WIDTH - RIGHT + 12, TOP + 17 * index, WIDTH - RIGHT + 38, TOP + 17 * index + 4,
                 tr__comm_case_name(&p->of, name, sizeof name));
}

static tr_status finish(tr_text *out, const char *path) {
  tr_text_append(out, "</svg>\n");
  tr_status status = out->failed ? tr_error(TR_ERR_MEMORY, "no memory for a drawing")
                                 : tr_file_write_atomic(path, out->data, out->size);
  tr_text_free(out);
  return status;
}

tr_status tr__comm_write_curves(const tr__comm_job *job, const char *path) {
  char title[96];
  tr_text out = {0};
  axes a;
  int index = 0;
  axes_begin(&a);
  for (size_t i = 0; i < job->npoint; i++) widen(&a, &job->point[i]);
  if (!isfinite(a.bytes_low)) a = (axes){0, 1, 9, 10};
  axes_end(&a);
  snprintf(title, sizeof title, "Bandwidth by size, %d ranks, engine %s", job->nrank, job->results->engine);
  svg_begin(&out, WIDTH, HEIGHT, title);
  svg_axes(&a, &out);
  for (size_t i = 0, n; i < job->npoint; i += n) {
    n = tr__comm_case_length(job, i);
    if (job->point[i].nbyte > 0) svg_curve(&a, &job->point[i], n, index++, &out);
  }
  return finish(&out, path);
}

// ---- SVG of the map: the upper half latency, the lower half bandwidth

enum { CELL = 44, CELLS_MOST = 1400 };

// From light to dark blue, 0 to 1.
static void cell_colour(double share, char out[8]) {
  const double s = share < 0 ? 0 : share > 1 ? 1 : share;
  const int r = (int)(235 - 200 * s), g = (int)(243 - 143 * s), b = (int)(252 - 72 * s);
  snprintf(out, 8, "#%02x%02x%02x", (unsigned)r & 255u, (unsigned)g & 255u, (unsigned)b & 255u);
}

static double share_of(const double *pairs, int n, double value) {
  double least = INFINITY, most = 0;
  for (int i = 0; i < n * n; i++)
    if (pairs[i] > 0) least = fmin(least, pairs[i]), most = fmax(most, pairs[i]);
  return most > least ? log(most / value) / log(most / least) : 0.5;
}

static void svg_cell(const tr__comm_job *job, int i, int j, int cell, double bytes, tr_text *out) {
  const int n = job->nrank, x = LEFT + j * cell, y = TOP + 16 + i * cell, upper = i < j;
  const double *pairs = upper ? job->small : job->large, value = pairs[i * n + j];
  char fill[8];
  cell_colour(share_of(pairs, n, value), fill);
  tr_text_append(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"><title>", x, y, cell - 1,
                 cell - 1, fill);
  tr_text_append(out, "ranks %d and %d, %s: %.2f %s</title></rect>\n", i, j, tr__comm_path_name(job->path[i * n + j]),
                 upper ? value * 1e6 : bytes / value * 1e-9, upper ? "us" : "GB/s");
  if (cell == CELL)
    tr_text_append(
        out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" style=\"fill: #222; font-size: 11px\">%.3g</text>\n",
        x + cell / 2, y + cell / 2 + 4, upper ? value * 1e6 : bytes / value * 1e-9);
}

tr_status tr__comm_write_matrix(const tr__comm_job *job, const char *path) {
  const int n = job->nrank;
  int cell = CELLS_MOST / n;
  tr_text out = {0};
  if (cell > CELL) cell = CELL;
  if (cell < 2) cell = 2;
  const int side = n * cell, width = LEFT + side + 24;
  svg_begin(&out, width < 620 ? 620 : width, TOP + side + 40,
            "Pairs: upper half latency, us; lower half bandwidth, GB/s");
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < n; j++)
      if (i != j) svg_cell(job, i, j, cell, (double)job->most, &out);
    if (cell < 12) continue;
    tr_text_append(&out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%d</text>", LEFT - 6,
                   TOP + 16 + i * cell + cell / 2 + 4, i);
    tr_text_append(&out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", LEFT + i * cell + cell / 2,
                   TOP + 10, i);
  }
  return finish(&out, path);
}
