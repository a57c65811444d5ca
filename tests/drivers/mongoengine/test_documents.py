"""Documents of every kind: a small blog, inheritance, references, nested values."""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid

import bson
import mongoengine as me
import pytest


class Author(me.Document):
    email = me.EmailField(required=True)
    first_name = me.StringField(max_length=50)
    last_name = me.StringField(max_length=50)


class Remark(me.EmbeddedDocument):
    text = me.StringField(required=True)
    name = me.StringField(max_length=120)
    stars = me.IntField(min_value=0, max_value=5, default=0)


class Entry(me.Document):
    title = me.StringField(max_length=120, required=True)
    author = me.ReferenceField(Author, reverse_delete_rule=me.CASCADE)
    tags = me.ListField(me.StringField(max_length=30))
    remarks = me.ListField(me.EmbeddedDocumentField(Remark))
    meta = {"allow_inheritance": True, "indexes": ["tags"]}


class Article(Entry):
    content = me.StringField()


class Picture(Entry):
    path = me.StringField()


class Bookmark(Entry):
    url = me.URLField()


def write_blog() -> tuple[Author, Author]:
    """Two authors, and an entry of each kind."""
    ada = Author(email="ada@example.com", first_name="Ada", last_name="Byron").save()
    kurt = Author(email="kurt@example.com", first_name="Kurt").save()
    Article(title="Engines", author=ada, content="Notes", tags=["machines", "mathematics"]).save()
    Picture(title="Punched card", author=ada, path="/cards/1.png", tags=["machines"]).save()
    Bookmark(title="Proofs", author=kurt, url="https://example.com/proofs", tags=["mathematics"]).save()
    return ada, kurt


def test_saved_documents_come_back_as_their_own_class() -> None:
    write_blog()
    assert [type(entry) for entry in Entry.objects.order_by("title")] == [Article, Bookmark, Picture]
    assert Article.objects.get().content == "Notes"
    assert Picture.objects.count() == 1 and Entry.objects.count() == 3


def test_the_class_is_stored_and_indexed() -> None:
    write_blog()
    raw = Entry._get_collection().find_one({"title": "Engines"})
    assert raw["_cls"] == "Entry.Article"
    keys = [list(index["key"].items()) for index in Entry._get_collection().list_indexes()]
    assert keys == [[("_id", 1)], [("_cls", 1), ("tags", 1)]]


def test_entries_by_tag() -> None:
    write_blog()
    titles = [entry.title for entry in Entry.objects(tags="machines").order_by("title")]
    assert titles == ["Engines", "Punched card"]
    assert Entry.objects(tags="mathematics").count() == 2
    counts = Entry.objects.aggregate([{"$unwind": "$tags"}, {"$sortByCount": "$tags"}, {"$sort": {"_id": 1}}])
    assert [(row["_id"], row["count"]) for row in counts] == [("machines", 2), ("mathematics", 2)]


def test_references_are_followed_when_asked_for() -> None:
    ada, _ = write_blog()
    article = Article.objects.get(title="Engines")
    assert article.author == ada and article.author.first_name == "Ada"
    lazily = Article.objects.no_dereference().get()
    assert lazily.author.id == ada.id
    assert [entry.author.email for entry in Entry.objects.order_by("title").select_related()] == [
        "ada@example.com", "kurt@example.com", "ada@example.com"]
    assert Entry.objects(author=ada).count() == 2


def test_a_list_of_references() -> None:
    class Shelf(me.Document):
        authors = me.ListField(me.ReferenceField(Author))
        anything = me.GenericReferenceField()

    ada, kurt = write_blog()
    Shelf(authors=[kurt, ada], anything=Article.objects.get()).save()
    shelf = Shelf.objects.get()
    assert [author.first_name for author in shelf.authors] == ["Kurt", "Ada"]
    assert shelf.anything.title == "Engines"
    assert Shelf.objects(authors__in=[ada]).count() == 1
    assert Shelf.objects(authors__all=[ada, kurt]).count() == 1


