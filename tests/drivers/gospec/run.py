#!/usr/bin/env python3
"""Run the Go driver's own specification tests against a replica set, and check that earlier passes still pass.

    run.py --uri mongodb://127.0.0.1:PORT/?replicaSet=rs0 [--update] [--suite unified] [--topology secure]

The module go.mongodb.org/mongo-driver v1.17.4 contains the files of the specifications and the tests that run them.
Version 2, which the suite `go` uses, contains neither. `tests.txt` lists the tests to run, `deny.txt` the exceptions, and
`passing.txt` the tests that must pass. --update adds tests to this list. A listed test that fails runs once more, alone,
and a second failure fails the run. `tests-secure.txt` and `passing-secure.txt` are for
a server with users and TLS. The module reads the variables AUTH and SSL, and the paths of certificates.
"""

from __future__ import annotations

import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

MODULE = "go.mongodb.org/mongo-driver"
VERSION = re.search(rf"{re.escape(MODULE)} (v\S+)", (HERE / "go.mod").read_text())[1]
HOME = harness.CACHE / "gospec"
SUITE = HOME / f"suite-{VERSION}"
SUITES = {
    "unified": "mongo/integration/unified",
    "integration": "mongo/integration",
    "auth": "x/mongo/driver/auth",
    "driver": "x/mongo/driver/integration",
}
SECONDS = 1200
ENDED = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+) \((\d+\.\d+)s\)$")


def listed(path: pathlib.Path) -> list[str]:
    """Returns the lines of a list without comments."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def list_of(kind: str, topology: str) -> pathlib.Path:
    """Returns the file with the tests of a topology."""
    return HERE / (f"{kind}-{topology}.txt" if topology == harness.SECURE else f"{kind}.txt")


def set_up() -> None:
    """Downloads the module, copies it to a place where its packages can be compiled, and compiles the tests."""
    inputs = [HERE / "go.mod", HERE / "go.sum"]
    harness.prepare("gospec", inputs, [["go", "mod", "download", MODULE]], HERE)
    if all((SUITE / f"{name}.test").exists() for name in SUITES):
        return
    where = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}}", MODULE], cwd=HERE, check=True, capture_output=True, text=True)
    shutil.rmtree(SUITE, ignore_errors=True)
    shutil.copytree(where.stdout.strip(), SUITE, ignore=shutil.ignore_patterns("vendor"))
    for path in [SUITE, *SUITE.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
    for name, package in SUITES.items():
        command = ["go", "test", "-mod=mod", "-c", "-o", str(SUITE / f"{name}.test"), f"./{package}"]
        log = harness.CACHE / "logs" / f"setup-gospec-{name}.log"
        if harness.execute(command, SUITE, log, dict(os.environ), 900) != 0:
            raise harness.SetupError(f"gospec: {' '.join(command)} failed; see {log}")


def pattern(tests: list[str]) -> str:
    """Returns Go's pattern for tests by name: one expression for each level."""
    levels = [sorted({test.split("/")[level] for test in tests}) for level in range(max(map(len_of, tests)))]
    return "/".join("^(" + "|".join(re.escape(name) for name in names) + ")$" for names in levels)


def len_of(test: str) -> int:
    """Returns the number of levels in a test's name."""
    return test.count("/") + 1


def denied(suite: str) -> list[str]:
    """Returns the excluded specification files."""
    lines = (line.split(" #")[0].strip() for line in listed(HERE / "deny.txt"))
    return [name.partition(":")[2] for name in lines if name.startswith(f"{suite}:")]


def run(uri: str, suite: str, only: str) -> dict[str, str]:
    """Runs one compiled package. Returns the outcome of each test without subtests."""
    log = harness.CACHE / "logs" / f"gospec-{suite}.log"
    command = [str(SUITE / f"{suite}.test"), "-test.v", "-test.run", only]
    if skipped := denied(suite):
        command += ["-test.skip", "|".join(pattern([name]) for name in skipped)]
    environment = {**os.environ, "MONGODB_URI": uri, "SKIP_CSOT_TESTS": "true", "TZ": "UTC"}
    harness.execute(command, SUITE / SUITES[suite], log, environment, SECONDS)
    outcomes = {}
    for line in log.read_text("utf-8", "replace").splitlines():
        if found := ENDED.match(line):
            outcomes[f"{suite}:{found[2]}"] = found[1]
    parents = {test.rpartition("/")[0] for test in outcomes}
    return {test: outcome for test, outcome in outcomes.items() if test not in parents}


def again(uri: str, lost: list[str]) -> list[str]:
    """Repeats lost tests alone, since timings fail on a busy machine. Returns the tests still lost."""
    still = []
    for test in lost:
        suite, _, name = test.partition(":")
        if run(uri, suite, pattern([name])).get(test) == "PASS":
            print(f"  passed on the second attempt: {test}")
        else:
            still.append(test)
    return still


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uri", required=True, help="the server")
    parser.add_argument("--suite", choices=SUITES, action="append", help="only this package")
    parser.add_argument("--topology", default="replset", choices=("replset", harness.SECURE), help="what the server is")
    parser.add_argument("--update", action="store_true", help="add newly passing tests to the list")
    return parser.parse_args()


def main() -> int:
    """Sets up, runs and compares."""
    args = arguments()
    set_up()
    start = time.monotonic()
    wanted: dict[str, list[str]] = collections.defaultdict(list)
    for test in listed(list_of("tests", args.topology)):
        suite, _, name = test.partition(":")
        wanted[suite].append(name)
    outcomes: dict[str, str] = {}
    suites = args.suite or [name for name in SUITES if name in wanted]
    passing = list_of("passing", args.topology)
    for suite in suites:
        # One pattern cannot contain tests of several depths.
        for depth in sorted({len_of(name) for name in wanted[suite]}):
            names = [name for name in wanted[suite] if len_of(name) == depth]
            outcomes.update(run(args.uri, suite, pattern(names)))
    expected = {test for test in listed(passing) if test.split(":")[0] in suites}
    lost = again(args.uri, sorted(test for test in expected if outcomes.get(test) != "PASS"))
    for test in lost:
        print(f"  LOST: {test}: {outcomes.get(test, 'not run')}")
    passed = {test for test, outcome in outcomes.items() if outcome == "PASS"} | (expected - set(lost))
    if new := passed - expected:
        if args.update:
            passing.write_text("".join(f"{test}\n" for test in sorted(set(listed(passing)) | new)))
        print(f"  {len(new)} tests pass that {passing.name} {'now lists' if args.update else 'does not list yet'}")
    failed = sorted(test for test, outcome in outcomes.items() if outcome == "FAIL" and test not in passed)
    print("not passing:\n" + "".join(f"  {test}\n" for test in failed), end="")
    skipped = sum(outcome == "SKIP" for outcome in outcomes.values())
    print(f"{MODULE} {VERSION} in {harness.since(start)}: {len(lost)} of the listed tests lost")
    print(f"{len(passed)} passed, {len(failed)} failed, {skipped} skipped")
    return 1 if lost else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except harness.SetupError as error:
        sys.exit(f"set-up: {error}")
