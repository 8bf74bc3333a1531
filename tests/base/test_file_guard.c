// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that reading a map whose file was cut short gives zeros and a named failure instead of the end of the process,
// also from many threads and in forked processes; that other maps do not notice; that every other SIGBUS goes where it
// went before; and that maps beyond the table's size work unguarded.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/file.h"

#include "base/guard_internal.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_SIZE = 256, NPAGE = 16, NTHREAD = 8, CHURN = 300 };

static char top[PATH_SIZE / 2];
static size_t page;

// Make top/NAME with NPAGE pages, page i full of the byte i + 1, and map it.
static void open_pages(const char *name, char path[PATH_SIZE], tr_file_map *map) {
  unsigned char *data = malloc(page * NPAGE);
  assert_non_null(data);
  for (size_t i = 0; i < NPAGE; i++) memset(data + i * page, (int)i + 1, page);
  snprintf(path, PATH_SIZE, "%s/%s", top, name);
  assert_int_equal(tr_file_write_atomic(path, data, page * NPAGE), TR_OK);
  free(data);
  assert_int_equal(tr_file_map_open(path, map), TR_OK);
}

static void cut(const char *path, size_t npage) { assert_int_equal(truncate(path, (off_t)(npage * page)), 0); }

static int read_page(const tr_file_map *map, size_t i) {
  return ((const volatile unsigned char *)map->data)[i * page];
}

static void reading_what_was_cut_off_gives_zeros_and_a_failure(void **state) {
  (void)state;
  char path[PATH_SIZE];
  tr_file_map map;
  open_pages("cut", path, &map);
  cut(path, 4);
  for (size_t i = 0; i < 4; i++) assert_int_equal(read_page(&map, i), i + 1);
  assert_int_equal(tr_file_map_check(&map, path), TR_OK); // nothing missing has been read yet
  assert_int_equal(read_page(&map, NPAGE - 1), 0);
  assert_int_equal(tr_file_map_check(&map, path), TR_ERR_IO);
  assert_non_null(strstr(tr_status_text(), path));
  assert_non_null(strstr(tr_status_text(), "cut short"));
  for (size_t i = 0; i < NPAGE; i++) assert_int_equal(read_page(&map, i), i < 4 ? i + 1 : 0);
  tr_file_map_close(&map);
}

static void other_maps_and_later_ones_are_not_torn(void **state) {
  (void)state;
  char path[PATH_SIZE], whole_path[PATH_SIZE];
  tr_file_map map, whole;
  open_pages("cut", path, &map);
  open_pages("whole", whole_path, &whole);
  cut(path, 0);
  assert_int_equal(read_page(&map, 0), 0);
  assert_int_equal(tr_file_map_check(&map, path), TR_ERR_IO);
  assert_int_equal(tr_file_map_check(&whole, whole_path), TR_OK);
  int place = map.guard;
  tr_file_map_close(&map);
  open_pages("cut", path, &map);
  assert_int_equal(map.guard, place); // the first free place, whose mark is gone
  assert_int_equal(read_page(&map, 0), 1);
  assert_int_equal(tr_file_map_check(&map, path), TR_OK);
  tr_file_map_close(&map);
  tr_file_map_close(&whole);
  assert_int_equal(tr_file_map_check(&map, path), TR_OK); // a closed map has nothing to say
}

static void closing_a_torn_map_leaves_nothing_mapped(void **state) {
  (void)state;
  char path[PATH_SIZE];
  unsigned char resident[NPAGE];
  tr_file_map map;
  open_pages("cut", path, &map);
  cut(path, 1);
  for (size_t i = 0; i < NPAGE; i += 2) assert_int_equal(read_page(&map, i), i == 0);
  void *data = (void *)map.data;
  assert_int_equal(mincore(data, page * NPAGE, resident), 0);
  tr_file_map_close(&map);
  for (size_t i = 0; i < NPAGE; i++) assert_int_not_equal(mincore((char *)data + i * page, page, resident), 0);
}

static void exit_seven(int number) { _exit(number == SIGBUS ? 7 : 1); }

static void exit_eight(int number, siginfo_t *info, void *context) {
  _exit(number == SIGBUS && info && context ? 8 : 1);
}

