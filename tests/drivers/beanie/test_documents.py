"""Defining, inserting, changing and deleting documents; state, revisions, actions, inheritance."""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from typing import Any, Optional

import bson
import pymongo
import pytest
from beanie import (
    After, Before, BsonBinary, BulkWriter, DecimalAnnotation, Delete, Document, DocumentWithSoftDelete, Insert,
    MergeStrategy, Replace, Update, UpdateResponse, ValidateOnSave, after_event, before_event,
)
from beanie.exceptions import DocumentNotFound, RevisionIdWasChanged, StateNotSaved
from beanie.odm.operators.update.array import AddToSet, Pop, Pull, PullAll, Push
from beanie.odm.operators.update.bitwise import Bit
from beanie.odm.operators.update.general import (
    CurrentDate, Inc, Max, Min, Mul, Rename, Set, SetOnInsert, Unset,
)
from pydantic import BaseModel, Field


class Category(BaseModel):
    name: str
    description: Optional[str] = None


class Product(Document):
    name: str
    price: float = 0.0
    num: int = 0
    tags: list[str] = Field(default_factory=list)
    category: Optional[Category] = None
    seen: Optional[datetime.datetime] = None


def bar(name: str = "Tony's", **more: Any) -> Product:
    """A bar of chocolate."""
    return Product(name=name, price=5.95, category=Category(name="Chocolate"), **more)


async def test_inserting_one_and_many(start) -> None:
    await start(Product)
    one = bar()
    assert one.id is None
    await one.insert()
    assert isinstance(one.id, bson.ObjectId)
    two = await bar("Marou").create()
    result = await Product.insert_many([bar("a"), bar("b")])
    assert len(result.inserted_ids) == 2
    assert await Product.insert_one(bar("c")) is not None
    assert await Product.count() == 5
    assert (await Product.get(two.id)).name == "Marou"
    assert await Product.get(bson.ObjectId()) is None


async def test_a_key_that_is_taken(start) -> None:
    await start(Product)
    one = await bar().insert()
    with pytest.raises(pymongo.errors.DuplicateKeyError):
        await Product(id=one.id, name="again").insert()


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Everything(Document):
    id: uuid.UUID = Field(default_factory=uuid.uuid4)
    whole: int
    ratio: float
    exact: DecimalAnnotation
    yes: bool
    when: datetime.datetime
    day: datetime.date
    span: datetime.timedelta
    data: bytes
    binary: BsonBinary
    colour: Colour
    nested: dict[str, list[dict[str, int]]]
    names: set[str]
    nothing: Optional[str] = None


async def test_values_of_all_types_come_back_equal(start) -> None:
    database = await start(Everything)
    document = Everything(
        whole=2**40, ratio=0.5, exact=decimal.Decimal("1.10"), yes=True,
        when=datetime.datetime(2024, 2, 29, 12, 30, 15, 250_000), day=datetime.date(2024, 2, 29),
        span=datetime.timedelta(minutes=3), data=b"\x00\xff", binary=BsonBinary(bson.Binary(b"x", subtype=128)),
        colour=Colour.BLUE, nested={"a": [{"b": 1}]}, names={"x"})
    await document.insert()
    assert await Everything.get(document.id) == document
    raw = await database["Everything"].find_one()
    assert raw["exact"] == bson.Decimal128("1.10") and raw["span"] == 180.0 and raw["nothing"] is None
    assert isinstance(raw["whole"], bson.Int64 | int) and raw["_id"].subtype == 4


async def test_saving_and_replacing(start) -> None:
    await start(Product)
    product = bar()
    await product.save()
    product.price = 4.0
    await product.save()
    assert (await Product.find_one()).price == 4.0
    product.name = "new"
    await product.replace()
    assert (await Product.get(product.id)).name == "new"
    with pytest.raises(ValueError):
        await bar().replace()
    with pytest.raises(DocumentNotFound):
        await Product(id=bson.ObjectId(), name="nobody").replace()
    other = await bar("other").insert()
    product.num, other.num = 1, 2
    await Product.replace_many([product, other])
    assert sorted([one.num for one in await Product.find_all().to_list()]) == [1, 2]


async def test_updating_one_document(start) -> None:
    await start(Product)
    product = await bar(tags=["a"]).insert()
    await product.set({Product.price: 3.5, Product.category.name: "Dark"})
    assert product.price == 3.5 and product.category.name == "Dark"
    await product.inc({Product.num: 2})
    await product.update(Inc({Product.num: 3}), Push({Product.tags: "b"}))
    assert (product.num, product.tags) == (5, ["a", "b"])
    await product.current_date({Product.seen: True})
    assert abs(product.seen - datetime.datetime.now(datetime.UTC).replace(tzinfo=None)) < datetime.timedelta(minutes=1)
    await Product(id=bson.ObjectId(), name="").update(Set({Product.name: "missing"}), upsert=True)
    assert await Product.find(Product.name == "missing").count() == 1


