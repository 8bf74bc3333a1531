#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 300
# Exchanges between two hosts beside the other half of an overlapped pair (tests/run/exchange_overlap.c): work is done while they are
# on their way, as the order of beginnings and ends says, which no clock has a say in; and a step becomes shorter by it, in one of
# three attempts, as a busy machine delays whatever it likes. How much of them is hidden, bench/hosts.sh measures.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/mpi.sh"
needs_hosts why-delay

value() { sed -n "s/^$1 //p" "$work/out"; }

# holds CONDITION NAME...: with the values of names as v[1], v[2], ...
holds() {
  local condition=$1 list=''
  shift
  for name in "$@"; do list="$list $(value "$name")"; done
  awk -v list="$list" "BEGIN { n = split(list, v, \" \"); exit !(n == $# && ($condition)) }"
}

for ((attempt = 0; attempt < 3; attempt++)); do
  timeout -k 5 250 "$hosts" 2 100mbit+500 1 "$TRIREME_BUILD/exchange_overlap" 12.5e6 rest 1 >"$work/out" 2>"$work/err" </dev/null ||
    fail "exit code $?: $(said)"
  cat "$work/out"
  holds 'v[1] > 0 && v[2] >= v[1] / 2' beside.exchanges beside.covered ||
    fail "$(value beside.covered) of $(value beside.exchanges) exchanges have work beside them"
  holds 'v[1] == 0' apart.exchanges || fail "passes that follow each other have exchanges of their own"
  if holds 'v[1] < v[2]' beside.step apart.step || [ "$failures" -gt 0 ]; then finish; fi
done
fail "a step with exchanges beside work takes no less time"
finish
