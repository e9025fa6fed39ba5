"""Samples broker, workers and their connections while phases are recorded, and keeps what was sampled beside the run's own samples."""

from __future__ import annotations

import json
import os
import platform
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_loadtest.drivers import telemetry_class

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_loadtest.fleet.workload_run import WorkloadRun
    from pytest_loadtest.observe.sampler import Sampler, TelemetrySource
    from pytest_loadtest.observe.telemetry import Telemetry

FILE = "telemetry.json"


def whereabouts() -> tuple[str, int]:
    """Which process of which machine this is, for whoever samples it."""
    return platform.node(), os.getpid()


class Observing:
    """What is sampled of one run."""

    def __init__(self) -> None:
        self._workers: dict[str, tuple[str, int]] = {}
        self._samplers: dict[str, Sampler] = {}
        self._kept: dict[str, dict[str, Any]] = {}

    def met(self, workers: Sequence[str], said: Sequence[tuple[str, int]]) -> None:
        """All workers said who they are, by rank."""
        self._workers = dict(zip(workers, said, strict=True))

    def begin(self, workload: WorkloadRun) -> None:
        """A phase of the workload begins; of one that is not recorded only that is sampled which counts over all phases."""
        from pytest_loadtest.observe.sampler import Sampler

        if workload.broker is None:
            return
        without = set[int]()
        counters, missing = self._counters(workload, without), list[str]()
        sources = counters
        if workload.folder is not None:
            sources, missing = self._sources(workload, without)
            sources |= counters
        if sources:
            self._samplers[workload.name] = Sampler(sources, workload.start, broker=workload.broker.facts.name, missing=missing)

    def _sources(self, workload: WorkloadRun, without: set[int]) -> tuple[dict[str, Callable[[], TelemetrySource]], list[str]]:
        from pytest_loadtest.brokers.url import parse_endpoints
        from pytest_loadtest.fleet.targets import with_keys
        from pytest_loadtest.observe.connections import ConnectionSource
        from pytest_loadtest.observe.processes import DiskWaitSource, ProcessSource

        broker = workload.broker
        assert broker is not None
        facts, here = broker.facts, platform.node()
        driver = with_keys(workload.part.profile, facts).driver
        away = [worker for worker, (host, _) in self._workers.items() if host != here]
        missing = [f"worker {worker}: it runs on another machine" for worker in away]
        sources: dict[str, Callable[[], TelemetrySource]] = {
            f"worker {worker}": partial(ProcessSource, f"worker {worker}", lambda pid=pid: pid)  # type: ignore[misc]
            for worker, (_, pid) in self._workers.items()
            if worker not in away
        }
        if facts.pid is None:
            missing.append("broker's CPU, memory, disk and sockets: its process is none that the run started on this machine")
        else:
            sources["broker"] = partial(ProcessSource, "broker", lambda: broker.facts.pid, broker=True)
            sources["broker's disk"] = partial(DiskWaitSource, lambda: broker.facts.pid)
        urls = [facts.url, *([facts.subscriber_url] if facts.subscriber_url else [])]
        addresses = [(endpoint.host, endpoint.port) for url in urls for endpoint in parse_endpoints(driver.name, url)]
        sources["connections"] = partial(ConnectionSource, addresses, facts.pid, without)
        return sources, missing

    def _counters(self, workload: WorkloadRun, without: set[int]) -> dict[str, Callable[[], TelemetrySource]]:
        from pytest_loadtest.drivers.base import TelemetryContext
        from pytest_loadtest.fleet.targets import target_of, with_keys
        from pytest_loadtest.observe.sampler import BackgroundSource
        from pytest_loadtest.observe.telemetry import COUNTERS

        assert workload.broker is not None
        facts = workload.broker.facts
        driver = with_keys(workload.part.profile, facts).driver
        counters = telemetry_class(driver.name)
        if counters is None or (workload.folder is None and not counters.over_phases):
            return {}
        watched = TelemetryContext(
            target=target_of(facts), broker=facts.settings, settings=driver, run=workload.run, topology=workload.plan.topology,
            fresh=workload.used is None, kept=self._kept.setdefault(workload.name, {}), ports=without,
        )  # fmt: skip
        return {COUNTERS: partial(BackgroundSource, partial(counters, watched))}

    def end(self, workload: WorkloadRun) -> None:
        """The phase is over, or the run was given up in it."""
        sampler = self._samplers.pop(workload.name, None)
        sampled = None if sampler is None else sampler.stop()
        if sampled is not None and workload.folder is not None:
            write(workload.folder, sampled)


def write(folder: Path, telemetry: Telemetry) -> None:
    """Beside the samples, so that they can be judged again."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps(telemetry.document(), allow_nan=False), encoding="utf-8")


def read(folder: Path) -> Telemetry | None:
    """What was sampled; None where nothing was, as in runs of older versions."""
    from pytest_loadtest.observe.telemetry import Telemetry

    try:
        said: Mapping[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Telemetry.from_document(said)
