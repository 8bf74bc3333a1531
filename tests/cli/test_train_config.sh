#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 60
# Whatever is wrong with settings is said before a rank starts: one line, the right exit code, the setting and what would
# work. And what the command prints about itself: --help, --version, --print-config, --dry-run.
. "$(dirname "$0")/lib.sh"
cd "$work" || exit 1
base=("${tiny[@]}" train.folder="$work/run")

# refuse CODE REGEX ARGUMENTS: with the tiny settings before them.
refuse() {
  local code=$1 regex=$2
  shift 2
  train "${base[@]}" "$@"
  expect "$*" "$code" "$regex"
  if [ -e "$work/run" ]; then fail "$*: a refused run has made its folder"; fi
}

: >empty.txt
echo hi >short.txt
echo 'no folder' >in-the-way
printf 'model:\n  width: [32\n  heads: 2\nlr:\n' >syntax.yaml
printf 'model:\n  width: 32\n  haeds: 2\n' >unknown.yaml
printf 'model:\n  width: 32\n  heads: many\n' >number.yaml

refuse 3 'unknown option "model.widht"; did you mean "model.width"\?' model.widht=3
refuse 3 'model.width: "abc" is not a whole number' model.width=abc
refuse 3 'train.steps: "1.5" is not a whole number' train.steps=1.5
refuse 3 'lr.lr: "nan" is not a number' lr.lr=nan
refuse 3 'lr.lr: .* out of range' lr.lr=-1
refuse 3 'model.width: 0 is out of range; accepted: .* from 1 to' model.width=0
refuse 3 'model.dropout: .* out of range' model.dropout=1
refuse 3 'run.deadline: "5x" is not a duration' run.deadline=5x
refuse 3 'optim.kind: "adam" is no choice \(did you mean "adamw"\?\)' optim.kind=adam
refuse 3 'model.heads 3 does not divide model.width 32; 2 or 4 would' model.heads=3
refuse 3 '13 sequences cannot be dealt to dp=2 .*; 12 or 14 would work' batch.sequences=13 -n 2
refuse 3 '12 sequences cannot be dealt to dp=1 .* micro-batches of 5; 10 or 15 would work' batch.micro=5
refuse 3 'parallel.dp: dp=3 needs 3 ranks, run.ranks \(-n\) is 2' -n 2 parallel.dp=3
refuse 3 'parallel.tp: 2 is out of range' parallel.tp=2 -n 2
refuse 3 'parallel.pp: 2 is out of range' parallel.pp=2
refuse 3 'parallel.cp: 4 is out of range' parallel.cp=4
refuse 3 'parallel.map: ' parallel.map=a,b
refuse 3 'run.ranks: 0 is out of range; .* from 1 to 256' -n 0
refuse 3 'run.ranks: 1000 is out of range' -n 1000
refuse 3 'run.ranks: "two" is not a whole number' -n two
refuse 3 'model.positions: 8 is shorter than data.sequence, 32' model.positions=8
refuse 3 'model.vocab: 100 is smaller than the 256 tokens' model.vocab=100
refuse 3 "data.tokenizer: tokenizer 'nope' is not known" data.tokenizer=nope
refuse 3 'data.path: no text to train on' data.path=
refuse 4 'nope.txt: .*No such file' data.path=nope.txt
refuse 4 'nope.txt: .*No such file' data.val_path=nope.txt
refuse 4 'empty.txt: is empty' data.path=empty.txt
refuse 4 'is a folder' data.path=/
refuse 4 'short.txt: its 3 tokens' data.path=short.txt
refuse 4 'text.txt: its [0-9]+ tokens .* smaller val_fraction' data.sequence=100000
refuse 5 'do not fit in .*weights .*gradients .*optimizer .*activations .*smaller model' model.width=16384 model.layers=100
refuse 5 '256 ranks x .* do not fit in' -n 256 batch.sequences=256 model.width=4096 model.layers=24
refuse 10 'in-the-way' train.folder=in-the-way
refuse 10 'in-the-way' train.folder=in-the-way/below
refuse 10 'none.yaml: .*No such file' none.yaml
refuse 3 'syntax.yaml:3:[0-9]+: not valid YAML' syntax.yaml
refuse 3 'unknown.yaml:3:[0-9]+: .*"model.haeds"; did you mean "model.heads"' unknown.yaml
refuse 3 'number.yaml:3:[0-9]+: .*"many" is not a whole number' number.yaml
refuse 2 "no option '--fast' .see trireme train --help" --fast
refuse 2 "'fast' is neither a run file" fast
refuse 2 '-n needs the number of ranks' -n

