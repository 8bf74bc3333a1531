# SPDX-License-Identifier: MIT
# Shared by the checks of the source tree. Sourced, not run: tests/tree/test_*.sh.
#
# A check is a function `check ROOT` that prints one line per violation, "file:line: what is wrong". tree_main proves first
# that the check can fail, by running it on a small tree written to break each of its rules, then runs it on the real one.
# bad FILE makes a file of that tree from standard input.
set -euo pipefail
tree_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
tree_bad=$(mktemp -d)
trap 'rm -rf "$tree_bad"' EXIT

bad() {
  mkdir -p "$(dirname "$tree_bad/$1")"
  cat >"$tree_bad/$1"
}

# C files of a tree, relative to it, in a fixed order. Folders may be absent. Usage: c_files ROOT FOLDER...
c_files() {
  local root=$1 folder
  shift
  for folder in "$@"; do
    if [ -d "$root/$folder" ]; then (cd "$root" && find "$folder" -type f -name '*.[ch]'); fi
  done | LC_ALL=C sort
}

# tree_main EXPECTED: `check` must print exactly EXPECTED lines for the bad tree, and nothing for the real one.
tree_main() {
  local said
  said=$(check "$tree_bad")
  if [ "$(grep -c . <<<"$said")" != "$1" ]; then
    printf 'this check does not find what it should: %s violations planted, it says\n%s\n' "$1" "$said"
    exit 1
  fi
  said=$(check "$tree_root")
  if [ -n "$said" ]; then
    echo "$said"
    exit 1
  fi
  echo "ok"
}
