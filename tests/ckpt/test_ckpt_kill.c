// SPDX-License-Identifier: MIT
// tier: full
// timeout: 300
// Proves that a process killed at any moment of a save leaves a loadable checkpoint that is at least as new
// as the last save that returned. Three ways to choose the moment: SIGKILL from outside at random times, 200
// times; at every call of `progress`; and on entry to and exit from every system call of a save, counted with
// ptrace (that part is skipped with its reason where ptrace is not allowed). The same for three processes that save
// together in the background, of which one or all are killed at random times; those left over end by themselves. Power
// loss is not simulated.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ckpt/scratch.h"
#include "trireme/base/log.h"
#include "trireme/ckpt/saver.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>

enum { KILLS = 200, DEADLINE_MS = 60000 };

static void quiet(tr_log_level level, const char *line, void *user) {
  (void)level;
  (void)line;
  (void)user;
}

static uint32_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

// The newest checkpoint of the folder, verified; its contents must be of its step.
static int64_t found_step(const scratch *folder) {
  char found[SCRATCH_PATH + 64];
  if (tr_ckpt_find(folder->path, 1, found, sizeof found) != TR_OK) fail_msg("%s", tr_status_text());
  int64_t step = tr_ckpt_step(found);
  assert_int_equal((int64_t)value_of(found), step);
  return step;
}

// Child: saves step, step, step + 1, step + 1, ... and reports each completed one. Ends by being killed.
static void save_forever(const scratch *folder, int64_t step, int report) {
  for (int i = 0;; i++) {
    int64_t now = step + i / 2;
    tr_ckpt_save_options options = {.folder = folder->path, .step = now, .keep = 1 + i % 3};
    if (save_value(&options, (float)now) != TR_OK) {
      fprintf(stderr, "save failed: %s\n", tr_status_text());
      _exit(3);
    }
    if (write(report, &now, sizeof now) != sizeof now) _exit(4);
  }
}

// Kill the child after some time; *last becomes the step it completed last, if any. How many saves it completed.
static int run_and_kill(const scratch *folder, int64_t *last, long nanoseconds) {
  int ends[2], status, completed = 0;
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    close(ends[0]);
    save_forever(folder, *last, ends[1]);
  }
  close(ends[1]);
  struct timespec pause = {nanoseconds / 1000000000, nanoseconds % 1000000000};
  nanosleep(&pause, NULL);
  assert_int_equal(kill(child, SIGKILL), 0);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  int64_t step;
  for (; read(ends[0], &step, sizeof step) == sizeof step; completed++) *last = step;
  close(ends[0]);
  return completed;
}

