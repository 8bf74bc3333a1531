// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that a save appears whole, replaces `latest`, keeps what it must and removes the rest; that find takes the
// newest checkpoint that can be loaded, whatever has happened to `latest`, to names and to bytes; and that failed
// saves (bad requests, full disk, unwritable folder) leave what was there usable and nothing half-done.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ckpt/ckpt_internal.h"
#include "ckpt/scratch.h"
#include "trireme/base/log.h"

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char last_warning[4096];

static void keep_warning(tr_log_level level, const char *line, void *user) {
  (void)user;
  if (level == TR_LOG_WARN) snprintf(last_warning, sizeof last_warning, "%s", line);
}

static void save(const scratch *folder, int64_t step, int keep, int64_t keep_every, float value) {
  tr_ckpt_save_options options = {.folder = folder->path, .step = step, .keep = keep, .keep_every = keep_every};
  if (save_value(&options, value) != TR_OK) fail_msg("step %d: %s", (int)step, tr_status_text());
}

static void expect_found(const scratch *folder, int verify, int64_t step, float value) {
  char found[SCRATCH_PATH];
  if (tr_ckpt_find(folder->path, verify, found, sizeof found) != TR_OK) fail_msg("%s", tr_status_text());
  assert_int_equal(tr_ckpt_step(found), step);
  assert_true(value_of(found) == value);
}

static void expect_nothing(const char *path, const char *fragment) {
  char found[SCRATCH_PATH] = "untouched";
  assert_int_equal(tr_ckpt_find(path, 1, found, sizeof found), TR_ERR_CKPT);
  assert_string_equal(found, "untouched");
  if (!strstr(tr_status_text(), fragment)) fail_msg("'%s' is not in '%s'", fragment, tr_status_text());
}

static void change_byte(const scratch *folder, const char *name, long offset) {
  scratch path = scratch_path(folder, name);
  int fd = open(path.path, O_RDWR);
  unsigned char byte;
  assert_true(fd >= 0);
  off_t at = lseek(fd, offset, offset < 0 ? SEEK_END : SEEK_SET);
  assert_true(at >= 0);
  assert_int_equal(pread(fd, &byte, 1, at), 1);
  byte ^= 1;
  assert_int_equal(pwrite(fd, &byte, 1, at), 1);
  assert_int_equal(close(fd), 0);
}

static void write_text(const scratch *folder, const char *name, const char *text) {
  scratch path = scratch_path(folder, name);
  scratch_write(path.path, text, strlen(text));
}

static void a_saved_checkpoint_is_found_verified_and_described(void **state) {
  (void)state;
  scratch top = scratch_make(), folder = scratch_path(&top, "new/checkpoints");
  char found[SCRATCH_PATH];
  save(&folder, 100, 0, 0, 1.5f);
  expect_found(&folder, 0, 100, 1.5f);
  expect_found(&folder, 1, 100, 1.5f);
  scratch step = scratch_path(&folder, "step-00000100"), manifest = scratch_path(&step, "manifest.json");
  assert_int_equal(tr_ckpt_find(step.path, 1, found, sizeof found), TR_OK);
  assert_string_equal(found, step.path);
  assert_int_equal(tr_ckpt_verify(step.path), TR_OK);
  char *text;
  size_t nbyte;
  assert_int_equal(tr_file_read(manifest.path, 100000, &text, &nbyte), TR_OK);
  assert_non_null(strstr(text, "{\"format\":\"trireme-checkpoint\",\"version\":2,\"step\":100,"));
  assert_non_null(strstr(text, "{\"name\":\"config.json\",\"bytes\":2,\"xxh3\":\""));
  assert_non_null(strstr(text, "{\"file\":\"optimizer.safetensors\",\"name\":\"v\",\"xxh3\":\""));
  free(text);
  scratch latest = scratch_path(&folder, "latest");
  assert_int_equal(tr_file_read(latest.path, 100, &text, &nbyte), TR_OK);
  assert_string_equal(text, "step-00000100\n");
  free(text);
  char small[4];
  assert_int_equal(tr_ckpt_find(folder.path, 0, small, sizeof small), TR_ERR_USAGE);
  scratch_remove(&top);
}

