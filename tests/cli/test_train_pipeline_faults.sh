#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 300
# A rank of a pipeline that dies, hangs or fails in any of its passes, messages or saves ends the job soon, with one sentence, and
# the same command goes on; a loss or gradient that is not a number stops it naming a tensor, on whichever stage that is.
. "$(dirname "$0")/lib.sh"
shared_before=$(shared_files)
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:handle_segv=0

# fault NAME FAULT CODE REGEX ARGUMENTS
fault() {
  local name=$1 text=$2 code=$3 regex=$4 folder=$work/run-$1 begin=$SECONDS deadline=60s
  shift 4
  if [[ $text == *stop ]]; then deadline=2s; fi # only a hang takes it; where nothing hangs, a busy machine takes what it takes
  local run=("${tiny[@]}" model.layers=4 batch.micro=1 train.folder="$folder" checkpoint.every=2 checkpoint.background=false "$@")
  TRIREME_FAULT=$text train "${run[@]}" run.deadline=$deadline
  expect "$name" "$code" "$regex"
  if ((SECONDS - begin > 45)); then fail "$name: took $((SECONDS - begin)) s"; fi
  wait_until nobody_left || fail "$name: processes left: $(pgrep -af "$work")"
  if [ "$(shared_files)" -gt "$shared_before" ]; then fail "$name: something is left in /dev/shm"; fi
  train "${run[@]}" run.deadline=60s
  expect "$name, again" 0
  grep -q "^resuming from .*: [24] of 8 steps done" "$work/out" || fail "$name: did not resume: $(said)"
  if [ "$(basename "$(newest "$folder")")" != step-00000008 ]; then fail "$name: not at step 8: $(newest "$folder")"; fi
}

for rank in 0 1 2; do
  who="rank $rank \\(pid [0-9]+\\)"
  for op in F B; do
    fault kill-$op-$rank "rank=$rank,op=$op,step=4,count=3,action=kill" 6 "$who was killed by signal 9 \\(Killed\\) while in $op of step 4" -n 3 parallel.pp=3
    fault stop-$op-$rank "rank=$rank,op=$op,step=4,count=3,action=stop" 7 "$who made no progress for [0-9.]+ s: it was in $op of step 4" -n 3 parallel.pp=3
  done
done
who='rank 1 \(pid [0-9]+\)'
for op in I W; do
  fault kill-$op "rank=1,op=$op,step=4,action=kill" 6 "$who was killed by signal 9 \\(Killed\\) while in $op of step 4" -n 2 parallel.pp=2 parallel.schedule=zb_h1
done
for op in SEND RECV; do
  fault kill-$op "rank=1,op=$op,step=4,count=3,action=kill" 6 "$who was killed by signal 9 \\(Killed\\) while in [A-Z]+ of step 4" -n 4 parallel.pp=2
  fault stop-$op "rank=1,op=$op,step=4,count=3,action=stop" 7 "$who made no progress for [0-9.]+ s" -n 2 parallel.pp=2
done
for op in NORM UPDATE; do
  fault kill-$op "rank=1,op=$op,step=4,action=kill" 6 "$who was killed by signal 9 \\(Killed\\) while in $op of step 4" -n 4 parallel.pp=2
done
fault kill-save 'rank=1,op=SAVE,step=4,action=kill' 6 "$who was killed by signal 9 \\(Killed\\) while in SAVE of step 4" -n 2 parallel.pp=2
fault stop-save 'rank=1,op=SAVE,step=4,action=stop' 7 'saving step 4: writer 1 of 2 did not write its part within 6 s' -n 2 parallel.pp=2
fault error 'rank=1,op=F,step=3,action=error' 1 'rank 1: injected failure in F of step 3' -n 2 parallel.pp=2 parallel.schedule=dualpipe
fault dualpipe 'rank=0,op=B,step=4,action=stop' 7 'rank 0 \(pid [0-9]+\) made no progress' -n 2 parallel.pp=2 parallel.schedule=dualpipe

# A rank that sleeps changes times, not results.
for rank in 0 1; do
  train "${tiny[@]}" batch.micro=1 -n 2 parallel.pp=2 train.folder="$work/awake-$rank" train.steps=3
  TRIREME_FAULT="rank=$rank,op=F,step=2,count=2,action=sleep" train "${tiny[@]}" batch.micro=1 -n 2 parallel.pp=2 train.folder="$work/asleep-$rank" train.steps=3
  expect "sleep on $rank" 0
  if [ "$(weights_hash "$work/awake-$rank")" != "$(weights_hash "$work/asleep-$rank")" ]; then fail "sleep on $rank: other weights"; fi
done

# ---- not a number
wild=("${tiny[@]}" model.layers=4 batch.micro=1 optim.kind=sgd lr.lr=1000 lr.kind=constant optim.clip=0 train.steps=30)
for schedule in 1f1b zb_h1 dualpipe; do
  train "${wild[@]}" -n 2 parallel.pp=2 parallel.schedule=$schedule train.folder="$work/stop-$schedule" checkpoint.every=1
  expect "not a number, $schedule" 8 'step [0-9]+: loss (nan|inf|[0-9.e+]+), gradient norm .*(transformer\.[a-z0-9_.]+|only the loss is not finite).*train.nan=skip'
  train "${wild[@]}" -n 2 parallel.pp=2 parallel.schedule=$schedule train.folder="$work/skip-$schedule" train.nan=skip
  expect "skip, $schedule" 0
  grep -q '| skipped$' "$work/out" || fail "skip, $schedule: skipped steps are not said"
done
finish
