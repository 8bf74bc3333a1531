// SPDX-License-Identifier: MIT
// What Trireme needs of an MPI, as a table of functions: exported by a plug-in (src/comm/mpi/plugin.c) that is built once
// per MPI and loaded at run time, so that the library itself knows no MPI and runs without any.
//
// Nothing here waits but init and finalize. Messages are bytes between ranks of MPI_COMM_WORLD; they match by (peer, tag) in
// the order in which they were started. One thread at a time may be inside, init and finalize by the same thread.
#ifndef TRIREME_COMM_MPI_TABLE_INTERNAL_H
#define TRIREME_COMM_MPI_TABLE_INTERNAL_H

#include <stddef.h>

enum {
  TR__MPI_VERSION = 1,
  TR__MPI_BYTES = 1 << 30,  // most bytes of one message
  TR__MPI_UNDER_WAY = 4096, // most messages under way
  TR__MPI_ANY = -1          // any peer
};

typedef struct tr__mpi_ended { // a message that has gone or come
  void *user;
  size_t nbyte; // that came
  int error;    // 0: none
} tr__mpi_ended;

typedef struct tr__mpi_table {
  int version;      // TR__MPI_VERSION
  const char *name; // "Open MPI", "MPICH"
  // 0, or what went wrong in `text`. Asks for MPI_THREAD_SERIALIZED; errors are returned from then on, not fatal.
  int (*init)(char *text, size_t nbyte);
  int (*rank)(void);
  int (*size)(void);
  int (*tag_most)(void);
  // Return 0 or an error; not to be called while as many as possible are under way. `user` comes back from testsome.
  int (*isend)(const void *data, size_t nbyte, int peer, int tag, void *user);
  int (*irecv)(void *data, size_t nbyte, int peer, int tag, void *user);
  // Advances everything; how many of the messages have ended. `out` has room for all that can be under way.
  int (*testsome)(tr__mpi_ended *out);
  void (*error_text)(int error, char *text, size_t nbyte);
  void (*abort)(int exit_code); // ends all processes of the job
  void (*finalize)(void);
} tr__mpi_table;

#define TR__MPI_SYMBOL "tr__mpi"

#endif
