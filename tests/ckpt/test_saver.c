// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Proves that any number of writers makes the same folder, byte for byte, in the background or not; that what is saved
// is what was there when start returned, whatever is done to the memory afterwards; that a writer who dies, fails or
// never comes ends the others with a sentence within the deadline; that full disks, folders that cannot be written and wrong
// requests fail with a reason and leave older checkpoints usable; and that saving goes on after a failure.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ckpt/ckpt_internal.h"
#include "ckpt/saver_state.h"
#include "trireme/base/clock.h"
#include "trireme/base/log.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

// The same files by the plain writer of one file, which knows nothing of shares, buffers and notes.
static void check_against_the_plain_writer(const scratch *step) {
  state *s = make_state(5);
  static const tr_metadata format = {"format", "pt"};
  scratch folder = scratch_make();
  for (int f = 0; f < NFILE; f++) {
    scratch path = scratch_path(&folder, s->file[f].name);
    if (!s->file[f].item) continue;
    assert_int_equal(
        tr_safetensors_write(path.path, s->file[f].item, s->file[f].nitem, &format, 1, NULL, NULL, NULL, NULL),
        TR_OK);
    assert_same_file(step, &folder, s->file[f].name);
  }
  scratch_remove(&folder);
  free(s);
}

static void any_number_of_writers_makes_the_same_folder(void **unused) {
  (void)unused;
  static const int counts[] = {1, 2, 3, 5};
  for (int fast = 0; fast < 2; fast++) { // a disk that takes blocks directly, and memory
    scratch first = {0};
    for (int background = 0; background < 2; background++) {
      for (int i = 0; i < 4; i++) {
        scratch folder = fast ? scratch_make_fast() : scratch_make();
        save_by(counts[i], background, &folder, 1);
        scratch step = scratch_path(&folder, "step-00000007");
        if (tr_ckpt_verify(step.path) != TR_OK) fail_msg("%s", tr_status_text());
        if (!first.path[0]) {
          check_against_the_plain_writer(&step);
          first = folder;
          continue;
        }
        scratch reference = scratch_path(&first, "step-00000007");
        assert_same_folder(&reference, &step);
        scratch_remove(&folder);
      }
    }
    scratch_remove(&first);
  }
}

static void saves_follow_one_another(void **unused) {
  (void)unused;
  scratch folder = scratch_make_fast();
  char found[SCRATCH_PATH];
  save_by(3, 1, &folder, 6);
  assert_int_equal(scratch_count(folder.path, "step-"), 6);
  assert_int_equal(scratch_count(folder.path, ".tmp"), 0);
  assert_int_equal(tr_ckpt_find(folder.path, 1, found, sizeof found), TR_OK);
  assert_int_equal(tr_ckpt_step(found), 12);
  save_by(2, 0, &folder, 3); // over those that are there
  assert_int_equal(scratch_count(folder.path, "step-"), 6);
  scratch_remove(&folder);
}

// ---- what start, poll and wait say

typedef struct gate {
  atomic_int open, blocks, progress, stop;
} gate;

// Holds the writer up until the gate opens.
static void hold(void *user) {
  gate *g = user;
  atomic_fetch_add(&g->blocks, 1);
  while (!atomic_load(&g->open)) tr_clock_sleep_ns(1000000);
}
static void count_progress(void *user) { atomic_fetch_add(&((gate *)user)->progress, 1); }
static int is_stopped(void *user) { return atomic_load(&((gate *)user)->stop); }