def test_a_reference_to_what_is_gone() -> None:
    ada, _ = write_blog()
    Author._get_collection().delete_one({"_id": ada.id})
    with pytest.raises(me.DoesNotExist):
        Article.objects.get().author.first_name  # noqa: B018


def test_a_lazy_reference() -> None:
    class Review(me.Document):
        of = me.LazyReferenceField(Entry)

    write_blog()
    Review(of=Picture.objects.get()).save()
    assert Review.objects.get().of.fetch().path == "/cards/1.png"


def test_embedded_documents_are_added_found_and_changed() -> None:
    write_blog()
    article = Article.objects.get()
    article.remarks.append(Remark(text="Fine", name="Charles", stars=5))
    article.remarks.append(Remark(text="Long", name="Mary", stars=2))
    article.save()
    assert Entry.objects(remarks__name="Mary").get() == article
    assert Entry.objects(remarks__match={"name": "Mary", "stars__gte": 3}).count() == 0
    article.remarks[1].stars = 4
    article.save()
    assert Entry.objects(remarks__match={"name": "Mary", "stars__gte": 3}).count() == 1
    assert Article.objects.get().remarks[1].stars == 4


def test_the_matching_embedded_document_is_updated() -> None:
    Article(title="t", remarks=[Remark(text="a"), Remark(text="b", stars=1)]).save()
    assert Article.objects(remarks__text="b").update(inc__remarks__S__stars=2, set__remarks__S__name="n") == 1
    assert [(remark.stars, remark.name) for remark in Article.objects.get().remarks] == [(0, None), (3, "n")]
    Article.objects.update(pull__remarks__text="a")
    assert [remark.text for remark in Article.objects.get().remarks] == ["b"]


def test_an_embedded_list_filters_and_creates() -> None:
    class Page(me.Document):
        remarks = me.EmbeddedDocumentListField(Remark)

    page = Page(remarks=[Remark(text="a", name="x"), Remark(text="b", name="y")]).save()
    page.remarks.create(text="c", name="x")
    page.remarks.save()
    found = Page.objects.get()
    assert [remark.text for remark in found.remarks.filter(name="x")] == ["a", "c"]
    assert found.remarks.get(text="b").name == "y"
    assert found.remarks.filter(name="x").delete() == 2
    found.save()
    assert [remark.text for remark in Page.objects.get().remarks] == ["b"]


def test_only_what_changed_is_written() -> None:
    ada, _ = write_blog()
    other = Author.objects.get(id=ada.id)
    other.last_name = "Lovelace"
    other.save()
    ada.first_name = "Augusta"
    ada.save()
    ada.reload()
    assert (ada.first_name, ada.last_name) == ("Augusta", "Lovelace")
    ada.last_name = None
    ada.save()
    assert "last_name" not in Author._get_collection().find_one({"_id": ada.id})


def test_invalid_documents_are_not_sent() -> None:
    with pytest.raises(me.ValidationError):
        Author(email="nobody").save()
    with pytest.raises(me.ValidationError):
        Entry(title="t", remarks=[Remark(text="x", stars=9)]).save()
    assert Author.objects.count() == 0 and Entry.objects.count() == 0


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Everything(me.Document):
    name = me.StringField(primary_key=True)
    number = me.IntField()
    big = me.LongField()
    ratio = me.FloatField()
    exact = me.Decimal128Field()
    rounded = me.DecimalField(precision=2)
    yes = me.BooleanField()
    when = me.DateTimeField()
    day = me.DateField()
    data = me.BinaryField()
    token = me.UUIDField()
    colour = me.EnumField(Colour)
    options = me.DictField()
    scores = me.MapField(me.IntField())
    matrix = me.ListField(me.ListField(me.IntField()))
    sorted_names = me.SortedListField(me.StringField())
    counter = me.SequenceField()
    anything = me.DynamicField()


