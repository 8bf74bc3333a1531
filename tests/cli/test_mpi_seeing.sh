#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 120
# A trace of ranks that mpirun has started, each as if on a host of its own: every rank is in it, on one clock, also when a rank's
# clock shows another time; and what is left of it when the job fails.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/mpi.sh"
run=("${tiny[@]}" run.deadline=10s)
name=openmpi
if [ -n "$(why_no_mpi openmpi)" ]; then name=mpich; fi
why=$(why_no_mpi "$name")
if [ -n "$why" ]; then
  echo "skipped: $why"
  exit 77
fi
export TRIREME_PER_HOST=1

# check_trace NAME FILE RANKS: 8 steps of each, whose programs begin within ten seconds of those of rank 0, a busy machine allowed for.
check_trace() {
  local r
  for ((r = 0; r < $3; r++)); do
    grep -q "\"pid\":$r,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"rank $r (..*)\"}" "$2" || fail "$1: rank $r has no name"
    if [ "$(grep -c "\"pid\":$r,.*\"name\":\"program\"" "$2")" != 8 ]; then fail "$1: rank $r has not 8 steps"; fi
    grep -q "\"pid\":$r,.*\"name\":\"B[ \"]" "$2" || fail "$1: rank $r has no B"
  done
  awk -F'[:,}]' '/"name":"program"/ {
      for (i = 1; i < NF; i++) { if ($i == "\"pid\"") p = $(i + 1); if ($i == "\"ts\"") t = $(i + 1); if ($i ~ /"step"/) s = $(i + 1) }
      at[p, s] = t; if (p > most) most = p
    }
    END { for (s = 1; s <= 8; s++) for (p = 1; p <= most; p++) { d = at[p, s] - at[0, s]; if (d < -1e7 || d > 1e7) print "step " s " of rank " p ": " d " us from rank 0" } }' "$2" >"$work/late"
  if [ -s "$work/late" ]; then fail "$1: $(cat "$work/late")"; fi
  if [ "$(grep -o '"end_error_us"' "$2" | wc -l)" != $(($3 - 1)) ]; then fail "$1: clocks: $(head -c 600 "$2")"; fi
}

mpi "$name" 3 "$TRIREME" train "${run[@]}" train.folder="$work/run" trace="$work/trace.json"
if [ "$rc" != 0 ] || ! grep -q "^trace  *$work/trace.json: [0-9]* events$" "$work/out"; then fail "trace: exit code $rc: $(said)"; fi
check_trace trace "$work/trace.json" 3

# Two ranks on each host, which share memory and nothing that outlives them; a pipeline's simulated step stands beside it.
TRIREME_PER_HOST=2 mpi "$name" 4 "$TRIREME" train "${run[@]}" parallel.pp=2 batch.micro=1 train.folder="$work/pipe" trace="$work/pipe.json"
if [ "$rc" != 0 ] || ! grep -q '^trace .*pipe.json: [0-9]* events$' "$work/out"; then fail "pipeline: exit code $rc: $(said)"; fi
check_trace pipeline "$work/pipe.json" 4
grep -q '"name":"predicted' "$work/pipe.json" || fail "pipeline: no simulated step"

# A clock that is 1000 s ahead.
if unshare --time --fork --monotonic 1000 true 2>/dev/null; then
  # shellcheck disable=SC2016 # the rank's shell expands it
  mpi "$name" 2 bash -c 'if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ]; then exec unshare --time --fork --monotonic 1000 "$@"; else exec "$@"; fi' _ \
    "$TRIREME" train "${run[@]}" train.folder="$work/ahead" trace="$work/ahead.json"
  if [ "$rc" != 0 ]; then fail "another clock: exit code $rc: $(said)"; fi
  check_trace "another clock" "$work/ahead.json" 2
  grep -Eq '"rank":1,"offset_us":(999|1000)[0-9]{6}\.' "$work/ahead.json" || fail "another clock: $(head -c 600 "$work/ahead.json")"
else
  echo "a rank with another clock is not tested: this system gives none"
fi

mpi "$name" 2 env TRIREME_FAULT=rank=1,op=B,step=3,action=error "$TRIREME" train "${run[@]}" train.folder="$work/error" trace="$work/error.json"
if [ "$rc" = 0 ]; then fail "an error: exit code 0: $(said)"; fi
if ! grep -q '"end":"rank 1: injected failure in B of step 3' "$work/error.json" || ! grep -q '"pid":0,.*"name":"program"' "$work/error.json"; then fail "an error: $(said)"; fi
finish
