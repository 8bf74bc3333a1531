// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that what is written is read back bit for bit in every type, converted and transposed as tr_convert
// and a naive loop do it; that hashes are those of the stored bytes; that every kind of malformed file is
// refused with a sentence that names the fault; and that no random damage crashes the reader. Run as
// "test_safetensors --write PATH" or "--read PATH" it is one half of the comparison with an independent
// implementation (tests/oracle/test_safetensors_python.sh).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ckpt/scratch.h"

static uint64_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

// Any bytes will do, NaNs included: equal types are copied, not converted.
static void fill(void *data, size_t nbyte, uint64_t seed) {
  for (size_t i = 0; i < nbyte; i++) ((unsigned char *)data)[i] = (unsigned char)next_random(&seed);
}

static tr_status write_plain(const char *path, const tr_safetensors_item *item, size_t nitem) {
  return tr_safetensors_write(path, item, nitem, NULL, 0, NULL, NULL, NULL, NULL);
}

static void every_type_comes_back_bit_for_bit_at_any_alignment(void **state) {
  (void)state;
  scratch folder = scratch_make_fast(), path = scratch_path(&folder, "x");
  static uint64_t data[TR_DTYPE_COUNT][35];
  tr_safetensors_item item[2 * TR_DTYPE_COUNT];
  char name[2 * TR_DTYPE_COUNT][16];
  uint8_t odd[1] = {7};
  for (int t = 0; t < TR_DTYPE_COUNT; t++) {
    fill(data[t], sizeof data[t], (uint64_t)t);
    snprintf(name[2 * t], 16, "t%d", t);
    snprintf(name[2 * t + 1], 16, "odd%d", t);
    item[2 * t] = (tr_safetensors_item){name[2 * t], (tr_dtype)t, (tr_dtype)t, {2, {5, 7}}, data[t], 0};
    item[2 * t + 1] = (tr_safetensors_item){name[2 * t + 1], TR_U8, TR_U8, {1, {1}}, odd, 0};
  }
  assert_int_equal(write_plain(path.path, item, 2 * TR_DTYPE_COUNT), TR_OK);
  tr_safetensors *file;
  assert_int_equal(tr_safetensors_open(path.path, &file), TR_OK);
  assert_int_equal(tr_safetensors_count(file), 2 * TR_DTYPE_COUNT);
  for (int t = 0; t < TR_DTYPE_COUNT; t++) {
    const tr_safetensors_entry *entry = tr_safetensors_at(file, (size_t)(2 * t));
    uint64_t back[35];
    assert_string_equal(entry->name, name[2 * t]);
    assert_ptr_equal(entry, tr_safetensors_find(file, name[2 * t]));
    assert_int_equal(entry->type, t);
    assert_int_equal(entry->nbyte, 35 * tr_dtype_size((tr_dtype)t));
    assert_true(tr_shape_equal(&entry->shape, &item[2 * t].shape));
    assert_int_equal(tr_safetensors_read(entry, 0, (tr_dtype)t, back), TR_OK);
    assert_memory_equal(back, data[t], entry->nbyte);
  }
  assert_null(tr_safetensors_find(file, "t"));
  assert_null(tr_safetensors_at(file, 2 * TR_DTYPE_COUNT));
  tr_safetensors_close(file);
  scratch_remove(&folder);
}

// dst = transpose of src [a, b], as converted by tr_convert.
static void naive_transpose(tr_dtype from, const void *src, size_t a, size_t b, tr_dtype to, void *dst) {
  for (size_t i = 0; i < a; i++) {
    for (size_t j = 0; j < b; j++) {
      tr_convert(from, (const unsigned char *)src + (i * b + j) * tr_dtype_size(from), to,
                 (unsigned char *)dst + (j * a + i) * tr_dtype_size(to), 1);
    }
  }
}

