"""A change takes effect at its instant, for every message of every stream."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from engine_rig import drive

from pytest_loadtest.errors import WorkerError
from pytest_loadtest.message.payloads import Bucket, build_pool
from pytest_loadtest.schedule.changes import Change
from pytest_loadtest.schedule.pacing import Pacer
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

START = 0  # the clock begins there
MIXED = {
    "buckets": [Bucket(name="small", low=32, high=96, weight=9), Bucket(name="large", low=1024, high=3072, weight=1)],
    "message_size": None, "randomized": False, "random_ratio": 0.0, "file_content": None, "seed": 0, "checksum": False, "max_size": None,
}  # fmt: skip


def test_a_new_rate_holds_from_its_instant_on(tmp_path: Path) -> None:
    """1 000 msg/s for a second, then 250: the messages due before keep their times."""
    told = [(START + 500 * MILLISECOND, Change(at=SECOND, rate=250.0))]
    run = drive(tmp_path, rate=1000, seconds=2, told=told, streams=3, start=0)
    intended = np.sort(run.sent["intended"]) - run.sent["intended"].min()
    assert len(intended) == 1250
    assert (intended < SECOND).sum() == 1000
    assert set(np.diff(intended[:1000]).tolist()) == {MILLISECOND}
    assert set(np.diff(intended[1000:]).tolist()) == {4 * MILLISECOND}
    for stream in range(3):
        mine = np.sort(run.sent["seq"][run.sent["stream"] == stream])
        assert mine.tolist() == list(range(len(mine)))
    assert len(run.received["seq"]) == 1250


@pytest.mark.parametrize("mean", [None, 64.0])
def test_a_rate_of_0_is_a_pause(tmp_path: Path, mean: float | None) -> None:
    """Nothing is due until the next rate, and the phase goes on to its end."""
    pool = build_pool(**MIXED | {"buckets": None, "message_size": 64})  # type: ignore[arg-type]
    told = [
        (START, Change(at=SECOND, rate=0.0)),
        (START + 2 * SECOND, Change(at=3 * SECOND, rate=500.0 * (mean or 1))),
    ]
    told.append((START + 3 * SECOND, Change(at=4 * SECOND, rate=0.0)))

    def paced(phase):  # type: ignore[no-untyped-def]
        return replace(phase, pacer=Pacer.of(1000 * (mean or 1), 3), mean_size=mean)

    run = drive(
        tmp_path, rate=1000, seconds=6, told=told, change=paced, pool=pool, streams=3, start=0
    )
    intended = run.sent["intended"] - run.sent["intended"].min()
    per_second = np.bincount(intended // SECOND, minlength=6)
    assert per_second.tolist() == [1000, 0, 0, 500, 0, 0]
    assert max(progress.elapsed for progress in run.progress if progress.sending) >= 5 * SECOND
    assert len(run.received["seq"]) == 1500


def test_an_end_cuts_the_phase_short(tmp_path: Path) -> None:
    """Messages that are due at its instant or later are never sent, and are in no sample."""
    run = drive(
        tmp_path,
        rate=1000,
        seconds=60,
        told=[(START, Change(at=1500 * MILLISECOND, end=True))],
        start=0,
    )
    assert len(run.sent["seq"]) == len(run.received["seq"]) == 1500
    assert run.progress[-1].offered == 1500
    assert run.engine.inbox.arrivals.duration == 1500 * MILLISECOND


@pytest.mark.parametrize("ends", [(1500, 3000), (3000, 1500)])
def test_the_earlier_of_two_ends_counts(tmp_path: Path, ends: tuple[int, int]) -> None:
    """Whichever is announced first: the controller plans the messages up to the earlier one."""
    first, second = (Change(at=at * MILLISECOND, end=True) for at in ends)
    told = [(START, first), (START + SECOND, second)]
    run = drive(tmp_path, rate=1000, seconds=60, told=told, start=0)
    assert len(run.sent["seq"]) == len(run.received["seq"]) == 1500
    assert run.engine.inbox.arrivals.duration == 1500 * MILLISECOND
    assert run.engine.boundary - run.engine.start == 1500 * MILLISECOND


def test_a_change_that_is_heard_of_too_late_breaks_the_run(tmp_path: Path) -> None:
    """Messages that were sent cannot change any more, and another schedule than that of other
    workers would be wrong.
    """
    with pytest.raises(WorkerError, match="a change came too late: this worker had already sent"):
        drive(
            tmp_path,
            rate=1000,
            seconds=2,
            told=[(START + SECOND, Change(at=500 * MILLISECOND, rate=10.0))],
            start=0,
        )


def test_a_new_distribution_changes_only_messages_due_from_its_instant_on(tmp_path: Path) -> None:
    pool = build_pool(**MIXED)  # type: ignore[arg-type]
    told = [(START, Change(at=SECOND, distribution={"large": 1}))]
    run = drive(tmp_path, rate=1000, seconds=2, told=told, pool=pool, start=0)
    late = run.sent["intended"] >= run.sent["intended"].min() + SECOND
    assert set(run.sent["bucket"][late].tolist()) == {1}
    assert 0 < (run.sent["bucket"][~late] == 1).sum() < 300
    assert np.array_equal(np.sort(run.sent["size"]), np.sort(run.received["size"]))


def test_a_pause_of_consumers_delays_messages_and_loses_none(tmp_path: Path) -> None:
    told = [
        (START, Change(at=500 * MILLISECOND, paused=True)),
        (START, Change(at=1500 * MILLISECOND, paused=False)),
    ]
    run = drive(tmp_path, rate=1000, seconds=2, told=told, start=0)
    received = run.received["received"] - run.sent["intended"].min()
    assert ((received < 520 * MILLISECOND) | (received >= 1500 * MILLISECOND)).all()
    assert len(run.received["seq"]) == 2000


def test_a_rate_in_bytes_holds_in_every_tenth_of_a_second(tmp_path: Path) -> None:
    """Within the size of a message of each stream, for a mixed distribution."""
    pool = build_pool(**MIXED)  # type: ignore[arg-type]
    rate, streams = 200_000, 2

    def in_bytes(phase):  # type: ignore[no-untyped-def]
        return replace(phase, pacer=Pacer.of(rate, streams), mean_size=pool.mean_size)

    run = drive(
        tmp_path,
        rate=1,
        seconds=3,
        change=in_bytes,
        pool=pool,
        streams=streams,
        start=0,
        warm_up=0.5,
    )
    offset = run.sent["intended"] - run.sent["intended"].min()
    per_tenth = np.bincount(offset // (100 * MILLISECOND), weights=run.sent["size"], minlength=30)
    assert per_tenth.sum() == pytest.approx(rate * 3, abs=2 * streams * 3072)
    assert np.abs(per_tenth - rate / 10).max() <= 2 * streams * 3072
    for stream in range(streams):
        mine = np.sort(run.sent["seq"][run.sent["stream"] == stream])
        assert np.array_equal(mine, np.arange(mine[0], mine[0] + len(mine)))
    assert len(run.received["seq"]) == len(run.sent["seq"])
