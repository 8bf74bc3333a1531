// SPDX-License-Identifier: MIT
// `trireme train`: settings from files and arguments, the checked plan and the run.
#include "cli/arguments_internal.h"
#include "cli/cli_internal.h"
#include "trireme/train/train.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// " model data ...", over two lines.
static void list_groups(tr_text *out) {
  size_t width = 0;
  for (size_t i = 0; i < tr_train_option_count; i++) {
    const char *path = tr_train_options[i].path;
    const int n = (int)strcspn(path, ".");
    if (i && strncmp(path, tr_train_options[i - 1].path, (size_t)n + 1) == 0) continue;
    if (width > 45) tr_text_append(out, "\n                   ");
    width = width > 45 ? 0 : width + (size_t)n + 1;
    tr_text_append(out, " %.*s", n, path);
  }
}

static int print_help(const char *group) {
  tr_text text = {0}, groups = {0};
  tr_options_help(tr_train_options, tr_train_option_count, group, &text);
  if (!text.data) return tr__cli_fail(tr__cli_usage("train", "there is no group of settings '%s'", group));
  list_groups(&groups);
  printf(
      "usage: trireme train RUN.yaml [MORE.yaml ...] [-n RANKS] [key=value ...]\n\n"
      "Train a model. Settings come from the run files, later files over earlier ones, then from key=value.\n"
      "The last part of a name may stand alone where only one has it: lr=3e-4 is lr.lr=3e-4. A name with -- before\n"
      "it may stand apart from its value: --num-layers 6.\n\n"
      "  -n RANKS          ranks on this machine (run.ranks)\n"
      "  --print-config    print the effective settings and where each comes from, then stop\n"
      "  --dry-run         check everything and print the plan, then stop\n"
      "  --program         print the plan and the step program, then stop\n"
      "  --json            print the plan as one JSON object, then stop\n"
      "  --help [GROUP]    this text, with the settings of a group:%s\n\n"
      "examples:\n"
      "  trireme train presets/demo.yaml data.path=book.txt -n 2\n"
      "  trireme train presets/demo.yaml data.path=book.txt model.layers=6 lr=3e-4 train.steps=2k\n"
      "  trireme train presets/demo.yaml data.path=book.txt --dry-run\n\n"
      "A run that was stopped (Ctrl-C: finish the step, save, leave with exit code 130) or killed goes on with the "
      "same\n"
      "trireme train command.\n\n",
      groups.data ? groups.data : "");
  fputs(text.data, stdout);
  tr_text_free(&groups);
  tr_text_free(&text);
  return 0;
}

typedef struct request {
  int print_config, dry_run, program, json;
} request;

static tr_status read_settings(tr_options *options, int argc, char **argv, request *want) {
  const tr__argument flags[] = {{.name = "--print-config", .kind = TR__ARGUMENT_FLAG, .out = &want->print_config},
                                {.name = "--dry-run", .kind = TR__ARGUMENT_FLAG, .out = &want->dry_run},
                                {.name = "--program", .kind = TR__ARGUMENT_FLAG, .out = &want->program},
                                {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &want->json}};
  TR_TRY(tr__cli_settings("train", options, argc, argv, flags, sizeof flags / sizeof *flags, NULL));
  want->dry_run |= want->program | want->json;
  return TR_OK;
}

static tr_status print_plan(const tr_train_plan *plan, const request *want) {
  tr_text text = {0};
  if (want->json) {
    char *json = NULL;
    TR_TRY(tr_train_plan_json(plan, &json));
    tr_text_append(&text, "%s\n", json);
    free(json);
  } else {
    tr_train_plan_print(plan, &text);
    for (int r = 0; want->program && r < plan->mesh.degree[TR_AXIS_PP]; r++) {
      if (plan->schedule.p > 1) tr_text_append(&text, "pipeline rank %d\n", r);
      tr_program_print(&plan->part[r].program, &text);
    }
  }
  if (text.data) fputs(text.data, stdout);
  fflush(stdout);
  tr_text_free(&text);
  return TR_OK;
}

// Ranks that others have started: their number is the starter's, and the first speaks for all.
static tr_status adopt_ranks(tr_options *options, tr_launch_place *place) {
  char text[64];
  TR_TRY(tr_launch_placed(place));
  if (place->size == 0 || tr_options_is_set(options, "run.ranks")) return TR_OK;
  snprintf(text, sizeof text, "run.ranks=%d", place->size);
  return tr_options_apply_argument(options, text);
}

static tr_status train(tr_train_config *config, tr_options *options, const request *want) {
  tr_train_plan plan;
  tr_launch_place place = {0};
  TR_TRY(adopt_ranks(options, &place));
  TR_TRY(tr_train_settle(config, options));
  int speaks = place.rank == 0;
  if (want->print_config) {
    tr_text text = {0};
    tr_options_print(options, 1, &text);
    if (text.data && speaks) fputs(text.data, stdout);
    tr_text_free(&text);
    return TR_OK;
  }
  // The ranks' output goes through a pipe, so whether a person watches is decided here. Starters of ranks give them terminals
  // of their own, and collect what is written by lines.
  int watched = isatty(STDOUT_FILENO) && place.size == 0;
  int progress = config->run.progress == TR_PROGRESS_AUTO ? watched : config->run.progress == TR_PROGRESS_ON;
  // What a model takes can be asked before there are data.
  if (want->dry_run && !*config->data.path)
    TR_TRY(tr_train_plan_step(config, options, &plan));
  else
    TR_TRY(tr_train_plan_make(config, options, progress, &plan));
  signal(SIGPIPE, SIG_IGN); // a reader that goes away (| head, a tee that died) does not end the training
  tr_status status = speaks ? print_plan(&plan, want) : TR_OK;
  if (status == TR_OK && !want->dry_run) status = tr_train(&plan, options);
  tr_train_plan_destroy(&plan);
  return status;
}

int tr__cli_train(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) {
    const char *last = argv[argc - 1], *before = argv[argc - 2];
    int grouped = argc > 2 && (strcmp(before, "--help") == 0 || strcmp(before, "-h") == 0) && last[0] != '-';
    return print_help(grouped ? last : "");
  }
  if (argc < 2) return tr__cli_fail(tr__cli_usage("train", "give a run file or settings"));
  tr_train_config config;
  tr_options *options = NULL;
  request want = {0};
  tr_status status = tr_train_config_open(&config, &options);
  if (status == TR_OK) status = read_settings(options, argc, argv, &want);
  if (status == TR_OK) status = train(&config, options, &want);
  int exit_code = tr__cli_end(status);
  tr_options_destroy(options);
  return exit_code;
}
