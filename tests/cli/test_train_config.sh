#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 180
# Whatever is wrong with settings is said before a rank starts: one line, the right exit code, the setting and what would
# work. And what the command prints about itself: --help, --version, --print-config, --dry-run.
. "$(dirname "$0")/lib.sh"
presets=$(cd "$(dirname "$0")/../../presets" && pwd)
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
mkfifo pipe.yaml
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
refuse 3 'parallel.pp: 2 does not divide the 1 rank' parallel.pp=2
refuse 3 'parallel.cp: 4 is out of range' parallel.cp=4
refuse 3 'parallel.map: ' parallel.map=a,b
refuse 3 "^trireme: -n takes the number of ranks, from 1 to 256, not '0'" -n 0
refuse 3 "^trireme: -n takes .* not '1000'" -n1000
refuse 3 "^trireme: -n takes .* not 'two'" -n two
refuse 3 'run.ranks: 0 is out of range; .* from 1 to 256' run.ranks=0
refuse 3 'model.positions: 8 positions are fewer than the 32 tokens of data.sequence' model.positions=8
refuse 3 'model.vocab: 100 is smaller than the 256 tokens' model.vocab=100
refuse 3 "data.tokenizer: tokenizer 'nope' is neither 'byte' nor" data.tokenizer=nope
refuse 3 'data.path: nothing to train on' data.path=
refuse 4 'nope.txt: .*No such file' data.path=nope.txt
refuse 4 'nope.txt: .*No such file' data.val_path=nope.txt
refuse 4 'empty.txt: is empty' data.path=empty.txt
refuse 4 'is a folder' data.path=/
refuse 4 'short.txt: its 3 tokens' data.path=short.txt
refuse 4 'text.txt: its [0-9]+ tokens .* smaller val_fraction' data.sequence=100000
refuse 5 'do not fit in .*weights .*gradients .*optimizer .*activations .*checkpoint buffer .*smaller model' model.width=16384 model.layers=100
refuse 5 '256 ranks x .* do not fit in' -n 256 batch.sequences=256 model.width=4096 model.layers=24
refuse 3 'batch.sequences: 1000000000 sequences make .* passes .*; at most 4096' batch.sequences=1G batch.micro=1
refuse 3 'precision.grad_wire: bf16 needs owners' precision.grad_wire=bf16 parallel.zero=0