static void step_is_read_from_the_name(void **state) {
  (void)state;
  assert_int_equal(tr_ckpt_step("a/step-00000100"), 100);
  assert_int_equal(tr_ckpt_step("step-5//"), 5);
  assert_int_equal(tr_ckpt_step("step-1234567890123/"), 1234567890123);
  assert_int_equal(tr_ckpt_step("x/step-00000007.old-12"), 7);
  assert_int_equal(tr_ckpt_step("step-"), -1);
  assert_int_equal(tr_ckpt_step("step-12x"), -1);
  assert_int_equal(tr_ckpt_step("step-1/other"), -1);
  assert_int_equal(tr_ckpt_step(".tmp-step-00000100-1"), -1);
  assert_int_equal(tr_ckpt_step("step-9999999999999999999"), -1);
  assert_int_equal(tr_ckpt_step(""), -1);
  assert_int_equal(tr_ckpt_step("/"), -1);
}

static void keep_leaves_the_newest_and_the_multiples(void **state) {
  (void)state;
  scratch folder = scratch_make();
  for (int step = 0; step <= 70; step += 10) save(&folder, step, 2, 30, (float)step);
  static const int kept[] = {0, 30, 60, 70};
  assert_int_equal(scratch_count(folder.path, "step-"), 4);
  for (int i = 0; i < 4; i++) {
    char name[32];
    snprintf(name, sizeof name, "step-%08d", kept[i]);
    scratch path = scratch_path(&folder, name);
    assert_int_equal(tr_ckpt_verify(path.path), TR_OK);
  }
  assert_int_equal(scratch_count(folder.path, ".tmp"), 0);
  // Going back: the one just written stays although two newer ones exist, and is what `latest` names.
  save(&folder, 45, 2, 30, 45.0f);
  expect_found(&folder, 1, 45, 45.0f);
  save(&folder, 46, 2, 30, 46.0f);
  expect_found(&folder, 1, 46, 46.0f);
  // Newer ones are from before the fall back: they do not count, so 45 is still among the two to keep.
  assert_int_equal(scratch_count(folder.path, "step-00000045"), 1);
  save(&folder, 47, 2, 30, 47.0f);
  expect_found(&folder, 1, 47, 47.0f);
  assert_int_equal(scratch_count(folder.path, "step-00000045"), 0);
  assert_int_equal(scratch_count(folder.path, "step-00000046"), 1);
  assert_int_equal(scratch_count(folder.path, "step-00000070"), 1);
  scratch_remove(&folder);
}

static void keep_zero_removes_nothing(void **state) {
  (void)state;
  scratch folder = scratch_make();
  for (int step = 1; step <= 5; step++) save(&folder, step, 0, 0, (float)step);
  assert_int_equal(scratch_count(folder.path, "step-"), 5);
  scratch_remove(&folder);
}

static void the_same_step_again_replaces_it(void **state) {
  (void)state;
  scratch folder = scratch_make();
  for (int i = 0; i < 3; i++) {
    save(&folder, 7, 1, 0, (float)i);
    expect_found(&folder, 1, 7, (float)i);
    assert_int_equal(scratch_count(folder.path, "step-"), 1);
    assert_int_equal(scratch_count(folder.path, ".tmp"), 0);
  }
  scratch_remove(&folder);
}

static void replacing_works_with_and_without_an_atomic_exchange(void **state) {
  (void)state;
  for (int exchange = 0; exchange < 2; exchange++) {
    scratch folder = scratch_make(), final = scratch_path(&folder, "step-00000001");
    scratch other = scratch_make(), built = scratch_path(&other, "step-00000001");
    scratch aside = scratch_path(&folder, "step-00000001.old-1"), temporary = scratch_path(&folder, ".tmp-step-1-1");
    save(&folder, 1, 0, 0, 1.0f);
    save(&other, 1, 0, 0, 2.0f);
    assert_int_equal(rename(built.path, temporary.path), 0);
    assert_int_equal(tr__ckpt_publish(temporary.path, final.path, aside.path, exchange), TR_OK);
    assert_true(value_of(final.path) == 2.0f);
    assert_true(value_of(exchange ? temporary.path : aside.path) == 1.0f);
    assert_int_equal(tr_file_exists(temporary.path), exchange);
    assert_int_equal(tr_file_exists(aside.path), !exchange);
    // A folder that cannot be moved in leaves what is there, also when that had been moved away already.
    assert_int_equal(tr_file_remove_tree(aside.path), TR_OK);
    assert_true(tr__ckpt_publish("/nonexistent/x", final.path, aside.path, exchange) < 0);
    assert_true(value_of(final.path) == 2.0f);
    assert_false(tr_file_exists(aside.path));
    scratch_remove(&other);
    scratch_remove(&folder);
  }
}

