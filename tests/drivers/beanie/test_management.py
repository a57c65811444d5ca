"""Administration by an application: indexes, migrations, transactions, time series."""

from __future__ import annotations

import datetime
import os
import pathlib
from typing import Annotated

import pymongo
import pytest
from beanie import Document, Indexed, TimeSeriesConfig
from beanie.executors.migrate import MigrationSettings, run_migrate
from beanie.migrations.models import RunningDirections
from conftest import DATABASE, needs_set
from pymongo import IndexModel

MIGRATIONS = pathlib.Path(__file__).parent / "migrations"


async def keys(collection) -> dict:
    """Returns the indexes of a collection by name."""
    return {name: index["key"] for name, index in (await collection.index_information()).items()}


async def test_indexes_of_all_kinds(start) -> None:
    # Beanie treats indexes on equal fields as one.
    class Thing(Document):
        number: Annotated[int, Indexed()]
        name: Annotated[str, Indexed(unique=True)]
        text: Annotated[str, Indexed(index_type=pymongo.TEXT)] = ""
        place: list[float] = [0.0, 0.0]
        spot: dict = {"type": "Point", "coordinates": [0, 0]}
        until: datetime.datetime | None = None
        label: str = ""
        free: dict = {}

        class Settings:
            indexes = [
                "free.first",
                [("number", pymongo.ASCENDING), ("name", pymongo.DESCENDING)],
                IndexModel([("until", 1)], name="ttl", expireAfterSeconds=3600),
                IndexModel([("place", "2d")], name="place"),
                IndexModel([("spot", "2dsphere")], name="spot"),
                IndexModel([("_id", pymongo.HASHED)], name="hashed"),
                IndexModel([("label", -1)], name="partial", partialFilterExpression={"number": {"$gt": 5}}),
                IndexModel([("label", 1), ("name", 1)], name="folded", collation={"locale": "en", "strength": 2}),
                IndexModel([("free.$**", 1)], name="wild"),
                IndexModel([("free.second", -1)], name="sparse", sparse=True, hidden=True),
            ]

    database = await start(Thing)
    found = await database["Thing"].index_information()
    assert set(found) == {
        "_id_", "number_1", "name_1", "text_text", "free.first_1", "number_1_name_-1", "ttl", "place", "spot", "hashed",
        "partial", "folded", "wild", "sparse"}
    assert found["name_1"]["unique"] and found["ttl"]["expireAfterSeconds"] == 3600
    assert found["folded"]["collation"]["strength"] == 2 and found["sparse"]["sparse"] and found["sparse"]["hidden"]
    assert found["partial"]["partialFilterExpression"] == {"number": {"$gt": 5}}
    assert found["text_text"]["weights"] == {"text": 1}
    await Thing(number=1, name="a", text="walking stones").insert()
    with pytest.raises(pymongo.errors.DuplicateKeyError):
        await Thing(number=2, name="a").insert()
    assert await Thing.find({"$text": {"$search": "walk"}}).count() == 1
    await start(Thing)
    assert len(await database["Thing"].index_information()) == 14


async def test_indexes_that_are_no_longer_wanted(start) -> None:
    class Before(Document):
        a: Annotated[int, Indexed()]
        b: Annotated[int, Indexed()]

        class Settings:
            name = "changing"

    class After(Document):
        b: Annotated[int, Indexed()]
        c: Annotated[int, Indexed()] = 0

        class Settings:
            name = "changing"

    database = await start(Before)
    await start(After)
    assert set(await keys(database["changing"])) == {"_id_", "a_1", "b_1", "c_1"}
    await start(After, allow_index_dropping=True)
    assert set(await keys(database["changing"])) == {"_id_", "b_1", "c_1"}


async def test_indexes_of_parents_are_merged(start) -> None:
    class Parent(Document):
        name: Annotated[str, Indexed()]

        class Settings:
            is_root = True
            name = "family"
            merge_indexes = True
            indexes = ["name_again"]

    class Child(Parent):
        age: Annotated[int, Indexed()]

        class Settings:
            indexes = [[("age", 1), ("name", 1)]]

    database = await start(Parent, Child)
    assert {"name_1", "name_again_1", "age_1", "age_1_name_1"} <= set(await keys(database["family"]))


async def test_documents_that_do_not_fit_are_found(start) -> None:
    class Strict(Document):
        number: int

    database = await start(Strict)
    await database["Strict"].insert_many([{"number": 1}, {"number": "many"}])
    result = await Strict.inspect_collection()
    assert result.status == "FAIL" and len(result.errors) == 1


