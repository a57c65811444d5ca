"""Increments counters with PyMongo: `callers.py URI CLIENTS`. `retries` describes input and output."""

import json
import sys
import threading

import pymongo
from pymongo.errors import PyMongoError


class Caller(threading.Thread):
    """A client that increments its own counter until `stop`."""

    stop = threading.Event()

    def __init__(self, client: pymongo.MongoClient, kind: str, number: int):
        super().__init__(daemon=True)
        self.id, self.kind, self.client = f"python-{kind}-{number}", kind, client
        self.returned = self.failed = 0

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                getattr(self, self.kind)()
                self.returned += 1
            except PyMongoError as error:
                self.failed += 1
                print(f"{self.id}: {error}", file=sys.stderr)

    def transaction(self) -> None:
        def increment_both(session):
            for half in ("a", "b"):
                self.client["crash"][half].update_one({"_id": self.id}, {"$inc": {"n": 1}}, session=session)

        with self.client.start_session() as session:
            session.with_transaction(increment_both)

    def update(self) -> None:
        self.client["crash"]["a"].update_one({"_id": self.id}, {"$inc": {"n": 1}})

    def modify(self) -> None:
        self.client["crash"]["a"].find_one_and_update({"_id": self.id}, {"$inc": {"n": 1}})


def main() -> None:
    """Runs until standard input closes."""
    uri, clients = sys.argv[1], int(sys.argv[2])
    with pymongo.MongoClient(uri, serverSelectionTimeoutMS=60_000) as client:
        kinds = ("transaction", "update", "modify")
        callers = [Caller(client, kind, number) for kind in kinds for number in range(clients)]
        for caller in callers:
            for half in ("a", "b"):
                client["crash"][half].insert_one({"_id": caller.id, "n": 0})
        print("ready", flush=True)
        for caller in callers:
            caller.start()
        sys.stdin.read()
        Caller.stop.set()
        for caller in callers:
            caller.join()
        print(json.dumps({caller.id: [caller.returned, caller.failed] for caller in callers}), flush=True)


if __name__ == "__main__":
    main()
