// SPDX-License-Identifier: MIT
// The groups in which a rank of a plan communicates: along the mesh, and two that follow from where stages are. Ranks whose
// gradients are summed are those of its data group, and where every stage has two copies, those of the mirrored place too.
// Ranks that share a parameter with another stage (tied embeddings, at both ends of the pipeline) sum that over both.
#include "train/train_internal.h"
#include <limits.h>
#include <stdlib.h>

static int has_copies(const tr_train_plan *plan) { return plan->schedule.p && plan->schedule.map == TR_STAGES_BOTH; }

int tr__plan_side(const tr_train_plan *plan, int place) {
  const int mirrored = plan->mesh.degree[TR_AXIS_PP] - 1 - place;
  return has_copies(plan) && mirrored < place ? mirrored : place;
}

int tr__plan_gradient_ranks(const tr_train_plan *plan) {
  return plan->mesh.degree[TR_AXIS_DP] * (has_copies(plan) ? 2 : 1);
}

int tr_train_gradient_place(const tr_train_plan *plan, int rank) {
  const int place = tr_mesh_coordinate(&plan->mesh, rank, TR_AXIS_PP);
  return tr_mesh_coordinate(&plan->mesh, rank, TR_AXIS_DP) +
         (tr__plan_side(plan, place) < place ? plan->mesh.degree[TR_AXIS_DP] : 0);
}

static int has_param(const tr_train_part *part, int whole) {
  for (int i = 0; i < tr_model_params(part->model); i++)
    if (tr_model_whole_param(part->model, i) == whole) return 1;
  return 0;
}

int tr__plan_ties(const tr_train_plan *plan, int place, int param) {
  const int whole = tr_model_whole_param(plan->part[place].model, param);
  for (int other = 0; other < plan->mesh.degree[TR_AXIS_PP]; other++)
    if (tr__plan_side(plan, other) != tr__plan_side(plan, place) && has_param(&plan->part[other], whole)) return 1;
  return 0;
}

// Whether the ranks in a place share a parameter with a stage that is elsewhere.
static int is_tied(const tr_train_plan *plan, int place) {
  for (int i = 0; i < tr_model_params(plan->part[place].model); i++)
    if (tr__plan_ties(plan, place, i)) return 1;
  return 0;
}

int tr__plan_groups(const tr_train_plan *plan) {
  int n = 2 + (plan->schedule.p > 1) + has_copies(plan);
  for (int r = 0; r < plan->schedule.p; r++)
    if (is_tied(plan, r)) return n + 1;
  return n;
}

// The ranks of this rank's pipeline's data groups in the places that are wanted, place by place.
static tr_status make_group(const tr_train_plan *plan, tr_comm *comm, const char *name, const unsigned char *wanted,
                            tr_group **out) {
  const int pp = plan->mesh.degree[TR_AXIS_PP], dp = plan->mesh.degree[TR_AXIS_DP];
  int *pipeline = malloc((size_t)pp * (1 + (size_t)dp) * sizeof *pipeline), *member = pipeline + pp, n = 0;
  if (!pipeline) return tr_error(TR_ERR_MEMORY, "no memory for the %s group's list of ranks", name);
  tr_mesh_members(&plan->mesh, tr_comm_rank(comm), TR_AXIS_PP, pipeline);
  for (int place = 0; place < pp; place++)
    if (wanted[place]) {
      tr_mesh_members(&plan->mesh, pipeline[place], TR_AXIS_DP, member + n);
      n += dp;
    }
  tr_status status = tr_group_create(comm, member, n, name, out);
  free(pipeline);
  return status;
}

static tr_status open_pipeline(const tr_train_plan *plan, tr_comm *comm, tr_train_groups *out) {
  const int pp = plan->mesh.degree[TR_AXIS_PP], own = tr_mesh_coordinate(&plan->mesh, tr_comm_rank(comm), TR_AXIS_PP);
  unsigned char *wanted = calloc((size_t)pp, 1);
  if (!wanted) return tr_error(TR_ERR_MEMORY, "no memory for the groups of a pipeline");
  tr_status status = tr_mesh_group(&plan->mesh, comm, TR_AXIS_PP, &out->pp);
  for (int r = 0; r < pp; r++) wanted[r] = tr__plan_side(plan, r) == tr__plan_side(plan, own);
  if (status == TR_OK && has_copies(plan)) status = make_group(plan, comm, "copies", wanted, &out->grads);
  for (int r = 0; r < pp; r++) wanted[r] = (unsigned char)is_tied(plan, r);
  if (status == TR_OK && wanted[own]) status = make_group(plan, comm, "tied", wanted, &out->tied);
  free(wanted);
  return status;
}

int tr__plan_sharers(const tr_train_plan *plan, const int16_t *host, int rank, int *first) {
  const int side = tr__plan_side(plan, tr_mesh_coordinate(&plan->mesh, rank, TR_AXIS_PP));
  int n = 0, least = INT_MAX;
  for (int r = 0; r < (int)plan->config->run.ranks; r++) {
    const int place = tr_train_gradient_place(plan, r);
    if (host && host[r] != host[rank]) continue;
    if (tr__plan_side(plan, tr_mesh_coordinate(&plan->mesh, r, TR_AXIS_PP)) != side) continue;
    n++;
    if (place < least) least = place, *first = r;
  }
  return n;
}

void tr__plan_hosts(const tr_train_plan *plan, int16_t *host) {
  for (int r = 0; r < (int)plan->config->run.ranks; r++) host[r] = (int16_t)(r / plan->local);
}

// Who has the state together: all whose gradients are summed where they are on one host, else those of this host.
static tr_status open_sharers(const tr_train_plan *plan, tr_comm *comm, tr_train_groups *out) {
  tr_group *grads = out->grads ? out->grads : out->dp;
  int member[TR__TRAIN_RANKS], n = 0, own = tr_comm_rank(comm);
  if (!plan->step.zero || tr_group_on_one_host(grads)) return TR_OK;
  for (int i = 0; i < tr_group_size(grads); i++) {
    const int rank = tr_group_member(grads, i), here = tr_comm_host(comm, rank) == tr_comm_host(comm, own);
    if (here) member[n++] = rank;
  }
  return tr_group_create(comm, member, n, "host", &out->share);
}

tr_status tr_train_groups_open(const tr_train_plan *plan, tr_comm *comm, tr_train_groups *out) {
  *out = (tr_train_groups){0};
  tr_status status = tr_mesh_group(&plan->mesh, comm, TR_AXIS_DP, &out->dp);
  if (status == TR_OK && plan->schedule.p > 1) status = open_pipeline(plan, comm, out);
  if (status == TR_OK) status = open_sharers(plan, comm, out);
  if (status < 0) tr_train_groups_close(out);
  return status;
}

void tr_train_groups_close(tr_train_groups *groups) {
  tr_group_destroy(groups->share);
  tr_group_destroy(groups->tied);
  tr_group_destroy(groups->grads);
  tr_group_destroy(groups->pp);
  tr_group_destroy(groups->dp);
  *groups = (tr_train_groups){0};
}
