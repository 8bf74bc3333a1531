#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: full
# timeout: 180
# A page of `trireme plan report` in a browser without a head, where one is installed: it is read without a complaint, all its
# pictures are in the document, nothing is wider than the window but what scrolls, and it looks different on a dark screen.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
TRIREME_PRESETS=$(cd "$(dirname "$0")/../../presets" && pwd)
export TRIREME_PRESETS
for name in chromium chromium-browser google-chrome; do
  browser=$(command -v "$name") && break
done
if [ -z "$browser" ]; then
  echo "skipped: neither chromium nor google-chrome is installed"
  exit 77
fi
cd "$work" || exit 1

look() { # ARGUMENTS...: of the browser
  timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/profile" --window-size=1100,900 \
    --enable-logging=stderr --v=0 "$@" "file://$work/page.html" >seen 2>said || fail "$browser $*: $(tail -n 3 said)"
  if grep -E 'CONSOLE|ERROR:.*(net|parser)' said; then fail "$browser complains"; fi
}

"$TRIREME" plan --model llama3-70b --cluster dgx-h100 --devices 64 --batch 128seq --seq 8192 --write plan.yaml >out 2>err || fail "$(cat err)"
"$TRIREME" plan report plan.yaml --write page.html >out 2>err || fail "$(cat err)"
look --dump-dom
for picture in memory step timeline scaling batch wall cube frontier; do
  grep -q "id=\"$picture\"" seen || fail "no picture $picture in the document"
done
[ "$(grep -o '<svg' seen | wc -l)" = 8 ] || fail "not eight pictures: $(grep -o '<svg' seen | wc -l)"
[ "$(grep -o '<section' seen | wc -l)" = "$(grep -o '<section' page.html | wc -l)" ] || fail 'sections are lost'
# What the browser says of its own: a script that only this copy of the page has.
sed 's|</body>|<script>document.title = document.documentElement.scrollWidth + " " + innerWidth + " " + [...document.querySelectorAll("svg")].every(s => s.getBBox().width > 100)</script></body>|' page.html >measured.html
mv page.html whole.html && mv measured.html page.html
look --dump-dom
read -r wide window drawn < <(sed -n 's|.*<title>\([0-9]* [0-9]* [a-z]*\)</title>.*|\1|p' seen | head -n 1)
[ "${wide:-0}" -gt 0 ] && [ "$wide" -le "$window" ] || fail "the page is $wide wide in a window of $window"
[ "$drawn" = true ] || fail 'a picture has next to no width'
mv whole.html page.html
look --screenshot=light.png --blink-settings=preferredColorScheme=1
look --screenshot=dark.png --blink-settings=preferredColorScheme=0
for picture in light dark; do
  [ "$(stat -c %s "$picture.png" 2>/dev/null || echo 0)" -gt 20000 ] || fail "$picture.png shows nothing"
done
cmp -s light.png dark.png && fail 'light and dark look the same'
finish