// A hole in a map that is not ours.
static int read_foreign_hole(void) {
  char path[PATH_SIZE];
  snprintf(path, sizeof path, "%s/foreign", top);
  int fd = open(path, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, (off_t)page) != 0) return -1;
  volatile unsigned char *data = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED || ftruncate(fd, 0) != 0) return -1;
  return data[0];
}

static int send_to_self(void) { return raise(SIGBUS); }

// Runs before this process opens its first map, so that each child chooses what handles SIGBUS until then.
static void a_sigbus_elsewhere_goes_where_it_went_before(void **state) {
  (void)state;
  const struct {
    void (*simple)(int);
    void (*with_info)(int, siginfo_t *, void *);
    int (*cause)(void);
    int wants_signal, wants_exit;
  } rows[] = {
      {SIG_DFL, NULL, read_foreign_hole, SIGBUS, 0}, {SIG_DFL, NULL, send_to_self, SIGBUS, 0},
      {SIG_IGN, NULL, read_foreign_hole, SIGBUS, 0}, // the system does not let a process ignore this one
      {SIG_IGN, NULL, send_to_self, 0, 0},           {exit_seven, NULL, read_foreign_hole, 0, 7},
      {exit_seven, NULL, send_to_self, 0, 7},        {NULL, exit_eight, read_foreign_hole, 0, 8},
      {NULL, exit_eight, send_to_self, 0, 8},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
      struct sigaction action = {.sa_handler = rows[i].simple};
      if (rows[i].with_info) action = (struct sigaction){.sa_sigaction = rows[i].with_info, .sa_flags = SA_SIGINFO};
      sigaction(SIGBUS, &action, NULL);
      char path[PATH_SIZE];
      tr_file_map map;
      open_pages("ours", path, &map);
      if (truncate(path, 0) != 0 || read_page(&map, 3) != 0 || tr_file_map_check(&map, path) != TR_ERR_IO) _exit(2);
      _exit(rows[i].cause() == 0 ? 0 : 3);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (rows[i].wants_signal) {
      if (!WIFSIGNALED(status) || WTERMSIG(status) != rows[i].wants_signal) fail_msg("row %zu: status %x", i, status);
    } else if (!WIFEXITED(status) || WEXITSTATUS(status) != rows[i].wants_exit) {
      fail_msg("row %zu: status %x", i, status);
    }
  }
}

static void a_forked_process_inherits_the_guard(void **state) {
  (void)state;
  char path[PATH_SIZE];
  tr_file_map map;
  open_pages("shared", path, &map);
  cut(path, 2);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) _exit(read_page(&map, 5) == 0 && tr_file_map_check(&map, path) == TR_ERR_IO ? 0 : 1);
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_int_equal(tr_file_map_check(&map, path), TR_OK); // this process has read no hole
  assert_int_equal(read_page(&map, 5), 0);
  assert_int_equal(tr_file_map_check(&map, path), TR_ERR_IO);
  tr_file_map_close(&map);
}

typedef struct crowd {
  tr_file_map map;
  pthread_barrier_t start;
  char path[PATH_SIZE];
} crowd;

// Every page, in the same order as everybody else; then the mark must be visible to this thread too.
static void *read_holes(void *argument) {
  crowd *c = argument;
  uintptr_t wrong = 0;
  pthread_barrier_wait(&c->start);
  for (size_t i = 0; i < NPAGE; i++) wrong += read_page(&c->map, i) != 0;
  wrong += tr_file_map_check(&c->map, c->path) != TR_ERR_IO;
  return (void *)wrong;
}

static void threads_meet_the_same_holes_at_once(void **state) {
  (void)state;
  for (int round = 0; round < 20; round++) {
    crowd c;
    pthread_t threads[NTHREAD];
    open_pages("crowd", c.path, &c.map);
    cut(c.path, 0);
    assert_int_equal(pthread_barrier_init(&c.start, NULL, NTHREAD), 0);
    for (int t = 0; t < NTHREAD; t++) assert_int_equal(pthread_create(&threads[t], NULL, read_holes, &c), 0);
    for (int t = 0; t < NTHREAD; t++) {
      void *wrong = NULL;
      pthread_join(threads[t], &wrong);
      assert_null(wrong);
    }
    pthread_barrier_destroy(&c.start);
    tr_file_map_close(&c.map);
  }
}

