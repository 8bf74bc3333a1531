#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 120
# `trireme simulate`: rows of the oracles through the command (tests/sim has all of them), drawings and tables, token lists there and back, costs from
# descriptions, drawings as files; wrong uses end with one sentence that names option, value and what would work.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
tree=$(cd "$(dirname "$0")/../.." && pwd)
export TRIREME_PRESETS=$tree/presets
cd "$work" || exit 1

simulate() { # where lib.sh looks for what the last command printed
  timeout 60 "$TRIREME" simulate "$@" >out 2>err
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
  simulate "$@"
  expect "simulate $*" 0
  says "${patterns[@]}"
}

refused() { # CODE PATTERN ARGUMENTS...
  local code=$1 pattern=$2
  shift 2
  simulate "$@"
  expect "simulate $*" "$code" "$pattern"
}

number() { # KEY: of the JSON that was printed last
  sed -n "s/^ *\"$1\": \\([-0-9.e+]*\\),*\$/\\1/p" out | head -n 1
}

list() { # KEY: the numbers of a list, with semicolons between
  sed -n "/^ \"$1\": \\[/,/]/p" out | sed -n 's/^  \([-0-9.e+]*\),*$/\1/p' | paste -sd ';'
}

# ---- the figures on record

rows=0
while IFS=, read -r name p m v f b w comm makespan bubble peak; do
  rows=$((rows + 1))
  simulate --schedule "$name" -p "$p" -m "$m" -v "$v" --costs "$f,$b,$w" --comm "$comm" --json
  [ "$rc" = 0 ] || fail "$name $p $m $v: $(cat err)"
  within 0 "$(number makespan)" "$makespan" || fail "$name p $p m $m v $v ($f,$b,$w) comm $comm: $(number makespan), not $makespan"
  within 0.0000006 "$(number bubble_fraction)" "$bubble" || fail "$name p $p m $m: bubble $(number bubble_fraction), not $bubble"
  [ "$(list peak_per_rank)" = "$peak" ] || fail "$name p $p m $m: peaks $(list peak_per_rank), not $peak"
done < <(awk 'NR % 7 == 2' "$tree/tests/data/pipeline/pipeline-oracles.csv")
[ "$rows" = 50 ] || fail "$rows rows"

# ---- for people

shows '^GPU0 \|01234567\.\.\.\.\.\.\.\.\.aabbccddeeffgghh\|$' '^GPU3 \|\.\.\.01234567aabbccddeeffgghh\.\.\.\.\.\.\|$' \
  '^makespan +33$' '^bubble +27\.27 %' '^messages +48' '^one character is 1$' -- --schedule gpipe -p 4 -m 8 --costs 1,2
shows '^GPU0 \|0123\.\.\.\.\.\.aa4bb5cc6dd7ee\.ff\.gg\.hh\|$' '^GPU3 \|\.\.\.0aa1bb2cc3dd4ee5ff6gg7hh\.\.\.\.\.\.\|$' \
  '^ +0 +24 +9 +9 +0 +4 +4 +1$' 'ascending order: the bits' -- --schedule 1f1b -p 4 -m 8 --costs 1,2
shows '^GPU0 \|0123\.\.\.aA4bB5cC6dD7eEfFgGhH\|$' -- --schedule zb_h1 -p 4 -m 8
shows '^makespan +41$' '16 messages, which take 8 of it' '^one character is 0\.5$' -- --schedule 1f1b -p 4 -m 8 --costs 1,2,0 --comm 0.5
shows '^one character is 1$' '^GPU0 \|0123' -- --schedule 1f1b -p 4 -m 8 --costs 1,2,0 --comm 0.5 --tick 1
shows '^makespan +67$' 'one stream' -- --schedule interleaved -p 4 -m 8 -v 2 --costs 1,2 --one-stream
shows '^makespan +31\.5$' -- --schedule dualpipe -p 4 -m 8 --occupancy 0.5
shows '^makespan +24$' 'every stage is kept twice' -- --schedule dualpipe -p 4 -m 8 --pair 2.5
shows '^makespan +35$' '^ranks +400 in 100 replicas' -- --schedule 1f1b -p 4 -m 8 --reduce 2 --replicas 100
shows '^makespan +12345\.654321$' -- --schedule naive -p 1 -m 1 --costs 12345.654321,0
shows '70 ranks are too many lines' -- --schedule 1f1b -p 70 -m 2

