#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 300
# Every way to make samples trains alike on any number of ranks: packed and unpacked documents, mixtures, balanced dealing,
# drawing with replacement. The ledger shows each sample once: 1001 samples on 8 ranks with accumulation 3, and
# across restarts on other numbers of ranks. Text, JSON lines, gzip and zstd of the same documents give the same run.
. "$(dirname "$0")/lib.sh"

# A vocabulary, and the same documents in several kinds of files. Documents end at blank lines.
awk 'NR % 3 { print } NR % 7 == 0 { print "" }' RS='[.]' "$work/text.txt" >"$work/documents.txt"
"$TRIREME" tokenize --train-bpe 300 "$work/documents.txt" --output "$work/tokenizer.json" >"$work/out" 2>&1 || fail "train-bpe: $(said)"
words=("${tiny[@]}" data.path="$work/documents.txt" data.tokenizer="$work/tokenizer.json" data.split=true data.cache="$work/cache"
  batch.sequences=24 optim.eps=1e-6)

spans() { # of the newest checkpoint: "first end ranks" a line
  "$TRIREME" inspect "$1" --ledger --json | tr -d ' \n' | grep -o '"ledger":\[[^]]*\]' | grep -o '{[^}]*}' |
    sed 's/.*"first":\([0-9]*\).*"end":\([0-9]*\).*/\1 \2 &/; s/{.*"ranks":\([0-9]*\).*/\1/'
}

# ---- every way, on one rank and on several
like_one() { # NAME ARGUMENTS
  local name=$1 n loss
  shift
  train "${words[@]}" train.folder="$work/$name-1" "$@"
  expect "$name" 0
  for n in 2 3 8; do
    train "${words[@]}" train.folder="$work/$name-$n" -n "$n" "$@"
    expect "$name on $n" 0
    loss=$(final_loss "$work/$name-$n")
    within 1e-5 "$loss" "$(final_loss "$work/$name-1")" || fail "$name on $n: loss $loss, on one rank $(final_loss "$work/$name-1")"
    within 1e-5 "$(val_loss "$work/$name-$n")" "$(val_loss "$work/$name-1")" || fail "$name on $n: another val_loss"
    weights_within 1e-4 "$work/$name-$n" "$work/$name-1" || fail "$name on $n: weights differ by more than 1e-4"
  done
}
like_one stream
like_one respected data.documents=true
like_one documents data.packing=documents batch.micro=1
like_one balanced data.packing=documents data.dealing=balanced
like_one first_fit data.packing=first_fit
like_one replacement data.sampling=replacement
like_one qwen3 model.kind=qwen3 model.heads=4 model.heads_kv=2 data.packing=first_fit
like_one window model.kind=mistral model.window=5 model.dropout=0.1 data.documents=true
if [ "$(final_loss "$work/stream-1")" = "$(final_loss "$work/respected-1")" ]; then fail "documents are not respected"; fi
if [ "$(final_loss "$work/documents-1")" = "$(final_loss "$work/first_fit-1")" ]; then fail "packing changes nothing"; fi
grep -q 'of the room empty' "$work/out" || { train "${words[@]}" data.packing=first_fit --dry-run && grep -q '% of the room empty' "$work/out"; } ||
  fail "the waste of packing is not said: $(said)"

# ---- the same documents in other files
make_json() { # one object per document
  awk 'BEGIN { RS = "" } { gsub(/\\/, "\\\\"); gsub(/"/, "\\\""); gsub(/\n/, "\\n"); printf "{\"id\":%d,\"text\":\"%s\"}\n", NR, $0 }' "$1"
}
make_json "$work/documents.txt" >"$work/documents.jsonl"
gzip -k "$work/documents.jsonl"
train "${words[@]}" data.path="$work/documents.jsonl" data.packing=first_fit train.folder="$work/json"
expect "JSON lines" 0
train "${words[@]}" data.path="$work/documents.jsonl.gz" data.packing=first_fit train.folder="$work/gzip"
expect "gzip" 0
if [ "$(weights_hash "$work/json")" != "$(weights_hash "$work/gzip")" ]; then fail "gzip changes the run"; fi
"$TRIREME" tokenize "$work/documents.jsonl" --tokenizer "$work/tokenizer.json" --output "$work/tokens" >"$work/out" 2>&1 || fail "tokenize: $(said)"
train "${words[@]}" data.path="$work/tokens.bin" data.packing=first_fit train.folder="$work/tokens-run"
expect "token files" 0
if [ "$(weights_hash "$work/json")" != "$(weights_hash "$work/tokens-run")" ]; then fail "tokenizing before changes the run"; fi
train "${words[@]}" data.path="$work/tokens.bin" data.tokenizer=none model.vocab=300 data.end=299 data.packing=first_fit train.folder="$work/numbers-run"
expect "token files without a tokenizer" 0
if [ "$(weights_hash "$work/json")" != "$(weights_hash "$work/numbers-run")" ]; then fail "the tokenizer changes the run on token files"; fi

# ---- mixtures
train "${words[@]}" data.path="$work/tokens.bin,$work/documents.txt" data.weights=0.75,0.25 train.folder="$work/mixture" -n 3
expect "mixture" 0
train "${words[@]}" data.path="$work/tokens.bin,$work/documents.txt" data.weights=0.75 train.folder="$work/bad"
expect "too few shares" 3 'data.weights: 1 shares for the 2 files of data.path'
train "${words[@]}" data.path="$work/tokens.bin,$work/documents.txt" data.weights=0.75,-1 train.folder="$work/bad"
expect "a negative share" 3 "data.weights: '-1' is no share"

