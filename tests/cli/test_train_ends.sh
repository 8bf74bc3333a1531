#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 120
# How a run begins and ends: files that a trace may not replace, what a killed run left, faults that never strike, a run of no
# steps, a trace that cannot be written, numbers beyond all measure; and the help that leads to it.
. "$(dirname "$0")/lib.sh"
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:handle_segv=0 # in a sanitized build a fault is a signal here too
presets=$(cd "$(dirname "$0")/../.." && pwd)/presets
cd "$work" || exit 1

# ---- a trace replaces nothing but traces
cp text.txt val.txt
mkdir -p runs/t link
echo 'precious' >notes.txt
ln -s "$work/runs/t" link/t
for path in text.txt val.txt "$work/text.txt" notes.txt runs/t/metrics.jsonl ./runs/t/../t/config.yaml runs/t/checkpoints \
  runs/t/logs/rank-0.log link/t/loss.svg "$work/runs/t/contract.json"; do
  before=$(cksum "$path" 2>/dev/null)
  train "${tiny[@]}" data.path=text.txt data.val_path=val.txt train.folder=runs/t trace="$path"
  expect "trace=$path" 3 "run.trace: '$path' "
  if [ "$before" != "$(cksum "$path" 2>/dev/null)" ]; then fail "trace=$path: the file has changed"; fi
done
if [ -e runs/t/checkpoints ]; then fail "a refused trace started a run"; fi
train "${tiny[@]}" train.folder=runs/new trace=runs/new/loss.svg # a folder that is not there yet
expect "trace in a new folder" 3 "run.trace: 'runs/new/loss.svg' is where the run keeps its loss.svg"
: >empty.json
steps=0
for path in runs/t/trace.json runs/t/trace.json empty.json; do
  train "${tiny[@]}" train.folder=runs/t trace="$path" train.steps=$((++steps)) lr.kind=constant
  expect "a trace over a trace, $path" 0
done

# ---- what a killed run left beside its files goes; what looks alike stays
touch runs/t/.config.yaml.tmp.4711 runs/t/.contract.json.tmp.99 runs/t/.config.yaml.tmp.mine runs/t/.notes.tmp.4711
train "${tiny[@]}" train.folder=runs/t train.steps=4 lr.kind=constant
expect "after a killed run" 0
left=$(cd runs/t && find . -maxdepth 1 -name '.*.tmp.*' | sort | tr '\n' ' ')
if [ "$left" != './.config.yaml.tmp.mine ./.notes.tmp.4711 ' ]; then fail "left beside the files of a run: $left"; fi

# ---- faults: names that there are, and those that have not struck
TRIREME_FAULT=rank=0,op=reducescatter.reduce,action=kill train "${tiny[@]}" train.folder=runs/fault
expect "an unknown point" 3 "no operation 'reducescatter.reduce'; there are F, B,.* SAVE, .*: allreduce, reduce, reduce_scatter, .* start, ready, reduce"
TRIREME_FAULT=rank=0,op=allreduce.copy,action=kill train "${tiny[@]}" train.folder=runs/fault
expect "a point of other operations" 3 "no operation 'allreduce.copy'"
TRIREME_FAULT=rank=1,op=F,step=99,action=kill train "${tiny[@]}" -n 2 train.folder=runs/fault
expect "a fault behind the end" 0 'TRIREME_FAULT has not struck: F came 0 times where it was to come 1 times'
TRIREME_FAULT=rank=1,op=F,step=2,action=sleep train "${tiny[@]}" -n 2 train.folder=runs/struck
expect "a fault that struck" 0
if grep -q 'not struck' err; then fail "a fault that struck is said not to have: $(cat err)"; fi
for background in true false; do
  TRIREME_FAULT=rank=1,op=SAVE,action=segv train "${tiny[@]}" -n 2 train.folder="runs/segv-$background" checkpoint.background=$background
  expect "segv while saving, background=$background" 6 'rank 1 .* was killed by signal 11'
done

# ---- stopped in its last step a run is finished, with its last evaluation
(
  until [ -e runs/last/metrics.jsonl ]; do sleep 0.02; done
  for pid in $(pgrep -o -f -- "train.folder=$work/runs/last"); do kill -TERM "$pid"; done
) &
TRIREME_FAULT=rank=0,op=F,step=2,action=sleep train "${tiny[@]}" -n 2 train.folder="$work/runs/last" train.steps=2 train.eval_every=0
expect "stopped in the last step" 0
wait
if [ "$(losses runs/last | wc -l)" != 2 ] || [ -z "$(val_loss runs/last)" ]; then fail "stopped in the last step: $(cat runs/last/metrics.jsonl)"; fi

# ---- no steps, no curve and no word about it
train "${tiny[@]}" train.folder=runs/none train.steps=0
expect "no steps" 0
if [ -s err ]; then fail "no steps: $(cat err)"; fi

