// SPDX-License-Identifier: MIT
// `trireme train`: settings from files and arguments, the checked plan, the run, and the loss curve at the end.
#include "cli/cli_internal.h"
#include "trireme/train/train.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int print_help(const char *group) {
  tr_text text = {0};
  tr_options_help(tr_train_options, tr_train_option_count, group, &text);
  if (!text.data) return tr__cli_fail(tr__cli_usage("train", "there is no group of settings '%s'", group));
  printf(
      "usage: trireme train RUN.yaml [MORE.yaml ...] [-n RANKS] [key=value ...]\n\n"
      "Train a model. Settings come from the run files, later files over earlier ones, then from key=value.\n\n"
      "  -n RANKS          ranks on this machine (run.ranks)\n"
      "  --print-config    print the effective settings and where each comes from, then stop\n"
      "  --dry-run         check everything and print the plan, then stop\n"
      "  --program         --dry-run with the step program\n"
      "  --json            --dry-run with the plan as one JSON object\n"
      "  --help [GROUP]    this text, with the settings of a group: model data batch parallel precision optim lr\n"
      "                    train checkpoint comm run\n\n"
      "examples:\n"
      "  trireme train presets/demo.yaml data.path=book.txt -n 2\n"
      "  trireme train presets/demo.yaml data.path=book.txt model.layers=6 lr=3e-4 train.steps=2k\n"
      "  trireme train presets/demo.yaml data.path=book.txt --dry-run\n\n"
      "A run that was stopped (Ctrl-C: finish the step, save, leave) or killed goes on with the same command.\n\n");
  fputs(text.data, stdout);
  tr_text_free(&text);
  return 0;
}

typedef struct request {
  int print_config, dry_run, program, json;
} request;

static int is_run_file(const char *argument) {
  size_t n = strlen(argument);
  const char *equals = strchr(argument, '=');
  if (equals && !memchr(argument, '/', (size_t)(equals - argument)))
    return 0; // key=FILE.yaml; runs/lr=1/config.yaml is a file
  return (n > 5 && strcmp(argument + n - 5, ".yaml") == 0) || (n > 4 && strcmp(argument + n - 4, ".yml") == 0);
}

static tr_status apply_argument(tr_options *options, int argc, char **argv, int *i, request *want) {
  const char *value, *argument = argv[*i];
  char text[64];
  if (strcmp(argument, "--print-config") == 0) return want->print_config = 1, TR_OK;
  if (strcmp(argument, "--dry-run") == 0) return want->dry_run = 1, TR_OK;
  if (strcmp(argument, "--program") == 0) return want->program = want->dry_run = 1, TR_OK;
  if (strcmp(argument, "--json") == 0) return want->json = want->dry_run = 1, TR_OK;
  if (tr__cli_option(argc, argv, i, "-n", &value)) {
    if (!value) return tr__cli_usage("train", "-n needs the number of ranks");
    snprintf(text, sizeof text, "run.ranks=%s", value);
    return tr_options_apply_argument(options, text);
  }
  if (is_run_file(argument)) return TR_OK; // read before: arguments win over files wherever they stand
  if (strchr(argument, '=')) return tr_options_apply_argument(options, argument);
  if (argument[0] == '-') return tr__cli_usage("train", "there is no option '%s'", argument);
  return tr__cli_usage("train", "'%s' is neither a run file (*.yaml) nor key=value", argument);
}

static tr_status read_settings(tr_options *options, int argc, char **argv, request *want) {
  for (int i = 1; i < argc; i++) {
    tr_yaml *yaml;
    if (!is_run_file(argv[i])) continue;
    TR_TRY(tr_yaml_load(argv[i], &yaml));
    TR_TRY(tr_options_apply_yaml(options, yaml));
  }
  for (int i = 1; i < argc; i++) TR_TRY(apply_argument(options, argc, argv, &i, want));
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
    if (want->program) tr_program_print(&plan->program, &text);
  }
  if (text.data) fputs(text.data, stdout);
  fflush(stdout);
  tr_text_free(&text);
  return TR_OK;
}

static void draw_curve(const tr_train_config *config) {
  char metrics[4096], svg[4096];
  tr_text text = {0};
  snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", config->train.folder);
  snprintf(svg, sizeof svg, "%s/loss.svg", config->train.folder);
  if (tr_curve_draw(metrics, svg, 72, 16, &text) == TR_OK && text.data)
    printf("\n%s\nloss curve  %s\ncheckpoints %s/checkpoints\n", text.data, svg, config->train.folder);
  tr_text_free(&text);
}

static tr_status train(tr_train_config *config, tr_options *options, const request *want) {
  tr_train_plan plan;
  if (want->print_config) {
    tr_text text = {0};
    tr_options_print(options, 1, &text);
    if (text.data) fputs(text.data, stdout);
    tr_text_free(&text);
    return TR_OK;
  }
  TR_TRY(tr_train_plan_make(config, options, &plan));
  // The ranks' output goes through a pipe, so whether a person watches is decided here.
  plan.progress = config->run.progress == 0 ? isatty(STDOUT_FILENO) : config->run.progress == 1;
  signal(SIGPIPE, SIG_IGN); // a reader that goes away (| head, a tee that died) does not end the training
  tr_status status = print_plan(&plan, want);
  if (status == TR_OK && !want->dry_run) status = tr_train(&plan, options);
  if (status == TR_OK && !want->dry_run) draw_curve(config);
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
  int exit_code = status < 0 ? tr__cli_fail(status) : 0;
  tr_options_destroy(options);
  return exit_code;
}
