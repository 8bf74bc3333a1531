#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 30
# Text that belongs to one machine or to an unfinished state stays out: home folders, package hosts, markers of work to do.
#
# Patterns are written with brackets so that this file does not match itself.
. "$(dirname "$0")/lib.sh"

complain() { # PATTERN REASON
  xargs -0 -r grep -nIE "$1" -- /dev/null | sed "s|^\./||; s|\$| <- $2|" || true
}

check() {
  (
    cd "$1"
    list() {
      find . \( -path './.git' -o -path './build*' -o -path './runs' -o -path './tests/data' \) -prune -o -type f -print0 | LC_ALL=C sort -z
    }
    list | complain '(^|[^A-Za-z0-9_.])[/](home|work|root|Users)([/]|$|[^A-Za-z0-9_])' 'a folder of one machine'
    list | complain '(\.debian\.org|\.ubuntu\.com|pypi\.or[g]|pythonhosted\.or[g]|fedoraproject\.or[g]|github\.co[m])' 'a package host: leave it to the package manager'
    list | complain '(^|[^A-Za-z0-9_])(TOD[O]|FIXM[E]|XX[X])([^A-Za-z0-9_]|$)' 'finish it or leave it out'
  )
}

bad one.txt <<<"see ""/ho""me/someone/notes"
bad two.sh <<<"cd ""/wo""rk"
bad three.txt <<<"http://deb"".debian"".org/debian"
bad src/base/four.c <<<"// TO""DO: later"
bad fine.txt <<<"network/works, a temporary folder like /tmp/a.XX""XXXX"
tree_main 4
