#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 120
# `trireme plan report`: pages of plans of many kinds are well-formed, stand alone, have all pictures and nothing but finite numbers in
# them (check_page.py, which is shown to refuse damaged pages), and say what `plan explain` says.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
TRIREME_PRESETS=$(cd "$(dirname "$0")/../../presets" && pwd)
export TRIREME_PRESETS
check=$(cd "$(dirname "$0")" && pwd)/check_page.py
cd "$work" || exit 1
pictures=(memory step timeline scaling batch wall cube frontier)

plan() { # where lib.sh looks for what the last command printed
  timeout 60 "$TRIREME" plan "$@" >out 2>err
  rc=$?
}

page() { # NAME ARGUMENTS...: writes NAME.html and checks it
  local name=$1
  shift
  plan report "$@" --write "$name.html"
  expect "report $*" 0
  python3 "$check" "$name.html" "${pictures[@]}" >faults || fail "$name.html: $(cat faults)"
  if command -v xmllint >/dev/null; then xmllint --noout "$name.html" 2>faults || fail "$name.html is not well-formed: $(cat faults)"; fi
}

refused() { # CODE PATTERN ARGUMENTS...
  local code=$1 pattern=$2
  shift 2
  plan "$@"
  expect "plan $*" "$code" "$pattern"
}

plan --model llama3-70b --cluster dgx-h100 --devices 64 --batch 128seq --seq 8192 --fix pp=4 --write piped.yaml
expect 'a plan with a pipeline' 0
page piped piped.yaml
page split piped.yaml vpp=1 parallel.schedule=zb_h1 --critical 4M
page twice piped.yaml tp=4 pp=8 vpp=1 parallel.schedule=dualpipe
page full piped.yaml tp=1 pp=64 vpp=1 recompute=full
plan --model gpt2-tiny --cluster a100-sxm-80 --devices 1 --batch 8seq --seq 64 --write small.yaml
expect 'a plan of one device' 0
page small small.yaml
page large piped.yaml tp=1 pp=1 vpp=1 zero=0 recompute=none # does not fit
grep -q 'This plan does not fit' large.html || fail 'a plan that does not fit is not said to'
grep -q 'are lacking there' large.html || fail 'what is lacking is not said'
grep -q 'critical: 4M' split.html || fail 'the critical size that was given is not drawn'
grep -q 'loss of 2.5' piped.html || fail 'a page does not say which critical size it takes'

# The page has the figures of explain.
plan explain piped.yaml --json
cp out explained.json
plan report piped.yaml --write again.html --json
cmp -s piped.html again.html || fail 'two pages of one plan differ'
python3 - <<'END' || fail 'page and explanation differ'
import json, re
told, said, page = json.load(open("explained.json")), json.load(open("out")), open("piped.html").read()
assert said["plan"] == "report" and said["written"] == "again.html" and said["bytes"] == len(page.encode())
assert said["step_s"] == told["step_s"] and said["memory_bytes"] == told["memory_bytes"]
for term in told["time"]:
    assert re.search(r">%s</text>" % term["term"], page), term
    assert "%.1f %%" % (100 * term["share"]) in page, term
assert page.count("place in the pipeline hold the same") == 1 and len(re.findall(r"place \d+: weights", page)) == 4
END

# The check finds what it is there for.
damage() { # SED PATTERN
  sed "$1" piped.html >damaged.html
  cmp -s piped.html damaged.html && fail "$1 changes nothing"
  python3 "$check" damaged.html "${pictures[@]}" >faults && fail "a damaged page passes: $1"
  grep -q -- "$2" faults || fail "$1: no '$2' in: $(cat faults)"
}
damage '0,/<\/section>/s///' 'closes\|never closed'
damage '0,/ width="[0-9.]*" height="18.00"/s// width="nan" height="18.00"/' 'is not finite'
damage '0,/ x="[0-9.]*" y="[0-9.]*" text-anchor/s// x="99999" y="3" text-anchor/' 'off the picture'
damage 's/id="cube"/id="cubes"/' 'the picture cube has 0'
damage 's/<\/body>/<script>1<\/script><\/body>/' '<script>'
damage 's/body{/@import url(x.css);body{/' 'fetches something'
damage '0,/ MiB\| GiB/s// nan/' 'no number'

refused 2 'give a run file' report
refused 2 'write takes a file' report piped.yaml --write ''
refused 2 "critical takes tokens as in 4M, not 'big'" report piped.yaml --critical big
refused 10 'nowhere' report piped.yaml --write nowhere/page.html
refused 3 'plan.cluster is missing' report model=llama3-8b precision.compute=bf16
finish