static void check_transposed(const scratch *folder, tr_dtype type, tr_dtype stored, const void *data, size_t a,
                             size_t b) {
  static uint64_t want[131 * 70], got[131 * 70];
  scratch path = scratch_path(folder, "t");
  size_t nbyte = a * b * tr_dtype_size(stored);
  tr_safetensors_item item = {"x", type, stored, {2, {(int64_t)a, (int64_t)b}}, data, 1};
  assert_int_equal(write_plain(path.path, &item, 1), TR_OK);
  tr_safetensors *file;
  assert_int_equal(tr_safetensors_open(path.path, &file), TR_OK);
  const tr_safetensors_entry *entry = tr_safetensors_find(file, "x");
  assert_int_equal(entry->shape.dim[0], b);
  assert_int_equal(entry->shape.dim[1], a);
  naive_transpose(type, data, a, b, stored, want);
  assert_int_equal(entry->nbyte, nbyte);
  assert_memory_equal(entry->data, want, nbyte);
  // Back: the stored values, transposed again and converted to f32.
  assert_int_equal(tr_safetensors_read(entry, 1, TR_F32, got), TR_OK);
  static uint64_t again[131 * 70];
  naive_transpose(stored, want, b, a, TR_F32, again);
  assert_memory_equal(got, again, a * b * sizeof(float));
  tr_safetensors_close(file);
  assert_int_equal(unlink(path.path), 0);
}

static void transposes_and_conversions_match_the_naive_loop(void **state) {
  (void)state;
  scratch folder = scratch_make_fast();
  static float data[131 * 70];
  static uint64_t typed[131 * 70];
  uint64_t seed = 3;
  for (size_t i = 0; i < 131 * 70; i++) data[i] = ((float)(next_random(&seed) % 20001) - 10000.0f) / 37.0f;
  for (int type = 0; type < TR_DTYPE_COUNT; type++) {
    tr_convert(TR_F32, data, (tr_dtype)type, typed, 131 * 70);
    for (int stored = 0; stored < TR_DTYPE_COUNT; stored++) {
      check_transposed(&folder, (tr_dtype)type, (tr_dtype)stored, typed, 131, 70);
      check_transposed(&folder, (tr_dtype)type, (tr_dtype)stored, typed, 1, 65);
    }
  }
  scratch_remove(&folder);
}

static void conversion_without_transpose_matches_tr_convert(void **state) {
  (void)state;
  scratch folder = scratch_make_fast(), path = scratch_path(&folder, "x");
  static float data[5000], back[5000], want[5000];
  static uint64_t stored[5000];
  for (int i = 0; i < 5000; i++) data[i] = (float)(i - 2500) * 0.37f;
  for (int t = 0; t < TR_DTYPE_COUNT; t++) {
    tr_safetensors_item item = {"x", TR_F32, (tr_dtype)t, {1, {5000}}, data, 0};
    tr_safetensors *file;
    assert_int_equal(write_plain(path.path, &item, 1), TR_OK);
    assert_int_equal(tr_safetensors_open(path.path, &file), TR_OK);
    tr_convert(TR_F32, data, (tr_dtype)t, stored, 5000);
    tr_convert((tr_dtype)t, stored, TR_F32, want, 5000);
    assert_memory_equal(tr_safetensors_at(file, 0)->data, stored, 5000 * tr_dtype_size((tr_dtype)t));
    assert_int_equal(tr_safetensors_read(tr_safetensors_at(file, 0), 0, TR_F32, back), TR_OK);
    assert_memory_equal(back, want, sizeof want);
    tr_safetensors_close(file);
    assert_int_equal(unlink(path.path), 0);
  }
  scratch_remove(&folder);
}

static void count_call(void *user) { ++*(int *)user; }

// Larger than the writer's buffer: many whole rows per block, a row longer than a block, and no transpose.
static void tensors_of_many_blocks_are_written_whole_and_report_progress(void **state) {
  (void)state;
  scratch folder = scratch_make_fast(), path = scratch_path(&folder, "x");
  static const int64_t shapes[3][2] = {{3000, 7000}, {17000000, 2}, {2, 17000000}};
  for (int s = 0; s < 3; s++) {
    size_t a = (size_t)shapes[s][0], b = (size_t)shapes[s][1], n = a * b;
    int calls = 0;
    unsigned char *data = malloc(n), *back = malloc(n);
    assert_non_null(data);
    assert_non_null(back);
    for (size_t i = 0; i < n; i++) data[i] = (unsigned char)(i * 31 + (i >> 11));
    for (int transpose = 0; transpose < 2; transpose++) {
      tr_safetensors_item item = {"x", TR_U8, TR_U8, {2, {shapes[s][0], shapes[s][1]}}, data, transpose};
      tr_safetensors *file;
      calls = 0;
      assert_int_equal(tr_safetensors_write(path.path, &item, 1, NULL, 0, NULL, NULL, count_call, &calls), TR_OK);
      assert_true(calls >= 1 + (int)(n / (16 << 20)));
      assert_int_equal(tr_safetensors_open(path.path, &file), TR_OK);
      const tr_safetensors_entry *entry = tr_safetensors_at(file, 0);
      if (transpose) {
        const unsigned char *stored = entry->data;
        for (size_t i = 0; i < n; i += 997) assert_true(stored[(i % b) * a + i / b] == data[i]);
      }
      assert_int_equal(tr_safetensors_read(entry, transpose, TR_U8, back), TR_OK);
      assert_true(memcmp(back, data, n) == 0);
      tr_safetensors_close(file);
      assert_int_equal(unlink(path.path), 0);
    }
    free(back);
    free(data);
  }
  scratch_remove(&folder);
}

