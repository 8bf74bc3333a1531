#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 300
# Several hosts with throttled links (hosts.sh), Open MPI over TCP between them: the conformance suite passes, a training run
# has the bits of forked ranks, and a rank that dies on another host ends the job with a sentence that names it.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/mpi.sh"
hosts=$(dirname "$0")/hosts.sh
why=$("$hosts" why)
if [ -z "$why" ]; then why=$(why_no_mpi openmpi); fi
if [ -n "$why" ]; then
  echo "skipped: $why"
  exit 77
fi
export TRIREME_HOSTS_TAG=th$$

# on HOSTS EACH COMMAND: sets rc, $work/out and $work/err
on() {
  local count=$1 each=$2
  shift 2
  timeout -k 5 150 "$hosts" "$count" 200mbit "$each" "$@" >"$work/out" 2>"$work/err" </dev/null
  rc=$?
}

run=("${tiny[@]}" run.deadline=10s)
for layout in 2x2 3x1; do
  count=${layout%x*} each=${layout#*x} n=$((${layout%x*} * ${layout#*x}))
  train "${run[@]}" train.folder="$work/forked-$n" -n "$n"
  expect "forked $n" 0
  on "$count" "$each" "$TRIREME" train "${run[@]}" train.folder="$work/run-$layout"
  if [ "$rc" != 0 ]; then fail "$layout: exit code $rc: $(said)"; fi
  same_run "$layout" "$work/run-$layout" "$work/forked-$n"
  on "$count" "$each" "$TRIREME_BUILD/test_launch_external"
  if [ "$rc" != 0 ] || [ "$(grep -c 'a rank conforms' "$work/out")" != "$n" ]; then
    fail "$layout: the conformance suite: exit code $rc: $(said)"
  fi
done

on 2 2 env TRIREME_FAULT=rank=3,op=B,step=3,action=kill "$TRIREME" train "${run[@]}" train.folder="$work/kill"
if [ "$rc" = 0 ] || ! grep -Eq 'rank 3 \(pid [0-9]+ on host2\) was killed or has ended while in B of step 3' "$work/err"; then
  fail "kill: exit code $rc: $(said)"
fi
on 2 2 env TRIREME_FAULT=rank=3,op=B,step=3,action=stop "$TRIREME" train "${run[@]}" run.deadline=2s train.folder="$work/stop"
if [ "$rc" = 0 ] || ! grep -Eq 'rank 3 \(pid [0-9]+ on host2\) made no progress for [0-9.]+ s: it was in B of step 3.*; rank [0-2] waits for it' "$work/err"; then
  fail "stop: exit code $rc: $(said)"
fi
wait_until nobody_left || fail "processes left: $(pgrep -af "$work")"
if ip netns list | grep "^th$$-"; then fail "namespaces are left"; fi
finish
