#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 240
# Ranks started by mpirun (Open MPI and MPICH) and with torchrun's variables train what forked ranks train: same losses and
# weights, on one host and, as TRIREME_PER_HOST pretends, on several. test_mpi_faults.sh has the rest.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/mpi.sh"
run=("${tiny[@]}" run.deadline=10s)
for n in 2 3; do
  train "${run[@]}" train.folder="$work/forked-$n" -n "$n"
  expect "forked $n" 0
done

auto=(batch.sequences=64 train.steps=3 train.eval_samples=0)
train "${run[@]}" "${auto[@]}" batch.micro=16 train.folder="$work/forked-auto" -n 2
expect "forked micro-batches" 0
train "${run[@]}" train.folder="$work/forked-pipe" -n 4 parallel.pp=2 parallel.schedule=zb_h1 model.layers=4 batch.micro=1
expect "forked pipelines" 0

# check_run NAME RANKS: the last command trained this in its folder
check_run() {
  if [ "$rc" != 0 ]; then fail "$1: exit code $rc: $(said)"; fi
  if [ "$(grep -c '^plan ' "$work/out")" != 1 ]; then fail "$1: not one plan: $(said)"; fi
  same_run "$1" "$work/$1" "$work/forked-$2"
}

# ---- without any MPI: all ranks share memory
torch 2 "$TRIREME" train "${run[@]}" train.folder="$work/torch-2"
check_run torch-2 2
torch 4 "$TRIREME" train "${run[@]}" train.folder="$work/torch-pipe" parallel.pp=2 parallel.schedule=zb_h1 model.layers=4 batch.micro=1
check_run torch-pipe pipe
torch 2 "$TRIREME" train "${run[@]}" train.folder="$work/other-n" -n 3
if [ "$rc" != 3 ] || ! grep -q -- '-n 3, but torchrun has started 2 ranks; leave -n out, or give -n 2' "$work/err.0"; then
  fail "another -n: exit code $rc: $(said)"
fi
# other ONE ARGUMENTS: rank 1 is given ONE more argument than the others
# shellcheck disable=SC2016 # the rank's shell expands it
other=(bash -c 'if [ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$RANK}}" = 1 ]; then set -- "$@" "$0"; fi; exec "$TRIREME" train "$@"')
cp "$work/text.txt" "$work/same.txt"
sed 's/oar/row/' "$work/text.txt" >"$work/text-2.txt"
torch 2 "${other[@]}" lr.lr=1e-5 "${run[@]}" train.folder="$work/torch-lr"
if [ "$rc" != 3 ] || ! grep -q 'rank 0 and rank 1 of one host were started with different settings, data or programs' "$work/err"; then
  fail "another learning rate: exit code $rc: $(cat "$work/err")"
fi
torch 2 "${other[@]}" data.val_path="$work/text-2.txt" "${run[@]}" data.val_path="$work/same.txt" train.folder="$work/torch-val"
if [ "$rc" != 3 ] || ! grep -q 'rank 0 and rank 1 of one host were started with different settings, data or programs' "$work/err"; then
  fail "another validation file: exit code $rc: $(cat "$work/err")"
fi
torch 2 "${other[@]}" data.path="$work/same.txt" "${run[@]}" train.folder="$work/torch-same"
check_run torch-same 2
torch 2 env TRIREME_PER_HOST=1 "$TRIREME" train "${run[@]}" train.folder="$work/torch-hosts"
if [ "$rc" != 3 ] || ! grep -q 'torchrun started 2 ranks on several hosts without an MPI between them' "$work/err"; then
  fail "torchrun over hosts: exit code $rc: $(cat "$work/err")"
fi

