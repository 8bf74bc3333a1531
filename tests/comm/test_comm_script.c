// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Scripts without ranks: those of all ranks of a group are walked through side by side, for many group sizes.
//
// Messages arrive at once, and wait in order per pair of ranks. So it is seen whether every message that is sent is also
// received, with as many elements; whether all ranks come to the end; whether messages, bytes, sums and the longest chain
// of messages are what each algorithm claims; and, from which ranks' messages each part is the sum of, whether every sum is one
// of the aligned binary tree.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/strands_internal.h"
#include <stdlib.h>
#include <string.h>

enum { MOST = 40, QUEUE = 512 };

typedef struct span { // the sum of ranks [from, to); to 0: not known
  int from, to;
} span;

typedef struct message {
  size_t nelem;
  int depth, at; // at: of its spans in the pool
} message;

typedef struct walker { // one rank
  tr__script *script;
  int step, started, depth; // depth: messages on the longest chain that this rank has waited for
  int peer[QUEUE], number[QUEUE], is_recv[QUEUE];
  tr__run to[QUEUE]; // of receives
  span *value;       // [destination, source, registers][parts]
  tr__claim seen;
} walker;

typedef struct world {
  tr__case c;
  walker *rank;
  message *queue; // [from][to][number]
  span *pool;
  int pooled;
  int ordered;       // sums must be of the tree
  int *sent, *taken; // [from][to]
} world;

static size_t elements(const world *w, const tr__script *s, tr__run run) {
  size_t n = 0;
  for (int k = 0; k < run.count; k++) {
    int part = (run.first + k) % s->parts;
    n += tr__case_run(&w->c, s->parts, s->order ? s->order[part] : part, 1);
  }
  return n;
}

static int pair(const world *w, int from, int to) { return from * w->c.size + to; }

// ---- whose sums

static span *value(walker *r, tr__run run, int k) {
  return &r->value[(run.buffer + 2) * r->script->parts + (run.first + k) % r->script->parts];
}

static int keep_spans(world *w, walker *r, tr__run run) {
  int at = w->pooled;
  w->pooled += run.count;
  w->pool = realloc(w->pool, (size_t)(w->pooled + 1) * sizeof *w->pool);
  assert_non_null(w->pool);
  for (int k = 0; k < run.count; k++) w->pool[at + k] = *value(r, run, k);
  return at;
}

// The sum of these, as one tree over them, is a part of the tree over all ranks: they are neighbours of equal, aligned,
// power-of-two size, but for the last, which may be short where the group ends.
static span joined(const world *w, const span *item, int n) {
  int size = item[0].to - item[0].from;
  if (n == 1) return item[0];
  assert_true(size > 0 && (size & (size - 1)) == 0 && item[0].from % (size << tr__log2_up(n)) == 0);
  for (int i = 1; i < n; i++) {
    int length = item[i].to - item[i].from;
    assert_int_equal(item[i].from, item[i - 1].to);
    assert_true(length == size || (i == n - 1 && length < size && item[i].to == w->c.size));
  }
  return (span){item[0].from, item[n - 1].to};
}

static void sum(const world *w, walker *r, const tr__step *step) {
  const tr__run *source = &r->script->source[step->first];
  for (int k = 0; k < step->to.count; k++) {
    span item[MOST];
    for (int i = 0; i < step->count; i++) item[i] = *value(r, source[i], k);
    *value(r, step->to, k) = joined(w, item, step->count);
  }
}

static void sum_host(const world *w, walker *r, const tr__step *step) {
  int first = r->script->index / w->c.local * w->c.local;
  int last = first + w->c.local < w->c.size ? first + w->c.local : w->c.size;
  for (int k = 0; step->peer == TR__LOCAL_REDUCE && k < step->to.count; k++)
    *value(r, step->to, k) = (span){first, last};
}

// What the operation leaves on a rank is the sum of all; of what local ranks get from each other nothing is known here.
static void check_results(const world *w, int i, int local) {
  walker *r = &w->rank[i];
  int scatters = w->c.kind == TR__REDUCE_SCATTER || w->c.kind == TR__REDUCE_SCATTER_V;
  if (w->c.kind == TR__REDUCE && i != w->c.root) return;
  for (int part = 0; part < r->script->parts; part++) {
    span s = *value(r, tr__run_of(TR__DEST, part, 1), 0);
    int block = r->script->order ? r->script->order[part] : part;
    if ((scatters && block != i) || (local && s.to == 0)) continue;
    assert_int_equal(s.from, 0);
    assert_int_equal(s.to, w->c.size);
  }
}

// ---- steps

