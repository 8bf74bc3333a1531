// SPDX-License-Identifier: MIT
// What `trireme plan` was asked for, and its answer as text and as JSON (plan_search_print.c).
#ifndef TRIREME_CLI_PLAN_SEARCH_INTERNAL_H
#define TRIREME_CLI_PLAN_SEARCH_INTERNAL_H

#include "cli/arguments_internal.h"
#include "cli/plan_case_internal.h"
#include "cli/plan_words_internal.h"

typedef struct tr__plan_request {
  const char *model, *cluster, *batch, *write, *pareto, *overhead;
  double price, imbalance;
  int64_t sequence, devices, top;
  int number, json, explain, each;
  tr__argument_list fix;
} tr__plan_request;

enum { TR__PLAN_WARNINGS = 2 };
typedef struct tr__plan_answer {
  const tr__plan_request *request;
  const tr_workload *model;
  const tr_cluster *cluster;
  const tr_search_options *options;
  tr_search_result *found;
  double seconds; // that the search took
  tr_law_warning warning[TR__PLAN_WARNINGS];
} tr__plan_answer;

tr_status tr__plan_answer_print(const tr__plan_answer *answer);
tr_status tr__plan_answer_json(const tr__plan_answer *answer);

#endif
