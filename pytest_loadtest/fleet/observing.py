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
    from pytest_loadtest.profile.settings import PulsarSettings

FILE = "telemetry.json"


def whereabouts() -> tuple[str, int]:
    """Which process of which machine this is, for whoever samples it."""
    return platform.node(), os.getpid()


class Observing:
    """What is sampled of one run."""

    def __init__(self) -> None:
        self._workers: dict[str, tuple[str, int]] = {}
        self._samplers: dict[str, Sampler] = {}

    def met(self, workers: Sequence[str], said: Sequence[tuple[str, int]]) -> None:
        """All workers said who they are, by rank."""
        self._workers = dict(zip(workers, said, strict=True))

    def begin(self, workload: WorkloadRun) -> None:
        """A phase of the workload begins; only one that is recorded is sampled."""
        from pytest_loadtest.observe.sampler import Sampler

        if workload.folder is not None and workload.broker is not None:
            sources, missing = self._sources(workload)
            self._samplers[workload.name] = Sampler(sources, workload.start, broker=workload.broker.facts.name, missing=missing)

    def _sources(self, workload: WorkloadRun) -> tuple[dict[str, Callable[[], TelemetrySource]], list[str]]:
        from pytest_loadtest.brokers.url import parse
        from pytest_loadtest.fleet.targets import with_keys
        from pytest_loadtest.observe.connections import ConnectionSource
        from pytest_loadtest.observe.processes import ProcessSource
        from pytest_loadtest.profile.settings import PulsarSettings

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
        urls = [facts.url, *([facts.subscriber_url] if facts.subscriber_url else [])]
        addresses = [(endpoint.host, endpoint.port) for url in urls for endpoint in parse(driver.name, url)]
        without = set[int]()
        sources["connections"] = partial(ConnectionSource, addresses, facts.pid, without)
        counters = telemetry_class(driver.name)
        if counters is not None:
            sources["broker's own counters"] = partial(counters, facts.url, facts.settings, driver, without)
        if workload.part.profile.delays is not None and isinstance(driver, PulsarSettings) and facts.admin_url:
            sources["delayed index"] = partial(_delayed_index, workload, facts.admin_url, driver)
        return sources, missing

    def end(self, workload: WorkloadRun) -> None:
        """The phase is over, or the run was given up in it."""
        sampler = self._samplers.pop(workload.name, None)
        if sampler is not None and workload.folder is not None:
            write(workload.folder, sampler.stop())


def _delayed_index(workload: WorkloadRun, admin_url: str, driver: PulsarSettings) -> TelemetrySource:
    from pytest_loadtest.drivers.pulsar.delayed_index import DelayedIndexSource
    from pytest_loadtest.drivers.pulsar.names import topics_of

    topology = workload.plan.topology
    return DelayedIndexSource(admin_url, driver, topics_of(driver, workload.run, topology))


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
