// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// The text reader hands out the documents of plain text, JSON lines, gzip and zstd, the same after a skip to any offset that
// it has reported; parts are cut where nothing can reach over; damaged files are refused by name and place.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/file.h"
#include "trireme/base/philox.h"
#include "trireme/base/text.h"
#include "trireme/data/text_reader.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

static char folder[64];

static int make_folder(void **state) {
  (void)state;
  strcpy(folder, "/tmp/trireme-reader-XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
  (void)state;
  return tr_file_remove_tree(folder) == TR_OK ? 0 : -1;
}

static const char *file(const char *name, const void *data, size_t nbyte) {
  static char path[160];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *out = fopen(path, "w");
  assert_non_null(out);
  assert_int_equal(fwrite(data, 1, nbyte, out), nbyte);
  assert_int_equal(fclose(out), 0);
  return path;
}

static void gzip_member(const void *data, size_t nbyte, tr_text *out) {
  z_stream z = {0};
  unsigned char block[4096];
  assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
  z.next_in = (Bytef *)data;
  z.avail_in = (uInt)nbyte;
  do {
    z.next_out = block;
    z.avail_out = sizeof block;
    deflate(&z, Z_FINISH);
    tr_text_append_bytes(out, block, sizeof block - z.avail_out);
  } while (z.avail_out == 0);
  deflateEnd(&z);
}

static void zstd_frame(const void *data, size_t nbyte, tr_text *out) {
  size_t room = ZSTD_compressBound(nbyte);
  char *block = malloc(room);
  size_t n = ZSTD_compress(block, room, data, nbyte, 3);
  assert_false(ZSTD_isError(n));
  tr_text_append_bytes(out, block, n);
  free(block);
}

// All documents of a file: "DOCUMENT|" each, parts joined by "+"; and the offset after every one.
typedef struct seen {
  tr_text text;
  int64_t offset[64];
  size_t at[64]; // size of text then
  int n;
} seen;

static tr_status read_all(const tr_text_reader_options *options, int64_t from, seen *out) {
  tr_text_reader *reader = NULL;
  *out = (seen){0};
  TR_TRY(tr_text_reader_open(options, &reader));
  tr_status status = tr_text_reader_skip(reader, from);
  for (const char *text = ""; status == TR_OK && text;) {
    size_t nbyte;
    int ends;
    status = tr_text_reader_next(reader, &text, &nbyte, &ends);
    if (status < 0 || !text) break;
    tr_text_append_bytes(&out->text, text, nbyte);
    tr_text_append(&out->text, "%s", ends ? "|" : "+");
    assert_in_range(out->n, 0, 63);
    out->offset[out->n] = tr_text_reader_offset(reader);
    out->at[out->n++] = out->text.size;
  }
  if (status == TR_OK) assert_true(tr_text_reader_share(reader) == 1);
  tr_text_reader_close(reader);
  return status;
}

static void documents_are_found(void **state) {
  (void)state;
  static const struct {
    const char *name, *text, *documents;
    int split;
  } row[] = {
      {"empty.txt", "", "", 0},
      {"bom-only.txt", "\xef\xbb\xbf", "", 0},
      {"plain.txt", "one\n\ntwo\r\n", "one\n\ntwo\r\n|", 0},
      {"bom.txt", "\xef\xbb\xbfone", "one|", 0},
      {"breaks.txt", "\n\n", "\n\n|", 0},
      {"split.txt", "\n \none\ntwo\n\n\t\nthree\n", "one\ntwo|three|", 1},
      {"crlf.txt", "one\r\ntwo\r\n\r\nthree", "one\r\ntwo|three|", 1},
      {"blank.txt", " \n\n", "", 1},
      {"bom-split.txt", "\xef\xbb\xbf\none\n", "one|", 1},
      {"a.jsonl", "{\"text\":\"one\\ntwo\"}\n{\"id\":[1,{}],\"text\":\"\\u00e9\"}", "one\ntwo|\xc3\xa9|", 0},
      {"a.json", "\n{\"text\":\"\"}\n \r\n{\"text\":\"one\"}\r\n{\"text\":\"\"}\n", "one|", 0},
      {"a.ndjson", "\xef\xbb\xbf{\"text\":\"one\"}\n", "one|", 0},
      {"empty.jsonl", "", "", 0},
      {"bytes.jsonl", "{\"text\":\"a\xff\xe6\xb5z\"}\n", "a\xef\xbf\xbd\xef\xbf\xbdz|", 0},
      {"lone.jsonl", "{\"text\":\"a\\ud800\"}\n{\"text\":\"\\uDC00b\"}",
       "a\xef\xbf\xbd|\xef\xbf\xbd"
       "b|",
       0},
      {"pair.jsonl", "{\"text\":\"\\ud83d\\ude00\\ud83d\\ud83d\\ude00\\\\ud800\"}\n",
       "\xf0\x9f\x98\x80\xef\xbf\xbd\xf0\x9f\x98\x80\\ud800|", 0},
  };
  for (size_t i = 0; i < COUNT(row); i++) {
    seen out;
    tr_text_reader_options o = {.path = file(row[i].name, row[i].text, strlen(row[i].text)), .split = row[i].split};
    if (read_all(&o, 0, &out) != TR_OK) fail_msg("%s: %s", row[i].name, tr_status_text());
    assert_string_equal(out.text.data ? out.text.data : "", row[i].documents);
    tr_text_free(&out.text);
  }
}

static void zero_bytes_in_a_json_text_are_text(void **state) {
  (void)state;
  static const char text[] = "{\"text\":\"a\\u0000b\"}";
  seen out;
  tr_text_reader_options o = {.path = file("zero.jsonl", text, strlen(text))};
  assert_int_equal(read_all(&o, 0, &out), TR_OK);
  assert_int_equal(out.text.size, 4);
  assert_memory_equal(out.text.data, "a\0b|", 4);
  tr_text_free(&out.text);
}

static void another_member_may_hold_the_text(void **state) {
  (void)state;
  static const char text[] = "{\"text\":1,\"content\":\"one\"}";
  seen out;
  tr_text_reader_options o = {.path = file("key.jsonl", text, strlen(text)), .key = "content"};
  assert_int_equal(read_all(&o, 0, &out), TR_OK);
  assert_string_equal(out.text.data, "one|");
  tr_text_free(&out.text);
}

static void what_cannot_be_read_is_refused_by_name_and_place(void **state) {
  (void)state;
  static const struct {
    const char *name, *text, *message;
    size_t limit;
    int split;
  } row[] = {
      {"a.jsonl", "{\"text\":\"one\"}\n{\"text\":\"two\"\n", "a.jsonl:2:", 0, 0},
      {"b.jsonl", "\n\n[1]\n", "b.jsonl:3: this line is no JSON object", 0, 0},
      {"c.jsonl", "{\"txt\":\"one\"}\n", "c.jsonl:1: the object has no member \"text\"", 0, 0},
      {"d.jsonl", "{\"text\":null}\n", "d.jsonl:1: the object has no text in its member \"text\"", 0, 0},
      {"e.jsonl", "{\"text\":\"\\ud800\\", "e.jsonl:1:", 0, 0},
      {"e.jsonl", "{\"text\":\"\\u12\"}", "e.jsonl:1:", 0, 0},
      {"tokens.bin.gz", "\x1f\x8b", "tokens.bin.gz: this is named like a compressed token file", 0, 0},
      {"tokens.idx.zst", "", "tokens.idx.zst: this is named like a compressed token file", 0, 0},
      {"f.jsonl", "{\"text\":\"one\",\"text\":\"two\"}\n", "f.jsonl:1:", 0, 0},
      {"g.jsonl", "{\"text\":\"o\"}\n{\"text\":\"0123456789\"}\n",
       "g.jsonl:2: this document is longer than the limit of 16", 16, 0},
      {"h.txt", "one\n\n0123456\n0123456\n0123456\n", "h.txt:3: this document is longer than the limit of 16", 16, 1},
      {"i.txt", "\xff\xfeo", "i.txt: this is UTF-16", 0, 0},
      {"j.txt", "\xfe\xffo", "j.txt: this is UTF-16", 0, 1},
      {"k.txt", "BZh91AY&SY....", "k.txt: this is a bzip2 file", 0, 0},
      {"l.txt",
       "\xfd"
       "7zXZ",
       "l.txt: this is an xz file", 0, 0},
      {"m.gz", "text", "m.gz: it is named .gz but", 0, 0},
      {"n.jsonl.zst", "{}", "n.jsonl.zst: it is named .zst but", 0, 0},
      {"o.gz", "\x1f\x8b\x08", "o.gz: the compressed file is truncated: it ends at byte 3", 0, 0},
      {"p.gz", "\x1f\x8bno such method", "p.gz: damaged at byte", 0, 0},
      {"q.zst", "\x28\xb5\x2f\xfd\x08 a reserved bit is set", "q.zst: damaged at byte", 0, 0},
  };
  for (size_t i = 0; i < COUNT(row); i++) {
    seen out;
    tr_text_reader_options o = {.path = file(row[i].name, row[i].text, strlen(row[i].text)),
                                .split = row[i].split,
                                .document_limit = row[i].limit};
    tr_status status = read_all(&o, 0, &out);
    if (status != TR_ERR_DATA || !strstr(tr_status_text(), row[i].message))
      fail_msg("%s: %d %s", row[i].name, status, tr_status_text());
    tr_text_free(&out.text);
  }
  tr_text_reader *reader;
  char path[160];
  snprintf(path, sizeof path, "%s/absent", folder);
  assert_int_equal(tr_text_reader_open(&(tr_text_reader_options){.path = path}, &reader), TR_ERR_DATA);
  assert_int_equal(tr_text_reader_open(&(tr_text_reader_options){.path = folder}, &reader), TR_ERR_DATA);
  assert_int_equal(mkfifo(path, 0600), 0);
  assert_int_equal(tr_text_reader_open(&(tr_text_reader_options){.path = path}, &reader), TR_ERR_DATA);
}

// The same text plain, and in several members or frames, with padding.
static void compressed_files_read_like_plain_ones(void **state) {
  (void)state;
  tr_text lines = {0}, gzip = {0}, zstd = {0};
  for (int i = 0; i < 40; i++) tr_text_append(&lines, "{\"text\":\"line %d %0*d\"}\n", i, 1 + i * 977, i);
  size_t cut = lines.size / 3;
  gzip_member(lines.data, cut, &gzip);
  gzip_member("", 0, &gzip);
  gzip_member(lines.data + cut, lines.size - cut, &gzip);
  tr_text_append_bytes(&gzip, "\0\0\0\0\0", 5);
  tr_text_append_bytes(&zstd, "\x50\x2a\x4d\x18\x02\0\0\0..", 10); // a skippable frame
  zstd_frame(lines.data, cut, &zstd);
  zstd_frame("", 0, &zstd);
  zstd_frame(lines.data + cut, lines.size - cut, &zstd);
  const struct {
    const char *name;
    const tr_text *data;
  } row[] = {{"a.jsonl", &lines}, {"a.jsonl.gz", &gzip}, {"a.jsonl.zst", &zstd}};
  seen plain, out;
  for (size_t i = 0; i < COUNT(row); i++) {
    tr_text_reader_options o = {.path = file(row[i].name, row[i].data->data, row[i].data->size)};
    if (read_all(&o, 0, &out) != TR_OK) fail_msg("%s: %s", row[i].name, tr_status_text());
    assert_int_equal(out.n, 40);
    if (i == 0) plain = out;
    assert_string_equal(out.text.data, plain.text.data);
    assert_memory_equal(out.offset, plain.offset, sizeof plain.offset);
    if (i) tr_text_free(&out.text);
  }
  tr_text_free(&plain.text);
  tr_text_free(&lines);
  tr_text_free(&gzip);
  tr_text_free(&zstd);
}

static void compressed_files_in_compressed_files_are_refused(void **state) {
  (void)state;
  tr_text inner[2] = {{0}, {0}}, outer = {0};
  gzip_member("text", 4, &inner[0]);
  zstd_frame("text", 4, &inner[1]);
  for (int i = 0; i < 2; i++) {
    seen out;
    outer.size = 0;
    gzip_member(inner[i].data, inner[i].size, &outer);
    tr_text_reader_options o = {.path = file("twice.txt.gz", outer.data, outer.size)};
    assert_int_equal(read_all(&o, 0, &out), TR_ERR_DATA);
    assert_non_null(strstr(tr_status_text(), "twice.txt.gz: what it decompresses to is compressed again"));
    tr_text_free(&out.text);
    tr_text_free(&inner[i]);
  }
  tr_text_free(&outer);
}

// Cut short anywhere, or with any byte changed, a file is refused or (a change in a name or time stamp) reads the same.
static void damage_never_passes_for_text(void **state) {
  (void)state;
  static const char text[] =
      "{\"text\":\"one two three four five six seven\"}\n{\"text\":\"eight nine ten eleven\"}\n";
  for (int kind = 0; kind < 2; kind++) {
    tr_text data = {0};
    if (kind)
      zstd_frame(text, strlen(text), &data);
    else
      gzip_member(text, strlen(text), &data);
    for (size_t i = 1; i < 2 * data.size; i++) {
      seen out;
      char *copy = malloc(data.size + 1);
      memcpy(copy, data.data, data.size);
      size_t size = i < data.size ? i : data.size;
      if (i >= data.size) copy[i - data.size] ^= 0x10;
      tr_text_reader_options o = {.path = file(kind ? "x.jsonl.zst" : "x.jsonl.gz", copy, size)};
      tr_status status = read_all(&o, 0, &out);
      if (status == TR_OK && i < data.size) fail_msg("kind %d: %zu bytes of %zu pass", kind, i, data.size);
      // zstd's command line adds a checksum; the library without it takes some changes of letters for text.
      if (status == TR_OK && kind == 0)
        assert_string_equal(out.text.data, "one two three four five six seven|eight nine ten eleven|");
      if (status != TR_OK) assert_int_equal(status, TR_ERR_DATA);
      tr_text_free(&out.text);
      free(copy);
    }
    tr_text_free(&data);
  }
}

static void a_bomb_takes_no_memory(void **state) {
  (void)state;
  char *zeros = calloc(1, 64 << 20);
  assert_non_null(zeros);
  tr_text data = {0};
  zstd_frame(zeros, 64 << 20, &data);
  seen out;
  tr_text_reader_options o = {.path = file("bomb.jsonl.zst", data.data, data.size), .document_limit = 1 << 20};
  assert_int_equal(read_all(&o, 0, &out), TR_ERR_DATA);
  assert_non_null(strstr(tr_status_text(), "bomb.jsonl.zst:1: this document is longer than the limit"));
  tr_text_free(&data);
  ZSTD_CCtx *c = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, 28);
  size_t room = 1 << 20;
  char *block = malloc(room);
  ZSTD_outBuffer to = {.dst = block, .size = room};
  ZSTD_inBuffer in = {.src = zeros, .size = 1 << 20};
  ZSTD_compressStream2(c, &to, &in, ZSTD_e_continue); // of unknown size, so the window is as asked for
  assert_int_equal(ZSTD_compressStream2(c, &to, &in, ZSTD_e_end), 0);
  o = (tr_text_reader_options){.path = file("window.txt.zst", block, to.pos)};
  assert_int_equal(read_all(&o, 0, &out), TR_ERR_DATA);
  assert_non_null(strstr(tr_status_text(), "window of more than 128 MiB"));
  ZSTD_freeCCtx(c);
  free(block);
  free(zeros);
}

