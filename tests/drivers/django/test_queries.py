"""Query sets: lookups, order, annotations, aggregates, subqueries, functions, raw pipelines."""

from __future__ import annotations

import datetime
import decimal

import pytest
from django.db.models import (
    Avg, Case, CharField, Count, DateTimeField, Exists, ExpressionWrapper, F, FloatField, IntegerField, Max, Min, OuterRef,
    Q, StdDev, Subquery, Sum, Value, Variance, When,
)
from django.db.models import functions as fn
from shop.models import Author, Book, Everything, Publisher


@pytest.fixture(autouse=True)
def books(empty) -> None:
    """Four books of two publishers and three authors."""
    ann, ben, eve = [Author.objects.create(name=name, age=age) for name, age in (("Ann", 30), ("Ben", 40), ("Eve", None))]
    big, small = Publisher.objects.create(name="Big"), Publisher.objects.create(name="Small")
    for title, pages, rating, price, month, publisher, authors in (
        ("Alpha", 100, 4.5, "10.00", 1, big, [ann]), ("Beta", 200, 3.0, "20.50", 2, big, [ann, ben]),
        ("Gamma", 300, 4.0, "15.25", 2, small, [ben]), ("delta", 400, 1.5, "5.00", 12, None, [eve]),
    ):
        one = Book.objects.create(
            title=title, pages=pages, rating=rating, price=price, published=datetime.date(2024, month, 10),
            publisher=publisher)
        one.authors.set(authors)


def titles(query) -> str:
    """Returns first letters, in order of pages unless the query has another order."""
    query = query if query.query.order_by else query.order_by("pages")
    return "".join(book.title[0] for book in query)


@pytest.mark.parametrize(("wanted", "condition"), [
    ("B", Q(title="Beta")), ("B", Q(title__iexact="BETA")), ("BGd", Q(title__contains="ta") | Q(title__contains="amm")),
    ("Bd", Q(title__icontains="TA")), ("A", Q(title__startswith="Al")), ("d", Q(title__istartswith="DE")),
    ("Bd", Q(title__endswith="ta")), ("Bd", Q(title__iendswith="TA")), ("AB", Q(title__regex="^[AB]")),
    ("ABd", Q(title__iregex="^(a|b|D)")), ("AB", Q(title__in=["Alpha", "Beta", "x"])), ("", Q(title__in=[])),
    ("Gd", Q(pages__gt=200)), ("BGd", Q(pages__gte=200)), ("A", Q(pages__lt=200)), ("AB", Q(pages__lte=200)),
    ("BG", Q(pages__range=(150, 300))), ("d", Q(publisher__isnull=True)), ("ABG", Q(publisher__isnull=False)),
    ("ABd", ~Q(title="Gamma")), ("AG", Q(rating__gte=4) & Q(pages__lt=400)), ("ABd", Q(pages__lte=200) ^ Q(rating__lt=2)),
    ("BG", Q(published__month=2)), ("ABGd", Q(published__year=2024)), ("ABGd", Q(published__day__gt=9)),
    ("d", Q(published__gt=datetime.date(2024, 6, 1))),
    ("BG", Q(published__range=(datetime.date(2024, 2, 1), datetime.date(2024, 2, 29)))),
    ("B", Q(price__gt=decimal.Decimal("15.25"))), ("AG", Q(price__range=(decimal.Decimal(10), decimal.Decimal("15.25")))),
    ("BG", Q(pages__gt=F("rating") * 50, pages__lt=F("rating") * 100)), ("AB", Q(authors__name="Ann")),
    ("d", Q(authors__age__isnull=True)), ("AB", Q(publisher__name__startswith="B")),
])
def test_lookups(wanted: str, condition: Q) -> None:
    assert titles(Book.objects.filter(condition)) == wanted


def test_order_and_slices() -> None:
    assert titles(Book.objects.order_by("-rating")) == "AGBd"
    assert titles(Book.objects.order_by(fn.Lower("title"))) == "ABdG"
    assert titles(Book.objects.order_by(F("publisher__name").desc(nulls_last=True), "-pages")) == "GBAd"
    assert titles(Book.objects.order_by("published__month", "-pages")) == "AGBd"
    assert [book.title for book in Book.objects.order_by("pages")[1:3]] == ["Beta", "Gamma"]
    assert Book.objects.order_by("pages").first().title == "Alpha" and Book.objects.order_by("pages").last().title == "delta"
    assert Book.objects.latest("published").title == "delta" and Book.objects.earliest("published").title == "Alpha"
    assert titles(Book.objects.order_by("pages").reverse()) == "dGBA"
    assert Book.objects.order_by("?").count() == 4


