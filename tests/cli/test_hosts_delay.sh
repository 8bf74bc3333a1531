#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 400
# alone: a relay between the hosts keeps time
# A link with a set rate and a set delay (hosts.sh, tests/net/relay.c): `trireme bench comm` finds both, the rate within 20 %,
# the latency within 20 % of the delay: what a message takes without one, some microseconds, is far below that. Times here are
# what is measured, not how fast anything is: the link is far slower than the machine. Nothing is left behind, also when it is
# killed.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/mpi.sh"
needs_hosts why-delay

# fit LINK: what is fitted to messages between two hosts, as latency= and bandwidth=
fit() {
  timeout -k 5 200 "$hosts" 2 "$1" 1 "$TRIREME" bench comm barrier bench.seconds=1ms --write "$work/links.yaml" >"$work/out" 2>"$work/err" </dev/null ||
    fail "$1: exit code $?: $(said)"
  latency=$(sed -n 's/^ *latency: //p' "$work/links.yaml")
  bandwidth=$(sed -n 's/^ *bandwidth: //p' "$work/links.yaml")
}

# near VALUE WANTED: within 20 %
near() {
  awk -v value="$1" -v wanted="$2" 'BEGIN { exit !(value != "" && value >= 0.8 * wanted && value <= 1.2 * wanted) }'
}

fit 100mbit+10000
echo "latency $latency s for 0.01 s, bandwidth $bandwidth B/s for 12.5e6 B/s"
near "$latency" 0.01 || fail "the latency: $latency s instead of 0.01 s: $(cat "$work/links.yaml")"
near "$bandwidth" 12.5e6 || fail "the bandwidth: $bandwidth B/s instead of 12.5e6 B/s: $(cat "$work/links.yaml")"

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
