#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 120
# `cmake --install`: what is installed works in a folder with spaces, moved elsewhere and called from anywhere: the command finds
# its presets, and pkg-config has what a program of one's own needs. The manifest takes all of it away again.
set -euo pipefail
: "${TRIREME_BUILD:?the build folder}"
case ${TRIREME_SANITIZE:-} in
*fuzzer* | *thread*) exit 77 ;; # whose programs need more than a flag to be linked or started
esac
folder=$(mktemp -d "${TMPDIR:-/tmp}/trireme install.XXXXXX")
trap 'rm -rf "$folder"' EXIT
source=$PWD
unset TRIREME_PRESETS

fail() {
  echo "FAILED: $1" >&2
  exit 1
}

cmake --install "$TRIREME_BUILD" --prefix "$folder/first place" >"$folder/log" || fail "cannot be installed: $(tail -3 "$folder/log")"
mv "$folder/first place" "$folder/second place"
there="$folder/second place"
mkdir "$folder/work"
cd "$folder/work"

"$there/bin/trireme" train model=llama-tiny --dry-run >out 2>&1 || fail "a preset of models is not found: $(cat out)"
"$there/bin/trireme" plan --model llama3-8b --cluster dgx-h100 --devices 8 --batch 8seq --seq 4096 >out 2>&1 ||
  fail "a preset of clusters is not found: $(cat out)"

command -v pkg-config >/dev/null || exit 77
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$TRIREME_BUILD/CMakeCache.txt")
printed=$(PKG_CONFIG_PATH="$there/lib/pkgconfig" pkg-config --cflags --libs trireme) || fail "pkg-config does not know trireme"
declare -a flags="($printed ${TRIREME_SANITIZE:+-fsanitize=$TRIREME_SANITIZE})"
for example in dp_by_hand own_piece; do
  cp "$source/examples/$example.c" .
  "$compiler" -std=c17 -Wall -Wextra -Werror "$example.c" "${flags[@]}" -o "$example" || fail "$example.c: does not build"
  ./$example >out 2>&1 || fail "$example: $(cat out)"
done

sed "s|first place|second place|" "$TRIREME_BUILD/install_manifest.txt" | xargs -d '\n' rm
left=$(find "$there" -type f)
[ -z "$left" ] || fail "the manifest left $left"
echo ok
