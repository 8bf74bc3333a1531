// SPDX-License-Identifier: MIT
// A timeline as SVG: a row per rank, a box per pass in its kind's colour (later chunks darker), its micro-batch inside where
// it has room, the critical path outlined, and the time below.
#include "trireme/sim/sim.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEFT = 64, RIGHT = 24, TOP = 64, ROW = 24, BOX = 20, BOTTOM = 40, WIDTH_LEAST = 720, WIDTH_MOST = 2400 };

typedef struct canvas {
  const tr_sim_result *result;
  double scale; // units of length per tick
  int width, height;
  tr_text *out;
} canvas;

static const char style[] =
    "<style>\ntext { font: 11px sans-serif; fill: #222 } .title { font-size: 16px } .page { fill: #fff }\n"
    ".box { stroke: #fff; stroke-width: 0.5 } .in { text-anchor: middle } .critical { fill: none; stroke: #111; "
    "stroke-width: 1.6 }\n.F { fill: #8fb8f0 } .B { fill: #8fd19e } .I { fill: #7fcfc9 } .W { fill: #f2cf66 } "
    ".X { fill: #c3a5e6 } .R { fill: #c9c9c9 } .O { fill: #e8a39b } .late { filter: brightness(0.82) }\n"
    ".axis { stroke: #666 } .grid { stroke: #ddd } .idle { fill: #f4f4f4 }\n"
    "@media (prefers-color-scheme: dark) {\n.page { fill: #1c1c20 } .idle { fill: #26262b } .label, .title { fill: "
    "#ddd "
    "} .axis { stroke: #999 } .grid { stroke: #3a3a40 } .critical { stroke: #fff }\n}\n</style>\n";

static const char *class_of(const tr_op *op) { return op->kind <= TR_OP_R ? tr_op_name((tr_op_kind)op->kind) : "O"; }

static void put_escaped(tr_text *out, const char *text) {
  for (; *text; text++) {
    if (*text == '<' || *text == '>' || *text == '&')
      tr_text_append(out, "&#%d;", *text);
    else
      tr_text_append_bytes(out, text, 1);
  }
}

static void open_page(const canvas *c, const char *title) {
  tr_text_append(c->out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                 "role=\"img\">\n<title>",
                 c->width, c->height, c->width, c->height);
  put_escaped(c->out, title);
  tr_text_append(c->out, "</title>\n%s<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n", style, c->width,
                 c->height);
  tr_text_append(c->out, "<text class=\"title\" x=\"%d\" y=\"24\">", LEFT);
  put_escaped(c->out, title);
  tr_text_append(c->out, "</text>\n");
}

static void draw_legend(const canvas *c) {
  static const char *const entry[][2] = {{"F", "forward"},     {"B", "backward"}, {"I", "for inputs"},
                                         {"W", "for weights"}, {"X", "a pair"},   {"R", "again"}};
  int x = LEFT;
  for (size_t i = 0; i < sizeof entry / sizeof *entry; i++) {
    tr_text_append(
        c->out,
        "<rect class=\"box %s\" x=\"%d\" y=\"36\" width=\"12\" height=\"12\"/><text class=\"label\" x=\"%d\" "
        "y=\"46\">%s</text>\n",
        entry[i][0], x, x + 16, entry[i][1]);
    x += 32 + 7 * (int)strlen(entry[i][1]);
  }
}

static double x_of(const canvas *c, int64_t tick) { return LEFT + (double)tick * c->scale; }
static int y_of(int rank) { return TOP + rank * ROW; }

