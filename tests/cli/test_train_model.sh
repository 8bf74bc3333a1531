#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 300
# Models by name, by description and from folders: a preset, a config.json, single fields changed, weights of a folder; all
# trained, converted, generated from and trained on. A folder converted to shards and back has the same tensors, byte for
# byte. What is not known is refused by name.
. "$(dirname "$0")/lib.sh"
small=("${tiny[@]}")
small=("${small[@]/model.*/}") # without a description of their own
run=()
for argument in "${small[@]}"; do if [ -n "$argument" ]; then run+=("$argument"); fi; done
export TRIREME_PRESETS=$PWD/presets

for preset in gpt2-tiny llama-tiny qwen3-tiny; do
  folder=$work/$preset
  train "${run[@]}" model="$preset" train.folder="$folder" -n 2
  expect "$preset" 0
  awk -v a="$(losses "$folder" | head -n 1 | cut -d' ' -f2)" -v b="$(final_loss "$folder")" 'BEGIN { exit !(b < a) }' ||
    fail "$preset: the loss does not fall: $(losses "$folder")"
  "$TRIREME" generate "$folder" --prompt "the oar" --tokens 20 --temperature 0 >"$work/out" 2>"$work/err" || fail "$preset: generate: $(said)"

  # to three files and back: the same bytes
  "$TRIREME" convert "$folder" "$work/$preset-shards" --reshard 3 >"$work/out" 2>"$work/err" || fail "$preset: convert: $(said)"
  [ -e "$work/$preset-shards/model-00003-of-00003.safetensors" ] || fail "$preset: no three shards: $(ls "$work/$preset-shards")"
  "$TRIREME" convert "$work/$preset-shards" "$work/$preset-back" >"$work/out" 2>"$work/err" || fail "$preset: convert back: $(said)"
  "$TRIREME" diff "$(newest "$folder")" "$work/$preset-back" >"$work/out" 2>"$work/err" || fail "$preset: not the same after a round trip: $(said)"
  [ "$(grep -c 'trainer.json' "$work/out")" = 1 ] || fail "$preset: a file that is missing is more than one line: $(said)"
  cmp "$(newest "$folder")/model.safetensors" "$work/$preset-back/model.safetensors" >/dev/null 2>&1 ||
    [ "$(wc -c <"$(newest "$folder")/model.safetensors")" = "$(wc -c <"$work/$preset-back/model.safetensors")" ] || fail "$preset: other size"

  # the validation loss of its weights, without a step
  last=$(sed -n 's/.*"val_loss":\([0-9.]*\).*/\1/p' "$folder/metrics.jsonl" | tail -n 1)
  train "${run[@]}" model="$work/$preset-back" train.folder="$work/$preset-eval" train.steps=0 -n 2
  expect "$preset, evaluated" 0
  loss=$(sed -n 's/^val_loss \([0-9.]*\) after 0 steps, over 6 sequences.*/\1/p' "$work/out")
  [ -n "$loss" ] && [ "$loss" = "$(printf %.4f "$last")" ] || fail "$preset: evaluated as '$loss', not $last: $(said)"

  # go on from its weights: the first loss is about the last one, not that of random weights
  train "${run[@]}" model="$work/$preset-shards" train.folder="$work/$preset-tuned" train.steps=2
  expect "$preset, tuned" 0
  grep -q "starting from the weights of" "$work/out" || fail "$preset, tuned: does not say so: $(said)"
  awk -v a="$(losses "$work/$preset-tuned" | head -n 1 | cut -d' ' -f2)" -v b="$(losses "$folder" | head -n 1 | cut -d' ' -f2)" \
    'BEGIN { exit !(a < b) }' || fail "$preset, tuned: starts at $(losses "$work/$preset-tuned")"
  train "${run[@]}" model="$work/$preset-shards" model.weights=random train.folder="$work/$preset-random" train.steps=2
  expect "$preset, random" 0
  if grep -q "starting from the weights" "$work/out"; then fail "$preset, random: took the weights"; fi
done

# ---- in bf16, and the other way about
"$TRIREME" convert "$work/llama-tiny" "$work/half" --dtype bf16 >"$work/out" 2>"$work/err" || fail "to bf16: $(said)"
grep -q bfloat16 "$work/half/config.json" || fail "config.json does not say bfloat16"
train "${run[@]}" model="$work/half" precision.compute=bf16 train.folder="$work/half-tuned" train.steps=2
expect "bf16 weights" 0
"$TRIREME" diff "$work/half" "$(newest "$work/llama-tiny")" >"$work/out" 2>"$work/err"
rc=$?
if [ "$rc" != 9 ]; then fail "diff of different folders: exit code $rc"; fi

# ---- single fields changed, and from settings alone
train "${run[@]}" model=llama3-8b model.layers=1 model.width=64 model.heads=4 model.heads_kv=2 model.head_dim=16 model.ffn=96 train.folder="$work/changed" train.steps=2
expect "fields changed" 0
grep -q 'llama3' "$(newest "$work/changed")/config.json" || fail "the rope scaling is lost: $(cat "$(newest "$work/changed")/config.json")"
for kind in llama mistral qwen2 qwen3; do
  train "${tiny[@]}" model.kind="$kind" train.folder="$work/kind-$kind" train.steps=2
  expect "kind $kind" 0
done