async def migrate(direction: RunningDirections, distance: int = 0) -> None:
    """Runs the steps of `beanie migrate`, with transactions if the server has them."""
    await run_migrate(MigrationSettings(
        direction=direction, distance=distance, connection_uri=os.environ["VELLUM_URI"], database_name=DATABASE,
        path=str(MIGRATIONS), use_transaction=os.environ["VELLUM_TOPOLOGY"] != "standalone"))


async def test_migrations_forward_and_backward(client) -> None:
    notes = client[DATABASE]["notes"]
    await notes.insert_many([{"title": "a", "tag": "x"}, {"title": "b", "tag": "y"}])
    await migrate(RunningDirections.FORWARD, distance=1)
    assert [note["name"] async for note in notes.find().sort("name")] == ["a", "b"]
    assert await client[DATABASE]["migrations_log"].count_documents({"is_current": True}) == 1
    await migrate(RunningDirections.FORWARD)
    found = [note async for note in notes.find({}, {"_id": 0}).sort("name")]
    assert found == [{"name": "a", "tag": "x", "labels": ["x"]}, {"name": "b", "tag": "y", "labels": ["y"]}]
    await migrate(RunningDirections.BACKWARD)
    assert [note["title"] async for note in notes.find().sort("title")] == ["a", "b"]


async def test_a_failing_migration_changes_nothing(client, tmp_path) -> None:
    (tmp_path / "20240101000000_fails.py").write_text(
        "from beanie import Document, free_fall_migration\n"
        "class Note(Document):\n    title: str\n    class Settings:\n        name = 'notes'\n"
        "class Forward:\n"
        "    @free_fall_migration(document_models=[Note])\n"
        "    async def half(self, session):\n"
        "        await Note(title='half').insert(session=session)\n"
        "        raise ZeroDivisionError\n")
    await client[DATABASE].create_collection("notes")
    with pytest.raises(ZeroDivisionError):
        await run_migrate(MigrationSettings(
            direction=RunningDirections.FORWARD, connection_uri=os.environ["VELLUM_URI"], database_name=DATABASE,
            path=str(tmp_path), use_transaction=True))
    assert await client[DATABASE]["notes"].count_documents({}) == 0


test_a_failing_migration_changes_nothing = needs_set(test_a_failing_migration_changes_nothing)


class Account(Document):
    owner: Annotated[str, Indexed(unique=True)]
    amount: int


@needs_set
async def test_a_transaction_commits_whole(client, start) -> None:
    await start(Account)
    await Account.insert_many([Account(owner="a", amount=5), Account(owner="b", amount=0)])
    async with client.start_session() as session, await session.start_transaction():
        source = await Account.find_one(Account.owner == "a", session=session)
        await source.inc({Account.amount: -5}, session=session)
        await Account.find_one(Account.owner == "b").inc({Account.amount: 5}, session=session)
        await Account(owner="c", amount=1).insert(session=session)
        assert await Account.find_one(Account.owner == "c") is None
    assert [one.amount for one in await Account.find_all().sort("owner").to_list()] == [0, 5, 1]


@needs_set
async def test_a_transaction_that_fails_changes_nothing(client, start) -> None:
    await start(Account)
    await Account(owner="a", amount=5).insert()
    with pytest.raises(pymongo.errors.DuplicateKeyError):
        async with client.start_session() as session, await session.start_transaction():
            await Account.find_one(Account.owner == "a").set({Account.amount: 0}, session=session)
            await Account(owner="b", amount=1).insert(session=session)
            await Account(owner="a", amount=1).insert(session=session)
    assert [(one.owner, one.amount) for one in await Account.find_all().to_list()] == [("a", 5)]


async def test_a_validator_of_the_schema(client, start) -> None:
    await client[DATABASE].create_collection(
        "Account", validator={"$jsonSchema": {"properties": {"amount": {"bsonType": "int", "minimum": 0}}}})
    await start(Account)
    await Account(owner="a", amount=0).insert()
    with pytest.raises(pymongo.errors.WriteError) as caught:
        await Account(owner="b", amount=-1).insert()
    assert caught.value.code == 121 and caught.value.details["errInfo"]["details"]["operatorName"] == "$jsonSchema"


async def test_time_series_are_refused_by_name(start) -> None:
    class Measured(Document):
        at: datetime.datetime
        value: float

        class Settings:
            timeseries = TimeSeriesConfig(time_field="at", meta_field="value")

    with pytest.raises(pymongo.errors.OperationFailure, match="timeseries"):
        await start(Measured)
