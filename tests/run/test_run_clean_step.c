// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 180
// Proves that from the third step on a step asks nothing of the system: on the main thread of every rank and on all
// workers of its pool there is no system call but those of waiting (futex, sched_yield, a short sleep, clocks), no page
// fault, and no call of an allocator.
//
// Ranks are processes. After two steps each thread installs a filter of its own that turns every other system call into
// a signal (seccomp, SECCOMP_RET_TRAP); the handler counts it and lets it fail, so that five steps are watched to their
// end. Faults are those that the kernel counts per thread (getrusage). Calls of malloc and its like are counted by
// functions of those names in this program. A filter cannot be taken off again, so a watched rank gives nothing back: its
// process ends.
//
// The kernel may move a page at any time (compaction) and the next touch of it is a fault that nobody here made, so a
// case whose only flaw is page faults is run again, twice at most.
//
// Products that go to oneDNN (bf16 on AMX) are not watched: it makes and frees small objects in every call.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "run/exchange_model.h"
#include "run/pipeline_harness.h"
#include "trireme/model/llama.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNDER_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define UNDER_SANITIZER 1
#endif
#endif

#if defined(UNDER_SANITIZER)
static const char *const impossible = "a sanitizer has its own allocator and makes system calls of its own";
#elif !defined(__GLIBC__)
static const char *const impossible = "calls of the allocator are counted by way of glibc's names for its own";
#elif !defined(__x86_64__) && !defined(__aarch64__)
static const char *const impossible = "the handler knows the registers of x86-64 and of 64-bit ARM only";
#else
#define CAN_WATCH 1
#endif

#ifdef CAN_WATCH
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { WARM_STEPS = 2, WATCHED_STEPS = 5, ALL_STEPS = WARM_STEPS + WATCHED_STEPS, THREADS = 2, TRIES = 3 };

// ---- what one thread did while it was watched, in memory that all ranks share

typedef struct seen {
  int calls, first_call;    // system calls that were caught, and the number of the first
  int allocations;          // calls of the allocator
  const void *first_caller; // who made the first of them
  long minor, major;        // page faults
} seen;

typedef struct report {
  int installed; // ranks that had their filters
  seen thread[RH_RANKS][THREADS];
} report;

static _Thread_local seen *watching; // NULL: this thread is not watched

// ---- the allocator

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *block);

static void count_allocation(const void *caller) {
  if (!watching) return;
  if (!watching->allocations++) watching->first_caller = caller;
}
#define COUNTED(call) (count_allocation(__builtin_return_address(0)), (call))

void *malloc(size_t size) { return COUNTED(__libc_malloc(size)); }
void *calloc(size_t n, size_t size) { return COUNTED(__libc_calloc(n, size)); }
void *realloc(void *block, size_t size) { return COUNTED(__libc_realloc(block, size)); }
void *aligned_alloc(size_t align, size_t size) { return COUNTED(__libc_memalign(align, size)); }
void *memalign(size_t align, size_t size) { return COUNTED(__libc_memalign(align, size)); }
int posix_memalign(void **out, size_t align, size_t size) {
  *out = COUNTED(__libc_memalign(align, size));
  return *out ? 0 : ENOMEM;
}
void free(void *block) {
  count_allocation(__builtin_return_address(0));
  __libc_free(block);
}

// ---- the system calls

static void on_call(int number, siginfo_t *info, void *context) {
  (void)number;
  ucontext_t *registers = context;
  if (watching && !watching->calls++) watching->first_call = info->si_syscall;
#if defined(__x86_64__)
  registers->uc_mcontext.gregs[REG_RAX] = -ENOSYS;
#else
  registers->uc_mcontext.regs[0] = (unsigned long long)-ENOSYS;
#endif
}

#define ALLOW(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

// Waiting, which ends with a sleep where a rank waits for long (comm/wait.c): a core that ranks share must not be kept
// from the one that is waited for. Then what the test itself needs: faults counted, the handler left, the process ended.
static int install_filter(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      ALLOW(SYS_futex),
      ALLOW(SYS_sched_yield),
      ALLOW(SYS_clock_nanosleep),
      ALLOW(SYS_clock_gettime), // where the system has no clock without a call
      ALLOW(SYS_getrusage),
      ALLOW(SYS_rt_sigreturn),
      ALLOW(SYS_exit_group),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO};
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGSYS);
  if (sigaction(SIGSYS, &action, NULL) != 0 || pthread_sigmask(SIG_UNBLOCK, &set, NULL) != 0) return 0;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 0;
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

