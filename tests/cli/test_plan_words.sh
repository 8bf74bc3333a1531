#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 240
# `trireme plan WORD`: the figures on record come out of the commands too, for people and as JSON; every example of the help
# works as it stands; wrong uses end with one sentence that names option, value and what would work.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
TRIREME_PRESETS=$(cd "$(dirname "$0")/../../presets" && pwd)
export TRIREME_PRESETS
cd "$work" || exit 1

plan() { # where lib.sh looks for what the last command printed
  timeout 20 "$TRIREME" plan "$@" >out 2>err
  rc=$?
}

says() { # PATTERN...: in the last output
  local pattern
  for pattern in "$@"; do grep -Eq -- "$pattern" out || fail "no /$pattern/ in: $(cat out)"; done
}

shows() { # PATTERNS -- ARGUMENTS
  local patterns=()
  while [ "$1" != -- ]; do patterns+=("$1") && shift; done
  shift
  plan "$@"
  expect "plan $*" 0
  says "${patterns[@]}"
}

refused() { # CODE PATTERN ARGUMENTS...
  local code=$1 pattern=$2
  shift 2
  plan "$@"
  expect "plan $*" "$code" "$pattern"
}

# value KEY EXPECTED TOLERANCE: of the JSON that was printed last, at its first level or in its first row that has it.
value() {
  local got
  got=$(sed -n "s/^ *\"$1\": \\([-0-9.e+]*\\),*$/\\1/p" out | head -n 1)
  within "$3" "$2" "$got" || fail "\"$1\" is '$got', not $2: $(cat out)"
}

shows 'MTBF of the job +48\.83 h' '^  Young +171\.2 min .* 5\.84 %' '^  as now +15\.0 min .* 33\.59 %' \
  'warning \(fixed-interval\): saving every 15 min' -- checkpoint --devices 1024 --mtbf 50000h --write 5min --restart 0
shows '^  switch +64 ' -- checkpoint --devices 1024 --state 2.8TB --storage 10GB --part switch:64:200000h
shows '^  64 +64 +0 +1720 .* \$53\.21 +40\.1' '^  64, stale by 4 .* \$56\.00 +38\.1 +0\.4472' -- \
  sync --iterations 100k --seconds 0.4s --measured 8:12.8k:0.15 --measured 64:1.72k:0.45 --measured 64:2.1k:0.25:4
shows '^  1 +1 +0 +100000 ' '^  64, stale by 4 ' -- sync --iterations 100k --seconds 0.4s --critical 20k --gradients 400MB
shows 'states +1391 GiB' 'devices that these alone fill +19$' 'keys and values +2\.5 GiB' -- \
  rlhf --policy 70e9 --reward 13e9 --value 13e9 --tp 8 --pp 4
shows 'states +1173 GiB' 'padding .* 87\.89 %' -- rlhf --method dpo --policy 70e9 \
  --lengths 2048:128:128:128:128:128:128:128:128:128:128:128:128:128:128:128
shows 'left in the worst phase +-[0-9.]+ GiB$' -- rlhf --policy 1e12 --tp 8 --pp 4
shows 'does it fit one device\?.*: no' 'tensor parallel +8$' 'rule of thumb says ZeRO and three dimensions, right here' -- \
  tree --params 175e9 --layers 96 --width 12288 --memory 80GB --flops 500e12 --nodes 128
shows 'a pipeline, wrong here' 'is one copy of the model fast enough' -- tree --params 2e9 --layers 24 --width 2560 \
  --memory 80GB --flops 400e12 --nodes 4 --tokens 1e12 --days 30
shows '^  1024 ' 'where adding devices stops paying' -- scaling --params 1.5B --batch 500k --flops 150e12 --between 1.25GB --ports 1
shows '^  8 .* 99\.84 % .* 25\.04 h +\$3205$' '^  32 .* 33\.26 % .* 18\.79 h +\$9621$' -- scaling --step 57.6s --gradients 3GB --inside 450GB --between 1.25GB --ports 1 --alpha 0s \
  --steps 12500 --price 16 --limit 32
shows 'warning \(linear-speedup\): a speed-up of 1024' -- scaling --step 100s --gradients 3GB --limit 1024 --assumed 1024
shows 'critical batch +16000' 'proposed batch +8192' 'linear \(below' 'rate +0\.0064' -- \
  batch --ranks 64 --micro 4 --accumulation 32 --noise 1.6e6 --square 100 --base 128 --rate 1e-4