# ---- a trace that cannot be written at the end costs nothing else
(
  until [ -e runs/late/metrics.jsonl ]; do sleep 0.02; done
  rm -r late # where the trace was to be
) &
TRIREME_FAULT=rank=0,op=F,step=4,action=sleep train "${tiny[@]}" train.folder=runs/late trace=late/trace.json
expect "a trace that cannot be written" 10 'late/trace.json: cannot create'
wait
if [ ! -s runs/late/loss.svg ] || ! grep -q '^checkpoints runs/late/checkpoints$' out; then fail "a failed trace lost the last words: $(said)"; fi

# ---- numbers beyond all measure
wild=("${tiny[@]}" optim.kind=sgd lr.lr=1000 lr.kind=constant optim.clip=0 train.steps=6 train.nan=skip)
train "${wild[@]}" train.folder=runs/wild train.eval_every=1
expect "a wild run" 0
if grep -Eq '[0-9]{8,}' <(grep -o 'loss [^ ]*\|norm [^ ]*' out); then fail "long numbers: $(grep -E -m1 '[0-9]{12}' out)"; fi
if [ "$(grep -c '"val_loss":' runs/wild/metrics.jsonl)" != "$(grep -c '^{"step"' runs/wild/metrics.jsonl)" ]; then fail "a val_loss is missing: $(cat runs/wild/metrics.jsonl)"; fi
grep -q 'val_loss nan' out && { grep -q '"val_loss":null' runs/wild/metrics.jsonl || fail 'a val_loss that is not a number is not null'; }

# ---- what a model takes, without data
TRIREME_PRESETS=$presets train model=gpt2 --dry-run -n 2 batch.sequences=8
expect "a dry run without data" 0
grep -Eq '^model   gpt2, 124M parameters: 12 layers, width 768' out || fail "a dry run without data: no parameters: $(said)"
whole_lines | grep -Eq '^memory  [0-9.]+ [MG]iB per rank .*weights .*optimizer' || fail "a dry run without data: no memory: $(said)"
if grep -q ' steps$' out; then fail "a dry run without data knows steps: $(said)"; fi
TRIREME_PRESETS=$presets train model=gpt2 --json -n 2 batch.sequences=8
expect "the same as JSON" 0
grep -q '"parameters": 124[0-9]*,' out || fail "the plan as JSON: $(said)"
TRIREME_PRESETS=$presets train model=gpt2 train.folder=runs/nothing
expect "training without data" 3 'nothing to train on'

# ---- sequences where nobody gives them: what the model takes, and no more than usual
short=(data.path=text.txt batch.sequences=12 run.threads=1 train.eval_samples=6 lr.kind=constant)
train "${tiny[@]}" train.folder=runs/first train.steps=2
expect "a model of 32 positions" 0
train "${short[@]}" model=runs/first train.folder=runs/second train.steps=2
expect "going on from a folder" 0
grep -q '^note    data.sequence is 32, since the model takes no more$' out || fail "going on from a folder: $(cat out)"
grep -q '^  sequence: 32  # default: what the model takes, at most 256$' runs/second/config.yaml || fail "going on from a folder: $(grep sequence: runs/second/config.yaml)"
train "${short[@]}" model=runs/first --print-config
expect "the settings of a folder" 0
grep -q '^  sequence: 32  # default: what the model takes, at most 256$' out || fail "the settings of a folder: $(grep sequence: out)"
train "${short[@]}" model=runs/first data.sequence=64 train.folder=runs/third
expect "more than the model takes" 3 'data.sequence: 32 positions are fewer than the 64 tokens of data.sequence'
train "${short[@]}" model=runs/first data.sequence=16 train.folder=runs/third train.steps=1
expect "less than the model takes" 0
if grep -q '^note    data.sequence' out; then fail "less than the model takes: $(cat out)"; fi
mv runs/first runs/gone
train "${short[@]}" model=runs/first train.folder=runs/second train.steps=3
expect "without the folder" 0
grep -q '^resuming from .*: 2 of 3 steps done' out || fail "without the folder: $(said)"
train "${short[@]}" model.layers=1 model.width=16 model.heads=2 model.positions=24 --dry-run
expect "positions alone" 0
grep -q 'sequences of 24$\|sequences of 24;\|data.sequence is 24' out || fail "positions alone: $(cat out)"
TRIREME_PRESETS=$presets train "${short[@]}" model=gpt2-tiny --print-config
expect "a model that takes more" 0
grep -q '^  sequence: 256  # default$' out || fail "a model that takes more: $(grep sequence: out)"

# ---- help
"$TRIREME" train --help >help.1
"$TRIREME" help train >help.2
cmp -s help.1 help.2 || fail "help train is not the help of train"
groups=$("$TRIREME" train --help | sed -n '/--help \[GROUP\]/,/^$/p' | tr '\n' ' ')
for group in $(sed -n 's/^  \([a-z]*\)\.[a-z_]*  .*/\1/p' help.1 | sort -u); do
  [[ $groups == *" $group "* ]] || fail "train --help does not list the group $group: $groups"
  "$TRIREME" help train "$group" >help.3
  grep -q "^$group:" help.3 || fail "help train $group"
done
"$TRIREME" help trian >out 2>err
rc=$?
expect "help on nothing" 2 "no command 'trian'; did you mean 'train'"
finish
