#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 240
# What the machine can do to a run: a full disk, a folder that cannot be written, data cut short while they are read, too few
# file descriptors, too little memory. Each ends with its exit code and one sentence; what was saved before stays usable.
. "$(dirname "$0")/lib.sh"

# ---- a full disk: a small file system of our own, where we may make one
disk=$work/disk
mkdir "$disk"
if mount -t tmpfs -o size=3m tmpfs "$disk" 2>/dev/null; then
  trap 'umount -l "$disk"; clean_up' EXIT
  for background in true false; do
    folder=$disk/run-$background
    train "${tiny[@]}" train.folder="$folder" -n 2 checkpoint.background="$background" train.steps=2 model.width=64
    expect "before the disk is full" 0
    weights=$(weights_hash "$folder")
    head -c 3m /dev/zero >"$disk/filler" 2>/dev/null
    train "${tiny[@]}" train.folder="$folder" -n 2 checkpoint.background="$background" train.steps=9 checkpoint.every=3 model.width=64
    expect "full disk" 10 'No space left'
    rm "$disk/filler"
    if [ "$(weights_hash "$folder")" != "$weights" ]; then fail "full disk, background $background: the old checkpoint has changed"; fi
    "$TRIREME" inspect "$(newest "$folder")" --verify >"$work/out" 2>&1 || fail "full disk: the old checkpoint does not verify"
    train "${tiny[@]}" train.folder="$folder" -n 2 checkpoint.background="$background" train.steps=9 model.width=64
    expect "after the disk was full" 0
    if compgen -G "$folder/checkpoints/.tmp-*" >/dev/null; then fail "leftovers of the failed save: $(ls -a "$folder/checkpoints")"; fi
    rm -r "$folder"
  done
  umount "$disk"
  trap clean_up EXIT
else
  echo "no right to mount, so no full disk here"
fi
# ---- folders that cannot be written
touch "$work/file"
train "${tiny[@]}" train.folder="$work/file/run"
expect "a folder below a file" 10 'file'
if [ "$(id -u)" != 0 ]; then
  mkdir -m 555 "$work/readonly"
  train "${tiny[@]}" train.folder="$work/readonly/run"
  expect "read-only folder" 10 'readonly.*Permission denied'
fi

# ---- data cut short, or gone, while they are read
for n in 1 3; do
  cp "$work/text.txt" "$work/cut.txt"
  "$TRIREME" train "${tiny[@]}" data.path="$work/cut.txt" -n "$n" train.folder="$work/cut-$n" train.steps=1000000 train.eval_every=0 \
    lr.kind=constant >"$work/out" 2>"$work/err" &
  job=$!
  wait_until logged 5 "$work/cut-$n" || fail "no steps: $(said)"
  truncate -s 1000 "$work/cut.txt"
  wait "$job"
  rc=$?
  expect "data cut short on $n" 4 'cut.txt'
  wait_until nobody_left || fail "data cut short on $n: processes are left"
done
cp "$work/text.txt" "$work/gone.txt"
"$TRIREME" train "${tiny[@]}" data.path="$work/gone.txt" train.folder="$work/gone" train.steps=300 train.eval_every=0 >"$work/out" 2>"$work/err" &
job=$!
wait_until logged 5 "$work/gone" || fail "no steps: $(said)"
rm "$work/gone.txt" # a mapped file stays until it is closed
wait "$job"
rc=$?
expect "data removed" 0

# ---- too few file descriptors
(
  ulimit -n 12
  train "${tiny[@]}" batch.sequences=16 -n 8 train.folder="$work/descriptors"
  if [ "$rc" = 0 ] || [ "$(wc -l <"$work/err")" != 1 ] || ! grep -q 'ulimit -n' "$work/err"; then
    fail "12 descriptors: exit code $rc, $(said)"
  fi
  exit "$failures"
) || fail "descriptors"

# ---- too little memory: what needs how much, and changes that would fit; each named change does
train "${tiny[@]}" train.folder="$work/memory" model.width=16384 model.heads=128 model.layers=40
expect "a model beyond memory" 5 'do not fit in .* of memory \(weights .*gradients .*optimizer .*what would fit: '
big=("${tiny[@]}" train.folder="$work/memory" batch.sequences=65536 batch.micro=65536 data.sequence=512 model.width=256)
train "${big[@]}" --dry-run
expect "a micro-batch beyond memory" 5 'what would fit: .*batch\.micro=[0-9]+'
change=$(sed -n 's/.*what would fit: .*\(batch\.micro=[0-9]*\).*/\1/p' "$work/err")
train "${big[@]}" "$change" --dry-run
expect "with the change that was named" 0
train "${tiny[@]}" train.folder="$work/memory" batch.sequences=1073741824 --dry-run
expect "a batch beyond memory" 5 'what would fit: batch\.sequences=[0-9]+$'
change=$(sed -n 's/.*what would fit: \(batch\.sequences=[0-9]*\)$/\1/p' "$work/err")
train "${tiny[@]}" train.folder="$work/memory" "$change" --dry-run
expect "with the batch that was named" 0
copies=("${tiny[@]}" train.folder="$work/memory" -n 2 model.width=256)
total() { # ARGUMENTS: the memory that a plan takes
  train "${copies[@]}" "$@" --json
  sed -n 's/.*"memory_total": \([0-9]*\),.*/\1/p' "$work/out"
}
between=$((($(total parallel.zero=0) + $(total parallel.zero=1)) / 2))
TRIREME_MEMORY=$between train "${copies[@]}" parallel.zero=0 --dry-run
expect "a copy per rank" 5 'what would fit: parallel\.zero=1'
TRIREME_MEMORY=$between train "${copies[@]}" parallel.zero=1 --dry-run
expect "one copy" 0
finish
