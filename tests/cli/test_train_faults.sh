#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 240
# A rank that dies, hangs or fails at any point of a step ends the job: soon, with one sentence that says who, where and
# why, with nothing left behind; the same command then goes on from the last checkpoint. Signals to the launcher stop a run
# after its step, a second run in its folder is refused, and what is left of a job whose launcher was killed goes away.
. "$(dirname "$0")/lib.sh"
shared_before=$(shared_files)
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:handle_segv=0 # in a sanitized build a fault is a signal here too

check_clean() { # NAME
  wait_until nobody_left || fail "$1: processes left: $(pgrep -af "$work")"
  if [ "$(shared_files)" -gt "$shared_before" ]; then fail "$1: something is left in /dev/shm"; fi
}

# fault NAME FAULT CODE REGEX: three ranks, then the same command without the fault. With background=true a save may still
# be on its way when the fault strikes, and then counts as not made.
background=false
more=()
fault() {
  local name=$1 folder=$work/run-$1 begin=$SECONDS deadline=60s
  if [[ $2 == *stop ]]; then deadline=2s; fi # only a hang takes it; where nothing hangs, a busy machine takes what it takes
  TRIREME_FAULT=$2 train "${tiny[@]}" "${more[@]}" -n 3 train.folder="$folder" checkpoint.every=2 checkpoint.background="$background" run.deadline=$deadline
  expect "$name" "$3" "$4"
  # A hang is found after the deadline, three times that in a save, and given 5 s to end; much more for a busy machine.
  if ((SECONDS - begin > 45)); then fail "$name: took $((SECONDS - begin)) s"; fi
  check_clean "$name"
  train "${tiny[@]}" -n 3 train.folder="$folder" checkpoint.every=2
  expect "$name, again" 0
  grep -q "^resuming from .*: [24] of 8 steps done" "$work/out" || [ "$background" = true ] || fail "$name: did not resume: $(said)"
  if [ "$(basename "$(newest "$folder")")" != step-00000008 ]; then fail "$name: not at step 8: $(newest "$folder")"; fi
}

who='rank 1 \(pid [0-9]+\)'
for op in F B UPDATE NORM; do
  fault "kill-$op" "rank=1,op=$op,step=4,action=kill" 6 "$who was killed by signal 9 \(Killed\) while in $op of step 4"
done
for point in start reduce ready "done"; do
  fault "kill-reduce-$point" "rank=1,op=reduce_scatter_v.$point,step=4,action=kill" 6 \
    "$who was killed by signal 9 \(Killed\) while in [A-Z]+ of step 4"
done
more=(parallel.zero=0) # the other way to sum
fault kill-allreduce "rank=1,op=allreduce.reduce,step=4,action=kill" 6 \
  "$who was killed by signal 9 \(Killed\) while in [A-Z]+ of step 4"
fault stop-allreduce "rank=1,op=allreduce.reduce,step=4,action=stop" 7 "$who made no progress for .*all-reduce"
more=()
fault kill-save "rank=0,op=SAVE,step=4,action=kill" 6 'rank 0 \(pid [0-9]+\) was killed by signal 9 \(Killed\) while in SAVE of step 4'
fault error-save "rank=0,op=SAVE,step=4,action=error" 1 'rank 0: injected failure in SAVE of step 4'
fault segv "rank=1,op=B,step=3,action=segv" 6 "$who was killed by signal 11 \(.*\) while in B of step 3"
fault exit "rank=1,op=F,step=3,action=exit" 6 "$who ended with exit status 3 while in F of step 3"
fault error "rank=1,op=F,step=3,action=error" 1 'rank 1: injected failure in F of step 3'
fault stop-F "rank=1,op=F,step=4,action=stop" 7 "$who made no progress for [0-9.]+ s: it was in F of step 4.*rank [02] waits for it in (reduce-scatter-v|all-gather)"
fault stop-reduce "rank=1,op=reduce_scatter_v.reduce,step=4,action=stop" 7 "$who made no progress for .*(reduce-scatter-v|all-gather)"
fault stop-save "rank=0,op=SAVE,step=4,action=stop" 7 'saving step 4: writer 0 of 3 did not [a-z ]+ within 6 s'

