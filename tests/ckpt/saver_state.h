// SPDX-License-Identifier: MIT
// A small training state, and writers in threads that save it together, for tests of the saver. Include cmocka first.
#ifndef TRIREME_TESTS_SAVER_STATE_H
#define TRIREME_TESTS_SAVER_STATE_H

#include "ckpt/scratch.h"
#include "trireme/ckpt/saver.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A state of odd sizes: transposed, converted, empty, of one byte, larger than a page and than a block of the disk.
enum { ROWS = 300, COLS = 257, BIG = 700001, MOST_WRITERS = 5, NFILE = 5, NTENSOR = 7 };

typedef struct state {
  float w[ROWS * COLS], b[COLS], big[BIG];
  uint8_t byte[3];
  tr_safetensors_item model[4], moment[3];
  tr_ckpt_file file[NFILE];
} state;

static inline void fill_state(state *s, float value) {
  for (int i = 0; i < ROWS * COLS; i++) s->w[i] = value + (float)i;
  for (int i = 0; i < COLS; i++) s->b[i] = value - (float)i;
  for (int i = 0; i < BIG; i++) s->big[i] = value * 3 + (float)(i % 1000);
  for (int i = 0; i < 3; i++) s->byte[i] = (uint8_t)((int)value + i);
}

static inline state *make_state(float value) {
  state *s = calloc(1, sizeof *s);
  assert_non_null(s);
  fill_state(s, value);
  s->model[0] = (tr_safetensors_item){"byte", TR_U8, TR_U8, {1, {3}}, s->byte, 0};
  s->model[1] = (tr_safetensors_item){"w", TR_F32, TR_BF16, {2, {ROWS, COLS}}, s->w, 1};
  s->model[2] = (tr_safetensors_item){"none", TR_F32, TR_F32, {1, {0}}, NULL, 0};
  s->model[3] = (tr_safetensors_item){"b", TR_F32, TR_F32, {1, {COLS}}, s->b, 0};
  s->moment[0] = (tr_safetensors_item){"m.big", TR_F32, TR_F32, {1, {BIG}}, s->big, 0};
  s->moment[1] = (tr_safetensors_item){"m.w", TR_F32, TR_F32, {2, {ROWS, COLS}}, s->w, 0};
  s->moment[2] = (tr_safetensors_item){"m.b", TR_F32, TR_F16, {1, {COLS}}, s->b, 0};
  s->file[0] = (tr_ckpt_file){"model-00001-of-00002.safetensors", s->model, 2, NULL};
  s->file[1] = (tr_ckpt_file){"config.json", NULL, 0, NULL};
  s->file[2] = (tr_ckpt_file){"model-00002-of-00002.safetensors", s->model + 2, 2, NULL};
  s->file[3] = (tr_ckpt_file){"optimizer.safetensors", s->moment, 3, NULL};
  s->file[4] = (tr_ckpt_file){"trainer.json", NULL, 0, NULL};
  return s;
}

static const char *const texts[NFILE] = {NULL, "{\"a\": 1}\n", NULL, NULL, "{\"step\": 7}\n"};

static inline tr_saver_options options_of(const state *s, const scratch *folder, int writer, int nwriter,
                                          int background) {
  return (tr_saver_options){.folder = folder->path,
                            .file = s->file,
                            .nfile = NFILE,
                            .writer = writer,
                            .nwriter = nwriter,
                            .job = (int64_t)getpid(),
                            .background = background,
                            .deadline = 20};
}

// One writer in a thread: saves `steps` times and keeps the last outcome.
typedef struct writer {
  pthread_t thread;
  tr_saver_options options;
  int64_t step, steps;
  state *disturb; // changed as soon as start has returned
  tr_status status;
  char sentence[512];
  tr_saved saved;
} writer;

static inline tr_status save_steps(writer *w) {
  tr_saver *saver;
  TR_TRY(tr_saver_create(&w->options, &saver));
  tr_status status = TR_OK;
  for (int64_t i = 0; i < w->steps && status == TR_OK; i++) {
    status = tr_saver_start(saver, w->step + i, w->options.writer == 0 ? texts : NULL);
    if (w->disturb) fill_state(w->disturb, 1e6f);
  }
  if (status == TR_OK) status = tr_saver_wait(saver, &w->saved);
  tr_saver_destroy(saver);
  return status;
}

static inline void *writer_main(void *user) {
  writer *w = user;
  w->status = save_steps(w);
  snprintf(w->sentence, sizeof w->sentence, "%s", w->status < 0 ? tr_status_text() : "");
  return NULL;
}

static inline void begin(writer *w) { assert_int_equal(pthread_create(&w->thread, NULL, writer_main, w), 0); }
static inline void end(writer *w) { assert_int_equal(pthread_join(w->thread, NULL), 0); }

// A writer's memory holds nothing of what only others have.
static inline void forget_other_sides(state *s, const int *held, int side) {
  for (int i = 0; i < NTENSOR; i++)
    if (held[i] != side) (i < 4 ? &s->model[i] : &s->moment[i - 4])->data = NULL;
}

static inline void save_by_sides(int nwriter, const int *side, const int *held, int background, const scratch *folder,
                                 int64_t steps) {
  state *s[MOST_WRITERS];
  writer w[MOST_WRITERS];
  for (int i = 0; i < nwriter; i++) {
    s[i] = make_state(5);
    if (side) forget_other_sides(s[i], held, side[i]);
    w[i] = (writer){.options = options_of(s[i], folder, i, nwriter, background),
                    .step = 7,
                    .steps = steps,
                    .disturb = background && steps == 1 ? s[i] : NULL};
    w[i].options.side = side;
    w[i].options.held = held;
    begin(&w[i]);
  }
  int failed = 0;
  for (int i = 0; i < nwriter; i++) {
    end(&w[i]);
    if (w[i].status != TR_OK) print_message("writer %d of %d: %s\n", i, nwriter, w[i].sentence);
    failed += w[i].status != TR_OK;
  }
  assert_int_equal(failed, 0);
  for (int i = 0; i < nwriter; i++) {
    assert_int_equal(w[i].saved.step, 7 + steps - 1);
    assert_true(w[i].saved.write >= 0 && w[i].saved.stall >= 0);
    free(s[i]);
  }
}

static inline void save_by(int nwriter, int background, const scratch *folder, int64_t steps) {
  save_by_sides(nwriter, NULL, NULL, background, folder, steps);
}

static inline void assert_same_file(const scratch *a, const scratch *b, const char *name) {
  scratch left = scratch_path(a, name), right = scratch_path(b, name);
  char *x, *y;
  size_t n, m;
  assert_int_equal(tr_file_read(left.path, 100000000, &x, &n), TR_OK);
  assert_int_equal(tr_file_read(right.path, 100000000, &y, &m), TR_OK);
  assert_int_equal(n, m);
  if (memcmp(x, y, n) != 0) fail_msg("%s and %s differ", left.path, right.path);
  free(x);
  free(y);
}

static inline void assert_same_folder(const scratch *a, const scratch *b) {
  assert_int_equal(scratch_count(a->path, ""), scratch_count(b->path, ""));
  assert_int_equal(scratch_count(a->path, "."), 2); // "." and "..": no note has stayed
  assert_same_file(a, b, "manifest.json");
  assert_same_file(a, b, "model-00001-of-00002.safetensors");
  assert_same_file(a, b, "model-00002-of-00002.safetensors");
  assert_same_file(a, b, "optimizer.safetensors");
  assert_same_file(a, b, "config.json");
  assert_same_file(a, b, "trainer.json");
}

#endif