// Open, cut in every second round, read, check, close: on a file of its own.
static void *churn(void *argument) {
  const char *path = argument;
  uintptr_t wrong = 0;
  for (int i = 0; i < CHURN; i++) {
    tr_file_map map;
    int cuts = i % 2;
    if (truncate(path, (off_t)(2 * page)) != 0 || tr_file_map_open(path, &map) != TR_OK) return (void *)path;
    if (cuts && truncate(path, 0) != 0) wrong++;
    wrong += read_page(&map, 1) != 0;
    wrong += tr_file_map_check(&map, path) != (cuts ? TR_ERR_IO : TR_OK);
    wrong += map.guard == TR__GUARD_NONE;
    tr_file_map_close(&map);
  }
  return (void *)wrong;
}

static void threads_open_tear_and_close_maps(void **state) {
  (void)state;
  pthread_t threads[NTHREAD];
  char paths[NTHREAD][PATH_SIZE];
  for (int t = 0; t < NTHREAD; t++) {
    snprintf(paths[t], PATH_SIZE, "%s/churn%d", top, t);
    assert_int_equal(tr_file_write_atomic(paths[t], "", 0), TR_OK);
    assert_int_equal(pthread_create(&threads[t], NULL, churn, paths[t]), 0);
  }
  for (int t = 0; t < NTHREAD; t++) {
    void *wrong = NULL;
    pthread_join(threads[t], &wrong);
    assert_null(wrong);
  }
}

static void maps_beyond_the_table_are_unguarded(void **state) {
  (void)state;
  enum { BEYOND = 3 };
  static tr_file_map maps[TR__GUARD_MAX + BEYOND];
  char path[PATH_SIZE];
  snprintf(path, sizeof path, "%s/small", top);
  assert_int_equal(tr_file_write_atomic(path, "small", 5), TR_OK);
  for (int i = 0; i < TR__GUARD_MAX + BEYOND; i++) {
    assert_int_equal(tr_file_map_open(path, &maps[i]), TR_OK);
    assert_int_equal(maps[i].guard == TR__GUARD_NONE, i >= TR__GUARD_MAX);
    assert_int_equal(maps[i].data[0], 's');
  }
  assert_int_equal(tr_file_map_check(&maps[TR__GUARD_MAX], path), TR_OK);
  tr_file_map_close(&maps[17]);
  assert_int_equal(tr_file_map_open(path, &maps[17]), TR_OK); // its place is free again
  assert_int_not_equal(maps[17].guard, TR__GUARD_NONE);
  assert_int_equal(truncate(path, 0), 0);
  assert_int_equal(maps[TR__GUARD_MAX - 1].data[0], 0); // the last place is found too
  assert_int_equal(tr_file_map_check(&maps[TR__GUARD_MAX - 1], path), TR_ERR_IO);
  for (int i = 0; i < TR__GUARD_MAX + BEYOND; i++) tr_file_map_close(&maps[i]);
}

static int make_top(void **state) {
  (void)state;
  const char *base = getenv("TMPDIR");
  page = (size_t)sysconf(_SC_PAGESIZE);
  snprintf(top, sizeof top, "%s/trireme-guard-XXXXXX", base && base[0] ? base : "/tmp");
  return mkdtemp(top) ? 0 : -1;
}

static int remove_top(void **state) {
  (void)state;
  return tr_file_remove_tree(top) == TR_OK ? 0 : -1;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_sigbus_elsewhere_goes_where_it_went_before), // first, as it says
      cmocka_unit_test(reading_what_was_cut_off_gives_zeros_and_a_failure),
      cmocka_unit_test(other_maps_and_later_ones_are_not_torn),
      cmocka_unit_test(closing_a_torn_map_leaves_nothing_mapped),
      cmocka_unit_test(a_forked_process_inherits_the_guard),
      cmocka_unit_test(threads_meet_the_same_holes_at_once),
      cmocka_unit_test(threads_open_tear_and_close_maps),
      cmocka_unit_test(maps_beyond_the_table_are_unguarded),
  };
  return cmocka_run_group_tests(tests, make_top, remove_top);
}
