"""Dumps with their oplog, users and roles between servers that follow different versions of MongoDB."""

from __future__ import annotations

import contextlib
import functools
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import bson
import pymongo
import pytest

from conftest import another
from database_tools import RAW, dump, dump_users, log_end, log_since, replay, restore, restore_users
from test_tools import described, fill

VERSIONS = ["8.0", "8.2", "9.0"]
PAIRS = [(source, target) for source in VERSIONS for target in VERSIONS]
Servers = Callable[[str, str], pymongo.MongoClient]


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """Starts a source and a target of each version, once."""
    with contextlib.ExitStack() as running:
        @functools.cache
        def server(version: str, role: str) -> pymongo.MongoClient:
            client = running.enter_context(another("--replset", "rs0", "--compatible-with", version))
            assert client.server_info()["version"].startswith(version)
            return client

        yield server


def name_of(source: str, target: str) -> str:
    return f"tools_{source}_{target}".replace(".", "")


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
def test_a_dump_with_its_oplog_goes_to_each_version(servers: Servers, tmp_path: pathlib.Path, source: str, target: str) -> None:
    first, second, name = servers(source, "source"), servers(target, "target"), name_of(source, target)
    fill(first, name, 50)
    begin = log_end(first)
    dump(first, name, tmp_path / "dump")
    change(first, name)
    operations = log_since(first, name, begin)
    wanted = described(first, name)
    assert len(operations) > 30
    restore(second, name, tmp_path / "dump")
    replay(second, operations)
    assert described(second, name) == wanted


def users_and_roles(client: pymongo.MongoClient, query: dict[str, Any]) -> list[list[bytes]]:
    """Returns users with their credentials, and roles, byte for byte."""
    found = [client.admin.get_collection(f"system.{kind}", codec_options=RAW).find(query).sort("_id") for kind in ("users", "roles")]
    return [[document.raw for document in documents] for documents in found]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_users_and_roles_go_to_each_version(servers: Servers, tmp_path: pathlib.Path, source: str, target: str) -> None:
    first, second, name = servers(source, "source"), servers(target, "target"), name_of(source, target)
    privileges = [{"resource": {"db": name, "collection": "c"}, "actions": ["find", "insert"]}]
    first[name].command("createRole", "seller", privileges=privileges, roles=["read"])
    first[name].command("createUser", "dumped", pwd="secret", roles=["seller"], customData={"a": 1})
    first.admin.command("createUser", f"{name}_admin", pwd="secret", roles=["root"], mechanisms=["SCRAM-SHA-1"])
    second[name].command("createUser", "stays", pwd="secret", roles=[])
    wanted = users_and_roles(first, {"db": name})
    assert [len(found) for found in wanted] == [1, 1]

    # --dumpDbUsersAndRoles, --restoreDbUsersAndRoles. Users that the dump does not have stay without --drop.
    dump_users(first, tmp_path, name)
    restore_users(second, tmp_path, name)
    assert users_and_roles(second, {"db": name, "user": {"$ne": "stays"}}) == wanted
    assert second[name].command("usersInfo", "stays")["users"]
    restore_users(second, tmp_path, name, drop=True)
    assert users_and_roles(second, {"db": name}) == wanted

    # A dump of all databases.
    dump_users(first, tmp_path)
    restore_users(second, tmp_path, drop=True)
    assert users_and_roles(second, {}) == users_and_roles(first, {})
    host, port = second.address
    for user, database in (("dumped", name), (f"{name}_admin", "admin")):
        with pymongo.MongoClient(host, port, username=user, password="secret", authSource=database, directConnection=True) as own:
            assert own.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"] == [{"user": user, "db": database}]
    assert not second.admin.list_collection_names(filter={"name": {"$regex": "^temp"}})


@pytest.mark.parametrize("target", VERSIONS)
def test_an_oplog_of_8_0_that_upserts_is_replayed(servers: Servers, tmp_path: pathlib.Path, target: str) -> None:
    second, name = servers(target, "target"), f"tools_u_{target}".replace(".", "")
    late = {"op": "u", "ns": f"{name}.c", "o2": {"_id": 1}, "o": {"$v": 2, "diff": {"i": {"a": 2}}}}
    operations = [late, {"op": "d", "ns": f"{name}.c", "o": {"_id": 1}},
                  {"op": "u", "ns": f"{name}.c", "o2": {"_id": 2}, "o": {"_id": 2, "a": 3}}]
    entry = {"op": "c", "ns": "admin.$cmd", "o": {"applyOps": operations, "alwaysUpsert": True}, "ts": bson.Timestamp(1, 1)}
    (tmp_path / "oplog.bson").write_bytes(bson.encode(entry))
    second[name].create_collection("c")
    replay(second, bson.decode_all((tmp_path / "oplog.bson").read_bytes()))
    assert list(second[name].c.find()) == [{"_id": 2, "a": 3}]
    # Without the field, 8.0 inserts the missing document. Later versions do not.
    upserts = target == "8.0"
    with contextlib.nullcontext() if upserts else pytest.raises(pymongo.errors.OperationFailure, match="errors applying ops"):
        replay(second, [late])
    assert second[name].c.count_documents({"_id": 1}) == upserts


def test_a_constraint_is_restored_only_where_it_exists(servers: Servers, tmp_path: pathlib.Path) -> None:
    newest, older = servers("9.0", "source"), servers("8.2", "target")
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
