"""Vellum for test suites: a server that ends with its tests, and databases copied by reference.

With PyTest nothing has to be imported: the fixtures of ``pytest_vellum.plugin`` are available if pytest-vellum is
installed. Elsewhere::

    with vellum_db.Server() as server:
        client = pymongo.MongoClient(server.uri)
        vellum_db.fork(client, "template", "mine")
"""

from .approval import approve
from .program import StartError, find_binary
from .server import Server, SharedServer
from .slate import changes, clock, drop_snapshot, fork, reset, restore, snapshot

__all__ = [
    "Server",
    "SharedServer",
    "StartError",
    "approve",
    "changes",
    "clock",
    "drop_snapshot",
    "find_binary",
    "fork",
    "reset",
    "restore",
    "snapshot",
]
