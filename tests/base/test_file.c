// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that atomic writes replace whole files and clean up after failures, that reading respects its limit,
// that maps hold what the file holds, and that removing a tree does not follow links out of it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/file.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_SIZE = 512 };

static char top[PATH_SIZE / 2];

// "top/name"; four results are valid at a time.
static const char *in_top(const char *name) {
  static char path[4][PATH_SIZE];
  static int turn;
  turn = (turn + 1) % 4;
  snprintf(path[turn], sizeof path[turn], "%s/%s", top, name);
  return path[turn];
}

static int count_entries(const char *folder) {
  DIR *entries = opendir(folder);
  assert_non_null(entries);
  int n = 0;
  for (struct dirent *e; (e = readdir(entries));) n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
  closedir(entries);
  return n;
}

static void assert_content(const char *path, const char *want, size_t nbyte) {
  char *data = NULL;
  size_t size = 0;
  assert_int_equal(tr_file_read(path, 1 << 24, &data, &size), TR_OK);
  assert_int_equal(size, nbyte);
  assert_memory_equal(data, want, nbyte);
  assert_int_equal(data[size], 0);
  free(data);
}

static void atomic_write_makes_and_replaces_whole_files(void **state) {
  (void)state;
  const char *path = in_top("file");
  assert_int_equal(tr_file_write_atomic(path, "first version", 13), TR_OK);
  assert_content(path, "first version", 13);
  assert_int_equal(tr_file_write_atomic(path, "2nd", 3), TR_OK);
  assert_content(path, "2nd", 3);
  assert_int_equal(tr_file_write_atomic(path, NULL, 0), TR_OK);
  assert_content(path, "", 0);
  assert_int_equal(count_entries(top), 1);
}

static void atomic_write_works_without_a_folder_in_the_name(void **state) {
  (void)state;
  char before[4096];
  assert_non_null(getcwd(before, sizeof before));
  assert_int_equal(chdir(top), 0);
  assert_int_equal(tr_file_write_atomic("plain", "x", 1), TR_OK);
  // A device stays what it is.
  struct stat device;
  assert_int_equal(symlink("/dev/null", "nothing"), 0);
  assert_int_equal(tr_file_write_atomic("nothing", "x", 1), TR_OK);
  assert_true(lstat("nothing", &device) == 0 && S_ISLNK(device.st_mode));
  assert_true(stat("nothing", &device) == 0 && S_ISCHR(device.st_mode));
  assert_int_equal(unlink("nothing"), 0);
  assert_int_equal(chdir(before), 0);
  assert_content(in_top("plain"), "x", 1);
}

static void failed_atomic_writes_say_why_and_leave_nothing(void **state) {
  (void)state;
  assert_int_equal(tr_file_write_atomic(in_top("absent/file"), "x", 1), TR_ERR_IO);
  assert_non_null(strstr(tr_status_text(), "absent/"));
  assert_non_null(strstr(tr_status_text(), "No such file or directory"));
  // A folder in the way: all succeeds up to the rename.
  assert_int_equal(mkdir(in_top("taken"), 0777), 0);
  assert_int_equal(tr_file_write_atomic(in_top("taken"), "x", 1), TR_ERR_IO);
  assert_non_null(strstr(tr_status_text(), "taken: cannot replace: "));
  assert_int_equal(count_entries(top), 1);
  assert_int_equal(count_entries(in_top("taken")), 0);
}

static void what_cannot_be_written_is_known_before(void **state) {
  (void)state;
  assert_int_equal(tr_file_prove(in_top("new")), TR_OK);
  assert_false(tr_file_exists(in_top("new")));
  assert_int_equal(tr_file_write_atomic(in_top("old"), "old", 3), TR_OK);
  assert_int_equal(tr_file_prove(in_top("old")), TR_OK);
  assert_content(in_top("old"), "old", 3);
  assert_int_equal(tr_file_prove(in_top("absent/file")), TR_ERR_IO);
  assert_non_null(strstr(tr_status_text(), "absent/file: cannot create"));
  assert_null(strstr(tr_status_text(), "tmp."));
  assert_int_equal(tr_file_prove(top), TR_ERR_IO);
  assert_int_equal(count_entries(top), 1);
}

