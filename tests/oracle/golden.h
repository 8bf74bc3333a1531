// SPDX-License-Identifier: MIT
// Reader for the golden numbers of tests/oracle/gpt2_golden.py, and the formulas behind them in C.
//
// The file is read once into an array of records; golden_find looks one up by kind and name. Weights, tokens
// and targets are computed by the same formulas as in the script, so the file holds results only. Tests
// include this header; it uses the C library alone, so that it cannot share a mistake with what it checks.
// (Weights are rounded from double, so a C library whose sin() differs in the last bit of a double gives the
// same floats but for rare ties.)
//
//   golden_file file;
//   assert_int_equal(golden_open(TRIREME_TEST_DATA "/oracle/gpt2_tiny.txt", &file), 0);
//   const golden_record *loss = golden_find(&file, "loss", "start");  // loss->count numbers at loss->value
//   golden_close(&file);
#ifndef TRIREME_TESTS_ORACLE_GOLDEN_H
#define TRIREME_TESTS_ORACLE_GOLDEN_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  GOLDEN_VOCAB = 37,
  GOLDEN_POSITIONS = 16,
  GOLDEN_WIDTH = 24,
  GOLDEN_HEADS = 3,
  GOLDEN_LAYERS = 2,
  GOLDEN_SEQUENCES = 3,
  GOLDEN_LENGTH = 11,
  GOLDEN_TARGETS = 26, // targets that count
  GOLDEN_STEPS = 10,
  GOLDEN_PER_LAYER = 12,
  GOLDEN_TENSORS = 2 + GOLDEN_LAYERS * GOLDEN_PER_LAYER + 2
};

typedef struct golden_record {
  char kind[16], name[48];
  size_t count;
  double *value;
} golden_record;

typedef struct golden_file {
  golden_record *record;
  size_t nrecord;
} golden_file;

// A tensor of the model: rows x cols, cols 0 for vectors. `number` is what the weight formula takes.
typedef struct golden_tensor {
  char name[48];
  int number, rows, cols;
} golden_tensor;

static inline void golden_close(golden_file *file) {
  for (size_t i = 0; i < file->nrecord; i++) free(file->record[i].value);
  free(file->record);
  *file = (golden_file){0};
}

// The numbers of a record; 0 when all are there.
static inline int golden_read_values(FILE *stream, golden_record *record) {
  record->value = calloc(record->count ? record->count : 1, sizeof *record->value);
  if (!record->value) return -1;
  for (size_t i = 0; i < record->count; i++) {
    if (fscanf(stream, "%lf", &record->value[i]) != 1) return -1;
  }
  return 0;
}

// One record: 1 read, 0 at the end of the file, -1 for anything that is not a record.
static inline int golden_read_record(FILE *stream, golden_record *record) {
  int c;
  *record = (golden_record){0};
  while ((c = fgetc(stream)) == '#' || c == '\n') {
    while (c != '\n' && c != EOF) c = fgetc(stream);
  }
  if (c == EOF) return 0;
  ungetc(c, stream);
  if (fscanf(stream, "%15s %47s %zu", record->kind, record->name, &record->count) != 3) return -1;
  if (record->count > 1000000) return -1;
  if (golden_read_values(stream, record) == 0) return 1;
  free(record->value);
  return -1;
}

// 0, or -1 with a line on stderr; then there is nothing to close.
static inline int golden_open(const char *path, golden_file *file) {
  golden_record next;
  int got = -1;
  *file = (golden_file){0};
  FILE *stream = fopen(path, "r");
  while (stream && (got = golden_read_record(stream, &next)) == 1) {
    golden_record *more = realloc(file->record, (file->nrecord + 1) * sizeof *more);
    if (!more) {
      free(next.value);
      got = -1;
      break;
    }
    file->record = more;
    file->record[file->nrecord++] = next;
  }
  if (stream) fclose(stream);
  if (got == 0) return 0;
  fprintf(stderr, "%s: %s after %zu records\n", path, stream ? "not readable as golden numbers" : "cannot be opened",
          file->nrecord);
  golden_close(file);
  return -1;
}

// NULL when there is none.
static inline const golden_record *golden_find(const golden_file *file, const char *kind, const char *name) {
  for (size_t i = 0; i < file->nrecord; i++) {
    const golden_record *record = &file->record[i];
    if (strcmp(record->kind, kind) == 0 && strcmp(record->name, name) == 0) return record;
  }
  return NULL;
}

// Tensor number 0 .. GOLDEN_TENSORS - 1.
static inline golden_tensor golden_tensor_at(int number) {
  enum { C = GOLDEN_WIDTH };
  static const golden_tensor ends[] = {
      {"wte", 0, GOLDEN_VOCAB, C}, {"wpe", 0, GOLDEN_POSITIONS, C}, {"ln_f.weight", 0, C, 0}, {"ln_f.bias", 0, C, 0}};
  static const golden_tensor layer[GOLDEN_PER_LAYER] = {{"ln_1.weight", 0, C, 0},
                                                        {"ln_1.bias", 0, C, 0},
                                                        {"attn.c_attn.weight", 0, 3 * C, C},
                                                        {"attn.c_attn.bias", 0, 3 * C, 0},
                                                        {"attn.c_proj.weight", 0, C, C},
                                                        {"attn.c_proj.bias", 0, C, 0},
                                                        {"ln_2.weight", 0, C, 0},
                                                        {"ln_2.bias", 0, C, 0},
                                                        {"mlp.c_fc.weight", 0, 4 * C, C},
                                                        {"mlp.c_fc.bias", 0, 4 * C, 0},
                                                        {"mlp.c_proj.weight", 0, C, 4 * C},
                                                        {"mlp.c_proj.bias", 0, C, 0}};
  int inside = number - 2, l = inside / GOLDEN_PER_LAYER;
  golden_tensor out;
  if (inside < 0) {
    out = ends[number];
  } else if (l >= GOLDEN_LAYERS) {
    out = ends[number - GOLDEN_LAYERS * GOLDEN_PER_LAYER];
  } else {
    out = layer[inside % GOLDEN_PER_LAYER];
    snprintf(out.name, sizeof out.name, "h.%d.%.32s", l, layer[inside % GOLDEN_PER_LAYER].name);
  }
  out.number = number;
  return out;
}

static inline size_t golden_tensor_count(const golden_tensor *tensor) {
  return (size_t)tensor->rows * (size_t)(tensor->cols ? tensor->cols : 1);
}

// Number of the tensor of that name, -1 for none.
static inline int golden_tensor_number(const char *name) {
  for (int t = 0; t < GOLDEN_TENSORS; t++) {
    golden_tensor tensor = golden_tensor_at(t);
    if (strcmp(tensor.name, name) == 0) return t;
  }
  return -1;
}

// Element i of a tensor, row-major [out, in].
static inline float golden_weight(const golden_tensor *tensor, size_t i) {
  const char *dot = strrchr(tensor->name, '.');
  int is_norm = tensor->cols == 0 && dot && strcmp(dot, ".weight") == 0;
  double scale = tensor->cols ? 0.4 : 0.1;
  double value = 0.5 * scale * sin(0.7 * (double)i + 1.3 * tensor->number + 0.1 * (double)(i % 7));
  return (float)(is_norm ? 1.0 + value : value);
}

static inline int32_t golden_token(int s, int j) { return (7 * s + 5 * j + j * j) % GOLDEN_VOCAB; }

static inline int32_t golden_target(int s, int j) { return (s + 2 * j) % 5 == 0 ? -1 : golden_token(s, j + 1); }

#endif
