"""What a user of pytest-vellum writes."""

import os

import pytest
import vellum


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
    assert vellum.find_binary().startswith(os.path.dirname(os.path.dirname(os.path.abspath(os.sys.executable))))
