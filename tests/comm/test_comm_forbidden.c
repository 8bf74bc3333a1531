// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// A system that forbids ranks to read each other's memory, as containers and ptrace_scope do: here a filter of system calls that
// answers EPERM to process_vm_readv. Every operation on large private buffers has the results that it has without, and goes
// through the stages.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/processes.h"
#include "trireme/base/file.h"
#include "trireme/comm/launch.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum { RANKS = 3, EACH = 1 << 20, N = RANKS * EACH }; // floats

typedef struct seen {
  uint64_t hash[RANKS]; // of all results
  uint64_t direct[RANKS], staged[RANKS];
} seen;

typedef struct buffers {
  float *in, *out;
  uint64_t hash;
} buffers;

static void fill(const tr_comm *comm, buffers *b, unsigned salt) {
  for (size_t i = 0; i < N; i++) b->in[i] = (float)((i * 7 + (unsigned)tr_comm_rank(comm) * 13 + salt) % 1009);
  memset(b->out, 0, N * sizeof *b->out);
}

static void note(buffers *b) {
  const uint64_t parts[] = {b->hash, tr_hash_bytes(b->out, N * sizeof *b->out)};
  b->hash = tr_hash_bytes(parts, sizeof parts);
}

static tr_status collective(tr_group *g, buffers *b, int which) {
  static const size_t start[RANKS + 1] = {0, EACH / 2, 2 * EACH, N};
  switch (which) {
  case 0: return tr_group_allreduce(g, b->in, b->out, N, TR_F32, TR_SUM, NULL);
  case 1: return tr_group_reduce(g, b->in, b->out, N, TR_F32, TR_SUM, 1, NULL);
  case 2: return tr_group_reduce_scatter(g, b->in, b->out, EACH, TR_F32, TR_SUM, NULL);
  case 3: return tr_group_reduce_scatter_v(g, b->in, b->out, start, TR_F32, TR_F32, TR_SUM, 32, NULL, NULL, NULL);
  case 4: return tr_group_allgather(g, b->in, b->out, EACH, TR_F32, NULL);
  case 5: return tr_group_allgather_v(g, b->in, b->out, start, TR_F32, NULL);
  case 6: return tr_group_alltoall(g, b->in, b->out, EACH, TR_F32, NULL);
  case 7: return tr_group_gather(g, b->in, b->out, EACH, TR_F32, 2, NULL);
  case 8: return tr_group_scatter(g, b->in, b->out, EACH, TR_F32, 2, NULL);
  default: return tr_group_broadcast(g, b->in, N, TR_F32, 1, NULL);
  }
}

static tr_status pass_on(tr_group *g, buffers *b) {
  const int own = tr_group_rank(g);
  tr_request *sent = NULL;
  TR_TRY(tr_group_send(g, (own + 1) % RANKS, 5, b->in, N * sizeof *b->in, &sent));
  TR_TRY(tr_group_recv(g, (own + RANKS - 1) % RANKS, 5, b->out, N * sizeof *b->out, NULL));
  return tr_request_wait(sent);
}

static tr_status all_operations(tr_comm *comm, void *user) {
  seen *s = user;
  const int own = tr_comm_rank(comm);
  tr_group *world = tr_comm_world(comm);
  buffers b = {.in = malloc(N * sizeof *b.in), .out = malloc(N * sizeof *b.out)};
  tr_status status = b.in && b.out ? TR_OK : TR_ERR_MEMORY;
  for (int which = 0; which < 10 && status == TR_OK; which++) {
    fill(comm, &b, (unsigned)which);
    status = collective(world, &b, which);
    if (which == 9) memcpy(b.out, b.in, N * sizeof *b.out);
    note(&b);
  }
  if (status == TR_OK) status = pass_on(world, &b);
  note(&b);
  const tr_comm_counters count = tr_comm_count(comm);
  s->hash[own] = b.hash;
  s->direct[own] = count.bytes_direct;
  s->staged[own] = count.bytes_staged;
  free(b.in);
  free(b.out);
  return status;
}

static void run(seen *out) {
  tr_launch_options o;
  tr_launch_options_init(&o);
  o.nrank = RANKS;
  o.arena_nbyte = 4096;
  o.deadline = 20;
  assert_int_equal(tr_launch(&o, all_operations, out, NULL), TR_OK);
}

// For this process and all that it starts, for good.
static int forbid_reading(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int can_read(void) {
  char from = 1, to = 0;
  struct iovec here = {&to, 1}, there = {&from, 1};
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1;
}

static void what_may_not_be_read_is_staged(void **state) {
  (void)state;
  seen *s = shared_page();
  assert_non_null(s);
  const int could = can_read();
  run(&s[0]);
  if (!forbid_reading()) {
    free_shared_page(s);
    print_message("skipped: this system takes no filter of system calls\n");
    skip();
  }
  assert_false(can_read());
  run(&s[1]);
  for (int r = 0; r < RANKS; r++) {
    assert_int_equal(s[0].hash[r], s[1].hash[r]);
    assert_int_equal(s[1].direct[r], 0);
    assert_true(s[1].staged[r] >= s[0].staged[r] + (could ? (uint64_t)N * sizeof(float) : 0));
    if (could) assert_true(s[0].direct[r] > 0);
  }
  free_shared_page(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_may_not_be_read_is_staged)};
  skip_unless_forking_works();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
