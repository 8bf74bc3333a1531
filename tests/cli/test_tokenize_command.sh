#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 180
# `trireme tokenize`: the same tokens from plain, JSON and compressed text and any number of threads; work that was stopped
# or killed goes on to the same bytes; a learned vocabulary encodes and decodes; every bad input is one sentence.
. "$(dirname "$0")/lib.sh"
cd "$work" || exit 1

tokenize() { # ARGUMENTS: sets rc, $work/out and $work/err
  timeout 120 "$TRIREME" tokenize "$@" >"$work/out" 2>"$work/err"
  rc=$?
}

same() { # NAME A B
  if ! cmp -s "$2" "$3"; then fail "$1: $2 and $3 differ"; fi
}

documents() { # NAME: as the index counts them
  od -An -tu8 -j18 -N8 "$1.idx" | tr -d ' '
}

nothing_left() { # NAME OUTPUT
  if compgen -G "$2*" >/dev/null; then fail "$1: left $(echo "$2"*)"; fi
}

# ---- a vocabulary
tokenize text.txt --train-bpe 300 --output tok.json --special '<|endoftext|>' --special '<pad>'
expect 'learn' 0
grep -q '^300 tokens learned from 0.1 MB of text in .*: tok.json$' out || fail "learn says: $(cat out)"
tokenize --tokenizer tok.json --encode 'the oars rose<|endoftext|>'
expect 'encode' 0
grep -Eq '^[0-9]+( [0-9]+)* 298$' out || fail "encode says: $(cat out)"
tokenize --tokenizer tok.json --decode "$(cat out)"
expect 'decode' 0
[ "$(cat out)" = 'the oars rose<|endoftext|>' ] || fail "decode says: $(cat out)"
tokenize --tokenizer byte --encode 'oar'
[ "$(cat out)" = '111 97 114' ] || fail "bytes: $(cat out)"
tokenize --tokenizer byte --decode '111,97 114'
[ "$(cat out)" = 'oar' ] || fail "from bytes: $(cat out)"
tokenize text.txt --train-bpe 280 --pattern llama3 --output llama.json
expect 'pattern' 0
grep -q 'p{N}{1,3}' llama.json || fail 'the pattern is not in the file'
printf 'ab ab' >few.txt
tokenize few.txt --train-bpe 1000 --output few.json
expect 'a text with few pairs' 0
grep -q '^258 tokens learned .*no more pairs occur twice' out || fail "few pairs: $(cat out)"

# ---- the same documents in every form
awk '{ printf "{\"id\": %d, \"body\": \"%s\"}\n", NR, $0 }' text.txt >docs.jsonl
sed 's/$/\n/' text.txt >docs.txt
gzip -k docs.jsonl docs.txt
lines=$(wc -l <text.txt)
common=(--tokenizer tok.json --key body --split-blank-lines)
tokenize docs.jsonl "${common[@]}" --output json
expect 'JSON lines' 0
grep -Eq "^[0-9]+ tokens, $((lines + 1)) documents, 0\.1 MB of text in .* MB/s\): json\.bin and json\.idx$" out || fail "tokenize says: $(cat out)"
[ "$(documents json)" = $((lines + 1)) ] || fail "the index counts $(documents json) documents instead of $((lines + 1))"
forms=(docs.txt docs.jsonl.gz docs.txt.gz)
if command -v zstd >/dev/null; then
  zstd -q docs.jsonl docs.txt
  forms+=(docs.jsonl.zst docs.txt.zst)
fi
for form in "${forms[@]}"; do
  tokenize "$form" "${common[@]}" --output form --threads 3
  expect "$form" 0
  same "$form" json.bin form.bin
  same "$form" json.idx form.idx
  rm -f form.bin form.idx