shows '^gpipe +1 +36 +33\.33%' '^1f1b +1 +41 +41\.46%' '^interleaved +2 +35\.5 .* 5\.5 +112 ' '^dualpipe +2 +30\.5 +21\.31% .* 5 +48 +2x +no$' \
  -- --compare gpipe,1f1b,interleaved,dualpipe -p 4 -m 8 --comm 0.5
shows '^gpipe ' '^dualpipev ' '^schedule dualpipe: ' -- --compare all -p 3 -m 6
simulate --compare 1f1b,dualpipe -p 3 -m 6 --json
expect '--compare --json' 0
if command -v python3 >/dev/null; then
  python3 - <<'END' || fail 'the JSON of --compare'
import json
rows = json.load(open("out"))["schedules"]
assert [r["schedule"] for r in rows] == ["1f1b", "dualpipe"] and rows[0]["makespan"] == 24 and "refused" in rows[1], rows
END
fi

# ---- files

simulate --schedule zb_h1 -p 2 -m 4 --dump
expect '--dump' 0
cat >lists <<'END'
0F0,0F1,0I0,0W0,0F2,0I1,0W1,0F3,0I2,0W2,0I3,0W3
1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1F3,1I3,1W2,1W3
END
cmp -s out lists || fail "--dump: $(cat out)"
simulate --schedule ./lists --json
expect 'lists of another program' 0
within 0 "$(number makespan)" 13 || fail "lists of another program: $(number makespan)"
for name in dualpipe zbv interleaved; do
  simulate --schedule $name -p 4 -m 8 --comm 0.25 --json --write "$name.csv"
  expect "--write $name" 0
  cp out before
  simulate --schedule "$name.csv" --comm 0.25 --json
  expect "$name.csv" 0
  cmp -s out before || fail "$name.csv gives other numbers: $(diff out before)"
