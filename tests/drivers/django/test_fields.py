"""Values that only documents can hold: arrays, embedded models, JSON."""

from __future__ import annotations

import datetime

import pytest
from django.db.models import Count, F, OuterRef, Subquery
from django.db.models.fields.json import KT
from shop.models import Address, Author, Book, Contact, Everything, Hard, Publisher, Review, Soft


def book(title: str, **more) -> Book:
    """Returns a saved book."""
    return Book.objects.create(title=title, pages=1, price=1, published=datetime.date(2024, 1, 1), **more)


def names(query) -> str:
    """Returns titles or names in order."""
    return "".join(sorted(getattr(one, "title", None) or one.name for one in query))


@pytest.mark.parametrize(("wanted", "lookup"), [
    ("a", {"tags": ["x", "y"]}), ("ab", {"tags__contains": ["y"]}), ("a", {"tags__contains": ["y", "x"]}),
    ("abd", {"tags__contained_by": ["x", "y", "z"]}), ("bc", {"tags__overlap": ["z", "w"]}), ("b", {"tags__0": "y"}),
    ("ac", {"tags__0__in": ["x", "w"]}), ("ab", {"tags__len": 2}), ("cd", {"tags__len__lt": 2}),
    ("a", {"tags__0_1": ["x"]}), ("d", {"tags": []}), ("ac", {"tags__in": [["x", "y"], ["w"]]}),
])
def test_arrays(wanted: str, lookup: dict) -> None:
    book("a", tags=["x", "y"]), book("b", tags=["y", "z"]), book("c", tags=["w"]), book("d", tags=[])
    assert names(Book.objects.filter(**lookup)) == wanted


def test_arrays_in_annotations() -> None:
    book("a", tags=["x", "y"]), book("b", tags=["y"])
    assert list(Book.objects.order_by("title").values_list("tags__0", "tags__len")) == [("x", 2), ("y", 1)]
    assert list(Book.objects.values("tags").annotate(n=Count("pk")).order_by("tags").values_list("n", flat=True)) == [1, 1]
    Book.objects.filter(tags__contains=["x"]).update(tags=["z"])
    assert Book.objects.get(title="a").tags == ["z"]
    own = Book.objects.filter(title=OuterRef("title")).values("tags")
    assert names(Book.objects.filter(tags__overlap=Subquery(own))) == "ab"


@pytest.fixture
def publishers() -> None:
    """One in Bonn, one in Berlin, one without an address, one without a contact."""
    for name, city, code in (("b", "Bonn", 53111), ("c", "Berlin", 10115)):
        Publisher.objects.create(name=name, contact=Contact(mail=f"{name}@example.com", address=Address(city=city, code=code)))
    Publisher.objects.create(name="d", contact=Contact(mail="d@example.com"))
    Publisher.objects.create(name="e")


@pytest.mark.parametrize(("wanted", "lookup"), [
    ("b", {"contact__address__city": "Bonn"}), ("bc", {"contact__address__city__startswith": "B"}),
    ("b", {"contact__address__code__gt": 20000}), ("d", {"contact__mail__icontains": "D@"}),
    ("de", {"contact__address__city__isnull": True}), ("e", {"contact__isnull": True}),
    ("bc", {"contact__address__code__in": [53111, 10115]}),
])
def test_embedded_models(publishers, wanted: str, lookup: dict) -> None:
    assert names(Publisher.objects.filter(**lookup)) == wanted


def test_embedded_models_come_back_and_change(publishers) -> None:
    one = Publisher.objects.get(name="b")
    assert isinstance(one.contact.address, Address) and one.contact.address.city == "Bonn"
    one.contact.address.city = "Köln"
    one.save()
    cities = Publisher.objects.filter(contact__address__isnull=False).order_by("contact__address__city")
    assert list(cities.values_list("contact__address__city", flat=True)) == ["Berlin", "Köln"]
    assert Publisher.objects.annotate(code=F("contact__address__code") + 1).get(name="c").code == 10116