# ---- the fault that tests inject
for bad in rank=1 rank=0,op=F rank=x,op=F,action=kill rank=0,op=F,step=1,action=explode rank=0,op=Q,action=kill \
  rank=1,op=F,action=kill op=F,action=kill,when=now rank=0,op=F,count=0,action=kill garbage; do
  TRIREME_FAULT=$bad refuse 3 "TRIREME_FAULT '$bad': .*rank=R,op=NAME"
done

# ---- exit 2 without a command or with a wrong one; help and version
timeout 10 "$TRIREME" >out 2>err
rc=$?
if [ $rc != 2 ] || ! grep -q '^usage: trireme COMMAND' err; then fail "no arguments: exit $rc: $(said)"; fi
timeout 10 "$TRIREME" trian >out 2>err
rc=$?
if [ $rc != 2 ] || ! grep -q "there is no command 'trian'" err; then fail "no such command: exit $rc: $(said)"; fi
for words in --help 'train --help' 'train --help lr' 'train -h' --version; do
  # shellcheck disable=SC2086
  timeout 10 "$TRIREME" $words >out 2>err || fail "$words: exit $?"
  if [ -s err ] || [ ! -s out ]; then fail "$words: $(said)"; fi
done
grep -Eq '^trireme [0-9]+\.[0-9]+' out || fail "--version: $(cat out)"
timeout 10 "$TRIREME" train --help lr >out
grep -q 'lr.warmup' out || fail "--help lr does not list lr.warmup"
! grep -q 'model.width' out || fail "--help lr lists model.width"
train
expect "train without arguments" 2 'give a run file or settings'
train --help lrr
expect "help of no group" 2 "no group of settings 'lrr'"

# ---- --print-config: every setting, where it comes from; as a run file it gives the same settings
printf 'model:\n  width: 48\nlr: {lr: 1e-3}\n' >one.yaml
printf 'model: {width: 64}\n' >two.yaml
train one.yaml two.yaml "${base[@]}" model.width=96 -n 2 --print-config
expect "print-config" 0
grep -Eq '^ +width: 96' out || fail "an argument does not win over files: $(grep width out)"
grep -Eq '^ +lr: (1e-3|0.001) .*one.yaml:3' out || fail "the place in the run file is not named: $(grep ' lr:' out)"
cp out all.yaml
train all.yaml --print-config
expect "print-config again" 0
diff <(sed 's/ *#.*//' all.yaml) <(sed 's/ *#.*//' out) >difference || fail "print-config is not a fixed point: $(cat difference)"
train one.yaml two.yaml --print-config
grep -Eq '^ +width: 64' out || fail "a later file does not win: $(grep width out)"
mkdir -p runs/lr=1
cp one.yaml runs/lr=1/run.yaml
train runs/lr=1/run.yaml --print-config
expect "a run file below a folder with =" 0

# ---- --dry-run: the plan and nothing else
train "${base[@]}" -n 3 --dry-run
expect "dry run" 0
grep -q '^plan .*3 ranks' out || fail "dry run does not print the plan: $(cat out)"
grep -q '^memory ' out || fail "dry run does not print the memory"
if [ -e run ]; then fail "a dry run has made the folder"; fi
train "${base[@]}" -n 2 --program
expect "program" 0
grep -q 'REDUCE' out || fail "the program of two ranks has no REDUCE"
train "${base[@]}" train.steps=0
expect "no steps" 0
finish
