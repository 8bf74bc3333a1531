// SPDX-License-Identifier: MIT
// `trireme man`: manual pages in roff; of the commands with settings, made from the option tables that also parse them.
// They are printed, not installed: `trireme man > trireme-train.1` gives the file, `trireme man | man -l -` shows it.
#include "cli/bench_internal.h"
#include "cli/cli_internal.h"
#include "cli/simulate_internal.h"
#include <stdio.h>
#include <string.h>

static tr_status print_page(const char *command) {
  static const char *const known[] = {"train", "bench", "simulate"};
  tr_text text = {0};
  const char *closest = tr_text_closest(command, known, 3);
  if (strcmp(command, "train") == 0)
    tr_options_man(tr_train_options, tr_train_option_count, "trireme-train", "train a model on many ranks", &text);
  else if (strcmp(command, "bench") == 0)
    tr_options_man(tr__bench_options, TR__BENCH_OPTIONS, "trireme-bench",
                   "measure training steps, with every setting of trireme-train, kernels and communication", &text);
  else if (strcmp(command, "simulate") == 0)
    tr__simulate_man(&text);
  else
    return tr__cli_usage("man", "there is no page '%.80s'%s%s%s", command,
                         closest ? "; did you mean '" : "; there are train, bench and simulate",
                         closest ? closest : "", closest ? "'?" : "");
  tr_status status = text.failed ? tr_error(TR_ERR_MEMORY, "no memory for the manual page") : TR_OK;
  if (status == TR_OK && (fputs(text.data, stdout) < 0 || fflush(stdout) != 0))
    status = tr_error(TR_ERR_IO, "cannot write the manual page to standard output");
  tr_text_free(&text);
  return status;
}

int tr__cli_man(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) {
    printf("usage: trireme man [train|bench|simulate]\n\nPrint the manual page of a command and all its settings "
           "(roff).\n\n"
           "examples:\n  trireme man | man -l -\n  trireme man bench > trireme-bench.1\n");
    return 0;
  }
  if (argc > 2)
    return tr__cli_fail(tr__cli_usage("man", "'%.80s' is one argument too many; it takes one at most", argv[2]));
  tr_status status = print_page(argc > 1 ? argv[1] : "train");
  return status < 0 ? tr__cli_fail(status) : 0;
}
