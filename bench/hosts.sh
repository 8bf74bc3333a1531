#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Across hosts: all-reduce and what hides behind computation, against plain TCP over the same links in the same run; what is fitted to
# a link with a set rate and a set delay; what exchanges of an overlapped pair (tests/run/exchange_overlap.c) leave exposed. Hosts are
# network namespaces with throttled links (tests/cli/hosts.sh), Open MPI between them; needs root, ip, tc and Open MPI.
#
#   bench/hosts.sh BUILD [RATE [ROUNDS]]    RATE in kbit, mbit or gbit (100mbit); ROUNDS (3): each is TCP, then everything
#                                           else once; medians over rounds are printed, with the marks; some minutes a round at 100mbit
set -euo pipefail
build=$(cd "${1:?usage: bench/hosts.sh BUILD [RATE [ROUNDS]]}" && pwd) rate=${2:-100mbit} rounds=${3:-3}
source=$(cd "$(dirname "$0")/.." && pwd)
export TRIREME_BUILD=$build TRIREME_PRESETS=$source/presets
hosts=$source/tests/cli/hosts.sh
why=$("$hosts" why)
if [ -n "$why" ]; then
  echo "bench/hosts.sh: $why" >&2
  exit 5
fi
bytes=$(awk -v rate="$rate" 'BEGIN { unit = substr(rate, length(rate) - 3); n = unit == "kbit" ? 125 : unit == "mbit" ? 125e3 : unit == "gbit" ? 125e6 : 0; printf "%.0f", rate * n }')
if [ "$bytes" = 0 ]; then
  echo "bench/hosts.sh: the rate is '$rate'; one like 100mbit would work" >&2
  exit 2
