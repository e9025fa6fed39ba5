"""Full windows: messages wait by stream, in order, and delay no other stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from engine_rig import drive
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_loadtest.message.samples import NEVER_SENT, Status
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    import pytest


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    streams=st.integers(1, 12), window=st.integers(1, 5), rate=st.integers(200, 4_000), milliseconds=st.integers(0, 40),
    drop_after=st.sampled_from([10 * SECOND, 30 * MILLISECOND]), in_bytes=st.booleans(),
)  # fmt: skip
def test_every_message_is_sent_once_in_the_order_of_its_stream_or_dropped(
    tmp_path_factory: pytest.TempPathFactory,
    streams: int,
    window: int,
    rate: int,
    milliseconds: int,
    drop_after: int,
    in_bytes: bool,
) -> None:
    """With any windows and any latencies."""
    from dataclasses import replace

    from pytest_loadtest.schedule.pacing import Pacer

    def paced(phase):  # type: ignore[no-untyped-def]
        return replace(phase, pacer=Pacer.of(rate * 64, streams), mean_size=64.0)

    run = drive(
        tmp_path_factory.mktemp("run"), rate=rate, seconds=0.2, streams=streams, window=window, max_send_delay=drop_after,
        latency=lambda seq: (seq * 7919 % 11 + 1) * milliseconds * MILLISECOND // 11, change=paced if in_bytes else None,
    )  # fmt: skip
    sent = run.sent
    for stream in range(streams):
        mine = np.flatnonzero(sent["stream"] == stream)
        mine = mine[np.argsort(sent["seq"][mine])]
        assert sent["seq"][mine].tolist() == list(range(len(mine)))
        went = mine[~np.isin(sent["status"][mine], NEVER_SENT)]
        assert (np.diff(sent["sent"][went]) >= 0).all()
    assert sent["intended"].tolist() == sorted(sent["intended"].tolist())
    own = sent["sent"] - sent["intended"] - sent["blocked"]
    assert own[~np.isin(sent["status"], NEVER_SENT)].min(initial=0) >= 0
    assert (sent["blocked"] >= 0).all()
    assert (
        (sent["status"] == Status.ACKED).sum() == len(run.received["seq"]) == run.progress[-1].acked
    )
    assert run.progress[-1].in_flight == 0


def test_full_streams_are_alike_and_their_delay_is_blocked_time(tmp_path: Path) -> None:
    """500 msg/s are offered to each of four streams that take 200 msg/s."""

    def latency(seq):  # type: ignore[no-untyped-def]
        return np.full(len(seq), 5 * MILLISECOND)

    run = drive(
        tmp_path,
        rate=2000,
        seconds=0.5,
        streams=4,
        window=1,
        latency=latency,
        max_send_delay=10 * SECOND,
    )
    delay = run.sent["sent"] - run.sent["intended"]
    for stream in range(4):  # 500 msg/s a stream, answered in 5 ms: 200 msg/s go; all alike
        mine = delay[run.sent["stream"] == stream]
        assert mine.max() < SECOND
    assert (run.sent["status"] == Status.ACKED).all()
    own = delay - run.sent["blocked"]
    assert own.max() <= 2 * MILLISECOND


def test_waiting_messages_leave_as_soon_as_answers_make_room(tmp_path: Path) -> None:
    run = drive(
        tmp_path, rate=10_000, seconds=0.5, streams=100, window=2, latency=lambda seq: np.full(len(seq), 50 * MILLISECOND),
        max_send_delay=60 * SECOND,
    )  # fmt: skip
    assert (run.sent["status"] == Status.ACKED).all()
    assert (run.sent["sent"] - run.sent["intended"] - run.sent["blocked"]).max() <= 2 * MILLISECOND


def test_a_target_that_takes_nothing_is_reported_as_blocked(tmp_path: Path) -> None:
    """There is no send delay to report then, and no failure."""
    run = drive(
        tmp_path, rate=4, seconds=3, streams=2, window=1, latency=lambda seq: np.full(len(seq), 2 * SECOND), max_send_delay=60 * SECOND,
        drain_timeout=1000 * SECOND,
    )  # fmt: skip
    assert (run.sent["status"] == Status.ACKED).all()
    assert any(progress.blocked and progress.send_delay_p99 is None for progress in run.progress)


def test_messages_of_a_target_that_hangs_are_dropped_before_full_windows(tmp_path: Path) -> None:
    """It answers the first ten messages of each stream and no more; none of the drops is the
    generator's.
    """
    run = drive(
        tmp_path, rate=400, seconds=1, streams=2, window=5, max_send_delay=300 * MILLISECOND, deliver=False,
        latency=lambda seq: np.where(seq < 10, MILLISECOND, 3600 * SECOND),
    )  # fmt: skip
    status, counts = run.sent["status"], run.progress[-1]
    assert (status == Status.ACKED).sum() == 20
    assert (status == Status.UNKNOWN).sum() == 10
    assert (status == Status.BLOCKED).sum() == counts.dropped == 370
    assert run.sent["blocked"][status == Status.BLOCKED].min() > 150 * MILLISECOND