shows 'warning \(batch-over-critical\)' 'warning \(small-cluster-rate\)' 'warning \(free-accumulation\)' -- batch --ranks 64 --micro 4 \
  --accumulation 32 --critical 1000 --base 128 --rate 1e-4 --chosen 6.4e-3 --pass 1.8s --sync 12ms
shows 'critical batch +1000$' -- batch --small 100:11 --large 1000:2
shows 'operations .* 3\.286e\+24' 'device hours +2883805' 'warning \(mfu-without-scaling\)' -- \
  cost --params 37e9 --tokens 14.8e12 --devices 2048 --peak 989e12 --mfu 0.4 --scaling 0.8
printf 'params,tokens,loss\r\n1e7,2e8,4.9\r\n1e8,2e9,3.9\n\n1e9,2e10,3.2\n' >runs.csv
shows 'runs +3$' 'exponent +0\.04' 'floor +0$' 'operations for the target' -- fit-exponent runs.csv --target 2.8
shows 'warning \(far-extrapolation\)' 'loss at these' -- fit-exponent runs.csv --at 1e25
shows '^  user, by rows .* 240\.3 GiB +30\.04 GiB' '^  day, copied ' 'fullest device +54\.06 GiB' -- embedding --devices 8 --memory 60GB \
  --table user:500e6:128 --table item:50e6:128:20 --table day:366:128
shows '^  E4M3 +1 +448 ' '^  E5M2 +1 +5\.734e\+04' '^  weights +13\.04 GiB +6\.519 GiB' '^  gradients +14 GB +14 GB' -- precision --params 7e9
shows '^  6N \+ 12LdS +3\.278e\+12 +46\.2. %' '^  6N .* 45\.7. % +60\.9' -- mfu --params 540.35e9 --layers 118 --width 12288 --sequence 2048 \
  --rate 238.3e3 --devices 6144 --peak 275e12 --recomputed 1

shows '^cluster|^dgx-h100: 64 x H100' '^  gpt2 +124M +data parallel ' '^  llama-70b +69B +ZeRO 3, recompute ' '^  llama3-405b +406B +nothing fits' \
  '^  llama3-8b +\(160\.3\)' 'the largest model with each means' '^  ZeRO 1 +llama3-8b ' '^  all means +qwen3-235b-a22b ' '^  qwen3-30b-a3b .* ZeRO 3 ' '^  experts +[a-z0-9.-]+ +- +- +- ' -- fit --cluster dgx-h100 --devices 64
shows '^  llama-7b .* ZeRO 1 ' -- fit --cluster a100-sxm-80 --model llama-7b --seq 2048

# A model by its name is its sizes: of experts, those of a token compute and all are summed.
for words in 'tree --memory 80GB --flops 5e14' 'scaling --batch 4M --flops 3e14 --limit 64'; do
  sizes='--params 7241728000'
  case $words in tree*) sizes="$sizes --layers 32 --width 4096 --heads 32" ;; esac
  # shellcheck disable=SC2086 # words
  plan $words $sizes
  expect "plan $words $sizes" 0
  mv out by_sizes
  # shellcheck disable=SC2086 # words
  plan $words --model mistral-7b
  expect "plan $words --model" 0
  cmp -s out by_sizes || fail "plan $words --model mistral-7b differs from $sizes: $(diff out by_sizes)"
done
plan scaling --model mixtral-8x7b --batch 1M --flops 1e14 --json
value compute_s 772.8 0.5 # 6 x 12.88e9 x 1e6 / 1e14: two of eight experts

