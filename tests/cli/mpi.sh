# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Starters of ranks for tests, after lib.sh. Sourced, not run.
#
# Ranks of a test are started by mpirun of one MPI, on the one host or, with TRIREME_PER_HOST, as if on several.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_plm_rsh_agent=/bin/false
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
unset TRIREME_PER_HOST TRIREME_MPI

# has_mpi NAME: nonempty reason when it cannot be tested.
why_no_mpi() {
  if ! command -v "mpirun.$1" >/dev/null; then
    echo "mpirun.$1 is not installed"
  elif [ ! -e "$(dirname "$TRIREME")/trireme-$1.so" ]; then
    echo "trireme-$1.so was not built"
  fi
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
