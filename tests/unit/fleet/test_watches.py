"""Watches act once, at the right moment, on the reports of all workers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from builders.objectives import parse_slo
from builders.progress import made_progress
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.engine.run import COLLECT, PROGRESS
from pytest_loadtest.fleet.watches import BacklogWatch, BrokenWatch, Look
from pytest_loadtest.message.size_mix import SizeMix
from pytest_loadtest.plan.phases import BacklogPlan, Phase
from pytest_loadtest.schedule.changes import CHANGE_IN
from pytest_loadtest.schedule.due_messages import DueMessages
from pytest_loadtest.schedule.pacing import Pacer, StreamCounts
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.verdict.early import exceeds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.verdict.objectives import Objective

PLAN = BacklogPlan(
    messages=5000, size=500_000, drain_ratio=1.0, drain_timeout=10 * SECOND, after=3 * SECOND, subscriptions=2, rate=2500.0
)  # fmt: skip


def test_a_backlog_is_built_drained_and_followed() -> None:
    """Consumers resume when it is large enough over all subscriptions; the phase ends some time after it was drained."""
    watch = BacklogWatch(PLAN, 100.0)
    assert watch.look([made_progress(acked=2499)], SECOND) is None
    resume = watch.look([made_progress(acked=1500), made_progress(acked=1000)], 2 * SECOND)
    assert resume is not None
    assert (resume.at, resume.paused) == (2 * SECOND + CHANGE_IN, False)
    assert watch.look([made_progress(acked=4000)], 3 * SECOND - 1) is None
    assert watch.look([made_progress(acked=5000, received=2000)], 4 * SECOND) is None
    mark = watch.look([made_progress(acked=6000, received=11_500)], 5 * SECOND)
    assert mark is not None
    assert watch.drained_between(0, 0)[0] == Look(5 * SECOND, 500, 11_500)
    assert watch.look([made_progress(acked=6500, received=12_900)], 5 * SECOND + 1) is None
    end = watch.look([made_progress(acked=7000, received=14_000)], mark.at)
    assert end is not None
    assert end.end
    assert end.at == mark.at + 3 * SECOND
    assert [(span.name, span.start, span.duration) for span in watch.spans] == [
        ("build", 0, resume.at), ("drain", resume.at, 5 * SECOND - resume.at), ("after", 5 * SECOND, mark.at - 2 * SECOND),
    ]  # fmt: skip
    assert (watch.reached, watch.resumed, watch.emptied) == (
        2 * SECOND,
        4 * SECOND,
        5 * SECOND,
    )  # seen, not the instants agreed later
    assert watch.messages == 8000


def test_a_backlog_that_does_not_shrink_is_given_up() -> None:
    """After its timeout the phase runs to its end, and the backlog was not drained."""
    watch = BacklogWatch(PLAN, 100.0)
    watch.look([made_progress(acked=2500)], SECOND)
    assert (
        watch.look([made_progress(acked=9000, received=100)], SECOND + CHANGE_IN + 9 * SECOND)
        is None
    )
    assert (
        watch.look([made_progress(acked=9000, received=200)], SECOND + CHANGE_IN + 10 * SECOND)
        is not None
    )
    assert watch.drained_between(0, 0) == (None, None)
    assert watch.last.waiting == 17_800


def test_reports_of_different_instants_drain_no_backlog() -> None:
    """One worker has counted half a second of copies whose acknowledgements the other has not reported: 400 seem to wait, and 900 do."""
    watch = BacklogWatch(PLAN, 100.0)
    watch.look([made_progress(acked=2500)], SECOND)
    resumed = SECOND + CHANGE_IN
    later = resumed + SECOND
    new = made_progress(received=8600, elapsed=later)
    assert watch.look([made_progress(acked=4500, elapsed=later - SECOND // 2), new], later) is None
    assert watch.look([made_progress(acked=4750, elapsed=later), new], later) is None
    assert watch.emptied is None
    even = [made_progress(acked=4500, elapsed=later), new]
    assert watch.look(even, later + SECOND) is not None
    assert watch.drained_between(0, 0)[0] is not None


def test_no_look_that_comes_late_makes_a_phase_longer() -> None:
    """Workers would send more than was planned."""
    watch = BacklogWatch(PLAN, 100.0)
    watch.look([made_progress(acked=2500)], SECOND)
    watch.look([made_progress(acked=9000, received=18_000)], 5 * SECOND)
    end = watch.look([made_progress(acked=9900, received=19_800)], PLAN.longest - SECOND)
    assert end is not None
    assert (end.at, end.end) == (PLAN.longest, True)
    assert watch.spans[-1].start + watch.spans[-1].duration == PLAN.longest


def test_a_drain_that_takes_too_long_ends_whatever_workers_report() -> None:
    """One of them may stand still."""
    watch = BacklogWatch(PLAN, 100.0)
    watch.look([made_progress(acked=2500)], SECOND)
    over = SECOND + CHANGE_IN + PLAN.drain_timeout
    reports = [made_progress(acked=4500, elapsed=over - SECOND), made_progress(elapsed=over)]
    assert watch.look(reports, over) is not None


def test_a_backlog_is_drained_when_no_more_waits_than_is_under_way() -> None:
    """At most what is sent in 100 ms over all subscriptions, or the share backlogDrainRatio: 500 of 5 000, but not 1 000."""
    assert PLAN.drained == 500
    assert replace(PLAN, drain_ratio=0.8).drained == 1000
    for left, drained in ((501, False), (500, True)):
        watch = BacklogWatch(PLAN, 100.0)
        watch.look([made_progress(acked=2500)], SECOND)
        mark = watch.look(
            [made_progress(acked=9000, received=18_000 - left)], SECOND + CHANGE_IN + SECOND
        )
        assert (mark is not None) == drained


RESUMED = SECOND + CHANGE_IN


def drained_with(
    *looks: tuple[int, int, int], ordered: bool = True
) -> tuple[BacklogWatch, list[int]]:
    """The watch of a backlog that stands at 20 000 deliveries, and the looks that called for a change.

    :param looks: s after consumers went on, copies received, and how many of them may be second ones.
    """
    watch, acted = BacklogWatch(PLAN, 100.0, ordered=ordered), []
    watch.look([made_progress(acked=10_000)], SECOND)
    for seconds, received, repeats in looks:
        change = watch.look(
            [made_progress(acked=10_000, received=received, repeats=repeats)],
            RESUMED + seconds * SECOND,
        )
        acted += [] if change is None else [seconds]
    return watch, acted


def between(watch: BacklogWatch, uncounted: int, lost: int = 0) -> tuple[int | None, ...]:
    """Return the limits of the drain, s after consumers resumed."""
    return tuple(
        look and (look.elapsed - RESUMED) // SECOND
        for look in watch.drained_between(uncounted, lost)
    )


def test_second_copies_do_not_drain_a_backlog() -> None:
    """The phase continues until the backlog is drained without them."""
    watch, acted = drained_with((1, 20_000, 8000), (2, 27_499, 8000), (3, 27_500, 8000))
    assert acted == [3]
    assert between(watch, 8000) == (1, 3)


def test_first_copies_out_of_order_do_not_keep_a_backlog_from_being_drained() -> None:
    """The samples show that there was no second copy; without ordered delivery none is presumed."""
    watch, acted = drained_with((1, 20_000, 8000), (10, 20_000, 8000))
    assert acted == [10]
    assert between(watch, 0) == (1, 1)
    assert drained_with((1, 20_000, 8000), ordered=False)[1] == [1]


def test_second_copies_at_other_consumers_make_the_end_of_a_drain_uncertain() -> None:
    """Load continues for a while after the drain: looks in that time count."""
    watch, acted = drained_with((1, 20_000, 0), (4, 24_000, 0), (5, 27_500, 0))
    assert acted == [1, 4]
    assert between(watch, 8000) == (1, 5)
    assert between(watch, 9000) == (1, None)


def test_lost_messages_need_not_have_waited() -> None:
    """20 000 waited, 500 may be left: 1 000 that never came leave open when it was drained."""
    watch, acted = drained_with((1, 18_400, 0), (2, 18_500, 0), (3, 19_499, 0), (4, 19_500, 0))
    assert acted == [4]
    assert between(watch, 0, lost=1000) == (2, 4)
    assert between(watch, 0) == (4, 4)


def test_looks_after_the_end_of_load_do_not_count_for_the_drain() -> None:
    """The last messages arrive faster when no producer sends."""
    watch, acted = drained_with((1, 20_000, 0), (4, 24_000, 0), (60, 28_000, 0))
    assert acted == [1, 4]
    assert between(watch, 8000) == (1, None)


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 3000)), min_size=1, max_size=30),
    st.integers(0, 3000),
)
def test_the_true_end_of_a_drain_lies_between_its_limits(
    steps: list[tuple[int, int]], later: int
) -> None:
    """For any order of first and second copies, looked at once a second."""
    watch = BacklogWatch(PLAN, 100.0)
    watch.look([made_progress(acked=10_000)], SECOND)
    first = second = 0
    true: int | None = None
    for n, (more, again) in enumerate(steps, 1):
        first, second = min(first + more, 20_000), second + again
        watch.look([made_progress(acked=10_000, received=first + second)], RESUMED + n * SECOND)
        if true is None and 20_000 - first <= PLAN.drained:
            true = n
    if watch.emptied is None:
        assert true is None
        return
    earliest, latest = between(watch, second + later)
    assert true is None or earliest is None or earliest <= true
    assert latest is None or (true is not None and true <= latest)
    if not second + later:
        assert earliest == latest


def watch_of(
    section: dict[str, object],
    *,
    rate: float = 1000,
    seconds: int = 60,
    mix: SizeMix | None = None,
    one_order: bool = True,
) -> BrokenWatch:
    """Return the watch of a step with one stream and one subscription. :param mix: the sizes, if the rate is in bytes."""
    phase = Phase(
        name="step 1",
        duration=seconds * SECOND,
        pacer=Pacer.of(rate, 1),
        before=StreamCounts(streams=1),
        recorded=True,
        mean_size=None if mix is None else mix.mean,
    )
    due = DueMessages(phase.pacer, () if mix is None else ((0, mix),))
    return BrokenWatch(
        parse_slo({"endToEndLatency": section})[: len(section)],
        phase,
        1,
        due,
        one_order=one_order,
    )


def test_a_step_that_cannot_hold_any_more_is_ended() -> None:
    """One per cent of the planned deliveries are late or overdue: p99 is certainly missed, and the change names it."""
    watch = watch_of({"p99": "100ms"})
    assert (
        watch.look(
            [made_progress(elapsed=10 * SECOND, received=10_000, beyond_bounds=(500,))], 10 * SECOND
        )
        is None
    )
    end = watch.look(
        [made_progress(elapsed=10 * SECOND, received=10_000, beyond_bounds=(601,))], 10 * SECOND
    )
    assert end is not None
    assert (end.end, end.unattainable) == (True, "endToEndLatency.p99")
    assert (
        watch.look(
            [made_progress(elapsed=11 * SECOND, received=10_000, beyond_bounds=(900,))], 11 * SECOND
        )
        is None
    )
    seen = 10 * SECOND + COLLECT + 101 * MILLISECOND
    assert (
        watch_of({"p99": "100ms"}).look(
            [made_progress(elapsed=seen, received=9000, beyond_bounds=(0,))], seen
        )
        is not None
    )
    late = [made_progress(elapsed=59 * SECOND, received=0, beyond_bounds=(0,))]
    assert (
        watch_of({"p99": "100ms"}).look(late, 59 * SECOND) is None
    )  # too near the end to gain anything


def test_what_is_due_is_taken_at_the_oldest_report() -> None:
    """Messages due after the oldest report may have reached its worker."""
    fresh = made_progress(elapsed=10 * SECOND, received=5000, beyond_bounds=(0,))
    old = made_progress(elapsed=9500 * MILLISECOND, received=4650, beyond_bounds=(0,))
    assert watch_of({"p99": "100ms"}, seconds=20).look([fresh, old], 10 * SECOND) is None


def test_a_message_that_never_arrives_misses_a_percentile_but_not_the_max() -> None:
    """Percentiles rank over all that was due; ``max`` is of what arrived, and loss has its own bound."""
    lossy = [made_progress(elapsed=20 * SECOND, received=19_000, beyond_bounds=(0,))]
    assert watch_of({"max": "100ms"}).look(lossy, 20 * SECOND) is None
    assert watch_of({"p99": "100ms"}).look(lossy, 20 * SECOND) is not None


@pytest.mark.parametrize("statistic", ["p99", "max"])
def test_a_late_copy_that_may_be_a_second_one_ends_nothing(statistic: str) -> None:
    """The verdict uses first copies: a late second one misses no bound, neither of a percentile nor of the max."""
    twice = [
        made_progress(elapsed=20 * SECOND, received=30_000, repeats=10_000, beyond_bounds=(900,))
    ]
    assert watch_of({statistic: "100ms"}).look(twice, 20 * SECOND) is None
    elsewhere = [
        made_progress(
            elapsed=20 * SECOND, received=30_000, redelivered=10_000, beyond_bounds=(900,)
        )
    ]
    assert watch_of({statistic: "100ms"}).look(elsewhere, 20 * SECOND) is None


@pytest.mark.parametrize("statistic", ["p99", "max"])
def test_a_late_copy_of_a_shared_subscription_ends_nothing(statistic: str) -> None:
    """At another consumer, or on another topic of a service, a second copy looks like a first one."""
    late = [made_progress(elapsed=20 * SECOND, received=30_000, beyond_bounds=(900,))]
    assert watch_of({statistic: "100ms"}, one_order=False).look(late, 20 * SECOND) is None
    assert watch_of({statistic: "100ms"}).look(late, 20 * SECOND) is not None


def test_second_copies_do_not_hide_what_is_overdue() -> None:
    """9 000 copies arrived of 20 000 due messages: more than 600 are overdue, whichever were second copies."""
    stuck = [made_progress(elapsed=20 * SECOND, received=9000, repeats=100, beyond_bounds=(0,))]
    assert watch_of({"p99": "100ms"}, one_order=False).look(stuck, 20 * SECOND) is not None


ONE_SIZE = SizeMix(mean=100.0, variance=0.0, smallest=100, largest=100)
FEW_LARGE = SizeMix(
    mean=298.0, variance=9702.0**2 / 49, smallest=100, largest=10_000
)  # 2 % of 10 000 bytes


@pytest.mark.parametrize("mix", [ONE_SIZE, FEW_LARGE])
def test_if_bytes_are_paced_a_step_ends_by_the_most_messages_that_it_can_have(mix: SizeMix) -> None:
    """The sizes that are drawn decide how many messages there are."""
    paced = {"rate": 1000 * mix.mean, "mix": mix}
    planned = DueMessages(Pacer.of(1000 * mix.mean, 1), ((0, mix),)).most(60 * SECOND)
    assert (planned == 60_000) == (mix is ONE_SIZE)
    for late, ends in ((planned // 100, False), (planned // 100 + 2, True)):
        said = [made_progress(elapsed=20 * SECOND, received=20_000, beyond_bounds=(late,))]
        assert (watch_of({"p99": "100ms"}, **paced).look(said, 20 * SECOND) is not None) == ends


def test_if_bytes_are_paced_messages_that_are_certainly_due_are_overdue() -> None:
    """A target from which nothing comes ends the step, one that may have received all does not."""
    paced = {"rate": 1000 * FEW_LARGE.mean, "mix": FEW_LARGE}
    for received, ends in ((0, True), (18_500, False)):
        said = [made_progress(elapsed=20 * SECOND, received=received, beyond_bounds=(0,))]
        assert (watch_of({"p99": "100ms"}, **paced).look(said, 20 * SECOND) is not None) == ends


RATE, HOLD = 1000, 12
LONG_AGO = 1 << 60


def two_workers(
    came: NDArray[np.int64], latency: NDArray[np.int64], bound: int, late: list[int]
) -> list[tuple[list[Progress], int]]:
    """What a controller sees of a step: every report of either worker with the other's last one, and when it is looked at.

    :param came: ns after the start at which each message came, or :data:`LONG_AGO` where it never did; the workers get them by turns.
    :param late: of each worker, ns by which its reports are later than the other's, and by which its last collect was before them.
    """
    shift, collected = late
    moments = sorted(
        (worker * shift + n * PROGRESS, worker) for n in range(1, HOLD * 2) for worker in (0, 1)
    )
    last: dict[int, Progress] = {}
    seen = []
    for moment, worker in moments:
        there = came[worker::2] <= moment - collected
        last[worker] = made_progress(
            elapsed=moment,
            received=int(there.sum()),
            beyond_bounds=(int((there & (latency[worker::2] >= bound)).sum()),),
        )
        if len(last) == 2:
            seen.append((list(last.values()), moment + MILLISECOND))
    return seen


def holds(objective: Objective, latency: NDArray[np.int64], lost: NDArray[np.bool_]) -> bool:
    """Return the verdict over the whole hold: nearest rank over all that was due, or the largest value that arrived."""
    threshold = exceeds(objective)
    assert threshold is not None
    if objective.percentile is None:
        return bool((latency[~lost] < threshold).all())
    ranked = np.sort(np.where(lost, LONG_AGO, latency))
    return bool(ranked[-(-len(ranked) * int(objective.percentile) // 100) - 1] < threshold)


@given(
    seed=st.integers(0, 1 << 32),
    statistic=st.sampled_from(["p50", "p90", "p99", "max"]),
    typical=st.sampled_from([1, 50, 99, 140]),
    lost=st.sampled_from([0.0, 0.005, 0.02]),
    stalled=st.sampled_from([0, 100, 700]),
    shift=st.integers(0, PROGRESS - 1),
    collected=st.integers(0, COLLECT - 1),
)
def test_no_step_that_would_hold_is_ended(
    seed: int, statistic: str, typical: int, lost: float, stalled: int, shift: int, collected: int
) -> None:
    """At any age of two workers' reports, whether messages are slow, stop for a while, or never arrive."""
    watch = watch_of({statistic: "100ms"}, rate=RATE, seconds=HOLD)
    random = np.random.default_rng(seed)
    due = np.arange(RATE * HOLD, dtype=np.int64) * (SECOND // RATE)
    latency = (random.random(len(due)) * 2 * typical * MILLISECOND).astype(np.int64)
    still = 3 * SECOND
    latency = np.where(
        (due >= still) & (due < still + stalled * MILLISECOND),
        latency + still + stalled * MILLISECOND - due,
        latency,
    )
    never = random.random(len(due)) < lost
    (objective,) = parse_slo({"endToEndLatency": {statistic: "100ms"}})[:1]
    bound = exceeds(objective)
    assert bound is not None
    came = np.where(never, LONG_AGO, due + latency)
    ended = [
        watch.look(said, moment)
        for said, moment in two_workers(came, latency, bound, [shift, collected])
    ]
    if any(ended):
        assert not holds(objective, latency, never)


@pytest.mark.parametrize("shift", [0, PROGRESS // 2, PROGRESS - 1])
def test_a_target_that_hangs_ends_a_step_within_two_reports(shift: int) -> None:
    """No message arrives after two seconds: p99 of twelve seconds is missed once 121 are overdue."""
    watch = watch_of({"p99": "100ms"}, rate=RATE, seconds=HOLD)
    due = np.arange(RATE * HOLD, dtype=np.int64) * (SECOND // RATE)
    came = np.where(due < 2 * SECOND, due + MILLISECOND, LONG_AGO)
    looks = two_workers(came, came - due, 100 * MILLISECOND, [shift, 0])
    moment = next(moment for said, moment in looks if watch.look(said, moment) is not None)
    assert moment <= 2 * SECOND + 121 * MILLISECOND + 100 * MILLISECOND + COLLECT + 2 * PROGRESS