static void empty_tensors_scalars_and_files_without_tensors_work(void **state) {
  (void)state;
  scratch folder = scratch_make_fast(), path = scratch_path(&folder, "x"), none = scratch_path(&folder, "none");
  float one = 4.5f;
  tr_safetensors_item item[] = {{"e1", TR_F32, TR_F32, {1, {0}}, NULL, 0},
                                {"s", TR_F32, TR_F32, {0, {0}}, &one, 0},
                                {"e2", TR_F32, TR_BF16, {2, {3, 0}}, NULL, 1},
                                {"e3", TR_I64, TR_I64, {3, {3, 0, 2}}, NULL, 0},
                                {"", TR_F32, TR_F32, {1, {1}}, &one, 0}};
  tr_safetensors *file;
  float back = 0;
  assert_int_equal(write_plain(path.path, item, 5), TR_OK);
  assert_int_equal(tr_safetensors_open(path.path, &file), TR_OK);
  assert_int_equal(tr_safetensors_count(file), 5);
  assert_int_equal(tr_safetensors_read(tr_safetensors_find(file, "s"), 0, TR_F32, &back), TR_OK);
  assert_true(back == 4.5f);
  assert_int_equal(tr_safetensors_find(file, "e2")->shape.dim[0], 0);
  assert_int_equal(tr_safetensors_find(file, "e2")->shape.dim[1], 3);
  assert_int_equal(tr_safetensors_read(tr_safetensors_find(file, "e2"), 1, TR_F32, &back), TR_OK);
  assert_int_equal(tr_safetensors_find(file, "e3")->nbyte, 0);
  assert_non_null(tr_safetensors_find(file, ""));
  tr_safetensors_close(file);
  assert_int_equal(write_plain(none.path, NULL, 0), TR_OK);
  assert_int_equal(tr_safetensors_open(none.path, &file), TR_OK);
  assert_int_equal(tr_safetensors_count(file), 0);
  assert_null(tr_safetensors_find(file, "s"));
  assert_null(tr_safetensors_metadata(file, "format"));
  tr_safetensors_close(file);
  scratch_remove(&folder);
}

static void a_thousand_tensors_keep_their_order_names_metadata_and_hashes(void **state) {
  (void)state;
  enum { N = 1000 };
  scratch folder = scratch_make_fast(), path = scratch_path(&folder, "x");
  static char name[N][40];
  static int32_t data[N];
  static tr_safetensors_item item[N];
  static uint64_t hash[N];
  tr_metadata metadata[] = {{"format", "pt"}, {"quote\"d", "l\xc3\xa4nge\n"}};
  for (int i = 0; i < N; i++) {
    snprintf(name[i], sizeof name[i], "layer.%d.\"weight\\%c", (i * 617) % N, i % 2 ? 'a' : '\t');
    data[i] = i;
    item[i] = (tr_safetensors_item){name[i], TR_I32, TR_I32, {1, {1}}, &data[i], 0};
  }
  uint64_t whole;
  assert_int_equal(tr_safetensors_write(path.path, item, N, metadata, 2, &whole, hash, NULL, NULL), TR_OK);
  tr_safetensors *file;
  assert_int_equal(tr_safetensors_open(path.path, &file), TR_OK);
  assert_int_equal(tr_safetensors_count(file), N);
  assert_string_equal(tr_safetensors_metadata(file, "format"), "pt");
  assert_string_equal(tr_safetensors_metadata(file, "quote\"d"), "l\xc3\xa4nge\n");
  assert_null(tr_safetensors_metadata(file, "absent"));
  for (int i = 0; i < N; i++) {
    const tr_safetensors_entry *entry = tr_safetensors_at(file, (size_t)i);
    assert_string_equal(entry->name, name[i]);
    assert_ptr_equal(tr_safetensors_find(file, name[i]), entry);
    assert_int_equal(*(const int32_t *)entry->data, i);
    assert_true(hash[i] == tr_hash_bytes(entry->data, entry->nbyte));
  }
  tr_safetensors_close(file);
  tr_file_map map;
  assert_int_equal(tr_file_map_open(path.path, &map), TR_OK);
  assert_true(whole == tr_hash_bytes(map.data, map.nbyte));
  uint64_t header;
  memcpy(&header, map.data, sizeof header);
  assert_int_equal(header % 8, 0);
  tr_file_map_close(&map);
  scratch_remove(&folder);
}

