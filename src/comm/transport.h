// SPDX-License-Identifier: MIT
// Message passing between two ranks of a group: all that an algorithm needs of an engine.
//
// A transfer is a value owned by its user, who starts it, tests it until it is no longer pending, and leaves its buffer
// alone meanwhile. Nothing here waits. Transfers between two ranks of a group match in the order in which they were
// started, per lane; lanes are small numbers that algorithms use to run several chunks at once.
#ifndef TRIREME_COMM_TRANSPORT_H
#define TRIREME_COMM_TRANSPORT_H

#include "comm_internal.h"

typedef struct tr__transfer {
  void *handle; // the transport's
  size_t nbyte;
  int peer; // group index
} tr__transfer;

typedef struct tr__transport {
  const char *name;
  // Errors are the job's (it is stopping); a full queue is no error: the transfer starts later.
  tr_status (*send)(tr_group *group, int peer, int lane, const void *data, size_t nbyte, tr__transfer *transfer);
  tr_status (*recv)(tr_group *group, int peer, int lane, void *data, size_t nbyte, tr__transfer *transfer);
  tr_status (*test)(tr_group *group, tr__transfer *transfer); // TR_OK ended, TR_PENDING, or the job's error
  void (*drop)(tr_group *group, tr__transfer *transfer);      // it will never be tested again: the job is ending
} tr__transport;

// What went through, for the tests of the algorithms' claims; kept by the user of the transport.
typedef struct tr__traffic {
  uint64_t messages, bytes; // sent
} tr__traffic;

extern const tr__transport tr__transport_shm; // over the channels of the shared memory engine
extern const tr__transport tr__transport_mpi; // between hosts

#endif
