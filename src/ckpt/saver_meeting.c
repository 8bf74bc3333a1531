// SPDX-License-Identifier: MIT
// How the writers of one checkpoint find each other: through notes in its temporary folder, nothing else, so that they may be
// threads, processes or hosts with one file system.
//
//   writer 0                                 the others
//   makes folder, files, headers
//   call: .ready-R ------------------------> join
//   writes its tensors                       write theirs
//   collect <------------------------------- report: .done-R-W, or fail: .failed-R-W
//   removes notes, adds texts, manifest
//   renames the folder --------------------> await: step-S is the folder that they joined
//
// A note is written under another name and renamed, so whoever sees it sees all of it. Waiting ends at a deadline that
// starts again with every sign of life: a note, or a file of the folder that has been written to. When writer 0 gives
// up it removes the folder, which the others notice.
#include "ckpt/ckpt_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  NOTE_LINE = 17,
  PAUSE_FIRST_NS = 200000,
  PAUSE_LAST_NS = 20000000,
  LET_SPEAK_PAUSES = 15,
  SENTENCE_MAX = 4096
};

static tr_status note_path(const tr__meeting *m, const char *kind, int writer, char path[TR__CKPT_PATH_MAX]) {
  char name[TR__CKPT_NAME_MAX];
  snprintf(name, sizeof name, ".%s-%" PRId64 "-%d", kind, m->round, writer);
  return tr__ckpt_join(path, m->temporary, name);
}

static tr_status leave_note(const tr__meeting *m, const char *kind, const void *text, size_t nbyte) {
  char path[TR__CKPT_PATH_MAX], temporary[TR__CKPT_PATH_MAX + 8];
  TR_TRY(note_path(m, kind, m->writer, path));
  snprintf(temporary, sizeof temporary, "%s.tmp", path);
  int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) return tr_error(TR_ERR_IO, "%s: cannot create: %s", temporary, strerror(errno));
  tr_status status = tr_file_write_all(fd, text, nbyte, temporary);
  close(fd);
  if (status == TR_OK && rename(temporary, path) != 0)
    status = tr_error(TR_ERR_IO, "%s: cannot rename %s to it: %s", path, temporary, strerror(errno));
  if (status < 0) unlink(temporary);
  return status;
}

static int has_note(const tr__meeting *m, const char *kind, int writer) {
  char path[TR__CKPT_PATH_MAX];
  return note_path(m, kind, writer, path) == TR_OK && tr_file_exists(path);
}

// ---- waiting

typedef struct patience {
  double since;
  uint64_t life;
  int64_t pause;
} patience;

// Changes whenever something is written in the folder, by anybody.
static uint64_t sign_of_life(const tr__meeting *m) {
  char path[TR__CKPT_PATH_MAX];
  struct stat about;
  uint64_t life = 0;
  for (size_t f = 0; f <= m->plan->nfile; f++) {
    const char *name = f < m->plan->nfile ? m->plan->file[f].name : ".";
    if (tr__ckpt_join(path, m->temporary, name) < 0 || stat(path, &about) != 0) continue;
    uint64_t mix[3] = {life, (uint64_t)about.st_mtim.tv_sec, (uint64_t)about.st_mtim.tv_nsec};
    life = tr_hash_bytes(mix, sizeof mix);
  }
  return life;
}

// One round of waiting for `writer` to do something.
static tr_status wait_for(const tr__meeting *m, patience *p, int writer, const char *what) {
  TR_TRY(m->waiting(m->user));
  double now = tr_clock_seconds();
  uint64_t life = sign_of_life(m);
  if (p->pause == 0 || life != p->life) *p = (patience){now, life, p->pause ? p->pause : PAUSE_FIRST_NS};
  if (now - p->since > m->deadline)
    return tr_error(TR_ERR_TIMEOUT, "saving step %" PRId64 ": writer %d of %d did not %s within %.3g s", m->step,
                    writer, m->nwriter, what, m->deadline);
  tr_clock_sleep_ns(p->pause);
  p->pause = p->pause * 3 / 2 < PAUSE_LAST_NS ? p->pause * 3 / 2 : PAUSE_LAST_NS;
  return TR_OK;
}

// The number of the folder at `path`; 0 when there is none.
static uint64_t folder_number(const char *path) {
  struct stat about;
  return stat(path, &about) == 0 ? (uint64_t)about.st_ino : 0;
}

// The folder that was joined is not being written any more: it is in its place, or writer 0 has given up. A second
// attempt at the same step may have got the number of the first one's folder.
static int has_left(const tr__meeting *m) {
  tr__meeting next = *m;
  next.round++;
  return m->folder == 0 || folder_number(m->temporary) != m->folder || has_note(&next, "ready", 0);
}

// ---- the first writer

tr_status tr__meeting_call(const tr__meeting *m) { return leave_note(m, "ready", "", 0); }

// Somebody's failure becomes ours.
static tr_status take_failure(const tr__meeting *m, int writer) {
  char path[TR__CKPT_PATH_MAX], *text = NULL;
  size_t nbyte;
  TR_TRY(note_path(m, "failed", writer, path));
  TR_TRY(tr_file_read(path, SENTENCE_MAX + NOTE_LINE, &text, &nbyte));
  char *sentence = text;
  long code = strtol(text, &sentence, 10);
  tr_status status = code < 0 && code >= TR_ERR_IO ? (tr_status)code : TR_ERR_IO;
  (void)tr_error(status, "saving step %" PRId64 ": writer %d: %s", m->step, writer,
                 *sentence ? sentence + 1 : "failed");
  free(text);
  return status;
}

