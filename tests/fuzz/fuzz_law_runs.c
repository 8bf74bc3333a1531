// SPDX-License-Identifier: MIT
// links: plan
// A table of runs of any bytes: refused with a sentence, or its losses are finite and the fit answers with a status.
#include "fuzz/fuzz.h"

#include "trireme/plan/law_power.h"
#include "trireme/plan/law_runs.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static tr_law_runs runs;
  tr_law_power law;
  char path[FUZZ_PATH];
  tr_status status = tr_law_runs_load(fuzz_file(path, "runs.csv", data, size), &runs);
  if (status != TR_OK) {
    FUZZ_CHECK(tr_status_text()[0]);
    return 0;
  }
  for (size_t i = 0; i < runs.n; i++) FUZZ_CHECK(isfinite(runs.loss[i]));
  status = tr_law_power_fit(runs.n, runs.compute, runs.loss, NAN, &law);
  FUZZ_CHECK(status == TR_OK ? law.exponent > 0 && law.floor >= 0 : tr_status_text()[0] != 0);
  return 0;
}
