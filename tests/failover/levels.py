"""Checks of single write concerns: results, unsatisfiable concerns, timeouts, and interrupted waits."""

from __future__ import annotations

import threading
import time

import pymongo
from pymongo.errors import ExecutionTimeout, OperationFailure, PyMongoError, WriteConcernError, WTimeoutError
from pymongo.write_concern import WriteConcern

AT_ONCE_SECONDS = 3.0


def result(work) -> tuple[str, int | None, float]:
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
    errors: list[str] = []
    levels = client["failover"]["levels"]

    def expect(what: str, found: object, expected: object) -> None:
        if found != expected:
            errors.append(f"{what}: {found!r} instead of {expected!r}")

    def insert(key: str, **concern: object):
        collection = levels.with_options(write_concern=WriteConcern(**concern))
        return lambda: collection.insert_one({"_id": key})

    def expect_insert(key: str, expected: tuple[str, int | None], **concern: object) -> None:
        kind, code, took = result(insert(key, **concern))
        expect(f"{concern}", (kind, code), expected)
        expect(f"{concern} within {AT_ONCE_SECONDS} s", took < AT_ONCE_SECONDS, True)
        expect(f"{concern} is applied", levels.count_documents({"_id": key}), 1)

    members = client.admin.command("serverStatus")["vellum"]["members"]
    expect("members", sorted(member["name"] for member in members), ["n1", "n2", "n3"])
    expect("states", sorted(member["stateStr"] for member in members), ["PRIMARY", "SECONDARY", "SECONDARY"])
    expect("how they count", sorted(member["countsAs"] for member in members), ["primary", "quorum", "quorum"])
    for w in (1, 2, 3, "majority"):
        expect_insert(f"w {w}", ("done", None), w=w)
    expect_insert("w 4", ("WriteConcernError", 100), w=4)
    expect_insert("w 4 in time", ("WriteConcernError", 100), w=4, wtimeout=60_000)

    proxies = [member.replication_proxy for member in cluster.standbys()]
    for proxy in proxies:
        proxy.stop()
    try:
        expect_insert("no wait", ("done", None), w=1)
        expect_insert("own disk", ("done", None), w=1, j=True)
        expect_insert("majority in time", ("WTimeoutError", 64), w="majority", wtimeout=300)
        expect_insert("two in time", ("WTimeoutError", 64), w=2, wtimeout=300)
        command = {"insert": "levels", "documents": [{"_id": "max time"}], "maxTimeMS": 300}
        reply = client["failover"].command(command, write_concern=None, check=False)
        expect("maxTimeMS", reply.get("writeConcernError", {}).get("code"), 50)
        errors += check_interrupts(client, cluster, insert, expect)
    finally:
        for proxy in proxies:
            proxy.resume()
    cluster.wait_for_standbys()
    expect_insert("all again", ("done", None), w=3)

    # w: 3 with two members fails at once, and the write is applied.
    killed = cluster.standbys()[-1]
    killed.kill()
    cluster.wait_for_standbys(except_for=1)
    expect("members that are left", len(client.admin.command("serverStatus")["vellum"]["members"]), 2)
    expect_insert("two of two", ("done", None), w=2)
    expect_insert("majority of two", ("done", None), w="majority")
    expect_insert("three of two", ("WriteConcernError", 100), w=3)
    expect_insert("three of two in time", ("WriteConcernError", 100), w=3, wtimeout=60_000)
    killed.start()
    cluster.wait_for_standbys()
    expect_insert("three of three again", ("done", None), w=3, wtimeout=20_000)

    # A load-balanced connection. The front's own port serves as the balancer.
    balanced = pymongo.MongoClient(f"mongodb://127.0.0.1:{front_port}/?loadBalanced=true",
                                   serverSelectionTimeoutMS=10_000)
    with balanced:
        found = list(balanced["failover"]["levels"].find({}, batch_size=2))
        expect("behind a balancer", len(found) > 5, True)
        with balanced.start_session() as session, session.start_transaction():
            balanced["failover"]["levels"].insert_one({"_id": "balanced"}, session=session)
    expect("a transaction behind a balancer", levels.count_documents({"_id": "balanced"}), 1)
    return errors


def check_interrupts(client: pymongo.MongoClient, cluster, insert, expect) -> list[str]:
    """Ends waits without a timeout: by killOp, and by cancelling the PostgreSQL backend. Returns the errors."""

    def kill() -> None:
        for operation in client.admin.aggregate([{"$currentOp": {}}, {"$match": {"op": "insert"}}]):
            client.admin.command("killOp", op=operation["opid"])

    def cancel() -> None:
        cluster.primary.query("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'")

    for key, end, expected, w in (("killed", kill, 11601, "majority"), ("members killed", kill, 11601, 2),
                                ("cancelled", cancel, 64, "majority")):
        results: list[tuple[str, int | None, float]] = []
        waiting = threading.Thread(target=lambda key=key, results=results, w=w: results.append(result(insert(key, w=w))))
        waiting.start()
        time.sleep(0.5)
        expect(f"{key}: it waits", results, [])
        for _ in range(20):
            end()
            waiting.join(0.5)
            if not waiting.is_alive():
                break
        expect(f"{key}: result", [entry[1] for entry in results], [expected])
    return []
