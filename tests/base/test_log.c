// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves the form of a line, the level filter, labels per thread, that lines of threads and of processes
// sharing a pipe stay whole, and that colour codes reach terminals only.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct caught {
  char line[8192];
  tr_log_level level;
  int n;
} caught;

static void catch_line(tr_log_level level, const char *line, void *user) {
  caught *c = user;
  snprintf(c->line, sizeof c->line, "%s", line);
  c->level = level;
  c->n++;
}

static int matches(const char *text, const char *pattern) {
  regex_t regex;
  assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
  int found = regexec(&regex, text, 0, NULL, 0) == 0;
  regfree(&regex);
  return found;
}

#define TIME "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z "

static void a_line_has_time_level_label_and_text(void **state) {
  caught *c = *state;
  tr_log_set_label("rank 3");
  assert_string_equal(tr_log_label(), "rank 3");
  tr_log_info("step %d", 7);
  assert_true(matches(c->line, TIME "info  rank 3: step 7$"));
  tr_log_set_label("");
  tr_log_warn("plain");
  assert_true(matches(c->line, TIME "warn  plain$"));
  assert_int_equal(c->level, TR_LOG_WARN);
}

static void lines_below_the_level_are_dropped(void **state) {
  caught *c = *state;
  tr_log_debug("not wanted");
  assert_int_equal(c->n, 0);
  tr_log_set_level(TR_LOG_DEBUG);
  tr_log_debug("wanted");
  assert_int_equal(c->n, 1);
  tr_log_set_level(TR_LOG_ERROR);
  tr_log_warn("not wanted");
  assert_int_equal(c->n, 1);
  tr_log_error("wanted");
  assert_int_equal(c->n, 2);
}

static void one_call_is_one_line_whatever_the_text(void **state) {
  caught *c = *state;
  tr_log_info("a\nb\033[31mc\n");
  assert_true(matches(c->line, TIME "info  a b \\[31mc$"));
  char big[20000];
  memset(big, 'x', sizeof big - 1);
  big[sizeof big - 1] = '\0';
  tr_log_info("%s", big);
  assert_true(matches(c->line, "xxx \\.\\.\\.$"));
}

static void errno_survives_a_log_call(void **state) {
  (void)state;
  errno = EDOM;
  tr_log_info("x");
  assert_int_equal(errno, EDOM);
}

static void over_long_labels_are_cut(void **state) {
  (void)state;
  char big[500];
  memset(big, 'l', sizeof big - 1);
  big[sizeof big - 1] = '\0';
  tr_log_set_label(big);
  assert_in_range(strlen(tr_log_label()), 20, 200);
  tr_log_set_label(tr_log_label());
  tr_log_set_label("");
}

typedef struct tally {
  int n[4], bad;
} tally;

static void count_line(tr_log_level level, const char *line, void *user) {
  (void)level;
  tally *t = user;
  int label = -1, text = -1;
  const char *at = strstr(line, "thread ");
  if (at && sscanf(at, "thread %d: line of %d", &label, &text) == 2 && label == text && label >= 0 && label < 4) {
    t->n[label]++;
  } else {
    t->bad++;
  }
}

static void *speak(void *number) {
  char label[32];
  int self = *(int *)number;
  snprintf(label, sizeof label, "thread %d", self);
  tr_log_set_label(label);
  for (int i = 0; i < 200; i++) tr_log_info("line of %d", self);
  return NULL;
}

static void threads_keep_their_labels_and_lose_no_line(void **state) {
  (void)state;
  tally t = {{0}, 0};
  pthread_t thread[4];
  int number[4] = {0, 1, 2, 3};
  tr_log_set_sink(count_line, &t);
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&thread[i], NULL, speak, &number[i]), 0);
  for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
  assert_int_equal(t.bad, 0);
  for (int i = 0; i < 4; i++) assert_int_equal(t.n[i], 200);
}

// Run `body` in a child with standard error on a pipe; what it wrote comes back.
static void standard_error_of(void (*body)(int child), int nchild, char *out, size_t nbyte) {
  int ends[2];
  pid_t pid[8];
  assert_int_equal(pipe(ends), 0);
  for (int child = 0; child < nchild; child++) {
    pid[child] = fork();
    assert_true(pid[child] >= 0);
    if (pid[child] == 0) {
      dup2(ends[1], STDERR_FILENO);
      close(ends[0]);
      close(ends[1]);
      body(child);
      _exit(0);
    }
  }
  close(ends[1]);
  size_t size = 0;
  ssize_t n;
  while (size + 1 < nbyte && (n = read(ends[0], out + size, nbyte - 1 - size)) > 0) size += (size_t)n;
  out[size] = '\0';
  close(ends[0]);
  for (int child = 0; child < nchild; child++) {
    int status = -1;
    assert_int_equal(waitpid(pid[child], &status, 0), pid[child]);
    assert_int_equal(status, 0);
  }
}

