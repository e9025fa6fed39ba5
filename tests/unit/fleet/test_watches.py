"""Who watches a phase acts once, at the right moment, by what all workers say."""

from __future__ import annotations

from made_progress import made_progress

from pytest_loadtest.changes import CHANGE_IN
from pytest_loadtest.fleet.watches import BacklogWatch, BrokenWatch
from pytest_loadtest.objectives import parse
from pytest_loadtest.pacing import Pacer
from pytest_loadtest.phases import BacklogPlan, Phase
from pytest_loadtest.quantities import MILLISECOND, SECOND

PLAN = BacklogPlan(messages=5000, size=500_000, drain_ratio=1.0, drain_timeout=10 * SECOND, after=3 * SECOND, subscriptions=2)


def test_a_backlog_is_built_drained_and_followed() -> None:
    """Consumers go on when it is large enough over all subscriptions; the end comes so long after it was drained."""
    watch = BacklogWatch(PLAN, 100.0)
    assert watch.look([made_progress(acked=2499)], SECOND) is None
    resume = watch.look([made_progress(acked=1500), made_progress(acked=1000)], 2 * SECOND)
    assert resume is not None
    assert (resume.at, resume.paused) == (2 * SECOND + CHANGE_IN, False)
    assert watch.look([made_progress(acked=4000)], 3 * SECOND - 1) is None
    assert watch.look([made_progress(acked=5000, received=2000)], 4 * SECOND) is None
    mark = watch.look([made_progress(acked=6000, received=11_500)], 5 * SECOND)
    assert mark is not None
    assert watch.drained
    assert watch.look([made_progress(acked=6500, received=12_900)], 5 * SECOND + 1) is None
    end = watch.look([made_progress(acked=7000, received=14_000)], mark.at)
    assert end is not None
    assert end.end
    assert end.at == mark.at + 3 * SECOND
    assert [(span.name, span.start, span.duration) for span in watch.spans] == [
        ("build", 0, resume.at), ("drain", resume.at, 5 * SECOND - resume.at), ("after", 5 * SECOND, mark.at - 2 * SECOND),
    ]  # fmt: skip
    assert (watch.reached, watch.resumed, watch.emptied) == (2 * SECOND, 4 * SECOND, 5 * SECOND)  # seen, not the instants agreed later
    assert (watch.messages, watch.received) == (8000, 11_500)


def test_a_backlog_that_does_not_shrink_is_given_up() -> None:
    """After its time-out the phase goes on to its end and says that it was not drained."""
    watch = BacklogWatch(PLAN, 100.0)
    watch.look([made_progress(acked=2500)], SECOND)
    assert watch.look([made_progress(acked=9000, received=100)], SECOND + CHANGE_IN + 9 * SECOND) is None
    assert watch.look([made_progress(acked=9000, received=200)], SECOND + CHANGE_IN + 10 * SECOND) is not None
    assert not watch.drained


def test_a_step_that_cannot_hold_any_more_is_ended() -> None:
    """One per cent of the planned deliveries are late already, or overdue: p99 is lost."""
    phase = Phase(name="step 1", duration=60 * SECOND, pacer=Pacer.of(1000, 1), first=(0,), recorded=True)
    objectives = parse({"endToEndLatency": {"p99": "100ms"}})[:1]
    watch = BrokenWatch(objectives, phase, 1)
    assert watch.look([made_progress(received=10_000, over=(500,))], 10 * SECOND) is None
    end = watch.look([made_progress(received=10_000, over=(601,))], 10 * SECOND)
    assert end is not None
    assert end.end
    assert watch.broke == "endToEndLatency.p99"
    assert watch.look([made_progress(received=10_000, over=(900,))], 11 * SECOND) is None
    overdue = BrokenWatch(objectives, phase, 1)
    assert overdue.look([made_progress(received=9000, over=(0,))], 10 * SECOND + 100 * MILLISECOND) is not None
    late = BrokenWatch(objectives, phase, 1)
    assert late.look([made_progress(received=0, over=(0,))], 59 * SECOND) is None
