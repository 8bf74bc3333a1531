// SPDX-License-Identifier: MIT
// Saving beside training: a share is copied, training goes on, a thread writes.
//
//            start                     thread                         poll, wait, next start
//   IDLE ----------------> BUSY ----------------------> DONE --------------------------------> IDLE
//
// The buffer holds this writer's tensors as they are stored, converted and transposed, each stretch of a file at the
// same place within a block as in the file, so that blocks go from it to the disk as they are. Nothing that the thread
// touches belongs to the caller: names are copied with the plan, texts with the save. Without `background` there is
// neither buffer nor thread, and start does the same work through a small buffer. The thread runs at low priority: it
// mostly waits for the disk, and what it computes (hashes) should not cost training a step.
#include "ckpt/ckpt_internal.h"
#include "trireme/base/arena.h"
#include "trireme/base/clock.h"
#include "trireme/base/log.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { COPY_PIECE = 16 << 20, WAIT_NS = 20000000, NICE = 10 };

typedef enum saver_state { IDLE, BUSY, DONE } saver_state;

struct tr_saver {
  tr_saver_options options; // file: only between create and the end of start
  char *folder;
  tr__plan plan;
  // The copy. place[i]: where tensor i of the plan lies, when it is ours.
  unsigned char *buffer;
  size_t nbuffer, *place;
  int64_t starts; // how often a save was asked for: the same on all writers
  // The save in progress; the thread's while BUSY.
  char **text;
  int64_t step, round;
  tr_status outcome;
  char *sentence; // of a failure
  tr_saved saved;
  // The thread.
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  saver_state state; // under the lock, like `quit`
  int quit;
  atomic_int abandoned;       // nobody waits for the thread any more, and `user` may be gone
  atomic_uint_fast64_t moved; // grows with every block and every look around
};

// ---- the work, done by the thread or by start

static tr_status look_around(void *user) {
  tr_saver *s = user;
  const tr_saver_options *o = &s->options;
  atomic_fetch_add(&s->moved, 1);
  if (atomic_load(&s->abandoned) || (o->stopped && o->stopped(o->user)))
    return tr_error(TR_ERR_PEER, "saving step %" PRId64 " was stopped; the checkpoints before it are untouched",
                    s->step);
  if (!o->background && o->progress) o->progress(o->user);
  return TR_OK;
}

static tr_status after_block(void *user, size_t nbyte) {
  tr_saver *s = user;
  (void)nbyte;
  TR_TRY(look_around(s));
  if (s->options.written) s->options.written(s->options.user);
  return TR_OK;
}

static tr_status write_first(tr_saver *s, const tr__build *build, tr__meeting *meeting, const tr__save_names *names) {
  const tr_ckpt_save_options options = {
      .folder = s->folder, .step = s->step, .keep = s->options.keep, .keep_every = s->options.keep_every};
  int alone = meeting->nwriter == 1;
  TR_TRY(tr__save_prepare(s->folder));
  tr_status status = tr__build_begin(build);
  if (status == TR_OK && !alone) status = tr__meeting_call(meeting);
  if (status == TR_OK) status = tr__build_share(build);
  if (status == TR_OK && !alone) status = tr__meeting_collect(meeting);
  if (status == TR_OK) status = tr__build_end(build, (const char *const *)s->text);
  if (status < 0) {
    tr__save_give_up(names->temporary, status);
    return status;
  }
  return tr__save_publish(&options, s->options.job, names);
}

static tr_status write_other(const tr__build *build, tr__meeting *meeting) {
  TR_TRY(tr__meeting_join(meeting));
  tr_status status = tr__build_share(build);
  if (status < 0) return tr__meeting_fail(meeting, status);
  TR_TRY(tr__meeting_report(meeting));
  return tr__meeting_await(meeting);
}

// `file`: where the tensors are; NULL: in the buffer.
static tr_status write_save(tr_saver *s, const tr_ckpt_file *file) {
  const tr_saver_options *o = &s->options;
  tr__save_names names;
  TR_TRY(tr__save_names_make(s->folder, s->step, o->job, &names));
  tr__build build = {.plan = &s->plan,
                     .folder = names.temporary,
                     .step = s->step,
                     .writer = o->writer,
                     .file = file,
                     .buffer = s->buffer,
                     .place = s->place,
                     .wrote = after_block,
                     .user = s};
  tr__meeting meeting = {.plan = &s->plan,
                         .temporary = names.temporary,
                         .final = names.final,
                         .step = s->step,
                         .round = s->round,
                         .writer = o->writer,
                         .nwriter = o->nwriter,
                         .deadline = o->deadline,
                         .waiting = look_around,
                         .user = s};
  return o->writer == 0 ? write_first(s, &build, &meeting, &names) : write_other(&build, &meeting);
}

