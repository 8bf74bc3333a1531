// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Loss curves: what is read from metrics.jsonl (damaged lines, events, null losses, resumed runs) and what is
// drawn, as text and as SVG. The text is checked by where its marks stand, the SVG by its structure and by
// the points of its lines.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/file.h"
#include "trireme/train/train.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[] = "/tmp/trireme-curve-XXXXXX";
static char metrics[128], svg[128];

static int make_folder(void **state) {
  (void)state;
  if (!mkdtemp(folder)) return 1;
  snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", folder);
  snprintf(svg, sizeof svg, "%s/loss.svg", folder);
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  return tr_file_remove_tree(folder) < 0;
}

static void write_metrics(const char *data) {
  remove(metrics);
  remove(svg);
  assert_int_equal(tr_file_append(metrics, data, strlen(data)), TR_OK);
}

static tr_text draw(const char *data, const char *svg_path, int columns, int rows) {
  tr_text text = {0};
  write_metrics(data);
  assert_int_equal(tr_curve_draw(metrics, svg_path, columns, rows, &text), TR_OK);
  assert_non_null(text.data);
  return text;
}

static char *read_svg(void) {
  char *data;
  size_t nbyte;
  assert_int_equal(tr_file_read(svg, 1 << 22, &data, &nbyte), TR_OK);
  return data;
}

// Points of the polyline of this class.
static int points_of(const char *data, const char *class) {
  char start[64];
  int count = 0;
  snprintf(start, sizeof start, "<polyline class=\"%s\" points=\"", class);
  const char *at = strstr(data, start);
  assert_non_null(at);
  for (at += strlen(start); *at && *at != '"'; at++) count += *at == ',';
  return count;
}

static int count_of(const char *text, char mark) {
  int count = 0;
  for (; *text; text++) count += *text == mark;
  return count;
}

// Row of the drawing (from 0) in which `mark` first stands inside the axes, in column `column` of them; -1: nowhere.
static int row_with(const char *text, int column, char mark) {
  int row = 0;
  for (const char *line = text; line && *line; row++) {
    const char *end = strchr(line, '\n'), *bar = strchr(line, '|');
    if (!bar || bar > end) return -1;
    if (bar + 1 + column < end && bar[1 + column] == mark) return row;
    line = end + 1;
  }
  return -1;
}

static void falling_losses_fall_from_top_left_to_bottom_right(void **state) {
  (void)state;
  tr_text text = draw("{\"step\":1,\"loss\":5}\n{\"step\":50,\"loss\":3}\n{\"step\":99,\"loss\":1}\n", NULL, 52, 19);
  assert_int_equal(row_with(text.data, 0, '*'), 0);
  for (int x = 1; x < 40; x++) assert_true(row_with(text.data, x, '*') >= row_with(text.data, x - 1, '*')); // joined
  assert_true(row_with(text.data, 39, '*') > row_with(text.data, 20, '*'));
  assert_true(row_with(text.data, 20, '*') > 0);
  assert_non_null(strstr(text.data, "5 |"));
  assert_non_null(strstr(text.data, "1 |"));
  assert_non_null(strstr(text.data, "99\n"));
  assert_null(strstr(text.data, "validation"));
  assert_false(tr_file_exists(svg));
  tr_text_free(&text);
}

static void text_is_ascii_and_has_the_size_asked_for(void **state) {
  (void)state;
  tr_text text = draw("{\"step\":10,\"loss\":2.5,\"val_loss\":2.75}\n{\"step\":20,\"loss\":2.25}\n", NULL, 60, 16);
  assert_int_equal(count_of(text.data, '\n'), 16);
  for (const char *line = text.data; *line; line = strchr(line, '\n') + 1) assert_true(strcspn(line, "\n") <= 60);
  for (size_t i = 0; i < text.size; i++)
    assert_true(text.data[i] == '\n' || (text.data[i] >= 32 && text.data[i] < 127));
  tr_text_free(&text);
}

