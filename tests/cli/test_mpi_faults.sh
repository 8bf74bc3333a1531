#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 300
# The conformance suite under mpirun (Open MPI and MPICH) with as many pretended hosts as there can be; and ranks started by
# others that die or hang: the job ends with one sentence that names the rank.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/mpi.sh"
run=("${tiny[@]}" run.deadline=20s)

torch 2 env TRIREME_FAULT=rank=1,op=F,step=3,action=kill "$TRIREME" train "${run[@]}" train.folder="$work/torch-kill"
if [ "$rc" != 6 ]; then fail "torch-kill: exit code $rc"; fi
if [ "$(grep -v '^\[launcher\] ' "$work/err")" != "$(grep -E '^trireme: rank 1 \(pid [0-9]+\) was killed or has ended while in F of step 3' "$work/err")" ]; then
  fail "torch-kill: $(cat "$work/err")"
fi
torch 2 env TRIREME_FAULT=rank=0,op=F,step=3,action=kill "$TRIREME" train "${run[@]}" train.folder="$work/torch-kill-0"
if ! grep -Eq '^trireme: rank 0 \(pid [0-9]+\) was killed or has ended while in F of step 3' "$work/err.1"; then fail "torch-kill-0: $(cat "$work/err")"; fi

train "${run[@]}" train.folder="$work/forked-3" -n 3
expect "forked 3" 0
pipe=(parallel.pp=2 model.layers=4 batch.micro=1) # dp=4: two ranks of a host have one copy of a stage, two have another
train "${run[@]}" "${pipe[@]}" train.folder="$work/forked-8" -n 8
expect "forked 8" 0
# ---- a start that hangs, and an MPI that is not there
if [ -z "$(why_no_mpi openmpi)" ]; then
  export TRIREME_PER_HOST=1
  # shellcheck disable=SC2016 # the rank's shell expands it
  mpi openmpi 2 bash -c 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then sleep 60; else exec "$@"; fi' _ \
    "$TRIREME" train "${run[@]}" run.deadline=0.2s train.folder="$work/no-start"
  if [ "$rc" != 7 ] || ! grep -Eq '^trireme: rank 0 \(pid [0-9]+\): MPI_Init_thread \(.*trireme-openmpi.so\) did not return within 2 s' "$work/err"; then
    fail "a start that hangs: exit code $rc: $(said)"
  fi
  mpi openmpi 2 env TRIREME_MPI="$work/none.so" "$TRIREME" train "${run[@]}" train.folder="$work/no-mpi"
  if [ "$rc" != 3 ] || ! grep -q 'trireme: cannot load MPI: .*none.so' "$work/err"; then fail "no MPI: exit code $rc: $(said)"; fi
  unset TRIREME_PER_HOST
fi

for name in openmpi mpich; do
  why=$(why_no_mpi "$name")
  if [ -n "$why" ]; then
    echo "$name is not tested: $why"
    continue
  fi
  for each in 1 2; do
    export TRIREME_PER_HOST=$each
    conforms "$name" 3
    TRIREME_COMM_DEBUG=1 conforms "$name" 3
  done
  differ "$name" 2 'rank 2 called all-reduce(100 f32, max), rank 0 called all-reduce(100 f32, sum)'
  differ "$name" 4 'rank 2 called reduce-scatter-v(3001 f32, sum), rank 0 called reduce-scatter-v(3000 f32, sum)'
  differ "$name" 5 'rank 2 called all-gather-v(3001 f32), rank 0 called all-gather-v(3000 f32)'
  differ "$name" 6 'rank 2 called reduce(100 f32, sum, root 1), rank 0 called reduce(100 f32, sum, root 0)'
  differ "$name" 7 'rank 2 called reduce-scatter(500 f32, sum), rank 0 called reduce-scatter(501 f32, sum)'
  differ "$name" 8 'rank 2 called all-gather(1000 f32), rank 0 called all-gather(999 f32)'
  differ "$name" 9 'rank 2 called all-to-all(100 i32), rank 0 called all-to-all(100 f32)'
  differ "$name" 10 'rank 2 called gather(100 f32, root 0), rank 0 called gather(100 f32, root 1)'
  differ "$name" 11 'rank 2 called scatter(7 f32, root 0), rank 0 called scatter(8 f32, root 0)'
  differ "$name" 12 'rank 2 called all-to-all-v(i32), rank 0 called all-to-all-v(f32)'
  mpi "$name" 3 "$TRIREME" train "${run[@]}" train.folder="$work/$name-2-each"
  if [ "$rc" != 0 ]; then fail "$name-2-each: exit code $rc: $(said)"; fi
  same_run "$name-2-each" "$work/$name-2-each" "$work/forked-3"
  mpi "$name" 8 "$TRIREME" train "${run[@]}" "${pipe[@]}" train.folder="$work/$name-8"
  if [ "$rc" != 0 ]; then fail "$name-8: exit code $rc: $(said)"; fi
  same_run "$name-8" "$work/$name-8" "$work/forked-8"
  # Rank 2 is alone on its pretended host, so what it last told of itself may be old.
  mpi "$name" 3 env TRIREME_FAULT=rank=2,op=F,step=3,action=stop "$TRIREME" train "${run[@]}" run.deadline=4s train.folder="$work/$name-stop"
  if [ "$rc" = 0 ] || ! grep -Eq 'rank 2 \(pid [0-9]+ on .*#2\) made no progress for [0-9.]+ s' "$work/err"; then fail "$name-stop: $rc: $(said)"; fi
  unset TRIREME_PER_HOST
  mpi "$name" 2 env TRIREME_FAULT=rank=1,op=F,step=3,action=stop "$TRIREME" train "${run[@]}" run.deadline=4s train.folder="$work/$name-stop-1"
  if [ "$rc" = 0 ] || ! grep -Eq 'rank 1 \(pid [0-9]+\) made no progress for [0-9.]+ s: it was in F of step 3.*; rank 0 waits for it in' "$work/err"; then fail "$name-stop-1: $rc: $(said)"; fi
  mpi "$name" 2 env TRIREME_FAULT=rank=1,op=F,step=3,action=kill "$TRIREME" train "${run[@]}" train.folder="$work/$name-kill"
  if [ "$rc" = 0 ]; then fail "$name-kill: exit code 0: $(said)"; fi
  # MPICH's mpirun kills the others at once, before they can speak.
  if [ "$name" = openmpi ] && ! grep -Eq 'rank 1 \(pid [0-9]+\) was killed or has ended while in F of step 3' "$work/err"; then fail "$name-kill: $(said)"; fi
  wait_until nobody_left || fail "$name: processes left: $(pgrep -af "$work")"

  # ---- a stop signal to a rank of another host stops the run after its step, saved
  TRIREME_PER_HOST=2 "mpirun.$name" -n 3 "$TRIREME" train "${run[@]}" train.steps=1000000 train.eval_every=0 lr.kind=constant \
    train.folder="$work/$name-term" >"$work/out" 2>"$work/err" </dev/null &
  starter=$!
  wait_until logged 5 "$work/$name-term" || fail "$name-term: no steps: $(said)"
  for pid in $(processes "$work/$name-term"); do
    if tr '\0' '\n' <"/proc/$pid/environ" | grep -qE '^(OMPI_COMM_WORLD_RANK|PMI_RANK)=2$'; then kill -s TERM "$pid"; fi
  done
  wait "$starter"
  rc=$?
  if [ "$rc" != 130 ] || ! grep -q '^stopped as asked after step [0-9]*, saved' "$work/out"; then fail "$name-term: exit code $rc: $(said)"; fi
done
finish
