// SPDX-License-Identifier: MIT
// Laws of embedding tables: what they take, how they are cut over devices, and what a batch moves.
//
// A recommendation model is its tables. A batch touches few rows, so memory decides and not computing. A table that is small
// is kept on every device, one that fits is given whole to one device (largest first, to the least loaded), and one
// that does not is cut by rows (Mudigere et al., "Software-hardware co-design for fast and scalable training of deep
// learning recommendation models", 2021).
#ifndef TRIREME_PLAN_LAW_EMBEDDING_H
#define TRIREME_PLAN_LAW_EMBEDDING_H

#include "trireme/base/status.h"
#include <stddef.h>

double tr_law_touched_bytes(double table_bytes, double share); // that a batch pulls

typedef enum tr_law_table_cut { TR_LAW_TABLE_COPY, TR_LAW_TABLE_WHOLE, TR_LAW_TABLE_ROWS } tr_law_table_cut;
typedef struct tr_law_table {
  const char *name;
  double rows, width, nbyte, optimizer; // bytes per element; optimizer state per row (4 with row-wise Adagrad)
  double pooling;                       // rows that a sample looks up
  tr_law_table_cut cut;                 // out
  size_t device;                        // out: of a whole table
} tr_law_table;

typedef struct tr_law_table_budget {
  double devices, capacity, copy_below; // capacity and copy_below in bytes
  double batch;                         // samples per device
} tr_law_table_budget;

typedef struct tr_law_table_result {
  double total, fullest, mean; // bytes of all tables; on the fullest device, on average
  double lookup;               // bytes of rows that a device's batch looks up
  double moved;                // bytes that a device receives in one all-to-all of pooled rows, forward
} tr_law_table_result;

double tr_law_table_bytes(const tr_law_table *table);
// Fills `cut` and `device`. `load` has room for the devices. TR_ERR_PLAN says by how much it does not fit, and on how many
// devices it would.
tr_status tr_law_tables_place(tr_law_table *table, size_t n, const tr_law_table_budget *budget, double *load,
                              tr_law_table_result *out);

#endif
