// SPDX-License-Identifier: MIT
// `trireme plan WORD`: what a training run will take and what would be better, without starting one. The words are in
// plan_words.c.
#include "cli/cli_internal.h"
#include "cli/plan_words_internal.h"
#include <stdio.h>
#include <string.h>

enum { WORDS_MOST = 32 };

static int print_help(FILE *out) {
  size_t n;
  const tr__plan_word *word = tr__plan_words(&n);
  fprintf(out, "usage: trireme plan WORD [OPTIONS]\n\nPredict and advise; nothing is run.\n\n");
  for (size_t i = 0; i < n; i++) fprintf(out, "  %-14s %s\n", word[i].name, word[i].summary);
  fprintf(out, "\n  trireme plan WORD --help   what a word takes, with an example\n");
  return 0;
}

static tr_status no_word(const char *name) {
  const char *names[WORDS_MOST];
  size_t n;
  const tr__plan_word *word = tr__plan_words(&n);
  for (size_t i = 0; i < n && i < WORDS_MOST; i++) names[i] = word[i].name;
  const char *closest = tr_text_closest(name, names, n < WORDS_MOST ? n : WORDS_MOST);
  if (closest) return tr__cli_usage("plan", "there is no word '%.80s'; did you mean '%s'?", name, closest);
  return tr__cli_usage("plan", "there is no word '%.80s'", name);
}

int tr__cli_plan(int argc, char **argv) {
  size_t n;
  const tr__plan_word *word = tr__plan_words(&n);
  if (argc < 2) return tr__cli_fail(tr__cli_usage("plan", "give a word, as in trireme plan tree"));
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return print_help(stdout);
  for (size_t i = 0; i < n; i++) {
    if (strcmp(argv[1], word[i].name) != 0) continue;
    tr_status status = word[i].run(argc - 1, argv + 1);
    return status < 0 ? tr__cli_fail(status) : 0;
  }
  return tr__cli_fail(no_word(argv[1]));
}
