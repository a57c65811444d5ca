"""Checks the fingerprints and the syncs in two reports: data on several file systems and a mongod; journals in another directory.

    places.py PLACES.json JOURNALS.json
"""

import json
import sys

places, journals = (json.load(open(path)) for path in sys.argv[1:])
prints = {target["name"]: dict(target["fingerprint"]["details"]) for target in places["targets"]}
for name, kind in [("disk-journaled@shm", "tmpfs"), ("mongod@shm", "tmpfs")]:
    assert prints[name]["file system"] == kind, prints[name]
assert prints["disk-journaled@disk"]["file system"] != "tmpfs", prints["disk-journaled@disk"]
# The fingerprint of the mongod, which Vellum replaces, has its engine and its options.
mongod = next(target["fingerprint"] for target in places["targets"] if target["name"] == "mongod@disk")
assert mongod["engine"] and "--dbpath" in prints["mongod@disk"]["options"], mongod
rows = [row for section in places["sections"] for row in section["rows"] if row["operations"]]
figures = ["syncs per operation", "files created per operation", "files removed per operation"]
for row in rows:
    if row["target"].startswith("disk-"):
        assert all(figure in row["extra"] for figure in figures), row["extra"]
# Expected syncs: one for each write that waits for the journal. The engine creates files only at checkpoints. Data on
# tmpfs is not written to a disk.
SYNCS = {"delete_many on an empty collection": 0, "insert 20, delete_many": 2, "drop, create with 4 indexes": 2,
         "fork a template of 20 collections": 1}
seen = set()
for row in rows:
    name, _, place = row["target"].partition("@")
    known, extra = SYNCS.get(row["case"]), row["extra"]
    if known is None or not name.startswith("disk-"):
        continue
    seen.add((row["target"], row["case"]))
    expected = known if name == "disk-journaled" else 0
    # A checkpoint, or the sync of every 100 ms, may intervene, which matters on a busy machine with few
    # operations.
    tolerance = max(0.5, 3 / row["operations"])
    assert expected <= extra["syncs per operation"] <= expected + tolerance, row
    assert extra["files created per operation"] <= tolerance and extra["files removed per operation"] <= tolerance, row
    # Two small changes of the catalog take about a kilobyte.
    written = extra["written to disk per operation, kB"]
    assert written == 0 if place == "shm" else written > 0.5 or not known, row
assert len(seen) == 3 * 2 * len(SYNCS), seen
prints = {target["name"]: dict(target["fingerprint"]["details"]) for target in journals["targets"]}
for name in ["disk-relaxed", "disk-journaled", "postgres"]:
    assert "/journals/" in prints[name]["data"], prints[name]
