// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that tensors in several files are found as if they were in one; that cutting, naming and the index agree with what
// opening expects; that every kind of index that does not fit its files is refused with the fault named, and no random
// damage to one crashes the reader; and that a file cut short while it is open is an error.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ckpt/scratch.h"
#include "trireme/ckpt/saver.h"
#include "trireme/ckpt/tensors.h"

#include <sys/stat.h>

static float values[64];

static tr_safetensors_item item_of(const char *name, int64_t count) {
  return (tr_safetensors_item){name, TR_F32, TR_F32, {1, {count}}, values, 0};
}

static void write_file(const scratch *folder, const char *name, const tr_safetensors_item *item, size_t nitem) {
  scratch path = scratch_path(folder, name);
  assert_int_equal(tr_safetensors_write(path.path, item, nitem, NULL, 0, NULL, NULL, NULL, NULL), TR_OK);
}

static void write_index(const scratch *folder, const char *text) {
  scratch path = scratch_path(folder, "model.safetensors.index.json");
  scratch_write(path.path, text, strlen(text));
}

// Three files with c, a | b | d: 3, 1, 8 and 0 floats.
static scratch make_folder(void) {
  scratch folder = scratch_make_fast();
  for (int i = 0; i < 64; i++) values[i] = (float)i;
  tr_safetensors_item first[] = {item_of("c", 3), item_of("a", 1)}, second = item_of("b", 8), third = item_of("d", 0);
  write_file(&folder, "model-00001-of-00003.safetensors", first, 2);
  write_file(&folder, "model-00002-of-00003.safetensors", &second, 1);
  write_file(&folder, "model-00003-of-00003.safetensors", &third, 1);
  return folder;
}

#define F1  "\"model-00001-of-00003.safetensors\""
#define F2  "\"model-00002-of-00003.safetensors\""
#define F3  "\"model-00003-of-00003.safetensors\""
#define MAP "{\"a\":" F1 ",\"b\":" F2 ",\"c\":" F1 ",\"d\":" F3 "}"

static void tensors_of_several_files_are_found_as_if_in_one(void **state) {
  (void)state;
  scratch folder = make_folder();
  static const char *const order[] = {"c", "a", "b", "d"};
  static const size_t file_of[] = {0, 0, 1, 2};
  write_index(&folder, "{\"metadata\":{\"total_size\":48},\"weight_map\":" MAP "}");
  tr_tensors *t;
  if (tr_tensors_open(folder.path, "model", &t) < 0) fail_msg("%s", tr_status_text());
  assert_int_equal(tr_tensors_count(t), 4);
  assert_int_equal(tr_tensors_files(t), 3);
  assert_true(tr_tensors_bytes(t) == 48);
  for (size_t i = 0; i < 4; i++) {
    const tr_safetensors_entry *entry = tr_tensors_at(t, i);
    assert_string_equal(entry->name, order[i]);
    assert_ptr_equal(entry, tr_tensors_find(t, order[i]));
    assert_int_equal(tr_tensors_file_of(t, i), file_of[i]);
  }
  assert_null(tr_tensors_at(t, 4));
  assert_null(tr_tensors_find(t, "e"));
  assert_null(tr_tensors_file(t, 3));
  scratch second = scratch_path(&folder, "model-00002-of-00003.safetensors");
  assert_string_equal(tr_tensors_file(t, 1), second.path);
  float back[8];
  assert_int_equal(tr_safetensors_read(tr_tensors_find(t, "b"), 0, TR_F32, back), TR_OK);
  assert_memory_equal(back, values, sizeof back);
  tr_tensors_close(t);
  // A file by itself, and a folder with links, as caches of downloaded models have.
  assert_int_equal(tr_tensors_open(second.path, NULL, &t), TR_OK);
  assert_int_equal(tr_tensors_count(t), 1);
  tr_tensors_close(t);
  scratch blob = scratch_path(&folder, "blob");
  assert_int_equal(rename(second.path, blob.path), 0);
  assert_int_equal(symlink("blob", second.path), 0);
  assert_int_equal(tr_tensors_open(folder.path, "model", &t), TR_OK);
  tr_tensors_close(t);
  tr_tensors_close(NULL);
  scratch_remove(&folder);
}

