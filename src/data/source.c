// SPDX-License-Identifier: MIT
// Sources: corpora opened and cut into a training and a validation part each.
//
// The end of a corpus is its validation part: tokens of a stream, else whole documents. Parts share no token, so no
// validation token is ever a training target.
//
// Not here: what samples hold (packing.c), their order (mixture.c, permute.c), the layout of batches (batch.c).
#include "data/source_internal.h"
#include "trireme/base/file.h"

#include <math.h>
#include <stdlib.h>

enum { CORPORA = 4096 };

static tr_status check_options(const tr_source_options *o) {
  if (o->npath < 1 || o->npath > CORPORA) {
    return tr_error(TR_ERR_CONFIG, "data.path names %zu files; it must name 1 to %d", o->npath, CORPORA);
  }
  for (size_t i = 0; i < o->npath; i++) {
    if (!o->path[i] || !o->path[i][0]) {
      return tr_error(TR_ERR_CONFIG, "data.path is empty; it must name a text file or a token file");
    }
  }
  if (o->sequence < 1 || o->sequence >= INT32_MAX) {
    return tr_error(TR_ERR_CONFIG, "sequence %lld does not work; it must be 1 to %d tokens", (long long)o->sequence,
                    INT32_MAX - 1);
  }
  // Written so that a NaN is refused too.
  if (!(o->val_fraction >= 0 && o->val_fraction < 1)) {
    return tr_error(TR_ERR_CONFIG, "val_fraction %g does not work; it must be at least 0 and below 1",
                    o->val_fraction);
  }
  return TR_OK;
}

static tr_status open_corpus(const tr_source_options *o, const char *path, tr_corpus **out) {
  tr_corpus_options options = {.path = path, .text = o->text, .vocab = o->vocab, .end = o->end};
  TR_TRY(tr_corpus_open(&options, out));
  if (tr_corpus_tokens(*out) < 2) {
    return tr_error(TR_ERR_DATA, "%s: has one token; at least 2 tokens are needed (a token and its next one)", path);
  }
  return o->documents || o->packing != TR_PACK_STREAM ? tr_corpus_index(*out) : TR_OK;
}

// Training gets first .. cut - 1 of what parts are counted in, validation cut .. end - 1. Each part of a stream must hold one
// whole sample, or the numbers reported for it would mean little.
static tr_status cut_stream(const tr_source_options *o, const tr_corpus *corpus, int64_t *cut) {
  int64_t total = tr_corpus_tokens(corpus), sample = o->sequence + 1;
  int64_t wanted = llround(o->val_fraction * (double)total), validation = wanted > sample ? wanted : sample;
  *cut = total - validation;
  if (*cut >= sample) return TR_OK;
  double enough = fmax(2.0 * (double)sample, ceil((double)sample / (1 - o->val_fraction)));
  return tr_error(
      TR_ERR_DATA,
      "%s: its %lld tokens cannot be cut at val_fraction %g, because training and validation each need "
      "%lld (sequence + 1); %.0f tokens in all, a shorter sequence, a smaller val_fraction or val_fraction "
      "0 would work",
      tr_corpus_path(corpus), (long long)total, o->val_fraction, (long long)sample, enough);
}

static int64_t document_tokens(const tr_corpus *corpus, int64_t i) {
  return tr_corpus_document_start(corpus, i + 1) - tr_corpus_document_start(corpus, i);
}

// Validation gets at least one document from which something can be predicted.
static tr_status cut_documents(const tr_source_options *o, const tr_corpus *corpus, int64_t *cut) {
  int64_t total = tr_corpus_documents(corpus), last = total - 1, first = 0;
  int64_t wanted = llround(o->val_fraction * (double)total);
  while (last > 0 && document_tokens(corpus, last) < 2) last--;
  while (first < last && document_tokens(corpus, first) < 2) first++;
  *cut = total - wanted < last ? total - wanted : last;
  if (*cut > first) return TR_OK;
  return tr_error(
      TR_ERR_DATA,
      "%s: its %lld documents cannot be cut at val_fraction %g, because training and validation each need "
      "one of at least 2 tokens; a smaller val_fraction, val_fraction 0 or a val_path would work",
      tr_corpus_path(corpus), (long long)total, o->val_fraction);
}

static tr_status make_part(const tr_source_options *o, const tr_corpus *corpus, int64_t first, int64_t end,
                           tr__part *part) {
  int stream = o->packing == TR_PACK_STREAM;
  *part = (tr__part){.corpus = corpus, .sequence = o->sequence, .first = first, .end = end, .tokens = end - first};
  if (!stream) part->tokens = tr_corpus_document_start(corpus, end) - tr_corpus_document_start(corpus, first);
  TR_TRY(tr__part_pack(part, o->packing, o->documents));
  if (part->targets > 0) return TR_OK;
  return tr_error(TR_ERR_DATA, "%s: none of its documents has at least 2 tokens, so nothing can be predicted",
                  tr_corpus_path(corpus));
}

static int64_t whole(const tr_source_options *o, const tr_corpus *corpus) {
  return o->packing == TR_PACK_STREAM ? tr_corpus_tokens(corpus) : tr_corpus_documents(corpus);
}

