#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 60
# Proves that our safetensors files are what an independent reader expects, and that we read what an
# independent writer makes. Needs python3 with numpy and the built test_safetensors, else skipped (77).
set -eu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=${TRIREME_BUILD:-build}/test_safetensors
python=
for candidate in python3 /usr/bin/python3; do
  if "$candidate" -c 'import numpy' 2>/dev/null; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  echo "skipped: no python3 with numpy"
  exit 77
fi
if [ ! -x "$program" ]; then
  echo "skipped: $program is not built"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$program" --write "$folder/ours.safetensors"
"$python" -B "$here/read_safetensors.py" check "$folder/ours.safetensors"
"$python" -B "$here/read_safetensors.py" write "$folder/theirs.safetensors"
"$program" --read "$folder/theirs.safetensors"
# The comparison itself must be able to fail.
size=$(stat -c %s "$folder/ours.safetensors")
printf '\x7f' | dd of="$folder/ours.safetensors" bs=1 seek=$((size - 3)) conv=notrunc status=none
if "$python" -B "$here/read_safetensors.py" check "$folder/ours.safetensors" 2>/dev/null; then
  echo "a changed byte was not noticed"
  exit 1
fi
echo "written and read alike"