static void an_index_that_does_not_fit_is_refused_with_the_fault_named(void **state) {
  (void)state;
  static const struct {
    const char *text, *fragment;
  } rows[] = {
      {"", "not valid JSON"},
      {"[1]", "weight_map must be an object"},
      {"{}", "weight_map must be an object"},
      {"{\"weight_map\":[]}", "weight_map must be an object"},
      {"{\"weight_map\":{}}", "with 1 to"},
      {"{\"weight_map\":{\"a\":" F1 ",\"a\":" F2 "}}", "duplicate"},
      {"{\"weight_map\":{\"a\":1}}", "file of tensor 'a' is not a string"},
      {"{\"weight_map\":{\"a\":\"\"}}", "file '' of tensor 'a' is not a plain base name"},
      {"{\"weight_map\":{\"a\":\"..\"}}", "'..' of tensor 'a' is not a plain"},
      {"{\"weight_map\":{\"a\":\".hidden.safetensors\"}}", "is not a plain base name"},
      {"{\"weight_map\":{\"a\":\"../model.safetensors\"}}", "is not a plain base name"},
      {"{\"weight_map\":{\"a\":\"/etc/passwd.safetensors\"}}", "is not a plain base name"},
      {"{\"weight_map\":{\"a\":\"x\\u000ay.safetensors\"}}", "is not a plain base name"},
      {"{\"weight_map\":{\"a\":\"pytorch_model.bin\"}}", "'pytorch_model.bin' of tensor 'a' is not a .safetensors"},
      {"{\"weight_map\":{\"a\":\"gone.safetensors\"}}", "lists 'gone.safetensors', which is not there"},
      {"{\"weight_map\":{\"a\":" F1 ",\"b\":" F2 ",\"c\":" F1 ",\"d\":" F3 ",\"e\":" F3 "}}",
       "tensor 'e' is not in 'model-00003"},
      {"{\"weight_map\":{\"a\":" F2 ",\"b\":" F2 ",\"c\":" F1 ",\"d\":" F3 "}}",
       "tensor 'a' is in 'model-00001-of-00003.safetensors', not in 'model-00002"},
      {"{\"weight_map\":{\"a\":" F1 ",\"b\":" F2 ",\"d\":" F3 "}}",
       "tensor 'c' of 'model-00001-of-00003.safetensors' is not listed"},
      {"{\"weight_map\":{\"a\":" F1 ",\"b\":" F2 ",\"c\":" F1 ",\"d\":" F3 ",\"f\":\"two.safetensors\"}}",
       "tensor 'b' is also in"},
      {"{\"metadata\":{\"total_size\":49},\"weight_map\":" MAP "}", "total_size is 49, the tensors have 48 bytes"},
      {"{\"metadata\":{\"total_size\":-1},\"weight_map\":" MAP "}", "total_size is -1, the tensors have 48 bytes"},
      {"{\"metadata\":{\"total_size\":\"48\"},\"weight_map\":" MAP "}", "total_size is not a number"},
      {"{\"metadata\":[],\"weight_map\":" MAP "}", "metadata is not an object"},
      {"{\"weight_map\":" MAP ",\"x\":[[[[[[[[[1]]]]]]]]]}", "nested more than"},
  };
  scratch folder = make_folder(), sub = scratch_path(&folder, "bad.safetensors");
  tr_safetensors_item twice[] = {item_of("b", 2), item_of("f", 2)};
  write_file(&folder, "two.safetensors", twice, 2);
  assert_int_equal(mkdir(sub.path, 0777), 0);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    tr_tensors *t = NULL;
    write_index(&folder, rows[i].text);
    if (tr_tensors_open(folder.path, "model", &t) != TR_ERR_CKPT) fail_msg("%s: was not refused", rows[i].text);
    assert_null(t);
    if (!strstr(tr_status_text(), rows[i].fragment))
      fail_msg("'%s' is not in '%s'", rows[i].fragment, tr_status_text());
  }
  scratch_remove(&folder);
}

static void expect_no_tensors(const scratch *folder, const char *name, const char *fragment) {
  tr_tensors *t = NULL;
  assert_int_equal(tr_tensors_open(folder->path, name, &t), TR_ERR_CKPT);
  assert_null(t);
  if (!strstr(tr_status_text(), fragment)) fail_msg("'%s' is not in '%s'", fragment, tr_status_text());
}

