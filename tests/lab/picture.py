#!/usr/bin/env python3
"""Prints one chart of a report of the lab as a complete SVG file in light mode.

    picture.py REPORT.html 'CAPTION' [NUMBER] >picture.svg

The report has the caption above the chart. If several charts have it, NUMBER selects one, from 1.
"""

import pathlib
import signal
import sys

import browser

FIND = """(() => {
  document.querySelectorAll('details').forEach(each => each.open = true);
  const found = [...document.querySelectorAll('figure')].filter(each => each.querySelector('figcaption').textContent === CAPTION);
  return found.map(each => new XMLSerializer().serializeToString(each.querySelector('svg')));
})()"""


def main(page, caption, number="1"):
    signal.alarm(browser.SECONDS_MAX)
    with browser.Browser() as window:
        window.open(pathlib.Path(page).resolve().as_uri(), 1280, 900, False)
        found = window.evaluate(FIND.replace("CAPTION", repr(caption)))
    if len(found) < int(number):
        sys.exit(f"{page} has {len(found)} charts named {caption!r}")
    # An SVG file has no page behind it, so the background is drawn too.
    print(found[int(number) - 1].replace("<svg", '<svg style="background: white"', 1))


main(*sys.argv[1:])