// From every offset that a reader has reported, another goes on with the same documents and parts.
static void skipping_is_exact(tr_text_reader_options o) {
  seen all, rest;
  if (read_all(&o, 0, &all) != TR_OK) fail_msg("%s: %s", o.path, tr_status_text());
  assert_true(all.n > 2);
  for (int i = 0; i < all.n; i++) {
    assert_int_equal(read_all(&o, all.offset[i], &rest), TR_OK);
    assert_int_equal(rest.n, all.n - i - 1);
    assert_int_equal(rest.text.size, all.text.size - all.at[i]);
    if (rest.n) assert_memory_equal(rest.text.data, all.text.data + all.at[i], rest.text.size);
    tr_text_free(&rest.text);
  }
  assert_int_equal(read_all(&o, all.offset[all.n - 1] + 9, &rest), TR_ERR_DATA);
  assert_non_null(strstr(tr_status_text(), "its text ends at byte"));
  tr_text_free(&all.text);
}

static void readers_go_on_at_any_reported_offset(void **state) {
  (void)state;
  tr_text text = {0}, gzip = {0};
  tr_text_append(&text, "\xef\xbb\xbf");
  for (int i = 0; i < 30; i++) tr_text_append(&text, "{\"text\":\"%0*d\"}\n\n", 1 + i * i * 60, i);
  gzip_member(text.data, text.size, &gzip);
  skipping_is_exact((tr_text_reader_options){.path = file("s.jsonl", text.data, text.size)});
  skipping_is_exact((tr_text_reader_options){.path = file("s.jsonl.gz", gzip.data, gzip.size)});
  skipping_is_exact((tr_text_reader_options){.path = file("s.txt.gz", gzip.data, gzip.size), .split = 1});
  tr_text_free(&text);
  tr_text_free(&gzip);
}

