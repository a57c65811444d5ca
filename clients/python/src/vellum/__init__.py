"""Vellum for test suites: a server that ends with its tests, and databases copied by reference.

With PyTest nothing has to be imported: the plug-in's fixtures (see ``vellum.pytest_plugin``) are there once the
package is installed. Elsewhere::

    with vellum.Server() as server:
        client = pymongo.MongoClient(server.uri)
        vellum.fork(client, "template", "mine")
"""

from .server import Server, SharedServer, StartError, find_binary
from .slate import clock, drop_snapshot, fork, reset, restore, snapshot

__all__ = [
    "Server",
    "SharedServer",
    "StartError",
    "clock",
    "drop_snapshot",
    "find_binary",
    "fork",
    "reset",
    "restore",
    "snapshot",
]
