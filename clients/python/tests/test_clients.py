"""PyMongo, sync and async, and the ODMs on top of it."""

import datetime

import pytest

import vellum_db

pytest_asyncio = pytest.importorskip("pytest_asyncio")


def test_commands_of_the_sync_client(mongo_client, mongo_db):
    mongo_db.c.insert_one({"_id": 1})
    vellum_db.snapshot(mongo_client, mongo_db.name, "ready")
    assert vellum_db.reset(mongo_client, mongo_db.name)["n"] == 1
    vellum_db.restore(mongo_client, mongo_db.name, "ready")
    assert mongo_db.c.find_one() == {"_id": 1}
    assert not list(vellum_db.changes(mongo_client, mongo_db.name, since="ready"))
    mongo_db.c.update_one({"_id": 1}, {"$set": {"seen": True}})
    mongo_db.c.insert_many([{"_id": number} for number in range(2, 302)])
    updated, *inserted = vellum_db.changes(mongo_client, mongo_db.name, since="ready")
    assert updated["documentKey"] == {"_id": 1} and updated["updateDescription"]["updatedFields"] == {"seen": True}
    assert [change["fullDocument"]["_id"] for change in inserted] == list(range(2, 302))
    vellum_db.restore(mongo_client, mongo_db.name, "ready")
    vellum_db.drop_snapshot(mongo_client, mongo_db.name, "ready")
    copy = mongo_db.name[:-2] + "_f"
    vellum_db.fork(mongo_client, mongo_db.name, copy)
    assert mongo_client[copy].c.count_documents({}) == 1
    mongo_client[copy].c.delete_one({"_id": 1})
    (deleted,) = vellum_db.changes(mongo_client, copy, origin=mongo_db.name)
    assert deleted["operationType"] == "delete"
    mongo_client.drop_database(copy)


def test_the_clock(mongo_client, mongo_db):
    noon = datetime.datetime(2026, 1, 31, 12)
    try:
        vellum_db.clock(mongo_client, now=noon, freeze=True)
        mongo_db.c.create_index("at", expireAfterSeconds=60)
        mongo_db.c.insert_one({"at": noon})
        moved = vellum_db.clock(mongo_client, advance=datetime.timedelta(minutes=1), sweep_ttl=True)
        assert (moved["ttlDeleted"], moved["now"]) == (1, noon + datetime.timedelta(minutes=1))
    finally:
        assert not vellum_db.clock(mongo_client, follow=True)["frozen"]


@pytest.mark.asyncio
async def test_the_async_client(async_mongo_db, async_mongo_client):
    await async_mongo_db.c.insert_one({"_id": 1})
    assert (await vellum_db.reset(async_mongo_client, async_mongo_db.name))["n"] == 1
    assert await async_mongo_db.c.count_documents({}) == 0


def test_mongoengine(vellum_uri, mongo_db_name):
    mongoengine = pytest.importorskip("mongoengine")

    class Person(mongoengine.Document):
        name = mongoengine.StringField(unique=True)

    mongoengine.connect(mongo_db_name, host=vellum_uri, uuidRepresentation="standard")
    try:
        Person(name="Ada").save()
        with pytest.raises(mongoengine.NotUniqueError):
            Person(name="Ada").save()
        assert Person.objects(name="Ada").count() == 1
    finally:
        mongoengine.disconnect()


@pytest.mark.asyncio
async def test_beanie(async_mongo_db):
    beanie = pytest.importorskip("beanie")

    class Person(beanie.Document):
        name: str

    await beanie.init_beanie(database=async_mongo_db, document_models=[Person])
    await Person(name="Ada").insert()
    assert (await Person.find_one(Person.name == "Ada")).name == "Ada"
