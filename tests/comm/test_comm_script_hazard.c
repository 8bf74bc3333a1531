// SPDX-License-Identifier: MIT
// tier: quick
// Scripts leave alone what is on its way: between the start of a transfer and the wait for it nothing is written to what is
// sent, and nothing is read from or written to what is received.
//
// Places are parts of buffers. Operations may be in place, so that a part of the source and of the destination are one place
// (but in all-to-all), and a register may be the home it stands for.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/strands_internal.h"

enum { OPEN = 1024 };

typedef struct flight { // of a transfer or local operation: what it reads and writes until it has been waited for
  tr__run reads, writes;
} flight;

typedef struct check {
  const tr__script *s;
  flight open[OPEN];
  int started;
} check;

static int place(const tr__script *s, int buffer, int part) {
  if (buffer >= 0 && s->reg[buffer].home) buffer = s->reg[buffer].home;
  int apart = s->kind == TR__ALLTOALL || s->kind == TR__ALLTOALL_V;
  int number = buffer >= 0 ? 2 + buffer : buffer == TR__DEST && apart;
  return number * s->parts + part % s->parts;
}

static int overlap(const tr__script *s, tr__run a, tr__run b) {
  for (int i = 0; i < a.count; i++)
    for (int j = 0; j < b.count; j++)
      if (place(s, a.buffer, a.first + i) == place(s, b.buffer, b.first + j)) return 1;
  return 0;
}

static void may(const check *c, tr__run reads, tr__run writes) {
  for (int i = 0; i < c->started; i++) {
    const flight *f = &c->open[i];
    int wrong =
        overlap(c->s, reads, f->writes) || overlap(c->s, writes, f->writes) || overlap(c->s, writes, f->reads);
    if (wrong)
      print_error("%s, %s, rank %d of %d, root %d: transfer %d is still under way\n", c->s->algorithm->name,
                  tr__kind_name(c->s->kind), c->s->index, c->s->size, c->s->root, i);
    assert_false(wrong);
  }
}

static void begin(check *c, tr__run reads, tr__run writes) {
  may(c, reads, writes);
  assert_true(c->started < OPEN);
  c->open[c->started++] = (flight){reads, writes};
}

static void check_sum(const check *c, const tr__step *step) {
  static const tr__run none;
  const tr__run *source = &c->s->source[step->first];
  int same =
      step->count == 1 && place(c->s, source->buffer, source->first) == place(c->s, step->to.buffer, step->to.first);
  if (same) return; // nothing is copied
  for (int i = 0; i < step->count; i++) may(c, source[i], none);
  may(c, none, step->to);
}

// A local gather from one owner does not write to what the owner has.
static void check_local(check *c, const tr__step *step) {
  static const tr__run none;
  int gathers = step->peer == TR__LOCAL_GATHER, owns = step->first == c->s->index % c->s->local;
  begin(c, gathers && !owns ? none : step->from, gathers && owns ? none : step->to);
}

static void check_script(const tr__algorithm *a, tr__case k, int index) {
  static const tr__run none;
  tr__script *s = tr__script_build(a, k.kind, k.size, index, k.root, k.local);
  check c = {.s = s};
  assert_non_null(s);
  for (int i = 0; i < s->nstep; i++) {
    const tr__step *step = &s->step[i];
    switch (step->verb) {
    case TR__DO_SEND: begin(&c, step->from, none); break;
    case TR__DO_RECV: begin(&c, none, step->to); break;
    case TR__DO_LOCAL: check_local(&c, step); break;
    case TR__DO_SUM: check_sum(&c, step); break;
    case TR__DO_WAIT:
      assert_true(step->first >= 0 && step->first + step->count <= c.started);
      for (int t = step->first; t < step->first + step->count; t++) c.open[t] = (flight){none, none};
    }
  }
  assert_int_equal(c.started, s->ntransfer);
  tr__script_free(s);
}

static void check_algorithm(const tr__algorithm *a, int size, int local) {
  for (int kind = TR__ALLREDUCE; kind < TR__SEND; kind++) {
    tr__case k = {.kind = (tr__kind)kind, .size = size, .local = local};
    if (tr__algorithm_refuses(a, &k, 1)) continue;
    for (int index = 0; index < size; index++)
      for (k.root = 0; k.root < (tr__kind_has_root(k.kind) ? size : 1); k.root++) check_script(a, k, index);
  }
}

static void what_is_on_its_way_is_left_alone(void **state) {
  (void)state;
  for (int i = 0; tr__algorithms[i]; i++)
    for (int size = 2; size <= 19; size++) {
      const tr__algorithm *a = tr__algorithms[i];
      if (!a->hosts) check_algorithm(a, size, 0);
      for (int local = 2; a->hosts && local <= 4 && local < size; local++) check_algorithm(a, size, local);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_on_its_way_is_left_alone)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
