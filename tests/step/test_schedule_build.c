// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that generated schedules are, pass by pass, those of tests/data/step; that every one which a rule allows can run and
// no other is refused by a rule than those that are known; that peaks are those of the table and of closed forms; and that
// refusals name numbers that work.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "step/schedule_cases.h"
#include "trireme/base/file.h"
#include <dirent.h>

enum { STAGES = 64 };

// ---- lists

// "zbv_p4_m8_v2.csv"
static int compare_file(const char *file) {
  char name[TR_SCHEDULE_NAME], path[512], *text;
  const char *numbers = strstr(file, "_p");
  int p, m, v;
  size_t size;
  if (!numbers || sscanf(numbers, "_p%d_m%d_v%d.csv", &p, &m, &v) != 3) return 0;
  snprintf(name, sizeof name, "%.*s", (int)(numbers - file), file);
  snprintf(path, sizeof path, TRIREME_TEST_DATA "/step/%s", file);
  assert_int_equal(tr_file_read(path, 1 << 20, &text, &size), TR_OK);
  tr_schedule schedule;
  tr_text made = {0};
  sc_build(name, p, m, v, &schedule);
  tr_schedule_print(&schedule, 0, &made);
  if (strcmp(made.data, text)) fail_msg("%s is not\n%s", file, made.data);
  tr_text_free(&made);
  tr_schedule_destroy(&schedule);
  free(text);
  return 1;
}

static void lists_are_those_of_the_files(void **state) {
  (void)state;
  int n = 0;
  DIR *folder = opendir(TRIREME_TEST_DATA "/step");
  assert_non_null(folder);
  for (struct dirent *entry; (entry = readdir(folder));) n += compare_file(entry->d_name);
  closedir(folder);
  assert_int_equal(n, 27);
}

static void check_one(const tr_schedule *s) {
  if (tr_schedule_check(s) != TR_OK) fail_msg("p %d m %d v %d: %s", s->p, s->m, s->v, tr_status_text());
  int descends = !strcmp(s->name, "gpipe_lifo") || !strcmp(s->name, "looped_bfs") || !strcmp(s->name, "dualpipe");
  assert_int_equal(tr_schedule_ascends(s), s->map != TR_STAGES_BOTH && (!descends || s->m == 1));
  for (int r = 0; r < s->p; r++) {
    int stage[STAGES], n = tr_schedule_stages(s, r, stage);
    assert_int_equal(n, s->v);
    for (int c = 0; c < n; c++) {
      if (c > 0) assert_true(stage[c] > stage[c - 1]);
      assert_true(tr_schedule_rank(s, stage[c], 0) == r || tr_schedule_rank(s, stage[c], s->m - 1) == r);
    }
  }
}

static void all_that_rules_allow_can_run(void **state) {
  (void)state;
  assert_true(sc_each(check_one) > 1500);
}

static void members_of_the_family_and_groups_can_run(void **state) {
  (void)state;
  for (int p = 1; p <= 6; p++)
    for (int m = 1; m <= 3 * p; m++)
      for (int k = 1; k <= m; k++) {
        char name[TR_SCHEDULE_NAME];
        tr_schedule s;
        snprintf(name, sizeof name, "zb_e%d", k);
        int allowed = k <= p - 1 && k <= m - p;
        assert_int_equal(sc_try(name, p, m, 0, 0, &s) == TR_OK, allowed);
        if (allowed) check_one(&s), tr_schedule_destroy(&s);
        allowed = k >= p && (m % k == 0 || m % k >= p);
        for (int zb = 0; zb < 2; zb++) {
          assert_int_equal(sc_try(zb ? "interleaved_zb" : "interleaved", p, m, 3, k, &s) == TR_OK, allowed);
          if (allowed) check_one(&s), tr_schedule_destroy(&s);
        }
      }
}

// ---- rules

static int allowed(const char *name, int p, int m) {
  if (!strcmp(name, "interleaved") || !strcmp(name, "interleaved_zb")) return m % p == 0;
  if (!strcmp(name, "interleaved_flex")) return m < p || m % (m / p) == 0;
  if (!strcmp(name, "dualpipe")) return p % 2 == 0 && m % 2 == 0 && m >= 2 * p;
  if (!strcmp(name, "dualpipev")) return m >= 2 * p;
  return 1;
}

