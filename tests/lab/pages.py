"""Opens the lab's pages in a browser: nothing on the console, the charts there, nothing wider than
the window. Leaves screenshots beside the pages: wide, on a phone, and dark.

    pages.py FOLDER
"""

import pathlib
import signal
import sys

import browser

VIEWS = [("wide", 1280, 900, False), ("phone", 390, 844, False), ("dark", 1280, 900, True)]

# What stands in the page, as the reader's browser sees it.
LOOK = """({
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  sections: [...document.querySelectorAll('main > section[id]')].map(section => ({
    title: section.querySelector('h2').textContent,
    charts: section.querySelectorAll('svg[role=img]').length,
    rows: section.querySelectorAll('details.numbers tbody tr').length,
  })),
  empty: [...document.querySelectorAll('svg')].filter(svg => !svg.querySelector('.line, .bar, .dot, .tick')).length,
  invisible: [...document.querySelectorAll('figure')].filter(figure => figure.checkVisibility() && figure.getBoundingClientRect().height < 40).length,
  outside: [...document.querySelectorAll('.line, .bar, .dot')].filter(mark => mark.checkVisibility()).filter(mark => {
    const [inner, outer] = [mark, mark.closest('svg')].map(each => each.getBoundingClientRect());
    return inner.left < outer.left - 2 || inner.right > outer.right + 2 || inner.top < outer.top - 2 || inner.bottom > outer.bottom + 2;
  }).length,
  small: [...document.querySelectorAll('svg text')].filter(text => text.checkVisibility()).filter(text =>
    parseFloat(getComputedStyle(text).fontSize) * text.closest('svg').getBoundingClientRect().width / 400 < 8.5).length,
  letters: document.querySelector('main').innerText.length,
  paper: getComputedStyle(document.body).backgroundColor,
})"""


def check(page, path, failures):
    papers = {}
    for name, width, height, dark in VIEWS:
        page.open(path.as_uri(), width, height, dark)
        seen = page.evaluate(LOOK)
        page.screenshot(path.with_name(f"{path.stem}-{name}.png"))

        def require(right, what):
            if not right:
                failures.append(f"{path.name}, {name}: {what}")

        for complaint in page.complaints():
            require(False, complaint)
        require(seen["overflow"] <= 0, f"{seen['overflow']} pixels wider than the window")
        require(seen["sections"] or path.stem == "compare", "no section")
        for section in seen["sections"]:
            require(section["charts"] > 0, f"no chart in {section['title']}")
            require(section["rows"] > 0, f"no numbers in {section['title']}")
        require(seen["empty"] == 0, f"{seen['empty']} empty charts")
        require(seen["invisible"] == 0, f"{seen['invisible']} charts without height")
        require(seen["outside"] == 0, f"{seen['outside']} marks outside of their charts")
        require(seen["small"] == 0, f"{seen['small']} labels too small to read")
        require(seen["letters"] > 300, "hardly any text")
        papers[name] = seen["paper"]
    if papers["wide"] == papers["dark"]:
        failures.append(f"{path.name}: dark and light look the same")


def main(folder):
    # A browser that hangs is not to hang the tests.
    signal.alarm(browser.SECONDS_MOST * 3)
    failures = []
    paths = sorted(pathlib.Path(folder).resolve().glob("*.html"))
    with browser.Browser() as page:
        for path in paths:
            check(page, path, failures)
    print("\n".join(failures) or f"{len(paths)} pages look right; screenshots in {folder}")
    return 1 if failures or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
