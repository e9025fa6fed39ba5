"""Delayed delivery of a real Pulsar in strict mode: by both clients, with one due time for all, and to an Exclusive subscription, which heeds
no delay.

Counts are asserted, and what no slow machine changes: nothing comes earlier than it may. Lenient mode, restarts and other ticks are in
``loadtests/pulsar``.
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
    pytest.mark.slow,
    pytest.mark.skipif(java.find() is None, reason="no Java here: apt-get install openjdk-17-jre-headless"),
]

MESSAGES = 300
# what a busy machine does to the generator, or to latencies, is not what is looked at here
LOOSE = f"testDuration: 1s\nproducerRate: {MESSAGES}\nmessageSize: 64\nmaxSendDelay: 60s\ndrainTimeout: 60s\n"
IN_STRICT = f'broker: {{settings: {{{STRICT}: "true", {TICK}: "100"}}}}\n'
RANDOM = "deliverAfter: {min: 2s, max: 5s}\nsubscriptionsPerTopic: 2\n"


@pytest.fixture
def run(pulsar_process: brokers.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """Drives a profile against the broker, in this process, and returns the results document."""
    return lambda more: drive(pulsar_process, LOOSE + IN_STRICT + more, tmp_path, monkeypatch)


def received(document: dict[str, Any]) -> int:
    """Copies; none was lost or came twice."""
    counts = document["measurements"]["counts"]
    assert (counts["acked"], counts["lost"], counts["duplicates"]) == (MESSAGES, 0, 0)
    return int(counts["received"])


def on_early(document: dict[str, Any]) -> str:
    """What is found of the implicit objective that none is early; throughput may miss, which is bounded unasked too."""
    (found,) = (finding for finding in document["verdict"]["findings"] if finding["name"] == "earliness.max")
    assert found["implicit"]
    return str(found["outcome"])


def exact(document: dict[str, Any]) -> None:
    """Nothing is early, by not a nanosecond."""
    assert on_early(document) == "met", document["verdict"]
    latencies = document["measurements"]["latencies"]
    assert latencies["earliness"]["maximum"] == 0
    assert latencies["lateness"]["minimum"] >= 0


@pytest.mark.parametrize("client", ["library", "native"])
def test_random_delays(run: Callable[[str], dict[str, Any]], client: str) -> None:
    """Each of two subscriptions gets every message once, and the broker tells what its index took meanwhile."""
    document = run(f"{RANDOM}driver: {{name: pulsar, subscriptionType: Shared, client: {client}}}\n")
    assert received(document) == 2 * MESSAGES
    exact(document)
    found = document["measurements"]
    assert found["latencies"]["earliness"]["samples"] == 2 * MESSAGES
    assert found["latencies"]["endToEnd"]["minimum"] >= 2 * SECOND
    index = found["delayedIndex"]
    assert 0 < index["messages"] <= 2 * MESSAGES
    assert index["bytesPerMessage"] == index["bytes"] / index["messages"]


def test_one_due_time_for_all(run: Callable[[str], dict[str, Any]]) -> None:
    """A time of the run."""
    document = run("deliverAt: 2s\ndriver: {name: pulsar, subscriptionType: Shared}\n")
    assert received(document) == MESSAGES
    exact(document)


def test_exclusive(run: Callable[[str], dict[str, Any]]) -> None:
    """It delivers at once, which is seen: the run misses, early by more than half of the delay."""
    document = run("deliverAfter: 30s\nallowUndelayed: true\ndriver: {name: pulsar, subscriptionType: Exclusive}\n")
    assert received(document) == MESSAGES
    assert (document["verdict"]["outcome"], on_early(document)) == ("missed", "missed")
    assert document["measurements"]["latencies"]["earliness"]["maximum"] > 15 * SECOND