static void finish_save(tr_saver *s, const tr_ckpt_file *file) {
  double begin = tr_clock_seconds();
  s->outcome = write_save(s, file);
  s->sentence = s->outcome < 0 ? strdup(tr_status_text()) : NULL;
  s->saved.write = tr_clock_seconds() - begin;
  s->saved.step = s->step;
  s->saved.bytes = 0;
  for (size_t f = 0; f < s->plan.nfile; f++) s->saved.bytes += s->plan.file[f].nbyte;
}

static void free_texts(tr_saver *s) {
  for (size_t f = 0; s->text && f < s->plan.nfile; f++) {
    free(s->text[f]);
    s->text[f] = NULL;
  }
}

static void release(tr_saver *s) {
  free_texts(s);
  free(s->text);
  free(s->sentence);
  tr__huge_free(s->buffer, s->nbuffer);
  free(s->place);
  tr__plan_free(&s->plan);
  free(s->folder);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->lock);
  free(s);
}

static void *saver_main(void *user) {
  tr_saver *s = user;
  setpriority(PRIO_PROCESS, 0, NICE); // of this thread alone; without it, it is merely less polite
  pthread_mutex_lock(&s->lock);
  for (;;) {
    while (s->state != BUSY && !s->quit) pthread_cond_wait(&s->changed, &s->lock);
    if (s->state != BUSY) break;
    pthread_mutex_unlock(&s->lock);
    finish_save(s, NULL);
    pthread_mutex_lock(&s->lock);
    s->state = DONE;
    pthread_cond_broadcast(&s->changed);
  }
  int abandoned = atomic_load(&s->abandoned);
  pthread_mutex_unlock(&s->lock);
  if (abandoned) release(s);
  return NULL;
}

// ---- creating

static tr_status check_options(const tr_saver_options *o) {
  const tr_ckpt_save_options common = {.folder = o->folder, .keep = o->keep, .keep_every = o->keep_every};
  TR_TRY(tr__save_check(&common));
  TR_TRY(tr__save_check_files(o->file, o->nfile));
  if (o->nwriter < 1 || o->writer < 0 || o->writer >= o->nwriter)
    return tr_error(TR_ERR_USAGE, "writer %d of %d: writers count from 0", o->writer, o->nwriter);
  if (!o->side != !o->held)
    return tr_error(TR_ERR_USAGE, "sides of writers and sides of tensors go together; give both or none");
  for (int w = 0; o->side && w < o->nwriter; w++)
    if (o->side[w] < 0 || o->side[w] >= o->nwriter)
      return tr_error(TR_ERR_USAGE, "writer %d is of side %d: sides count from 0, and there are at most %d", w,
                      o->side[w], o->nwriter);
  if (o->job < 1) return tr_error(TR_ERR_USAGE, "job %" PRId64 ": give the first writer's process number", o->job);
  if ((o->nwriter > 1 || o->background) && !(o->deadline > 0))
    return tr_error(TR_ERR_USAGE, "deadline %g: writers that wait need one above 0 seconds", o->deadline);
  return TR_OK;
}

// Neighbours [begin, end) of one writer go behind the `nbyte` bytes that it has, each to its place (NULL: they are only counted).
// Returns the bytes of all.
static size_t lay_out_run(const tr__plan *plan, size_t begin, size_t end, size_t nbyte, size_t *place) {
  const tr__plan_tensor *t = plan->tensor, *last = &t[end - 1];
  const size_t first = nbyte + (size_t)(t[begin].offset % TR__PART_ALIGN);
  for (size_t i = begin; place && i < end; i++) place[i] = first + (size_t)(t[i].offset - t[begin].offset);
  const size_t over = first + (size_t)(last->offset + last->nbyte - t[begin].offset);
  return (over + TR__PART_ALIGN - 1) / TR__PART_ALIGN * TR__PART_ALIGN;
}

