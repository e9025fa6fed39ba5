"""Delayed messages through the relay, which keeps each until it is due and no longer: the expected measurements are known."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from .conftest import Bench

LOOSE = "{sent: 1%, throughput: 1%, loss: 100%}"


def test_a_drain_with_losses_ends_when_the_last_delayed_message_has_come(bench: Bench) -> None:
    """Each message waits three seconds in the relay. Every fifth is lost, so the drain has copies missing all the time: it neither cuts off
    those that are still to come nor waits for those that are not."""
    began = time.monotonic()
    found = bench.run(
        profile("deliverAfter: 3s\ndrainTimeout: 10min", ", loseEvery: 5")
    ).measurements
    assert (found.counts.received, found.counts.lost, found.never_came("lateness")) == (
        960,
        240,
        240,
    )
    assert time.monotonic() - began < 300, "half of drainTimeout"


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
generator: {{sendDelayP99: 60s, receiveLagP99: 60s, stalled: 0.99, cpu: 9}}
{more}
"""


# No delay is shorter than 600 ms: what a stalled generator sends after its due time would come out of due order from any broker.
@pytest.mark.parametrize(
    "more", ["deliverAfter: {min: 600ms, max: 1500ms}", "deliverAfter: 700ms", "deliverAt: 1500ms"]
)
def test_no_message_is_early_or_out_of_due_order(bench: Bench, more: str) -> None:
    """Every message once for each subscription. With ``deliverAt`` 900 copies are due at one instant, and later ones are not delayed."""
    found = bench.run(profile(more)).measurements
    assert (
        found.counts.received,
        found.counts.lost,
        found.counts.duplicates,
        found.counts.out_of_due_order,
    ) == (1200, 0, 0, 0)
    assert (found.latencies["lateness"].n, found.latencies["earliness"].maximum) == (1200, 0)


def test_a_message_that_the_relay_holds_longer_than_its_delay_is_late(bench: Bench) -> None:
    """It holds each message for a second before it looks at the delay of 400 ms: 600 ms late, or more on a busy machine."""
    found = bench.run(profile("deliverAfter: 400ms", ", delay: 1s")).measurements
    assert found.latencies["lateness"].minimum >= 600 * MILLISECOND - MILLISECOND
    assert found.latencies["end_to_end"].minimum >= SECOND


def test_a_delayed_message_that_never_comes_is_lost(bench: Bench) -> None:
    """Every fifth of each stream, for both subscriptions; they are later than any bound."""
    found = bench.run(
        profile("deliverAfter: {min: 100ms, max: 1s}\ndrainTimeout: 10s", ", loseEvery: 5")
    ).measurements
    assert (found.counts.received, found.counts.lost, found.never_came("lateness")) == (
        960,
        240,
        240,
    )
