// SPDX-License-Identifier: MIT
// The limit of what two hosts can exchange: plain TCP over the same link, both directions at once. Each of two ranks sends and
// takes BYTES over one connection, ROUNDS times; rank 0 prints the median rate of one direction. Nothing of the library moves
// the bytes.
//
//   mpirun -n 2 bench_tcp ADDRESS [BYTES [ROUNDS]]    ADDRESS of rank 0's host
#include "trireme/base/clock.h"
#include "trireme/base/sort.h"
#include "trireme/base/text.h"
#include "trireme/comm/launch.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT = 47100, PIECE = 256 << 10, WAIT_MS = 20000, ROUNDS_MOST = 99 };

static tr_status failed(const char *what) { return tr_error(TR_ERR_IO, "%s: %s", what, strerror(errno)); }

static tr_status listen_once(const struct sockaddr_in *at, int *out) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  struct pollfd p = {.fd = listener, .events = POLLIN};
  if (listener < 0) return failed("no socket");
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  *out = -1;
  if (bind(listener, (const struct sockaddr *)at, sizeof *at) == 0 && listen(listener, 1) == 0 &&
      poll(&p, 1, WAIT_MS) == 1)
    *out = accept(listener, NULL, NULL);
  close(listener);
  return *out < 0 ? failed("the other host did not connect") : TR_OK;
}

static tr_status connect_once(const struct sockaddr_in *at, int *out) {
  for (int tries = 0; tries < WAIT_MS / 20; tries++) {
    *out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*out >= 0 && connect(*out, (const struct sockaddr *)at, sizeof *at) == 0) return TR_OK;
    if (*out >= 0) close(*out);
    tr_clock_sleep_ns(20000000);
  }
  return failed("the other host does not listen");
}

// What moved, 0 for nothing just now, or an error.
static ssize_t moved(ssize_t n) {
  if (n > 0) return n;
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  return failed("the connection has ended");
}

static tr_status exchange(int fd, char *out, char *in, size_t nbyte) {
  size_t sent = 0, taken = 0;
  while (sent < nbyte || taken < nbyte) {
    struct pollfd p = {.fd = fd, .events = (short)((taken < nbyte ? POLLIN : 0) | (sent < nbyte ? POLLOUT : 0))};
    if (poll(&p, 1, WAIT_MS) != 1) return failed("the other host is silent");
    const size_t to_send = nbyte - sent < PIECE ? nbyte - sent : PIECE;
    const size_t to_take = nbyte - taken < PIECE ? nbyte - taken : PIECE;
    ssize_t n = p.revents & POLLOUT ? moved(send(fd, out, to_send, MSG_NOSIGNAL)) : 0;
    if (n < 0) return TR_ERR_IO;
    sent += (size_t)n;
    n = p.revents & (POLLIN | POLLHUP | POLLERR) && to_take ? moved(recv(fd, in, to_take, 0)) : 0;
    if (n < 0) return TR_ERR_IO;
    taken += (size_t)n;
  }
  return TR_OK;
}

static tr_status measure(int fd, size_t nbyte, int rounds, double *median) {
  static char out[PIECE], in[PIECE];
  double seconds[ROUNDS_MOST];
  for (int i = -1; i < rounds; i++) {
    TR_TRY(exchange(fd, out, in, 1)); // both are here
    const double begin = tr_clock_seconds();
    TR_TRY(exchange(fd, out, in, i < 0 ? nbyte / 4 : nbyte));
    if (i >= 0) seconds[i] = tr_clock_seconds() - begin;
  }
  tr_sort_doubles(seconds, (size_t)rounds);
  *median = seconds[rounds / 2];
  return TR_OK;
}

static tr_status run(int argc, char **argv) {
  int64_t nbyte = 16 << 20, rounds = 5;
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
  tr_launch_place place = {0};
  double seconds = 0;
  int fd = -1, on = 1;
  TR_TRY(tr_launch_placed(&place));
  if (argc > 2) TR_TRY(tr_parse_count(argv[2], &nbyte));
  if (argc > 3) TR_TRY(tr_parse_count(argv[3], &rounds));
  if (place.size != 2 || argc < 2 || argc > 4 || inet_pton(AF_INET, argv[1], &at.sin_addr) != 1 || nbyte < 4 ||
      rounds < 1 || rounds > ROUNDS_MOST)
    return tr_error(TR_ERR_USAGE, "usage: mpirun -n 2 bench_tcp ADDRESS-OF-RANK-0 [BYTES [ROUNDS 1..%d]]",
                    ROUNDS_MOST);
  TR_TRY(place.rank == 0 ? listen_once(&at, &fd) : connect_once(&at, &fd));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  tr_status status = fcntl(fd, F_SETFL, O_NONBLOCK) == 0 ? TR_OK : failed("no nonblocking socket");
  if (status == TR_OK) status = measure(fd, (size_t)nbyte, (int)rounds, &seconds);
  close(fd);
  if (status == TR_OK && place.rank == 0)
    printf("tcp: %.3f MB/s each way, both at once (median of %d times %lld bytes)\n", (double)nbyte / seconds * 1e-6,
           (int)rounds, (long long)nbyte);
  return status;
}

int main(int argc, char **argv) {
  const tr_status status = run(argc, argv);
  if (status < 0) fprintf(stderr, "bench_tcp: %s\n", tr_status_text());
  return tr_status_exit_code(status);
}