static void rules_are_those_of_the_schedules(void **state) {
  (void)state;
  const char *name, *what;
  int n = 0;
  for (; (name = tr_schedule_known(n, &what)); n++) {
    assert_true(what && what[0]);
    for (int p = 1; p <= 9; p++)
      for (int m = 1; m <= 40; m++) {
        tr_schedule s;
        if ((sc_try(name, p, m, 0, 0, &s) == TR_OK) != allowed(name, p, m)) fail_msg("%s p %d m %d", name, p, m);
        if (allowed(name, p, m)) tr_schedule_destroy(&s);
      }
  }
  assert_int_equal(n, 15);
  assert_null(tr_schedule_known(-1, &what));
}

typedef struct refusal {
  tr_schedule_spec spec;
  const char *says; // part of the sentence
} refusal;

static void refusals_name_numbers_that_work(void **state) {
  (void)state;
  static const refusal row[] = {
      {{"interleaved", 4, 6, 2, 0}, "m 4 or m 8 or group 6 works"},
      {{"interleaved", 4, 2, 2, 0}, "m 4 or schedule interleaved_flex works"},
      {{"interleaved", 4, 8, 2, 3}, "group 4 works"},
      {{"interleaved", 4, 8, 2, 9}, "group 8 works"},
      {{"interleaved", 4, 8, 2, -5}, "group 4 works"},
      {{"interleaved", 4, 8, 2, 6}, "last group of 2"},
      {{"interleaved", 4, 8, -1, 0}, "v -1"},
      {{"interleaved_zb", 4, 9, 2, 0}, "m 8 or m 12"},
      {{"interleaved", 4, 4095, 2, 0}, "m 4092 or m 4096"},
      {{"interleaved", 5, 4096, 2, 0}, "m 4095 or group"},
      {{"interleaved_flex", 4, 9, 2, 0}, "m 8 or m 10 works"},
      {{"interleaved_flex", 4, 8, 2, 4}, "only interleaved and interleaved_zb take a group"},
      {{"1f1b", 4, 8, 2, 0}, "it has v 1"},
      {{"zbv", 4, 8, 3, 0}, "it has v 2"},
      {{"zbv", 4, 8, -2, 0}, "it has v 2"},
      {{"1f1b", 0, 8, 0, 0}, "p 1 to"},
      {{"1f1b", 65536, 8, 0, 0}, "p 1 to 65535 works"},
      {{"zbv", 32768, 1, 0, 0}, "p 1 to 32767 works"},
      {{"1f1b", 4, 0, 0, 0}, "m 1 to 4096 works"},
      {{"1f1b", 4, 4097, 0, 0}, "m 1 to 4096 works"},
      {{"1f1b", 40000, 4096, 0, 0}, "m up to 139 works"},
      {{"interleaved", 1, 1, 65536, 0}, "v 1 to 65535 works"},
      {{"zb_e3", 3, 9, 0, 0}, "zb_e2 works"},
      {{"zb_e2", 4, 5, 0, 0}, "m 6 or zb_e1 works"},
      {{"zb_e9", 4, 4, 0, 0}, "zb_e0 works"},
      {{"dualpipe", 1, 8, 0, 0}, "p 2 works"},
      {{"dualpipe", 3, 8, 0, 0}, "p 2 or p 4 works"},
      {{"dualpipe", 4, 6, 0, 0}, "m 8 works"},
      {{"dualpipe", 4, 9, 0, 0}, "m 8 or m 10 works"},
      {{"dualpipev", 4, 7, 0, 0}, "m 8 works"},
      {{"gpip", 4, 8, 0, 0}, "did you mean gpipe?"},
      {{"zb_e", 4, 8, 0, 0}, "no schedule is called"},
      {{"zb_e01", 4, 8, 0, 0}, "no schedule is called"},
      {{"zb_e1x", 4, 8, 0, 0}, "no schedule is called"},
      {{"zb_e123456", 4, 8, 0, 0}, "no schedule is called"},
      {{NULL, 4, 8, 0, 0}, "known are naive, gpipe, "},
  };
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    tr_schedule s;
    if (tr_schedule_build(&row[i].spec, &s) != TR_ERR_PLAN || !strstr(tr_status_text(), row[i].says))
      fail_msg("row %d does not say \"%s\": %s", (int)i, row[i].says, tr_status_text());
  }
}

