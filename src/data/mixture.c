// SPDX-License-Identifier: MIT
// Which sample of which corpus a global index means, in memory that does not grow with the number of samples.
//
// Corpora are mixed by halving: of the first g samples, floor(g * a / b + 1/2) belong to the first half of the corpora,
// where a and b are the shares of that half and of all. Index g is in the half whose count grows from g to g + 1, and its
// number there is that count; the same again inside the half. All in integers, so every machine agrees. Rounding moves a
// count by at most 1/2 per halving: of the first g samples a corpus has its share within log2(corpora) / 2, less than 1
// for up to four corpora. When shares are the numbers of samples, g = all samples gives each corpus exactly all of its.
//
//   shares 2 1 1   index  0 1 2 3 4 5 6 7
//                  corpus 0 1 0 2 0 1 0 2   (or the like)
//
// Sample number n of a corpus is in its own epoch n / samples, in the order of that epoch (permute.c).
#include "data/source_internal.h"
#include "trireme/base/file.h"
#include "trireme/base/philox.h"

#include <math.h>
#include <stdlib.h>

typedef unsigned __int128 wide;

static const double LARGEST_WEIGHT = 0x1p48; // of at most 4096 corpora: sums stay below 2^63

tr_status tr__mixture_open(tr_source *source, const double *weight) {
  double largest = 0;
  for (size_t i = 0; weight && i < source->ncorpus; i++) {
    if (!(weight[i] > 0 && isfinite(weight[i]))) {
      return tr_error(TR_ERR_CONFIG, "the weight %g of %s does not work; it must be finite and above 0", weight[i],
                      tr_corpus_path(source->corpus[i]));
    }
    largest = fmax(largest, weight[i]);
  }
  source->share = calloc(source->ncorpus + 1, sizeof *source->share);
  if (!source->share) return tr_error(TR_ERR_MEMORY, "no memory for the shares of %zu corpora", source->ncorpus);
  for (size_t i = 0; i < source->ncorpus; i++) {
    uint64_t share =
        weight ? (uint64_t)(weight[i] / largest * LARGEST_WEIGHT) : (uint64_t)source->part[TR__TRAIN][i].samples;
    source->share[i + 1] = source->share[i] + (share > 0 ? share : 1);
  }
  return TR_OK;
}

// How many of the first g go to the first half: g * half / all, rounded.
static uint64_t count_of(uint64_t g, uint64_t half, uint64_t all) {
  return (uint64_t)((2 * (wide)g * half + all) / (2 * (wide)all));
}

// The corpus of index g; *number: which of that corpus's samples, counted over all its epochs.
static size_t corpus_of(const tr_source *source, uint64_t g, uint64_t *number) {
  const uint64_t *share = source->share;
  size_t low = 0, high = source->ncorpus;
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    uint64_t half = share[middle] - share[low], all = share[high] - share[low];
    uint64_t count = count_of(g, half, all);
    if (count_of(g + 1, half, all) > count) {
      high = middle;
      g = count;
    } else {
      low = middle;
      g -= count;
    }
  }
  *number = g;
  return low;
}

// One corpus alone keeps the seed, so mixing it with nothing changes nothing.
static uint64_t seed_of(const tr_source *source, size_t corpus) {
  const uint64_t word[2] = {source->options.seed, corpus};
  return corpus == 0 ? source->options.seed : tr_hash_bytes(word, sizeof word);
}

static uint64_t draw(uint64_t seed, uint64_t number, uint64_t samples) {
  // Not the key of any epoch's order.
  tr_rng_key key = tr_rng_key_make(seed, TR_RNG_SHUFFLE, UINT64_MAX);
  uint64_t random = (uint64_t)tr_rng_u32(key, number, 0, 0) << 32 | tr_rng_u32(key, number, 0, 1);
  return (uint64_t)((wide)random * samples >> 64);
}

void tr_source_locate(const tr_source *source, int validation, int64_t index, size_t *corpus, int64_t *sample) {
  if (validation) {
    const tr__part *part = source->part[TR__VALIDATION];
    size_t i = 0;
    while (index >= part[i].samples) index -= part[i++].samples;
    *corpus = i;
    *sample = index;
    return;
  }
  uint64_t number, samples, seed;
  *corpus = corpus_of(source, (uint64_t)index, &number);
  samples = (uint64_t)source->part[TR__TRAIN][*corpus].samples;
  seed = seed_of(source, *corpus);
  *sample = (int64_t)(source->options.replacement ? draw(seed, number, samples)
                                                  : tr_permute(seed, number / samples, samples, number % samples));
}
