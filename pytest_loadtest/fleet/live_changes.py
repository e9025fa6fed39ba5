"""The changes that the body of a live test may make while its load runs.

Called by the run controller for a command of the body, under the rendezvous' lock. Each function
either returns a change that can still take effect on all workers at one instant, or raises a
:class:`~pytest_loadtest.errors.UsageError` that says what to do instead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import RunAborted, UsageError
from pytest_loadtest.message.payloads import check_weights
from pytest_loadtest.schedule.changes import CHANGE_IN, Change
from pytest_loadtest.schedule.pacing import LEAST_RATE
from pytest_loadtest.values.quantities import ByteRate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.fleet.workload_run import WorkloadRun


def measured_workload(workloads: Sequence[WorkloadRun], *, driving: bool) -> WorkloadRun:
    """Return the workload that is being measured.

    :param driving: whether a phase is in progress.
    :raises UsageError: there is none, or there are several.
    :raises RunAborted: the run was aborted.
    """
    workload = workloads[0]
    if len(workloads) > 1:
        raise UsageError(
            "cannot change a running load with several workloads: ambiguous; give each workload a "
            "test of its own"
        )
    record = workload.record
    if record is not None and record.aborted:
        raise RunAborted(record.aborted.reason)
    if record is None or workload.folder is None or record.ends is not None or not driving:
        raise UsageError(
            "cannot change the load: no phase is being measured; begin the load first, and change "
            "it before its end"
        )
    return workload


def requested_change(workload: WorkloadRun, kind: str, argument: Any, now: int) -> Change:
    """Return the change with the instant at which it takes effect.

    :param now: ns of the clock.
    :raises UsageError: it is impossible, or too late.
    """
    record = workload.current
    if workload.plan.search is not None:
        # A step counts as a test of the rate that the search has chosen.
        raise UsageError(
            "cannot change the load of a search: it chooses the rates and ends by itself; wait for "
            "its result with load.finish(), or write a producerRate above 0"
        )
    profile = workload.plan.profile
    if record.phase.idle and kind in ("rate", "distribution"):
        raise UsageError(
            "producersPerTopic: 0 or messages: 0 in the profile: the run sends no messages, so "
            "their rate and sizes cannot be changed"
        )
    if record.phase.stages and kind in ("rate", "distribution", "consumers"):
        raise UsageError(
            "the profile's stages say what changes when: leave them out to change things from the "
            "test's body"
        )
    if kind == "rate":
        argument = _scaled_rate(workload, argument)
    if kind == "distribution":
        if profile.skew and profile.skew.message_sizes:
            raise UsageError(
                "skew.messageSizes in the profile: each topic has its own size, so there are no "
                "weights to change"
            )
        check_weights(argument, workload.plan.bucket_names)
    most = workload.plan.topology.consumers
    if kind == "consumers" and argument not in range(most + 1):
        raise UsageError(
            f"load.set_consumers({argument!r}): not from 0 to {most}, the profile's "
            "consumerPerSubscription: raise it in the profile"
        )
    at = max(now - record.start, 0) + CHANGE_IN
    if kind != "end" and at >= record.duration:
        raise UsageError(
            "the measured phase ends before the change could be agreed: make testDuration longer"
        )
    change = Change(at=min(at, record.duration), **{kind: argument})
    resumed = any(earlier.paused is False for earlier in record.changes)
    if change.end and record.phase.paused and not resumed:
        # Consumers still wait for a backlog, and without them nothing would arrive in the drain.
        return replace(change, paused=False)
    return change


def _scaled_rate(workload: WorkloadRun, rate: float) -> float:
    """Return the rate at which workers pace, of one in terms of the profile.

    The bounds and the rates of stages are in these terms too.

    :raises UsageError: the profile does not let it change, or workers cannot pace it.
    """
    profile = workload.plan.profile
    if profile.skew and profile.skew.swing is not None:
        raise UsageError(
            "skew.swing in the profile: shares move on after a number of messages, which follows "
            "from producerRate: remove swing to change the rate"
        )
    # A rate of 0 is the same in both units.
    if rate and isinstance(rate, ByteRate) != profile.in_bytes:
        unit = "messages: write messages, as in 5000/s"
        if profile.in_bytes:
            unit = "bytes: write bytes, as in 10MB/s"
        raise UsageError(f"load.set_rate: the profile's rate is in {unit}")
    scale = workload.plan.scale
    paced = rate if scale is None else rate * scale.rate
    if 0 < paced < LEAST_RATE:
        raise UsageError(
            f"load.set_rate({rate!r}): slower than can be paced: {paced:g} is below {LEAST_RATE}; "
            "write a higher rate, or 0 for a pause"
        )
    return paced