static void what_is_saved_is_what_was_there_when_start_returned(void **unused) {
  (void)unused;
  scratch folder = scratch_make_fast(), step = scratch_path(&folder, "step-00000007");
  state *s = make_state(5);
  gate g = {0};
  tr_saver_options options = options_of(s, &folder, 0, 1, 1);
  options.written = hold;
  options.progress = count_progress;
  options.user = &g;
  tr_saver *saver;
  tr_saved saved;
  assert_int_equal(tr_saver_create(&options, &saver), TR_OK);
  assert_int_equal(tr_saver_poll(saver, &saved), TR_OK);
  assert_int_equal(saved.step, -1);
  assert_int_equal(tr_saver_start(saver, 7, texts), TR_OK);
  assert_true(atomic_load(&g.progress) >= 6);
  fill_state(s, 99);
  assert_int_equal(tr_saver_poll(saver, &saved), TR_PENDING);
  atomic_store(&g.open, 1);
  assert_int_equal(tr_saver_wait(saver, &saved), TR_OK);
  assert_int_equal(saved.step, 7);
  assert_true(saved.bytes > 2800000 && saved.write > 0);
  assert_true(atomic_load(&g.blocks) >= 6);
  assert_int_equal(tr_saver_poll(saver, &saved), TR_OK);
  assert_int_equal(saved.step, -1); // an outcome comes once
  tr_saver_destroy(saver);
  assert_int_equal(tr_ckpt_verify(step.path), TR_OK);
  check_against_the_plain_writer(&step);
  free(s);
  scratch_remove(&folder);
}

static void the_buffer_is_as_large_as_the_share(void **unused) {
  (void)unused;
  state *s = make_state(1);
  scratch folder = {"/nowhere"};
  size_t each[MOST_WRITERS] = {1}, other[MOST_WRITERS],
         stored = ROWS * COLS * 2 + 3 + COLS * 4 + BIG * 4 + ROWS * COLS * 4 + COLS * 2;
  tr_saver_options options = options_of(s, &folder, 0, 1, 0);
  tr_saver_bytes(&options, each);
  assert_int_equal(each[0], 0);
  for (int n = 1; n <= MOST_WRITERS; n++) {
    size_t all = 0;
    options = options_of(s, &folder, 0, n, 1);
    tr_saver_bytes(&options, each);
    options.writer = n - 1; // whoever asks
    tr_saver_bytes(&options, other);
    for (int i = 0; i < n; i++) {
      assert_int_equal(each[i], other[i]);
      all += each[i];
    }
    assert_true(all >= stored && all <= stored + (size_t)(n + 3) * 2 * 4096);
  }
  free(s);
}

// ---- mishaps

static void expect_failure(writer *w, tr_status status, const char *fragment) {
  end(w);
  if (w->status != status || !strstr(w->sentence, fragment))
    fail_msg("%d '%s' instead of %d with '%s'", w->status, w->sentence, status, fragment);
}

static void a_writer_that_never_comes_is_named_within_the_deadline(void **unused) {
  (void)unused;
  for (int background = 0; background < 2; background++) {
    scratch folder = scratch_make_fast();
    state *s = make_state(5);
    writer w[3];
    save_by(1, 0, &folder, 1);
    double start = tr_clock_seconds();
    for (int i = 0; i < 2; i++) { // writer 2 of 3 is missing
      w[i] = (writer){.options = options_of(s, &folder, i, 3, background), .step = 9, .steps = 1};
      w[i].options.deadline = 1;
      begin(&w[i]);
    }
    expect_failure(&w[0], TR_ERR_TIMEOUT, "writer 2 of 3 did not write its part within 1 s");
    end(&w[1]);
    assert_true(w[1].status == TR_ERR_PEER || w[1].status == TR_ERR_TIMEOUT);
    assert_true(tr_clock_seconds() - start < 30); // no hang
    assert_int_equal(scratch_count(folder.path, ".tmp"), 0);
    // Nobody begins.
    w[2] = (writer){.options = options_of(s, &folder, 2, 3, background), .step = 9, .steps = 1};
    w[2].options.deadline = 0.3;
    begin(&w[2]);
    expect_failure(&w[2], TR_ERR_TIMEOUT, "writer 0 of 3 did not begin within 0.3 s");
    assert_int_equal(scratch_count(folder.path, "step-"), 1);
    free(s);
    scratch_remove(&folder);
  }
}

