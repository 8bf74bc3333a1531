#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 240
# Ranks started by mpirun (Open MPI and MPICH) and with torchrun's variables train what forked ranks train: same losses and
# weights, on one host and, as TRIREME_PER_HOST pretends, on several. A rank that dies ends the job with one sentence.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/mpi.sh"
run=("${tiny[@]}" run.deadline=5s)
for n in 2 3; do
  train "${run[@]}" train.folder="$work/forked-$n" -n "$n"
  expect "forked $n" 0
done

# check_run NAME RANKS: the last command trained this in its folder
check_run() {
  if [ "$rc" != 0 ]; then fail "$1: exit code $rc: $(said)"; fi
  if [ "$(grep -c '^plan ' "$work/out")" != 1 ]; then fail "$1: not one plan: $(said)"; fi
  same_run "$1" "$work/$1" "$work/forked-$2"
}

# ---- without any MPI: all ranks share memory
torch 2 "$TRIREME" train "${run[@]}" train.folder="$work/torch-2"
check_run torch-2 2
torch 2 "$TRIREME" train "${run[@]}" train.folder="$work/other-n" -n 3
if [ "$rc" != 3 ] || ! grep -q -- '-n 3, but torchrun has started 2 ranks; leave -n out, or give -n 2' "$work/err.0"; then
  fail "another -n: exit code $rc: $(said)"
fi
torch 2 env TRIREME_FAULT=rank=1,op=F,step=3,action=kill "$TRIREME" train "${run[@]}" train.folder="$work/torch-kill"
if [ "$rc" != 6 ]; then fail "torch-kill: exit code $rc"; fi
if [ "$(cat "$work/err")" != "$(grep -E '^trireme: rank 1 \(pid [0-9]+\) was killed or has ended while in F of step 3' "$work/err")" ]; then
  fail "torch-kill: $(cat "$work/err")"
fi
torch 2 env TRIREME_PER_HOST=1 "$TRIREME" train "${run[@]}" train.folder="$work/torch-hosts"
if [ "$rc" != 3 ] || ! grep -q 'torchrun started 2 ranks on several hosts without an MPI between them' "$work/err"; then
  fail "torchrun over hosts: exit code $rc: $(cat "$work/err")"
fi

tested=0
for name in openmpi mpich; do
  why=$(why_no_mpi "$name")
  if [ -n "$why" ]; then
    echo "$name is not tested: $why"
    continue
  fi
  tested=$((tested + 1))
  mpi "$name" 2 "$TRIREME" train "${run[@]}" train.folder="$work/$name-2"
  check_run "$name-2" 2
  export TRIREME_PER_HOST=1
  mpi "$name" 3 "$TRIREME" train "${run[@]}" train.folder="$work/$name-1-each"
  check_run "$name-1-each" 3
  grep -q '^note    ranks are on several hosts' "$work/out" || fail "$name: the plan does not say that ranks are on several hosts"
  export TRIREME_PER_HOST=2
  mpi "$name" 3 "$TRIREME" train "${run[@]}" train.folder="$work/$name-2-each"
  check_run "$name-2-each" 3
  mpi "$name" 3 "$TRIREME_BUILD/test_launch_external"
  if [ "$rc" != 0 ] || [ "$(grep -c 'a rank conforms' "$work/out")" != 3 ]; then fail "$name: the conformance suite: $rc: $(said)"; fi
  # rank 2 is alone on its pretended host: news of it come over MPI
  mpi "$name" 3 env TRIREME_FAULT=rank=2,op=F,step=3,action=error "$TRIREME" train "${run[@]}" train.folder="$work/$name-error"
  if [ "$rc" != 1 ] || ! grep -q 'trireme: rank 2: injected failure in F of step 3' "$work/err"; then fail "$name-error: $rc: $(said)"; fi
  mpi "$name" 3 env TRIREME_FAULT=rank=2,op=F,step=3,action=stop "$TRIREME" train "${run[@]}" run.deadline=2s train.folder="$work/$name-stop"
  if [ "$rc" = 0 ] || ! grep -Eq 'rank 2 \(pid [0-9]+ on .*#2\) made no progress for [0-9.]+ s: it was in F of step 3' "$work/err"; then fail "$name-stop: $rc: $(said)"; fi
  unset TRIREME_PER_HOST
  mpi "$name" 2 env TRIREME_FAULT=rank=1,op=F,step=3,action=kill "$TRIREME" train "${run[@]}" train.folder="$work/$name-kill"
  if [ "$rc" = 0 ] || ! grep -Eq 'rank 1 \(pid [0-9]+\) was killed or has ended while in F of step 3' "$work/err"; then fail "$name-kill: $rc: $(said)"; fi
  wait_until nobody_left || fail "$name: processes left: $(pgrep -af "$work")"
done
if [ "$tested" = 0 ]; then echo "only torchrun's variables were tested"; fi
finish
