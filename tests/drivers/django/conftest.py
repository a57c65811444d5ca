"""Django, set up once against the server that the runner started, with its tables made by `migrate`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import django
import pytest
from django.conf import settings

needs_set = pytest.mark.skipif(
    os.environ["VELLUM_TOPOLOGY"] == "standalone", reason="a standalone server has no transactions")

settings.configure(
    DATABASES={"default": {
        "ENGINE": "django_mongodb_backend", "HOST": os.environ["VELLUM_URI"], "NAME": "django"}},
    DATABASE_ROUTERS=["django_mongodb_backend.routers.MongoRouter"],
    DEFAULT_AUTO_FIELD="django_mongodb_backend.fields.ObjectIdAutoField",
    INSTALLED_APPS=["apps.Auth", "apps.ContentTypes", "django.contrib.sessions", "shop"],
    MIGRATION_MODULES={"auth": None, "contenttypes": None},
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    SECRET_KEY="tests", USE_TZ=False,
)
django.setup()


@pytest.fixture(scope="session", autouse=True)
def tables() -> Iterator[object]:
    """An empty database, and a collection with indexes for each model."""
    from django.core.management import call_command
    from django.db import connection

    connection.ensure_connection()
    connection.connection.drop_database("django")
    call_command("migrate", run_syncdb=True, verbosity=0)
    yield connection
    connection.close_pool()


@pytest.fixture(autouse=True)
def empty(tables) -> None:
    """Collections without documents."""
    for name in tables.introspection.table_names():
        if name != "django_migrations":
            tables.database[name].delete_many({})
