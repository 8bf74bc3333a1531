// SPDX-License-Identifier: MIT
// A peer of bench_comm: the same operations by MPI with the library's default settings, out of place and in place. Started
// by bench_comm under mpiexec; rank 0 prints a line per repetition, "time OPERATION SIZE IN_PLACE SECONDS", of the slowest
// rank, and the library's name.
#include "comm_peer.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct peer {
  int rank, size;
  float *a, *b;
} peer;

static void fail(const char *what) {
  fprintf(stderr, "comm_peer: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

// What this rank contributes, in place: in the buffer of the result.
static float *contribution(const peer *p, peer_op op, size_t n, int in_place, size_t *count) {
  const size_t per = n / (size_t)p->size;
  *count = op == PEER_ALLGATHER ? per : n;
  return in_place && op == PEER_ALLGATHER ? p->b + (size_t)p->rank * per : in_place ? p->b : p->a;
}

static void call(const peer *p, peer_op op, size_t n, int in_place) {
  const int per = (int)(n / (size_t)p->size);
  const void *from = in_place ? MPI_IN_PLACE : p->a;
  switch (op) {
  case PEER_ALLREDUCE: MPI_Allreduce(from, p->b, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
  case PEER_REDUCE_SCATTER: MPI_Reduce_scatter_block(from, p->b, per, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
  case PEER_ALLGATHER: MPI_Allgather(from, per, MPI_FLOAT, p->b, per, MPI_FLOAT, MPI_COMM_WORLD); break;
  default: MPI_Alltoall(from, per, MPI_FLOAT, p->b, per, MPI_FLOAT, MPI_COMM_WORLD);
  }
}

static void measure(const peer *p, peer_op op, int size, int in_place) {
  const size_t n = peer_count(size, p->size);
  double seconds[PEER_MOST_REPEATS];
  const int repeats = peer_repeats(size);
  for (int i = -PEER_WARM; i < repeats; i++) {
    size_t count;
    float *own = contribution(p, op, n, in_place, &count);
    peer_rewrite(own, count, p->rank, i + PEER_WARM);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    call(p, op, n, in_place);
    if (i >= 0) seconds[i] = MPI_Wtime() - begin;
    MPI_Barrier(MPI_COMM_WORLD); // or this rank goes on in the time of one that shares its core
    if (!peer_check(op, p->b, n, p->rank, p->size, i + PEER_WARM)) fail("a wrong result");
  }
  MPI_Allreduce(MPI_IN_PLACE, seconds, repeats, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  for (int i = 0; i < repeats && p->rank == 0; i++)
    printf("time %d %d %d %.9g\n", (int)op, size, in_place, seconds[i]);
}

// The first line, without what follows a comma; MPICH separates by tabs and a colon.
static void print_version(char *version) {
  version[strcspn(version, ",\n")] = '\0';
  for (char *c = version; *c; c++)
    if (*c == '\t' || *c == ':') *c = ' ';
  printf("version %s\n", version);
}

int main(int argc, char **argv) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  peer p;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &p.size);
  MPI_Get_library_version(version, &length);
  const int sizes = argc > 1 ? atoi(argv[1]) : PEER_SIZES;
  const size_t nbyte = peer_count(sizes - 1, p.size) * sizeof(float);
  p.a = malloc(nbyte);
  p.b = malloc(nbyte);
  if (!p.a || !p.b) fail("no memory for two buffers");
  memset(p.a, 0, nbyte);
  memset(p.b, 0, nbyte);
  for (int op = 0; op < PEER_OPS; op++)
    for (int size = 0; size < sizes; size++)
      for (int in_place = 0; in_place < (op == PEER_ALLTOALL ? 1 : 2); in_place++)
        measure(&p, (peer_op)op, size, in_place);
  if (p.rank == 0) print_version(version);
  free(p.a);
  free(p.b);
  MPI_Finalize();
  return 0;
}
