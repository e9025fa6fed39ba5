"""What the body of a live test may change while its load runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import RunAborted, UsageError
from pytest_loadtest.message.payloads import check_weights
from pytest_loadtest.schedule.changes import CHANGE_IN, Change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.fleet.workload_run import WorkloadRun


def measuring(workloads: Sequence[WorkloadRun], *, driving: bool) -> WorkloadRun:
    """The workload that is measured just now. :param driving: whether a phase goes on at all.

    :raises UsageError: there is none, or there are several. :raises RunAborted: it was lost.
    """
    workload = workloads[0]
    if len(workloads) > 1:
        raise UsageError("several workloads run together: what the body changes would not say which; give each a test of its own")
    if workload.aborted:
        raise RunAborted(workload.aborted.reason)
    if workload.phase is None or workload.folder is None or workload.ends is not None or not driving:
        raise UsageError("nothing is measured just now: begin the load first, and change it before its end")
    return workload


def change_of(workload: WorkloadRun, kind: str, argument: Any, now: int) -> Change:
    """What is to change, and when. :param now: ns of the clock.

    :raises UsageError: it cannot be changed, or not any more.
    """
    assert workload.phase is not None
    if workload.plan.profile.connects_only and kind in ("rate", "distribution"):
        raise UsageError("messages: 0 in the profile: the run has none, so there is nothing to change about them")
    if workload.phase.stages and kind in ("rate", "distribution", "consumers"):
        raise UsageError("the profile's stages say what changes when: leave them out to change things from the test's body")
    if kind == "distribution":
        if (skew := workload.plan.profile.skew) is not None and skew.message_sizes is not None:
            raise UsageError("skew.messageSizes in the profile: each topic has its own size, so there are no weights to change")
        check_weights(argument, workload.plan.bucket_names)
    most = workload.plan.topology.consumers
    if kind == "consumers" and argument not in range(most + 1):
        raise UsageError(f"load.set_consumers({argument!r}): from 0 to {most}, the profile's consumerPerSubscription; raise it there")
    at = max(now - workload.start, 0) + CHANGE_IN
    if kind != "end" and at >= workload.duration:
        raise UsageError("the measured phase ends before the change could be agreed: make testDuration longer")
    return Change(at=min(at, workload.duration), **({"end": True} if kind == "end" else {kind: argument}))
