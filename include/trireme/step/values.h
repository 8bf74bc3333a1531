// SPDX-License-Identifier: MIT
// Where values live: the memory plan of a model's values and their gradients, and which pieces run again before a backward pass, from
// nothing but the ports of the pieces (value_plan.c, recompute.c). The executor binds it to addresses, the planner adds it up.
#ifndef TRIREME_STEP_VALUES_H
#define TRIREME_STEP_VALUES_H

#include "trireme/model/model.h"
#include "trireme/step/program.h"

// Where a buffer lives: a slot of a lifetime class of its chunk, the area for temporaries or that for values that are computed
// again, a slot of one of the chunk's rings (what enters and leaves it, and the gradient that enters and that which leaves), or
// nowhere.
typedef enum tr_place_class {
  TR_PLACE_NONE,
  TR_PLACE_FI,
  TR_PLACE_FW,
  TR_PLACE_IW,
  TR_PLACE_TEMPORARY,
  TR_PLACE_RECOMPUTE,
  TR_PLACE_RING_IN,
  TR_PLACE_RING_OUT,
  TR_PLACE_RING_DIN,
  TR_PLACE_RING_DOUT,
  TR_PLACE_CLASSES
} tr_place_class;
typedef struct tr_place {
  tr_place_class where;
  size_t offset;
} tr_place;

typedef struct tr_value_plan {
  tr_place *value;                  // [values]
  tr_place *grad[2];                // [values] in a whole backward pass, in a split one
  unsigned char *again;             // [pieces] run again by an R
  size_t (*size)[TR_PLACE_CLASSES]; // [ranges] bytes of one slot of each class of one range's values
  size_t area[TR_PLACE_CLASSES];    // TEMPORARY and RECOMPUTE: shared by all ranges
} tr_value_plan;

typedef struct tr_value_options {
  tr_dtype type;
  int64_t rows;
  int whole, split; // kinds of backward passes that there are; neither: forward only
  int recompute;
} tr_value_options;
tr_status tr_value_plan_make(const tr_model *model, const tr_value_options *options, tr_value_plan *out);
void tr_value_plan_free(tr_value_plan *plan);

// What all ports together say about each value.
typedef struct tr_value_facts {
  int *producer,
      *last_reader; // [values] piece, -1 none, as many as there are pieces: another part; in one block with all
  int *lowest_user; // [values] lowest piece whose backward pass reads it; as many as there are pieces: none
  int *range;       // [values]
  unsigned *use;    // [values] union over ports
} tr_value_facts;
tr_status tr_value_facts_make(const tr_model *model, tr_value_facts *out);
void tr_value_facts_free(tr_value_facts *facts);

int tr_value_unit_end(const tr_model *model, int begin); // first piece of the next unit
// Writes tr_value_plan.again.
void tr_value_recompute(const tr_model *model, const tr_value_facts *facts, int recompute, unsigned char *again);

// The units whose backward pass reads what is computed again, as ranges for the step program: `out` has room for as many
// as the model has units. recompute=full: all that is written inside a unit, but that of the loss; selective: what cheap pieces
// write, where no value is kept for their sake alone.
tr_status tr_value_recompute_ranges(const tr_model *model, tr_recompute recompute, tr_step_range *out, int *count);

#endif
