// SPDX-License-Identifier: MIT
// The compute power law (law_power.h). For a floor the fit is a straight line in logarithms. The residual of that line, in the
// unit of the loss, is a smooth function of the floor: a grid in the logarithm of (least loss - floor) finds its valley
// and golden section the bottom.
#include "trireme/plan/law_power.h"

#include <math.h>

enum { GRID = 200, GOLDEN_STEPS = 80, FLOOR_RUNS = 4 };

typedef struct runs {
  size_t n;
  const double *compute, *loss;
  double least_loss;
} runs;

double tr_law_power_loss(const tr_law_power *law, double compute) {
  return law->floor + law->scale * pow(compute, -law->exponent);
}

double tr_law_power_compute(const tr_law_power *law, double loss) {
  return loss > law->floor ? pow((loss - law->floor) / law->scale, -1 / law->exponent) : INFINITY;
}

// Least squares of y = log(loss - floor) on x = log C.
static tr_law_power line(const runs *r, double floor) {
  double n = (double)r->n, mx = 0, my = 0, xx = 0, xy = 0, rest = 0;
  for (size_t i = 0; i < r->n; i++) {
    mx += log(r->compute[i]) / n;
    my += log(r->loss[i] - floor) / n;
  }
  for (size_t i = 0; i < r->n; i++) {
    double x = log(r->compute[i]) - mx;
    xx += x * x;
    xy += x * (log(r->loss[i] - floor) - my);
  }
  double slope = xy / xx;
  for (size_t i = 0; i < r->n; i++) {
    double d = log(r->loss[i] - floor) - my - slope * (log(r->compute[i]) - mx);
    rest += d * d;
  }
  return (tr_law_power){.floor = floor,
                        .scale = exp(my - slope * mx),
                        .exponent = -slope,
                        .exponent_error = r->n > 2 ? sqrt(rest / (n - 2) / xx) : NAN,
                        .residual = sqrt(rest / n)};
}

// Squared errors of the loss itself at the floor `least_loss - exp(gap)`: those of its logarithm would reward a floor far
// below all runs, where logarithms hardly differ.
static double error_at(const runs *r, double gap) {
  tr_law_power law = line(r, r->least_loss - exp(gap));
  double sum = 0;
  for (size_t i = 0; i < r->n; i++) {
    double d = r->loss[i] - tr_law_power_loss(&law, r->compute[i]);
    sum += d * d;
  }
  return sum;
}

static double best_floor(const runs *r) {
  const double low = log(r->least_loss * 1e-4), high = log(r->least_loss), golden = 0.6180339887498949;
  double best = high, step = (high - low) / GRID;
  for (int i = 0; i <= GRID; i++)
    if (error_at(r, low + step * i) < error_at(r, best)) best = low + step * i;
  double a = fmax(low, best - step), b = fmin(high, best + step);
  for (int i = 0; i < GOLDEN_STEPS; i++) {
    double x = b - golden * (b - a), y = a + golden * (b - a);
    if (error_at(r, x) < error_at(r, y))
      b = y;
    else
      a = x;
  }
  return fmax(0, r->least_loss - exp((a + b) / 2)); // exp(log(x)) may be above x
}

static tr_status check(const runs *r, double floor) {
  int varies = 0, differs = 0;
  if (r->n < 2)
    return tr_error(TR_ERR_DATA, "%zu run%s nothing about an exponent; give two, better four", r->n,
                    r->n == 1 ? " says" : "s say");
  for (size_t i = 0; i < r->n; i++) {
    if (!(r->compute[i] > 0 && isfinite(r->compute[i])))
      return tr_error(TR_ERR_DATA, "compute %g of run %zu is no number of operations above 0", r->compute[i], i + 1);
    if (!(r->loss[i] > 0 && isfinite(r->loss[i])))
      return tr_error(TR_ERR_DATA, "loss %g of run %zu is no number above 0", r->loss[i], i + 1);
    if (r->loss[i] <= floor)
      return tr_error(TR_ERR_DATA, "loss %g of run %zu is not above the floor %g; give a lower floor", r->loss[i],
                      i + 1, floor);
    varies |= r->compute[i] != r->compute[0];
    differs |= r->loss[i] != r->loss[0];
  }
  if (!varies || !differs)
    return tr_error(TR_ERR_DATA, "%s is the same in all runs; an exponent needs runs of different sizes",
                    varies ? "loss" : "compute");
  return TR_OK;
}

tr_status tr_law_power_fit(size_t n, const double *compute, const double *loss, double floor, tr_law_power *out) {
  runs r = {.n = n, .compute = compute, .loss = loss, .least_loss = n > 0 ? loss[0] : 0};
  TR_TRY(check(&r, floor));
  double least = compute[0], most = compute[0];
  for (size_t i = 0; i < n; i++) {
    r.least_loss = fmin(r.least_loss, loss[i]);
    least = fmin(least, compute[i]);
    most = fmax(most, compute[i]);
  }
  if (isnan(floor)) floor = n >= FLOOR_RUNS ? best_floor(&r) : 0;
  tr_law_power law = line(&r, floor);
  if (!(law.exponent > 0))
    return tr_error(TR_ERR_DATA, "loss does not fall with compute (exponent %.3g); runs must be tuned alike",
                    law.exponent);
  law.least = least;
  law.most = most;
  *out = law;
  return TR_OK;
}
