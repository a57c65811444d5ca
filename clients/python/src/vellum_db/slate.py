"""Vellum's clean-slate commands as functions, for PyMongo's sync and async clients.

Each returns the result of ``client.admin.command``: a reply for a ``MongoClient``, an awaitable for an
``AsyncMongoClient``.
"""

from __future__ import annotations

import datetime
from typing import Any, Optional


def fork(client: Any, origin: str, to: str, replace: bool = False) -> Any:
    """Forks ``origin`` to ``to`` (copy-on-write): collections, indexes, validators, documents."""
    return client.admin.command("forkDatabase", origin, to=to, replace=replace)


def reset(client: Any, database: str) -> Any:
    """Empties every collection. Collections, indexes and validators stay."""
    return client.admin.command("resetDatabase", database)


def snapshot(client: Any, database: str, name: str, replace: bool = False) -> Any:
    """Creates a named snapshot of the database."""
    return client.admin.command("snapshotDatabase", database, name=name, replace=replace)


def restore(client: Any, database: str, name: str) -> Any:
    """Restores the database from a snapshot, which stays."""
    return client.admin.command("restoreDatabase", database, name=name)


def changes(client: Any, database: str, since: Optional[str] = None, origin: Optional[str] = None) -> Any:
    """Return the changes since a snapshot, or since the fork from ``origin``: a cursor of events like the events
    of change streams. ``assert not list(changes(client, "mine", since="ready"))`` is a test that changed
    nothing.
    """
    base = {"since": since} if origin is None else {"origin": origin}
    return client.admin.cursor_command("diffDatabase", database, **base)


def drop_snapshot(client: Any, database: str, name: str) -> Any:
    """Remove a snapshot."""
    return client.admin.command("dropSnapshot", database, name=name)


def clock(
    client: Any,
    now: Optional[datetime.datetime] = None,
    advance: Optional[datetime.timedelta] = None,
    freeze: Optional[bool] = None,
    follow: bool = False,
    sweep_ttl: bool = False,
) -> Any:
    """Sets, advances, freezes or releases the server's clock, which TTL, ``$$NOW`` and ``$currentDate`` use."""
    arguments: dict[str, Any] = {}
    if now is not None:
        arguments["set"] = now
    if advance is not None:
        arguments["advance"] = round(advance.total_seconds() * 1000)
    if freeze is not None:
        arguments["freeze"] = freeze
    if follow:
        arguments["follow"] = True
    if sweep_ttl:
        arguments["sweepTTL"] = True
    return client.admin.command("vellumClock", 1, **arguments)
