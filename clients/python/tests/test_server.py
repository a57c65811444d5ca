"""The server as a process: its start, errors of a failed start, and its end with the processes that use it."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pymongo
import pytest

import vellum_db
from vellum_db import program

HOLDER = """
import sys, time, pathlib, vellum_db
server = vellum_db.{server}
pid = getattr(server, "process", None)
print(server.uri, pid.pid if pid else "", flush=True)
time.sleep(60)
"""


def hold(server):
    """Starts a process that holds a server (an expression in Python). Returns the process and the connection string."""
    command = [sys.executable, "-c", HOLDER.format(server=server)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    return holder, holder.stdout.readline().split()[0]


def responds(uri):
    with pymongo.MongoClient(uri, serverSelectionTimeoutMS=300) as client:
        try:
            return client.admin.command("ping")["ok"] == 1
        except pymongo.errors.PyMongoError:
            return False


def ends(uri):
    """Returns True if the server ends within a few seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not responds(uri):
            return True
        time.sleep(0.05)
    return False


def test_a_server_starts_and_stops():
    with vellum_db.Server(["--replset", "rs0"]) as server:
        assert "replicaSet=rs0" in server.uri and responds(server.uri)
    assert ends(server.uri)


def test_a_failed_start_raises_the_servers_error():
    with pytest.raises(vellum_db.StartError, match="unexpected argument '--prot'"):
        vellum_db.Server(["--prot", "1"])
    with pytest.raises(vellum_db.StartError, match="not found"):
        vellum_db.Server(binary="/nowhere/vellum")


def test_settings_of_another_server_in_the_environment_have_no_effect(monkeypatch, tmp_path):
    monkeypatch.setenv("MONGO_INITDB_ROOT_USERNAME", "root")
    monkeypatch.setenv("MONGO_INITDB_ROOT_PASSWORD_FILE", "/nowhere")
    monkeypatch.setenv("VELLUM_DATA", str(tmp_path / "other"))
    with vellum_db.Server(["--data", tmp_path / "own"]):
        assert (tmp_path / "own").exists()
    monkeypatch.setenv("VELLUM_POSTGRES", "host=nowhere.invalid")
    with vellum_db.Server() as server, pymongo.MongoClient(server.uri) as client:
        client.test.c.insert_one({"_id": 1})
    with vellum_db.Server(user=("mine", "secret")) as server, pymongo.MongoClient(server.uri) as client:
        client.test.c.insert_one({"_id": 1})
    assert not (tmp_path / "other").exists()


@pytest.mark.skipif(os.name == "nt", reason="the other program is a shell script")
def test_a_program_that_is_no_server_is_ended(tmp_path):
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho hello\nexec sleep 60\n")
    other.chmod(0o755)
    with pytest.raises(vellum_db.StartError, match="status -9"):
        vellum_db.Server(binary=str(other))


@pytest.mark.skipif(os.name == "nt", reason="Windows does not fork")
def test_a_forked_child_does_not_delay_the_end():
    server = vellum_db.Server()
    child = os.fork()
    if child == 0:
        # Holds the server's pipe open.
        signal.pause()
    server.stop()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert server.process.returncode == 0


@pytest.mark.skipif(os.name == "nt", reason="Windows does not replace the process")
def test_a_link_named_mongod_selects_its_options(monkeypatch):
    started = []
    monkeypatch.setattr(program, "bundled_program", lambda: pathlib.Path(sys.executable))
    monkeypatch.setattr(os, "execv", lambda _, arguments: started.append(arguments))
    for name in ["/usr/bin/vellum-db", "/usr/local/bin/mongod"]:
        monkeypatch.setattr(sys, "argv", [name, "--version"])
        program.main()
    assert started == [["vellum", "--version"], ["mongod", "--version"]]


def test_the_server_ends_with_a_killed_parent():
    holder, uri = hold("Server()")
    assert responds(uri)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert ends(uri)


@pytest.mark.skipif(os.name == "nt", reason="Windows shares no server")
def test_a_shared_server_ends_with_the_last_process(tmp_path):
    shared = f"SharedServer(pathlib.Path({str(tmp_path)!r}))"
    holders = [hold(shared) for _ in range(3)]
    uris = {uri for _, uri in holders}
    assert len(uris) == 1
    (uri,) = uris
    # The process that started it ends first.
    for holder, _ in holders[:2]:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    time.sleep(0.3)
    assert responds(uri)
    holders[2][0].send_signal(signal.SIGKILL)
    holders[2][0].communicate()
    assert ends(uri)
    # A later process finds no server and starts another.
    again = vellum_db.SharedServer(tmp_path)
    assert responds(again.uri)
    again.close()
    assert ends(again.uri)


def test_a_server_with_a_user_requires_login():
    with vellum_db.Server(user=("root", "p@ss:/word")) as server:
        with pymongo.MongoClient(server.uri) as client:
            client.test.c.insert_one({"_id": 1})
            vellum_db.fork(client, "test", "other")
            vellum_db.clock(client, freeze=True)
            assert client.other.c.count_documents({}) == 1
            host = server.uri.rpartition("@")[2]
        with pymongo.MongoClient(f"mongodb://{host}") as without_login:
            with pytest.raises(pymongo.errors.OperationFailure, match="requires authentication"):
                without_login.test.c.find_one()


def test_tls():
    fixtures = pathlib.Path(__file__).parents[3] / "crates/wire/tests/fixtures"
    certificate = str(fixtures / "plain.pem")
    options = ["--tls-mode", "require", "--tls-certificate-key-file", certificate]
    with vellum_db.Server(options, uri_options=f"tlsCAFile={certificate}") as server:
        assert "tls=true" in server.uri and responds(server.uri)
        assert not responds(server.uri.split("?")[0])
