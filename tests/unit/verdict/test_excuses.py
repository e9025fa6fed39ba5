"""Misses that the generator caused, and those that it did not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from builders.measurements import MS, Limits, histogram, made, made_bucket, spread
from builders.objectives import parse_slo

from pytest_loadtest.metrics.catalogue import CATALOGUE, OBJECTIVES, Own, with_own, without_own
from pytest_loadtest.metrics.signed import Lateness
from pytest_loadtest.verdict.slo import Outcome, Verdict, evaluate

if TYPE_CHECKING:
    from pytest_loadtest.metrics.histogram import Histogram
    from pytest_loadtest.metrics.measurements import Measurements


def with_part(kind: str, *, own: int, theirs: int = 0, of: int = 100_000) -> dict[str, Any]:
    """Latencies of 1 ms, but ``own`` of 500 ms by the generator, and ``theirs`` of 500 ms by the target."""
    slow = own + theirs
    known = {"pauses_known": True, kind: histogram(np.repeat([MS, 500 * MS], [of - slow, slow]))}
    if not own:
        return known
    return known | {
        with_own(kind): histogram(np.full(own, 500 * MS)),
        without_own(kind): histogram(np.full(own, MS)),
    }


PER_MESSAGE = {
    "endToEndLatency": "end_to_end",
    "publishLatency": "publish",
    "sendDelay": "send_delay",
}
OPENED = {
    "connectLatency": "connect",
    "subscribeLatency": "subscribe",
    "reconnectLatency": "reconnect",
}


@pytest.mark.parametrize(("metric", "kind"), PER_MESSAGE.items())
def test_a_miss_that_would_hold_without_our_part_is_the_generators(metric: str, kind: str) -> None:
    result = verdict({metric: {"max": "100ms"}}, made(**with_part(kind, own=50)))
    assert result.outcome is Outcome.GENERATOR_LIMITED
    assert (
        f"{metric}.max would be 1.00 ms without the generator's own part of 50 of 100 000 (send delay"
        in result.reasons[0]
    )


@pytest.mark.parametrize(("metric", "kind"), PER_MESSAGE.items())
def test_messages_that_the_target_delayed_are_missed_though_as_many_others_were_ours(
    metric: str, kind: str
) -> None:
    """The old rule took the largest latencies for ours."""
    late = with_part(kind, own=50, theirs=50)
    assert verdict({metric: {"max": "100ms"}}, made(**late)).outcome is Outcome.MISSED


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("metric", "kind"), [*OPENED.items(), ("broadcastSpread", "spread")])
def test_late_sends_excuse_no_metric_that_they_cannot_lengthen(
    metric: str, kind: str, known: bool
) -> None:
    """50 connections of 800 ms, and 50 of 20 000 messages that were sent 60 ms late."""
    sends = histogram(np.concatenate([np.full(19_950, MS), np.full(50, 60 * MS)]).astype(np.int64))
    slow = histogram(np.full(50, 800 * MS))
    run = made(
        **{kind: slow}, own_send_delay=sends, send_delay=sends, broadcasts=True, pauses_known=known
    )
    assert verdict({metric: {"max": "100ms"}}, run).outcome is Outcome.MISSED


@pytest.mark.parametrize(("metric", "kind"), OPENED.items())
def test_a_stall_excuses_the_connections_that_the_loop_was_handling(metric: str, kind: str) -> None:
    """Whether or not the pauses of the phase are known; one more connection was slow at the target."""
    run = replace(made(**with_part(kind, own=50, of=50)), pauses_known=False)
    assert verdict({metric: {"max": "100ms"}}, run).outcome is Outcome.GENERATOR_LIMITED
    assert (
        verdict(
            {metric: {"max": "100ms"}}, made(**with_part(kind, own=50, theirs=1, of=51))
        ).outcome
        is Outcome.MISSED
    )


@pytest.mark.parametrize(
    ("metric", "kind"),
    [
        ("deliveryGap", "delivery_gap"),
        ("broadcastSpread", "spread"),
        ("broadcastCompletion", "completion"),
    ],
)
def test_gaps_and_broadcasts_are_judged_without_our_part(metric: str, kind: str) -> None:
    ours, theirs = (
        made(broadcasts=True, **with_part(kind, own=own, theirs=1 - own)) for own in (1, 0)
    )
    section = {metric: {"max": "100ms"}}
    assert verdict(section, ours).outcome is Outcome.GENERATOR_LIMITED
    assert verdict(section, theirs).outcome is Outcome.MISSED


def test_a_late_delayed_message_is_judged_without_our_part() -> None:
    late = with_part("lateness", own=5)
    whole = Lateness(early=histogram(np.full(100, MS)), late=late.pop("lateness"))
    section = {"lateness": {"max": "100ms"}, "earliness": {"max": "1s"}}
    assert verdict(section, made(lateness=whole, **late)).outcome is Outcome.GENERATOR_LIMITED
    assert verdict(section, made(lateness=whole, pauses_known=True)).outcome is Outcome.MISSED


@pytest.mark.parametrize("known", [False, True])
def test_a_tolerated_loss_does_not_make_our_pause_the_targets_miss(known: bool) -> None:
    """The profile allows one lost message, so the largest latency is that of the messages that came."""
    counts = {"lost": 1, "received": 99_999, "received_in_time": 99_999}
    late = with_part("end_to_end", own=50, of=99_999) | {"pauses_known": known}
    own = histogram(np.concatenate([np.full(99_950, MS), np.full(50, 499 * MS)]).astype(np.int64))
    section = {"endToEndLatency": {"max": "100ms"}, "loss": 1}
    assert (
        verdict(section, made(counts=counts, own_send_delay=own, **late)).outcome
        is Outcome.GENERATOR_LIMITED
    )
    assert (
        verdict(section | {"loss": 0}, made(counts=counts, own_send_delay=own, **late)).outcome
        is Outcome.MISSED
    )


def test_a_receive_lag_is_the_generators_whatever_it_is() -> None:
    result = verdict({"receiveLag": {"p50": "20ms"}}, made(receive_lag=spread(30, 40)))
    assert result.outcome is Outcome.GENERATOR_LIMITED
    assert result.reasons[0] == "receiveLag.p50 is the generator's own delay from end to end"


def test_a_bucket_is_judged_by_its_own_part() -> None:
    """That of other sizes excuses nothing."""
    section = {"buckets": {"0-256": {"endToEndLatency": {"max": "100ms"}}}}
    late = with_part("end_to_end", own=50, of=50_000)
    del late["pauses_known"]
    parts = {name: late[name] for name in late if name != "end_to_end"}
    ours, theirs = made_bucket("0-256", **late), made_bucket("0-256", end_to_end=late["end_to_end"])
    assert (
        verdict(section, made(pauses_known=True, buckets=(ours,))).outcome
        is Outcome.GENERATOR_LIMITED
    )
    assert (
        verdict(section, made(pauses_known=True, buckets=(theirs,), **parts)).outcome
        is Outcome.MISSED
    )


def test_every_latency_that_has_an_upper_bound_says_what_lengthens_it() -> None:
    """A message that comes early is not late; everything else can be late because of us."""
    unexcused = {
        metric.name
        for metric in CATALOGUE
        if metric.name and metric.form == "latency" and not metric.lengthened_by
    }
    assert unexcused == {"earliness"}
    assert Own.SEND_DELAY not in OBJECTIVES["broadcastSpread"].lengthened_by


# Samples of older releases, without pauses.


def paused(many: int, *, of: int = 100_000) -> Histogram:
    """Fast ones, and ``many`` that wait up to half a second for us."""
    return histogram(
        np.concatenate([np.full(of - many, MS), np.linspace(260, 510, many) * MS]).astype(np.int64)
    )


def verdict(section: dict[str, Any], run: Measurements) -> Verdict:
    return evaluate(parse_slo(section), run, Limits())


@pytest.mark.parametrize(
    ("bound", "half"),
    [({"p99.9": "100ms"}, "50.0 ms"), ({"max": "400ms"}, "200 ms"), ({"mean": "3ms"}, "1.50 ms")],
)
@pytest.mark.parametrize("metric", ["endToEndLatency", "publishLatency", "sendDelay"])
def test_a_pause_of_the_generator_is_not_a_miss_of_the_target(
    metric: str, bound: dict[str, str], half: str
) -> None:
    """Below the p99 of the own send delay, and long enough to break percentile, maximum and mean."""
    pause = paused(900)
    run = made(own_send_delay=pause, send_delay=pause, end_to_end=pause, publish=pause)
    result = verdict({metric: bound}, run)
    assert result.outcome is Outcome.GENERATOR_LIMITED
    assert (
        f"would hold without the 900 messages that had own send delay above {half}, half its bound"
        in result.reasons[0]
    )


def test_a_pause_of_the_target_is_missed() -> None:
    """The same latencies while the generator was on time, or late by less than half the bound."""
    slow = {"end_to_end": paused(900), "publish": paused(900)}
    assert verdict({"endToEndLatency": {"p99.9": "100ms"}}, made(**slow)).outcome is Outcome.MISSED
    half = made(**slow, own_send_delay=histogram(np.full(100_000, 49 * MS)))
    assert verdict({"endToEndLatency": {"p99.9": "100ms"}}, half).outcome is Outcome.MISSED


def test_a_slow_target_is_missed_even_if_the_generator_paused() -> None:
    run = made(own_send_delay=paused(50), end_to_end=paused(900))
    assert verdict({"endToEndLatency": {"p99.9": "100ms"}}, run).outcome is Outcome.MISSED


def test_messages_that_never_came_are_not_excused_by_a_pause() -> None:
    counts = {"acked": 99_110, "unknown": 890, "received": 99_110, "received_in_time": 99_110}
    run = made(counts=counts, own_send_delay=paused(50), end_to_end=spread(1, 3, 99_110))
    assert verdict({"endToEndLatency": {"p99.9": "100ms"}}, run).outcome is Outcome.MISSED


def test_a_pause_counts_once_for_each_subscription() -> None:
    """300 messages are 600 deliveries."""
    run = made(
        subscriptions=2, own_send_delay=paused(300), end_to_end=paused(600, of=200_000),
        counts={"received": 200_000, "received_in_time": 200_000},
    )  # fmt: skip
    assert verdict({"endToEndLatency": {"max": "100ms"}}, run).outcome is Outcome.GENERATOR_LIMITED


def test_a_bucket_has_its_own_delays() -> None:
    """A pause at other sizes excuses nothing."""
    section = {"buckets": {"0-256": {"endToEndLatency": {"max": "100ms"}}}}
    slow = paused(100, of=50_000)
    on_time, late = (
        made_bucket("0-256", end_to_end=slow, own_send_delay=own)
        for own in (spread(0, 1, 50_000), slow)
    )
    assert (
        verdict(section, made(own_send_delay=paused(900), buckets=(on_time,))).outcome
        is Outcome.MISSED
    )
    assert (
        verdict(section, made(own_send_delay=paused(900), buckets=(late,))).outcome
        is Outcome.GENERATOR_LIMITED
    )


def test_a_consumer_that_lags_broke_what_would_hold_without_its_copies() -> None:
    """The same rule as for the send delay; a publish latency does not depend on consumers."""
    section = {"endToEndLatency": {"p99.9": "100ms"}}
    late = verdict(section, made(end_to_end=paused(900), receive_lag=paused(900)))
    assert late.outcome is Outcome.GENERATOR_LIMITED
    assert (
        "would hold without the 900 copies that had receive lag above 50.0 ms, half its bound"
        in late.reasons[0]
    )
    assert (
        verdict(section, made(end_to_end=paused(900), receive_lag=spread(0, 1))).outcome
        is Outcome.MISSED
    )
    published = {"publishLatency": {"p99.9": "100ms"}}
    assert (
        verdict(published, made(publish=paused(900), receive_lag=paused(900))).outcome
        is Outcome.MISSED
    )
