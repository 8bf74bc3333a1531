// SPDX-License-Identifier: MIT
// tier: quick
// Which algorithm is chosen: a table of cases, what TRIREME_COMM and TRIREME_COMM_LINKS may say, and what is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/algorithm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const tr__algorithm *chosen(const tr__choice *choice, tr__case c) {
  const tr__algorithm *a = NULL;
  c.width = c.width ? c.width : 4;
  c.wide = 4;
  assert_int_equal(tr__algorithm_choose(choice, &c, &a), TR_OK);
  return a;
}

// Links of round numbers: a message costs as much as 100 kB over the network, 10 kB on the host.
static const tr__tiers plain = {.host = {1e-6, 1e10}, .network = {1e-4, 1e9}, .adding = 1e10};

static void the_fastest_is_chosen(void **state) {
  (void)state;
  const struct {
    tr__kind kind;
    int size, local;
    size_t nelem;
    int any_order;
    const char *name;
  } table[] = {
      {TR__ALLREDUCE, 2, 1, 1, 0, "doubling"},            // one round instead of two
      {TR__ALLREDUCE, 4, 1, 1, 0, "doubling"},            // fewer messages in as many rounds
      {TR__ALLREDUCE, 7, 1, 1000, 0, "direct"},           // two rounds instead of three
      {TR__ALLREDUCE, 64, 1, 1, 0, "doubling"},           // 126 messages cost more than four rounds
      {TR__ALLREDUCE, 2, 1, 10 << 20, 0, "direct"},       // half the bytes in as many rounds
      {TR__ALLREDUCE, 7, 1, 10 << 20, 0, "direct"},       // any number of ranks
      {TR__ALLREDUCE, 8, 4, 10 << 20, 0, "hierarchical"}, // a host's link is shared
      {TR__ALLREDUCE, 6, 3, 10 << 20, 0, "direct"},       // three ranks are no subtree
      {TR__ALLREDUCE, 6, 3, 10 << 20, 1, "hierarchical"}, // but may be where any order will do
      {TR__REDUCE_SCATTER, 4, 1, 1 << 20, 0, "direct"},   // fewest bytes, one round
      {TR__ALLGATHER, 8, 1, 1, 0, "direct"},
      {TR__ALLGATHER, 64, 1, 1, 0, "doubling"},
      {TR__ALLGATHER, 63, 1, 1, 0, "bruck"},
      {TR__ALLTOALL, 64, 1, 1, 0, "bruck"},
      {TR__ALLTOALL, 16, 1, 1 << 20, 0, "direct"},
      {TR__ALLTOALL_V, 5, 1, 0, 0, "direct"}, // nothing else can
      {TR__BROADCAST, 16, 1, 1, 0, "star"},   // one round: 15 tiny messages
      {TR__BROADCAST, 16, 1, 1 << 16, 0, "tree"},
      {TR__BROADCAST, 16, 1, 100 << 20, 0, "double-tree"}, // strands, few rounds
      {TR__REDUCE, 8, 1, 1 << 20, 0, "tree"},
      {TR__GATHER, 8, 1, 1 << 20, 0, "star"}, // as many bytes reach the root either way
      {TR__BARRIER, 2, 1, 0, 0, "doubling"},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    tr__choice choice = {.tiers = plain, .any_order = table[i].any_order};
    tr__case c = {.kind = table[i].kind, .size = table[i].size, .local = table[i].local, .nelem = table[i].nelem};
    const tr__algorithm *a = chosen(&choice, c);
    if (strcmp(a->name, table[i].name) != 0) {
      print_error("row %zu: %s\n", i, a->name);
      for (int k = 0; tr__algorithms[k]; k++)
        if (!tr__algorithm_refuses(tr__algorithms[k], &c, choice.any_order))
          print_error("  %s\n", tr__algorithms[k]->name);
    }
    assert_string_equal(a->name, table[i].name);
  }
}

// Whatever is asked, something can do it in the contract's order.
static void every_operation_has_an_algorithm(void **state) {
  (void)state;
  tr__choice choice = {.tiers = plain};
  for (int kind = TR__ALLREDUCE; kind < TR__SEND; kind++)
    for (int size = 2; size <= 33; size++)
      for (int local = 0; local <= 4; local++) {
        size_t start[40] = {0};
        for (int i = 0; i < size; i++) start[i + 1] = start[i] + (size_t)i * 50;
        int v = kind == TR__REDUCE_SCATTER_V || kind == TR__ALLGATHER_V;
        tr__case c = {.kind = (tr__kind)kind, .size = size, .local = local, .nelem = v ? start[size] : 1000};
        c.start = v ? start : NULL;
        const tr__algorithm *a = chosen(&choice, c);
        assert_true(a->kinds & tr__bit(c.kind));
        assert_true(!tr__kind_reduces(c.kind) || (a->ordered & tr__bit(c.kind)));
      }
}

// ---- what the environment says