static void folders_without_tensors_say_what_is_missing(void **state) {
  (void)state;
  scratch folder = scratch_make_fast(), absent = scratch_path(&folder, "absent");
  char found[SCRATCH_PATH];
  expect_no_tensors(&folder, "model", "neither model.safetensors nor model.safetensors.index.json");
  expect_no_tensors(&folder, "optimizer", "neither optimizer.safetensors");
  expect_no_tensors(&absent, "model", "No such file");
  scratch pickle = scratch_path(&folder, "pytorch_model.bin");
  scratch_write(pickle.path, "x", 1);
  expect_no_tensors(&folder, "model", "never read here: save them as safetensors");
  assert_int_equal(tr_ckpt_find(folder.path, 0, found, sizeof found), TR_ERR_CKPT);
  assert_non_null(strstr(tr_status_text(), "pickle"));
  scratch_remove(&folder);
}

static void what_is_cut_is_opened_again(void **state) {
  (void)state;
  static const struct {
    uint64_t limit;
    size_t files, file_of[6];
  } rows[] = {{0, 1, {0, 0, 0, 0, 0, 0}},  {1, 5, {0, 1, 2, 3, 3, 4}},    {40, 3, {0, 0, 1, 1, 1, 2}},
              {44, 2, {0, 0, 0, 1, 1, 1}}, {1000, 1, {0, 0, 0, 0, 0, 0}}, {84, 2, {0, 0, 0, 0, 0, 1}},
              {88, 1, {0, 0, 0, 0, 0, 0}}};
  tr_safetensors_item item[6] = {item_of("a", 4), item_of("b", 6), item_of("c", 1),
                                 item_of("d", 9), item_of("e", 0), item_of("f", 2)};
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
    scratch folder = scratch_make_fast();
    size_t file_of[6], n = tr_tensors_cut(item, 6, rows[r].limit, file_of);
    assert_int_equal(n, rows[r].files);
    assert_memory_equal(file_of, rows[r].file_of, sizeof file_of);
    for (size_t f = 0; f < n; f++) {
      char name[64];
      size_t first = 0, count = 0;
      while (file_of[first] < f) first++;
      while (first + count < 6 && file_of[first + count] == f) count++;
      tr_tensors_file_name("model", f, n, name, sizeof name);
      write_file(&folder, name, item + first, count);
    }
    char *text;
    assert_int_equal(tr_tensors_index_text("model", item, 6, file_of, n, &text), TR_OK);
    if (n > 1) write_index(&folder, text);
    free(text);
    tr_tensors *t;
    if (tr_tensors_open(folder.path, "model", &t) < 0) fail_msg("%s", tr_status_text());
    assert_int_equal(tr_tensors_count(t), 6);
    for (size_t i = 0; i < 6; i++) {
      assert_string_equal(tr_tensors_at(t, i)->name, item[i].name);
      assert_int_equal(tr_tensors_file_of(t, i), file_of[i]);
    }
    tr_tensors_close(t);
    scratch_remove(&folder);
  }
  char name[64];
  tr_tensors_file_name("optimizer", 0, 1, name, sizeof name);
  assert_string_equal(name, "optimizer.safetensors");
  tr_tensors_file_name("model", 11, 12, name, sizeof name);
  assert_string_equal(name, "model-00012-of-00012.safetensors");
}

static void checkpoints_of_several_files_are_found_and_verified(void **state) {
  (void)state;
  scratch folder = scratch_make_fast(), step = scratch_path(&folder, "step-00000003");
  tr_safetensors_item item[2] = {item_of("a", 5), item_of("b", 7)};
  size_t file_of[2] = {0, 1};
  char *index, found[SCRATCH_PATH];
  assert_int_equal(tr_tensors_index_text("model", item, 2, file_of, 2, &index), TR_OK);
  tr_ckpt_file file[] = {{"model-00001-of-00002.safetensors", item, 1, NULL},
                         {"model-00002-of-00002.safetensors", item + 1, 1, NULL},
                         {"model.safetensors.index.json", NULL, 0, index}};
  tr_ckpt_save_options options = {.folder = folder.path, .step = 3};
  assert_int_equal(tr_ckpt_save(&options, file, 3), TR_OK);
  free(index);
  assert_int_equal(tr_ckpt_find(folder.path, 1, found, sizeof found), TR_OK);
  assert_string_equal(found, step.path);
  scratch manifest = scratch_path(&step, "manifest.json"), second = scratch_path(&step, file[1].name);
  assert_int_equal(unlink(manifest.path), 0); // as a Hugging Face folder
  assert_int_equal(tr_ckpt_find(step.path, 1, found, sizeof found), TR_OK);
  assert_int_equal(unlink(second.path), 0);
  assert_int_equal(tr_ckpt_find(step.path, 1, found, sizeof found), TR_ERR_CKPT);
  assert_non_null(strstr(tr_status_text(), "lists 'model-00002-of-00002.safetensors', which is not there"));
  scratch_remove(&folder);
}

