#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 180
# C files are laid out by clang-format with the tree's .clang-format.
#
# Versions lay out a few things differently, so only version 14 (Debian 12's) is believed; without it the test is skipped.
. "$(dirname "$0")/lib.sh"
formatter=
for name in clang-format-14 clang-format; do
  if command -v "$name" >/dev/null && [[ $("$name" --version) == *"version 14."* ]]; then formatter=$name && break; fi
done
if [ -z "$formatter" ]; then
  echo "skipped: clang-format 14 is not here"
  exit 77
fi

check() {
  (
    cd "$1"
    # One line per file, its first complaint; each batch writes its lines at once, so batches do not mix.
    # shellcheck disable=SC2016 # for the inner shell
    c_files . include src tests examples bench | xargs -r -n 8 -P "$(nproc)" sh -c '
      "$0" --style=file --dry-run -Werror "$@" 2>&1 |
        awk -F: "/error: code should be clang-formatted/ && !seen[\$1]++ { print \$1 \":\" \$2 \": run clang-format -i on this file\" }"' \
      "$formatter"
  )
}

cp "$tree_root/.clang-format" "$tree_bad/"
bad src/base/bad.c <<<'int  x ;'
bad src/base/fine.c <<<'int x;'
tree_main 1
