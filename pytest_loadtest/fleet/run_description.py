"""The content of ``run.json``: what the aggregation of a run's samples has to know about the run.

:class:`~pytest_loadtest.fleet.workload_run.WorkloadRun` writes it when a recorded phase begins and
when it has ended, in the threads that answer steps. Only the description of this machine is read
here; all else is taken from the workload.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_loadtest.fleet.planning import installed_versions, machine_document
from pytest_loadtest.pipeline.run_file import (
    STREAMS_FILE,
    RunChange,
    RunCircumstances,
    RunFile,
    RunStreams,
)
from pytest_loadtest.plan.connecting import opened_clients
from pytest_loadtest.report.build import broker_document, driver_document

if TYPE_CHECKING:
    from pytest_loadtest.fleet.workload_run import WorkloadRun


def describe_run(workload: WorkloadRun) -> RunFile:
    """Return the description of the phase in progress, or of a run without a phase."""
    plan = workload.plan
    profile = workload.part.profile
    topology = plan.topology
    scale = plan.scale
    described = RunFile(
        run=workload.run,
        workload=workload.name or None,
        nonce=workload.nonce,
        workers=tuple(workload.workers),
        start=0,
        duration=0,
        rate=plan.rate,
        topics=topology.topics,
        subscriptions=topology.subscriptions,
        broadcasts=topology.broadcasts,
        ordered=profile.ordered,
        connections=opened_clients(plan),
        connects_only=profile.connects_only,
        connect_rate=profile.connect_rate,
        delays=workload.clock.delays(profile),
        publish_acks=profile.publish_acks,
        buckets=tuple(plan.bucket_names),
        streams=RunStreams(count=topology.streams, file=STREAMS_FILE),
        stages=(),
        changes=(),
        window=plan.profile.slo.window,
        drift="drift" in plan.profile.slo,
        unattainable=None,
        aborted=None,
        went_away=workload.went_away,
        started=workload.started,
        seed=profile.seed,
        scale=None if scale is None else scale.factor,
        pace=None if scale is None else scale.rate,
        share=None if scale is None else scale.messages,
        test=workload.test,
        profile=profile.document(),
        facts=_circumstances(workload),
        clocks=workload.host_clocks,
        within_hosts=bool(workload.host_clocks) and plan.within_hosts,
        samples=workload.location,
    )
    record = workload.record
    if record is None:
        return described
    unattainable = [change.unattainable for change in record.changes if change.unattainable]
    changes = [change.document(in_bytes=profile.in_bytes) for change in record.changes]
    return replace(
        described,
        start=record.start,
        duration=record.duration,
        rate=record.rate(),
        stages=() if record.ends is None else record.stages(),
        changes=tuple(RunChange(**change) for change in changes),
        unattainable=unattainable[0] if unattainable else None,
        aborted=record.aborted,
    )


def _circumstances(workload: WorkloadRun) -> RunCircumstances:
    plan = workload.plan
    broker: dict[str, Any] = {}
    if workload.broker is not None:
        restarts = workload.outages.document(workload.clock)
        broker = broker_document(workload.broker.facts) | {"restarts": restarts}
    return RunCircumstances(
        plan=plan.document,
        scaling={} if plan.scale is None else dict(plan.scale.changes),
        broker=broker,
        driver=driver_document(workload.facts),
        versions=installed_versions(),
        machine=machine_document(),
        source=workload.source,
    )
