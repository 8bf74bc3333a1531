#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 400
# Proves that `trireme train` computes what PyTorch computes: the same GPT-2 from the same initial weights on the same
# text, step by step (loss, gradient norm, clip factor, learning rate, validation loss) and in its final weights, for
# AdamW and SGD, on one and two ranks, with the fast and the reference kernels, and loosely in bf16.
# Needs a python3 with PyTorch (Debian: python3-torch) and the built command, else skipped (77).
set -eu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command=${TRIREME:-build/trireme}
python=
for candidate in /usr/bin/python3 python3; do
  if "$candidate" -c 'import torch, numpy' 2>/dev/null; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  echo "skipped: no python3 with PyTorch"
  exit 77
fi
if [ ! -x "$command" ]; then
  echo "skipped: $command is not built"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -B "$here/torch_parity.py" "$command" "$folder"
