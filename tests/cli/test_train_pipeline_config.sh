#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 180
# Settings of pipelines: what cannot be is said before a rank starts, with the numbers and the nearest that work; names of other
# programs; what a plan says of stages, micro-batches and memory.
. "$(dirname "$0")/lib.sh"
cd "$work" || exit 1
base=("${tiny[@]}" train.folder="$work/run" model.layers=4 batch.micro=1)

refuse() { # REGEX ARGUMENTS
  local regex=$1
  shift
  train "${base[@]}" "$@"
  expect "$*" 3 "$regex"
  if [ -e "$work/run" ]; then fail "$*: a refused run has made its folder"; fi
}

# ---- the mesh
refuse 'parallel.pp: 3 does not divide the 4 ranks of run.ranks \(-n\); parallel.pp=2, parallel.pp=4 or -n 6 would work' -n 4 parallel.pp=3
refuse 'parallel.pp: 2 does not divide the 1 rank of run.ranks \(-n\); parallel.pp=1 or -n 2 would work' parallel.pp=2
refuse 'parallel.dp: dp=3 x pp=2 needs 6 ranks, run.ranks \(-n\) is 4' -n 4 parallel.pp=2 parallel.dp=3
refuse 'parallel.pp: 0 is out of range' parallel.pp=0
refuse 'parallel.pp: 257 is out of range' parallel.pp=257
refuse '12 sequences cannot be dealt to dp=2 pipelines in micro-batches of 5; 10 or 20 would work' -n 4 parallel.pp=2 batch.micro=5

# ---- schedules
refuse 'parallel.schedule: .*1f2b' -n 2 parallel.pp=2 parallel.schedule=1f2b
refuse 'parallel.schedule: .*dualpipe.*3' -n 3 parallel.pp=3 parallel.schedule=dualpipe
refuse 'parallel.schedule: .*dualpipe.*batch.micro=[0-9]' -n 2 parallel.pp=2 parallel.schedule=dualpipe batch.micro=6
refuse 'parallel.schedule: .*batch.micro=[0-9]+ or batch.micro=[0-9]+ would work' -n 4 parallel.pp=4 parallel.schedule=interleaved batch.micro=2 model.layers=8
refuse 'parallel.chunks: 2 stages a rank, and schedule 1f1b has 1; parallel.chunks=1 works' -n 2 parallel.pp=2 parallel.chunks=2
echo 'no schedule' >words.csv
refuse 'parallel.schedule: .*words.csv' -n 2 parallel.pp=2 parallel.schedule=words.csv

"$TRIREME" simulate --schedule 1f1b -p 2 -m 6 --write made.csv >/dev/null || fail "made.csv"
refuse 'parallel.schedule: made.csv is made for 6 micro-batches, and a step here has 12; batch.sequences=6 with batch.micro=1 would work; batch.micro=2 would work' \
  -n 2 parallel.pp=2 parallel.schedule=made.csv
refuse 'parallel.schedule: made.csv is made for 2 ranks, and parallel.pp is 3; parallel.pp=2 would work' -n 3 parallel.pp=3 parallel.schedule=made.csv
head -c 20 made.csv >cut.csv
refuse 'parallel.schedule: cut.csv, line 1' -n 2 parallel.pp=2 parallel.schedule=cut.csv
head -n 2 made.csv >cut.csv
refuse 'parallel.schedule: cut.csv: its first line says p 2, but it has the list of 1 rank' -n 2 parallel.pp=2 parallel.schedule=cut.csv
train "${base[@]}" -n 2 parallel.pp=2 parallel.schedule=gone.csv
expect "a schedule that is not there" 10 'gone.csv: cannot open'

# ---- stages
refuse 'parallel.pp: 5 stages .* need as many layers, the model has 4; -n 4 parallel.pp=4 would work' -n 5 parallel.pp=5
refuse 'parallel.pp: 8 stages .* need as many layers, the model has 4; parallel.pp=2 would work' -n 4 parallel.pp=4 parallel.schedule=interleaved
refuse '2 stages \(parallel.pp=1 .* the model has 1; parallel.schedule=1f1b with parallel.pp=1 would work' parallel.schedule=zbv model.layers=1
refuse '4 stages .* the model has 1; parallel.schedule=1f1b with parallel.pp=1 would work' -n 2 parallel.pp=2 parallel.schedule=dualpipev model.layers=1
refuse '4 stages .* the model has 3; parallel.pp=2 would work' -n 4 parallel.pp=4 parallel.schedule=dualpipe model.layers=3
refuse '4 stages .* the model has 3; -n 6 parallel.pp=3 would work' -n 8 parallel.pp=4 parallel.dp=2 model.layers=3 batch.sequences=16
refuse '8 stages .* the model has 7; parallel.chunks=3 or parallel.pp=1 would work' -n 2 parallel.pp=2 parallel.schedule=interleaved parallel.chunks=4 model.layers=7
refuse 'parallel.stages: layers "2,1" makes 3 layers; the model has 4' -n 2 parallel.pp=2 parallel.stages=2,1
refuse 'parallel.stages: layers "2,1,1" has 3 counts for 2 stages' -n 2 parallel.pp=2 parallel.stages=2,1,1
refuse 'parallel.stages: ' -n 3 parallel.pp=3 parallel.stages=2,0,2
refuse 'parallel.stages: layers "2,2" has 2 counts for 1 stage' parallel.stages=2,2
refuse 'parallel.stages: layers "3" makes 3 layers; the model has 4' parallel.stages=3
for bad in 2,x '' '2,' -1,5 2.5,1.5 5; do
  refuse 'parallel.stages: layers ' -n 2 parallel.pp=2 parallel.stages="$bad"
