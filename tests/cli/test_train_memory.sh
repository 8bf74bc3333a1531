#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 240
# Memory that a job really takes, as counted by the system, is the memory that was predicted: within 1 MiB for small models,
# whatever the plan. Both numbers stand in every record of metrics.jsonl and in one line at the end.
. "$(dirname "$0")/lib.sh"
if grep -qaE '__(asan|tsan)_init' "$TRIREME"; then
  echo "skipped: a sanitizer's own memory is many times that of a small run"
  exit 77
fi

number() { # FIELD FOLDER: of the last record
  sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$2/metrics.jsonl" | tail -n 1
}

# as_predicted NAME ARGUMENTS
as_predicted() {
  local folder=$work/$1 limit=1048576 used predicted records
  shift
  train "${tiny[@]}" train.steps=4 "$@" train.folder="$folder"
  expect "$*" 0
  used=$(number memory_used "$folder") predicted=$(number memory_total "$folder")
  records=$(grep -c '"memory_used":[0-9]*.*' "$folder/metrics.jsonl")
  if [ "$records" != 4 ]; then fail "$*: $records of 4 records say what memory is used"; fi
  if ! within $limit "$used" "$predicted"; then fail "$*: $used bytes are used, $predicted were predicted"; fi
  grep -Eq '^memory  [0-9.]+ [KM]iB used by [0-9]+ ranks?, [0-9.]+ [KM]iB predicted$' "$work/out" || fail "$*: no line at the end: $(said)"
}

for n in 1 2 3; do
  as_predicted "f32-$n" -n $n
  as_predicted "bf16-$n" -n $n precision.compute=bf16 model.width=128
  as_predicted "every-$n" -n $n comm.grad_sync=every batch.micro=2 parallel.zero=0
  as_predicted "waiting-$n" -n $n checkpoint.background=false checkpoint.every=1 run.threads=2
done
as_predicted threads -n 2 run.launch=threads
as_predicted many-threads -n 8 run.launch=threads batch.sequences=16
deep=(model.layers=200 model.width=8 data.sequence=8 batch.sequences=8 train.eval_samples=4)
as_predicted deep -n 2 "${deep[@]}"
as_predicted deep-waiting -n 2 "${deep[@]}" checkpoint.background=false checkpoint.every=0
as_predicted deep-sgd -n 2 "${deep[@]}" optim.kind=sgd
as_predicted deep-threads -n 2 "${deep[@]}" run.launch=threads
as_predicted packed -n 2 model.layers=4 model.width=256 memory.recompute=selective checkpoint.every=2
as_predicted unpacked -n 2 model.layers=4 model.width=256 memory.pack=false optim.kind=sgd train.eval_samples=0
as_predicted batches -n 2 batch.sequences=4000 batch.micro=1 model.layers=1

for schedule in 1f1b gpipe zb_h1 interleaved zbv dualpipe; do
  as_predicted "pipeline-$schedule" -n 2 parallel.pp=2 parallel.schedule=$schedule model.layers=4 batch.micro=1
done
as_predicted pipelines -n 6 parallel.pp=3 model.layers=6 model.width=64 batch.micro=1
as_predicted pipeline-bf16 -n 4 parallel.pp=2 model.layers=4 precision.compute=bf16 batch.micro=1
as_predicted pipeline-wire -n 2 parallel.pp=2 model.layers=4 precision.stage_wire=bf16 batch.micro=1
as_predicted pipeline-recompute -n 2 parallel.pp=2 model.layers=4 memory.recompute=full batch.micro=1 parallel.zero=0
as_predicted pipeline-threads -n 4 parallel.pp=2 run.launch=threads batch.micro=1

# A prediction that holds means little if all plans are the same: these differ by much more than the limit.
if within 4000000 "$(number memory_used "$work/f32-1")" "$(number memory_used "$work/packed")"; then fail "two very different plans use the same memory"; fi
finish
