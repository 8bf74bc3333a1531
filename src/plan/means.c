// SPDX-License-Identifier: MIT
// Means as searches with knobs fixed, and the largest model of each by doubling and halving: memory grows with the model, so what
// does not fit stays so.
#include "trireme/plan/means.h"
#include <math.h>
#include <stdlib.h>

enum { STEPS_MOST = 264, HEADS_SINGLE = 8 }; // up to 2048 heads: a width of 262144

static const struct {
  const char *name, *about;
} words[TR_MEANS_COUNT] = {
    [TR_MEANS_DATA] = {"data parallel", "a whole copy of the model on every device"},
    [TR_MEANS_RECOMPUTE] = {"recompute", "copies that keep only what enters a layer, and compute the rest again"},
    [TR_MEANS_ZERO1] = {"ZeRO 1", "copies that share out optimizer states"},
    [TR_MEANS_ZERO2] = {"ZeRO 2", "and gradients"},
    [TR_MEANS_ZERO3] = {"ZeRO 3", "and weights"},
    [TR_MEANS_ZERO3_RECOMPUTE] = {"ZeRO 3, recompute", "and compute activations again"},
    [TR_MEANS_EXPERTS] = {"experts", "each device has some of the experts, and shares out optimizer states"},
    [TR_MEANS_TENSOR] = {"tensor", "every layer cut over devices with fast links"},
    [TR_MEANS_PIPELINE] = {"pipeline", "layers dealt out to devices"},
    [TR_MEANS_TENSOR_PIPELINE] = {"tensor, pipeline", "both, beside data parallelism"},
    [TR_MEANS_ALL] = {"all means", "whatever is fastest of all plans"},
};

const char *tr_means_name(tr_means means) { return words[means].name; }
const char *tr_means_about(tr_means means) { return words[means].about; }

static int has_tensor(tr_means m) { return m == TR_MEANS_TENSOR || m == TR_MEANS_TENSOR_PIPELINE; }
static int has_pipeline(tr_means m) { return m == TR_MEANS_PIPELINE || m == TR_MEANS_TENSOR_PIPELINE; }

static int shares(tr_means m) { return m > TR_MEANS_RECOMPUTE && m < TR_MEANS_ALL; } // needs a second device

static int zero_of(tr_means m) {
  if (m == TR_MEANS_ZERO3_RECOMPUTE) return 3;
  if (m == TR_MEANS_EXPERTS) return 1;
  return m >= TR_MEANS_ZERO1 && m <= TR_MEANS_ZERO3 ? 1 + (int)m - (int)TR_MEANS_ZERO1 : 0;
}

static void fix(tr_means means, const tr_means_job *job, tr_search_options *o) {
  tr_search_options_init(o);
  o->fixed.sequence = job->sequence;
  o->fixed.batch = job->batch;
  o->fixed.number = job->number;
  o->top = 1;
  if (means == TR_MEANS_ALL) return;
  int again = means == TR_MEANS_RECOMPUTE || means == TR_MEANS_ZERO3_RECOMPUTE;
  if (!has_tensor(means)) o->fixed.tp = 1;
  if (!has_pipeline(means)) o->fixed.pp = 1;
  o->fixed.cp = 1;
  if (means != TR_MEANS_EXPERTS) o->fixed.ep = 1;
  o->fixed_zero = zero_of(means);
  o->fixed_recompute = again ? TR_PLAN_RECOMPUTE_FULL : TR_PLAN_RECOMPUTE_NONE;
}

// A family whose one knob has a single value is no means of its own: a pipeline of one stage. Tensor parallelism between hosts is
// left to the search.
static int counts(tr_means means, const tr_plan *p, const tr_cluster *c) {
  if (means == TR_MEANS_ALL) return 1;
  if ((p->ep > 1) != (means == TR_MEANS_EXPERTS)) return 0;
  return (p->tp > 1) == has_tensor(means) && p->tp <= c->domain && (p->pp > 1) == has_pipeline(means);
}

typedef struct gathering {
  tr_means means;
  const tr_cluster *cluster;
  tr_means_result *out;
} gathering;

static void take(void *user, const tr_search_entry *e) {
  const gathering *g = user;
  tr_means_result *r = g->out;
  double bytes = e->prediction.memory.process;
  if (!counts(g->means, &e->plan, g->cluster)) return;
  if (!r->fits || bytes < r->bytes) r->bytes = bytes;
  if (!r->fits || e->prediction.step < r->entry.prediction.step) r->entry = *e;
  r->exists = r->fits = 1;
}

tr_status tr_means_try(tr_means means, const tr_workload *model, const tr_cluster *cluster, const tr_means_job *job,
                       tr_means_result *out) {
  tr_search_options o;
  gathering g = {means, cluster, out};
  *out = (tr_means_result){.bytes = NAN};
  if (shares(means) && cluster->hosts * cluster->host_devices == 1) return TR_OK;
  tr_search_result *found = malloc(sizeof *found);
  if (!found) return tr_error(TR_ERR_MEMORY, "no memory for the result");
  fix(means, job, &o);
  o.visit = take;
  o.user = &g;
  tr_status status = tr_search(model, cluster, &o, found);
  if (!out->fits && isfinite(found->lacking)) {
    out->bytes = tr_means_bytes(means, model, cluster, job->sequence);
    out->exists = !isnan(out->bytes);
  }
  free(found);
  return status == TR_ERR_PLAN ? TR_OK : status;
}

