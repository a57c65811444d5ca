"""pytest-mongo and pymongo-inmemory, both with Vellum as a program called mongod."""

import os
import pathlib
import signal
import subprocess
import time

import pymongo
import pytest
from pytest_mongo import factories

mongo_process = factories.mongo_proc(executable=os.environ["VELLUM_AS_MONGOD"], port=None)
mongo_client = factories.mongodb("mongo_process")


def test_pytest_mongo(mongo_client):
    mongo_client["test"]["people"].insert_one({"name": "Ada"})
    assert mongo_client["test"]["people"].count_documents({}) == 1


def test_pytest_mongo_cleans_up(mongo_client):
    assert mongo_client["test"]["people"].count_documents({}) == 0


@pytest.mark.parametrize("engine", ["wiredTiger", "ephemeralForTest"])
def test_pymongo_inmemory(monkeypatch, engine):
    program = pathlib.Path(os.environ["VELLUM_AS_MONGOD"])
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYMONGOIM__USE_LOCAL_MONGOD", "True")
    monkeypatch.setenv("PYMONGOIM__STORAGE_ENGINE", engine)
    from pymongo_inmemory import MongoClient

    with MongoClient() as client:
        client["test"]["people"].insert_one({"name": "Ada"})
        assert client["test"]["people"].count_documents({}) == 1


def test_scripts_that_fork_and_read_the_number_of_the_process(tmp_path):
    """As in Debian's old start-up scripts and in CI recipes."""
    program, data, log, pid_file = os.environ["VELLUM_AS_MONGOD"], tmp_path / "db", tmp_path / "log", tmp_path / "pid"
    data.mkdir()
    config = tmp_path / "mongod.conf"
    config.write_text(f"storage:\n  dbPath: {data}\nsystemLog:\n  destination: file\n  path: {log}\n  logAppend: true\n"
                      f"processManagement:\n  fork: true\n  pidFilePath: {pid_file}\nnet:\n  port: 0\n  bindIp: 127.0.0.1\n")
    done = subprocess.run([program, "--config", config], capture_output=True, text=True, timeout=60, check=True)
    assert "child process started successfully, parent exiting" in done.stdout
    pid = int(pid_file.read_text())
    assert f"forked process: {pid}" in done.stdout
    lines = [line for line in log.read_text().splitlines() if '"id":23016' in line]
    assert len(lines) == 1 and '"msg":"Waiting for connections"' in lines[0]
    port = int(lines[0].split('"port":')[1].split(",")[0])
    with pymongo.MongoClient("127.0.0.1", port) as client:
        client["test"]["people"].insert_one({"name": "Ada"})
        os.kill(pid, signal.SIGUSR1)
        deadline = time.monotonic() + 10
        while len(list(tmp_path.glob("log*"))) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert client["test"]["people"].count_documents({}) == 1
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 30
    while pid_file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def command_of(words, tmp_path):
    """Starts a server in mongod's place, and returns it with its port. The caller stops it."""
    data = tmp_path / "db"
    data.mkdir(exist_ok=True)
    command = [os.environ["VELLUM_AS_MONGOD"], "--dbpath", str(data), "--port", "0", *words]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in server.stdout:
        if '"id":23016' in line:
            return server, int(line.split('"port":')[1].split(",")[0])
    raise AssertionError(f"{command} ended with {server.wait(30)}")


def test_a_set_waits_for_its_initiation_and_keeps_it(tmp_path):
    """As in the recipes of juju and Ansible: ask, initiate after code 94, wait for the primary."""
    for initiated in [False, True]:
        server, port = command_of(["--replSet", "rs0", "--storageEngine", "wiredTiger"], tmp_path)
        try:
            with pymongo.MongoClient("localhost", port, directConnection=True, serverSelectionTimeoutMS=5000) as client:
                if not initiated:
                    with pytest.raises(pymongo.errors.OperationFailure) as refused:
                        client.admin.command("replSetGetStatus")
                    assert refused.value.code == 94
                    assert client.admin.command("hello")["isreplicaset"] is True
                    with pytest.raises(pymongo.errors.NotPrimaryError):
                        client["test"]["people"].insert_one({})
                    config = {"_id": "rs0", "version": 1, "members": [{"_id": 0, "host": f"localhost:{port}", "tags": {"a": "b"}}]}
                    assert client.admin.command("replSetInitiate", config)["ok"] == 1
                status = client.admin.command("replSetGetStatus")
                assert [member["stateStr"] for member in status["members"]] == ["PRIMARY"]
                hello = client.admin.command("hello")
                assert hello["isWritablePrimary"] and hello["tags"] == {"a": "b"}
                if not initiated:
                    assert hello["me"] == f"localhost:{port}"
            with pymongo.MongoClient(f"mongodb://localhost:{port}/?replicaSet=rs0", serverSelectionTimeoutMS=5000) as client:
                client["test"]["people"].insert_one({})
                assert client["test"]["people"].count_documents({}) == 1 + initiated
        finally:
            server.terminate()
            assert server.wait(30) == 0


def test_a_user_that_is_not_there_is_told_what_to_do(tmp_path):
    server, port = command_of([], tmp_path)
    try:
        with pymongo.MongoClient(f"mongodb://me:secret@localhost:{port}/") as client:
            with pytest.raises(pymongo.errors.OperationFailure, match="no users yet.*Connect without") as refused:
                client["test"]["people"].count_documents({})
            assert refused.value.code == 18
    finally:
        server.terminate()
        assert server.wait(30) == 0


@pytest.mark.parametrize("words, code, part", [
    (["--shardsvr"], 2, "--shardsvr"),
    (["--auth", "--noauth"], 2, "both --auth and --noauth"),
    (["--nonsense"], 2, "unrecognised option '--nonsense'"),
    (["--dbpath", "/nowhere/at/all"], 100, "NonExistentPath"),
    (["--dbpath", "{tmp}", "--bind_ip", "192.0.2.1"], 48, "192.0.2.1"),
])
def test_exit_codes(tmp_path, words, code, part):
    command = [os.environ["VELLUM_AS_MONGOD"], *(word.format(tmp=tmp_path) for word in words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code and part in done.stdout + done.stderr


def test_a_data_directory_in_use_names_the_process(tmp_path):
    command = [os.environ["VELLUM_AS_MONGOD"], "--dbpath", str(tmp_path), "--port", "0"]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert any("Waiting for connections" in line for line in first.stdout)
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode == 100 and f"(process {first.pid})" in second.stdout
    finally:
        first.terminate()
        assert first.wait(30) == 0