// ---- peaks

static void compare_row(const sc_row *row) {
  tr_schedule s;
  int peak[SC_RANKS];
  sc_build(row->name, row->p, row->m, row->v, &s);
  tr_schedule_peaks(&s, TR_HOLD_UNTIL_W, peak, NULL);
  for (int r = 0; r < row->p; r++)
    if (peak[r] != row->peak[r])
      fail_msg("%s p %d m %d v %d: rank %d has %d, the table %d", row->name, row->p, row->m, row->v, r, peak[r],
               row->peak[r]);
  tr_schedule_destroy(&s);
}

static void peaks_are_those_of_the_table(void **state) {
  (void)state;
  assert_int_equal(sc_rows(compare_row), 350);
}

typedef struct stage_row {
  const char *name;
  int p, m, v;
  tr_hold hold;
  int rank[4], stage[8]; // stages by rank, then chunk
} stage_row;

static void peaks_of_ranks_and_stages(void **state) {
  (void)state;
  static const stage_row row[] = {
      {"interleaved", 4, 8, 2, TR_HOLD_UNTIL_W, {11, 9, 7, 5}, {8, 4, 8, 4, 7, 3, 5, 1}},
      {"zbv", 4, 8, 2, TR_HOLD_UNTIL_W, {8, 8, 8, 8}, {8, 1, 7, 2, 6, 3, 5, 4}},
      {"dualpipev", 4, 8, 2, TR_HOLD_UNTIL_W, {9, 9, 9, 9}, {8, 1, 7, 2, 6, 3, 5, 4}},
      {"dualpipe", 4, 8, 2, TR_HOLD_UNTIL_W, {5, 5, 5, 5}, {4, 1, 3, 2, 3, 2, 4, 1}},
      {"interleaved_zb", 4, 8, 2, TR_HOLD_UNTIL_W, {8, 8, 8, 8}, {8, 4, 8, 4, 8, 4, 8, 4}},
      {"interleaved_zb", 4, 8, 2, TR_HOLD_UNTIL_I, {8, 7, 6, 5}, {0}},
      {"zb_h1", 4, 8, 1, TR_HOLD_UNTIL_W, {4, 4, 4, 4}, {4, 4, 4, 4}},
      {"zb_h1", 4, 8, 1, TR_HOLD_UNTIL_I, {4, 3, 2, 1}, {4, 3, 2, 1}},
      {"zb_h2", 4, 8, 1, TR_HOLD_UNTIL_W, {7, 7, 7, 7}, {7, 7, 7, 7}},
      {"zb_h2", 4, 8, 1, TR_HOLD_UNTIL_I, {7, 5, 3, 1}, {7, 5, 3, 1}},
      {"zbv", 2, 4, 2, TR_HOLD_UNTIL_W, {4, 4}, {4, 1, 3, 2}},
      {"naive", 4, 8, 1, TR_HOLD_UNTIL_W, {1, 1, 1, 1}, {1, 1, 1, 1}},
  };
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    const stage_row *x = &row[i];
    tr_schedule s;
    int rank[4], stage[8];
    sc_build(x->name, x->p, x->m, x->v, &s);
    tr_schedule_peaks(&s, x->hold, rank, stage);
    for (int r = 0; r < x->p; r++) assert_int_equal(rank[r], x->rank[r]);
    for (int c = 0; c < x->p * x->v && x->stage[0]; c++)
      if (stage[c] != x->stage[c]) fail_msg("%s: chunk %d has %d", x->name, c, stage[c]);
    tr_schedule_destroy(&s);
  }
}

static int smaller(int a, int b) { return a < b ? a : b; }

