// SPDX-License-Identifier: MIT
// Starting the ranks of a plan: how large the arena of each is. What ranks of a host have together lies in the arena of the first
// of them. Where ranks that others have started really are is known when they have met; then they also agree on what each host
// has chosen by its own memory (batch.micro=auto), and all go on with the least; ranks with other settings or data are refused.
#include "train/train_internal.h"
#include <stdio.h>

typedef struct start {
  tr_train_plan *plan;
  tr_rank_main life;
  void *user;
  size_t arena[TR__TRAIN_RANKS];
} start;

static void size_arenas(start *s, const int16_t *host) {
  for (int rank = 0; rank < (int)s->plan->config->run.ranks; rank++) {
    const tr_train_part *part = tr_train_part_of(s->plan, rank);
    int first, n = tr__plan_sharers(s->plan, host, rank, &first);
    s->arena[rank] = part->arena_nbyte + (n > 1 && first == rank ? part->once_nbyte : 0);
  }
}

static tr_status met(void *user, const tr_launch_met *met, tr_launch_options *options) {
  start *s = user;
  if (met->least < s->plan->micro) TR_TRY(tr__plan_lower_micro(s->plan, met->least));
  size_arenas(s, met->host);
  options->arena_of = s->arena;
  return TR_OK;
}

static tr_status live(tr_comm *comm, void *user) {
  const start *s = user;
  return s->life(comm, s->user);
}

// Nobody can tell a rank that hangs from a piece that takes longer than the deadline, so the sentence says what would wait.
static tr_status name_deadline(tr_status status, double deadline) {
  char sentence[1024];
  if (status != TR_ERR_TIMEOUT || !*tr_status_text()) return status;
  snprintf(sentence, sizeof sentence, "%s", tr_status_text());
  return tr_error(status, "%s; a run.deadline above %g s waits longer", sentence, deadline);
}

tr_status tr_train_launch(tr_train_plan *plan, const char *logs, tr_rank_main life, void *user) {
  const tr_train_config *c = plan->config;
  tr_launch_options launch;
  start s = {.plan = plan, .life = life, .user = user};
  size_arenas(&s, NULL);
  tr_launch_options_init(&launch);
  launch.mode = (tr_launch_mode)c->run.launch;
  launch.nrank = (int)c->run.ranks;
  launch.nthread = plan->nthread;
  launch.bind = c->run.bind;
  launch.arena_of = s.arena;
  launch.offer = plan->micro;
  launch.agrees = plan->agrees;
  launch.met = met;
  launch.deadline = c->run.deadline;
  launch.any_order = c->comm.order == TR_ORDER_ANY;
  launch.grace = 3; // a piece of compute or a block of a checkpoint is over by then
  launch.log_folder = launch.mode == TR_LAUNCH_PROCESSES ? logs : NULL;
  return name_deadline(tr_launch(&launch, live, &s, NULL), c->run.deadline);
}