// A text of `nbyte` bytes made of words, blanks and `line_break`s.
static char *make_text(size_t nbyte, const char *line_break, unsigned blank_every) {
  static const char *const word[] = {"oar", " sea", " \xc3\xa9t\xc3\xa9", "\xe3\x80\x80", " 12",
                                     ".",   "  ",   "\xe6\xb5\xb7"};
  char *text = malloc(nbyte + 16);
  tr_rng_key key = tr_rng_key_make(1, TR_RNG_TEST, 0);
  size_t n = 0;
  for (unsigned i = 0; n < nbyte; i++) {
    uint32_t random = tr_rng_u32(key, 0, 0, i);
    const char *next = random % 97 == 0 ? line_break : word[random / 97 % COUNT(word)];
    if (blank_every && i % blank_every == 0) next = "\n\n";
    n += (size_t)sprintf(text + n, "%s", next);
  }
  return text;
}

static void large_texts_come_in_parts_that_add_up(void **state) {
  (void)state;
  static const size_t size = 6u << 20;
  static const char *const line_break[] = {"\n", "\r\n"};
  for (size_t i = 0; i < COUNT(line_break); i++) {
    char *text = make_text(size, line_break[i], 0);
    tr_text_reader_options o = {.path = file("large.txt", text, size)};
    skipping_is_exact(o);
    tr_text_reader *reader;
    assert_int_equal(tr_text_reader_open(&o, &reader), TR_OK);
    const char *part;
    size_t nbyte, sum = 0;
    int ends = 0;
    while (!ends) {
      assert_int_equal(tr_text_reader_next(reader, &part, &nbyte, &ends), TR_OK);
      assert_memory_equal(part, text + sum, nbyte);
      sum += nbyte;
      if (ends) break;
      assert_in_range(nbyte, 1 << 20, 2 << 20);
      const char *cut = text + sum;
      if (i == 0)
        assert_true(cut[-1] == '\n' && !strchr(" \n\t", cut[0]) && !strchr(" \n\t", cut[-2]) &&
                    memcmp(cut, "\xe3\x80\x80", 3) && memcmp(cut - 4, "\xe3\x80\x80", 3));
      else
        assert_true(cut[0] == '\r' && cut[1] == '\n' && cut[-1] >= 'a' && cut[-1] <= 'z');
    }
    assert_int_equal(sum, size);
    assert_int_equal(tr_text_reader_next(reader, &part, &nbyte, &ends), TR_OK);
    assert_null(part);
    tr_text_reader_close(reader);
    free(text);
  }
}