# ---- the ledger: 1001 samples, 8 ranks, accumulation 3
head -c $((1001 * 16 + 1)) "$work/text.txt" >"$work/1001.txt"
epoch=("${tiny[@]}" data.path="$work/1001.txt" data.sequence=16 data.val_fraction=0 train.epochs=1 batch.sequences=48 batch.micro=2)
for n in 1 2 3 8; do
  train "${epoch[@]}" -n "$n" train.folder="$work/epoch-$n"
  expect "epoch on $n" 0
  if [ "$(spans "$work/epoch-$n")" != "0 1001 $n" ]; then fail "epoch on $n: the ledger is $(spans "$work/epoch-$n")"; fi
  within 1e-5 "$(final_loss "$work/epoch-$n")" "$(final_loss "$work/epoch-1")" || fail "epoch on $n: other loss than on one"
done

# ---- across restarts on other numbers of ranks
for stage in 2:3 5:8 9:1 12:2; do
  train "${epoch[@]}" train.epochs=0 train.steps="${stage%:*}" lr.kind=constant -n "${stage#*:}" train.folder="$work/moved"
  expect "moved to ${stage#*:} ranks" 0
done
if [ "$(spans "$work/moved" | tr '\n' ';')" != "0 96 3;96 240 8;240 432 1;432 576 2;" ]; then fail "moved: the ledger is $(spans "$work/moved")"; fi
train "${epoch[@]}" train.epochs=0 train.steps=12 lr.kind=constant train.folder="$work/unmoved"
expect "unmoved" 0
within 1e-5 "$(final_loss "$work/moved")" "$(final_loss "$work/unmoved")" || fail "moved: other loss than unmoved"
weights_within 1e-4 "$work/moved" "$work/unmoved" || fail "moved: other weights than unmoved"

# ---- a run goes on with its own samples only
resumed() { # NAME CODE REGEX ARGUMENTS
  local name=$1 code=$2 regex=$3
  shift 3
  train "${words[@]}" data.path="$work/tokens.bin,$work/text.txt" data.weights=1,3 train.steps=12 train.folder="$work/own" "$@"
  expect "$name" "$code" "$regex"
}
resumed "first" 0 '' train.steps=4
resumed "another part to validate on" 3 'number of training samples' data.val_fraction=0.3
resumed "another file to validate on" 3 'number of training samples' data.val_path="$work/tokens.bin"
resumed "documents respected" 3 'data.documents is true, the checkpoint was made with false' data.documents=true
resumed "other shares" 3 'data.weights' data.weights=1,2
resumed "another order of files" 4 'is not the data' data.path="$work/text.txt,$work/tokens.bin"
resumed "the same shares" 0 '' data.weights=2,6
grep -q ': 4 of 12 steps done' "$work/out" || fail "the same shares: did not go on: $(said)"
cp "$work/documents.txt" "$work/changing.txt"
train "${tiny[@]}" data.path="$work/changing.txt" train.folder="$work/changing" train.steps=2
expect "before a change" 0
printf 'x' | dd of="$work/changing.txt" bs=1 seek=20000 conv=notrunc status=none
train "${tiny[@]}" data.path="$work/changing.txt" train.folder="$work/changing" train.steps=4
expect "one byte changed" 4 'is not the data'
train "${tiny[@]}" data.path="$work/changing.txt" train.folder="$work/changing" train.steps=4 data.changed=accept
expect "one byte changed, accepted" 0
train "${epoch[@]}" train.folder="$work/epoch-2" train.epochs=2
expect "beyond a short end" 3 'short end of train.epochs'
train "${epoch[@]}" train.folder="$work/epoch-2" -n 2 train.epochs=0.5
expect "less than was done" 0
grep -q 'nothing to do' "$work/out" || fail "less than was done: $(said)"

# ---- bad data
bad() { # NAME CODE REGEX ARGUMENTS
  local name=$1 code=$2 regex=$3
  shift 3
  train "${words[@]}" train.folder="$work/bad" "$@"
  expect "$name" "$code" "$regex"
}
: >"$work/empty.bin"
printf '{"text": "a"}\n{"text": 5}\n' >"$work/number.jsonl"
printf '{"text": "a"}\n{"txt": "b"}\n' >"$work/missing.jsonl"
head -c 200 "$work/documents.jsonl.gz" >"$work/cut.jsonl.gz"
bad "no such file" 4 'nowhere.txt' data.path="$work/nowhere.txt"
bad "empty tokens" 4 'empty.bin' data.path="$work/empty.bin"
bad "a number for a text" 4 'number.jsonl.*2' data.path="$work/number.jsonl"
bad "no text" 4 'missing.jsonl.*2.*text' data.path="$work/missing.jsonl"
bad "cut gzip" 4 'cut.jsonl.gz' data.path="$work/cut.jsonl.gz"
bad "no tokenizer for text" 3 'data.path: .*is no token file' data.tokenizer=none model.vocab=300
bad "no such tokenizer" 3 'data.tokenizer' data.tokenizer="$work/nowhere.json"
bad "no tokenizer in a text" 3 'data.tokenizer' data.tokenizer="$work/text.txt"
bad "tokens without a vocabulary" 3 'model.vocab: token files do not say' data.path="$work/tokens.bin" data.tokenizer=none
bad "a token beyond the vocabulary" 4 'tokens.bin.*(vocabulary|vocab)' data.path="$work/tokens.bin" data.tokenizer=none model.vocab=100
bad "tokens and text" 3 'token files and text together need a tokenizer' data.path="$work/tokens.bin,$work/documents.txt" data.tokenizer=auto
bad "a small vocabulary" 3 'model.vocab: 100 is smaller than the 300 tokens' model.vocab=100
finish
