#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 30
# A module includes only itself and the modules below it, in the order of TRIREME_MODULES in CMakeLists.txt (cli on top).
#
# Public headers include public headers only; an internal header belongs to one module; examples and benchmarks see
# public headers only, as a user's program would; each foreign library is known to one module.
. "$(dirname "$0")/lib.sh"

check() {
  local root=$1 modules
  modules="$(sed -n 's/^set(TRIREME_MODULES \(.*\))$/\1/p' "$root/CMakeLists.txt") cli"
  (
    cd "$root"
    c_files . include src tests examples bench | xargs -r awk -v modules="$modules" '
    BEGIN {
      n = split(modules, name, " ")
      for (i = 1; i <= n; i++) order[name[i]] = i
      owner["yaml.h"] = "base"
      owner["dnnl.h"] = "kernel"
      owner["hwloc.h"] = owner["mpi.h"] = "comm"
    }
    function complain(text) { print FILENAME ":" FNR ": " text }
    FNR == 1 {
      file = FILENAME; sub(/^\.\//, "", file)
      split(file, part, "/")
      area = part[1]
      module = area == "include" ? part[3] : part[2]
      if (area ~ /^(include|src)$/ && !(module in order)) complain("module " module " is not in TRIREME_MODULES")
    }
    !/^[ \t]*#[ \t]*include[ \t]*[<"]/ { next }
    {
      target = $0
      sub(/^[^<"]*[<"]/, "", target); sub(/[>"].*/, "", target)
      quoted = $0 ~ /include[ \t]*"/
      base = target; sub(/.*\//, "", base)
      if (target ~ /^trireme\//) {
        split(target, to, "/")
        if (!(to[2] in order)) complain("no module " to[2])
        else if ((area == "include" || area == "src" || area == "tests") && (module in order) && order[to[2]] > order[module])
          complain(module " must not include " target ": " to[2] " is above it")
      } else if (!quoted) {
        if (base in owner && (area == "include" || area == "src") && owner[base] != module)
          complain("only " owner[base] " may include <" target ">")
      } else if (area == "include")
        complain("a public header includes public headers only, not \"" target "\"")
      else if (area == "src" || area == "tests") {
        if (target ~ /\// && (split(target, to, "/") > 0) && (to[1] in order) && to[1] != module)
          complain("\"" target "\" is internal to " to[1])
      } else if (target ~ /\//)
        complain("examples and benchmarks include public headers only, not \"" target "\"")
    }'
  )
}

bad CMakeLists.txt <<<'set(TRIREME_MODULES base tensor kernel comm)'
bad src/base/upward.c <<<'#include "trireme/tensor/shape.h"'
bad src/tensor/foreign.c <<<'#include <oneapi/dnnl/dnnl.h>'
bad src/tensor/other.c <<<'#include "base/cpu_internal.h"'
bad src/unknown/file.c <<<'int x;'
bad include/trireme/tensor/leak.h <<<'#include "tensor/shape_internal.h"'
bad include/trireme/tensor/fine.h <<<'#include "trireme/base/status.h"'
bad src/tensor/fine.c <<<'#include "tensor/shape_internal.h"'
bad tests/base/test_upward.c <<<'#include <trireme/kernel/kernel.h>'
bad examples/peek.c <<<'#include "base/cpu_internal.h"'
tree_main 7
