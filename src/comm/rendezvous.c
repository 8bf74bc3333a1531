// SPDX-License-Identifier: MIT
// Ranks of one host that others have started get one memory: their leader (the first of them) makes one memory file and
// passes it to the others over an abstract Unix socket, which has no file and ends with its process.
//
//   leader                                         the others
//   listens                                        connect, again until the leader is there
//                        <---- hello ----          who I am, what I expect of the job
//   maps at a hint       ---- offer, file --->     map at the same address, which must be free
//                        <---- answer ----         could, or could not
//   all could: go. Otherwise another hint          go: done
//
// Addresses are equal in all ranks, as after a fork. The file holds the control range, then one arena per rank of this host;
// the address range has room for all ranks of the job, and those of other hosts have no memory in it.
#include "external_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/file.h"
#include "trireme/base/memory.h"
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAGIC = 0x54524931, PAUSE_NS = 5000000 };

typedef struct hello {
  uint32_t magic;
  int32_t rank, pid;
  uint64_t expects; // hash of what must agree
} hello;

typedef enum verdict { GO, OFFER, REFUSED } verdict;

typedef struct told { // leader to the others; OFFER comes with the file
  uint32_t verdict;
  uint64_t base;
  int32_t pid[TR__RANKS]; // GO
  char why[256];          // REFUSED
} told;

// Free in most programs, also under the address sanitizer; 0 lets the leader's system choose.
static const uint64_t hints[] = {0x200000000000u, 0x300000000000u, 0x400000000000u, 0x500000000000u, 0, 0, 0};

typedef struct meeting {
  tr__job *job;
  int rank, leader;
  double until; // clock seconds
  struct sockaddr_un address;
  socklen_t address_nbyte;
  int fds[TR__RANKS]; // leader: of each rank of this host, by local number; others: [0]
} meeting;

static size_t address_nbyte(const tr__job *job) {
  return job->shared_nbyte + job->arena_stride * (size_t)job->options.nrank;
}

// ---- mapping

