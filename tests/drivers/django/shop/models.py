"""Publishers, authors, books and their embedded parts; a model with a field of each type."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django_mongodb_backend.fields import (
    ArrayField, EmbeddedModelArrayField, EmbeddedModelField, ObjectIdField, PolymorphicEmbeddedModelArrayField,
    PolymorphicEmbeddedModelField,
)
from django_mongodb_backend.managers import MongoManager
from django_mongodb_backend.models import EmbeddedModel


class Address(EmbeddedModel):
    city = models.CharField(max_length=50, db_index=True)
    code = models.IntegerField(null=True)


class Contact(EmbeddedModel):
    mail = models.CharField(max_length=50)
    address = EmbeddedModelField(Address, null=True)


class Publisher(models.Model):
    name = models.CharField(max_length=50, unique=True)
    contact = EmbeddedModelField(Contact, null=True)


class Author(models.Model):
    name = models.CharField(max_length=50)
    age = models.IntegerField(null=True)
    friends = models.ManyToManyField("self")
    address = models.JSONField(null=True)
    objects = MongoManager()

    class Meta:
        ordering = ["name"]
        indexes = [models.Index(fields=["age", "-name"], name="age_name")]


class Review(EmbeddedModel):
    text = models.CharField(max_length=50)
    stars = models.IntegerField()


class Hard(EmbeddedModel):
    leather = models.BooleanField()


class Soft(EmbeddedModel):
    grams = models.IntegerField()


class Book(models.Model):
    title = models.CharField(max_length=50)
    pages = models.IntegerField()
    rating = models.FloatField(default=0)
    price = models.DecimalField(decimal_places=2, max_digits=6)
    published = models.DateField()
    publisher = models.ForeignKey(Publisher, models.CASCADE, related_name="books", null=True)
    authors = models.ManyToManyField(Author, related_name="books")
    tags = ArrayField(models.CharField(max_length=20), default=list)
    reviews = EmbeddedModelArrayField(Review, null=True)
    cover = PolymorphicEmbeddedModelField([Hard, Soft], null=True)
    covers = PolymorphicEmbeddedModelArrayField([Hard, Soft], null=True)
    objects = MongoManager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["title", "publisher"], name="title_publisher"),
            models.UniqueConstraint(fields=["title"], condition=Q(pages__gt=1000), name="long_titles"),
        ]
        indexes = [models.Index(fields=["pages"], condition=Q(rating__gte=4), name="good")]


class Everything(models.Model):
    key = models.UUIDField(primary_key=True, default=uuid.uuid4)
    text = models.TextField()
    slug = models.SlugField(null=True)
    small = models.SmallIntegerField()
    whole = models.IntegerField()
    big = models.BigIntegerField()
    positive = models.PositiveIntegerField()
    ratio = models.FloatField()
    exact = models.DecimalField(decimal_places=3, max_digits=20)
    yes = models.BooleanField()
    maybe = models.BooleanField(null=True)
    day = models.DateField()
    time = models.TimeField()
    moment = models.DateTimeField()
    span = models.DurationField()
    data = models.BinaryField()
    free = models.JSONField()
    address = models.GenericIPAddressField()
    reference = ObjectIdField()
    matrix = ArrayField(ArrayField(models.IntegerField(), size=2))


class Place(models.Model):
    name = models.CharField(max_length=50)


class Restaurant(Place):
    stars = models.IntegerField(default=0)