fi
link=$rate
work=$(mktemp -d)
running=
clean_up() {
  if [ -n "$running" ] && kill -TERM "$running" 2>/dev/null; then wait "$running" || true; fi
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

# Background and wait, so that a signal ends the job at once. Output to $work/out.
on() { # EACH COMMAND...: over $link
  local each=$1
  shift
  "$hosts" 2 "$link" "$each" "$@" >"$work/out" 2>"$work/err" </dev/null &
  running=$!
  if ! wait "$running"; then
    running=
    cat "$work/out" "$work/err" >&2
    return 1
  fi
  running=
}

tcp() {
  on 1 "$build/bench_tcp" 10.78.0.1 16Mi 3
  sed -n 's/^tcp: \([0-9.]*\) MB.*/\1/p' "$work/out" >>"$work/tcp"
}

# The median of 7 all-reduces of 4 Mi elements, as MB/s that a host sends: what it has, once, with two hosts.
allreduce() { # NAME EACH TYPE BYTES ALGORITHM
  on "$2" env TRIREME_COMM="allreduce=$5" "$build/trireme" bench comm all-reduce bench.sizes="$4" bench.types="$3" bench.seconds=1ms
  awk -v bytes=16777216 '/ MiB +[0-9]+ / { print bytes / $4 }' "$work/out" >>"$work/$1"
}

median() { # NAME
  sort -g "$work/$1" | awk '{ v[NR] = $1 } END { if (NR) printf "%.3f", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# What bench comm fits to a link of the rate that delays by 10 ms, as shares of what was set; 1 less the error is what is near.
fit() {
  on 1 "$build/trireme" bench comm barrier bench.seconds=1ms --write "$work/links.yaml" || return 0
  local line='s/^ *NAME: //p'
  near "$(sed -n "${line/NAME/latency}" "$work/links.yaml")" 0.01 >>"$work/latency"
  near "$(sed -n "${line/NAME/bandwidth}" "$work/links.yaml")" "$bytes" >>"$work/bandwidth"
}

near() { # VALUE WANTED
  awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; print 1 - (d < 0 ? -d : d) / b }'
}

# The share of the exchanges' time that is gone beside work.
exchange() {
  on 1 "$build/exchange_overlap" "$bytes" rest 3
  sed -n 's/^exposed.pairs //p' "$work/out" | awk '{ print 1 - $1 }' >>"$work/hidden"
}

missed=0
mark() { # WORDS VALUE OVER LEAST
  local ratio
  ratio=$(awk -v a="$2" -v b="$3" 'BEGIN { printf "%.3f", a / b }')
  if awk -v r="$ratio" -v least="$4" 'BEGIN { exit !(r >= least) }'; then
    printf '%-66s %6s  mark %5s  met\n' "$1" "$ratio" "$4"
  else
    printf '%-66s %6s  mark %5s  MISSED\n' "$1" "$ratio" "$4"
    missed=$((missed + 1))
  fi
}

note() { # WORDS NAME OVER WHY: where no mark is
  awk -v words="$1" -v a="$(median "$2")" -v b="$(median "$3")" -v why="$4" 'BEGIN { printf "%-66s %6.3f  (%s)\n", words, a / b, why }'
}

#     name               each type bytes algorithm
cases=("one               1 f32 16Mi direct"
  "one-bf16               1 bf16 8Mi direct"
  "one-halving            1 f32 16Mi halving"
  "two                    2 f32 16Mi hierarchical"
  "two-bf16               2 bf16 8Mi hierarchical"
  "two-direct             2 f32 16Mi direct"
  "two-halving            2 f32 16Mi halving")
echo "2 hosts, links of $rate; $(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg)"
for ((round = 0; round < rounds; round++)); do
  tcp
  for case in "${cases[@]}"; do
    # shellcheck disable=SC2086
    allreduce $case
  done
done
tcp

echo "4 Mi elements; MB/s: 16 MiB over the time, medians of $rounds (least .. most)"
for name in tcp one one-bf16 one-halving two two-bf16 two-direct two-halving; do
  printf '  %-14s %8s  (%s)\n' "$name" "$(median "$name")" "$(sort -g "$work/$name" | awk '{ v[NR] = $1 } END { printf "%.3f .. %.3f", v[1], v[NR] }')"
done
mark "1 rank a host, over TCP both ways" "$(median one)" "$(median tcp)" 0.95
mark "2 ranks a host, hierarchical, over TCP both ways" "$(median two)" "$(median tcp)" 0.95
mark "bf16 over f32, 1 rank a host" "$(median one-bf16)" "$(median one)" 1.4
mark "2 ranks a host, hierarchical, over 1 rank a host" "$(median two)" "$(median one)" 0.98 # no slower, but for what runs vary
mark "2 ranks a host, hierarchical over direct" "$(median two)" "$(median two-direct)" 1
note "2 ranks a host, hierarchical over halving" two two-halving "its first round stays in a host: no more crosses"
note "bf16 over f32, 2 ranks a host, hierarchical" two-bf16 two "sums of a host travel in f32"

for each in 1 2; do
  echo
  on "$each" "$build/bench_overlap" 4 25000000 "$rounds"
  cat "$work/out"
  missed=$((missed + $(grep -c MISSED "$work/out" || true)))
done
echo
why=$("$hosts" why-delay)
if [ ! -x "$build/exchange_overlap" ]; then why="exchange_overlap and relay were not built, as cmocka was not found"; fi
if [ -n "$why" ]; then
  echo "no link with a delay: $why"
else
  for ((round = 0; round < rounds; round++)); do
    link=$rate+10000 fit
    link=$rate+500 exchange
  done
  mark "latency fitted over a delay of 10 ms, less its error" "$(median latency)" 1 0.8
  mark "bandwidth fitted over it, less its error" "$(median bandwidth)" 1 0.8
  mark "of exchanges beside work, hidden" "$(median hidden)" 1 0.8
fi
echo
echo "load at the end: $(cut -d' ' -f1-3 /proc/loadavg)"
if [ "$missed" -gt 0 ]; then
  echo "bench/hosts.sh: marks were missed" >&2
  exit 9
fi
