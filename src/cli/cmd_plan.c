// SPDX-License-Identifier: MIT
// `trireme plan`: predictions about training runs, without starting any. Each part is a file of its own.
#include "cli/cli_internal.h"
#include "cli/plan_command_internal.h"
#include "trireme/base/text.h"
#include <stdio.h>
#include <string.h>

static const struct {
  const char *name, *summary;
  tr_status (*run)(int argc, char **argv);
} part[] = {
    {"search", "find the best plans: the same as without a part", tr__plan_search},
    {"evaluate", "predict published runs: ROWS.csv [--summary]", tr__plan_evaluate},
};
enum { PARTS = sizeof part / sizeof *part };

static void print_help(void) {
  printf("usage: trireme plan --model M --cluster C --batch TOKENS [OPTIONS]\n"
         "       trireme plan PART [ARGUMENTS]\n\n"
         "  --model ...  the best plans for a model on a cluster; trireme plan search --help\n");
  for (int i = 0; i < PARTS; i++) printf("  %-10s %s\n", part[i].name, part[i].summary);
  printf("\n  trireme plan PART --help   what a part takes\n");
}

static tr_status no_part(const char *name) {
  const char *names[PARTS];
  for (int i = 0; i < PARTS; i++) names[i] = part[i].name;
  const char *closest = tr_text_closest(name, names, PARTS);
  return tr__cli_usage("plan", "there is no part '%.80s'%s%s%s", name, closest ? "; did you mean '" : "",
                       closest ? closest : "", closest ? "'?" : "");
}

int tr__cli_plan(int argc, char **argv) {
  if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return print_help(), argc < 2 ? 2 : 0;
  if (argv[1][0] == '-') {
    tr_status found = tr__plan_search(argc, argv);
    return found < 0 ? tr__cli_fail(found) : 0;
  }
  int k = 0;
  while (k < PARTS && strcmp(part[k].name, argv[1]) != 0) k++;
  tr_status status = k < PARTS ? part[k].run(argc - 1, argv + 1) : no_part(argv[1]);
  return status < 0 ? tr__cli_fail(status) : 0;
}
