"""Rules of the server and of MongoEngine: indexes, delete rules, signals."""

from __future__ import annotations

import mongoengine as me
import pytest
from mongoengine import signals


class Account(me.Document):
    login = me.StringField(unique=True)
    realm = me.StringField()
    number = me.IntField(unique_with="realm")
    phone = me.StringField(unique=True, sparse=True)
    seen = me.DateTimeField()
    score = me.IntField()
    nick = me.StringField()
    meta = {
        "indexes": [
            ("realm", "-score"),
            {"fields": ["seen"], "expireAfterSeconds": 3600},
            {"fields": ["score"], "partialFilterExpression": {"score": {"$gt": 0}}, "name": "positive"},
            "#realm",
            {"fields": ["nick"], "collation": {"locale": "en", "strength": 2}, "name": "folded"},
        ],
    }


def indexes() -> dict[str, dict]:
    """Returns the server's list by name."""
    return {index["name"]: index for index in Account._get_collection().list_indexes()}


def test_declared_indexes_are_made() -> None:
    Account.ensure_indexes()
    made = indexes()
    assert set(made) == {"_id_", "login_1", "number_1_realm_1", "phone_1", "realm_1_score_-1", "seen_1",
                         "positive", "realm_hashed", "folded"}
    assert made["login_1"]["unique"] and made["number_1_realm_1"]["unique"] and made["phone_1"]["sparse"]
    assert made["seen_1"]["expireAfterSeconds"] == 3600
    assert made["positive"]["partialFilterExpression"] == {"score": {"$gt": 0}}
    assert made["folded"]["collation"]["strength"] == 2


def test_making_them_again_changes_nothing() -> None:
    Account.ensure_indexes()
    before = indexes()
    Account.ensure_indexes()
    assert indexes() == before


def test_declared_and_present_indexes_are_compared() -> None:
    Account.ensure_indexes()
    assert Account.compare_indexes()["missing"] == []
    Account._get_collection().create_index("extra")
    assert [("extra", 1)] in Account.compare_indexes()["extra"]
    Account._get_collection().drop_index("extra_1")
    assert [("extra", 1)] not in Account.compare_indexes()["extra"]


def test_unique_fields() -> None:
    Account(login="a", realm="x", number=1).save()
    with pytest.raises(me.NotUniqueError):
        Account(login="a", realm="x", number=2).save()
    with pytest.raises(me.NotUniqueError):
        Account(login="b", realm="x", number=1).save()
    Account(login="b", realm="y", number=1).save()
    with pytest.raises(me.NotUniqueError):
        Account.objects(login="b").update(set__login="a")
    with pytest.raises(me.errors.BulkWriteError):
        Account.objects.insert([Account(login="c", realm="z", number=7), Account(login="c", realm="z", number=8)])
    assert Account.objects(login="c").count() == 1


def test_a_sparse_unique_field_may_be_missing_often() -> None:
    for number in range(3):
        Account(login=str(number), realm="x", number=number).save()
    Account(login="p", phone="1", realm="x", number=9).save()
    with pytest.raises(me.NotUniqueError):
        Account(login="q", phone="1", realm="x", number=10).save()
    assert Account.objects.count() == 4


def test_a_known_id_is_not_inserted_twice() -> None:
    first = Account(login="a", realm="x", number=1).save(force_insert=True)
    with pytest.raises(me.NotUniqueError):
        Account(id=first.id, login="b", realm="x", number=2).save(force_insert=True)


def owners_and(rule: int, many: bool = False) -> tuple[type[me.Document], type[me.Document]]:
    """Returns an owner, and things that refer to it under a rule."""
    class Owner(me.Document):
        name = me.StringField()

    reference = me.ReferenceField(Owner, reverse_delete_rule=rule)

    class Thing(me.Document):
        owner = me.ListField(reference) if many else reference
        label = me.StringField()

    if many:
        Owner.register_delete_rule(Thing, "owner", rule)
    return Owner, Thing


def test_cascade_deletes_the_referring() -> None:
    owner, thing = owners_and(me.CASCADE)
    first, second = owner(name="1").save(), owner(name="2").save()
    for one in (first, first, second):
        thing(owner=one).save()
    first.delete()
    assert [one.owner for one in thing.objects] == [second]
    owner.objects(name="2").delete()
    assert thing.objects.count() == 0


def test_nullify_unsets_the_reference() -> None:
    owner, thing = owners_and(me.NULLIFY)
    first = owner().save()
    thing(owner=first, label="kept").save()
    first.delete()
    assert thing._get_collection().find_one({}, {"_id": 0}) == {"label": "kept"}


def test_deny_keeps_the_referred() -> None:
    owner, thing = owners_and(me.DENY)
    first = owner().save()
    thing(owner=first).save()
    with pytest.raises(me.OperationError):
        first.delete()
    assert owner.objects.count() == 1
    thing.objects.delete()
    first.delete()
    assert owner.objects.count() == 0


def test_pull_takes_the_reference_out_of_lists() -> None:
    owner, thing = owners_and(me.PULL, many=True)
    first, second = owner().save(), owner().save()
    thing(owner=[first, second, first]).save()
    first.delete()
    assert [one.id for one in thing.objects.get().owner] == [second.id]


def test_signals_come_in_order() -> None:
    heard: list[tuple] = []

    class Noted(me.Document):
        name = me.StringField()

        @classmethod
        def pre_save(cls, sender, document, **_):
            """May still change the document."""
            heard.append(("pre_save", document.id is None))
            document.name = document.name.upper()

        @classmethod
        def post_save(cls, sender, document, **extra):
            """Receives whether the document was created."""
            heard.append(("post_save", extra["created"]))

        @classmethod
        def post_delete(cls, sender, document, **_):
            """Called after the server's answer."""
            heard.append(("post_delete", cls.objects.count()))

    hooks = [(getattr(signals, name), getattr(Noted, name)) for name in ("pre_save", "post_save", "post_delete")]
    for signal, hook in hooks:
        signal.connect(hook, sender=Noted)
    try:
        noted = Noted(name="loud").save()
        noted.name = "again"
        noted.save()
        assert Noted.objects.get().name == "AGAIN"
        noted.delete()
    finally:
        for signal, hook in hooks:
            signal.disconnect(hook, sender=Noted)
    assert heard == [("pre_save", True), ("post_save", True), ("pre_save", False), ("post_save", False),
                     ("post_delete", 0)]


def test_bulk_insert_signals() -> None:
    class Counted(me.Document):
        n = me.IntField()

    heard: list[int] = []

    def listen(sender, documents, loaded, **_):
        """Registers once for all documents."""
        heard.append(len(documents))

    signals.post_bulk_insert.connect(listen, sender=Counted)
    try:
        Counted.objects.insert([Counted(n=n) for n in range(250)], load_bulk=False)
    finally:
        signals.post_bulk_insert.disconnect(listen, sender=Counted)
    assert heard == [250] and Counted.objects.count() == 250


def test_two_databases_and_another_collection(client) -> None:
    class Item(me.Document):
        n = me.IntField()

    me.register_connection("second", "odm_second", host=f"mongodb://{client.address[0]}:{client.address[1]}",
                           uuidRepresentation="standard")
    try:
        Item(n=1).save()
        with me.context_managers.switch_db(Item, "second") as elsewhere:
            elsewhere(n=2).save()
            assert elsewhere.objects.get().n == 2
        with me.context_managers.switch_collection(Item, "archive") as archive:
            archive(n=3).save()
            assert archive.objects.get().n == 3
        assert Item.objects.get().n == 1
    finally:
        me.connection.get_connection("second").drop_database("odm_second")
        me.disconnect("second")