static void demands_are_read(void **state) {
  (void)state;
  tr__forced f;
  assert_int_equal(tr__forced_parse(NULL, &f), TR_OK);
  for (int k = 0; k < TR__KINDS; k++) assert_null(f.algorithm[k]);
  assert_int_equal(tr__forced_parse("ring", &f), TR_OK);
  assert_ptr_equal(f.algorithm[TR__ALLREDUCE], &tr__algorithm_ring);
  assert_ptr_equal(f.algorithm[TR__ALLGATHER_V], &tr__algorithm_ring);
  assert_null(f.algorithm[TR__BROADCAST]);
  assert_int_equal(tr__forced_parse("allreduce=ring,alltoall=bruck,broadcast=chain", &f), TR_OK);
  assert_ptr_equal(f.algorithm[TR__ALLREDUCE], &tr__algorithm_ring);
  assert_ptr_equal(f.algorithm[TR__ALLTOALL], &tr__algorithm_bruck);
  assert_null(f.algorithm[TR__ALLTOALL_V]); // another operation, with a name of its own
  assert_null(f.algorithm[TR__ALLGATHER]);
  assert_int_equal(tr__forced_parse("allreduce=hierarchical/4", &f), TR_OK);
  assert_int_equal(f.local, 4);
}

static void several_hosts_are_not_demanded_of_one(void **state) {
  (void)state;
  tr__choice choice = {.tiers = plain};
  assert_int_equal(tr__forced_parse("hierarchical", &choice.forced), TR_OK);
  assert_null(tr__choice_demand(&choice, TR__ALLREDUCE, 0));
  assert_ptr_equal(tr__choice_demand(&choice, TR__ALLREDUCE, 2), &tr__algorithm_hierarchical);
  assert_ptr_equal(chosen(&choice, (tr__case){.kind = TR__ALLREDUCE, .size = 4, .local = 2, .nelem = 1}),
                   &tr__algorithm_hierarchical);
  assert_ptr_not_equal(chosen(&choice, (tr__case){.kind = TR__ALLREDUCE, .size = 4, .nelem = 1}),
                       &tr__algorithm_hierarchical);
}

static void wrong_demands_say_what_there_is(void **state) {
  (void)state;
  const struct {
    const char *text, *sentence;
  } table[] = {
      {"rings", "TRIREME_COMM: no algorithm is named 'rings'; there are direct, doubling, "},
      {"alltoall=ring", "TRIREME_COMM: ring cannot do alltoall; direct, bruck can"},
      {"alltoall_v=bruck", "TRIREME_COMM: bruck cannot do alltoall_v; direct can"},
      {"all_reduce=ring", "TRIREME_COMM: no operation is named 'all_reduce'; there are allreduce, "},
      {"hierarchical/0", "1 to 256 ranks can count as a host"},
      {"hierarchical/x", "x"},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    tr__forced f;
    assert_int_equal(tr__forced_parse(table[i].text, &f), TR_ERR_CONFIG);
    assert_non_null(strstr(tr_status_text(), table[i].sentence));
  }
  char much[400];
  tr__forced f;
  memset(much, 'a', sizeof much - 1);
  much[sizeof much - 1] = 0;
  assert_int_equal(tr__forced_parse(much, &f), TR_ERR_CONFIG);
}

static tr_status load(const char *text, tr__tiers *tiers) {
  char path[] = "/tmp/trireme-links-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
  close(fd);
  tr_status status = tr__tiers_load(path, tiers);
  unlink(path);
  return status;
}

static void links_are_read(void **state) {
  (void)state;
  tr__tiers t;
  tr__tiers_init(&t);
  tr__tier host = t.host;
  assert_int_equal(
      load("links:\n  - tier: network\n    latency: 2.5e-05\n    bandwidth: 1.25e7\n    source: \"measured\"\n", &t),
      TR_OK);
  assert_true(t.network.latency == 2.5e-05 && t.network.bandwidth == 1.25e7);
  assert_memory_equal(&t.host, &host, sizeof host);
  assert_true(t.adding == 8e9); // not told
  assert_int_equal(
      load("links:\n  - tier: network\n    latency: 2.5e-05\n    bandwidth: 1.25e7\n    adding: 5e9\n", &t), TR_OK);
  assert_true(t.adding == 5e9);
  const struct {
    const char *text, *sentence;
  } table[] = {
      {"links:\n  - tier: moon\n    latency: 1\n    bandwidth: 1\n", "tier is 'moon'; host or network is needed"},
      {"links:\n  - tier: host\n    latency: 0\n    bandwidth: 1\n", "latency is '0'; a number above 0 is needed"},
      {"links:\n  - tier: host\n    latency: 1\n", "a link needs a number 'bandwidth'"},
      {"links:\n  - tier: host\n    latency: 1\n    bandwidth: 1\n    adding: -1\n",
       "adding is '-1'; a number above 0"},
      {"nodes: 3\n", "has no list 'links'"},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    assert_int_equal(load(table[i].text, &t), TR_ERR_CONFIG);
    if (!strstr(tr_status_text(), table[i].sentence)) print_error("%s\n", tr_status_text());
    assert_non_null(strstr(tr_status_text(), table[i].sentence));
    assert_true(t.network.bandwidth == 1.25e7); // as it was
  }
  assert_int_equal(tr__tiers_load("/nowhere/links.yaml", &t), TR_ERR_IO);
}

