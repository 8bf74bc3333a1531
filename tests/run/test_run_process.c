// SPDX-License-Identifier: MIT
// tier: full
// timeout: 180
// Proves that ranks as processes compute what one rank computes, and the same bits as ranks as threads.
#include "run/parallel_cases.h"

static void processes_train_as_one_rank(void **state) {
  (void)state;
  static const int ranks[] = {2, 3, 8};
  for (int i = 0; i < 3; i++) {
    rh_case c = pc_training(ranks[i], TR_OPTIM_SGD, TR_LAUNCH_PROCESSES);
    pc_check(&c);
    c = pc_training(ranks[i], TR_OPTIM_ADAMW, TR_LAUNCH_PROCESSES);
    c.micro = 2;
    c.sync = i == 1 ? TR_SYNC_EVERY : TR_SYNC_LAST;
    c.split = i == 2;
    c.dropout = 0.1;
    c.clip = 0.5;
    pc_check(&c);
  }
}

static void processes_and_threads_give_the_same_bits(void **state) {
  (void)state;
  for (int nrank = 2; nrank <= 3; nrank++) {
    rh_case c = pc_training(nrank, TR_OPTIM_ADAMW, TR_LAUNCH_PROCESSES), other = c;
    c.micro = other.micro = 2;
    other.mode = TR_LAUNCH_THREADS;
    pc_same_bits(&c, &other);
    other = c;
    other.nthread = 2;
    pc_same_bits(&c, &other);
  }
}

// Weights, moments and sums of squares in memory that other processes write.
static void owned_parts_of_processes_give_the_bits_of_whole_copies(void **state) {
  (void)state;
  for (int nrank = 2; nrank <= 5; nrank++) {
    rh_case c = pc_training(nrank, TR_OPTIM_ADAMW, TR_LAUNCH_PROCESSES), other = c;
    c.type = other.type = nrank % 2 ? TR_BF16 : TR_F32;
    c.clip = other.clip = 0.5;
    c.micro = other.micro = 2;
    other.zero = 1;
    pc_same_bits(&c, &other);
    other.mode = TR_LAUNCH_THREADS;
    pc_same_bits(&c, &other);
  }
}

static void empty_ranks_join_every_sum(void **state) {
  (void)state;
  rh_case c = pc_training(8, TR_OPTIM_SGD, TR_LAUNCH_PROCESSES);
  c.sequences = 5;
  c.steps = 3;
  pc_check(&c);
}

static void a_rank_that_fails_stops_the_others(void **state) {
  (void)state;
  pc_one_failure_stops_all(3, TR_LAUNCH_PROCESSES);
}

// The thread sanitizer starts a thread of its own with the first of ours and keeps it; ranks cannot be forked then.
static int forking_works(void) {
  rh_case c = rh_default();
  char line[128];
  int threads = 1;
  rh_free(rh_run(&c));
  FILE *file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file)) sscanf(line, "Threads: %d", &threads);
  if (file) fclose(file);
  return threads == 1;
}

int main(void) {
  if (!forking_works()) {
    printf("skipped: this process keeps a second thread (thread sanitizer), so ranks cannot be forked\n");
    return 77;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(processes_train_as_one_rank),
      cmocka_unit_test(processes_and_threads_give_the_same_bits),
      cmocka_unit_test(owned_parts_of_processes_give_the_bits_of_whole_copies),
      cmocka_unit_test(empty_ranks_join_every_sum),
      cmocka_unit_test(a_rank_that_fails_stops_the_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
