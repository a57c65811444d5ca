"""Checks what a run on several file systems, with a mongod, and one with journals elsewhere tell of themselves.

    places.py PLACES.json JOURNALS.json
"""

import json
import sys

places, journals = (json.load(open(path)) for path in sys.argv[1:])
prints = {target["name"]: dict(target["fingerprint"]["details"]) for target in places["targets"]}
for name, kind in [("disk-journaled@shm", "tmpfs"), ("mongod@shm", "tmpfs")]:
    assert prints[name]["file system"] == kind, prints[name]
assert prints["disk-journaled@disk"]["file system"] != "tmpfs", prints["disk-journaled@disk"]
# Whoever stands in mongod's place shows its engine and its options.
mongod = next(target["fingerprint"] for target in places["targets"] if target["name"] == "mongod@disk")
assert mongod["engine"] and "--dbpath" in prints["mongod@disk"]["options"], mongod
rows = [row for section in places["sections"] for row in section["rows"] if row["operations"]]
figures = ["syncs per operation", "files made per operation", "files removed per operation"]
for row in rows:
    if row["target"].startswith("disk-"):
        assert all(figure in row["extra"] for figure in figures), row["extra"]
journaled = [row for row in rows if row["target"].startswith("disk-journaled") and row["case"].startswith("drop,")]
assert journaled and all(row["extra"]["syncs per operation"] >= 0.9 for row in journaled), journaled
prints = {target["name"]: dict(target["fingerprint"]["details"]) for target in journals["targets"]}
for name in ["disk-relaxed", "disk-journaled", "postgres"]:
    assert "/journals/" in prints[name]["data"], prints[name]
