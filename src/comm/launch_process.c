// SPDX-License-Identifier: MIT
// Ranks as forked processes: started without exec, watched, ended, reaped.
//
// The launcher must have one thread when it forks (a lock held by another thread would stay held in the
// rank). After the fork it only waits in poll: for the ends of ranks (pidfds), their output, stop signals,
// and every 50 ms a look at the control page. Ranks are killed by the kernel should the launcher die. A rank
// that ends any other way than by returning from its main stops the job: the others see the abort word in
// their next call and get a grace period, then SIGKILL.
#include "comm_internal.h"
#include "launch_output_internal.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOK_MS = 50 };

typedef struct child {
  pid_t pid; // 0 not started
  int alive, pid_fd, killed, wait_status;
} child;

enum { SETTINGS = 3 };

// What the launcher changes in its process while it runs.
typedef struct surroundings {
  struct sigaction signals[SETTINGS];
  struct rlimit files; // rlim_cur 0: was not changed
} surroundings;

typedef struct launcher {
  tr__job *job;
  child *children; // [nrank]
  tr__output output;
  struct pollfd *polls; // signals, pidfds, output
  tr__watch watch;
  tr__binding binding;
  sigset_t mask;
  surroundings before;
} launcher;

static tr_status check_single_thread(void) {
  char line[128];
  int threads = 1;
  FILE *file = fopen("/proc/self/status", "re");
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "Threads: %d", &threads) == 1) break;
  if (file) fclose(file);
  if (threads == 1) return TR_OK;
  return tr_error(TR_ERR_USAGE,
                  "launch: this process has %d threads, but ranks can only be forked from one: launch before "
                  "starting threads",
                  threads);
}

// ---- the launcher's process ---------------------------------------------------------------------

static const struct setting {
  int signal;
  void (*handler)(int);
} settings[SETTINGS] = {
    {SIGCHLD, SIG_DFL}, // ignored (it may be inherited so), it would hide how ranks end
    {SIGPIPE, SIG_IGN}, // a write that fails is an error of that write; ranks inherit this
    {SIGXFSZ, SIG_IGN},
};

// Each rank takes the launcher five or six files, so the usual limit of 1024 is too few for the most ranks.
static void raise_file_limit(struct rlimit *before) {
  struct rlimit most;
  if (getrlimit(RLIMIT_NOFILE, before) != 0 || before->rlim_cur == before->rlim_max) {
    before->rlim_cur = 0;
    return;
  }
  most = *before;
  most.rlim_cur = most.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &most) != 0) before->rlim_cur = 0;
}

static void restore_file_limit(const struct rlimit *before) {
  if (before->rlim_cur) setrlimit(RLIMIT_NOFILE, before);
}

static void prepare_process(surroundings *before) {
  for (int i = 0; i < SETTINGS; i++) {
    struct sigaction action = {.sa_handler = settings[i].handler};
    sigaction(settings[i].signal, &action, &before->signals[i]);
  }
  raise_file_limit(&before->files);
}

static void restore_process(const surroundings *before) {
  restore_file_limit(&before->files);
  for (int i = 0; i < SETTINGS; i++) sigaction(settings[i].signal, &before->signals[i], NULL);
}

// ---- in the rank --------------------------------------------------------------------------------

static void become_rank(launcher *l, int rank, pid_t launcher_pid) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher_pid) _exit(1);
  for (int r = 0; r < rank; r++)
    if (l->children[r].pid_fd >= 0) close(l->children[r].pid_fd);
  close(l->watch.signal_fd);
  tr__output_become_rank(&l->output, rank);
  restore_file_limit(&l->before.files);
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  signal(SIGUSR1, SIG_IGN);
  sigprocmask(SIG_SETMASK, &l->mask, NULL);
  tr__binding_apply(&l->binding, rank);
}

_Noreturn static void rank_process(launcher *l, int rank, pid_t launcher_pid, tr_rank_main rank_main, void *user) {
  become_rank(l, rank, launcher_pid);
  tr_status status = tr__rank_run(l->job, rank, rank_main, user);
  fflush(NULL);
  _exit(tr_status_exit_code(status));
}

// ---- start and end ------------------------------------------------------------------------------

static tr_status start_rank(launcher *l, int rank, tr_rank_main rank_main, void *user) {
  child *c = &l->children[rank];
  pid_t launcher_pid = getpid();
  fflush(NULL);
  pid_t pid = fork();
  if (pid < 0) return tr_error(TR_ERR_MEMORY, "launch: cannot fork rank %d: %s", rank, strerror(errno));
  if (pid == 0) rank_process(l, rank, launcher_pid, rank_main, user);
  tr__output_started(&l->output, rank);
  c->pid = pid;
  c->alive = 1;
  c->pid_fd = (int)syscall(SYS_pidfd_open, pid, 0); // without it (before Linux 5.3) the end is seen at the next look
  return TR_OK;
}

static void kill_all(launcher *l) {
  for (int r = 0; r < l->job->options.nrank; r++)
    if (l->children[r].alive) {
      l->children[r].killed = 1;
      kill(l->children[r].pid, SIGKILL);
    }
}

