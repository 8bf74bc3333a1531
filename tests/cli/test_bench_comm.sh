#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 240
# `trireme bench comm` and `bench topology`: every operation is measured and checked, what is printed and written, the three
# looks (sizes, pairs, preflight), and wrong uses. Times are never judged.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/bench.sh
. "$(dirname "$0")/bench.sh"

short=(bench.seconds=1ms)

# All operations, with results checked by the ranks themselves: in and out of place, in the arena and private.
bench comm -n 3 "${short[@]}" bench.sizes=8,1000,70000 bench.place=both bench.buffers=both --json
expect 'all operations' 0
mv out all.json
bench comm -n 2 "${short[@]}" bench.sizes=4..100k bench.factor=16 bench.types=f32,bf16,f16,i32,u8 bench.reduce=max --json run.launch=threads
expect 'all types' 0
mv out types.json
if command -v python3 >/dev/null; then
  python3 - <<'END' || fail 'the JSON objects'
import json
ops = {"all-reduce": 2, "reduce": 0, "reduce-scatter": 1, "reduce-scatter-v": 1, "all-gather": 1, "all-gather-v": 1, "all-to-all": 1,
       "all-to-all-v": 1, "broadcast": 0, "gather": 1, "scatter": 1, "send-receive": 0, "barrier": 0}
o = json.load(open("all.json"))
rows = o["results"]
assert o["benchmark"] == "comm" and o["subject"] == "3 ranks as processes", o["subject"]
assert {r["operation"] for r in rows} == set(ops)
assert len({r["name"] for r in rows}) == len(rows)
for r in rows:
    n = 3
    assert 0 < r["least_seconds"] <= r["seconds"] <= r["p90_seconds"] and r["repeats"] >= 7, r
    assert abs(r["algorithm_bytes_per_s"] * r["seconds"] - r["bytes"]) <= 1e-6 * r["bytes"], r
    factor = ops[r["operation"]] * (n - 1) / n or 1
    assert abs(r["bus_bytes_per_s"] - factor * r["algorithm_bytes_per_s"]) <= 1e-6 * r["bus_bytes_per_s"], r
both = [(r["place"], r["buffers"]) for r in rows if r["operation"] == "all-reduce"]
assert len(both) == 12 and len(set(both)) == 4, both
assert len([r for r in rows if r["operation"] == "barrier"]) == 1
assert len([r for r in rows if r["operation"] == "all-to-all"]) == 6
fits = o["fits"]
assert len(fits) == len({(r["operation"], r["place"], r["buffers"]) for r in rows}) - 1, fits
for f in fits:
    assert f["alpha_s"] >= 0 and f["beta_s_per_byte"] >= 0 and f["residual"] >= 0 and f["plateau_bytes_per_s"] > 0, f
    assert 8 <= f["half_rate_bytes"] <= f["bucket_bytes"] <= 100000 and f["flops_per_byte"] > 0, f
rows = json.load(open("types.json"))["results"]
assert {r["type"] for r in rows} == {"f32", "bf16", "f16", "i32", "u8"}
assert [r["bytes"] for r in rows if r["operation"] == "all-reduce" and r["type"] == "f32"] == [4, 64, 1024, 16384, 100000]
END
fi

# As text, with drawings, links and a file of results.
settled bench comm allreduce broadcast -n 2 "${short[@]}" bench.sizes=8..64Ki --svg curve.svg --write links.yaml
expect 'text' 0
says out 'engine shm, 2 ranks as processes on 1 host$' '^all-reduce, f32, in place, arena$' '^broadcast, f32, arena$' \
  ' 64.0 KiB +[0-9]+ ' '^fit over this range: alpha .*, 1 / beta .* GB/s .*; residual [0-9]+ %' \
  '^plateau .* GB/s at .*; half of it from .* on; a bucket of .* reaches 90 %; a rank computes .* FLOP' '^others took' '\*'
says curve.svg '^<svg ' '>all-reduce, f32, in place, arena<' '>broadcast, f32, arena<' '^</svg>$'
says links.yaml '^links: #' '^  - tier: host$' '^    latency: [0-9.e+-]+$' '^    bandwidth: [0-9.e+-]+$' '^    adding: [0-9.e+-]+$' \
  '^    source: "trireme bench comm, engine shm, ranks 0 and 1'
grep -q network links.yaml && fail "a network on one host: $(cat links.yaml)"
one=(comm all-reduce -n 2 "${short[@]}" bench.sizes=64)
bench "${one[@]}" --write before.json
expect 'results' 0
sed 's/"seconds": [^,]*/"seconds": 1e6/' before.json >easy.json
sed 's/"seconds": [^,]*/"seconds": 1e-9/' before.json >hard.json
bench "${one[@]}" --baseline easy.json
expect 'a slower baseline' 0
refused 9 '1 of 1 results are slower than in hard.json by more than 50 %: all-reduce, f32, in place, arena, 64 bytes' \
  "${one[@]}" --baseline hard.json --tolerance 50%
