# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# `trireme plan` for tests, after lib.sh. Sourced, not run.

# plan ARGUMENTS: into $work/out and $work/err
plan() { "$TRIREME" plan "$@" >"$work/out" 2>"$work/err"; }
says() { # FILE PATTERN...
  local file=$1 pattern
  shift
  for pattern in "$@"; do grep -qE -e "$pattern" "$work/$file" || fail "no '$pattern' in: $(head -c 600 "$work/$file")"; done
}
refused() { # RC PATTERN ARGUMENTS...
  local rc=0 want=$1 pattern=$2
  shift 2
  plan "$@" || rc=$?
  [ "$rc" = "$want" ] || fail "plan $*: exit code $rc, not $want"
  says err "$pattern"
}
