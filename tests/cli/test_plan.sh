#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 60
# `trireme plan`: the search as a table, as JSON and with its reasons, predictions of published runs row for row, and wrong
# uses by name.
. "$(dirname "$0")/lib.sh"
plan() { "$TRIREME" plan "$@" >"$work/out" 2>"$work/err"; }
says() { # FILE PATTERN...
  local file=$1 pattern
  shift
  for pattern in "$@"; do grep -qE -e "$pattern" "$work/$file" || fail "no '$pattern' in: $(head -c 600 "$work/$file")"; done
}
refused() { # RC PATTERN ARGUMENTS...
  local rc=0 want=$1 pattern=$2
  shift 2
  plan "$@" || rc=$?
  [ "$rc" = "$want" ] || fail "plan $*: exit code $rc, not $want"
  says err "$pattern"
}

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
    assert p["step_low_s"] < p["step_s"] < p["step_high_s"] and p["memory_bytes"] <= 80e9
END

refused 3 'no plan fits: the smallest lacks' --model llama3-405b --cluster dgx-h100 --devices 8 --batch 64seq
refused 3 "did you mean 'dgx-h100'" --model llama3-8b --cluster dgx-h10 --batch 1M
refused 2 '--batch is missing' --model llama3-8b --cluster dgx-h100
refused 2 "no knob like 'foo=3'" --model llama3-8b --cluster dgx-h100 --batch 1M --fix foo=3
refused 2 "did you mean 'evaluate'" evaluat x.csv
refused 10 'x.csv' evaluate "$work/x.csv"

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
