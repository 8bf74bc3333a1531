// SPDX-License-Identifier: MIT
// The entry point of the command: picks the command, maps failures to exit codes, and holds the helpers that all share.
#include "cli/cli_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/text.h"
#include "trireme/comm/launch.h"
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const tr__command commands[] = {
    {"train", "train a model: RUN.yaml [MORE.yaml ...] [-n RANKS] [key=value ...]", tr__cli_train},
    {"generate", "continue a text: CKPT --prompt TEXT", tr__cli_generate},
    {"inspect", "show what a checkpoint or a safetensors file holds", tr__cli_inspect},
    {"tokenize", "turn text into token files, learn a vocabulary, encode and decode", tr__cli_tokenize},
    {"convert", "write weights into another folder, with another type or other files", tr__cli_convert},
    {"diff", "show in what two checkpoints differ", tr__cli_diff},
    {"bench", "measure training steps, kernels and communication on this machine", tr__cli_bench},
    {"plan", "predict training runs: step time, memory, the best plan", tr__cli_plan},
    {"simulate", "put a clock on a pipeline's schedule: its bubble, its memory, a drawing", tr__cli_simulate},
    {"man", "print the manual page of the settings (roff)", tr__cli_man},
};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static void print_help(FILE *out) {
  fprintf(out, "trireme %s: train neural networks on many ranks\n\nusage: trireme COMMAND [ARGUMENTS]\n\n",
          TRIREME_VERSION);
  for (int i = 0; i < COMMAND_COUNT; i++) fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
  fprintf(out,
          "\n  trireme COMMAND --help   what a command takes, with examples\n"
          "  trireme --version        the version\n\n"
          "exit codes: 0 ok, 1 internal error, 2 usage, 3 configuration or plan, 4 data or checkpoint, 5 memory,\n"
          "            6 peer lost, 7 timeout, 8 not a number, 9 verification failed, 10 input/output,\n"
          "            130 stopped as asked (Ctrl-C, SIGTERM) and saved: the same command goes on\n");
}

// All ranks that others have started meet the same fault in settings or files: the first of them tells. Another waits for a
// moment, in which the starter ends it or the first has told; what it tells then is its own. "" is told elsewhere.
static int speaks(const tr_launch_place *place, char *prefix, size_t nbyte) {
  if (place->size > 0 && !*tr_status_text()) return 0;
  if (place->rank == 0) return 1;
  snprintf(prefix, nbyte, "[rank %d] ", place->rank);
  tr_clock_sleep_ns(1000000000);
  return 1;
}

int tr__cli_fail(tr_status status) {
  char prefix[32] = "";
  tr_launch_place place = {0};
  fflush(stdout);
  char text[4096];
  snprintf(text, sizeof text, "%s", *tr_status_text() ? tr_status_text() : tr_status_meaning(status));
  // Names and values from outside stand in sentences: what moves a terminal's cursor is not passed on.
  for (char *c = text; *c; c++)
    if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
  if (tr_launch_placed(&place) < 0) place.size = 0;
  if (speaks(&place, prefix, sizeof prefix)) fprintf(stderr, "%strireme: %s\n", prefix, text);
  if (place.size > 0 && place.rank == 0)
    tr_clock_sleep_ns(500000000); // ends with the others, so that none has to be killed
  return tr_status_exit_code(status);
}

int tr__cli_end(tr_status status) {
  enum { STOPPED = 130 }; // as shells have it for Ctrl-C
  return status < 0 ? tr__cli_fail(status) : status == TR_PENDING ? STOPPED : 0;
}

tr_status tr__cli_usage(const char *command, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return tr_error(TR_ERR_USAGE, "%s: %s (see trireme %s --help)", command, text, command);
}

int tr__cli_option(int argc, char **argv, int *i, const char *name, const char **value) {
  size_t n = strlen(name);
  if (strncmp(argv[*i], name, n) != 0) return 0;
  if (argv[*i][n] == '=') {
    *value = argv[*i] + n + 1;
    return 1;
  }
  if (argv[*i][n] != '\0') return 0;
  *value = *i + 1 < argc ? argv[++*i] : NULL;
  return 1;
}

int tr__cli_wants_help(int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return 1;
  return 0;
}

static void no_command(const char *name) {
  const char *names[COMMAND_COUNT];
  for (int i = 0; i < COMMAND_COUNT; i++) names[i] = commands[i].name;
  const char *closest = tr_text_closest(name, names, COMMAND_COUNT);
  fprintf(stderr, "trireme: there is no command '%s'", name);
  if (closest)
    fprintf(stderr, "; did you mean '%s'?\n", closest);
  else
    fprintf(stderr, "; trireme --help lists all of them\n");
}

static int run_command(int argc, char **argv) {
  for (int i = 0; i < COMMAND_COUNT; i++)
    if (strcmp(commands[i].name, argv[0]) == 0) return commands[i].run(argc, argv);
  no_command(argv[0]);
  return 2;
}

// `trireme help COMMAND [GROUP]` is `trireme COMMAND --help [GROUP]`.
static int help_on(int argc, char **argv) {
  char flag[] = "--help", *arguments[] = {argv[0], flag, argc > 1 ? argv[1] : NULL, NULL};
  return run_command(argc > 1 ? 3 : 2, arguments);
}

static int dispatch(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "--help";
  if (strcmp(name, "--version") == 0) {
    printf("trireme %s\n", TRIREME_VERSION);
    return 0;
  }
  if (strcmp(name, "help") == 0 && argc > 2) return help_on(argc - 2, argv + 2);
  if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
    print_help(argc > 1 ? stdout : stderr);
    return argc > 1 ? 0 : 2;
  }
  return run_command(argc - 1, argv + 1);
}

int main(int argc, char **argv) {
  signal(SIGXFSZ, SIG_IGN); // a file that grows beyond the limit is a failed write with a message
  int exit_code = dispatch(argc, argv);
  if ((fflush(stdout) != 0 || ferror(stdout)) && exit_code == 0 && errno != EPIPE)
    return tr__cli_fail(tr_error(TR_ERR_IO, "cannot write to standard output: %s", strerror(errno)));
  return exit_code;
}
