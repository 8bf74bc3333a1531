// SPDX-License-Identifier: MIT
// TensorBoard event files: scalars by tag and step, in TFRecord framing with masked CRC-32C, one file per start of a run
// (events.out.tfevents.TIME.HOST.PID), as TensorBoard expects. Appended to record by record; a record that was cut
// off by a crash is skipped by readers.
#ifndef TRIREME_TRAIN_EVENTS_H
#define TRIREME_TRAIN_EVENTS_H

#include "trireme/base/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct tr_events tr_events;
typedef struct tr_scalar {
  const char *tag;
  double value;
} tr_scalar;

tr_status tr_events_open(const char *folder, tr_events **out); // makes the folder and a new file in it
tr_status tr_events_scalars(tr_events *events, int64_t step, const tr_scalar *scalar,
                            size_t n);   // one record, one write
void tr_events_close(tr_events *events); // NULL allowed

#endif
