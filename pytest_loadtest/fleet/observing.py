"""Telemetry of one run: samples of broker, workers and connections while phases are recorded.

The run controller begins and ends it with each phase of a workload; a thread of its own samples in
between, in the controller's process. Workers on other hosts are sampled there
(:mod:`~pytest_loadtest.fleet.host_sampler`), and their samples are merged at the end of a phase.
Telemetry explains a verdict, so a source that cannot be sampled is listed as missing and never ends
a run.
"""

from __future__ import annotations

import json
import os
import platform
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_loadtest.drivers import telemetry_class, undelivered_function
from pytest_loadtest.fleet.messages import HostSampling, WorkerLocation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_loadtest.fleet.workload_run import WorkloadRun
    from pytest_loadtest.observe.sampler import Sampler, TelemetrySource
    from pytest_loadtest.observe.telemetry import Telemetry

FILE = "telemetry.json"


def worker_location() -> WorkerLocation:
    """Return the location of this process."""
    try:
        # Inodes of namespaces are unique on one machine.
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return WorkerLocation(
            pid=int(str(Path("/proc/self").readlink())),
            processes=f"{boot} {Path('/proc/self/ns/pid').readlink()}",
            network=f"{boot} {Path('/proc/self/ns/net').readlink()}",
        )
    except OSError:  # not Linux, or no /proc
        return WorkerLocation(pid=os.getpid(), processes=platform.node(), network=platform.node())


class Observing:
    """The samplers of one run."""

    def __init__(self) -> None:
        # The process ids of the workers that are sampled by the controller.
        self._here: dict[str, int] = {}
        self._away: list[str] = []  # sentences about workers that are not sampled
        self._has_sockets = True  # False: no worker is in the controller's network namespace
        self._orders: list[HostSampling] = []
        self._samplers: dict[str, Sampler] = {}
        # By workload: the state that its counters keep from phase to phase.
        self._kept: dict[str, dict[str, Any]] = {}

    def locate_workers(
        self,
        locations: Mapping[str, WorkerLocation],
        hosts: Mapping[str, str],
        workloads: Sequence[WorkloadRun],
    ) -> list[HostSampling | None]:
        """Return what each worker samples on its host.

        One worker of a host samples all that it can see; None for the others.

        :param locations: by worker, in the order of ranks.
        :param hosts: name of the host of each worker that is on another one.
        """
        here = worker_location()
        groups: dict[tuple[str, str, str], dict[str, int]] = {}
        for worker, at in locations.items():
            if worker in hosts:
                groups.setdefault((hosts[worker], at.processes, at.network), {})[worker] = at.pid
            elif at.processes == here.processes:
                self._here[worker] = at.pid
            else:
                self._away.append(f"worker {worker}: it runs on another machine")
        self._has_sockets = any(at.network == here.network for at in locations.values())
        addresses = {workload.name: _addresses(workload) for workload in workloads}
        # All sockets of a network namespace are sampled once, on the first such host.
        sampled_on = {here.network: "the controller's host"}
        shared: dict[tuple[str, str], list[str]] = {}
        for (host, _, network), processes in groups.items():
            first = network not in sampled_on
            other = sampled_on.setdefault(network, f"host {host}")
            if other != f"host {host}":
                shared.setdefault((host, other), []).extend(processes)
            self._orders.append(
                HostSampling(host=host, workers=processes, addresses=addresses if first else {})
            )
        for (host, other), names in shared.items():
            self._away.append(
                f"host {host}: sockets of {', '.join(names)}: counted on {other}, whose network "
                "they use"
            )
        orders = {next(iter(order.workers)): order for order in self._orders}
        return [orders.get(worker) for worker in locations]

    def begin(self, workload: WorkloadRun, services: Mapping[str, int]) -> None:
        """Begin to sample a phase of the workload.

        In a phase that is not recorded, only counters over all phases are sampled.

        :param services: process ids of the services under test, by name.
        """
        from pytest_loadtest.observe.sampler import Sampler

        if workload.broker is None:
            return
        # The local ports of the counters' own connections, which are not the load's.
        without: set[int] = set()
        sources: dict[str, Callable[[], TelemetrySource]] = {}
        missing: list[str] = []
        if workload.folder is not None:
            sources, missing = self._sources(workload, without, services)
        sources |= self._counters(workload, without)
        if sources or (self._orders and workload.folder is not None):
            self._samplers[workload.name] = Sampler(
                sources, workload.current.start, broker=workload.broker.facts.name, missing=missing
            )

    def _sources(
        self, workload: WorkloadRun, without: set[int], services: Mapping[str, int]
    ) -> tuple[dict[str, Callable[[], TelemetrySource]], list[str]]:
        from pytest_loadtest.observe.connections import ConnectionSource
        from pytest_loadtest.observe.processes import (
            DiskWaitSource,
            ProcessSource,
            with_children,
            worker_sources,
        )

        broker = workload.broker
        assert broker is not None
        facts = broker.facts
        missing = list(self._away)
        if workload.part.profile.has_service and not services:
            missing.append("the service under test: the run did not start it")
        sources: dict[str, Callable[[], TelemetrySource]] = dict(worker_sources(self._here))
        if not facts.pids:
            missing.append(
                "broker's CPU, memory, disk and sockets: its process was not started by the run "
                "on this machine"
            )
        else:
            sources["broker"] = partial(
                ProcessSource, "broker", lambda: broker.facts.pids, broker=True
            )
            sources["broker's disk"] = partial(DiskWaitSource, lambda: broker.facts.pids)
            for name in facts.nodes:
                pids = partial(broker.facts.pids_of, name)
                sources[name] = partial(ProcessSource, name, pids, broker=True)
        for service, pid in services.items():
            name = f"service {service}"
            sources[name] = partial(ProcessSource, name, partial(tuple, (pid,)), broker=True)
        side = "workers" if self._has_sockets else None
        if side is not None or facts.serving:
            sources["connections"] = partial(
                ConnectionSource,
                _addresses(workload),
                facts.serving,
                without,
                side=side,
                services=partial(with_children, services.values()),
            )
        return sources, missing

    def _counters(
        self, workload: WorkloadRun, without: set[int]
    ) -> dict[str, Callable[[], TelemetrySource]]:
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
        route = workload.part.profile.route
        context = TelemetryContext(
            target=target_address(facts),
            broker=facts.settings,
            settings=driver,
            run=workload.run,
            topology=workload.plan.topology,
            fresh=workload.used is None,
            kept=self._kept.setdefault(workload.name, {}),
            ports=without,
            route=None if route is None else route.route(),
        )
        return {COUNTERS: partial(BackgroundSource, partial(counters, context))}

    def end(self, workload: WorkloadRun) -> None:
        """Stop sampling when a phase or its run is over; write the telemetry if it is recorded."""
        sampler = self._samplers.pop(workload.name, None)
        telemetry = None if sampler is None else sampler.stop()
        if telemetry is not None and workload.folder is not None:
            write_telemetry(workload.folder, _merge_hosts(workload.folder, telemetry, self._orders))