def test_values_of_all_types_come_back_equal() -> None:
    token, when = uuid.uuid4(), datetime.datetime(2024, 2, 29, 12, 30, 15, 250_000)
    Everything(
        name="all", number=-7, big=2**40, ratio=0.5, exact=decimal.Decimal("1.10"), rounded="2.675",
        yes=True, when=when, day=when.date(), data=b"\x00\xff", token=token, colour=Colour.BLUE,
        options={"depth": {"max": 3}, "on": [1, "two"]}, scores={"a": 1, "b": 2}, matrix=[[1, 2], [], [3]],
        sorted_names=["b", "a"], anything={"free": True},
    ).save()
    back = Everything.objects.get(pk="all")
    assert (back.number, back.big, back.ratio, back.yes) == (-7, 2**40, 0.5, True)
    assert (back.exact, back.when, back.day) == (decimal.Decimal("1.10"), when, when.date())
    assert (back.data, back.token, back.colour) == (b"\x00\xff", token, Colour.BLUE)
    assert back.options == {"depth": {"max": 3}, "on": [1, "two"]} and back.scores == {"a": 1, "b": 2}
    assert (back.matrix, back.sorted_names, back.counter) == ([[1, 2], [], [3]], ["a", "b"], 1)
    assert back.anything["free"] is True


def test_dictionaries_and_maps_are_queried_and_changed_in_place() -> None:
    Everything(name="x", options={"depth": {"max": 3}}, scores={"a": 1}).save()
    assert Everything.objects(options__depth__max__gt=2).count() == 1
    assert Everything.objects(scores__a=1).count() == 1
    found = Everything.objects.get()
    found.options["depth"]["min"] = 1
    found.scores["b"] = 5
    found.save()
    raw = Everything._get_collection().find_one()
    assert raw["options"] == {"depth": {"max": 3, "min": 1}} and raw["scores"] == {"a": 1, "b": 5}
    Everything.objects(pk="x").update(inc__scores__b=2, set__options__depth__max=9, unset__scores__a=1)
    raw = Everything._get_collection().find_one()
    assert raw["options"]["depth"] == {"max": 9, "min": 1} and raw["scores"] == {"b": 7}


def test_sequences_count_up() -> None:
    for name in "abc":
        Everything(name=name).save()
    assert [one.counter for one in Everything.objects.order_by("pk")] == [1, 2, 3]


def test_dynamic_documents_take_any_field() -> None:
    class Loose(me.DynamicDocument):
        name = me.StringField()

    Loose(name="n", extra=[1, 2], more={"k": "v"}).save()
    found = Loose.objects(extra=2).get()
    assert found.more["k"] == "v"
    del found.extra
    found.save()
    assert "extra" not in Loose._get_collection().find_one()


def test_a_capped_collection() -> None:
    class Log(me.Document):
        line = me.IntField()
        meta = {"max_documents": 3, "max_size": 2_000_000}

    for line in range(5):
        Log(line=line).save()
    assert [log.line for log in Log.objects] == [2, 3, 4]


def test_concrete_children_of_an_abstract_parent() -> None:
    class Base(me.Document):
        made = me.DateTimeField(default=datetime.datetime.now)
        meta = {"abstract": True}

    class Cat(Base):
        name = me.StringField(db_field="n")
        meta = {"collection": "all_cats"}

    Cat(name="Tom").save()
    assert Cat.objects(name="Tom").count() == 1
    raw = Cat._get_collection().find_one()
    assert Cat._get_collection_name() == "all_cats" and raw["n"] == "Tom" and "_cls" not in raw


def test_deleting_and_dropping() -> None:
    ada, _ = write_blog()
    ada.delete()
    assert Author.objects.count() == 1
    Author.drop_collection()
    assert Author.objects.count() == 0
    assert isinstance(ada.id, bson.ObjectId)
