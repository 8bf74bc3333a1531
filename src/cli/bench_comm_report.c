// SPDX-License-Identifier: MIT
// What `trireme bench comm` prints and writes: a row per size, and after each case what its curve says.
//
// Bandwidths are those of nccl-tests: algorithm bandwidth is bytes / time; bus bandwidth is that times a factor, with which
// it can be compared with a link's rate whatever the number n of ranks: 2 (n - 1) / n for all-reduce, (n - 1) / n for
// reduce-scatter, all-gather, all-to-all, gather and scatter, 1 for broadcast, reduce and send-receive. Bytes are
// those of the whole operation: the larger of a rank's two buffers.
#include "cli/bench_comm_internal.h"
#include "cli/bench_describe_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/cpu.h"
#include "trireme/base/file.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int same_case(const tr__comm_case *a, const tr__comm_case *b) {
  return a->op == b->op && a->type == b->type && a->in_place == b->in_place && a->is_private == b->is_private;
}

const char *tr__comm_case_name(const tr__comm_case *c, char *out, size_t nbyte) {
  const tr__comm_op_info *op = &tr__comm_ops[c->op];
  if (c->op == TR__OP_BARRIER)
    snprintf(out, nbyte, "%s", op->name);
  else
    snprintf(out, nbyte, "%s, %s%s, %s", op->name, tr_dtype_name(c->type),
             !(op->knows_in && op->knows_out) ? ""
             : c->in_place                    ? ", in place"
                                              : ", out of place",
             c->is_private ? "private" : "arena");
  return out;
}

size_t tr__comm_case_length(const tr__comm_job *job, size_t first) {
  size_t n = 1;
  while (first + n < job->npoint && same_case(&job->point[first].of, &job->point[first + n].of)) n++;
  return n;
}

// ---- rows

void tr__comm_print_head(const tr__comm_job *job) {
  const tr__comm_results *r = job->results;
  const char *demand = getenv("TRIREME_COMM");
  char cpu[128];
  tr_cpu_name(cpu, sizeof cpu);
  printf("%s, %s, %d core%s; engine %s, %d rank%s as %s on %d host%s%s%s\n", cpu, tr_isa_name(tr_cpu_isa()),
         job->cores, job->cores == 1 ? "" : "s", r->engine, job->nrank, job->nrank == 1 ? "" : "s",
         job->settings->launch ? "threads" : "processes", r->hosts, r->hosts == 1 ? "" : "s",
         job->settings->direct ? "" : ", without the direct path",
         job->settings->order == TR_ORDER_ANY ? ", sums in any order" : "");
  if (demand && *demand) printf("algorithms as TRIREME_COMM=%s demands\n", demand);
  printf("times are the slowest rank's, from a barrier on; buffers are rewritten before and results checked after "
         "each\n");
}

static double alg_rate(const tr__comm_point *p) { return (double)p->nbyte / p->median; }

void tr__comm_print_row(const tr__comm_job *job, size_t index) {
  const tr__comm_point *p = &job->point[index];
  char name[96], size[32];
  if (index == 0 || !same_case(&p->of, &job->point[index - 1].of))
    printf("\n%s\n%12s %8s %12s %12s %12s %12s %12s\n", tr__comm_case_name(&p->of, name, sizeof name), "bytes",
           "repeats", "median us", "least us", "p90 us", "alg GB/s", "bus GB/s");
  tr_format_bytes(size, sizeof size, (double)p->nbyte);
  const double bus = alg_rate(p) * tr__comm_bus_factor(p->of.op, job->nrank);
  printf("%12s %8d %12.2f %12.2f %12.2f %12.3f %12.3f%s\n", size, p->repeats, p->median * 1e6, p->least * 1e6,
         p->p90 * 1e6, alg_rate(p) * 1e-9, bus * 1e-9, p->is_staged ? "  staged" : "");
}

// ---- conclusions

static size_t columns_of(const tr__comm_point *p, size_t n, double *bytes, double *seconds) {
  for (size_t i = 0; i < n; i++) bytes[i] = (double)p[i].nbyte, seconds[i] = p[i].median;
  return n;
}

