// SPDX-License-Identifier: MIT
// Drawing for the page of a plan (plan_page_internal.h): axes with marks at round numbers, lines, boxes, labels, tables. Numbers that
// do not exist are left out, so that nothing but finite numbers is ever written.
#include "cli/plan_page_internal.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// ---- text

void tr__page_escaped(tr_text *out, const char *text) {
  for (; *text; text++) {
    const char *name = *text == '<'   ? "&lt;"
                       : *text == '>' ? "&gt;"
                       : *text == '&' ? "&amp;"
                       : *text == '"' ? "&quot;"
                                      : NULL;
    if (name)
      tr_text_append(out, "%s", name);
    else if ((unsigned char)*text >= 0x20)
      tr_text_append_bytes(out, text, 1);
  }
}

void tr__page_section(tr_text *out, const char *title) {
  tr_text_append(out, "<section>\n<h2>");
  tr__page_escaped(out, title);
  tr_text_append(out, "</h2>\n");
}

void tr__page_section_end(tr_text *out) { tr_text_append(out, "</section>\n"); }

void tr__page_caption(tr_text *out, const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  tr_text_append(out, "<p>");
  tr__page_escaped(out, text);
  tr_text_append(out, "</p>\n");
}

void tr__page_table(tr_text *out, const char *summary, const char *const *head) {
  tr_text_append(out, "<details><summary>");
  tr__page_escaped(out, summary);
  tr_text_append(out, "</summary><div class=\"scroll\"><table>\n");
  if (!head) return;
  tr_text_append(out, "<tr>");
  for (; *head; head++) tr_text_append(out, "<th>%s</th>", *head);
  tr_text_append(out, "</tr>\n");
}

void tr__page_row(tr_text *out, const char *name, size_t n, char (*cell)[32]) {
  tr_text_append(out, "<tr><th>");
  tr__page_escaped(out, name);
  tr_text_append(out, "</th>");
  for (size_t i = 0; i < n; i++) {
    tr_text_append(out, "<td>");
    tr__page_escaped(out, cell[i]);
    tr_text_append(out, "</td>");
  }
  tr_text_append(out, "</tr>\n");
}

void tr__page_table_end(tr_text *out) { tr_text_append(out, "</table></div></details>\n"); }

// ---- places

static double share_of(const tr__page_axis *a, double value) {
  if (a->log) return log(value / a->from) / log(a->to / a->from);
  return (value - a->from) / (a->to - a->from);
}

double tr__page_x(const tr__page_chart *c, double value) {
  return c->left + share_of(&c->x, value) * (c->width - c->left - c->right);
}

double tr__page_y(const tr__page_chart *c, double value) {
  return c->height - c->bottom - share_of(&c->y, value) * (c->height - c->top - c->bottom);
}

static int is_inside(const tr__page_axis *a, double value) {
  if (!isfinite(value) || (a->log && value <= 0)) return 0;
  double s = share_of(a, value);
  return s > -1e-9 && s < 1 + 1e-9;
}

// ---- charts

void tr__page_chart_open(tr__page_chart *c, const char *id, const char *title) {
  tr_text_append(c->out,
                 "<div class=\"scroll\"><svg class=\"chart\" id=\"%s\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
                 "height=\"%.0f\" role=\"img\"><title>",
                 id, c->width, c->height, c->width, c->height);
  tr__page_escaped(c->out, title);
  tr_text_append(c->out, "</title>\n");
}

void tr__page_chart_close(const tr__page_chart *c) { tr_text_append(c->out, "</svg></div>\n"); }