# JSON: bytes, seconds and shares of one.
plan checkpoint --devices 1024 --mtbf 50000h --write 5min --restart 0 --json
expect 'checkpoint --json' 0
value mtbf_s 175781.25 0.01
value interval_s 10269.8 0.01
plan rlhf --policy 70e9 --reward 13e9 --value 13e9 --tp 8 --pp 4 --json
value devices 19 0
value cache_bytes 2684354560 1
plan cost --loss 3 --floor 2 --scale 100 --exponent 0.1 --devices 8 --peak 1e15 --json
value flop 1e20 1e12
if command -v python3 >/dev/null; then
  for words in "checkpoint --devices 8 --write 1min" "sync --iterations 1k --seconds 1s" "rlhf --policy 1e9" \
    "tree --params 1e9 --layers 16 --width 2048 --memory 80GB --flops 4e14" "scaling --step 1s --gradients 1GB" \
    "batch --critical 100" "cost --flop 1e20 --devices 8 --peak 1e15" "embedding --devices 2 --memory 1GB --table a:10:10" \
    "fit --cluster dgx-h100 --devices 8 --model gpt2" "stages --model gpt2 -p 4" "precision --params 1e9" "mfu --params 1e9 --rate 1e5 --devices 8 --peak 1e15" "fit-exponent runs.csv"; do
    # shellcheck disable=SC2086 # words
    plan $words --json
    python3 -c 'import json, sys; o = json.load(open("out")); sys.exit(o["plan"] != sys.argv[1] or "warnings" not in o)' \
      "${words%% *}" || fail "the JSON of plan $words: $(cat out)"
  done
fi

# Every example of the help works.
for word in tree fit report stages scaling batch sync cost checkpoint rlhf embedding precision mfu fit-exponent explain what-if; do
  plan "$word" --help
  expect "plan $word --help" 0
  says '--json' 'example'
  sed -n '/^examples*:/,$p' out | sed 's/^examples*: *//; s/^ *//' | sed -e ':a' -e '/\\$/N; s/\\\n//; ta' >examples.txt
  while read -r line; do
    bash -c "trireme() { '$TRIREME' \"\$@\"; }; $line" >out 2>err || fail "the example '$line': $(cat err)"
  done <examples.txt
  [ "$(grep -c trireme examples.txt)" -gt 0 ] || fail "plan $word --help has no example"
done

# Wrong uses.
refused 2 'give a word'
refused 2 "did you mean 'checkpoint'" chekpoint
refused 2 "'more' is no option" tree more
refused 2 "did you mean '--layers'" tree --layer 3
refused 2 'give the model' tree --params 1e9
refused 2 'gpt2 has its own sizes; leave --params, --layers, --width, --heads out' tree --model gpt2 --heads 3 --memory 80GB --flops 1e14
refused 3 'qwen3-30b-a3b has 128 experts, and the tree.s laws are those of dense models' tree --model qwen3-30b-a3b --memory 80GB --flops 1e14
refused 3 "did you mean 'gpt2'" tree --model gpt3 --memory 80GB --flops 1e14
refused 2 'gpt2 has its own parameters; leave --params out' scaling --model gpt2 --params 1e9 --batch 1M --flops 1e14
refused 2 'give the device' tree --params 1e9 --layers 2 --width 64
refused 2 'give both' tree --params 1e9 --layers 2 --width 64 --memory 80GB --flops 1e14 --days 3
refused 2 "memory takes a number such as 8e10 or 80GB between 1000000 and 1e\+15, not '80XB'" tree --memory 80XB
refused 2 "nodes takes a whole number between 1 and 1000000, not '1.5'" tree --nodes 1.5
refused 2 "devices takes a whole number between 1 and 100000000, not '8.5'" checkpoint --devices 8.5 --write 1s
shows '^  64 ' -- scaling --step 1s --gradients 1GB --limit 6.4e1 --per-node 1k
refused 2 "write takes a time such as .*, not 'soon'" checkpoint --write soon
refused 2 'give --devices' checkpoint --write 5min
refused 2 'give one' checkpoint --devices 8 --write 5min --state 3GB
refused 2 'give --write TIME' checkpoint --devices 8 --state 3GB
refused 2 "part takes NAME:COUNT:TIME as in switch:64:200000h, not 'switch:64'" checkpoint --devices 8 --write 1s --part switch:64
refused 2 "'often' in --part switch:64:often is no time" checkpoint --devices 8 --write 1s --part switch:64:often
refused 2 'needs a time of a second at least' checkpoint --devices 8 --write 1s --part switch:64:0s
refused 2 "'1e300' in --part switch:1e300:20h is no number from 0 to 1e18" checkpoint --devices 8 --write 1s --part switch:1e300:20h
refused 2 'is no time such as 30s or 50000h, at most 1e12 s' checkpoint --devices 8 --write 1s --part switch:64:1e300
refused 2 'needs a worker and an iteration at least' sync --iterations 100k --seconds 0.4s --measured 8:1e-300:0.15
refused 2 'an answer has a token' rlhf --policy 7e9 --lengths 1e-300:3:4
refused 3 'about 1e.24 devices would do' embedding --devices 8 --memory 1 --table user:1e18:250e3
refused 2 'give --iterations' sync --seconds 1s
refused 2 'give --seconds' sync --iterations 100
refused 2 'measured takes WORKERS' sync --iterations 100 --seconds 1s --measured 8
refused 2 "has '0'; from 1" sync --iterations 100 --seconds 1s --workers 1:0
refused 2 'give --step TIME' scaling --limit 8
refused 2 'give --gradients BYTES' scaling --step 1s
refused 2 'give one of --critical' batch --ranks 8
refused 2 'give one of --critical' batch --critical 8 --noise 1 --square 1
refused 2 'give no noise scale' batch --small 8:1 --large 64:2
refused 2 'give --base and --rate too' batch --critical 8 --chosen 1e-3
refused 2 'give --policy' rlhf
refused 2 'method takes ppo or dpo or grpo' rlhf --method pop
# Defaults stand in the help.
while read -r word default; do
  "$TRIREME" plan "$word" --help >out 2>&1
  grep -Fq -- "$default" out || fail "plan $word --help does not say $default: $(cat out)"
