#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 300
# Several hosts with throttled links (hosts.sh), Open MPI over TCP between them: the conformance suite passes, a training run
# has the bits of forked ranks and takes the memory that was predicted, each host keeping one copy of the state; and a rank that
# dies on another host ends the job with a sentence that names it, on every host.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/mpi.sh"
needs_hosts
export TRIREME_HOSTS_TAG=th$$

# on HOSTS EACH COMMAND: sets rc, $work/out and $work/err
on() {
  local count=$1 each=$2
  shift 2
  timeout -k 5 150 "$hosts" "$count" 200mbit "$each" "$@" >"$work/out" 2>"$work/err" </dev/null
  rc=$?
}

run=("${tiny[@]}" run.deadline=10s)

number() { # FIELD FOLDER: of the last record
  sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$2/metrics.jsonl" | tail -n 1
}

# What MPI itself takes while messages go is not predicted: up to 4 MiB a rank were seen.
memory_is_as_predicted() { # NAME RANKS FOLDER
  local used predicted
  used=$(number memory_used "$3") predicted=$(number memory_total "$3")
  if ! within $(($2 * 5000000)) "$used" "$predicted"; then fail "$1: $used bytes are used on the first host, $predicted were predicted"; fi
  grep -Eq "^memory  [0-9.]+ [KM]iB used by $2 ranks? of this host, [0-9.]+ [KM]iB predicted" "$work/out" || fail "$1: no line at the end: $(said)"
}
for layout in 2x2 3x1; do
  count=${layout%x*} each=${layout#*x} n=$((${layout%x*} * ${layout#*x}))
  train "${run[@]}" train.folder="$work/forked-$n" -n "$n"
  expect "forked $n" 0
  on "$count" "$each" "$TRIREME" train "${run[@]}" train.folder="$work/run-$layout"
  if [ "$rc" != 0 ]; then fail "$layout: exit code $rc: $(said)"; fi
  same_run "$layout" "$work/run-$layout" "$work/forked-$n"
  memory_is_as_predicted "$layout" "$each" "$work/run-$layout"
  on "$count" "$each" "$TRIREME_BUILD/test_launch_external"
  if [ "$rc" != 0 ] || [ "$(grep -c 'a rank conforms' "$work/out")" != "$n" ]; then
    fail "$layout: the conformance suite: exit code $rc: $(said)"
  fi
done

# One copy per host for its two ranks, or one each: a model whose weights weigh more than all else.
wide=("${run[@]}" model.width=256 model.layers=4 train.steps=3 checkpoint.background=false)
for zero in 0 1; do
  on 2 2 "$TRIREME" train "${wide[@]}" parallel.zero=$zero train.folder="$work/zero-$zero"
  if [ "$rc" != 0 ]; then fail "parallel.zero=$zero: exit code $rc: $(said)"; fi
  memory_is_as_predicted "parallel.zero=$zero" 2 "$work/zero-$zero"
done
same_run "one copy per host" "$work/zero-1" "$work/zero-0"
saved=$(($(number memory_used "$work/zero-0") - $(number memory_used "$work/zero-1")))
if [ "$saved" -lt 30000000 ]; then fail "one copy per host saves $saved bytes"; fi
# A step takes as little over the network as sums that all hosts need can: each sends a gradient's bytes, whatever its ranks are.
count_sent() { # STEPS: sets sent, the bytes that the first host sends in a run of so many
  # shellcheck disable=SC2016 # the rank's shell expands it
  on 2 2 bash -c 'sent() { sed -n "s/^ *eth0: *//p" /proc/net/dev | tr -s " " | cut -d" " -f9; }
    before=$(sent); "$@"; rc=$?; echo $(($(sent) - before)) >"$0.$OMPI_COMM_WORLD_RANK"; exit $rc' "$work/sent" \
    "$TRIREME" train "${wide[@]}" train.steps="$1" train.eval_samples=0 checkpoint.every=0 train.folder="$work/sent-$1"
  if [ "$rc" != 0 ]; then fail "a run of $1 steps: exit code $rc: $(said)"; fi
  sent=$(cat "$work/sent.0")
}
gradient=$((4 * $("$TRIREME" train "${wide[@]}" -n 2 --json | sed -n 's/.*"parameters": *\([0-9]*\).*/\1/p' | head -n 1)))
count_sent 2
few=$sent
count_sent 8
each_step=$(((sent - few) / 6))
# On a busy machine some of it is sent twice; if each rank sent its own, it were twice as much.
if ((each_step < gradient * 98 / 100 || each_step > gradient * 125 / 100)); then fail "a step sends $each_step bytes, its gradient has $gradient"; fi
# A host for each stage, whose two ranks have one copy of its state; a pipeline on each host, where each rank has its own.
train "${wide[@]}" parallel.pp=2 train.folder="$work/forked-stages" -n 4
expect "forked stages" 0
for map in tp,cp,dp,pp tp,cp,pp,dp; do
  on 2 2 "$TRIREME" train "${wide[@]}" parallel.pp=2 parallel.map=$map train.folder="$work/stages-$map"
  if [ "$rc" != 0 ] || ! grep -q '^note    ranks are on several hosts: those of a host with the same stages share' "$work/out"; then fail "stages, $map: exit code $rc: $(said)"; fi
  same_run "stages, $map" "$work/stages-$map" "$work/forked-stages"
  memory_is_as_predicted "stages, $map" 2 "$work/stages-$map"
done
saved=$(($(number memory_used "$work/stages-tp,cp,pp,dp") - $(number memory_used "$work/stages-tp,cp,dp,pp")))
if [ "$saved" -lt 10000000 ]; then fail "one copy of a stage saves $saved bytes"; fi
on 2 2 "$TRIREME" train "${run[@]}" parallel.pp=2 precision.grad_wire=bf16 train.folder="$work/narrow-stages"
if [ "$rc" != 0 ] || ! within 0.02 "$(final_loss "$work/narrow-stages")" "$(final_loss "$work/forked-4")"; then
  fail "stages in bf16: exit code $rc, loss $(final_loss "$work/narrow-stages"): $(said)"
fi
on 2 2 "$TRIREME" train "${run[@]}" precision.grad_wire=bf16 train.folder="$work/narrow"
if [ "$rc" != 0 ] || ! within 0.02 "$(final_loss "$work/narrow")" "$(final_loss "$work/forked-4")"; then
  fail "precision.grad_wire=bf16: exit code $rc, loss $(final_loss "$work/narrow"): $(said)"
fi
# No bar is drawn into what mpirun collects, but where one is asked for.
on 2 1 "$TRIREME" train "${run[@]}" train.log_every=100 train.folder="$work/quiet"
if [ "$rc" != 0 ] || grep -q $'\r.*\[#*\.' "$work/out"; then fail "a progress bar: $(cat "$work/out")"; fi
on 2 1 "$TRIREME" train "${run[@]}" train.log_every=100 run.progress=on train.folder="$work/loud"
if [ "$rc" != 0 ] || ! grep -q $'\r.*\[#*\.' "$work/out"; then fail "no progress bar: $(cat "$work/out")"; fi

# Each host says who was lost, and ranks that survive end by themselves with exit code 6, also where MPI gives its process up when it
# sees that the other side of a connection is gone.
# shellcheck disable=SC2016 # the rank's shell expands it
on 2 2 env TRIREME_FAULT=rank=3,op=B,step=3,action=kill bash -c 'trap : TERM; "$@"; echo $? >"$0.$OMPI_COMM_WORLD_RANK"' "$work/code" \
  "$TRIREME" train "${run[@]}" train.folder="$work/kill"
lost='rank 3 \(pid [0-9]+ on host2\) was killed or has ended while in B of step 3'
if [ "$rc" = 0 ] || ! grep -Eq "^trireme: $lost" "$work/err" || ! grep -Eq "^\[rank 2\] trireme: $lost" "$work/err"; then
  fail "kill: exit code $rc: $(cat "$work/err")"
fi
if grep -q 'pid 0' "$work/err"; then fail "a rank of another host has no process: $(cat "$work/err")"; fi
for r in 0 1 2; do
  if [ "$(cat "$work/code.$r")" != 6 ]; then fail "kill: rank $r ends with $(cat "$work/code.$r"): $(cat "$work/err")"; fi
done
on 2 2 env TRIREME_FAULT=rank=3,op=B,step=3,action=stop "$TRIREME" train "${run[@]}" run.deadline=2s train.folder="$work/stop"
if [ "$rc" = 0 ] || ! grep -Eq 'rank 3 \(pid [0-9]+ on host2\) made no progress for [0-9.]+ s: it was in B of step 3.*; rank [0-2] waits for it' "$work/err"; then
  fail "stop: exit code $rc: $(said)"
fi
wait_until nobody_left || fail "processes left: $(pgrep -af "$work")"
if ip netns list | grep "^th$$-"; then fail "namespaces are left"; fi
finish