// What the literature says of ranks, for m >= 1 unless said; -1: it says nothing.
static int known_peak(const tr_schedule *s, tr_hold hold, int r) {
  int p = s->p, m = s->m, v = s->v, whole = hold == TR_HOLD_UNTIL_W;
  const char *name = s->name;
  if (!strcmp(name, "naive")) return 1;
  if (!strcmp(name, "gpipe") || !strcmp(name, "gpipe_lifo")) return m;
  if (!strcmp(name, "looped_bfs")) return m * v;
  if (!strcmp(name, "1f1b")) return smaller(m, p - r);
  if (!strcmp(name, "1f1b_eager")) return smaller(m, 2 * (p - r) - 1);
  if (!strcmp(name, "interleaved")) return smaller(m * v, 2 * (p - 1 - r) + (v - 1) * p + 1);
  if (!strcmp(name, "interleaved_zb") && whole) return v * p;
  if (!strcmp(name, "zb_h1") || !strcmp(name, "zb_e0")) return smaller(m, whole ? p : p - r);
  if (!strcmp(name, "zb_h2")) return m < 2 * p - 1 ? -1 : whole ? 2 * p - 1 : 2 * (p - r) - 1;
  if (!strcmp(name, "zbv")) return m < 2 * p - 1 ? -1 : 2 * p;
  if (!strcmp(name, "dualpipe") && whole) return p + 1;
  if (!strcmp(name, "dualpipev") && whole) return 2 * p + 1;
  return -1;
}

static void compare_known(const tr_schedule *s) {
  int rank[2][8], stage[8 * 3];
  for (int hold = TR_HOLD_UNTIL_W; hold <= TR_HOLD_UNTIL_I; hold++) {
    tr_schedule_peaks(s, (tr_hold)hold, rank[hold], stage);
    for (int r = 0; r < s->p; r++) {
      int known = known_peak(s, (tr_hold)hold, r), sum = 0, most = 0;
      if (known >= 0 && rank[hold][r] != known)
        fail_msg("%s p %d m %d v %d rank %d: %d, not %d", s->name, s->p, s->m, s->v, r, rank[hold][r], known);
      for (int c = 0; c < s->v; c++) {
        sum += stage[r * s->v + c];
        most = stage[r * s->v + c] > most ? stage[r * s->v + c] : most;
      }
      assert_true(most >= 1 && most <= rank[hold][r] && rank[hold][r] <= sum);
      assert_true(rank[TR_HOLD_UNTIL_W][r] >= rank[hold][r]);
    }
  }
}

static void peaks_are_those_of_closed_forms(void **state) {
  (void)state;
  assert_true(sc_each(compare_known) > 1500);
}

// p + e alive on every rank.
static void peaks_of_the_family_grow_by_one(void **state) {
  (void)state;
  for (int p = 2; p <= 6; p++)
    for (int e = 0; e < p; e++)
      for (int m = p + e; m <= 3 * p; m++) {
        char name[TR_SCHEDULE_NAME];
        int peak[8];
        tr_schedule s;
        snprintf(name, sizeof name, "zb_e%d", e);
        sc_build(name, p, m, 0, &s);
        tr_schedule_peaks(&s, TR_HOLD_UNTIL_W, peak, NULL);
        for (int r = 0; r < p; r++) assert_int_equal(peak[r], p + e);
        tr_schedule_destroy(&s);
      }
}

static void largest_schedules_are_built_and_proved(void **state) {
  (void)state;
  tr_schedule s;
  sc_build("zb_h1", 1365, 4096, 0, &s);
  assert_int_equal(s.begin[s.p], 3 * 1365 * 4096);
  assert_int_equal(tr_schedule_check(&s), TR_OK);
  tr_schedule_destroy(&s);
  sc_build("interleaved", 1, 2, 65535, &s);
  assert_int_equal(tr_schedule_check(&s), TR_OK);
  tr_schedule_destroy(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lists_are_those_of_the_files),
      cmocka_unit_test(all_that_rules_allow_can_run),
      cmocka_unit_test(members_of_the_family_and_groups_can_run),
      cmocka_unit_test(rules_are_those_of_the_schedules),
      cmocka_unit_test(refusals_name_numbers_that_work),
      cmocka_unit_test(peaks_are_those_of_the_table),
      cmocka_unit_test(peaks_of_ranks_and_stages),
      cmocka_unit_test(peaks_are_those_of_closed_forms),
      cmocka_unit_test(peaks_of_the_family_grow_by_one),
      cmocka_unit_test(largest_schedules_are_built_and_proved),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