static tr_status make_parts(const tr_source_options *o, const tr_corpus *corpus, int cuts, tr__part *train,
                            tr__part *validation) {
  int64_t end = whole(o, corpus), cut = end;
  if (cuts) TR_TRY(o->packing == TR_PACK_STREAM ? cut_stream(o, corpus, &cut) : cut_documents(o, corpus, &cut));
  TR_TRY(make_part(o, corpus, 0, cut, train));
  return cuts ? make_part(o, corpus, cut, end, validation) : TR_OK;
}

static tr_status open_parts(tr_source *source, const tr_source_options *o) {
  int has_file = o->val_path && o->val_path[0], cuts = !has_file && o->val_fraction > 0;
  source->corpus = calloc(o->npath, sizeof(tr_corpus *));
  for (int p = 0; p < TR__NPART; p++) source->part[p] = calloc(o->npath, sizeof(tr__part));
  if (!source->corpus || !source->part[TR__TRAIN] || !source->part[TR__VALIDATION]) {
    return tr_error(TR_ERR_MEMORY, "no memory for %zu corpora", o->npath);
  }
  for (size_t i = 0; i < o->npath; i++) {
    source->ncorpus = source->npart[TR__TRAIN] = i + 1;
    source->npart[TR__VALIDATION] = cuts ? i + 1 : 0;
    TR_TRY(open_corpus(o, o->path[i], &source->corpus[i]));
    TR_TRY(make_parts(o, source->corpus[i], cuts, &source->part[TR__TRAIN][i], &source->part[TR__VALIDATION][i]));
  }
  if (has_file) {
    source->npart[TR__VALIDATION] = 1;
    TR_TRY(open_corpus(o, o->val_path, &source->val_corpus));
    TR_TRY(make_part(o, source->val_corpus, 0, whole(o, source->val_corpus), &source->part[TR__VALIDATION][0]));
  }
  return tr__mixture_open(source, o->weight);
}

tr_status tr_source_open(const tr_source_options *options, tr_source **out) {
  TR_TRY(check_options(options));
  tr_source *source = calloc(1, sizeof *source);
  if (!source) return tr_error(TR_ERR_MEMORY, "%s: no memory for the token source", options->path[0]);
  source->options = *options;
  source->options.path = NULL;
  source->options.val_path = NULL;
  source->options.weight = NULL;
  tr_status status = open_parts(source, options);
  if (status < 0) {
    tr_source_close(source);
    return status;
  }
  *out = source;
  return TR_OK;
}

void tr_source_close(tr_source *source) {
  if (!source) return;
  for (int p = 0; p < TR__NPART; p++) {
    for (size_t i = 0; i < source->npart[p]; i++) tr__part_free(&source->part[p][i]);
    free(source->part[p]);
  }
  for (size_t i = 0; i < source->ncorpus; i++) tr_corpus_close(source->corpus[i]);
  tr_corpus_close(source->val_corpus);
  free(source->corpus);
  free(source->share);
  free(source);
}

// One number of all parts of a kind, added up.
static tr__part sum_of(const tr_source *source, int validation) {
  tr__part sum = {0};
  int p = validation ? TR__VALIDATION : TR__TRAIN;
  for (size_t i = 0; i < source->npart[p]; i++) {
    sum.tokens += source->part[p][i].tokens;
    sum.targets += source->part[p][i].targets;
    sum.samples += source->part[p][i].samples;
    sum.rows += source->part[p][i].rows;
  }
  return sum;
}

int64_t tr_source_tokens(const tr_source *source, int validation) { return sum_of(source, validation).tokens; }

int64_t tr_source_targets(const tr_source *source, int validation) { return sum_of(source, validation).targets; }

int64_t tr_source_samples(const tr_source *source, int validation) { return sum_of(source, validation).samples; }

double tr_source_waste(const tr_source *source) {
  tr__part sum = sum_of(source, 0);
  return 1 - (double)sum.rows / ((double)sum.samples * (double)source->options.sequence);
}

uint64_t tr_source_hash(const tr_source *source) {
  uint64_t hash = source->ncorpus; // their order counts: shares and seeds go by it
  for (size_t i = 0; i < source->ncorpus; i++) {
    const uint64_t both[2] = {hash, tr_corpus_hash(source->corpus[i])};
    hash = tr_hash_bytes(both, sizeof both);
  }
  return hash;
}

uint64_t tr_source_validation_hash(const tr_source *source) {
  return source->val_corpus ? tr_corpus_hash(source->val_corpus) : 0;
}

size_t tr_source_corpora(const tr_source *source) { return source->ncorpus; }

const tr_corpus *tr_source_corpus(const tr_source *source, size_t i) { return source->corpus[i]; }

int64_t tr_source_length(const tr_source *source, int validation, int64_t index) {
  size_t corpus;
  int64_t sample;
  tr_source_locate(source, validation, index, &corpus, &sample);
  return tr__part_length(&source->part[validation ? TR__VALIDATION : TR__TRAIN][corpus], sample);
}
