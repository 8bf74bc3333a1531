#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 120
# `trireme inspect` and `trireme man`: what a checkpoint holds, in both forms; damage is found by --verify and only there;
# wrong uses are named.
set -euo pipefail
: "${TRIREME:?path of the command}"
folder=$(mktemp -d "${TMPDIR:-/tmp}/trireme-inspect.XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder"

fail() { # also from subshells
  echo "FAILED: $1" >&2
  touch "$folder/failed"
}

same() { [ "$2" = "$3" ] || fail "$1: '$2' is not '$3'"; }

# FILE WORDS...: each must stand in the file, as a pattern.
says() {
  local file=$1 word
  shift
  for word in "$@"; do grep -qE -e "$word" "$file" || fail "$file does not say '$word': $(head -c 2000 "$file")"; done
}

# RC WORDS COMMAND...: the exit code, and words (a pattern) of the message.
refused() {
  local want=$1 words=$2 rc=0 said
  shift 2
  said=$("$TRIREME" "$@" 2>&1 >out.txt </dev/null) || rc=$?
  [ "$rc" = "$want" ] || fail "trireme $*: exit code $rc, wanted $want: $said"
  [[ $said =~ $words ]] || fail "trireme $*: '$said' does not say '$words'"
}

seq 1 2000 >text.txt
"$TRIREME" train data.path=text.txt model.layers=1 model.width=16 model.heads=2 data.sequence=16 batch.sequences=4 \
  train.steps=8 train.folder=run checkpoint.every=4 run.threads=1 >train.log 2>&1 || { cat train.log >&2 && exit 1; }
newest=run/checkpoints/step-00000008

# Weights of this model: embeddings 256 x 16 + 16 x 16, two norms of 32 and a last one, 16 x 48 + 48, 16 x 16 + 16, 16 x 64 + 64,
# 64 x 16 + 16.
parameters=$((256 * 16 + 16 * 16 + 3 * 32 + 16 * 48 + 48 + 16 * 16 + 16 + 16 * 64 + 64 + 64 * 16 + 16))
"$TRIREME" inspect run >plain.txt
says plain.txt '^step +8$' 'gpt2: 1 layers, width 16, 2 heads, vocabulary 256, 16 positions' "^parameters .*\($parameters\)$" \
  'config.json' 'trainer.json' 'manifest.json' 'optimizer.safetensors' '^model.safetensors$' \
  "model.safetensors .*\($(wc -c <$newest/model.safetensors) bytes\)" \
  'transformer.wte.weight +f32 +\[256, 16\] +16384$' 'transformer.h.0.attn.c_attn.weight +f32 +\[16, 48\] +3072$' \
  "^total +16 tensors, .*\($((4 * parameters)) bytes\)$"
if grep -q 'exp_avg\|mean\|verified' plain.txt; then fail 'more than was asked for'; fi
for path in run/ run/checkpoints "$newest"; do "$TRIREME" inspect "$path" | tail -n +2 | diff - <(tail -n +2 plain.txt) >&2 || fail "$path"; done

"$TRIREME" inspect run --tensors --verify >full.txt
says full.txt 'exp_avg.transformer.wte.weight' 'exp_avg_sq' 'mean +std +min +max +nonfinite' '^verified +ok' '^total +48 tensors'
"$TRIREME" inspect "$newest/model.safetensors" >file.txt
says file.txt 'transformer.ln_f.bias' '^total +16 tensors'
if grep -q '^step\|^parameters\|^files' file.txt; then fail 'a file has no step'; fi

"$TRIREME" inspect run --json --tensors --verify >run.json
"$TRIREME" inspect "$newest/model.safetensors" --json >file.json
if command -v python3 >/dev/null; then
  parameters=$parameters newest=$newest python3 - <<'END' || fail 'the JSON objects'
import array, json, math, os
o = json.load(open("run.json"))
assert o["step"] == 8 and o["kind"] == "checkpoint" and o["verified"] is True
assert o["parameters"] == int(os.environ["parameters"])
assert o["model"] == {"kind": "gpt2", "layers": 1, "width": 16, "heads": 2, "heads_kv": 2, "vocab": 256, "positions": 16}, o["model"]
for f in o["files"]:
    assert f["bytes"] == os.path.getsize(os.environ["newest"] + "/" + f["name"])
assert sum(t["bytes"] for t in o["tensors"] if t["file"] == "model.safetensors") == 4 * o["parameters"]
# Statistics against another reader of the file.
raw = open(os.environ["newest"] + "/model.safetensors", "rb").read()
n = int.from_bytes(raw[:8], "little")
head = json.loads(raw[8 : 8 + n])
for t in o["tensors"]:
    if t["file"] != "model.safetensors":
        continue
    begin, end = head[t["name"]]["data_offsets"]
    v = array.array("f", raw[8 + n + begin : 8 + n + end])
    mean = math.fsum(v) / len(v)
    std = math.sqrt(math.fsum((x - mean) ** 2 for x in v) / len(v))
    for got, want in ((t["mean"], mean), (t["std"], std), (t["min"], min(v)), (t["max"], max(v))):
        assert abs(got - want) <= 1e-6 * max(1e-3, abs(want)), (t, mean, std)
    assert t["nonfinite"] == 0 and t["shape"] == head[t["name"]]["shape"]
o = json.load(open("file.json"))
assert o["kind"] == "file" and "step" not in o and len(o["tensors"]) == 16 and "mean" not in o["tensors"][0]
END
fi

# Values that are not finite, and a name that would command a terminal.
printf '%s' '{"a\u001b[2Jb":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}' >head.txt
printf '%b' "\\x$(printf %02x "$(wc -c <head.txt)")\\0\\0\\0\\0\\0\\0\\0" >odd.safetensors
cat head.txt >>odd.safetensors
printf '\0\0\300\177\0\0\200\177\0\0\200\77\0\0\100\100' >>odd.safetensors # nan, inf, 1, 3
"$TRIREME" inspect odd.safetensors --tensors >odd.txt
says odd.txt 'a\?\[2Jb +f32 +\[4\] +16 +2 +1 +1 +3 +2$'
if LC_ALL=C tr -d '\n' <odd.txt | LC_ALL=C grep -q '[[:cntrl:]]'; then fail 'a name commands the terminal'; fi

# Damage of one bit: inspect shows what is there, --verify finds it. Of a missing end: never shown.
cp -r run hurt
size=$(wc -c <hurt/checkpoints/step-00000008/model.safetensors)
printf 'A' | dd of=hurt/checkpoints/step-00000008/model.safetensors bs=1 seek=$((size - 9)) conv=notrunc status=none
"$TRIREME" inspect hurt >hurt.txt || fail 'inspect without --verify looks at hashes'
refused 4 'model.safetensors.*the bytes have changed' inspect hurt --verify
refused 4 'transformer.ln_f.bias' inspect hurt/checkpoints/step-00000008 --verify --json
same 'nothing is printed of a damaged checkpoint' "$(wc -c <out.txt)" 0
truncate -s -1 hurt/checkpoints/step-00000008/model.safetensors
refused 4 'model.safetensors' inspect hurt/checkpoints/step-00000008
refused 4 'model.safetensors' inspect hurt/checkpoints/step-00000008/model.safetensors

# A folder that is no checkpoint of ours.
mkdir hf
cp "$newest/config.json" "$newest/model.safetensors" hf/
"$TRIREME" inspect hf >hf.txt
says hf.txt '^model +gpt2' '^total +16 tensors'
refused 4 'no manifest.json' inspect hf --verify
echo '{"model_type": "other"}' >hf/config.json
"$TRIREME" inspect hf >hf.txt
says hf.txt '^total +16 tensors'

refused 2 'give what to show' inspect
refused 2 'two paths' inspect run hf
refused 2 "did you mean '--tensors'" inspect run --tensor
refused 2 'there are: --tensors --ledger --verify --json' inspect run --everything
refused 2 'is a file' inspect "$newest/model.safetensors" --verify
refused 4 'nowhere' inspect nowhere
refused 4 'text.txt' inspect text.txt
if [ -e /dev/full ]; then
  rc=0
  "$TRIREME" inspect run >/dev/full 2>said.txt || rc=$?
  same 'a full disk' "$rc" 10
fi
"$TRIREME" inspect --help >help.txt || fail '--help: exit code'
says help.txt --tensors --verify --json 'examples:'

# The manual page.
"$TRIREME" man >page.txt || fail 'man: exit code'
says page.txt '^\.TH .?TRIREME.*TRAIN' '^\.B lr.warmup$'
"$TRIREME" man bench >page.txt || fail 'man bench: exit code'
says page.txt '^\.TH .?TRIREME.*BENCH' '^\.B bench.baseline$'
"$TRIREME" man train | diff - <("$TRIREME" man) >&2 || fail 'man train'
refused 2 'one argument too many' man train bench
refused 2 "did you mean 'bench'" man banch
"$TRIREME" man --help >help.txt || fail 'man --help: exit code'
says help.txt 'man -l -'
[ ! -e failed ]