static void send(world *w, int from, const tr__step *step) {
  walker *r = &w->rank[from];
  int p = pair(w, from, step->peer);
  size_t n = elements(w, r->script, step->from);
  int wide = step->from.buffer >= 0 && r->script->reg[step->from.buffer].wide;
  assert_true(step->peer >= 0 && step->peer < w->c.size && step->peer != from);
  assert_true(w->sent[p] < QUEUE);
  w->queue[p * QUEUE + w->sent[p]++] = (message){n, r->depth + 1, w->ordered ? keep_spans(w, r, step->from) : 0};
  r->seen.messages += n > 0 || w->c.kind == TR__BARRIER;
  r->seen.bytes += n * (wide ? w->c.wide : w->c.width);
  r->is_recv[r->started++] = 0;
}

static void recv(world *w, int to, const tr__step *step) {
  walker *r = &w->rank[to];
  int p = pair(w, step->peer, to);
  r->peer[r->started] = step->peer;
  r->to[r->started] = step->to;
  r->number[r->started] = w->taken[p]++;
  r->is_recv[r->started++] = 1;
}

// Nonzero when all the transfers named have arrived.
static int arrived(world *w, int to, const tr__step *step) {
  walker *r = &w->rank[to];
  int depth = r->depth;
  for (int i = step->first; i < step->first + step->count; i++) {
    if (!r->is_recv[i]) continue;
    int p = pair(w, r->peer[i], to);
    if (w->sent[p] <= r->number[i]) return 0;
    const message *m = &w->queue[p * QUEUE + r->number[i]];
    for (int k = 0; w->ordered && r->is_recv[i] == 1 && k < r->to[i].count; k++)
      *value(r, r->to[i], k) = w->pool[m->at + k];
    r->is_recv[i] = 2; // has come
    if (m->nelem > 0 || w->c.kind == TR__BARRIER) depth = m->depth > depth ? m->depth : depth;
  }
  r->depth = depth;
  return 1;
}

static int take(world *w, int i) {
  walker *r = &w->rank[i];
  const tr__step *step = &r->script->step[r->step];
  assert_true(r->started < QUEUE);
  switch (step->verb) {
  case TR__DO_SEND: send(w, i, step); break;
  case TR__DO_RECV: recv(w, i, step); break;
  case TR__DO_WAIT:
    if (!arrived(w, i, step)) return 0;
    break;
  case TR__DO_SUM:
    r->seen.sums += (uint64_t)(step->count - 1) * elements(w, r->script, step->to);
    if (w->ordered) sum(w, r, step);
    break;
  case TR__DO_LOCAL:
    r->is_recv[r->started++] = 0;
    if (w->ordered) sum_host(w, r, step);
    break;
  }
  r->step++;
  return 1;
}

// Sizes of what is received, once all is sent.
static void check_receives(world *w, int i) {
  walker *r = &w->rank[i];
  for (int s = 0, t = 0; s < r->script->nstep; s++) {
    const tr__step *step = &r->script->step[s];
    if (step->verb == TR__DO_RECV) {
      const message *m = &w->queue[pair(w, step->peer, i) * QUEUE + r->number[t]];
      assert_true(r->number[t] < w->sent[pair(w, step->peer, i)]);
      assert_int_equal(m->nelem, elements(w, r->script, step->to));
    }
    t += step->verb == TR__DO_RECV || step->verb == TR__DO_SEND || step->verb == TR__DO_LOCAL;
  }
}

static void walk(world *w) {
  for (int moved = 1; moved;) {
    moved = 0;
    for (int i = 0; i < w->c.size; i++)
      while (w->rank[i].step < w->rank[i].script->nstep && take(w, i)) moved = 1;
  }
  for (int i = 0; i < w->c.size; i++) {
    assert_int_equal(w->rank[i].step, w->rank[i].script->nstep);
    assert_true(arrived(w, i, &(tr__step){.count = w->rank[i].started}));
    check_receives(w, i);
  }
  for (int p = 0; p < w->c.size * w->c.size; p++) assert_int_equal(w->sent[p], w->taken[p]);
}

static void check_claims(const world *w, const tr__algorithm *a) {
  int depth = 0, claimed = 0, local = a->hosts > 0;
  for (int i = 0; i < w->c.size; i++) {
    tr__claim claim;
    const tr__claim *seen = &w->rank[i].seen;
    a->claim(&w->c, i, &claim);
    if (claim.messages != seen->messages || claim.bytes != seen->bytes || claim.sums != seen->sums)
      print_error("%s, %s, rank %d of %d, root %d, %zu elements\n", a->name, tr__kind_name(w->c.kind), i, w->c.size,
                  w->c.root, w->c.nelem);
    assert_int_equal(claim.messages, seen->messages);
    assert_int_equal(claim.bytes, seen->bytes);
    assert_int_equal(claim.sums, seen->sums);
    if (w->rank[i].depth > depth) depth = w->rank[i].depth;
    if (claim.rounds > claimed) claimed = claim.rounds;
  }
  // Trees claim what holds for every size; empty messages make chains shorter; local operations lengthen none.
  int short_tree = a == &tr__algorithm_tree && (w->c.size & (w->c.size - 1));
  int empty = w->c.start || w->c.nelem < (size_t)w->c.size * 64;
  int at_most = a == &tr__algorithm_double_tree || short_tree || local || empty;
  if (depth > claimed || (depth < claimed && !at_most))
    print_error("%s, %s over %d: %d rounds\n", a->name, tr__kind_name(w->c.kind), w->c.size, depth);
  assert_in_range(claimed, depth, at_most ? 1000 : depth);
}