// A process number that is free: that of a child that has been waited for.
static int dead_process(void) {
  pid_t child = fork();
  if (child == 0) _exit(0);
  assert_true(child > 0);
  assert_int_equal(waitpid(child, NULL, 0), child);
  return (int)child;
}

static void a_replacement_cut_short_is_found_and_repaired(void **state) {
  (void)state;
  scratch folder = scratch_make(), step = scratch_path(&folder, "step-00000005");
  char name[64];
  save(&folder, 5, 0, 0, 5.0f);
  snprintf(name, sizeof name, "step-00000005.old-%d", dead_process());
  scratch old = scratch_path(&folder, name);
  assert_int_equal(rename(step.path, old.path), 0);
  expect_found(&folder, 1, 5, 5.0f); // though `latest` names what is missing
  save(&folder, 6, 0, 0, 6.0f);
  assert_true(value_of(step.path) == 5.0f);
  assert_false(tr_file_exists(old.path));
  assert_int_equal(rename(step.path, old.path), 0);
  save(&folder, 5, 0, 0, 5.5f); // goes back first, then is replaced
  assert_int_equal(scratch_count(folder.path, "step-00000005"), 1);
  assert_true(value_of(step.path) == 5.5f);
  scratch_remove(&folder);
}

static void bad_latest_falls_back_to_the_newest_and_says_so(void **state) {
  (void)state;
  static const char *const texts[] = {
      NULL, "", "rubbish\n", "../../etc\n", "step-00000009\n", "step-00000001/../x", "step-00000002\nmore\n"};
  scratch folder = scratch_make(), latest = scratch_path(&folder, "latest");
  save(&folder, 1, 0, 0, 1.0f);
  save(&folder, 2, 0, 0, 2.0f);
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    last_warning[0] = '\0';
    assert_int_equal(unlink(latest.path), 0);
    if (texts[i]) write_text(&folder, "latest", texts[i]);
    expect_found(&folder, 1, 2, 2.0f);
    if (i < 6) assert_non_null(strstr(last_warning, "falling back to"));
    if (!texts[i]) write_text(&folder, "latest", "x");
  }
  char big[5000];
  memset(big, 'a', sizeof big);
  scratch_write(latest.path, big, sizeof big);
  expect_found(&folder, 1, 2, 2.0f);
  write_text(&folder, "latest", "step-00000001\n"); // a valid hint counts
  expect_found(&folder, 1, 1, 1.0f);
  scratch_remove(&folder);
}

static void a_changed_byte_is_noticed_named_and_avoided(void **state) {
  (void)state;
  static const struct {
    const char *file, *fragment;
    long offset;
  } changes[] = {
      {"step-00000002/model.safetensors", "tensor 'w': hash is", -1},
      {"step-00000002/optimizer.safetensors", "tensor 'v': hash is", -3},
      {"step-00000002/optimizer.safetensors", "tensor 'm': hash is", -300},
      {"step-00000002/model.safetensors", "model.safetensors: ", 0},
      {"step-00000002/model.safetensors", "model.safetensors: ", 30},
      {"step-00000002/config.json", "config.json: hash is", 0},
      {"step-00000002/trainer.json", "trainer.json: hash is", 3},
      {"step-00000002/manifest.json", "manifest.json", 0},
  };
  scratch folder = scratch_make(), second = scratch_path(&folder, "step-00000002");
  save(&folder, 1, 0, 0, 1.0f);
  for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
    save(&folder, 2, 0, 0, 2.0f);
    expect_found(&folder, 1, 2, 2.0f);
    change_byte(&folder, changes[i].file, changes[i].offset);
    assert_int_equal(tr_ckpt_verify(second.path), TR_ERR_CKPT);
    if (!strstr(tr_status_text(), changes[i].fragment))
      fail_msg("'%s' is not in '%s'", changes[i].fragment, tr_status_text());
    expect_nothing(second.path, second.path); // named directly there is nothing to fall back to
    expect_found(&folder, 1, 1, 1.0f);
  }
  scratch_remove(&folder);
}

