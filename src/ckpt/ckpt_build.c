// SPDX-License-Identifier: MIT
// The files of a checkpoint, in a folder that nobody reads yet.
//
// One writer makes the folder, the files of tensors with their headers, and room for the rest; every writer then fills
// in its tensors, in place and at the same time; the first one adds texts and, last, the manifest. The manifest has the
// hash of each file's header and of each tensor, which together are all bytes of a file of tensors, so no hash needs
// the bytes of two writers.
#include "ckpt/ckpt_internal.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static tr_status write_whole(const tr__build *build, const char *path, const void *data, size_t nbyte) {
  tr__part_file file = {.wrote = build->wrote, .user = build->user};
  TR_TRY(tr__part_create(&file, path, nbyte));
  tr_status status = tr__part_write(&file, data, nbyte, 0);
  if (status == TR_OK) return tr__part_finish(&file);
  tr__part_abandon(&file);
  return status;
}

tr_status tr__build_begin(const tr__build *build) {
  char path[TR__CKPT_PATH_MAX];
  if (mkdir(build->folder, 0777) != 0)
    return tr_error(TR_ERR_IO, "%s: cannot make the folder: %s", build->folder, strerror(errno));
  for (size_t f = 0; f < build->plan->nfile; f++) {
    const tr__plan_file *about = &build->plan->file[f];
    tr__part_file file = {.wrote = build->wrote, .user = build->user};
    if (about->is_text) continue;
    TR_TRY(tr__ckpt_join(path, build->folder, about->name));
    TR_TRY(tr__part_create(&file, path, about->nbyte));
    tr_status status = tr__part_write(&file, about->header.data, about->header.size, 0);
    // Forced to disk by build_share, in which the writer of the headers takes part in every file.
    tr__part_abandon(&file);
    if (status < 0) return status;
  }
  return TR_OK;
}

// Tensors [begin, end) of the plan, neighbours in `file`, from where they lie in memory.
static tr_status share_from_buffer(const tr__build *build, tr__part_file *file, size_t begin, size_t end) {
  tr__plan_tensor *t = build->plan->tensor;
  for (size_t i = begin; i < end; i++) t[i].hash = tr_hash_bytes(build->buffer + build->place[i], t[i].nbyte);
  return tr__part_write(file, build->buffer + build->place[begin],
                        (size_t)(t[end - 1].offset + t[end - 1].nbyte - t[begin].offset), t[begin].offset);
}

static tr_status share_from_items(const tr__build *build, tr__part_file *file, size_t begin, size_t end) {
  tr__plan_tensor *t = build->plan->tensor;
  tr__stream stream;
  TR_TRY(tr__stream_open(&stream, file, t[end - 1].offset + t[end - 1].nbyte - t[begin].offset));
  tr__stream_seek(&stream, t[begin].offset);
  tr_status status = TR_OK;
  for (size_t i = begin; i < end && status == TR_OK; i++)
    status = tr__stream_item(&stream, &build->file[t[i].file].item[t[i].item], &t[i].hash);
  if (status == TR_OK) status = tr__stream_flush(&stream);
  tr__stream_close(&stream);
  return status;
}

static tr_status share_of_file(const tr__build *build, size_t f) {
  char path[TR__CKPT_PATH_MAX];
  size_t begin, end = build->plan->file[f].first;
  tr__part_file file = {.wrote = build->wrote, .user = build->user};
  int has = tr__plan_next_run(build->plan, f, build->writer, &begin, &end);
  if (build->plan->file[f].is_text || (!has && build->writer != 0)) return TR_OK;
  TR_TRY(tr__ckpt_join(path, build->folder, build->plan->file[f].name));
  TR_TRY(tr__part_open(&file, path));
  tr_status status = TR_OK;
  for (; has && status == TR_OK; has = tr__plan_next_run(build->plan, f, build->writer, &begin, &end))
    status = build->buffer ? share_from_buffer(build, &file, begin, end) : share_from_items(build, &file, begin, end);
  if (status == TR_OK) return tr__part_finish(&file);
  tr__part_abandon(&file);
  return status;
}

