#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 60
# Proves that our event files are what an independent reader expects, and that it sees a changed byte and a cut.
# Needs python3 and the built test_events, else skipped (77).
set -eu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=${TRIREME_BUILD:-build}/test_events
if ! command -v python3 >/dev/null; then
  echo "skipped: no python3"
  exit 77
fi
if [ ! -x "$program" ]; then
  echo "skipped: $program is not built"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$program" --write "$folder"
file=$(echo "$folder"/events.out.tfevents.*)
python3 -B "$here/read_events.py" check "$file"
if [ "$(python3 -B "$here/read_events.py" "$file" | grep -c '"train/loss"')" != 20 ]; then
  echo "the printed events are not those written"
  exit 1
fi
size=$(stat -c %s "$file")
for at in 3 9 40 $((size / 2)) $((size - 2)); do
  cp "$file" "$folder/changed"
  byte=$((0x$(od -An -j "$at" -N 1 -t x1 "$file" | tr -d ' ') ^ 0x10))
  printf %b "\\0$(printf %o "$byte")" | dd of="$folder/changed" bs=1 seek="$at" conv=notrunc status=none
  if python3 -B "$here/read_events.py" "$folder/changed" >/dev/null 2>&1; then
    echo "a change of byte $at was not noticed"
    exit 1
  fi
done
head -c $((size - 5)) "$file" >"$folder/cut"
if python3 -B "$here/read_events.py" "$folder/cut" >/dev/null 2>&1; then
  echo "a cut was not noticed"
  exit 1
fi
echo "written and read alike"
