"""Opens the lab's pages in a browser: nothing on the console, the charts there, nothing wider than
the window, each chart with axes, names and labels that can be read, and no chart twice, what unfolds included. Leaves
screenshots beside the pages: wide, on a tablet, on a phone, and dark.

    pages.py FOLDER
"""

import pathlib
import signal
import sys

import browser

VIEWS = [("wide", 1280, 900, False), ("tablet", 820, 1180, False), ("phone", 390, 844, False), ("dark", 1280, 900, True)]

# What stands in the page, as the reader's browser sees it.
LOOK = """({
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  sections: [...document.querySelectorAll('main section[id]')].map(section => ({
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
  drawn: [...document.querySelectorAll('svg[role=img]')].filter(svg => svg.checkVisibility()).map(svg => {
    const texts = selector => [...svg.querySelectorAll(selector)].map(text => text.textContent);
    const boxes = selector => [...svg.querySelectorAll(selector)].map(text => text.getBoundingClientRect());
    const overlap = boxes => boxes.some((a, at) => boxes.slice(at + 1).some(b =>
      a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3));
    const figure = svg.closest('figure');
    return {
      kind: svg.dataset.kind ?? '', title: svg.getAttribute('aria-label') ?? '',
      caption: figure?.querySelector('figcaption')?.textContent ?? '',
      x: texts('text.tick.x'), y: texts('text.tick.y'), labels: texts('text.label'),
      names: texts('text.name'), values: texts('text.value'), heads: texts('text.head'), cells: svg.querySelectorAll('.cell').length,
      overlap: overlap(boxes('text.tick.x')) || overlap(boxes('text.tick.y')) || overlap(boxes('text.name')),
      beyond: boxes('text').some(box => box.left < -2 || box.right > document.documentElement.clientWidth + 2),
      marks: [...svg.querySelectorAll('.line, .bar, .dot')].map(mark => mark.outerHTML).join(),
      legend: figure?.querySelectorAll('.legend .chip').length ?? 0,
      lines: svg.querySelectorAll('path.line').length,
    };
  }),
  front: [...document.querySelectorAll('.headline')].map(card => ({
    experiment: card.dataset.experiment, sentence: card.querySelector('.finding').textContent,
    pictures: card.querySelectorAll('svg[role=img]').length, sure: card.querySelector('.note').firstChild.textContent.trim(),
    leads: !!document.querySelector(card.querySelector('a').getAttribute('href')),
  })),
  letters: document.querySelector('main').innerText.length,
  paper: getComputedStyle(document.body).backgroundColor,
})"""


def wrong_with(chart):
    """What a reader of a chart would miss: its title, axes with numbers and names, names of what is drawn."""
    kind = chart["kind"]
    if not chart["title"] or not chart["caption"]:
        yield "no title"
    if chart["overlap"]:
        yield f"labels over one another: {chart['x']} {chart['y']} {chart['names']}"
    if chart["beyond"]:
        yield "text beyond the window"
    if kind == "plot":
        # A curve of a single operation has one place on its axis.
        if len(chart["y"]) < 2 or not chart["x"] or len(chart["labels"]) != 2 or not all(chart["labels"]):
            yield f"axes without numbers or names: {chart['x']} {chart['y']} {chart['labels']}"
        elif "%" in chart["labels"][0] and chart["y"][-1] != "100 %":
            yield f"percentages that end at {chart['y'][-1]}"
        if chart["legend"] < chart["lines"]:
            yield f"{chart['lines']} lines, but a legend of {chart['legend']}"
    elif kind in ("bars", "ranges", "changes"):
        if not chart["names"] or not all(chart["names"]):
            yield "rows without names"
        if kind == "ranges" and (not chart["x"] or not chart["labels"]):
            yield "an axis without numbers or a name"
    elif kind == "matrix":
        if chart["cells"] != len(chart["names"]) * len(chart["heads"]) or not chart["labels"]:
            yield f"{chart['cells']} cells for {chart['names']} × {chart['heads']}, scale {chart['labels']}"
    else:
        yield f"a picture of an unknown kind '{kind}'"


def wrong_with_front(cards):
    """What the first screen of all experiments lacks: a sentence, a picture and how sure it is, for each."""
    experiments = ["inserts", "write-concern", "clean", "working-set", "error-tracker", "micro"]
    if [card["experiment"] for card in cards] != experiments:
        yield f"cards for {[card['experiment'] for card in cards]}"
    for card in cards:
        if not card["sentence"].endswith(".") or card["pictures"] != 1 or not card["sure"]:
            yield f"a card without its sentence, its picture or how sure it is: {card}"
        if not card["leads"]:
            yield f"the card of {card['experiment']} leads nowhere"


def twice(charts):
    """Charts that show what another one shows already."""
    seen = set()
    for chart in charts:
        key = (chart["caption"], chart["marks"])
        if chart["marks"] and key in seen:
            yield chart["title"]
        seen.add(key)


def check(page, path, failures):
    papers = {}
    for name, width, height, dark in VIEWS:
        page.open(path.as_uri(), width, height, dark)
        page.screenshot(path.with_name(f"{path.stem}-{name}.png"))
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        seen = page.evaluate(LOOK)

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
        for chart in seen["drawn"]:
            for what in wrong_with(chart):
                require(False, f"{chart['title']}: {what}")
        for title in twice(seen["drawn"]):
            require(False, f"{title} is drawn twice")
        if path.stem == "all":
            for what in wrong_with_front(seen["front"]):
                require(False, what)
        require(seen["letters"] > 300, "hardly any text")
        papers[name] = seen["paper"]
    if papers["wide"] == papers["dark"]:
        failures.append(f"{path.name}: dark and light look the same")


def main(folder):
    # A browser that hangs is not to hang the tests.
    signal.alarm(browser.SECONDS_MOST)
    failures = []
    paths = sorted(pathlib.Path(folder).resolve().glob("*.html"))
    with browser.Browser() as page:
        for path in paths:
            signal.alarm(browser.SECONDS_MOST * len(VIEWS))
            check(page, path, failures)
    print("\n".join(failures) or f"{len(paths)} pages look right; screenshots in {folder}")
    return 1 if failures or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
