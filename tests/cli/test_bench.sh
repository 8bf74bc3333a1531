#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 120
# `trireme bench`: what is measured, written and compared; baselines that cannot be used are refused before anything is
# measured; wrong uses are named. Times are never judged: tolerances are so wide, and baselines so far off, that no machine is.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/bench.sh
. "$(dirname "$0")/bench.sh"

small=(gpt2-tiny data.sequence=8 batch.micro=1 train.steps=3 model.layers=1)

bench step "${small[@]}" bench.layouts=1x1,2x1 --write step.json
expect 'step' 0
says out '^gpt2-tiny \(1 layer x 64, 4 heads, vocabulary [0-9]+, [0-9]+ parameters\), f32, sequence 8, 1 sequence per rank and step: ' '^1 x 1 +3 ' '^2 x 1 +3 .* [0-9.]+ +[0-9.]+ ms' '^others took'
says step.json '"benchmark": "step"' '"isa": "(base|avx2|avx512|amx)"' '"cores": [0-9]' '"peak_flops_per_s": [1-9]' '"name": "1 x 1"' \
  '"name": "2 x 1"' '"speed_up": ' '"beyond_kernels_s": ' '"share": '
bench step "${small[@]}" bench.layouts=1x1 --json
expect 'step --json' 0
[ "$(head -c 1 out)" = '{' ] || fail "--json prints something else: $(cat out)"
if command -v python3 >/dev/null; then
  python3 - <<'END' || fail 'the JSON objects'
import json
for name, layouts in (("step.json", ["1 x 1", "2 x 1"]), ("out", ["1 x 1"])):
    o = json.load(open(name))
    assert o["trireme_bench"] == 1 and [r["name"] for r in o["results"]] == layouts, o
    for r in o["results"]:
        assert r["steps"] == 3 and r["least_seconds"] <= r["seconds"] <= r["most_seconds"], r
        assert r["least_peak_flops_per_s"] <= r["peak_flops_per_s"] <= r["most_peak_flops_per_s"], r
        assert abs(r["tokens_per_s"] * r["seconds"] - 8 * r["ranks"]) < 1e-3, r
        assert abs(r["share"] * r["peak_flops_per_s"] - r["flops_per_s"]) <= 1e-6 * r["flops_per_s"], r
        assert 0 < r["beyond_kernels_s"] < r["most_seconds"], r
    assert 0 <= o["foreign_cpu"] <= 1
END
fi

# In rounds: the steps of all count.
bench step "${small[@]}" bench.layouts=1x1,2x1 bench.rounds=3
expect 'step in rounds' 0
says out '^1 x 1 +9 ' '^2 x 1 +9 .* [0-9.]+ +[0-9.]+ ms'
bench step "${small[@]}" bench.rounds=0
expect 'no rounds' 3 'bench.rounds'

# Comparing. A share of a million is nobody's, and one of a millionth is anybody's.
one=("${small[@]}" bench.layouts=1x1 --baseline)
sed 's/"share": [^,]*/"share": 1e-6/' step.json >easy.json
sed 's/"share": [^,]*/"share": 1e6/' step.json >hard.json
bench step "${one[@]}" easy.json --tolerance 0
expect 'a slower baseline' 0
says out '^compared .*easy.json' '^1 x 1 '
bench step "${one[@]}" hard.json --tolerance 50% --write after.json
expect 'a faster baseline' 9 "1 of 1 results are slower than in hard.json by more than 50 %: 1 x 1 \(0.00\)"
says out '^1 x 1 .* slower$'
says after.json '"name": "1 x 1"' # written all the same
# Without shares times count, on the same processor only.
sed 's/, *$/,/; /"share": /d; s/"seconds": [^,]*/"seconds": 1e6/' step.json >times.json
bench step "${one[@]}" times.json
expect 'times' 0
says out '^1 x 1 +11 d 14 h '
sed 's/"cpu": "[^"]*"/"cpu": "another"/' times.json >other_times.json
bench step "${one[@]}" other_times.json
expect 'times of another processor' 4 "on 'another'; this processor is"

# What only one of the two has is not passed over; a part that was asked for is.
bench step "${one[@]}" easy.json --tolerance 99%
expect 'one of two layouts' 0
says out '^not measured, so not compared: 2 x 1$'
sed 's/"name": "2 x 1"/"name": "9 x 9"/' easy.json >other_row.json
bench step "${small[@]}" layouts=1x1,2x1 --baseline other_row.json --tolerance 99%
expect 'a row that the baseline lacks' 4 'lacks results that were measured: 2 x 1;'
sed '/"results"/s/$/\n  {"name": "9 x 9", "seconds": 1, "share": 1e-6},/; s/"name": "2 x 1"/"name": "1 x 2"/' easy.json >more_rows.json
printf '%s' '{"name": "2 x 1", "seconds": 1, "share": 1e-6},' >row
sed -i '/"results"/r row' more_rows.json
bench step "${small[@]}" --baseline more_rows.json --tolerance 99%
expect 'a row that was not measured' 4 'more_rows.json: results in it were not measured: .*9 x 9'

