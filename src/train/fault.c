// SPDX-License-Identifier: MIT
// Fault injection, for tests of mishaps and for people who want to see what happens: TRIREME_FAULT names a rank, an
// operation (of the step program, a point inside a collective, or SAVE), a step and an action. Without the variable nothing is installed.
//   TRIREME_FAULT="rank=1,op=F,step=3,action=kill"        also stop, segv, exit, error, sleep (2 s); count=N: the N-th time
// The step is the one that the log and messages name, from 1 on; SAVE belongs to the step after which it saves.
#include "train/train_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/log.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct tr__fault {
  char op[32], action[16];
  int64_t rank, step, count; // step -1: any
  int64_t seen, at_step;     // at_step: of the operation under way
  atomic_int failed;         // may be set by the thread that saves
} fault;

static const char *const actions[] = {"kill", "stop", "segv", "exit", "error", "sleep"};

static tr_status bad_fault(const char *text, const char *what) {
  return tr_error(
      TR_ERR_CONFIG,
      "TRIREME_FAULT '%s': %s; the form is rank=R,op=NAME,step=S,count=N,action=kill|stop|segv|exit|error|sleep, "
      "where NAME is an operation (F, B, NORM, UPDATE), SAVE or a point of a collective (allreduce.reduce)",
      text, what);
}

static int is_point(const char *op) {
  char name[64];
  for (int i = 0; tr_comm_point(i, name, sizeof name); i++)
    if (strcmp(op, name) == 0) return 1;
  return 0;
}

// "F, B, ...; SAVE; or allreduce, ... with .start, ..."
static tr_status bad_op(const char *text, const char *op) {
  tr_text steps = {0}, groups = {0};
  char name[64], last[64] = "";
  for (int kind = 0; kind < TR_OP_KIND_COUNT; kind++) tr_text_append(&steps, "%s, ", tr_op_name((tr_op_kind)kind));
  for (int i = 0; tr_comm_point(i, name, sizeof name); i++) {
    *strchr(name, '.') = '\0';
    if (strcmp(name, last) != 0) tr_text_append(&groups, "%s%s", *last ? ", " : "", name);
    memcpy(last, name, sizeof last);
  }
  tr_status status = tr_error(
      TR_ERR_CONFIG,
      "TRIREME_FAULT '%s': there is no operation '%s'; there are %sSAVE, and OPERATION.POINT of communication: "
      "%s, each with start, ready, reduce (copy where nothing is added), done, wait",
      text, op, steps.data ? steps.data : "", groups.data ? groups.data : "");
  tr_text_free(&steps);
  tr_text_free(&groups);
  return status;
}

static int parse_number(const char *value, int64_t *out) {
  char *end;
  long long number = strtoll(value, &end, 10);
  *out = number;
  return *value && !*end && number >= 0;
}

// 0: the field is not known, or its value is not what it should be.
static int parse_field(fault *f, char *field) {
  char *value = strchr(field, '=');
  if (!value) return 0;
  *value++ = '\0';
  if (strcmp(field, "rank") == 0) return parse_number(value, &f->rank);
  if (strcmp(field, "step") == 0) return parse_number(value, &f->step) && f->step > 0;
  if (strcmp(field, "count") == 0) return parse_number(value, &f->count) && f->count > 0;
  char *to = strcmp(field, "op") == 0 ? f->op : strcmp(field, "action") == 0 ? f->action : NULL;
  size_t room = to == f->op ? sizeof f->op : sizeof f->action;
  if (!to || !*value || strlen(value) >= room) return 0;
  memcpy(to, value, strlen(value) + 1);
  return 1;
}

static int known_action(const char *action) {
  for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
    if (strcmp(action, actions[i]) == 0) return 1;
  return 0;
}

static int known_op(const char *op) {
  for (int kind = 0; kind < TR_OP_KIND_COUNT; kind++)
    if (strcmp(op, tr_op_name((tr_op_kind)kind)) == 0) return 1;
  return strcmp(op, "SAVE") == 0 || is_point(op);
}