static void expect_refused_write(const char *path, const tr_safetensors_item *item, size_t nitem,
                                 const char *fragment) {
  assert_true(write_plain(path, item, nitem) < 0);
  if (!strstr(tr_status_text(), fragment)) fail_msg("'%s' is not in '%s'", fragment, tr_status_text());
  assert_non_null(strstr(tr_status_text(), path));
  assert_false(tr_file_exists(path));
}

static void writes_that_cannot_be_right_are_refused_and_leave_no_file(void **state) {
  (void)state;
  scratch folder = scratch_make_fast(), path = scratch_path(&folder, "x"), deep = scratch_path(&folder, "no/x");
  float data[4] = {1, 2, 3, 4};
  char long_name[1026];
  memset(long_name, 'n', sizeof long_name - 1);
  long_name[1025] = '\0';
  tr_safetensors_item good = {"a", TR_F32, TR_F32, {1, {4}}, data, 0};
  tr_safetensors_item item[2] = {good, good};
  expect_refused_write(path.path, item, 2, "tensor 'a' is given twice");
  item[0].name = "__metadata__";
  expect_refused_write(path.path, item, 1, "__metadata__");
  item[0].name = long_name;
  expect_refused_write(path.path, item, 1, "longer than 1024");
  item[0].name = "bad\xff";
  expect_refused_write(path.path, item, 1, "not UTF-8");
  item[0].name = NULL;
  expect_refused_write(path.path, item, 1, "no name");
  item[0] = good;
  item[0].transpose = 1;
  expect_refused_write(path.path, item, 1, "only 2-D");
  item[0] = good;
  item[0].data = NULL;
  expect_refused_write(path.path, item, 1, "has no data");
  item[0] = good;
  item[0].shape.dim[0] = -1;
  expect_refused_write(path.path, item, 1, "negative");
  item[0] = good;
  item[0].stored_type = TR_DTYPE_COUNT;
  expect_refused_write(path.path, item, 1, "none of tr_dtype");
  expect_refused_write(deep.path, &good, 1, "No such file");
  scratch_write(path.path, "precious", 8);
  assert_int_equal(write_plain(path.path, &good, 1), TR_ERR_IO);
  assert_non_null(strstr(tr_status_text(), "File exists"));
  char *text;
  size_t nbyte;
  assert_int_equal(tr_file_read(path.path, 100, &text, &nbyte), TR_OK);
  assert_string_equal(text, "precious");
  free(text);
  scratch_remove(&folder);
}

typedef struct bad_file {
  const char *what, *header; // header: JSON
  int ndata;                 // bytes behind it
  int64_t size;              // header size to claim; -1: the true one
  int cut;                   // keep only this many bytes; 0: all
  const char *fragment;      // expected in the message
} bad_file;