static void waiting_ends_when_the_job_stops(void **unused) {
  (void)unused;
  for (int writer_number = 0; writer_number < 2; writer_number++) {
    scratch folder = scratch_make_fast();
    state *s = make_state(5);
    gate g = {.stop = 1};
    writer w = {.options = options_of(s, &folder, writer_number, 2, 1), .step = 9, .steps = 1};
    w.options.stopped = is_stopped;
    w.options.user = &g;
    w.options.deadline = 1000;
    begin(&w);
    expect_failure(&w, TR_ERR_PEER, "saving step 9 was stopped");
    assert_int_equal(scratch_count(folder.path, ".tmp") + scratch_count(folder.path, "step-"), 0);
    free(s);
    scratch_remove(&folder);
  }
}

static void writers_with_different_tensors_are_told(void **unused) {
  (void)unused;
  scratch folder = scratch_make_fast();
  state *s[2] = {make_state(5), make_state(5)};
  writer w[2];
  s[1]->moment[2].name = "m.c";
  for (int i = 0; i < 2; i++) {
    w[i] = (writer){.options = options_of(s[i], &folder, i, 2, 1), .step = 9, .steps = 1};
    begin(&w[i]);
  }
  expect_failure(&w[0], TR_ERR_CKPT, "writer 1 saves other tensors than writer 0");
  expect_failure(&w[1], TR_ERR_PEER, "writer 0 of 2 gave up");
  assert_int_equal(scratch_count(folder.path, ".tmp") + scratch_count(folder.path, "step-"), 0);
  free(s[0]);
  free(s[1]);
  scratch_remove(&folder);
}

// Writer 1 fails in its first attempt and is in its second one before writer 0 has given up the first.
static void *try_twice(void *user) {
  writer *w = user;
  tr_saver *saver;
  int failed = 0;
  w->status = tr_saver_create(&w->options, &saver);
  if (w->status < 0) return NULL;
  for (int i = 0; i < 2; i++) {
    state *s = w->disturb;
    if (s) s->moment[2].data = i == 0 ? NULL : s->b;
    w->status = tr_saver_start(saver, w->step, w->options.writer == 0 ? texts : NULL);
    if (w->status == TR_OK) w->status = tr_saver_wait(saver, &w->saved);
    failed += i == 0 && w->status < 0;
  }
  if (w->status < 0 || !failed) snprintf(w->sentence, sizeof w->sentence, "%s", tr_status_text());
  if (!failed) w->status = TR_ERR_INTERNAL;
  tr_saver_destroy(saver);
  return NULL;
}

static void a_failed_attempt_can_be_repeated(void **unused) {
  (void)unused;
  scratch folder = scratch_make_fast(), step = scratch_path(&folder, "step-00000009");
  state *s[2] = {make_state(5), make_state(5)};
  writer w[2];
  for (int i = 0; i < 2; i++) {
    // The last tensor is given to the second writer.
    w[i] = (writer){.options = options_of(s[i], &folder, i, 2, 1), .step = 9, .disturb = i ? s[i] : NULL};
    if (i == 0) w[i].options.deadline = 1;
    assert_int_equal(pthread_create(&w[i].thread, NULL, try_twice, &w[i]), 0);
  }
  for (int i = 0; i < 2; i++) {
    end(&w[i]);
    if (w[i].status != TR_OK) fail_msg("writer %d: %s", i, w[i].sentence);
    free(s[i]);
  }
  check_against_the_plain_writer(&step);
  assert_int_equal(tr_ckpt_verify(step.path), TR_OK);
  scratch_remove(&folder);
}

