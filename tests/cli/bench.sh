# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# `trireme bench` for tests, after lib.sh. Sourced, not run: it goes to the folder of the test's files.
TRIREME_PRESETS=$(cd "$(dirname "$0")/../.." && pwd)/presets
export TRIREME_PRESETS
cd "$work" || exit 1

bench() { # where lib.sh looks for what the last command printed
  timeout 200 "$TRIREME" bench "$@" >out 2>err
  rc=$?
}

says() { # FILE PATTERN...
  local file=$1 pattern
  shift
  for pattern in "$@"; do grep -Eq -- "$pattern" "$file" || fail "$file does not say /$pattern/: $(cat "$file")"; done
}

refused() { # CODE PATTERN ARGUMENTS...
  local code=$1 pattern=$2
  shift 2
  bench "$@"
  expect "bench $*" "$code" "$pattern"
}
