"""Query sets: filters, order, parts of documents, atomic updates, aggregation."""

from __future__ import annotations

import mongoengine as me
import pytest
from mongoengine.context_managers import query_counter
from mongoengine.queryset.visitor import Q


class Address(me.EmbeddedDocument):
    city = me.StringField()
    zip = me.StringField()


class Person(me.Document):
    name = me.StringField()
    age = me.IntField()
    tags = me.ListField(me.StringField())
    address = me.EmbeddedDocumentField(Address)
    visits = me.ListField(me.IntField())
    active = me.BooleanField(default=True)
    meta = {"ordering": ["name"]}

    @me.queryset_manager
    def adults(doc_cls, queryset):  # noqa: N805
        """Returns the adults."""
        return queryset.filter(age__gte=18)


@pytest.fixture(autouse=True)
def people(empty) -> None:
    """Four of them, inserted together."""
    Person.objects.insert([
        Person(name="Dora", age=41, tags=["a", "b"], address=Address(city="Bonn", zip="53111"), visits=[1, 5]),
        Person(name="Anna", age=17, tags=["b"], address=Address(city="Berlin", zip="10115"), visits=[2]),
        Person(name="Carl", age=30, tags=["a", "c"], address=Address(city="Bonn", zip="53113"), active=False),
        Person(name="Bert", age=30, tags=[], visits=[9, 8, 7]),
    ])


def names(query) -> str:
    """Returns first letters in the query's order."""
    return "".join(person.name[0] for person in query)


@pytest.mark.parametrize(("wanted", "conditions"), [
    ("BC", {"age": 30}), ("AD", {"age__ne": 30}), ("A", {"age__lt": 18}), ("BCD", {"age__gte": 30}),
    ("AD", {"age__in": [17, 41]}), ("BC", {"age__nin": [17, 41]}), ("BC", {"age__not__in": [17, 41]}),
    ("D", {"tags__all": ["a", "b"]}), ("B", {"tags__size": 0}), ("CD", {"tags": "a"}), ("CD", {"tags__0": "a"}),
    ("ACD", {"address__exists": True}), ("B", {"address": None}), ("CD", {"address__city": "Bonn"}),
    ("A", {"name__startswith": "An"}), ("A", {"name__endswith": "na"}), ("BD", {"name__icontains": "R", "active": True}),
    ("C", {"name__iexact": "CARL"}), ("AC", {"name__regex": "^[AC]"}), ("BC", {"age__mod": (15, 0)}),
    ("AD", {"visits__lt": 3}), ("C", {"__raw__": {"active": False}}), ("AD", {"name__contains": "a", "active": True}),
])
def test_operators(wanted: str, conditions: dict) -> None:
    assert names(Person.objects(**conditions)) == wanted


def test_conditions_combine() -> None:
    assert names(Person.objects(Q(age__lt=18) | Q(tags="c"))) == "AC"
    assert names(Person.objects((Q(age=30) & Q(active=True)) | Q(name="Dora"))) == "BD"
    assert names(Person.objects(Q(age__not__gt=30) & Q(tags__ne="c"))) == "AB"
    assert names(Person.objects(age__gte=30).filter(active=True)) == "BD"
    assert names(Person.adults()) == "BCD"


def test_order_skip_and_limit() -> None:
    assert names(Person.objects) == "ABCD"
    assert names(Person.objects.order_by("-age", "name")) == "DBCA"
    assert names(Person.objects.order_by("-name")[1:3]) == "CB"
    assert names(Person.objects.skip(1).limit(1)) == "B"
    assert Person.objects[2].name == "Carl"
    assert Person.objects.first().name == "Anna"
    assert Person.objects.count() == 4 and Person.objects[1:3].count(with_limit_and_skip=True) == 2


def test_one_document_or_an_error() -> None:
    assert Person.objects.get(name="Anna").age == 17
    with pytest.raises(Person.DoesNotExist):
        Person.objects.get(name="Zoe")
    with pytest.raises(Person.MultipleObjectsReturned):
        Person.objects.get(age=30)


def test_documents_by_id() -> None:
    ids = {person.name: person.id for person in Person.objects}
    assert Person.objects.with_id(ids["Bert"]).age == 30
    found = Person.objects.in_bulk([ids["Anna"], ids["Carl"]])
    assert {person.name for person in found.values()} == {"Anna", "Carl"}


def test_parts_of_documents() -> None:
    only = Person.objects.only("name", "address.city").get(name="Dora")
    assert (only.age, only.address.city, only.address.zip) == (None, "Bonn", None)
    assert Person.objects.exclude("tags").get(name="Dora").tags == []
    assert Person.objects.fields(slice__visits=[1, 2]).get(name="Bert").visits == [8, 7]
    assert list(Person.objects.scalar("name", "age"))[0] == ("Anna", 17)
    assert list(Person.objects.values_list("name")) == ["Anna", "Bert", "Carl", "Dora"]
    assert Person.objects(name="Anna").as_pymongo()[0]["address"] == {"city": "Berlin", "zip": "10115"}


def test_numbers_over_a_query() -> None:
    assert Person.objects.sum("age") == 118 and Person.objects.average("age") == 29.5
    assert Person.objects(active=True).sum("visits") == 32
    assert sorted(Person.objects.distinct("address.city")) == ["Berlin", "Bonn"]
    assert sorted(Person.objects.distinct("tags")) == ["a", "b", "c"]


