#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 30
# The wall clock, which people and programs set back and forth, only becomes text: what waits or measures never sees it.
#
# It is read in two files. Waits of the system that end by it (a condition's without a monotonic clock, a semaphore's, a
# mutex's) are not used, and a condition that is waited for with a deadline is made in a file that names CLOCK_MONOTONIC.
. "$(dirname "$0")/lib.sh"
readers='^src/(base/clock|train/events)\.c$'

check() {
  (
    cd "$1"
    c_files . include src | grep -vE "$readers" | xargs -r grep -HnE 'CLOCK_REALTIME|TIME_UTC|\<(time|gettimeofday|timespec_get|ftime)\(' |
      sed 's/$/ <- the wall clock/' || true
    c_files . include src | xargs -r grep -HnE '\<(sem_timedwait|pthread_mutex_timedlock|cnd_timedwait|mtx_timedlock)\(' |
      sed 's/$/ <- waits by the wall clock/' || true
    c_files . include src | xargs -r grep -lE '\<pthread_cond_timedwait\(' | while read -r file; do
      if ! grep -q 'condattr_setclock.*CLOCK_MONOTONIC' "$file"; then echo "$file:1: waits by the wall clock"; fi
    done || true
  )
}

bad src/base/wall.c <<<'  int64_t now = time(NULL);'
bad src/comm/real.c <<<'  clock_gettime(CLOCK_REALTIME, &now);'
bad src/comm/wait_for.c <<<'  sem_timedwait(&s, &until);'
bad src/data/crew.c <<<'  pthread_cond_timedwait(&c, &l, &until);'
bad src/base/clock.c <<<'  time_t now = time(NULL);'
bad src/run/fine.c <<<'  pthread_condattr_setclock(&a, CLOCK_MONOTONIC); pthread_cond_timedwait(&c, &l, &until); run_time (x); clock_time(1);'
tree_main 4
