// SPDX-License-Identifier: MIT
// links: base
// A run file of any bytes, read as a tree and applied to a table with one option of every type: refused with a sentence,
// or its settings print as a run file that loads to the same settings.
#include "fuzz/fuzz.h"

#include "trireme/base/option.h"
#include "trireme/base/yaml.h"

#include <string.h>

typedef struct settings {
  int64_t steps, micro;
  double lr, wait;
  int tied, schedule;
  char *folder;
} settings;

// clang-format off
static const tr_option table[] = {
    {.path = "train.steps", .type = TR_OPTION_INT, .offset = offsetof(settings, steps), .def = "100", .min = 1, .max = 1e12, .help = "Steps."},
    {.path = "batch.micro", .type = TR_OPTION_INT, .offset = offsetof(settings, micro), .def = "auto", .choices = "auto", .word = -1, .help = "Size.", .alias = "micro-batch-size"},
    {.path = "optim.lr", .type = TR_OPTION_REAL, .offset = offsetof(settings, lr), .def = "1e-3", .min = 0, .max = 10, .help = "Rate."},
    {.path = "comm.wait", .type = TR_OPTION_DURATION, .offset = offsetof(settings, wait), .def = "30s", .min = 0, .max = 1e6, .help = "Wait."},
    {.path = "model.tied", .type = TR_OPTION_BOOL, .offset = offsetof(settings, tied), .def = "true", .help = "Tied."},
    {.path = "lr.schedule", .type = TR_OPTION_CHOICE, .offset = offsetof(settings, schedule), .def = "cosine", .choices = "cosine|linear|constant", .help = "Schedule."},
    {.path = "train.folder", .type = TR_OPTION_STRING, .offset = offsetof(settings, folder), .def = "runs/a", .help = "Folder."},
};
// clang-format on
enum { NOPTION = sizeof table / sizeof *table };

// Apply a text; its settings are printed into `out`.
static tr_status apply(const char *text, size_t nbyte, tr_text *out) {
  settings s = {0};
  tr_options *options = NULL;
  tr_yaml *yaml = NULL;
  FUZZ_CHECK(tr_options_create(table, NOPTION, &s, &options) == TR_OK);
  FUZZ_CHECK(tr_options_allow_subtree(options, "data") == TR_OK);
  tr_status status = tr_yaml_parse(text, nbyte, "fuzz.yaml", &yaml);
  if (status == TR_OK) status = tr_options_apply_yaml(options, yaml);
  if (status == TR_OK) tr_options_print(options, 0, out);
  if (status != TR_OK) FUZZ_CHECK(tr_status_text()[0]);
  tr_options_destroy(options);
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tr_text once = {0}, twice = {0};
  if (apply((const char *)data, size, &once) == TR_OK) {
    FUZZ_CHECK(apply(once.data, once.size, &twice) == TR_OK);
    FUZZ_CHECK(strcmp(once.data, twice.data) == 0);
  }
  tr_text_free(&once);
  tr_text_free(&twice);
  return 0;
}
