"""Telemetry of phases: sampled while they run, written next to the samples."""

from __future__ import annotations

import os
import platform
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from builders.plans import loopback, made

from pytest_loadtest.brokers.base import BrokerFacts
from pytest_loadtest.fleet.messages import Part
from pytest_loadtest.fleet.observing import Observing, read_telemetry, worker_location
from pytest_loadtest.fleet.workload_run import WorkloadRun

if TYPE_CHECKING:
    from pathlib import Path


def workload(folder: Path) -> WorkloadRun:
    profile = loopback()
    facts = BrokerFacts(name="relay", version="1", mode="url", url="loopback://127.0.0.1:9")
    broker: Any = SimpleNamespace(facts=facts)
    return WorkloadRun(
        name="", part=Part(profile=profile), plan=made(profile), root=folder, nonce=1, test="t", source="p", run="r", workers=("a", "b"),
        broker=broker,
    )  # fmt: skip


def test_a_recorded_phase_has_telemetry_that_names_what_could_not_be_sampled(tmp_path: Path) -> None:
    """A worker on another machine, and a broker that the run did not start."""
    run, observing = workload(tmp_path), Observing()
    observing.locate_workers(("a", "b"), (worker_location(), ("elsewhere", 1)))
    run.begin(run.plan.measure, "measure", 0)
    observing.begin(run)
    observing.end(run)
    observing.end(run)  # a run that is given up after its phase
    assert run.folder is not None
    telemetry = read_telemetry(run.folder)
    assert telemetry is not None
    assert "worker b: it runs on another machine" in telemetry.missing
    assert "broker's CPU, memory, disk and sockets: its process was not started by the run on this machine" in telemetry.missing


def test_a_phase_that_is_not_recorded_leaves_no_telemetry(tmp_path: Path) -> None:
    """Nor does a run without a broker yet."""
    run, observing = workload(tmp_path), Observing()
    run.begin(run.plan.phases[0], None, 0)
    observing.begin(run)
    observing.end(run)
    run.broker = None
    run.begin(run.plan.measure, "measure", 0)
    observing.begin(run)
    observing.end(run)
    assert read_telemetry(tmp_path) is None
    assert read_telemetry(tmp_path / "measure") is None


def test_a_worker_is_located_by_host_and_process() -> None:
    assert worker_location() == (platform.node(), os.getpid())
