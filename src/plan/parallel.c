// SPDX-License-Identifier: MIT
// A plan as a value: its standard form, and the checks that its degrees do not contradict each other, the model or the
// cluster.
#include "trireme/base/text.h"
#include "trireme/plan/predict.h"
#include "trireme/step/program.h"
#include "trireme/step/schedule.h"
#include <stdio.h>
#include <string.h>

enum { DEGREE_MOST = 1 << 28 };

const char *tr_plan_recompute_name(tr_plan_recompute recompute) {
  static const char *const name[TR_PLAN_RECOMPUTE_COUNT] = {"none", "scores", "selective", "experts", "half", "full"};
  return name[recompute];
}

void tr_plan_init(tr_plan *plan) {
  *plan = (tr_plan){.map = {TR_AXIS_TP, TR_AXIS_CP, TR_AXIS_DP, TR_AXIS_PP},
                    .tp = 1,
                    .pp = 1,
                    .vpp = 1,
                    .dp = 1,
                    .cp = 1,
                    .ep = 1,
                    .micro = 1,
                    .batch = 1,
                    .sequence = 4096,
                    .fused_attention = 1,
                    .fused_kernels = 1,
                    .hides_grads = 1,
                    .hides_weights = 1,
                    .hides_tp = 1,
                    .weight_bytes = 2,
                    .grad_bytes = 4,
                    .state_bytes = 12,
                    .wire_bytes = 4,
                    .logit_bytes = 8};
}

void tr_plan_follow_degrees(tr_plan *p) {
  p->sequence_parallel = p->tp > 1;
  p->hides_ep = p->ep > 1 && p->vpp > 1;
}

int64_t tr_plan_devices(const tr_plan *p) { return p->tp * p->pp * p->dp * p->cp; }

static tr_status divides(const char *part, int64_t a, const char *whole, int64_t b) {
  if (b % a == 0) return TR_OK;
  return tr_error(TR_ERR_PLAN, "%s is %lld; it must divide %s, %lld", part, (long long)a, whole, (long long)b);
}

static tr_status in_range(const char *field, int64_t value) {
  if (value >= 1 && value <= DEGREE_MOST) return TR_OK;
  return tr_error(TR_ERR_PLAN, "%s is %lld; it must be 1 to %d", field, (long long)value, DEGREE_MOST);
}

// Every stage has a layer, or each but the first and the last of them, which have the embedding and the head.
static int stages_have_layers(const tr_plan *p, const tr_workload *w) {
  const int64_t layers = w->layers + w->predict_more, chunks = p->pp * p->vpp;
  return chunks <= layers || (chunks == layers + 2 && p->pp > 1);
}

static tr_status check_stages(const tr_plan *p, const tr_workload *w) {
  if (!stages_have_layers(p, w))
    return tr_error(TR_ERR_PLAN, "pp x vpp is %lld; the model has only %lld layer%s", (long long)(p->pp * p->vpp),
                    (long long)(w->layers + w->predict_more), tr_text_plural(w->layers + w->predict_more, "s"));
  if (p->vpp > 1 && p->pp == 1)
    return tr_error(TR_ERR_PLAN, "vpp is %lld; chunks need pp of at least 2", (long long)p->vpp);
  return TR_OK;
}

// The schedule's own rules. They ask for multiples of pp and 2, and for 2 pp: a step longer than schedules can be stands in a shorter.
static tr_status check_schedule(const tr_plan *p) {
  if (p->pp == 1 || !p->schedule) return TR_OK;
  const int64_t all = p->batch / (p->dp * p->micro), pp = p->pp;
  const int64_t m = all > TR_STEP_MICROBATCHES && 4 * pp <= TR_STEP_MICROBATCHES ? 2 * pp + all % (2 * pp) : all;
  if (pp > INT32_MAX || m > INT32_MAX || p->vpp > INT32_MAX)
    return tr_error(TR_ERR_PLAN, "pp %lld and %lld micro-batches are more than a schedule takes", (long long)pp,
                    (long long)m);
  const tr_schedule_spec spec = {.name = p->schedule, .p = (int)pp, .m = (int)m, .v = p->vpp > 1 ? (int)p->vpp : 0};
  tr_status status = tr_schedule_allows(&spec);
  if (status == TR_OK || m == all) return status;
  char why[512];
  snprintf(why, sizeof why, "%s", tr_status_text());
  return tr_error(TR_ERR_PLAN, "%lld micro-batches are to the pipeline as %lld: %s", (long long)all, (long long)m,
                  why);
}

int tr_plan_is_even(const tr_plan *p, const tr_workload *w) {
  const int64_t layers = w->layers + w->predict_more, chunks = p->pp * p->vpp;
  if (!stages_have_layers(p, w)) return 0;
  if (p->vpp == 1) return 1;
  return p->pp > 1 && (layers % chunks == 0 || (layers + 2) % chunks == 0) &&
         p->batch / (p->dp * p->micro) % p->pp == 0;
}

tr_status tr_plan_check(const tr_plan *p, const tr_workload *w, const tr_cluster *c) {
  const struct {
    const char *name;
    int64_t value;
  } degree[] = {{"tp", p->tp},       {"pp", p->pp},       {"vpp", p->vpp},
                {"dp", p->dp},       {"cp", p->cp},       {"ep", p->ep},
                {"micro", p->micro}, {"batch", p->batch}, {"sequence", p->sequence}};
  for (size_t i = 0; i < sizeof degree / sizeof *degree; i++) TR_TRY(in_range(degree[i].name, degree[i].value));
  unsigned seen = 0;
  for (int i = 0; i < TR_AXIS_COUNT; i++) seen |= p->map[i] < TR_AXIS_COUNT ? 1u << p->map[i] : 0;
  if (seen != (1u << TR_AXIS_COUNT) - 1)
    return tr_error(TR_ERR_PLAN, "map names an axis twice; it must order tp, cp, dp and pp");
  if (p->zero < 0 || p->zero > 3) return tr_error(TR_ERR_PLAN, "zero is %d; it must be 0 to 3", p->zero);
  double devices = (double)p->tp * (double)p->pp * (double)p->dp * (double)p->cp;
  if (devices > (double)(c->hosts * c->host_devices))
    return tr_error(TR_ERR_PLAN, "tp x pp x dp x cp is %.0f; %s has %lld device%s", devices, c->name,
                    (long long)(c->hosts * c->host_devices), tr_text_plural(c->hosts * c->host_devices, "s"));
  TR_TRY(divides("tp", p->tp, "the model's heads", w->heads));
  TR_TRY(divides("dp x micro", p->dp * p->micro, "batch", p->batch));
  TR_TRY(divides("cp", p->cp, "sequence", p->sequence));
  TR_TRY(check_stages(p, w));
  TR_TRY(check_schedule(p));
  if (p->ep > 1) {
    if (w->experts == 0) return tr_error(TR_ERR_PLAN, "ep is %lld; the model has no experts", (long long)p->ep);
    TR_TRY(divides("ep", p->ep, "the model's experts", w->experts));
    TR_TRY(divides("ep", p->ep, "dp x cp x tp", p->dp * p->cp * p->tp));
  }
  return TR_OK;
}