// ---- a rank

static void count_faults(seen *s, long sign) {
  struct rusage use = {0};
  getrusage(RUSAGE_THREAD, &use);
  s->minor += sign * use.ru_minflt;
  s->major += sign * use.ru_majflt;
}

typedef struct watch {
  seen *thread; // [nthread]
  int failed;
} watch;

static void begin_watching(void *context, int task, int worker) {
  (void)task;
  watch *w = context;
  seen *own = &w->thread[worker];
  if (!install_filter()) __atomic_store_n(&w->failed, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < 2; i++) *own = (seen){0}, count_faults(own, -1); // the first time touches what it needs
  watching = own;
}

static void end_watching(void *context, int task, int worker) {
  (void)task;
  watch *w = context;
  watching = NULL;
  count_faults(&w->thread[worker], 1);
}

typedef struct job {
  const rh_case *c;
  const ph_case *pipeline; // of the same case, or NULL
  report *report;
} job;

// What is watched of a rank, alone or in a pipeline.
typedef struct watched {
  tr_run *run;
  tr_pool *pool;
  int place; // which part of the data it gets
} watched;

static tr_status open_rank(const job *j, tr_comm *comm, watched *out) {
  static rh_rank r; // never closed: a watched rank ends with its process
  static ph_rank p;
  TR_TRY(j->pipeline ? ph_open(j->pipeline, comm, &p) : rh_open(j->c, comm, &r));
  *out = j->pipeline ? (watched){p.run, p.pool, p.dp_rank} : (watched){r.run, r.pool, tr_comm_rank(comm)};
  return TR_OK;
}

// Steps first .. end - 1; all their rows are there.
static tr_status train(const rh_case *c, const watched *r, const rh_rows *rows, int first, int end) {
  tr_step_result done;
  tr_model_input input[RH_MICRO];
  for (int step = first; step < end; step++) {
    for (int mb = 0; mb < c->micro; mb++) input[mb] = rows[step * c->micro + mb].input;
    TR_TRY(tr_run_step(r->run, step, c->lr, input, &done));
  }
  return TR_OK;
}

static tr_status rank_main(tr_comm *comm, void *user) {
  const job *j = user;
  const rh_case *c = j->c;
  watched r;
  tr_model_input input[RH_MICRO];
  watch w = {.thread = j->report->thread[tr_comm_rank(comm)]};
  TR_TRY(open_rank(j, comm, &r));
  rh_rows *rows = calloc((size_t)(ALL_STEPS * c->micro), sizeof *rows);
  if (!rows) return tr_error(TR_ERR_MEMORY, "no memory for the rows of all steps");
  for (int step = 0; step < ALL_STEPS; step++) rh_deal(c, step, r.place, rows + step * c->micro, input);
  TR_TRY(train(c, &r, rows, 0, WARM_STEPS));
  tr_pool_run(r.pool, c->nthread, begin_watching, &w);
  if (w.failed) return TR_OK;
  __atomic_fetch_add(&j->report->installed, 1, __ATOMIC_RELAXED);
  tr_status status = train(c, &r, rows, WARM_STEPS, ALL_STEPS);
  tr_pool_run(r.pool, c->nthread, end_watching, &w);
  return status;
}

// ---- cases

static tr_status gpt2(tr_model **out) {
  tr_gpt2_config config;
  tr_gpt2_config_init(&config);
  config.layers = 2;
  config.width = 192;
  config.heads = 3;
  config.vocab = 3000;
  config.positions = RH_POSITIONS;
  config.dropout_embedding = config.dropout_residual = config.dropout_attention = 0.1;
  return tr_gpt2_create(&config, out);
}

static tr_status llama(tr_model **out) {
  tr_llama_config config;
  tr_llama_config_init(&config);
  config.layers = 3;
  config.width = 128;
  config.heads = 4;
  config.heads_kv = 2;
  config.ffn = 320;
  config.vocab = 2000;
  config.positions = RH_POSITIONS;
  return tr_llama_create(&config, out);
}

static int ranks_of(const rh_case *c, const ph_case *pipeline) { return pipeline ? ph_ranks(pipeline) : c->nrank; }

