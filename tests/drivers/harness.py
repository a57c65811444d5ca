"""What every client suite shares: the cache folder, a server per shard, results.

The suites measure the server through other people's clients, so nothing here
knows the protocol: a server is a process whose first line of output contains a
connection string, and which ends when its standard input closes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import re
import subprocess
import threading
import time
import xml.etree.ElementTree as ElementTree

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
CACHE = pathlib.Path(os.environ.get("VELLUM_TEST_CACHE", PROJECT / ".test-cache"))

START_SECONDS = 30
STOP_SECONDS = 10
REPLICA_SET = "rs0"
TOPOLOGIES = ("replset", "standalone")
# A replica set that lets in nobody but users, and the first of them.
USERS = "users"
USER, PASSWORD = "user", "password"
# The same, and whoever wants TLS has it.
SECURE = "secure"
# Fronts over PostgreSQL, to drivers shards' routers: by their addresses, and by that of a balancer of connections.
FRONT = "front"
BALANCED = "balanced"

# What XML 1.0 does not allow in a text.
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")

URI = re.compile(r"mongodb://[^\s\"'<>]+")


class SetupError(Exception):
    """A tool is missing, or the server did not come up: no test was run."""


@dataclasses.dataclass
class Result:
    """Counts of one suite, and the lines to print below them."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    lines: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: Result) -> None:
        """Take over another result's counts and lines."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.lines += other.lines

    def fail(self, line: str) -> None:
        """One more failure that is not a test's own: a dead server, a warning."""
        self.failed += 1
        self.lines.append(line)

    def counts(self) -> str:
        """The closing line's form."""
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


class Server:
    """One server process on a free port of the loopback address."""

    def __init__(self, binary: str, topology: str, log: pathlib.Path, options: tuple[str, ...] = (),
                 environment: dict[str, str] | None = None, certificates: pathlib.Path | None = None, port: int = 0):
        self.binary = str(pathlib.Path(binary).resolve())
        self.topology = topology
        self.certificates = certificates
        self.log = log
        command = [binary, "serve", "--port", str(port), "--parent-pipe", *options]
        environment = dict(environment or {})
        if certificates:
            command += ["--tls-mode", "prefer", "--tls-certificate-key-file", str(certificates / "server.pem"),
                        "--tls-ca-file", str(certificates / "ca.pem"),
                        "--tls-allow-connections-without-certificates"]
        if topology in ("replset", USERS, SECURE):
            command += ["--replset", REPLICA_SET]
        if topology in (USERS, SECURE):
            command += ["--test-commands"]
            environment |= {"MONGO_INITDB_ROOT_USERNAME": USER, "MONGO_INITDB_ROOT_PASSWORD": PASSWORD}
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log_file = log.open("wb")
        self._first_line = threading.Event()
        self._uri: str | None = None
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log_file,
            env={**os.environ, **environment},
        )
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()
        # Whether to use TLS is for each test to say.
        self.uri = re.sub(r"&tls=true|tls=true&", "", self._wait_for_uri())
        if topology in (USERS, SECURE):
            self.uri = self.uri.replace("mongodb://", f"mongodb://{USER}:{PASSWORD}@")

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _drain(self) -> None:
        """Keep reading, so that a talkative server never blocks on a full pipe."""
        assert self.process.stdout is not None
        for raw in self.process.stdout:
            self._log_file.write(raw)
            self._log_file.flush()
            found = URI.search(raw.decode("utf-8", "replace"))
            if found and self._uri is None:
                self._uri = found.group(0).rstrip(".,)")
            self._first_line.set()
        self._first_line.set()

    def _wait_for_uri(self) -> str:
        self._first_line.wait(START_SECONDS)
        if self._uri is None:
            self.stop()
            raise SetupError(f"the server printed no connection string; see {self.log}")
        return self._uri

    def address(self) -> tuple[str, int]:
        """Host and port out of the connection string."""
        authority = self.uri.removeprefix("mongodb://").split("/")[0].split("@")[-1]
        host, _, port = authority.split(",")[0].rpartition(":")
        return host, int(port)

    def complaints(self) -> list[str]:
        """What a healthy run never shows: a death, a panic in the log."""
        found = []
        if self.process.poll() is not None:
            found.append(f"server ended with status {self.process.returncode}; see {self.log}")
        text = self.log.read_text("utf-8", "replace")
        found += [f"server log: {line}" for line in text.splitlines() if "panicked at" in line]
        return found

    def stop(self) -> str | None:
        """Close its standard input, which must end it; returns a complaint if not."""
        complaint = None
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            complaint = f"server {self.process.pid} outlived its closed standard input"
            self.process.kill()
            self.process.wait()
        self._reader.join(STOP_SECONDS)
        self._log_file.close()
        return complaint


