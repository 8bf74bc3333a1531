// SPDX-License-Identifier: MIT
// Loading the plug-in of the MPI that has started this process, and starting that MPI. Which one: the starter's
// environment says; TRIREME_MPI=FILE names another. MPI_Init and MPI_Finalize wait for others as long as they like, so a
// thread watches them and ends the process with a sentence: there is no way out of them but that.
#include "external_internal.h"
#include "trireme/base/clock.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

// ---- which plug-in

static const char *plugin_name(const tr_launch_place *place) {
  if (strcmp(place->starter, "Open MPI") == 0 || getenv("PMIX_RANK")) return "trireme-openmpi.so";
  if (strcmp(place->starter, "MPICH") == 0 || getenv("PMI_RANK")) return "trireme-mpich.so";
  return NULL;
}

// Beside the program, or in the lib folder next to its bin folder.
static int find_beside(const char *name, char *out, size_t nbyte) {
  static const char *const folders[] = {"", "../lib/trireme/"};
  char program[4096];
  ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
  if (n <= 0) return 0;
  program[n] = 0;
  *(strrchr(program, '/') + 1) = 0;
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
    if (snprintf(out, nbyte, "%s%s%s", program, folders[i], name) < (int)nbyte && access(out, R_OK) == 0) return 1;
  return 0;
}

static tr_status find_plugin(const tr_launch_place *place, char *out, size_t nbyte) {
  const char *given = getenv("TRIREME_MPI"), *name = plugin_name(place);
  if (given && *given) {
    snprintf(out, nbyte, "%s", given);
    return TR_OK;
  }
  if (!name)
    return tr_error(TR_ERR_CONFIG,
                    "%s started %d ranks on several hosts without an MPI between them: mpirun would work, or srun "
                    "--mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH)",
                    place->starter, place->size);
  if (find_beside(name, out, nbyte)) return TR_OK;
  return tr_error(
      TR_ERR_CONFIG,
      "ranks on several hosts need %s beside the command or in ../lib/trireme: it is built where that MPI's "
      "headers are installed; TRIREME_MPI=FILE names another place",
      name);
}

static tr_status load(tr__net *net) {
  net->library = dlopen(net->file, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  if (!net->library) return tr_error(TR_ERR_CONFIG, "cannot load MPI: %s", dlerror());
  net->mpi = dlsym(net->library, TR__MPI_SYMBOL);
  if (net->mpi && net->mpi->version == TR__MPI_VERSION) return TR_OK;
  return tr_error(TR_ERR_CONFIG, "%s is no plug-in of this version of Trireme: build both together", net->file);
}

// ---- under watch

typedef struct guard {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t over;
  int done;
  double seconds;
  char sentence[800];
} guard;

static void *guard_main(void *argument) {
  guard *g = argument;
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += (time_t)g->seconds + 1;
  pthread_mutex_lock(&g->mutex);
  while (!g->done && pthread_cond_timedwait(&g->over, &g->mutex, &until) != ETIMEDOUT) {
  }
  if (!g->done) {
    fprintf(stderr, "%s\n", g->sentence);
    fflush(NULL);
    _exit(tr_status_exit_code(TR_ERR_TIMEOUT));
  }
  pthread_mutex_unlock(&g->mutex);
  return NULL;
}

static tr_status guard_begin(guard *g, const tr__net *net, const char *call, double seconds) {
  pthread_condattr_t monotonic;
  *g = (guard){.seconds = seconds};
  snprintf(
      g->sentence, sizeof g->sentence,
      "trireme: rank %d (pid %d): %s (%s) did not return within %.0f s; is every rank started, and can all hosts "
      "reach each other?",
      net->rank, (int)getpid(), call, net->file, seconds);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&g->over, &monotonic);
  pthread_condattr_destroy(&monotonic);
  pthread_mutex_init(&g->mutex, NULL);
  int error = pthread_create(&g->thread, NULL, guard_main, g);
  return error ? tr_error(TR_ERR_MEMORY, "cannot start a thread: %s", strerror(error)) : TR_OK;
}

static void guard_end(guard *g) {
  pthread_mutex_lock(&g->mutex);
  g->done = 1;
  pthread_cond_signal(&g->over);
  pthread_mutex_unlock(&g->mutex);
  pthread_join(g->thread, NULL);
}

static tr_status init(tr__net *net, double deadline) {
  guard g;
  char why[256] = "";
  TR_TRY(guard_begin(&g, net, "MPI_Init_thread", deadline));
  int failed = net->mpi->init(why, sizeof why);
  guard_end(&g);
  return failed ? tr_error(TR_ERR_CONFIG, "%s (%s) cannot start: %s", net->mpi->name, net->file, why) : TR_OK;
}

static tr_status check(const tr__net *net) {
  int n = net->job->options.nrank;
  if (net->mpi->rank() != net->rank || net->mpi->size() != n)
    return tr_error(TR_ERR_CONFIG,
                    "%s (%s) says rank %d of %d where the environment says %d of %d: it is not the MPI that started "
                    "the ranks; TRIREME_MPI=FILE names the right one",
                    net->mpi->name, net->file, net->mpi->rank(), net->mpi->size(), net->rank, n);
  if (net->mpi->tag_most() >= (TR__CONTEXT_LEADERS + 1) * TR__NET_LANES - 1) return TR_OK;
  return tr_error(TR_ERR_CONFIG, "%s (%s) has tags up to %d, but %d are needed", net->mpi->name, net->file,
                  net->mpi->tag_most(), (TR__CONTEXT_LEADERS + 1) * TR__NET_LANES - 1);
}

tr_status tr__net_open(tr__job *job, const tr_launch_place *place, double deadline, tr__net **out) {
  tr__net *net = calloc(1, sizeof *net);
  if (!net) return tr_error(TR_ERR_MEMORY, "no memory for the connection of rank %d", place->rank);
  *net = (tr__net){.job = job, .rank = place->rank, .contexts = 1};
  net->tail = &net->waiting;
  net->ended = calloc(TR__MPI_UNDER_WAY, sizeof *net->ended);
  net->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE); // a step may start an operation
  pthread_mutex_init(&net->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  tr_status status = net->ended && net->wake_fd >= 0 ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory for messages");
  if (status == TR_OK) status = find_plugin(place, net->file, sizeof net->file);
  if (status == TR_OK) status = load(net);
  if (status == TR_OK) status = init(net, deadline);
  if (status == TR_OK) status = check(net);
  *out = net; // also when it failed: what MPI has begun cannot be taken back
  return status;
}

void tr__net_close(tr__net *net, double deadline) {
  guard g;
  if (guard_begin(&g, net, "MPI_Finalize", deadline) < 0) return;
  net->mpi->finalize();
  guard_end(&g);
}
