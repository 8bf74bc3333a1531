// SPDX-License-Identifier: MIT
// Curves around a plan: what more devices are worth, what larger batches are worth, and how large a model each means can do.
#include "cli/plan_page_internal.h"
#include "trireme/plan/law_batch.h"
#include "trireme/plan/means.h"
#include "trireme/plan/pipeline.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNTS = 40, POINTS = 97, SIZES = 40 };

static tr_search_options options_of(const tr__page *page) {
  tr_search_options o;
  tr_search_options_init(&o);
  o.fixed.batch = page->c->plan.batch;
  o.fixed.sequence = page->c->plan.sequence;
  o.fixed.number = page->c->plan.number;
  o.top = 1;
  o.closed = 1;
  return o;
}

// ---- more devices

typedef struct curve {
  size_t n;
  double devices[COUNTS], step[COUNTS], efficiency[COUNTS], mfu[COUNTS];
} curve;

// Hosts of the cluster, as many as `devices` fill, or a part of one.
static tr_cluster part_of(const tr_cluster *c, int64_t devices) {
  tr_cluster part = *c;
  part.host_devices = devices < c->host_devices ? devices : c->host_devices;
  part.hosts = devices / part.host_devices;
  return part;
}

static int64_t next_count(const tr_cluster *c, int64_t devices) {
  if (devices < c->host_devices && devices * 2 > c->host_devices) return c->host_devices;
  return devices * 2;
}

static tr_status find_curve(const tr__page *page, curve *out) {
  const int64_t most = 8 * tr_plan_devices(&page->c->plan);
  const tr_search_options o = options_of(page);
  tr_search_result *found = malloc(sizeof *found);
  if (!found) return tr_error(TR_ERR_MEMORY, "no memory for the result");
  tr_status status = TR_OK;
  for (int64_t n = 1; n <= most && out->n < COUNTS && status == TR_OK; n = next_count(&page->c->cluster, n)) {
    const tr_cluster part = part_of(&page->c->cluster, n);
    tr_prediction *best = &found->top[0].prediction;
    status = tr_search(&page->c->model, &part, &o, found);
    if (status == TR_OK) status = tr_predict_simulated(&found->top[0].plan, &page->c->model, &part, best);
    if (status == TR_ERR_PLAN) {
      status = TR_OK;
      continue;
    }
    if (status < 0) break;
    const size_t i = out->n++;
    out->devices[i] = (double)n;
    out->step[i] = best->step;
    out->mfu[i] = best->mfu;
    out->efficiency[i] = out->step[0] * out->devices[0] / (out->step[i] * out->devices[i]);
  }
  free(found);
  return status;
}

static void draw_curve(tr__page *page, const curve *v) {
  double most = 1;
  for (size_t i = 0; i < v->n; i++) most = fmax(most, v->efficiency[i]);
  tr__page_chart c = {
      .out = &page->out, .width = 860, .height = 320, .left = 76, .right = 90, .top = 34, .bottom = 44};
  c.x = (tr__page_axis){v->devices[0], fmax(v->devices[v->n - 1], 2 * v->devices[0]), 2, "devices", TR__PLAN_COUNT};
  c.y = (tr__page_axis){0, most * 1.05, 0, "share", TR__PLAN_SHARE};
  tr__page_chart_open(&c, "scaling", "What is left of a device's speed as their number grows");
  tr__page_axes(&c);
  tr__page_line(&c, 0, "of the smallest", v->n, v->devices, v->efficiency);
  tr__page_line(&c, 2, "MFU", v->n, v->devices, v->mfu);
  for (size_t i = 0; i < v->n; i++) {
    char title[96], time[32];
    tr__plan_format(time, sizeof time, TR__PLAN_TIME, v->step[i]);
    snprintf(title, sizeof title, "%.0f device%s: %s a step, %.1f %% of the smallest", v->devices[i],
             tr_text_plural((int64_t)v->devices[i], "s"), time, 100 * v->efficiency[i]);
    tr__page_dot(&c, 0, v->devices[i], v->efficiency[i], title);
  }
  tr__page_mark_x(&c, (double)tr_plan_devices(&page->c->plan), "this plan");
  tr__page_chart_close(&c);
}

