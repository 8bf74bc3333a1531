#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 240
# The layout does not matter: any number of ranks, as processes or threads, with or without accumulation, with any bucket,
# trains like one rank. The same plan gives the same bits every time; the same weights give the same val_loss everywhere.
. "$(dirname "$0")/lib.sh"
run=("${tiny[@]}" batch.sequences=24 train.steps=10 train.eval_every=5 optim.eps=1e-6)
train "${run[@]}" train.folder="$work/one" batch.micro=8
expect "one rank" 0
one=$(final_loss "$work/one")

# like_one NAME ARGUMENTS
like_one() {
  local name=$1 folder=$work/$1 loss
  shift
  train "${run[@]}" train.folder="$folder" "$@"
  expect "$name" 0
  loss=$(final_loss "$folder")
  within 1e-5 "$loss" "$one" || fail "$name: loss $loss, on one rank $one"
  within 1e-5 "$(val_loss "$folder")" "$(val_loss "$work/one")" || fail "$name: val_loss $(val_loss "$folder"), on one rank $(val_loss "$work/one")"
  weights_within 1e-4 "$folder" "$work/one" || fail "$name: weights differ by more than 1e-4"
}

for launch in processes threads; do
  for n in 1 2 3 4 8; do
    like_one "$launch-$n" -n "$n" run.launch="$launch"
    like_one "$launch-$n-by-3" -n "$n" run.launch="$launch" batch.micro=1 # accumulation 24 / n: 3 on 8 ranks
  done
  if [ "$(weights_hash "$work/processes-3")" != "$(weights_hash "$work/$launch-3")" ]; then fail "$launch: other bits than processes"; fi
done
like_one every -n 4 batch.micro=2 comm.grad_sync=every # accumulation 3
like_one last -n 4 batch.micro=2 comm.grad_sync=last
like_one bucket -n 4 batch.micro=2 comm.bucket=4kB
like_one bucket-every -n 3 batch.micro=2 comm.bucket=0 comm.grad_sync=every
like_one reference -n 2 batch.micro=4 run.kernels=reference
like_one map -n 2 parallel.map=dp,pp,cp,tp

# ---- the same plan twice
for n in 2 3 8; do
  train "${run[@]}" train.folder="$work/again-$n" -n "$n"
  expect "again on $n" 0
  if [ "$(weights_hash "$work/again-$n")" != "$(weights_hash "$work/processes-$n")" ]; then fail "two runs on $n ranks have other bits"; fi
done

# ---- what is computed again has the same bits
for recompute in none selective full; do
  again=("${run[@]}" train.folder="$work/recompute-$recompute" -n 2 batch.micro=4 model.layers=3 model.dropout=0.1 memory.recompute="$recompute")
  train "${again[@]}"
  expect "recompute=$recompute" 0
  if [ "$(losses "$work/recompute-$recompute")" != "$(losses "$work/recompute-none")" ]; then fail "recompute=$recompute: other losses"; fi
  if [ "$(weights_hash "$work/recompute-$recompute")" != "$(weights_hash "$work/recompute-none")" ]; then fail "recompute=$recompute: other weights"; fi
  train "${again[@]}" --program
  count=$(grep -c '^ *[0-9]* compute R .*stage 0 micro-batch [0-9]* pieces 1..10$\|^ *[0-9]* compute R .*pieces 11..20$' "$work/out")
  want=6 # two layers of three (the last one's values are still there) in three micro-batches
  if [ "$recompute" = none ]; then want=0; fi
  if [ "$count" != "$want" ]; then fail "recompute=$recompute: $count recomputations in the program, not $want"; fi
done

# ---- an epoch whose last batch is short: 1781 samples, more or less, in batches of 24 do not go up
one_epoch=("${tiny[@]}" batch.sequences=24 train.epochs=1 data.sequence=128 optim.eps=1e-6 train.eval_samples=0)
train "${one_epoch[@]}" train.folder="$work/epoch-1"
expect "epoch on one rank" 0
last=$(sed -n 's/.*"tokens":\([0-9]*\).*/\1/p' "$work/epoch-1/metrics.jsonl" | tail -n 2)
if [ "$(awk 'NR == 1 { a = $1 } NR == 2 { print ($1 - a < 24 * 128) }' <<<"$last")" != 1 ]; then fail "the last batch is not short: $last"; fi
for n in 2 3 4 8; do
  train "${one_epoch[@]}" train.folder="$work/epoch-$n" -n "$n"
  expect "epoch on $n" 0
  within 1e-5 "$(final_loss "$work/epoch-$n")" "$(final_loss "$work/epoch-1")" ||
    fail "epoch on $n: loss $(final_loss "$work/epoch-$n"), on one rank $(final_loss "$work/epoch-1")"
  if [ "$(sed -n 's/.*"tokens":\([0-9]*\).*/\1/p' "$work/epoch-$n/metrics.jsonl" | tail -n 2)" != "$last" ]; then fail "epoch on $n: other tokens"; fi
done

# ---- the same weights: the same printed val_loss, on all samples, in both types
for type in f32 bf16; do
  for micro in auto 2; do
    for n in 1 2 3 4; do
      folder=$work/val-$type-$micro-$n
      train "${run[@]}" precision.compute="$type" batch.micro="$micro" -n "$n" train.steps=1 lr.lr=0 train.eval_samples=0 train.folder="$folder"
      expect "evaluation in $type on $n" 0
      a=$(val_loss "$folder") b=$(val_loss "$work/val-$type-$micro-1")
      if [ -z "$a" ] || [ "$a" != "$b" ]; then fail "$type, batch.micro=$micro: val_loss $a on $n ranks, $b on one"; fi
    done
  done
done
finish
