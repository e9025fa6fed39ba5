"""The loop of one worker on a simulated clock: every latency and every count is known."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from builders.pacing import offsets
from engine_rig import drive
from null_driver import NullDriver

from pytest_loadtest.engine.generator import GeneratorWatch
from pytest_loadtest.engine.run import COLLECT
from pytest_loadtest.errors import BrokenRun
from pytest_loadtest.message.samples import Status
from pytest_loadtest.metrics.histogram import histogram
from pytest_loadtest.schedule.changes import Change
from pytest_loadtest.schedule.pacing import Pacer
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray


def known(seq: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 1 ms for most messages, 10 ms for every tenth, 100 ms for every hundredth."""
    return np.where(
        seq % 100 == 0, 100 * MILLISECOND, np.where(seq % 10 == 0, 10 * MILLISECOND, MILLISECOND)
    )


def test_known_latencies_are_measured_exactly(tmp_path: Path) -> None:
    """Percentiles are exact to their HDR bucket, counts are exact."""
    run = drive(tmp_path, rate=1000, seconds=2, latency=known)
    service = histogram(
        run.received["received"]
        - run.sent["sent"][np.lexsort((run.sent["seq"], run.sent["stream"]))][_order(run.received)]
    )
    assert service is not None
    assert (service.n, service.minimum, service.maximum) == (2000, MILLISECOND, 100 * MILLISECOND)
    for p, expected in (
        (50, MILLISECOND),
        (89.9, MILLISECOND),
        (90.1, 10 * MILLISECOND),
        (98.9, 10 * MILLISECOND),
        (99.1, 100 * MILLISECOND),
    ):
        assert service.percentile(p) == pytest.approx(expected, rel=0.0005)


