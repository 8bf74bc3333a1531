#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 60
# A loss that is not a number stops the run with exit code 8, naming the step and a tensor, and leaves the checkpoint of
# before; with train.nan=skip the run goes on and says so.
. "$(dirname "$0")/lib.sh"
wild=("${tiny[@]}" optim.kind=sgd lr.lr=1000 lr.kind=constant optim.clip=0 train.steps=30)
for n in 1 2; do
  train "${wild[@]}" -n "$n" train.folder="$work/stop-$n" checkpoint.every=1
  expect "stop on $n" 8 'step [0-9]+: loss (nan|inf).*gradient norm .*(transformer\.[a-z0-9_.]+|only the loss is not finite).*train.nan=skip'
  step=$(sed -n 's/.*step \([0-9]*\): loss.*/\1/p' "$work/err")
  if [ "$(newest "$work/stop-$n" | sed 's/.*step-0*//')" != "$((step - 1))" ]; then fail "$n ranks: not a number in step $step, but saved $(newest "$work/stop-$n")"; fi

  train "${wild[@]}" -n "$n" train.folder="$work/skip-$n" train.nan=skip
  expect "skip on $n" 0
  said=$(sed -n 's/.*step \([0-9]*\) is skipped: .*/\1/p' "$work/err" | head -n 1)
  first=$(sed -n 's/^{"step":\([0-9]*\),.*"skipped":true.*/\1/p' "$work/skip-$n/metrics.jsonl" | head -n 1)
  if [ -z "$said" ] || [ "$said" != "$first" ]; then fail "skip on $n: step $first is skipped, and said of step $said"; fi
  if ! grep -q '"loss":null.*"skipped":true' "$work/skip-$n/metrics.jsonl"; then fail "skip on $n: no record of a skipped step"; fi
  if ! grep -q '| skipped$' "$work/out"; then fail "skip on $n: skipped steps are not said: $(said)"; fi
  if grep -Eiq '[:,](-?nan|-?inf)' "$work/skip-$n/metrics.jsonl"; then fail "skip on $n: metrics.jsonl is not JSON"; fi
  if [ "$(tail -n 1 "$work/skip-$n/metrics.jsonl" | sed 's/{"step":\([0-9]*\).*/\1/')" != 30 ]; then fail "skip on $n: not 30 steps"; fi
done
finish
