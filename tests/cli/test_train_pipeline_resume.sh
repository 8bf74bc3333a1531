#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 300
# A checkpoint knows nothing of pipelines: a run that goes on with other stages, schedules and numbers of ranks, optimizer state
# included, trains like one that was never disturbed; its folder is what one rank writes, for every command that reads it.
. "$(dirname "$0")/lib.sh"

layouts=('-n 1' '-n 2 parallel.pp=2' '-n 3 parallel.pp=3 parallel.schedule=zb_h1' '-n 2 parallel.pp=2 parallel.schedule=dualpipe'
  '-n 4 parallel.pp=2 parallel.schedule=interleaved' '-n 2 parallel.pp=2 parallel.schedule=zbv parallel.map=pp,dp,cp,tp'
  '-n 4 parallel.pp=4 parallel.stages=3,1,2,0 checkpoint.background=false' '-n 2')
for type in f32 bf16; do
  for tied in true false; do
    name=$type-$tied
    run=("${tiny[@]}" model.layers=6 model.tied="$tied" batch.sequences=24 batch.micro=1 lr.kind=constant optim.eps=1e-6 precision.compute="$type"
      train.steps=32 train.eval_every=4)
    train "${run[@]}" train.folder="$work/still-$name" model.dropout=0.1
    expect "$name on one rank" 0
    step=0
    for layout in "${layouts[@]}"; do
      step=$((step + 4))
      # shellcheck disable=SC2086
      train "${run[@]}" train.folder="$work/moving-$name" model.dropout=0.1 train.steps=$step $layout
      expect "$name, $layout up to step $step" 0
      if [ $step -gt 4 ] && ! grep -q "^resuming from .*: $((step - 4)) of $step steps done" "$work/out"; then fail "$name, $layout: did not resume"; fi
    done
    limit=1e-5
    if [ $type = bf16 ]; then limit=0.02; fi
    paste -d' ' <(losses "$work/still-$name") <(losses "$work/moving-$name") |
      awk -v limit=$limit '{ d = $2 - $4; if ($1 != $3 || d > limit || d < -limit) print "step " $1 ": " $2 " undisturbed, " $4; n++ } END { if (n != 32) print n " steps" }' >"$work/said"
    if [ -s "$work/said" ]; then fail "$name: $(cat "$work/said")"; fi
    within $limit "$(val_loss "$work/moving-$name")" "$(val_loss "$work/still-$name")" || fail "$name: val_loss differs"
  done
done
weights_within 1e-4 "$work/moving-f32-true" "$work/still-f32-true" || fail "weights differ by more than 1e-4"

# ---- the folder that a pipeline writes has the files, names and shapes of one rank's, and the other commands take it
one=$work/one pipe=$work/pipe
run=("${tiny[@]}" model.layers=4 model.tied=false batch.micro=1 optim.eps=1e-6 checkpoint.shard=40kB)
train "${run[@]}" train.folder="$one"
expect "one rank" 0
train "${run[@]}" train.folder="$pipe" -n 4 parallel.pp=2
expect "a pipeline" 0
for folder in "$one" "$pipe"; do
  "$TRIREME" inspect "$folder" --verify >"$work/inspect" || fail "inspect $folder: $(cat "$work/inspect")"
  grep -q '^verified *ok' "$work/inspect" || fail "inspect $folder: $(cat "$work/inspect")"
  sed -n '/\[/p; /^total/p' "$work/inspect" >"$folder.tensors"
  (cd "$(newest "$folder")" && wc -c ./*.safetensors*) >"$folder.sizes"
done
cmp "$one.tensors" "$pipe.tensors" || fail "other tensors: $(diff "$one.tensors" "$pipe.tensors")"
cmp "$one.sizes" "$pipe.sizes" || fail "other files: $(diff "$one.sizes" "$pipe.sizes")"
timeout 60 "$TRIREME" convert "$pipe" "$work/hf" --reshard 1 >"$work/out" 2>&1 || fail "convert: $(said)"
timeout 60 "$TRIREME" diff "$pipe" "$work/hf" >"$work/out" 2>&1 || fail "diff after convert: $(said)"
timeout 60 "$TRIREME" generate "$pipe" --prompt "the oar" >"$work/out" 2>&1 || fail "generate: $(said)"
train "${run[@]}" model="$work/hf" train.folder="$work/tuned" -n 2 parallel.pp=2 train.steps=2
expect "weights of a folder into a pipeline" 0
train "${run[@]}" model="$work/hf" train.folder="$work/tuned-one" train.steps=2
within 1e-5 "$(final_loss "$work/tuned")" "$(final_loss "$work/tuned-one")" || fail "weights of a folder: another loss in a pipeline"
same=$(sed 's/"program.*//' "$one/contract.json")
if [ "$same" != "$(sed 's/"program.*//' "$pipe/contract.json" | sed 's/"dp": 2/"dp": 1/; s/"accumulation": 6/"accumulation": 12/')" ]; then
  fail "the contract of a pipeline: $(diff "$one/contract.json" "$pipe/contract.json")"
fi

# ---- a tensor that is missing or of another shape is said of whichever rank needs it
train "${run[@]}" train.folder="$pipe" -n 2 parallel.pp=2 model.layers=3 train.steps=9
expect "other layers" 3 'model.layers is 3, the checkpoint has 4'
finish
