#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 30
# Names can be found: file names are unique over the tree, and no function name is produced by token pasting.
#
# A header and a source file of one module may share their stem. Pasting is seen where a tr_ name or a name before a
# parenthesis is made; numbered variables inside one function (left##i) are no names that anybody looks for.
. "$(dirname "$0")/lib.sh"

check() {
  (
    cd "$1"
    c_files . include src tests examples bench | awk -F/ '
    {
      area = $1 == "include" || $1 == "src" ? "library" : $1
      module = $1 == "include" ? $3 : $2
      stem = $NF; sub(/\.[ch]$/, "", stem)
      if ($NF in seen) print $0 ": " seen[$NF] " has the same name"
      else if (area == "library" && (stem in home) && home[stem] != module) print $0 ": module " home[stem] " has a " stem " too"
      seen[$NF] = $0
      if (area == "library") home[stem] = module
    }'
    c_files . include src | xargs -r awk '
    {
      line = $0
      gsub(/"([^"\\]|\\.)*"/, "", line)
      sub(/\/\/.*/, "", line)
      gsub(/## *__VA_ARGS__/, "", line)
      if (line ~ /tr_[A-Za-z_0-9]*[ \t]*##|##[ \t]*[A-Za-z_0-9]+[ \t]*\(/) print FILENAME ":" FNR ": names are written out, not pasted together with ##"
    }'
  )
}

bad src/base/text.c <<<'int x;'
bad include/trireme/base/text.h <<<'int x;'
bad src/kernel/text.c <<<'int x;'
bad include/trireme/data/arena.h <<<'int x;'
bad src/base/arena.c <<<'int x;'
bad src/base/paste.c <<'END'
#define NAME(x) tr_##x
#define LOG(...) log("##", ##__VA_ARGS__) // tr_##
#define DEFINE(x) int make_##x(void);
#define ROW(i) float left##i = 0;
END
tree_main 4
