"""The workload of the clients until the server dies: a mix of all operations, each client separately."""

from __future__ import annotations

import random
import threading
from typing import Any, Callable

import pymongo
from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne, WriteConcern
from pymongo.errors import AutoReconnect, ServerSelectionTimeoutError

from model import Client, State, Step

SHARED = "shared"
CONCERNS = [
    WriteConcern(w=1),
    WriteConcern(w=1, j=False),
    WriteConcern(w=1, j=True),
    WriteConcern(w="majority"),
    WriteConcern(w=0),
]
PERMANENT_INDEXES = {"u_1": {"key": {"u": 1}, "unique": True}, "a_1": {"key": {"a": 1}}}


class Worker(threading.Thread):
    """One client: a connection, a model of its operations, a random generator."""

    def __init__(self, uri: str, number: int, client: Client, seed: str, documents: int, pad: int):
        super().__init__(name=f"worker-{number}", daemon=True)
        self.number, self.client, self.documents, self.pad = number, client, documents, pad
        self.random = random.Random(seed)
        self.connection = pymongo.MongoClient(
            uri, maxPoolSize=1, retryWrites=False, retryReads=False,
            serverSelectionTimeoutMS=700, connectTimeoutMS=2000, socketTimeoutMS=20000)
        self.database = self.connection["crash"]
        self.unexpected: BaseException | None = None

    def run(self) -> None:
        choices: list[tuple[int, Callable[[], None]]] = [
            (20, self.insert_one), (8, self.insert_many), (20, self.update_one), (8, self.upsert),
            (6, self.update_many), (8, self.delete_one), (3, self.delete_many),
            (8, self.find_and_modify), (6, self.bulk), (4, self.index), (4, self.collection)]
        actions = [action for _, action in choices]
        weights = [weight for weight, _ in choices]
        try:
            while True:
                self.random.choices(actions, weights)[0]()
        except (AutoReconnect, ServerSelectionTimeoutError):
            pass
        except BaseException as error:  # noqa: BLE001: reported by the main thread
            self.unexpected = error
        finally:
            self.connection.close()

    # Existing documents and their possible changes.

    def document(self, number: int) -> dict[str, Any]:
        """Returns a new version of a document."""
        version = self.random.getrandbits(30)
        tags = [self.random.randrange(5) for _ in range(self.random.randrange(4))]
        pad = "x" * self.random.randrange(self.pad)
        return {"_id": f"{self.number}-{number}", "w": self.number, "n": number, "v": version,
                "u": f"{self.number}-{number}-{version}", "a": tags, "pad": pad}

    def own(self) -> dict[str, dict[str, Any]]:
        """Returns this client's documents in the shared collection."""
        return {key[2]: value for key, value in self.client.now().items() if key[:2] == (SHARED, "doc")}

    def random_document(self) -> dict[str, Any] | None:
        """Returns one of this client's documents."""
        documents = self.own()
        return documents[self.random.choice(sorted(documents))] if documents else None

    def absent(self, count: int) -> list[dict[str, Any]]:
        """Returns new documents with free numbers."""
        taken = {document["n"] for document in self.own().values()}
        free = [number for number in range(self.documents) if number not in taken]
        return [self.document(number) for number in self.random.sample(free, min(count, len(free)))]

    def run_command(self, steps: list[Step], call: Callable[[Any], None]) -> None:
        """Sends one command with some write concern."""
        concern = self.random.choice(CONCERNS)
        self.client.send(steps)
        call(self.database.get_collection(SHARED, write_concern=concern))
        if concern.acknowledged:
            self.client.acknowledge()

    # Commands on documents.

    def insert_one(self) -> None:
        for document in self.absent(1):
            self.run_command([put(document)], lambda shared: shared.insert_one(document))

    def insert_many(self) -> None:
        documents = self.absent(self.random.randint(2, 10))
        if documents:
            steps = [put(document) for document in documents]
            self.run_command(steps, lambda shared: shared.insert_many(documents, ordered=True))

    def update_one(self) -> None:
        if before := self.random_document():
            after = {**before, "v": before["v"] + 1, "a": before["a"][:4] + [self.random.randrange(5)]}
            change = {"$inc": {"v": 1}, "$set": {"a": after["a"]}}
            self.run_command([put(after)], lambda shared: shared.update_one({"_id": before["_id"]}, change))

    def upsert(self) -> None:
        document = self.document(self.random.randrange(self.documents))
        self.run_command(
            [put(document)], lambda shared: shared.replace_one({"_id": document["_id"]}, document, upsert=True))

    def update_many(self) -> None:
        bound = self.random.randrange(self.documents)
        after = [{**document, "v": document["v"] + 1} for document in self.own().values() if document["n"] < bound]
        steps = [Step({doc(document["_id"]): document for document in after}, group=True)]
        chosen = {"w": self.number, "n": {"$lt": bound}}
        self.run_command(steps, lambda shared: shared.update_many(chosen, {"$inc": {"v": 1}}))

    def delete_one(self) -> None:
        if before := self.random_document():
            self.run_command(
                [Step({doc(before["_id"]): None})], lambda shared: shared.delete_one({"u": before["u"]}))

    def delete_many(self) -> None:
        bound = self.random.randrange(self.documents // 3)
        deleted = [document for document in self.own().values() if document["n"] < bound]
        steps = [Step({doc(document["_id"]): None for document in deleted}, group=True)]
        chosen = {"w": self.number, "n": {"$lt": bound}}
        self.run_command(steps, lambda shared: shared.delete_many(chosen))

    def find_and_modify(self) -> None:
        if before := self.random_document():
            # A different pad, so that the record changes its size.
            after = {**before, "pad": "y" * self.random.randrange(self.pad)}
            self.client.send([put(after)])
            shared = self.database.get_collection(SHARED, write_concern=WriteConcern(w=1, j=True))
            found = shared.find_one_and_update({"_id": before["_id"]}, {"$set": {"pad": after["pad"]}})
            self.client.acknowledge()
            assert found == before, (found, before)

    def bulk(self) -> None:
        inserted, before = self.absent(2), self.random_document()
        if not inserted or not before:
            return
        writes: list[Any] = [InsertOne(document) for document in inserted]
        steps = [put(document) for document in inserted]
        replaced = self.document(before["n"])
        writes.append(ReplaceOne({"_id": before["_id"]}, replaced))
        steps.append(put(replaced))
        changed = {**inserted[0], "v": 7}
        writes += [UpdateOne({"_id": changed["_id"]}, {"$set": {"v": 7}}), DeleteOne({"_id": before["_id"]})]
        steps += [put(changed), Step({doc(before["_id"]): None})]
        self.run_command(steps, lambda shared: shared.bulk_write(writes, ordered=True))

    # Commands on collections and indexes, which are always acknowledged.

    def name(self) -> str:
        return f"own-{self.number}-{self.random.randrange(2)}"

    def collection(self) -> None:
        """Creates a collection of three documents, drops it, or renames it."""
        name, state = self.name(), self.client.now()
        if (name, "exists", "") not in state:
            # Large documents, so that a drop frees space.
            documents = [{"_id": number, "v": self.random.getrandbits(20), "pad": "z" * 10 * self.pad}
                         for number in range(3)]
            self.client.send([Step({(name, "exists", ""): True})])
            self.database.create_collection(name)
            self.client.acknowledge()
            self.client.send([Step({(name, "doc", document["_id"]): document}) for document in documents])
            self.database[name].insert_many(documents)
        else:
            changes: State = {key: None for key in state if key[0] == name}
            if self.random.random() < 0.3:
                other = f"{name}-renamed-{self.random.getrandbits(16)}"
                renamed: State = {(other, *key[1:]): value for key, value in state.items() if key[0] == name}
                self.client.send([Step({**changes, **renamed})])
                self.database[name].rename(other)
                self.client.acknowledge()
                changes = {key: None for key in renamed}
                name = other
            self.client.send([Step(changes)])
            self.database.drop_collection(name)
        self.client.acknowledge()

    def index(self) -> None:
        """Creates or drops an index: of the shared collection by one client, otherwise of an own collection."""
        name, state = SHARED if self.number == 0 else self.name(), self.client.now()
        if name != SHARED and (name, "exists", "") not in state:
            return
        key = (name, "index", "v_1_n_-1")
        if key in state:
            self.client.send([Step({key: None})])
            self.database[name].drop_index("v_1_n_-1")
        else:
            self.client.send([Step({key: {"key": {"v": 1, "n": -1}}})])
            self.database[name].create_index([("v", 1), ("n", -1)])
        self.client.acknowledge()


def doc(number: str) -> tuple[str, str, str]:
    """Returns the model's key of a document in the shared collection."""
    return (SHARED, "doc", number)


def put(document: dict[str, Any]) -> Step:
    """Sets a document."""
    return Step({doc(document["_id"]): document})


def read(uri: str) -> tuple[dict[int, State], int, list[str]]:
    """Returns each client's state, the number of entries compared by validate, and the errors."""
    states: dict[int, State] = {}
    wrong: list[str] = []
    entries = 0
    with pymongo.MongoClient(uri) as connection:
        database = connection["crash"]
        for name in database.list_collection_names():
            collection = database[name]
            shared = name == SHARED
            owner = None if shared else int(name.split("-")[1])
            documents = list(collection.find())
            for document in documents:
                client = document["w"] if shared else owner
                states.setdefault(client, {})[(name, "doc", document["_id"])] = document
            if not shared:
                states.setdefault(owner, {})[(name, "exists", "")] = True
            indexes = {index: {key: dict(value) if key == "key" else value for key, value in spec.items() if key != "v"}
                       for index, spec in collection.index_information().items() if index != "_id_"}
            for index, spec in indexes.items():
                spec["key"] = {field: int(direction) for field, direction in spec["key"].items()}
                if shared and index in PERMANENT_INDEXES:
                    if spec != PERMANENT_INDEXES[index]:
                        wrong.append(f"index {index}: {spec}")
                    continue
                states.setdefault(0 if shared else owner, {})[(name, "index", index)] = spec
            if shared and not PERMANENT_INDEXES.keys() <= indexes.keys():
                wrong.append(f"indexes are missing: found {sorted(indexes)}")
            # Every index must return equal documents.
            for index in indexes:
                found = {document["_id"] for document in collection.find().hint(index)}
                if found != {document["_id"] for document in documents}:
                    wrong.append(f"{name}: index {index} returns {len(found)} of {len(documents)} documents")
            if collection.count_documents({}) != len(documents) or \
                    collection.estimated_document_count() != len(documents):
                wrong.append(f"{name}: counts differ from {len(documents)} documents")
            result = database.command("validate", name, full=True)
            entries += sum(result["keysPerIndex"].values())
            if not result["valid"] or result["warnings"]:
                wrong.append(f"validate {name}: {result}")
    return states, entries, wrong