static tr_status take_hashes(const tr__meeting *m, int writer) {
  char path[TR__CKPT_PATH_MAX], *text = NULL;
  size_t nbyte, count = 0;
  tr__plan_tensor *tensor = m->plan->tensor;
  for (size_t i = 0; i < m->plan->ntensor; i++) count += tensor[i].owner == writer;
  TR_TRY(note_path(m, "done", writer, path));
  TR_TRY(tr_file_read(path, (count + 2) * NOTE_LINE, &text, &nbyte));
  tr_status status = TR_OK;
  if (nbyte != (count + 1) * NOTE_LINE || strtoull(text, NULL, 16) != m->plan->hash)
    status = tr_error(TR_ERR_CKPT, "saving step %" PRId64 ": writer %d saves other tensors than writer 0", m->step,
                      writer);
  const char *line = text;
  for (size_t i = 0; i < m->plan->ntensor && status == TR_OK; i++)
    if (tensor[i].owner == writer) tensor[i].hash = strtoull(line += NOTE_LINE, NULL, 16);
  free(text);
  return status;
}

static tr_status collect_from(const tr__meeting *m, int writer) {
  patience p = {0};
  while (!has_note(m, "done", writer)) {
    for (int w = 1; w < m->nwriter; w++)
      if (has_note(m, "failed", w)) return take_failure(m, w);
    TR_TRY(wait_for(m, &p, writer, "write its part"));
  }
  return take_hashes(m, writer);
}

static tr_status remove_note(const tr__meeting *m, const char *kind, int writer) {
  char path[TR__CKPT_PATH_MAX];
  TR_TRY(note_path(m, kind, writer, path));
  return unlink(path) == 0 ? TR_OK : tr_error(TR_ERR_IO, "%s: cannot remove: %s", path, strerror(errno));
}

tr_status tr__meeting_collect(const tr__meeting *m) {
  for (int w = 1; w < m->nwriter; w++) TR_TRY(collect_from(m, w));
  for (int w = 1; w < m->nwriter; w++) TR_TRY(remove_note(m, "done", w));
  return remove_note(m, "ready", 0);
}

// ---- the others

// Writer 0 knows why and says so; whoever only sees that it gave up lets it speak first.
static tr_status given_up(const tr__meeting *m) {
  for (int i = 0; i < LET_SPEAK_PAUSES; i++) {
    TR_TRY(m->waiting(m->user));
    tr_clock_sleep_ns(PAUSE_LAST_NS);
  }
  return tr_error(TR_ERR_PEER, "saving step %" PRId64 ": writer 0 of %d gave up; its message says why", m->step,
                  m->nwriter);
}

tr_status tr__meeting_join(tr__meeting *m) {
  patience p = {0};
  while (!has_note(m, "ready", 0)) TR_TRY(wait_for(m, &p, 0, "begin"));
  m->folder = folder_number(m->temporary);
  return m->folder ? TR_OK : given_up(m);
}

tr_status tr__meeting_report(const tr__meeting *m) {
  tr_text text = {0};
  tr_text_append(&text, "%016" PRIx64 "\n", m->plan->hash);
  for (size_t i = 0; i < m->plan->ntensor; i++) {
    const tr__plan_tensor *t = &m->plan->tensor[i];
    if (t->owner == m->writer) tr_text_append(&text, "%016" PRIx64 "\n", t->hash);
  }
  tr_status status = text.failed ? tr_error(TR_ERR_MEMORY, "no memory for a list of hashes")
                                 : leave_note(m, "done", text.data, text.size);
  tr_text_free(&text);
  return status < 0 && has_left(m) ? given_up(m) : status;
}

tr_status tr__meeting_fail(const tr__meeting *m, tr_status status) {
  char text[SENTENCE_MAX];
  int n = snprintf(text, sizeof text, "%d %s", (int)status, tr_status_text());
  char *reason = strdup(tr_status_text());
  // A full disk may have no room for the sentence; the name says the most important thing.
  int untold = leave_note(m, "failed", text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1) < 0 &&
               leave_note(m, "failed", "", 0) < 0;
  if (untold && has_left(m)) { // perhaps the reason of it: what was to be written to is gone
    status = given_up(m);
    (void)tr_error(status, "%s (writer %d: %s)", tr_status_text(), m->writer, reason ? reason : "failed");
  } else if (reason) {
    (void)tr_error(status, "%s", reason);
  }
  free(reason);
  return status;
}

tr_status tr__meeting_await(const tr__meeting *m) {
  patience p = {0};
  tr__meeting patient = *m;
  patient.deadline *= 2; // writer 0 waits for the others, and knows better which of them does not come
  while (folder_number(m->final) != m->folder) {
    // Looked at again, because it may have moved in between.
    if (has_left(m) && folder_number(m->final) != m->folder) return given_up(m);
    TR_TRY(wait_for(&patient, &p, 0, "publish it"));
  }
  return TR_OK;
}