// Returns 0, or an errno.
static int map_at(tr__job *job, void *base, int fd) {
  size_t nbyte = address_nbyte(job);
  int fixed = base ? MAP_FIXED_NOREPLACE : 0;
  char *at = mmap(base, nbyte, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
  if (at == MAP_FAILED) return errno;
  if (base && at != base) { // before Linux 4.17 the flag is a hint
    munmap(at, nbyte);
    return EEXIST;
  }
  int protection = PROT_READ | PROT_WRITE, failed = 0;
  if (mmap(at, job->shared_nbyte, protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) failed = errno;
  char *arenas = at + job->shared_nbyte;
  off_t offset = (off_t)job->shared_nbyte;
  for (int r = 0; r < job->options.nrank && !failed; r++) {
    if (job->hosts.of[r] != job->hosts.own) continue;
    if (mmap(arenas + (size_t)r * job->arena_stride, job->arena_stride, protection, MAP_SHARED | MAP_FIXED, fd,
             offset) == MAP_FAILED)
      failed = errno;
    offset += (off_t)job->arena_stride;
  }
  if (failed) {
    munmap(at, nbyte);
    return failed;
  }
  job->shared = at;
  job->arenas = arenas;
  return 0;
}

static void unmap(tr__job *job) {
  if (job->shared) munmap(job->shared, address_nbyte(job));
  job->shared = job->arenas = NULL;
}

static int make_file(const tr__job *job) {
  int fd = memfd_create("trireme-host", MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, (off_t)(job->shared_nbyte + job->arena_stride * (size_t)job->hosts.nlocal)) != 0) {
    close(fd);
    fd = -1;
  }
  return fd;
}

// ---- messages

static uint64_t expects(const tr__job *job) {
  const tr_launch_options *o = &job->options;
  const uint64_t parts[] = {(uint64_t)o->nrank, job->arena_stride, job->shared_nbyte, (uint64_t)job->hosts.nlocal,
                            o->agrees};
  return tr_hash_bytes(parts, sizeof parts);
}

static int wait_readable(const meeting *m, int fd) {
  for (;;) {
    double left = m->until - tr_clock_seconds();
    struct pollfd one = {.fd = fd, .events = POLLIN};
    if (left <= 0) return 0;
    int n = poll(&one, 1, (int)(left * 1000) + 1);
    if (n > 0) return 1;
    if (n < 0 && errno != EINTR) return 0;
  }
}

static int receive(const meeting *m, int from, void *data, size_t nbyte) {
  return wait_readable(m, from) && recv(from, data, nbyte, 0) == (ssize_t)nbyte;
}

static int tell(int to, const told *t, int fd) {
  union {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
  } control = {0};
  struct iovec data = {(void *)(uintptr_t)t, sizeof *t};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
  if (fd >= 0) {
    message.msg_control = &control;
    message.msg_controllen = sizeof control;
    control.header =
        (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
  }
  return sendmsg(to, &message, MSG_NOSIGNAL) == (ssize_t)sizeof *t;
}

static int hear(const meeting *m, told *t, int *fd) {
  union {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
  } control;
  struct iovec data = {t, sizeof *t};
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  *fd = -1;
  if (!wait_readable(m, m->fds[0]) || recvmsg(m->fds[0], &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *t) return 0;
  const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (header && header->cmsg_type == SCM_RIGHTS) memcpy(fd, CMSG_DATA(header), sizeof *fd);
  return 1;
}

static int same_user(int fd) {
  struct ucred who;
  socklen_t n = sizeof who;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && who.uid == getuid();
}

// ---- the leader

static tr_status missing_ranks(const meeting *m) {
  char list[200];
  int used = 0;
  for (int r = 0; r < m->job->options.nrank; r++)
    if (m->job->hosts.of[r] == m->job->hosts.own && r != m->rank && m->fds[m->job->hosts.local[r]] < 0 &&
        used < (int)sizeof list - 16)
      used += snprintf(list + used, sizeof list - (size_t)used, "%s%d", used ? ", " : "", r);
  return tr_error(TR_ERR_TIMEOUT, "rank %d waited in vain for the other ranks of its host to start; missing: rank %s",
                  m->rank, list);
}

static tr_status refuse(meeting *m, int fd, int rank) {
  told t = {.verdict = REFUSED};
  snprintf(
      t.why, sizeof t.why,
      "rank %d and rank %d of one host were started with different settings, data or programs; the same command for "
      "all ranks would work",
      m->rank, rank);
  tell(fd, &t, -1);
  close(fd);
  return tr_error(TR_ERR_CONFIG, "%s", t.why);
}

static tr_status take_hello(meeting *m, int fd) {
  hello h;
  const tr__hosts *hosts = &m->job->hosts;
  if (!same_user(fd) || !receive(m, fd, &h, sizeof h) || h.magic != MAGIC) {
    close(fd);
    return TR_OK;
  }
  int fits = h.rank >= 0 && h.rank < m->job->options.nrank && hosts->of[h.rank] == hosts->own && h.rank != m->rank;
  if (!fits || h.expects != expects(m->job) || m->fds[hosts->local[h.rank]] >= 0) return refuse(m, fd, h.rank);
  m->fds[hosts->local[h.rank]] = fd;
  m->job->hosts.pid[h.rank] = h.pid;
  return TR_OK;
}

static tr_status gather(meeting *m) {
  int server = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  tr_status status = TR_OK;
  if (server < 0 || bind(server, (struct sockaddr *)&m->address, m->address_nbyte) != 0 ||
      listen(server, TR__RANKS) != 0)
    status = tr_error(TR_ERR_IO, "rank %d cannot wait for the other ranks of its host: %s", m->rank, strerror(errno));
  for (int missing = 1; missing && status == TR_OK;) {
    missing = 0;
    for (int i = 1; i < m->job->hosts.nlocal; i++) missing += m->fds[i] < 0;
    if (!missing) break;
    if (!wait_readable(m, server)) status = missing_ranks(m);
    int fd = status == TR_OK ? accept4(server, NULL, NULL, SOCK_CLOEXEC) : -1;
    if (fd >= 0) status = take_hello(m, fd);
  }
  if (server >= 0) close(server);
  return status;
}

// Offer one address. Returns 1 when all could map it, 0 when not, or an error.
static tr_status offer(meeting *m, int file, uint64_t hint) {
  int all = 1;
  if (map_at(m->job, (void *)(uintptr_t)hint, file) != 0) return TR_OK;
  told t = {.verdict = OFFER, .base = (uint64_t)(uintptr_t)m->job->shared};
  for (int i = 1; i < m->job->hosts.nlocal; i++) tell(m->fds[i], &t, file);
  for (int i = 1; i < m->job->hosts.nlocal; i++) {
    int32_t could;
    if (!receive(m, m->fds[i], &could, sizeof could)) {
      unmap(m->job);
      return tr_error(TR_ERR_PEER, "a rank of this host ended while the job's memory was shared");
    }
    all &= could;
  }
  if (!all) unmap(m->job);
  return all ? TR_PENDING : TR_OK;
}

static tr_status lead(meeting *m) {
  TR_TRY(gather(m));
  int file = make_file(m->job);
  if (file < 0)
    return tr_error(TR_ERR_MEMORY, "cannot make a memory file for the ranks of this host: %s%s", strerror(errno),
                    tr_errno_advice(errno));
  tr_status status = TR_OK;
  for (size_t i = 0; i < sizeof hints / sizeof *hints && status == TR_OK; i++) status = offer(m, file, hints[i]);
  close(file);
  if (status == TR_OK)
    return tr_error(TR_ERR_MEMORY, "the ranks of this host found no address that is free in all of them");
  if (status < 0) return status;
  tr__job_lay_out(m->job);
  tr__job_init_control(m->job);
  told t = {.verdict = GO};
  memcpy(t.pid, m->job->hosts.pid, sizeof t.pid);
  for (int i = 1; i < m->job->hosts.nlocal; i++) tell(m->fds[i], &t, -1);
  return TR_OK;
}

// ---- the others

static tr_status find_leader(meeting *m) {
  for (;;) {
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&m->address, m->address_nbyte) == 0 && same_user(fd)) {
      m->fds[0] = fd;
      return TR_OK;
    }
    if (fd >= 0) close(fd);
    if (tr_clock_seconds() > m->until)
      return tr_error(TR_ERR_TIMEOUT, "rank %d waited in vain for rank %d of its host to start", m->rank, m->leader);
    tr_clock_sleep_ns(PAUSE_NS);
  }
}

static tr_status follow(meeting *m) {
  TR_TRY(find_leader(m));
  hello h = {.magic = MAGIC, .rank = m->rank, .pid = (int32_t)getpid(), .expects = expects(m->job)};
  if (send(m->fds[0], &h, sizeof h, MSG_NOSIGNAL) != (ssize_t)sizeof h)
    return tr_error(TR_ERR_PEER, "rank %d of this host has ended while it started", m->leader);
  for (;;) {
    told t;
    int file;
    if (!hear(m, &t, &file))
      return tr_error(TR_ERR_PEER, "rank %d heard no more of rank %d of its host while it started", m->rank,
                      m->leader);
    if (t.verdict == REFUSED) return tr_error(TR_ERR_CONFIG, "%.*s", (int)sizeof t.why - 1, t.why);
    if (t.verdict == GO) {
      memcpy(m->job->hosts.pid, t.pid, sizeof t.pid);
      tr__job_lay_out(m->job);
      return TR_OK;
    }
    unmap(m->job);
    int32_t could = file >= 0 && map_at(m->job, (void *)(uintptr_t)t.base, file) == 0;
    if (file >= 0) close(file);
    send(m->fds[0], &could, sizeof could, MSG_NOSIGNAL);
  }
}

// ---- both

static void name_meeting(meeting *m, const tr__starter *starter) {
  m->address.sun_family = AF_UNIX;
  // The first byte 0 makes it abstract.
  int n = snprintf(m->address.sun_path + 1, sizeof m->address.sun_path - 1, "trireme/%u/%d/%llu/%d", getuid(),
                   starter->pid, starter->born, m->leader);
  m->address_nbyte = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

tr_status tr__rendezvous(tr__job *job, int rank, const tr__starter *starter, double deadline) {
  meeting m = {.job = job, .rank = rank, .until = tr_clock_seconds() + deadline};
  while (job->hosts.of[m.leader] != job->hosts.own) m.leader++;
  for (int i = 0; i < TR__RANKS; i++) m.fds[i] = -1;
  name_meeting(&m, starter);
  job->hosts.pid[rank] = (int32_t)getpid();
  tr_status status = rank == m.leader ? lead(&m) : follow(&m);
  for (int i = 0; i < TR__RANKS; i++)
    if (m.fds[i] >= 0) close(m.fds[i]);
  if (status < 0) unmap(job);
  return status < 0 ? status : TR_OK;
}