#define A "\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]"
static const bad_file bad_files[] = {
    {"no bytes", "{}", 0, -1, -1, "too few"},
    {"seven bytes", "{}", 0, -1, 7, "too few"},
    {"size only", "{}", 0, 2, 8, "truncated?"},
    {"header size 0", "{}", 0, 0, 0, "header size is 0"},
    {"header beyond the limit", "{}", 0, 100000001, 0, "the limit is"},
    {"header size negative", "{}", 0, INT64_MIN, 0, "the limit is"},
    {"header beyond the file", "{}", 0, 3, 0, "does not fit"},
    {"starts with a space", " {}", 0, -1, 0, "0x20 instead of '{'"},
    {"starts with an array", "[]", 0, -1, 0, "instead of '{'"},
    {"not JSON", "{\"a\"}", 0, -1, 0, "not valid JSON"},
    {"garbage after JSON", "{} x", 0, -1, 0, "not valid JSON"},
    {"unfinished", "{\"a\":{", 0, -1, 0, "not valid JSON"},
    {"not UTF-8 in a name", "{\"\xff\":{" A "}}", 2, -1, 0, "unable to decode byte"},
    {"not UTF-8 outside", "{\xc3\x28}", 0, -1, 0, "not valid JSON"},
    {"zero byte in a name", "{\"a\\u0000b\":{" A "}}", 2, -1, 0, "not valid JSON"},
    {"nested nine deep", "{\"a\":[[[[[[[[]]]]]]]]}", 0, -1, 0, "nested more than 8"},
    {"duplicate tensor", "{\"a\":{" A "},\"a\":{" A "}}", 2, -1, 0, "duplicate"},
    {"duplicate key in a tensor", "{\"a\":{" A ",\"dtype\":\"U8\"}}", 2, -1, 0, "duplicate"},
    {"metadata no object", "{\"__metadata__\":[]}", 0, -1, 0, "__metadata__ is not an object"},
    {"metadata with a number", "{\"__metadata__\":{\"k\":1}}", 0, -1, 0, "key 'k' is not a string"},
    {"tensor no object", "{\"a\":3}", 0, -1, 0, "tensor 'a': description is not an object"},
    {"no dtype", "{\"a\":{\"shape\":[2],\"data_offsets\":[0,2]}}", 2, -1, 0, "dtype is missing"},
    {"unknown dtype", "{\"a\":{\"dtype\":\"X9\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, -1, 0,
     "'X9' is not known"},
    {"dtype in our spelling", "{\"a\":{\"dtype\":\"u8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, -1, 0,
     "'u8' is not"},
    {"no shape", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,2]}}", 2, -1, 0, "shape is missing"},
    {"nine dimensions", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,2]}}", 2, -1, 0,
     "9 dimensions"},
    {"negative dimension", "{\"a\":{\"dtype\":\"U8\",\"shape\":[-2],\"data_offsets\":[0,2]}}", 2, -1, 0, "negative"},
    {"real dimension", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2.0],\"data_offsets\":[0,2]}}", 2, -1, 0,
     "not an integer"},
    {"shape overflows 64 bits", "{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
     0, -1, 0, "2^62"},
    {"dimension beyond 64 bits", "{\"a\":{\"dtype\":\"U8\",\"shape\":[99999999999999999999],\"data_offsets\":[0,2]}}",
     2, -1, 0, "too big"},
    {"no offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2]}}", 2, -1, 0, "data_offsets is not"},
    {"three offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2,2]}}", 2, -1, 0, "two integers"},
    {"negative offset", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[-2,0]}}", 2, -1, 0, "not within"},
    {"offsets backwards", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,0]}}", 2, -1, 0, "not within"},
    {"data truncated", "{\"a\":{" A "}}", 1, -1, 0, "(truncated?)"},
    {"byte too many", "{\"a\":{" A "}}", 3, -1, 0, "1 bytes at the end"},
    {"size and shape differ", "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, -1, 0,
     "need 3 bytes, data_offsets give 2"},
    {"hole", "{\"a\":{" A "},\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]}}", 4, -1, 0, "a hole"},
    {"hole at the front", "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2, -1, 0, "a hole"},
    {"overlap", "{\"a\":{" A "},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3, -1, 0,
     "an overlap"},
    {"same place", "{\"a\":{" A "},\"b\":{" A "}}", 2, -1, 0, "an overlap"},
    {"empty tensor inside another", "{\"a\":{" A "},\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]}}",
     2, -1, 0, "an overlap"},
};

static size_t compose(const bad_file *row, unsigned char *out) {
  size_t n = strlen(row->header), total = 8 + n + (size_t)row->ndata;
  uint64_t size = row->size == -1 ? n : (uint64_t)row->size;
  memcpy(out, &size, 8);
  memcpy(out + 8, row->header, n);
  memset(out + 8 + n, 1, (size_t)row->ndata);
  return row->cut < 0 ? 0 : row->cut ? (size_t)row->cut : total;
}

