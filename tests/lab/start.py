#!/usr/bin/env python3
"""Records reads of existing data, and replays them from a snapshot of this data: the replies must be equal.

    tests/lab/start.py BINARY FOLDER
"""

import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from client import Client  # noqa: E402
from record import SECONDS, Program  # noqa: E402

DOCUMENTS = 25_000


def client(program):
    return Client(program.uri.removeprefix("mongodb://").rstrip("/"))


def fill(client):
    """Creates collections with options, more documents than a batch, indexes with and without the collation,
    and a view."""
    def run(**command):
        client.command({**command, "$db": "shop"})

    for first in range(0, DOCUMENTS, 5000):
        run(insert="plain", documents=[{"_id": number, "n": number} for number in range(first, first + 5000)])
    run(createIndexes="plain", indexes=[{"key": {"n": 1}, "name": "n_1", "unique": True}])
    run(create="german", collation={"locale": "de"})
    run(insert="german", documents=[{"_id": 1, "s": "a"}])
    simple = {"key": {"u": 1}, "name": "u_1", "collation": {"locale": "simple"}}
    run(createIndexes="german", indexes=[{"key": {"s": 1}, "name": "s_1"}, simple])
    run(create="small", viewOn="plain", pipeline=[{"$match": {"n": {"$lt": 5}}}])


def main(binary, folder):
    recording, snapshot = f"{folder}/start.rec", f"{folder}/start.backup"
    serve = [binary, "serve", "--port", "0", "--parent-pipe", "--log-level", "error"]
    server, other = Program(*serve), Program(*serve)
    fill(client(server))
    recorder = Program(binary, "lab", "record", "--listen", "127.0.0.1:0", "--parent-pipe", "--upstream", server.uri,
                       "--snapshot", snapshot, recording)
    connection = client(recorder)
    for command in ({"find": "plain", "filter": {"n": DOCUMENTS - 1}}, {"count": "plain"}, {"find": "small"},
                    {"listIndexes": "german"}, {"listIndexes": "plain"}, {"insert": "german", "documents": [{"_id": 2}]}):
        connection.command({**command, "$db": "shop"})
    connection.socket.close()
    if recorder.end() != 0:
        raise SystemExit("the recorder failed")
    done = subprocess.run([binary, "lab", "replay", recording, "--check", "--speed", "max", "--rounds", "2", "--quiet",
                           "--start", snapshot, "--target", f"other={other.uri}"], timeout=SECONDS, capture_output=True, text=True)
    if done.returncode != 0 or server.end() != 0 or other.end() != 0:
        raise SystemExit(f"a replay from a snapshot: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    main(*sys.argv[1:])
