#!/usr/bin/env python3
"""Run PyMongo's own integration tests against a server, and check that earlier passes still pass.

    run.py --uri mongodb://127.0.0.1:PORT/ [--uri ANOTHER ...] [--topology replset]

Each --uri is a shard: a separate server, which runs one test file after the other. Tests share database names and fail
points, so that two files cannot run on one server at the same time. The list of tests that must pass (passing.txt for a
replica set) grows by --update. A listed test that does not pass fails the run.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import queue
import re
import socket
import sys
import tarfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

VERSION = re.search(r"^pymongo==(.+)$", (HERE / "requirements.txt").read_text(), re.M)[1]
HOME = harness.CACHE / "pymongo"
SUITE = HOME / f"suite-{VERSION}"
PYTHON = HOME / "venv" / "bin" / "python"
TEST_SECONDS = 30
FILE_SECONDS = 400


def listed(path: pathlib.Path) -> list[str]:
    """Returns the lines of a list without comments."""
    if not path.exists():
        return []
    lines = (line.split(" #")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def passing_file(topology: str) -> pathlib.Path:
    """Returns the list of a topology; the replica set's is the main one."""
    return HERE / ("passing.txt" if topology == "replset" else f"passing-{topology}.txt")


def files_for(topology: str, all_files: bool = False) -> list[str]:
    """Returns the files to run. A standalone server skips files that test it no differently, and fronts skip
    most of them."""
    lines = (HERE / "files.txt").read_text().splitlines()
    lines = [line for line in lines if "# balanced only" not in line or topology == harness.BALANCED]
    if topology in (harness.FRONT, harness.BALANCED) and not all_files:
        lines = [line for line in lines if f"# {topology}" in line]
    if topology == harness.USERS:
        chosen = (line for line in lines if "# with users" in line or "# and with users" in line)
    else:
        lines = [line for line in lines if "# with users" not in line]
        chosen = (line for line in lines if topology != "standalone" or "# replica set only" not in line)
    return [line.split(" #")[0].strip() for line in chosen if line and not line.startswith("#")]


def set_up() -> None:
    """Creates the virtual environment and unpacks the suite of the pinned version."""
    requirements = HERE / "requirements.txt"
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check"]
    harness.prepare(
        "pymongo",
        [requirements],
        [
            [sys.executable, "-m", "venv", str(HOME / "venv")],
            pip + ["install", "-q", "-r", str(requirements)],
            pip + ["download", "-q", "--no-binary", "pymongo", "--no-deps", "-d", str(HOME),
                   f"pymongo=={VERSION}"],
        ],
        HERE,
    )
    if not (SUITE / "pyproject.toml").exists():
        unpack(HOME / f"pymongo-{VERSION}.tar.gz")


def unpack(archive: pathlib.Path) -> None:
    """Unpacks only the tests: the package next to them would be imported without its C extensions."""
    top = f"pymongo-{VERSION}/"
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            name = member.name.removeprefix(top)
            if name == "pyproject.toml" or name.startswith("test/"):
                member.name = name
                tar.extract(member, SUITE, filter="data")


