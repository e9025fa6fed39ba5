"""Telemetry of one run: samples broker, workers and their connections while phases are recorded, and writes it next to the run's samples.

The run controller begins and ends it with each phase of a workload; a thread of its own samples in between, in the controller's process.
Telemetry explains a verdict, so a source that cannot be sampled is listed as missing and never ends a run.
"""

from __future__ import annotations

import json
import os
import platform
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_loadtest.drivers import telemetry_class

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_loadtest.fleet.workload_run import WorkloadRun
    from pytest_loadtest.observe.sampler import Sampler, TelemetrySource
    from pytest_loadtest.observe.telemetry import Telemetry

FILE = "telemetry.json"


def worker_location() -> tuple[str, int]:
    """Return host name and process id of this worker."""
    return platform.node(), os.getpid()


class Observing:
    """The samplers of one run."""

    def __init__(self) -> None:
        self._workers: dict[str, tuple[str, int]] = {}
        self._samplers: dict[str, Sampler] = {}
        self._kept: dict[str, dict[str, Any]] = {}  # by workload: the state that its counters keep from phase to phase

    def locate_workers(self, workers: Sequence[str], locations: Sequence[tuple[str, int]]) -> None:
        """Note the host and process of each worker, by rank."""
        self._workers = dict(zip(workers, locations, strict=True))

    def begin(self, workload: WorkloadRun) -> None:
        """Begin to sample a phase of the workload. In a phase that is not recorded, only counters over all phases are sampled."""
        from pytest_loadtest.observe.sampler import Sampler

        if workload.broker is None:
            return
        without = set[int]()  # local ports of the counters' own connections, which are not the load's
        sources, missing = ({}, []) if workload.folder is None else self._sources(workload, without)
        sources |= self._counters(workload, without)
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
            missing.append("broker's CPU, memory, disk and sockets: its process was not started by the run on this machine")
        else:
            sources["broker"] = partial(ProcessSource, "broker", lambda: broker.facts.pid, broker=True)
            sources["broker's disk"] = partial(DiskWaitSource, lambda: broker.facts.pid)
        urls = [facts.url, *([facts.subscriber_url] if facts.subscriber_url else [])]
        addresses = [(endpoint.host, endpoint.port) for url in urls for endpoint in parse_endpoints(driver.name, url)]
        sources["connections"] = partial(ConnectionSource, addresses, facts.pid, without)
        return sources, missing

    def _counters(self, workload: WorkloadRun, without: set[int]) -> dict[str, Callable[[], TelemetrySource]]:
        from pytest_loadtest.drivers.base import TelemetryContext
        from pytest_loadtest.fleet.targets import target_address, with_keys
        from pytest_loadtest.observe.sampler import BackgroundSource
        from pytest_loadtest.observe.telemetry import COUNTERS

        assert workload.broker is not None
        facts = workload.broker.facts
        driver = with_keys(workload.part.profile, facts).driver
        counters = telemetry_class(driver.name)
        if counters is None or (workload.folder is None and not counters.over_phases):
            return {}
        context = TelemetryContext(
            target=target_address(facts), broker=facts.settings, settings=driver, run=workload.run, topology=workload.plan.topology,
            fresh=workload.used is None, kept=self._kept.setdefault(workload.name, {}), ports=without,
        )  # fmt: skip
        return {COUNTERS: partial(BackgroundSource, partial(counters, context))}

    def end(self, workload: WorkloadRun) -> None:
        """Stop sampling, at the end of a phase or when the run was given up in it, and write the telemetry of a recorded phase."""
        sampler = self._samplers.pop(workload.name, None)
        telemetry = None if sampler is None else sampler.stop()
        if telemetry is not None and workload.folder is not None:
            write_telemetry(workload.folder, telemetry)


def write_telemetry(folder: Path, telemetry: Telemetry) -> None:
    """Write the telemetry next to the samples, so that they can be judged again with it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps(telemetry.document(), allow_nan=False), encoding="utf-8")


def read_telemetry(folder: Path) -> Telemetry | None:
    """Return the telemetry of a run folder; None if there is none, as in runs of older versions."""
    from pytest_loadtest.observe.telemetry import Telemetry

    try:
        return Telemetry.from_document(json.loads((folder / FILE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
