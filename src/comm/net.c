// SPDX-License-Identifier: MIT
// Messages between ranks of different hosts, over an MPI that is never waited in: started, then tested by whoever holds the
// mutex. Messages are handed to MPI in the order in which they were started; when it holds as many as it may, the rest
// queue. A long message is handed over in parts of at most 1 GiB, all at once.
#include "external_internal.h"
#include "trireme/base/clock.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK_MESSAGES = 64 };

struct tr__message {
  tr__message *next; // in the queue or the free list
  char *data;
  size_t nbyte, came;
  int peer, tag;
  int parts, handed, left; // in all, given to MPI, not ended
  unsigned char sends, quiet;
};

typedef struct message_block {
  struct message_block *next;
  tr__message message[BLOCK_MESSAGES];
} message_block;

// ---- starting

static void fail(tr__net *net, const tr__message *f, int error) {
  char why[128];
  net->mpi->error_text(error, why, sizeof why);
  snprintf(net->failure, sizeof net->failure, "rank %d: %s failed in a message of %zu bytes %s rank %d: %s",
           net->rank, net->mpi->name, f->nbyte, f->sends ? "to" : "from", f->peer, why);
  if (net->job->control) tr__abort(net->job, net->rank, TR_ERR_PEER, net->failure);
}

// Give MPI what it takes now; nonzero when all of the message is with it.
static int hand(tr__net *net, tr__message *f) {
  while (!net->closed && f->handed < f->parts && net->handed < TR__MPI_UNDER_WAY) {
    size_t at = (size_t)f->handed * TR__MPI_BYTES, left = f->nbyte - at;
    size_t n = left < TR__MPI_BYTES ? left : TR__MPI_BYTES;
    atomic_fetch_add(&net->calls, 1);
    int error = f->sends ? net->mpi->isend(f->data + at, n, f->peer, f->tag, f)
                         : net->mpi->irecv(f->data + at, n, f->peer, f->tag, f);
    atomic_fetch_add(&net->calls, 1);
    if (error) return fail(net, f, error), 1;
    f->handed++;
    net->handed++;
  }
  return f->handed == f->parts;
}

static tr__message *new_message(tr__net *net) {
  if (!net->free) {
    message_block *block = calloc(1, sizeof *block);
    if (!block) return NULL;
    block->next = net->blocks;
    net->blocks = block;
    for (int i = 0; i < BLOCK_MESSAGES; i++) tr__message_free(net, &block->message[i]);
  }
  tr__message *f = net->free;
  net->free = f->next;
  return f;
}

void tr__message_free(tr__net *net, tr__message *f) {
  f->next = net->free;
  net->free = f;
}

static tr__message *start(tr__net *net, int sends, int peer, int tag, char *data, size_t nbyte, int quiet) {
  tr__message *f = new_message(net);
  if (!f) return (void)tr_error(TR_ERR_MEMORY, "no memory for a message of rank %d", net->rank), NULL;
  int parts = nbyte ? (int)((nbyte + TR__MPI_BYTES - 1) / TR__MPI_BYTES) : 1;
  *f = (tr__message){.data = data,
                     .nbyte = nbyte,
                     .peer = peer,
                     .tag = tag,
                     .parts = parts,
                     .left = parts,
                     .sends = (unsigned char)sends,
                     .quiet = (unsigned char)quiet};
  if (!quiet && atomic_fetch_add_explicit(&net->under_way, 1, memory_order_relaxed) == 0) {
    uint64_t one = 1;
    if (write(net->wake_fd, &one, sizeof one) < 0) (void)errno; // full: it is awake
  }
  if (!net->waiting && hand(net, f)) return f;
  *net->tail = f;
  net->tail = &f->next;
  return f;
}

tr__message *tr__net_send(tr__net *net, int peer, int tag, const void *data, size_t nbyte, int quiet) {
  return start(net, 1, peer, tag, (char *)(uintptr_t)data, nbyte, quiet);
}

tr__message *tr__net_recv(tr__net *net, int peer, int tag, void *data, size_t nbyte, int quiet) {
  return start(net, 0, peer, tag, data, nbyte, quiet);
}

// ---- progress

int tr__message_ended(const tr__message *f) { return f->left == 0; }
int tr__message_sends(const tr__message *f) { return f->sends; }
size_t tr__message_nbyte(const tr__message *f) { return f->came; }

