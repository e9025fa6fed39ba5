"""The time line: events while a run was measured."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from builders.documents import document
from builders.measurements import MS, made, made_series, spread
from builders.run_file import made_run_file
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.brokers.base import Restart
from pytest_loadtest.metrics.expected import WorkerEvidence
from pytest_loadtest.pipeline.run_file import RunChange, RunStage
from pytest_loadtest.report.document import (
    TimelineBlocked,
    TimelineStage,
    TimelineStall,
)
from pytest_loadtest.report.measured import MOST_SPANS, second_spans, timeline_section
from pytest_loadtest.report.sections import percentiles
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.slo import Outcome


def change(at: int, **what: Any) -> RunChange:
    none = dict.fromkeys(("rate", "paused", "consumers", "unattainable"))
    return RunChange(
        **{"at": at, "bytes": False, "distribution": False, "end": False, **none, **what}
    )


def stage(name: str, start: int, duration: int) -> RunStage:
    return RunStage(name=name, start=start, duration=duration, slo=None, rate=1.0)


def test_the_timeline_has_stages_changes_and_restarts() -> None:
    """Times are since the start of the measured phase."""
    run = made_run_file(
        start=5 * SECOND, stages=(stage("up", 5 * SECOND, 2 * SECOND), stage("down", 7 * SECOND, SECOND)),
        changes=(
            change(1, rate=500.0), change(2, rate=2.0**20, bytes=True, consumers=3), change(3, paused=True), change(4, paused=False),
            change(5, distribution=True), change(6, end=True, unattainable="loss"), change(7, end=True),
        ),
    )  # fmt: skip
    broker = {"restarts": [{"down": 3, "ready": None, "downAt": "", "readyAt": None}]}
    run = replace(run, facts=replace(run.facts, broker=broker))
    found = timeline_section(run, None)
    assert found.stages == (
        TimelineStage(name="up", start=0, end=2 * SECOND),
        TimelineStage(name="down", start=2 * SECOND, end=3 * SECOND),
    )
    assert [entry.text for entry in found.changes] == [
        "rate 500 msg/s", "rate 1.00 MiB/s, 3 consumers of each subscription", "consumers paused", "consumers resumed", "payload mix",
        "ended: loss could no longer be met", "ended",
    ]  # fmt: skip
    assert (found.restarts, found.stalls, found.blocked) == (
        (Restart(down=3, ready=None),),
        (),
        (),
    )


def test_stalls_and_blocked_seconds_are_spans() -> None:
    seconds = np.zeros((10, 4), np.int64)
    seconds[[2, 3, 9], 1] = 50 * MS, 400 * MS, 49 * MS
    worker = WorkerEvidence(
        worker="gw1", cpu=0.5, stalled=499 * MS, longest_stall=400 * MS, gc=0, seconds=seconds
    )
    blocked = np.zeros(10, np.int64)
    blocked[[4, 5]] = 10_000 * MS, 9_999 * MS  # of 10 000 messages
    found = timeline_section(
        made_run_file(), made(workers=(worker,), series=replace(made_series(), blocked=blocked))
    )
    assert found.stalls == (TimelineStall(worker="gw1", start=2 * SECOND, end=4 * SECOND),)
    assert found.blocked == (TimelineBlocked(start=4 * SECOND, end=5 * SECOND),)
    assert found.changes == ()


@given(st.lists(st.booleans(), max_size=3 * MOST_SPANS))
def test_spans_cover_every_second(seconds: list[bool]) -> None:
    """They cover no other seconds unless there are too many spans, are in order, and end with the run."""
    column = np.array(seconds, np.bool_)
    found = second_spans(column, len(seconds) * SECOND - 1)
    assert len(found) <= MOST_SPANS
    covered = np.zeros(len(seconds), np.bool_)
    for start, end in found:
        covered[start // SECOND : -(-end // SECOND)] = True
    assert (covered & column).tolist() == seconds
    if len(found) < MOST_SPANS:
        assert covered.tolist() == seconds
    assert all(before < after for (_, before), (after, _) in pairwise(found))


def test_too_many_spans_are_joined_over_the_smallest_gaps() -> None:
    column = np.zeros(4 * MOST_SPANS, np.bool_)
    column[::3] = True
    column[7] = True  # a gap of one second behind it
    found = second_spans(column, len(column) * SECOND)
    assert len(found) == MOST_SPANS
    assert any(start <= 7 * SECOND and end >= 10 * SECOND for start, end in found)


def test_a_percentile_that_may_be_among_unknown_values_is_unknown() -> None:
    """Of 100 000 copies 40 000 have no time of the kernel: the verdict has no data for their p99."""
    found = document({"receiveLag": {"p99": "5ms"}}, receive_lag=spread(1, 2, 60_000))
    assert found.verdict.outcome is Outcome.NO_DATA
    assert found.measurements is not None
    lag = found.measurements.latencies["receiveLag"]
    assert lag is not None
    assert lag.percentiles["p50"] is not None
    assert (lag.percentiles["p99"], lag.maximum) == (None, None)
    assert percentiles(lag, "p99") == ("unknown", "unknown")
