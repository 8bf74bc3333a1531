#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 60
# Proves that our token files are what an independent reader expects, and that the golden files which test_corpus reads are
# what an independent writer makes. Needs python3 with numpy and the built test_corpus_writer, else skipped (77).
set -eu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=${TRIREME_BUILD:-build}/test_corpus_writer
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
mkdir "$folder/golden" "$folder/ours"
"$python" -B "$here/token_files.py" write "$folder/golden"
diff -r "$folder/golden" "$here/../data/oracle/tokens"
"$program" --write "$folder/ours"
"$python" -B "$here/token_files.py" check "$folder/ours"
# The comparison itself must be able to fail.
printf '\x7f' | dd of="$folder/ours/megatron_large.bin" bs=1 seek=1000 conv=notrunc status=none
if "$python" -B "$here/token_files.py" check "$folder/ours" 2>/dev/null; then
  echo "a changed byte was not noticed"
  exit 1
fi
echo "written and read alike"
