"""Telemetry of phases: sampled while they run, written next to the samples."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from builders.plans import loopback, made

from pytest_loadtest import profile as profiles
from pytest_loadtest.brokers.base import BrokerFacts
from pytest_loadtest.fleet.host_sampler import part_file
from pytest_loadtest.fleet.messages import HostSampling, Part, WorkerLocation
from pytest_loadtest.fleet.observing import Observing, read_telemetry, worker_location
from pytest_loadtest.fleet.workload_run import WorkloadRun
from pytest_loadtest.observe.telemetry import SampledHost, Telemetry
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_loadtest.profile import Profile


def workload(folder: Path, profile: Profile | None = None) -> WorkloadRun:
    profile = profile or loopback()
    facts = BrokerFacts(
        name="relay", version="1", mode="url", url=f"{profile.driver.name}://127.0.0.1:9"
    )
    broker: Any = SimpleNamespace(facts=facts)
    return WorkloadRun(
        name="", part=Part(profile=profile), plan=made(profile), root=folder, nonce=1, test="t", source="p", run="r", workers=("a", "b"),
        broker=broker,
    )  # fmt: skip


def location(namespace: str, *, pid: int = 7, network: str | None = None) -> WorkerLocation:
    """Return a process in namespaces of this name."""
    return WorkerLocation(pid=pid, processes=namespace, network=network or namespace)


def test_a_recorded_phase_has_telemetry_that_names_what_could_not_be_sampled(
    tmp_path: Path,
) -> None:
    """A worker on another machine, and a broker that the run did not start."""
    run, observing = workload(tmp_path), Observing()
    assert observing.locate_workers(
        {"a": worker_location(), "b": location("elsewhere")}, {}, [run]
    ) == [None, None]
    run.begin(run.plan.measure, "measure", 0)
    observing.begin(run, {})
    observing.end(run)
    observing.end(run)  # a run that is given up after its phase
    assert run.folder is not None
    telemetry = read_telemetry(run.folder)
    assert telemetry is not None
    assert "worker b: it runs on another machine" in telemetry.missing
    assert (
        "broker's CPU, memory, disk and sockets: its process was not started by the run on this machine"
        in telemetry.missing
    )


def test_each_service_is_a_source_of_its_own(tmp_path: Path) -> None:
    run, observing = workload(tmp_path), Observing()
    observing.locate_workers({"a": worker_location()}, {}, [run])
    run.begin(run.plan.measure, "measure", 0)
    observing.begin(run, {"orders": 2**22 + 1, "invoices": 2**22 + 2})
    observing.end(run)
    assert run.folder is not None
    telemetry = read_telemetry(run.folder)
    assert telemetry is not None
    for service, pid in (("orders", 2**22 + 1), ("invoices", 2**22 + 2)):
        reason = f"process {pid} is not in /proc, so its use is unknown"
        assert f"service {service}: {reason}" in telemetry.missing


def test_a_service_that_the_run_did_not_start_is_named_as_not_sampled(tmp_path: Path) -> None:
    """That of the loopback is part of the relay, which is sampled."""
    route = "name: a\nmessageSize: 99\nproducerRate: 5\ntestDuration: 1s\nroute: {input: a, output: b}\n"
    missing = {}
    for driver in ("mqtt", "loopback"):
        profile = profiles.loads(f"{route}driver: {{name: {driver}}}\n", "p.yaml")
        run, observing = workload(tmp_path / driver, profile), Observing()
        observing.locate_workers({"a": worker_location(), "b": worker_location()}, {}, [run])
        run.begin(run.plan.measure, "measure", 0)
        observing.begin(run, {})
        observing.end(run)
        assert run.folder is not None
        telemetry = read_telemetry(run.folder)
        assert telemetry is not None
        missing[driver] = "the service under test: the run did not start it" in telemetry.missing
    assert missing == {"mqtt": True, "loopback": False}


def test_a_phase_that_is_not_recorded_leaves_no_telemetry(tmp_path: Path) -> None:
    """Nor does a run without a broker yet."""
    run, observing = workload(tmp_path), Observing()
    run.begin(run.plan.phases[0], None, 0)
    observing.begin(run, {})
    observing.end(run)
    run.broker = None
    run.begin(run.plan.measure, "measure", 0)
    observing.begin(run, {})
    observing.end(run)
    assert read_telemetry(tmp_path) is None
    assert read_telemetry(tmp_path / "measure") is None


def test_a_worker_is_located_by_its_process_and_namespaces() -> None:
    """A thread is not a process."""
    here = worker_location()
    assert here.pid == os.getpid()
    assert len({here.processes, here.network}) == 2
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(worker_location).result() == here


def test_one_worker_samples_all_that_it_can_see_on_its_host(tmp_path: Path) -> None:
    """Those with equal process ids in other namespaces are not confused with them; sockets of one network are sampled once."""
    run = workload(tmp_path)
    locations = {
        "gw0": worker_location(),
        "h1-1": location("one"),
        "h2-1": location("one"),
        "h1-2": location("one", pid=8),
        "h1-3": location("two"),
    }
    hosts = {"h1-1": "h1", "h1-2": "h1", "h1-3": "h1", "h2-1": "h2"}
    orders = Observing().locate_workers(locations, hosts, [run])
    target = {"": [("127.0.0.1", 9)]}
    assert orders == [
        None,
        HostSampling(host="h1", workers={"h1-1": 7, "h1-2": 8}, addresses=target),
        HostSampling(host="h2", workers={"h2-1": 7}, addresses={}),
        None,
        HostSampling(host="h1", workers={"h1-3": 7}, addresses=target),
    ]


def test_samples_of_hosts_are_merged_and_their_files_removed(tmp_path: Path) -> None:
    """A host whose samples did not arrive is missing, with its name."""
    run, observing = workload(tmp_path), Observing()
    observing.locate_workers(
        {"h1-1": location("one"), "h2-1": location("two")}, {"h1-1": "h1", "h2-1": "h2"}, [run]
    )
    run.begin(run.plan.measure, "measure", 0)
    observing.begin(run, {})
    assert run.folder is not None
    file = part_file(run.folder, "h1-1")
    part = Telemetry.of_rows([SECOND], [{"worker h1-1.cpu": 0.5}], cost=0.001)
    file.write_text(json.dumps({"telemetry": part.document(), "cores": 4}))
    observing.end(run)
    telemetry = read_telemetry(run.folder)
    assert telemetry is not None
    assert telemetry.hosts == (
        SampledHost(name="h1", workers=("h1-1",), cores=4, cost=0.001),
        SampledHost(name="h2", workers=("h2-1",), cores=None, cost=None),
    )
    assert 0.5 in telemetry.column("worker h1-1.cpu")
    assert "host h2: sampling of h2-1: its samples did not arrive" in telemetry.missing
    assert np.isnan(telemetry.column("workers.connections")).all(), (
        "no worker uses the controller's network"
    )
    assert not file.exists()


def test_a_network_that_hosts_share_is_named(tmp_path: Path) -> None:
    run, observing = workload(tmp_path), Observing()
    network = worker_location().network
    locations = {
        "h1-1": location("one", network=network),
        "h1-2": location("two", network=network),
        "h2-1": location("three"),
    }
    observing.locate_workers(
        locations | {"h3-1": location("three")},
        {"h1-1": "h1", "h1-2": "h1", "h2-1": "h2", "h3-1": "h3"},
        [run],
    )
    run.begin(run.plan.measure, "measure", 0)
    observing.begin(run, {})
    observing.end(run)
    assert run.folder is not None
    telemetry = read_telemetry(run.folder)
    assert telemetry is not None
    shared = [text for text in telemetry.missing if "sockets of" in text]
    assert shared == [
        "host h1: sockets of h1-1, h1-2: counted on the controller's host, whose network they use",
        "host h3: sockets of h3-1: counted on host h2, whose network they use",
    ]


def test_nothing_is_imported_between_the_decision_on_a_phase_and_its_start() -> None:
    """On a busy machine the imports took longer than the 200 ms in between, and the first messages were late."""
    code = """
import sys
from pytest_loadtest.fleet.observing import load_samplers
load_samplers(["loopback", "mqtt", "pulsar"])
before = set(sys.modules)
from pytest_loadtest.drivers import telemetry_class, undelivered_function
from pytest_loadtest.observe import connections, processes, sampler
for name in ("loopback", "mqtt", "pulsar"):
    telemetry_class(name), undelivered_function(name)
assert set(sys.modules) == before, set(sys.modules) - before
assert "psutil" in before
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