static void missing_and_shortened_files_are_noticed_by_sizes_alone(void **state) {
  (void)state;
  scratch folder = scratch_make(), second = scratch_path(&folder, "step-00000002");
  scratch config = scratch_path(&second, "config.json"), model = scratch_path(&second, "model.safetensors");
  save(&folder, 1, 0, 0, 1.0f);
  save(&folder, 2, 0, 0, 2.0f);
  assert_int_equal(truncate(model.path, 100), 0);
  expect_found(&folder, 0, 1, 1.0f);
  save(&folder, 2, 0, 0, 2.0f);
  expect_found(&folder, 0, 2, 2.0f);
  assert_int_equal(unlink(config.path), 0);
  expect_found(&folder, 0, 1, 1.0f);
  save(&folder, 2, 0, 0, 2.0f);
  scratch manifest = scratch_path(&second, "manifest.json");
  assert_int_equal(unlink(manifest.path), 0);
  expect_found(&folder, 0, 1, 1.0f); // below a run a folder counts only with its manifest
  scratch_remove(&folder);
}

static void manifests_that_cannot_be_right_are_refused(void **state) {
  (void)state;
#define HEAD  "{\"format\":\"trireme-checkpoint\",\"version\":2,\"step\":1,"
#define MODEL HEAD "\"files\":[{\"name\":\"model.safetensors\",\"bytes\":488,"
#define ROW   "{\"file\":\"model.safetensors\",\"name\":\"w\",\"xxh3\":\"00\"}"
  static const struct {
    const char *text, *fragment;
  } rows[] = {
      {"", "not valid JSON"},
      {"[]", "wanted an object"},
      {"{\"format\":\"other\",\"version\":1,\"step\":1,\"files\":[],\"tensors\":[]}", "format is not"},
      {"{\"format\":\"trireme-checkpoint\",\"version\":3,\"step\":1,\"files\":[],\"tensors\":[]}", "version is 3"},
      {"{\"format\":\"trireme-checkpoint\",\"version\":1,\"files\":[],\"tensors\":[]}", "\"step\" is missing"},
      {HEAD "\"files\":{},\"tensors\":[]}", "must be lists"},
      {HEAD "\"files\":[],\"tensors\":[]}", "0 entries"},
      {HEAD "\"files\":[{\"name\":\"../a\",\"bytes\":1,\"xxh3\":\"00\"}],\"tensors\":[]}", "not a plain base name"},
      {HEAD "\"files\":[{\"name\":\"a/b\",\"bytes\":1,\"xxh3\":\"00\"}],\"tensors\":[]}", "not a plain base name"},
      {HEAD "\"files\":[{\"name\":\"..\",\"bytes\":1,\"xxh3\":\"00\"}],\"tensors\":[]}", "not a plain base name"},
      {HEAD "\"files\":[{\"name\":\"\",\"bytes\":1,\"xxh3\":\"00\"}],\"tensors\":[]}", "not a plain base name"},
      {HEAD "\"files\":[{\"name\":\"sub\",\"bytes\":4096,\"xxh3\":\"00\"}],\"tensors\":[]}", "not a regular file"},
      {HEAD "\"files\":[{\"name\":\"gone\",\"bytes\":1,\"xxh3\":\"00\"}],\"tensors\":[]}", "No such file"},
      {HEAD "\"files\":[7],\"tensors\":[]}", "wanted an object"},
      {HEAD "\"files\":[{\"name\":\"config.json\",\"bytes\":-2,\"xxh3\":\"00\"}],\"tensors\":[]}", "says -2"},
      {HEAD "\"files\":[{\"name\":\"config.json\",\"bytes\":2}],\"tensors\":[]}", "\"xxh3\" is missing"},
      {HEAD "\"files\":[{\"name\":\"config.json\",\"bytes\":2,\"xxh3\":\"00\"}],\"tensors\":[]}", "hash is"},
      {HEAD "\"files\":[{\"name\":\"model.safetensors\",\"bytes\":488,\"xxh3\":\"00\"}],"
            "\"tensors\":[{\"file\":\"model.safetensors\",\"name\":\"q\",\"xxh3\":\"00\"}]}",
       "'q' of the manifest"},
      {MODEL "\"header\":-1,\"xxh3\":\"00\"}],\"tensors\":[" ROW "]}", "manifest says -1"},
      {MODEL "\"header\":488,\"xxh3\":\"00\"}],\"tensors\":[" ROW "]}", "header of 104 bytes"},
      {MODEL "\"header\":\"x\",\"xxh3\":\"00\"}],\"tensors\":[" ROW "]}", "\"header\""},
      {MODEL "\"header\":104,\"xxh3\":\"00\"}],\"tensors\":[]}", "lists 0 of the 1 tensors"},
      {MODEL "\"header\":104,\"xxh3\":\"00\"}],\"tensors\":[" ROW "]}", "tensor 'w': hash is"},
      {HEAD "\"files\":[{\"name\":\"config.json\",\"bytes\":2,\"header\":2,\"xxh3\":\"00\"}],\"tensors\":[]}",
       "config.json: 2 bytes are too few"},
  };
  scratch folder = scratch_make(), step = scratch_path(&folder, "step-00000001"), sub = scratch_path(&step, "sub");
  scratch model = scratch_path(&step, "model.safetensors");
  struct stat about;
  save(&folder, 1, 0, 0, 1.0f);
  assert_int_equal(stat(model.path, &about), 0);
  assert_int_equal(about.st_size, 488);
  assert_int_equal(mkdir(sub.path, 0777), 0);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    write_text(&step, "manifest.json", rows[i].text);
    expect_nothing(folder.path, rows[i].fragment);
  }
  scratch_remove(&folder);
}

