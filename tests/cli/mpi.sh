# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Starters of ranks for tests, after lib.sh. Sourced, not run.
#
# Ranks of a test are started by mpirun of one MPI, on the one host or, with TRIREME_PER_HOST, as if on several.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_plm_rsh_agent=/bin/false
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
unset TRIREME_PER_HOST TRIREME_MPI TRIREME_COMM_DEBUG
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # MPI libraries keep what they took; a failed start keeps what MPI may still use

# why_no_mpi NAME: nonempty reason when it cannot be tested.
why_no_mpi() {
  if ! command -v "mpirun.$1" >/dev/null; then
    echo "mpirun.$1 is not installed"
  elif [ ! -e "$(dirname "$TRIREME")/trireme-$1.so" ]; then
    echo "trireme-$1.so was not built"
  fi
}

# needs_hosts [why-delay]: sets hosts, the program that makes several; ends the test where it or Open MPI cannot be used.
needs_hosts() {
  local why word
  hosts=$(dirname "$0")/hosts.sh
  for word in why "$@"; do
    why=$("$hosts" "$word")
    if [ -n "$why" ]; then break; fi
  done
  if [ -z "$why" ]; then why=$(why_no_mpi openmpi); fi
  if [ -z "$why" ]; then return; fi
  echo "skipped: $why"
  exit 77
}

# mpi NAME RANKS PROGRAM ARGUMENTS: sets rc, $work/out and $work/err.
mpi() {
  local name=$1 ranks=$2
  shift 2
  timeout -k 5 100 "mpirun.$name" -n "$ranks" "$@" >"$work/out" 2>"$work/err" </dev/null
  rc=$?
}

# torchrun RANKS PROGRAM ARGUMENTS: processes with its variables on one host; rank R's errors go to $work/err.R. rc is rank 0's.
torch() {
  local ranks=$1 r pids=()
  shift
  for ((r = 0; r < ranks; r++)); do
    RANK=$r LOCAL_RANK=$r WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=$ranks timeout -k 5 100 "$@" >"$work/out.$r" 2>"$work/err.$r" &
    pids+=($!)
  done
  for ((r = ranks - 1; r >= 0; r--)); do
    wait "${pids[r]}" 2>/dev/null
    rc=$?
  done
  cp "$work/out.0" "$work/out"
  cat "$work"/err.[0-9] >"$work/err"
}

same_run() { # NAME FOLDER FOLDER
  if [ "$(losses "$2")" != "$(losses "$3")" ] || [ -z "$(losses "$2")" ]; then fail "$1: other losses"; fi
  if [ "$(weights_hash "$2")" != "$(weights_hash "$3")" ]; then fail "$1: other weights"; fi
}

# differ NAME WAY SENTENCE: three ranks on hosts of their own make calls that differ in a way of tests/comm/differ.h; with the
# calls compared, as rank 1 asks, each rank is told this and that rank 2 is to blame.
differ() {
  local r
  rm -f "$work"/said.* "$work"/saying.*
  # shellcheck disable=SC2016 # the rank's shell expands it
  TRIREME_PER_HOST=1 mpi "$1" 3 bash -c 'if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ]; then export TRIREME_COMM_DEBUG=1; fi; exec "$@"' _ \
    "$TRIREME_BUILD/test_launch_external" "$2" "$work"
  if [ "$rc" = 0 ]; then fail "$1, way $2: calls that differ pass"; fi
  for r in 0 1 2; do
    if [ "$(cat "$work/said.$r")" != "operation #1 of group 'world' differs: $3, culprit 2" ]; then
      fail "$1, way $2: rank $r says $(cat "$work/said.$r"), not $3"
    fi
  done
}

# conforms NAME RANKS: the conformance suite, each rank on TRIREME_PER_HOST's hosts
conforms() {
  mpi "$1" "$2" "$TRIREME_BUILD/test_launch_external"
  if [ "$rc" != 0 ] || [ "$(grep -o 'a rank conforms' "$work/out" | wc -l)" != "$2" ]; then
    fail "$1, $TRIREME_PER_HOST each, calls compared: ${TRIREME_COMM_DEBUG:-0}: the conformance suite: $rc: $(said)"
  fi
}
