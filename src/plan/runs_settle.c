// SPDX-License-Identifier: MIT
// Rows that say less than a plan needs, or contradict themselves: what is missing is filled in, and the note says with what, so that
// every row of a table gets a prediction. Such predictions have the wider bounds of guesses.
#include "plan/runs_internal.h"
#include "trireme/base/preset.h"
#include "trireme/plan/search.h"
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PRESETS = 256, NAME_LIMIT = 128 };

void tr__run_note(tr_run *run, const char *format, ...) {
  size_t n = strlen(run->note);
  va_list args;
  if (n > 0 && n + 3 < sizeof run->note) n += (size_t)snprintf(run->note + n, sizeof run->note - n, "; ");
  va_start(args, format);
  if (n < sizeof run->note) (void)vsnprintf(run->note + n, sizeof run->note - n, format, args);
  va_end(args);
}

// ---- the device

static void squeeze(const char *name, char out[NAME_LIMIT]) {
  size_t n = 0;
  for (; *name && n + 1 < NAME_LIMIT; name++)
    if (isalnum((unsigned char)*name)) out[n++] = (char)tolower((unsigned char)*name);
  out[n] = '\0';
}

// How well the preset "h100-sxm-80" fits "h1008gbsxm5": its first word must be there, the longer the better (GB200 is no B200); each other
// word that is there counts for it, each that is not against it.
static int likeness(const char *squeezed, const char *preset) {
  char words[NAME_LIMIT], *rest = words;
  snprintf(words, sizeof words, "%s", preset);
  const char *family = strtok_r(words, "-", &rest), *word;
  const char *at = family ? strstr(squeezed, family) : NULL;
  if (!at || isdigit((unsigned char)at[strlen(family)]) > isdigit((unsigned char)family[strlen(family) - 1]))
    return 0;
  int score = 100 * (int)strlen(family);
  while ((word = strtok_r(NULL, "-", &rest))) score += strstr(at + strlen(family), word) ? 3 : -1;
  return score;
}

int tr__settle_device(const char *name, char *out, size_t nbyte) {
  char squeezed[NAME_LIMIT], *preset[PRESETS];
  size_t n = tr_preset_list("devices", ".yaml", preset, PRESETS);
  int best = 0;
  squeeze(name, squeezed);
  for (size_t i = 0; i < n; i++) {
    int score = likeness(squeezed, preset[i]);
    if (score > 0 && score >= best) { // of equals the last in the alphabet: SXM before PCIe
      best = score;
      snprintf(out, nbyte, "%s", preset[i]);
    }
    free(preset[i]);
  }
  return best > 0;
}

// ---- the model

// As published models grow: a width of 128 x heads, as many layers as heads, an MLP of 4 widths.
void tr__settle_model(tr_run *run, double params) {
  tr_workload *w = &run->model;
  if (w->layers > 0 && w->width > 0 && w->heads > 0) return;
  if (params <= 0) return;
  int64_t heads = (int64_t)fmax(round(cbrt(params / (12 * 128 * 128))), 1);
  tr__run_note(run, "layers and width are not stated: a shape of %.3g parameters", params);
  if (w->width == 0) w->width = 128 * heads;
  if (w->heads == 0) w->heads = w->width % 128 == 0 ? w->width / 128 : heads;
  if (w->layers == 0) w->layers = (int64_t)fmax(round(params / (12 * (double)(w->width * w->width))), 1);
  if (w->heads_kv == 0) w->heads_kv = w->heads;
  if (w->head_dim == 0) w->head_dim = w->width / w->heads;
  if (w->ffn == 0) w->ffn = 4 * w->width;
}

// ---- the plan