// As version 1 wrote them: one hash of a whole file.
static void checkpoints_of_version_1_are_still_read(void **state) {
  (void)state;
  scratch folder = scratch_make(), step = scratch_path(&folder, "step-00000001");
  scratch model = scratch_path(&step, "model.safetensors");
  char *bytes, text[1024], found[SCRATCH_PATH];
  size_t nbyte;
  save(&folder, 1, 0, 0, 1.0f);
  assert_int_equal(tr_file_read(model.path, 100000, &bytes, &nbyte), TR_OK);
  snprintf(text, sizeof text,
           "{\"format\":\"trireme-checkpoint\",\"version\":1,\"step\":1,\n\"files\":[{\"name\":\"model.safetensors\","
           "\"bytes\":%zu,\"xxh3\":\"%016" PRIx64
           "\"}],\n\"tensors\":[{\"file\":\"model.safetensors\",\"name\":\"w\","
           "\"xxh3\":\"%016" PRIx64 "\"}]}\n",
           nbyte, tr_hash_bytes(bytes, nbyte), tr_hash_bytes(bytes + nbyte - 384, 384));
  write_text(&step, "manifest.json", text);
  free(bytes);
  if (tr_ckpt_find(folder.path, 1, found, sizeof found) != TR_OK) fail_msg("%s", tr_status_text());
  change_byte(&folder, "step-00000001/model.safetensors", 20);
  assert_int_equal(tr_ckpt_find(folder.path, 0, found, sizeof found), TR_OK);
  assert_int_equal(tr_ckpt_find(folder.path, 1, found, sizeof found), TR_ERR_CKPT);
  scratch_remove(&folder);
}

static void plain_hugging_face_folders_are_checkpoints_themselves(void **state) {
  (void)state;
  scratch folder = scratch_make(), path = scratch_path(&folder, "model.safetensors");
  float data[4] = {1, 2, 3, 4};
  char found[SCRATCH_PATH];
  tr_safetensors_item item = {"a", TR_F32, TR_F32, {1, {4}}, data, 0};
  assert_int_equal(tr_safetensors_write(path.path, &item, 1, NULL, 0, NULL, NULL, NULL, NULL), TR_OK);
  assert_int_equal(tr_ckpt_find(folder.path, 1, found, sizeof found), TR_OK);
  assert_string_equal(found, folder.path);
  assert_int_equal(tr_ckpt_step(found), -1);
  assert_int_equal(tr_ckpt_verify(folder.path), TR_ERR_CKPT);
  assert_int_equal(truncate(path.path, 60), 0);
  expect_nothing(folder.path, "model.safetensors");
  scratch_remove(&folder);
}

static void folders_without_a_checkpoint_are_named(void **state) {
  (void)state;
  scratch folder = scratch_make(), absent = scratch_path(&folder, "absent"), file = scratch_path(&folder, "file");
  expect_nothing(folder.path, "no checkpoint in it");
  expect_nothing(absent.path, "No such file");
  write_text(&folder, "file", "x");
  expect_nothing(file.path, "not a folder");
  scratch_remove(&folder);
}

