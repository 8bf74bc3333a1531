// SPDX-License-Identifier: MIT
// The ledger: which samples were used, each exactly once.
//
// A rank adds p(sample) for every sample that it uses, where p is a fixed polynomial of degree 3 modulo 2^64. Sums do not
// depend on order, and the sums of ranks add up. What the sum of a range must be follows from sums of powers, so checking
// takes as long for ten samples as for 10^15, and no damaged file can keep a reader busy. The first coefficient is odd, the
// others even: then p takes every value once, and a single sample in the place of another never goes unnoticed; more of
// them cancel out only by a chance of about 2^-64.
#include "trireme/base/json.h"
#include "trireme/data/data.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const uint64_t LINEAR = 0x9E3779B97F4A7C15u, SQUARE = 0xD1B54A32D192ED02u, CUBE = 0x8CB92BA72F3D8DD6u;
static const uint64_t THIRD = 0xAAAAAAAAAAAAAAABu; // 3 * THIRD = 1 modulo 2^64

void tr_tally_add(tr_tally *tally, int64_t sample) {
  uint64_t x = (uint64_t)sample;
  tally->count++;
  tally->digest += x * (LINEAR + x * (SQUARE + x * CUBE));
}

// The sum of p(x) for x < n.
static uint64_t digest_below(uint64_t n) {
  if (n == 0) return 0;
  uint64_t last = n - 1;
  uint64_t first_powers = n % 2 == 0 ? n / 2 * last : last / 2 * n; // n (n - 1) / 2
  uint64_t squares = first_powers * (2 * n - 1) * THIRD;            // n (n - 1) (2n - 1) / 6
  return LINEAR * first_powers + SQUARE * squares + CUBE * first_powers * first_powers;
}

tr_tally tr_tally_expected(int64_t first, int64_t end) {
  if (end <= first) return (tr_tally){0};
  return (tr_tally){.count = (uint64_t)(end - first),
                    .digest = digest_below((uint64_t)end) - digest_below((uint64_t)first)};
}

void tr_ledger_free(tr_ledger *ledger) {
  free(ledger->span);
  *ledger = (tr_ledger){0};
}

int64_t tr_ledger_end(const tr_ledger *ledger) { return ledger->nspan ? ledger->span[ledger->nspan - 1].end : 0; }

static tr_status append_span(tr_ledger *ledger, tr_ledger_span span) {
  if (ledger->nspan == ledger->capacity) {
    size_t capacity = ledger->capacity * 2 + 8;
    tr_ledger_span *larger = realloc(ledger->span, capacity * sizeof *larger);
    if (!larger) return tr_error(TR_ERR_MEMORY, "no memory for a ledger of %zu spans", capacity);
    ledger->span = larger;
    ledger->capacity = capacity;
  }
  ledger->span[ledger->nspan++] = span;
  return TR_OK;
}

tr_status tr_ledger_add(tr_ledger *ledger, int64_t first, int64_t end, int64_t step, int ranks, tr_tally used) {
  if (first != tr_ledger_end(ledger) || end < first) {
    return tr_error(TR_ERR_VERIFY,
                    "samples %" PRId64 " to %" PRId64 " do not follow those used so far, which end at %" PRId64,
                    first, end, tr_ledger_end(ledger));
  }
  tr_tally expected = tr_tally_expected(first, end);
  if (used.count != expected.count) {
    return tr_error(TR_ERR_VERIFY,
                    "of samples %" PRId64 " to %" PRId64 " each must be used once, but %" PRIu64
                    " were used, not %" PRIu64 ": samples were %s",
                    first, end - 1, used.count, expected.count, used.count < expected.count ? "lost" : "doubled");
  }
  if (used.digest != expected.digest) {
    return tr_error(TR_ERR_VERIFY,
                    "samples %" PRId64 " to %" PRId64
                    " were not each used once: as many samples were used, but others",
                    first, end - 1);
  }
  if (end == first) return TR_OK;
  tr_ledger_span *last = ledger->nspan ? &ledger->span[ledger->nspan - 1] : NULL;
  if (last && last->ranks == ranks) {
    last->end = end;
    last->step = step;
    last->digest += used.digest;
    return TR_OK;
  }
  return append_span(ledger, (tr_ledger_span){first, end, step, ranks, used.digest});
}

