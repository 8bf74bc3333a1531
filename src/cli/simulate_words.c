// SPDX-License-Identifier: MIT
// The options of `trireme simulate` in words, for its help and its manual page (`trireme man simulate`).
#include "cli/simulate_internal.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { COLUMN = 22 };

static const char summary[] = "Put a clock on the step program of a pipeline: a drawing (digits forward, letters "
                              "backward, capitals where weight "
                              "gradients stand alone, dots idle), when it ends, how much of it is bubble, what every "
                              "rank holds. Nothing is run.";

static const struct {
  const char *option, *what;
} words[] = {
    {"--schedule S", "a name (below), or a file of token lists as --write makes them or PyTorch has them"},
    {"--compare A,B,...",
     "instead, a table of several schedules; all: of all of them. Times are of a p-th of the model then, "
     "which the chunks of a rank share"},
    {"-p N, -m N", "ranks of the pipeline, micro-batches of a step (a file has its own)"},
    {"-v N", "stages per rank, where the schedule leaves it open (2)"},
    {"--group N", "interleaved: micro-batches that go round together (p)"},
    {"--costs F,B,W",
     "times of one micro-batch on one stage (1,1,1): forward, backward for inputs, for weights; a backward "
     "pass that is not split takes B + W. F,B: B is the whole, and half of it each where it is split"},
    {"--pair X", "time of an overlapped pair (F + B + W)"},
    {"--comm C", "time that a message to another rank takes (0)"},
    {"--occupancy C", "time, besides, that it keeps its link busy, which has one message at a time (0)"},
    {"--one-stream", "all messages of a rank queue up behind each other, as on one communication stream"},
    {"--reduce C",
     "time in which the gradients of a stage are summed over replicas, after its last weight gradient (0)"},
    {"--replicas N", "data-parallel replicas: they do the same at the same time, so one is simulated (1)"},
    {"--model M",
     "with --cluster C, instead of all these times: seconds, from the descriptions that trireme plan reads, "
     "embedding and head counted"},
    {"--micro N, --seq N", "sequences of a micro-batch (1), tokens of a sequence (4096)"},
    {"--tp N", "tensor-parallel ranks that work as one (1)"},
    {"--ep N", "ranks, of the tensor-parallel ones and the replicas, over which experts are dealt (1)"},
    {"--layers L",
     "layers of the stages: even; balanced, so that the slowest stage is as fast as can be; or of each, as "
     "in 3,4,4,3 (even)"},
    {"--tick T", "time of one character (what all times have in common; more where lines would be too long)"},
    {"--svg FILE", "the drawing as SVG, with the critical path"},
    {"--trace FILE", "the timeline for ui.perfetto.dev, a unit of time as a millisecond"},
    {"--write FILE", "the token lists below a line that says the rest, for --schedule"},
    {"--dump", "print only the token lists, a line per rank"},
    {"--json", "print one JSON object; its keys are in docs/simulate.md"},
};

static const char examples[] =
    "  trireme simulate --schedule 1f1b -p 4 -m 8 --costs 1,2\n"
    "  trireme simulate --schedule interleaved -p 4 -m 8 -v 2 --costs 0.5,1 --comm 0.25 --svg timeline.svg\n"
    "  trireme simulate --compare gpipe,1f1b,zb_h1,zbv,dualpipe -p 4 -m 8 --comm 0.5\n"
    "  trireme simulate --schedule zb_h2 -p 8 -m 32 --model llama3-70b --cluster dgx-h100 --tp 8 --trace "
    "trace.json\n";

// ---- help

// New lines are indented like the first.
static void print_wrapped(const char *text, int at) {
  tr_text out = {0};
  tr_text_wrap(&out, text, at, at);
  printf("%s\n", out.data ? out.data : "");
  tr_text_free(&out);
}

void tr__simulate_print_help(void) {
  const char *what = NULL, *name;
  printf("usage: trireme simulate --schedule NAME|FILE [-p RANKS -m MICROBATCHES] [OPTIONS]\n"
         "       trireme simulate --compare NAME,NAME,...|all -p RANKS -m MICROBATCHES [OPTIONS]\n\n");
  print_wrapped(summary, 0);
  printf("\n");
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    printf("  %-*s ", COLUMN - 3, words[i].option);
    if (strlen(words[i].option) > COLUMN - 3) printf("\n%*s", COLUMN, "");
    print_wrapped(words[i].what, COLUMN);
  }
  printf("\nschedules:\n");
  for (int i = 0; (name = tr_schedule_known(i, &what)) != NULL; i++) {
    printf("  %-*s ", COLUMN - 3, name);
    print_wrapped(what, COLUMN);
  }
  printf("\nexamples:\n%s", examples);
}

// ---- the manual page

static void append_roff(const char *text, tr_text *out) {
  if (*text == '.' || *text == '\'') tr_text_append(out, "\\&");
  for (; *text; text++) {
    if (*text == '-' || *text == '\\')
      tr_text_append(out, *text == '-' ? "\\-" : "\\e");
    else
      tr_text_append_bytes(out, text, 1);
  }
}

static void append_row(const char *term, const char *what, tr_text *out) {
  tr_text_append(out, ".TP\n.B ");
  append_roff(term, out);
  tr_text_append(out, "\n");
  append_roff(what, out);
  tr_text_append(out, "\n");
}

void tr__simulate_man(tr_text *out) {
  const char *what = NULL, *name;
  tr_text_append(out, ".TH \"TRIREME\\-SIMULATE\" 1\n.nh\n.ad l\n.SH NAME\ntrireme\\-simulate \\- put a clock on a "
                      "pipeline's schedule\n.SH DESCRIPTION\n");
  append_roff(summary, out);
  tr_text_append(out, "\n.SH OPTIONS\n");
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) append_row(words[i].option, words[i].what, out);
  tr_text_append(out, ".SH SCHEDULES\n");
  for (int i = 0; (name = tr_schedule_known(i, &what)) != NULL; i++) append_row(name, what, out);
  tr_text_append(out, ".SH EXAMPLES\n.nf\n");
  append_roff(examples, out);
  tr_text_append(out, ".fi\n");
}