def _order(received: dict[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the row of each received message in the sent rows sorted by stream and sequence, 1 000
    a stream.
    """
    order: NDArray[np.int64] = received["stream"].astype(np.int64) * 1000 + received["seq"]
    return order


def test_every_planned_message_is_sent_once_and_none_before_its_time(tmp_path: Path) -> None:
    run = drive(tmp_path, rate=1234, seconds=1.5, streams=3, start=SECOND)
    pacer = Pacer.of(1234, 3)
    assert len(run.sent["seq"]) == pacer.total(1_500_000_000)
    for stream in range(3):
        mine = run.sent["stream"] == stream
        count = int(mine.sum())
        assert run.sent["seq"][mine].tolist() == list(range(count))
        assert (
            run.sent["intended"][mine].tolist()
            == (offsets(pacer, stream, 0, count) + SECOND).tolist()
        )
    assert (run.sent["sent"] >= run.sent["intended"]).all()
    assert (run.sent["status"] == Status.ACKED).all()


def test_no_message_due_in_the_last_tick_is_sent_after_the_end(tmp_path: Path) -> None:
    """One late message of 50 is more than the implicit objective on messages sent in time allows."""
    for rate in range(1_100, 2_000, 70):
        folder = tmp_path / str(rate)
        folder.mkdir()
        run = drive(folder, rate=rate, seconds=0.05, start=SECOND)
        assert run.sent["sent"].max() < SECOND + SECOND // 20


def test_no_message_due_in_the_last_tick_of_a_stage_is_sent_after_it(tmp_path: Path) -> None:
    """A stage is judged like a phase."""
    middle = SECOND // 40
    for rate in range(1_100, 2_000, 70):
        folder = tmp_path / str(rate)
        folder.mkdir()
        run = drive(
            folder,
            rate=rate,
            seconds=0.05,
            start=SECOND,
            change=lambda phase: replace(phase, changes=(Change(at=0), Change(at=middle))),
        )
        first = run.sent["intended"] < SECOND + middle
        assert run.sent["sent"][first].max() < SECOND + middle


def test_a_report_counts_every_arrival_up_to_a_collect_before_it(tmp_path: Path) -> None:
    """A search relies on it when it ends a step early."""
    run = drive(tmp_path, rate=997, seconds=3, latency=known)
    arrived = run.received["received"] - SECOND
    assert len({progress.elapsed for progress in run.progress}) > 6
    for progress in run.progress:
        assert (
            (arrived <= progress.elapsed - COLLECT).sum()
            <= progress.received
            <= (arrived <= progress.elapsed).sum()
        )


def test_a_worker_that_was_held_up_reports_again_when_all_others_do(tmp_path: Path) -> None:
    """The controller adds the counts of workers, which must be of the same instant."""
    seen = drive(tmp_path, rate=100, seconds=2, start=-300 * MILLISECOND).progress
    elapsed = [report.elapsed for report in seen if report.elapsed < 2 * SECOND]
    assert elapsed[0] >= 300 * MILLISECOND
    assert all(late % (SECOND // 2) <= 5 * MILLISECOND for late in elapsed[1:])
    assert len(elapsed) == 4


def test_the_warm_up_is_not_recorded(tmp_path: Path) -> None:
    """The sequences of the measured phase continue those of the warm-up."""
    run = drive(tmp_path, rate=100, seconds=1, warm_up=0.5)
    assert len(run.sent["seq"]) == len(run.received["seq"]) == 100
    assert run.sent["seq"].min() == run.received["seq"].min() == 25


def test_the_delay_of_a_target_at_half_the_rate_is_blocked_time(tmp_path: Path) -> None:
    """Nearly none of it is the generator's own."""
    run = drive(
        tmp_path,
        rate=1000,
        seconds=2,
        streams=1,
        window=5,
        latency=lambda seq: np.full(len(seq), 10 * MILLISECOND),
        max_send_delay=60 * SECOND,
    )
    delay = run.sent["sent"] - run.sent["intended"]
    assert delay.max() > 1.5 * SECOND
    own = delay - run.sent["blocked"]
    assert own.max() <= 2 * MILLISECOND
    assert own.min() >= 0
    assert any(progress.blocked for progress in run.progress)


def test_a_message_later_than_max_send_delay_is_dropped_and_recorded(tmp_path: Path) -> None:
    run = drive(
        tmp_path,
        rate=1000,
        seconds=2,
        streams=1,
        window=5,
        latency=lambda seq: np.full(len(seq), 10 * MILLISECOND),
        max_send_delay=200 * MILLISECOND,
    )
    assert len(run.sent["seq"]) == 2000
    dropped = run.sent["status"] == Status.BLOCKED
    assert 0 < dropped.sum() < 1500
    assert (run.sent["sent"][dropped] == 0).all()
    assert (run.sent["sent"] - run.sent["intended"])[~dropped].max() <= 202 * MILLISECOND
    assert run.progress[-1].dropped == dropped.sum()
    assert run.sent["blocked"][dropped].min() >= 190 * MILLISECOND


def test_unanswered_is_unknown_not_acked(tmp_path: Path) -> None:
    """After the drain's deadline."""
    run = drive(
        tmp_path,
        rate=100,
        seconds=1,
        latency=lambda seq: np.full(len(seq), 3600 * SECOND),
        deliver=False,
    )
    assert (run.sent["status"] == Status.UNKNOWN).all()
    assert (run.sent["acked"] == 0).all()


def test_compact_payloads_get_their_intended_time_from_the_plan(tmp_path: Path) -> None:
    """Their envelope of 16 bytes has none."""
    run = drive(
        tmp_path, rate=1000, seconds=1, size=20, latency=lambda seq: np.full(len(seq), MILLISECOND)
    )
    pacer = Pacer.of(1000, 2)
    for stream in range(2):
        mine = run.received["stream"] == stream
        by_seq = run.received["intended"][mine][np.argsort(run.received["seq"][mine])]
        assert by_seq.tolist() == (offsets(pacer, stream, 0, 500) + SECOND).tolist()


def test_exactly_the_overtaken_messages_of_a_stream_are_late(tmp_path: Path) -> None:
    run = drive(
        tmp_path,
        rate=1000,
        seconds=1,
        streams=1,
        latency=lambda seq: np.where(seq % 100 == 50, 20 * MILLISECOND, MILLISECOND),
    )
    late = run.received["seq"][run.received["flags"] & 2 != 0]
    assert sorted(late.tolist()) == list(range(50, 1000, 100))


def test_the_generator_is_watched_in_the_phase_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the wait for the start nor the drain belongs to it."""
    seen: list[tuple[str, int]] = []
    for name in ("start", "stop"):
        monkeypatch.setattr(
            GeneratorWatch, name, lambda watch, *_, name=name: seen.append((name, watch._clock()))
        )
    monkeypatch.setattr(
        GeneratorWatch, "woke", lambda watch, wanted, now, end: seen.append(("woke", now))
    )
    half_a_tick = MILLISECOND // 2
    drive(
        tmp_path,
        rate=100,
        seconds=1 + half_a_tick / SECOND,
        start=SECOND,
        latency=lambda seq: np.full(len(seq), SECOND // 2),
    )
    (began,) = (at for name, at in seen if name == "start")
    ended = next(at for name, at in seen if name == "stop")
    woke = [at for name, at in seen if name == "woke"]
    assert SECOND <= began <= SECOND + 60 * MILLISECOND
    assert 2 * SECOND + half_a_tick <= ended <= 2 * SECOND + 60 * MILLISECOND
    assert len(woke) > 50
    assert began == min(woke) <= max(woke) == ended


def test_a_phase_that_breaks_off_leaves_no_callback_of_collections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of many sessions would otherwise keep the watch of each broken one."""
    before = list(gc.callbacks)

    def fail(driver: NullDriver) -> None:
        if len(gc.callbacks) > len(before):
            raise BrokenRun("the connection was lost")

    monkeypatch.setattr(NullDriver, "acks", fail)
    with pytest.raises(BrokenRun):
        drive(tmp_path, rate=100, seconds=1)
    assert gc.callbacks == before


def test_a_worker_that_stood_still_over_the_start_of_a_phase_paused_from_its_start_on(
    tmp_path: Path,
) -> None:
    """Its loop had no turn before: the start is known, and nothing was looked at since."""
    engine = drive(tmp_path, rate=100, seconds=1, start=-300 * MILLISECOND).engine
    document = engine.pauses.document(exact=False)
    longest = max(
        end - begin for begin, end in zip(document["begin"], document["end"], strict=True)
    )
    assert longest >= 300 * MILLISECOND
    assert engine.watch.evidence("main").longest_stall >= 300 * MILLISECOND


def test_a_worker_that_stood_still_over_a_whole_phase_was_stalled_for_all_of_it(
    tmp_path: Path,
) -> None:
    """Its first turn comes after the end, and its evidence is not that of the phase before."""
    engine = drive(tmp_path, rate=100, seconds=1, warm_up=1, start=-3 * SECOND).engine
    evidence = engine.watch.evidence("main")
    assert evidence.stalled == SECOND
    assert evidence.longest_stall >= 3 * SECOND


def test_consumers_come_and_go_at_their_instants(tmp_path: Path) -> None:
    """In the order of the instants, whatever the order of the announcements."""
    changes = [
        Change(at=1500 * MILLISECOND, consumers=1),
        Change(at=500 * MILLISECOND, consumers=0),
    ]
    run = drive(tmp_path, rate=1000, seconds=2, told=[(0, change) for change in changes], start=0)
    received = run.received["received"] - run.sent["intended"].min()
    assert ((received < 520 * MILLISECOND) | (received >= 1500 * MILLISECOND)).all()
    assert (received < 500 * MILLISECOND).sum() > 400
    assert (received >= 1500 * MILLISECOND).sum() > 400
