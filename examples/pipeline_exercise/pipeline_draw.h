// SPDX-License-Identifier: MIT
// Drawing a timeline of the exercise with the code that draws those of `trireme simulate`.
#ifndef PIPELINE_DRAW_H
#define PIPELINE_DRAW_H

#include "pipeline_exercise.h"

// "GPU0 |0123......aa4bb5cc6dd7ee.ff.gg.hh|", a character per unit of time.
void draw(int p, const op_list *list, const pass_costs *costs, const timeline *times);

#endif
