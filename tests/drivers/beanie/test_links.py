"""Links: references by DBRef, fetched by `$lookup` through them, and links back."""

from __future__ import annotations

from typing import Optional

import bson
import pytest
from beanie import BackLink, DeleteRules, Document, Link, WriteRules
from beanie.odm.operators.find.comparison import In
from pydantic import Field


class Window(Document):
    width: int
    house: Optional[BackLink["House"]] = Field(None, json_schema_extra={"original_field": "windows"})


class Lock(Document):
    key: str


class Door(Document):
    height: int
    lock: Optional[Link[Lock]] = None


class House(Document):
    name: str
    door: Link[Door]
    roof: Optional[Link[Door]] = None
    windows: list[Link[Window]] = Field(default_factory=list)


class Person(Document):
    name: str
    friend: Optional[Link["Person"]] = None
    house: Optional[BackLink["Owner"]] = Field(None, json_schema_extra={"original_field": "people"})


class Owner(Document):
    name: str
    people: list[Link[Person]] = Field(default_factory=list)


class Member(Document):
    name: str
    clubs: list[BackLink["Club"]] = Field(default_factory=list, json_schema_extra={"original_field": "members"})


class Club(Document):
    name: str
    members: list[Link[Member]] = Field(default_factory=list)


for model in (Window, House, Person, Owner, Member, Club):
    model.model_rebuild()


@pytest.fixture
async def houses(start):
    """Two houses, with doors, locks and windows, written in one step."""
    database = await start(Window, Lock, Door, House)
    for name, height, widths in (("small", 2, [1]), ("large", 3, [2, 3, 4])):
        house = House(name=name, door=Door(height=height, lock=Lock(key=f"{name} key")),
                      windows=[Window(width=width) for width in widths])
        await house.insert(link_rule=WriteRules.WRITE)
    return database


async def test_links_are_stored_as_references(houses) -> None:
    raw = await houses["House"].find_one({"name": "large"})
    assert isinstance(raw["door"], bson.DBRef) and raw["door"].collection == "Door" and raw["roof"] is None
    assert [ref.collection for ref in raw["windows"]] == ["Window"] * 3


async def test_a_link_is_fetched_when_asked(houses) -> None:
    house = await House.find_one(House.name == "large")
    assert isinstance(house.door, Link)
    assert (await house.door.fetch()).height == 3
    await house.fetch_link(House.windows)
    assert [window.width for window in house.windows] == [2, 3, 4]
    await house.fetch_all_links()
    assert house.door.lock.key == "large key"
    found = await House.find_one(House.name == "small")
    assert [window.width for window in await Link.fetch_list(found.windows)] == [1]


async def test_links_are_fetched_with_the_search(houses) -> None:
    found = await House.find(House.name == "large", fetch_links=True).to_list()
    assert found[0].door.lock.key == "large key" and [one.width for one in found[0].windows] == [2, 3, 4]
    assert found[0].roof is None
    one = await House.find_one(House.door.height == 2, fetch_links=True)
    assert one.name == "small" and one.windows[0].width == 1
    got = await House.get(found[0].id, fetch_links=True)
    assert got.door.height == 3
    assert await House.find(House.windows.width > 2, fetch_links=True).count() == 1


async def test_order_and_limit_beside_links(houses) -> None:
    found = await House.find(fetch_links=True).sort("-door.height").skip(1).limit(1).to_list()
    assert [one.name for one in found] == ["small"]
    sums = await House.find(House.door.height > 2, fetch_links=True).aggregate(
        [{"$unwind": "$windows"}, {"$group": {"_id": "$name", "sum": {"$sum": "$windows.width"}}}]).to_list()
    assert sums == [{"_id": "large", "sum": 9}]
    assert await House.find(House.door.height > 1, fetch_links=True).sum("door.height") == 5


async def test_how_deep_links_are_fetched(houses) -> None:
    house = await House.find_one(House.name == "large", fetch_links=True, nesting_depth=1)
    assert house.door.height == 3 and isinstance(house.door.lock, Link)
    house = await House.find_one(
        House.name == "large", fetch_links=True, nesting_depths_per_field={"windows": 0, "door": 2})
    assert isinstance(house.windows[0], Link) and house.door.lock.key == "large key"


