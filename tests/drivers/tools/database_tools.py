"""Requests of MongoDB's database tools, implemented from their documentation: the tools cannot be downloaded
where these suites run. A dump is a folder of `NAME.bson` and `NAME.metadata.json`, optionally gzipped, as
written by mongodump.
"""

from __future__ import annotations

import gzip
import pathlib
from typing import Any

import bson
import pymongo
from bson import json_util
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

RAW = CodecOptions(document_class=RawBSONDocument)
CANONICAL = json_util.JSONOptions(json_mode=json_util.JSONMode.CANONICAL)


def collections(client: pymongo.MongoClient, name: str) -> list[dict[str, Any]]:
    """Returns all collections of a database without system collections, as mongodump lists them."""
    reply = client[name].command("listCollections", cursor={})
    return [found for found in reply["cursor"]["firstBatch"] if not found["name"].startswith("system.")]


def _write(path: pathlib.Path, content: bytes, zipped: bool) -> None:
    if zipped:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))
    else:
        path.write_bytes(content)


def _read(path: pathlib.Path) -> bytes:
    zipped = path.with_name(path.name + ".gz")
    return gzip.decompress(zipped.read_bytes()) if zipped.exists() else path.read_bytes()


def dump(client: pymongo.MongoClient, name: str, folder: pathlib.Path, zipped: bool = False) -> None:
    """mongodump: reads documents by the index on `_id`, without a timeout; options and indexes go to separate
    files."""
    client.admin.command("buildInfo")
    client.admin.command("listDatabases", nameOnly=True)
    folder.mkdir()
    for found in collections(client, name):
        view = found["type"] == "view"
        collection = client[name].get_collection(found["name"], codec_options=RAW)
        indexes = [] if view else client[name].command("listIndexes", found["name"])["cursor"]["firstBatch"]
        if not view:
            client[name].command("count", found["name"])
            clustered = "clusteredIndex" in found["options"]
            cursor = collection.find(no_cursor_timeout=True, hint=None if clustered else {"_id": 1})
            content = b"".join(document.raw for document in cursor)
            cursor.close()
            _write(folder / f"{found['name']}.bson", content, zipped)
        metadata = {"options": found["options"], "indexes": indexes, "collectionName": found["name"], "type": found["type"]}
        if not view:
            metadata["uuid"] = found["info"]["uuid"].hex()
        _write(folder / f"{found['name']}.metadata.json", json_util.dumps(metadata, json_options=CANONICAL).encode(), zipped)


def restore(client: pymongo.MongoClient, name: str, folder: pathlib.Path, drop: bool = False, validates: bool = False) -> None:
    """mongorestore: creates the collection with its options, inserts documents, by default without validation, then
    builds indexes."""
    names = sorted({path.name.split(".metadata.json")[0] for path in folder.iterdir() if ".metadata.json" in path.name})
    for collection in names:
        metadata = json_util.loads(_read(folder / f"{collection}.metadata.json").decode())
        if drop:
            client[name].command("drop", collection)
        options = {key: value for key, value in metadata["options"].items() if key != "uuid"}
        client[name].command({"create": collection, **options})
        if metadata["type"] == "view":
            continue
        documents = bson.decode_all(_read(folder / f"{collection}.bson"), RAW)
        for at in range(0, len(documents), 1000):
            reply = client[name].command({
                "insert": collection, "documents": documents[at:at + 1000], "ordered": False, "bypassDocumentValidation": not validates,
                "bypassEmptyTsReplacement": True, "writeConcern": {"w": "majority"}})
            assert "writeErrors" not in reply, reply
        indexes = [index for index in metadata["indexes"] if index["name"] != "_id_" and not index.get("clustered")]
        if indexes:
            client[name].command({"createIndexes": collection, "indexes": indexes, "ignoreUnknownIndexOptions": True})