// Without a safe place a part has 16 MiB: up to the last line break, or else whole characters.
static void parts_without_a_safe_place_are_bounded(void **state) {
  (void)state;
  enum { MOST = 16 << 20, SIZE = MOST + (1 << 20) };
  char *text = malloc(SIZE);
  const char *part;
  size_t nbyte;
  int ends;
  for (int lines = 0; lines < 2; lines++) {
    for (size_t i = 0; i < SIZE; i++) text[i] = "\xe6\xb5\xb7"[i % 3];
    for (size_t i = 1000; lines && i < SIZE; i += 1001) text[i] = ' ', text[i + 1] = '\n';
    tr_text_reader *reader;
    assert_int_equal(tr_text_reader_open(&(tr_text_reader_options){.path = file("long.txt", text, SIZE)}, &reader),
                     TR_OK);
    assert_int_equal(tr_text_reader_next(reader, &part, &nbyte, &ends), TR_OK);
    assert_int_equal(ends, 0);
    assert_int_equal(nbyte, lines ? MOST / 1001 * 1001 + 1 : MOST - MOST % 3);
    assert_int_equal(tr_text_reader_next(reader, &part, &nbyte, &ends), TR_OK);
    assert_int_equal(ends, 1);
    tr_text_reader_close(reader);
  }
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(documents_are_found),
      cmocka_unit_test(zero_bytes_in_a_json_text_are_text),
      cmocka_unit_test(another_member_may_hold_the_text),
      cmocka_unit_test(what_cannot_be_read_is_refused_by_name_and_place),
      cmocka_unit_test(compressed_files_read_like_plain_ones),
      cmocka_unit_test(compressed_files_in_compressed_files_are_refused),
      cmocka_unit_test(damage_never_passes_for_text),
      cmocka_unit_test(a_bomb_takes_no_memory),
      cmocka_unit_test(readers_go_on_at_any_reported_offset),
      cmocka_unit_test(large_texts_come_in_parts_that_add_up),
      cmocka_unit_test(parts_without_a_safe_place_are_bounded),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