says out '64 bytes +1.0 ns ' # and not 0.000 ms
refused 4 "this is '3 ranks as processes'" "${one[@]}" -n 3 --baseline before.json

# Without the direct path nothing is in an arena, and what does not fit a message is copied on the way.
bench comm all-reduce -n 2 "${short[@]}" bench.sizes=1Mi --no-direct
expect '--no-direct' 0
says out 'without the direct path' '^all-reduce, f32, in place, private$' ' 1.0 MiB .* staged$'
bench comm -n 1 "${short[@]}" bench.sizes=64
expect 'one rank' 0

# An algorithm that is demanded is measured or refused.
export TRIREME_COMM=allreduce=ring
bench comm all-reduce -n 2 "${short[@]}" bench.sizes=64Ki comm.order=any
expect 'a ring' 0
says out ', sums in any order$' '^algorithms as TRIREME_COMM=allreduce=ring demands$'
refused 3 'demands ring for all-reduce over 2 ranks: it adds in an order of its own, which needs comm.order: any; direct, .* can do it' \
  comm all-reduce -n 2 "${short[@]}" bench.sizes=64
TRIREME_COMM=alltoall_v=bruck
refused 3 'TRIREME_COMM: bruck cannot do alltoall_v; direct can' comm all-to-all-v -n 2 "${short[@]}" bench.sizes=64
TRIREME_COMM=hierarchical
refused 3 'demands hierarchical, which is for several hosts .* or hierarchical/2 would work' comm all-reduce -n 4 "${short[@]}" bench.sizes=64
TRIREME_COMM=bruck
bench comm broadcast -n 2 "${short[@]}" bench.sizes=64
expect 'what it cannot do' 0
says err 'TRIREME_COMM=bruck is for allgather, alltoall, allgather_v; it cannot do allreduce, .*broadcast.* usual way'
unset TRIREME_COMM

# Pairs.
bench comm --matrix -n 3 --svg map.svg
expect '--matrix' 0
says out '^latency of 8 B' '^bandwidth of 4.0 MiB' '^paths: 3 pairs shared$' '^ +0: +- +shared +shared$'
says map.svg '^<svg ' 'ranks 0 and 2, shared: [0-9.]+ us' 'ranks 2 and 0, shared: [0-9.]+ GB/s' '^</svg>$'
bench comm --matrix -n 2 --no-direct --json
expect '--matrix --no-direct' 0
says out '"path": "copy"' '"latency_s": [0-9]'

# A factor that nothing reaches, and one that the slowest of three always does.
bench comm --preflight -n 3 bench.slow=1e9
expect '--preflight' 0
says out '^rank +host ' '^no rank or link is slow; the slowest is '
refused 9 '(rank [0-2]|the link between ranks [0-2] and [0-2]) is slow: ' comm --preflight -n 3 bench.slow=1
bench comm --preflight -n 2 bench.slow=1e9 --json
expect '--preflight --json' 0
says out '"slow": false' '"sentence": "no rank is slow; .* their only link takes .* no other to compare it with'

# The machine.
bench topology
expect 'topology' 0
says out '^host .*: [0-9]+ packages?, [0-9]+ NUMA nodes?, [0-9]+ cores?, [0-9]+ threads?; this process may use [0-9]+$' '^machine$' '^network:'
bench topology --json
expect 'topology --json' 0
says out '"benchmark": "topology"' '"cores": [0-9]+' '"name": "machine"'

# Wrong uses.
refused 2 "did you mean 'all-reduce'" comm all-reduec
refused 2 'there are all-reduce, reduce, ' comm everything
refused 3 'neither FROM..TO' comm bench.sizes=64..8
refused 3 'neither FROM..TO' comm bench.sizes=8,x
refused 3 'neither FROM..TO' comm bench.sizes=0
refused 3 'sizes are from 1 byte to 1000 GB' comm bench.sizes=1Ti
refused 3 'neither FROM..TO' comm bench.sizes=64,8
refused 3 'is no list of f32' comm bench.types=f64
refused 3 'is no list of f32' comm bench.types=f32,f32
refused 3 'did you mean' comm bench.size=8
refused 3 'number of ranks' comm -n 0
refused 3 'one rank has no links' comm -n 1 --write links.yaml
refused 3 'one rank has no pairs' comm -n 1 --matrix
refused 2 'two looks' comm --matrix --preflight
refused 2 'not at operations' comm --matrix all-reduce
refused 3 '--preflight takes no such setting' comm --preflight bench.sizes=8
refused 2 'topology takes no argument' topology all
refused 2 'there is no option' topology --jsno
bench "${one[@]}" --write nowhere/results.json
expect 'a folder that is not there' 10 nowhere
wait_until nobody_left || fail 'ranks are left'
finish