static void end_part(tr__net *net, const tr__mpi_ended *ended) {
  tr__message *f = ended->user;
  net->handed--;
  f->came += ended->nbyte;
  if (ended->error) fail(net, f, ended->error);
  if (--f->left == 0 && !f->quiet) atomic_fetch_sub_explicit(&net->under_way, 1, memory_order_relaxed);
}

int tr__net_poll(tr__net *net) {
  if (net->closed) return 0;
  atomic_fetch_add(&net->calls, 1);
  int n = net->mpi->testsome(net->ended);
  atomic_fetch_add(&net->calls, 1);
  for (int i = 0; i < n; i++) end_part(net, &net->ended[i]);
  while (net->waiting && hand(net, net->waiting)) {
    net->waiting = net->waiting->next;
    if (!net->waiting) net->tail = &net->waiting;
  }
  return n;
}

static void own(tr__net *net) {
  if (net->depth++ == 0) atomic_store(&net->owner, pthread_self());
}

void tr__net_enter(tr__net *net) {
  pthread_mutex_lock(&net->mutex);
  own(net);
}

int tr__net_try_enter(tr__net *net) {
  if (pthread_mutex_trylock(&net->mutex) != 0) return 0;
  own(net);
  return 1;
}

void tr__net_leave(tr__net *net) {
  if (--net->depth == 0) atomic_store(&net->owner, 0);
  pthread_mutex_unlock(&net->mutex);
}

void tr__net_settle(tr__net *net) {
  if (atomic_load(&net->owner) == pthread_self()) return; // inside a step: the call that made it comes here too
  double until = tr_clock_seconds() + 1;
  while (!atomic_load(&net->told) && tr_clock_seconds() < until) tr_clock_sleep_ns(1000000);
  tr__net_enter(net);
  net->closed = 1;
  tr__net_leave(net);
}

void tr__net_serve(tr__net *net, tr_comm *comm) { net->comm = comm; }

// What leaders tell each other is the business of the threads beside them.
void tr__net_drive(tr__net *net) {
  if (atomic_load_explicit(&net->under_way, memory_order_relaxed) == 0) return;
  atomic_fetch_add_explicit(&net->driven, 1, memory_order_relaxed);
  tr__net_poll(net);
}

// ---- who is where

typedef struct card { // what a rank tells of itself
  char machine[160];  // ranks with equal ones share memory
  char name[TR__HOST_NAME];
  int32_t pid, compare; // compare: calls, as TRIREME_COMM_DEBUG asks
  int64_t offer;
  uint64_t agrees;
} card;

static void read_word(const char *path, char *out, size_t nbyte) {
  FILE *file = fopen(path, "re");
  if (!file || !fgets(out, (int)nbyte, file)) out[0] = 0;
  out[strcspn(out, "\n")] = 0;
  if (file) fclose(file);
}