static void validation_losses_are_marked_apart(void **state) {
  (void)state;
  tr_text text = draw("{\"step\":0,\"loss\":2,\"val_loss\":1}\n{\"step\":10,\"loss\":2}\n", svg, 52, 19);
  assert_int_equal(row_with(text.data, 0, 'o'), 15);
  assert_int_equal(row_with(text.data, 0, '*'), 0);
  assert_non_null(strstr(text.data, "o validation"));
  char *data = read_svg();
  assert_int_equal(points_of(data, "train"), 2);
  assert_int_equal(points_of(data, "val"), 1);
  free(data);
  tr_text_free(&text);
}

static void truncated_and_garbled_lines_events_and_nulls_are_passed_over(void **state) {
  (void)state;
  tr_text text =
      draw("{\"step\":1,\"loss\":4.0}\n{\"step\":2,\"lo{\"step\":3,\"loss\":9}\n\n[1]\nnull\n"
           "{\"event\":\"resume\",\"step\":0,\"time\":\"x\",\"loss\":7}\n{\"step\":4,\"loss\":null}\n"
           "{\"step\":5,\"loss\":\"3\"}\n{\"step\":6,\"loss\":3.0}\n{\"step\":7,\"loss\":1e300}\n{\"step\":8,\"lo",
           svg, 60, 16);
  char *data = read_svg();
  assert_int_equal(points_of(data, "train"), 2);
  assert_non_null(strstr(text.data, "4 |"));
  assert_non_null(strstr(text.data, "3 |"));
  free(data);
  tr_text_free(&text);
}

static void later_record_of_a_repeated_step_wins(void **state) {
  (void)state;
  tr_text text =
      draw("{\"step\":10,\"loss\":4}\n{\"step\":20,\"loss\":100,\"val_loss\":50}\n{\"step\":30,\"loss\":90}\n"
           "{\"step\":20,\"loss\":3}\n{\"step\":30,\"loss\":2}\n",
           svg, 60, 16);
  char *data = read_svg();
  assert_int_equal(points_of(data, "train"), 3);
  assert_int_equal(points_of(data, "val"), 0);
  assert_non_null(strstr(text.data, "4 |"));
  assert_null(strstr(text.data, "100"));
  free(data);
  tr_text_free(&text);
}

static void null_loss_of_a_resumed_run_takes_the_old_one_back(void **state) {
  (void)state;
  tr_text text = draw("{\"step\":1,\"loss\":4}\n{\"step\":2,\"loss\":3}\n{\"step\":2,\"loss\":null}\n", svg, 60, 16);
  char *data = read_svg();
  assert_int_equal(points_of(data, "train"), 1);
  free(data);
  tr_text_free(&text);
}

static void empty_metrics_give_a_message_and_no_picture(void **state) {
  (void)state;
  const char *nothing[] = {"", "\n", "{\"event\":\"start\",\"step\":0}\n", "{\"step\":1,\"loss\":null}\n", "{\"st"};
  for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
    tr_text text = draw(nothing[i], svg, 60, 16);
    assert_non_null(strstr(text.data, "no losses"));
    assert_non_null(strstr(text.data, metrics));
    assert_false(tr_file_exists(svg));
    tr_text_free(&text);
  }
}

static void missing_metrics_are_an_error_that_names_the_file(void **state) {
  (void)state;
  tr_text text = {0};
  remove(metrics);
  assert_int_equal(tr_curve_draw(metrics, NULL, 60, 16, &text), TR_ERR_IO);
  assert_non_null(strstr(tr_status_text(), metrics));
  tr_text_free(&text);
}

static void one_point_and_a_flat_line_are_drawn(void **state) {
  (void)state;
  const char *flat[] = {"{\"step\":7,\"loss\":2}\n", "{\"step\":7,\"loss\":0}\n",
                        "{\"step\":1,\"loss\":2}\n{\"step\":9,\"loss\":2}\n"};
  for (size_t i = 0; i < sizeof flat / sizeof *flat; i++) {
    tr_text text = draw(flat[i], svg, 60, 16);
    assert_true(count_of(text.data, '*') > 1); // the legend has one
    assert_null(strstr(text.data, "nan"));
    char *data = read_svg();
    assert_null(strstr(data, "nan"));
    assert_null(strstr(data, "inf"));
    free(data);
    tr_text_free(&text);
  }
}

