#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 60
# examples/pipeline_exercise: the solution passes all seven checks and draws; what is handed out fails them, each with a line that
# says what is right; the Makefile needs nothing but a compiler.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
: "${TRIREME_BUILD:?folder of the build}"
folder=$(cd "$(dirname "$0")/../../examples/pipeline_exercise" && pwd)
cd "$work" || exit 1

"$TRIREME_BUILD/pipeline_solution" >solved || fail "the solution: $(cat solved)"
[ "$(grep -c '^[1-7]\. .* ok$' solved)" = 7 ] || fail "not seven: $(cat solved)"
for line in 'GPU0 |01234567.........aabbccddeeffgghh|' 'GPU3 |...01234567aabbccddeeffgghh......|' \
  'GPU0 |0123......aa4bb5cc6dd7ee.ff.gg.hh|' 'GPU3 |...0aa1bb2cc3dd4ee5ff6gg7hh......|' '   4         21   42.86%' \
  '   8         33   27.27%' '  32        105    8.57%'; do
  grep -qF "$line" solved || fail "no '$line' in: $(cat solved)"
done

"$TRIREME_BUILD/pipeline_exercise" >given
[ $? = 7 ] || fail "what is handed out does not fail seven checks"
[ "$(grep -c '^[1-7]\. .* not yet: .' given)" = 7 ] || fail "not seven complaints: $(cat given)"
for line in "it should do 'F0 F1 F2 F3 B0 F4" 'simulate() returns 0 for GPipe' 'it should be 21, 0.4286, 4 and 4' \
  'functions to write are in pipeline_exercise.c'; do
  grep -qF "$line" given || fail "no '$line' in: $(cat given)"
done

# Half a solution: the lists, and a simulator that forgets the latency. The first five checks are right, two are not.
if command -v make >/dev/null && command -v cc >/dev/null; then
  make -s -C "$folder" solution OUT="$work/build" >made 2>&1 || fail "make solution: $(cat made)"
  make -s -C "$folder" check OUT="$work/build" >made 2>&1 && fail "make check passes what is handed out"
  cmp -s <(grep '^[1-7]\.' made) <(grep '^[1-7]\.' given) || fail "make check says something else: $(cat made)"
  mkdir -p half/examples/pipeline_exercise && cp "$folder"/* half/examples/pipeline_exercise
  sed 's/made + s->costs->latency/made/' "$folder/pipeline_solution.c" >half/examples/pipeline_exercise/pipeline_exercise.c
  make -s -C half/examples/pipeline_exercise check OUT="$work/half/build" ROOT="$(cd "$folder/../.." && pwd)" >made 2>&1
  [ "$(grep -c ' ok$' made)" = 6 ] || fail "half a solution: $(cat made)"
  grep -qF 'GPipe with latency 0.5 ends at 33; it should end at 36' made || fail "half a solution: $(cat made)"
fi
finish
