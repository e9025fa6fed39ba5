"""The largest latency is *never* if messages never came, unless the profile's own bounds allow them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from builders.measurements import Limits, made, made_bucket, spread
from builders.objectives import parse_slo

from pytest_loadtest.metrics.silent import Silent
from pytest_loadtest.verdict.slo import Finding, Outcome, evaluate

if TYPE_CHECKING:
    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.verdict.objectives import Objective

UNANSWERED = {"acked": 99_000, "unknown": 1_000, "received": 99_000, "received_in_time": 99_000}
LOST = {"lost": 1_000, "received": 99_000, "received_in_time": 99_000}
DROPPED = {
    "sent": 99_000,
    "sent_in_time": 99_000,
    "dropped": 1_000,
    "acked": 99_000,
    "received": 99_000,
    "received_in_time": 99_000,
}
MAX = {"max": "50ms"}


def run(counts: dict[str, int], **changed: Any) -> Measurements:
    return made(
        counts=counts,
        **{"end_to_end": spread(1, 20, 99_000), "publish": spread(1, 12, 99_000), **changed},
    )


def finding(
    section: dict[str, Any], measured: Measurements, further: tuple[Objective, ...] = ()
) -> Finding:
    return evaluate(parse_slo(section), measured, Limits(), tolerated=further).findings[0]


@pytest.mark.parametrize("metric", ["endToEndLatency", "publishLatency"])
def test_unanswered_messages_break_the_largest_latency(metric: str) -> None:
    """The implicit 1 % of failures is no permission."""
    found = finding({metric: MAX}, run(UNANSWERED))
    assert (
        found.text
        == f"{metric}.max never > 50.0 ms: too many never came (99 000 samples, 1 000 never came)"
    )
    assert (found.outcome, found.observed) == (Outcome.MISSED, math.inf)


@pytest.mark.parametrize(
    ("metric", "bound", "counts"),
    [
        ("failed", "1%", UNANSWERED),
        ("failed", 1_000, UNANSWERED),
        ("loss", "1%", LOST),
        ("loss", 1_000, LOST),
        ("dropped", "1%", DROPPED),
    ],
)
def test_a_bound_of_the_profile_tolerates_its_number_of_messages(
    metric: str, bound: object, counts: dict[str, int]
) -> None:
    """The largest latency is then that of the messages that came."""
    assert finding({"endToEndLatency": MAX, metric: bound}, run(counts)).observed == 20_000_000


@pytest.mark.parametrize(
    ("metric", "bound", "counts"),
    [
        ("failed", "0.9%", UNANSWERED),
        ("failed", 999, UNANSWERED),
        ("loss", 999, LOST),
        ("loss", 0, LOST),
        ("dropped", "0.9%", DROPPED),
        ("loss", "5%", UNANSWERED),
        ("failed", "5%", DROPPED),
        ("dropped", "5%", LOST),
        ("duplicates", "5%", LOST),
        ("failed", {"min": 5}, UNANSWERED),
    ],
)
def test_a_bound_that_is_broken_or_of_another_kind_tolerates_nothing(
    metric: str, bound: object, counts: dict[str, int]
) -> None:
    """Each cause needs a bound of its own: what may be lost may not be refused."""
    assert finding({"endToEndLatency": MAX, metric: bound}, run(counts)).observed == math.inf


def test_each_of_two_causes_needs_its_bound() -> None:
    """500 lost and 500 unanswered are not covered by a thousand that may be lost."""
    both = {
        "acked": 99_500,
        "unknown": 500,
        "lost": 500,
        "received": 99_000,
        "received_in_time": 99_000,
    }
    assert finding({"endToEndLatency": MAX, "loss": "1%"}, run(both)).observed == math.inf
    assert (
        finding({"endToEndLatency": MAX, "loss": "1%", "failed": "1%"}, run(both)).observed
        == 20_000_000
    )


def test_unanswered_messages_that_were_delivered_are_not_missing_end_to_end() -> None:
    """They have a latency; only their answers never came."""
    answered = {"acked": 99_000, "unknown": 1_000}
    measured = made(counts=answered, publish=spread(1, 12, 99_000))
    assert finding({"endToEndLatency": MAX}, measured).observed == 20_000_000
    assert finding({"publishLatency": MAX}, measured).observed == math.inf


def test_a_lost_message_has_a_publish_latency() -> None:
    """It was acknowledged."""
    assert finding({"publishLatency": MAX}, run(LOST, publish=spread(1, 12))).observed == 12_000_000


def test_a_send_delay_is_missing_only_of_what_was_dropped() -> None:
    """What was sent has one, whatever became of it."""
    assert finding({"sendDelay": MAX}, run(UNANSWERED)).observed == 1_000_000
    assert finding({"sendDelay": MAX}, run(DROPPED)).observed == math.inf


def test_a_bucket_has_its_own_bound_on_loss_or_that_of_the_run() -> None:
    """Its own comes first."""
    part = made_bucket("0-256", received=49_999, lost=1, end_to_end=spread(1, 20, 49_999))
    measured = run({"lost": 1, "received": 99_999}, buckets=(part,))

    def largest(section: dict[str, Any], **own: Any) -> float | None:
        judged = evaluate(
            parse_slo({"buckets": {"0-256": {"endToEndLatency": MAX, **own}}, **section}),
            measured,
            Limits(),
        ).findings
        return next(found.observed for found in judged if found.objective.statistic == "max")

    assert largest({}) == math.inf
    assert largest({"loss": 1}) == largest({}, loss=1) == largest({"loss": 0}, loss=1) == 20_000_000
    assert largest({"loss": 1}, loss=0) == math.inf


def test_a_stage_is_tolerated_by_the_bounds_of_the_whole_profile() -> None:
    """Unless it has its own."""
    whole = parse_slo({"loss": "1%"})
    assert finding({"endToEndLatency": MAX}, run(LOST), whole).observed == 20_000_000
    assert finding({"endToEndLatency": MAX, "loss": 0}, run(LOST), whole).observed == math.inf


def test_implicit_bounds_of_the_whole_profile_tolerate_nothing() -> None:
    """As in the run itself."""
    assert finding({"endToEndLatency": MAX}, run(UNANSWERED), parse_slo({})).observed == math.inf


def test_a_bucket_of_which_nothing_came_has_no_largest_latency_that_holds() -> None:
    """It is missed, as by its percentiles."""
    part = made_bucket("0-256", received=0, received_in_time=0, lost=50_000, end_to_end=None)
    assert (
        finding({"buckets": {"0-256": {"endToEndLatency": MAX}}}, made(buckets=(part,))).outcome
        is Outcome.MISSED
    )


def test_the_mean_has_the_number_of_messages_that_came() -> None:
    """With the number that never came."""
    found = finding({"endToEndLatency": {"mean": "50ms"}}, run(UNANSWERED))
    assert (
        found.text
        == "endToEndLatency.mean 10.5 ms <= 50.0 ms (mean of the 99 000 that came, 1 000 never came)"
    )


def test_pauses_of_the_generator_do_not_excuse_what_never_came() -> None:
    """Without its largest values there would still be messages that are later than any bound."""
    slow = spread(1, 90, 99_000)
    measured = run(UNANSWERED, end_to_end=slow, own_send_delay=spread(1, 90))
    assert finding({"endToEndLatency": MAX}, measured).outcome is Outcome.MISSED


def test_no_bound_tolerates_a_subscription_that_received_nothing() -> None:
    """Its time without delivery has no end; the other subscriptions' gaps would be met."""
    silent = Silent(pairs=2, pairs_due=10, streams=0, streams_due=10)
    measured = run({"lost": 2_000}, delivery_gap=spread(1, 20, 8), silent=silent, unheard=2)
    found = finding({"deliveryGap": MAX, "loss": "5%", "silent": 2}, measured)
    assert (
        found.text
        == "deliveryGap.max never > 50.0 ms: too many never came (8 samples, 2 never came)"
    )
