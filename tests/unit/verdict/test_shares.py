"""The share of messages with an output of a service that chooses, and its interval."""

from __future__ import annotations

import pytest
from builders.measurements import Limits, made
from builders.objectives import parse_slo
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.verdict.objectives import chosen_share
from pytest_loadtest.verdict.observations import observe_metric
from pytest_loadtest.verdict.shares import share_interval
from pytest_loadtest.verdict.slo import Outcome, evaluate


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    # Computed from the formula of Wilson (1927) with z = 2.5758 in 30 decimals.
    [
        (0, 10, 0.0, 0.398854),
        (5, 10, 0.184226, 0.815774),
        (400, 2000, 0.177970, 0.224014),
        (10, 10, 0.601146, 1.0),
    ],
)
def test_the_interval_of_a_share_is_that_of_wilson(
    successes: int, trials: int, low: float, high: float
) -> None:
    found = share_interval(successes / trials, trials)
    assert found == pytest.approx((low, high), abs=1e-6)


@given(trials=st.integers(1, 10**6), share=st.floats(0, 1))
def test_the_interval_of_a_share_contains_it(trials: int, share: float) -> None:
    successes = int(share * trials)
    low, high = share_interval(successes / trials, trials)
    assert 0 <= low <= successes / trials + 1e-12
    assert successes / trials - 1e-12 <= high <= 1


@pytest.mark.parametrize(
    ("answered", "outcome"),
    [(20_000, Outcome.MET), (20_500, Outcome.MET), (20_950, Outcome.NO_DATA), (22_000, Outcome.MISSED),
     (19_050, Outcome.NO_DATA), (18_000, Outcome.MISSED), (0, Outcome.MISSED), (100_000, Outcome.MISSED)],
)  # fmt: skip
def test_a_share_is_judged_where_its_interval_decides(answered: int, outcome: Outcome) -> None:
    measurements = made(counts={"lost": None}, answered=(answered,))
    verdict = evaluate([chosen_share(0.2, 0.01)], measurements, Limits())
    assert verdict.findings[0].outcome is outcome
    assert "99 % certainty" in verdict.findings[0].text


def test_the_share_of_few_messages_is_no_data() -> None:
    measurements = made(counts={"lost": None, "acked": 100, "received": 20}, answered=(20,))
    finding = evaluate([chosen_share(0.2, 0.01)], measurements, Limits()).findings[0]
    assert finding.outcome is Outcome.NO_DATA
    assert "20 of 100 have an output" in finding.text


def test_nothing_received_of_a_service_that_chooses_is_never_met() -> None:
    counts = {"lost": None, "received": 0, "received_in_time": 0}
    verdict = evaluate([chosen_share(0.005, 0.01)], made(counts=counts, answered=(0,)), Limits())
    assert verdict.outcome is Outcome.NO_DATA
    assert verdict.reasons[0].startswith("nothing was received")


def test_copies_at_two_subscriptions_are_no_further_trials() -> None:
    """The same outputs go to both: twice as many deliveries prove no more."""
    counts = {"lost": None}
    for subscriptions in (1, 2):
        answered = (20_950,) * subscriptions
        measurements = made(counts=counts, answered=answered, subscriptions=subscriptions)
        finding = evaluate([chosen_share(0.2, 0.01)], measurements, Limits()).findings[0]
        assert finding.outcome is Outcome.NO_DATA


@pytest.mark.parametrize(
    ("answered", "outcome", "where"),
    [
        ((24_500, 16_000), Outcome.MISSED, "24 500 of 100 000 have an output on subscription 0;"),
        ((20_000, 18_000), Outcome.MISSED, "18 000 of 100 000 have an output on subscription 1;"),
        ((20_000, 20_400), Outcome.MET, "20 000 of 100 000 have an output on subscription 0;"),
        ((22_000, 20_950), Outcome.MISSED, "22 000 of 100 000 have an output on subscription 0;"),
        ((20_400, 20_950), Outcome.NO_DATA, "20 950 of 100 000 have an output on subscription 1;"),
    ],
)
def test_each_subscription_has_the_share(
    answered: tuple[int, int], outcome: Outcome, where: str
) -> None:
    """The same outputs go to both: a mean would hide what one of them lost."""
    measurements = made(counts={"lost": None}, answered=answered, subscriptions=2)
    finding = evaluate([chosen_share(0.2, 0.01)], measurements, Limits()).findings[0]
    assert (finding.outcome, where in finding.text) == (outcome, True), finding.text


@pytest.mark.parametrize(
    ("metric", "key"), [("duplicates", "duplicates"), ("outOfOrder", "out_of_order")]
)
def test_shares_of_outputs_are_of_those_that_came(metric: str, key: str) -> None:
    """A service answers 2000 of 100 000 and sends 500 of them twice: a quarter, and not half a percent."""
    counts = {"lost": None, "received": 2000, "received_in_time": 2000, key: 500}
    measurements = made(counts=counts, answered=(2000,))
    finding = evaluate(parse_slo({metric: "1%"}), measurements, Limits()).findings[0]
    assert (finding.outcome, finding.observed) == (Outcome.MISSED, 0.25)
    assert "500 of 2 000 deliveries" in finding.text


def test_damaged_outputs_of_a_service_that_chooses_are_counted_if_no_other_came() -> None:
    """All outputs were damaged: their number is known, though it is a share of nothing that came."""
    counts = {"lost": None, "received": 0, "received_in_time": 0, "corrupt": 7}
    objective = parse_slo({"corrupt": 0})[0]
    assert observe_metric(objective, made(counts=counts, answered=(0,))).value == 7


def test_a_subscription_that_is_nearer_to_the_middle_may_be_the_one_that_is_not_decided() -> None:
    """Its interval is wider: 100 % is within 90 % to 100 % for certain, and 90.4 % of a thousand is not."""
    measurements = made(counts={"lost": None, "acked": 1000}, answered=(1000, 904), subscriptions=2)
    finding = evaluate([chosen_share(0.95, 0.05)], measurements, Limits()).findings[0]
    assert finding.outcome is Outcome.NO_DATA
    assert "904 of 1 000 have an output on subscription 1" in finding.text
