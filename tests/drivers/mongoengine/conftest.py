"""One connection for all tests, and an empty database for each.

Models are declared next to the tests that use them. Their indexes are created again for every test, since
MongoEngine records per class that they exist.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import mongoengine
import pytest
from mongoengine.base import common

DATABASE = "odm"


@pytest.fixture(scope="session", autouse=True)
def client() -> Iterator[object]:
    """MongoEngine's default connection, to the runner's server."""
    connected = mongoengine.connect(DATABASE, host=os.environ["VELLUM_URI"], uuidRepresentation="standard")
    yield connected
    mongoengine.disconnect()


@pytest.fixture(autouse=True)
def empty(client) -> None:
    """Drops all collections; each class creates its own again."""
    client.drop_database(DATABASE)
    for model in common._document_registry.values():
        if hasattr(model, "_collection"):
            model._collection = None
