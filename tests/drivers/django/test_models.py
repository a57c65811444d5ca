"""Models: fields of every type, saving, changing, deleting, relations, users and sessions."""

from __future__ import annotations

import datetime
import decimal
import uuid

import bson
import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.models import Group, Permission, User
from django.contrib.sessions.backends.db import SessionStore
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection
from django.db.models import F, Value
from django.db.models.functions import Concat
from shop.models import Author, Book, Everything, Place, Publisher, Restaurant


def book(title: str, **more) -> Book:
    """Returns a saved book."""
    return Book.objects.create(
        **{"title": title, "pages": 100, "price": "9.99", "published": datetime.date(2024, 2, 29), **more})


def test_values_of_all_types_come_back_equal() -> None:
    values = {
        "key": uuid.uuid4(), "text": "lang " * 100, "slug": "a-b", "small": -3, "whole": 2**31 - 1, "big": 2**62,
        "positive": 7, "ratio": 0.1, "exact": decimal.Decimal("12345.678"), "yes": True, "maybe": None,
        "day": datetime.date(1, 1, 1), "time": datetime.time(23, 59, 59, 123_000),
        "moment": datetime.datetime(2024, 2, 29, 12, 30, 15, 250_000), "span": datetime.timedelta(days=-3, seconds=5),
        "data": b"\x00\xff", "free": {"a": [1, None, {"b": "c"}], "d.e": True}, "address": "2001:db8::1",
        "reference": bson.ObjectId(), "matrix": [[1, 2], [3, 4]],
    }
    Everything.objects.create(**values)
    found = Everything.objects.get(pk=values["key"])
    assert {name: getattr(found, name) for name in values} == values
    raw = connection.database["shop_everything"].find_one()
    assert isinstance(raw["exact"], bson.Decimal128) and isinstance(raw["reference"], bson.ObjectId)
    assert raw["day"] == datetime.datetime(1, 1, 1) and isinstance(raw["big"], bson.Int64)
    for name in set(values) - {"matrix", "free", "data"}:
        assert Everything.objects.filter(**{name: values[name]}).exists(), name


def test_saving_changing_and_deleting() -> None:
    one = book("a")
    assert isinstance(one.pk, bson.ObjectId) and one == Book.objects.get(pk=str(one.pk))
    one.pages = 200
    one.save(update_fields=["pages"])
    Book.objects.filter(pk=one.pk).update(title="b")
    one.refresh_from_db()
    assert (one.title, one.pages) == ("b", 200)
    one.pages = F("pages") + 5
    one.save()
    one.refresh_from_db()
    assert one.pages == 205
    assert one.delete() == (1, {"shop.Book": 1})
    with pytest.raises(Book.DoesNotExist):
        Book.objects.get(pk=one.pk)
    with pytest.raises(ValidationError):
        Author(name="x" * 51).full_clean()


def test_what_must_be_unique() -> None:
    publisher = Publisher.objects.create(name="p")
    with pytest.raises(IntegrityError):
        Publisher.objects.create(name="p")
    book("a", publisher=publisher)
    with pytest.raises(IntegrityError):
        book("a", publisher=publisher)
    book("long", pages=1001, publisher=publisher)
    book("long", pages=900)
    with pytest.raises(IntegrityError):
        book("long", pages=2000)
    with pytest.raises(ValidationError):
        Publisher(name="p").full_clean()


def test_many_at_once() -> None:
    Author.objects.bulk_create([Author(name=name, age=age) for age, name in enumerate("abcd", 20)])
    everyone = list(Author.objects.all())
    assert [author.name for author in everyone] == ["a", "b", "c", "d"]
    for author in everyone:
        author.age += 10
    assert Author.objects.bulk_update(everyone, ["age"]) == 4
    assert Author.objects.filter(age__gte=32).update(age=F("age") * 2, name=Concat("name", Value("!"))) == 2
    assert list(Author.objects.values_list("name", "age")) == [("a", 30), ("b", 31), ("c!", 64), ("d!", 66)]
    assert set(Author.objects.in_bulk([everyone[0].pk])) == {everyone[0].pk}
    assert Author.objects.filter(age__lt=40).delete() == (2, {"shop.Author": 2})


