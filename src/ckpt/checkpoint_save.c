// SPDX-License-Identifier: MIT
// Saving a checkpoint: build it beside its place, move it there in one step, then tidy up.
//
// Order of one save, each line on disk before the next begins:
//   1 sweep    leftovers of dead processes
//   2 build    .tmp-step-S-P: every file, fsync; manifest.json last; fsync of the folder (ckpt_build.c)
//   3 publish  rename to step-S, fsync of the parent
//   4 point    `latest` replaced atomically
//   5 remove   the former step-S if there was one, then folders beyond `keep`
// Killed before 3, nothing happened but a leftover; between 3 and 4, `latest` names the previous checkpoint,
// which still exists because removal is last; after 4, only tidying is missing. Removal itself starts with a
// rename to a temporary name, so that no reader meets a half-deleted step folder. Everything here is done by one
// process at a time for a folder: the only writer, or the first of several (saver.c).
#include "ckpt/ckpt_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static tr_status io_error(const char *path, const char *verb) {
  return tr_error(TR_ERR_IO, "%s: cannot %s: %s", path, verb, strerror(errno));
}

tr_status tr__save_check(const tr_ckpt_save_options *options) {
  if (!options->folder || !options->folder[0])
    return tr_error(TR_ERR_USAGE, "a checkpoint needs a folder to be saved in");
  if (options->step >= 0 && options->keep >= 0 && options->keep_every >= 0) return TR_OK;
  return tr_error(TR_ERR_USAGE, "step %" PRId64 ", keep %d, keep_every %" PRId64 ": none may be negative",
                  options->step, options->keep, options->keep_every);
}

tr_status tr__save_check_files(const tr_ckpt_file *file, size_t nfile) {
  char quoted[TR__CKPT_QUOTE_MAX];
  if (nfile == 0 || nfile > TR__CKPT_FILE_MAX)
    return tr_error(TR_ERR_USAGE, "a checkpoint has 1 to %d files, not %zu", TR__CKPT_FILE_MAX, nfile);
  for (size_t i = 0; i < nfile; i++) {
    const char *name = file[i].name ? file[i].name : "";
    tr__ckpt_quote(name, quoted);
    if (!tr__ckpt_plain_name(name) || strcmp(name, TR__CKPT_MANIFEST) == 0) {
      return tr_error(TR_ERR_USAGE, "'%s' cannot name a file of a checkpoint; use a plain base name that is not %s",
                      quoted, TR__CKPT_MANIFEST);
    }
    if (file[i].item && file[i].text)
      return tr_error(TR_ERR_USAGE, "file '%s' of a checkpoint must have either tensors or text", quoted);
    for (size_t j = 0; j < i; j++) {
      if (strcmp(name, file[j].name) == 0)
        return tr_error(TR_ERR_USAGE, "file '%s' of a checkpoint is given twice", quoted);
    }
  }
  return TR_OK;
}

tr_status tr__save_names_make(const char *folder, int64_t step, int64_t job, tr__save_names *out) {
  char name[TR__CKPT_NAME_MAX];
  snprintf(out->step, sizeof out->step, TR__CKPT_STEP "%08" PRId64, step);
  TR_TRY(tr__ckpt_join(out->final, folder, out->step));
  snprintf(name, sizeof name, TR__CKPT_TMP "%08" PRId64 "-%" PRId64, step, job);
  TR_TRY(tr__ckpt_join(out->temporary, folder, name));
  snprintf(name, sizeof name, TR__CKPT_STEP "%08" PRId64 TR__CKPT_OLD "%" PRId64, step, job);
  TR_TRY(tr__ckpt_join(out->aside, folder, name));
  return tr__ckpt_join(out->latest, folder, TR__CKPT_LATEST);
}

// Dead, or dead and waiting for a parent that may never look (state Z): neither writes any more.
static int has_died(pid_t process) {
  char path[32], *text = NULL;
  size_t nbyte;
  if (kill(process, 0) != 0) return errno == ESRCH;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
  if (tr_file_read(path, 4096, &text, &nbyte) < 0) return 0;
  const char *state = strrchr(text, ')'); // the name before it may hold anything
  int died = state && strncmp(state, ") Z", 3) == 0;
  free(text);
  return died;
}

