#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 60
# `trireme plan stages`: cuts by FLOPs, time, memory and by hand, the sums of the table, files of tokens, and wrong uses.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
TRIREME_PRESETS=$(cd "$(dirname "$0")/../../presets" && pwd)
export TRIREME_PRESETS
cd "$work" || exit 1

stages() { # where lib.sh looks for what the last command printed
  timeout 20 "$TRIREME" plan stages "$@" >out 2>err
  rc=$?
}

shows() { # PATTERNS -- ARGUMENTS
  local patterns=() pattern
  while [ "$1" != -- ]; do patterns+=("$1") && shift; done
  shift
  stages "$@"
  expect "plan stages $*" 0
  for pattern in "${patterns[@]}"; do grep -Eq -- "$pattern" out || fail "no /$pattern/ in: $(cat out)"; done
}

refused() { # CODE PATTERN ARGUMENTS...
  local code=$1 pattern=$2
  shift 2
  stages "$@"
  expect "plan stages $*" "$code" "$pattern"
}

# The head of GPT-2 weighs as much as five layers, so it stands alone; in time it is less.
shows '^gpt2, 1f1b: p 4, 4 stages, m 8; 1 sequence of 1024 tokens a micro-batch, bf16$' 'layers +4,4,4,0$' \
  '^  3 +3 +0 +38\.6M ' 'stage with the most FLOP +3$' -- --model gpt2 -p 4 -m 8
shows 'layers +3,3,3,3$' 'stage with the most time +3$' '^  0 .* ms ' -- --model gpt2 -p 4 --by time --cluster h100-sxm-80
shows 'layers +2,5,5,0$' -- --model gpt2 -p 4 --memory 1.2GB
shows 'layers +1,4,5,2$' -- --model gpt2 -p 4 --by memory
shows 'layers +3,3,3,3$' 'above the mean +87\.08 %' -- --model gpt2 -p 4 --layers 3,3,3,3
shows '^  0 +0 .* 8 ' '^  7 +0 .* 1 ' 'rank with the most FLOP' -- --model gpt2 -p 4 -m 8 --schedule zbv
shows ' and rank ' '^  0 +0 +3 ' '^  2 +2 +1 ' -- --model gpt2 -p 4 -m 8 --schedule dualpipe
shows 'sequence of 512 tokens a micro-batch, f32$' -- --model gpt2 -p 2 --seq 512 --precision f32
printf '0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n' >own.csv
cp own.csv lists
shows '^gpt2, own: p 2, 2 stages, m 2;' -- --model gpt2 --schedule own.csv
shows '^gpt2, lists: p 2, 2 stages, m 2;' -- --model gpt2 --schedule lists

# Parameters of all stages are those of the model and, on another rank, its tied embedding (50257 x 768) once more; FLOPs are
# 3 x 2 per matrix parameter and token, and attention.
stages --model gpt2 -p 4 -m 8 --json
expect 'stages --json' 0
if command -v python3 >/dev/null; then
  python3 - <<'PY' || fail "the sums of: $(cat out)"
import json
all = json.load(open("out"))
stages = all["stages"]
assert all["plan"] == "stages" and all["schedule"] == "1f1b" and (all["p"], all["v"], all["m"], all["sequence"]) == (4, 1, 8, 1024)
assert sum(s["parameters"] for s in stages) == 124439808 + 50257 * 768
assert sum(s["layers"] for s in stages) == 12 and [s["alive"] for s in stages] == [4, 3, 2, 1]
assert all["rank_bytes"] == max(s["memory_bytes"] for s in stages)
for s in stages:
    assert s["memory_bytes"] == 18 * s["parameters"] + s["activation_bytes"]
most = max(s["flops"] for s in stages)
assert abs(all["imbalance"] - (most * 4 / sum(s["flops"] for s in stages) - 1)) < 1e-9
PY
fi

refused 2 '--model is missing' -p 4
refused 2 '-p is missing' --model gpt2
refused 2 '--by time needs a --cluster' --model gpt2 -p 4 --by time
refused 2 'leave out --precision f32' --model gpt2 -p 4 --cluster h100-sxm-80 --precision f32
refused 2 "did you mean '--layers'" --model gpt2 -p 4 --layer 3
refused 2 '-p, -v and -m are in the file own.csv' --model gpt2 -p 2 --schedule own.csv
refused 3 'mixtral-8x7b is a model that train cannot build.*trireme simulate --model mixtral-8x7b --layers balanced' --model mixtral-8x7b -p 4
refused 3 'no model .gpt22.' --model gpt22 -p 4
refused 3 'did you mean zb_h1' --model gpt2 -p 4 --schedule zb_h3
refused 3 'p 2 or p 4 works' --model gpt2 -p 3 -m 8 --schedule dualpipe
refused 3 'can be cut into at most 14; p x v up to 14 works' --model gpt2 -p 15
refused 3 'do not fit into .* a rank: cut for memory alone, rank' --model gpt2 -p 4 --memory 0.9GB
refused 3 'makes 11 layers; the model has 12' --model gpt2 -p 4 --layers 3,3,3,2
refused 3 'has 3 counts for 4 stages' --model gpt2 -p 4 --layers 4,4,4
refused 3 'longer than the 1024 tokens' --model gpt2 -p 4 --seq 2048
printf '0F0,0B0\n1F0,1X0\n' >bad.csv
refused 3 'bad.csv, line 2, token "1X0"' --model gpt2 --schedule ./bad.csv
finish