// A save that fails, then one that works: with the same saver, in the background and not.
static void check_failure_and_recovery(const scratch *folder, int background, int64_t step, const char *reason,
                                       void (*repair)(const scratch *folder)) {
  state *s = make_state(5);
  tr_saver_options options = options_of(s, folder, 0, 1, background);
  tr_saver *saver;
  tr_saved saved;
  if (tr_saver_create(&options, &saver) != TR_OK) fail_msg("%s", tr_status_text());
  for (int i = 0; i < 2; i++) {
    tr_status status = tr_saver_start(saver, step, texts);
    if (background) {
      assert_int_equal(status, TR_OK);
      status = i == 0 ? tr_saver_wait(saver, &saved) : tr_saver_start(saver, step, texts); // start says it as well
    }
    assert_int_equal(status, TR_ERR_IO);
    if (!strstr(tr_status_text(), reason)) fail_msg("'%s' is not in '%s'", reason, tr_status_text());
    assert_int_equal(scratch_count(folder->path, ".tmp"), 0);
  }
  repair(folder);
  assert_int_equal(tr_saver_start(saver, step, texts), TR_OK);
  assert_int_equal(tr_saver_wait(saver, &saved), TR_OK);
  assert_int_equal(saved.step, step);
  tr_saver_destroy(saver);
  free(s);
}

static void lift_limit(const scratch *folder) {
  struct rlimit limit;
  (void)folder;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void files_beyond_the_limit_fail_the_save_and_name_the_file(void **unused) {
  (void)unused;
  scratch folder = scratch_make();
  save_by(1, 0, &folder, 1);
  signal(SIGXFSZ, SIG_IGN);
  for (int background = 0; background < 2; background++) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = 1000000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    check_failure_and_recovery(&folder, background, 8 + background, "optimizer.safetensors: cannot reserve",
                               lift_limit);
  }
  assert_int_equal(scratch_count(folder.path, "step-"), 3);
  scratch_remove(&folder);
}

static int mount_small(const char *path) {
  if (unshare(CLONE_NEWNS) != 0) return 0;
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return 0;
  return mount("trireme-test", path, "tmpfs", 0, "size=2m") == 0;
}

static void enlarge(const scratch *folder) {
  assert_int_equal(mount(NULL, folder->path, NULL, MS_REMOUNT, "size=32m"), 0);
}

static void allow_writing(const scratch *folder) {
  assert_int_equal(mount(NULL, folder->path, NULL, MS_REMOUNT, NULL), 0);
}