static void demand_for_an_operation_is_never_passed_over(void **state) {
  (void)state;
  tr__choice choice = {.tiers = plain, .any_order = 1};
  const struct {
    const char *demand;
    tr__case c;
    const char *sentence;
  } table[] = {
      {"allreduce=hierarchical",
       {.kind = TR__ALLREDUCE, .size = 4, .local = 1, .nelem = 1},
       "demands hierarchical for all-reduce over 4 ranks: the ranks must be on several hosts, with more than one on "
       "each; "},
      {"allreduce=halving",
       {.kind = TR__ALLREDUCE, .size = 6, .nelem = 1},
       "demands halving for all-reduce over 6 ranks: the ranks must be a power of two; "},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    const tr__algorithm *a;
    tr__case c = table[i].c;
    c.width = c.wide = 4;
    assert_int_equal(tr__forced_parse(table[i].demand, &choice.forced), TR_OK);
    assert_int_equal(tr__algorithm_choose(&choice, &c, &a), TR_ERR_CONFIG);
    if (!strstr(tr_status_text(), table[i].sentence)) print_error("%s\n", tr_status_text());
    assert_non_null(strstr(tr_status_text(), table[i].sentence));
  }
}

static void demand_for_levels_needs_hosts(void **state) {
  (void)state;
  const struct {
    const char *demand;
    int nrank, nhost;
    const char *sentence; // NULL: it can be
  } table[] = {
      {"hierarchical", 4, 2, NULL},
      {"hierarchical", 1, 1, NULL},
      {"ring", 4, 1, NULL},
      {"allreduce=hierarchical/2", 4, 1, NULL},
      {"hierarchical", 4, 1, "but all 4 ranks are on one; direct, doubling, halving, "},
      {"allreduce=leaders", 3, 1, "or leaders/2 would work"},
      {"hierarchical/4", 4, 1,
       "TRIREME_COMM demands hierarchical, which is for several hosts with more than one rank each"},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    tr__choice choice = {.tiers = plain};
    assert_int_equal(tr__forced_parse(table[i].demand, &choice.forced), TR_OK);
    tr_status status = tr__choice_check(&choice, table[i].nrank, table[i].nhost);
    assert_int_equal(status, table[i].sentence ? TR_ERR_CONFIG : TR_OK);
    if (table[i].sentence && !strstr(tr_status_text(), table[i].sentence)) print_error("%s\n", tr_status_text());
    assert_true(!table[i].sentence || strstr(tr_status_text(), table[i].sentence));
  }
}

static void demand_without_an_operation_says_what_it_leaves_alone(void **state) {
  (void)state;
  const struct {
    const char *demand, *sentence;
  } table[] = {
      {"ring",
       "TRIREME_COMM=ring is for allreduce, reduce_scatter, allgather, reduce_scatter_v, allgather_v; it cannot do "
       "reduce, alltoall, broadcast, gather, scatter, barrier, alltoall_v, which go their usual way"},
      {"bruck,allreduce=tree",
       "TRIREME_COMM=bruck is for allgather, alltoall, allgather_v; it cannot do reduce, "
       "reduce_scatter, broadcast, gather, scatter, barrier, reduce_scatter_v, alltoall_v, which go "
       "their usual way"},
      {"allreduce=ring,alltoall=direct", ""},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    tr__choice choice = {.tiers = plain};
    tr_text said = {0};
    assert_int_equal(tr__forced_parse(table[i].demand, &choice.forced), TR_OK);
    tr__choice_say(&choice, &said);
    assert_string_equal(said.data ? said.data : "", table[i].sentence);
    tr_text_free(&said);
  }
}

static void the_environment_is_read_once(void **state) {
  (void)state;
  tr__choice *choice;
  setenv("TRIREME_COMM", "tree", 1);
  assert_int_equal(tr__choice_create(1, &choice), TR_OK);
  unsetenv("TRIREME_COMM");
  assert_true(tr__choice_forces(choice));
  assert_ptr_equal(chosen(choice, (tr__case){.kind = TR__ALLREDUCE, .size = 4, .nelem = 1 << 20}),
                   &tr__algorithm_tree);
  free(choice);
  assert_int_equal(tr__choice_create(0, &choice), TR_OK);
  assert_false(tr__choice_forces(choice));
  free(choice);
  setenv("TRIREME_COMM_LINKS", "/nowhere/links.yaml", 1);
  assert_int_equal(tr__choice_create(0, &choice), TR_ERR_IO);
  unsetenv("TRIREME_COMM_LINKS");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_fastest_is_chosen),
      cmocka_unit_test(every_operation_has_an_algorithm),
      cmocka_unit_test(demands_are_read),
      cmocka_unit_test(wrong_demands_say_what_there_is),
      cmocka_unit_test(demand_for_an_operation_is_never_passed_over),
      cmocka_unit_test(demand_for_levels_needs_hosts),
      cmocka_unit_test(demand_without_an_operation_says_what_it_leaves_alone),
      cmocka_unit_test(several_hosts_are_not_demanded_of_one),
      cmocka_unit_test(links_are_read),
      cmocka_unit_test(the_environment_is_read_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