background=true
fault kill-writing "rank=0,op=SAVE,step=4,action=kill" 6 'rank 0 \(pid [0-9]+\) was killed by signal 9 \(Killed\) while in '
fault kill-writing-1 "rank=1,op=SAVE,step=4,action=kill" 6 "$who was killed by signal 9 \(Killed\) while in "
fault error-writing "rank=1,op=SAVE,step=4,action=error" 1 'rank 1: injected failure in SAVE of step 4'
fault stop-writing "rank=1,op=SAVE,step=4,action=stop" 7 'writer 1 of 3 did not write its part|rank 1'
fault kill-meanwhile "rank=2,op=B,step=6,action=kill" 6 'rank 2 \(pid [0-9]+\) was killed by signal 9 \(Killed\) while in B of step 6'

# ---- one rank alone has nobody that waits for it: the launcher sees it
TRIREME_FAULT="rank=0,op=F,step=4,action=stop" train "${tiny[@]}" train.folder="$work/alone" run.deadline=1s
expect "stop of the only rank" 7 'rank 0 \(pid [0-9]+\) was in F of step 4, micro-batch [0-9]+; a run.deadline above [0-9.]+ s waits longer'
check_clean "stop of the only rank"

# ---- signals to the launcher, and a second run in the same folder
start() { # FOLDER: a run that goes on for long; sets launcher
  "$TRIREME" train "${tiny[@]}" -n 3 train.folder="$1" train.steps=1000000 train.eval_every=0 lr.kind=constant >"$work/out" 2>"$work/err" &
  launcher=$!
  wait_until logged 5 "$1" || fail "no steps: $(said)"
}

for signal in INT TERM; do
  folder=$work/signal-$signal
  start "$folder"
  kill -s "$signal" "$launcher"
  wait "$launcher"
  rc=$?
  expect "SIG$signal" 130
  step=$(sed -n 's/^stopped as asked after step \([0-9]*\), saved;.*/\1/p' "$work/out")
  if [ -z "$step" ]; then fail "SIG$signal: does not say where it stopped: $(said)"; fi
  if [ "$(basename "$(newest "$folder")")" != "step-$(printf '%08d' "$step")" ]; then fail "SIG$signal: stopped at $step, saved $(newest "$folder")"; fi
  check_clean "SIG$signal"
  train "${tiny[@]}" -n 3 train.folder="$folder" train.steps="$((step + 2))" lr.kind=constant
  expect "SIG$signal, again" 0
  if [ "$(losses "$folder" | tail -n 1 | cut -d' ' -f1)" != "$((step + 2))" ]; then fail "SIG$signal: did not go on"; fi
done

# A rank that is stopped never ends its step, so only the second signal can end the job this early.
folder=$work/twice
TRIREME_FAULT="rank=1,op=F,step=8,action=stop" start "$folder"
wait_until logged 7 "$folder" || fail "twice: no seven steps"
kill -s INT "$launcher"
sleep 0.5
kill -0 "$launcher" || fail "twice: one signal did not wait for the step"
kill -s INT "$launcher"
begin=$SECONDS
wait "$launcher"
rc=$?
expect "SIGINT twice" 6 'interrupted twice'
if ((SECONDS - begin > 30)); then fail "SIGINT twice: took $((SECONDS - begin)) s"; fi # the deadline is 60 s
check_clean "SIGINT twice"

folder=$work/orphans
start "$folder"
mv "$work/err" "$work/err.first"
train "${tiny[@]}" train.folder="$folder"
expect "a second run in the folder" 3 'orphans is in use by another run'
if [ -s "$work/err.first" ] || ! kill -0 "$launcher"; then fail "a second run disturbed the first: $(cat "$work/err.first")"; fi
if [ "$(processes "$folder" | wc -l)" != 4 ]; then fail "expected a launcher and three ranks: $(pgrep -af "$folder")"; fi
kill -9 "$launcher"
wait "$launcher" 2>/dev/null
check_clean "kill -9 of the launcher"
train "${tiny[@]}" train.folder="$folder"
expect "after kill -9 of the launcher" 0

# A reader that leaves does not end the training.
timeout 60 "$TRIREME" train "${tiny[@]}" train.folder="$work/pipe" train.steps=200 2>"$work/err" | head -n 2 >"$work/head"
if [ "$(basename "$(newest "$work/pipe")")" != step-00000200 ]; then fail "a closed pipe ended the run"; fi
finish
