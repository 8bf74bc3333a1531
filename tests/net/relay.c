// SPDX-License-Identifier: MIT
// A link with a set one-way delay between two network namespaces, for kernels without netem.
//
//   relay NAMESPACE NAMESPACE DELAY_US    namespaces as `ip netns` names them
//
//   eth0 (TAP) --> queue, each frame DELAY_US old --> (TAP) eth0
//              <-- the same for the other direction <--
//
// Each namespace gets a TAP device eth0; what leaves through one arrives at the other when its time has come, in order.
// Nothing limits the rate: `tc` does, on the devices. A queue holds what a fast link has under way; when it is full, its device
// is not read until there is room, so that the kernel's queue fills as it would before a busy link. Devices end with the process.
// Prints "ready" once both exist.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { FRAME_MOST = 9216, QUEUE = 4096, BURST = 64 };

typedef struct frame {
  int64_t due; // ns
  size_t nbyte;
  char data[FRAME_MOST];
} frame;

typedef struct way { // one direction: a ring of frames, first .. first + n
  int from, to;
  size_t first, n;
  frame *ring;
} way;

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int fail(const char *what, const char *name) {
  fprintf(stderr, "relay: %s %s: %s\n", what, name, strerror(errno));
  return -1;
}

static int open_tap(const char *name) {
  char path[128];
  struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
  snprintf(path, sizeof path, "/run/netns/%s", name);
  snprintf(request.ifr_name, sizeof request.ifr_name, "eth0");
  const int space = open(path, O_RDONLY | O_CLOEXEC);
  if (space < 0) return fail("no network namespace", name);
  const int entered = setns(space, CLONE_NEWNET);
  close(space);
  if (entered < 0) return fail("cannot enter", name);
  const int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (tap < 0) return fail("cannot open", "/dev/net/tun");
  if (ioctl(tap, TUNSETIFF, &request) == 0) return tap;
  close(tap);
  return fail("no TAP device in", name);
}

// A bounded number of frames, so that the other direction has its turn.
static int take(way *w, int64_t delay) {
  for (int i = 0; i < BURST && w->n < QUEUE; i++) {
    frame *f = &w->ring[(w->first + w->n) % QUEUE];
    const ssize_t n = read(w->from, f->data, FRAME_MOST);
    if (n < 0) return errno == EAGAIN || errno == EINTR || errno == EIO ? 0 : fail("cannot read", "a frame");
    f->nbyte = (size_t)n;
    f->due = now_ns() + delay;
    w->n++;
  }
  return 0;
}

static int give(way *w, int64_t now) {
  for (; w->n > 0 && w->ring[w->first].due <= now; w->first = (w->first + 1) % QUEUE, w->n--) {
    const frame *f = &w->ring[w->first];
    // EIO: the device is down, where frames are lost.
    if (write(w->to, f->data, f->nbyte) < 0 && errno != EIO && errno != EAGAIN && errno != EINTR)
      return fail("cannot write", "a frame");
  }
  return 0;
}

static void until_due(const way *w, int64_t *wait) {
  const int64_t left = w->n > 0 ? w->ring[w->first].due - now_ns() : INT64_MAX;
  if (left < *wait) *wait = left > 0 ? left : 0;
}

static int relay(way *w, int64_t delay) {
  for (;;) {
    struct pollfd p[2];
    int64_t wait = 1000000000;
    for (int i = 0; i < 2; i++) {
      p[i] = (struct pollfd){.fd = w[i].from, .events = w[i].n < QUEUE ? POLLIN : 0};
      until_due(&w[i], &wait);
    }
    const struct timespec t = {.tv_sec = wait / 1000000000, .tv_nsec = wait % 1000000000};
    if (ppoll(p, 2, &t, NULL) < 0 && errno != EINTR) return fail("cannot wait for", "frames");
    for (int i = 0; i < 2; i++)
      if ((p[i].revents & POLLIN && take(&w[i], delay) < 0) || give(&w[i], now_ns()) < 0) return -1;
  }
}

int main(int argc, char **argv) {
  char *end = NULL;
  const long delay_us = argc == 4 ? strtol(argv[3], &end, 10) : -1;
  if (delay_us < 0 || delay_us > 10000000 || *end) {
    fprintf(stderr, "usage: relay NAMESPACE NAMESPACE DELAY_US (0 .. 10000000)\n");
    return 2;
  }
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  const int first = open_tap(argv[1]), second = first < 0 ? -1 : open_tap(argv[2]);
  way w[2] = {{.from = first, .to = second, .ring = malloc(QUEUE * sizeof(frame))},
              {.from = second, .to = first, .ring = malloc(QUEUE * sizeof(frame))}};
  if (second < 0 || !w[0].ring || !w[1].ring) return 1;
  puts("ready");
  fclose(stdout);
  return relay(w, (int64_t)delay_us * 1000) < 0;
}