static void table_of_curve(tr_text *out, const curve *v) {
  static const char *const head[] = {"devices", "a step", "speed-up", "of the smallest", "for doubling", "MFU", NULL};
  tr__page_table(out, "numbers", head);
  for (size_t i = 0; i < v->n; i++) {
    char name[32], cell[5][32];
    snprintf(name, sizeof name, "%.0f", v->devices[i]);
    tr__plan_format(cell[0], sizeof cell[0], TR__PLAN_TIME, v->step[i]);
    tr__plan_format(cell[1], sizeof cell[1], TR__PLAN_NUMBER, v->step[0] / v->step[i]);
    tr__plan_format(cell[2], sizeof cell[2], TR__PLAN_SHARE, v->efficiency[i]);
    tr__plan_format(cell[3], sizeof cell[3], TR__PLAN_NUMBER, i ? v->step[i - 1] / v->step[i] : NAN);
    tr__plan_format(cell[4], sizeof cell[4], TR__PLAN_SHARE, v->mfu[i]);
    tr__page_row(out, name, 5, cell);
  }
  tr__page_table_end(out);
}

void tr__page_scaling(tr__page *page) {
  curve v = {.n = 0};
  tr__page_section(&page->out, "The tax of scaling");
  if (find_curve(page, &v) < 0) page->out.failed = 1;
  if (v.n > 0) {
    size_t pays = 0; // the last doubling that gave at least 1.41
    for (size_t i = 1; i < v.n && v.step[i - 1] / v.step[i] >= 1.41; i++) pays = i;
    draw_curve(page, &v);
    tr__page_caption(
        &page->out,
        "The best plan of every number of devices, for the same batch, against the smallest number on which one fits "
        "(%.0f). Up to %.0f device%s every doubling makes a step at least 1.41 times as fast.",
        v.devices[0], v.devices[pays], tr_text_plural((int64_t)v.devices[pays], "s"));
    table_of_curve(&page->out, &v);
  } else {
    tr_text_append(&page->out, "<p id=\"scaling\">No number of devices has a plan that fits.</p>\n");
  }
  tr__page_section_end(&page->out);
}

// ---- larger batches

void tr__page_batch(tr__page *page) {
  const double critical = page->critical, batch = (double)(page->c->plan.batch * page->c->plan.sequence);
  double x[POINTS], steps[POINTS], samples[POINTS];
  const double span = fmax(64, fmax(batch / critical, critical / batch) * 1.5);
  char tokens[32], own[32], critical_text[48];
  for (int i = 0; i < POINTS; i++) {
    x[i] = critical / span * pow(span * span, (double)i / (POINTS - 1));
    steps[i] = tr_law_steps_factor(x[i], critical);
    samples[i] = tr_law_samples_factor(x[i], critical);
  }
  tr__page_chart c = {
      .out = &page->out, .width = 860, .height = 320, .left = 76, .right = 90, .top = 34, .bottom = 44};
  c.x = (tr__page_axis){critical / span, critical * span, 10, "tokens of a batch", TR__PLAN_AMOUNT};
  c.y = (tr__page_axis){1, fmin(span + 1, 1000), 10, "times the least", TR__PLAN_NUMBER};
  tr__page_section(&page->out, "The critical batch");
  tr__page_chart_open(&c, "batch", "Steps and samples that a loss takes, by the size of the batch");
  tr__page_axes(&c);
  tr__page_line(&c, 0, "steps", POINTS, x, steps);
  tr__page_line(&c, 4, "samples", POINTS, x, samples);
  tr__plan_format(tokens, sizeof tokens, TR__PLAN_AMOUNT, critical);
  tr__plan_format(own, sizeof own, TR__PLAN_AMOUNT, batch);
  snprintf(critical_text, sizeof critical_text, "critical: %s", tokens);
  tr__page_mark_x(&c, critical, critical_text);
  tr__page_mark_x(&c, batch, "this batch");
  tr__page_chart_close(&c);
  tr__page_caption(&page->out,
                   "With batches of %s tokens a loss takes %.3g times the fewest steps and %.3g times the fewest "
                   "samples (McCandlish et al., 2018).%s",
                   own, tr_law_steps_factor(batch, critical), tr_law_samples_factor(batch, critical),
                   page->given ? ""
                               : " The critical size is that of language models at a loss of 2.5 (Kaplan et al., "
                                 "2020); --critical gives your own, and trireme plan batch finds it from gradients.");
  tr__page_section_end(&page->out);
}

