"""A latency that only the generator's own pause broke says nothing about the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from builders.measurements import MS, Limits, histogram, made, made_bucket, spread

from pytest_loadtest.verdict.slo import Outcome, Verdict, evaluate, parse

if TYPE_CHECKING:
    from pytest_loadtest.metrics.histogram import Histogram
    from pytest_loadtest.metrics.measurements import Measurements


def paused(many: int, *, of: int = 100_000) -> Histogram:
    """Fast ones, and ``many`` that wait up to half a second for us."""
    return histogram(np.concatenate([np.full(of - many, MS), np.linspace(260, 510, many) * MS]).astype(np.int64))


def verdict(section: dict[str, Any], run: Measurements) -> Verdict:
    return evaluate(parse(section), run, Limits())


@pytest.mark.parametrize(("bound", "half"), [({"p99.9": "100ms"}, "50.0 ms"), ({"max": "400ms"}, "200 ms"), ({"mean": "3ms"}, "1.50 ms")])
@pytest.mark.parametrize("metric", ["endToEndLatency", "publishLatency", "sendDelay"])
def test_our_own_pause_is_not_blamed_on_the_target(metric: str, bound: dict[str, str], half: str) -> None:
    """Below the p99 at which own send delay is judged, and enough to break tail, maximum and mean."""
    pause = paused(900)
    run = made(own_send_delay=pause, send_delay=pause, end_to_end=pause, publish=pause)
    result = verdict({metric: bound}, run)
    assert result.outcome is Outcome.GENERATOR_LIMITED
    assert f"would hold without the 900 messages that had own send delay above {half}, half its bound" in result.reasons[0]


def test_a_pause_of_the_target_is_missed() -> None:
    """The same latencies while we were on time, or were late by less than half the bound."""
    slow = {"end_to_end": paused(900), "publish": paused(900)}
    assert verdict({"endToEndLatency": {"p99.9": "100ms"}}, made(**slow)).outcome is Outcome.MISSED
    half = made(**slow, own_send_delay=histogram(np.full(100_000, 49 * MS)))
    assert verdict({"endToEndLatency": {"p99.9": "100ms"}}, half).outcome is Outcome.MISSED


def test_a_target_that_is_slow_besides_is_missed() -> None:
    """Without our own few the objective would not hold either."""
    run = made(own_send_delay=paused(50), end_to_end=paused(900))
    assert verdict({"endToEndLatency": {"p99.9": "100ms"}}, run).outcome is Outcome.MISSED


def test_what_never_came_is_not_our_pause() -> None:
    """They stay among all that was due."""
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
    """The pause of other sizes excuses nothing."""
    section = {"buckets": {"0-256": {"endToEndLatency": {"max": "100ms"}}}}
    slow = paused(100, of=50_000)
    on_time, late = (made_bucket("0-256", end_to_end=slow, own_send_delay=own) for own in (spread(0, 1, 50_000), slow))
    assert verdict(section, made(own_send_delay=paused(900), buckets=(on_time,))).outcome is Outcome.MISSED
    assert verdict(section, made(own_send_delay=paused(900), buckets=(late,))).outcome is Outcome.GENERATOR_LIMITED
