// SPDX-License-Identifier: MIT
// What the files about ranks that others have started share: meeting on a host, the net between hosts, the companion thread.
#ifndef TRIREME_COMM_EXTERNAL_INTERNAL_H
#define TRIREME_COMM_EXTERNAL_INTERNAL_H

#include "comm_internal.h"
#include "mpi_table_internal.h"
#include <pthread.h>

// ---- placed.c, starter.c
const char *tr__placed_variable(void); // that holds this process's rank; NULL: it stands alone
// The process that has started all ranks of this host: the nearest ancestor without that variable.
typedef struct tr__starter {
  int pid;
  unsigned long long born; // its start time, so that a number used again is another
} tr__starter;
tr__starter tr__starter_find(const char *variable);

// ---- rendezvous.c: collective over the ranks of this host. Fills in the job's memory, at one address in all of them, and
// the process numbers in their pages. job->options and job->hosts are set.
tr_status tr__rendezvous(tr__job *job, int rank, const tr__starter *starter, double deadline);

// ---- net.c: messages between ranks of different hosts
typedef struct tr__message tr__message; // one message under way

struct tr__net {
  const tr__mpi_table *mpi;
  void *library;
  char file[512]; // the plug-in
  tr__job *job;
  int rank;
  // Whoever holds it may call MPI, and step the requests of `comm`.
  pthread_mutex_t mutex;
  _Atomic pthread_t owner; // who that is, 0 nobody
  int depth;
  tr_comm *comm;                // NULL: the rank has none now
  tr__message *free;            // list
  tr__message *waiting, **tail; // not handed to MPI yet: as many as possible are under way, or an older one waits
  void *blocks;                 // list of blocks of messages
  int handed;                   // messages that MPI has
  _Atomic int under_way;        // of the rank's operations, not those between hosts' leaders
  tr__mpi_ended *ended;         // [TR__MPI_UNDER_WAY]
  char failure[400];            // of a message; "": none
  uint64_t contexts;            // bit per context that a group of this rank uses
  _Atomic uint64_t driven;      // counts what the rank's own thread has done
  int wake_fd;                  // written when something gets under way
  _Atomic uint64_t calls;       // of MPI begun and returned: odd inside one
  _Atomic int told;             // what there is to tell of a failure has been told
  int closed;                   // MPI is not called any more
};

enum { TR__NET_LANES = 65536, TR__CONTEXT_CREATE = 62, TR__CONTEXT_LEADERS = 63 };

tr_status tr__net_open(tr__job *job, const tr_launch_place *place, double deadline, tr__net **out); // starts MPI
void tr__net_close(tr__net *net, double deadline);                                                  // ends it
tr_status tr__net_hosts(tr__net *net, const tr_launch_place *place, double deadline); // collective: sets job->hosts
// With the mutex held. Peer: a rank of the job. NULL with a recorded sentence: no memory.
tr__message *tr__net_send(tr__net *net, int peer, int tag, const void *data, size_t nbyte, int quiet);
tr__message *tr__net_recv(tr__net *net, int peer, int tag, void *data, size_t nbyte, int quiet);
int tr__message_ended(const tr__message *message);
int tr__message_sends(const tr__message *message);
size_t tr__message_nbyte(const tr__message *message); // that came
void tr__message_free(tr__net *net, tr__message *message);
int tr__net_try_enter(tr__net *net); // nonzero: entered
int tr__net_poll(tr__net *net);      // how many messages have ended

// ---- transport_mpi.c: what a group over hosts has of the net
tr_status tr__context_join(tr_group *group, const char *name); // collective over the group
void tr__context_leave(tr_group *group);

// ---- mirror.c: hosts tell each other of their ranks. All but create and destroy with the mutex held.
typedef struct tr__mirror tr__mirror;
tr_status tr__mirror_create(tr__net *net, tr__mirror **out);
void tr__mirror_destroy(tr__mirror *mirror);
// `speaks`: this rank is the first of its host that is still there, so it tells the others.
void tr__mirror_step(tr__mirror *mirror, int speaks, int64_t now);
int tr__mirror_heard(const tr__mirror *mirror); // nonzero: step it
void tr__mirror_hush(tr__mirror *mirror,
                     int64_t now); // of hosts that are silent, whom their ranks await is forgotten
// Nonzero when nothing more is to be told or heard: all hosts know that all ranks have ended, or that the job has failed.
int tr__mirror_over(const tr__mirror *mirror, int speaks);

// ---- sentinel.c: ends the process with its own code where MPI would end it
typedef struct tr__sentinel tr__sentinel;
tr_status tr__sentinel_start(tr__net *net, int signal_fd, tr__sentinel **out);
void tr__sentinel_end(tr__sentinel *sentinel); // NULL allowed

// ---- companion.c: the thread beside a rank
typedef struct tr__companion tr__companion;
tr_status tr__companion_start(tr__job *job, int rank, tr__watch *watch, const tr__starter *starter,
                              tr__companion **out);
// Waits for the end of the job, or of the grace after its failure. Nonzero: has said on standard error how it failed.
int tr__companion_leave(tr__companion *companion);

int tr__external_speaker(int culprit,
                         tr_status status); // the rank that tells how the job failed: 0 unless that is lost
tr_status tr__launch_external(const tr_launch_options *options, const tr_launch_place *place, tr_rank_main rank_main,
                              void *user, tr_launch_report *report);

#endif
