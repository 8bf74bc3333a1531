#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 120
# `trireme convert` and `trireme diff`: a small Hugging Face folder made here, there and back; types, files and names; what
# differs is said, with exit codes that scripts can use; wrong uses are named. Skipped without python3, which makes the folder.
set -euo pipefail
: "${TRIREME:?path of the command}"
if ! command -v python3 >/dev/null; then
  echo "skipped: python3 is not here"
  exit 77
fi
folder=$(mktemp -d "${TMPDIR:-/tmp}/trireme-convert.XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder"

fail() { # also from subshells
  echo "FAILED: $1" >&2
  touch "$folder/failed"
}

# FILE WORDS...: each must stand in the file, as a pattern.
says() {
  local file=$1 word
  shift
  for word in "$@"; do grep -qE -e "$word" "$file" || fail "$file does not say '$word': $(head -c 2000 "$file")"; done
}

# RC WORDS COMMAND...: the exit code, and words (a pattern) of what is printed.
ends() {
  local want=$1 words=$2 rc=0
  shift 2
  "$TRIREME" "$@" >out.txt 2>&1 </dev/null || rc=$?
  [ "$rc" = "$want" ] || fail "trireme $*: exit code $rc, wanted $want: $(cat out.txt)"
  grep -qE -e "$words" out.txt || fail "trireme $*: '$(cat out.txt)' does not say '$words'"
}

# A GPT-2 of one layer in bf16 without the prefix, as the first ones were published, with a mask and a tokenizer.
cat >make.py <<'END'
import json, os, random, struct, sys
random.seed(7)
tensors, names = [], []
def add(name, *shape):
    n = 1
    for d in shape:
        n *= d
    names.append((name, shape, struct.pack("<%dH" % n, *(random.getrandbits(14) + 0x3000 for _ in range(n)))))
E, V, T = 16, 48, 8
add("wte.weight", V, E); add("wpe.weight", T, E)
for n, s in (("ln_1.weight", (E,)), ("ln_1.bias", (E,)), ("attn.c_attn.weight", (E, 3 * E)), ("attn.c_attn.bias", (3 * E,)),
             ("attn.c_proj.weight", (E, E)), ("attn.c_proj.bias", (E,)), ("ln_2.weight", (E,)), ("ln_2.bias", (E,)),
             ("mlp.c_fc.weight", (E, 4 * E)), ("mlp.c_fc.bias", (4 * E,)), ("mlp.c_proj.weight", (4 * E, E)),
             ("mlp.c_proj.bias", (E,)), ("attn.bias", (1, 1, T, T))):
    add("h.0." + n, *s)
add("ln_f.weight", E); add("ln_f.bias", E)
head, at = {"__metadata__": {"format": "pt"}}, 0
for name, shape, data in names:
    head[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(data)]}
    at += len(data)
text = json.dumps(head).encode()
os.mkdir(sys.argv[1])
with open(sys.argv[1] + "/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in names))
with open(sys.argv[1] + "/config.json", "w") as f:
    f.write('{"model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 2, "vocab_size": 48, "n_positions": 8,\n'
            ' "layer_norm_epsilon": 1e-05, "torch_dtype": "bfloat16"}\n')
for name in ("tokenizer.json", "generation_config.json"):
    with open(sys.argv[1] + "/" + name, "w") as f:
        f.write("{}\n")
END
python3 make.py hf

# There and back: other names, three files, then one again, then the old names by comparing bytes.
"$TRIREME" convert hf ours --names model --reshard 3 >out.txt
says out.txt '^ours: 16 tensors in 3 files, '
for file in model-0000{1,2,3}-of-00003.safetensors model.safetensors.index.json config.json tokenizer.json generation_config.json manifest.json; do
  [ -f "ours/$file" ] || fail "ours has no $file"
done
"$TRIREME" convert ours back >out.txt
says out.txt '^back: 16 tensors in 1 file, '
cmp hf/config.json back/config.json || fail 'config.json has changed'
ends 0 '^same$' diff ours back
ends 9 'only in the second' diff hf back
python3 - <<'END' || fail 'bytes of tensors'
import json
def read(path):
    raw = open(path, "rb").read()
    n = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8 : 8 + n])
    head.pop("__metadata__", None)
    return {k: raw[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]] for k, v in head.items()}
a, b = read("hf/model.safetensors"), read("back/model.safetensors")
del a["h.0.attn.bias"]
assert {"transformer." + k: v for k, v in a.items()} == b
END
"$TRIREME" convert hf kept --shard-size 2kB >out.txt # names and all tensors as they are
says out.txt '^kept: 17 tensors in [3-9] files'
ends 0 '^same$' diff hf kept

# Types: wider loses nothing, and back again neither.
"$TRIREME" convert hf wide --dtype f32 >/dev/null
says wide/config.json '"layer_norm_epsilon": 1e-05, "torch_dtype": "float32"\}$'
ends 9 'wte.weight +other type +0 +0 +0$' diff hf wide
says out.txt 'config.json +torch_dtype +bfloat16 \| float32' '^different$'
"$TRIREME" convert wide narrow --dtype bf16 >/dev/null
ends 0 'h.0.attn.c_attn.weight +same' diff hf narrow --all

# One changed byte: its tensor is named, in both forms; a checkpoint with a manifest is not converted then.
cp -r kept hurt
last=$(find hurt -name 'model-*' | sort | tail -n 1)
printf 'A' | dd of="$last" bs=1 seek=$(($(wc -c <"$last") - 2)) conv=notrunc status=none
ends 9 'ln_f.bias +different .* 1$' diff kept hurt
[ "$(grep -c different out.txt)" = 2 ] || fail 'more than one tensor differs'
ends 9 '"unequal": 1' diff kept hurt --json
python3 -c 'import json; d = json.load(open("out.txt")); assert d["same"] is False and [t["name"] for t in d["tensors"]] == ["ln_f.bias"]' ||
  fail 'the JSON object'
ends 4 'ln_f.bias.*the bytes have changed' convert hurt never
ends 0 '^same$' diff hurt/"${last##*/}" "$last"

# What cannot be.
mkdir pickle
cp hf/config.json pickle/
echo x >pickle/pytorch_model.bin
ends 4 'pickle' convert pickle never
ends 4 'No such file' convert nowhere never
ends 3 'is there already' convert hf ours
ends 2 'give two paths.*not 1' convert hf
ends 2 'the second path is empty' convert hf ""
ends 2 'the first path is empty' convert "" never
ends 2 "did you mean '--dtype'" convert hf never --dtyp f32
ends 2 '--dtype takes f32 or bf16 or f16' convert hf never --dtype f64
ends 2 'give one' convert hf never --reshard 2 --shard-size 5GB
ends 4 'no trainer.json' convert hf never --optimizer
ends 3 'at most one file per tensor' convert hf never --reshard 100
ends 2 'not 3' diff hf ours back
ends 2 'the second path is empty' diff hf ""
ends 2 'one is a folder, one a file' diff hf ours/model-00001-of-00003.safetensors
ends 4 'nowhere' diff hf nowhere
for name in never .never*; do [ ! -e "$name" ] || fail "$name was left behind"; done
for command in convert diff; do
  "$TRIREME" $command --help >help.txt || fail "$command --help: exit code"
  says help.txt "^usage: trireme $command" 'examples:'
done
[ ! -e failed ]