static int is_stale(const char *text) {
  int64_t process;
  const char *end = tr__ckpt_digits(text, &process);
  if (!end || *end || process <= 0 || process > INT32_MAX) return 0;
  return process == getpid() || has_died((pid_t)process);
}

// A leftover "step-S.old-P": its process died while replacing step-S. Either step-S is there, or this goes back.
static tr_status sweep_old(const char *folder, const char *name, size_t nstep) {
  char old[TR__CKPT_PATH_MAX], step[TR__CKPT_PATH_MAX];
  TR_TRY(tr__ckpt_join(old, folder, name));
  memcpy(step, old, sizeof step);
  step[strlen(folder) + 1 + nstep] = '\0';
  if (tr_file_exists(step)) return tr_file_remove_tree(old);
  return rename(old, step) == 0 ? TR_OK : io_error(old, "rename back");
}

static tr_status sweep_entry(const char *folder, const char *name) {
  static const char latest_tmp[] = "." TR__CKPT_LATEST ".tmp.";
  char path[TR__CKPT_PATH_MAX];
  int64_t step;
  size_t prefix = strlen(TR__CKPT_TMP);
  if (strncmp(name, TR__CKPT_TMP, prefix) == 0) {
    const char *end = tr__ckpt_digits(name + prefix, &step);
    if (!end || *end != '-' || !is_stale(end + 1)) return TR_OK;
  } else if (strncmp(name, latest_tmp, sizeof latest_tmp - 1) == 0) {
    if (!is_stale(name + sizeof latest_tmp - 1)) return TR_OK;
  } else {
    prefix = strlen(TR__CKPT_STEP);
    const char *end = strncmp(name, TR__CKPT_STEP, prefix) == 0 ? tr__ckpt_digits(name + prefix, &step) : NULL;
    size_t infix = strlen(TR__CKPT_OLD);
    if (!end || strncmp(end, TR__CKPT_OLD, infix) != 0 || !is_stale(end + infix)) return TR_OK;
    return sweep_old(folder, name, (size_t)(end - name));
  }
  TR_TRY(tr__ckpt_join(path, folder, name));
  return tr_file_remove_tree(path);
}

// A leftover that cannot be removed costs space, not correctness: said, but no failure.
static tr_status sweep(const char *folder) {
  DIR *entries = opendir(folder);
  if (!entries) return io_error(folder, "list the folder");
  struct dirent *entry;
  while ((entry = readdir(entries))) {
    if (sweep_entry(folder, entry->d_name) < 0) tr_log_warn("leftover stays: %s", tr_status_text());
  }
  closedir(entries);
  return TR_OK;
}

tr_status tr__ckpt_publish(const char *temporary, const char *final, const char *aside, int exchange) {
  struct stat about;
  if (lstat(final, &about) != 0) {
    if (rename(temporary, final) == 0) return TR_OK;
    return tr_error(TR_ERR_IO, "%s: cannot rename %s to it: %s", final, temporary, strerror(errno));
  }
  // With an exchange the name step-S is never missing. Without one it is missing between two renames, but
  // then the old checkpoint is complete under a name that readers accept for step-S, whatever `latest` says.
  if (exchange && renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE) == 0) return TR_OK;
  if (exchange && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
    return tr_error(TR_ERR_IO, "%s: cannot exchange %s with it: %s", final, temporary, strerror(errno));
  if (rename(final, aside) != 0) return io_error(final, "rename");
  if (rename(temporary, final) == 0) return TR_OK;
  int reason = errno;
  int back = rename(aside, final);
  return tr_error(TR_ERR_IO, "%s: cannot rename %s to it: %s%s", final, temporary, strerror(reason),
                  back == 0 ? "" : "; the former one is now beside it, named .old");
}

// Delete a step folder that is no longer wanted; until it is renamed it is whole, afterwards nobody reads it.
static tr_status remove_step(const char *folder, int64_t job, const tr__ckpt_folder *step) {
  char path[TR__CKPT_PATH_MAX];
  tr__save_names names;
  TR_TRY(tr__save_names_make(folder, step->step, job, &names));
  TR_TRY(tr__ckpt_join(path, folder, step->name));
  if (rename(path, names.temporary) != 0) return io_error(path, "rename for removal");
  return tr_file_remove_tree(names.temporary);
}