static void leftovers_of_dead_processes_go_and_others_stay(void **state) {
  (void)state;
  scratch folder = scratch_make();
  int dead = dead_process();
  char name[5][64];
  snprintf(name[0], 64, ".tmp-step-00000003-%d", dead);
  snprintf(name[1], 64, ".tmp-step-00000004-%d", (int)getpid());
  snprintf(name[2], 64, ".tmp-step-00000005-%d", (int)getppid()); // alive
  snprintf(name[3], 64, ".tmp-step-x-%d", dead);                  // not ours
  snprintf(name[4], 64, ".latest.tmp.%d", dead);
  for (int i = 0; i < 4; i++) {
    scratch path = scratch_path(&folder, name[i]);
    assert_int_equal(mkdir(path.path, 0777), 0);
    write_text(&path, "model.safetensors", "half");
  }
  write_text(&folder, name[4], "step");
  save(&folder, 9, 0, 0, 9.0f);
  for (int i = 0; i < 5; i++) {
    scratch path = scratch_path(&folder, name[i]);
    assert_int_equal(tr_file_exists(path.path), i == 2 || i == 3);
  }
  scratch_remove(&folder);
}

static void requests_that_cannot_be_right_are_refused(void **state) {
  (void)state;
  static const char *const names[] = {"", ".", "..", "a/b", "/etc/x", ".hidden", "manifest.json", "a\nb", NULL};
  scratch folder = scratch_make();
  tr_ckpt_save_options options = {.folder = folder.path, .step = 1};
  tr_ckpt_file file[2] = {{"a", NULL, 0, "x"}, {"a", NULL, 0, "y"}};
  assert_int_equal(tr_ckpt_save(&options, file, 2), TR_ERR_USAGE);
  assert_non_null(strstr(tr_status_text(), "'a' of a checkpoint is given twice"));
  assert_int_equal(tr_ckpt_save(&options, file, 0), TR_ERR_USAGE);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    file[0].name = names[i];
    assert_int_equal(tr_ckpt_save(&options, file, 1), TR_ERR_USAGE);
  }
  tr_ckpt_file neither = {"a", NULL, 0, NULL};
  assert_int_equal(tr_ckpt_save(&options, &neither, 1), TR_ERR_USAGE);
  options.step = -1;
  file[0].name = "a";
  assert_int_equal(tr_ckpt_save(&options, file, 1), TR_ERR_USAGE);
  assert_int_equal(scratch_count(folder.path, "step-") + scratch_count(folder.path, ".tmp"), 0);
  scratch_remove(&folder);
}

static void a_bad_tensor_leaves_no_temporary_folder(void **state) {
  (void)state;
  scratch folder = scratch_make();
  float x = 1;
  tr_safetensors_item twice[2] = {{"x", TR_F32, TR_F32, {1, {1}}, &x, 0}, {"x", TR_F32, TR_F32, {1, {1}}, &x, 0}};
  tr_ckpt_file file = {"model.safetensors", twice, 2, NULL};
  tr_ckpt_save_options options = {.folder = folder.path, .step = 2};
  save(&folder, 1, 0, 0, 1.0f);
  assert_int_equal(tr_ckpt_save(&options, &file, 1), TR_ERR_USAGE);
  assert_non_null(strstr(tr_status_text(), "tensor 'x' is given twice"));
  assert_int_equal(scratch_count(folder.path, ".tmp"), 0);
  expect_found(&folder, 1, 1, 1.0f);
  scratch_remove(&folder);
}

static void an_unwritable_folder_is_an_error_with_the_reason(void **state) {
  (void)state;
  scratch folder = scratch_make(), file = scratch_path(&folder, "file"), below = scratch_path(&folder, "file/x");
  write_text(&folder, "file", "x");
  tr_ckpt_save_options options = {.folder = below.path, .step = 1};
  assert_int_equal(save_value(&options, 1), TR_ERR_IO);
  assert_non_null(strstr(tr_status_text(), "Not a directory"));
  assert_non_null(strstr(tr_status_text(), file.path));
  if (geteuid() != 0) {
    scratch closed = scratch_path(&folder, "closed");
    assert_int_equal(mkdir(closed.path, 0555), 0);
    options.folder = closed.path;
    assert_int_equal(save_value(&options, 1), TR_ERR_IO);
    assert_non_null(strstr(tr_status_text(), "Permission denied"));
  }
  scratch_remove(&folder);
}

