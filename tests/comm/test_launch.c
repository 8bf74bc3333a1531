// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// The launcher: what ranks print and where it goes, options, labels, memory that is given back, both modes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/comm_internal.h"
#include "comm/processes.h"
#include "trireme/base/clock.h"
#include "trireme/base/cpu.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>

static tr_launch_options small(int nrank, tr_launch_mode mode) {
  tr_launch_options o;
  tr_launch_options_init(&o);
  o.nrank = nrank;
  o.mode = mode;
  o.arena_nbyte = 100000;
  o.deadline = 20;
  return o;
}

// Everything launched inside goes to a file; returns its text.
typedef struct capture {
  int old_out, old_err;
  char path[64];
} capture;

static capture capture_begin(void) {
  capture c = {.path = "/tmp/trireme-launch-XXXXXX"};
  fflush(NULL);
  int fd = mkstemp(c.path);
  c.old_out = dup(STDOUT_FILENO);
  c.old_err = dup(STDERR_FILENO);
  dup2(fd, STDOUT_FILENO);
  dup2(fd, STDERR_FILENO);
  close(fd);
  fcntl(STDOUT_FILENO, F_SETFL, O_APPEND | O_RDWR);
  return c;
}

static void capture_end(capture *c, char *text, size_t nbyte) {
  fflush(NULL);
  int fd = open(c->path, O_RDONLY);
  ssize_t n = read(fd, text, nbyte - 1);
  text[n > 0 ? n : 0] = 0;
  close(fd);
  unlink(c->path);
  dup2(c->old_out, STDOUT_FILENO);
  dup2(c->old_err, STDERR_FILENO);
  close(c->old_out);
  close(c->old_err);
}

static tr_status print_things(tr_comm *comm, void *user) {
  (void)user;
  int rank = tr_comm_rank(comm);
  if (rank == 0) {
    printf("10%%\r");
    fflush(stdout);
    printf("20%%\rdone\n");
    fflush(stdout);
  }
  TR_TRY(tr_group_barrier(tr_comm_world(comm))); // or another rank's line may come between the two
  if (rank > 0) {
    printf("one from %d\ntwo from %d\nno end from %d", rank, rank, rank);
  }
  fprintf(stderr, "warning of %d\n", rank);
  return TR_OK;
}

static void output_is_prefixed_except_that_of_rank_0(void **state) {
  (void)state;
  char text[4096];
  capture c = capture_begin();
  tr_launch_options o = small(3, TR_LAUNCH_PROCESSES);
  tr_status status = tr_launch(&o, print_things, NULL, NULL);
  capture_end(&c, text, sizeof text);
  assert_int_equal(status, TR_OK);
  static const char *const parts[] = {
      "10%\r20%\rdone\n",         "[rank 1] one from 1\n",   "[rank 1] two from 1\n",  "[rank 1] no end from 1\n",
      "[rank 2] no end from 2\n", "[rank 0] warning of 0\n", "[rank 2] warning of 2\n"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    if (!strstr(text, parts[i])) print_error("'%s' is not in:\n%s\n", parts[i], text);
    assert_non_null(strstr(text, parts[i]));
  }
  assert_null(strstr(text, "[rank 0] 10%"));
}

static void log_files_hold_all_output(void **state) {
  (void)state;
  char folder[] = "/tmp/trireme-logs-XXXXXX", inner[64], path[96], text[4096];
  assert_non_null(mkdtemp(folder));
  snprintf(inner, sizeof inner, "%s/a/b", folder);
  capture c = capture_begin();
  tr_launch_options o = small(2, TR_LAUNCH_PROCESSES);
  o.log_folder = inner;
  tr_status status = tr_launch(&o, print_things, NULL, NULL);
  capture_end(&c, text, sizeof text);
  assert_int_equal(status, TR_OK);
  assert_non_null(strstr(text, "10%\r20%\rdone\n"));
  for (int r = 0; r < 2; r++) {
    char *data;
    size_t nbyte;
    snprintf(path, sizeof path, "%s/rank-%d.log", inner, r);
    assert_int_equal(tr_file_read(path, 4096, &data, &nbyte), TR_OK);
    assert_non_null(strstr(data, r == 0 ? "10%\r20%\rdone\n" : "one from 1\ntwo from 1\n"));
    assert_non_null(strstr(data, r == 0 ? "warning of 0\n" : "no end from 1"));
    free(data);
  }
  tr_file_remove_tree(folder);
}