@pytest.mark.parametrize(("change", "wanted"), [
    (Set({"name": "n"}), {"name": "n"}), (Inc({"num": -2}), {"num": 8}), (Mul({"num": 3}), {"num": 30}),
    (Min({"num": 4}), {"num": 4}), (Max({"num": 4}), {"num": 10}), (Unset({"price": ""}), {"price": 0.0}),
    (Rename({"num": "other"}), {"num": 0}), (SetOnInsert({"name": "n"}), {"name": "Tony's"}),
    (AddToSet({"tags": "a"}), {"tags": ["a", "b", "c"]}), (Pop({"tags": -1}), {"tags": ["b", "c"]}),
    (Pull({"tags": "b"}), {"tags": ["a", "c"]}), (PullAll({"tags": ["a", "c"]}), {"tags": ["b"]}),
    (Push({"tags": {"$each": ["z"], "$position": 0, "$slice": 2}}), {"tags": ["z", "a"]}),
    (Bit({"num": {"xor": 3}}), {"num": 9}), (CurrentDate({"seen": {"$type": "date"}}), {"num": 10}),
    ([{"$set": {"num": {"$add": ["$num", {"$size": "$tags"}]}}}], {"num": 13}),
])
async def test_update_operators(start, change: Any, wanted: dict) -> None:
    await start(Product)
    await bar(num=10, tags=["a", "b", "c"]).insert()
    await Product.find_one().update(change)
    found = (await Product.find_one()).model_dump()
    assert {name: found[name] for name in wanted} == wanted


async def test_updating_many_and_upserting(start) -> None:
    await start(Product)
    await Product.insert_many([bar("a"), bar("b"), bar("c", num=5)])
    result = await Product.find(Product.num == 0).set({Product.num: 7})
    assert (result.matched_count, result.modified_count) == (2, 2)
    await Product.find(Product.num > 5).inc({Product.num: 1}).update(Set({Product.price: 1.0}))
    assert await Product.find({"num": 8, "price": 1.0}).count() == 2
    await Product.find_one(Product.name == "d").upsert(Set({Product.num: 1}), on_insert=bar("d"))
    await Product.find_one(Product.name == "d").upsert(Set({Product.num: 9}), on_insert=bar("d"))
    assert (await Product.find_one(Product.name == "d")).num == 9
    old = await Product.find_one(Product.name == "d").update(
        Set({Product.num: 10}), response_type=UpdateResponse.OLD_DOCUMENT)
    new = await Product.find_one(Product.name == "d").update(
        Inc({Product.num: 1}), response_type=UpdateResponse.NEW_DOCUMENT)
    assert (old.num, new.num) == (9, 11)
    assert (await Product.update_all(Set({Product.num: 0}))).modified_count == 4


async def test_deleting(start) -> None:
    await start(Product)
    await Product.insert_many([bar(name) for name in "abcd"])
    first = await Product.find_one(Product.name == "a")
    assert (await first.delete()).deleted_count == 1
    await Product.find_one(Product.name == "b").delete()
    assert (await Product.find(Product.name == "c").delete()).deleted_count == 1
    assert [one.name for one in await Product.find_all().to_list()] == ["d"]
    await Product.delete_all()
    assert await Product.count() == 0


async def test_many_writes_at_once(start) -> None:
    await start(Product)
    gone, kept = await bar("gone").insert(), await bar("kept").insert()
    async with BulkWriter() as writer:
        await Product.insert_one(bar("made"), bulk_writer=writer)
        await Product.find_one(Product.name == "kept").update(Set({Product.num: 3}), bulk_writer=writer)
        kept.price = 1.0
        await Product.find(Product.name == "made").update(Inc({Product.num: 1}), bulk_writer=writer)
        await gone.delete(bulk_writer=writer)
    assert [(one.name, one.num) for one in await Product.find_all().sort("name").to_list()] == [("kept", 3), ("made", 1)]


class Watched(Document):
    name: str
    data: dict[str, int] = Field(default_factory=dict)
    other: int = 0

    class Settings:
        use_state_management = True
        state_management_save_previous = True


