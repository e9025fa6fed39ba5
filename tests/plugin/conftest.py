"""A new project for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .projects import Project, fresh


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """Return a new project; no process that it started may be left when the test ends."""
    with fresh(tmp_path) as made:
        yield made


@pytest.fixture
def spark_project(tmp_path: Path) -> Iterator[Project]:
    """Return a new project whose samples Spark aggregates."""
    with fresh(tmp_path, spark=True) as made:
        yield made