def client_environment(server: Server) -> dict[str, str]:
    """What the Node, Go and Java suites read to find their server, and the certificates it goes by."""
    return {
        **os.environ,
        "VELLUM_URI": server.uri,
        "VELLUM_BINARY": server.binary,
        "VELLUM_TOPOLOGY": server.topology,
        "VELLUM_CERTIFICATES": str(server.certificates or ""),
        "TZ": "UTC",
    }


def execute(
    command: list[str], cwd: pathlib.Path, log: pathlib.Path, env: dict[str, str], seconds: int
) -> int:
    """Run one command into a log file; its exit status, or 124 when out of time."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, start_new_session=True,
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            out.write(f"\nstopped after {seconds} s\n".encode())
            return 124
        finally:
            end_group(process)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a command and whatever it left behind: it leads a group of its own."""
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        pass
    process.wait()


def prepare(name: str, inputs: list[pathlib.Path], commands: list[list[str]], cwd: pathlib.Path) -> None:
    """Run set-up commands once per state of their input files."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()
    stamp = CACHE / f"{name}.ready"
    if stamp.exists() and stamp.read_text() == f"{cwd}\n{digest}\n":
        return
    print(f"  setting up {name}", flush=True)
    for index, command in enumerate(commands):
        log = CACHE / "logs" / f"setup-{name}-{index}.log"
        try:
            status = execute(command, cwd, log, dict(os.environ), 900)
        except FileNotFoundError as error:
            raise SetupError(f"{name}: {error.filename} is not installed") from error
        if status != 0:
            raise SetupError(f"{name}: {' '.join(command)} failed with {status}; see {log}")
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(f"{cwd}\n{digest}\n")


def test_cases(path: pathlib.Path) -> list[ElementTree.Element]:
    """The cases of a JUnit XML report. Colours of a terminal, which Node leaves in it, are no XML.

    Raises ElementTree.ParseError for a report that its runner did not finish.
    """
    text = CONTROL.sub("", path.read_text("utf-8", "replace"))
    return list(ElementTree.fromstring(text.encode()).iter("testcase"))


def read_junit(files: list[pathlib.Path]) -> Result:
    """Counts and failure lines out of JUnit XML, which Node, Maven and pytest write."""
    result = Result()
    for path in files:
        try:
            cases = test_cases(path)
        except ElementTree.ParseError as error:
            result.fail(f"{path} is no whole report ({error}): its runner was stopped, or ended while writing")
            continue
        for case in cases:
            name = f"{case.get('classname', '')} > {case.get('name', '')}"
            trouble = next((case.find(tag) for tag in ("failure", "error") if case.find(tag) is not None), None)
            if trouble is not None:
                text = (trouble.get("message") or trouble.text or "").strip().splitlines()
                result.fail(f"{name}: {text[0][:300] if text else 'failed'}")
            elif case.find("skipped") is not None:
                result.skipped += 1
            else:
                result.passed += 1
    return result


def passed_names(files: list[pathlib.Path]) -> set[str]:
    """The tests that passed, by class and name, out of JUnit XML; none of a report that was not finished."""
    names = set()
    for path in files:
        with contextlib.suppress(ElementTree.ParseError):
            names |= {
                f"{case.get('classname', '')} > {case.get('name', '')}"
                for case in test_cases(path)
                if all(case.find(tag) is None for tag in ("failure", "error", "skipped"))
            }
    return names


def hold_list(passed: set[str], listed: pathlib.Path, update: bool) -> list[str]:
    """What the list says must pass and has not, sorted. `update` adds what passes newly; nothing is ever removed."""
    known = set(listed.read_text("utf-8").splitlines()) if listed.exists() else set()
    if update:
        listed.write_text("".join(f"{name}\n" for name in sorted(known | passed)), "utf-8")
    return sorted(known - passed)


def since(start: float) -> str:
    """Seconds since a time.monotonic() stamp, for the summary."""
    return f"{time.monotonic() - start:.1f} s"
