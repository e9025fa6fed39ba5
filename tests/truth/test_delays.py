"""Delayed messages through the relay, which keeps each until it is due and no longer: what is measured of them is known beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from .conftest import Bench

LOOSE = "{sent: 1%, throughput: 1%, loss: 100%}"


def profile(more: str, driver: str = "") -> str:
    return f"""
name: delays
messageSize: 64
producersPerTopic: 3
subscriptionsPerTopic: 2
consumerPerSubscription: 2
producerRate: 300
messages: 600
maxSendDelay: 60s
driver: {{name: loopback{driver}}}
slo: {LOOSE}
generator: {{sendDelayP99: 60s, stalled: 0.99, cpu: 9}}
{more}
"""


@pytest.mark.parametrize("more", ["deliverAfter: {min: 200ms, max: 1500ms}", "deliverAfter: 700ms", "deliverAt: 1500ms"])
def test_none_is_early_and_none_out_of_order(bench: Bench, more: str) -> None:
    """Every message once for each subscription, by not a nanosecond before it is due, in the order of due times."""
    found = bench.run(profile(more)).measurements
    assert (found.counts.received, found.counts.lost, found.counts.duplicates, found.counts.out_of_due_order) == (1200, 0, 0, 0)
    assert (found.latencies["lateness"].n, found.latencies["earliness"].maximum) == (1200, 0)


def test_what_the_relay_holds_longer_is_late(bench: Bench) -> None:
    """It takes a second from each message before it looks at the delay, which is over by then: 600 ms late, or more on a busy machine."""
    found = bench.run(profile("deliverAfter: 400ms", ", delay: 1s")).measurements
    assert found.latencies["lateness"].minimum >= 600 * MILLISECOND - MILLISECOND
    assert found.latencies["end_to_end"].minimum >= SECOND


def test_lost_messages_are_lost_after_their_delay_too(bench: Bench) -> None:
    """Every fifth of each stream, for both subscriptions; they are later than any bound."""
    found = bench.run(profile("deliverAfter: {min: 100ms, max: 1s}\ndrainTimeout: 10s", ", loseEvery: 5")).measurements
    assert (found.counts.received, found.counts.lost, found.never_came("lateness")) == (960, 240, 240)
