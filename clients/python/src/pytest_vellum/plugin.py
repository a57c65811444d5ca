"""PyTest fixtures: one server for the session, one database for each test.

==================  ========  ==========================================================================
fixture             scope     value or purpose
==================  ========  ==========================================================================
vellum_uri          session   connection string of the one server, shared by all of pytest-xdist's workers
mongo_client        session   a ``pymongo.MongoClient`` on it
mongo_db            test      a fresh database: empty, or a fork of the template's
mongo_db_name       test      name of that database, for code that makes its own client
approve_changes     test      call it at the test's end: it compares the changes with a file next to the test, or writes the file
async_mongo_client  test      a ``pymongo.AsyncMongoClient`` (with pytest-asyncio)
async_mongo_db      test      the fresh database, through it
vellum_template     session   override it: return a function that fills the template of each test's database
vellum_args         session   override it: further options of the server, ``["--replset", "rs0"]``
vellum_user         session   override it: ``("root", "secret")`` enables access control
vellum_uri_options  session   override it: further options of ``vellum_uri``, ``"tlsCAFile=ca.pem"``
==================  ========  ==========================================================================

``--vellum-binary`` sets the server's program, ``--vellum-uri`` uses a running server.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import pathlib
import re
from typing import Any, Callable, Iterator, NoReturn, Optional, Sequence

import pytest

from vellum_db import SharedServer, StartError, approval, slate

try:
    import pytest_asyncio
except ImportError:
    pytest_asyncio = None  # type: ignore[assignment]

_numbers = itertools.count(1)

NAME_BYTES_MAX = 63
#: Server selection timeout for the server of --vellum-uri.
SERVER_SELECTION_MS = 3000
#: The snapshot to compare with, and a collection that creates the database for the snapshot.
BEFORE = "vellum_before"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds options to the command line."""
    group = parser.getgroup("vellum", "databases for tests")
    group.addoption("--vellum-binary", help="the server's program (default: VELLUM_BINARY, then the installed program)")
    group.addoption("--vellum-uri", help="use this running server instead of starting one")


@pytest.fixture(scope="session")
def vellum_args() -> Sequence[str]:
    """Options of the server in addition to its port; override for a replica set."""
    return ()


@pytest.fixture(scope="session")
def vellum_user() -> Optional[tuple[str, str]]:
    """Name and password of the first user; override it to enable access control."""
    return None


@pytest.fixture(scope="session")
def vellum_uri_options() -> str:
    """Additional options of the connection string, such as the path of certificates."""
    return ""


@pytest.fixture(scope="session")
def _vellum(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    vellum_args: Sequence[str],
    vellum_user: Optional[tuple[str, str]],
    vellum_uri_options: str,
) -> Iterator[SharedServer]:
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Each worker has its own folder inside the session's.
        folder = folder.parent
    options = request.config
    running_uri = options.getoption("--vellum-uri")
    if running_uri is not None:
        _check_server(running_uri)
    try:
        shared = SharedServer(
            folder,
            vellum_args,
            options.getoption("--vellum-binary"),
            running_uri,
            vellum_user,
            vellum_uri_options,
        )
    except StartError as error:
        _exit(f"vellum did not start: {error}")
    yield shared
    shared.close()


def _exit(message: str) -> NoReturn:
    """Ends the run. pytest-xdist shows only errors of tests, so the tests of its workers fail with the message."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.fail(message, pytrace=False)
    pytest.exit(message, returncode=3)


def _check_server(uri: str) -> None:
    """Ends the session if no server responds: otherwise each test would wait for it."""
    import pymongo
    import pymongo.errors
    import pymongo.uri_parser

    client: Any = pymongo.MongoClient(uri, serverSelectionTimeoutMS=SERVER_SELECTION_MS)
    try:
        client.admin.command("ping")
    except pymongo.errors.ServerSelectionTimeoutError as error:
        # Not the connection string, which may contain a password.
        hosts = ", ".join(f"{host}:{port}" for host, port in pymongo.uri_parser.parse_uri(uri)["nodelist"])
        reason = str(error).split(", Topology")[0]
        _exit(f"--vellum-uri: no server responds at {hosts}. Start the server, or omit the option: {reason}")
    except pymongo.errors.PyMongoError:
        # The server is running. Its errors show in the tests.
        pass
    finally:
        client.close()


@pytest.fixture(scope="session")
def vellum_uri(_vellum: SharedServer) -> str:
    """The server's connection string."""
    return _vellum.uri