def test_pipelines_run_on_what_the_query_found() -> None:
    pipeline = [{"$group": {"_id": "$address.city", "ages": {"$sum": "$age"}}}, {"$sort": {"_id": 1}}]
    assert list(Person.objects(address__exists=True).order_by().aggregate(pipeline)) == [
        {"_id": "Berlin", "ages": 17}, {"_id": "Bonn", "ages": 71}]
    tags = Person.objects.order_by().aggregate(
        [{"$unwind": "$tags"}, {"$sortByCount": "$tags"}, {"$match": {"count": {"$gt": 1}}}, {"$sort": {"_id": 1}}])
    assert [row["_id"] for row in tags] == ["a", "b"]
    assert [row["name"] for row in Person.objects.order_by("-name").limit(2).aggregate([])] == ["Dora", "Carl"]


def raw(name: str) -> dict:
    """Returns the stored document."""
    return Person._get_collection().find_one({"name": name})


@pytest.mark.parametrize(("update", "field", "value"), [
    ({"inc__age": 2}, "age", 43), ({"dec__age": 1}, "age", 40), ({"set__age": 1}, "age", 1),
    ({"mul__age": 2}, "age", 82), ({"max__age": 50}, "age", 50), ({"min__age": 50}, "age", 41),
    ({"push__tags": "z"}, "tags", ["a", "b", "z"]), ({"push__tags__0": ["z"]}, "tags", ["z", "a", "b"]),
    ({"push_all__tags": ["y", "z"]}, "tags", ["a", "b", "y", "z"]), ({"pull__tags": "a"}, "tags", ["b"]),
    ({"pull_all__tags": ["a", "b"]}, "tags", []), ({"add_to_set__tags": "a"}, "tags", ["a", "b"]),
    ({"add_to_set__tags": ["a", "q"]}, "tags", ["a", "b", "q"]), ({"pop__visits": 1}, "visits", [1]),
    ({"pop__visits": -1}, "visits", [5]), ({"set__address__zip": "0"}, "address", {"city": "Bonn", "zip": "0"}),
    ({"set__visits__1": 6}, "visits", [1, 6]), ({"pull__visits__gte": 5}, "visits", [1]),
    ({"__raw__": {"$set": {"age": 3}}}, "age", 3),
])
def test_atomic_updates(update: dict, field: str, value: object) -> None:
    assert Person.objects(name="Dora").update_one(**update) == 1
    assert raw("Dora")[field] == value


def test_a_field_is_removed_and_renamed() -> None:
    Person.objects(name="Dora").update(unset__age=1, rename__tags="labels")
    stored = raw("Dora")
    assert "age" not in stored and stored["labels"] == ["a", "b"]


def test_counts_of_updates() -> None:
    assert Person.objects(age=30).update(set__active=False) == 2
    result = Person.objects(age=30).update(set__active=False, full_result=True)
    assert (result.matched_count, result.modified_count) == (2, 0)
    assert Person.objects(age=99).update(inc__age=1) == 0
    assert Person.objects.update(__raw__=[{"$set": {"age": {"$add": ["$age", 1]}}}]) == 4
    assert Person.objects.sum("age") == 122


def test_upserts() -> None:
    zoe = Person.objects(name="Zoe").upsert_one(set__age=5, set_on_insert__tags=["new"])
    assert (zoe.name, zoe.age, zoe.tags) == ("Zoe", 5, ["new"])
    again = Person.objects(name="Zoe").upsert_one(inc__age=1, set_on_insert__tags=["other"])
    assert (again.id, again.age, again.tags) == (zoe.id, 6, ["new"])
    assert Person.objects(name="Yves").update_one(set__age=1, upsert=True) == 1
    assert Person.objects.count() == 6


def test_modify_returns_the_document() -> None:
    assert Person.objects(name="Anna").modify(inc__age=1).age == 17
    assert Person.objects(name="Anna").modify(inc__age=1, new=True).age == 19
    assert Person.objects(name="Nobody").modify(inc__age=1) is None
    oldest = Person.objects.order_by("-age").modify(set__active=False, new=True)
    assert oldest.name == "Dora" and not oldest.active
    assert Person.objects(name="Carl").modify(remove=True).name == "Carl"
    assert Person.objects.count() == 3


def test_a_document_modifies_and_updates_itself() -> None:
    anna = Person.objects.get(name="Anna")
    assert anna.modify({"age": 17}, set__age=18) is True and anna.age == 18
    assert anna.modify({"age": 17}, set__age=19) is False
    anna.update(push__tags="x")
    assert anna.reload().tags == ["b", "x"]


def test_saving_under_a_condition() -> None:
    first, second = Person.objects.get(name="Bert"), Person.objects.get(name="Bert")
    first.age = 31
    first.save(save_condition={"age": 30})
    second.age = 32
    with pytest.raises(me.SaveConditionError):
        second.save(save_condition={"age": 30})
    assert raw("Bert")["age"] == 31


def test_deleting_what_was_found() -> None:
    assert Person.objects(age=30).delete() == 2
    assert names(Person.objects) == "AD"
    assert Person.objects(age=30).delete() == 0


def test_query_options() -> None:
    hinted = Person.objects(age=30).hint([("_id", 1)]).comment("why").max_time_ms(5000).batch_size(1)
    assert set(names(hinted)) == set("BC")
    assert names(Person.objects.order_by("name").collation({"locale": "en", "strength": 2})(name="ANNA")) == "A"
    assert Person.objects(name="Anna").explain()["queryPlanner"]["namespace"] == "odm.person"
    with pytest.raises(me.OperationError):
        Person.objects(__raw__={"age": {"$nothing": 1}}).update(set__age=1)


def test_queries_are_counted_by_the_profiler() -> None:
    """query_counter turns the profiler on and counts its entries."""
    with query_counter() as counter:
        assert counter == 0
        Person.objects(age=30).first()
        assert counter == 1
        list(Person.objects(age__gte=18))
        Person.objects(name="Anna").update(set__age=18)
        Person(name="Emil").save()
        assert counter == 4
