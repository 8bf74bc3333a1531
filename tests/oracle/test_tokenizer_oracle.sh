#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 120
# Proves that the golden numbers of tests/data/token are what the `tokenizers` library makes of the corpus today. Needs
# python3 with that library, else skipped (77).
set -eu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
data=$here/../data/token
python=
for candidate in "${TRIREME_PYTHON:-python3}" python3 /usr/bin/python3; do
  if "$candidate" -c 'import tokenizers' 2>/dev/null; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  echo "skipped: no python3 with tokenizers (set TRIREME_PYTHON to one)"
  exit 77
fi
"$python" -B "$here/tokenizer_golden.py" check "$data"
# The comparison itself must be able to fail.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$data"/* "$folder"
sed -i '5s/^[0-9]*/7777777/' "$folder/gpt2.golden"
if "$python" -B "$here/tokenizer_golden.py" check "$folder" >/dev/null; then
  echo "a changed number was not noticed"
  exit 1
fi
echo "the library gives the golden numbers"