// Nanoseconds of one save here, so that kills fall into the first few saves whatever the machine and file system.
static long time_of_save(const scratch *folder) {
  enum { SAVES = 5 };
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int i = 0; i < SAVES; i++) {
    tr_ckpt_save_options options = {.folder = folder->path, .step = 1};
    assert_int_equal(save_value(&options, 1), TR_OK);
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  long took = ((end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec) / SAVES;
  return took < 100000 ? 100000 : took > 200000000 ? 200000000 : took;
}

static void killed_at_random_moments_loses_no_completed_checkpoint(void **state) {
  (void)state;
  scratch folder = scratch_make_fast();
  uint64_t seed = 20240607;
  int64_t last = 1;
  int completed = 0;
  long took = time_of_save(&folder);
  for (int i = 0; i < KILLS; i++) {
    completed += run_and_kill(&folder, &last, took / 1000 * (next_random(&seed) % 5000));
    int64_t found = found_step(&folder);
    assert_true(found >= last);
    assert_true(scratch_count(folder.path, ".tmp-step-") <= 2); // leftovers do not pile up
    last = found;
  }
  print_message("%d kills, %d saves completed in between\n", KILLS, completed);
  assert_true(completed > 0);
  scratch_remove(&folder);
}

// ---- several writers

enum { WRITERS = 3, ROUNDS = 60 };

// One of the writers: saves step + 1, step + 2, ... until it is killed or loses the others.
static void save_together(const scratch *folder, int writer, int64_t job, int64_t step, int report) {
  static float w[SCRATCH_VALUES], m[SCRATCH_VALUES];
  tr_safetensors_item model = {"w", TR_F32, TR_F32, {2, {8, 12}}, w, 1};
  tr_safetensors_item moment[2] = {{"m", TR_F32, TR_F32, {1, {SCRATCH_VALUES}}, m, 0},
                                   {"v", TR_F32, TR_BF16, {1, {SCRATCH_VALUES}}, m, 0}};
  tr_ckpt_file file[] = {{"model.safetensors", &model, 1, NULL},
                         {"config.json", NULL, 0, NULL},
                         {"optimizer.safetensors", moment, 2, NULL}};
  const char *text[] = {NULL, "{}", NULL};
  tr_saver_options options = {.folder = folder->path,
                              .keep = 2,
                              .file = file,
                              .nfile = 3,
                              .writer = writer,
                              .nwriter = WRITERS,
                              .job = writer ? job : (int64_t)getpid(),
                              .background = 1,
                              .deadline = 0.2};
  tr_saver *saver;
  tr_saved saved;
  if (tr_saver_create(&options, &saver) != TR_OK) _exit(3);
  for (;;) {
    step++;
    for (int i = 0; i < SCRATCH_VALUES; i++) w[i] = m[i] = (float)step;
    if (tr_saver_start(saver, step, text) != TR_OK || tr_saver_wait(saver, &saved) != TR_OK) _exit(0);
    if (writer == 0 && write(report, &step, sizeof step) != sizeof step) _exit(4);
  }
}

// Run a job and kill one of its writers, or all (victim -1), after some time. How many saves it completed.
static int run_together_and_kill(const scratch *folder, int64_t *last, int victim, long nanoseconds) {
  int ends[2], status, completed = 0;
  pid_t child[WRITERS];
  assert_int_equal(pipe(ends), 0);
  for (int i = 0; i < WRITERS; i++) {
    child[i] = fork();
    assert_true(child[i] >= 0);
    if (child[i] != 0) continue;
    close(ends[0]);
    save_together(folder, i, i ? child[0] : 0, *last, ends[1]);
  }
  close(ends[1]);
  struct timespec pause = {nanoseconds / 1000000000, nanoseconds % 1000000000};
  nanosleep(&pause, NULL);
  for (int i = 0; i < WRITERS; i++)
    if (victim == i || victim < 0) assert_int_equal(kill(child[i], SIGKILL), 0);
  for (int i = 0; i < WRITERS; i++) {
    assert_int_equal(waitpid(child[i], &status, 0), child[i]);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  }
  int64_t step;
  for (; read(ends[0], &step, sizeof step) == sizeof step; completed++) *last = step;
  close(ends[0]);
  return completed;
}

static void a_writer_killed_among_others_loses_no_completed_checkpoint(void **state) {
  (void)state;
  scratch folder = scratch_make_fast();
  uint64_t seed = 7;
  int64_t last = 1;
  int completed = 0;
  tr_ckpt_save_options first = {.folder = folder.path, .step = 1};
  assert_int_equal(save_value(&first, 1), TR_OK);
  for (int i = 0; i < ROUNDS; i++) {
    const uint64_t most =
        i < ROUNDS / 2 || completed > 0 ? 30000 : 1000000; // microseconds; however slow the machine is
    completed +=
        run_together_and_kill(&folder, &last, i % (WRITERS + 1) - 1, (long)(1000 * (next_random(&seed) % most)));
    int64_t found = found_step(&folder);
    assert_true(found >= last);
    assert_true(scratch_count(folder.path, ".tmp-step-") <= 2);
    last = found;
  }
  print_message("%d kills, %d saves completed in between\n", ROUNDS, completed);
  assert_true(completed > 0);
  scratch_remove(&folder);
}

// One kind of save, and what the folder holds before it.
typedef struct scenario {
  const char *what;
  int64_t step; // saved by the child over a checkpoint of step 1
  int keep;
  int leftover; // a temporary folder of a dead process is there
} scenario;

static const scenario scenarios[] = {
    {"the next step, the former one removed", 2, 1, 0},
    {"the same step again", 1, 1, 0},
    {"the next step beside a leftover", 2, 0, 1},
};

static scratch prepare(const scenario *s) {
  scratch folder = scratch_make_fast();
  tr_ckpt_save_options first = {.folder = folder.path, .step = 1};
  assert_int_equal(save_value(&first, 1), TR_OK);
  if (s->leftover) {
    scratch old = scratch_path(&folder, ".tmp-step-00000002-999999999"); // beyond any process number
    scratch file = scratch_path(&old, "model.safetensors");
    assert_int_equal(tr_file_make_folders(old.path), TR_OK);
    scratch_write(file.path, "half", 4);
  }
  return folder;
}

// After a kill: something is loadable, and the next save works and leaves nothing behind.
static void check_after(const scenario *s, const scratch *folder) {
  int64_t found = found_step(folder);
  assert_true(found == 1 || found == s->step);
  tr_ckpt_save_options options = {.folder = folder->path, .step = 3, .keep = 1};
  assert_int_equal(save_value(&options, 3), TR_OK);
  assert_int_equal(found_step(folder), 3);
  assert_int_equal(scratch_count(folder->path, "step-"), 1);
  assert_int_equal(scratch_count(folder->path, ".tmp"), 0);
  assert_int_equal(scratch_count(folder->path, ".latest"), 0);
  scratch_remove(folder);
}

static void die_when_zero(void *user) {
  int *left = user;
  if ((*left)-- == 0) kill(getpid(), SIGKILL);
}

static void killed_at_every_call_of_progress_loses_nothing(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
    int at = 0, killed = 1;
    for (; killed; at++) {
      scratch folder = prepare(&scenarios[i]);
      int left = at, status;
      pid_t child = fork();
      assert_true(child >= 0);
      if (child == 0) {
        tr_ckpt_save_options options = {.folder = folder.path,
                                        .step = scenarios[i].step,
                                        .keep = scenarios[i].keep,
                                        .progress = die_when_zero,
                                        .user = &left};
        _exit(save_value(&options, (float)scenarios[i].step) == TR_OK ? 0 : 1);
      }
      assert_int_equal(waitpid(child, &status, 0), child);
      killed = WIFSIGNALED(status);
      assert_true(killed || WEXITSTATUS(status) == 0);
      check_after(&scenarios[i], &folder);
    }
    assert_true(at > 4);
  }
}

