"""A test as a user of pytest-vellum writes it."""

import os
import subprocess
import sys

import pytest
import vellum_db


@pytest.fixture(scope="session")
def vellum_template():
    def build(db):
        db.people.create_index("name", unique=True)
        db.people.insert_one({"name": "Ada"})

    return build


def test_the_template_is_there(mongo_db):
    mongo_db.people.insert_one({"name": "Grace"})
    assert mongo_db.people.count_documents({}) == 2


def test_alone(mongo_db):
    assert mongo_db.people.count_documents({}) == 1


def test_the_program_is_the_installed_one():
    assert "VELLUM_BINARY" not in os.environ
    assert vellum_db.find_binary().startswith(sys.prefix)


@pytest.mark.parametrize("command", ["vellum", "vellum-db"])
def test_the_program_is_a_command(command):
    done = subprocess.run([os.path.join(sys.prefix, "bin", command), "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("vellum ")
