#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 60
# `trireme plan`: the search as a table, as JSON and with its reasons, predictions of published runs row for row, and wrong
# uses by name. The plan that it writes says the same when it is explained, changes as asked, and is trained as it is.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/plan.sh"

plan --model llama3-70b --cluster dgx-h100 --devices 64 --batch 128seq --seq 8192 --top 3 || fail "search: $(cat "$work/err")"
says out '^cluster dgx-h100: 64 x H100' '^ +1 ' '^ +3 ' 'within the'
plan --model llama3-8b --cluster h100-sxm-80 --batch 1M --seq 8192 --fix tp=2 --fix recompute=full --explain || fail "$(cat "$work/err")"
says out '^time of the best' 'compute' 'weights' '^ +tp +2 ' 'twice the'
plan --model llama3-8b --cluster dgx-a100 --devices 16 --batch 64seq --json || fail "$(cat "$work/err")"
python3 - "$work/out" <<'END' || fail "the JSON does not add up"
import json, sys
found = json.load(open(sys.argv[1]))
steps = [p["step_s"] for p in found["plans"]]
assert steps == sorted(steps) and len(steps) == 5, steps
for p in found["plans"]:
    assert p["tp"] * p["pp"] * p["dp"] * p["cp"] == 16
    assert abs(sum(p["time_s"].values()) / p["step_s"] - 1) < 1e-9
    assert p["step_low_s"] < p["step_s"] < p["step_high_s"] and p["memory_bytes"] <= 80 * 2**30
END

refused 3 'no plan fits: the smallest lacks' --model llama3-405b --cluster dgx-h100 --devices 8 --batch 64seq
refused 3 "did you mean 'dgx-h100'" --model llama3-8b --cluster dgx-h10 --batch 1M
refused 2 '--batch is missing' --model llama3-8b --cluster dgx-h100
refused 2 '9223372036854775807seq is 9223372036854775807 sequences; at most 268435456 work' --model llama3-8b --cluster dgx-h100 --batch 9223372036854775807seq
refused 2 '9223372036854775807 is 2251799813685247 sequences; at most' --model llama3-8b --cluster dgx-h100 --batch 9223372036854775807
refused 2 '10 is less than half a sequence of 4096 tokens; --batch 1seq works' --model llama3-8b --cluster dgx-h100 --batch 10
refused 2 "no knob like 'foo=3'" --model llama3-8b --cluster dgx-h100 --batch 1M --fix foo=3
refused 2 "did you mean 'evaluate'" evaluat x.csv
refused 2 'fix names tp twice, in tp=2 and tp=4; give one' --model llama3-8b --cluster dgx-h100 --batch 1M --fix tp=2 --fix zero=1 --fix tp=4
refused 3 'model.imbalance is 3; the model has no experts' --model llama3-8b --cluster dgx-h100 --batch 1M --imbalance 3
refused 2 "zero takes a stage from 0 to 3, not '9'" --model llama3-8b --cluster dgx-h100 --batch 1M --fix zero=9
refused 2 "tp takes a number from 1 on, not '0'" --model llama3-8b --cluster dgx-h100 --batch 1M --fix tp=0
refused 3 'as asked; tp=2 would work' --model llama3-8b --cluster dgx-h100 --devices 16 --batch 64seq --fix tp=3
refused 3 'as asked; pp=2 or vpp=1 would work' --model llama3-8b --cluster dgx-h100 --devices 16 --batch 64seq --fix vpp=4 --fix pp=1
refused 10 'x.csv' evaluate "$work/x.csv"

# A machine of two devices whose figures do not matter.
cat >"$work/device.yaml" <<'END'
name: here
peak:
  bf16: 0.1
  source: test
memory:
  size: 2
  bandwidth: 10
  reserved: 0.1
  source: test
link:
  bandwidth: 8
  devices: 2
  source: test
network:
  bandwidth: 10
  source: test
END

