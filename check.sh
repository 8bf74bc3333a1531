#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Install what is missing, build, run the tests. Ends with ctest's own summary; non-zero if anything failed.
#
#   ./check.sh               quick and full tiers on the release build, quick tier under address and undefined sanitizers
#   ./check.sh --quick       quick tier on the release build only (a few minutes on two cores once built)
#   ./check.sh --full        quick and full tiers on the release build only
#   ./check.sh --nightly     every tier on the release build; quick tier with clang and under all sanitizers
#   --sanitizers             with any of these: add the quick tier under address and undefined sanitizers
# More ctest arguments may follow after --, as in: ./check.sh --quick -- -R pool
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=scripts/install.sh
. scripts/install.sh

usage() {
  sed -n 's/^# \{0,1\}//; 3,10p' "$0"
}

tier=full sanitizers=1 extra=()
while [ $# -gt 0 ]; do
  case $1 in
  --quick) tier=quick sanitizers=0 ;;
  --full) tier=full sanitizers=0 ;;
  --nightly) tier=nightly sanitizers=1 ;;
  --sanitizers) sanitizers=1 add=1 ;;
  --)
    shift
    extra=("$@")
    break
    ;;
  -h | --help) usage && exit 0 ;;
  *)
    echo "check.sh: unknown argument '$1'" >&2
    usage >&2
    exit 2
    ;;
  esac
  shift
done
if [ "${add:-0}" = 1 ]; then sanitizers=1; fi # whatever the order of the arguments

jobs=$(nproc)
test_jobs=$((jobs + (jobs + 1) / 2)) # many tests wait for deadlines, links and disks most of the time
case $tier in
quick) trireme_install build test ;;
full) trireme_install build test full ;;
nightly) trireme_install build test full nightly ;;
esac

build() { # PRESET
  echo "== building: $1"
  local said
  said=$(cmake --preset "$1" 2>&1) || { echo "$said" && return 1; }
  cmake --build --preset "$1" -j "$jobs"
}

failed=()
run_tests() { # BUILD_PRESET TEST_PRESET
  build "$1"
  echo "== testing: $2"
  ctest --preset "$2" -j "$test_jobs" --no-label-summary --no-tests=error "${extra[@]}" || failed+=("$2")
}

run_tests release "$tier"
if [ "$tier" = nightly ]; then
  run_tests clang clang
  run_tests tsan tsan
fi
if [ "$sanitizers" = 1 ]; then
  run_tests asan asan
fi
if [ ${#failed[@]} -gt 0 ]; then
  echo "check.sh: tests failed in: ${failed[*]} (see above)" >&2
  exit 1
fi
