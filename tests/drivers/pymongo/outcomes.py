"""A pytest plugin: one JSON line per test, and only tests that need a server.

PyMongo's files mix unit and integration tests. A unit test passes whatever the server does and would distort
the result. Only test classes based on the suite's IntegrationTest are kept. Lines are written as tests
finish, so a crash of the interpreter loses one test, not the file.
"""

from __future__ import annotations

import fnmatch
import json
import os
import pathlib
import re

import pytest

OUTPUT = pathlib.Path(os.environ["VELLUM_OUTCOMES"])
DENIED = json.loads(os.environ.get("VELLUM_DENIED", "[]"))
FAILED: set[str] = set()
HEARTBEAT_SECONDS = 2
ONLY = set(json.loads(os.environ.get("VELLUM_ONLY", "[]")))


def short_id(nodeid: str) -> str:
    """Returns `test/test_bulk.py::TestBulk::test_x` without the folder."""
    return nodeid.removeprefix("test/")


def write(record: dict[str, object]) -> None:
    """Appends one line. The file is opened each time, so that no line stays in a buffer."""
    with OUTPUT.open("a", encoding="utf-8") as out:
        out.write(json.dumps(record) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    """Sets defaults for tests without their own: the server under test, and a shorter heartbeat.

    A client that has lost its server checks again at the next heartbeat, which many tests wait for.
    """
    import pymongo
    from pymongo import common

    common.HEARTBEAT_FREQUENCY = HEARTBEAT_SECONDS
    for client in (pymongo.MongoClient, pymongo.AsyncMongoClient):
        client.HOST = os.environ["DB_IP"]
        client.PORT = int(os.environ["DB_PORT"])
    drop_databases()


def drop_databases() -> None:
    """Drops the data of the previous file, which must not affect this one."""
    import pymongo

    # User and TLS settings, if the server requires them.
    known = json.loads(os.environ.get("VELLUM_CLIENT", "{}"))
    with pymongo.MongoClient(directConnection=True, **known) as client:
        for name in client.list_database_names():
            if name not in ("admin", "config", "local"):
                client.drop_database(name)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Removes unit tests and denied tests. On a second attempt, keeps only the failed ones."""
    from test import IntegrationTest

    selected, deselected = [], []
    for item in items:
        cls = getattr(item, "cls", None)
        name = short_id(item.nodeid)
        is_selected = cls is not None and issubclass(cls, IntegrationTest)
        is_selected = is_selected and not any(fnmatch.fnmatchcase(name, pattern) for pattern in DENIED)
        is_selected = is_selected and (not ONLY or name in ONLY)
        (selected if is_selected else deselected).append(item)
    items[:] = selected
    if deselected:
        config.hook.pytest_deselected(items=deselected)
    write({"collected": [short_id(item.nodeid) for item in selected]})


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that cannot be imported must not look like a file without tests."""
    if report.failed:
        write({"broken": str(report.longrepr)[-600:]})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Writes one line per relevant phase: the call, or a set-up or tear-down that failed."""
    if report.when != "call" and report.passed:
        return
    if report.failed:
        FAILED.add(report.nodeid)
    write({
        "test": short_id(report.nodeid),
        "outcome": report.outcome,
        "phase": report.when,
        "seconds": round(report.duration, 3),
        "why": reason(report),
    })


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Turns fail points off after a failure: an interrupted test leaves its own on."""
    if nodeid not in FAILED:
        return
    from test import client_context

    for name in ("failCommand", "maxTimeAlwaysTimeOut", "onPrimaryTransactionalWrite"):
        try:
            client_context.client.admin.command("configureFailPoint", name, mode="off")
        except Exception:  # noqa: BLE001 - a server without fail points has none to turn off
            return


def reason(report: pytest.TestReport) -> str:
    """Returns the first line of the error, without values that differ between runs."""
    if report.passed:
        return ""
    if isinstance(report.longrepr, tuple):
        text = str(report.longrepr[2]).removeprefix("Skipped: ")
        return re.sub(r"^TestUnified\w+ ", "", text)[:200]
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    return normalise(text)


def normalise(text: str) -> str:
    """Removes ids, ports and values of replies, so that one missing feature forms one group."""
    text = text.strip().split("\n")[0]
    text = re.sub(r",? ?full error: .*", "", text)
    text = re.sub(r"[0-9a-f]{24}", "<id>", text)
    text = re.sub(r"127\.0\.0\.1:\d+|localhost:\d+", "<server>", text)
    text = re.sub(r"\bpymongo\.errors\.", "", text)
    text = re.sub(r"0x[0-9a-f]+", "<address>", text)
    return text[:200]
