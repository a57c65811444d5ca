"""Write concerns one by one: unsatisfiable ones, timeouts, and interrupted waits."""

from __future__ import annotations

import threading
import time

import pymongo
from pymongo.errors import ExecutionTimeout, OperationFailure, PyMongoError, WriteConcernError, WTimeoutError
from pymongo.write_concern import WriteConcern

SOON = 3.0


def outcome(work) -> tuple[str, int | None, float]:
    """Returns an error's kind and code, and the duration."""
    begin = time.monotonic()
    try:
        work()
    except (WTimeoutError, WriteConcernError, ExecutionTimeout, OperationFailure) as error:
        return type(error).__name__, error.code, time.monotonic() - begin
    except PyMongoError as error:
        return f"{type(error).__name__}: {error}", None, time.monotonic() - begin
    return "done", None, time.monotonic() - begin


def check(client: pymongo.MongoClient, cluster, front_port: int) -> list[str]:
    """Runs all checks on a healthy cluster of three. Returns the errors."""
    wrong: list[str] = []
    levels = client["failover"]["levels"]

    def expect(what: str, found: object, wanted: object) -> None:
        if found != wanted:
            wrong.append(f"{what}: {found!r}, and not {wanted!r}")

    def insert(key: str, **concern: object):
        collection = levels.with_options(write_concern=WriteConcern(**concern))
        return lambda: collection.insert_one({"_id": key})

    def expect_insert(key: str, wanted: tuple[str, int | None], **concern: object) -> None:
        kind, code, took = outcome(insert(key, **concern))
        expect(f"{concern}", (kind, code), wanted)
        expect(f"{concern} within {SOON} s", took < SOON, True)
        expect(f"{concern} is applied", levels.count_documents({"_id": key}), 1)

    members = client.admin.command("serverStatus")["vellum"]["members"]
    expect("members", sorted(member["name"] for member in members), ["n1", "n2", "n3"])
    expect("states", sorted(member["stateStr"] for member in members), ["PRIMARY", "SECONDARY", "SECONDARY"])
    expect("how they count", sorted(member["countsAs"] for member in members), ["primary", "quorum", "quorum"])
    for w in (1, 2, 3, "majority"):
        expect_insert(f"w {w}", ("done", None), w=w)
    expect_insert("w 4", ("WriteConcernError", 100), w=4)
    expect_insert("w 4 in time", ("WriteConcernError", 100), w=4, wtimeout=60_000)

    wires = [member.upstream for member in cluster.standbys()]
    for wire in wires:
        wire.stop()
    try:
        expect_insert("no wait", ("done", None), w=1)
        expect_insert("own disk", ("done", None), w=1, j=True)
        expect_insert("majority in time", ("WTimeoutError", 64), w="majority", wtimeout=300)
        expect_insert("two in time", ("WTimeoutError", 64), w=2, wtimeout=300)
        command = {"insert": "levels", "documents": [{"_id": "max time"}], "maxTimeMS": 300}
        reply = client["failover"].command(command, write_concern=None, check=False)
        expect("maxTimeMS", reply.get("writeConcernError", {}).get("code"), 50)
        wrong += ended(client, cluster, insert, expect)
    finally:
        for wire in wires:
            wire.resume()
    cluster.wait_for_standbys()
    expect_insert("all again", ("done", None), w=3)

    # Two members are not three: the error comes at once, and the write is applied.
    gone = cluster.standbys()[-1]
    gone.kill()
    cluster.wait_for_standbys(but=1)
    expect("members that are left", len(client.admin.command("serverStatus")["vellum"]["members"]), 2)
    expect_insert("two of two", ("done", None), w=2)
    expect_insert("majority of two", ("done", None), w="majority")
    expect_insert("three of two", ("WriteConcernError", 100), w=3)
    expect_insert("three of two in time", ("WriteConcernError", 100), w=3, wtimeout=60_000)
    gone.start()
    cluster.wait_for_standbys()
    expect_insert("three of three again", ("done", None), w=3, wtimeout=20_000)

    # One service behind a balancer; the front's port may count as one.
    balanced = pymongo.MongoClient(f"mongodb://127.0.0.1:{front_port}/?loadBalanced=true",
                                   serverSelectionTimeoutMS=10_000)
    with balanced:
        found = list(balanced["failover"]["levels"].find({}, batch_size=2))
        expect("behind a balancer", len(found) > 5, True)
        with balanced.start_session() as session, session.start_transaction():
            balanced["failover"]["levels"].insert_one({"_id": "balanced"}, session=session)
    expect("a transaction behind a balancer", levels.count_documents({"_id": "balanced"}), 1)
    return wrong


def ended(client: pymongo.MongoClient, cluster, insert, expect) -> list[str]:
    """Tests endless waits that are ended: by killOp, and on the server."""

    def kill() -> None:
        for operation in client.admin.aggregate([{"$currentOp": {}}, {"$match": {"op": "insert"}}]):
            client.admin.command("killOp", op=operation["opid"])

    def cancel() -> None:
        cluster.primary.query("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'")

    for key, end, wanted, w in (("killed", kill, 11601, "majority"), ("members killed", kill, 11601, 2),
                                ("cancelled", cancel, 64, "majority")):
        results: list[tuple[str, int | None, float]] = []
        waiting = threading.Thread(target=lambda key=key, results=results, w=w: results.append(outcome(insert(key, w=w))))
        waiting.start()
        time.sleep(0.5)
        expect(f"{key}: it waits", results, [])
        for _ in range(20):
            end()
            waiting.join(0.5)
            if not waiting.is_alive():
                break
        expect(f"{key}: outcome", [entry[1] for entry in results], [wanted])
    return []
