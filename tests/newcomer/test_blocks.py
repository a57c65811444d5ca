"""Differences between a page and the output of its commands are found."""

import os
import pathlib
import tempfile
import unittest

import blocks


def run(page: str) -> int:
    """Runs the only section of a page."""
    with tempfile.TemporaryDirectory() as folder:
        (found,) = blocks.sections(page).values()
        return blocks.run(found, pathlib.Path(folder), pathlib.Path(folder), dict(os.environ))


class Blocks(unittest.TestCase):
    def test_files_and_commands_run_in_order(self) -> None:
        page = "## A\n```sh\n# a.txt\none\n```\n```console\n$ cat b.txt\ntwo\n$ cat a.txt b.txt  # both\none\nt…\n```\n"
        self.assertEqual(run(page), 2)

    def test_other_output_is_found(self) -> None:
        with self.assertRaisesRegex(blocks.OutputDiffers, "expected:\ntwo"):
            run("```console\n$ echo one\ntwo\n```\n")

    def test_a_failure_is_found(self) -> None:
        with self.assertRaisesRegex(blocks.OutputDiffers, "ended with 1"):
            run("```console\n$ false\n```\n")

    def test_examples_do_not_run(self) -> None:
        self.assertEqual(run("```sh\nfalse\n```\n"), 0)


if __name__ == "__main__":
    unittest.main()
