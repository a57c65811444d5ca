"""Writers at each write concern level, and a reader at majority. All record their acknowledged results."""

from __future__ import annotations

import dataclasses
import threading
import time

import pymongo
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

LEVELS = {
    "w: 1": WriteConcern(w=1),
    "j: true": WriteConcern(w=1, j=True),
    "w: majority": WriteConcern(w="majority"),
    "w: 2": WriteConcern(w=2),
}
DATABASE = "failover"
PAUSE = 0.004


@dataclasses.dataclass
class Outcomes:
    """Acknowledged results of one writer."""

    acknowledged: set[str] = dataclasses.field(default_factory=set)
    failed: set[str] = dataclasses.field(default_factory=set)
    counted: int = 0
    uncounted: int = 0
    errors: dict[str, int] = dataclasses.field(default_factory=dict)

    def note(self, error: PyMongoError) -> None:
        """Counts an error by its kind."""
        code = getattr(error, "code", None)
        kind = f"{type(error).__name__} {code}" if code else type(error).__name__
        self.errors[kind] = self.errors.get(kind, 0) + 1


def connect(uri: str) -> pymongo.MongoClient:
    """Returns a client as in applications: it knows all fronts and retries."""
    return pymongo.MongoClient(uri, serverSelectionTimeoutMS=20_000, socketTimeoutMS=25_000,
                               connectTimeoutMS=3_000, heartbeatFrequencyMS=1_000)


class Writer(threading.Thread):
    """Inserts, counts and runs transactions until it is stopped."""

    def __init__(self, client: pymongo.MongoClient, level: str, name: str, stop: threading.Event):
        super().__init__(name=name, daemon=True)
        self.client, self.level, self.stop, self.outcomes = client, level, stop, Outcomes()
        database = client.get_database(DATABASE, write_concern=LEVELS[level])
        self.log, self.counters = database["log"], database["counters"]
        self.unexpected: BaseException | None = None

    def run(self) -> None:
        """Continues to write."""
        number = 0
        try:
            while not self.stop.is_set():
                number += 1
                if number % 6 == 0:
                    self._transaction(number)
                elif number % 2:
                    self._insert(number)
                else:
                    self._count()
                time.sleep(PAUSE)
        except BaseException as error:  # noqa: BLE001
            self.unexpected = error

    def _insert(self, number: int) -> None:
        key = f"{self.name}-{number}"
        try:
            self.log.insert_one({"_id": key, "writer": self.name, "number": number})
            self.outcomes.acknowledged.add(key)
        except PyMongoError as error:
            self.outcomes.failed.add(key)
            self.outcomes.note(error)

    def _count(self) -> None:
        try:
            self.counters.update_one({"_id": self.name}, {"$inc": {"n": 1}}, upsert=True)
            self.outcomes.counted += 1
        except PyMongoError as error:
            self.outcomes.uncounted += 1
            self.outcomes.note(error)

    def _transaction(self, number: int) -> None:
        keys = [f"{self.name}-{number}-{part}" for part in "ab"]

        def both(session: pymongo.client_session.ClientSession) -> None:
            for key in keys:
                self.log.insert_one({"_id": key, "writer": self.name, "number": number}, session=session)

        try:
            with self.client.start_session() as session:
                session.with_transaction(both, write_concern=LEVELS[self.level])
            self.outcomes.acknowledged.update(keys)
        except PyMongoError as error:
            self.outcomes.failed.update(keys)
            self.outcomes.note(error)


class Reader(threading.Thread):
    """Reads counters at majority. Values that it has read must not be lost."""

    def __init__(self, client: pymongo.MongoClient, stop: threading.Event):
        super().__init__(name="reader", daemon=True)
        database = client.get_database(DATABASE)
        self.counters = database.get_collection("counters", read_concern=ReadConcern("majority"))
        self.stop, self.seen, self.reads = stop, {}, 0

    def run(self) -> None:
        """Continues to read."""
        while not self.stop.is_set():
            try:
                for counter in self.counters.find({}):
                    self.seen[counter["_id"]] = max(counter["n"], self.seen.get(counter["_id"], 0))
                self.reads += 1
            except PyMongoError:
                pass
            time.sleep(5 * PAUSE)
