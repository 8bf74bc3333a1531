#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 300
# alone: it is about what two ranks and a relay do at the same time
# Exchanges between two hosts beside the other half of an overlapped pair (tests/run/exchange_overlap.c): where work takes longer
# than they do, at least four fifths of the time that they take when passes follow each other is gone. Both are measured over a link
# that is far slower than the machine; no time is set against the machine's speed.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/mpi.sh"
needs_hosts why-delay

timeout -k 5 250 "$hosts" 2 100mbit+500 1 "$TRIREME_BUILD/exchange_overlap" 12.5e6 rest >"$work/out" 2>"$work/err" </dev/null ||
  fail "exit code $?: $(said)"
cat "$work/out"

value() { sed -n "s/^$1 //p" "$work/out"; }

# holds CONDITION NAME...: with the values of names as v[1], v[2], ...
holds() {
  local condition=$1 list=''
  shift
  for name in "$@"; do list="$list $(value "$name")"; done
  awk -v list="$list" "BEGIN { n = split(list, v, \" \"); exit !(n == $# && ($condition)) }"
}

holds 'v[1] > 1.2 * v[2]' apart.pairs apart.copies.pairs ||
  fail "passes that follow each other do not wait for exchanges, so there is nothing to hide"
holds 'v[1] <= 0.2' exposed.pairs || fail "$(value exposed.pairs) of the exchanges' time is left beside work, more than 0.2"
holds 'v[1] < v[2]' beside.step apart.step || fail "a step with exchanges beside work takes no less time"
finish
