"""Round trips as made by mongodump, mongorestore, mongoexport, mongoimport, mongofiles, bsondump, mongostat
and mongotop."""

from __future__ import annotations

import datetime
import pathlib
import re
import uuid
from typing import Any

import bson
import gridfs
import pymongo
import pytest
from bson import json_util

from database_tools import CANONICAL, RAW, collections, dump, export, load, restore

EVERY_TYPE = {
    "_id": bson.ObjectId("507f1f77bcf86cd799439011"), "double": 1.5, "nan": float("nan"), "inf": float("-inf"), "string": "é\n\"",
    "document": {"b": 1, "a": {"": 2}}, "array": [1, [2, []], {"x": None}], "binary": bson.Binary(b"\0\xff", 0),
    "uuid": bson.Binary(uuid.UUID(int=7).bytes, 4), "custom": bson.Binary(b"abc", 128), "true": True, "null": None,
    "date": datetime.datetime(1969, 12, 31, 23, 59, 59, 999000, datetime.timezone.utc), "regex": bson.Regex("^a.*b$", "imx"),
    "code": bson.Code("f()"), "scoped": bson.Code("f(x)", {"x": 1}), "int": -5, "long": bson.Int64(5), "timestamp": bson.Timestamp(4, 2),
    "empty": bson.Timestamp(0, 0), "decimal": bson.Decimal128("1.10E+3"), "negzero": bson.Decimal128("-0"), "min": bson.MinKey(),
    "max": bson.MaxKey(), "ref": bson.DBRef("notes", 1, "other"), "dotted.name": 1, "$dollar": 2,
}
# More than one batch. Programs built for tests load indexes three entries at a time.
FRONT_DOCUMENTS = 1100
INDEXES: list[dict[str, Any]] = [
    {"key": {"a": 1, "b.c": -1}, "name": "compound", "hidden": True},
    {"key": {"u": 1}, "name": "unique", "unique": True, "partialFilterExpression": {"u": {"$exists": True}}},
    {"key": {"s": 1}, "name": "sparse", "sparse": True}, {"key": {"h": "hashed"}, "name": "hashed"},
    {"key": {"t": 1}, "name": "expiring", "expireAfterSeconds": 86400},
    {"key": {"words": "text"}, "name": "words", "weights": {"words": 5}, "default_language": "german"},
    {"key": {"place": "2dsphere", "a": 1}, "name": "place"}, {"key": {"flat": "2d"}, "name": "flat", "min": -10, "max": 10, "bits": 20},
    {"key": {"$**": 1}, "name": "wild", "wildcardProjection": {"x": 0}},
    {"key": {"z": 1}, "name": "collated", "collation": {"locale": "fr", "strength": 1}},
]


def fill(client: pymongo.MongoClient, name: str, count: int = 2500) -> None:
    """Creates a database with every kind of collection, one of them with additional documents."""
    database = client[name]
    database.command("create", "plain")
    database.command({"createIndexes": "plain", "indexes": INDEXES})
    database.command({"insert": "plain", "documents": [EVERY_TYPE], "bypassEmptyTsReplacement": True})
    database.plain.insert_many([{"_id": n, "a": n, "u": n, "words": f"Wort {n}", "place": [n % 90, n % 80]} for n in range(count)])
    database.create_collection("valid", validator={"n": {"$type": "number"}}, validationLevel="moderate", validationAction="warn")
    database.valid.insert_one({"_id": 1, "n": 1})
    database.command({"insert": "valid", "documents": [{"_id": 2}], "bypassDocumentValidation": True})
    database.create_collection("last", capped=True, size=8192, max=3)
    database["last"].insert_many([{"_id": n} for n in (3, 1, 2, 0)])
    database.create_collection("folded", collation={"locale": "de", "strength": 2})
    database.folded.insert_many([{"_id": "ä", "w": "A"}, {"_id": "b", "w": "a"}])
    database.command("create", "clustered", clusteredIndex={"key": {"_id": 1}, "unique": True, "name": "by_id"}, expireAfterSeconds=9999999)
    database.clustered.insert_many([{"_id": n} for n in (2, 1)])
    database.command("create", "imaged", changeStreamPreAndPostImages={"enabled": True})
    database.command("create", "seen", viewOn="folded", pipeline=[{"$match": {"w": "a"}}], collation={"locale": "de", "strength": 2})
    database.command("create", "empty name. with dots")


