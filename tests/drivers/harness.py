"""Shared code of all client suites: the cache folder, a server per shard, results.

The suites test the server through third-party clients, so this module does not know the protocol. A server is
a process whose first output line contains a connection string, and which ends when its standard input closes.
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
# A replica set with access control, and its first user.
USERS = "users"
USER, PASSWORD = "user", "password"
# The same with optional TLS.
SECURE = "secure"
# Fronts over PostgreSQL, which are routers for drivers: with their addresses, and with the address of a balancer.
FRONT = "front"
BALANCED = "balanced"

# Characters that XML 1.0 does not allow in text.
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")

URI = re.compile(r"mongodb://[^\s\"'<>]+")


class SetupError(Exception):
    """A tool is missing, or the server did not start: no test was run."""


@dataclasses.dataclass
class Result:
    """Counts of one suite, and lines to print below them."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    lines: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: Result) -> None:
        """Adds another result's counts and lines."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.lines += other.lines

    def fail(self, line: str) -> None:
        """Adds a failure outside of tests: a dead server, a warning."""
        self.failed += 1
        self.lines.append(line)

    def counts(self) -> str:
        """Returns the text of the closing line."""
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
        # Each test decides about TLS itself.
        self.uri = re.sub(r"&tls=true|tls=true&", "", self._wait_for_uri())
        if topology in (USERS, SECURE):
            self.uri = self.uri.replace("mongodb://", f"mongodb://{USER}:{PASSWORD}@")

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _drain(self) -> None:
        """Keeps reading, so that the server never blocks on a full pipe."""
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
        """Returns host and port of the connection string."""
        authority = self.uri.removeprefix("mongodb://").split("/")[0].split("@")[-1]
        host, _, port = authority.split(",")[0].rpartition(":")
        return host, int(port)

    def problems(self) -> list[str]:
        """Returns problems: the end of the server, or a panic in its log."""
        found = []
        if self.process.poll() is not None:
            found.append(f"server ended with status {self.process.returncode}; see {self.log}")
        text = self.log.read_text("utf-8", "replace")
        found += [f"server log: {line}" for line in text.splitlines() if "panicked at" in line]
        return found

    def stop(self) -> str | None:
        """Closes its standard input, which must end it. Returns a problem if it does not end."""
        problem = None
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            problem = f"server {self.process.pid} outlived its closed standard input"
            self.process.kill()
            self.process.wait()
        self._reader.join(STOP_SECONDS)
        self._log_file.close()
        return problem


def client_environment(server: Server) -> dict[str, str]:
    """Returns the variables from which the Node, Go and Java suites take the server and its certificates."""
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
    """Runs one command into a log file. Returns its exit status, or 124 after a timeout."""
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
    """Ends a command and its children: it leads its own process group."""
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        pass
    process.wait()


def prepare(name: str, inputs: list[pathlib.Path], commands: list[list[str]], cwd: pathlib.Path) -> None:
    """Runs set-up commands once per state of their input files."""
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
    """Returns the cases of a JUnit XML report. Removes the terminal colours that Node writes, because
    they are not valid XML.

    Raises ElementTree.ParseError for an incomplete report.
    """
    text = CONTROL.sub("", path.read_text("utf-8", "replace"))
    return list(ElementTree.fromstring(text.encode()).iter("testcase"))


def read_junit(files: list[pathlib.Path]) -> Result:
    """Returns counts and failure lines of JUnit XML, written by Node, Maven and pytest."""
    result = Result()
    for path in files:
        try:
            cases = test_cases(path)
        except ElementTree.ParseError as error:
            result.fail(f"{path} is an incomplete report ({error}): its runner was stopped, or ended during the write")
            continue
        for case in cases:
            name = f"{case.get('classname', '')} > {case.get('name', '')}"
            failure = next((case.find(tag) for tag in ("failure", "error") if case.find(tag) is not None), None)
            if failure is not None:
                text = (failure.get("message") or failure.text or "").strip().splitlines()
                result.fail(f"{name}: {text[0][:300] if text else 'failed'}")
            elif case.find("skipped") is not None:
                result.skipped += 1
            else:
                result.passed += 1
    return result


def passed_names(files: list[pathlib.Path]) -> set[str]:
    """Returns the tests that passed, by class and name, of JUnit XML; none for an incomplete report."""
    names = set()
    for path in files:
        with contextlib.suppress(ElementTree.ParseError):
            names |= {
                f"{case.get('classname', '')} > {case.get('name', '')}"
                for case in test_cases(path)
                if all(case.find(tag) is None for tag in ("failure", "error", "skipped"))
            }
    return names


def missing_from(passed: set[str], listed: pathlib.Path, update: bool) -> list[str]:
    """Returns the listed tests that did not pass, sorted. `update` adds tests that pass for the first time,
    and removes none."""
    known = set(listed.read_text("utf-8").splitlines()) if listed.exists() else set()
    if update:
        listed.write_text("".join(f"{name}\n" for name in sorted(known | passed)), "utf-8")
    return sorted(known - passed)


def since(start: float) -> str:
    """Returns the seconds since a time.monotonic() stamp, for the summary."""
    return f"{time.monotonic() - start:.1f} s"