# batch.micro=auto: as many sequences per pass as fill 80 % of the memory, and what limits them.
micro() { # MEMORY LINE ARGUMENTS: the plan has this line
  local memory=$1 line=$2
  shift 2
  TRIREME_MEMORY=$memory train "${tiny[@]}" train.folder="$work/micro" batch.sequences=48 --dry-run "$@"
  expect "memory $memory $*" 0
  grep -q "$line" "$work/out" || fail "memory $memory $*: no '$line' in $(cat "$work/out")"
}
micro 20GB '^micro   48 sequences per pass: all of a rank.s share of the batch'
micro 20GB '^micro   24 sequences per pass: all of a rank.s share of the batch' -n 2
micro 16MB '^micro   24 sequences per pass: 48 would take 1*[0-9][0-9]% of memory, at most 80% are used' model.layers=4
micro 7MB '^micro   6 sequences per pass: [0-9]* would take 1*[0-9][0-9]% of memory, at most 80% are used' model.layers=4
micro 4MB '^micro   1 sequence per pass: [0-9]* would take 1*[0-9][0-9]% of memory, at most 80% are used' model.layers=4
TRIREME_MEMORY=20GB train "${tiny[@]}" train.folder="$work/micro" batch.micro=4 --dry-run
expect 'given micro-batch' 0
TRIREME_MEMORY=20GB train "${tiny[@]}" train.folder="$work/micro" micro_batch=4 --dry-run
expect 'its other name' 0
if grep -q '^micro' "$work/out"; then fail "given micro-batch: $(cat "$work/out")"; fi
TRIREME_MEMORY=much train "${tiny[@]}" train.folder="$work/micro" --dry-run
expect 'memory that is no number' 0
[ "$(grep -c "TRIREME_MEMORY='much' is ignored" "$work/err")" = 1 ] || fail "TRIREME_MEMORY=much: $(cat "$work/err")"
refuse 3 'train.folder: the name of the run.s folder is empty' train.folder=
refuse 3 'train.folder: [0-9]+ bytes are too long for a folder' "train.folder=$(printf 'long/%.0s' {1..900})x"
refuse 10 'in-the-way' train.folder=in-the-way
refuse 10 'in-the-way' train.folder=in-the-way/below
refuse 10 'none.yaml: .*No such file' none.yaml
refuse 10 'pipe.yaml: a pipe' pipe.yaml
refuse 3 'syntax.yaml:3:[0-9]+: not valid YAML' syntax.yaml
refuse 3 'unknown.yaml:3:[0-9]+: .*"model.haeds"; did you mean "model.heads"' unknown.yaml
refuse 3 'number.yaml:3:[0-9]+: .*"many" is not a whole number' number.yaml
refuse 2 "no option '--fast' without a value .see trireme train --help" --fast
refuse 2 "no option '--num-layers' without a value" --num-layers
refuse 2 "no option '--num-layers' without a value" --num-layers --dry-run
refuse 3 'unknown option "num-layer"; did you mean "model.layers"' --num-layer 3
refuse 3 'model.layers: "many" is not a whole number' --num-layers many
refuse 2 "'fast' is neither a run file" fast
refuse 2 '-n needs the number of ranks' -n
refuse 2 '-n needs the number of ranks' -n=

# ---- the fault that tests inject
for bad in rank=1 rank=0,op=F rank=x,op=F,action=kill rank=0,op=F,step=1,action=explode \
  rank=1,op=F,action=kill op=F,action=kill,when=now rank=0,op=F,count=0,action=kill rank=0,op=F,step=0,action=kill garbage; do
  TRIREME_FAULT=$bad refuse 3 "TRIREME_FAULT '$bad': .*rank=R,op=NAME"
done

# ---- exit 2 without a command or with a wrong one; help and version
timeout 10 "$TRIREME" >out 2>err
rc=$?
if [ $rc != 2 ] || ! grep -q '^usage: trireme COMMAND' err; then fail "no arguments: exit $rc: $(said)"; fi
timeout 10 "$TRIREME" trian >out 2>err
rc=$?
if [ $rc != 2 ] || ! grep -q "there is no command 'trian'; did you mean 'train'?" err; then fail "no such command: exit $rc: $(said)"; fi
for words in --help 'train --help' 'train --help lr' 'train -h' --version; do
  # shellcheck disable=SC2086
  timeout 10 "$TRIREME" $words >out 2>err || fail "$words: exit $?"
  if [ -s err ] || [ ! -s out ]; then fail "$words: $(said)"; fi
done
grep -Eq '^trireme [0-9]+\.[0-9]+' out || fail "--version: $(cat out)"
timeout 10 "$TRIREME" train --help lr >out
grep -q 'lr.warmup' out || fail "--help lr does not list lr.warmup"
! grep -q 'model.width' out || fail "--help lr lists model.width"
if grep -q '9e+15' out; then fail "--help lr has a bound that nobody can read"; fi
timeout 10 "$TRIREME" train --help parallel >out
if [ "$(grep -c '1 in this version' out)" != 2 ]; then fail "--help parallel does not say that tp and cp are 1"; fi
timeout 10 "$TRIREME" --help >out
grep -q '1 internal error' out || fail "--help does not list exit code 1"
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