void tr__page_label(tr_text *out, double x, double y, const char *anchor, const char *text) {
  tr_text_append(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
  tr__page_escaped(out, text);
  tr_text_append(out, "</text>\n");
}

void tr__page_box(tr_text *out, const char *classes, double x, double y, double width, double height,
                  const char *title) {
  if (!(isfinite(x) && isfinite(y) && width > 0 && height > 0 && isfinite(width) && isfinite(height))) return;
  tr_text_append(out, "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\">", classes, x, y,
                 width, height);
  if (title) {
    tr_text_append(out, "<title>");
    tr__page_escaped(out, title);
    tr_text_append(out, "</title>");
  }
  tr_text_append(out, "</rect>\n");
}

static void mark(const tr__page_chart *c, int vertical, double value) {
  char text[64];
  const tr__plan_unit unit = vertical ? c->x.unit : c->y.unit;
  tr__plan_format(text, sizeof text, unit, value);
  if (unit == TR__PLAN_SHARE) snprintf(text, sizeof text, "%.0f %%", 100 * value);
  if (vertical) {
    double x = tr__page_x(c, value);
    tr_text_append(c->out, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>", x, c->top, c->height - c->bottom);
    tr__page_label(c->out, x, c->height - c->bottom + 16, "middle", text);
  } else {
    double y = tr__page_y(c, value);
    tr_text_append(c->out, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>", c->left, y, c->width - c->right);
    tr__page_label(c->out, c->left - 8, y + 4, "end", text);
  }
}

// At 1, 2 or 5 times a power of ten (of GiB for memory), up to about eight of them; on logarithmic axes at powers, or at 1, 2, 5 if there are few.
static void mark_axis(const tr__page_chart *c, int vertical) {
  const tr__page_axis *a = vertical ? &c->x : &c->y;
  if (a->log) {
    const double base = a->log, powers = log(a->to / a->from) / log(base);
    const int stride = powers > 16 ? 2 : 1, fine = base == 10 && powers < 3;
    for (double p = pow(base, ceil(log(a->from) / log(base) - 1e-9)); p <= a->to * (1 + 1e-9);
         p *= pow(base, stride)) {
      mark(c, vertical, p);
      for (int k = 2; fine && k <= 5; k += 3)
        if (p * k <= a->to) mark(c, vertical, p * k);
    }
    return;
  }
  const double unit = a->unit == TR__PLAN_MEMORY ? 1073741824.0 : 1;
  const double span = a->to - a->from, raw = span / 8 / unit, ten = pow(10, floor(log10(raw)));
  const double step = unit * ten * (raw / ten > 5 ? 10 : raw / ten > 2 ? 5 : raw / ten > 1 ? 2 : 1);
  for (double v = ceil(a->from / step - 1e-9) * step; v <= a->to + 1e-9 * span; v += step)
    mark(c, vertical, fabs(v) < step * 1e-6 ? 0 : v);
}

void tr__page_axes(const tr__page_chart *c) {
  mark_axis(c, 0);
  mark_axis(c, 1);
  tr_text_append(c->out, "<path class=\"axis\" d=\"M%.1f %.1fV%.1fH%.1f\"/>\n", c->left, c->top,
                 c->height - c->bottom, c->width - c->right);
  tr__page_label(c->out, c->width - c->right, c->height - 6, "end", c->x.label);
  tr__page_label(c->out, 4, c->top - 12, "start", c->y.label);
}

void tr__page_line(const tr__page_chart *c, int colour, const char *label, size_t n, const double *x,
                   const double *y) {
  int open = 0;
  size_t last = n;
  for (size_t i = 0; i < n; i++) {
    const int inside = is_inside(&c->x, x[i]) && is_inside(&c->y, y[i]);
    if (!inside && open) tr_text_append(c->out, "\"/>\n"), open = 0;
    if (!inside) continue;
    if (!open) tr_text_append(c->out, "<path class=\"line l%d\" d=\"M", colour);
    tr_text_append(c->out, "%s%.1f %.1f", open ? "L" : "", tr__page_x(c, x[i]), tr__page_y(c, y[i]));
    open = 1;
    last = i;
  }
  if (open) tr_text_append(c->out, "\"/>\n");
  if (last < n && label)
    tr__page_label(c->out, tr__page_x(c, x[last]) + 5, tr__page_y(c, y[last]) + 4, "start", label);
}

void tr__page_legend(const tr__page_chart *c, int row, int colour, const char *text) {
  const double x = c->width - c->right + 16, y = c->top + 10 + 20 * row;
  tr_text_append(c->out, "<path class=\"line l%d\" d=\"M%.1f %.1fh16\"/>", colour, x, y - 4);
  tr__page_label(c->out, x + 22, y, "start", text);
}

void tr__page_dot(const tr__page_chart *c, int colour, double x, double y, const char *title) {
  if (!is_inside(&c->x, x) || !is_inside(&c->y, y)) return;
  tr_text_append(c->out, "<circle class=\"dot f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>", colour,
                 tr__page_x(c, x), tr__page_y(c, y));
  tr__page_escaped(c->out, title);
  tr_text_append(c->out, "</title></circle>\n");
}

void tr__page_mark_x(const tr__page_chart *c, double value, const char *label) {
  if (!is_inside(&c->x, value)) return;
  double x = tr__page_x(c, value);
  const int late = x > c->width - c->right - 120;
  tr_text_append(c->out, "<path class=\"mark\" d=\"M%.1f %.1fV%.1f\"/>", x, c->top, c->height - c->bottom);
  tr__page_label(c->out, late ? x - 5 : x + 5, c->top + 12, late ? "end" : "start", label);
}

void tr__page_mark_y(const tr__page_chart *c, double value, const char *label) {
  if (!is_inside(&c->y, value)) return;
  double y = tr__page_y(c, value);
  tr_text_append(c->out, "<path class=\"mark\" d=\"M%.1f %.1fH%.1f\"/>", c->left, y, c->width - c->right);
  tr__page_label(c->out, c->left + 6, y - 5, "start", label);
}
