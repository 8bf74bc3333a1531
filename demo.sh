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
  cmake --build --preset release -j "$(nproc)" --target trireme_command
}

# Real text to learn from: the system's C headers in a fixed order, up to 8 MB of them. grep -I leaves out what is not text.
# Once head has enough, the others end by SIGPIPE; that is no failure, and collect_text looks at what came out.
collect_headers() {
  { find /usr/include -type f -name '*.h' -print0 | LC_ALL=C sort -z | xargs -0 -r grep -lIZ '' -- | xargs -0 -r cat -- |
    head -c 8000000; } 2>/dev/null || true
}

collect_text() {
  mkdir -p runs
  if [ -n "$text" ]; then # copied before the old run moves: it may be part of it
    cp -- "$text" runs/text.new
  else
    collect_headers >runs/text.new
  fi
  if [ "$(wc -c <runs/text.new)" -lt 20000 ]; then
    die "less than 20 kB of text is too little to learn from; --text FILE takes any longer text"
  fi
  if [ -e runs/demo ]; then
    rm -rf runs/demo.old
    mv runs/demo runs/demo.old
    echo "The run before this one is in runs/demo.old."
  fi
  mkdir runs/demo
  mv runs/text.new runs/demo/text.txt
  echo "runs/demo/text.txt: $(wc -c <runs/demo/text.txt) bytes from ${text:-the C headers in /usr/include}"
}

# Steps that fit the minutes, from timing a few. The start is timed along with them, so the answer is on the safe side.
fitting_steps() {
  local began=$EPOCHREALTIME sample=6
  build/trireme train presets/demo.yaml -n "$ranks" train.steps=$sample data.val_fraction=0 \
    train.folder=runs/demo/timing >runs/demo/timing.log 2>&1 ||
    { cat runs/demo/timing.log >&2 && return 1; }
  rm -rf runs/demo/timing runs/demo/timing.log
  LC_ALL=C awk -v began="${began/,/.}" -v now="${EPOCHREALTIME/,/.}" -v sample=$sample -v minutes="$minutes" '
    BEGIN { n = int(minutes * 60 * sample / (now - began)); print (n < 20 ? 20 : (n > 3000 ? 3000 : n)) }'
}

step "Installing what is missing"
trireme_install build
step "Building"
build
step "Collecting text"
collect_text
step "Timing a few steps"
steps=$(fitting_steps)
step "Training $steps steps on $ranks ranks, about $minutes minutes (Ctrl-C once: stop after this step and save)"
build/trireme train presets/demo.yaml -n "$ranks" "train.steps=$steps" "lr.warmup=$((steps / 15 + 1))"
step "What it writes after '#define '"
build/trireme generate runs/demo/checkpoints --prompt '#define '
cat <<'END'

== Done. The loss curve is runs/demo/loss.svg, the model is in runs/demo/checkpoints. To try next:
  build/trireme generate runs/demo/checkpoints --prompt 'struct '
  build/trireme inspect runs/demo/checkpoints
  build/trireme train presets/demo.yaml -n 4 batch.micro=4 train.steps=50 train.folder=runs/four
END
