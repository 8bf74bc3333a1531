#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 400
# A folder that `trireme convert` wrote loads in Hugging Face transformers and gives the same logits: GPT-2, Llama and Qwen3,
# trained here for a few steps, converted to three shards. Needs a python3 with PyTorch and transformers (a virtual
# environment's, in TRIREME_PYTHON), else skipped (77); the figures of the quick tier (test_oracle, test_llama_oracle)
# were made the same way.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${TRIREME:?path of the command}"
python=
for candidate in "${TRIREME_PYTHON:-python3}" python3; do
  if "$candidate" -c 'import torch, transformers' 2>/dev/null; then python=$candidate && break; fi
done
if [ -z "$python" ]; then
  echo "skipped: no python3 with PyTorch and transformers"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export TRIREME_PRESETS=$here/../../presets
seq 1 3000 >"$folder/text.txt"
prompt='1200 1201 1202'
for model in gpt2-tiny llama-tiny qwen3-tiny; do
  "$TRIREME" train model=$model data.path="$folder/text.txt" data.sequence=32 batch.sequences=8 train.steps=20 lr=2e-3 \
    train.folder="$folder/$model" >"$folder/log" 2>&1 || { cat "$folder/log" && exit 1; }
  "$TRIREME" convert "$folder/$model" "$folder/$model-hf" --reshard 3 >"$folder/log" 2>&1 || { cat "$folder/log" && exit 1; }
  "$TRIREME" generate "$folder/$model-hf" --tokenizer byte --prompt "$prompt" --logits >"$folder/ours.json"
  # shellcheck disable=SC2046 # one argument per token
  "$python" -B "$here/load_transformers.py" "$folder/$model-hf" $(printf '%s' "$prompt" | od -An -v -tu1) >"$folder/theirs.json"
  "$python" -B - "$model" "$folder/ours.json" "$folder/theirs.json" <<'PYTHON'
import json, sys
name, ours, theirs = sys.argv[1], json.load(open(sys.argv[2])), json.load(open(sys.argv[3]))
a, b = ours["logits"], theirs["logits"][-1]
worst = max(abs(x - y) for x, y in zip(a, b))
print(f"{name}: {len(a)} logits, largest difference {worst:.2e}")
sys.exit(len(a) != len(b) or not worst < 1e-4)
PYTHON
done