# A device in whose place a cluster could stand: the sentence is about the device.
sed 's/size: 2/size: -2/' "$work/device.yaml" >"$work/wrong.yaml"
refused 3 'wrong.yaml:6:9: memory.size: -2 is out of range' --model gpt2-tiny --cluster "$work/wrong.yaml" --batch 8seq

# Search, file and explanation agree.
plan --model llama3-70b --cluster dgx-h100 --devices 64 --batch 128seq --seq 8192 --json --write "$work/large.yaml" || fail "$(cat "$work/err")"
cp "$work/out" "$work/found.json"
plan explain "$work/large.yaml" --json || fail "explain: $(cat "$work/err")"
cp "$work/out" "$work/explained.json"
plan what-if "$work/large.yaml" tp=8 vpp=1 recompute=full --json || fail "what-if: $(cat "$work/err")"
python3 - "$work" <<'END' || fail "search, explain and what-if differ"
import json, sys
load = lambda name: json.load(open(sys.argv[1] + "/" + name))
found, told, both = load("found.json")["plans"][0], load("explained.json"), load("out")
assert abs(told["step_s"] / found["step_s"] - 1) < 1e-9 and abs(told["memory_bytes"] / found["memory_bytes"] - 1) < 1e-9
assert abs(sum(t["seconds"] for t in told["time"]) / told["step_s"] - 1) < 1e-9
assert abs(sum(m["bytes"] for m in told["memory"]) / told["memory_bytes"] - 1) < 1e-9
assert told["binds"] == "compute", told["binds"]
step = [t for t in both["time"] if t["term"] == "step"][0]
assert abs(step["before_s"] / found["step_s"] - 1) < 1e-9 and step["after_s"] > step["before_s"]
assert "tp 8, pp " in both["after"] and ", vpp 1, " in both["after"] and "recompute full" in both["after"], both["after"]
END
# Other schedules by their names; those of several stages per rank have two.
plan what-if "$work/large.yaml" tp=8 pp=8 vpp=1 recompute=full parallel.schedule=zb_h1 --json || fail "schedule: $(cat "$work/err")"
cp "$work/out" "$work/split.json"
plan what-if "$work/large.yaml" tp=8 pp=8 vpp=1 recompute=full --json || fail "schedule: $(cat "$work/err")"
python3 - "$work" <<'END' || fail "schedules do not differ as they should"
import json, sys
load = lambda name: json.load(open(sys.argv[1] + "/" + name))
term = lambda told, name: [t["after_s"] for t in told["time"] if t["term"] == name][0]
split, plain = load("split.json"), load("out")
assert split["after"].endswith("schedule zb_h1") and "schedule" not in plain["after"], (split["after"], plain["after"])
assert term(split, "bubble") < 0.8 * term(plain, "bubble") and term(split, "compute") == term(plain, "compute")
END
plan explain "$work/large.yaml" tp=8 pp=4 plan.vpp=2 parallel.schedule=interleaved_zb || fail "schedule: $(cat "$work/err")"
says out 'vpp 2, .*schedule interleaved_zb'
refused 3 'no schedule is called "zb_h9"' explain "$work/large.yaml" tp=8 pp=4 vpp=1 parallel.schedule=zb_h9
refused 3 'parallel.stages: "20,20,20,20" is not predicted, only balanced stages' explain "$work/large.yaml" tp=8 pp=4 vpp=1 parallel.stages=20,20,20,20
refused 3 'parallel.group: 8 is not predicted, only groups of parallel.pp=4' explain "$work/large.yaml" tp=8 pp=4 vpp=2 parallel.group=8
plan explain "$work/large.yaml" recompute=none micro=4 || fail "explain: $(cat "$work/err")"
says out 'does-not-fit' 'a device lacks' 'what binds it +memory' 'nearest change that helps +[a-z]+='
refused 3 'parallel.tp: tp x pp x cp is [0-9]+, which does not divide the 64 devices; tp=2 or tp=4 would work' explain "$work/large.yaml" tp=3
refused 3 'did you mean "parallel.tp"' explain "$work/large.yaml" parallel.tpp=3
refused 3 'plan.cluster is missing' explain model=llama3-8b precision.compute=bf16
printf 'name: dgx-h100\ndevice: h100-sxm-80\nhosts: 64\nhost_devices: 8\nsource: test\n' >"$work/512.yaml"
refused 3 'plan.devices is missing: all 512 of dgx-h100 .*dp 512, .* do not divide batch.sequences=24; --devices 24 works' explain model=gpt2 \
  precision.compute=bf16 batch.sequences=24 batch.micro=1 plan.cluster="$work/512.yaml"