// A small file system of this process alone; 0 when the process may not mount.
static int mount_small(const char *path) {
  if (unshare(CLONE_NEWNS) != 0) return 0;
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return 0;
  return mount("trireme-test", path, "tmpfs", 0, "size=256k") == 0;
}

static void a_full_disk_fails_the_save_and_keeps_the_former_checkpoint(void **state) {
  (void)state;
  scratch folder = scratch_make();
  if (!mount_small(folder.path)) {
    print_message("skipped: cannot mount a small file system here (%s)\n", strerror(errno));
    scratch_remove(&folder);
    skip();
  }
  static float big[1 << 18];
  tr_safetensors_item item = {"big", TR_F32, TR_F32, {1, {1 << 18}}, big, 0};
  tr_ckpt_file file = {"model.safetensors", &item, 1, NULL};
  tr_ckpt_save_options options = {.folder = folder.path, .step = 2};
  save(&folder, 1, 0, 0, 1.0f);
  for (int i = 0; i < 3; i++) { // again: a failed save must not eat the space
    assert_int_equal(tr_ckpt_save(&options, &file, 1), TR_ERR_IO);
    assert_non_null(strstr(tr_status_text(), "No space left on device"));
    assert_non_null(strstr(tr_status_text(), "model.safetensors"));
    assert_int_equal(scratch_count(folder.path, ".tmp"), 0);
    expect_found(&folder, 1, 1, 1.0f);
  }
  save(&folder, 3, 1, 0, 3.0f);
  expect_found(&folder, 1, 3, 3.0f);
  assert_int_equal(mount(NULL, folder.path, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
  options.step = 4;
  assert_int_equal(save_value(&options, 4), TR_ERR_IO);
  assert_non_null(strstr(tr_status_text(), "Read-only file system"));
  expect_found(&folder, 1, 3, 3.0f);
  assert_int_equal(umount(folder.path), 0);
  scratch_remove(&folder);
}

static void count_call(void *user) { ++*(int *)user; }

static void progress_is_called_for_every_file(void **state) {
  (void)state;
  scratch folder = scratch_make();
  int calls = 0;
  tr_ckpt_save_options options = {.folder = folder.path, .step = 1, .progress = count_call, .user = &calls};
  assert_int_equal(save_value(&options, 1), TR_OK);
  assert_true(calls >= 4);
  scratch_remove(&folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_saved_checkpoint_is_found_verified_and_described),
      cmocka_unit_test(step_is_read_from_the_name),
      cmocka_unit_test(keep_leaves_the_newest_and_the_multiples),
      cmocka_unit_test(keep_zero_removes_nothing),
      cmocka_unit_test(the_same_step_again_replaces_it),
      cmocka_unit_test(replacing_works_with_and_without_an_atomic_exchange),
      cmocka_unit_test(a_replacement_cut_short_is_found_and_repaired),
      cmocka_unit_test(bad_latest_falls_back_to_the_newest_and_says_so),
      cmocka_unit_test(a_changed_byte_is_noticed_named_and_avoided),
      cmocka_unit_test(missing_and_shortened_files_are_noticed_by_sizes_alone),
      cmocka_unit_test(manifests_that_cannot_be_right_are_refused),
      cmocka_unit_test(checkpoints_of_version_1_are_still_read),
      cmocka_unit_test(plain_hugging_face_folders_are_checkpoints_themselves),
      cmocka_unit_test(folders_without_a_checkpoint_are_named),
      cmocka_unit_test(leftovers_of_dead_processes_go_and_others_stay),
      cmocka_unit_test(requests_that_cannot_be_right_are_refused),
      cmocka_unit_test(a_bad_tensor_leaves_no_temporary_folder),
      cmocka_unit_test(an_unwritable_folder_is_an_error_with_the_reason),
      cmocka_unit_test(progress_is_called_for_every_file),
      cmocka_unit_test(a_full_disk_fails_the_save_and_keeps_the_former_checkpoint),
  };
  tr_log_set_sink(keep_warning, NULL);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
