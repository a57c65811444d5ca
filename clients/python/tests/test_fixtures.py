"""The fixtures in a suite: fresh databases, templates built once, workers that share a server."""

import socket

import pytest

TEMPLATE = """
import pytest

@pytest.fixture(scope="session")
def vellum_template():
    def build(db):
        db.people.create_index("name", unique=True)
        db.people.insert_many([{"name": "a"}, {"name": "b"}])
        # Counted outside of the database, to see that it happens once.
        db.client.counts.built.insert_one({})
    return build
"""

SUITE = """
import pytest

@pytest.mark.parametrize("number", range(12))
def test_each_gets_its_own(mongo_db, number):
    assert sorted(p["name"] for p in mongo_db.people.find()) == ["a", "b"]
    mongo_db.people.insert_one({"name": "mine"})
    assert mongo_db.people.count_documents({}) == 3
    assert "name_1" in mongo_db.people.index_information()

def test_built_once(mongo_client, mongo_db):
    assert mongo_client.counts.built.count_documents({}) == 1
"""


def run(pytester, *args):
    return pytester.runpytest_subprocess("-p", "pytest_vellum.plugin", "-p", "no:cacheprovider", *args)


def test_every_test_gets_a_fork_of_the_template(pytester):
    pytester.makeconftest(TEMPLATE)
    pytester.makepyfile(SUITE)
    run(pytester).assert_outcomes(passed=13)


def test_workers_share_one_server(pytester):
    pytest.importorskip("xdist")
    pytester.makeconftest(TEMPLATE)
    pytester.makepyfile(SUITE)
    run(pytester, "-n", "3").assert_outcomes(passed=13)


def test_without_a_template_a_database_is_empty_and_dropped_after_the_test(pytester):
    pytester.makepyfile(
        """
        names = []

        def test_one(mongo_db):
            names.append(mongo_db.name)
            assert mongo_db.list_collection_names() == []
            mongo_db.c.insert_one({})

        def test_two(mongo_db, mongo_client):
            assert mongo_db.name != names[0]
            assert names[0] not in mongo_client.list_database_names()
        """
    )
    run(pytester).assert_outcomes(passed=2)


def test_a_server_that_cannot_start_ends_the_run_with_its_error(pytester):
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def vellum_args():
            return ["--replset", "a/b"]
        """
    )
    pytester.makepyfile("def test_one(mongo_db): pass")
    result = run(pytester)
    assert result.ret == 3
    assert "a name may contain letters" in result.stdout.str() + result.stderr.str()
    pytest.importorskip("xdist")
    # The tests of workers show the error.
    result = run(pytester, "-n", "2")
    result.assert_outcomes(errors=1)
    assert "a name may contain letters" in result.stdout.str()


def test_vellum_uri_uses_a_running_server(pytester, vellum_uri):
    pytester.makepyfile(
        f"""
        def test_one(vellum_uri, mongo_db):
            assert vellum_uri == {vellum_uri!r}
            mongo_db.c.insert_one({{}})
        """
    )
    run(pytester, "--vellum-uri", vellum_uri).assert_outcomes(passed=1)


def test_vellum_uri_without_a_server_ends_the_run(pytester):
    with socket.socket() as unused:
        # Bound without listening: a connection is refused.
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        pytester.makepyfile("def test_one(mongo_db): pass\ndef test_two(mongo_db): pass")
        result = run(pytester, "--vellum-uri", f"mongodb://someone:secret@{address}/")
    output = result.stdout.str() + result.stderr.str()
    assert result.ret == 3 and f"no server responds at {address}" in output and "secret" not in output
    assert "Timeout: 3.0s" in output, "the wait of the driver, which is 30 s unless set"