// ---- the smallest

// What is free in a family: the devices that tensor, context and pipeline parallelism may take.
typedef struct span {
  int64_t tp, cp, pp;
} span;

static span span_of(tr_means m, const tr_workload *w, const tr_cluster *c, int64_t sequence) {
  enum { TOKENS_LEAST = 512 };
  const int all = m == TR_MEANS_ALL;
  const int64_t context = sequence / TOKENS_LEAST > 1 ? sequence / TOKENS_LEAST : 1;
  return (span){all             ? 2 * c->domain
                : has_tensor(m) ? c->domain
                                : 1,
                all ? context : 1, all || has_pipeline(m) ? w->layers : 1};
}

// Of the plan with any degree of experts that is a plan of the means, and, for `all`, any ZeRO stage.
static double bytes_of(tr_means means, tr_plan p, const tr_workload *w, const tr_cluster *c, int64_t devices) {
  const int all = means == TR_MEANS_ALL;
  const int64_t experts = w->experts > 0 ? w->experts : 1;
  double least = NAN;
  p.dp = devices / (p.tp * p.pp * p.cp);
  p.batch = p.dp * p.pp;
  p.sequence_parallel = p.tp > 1;
  for (p.ep = 1; p.ep <= experts; p.ep++) {
    if (experts % p.ep || p.dp * p.cp * p.tp % p.ep || !counts(means, &p, c)) continue;
    for (int zero = all ? 0 : p.zero, last = all ? 3 : p.zero; zero <= last; zero++) {
      tr_footprint m;
      tr_plan one = p;
      one.zero = zero;
      tr_predict_memory(&one, w, c, &m);
      least = fmin(least, m.process);
    }
  }
  return least;
}

double tr_means_bytes(tr_means means, const tr_workload *w, const tr_cluster *c, int64_t sequence) {
  const int64_t devices = c->hosts * c->host_devices;
  const span most = span_of(means, w, c, sequence);
  const int all = means == TR_MEANS_ALL;
  tr_search_options o;
  double least = NAN;
  fix(means, &(tr_means_job){.sequence = sequence, .batch = 1}, &o);
  tr_plan p = o.fixed;
  p.vpp = p.micro = 1;
  p.zero = o.fixed_zero;
  p.recompute = all ? TR_PLAN_RECOMPUTE_FULL : (tr_plan_recompute)o.fixed_recompute;
  for (p.tp = 1; p.tp <= most.tp && p.tp <= w->heads; p.tp++)
    for (p.cp = 1; p.cp <= most.cp; p.cp++)
      for (p.pp = 1; p.pp <= most.pp && p.tp * p.cp * p.pp <= devices; p.pp++) {
        if (devices % (p.tp * p.cp * p.pp) || w->heads % p.tp || sequence % p.cp) continue;
        least = fmin(least, bytes_of(means, p, w, c, devices));
      }
  return least;
}

// ---- the largest

// 1 to 8 heads one by one, then in eights, which every tensor-parallel degree inside a host divides.
static int64_t heads_of(int step) {
  return step <= HEADS_SINGLE ? step : (int64_t)HEADS_SINGLE * (step - HEADS_SINGLE + 1);
}

tr_workload tr_means_shape(int64_t heads, int64_t vocab) {
  return (tr_workload){.layers = heads,
                       .width = 128 * heads,
                       .heads = heads,
                       .heads_kv = heads,
                       .head_dim = 128,
                       .ffn = 352 * heads,
                       .vocab = vocab,
                       .gated = 1,
                       .every = 1};
}

static tr_status fits(tr_means means, const tr_cluster *c, const tr_means_job *job, int step, int64_t vocab,
                      int *yes) {
  tr_workload w = tr_means_shape(heads_of(step), vocab);
  tr_means_result r;
  TR_TRY(tr_means_try(means, &w, c, job, &r));
  *yes = r.fits;
  return TR_OK;
}

tr_status tr_means_largest(tr_means means, const tr_cluster *cluster, const tr_means_job *job, int64_t vocab,
                           tr_workload *out) {
  int good = 0, bad = 2 * HEADS_SINGLE, yes = 1;
  // All of the first: small models may have too few heads or layers for a means that larger ones can use.
  for (int step = 1; step <= HEADS_SINGLE; step++) {
    TR_TRY(fits(means, cluster, job, step, vocab, &yes));
    if (yes) good = step;
  }
  if (good < HEADS_SINGLE) bad = good + 1;
  for (yes = 1; good >= HEADS_SINGLE && yes && bad <= STEPS_MOST;) {
    TR_TRY(fits(means, cluster, job, bad, vocab, &yes));
    if (yes) good = bad, bad *= 2;
  }
  while (bad - good > 1) {
    int middle = (good + bad) / 2;
    TR_TRY(fits(means, cluster, job, middle, vocab, &yes));
    *(yes ? &good : &bad) = middle;
  }
  *out = good ? tr_means_shape(heads_of(good), vocab) : (tr_workload){0};
  return TR_OK;
}