refused 3 'f32 cannot be predicted' explain model=llama3-8b --cluster dgx-h100 run.ranks=8
refused 2 'give what changes as FIELD=VALUE' what-if "$work/large.yaml"
refused 10 'gone' --model llama3-8b --cluster dgx-h100 --devices 8 --batch 1M --write "$work/gone/plan.yaml"

# One of anything is singular, and a count of parameters reads the same everywhere.
plan --model gpt2-tiny --cluster h100-sxm-80 --devices 1 --batch 1seq --seq 64 --top 1 --write "$work/one.yaml" || fail "one: $(cat "$work/err")"
says out '^model   gpt2-tiny: 246k parameters$' '^batch   1 sequence of 64 tokens'
plan explain "$work/one.yaml" || fail "one: $(cat "$work/err")"
says out ': 1 x H100-SXM-80, 1 sequence of 64 tokens$'
plan stages --model gpt2-tiny -p 1 -m 1 || fail "one: $(cat "$work/err")"
says out ': p 1, 1 stage, m 1; 1 sequence of [0-9]+ tokens a micro-batch' '^ +0 .* 249k '
plan report "$work/one.yaml" --write "$work/one.html" || fail "one: $(cat "$work/err")"
says one.html '246k parameters, 1 x H100-SXM-80; 1 sequence of 64 tokens a step' 'Each place in the pipeline is one rank' '1 rank, 1 micro-batch'
refused 3 'the model has only 4 layers' explain model=gpt2-tiny precision.compute=bf16 --cluster h100-sxm-80 --devices 8 pp=8 batch.sequences=8 batch.micro=1

# Warnings: memory saved that nothing needs, and what a small model was seen to lose. None where there is nothing to say.
small=(--model llama3-8b --cluster dgx-h100 --devices 64 --batch 128seq --seq 8192)
plan "${small[@]}" --fix recompute=full --overhead 125e6:0.4 || fail "warnings: $(cat "$work/err")"
says out '^warning \(memory-alone\): .* times as long as the fastest that fits' '^warning \(small-model-overhead\): 40 % of communication'
plan "${small[@]}" --fix recompute=full --json || fail "warnings: $(cat "$work/err")"
says out '"name": "memory-alone"'
plan "${small[@]}" --overhead 125e6:0.01 || fail "no warnings: $(cat "$work/err")"
grep -q warning "$work/out" && fail "a warning without a reason: $(grep warning "$work/out")"
refused 2 "overhead takes PARAMS:SHARE as in 125e6:0.1, not '125e6'" "${small[@]}" --overhead 125e6
refused 2 'a share of at most 1' "${small[@]}" --overhead 125e6:40

# What bench comm measures here is what the planner reads.
printf 'name: here\ndevice: %s\nhosts: 1\nhost_devices: 2\nsource: test\n' "$work/device.yaml" >"$work/cluster.yaml"
here=(--model gpt2-tiny --batch 8seq --seq 64 --fix dp=2 --json)
plan "${here[@]}" --cluster "$work/cluster.yaml" || fail "cluster: $(cat "$work/err")"
cp "$work/out" "$work/unmeasured.json"
measure() {
  "$TRIREME" bench comm all-reduce -n 2 bench.seconds=1ms bench.sizes=8..64Ki --write "$work/links.yaml" >"$work/out" 2>"$work/err"
  rc=$?
}
settled measure
if [ "$rc" != 0 ]; then fail "bench: $(cat "$work/err")"; fi
cat "$work/links.yaml" >>"$work/cluster.yaml"
plan "${here[@]}" --cluster "$work/cluster.yaml" || fail "measured links: $(cat "$work/err")"
cmp -s "$work/out" "$work/unmeasured.json" && fail "measured links change nothing"
sed -i 's/tier: host/tier: rack/' "$work/cluster.yaml"
refused 3 "cluster.yaml:.*links.tier is 'rack'; it must be host or network" "${here[@]}" --cluster "$work/cluster.yaml"

