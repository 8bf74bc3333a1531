// SPDX-License-Identifier: MIT
// What a model is made of, for those who build one: model.c piece by piece, part.c from the pieces of another.
#ifndef TRIREME_MODEL_INTERNAL_H
#define TRIREME_MODEL_INTERNAL_H

#include "trireme/model/model.h"

typedef struct tr__model_list {
  void *item;
  int count, capacity;
} tr__model_list;

struct tr_model {
  char *name;
  tr__model_list unit, param, value, piece; // char *, tr_param, tr_value, tr_piece
  int64_t vocab, positions;
  // A part of another model (part.c); NULL and 0 for a whole one.
  const tr_model *whole;
  int *whole_param; // [params]
  int nrange;
  int *range_begin;            // [nrange + 1] own numbers of pieces
  tr_model_boundary *boundary; // [nrange]
  // Facts about the list of pieces, filled by tr_model_finish.
  int *last_reader; // [values] highest piece that reads it, -1 none
  int *last_user;   // [params] highest piece that uses it, -1 none
  int *packs;       // [params] forms to pack it in, of all pieces that use it (1 << tr_pack)
  int *unit_first;  // [units] lowest piece that uses one of its parameters
  tr_status failed;
  char failure[256];
};

// Whether a value comes from, or goes to, another part of the whole model.
int tr__model_enters(const tr_model *model, int value);
int tr__model_leaves(const tr_model *model, int value);

#endif