def load_samplers(drivers: Iterable[str]) -> None:
    """Import what samples a phase, and what asks a target for its deliveries.

    The start of a phase is decided before it is sampled, and 200 ms later its first message is due:
    on a busy machine the imports alone take longer, and the generator would be late.

    :param drivers: the names of the workloads' drivers.
    """
    from pytest_loadtest.observe import connections, processes, sampler  # noqa: F401

    for driver in drivers:
        telemetry_class(driver)
        undelivered_function(driver)


def _addresses(workload: WorkloadRun) -> list[tuple[str, int]]:
    """Return the hosts and ports that clients connect to."""
    from pytest_loadtest.brokers.url import parse_endpoints

    assert workload.broker is not None
    facts = workload.broker.facts
    kind = workload.part.profile.driver.name
    endpoints = list(parse_endpoints(kind, facts.url))
    if facts.subscriber_url:
        endpoints += parse_endpoints(kind, facts.subscriber_url)
    return [(endpoint.host, endpoint.port) for endpoint in endpoints]


def _merge_hosts(folder: Path, telemetry: Telemetry, orders: Sequence[HostSampling]) -> Telemetry:
    """Add the samples that other hosts have sent; their files are removed."""
    from pytest_loadtest.fleet.host_sampler import no_samples, part_file
    from pytest_loadtest.observe.telemetry import SampledHost, Telemetry, merge_host

    for order in orders:
        workers = tuple(order.workers)
        file = part_file(folder, workers[0])
        cores = None
        cost = None
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            file.unlink()
            part = Telemetry.from_document(document["telemetry"])
            cores = document["cores"]
            cost = part.cost if len(part) else None
        except (OSError, ValueError):  # the run was given up, or the host is lost
            part = no_samples(order, "its samples did not arrive", lost=True)
        telemetry = merge_host(
            telemetry, SampledHost(name=order.host, workers=workers, cores=cores, cost=cost), part
        )
    return telemetry


def write_telemetry(folder: Path, telemetry: Telemetry) -> None:
    """Write the telemetry next to the samples, so that they can be judged again with it."""
    folder.mkdir(parents=True, exist_ok=True)
    from pytest_loadtest.engine.sample_files import replace

    replace(folder / FILE, json.dumps(telemetry.document(), allow_nan=False).encode())


def read_telemetry(folder: Path) -> Telemetry | None:
    """Return the telemetry of a run folder; None if there is none, as in runs of older versions."""
    from pytest_loadtest.observe.telemetry import Telemetry

    try:
        return Telemetry.from_document(json.loads((folder / FILE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
