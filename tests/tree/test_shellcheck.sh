#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 180
# Scripts pass shellcheck, which knows the traps of the shell better than reviewers do.
#
# Skipped where shellcheck is missing (scripts/install.sh full installs it).
. "$(dirname "$0")/lib.sh"
if ! command -v shellcheck >/dev/null; then
  echo "skipped: shellcheck is not here"
  exit 77
fi

check() {
  (
    cd "$1"
    grep -rlIE '^#!(/usr/bin/env |/bin/)(ba)?sh' --exclude-dir=.git --exclude-dir='build*' --exclude-dir=runs . | LC_ALL=C sort |
      xargs -r -n 4 -P "$(nproc)" shellcheck -x -P SCRIPTDIR -f gcc -S warning || true
  )
}

bad bad.sh <<'END'
#!/bin/sh
cd $1
END
tree_main 1
