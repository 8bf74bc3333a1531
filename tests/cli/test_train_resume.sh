#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 240
# A run that was stopped or killed and goes on ends exactly like one that was not disturbed: the same bits in the weights
# and in every logged loss. On another number of ranks it ends within the rounding of sums. What must not change is refused.
. "$(dirname "$0")/lib.sh"

same_run() { # NAME FOLDER FOLDER
  if [ "$(weights_hash "$2")" != "$(weights_hash "$3")" ]; then fail "$1: other weights"; fi
  diff <(losses "$2") <(losses "$3") >/dev/null || fail "$1: other losses: $(diff <(losses "$2") <(losses "$3") | head -n 4)"
  if [ "$(val_loss "$2")" != "$(val_loss "$3")" ]; then fail "$1: other val_loss: $(val_loss "$2") $(val_loss "$3")"; fi
}

# stop_and_resume NAME ARGUMENTS: 30 steps at once; killed in step 18 after a checkpoint at 10; stopped by SIGTERM after step 18.
stop_and_resume() {
  local name=$1 whole=$work/$1-whole killed=$work/$1-killed stopped=$work/$1-stopped
  shift
  local run=("${tiny[@]}" train.steps=30 train.eval_every=7 "$@")
  train "${run[@]}" train.folder="$whole"
  expect "$name whole" 0

  TRIREME_FAULT="rank=0,op=F,step=18,action=kill" train "${run[@]}" train.folder="$killed" checkpoint.every=10 checkpoint.background=false run.launch=processes
  expect "$name killed" 6
  train "${run[@]}" train.folder="$killed" checkpoint.every=10
  expect "$name killed, again" 0
  grep -q ': 10 of 30 steps done' "$work/out" || fail "$name: not resumed from step 10: $(said)"
  same_run "$name killed" "$whole" "$killed"

  # Rank 0 sleeps before it ends its 18th step; meanwhile the request to stop arrives.
  TRIREME_FAULT="rank=0,op=UPDATE,step=18,action=sleep" "$TRIREME" train "${run[@]}" train.folder="$stopped" >"$work/out" 2>"$work/err" &
  local launcher=$!
  wait_until logged 17 "$stopped" || fail "$name: no 17 steps: $(said)"
  kill -s TERM "$launcher"
  wait "$launcher"
  rc=$?
  expect "$name stopped" 130
  grep -q '^stopped as asked after step 18, saved; the same trireme train command goes on' "$work/out" || fail "$name: not stopped after step 18: $(said)"
  cp "$stopped/metrics.jsonl" "$work/before"
  train "${run[@]}" train.folder="$stopped"
  expect "$name stopped, again" 0
  same_run "$name stopped" "$whole" "$stopped"
  cmp -s -n "$(wc -c <"$work/before")" "$work/before" "$stopped/metrics.jsonl" || fail "$name: metrics were not appended to"
  if [ "$(grep -c '"event":"resume","step":18' "$stopped/metrics.jsonl")" != 1 ]; then fail "$name: no resume event"; fi
}

stop_and_resume plain -n 1
stop_and_resume dropout -n 2 model.dropout=0.1 batch.micro=2
stop_and_resume bf16 -n 3 precision.compute=bf16 model.dropout=0.1
stop_and_resume sgd -n 2 optim.kind=sgd optim.momentum=0.9 optim.nesterov=true lr.lr=0.05
stop_and_resume epoch -n 2 data.sequence=32 batch.sequences=60 train.epochs=1.01 comm.grad_sync=every
stop_and_resume threads -n 2 run.launch=threads comm.bucket=1000 checkpoint.keep=1

# ---- other numbers of ranks: 10 steps on one, 10 on two, 10 on three
for type in f32 bf16; do
  moving=("${tiny[@]}" train.folder="$work/moving-$type" precision.compute="$type" model.dropout=0.1 lr.kind=constant optim.eps=1e-6)
  train "${moving[@]}" -n 1 train.steps=10
  expect "$type on 1" 0
  train "${moving[@]}" -n 2 train.steps=20
  expect "$type on 2" 0
  train "${moving[@]}" -n 3 train.steps=30
  expect "$type on 3" 0
  train "${moving[@]}" -n 1 train.folder="$work/still-$type" train.steps=30
  expect "$type on 1 alone" 0
done
a=$(final_loss "$work/moving-f32") b=$(final_loss "$work/still-f32")
within 1e-5 "$a" "$b" || fail "f32 on 1, 2, 3 ranks: loss $a, on one $b"
weights_within 1e-4 "$work/moving-f32" "$work/still-f32" || fail "f32 on 1, 2, 3 ranks: weights differ by more than 1e-4"
a=$(final_loss "$work/moving-bf16") b=$(final_loss "$work/still-bf16")
within 0.01 "$a" "$b" || fail "bf16 on 1, 2, 3 ranks: loss $a, on one $b"