static report *run_case(const rh_case *c, const ph_case *pipeline) {
  report *out = mmap(NULL, sizeof *out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(out != MAP_FAILED);
  job j = {c, pipeline, out};
  tr_launch_options launch;
  tr_launch_options_init(&launch);
  launch.nrank = ranks_of(c, pipeline);
  launch.nthread = c->nthread;
  launch.bind = 0;
  launch.deadline = 30;
  if (tr_launch(&launch, rank_main, &j, NULL) < 0) {
    for (int r = 0; r < launch.nrank; r++) // what failed may be what was caught
      if (out->thread[r][0].calls) return out;
    fail_msg("%s", tr_status_text());
  }
  return out;
}

static int only_faults(const rh_case *c, int nrank, const report *got) {
  long faults = 0, others = 0;
  for (int i = 0; i < nrank * c->nthread; i++) {
    const seen *s = &got->thread[i / c->nthread][i % c->nthread];
    faults += s->minor + s->major;
    others += s->calls + s->allocations;
  }
  return faults && !others;
}

static void check_thread(const rh_case *c, const char *model, int rank, int thread, const seen *s) {
  if (!s->calls && !s->allocations && !s->minor && !s->major) return;
  fail_msg("%s, %s, %d ranks, %d threads, kernels %s: rank %d, thread %d made %d system calls (the first is number "
           "%d), %d "
           "calls of the allocator (the first from %p), %ld minor and %ld major faults in %d steps",
           model, tr_dtype_name(c->type), c->nrank, c->nthread, c->kernels->name, rank, thread, s->calls,
           s->first_call, s->allocations, s->first_caller, s->minor, s->major, WATCHED_STEPS);
}

static void check_case(const rh_case *c, const ph_case *pipeline, const char *model) {
  report *got = run_case(c, pipeline);
  int nrank = ranks_of(c, pipeline);
  for (int i = 1; i < TRIES && only_faults(c, nrank, got); i++) {
    munmap(got, sizeof *got);
    got = run_case(c, pipeline);
  }
  assert_int_equal(got->installed, nrank);
  for (int i = 0; i < nrank * c->nthread; i++)
    check_thread(c, model, i / c->nthread, i % c->nthread, &got->thread[i / c->nthread][i % c->nthread]);
  munmap(got, sizeof *got);
}

static void check(const rh_case *c, const char *model) { check_case(c, NULL, model); }

static rh_case training(int nrank, int nthread, tr_dtype type) {
  rh_case c = rh_default();
  c.nrank = nrank;
  c.nthread = nthread;
  c.type = type;
  c.kernels = tr_kernels_cpu();
  c.micro = 2;
  c.sequences = 12;
  c.clip = 0.5;
  c.lr = 1e-3;
  c.bucket = 100000;
  c.optim.kind = TR_OPTIM_ADAMW;
  return c;
}

// State once per rank and once for all, packed weights or none, values kept or computed again: one of each per type.
static void check_all(int nrank, int nthread) {
  for (int i = 0; i < 2; i++) {
    rh_case c = training(nrank, nthread, i ? TR_BF16 : TR_F32);
    c.sync = i ? TR_SYNC_EVERY : TR_SYNC_LAST;
    c.zero = c.pack = (i + nthread) % 2;
    if (c.zero) c.wire = TR_BF16;
    c.recompute = i ? TR_RECOMPUTE_FULL : TR_RECOMPUTE_NONE;
    c.model = gpt2;
    check(&c, "gpt2");
    c.model = llama;
    check(&c, "llama");
  }
}

static void one_rank(void **state) {
  (void)state;
  check_all(1, 1);
  check_all(1, 2);
}

static void two_ranks(void **state) {
  (void)state;
  check_all(2, 1);
  check_all(2, 2);
}

static void three_ranks(void **state) {
  (void)state;
  check_all(3, 1);
  rh_case c = training(3, 2, TR_BF16); // six threads: on few cores every wait ends in a sleep
  c.model = llama;
  check(&c, "llama");
}

static void plain_kernels(void **state) {
  (void)state;
  rh_case c = training(2, 2, TR_F32);
  c.kernels = tr_kernels_reference();
  c.split = 1;
  check(&c, "tiny gpt2");
}

// Several stages per rank, split passes, copies of stages, owned state, narrow messages; a message per step, which comes to the
// last entry of its channel in the sixteenth.
static void pipelines(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int p, v, dp, m, zero;
  } plan[] = {{"1f1b", 3, 0, 1, 5, 0},
              {"interleaved", 2, 2, 2, 4, 1},
              {"zbv", 2, 0, 1, 5, 0},
              {"dualpipe", 2, 0, 1, 4, 1},
              {"gpipe", 4, 0, 1, 1, 0}};
  for (int i = 0; i < 5; i++) {
    ph_case c = ph_default(plan[i].name, plan[i].p, plan[i].dp, plan[i].m);
    rh_case own = training(plan[i].dp, 1, i % 2 ? TR_BF16 : TR_F32);
    c.v = plan[i].v;
    own.layers = 6;
    own.zero = plan[i].zero;
    own.micro = plan[i].m;
    own.sequences = 2 * plan[i].dp * plan[i].m;
    own.recompute = i ? TR_RECOMPUTE_SELECTIVE : TR_RECOMPUTE_NONE;
    c.run = own;
    if (i == 0) c.stage_wire = TR_BF16;
    check_case(&own, &c, plan[i].name);
  }
}

