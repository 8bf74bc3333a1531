// SPDX-License-Identifier: MIT
// links: step
// A schedule's text of any bytes: refused with a sentence, or it comes back the same from its own text, peaks are within what
// its micro-batches allow, and it runs.
#include "fuzz/fuzz.h"

#include "trireme/step/schedule.h"

#include <string.h>

static void check_peaks(const tr_schedule *s, tr_hold hold) {
  size_t chunks = (size_t)s->p * (size_t)s->v;
  int *rank = malloc((size_t)s->p * sizeof *rank), *stage = malloc(chunks * sizeof *stage);
  FUZZ_CHECK(rank && stage);
  tr_schedule_peaks(s, hold, rank, stage);
  for (int r = 0; r < s->p; r++) {
    int sum = 0;
    for (int c = 0; c < s->v; c++) {
      FUZZ_CHECK(stage[r * s->v + c] >= 1 && stage[r * s->v + c] <= rank[r]);
      sum += stage[r * s->v + c];
    }
    FUZZ_CHECK(rank[r] <= sum && rank[r] <= s->m * s->v);
  }
  free(rank);
  free(stage);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tr_schedule schedule, again;
  tr_text first = {0}, second = {0};
  char *text = malloc(size + 1);
  FUZZ_CHECK(text);
  memcpy(text, data, size);
  text[size] = '\0';
  tr_status status = tr_schedule_parse("schedule.csv", text, &schedule);
  free(text);
  if (status != TR_OK) {
    FUZZ_CHECK(tr_status_text()[0]);
    return 0;
  }
  FUZZ_CHECK(tr_schedule_check(&schedule) == TR_OK);
  tr_schedule_print(&schedule, 1, &first);
  FUZZ_CHECK(tr_schedule_parse("schedule.csv", first.data, &again) == TR_OK);
  tr_schedule_print(&again, 1, &second);
  FUZZ_CHECK(strcmp(first.data, second.data) == 0);
  FUZZ_CHECK(tr_schedule_ascends(&schedule) == tr_schedule_ascends(&again));
  check_peaks(&again, TR_HOLD_UNTIL_W);
  check_peaks(&again, TR_HOLD_UNTIL_I);
  tr_text_free(&first);
  tr_text_free(&second);
  tr_schedule_destroy(&schedule);
  tr_schedule_destroy(&again);
  return 0;
}
