"""Tests of check.py and pages.py: they find errors in reports and pages."""

import copy
import pathlib
import tempfile
import unittest

import browser
import check
import pages

# Three values: the encoding begins with the cookie, then lengths and limits, then the counts.
HISTOGRAM = "HISTEwAAAAMAAAAAAAAAAwAAAAAAAAABAAAAAAAAAAI/8AAAAAAAAAIBBA=="
LATENCY = {"min": 1.0, "p50": 5.0, "p90": 9.0, "p95": 9.0, "p99": 9.0, "p999": 9.0, "max": 9.5}
ROW = {
    "target": "null-server", "case": "insert", "x": None, "connections": 1, "note": None, "partial": False,
    "operations": 3, "failures": 0, "seconds": 0.5, "latency": HISTOGRAM, "service": None, "late": 0,
    "rounds": [{"operations": 3, "seconds": 0.5, "latency": LATENCY, "cpu_microseconds": 1.0}],
    "timeline": [], "cpu_microseconds": 1.0, "resident_bytes": 1_000_000, "extra": {},
}


def report():
    targets = [{"name": name, "uri": "", "fingerprint": {"server": name, "promise": promise}}
               for name, promise in [("null-server", "nothing"), ("memory", "memory")]]
    rows = [copy.deepcopy(ROW), copy.deepcopy(ROW) | {"target": "memory"}]
    section = {"id": "s", "title": "S", "kind": "bars", "rows": rows}
    return {"format": 1, "errors": [], "targets": targets, "warnings": [], "seed": 7,
            "command": "vellum lab x --seed 7", "sections": [section]}


class Check(unittest.TestCase):
    def errors(self, change):
        changed = report()
        change(changed, changed["sections"][0]["rows"][1])
        return " | ".join(check.check(changed))

    def test_a_correct_report_has_no_errors(self):
        self.assertEqual(self.errors(lambda *_: None), "")

    def test_histograms_are_counted(self):
        self.assertEqual(check.histogram_count(HISTOGRAM), 3)
        self.assertEqual(list(check.unsigned(bytes([0x03, 0x80, 0x01, 0x08]))), [-2, 64, 4])

    def test_wrong_numbers_are_found(self):
        for change, what in [
            (lambda _, row: row.update(operations=4), "its rounds have [3]"),
            (lambda _, row: row.update(seconds=0.6), "0.6 s, but"),
            (lambda _, row: row["rounds"].append(row["rounds"][0]), "its rounds have [3, 3]"),
            (lambda _, row: row["rounds"][0].update(latency=LATENCY | {"p50": 99.0}), "out of order"),
            (lambda _, row: row.update(operations=0), "neither figures nor a note"),
            (lambda _, row: row.update(failures=1), "1 failures"),
            (lambda _, row: row.update(partial=True, note="died"), "partial: died"),
            (lambda all, _: all["sections"][0]["rows"].pop(), "no row for ('memory', 'insert', 1, None)"),
            (lambda all, row: all["sections"][0]["rows"].append(row), "has two rows"),
            (lambda all, _: all["errors"].append("x"), "error: x"),
            (lambda all, _: all["targets"].pop(0), "targets ['memory']"),
            (lambda all, _: all.update(seed=8), "without the seed"),
        ]:
            self.assertIn(what, self.errors(change))


@unittest.skipUnless(browser.find(), "no browser")
class Pages(unittest.TestCase):
    def test_errors_of_a_page_are_found(self):
        html = """<!doctype html><main><section id=s><h2>S</h2><div class="numbers" style="width: 3000px">x</div>
          <script>console.log("here"); nowhere()</script></section></main>"""
        with tempfile.TemporaryDirectory() as folder, browser.Browser() as page:
            path = pathlib.Path(folder, "bad.html")
            path.write_text(html)
            failures = []
            pages.check(page, path, failures)
        text = "\n".join(failures)
        for what in ["console: ", "exception: ", "wider than the window", "no chart in S", "hardly any text",
                     "look the same"]:
            self.assertIn(what, text)


if __name__ == "__main__":
    unittest.main()
