#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 120
# What a run shows of itself: the log line's shares of the processor's peak and of communication, profile tables that add up,
# and a trace, also of a run that failed; a trace that cannot be written stops the command before it starts anything.
. "$(dirname "$0")/lib.sh"

rate='[0-9.]+ GFLOP/s \| peak [0-9]+%'
train "${tiny[@]}" train.folder="$work/one"
expect "one rank" 0
if ! log_lines | grep -Eq "^step 8/8 .* $rate \| data "; then fail "one rank: $(log_lines)"; fi
if ! grep -q '^{"step":8,.*"peak_share":[0-9]' "$work/one/metrics.jsonl"; then fail "one rank: no peak_share"; fi
if grep -q '"rho"' "$work/one/metrics.jsonl"; then fail "one rank: communication with nobody"; fi

for launch in processes threads; do
  folder=$work/$launch
  train "${tiny[@]}" -n 2 train.folder="$folder" run.launch="$launch" trace="$folder/sub/trace.json" profile=4
  expect "$launch" 0
  if ! log_lines | grep -Eq "^step 8/8 .* $rate \| comm [0-9.]+% rho [0-9]+\.[0-9]{2} \| data "; then fail "$launch: $(log_lines)"; fi
  if [ -n "$(wide_lines)" ]; then fail "$launch: long lines: $(wide_lines)"; fi
  if ! grep -q '^{"step":8,.*"rho":[0-9]' "$work/$launch/metrics.jsonl"; then fail "$launch: no rho"; fi
  grep -q "^trace  *$folder/sub/trace.json: [0-9]* events$" "$work/out" || fail "$launch: does not say where the trace is"
  # Two tables of 4 steps and one of all: shares, the first percentage of each row, are the whole step but for rounding.
  awk '
    /^profile of / { tables++; inside = 1; sum = 0; rows = 0; next }
    inside && /^ / { for (i = 1; i <= NF; i++) if ($i ~ /^[0-9.]+%$/) { sum += $i; rows++; break } }
    inside && /around the program/ { if (sum < 98 || sum > 102 || rows < 15) print "a table of " rows " rows and " sum "%"; inside = 0 }
    END { if (tables != 3) print tables " tables" }' "$work/out" >"$work/said"
  if [ -s "$work/said" ]; then fail "$launch: $(cat "$work/said")"; fi
  if [ "$(grep -c '^{"event":"profile"' "$folder/metrics.jsonl")" != 3 ]; then fail "$launch: not three profiles in metrics.jsonl"; fi
done

# ---- a failed run has a trace, and its message stays the only line on standard error
TRIREME_FAULT="rank=1,op=F,step=2,action=kill" train "${tiny[@]}" -n 3 train.folder="$work/killed" trace="$work/killed.json"
expect "killed" 6 'rank 1 \(pid [0-9]+\) was killed by signal 9 \(Killed\) while in F of step 2'
for rank in 0 1 2; do
  grep -q "\"name\":\"rank $rank (" "$work/killed.json" || fail "killed: rank $rank is not in the trace"
done
grep -q '"pid":1,.*"name":"F",.*"step":2,.*"unfinished":true' "$work/killed.json" || fail "killed: what rank 1 did is not in the trace"
TRIREME_FAULT="rank=0,op=NORM,step=1,action=error" train "${tiny[@]}" train.folder="$work/error" trace="$work/error.json"
expect "error" 1 'rank 0: injected failure in NORM of step 1'
if [ ! -s "$work/error.json" ]; then fail "error: no trace"; fi

# ---- a path that cannot be
for path in "$work" "$work/none/" "$work/text.txt/trace.json" /dev/null; do
  train "${tiny[@]}" train.folder="$work/refused" trace="$path"
  expect "trace=$path" 3 "argument [0-9]+: run.trace: '$path' "
done
if [ -e "$work/refused" ]; then fail "a refused run made its folder"; fi
train "${tiny[@]}" trace="$work/none/trace.json" --dry-run
expect "dry run" 0
if [ -e "$work/none" ]; then fail "a dry run made the trace's folder"; fi
finish
