"""A new project for every test, and the session that drives load tests of several modules on one Pulsar."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cached_jars import require_jars

from pytest_loadtest.drivers.pulsar import broker as pulsar_jars

from .projects import Project, fresh
from .sessions import Session, run_all


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


@pytest.fixture(scope="session")
def on_pulsar(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Run the load tests of all selected modules on one Pulsar, which their session starts.

    ``write_on_pulsar(project)`` of a module writes its load tests and returns their files.
    """
    require_jars(pulsar_jars.PULSAR)
    modules = {
        item.module.__name__: item.module
        for item in request.session.items
        if isinstance(item, pytest.Function) and "on_pulsar" in item.fixturenames
    }
    with fresh(tmp_path_factory.mktemp("pulsar")) as project:
        files: list[str] = []
        for name in sorted(modules):
            write = getattr(modules[name], "write_on_pulsar", None)
            files += write(project) if write else []
        return run_all(project, *files, "--load-broker-mode", "process")
