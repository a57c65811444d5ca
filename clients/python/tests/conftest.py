"""The plug-in under test is this tree's, also in suites that ``pytester`` runs as separate processes."""

import pathlib

import pytest

pytest_plugins = ["pytester"]

SOURCES = str(pathlib.Path(__file__).resolve().parent.parent / "src")


@pytest.fixture(autouse=True)
def _sources(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", SOURCES)
