"""One client and one empty database for each test, with collections for its models."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable

import beanie
import pytest
import pytest_asyncio
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

DATABASE = "beanie"
Start = Callable[..., Awaitable[AsyncDatabase]]

needs_set = pytest.mark.skipif(
    os.environ["VELLUM_TOPOLOGY"] == "standalone", reason="a standalone server has no transactions")


@pytest_asyncio.fixture
async def client() -> AsyncIterator[AsyncMongoClient]:
    """Connects, and drops the database of the previous test."""
    connected: AsyncMongoClient = AsyncMongoClient(os.environ["VELLUM_URI"], tz_aware=False)
    await connected.drop_database(DATABASE)
    yield connected
    await connected.close()


@pytest_asyncio.fixture
async def start(client: AsyncMongoClient) -> Start:
    """Returns a function that initializes Beanie with models, like the start of an application."""

    async def initialise(*models: type, **options: object) -> AsyncDatabase:
        database = client[DATABASE]
        await beanie.init_beanie(database=database, document_models=list(models), **options)
        return database

    return initialise