static tr_status print_much(tr_comm *comm, void *user) {
  (void)user;
  for (int i = 0; i < 20000; i++)
    printf("line %d of rank %d, long enough to fill a pipe soon\n", i, tr_comm_rank(comm));
  return TR_OK;
}

static void much_output_neither_blocks_nor_mixes(void **state) {
  (void)state;
  capture c = capture_begin();
  tr_launch_options o = small(3, TR_LAUNCH_PROCESSES);
  tr_status status = tr_launch(&o, print_much, NULL, NULL);
  fflush(NULL);
  int lines = count_lines_with(c.path, "fill a pipe soon"),
      last = count_lines_with(c.path, "[rank 2] line 19999 of rank 2,");
  char text[16];
  capture_end(&c, text, sizeof text);
  assert_int_equal(status, TR_OK);
  assert_int_equal(lines, 60000);
  assert_int_equal(last, 1);
}

// Standard output becomes a pipe; a child reads it into `path` once `go` is set (never, if there is none).
typedef struct slow_reader {
  int old_out, unread_fd;
  pid_t child;
  char path[64];
} slow_reader;

static void read_all_into(int from, const char *path) {
  char data[4096];
  int to = open(path, O_WRONLY | O_TRUNC);
  for (ssize_t n; (n = read(from, data, sizeof data)) > 0;)
    if (write(to, data, (size_t)n) != n) _exit(1);
  _exit(0);
}

static slow_reader slow_reader_begin(const atomic_int *go) {
  slow_reader s = {.path = "/tmp/trireme-launch-XXXXXX"};
  int fds[2];
  fflush(NULL);
  close(mkstemp(s.path));
  assert_int_equal(pipe(fds), 0);
  s.old_out = dup(STDOUT_FILENO);
  dup2(fds[1], STDOUT_FILENO);
  close(fds[1]);
  s.unread_fd = fds[0];
  s.child = go ? fork() : 0;
  if (go && s.child == 0) {
    close(STDOUT_FILENO);
    while (!atomic_load(go)) tr_clock_sleep_ns(1000000);
    read_all_into(fds[0], s.path);
  }
  return s;
}

static void slow_reader_end(slow_reader *s) {
  dup2(s->old_out, STDOUT_FILENO);
  close(s->old_out);
  close(s->unread_fd);
  if (s->child) waitpid(s->child, NULL, 0);
}

// Whoever reads is let go when all is printed, and waited for, so that the launcher is still there.
typedef struct late_start {
  atomic_int *go;
  const char *path;
} late_start;

static tr_status print_much_and_stay(tr_comm *comm, void *user) {
  const late_start *late = user;
  struct stat seen = {0};
  if (tr_comm_rank(comm) > 0) TR_TRY(print_much(comm, user));
  TR_TRY(tr_group_barrier(tr_comm_world(comm)));
  if (!late) return TR_OK;
  atomic_store(late->go, 1);
  for (int i = 0; i < 4000 && seen.st_size == 0 && stat(late->path, &seen) == 0; i++) {
    tr_clock_sleep_ns(5000000);
    tr_comm_beat(comm);
  }
  return TR_OK;
}

static void output_that_nobody_reads_stops_nobody(void **state) {
  (void)state;
  tr_launch_options o = small(3, TR_LAUNCH_PROCESSES);
  slow_reader s = slow_reader_begin(NULL);
  tr_status status = tr_launch(&o, print_much_and_stay, NULL, NULL);
  slow_reader_end(&s);
  unlink(s.path);
  assert_int_equal(status, TR_OK);
}

static void dropped_lines_are_counted(void **state) {
  (void)state;
  tr_launch_options o = small(3, TR_LAUNCH_PROCESSES);
  atomic_int *go = shared_page();
  slow_reader s = slow_reader_begin(go);
  late_start late = {go, s.path};
  tr_status status = tr_launch(&o, print_much_and_stay, &late, NULL);
  atomic_store(go, 1); // however it went
  slow_reader_end(&s);
  free_shared_page(go);
  int lines = count_lines_with(s.path, "fill a pipe soon"), dropped = 0, more;
  char line[256];
  FILE *file = fopen(s.path, "r");
  while (fgets(line, sizeof line, file))
    if (sscanf(line, "[launcher] %d lines dropped", &more) == 1) dropped += more;
  fclose(file);
  unlink(s.path);
  assert_int_equal(status, TR_OK);
  assert_true(dropped > 0);
  assert_int_equal(lines + dropped, 40000);
}

