// SPDX-License-Identifier: MIT
// Whether this process is one rank of many that somebody else has started, and which: the table of starters.
//
// Only the environment is read. A row counts when its first variable is there; the first such row decides, innermost
// starter first, as the variables of an outer one are inherited: torchrun inside a Slurm step, mpirun inside an
// allocation. Variables of a Slurm allocation without a step (a batch script) mean nothing.
//
// TRIREME_PER_HOST=N pretends that each N ranks, in order, are a host of their own: with it all that hosts make different
// can be tried on one machine.
#include "external_internal.h"
#include "trireme/base/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct starter {
  const char *name, *sign, *rank, *size, *local_rank, *local_size;
} starter;

static const starter starters[] = {
    {"torchrun", "TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPICH", "MPI_LOCALNRANKS", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL},
    {"PMI", "PMI_SIZE", "PMI_RANK", "PMI_SIZE", NULL, NULL},
    {"torchrun", "WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
};

static tr_status refuse(const starter *s, const char *name, const char *value, const char *why) {
  return tr_error(TR_ERR_CONFIG, "started by %s: %s=%.40s %s", s->name, name, value, why);
}

// *out = -1 when the variable is missing.
static tr_status read_number(const starter *s, const char *name, int *out) {
  const char *text = name ? getenv(name) : NULL;
  int64_t value;
  *out = -1;
  if (!text) return TR_OK;
  if (tr_parse_count(text, &value) < 0 || value < 0 || value > INT32_MAX)
    return refuse(s, name, text, "is not a number from 0 on");
  *out = (int)value;
  return TR_OK;
}

// "2(x3),1": tasks of each node, in order. Returns those of `node`, -1 if the text does not say.
static int tasks_of_node(const char *text, int node) {
  while (*text) {
    int tasks, times = 1, used = 0;
    if (sscanf(text, "%9d%n", &tasks, &used) != 1) return -1;
    text += used;
    used = 0;
    if (sscanf(text, "(x%9d)%n", &times, &used) == 1) text += used;
    if (node < times) return tasks;
    node -= times;
    text += *text == ',';
  }
  return -1;
}

static tr_status read_slurm_local(const starter *s, tr_launch_place *place) {
  const char *tasks = getenv("SLURM_STEP_TASKS_PER_NODE");
  int node;
  TR_TRY(read_number(s, "SLURM_NODEID", &node));
  if (tasks && node >= 0) place->local_size = tasks_of_node(tasks, node);
  return TR_OK;
}

static tr_status pretend_hosts(tr_launch_place *place) {
  const char *text = getenv("TRIREME_PER_HOST");
  int64_t each;
  if (!text) return TR_OK;
  if (tr_parse_count(text, &each) < 0 || each < 1 || each > TR__RANKS)
    return tr_error(TR_ERR_CONFIG, "TRIREME_PER_HOST=%.40s: give the ranks per host, 1 to %d", text, TR__RANKS);
  int first = place->rank / (int)each * (int)each, left = place->size - first;
  place->local_rank = place->rank - first;
  place->local_size = left < each ? left : (int)each;
  return TR_OK;
}

static tr_status check(const starter *s, const tr_launch_place *p) {
  if (p->size > TR__RANKS)
    return tr_error(TR_ERR_CONFIG, "started by %s with %d ranks; a job has 1 to %d", s->name, p->size, TR__RANKS);
  if (p->rank < 0 || p->rank >= p->size)
    return tr_error(TR_ERR_CONFIG, "started by %s: %s=%d is no rank of %d (%s); 0 to %d are", s->name, s->rank,
                    p->rank, p->size, s->size, p->size - 1);
  if (p->local_rank <= p->rank && p->local_size <= p->size && (p->local_size < 0 || p->local_rank < p->local_size))
    return TR_OK;
  return tr_error(TR_ERR_CONFIG, "started by %s: rank %d of %d cannot be number %d of %d on its host", s->name,
                  p->rank, p->size, p->local_rank, p->local_size);
}

static const starter *find_starter(void) {
  const starter *s = starters, *end = starters + sizeof starters / sizeof *starters;
  while (s < end && !getenv(s->sign)) s++;
  return s < end ? s : NULL;
}

const char *tr__placed_variable(void) {
  const starter *s = find_starter();
  return s ? s->rank : NULL;
}

tr_status tr_launch_placed(tr_launch_place *out) {
  const starter *s = find_starter();
  if (!s) return TR_OK;
  tr_launch_place place = {.starter = s->name};
  TR_TRY(read_number(s, s->size, &place.size));
  TR_TRY(read_number(s, s->rank, &place.rank));
  if (place.size == 1 || (place.rank < 0 && place.size != 0)) return TR_OK; // one of one, or a variable left lying
  TR_TRY(read_number(s, s->local_rank, &place.local_rank));
  TR_TRY(read_number(s, s->local_size, &place.local_size));
  if (!s->local_size && s->local_rank) TR_TRY(read_slurm_local(s, &place));
  if (place.local_rank < 0 || place.local_size < 0) place.local_rank = place.local_size = -1; // half tells nothing
  TR_TRY(check(s, &place));
  TR_TRY(pretend_hosts(&place));
  *out = place;
  return TR_PENDING;
}