static void a_full_disk_fails_the_save_and_training_may_go_on(void **unused) {
  (void)unused;
  for (int background = 0; background < 2; background++) {
    scratch folder = scratch_make();
    char found[SCRATCH_PATH];
    if (!mount_small(folder.path)) {
      print_message("skipped: cannot mount a small file system here (%s)\n", strerror(errno));
      scratch_remove(&folder);
      skip();
    }
    tr_ckpt_save_options former = {.folder = folder.path, .step = 1};
    assert_int_equal(save_value(&former, 1), TR_OK);
    check_failure_and_recovery(&folder, background, 2, "No space left on device", enlarge);
    assert_int_equal(mount(NULL, folder.path, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    check_failure_and_recovery(&folder, background, 3, "Read-only file system", allow_writing);
    assert_int_equal(tr_ckpt_find(folder.path, 1, found, sizeof found), TR_OK);
    assert_int_equal(scratch_count(folder.path, "step-"), 3);
    assert_int_equal(umount(folder.path), 0);
    scratch_remove(&folder);
  }
}

// Writer 1 of 2 cannot write its part: writer 0 hears why at once, although its deadline is long.
static void the_failure_of_another_writer_is_told(void **unused) {
  (void)unused;
  scratch folder = scratch_make();
  state *s = make_state(5);
  writer w[2];
  signal(SIGXFSZ, SIG_IGN);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) { // as a process, because the limit on files is one of processes
    struct rlimit limit = {4096, 4096};
    tr_saver_options options = options_of(s, &folder, 1, 2, 1);
    options.job = (int64_t)getppid();
    tr_saver *saver;
    tr_saved saved;
    setrlimit(RLIMIT_FSIZE, &limit);
    if (tr_saver_create(&options, &saver) != TR_OK || tr_saver_start(saver, 9, NULL) != TR_OK) _exit(2);
    _exit(tr_saver_wait(saver, &saved) == TR_ERR_IO && strstr(tr_status_text(), "File too large") ? 0 : 1);
  }
  w[0] = (writer){.options = options_of(s, &folder, 0, 2, 1), .step = 9, .steps = 1};
  w[0].options.deadline = 1000;
  begin(&w[0]);
  expect_failure(&w[0], TR_ERR_IO, "saving step 9: writer 1: ");
  assert_non_null(strstr(w[0].sentence, "optimizer.safetensors: cannot write: File too large"));
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_int_equal(scratch_count(folder.path, ".tmp") + scratch_count(folder.path, "step-"), 0);
  free(s);
  scratch_remove(&folder);
}

static tr_status go_on(void *user) {
  (void)user;
  return TR_OK;
}
static tr_status stop(void *user) {
  (void)user;
  return tr_error(TR_ERR_PEER, "stopped by the test");
}

// Writer 0 makes the folder and a note for the other; then it takes the folder away, or begins again with the same folder.
static void whoever_is_left_behind_by_writer_0_says_so(void **unused) {
  (void)unused;
  static const struct {
    const char *what;
    int again;
    tr_status (*waiting)(void *user);
    const char *await, *fail; // parts of the sentences
  } rows[] = {{"gone", 0, go_on, "writer 0 of 2 gave up; its message says why", "(writer 1: cannot open)"},
              {"again", 1, go_on, "writer 0 of 2 gave up; its message says why", "cannot open"},
              {"stopped", 0, stop, "stopped by the test", "stopped by the test (writer 1: cannot open)"}};
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
    scratch top = scratch_make_fast(), temporary = scratch_path(&top, "t"), final = scratch_path(&top, "step");
    tr__plan plan = {0};
    tr__meeting first = {.plan = &plan,
                         .temporary = temporary.path,
                         .final = final.path,
                         .step = 3,
                         .round = 1,
                         .nwriter = 2,
                         .deadline = 10,
                         .waiting = go_on};
    tr__meeting other = first;
    other.writer = 1;
    assert_int_equal(mkdir(temporary.path, 0777), 0);
    assert_int_equal(tr__meeting_call(&first), TR_OK);
    assert_int_equal(tr__meeting_join(&other), TR_OK);
    other.waiting = rows[r].waiting;
    first.round = 2;
    if (rows[r].again)
      assert_int_equal(tr__meeting_call(&first), TR_OK);
    else
      assert_int_equal(tr_file_remove_tree(temporary.path), TR_OK);
    assert_int_equal(tr__meeting_await(&other), TR_ERR_PEER);
    if (!strstr(tr_status_text(), rows[r].await)) fail_msg("%s: %s", rows[r].what, tr_status_text());
    tr_status failure = tr_error(TR_ERR_IO, "cannot open");
    assert_int_equal(tr__meeting_fail(&other, failure), rows[r].again ? TR_ERR_IO : TR_ERR_PEER);
    if (!strstr(tr_status_text(), rows[r].fail)) fail_msg("%s: %s", rows[r].what, tr_status_text());
    scratch_remove(&top);
  }
}