def test_get_or_create_and_update_or_create() -> None:
    first, made = Author.objects.get_or_create(name="a", defaults={"age": 1})
    again, made_again = Author.objects.get_or_create(name="a", defaults={"age": 2})
    assert (made, made_again, again.age) == (True, False, 1) and first == again
    changed, made = Author.objects.update_or_create(name="a", defaults={"age": 3})
    assert (changed.age, made) == (3, False)
    _, made = Author.objects.update_or_create(name="b", defaults={"age": 3}, create_defaults={"age": 4})
    assert made and Author.objects.get(name="b").age == 4


def test_foreign_keys() -> None:
    big, small = Publisher.objects.create(name="big"), Publisher.objects.create(name="small")
    book("a", publisher=big), book("b", publisher=big), book("c", publisher=small), book("d")
    assert [one.title for one in big.books.order_by("title")] == ["a", "b"]
    found = Book.objects.select_related("publisher").order_by("title")
    assert [one.publisher and one.publisher.name for one in found] == ["big", "big", "small", None]
    assert Book.objects.filter(publisher__name="big").count() == 2
    assert Book.objects.exclude(publisher__name="big").count() == 2
    assert Publisher.objects.filter(books__title__in=["a", "c"]).distinct().count() == 2
    assert Book.objects.filter(publisher__isnull=True).get().title == "d"
    assert list(Book.objects.order_by("publisher__name", "-title").values_list("title", flat=True)) == ["d", "b", "a", "c"]
    assert big.delete()[1] == {"shop.Book": 2, "shop.Publisher": 1}
    assert Book.objects.count() == 2


def test_many_to_many() -> None:
    ann, ben, eve = [Author.objects.create(name=name) for name in ("Ann", "Ben", "Eve")]
    one, two = book("a"), book("b")
    one.authors.add(ann, ben)
    two.authors.set([ben, eve])
    assert [author.name for author in one.authors.all()] == ["Ann", "Ben"]
    assert [found.title for found in ben.books.order_by("title")] == ["a", "b"]
    assert Book.objects.filter(authors__name="Eve").get() == two
    assert Author.objects.filter(books__title="a").exclude(books__title="b").get() == ann
    one.authors.remove(ann)
    two.authors.clear()
    assert one.authors.count() == 1 and two.authors.count() == 0
    ann.friends.add(ben)
    assert ben.friends.get() == ann


def test_inheritance_by_two_collections() -> None:
    restaurant = Restaurant.objects.create(name="Zum Löwen", stars=2)
    assert Place.objects.get().restaurant == restaurant
    assert Restaurant.objects.filter(name__startswith="Zum", stars__gt=1).get().pk == restaurant.pk
    Restaurant.objects.filter(stars=2).update(name="Löwe", stars=3)
    restaurant.refresh_from_db()
    assert (restaurant.name, restaurant.stars) == ("Löwe", 3)
    assert restaurant.delete()[0] == 2


def test_users_groups_and_permissions() -> None:
    user = User.objects.create_user("ann", "ann@example.com", "secret")
    assert authenticate(username="ann", password="secret") == user
    assert authenticate(username="ann", password="wrong") is None
    from django.contrib.auth.management import create_permissions
    from django.apps import apps
    from django.contrib.contenttypes.models import ContentType

    ContentType.objects.clear_cache()
    create_permissions(apps.get_app_config("shop"), verbosity=0)
    group = Group.objects.create(name="editors")
    group.permissions.add(Permission.objects.get(codename="change_book"))
    user.groups.add(group)
    fresh = User.objects.get(pk=user.pk)
    assert fresh.has_perm("shop.change_book") and not fresh.has_perm("shop.delete_book")
    assert User.objects.with_perm("shop.change_book", backend="django.contrib.auth.backends.ModelBackend").get() == user


def test_sessions() -> None:
    session = SessionStore()
    session["cart"] = [1, 2]
    session.create()
    assert SessionStore(session.session_key)["cart"] == [1, 2]
    session.flush()
    assert not SessionStore().exists(session.session_key or "")
    SessionStore.clear_expired()
