// SPDX-License-Identifier: MIT
// Numbers from people: counts with units, real numbers, durations.
//
// Counts are computed in integers from digits, decimal exponent and unit, so "1.1G" is exactly 1 100 000 000
// and "0.3" is seen to be no integer; no rounding decides. Real numbers are checked against one plain grammar
// (no hexadecimal, no "inf", no "nan") and then converted by the C library under the "C" locale, whatever the
// program's locale says.
#include "trireme/base/text.h"
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct decimal {
  int negative;
  uint64_t digits;  // value = digits * 10^exponent
  int64_t exponent; // saturated at +-EXPONENT_LIMIT
  int lost;         // nonzero digits did not fit
  const char *end;  // first character after the number
} decimal;

enum { EXPONENT_LIMIT = 100000 };

static int is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
static int is_digit(char c) { return c >= '0' && c <= '9'; }

static const char *skip_blanks(const char *p) {
  while (is_blank(*p)) p++;
  return p;
}

// `text` without outer blanks.
static const char *trimmed(const char *text, size_t *n) {
  text = skip_blanks(text);
  *n = strlen(text);
  while (*n && is_blank(text[*n - 1])) (*n)--;
  return text;
}

static void take_digit(decimal *d, int digit, int after_point) {
  if (d->digits <= (UINT64_MAX - 9) / 10) {
    d->digits = d->digits * 10 + (uint64_t)digit;
    if (after_point && d->exponent > -EXPONENT_LIMIT) d->exponent--;
  } else {
    if (digit) d->lost = 1;
    if (!after_point && d->exponent < EXPONENT_LIMIT) d->exponent++;
  }
}

// The longest prefix of `p` that is [+-]digits[.digits][e[+-]digits]; 0 if there is none.
static int scan_decimal(const char *p, decimal *d) {
  *d = (decimal){.negative = *p == '-'};
  if (*p == '-' || *p == '+') p++;
  int ndigit = 0;
  for (; is_digit(*p); p++, ndigit++) take_digit(d, *p - '0', 0);
  if (*p == '.' && (ndigit || is_digit(p[1])))
    for (p++; is_digit(*p); p++, ndigit++) take_digit(d, *p - '0', 1);
  d->end = p;
  if (!ndigit || (*p != 'e' && *p != 'E')) return ndigit > 0;
  int minus = p[1] == '-';
  p += p[1] == '-' || p[1] == '+' ? 2 : 1;
  if (!is_digit(*p)) return 1; // "2e": the rest is read as a unit and refused there
  int64_t exponent = 0;
  for (; is_digit(*p); p++)
    if (exponent < EXPONENT_LIMIT) exponent = exponent * 10 + (*p - '0');
  d->exponent += minus ? -exponent : exponent;
  d->end = p;
  return 1;
}

// The factor of a unit, 0 if it is none: k M G T, Ki Mi Gi Ti, each with an optional B, or B alone.
static int64_t count_unit(const char *p, size_t n) {
  if (n && p[n - 1] == 'B') n--;
  if (n == 0) return 1;
  static const char letter[] = "kMGT";
  const char *found = strchr(letter, *p == 'K' ? 'k' : *p);
  if (!found || n > 2 || (n == 2 && p[1] != 'i')) return 0;
  int64_t factor = 1;
  for (const char *c = letter; c <= found; c++) factor *= n == 2 ? 1024 : 1000;
  return factor;
}

static tr_status count_error(const char *text, size_t n, const char *why) {
  int shown = n > 60 ? 60 : (int)n;
  return tr_error(TR_ERR_CONFIG, "\"%.*s\" is not a whole number: %s", shown, text, why);
}

tr_status tr_parse_count(const char *text, int64_t *out) {
  size_t n;
  text = trimmed(text, &n);
  decimal d;
  if (n == 0) return count_error(text, n, "it is empty; write one like 64, 1e6, 512M or 2GiB");
  if (!scan_decimal(text, &d)) return count_error(text, n, "write one like 64, 1e6, 512M or 2GiB");
  const char *unit = skip_blanks(d.end);
  int64_t factor = unit > text + n ? 1 : count_unit(unit, (size_t)(text + n - unit));
  if (factor == 0) return count_error(text, n, "the units are k, M, G, T, Ki, Mi, Gi, Ti, with or without B");
  unsigned __int128 value = (unsigned __int128)d.digits * (uint64_t)factor;
  unsigned __int128 limit = (unsigned __int128)INT64_MAX + (unsigned)d.negative;
  for (; value && d.exponent > 0 && value <= limit; d.exponent--) value *= 10;
  for (; value && d.exponent < 0; d.exponent++) {
    if (value % 10 || d.lost) return count_error(text, n, "it has a fraction");
    value /= 10;
  }
  if (value > limit || d.lost) return count_error(text, n, "it does not fit 64 bits");
  *out = (int64_t)(d.negative ? 0 - (uint64_t)value : (uint64_t)value);
  return TR_OK;
}

// strtod that reads a point as a point under every locale.
static double to_real(const char *text) {
  locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (plain == (locale_t)0) return NAN;
  double value = strtod_l(text, NULL, plain);
  freelocale(plain);
  return value;
}

tr_status tr_parse_real(const char *text, double *out) {
  size_t n;
  text = trimmed(text, &n);
  int shown = n > 60 ? 60 : (int)n;
  decimal d;
  if (!scan_decimal(text, &d) || d.end != text + n)
    return tr_error(TR_ERR_CONFIG, "\"%.*s\" is not a number: write one like 3, 0.25 or 1e-4", shown, text);
  double value = to_real(text);
  if (!isfinite(value)) return tr_error(TR_ERR_CONFIG, "\"%.*s\" is not a number: it is too large", shown, text);
  *out = value;
  return TR_OK;
}

// Seconds in a unit, 0 if it is none.
static double duration_unit(const char *p, size_t n) {
  static const struct {
    const char *name;
    double seconds;
  } unit[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"min", 60}, {"h", 3600}, {"d", 86400}};
  for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
    if (strlen(unit[i].name) == n && memcmp(unit[i].name, p, n) == 0) return unit[i].seconds;
  return 0;
}

tr_status tr_parse_duration(const char *text, double *seconds) {
  size_t n;
  text = trimmed(text, &n);
  int shown = n > 60 ? 60 : (int)n;
  decimal d;
  double factor = 0;
  if (scan_decimal(text, &d)) {
    const char *unit = skip_blanks(d.end);
    factor = unit > text + n ? 1 : duration_unit(unit, (size_t)(text + n - unit));
  }
  if (factor == 0)
    return tr_error(TR_ERR_CONFIG, "\"%.*s\" is not a duration: write one like 30, 30s, 250ms, 5min, 2h or 1d", shown,
                    text);
  double value = to_real(text) * factor;
  if (!isfinite(value)) return tr_error(TR_ERR_CONFIG, "\"%.*s\" is not a duration: it is too long", shown, text);
  if (value < 0) return tr_error(TR_ERR_CONFIG, "\"%.*s\" is not a duration: it is negative", shown, text);
  *seconds = value;
  return TR_OK;
}