static size_t lay_out(const tr__plan *plan, int writer, size_t *place) {
  size_t nbyte = 0, begin, end;
  for (size_t f = 0; f < plan->nfile; f++) {
    end = plan->file[f].first;
    while (tr__plan_next_run(plan, f, writer, &begin, &end)) nbyte = lay_out_run(plan, begin, end, nbyte, place);
  }
  return nbyte;
}

void tr_saver_bytes(const tr_saver_options *options, size_t *each) {
  tr__plan plan;
  for (int w = 0; w < options->nwriter; w++) each[w] = 0;
  if (!options->background || check_options(options) < 0 ||
      tr__plan_make(options->file, options->nfile, options->nwriter, options->side, options->held, &plan) < 0)
    return;
  for (size_t f = 0; f < plan.nfile; f++) {
    const size_t last = plan.file[f].first + plan.file[f].ntensor;
    for (size_t begin = plan.file[f].first, end; begin < last; begin = end) {
      size_t *nbyte = &each[plan.tensor[begin].owner];
      for (end = begin; end < last && plan.tensor[end].owner == plan.tensor[begin].owner;) end++;
      *nbyte = lay_out_run(&plan, begin, end, *nbyte, NULL);
    }
  }
  tr__plan_free(&plan);
}

static tr_status take_buffer(tr_saver *s) {
  s->place = calloc(s->plan.ntensor + 1, sizeof *s->place);
  if (!s->place) return tr_error(TR_ERR_MEMORY, "no memory for a list of %zu tensors", s->plan.ntensor);
  s->nbuffer = lay_out(&s->plan, s->options.writer, s->place);
  if (s->nbuffer < TR__PART_ALIGN) s->nbuffer = TR__PART_ALIGN; // a writer without tensors still has a buffer
  s->buffer = tr__huge_alloc(s->nbuffer);
  if (!s->buffer)
    return tr_error(TR_ERR_MEMORY,
                    "no memory for the %zu bytes in which a checkpoint is kept while it is written; saving without a "
                    "background thread needs none",
                    s->nbuffer);
  tr_arena memory;
  tr_arena_wrap(&memory, "checkpoint buffer", s->buffer, s->nbuffer);
  tr_arena_prefault(&memory, s->options.progress, s->options.user);
  return TR_OK;
}

// Signals are for the threads that expect them.
static tr_status start_thread(tr_saver *s) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&s->thread, NULL, saver_main, s);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return failed ? tr_error(TR_ERR_MEMORY, "cannot start the thread that writes checkpoints: %s", strerror(failed))
                : TR_OK;
}

tr_status tr_saver_create(const tr_saver_options *options, tr_saver **out) {
  pthread_condattr_t monotonic;
  TR_TRY(check_options(options));
  tr_saver *s = calloc(1, sizeof *s);
  if (!s) return tr_error(TR_ERR_MEMORY, "no memory for a saver");
  s->options = *options;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  tr_status status =
      tr__plan_make(options->file, options->nfile, options->nwriter, options->side, options->held, &s->plan);
  s->folder = strdup(options->folder);
  s->text = calloc(options->nfile, sizeof *s->text);
  if (status == TR_OK && (!s->folder || !s->text)) status = tr_error(TR_ERR_MEMORY, "no memory for a saver");
  if (status == TR_OK && options->background) status = take_buffer(s);
  if (status == TR_OK && options->background) status = start_thread(s);
  if (status == TR_OK)
    *out = s;
  else
    release(s);
  return status;
}

// ---- starting

static tr_status check_data(const tr_saver *s) {
  for (size_t i = 0; i < s->plan.ntensor; i++) {
    const tr__plan_tensor *t = &s->plan.tensor[i];
    if (t->owner == s->options.writer) TR_TRY(tr__st_check_data(&s->options.file[t->file].item[t->item]));
  }
  return TR_OK;
}

static tr_status copy_texts(tr_saver *s, const char *const *text) {
  free_texts(s);
  for (size_t f = 0; s->options.writer == 0 && f < s->plan.nfile; f++) {
    if (!s->plan.file[f].is_text) continue;
    if (!text || !text[f])
      return tr_error(TR_ERR_USAGE, "file '%s' of a checkpoint has no text", s->plan.file[f].name);
    s->text[f] = strdup(text[f]);
    if (!s->text[f]) return tr_error(TR_ERR_MEMORY, "no memory for the text of '%s'", s->plan.file[f].name);
  }
  return TR_OK;
}

