#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 120
# `trireme generate`: finds a model by every kind of path, writes the same text for the same seed however many threads and whatever
# the form, slides over its context, keeps bytes that are no characters out of a terminal, and names what is wrong with a wrong use.
set -euo pipefail
: "${TRIREME:?path of the command}"
folder=$(mktemp -d "${TMPDIR:-/tmp}/trireme-generate.XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder"

fail() { # also from subshells
  echo "FAILED: $1" >&2
  touch "$folder/failed"
}

# What the command writes, as hexadecimal bytes or their number; it must end well.
write() { "$TRIREME" generate "$@" || fail "trireme generate $*: exit code $?"; }
hex() { write "$@" | od -An -v -tx1; }
bytes() { write "$@" | wc -c; }

# What must hold of two texts.
same() { [ "$2" = "$3" ] || fail "$1: '$2' is not '$3'"; }

# RC WORDS COMMAND...: the exit code, and words (a pattern) of the message.
refused() {
  local want=$1 words=$2 rc=0 said
  shift 2
  said=$("$TRIREME" "$@" 2>&1 >out.txt </dev/null) || rc=$?
  [ "$rc" = "$want" ] || fail "trireme $*: exit code $rc, wanted $want: $said"
  [[ $said =~ $words ]] || fail "trireme $*: '$said' does not say '$words'"
  [[ $(wc -l <<<"$said") == 1 ]] || fail "trireme $*: more than one line: $said"
}

seq 1 2000 >text.txt
"$TRIREME" train data.path=text.txt model.layers=1 model.width=16 model.heads=2 data.sequence=16 batch.sequences=4 \
  train.steps=8 train.folder=run checkpoint.every=4 run.threads=1 >train.log 2>&1 || { cat train.log >&2 && exit 1; }
newest=run/checkpoints/step-00000008
[ -d "$newest" ] || { echo "no $newest after training" >&2 && ls -R run >&2 && exit 1; }
mkdir hf
cp "$newest/config.json" "$newest/model.safetensors" hf/

# Every kind of path means the same model; the same seed writes the same text.
text=$(hex run --prompt 12 --tokens 60)
for path in run run/ run/checkpoints "$newest" hf; do
  same "$path" "$(hex "$path" --prompt 12 --tokens 60 --threads 2)" "$text"
done
same 'options before the path' "$(hex --tokens=60 --prompt=12 --seed 1234 run)" "$text"
[ "$(hex run --prompt 12 --tokens 60 --seed 7)" != "$text" ] || fail 'another seed, the same text'
[ "$(hex run/checkpoints/step-00000004 --prompt 12 --tokens 60)" != "$text" ] ||
  fail 'another checkpoint, the same text'

# One byte per token: prompt, 60 tokens (longer than the 16 positions, so the window slid), the newline at the end.
same 'bytes written' "$(bytes run --prompt 12 --tokens 60)" 63
same 'no tokens' "$(write run --prompt abc --tokens 0)" abc
same 'empty prompt' "$(bytes run --prompt '' --tokens 5)" 6
long=$(printf '7%.0s' $(seq 40))
same 'a prompt longer than the context' "$(bytes run --prompt "$long" --tokens 30 2>said.txt)" 71
grep -q 'only the end of it counts' said.txt || fail "no word about a prompt that is too long: $(cat said.txt)"
same 'bf16' "$(bytes run --prompt 1 --tokens 20 --precision bf16)" 22

# Greedy: the seed does not matter, and neither does cutting the candidates.
greedy=$(hex run --prompt 1 --tokens 20 --temperature 0)
same 'greedy, another seed' "$(hex run --prompt 1 --tokens 20 --temperature 0 --seed 5)" "$greedy"
same 'top-k 1' "$(hex run --prompt 1 --tokens 20 --top-k 1)" "$greedy"
same 'top-p 0' "$(hex run --prompt 1 --tokens 20 --top-p 0)" "$greedy"

# JSON: valid whatever the bytes, and what it says.
for seed in 1 2 3; do "$TRIREME" generate run --prompt $'\xff"\\' --tokens 200 --temperature 5 --seed "$seed" --json; done >wild.json
"$TRIREME" generate run --prompt 1 --tokens 20 --temperature 0 --json >one.json
if command -v python3 >/dev/null; then
  python3 - <<'END' || fail 'the JSON objects'
import json, subprocess
for line in open("wild.json", encoding="utf-8"):
    o = json.loads(line)
    assert o["prompt"] == '\ufffd"\\', o["prompt"]
    assert o["tokens"] == 200 and 0 < len(o["text"]) <= 200
o = json.load(open("one.json"))
assert sorted(o) == ["checkpoint", "prompt", "seconds", "seed", "text", "tokens", "tokens_per_s"], sorted(o)
assert o["seed"] == 1234 and o["tokens"] == 20 and o["tokens_per_s"] > 0
assert o["checkpoint"].endswith("step-00000008")
END
fi
same 'one line of JSON' "$(wc -l <one.json)" 1

# A terminal gets no control bytes and no broken characters; a file gets what the model wrote. (The terminal turns \n into \r\n.)
if command -v script >/dev/null; then
  script -qec "'$TRIREME' generate run --prompt a --tokens 300 --temperature 20" /dev/null </dev/null >terminal.txt
  "$TRIREME" generate run --prompt a --tokens 300 --temperature 20 >file.txt
  same 'bytes in a file' "$(wc -c <file.txt)" 302
  if LC_ALL=C tr -d '\n' <file.txt | LC_ALL=C grep -q '[[:cntrl:]]'; then :; else fail 'this test sees no control bytes at all'; fi
  if LC_ALL=C tr -d '\n\r\t' <terminal.txt | LC_ALL=C grep -q '[[:cntrl:]]'; then fail 'control bytes reach a terminal'; fi
  iconv -f UTF-8 -t UTF-8 terminal.txt >/dev/null || fail 'broken characters reach a terminal'
fi
same 'a character cut by the prompt' "$(write run --prompt é --tokens 0)" é

# Wrong uses: exit code, and what the message says.
refused 2 'give a checkpoint' generate
refused 2 'give --prompt' generate run
refused 2 '.--prompt needs a value' generate run --prompt
refused 2 "did you mean '--tokens'" generate run --prompt x --token 3
refused 2 "did you mean '--temperature'" generate run --prompt x --temprature=1
refused 2 'there are: --prompt --tokens' generate run --prompt x --frobnicate
refused 2 "--tokens takes a whole number between 0 and .*'abc'" generate run --prompt x --tokens abc
refused 2 "--tokens .*'-1'" generate run --prompt x --tokens -1
refused 2 "--tokens .*'1.5'" generate run --prompt x --tokens 1.5
refused 2 '--temperature takes a number' generate run --prompt x --temperature -0.1
refused 2 '--temperature takes a number' generate run --prompt x --temperature nan
refused 2 '--top-p takes a number between 0 and 1' generate run --prompt x --top-p 1.01
refused 2 '--top-k' generate run --prompt x --top-k many
refused 2 '--seed' generate run --prompt x --seed ''
refused 2 '--threads' generate run --prompt x --threads 0
refused 2 "f32 or bf16, not 'bf61'; did you mean 'bf16'" generate run --prompt x --precision bf61
refused 2 'two paths' generate run run --prompt x
refused 4 'nowhere' generate nowhere --prompt x
refused 4 'not a folder' generate text.txt --prompt x
mkdir empty
refused 4 'no checkpoint in it' generate empty --prompt x
if [ -e /dev/full ]; then
  rc=0
  "$TRIREME" generate run --prompt x >/dev/full 2>said.txt || rc=$?
  same 'a full disk' "$rc" 10
fi

# A vocabulary that is not that of bytes, and nothing that says what it is.
cp -r hf odd
sed -i 's/"vocab_size": 256/"vocab_size": 300/' odd/config.json
refused 4 'has no tokenizer.json.*--tokenizer' generate odd --prompt x
cp -r hf broken
head -c 3000 hf/model.safetensors >broken/model.safetensors
refused 4 'model.safetensors' generate broken --prompt x

"$TRIREME" generate --help >help.txt || fail '--help: exit code'
for word in --prompt --tokens --temperature --top-k --top-p --seed --threads --precision --json examples: sliding; do
  grep -q -e "$word" help.txt || fail "--help does not speak of $word"
done
[ ! -e failed ]