static tr_status parse(const char *text, int64_t ranks, fault *out) {
  fault f = {.step = -1, .count = 1};
  char *copy = strdup(text), *save = NULL;
  if (!copy) return tr_error(TR_ERR_MEMORY, "no memory for TRIREME_FAULT");
  int good = 1;
  for (char *field = strtok_r(copy, ",", &save); field && good; field = strtok_r(NULL, ",", &save))
    good = parse_field(&f, field);
  free(copy);
  if (!good) return bad_fault(text, "a part of it is not understood");
  if (*f.op && !known_op(f.op)) return bad_op(text, f.op);
  if (!*f.op) return bad_fault(text, "it names no operation");
  if (!known_action(f.action)) return bad_fault(text, "there is no such action");
  if (f.rank >= ranks) return bad_fault(text, "there is no such rank");
  *out = f;
  return TR_OK;
}

tr_status tr__fault_check(const tr_train_plan *plan) {
  const char *text = getenv("TRIREME_FAULT");
  fault f;
  return text && *text ? parse(text, plan->config->run.ranks, &f) : TR_OK;
}

// The thread that saves lets no signal through, but a real fault of memory would end it all the same.
static void fault_in_memory(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGSEGV);
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  raise(SIGSEGV);
}

static void strike(tr__trainer *t) {
  fault *f = t->fault;
  if (strcmp(f->action, "kill") == 0)
    raise(SIGKILL);
  else if (strcmp(f->action, "stop") == 0)
    raise(SIGSTOP);
  else if (strcmp(f->action, "segv") == 0)
    fault_in_memory();
  else if (strcmp(f->action, "exit") == 0)
    _exit(3);
  else if (strcmp(f->action, "sleep") == 0)
    tr_clock_sleep_ns(2000000000);
  else
    f->failed = 1;
}

void tr__fault_point(tr__trainer *t, const char *op, int64_t step) {
  fault *f = t->fault;
  if (!f || strcmp(f->op, op) != 0 || (f->step >= 0 && step != f->step)) return;
  if (++f->seen == f->count) strike(t);
}

static void at_op(void *user, int64_t step, uint32_t index, const tr_op *op) {
  (void)index;
  tr__trainer *t = user;
  t->fault->at_step = step + 1;
  tr__fault_point(t, tr_op_name((tr_op_kind)op->kind), step + 1);
}

static void at_comm(void *user, const char *point) {
  tr__trainer *t = user;
  tr__fault_point(t, point, t->fault->at_step);
}

tr_status tr__fault_open(tr__trainer *t) {
  const char *text = getenv("TRIREME_FAULT");
  fault f;
  if (!text || !*text) return TR_OK;
  TR_TRY(parse(text, t->plan->config->run.ranks, &f));
  if (f.rank != t->rank) return TR_OK;
  t->fault = malloc(sizeof f);
  if (!t->fault) return tr_error(TR_ERR_MEMORY, "no memory for TRIREME_FAULT");
  *t->fault = f;
  tr_comm_set_hook(t->comm, at_comm, t);
  return TR_OK;
}

void tr__fault_close(tr__trainer *t) {
  if (t->fault) tr_comm_set_hook(t->comm, NULL, NULL);
  free(t->fault);
  t->fault = NULL;
}

void tr__fault_observe(tr__trainer *t, tr_run_options *options) {
  if (t->fault) options->observer[options->nobserver++] = (tr_run_observer){.op_begin = at_op, .user = t};
}

void tr__fault_end(const tr__trainer *t) {
  const fault *f = t->fault;
  if (f && f->seen < f->count)
    tr_log_warn("TRIREME_FAULT has not struck: %s came %lld times where it was to come %lld times", f->op,
                (long long)f->seen, (long long)f->count);
}

tr_status tr__fault_status(tr__trainer *t) {
  if (!t->fault || !t->fault->failed) return TR_OK;
  return tr_error(TR_ERR_INTERNAL, "injected failure in %s of step %lld", t->fault->op,
                  (long long)(t->fault->step >= 0 ? t->fault->step : t->fault->at_step));
}
