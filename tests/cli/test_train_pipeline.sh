#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 600
# A pipeline trains like one rank: every schedule, on 1 to 4 ranks of a pipeline and 1 or 2 pipelines, as processes and threads,
# prints the losses of one rank and leaves its weights; schedules that add gradients in ascending order leave the same bits. Each
# schedule is tried with every length of a pipeline, on one or two of them by turns (TRIREME_LAYOUTS=all: on one and on two).
. "$(dirname "$0")/lib.sh"
run=("${tiny[@]}" model.layers=8 batch.sequences=24 batch.micro=1 train.steps=4 train.eval_every=2 optim.eps=1e-6)
one=$work/one
train "${run[@]}" train.folder="$one"
expect "one rank" 0

# like_one NAME ARGUMENTS: the same losses in every step, the same val_loss, the same weights.
like_one() {
  local name=$1 folder=$work/$1
  shift
  train "${run[@]}" train.folder="$folder" "$@"
  expect "$name" 0
  paste -d' ' <(losses "$one") <(losses "$folder") |
    awk '{ d = $2 - $4; if ($1 != $3 || NF != 4 || d > 1e-5 || d < -1e-5) print "step " $1 ": " $2 " on one rank, " $4; n++ } END { if (n != 4) print n " steps" }' >"$work/said"
  if [ -s "$work/said" ]; then fail "$name: $(cat "$work/said")"; fi
  within 1e-5 "$(val_loss "$folder")" "$(val_loss "$one")" || fail "$name: val_loss $(val_loss "$folder"), on one rank $(val_loss "$one")"
  weights_within 1e-4 "$folder" "$one" || fail "$name: weights differ by more than 1e-4"
}

# With tied embeddings two stages add to one gradient, in an order that depends on the schedule.
ascending='1f1b 1f1b_eager gpipe zb_h1 zb_h2 interleaved interleaved_zb zbv dualpipev'
others='gpipe_lifo looped_bfs dualpipe'
turn=0
for p in 1 2 3 4; do
  for schedule in $ascending $others; do
    turn=$((turn + 1))
    for dp in 1 2; do
      if [ $p$dp = 12 ] || { [ "$schedule" = dualpipe ] && [ $((p % 2)) = 1 ]; }; then continue; fi
      if [ "${TRIREME_LAYOUTS:-}" != all ] && [ $p != 1 ] && [ $(((turn + p + dp) % 2)) = 1 ]; then continue; fi
      like_one "$schedule-$p-$dp" -n $((p * dp)) parallel.pp=$p parallel.schedule="$schedule"
    done
  done
done
# ---- what else decides where things are
like_one threads -n 4 parallel.pp=2 run.launch=threads
like_one map -n 4 parallel.pp=2 parallel.map=pp,dp,cp,tp
like_one four-chunks -n 2 parallel.pp=2 parallel.schedule=interleaved parallel.chunks=4
like_one group -n 2 parallel.pp=2 parallel.schedule=interleaved parallel.group=4
like_one copies -n 4 parallel.pp=2 parallel.zero=0
like_one uneven -n 3 parallel.pp=3 parallel.stages=5,1,2
like_one head-alone -n 3 parallel.pp=3 parallel.stages=4,4,0
like_one naive -n 2 parallel.pp=2 parallel.schedule=naive batch.micro=24
like_one other-names -n 2 --pipeline-model-parallel-size 2 pipeline_parallel_schedule=Interleaved1F1B --num-virtual-stages-per-pipeline-rank 2
like_one few -n 4 parallel.pp=4 batch.micro=12 # fewer micro-batches than ranks
like_one dealing -n 4 parallel.pp=2 data.dealing=balanced
like_one recompute -n 4 parallel.pp=2 memory.recompute=full

# ---- a heavy head makes balanced stages uneven
run+=(model.vocab=3000)
one=$work/one-heavy
train "${run[@]}" train.folder="$one"
expect "one rank, a heavy head" 0
uneven=0
for layout in '3 1 1f1b' '2 2 zb_h1' '4 1 gpipe' '2 1 interleaved' '2 1 zbv' '4 1 dualpipe'; do
  read -r p dp schedule <<<"$layout"
  like_one heavy-"$schedule"-"$p"-"$dp" -n $((p * dp)) parallel.pp="$p" parallel.schedule="$schedule"
  if [ "$(sed -n 's/^stages  \([0-9,]*\) layers.*/\1/p' "$work/out" | tr , '\n' | sort -u | wc -l)" -gt 1 ]; then uneven=$((uneven + 1)); fi
done
if [ $uneven -lt 4 ]; then fail "only $uneven of the cuts with a heavy head are uneven"; fi
run=("${run[@]:0:${#run[@]}-1}")

# ---- without tied embeddings the bits are those of the same data parallelism without a pipeline
run+=(model.tied=false)
one=$work/one-untied
train "${run[@]}" train.folder="$one"
expect "one rank, untied" 0
for layout in '2 1' '3 1' '2 2'; do
  read -r p dp <<<"$layout"
  like_one untied-dp-"$dp" -n "$dp"
  for schedule in $ascending; do
    name=untied-$schedule-$p-$dp
    like_one "$name" -n $((p * dp)) parallel.pp="$p" parallel.schedule="$schedule"
    if [ "$(weights_hash "$work/$name")" != "$(weights_hash "$work/untied-dp-$dp")" ]; then fail "$name: other bits than without a pipeline"; fi
    diff "$work/$name/contract.json" "$work/untied-dp-$dp/contract.json" || fail "$name: another contract"
  done
  like_one untied-dualpipe-"$p"-"$dp" -n $((4 * dp)) parallel.pp=4 parallel.schedule=dualpipe
done

# ---- a schedule from a file, as trireme writes it
"$TRIREME" simulate --schedule zb_h1 -p 2 -m 24 --write "$work/own.csv" >"$work/out" 2>&1 || fail "no schedule is written: $(said)"
like_one file -n 2 parallel.pp=2 parallel.schedule="$work/own.csv"
if [ "$(weights_hash "$work/file")" != "$(weights_hash "$work/untied-zb_h1-2-1")" ]; then fail "file: other bits than the schedule that it is"; fi

# ---- activations that travel as bf16: close
train "${run[@]}" train.folder="$work/wire" -n 2 parallel.pp=2 precision.stage_wire=bf16
expect "bf16 between stages" 0
within 0.02 "$(final_loss "$work/wire")" "$(final_loss "$one")" || fail "bf16 between stages: loss $(final_loss "$work/wire"), on one rank $(final_loss "$one")"
if [ "$(final_loss "$work/wire")" = "$(final_loss "$one")" ]; then fail "bf16 between stages changes nothing"; fi
finish