// ---- larger models

static void draw_wall(tr__page *page, double params) {
  static const tr_means shown[] = {TR_MEANS_DATA,     TR_MEANS_ZERO1,           TR_MEANS_ZERO2,
                                   TR_MEANS_ZERO3,    TR_MEANS_ZERO3_RECOMPUTE, TR_MEANS_TENSOR,
                                   TR_MEANS_PIPELINE, TR_MEANS_TENSOR_PIPELINE};
  const tr__plan_case *k = page->c;
  const double room = k->cluster.device.memory_gib * 1073741824.0;
  double x[SIZES], y[SIZES];
  tr__page_chart c = {
      .out = &page->out, .width = 860, .height = 360, .left = 76, .right = 190, .top = 34, .bottom = 44};
  c.x = (tr__page_axis){fmin(1e8, params / 2), fmax(1e12, params * 2), 10, "parameters", TR__PLAN_AMOUNT};
  c.y = (tr__page_axis){room / 64, room * 64, 2, "bytes on the fullest device", TR__PLAN_MEMORY};
  tr__page_chart_open(&c, "wall", "Memory of the fullest device by size of the model, for each means");
  tr__page_axes(&c);
  for (size_t m = 0; m < sizeof shown / sizeof *shown; m++) {
    size_t n = 0;
    for (int64_t heads = 4; n < SIZES;
         heads = heads < 16 ? heads + 4 : heads / 8 * 8 + (heads < 64 ? 8 : heads / 4 / 8 * 8)) {
      const tr_workload w = tr_means_shape(heads, k->model.vocab);
      x[n] = tr_workload_params(&w);
      y[n++] = tr_means_bytes(shown[m], &w, &k->cluster, k->plan.sequence);
      if (x[n - 1] > c.x.to) break;
    }
    tr__page_line(&c, (int)m, NULL, n, x, y);
    tr__page_legend(&c, (int)m, (int)m, tr_means_name(shown[m]));
  }
  tr__page_mark_y(&c, room, "a device has");
  tr__page_mark_x(&c, params, "this model");
  tr__page_chart_close(&c);
}

void tr__page_wall(tr__page *page) {
  static const char *const head[] = {"means", "this model takes", "largest that fits", "layers", "width", NULL};
  const tr__plan_case *k = page->c;
  const double params = tr_workload_params(&k->model);
  const tr_means_job job = {k->plan.sequence, k->plan.batch, k->plan.number};
  tr__page_section(&page->out, "The memory wall");
  draw_wall(page, params);
  tr__page_caption(
      &page->out,
      "The smallest plan of each means on %lld device%s, with micro-batches of one sequence of "
      "%lld token%s, for models of the shape that published ones have (width 128 x heads, as many layers "
      "as heads). Where a line is above the dashed one, that means does not do.",
      (long long)tr_plan_devices(&k->plan), tr_text_plural(tr_plan_devices(&k->plan), "s"),
      (long long)k->plan.sequence, tr_text_plural(k->plan.sequence, "s"));
  tr__page_table(&page->out, "numbers", head);
  for (int m = 0; m < TR_MEANS_COUNT; m++) {
    tr_workload most;
    char cell[4][32];
    if (tr_means_largest((tr_means)m, &k->cluster, &job, k->model.vocab, &most) < 0)
      page->out.failed = 1, most.layers = 0;
    tr__plan_format(cell[0], sizeof cell[0], TR__PLAN_MEMORY,
                    tr_means_bytes((tr_means)m, &k->model, &k->cluster, k->plan.sequence));
    tr__plan_format(cell[1], sizeof cell[1], TR__PLAN_AMOUNT, most.layers ? tr_workload_params(&most) : NAN);
    tr__plan_format(cell[2], sizeof cell[2], TR__PLAN_COUNT, most.layers ? (double)most.layers : NAN);
    tr__plan_format(cell[3], sizeof cell[3], TR__PLAN_COUNT, most.layers ? (double)most.width : NAN);
    tr__page_row(&page->out, tr_means_name((tr_means)m), 4, cell);
  }
  tr__page_table_end(&page->out);
  tr__page_section_end(&page->out);
}