static tr_status conclusions(const tr__comm_point *p, size_t n, tr_fit *fit, tr_plateau *plateau) {
  double *bytes = malloc(2 * n * sizeof *bytes);
  if (!bytes) return tr_error(TR_ERR_MEMORY, "no memory for a fit");
  columns_of(p, n, bytes, bytes + n);
  tr_status status = tr_fit_line(bytes, bytes + n, n, fit);
  if (status == TR_OK) status = tr_plateau_find(bytes, bytes + n, n, plateau);
  free(bytes);
  return status;
}

static void print_fit(const tr_fit *f) {
  char alpha[32];
  tr_format_duration(alpha, sizeof alpha, f->alpha);
  printf("fit over this range: alpha %s", alpha);
  if (f->alpha > 0) printf(" +- %.0f %%", 100 * f->alpha_error / f->alpha);
  if (f->beta > 0) printf(", 1 / beta %.3g GB/s +- %.0f %%", 1e-9 / f->beta, 100 * f->beta_error / f->beta);
  printf("; residual %.0f %%%s\n", 100 * f->residual,
         tr_fit_judge(f) == TR_FIT_GOOD    ? ""
         : tr_fit_judge(f) == TR_FIT_ROUGH ? ": rough"
                                           : ": a line says nothing");
}

static void print_plateau(const tr__comm_job *job, const tr_plateau *p) {
  char at[32], half[32], enough[32];
  tr_format_bytes(at, sizeof at, p->bytes);
  tr_format_bytes(half, sizeof half, p->half);
  tr_format_bytes(enough, sizeof enough, p->enough);
  printf("plateau %.2f GB/s at %s; half of it from %s on; a bucket of %s reaches 90 %%; a rank computes %.3g FLOP "
         "(f32) while a byte moves\n",
         p->bandwidth * 1e-9, at, half, enough, job->results->peak / job->nrank / p->bandwidth);
}

void tr__comm_print_case(const tr__comm_job *job, size_t first, size_t n) {
  const tr__comm_point *p = job->point + first;
  tr_fit fit;
  tr_plateau plateau;
  tr_text curve = {0};
  if (n < 3 || conclusions(p, n, &fit, &plateau) < 0) return;
  tr__comm_draw_curve(p, n, &curve);
  if (curve.data && !curve.failed) fputs(curve.data, stdout);
  tr_text_free(&curve);
  print_fit(&fit);
  print_plateau(job, &plateau);
}

// ---- JSON

static json_t *row_of(const tr__comm_job *job, const tr__comm_point *p) {
  char name[128], of[96];
  const double rate = alg_rate(p);
  snprintf(name, sizeof name, "%s, %zu bytes", tr__comm_case_name(&p->of, of, sizeof of), p->nbyte);
  return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:i, s:f, s:f, s:f, s:f, s:f, s:b}", "name", name, "operation",
                   tr__comm_ops[p->of.op].name, "type", tr_dtype_name(p->of.type), "place",
                   p->of.in_place ? "in" : "out", "buffers", p->of.is_private ? "private" : "arena", "bytes",
                   (json_int_t)p->nbyte, "repeats", p->repeats, "seconds", p->median, "least_seconds", p->least,
                   "p90_seconds", p->p90, "algorithm_bytes_per_s", rate, "bus_bytes_per_s",
                   rate * tr__comm_bus_factor(p->of.op, job->nrank), "staged", p->is_staged);
}

static json_t *fit_of(const tr__comm_job *job, const tr__comm_point *p, size_t n) {
  char name[96];
  tr_fit f;
  tr_plateau l;
  if (n < 3 || conclusions(p, n, &f, &l) < 0) return NULL;
  return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:s, s:f, s:f, s:f, s:f}", "name",
                   tr__comm_case_name(&p->of, name, sizeof name), "alpha_s", f.alpha, "alpha_error_s", f.alpha_error,
                   "beta_s_per_byte", f.beta, "beta_error_s_per_byte", f.beta_error, "residual", f.residual, "worth",
                   tr_fit_worth_name(tr_fit_judge(&f)), "plateau_bytes_per_s", l.bandwidth, "half_rate_bytes", l.half,
                   "bucket_bytes", l.enough, "flops_per_byte", job->results->peak / job->nrank / l.bandwidth);
}