# The frontier: nothing on it is beaten by another point; its first is the search's winner; no price, no cost.
asked=(--model llama3-8b --cluster dgx-h100 --devices 32 --batch 64seq --seq 8192)
plan "${asked[@]}" --pareto time,memory,cost --price 2 --json || fail "pareto: $(cat "$work/err")"
cp "$work/out" "$work/pareto.json"
plan "${asked[@]}" --json || fail "search: $(cat "$work/err")"
python3 - "$work" <<'END' || fail "the frontier is none"
import json, sys
load = lambda name: json.load(open(sys.argv[1] + "/" + name))
points, best = load("pareto.json")["points"], load("out")["plans"][0]
assert points[0]["step_s"] == min(p["step_s"] for p in points) and abs(points[0]["step_s"] / best["step_s"] - 1) < 1e-9
assert {8, 32} <= {p["devices"] for p in points}, {p["devices"] for p in points}
keys = ["step_s", "memory_bytes", "price_step"]
for p in points:
    assert abs(p["price_step"] / (2 * p["devices"] * p["step_s"] / 3600) - 1) < 1e-9
    assert not any(q is not p and all(q[k] <= p[k] for k in keys) for q in points), p
END
# Points are simulated as the search's winner is, so its first is that one; schedules are named; positions grow as train's do.
few=(--model llama-tiny --cluster hgx-b200 --devices 24 --batch 16seq --seq 4096)
plan "${few[@]}" --json || fail "few: $(cat "$work/err")"
cp "$work/out" "$work/few.json"
plan --model gpt2 --cluster h100-sxm-80 --batch 64seq || fail "gpt2: $(cat "$work/err")"
says out '^model   gpt2: 124M parameters$' '^batch   64 sequences of 1024 tokens'
plan "${few[@]}" --pareto time --json || fail "few: $(cat "$work/err")"
cp "$work/out" "$work/fastest.json"
long=(--model gpt2-tiny --cluster a100-sxm-80 --devices 8 --batch 64seq --seq 4096)
plan "${long[@]}" --json --write "$work/long.yaml" || fail "long: $(cat "$work/err")"
cp "$work/out" "$work/long.json"
plan explain "$work/long.yaml" --json || fail "long: $(cat "$work/err")"
python3 - "$work" <<'END' || fail "search, frontier and explanation differ"
import json, sys
load = lambda name: json.load(open(sys.argv[1] + "/" + name))
same = lambda a, b: abs(a / b - 1) < 1e-9
assert same(load("few.json")["plans"][0]["step_s"], load("fastest.json")["points"][0]["step_s"])
assert all(same(load("long.json")["plans"][0][k], load("out")[k]) for k in ["step_s", "memory_bytes"])
END
plan "${asked[@]}" --fix pp=2 --fix schedule=zb_h1 --pareto time || fail "pareto: $(cat "$work/err")"
says out 'recompute=[a-z]+ schedule=zb_h1'
plan "${asked[@]}" --pareto time,memory || fail "pareto: $(cat "$work/err")"
says out 'better in all of time,memory' 'zero=[0-3] recompute=' 'warning \(memory-alone\)'
refused 3 "neither dgx-h100 nor its device H100-SXM-80 has a price; 'price: 2.5'" "${asked[@]}" --pareto cost
refused 2 "some of time, memory, cost with commas between, not 'time,money'" "${asked[@]}" --pareto time,money
refused 2 "pareto names 'time' twice, in 'time,memory,time'" "${asked[@]}" --pareto time,memory,time
refused 2 'take the best of a search' "${asked[@]}" --pareto time --write "$work/x.yaml"

