// SPDX-License-Identifier: MIT
// Alpha and beta by least squares of relative errors: with x = 1 / t and y = s / t the line is alpha x + beta y = 1, two
// unknowns, solved by the normal equations. Times and sizes are scaled to their largest first, so that their
// products neither vanish nor overflow.
#include "trireme/comm/fit.h"
#include <math.h>

static const double enough_share = 0.9, rough = 0.25, useless = 0.5;

typedef struct sums {
  double xx, xy, yy, x, y;
  size_t n;
} sums;

static tr_status check(const double *bytes, const double *seconds, size_t n, double *most_bytes,
                       double *most_seconds) {
  int differ = 0;
  *most_bytes = *most_seconds = 0;
  for (size_t i = 0; i < n; i++) {
    if (!(seconds[i] > 0 && isfinite(seconds[i]) && bytes[i] >= 0 && isfinite(bytes[i])))
      return tr_error(TR_ERR_DATA, "a fit needs times above 0: point %zu is %g bytes in %g s", i, bytes[i],
                      seconds[i]);
    differ |= bytes[i] != bytes[0];
    *most_bytes = fmax(*most_bytes, bytes[i]);
    *most_seconds = fmax(*most_seconds, seconds[i]);
  }
  return differ ? TR_OK : tr_error(TR_ERR_DATA, "a fit needs at least two different sizes, not %zu points of one", n);
}

static void add_up(const double *bytes, const double *seconds, size_t n, double unit_bytes, double unit_seconds,
                   sums *s) {
  *s = (sums){.n = n};
  for (size_t i = 0; i < n; i++) {
    const double x = unit_seconds / seconds[i], y = bytes[i] / unit_bytes * x;
    s->xx += x * x, s->xy += x * y, s->yy += y * y;
    s->x += x, s->y += y;
  }
}

// Sum of squared relative errors of a line, in scaled units.
static double squares(const sums *s, double a, double b) {
  const double sum = a * a * s->xx + 2 * a * b * s->xy + b * b * s->yy - 2 * a * s->x - 2 * b * s->y + (double)s->n;
  return sum > 0 ? sum : 0;
}

// The best line through scaled points, and how well each parameter is known for a variance of 1.
static void solve(const sums *s, double *a, double *b, double *a_unit, double *b_unit) {
  const double det = s->xx * s->yy - s->xy * s->xy;
  *a = (s->x * s->yy - s->y * s->xy) / det;
  *b = (s->y * s->xx - s->x * s->xy) / det;
  *a_unit = s->yy / det, *b_unit = s->xx / det;
  if (*a < 0) *a = 0, *a_unit = 0, *b = s->y / s->yy, *b_unit = 1 / s->yy;
  if (*b < 0) *b = 0, *b_unit = 0, *a = s->x / s->xx, *a_unit = 1 / s->xx;
}

tr_status tr_fit_line(const double *bytes, const double *seconds, size_t n, tr_fit *out) {
  double unit_bytes, unit_seconds, a, b, a_unit, b_unit;
  sums s;
  TR_TRY(check(bytes, seconds, n, &unit_bytes, &unit_seconds));
  add_up(bytes, seconds, n, unit_bytes, unit_seconds, &s);
  solve(&s, &a, &b, &a_unit, &b_unit);
  const double left = squares(&s, a, b), variance = n > 2 ? left / (double)(n - 2) : 0;
  *out = (tr_fit){.n = n, .residual = sqrt(left / (double)n)};
  out->alpha = a * unit_seconds;
  out->alpha_error = sqrt(variance * a_unit) * unit_seconds;
  out->beta = b * unit_seconds / unit_bytes;
  out->beta_error = sqrt(variance * b_unit) * unit_seconds / unit_bytes;
  return TR_OK;
}

tr_fit_worth tr_fit_judge(const tr_fit *f) {
  if (!(f->alpha > 0 && f->beta > 0 && f->residual <= useless)) return TR_FIT_VOID;
  return f->residual <= rough ? TR_FIT_GOOD : TR_FIT_ROUGH;
}

const char *tr_fit_worth_name(tr_fit_worth worth) {
  return worth == TR_FIT_GOOD ? "good" : worth == TR_FIT_ROUGH ? "rough" : "void";
}

tr_status tr_plateau_find(const double *bytes, const double *seconds, size_t n, tr_plateau *out) {
  tr_plateau p = {0};
  for (size_t i = 0; i < n; i++)
    if (bytes[i] > 0 && seconds[i] > 0 && bytes[i] / seconds[i] > p.bandwidth)
      p.bandwidth = bytes[i] / seconds[i], p.bytes = bytes[i];
  if (!(p.bandwidth > 0)) return tr_error(TR_ERR_DATA, "none of %zu points has a bandwidth", n);
  double before_bytes = 0, before_rate = 0;
  for (size_t i = 0; i < n; i++) {
    if (!(bytes[i] > 0)) continue;
    const double rate = bytes[i] / seconds[i];
    if (p.half <= 0 && rate >= p.bandwidth / 2) {
      const double share = before_bytes > 0 ? (p.bandwidth / 2 - before_rate) / (rate - before_rate) : 1;
      p.half = before_bytes > 0 ? before_bytes * pow(bytes[i] / before_bytes, share) : bytes[i];
    }
    if (p.enough <= 0 && rate >= enough_share * p.bandwidth) p.enough = bytes[i];
    before_bytes = bytes[i], before_rate = rate;
  }
  *out = p;
  return TR_OK;
}
