"""A fresh project for every test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from .projects import INI, Project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A fresh project; nothing that it started may be left when the test ends."""
    made = Project(tmp_path, {"LOADTEST_MARK": uuid.uuid4().hex})
    made.write("pytest.ini", INI)
    yield made
    assert made.survivors() == []
