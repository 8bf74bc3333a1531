#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Train a small language model on this machine, now: installs what is missing, builds, trains, shows what was learned.
#
#   ./demo.sh [--text FILE] [--minutes M] [-n RANKS]
#   --text FILE    learn from this text (default: the C headers in the system's include folder)
#   --minutes M    how long to train, decimals allowed (default 2); the word `short` means a few seconds
#   -n RANKS       processes to train on (default 2)
# Everything it writes lies in runs/demo; a run that was there before moves to runs/demo.old.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  sed -n 's/^# \{0,1\}//; 3,9p' "$root/demo.sh"
}

die() {
  echo "demo.sh: $1" >&2
  exit 2
}

text='' minutes=2 ranks=2
while [ $# -gt 0 ]; do
  case $1 in
  --text | --minutes | -n)
    if [ $# -lt 2 ]; then die "$1 needs a value"; fi
    case $1 in
    --text) text=$2 ;;
    --minutes) minutes=$2 ;;
    -n) ranks=$2 ;;
    esac
    shift
    ;;
  -h | --help) usage && exit 0 ;;
  *) usage >&2 && die "unknown argument '$1'" ;;
  esac
  shift
done
if [ "$minutes" = short ]; then minutes=0.1; fi
[[ $minutes =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "--minutes takes a number like 2 or 0.5, not '$minutes'"
[[ $ranks =~ ^[1-9][0-9]*$ ]] || die "-n takes a number of ranks like 2, not '$ranks'"
if [ -n "$text" ]; then
  if [ ! -f "$text" ] || [ ! -r "$text" ]; then die "--text: '$text' is not a file that can be read"; fi
  text=$(realpath "$text")
fi
cd "$root"
# shellcheck source=scripts/install.sh
. scripts/install.sh

step() {
  printf '\n== %s\n' "$1"
}

build() {
  local said
  said=$(cmake --preset release 2>&1) || { echo "$said" && return 1; }
  cmake --build --preset release -j "$(nproc)" --target trireme_command -- --quiet
}

# Real text to learn from: the system's C headers in a fixed order, up to 8 MB of them. grep -I leaves out what is not text.
# Once head has enough, the others end by SIGPIPE; that is no failure, and collect_text looks at what came out.
collect_headers() {
  { find /usr/include -type f -name '*.h' -print0 | LC_ALL=C sort -z | xargs -0 -r grep -lIZ '' -- | xargs -0 -r cat -- |
    head -c 8000000; } 2>/dev/null || true
}

new=runs/demo.new # the run that was there before stays whole until this one can start
collect_text() {
  rm -rf "$new"
  mkdir -p "$new"
  if [ -n "$text" ]; then
    cp -- "$text" "$new/text.txt"
  else
    collect_headers >"$new/text.txt"
  fi
  if [ "$(wc -c <"$new/text.txt")" -lt 20000 ]; then
    rm -rf "$new"
    die "less than 20 kB of text is too little to learn from; --text FILE takes any longer text"
  fi
  echo "$(wc -c <"$new/text.txt") bytes from ${text:-the C headers in /usr/include}"
}

# Eight sequences per rank and step, whatever the number of ranks.
train() { # ARGUMENTS
  build/trireme train presets/demo.yaml -n "$ranks" "batch.sequences=$((8 * ranks))" "$@"
}

# Steps that fit the minutes, from the rate of the last of a few.
fitting_steps() {
  local rate
  train data.path="$new/text.txt" data.val_fraction=0 train.steps=12 train.log_every=4 train.folder="$new/timing" \
    >"$new/timing.log" 2>&1 || { cat "$new/timing.log" >&2 && return 1; }
  rate=$(grep -o '"tokens_per_s":[0-9.e+]*' "$new/timing/metrics.jsonl" | tail -n 1 | cut -d: -f2)
  rm -rf "$new/timing" "$new/timing.log"
  LC_ALL=C awk -v rate="$rate" -v minutes="$minutes" -v tokens=$((8 * ranks * 128)) '
    BEGIN { n = int(minutes * 60 * rate / tokens); print (n < 20 ? 20 : (n > 5000 ? 5000 : n)) }'
}

replace_old_run() {
  if [ -e runs/demo ]; then
    rm -rf runs/demo.old
    mv runs/demo runs/demo.old
    echo "The run before this one is in runs/demo.old."
  fi
  mv "$new" runs/demo
}

# The beginning of a line of the text itself: a prompt that fits whatever was learned.
prompt_from_text() {
  if [ -z "$text" ]; then
    echo '#define '
  else
    awk 'length > 20 { print substr($0, 1, 12); exit }' runs/demo/text.txt
  fi
}

step "Installing what is missing"
trireme_install build
step "Building"
build
step "Collecting text"
collect_text
step "Timing a few steps"
steps=$(fitting_steps)
replace_old_run
settings="train.steps=$steps lr.warmup=$((steps / 15 + 1))"
step "Training $steps steps on $ranks ranks, about $minutes minutes (Ctrl-C once: finish the step, save, stop)"
echo "build/trireme train presets/demo.yaml -n $ranks batch.sequences=$((8 * ranks)) $settings"
# shellcheck disable=SC2086 # two words
train $settings || [ $? = 130 ] # stopped by Ctrl-C, and saved
prompt=$(prompt_from_text)
step "What it writes after '$prompt'"
build/trireme generate runs/demo/checkpoints --prompt "$prompt"
cat <<END

== Done. The loss curve is runs/demo/loss.svg, the model is in runs/demo/checkpoints. To try next:
  build/trireme generate runs/demo/checkpoints --prompt '$prompt' --seed 2 --temperature 0.5
  build/trireme inspect runs/demo/checkpoints
  build/trireme train presets/demo.yaml -n 4 train.steps=50 train.folder=runs/four
END