static void temporaries_of_killed_writes_are_removed(void **state) {
  (void)state;
  assert_int_equal(tr_file_write_atomic(in_top(".a.tmp.12"), "", 0), TR_OK);
  assert_int_equal(tr_file_write_atomic(in_top(".a.tmp.7"), "", 0), TR_OK);
  assert_int_equal(tr_file_write_atomic(in_top(".a.tmp.x"), "", 0), TR_OK);
  tr_file_remove_temporaries(in_top("a"));
  assert_int_equal(count_entries(top), 1);
  assert_true(tr_file_exists(in_top(".a.tmp.x")));
  tr_file_remove_temporaries("/nonexistent-folder/a");
}

// In a child: a file size limit makes write() fail half way, as a full disk does.
static void a_write_that_fails_half_way_keeps_the_old_file(void **state) {
  (void)state;
  assert_int_equal(tr_file_write_atomic(in_top("file"), "old", 3), TR_OK);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    static char data[100000];
    struct rlimit limit = {.rlim_cur = 5000, .rlim_max = 5000};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    tr_status status = tr_file_write_atomic(in_top("file"), data, sizeof data);
    _exit(status == TR_ERR_IO && strstr(tr_status_text(), "File too large") ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_content(in_top("file"), "old", 3);
  assert_int_equal(count_entries(top), 1);
}

static void append_adds_at_the_end(void **state) {
  (void)state;
  const char *path = in_top("log");
  assert_int_equal(tr_file_append(path, "one\n", 4), TR_OK);
  assert_int_equal(tr_file_append(path, "two\n", 4), TR_OK);
  assert_content(path, "one\ntwo\n", 8);
  assert_int_equal(tr_file_append(in_top("no/log"), "x", 1), TR_ERR_IO);
}

static void reading_respects_the_limit_and_reads_files_without_a_size(void **state) {
  (void)state;
  char *data = NULL;
  size_t nbyte = 0;
  const char *path = in_top("ten");
  assert_int_equal(tr_file_write_atomic(path, "0123456789", 10), TR_OK);
  assert_int_equal(tr_file_read(path, 9, &data, &nbyte), TR_ERR_IO);
  assert_non_null(strstr(tr_status_text(), "ten"));
  assert_null(data);
  assert_int_equal(tr_file_read(path, 10, &data, &nbyte), TR_OK);
  assert_int_equal(nbyte, 10);
  free(data);
  assert_int_equal(tr_file_read("/proc/self/status", 1 << 20, &data, &nbyte), TR_OK);
  assert_true(nbyte > 100 && strlen(data) == nbyte);
  free(data);
  assert_int_equal(tr_file_read(in_top("none"), 10, &data, &nbyte), TR_ERR_IO);
  assert_int_equal(tr_file_read(top, 10, &data, &nbyte), TR_ERR_IO);
}

static void large_files_come_back_whole(void **state) {
  (void)state;
  size_t n = 3000001;
  char *data = malloc(n);
  assert_non_null(data);
  for (size_t i = 0; i < n; i++) data[i] = (char)(i * 31 + i / 253);
  assert_int_equal(tr_file_write_atomic(in_top("big"), data, n), TR_OK);
  assert_content(in_top("big"), data, n);
  tr_file_map map;
  assert_int_equal(tr_file_map_open(in_top("big"), &map), TR_OK);
  assert_int_equal(map.nbyte, n);
  assert_memory_equal(map.data, data, n);
  tr_file_map_close(&map);
  assert_null(map.data);
  free(data);
}

static void write_all_goes_on_after_short_writes(void **state) {
  (void)state;
  int ends[2];
  size_t n = 1 << 20; // more than a pipe holds
  assert_int_equal(pipe(ends), 0);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    char *data = calloc(1, n);
    close(ends[0]);
    _exit(data && tr_file_write_all(ends[1], data, n, "pipe") == TR_OK ? 0 : 1);
  }
  close(ends[1]);
  size_t got = 0;
  char part[3000];
  for (ssize_t r; (r = read(ends[0], part, sizeof part)) > 0;) got += (size_t)r;
  close(ends[0]);
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_int_equal(got, n);
}

