"""Servers for the round trips: the given one, another one on disk, and a front over PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import pymongo
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import fronts  # noqa: E402

URI = os.environ["VELLUM_URI"]
BINARY = os.environ["VELLUM_BINARY"]


@pytest.fixture(scope="session")
def memory() -> Iterator[pymongo.MongoClient]:
    """The server under test, in memory."""
    with pymongo.MongoClient(URI, tz_aware=True) as client:
        yield client


@contextlib.contextmanager
def another(*options: str) -> Iterator[pymongo.MongoClient]:
    """Another server of the same program."""
    command = [BINARY, "serve", "--port", "0", "--parent-pipe", "--log-level", "error", *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        found = None
        while not found and (line := process.stdout.readline()):
            found = re.search(r"mongodb://[^\s\"'<>]+", line)
        assert found, f"{command} exited before it printed its address"
        with pymongo.MongoClient(found.group(0).rstrip(".,)"), tz_aware=True) as client:
            yield client
        process.stdin.close()
        process.wait(20)


@pytest.fixture(scope="session")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pymongo.MongoClient]:
    """A server with a data directory."""
    with another("--data", str(tmp_path_factory.mktemp("data"))) as client:
        yield client


@pytest.fixture(scope="session")
def front() -> Iterator[pymongo.MongoClient]:
    """A front over a private PostgreSQL server."""
    if fronts.programs() is None:
        pytest.skip("PostgreSQL is not installed")
    with fronts.Postgres() as postgres, another("--postgres", postgres.connection) as client:
        yield client


@pytest.fixture(autouse=True)
def emptied(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drops each test's databases after it."""
    clients = [request.getfixturevalue(name) for name in ("memory", "disk", "front") if name in request.fixturenames]
    yield
    for client in clients:
        for name in client.list_database_names():
            if name.startswith("tools_"):
                client.drop_database(name)
