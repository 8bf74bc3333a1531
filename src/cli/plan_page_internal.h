// SPDX-License-Identifier: MIT
// `trireme plan report`: the page, and what its pictures are drawn with.
//
// A page is one file: no script, no style sheet, font or picture from elsewhere. Pictures are SVG in the page; colours are
// classes with a light and a dark value, f0 to f9 for areas and l0 to l9 for lines. Everything is well-formed XML too, so that any
// parser can check it.
#ifndef TRIREME_CLI_PLAN_PAGE_INTERNAL_H
#define TRIREME_CLI_PLAN_PAGE_INTERNAL_H

#include "cli/plan_case_internal.h"
#include "cli/plan_words_internal.h"

enum { TR__PAGE_COLOURS = 10 };

typedef struct tr__page {
  const tr__plan_case *c;
  tr_prediction x;
  double critical; // tokens of a batch
  int given;       // that was given; else it is the one of language models at a loss of TR__PAGE_LOSS
  tr_text out;
} tr__page;
#define TR__PAGE_LOSS 2.5

// ---- text (plan_page_draw.c)
void tr__page_escaped(tr_text *out, const char *text);
// A section with its heading; a figure with what it shows below it.
void tr__page_section(tr_text *out, const char *title);
void tr__page_section_end(tr_text *out);
void tr__page_caption(tr_text *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Numbers behind a picture, folded: rows of cells, the first a heading. `head` NULL: rows without one.
void tr__page_table(tr_text *out, const char *summary, const char *const *head);
void tr__page_row(tr_text *out, const char *name, size_t n, char (*cell)[32]);
void tr__page_table_end(tr_text *out);

// ---- charts (plan_page_draw.c)

typedef struct tr__page_axis {
  double from, to;
  int log; // base 10, or 2
  const char *label;
  tr__plan_unit unit;
} tr__page_axis;

typedef struct tr__page_chart {
  tr_text *out;
  double width, height, left, right, top, bottom; // margins
  tr__page_axis x, y;
} tr__page_chart;

// `id` names the picture, `title` is read out for it.
void tr__page_chart_open(tr__page_chart *chart, const char *id, const char *title);
void tr__page_chart_close(const tr__page_chart *chart);
void tr__page_axes(const tr__page_chart *chart); // grid, marks, labels
double tr__page_x(const tr__page_chart *chart, double value);
double tr__page_y(const tr__page_chart *chart, double value);
// A line through the points inside the chart; others and those that are no numbers part it. `label` at its end.
void tr__page_line(const tr__page_chart *chart, int colour, const char *label, size_t n, const double *x,
                   const double *y);
void tr__page_legend(const tr__page_chart *chart, int row, int colour, const char *text); // beside the chart
void tr__page_dot(const tr__page_chart *chart, int colour, double x, double y, const char *title);
void tr__page_mark_x(const tr__page_chart *chart, double value, const char *label); // a vertical line
void tr__page_mark_y(const tr__page_chart *chart, double value, const char *label);
void tr__page_box(tr_text *out, const char *classes, double x, double y, double width, double height,
                  const char *title);
// anchor: start, middle or end.
void tr__page_label(tr_text *out, double x, double y, const char *anchor, const char *text);

// ---- pictures: each writes its section
void tr__page_memory(tr__page *page);   // plan_page_stack.c
void tr__page_step(tr__page *page);     // plan_page_stack.c
void tr__page_timeline(tr__page *page); // plan_page_stack.c
void tr__page_scaling(tr__page *page);  // plan_page_curves.c
void tr__page_batch(tr__page *page);    // plan_page_curves.c
void tr__page_wall(tr__page *page);     // plan_page_curves.c
void tr__page_cube(tr__page *page);     // plan_page_space.c
void tr__page_frontier(tr__page *page); // plan_page_space.c

#endif
