#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 240
# srun on a Slurm of one node that is started here, with munge: ranks share memory on the node; as if on hosts of their own
# they talk over Open MPI by pmix and over MPICH by pmi2. All train what forked ranks train.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/mpi.sh"
why=
for tool in munged mungekey slurmctld slurmd srun; do
  if [ -z "$why" ] && ! PATH=$PATH:/usr/sbin command -v "$tool" >/dev/null; then why="$tool is not installed"; fi
done
if [ -z "$why" ] && [ "$(id -u)" != 0 ]; then why="slurmd needs root"; fi
if [ -n "$why" ]; then
  echo "skipped: $why"
  exit 77
fi
export PATH=$PATH:/usr/sbin
daemons=()

stop_daemons() {
  local pid
  for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null; done
  for pid in "${daemons[@]}"; do wait "$pid" 2>/dev/null; done
  clean_up
}
trap stop_daemons EXIT

# What the daemons write is theirs; a folder that everybody may write is none for munge.
chmod 755 "$work"
mkdir -p "$work/slurm"/{state,spool,munge}
mungekey -c -k "$work/slurm/munge/key" || exit 1
port=$((20000 + $$ % 20000))
node=$(hostname -s)
cat >"$work/slurm/slurm.conf" <<END
ClusterName=trireme
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
AuthInfo=socket=$work/slurm/munge/socket
CredType=cred/munge
StateSaveLocation=$work/slurm/state
SlurmdSpoolDir=$work/slurm/spool
SlurmctldPidFile=$work/slurm/slurmctld.pid
SlurmdPidFile=$work/slurm/slurmd.pid
SlurmctldLogFile=$work/slurm/slurmctld.log
SlurmdLogFile=$work/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
NodeName=$node NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
END
export SLURM_CONF=$work/slurm/slurm.conf
munged --foreground --force --key-file "$work/slurm/munge/key" --socket "$work/slurm/munge/socket" --pid-file "$work/slurm/munge/pid" \
  --log-file "$work/slurm/munge/log" --seed-file "$work/slurm/munge/seed" --num-threads 2 >"$work/slurm/munged.out" 2>&1 &
daemons+=($!)
wait_until test -S "$work/slurm/munge/socket" || fail "munged does not start: $(cat "$work/slurm/munged.out")"
slurmctld -D -c >"$work/slurm/slurmctld.out" 2>&1 &
daemons+=($!)
slurmd -D -N "$node" >"$work/slurm/slurmd.out" 2>&1 &
daemons+=($!)

node_is_idle() {
  sinfo -h -o %T 2>/dev/null | grep -q '^idle'
}
if [ "$failures" -gt 0 ] || ! wait_until node_is_idle; then
  echo "skipped: no Slurm of one node can be started here: $(tail -n 3 "$work/slurm"/*.log "$work/slurm"/*.out 2>/dev/null | tail -n 12)"
  exit 77
fi

run=("${tiny[@]}" run.deadline=10s)
for n in 2 3; do
  train "${run[@]}" train.folder="$work/forked-$n" -n "$n"
  expect "forked $n" 0
done

# slurm NAME RANKS ARGUMENTS: trains in the folder NAME
slurm() {
  local name=$1 ranks=$2
  shift 2
  timeout -k 5 100 srun -K -n "$ranks" --cpu-bind=none "$@" "$TRIREME" train "${run[@]}" train.folder="$work/$name" >"$work/out" 2>"$work/err" </dev/null
  rc=$?
}

slurm alone 2 --mpi=none
if [ "$rc" != 0 ]; then fail "one node: exit code $rc: $(said)"; fi
same_run "one node" "$work/alone" "$work/forked-2"
TRIREME_FAULT=rank=1,op=F,step=3,action=kill slurm killed 2 --mpi=none
if [ "$rc" = 0 ] || ! grep -Eq 'rank 1 \(pid [0-9]+\) was killed or has ended while in F of step 3' "$work/err"; then fail "a killed rank: exit code $rc: $(said)"; fi

offers=$(srun --mpi=list 2>&1)
export TRIREME_PER_HOST=1
for pair in openmpi:pmix mpich:pmi2; do
  name=${pair%:*} by=${pair#*:}
  why=$(why_no_mpi "$name")
  if [ -z "$why" ] && ! grep -q "$by" <<<"$offers"; then why="this Slurm has no $by"; fi
  if [ -n "$why" ]; then
    echo "$name by $by is not tested: $why"
    continue
  fi
  slurm "$name" 3 --mpi="$by"
  if [ "$rc" != 0 ]; then fail "$name by $by: exit code $rc: $(said)"; fi
  same_run "$name by $by" "$work/$name" "$work/forked-3"
done
finish