@pytest.fixture(scope="session")
def mongo_client(vellum_uri: str) -> Iterator[Any]:
    """A client for the whole session."""
    import pymongo

    client: Any = pymongo.MongoClient(vellum_uri)
    yield client
    client.close()


@pytest.fixture(scope="session")
def vellum_template() -> Optional[Callable[[Any], object]]:
    """Override to return a function that fills the template. It is called once."""
    return None


@pytest.fixture
def mongo_db_name(
    request: pytest.FixtureRequest, _vellum: SharedServer, mongo_client: Any, vellum_template: Any
) -> Iterator[str]:
    """The name of this test's database, which is dropped after the test."""
    name = _database_name(request.node.name)
    if vellum_template is not None:
        slate.fork(mongo_client, _template_name(_vellum, mongo_client, vellum_template), name)
    yield name
    mongo_client.drop_database(name)


@pytest.fixture
def mongo_db(mongo_client: Any, mongo_db_name: str) -> Any:
    """This test's own database."""
    return mongo_client[mongo_db_name]


@pytest.fixture
def approve_changes(request: pytest.FixtureRequest, mongo_client: Any, mongo_db_name: str) -> Iterator[Callable[[], None]]:
    """Compares the changes since this fixture was set up with FILE.TEST.approved.json, or writes that file."""
    database = mongo_client[mongo_db_name]
    empty = not database.list_collection_names()
    if empty:
        # A database without a collection does not exist, and has no snapshots.
        database.create_collection(BEFORE)
    slate.snapshot(mongo_client, mongo_db_name, BEFORE)
    if empty:
        database.drop_collection(BEFORE)
    test = re.sub(r"[^\w.-]+", "_", request.node.name)
    file = pathlib.Path(request.node.path).with_suffix(f".{test}.approved.json")

    def approve() -> None:
        __tracebackhide__ = True
        changes = slate.changes(mongo_client, mongo_db_name, since=BEFORE)
        approval.approve([change for change in changes if change["ns"]["coll"] != BEFORE], file)

    yield approve
    slate.drop_snapshot(mongo_client, mongo_db_name, BEFORE)


if pytest_asyncio is not None:

    @pytest_asyncio.fixture
    async def async_mongo_client(vellum_uri: str) -> Any:
        """An async client in the test's own event loop."""
        import pymongo

        client: Any = pymongo.AsyncMongoClient(vellum_uri)
        yield client
        await client.close()

    @pytest_asyncio.fixture
    async def async_mongo_db(async_mongo_client: Any, mongo_db_name: str) -> Any:
        """This test's own database, through the async client."""
        return async_mongo_client[mongo_db_name]

else:

    @pytest.fixture
    def async_mongo_client() -> Any:
        """Fails the test: an async client needs pytest-asyncio."""
        pytest.fail("async_mongo_client and async_mongo_db need pytest-asyncio")

    @pytest.fixture
    def async_mongo_db(async_mongo_client: Any) -> Any:
        """Fails the test, as `async_mongo_client` does."""
        return async_mongo_client


def _database_name(test: str) -> str:
    """Returns a name that contains the test's name, and differs between workers and tests."""
    suffix = f"_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}_{os.getpid()}_{next(_numbers)}"
    return re.sub(r"\W+", "_", test, flags=re.ASCII)[: NAME_BYTES_MAX - len(suffix)] + suffix


def _template_name(shared: SharedServer, client: Any, build: Callable[[Any], object]) -> str:
    """Returns the template's database, built now unless a worker has built it before."""
    code = getattr(build, "__code__", None)
    identity = (build.__module__, build.__qualname__, code and code.co_filename, code and code.co_firstlineno)
    name = "template_" + hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
    with shared.lock(name):
        if not shared.done_file(name).exists():
            client.drop_database(name)
            build(client[name])
            # A template without a collection is an empty database, which does not exist and cannot be forked.
            if not client[name].list_collection_names():
                client[name].create_collection("template")
            shared.done_file(name).touch()
    return name
