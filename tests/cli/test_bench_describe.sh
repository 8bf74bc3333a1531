#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 600
# `trireme bench ... --write FILE.yaml`: each benchmark writes its sections of one description and leaves the others, and what people
# wrote beside them, as they are; the planner takes the file, the device alone and all of it. Figures are not judged.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/bench.sh
. "$(dirname "$0")/bench.sh"
plan() { "$TRIREME" plan "$@" >out 2>err; }

# The device alone is a cluster that plan takes.
bench kernel --write here.yaml
expect 'kernel --write' 0
says here.yaml '^name: ' '^hosts: 1$' '^host_devices: [0-9]' '^device:$' '^  peak:' '^    f32: [0-9]' '^    bf16: [0-9]' '^  fit:'
if grep -q '^kernels:' here.yaml; then fail 'bench kernel writes prices, which steps have'; fi
plan --model gpt2-tiny --cluster here.yaml --devices 1 --batch 8seq --seq 64 || fail "plan: $(cat err)"
plan train model=gpt2-tiny --cluster here.yaml && fail 'a step was predicted without prices'
says err 'here.yaml has no kernels'

# Steps add prices; what was written by hand stays, and so does a name.
sed -i 's/^name: .*/name: "my machine"/' here.yaml
printf '# a note\nprice: 2.5\n' >>here.yaml
bench step --write here.yaml layouts=1x1 precision.compute=f32 train.steps=1
expect 'step --write' 0
says here.yaml '^name: "my machine"$' '^# a note$' '^price: 2.5$' '^kernels:' 'kind: attention, pass: backward, type: f32, ranks: 1, threads: 1' 'kind: swiglu'
says out '^1 x 1, f32 ' '^written: here.yaml$'
[ "$(grep -c '^device:' here.yaml)" = 1 ] || fail 'the device is there twice'
plan train model=gpt2-tiny data.sequence=32 batch.micro=1 batch.sequences=2 run.threads=1 -n 2 --cluster here.yaml || fail "plan train: $(cat err)"
plan train model=llama-tiny data.sequence=32 batch.micro=1 batch.sequences=2 run.threads=1 --cluster here.yaml || fail "plan train: $(cat err)"

# Links join them. A second measurement replaces the first.
settled bench comm barrier -n 2 --write here.yaml
expect 'comm --write' 0
settled bench comm barrier -n 2 --write here.yaml
expect 'comm --write again' 0
[ "$(grep -c '^links:' here.yaml)" = 1 ] || fail "links are there $(grep -c '^links:' here.yaml) times"
says here.yaml '^name: "my machine"$' '^kernels:' 'tier: host'
pipe=(model=gpt2-tiny model.layers=2 data.sequence=32 batch.micro=1 batch.sequences=4 run.threads=1 -n 2 pp=2)
plan train "${pipe[@]}" --cluster here.yaml --json || fail "plan train: $(cat err)"
says out '"term": "pp"' '"term": "bubble"'

# Wrong uses.
refused 2 'describes a core of this machine; give nothing else' kernel matmul --write here.yaml
refused 2 'leave out the model' step gpt2 --write here.yaml
refused 2 'stands alone and describes this machine' --write here.json
refused 2 'stands alone and describes this machine' --write here.yaml gpt2
printf 'name: [\n' >bad.yaml
refused 3 'bad.yaml' kernel --write bad.yaml
[ "$(cat bad.yaml)" = 'name: [' ] || fail 'a file that is no YAML was changed'
finish
