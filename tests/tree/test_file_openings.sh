#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 30
# Every C file opens with its licence line and at least a sentence, at most 24 lines, that says what it is for; every script with both as well.
#
# The lines that tell ctest a test's tier and time limit do not count, and neither does a line with nothing but slashes.
. "$(dirname "$0")/lib.sh"
least=1 most=24

check() {
  (
    cd "$1"
    c_files . include src tests examples bench | xargs -r awk -v least=$least -v most=$most '
    function report() {
      if (file != "" && !licence) print file ":1: the first line must be // SPDX-License-Identifier: MIT"
      else if (file != "" && (lines < least || lines > most))
        print file ":2: the purpose comment has " lines " lines, it should have " least " to " most
    }
    FNR == 1 { report(); file = FILENAME; licence = $0 == "// SPDX-License-Identifier: MIT"; lines = 0; open = 1; next }
    open && !/^\/\// { open = 0 }
    open && !/^\/\/ (tier|timeout): / && !/^\/+ *$/ { lines++ }
    END { report() }'
    find . -name '*.sh' -not -path './build*' -not -path './runs/*' | LC_ALL=C sort | xargs -r awk -v least=$least -v most=$most '
    function report() {
      if (file != "" && !licence) print file ":1: the first lines must hold # SPDX-License-Identifier: MIT"
      else if (file != "" && lines < 2) print file ":2: the script does not say what it is for"
    }
    FNR == 1 { report(); file = FILENAME; licence = 0; lines = 0; open = 1 }
    FNR == 1 && /^#!/ { next }
    open && !/^#/ { open = 0 }
    open && /^# SPDX-License-Identifier: MIT$/ { licence = 1; next }
    open && !/^# (tier|timeout): / && !/^# *$/ { lines++ }
    END { report() }'
  )
}

bad src/base/no_licence.c <<<'// A file.'
bad src/base/short.c <<END
// SPDX-License-Identifier: MIT
int x;
// not counted
// not counted
END
bad src/base/long.c < <(echo '// SPDX-License-Identifier: MIT' && seq 25 | sed 's|^|// |')
bad tests/base/test_tier.c <<END
// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
END
bad src/base/fine.c <<END
// SPDX-License-Identifier: MIT
// One.
// Two.
// Three.
END
bad scripts/mute.sh <<END
#!/bin/sh
# SPDX-License-Identifier: MIT
true
END
bad scripts/bare.sh <<<'true'
tree_main 6