static tr_status look_around(tr_comm *comm, void *user) {
  int threads = *(int *)user, size = tr_comm_size(comm);
  char label[24];
  snprintf(label, sizeof label, "rank %d", tr_comm_rank(comm));
  if (strcmp(tr_log_label(), label) != 0) return tr_error(TR_ERR_VERIFY, "label '%s'", tr_log_label());
  if (strcmp(tr_comm_engine(comm), threads && size == 1 ? "self" : "shm") != 0)
    return tr_error(TR_ERR_VERIFY, "engine %s of %d ranks", tr_comm_engine(comm), size);
  if (tr_comm_arena(comm)->size != 100000)
    return tr_error(TR_ERR_VERIFY, "arena of %zu bytes", tr_comm_arena(comm)->size);
  if (tr_group_size(tr_comm_world(comm)) != size || strcmp(tr_group_name(tr_comm_world(comm)), "world") != 0)
    return tr_error(TR_ERR_VERIFY, "wrong world");
  return tr_group_barrier(tr_comm_world(comm));
}

static void ranks_find_what_was_asked_for(void **state) {
  (void)state;
  int files = open_files();
  for (int threads = 0; threads < 2; threads++)
    for (int nrank = 1; nrank <= 3; nrank++) {
      tr_launch_options o = small(nrank, threads ? TR_LAUNCH_THREADS : TR_LAUNCH_PROCESSES);
      tr_launch_report report;
      tr_status status = tr_launch(&o, look_around, &threads, &report);
      if (status < 0) print_error("%s\n", report.text);
      assert_int_equal(status, TR_OK);
    }
  assert_int_equal(open_files(), files);
  assert_int_equal(memory_files_mapped(), 0);
  assert_true(no_children());
}

static tr_status return_ok(tr_comm *comm, void *user) {
  (void)comm;
  (void)user;
  return TR_OK;
}

static void many_ranks_start_under_a_small_file_limit(void **state) {
  (void)state;
  struct rlimit before, low, after;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  if (before.rlim_max < 400) return;
  low = before;
  low.rlim_cur = 64;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
  tr_launch_options o = small(40, TR_LAUNCH_PROCESSES);
  tr_status status = tr_launch(&o, return_ok, NULL, NULL);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &after), 0);
  setrlimit(RLIMIT_NOFILE, &before);
  assert_int_equal(status, TR_OK);
  assert_int_equal(after.rlim_cur, 64);
}

static void wrong_options_are_refused_with_numbers(void **state) {
  (void)state;
  tr_launch_report report;
  tr_launch_options o = small(0, TR_LAUNCH_PROCESSES);
  assert_int_equal(tr_launch(&o, return_ok, NULL, &report), TR_ERR_USAGE);
  assert_non_null(strstr(report.text, "1 to 256"));
  o = small(257, TR_LAUNCH_THREADS);
  assert_int_equal(tr_launch(&o, return_ok, NULL, &report), TR_ERR_USAGE);
  o = small(1, TR_LAUNCH_PROCESSES);
  o.size--;
  assert_int_equal(tr_launch(&o, return_ok, NULL, &report), TR_ERR_USAGE);
  o = small(1, TR_LAUNCH_PROCESSES);
  o.deadline = 0;
  assert_int_equal(tr_launch(&o, return_ok, NULL, &report), TR_ERR_USAGE);
  o = small(4, TR_LAUNCH_PROCESSES);
  o.arena_nbyte = (size_t)1 << 46;
  assert_int_equal(tr_launch(&o, return_ok, NULL, &report), TR_ERR_MEMORY);
  assert_non_null(strstr(report.text, "4 ranks with 64.0 TiB of shared memory each need 256 TiB"));
}

static void *wait_for_flag(void *flag) {
  while (!atomic_load((_Atomic int *)flag)) tr_clock_sleep_ns(1000000);
  return NULL;
}

