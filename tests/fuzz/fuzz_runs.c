// SPDX-License-Identifier: MIT
// links: plan
// A table of training runs of any bytes: refused with a sentence, or every row is predicted with finite numbers or keeps
// its reason.
#include "fuzz/fuzz.h"

#include "trireme/plan/runs.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[FUZZ_PATH];
  tr_runs runs;
  tr_text text = {0};
  setenv("TRIREME_PRESETS", TRIREME_TEST_DATA "/../../presets", 0);
  if (tr_runs_load(fuzz_file(path, "runs.csv", data, size), &runs) < 0) {
    FUZZ_CHECK(tr_status_text()[0]);
    return 0;
  }
  tr_runs_predict(&runs);
  for (size_t i = 0; i < runs.n; i++) {
    const tr_run *run = &runs.run[i];
    FUZZ_CHECK(*run->why || (isfinite(run->predicted_step) && run->predicted_step > 0));
    FUZZ_CHECK(isfinite(run->predicted_memory) && run->predicted_memory >= 0);
  }
  tr_runs_csv(&runs, &text);
  tr_runs_summary(&runs, &text);
  FUZZ_CHECK(!text.failed);
  tr_text_free(&text);
  tr_runs_unload(&runs);
  return 0;
}
