"""Changes requested by the body of a live test: the instant at which they take effect, and why some are impossible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.plans import made

from pytest_loadtest import profile as profiles
from pytest_loadtest.errors import RunAborted, UsageError
from pytest_loadtest.fleet.live_changes import measured_workload, requested_change
from pytest_loadtest.fleet.messages import Part
from pytest_loadtest.fleet.workload_run import WorkloadRun
from pytest_loadtest.plan.phases import search_phases
from pytest_loadtest.schedule.changes import CHANGE_IN, Aborted, Change
from pytest_loadtest.schedule.pacing import StreamCounts
from pytest_loadtest.values.quantities import SECOND, ByteRate

BASE = "name: p\nconsumerPerSubscription: 2\ndriver: {name: loopback}\n"
PACED = (
    "testDuration: 10s\nproducerRate: 100\nmessageSizeDistribution: {64B-128B: 1, 128B-256B: 1}\n"
)
BYTES = "messageSize: 64\nproducerRate: 1MB/s\ntestDuration: 10s\n"
STAGES = "messageSize: 64\nproducerRate: 100\nstages: [{name: a, duration: 5s}, {name: b, duration: 5s}]\n"
SEARCH = (
    "messageSize: 64\nproducerRate: 0\nsearch: {start: 100, hold: 10s}\n"
    "slo: {endToEndLatency: {p50: 100ms}}\n"
)
SWING = PACED + "topics: 3\nskew: {weights: [4, 1, 1], swing: 3s}\n"
LISTENING = "topic: orders\nproducersPerTopic: 0\ntestDuration: 10s\n"
START = 7 * SECOND


def measuring(tmp_path: Path, more: str = PACED, scale: float | None = None) -> WorkloadRun:
    """Return a workload in its measured phase, or first step, which began at :data:`START`."""
    profile = profiles.loads(BASE + more, "p.yaml")
    workload = WorkloadRun(
        name="",
        part=Part(profile=profile),
        plan=made(profile, scale=scale),
        root=tmp_path,
        nonce=1,
        test="t",
        source="p",
        run="r",
        workers=("main",),
    )
    phases = workload.plan.phases or search_phases(
        100.0, in_bytes=None, warmup=0, hold=10 * SECOND, number=1, streams=1
    )
    workload.begin(phases[-1], "measure", START)
    return workload


@pytest.mark.parametrize(
    ("kind", "argument"),
    [
        ("rate", 50.0),
        ("paused", True),
        ("consumers", 0),
        ("consumers", 2),
        ("distribution", {"64B-128B": 1}),
    ],
)
def test_a_change_takes_effect_at_one_instant_that_all_workers_can_still_apply(
    tmp_path: Path, kind: str, argument: Any
) -> None:
    change = requested_change(measuring(tmp_path), kind, argument, START + SECOND)
    assert (change.at, getattr(change, kind), change.end) == (SECOND + CHANGE_IN, argument, False)


@pytest.mark.parametrize("rate", [0, ByteRate(5000)])
def test_a_rate_has_the_unit_of_the_profile_or_is_zero(tmp_path: Path, rate: float) -> None:
    workload = measuring(tmp_path, BYTES)
    assert requested_change(workload, "rate", rate, START).rate == rate


@pytest.mark.parametrize(
    ("more", "rate", "scaled"),
    [
        (PACED, 1000, 100),
        (BYTES, ByteRate(5000), 500),
        (PACED, 25, 2.5),
        (PACED, 0, 0),
    ],
)
def test_a_rate_of_a_scaled_run_is_scaled_as_those_of_its_profile(
    tmp_path: Path, more: str, rate: float, scaled: float
) -> None:
    """Bounds on throughput are scaled too: a rate as it is written would be far above them."""
    workload = measuring(tmp_path, more, scale=0.1)
    assert requested_change(workload, "rate", rate, START).rate == pytest.approx(scaled)


def test_the_load_may_be_ended_until_its_end(tmp_path: Path) -> None:
    """At its own end at the latest; any other change would come too late then."""
    workload = measuring(tmp_path)
    assert requested_change(workload, "end", True, START + 9 * SECOND) == Change(
        at=10 * SECOND, end=True
    )
    with pytest.raises(
        UsageError, match="ends before the change could be agreed: make testDuration longer"
    ):
        requested_change(workload, "rate", 5.0, START + 9 * SECOND)


def test_the_end_of_a_load_resumes_consumers_that_wait_for_a_backlog(tmp_path: Path) -> None:
    """Nothing would be received otherwise, which looks like a fault of the target."""
    backlog = PACED + "consumerBacklogSizeGB: 0.01\nbacklogDrainTimeout: 60s\n"
    workload = measuring(tmp_path, backlog)
    assert workload.current.phase.paused
    change = requested_change(workload, "end", True, START + SECOND)
    assert (change.end, change.paused) == (True, False)
    workload.current.changes.append(Change(at=1, paused=False))
    assert requested_change(workload, "end", True, START + SECOND).paused is None
    assert requested_change(measuring(tmp_path), "end", True, START).paused is None


@pytest.mark.parametrize(
    ("more", "kind", "argument", "text"),
    [
        (
            PACED,
            "consumers",
            3,
            r"load.set_consumers\(3\): not from 0 to 2, the profile's consumerPerSubscription",
        ),
        (PACED, "distribution", {"1KB-2KB": 1}, "1KB-2KB"),
        (STAGES, "rate", 5.0, "the profile's stages say what changes when"),
        (STAGES, "consumers", 1, "the profile's stages say what changes when"),
        (SWING, "rate", 50.0, "skew.swing in the profile: shares move on after a number of"),
        (PACED, "rate", ByteRate(1 << 20), "rate is in messages: write messages, as in 5000/s"),
        (PACED, "rate", 0.0004, r"load.set_rate\(0.0004\): slower than can be paced"),
        (
            LISTENING,
            "rate",
            50.0,
            "producersPerTopic: 0 or messages: 0 in the profile: the run sends no",
        ),
        (LISTENING, "distribution", {"64": 1}, "producersPerTopic: 0 or messages: 0"),
        (BYTES, "rate", 5000.0, "rate is in bytes: write bytes, as in 10MB/s"),
    ],
)
def test_an_impossible_change_is_a_usage_error(
    tmp_path: Path, more: str, kind: str, argument: Any, text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        requested_change(measuring(tmp_path, more), kind, argument, START)


@pytest.mark.parametrize(
    ("kind", "argument"),
    [("rate", 50.0), ("rate", 0), ("paused", True), ("consumers", 1), ("distribution", {"64-65": 1}), ("end", True)],
)  # fmt: skip
def test_a_search_cannot_be_changed_and_is_not_ended_by_the_body(
    tmp_path: Path, kind: str, argument: Any
) -> None:
    """A step would be credited with a rate at which it was not tested."""
    workload = measuring(tmp_path, SEARCH)
    with pytest.raises(UsageError, match=r"a search: it chooses .* load.finish\(\)"):
        requested_change(workload, kind, argument, START)


def test_only_a_single_workload_in_its_measured_phase_can_be_changed(tmp_path: Path) -> None:
    """Not one of several, not before or after the phase, and not after an abort, whose reason the body gets."""
    workload = measuring(tmp_path)
    assert measured_workload([workload], driving=True) is workload
    with pytest.raises(UsageError, match="several workloads: ambiguous"):
        measured_workload([workload, workload], driving=True)
    with pytest.raises(UsageError, match="no phase is being measured"):
        measured_workload([workload], driving=False)
    workload.current.ends = StreamCounts(streams=1)
    with pytest.raises(UsageError, match="no phase is being measured"):
        measured_workload([workload], driving=True)
    workload.current.changes.append(Change(at=5, end=True, aborted=Aborted(reason="lost")))
    with pytest.raises(RunAborted, match="lost"):
        measured_workload([workload], driving=True)