async def test_searching_by_what_is_linked(houses) -> None:
    door = await Door.find_one(Door.height == 3)
    assert (await House.find_one(House.door.id == door.id)).name == "large"
    windows = await Window.find(In(Window.width, [1, 4])).to_list()
    found = await House.find(In(House.windows.id, [one.id for one in windows])).to_list()
    assert {one.name for one in found} == {"small", "large"}
    raw = await House.find({"door": door.to_ref()}).to_list()
    assert [one.name for one in raw] == ["large"]


async def test_aggregating_by_the_parts_of_references(houses) -> None:
    steps = [
        {"$unwind": "$windows"}, {"$group": {"_id": "$windows.$ref", "n": {"$sum": 1}, "ids": {"$addToSet": "$windows.$id"}}},
        {"$project": {"n": 1, "ids": {"$size": "$ids"}}},
    ]
    assert await House.aggregate(steps).to_list() == [{"_id": "Window", "n": 4, "ids": 4}]


async def test_writing_what_is_linked(houses) -> None:
    house = await House.find_one(House.name == "small", fetch_links=True)
    house.windows[0].width = 11
    house.windows.append(Window(width=12))
    house.name = "grown"
    await house.save(link_rule=WriteRules.WRITE)
    assert sorted([one.width for one in await Window.find_all().to_list()]) == [2, 3, 4, 11, 12]
    again = await House.find_one(House.name == "grown", fetch_links=True)
    assert [one.width for one in again.windows] == [11, 12]
    again.windows[0].width = 99
    await again.save(link_rule=WriteRules.DO_NOTHING)
    assert await Window.find(Window.width == 99).count() == 0


async def test_deleting_what_is_linked(houses) -> None:
    large = await House.find_one(House.name == "large", fetch_links=True)
    await large.delete(link_rule=DeleteRules.DELETE_LINKS)
    assert (await Window.count(), await Door.count()) == (1, 1)
    small = await House.find_one(House.name == "small")
    await small.delete()
    assert (await Window.count(), await Door.count(), await House.count()) == (1, 1, 0)


async def test_a_reference_to_what_is_gone(houses) -> None:
    await Door.find(Door.height == 2).delete()
    house = await House.find_one(House.name == "small", fetch_links=True)
    assert isinstance(house.door, Link)
    assert await (await House.find_one(House.name == "small")).door.fetch() is not None


async def test_links_back(start) -> None:
    await start(Person, Owner)
    people = [await Person(name=name).insert() for name in ("Ann", "Ben")]
    await Owner(name="both", people=people).insert()
    found = await Person.find_one(Person.name == "Ben", fetch_links=True, nesting_depth=1)
    assert found.house.name == "both"
    assert isinstance((await Person.find_one(Person.name == "Ben")).house, BackLink)


async def test_many_links_back(start) -> None:
    await start(Member, Club)
    ann, ben = await Member(name="Ann").insert(), await Member(name="Ben").insert()
    await Club(name="chess", members=[ann, ben]).insert()
    await Club(name="rowing", members=[ann]).insert()
    found = await Member.find(fetch_links=True, nesting_depth=1).sort("name").to_list()
    assert [sorted(club.name for club in member.clubs) for member in found] == [["chess", "rowing"], ["chess"]]
    clubs = await Club.find(Club.members.name == "Ben", fetch_links=True, nesting_depth=1).to_list()
    assert [club.name for club in clubs] == ["chess"]


async def test_a_link_to_its_own_kind(start) -> None:
    await start(Person, Owner)
    ann = await Person(name="Ann").insert()
    ben = await Person(name="Ben", friend=ann).insert()
    ann.friend = ben
    await ann.save()
    found = await Person.find_one(Person.name == "Ben", fetch_links=True, nesting_depth=2)
    assert found.friend.name == "Ann" and found.friend.friend.name == "Ben"
