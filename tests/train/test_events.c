// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that event files hold what was given, by a decoder of its own that was written from the formats' descriptions and
// sees every changed byte; that starts do not share a file; and that a full disk leaves whole records and says so.
//
//   test_events --write FOLDER   a file of known scalars, for tests/oracle/test_events_python.sh
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/crc32c.h"
#include "trireme/base/file.h"
#include "trireme/train/events.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATH_SIZE = 1024, FILE_LIMIT = 1 << 20, EVENTS_MAX = 64, SCALARS_MAX = 4, TAG_SIZE = 128 };

// What a reader finds.
typedef struct event {
  double wall_time;
  int64_t step;
  char version[TAG_SIZE];
  struct {
    char tag[TAG_SIZE];
    float value;
  } scalar[SCALARS_MAX];
  size_t nscalar;
} event;

typedef struct cursor {
  const unsigned char *at, *end;
  int bad;
} cursor;

static uint64_t take_little(cursor *c, int nbyte) {
  uint64_t value = 0;
  if (c->end - c->at < nbyte) c->bad = 1;
  for (int i = 0; i < nbyte && !c->bad; i++) value |= (uint64_t)c->at[i] << 8 * i;
  if (!c->bad) c->at += nbyte;
  return value;
}

static uint64_t take_varint(cursor *c) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    uint64_t byte = take_little(c, 1);
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  c->bad = 1;
  return 0;
}

static cursor take_bytes(cursor *c) {
  uint64_t n = take_varint(c);
  if (n > (uint64_t)(c->end - c->at)) c->bad = 1;
  if (c->bad) return (cursor){c->end, c->end, 1};
  cursor inner = {c->at, c->at + n, 0};
  c->at += n;
  return inner;
}

static void take_text(cursor *c, char out[TAG_SIZE]) {
  cursor text = take_bytes(c);
  size_t n = (size_t)(text.end - text.at);
  if (n >= TAG_SIZE) c->bad = 1;
  if (!c->bad) snprintf(out, TAG_SIZE, "%.*s", (int)n, (const char *)text.at);
}

static void decode_value(cursor c, event *e, int *bad) {
  if (e->nscalar == SCALARS_MAX) c.bad = 1;
  while (!c.bad && c.at < c.end) {
    switch (take_varint(&c)) {
    case 1 << 3 | 2: take_text(&c, e->scalar[e->nscalar].tag); break;
    case 2 << 3 | 5: {
      uint32_t bits = (uint32_t)take_little(&c, 4);
      memcpy(&e->scalar[e->nscalar].value, &bits, 4);
      break;
    }
    default: c.bad = 1;
    }
  }
  e->nscalar++;
  *bad |= c.bad;
}

static int decode_event(cursor c, event *e) {
  memset(e, 0, sizeof *e);
  while (!c.bad && c.at < c.end) {
    switch (take_varint(&c)) {
    case 1 << 3 | 1: {
      uint64_t bits = take_little(&c, 8);
      memcpy(&e->wall_time, &bits, 8);
      break;
    }
    case 2 << 3 | 0: e->step = (int64_t)take_varint(&c); break;
    case 3 << 3 | 2: take_text(&c, e->version); break;
    case 5 << 3 | 2: {
      cursor summary = take_bytes(&c);
      while (!c.bad && summary.at < summary.end) {
        if (take_varint(&summary) != (1 << 3 | 2)) c.bad = 1;
        if (!c.bad) decode_value(take_bytes(&summary), e, &c.bad);
        c.bad |= summary.bad;
      }
      break;
    }
    default: c.bad = 1;
    }
  }
  return !c.bad;
}

static uint32_t masked(const unsigned char *data, size_t nbyte) {
  return tr_crc32c_masked(tr_crc32c(0, data, nbyte));
}