done
tokenize docs.txt "${common[@]}" --no-end --output open
[ $(($(wc -c <json.bin) - $(wc -c <open.bin))) = $((2 * (lines + 1))) ] || fail 'there is not one end token per document'
tokenize docs.jsonl docs.txt.gz "${common[@]}" --output both
expect 'two inputs' 0
same 'two inputs' <(cat json.bin json.bin) both.bin
[ "$(documents both)" = $((2 * (lines + 1))) ] || fail "two inputs: $(documents both) documents"
tokenize text.txt --tokenizer byte --format llm.c --output bytes
expect 'llm.c' 0
grep -Eq '^[0-9]+ tokens, 1 document, ' out || fail "one document: $(cat out)"
[ "$(od -An -td4 -N12 bytes.bin | tr -s ' ')" = " 20240520 1 $(wc -c <text.txt)" ] || fail "llm.c header: $(od -An -td4 -N12 bytes.bin)"
tokenize text.txt --tokenizer byte --format nanogpt --output nano
same 'nanogpt' <(tail -c +1025 bytes.bin) nano.bin
[ ! -e nano.idx ] || fail 'nanogpt has an index'

# ---- stopped, killed, going on: a text of about 100 MB, and a fifth where sanitizers make it take as long
cat text.txt docs.txt text.txt docs.txt text.txt >some.txt
gzip -k some.txt
copies=330
if [ -n "${TRIREME_SANITIZE:-}" ]; then copies=66; fi
for ((i = 0; i < copies; i++)); do cat some.txt.gz; done >large.txt.gz
tokenize large.txt.gz --tokenizer tok.json --output whole --threads 2
expect 'a large text' 0
"$TRIREME" tokenize large.txt.gz --tokenizer tok.json --output resumed --threads 1 >out 2>err &
pid=$!
wait_until test -e resumed.bin.partial || fail 'no work was begun'
kill -TERM "$pid"
wait "$pid"
rc=$?
expect 'SIGTERM' 130
grep -q '^stopped as asked at .*; the same trireme tokenize command goes on from here$' out || fail "stopped: $(cat out err)"
[ -e resumed.partial.json ] || fail 'no state was left'
[ ! -e resumed.bin ] || fail 'an unfinished file has its name'
"$TRIREME" tokenize large.txt.gz --tokenizer tok.json --output resumed --threads 2 >out 2>err &
pid=$!
sleep 0.3
kill -KILL "$pid"
wait "$pid" 2>/dev/null
tokenize large.txt.gz --tokenizer tok.json --output resumed --threads 2
if [ "$rc" != 0 ]; then fail "going on: exit code $rc: $(cat err)"; fi
grep -q 'going on with earlier work' err || fail "it did not go on: $(cat err)"
same 'going on' whole.bin resumed.bin
same 'going on' whole.idx resumed.idx
rm -f resumed.bin resumed.idx
nothing_left 'going on' resumed

# One large document of slow words: the first signal is answered when the document is done, the second at once.
cat >slow.json <<'END'
{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a*x|a"},"behavior":"Isolated","invert":false},
 "model":{"type":"BPE","vocab":{"a":0},"merges":[]}}
END
head -c 15000000 /dev/zero | tr '\0' a >slow.txt
for ((i = 0; i < 5; i++)); do # where the document was not begun yet, the first signal is answered: later
  "$TRIREME" tokenize slow.txt --tokenizer slow.json --output slow >out 2>err &
  pid=$!
  wait_until test -e slow.bin.partial || fail 'no slow work was begun'
  sleep "$i"
  kill -INT "$pid"
  sleep 1
  kill -TERM "$pid" 2>/dev/null
  wait "$pid"
  rc=$?
  if [ "$rc" != 130 ]; then break; fi
done
[ "$rc" = 143 ] || fail "a second signal: exit code $rc: $(cat out err)"
rm -f slow.*

# A full disk, as a limit on the size of files.
(
  ulimit -f 200
  tokenize large.txt.gz --tokenizer tok.json --output full
  expect 'full disk' 10 'full.bin.partial: cannot write'
  finish
) || failures=$((failures + 1))