# Refused before anything is measured.
edit() { # SED: a changed baseline, as bad.json
  sed "$1" step.json >bad.json
}
edit 's/"benchmark": "step"/"benchmark": "kernel"/'
refused 4 "a baseline of 'bench kernel', which says nothing about 'bench step'" step "${one[@]}" bad.json
edit 's/"isa": "[^"]*"/"isa": "other"/'
refused 4 'a baseline of a machine with other, this one has' step "${one[@]}" bad.json
edit 's/sequence 8,/sequence 16,/'
refused 4 "this is 'gpt2-tiny \(.*\), f32, sequence 8, 1 sequence per rank and step'" step "${one[@]}" bad.json
# Settings change the model, whatever it is called.
for change in model.layers=2 model.width=128 model.heads=2; do
  refused 4 'only the same work compares' step "${one[@]}" step.json "$change"
done
edit 's/"trireme_bench": 1/"trireme_bench": 2/'
refused 4 'format 2' step "${one[@]}" bad.json
edit 's/"share": [^,]*/"share": 0/'
refused 4 "numbers above 0" step "${one[@]}" bad.json
edit 's/"name": "[^"]*"/"name": 1/'
refused 4 'bad.json.*name' step "${one[@]}" bad.json
edit 's/"results"/"rows"/'
refused 4 'no list "results"' step "${one[@]}" bad.json
edit 's/"machine"/"engine"/'
refused 4 'which "machine"' step "${one[@]}" bad.json
echo '{' >bad.json
refused 4 'bad.json' step "${one[@]}" bad.json
refused 10 'nowhere.json' step "${one[@]}" nowhere.json
sed 's/"name": "/&not /' step.json >bad.json
refused 4 'none of the results' step "${one[@]}" bad.json

# Wrong uses.
refused 2 'give a benchmark'
refused 2 "did you mean 'step'" stpe
refused 2 'there are step, kernel, comm and topology' everything
refused 3 'did you mean' step gpt2-tyny
refused 3 'did you mean' step tolerence=5%
refused 3 'nothing to compare with' step "${small[@]}" tolerance=5%
refused 3 'no share below 100%' step "${one[@]}" step.json --tolerance 200%
refused 3 'no list of ranks x threads' step "${small[@]}" layouts=2
refused 3 'leave one of the two out' step "${small[@]}" layouts=1x1 -n 2
refused 2 'two models' step gpt2-tiny gpt2
refused 5 'do not fit' step llama3-405b
refused 2 "did you mean 'matmul'" kernel matmull
refused 3 'layouts' kernel layouts=1x1
if [ -e /dev/full ]; then
  "$TRIREME" bench step "${small[@]}" layouts=1x1 >/dev/full 2>err
  rc=$?
  expect 'a full disk' 10
fi
bench step "${small[@]}" layouts=1x1 --write nowhere/step.json
expect 'a folder that is not there' 10 'nowhere/step.json: cannot create: '
if grep -q tmp err || [ -s out ]; then fail "found after measuring, or told by another name: $(cat out err)"; fi
bench comm barrier -n 2 --write nowhere/comm.yaml
expect 'comm, a folder that is not there' 10 'nowhere/comm.yaml: cannot create: '
bench comm barrier -n 2 --svg "$work"
expect 'comm, a folder as a file' 10 'it is a folder'
if [ -s out ]; then fail "comm: found after measuring: $(cat out)"; fi

# What steps alone have no use for.
refused 3 'writes no trace' step "${small[@]}" trace=x.json
refused 3 'makes no profile' step "${small[@]}" profile=2
TRIREME_FAULT=rank=0,op=F,action=kill refused 3 'bench step has no faults' step "${small[@]}"
bench step "${small[@]}" layouts=1x1 checkpoint.every=5 train.folder=x
expect 'settings of the loop' 0 'no use for .*train.folder.*checkpoint.every|no use for .*checkpoint.every.*train.folder'
if grep -q 'train.steps\|data.sequence' err; then fail "used settings are said to be of no use: $(cat err)"; fi

# Settings of train count, also from a run file; -n chooses one layout.
printf 'model:\n  from: gpt2-tiny\ndata:\n  sequence: 8\nbatch:\n  sequences: 4\n  micro: 1\n' >run.yaml
bench step run.yaml -n 2 run.threads=1 precision.compute=bf16 train.steps=2 --json
expect 'a run file' 0
says out '"subject": "gpt2-tiny \(.*\), bf16, sequence 8, 4 sequences per step"' '"name": "2 x 1"' '"accumulation": 2' '"steps": 2'

# Kernels, by words of their names.
bench kernel 'sum of' 'matmul forward attproj' precision.compute=f32 run.threads=1 --write kernel.json
expect 'kernel' 0
says out '^sum of squares .* % of copy' '^matmul forward attproj .* % of peak' '^matmul forward attproj, packed .* % of peak' '^peak: median'
[ "$(grep -c ' ms ' out)" = 3 ] || fail "other kernels too: $(cat out)"
says kernel.json '"name": "sum of squares, f32, 1 thread"' '"name": "matmul forward attproj, f32, 1 thread"'
refused 4 "a baseline of 'bench step'" kernel 'sum of' --baseline step.json

bench --help
expect '--help' 0
says out 'bench.baseline' 'bench.tolerance' 'examples:'
finish
