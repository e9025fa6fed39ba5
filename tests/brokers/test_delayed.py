"""Delayed delivery of a real Pulsar: by both clients, in strict mode, and to an Exclusive subscription, which heeds no delay.

Two brokers, for strict mode is static; on each one pytest session. Counts are asserted, and what no slow machine changes: nothing comes
earlier than it may.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from running import running

from pytest_loadtest import brokers
from pytest_loadtest.brokers import java
from pytest_loadtest.profile.delay import STRICT, TICK
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

from .conftest import OmbSession

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.pulsar,
    pytest.mark.slow,
    pytest.mark.skipif(java.find() is None, reason="no Java here: apt-get install openjdk-17-jre-headless"),
]

MESSAGES = 400
# what a busy machine does to the generator, or to latencies, is not what is looked at here
LOOSE: dict[str, Any] = {
    "messages": MESSAGES, "producerRate": 400, "messageSize": 64, "producersPerTopic": 2, "maxSendDelay": "60s", "drainTimeout": "60s",
    "generator": {"sendDelayP99": "20s", "cpu": 5, "stalled": 0.95},
}  # fmt: skip
SLO = {"sent": "1%", "throughput": "1%", "loss": 0, "duplicates": 0}
SHARED = {"name": "pulsar", "subscriptionType": "Shared"}
RANDOM = {"deliverAfter": {"min": "2s", "max": "5s"}, "subscriptionsPerTopic": 2}
LENIENT: dict[str, dict[str, Any]] = {
    "library": {**RANDOM, "driver": {**SHARED, "client": "library"}, "slo": {**SLO, "delayedIndexBytesPerMessage": 2000}},
    "native": {**RANDOM, "driver": {**SHARED, "client": "native"}, "slo": SLO},
    "exclusive": {
        "deliverAfter": "30s", "allowUndelayed": True, "driver": {"name": "pulsar", "subscriptionType": "Exclusive"}, "slo": SLO,
    },
}  # fmt: skip
IN_STRICT: dict[str, dict[str, Any]] = {
    "strict": {
        "deliverAfter": "2s", "driver": SHARED, "slo": {**SLO, "earliness": {"max": "0s"}},
        "broker": {"settings": {STRICT: "true", TICK: "100"}},
    },
    "at": {"deliverAt": "3s", "driver": SHARED, "slo": SLO, "broker": {"settings": {STRICT: "true", TICK: "100"}}},
}  # fmt: skip
TESTS = """\
import pytest

def at(name, **how):
    return pytest.param(id=name, marks=pytest.mark.load(f"{name}.yaml", **how))

@pytest.mark.parametrize((), [at(name, judge=name != "exclusive") for name in NAMES])
def test_delayed(load):
    pass
"""


@pytest.fixture(scope="module")
def documents(pulsar_process: brokers.Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    """The results of every profile by its name."""
    folder = tmp_path_factory.mktemp("delayed")
    asked = brokers.BrokerRequest(kind="pulsar", mode="process", folder=folder / "strict-broker", settings={STRICT: "true", TICK: "100"})
    lenient = session(folder / "lenient", LENIENT, pulsar_process.facts)  # goes on while the other broker starts
    with running(asked) as strict:
        one = session(folder / "strict", IN_STRICT, strict.facts)
        yield {name: of.document(name) for of, names in ((lenient, LENIENT), (one, IN_STRICT)) for name in names}
        one.end()
    lenient.end()


def session(folder: Any, profiles: dict[str, dict[str, Any]], facts: brokers.BrokerFacts) -> OmbSession:
    """One that drives all of them."""
    files = {"test_delayed.py": TESTS.replace("NAMES", repr(list(profiles)))}
    files |= {f"{name}.yaml": json.dumps({"name": name, **LOOSE, **keys}) for name, keys in profiles.items()}
    return OmbSession(folder, files, ["--load-target", facts.url, "--load-admin-url", str(facts.admin_url)], facts)


def counts(document: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = document["measurements"]["counts"]
    return found


@pytest.mark.parametrize("client", ["library", "native"])
def test_random_delays(documents: dict[str, dict[str, Any]], client: str) -> None:
    """Each of two subscriptions gets every message once, none earlier than a tick before it is due."""
    found = documents[client]
    assert found["verdict"]["outcome"] == "met", found["verdict"]
    assert counts(found)["received"] == 2 * MESSAGES
    early, whole = (found["measurements"]["latencies"][kind] for kind in ("earliness", "endToEnd"))
    assert early["maximum"] <= SECOND
    assert early["samples"] == 2 * MESSAGES
    assert whole["minimum"] >= SECOND - MILLISECOND


def test_the_index(documents: dict[str, dict[str, Any]]) -> None:
    """The broker told what its index took while messages were delayed: at most each once for each subscription."""
    index = documents["library"]["measurements"]["delayedIndex"]
    assert 0 < index["messages"] <= 2 * MESSAGES
    assert index["bytesPerMessage"] == index["bytes"] / index["messages"]


@pytest.mark.parametrize("name", ["strict", "at"])
def test_strict(documents: dict[str, dict[str, Any]], name: str) -> None:
    """Nothing is early, by not a nanosecond; with one due time for all as well."""
    found = documents[name]
    assert found["verdict"]["outcome"] == "met", found["verdict"]
    assert counts(found)["received"] == MESSAGES
    assert found["measurements"]["latencies"]["earliness"]["maximum"] == 0
    assert found["measurements"]["latencies"]["lateness"]["minimum"] >= 0


def test_exclusive(documents: dict[str, dict[str, Any]]) -> None:
    """It delivers at once, which is seen: the run misses, early by more than half of the delay."""
    found = documents["exclusive"]
    assert found["verdict"]["outcome"] == "missed"
    (missed,) = [finding for finding in found["verdict"]["findings"] if finding["outcome"] == "missed"]
    assert (missed["name"], missed["implicit"]) == ("earliness.max", True)
    assert found["measurements"]["latencies"]["earliness"]["maximum"] > 15 * SECOND
    assert counts(found)["received"] == MESSAGES
