#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 120
# Training in bf16 follows training in f32: after 200 steps, and on average over them, losses agree within 1 %, on the
# training batches and on the validation part.
. "$(dirname "$0")/lib.sh"
for type in f32 bf16; do
  train "${tiny[@]}" -n 2 train.folder="$work/$type" precision.compute="$type" train.steps=200 lr.lr=2e-3 lr.warmup=10 train.eval_samples=0 train.eval_every=0
  expect "$type" 0
done

mean() { # of the losses FROM step on
  losses "$1" | awk -v from="$2" '$1 >= from { sum += $2; n++ } END { print sum / n }'
}

# alike NAME A B: within 1 %
alike() {
  awk -v a="$2" -v b="$3" 'BEGIN { exit !(a > 0 && b > 0 && a / b < 1.01 && b / a < 1.01) }' || fail "$1: $2 in f32, $3 in bf16"
}

alike "mean loss" "$(mean "$work/f32" 1)" "$(mean "$work/bf16" 1)"
alike "mean loss of the last 20 steps" "$(mean "$work/f32" 181)" "$(mean "$work/bf16" 181)"
alike "final loss" "$(final_loss "$work/f32")" "$(final_loss "$work/bf16")"
alike val_loss "$(val_loss "$work/f32")" "$(val_loss "$work/bf16")"
first=$(losses "$work/f32" | head -n 1 | cut -d' ' -f2) last=$(final_loss "$work/f32")
awk -v a="$first" -v b="$last" 'BEGIN { exit !(b < 0.7 * a) }' || fail "nothing was learned: from $first to $last"
if [ "$(weights_hash "$work/f32")" = "$(weights_hash "$work/bf16")" ]; then fail "both types gave the same file"; fi
echo "f32 $(final_loss "$work/f32") bf16 $(final_loss "$work/bf16")"
finish
