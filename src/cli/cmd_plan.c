// SPDX-License-Identifier: MIT
// `trireme plan`: what training runs will take and what would be better, without starting one. The words are in
// plan_words.c; without a word, the best plans are searched.
#include "cli/cli_internal.h"
#include "cli/plan_words_internal.h"
#include <stdio.h>
#include <string.h>

enum { WORDS_MOST = 32 };

static void print_help(void) {
  size_t n;
  const tr__plan_word *word = tr__plan_words(&n);
  printf("usage: trireme plan --model M --cluster C --batch TOKENS [OPTIONS]\n"
         "       trireme plan WORD [OPTIONS]\n\nPredict and advise; nothing is run.\n\n"
         "  --model ...    the best plans for a model on a cluster; trireme plan search --help\n");
  for (size_t i = 0; i < n; i++) printf("  %-14s %s\n", word[i].name, word[i].summary);
  printf("\n  trireme plan WORD --help   what a word takes, with an example\n");
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

static tr_status run_word(int argc, char **argv) {
  size_t n;
  const tr__plan_word *word = tr__plan_words(&n);
  if (argc < 2)
    return tr__cli_usage("plan", "give a word, as in trireme plan tree, or --model, --cluster and --batch");
  if (argv[1][0] == '-') return tr__plan_search(argc, argv);
  for (size_t i = 0; i < n; i++)
    if (strcmp(argv[1], word[i].name) == 0) return word[i].run(argc - 1, argv + 1);
  return no_word(argv[1]);
}

int tr__cli_plan(int argc, char **argv) {
  if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) return print_help(), 0;
  tr_status status = run_word(argc, argv);
  return status < 0 ? tr__cli_fail(status) : 0;
}
