"""The watch of a profile's ``abort`` section ends a run once, by all workers' reports, and only when every second of the window is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from builders.progress import made_progress
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.engine.progress import TimelyCounts
from pytest_loadtest.engine.run import COLLECT, PROGRESS
from pytest_loadtest.fleet.watches import STALE, AbortWatch
from pytest_loadtest.message.size_mix import SizeMix
from pytest_loadtest.metrics.histogram import rank
from pytest_loadtest.plan.phases import Phase
from pytest_loadtest.schedule.changes import CHANGE_IN, Aborted, Change
from pytest_loadtest.schedule.due_messages import DueMessages
from pytest_loadtest.schedule.pacing import Pacer, StreamCounts
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.verdict.abort import Abort

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.engine.progress import Progress

RATE, BOUND, HOLD, LASTS = 50, 2 * SECOND, 3, 40
LONG_AGO = 1 << 60


def watch_of(
    section: dict[str, object],
    rate: float = RATE,
    seconds: int = LASTS,
    mixes: tuple[tuple[int, SizeMix], ...] = (),
) -> AbortWatch:
    """Return the watch of a phase with one stream and one subscription. :param mixes: sizes, if the rate is in bytes."""
    pacer = Pacer.of(rate, 1)
    phase = Phase(
        name="measure",
        duration=seconds * SECOND,
        pacer=pacer,
        before=StreamCounts(streams=1),
        recorded=True,
        mean_size=mixes[0][1].mean if mixes else None,
    )
    return AbortWatch(Abort.read(section), phase, 1, lambda: DueMessages(pacer, mixes))


def ends(
    came: np.ndarray, due: np.ndarray, watch: AbortWatch, shift: int = 0
) -> tuple[int, Change] | None:
    """Return when and how two workers' reports end the phase. :param came: of each message, ns after the start; workers get them in turn."""
    counts = [TimelyCounts((BOUND,), HOLD + 2 + STALE) for _ in range(2)]
    last: dict[int, Progress] = {}
    told = [0, 0]
    for moment, worker in sorted(
        (n * PROGRESS + worker * shift, worker) for n in range(1, 2 * LASTS) for worker in (0, 1)
    ):
        mine = slice(worker, None, 2)
        new = (came[mine] > told[worker]) & (came[mine] <= moment - COLLECT)
        counts[worker].add(due[mine][new], came[mine][new])
        told[worker] = moment - COLLECT
        last[worker] = made_progress(elapsed=moment, timely=counts[worker].report(moment))
        change = watch.look(list(last.values()), moment) if len(last) == 2 else None
        if change is not None:
            return moment, change
    return None


