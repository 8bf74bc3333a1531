// SPDX-License-Identifier: MIT
// The plug-in over one MPI: the only file that includes mpi.h, built once per MPI found.
//
// Requests under way stand in one dense array, so that a test costs what is under way.
#include "comm/mpi_table_internal.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static MPI_Request requests[TR__MPI_UNDER_WAY];
static void *users[TR__MPI_UNDER_WAY];
static int under_way;

static void error_text(int error, char *text, size_t nbyte) {
  char why[MPI_MAX_ERROR_STRING] = "";
  int n = 0;
  MPI_Error_string(error, why, &n);
  snprintf(text, nbyte, "%s", why);
}

// Open MPI asks the receiver before it sends more than 64 KiB over TCP, and the question waits behind all that is on its
// way: on a slow link that costs a fifth of it. Receives are there before their messages here, so pieces may go unasked.
static void prepare(void) {
#if defined(OPEN_MPI)
  setenv("OMPI_MCA_btl_tcp_eager_limit", "1048576", 0);
  setenv("OMPI_MCA_btl_tcp_max_send_size", "1048576", 0); // what comes must fit
#endif
}

static int init(char *text, size_t nbyte) {
  prepare();
  int provided = MPI_THREAD_SINGLE, error = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
  if (error != MPI_SUCCESS) return error_text(error, text, nbyte), error;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (provided >= MPI_THREAD_SERIALIZED) return 0;
  snprintf(text, nbyte, "it was built without threads (MPI_THREAD_SERIALIZED is needed)");
  return -1;
}

static int rank(void) {
  int value = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &value);
  return value;
}

static int size(void) {
  int value = -1;
  MPI_Comm_size(MPI_COMM_WORLD, &value);
  return value;
}

static int tag_most(void) {
  int *value = NULL, found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&value, &found);
  return found ? *value : 32767;
}

static int isend(const void *data, size_t nbyte, int peer, int tag, void *user) {
  int error = MPI_Isend(data, (int)nbyte, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[under_way]);
  if (error == MPI_SUCCESS) users[under_way++] = user;
  return error == MPI_SUCCESS ? 0 : error;
}

static int irecv(void *data, size_t nbyte, int peer, int tag, void *user) {
  int from = peer == TR__MPI_ANY ? MPI_ANY_SOURCE : peer;
  int error = MPI_Irecv(data, (int)nbyte, MPI_BYTE, from, tag, MPI_COMM_WORLD, &requests[under_way]);
  if (error == MPI_SUCCESS) users[under_way++] = user;
  return error == MPI_SUCCESS ? 0 : error;
}

static void close_holes(void) {
  int kept = 0;
  for (int i = 0; i < under_way; i++) {
    if (requests[i] == MPI_REQUEST_NULL) continue;
    requests[kept] = requests[i];
    users[kept++] = users[i];
  }
  under_way = kept;
}

static int testsome(tr__mpi_ended *out) {
  static int which[TR__MPI_UNDER_WAY];
  static MPI_Status status[TR__MPI_UNDER_WAY];
  int n = 0;
  if (under_way == 0) return 0;
  int error = MPI_Testsome(under_way, requests, &n, which, status);
  if (n == MPI_UNDEFINED) n = 0;
  for (int i = 0; i < n; i++) {
    int count = 0, failed = error == MPI_ERR_IN_STATUS ? status[i].MPI_ERROR : error;
    MPI_Get_count(&status[i], MPI_BYTE, &count);
    out[i] = (tr__mpi_ended){.user = users[which[i]], .nbyte = count > 0 ? (size_t)count : 0};
    if (failed != MPI_SUCCESS && failed != MPI_ERR_PENDING) out[i].error = failed;
  }
  if (n > 0) close_holes();
  return n;
}

static void end_all(int exit_code) { MPI_Abort(MPI_COMM_WORLD, exit_code); }

static void finalize(void) { MPI_Finalize(); }

#if defined(OPEN_MPI)
#define NAME "Open MPI"
#elif defined(MPICH_VERSION)
#define NAME "MPICH"
#else
#define NAME "MPI"
#endif

extern const tr__mpi_table tr__mpi;
__attribute__((visibility("default"))) const tr__mpi_table tr__mpi = {
    .version = TR__MPI_VERSION,
    .name = NAME,
    .init = init,
    .rank = rank,
    .size = size,
    .tag_most = tag_most,
    .isend = isend,
    .irecv = irecv,
    .testsome = testsome,
    .error_text = error_text,
    .abort = end_all,
    .finalize = finalize,
};