static void forking_from_several_threads_is_refused(void **state) {
  (void)state;
  _Atomic int flag = 0;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, wait_for_flag, (void *)&flag), 0);
  tr_launch_options o = small(2, TR_LAUNCH_PROCESSES);
  tr_status status = tr_launch(&o, return_ok, NULL, NULL);
  atomic_store(&flag, 1);
  pthread_join(thread, NULL);
  assert_int_equal(status, TR_ERR_USAGE);
  assert_non_null(strstr(tr_status_text(), "2 threads"));
}

static tr_status count_cores(tr_comm *comm, void *user) {
  cpu_set_t set, *out = user;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return tr_error(TR_ERR_VERIFY, "no affinity");
  out[tr_comm_rank(comm)] = set;
  return TR_OK;
}

static void ranks_that_fit_have_cores_of_their_own(void **state) {
  (void)state;
  cpu_set_t before, after, *sets = shared_page(), both;
  assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
  if (CPU_COUNT(&before) < 2) {
    print_message("one processor only: nothing to bind to\n");
    free_shared_page(sets);
    return;
  }
  tr_launch_options o = small(2, TR_LAUNCH_PROCESSES);
  assert_int_equal(tr_launch(&o, count_cores, sets, NULL), TR_OK);
  CPU_AND(&both, &sets[0], &sets[1]);
  assert_int_equal(CPU_COUNT(&both), 0);
  o.bind = 0;
  assert_int_equal(tr_launch(&o, count_cores, sets, NULL), TR_OK);
  assert_true(CPU_EQUAL(&sets[0], &before));
  assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
  assert_true(CPU_EQUAL(&before, &after));
  free_shared_page(sets);
}

static void ranks_that_share_cores_are_spread_evenly(void **state) {
  (void)state;
  cpu_set_t own, *sets = shared_page();
  assert_int_equal(sched_getaffinity(0, sizeof own, &own), 0);
  const int cores = CPU_COUNT(&own), nrank = 2 * cores;
  if (cores < 2 || cores != tr_cpu_count() || (size_t)nrank * sizeof own > 4096) {
    print_message("%d processors: not a number to spread ranks on here\n", cores);
    free_shared_page(sets);
    return;
  }
  tr_launch_options o = small(nrank, TR_LAUNCH_PROCESSES);
  assert_int_equal(tr_launch(&o, count_cores, sets, NULL), TR_OK);
  for (int i = 0; i < nrank; i++) {
    int mates = 0;
    for (int j = 0; j < nrank; j++) mates += CPU_EQUAL(&sets[i], &sets[j]);
    assert_int_equal(CPU_COUNT(&sets[i]), 1);
    assert_int_equal(mates, 2);
  }
  o.nrank = nrank + 1; // would not come out even
  assert_int_equal(tr_launch(&o, count_cores, sets, NULL), TR_OK);
  assert_true(CPU_EQUAL(&sets[0], &own));
  free_shared_page(sets);
}

static tr_status fail_as_thread(tr_comm *comm, void *user) {
  (void)user;
  if (tr_comm_rank(comm) == 2) return tr_error(TR_ERR_MEMORY, "no room for 7 layers");
  return tr_group_barrier(tr_comm_world(comm));
}

static void error_of_a_thread_rank_stops_the_others(void **state) {
  (void)state;
  tr_launch_options o = small(4, TR_LAUNCH_THREADS);
  tr_launch_report report;
  assert_int_equal(tr_launch(&o, fail_as_thread, NULL, &report), TR_ERR_MEMORY);
  assert_string_equal(report.text, "rank 2: no room for 7 layers");
  assert_string_equal(tr_status_text(), report.text);
  assert_int_equal(report.culprit, 2);
}

int main(void) {
  skip_unless_forking_works();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(output_is_prefixed_except_that_of_rank_0),
      cmocka_unit_test(log_files_hold_all_output),
      cmocka_unit_test(much_output_neither_blocks_nor_mixes),
      cmocka_unit_test(output_that_nobody_reads_stops_nobody),
      cmocka_unit_test(dropped_lines_are_counted),
      cmocka_unit_test(ranks_find_what_was_asked_for),
      cmocka_unit_test(many_ranks_start_under_a_small_file_limit),
      cmocka_unit_test(wrong_options_are_refused_with_numbers),
      cmocka_unit_test(forking_from_several_threads_is_refused),
      cmocka_unit_test(ranks_that_fit_have_cores_of_their_own),
      cmocka_unit_test(ranks_that_share_cores_are_spread_evenly),
      cmocka_unit_test(error_of_a_thread_rank_stops_the_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
