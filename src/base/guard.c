// SPDX-License-Identifier: MIT
// Reads of a mapped file that lost pages: zeros and a mark, instead of the end of the process.
//
// The system answers such a read with SIGBUS to the thread that reads. A signal's handler belongs to the process and
// learns nothing but an address, so the ranges it may mend stand in a table of the process: that is why this file has
// state of its own. The handler looks the address up, marks its map as torn and lays a page of zeros over the hole; the
// read then goes on. An address in none of the maps goes to whatever handled SIGBUS before the first map, or ends the
// process. Every new map sees to it that the handler is still set.
//
// Nobody locks. A place is in change while its version is odd, and what was read of it counts if the version stood even
// and still before and after. A forked rank inherits table and handler, and its holes are its own.
//
// Not for system calls: write() from a hole fails with EFAULT and mends nothing.
#include "base/guard_internal.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct guarded {
  atomic_uintptr_t begin, end; // 0, 0: free
  atomic_uint version;
  atomic_int torn;
} guarded;

static guarded table[TR__GUARD_MAX];
static pthread_once_t started = PTHREAD_ONCE_INIT;
static struct sigaction previous; // this and the next are set once, before the handler can run
static uintptr_t page_size;

// The place whose range holds `address`. The thread that reads there keeps the map open, so this place is not in change.
static guarded *find(uintptr_t address) {
  for (int i = 0; i < TR__GUARD_MAX; i++) {
    guarded *g = &table[i];
    unsigned version = atomic_load(&g->version);
    uintptr_t begin = atomic_load(&g->begin), end = atomic_load(&g->end);
    if (address < begin || address >= end) continue;
    if (version % 2 == 0 && atomic_load(&g->version) == version) return g;
  }
  return NULL;
}

// The plain system call: the sanitizers' mmap takes a hole that two threads meet at once for a race.
static int lay_zeros(uintptr_t address) {
  uintptr_t page = address - address % page_size;
  return syscall(SYS_mmap, page, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == (long)page;
}

static void pass_on(int number, siginfo_t *info, void *context) {
  int sent = info->si_code <= 0; // by kill(), not by a read
  if (previous.sa_flags & SA_SIGINFO) {
    previous.sa_sigaction(number, info, context);
  } else if (previous.sa_handler == SIG_IGN && sent) {
    return;
  } else if (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN) {
    signal(number, SIG_DFL); // the read is tried again after this handler, and ends the process
    if (sent) raise(number);
  } else {
    previous.sa_handler(number);
  }
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
  int before = errno;
  uintptr_t address = (uintptr_t)info->si_addr;
  guarded *g = info->si_code > 0 ? find(address) : NULL;
  if (g) atomic_store(&g->torn, 1); // first: whoever reads the zeros must find the mark
  if (!g || !lay_zeros(address)) pass_on(number, info, context);
  errno = before;
}

static void start(void) {
  page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
  sigaction(SIGBUS, NULL, &previous);
}

// Also where somebody has set another handler since: that one then gets no more signals, since it may itself lead here.
static int install(void) {
  struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART}, now;
  pthread_once(&started, start);
  if (sigaction(SIGBUS, NULL, &now) == 0 && now.sa_sigaction == on_bus_error) return 1;
  return sigaction(SIGBUS, &action, NULL) == 0;
}

int tr__guard_add(const void *data, size_t nbyte) {
  if (!install()) return TR__GUARD_NONE;
  for (int i = 0; i < TR__GUARD_MAX; i++) {
    guarded *g = &table[i];
    unsigned version = atomic_load(&g->version);
    if (version % 2 != 0 || atomic_load(&g->begin) != 0) continue;
    if (!atomic_compare_exchange_strong(&g->version, &version, version + 1)) continue;
    atomic_store(&g->torn, 0);
    atomic_store(&g->begin, (uintptr_t)data);
    atomic_store(&g->end, (uintptr_t)data + nbyte);
    atomic_store(&g->version, version + 2);
    return i;
  }
  return TR__GUARD_NONE;
}

void tr__guard_remove(int place) {
  if (place == TR__GUARD_NONE) return;
  guarded *g = &table[place];
  atomic_fetch_add(&g->version, 1);
  atomic_store(&g->begin, 0);
  atomic_store(&g->end, 0);
  atomic_fetch_add(&g->version, 1);
}

int tr__guard_torn(int place) { return place != TR__GUARD_NONE && atomic_load(&table[place].torn); }
