// SPDX-License-Identifier: MIT
// Decimals into ticks without rounding: all numbers of a command over their common denominator, divided by what they have in
// common. So --costs 1,2,0 --comm 0.5 counts in halves, and results are exact.
#include "cli/cli_internal.h"
#include "cli/simulate_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS = 6, MOST = 1000000, NUMBERS = 8 };

// value / 10^decimals
typedef struct decimal {
  int64_t value;
  int decimals;
} decimal;

static tr_status refuse(const char *option, const char *text, size_t n) {
  return tr__cli_usage("simulate", "%s takes a number below %d with at most %d digits behind the point, not '%.*s'",
                       option, MOST, DIGITS, n < 40 ? (int)n : 40, text);
}

static tr_status parse_decimal(const char *option, const char *text, size_t n, decimal *out) {
  int digits = 0, decimals = -1;
  int64_t value = 0;
  for (size_t i = 0; i < n; i++) {
    if (text[i] == '.' && decimals < 0) {
      decimals = 0;
      continue;
    }
    if (text[i] < '0' || text[i] > '9' || (decimals < 0 && value >= MOST) || decimals == DIGITS)
      return refuse(option, text, n);
    value = 10 * value + (text[i] - '0');
    digits++;
    decimals += decimals >= 0;
  }
  if (digits == 0) return refuse(option, text, n);
  *out = (decimal){value, decimals < 0 ? 0 : decimals};
  int64_t whole = value;
  for (int i = 0; i < out->decimals; i++) whole /= 10;
  return whole < MOST ? TR_OK : refuse(option, text, n);
}

typedef struct numbers {
  decimal f, b, w, pair, comm, occupancy, reduce, tick;
  int two; // --costs F,B: W is a half of B where the pass is split
} numbers;

static tr_status parse_costs(const char *text, numbers *out) {
  decimal *to[] = {&out->f, &out->b, &out->w};
  int n = 0;
  for (const char *at = text;; n++) {
    const size_t length = strcspn(at, ",");
    if (n == 3) break;
    TR_TRY(parse_decimal("--costs", at, length, to[n]));
    if (at[length] == '\0') break;
    at += length + 1;
  }
  if (n == 0 || n == 3)
    return tr__cli_usage("simulate", "--costs takes F,B,W or F,B, as in 1,1,1, not '%.40s'", text);
  out->two = n == 1;
  return TR_OK;
}

static tr_status parse_numbers(const tr__simulate_request *r, numbers *out) {
  const struct {
    const char *option, *text;
    decimal *to;
  } more[] = {{"--pair", r->pair, &out->pair},
              {"--comm", r->comm, &out->comm},
              {"--occupancy", r->occupancy, &out->occupancy},
              {"--reduce", r->reduce, &out->reduce},
              {"--tick", r->tick, &out->tick}};
  *out = (numbers){0};
  TR_TRY(parse_costs(r->costs ? r->costs : "1,1,1", out));
  for (size_t i = 0; i < sizeof more / sizeof *more; i++)
    if (more[i].text) TR_TRY(parse_decimal(more[i].option, more[i].text, strlen(more[i].text), more[i].to));
  if (r->tick && out->tick.value == 0)
    return tr__cli_usage("simulate", "--tick takes a number above 0, not '%.40s'", r->tick);
  return TR_OK;
}

static int64_t common(int64_t a, int64_t b) {
  while (b) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// All numbers over 10^DIGITS * 2 * parts: passes are a part of a rank's, everything else is not.
static void fill(const numbers *n, int split, int parts, const tr__simulate_request *r, tr__simulate_costs *out) {
  const decimal *of[NUMBERS] = {&n->f, &n->b, &n->w, &n->pair, &n->comm, &n->occupancy, &n->reduce, &n->tick};
  int64_t value[NUMBERS], factor = 0;
  for (int i = 0; i < NUMBERS; i++) {
    value[i] = of[i]->value * 2 * (i < 4 ? 1 : parts);
    for (int k = of[i]->decimals; k < DIGITS; k++) value[i] *= 10;
  }
  if (n->two && split) value[1] = value[2] = value[1] / 2;
  for (int i = 0; i < NUMBERS; i++) factor = common(factor, value[i]);
  if (factor == 0) factor = 1;
  out->unit_ticks = 2e6 * parts / (double)factor;
  int64_t *row = out->row[0];
  memset(row, 0, sizeof *out->row);
  row[TR_OP_F] = row[TR_OP_R] = value[0] / factor;
  row[TR_OP_I] = value[1] / factor;
  row[TR_OP_W] = value[2] / factor;
  row[TR_OP_B] = row[TR_OP_I] + row[TR_OP_W];
  row[TR_OP_X] = r->pair ? value[3] / factor : -1;
  row[TR_OP_REDUCE] = value[6] / factor;
  out->sim.latency = value[4] / factor;
  out->sim.occupancy = value[5] / factor;
  out->tick = value[7] / factor;
}

static void describe(int split, int one_stream, tr__simulate_costs *out) {
  const int64_t *row = out->row[0];
  const double unit = out->unit_ticks;
  char back[64];
  if (split)
    snprintf(back, sizeof back, "I %.9g, W %.9g", (double)row[TR_OP_I] / unit, (double)row[TR_OP_W] / unit);
  else
    snprintf(back, sizeof back, "B %.9g", (double)row[TR_OP_B] / unit);
  snprintf(out->text, sizeof out->text, "F %.9g, %s per pass, a message %.9g%s", (double)row[TR_OP_F] / unit, back,
           (double)(out->sim.latency + out->sim.occupancy) / unit, one_stream ? ", one stream" : "");
}

tr_status tr__simulate_costs_parse(const tr__simulate_request *request, const tr_schedule *schedule, int parts,
                                   tr__simulate_costs *out) {
  numbers n;
  const int split = tr__simulate_splits(schedule);
  TR_TRY(parse_numbers(request, &n));
  *out = (tr__simulate_costs){.unit_name = "", .row = malloc(sizeof *out->row)};
  if (!out->row) return tr_error(TR_ERR_MEMORY, "no memory for the costs");
  fill(&n, split, parts, request, out);
  out->sim.nstage = 1;
  out->sim.stage = (const int64_t(*)[TR_OP_KIND_COUNT])out->row;
  out->sim.one_stream = request->one_stream;
  describe(split, request->one_stream, out);
  return TR_OK;
}

void tr__simulate_costs_free(tr__simulate_costs *costs) {
  free(costs->row);
  costs->row = NULL;
}

int tr__simulate_splits(const tr_schedule *schedule) {
  for (uint32_t i = 0; i < schedule->begin[schedule->p]; i++)
    if (schedule->pass[i].kind == TR_OP_W) return 1;
  return 0;
}