def dump_users(client: pymongo.MongoClient, folder: pathlib.Path, name: str = "") -> None:
    """mongodump --dumpDbUsersAndRoles of a database; without a name, the users and roles in a dump of all databases."""
    for kind in ("users", "roles", "version"):
        query = {"db": name} if name and kind != "version" else {}
        documents = client.admin.get_collection(f"system.{kind}", codec_options=RAW).find(query)
        path = folder / f"{'$admin.' if name else ''}system.{kind}.bson"
        path.write_bytes(b"".join(document.raw for document in documents))


def restore_users(client: pymongo.MongoClient, folder: pathlib.Path, name: str = "", drop: bool = False) -> None:
    """mongorestore --restoreDbUsersAndRoles; without a name, the users and roles in a dump of all databases."""
    def read(kind: str) -> list[RawBSONDocument]:
        return bson.decode_all((folder / f"{'$admin.' if name else ''}system.{kind}.bson").read_bytes(), RAW)

    [schema] = [document["currentVersion"] for document in read("version") if document["_id"] == "authSchema"]
    assert schema == client.admin.command("getParameter", authSchemaVersion=1)["authSchemaVersion"]
    for kind in ("users", "roles"):
        client.admin[f"temp{kind}"].drop()
        if documents := read(kind):
            client.admin[f"temp{kind}"].insert_many(documents)
    client.admin.command({"_mergeAuthzCollections": 1, "tempUsersCollection": "admin.tempusers",
                          "tempRolesCollection": "admin.temproles", "drop": drop, "db": name, "writeConcern": {"w": "majority"}})
    client.admin.tempusers.drop()
    client.admin.temproles.drop()


def export(client: pymongo.MongoClient, name: str, collection: str, query: dict[str, Any] | None = None,
           sort: dict[str, int] | None = None) -> list[str]:
    """mongoexport: writes a line of canonical extended JSON for each document."""
    cursor = client[name].get_collection(collection, codec_options=RAW).find(query or {}, sort=list((sort or {"_id": 1}).items()))
    return [json_util.dumps(bson.decode(document.raw), json_options=CANONICAL) for document in cursor]


def load(client: pymongo.MongoClient, name: str, collection: str, lines: list[str], upsert: bool = False) -> None:
    """mongoimport: inserts, or replaces by `_id`."""
    documents = [json_util.loads(line, json_options=CANONICAL) for line in lines]
    if upsert:
        updates = [{"q": {"_id": one["_id"]}, "u": one, "upsert": True, "multi": False} for one in documents]
        reply = client[name].command({"update": collection, "updates": updates, "ordered": False, "bypassEmptyTsReplacement": True})
    else:
        reply = client[name].command({"insert": collection, "documents": documents, "ordered": False, "bypassEmptyTsReplacement": True})
    assert "writeErrors" not in reply, reply


def log_end(client: pymongo.MongoClient) -> bson.Timestamp:
    """Returns the time of the latest oplog entry."""
    return client.local["oplog.rs"].find_one({}, sort=[("$natural", -1)])["ts"]


def log_since(client: pymongo.MongoClient, name: str, begin: bson.Timestamp) -> list[dict[str, Any]]:
    """mongodump --oplog: returns the operations on a database since a time, transactions taken apart."""
    entries = client.local.get_collection("oplog.rs", codec_options=CodecOptions(document_class=dict)).find({"ts": {"$gte": begin}}, oplog_replay=True)
    operations = [inner for entry in entries for inner in (entry["o"].get("applyOps") or [entry])]
    return [operation for operation in operations if operation["op"] != "n" and operation["ns"].startswith(f"{name}.")]


def replay(client: pymongo.MongoClient, operations: list[dict[str, Any]]) -> None:
    """mongorestore --oplogReplay: applies each operation without UUID, time and session."""
    for operation in operations:
        plain = {key: value for key, value in operation.items() if key in ("op", "ns", "o", "o2", "b")}
        reply = client.admin.command({"applyOps": [plain]})
        assert reply["results"] == [True], (plain, reply)
