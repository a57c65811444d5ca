"""Tables: indexes of the models, migrations of every kind, introspection, transactions."""

from __future__ import annotations

import pytest
from conftest import needs_set
from django.db import IntegrityError, connection, migrations, models
from django.db.migrations.state import ProjectState
from django_mongodb_backend import transaction
from django_mongodb_backend.fields import ObjectIdAutoField
from pymongo.errors import DuplicateKeyError
from shop.models import Author, Book, Publisher


def indexes(table: str) -> dict:
    """The keys of a collection's indexes, by name."""
    return {name: dict(index["key"]) for name, index in connection.database[table].index_information().items()}


def test_indexes_as_the_models_say() -> None:
    found = connection.database["shop_book"].index_information()
    assert found["good"]["partialFilterExpression"] == {"rating": {"$gte": 4.0}}
    assert found["title_publisher"]["unique"] and dict(found["title_publisher"]["key"]) == {"title": 1, "publisher_id": 1}
    assert "pages" in str(found["long_titles"]["partialFilterExpression"]) and found["long_titles"]["unique"]
    assert {"publisher_id": 1} in indexes("shop_book").values()
    assert indexes("shop_author")["age_name"] == {"age": 1, "name": -1}
    assert {"contact.address.city": 1} in indexes("shop_publisher").values()


def test_introspection() -> None:
    with connection.cursor() as cursor:
        assert {"shop_book", "shop_author", "auth_user"} <= set(connection.introspection.table_names(cursor))
        found = connection.introspection.get_constraints(cursor, "shop_book")
    assert found["title_publisher"]["unique"] and found["title_publisher"]["columns"] == ["title", "publisher_id"]
    assert any(index["primary_key"] for index in found.values())


class Walk:
    """Operations of migrations, applied in sequence to one state."""

    def __init__(self) -> None:
        self.state = ProjectState()

    def __call__(self, operation) -> None:
        before = self.state.clone()
        operation.state_forwards("walk", self.state)
        with connection.schema_editor() as editor:
            operation.database_forwards("walk", editor, before, self.state)
        self.before = before

    def back(self, operation) -> None:
        """Reverts the last operation."""
        with connection.schema_editor() as editor:
            operation.database_backwards("walk", editor, self.state, self.before)
        self.state = self.before

    def model(self, name: str) -> type[models.Model]:
        """Returns the model after the last operation."""
        return self.state.apps.get_model("walk", name)


@pytest.fixture
def walk() -> Walk:
    """Returns a table of animals with one row."""
    for table in ("walk_animal", "walk_beast", "walk_owner"):
        connection.database[table].drop()
    made = Walk()
    made(migrations.CreateModel("Animal", [("id", ObjectIdAutoField(primary_key=True)),
                                          ("name", models.CharField(max_length=20))]))
    made.model("Animal").objects.create(name="Tom")
    return made


def test_fields_come_and_go(walk) -> None:
    walk(migrations.AddField("Animal", "legs", models.IntegerField(default=4)))
    assert connection.database["walk_animal"].find_one({}, {"_id": 0}) == {"name": "Tom", "legs": 4}
    walk(migrations.RenameField("Animal", "legs", "feet"))
    assert walk.model("Animal").objects.get().feet == 4
    walk(migrations.RemoveField("Animal", "feet"))
    assert connection.database["walk_animal"].find_one({}, {"_id": 0}) == {"name": "Tom"}


def test_indexes_come_and_go(walk) -> None:
    walk(migrations.AlterField("Animal", "name", models.CharField(max_length=20, db_index=True)))
    assert {"name": 1} in indexes("walk_animal").values()
    walk(migrations.AlterField("Animal", "name", models.CharField(max_length=20, unique=True)))
    with pytest.raises(IntegrityError):
        walk.model("Animal").objects.create(name="Tom")
    walk(migrations.AlterField("Animal", "name", models.CharField(max_length=30)))
    assert set(indexes("walk_animal")) == {"_id_"}
    operation = migrations.AddIndex("Animal", models.Index(fields=["-name"], name="back"))
    walk(operation)
    assert indexes("walk_animal")["back"] == {"name": -1}
    walk.back(operation)
    assert "back" not in indexes("walk_animal")


def test_constraints_come_and_go(walk) -> None:
    constraint = models.UniqueConstraint(fields=["name"], condition=models.Q(name__gt="S"), name="late")
    walk(migrations.AddConstraint("Animal", constraint))
    animal = walk.model("Animal")
    animal.objects.create(name="A"), animal.objects.create(name="A")
    with pytest.raises(IntegrityError):
        animal.objects.create(name="Tom")
    walk(migrations.RemoveConstraint("Animal", "late"))
    animal.objects.create(name="Tom")
    operation = migrations.AddConstraint("Animal", models.UniqueConstraint(fields=["name"], name="all"))
    with pytest.raises(DuplicateKeyError, match="Index build failed: .*walk_animal"):
        walk(operation)


def test_tables_are_renamed_and_dropped(walk) -> None:
    walk(migrations.RenameModel("Animal", "Beast"))
    assert walk.model("Beast").objects.get().name == "Tom"
    assert "walk_animal" not in connection.introspection.table_names()
    walk(migrations.CreateModel("Owner", [
        ("id", ObjectIdAutoField(primary_key=True)), ("beast", models.ForeignKey("walk.Beast", models.CASCADE))]))
    assert {"beast_id": 1} in indexes("walk_owner").values()
    walk(migrations.RunPython(lambda apps, _: apps.get_model("walk", "Beast").objects.update(name="Tim")))
    assert walk.model("Beast").objects.get().name == "Tim"
    walk(migrations.DeleteModel("Owner"))
    walk(migrations.DeleteModel("Beast"))
    assert not {"walk_owner", "walk_beast"} & set(connection.introspection.table_names())


@needs_set
def test_a_transaction_commits_whole() -> None:
    with transaction.atomic():
        publisher = Publisher.objects.create(name="p")
        Author.objects.create(name="a")
        with transaction.atomic():
            Publisher.objects.filter(pk=publisher.pk).update(name="q")
        assert connection.database["shop_author"].count_documents({}) == 0
        assert Author.objects.count() == 1
    assert (Publisher.objects.get().name, Author.objects.get().name) == ("q", "a")


@needs_set
def test_a_transaction_that_fails_changes_nothing() -> None:
    Publisher.objects.create(name="p")
    called = []
    with pytest.raises(IntegrityError), transaction.atomic():
        Author.objects.create(name="a")
        transaction.on_commit(lambda: called.append(1))
        Publisher.objects.create(name="p")
    assert Author.objects.count() == 0 and called == []

    @transaction.atomic
    def fails() -> None:
        Author.objects.create(name="b")
        raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert Author.objects.count() == 0 and Book.objects.count() == 0