tested=0
for name in openmpi mpich; do
  why=$(why_no_mpi "$name")
  if [ -n "$why" ]; then
    echo "$name is not tested: $why"
    continue
  fi
  tested=$((tested + 1))
  mpi "$name" 2 "$TRIREME" train "${run[@]}" train.folder="$work/$name-2"
  check_run "$name-2" 2
  for each in 1 2; do # every message between hosts; pipelines or data groups within one
    TRIREME_PER_HOST=$each mpi "$name" 4 "$TRIREME" train "${run[@]}" train.folder="$work/$name-pipe-$each" parallel.pp=2 parallel.schedule=zb_h1 model.layers=4 batch.micro=1
    check_run "$name-pipe-$each" pipe
  done
  export TRIREME_PER_HOST=1
  mpi "$name" 3 "$TRIREME" train "${run[@]}" train.folder="$work/$name-1-each"
  check_run "$name-1-each" 3
  grep -q '^note    ranks are on several hosts' "$work/out" || fail "$name: the plan does not say that ranks are on several hosts"
  mpi "$name" 3 env TRIREME_FAULT=rank=2,op=F,step=3,action=error "$TRIREME" train "${run[@]}" train.folder="$work/$name-error"
  if [ "$rc" = 0 ] || ! grep -q 'trireme: rank 2: injected failure in F of step 3' "$work/err"; then fail "$name-error: $rc: $(said)"; fi
  TRIREME_COMM_DEBUG=yes mpi "$name" 2 "$TRIREME" train "${run[@]}" train.folder="$work/$name-yes"
  if [ "$rc" = 0 ] || ! grep -q 'TRIREME_COMM_DEBUG=yes: give 1 to compare the calls of all ranks, or 0' "$work/err"; then fail "$name-yes: $rc: $(said)"; fi

  # ---- settings and data of one host that are not those of the others
  for change in train.seed=3 lr.lr=1e-5 data.path="$work/text-2.txt" train.folder="$work/elsewhere"; do
    mpi "$name" 2 "${other[@]}" "$change" "${run[@]}" train.folder="$work/$name-other"
    if [ "$rc" = 0 ] || ! grep -q 'trireme: rank 0 on .* and rank 1 on .* were started with different settings or data' "$work/err"; then
      fail "$name, $change on one host: exit code $rc: $(said)"
    fi
  done
  mpi "$name" 2 "${other[@]}" run.threads=2 "${run[@]}" train.folder="$work/$name-threads"
  check_run "$name-threads" 2

  # ---- hosts with unequal memory: whichever has less, both go on with what that allows
  for small in 0 1; do
    # shellcheck disable=SC2016 # the rank's shell expands it
    mpi "$name" 2 bash -c 'if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = "$0" ]; then export TRIREME_MEMORY=10M; fi; exec "$@"' "$small" \
      "$TRIREME" train "${run[@]}" "${auto[@]}" batch.micro=auto train.folder="$work/$name-auto-$small"
    check_run "$name-auto-$small" auto
    if [ "$(grep -c "^note    batch.micro=auto: 16 sequences per pass, since another host's memory allows no more" "$work/out")" != "$small" ]; then
      fail "$name-auto-$small: $(cat "$work/out")"
    fi
  done

  # ---- calls compared over hosts: nothing else changes, and what differs is named: count, type, root, operation
  TRIREME_COMM_DEBUG=1 conforms "$name" 3
  TRIREME_COMM_DEBUG=1 mpi "$name" 3 "$TRIREME" train "${run[@]}" train.folder="$work/$name-compared"
  check_run "$name-compared" 3
  differ "$name" 0 'rank 2 called all-reduce(200 f32, sum), rank 0 called all-reduce(100 f32, sum)'
  differ "$name" 1 'rank 2 called all-reduce(10000 bf16, sum), rank 0 called all-reduce(10000 f32, sum)'
  differ "$name" 3 'rank 2 called broadcast(100 f32, root 1), rank 0 called broadcast(100 f32, root 0)'
  differ "$name" 13 'rank 2 called barrier(0 u8), rank 0 called all-reduce(100 f32, sum)'
  differ "$name" 14 'in all-to-all-v rank 2 sends 0 elements to rank 1, which expects 100'
  unset TRIREME_PER_HOST
done
if [ "$tested" = 0 ]; then echo "only torchrun's variables were tested"; fi
finish