static void try_case(const tr__algorithm *a, tr__case c) {
  size_t pairs = (size_t)c.size * (size_t)c.size;
  world w = {.c = c};
  w.rank = calloc((size_t)c.size, sizeof *w.rank);
  w.queue = malloc(pairs * QUEUE * sizeof *w.queue);
  w.sent = calloc(pairs, sizeof *w.sent);
  w.taken = calloc(pairs, sizeof *w.taken);
  assert_true(w.rank && w.queue && w.sent && w.taken);
  for (int i = 0; i < c.size; i++) {
    w.rank[i].script = tr__script_build(a, c.kind, c.size, i, c.root, c.local);
    assert_non_null(w.rank[i].script);
  }
  int aligned = !a->hosts || (c.local & (c.local - 1)) == 0;
  w.ordered = tr__kind_reduces(c.kind) && (a->ordered & tr__bit(c.kind)) && aligned;
  for (int i = 0; i < c.size; i++) {
    walker *r = &w.rank[i];
    r->value = calloc((size_t)(r->script->nreg + 2) * (size_t)r->script->parts, sizeof *r->value);
    assert_non_null(r->value);
    for (int part = 0; part < r->script->parts; part++)
      *value(r, tr__run_of(TR__SOURCE, part, 1), 0) = (span){i, i + 1};
  }
  walk(&w);
  check_claims(&w, a);
  for (int i = 0; i < c.size; i++) {
    if (w.ordered) check_results(&w, i, a->hosts);
    free(w.rank[i].value);
    tr__script_free(w.rank[i].script);
  }
  free(w.pool);
  free(w.taken);
  free(w.sent);
  free(w.queue);
  free(w.rank);
}

// Blocks of very unequal length.
static void uneven(size_t start[MOST + 1], int size, size_t n) {
  start[0] = 5;
  for (int i = 0; i < size; i++) start[i + 1] = start[i] + (i % 3 == 1 ? 0 : n * (size_t)i / 2);
}

static void try_sizes(const tr__algorithm *a, tr__case c) {
  const size_t sizes[] = {0, 1, 33, 1000, 4096 * (size_t)c.size};
  size_t start[MOST + 1];
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    c.nelem = sizes[i];
    c.start = NULL;
    if (c.kind == TR__REDUCE_SCATTER_V || c.kind == TR__ALLGATHER_V) {
      uneven(start, c.size, sizes[i]);
      c.start = start;
      c.nelem = start[c.size];
    }
    try_case(a, c);
  }
}

static void try_algorithm(const tr__algorithm *a, int size, int local) {
  for (int kind = TR__ALLREDUCE; kind < TR__SEND; kind++) {
    tr__case c = {.kind = (tr__kind)kind, .size = size, .local = local, .width = 2, .wide = 4};
    if (kind == TR__ALLTOALL_V || tr__algorithm_refuses(a, &c, 1)) continue;
    int roots[] = {0, size - 1, size / 2};
    for (int i = 0; i < (tr__kind_has_root(c.kind) ? 3 : 1); i++) {
      c.root = roots[i];
      try_sizes(a, c);
    }
  }
}

static void scripts_of_all_ranks_fit_and_do_what_they_claim(void **state) {
  (void)state;
  for (int size = 2; size <= 17; size++)
    for (int i = 0; tr__algorithms[i]; i++)
      if (!tr__algorithms[i]->hosts) try_algorithm(tr__algorithms[i], size, 0);
  for (int i = 0; tr__algorithms[i]; i++)
    if (!tr__algorithms[i]->hosts) try_algorithm(tr__algorithms[i], 32 + i % 3, 0);
}

static void scripts_over_hosts_fit_and_do_what_they_claim(void **state) {
  (void)state;
  for (int local = 2; local <= 4; local++)
    for (int hosts = 2; hosts <= 5; hosts++) {
      try_algorithm(&tr__algorithm_hierarchical, local * hosts, local);
      try_algorithm(&tr__algorithm_leaders, local * hosts, local);
      try_algorithm(&tr__algorithm_leaders, local * hosts - 1, local);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(scripts_of_all_ranks_fit_and_do_what_they_claim),
      cmocka_unit_test(scripts_over_hosts_fit_and_do_what_they_claim),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