static void malformed_files_are_refused_with_the_fault_named(void **state) {
  (void)state;
  scratch folder = scratch_make_fast(), path = scratch_path(&folder, "bad");
  unsigned char bytes[4096];
  for (size_t i = 0; i < sizeof bad_files / sizeof bad_files[0]; i++) {
    const bad_file *row = &bad_files[i];
    tr_safetensors *file = NULL;
    scratch_write(path.path, bytes, compose(row, bytes));
    if (tr_safetensors_open(path.path, &file) != TR_ERR_CKPT) fail_msg("%s: was not refused", row->what);
    assert_null(file);
    if (!strstr(tr_status_text(), row->fragment))
      fail_msg("%s: '%s' is not in '%s'", row->what, row->fragment, tr_status_text());
    assert_non_null(strstr(tr_status_text(), path.path));
  }
  tr_safetensors *file;
  scratch absent = scratch_path(&folder, "absent");
  assert_int_equal(tr_safetensors_open(absent.path, &file), TR_ERR_IO);
  assert_int_equal(tr_safetensors_open(folder.path, &file), TR_ERR_IO);
  scratch_remove(&folder);
}

static void unusual_but_valid_files_are_accepted(void **state) {
  (void)state;
  static const bad_file good[] = {{"empty", "{}", 0, -1, 0, NULL},
                                  {"padded", "{}       ", 0, -1, 0, NULL},
                                  {"not in order of offsets",
                                   "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]},\"a\":{" A "}}", 3,
                                   -1, 0, NULL},
                                  {"huge dimension beside a zero",
                                   "{\"a\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904,0,9],"
                                   "\"data_offsets\":[0,0]}}",
                                   0, -1, 0, NULL},
                                  {"further keys", "{\"a\":{" A ",\"note\":{\"x\":[1]}}}", 2, -1, 0, NULL}};
  scratch folder = scratch_make_fast(), path = scratch_path(&folder, "good");
  unsigned char bytes[4096];
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    tr_safetensors *file = NULL;
    scratch_write(path.path, bytes, compose(&good[i], bytes));
    if (tr_safetensors_open(path.path, &file) < 0) fail_msg("%s: %s", good[i].what, tr_status_text());
    if (i == 2) assert_string_equal(tr_safetensors_at(file, 0)->name, "a");
    tr_safetensors_close(file);
  }
  scratch_remove(&folder);
}

static void names_longer_than_the_limit_and_control_characters_are_handled(void **state) {
  (void)state;
  scratch folder = scratch_make_fast(), path = scratch_path(&folder, "x");
  static char header[4096];
  static unsigned char bytes[8192];
  tr_safetensors *file;
  for (int n = 1024; n <= 1025; n++) {
    snprintf(header, sizeof header, "{\"%0*d\":{" A "}}", n, 0);
    bad_file row = {"long", header, 2, -1, 0, NULL};
    scratch_write(path.path, bytes, compose(&row, bytes));
    tr_status status = tr_safetensors_open(path.path, &file);
    assert_int_equal(status, n == 1024 ? TR_OK : TR_ERR_CKPT);
    if (status == TR_OK)
      tr_safetensors_close(file);
    else
      assert_non_null(strstr(tr_status_text(), "1025 bytes; the limit is 1024"));
  }
  bad_file row = {"escape", "{\"a\\u001b[31m\":3}", 0, -1, 0, NULL};
  scratch_write(path.path, bytes, compose(&row, bytes));
  assert_int_equal(tr_safetensors_open(path.path, &file), TR_ERR_CKPT);
  assert_null(strchr(tr_status_text(), '\033'));
  scratch_remove(&folder);
}

// Refused before the JSON tree is built, so quickly and in little memory.
static void too_many_tensors_are_refused_by_counting(void **state) {
  (void)state;
  enum { LIMIT = 200000, ROOM = 40 << 20 };
  static const char *const value[] = {"{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", "0"};
  scratch folder = scratch_make_fast(), path = scratch_path(&folder, "x");
  char *bytes = malloc(ROOM);
  assert_non_null(bytes);
  for (int row = 0; row < 3; row++) { // the limit and metadata; one more; and no tensors at all
    size_t at = 8, n = row == 0 ? LIMIT : LIMIT + 1;
    at += (size_t)sprintf(bytes + at, "{\"__metadata__\":{\"a\":\"b\"}");
    for (size_t i = 0; i < n; i++) at += (size_t)sprintf(bytes + at, ",\"t%zu\":%s", i, value[row == 2]);
    bytes[at++] = '}';
    assert_true(at < ROOM);
    uint64_t size = at - 8;
    memcpy(bytes, &size, 8);
    scratch_write(path.path, bytes, at);
    tr_safetensors *file;
    tr_status status = tr_safetensors_open(path.path, &file);
    assert_int_equal(status, row == 0 ? TR_OK : TR_ERR_CKPT);
    if (status == TR_OK) {
      assert_int_equal(tr_safetensors_count(file), LIMIT);
      tr_safetensors_close(file);
    } else {
      assert_non_null(strstr(tr_status_text(), "more than 200000 tensors, which is the limit"));
    }
  }
  free(bytes);
  scratch_remove(&folder);
}

