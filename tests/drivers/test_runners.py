"""Tests of the runners: a runner that accepts a lost test would be worse than none.

Run with `python3 -m unittest discover tests/drivers`; no server is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "pymongo")]

import harness  # noqa: E402
import run as pymongo_runner  # noqa: E402


def outcome(test: str, result: str, why: str = "") -> tuple[str, dict]:
    """Returns a record as the pytest plugin writes it."""
    return "test_a.py", {"test": test, "outcome": result, "phase": "call", "seconds": 0.1, "why": why}


class Tallying(unittest.TestCase):
    """Records into outcomes."""

    def test_a_failing_tear_down_spoils_a_pass(self) -> None:
        tally = pymongo_runner.Tally([outcome("t", "passed"), outcome("t", "failed", "tear-down")])
        self.assertEqual(tally.with_outcome("failed"), {"t"})

    def test_a_later_skip_does_not_hide_a_failure(self) -> None:
        tally = pymongo_runner.Tally([outcome("t", "failed"), outcome("t", "skipped")])
        self.assertEqual(tally.outcome["t"], "failed")

    def test_what_was_collected_but_never_ended_has_failed(self) -> None:
        tally = pymongo_runner.Tally([("test_a.py", {"collected": ["t", "u"]}), outcome("t", "passed")])
        self.assertEqual((tally.outcome["t"], tally.outcome["u"]), ("passed", "failed"))


class Reading(unittest.TestCase):
    """Reports into results."""

    def read(self, text: str) -> tuple[harness.Result, set[str]]:
        """Returns the result of a report with this text."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report.xml"
            path.write_text(text)
            return harness.read_junit([path]), harness.passed_names([path])

    def test_colours_of_a_terminal_do_not_spoil_a_report(self) -> None:
        result, passed = self.read('<testsuites><testcase name="a" classname="c"/><testcase name="b">'
                                   '<failure message="\x1b[31mexpected 1\x1b[0m"/></testcase></testsuites>')
        self.assertEqual((result.passed, result.failed, passed), (1, 1, {"c > a"}))
        self.assertIn("expected 1", result.lines[0])

    def test_a_report_that_breaks_off_is_a_failure(self) -> None:
        result, passed = self.read('<?xml version="1.0"?>\n<testsuites>\n')
        self.assertEqual((result.passed, result.failed, passed), (0, 1, set()))
        self.assertIn("no whole report", result.lines[0])


class Judging(unittest.TestCase):
    """The list of passing tests may only grow."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.listed = pathlib.Path(folder.name) / "passing.txt"
        patch = mock.patch.object(pymongo_runner, "passing_file", lambda _: self.listed)
        patch.start()
        self.addCleanup(patch.stop)

    def judge(self, records: list[tuple[str, dict]], again: list[tuple[str, dict]] = (), update: bool = False) -> int:
        """Returns the failures counted for these records; the second attempt returns `again`."""
        args = argparse.Namespace(topology="replset", update=update, uri=["mongodb://x/"], timeout=1)
        with mock.patch.object(pymongo_runner, "run_shards", lambda *_: list(again)), \
                contextlib.redirect_stdout(io.StringIO()):
            return pymongo_runner.judge(args, pymongo_runner.Tally(records), ["test_a.py"])

    def test_a_listed_test_that_fails_or_is_skipped_is_lost(self) -> None:
        self.listed.write_text("test_a.py::one\ntest_a.py::two\n")
        records = [outcome("test_a.py::one", "failed"), outcome("test_a.py::two", "skipped")]
        self.assertEqual(self.judge(records), 2)

    def test_a_second_attempt_may_save_it(self) -> None:
        self.listed.write_text("test_a.py::one\n")
        records = [outcome("test_a.py::one", "failed")]
        self.assertEqual(self.judge(records, [outcome("test_a.py::one", "passed")]), 0)

    def test_a_broken_file_is_a_failure(self) -> None:
        self.listed.write_text("test_a.py::one\n")
        self.assertEqual(self.judge([("test_a.py", {"broken": "ImportError"})]), 1)

    def test_updating_adds_and_never_removes(self) -> None:
        self.listed.write_text("test_a.py::one\ntest_b.py::kept\n")
        records = [outcome("test_a.py::one", "failed"), outcome("test_a.py::new", "passed")]
        self.assertEqual(self.judge(records, update=True), 1)
        self.assertEqual(self.listed.read_text(), "test_a.py::new\ntest_a.py::one\ntest_b.py::kept\n")


class Reading(unittest.TestCase):
    """JUnit reports and set-up."""

    def test_junit_counts(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.xml"
            report.write_text(
                '<testsuites><testcase name="a"/><testcase name="b"><skipped/></testcase>'
                '<testcase name="c"><failure message="why&#10;where"/></testcase></testsuites>')
            result = harness.read_junit([report])
        self.assertEqual(result.counts(), "1 passed, 1 failed, 1 skipped")
        self.assertEqual(result.lines, [" > c: why"])

    def test_a_list_names_what_must_pass_and_only_grows(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            report, listed = pathlib.Path(folder) / "report.xml", pathlib.Path(folder) / "passing.txt"
            report.write_text(
                '<testsuite><testcase classname="c" name="a"/><testcase classname="c" name="b"><skipped/></testcase>'
                '<testcase classname="c" name="d"><error/></testcase></testsuite>')
            passed = harness.passed_names([report])
            self.assertEqual(passed, {"c > a"})
            self.assertEqual(harness.missing_from(passed, listed, update=False), [])
            listed.write_text("c > b\n")
            self.assertEqual(harness.missing_from(passed, listed, update=True), ["c > b"])
            self.assertEqual(listed.read_text(), "c > a\nc > b\n")


if __name__ == "__main__":
    unittest.main()
