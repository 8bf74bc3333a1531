// SPDX-License-Identifier: MIT
// From text files to token files: one thread reads and writes in order, a crew encodes in between.
//
//   reader -> block -> crew (nthread encoders) -> block -> writer
//                                                   \--> state, saved now and then: OUTPUT.partial.json
//
// A large plain text comes in parts, each encoded alone. The reader cuts where that makes no difference for tokenizers that
// cut words at white space (GPT-2, Llama 3, Qwen and their like); others, such as those that put a "▁" before every text, may
// encode a place differently about once per MiB.
#include "data/tokenize_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/log.h"
#include "trireme/data/text_reader.h"
#include <stdlib.h>

enum { BLOCK = 1 << 18 };

typedef struct job {
  const tr_tokenize_options *options;
  uint64_t identity;
  int64_t *size; // of every input
  tr__crew *crew;
  // reading
  tr_text_reader *reader;
  size_t input;
  int64_t skip; // where to start in the next input that is opened
  // writing
  tr_corpus_writer *writer;
  tr__tokenize_state state; // after the last block written; its mark is as old as the last save
  int64_t tokens;
  double share; // of the input that is being written
  // saving and reporting
  int has_saved;
  tr__tokenize_pace pace;
  int64_t saved_bytes;
  double saved_at, reported_at, started_at;
} job;

// ---- reading

static tr_status open_input(job *j) {
  const tr_tokenize_options *o = j->options;
  TR_TRY(tr_text_reader_open(&(tr_text_reader_options){.path = o->path[j->input], .key = o->key, .split = o->split},
                             &j->reader));
  TR_TRY(tr_text_reader_skip(j->reader, j->skip));
  j->skip = 0;
  return TR_OK;
}

static void close_input(job *j) {
  tr_text_reader_close(j->reader);
  j->reader = NULL;
  j->input++;
}

static tr_status fill_block(job *j, tr__text_block *block) {
  while (block->text.size < BLOCK && j->input < j->options->npath) {
    const char *text;
    size_t nbyte;
    int ends;
    if (!j->reader) TR_TRY(open_input(j));
    TR_TRY(tr_text_reader_next(j->reader, &text, &nbyte, &ends));
    if (!text) {
      close_input(j);
      if (block->npiece > 0) return TR_OK; // a block is of one input
      continue;
    }
    TR_TRY(tr__text_block_add(block, text, nbyte, ends));
    block->input = j->input;
    block->offset = tr_text_reader_offset(j->reader);
    block->share = tr_text_reader_share(j->reader);
  }
  return TR_OK;
}

// ---- writing

static tr_status append(job *j, const int32_t *token, size_t ntoken, int ends) {
  TR_TRY(ends ? tr_corpus_writer_append(j->writer, token, ntoken)
              : tr_corpus_writer_append_part(j->writer, token, ntoken));
  j->state.documents += ends;
  j->tokens += (int64_t)ntoken;
  return TR_OK;
}

static tr_status write_block(job *j, const tr__text_block *block) {
  size_t from = 0;
  if (block->status < 0) return tr_error(block->status, "%s: %s", j->options->path[block->input], block->sentence);
  for (size_t i = 0; i < block->npiece; i++) {
    const tr__piece_bounds *piece = &block->piece[i];
    TR_TRY(append(j, block->tokens.data + from, piece->token_end - from, piece->ends));
    from = piece->token_end;
  }
  j->state.bytes += (int64_t)block->text.size;
  j->state.input = block->input;
  j->state.offset = block->offset;
  j->share = block->share;
  return TR_OK;
}

// ---- saving and reporting

static double seconds_now(const job *j) { return j->state.seconds + tr_clock_seconds() - j->started_at; }

static tr_status save(job *j) {
  tr__tokenize_state state = j->state;
  TR_TRY(tr_corpus_writer_mark(j->writer, &state.mark));
  state.seconds = seconds_now(j);
  TR_TRY(tr__tokenize_state_save(j->options, j->identity, &state));
  j->has_saved = 1;
  j->saved_bytes = state.bytes;
  j->saved_at = tr_clock_seconds();
  return TR_OK;
}

static tr_status save_if_due(job *j) {
  int due = j->state.bytes - j->saved_bytes >= j->pace.save_bytes ||
            tr_clock_seconds() - j->saved_at >= j->pace.save_seconds;
  return due ? save(j) : TR_OK;
}

static tr_tokenize_progress measure(const job *j) {
  double all = 0, done = 0;
  for (size_t i = 0; i < j->options->npath; i++) {
    double size = (double)j->size[i];
    all += size;
    done += i < j->state.input ? size : i == j->state.input ? size * j->share : 0;
  }
  return (tr_tokenize_progress){.bytes = j->state.bytes,
                                .tokens = j->tokens,
                                .documents = j->state.documents,
                                .share = all > 0 ? done / all : 1,
                                .seconds = seconds_now(j)};
}

