// SPDX-License-Identifier: MIT
// The inside of tokenizing: blocks of text, the crew of threads that turns them into tokens, and the state that a stopped
// run leaves.
#ifndef TRIREME_DATA_TOKENIZE_INTERNAL_H
#define TRIREME_DATA_TOKENIZE_INTERNAL_H

#include "trireme/data/tokenize.h"

// ---- tokenize_crew.c
// A piece is a document or a part of one.
typedef struct tr__piece_bounds {
  size_t text_end, token_end; // in the block's text and tokens
  int ends;                   // a document ends here
} tr__piece_bounds;

// What one worker encodes at a time. Owned by the crew; filled and emptied by its caller.
typedef struct tr__text_block {
  tr_text text;
  tr__piece_bounds *piece;
  size_t npiece, capacity;
  tr_tokens tokens;   // written by the worker
  tr_status status;   // and whether that worked,
  char sentence[512]; // and why not
  size_t input;       // where reading stood behind it: file,
  int64_t offset;     // byte,
  double share;       // and share of the file
} tr__text_block;

tr_status tr__text_block_add(tr__text_block *block, const char *text, size_t nbyte, int ends);

// A ring of blocks: the caller fills them in order and takes them back in order; workers encode them in between. All calls
// come from one thread.
typedef struct tr__crew tr__crew;
// `end`: the token to append to every document, -1: none.
tr_status tr__crew_create(const tr_tokenizer *tokenizer, int nthread, int32_t end, tr__crew **out);
void tr__crew_destroy(tr__crew *crew);             // waits for the pieces being encoded; NULL allowed
tr__text_block *tr__crew_vacant(tr__crew *crew);   // an empty block to fill; NULL while there is enough to do
void tr__crew_submit(tr__crew *crew);              // the block that vacant gave
int tr__crew_idle(const tr__crew *crew);           // all that was submitted has been released
tr__text_block *tr__crew_finished(tr__crew *crew); // the oldest block, or NULL when it is not done after a short wait
void tr__crew_release(tr__crew *crew);             // the block that finished gave

// ---- tokenize_state.c
// How far a run was: the next byte to read, and what had been written then.
typedef struct tr__tokenize_state {
  size_t input;
  int64_t offset, bytes, documents;
  double seconds;
  tr_corpus_mark mark;
} tr__tokenize_state;

// A hash of everything that decides the output. Refuses inputs that cannot be opened as text. size[npath] in bytes.
tr_status tr__tokenize_identify(const tr_tokenize_options *options, int64_t *size, uint64_t *identity);
// The state in OUTPUT.partial.json: *found 0 when there is none, or one of other work (which is logged).
tr_status tr__tokenize_state_load(const tr_tokenize_options *options, uint64_t identity, tr__tokenize_state *out,
                                  int *found);
tr_status tr__tokenize_state_save(const tr_tokenize_options *options, uint64_t identity,
                                  const tr__tokenize_state *state);
void tr__tokenize_state_remove(const tr_tokenize_options *options);

// ---- tokenize.c
// When to save the state (whichever comes first) and to report; tr_tokenize chooses, tests choose otherwise.
typedef struct tr__tokenize_pace {
  int64_t save_bytes;
  double save_seconds, report_seconds;
} tr__tokenize_pace;
tr_status tr__tokenize(const tr_tokenize_options *options, tr__tokenize_pace pace, tr_tokenize_progress *done);

#endif