tr_status tr__build_share(const tr__build *build) {
  for (size_t f = 0; f < build->plan->nfile; f++) TR_TRY(share_of_file(build, f));
  return TR_OK;
}

// ---- manifest

static void hash_text(uint64_t hash, char out[17]) { snprintf(out, 17, "%016" PRIx64, hash); }

// Add a row of a list and release it.
static void add_row(tr_text *text, int first, json_t *row) {
  char *line = row ? json_dumps(row, JSON_COMPACT) : NULL;
  if (line)
    tr_text_append(text, "%s%s", first ? "" : ",\n", line);
  else
    text->failed = 1;
  free(line);
  json_decref(row);
}

static void describe(const tr__plan *plan, int64_t step, tr_text *text) {
  char hash[17];
  tr_text_append(text, "{\"format\":\"trireme-checkpoint\",\"version\":2,\"step\":%" PRId64 ",\n\"files\":[\n", step);
  for (size_t f = 0; f < plan->nfile; f++) {
    const tr__plan_file *about = &plan->file[f];
    json_t *row = json_pack("{s:s, s:I}", "name", about->name, "bytes", (json_int_t)about->nbyte);
    if (!about->is_text) json_object_set_new(row, "header", json_integer((json_int_t)about->header.size));
    hash_text(about->hash, hash);
    json_object_set_new(row, "xxh3", json_string(hash));
    add_row(text, f == 0, row);
  }
  tr_text_append(text, "\n],\n\"tensors\":[\n");
}

static tr_status write_manifest(const tr__build *build) {
  const tr__plan *plan = build->plan;
  char path[TR__CKPT_PATH_MAX], hash[17];
  tr_text text = {0};
  TR_TRY(tr__ckpt_join(path, build->folder, TR__CKPT_MANIFEST));
  describe(plan, build->step, &text);
  for (size_t i = 0; i < plan->ntensor; i++) {
    const tr__plan_tensor *t = &plan->tensor[i];
    hash_text(t->hash, hash);
    add_row(&text, i == 0,
            json_pack("{s:s, s:s, s:s}", "file", plan->file[t->file].name, "name", t->name, "xxh3", hash));
  }
  tr_text_append(&text, "\n]}\n");
  tr_status status = TR_OK;
  if (text.failed)
    status = tr_error(TR_ERR_MEMORY, "%s: no memory to describe the checkpoint", path);
  else if (text.size > TR__CKPT_MANIFEST_MAX)
    status =
        tr_error(TR_ERR_USAGE, "%s: %zu bytes are above the limit of %d", path, text.size, TR__CKPT_MANIFEST_MAX);
  else
    status = write_whole(build, path, text.data, text.size);
  tr_text_free(&text);
  return status;
}

tr_status tr__build_end(const tr__build *build, const char *const *text) {
  char path[TR__CKPT_PATH_MAX];
  for (size_t f = 0; f < build->plan->nfile; f++) {
    tr__plan_file *about = &build->plan->file[f];
    if (!about->is_text) continue;
    TR_TRY(tr__ckpt_join(path, build->folder, about->name));
    about->nbyte = strlen(text[f]);
    about->hash = tr_hash_bytes(text[f], (size_t)about->nbyte);
    TR_TRY(write_whole(build, path, text[f], (size_t)about->nbyte));
  }
  TR_TRY(write_manifest(build));
  return tr_file_sync_folder(build->folder);
}

tr_status tr__build_all(const tr__build *build, const char *const *text) {
  tr_status status = tr__build_begin(build);
  if (status == TR_OK) status = tr__build_share(build);
  if (status == TR_OK) status = tr__build_end(build, text);
  if (status < 0) tr__save_give_up(build->folder, status);
  return status;
}
