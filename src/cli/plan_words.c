// SPDX-License-Identifier: MIT
// The words of `trireme plan`, one row and one file each; whatever a word needs besides its own arguments is in
// plan_report.c.
#include "cli/plan_words_internal.h"

static const tr__plan_word words[] = {
    {"search", "the best plans for a model on a cluster: the same as without a word", tr__plan_search},
    {"explain", "where time and memory of a given plan go, and what would help: PLAN.yaml", tr__plan_explain},
    {"what-if", "a given plan beside the same with other values: PLAN.yaml tp=4", tr__plan_what_if},
    {"report", "a page of pictures of a given plan: PLAN.yaml --write FILE.html", tr__plan_page},
    {"train", "a step of trireme train on a machine that bench --write measured: RUN.yaml --cluster C",
     tr__plan_train},
    {"fit", "what fits on a cluster and with which means: --cluster C", tr__plan_fit},
    {"evaluate", "predict published runs: ROWS.csv [--summary]", tr__plan_evaluate},
    {"tree", "walk the decision tree: what fits where, and which split on which tier", tr__plan_tree},
    {"stages", "where a pipeline cuts a model: layers, FLOP and memory stage by stage", tr__plan_stage_table},
    {"scaling", "the curve over device counts, and where adding devices stops paying", tr__plan_scaling},
    {"batch", "how large the batch may grow, and the learning-rate rule that goes with it", tr__plan_batch},
    {"sync", "iterations, samples, time and price by workers, synchronous and stale", tr__plan_sync},
    {"cost", "days, energy, carbon and price of a token budget or a loss target", tr__plan_cost},
    {"checkpoint", "how often to save, what failures cost, and how many spares to keep", tr__plan_checkpoint},
    {"rlhf", "memory of PPO, DPO and GRPO by model and phase", tr__plan_rlhf},
    {"embedding", "embedding tables over devices: copied, whole or cut by rows", tr__plan_embedding},
    {"precision", "ranges of small number types, and which bytes FP8 makes fewer", tr__plan_precision},
    {"mfu", "the utilisation of a run by each formula that is in use", tr__plan_utilisation},
    {"fit-exponent", "fit the compute power law to your own runs: RUNS.csv", tr__plan_exponent},
};

const tr__plan_word *tr__plan_words(size_t *n) {
  *n = sizeof words / sizeof *words;
  return words;
}
