"""Servers for the round trips: the one given, and another one on disk."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
from collections.abc import Iterator

import pymongo
import pytest

URI = os.environ["VELLUM_URI"]
BINARY = os.environ["VELLUM_BINARY"]


@pytest.fixture(scope="session")
def memory() -> Iterator[pymongo.MongoClient]:
    """The server under test, in memory."""
    with pymongo.MongoClient(URI, tz_aware=True) as client:
        yield client


@pytest.fixture(scope="session")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pymongo.MongoClient]:
    """A server of the same program with a data directory."""
    data: pathlib.Path = tmp_path_factory.mktemp("data")
    command = [BINARY, "serve", "--port", "0", "--parent-pipe", "--log-level", "error", "--data", str(data)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        found = None
        while not found:
            found = re.search(r"mongodb://[^\s\"'<>]+", process.stdout.readline())
        with pymongo.MongoClient(found.group(0).rstrip(".,)"), tz_aware=True) as client:
            yield client
        process.stdin.close()
        process.wait(20)


@pytest.fixture(autouse=True)
def emptied(memory: pymongo.MongoClient, disk: pymongo.MongoClient) -> Iterator[None]:
    """Each test's databases are gone after it."""
    yield
    for client in (memory, disk):
        for name in client.list_database_names():
            if name.startswith("tools_"):
                client.drop_database(name)