// One random damage: bytes overwritten (mostly in the header), digits changed, the end cut off or extended.
static size_t damage(unsigned char *bytes, size_t nbyte, size_t room, size_t header, uint64_t *seed) {
  int changes = 1 + (int)(next_random(seed) % 3);
  for (int i = 0; i < changes; i++) {
    size_t range = next_random(seed) % 8 ? 8 + header : nbyte;
    size_t at = next_random(seed) % range;
    switch (next_random(seed) % 4) {
    case 0: bytes[at] = (unsigned char)next_random(seed); break;
    case 1:
      while (at + 1 < 8 + header && (bytes[at] < '0' || bytes[at] > '9')) at++;
      bytes[at] = (unsigned char)('0' + next_random(seed) % 10);
      break;
    case 2: bytes[at] ^= (unsigned char)(1u << next_random(seed) % 8); break;
    default:
      memmove(bytes + at, bytes + at + 1, nbyte - at - 1); // a byte lost
      nbyte--;
    }
  }
  if (next_random(seed) % 10 == 0) nbyte = next_random(seed) % nbyte;
  if (next_random(seed) % 10 == 0 && nbyte + 9 < room) nbyte += next_random(seed) % 9;
  return nbyte;
}

static void use_everything(tr_safetensors *file, size_t file_size) {
  static double sink[4096];
  size_t total = 0;
  for (size_t i = 0; i < tr_safetensors_count(file); i++) {
    const tr_safetensors_entry *entry = tr_safetensors_at(file, i);
    total += entry->nbyte;
    assert_ptr_equal(tr_safetensors_find(file, entry->name), entry);
    assert_true(tr_shape_count(&entry->shape) <= 4096);
    assert_int_equal(tr_safetensors_read(entry, entry->shape.ndim == 2, TR_F64, sink), TR_OK);
  }
  assert_true(total + 10 <= file_size);
}

static void random_damage_never_crashes_the_reader(void **state) {
  (void)state;
  scratch folder = scratch_make_fast(), path = scratch_path(&folder, "good");
  float data[40];
  tr_metadata metadata = {"format", "pt"};
  fill(data, sizeof data, 1);
  tr_safetensors_item item[] = {{"a.weight", TR_F32, TR_F32, {2, {5, 8}}, data, 0},
                                {"a.bias", TR_F32, TR_BF16, {1, {5}}, data, 0},
                                {"b", TR_U8, TR_U8, {3, {3, 1, 7}}, data, 0},
                                {"e", TR_F32, TR_F16, {2, {0, 4}}, data, 1},
                                {"c", TR_F32, TR_F64, {2, {2, 3}}, data, 1}};
  assert_int_equal(tr_safetensors_write(path.path, item, 5, &metadata, 1, NULL, NULL, NULL, NULL), TR_OK);
  char *good;
  size_t nbyte;
  assert_int_equal(tr_file_read(path.path, 100000, &good, &nbyte), TR_OK);
  static unsigned char bytes[8192];
  uint64_t header, seed = 12345;
  int refused = 0, accepted = 0;
  memcpy(&header, good, 8);
  for (int i = 0; i < 2000; i++) {
    tr_safetensors *file;
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, good, nbyte);
    size_t n = damage(bytes, nbyte, sizeof bytes, (size_t)header, &seed);
    scratch_write(path.path, bytes, n);
    tr_status status = tr_safetensors_open(path.path, &file);
    refused += status < 0;
    if (status < 0) {
      assert_int_equal(status, TR_ERR_CKPT);
      continue;
    }
    accepted++;
    use_everything(file, n);
    tr_safetensors_close(file);
  }
  print_message("of 2000 damaged files %d were refused, %d still had a valid structure\n", refused, accepted);
  assert_true(refused > 1000 && accepted > 10);
  free(good);
  scratch_remove(&folder);
}

