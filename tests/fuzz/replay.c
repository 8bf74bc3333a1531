// SPDX-License-Identifier: MIT
// Runs one fuzz target without a fuzzer: over every kept input of a folder, and over a fixed series of damaged copies.
//
//   fuzz_NAME FOLDER     the test: kept inputs, then MUTATIONS damaged ones or as many as fit into SECONDS
//   fuzz_NAME FILE ...   these inputs alone, in this process: for a debugger
//
// The inputs run in a child. Where it ends early (a signal, a sanitizer's report, a hang), the parent still has the input
// in shared memory and writes it to crash-NAME in the current folder.
#include "fuzz/fuzz.h"

#include "trireme/base/clock.h"

#include <dirent.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { INPUT_MAX = 1 << 16, INPUTS_MAX = 256, MUTATIONS = 3000, SECONDS = 5, HANG_SECONDS = 40, DAMAGES_MAX = 4 };

typedef struct input {
  size_t size;
  uint8_t data[INPUT_MAX];
} input;

typedef struct corpus {
  char *data[INPUTS_MAX];
  size_t size[INPUTS_MAX];
  int n;
} corpus;

// A copy of exactly that size, so that a sanitizer sees a read beyond its end.
static void run_one(const void *data, size_t size) {
  uint8_t *copy = malloc(size ? size : 1);
  FUZZ_CHECK(copy);
  memcpy(copy, data, size);
  (void)LLVMFuzzerTestOneInput(copy, size);
  free(copy);
}

static void cut_out(input *in, size_t at, size_t n) {
  memmove(in->data + at, in->data + at + n, in->size - at - n);
  in->size -= n;
}

static void put_in(input *in, size_t at, const char *data, size_t n) {
  if (in->size + n > INPUT_MAX) return;
  memmove(in->data + at + n, in->data + at, in->size - at);
  memcpy(in->data + at, data, n);
  in->size += n;
}

// The first digit from here on becomes another one: numbers that are wrong in texts that are right.
static void change_digit(input *in, size_t at, uint64_t pick) {
  while (at < in->size && (in->data[at] < '0' || in->data[at] > '9')) at++;
  if (at < in->size) in->data[at] = (uint8_t)('0' + pick % 10);
}

// One damage of a kind that readers are known to fall over: a bit, an odd byte or number, a missing, doubled or foreign part.
static void damage_bytes(input *in, const corpus *kept, uint64_t *state) {
  static const char *const odd[] = {"-1", "0", "18446744073709551616", "1e999", "null", "{", "[", "\"", "\n", "\xff"};
  static const uint8_t bytes[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
  size_t at = in->size ? fuzz_random(state) % in->size : 0;
  size_t n = in->size ? 1 + fuzz_random(state) % (in->size - at < 16 ? in->size - at : 16) : 0;
  uint64_t pick = fuzz_random(state);
  const char *text = odd[pick % (sizeof odd / sizeof *odd)];
  switch (fuzz_random(state) % 8) {
  case 0:
    if (in->size) in->data[at] ^= (uint8_t)(1 << pick % 8);
    break;
  case 1: memset(in->data + at, bytes[pick % sizeof bytes], n); break;
  case 2: cut_out(in, at, n); break;
  case 3: in->size = at; break;
  case 4: put_in(in, at, text, strlen(text)); break;
  case 5: change_digit(in, at, pick); break;
  case 6: {
    char part[16];
    memcpy(part, in->data + at, n);
    put_in(in, at, part, n);
    break;
  }
  default: {
    int other = (int)(pick % (uint64_t)kept->n);
    size_t from = kept->size[other] ? fuzz_random(state) % kept->size[other] : 0;
    put_in(in, at, kept->data[other] + from, kept->size[other] - from);
  }
  }
}

static void damage(input *in, const corpus *kept, uint64_t *state) {
  size_t size = fuzz_random(state) % 2 ? fuzz_damage_value(in->data, in->size, INPUT_MAX, state) : 0;
  if (size > 0)
    in->size = size;
  else
    damage_bytes(in, kept, state);
}

static void run_all(const corpus *kept, input *in) {
  uint64_t state = 1;
  int64_t end = tr_clock_ns() + SECONDS * (int64_t)1000000000;
  int done = 0;
  alarm(HANG_SECONDS);
  for (int i = 0; i < kept->n; i++) {
    in->size = kept->size[i];
    memcpy(in->data, kept->data[i], in->size);
    run_one(in->data, in->size);
  }
  for (; done < MUTATIONS && tr_clock_ns() < end; done++) {
    int i = done % kept->n;
    in->size = kept->size[i];
    memcpy(in->data, kept->data[i], in->size);
    for (uint64_t d = 0; d < 1 + fuzz_random(&state) % DAMAGES_MAX; d++) damage(in, kept, &state);
    run_one(in->data, in->size);
  }
  printf("%d kept inputs, %d damaged ones\n", kept->n, done);
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static void load(const char *folder, corpus *out) {
  struct dirent **entry = NULL;
  int n = scandir(folder, &entry, NULL, by_name);
  FUZZ_CHECK(n > 0);
  for (int i = 0; i < n; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
    if (entry[i]->d_name[0] != '.' && out->n < INPUTS_MAX) {
      FUZZ_CHECK(tr_file_read(path, INPUT_MAX, &out->data[out->n], &out->size[out->n]) == TR_OK);
      out->n++;
    }
    free(entry[i]);
  }
  free(entry);
  FUZZ_CHECK(out->n > 0);
}

static void run_file(const char *path) {
  char *data = NULL;
  size_t size = 0;
  FUZZ_CHECK(tr_file_read(path, SIZE_MAX, &data, &size) == TR_OK);
  run_one(data, size);
  free(data);
}

static int report(const char *folder, const input *in, int status) {
  const char *slash = strrchr(folder, '/');
  char path[4096];
  snprintf(path, sizeof path, "crash-%s", slash ? slash + 1 : folder);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (fd < 0 || tr_file_write_all(fd, in->data, in->size, path) != TR_OK) perror(path);
  if (fd >= 0) close(fd);
  fprintf(stderr, "%s %d, on the input that is now in %s: run this program on it\n",
          WIFSIGNALED(status) ? "ended by signal" : "ended with status",
          WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), path);
  return 1;
}

int main(int argc, char **argv) {
  struct stat about;
  if (argc < 2 || stat(argv[1], &about) != 0) {
    fprintf(stderr, "usage: %s FOLDER | FILE ...\n", argv[0]);
    return 2;
  }
  if (!S_ISDIR(about.st_mode)) {
    for (int i = 1; i < argc; i++) run_file(argv[i]);
    return 0;
  }
  corpus kept = {.n = 0};
  load(argv[1], &kept);
  input *in = mmap(NULL, sizeof *in, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  FUZZ_CHECK(in != MAP_FAILED);
  int status = 1;
  pid_t child = fork();
  FUZZ_CHECK(child >= 0);
  if (child == 0) run_all(&kept, in);
  for (int i = 0; i < kept.n; i++) free(kept.data[i]);
  if (child == 0) return 0;
  FUZZ_CHECK(waitpid(child, &status, 0) == child);
  return status == 0 ? 0 : report(argv[1], in, status);
}
