"""The counts of a real Pulsar compared with those of the run, and its telemetry when it is the bottleneck."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from driven import drive
from slow_disk import need_slow_disk, slow_disk

from pytest_loadtest.brokers import java
from pytest_loadtest.brokers.url import RemoteBroker, parse_endpoints
from pytest_loadtest.drivers.pulsar import scrape
from pytest_loadtest.drivers.pulsar.admin import Admin
from pytest_loadtest.drivers.pulsar.metrics import counter_growth
from pytest_loadtest.drivers.pulsar.native.driver import NativePulsarDriver
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pytest_loadtest import brokers
    from pytest_loadtest.engine.progress import Progress

pytestmark = [
    pytest.mark.pulsar,
    pytest.mark.skipif(
        java.find() is None, reason="no Java here: apt-get install default-jre-headless"
    ),
]


@pytest.fixture
def run(
    pulsar_process: brokers.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """Run a profile against the broker, in this process, and return the results document."""
    return lambda more, *seen: drive(pulsar_process, more, tmp_path, monkeypatch, *seen)


def concluded(document: dict[str, Any], conclusion: str, evidence: str) -> None:
    """Check that the run has this conclusion with evidence of this form; on a busy machine it may have others too."""
    found = document["bottleneck"]
    said = {one["conclusion"]: one["evidence"] for one in (found, *found["also"])}
    assert re.search(evidence, said.get(conclusion, "")), json.dumps(found)


def in_a_long_phase(
    drive_for: Callable[[int], dict[str, Any]], conclusion: str, evidence: str
) -> dict[str, Any]:
    """Return the first run that has the conclusion: a busy machine lets the broker answer twice in a minute only, not in five seconds.

    :param drive_for: runs a measured phase of so many seconds.
    """
    for seconds in (5, 20, 60):
        document = drive_for(seconds)
        bottleneck = document["bottleneck"]
        if conclusion in {one["conclusion"] for one in (bottleneck, *bottleneck["also"])}:
            break
    concluded(document, conclusion, evidence)
    return document


def known(document: dict[str, Any], name: str) -> list[float]:
    """Return the values of the samples that have this column."""
    return [value for value in document["bottleneck"]["columns"].get(name, ()) if value is not None]


def test_the_brokers_counts_are_ours(run: Callable[..., dict[str, Any]]) -> None:
    """Exactly, over all partitions and subscriptions, for batches, and without the messages of the warm-up."""
    document = run(
        "warmupDuration: 1s\nproducerRate: 2000\nmessageSize: 200\npartitionsPerTopic: 2\nsubscriptionsPerTopic: 2\ndriver: {name: pulsar}\n"
    )
    counts = document["measurements"]["counts"]
    assert counts["acked"] == 6000
    assert known(document, "sys.totalIn") == [counts["acked"]]
    assert known(document, "sys.totalOut") == [counts["received"] + counts["duplicates"]]
    assert set(known(document, "sys.continuous")) == {
        1.0
    }  # two partitions, whose load times it tells


@pytest.mark.parametrize(("missing", "outcome"), [(0, "met"), (1, "no data")])
def test_a_count_below_the_confirmed_messages_is_no_data(
    missing: int,
    outcome: str,
    pulsar_process: brokers.Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As for a broker that others run; the equal number is accepted.

    The counts are those since the end of the warm-up. Without one they begin at the first answer, which on a busy machine comes only when
    messages have been counted: then the topic may have been loaded again, and a low count is no more than a note.
    """
    at_url = RemoteBroker(
        replace(pulsar_process.facts, mode="url", pid=None),
        parse_endpoints("pulsar", pulsar_process.facts.url),
    )
    monkeypatch.setattr(
        scrape,
        "counter_growth",
        lambda *args: None if (found := counter_growth(*args)) is None else max(found - missing, 0),
    )
    document = drive(
        at_url,
        "warmupDuration: 1s\nproducerRate: 2000\nmessageSize: 200\ndriver: {name: pulsar}\n",
        tmp_path,
        monkeypatch,
    )
    assert known(document, "sys.continuous")[-1] == 1.0
    assert document["verdict"]["outcome"] == outcome


@pytest.fixture
def in_namespace(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, object], None]:
    """Give the namespaces of runs a policy: path below the namespace, body."""

    def give(path: str, body: object) -> None:
        remove_backlog_quota = Admin.remove_backlog_quota

        def and_more(admin: Admin, namespace: str) -> None:
            remove_backlog_quota(admin, namespace)
            admin._request("POST", f"namespaces/{namespace}/{path}", body)

        monkeypatch.setattr(Admin, "remove_backlog_quota", and_more)

    return give


def test_a_publish_rate_limit_is_concluded(
    run: Callable[..., dict[str, Any]], in_namespace: Callable[[str, object], None]
) -> None:
    """The limit is a tenth of the load."""
    in_namespace(
        "publishRate", {"publishThrottlingRateInMsg": 200, "publishThrottlingRateInByte": -1}
    )
    more = "producerRate: 2000\nmessageSize: 200\nmaxSendDelay: 1s\ndriver: {name: pulsar, maxPendingMessages: 500}\n"
    in_a_long_phase(
        lambda seconds: run(f"testDuration: {seconds}s\n{more}"),
        "broker throttling",
        r"Pulsar held producers back [\d.]+ times a second for a publish rate limit, in \d+ of \d+ samples",
    )


def test_a_sleeping_consumer_is_concluded(
    run: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    drivers: list[NativePulsarDriver] = []
    opened = NativePulsarDriver.open_producers

    def fall_asleep(driver: NativePulsarDriver, streams: Sequence[int]) -> None:
        opened(driver, streams)
        driver.pause([0])
        drivers.append(driver)

    def sleep_for(seconds: int) -> dict[str, Any]:
        def wake_up(progress: Progress) -> None:
            if progress.elapsed > (seconds - 0.2) * SECOND and drivers:
                drivers.pop().resume([0])

        more = (
            "producerRate: 500\nmessageSize: 200\ndriver: {name: pulsar, receiverQueueSize: 100}\n"
        )
        return run(f"testDuration: {seconds}s\n{more}", wake_up)

    monkeypatch.setattr(NativePulsarDriver, "open_producers", fall_asleep)
    document = in_a_long_phase(
        sleep_for,
        "consumer",
        r"1 of 1 consumers had no permits left, .*, with [\d\s]+ entries in the backlog, in \d+ of \d+ samples",
    )
    counts = document["measurements"]["counts"]
    assert known(document, "sys.totalOut") == [counts["received"] + counts["duplicates"]]


@pytest.mark.slow
def test_a_slow_disk_is_concluded(
    special_pulsar: brokers.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bookie syncs its journal to a disk with half of the needed bandwidth; the broker reports the write time every five seconds."""
    need_slow_disk()
    facts = special_pulsar.facts
    if "data" in facts.settings:
        pytest.skip(f"its data lies in no disk: {facts.settings['data']}")
    assert facts.settings["journalSyncData"] == "true"
    assert facts.pid is not None
    with slow_disk(facts.pid, tmp_path, 500_000):
        more = "testDuration: 12s\nproducerRate: 100\nmessageSize: 10240\nmaxSendDelay: 1s\n"
        document = drive(
            special_pulsar,
            more + "driver: {name: pulsar, maxPendingMessages: 50}\n",
            tmp_path,
            monkeypatch,
        )
    evidence = r"a write to Pulsar's bookies took [\d.]+ m?s on average, of the [\d.]+ m?s that the broker needed to publish, in \d+ of \d+"
    concluded(document, "bookie write", evidence)
