// SPDX-License-Identifier: MIT
// Drawing the next token: temperature, then the top_k largest, then the smallest set whose probability reaches top_p.
// The random number depends on (seed, draw) alone, so a text can be generated again.
#include "trireme/base/philox.h"
#include "trireme/run/decode.h"
#include <math.h>
#include <stdlib.h>

static int compare_logit(const void *a, const void *b) {
  const tr_candidate *x = a, *y = b;
  if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
  return x->token - y->token;
}

static int32_t largest(const float *logits, int64_t vocab) {
  int64_t best = 0;
  for (int64_t i = 1; i < vocab; i++)
    if (logits[i] > logits[best]) best = i;
  return (int32_t)best;
}

int32_t tr_sample_token(const tr_sampling *sampling, const float *logits, int64_t vocab, int64_t draw,
                        tr_candidate *work) {
  if (sampling->temperature <= 0) return largest(logits, vocab);
  for (int64_t i = 0; i < vocab; i++) work[i] = (tr_candidate){logits[i], (int32_t)i};
  qsort(work, (size_t)vocab, sizeof *work, compare_logit);
  int64_t kept = sampling->top_k > 0 && sampling->top_k < vocab ? sampling->top_k : vocab;
  float most = work[0].logit;
  double sum = 0;
  for (int64_t i = 0; i < kept; i++) {
    work[i].logit = expf((float)((work[i].logit - most) / sampling->temperature));
    sum += work[i].logit;
  }
  double mass = 0;
  int64_t nucleus = 0;
  while (nucleus < kept && (nucleus == 0 || mass < sampling->top_p * sum)) mass += work[nucleus++].logit;
  tr_rng_key key = tr_rng_key_make(sampling->seed, TR_RNG_SAMPLE, 0);
  double left = tr_rng_uniform(key, (uint64_t)draw, 0, 0) * mass;
  for (int64_t i = 0; i < nucleus; i++) {
    left -= work[i].logit;
    if (left < 0) return work[i].token;
  }
  return work[nucleus - 1].token;
}
