// SPDX-License-Identifier: MIT
// `trireme man`: the manual page of the settings of `trireme train`, in roff, made from the option table that
// also parses them. It is printed, not installed: `trireme man > trireme-train.1` gives the file, `trireme
// man | man -l -` shows it.
#include "cli/cli_internal.h"
#include "trireme/train/config.h"
#include <stdio.h>

int tr__cli_man(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) {
    printf("usage: trireme man\n\nPrint the manual page of trireme train and all its settings (roff).\n\n"
           "examples:\n  trireme man | man -l -\n  trireme man > trireme-train.1\n");
    return 0;
  }
  if (argc > 1) return tr__cli_fail(tr__cli_usage("man", "'%.80s' is one argument too many; it takes none", argv[1]));
  tr_text text = {0};
  tr_options_man(tr_train_options, tr_train_option_count, "trireme-train", "train a model on many ranks", &text);
  tr_status status = text.failed ? tr_error(TR_ERR_MEMORY, "no memory for the manual page") : TR_OK;
  if (status == TR_OK && (fputs(text.data, stdout) < 0 || fflush(stdout) != 0))
    status = tr_error(TR_ERR_IO, "cannot write the manual page to standard output");
  tr_text_free(&text);
  return status < 0 ? tr__cli_fail(status) : 0;
}