done

# ---- balanced stages are those of `trireme plan stages`, whatever the head weighs
cuts=0
for vocab in 256 2000 12000; do
  for layers in 4 7; do
    printf '{"model_type": "gpt2", "n_layer": %d, "n_embd": 64, "n_head": 4, "vocab_size": %d, "n_positions": 64}\n' $layers $vocab >config.json
    for pipeline in '2 1f1b 1' '3 gpipe 1' '4 zb_h1 1' '2 interleaved 2' '2 zbv 2'; do
      read -r p schedule v <<<"$pipeline"
      train model=config.json --dry-run data.sequence=48 batch.sequences=16 batch.micro=2 -n "$p" parallel.pp="$p" parallel.schedule="$schedule"
      expect "the stages of train, $layers layers, vocabulary $vocab, $pipeline" 0
      own=$(sed -n 's/^stages  \([0-9,]*\) layers.*/\1/p' out)
      "$TRIREME" plan stages --model config.json --seq 48 --micro 2 -p "$p" -m 8 --schedule "$schedule" >said 2>&1 || fail "plan stages: $(cat said)"
      planned=$(sed -n 's/^ *layers  *\([0-9,]*\)$/\1/p' said)
      [ -n "$own" ] && [ "$own" = "$planned" ] || fail "$layers layers, vocabulary $vocab, $pipeline: train cuts $own, plan stages $planned"
      ((p * v == 2 && layers == 4)) && cuts="$cuts $own"
    done
  done
done
[ "$cuts" = "0 2,2 3,1 4,0" ] || fail "a heavier head does not move the cut: $cuts"

# ---- what else does not go together
refuse 'comm.grad_sync: every is not for pipelines' -n 2 parallel.pp=2 comm.grad_sync=every
refuse 'precision.stage_wire: f32 would carry no more' -n 2 parallel.pp=2 precision.compute=bf16 precision.stage_wire=f32
refuse 'parallel.zero: 2 gives gradients up after every micro-batch, and a pipeline .parallel.pp=2. adds to them' -n 2 parallel.pp=2 parallel.zero=2
refuse 'parallel.zero: 3 is not in this version; 1 would work' -n 2 zero_stage=3

# ---- what a plan says
shows() { # NAME REGEX ARGUMENTS
  local name=$1 regex=$2
  shift 2
  train "${base[@]}" "$@" --dry-run
  expect "$name" 0
  whole_lines | grep -Eq "$regex" || fail "$name: no /$regex/ in $(cat "$work/out")"
  if [ -n "$(wide_lines)" ]; then fail "$name: long lines: $(wide_lines)"; fi
}
shows mesh '^plan    4 ranks x 1 thread, pp=2, dp=2, batch 12 = 1 x dp 2 x accumulation 6' -n 4 parallel.pp=2
shows stages '^stages  [1-4],[1-4] layers, schedule 1f1b, 12 micro-batches, at most 2,1 at once on the ranks of a pipeline, bubble [0-9.]+% by FLOPs$' -n 2 parallel.pp=2
shows alone '^plan    1 rank x 1 thread, dp=1' parallel.stages=4
shows given '^stages  3,1 layers, ' -n 2 parallel.pp=2 parallel.stages=3,1
shows memory '^memory  at most .* per rank \(pipeline rank [01]\), .* together: weights ' -n 2 parallel.pp=2
shows micro '^micro   1 sequence per pass: 12 micro-batches for 2 ranks of a pipeline' -n 2 parallel.pp=2 batch.micro=auto
for name in Interleaved1F1B interleaved; do
  shows "$name" '^stages  1,1,1,1 layers, schedule interleaved, ' -n 2 --pipeline-model-parallel-size 2 pipeline_parallel_schedule=$name
done
shows chunks '^stages  1,1,1,1 layers, ' -n 1 parallel.schedule=interleaved --num-virtual-stages-per-pipeline-rank 4
train "${base[@]}" -n 2 parallel.pp=2 --program
expect program 0
[ "$(grep -c '^pipeline rank [01]$' "$work/out")" = 2 ] || fail "--program does not show both ranks' programs"
grep -q ' SEND .*' "$work/out" || fail "--program has no SEND"
train "${base[@]}" -n 2 parallel.pp=2 --json
expect json 0
grep -q '"schedule": "1f1b"' "$work/out" || fail "--json: $(cat "$work/out")"

# A rank of a pipeline needs less than one that has all; the last and the first are not alike.
bytes() { sed -n 's/^  "memory_bytes": \([0-9]*\),*$/\1/p' "$work/out"; }
train "${base[@]}" model.width=128 --json
whole=$(bytes)
train "${base[@]}" model.width=128 -n 4 parallel.pp=4 --json
part=$(bytes)
if [ "$part" -ge "$whole" ]; then fail "a rank of four takes $part bytes, one alone $whole"; fi
finish