static void draw_op(const canvas *c, int rank, const tr_op *op, tr_sim_event event) {
  const double x = x_of(c, event.begin), width = x_of(c, event.end) - x;
  const int y = y_of(rank);
  char label[48] = "";
  if (width <= 0) return;
  if (op->kind == TR_OP_X)
    snprintf(label, sizeof label, "%d+%d", op->microbatch, op->back_microbatch);
  else if (op->microbatch >= 0)
    snprintf(label, sizeof label, "%d", op->microbatch);
  tr_text_append(c->out, "<rect class=\"box %s%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"/>", class_of(op),
                 op->chunk > 0 ? " late" : "", x, y, width, BOX);
  if (*label && width > 7 * (double)strlen(label) + 2)
    tr_text_append(c->out, "<text class=\"in\" x=\"%.2f\" y=\"%d\">%s</text>", x + width / 2, y + 14, label);
  tr_text_append(c->out, "\n");
}

static void draw_rank(const canvas *c, int rank, const tr_program *program) {
  tr_text_append(c->out, "<text class=\"label\" x=\"%d\" y=\"%d\" text-anchor=\"end\">GPU%d</text>", LEFT - 8,
                 y_of(rank) + 14, rank);
  tr_text_append(c->out, "<rect class=\"idle\" x=\"%d\" y=\"%d\" width=\"%.2f\" height=\"%d\"/>\n", LEFT, y_of(rank),
                 (double)c->result->makespan * c->scale, BOX);
  for (uint32_t i = 0; i < program->nop; i++)
    if (program->op[i].lane == TR_LANE_COMPUTE) draw_op(c, rank, &program->op[i], c->result->event[rank][i]);
}

static void draw_path(const canvas *c, const tr_program *const *program) {
  for (uint32_t k = 0; k < c->result->ncritical; k++) {
    const uint32_t rank = c->result->critical[2 * k], i = c->result->critical[2 * k + 1];
    const tr_sim_event event = c->result->event[rank][i];
    if (program[rank]->op[i].lane != TR_LANE_COMPUTE || event.end == event.begin) continue;
    tr_text_append(c->out, "<rect class=\"critical\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"/>\n",
                   x_of(c, event.begin), y_of((int)rank), (double)(event.end - event.begin) * c->scale, BOX);
  }
}

// Marks at 1, 2 or 5 times a power of ten, about ten of them.
static void draw_axis(const canvas *c, double unit, const char *unit_name) {
  const int y = y_of(c->result->p) + 4;
  const double all = (double)c->result->makespan / unit;
  double step = all > 0 ? pow(10, floor(log10(all / 10))) : 1;
  const double steps = all / step;
  step *= steps > 50 ? 10 : steps > 20 ? 5 : steps > 10 ? 2 : 1;
  tr_text_append(c->out, "<path class=\"axis\" d=\"M%d %dH%.2f\"/>\n", LEFT, y, x_of(c, c->result->makespan));
  for (int k = 0; k * step <= all * (1 + 1e-12); k++) {
    const double x = LEFT + k * step * unit * c->scale;
    tr_text_append(
        c->out, "<path class=\"axis\" d=\"M%.2f %dv5\"/><text class=\"label in\" x=\"%.2f\" y=\"%d\">%g%s%s</text>\n",
        x, y, x, y + 18, k * step, *unit_name ? " " : "", unit_name);
  }
}

void tr_sim_draw_svg(const tr_program *const *program, const tr_sim_result *result, const char *title, double unit,
                     const char *unit_name, tr_text *out) {
  uint32_t passes = 0;
  for (uint32_t i = 0; i < program[0]->nop; i++) passes += program[0]->op[i].lane == TR_LANE_COMPUTE;
  double inside = fmin(fmax(32 * (double)passes, WIDTH_LEAST), WIDTH_MOST);
  canvas c = {.result = result, .out = out};
  c.scale = inside / (double)(result->makespan > 0 ? result->makespan : 1);
  c.width = LEFT + (int)inside + RIGHT;
  c.height = y_of(result->p) + BOTTOM;
  open_page(&c, title);
  draw_legend(&c);
  for (int r = 0; r < result->p; r++) draw_rank(&c, r, program[r]);
  draw_path(&c, program);
  draw_axis(&c, unit, unit_name);
  tr_text_append(out, "</svg>\n");
}
