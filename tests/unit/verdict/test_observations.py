"""The value of each metric, out of how many, and why it is missing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from builders.measurements import MS, OTHERS_SEND, made, made_bucket, spread
from builders.objectives import parse_slo

from pytest_loadtest.metrics.measurements import ENVELOPES, Backlog, Measurements
from pytest_loadtest.verdict.observations import (
    Observation,
    blocked_share,
    observe_metric,
    sends_nothing,
    unfit,
)

COUNTS = {
    "offered": 1000, "sent": 950, "sent_in_time": 940, "acked": 900, "failed": 20, "unknown": 30, "dropped": 50, "received": 1700,
    "received_in_time": 1600, "lost": 90, "duplicates": 9, "out_of_order": 18, "corrupt": 27, "foreign": 36,
}  # fmt: skip


def run(counts: dict[str, Any] | None = None, **changes: Any) -> Measurements:
    """1 000 messages to two subscriptions in ten seconds, with a different number of everything that can go wrong."""
    return made(
        **{
            "duration": 10_000 * MS,
            "rate": 100.0,
            "subscriptions": 2,
            "counts": COUNTS | (counts or {}),
            **changes,
        }
    )


def seen(section: dict[str, Any], measurements: Measurements) -> Observation:
    return observe_metric(parse_slo(section)[0], measurements)


@pytest.mark.parametrize(
    ("section", "value", "samples", "basis"),
    [
        ({"throughput": "99%"}, 0.8, 1600, "80 msg/s of 100 msg/s offered"),
        ({"throughput": "50/s"}, 80.0, 1600, "80 msg/s of 100 msg/s offered"),
        ({"sent": "99%"}, 0.94, 1000, "940 of 1 000 offered"),
        ({"dropped": 0}, 50, 1000, "50 of 1 000 offered"),
        ({"dropped": "1%"}, 0.05, 1000, "50 of 1 000 offered"),
        ({"failed": 0}, 50, 1000, "50 of 1 000 offered, 30 of them unanswered"),
        ({"loss": "1%"}, 0.05, 1800, "90 of 1 800 deliveries"),
        ({"duplicates": "1%"}, 0.005, 1800, "9 of 1 800 deliveries"),
        ({"outOfOrder": "1%"}, 0.01, 1800, "18 of 1 800 deliveries"),
        (
            {"corrupt": "2%"},
            0.015,
            1800,
            "27 of 1 800 deliveries, by heads and sizes alone: no checksum",
        ),
        ({"foreign": 40}, 36, 1800, "36 of 1 800 deliveries, at any time of the run"),
    ],
)
def test_a_count_is_a_share_of_messages_or_deliveries(
    section: dict[str, Any], value: float, samples: int, basis: str
) -> None:
    """Sending: of the messages offered. Receiving: of the deliveries of acknowledged messages."""
    assert seen(section, run()) == (pytest.approx(value), samples, basis)


@pytest.mark.parametrize(
    ("section", "changes", "reason"),
    [
        ({"throughput": "99%"}, {"counts": {"received": 0}}, "nothing was received"),
        ({"throughput": "99%"}, {"counts": {"offered": 0}}, "nothing was offered"),
        ({"sent": "99%"}, {"counts": {"offered": 0}}, "nothing was offered"),
        ({"loss": 0}, {"counts": {"acked": 0}}, "nothing was acknowledged, so no delivery was due"),
        ({"loss": 0}, {"counts": OTHERS_SEND, "rate": 0.0}, "nothing was acknowledged, so no delivery was due"),
        ({"corrupt": 0}, {"counts": OTHERS_SEND, "rate": 0.0}, "nothing was acknowledged, so no delivery was due"),
        ({"loss": 0}, {"subscriptions": 0}, "not applicable: nothing subscribes in this run"),
        ({"outOfOrder": 0}, {"counts": {"out_of_order": None}}, "order is not applicable to this subscription type"),
        ({"foreign": 0}, {"counts": {"foreign": None}}, "it is unknown whether foreign messages arrived in this stage"),
        ({"backlogDrain": "1min"}, {}, "no backlog was built, or its drain was not seen"),
        ({"publishLatency": {"max": "1s"}}, {"publish": None}, "nothing was acknowledged, or acknowledgement is not applicable"),
        ({"sendDelay": {"mean": "1s"}}, {"send_delay": None}, "nothing was sent"),
        ({"endToEndLatency": {"mean": "1s"}}, {"end_to_end": None}, "nothing was received"),
        ({"broadcastCompletion": {"mean": "1s"}}, {"broadcasts": True}, "no message reached every subscriber"),
        ({"buckets": {"9-99": {"loss": 0}}}, {}, "there is no such size bucket"),
        ({"buckets": {"0-256": {"loss": 0}}}, {"buckets": (made_bucket("0-256", offered=0),)}, "no message of this size was due"),
        ({"buckets": {"0-256": {"loss": 0}}}, {"buckets": (made_bucket("0-256", acked=0),)}, "nothing was acknowledged, so no delivery was due"),
        ({"buckets": {"0-256": {"throughput": "9%"}}}, {"buckets": (made_bucket("0-256", received=0),)}, "nothing was received"),
    ],
)  # fmt: skip
def test_a_missing_value_has_a_reason(
    section: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    """It is never 0."""
    assert seen(section, run(**changes)) == (None, 0, reason)


def test_remarks_are_left_out_if_they_do_not_apply() -> None:
    assert seen({"failed": 0}, run({"unknown": 0})).basis == "20 of 1 000 offered"
    routed = run(checked=ENVELOPES)
    assert seen({"corrupt": "2%"}, routed).basis.endswith(
        ", by envelopes alone: the service makes the bodies"
    )
    assert seen({"corrupt": "2%"}, run(checked=None)).basis == "27 of 1 800 deliveries"
    assert seen({"throughput": "50/s"}, run(rate=0.0)).basis == "80 msg/s"
    assert (sends_nothing(run(rate=0.0)), sends_nothing(run())) == (True, False)


def test_a_bucket_counts_its_own_messages() -> None:
    """Throughput in time, loss, and latencies."""
    part = made_bucket(
        "0-256",
        offered=100,
        sent=100,
        acked=80,
        received=150,
        received_in_time=120,
        lost=8,
        end_to_end=spread(1, 5, 150),
    )
    measurements = run(buckets=(made_bucket("256-512"), part))

    def of(**bounds: Any) -> Observation:
        return seen({"buckets": {"0-256": bounds}}, measurements)

    assert of(throughput="9%") == (0.6, 120, "6 msg/s of 10 msg/s offered")
    assert of(throughput="9/s") == (6.0, 120, "6 msg/s of 10 msg/s offered")
    assert of(loss="9%") == (0.05, 160, "8 of 160 deliveries")
    assert of(loss=9) == (8, 160, "8 of 160 deliveries")
    assert of(endToEndLatency={"min": {"max": "1s"}}) == (1 * MS, 150, "150 samples, 50 never came")
    assert of(endToEndLatency={"max": "1s"}) == (math.inf, 150, "150 samples, 50 never came")


@pytest.mark.parametrize(
    ("statistic", "value"), [("min", 1.0), ("max", 5.0), ("mean", 3.0), ("p50", 3.0)]
)
def test_a_percentile_counts_due_messages_and_other_statistics_those_that_came(
    statistic: str, value: float
) -> None:
    found = seen(
        {"publishLatency": {statistic: {"max": "1s"}}},
        run({"acked": 1000}, publish=spread(1, 5, 1000)),
    )
    assert found == (pytest.approx(value * MS, rel=0.01), 1000, "1 000 samples")


def test_a_percentile_needs_samples_beyond_it() -> None:
    """A message that never came is one of them."""
    assert unfit(spread(1, 5, 999), 99.0) == "p99 needs 1 000 samples, there are 999"
    assert (
        unfit(spread(1, 5, 990), 99.0, 9) == "p99 needs 1 000 samples, there are 990, 9 never came"
    )
    assert unfit(None, 99.0, 999) == "p99 needs 1 000 samples, there are 0, 999 never came"
    assert (
        unfit(spread(1, 5, 990), 99.0, 10)
        is unfit(spread(1, 5, 5), None)
        is unfit(None, None)
        is None
    )
    found = seen(
        {"endToEndLatency": {"p99": "1s"}},
        run({"offered": 100, "received": 150}, end_to_end=spread(1, 5, 150)),
    )
    assert found == (None, 150, "p99 needs 1 000 samples, there are 150, 50 never came")


def test_a_latency_without_messages_is_infinite_if_some_were_due() -> None:
    """Unknown if it is not known whether acknowledgement applies."""
    assert seen({"endToEndLatency": {"p50": "1s"}}, run(end_to_end=None)) == (
        math.inf,
        0,
        "0 samples, 300 never came",
    )
    assert seen({"sendDelay": {"p50": "1s"}}, run(send_delay=None)) == (
        math.inf,
        0,
        "0 samples, 50 never came",
    )
    assert seen({"sendDelay": {"max": "1s"}}, run(send_delay=None)) == (
        math.inf,
        0,
        "0 samples, 50 never came",
    )
    assert seen({"publishLatency": {"p50": "1s"}}, run(publish=None)).value is None
    assert (
        seen({"publishLatency": {"p50": "1s"}}, run(publish=spread(1, 5, 900))).basis
        == "900 samples, 100 never came"
    )


def test_an_incomplete_broadcast_is_later_than_any_bound() -> None:
    part = run(
        {"offered": 100}, broadcasts=True, completion=spread(1, 5, 80), spread=spread(0, 2, 80)
    )
    assert seen({"broadcastCompletion": {"p50": "1s"}}, part) == (
        pytest.approx(3.5 * MS, rel=0.02),
        80,
        "80 samples, 20 never came",
    )
    assert seen({"broadcastCompletion": {"p90": "1s"}}, part).value == math.inf
    assert seen({"broadcastSpread": {"max": "1s"}}, part) == (
        math.inf,
        80,
        "80 samples, 20 never came",
    )


DRAIN: dict[str, Any] = {
    "size_messages": 9000, "size_bytes": 1, "build": 1, "allowed": 100, "drain_rate": 1.0, "publish_during_drain": None,
}  # fmt: skip


def test_a_drain_has_its_time() -> None:
    drained = Backlog(**DRAIN, drain=5000, drained=True, left=100)
    assert seen({"backlogDrain": "1s"}, run(backlog=drained)) == (5000, 9000, "9 000 deliveries")


@pytest.mark.parametrize(
    ("bound", "value"),
    [
        ("4999ns", 5001),
        ("5000ns", 5001),
        ("5001ns", None),
        ({"min": "5000ns"}, 5001),
        ({"min": "5001ns"}, None),
        ({"min": "1ns", "max": "1s"}, None),
    ],
)
def test_a_drain_that_was_given_up_is_only_known_to_be_longer(
    bound: object, value: int | None
) -> None:
    """A bound up to the time waited is missed; whether a longer one would have been met is unknown."""
    given_up = Backlog(**DRAIN, drain=None, drained=False, left=2000, waited=5000)
    found = seen({"backlogDrain": bound}, run(backlog=given_up))
    assert found.value == value
    assert found.basis.endswith(
        "NOT drained: 2 000 of 9 000 deliveries still waiting after 5.00 µs, at most 100 are allowed"
    )


def test_a_backlog_that_did_not_shrink_is_never_drained() -> None:
    """However long the bound is."""
    basis = "NOT drained: 9 001 of 9 000 deliveries still waiting after 5.00 µs, at most 100 are allowed"
    stuck = Backlog(**DRAIN, drain=math.inf, drained=False, left=9001, waited=5000)
    for bound in ("1s", "1ns"):
        assert seen({"backlogDrain": bound}, run(backlog=stuck)) == (math.inf, 9000, basis)


@pytest.mark.parametrize(
    ("bound", "last", "value"),
    [
        ("7000ns", 7000, 7000),
        ("6999ns", 7000, None),
        ("4999ns", 7000, 5000),
        ("4999ns", None, 5000),
        ("1s", None, None),
        ({"min": "5000ns"}, 7000, 7000),
        ({"min": "5001ns"}, 7000, None),
        ({"min": "7001ns"}, 7000, 7000),
        ({"min": "1ns"}, None, None),
    ],
)
def test_an_open_drain_has_a_value_if_both_ends_are_on_one_side_of_the_bound(
    bound: object, last: int | None, value: int | None
) -> None:
    """Between 5 000 ns and ``last``."""
    facts = {"size_messages": 9000, "size_bytes": 1, "build": 1, "allowed": 100}
    unknown = Backlog(
        **facts,
        drain=None,
        drained=None,
        left=None,
        drain_rate=None,
        publish_during_drain=None,
        between=(5000, last),
        uncounted=3,
    )
    assert seen({"backlogDrain": bound}, run(backlog=unknown)).value == value


def test_the_blocked_share_is_between_0_and_1() -> None:
    none = {"dropped": 0}
    delay = spread(1, 3, 1000)
    assert blocked_share(run(none, send_delay=delay, blocked=delay.total // 4)) == pytest.approx(
        0.25
    )
    assert blocked_share(run(none, send_delay=delay, blocked=delay.total * 2)) == 1.0
    assert (
        blocked_share(run(none, send_delay=None, blocked=5))
        == blocked_share(run(none, send_delay=spread(0, 0, 10), blocked=5))
        == 0.0
    )


def test_the_wait_of_messages_that_the_generator_dropped_is_no_part_of_the_blocked_share() -> None:
    """Their delay is not recorded, so it is no part of the whole either."""
    delay, own = spread(0, 4, 1000), spread(0, 3, 1000)
    of_sent = delay.total - own.total
    for dropped in (0, 1, delay.total):
        assert blocked_share(
            run(send_delay=delay, own_send_delay=own, blocked=of_sent + dropped)
        ) == pytest.approx(0.25)