done
sed 's/0F1/0F7/' lists >damaged.csv
refused 3 'damaged.csv' --schedule damaged.csv
refused 2 '-p is 3; ./lists has 2, so leave it out' --schedule ./lists -p 3
simulate --schedule zbv -p 4 -m 8 --comm 0.5 --svg timeline.svg --trace trace.json
expect '--svg --trace' 0
[ "$(grep -c 'class="box' timeline.svg)" -gt 190 ] || fail "the SVG has few boxes"
if command -v python3 >/dev/null; then
  python3 - <<'END' || fail 'SVG or trace'
import json, xml.dom.minidom
xml.dom.minidom.parse("timeline.svg")
events = json.load(open("trace.json"))["traceEvents"]
ends = [e["ts"] + e["dur"] for e in events if e["ph"] == "X"]
assert abs(max(ends) - 57500) < 1e-6
assert sum(e["ph"] == "s" for e in events) == 96 and sum(e["ph"] == "f" for e in events) == 96
END
fi
mkfifo pipe
cat pipe >piped &
simulate --schedule gpipe -p 2 -m 2 --svg pipe
expect 'an SVG into a pipe' 0
wait
if [ ! -p pipe ] || ! grep -q '</svg>' piped; then fail "an SVG into a pipe: $(ls -l pipe) $(head -c 100 piped)"; fi
printf '\357\273\277' | cat - lists >marked.csv # as spreadsheets write UTF-8
shows '^makespan +13$' -- --schedule marked.csv
printf '# trireme schedule 1, p 3, S 1, m 1, map loop\n0F0,0B0\n1F0\n2F0\n' >short.csv
refused 3 'S 1 stage on p 3 ranks, v 0 on each, do not make a map loop' --schedule short.csv
refused 10 'gone/x.svg' --schedule gpipe -p 2 -m 2 --svg gone/x.svg

shows '^1f1b: 1 rank, 1 stage, 1 micro-batch;' '^critical path +2 passes and 0 messages' -- --schedule 1f1b -p 1 -m 1
shows '^1 rank, 1 micro-batch;' -- --compare 1f1b,gpipe -p 1 -m 1

# ---- costs from descriptions

shows '^makespan +[0-9.]+ s$' '^one character is [0-9.]+ s; all times are in s$' 'the slowest stage [0-9.]+ x the mean' -- --schedule 1f1b -p 4 -m 8 --model llama3-8b --cluster dgx-h100
even=$(sed -n 's/.*the slowest stage \([0-9.]*\) x.*/\1/p' out)
shows 'the slowest stage' -- --schedule 1f1b -p 4 -m 8 --model llama3-8b --cluster dgx-h100 --layers balanced
balanced=$(sed -n 's/.*the slowest stage \([0-9.]*\) x.*/\1/p' out)
awk -v a="$even" -v b="$balanced" 'BEGIN { exit !(b >= 1 && b < a) }' || fail "balanced: $balanced, even: $even"
shows '^makespan' -- --schedule zb_h1 -p 4 -m 8 --model llama3-8b --cluster dgx-h100 --layers 9,8,8,7 --tp 2 --micro 2 --seq 8192 --replicas 4
# Models with experts, of which sizes alone are known: dense layers first and one that predicts further tokens make stages of equal
# counts uneven; experts that are dealt over ranks are more of the same work for each.
slowest() { sed -n 's/.*the slowest stage \([0-9.]*\) x.*/\1/p' out; }
for model in mixtral-8x7b qwen3-30b-a3b deepseek-v3; do
  shows '^makespan +[0-9.]+ s$' -- --schedule 1f1b -p 4 -m 8 --model $model --cluster dgx-h100 --replicas 2 --micro 2
  even=$(slowest) alone=$(sed -n 's/^makespan *\([0-9.]*\) s$/\1/p' out)
  shows '^makespan +[0-9.]+ s$' -- --schedule 1f1b -p 4 -m 8 --model $model --cluster dgx-h100 --layers balanced --replicas 2 --micro 2
  awk -v a="$even" -v b="$(slowest)" -v less="$([ $model = deepseek-v3 ] && echo 1)" 'BEGIN { exit !(b >= 1 && (less ? b < a : b <= a)) }' ||
    fail "$model: balanced $(slowest), even $even"
  shows '^makespan +[0-9.]+ s$' -- --schedule 1f1b -p 4 -m 8 --model $model --cluster dgx-h100 --replicas 2 --micro 2 --ep 2
  dealt=$(sed -n 's/^makespan *\([0-9.]*\) s$/\1/p' out)
  [ -n "$alone" ] && [ "$alone" != "$dealt" ] || fail "$model: makespan $alone without --ep, $dealt with --ep 2"
done
shows '^makespan' -- --schedule 1f1b -p 4 -m 8 --model deepseek-v3 --cluster dgx-h100 --layers 15,16,16,15
refused 3 'makes 61 layers; the model has 62' --schedule 1f1b -p 4 -m 8 --model deepseek-v3 --cluster dgx-h100 --layers 15,16,15,15
refused 3 'ep is 3; it must divide' --schedule 1f1b -p 4 -m 8 --model mixtral-8x7b --cluster dgx-h100 --replicas 2 --ep 3
refused 3 'ep is 2; the model has no experts' --schedule 1f1b -p 4 -m 8 --model gpt2 --cluster dgx-h100 --replicas 2 --ep 2
refused 3 '--layers: layers "9,8,8" has 3 counts for 4 stages' --schedule 1f1b -p 4 -m 8 --model llama3-8b --cluster dgx-h100 --layers 9,8,8
refused 3 '14 stages are more than the model.s 12 layers' --schedule 1f1b -p 14 -m 8 --model gpt2 --tp 4 --cluster dgx-h100
refused 3 'costs 9223372036854775807 ticks; 0 to' --schedule 1f1b -p 4 -m 8 --model deepseek-v3 --cluster dgx-h100 --micro 65536 --seq 268435456
shows '^1f1b ' '^schedule zbv: 16 stages are more than the model' -- --compare 1f1b,zbv -p 8 -m 8 --model gpt2 --tp 1 --cluster dgx-h100
shows '^ranks +102400 in 25 replicas' -- --schedule gpipe -p 4096 -m 2 --replicas 25
refused 3 'devices are asked for' --schedule 1f1b -p 4 -m 8 --model llama3-8b --cluster dgx-h100 --replicas 100000

# ---- wrong uses

refused 2 'give a schedule with --schedule' -p 4 -m 8
refused 2 'needs -p' --schedule gpipe -m 8
refused 3 'did you mean interleaved' --schedule interleavd -p 4 -m 8
refused 3 'm 4 or m 8' --schedule interleaved -p 4 -m 6
refused 10 'no/file.csv' --schedule no/file.csv
refused 2 "--costs takes a number below 1000000 with at most 6 digits behind the point, not '0.1234567'" --schedule gpipe -p 2 -m 2 --costs 0.1234567,1
refused 2 "--costs takes F,B,W or F,B, as in 1,1,1, not '1'" --schedule gpipe -p 2 -m 2 --costs 1
refused 2 "--costs takes F,B,W or F,B" --schedule gpipe -p 2 -m 2 --costs 1,2,3,4
refused 2 "--comm takes a number .*, not '-1'" --schedule gpipe -p 2 -m 2 --comm -1
refused 2 "--comm takes a number .*, not '1e3'" --schedule gpipe -p 2 -m 2 --comm 1e3
refused 2 "--tick takes a number above 0" --schedule gpipe -p 2 -m 2 --tick 0
refused 2 '-p takes a whole number between 1 and 65535' --schedule gpipe -p 0 -m 2
refused 2 '--tick 0.000001 makes lines of 33000000 characters, and 10000 are the most; 0.00333 works' --schedule 1f1b -p 4 -m 8 --costs 1,2 --tick 0.000001
shows '^one character is 0\.00333$' -- --schedule 1f1b -p 4 -m 8 --costs 1,2 --tick 0.00333
refused 2 'need the name of a file' --schedule gpipe -p 2 -m 2 --svg ''
refused 2 'leave out --group' --schedule ./lists --group 2
refused 2 '--dump prints token lists, --json the figures' --schedule gpipe -p 2 -m 2 --dump --json
refused 2 '--model and --cluster go together' --schedule gpipe -p 2 -m 2 --model llama3-8b
refused 2 'leave out --costs' --schedule gpipe -p 2 -m 2 --model llama3-8b --cluster dgx-h100 --costs 1,2
refused 2 'give --model and --cluster' --schedule gpipe -p 2 -m 2 --tp 2
refused 2 'are for one schedule' --compare gpipe,1f1b -p 2 -m 2 --dump
refused 2 'as in gpipe,1f1b' --compare gpipe,,1f1b -p 2 -m 2
refused 3 'no schedule is called' --compare gpipe,nothing -p 2 -m 2
refused 2 "'gpipe' is no option" gpipe -p 2 -m 2
refused 2 "did you mean '--schedule'" --schedul gpipe -p 2 -m 2

# ---- every example of the help, and the manual page

simulate --help
expect '--help' 0
while read -r line; do
  # shellcheck disable=SC2086 # a command line
  simulate ${line#trireme simulate }
  expect "$line" 0
done < <(sed -n '/^examples:/,$ s/^  \(trireme simulate .*\)/\1/p' out)
"$TRIREME" man simulate >out 2>err || fail "man simulate: $(cat err)"
says '^\.TH "TRIREME' '^\.B \\-\\-costs F,B,W$' '^\.B zb_h1$'
finish
