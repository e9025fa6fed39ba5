"""The loopback relay as a process: the instrument that checks the instrument."""

from __future__ import annotations

import json
import os
import sys
from importlib import metadata
from pathlib import Path

from pytest_loadtest.brokers.base import BrokerFacts, BrokerRequest
from pytest_loadtest.brokers.process import Child
from pytest_loadtest.brokers.starting import Progress, StartedBroker, on_free_ports, wait_ready
from pytest_loadtest.drivers.loopback import faults
from pytest_loadtest.errors import UsageError

START_SECONDS = 30.0
ROOT = Path(__file__).parents[3]  # where the package is importable from


def start(request: BrokerRequest, progress: Progress) -> StartedBroker:
    """Start the relay with the faults that ``request.settings`` orders.

    It is not restarted: it keeps no message, and a client that loses it ends the run.

    :raises UsageError: a fault the relay does not know, or a value it cannot read.
    :raises TargetError: it did not start; with its own words.
    """
    try:
        faults.parse(request.settings)
    except ValueError as error:
        raise UsageError(f"broker.settings: {error}") from error
    return on_free_ports(1, lambda ports: _launch(ports[0], request, progress))


def _launch(port: int, request: BrokerRequest, progress: Progress) -> StartedBroker:
    folder = request.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    relay = [
        sys.executable,
        "-m",
        "pytest_loadtest.drivers.loopback.relay",
        "--port",
        str(port),
        "--settings",
        json.dumps(dict(request.settings)),
    ]
    child = Child(relay, folder=folder, env={"PYTHONPATH": path})
    wait_ready(child, lambda: '{"port"' in child.tail(), name="the loopback relay", seconds=START_SECONDS, progress=progress)
    facts = BrokerFacts(
        name="loopback",
        version=_own_version(),
        mode="process",
        url=f"loopback://127.0.0.1:{port}",
        settings=dict(request.settings),
    )
    return StartedBroker(facts, child, None)


def _own_version() -> str:
    try:
        return metadata.version("pytest-loadtest")
    except metadata.PackageNotFoundError:
        return "unknown"
