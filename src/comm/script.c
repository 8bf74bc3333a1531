// SPDX-License-Identifier: MIT
// Building scripts, and keeping those that a group has used.
//
// Arrays grow by doubling while a script is built; a script that could not get its memory is marked and thrown away
// as a whole, so that builders need no error paths.
#include "script.h"
#include "algorithm.h"
#include "strands_internal.h"
#include <stdlib.h>
#include <string.h>

// Room for one more element of `width` bytes; NULL when there is no memory.
static void *grow(tr__script *s, void *array, int count, size_t width) {
  if (s->failed || (count > 0 && (count & (count - 1)))) return array;
  void *more = realloc(array, (size_t)(count ? 2 * count : 1) * width);
  if (!more) s->failed = 1;
  return more ? more : array;
}

int tr__script_register(tr__script *s, int first, int count, int wide, int home) {
  s->reg = grow(s, s->reg, s->nreg, sizeof *s->reg);
  if (!s->failed) s->reg[s->nreg] = (tr__register){first, count, wide, home};
  return s->nreg++;
}

static void add_step(tr__script *s, tr__step step) {
  s->step = grow(s, s->step, s->nstep, sizeof *s->step);
  if (!s->failed) s->step[s->nstep] = step;
  s->nstep++;
}

int tr__script_send(tr__script *s, int peer, tr__run from) {
  add_step(s, (tr__step){.verb = TR__DO_SEND, .peer = peer, .from = from});
  return s->ntransfer++;
}

int tr__script_recv(tr__script *s, int peer, tr__run to) {
  add_step(s, (tr__step){.verb = TR__DO_RECV, .peer = peer, .to = to});
  return s->ntransfer++;
}

void tr__script_wait(tr__script *s, int first, int count) {
  if (count > 0) add_step(s, (tr__step){.verb = TR__DO_WAIT, .first = first, .count = count});
}

void tr__script_wait_all(tr__script *s) { tr__script_wait(s, 0, s->ntransfer); }

void tr__script_sum(tr__script *s, tr__run to, const tr__run *from, int count, int last) {
  add_step(s, (tr__step){.verb = TR__DO_SUM, .to = to, .first = s->nsource, .count = count, .last = last});
  for (int i = 0; i < count; i++) {
    s->source = grow(s, s->source, s->nsource, sizeof *s->source);
    if (!s->failed) s->source[s->nsource] = from[i];
    s->nsource++;
  }
}

void tr__script_add(tr__script *s, tr__run to, tr__run left, tr__run right, int last) {
  const tr__run both[] = {left, right};
  tr__script_sum(s, to, both, 2, last);
}

void tr__script_copy(tr__script *s, tr__run to, tr__run from) { tr__script_sum(s, to, &from, 1, 0); }

void tr__script_local(tr__script *s, tr__local what, int owner, tr__run to, tr__run from) {
  add_step(
      s, (tr__step){
             .verb = TR__DO_LOCAL, .peer = what, .first = owner, .count = s->nlocal[what]++, .to = to, .from = from});
  s->ntransfer++;
}

int tr__script_index(int i, int size) {
  i %= size;
  return i < 0 ? i + size : i;
}

void tr__script_free(tr__script *s) {
  if (!s) return;
  free(s->order);
  free(s->reg);
  free(s->source);
  free(s->step);
  free(s);
}

tr__script *tr__script_build(const tr__algorithm *algorithm, tr__kind kind, int size, int index, int root,
                             int local) {
  tr__script *s = calloc(1, sizeof *s);
  if (!s) return NULL;
  s->algorithm = algorithm;
  s->kind = kind;
  s->size = s->parts = size;
  s->index = index;
  s->root = tr__kind_has_root(kind) ? root : 0;
  s->local = local;
  algorithm->build(s);
  if (!s->failed) return s;
  tr__script_free(s);
  return NULL;
}

const tr__script *tr__script_find(tr_group *group, tr__kind kind, int root, const tr__algorithm *algorithm) {
  tr__strands *all = group->strands;
  int at = tr__kind_has_root(kind) ? root : 0;
  for (tr__script *s = all->scripts; s; s = s->next)
    if (s->kind == kind && s->root == at && s->algorithm == algorithm) return s;
  tr__script *s = tr__script_build(algorithm, kind, group->size, group->index, root, all->local_size);
  if (!s) return NULL;
  s->next = all->scripts;
  all->scripts = s;
  return s;
}

size_t tr__case_run(const tr__case *c, int parts, int first, int count) {
  size_t total = 0;
  for (int i = first; i < first + count; i++) {
    size_t at, n = c->nelem;
    int part = tr__script_index(i, parts);
    if (tr__is_vector(c->kind)) tr_slice(c->nelem, parts, part, TR__GRAIN, &at, &n);
    if (c->start) n = c->start[part + 1] - c->start[part];
    total += n;
  }
  return total;
}

int tr__case_filled(const tr__case *c, int parts, int first, int count) {
  int filled = 0;
  for (int i = first; i < first + count; i++) filled += tr__case_run(c, parts, i, 1) > 0;
  return filled;
}
