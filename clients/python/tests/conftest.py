"""The plug-in under test is this tree's, also in the suites that ``pytester`` runs in processes of their own."""

import pathlib

import pytest

pytest_plugins = ["pytester"]

SOURCES = str(pathlib.Path(__file__).resolve().parent.parent / "src")


@pytest.fixture(autouse=True)
def _sources(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", SOURCES)
