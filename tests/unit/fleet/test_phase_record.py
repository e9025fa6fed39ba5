"""The bookkeeping of one phase, without clocks and files."""

from __future__ import annotations

import numpy as np
import pytest
from builders.plans import loopback, made

from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet.messages import PhaseFinished
from pytest_loadtest.fleet.phase_record import PhaseRecord, mark_at
from pytest_loadtest.plan.plan import profile_pool
from pytest_loadtest.schedule.changes import Aborted, Change
from pytest_loadtest.values.quantities import SECOND


def record_of(rate: float = 10) -> PhaseRecord:
    """Return the record of a phase of two seconds with five streams on two workers."""
    profile = loopback(producers=5, rate=rate, duration="2s")
    plan = made(profile, workers=2)
    return PhaseRecord(
        plan=plan,
        phase=plan.measure,
        start=7 * SECOND,
        pool=lambda: profile_pool(profile, None),
        spans=plan.measure.stages,
    )


def reports(record: PhaseRecord, sent: int) -> list[PhaseFinished]:
    """Return the reports of both workers, if each stream has sent so many messages in the phase."""
    ends = record.phase.first + sent
    return [
        PhaseFinished(ends=ends[rank::2], marks=(), disconnected=None, answered=True)
        for rank in range(2)
    ]


def test_a_phase_ends_with_the_planned_messages_of_every_stream() -> None:
    record = record_of()
    ends = record.finish(reports(record, 4))
    assert ends.column().tolist() == (record.phase.first + 4).tolist()
    assert record.ends is ends
    assert record.rate() == 10


def test_a_stream_that_sent_other_than_planned_is_an_error_with_both_counts() -> None:
    """The phase has no end then."""
    record = record_of()
    end = record.phase.first[0] + 4
    with pytest.raises(
        NoData,
        match=f"{end - 1} messages of stream 0 were sent, {end} were planned .internal error.",
    ):
        record.finish(reports(record, 3))
    assert record.ends is None


def test_changes_decide_duration_rate_and_messages() -> None:
    """A rate of 20/s after a second, and the end half a second later."""
    record = record_of()
    record.changes += [Change(at=SECOND, rate=20.0), Change(at=3 * SECOND // 2, end=True)]
    assert record.duration == 3 * SECOND // 2
    assert record.due_messages().most(record.duration) == 20
    record.finish(reports(record, 4))
    assert record.rate() == pytest.approx(20 / 1.5)


def test_an_abort_is_the_reason_of_its_phase() -> None:
    record = record_of()
    assert record.aborted is None
    aborted = Aborted(reason="lost")
    record.changes.append(Change(at=5, end=True, aborted=aborted))
    assert record.aborted is aborted


def test_the_mark_of_a_change_is_the_next_one_and_of_two_at_one_instant_the_later() -> None:
    marks = [(at, np.array([column])) for at, column in ((1, 10), (3, 30), (3, 31))]
    assert [mark_at(marks, at).tolist() for at in (1, 2, 3)] == [[10], [31], [31]]
