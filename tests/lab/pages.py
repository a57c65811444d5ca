"""Tests the lab's pages in a browser: no console messages, charts before numbers, no overflow, no overlapping labels. Writes
screenshots next to the pages: wide, tablet, phone and dark.

    pages.py FOLDER
"""

import pathlib
import signal
import sys
import time

import browser

VIEWS = [("wide", 1280, 900, False), ("tablet", 820, 1180, False), ("phone", 390, 844, False), ("dark", 1280, 900, True)]

DRAWN = "[...document.querySelectorAll('figure')].every(each => each.querySelector('svg .mark-group'))"

# The page's content as the browser sees it.
CONTENT = """({
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  sections: [...document.querySelectorAll('main section[id]')].map(section => ({
    title: section.querySelector('h2').textContent,
    charts: section.querySelectorAll('.charts figure svg').length,
    first: !!section.querySelector('.charts')
      && !!(section.querySelector('.charts').compareDocumentPosition(section.querySelector('.numbers')) & Node.DOCUMENT_POSITION_FOLLOWING),
    rows: section.querySelectorAll('.numbers tr').length - 1,
  })),
  charts: [...document.querySelectorAll('figure')].map(figure => {
    const texts = [...figure.querySelectorAll('.role-axis-label text, .role-axis-title text, .role-legend-label text')]
      .filter(text => text.textContent && getComputedStyle(text).opacity !== '0' && text.getAttribute('opacity') !== '0');
    const boxes = texts.map(text => text.getBoundingClientRect());
    const overlaps = boxes.flatMap((a, at) => boxes.slice(at + 1).map((b, next) => [a, b, at, at + 1 + next]))
      .filter(([a, b]) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2)
      .map(([, , one, other]) => `${texts[one].textContent} / ${texts[other].textContent}`);
    return {
      title: figure.querySelector('figcaption').textContent, overlaps, labels: texts.length,
      marks: figure.querySelectorAll('.mark-rect path, .mark-symbol path, .mark-line path, .mark-rule line, .mark-text text').length,
      small: texts.filter(text => parseFloat(getComputedStyle(text).fontSize) < 8.5).length,
    };
  }),
  letters: document.querySelector('main').innerText.length,
  paper: getComputedStyle(document.body).backgroundColor,
})"""


def defects_of(chart):
    """Returns the visible defects of a chart."""
    if not chart["title"]:
        yield "no title"
    if chart["overlaps"]:
        yield f"overlapping labels: {chart['overlaps']}"
    if not chart["marks"]:
        yield "nothing is drawn"
    if chart["labels"] < 2:
        yield f"{chart['labels']} labels"
    if chart["small"]:
        yield f"{chart['small']} labels too small to read"


def wait_until_drawn(page):
    """Waits until each chart is drawn. The alarm in `main` ends the wait."""
    while not page.evaluate(DRAWN):
        time.sleep(0.05)


def check(page, path, failures):
    backgrounds = {}
    for name, width, height, dark in VIEWS:
        page.open(path.as_uri(), width, height, dark)
        wait_until_drawn(page)
        page.screenshot(path.with_name(f"{path.stem}-{name}.png"))
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        seen = page.evaluate(CONTENT)

        def require(condition, error):
            if not condition:
                failures.append(f"{path.name}, {name}: {error}")

        for problem in page.problems():
            require(False, problem)
        require(seen["overflow"] <= 0, f"{seen['overflow']} pixels wider than the window")
        require(seen["sections"], "no section")
        for section in seen["sections"]:
            require(section["charts"] > 0, f"no chart in {section['title']}")
            require(section["first"], f"no chart before the numbers of {section['title']}")
            require(section["rows"] > 0, f"no numbers in {section['title']}")
        for chart in seen["charts"]:
            for defect in defects_of(chart):
                require(False, f"{chart['title']}: {defect}")
        require(seen["letters"] > 300, "hardly any text")
        backgrounds[name] = seen["paper"]
    if backgrounds["wide"] == backgrounds["dark"]:
        failures.append(f"{path.name}: dark and light look the same")


def main(folder):
    # A hanging browser must not block the tests.
    signal.alarm(browser.SECONDS_MAX)
    failures = []
    paths = sorted(pathlib.Path(folder).resolve().glob("*.html"))
    with browser.Browser() as page:
        for path in paths:
            signal.alarm(browser.SECONDS_MAX * len(VIEWS))
            check(page, path, failures)
    print("\n".join(failures) or f"{len(paths)} pages look right; screenshots in {folder}")
    return 1 if failures or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