# ---- biases of the attention, as settings and as config.json say them
for kind in llama qwen3; do
  train "${tiny[@]}" model.kind="$kind" model.qkv_bias=true train.folder="$work/bias-$kind" train.steps=2
  expect "biases of $kind" 0
  tr -d ' \n' <"$(newest "$work/bias-$kind")/config.json" | grep -q '"attention_bias":true' || fail "biases of $kind: config.json does not say so"
  train "${run[@]}" model="$work/bias-$kind" train.folder="$work/bias-$kind-tuned" train.steps=1
  expect "biases of $kind, tuned" 0
done
train "${tiny[@]}" model.kind=mistral model.qkv_bias=true train.folder="$work/bias-mistral"
expect "biases of mistral" 3 'mistral models cannot have this model.qkv_bias: it has no biases'

# ---- what the other family has would be passed over
for setting in heads_kv=1 head_dim=8 window=4 head_norm=true; do
  train "${tiny[@]}" model.$setting train.folder="$work/foreign"
  expect "gpt2 with $setting" 3 "argument .*: model.${setting%=*}: gpt2 models have no such thing; leave it out or take another model.kind"
done
for setting in dropout_embedding=0.1 dropout_residual=0.1; do
  train "${tiny[@]}" model.kind=llama model.$setting train.folder="$work/foreign"
  expect "llama with $setting" 3 "argument .*: model.${setting%=*}: only gpt2 models have it"
done
train "${tiny[@]}" model.heads_kv=2 model.head_dim=16 model.window=0 train.folder="$work/foreign" train.steps=1
expect "settings that change nothing" 0

# ---- a run goes on when the folder that it started from is gone
cp -r "$work/llama-tiny-shards" "$work/leaving"
train "${run[@]}" model="$work/leaving" train.folder="$work/left" train.steps=2
expect "before the folder is gone" 0
rm -r "$work/leaving"
train "${run[@]}" model="$work/leaving" train.folder="$work/left" train.steps=4
expect "after the folder is gone" 0
grep -q ': 2 of 4 steps done' "$work/out" || fail "after the folder is gone: $(said)"

# ---- what belongs to a Hugging Face folder stays with it
sed -i 's/"eos_token_id": [a-z0-9]*/"eos_token_id": [7, 9], "auto_map": {"AutoModel": "evil.py"}/' "$work/llama-tiny-shards/config.json"
echo '{"eos_token_id": [7, 9], "temperature": 0.5}' >"$work/llama-tiny-shards/generation_config.json"
train "${run[@]}" model="$work/llama-tiny-shards" train.folder="$work/whole" train.steps=2
expect "a whole folder" 0
cmp "$work/llama-tiny-shards/generation_config.json" "$(newest "$work/whole")/generation_config.json" || fail "generation_config.json is lost"
tr -d ' \n' <"$(newest "$work/whole")/config.json" | grep -q '"eos_token_id":\[7,9\]' || fail "eos_token_id is lost"
if grep -q auto_map "$(newest "$work/whole")/config.json"; then fail "auto_map is passed on"; fi
"$TRIREME" tokenize --train-bpe 300 "$work/text.txt" --output "$work/own.json" >"$work/out" 2>&1 || fail "train-bpe: $(said)"
train "${run[@]}" model=llama-tiny data.tokenizer="$work/own.json" train.folder="$work/own" train.steps=2
expect "a tokenizer of its own" 0
cmp "$work/own.json" "$(newest "$work/own")/tokenizer.json" || fail "tokenizer.json is lost"
grep -q PreTrainedTokenizerFast "$(newest "$work/own")/tokenizer_config.json" || fail "no tokenizer_config.json"
mkdir "$work/dir" && cp "$work/own.json" "$work/dir/tokenizer.json"
train "${run[@]}" model=llama-tiny data.tokenizer="$work/dir" train.folder="$work/dir-run" train.steps=2
expect "the folder of a tokenizer" 0
mkdir "$work/broken" && cp "$work/llama-tiny-shards/config.json" "$work/llama-tiny-shards/model-00001-of-00003.safetensors" "$work/broken"
train "${run[@]}" model="$work/broken" train.folder="$work/broken-run" train.steps=2
expect "shards without an index" 4 'model.weights=random'

# ---- what is refused
bad() { # NAME CODE REGEX ARGUMENTS
  local name=$1 code=$2 regex=$3
  shift 3
  train "${run[@]}" train.folder="$work/bad" "$@"
  expect "$name" "$code" "$regex"
}
mkdir "$work/unknown" "$work/field" "$work/pickle"
echo '{"model_type": "mamba"}' >"$work/unknown/config.json"
sed 's/"model_type"/"sparse_gates": 3, "model_type"/' presets/models/llama-tiny.json >"$work/field/config.json"
cp presets/models/llama-tiny.json "$work/pickle/config.json"
: >"$work/pickle/pytorch_model.bin"
bad "no such preset" 3 'model.from: .*gpt2-tinny.*(did you mean|gpt2-tiny)' model=gpt2-tinny
bad "unknown architecture" 4 'mamba' model="$work/unknown"
bad "unknown field" 4 'sparse_gates' model="$work/field"
echo '{"model_type": ' >"$work/half.json"
bad "half a description" 4 'half.json' model="$work/half.json"
bad "weights of another model" 3 'model.layers is 1, the checkpoint has 4; leave those settings out' model="$work/llama-tiny-shards" model.layers=1
bad "two descriptions" 3 'model.kind' model=gpt2-tiny model.kind=llama
bad "heads that do not divide" 3 'heads' model.kind=llama model.heads=3 model.heads_kv=2 model.width=48 model.layers=1
"$TRIREME" convert "$work/pickle" "$work/out-folder" >"$work/out" 2>"$work/err"
rc=$?
expect "a pickle" 4 'pytorch_model.bin|safetensors'
finish