def described(client: pymongo.MongoClient, name: str) -> dict[str, Any]:
    """Returns all data that must be equal after a round trip: options, indexes, and documents byte for byte."""
    found = {}
    for collection in collections(client, name):
        view = collection["type"] == "view"
        indexes = [] if view else client[name].command("listIndexes", collection["name"])["cursor"]["firstBatch"]
        raw = client[name].get_collection(collection["name"], codec_options=RAW)
        documents = [document.raw for document in raw.find(sort=[("_id", 1)])]
        found[collection["name"]] = (collection["type"], collection["options"], indexes, documents)
    return found


@pytest.mark.parametrize("zipped", [False, True])
def test_dumps_go_from_memory_to_disk_and_back(memory: pymongo.MongoClient, disk: pymongo.MongoClient, tmp_path: pathlib.Path,
                                               zipped: bool) -> None:
    fill(memory, "tools_a")
    wanted = described(memory, "tools_a")
    assert len(wanted) == 8 and len(wanted["plain"][2]) == 11 and wanted["last"][3] == [bson.encode({"_id": n}) for n in (0, 1, 2)]
    dump(memory, "tools_a", tmp_path / "first", zipped)
    restore(disk, "tools_a", tmp_path / "first")
    assert described(disk, "tools_a") == wanted
    dump(disk, "tools_a", tmp_path / "second", zipped)
    restore(memory, "tools_b", tmp_path / "second")
    assert described(memory, "tools_b") == wanted
    found = memory["tools_b"].command("listIndexes", "plain")["cursor"]["firstBatch"]
    assert [index["name"] for index in found] == ["_id_", *(index["name"] for index in INDEXES)]
    assert memory["tools_b"].plain.count_documents({"$text": {"$search": "worte"}}) == 2500


@pytest.mark.timeout(120)
@pytest.mark.parametrize("source", ["memory", "disk"])
def test_dumps_go_to_a_front_and_back(memory: pymongo.MongoClient, disk: pymongo.MongoClient, front: pymongo.MongoClient,
                                      tmp_path: pathlib.Path, source: str) -> None:
    engine: pymongo.MongoClient = {"memory": memory, "disk": disk}[source]
    fill(engine, "tools_a", FRONT_DOCUMENTS)
    wanted = described(engine, "tools_a")
    assert len(wanted) == 8 and len(wanted["plain"][2]) == 11 and len(wanted["plain"][3]) == FRONT_DOCUMENTS + 1
    dump(engine, "tools_a", tmp_path / "first")
    restore(front, "tools_a", tmp_path / "first")
    assert described(front, "tools_a") == wanted
    dump(front, "tools_a", tmp_path / "second", zipped=True)
    restore(engine, "tools_b", tmp_path / "second")
    assert described(engine, "tools_b") == wanted
    for client, name in ((front, "tools_a"), (engine, "tools_b")):
        assert client[name].plain.count_documents({"$text": {"$search": "worte"}}) == FRONT_DOCUMENTS
        assert client[name]["last"].distinct("_id") == [0, 1, 2]


@pytest.mark.timeout(120)
def test_what_a_front_holds_goes_to_memory_and_back(memory: pymongo.MongoClient, front: pymongo.MongoClient,
                                                    tmp_path: pathlib.Path) -> None:
    fill(front, "tools_a", FRONT_DOCUMENTS)
    wanted = described(front, "tools_a")
    dump(front, "tools_a", tmp_path / "first")
    restore(memory, "tools_a", tmp_path / "first")
    assert described(memory, "tools_a") == wanted
    dump(memory, "tools_a", tmp_path / "second")
    restore(front, "tools_b", tmp_path / "second")
    assert described(front, "tools_b") == wanted
    restore(front, "tools_b", tmp_path / "second", drop=True)
    assert described(front, "tools_b") == wanted


def test_a_restore_drops_first_and_refuses_what_is_there(memory: pymongo.MongoClient, tmp_path: pathlib.Path) -> None:
    fill(memory, "tools_a")
    wanted = described(memory, "tools_a")
    dump(memory, "tools_a", tmp_path / "dump")
    memory["tools_a"].plain.update_many({}, {"$set": {"changed": True}})
    with pytest.raises(AssertionError, match="E11000"):
        restore(memory, "tools_a", tmp_path / "dump")
    restore(memory, "tools_a", tmp_path / "dump", drop=True)
    assert described(memory, "tools_a") == wanted


def test_exports_are_imported_equal_in_every_type(memory: pymongo.MongoClient, disk: pymongo.MongoClient) -> None:
    fill(memory, "tools_a")
    lines = export(memory, "tools_a", "plain")
    assert len(lines) == 2501 and any('"$numberDecimal": "1.10E+3"' in line for line in lines)
    load(disk, "tools_a", "plain", lines)
    assert export(disk, "tools_a", "plain") == lines
    some = export(memory, "tools_a", "plain", {"a": {"$lt": 5}}, {"a": -1})
    assert [json_util.loads(line)["a"] for line in some] == [4, 3, 2, 1, 0]
    changed = [line.replace('"words": "Wort', '"words": "Worte') for line in some]
    load(disk, "tools_a", "plain", changed, upsert=True)
    assert export(disk, "tools_a", "plain", {"a": {"$lt": 5}}, {"a": -1}) == changed