# ---- other precision, both ways: the losses go on close to those of before
train "${tiny[@]}" -n 2 train.folder="$work/still-30" lr.kind=constant train.steps=30
expect "30 steps in f32" 0
for order in "f32 bf16" "bf16 f32"; do
  from=${order% *} to=${order#* } folder=$work/from-$from
  changing=("${tiny[@]}" -n 2 train.folder="$folder" lr.kind=constant)
  train "${changing[@]}" train.steps=20 precision.compute="$from"
  expect "$order, before" 0
  train "${changing[@]}" train.steps=30 precision.compute="$to"
  expect "$order, after" 0
  if [ "$(grep -c "^precision changes from $from to $to: " "$work/out")" != 1 ]; then fail "$order: does not say so once: $(said)"; fi
  within 0.02 "$(final_loss "$folder")" "$(final_loss "$work/still-30")" ||
    fail "$order: loss $(final_loss "$folder"), all in f32 $(final_loss "$work/still-30")"
done

# SGD at a learning rate of 0 keeps the f32 master weights, all that its optimizer.safetensors holds: to the bit, through f32
# and back.
keeping=("${tiny[@]}" -n 2 train.folder="$work/keeping" optim.kind=sgd lr.kind=constant)
train "${keeping[@]}" train.steps=5 lr.lr=0.1 precision.compute=bf16
cp "$(newest "$work/keeping")/optimizer.safetensors" "$work/master"
hash=$(weights_hash "$work/keeping")
train "${keeping[@]}" train.steps=6 lr.lr=0 precision.compute=f32
expect "bf16, then f32" 0
if [ -e "$(newest "$work/keeping")/optimizer.safetensors" ]; then fail "SGD in f32 has a state"; fi
train "${keeping[@]}" train.steps=7 lr.lr=0 precision.compute=bf16
expect "bf16 again" 0
cmp "$work/master" "$(newest "$work/keeping")/optimizer.safetensors" || fail "the master weights were not kept through f32"
if [ "$(weights_hash "$work/keeping")" != "$hash" ]; then fail "the bf16 weights were not kept through f32"; fi

# ---- refusals: every setting that differs, with both values, and nothing that does not; the folder stays as it was
run=("${tiny[@]}" -n 2 train.folder="$work/moving-f32" train.steps=40)
hash=$(weights_hash "$work/moving-f32")
cp "$work/moving-f32/config.yaml" "$work/config.before"
refused() { # NAME ARGUMENTS -- REGEX...: exactly these differences, in this order
  local name=$1 given=() wanted="^trireme: "
  shift
  while [ "$1" != -- ]; do given+=("$1") && shift; done
  shift
  wanted+=$(printf '%s; ' "$@")
  train "${run[@]}" "${given[@]}"
  expect "$name" 3 "${wanted}resume .*/step-00000030 with its settings, or use another train.folder$"
}
refused "other seed" train.seed=99 -- 'train.seed is 99, the checkpoint was made with 1234'
refused "other batch" batch.sequences=24 -- 'batch.sequences is 24, the checkpoint was made with 12'
refused "other sequence" data.sequence=16 -- 'data.sequence is 16, the checkpoint was made with 32'
refused "other optimizer" optim.kind=sgd -- 'optim.kind is sgd, the checkpoint was made with adamw'
refused "other heads" model.heads=4 -- 'model.heads is 4, the checkpoint has 2'
refused "other layers" model.layers=3 -- 'model.layers is 3, the checkpoint has 2'
refused "other width" model.width=64 -- 'model.width is 64, the checkpoint has 32'
refused "other ffn" model.ffn=64 -- 'model.ffn is 64, the checkpoint has 128'
refused "other vocabulary" model.vocab=300 -- 'model.vocab is 300, the checkpoint has 256'
refused "other positions" model.positions=64 -- 'model.positions is 64, the checkpoint has 32'
refused "other eps" model.eps=1e-6 -- 'model.eps is 1e-06, the checkpoint has 1e-05'
refused "other head" model.tied=false -- 'model.tied is false, the checkpoint has true'
refused "much at once" train.seed=7 optim.kind=sgd model.heads=4 model.layers=1 -- 'model.layers is 1, the checkpoint has 2' \
  'model.heads is 4, the checkpoint has 2' 'train.seed is 7, the checkpoint was made with 1234' \
  'optim.kind is sgd, the checkpoint was made with adamw'
train "${run[@]}" train.resume=never
expect "resume=never" 3 '^trireme: train.resume is never'
make_text 70 "$work/other.txt"
train "${run[@]}" data.path="$work/other.txt"
expect "other data" 4 '^trireme: .*data.changed=accept'
cmp "$work/config.before" "$work/moving-f32/config.yaml" || fail "a refused resume changed config.yaml"
if [ "$(weights_hash "$work/moving-f32")" != "$hash" ]; then fail "a refused resume changed the checkpoint"; fi
train "${run[@]}" data.path="$work/other.txt" data.changed=accept model.dropout=0 lr.lr=1e-4 lr.kind=linear optim.clip=2
expect "other data accepted, and what may change" 0
grep -q 'kind: linear' "$work/moving-f32/config.yaml" || fail "config.yaml does not have the settings of the resume"
train "${run[@]}" data.path="$work/other.txt"
expect "its checkpoint knows the new data" 0
grep -q '^nothing to do: 40 of 40' "$work/out" || fail "a finished run has nothing to do: $(said)"
if grep -q '^resuming' "$work/out"; then fail "a finished run says that it goes on: $(said)"; fi
finish