async def test_only_what_changed_is_written(start) -> None:
    database = await start(Watched)
    with pytest.raises(StateNotSaved):
        await Watched(name="x").save_changes()
    document = await Watched(name="a", data={"x": 1}).insert()
    await database["Watched"].update_one({}, {"$set": {"other": 9}})
    document.data["y"] = 2
    assert document.is_changed and document.get_changes() == {"data.y": 2}
    await document.save_changes()
    assert not document.is_changed and document.has_changed
    assert document.get_previous_changes() == {"data.y": 2, "other": 9}
    document.name = "b"
    document.rollback()
    assert document.name == "a"
    assert (await database["Watched"].find_one({}, {"_id": 0})) == {"name": "a", "data": {"x": 1, "y": 2}, "other": 9}


async def test_what_others_wrote_is_fetched(start) -> None:
    database = await start(Watched)
    document = await Watched(name="a").insert()
    await database["Watched"].update_one({}, {"$set": {"other": 9}})
    document.name = "mine"
    await document.sync(merge_strategy=MergeStrategy.local)
    assert (document.name, document.other) == ("mine", 9)
    await document.sync()
    assert document.name == "a"


class Revised(Document):
    num: int

    class Settings:
        use_revision = True
        use_state_management = True


async def test_a_revision_that_is_old_is_refused(start) -> None:
    await start(Revised)
    document = await Revised(num=1).insert()
    mine, theirs = await Revised.get(document.id), await Revised.get(document.id)
    theirs.num = 2
    await theirs.save_changes()
    mine.num = 3
    with pytest.raises(RevisionIdWasChanged):
        await mine.save_changes()
    with pytest.raises(RevisionIdWasChanged):
        await mine.replace()
    await mine.replace(ignore_revision=True)
    assert (await Revised.get(document.id)).num == 3
    fresh = await Revised.get(document.id)
    await fresh.inc({Revised.num: 1})
    assert fresh.num == 4 and fresh.revision_id != document.revision_id


class Sounding(Document):
    name: str
    heard: list[str] = Field(default_factory=list)

    class Settings:
        validate_on_save = True

    @before_event(Insert)
    def capitalise(self) -> None:
        self.name = self.name.capitalize()

    @after_event([Insert, Replace])
    async def tell(self) -> None:
        self.heard.append("written")

    @before_event(Update, Delete, ValidateOnSave)
    def soon(self) -> None:
        self.heard.append("soon")


async def test_what_happens_around_a_write(start) -> None:
    await start(Sounding)
    document = await Sounding(name="ann").insert()
    assert document.name == "Ann" and "written" in document.heard
    await document.delete(skip_actions=[Before, "soon"])
    assert await Sounding.count() == 0 and After is not Before


class Kept(DocumentWithSoftDelete):
    name: str


async def test_what_is_deleted_softly_stays(start) -> None:
    await start(Kept)
    one, two = await Kept(name="a").insert(), await Kept(name="b").insert()
    await one.delete()
    assert one.is_deleted() and [kept.name for kept in await Kept.find_many().to_list()] == ["b"]
    assert await Kept.find_many_in_all().count() == 2
    await two.hard_delete()
    assert await Kept.find_many_in_all().count() == 1


class Vehicle(Document):
    colour: str

    class Settings:
        is_root = True


class Bicycle(Vehicle):
    frame: int


class Car(Vehicle):
    fuel: str


class Bus(Car):
    seats: int


async def test_a_family_in_one_collection(start) -> None:
    database = await start(Vehicle, Bicycle, Car, Bus)
    await Bicycle(colour="red", frame=21).insert()
    await Car(colour="blue", fuel="gas").insert()
    await Bus(colour="red", fuel="diesel", seats=48).insert()
    everyone = await Vehicle.find(with_children=True).sort("_class_id").to_list()
    assert [type(one) for one in everyone] == [Bicycle, Car, Bus]
    assert await Car.find(with_children=True).count() == 2 and await Car.find().count() == 1
    assert await Vehicle.find(Vehicle.colour == "red", with_children=True).count() == 2
    assert {raw["_class_id"] async for raw in database["Vehicle"].find()} == {
        "Vehicle.Bicycle", "Vehicle.Car", "Vehicle.Car.Bus"}


async def test_nulls_may_be_left_out(start) -> None:
    class Sparse(Document):
        name: Optional[str] = None
        num: Optional[int] = None

        class Settings:
            keep_nulls = False
            name = "sparse"

    database = await start(Sparse)
    document = await Sparse(num=1).insert()
    assert set(await database["sparse"].find_one()) == {"_id", "num"}
    document.num = None
    await document.save()
    assert set(await database["sparse"].find_one()) == {"_id"}