# ---- the same setting, written differently
written() { # WIDTH RANKS ARGUMENTS
  local width=$1 ranks=$2
  shift 2
  train "${base[@]}" "$@" --print-config
  expect "$*" 0
  grep -Eq "^ +width: $width( |\$)" out || fail "$*: $(grep width out)"
  grep -Eq "^ +ranks: $ranks( |\$)" out || fail "$*: $(grep ranks out)"
}
written 48 2 --hidden-size=48 -n2
written 48 2 --hidden-size 48 -n=2
written 48 2 width=48 -n 2
written 48 2 --n_embd 48 --nproc-per-node 2
cp text.txt odd.yaml # the value of an option is no run file
train "${base[@]}" --data-path odd.yaml --dry-run
expect "a text named like a run file" 0
grep -q '^data    odd.yaml ' out || fail "--data-path FILE: $(said)"

# ---- every preset is a plan
for preset in "$presets"/*.yaml; do
  train "$preset" data.path="$work/text.txt" train.folder="$work/run" --dry-run
  expect "$preset" 0
  if [ -e run ]; then fail "$preset: a dry run has made the folder"; fi
done

# ---- --dry-run: the plan and nothing else
train "${base[@]}" -n 3 --dry-run
expect "dry run" 0
grep -q '^plan    3 ranks x 1 thread, ' out || fail "dry run does not print the plan: $(cat out)"
whole_lines | grep -Eq '^data .* [1-9][0-9]+ validation sequences of 32; each evaluation uses 6$' || fail "dry run does not count the validation: $(cat out)"
grep -q '^memory ' out || fail "dry run does not print the memory"
if [ -e run ]; then fail "a dry run has made the folder"; fi
train "${base[@]}" -n 2 --program
expect "program" 0
grep -q 'REDUCE' out || fail "the program of two ranks has no REDUCE"
if [ -e run ]; then fail "--program has made the folder"; fi
train "${base[@]}" train.eval_samples=0 --dry-run
whole_lines | grep -q '; each evaluation uses all [1-9]' || fail "an evaluation that uses all does not say so: $(cat out)"
train "${base[@]}" data.val_fraction=0 --dry-run
grep -q ' 0 validation sequences of 32; no evaluation$' out || fail "no validation is not said: $(cat out)"
grep -q '^plan    1 rank x ' out || fail "one rank: $(grep '^plan' out)"
if grep -q '^note' out; then fail "a note about usual settings: $(grep '^note' out)"; fi

# ---- --json: the plan as one object
train "${base[@]}" --json
expect "json" 0
if command -v python3 >/dev/null; then
  python3 -c 'import json, sys; p = json.load(open(sys.argv[1])); assert p["evaluation_samples"] == 6 < p["validation_samples"] and p["steps"] == 8' out ||
    fail "--json: $(cat out)"
elif [ "$(head -n 1 out)" != '{' ] || [ "$(tail -n 1 out)" != '}' ] || ! grep -q '^  "evaluation_samples": 6,$' out; then
  fail "--json: $(cat out)"
fi

# ---- notes: what works and is hardly meant
note() { # REGEX ARGUMENTS
  local regex=$1
  shift
  train "${base[@]}" "$@" --dry-run
  expect "$*" 0
  whole_lines | grep -Eq "^note    $regex" || fail "$*: no note /$regex/: $(cat out)"
  if [ "$(grep -c '^note' out)" != 1 ]; then fail "$*: not one note: $(cat out)"; fi
}
note 'lr.min_lr 0.01 is above lr.lr 0.001' lr.lr=1e-3 lr.min_lr=1e-2
note 'lr.kind=wsd with lr.decay_steps=0: .* stays at 0.001' lr.lr=1e-3 lr.kind=wsd
note 'lr.warmup of 16 steps takes up all 8 of the run: .* ends at 0.0005' lr.lr=1e-3 lr.warmup=16
note '1 rank x 1024 threads on [0-9]+ cores?: threads take turns' run.threads=1024

train "${base[@]}" train.steps=0
expect "no steps" 0
finish