tr_status tr__comm_report(const tr__comm_job *job, tr__bench_report *report) {
  report->fits = json_array();
  if (!report->fits) return tr_error(TR_ERR_MEMORY, "no memory for a table of results");
  for (size_t i = 0; i < job->npoint; i++) TR_TRY(tr__bench_add(report, row_of(job, &job->point[i])));
  for (size_t i = 0, n; i < job->npoint; i += n) {
    n = tr__comm_case_length(job, i);
    json_t *fit = fit_of(job, &job->point[i], n);
    if (fit && json_array_append_new(report->fits, fit) != 0)
      return tr_error(TR_ERR_MEMORY, "no memory for a table of results");
  }
  return TR_OK;
}

// ---- the links of a cluster description

static void append_link(const tr__comm_job *job, const tr__comm_link *l, const char *tier, tr_text *out) {
  char cpu[128], now[32], most[32];
  tr_cpu_name(cpu, sizeof cpu);
  tr_clock_utc(now, sizeof now);
  tr_format_bytes(most, sizeof most, (double)l->most);
  for (char *c = cpu; *c; c++)
    if (*c == '"' || *c == '\\') *c = ' ';
  tr_text_append(out, "  - tier: %s\n    latency: %.6g\n    bandwidth: %.6g\n    adding: %.6g\n", tier, l->fit.alpha,
                 1 / l->fit.beta, l->adding);
  tr_text_append(
      out,
      "    source: \"trireme bench comm, engine %s, ranks %d and %d, one way, 8 B to %s, latency +- %.2g %%, "
      "bandwidth +- %.2g %%, residual %.2g %% (%s), median %.3g times the least, %s, %s\"\n",
      job->results->engine, l->first, l->second, most, 100 * l->fit.alpha_error / l->fit.alpha,
      100 * l->fit.beta_error / l->fit.beta, 100 * l->fit.residual, tr_fit_worth_name(tr_fit_judge(&l->fit)),
      l->spread, cpu, now);
}

// What is no line is not made one: a latency of nothing would be believed.
static tr_status check_link(const tr__comm_link *l, const char *path) {
  char why[96];
  if (l->first < 0 || tr_fit_judge(&l->fit) != TR_FIT_VOID) return TR_OK;
  snprintf(why, sizeof why, "its times are off the best line by %.0f %%", 100 * l->fit.residual);
  if (!(l->fit.alpha > 0)) snprintf(why, sizeof why, "the best line through its times has no latency");
  if (!(l->fit.beta > 0)) snprintf(why, sizeof why, "its times do not grow with the size");
  return tr_error(
      TR_ERR_VERIFY,
      "%s is not written: nothing can be said of the link between ranks %d and %d, as %s (one size's median is "
      "%.1f times its least); try again when nobody else is busy",
      path, l->first, l->second, why, l->spread);
}

tr_status tr__comm_write_links(const tr__comm_job *job, const char *path) {
  static const char *const tiers[TR__COMM_PLACES] = {"host", "network"};
  tr_text out = {0};
  for (int i = 0; i < TR__COMM_PLACES; i++) TR_TRY(check_link(&job->results->link[i], path));
  tr_text_append(
      &out, "links: # measured between two ranks: latency in seconds, bandwidth in bytes per second, and the bytes "
            "per second\n  # that a rank adds to what it has\n");
  for (int i = 0; i < TR__COMM_PLACES; i++)
    if (job->results->link[i].first >= 0) append_link(job, &job->results->link[i], tiers[i], &out);
  tr_status status = out.failed ? tr_error(TR_ERR_MEMORY, "no memory for a description of links")
                                : tr__description_put(path, out.data, NULL);
  tr_text_free(&out);
  return status;
}
