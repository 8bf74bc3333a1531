// SPDX-License-Identifier: MIT
// Laws of money: days, energy, carbon and price of a run.
//
// 6 N D operations for N (active) parameters and D tokens (Kaplan et al., 2020); devices x peak x MFU of them a second
// while the job runs; power x PUE of energy; grams per kWh of carbon. Peaks are those without sparsity.
#ifndef TRIREME_PLAN_LAW_MONEY_H
#define TRIREME_PLAN_LAW_MONEY_H

double tr_law_train_flop(double params, double tokens);           // 6 N D
double tr_law_achieved_flops(double flop, double device_seconds); // FLOP/s of each device
double tr_law_wall_seconds(double device_seconds, double devices);
double tr_law_device_years(double device_seconds); // of 8760 hours

typedef struct tr_law_budget {
  double flop, devices, peak;     // peak: FLOP/s of one device
  double mfu, scaling, available; // shares
  double power, pue, carbon;      // W per device with its part of the host; total over that; g per kWh
  double price;                   // of a device for an hour
} tr_law_budget;

typedef struct tr_law_bill {
  double seconds, device_hours, joule, gram, price;
} tr_law_bill;
tr_law_bill tr_law_bill_for(const tr_law_budget *budget);

double tr_law_price(double devices, double seconds, double per_hour);
double tr_law_saved(double cheap, double dear); // share of the dear one

#endif