class Shard(threading.Thread):
    """Takes files from the shared queue and runs each in its own interpreter."""

    def __init__(self, work: pathlib.Path, uri: str, several: str | None, files: queue.Queue[str], only: list[str],
                 seconds: int):
        super().__init__(daemon=True)
        self.work, self.uri, self.several, self.files, self.only = work, uri, several, files, only
        self.seconds = seconds
        self.records: list[tuple[str, dict]] = []

    def run(self) -> None:
        while True:
            try:
                file = self.files.get_nowait()
            except queue.Empty:
                return
            if self.answers():
                self.run_file(file)
            else:
                self.records.append((file, {"broken": f"no server at {self.uri}"}))

    def answers(self) -> bool:
        """Returns True if a server listens: without one, every test would wait for its timeout."""
        try:
            socket.create_connection(address(self.uri), timeout=5).close()
        except OSError:
            return False
        return True

    def run_file(self, file: str) -> None:
        """Runs one pytest process. Its output is read even after a stop."""
        self.work.mkdir(parents=True, exist_ok=True)
        output = self.work / f"{file}.jsonl"
        output.unlink(missing_ok=True)
        host, port = address(self.uri)
        env = {
            **os.environ, "DB_IP": host, "DB_PORT": str(port), "TZ": "UTC",
            "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1",
            "VELLUM_OUTCOMES": str(output), "VELLUM_ONLY": json.dumps(self.only),
            "VELLUM_DENIED": json.dumps(listed(HERE / "deny.txt")),
        }
        if credentials := re.match(r"mongodb://(\w+):(\w+)@", self.uri):
            user, password = credentials.groups()
            env |= {"DB_USER": user, "DB_PASSWORD": password,
                    "VELLUM_CLIENT": json.dumps({"username": user, "password": password})}
        marks = "default or auth"
        if self.several:
            env |= {"TEST_LOAD_BALANCER": "1", "SINGLE_MONGOS_LB_URI": self.uri, "MULTI_MONGOS_LB_URI": self.several}
            marks += " or load_balancer"
        command = [
            str(PYTHON), "-m", "pytest", "-q", "-p", "outcomes", "-p", "no:cacheprovider",
            "-o", "addopts=", "-o", "log_cli=false", "-m", marks, "--tb=short",
            f"--timeout={self.seconds}", f"test/{file}",
        ]
        status = harness.execute(command, SUITE, self.work / f"{file}.log", env, FILE_SECONDS)
        lines = output.read_text().splitlines() if output.exists() else []
        self.records += [(file, json.loads(line)) for line in lines]
        if status not in (0, 1, 5):
            self.records.append((file, {"broken": f"pytest ended with {status}"}))


def address(uri: str) -> tuple[str, int]:
    """Returns host and port of a connection string with one member."""
    host, _, port = uri.removeprefix("mongodb://").split("/")[0].split("@")[-1].rpartition(":")
    return host, int(port)