// The events of a file; -1 where anything in it is not as the formats say.
static int decode_file(const unsigned char *data, size_t nbyte, event *events) {
  cursor c = {data, data + nbyte, 0};
  int n = 0;
  while (c.at < c.end && n < EVENTS_MAX) {
    const unsigned char *head = c.at;
    uint64_t length = take_little(&c, 8);
    uint32_t head_crc = (uint32_t)take_little(&c, 4);
    if (c.bad || head_crc != masked(head, 8) || length > (uint64_t)(c.end - c.at)) return -1;
    cursor body = {c.at, c.at + length, 0};
    c.at += length;
    uint32_t body_crc = (uint32_t)take_little(&c, 4);
    if (c.bad || body_crc != masked(body.at, length) || !decode_event(body, &events[n++])) return -1;
  }
  return n > 0 && strcmp(events[0].version, "brain.Event:2") == 0 ? n : -1;
}

static char top[PATH_SIZE / 4];
static char name_of_one[PATH_SIZE];

// How many event files the folder has; the path of one of them in name_of_one.
static int count_files(const char *folder) {
  DIR *entries = opendir(folder);
  assert_non_null(entries);
  int n = 0;
  for (struct dirent *e; (e = readdir(entries));) {
    if (e->d_name[0] == '.') continue;
    assert_int_equal(strncmp(e->d_name, "events.out.tfevents.", 20), 0);
    snprintf(name_of_one, sizeof name_of_one, "%s/%s", folder, e->d_name);
    n++;
  }
  closedir(entries);
  return n;
}

static void read_only_file(const char *folder, char **data, size_t *nbyte) {
  assert_int_equal(count_files(folder), 1);
  assert_int_equal(tr_file_read(name_of_one, FILE_LIMIT, data, nbyte), TR_OK);
}

static const char *in_top(const char *name) {
  static char path[PATH_SIZE / 2];
  snprintf(path, sizeof path, "%s/%s", top, name);
  return path;
}

// The file that the Python side checks too.
static tr_status write_known(const char *folder) {
  tr_events *events;
  TR_TRY(tr_events_open(folder, &events));
  tr_status status = TR_OK;
  for (int64_t step = 0; step < 20 && status == TR_OK; step++) {
    tr_scalar scalars[] = {{"train/loss", 10.0 / (double)(step + 1)}, {"lr", 1e-3 * (double)step}, {"größe", -0.0}};
    status = tr_events_scalars(events, step * 1000003, scalars, step % 2 ? 3 : 1);
  }
  tr_scalar odd[] = {{"nan", NAN}, {"inf", -INFINITY}};
  if (status == TR_OK) status = tr_events_scalars(events, INT64_MAX, odd, 2);
  if (status == TR_OK) status = tr_events_scalars(events, -1, odd, 0);
  tr_events_close(events);
  return status;
}

static void a_file_holds_what_was_given(void **state) {
  (void)state;
  char *data = NULL;
  size_t nbyte = 0;
  event e[EVENTS_MAX];
  double now = (double)time(NULL);
  assert_int_equal(write_known(in_top("made/runs")), TR_OK);
  read_only_file(in_top("made/runs"), &data, &nbyte);
  assert_int_equal(decode_file((unsigned char *)data, nbyte, e), 23);
  for (int i = 1; i <= 20; i++) {
    int64_t step = i - 1;
    assert_true(e[i].step == step * 1000003);
    assert_true(fabs(e[i].wall_time - now) < 3600);
    assert_int_equal(e[i].nscalar, step % 2 ? 3 : 1);
    assert_string_equal(e[i].scalar[0].tag, "train/loss");
    assert_true(e[i].scalar[0].value == (float)(10.0 / (double)(step + 1)));
    if (step % 2 == 0) continue;
    assert_string_equal(e[i].scalar[1].tag, "lr");
    assert_true(e[i].scalar[1].value == (float)(1e-3 * (double)step));
    assert_string_equal(e[i].scalar[2].tag, "größe");
    assert_true(e[i].scalar[2].value == 0 && signbit(e[i].scalar[2].value));
  }
  assert_true(e[21].step == INT64_MAX && e[22].step == -1);
  assert_true(isnan(e[21].scalar[0].value) && e[21].scalar[1].value == -INFINITY);
  assert_int_equal(e[22].nscalar, 0);
  free(data);
}

