#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 400
# A link with a set rate and a set delay (hosts.sh, tests/net/relay.c): `trireme bench comm` writes a fit of both. A relay's delay and
# a bucket's rate can only be missed one way, however busy the machine is, and the other way only coarse bounds are held; how close
# the fit is, bench/hosts.sh measures. Nothing is left behind, also when it is killed.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/mpi.sh"
needs_hosts why-delay

# fit LINK: what is fitted to messages between two hosts, as latency= and bandwidth=
fit() {
  timeout -k 5 200 "$hosts" 2 "$1" 1 "$TRIREME" bench comm barrier bench.seconds=1ms --write "$work/links.yaml" >"$work/out" 2>"$work/err" </dev/null
  rc=$?
}

# between LEAST VALUE MOST
between() {
  awk -v least="$1" -v value="$2" -v most="$3" 'BEGIN { exit !(value != "" && value >= least && value <= most) }'
}

settled fit 100mbit+10000
if [ "$rc" != 0 ]; then fail "exit code $rc: $(said)"; fi
latency=$(sed -n 's/^ *latency: //p' "$work/links.yaml")
bandwidth=$(sed -n 's/^ *bandwidth: //p' "$work/links.yaml")
echo "latency $latency s for 0.01 s, bandwidth $bandwidth B/s for 12.5e6 B/s"
between 0.008 "$latency" 0.1 || fail "the latency: $latency s over a delay of 0.01 s: $(cat "$work/links.yaml")"
between 1.25e6 "$bandwidth" 15e6 || fail "the bandwidth: $bandwidth B/s over a link of 12.5e6 B/s: $(cat "$work/links.yaml")"

# Killed, it leaves nothing.
gone() { ! ip netns list | grep -q "^tr$killed-"; }
for link in 100mbit 100mbit+5000; do
  "$hosts" 2 "$link" 1 bash -c "touch $work/there.$link; sleep 100" >/dev/null 2>&1 </dev/null &
  killed=$!
  wait_until [ -e "$work/there.$link" ] || fail "$link: the ranks did not start"
  gone && fail "$link: there are no namespaces to be left"
  kill -KILL "$killed"
  wait "$killed" 2>/dev/null
  wait_until gone || fail "$link: killed, it leaves $(ip netns list)"
  if ip link show "btr$killed" >/dev/null 2>&1; then fail "$link: killed, it leaves a bridge"; fi
  if pgrep -f "relay tr$killed" >/dev/null; then fail "$link: killed, it leaves the relay"; fi
done
wait_until nobody_left || fail "processes left: $(pgrep -af "$work")"
finish
