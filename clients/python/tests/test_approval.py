"""Approval files: equal in all languages, written once; a difference fails the test and is printed."""

import datetime
import pathlib
import uuid

import bson
import pytest
from test_fixtures import run

import vellum_db

SHARED_FILE = pathlib.Path(__file__).parents[2] / "changes.approved.json"


@pytest.fixture(autouse=True)
def _unset_write_variables(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("VELLUM_APPROVE", raising=False)


def test_the_file_is_the_same_in_all_languages(mongo_client, mongo_db):
    ada = bson.ObjectId()
    people, orders = mongo_db.people, mongo_db.orders
    people.insert_many([{"_id": 1, "name": "Ada", "born": 1815, "x": 1}, {"_id": 2, "name": "Grace"}])
    vellum_db.snapshot(mongo_client, mongo_db.name, "ready")
    people.update_one({"_id": 1}, {"$set": {"born": bson.Int64(1816)}, "$unset": {"x": 1, "name": 1}})
    people.delete_one({"_id": 2})
    people.create_index([("name", 1), ("born", -1)], unique=True)
    # They are not in the order of their random keys.
    for number in (2, 1):
        orders.insert_one({"_id": bson.Binary.from_uuid(uuid.uuid4()), "number": number, "by": ada, "at": datetime.datetime(2026, 1, 31)})
    orders.insert_one({"_id": "z", "b": 1.5, "a": [True, None, {"d": 'é "<&>\n', "c": []}], "by": ada, "next": bson.ObjectId()})
    vellum_db.approve(vellum_db.changes(mongo_client, mongo_db.name, since="ready"), SHARED_FILE)
    vellum_db.drop_snapshot(mongo_client, mongo_db.name, "ready")


SUITE = """
import os

def test_orders(mongo_db, approve_changes):
    mongo_db.orders.insert_one({"total": int(os.environ["TOTAL"])})
    approve_changes()
"""


def test_approve_changes_writes_and_compares_a_file(pytester, monkeypatch, vellum_uri):
    suite = pytester.makepyfile(test_shop=SUITE)
    file = suite.with_name("test_shop.test_orders.approved.json")

    def outcome(**variables):
        with monkeypatch.context() as within:
            for name, value in variables.items():
                within.setenv(name, value)
            return run(pytester, "--vellum-uri", vellum_uri)

    outcome(TOTAL="1", CI="1").assert_outcomes(failed=1)
    assert not file.exists()
    for _ in range(2):
        outcome(TOTAL="1").assert_outcomes(passed=1)
    assert '"fullDocument": {"_id": "<ObjectId 1>", "total": 1}' in file.read_text()
    differs = outcome(TOTAL="2")
    differs.assert_outcomes(failed=1)
    differs.stdout.fnmatch_lines(["*VELLUM_APPROVE=1 writes the file*", '*-*"total": 1*', '*+*"total": 2*'])
    outcome(TOTAL="2", VELLUM_APPROVE="1").assert_outcomes(passed=1)
    outcome(TOTAL="2").assert_outcomes(passed=1)