# ---- what is refused
refused() { # CODE REGEX ARGUMENTS
  local code=$1 regex=$2
  shift 2
  tokenize "$@"
  expect "tokenize $*" "$code" "$regex"
  nothing_left "tokenize $*" fresh
}
: >empty.txt
printf '{"text": "a"}\n{"text": \n' >bad.jsonl
head -c 100 docs.txt.gz >cut.txt.gz
echo '{}' >none.json
good=(--tokenizer tok.json --output fresh)
refused 2 'give --tokenizer: byte' text.txt --output fresh
refused 2 'give text files' "${good[@]}"
refused 2 'give --output' text.txt --tokenizer byte
refused 2 "no option '--tokeniser'; did you mean '--tokenizer'" text.txt --tokeniser byte
refused 2 '--format takes megatron or nanogpt or llm.c' text.txt "${good[@]}" --format bin
refused 2 '--threads takes a whole number between 1' text.txt "${good[@]}" --threads 0
refused 2 '--special is for --train-bpe' text.txt "${good[@]}" --special x
refused 2 '--pattern is for --train-bpe' text.txt "${good[@]}" --pattern qwen
refused 2 'leave out --tokenizer' text.txt "${good[@]}" --train-bpe 300
refused 2 '--train-bpe takes a whole number between 256' text.txt --train-bpe 255 --output fresh
refused 2 '--encode stands alone' text.txt --tokenizer byte --encode x
refused 2 '--encode stands alone' --tokenizer byte --encode x --decode 1
refused 2 "--decode takes numbers .*, not 'x'" --tokenizer byte --decode '1 x'
refused 2 'token 256 is not in the vocabulary of 256' --tokenizer byte --decode '256'
refused 3 'absent' text.txt --tokenizer absent --output fresh
refused 3 "'<s>' is given twice" text.txt --train-bpe 300 --special '<s>' --special '<s>' --output fresh
refused 3 '256 tokens cannot be learned; 257' text.txt --train-bpe 256 --output fresh
refused 4 'none.json' text.txt --tokenizer none.json --output fresh
refused 4 'absent.txt: cannot open' text.txt absent.txt "${good[@]}"
refused 4 'absent.txt: cannot open' absent.txt --train-bpe 300 --output fresh
refused 4 'empty.txt: there is no text in it' empty.txt "${good[@]}"
refused 4 'empty.txt: there is no text in it' empty.txt --train-bpe 300 --output fresh
refused 4 'bad.jsonl:2:' text.txt bad.jsonl "${good[@]}"
refused 4 'cut.txt.gz: the compressed file is truncated' cut.txt.gz "${good[@]}"
refused 4 'this is a folder' . "${good[@]}"
gzip -k json.bin
gzip -c docs.txt.gz >twice.txt.gz
refused 4 'json.bin.gz: this is named like a compressed token file' json.bin.gz "${good[@]}"
refused 4 'twice.txt.gz: what it decompresses to is compressed again' twice.txt.gz "${good[@]}"
mkdir folder
refused 2 "'folder/' is a folder" text.txt --tokenizer byte --output folder/
refused 2 "'folder' is a folder" text.txt --tokenizer byte --output folder
refused 2 "'/dev/null' is no file" text.txt --tokenizer byte --output /dev/null
refused 2 'give --output' text.txt --tokenizer byte --output ''
nothing_left 'a folder' folder/
refused 10 'json.bin: exists already' text.txt --tokenizer tok.json --output json
refused 10 'tok.json: exists already' text.txt --train-bpe 300 --output tok.json
refused 10 'text.txt/fresh' text.txt --tokenizer byte --output text.txt/fresh
refused 10 'text.txt/fresh' text.txt --train-bpe 300 --output text.txt/fresh
tokenize --help
expect 'help' 0
grep -q '^usage: trireme tokenize' out || fail 'there is no help'
finish