static void requests_that_cannot_be_right_are_refused(void **unused) {
  (void)unused;
  scratch folder = scratch_make_fast();
  state *s = make_state(5);
  tr_saver *saver = NULL;
  const struct {
    int writer, nwriter;
    int64_t job;
    double deadline;
    const char *fragment;
  } rows[] = {{0, 0, 1, 1, "writer 0 of 0"}, {2, 2, 1, 1, "writer 2 of 2"}, {-1, 2, 1, 1, "writer -1 of 2"},
              {0, 2, 0, 1, "job 0"},         {0, 2, 1, 0, "deadline 0"},    {0, 2, 1, -1, "deadline -1"},
              {0, 2, 1, NAN, "deadline"}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    tr_saver_options options = options_of(s, &folder, rows[i].writer, rows[i].nwriter, 1);
    options.job = rows[i].job;
    options.deadline = rows[i].deadline;
    assert_int_equal(tr_saver_create(&options, &saver), TR_ERR_USAGE);
    assert_null(saver);
    if (!strstr(tr_status_text(), rows[i].fragment)) fail_msg("'%s': %s", rows[i].fragment, tr_status_text());
  }
  tr_saver_options options = options_of(s, &folder, 0, 1, 1);
  s->model[3].name = "w2";
  s->model[3].data = NULL;
  assert_int_equal(tr_saver_create(&options, &saver), TR_OK);
  assert_int_equal(tr_saver_start(saver, 1, texts), TR_ERR_USAGE);
  assert_non_null(strstr(tr_status_text(), "tensor 'w2' has no data"));
  s->model[3].data = s->b;
  assert_int_equal(tr_saver_start(saver, -1, texts), TR_ERR_USAGE);
  assert_int_equal(tr_saver_start(saver, 1, NULL), TR_ERR_USAGE);
  assert_non_null(strstr(tr_status_text(), "file 'config.json' of a checkpoint has no text"));
  assert_int_equal(tr_saver_start(saver, 1, texts), TR_OK);
  tr_saver_destroy(saver); // waits
  assert_int_equal(scratch_count(folder.path, "step-"), 1);
  tr_saver_destroy(NULL);
  free(s);
  scratch_remove(&folder);
}

// A disk that hangs: destroy does not wait for ever, and nothing of the caller is used afterwards.
static void destroy_does_not_wait_for_a_disk_that_hangs(void **unused) {
  (void)unused;
  scratch folder = scratch_make_fast();
  state *s = make_state(5);
  static gate g; // outlives the test: the thread sits in it
  tr_saver_options options = options_of(s, &folder, 0, 1, 1);
  options.written = hold;
  options.user = &g;
  options.deadline = 0.2;
  tr_saver *saver;
  tr_saved saved;
  assert_int_equal(tr_saver_create(&options, &saver), TR_OK);
  assert_int_equal(tr_saver_start(saver, 7, texts), TR_OK);
  assert_int_equal(tr_saver_wait(saver, &saved), TR_ERR_TIMEOUT);
  assert_non_null(strstr(tr_status_text(), "nothing could be written for 0.2 s"));
  assert_int_equal(tr_saver_poll(saver, &saved), TR_PENDING);
  tr_saver_destroy(saver);
  memset(s, 0xee, sizeof *s);
  free(s);
  atomic_store(&g.open, 1);
  for (int i = 0; i < 2000 && scratch_count(folder.path, ".tmp") + scratch_count(folder.path, "step-") > 0; i++)
    tr_clock_sleep_ns(5000000);
  assert_int_equal(scratch_count(folder.path, ".tmp") + scratch_count(folder.path, "step-"), 0);
  scratch_remove(&folder);
}

static void quiet(tr_log_level level, const char *line, void *user) {
  (void)level;
  (void)line;
  (void)user;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_number_of_writers_makes_the_same_folder),
      cmocka_unit_test(saves_follow_one_another),
      cmocka_unit_test(what_is_saved_is_what_was_there_when_start_returned),
      cmocka_unit_test(the_buffer_is_as_large_as_the_share),
      cmocka_unit_test(a_writer_that_never_comes_is_named_within_the_deadline),
      cmocka_unit_test(waiting_ends_when_the_job_stops),
      cmocka_unit_test(writers_with_different_tensors_are_told),
      cmocka_unit_test(the_failure_of_another_writer_is_told),
      cmocka_unit_test(a_failed_attempt_can_be_repeated),
      cmocka_unit_test(whoever_is_left_behind_by_writer_0_says_so),
      cmocka_unit_test(requests_that_cannot_be_right_are_refused),
      cmocka_unit_test(destroy_does_not_wait_for_a_disk_that_hangs),
      cmocka_unit_test(files_beyond_the_limit_fail_the_save_and_name_the_file),
      cmocka_unit_test(a_full_disk_fails_the_save_and_training_may_go_on),
  };
  tr_log_set_sink(quiet, NULL);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
