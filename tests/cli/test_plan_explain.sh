#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 60
# `trireme plan explain` on a fabric: a row for each axis with its calls, bytes, tier and verdict, experts among them; which parts of the
# cluster fail together with how many replicas; and both follow the map, the fabric and the plan.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/plan.sh"
explain() { # NAME ARGUMENTS...
  local name=$1
  shift
  "$TRIREME" plan explain "$@" >"$work/$name" 2>"$work/err" || fail "explain $*: $(cat "$work/err")"
}

# 32 hosts of 4 below leaves of 8 hosts, 4 to 1 above them; every kind of part fails.
cat >"$work/fabric.yaml" <<'END'
name: hall
device:
  name: d
  peak:
    bf16: 400
    source: test
  memory:
    size: 80
    bandwidth: 2000
    source: test
  link:
    bandwidth: 200
    processors: 0.1
    devices: 4
    source: test
  network:
    bandwidth: 200
    source: test
hosts: 32
host_devices: 4
mtbf: 24000
source: test
fabric:
  leaf_hosts: 8
  leaf_oversubscription: 4
  host_mtbf: 12000
  switch_mtbf: 48000
  source: test
END
sed 's/leaf_oversubscription: 4/leaf_oversubscription: 1/' "$work/fabric.yaml" >"$work/full.yaml"
moe=(model=qwen3-30b-a3b precision.compute=bf16 data.sequence=4096 batch.sequences=256 batch.micro=1 plan.cluster="$work/fabric.yaml"
  tp=4 pp=2 ep=8 zero=1 --json)
explain moe "${moe[@]}"
explain full "${moe[@]}" plan.cluster="$work/full.yaml"
explain outside "${moe[@]}" parallel.map=dp,cp,tp,pp
explain dense model=llama3-8b "${moe[@]:1}" plan.ep=1
explain one model=llama3-8b precision.compute=bf16 data.sequence=4096 batch.sequences=4 batch.micro=1 plan.cluster="$work/fabric.yaml" plan.devices=1 --json
python3 - "$work" <<'END' || fail "the tables of explain"
import json, math, sys
load = lambda name: json.load(open(f"{sys.argv[1]}/{name}"))
near = lambda a, b: abs(a / b - 1) < 1e-6
moe, full, outside, dense, one = map(load, ("moe", "full", "outside", "dense", "one"))
rows = lambda told: {(r["axis"], r["primitive"]): r for r in told["traffic"]}
term = lambda told, name: sum(t["seconds"] for t in told["time"] if t["term"] == name)
exposed = lambda told, axis: sum(r["exposed_s"] for r in told["traffic"] if r["axis"] == axis)
found = rows(moe)
assert {axis for axis, _ in found} == {"tp", "ep", "pp", "dp"}, found
for r in moe["traffic"] + full["traffic"] + outside["traffic"]:
    assert 0 < r["exposed_s"] <= r["seconds"] and r["calls"] > 0 and r["bytes"] > 0 and r["carries"], r
    enough = r["needs_bytes_per_s"] is not None and r["has_bytes_per_s"] >= r["needs_bytes_per_s"]
    assert r["verdict"].startswith("enough") == enough, r
    assert enough or r["needs_bytes_per_s"] is None or ("needs" in r["verdict"] and r["tier"] in r["verdict"]), r
# Tensor groups fill a host. The pipeline's halves are 16 hosts apart, replicas of a stage on all 16 hosts of a half.
tensor = next(r for r in moe["traffic"] if r["axis"] == "tp")
assert tensor["ranks"] == 4 and tensor["tier"] == "fast links", tensor
pipe = next(r for r in moe["traffic"] if r["axis"] == "pp")
assert pipe["ranks"] == 2 and pipe["tier"] == "network above the leaves", pipe
# What sticks out of an axis is its term of the step.
for axis, name in ("tp", "tp"), ("ep", "ep"), ("dp", "grads"):
    assert near(exposed(moe, axis), term(moe, name)), (axis, exposed(moe, axis), term(moe, name))
# A message is the activations of a micro-batch, of which each tensor rank sends its part.
assert near(pipe["payload_bytes"], 4096 * 2048 * 2 / 4), pipe
experts = next(r for r in moe["traffic"] if r["axis"] == "ep")
assert experts["primitive"] == "all-to-all" and experts["ranks"] == 8 and experts["carries"] == "tokens", experts
assert any(r["axis"] == "dp" and r["ranks"] == 16 for r in moe["traffic"]), found
assert not any(r["axis"] == "ep" for r in dense["traffic"]) and any(r["axis"] == "tp" for r in dense["traffic"])
assert "traffic" not in one or not one["traffic"]
assert 0 < moe["processor_share"] < 0.1, moe["processor_share"]
# Links above the leaves that carry as much as those below help, and nothing that stays on a host feels them.
assert full["step_s"] < moe["step_s"]
same = lambda r: (r["axis"], r["carries"], r["primitive"])
for a, b in zip(moe["traffic"], full["traffic"]):
    assert same(a) == same(b) and a["bytes"] == b["bytes"] and a["has_bytes_per_s"] <= b["has_bytes_per_s"] * (1 + 1e-9), (a, b)
    assert a["tier"] == "network above the leaves" or a["has_bytes_per_s"] == b["has_bytes_per_s"], (a, b)
# With replicas innermost, tensor groups go over the network, and the step takes longer.
moved = next(r for r in outside["traffic"] if r["axis"] == "tp")
assert moved["tier"] != "fast links" and moved["bytes"] == tensor["bytes"] and outside["step_s"] > moe["step_s"], moved
assert not moved["verdict"].startswith("enough"), moved
# What fails together: 128 devices in 32 hosts below 4 leaves; a host has one tensor group, so one replica; a leaf has 8 hosts.
parts = {p["part"]: p for p in moe["failures"]}
for name, devices, replicas, count, mtbf in (("device", 1, 1, 128, 24000), ("host", 4, 1, 32, 12000), ("leaf switch", 32, 8, 4, 48000)):
    p = parts[name]
    assert (p["devices"], p["replicas"], p["count"]) == (devices, replicas, count) and near(p["per_day"], 24 * count / mtbf), p
assert {p["part"]: p for p in outside["failures"]}["host"]["replicas"] == 4
END

explain text "${moe[@]:0:${#moe[@]}-1}"
says text '^  axis +carries +as +over +ranks' '^  ep +tokens +all-to-all' '^  tp +activations .* fast links +4 ' '^  dp +' \
  '^  activations: tp|^  tokens: ep|^  gradients: dp|needs: the rate' '^  communication takes of the processor +[0-9.]+ %' \
  '^  when one fails +devices +replicas' '^  leaf switch +32 +8 +4 '
# Of 72 devices that fast links join, groups of 16 fill 64.
explain domain model=llama3-70b precision.compute=bf16 data.sequence=4096 batch.sequences=576 batch.micro=1 --cluster gb200-nvl72 --devices 576 tp=16 zero=1
says domain '^  used of each set that fast links join +64$' '^  fast links +72 '
finish