// Somebody else has taken the end of a rank; what it came to is in the control page or nowhere.
static void judge_unknown(launcher *l, int rank) {
  char doing[120], sentence[TR__SENTENCE];
  if (atomic_load_explicit(&l->job->page[rank].life, memory_order_acquire) == TR__ENDED) return;
  tr__describe_activity(l->job, rank, doing, sizeof doing);
  snprintf(sentence, sizeof sentence, "rank %d (pid %d) has ended, its status is unknown; it was in %s", rank,
           (int)l->children[rank].pid, doing);
  tr__abort(l->job, rank, TR_ERR_PEER, sentence);
}

// A rank is gone: stop the job unless it had returned from its main.
static void judge(launcher *l, int rank) {
  child *c = &l->children[rank];
  char doing[120], sentence[TR__SENTENCE];
  tr__describe_activity(l->job, rank, doing, sizeof doing);
  if (WIFSIGNALED(c->wait_status)) {
    int number = WTERMSIG(c->wait_status);
    snprintf(sentence, sizeof sentence, "rank %d (pid %d) was killed by signal %d (%s) while in %s", rank,
             (int)c->pid, number, strsignal(number), doing);
    if (!c->killed) tr__abort(l->job, rank, TR_ERR_PEER, sentence);
  } else if (atomic_load_explicit(&l->job->page[rank].life, memory_order_acquire) != TR__ENDED) {
    snprintf(sentence, sizeof sentence, "rank %d (pid %d) ended with exit status %d while in %s", rank, (int)c->pid,
             WEXITSTATUS(c->wait_status), doing);
    tr__abort(l->job, rank, TR_ERR_PEER, sentence);
  }
}

// Returns how many ranks are still there.
static int reap(launcher *l) {
  int alive = 0;
  for (int r = 0; r < l->job->options.nrank; r++) {
    child *c = &l->children[r];
    if (!c->alive) continue;
    pid_t got = waitpid(c->pid, &c->wait_status, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR)) {
      alive++;
      continue;
    }
    c->alive = 0;
    if (c->pid_fd >= 0) close(c->pid_fd);
    c->pid_fd = -1;
    if (got == c->pid)
      judge(l, r);
    else
      judge_unknown(l, r);
  }
  return alive;
}

static void wait_for_news(launcher *l) {
  int n = 0;
  l->polls[n++] = (struct pollfd){.fd = l->watch.signal_fd, .events = POLLIN};
  for (int r = 0; r < l->job->options.nrank; r++)
    if (l->children[r].pid_fd >= 0) l->polls[n++] = (struct pollfd){.fd = l->children[r].pid_fd, .events = POLLIN};
  n += tr__output_poll(&l->output, l->polls + n);
  poll(l->polls, (nfds_t)n, LOOK_MS);
}

static void say_left(launcher *l, int alive) {
  char line[96];
  int n = snprintf(line, sizeof line,
                   "[launcher] all ranks have ended, but %d of their processes did not go: killed\n", alive);
  tr__sink_put(&l->output.sinks[1], line, (size_t)n);
}

static void put_report(void *user, const char *line, size_t nbyte) {
  tr__sink_put(&((launcher *)user)->output.sinks[1], line, nbyte);
}

static void watch(launcher *l) {
  int alive, said = 0;
  while ((alive = reap(l)) > 0) {
    wait_for_news(l);
    tr__output_read(&l->output);
    int signals = tr__watch_signals(&l->watch, l->job);
    int over = tr__watch_progress(&l->watch, l->job);
    if (over && !tr__aborted(l->job) && !said++) say_left(l, alive);
    if (signals > 1 || over) kill_all(l);
  }
  tr__report_say(l->job, put_report, l);
  tr__output_finish(&l->output);
}

static void report_culprit(launcher *l, tr_launch_report *report) {
  int culprit;
  if (!tr__aborted(l->job)) return;
  tr__abort_status(l->job, &culprit, report->text, sizeof report->text);
  if (culprit < 0) return;
  const child *c = &l->children[culprit];
  if (WIFSIGNALED(c->wait_status) && !c->killed) report->signal = WTERMSIG(c->wait_status);
  if (WIFEXITED(c->wait_status)) report->exit_status = WEXITSTATUS(c->wait_status);
}

tr_status tr__launch_processes(tr__job *job, tr_rank_main rank_main, void *user, tr_launch_report *report) {
  TR_TRY(check_single_thread());
  size_t n = (size_t)job->options.nrank;
  launcher l = {.job = job, .children = calloc(n, sizeof(child)), .polls = calloc(3 * n + 3, sizeof(struct pollfd))};
  tr_status status = TR_OK;
  if (!l.children || !l.polls) {
    status = tr_error(TR_ERR_MEMORY, "launch: no memory for %zu ranks", n);
    goto free_arrays;
  }
  for (size_t r = 0; r < n; r++) l.children[r].pid_fd = -1;
  prepare_process(&l.before);
  status = tr__output_open(&l.output, &job->options);
  if (status < 0) goto restore;
  status = tr__watch_open(&l.watch, &l.mask);
  if (status < 0) goto close_output;
  tr__binding_create(job, &l.binding);
  for (int r = 0; r < job->options.nrank && status == TR_OK; r++) status = start_rank(&l, r, rank_main, user);
  if (status < 0) kill_all(&l);
  watch(&l);
  report_culprit(&l, report);
  tr__binding_destroy(&l.binding);
  tr__watch_close(&l.watch, &l.mask);
close_output:
  tr__output_close(&l.output);
restore:
  restore_process(&l.before);
free_arrays:
  free(l.polls);
  free(l.children);
  return status;
}