static tr_status exchanging(tr_model **out) {
  const ex_config config = {.layers = 6,
                            .width = 256,
                            .hidden = 96,
                            .vocab = RH_VOCAB,
                            .positions = RH_POSITIONS,
                            .rows = 2 * RH_POSITIONS};
  return ex_model(&config, out);
}

// Pieces that exchange with ranks that have other data, beside the other half of a pair and alone.
static void exchanges(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    ph_case c = ph_default(i ? "dualpipe" : "dualpipev", 2, 2,
                           8); // messages enough to use all of a channel before steps are watched
    rh_case own = training(2, 1, i ? TR_BF16 : TR_F32);
    own.model = exchanging;
    own.full = 1;
    own.zero = i;
    own.micro = 8;
    own.sequences = 2 * 2 * 8;
    c.run = own;
    c.exchange = 1;
    check_case(&own, &c, "exchange");
  }
}

// ---- the watch itself

static tr_status careless_main(tr_comm *comm, void *user) {
  (void)comm;
  const job *j = user;
  watch w = {.thread = j->report->thread[0]};
  char *fresh = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return TR_ERR_MEMORY;
  begin_watching(&w, 0, 0);
  if (w.failed) return TR_OK;
  __atomic_fetch_add(&j->report->installed, 1, __ATOMIC_RELAXED);
  void *volatile taken = malloc(100); // else compilers leave both calls out
  free(taken);
  (void)!getppid();
  *(volatile char *)fresh = 1;
  end_watching(&w, 0, 0);
  return TR_OK;
}

// Skips the program where the kernel or the place it runs in has no filters.
static void skip_unless_watched(void) {
  rh_case c = rh_default();
  report *out = mmap(NULL, sizeof *out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  job j = {&c, NULL, out};
  tr_launch_options launch;
  tr_launch_options_init(&launch);
  if (out == MAP_FAILED || tr_launch(&launch, careless_main, &j, NULL) < 0) {
    printf("cannot start a rank: %s\n", tr_status_text());
    exit(1);
  }
  int installed = out->installed;
  munmap(out, sizeof *out);
  if (installed) return;
  printf("skipped: this system installs no filters of system calls (seccomp)\n");
  exit(77);
}

static void what_a_step_must_not_do_is_seen(void **state) {
  (void)state;
  rh_case c = rh_default();
  report *out = mmap(NULL, sizeof *out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(out != MAP_FAILED);
  job j = {&c, NULL, out};
  tr_launch_options launch;
  tr_launch_options_init(&launch);
  assert_int_equal(tr_launch(&launch, careless_main, &j, NULL), TR_OK);
  const seen *s = &out->thread[0][0];
  assert_int_equal(s->calls, 1);
  assert_int_equal(s->first_call, SYS_getppid);
  assert_int_equal(s->allocations, 2);
  assert_true(s->minor >= 1);
  munmap(out, sizeof *out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_a_step_must_not_do_is_seen),
      cmocka_unit_test(one_rank),
      cmocka_unit_test(two_ranks),
      cmocka_unit_test(three_ranks),
      cmocka_unit_test(plain_kernels),
      cmocka_unit_test(pipelines),
      cmocka_unit_test(exchanges),
  };
  setenv("TRIREME_ISA", "avx512", 0);
  skip_unless_watched();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) {
  printf("skipped: %s\n", impossible);
  return 77;
}
#endif
