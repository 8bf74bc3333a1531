#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Several hosts on one machine: network namespaces with host names of their own, joined by a bridge, each link limited by a
# token bucket. Everything made is removed at the end, however that comes.
#
#   hosts.sh why                               why this machine cannot (nothing: it can)
#   hosts.sh HOSTS RATE EACH COMMAND [ARG...]  COMMAND under Open MPI's mpirun, EACH ranks on each of HOSTS hosts, links of
#                                              RATE as tc understands it (200mbit), or "none"
set -euo pipefail

why_not() {
  if [ "$(id -u)" != 0 ]; then
    echo "network namespaces need root"
  elif ! command -v ip >/dev/null || ! command -v tc >/dev/null; then
    echo "ip and tc (iproute2) are not installed"
  elif ! command -v mpirun.openmpi >/dev/null; then
    echo "Open MPI is not installed"
  elif ! ip netns add "trireme-$$" 2>/dev/null; then
    echo "network namespaces cannot be made here"
  else
    local reason=
    ip link add "tr$$" type veth peer name "ts$$" 2>/dev/null || reason="veth links cannot be made here"
    if [ -z "$reason" ]; then
      tc qdisc add dev "tr$$" root tbf rate 1gbit burst 256kb latency 50ms 2>/dev/null || reason="this kernel has no tc tbf"
      ip link del "tr$$"
    fi
    ip netns del "trireme-$$"
    echo -n "$reason"
  fi
}

if [ "${1:-}" = why ]; then
  why_not
  exit 0
fi
hosts=$1 rate=$2 each=$3
shift 3
tag=tr$$ folder=$(mktemp -d)

clean_up() {
  local i
  for ((i = 1; i <= hosts; i++)); do ip netns del "$tag-$i" 2>/dev/null || true; done
  ip link del "b$tag" 2>/dev/null || true
  rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

limit() { # LINK NAMESPACE
  if [ "$rate" != none ]; then ip netns exec "$2" tc qdisc add dev "$1" root tbf rate "$rate" burst 256kb latency 50ms; fi
}

ip link add "b$tag" type bridge
ip link set "b$tag" up
for ((i = 1; i <= hosts; i++)); do
  ip netns add "$tag-$i"
  ip link add "v$tag$i" type veth peer name eth0 netns "$tag-$i"
  ip link set "v$tag$i" master "b$tag" up
  ip -n "$tag-$i" addr add "10.78.0.$i/24" dev eth0
  ip -n "$tag-$i" link set eth0 up
  ip -n "$tag-$i" link set lo up
  limit eth0 "$tag-$i" # both ends, so that both directions are limited
  if [ "$rate" != none ]; then tc qdisc add dev "v$tag$i" root tbf rate "$rate" burst 256kb latency 50ms; fi
  echo "10.78.0.$i slots=$each" >>"$folder/hostfile"
done
# Open MPI starts its part on another host by this instead of ssh: host 10.78.0.I is namespace I.
cat >"$folder/agent" <<END
#!/usr/bin/env bash
host=\$1
shift
i=\${host##*.}
exec ip netns exec $tag-\$i unshare -u bash -c "hostname host\$i; \$*"
END
chmod +x "$folder/agent"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ip netns exec "$tag-1" unshare -u bash -c 'hostname host1; exec "$@"' _ \
  mpirun.openmpi --oversubscribe --mca plm_rsh_agent "$folder/agent" --hostfile "$folder/hostfile" \
  --map-by "ppr:$each:node" --mca btl self,vader,tcp --mca btl_tcp_if_include 10.78.0.0/24 \
  --mca oob_tcp_if_include 10.78.0.0/24 --mca mpi_yield_when_idle 1 -np "$((hosts * each))" "$@"
