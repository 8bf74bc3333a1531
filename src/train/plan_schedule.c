// SPDX-License-Identifier: MIT
// The schedule of a pipeline: by name, under the names of other programs too, or from a file of tokens; and the numbers of
// micro-batches that it takes. What it cannot do is said with the settings that would make it possible.
#include "train/train_internal.h"
#include <string.h>
#include <strings.h>
#include <unistd.h>

// torchtitan's and PyTorch's names of what has other names here.
static const struct {
  const char *theirs, *ours;
} alias[] = {
    {"Interleaved1F1B", "interleaved"}, {"LoopedBFS", "looped_bfs"}, {"InterleavedZeroBubble", "interleaved_zb"},
    {"ZBVZeroBubble", "zbv"},           {"ZB1P", "zb_h1"},           {"ZB2P", "zb_h2"}};

static int is_known(const char *name) {
  const char *known, *what;
  for (int i = 0; (known = tr_schedule_known(i, &what)); i++)
    if (strcmp(name, known) == 0) return 1;
  return 0;
}

// The name as the generators have it, in lower case.
static void canonical(const char *name, char out[TR_SCHEDULE_NAME]) {
  for (size_t i = 0; i < sizeof alias / sizeof *alias; i++)
    if (strcasecmp(name, alias[i].theirs) == 0) name = alias[i].ours;
  size_t n = strlen(name) < TR_SCHEDULE_NAME - 1 ? strlen(name) : TR_SCHEDULE_NAME - 1;
  for (size_t i = 0; i < n; i++) out[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] - 'A' + 'a' : name[i]);
  out[n] = '\0';
}

int tr__plan_pipelined(const tr_train_plan *plan) {
  char name[TR_SCHEDULE_NAME];
  canonical(plan->config->parallel.schedule, name);
  // On one rank 1f1b is the program that there is without a pipeline.
  return plan->mesh.degree[TR_AXIS_PP] > 1 || strcmp(name, "1f1b") != 0 || plan->config->parallel.chunks > 1;
}

static tr_status read_file(const tr_train_plan *plan, int m, tr_schedule *out) {
  const char *path = plan->config->parallel.schedule;
  int pp = plan->mesh.degree[TR_AXIS_PP];
  TR_TRY(tr_schedule_read(path, out));
  tr_status status = TR_OK;
  if (out->p != pp)
    status = tr_error(TR_ERR_PLAN, "%s is made for %d ranks, and parallel.pp is %d; parallel.pp=%d would work", path,
                      out->p, pp, out->p);
  else if (out->m != m)
    status = tr_error(TR_ERR_PLAN,
                      "%s is made for %d micro-batch%s, and a step here has %d; batch.sequences=%lld with "
                      "batch.micro=%d would work",
                      path, out->m, out->m == 1 ? "" : "es", m,
                      (long long)out->m * plan->micro * plan->mesh.degree[TR_AXIS_DP], plan->micro);
  if (status < 0) tr_schedule_destroy(out);
  return status;
}

// For m micro-batches and `chunks` stages a rank (0: as the schedule has them); its refusals name no setting yet.
static tr_status make(const tr_train_plan *plan, int m, int chunks, tr_schedule *out) {
  const tr_train_config *c = plan->config;
  char name[TR_SCHEDULE_NAME];
  canonical(c->parallel.schedule, name);
  const char *given = c->parallel.schedule;
  if (!is_known(name) && (access(given, R_OK) == 0 || strpbrk(given, "/."))) return read_file(plan, m, out);
  const tr_schedule_spec spec = {
      .name = name, .p = plan->mesh.degree[TR_AXIS_PP], .m = m, .v = chunks, .group = (int)c->parallel.group};
  return tr_schedule_build(&spec, out);
}

static int chunks_of(const tr_train_plan *plan) {
  return plan->config->parallel.chunks > 0 ? (int)plan->config->parallel.chunks : 0;
}

int tr__plan_suits(const tr_train_plan *plan, int64_t m) {
  tr_schedule schedule;
  if (m < 1 || m > TR_STEP_MICROBATCHES || make(plan, (int)m, chunks_of(plan), &schedule) < 0) return 0;
  tr_schedule_destroy(&schedule);
  return 1;
}

int tr__plan_has_layers(const tr_train_plan *plan, int pp, int dp, char *name, int chunks) {
  tr_train_config config = *plan->config;
  tr_train_plan other = *plan;
  tr_schedule schedule;
  const int64_t pass = (int64_t)plan->micro * dp, m = config.batch.sequences / pass;
  config.parallel.schedule = name;
  other.config = &config;
  other.mesh.degree[TR_AXIS_PP] = pp;
  if (config.batch.sequences % pass || m > TR_STEP_MICROBATCHES) return 0;
  if (make(&other, (int)m, chunks, &schedule) < 0) return 0;
  const int has = schedule.S <= plan->sizes.layers;
  tr_schedule_destroy(&schedule);
  return has;
}

// "; batch.micro=2 (8 micro-batches) or 1 (16) would work": divisors of a pipeline's share of the batch nearest to what is set.
static void suggest(const tr_train_plan *plan, char *out, size_t nbyte) {
  enum { MOST = 2 };
  const int64_t share = plan->config->batch.sequences / plan->mesh.degree[TR_AXIS_DP];
  int64_t found[MOST];
  int n = 0;
  for (int64_t away = 1; away < share && n < MOST; away++)
    for (int sign = -1; sign <= 1 && n < MOST; sign += 2) {
      int64_t micro = plan->micro + sign * away;
      if (micro >= 1 && share % micro == 0 && tr__plan_suits(plan, share / micro)) found[n++] = micro;
    }
  *out = '\0';
  if (n == 1) snprintf(out, nbyte, "; batch.micro=%lld would work", (long long)found[0]);
  if (n == 2)
    snprintf(out, nbyte, "; batch.micro=%lld or batch.micro=%lld would work", (long long)found[0],
             (long long)found[1]);
}

// Where nothing but parallel.chunks is in the way.
static tr_status blame_chunks(const tr_train_plan *plan, const tr_options *options) {
  tr_schedule schedule;
  if (chunks_of(plan) == 0 || make(plan, plan->accumulation, 0, &schedule) < 0) return TR_OK;
  const int own = schedule.S / schedule.p;
  tr_schedule_destroy(&schedule);
  return tr_options_error(options, "parallel.chunks",
                          "%d stages a rank, and schedule %s has %d; parallel.chunks=%d works, or "
                          "parallel.schedule=interleaved, which has any number",
                          chunks_of(plan), plan->config->parallel.schedule, own, own);
}

tr_status tr__plan_schedule(tr_train_plan *plan, const tr_options *options) {
  char others[96], why[1024];
  tr_schedule_destroy(&plan->schedule);
  plan->schedule = (tr_schedule){0};
  if (!tr__plan_pipelined(plan)) return TR_OK;
  tr_status status = make(plan, plan->accumulation, chunks_of(plan), &plan->schedule);
  if (status == TR_OK) return TR_OK;
  plan->schedule = (tr_schedule){0};
  if (status != TR_ERR_PLAN || !options) return status;
  snprintf(why, sizeof why, "%s", tr_status_text());
  TR_TRY(blame_chunks(plan, options));
  suggest(plan, others, sizeof others);
  return tr_options_error(options, "parallel.schedule", "%s%s", why, others);
}