static void speak_plainly(int child) {
  tr_log_set_sink(NULL, NULL);
  char text[300];
  memset(text, 'a' + child, sizeof text - 1);
  text[sizeof text - 1] = '\0';
  for (int i = 0; i < 20; i++) tr_log_info("%s", text);
}

static void processes_on_one_pipe_write_whole_lines_without_colours(void **state) {
  (void)state;
  static char out[100000];
  standard_error_of(speak_plainly, 4, out, sizeof out);
  int n[4] = {0};
  for (char *line = strtok(out, "\n"); line; line = strtok(NULL, "\n")) {
    assert_true(matches(line, TIME "info  (a{250,}|b{250,}|c{250,}|d{250,})$"));
    n[line[strlen(line) - 1] - 'a']++;
  }
  for (int i = 0; i < 4; i++) assert_int_equal(n[i], 20);
}

static void speak_by_environment(int child) {
  (void)child;
  tr_log_set_sink(NULL, NULL);
  tr_log_debug("seen");
}

// Runs first: the level is read from the environment once, before any is set.
static void environment_sets_the_level(void **state) {
  (void)state;
  static char out[1000];
  setenv("TRIREME_LOG", "debug", 1);
  standard_error_of(speak_by_environment, 1, out, sizeof out);
  assert_non_null(strstr(out, "debug seen\n"));
  setenv("TRIREME_LOG", "error", 1);
  standard_error_of(speak_plainly, 1, out, sizeof out);
  assert_string_equal(out, "");
  setenv("TRIREME_LOG", "nonsense", 1);
  standard_error_of(speak_by_environment, 1, out, sizeof out);
  assert_string_equal(out, "");
  unsetenv("TRIREME_LOG");
}

static void speak_once(void) {
  tr_log_set_sink(NULL, NULL);
  tr_log_set_level(TR_LOG_INFO);
  tr_log_warn("on a terminal");
}

// What a child writes to standard error when that is a terminal.
static void terminal_output(const char *no_color, char *out, size_t nbyte) {
  int master = posix_openpt(O_RDWR | O_NOCTTY);
  assert_true(master >= 0);
  assert_int_equal(grantpt(master) | unlockpt(master), 0);
  int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
  assert_true(slave >= 0);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    dup2(slave, STDERR_FILENO);
    setenv("NO_COLOR", no_color, 1);
    speak_once();
    _exit(0);
  }
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  ssize_t n = read(master, out, nbyte - 1);
  assert_true(n > 0);
  out[n] = '\0';
  close(slave);
  close(master);
}

static void terminals_get_colours_unless_no_color_is_set(void **state) {
  (void)state;
  char out[1000];
  terminal_output("", out, sizeof out);
  assert_true(matches(out, TIME "\033\\[33mwarn \033\\[0m on a terminal"));
  terminal_output("1", out, sizeof out);
  assert_true(matches(out, TIME "warn  on a terminal"));
}

static int open_sink(void **state) {
  static caught c;
  memset(&c, 0, sizeof c);
  tr_log_set_level(TR_LOG_INFO);
  tr_log_set_sink(catch_line, &c);
  *state = &c;
  return 0;
}

static int close_sink(void **state) {
  (void)state;
  tr_log_set_sink(NULL, NULL);
  return 0;
}

#define WITH_SINK(test) cmocka_unit_test_setup_teardown(test, open_sink, close_sink)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(environment_sets_the_level),
      cmocka_unit_test(terminals_get_colours_unless_no_color_is_set),
      WITH_SINK(a_line_has_time_level_label_and_text),
      WITH_SINK(lines_below_the_level_are_dropped),
      WITH_SINK(one_call_is_one_line_whatever_the_text),
      WITH_SINK(errno_survives_a_log_call),
      WITH_SINK(over_long_labels_are_cut),
      WITH_SINK(threads_keep_their_labels_and_lose_no_line),
      WITH_SINK(processes_on_one_pipe_write_whole_lines_without_colours),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