@pytest.mark.parametrize(("wanted", "lookup"), [
    ("a", {"reviews__stars": 5}), ("ab", {"reviews__stars__lt": 3}), ("b", {"reviews__text__iexact": "DULL"}),
    ("ab", {"reviews__stars__in": [1, 2]}), ("a", {"reviews__0__stars": 5}), ("a", {"reviews__len": 2}),
    ("a", {"reviews__1__text": "long"}), ("b", {"reviews__stars": 1}),
])
def test_arrays_of_embedded_models(wanted: str, lookup: dict) -> None:
    book("a", reviews=[Review(text="fine", stars=5), Review(text="long", stars=2)])
    book("b", reviews=[Review(text="dull", stars=1)])
    book("c")
    assert names(Book.objects.filter(**lookup)) == wanted
    assert [review.stars for review in Book.objects.get(title="a").reviews] == [5, 2]


def test_embedded_models_of_several_kinds() -> None:
    book("a", cover=Hard(leather=True), covers=[Soft(grams=5), Hard(leather=False)])
    book("b", cover=Soft(grams=80))
    assert [type(one.cover) for one in Book.objects.order_by("title")] == [Hard, Soft]
    assert names(Book.objects.filter(cover__grams__gt=50)) == "b" and names(Book.objects.filter(cover__leather=True)) == "a"
    assert names(Book.objects.filter(covers__grams=5)) == "a"
    assert [type(cover) for cover in Book.objects.get(title="a").covers] == [Soft, Hard]


@pytest.mark.parametrize(("wanted", "lookup"), [
    ("a", {"address__city": "Bonn"}), ("b", {"address__lines__0": "x"}), ("a", {"address__owner__name": "n"}),
    ("ab", {"address__has_key": "city"}), ("a", {"address__has_keys": ["city", "owner"]}),
    ("ab", {"address__has_any_keys": ["owner", "lines"]}), ("c", {"address__isnull": True}),
    ("b", {"address__number__gt": 3}), ("b", {"address__city": None}), ("a", {"address__city__startswith": "Bo"}),
    ("a", {"address__number__isnull": True, "address__isnull": False}), ("b", {"address__number__in": [4, 7]}),
    ("a", {"address": {"city": "Bonn", "owner": {"name": "n"}}}),
])
def test_json(wanted: str, lookup: dict) -> None:
    Author.objects.create(name="a", address={"city": "Bonn", "owner": {"name": "n"}})
    Author.objects.create(name="b", address={"city": None, "lines": ["x", "y"], "number": 7})
    Author.objects.create(name="c")
    assert names(Author.objects.filter(**lookup)) == wanted


def test_json_in_annotations() -> None:
    Author.objects.create(name="a", address={"city": "Bonn", "n": [1, 2]})
    assert Author.objects.annotate(city=F("address__city")).get().city == "Bonn"
    assert Author.objects.annotate(city=KT("address__city")).filter(city="Bonn").count() == 1
    assert list(Author.objects.order_by("address__city").values_list("address__n__1", flat=True)) == [2]


def test_binary_and_matrices() -> None:
    Everything.objects.create(
        text="t", small=0, whole=0, big=0, positive=0, ratio=0, exact=0, yes=True, day="2024-01-01", time="10:00",
        moment="2024-01-01 10:00", span=datetime.timedelta(1), data=b"\x01", free=[1, 2], address="::1", reference="b" * 24,
        matrix=[[1, 2], [3, 4]])
    assert Everything.objects.filter(data=b"\x01").exists()
    assert Everything.objects.filter(matrix__1__0=3).exists() and not Everything.objects.filter(matrix__0__1=3).exists()
    assert Everything.objects.filter(free__1=2, matrix__contains=[[1, 2]]).exists()
    assert Everything.objects.values_list("matrix__0_1", flat=True).get() == [[1, 2]]