static void maps_of_empty_missing_and_special_files(void **state) {
  (void)state;
  tr_file_map map;
  assert_int_equal(tr_file_write_atomic(in_top("empty"), "", 0), TR_OK);
  assert_int_equal(tr_file_map_open(in_top("empty"), &map), TR_OK);
  assert_null(map.data);
  assert_int_equal(map.nbyte, 0);
  tr_file_map_close(&map);
  assert_int_equal(tr_file_map_open(in_top("missing"), &map), TR_ERR_IO);
  assert_non_null(strstr(tr_status_text(), "missing"));
  assert_int_equal(tr_file_map_open(top, &map), TR_ERR_IO);
  assert_int_equal(mkfifo(in_top("fifo"), 0600), 0);
  assert_int_equal(tr_file_map_open(in_top("fifo"), &map), TR_ERR_IO); // and does not wait for a writer
}

static tr_status map_it(const char *path) {
  tr_file_map map;
  tr_status status = tr_file_map_open(path, &map);
  if (status == TR_OK) tr_file_map_close(&map);
  return status;
}

static tr_status read_it(const char *path) {
  char *data = NULL;
  size_t nbyte = 0;
  tr_status status = tr_file_read(path, 100, &data, &nbyte);
  free(data);
  return status;
}

static tr_status write_it(const char *path) { return tr_file_write_atomic(path, "new", 3); }
static tr_status append_it(const char *path) { return tr_file_append(path, "new", 3); }

static void too_many_open_files_are_named_with_what_helps(void **state) {
  (void)state;
  tr_status (*const rows[])(const char *) = {map_it, read_it, write_it, append_it, tr_file_sync_folder};
  struct rlimit before, none;
  assert_int_equal(tr_file_write_atomic(in_top("file"), "old", 3), TR_OK);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  none = before;
  none.rlim_cur = 0; // nothing can be opened; what is open stays open
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    tr_status status = rows[i](in_top("file"));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, TR_ERR_IO);
    assert_non_null(strstr(tr_status_text(), top));
    assert_non_null(strstr(tr_status_text(), "Too many open files"));
    assert_non_null(strstr(tr_status_text(), "ulimit -n"));
  }
  assert_content(in_top("file"), "old", 3);
}

static void folders_are_made_with_their_parents(void **state) {
  (void)state;
  assert_int_equal(tr_file_make_folders(in_top("a/b//c/")), TR_OK);
  assert_true(tr_file_exists(in_top("a/b/c")));
  assert_int_equal(tr_file_make_folders(in_top("a/b/c")), TR_OK);
  assert_int_equal(tr_file_write_atomic(in_top("a/file"), "", 0), TR_OK);
  assert_int_equal(tr_file_make_folders(in_top("a/file/d")), TR_ERR_IO);
  assert_int_equal(tr_file_make_folders(in_top("a/file")), TR_ERR_IO);
  assert_non_null(strstr(tr_status_text(), "Not a directory"));
  assert_int_equal(tr_file_make_folders(""), TR_ERR_USAGE);
  assert_false(tr_file_exists(in_top("z")));
}

static void removing_a_tree_stays_inside_it(void **state) {
  (void)state;
  assert_int_equal(tr_file_make_folders(in_top("kept")), TR_OK);
  assert_int_equal(tr_file_write_atomic(in_top("kept/file"), "x", 1), TR_OK);
  assert_int_equal(tr_file_make_folders(in_top("tree/x/y")), TR_OK);
  assert_int_equal(tr_file_write_atomic(in_top("tree/x/y/f"), "x", 1), TR_OK);
  assert_int_equal(symlink(in_top("kept"), in_top("tree/link")), 0);
  assert_int_equal(symlink("/nowhere", in_top("tree/x/dangling")), 0);
  assert_int_equal(mkfifo(in_top("tree/fifo"), 0600), 0);
  assert_int_equal(tr_file_remove_tree(in_top("tree/")), TR_OK);
  assert_false(tr_file_exists(in_top("tree")));
  assert_content(in_top("kept/file"), "x", 1);
  // A link itself goes, not what it points to, also when written with a slash at its end.
  assert_int_equal(symlink(in_top("kept"), in_top("link")), 0);
  assert_int_equal(tr_file_remove_tree(in_top("link/")), TR_OK);
  assert_int_equal(count_entries(top), 1);
  assert_content(in_top("kept/file"), "x", 1);
}

