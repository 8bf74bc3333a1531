# SPDX-License-Identifier: MIT
"""Checks a page of `trireme plan report`: check_page.py PAGE.html ID...

Every element that is opened is closed in its order; every number in a picture is finite and lies on it; every picture of the list
is there and has something drawn in it; nothing is fetched from anywhere, and nothing is run.
"""
import math
import re
import sys
from html.parser import HTMLParser

VOID = {"meta", "br", "hr"}
NUMBERS = {"x", "y", "width", "height", "cx", "cy", "r", "x1", "x2", "y1", "y2", "fill-opacity"}
DRAWN = {"rect", "path", "circle"}


class Page(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.faults, self.drawn, self.ids = [], [], {}, []
        self.svg = self.box = None

    def fault(self, text):
        self.faults.append(f"line {self.getpos()[0]}: {text}")

    def number(self, name, value):
        try:
            number = float(value)
        except ValueError:
            return self.fault(f"{name}=\"{value}\" is no number")
        if not math.isfinite(number):
            self.fault(f"{name}=\"{value}\" is not finite")
        if self.box and name in ("x", "cx", "y", "cy"):
            limit = self.box[0] if "x" in name else self.box[1]
            if not -1 <= number <= limit + 1:
                self.fault(f"{name}=\"{value}\" is off the picture, {limit}")
        return None

    def path(self, d):
        if not re.fullmatch(r"(?:[MLHVhvlz]|-?\d+(?:\.\d+)?|[ ,])+", d):
            self.fault(f"a path is no path: {d[:60]}")
        for value in re.findall(r"-?\d+(?:\.\d+)?", d):
            self.number("d", value)

    def handle_starttag(self, tag, attrs):
        self.start(tag, dict(attrs))
        if tag not in VOID:
            self.open.append((tag, dict(attrs).get("id")))

    def handle_startendtag(self, tag, attrs):
        self.start(tag, dict(attrs))

    def start(self, tag, attrs):
        if tag in ("script", "link", "iframe", "object", "img", "use", "image"):
            self.fault(f"<{tag}> in a page that stands alone")
        for name, value in attrs.items():
            if name.startswith("on") or name in ("src", "href", "xlink:href") or (name != "xmlns" and "//" in (value or "")):
                self.fault(f"{name}=\"{value}\" in a page that stands alone")
        if "id" in attrs:
            if attrs["id"] in self.ids:
                self.fault(f"two elements are called {attrs['id']}")
            self.ids.append(attrs["id"])
        if tag == "svg":
            left, top, width, height = map(float, attrs["viewbox"].split())
            if left or top or not (0 < width < 1e5 and 0 < height < 1e5):
                self.fault(f"viewBox {attrs['viewbox']}")
            self.box = (width, height)
        if any(name == "svg" for name, _ in self.open):
            for name in NUMBERS & attrs.keys():
                self.number(name, attrs[name])
            if tag == "path":
                self.path(attrs["d"])
            if tag in DRAWN:
                for _, name in self.open:
                    self.drawn[name] = self.drawn.get(name, 0) + 1

    def handle_endtag(self, tag):
        if not self.open or self.open[-1][0] != tag:
            self.fault(f"</{tag}> closes {self.open[-1][0] if self.open else 'nothing'}")
        else:
            self.open.pop()
        if tag == "svg":
            self.box = None

    def handle_data(self, data):
        if any(name == "style" for name, _ in self.open):
            if re.search(r"@import|url\(|https?:", data):
                self.fault("a style sheet that fetches something")
        elif re.search(r"\b(nan|inf|never ends)\b", data, re.IGNORECASE):
            self.fault(f"no number: {data.strip()[:80]}")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    page = Page()
    page.feed(text)
    page.close()
    for name, _ in page.open:
        page.faults.append(f"<{name}> is never closed")
    for name in sys.argv[2:]:
        if page.drawn.get(name, 0) < 3:
            page.faults.append(f"the picture {name} has {page.drawn.get(name, 0)} shapes")
    for fault in page.faults[:8]:
        print(fault)
    return 1 if page.faults else 0


sys.exit(main())