// Wait for the traced child to stop or end, not for ever.
static int wait_child(pid_t child) {
  int status;
  for (int waited = 0; waited < DEADLINE_MS * 10; waited++) {
    pid_t got = waitpid(child, &status, WNOHANG);
    if (got == child) return status;
    assert_int_equal(got, 0);
    struct timespec pause = {0, 100000};
    nanosleep(&pause, NULL);
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  fail_msg("a traced save did not end within %d s", DEADLINE_MS / 1000);
  return 0;
}

// Let the child save and kill it at its stop number `at`: 1 killed, 0 it finished before, -1 no ptrace here.
static int trace_and_kill(const scenario *s, const scratch *folder, int at) {
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    tr_ckpt_save_options options = {.folder = folder->path, .step = s->step, .keep = s->keep};
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(77);
    raise(SIGSTOP);
    _exit(save_value(&options, (float)s->step) == TR_OK ? 0 : 1);
  }
  int status = wait_child(child);
  if (WIFEXITED(status)) return -1;
  for (int i = 0; WIFSTOPPED(status); i++) {
    if (i == at) {
      kill(child, SIGKILL);
      while (!WIFSIGNALED(wait_child(child))) continue;
      return 1;
    }
    assert_int_equal(ptrace(PTRACE_SYSCALL, child, NULL, NULL), 0);
    status = wait_child(child);
  }
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return 0;
}

static void killed_at_every_system_call_loses_nothing(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
    int at = 0, killed = 1;
    for (; killed; at++) {
      scratch folder = prepare(&scenarios[i]);
      killed = trace_and_kill(&scenarios[i], &folder, at);
      if (killed < 0) {
        print_message("skipped: ptrace is not allowed here\n");
        scratch_remove(&folder);
        skip();
      }
      check_after(&scenarios[i], &folder);
    }
    print_message("%s: killed at %d places\n", scenarios[i].what, at - 1);
    assert_true(at > 60);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(killed_at_every_call_of_progress_loses_nothing),
      cmocka_unit_test(killed_at_every_system_call_loses_nothing),
      cmocka_unit_test(killed_at_random_moments_loses_no_completed_checkpoint),
      cmocka_unit_test(a_writer_killed_among_others_loses_no_completed_checkpoint),
  };
  tr_log_set_sink(quiet, NULL);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