static const struct {
  const char *name;
  tr_dtype type;
} oracle[] = {{"f32", TR_F32}, {"f64", TR_F64}, {"f16", TR_F16}, {"bf16", TR_BF16},
              {"i32", TR_I32}, {"i64", TR_I64}, {"u8", TR_U8}};
enum { ORACLE_COUNT = sizeof oracle / sizeof oracle[0], ORACLE_ROWS = 11, ORACLE_COLS = 8 };

// Small integers, exact in every type: value of row r, column c of tensor t.
static float oracle_value(int t, int r, int c) { return (float)(t + r * ORACLE_COLS + c); }

static int oracle_write(const char *path) {
  static float data[ORACLE_COUNT][ORACLE_ROWS * ORACLE_COLS];
  tr_safetensors_item item[ORACLE_COUNT];
  tr_metadata metadata = {"format", "pt"};
  for (int t = 0; t < ORACLE_COUNT; t++) {
    int transpose = t % 2; // in memory [cols, rows], stored as [rows, cols]
    for (int i = 0; i < ORACLE_ROWS * ORACLE_COLS; i++) {
      int r = transpose ? i % ORACLE_ROWS : i / ORACLE_COLS, c = transpose ? i / ORACLE_ROWS : i % ORACLE_COLS;
      data[t][i] = oracle_value(t, r, c);
    }
    tr_shape shape = {2, {transpose ? ORACLE_COLS : ORACLE_ROWS, transpose ? ORACLE_ROWS : ORACLE_COLS}};
    item[t] = (tr_safetensors_item){oracle[t].name, TR_F32, oracle[t].type, shape, data[t], transpose};
  }
  if (tr_safetensors_write(path, item, ORACLE_COUNT, &metadata, 1, NULL, NULL, NULL, NULL) == TR_OK) return 0;
  fprintf(stderr, "%s\n", tr_status_text());
  return 1;
}

static int oracle_read(const char *path) {
  tr_safetensors *file;
  float back[ORACLE_ROWS * ORACLE_COLS];
  int wrong = 0;
  if (tr_safetensors_open(path, &file) < 0) {
    fprintf(stderr, "%s\n", tr_status_text());
    return 1;
  }
  for (int t = 0; t < ORACLE_COUNT; t++) {
    const tr_safetensors_entry *entry = tr_safetensors_find(file, oracle[t].name);
    if (!entry || entry->type != oracle[t].type || tr_shape_count(&entry->shape) != ORACLE_ROWS * ORACLE_COLS ||
        tr_safetensors_read(entry, 0, TR_F32, back) < 0) {
      fprintf(stderr, "%s: tensor %s is missing or wrong\n", path, oracle[t].name);
      wrong++;
      continue;
    }
    for (int i = 0; i < ORACLE_ROWS * ORACLE_COLS; i++)
      wrong += back[i] != oracle_value(t, i / ORACLE_COLS, i % ORACLE_COLS);
  }
  tr_safetensors_close(file);
  return wrong != 0;
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "--write") == 0) return oracle_write(argv[2]);
  if (argc == 3 && strcmp(argv[1], "--read") == 0) return oracle_read(argv[2]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_type_comes_back_bit_for_bit_at_any_alignment),
      cmocka_unit_test(transposes_and_conversions_match_the_naive_loop),
      cmocka_unit_test(conversion_without_transpose_matches_tr_convert),
      cmocka_unit_test(tensors_of_many_blocks_are_written_whole_and_report_progress),
      cmocka_unit_test(empty_tensors_scalars_and_files_without_tensors_work),
      cmocka_unit_test(a_thousand_tensors_keep_their_order_names_metadata_and_hashes),
      cmocka_unit_test(writes_that_cannot_be_right_are_refused_and_leave_no_file),
      cmocka_unit_test(malformed_files_are_refused_with_the_fault_named),
      cmocka_unit_test(unusual_but_valid_files_are_accepted),
      cmocka_unit_test(names_longer_than_the_limit_and_control_characters_are_handled),
      cmocka_unit_test(too_many_tensors_are_refused_by_counting),
      cmocka_unit_test(random_damage_never_crashes_the_reader),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