# What is written is what train takes; axes that this version does not have are refused by name.
plan --model gpt2-tiny --cluster "$work/device.yaml" --devices 2 --batch 8seq --seq 64 --fix tp=1 --fix pp=1 --fix zero=1 --write "$work/small.yaml" ||
  fail "small: $(cat "$work/err")"
train "$work/small.yaml" data.path="$work/text.txt" train.steps=2 train.log_every=1 train.folder="$work/run"
expect "training a written plan" 0
[ "$(losses "$work/run" | wc -l)" = 2 ] || fail "a written plan did not train two steps: $(said)"
grep -q '^  dp: 2$' "$work/small.yaml" || fail "the written plan has no dp of 2"
train "$work/large.yaml" data.path="$work/text.txt"
expect "training a large plan" 3 'parallel.tp: [0-9]* is out of range'

# Mixtures of experts are planned, with their own axis, written and explained; train refuses them by name.
experts=(--model qwen3-30b-a3b --cluster dgx-h100 --devices 32 --batch 256seq --seq 4096 --fix ep=8)
plan "${experts[@]}" || fail "experts: $(cat "$work/err")"
says out '30.5B parameters, 3.35B of them for a token .8 of 128 experts' 'evenly loaded'
plan "${experts[@]}" --imbalance 1.5 --json --write "$work/experts.yaml" || fail "experts: $(cat "$work/err")"
cp "$work/out" "$work/found.json"
says experts.yaml '^  ep: 8$' '^  imbalance: 1.5$' 'from: "qwen3-30b-a3b"'
plan explain "$work/experts.yaml" --json || fail "experts explained: $(cat "$work/err")"
cp "$work/out" "$work/explained.json"
plan what-if "$work/experts.yaml" plan.imbalance=1 model.layers=24 --json || fail "experts changed: $(cat "$work/err")"
python3 - "$work" <<'END' || fail "plans of experts differ"
import json, sys
load = lambda name: json.load(open(sys.argv[1] + "/" + name))
found, told, both = load("found.json")["plans"][0], load("explained.json"), load("out")
assert found["ep"] == 8 and found["time_s"]["ep"] > 0
assert abs(told["step_s"] / found["step_s"] - 1) < 1e-9 and abs(told["memory_bytes"] / found["memory_bytes"] - 1) < 1e-9
step = [t for t in both["time"] if t["term"] == "step"][0]
assert abs(step["before_s"] / found["step_s"] - 1) < 1e-9 and step["after_s"] < 0.6 * step["before_s"], step
END
train model=qwen3-30b-a3b data.path="$work/text.txt"
expect "training experts" 4 "model_type 'qwen3_moe' is not supported"

rows=$(dirname "$0")/../data/plan/published-runs.csv
plan evaluate "$rows" --csv || fail "evaluate: $(cat "$work/err")"
python3 - "$rows" "$work/out" <<'END' || fail "predictions and rows differ"
import csv, sys
rows, out = (list(csv.DictReader(open(name))) for name in sys.argv[1:3])
assert [r["id"] for r in rows] == [r["id"] for r in out]
for r in out:
    if r["predicted_step_time_s"]:
        assert float(r["step_time_low_s"]) < float(r["predicted_step_time_s"]) < float(r["step_time_high_s"]), r
    else:
        assert r["note"], r
assert sum(r["predicted_step_time_s"] != "" for r in out) > 0.9 * len(out)
END
plan evaluate "$rows" --summary || fail "summary: $(cat "$work/err")"
says out '^tier A ' '^order: ' '^peak memory'
printf 'id,gpu\n1,x\n' >"$work/poor.csv"
refused 4 "no column 'n_gpus'" evaluate "$work/poor.csv"
finish
