#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 1500
# Proves that a short search by libFuzzer, from the kept inputs and with address and undefined sanitizers, makes no reader fall
# over. Builds the library with clang into the folder `fuzz` of the build (minutes, the first time); skipped (77) without
# clang or its fuzzer. For a long search run a program of that folder with a folder of its own for what it finds:
#   build/fuzz/libfuzzer_NAME -max_total_time=3600 -timeout=20 FOUND_FOLDER tests/fuzz/corpus/NAME
set -eu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${TRIREME_BUILD:-build}/fuzz
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return (void)d, (void)n, 0; }' >"$work/probe.c"
if ! clang -fsanitize=address,undefined,fuzzer "$work/probe.c" -o "$work/probe" 2>/dev/null; then
  echo "skipped: no clang with libFuzzer"
  exit 77
fi
if ! { cmake -S "$here/../.." -B "$build" -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Release \
  "-DCMAKE_C_FLAGS_RELEASE=-O1 -g1" -DTRIREME_SANITIZE=address,undefined,fuzzer-no-link &&
  cmake --build "$build" --target fuzzers; } >"$work/log" 2>&1; then
  tail -30 "$work/log"
  exit 1
fi

failed=0
for program in "$build"/libfuzzer_*; do
  name=${program##*/libfuzzer_}
  mkdir "$work/$name"
  words=()
  if [ -e "$here/$name.dict" ]; then words=("-dict=$here/$name.dict"); fi
  # The seed and the number of runs are fixed; slow machines stop earlier.
  if "$program" -seed=1 -runs=20000 -max_total_time=3 -max_len=4096 -timeout=20 -rss_limit_mb=2048 \
    "-artifact_prefix=$build/$name-" "${words[@]}" "$work/$name" "$here/corpus/$name" >"$work/log" 2>&1; then
    echo "$name: $(tail -1 "$work/log")"
  else
    echo "$name: fell over"
    tail -40 "$work/log"
    failed=1
  fi
done
exit $failed
