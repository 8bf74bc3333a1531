// SPDX-License-Identifier: MIT
// Starting ranks on this machine: forked processes (default) or threads of this process (tests, examples, debugging).
//
// The launcher runs while the process still has one thread: it maps one memory file per rank and the control page,
// forks the ranks without exec, and then only watches: pidfds, the control page, the ranks' output, signals. Ranks
// ignore SIGINT and SIGTERM; the launcher turns the first into a request to stop after the step
// (tr_comm_stop_requested) and a second, later than a quarter of a second, into an end at once. A rank that dies, aborts
// or hangs past the deadline stops the job: the others get an error from their next call, then SIGKILL after a grace
// period. No process, memory file or mapping is left behind, also when the launcher itself is killed.
//
// When a rank was lost or late, the launcher's standard error (and launcher.log beside the ranks' logs) gets a table under
// "[launcher] ": from which operation whom was missing, and for each rank its host and process, what it was doing, in what it
// waited for whom, and since when.
//
// Processes that mpirun, srun or torchrun has started are ranks already: there tr_launch runs `main` as the one that this
// process is, and returns in every rank, with the same status, when the job has ended. Ranks of one host share memory; hosts
// are joined by an MPI that is loaded as a plug-in beside the program (TRIREME_MPI=FILE names another). A thread beside each
// rank does what the launcher would; a rank that is stuck after the grace period is ended with its process. Where any rank has
// TRIREME_COMM_DEBUG=1 in its environment, groups over hosts compare the calls of all their ranks before data moves. After a
// failure SIGTERM stays blocked: it comes from a starter, to ranks that are ending already and say why.
#ifndef TRIREME_COMM_LAUNCH_H
#define TRIREME_COMM_LAUNCH_H

#include "trireme/comm/comm.h"
#include <stddef.h>

typedef enum tr_launch_mode { TR_LAUNCH_PROCESSES, TR_LAUNCH_THREADS } tr_launch_mode;
typedef struct tr_launch_options tr_launch_options;

// What ranks that others have started know of each other when they have met, before they share memory.
typedef struct tr_launch_met {
  int hosts;           // of the job
  const int16_t *host; // [nrank] of each rank
  int64_t least;       // of all ranks' options.offer, where there are several hosts; else this rank's
} tr_launch_met;
// What follows from that for the sizes of arenas in *options, the same in all ranks of a host.
typedef tr_status (*tr_launch_meet)(void *user, const tr_launch_met *met, tr_launch_options *options);

struct tr_launch_options {
  size_t size; // of this struct, set by init
  tr_launch_mode mode;
  int nrank;              // at least 1, at most 256
  int nthread;            // compute threads each rank will use: for binding and the spin decision
  int bind;               // bind ranks to cores (hwloc) when all threads fit, or come out even
  size_t arena_nbyte;     // shared memory per rank
  size_t once_nbyte;      // more of it in the arena of each host's first rank: for what its ranks share
  const size_t *arena_of; // [nrank] where ranks need different amounts: in place of both; NULL otherwise. Not owned
  double deadline;        // seconds without progress of an awaited rank until the job stops
  double grace;           // seconds the other ranks get to end after the job has failed
  int read_peers;         // ranks may read each other's private memory, where the system lets them (process_vm_readv)
  int any_order;          // sums may be added in any order (comm.order: any): allows ring and double-tree reductions
  const char *log_folder; // rank-N.log files with everything a rank printed, launcher.log; NULL: none
  int64_t offer;          // a number of which ranks that others have started on several hosts learn the least
  uint64_t agrees;        // of settings: ranks that others have started refuse each other where it differs
  tr_launch_meet met; // with the user of `main`, in every rank that others have started; NULL: sizes are as they are
};

void tr_launch_options_init(
    tr_launch_options *options); // 1 process, 1 thread, bind 1, 64 MiB, 60 s, 5 s, read_peers 1, no logs

typedef struct tr_launch_report {
  int culprit;     // rank that failed first, -1 if none or unknown
  int signal;      // signal that ended it, 0 if none
  int exit_status; // of that process, 0 if none
  char text[1024]; // one sentence; "" when all went well
} tr_launch_report;

// Shared memory that `local` ranks of a host, of `nrank`, take as processes beside their arenas, when each is in `ngroup` groups
// within the host and what they send lies in arenas or is small. Pure.
size_t tr_launch_bytes(int nrank, int local, int ngroup);

// Private memory that a rank keeps for sums over all ranks, where these are messages: between hosts, and where TRIREME_COMM
// demands an algorithm; else 0. Reads TRIREME_COMM and TRIREME_COMM_LINKS.
typedef struct tr_launch_messages {
  int nrank, local;        // local: ranks per host
  int any_order, scatters; // scatters: reduce-scatter-v of even parts, to f32; else all-reduce
  const size_t *nelem;     // [n] elements of each call
  size_t n;
  tr_dtype type;
} tr_launch_messages;
size_t tr_launch_message_bytes(const tr_launch_messages *messages);

// The life of one rank. The status it returns is the rank's; a negative one stops the job with the thread's sentence.
typedef tr_status (*tr_rank_main)(tr_comm *comm, void *user);

// Whether this process was started as one rank of many by mpirun, srun or torchrun, and as which. Reads the environment
// only: OMPI_COMM_WORLD_*, PMIX_*, PMI_*, SLURM_*, RANK and WORLD_SIZE (with LOCAL_RANK and LOCAL_WORLD_SIZE).
typedef struct tr_launch_place {
  int rank, size;             // in the job
  int local_rank, local_size; // on this host; -1 when unknown
  const char *starter;        // "Open MPI", "MPICH", "Slurm", "torchrun"
} tr_launch_place;
// TRIREME_PER_HOST=N pretends that each N ranks are a host of their own.
// Returns 1 and fills *place, 0 when this process stands alone, TR_ERR_CONFIG for values that cannot be.
tr_status tr_launch_placed(tr_launch_place *place);

// Run `main` in every rank and return when all have ended: TR_OK if all returned TR_OK, else the status of the rank
// that failed first (TR_ERR_PEER when it was killed), with report->text also recorded as this thread's sentence.
// `report` may be NULL. TR_ERR_USAGE for bad options, before anything is started. Rank 0's standard output goes to
// the launcher's as it is; other output gets a prefix that names the rank, "[rank 3] ". Where others have started the
// ranks, nrank must be their number, output and log files are the starter's business, and the sentence is recorded in rank 0
// only (not even there when it had to be said before), so that a program that prints it says it once. One rank as a thread uses the
// `self` engine, everything else `shm`.
tr_status tr_launch(const tr_launch_options *options, tr_rank_main main, void *user, tr_launch_report *report);

#endif