static tr_status prune(const tr_ckpt_save_options *options, int64_t job, const char *written) {
  tr__ckpt_folder *list = NULL;
  size_t count = 0;
  int kept = 0;
  if (options->keep == 0) return TR_OK;
  TR_TRY(tr__ckpt_list(options->folder, &list, &count));
  tr_status status = TR_OK;
  for (size_t i = 0; i < count && status == TR_OK; i++) {
    // Steps beyond the one just written are from before a fall back to an older checkpoint: they do not count, or
    // damaged ones would push out the good.
    if (list[i].old || list[i].step > options->step || kept++ < options->keep) continue;
    if (strcmp(list[i].name, written) == 0) continue;
    if (options->keep_every > 0 && list[i].step % options->keep_every == 0) continue;
    status = remove_step(options->folder, job, &list[i]);
  }
  free(list);
  return status;
}

tr_status tr__save_prepare(const char *folder) {
  char parent[TR__CKPT_PATH_MAX];
  if (!tr_file_exists(folder)) {
    TR_TRY(tr_file_make_folders(folder));
    TR_TRY(tr__ckpt_join(parent, folder, ".."));
    // A new folder is forced to disk as an entry of its parent, as far as the parent may be opened.
    if (tr_file_sync_folder(parent) < 0) tr_log_debug("%s", tr_status_text());
  }
  return sweep(folder);
}

// Other writers may still be leaving notes in the folder while it is emptied; they notice and stop.
void tr__save_give_up(const char *temporary, tr_status status) {
  enum { TRIES = 10, PAUSE_NS = 20000000 };
  char *reason = strdup(tr_status_text());
  tr_status removed = tr_file_remove_tree(temporary);
  for (int i = 1; removed < 0 && i < TRIES; i++) {
    tr_clock_sleep_ns(PAUSE_NS);
    removed = tr_file_remove_tree(temporary);
  }
  if (removed < 0) tr_log_warn("leftover stays: %s", tr_status_text());
  if (reason) (void)tr_error(status, "%s", reason);
  free(reason);
}

tr_status tr__save_publish(const tr_ckpt_save_options *options, int64_t job, const tr__save_names *names) {
  char line[TR__CKPT_NAME_MAX + 1];
  tr_status status = tr__ckpt_publish(names->temporary, names->final, names->aside, 1);
  if (status < 0) {
    tr__save_give_up(names->temporary, status);
    return status;
  }
  TR_TRY(tr_file_sync_folder(options->folder));
  int length = snprintf(line, sizeof line, "%s\n", names->step);
  TR_TRY(tr_file_write_atomic(names->latest, line, (size_t)length));
  // The checkpoint is safe. What cannot be tidied up now is left to the next save.
  status = tr_file_remove_tree(names->temporary);
  if (status == TR_OK) status = tr_file_remove_tree(names->aside);
  if (status == TR_OK) status = prune(options, job, names->step);
  if (status < 0) tr_log_warn("an old checkpoint stays: %s", tr_status_text());
  return TR_OK;
}

tr_status tr_ckpt_save(const tr_ckpt_save_options *options, const tr_ckpt_file *file, size_t nfile) {
  TR_TRY(tr__save_check(options));
  TR_TRY(tr__save_check_files(file, nfile));
  const char **text = calloc(nfile, sizeof *text);
  if (!text) return tr_error(TR_ERR_MEMORY, "no memory for a list of %zu files", nfile);
  tr_saver *saver = NULL;
  tr_status status = TR_OK;
  for (size_t i = 0; i < nfile && status == TR_OK; i++) {
    char quoted[TR__CKPT_QUOTE_MAX];
    text[i] = file[i].text;
    if (!file[i].item && !text[i])
      status = tr_error(TR_ERR_USAGE, "file '%s' of a checkpoint must have either tensors or text",
                        tr__ckpt_quote(file[i].name, quoted));
  }
  const tr_saver_options only = {.folder = options->folder,
                                 .keep = options->keep,
                                 .keep_every = options->keep_every,
                                 .file = file,
                                 .nfile = nfile,
                                 .nwriter = 1,
                                 .job = (int64_t)getpid(),
                                 .progress = options->progress,
                                 .user = options->user};
  if (status == TR_OK) status = tr_saver_create(&only, &saver);
  if (status == TR_OK) status = tr_saver_start(saver, options->step, text);
  tr_saver_destroy(saver);
  free(text);
  return status;
}
