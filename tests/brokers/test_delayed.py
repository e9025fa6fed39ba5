"""Delayed delivery of a real Pulsar in strict mode: with both clients, with one due time for all messages, and to an Exclusive subscription,
which ignores delays.

The tests assert only counts and that nothing is early, which do not depend on the speed of the machine. Lenient mode, restarts and other
ticks are in ``loadtests/pulsar``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from driven import drive

from pytest_loadtest.brokers import java
from pytest_loadtest.drivers.pulsar.settings import STRICT, TICK
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_loadtest import brokers

pytestmark = [
    pytest.mark.pulsar,
    pytest.mark.skipif(
        java.find() is None, reason="no Java here: apt-get install default-jre-headless"
    ),
]

MESSAGES = 300
# what a busy machine does to the generator, or to latencies, is not what is looked at here
LOOSE = f"testDuration: 1s\nproducerRate: {MESSAGES}\nmessageSize: 64\nmaxSendDelay: 60s\ndrainTimeout: 60s\n"
IN_STRICT = f'broker: {{settings: {{{STRICT}: "true", {TICK}: "100"}}}}\n'
RANDOM = "deliverAfter: {min: 2s, max: 5s}\nsubscriptionsPerTopic: 2\n"


@pytest.fixture
def run(
    pulsar_process: brokers.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], dict[str, Any]]:
    """Run a profile against the broker, in this process, and return the results document."""
    return lambda more: drive(pulsar_process, LOOSE + IN_STRICT + more, tmp_path, monkeypatch)


def received(document: dict[str, Any]) -> int:
    """Return the number of copies; none was lost or came twice."""
    counts = document["measurements"]["counts"]
    assert (counts["acked"], counts["lost"], counts["duplicates"]) == (MESSAGES, 0, 0)
    return int(counts["received"])


def on_early(document: dict[str, Any]) -> str:
    """Return the outcome of the implicit objective that nothing is early; throughput, which is bounded too, may miss."""
    (found,) = (
        finding for finding in document["verdict"]["findings"] if finding["name"] == "earliness.max"
    )
    assert found["implicit"]
    return str(found["outcome"])


def exact(document: dict[str, Any]) -> None:
    """Check that nothing is early, not by a nanosecond."""
    assert on_early(document) == "met", document["verdict"]
    latencies = document["measurements"]["latencies"]
    assert latencies["earliness"]["maximum"] == 0
    assert latencies["lateness"]["minimum"] >= 0


@pytest.mark.parametrize("client", [pytest.param("library", marks=pytest.mark.slow), "native"])
def test_delayed_messages_arrive_once_and_not_early(
    run: Callable[[str], dict[str, Any]], client: str
) -> None:
    """At each of two subscriptions; the broker reports the size of its index."""
    document = run(
        f"{RANDOM}driver: {{name: pulsar, subscriptionType: Shared, client: {client}}}\n"
    )
    assert received(document) == 2 * MESSAGES
    exact(document)
    found = document["measurements"]
    assert found["latencies"]["earliness"]["samples"] == 2 * MESSAGES
    assert found["latencies"]["endToEnd"]["minimum"] >= 2 * SECOND
    index = found["delayedIndex"]
    assert 0 < index["messages"] <= 2 * MESSAGES
    assert index["bytesPerMessage"] == index["bytes"] / index["messages"]


def test_all_messages_may_have_one_due_time(run: Callable[[str], dict[str, Any]]) -> None:
    document = run("deliverAt: 2s\ndriver: {name: pulsar, subscriptionType: Shared}\n")
    assert received(document) == MESSAGES
    exact(document)


def test_an_exclusive_subscription_ignores_delays(run: Callable[[str], dict[str, Any]]) -> None:
    """The run misses, by more than half of the delay."""
    document = run(
        "deliverAfter: 30s\nallowUndelayed: true\ndriver: {name: pulsar, subscriptionType: Exclusive}\n"
    )
    assert received(document) == MESSAGES
    assert (document["verdict"]["outcome"], on_early(document)) == ("missed", "missed")
    assert document["measurements"]["latencies"]["earliness"]["maximum"] > 15 * SECOND
