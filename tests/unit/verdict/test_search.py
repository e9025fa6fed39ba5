"""The search for the peak: exact if the target answers exactly, near it otherwise. Simulated targets, without load and clock."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from token_bucket import TokenBucket

from pytest_loadtest.errors import NoData, UsageError
from pytest_loadtest.testing import FakeClock
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.verdict.peak import (
    MOST_CONFIRMATIONS,
    MOST_STEPS,
    Ask,
    Peak,
    Search,
    Spec,
    Step,
)
from pytest_loadtest.verdict.slo import Outcome

MET, MISSED, LIMITED, NO_DATA = (
    Outcome.MET,
    Outcome.MISSED,
    Outcome.GENERATOR_LIMITED,
    Outcome.NO_DATA,
)
SPEC = Spec(
    start=1000,
    maximum=None,
    hold=30 * SECOND,
    confirm=60 * SECOND,
    warmup=5 * SECOND,
    precision=0.02,
    repeats=2,
)
SHORT = 1.0001  # rates have five digits

Target = Callable[[Ask], Outcome]


def run(target: Target, spec: Spec = SPEC) -> Peak:
    search = Search(spec)
    while ask := search.next():
        outcome = target(ask)
        search.record(
            Step(
                ask=ask,
                outcome=outcome,
                broke=("endToEndLatency.p99",) if outcome is MISSED else (),
            )
        )
    return search.peak()


def below(limit: float, *, beyond: Outcome = MISSED) -> Target:
    return lambda ask: MET if ask.rate <= limit else beyond


def once(number: int, outcome: Outcome, target: Target) -> Target:
    """The target, but for one step."""
    return lambda ask: outcome if ask.number == number else target(ask)


class Broker:
    """A token bucket under a fake clock: a step meets what the one before it left behind, less what drained in between."""

    def __init__(self, bucket: TokenBucket, bound: int, p: float = 100) -> None:
        self.bucket, self.bound, self.p = bucket, bound, p
        self.clock, self.level = FakeClock(), 0.0

    def __call__(self, ask: Ask) -> Outcome:
        self._load(ask.rate, ask.warmup)
        met = self.bucket.holds(ask.rate, ask.duration, self.bound, self.p, self.level)
        self._load(ask.rate, ask.duration)
        return MET if met else MISSED

    def _load(self, rate: float, duration: int) -> None:
        """A phase and its drain, down to the idle broker."""
        self.level = self.bucket.after(rate, duration, self.level)
        self.clock.advance(duration + self.bucket.drain_time(self.level))
        refill = round(self.bucket.depth / self.bucket.capacity * SECOND)
        self.level = self.bucket.after(
            0, self.bucket.drain_time(self.level) + refill + SECOND, self.level
        )
        assert self.level == 0


RATES = st.floats(1, 1e6).map(lambda rate: float(f"{rate:.5g}"))
PRECISIONS = st.sampled_from([0.001, 0.01, 0.02, 0.1])


@given(
    capacity=st.floats(100, 1e6),
    depth=st.integers(1, 100),
    hold=st.integers(5, 300),
    bound=st.integers(1, 1000),
    p=st.sampled_from([99.0, 100.0]),
)
def test_a_token_bucket_is_found_within_the_precision_of_its_closed_form(
    capacity: float, depth: int, hold: int, bound: int, p: float
) -> None:
    """For any capacity, depth, hold and bound, from a start far off; the interval holds the truth."""
    broker = Broker(TokenBucket(capacity, depth), bound * MILLISECOND, p)
    peak = run(broker, replace(SPEC, hold=hold * SECOND, confirm=hold * SECOND))
    truth, message = (
        broker.bucket.highest_rate(hold * SECOND, bound * MILLISECOND, p),
        100 / p / hold,
    )
    assert peak.limit == "target" and peak.confirmed and not peak.at_least
    assert peak.low is not None and peak.high is not None
    assert peak.low - message <= truth <= peak.high + message
    assert 1 < peak.high / peak.low <= 1.02


@given(capacity=st.floats(1000, 1e6), hold=st.integers(5, 60), bound=st.integers(1, 3000))
def test_a_longer_confirmation_asks_for_the_longer_holds_rate(
    capacity: float, hold: int, bound: int
) -> None:
    """A short hold lets more pass; what is found holds for the long one, and the bound above it is right for the long one."""
    broker = Broker(TokenBucket(capacity), bound * MILLISECOND)
    peak = run(broker, replace(SPEC, hold=hold * SECOND, confirm=2 * hold * SECOND))
    truth = broker.bucket.highest_rate(2 * hold * SECOND, bound * MILLISECOND)
    assert peak.confirmed and peak.low is not None and peak.high is not None
    assert peak.low <= truth * SHORT and truth <= peak.high * SHORT
    assert sum(step.ask.purpose == "confirm" for step in peak.steps) <= MOST_CONFIRMATIONS


def test_a_search_finds_20_000_messages_a_second_from_any_start() -> None:
    """Ten starting points, all within 3 %, and the fake clock shows what it costs."""
    for start in (100, 300, 1000, 5000, 19_000, 20_000, 21_000, 50_000, 400_000, 10_000):
        broker = Broker(TokenBucket(20_000, 200), 100 * MILLISECOND, 99)
        peak = run(broker, replace(SPEC, start=start))
        assert peak.rate == pytest.approx(
            broker.bucket.highest_rate(60 * SECOND, 100 * MILLISECOND, 99), rel=0.03
        )
        assert broker.clock.now < 30 * 60 * SECOND


@given(limit=RATES, start=RATES, precision=PRECISIONS)
def test_any_threshold_is_found_in_few_steps(limit: float, start: float, precision: float) -> None:
    """As many as doubling and halving take, one repeat and one confirmation."""
    spec = replace(SPEC, start=start, precision=precision)
    assume(spec.lowest <= limit)
    peak = run(below(limit), spec)
    assert peak.low is not None and peak.high is not None
    assert peak.low <= limit < peak.high and peak.high / peak.low <= 1 + precision
    bracket = abs(math.log2(limit / start)) + 2
    assert (
        len(peak.steps)
        <= bracket + math.ceil(math.log2(math.log(2) / math.log(1 + precision))) + 1 + 2
    )
    assert peak.broke_first == "endToEndLatency.p99"


@given(limit=RATES, number=st.integers(1, 25), outcome=st.sampled_from([MET, MISSED, LIMITED]))
def test_one_false_step_is_corrected(limit: float, number: int, outcome: Outcome) -> None:
    """The answer is confirmed, and at most one step of the precision lower."""
    assume(limit >= SPEC.lowest * 4)
    peak = run(once(number, outcome, below(limit)))
    assert peak.confirmed and peak.low is not None
    assert limit / 1.02**2.1 <= peak.low
    spoilt = next((step for step in peak.steps if step.ask.number == number), None)
    if spoilt is None or spoilt.ask.purpose != "confirm":
        assert peak.low <= limit and (peak.high is None or limit < peak.high)


@pytest.mark.parametrize("seed", range(40))
def test_a_noisy_target_is_found_within_three_per_cent(seed: int) -> None:
    """The nearer the bound the likelier a step turns: one in six at 1 %, one in twenty-four at 2 %."""
    noise = random.Random(seed)

    def target(ask: Ask) -> Outcome:
        held = 1 / (1 + (ask.rate / 20_000) ** 160)
        return MET if noise.random() < held else MISSED

    peak = run(target, replace(SPEC, precision=0.01))
    assert peak.confirmed and peak.rate == pytest.approx(20_000, rel=0.03)
    assert len(peak.steps) < MOST_STEPS


@given(
    answers=st.lists(
        st.sampled_from([MET, MISSED, LIMITED]), min_size=MOST_STEPS, max_size=MOST_STEPS
    ),
    maximum=st.sampled_from([None, 64_000.0]),
)
def test_a_search_ends_for_any_target(answers: list[Outcome], maximum: float | None) -> None:
    """And the answer does not contradict itself."""
    peak = run(lambda ask: answers[ask.number - 1], replace(SPEC, maximum=maximum))
    assert len(peak.steps) <= MOST_STEPS
    assert peak.rate == peak.low and (peak.rate is None) >= (peak.limit == "none")
    assert not peak.confirmed or any(
        step.ask.rate == peak.rate and step.outcome is MET and step.ask.purpose == "confirm"
        for step in peak.steps
    )
    assert peak.high is None or peak.low is None or peak.low < peak.high
    assert all(SPEC.lowest <= step.ask.rate <= (maximum or math.inf) for step in peak.steps)


def test_a_generator_that_gives_up_first_bounds_the_answer_as_at_least() -> None:
    """Nothing is said of the target above the rate that held."""
    peak = run(below(5000, beyond=LIMITED))
    assert (peak.limit, peak.at_least, peak.confirmed, peak.high, peak.broke_first) == (
        "generator",
        True,
        True,
        None,
        None,
    )
    assert peak.rate == pytest.approx(5000, rel=0.02)


def test_a_miss_above_the_generators_limit_still_bounds_the_target() -> None:
    """The generator gives up at 5 000 in every step but the first, which the target missed at 8 000."""
    peak = run(once(1, MISSED, below(5000, beyond=LIMITED)), replace(SPEC, start=8000))
    assert (peak.limit, peak.at_least, peak.high, peak.broke_first) == (
        "generator",
        True,
        8000,
        "endToEndLatency.p99",
    )


def test_a_generator_that_gives_up_everywhere_is_the_limit_and_there_is_no_rate() -> None:
    """Not even an at least."""
    peak = run(lambda ask: LIMITED)
    assert (peak.rate, peak.limit, peak.at_least, peak.confirmed) == (
        None,
        "generator",
        False,
        False,
    )


def test_a_generator_limited_confirmation_is_repeated_once() -> None:
    """A stall of this machine is most likely in the longest step."""
    clean = run(below(5000))
    spoilt = run(once(len(clean.steps), LIMITED, below(5000)))
    assert (spoilt.rate, spoilt.high, spoilt.limit) == (clean.rate, clean.high, "target")
    assert [step.ask.rate for step in spoilt.steps[-2:]] == [clean.rate] * 2


def test_the_maximum_is_tried_confirmed_and_reported_as_at_least() -> None:
    """The target may do more than was asked."""
    peak = run(below(1e9), replace(SPEC, maximum=5000))
    assert [step.ask.rate for step in peak.steps] == [1000, 2000, 4000, 5000, 5000]
    assert (peak.rate, peak.limit, peak.at_least, peak.confirmed, peak.high) == (
        5000,
        "maximum",
        True,
        True,
        None,
    )


def test_nothing_met_down_to_the_floor_is_no_rate() -> None:
    """Halved ten times, the lowest tried as often as it takes."""
    peak = run(lambda ask: MISSED)
    assert (peak.rate, peak.low, peak.limit, peak.at_least, peak.confirmed) == (
        None,
        None,
        "none",
        False,
        False,
    )
    assert (
        peak.high == peak.steps[-1].ask.rate == SPEC.lowest == pytest.approx(1000 / 1024, rel=1e-4)
    )
    assert [step.ask.purpose for step in peak.steps[-2:]] == ["bracket", "repeat"]
    assert peak.broke_first == "endToEndLatency.p99"


def test_a_floor_above_the_start_is_where_it_starts() -> None:
    """No step is run that has too few messages for its percentile."""
    peak = run(lambda ask: MISSED, replace(SPEC, floor=3500))
    assert {step.ask.rate for step in peak.steps} == {3500}


def test_a_failed_confirmation_is_an_upper_bound() -> None:
    """A target that tires: 30 s go well at twice the rate that a minute does."""
    peak = run(
        lambda ask: MET if ask.rate <= (20_000 if ask.duration == SPEC.hold else 10_000) else MISSED
    )
    assert peak.confirmed and peak.low is not None and peak.low <= 10_000
    failed = [
        step for step in peak.steps if step.ask.purpose == "confirm" and step.outcome is MISSED
    ]
    assert peak.high == min(step.ask.rate for step in failed)


def test_a_target_that_never_lasts_has_an_unconfirmed_peak() -> None:
    """The number of confirmations is bounded, and the answer says that none held."""
    peak = run(lambda ask: MET if ask.purpose != "confirm" and ask.rate <= 20_000 else MISSED)
    assert sum(step.ask.purpose == "confirm" for step in peak.steps) == MOST_CONFIRMATIONS
    assert not peak.confirmed and peak.limit == "target"
    assert peak.rate is not None and peak.high is not None and peak.rate < peak.high


def test_the_unmet_end_is_repeated_and_the_met_end_confirmed_by_a_longer_hold() -> None:
    """Each purpose once, in its order."""
    peak = run(below(3000))
    purposes = [step.ask.purpose for step in peak.steps]
    assert purposes == ["bracket"] * 3 + ["bisect"] * 6 + ["repeat", "confirm"]
    assert [step.ask.number for step in peak.steps] == list(range(1, 12))
    assert {step.ask.duration for step in peak.steps[:-1]} == {30 * SECOND}
    assert peak.steps[-1].ask.duration == 60 * SECOND


def test_without_repeats_one_vote_is_enough() -> None:
    peak = run(below(3000), replace(SPEC, repeats=0))
    assert "repeat" not in [step.ask.purpose for step in peak.steps]


def test_a_step_without_data_ends_the_search_with_its_cause() -> None:
    """There is no peak, and no next step."""
    search = Search(SPEC)
    ask = search.next()
    assert ask is not None
    search.record(Step(ask=ask, outcome=NO_DATA, text="worker gw1 died"))
    assert search.failed == "step 1 at 1000/s gave no data: worker gw1 died"
    assert search.next() is None and len(search.steps) == 1
    with pytest.raises(NoData, match="worker gw1 died"):
        search.peak()


def test_a_step_that_was_ended_early_is_never_met() -> None:
    ask = Search(SPEC).next()
    assert ask is not None
    with pytest.raises(ValueError, match="step 1 was ended early, so it cannot be met"):
        Step(ask=ask, outcome=MET, early=True)


def test_the_next_step_stays_the_same_until_it_is_recorded() -> None:
    """Another step is rejected, and so is a peak before the end."""
    search = Search(SPEC)
    ask = search.next()
    assert ask == search.next() and ask is not None
    with pytest.raises(ValueError, match="is not the next step"):
        search.record(Step(ask=replace(ask, rate=1.0), outcome=MET))
    with pytest.raises(ValueError, match="has not ended"):
        search.peak()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": 0.0}, "search.start is 0: write a rate above 0"),
        (
            {"maximum": 10.0},
            "search.max 10 is below search.start 1000: raise search.max or lower search.start",
        ),
        ({"hold": 0}, "search.hold is 0: write the length of a step, for example 30s"),
        (
            {"confirm": SECOND},
            "search.confirm 1.00 s is shorter than search.hold 30.0 s: write more",
        ),
        ({"warmup": -1}, "search.warmup is negative: write 0s for none"),
        (
            {"precision": 0.0001},
            "search.precision is 0.01%: write 0.1% or more, and less than 100%",
        ),
        ({"repeats": -1}, "search.repeats is -1: write 0 for none"),
        (
            {"maximum": 2000.0, "floor": 3500.0},
            "search.max 2000 is too low: the percentiles need 3500/s: raise search.max or search.hold",
        ),
    ],
)
def test_an_impossible_search_is_an_error(changes: dict[str, float], message: str) -> None:
    """With key, value and remedy."""
    with pytest.raises(UsageError) as caught:
        replace(SPEC, **changes)
    assert str(caught.value) == message


@pytest.mark.parametrize(("repeats", "asked"), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_the_unmet_end_is_repeated_until_the_majority_is_certain(repeats: int, asked: int) -> None:
    """Of ``repeats + 1`` votes, where all of them are the same."""
    peak = run(below(1500), replace(SPEC, repeats=repeats))
    assert sum(step.ask.purpose == "repeat" for step in peak.steps) == asked