def run_shards(args: argparse.Namespace, shards: int, files: list[str], only: list[str],
               seconds: int) -> list[tuple[str, dict]]:
    """Runs the files over several shards, and returns all records."""
    waiting: queue.Queue[str] = queue.Queue()
    for file in files:
        waiting.put(file)
    several = args.several or [None] * len(args.uri)
    places = list(zip(args.uri, several, strict=True))[:shards]
    work = harness.CACHE / "logs" / "pymongo" / args.topology
    threads = [Shard(work / f"shard-{number}", uri, more, waiting, only, seconds)
               for number, (uri, more) in enumerate(places)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [record for thread in threads for record in thread.records]


class Tally:
    """Results of the records by test."""

    def __init__(self, records: list[tuple[str, dict]]):
        self.outcome: dict[str, str] = {}
        self.why: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self.collected: set[str] = set()
        self.broken: dict[str, str] = {}
        for file, record in records:
            self.read(file, record)
        for test in self.collected - self.outcome.keys():
            self.outcome[test] = "failed"
            self.why[test] = "the test process ended before this test"

    def read(self, file: str, record: dict) -> None:
        """Reads one line of the plugin. A failed tear-down turns a pass into a failure."""
        if "collected" in record:
            self.collected |= set(record["collected"])
        elif "broken" in record:
            self.broken[file] = record["broken"]
        elif self.outcome.get(record["test"]) != "failed":
            test = record["test"]
            self.outcome[test] = record["outcome"]
            self.why[test] = record["why"]
            self.seconds[test] = self.seconds.get(test, 0) + record["seconds"]

    def with_outcome(self, outcome: str) -> set[str]:
        """Returns the tests with this outcome."""
        return {test for test, found in self.outcome.items() if found == outcome}


def by_file(tally: Tally) -> list[str]:
    """Returns a table: passed, failed, skipped of every file."""
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    seconds: collections.Counter = collections.Counter()
    for test, outcome in tally.outcome.items():
        file = test.split("::")[0]
        counts[file][outcome] += 1
        seconds[file] += tally.seconds.get(test, 0)
    rows = [f"  {'file':<42} passed failed skipped seconds"]
    for file, count in sorted(counts.items()):
        rows.append(f"  {file:<42} {count['passed']:>6} {count['failed']:>6} "
                    f"{count['skipped']:>7} {seconds[file]:>7.1f}")
    return rows


def by_reason(tally: Tally, outcome: str, limit: int) -> list[str]:
    """Returns the most frequent first lines, each with a test to try: one line per missing feature."""
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for test in tally.with_outcome(outcome):
        groups[tally.why[test]].append(test)
    ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    rows = [f"  {len(tests):>4}  {why}   [{min(tests)}]" for why, tests in ranked[:limit]]
    if len(ranked) > limit:
        rows.append(f"        and {len(ranked) - limit} more reasons")
    return rows


def second_attempt(args: argparse.Namespace, tally: Tally, lost: set[str]) -> set[str]:
    """Repeats lost tests alone, since timing tests fail on a busy machine. Returns the tests still lost."""
    files = sorted({test.split("::")[0] for test in lost})
    again = Tally(run_shards(args, 1, files, sorted(lost), args.timeout * 2))
    for test in sorted(lost & again.with_outcome("passed")):
        print(f"  passed on the second attempt: {test}")
        tally.outcome[test] = "passed"
    return lost - again.with_outcome("passed")


def judge(args: argparse.Namespace, tally: Tally, files: list[str]) -> int:
    """Compares with the list of passing tests, and extends it with --update. Returns the number of failures."""
    path = passing_file(args.topology)
    expected = {test for test in listed(path) if test.split("::")[0] in files}
    vanished = expected - tally.outcome.keys()
    lost = {test for test in expected - vanished if tally.outcome[test] != "passed"}
    if lost:
        lost = second_attempt(args, tally, lost)
    for test in sorted(lost):
        print(f"  LOST: {test}: {tally.outcome[test]}: {tally.why[test]}")
    for test in sorted(vanished):
        print(f"  note: listed but no longer in the suite: {test}")
    for file, why in sorted(tally.broken.items()):
        print(f"  BROKEN FILE: {file}: {why.splitlines()[-1] if why else ''}")
    new = tally.with_outcome("passed") - expected
    if new and args.update:
        path.write_text("".join(f"{test}\n" for test in sorted(set(listed(path)) | new)))
        print(f"  {len(new)} tests added to {path.name}")
    elif new:
        print(f"  {len(new)} tests pass that {path.name} does not list yet (--update adds them)")
    return len(lost) + len(tally.broken)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uri", action="append", required=True, help="a server; repeat for more shards")
    parser.add_argument("--several", action="append",
                        help="for each --uri of a balancer that of one which leads to several fronts")
    parser.add_argument("--topology", default="replset", choices=[
        *harness.TOPOLOGIES, harness.USERS, harness.FRONT, harness.BALANCED, "tls", "tls-auth"])
    parser.add_argument("--all-files", action="store_true", help="all files on fronts, not only those marked for them")
    parser.add_argument("--update", action="store_true", help="add newly passing tests to the list")
    parser.add_argument("--file", action="append", help="run only this file of the suite; may be repeated")
    parser.add_argument("--reasons", type=int, default=40, help="how many groups of failures to print")
    parser.add_argument("--timeout", type=int, default=TEST_SECONDS, help="seconds per test")
    return parser.parse_args()


def main() -> int:
    """Sets up, runs and reports."""
    args = arguments()
    set_up()
    files = args.file or files_for(args.topology, args.all_files)
    start = time.monotonic()
    tally = Tally(run_shards(args, len(args.uri), files, [], args.timeout))
    print("\n".join(by_file(tally)))
    print("failures by reason:\n" + "\n".join(by_reason(tally, "failed", args.reasons)))
    print("skips by reason:\n" + "\n".join(by_reason(tally, "skipped", 15)))
    regressions = judge(args, tally, files)
    passed, failed, skipped = (len(tally.with_outcome(o)) for o in ("passed", "failed", "skipped"))
    print(f"PyMongo {VERSION}, {args.topology}, {len(args.uri)} shards, {harness.since(start)}: "
          f"{regressions} of the listed tests lost")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if regressions else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except harness.SetupError as error:
        sys.exit(f"set-up: {error}")