// 20 000 steps: the picture stays small, and the text averages what falls into one column.
static void long_runs_are_thinned(void **state) {
  (void)state;
  tr_text lines = {0};
  for (int i = 0; i < 20000; i++) tr_text_append(&lines, "{\"step\":%d,\"loss\":%d}\n", i, i % 2 ? 1 : 3);
  tr_text_append(&lines, "{\"step\":20000,\"loss\":5}\n");
  tr_text text = draw(lines.data, svg, 52, 20);
  char *data = read_svg();
  int points = points_of(data, "train");
  assert_true(points > 500 && points <= 1300);
  // Ones and threes average to two: a level line at 3/4 of the height, between 5 above and 1 below.
  assert_int_equal(row_with(text.data, 20, '*'), 12);
  free(data);
  tr_text_free(&text);
  tr_text_free(&lines);
}

static void svg_is_whole_and_stands_alone(void **state) {
  (void)state;
  tr_text text =
      draw("{\"step\":1,\"loss\":5.5,\"val_loss\":5.6}\n{\"step\":300,\"loss\":1.5,\"val_loss\":1.7}\n", svg, 60, 16);
  char *data = read_svg();
  const char *needed[] = {"<svg xmlns=\"http://www.w3.org/2000/svg\"",
                          "<title>",
                          "prefers-color-scheme: dark",
                          ">step</text>",
                          ">loss</text>",
                          ">training 1.5 at step 300</text>",
                          ">validation 1.7 at step 300</text>",
                          ">100</text>",
                          ">2.0</text>",
                          "</svg>\n"};
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
    if (!strstr(data, needed[i])) fail_msg("the SVG lacks %s", needed[i]);
  assert_null(strstr(data, "href"));
  assert_null(strstr(data, "<script"));
  assert_int_equal(count_of(data, '<'), count_of(data, '>'));
  free(data);
  tr_text_free(&text);
}

static void a_folder_that_cannot_be_written_is_an_error(void **state) {
  (void)state;
  tr_text text = {0};
  write_metrics("{\"step\":1,\"loss\":5}\n");
  assert_int_equal(tr_curve_draw(metrics, "/nonexistent-folder/loss.svg", 60, 16, &text), TR_ERR_IO);
  assert_non_null(strstr(tr_status_text(), "/nonexistent-folder"));
  tr_text_free(&text);
}

// Cut the file at every byte: whatever a killed run leaves behind is read.
static void every_prefix_of_a_file_is_drawn(void **state) {
  (void)state;
  const char whole[] = "{\"step\":1,\"loss\":5.5,\"val_loss\":5.6}\n{\"event\":\"resume\",\"step\":1}\n{"
                       "\"step\":2,\"loss\":4}\n";
  for (size_t n = 0; n < sizeof whole; n++) {
    char part[sizeof whole];
    memcpy(part, whole, n);
    part[n] = 0;
    tr_text text = draw(part, svg, 40, 10);
    assert_int_equal(strstr(text.data, "no losses") != NULL, n < strcspn(whole, "\n"));
    tr_text_free(&text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(falling_losses_fall_from_top_left_to_bottom_right),
      cmocka_unit_test(text_is_ascii_and_has_the_size_asked_for),
      cmocka_unit_test(validation_losses_are_marked_apart),
      cmocka_unit_test(truncated_and_garbled_lines_events_and_nulls_are_passed_over),
      cmocka_unit_test(later_record_of_a_repeated_step_wins),
      cmocka_unit_test(null_loss_of_a_resumed_run_takes_the_old_one_back),
      cmocka_unit_test(empty_metrics_give_a_message_and_no_picture),
      cmocka_unit_test(missing_metrics_are_an_error_that_names_the_file),
      cmocka_unit_test(one_point_and_a_flat_line_are_drawn),
      cmocka_unit_test(long_runs_are_thinned),
      cmocka_unit_test(svg_is_whole_and_stands_alone),
      cmocka_unit_test(a_folder_that_cannot_be_written_is_an_error),
      cmocka_unit_test(every_prefix_of_a_file_is_drawn),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
