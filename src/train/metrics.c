// SPDX-License-Identifier: MIT
// What a run says while it goes: two lines per log step, the same facts as a JSON object in metrics.jsonl, and a progress bar
// between lines when a person is watching. Only rank 0 speaks; the loss is the mean over all ranks' valid tokens.
#include "train/train_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/file.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void metrics_path(const tr__trainer *t, char *out, size_t nbyte) {
  snprintf(out, nbyte, "%s/metrics.jsonl", t->plan->config->train.folder);
}

tr_status tr__metrics_append(const tr__trainer *t, json_t *record) {
  char path[4096], *text = record ? json_dumps(record, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
  json_decref(record);
  if (!text) return tr_error(TR_ERR_MEMORY, "no memory for a metrics record");
  size_t n = strlen(text);
  text[n] = '\n'; // in place of the terminating zero: one write per line
  metrics_path(t, path, sizeof path);
  tr_status status = tr_file_append(path, text, n + 1);
  free(text);
  return status;
}

tr_status tr__metrics_event(tr__trainer *t, const char *event) {
  if (t->rank != 0) return TR_OK;
  char now[32];
  tr_clock_utc(now, sizeof now);
  return tr__metrics_append(t,
                            json_pack("{s:s, s:I, s:s}", "event", event, "step", (json_int_t)t->step, "time", now));
}

void tr__metrics_start(tr__trainer *t) {
  t->begin_ns = t->mark_ns = tr_clock_ns();
  t->mark_tokens = t->tokens;
  t->start_step = t->step;
  t->val_step = -1;
}

typedef struct rates {
  double seconds, tokens_per_s, flops_per_s, data_wait, comm_wait, eta;
  double peak;   // share of what the processors of all ranks could compute; 0: not known
  double rho;    // communication as a multiple of computation; below 0: not known
  double bubble; // of a pipeline; below 0: not known
  tr__simulated simulated;
} rates;

static rates measure(const tr__trainer *t, int64_t now) {
  rates r = {.seconds = (double)(now - t->mark_ns) * 1e-9};
  if (r.seconds <= 0) r.seconds = 1e-9;
  r.tokens_per_s = (double)(t->tokens - t->mark_tokens) / r.seconds;
  r.flops_per_s = r.tokens_per_s * tr_model_flops(t->plan->model, t->plan->config->data.sequence);
  r.data_wait = (double)t->data_ns * 1e-9 / r.seconds;
  r.comm_wait = (double)t->comm_ns * 1e-9 / r.seconds;
  r.rho = r.bubble = -1;
  int64_t done = t->step - t->start_step;
  double elapsed = (double)(now - t->begin_ns) * 1e-9;
  r.eta = done > 0 ? elapsed / (double)done * (double)(t->plan->steps - t->step) : 0;
  return r;
}

static json_t *real_or_null(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static tr_status write_record(tr__trainer *t, const tr_step_result *result, double lr, const rates *r) {
  json_t *record =
      json_pack("{s:I, s:o, s:o, s:f, s:f, s:f, s:I, s:f, s:I, s:f, s:f, s:f, s:b}", "step", (json_int_t)t->step,
                "loss", real_or_null(result->loss), "grad_norm", real_or_null(result->norm), "clip", result->clip,
                "lr", lr, "tokens_per_s", r->tokens_per_s, "tokens", (json_int_t)t->tokens, "flops_per_s",
                r->flops_per_s, "memory_bytes", (json_int_t)t->plan->rank_nbyte, "data_wait", r->data_wait,
                "comm_wait", r->comm_wait, "eta_s", r->eta, "skipped", result->skipped);
  json_object_set_new(record, "memory_total", json_integer((json_int_t)t->memory_predicted));
  json_object_set_new(record, "memory_used", json_integer((json_int_t)t->memory_used));
  if (r->peak > 0) json_object_set_new(record, "peak_share", json_real(r->peak));
  if (r->rho >= 0) json_object_set_new(record, "rho", json_real(r->rho));
  if (r->bubble >= 0) json_object_set_new(record, "bubble", json_real(r->bubble));
  if (r->bubble >= 0 && r->simulated.makespan > 0) {
    json_object_set_new(record, "bubble_simulated", json_real(r->simulated.bubble));
    json_object_set_new(record, "step_simulated_s", json_real((double)r->simulated.makespan * 1e-9));
  }
  if (record && t->val_step == t->step) json_object_set_new(record, "val_loss", real_or_null(t->val_loss));
  return tr__metrics_append(t, record);
}

// The tags that Megatron's users know.
static tr_status write_scalars(const tr__trainer *t, const tr_step_result *result, double lr, const rates *r) {
  if (!t->events) return TR_OK;
  const tr_scalar scalar[] = {{"lm loss", result->loss},
                              {"grad-norm", result->norm},
                              {"learning-rate", lr},
                              {"throughput (tokens per second)", r->tokens_per_s},
                              {"consumed tokens", (double)t->tokens},
                              {"lm loss validation", t->val_loss}};
  size_t n = sizeof scalar / sizeof *scalar;
  return tr_events_scalars(t->events, t->step, scalar, t->val_step == t->step ? n : n - 1);
}

void tr__metrics_clear_line(tr__trainer *t) {
  if (t->progress_shown) fputs("\r\033[K", stdout);
  t->progress_shown = 0;
}

// With so many decimals, or in a form that does not grow with the number.
static const char *put_real(char out[32], int decimals, double x) {
  x = tr__unsigned_nan(x);
  if (fabs(x) >= 1e6)
    snprintf(out, 32, "%.4g", x);
  else
    snprintf(out, 32, "%.*f", decimals, x);
  return out;
}

// Fields that each begin with a bar, in as many lines as they need, behind `column` and from there on.
static void print_fields(const char *fields, int column) {
  int at = column;
  while (*fields) {
    const char *next = strstr(fields + 1, " | ");
    const int n = next ? (int)(next - fields) : (int)strlen(fields);
    if (at > column && at + n > TR_TEXT_COLUMNS) at = printf("\n%*s", column, "") - 1;
    at += printf("%.*s", n, fields);
    fields += n;
  }
}

// What was learned, and below it how fast.
static void print_line(tr__trainer *t, const tr_step_result *result, double lr, const rates *r) {
  char learned[256], speed[256], real[3][32], val_loss[48] = "", rate[32], tokens[32], eta[32];
  char peak[32] = "", comm[64] = "", bubble[64] = "";
  tr_format_count(rate, sizeof rate, r->tokens_per_s);
  tr_format_count(tokens, sizeof tokens, (double)t->tokens);
  tr_format_duration(eta, sizeof eta, r->eta);
  if (t->val_step == t->step)
    snprintf(val_loss, sizeof val_loss, " | val_loss %s", put_real(real[0], 4, t->val_loss));
  if (r->peak > 0) snprintf(peak, sizeof peak, " | peak %.0f%%", 100 * r->peak);
  if (r->rho >= 0) snprintf(comm, sizeof comm, " | comm %.1f%% rho %.2f", 100 * r->comm_wait, r->rho);
  if (r->bubble >= 0) snprintf(bubble, sizeof bubble, " | bubble %.1f%%", 100 * r->bubble);
  if (r->bubble >= 0 && r->simulated.makespan > 0)
    snprintf(bubble, sizeof bubble, " | bubble %.1f%% (%.1f%%)", 100 * r->bubble, 100 * r->simulated.bubble);
  snprintf(learned, sizeof learned, " | loss %s%s | norm %s clip %.3f | lr %.2e | %s tok/s | %s tokens",
           put_real(real[1], 4, result->loss), val_loss, put_real(real[2], 3, result->norm),
           tr__unsigned_nan(result->clip), lr, rate, tokens);
  snprintf(speed, sizeof speed, " | %.1f GFLOP/s%s%s%s | data %.1f%% | eta %s%s", r->flops_per_s * 1e-9, peak, comm,
           bubble, 100 * r->data_wait, eta, result->skipped ? " | skipped" : "");
  tr__metrics_clear_line(t);
  int column = printf("step %lld/%lld", (long long)t->step, (long long)t->plan->steps);
  print_fields(learned, column);
  printf("\n%*s", column, "");
  print_fields(speed, column);
  printf("\n");
  fflush(stdout);
}

static void show_progress(tr__trainer *t, const tr_step_result *result, int64_t now) {
  enum { WIDTH = 30, PAUSE_NS = 50000000 }; // oftener than this nobody sees
  if (!t->plan->progress || now - t->progress_ns < PAUSE_NS) return;
  char bar[WIDTH + 1], eta[32];
  int64_t steps = t->plan->steps > 0 ? t->plan->steps : 1;
  int filled = (int)(t->step * WIDTH / steps);
  for (int i = 0; i < WIDTH; i++) bar[i] = i < filled ? '#' : '.';
  bar[WIDTH] = 0;
  tr_format_duration(eta, sizeof eta, measure(t, now).eta);
  printf("\r\033[K[%s] %lld/%lld  loss %.4f  eta %s", bar, (long long)t->step, (long long)t->plan->steps,
         result->loss, eta);
  fflush(stdout);
  t->progress_ns = now;
  t->progress_shown = 1;
}

tr_status tr__metrics_step(tr__trainer *t, const tr_step_result *result, double lr, int log_now) {
  if (t->rank != 0) return TR_OK;
  int64_t now = tr_clock_ns();
  if (!log_now) {
    show_progress(t, result, now);
    return TR_OK;
  }
  rates r = measure(t, now);
  r.peak = tr__limits_share(&t->limits, r.flops_per_s);
  if (tr_comm_size(t->comm) > 1) r.rho = tr__timing_rho(t);
  tr__bubble_say(t, &r.bubble, &r.simulated);
  print_line(t, result, lr, &r);
  t->mark_tokens = t->tokens;
  t->data_ns = t->comm_ns = 0;
  TR_TRY(write_record(t, result, lr, &r));
  TR_TRY(write_scalars(t, result, lr, &r));
  t->mark_ns = tr_clock_ns();
  return TR_OK;
}