static void opening_reads_no_weights(void **state) {
  (void)state;
  scratch folder = scratch_make(), path = scratch_path(&folder, "model.safetensors");
  char header[128] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[50000000000],\"data_offsets\":[0,50000000000]}}";
  uint64_t size = strlen(header);
  int fd = open(path.path, O_WRONLY | O_CREAT, 0666);
  assert_true(write(fd, &size, 8) == 8 && write(fd, header, size) == (ssize_t)size);
  assert_int_equal(ftruncate(fd, (off_t)(8 + size + 50000000000)), 0); // a hole: nothing of this size could be read
  close(fd);
  tr_tensors *t;
  if (tr_tensors_open(folder.path, "model", &t) < 0) fail_msg("%s", tr_status_text());
  assert_true(tr_tensors_bytes(t) == 50000000000);
  tr_tensors_close(t);
  scratch_remove(&folder);
}

static void a_file_cut_short_while_it_is_open_is_an_error(void **state) {
  (void)state;
  enum { COUNT = 1 << 20 };
  scratch folder = scratch_make(), path = scratch_path(&folder, "model.safetensors");
  static float data[COUNT], back[COUNT];
  tr_safetensors_item item = {"a", TR_F32, TR_F32, {2, {1024, 1024}}, data, 0};
  for (int transpose = 0; transpose < 2; transpose++) {
    tr_tensors *t;
    write_file(&folder, "model.safetensors", &item, 1);
    assert_int_equal(tr_tensors_open(folder.path, "model", &t), TR_OK);
    const tr_safetensors_entry *entry = tr_tensors_find(t, "a");
    assert_int_equal(tr_safetensors_read(entry, transpose, TR_F32, back), TR_OK);
    assert_int_equal(truncate(path.path, 1 << 20), 0);
    assert_int_equal(tr_safetensors_read(entry, transpose, TR_F32, back), TR_ERR_IO);
    assert_non_null(strstr(tr_status_text(), path.path));
    tr_tensors_close(t);
    assert_int_equal(unlink(path.path), 0);
  }
  scratch_remove(&folder);
}

static uint64_t next_random(uint64_t *seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return *seed >> 33;
}

static void random_damage_to_an_index_never_crashes_the_reader(void **state) {
  (void)state;
  static const char good[] = "{\"metadata\":{\"total_size\":48},\"weight_map\":" MAP "}";
  scratch folder = make_folder();
  uint64_t seed = 5;
  int refused = 0;
  for (int i = 0; i < 2000; i++) {
    char text[sizeof good];
    memcpy(text, good, sizeof good);
    for (uint64_t k = 0, n = 1 + next_random(&seed) % 3; k < n; k++) {
      size_t at = next_random(&seed) % (sizeof good - 1);
      text[at] = next_random(&seed) % 2 ? (char)(1 + next_random(&seed) % 255) : good[next_random(&seed) % (at + 1)];
    }
    write_index(&folder, text);
    tr_tensors *t;
    tr_status status = tr_tensors_open(folder.path, "model", &t);
    assert_true(status == TR_OK || status == TR_ERR_CKPT);
    refused += status < 0;
    if (status == TR_OK) tr_tensors_close(t);
  }
  assert_true(refused > 1000);
  scratch_remove(&folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tensors_of_several_files_are_found_as_if_in_one),
      cmocka_unit_test(an_index_that_does_not_fit_is_refused_with_the_fault_named),
      cmocka_unit_test(folders_without_tensors_say_what_is_missing),
      cmocka_unit_test(what_is_cut_is_opened_again),
      cmocka_unit_test(checkpoints_of_several_files_are_found_and_verified),
      cmocka_unit_test(opening_reads_no_weights),
      cmocka_unit_test(a_file_cut_short_while_it_is_open_is_an_error),
      cmocka_unit_test(random_damage_to_an_index_never_crashes_the_reader),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
