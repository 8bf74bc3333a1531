#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 30
# Functions have at most 80 lines and files at most 700, except those that exceptions.txt names with a reason.
#
# A function runs from the first line of its signature, which starts in column one, to the brace in column one that ends
# it; clang-format (test_format.sh) sees to that shape. The run prints how long functions are.
. "$(dirname "$0")/lib.sh"
function_lines=80 file_lines=700

# Prints "file line function length" for every function, and "file lines - length" for every file.
measure() {
  (
    cd "$1"
    c_files . include src tests examples bench | xargs -r awk '
    function name_of(text) {
      sub(/ *\(.*/, "", text)
      sub(/.*[ *]/, "", text)
      return text
    }
    function end_file() { if (file != "") print file, last, "-", last }
    FNR == 1 { end_file(); file = FILENAME; inside = 0; signature = ""; macro = 0 }
    { last = FNR }
    macro || /^#/ { macro = /\\$/; signature = ""; next }
    inside { if (/^[}]/) { print file, start, name_of(signature), FNR - start + 1; inside = 0; signature = "" } next }
    /^[A-Za-z_]/ { signature = ""; start = FNR }
    /^[ \t]/ && signature == "" { next }
    /^[A-Za-z_ \t]/ {
      line = $0
      sub(/ *\/\/.*/, "", line)
      signature = signature line
      if (signature ~ /^(typedef|struct [A-Za-z_0-9]+ *[{]|enum|union)/ || signature ~ /=/ || line ~ /;$/) {
        if (line ~ /[;]$/ || signature ~ /^(typedef|enum|union)/) signature = ""
        next
      }
      if (signature ~ /\).*[{]/) {
        if (line ~ /[}]$/) { print file, start, name_of(signature), FNR - start + 1; signature = "" }
        else inside = 1
      }
      next
    }
    /^[{]/ && signature ~ /\)/ { inside = 1; next }
    { signature = "" }
    END { end_file() }'
  )
}

check() {
  measure "$1" | awk -v exceptions="$1/tests/tree/exceptions.txt" -v function_lines=$function_lines -v file_lines=$file_lines '
  BEGIN {
    while ((getline row < exceptions) > 0) {
      if (row ~ /^ *(#|$)/) continue
      n = split(row, word, " ")
      if (n < 4) print "tests/tree/exceptions.txt: give file, function and a reason: " row
      allowed[word[1] " " word[2]] = 1
    }
  }
  {
    limit = $3 == "-" ? file_lines : function_lines
    key = $1 " " $3
    if ($4 <= limit) next
    if (key in allowed) { used[key] = 1; next }
    print $1 ":" $2 ": " ($3 == "-" ? "the file" : $3 "()") " has " $4 " lines, at most " limit " are allowed"
  }
  END {
    for (key in allowed) if (!(key in used)) print "tests/tree/exceptions.txt: no longer needed: " key
  }'
}

lengthy() { # SIGNATURE LINES
  echo "$1"
  for ((i = 2; i < $2; i++)); do echo '  x();'; done
  echo '}'
}

bad src/base/limits.c < <(
  lengthy 'int at_limit(int a) {' 80
  lengthy 'static tr_status over_limit(const int *a) {' 81
  printf 'int\n' && lengthy 'split_signature(int a)
{' 79
  lengthy 'char *excused(void) {' 90
  printf 'static inline int one_line(int a) { return a; }\nstatic const int table[] = {\n1,\n};\n'
  printf 'tr_status wrapped(int a,\n' && lengthy '                  int b) {' 80
)
bad src/base/long.c < <(yes '// Line.' | head -n 701 || true)
bad tests/tree/exceptions.txt <<'END'
# comment
src/base/limits.c excused because it is one table
src/base/limits.c gone because it was one table
src/base/limits.c reasonless
END
tree_main 6
measure "$tree_root" | awk '$3 != "-" { print $4 }' | sort -n | awk '
  { length_of[NR] = $1 }
  END { if (NR) print NR " functions: median " length_of[int((NR + 1) / 2)] " lines, 95 % within " length_of[int(NR * 0.95 + 0.5)] ", longest " length_of[NR] }'