tr_status tr_ledger_to_json(const tr_ledger *ledger, json_t **out) {
  json_t *array = json_array();
  for (size_t i = 0; array && i < ledger->nspan; i++) {
    const tr_ledger_span *s = &ledger->span[i];
    char digest[17]; // as text, because JSON's integers have a sign
    snprintf(digest, sizeof digest, "%016" PRIx64, s->digest);
    json_t *span = json_pack("{s:I, s:I, s:I, s:i, s:s}", "first", (json_int_t)s->first, "end", (json_int_t)s->end,
                             "step", (json_int_t)s->step, "ranks", s->ranks, "digest", digest);
    if (json_array_append_new(array, span) != 0) {
      json_decref(array);
      array = NULL;
    }
  }
  if (!array) return tr_error(TR_ERR_MEMORY, "no memory for the ledger as JSON");
  *out = array;
  return TR_OK;
}

static tr_status read_span(const json_t *json, const char *name, tr_ledger_span *span) {
  int64_t ranks;
  const char *digest;
  TR_TRY(tr_json_get_int(json, name, "first", 1, &span->first));
  TR_TRY(tr_json_get_int(json, name, "end", 1, &span->end));
  TR_TRY(tr_json_get_int(json, name, "step", 1, &span->step));
  TR_TRY(tr_json_get_int(json, name, "ranks", 1, &ranks));
  TR_TRY(tr_json_get_string(json, name, "digest", 1, &digest));
  if (ranks < 1 || ranks > INT32_MAX || span->step < 0) {
    return tr_error(TR_ERR_CKPT, "%s: %" PRId64 " ranks at step %" PRId64 " cannot have used samples", name, ranks,
                    span->step);
  }
  span->ranks = (int)ranks;
  char *rest;
  span->digest = strtoull(digest, &rest, 16);
  if (*rest || rest != digest + 16) {
    return tr_error(TR_ERR_CKPT, "%s: digest '%s' does not have 16 hexadecimal digits", name, digest);
  }
  return TR_OK;
}

static tr_status read_spans(const json_t *json, const char *name, tr_ledger *ledger) {
  if (!json_is_array(json)) return tr_error(TR_ERR_CKPT, "%s: the ledger of samples is no array", name);
  for (size_t i = 0; i < json_array_size(json); i++) {
    tr_ledger_span span;
    tr_status status = read_span(json_array_get(json, i), name, &span);
    if (status == TR_ERR_DATA) return tr_error(TR_ERR_CKPT, "%s", tr_status_text());
    TR_TRY(status);
    if (span.first != tr_ledger_end(ledger) || span.end <= span.first) {
      return tr_error(TR_ERR_CKPT,
                      "%s: samples %" PRId64 " to %" PRId64 " do not follow those before, which end at %" PRId64,
                      name, span.first, span.end, tr_ledger_end(ledger));
    }
    if (span.digest != tr_tally_expected(span.first, span.end).digest) {
      return tr_error(TR_ERR_CKPT, "%s: samples %" PRId64 " to %" PRId64 " have a wrong digest", name, span.first,
                      span.end - 1);
    }
    TR_TRY(append_span(ledger, span));
  }
  return TR_OK;
}

tr_status tr_ledger_from_json(const json_t *json, const char *name, tr_ledger *out) {
  tr_ledger ledger = {0};
  tr_status status = read_spans(json, name, &ledger);
  if (status < 0) {
    tr_ledger_free(&ledger);
    return status;
  }
  *out = ledger;
  return TR_OK;
}
