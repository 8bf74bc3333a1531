// SPDX-License-Identifier: MIT
// Laws of money (law_money.h): operations to device hours, and those to energy, carbon and price. A year has 8760 hours.
// Nothing here knows a device: peaks, powers and prices are the caller's.
#include "trireme/plan/law_money.h"

enum { HOUR = 3600, HOURS_OF_YEAR = 8760 };
static const double joule_per_kwh = 3.6e6;

double tr_law_train_flop(double params, double tokens) { return 6 * params * tokens; }

double tr_law_achieved_flops(double flop, double device_seconds) { return flop / device_seconds; }

double tr_law_wall_seconds(double device_seconds, double devices) { return device_seconds / devices; }

double tr_law_device_years(double device_seconds) { return device_seconds / HOUR / HOURS_OF_YEAR; }

double tr_law_price(double devices, double seconds, double per_hour) { return devices * seconds / HOUR * per_hour; }

double tr_law_saved(double cheap, double dear) { return 1 - cheap / dear; }

tr_law_bill tr_law_bill_for(const tr_law_budget *budget) {
  tr_law_bill out = {0};
  double rate = budget->devices * budget->peak * budget->mfu * budget->scaling;
  out.seconds = budget->flop / rate / budget->available;
  out.device_hours = budget->devices * out.seconds / HOUR;
  out.joule = budget->devices * budget->power * budget->pue * out.seconds;
  out.gram = out.joule / joule_per_kwh * budget->carbon;
  out.price = tr_law_price(budget->devices, out.seconds, budget->price);
  return out;
}