@given(
    seed=st.integers(0, 1 << 32), slow=st.sampled_from([0.0, 0.005, 0.02, 0.5, 1.0]), first=st.integers(0, 30), length=st.integers(0, 12),
    shift=st.integers(0, PROGRESS - 1),
)  # fmt: skip
def test_a_run_ends_when_and_only_when_every_second_is_lost(
    seed: int, slow: float, first: int, length: int, shift: int
) -> None:
    """At any age of the reports, for messages that come late or never."""
    random = np.random.default_rng(seed)
    due = np.arange(RATE * LASTS, dtype=np.int64) * (SECOND // RATE)
    ill = (
        (due // SECOND >= first)
        & (due // SECOND < first + length)
        & (random.random(len(due)) < slow)
    )
    latency = np.where(
        ill,
        np.where(
            random.random(len(due)) < 0.5,
            LONG_AGO,
            BOUND + 1 + random.integers(0, 9 * SECOND, len(due)),
        ),
        MILLISECOND,
    )
    late = np.bincount(due[latency > BOUND] // SECOND, minlength=LASTS)
    lost = RATE - late < rank(99, RATE)
    windows = [at for at in range(LASTS - HOLD + 1) if lost[at : at + HOLD].all()]
    found = ends(due + latency, due, watch_of({"endToEndLatency.p99": "2s", "for": "3s"}), shift)
    if found is None:  # too near the end to gain anything
        assert (
            not windows
            or (windows[0] + HOLD) * SECOND + BOUND + COLLECT + 3 * PROGRESS + 2 * CHANGE_IN
            >= LASTS * SECOND
        )
        return
    moment, change = found
    assert change.end
    assert change.aborted is not None
    assert change.at == moment + CHANGE_IN
    assert f"in each of the 3 s from second {windows[0]} on" in change.aborted.reason
    assert moment <= (windows[0] + HOLD) * SECOND + BOUND + COLLECT + 3 * PROGRESS


def test_a_target_that_hangs_ends_the_run_though_no_message_arrives() -> None:
    """Second 4 is the first lost one; seconds 4 to 6 are known to be lost after nine seconds."""
    due = np.arange(RATE * LASTS, dtype=np.int64) * (SECOND // RATE)
    found = ends(
        np.where(due < 4 * SECOND, due + MILLISECOND, LONG_AGO),
        due,
        watch_of({"endToEndLatency.p99": "2s", "for": "3s"}),
    )
    assert found is not None
    assert found[0] == 9 * SECOND + PROGRESS
    assert found[1].aborted is not None
    assert found[1].aborted.reason == (
        "aborted 9.50 s into the phase: endToEndLatency.p99 > 2.00 s in each of the 3 s from second 4 on: 0 of 150 deliveries took no longer"
    )


def test_one_second_that_holds_saves_the_run() -> None:
    """Every third second holds: there are never three lost ones in a row."""
    due = np.arange(RATE * LASTS, dtype=np.int64) * (SECOND // RATE)
    came = np.where(due // SECOND % 3 == 2, due + MILLISECOND, LONG_AGO)
    assert ends(came, due, watch_of({"endToEndLatency.p99": "2s", "for": "3s"})) is None


def look(section: dict[str, object], **said: int) -> Callable[[int], Change | None]:
    return lambda seconds: watch_of(section, rate=1000, seconds=100).look(
        [made_progress(elapsed=seconds * SECOND, **said), made_progress(elapsed=seconds * SECOND)],
        seconds * SECOND,
    )


def test_a_bound_on_a_count_is_a_share_of_the_whole_phase() -> None:
    """One per cent of 100 000 messages is 1 000, however few were sent so far; the workers' counts are added."""
    assert look({"failed": "1%"}, failed=1000)(10) is None
    change = look({"failed": "1%"}, failed=1001)(10)
    assert change is not None
    assert change.aborted == Aborted(
        reason="aborted 10.0 s into the phase: failed 1 001 > 1 % of the 100 000 messages planned"
    )
    assert look({"dropped": 5}, dropped=5)(10) is None
    change = look({"dropped": 5}, dropped=6)(10)
    assert change is not None
    assert change.aborted == Aborted(reason="aborted 10.0 s into the phase: dropped 6 > 5")


def test_a_phase_is_ended_once_and_not_near_its_end() -> None:
    """A phase that is over before it could be ended continues."""
    watch = watch_of({"dropped": 5}, seconds=100)
    said = [made_progress(dropped=6)]
    assert watch.look(said, 97 * SECOND) is None
    assert watch.look(said, 10 * SECOND) is not None
    assert watch.look(said, 11 * SECOND) is None


def test_without_counts_of_arrivals_no_second_is_lost() -> None:
    """A report without them proves nothing."""
    assert (
        watch_of({"endToEndLatency.p99": "2s", "for": "3s"}).look(
            [made_progress(elapsed=20 * SECOND, timely=None)], 20 * SECOND
        )
        is None
    )


def test_if_bytes_are_paced_a_run_is_aborted_by_the_most_messages_that_it_can_have() -> None:
    """The sizes that are drawn decide how many messages there are: 1 % of those planned by the mean size may be too few."""
    mix = SizeMix(mean=298.0, variance=9702.0**2 / 49, smallest=100, largest=10_000)
    pacer = Pacer.of(1000 * mix.mean, 1)
    planned = DueMessages(pacer, ((0, mix),)).most(LASTS * SECOND)
    assert planned > 41_000
    for dropped, ends_run in ((planned // 100, False), (planned // 100 + 1, True)):
        watch = watch_of({"dropped": "1%"}, rate=1000 * mix.mean, mixes=((0, mix),))
        change = watch.look([made_progress(elapsed=20 * SECOND, dropped=dropped)], 20 * SECOND)
        assert (change is not None) == ends_run
    assert watch.reason is not None
    assert "of at most 4" in watch.reason