static void removing_what_is_missing_or_everything(void **state) {
  (void)state;
  assert_int_equal(tr_file_remove_tree(in_top("missing")), TR_OK);
  assert_int_equal(tr_file_remove_tree(in_top("missing/below")), TR_OK);
  assert_int_equal(tr_file_remove_tree(""), TR_ERR_USAGE);
  assert_int_equal(tr_file_remove_tree("//"), TR_ERR_USAGE);
  assert_int_equal(tr_file_write_atomic(in_top("single"), "x", 1), TR_OK);
  assert_int_equal(tr_file_remove_tree(in_top("single")), TR_OK);
  assert_false(tr_file_exists(in_top("single")));
}

static void trees_deeper_than_the_limit_are_refused(void **state) {
  (void)state;
  char path[PATH_SIZE];
  snprintf(path, sizeof path, "%s/deep", top);
  for (int i = 0; i < 80; i++) strcat(path, "/d");
  assert_int_equal(tr_file_make_folders(path), TR_OK);
  assert_int_equal(tr_file_remove_tree(in_top("deep")), TR_ERR_IO);
  assert_non_null(strstr(tr_status_text(), "deep"));
  path[strlen(top) + strlen("/deep") + 2 * 40] = '\0';
  assert_int_equal(tr_file_remove_tree(path), TR_OK);
  assert_int_equal(tr_file_remove_tree(in_top("deep")), TR_OK);
}

static void *write_often(void *text) {
  char path[PATH_SIZE];
  snprintf(path, sizeof path, "%s/shared", top);
  for (int i = 0; i < 20; i++) {
    if (tr_file_write_atomic(path, text, strlen(text)) != TR_OK) return text;
  }
  return NULL;
}

static void threads_writing_one_file_leave_one_whole_version(void **state) {
  (void)state;
  char first[] = "aaaaaaaaaaaaaaaa", second[] = "bbbb";
  pthread_t thread;
  void *failed = NULL;
  assert_int_equal(pthread_create(&thread, NULL, write_often, second), 0);
  assert_null(write_often(first));
  pthread_join(thread, &failed);
  assert_null(failed);
  char *data = NULL;
  size_t n = 0;
  assert_int_equal(tr_file_read(in_top("shared"), 100, &data, &n), TR_OK);
  assert_true(strcmp(data, first) == 0 || strcmp(data, second) == 0);
  free(data);
  assert_int_equal(count_entries(top), 1);
}

static void bytes_hash_to_xxh3(void **state) {
  (void)state;
  assert_true(tr_hash_bytes("", 0) == 0x2D06800538D394C2u); // published answer of XXH3 for no bytes
  assert_true(tr_hash_bytes("abc", 3) != tr_hash_bytes("abd", 3));
}

static int make_top(void **state) {
  (void)state;
  const char *base = getenv("TMPDIR");
  snprintf(top, sizeof top, "%s/trireme-file-XXXXXX", base && base[0] ? base : "/tmp");
  return mkdtemp(top) ? 0 : -1;
}

static int remove_top(void **state) {
  (void)state;
  return tr_file_remove_tree(top) == TR_OK && !tr_file_exists(top) ? 0 : -1;
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_top, remove_top)

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_FOLDER(atomic_write_makes_and_replaces_whole_files),
      IN_FOLDER(atomic_write_works_without_a_folder_in_the_name),
      IN_FOLDER(failed_atomic_writes_say_why_and_leave_nothing),
      IN_FOLDER(a_write_that_fails_half_way_keeps_the_old_file),
      IN_FOLDER(what_cannot_be_written_is_known_before),
      IN_FOLDER(temporaries_of_killed_writes_are_removed),
      IN_FOLDER(append_adds_at_the_end),
      IN_FOLDER(reading_respects_the_limit_and_reads_files_without_a_size),
      IN_FOLDER(large_files_come_back_whole),
      IN_FOLDER(write_all_goes_on_after_short_writes),
      IN_FOLDER(maps_of_empty_missing_and_special_files),
      IN_FOLDER(too_many_open_files_are_named_with_what_helps),
      IN_FOLDER(folders_are_made_with_their_parents),
      IN_FOLDER(removing_a_tree_stays_inside_it),
      IN_FOLDER(removing_what_is_missing_or_everything),
      IN_FOLDER(trees_deeper_than_the_limit_are_refused),
      IN_FOLDER(threads_writing_one_file_leave_one_whole_version),
      cmocka_unit_test(bytes_hash_to_xxh3),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
