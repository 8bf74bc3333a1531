#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 60
# `trireme plan train`: settings of train against a description with prices that were made up: times are those prices times calls,
# memory is what `trireme train --json` says, pipelines wait as their schedule says; what cannot be predicted is refused by name.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/plan.sh"

# Each call of a forward pass takes 1 ms, of a backward pass 2 ms, an updated element 1 us, and nothing else anything.
cat >"$work/device.yaml" <<'END'
name: here
device:
  name: a core
  peak:
    f32: 0.1
    bf16: 0.1
    source: test
  memory:
    size: 2
    bandwidth: 10
    source: test
  link:
    bandwidth: 8
    devices: 2
    source: test
  network:
    bandwidth: 10
    source: test
hosts: 1
host_devices: 2
source: test
END
{
  cat "$work/device.yaml"
  printf 'kernels:\n  source: test\n  median: 0.05\n  p90: 0.25\n  prices:\n'
  for kind in embedding layernorm projection attention residual gelu head_loss; do
    printf '    - {kind: %s, pass: forward, type: f32, ranks: 1, threads: 1, call: 1e-3, error: 0}\n' $kind
    printf '    - {kind: %s, pass: backward, type: f32, ranks: 1, threads: 1, call: 2e-3, error: 0}\n' $kind
  done
  printf '    - {kind: update, pass: forward, type: f32, ranks: 1, threads: 1, out: 1e-6, error: 0}\n'
  for kind in pack norm step; do printf '    - {kind: %s, pass: forward, type: f32, ranks: 1, threads: 1, error: 0}\n' $kind; done
} >"$work/here.yaml"

small=(model=gpt2-tiny model.layers=2 data.sequence=16 batch.micro=2 batch.sequences=8 run.threads=1)
plan train "${small[@]}" --cluster "$work/here.yaml" || fail "plan train: $(cat "$work/err")"
says out '^gpt2-tiny, .* parameters: 1 x 1 on here, 8 sequences of 16 tokens' '^  step ' '^  MFU ' '^  compute ' '^  optimizer ' '^  activations '
plan train "${small[@]}" --cluster "$work/here.yaml" --json || fail "plan train: $(cat "$work/err")"
cp "$work/out" "$work/one.json"
"$TRIREME" train "${small[@]}" --json >"$work/train.json" || fail "train --json"
# The cluster may stand in the run file's section plan, as plan --write puts it.
printf 'model:\n  from: gpt2-tiny\n  layers: 2\ndata:\n  sequence: 16\nplan:\n  cluster: %s\n  devices: 2\n' "$work/here.yaml" >"$work/run.yaml"
plan train "$work/run.yaml" batch.micro=2 batch.sequences=16 run.threads=1 recompute=full --json || fail "a run file: $(cat "$work/err")"
cp "$work/out" "$work/again.json"
for schedule in gpipe zb_h1; do
  plan train "${small[@]}" -n 2 pp=2 schedule=$schedule stages=1,1 --cluster="$work/here.yaml" --json || fail "$schedule: $(cat "$work/err")"
  cp "$work/out" "$work/$schedule.json"
  "$TRIREME" train "${small[@]}" -n 2 pp=2 schedule=$schedule stages=1,1 --json >"$work/$schedule.train.json" || fail "train --json"
done
python3 - "$work" <<'END' || fail "what is predicted does not follow from the prices"
import json, sys
load = lambda name: json.load(open(f"{sys.argv[1]}/{name}.json"))
near = lambda a, b: abs(a / b - 1) < 1e-6
pieces = 1 + 2 * 10 + 2  # embedding, layers, norm and head
def terms(told):
    found = {t["term"]: t["seconds"] for t in told["time"]}
    assert near(sum(found.values()), told["step_s"]) and near(sum(t["share"] for t in told["time"]), 1), found
    assert near(sum(m["share"] for m in told["memory"]), 1) and all(m["bytes"] > 0 for m in told["memory"])
    assert near(told["step_low_s"] * 1.25, told["step_s"]) and near(told["step_high_s"], told["step_s"] * 1.25)
    return found
one, train = load("one"), load("train")
found = terms(one)
assert near(found["compute"], 4 * pieces * 3e-3), found
assert found["optimizer"] >= train["parameters"] * 1e-6, found
assert one["memory_bytes"] == train["memory_bytes"] and one["memory_total"] == train["memory_total"]
assert near(one["tokens_per_s"], 8 * 16 / one["step_s"]) and near(one["mfu"], one["tokens_per_s"] * train["flops_per_token"] / 1e11)
again = terms(load("again"))
assert near(again["compute"], 2 * found["compute"]) and near(again["optimizer"], found["optimizer"]), again
assert 0 < again["recompute"] < again["compute"] / 3, again
piped, split = load("gpipe"), load("zb_h1")
for told, name in (piped, "gpipe"), (split, "zb_h1"):
    assert told["memory_total"] == load(name + ".train")["memory_total"], name
assert terms(piped)["bubble"] > terms(split)["bubble"] > 0, (piped, split)
END

refused 2 '--cluster is missing' train "${small[@]}"
refused 2 '--cluster needs a value' train "${small[@]}" --cluster
refused 3 "device.yaml has no kernels: trireme bench step --write" train "${small[@]}" --cluster "$work/device.yaml"
refused 3 "'embedding' \(forward, bf16, 1 rank x 1 thread\) were not measured" train "${small[@]}" precision.compute=bf16 --cluster "$work/here.yaml"
refused 3 '1 rank x 2 threads\) were not measured' train "${small[@]}" run.threads=2 --cluster "$work/here.yaml"
refused 3 "did you mean \"model.layers\"" train "${small[@]}" model.layer=3 --cluster "$work/here.yaml"
# Damaged descriptions, by line.
line=$(grep -n 'kind: update' "$work/here.yaml" | cut -d: -f1)
sed 's/kind: update/&d/; s/out: 1e-6/out: -1/' "$work/here.yaml" >"$work/bad.yaml"
refused 3 "bad.yaml:$line:.*kernels.out is '-1'; it must be a number from 0 to 1" train "${small[@]}" --cluster "$work/bad.yaml"
sed 's/pass: forward, type: f32, ranks: 1, threads: 1, out/pass: forwards, type: f32, ranks: 1, threads: 1, out/' "$work/here.yaml" >"$work/bad.yaml"
refused 3 "bad.yaml:$line:.*kernels.pass is 'forwards'; it must be forward or backward" train "${small[@]}" --cluster "$work/bad.yaml"
sed 's/out: 1e-6/outs: 1e-6/' "$work/here.yaml" >"$work/bad.yaml"
refused 3 "kernels has no field 'outs'; did you mean 'out'" train "${small[@]}" --cluster "$work/bad.yaml"
sed "${line}p" "$work/here.yaml" >"$work/bad.yaml"
refused 3 "kernels has this row of 'update' twice" train "${small[@]}" --cluster "$work/bad.yaml"
plan train --help || fail "help: $(cat "$work/err")"
says out 'usage: trireme plan train' 'example'
finish