def test_parts_of_documents() -> None:
    assert list(Book.objects.order_by("pages").values("title", "publisher__name")[:1]) == [
        {"title": "Alpha", "publisher__name": "Big"}]
    assert set(Book.objects.values_list("publisher__name", flat=True)) == {"Big", "Small", None}
    assert list(Author.objects.distinct().values_list("age", flat=True).order_by("age")) == [None, 30, 40]
    assert Book.objects.only("title").get(pages=100).pages == 100
    assert Book.objects.defer("title").get(pages=100).title == "Alpha"
    assert list(Book.objects.dates("published", "month")) == [datetime.date(2024, month, 1) for month in (1, 2, 12)]
    assert [book.title for book in Book.objects.order_by("title").iterator(chunk_size=2)] == ["Alpha", "Beta", "Gamma", "delta"]


def test_counting_and_aggregates() -> None:
    sums = Book.objects.aggregate(
        n=Count("*"), whole=Sum("pages"), mean=Avg("rating"), least=Min("price"), most=Max("title"), spread=StdDev("pages"),
        variance=Variance("pages"), good=Count("pk", filter=Q(rating__gte=4)), publishers=Count("publisher", distinct=True))
    assert sums == {
        "n": 4, "whole": 1000, "mean": 3.25, "least": decimal.Decimal("5.00"), "most": "delta",
        "spread": pytest.approx(111.803, abs=0.001), "variance": pytest.approx(12500), "good": 2, "publishers": 2}
    assert Book.objects.filter(pages__gt=1000).aggregate(s=Sum("pages", default=0), m=Max("pages")) == {"s": 0, "m": None}
    assert Book.objects.filter(rating__gt=2).count() == 3 and not Book.objects.filter(pages=1).exists()


def test_grouping() -> None:
    groups = Book.objects.values("publisher__name").annotate(n=Count("pk"), pages=Sum("pages")).order_by("publisher__name")
    assert [(row["publisher__name"], row["n"], row["pages"]) for row in groups] == [
        (None, 1, 400), ("Big", 2, 300), ("Small", 1, 300)]
    assert [(one.name, one.n) for one in Publisher.objects.annotate(n=Count("books")).order_by("name")] == [
        ("Big", 2), ("Small", 1)]
    assert Publisher.objects.annotate(n=Count("books")).filter(n__gt=1).get().name == "Big"
    assert [(one.name, one.best) for one in Author.objects.annotate(best=Max("books__rating"))] == [
        ("Ann", 4.5), ("Ben", 4.0), ("Eve", 1.5)]
    months = Book.objects.annotate(month=fn.ExtractMonth("published")).values("month").annotate(n=Count("pk")).order_by("month")
    assert [(row["month"], row["n"]) for row in months] == [(1, 1), (2, 2), (12, 1)]
    assert Book.objects.annotate(n=Count("authors")).aggregate(Avg("n")) == {"n__avg": 1.25}


def test_annotations() -> None:
    query = Book.objects.annotate(
        weight=ExpressionWrapper(F("pages") * F("rating") / 2 - 1, output_field=FloatField()),
        rest=F("pages") % 3, power=F("rating") ** 2.0,
        size=Case(When(pages__lt=200, then=Value("thin")), When(pages__lt=400, then=Value("fair")),
                  default=Value("thick"), output_field=CharField()),
        constant=Value(7), house=F("publisher__name"))
    found = [(one.weight, one.rest, one.power, one.size, one.constant, one.house) for one in query.order_by("pages")]
    assert found == [
        (224.0, 1, 20.25, "thin", 7, "Big"), (299.0, 2, 9.0, "fair", 7, "Big"), (599.0, 0, 16.0, "fair", 7, "Small"),
        (299.0, 1, 2.25, "thick", 7, None)]
    assert titles(query.filter(size="fair", weight__gt=300)) == "G"
    assert Book.objects.alias(rest=F("pages") % 200).filter(rest=0).count() == 2
    assert Book.objects.annotate(bits=F("pages").bitand(4)).filter(bits=4).count() == 2
    Book.objects.update(rating=Case(When(rating__gte=4, then=Value(5.0)), default=F("rating") + 1))
    assert sorted(Book.objects.values_list("rating", flat=True)) == [2.5, 4.0, 5.0, 5.0]


def test_subqueries() -> None:
    newest = Book.objects.filter(publisher=OuterRef("pk")).order_by("-pages").values("title")[:1]
    found = Publisher.objects.annotate(newest=Subquery(newest)).order_by("name").values_list("name", "newest")
    assert list(found) == [("Big", "Beta"), ("Small", "Gamma")]
    good = Book.objects.filter(publisher=OuterRef("pk"), rating__gt=4.2)
    assert Publisher.objects.filter(Exists(good)).get().name == "Big"
    assert Publisher.objects.filter(~Exists(good)).get().name == "Small"
    assert titles(Book.objects.filter(publisher__in=Publisher.objects.filter(name="Big"))) == "AB"
    assert titles(Book.objects.filter(pages__gt=Subquery(Book.objects.filter(title="Beta").values("pages")[:1]))) == "Gd"
    assert titles(Book.objects.exclude(authors__in=Author.objects.filter(age__lt=35))) == "Gd"


