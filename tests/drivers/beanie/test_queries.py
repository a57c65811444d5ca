"""Finding, sorting, projecting, counting and aggregating; views, unions, caches, lazy parsing."""

from __future__ import annotations

from typing import Any

import pytest
from beanie import Document, SortDirection, UnionDoc, View
from beanie.odm.operators.find.array import All, ElemMatch, Size
from beanie.odm.operators.find.bitwise import BitsAllClear, BitsAllSet, BitsAnyClear, BitsAnySet
from beanie.odm.operators.find.comparison import GT, GTE, LT, LTE, NE, Eq, In, NotIn
from beanie.odm.operators.find.element import Exists, Type
from beanie.odm.operators.find.evaluation import Expr, JsonSchema, Mod, RegEx
from beanie.odm.operators.find.evaluation import Text as TextSearch
from beanie.odm.operators.find.geospatial import Box, GeoIntersects, GeoWithin, GeoWithinTypes, Near, NearSphere
from beanie.odm.operators.find.logical import And, Nor, Not, Or
from pydantic import BaseModel, Field
from pymongo import GEOSPHERE, TEXT


class Part(BaseModel):
    kind: str
    size: int


class Point(BaseModel):
    type: str = "Point"
    coordinates: tuple[float, float]


class Sample(Document):
    name: str
    number: int
    ratio: float = 0.0
    tags: list[str] = Field(default_factory=list)
    parts: list[Part] = Field(default_factory=list)
    place: Point

    class Settings:
        name = "samples"
        indexes = [[("place", GEOSPHERE)], [("name", TEXT)]]


@pytest.fixture
async def samples(start) -> Any:
    """Five of them, a to e, numbered from 1, each further east."""
    database = await start(Sample, SampleSums)
    await Sample.insert_many([
        Sample(name=f"{name} stone", number=number, ratio=number / 2, tags=["odd" if number % 2 else "even", name],
               parts=[Part(kind="x", size=number), Part(kind="y", size=10 - number)],
               place=Point(coordinates=(number * 1.0, 50.0)))
        for number, name in enumerate("abcde", 1)])
    return database


def polygon(west: float, east: float) -> list:
    """A ring from south to north."""
    return [[[west, 40.0], [east, 40.0], [east, 60.0], [west, 60.0], [west, 40.0]]]


@pytest.mark.parametrize(("wanted", "condition"), [
    ("c", lambda: Sample.number == 3), ("abde", lambda: Sample.number != 3), ("de", lambda: Sample.number > 3),
    ("ab", lambda: Sample.number < 3), ("cde", lambda: Sample.number >= 3), ("abc", lambda: Sample.number <= 3),
    ("c", lambda: Eq(Sample.number, 3)), ("abde", lambda: NE(Sample.number, 3)), ("de", lambda: GT(Sample.number, 3)),
    ("ab", lambda: LT(Sample.number, 3)), ("cde", lambda: GTE(Sample.number, 3)), ("abc", lambda: LTE(Sample.number, 3)),
    ("ae", lambda: In(Sample.number, [1, 5])), ("bcd", lambda: NotIn(Sample.number, [1, 5])),
    ("ae", lambda: Or(Sample.number == 1, Sample.number == 5)), ("bc", lambda: And(Sample.number > 1, Sample.number < 4)),
    ("bcd", lambda: Nor(Sample.number == 1, Sample.number == 5)), ("ab", lambda: Not(Sample.number > 2)),
    ("abcde", lambda: Exists(Sample.ratio)), ("", lambda: Exists(Sample.ratio, False)),
    ("abcde", lambda: Type(Sample.ratio, "double")), ("ac", lambda: And(All(Sample.tags, ["odd"]), Sample.number < 5)),
    ("", lambda: Size(Sample.tags, 3)), ("d", lambda: ElemMatch(Sample.parts, {"kind": "x", "size": 4})),
    ("bd", lambda: Mod(Sample.number, 2, 0)), ("ab", lambda: RegEx(Sample.name, "^[AB]", options="i")),
    ("ce", lambda: Expr({"$and": [{"$gt": ["$number", 2]}, {"$in": ["odd", "$tags"]}]})),
    ("de", lambda: JsonSchema({"properties": {"number": {"minimum": 4}}})),
    ("c", lambda: BitsAllSet(Sample.number, 3)), ("abcde", lambda: BitsAnySet(Sample.number, 7)),
    ("d", lambda: BitsAllClear(Sample.number, 3)), ("abde", lambda: BitsAnyClear(Sample.number, 3)),
    ("b", lambda: TextSearch("b -e")), ("bc", lambda: GeoIntersects(Sample.place, "Polygon", polygon(1.5, 3.5))),
    ("cd", lambda: GeoWithin(Sample.place, GeoWithinTypes.Polygon, polygon(2.5, 4.5))),
    ("ab", lambda: Box(Sample.place, [0, 40], [2.5, 60])),
    ("ab", lambda: Near(Sample.place, 1.0, 50.0, max_distance=100_000)),
    ("bc", lambda: NearSphere(Sample.place, 1.0, 50.0, min_distance=50_000, max_distance=150_000)),
    ("c", lambda: {"parts.size": {"$lt": 8}, "number": {"$in": [3]}}), ("b", lambda: Sample.parts[0].size == 2),
])
async def test_operators(samples, wanted: str, condition: Any) -> None:
    found = await Sample.find(condition()).to_list()
    assert sorted(one.name[0] for one in found) == list(wanted)


async def names(query: Any) -> str:
    """Returns first letters in the query's order."""
    return "".join([one.name[0] async for one in query])


