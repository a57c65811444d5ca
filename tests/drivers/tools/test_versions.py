"""Dumps with their oplog between servers that follow different versions of MongoDB."""

from __future__ import annotations

import pathlib

import pymongo
import pytest

from conftest import another
from database_tools import dump, log_end, log_since, replay, restore
from test_tools import described, fill

VERSIONS = ["8.0", "8.2", "9.0"]
PAIRS = [(source, target) for source in VERSIONS for target in VERSIONS if source != target]


def change(client: pymongo.MongoClient, name: str) -> None:
    """Changes a database as other clients do while mongodump reads it."""
    database = client[name]
    database.plain.update_many({"a": {"$lt": 20}}, {"$inc": {"a": 1000}, "$push": {"tags": "late"}})
    database.plain.delete_one({"_id": 3})
    database.plain.replace_one({"_id": 4}, {"n": 33})
    database.valid.update_one({"_id": 2}, {"$set": {"n": 2}})
    database.command({"collMod": "valid", "validator": {"n": {"$gte": 0}}, "validationLevel": "strict", "validationAction": "error"})
    database.command({"collMod": "plain", "index": {"name": "sparse", "hidden": True}})
    database.late.insert_one({"_id": 1, "a": [1, None]})
    database.late.create_index("a")
    database.gone.insert_one({"_id": 1})
    database.gone.drop()
    database.late.rename("renamed")
    database.command("create", "view", viewOn="plain", pipeline=[{"$match": {"a": {"$gt": 5}}}])
    with client.start_session() as session, session.start_transaction():
        database.plain.insert_one({"_id": "within"}, session=session)
        database.renamed.update_one({"_id": 1}, {"$unset": {"a": 1}}, session=session)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_dump_with_its_oplog_goes_to_another_version(tmp_path: pathlib.Path, source: str, target: str) -> None:
    def server(version: str):
        return another("--replset", "rs0", "--compatible-with", version)

    with server(source) as first, server(target) as second:
        assert first.server_info()["version"].startswith(source)
        assert second.server_info()["version"].startswith(target)
        fill(first, "tools_v", 50)
        begin = log_end(first)
        dump(first, "tools_v", tmp_path / "dump")
        change(first, "tools_v")
        operations = log_since(first, "tools_v", begin)
        wanted = described(first, "tools_v")
        assert len(operations) > 30
        restore(second, "tools_v", tmp_path / "dump")
        replay(second, operations)
        assert described(second, "tools_v") == wanted


def test_a_constraint_is_restored_only_where_it_exists(tmp_path: pathlib.Path) -> None:
    with another("--compatible-with", "9.0") as newest, another() as older:
        newest.tools_c.command("create", "c", validator={"a": 1}, validationLevel="constraint")
        newest.tools_c.c.insert_one({"_id": 1, "a": 1})
        dump(newest, "tools_c", tmp_path / "dump")
        with pytest.raises(pymongo.errors.OperationFailure, match="validationLevel"):
            restore(older, "tools_c", tmp_path / "dump")
        wanted = described(newest, "tools_c")
        # This level does not allow bypassDocumentValidation.
        with pytest.raises(AssertionError, match="bypassDocumentValidation is not permitted"):
            restore(newest, "tools_c", tmp_path / "dump", drop=True)
        restore(newest, "tools_c", tmp_path / "dump", drop=True, validates=True)
        assert described(newest, "tools_c") == wanted
