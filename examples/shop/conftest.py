"""Runs a suite with four ways to clean its database, and measures their time.

``--clean drop``    drop every collection, create it and its indexes again, insert the seed documents
``--clean delete``  ``delete_many({})`` on every collection, insert the seed documents
``--clean reset``   ``resetDatabase``, insert the seed documents
``--clean fork``    a fork of a template that was prepared once
"""

import os
import time

import pytest
import schema
import vellum_db

WAYS = ["drop", "delete", "reset", "fork"]
FUNCTIONS = 10


class Clock:
    """Durations of the run so far."""

    def __init__(self):
        self.begin = time.perf_counter()
        self.cleaning = 0.0
        self.tests = 0


CLOCK = Clock()


def pytest_addoption(parser):
    parser.addoption("--clean", choices=WAYS, default="fork", help="how every test gets its clean database")
    parser.addoption("--rounds", type=int, default=50, help=f"{FUNCTIONS} tests each")


def pytest_generate_tests(metafunc):
    if "number" in metafunc.fixturenames:
        metafunc.parametrize("number", range(metafunc.config.getoption("--rounds")))


def pytest_terminal_summary(terminalreporter, config):
    failed = len(terminalreporter.stats.get("failed", []) + terminalreporter.stats.get("error", []))
    total = time.perf_counter() - CLOCK.begin
    each = CLOCK.cleaning / max(CLOCK.tests, 1) * 1000
    terminalreporter.write_line(
        f"| {config.getoption('--clean')} | {CLOCK.tests} | {failed} | {total:.1f} s | {CLOCK.cleaning:.2f} s | {each:.2f} ms |"
    )


@pytest.fixture(scope="session")
def vellum_template(request):
    """The template that the plug-in forks for each test with `--clean fork`; None for other ways."""
    if request.config.getoption("--clean") != "fork":
        return None

    def build(db):
        schema.create(db)
        schema.seed(db)

    return build


@pytest.fixture(scope="session")
def shared_db(mongo_client):
    """The database that `drop`, `delete` and `reset` clean before each test."""
    name = f"shop_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
    mongo_client.drop_database(name)
    schema.create(mongo_client[name])
    return mongo_client[name]


def drop(db):
    for name in schema.VALIDATORS:
        db.drop_collection(name)
    schema.create(db)
    schema.seed(db)


def delete(db):
    for name in schema.VALIDATORS:
        db[name].delete_many({})
    schema.seed(db)


def reset(db):
    vellum_db.reset(db.client, db.name)
    schema.seed(db)


@pytest.fixture
def around(mongo_client):
    """The first fixture to be set up and the last to be torn down: the time between it and ``db`` is the cleaning."""
    span = {"begin": time.perf_counter()}
    yield span
    CLOCK.cleaning += time.perf_counter() - span["end"]
    CLOCK.tests += 1


@pytest.fixture
def clean_db(around, request):
    """A database in the state of schema.py, independent of earlier tests."""
    way = request.config.getoption("--clean")
    if way == "fork":
        return request.getfixturevalue("mongo_db")
    db = request.getfixturevalue("shared_db")
    {"drop": drop, "delete": delete, "reset": reset}[way](db)
    return db


@pytest.fixture
def db(around, clean_db):
    CLOCK.cleaning += time.perf_counter() - around["begin"]
    yield clean_db
    around["end"] = time.perf_counter()