async def test_order_skip_and_limit(samples) -> None:
    assert await names(Sample.find_all().sort(-Sample.number)) == "edcba"
    assert await names(Sample.find_all().sort("tags", "-number").skip(1).limit(3)) == "bcd"
    assert await names(Sample.find_all().sort([(Sample.number, SortDirection.DESCENDING)]).limit(2)) == "ed"
    assert await names(Sample.find(Sample.number > 1).find(Sample.number < 4).sort(+Sample.number)) == "bc"
    assert await names(Sample.find(skip=3, sort="number")) == "de"
    assert (await Sample.find_one(Sample.number > 3, sort=[("number", -1)])).number == 5
    assert (await Sample.find(Sample.number > 1).sort("number").first_or_none()).number == 2
    assert await Sample.find(Sample.number > 9).first_or_none() is None


async def test_counting(samples) -> None:
    assert await Sample.count() == 5 and await Sample.find(Sample.number > 3).count() == 2
    assert await Sample.find(Sample.number > 1).limit(2).count() == 2
    assert await Sample.find(Sample.number == 3).exists() and not await Sample.find_one({"number": 9}).exists()
    assert await Sample.distinct("tags") == ["a", "b", "c", "d", "e", "even", "odd"]
    assert await Sample.find(Sample.number > 3).distinct(Sample.number) == [4, 5]


async def test_parts_of_documents(samples) -> None:
    class Short(BaseModel):
        name: str
        largest: int

        class Settings:
            projection = {"name": 1, "largest": {"$max": "$parts.size"}}

    class Bare(BaseModel):
        number: int

    assert [one.number for one in await Sample.find(Sample.number > 3).project(Bare).sort("number").to_list()] == [4, 5]
    found = await Sample.find(Sample.number == 2).project(projection_model=Short).to_list()
    assert (found[0].name, found[0].largest) == ("b stone", 8)
    assert (await Sample.find_one(Sample.number == 1).project(Bare)) == Bare(number=1)


async def test_aggregating(samples) -> None:
    class Sum(BaseModel):
        id: str = Field(None, alias="_id")
        total: int

    steps = [{"$unwind": "$tags"}, {"$match": {"tags": {"$in": ["odd", "even"]}}},
             {"$group": {"_id": "$tags", "total": {"$sum": "$number"}}}, {"$sort": {"_id": 1}}]
    found = await Sample.find(Sample.number < 5).aggregate(steps, projection_model=Sum).to_list()
    assert [(one.id, one.total) for one in found] == [("even", 6), ("odd", 4)]
    assert await Sample.aggregate([{"$count": "n"}]).to_list() == [{"n": 5}]
    assert await Sample.find(Sample.number > 2).sum(Sample.number) == 12
    assert await Sample.avg(Sample.ratio) == 1.5
    assert (await Sample.min(Sample.number), await Sample.find(Sample.number < 4).max(Sample.number)) == (1, 3)
    assert await Sample.find(Sample.number > 9).sum(Sample.number) is None


async def test_a_collation_and_a_comment_reach_the_server(samples) -> None:
    found = await Sample.find(
        Sample.name == "A STONE", collation={"locale": "en", "strength": 2}, comment="names").to_list()
    assert [one.number for one in found] == [1]


class SampleSums(View):
    id: str
    total: int

    class Settings:
        name = "sample_sums"
        source = Sample
        pipeline = [
            {"$group": {"_id": {"$arrayElemAt": ["$tags", 0]}, "total": {"$sum": "$number"}}},
            {"$project": {"_id": 0, "id": "$_id", "total": 1}},
        ]


async def test_a_view(start, samples) -> None:
    database = await start(Sample, SampleSums, recreate_views=True)
    assert (await database.command({"listCollections": 1, "filter": {"name": "sample_sums"}}))["cursor"]["firstBatch"][0][
        "type"] == "view"
    found = await SampleSums.find(SampleSums.total > 6).to_list()
    assert [(one.id, one.total) for one in found] == [("odd", 9)]
    assert await SampleSums.find_all().count() == 2


async def test_models_of_two_kinds_in_one_collection(start) -> None:
    class Either(UnionDoc):
        class Settings:
            name = "either"

    class Left(Document):
        left: int

        class Settings:
            union_doc = Either

    class Right(Document):
        right: str

        class Settings:
            union_doc = Either

    await start(Either, Left, Right)
    await Left(left=1).insert()
    await Right(right="r").insert()
    assert {type(one) for one in await Either.all().to_list()} == {Left, Right}
    assert await Left.find_all().count() == 1 and await Either.find({"right": "r"}).count() == 1
    assert await Either.aggregate([{"$group": {"_id": "$_class_id"}}, {"$sort": {"_id": 1}}]).to_list() == [
        {"_id": "Left"}, {"_id": "Right"}]


async def test_what_was_found_is_remembered(start) -> None:
    class Cached(Document):
        num: int

        class Settings:
            use_cache = True

    database = await start(Cached)
    await Cached(num=1).insert()
    assert (await Cached.find(Cached.num > 0).to_list())[0].num == 1
    await database["Cached"].update_one({}, {"$set": {"num": 2}})
    assert (await Cached.find(Cached.num > 0).to_list())[0].num == 1
    assert (await Cached.find(Cached.num > 0, ignore_cache=True).to_list())[0].num == 2


async def test_documents_are_parsed_when_asked(samples) -> None:
    found = await Sample.find(Sample.number > 3, lazy_parse=True).sort("number").to_list()
    assert [one.number for one in found] == [4, 5]
