#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 600
# A job that saves after every step is killed at 40 moments (TRIREME_KILLS: another number). Each time the folder holds a checkpoint that verifies (or none
# before the first save), and the run that goes on from the last one ends with the weights of an undisturbed run. So
# does one whose newest checkpoint was damaged afterwards.
. "$(dirname "$0")/lib.sh"
run=("${tiny[@]}" -n 2 lr.kind=constant train.eval_samples=1 train.eval_every=0 checkpoint.every=1 checkpoint.keep=3)
folder=$work/run
seed=20 kills=${TRIREME_KILLS:-40}

moment() { # the next delay in seconds: 20 to 500 ms after the start
  seed=$(((seed * 1103515245 + 12345) % 2147483648))
  printf '0.%03d' "$((20 + seed / 65536 % 480))"
}

kill_job() { # all of it, or the launcher alone
  local pid
  if (($1 % 2)); then
    for pid in $(processes "$folder"); do kill -9 "$pid" 2>/dev/null; done
  else
    kill -9 "$launcher"
  fi
  wait "$launcher" 2>/dev/null
  wait_until nobody_left || fail "processes are left: $(pgrep -af "$work")"
}

steps_before=0
for ((i = 0; i < kills; i++)); do
  "$TRIREME" train "${run[@]}" train.folder="$folder" train.steps=1000000 >"$work/out" 2>"$work/err" &
  launcher=$!
  sleep "$(moment)"
  if ((i == kills / 2)); then wait_until logged "$((steps_before + 3))" "$folder"; fi # however slow the machine is: some steps
  kill_job "$i"
  if [ -s "$work/err" ]; then fail "kill $i: $(cat "$work/err")"; fi
  if [ ! -e "$folder/checkpoints/latest" ]; then continue; fi
  "$TRIREME" inspect "$(newest "$folder")" --verify >"$work/out" 2>"$work/err" || fail "kill $i: $(newest "$folder") does not verify: $(said)"
  step=$(newest "$folder" | sed 's/.*step-0*//')
  if ((step < steps_before)); then fail "kill $i: went back from step $steps_before to $step"; fi
  steps_before=$step
done
if ((steps_before < 3)); then fail "only $steps_before steps in all: nothing was proved"; fi
echo "$kills kills, $steps_before steps saved"

# A killed process that init has not reaped yet counts as running, and nobody takes away what may be its own.
owner_there() { kill -0 "${1##*-}" 2>/dev/null; }
owners_gone() {
  local left
  for left in "$folder"/checkpoints/.tmp-*; do
    if [ -e "$left" ] && owner_there "$left"; then return 1; fi
  done
}
wait_until owners_gone

last=$((steps_before + 3))
train "${run[@]}" train.folder="$folder" train.steps="$last"
expect "last resume" 0
train "${run[@]}" train.folder="$work/undisturbed" train.steps="$last" checkpoint.every=0
expect "undisturbed" 0
if [ "$(weights_hash "$folder")" != "$(weights_hash "$work/undisturbed")" ]; then fail "other weights than an undisturbed run"; fi
if [ "$(final_loss "$folder")" != "$(final_loss "$work/undisturbed")" ]; then fail "another final loss than an undisturbed run"; fi
used=$("$TRIREME" inspect "$folder" --ledger | sed -n 's/^ledger *\([0-9]*\) samples, each used once$/\1/p')
if [ "$used" != "$((last * 12))" ]; then fail "$last steps of 12 samples, the ledger has $used"; fi
for left in "$folder"/checkpoints/.tmp-*; do
  if [ -e "$left" ] && ! owner_there "$left"; then fail "a killed save has left $left"; fi
done
if [ "$(find "$folder/checkpoints" -mindepth 1 -maxdepth 1 -name 'step-*' | wc -l)" != 3 ]; then fail "not 3 kept: $(ls "$folder/checkpoints")"; fi

# ---- the newest checkpoint is damaged: the one before it is taken, said so, and the damaged one is replaced
damaged=$(newest "$folder")/model.safetensors
printf 'x' | dd of="$damaged" bs=1 seek=5000 conv=notrunc status=none
train "${run[@]}" train.folder="$folder" train.steps="$last"
expect "after damage" 0
grep -q ": $((last - 1)) of $last steps done" "$work/out" || fail "did not fall back by one step: $(said)"
grep -q 'model.safetensors' "$work/err" || fail "does not say that model.safetensors is damaged: $(said)"
if [ "$(weights_hash "$folder")" != "$(weights_hash "$work/undisturbed")" ]; then fail "other weights after damage"; fi
"$TRIREME" inspect "$(newest "$folder")" --verify >"$work/out" 2>&1 || fail "the replaced checkpoint does not verify: $(said)"
finish