static void every_changed_byte_is_seen(void **state) {
  (void)state;
  char *data = NULL;
  size_t nbyte = 0;
  event e[EVENTS_MAX];
  assert_int_equal(write_known(in_top("run")), TR_OK);
  read_only_file(in_top("run"), &data, &nbyte);
  for (size_t i = 0; i < nbyte; i++) {
    data[i] ^= 0x10;
    assert_int_equal(decode_file((unsigned char *)data, nbyte, e), -1);
    data[i] ^= 0x10;
  }
  assert_int_equal(decode_file((unsigned char *)data, nbyte - 1, e), -1); // a record that a crash cut off
  assert_int_equal(decode_file((unsigned char *)data, nbyte, e), 23);
  free(data);
}

static void each_start_has_a_file_of_its_own(void **state) {
  (void)state;
  for (int i = 1; i <= 5; i++) {
    assert_int_equal(write_known(in_top("run")), TR_OK); // all within a second or two
    assert_int_equal(count_files(in_top("run")), i);
  }
}

static void folders_that_cannot_be_are_named(void **state) {
  (void)state;
  tr_events *events = NULL;
  assert_int_equal(tr_file_write_atomic(in_top("file"), "x", 1), TR_OK);
  char name[300];
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  const struct {
    const char *folder, *says;
  } rows[] = {{"file", "Not a directory"}, {"file/run", "Not a directory"}, {name, "File name too long"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_int_equal(tr_events_open(in_top(rows[i].folder), &events), TR_ERR_IO);
    assert_non_null(strstr(tr_status_text(), top));
    assert_non_null(strstr(tr_status_text(), rows[i].says));
    assert_null(events);
  }
  tr_events_close(NULL);
}

// In a child: a limit on the size of files ends writes half way, as a full disk does.
static void a_full_disk_is_said_and_leaves_whole_records(void **state) {
  (void)state;
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    struct rlimit limit = {.rlim_cur = 400, .rlim_max = 400};
    tr_events *events;
    int taken = 0;
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || tr_events_open(in_top("full"), &events) != TR_OK) _exit(2);
    while (taken < 100 && tr_events_scalars(events, taken, &(tr_scalar){"loss", 1}, 1) == TR_OK) taken++;
    if (!strstr(tr_status_text(), "events.out.tfevents.") || taken < 3 || taken == 100) _exit(3);
    _exit(tr_events_scalars(events, taken, &(tr_scalar){"loss", 1}, 1) == TR_ERR_IO ? 100 + taken : 4);
  }
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) >= 100);
  char *data = NULL;
  size_t nbyte = 0;
  event e[EVENTS_MAX];
  read_only_file(in_top("full"), &data, &nbyte);
  assert_int_equal(decode_file((unsigned char *)data, nbyte, e), 1 + WEXITSTATUS(status) - 100);
  free(data);
}

static int make_top(void **state) {
  (void)state;
  const char *base = getenv("TMPDIR");
  snprintf(top, sizeof top, "%s/trireme-events-XXXXXX", base && base[0] ? base : "/tmp");
  return mkdtemp(top) ? 0 : -1;
}

static int remove_top(void **state) {
  (void)state;
  return tr_file_remove_tree(top) == TR_OK ? 0 : -1;
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_top, remove_top)

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "--write") == 0) {
    if (write_known(argv[2]) == TR_OK) return 0;
    fprintf(stderr, "%s\n", tr_status_text());
    return 1;
  }
  const struct CMUnitTest tests[] = {
      IN_FOLDER(a_file_holds_what_was_given),
      IN_FOLDER(every_changed_byte_is_seen),
      IN_FOLDER(each_start_has_a_file_of_its_own),
      IN_FOLDER(folders_that_cannot_be_are_named),
      IN_FOLDER(a_full_disk_is_said_and_leaves_whole_records),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