def test_unions() -> None:
    both = Book.objects.filter(pages=100).values_list("title").union(Book.objects.filter(pages=400).values_list("title"))
    assert sorted(both) == [("Alpha",), ("delta",)]
    names = Author.objects.order_by().values_list("name").union(Publisher.objects.values_list("name"), all=True)
    assert sorted(names) == [("Ann",), ("Ben",), ("Big",), ("Eve",), ("Small",)]
    assert list(names.order_by("name")[1:3]) == [("Ben",), ("Big",)]
    assert names.count() == 5


@pytest.mark.parametrize(("wanted", "function"), [
    ("beta", fn.Lower("title")), ("BETA", fn.Upper("title")), (4, fn.Length("title")), ("et", fn.Substr("title", 2, 2)),
    ("Be", fn.Left("title", 2)), ("ta", fn.Substr("title", 3)), ("Bexa", fn.Replace("title", Value("t"), Value("x"))),
    ("Beta!", fn.Concat("title", Value("!"))), (2, fn.StrIndex("title", Value("eta"))), ("Beta", fn.Trim("title")),
    ("none", fn.Coalesce(fn.NullIf("title", Value("Beta")), Value("none"))), (200, fn.Greatest("pages", "rating", output_field=FloatField())),
    (3.0, fn.Least("pages", "rating", output_field=FloatField())), (3, fn.Ceil("rating")), (3, fn.Floor("rating")), (3, fn.Abs("rating")),
    (9.0, fn.Power("rating", 2)), (3.0, fn.Round("rating")), (pytest.approx(1.0986, abs=1e-4), fn.Ln("rating")),
    (pytest.approx(1.7320, abs=1e-4), fn.Sqrt("rating")), (pytest.approx(0.1411, abs=1e-4), fn.Sin("rating")),
    (2.0, fn.Mod("pages", 3)), (pytest.approx(171.887, abs=1e-3), fn.Degrees("rating")),
    ("200", fn.Cast("pages", CharField())), (20, fn.Cast("price", IntegerField())), (2024, fn.ExtractYear("published")),
    (6, fn.ExtractWeek("published")), (6, fn.ExtractIsoWeekDay("published")), (7, fn.ExtractWeekDay("published")),
    (datetime.date(2024, 2, 1), fn.TruncMonth("published")), (datetime.date(2024, 2, 5), fn.TruncWeek("published")),
    (datetime.date(2024, 1, 1), fn.TruncQuarter("published")), (datetime.date(2024, 1, 1), fn.TruncYear("published")),
    (datetime.datetime(2024, 2, 10), fn.Cast("published", DateTimeField())),
])
def test_functions(wanted, function) -> None:
    assert Book.objects.annotate(made=function).get(title="Beta").made == wanted


def test_times() -> None:
    moment = datetime.datetime(2024, 2, 29, 23, 30, 15, 250_000)
    Everything.objects.create(
        text="", small=0, whole=0, big=0, positive=0, ratio=0, exact=0, yes=True, day=moment.date(), time=moment.time(),
        moment=moment, span=datetime.timedelta(hours=1), data=b"", free={}, address="::1", reference="a" * 24, matrix=[])
    found = Everything.objects.annotate(
        hour=fn.TruncHour("moment"), day_of=fn.TruncDate("moment"), time_of=fn.TruncTime("moment"), later=F("moment") + F("span"),
        age=fn.Now() - F("moment")).get()
    assert found.hour == moment.replace(minute=0, second=0, microsecond=0)
    assert (found.day_of, found.time_of) == (moment.date(), moment.time())
    assert found.later == datetime.datetime(2024, 3, 1, 0, 30, 15, 250_000) and found.age > datetime.timedelta(days=365)
    assert Everything.objects.filter(moment__hour=23, moment__minute__lt=40, moment__date=moment.date()).exists()
    assert Everything.objects.filter(moment__time__gt=datetime.time(23), moment__week_day=5).exists()


def test_raw_pipelines() -> None:
    found = Book.objects.raw_aggregate([{"$match": {"pages": {"$gt": 100}}}, {"$sort": {"pages": -1}}, {"$limit": 2}])
    assert [book.title for book in found] == ["delta", "Gamma"]


def test_explaining() -> None:
    text = Book.objects.filter(pages__gt=100, rating__gte=4).explain()
    assert "queryPlanner" in text and "winningPlan" in text
    assert "executionStats" in Book.objects.filter(pages=3).explain(verbosity="executionStats")


def test_negations_and_nulls() -> None:
    assert [author.name for author in Author.objects.filter(age__lt=100)] == ["Ann", "Ben"]
    assert [author.name for author in Author.objects.exclude(age__lt=35)] == ["Ben", "Eve"]
    assert [author.name for author in Author.objects.filter(~Q(age=30))] == ["Ben", "Eve"]
    assert [author.name for author in Author.objects.filter(age=None)] == ["Eve"]
    assert [author.name for author in Author.objects.order_by(F("age").asc(nulls_last=True))] == ["Ann", "Ben", "Eve"]
