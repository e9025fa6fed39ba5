"""The Docker engine, as far as it can be tested without one."""

from __future__ import annotations

import socket
import time

import pytest

from pytest_loadtest.brokers import docker_engine
from pytest_loadtest.brokers.base import UnavailableError


def test_an_engine_that_does_not_answer_costs_its_time_limit_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """testcontainers itself would wait a minute."""
    assert docker_engine.ENGINE_SECONDS < 30
    monkeypatch.setattr(docker_engine, "ENGINE_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{silent.getsockname()[1]}")
        begun = time.monotonic()
        with pytest.raises(UnavailableError, match="no Docker engine answers"):
            docker_engine.require_engine()
        assert time.monotonic() - begun < 30
