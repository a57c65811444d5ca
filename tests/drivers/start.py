"""Data that exists before a recording, and an application that uses it: for replays from a snapshot.

    start.py fill URI      every kind of collection and index
    start.py use URI       reads and changes them
"""

import sys

import pymongo
from pymongo.errors import DuplicateKeyError, WriteError

NAME = "existing"


def fill(database):
    """Creates the data that exists before the recording."""
    people = database.create_collection("people", validator={"age": {"$gte": 0}}, collation={"locale": "de", "strength": 2})
    people.insert_many({"_id": number, "name": f"Person {number}", "age": number % 90,
                        "home": {"type": "Point", "coordinates": [number % 170, number % 80]},
                        "text": f"word{number % 7} common"} for number in range(2000))
    people.create_index("name", unique=True)
    people.create_index([("age", 1), ("name", -1)], partialFilterExpression={"age": {"$gt": 17}})
    people.create_index([("home", "2dsphere")])
    people.create_index([("text", "text")], default_language="none", collation={"locale": "simple"})
    # A document that violates the validation rule.
    database.command("insert", "people", documents=[{"_id": "old", "name": "Old", "age": -1}], bypassDocumentValidation=True)
    log = database.create_collection("log", capped=True, size=100_000, max=50)
    log.insert_many({"line": number} for number in range(80))
    database.create_collection("keyed", clusteredIndex={"key": {"_id": 1}, "unique": True})
    database.keyed.insert_many({"_id": number * 7 % 100} for number in range(100))
    database.create_collection("grown_ups", viewOn="people", pipeline=[{"$match": {"age": {"$gt": 17}}}])
    database.create_collection("empty")


def use(database):
    """Uses the data as an application does."""
    assert sorted(database.list_collection_names())[0] == "empty"
    assert len(list(database.list_collections())) >= 5
    people = database.people
    assert len(list(people.list_indexes())) == 5
    assert people.count_documents({"age": {"$gt": 80}}, hint="age_1_name_-1") > 0
    assert people.find_one({"_id": "old"})["age"] == -1
    assert people.find_one({"name": "PERSON 5"})["_id"] == 5
    assert len(list(people.find({"$text": {"$search": "word3"}}, collation={"locale": "simple"}))) > 200
    list(people.find({"home": {"$near": {"$geometry": {"type": "Point", "coordinates": [1, 1]}}}}).limit(20))
    assert len(list(people.find().batch_size(150))) == 2001
    for number in (5, 6):
        try:
            people.insert_one({"_id": f"again {number}", "name": f"person {number}", "age": 1})
            raise SystemExit("a unique index is missing")
        except DuplicateKeyError:
            pass
    try:
        people.update_one({"_id": 7}, {"$set": {"age": -7}})
        raise SystemExit("a validator is missing")
    except WriteError:
        pass
    assert people.update_many({"age": 3}, {"$inc": {"age": 1}}).modified_count > 0
    assert database.grown_ups.count_documents({}) > 1000
    assert [each["line"] for each in database.log.find()][0] == 30
    database.log.insert_one({"line": 80})
    assert database.log.find_one()["line"] == 31
    assert [each["_id"] for each in database.keyed.find().limit(3)] == [0, 1, 2]
    people.delete_many({"age": {"$lt": 10}})
    assert database.empty.estimated_document_count() == 0


if __name__ == "__main__":
    {"fill": fill, "use": use}[sys.argv[1]](pymongo.MongoClient(sys.argv[2])[NAME])
