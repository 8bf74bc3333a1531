// SPDX-License-Identifier: MIT
// The answer of a search that finds nothing: why, and the nearest changes that would help, each tried. A knob that is fixed is set free, one
// after the other; where none of them is at fault, the cluster is doubled until a plan fits.
#include "plan/search_internal.h"
#include "trireme/base/text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DOUBLINGS = 8, HELP = 384 };

typedef struct help {
  const tr_workload *model;
  const tr_cluster *cluster;
  char text[HELP]; // " tp=4 would work, or ...", "" while there is none
  size_t n;
} help;

// The fastest plan of another search; 0: there is none.
static int works(const tr_workload *w, const tr_cluster *c, const tr_search_options *o, tr_plan *best) {
  tr_search_result *r = calloc(1, sizeof *r);
  tr_search_options one = *o;
  one.top = 1;
  one.all = one.grouped = 0;
  one.closed = one.unexplained = 1;
  one.visit = NULL;
  int found = r && tr_search(w, c, &one, r) == TR_OK;
  if (found) *best = r->top[0].plan;
  free(r);
  return found;
}

static void add(help *h, const char *knob, const char *value) {
  h->n +=
      (size_t)snprintf(h->text + h->n, h->n < HELP ? HELP - h->n : 0, "%s%s=%s", h->n ? " or " : "; ", knob, value);
}

static void free_degrees(help *h, const tr_search_options *o) {
  static const struct {
    const char *name;
    size_t at;
  } knob[] = {{"tp", offsetof(tr_plan, tp)},      {"pp", offsetof(tr_plan, pp)},   {"cp", offsetof(tr_plan, cp)},
              {"dp", offsetof(tr_plan, dp)},      {"vpp", offsetof(tr_plan, vpp)}, {"ep", offsetof(tr_plan, ep)},
              {"micro", offsetof(tr_plan, micro)}};
  for (size_t i = 0; i < sizeof knob / sizeof *knob; i++) {
    tr_search_options other = *o;
    int64_t *fixed = (int64_t *)((char *)&other.fixed + knob[i].at);
    tr_plan best;
    char value[24];
    if (*fixed == 0) continue;
    *fixed = 0;
    if (!works(h->model, h->cluster, &other, &best)) continue;
    snprintf(value, sizeof value, "%lld", (long long)*(const int64_t *)((const char *)&best + knob[i].at));
    add(h, knob[i].name, value);
  }
}

static void free_ways(help *h, const tr_search_options *o) {
  tr_search_options other = *o;
  tr_plan best;
  char zero[2] = "0";
  other.fixed_recompute = -1;
  if (o->fixed_recompute >= 0 && works(h->model, h->cluster, &other, &best))
    add(h, "recompute", tr_plan_recompute_name(best.recompute));
  other = *o;
  other.fixed_zero = -1;
  if (o->fixed_zero >= 0 && works(h->model, h->cluster, &other, &best)) {
    zero[0] = (char)('0' + best.zero);
    add(h, "zero", zero);
  }
  other = *o;
  other.fixed.schedule = NULL;
  if (o->fixed.schedule && works(h->model, h->cluster, &other, &best))
    add(h, "schedule", tr__search_schedule_of(&best));
}

static void more_devices(help *h, const tr_search_options *o) {
  tr_cluster more = *h->cluster;
  tr_plan best;
  for (int i = 0; i < DOUBLINGS; i++) {
    more.hosts *= 2;
    if (!works(h->model, &more, o, &best)) continue;
    h->n +=
        (size_t)snprintf(h->text, HELP, "; on %lld devices a plan fits", (long long)(more.hosts * more.host_devices));
    return;
  }
}

// A batch that the devices divide, above and below.
static void other_batch(help *h, const tr_search_options *o) {
  const int64_t devices = h->cluster->hosts * h->cluster->host_devices;
  tr_search_options other = *o;
  tr_plan best;
  other.fixed.batch = (o->fixed.batch + devices - 1) / devices * devices;
  if (works(h->model, h->cluster, &other, &best))
    h->n += (size_t)snprintf(h->text, HELP, "; a batch of %lld would work", (long long)other.fixed.batch);
}

tr_status tr__search_nothing(const tr__search *s) {
  help h = {.model = s->w, .cluster = s->c};
  const int fits = isfinite(s->lacking);
  if (!s->o->unexplained) {
    free_degrees(&h, s->o);
    free_ways(&h, s->o);
    if (h.n > 0) h.n += (size_t)snprintf(h.text + h.n, h.n < HELP ? HELP - h.n : 0, " would work");
    if (h.n == 0 && fits) more_devices(&h, s->o);
    if (h.n == 0 && !fits) other_batch(&h, s->o);
  }
  if (fits)
    return tr_error(
        TR_ERR_PLAN, "no plan fits: the smallest lacks %.1f GiB of a device's %.0f GiB on %lld device%s of %s%s",
        s->lacking / 1073741824, s->room / 1073741824, (long long)s->devices, tr_text_plural(s->devices, "s"),
        s->c->name, h.n ? h.text : "; more devices, a smaller batch or a shorter sequence would help");
  return tr_error(TR_ERR_PLAN, "no plan divides %lld device%s and a batch of %lld sequence%s as asked%s",
                  (long long)s->devices, tr_text_plural(s->devices, "s"), (long long)s->o->fixed.batch,
                  tr_text_plural(s->o->fixed.batch, "s"),
                  h.n ? h.text : "; a batch that is a multiple of the devices always works");
}
