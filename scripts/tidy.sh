#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Run clang-tidy with the tree's .clang-tidy over all sources, or over those named as arguments.
#
# Uses the compile database of the clang build (the preset of that name), which it configures first; nothing is compiled.
# Prints the findings only, each as file:line:column; the status is non-zero if there are any.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! command -v clang-tidy >/dev/null || ! command -v clang >/dev/null; then
  echo "clang-tidy and clang are needed: scripts/install.sh full nightly installs them" >&2
  exit 77
fi
said=$(cmake --preset clang 2>&1) || { echo "$said" && exit 1; }
if [ $# = 0 ]; then
  mapfile -t files < <(find src examples bench -name '*.c' | LC_ALL=C sort)
  set -- "${files[@]}"
fi
# Only files that the build compiles: others have no flags to check them with. One file per process, because version 14 takes
# va_list wrongly in all but the first file of a process.
for file in "$@"; do
  if grep -qF "$PWD/$file\"" build-clang/compile_commands.json; then echo "$file"; fi
done | xargs -r -n 1 -P "$(nproc)" clang-tidy -p build-clang --quiet 2> >(grep -vE '^[0-9]+ warnings? |^Suppressed |^Use -header-filter' >&2)