def test_bson_files_are_json_and_back(memory: pymongo.MongoClient, tmp_path: pathlib.Path) -> None:
    fill(memory, "tools_a")
    dump(memory, "tools_a", tmp_path / "dump")
    content = (tmp_path / "dump" / "plain.bson").read_bytes()
    lines = [json_util.dumps(document, json_options=CANONICAL) for document in bson.decode_all(content)]
    assert b"".join(bson.encode(json_util.loads(line, json_options=CANONICAL)) for line in lines) == content


def test_files_are_put_listed_fetched_and_deleted(memory: pymongo.MongoClient, disk: pymongo.MongoClient, tmp_path: pathlib.Path) -> None:
    content = bytes(range(256)) * 3000
    files = gridfs.GridFSBucket(memory["tools_a"], chunk_size_bytes=100_000)
    first = files.upload_from_stream("a/b.bin", content, metadata={"kind": 1})
    files.upload_from_stream("a/b.bin", b"later")
    files.upload_from_stream("c.txt", b"")
    dump(memory, "tools_a", tmp_path / "dump")
    restore(disk, "tools_a", tmp_path / "dump")
    copies = gridfs.GridFSBucket(disk["tools_a"])
    assert sorted((found.filename, found.length) for found in copies.find({})) == [("a/b.bin", 5), ("a/b.bin", 768_000), ("c.txt", 0)]
    assert copies.open_download_stream(first).read() == content
    assert copies.open_download_stream_by_name("a/b.bin").read() == b"later"
    copies.delete(first)
    assert disk["tools_a"]["fs.chunks"].count_documents({"files_id": first}) == 0
    assert [found.filename for found in copies.find({"filename": re.compile("^a/")})] == ["a/b.bin"]


def test_mongostat_and_mongotop_read_what_happened(memory: pymongo.MongoClient) -> None:
    def status() -> dict[str, Any]:
        return memory.admin.command({"serverStatus": 1, "recordStats": 0})

    before, top = status(), memory.admin.command("top")
    collection = memory["tools_a"].busy
    collection.insert_many([{"_id": n} for n in range(10)])
    collection.update_many({}, {"$set": {"a": 1}})
    list(collection.find())
    collection.delete_one({"_id": 0})
    after, later = status(), memory.admin.command("top")
    grown = {name: after["opcounters"][name] - before["opcounters"][name] for name in before["opcounters"]}
    assert (grown["insert"], grown["update"], grown["query"], grown["delete"]) == (10, 1, 1, 1)
    assert after["network"]["numRequests"] - before["network"]["numRequests"] >= 5
    assert after["connections"]["current"] > 0 and after["mem"]["resident"] > 0 and after["host"]
    assert "tools_a.busy" not in top["totals"]
    spent = later["totals"]["tools_a.busy"]
    assert [spent[kind]["count"] for kind in ("insert", "update", "queries", "remove")] == [1, 1, 1, 1]
    assert spent["total"]["time"] >= spent["writeLock"]["time"] > 0


def test_exports_and_files_go_to_a_front(memory: pymongo.MongoClient, front: pymongo.MongoClient,
                                         tmp_path: pathlib.Path) -> None:
    fill(memory, "tools_a", FRONT_DOCUMENTS)
    lines = export(memory, "tools_a", "plain")
    load(front, "tools_a", "plain", lines)
    assert export(front, "tools_a", "plain") == lines
    changed = [line.replace('"words": "Wort', '"words": "Worte') for line in export(memory, "tools_a", "plain", {"a": {"$lt": 5}})]
    load(front, "tools_a", "plain", changed, upsert=True)
    assert export(front, "tools_a", "plain", {"a": {"$lt": 5}}) == changed
    content = bytes(range(256)) * 3000
    first = gridfs.GridFSBucket(memory["tools_b"], chunk_size_bytes=100_000).upload_from_stream("a/b.bin", content)
    dump(memory, "tools_b", tmp_path / "dump")
    restore(front, "tools_b", tmp_path / "dump")
    copies = gridfs.GridFSBucket(front["tools_b"])
    assert copies.open_download_stream(first).read() == content
    copies.delete(first)
    assert front["tools_b"]["fs.chunks"].count_documents({}) == 0