static tr_status report(job *j) {
  if (!j->options->progress || tr_clock_seconds() - j->reported_at < j->pace.report_seconds) return TR_OK;
  j->reported_at = tr_clock_seconds();
  tr_tokenize_progress now = measure(j);
  return j->options->progress(j->options->user, &now) ? TR_OK : TR_PENDING;
}

// ---- the whole

static tr_status fill(job *j) {
  tr__text_block *block;
  while (j->input < j->options->npath && (block = tr__crew_vacant(j->crew))) {
    TR_TRY(fill_block(j, block));
    if (block->npiece > 0) tr__crew_submit(j->crew);
    tr_status status = report(j);
    if (status != TR_OK) return status;
  }
  return TR_OK;
}

static tr_status run(job *j) {
  for (;;) {
    tr_status status = fill(j);
    if (status != TR_OK) return status;
    if (tr__crew_idle(j->crew)) return TR_OK;
    const tr__text_block *block = tr__crew_finished(j->crew);
    if (block) {
      TR_TRY(write_block(j, block));
      tr__crew_release(j->crew);
      TR_TRY(save_if_due(j));
    }
    status = report(j);
    if (status != TR_OK) return status;
  }
}

static tr_status open_writer(job *j) {
  const tr_tokenize_options *o = j->options;
  const tr_corpus_writer_options options = {
      .path = o->output, .format = o->format, .vocab = tr_tokenizer_vocab(o->tokenizer)};
  TR_TRY(tr__tokenize_state_load(o, j->identity, &j->state, &j->has_saved));
  if (j->has_saved && tr_corpus_writer_open(&options, &j->state.mark, &j->writer) == TR_OK) {
    j->input = j->state.input;
    j->skip = j->state.offset;
    j->tokens = j->state.mark.tokens;
    j->saved_bytes = j->state.bytes;
    tr_log_info("going on with earlier work: %lld tokens are there", (long long)j->tokens);
    return TR_OK;
  }
  if (j->has_saved) tr_log_warn("starting over, because earlier work cannot go on: %s", tr_status_text());
  j->has_saved = 0;
  j->state = (tr__tokenize_state){0};
  TR_TRY(tr_corpus_writer_open(&options, NULL, &j->writer));
  tr__tokenize_state_remove(o); // it spoke of files that have just been emptied
  return TR_OK;
}

static tr_status start(job *j) {
  const tr_tokenize_options *o = j->options;
  if (o->npath == 0) return tr_error(TR_ERR_USAGE, "there is no text file to tokenize");
  if (o->nthread < 1) return tr_error(TR_ERR_USAGE, "%d threads cannot work; 1 or more can", o->nthread);
  j->size = calloc(o->npath, sizeof *j->size);
  if (!j->size) return tr_error(TR_ERR_MEMORY, "no memory for %zu inputs", o->npath);
  TR_TRY(tr__tokenize_identify(o, j->size, &j->identity));
  TR_TRY(open_writer(j));
  return tr__crew_create(o->tokenizer, o->nthread, o->end ? tr_tokenizer_end(o->tokenizer) : -1, &j->crew);
}

// Name the files, or leave what can be gone on with.
static tr_status finish(job *j, tr_status status) {
  const tr_tokenize_options *o = j->options;
  if (status == TR_OK && j->tokens == 0)
    status =
        tr_error(TR_ERR_DATA, "%s: there is no text in %s", o->path[0], o->npath > 1 ? "it and the others" : "it");
  if (status == TR_OK) {
    tr_corpus_writer *writer = j->writer;
    j->writer = NULL;
    TR_TRY(tr_corpus_writer_finish(writer));
    tr__tokenize_state_remove(o);
    return TR_OK;
  }
  if (status == TR_PENDING) TR_TRY(save(j));
  return status;
}

tr_status tr__tokenize(const tr_tokenize_options *options, tr__tokenize_pace pace, tr_tokenize_progress *done) {
  double now = tr_clock_seconds();
  job j = {.options = options, .pace = pace, .started_at = now, .saved_at = now, .reported_at = now};
  tr_status status = start(&j);
  if (status == TR_OK) status = run(&j);
  if (j.crew) status = finish(&j, status);
  if (status >= 0) *done = measure(&j);
  tr_text_reader_close(j.reader);
  tr__crew_destroy(j.crew);
  tr_corpus_writer_abandon(j.writer, j.has_saved);
  free(j.size);
  return status;
}

tr_status tr_tokenize(const tr_tokenize_options *options, tr_tokenize_progress *done) {
  const tr__tokenize_pace pace = {.save_bytes = 256 << 20, .save_seconds = 10, .report_seconds = 0.5};
  return tr__tokenize(options, pace, done);
}