done <<'END'
search use N of the cluster's devices (all)
search tokens per sequence (default 4096, or as many positions as the model has)
fit use N of the cluster's devices (all)
sync how many (1:8:64)
cost (E: 0;
cost shares (0.4, 1, 1)
rlhf ppo (the default)
stages micro-batches (2 p)
tree without (the default)
checkpoint goes on (5min)
scaling devices (16384)
END
refused 2 'give --devices, and --peak' cost --flop 1e20
refused 2 'give one of --params' cost --devices 8 --peak 1e15
refused 2 'needs --scale' cost --devices 8 --peak 1e15 --loss 3
refused 2 'no run gets there' cost --devices 8 --peak 1e15 --loss 1 --scale 1 --exponent 1 --floor 2
refused 2 'give --devices, and --memory' embedding --table a:1:1
refused 2 'give a --table' embedding --devices 8 --memory 1GB
refused 2 'table takes NAME:ROWS:WIDTH' embedding --devices 8 --memory 1GB --table a:1
refused 2 'less than a row' embedding --devices 8 --memory 1GB --table a:0:1
refused 3 'GiB more than it has; about 43 devices would do' embedding --devices 8 --memory 6GB --table user:500e6:128
refused 2 'weights takes a number between 0 and 1' precision --weights 2
refused 2 'count attention together' mfu --params 1e9 --rate 1e5 --devices 8 --peak 1e15 --layers 2
refused 2 'give --params, and --rate' mfu --devices 8
refused 2 'give the table of runs' fit-exponent
refused 2 'target 0.5 is not above the floor' fit-exponent runs.csv --floor 1 --target 0.5
refused 4 'runs.csv: loss 3.9 of run 2 is not above the floor 4' fit-exponent runs.csv --floor 4
refused 10 'nowhere.csv' fit-exponent nowhere.csv

refused 2 'cluster is missing' fit
refused 3 "did you mean 'gpt2-xl'" fit --cluster dgx-h100 --model gpt2-x1
refused 2 "batch takes tokens as in 4M, or sequences as in 1024seq, not 'all'" fit --cluster dgx-h100 --batch all

bad() { # CONTENTS PATTERN
  printf '%b' "$1" >bad.csv
  refused 4 "$2" fit-exponent bad.csv
}
bad '' 'bad.csv is empty'
bad 'loss,tokens\n1,2\n' "no column 'compute'"
bad 'compute\n1\n' "no column 'loss'"
bad 'loss,compute,loss\n' "column 'loss' stands there twice"
bad 'loss,compute\n3,1e18\n2\n' 'bad.csv: row 2 has 1 columns, the header has 2'
bad 'loss,compute\n3,1e18\n2,much\n' "bad.csv: row 2: compute 'much' is no number"
bad 'loss,compute\n3,1e18\n' 'bad.csv: 1 run says nothing'
bad 'loss,compute\n3,1e18\n2,-5\n' 'compute -5 of run 2'
bad "loss,compute\n3,1e18\n2,$(printf 'x%.0s' {1..80})\n" 'bad.csv: row 2: compute .x{40}. is no number'
bad 'loss,\0compute\n' 'holds a zero byte'
finish
