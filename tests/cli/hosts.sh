#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Several hosts on one machine: network namespaces with host names of their own, joined by a bridge, each link limited by a
# token bucket, or two joined by a relay that delays. Open MPI binds no rank, as each host would bind its first to the same core.
# A keeper removes everything made when this script is no more, however it ended.
#
#   hosts.sh why                               why this machine cannot (nothing: it can)
#   hosts.sh why-delay                         why it cannot delay
#   hosts.sh HOSTS RATE EACH COMMAND [ARG...]  COMMAND under Open MPI's mpirun, EACH ranks on each of HOSTS hosts, links of
#                                              RATE as tc understands it (200mbit), or "none"; RATE+US (200mbit+5000): frames
#                                              take that many microseconds each way, between two hosts (needs TRIREME_BUILD)
#
# TRIREME_HOSTS_TAG (a few letters, no two at a time) begins the names of namespaces and links.
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

why_no_delay() {
  if [ ! -c /dev/net/tun ]; then
    echo "there is no /dev/net/tun"
  elif ! ip tuntap add dev "tp$$" mode tap 2>/dev/null; then
    echo "TAP devices cannot be made here"
  else
    ip link del "tp$$"
  fi
}

case "${1:-}" in
  why)
    why_not
    exit 0
    ;;
  why-delay)
    why_no_delay
    exit 0
    ;;
esac
hosts=$1 rate=${2%+*} each=$3 delay=
if [ "$rate" != "$2" ]; then delay=${2#*+}; fi
shift 3
if [ -n "$delay" ] && [ "$hosts" != 2 ]; then
  echo "hosts.sh: a relay joins two hosts, not $hosts" >&2
  exit 2
fi
tag=${TRIREME_HOSTS_TAG:-tr$$} folder=$(mktemp -d)

remove_all() { # TAG HOSTS FOLDER
  local i
  for ((i = 1; i <= $2; i++)); do
    ip netns pids "$1-$i" 2>/dev/null | xargs -r kill -9 2>/dev/null
    ip link del "v$1$i" 2>/dev/null # a namespace's links go only some time after it, and the next hosts may have its names
    ip netns del "$1-$i" 2>/dev/null
  done
  ip link del "b$1" 2>/dev/null
  rm -rf "$3"
}
# The keeper waits for the end of a pipe that only this script holds open.
exec {life}> >(exec setsid bash -c "$(declare -f remove_all); cat >/dev/null; remove_all $tag $hosts $folder" >/dev/null 2>&1)
keeper=$!

running='' relay=''
end_job() {
  local i
  if [ -z "$running" ]; then return; fi
  kill -TERM "$running" 2>/dev/null || return 0
  for ((i = 0; i < 20; i++)); do
    kill -0 "$running" 2>/dev/null || return 0
    sleep 0.1
  done
}
finish_all() {
  if [ -n "$relay" ] && kill -9 "$relay" 2>/dev/null; then wait "$relay" 2>/dev/null || true; fi
  exec {life}>&-
  wait "$keeper" || true
}
trap finish_all EXIT
trap 'end_job; exit 130' INT TERM HUP

limit() { # LINK [NAMESPACE]; a link that delays lends no more than a few frames, so that short messages have its rate too
  local burst=256kb
  if [ -n "$delay" ]; then burst=8kb; fi
  if [ "$rate" != none ]; then
    tc ${2:+-n "$2"} qdisc add dev "$1" root tbf rate "$rate" burst "$burst" latency 50ms
  fi
}

join() { # by a bridge; both ends are limited, so that both directions are
  local i
  ip link add "b$tag" type bridge
  ip link set "b$tag" up
  for ((i = 1; i <= hosts; i++)); do
    ip link add "v$tag$i" type veth peer name eth0 netns "$tag-$i"
    ip link set "v$tag$i" master "b$tag" up
    limit "v$tag$i"
  done
}

join_late() { # by the relay
  local i
  "$TRIREME_BUILD/relay" "$tag-1" "$tag-2" "$delay" >"$folder/relay" {life}>&- &
  relay=$!
  for ((i = 0; i < 100; i++)); do
    if [ -s "$folder/relay" ]; then return; fi
    sleep 0.05
  done
  echo "hosts.sh: the relay did not start" >&2
  exit 1
}

for ((i = 1; i <= hosts; i++)); do ip netns add "$tag-$i"; done
if [ -n "$delay" ]; then join_late; else join; fi
for ((i = 1; i <= hosts; i++)); do
  ip -n "$tag-$i" addr add "10.78.0.$i/24" dev eth0
  ip -n "$tag-$i" link set eth0 up
  ip -n "$tag-$i" link set lo up
  limit eth0 "$tag-$i"
  # What a connection has found out about a slow link is not to be forgotten while the other side speaks.
  if [ -n "$delay" ]; then ip netns exec "$tag-$i" sysctl -qw net.ipv4.tcp_slow_start_after_idle=0 2>/dev/null || true; fi
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
  --map-by "ppr:$each:node" --bind-to none --mca btl self,vader,tcp --mca btl_tcp_if_include 10.78.0.0/24 \
  --mca oob_tcp_if_include 10.78.0.0/24 --mca mpi_yield_when_idle 1 -np "$((hosts * each))" "$@" <&0 {life}>&- &
running=$!
wait "$running"
