# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Shared by the script tests of the command. Sourced, not run: tests/cli/test_*.sh.
#
# A test calls the command as a user would, checks exit codes, messages and files, reports every fault with `fail`, and ends
# with `finish`. Everything lies in the folder $work, which is in the arguments of each process that is started, so that
# what is left of a job can be found by it.
set -uo pipefail
: "${TRIREME:?path of the command}"
work=$(mktemp -d) || exit 1
unset TRIREME_FAULT
failures=0 rc=0

# Processes of this test whose arguments hold FOLDER, $work or one below it.
processes() {
  if [[ -n $work && $1 == "$work"* ]]; then pgrep -f -- "$1"; fi
}

clean_up() {
  local pid
  for pid in $(processes "$work"); do kill -9 "$pid"; done
  rm -rf "$work"
}
trap clean_up EXIT

fail() {
  echo "FAIL: $*"
  failures=$((failures + 1))
}

finish() {
  if [ "$failures" -gt 0 ]; then
    echo "$failures failed"
    exit 1
  fi
  echo "ok"
  exit 0
}

# make_text KILOBYTES FILE: words with some order in them, the same every time.
make_text() {
  LC_ALL=C awk -v kilobytes="$1" 'BEGIN {
    split("the oar sea bank wind row ship of and trireme stroke drum port keel salt", word, " ")
    seed = 7
    while (size < kilobytes * 1000) {
      seed = (seed * 1103 + 12345) % 65536
      w = word[seed % 15 + 1] (seed % 11 == 0 ? ".\n" : " ")
      size += length(w)
      printf "%s", w
    }
  }' >"$2"
}

make_text 60 "$work/text.txt"
# A model that steps in milliseconds. Later arguments win, so tests change what they need.
# shellcheck disable=SC2034
tiny=(data.path="$work/text.txt" data.sequence=32 model.layers=2 model.width=32 model.heads=2 batch.sequences=12
  run.threads=1 train.eval_samples=6 train.log_every=1 train.steps=8)

# train ARGUMENTS: sets rc, $work/out and $work/err.
train() {
  timeout 120 "$TRIREME" train "$@" >"$work/out" 2>"$work/err"
  rc=$?
}

said() { # for a report: the end of what the last command printed
  tail -n 3 "$work/out" "$work/err"
}

# expect NAME CODE [REGEX]: the last command ended like this, with one line on standard error that matches, besides the
# launcher's table of what ranks were doing; a run that was stopped as asked (130) says so on standard output.
expect() {
  local name=$1 code=$2 regex=${3:-}
  if [ "$rc" != "$code" ]; then fail "$name: exit code $rc instead of $code: $(said)"; fi
  if [ -n "$regex" ] && ! grep -Eq -- "$regex" "$work/err"; then fail "$name: no /$regex/ in: $(cat "$work/err")"; fi
  if [ "$code" != 0 ] && [ "$code" != 130 ] && [ "$(grep -vc '^\[launcher\] ' "$work/err")" != 1 ]; then fail "$name: not one line: $(cat "$work/err")"; fi
}

# "step loss" for every step, the last record where a step was repeated.
losses() {
  sed -n 's/^{"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl" | awk '{ last[$1] = $2 } END { for (s in last) print s, last[s] }' |
    sort -n
}

# What was logged on the console, the two lines of a step as one.
log_lines() {
  awk '/^step [0-9]+\// { if (line) print line; line = $0; next }
    line && /^ +\| / { sub(/^ +/, " "); line = line $0; next }
    { if (line) print line; line = "" }
    END { if (line) print line }' "$work/out"
}

# The last command's output with lines that were cut for the width put together.
whole_lines() {
  sed -z 's/\n        */ /g' "$work/out"
}

# Lines of the last command's output that are wider than a usual terminal, file names apart.
wide_lines() {
  sed "s|$work|FOLDER|g" "$work/out" | awk 'length > 120'
}

final_loss() {
  losses "$1" | tail -n 1 | cut -d' ' -f2
}

val_loss() {
  sed -n 's/.*"val_loss":\([^,}]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 1
}

newest() { # path of the newest checkpoint
  printf '%s/checkpoints/%s' "$1" "$(cat "$1/checkpoints/latest")"
}

weights_hash() {
  sha256sum <"$(newest "$1")/model.safetensors" | cut -d' ' -f1
}

f32_weights() { # the numbers of a safetensors file of f32 tensors, one a line
  local file header
  file="$(newest "$1")/model.safetensors"
  header=$(od -An -v -tu8 -N8 "$file" | tr -d ' ')
  od -An -v -tf4 -w4 -j "$((header + 8))" "$file"
}

# within LIMIT A B: |A - B| <= LIMIT
within() {
  awk -v limit="$1" -v a="$2" -v b="$3" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d <= limit && -d <= limit) }'
}

# weights_within LIMIT FOLDER FOLDER
weights_within() {
  paste <(f32_weights "$2") <(f32_weights "$3") |
    awk -v limit="$1" '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= limit) || NF != 2) bad = 1 } END { exit !(NR > 0 && !bad) }'
}

# settled COMMAND...: which sets rc; again while others on the machine let nothing be said of a link that it measures.
settled() {
  local i
  for ((i = 0; i < 10; i++)); do
    "$@"
    if [ "$rc" != 9 ] || ! grep -q 'nothing can be said of the link' "$work/err"; then return; fi
  done
}

# wait_until COMMAND...: up to a minute, and more where the command itself takes long.
wait_until() {
  local i
  for ((i = 0; i < 1200; i++)); do
    if "$@"; then return 0; fi
    sleep 0.05
  done
  return 1
}

# True when a run has logged that many steps. Usage: logged COUNT FOLDER
logged() {
  [ "$(losses "$2" 2>/dev/null | wc -l)" -ge "$1" ]
}

nobody_left() {
  ! processes "$work" >/dev/null
}

shared_files() {
  find /dev/shm -maxdepth 1 -type f -iname '*trireme*' 2>/dev/null | wc -l
}
