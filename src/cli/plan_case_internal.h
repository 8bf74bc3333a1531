// SPDX-License-Identifier: MIT
// One plan for one model on one cluster, as `trireme plan` reads it from run files and writes it into them.
//
// A plan's file is a run file of `trireme train` with a section `plan` that train does not read: the cluster, how many of its
// devices, and what train has no field for. Degrees that train refuses in this version are read and written all the same.
#ifndef TRIREME_CLI_PLAN_CASE_INTERNAL_H
#define TRIREME_CLI_PLAN_CASE_INTERNAL_H

#include "trireme/plan/search.h"

typedef struct tr__plan_case {
  char model_name[256], cluster_name[256];
  tr_workload model;
  tr_cluster cluster; // cut to the devices that the plan takes
  char schedule[32];  // what plan.schedule points to, if it is set
  tr_plan plan;
} tr__plan_case;

// The tr_plan_recompute of that name; -1: no such.
int tr__plan_recompute_of(const char *name);
// A preset, a file, or a device's name (one host of it, or `devices`); `devices` 0: all.
tr_status tr__plan_cluster_load(const char *name, int64_t devices, tr_cluster *out);

// "4M" tokens in whole sequences, or "1024seq"; `command` for the message.
tr_status tr__plan_sequences(const char *command, const char *text, int64_t sequence, int64_t *out);

// Learned positions that are fewer than a sequence has tokens grow, as train makes them where no weights are loaded.
void tr__plan_positions(int64_t sequence, tr_workload *model);

// Run files, then settings, from argv[1] on, with all of train's fields, plan.cluster, plan.devices, plan.vpp and
// plan.ep; --json sets *as_json. Where an argument changes another axis or the devices, and none gives dp, dp is what is
// left.
tr_status tr__plan_case_load(const char *command, int argc, char **argv, int *as_json, tr__plan_case *out);
void tr__plan_case_unload(tr__plan_case *c);
// "tp 4, pp 2, ...".
void tr__plan_case_text(const tr_plan *plan, char *out, size_t nbyte);

// "tp,cp,dp,pp".
void tr__plan_map_text(const tr_plan *plan, char *out, size_t nbyte);

// Tables of a report: what each axis puts on which links, and what fails together.
struct tr__plan_report;
void tr__plan_report_traffic(struct tr__plan_report *out, const tr__plan_case *c);
void tr__plan_report_failures(struct tr__plan_report *out, const tr__plan_case *c);

// The plan as a run file, its prediction as comments.
tr_status tr__plan_case_write(const tr__plan_case *c, const tr_prediction *prediction, const char *path);

// `trireme plan --pareto CRITERIA`, printed.
tr_status tr__plan_pareto(const char *criteria, const tr_workload *model, const tr_cluster *cluster,
                          const tr_search_options *options, int as_json);

#endif
