"""Runs at the controller, planned for two workers, without workers, targets and Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from builders.plans import made
from pytest_loadtest import profile as profiles
from pytest_loadtest.brokers.base import BrokerFacts
from pytest_loadtest.drivers.base import DriverFacts
from pytest_loadtest.fleet.messages import Part, Request
from pytest_loadtest.fleet.planned_run import PlannedRun
from pytest_loadtest.fleet.scripts import PlannedScript
from pytest_loadtest.fleet.workload_run import WorkloadRun

if TYPE_CHECKING:
    from pathlib import Path

MEMBERS = ("gw0", "gw1")
TEXT = """\
name: a
messages: 0
producersPerTopic: {producers}
testDuration: 1s
driver: {{name: mqtt, client: {client}, connectRate: 100}}
slo: {{connectLatency: {{mean: 1s}}}}
"""


def planned_run(folder: Path, producers: int = 1, client: str = "native") -> PlannedRun:
    """Return a run of two workloads, ``""`` and ``two words``, in the folders 0 and 1."""
    profile = profiles.loads(TEXT.format(producers=producers, client=client), "p.yaml")
    part = Part(profile=profile)
    workloads = [
        WorkloadRun(
            name=name,
            part=part,
            plan=made(profile, workers=2),
            root=folder / str(number),
            nonce=1,
            test="t",
            source="p",
            run="r",
            workers=MEMBERS,
        )
        for number, name in enumerate(("", "two words"))
    ]
    request = Request(nodeid="t", attempt=1, profile=profile, parts=(part, part), source="p")
    return PlannedRun(request=request, workloads=workloads)


def ready_run(folder: Path) -> PlannedRun:
    """Return a run whose targets are there, so that its phases can begin."""
    planned = planned_run(folder)
    facts = BrokerFacts(name="loopback", version="1", mode="url", url="mqtt://127.0.0.1:1")
    for workload in planned.workloads:
        workload.broker = SimpleNamespace(facts=facts, failure=lambda: None)  # type: ignore[assignment]
        workload.facts = DriverFacts(client="c", version="1")
    planned.scripts = [PlannedScript(workload) for workload in planned.workloads]
    return planned