static int64_t divisor(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// Ranks that the batch has no sequences for take parts of sequences.
static void settle_batch(tr_run *run) {
  tr_plan *p = &run->plan;
  if (p->dp < 1 || p->micro < 1 || p->batch < 1 || p->batch % (p->dp * p->micro) == 0) return;
  int64_t replicas = divisor(p->dp, p->batch), parts = p->dp / replicas;
  if (parts > 1 && p->sequence % (p->cp * parts) == 0) {
    tr__run_note(run, "dp %lld does not divide the batch of %lld: taken as dp %lld, cp %lld", (long long)p->dp,
                 (long long)p->batch, (long long)replicas, (long long)(p->cp * parts));
    p->dp = replicas;
    p->cp *= parts;
  }
  int64_t share = p->dp * (p->batch / p->dp > 0 ? p->batch / p->dp : 1);
  if (share != p->batch) {
    tr__run_note(run, "dp %lld does not divide the batch of %lld: taken as %lld", (long long)p->dp,
                 (long long)p->batch, (long long)share);
    p->batch = share;
  }
  if (share / p->dp % p->micro == 0) return;
  p->micro = divisor(share / p->dp, p->micro);
  tr__run_note(run, "the micro-batch does not divide: taken as %lld", (long long)p->micro);
}

static void settle_degrees(tr_run *run) {
  tr_plan *p = &run->plan;
  tr_workload *w = &run->model;
  int64_t whole = p->dp * p->cp * p->tp, ep = p->ep;
  if (w->experts == 0) ep = 1;
  if (w->experts > 0 && p->ep > 1) ep = divisor(divisor(p->ep, w->experts), whole > 0 ? whole : 1);
  if (ep != p->ep) {
    tr__run_note(run, "ep %lld does not divide: taken as %lld", (long long)p->ep, (long long)ep);
    p->ep = ep;
  }
  if (p->tp > 0 && w->heads > 0 && w->heads % p->tp != 0) {
    int64_t padded = (w->heads + p->tp - 1) / p->tp * p->tp;
    tr__run_note(run, "tp %lld does not divide %lld heads: taken as %lld", (long long)p->tp, (long long)w->heads,
                 (long long)padded);
    w->heads_kv = w->heads_kv == w->heads ? padded : divisor(w->heads_kv, padded);
    w->heads = padded;
  }
  if (p->vpp > 1 && p->pp * p->vpp > w->layers + w->predict_more + 2) {
    p->vpp = (w->layers + w->predict_more) / p->pp > 1 ? (w->layers + w->predict_more) / p->pp : 1;
    tr__run_note(run, "more chunks than layers: taken as %lld a rank", (long long)p->vpp);
  }
}

// Degrees that are not stated (`open`) are those of the fastest plan that fits.
static void search_degrees(tr_run *run, unsigned open) {
  tr_search_options o;
  tr_search_options_init(&o);
  o.fixed = run->plan;
  o.fixed.schedule = NULL;
  o.fixed.ep = run->model.experts > 0 ? 0 : 1;
  o.fixed.vpp = o.fixed.dp = 0;
  if (open & TR__OPEN_TP) o.fixed.tp = 0;
  if (open & TR__OPEN_PP) o.fixed.pp = 0;
  if (run->micro_unknown) o.fixed.micro = 0;
  if (run->batch_unknown) o.fixed.batch = 64 * run->cluster.hosts * run->cluster.host_devices;
  o.top = 1;
  o.closed = 1;
  tr_search_result *r = calloc(1, sizeof *r);
  if (r && tr_search(&run->model, &run->cluster, &o, r) == TR_OK) {
    const tr_plan *best = &r->top[0].plan;
    run->plan.tp = best->tp, run->plan.pp = best->pp, run->plan.vpp = best->vpp, run->plan.dp = best->dp;
    run->plan.cp = best->cp, run->plan.ep = best->ep, run->plan.micro = best->micro, run->plan.zero = best->zero;
    run->plan.batch = best->batch, run->plan.recompute = best->recompute;
    memcpy(run->plan.map, best->map, sizeof best->map);
    run->searched = 1;
    run->plan.sequence_parallel = best->sequence_parallel;
    tr__run_note(run, "the plan's degrees are not stated: the fastest that fits, tp %lld, pp %lld, dp %lld",
                 (long long)best->tp, (long long)best->pp, (long long)best->dp);
  }
  free(r);
}

// What a search goes through in a moment.
static int is_searchable(const tr_run *run) {
  const tr_workload *w = &run->model;
  const tr_cluster *c = &run->cluster;
  return c->hosts <= (1 << 17) / c->host_devices && w->experts <= 1024 && w->layers <= 1024 && w->heads <= 1024 &&
         run->plan.sequence <= 1 << 22;
}

void tr__settle_plan(tr_run *run, unsigned open) {
  if (run->plan.sequence == 0) {
    run->plan.sequence = 2048;
    tr__run_note(run, "the length of sequences is not stated: taken as 2048");
  }
  if (tr_workload_check(&run->model) < 0) return;
  if (open && is_searchable(run))
    search_degrees(run, open);
  else if (tr_plan_check(&run->plan, &run->model, &run->cluster) < 0) {
    settle_degrees(run);
    settle_batch(run);
  }
}
