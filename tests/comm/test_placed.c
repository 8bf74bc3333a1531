// SPDX-License-Identifier: MIT
// tier: quick
// Environments of starters: who counts as one rank of many, as which, and what is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/comm/launch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VARIABLES = 9 };

typedef struct placed {
  const char *what;
  const char *environment[VARIABLES]; // NAME=VALUE
  const char *starter;                // NULL: alone
  int rank, size, local_rank, local_size;
} placed;

static const placed cases[] = {
    {"nothing", {NULL}, NULL, 0, 0, 0, 0},
    {"mpirun",
     {"OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1",
      "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_RANK=3"},
     "Open MPI",
     3,
     4,
     1,
     2},
    {"mpirun in an allocation of Slurm",
     {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0",
      "OMPI_COMM_WORLD_LOCAL_SIZE=1", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_NODEID=1"},
     "Open MPI",
     1,
     2,
     0,
     1},
    {"hydra", {"PMI_RANK=0", "PMI_SIZE=3", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=3"}, "MPICH", 0, 3, 0, 3},
    {"a process manager that says no more", {"PMI_RANK=1", "PMI_SIZE=3"}, "PMI", 1, 3, -1, -1},
    {"srun",
     {"SLURM_PROCID=4", "SLURM_STEP_NUM_TASKS=7", "SLURM_LOCALID=0", "SLURM_NODEID=2",
      "SLURM_STEP_TASKS_PER_NODE=2(x3),1"},
     "Slurm",
     4,
     7,
     0,
     2},
    {"srun, its last node",
     {"SLURM_PROCID=6", "SLURM_STEP_NUM_TASKS=7", "SLURM_LOCALID=0", "SLURM_NODEID=3",
      "SLURM_STEP_TASKS_PER_NODE=2(x3),1", "PMI_RANK=6", "PMI_SIZE=7"},
     "Slurm",
     6,
     7,
     0,
     1},
    {"a batch script", {"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_ID=7"}, NULL, 0, 0, 0, 0},
    {"srun of one task", {"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1", "SLURM_LOCALID=0"}, NULL, 0, 0, 0, 0},
    {"torchrun in a step of Slurm",
     {"TORCHELASTIC_RUN_ID=none", "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "SLURM_PROCID=1",
      "SLURM_STEP_NUM_TASKS=2"},
     "torchrun",
     5,
     8,
     1,
     4},
    {"its variables alone", {"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"}, "torchrun", 1, 2, 1, 2},
    {"half of the local ones", {"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1"}, "torchrun", 1, 2, -1, -1},
    {"a size left lying", {"WORLD_SIZE=2"}, NULL, 0, 0, 0, 0},
    {"hosts of two, the first", {"RANK=1", "WORLD_SIZE=5", "TRIREME_PER_HOST=2"}, "torchrun", 1, 5, 1, 2},
    {"hosts of two, the last", {"RANK=4", "WORLD_SIZE=5", "TRIREME_PER_HOST=2"}, "torchrun", 4, 5, 0, 1},
};

static const struct {
  const char *environment[VARIABLES];
  const char *says;
} refused[] = {
    {{"RANK=2", "WORLD_SIZE=2"}, "RANK=2 is no rank of 2 (WORLD_SIZE); 0 to 1 are"},
    {{"RANK=x", "WORLD_SIZE=2"}, "started by torchrun: RANK=x is not a number"},
    {{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=257"},
     "started by Open MPI with 257 ranks; a job has 1 to 256"},
    {{"PMI_RANK=0", "PMI_SIZE=2", "MPI_LOCALRANKID=2", "MPI_LOCALNRANKS=2"},
     "rank 0 of 2 cannot be number 2 of 2 on its host"},
    {{"RANK=0", "WORLD_SIZE=2", "TRIREME_PER_HOST=0"}, "TRIREME_PER_HOST=0: give the ranks per host, 1 to 256"},
};

static void set_environment(const char *const *variables) {
  clearenv();
  for (int i = 0; i < VARIABLES && variables[i]; i++) {
    char name[64];
    const char *equals = strchr(variables[i], '=');
    snprintf(name, sizeof name, "%.*s", (int)(equals - variables[i]), variables[i]);
    setenv(name, equals + 1, 1);
  }
}

static void starters_are_told_apart(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const placed *c = &cases[i];
    tr_launch_place place = {.size = -7};
    set_environment(c->environment);
    tr_status status = tr_launch_placed(&place);
    if ((int)status != (c->starter != NULL)) print_error("%s: %d\n", c->what, (int)status);
    assert_int_equal(status, c->starter != NULL);
    if (!c->starter) {
      assert_int_equal(place.size, -7);
      continue;
    }
    if (place.local_size != c->local_size) print_error("%s\n", c->what);
    assert_string_equal(place.starter, c->starter);
    assert_int_equal(place.rank, c->rank);
    assert_int_equal(place.size, c->size);
    assert_int_equal(place.local_rank, c->local_rank);
    assert_int_equal(place.local_size, c->local_size);
  }
}

static void what_cannot_be_is_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    tr_launch_place place;
    set_environment(refused[i].environment);
    assert_int_equal(tr_launch_placed(&place), TR_ERR_CONFIG);
    if (!strstr(tr_status_text(), refused[i].says)) print_error("'%s' says: %s\n", refused[i].says, tr_status_text());
    assert_non_null(strstr(tr_status_text(), refused[i].says));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(starters_are_told_apart),
      cmocka_unit_test(what_cannot_be_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