// One boot of one kernel, and one network namespace, as abstract sockets are the namespace's.
static void fill_card(card *c, const tr_launch_place *place) {
  char boot[64], net[64] = "";
  memset(c, 0, sizeof *c);
  if (gethostname(c->name, sizeof c->name - 8) != 0) snprintf(c->name, sizeof c->name, "host");
  read_word("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
  if (readlink("/proc/self/ns/net", net, sizeof net - 1) < 0) net[0] = 0;
  int pretended = getenv("TRIREME_PER_HOST") ? place->rank - place->local_rank : 0;
  snprintf(c->machine, sizeof c->machine, "%s %s %d", boot[0] ? boot : c->name, net, pretended);
  if (getenv("TRIREME_PER_HOST")) snprintf(c->name + strlen(c->name), 8, "#%d", pretended);
  c->pid = (int32_t)getpid();
}

static tr_status ask_to_compare(card *c) {
  const char *text = getenv("TRIREME_COMM_DEBUG");
  if (text && *text && strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
    return tr_error(TR_ERR_CONFIG, "TRIREME_COMM_DEBUG=%.40s: give 1 to compare the calls of all ranks, or 0", text);
  c->compare = text && *text == '1';
  return TR_OK;
}

static void number_hosts(const card *cards, int n, tr__hosts *hosts) {
  int first[TR__RANKS]; // rank of each host
  *hosts = (tr__hosts){.least = INT64_MAX};
  for (int r = 0; r < n; r++) {
    int host = 0;
    while (host < hosts->count && strcmp(cards[first[host]].machine, cards[r].machine) != 0) host++;
    if (host == hosts->count) {
      first[hosts->count++] = r;
      memcpy(hosts->name[host], cards[r].name, TR__HOST_NAME);
    }
    hosts->of[r] = (int16_t)host;
    hosts->pid[r] = cards[r].pid;
    hosts->compare |= cards[r].compare; // all do what one asks for: starters do not take the environment everywhere
    if (cards[r].offer < hosts->least) hosts->least = cards[r].offer;
    if (cards[r].agrees != cards[0].agrees && !hosts->differs) hosts->differs = r;
  }
  for (int r = 0; r < n; r++)
    for (int earlier = 0; earlier < r; earlier++) hosts->local[r] += hosts->of[earlier] == hosts->of[r];
}

static tr_status wait_for(tr__net *net, tr__message **messages, int n, double until) {
  for (int i = 0; i < n; i++) {
    if (!messages[i]) return TR_ERR_MEMORY;
    while (!tr__message_ended(messages[i])) {
      tr__net_poll(net);
      if (tr__message_ended(messages[i])) break;
      if (net->failure[0]) return tr_error(TR_ERR_PEER, "%s", net->failure);
      if (tr_clock_seconds() > until)
        return tr_error(TR_ERR_TIMEOUT, "rank %d waited in vain for a first message %s rank %d over %s", net->rank,
                        messages[i]->sends ? "to" : "from", messages[i]->peer, net->mpi->name);
      tr_clock_sleep_ns(200000);
    }
    tr__message_free(net, messages[i]);
  }
  return TR_OK;
}

static tr_status gather_cards(tr__net *net, const card *own, tr__hosts *hosts, double until) {
  enum { TAG = TR__CONTEXT_LEADERS * TR__NET_LANES };
  int n = net->job->options.nrank;
  tr__message *messages[TR__RANKS];
  card *cards = calloc((size_t)n, sizeof *cards);
  if (!cards) return tr_error(TR_ERR_MEMORY, "no memory to meet %d ranks", n);
  cards[0] = *own;
  for (int r = 1; r < n; r++) messages[r - 1] = tr__net_recv(net, r, TAG, &cards[r], sizeof *cards, 1);
  tr_status status = wait_for(net, messages, n - 1, until);
  if (status == TR_OK) {
    number_hosts(cards, n, hosts);
    for (int r = 1; r < n; r++) messages[r - 1] = tr__net_send(net, r, TAG, hosts, sizeof *hosts, 1);
    status = wait_for(net, messages, n - 1, until);
  }
  free(cards);
  return status;
}

static tr_status give_card(tr__net *net, const card *own, tr__hosts *hosts, double until) {
  enum { TAG = TR__CONTEXT_LEADERS * TR__NET_LANES };
  tr__message *messages[2] = {tr__net_send(net, 0, TAG, own, sizeof *own, 1),
                              tr__net_recv(net, 0, TAG, hosts, sizeof *hosts, 1)};
  return wait_for(net, messages, 2, until);
}

tr_status tr__net_hosts(tr__net *net, const tr_launch_place *place, double deadline) {
  double until = tr_clock_seconds() + deadline;
  tr__hosts *hosts = &net->job->hosts;
  card own;
  fill_card(&own, place);
  own.offer = net->job->options.offer;
  own.agrees = net->job->options.agrees;
  TR_TRY(ask_to_compare(&own));
  TR_TRY(net->rank == 0 ? gather_cards(net, &own, hosts, until) : give_card(net, &own, hosts, until));
  if (hosts->differs)
    return tr_error(
        TR_ERR_CONFIG,
        "rank 0 on %s and rank %d on %s were started with different settings or data; the same command, run "
        "files and data on all hosts would work",
        hosts->name[0], hosts->differs, hosts->name[hosts->of[hosts->differs]]);
  hosts->own = hosts->of[net->rank];
  for (int r = 0; r < net->job->options.nrank; r++) hosts->nlocal += hosts->of[r] == hosts->own;
  return TR_OK;
}