static void copy_share(const tr_saver *s) {
  const tr_saver_options *o = &s->options;
  for (size_t i = 0; i < s->plan.ntensor; i++) {
    const tr__plan_tensor *t = &s->plan.tensor[i];
    if (t->owner != o->writer) continue;
    const tr_safetensors_item *item = &o->file[t->file].item[t->item];
    size_t size = tr_dtype_size(item->stored_type), count = (size_t)t->nbyte / size, piece = COPY_PIECE / size;
    for (size_t first = 0; first < count; first += piece) {
      size_t part = count - first < piece ? count - first : piece;
      tr__stored_range(item, first, part, s->buffer + s->place[i] + first * size);
      if (o->progress) o->progress(o->user);
    }
  }
}

tr_status tr_saver_start(tr_saver *s, int64_t step, const char *const *text) {
  const tr_ckpt_save_options common = {.folder = s->folder, .step = step};
  double begin = tr_clock_seconds();
  tr_saved before;
  s->starts++; // first of all: the writers stay in step even if one of them goes no further
  TR_TRY(tr__save_check(&common));
  TR_TRY(tr_saver_wait(s, &before));
  TR_TRY(check_data(s));
  TR_TRY(copy_texts(s, text));
  s->step = step;
  s->round = s->starts;
  if (!s->options.background) {
    finish_save(s, s->options.file);
    s->saved.stall = tr_clock_seconds() - begin;
    s->state = DONE;
    return s->outcome < 0 ? tr_saver_poll(s, &before) : TR_OK;
  }
  copy_share(s);
  pthread_mutex_lock(&s->lock);
  s->saved.stall = tr_clock_seconds() - begin;
  s->state = BUSY;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  return TR_OK;
}

// ---- ending

tr_status tr_saver_poll(tr_saver *s, tr_saved *saved) {
  pthread_mutex_lock(&s->lock);
  saver_state state = s->state;
  if (state == DONE) s->state = IDLE;
  pthread_mutex_unlock(&s->lock);
  if (state == BUSY) return TR_PENDING;
  *saved = state == DONE ? s->saved : (tr_saved){.step = -1};
  if (state == IDLE || s->outcome == TR_OK) return TR_OK;
  (void)tr_error(s->outcome, "%s", s->sentence ? s->sentence : "saving a checkpoint failed");
  free(s->sentence);
  s->sentence = NULL;
  return s->outcome;
}

// Until the thread has nothing to do, or has not moved for as long as writers wait for one another.
static tr_status wait_for_thread(tr_saver *s, void (*progress)(void *user)) {
  uint_fast64_t moved = 0;
  double since = tr_clock_seconds();
  tr_status status = TR_OK;
  pthread_mutex_lock(&s->lock);
  while (s->state == BUSY && status == TR_OK) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WAIT_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&s->changed, &s->lock, &until);
    pthread_mutex_unlock(&s->lock);
    if (progress) progress(s->options.user);
    double now = tr_clock_seconds();
    uint_fast64_t latest = atomic_load(&s->moved);
    if (latest != moved) moved = latest, since = now;
    if (now - since > s->options.deadline)
      status = tr_error(TR_ERR_TIMEOUT, "%s: nothing could be written for %.3g s while saving step %" PRId64,
                        s->folder, s->options.deadline, s->step);
    pthread_mutex_lock(&s->lock);
  }
  pthread_mutex_unlock(&s->lock);
  return status;
}

tr_status tr_saver_wait(tr_saver *s, tr_saved *saved) {
  TR_TRY(wait_for_thread(s, s->options.progress));
  return tr_saver_poll(s, saved);
}

void tr_saver_destroy(tr_saver *s) {
  if (!s) return;
  if (s->options.background) {
    (void)wait_for_thread(s, NULL);
    pthread_mutex_lock(&s->lock);
    int stuck = s->state == BUSY;
    s->quit = 1;
    atomic_store(&s->abandoned, stuck);
    if (stuck) pthread_detach(s->thread);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (stuck) { // the thread may wake up yet, and then releases everything
      tr_log_warn("a checkpoint is left half-written: %s", tr_status_text());
      return;
    }
    pthread_join(s->thread, NULL);
  }
  release(s);
}
