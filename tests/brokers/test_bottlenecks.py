"""Each bottleneck caused on purpose with a real mosquitto: the run's conclusion and its evidence.

Every cause exceeds the rule's bound by far, so a busy machine changes the figures and not the conclusion.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from driven import drive
from paho.mqtt import client as paho
from paho.mqtt import subscribe
from paho.mqtt.enums import CallbackAPIVersion
from running import running
from slow_disk import slow_disk
from tcp_relay import relay

from pytest_loadtest import brokers
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.mqtt.native.driver import NativeMqttDriver
from pytest_loadtest.errors import TargetError
from pytest_loadtest.profile.sections import SecuritySection
from pytest_loadtest.report import terminal
from pytest_loadtest.report.document import parse_document
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from driven import Act

    from pytest_loadtest.engine.progress import Progress

pytestmark = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)


class BehindRelay:
    """A broker that clients reach through a relay on another port."""

    def __init__(self, broker: brokers.Broker, port: int) -> None:
        self._broker, self._port = broker, port

    @property
    def facts(self) -> brokers.BrokerFacts:
        return replace(self._broker.facts, url=f"mqtt://127.0.0.1:{self._port}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Drive a profile against a broker in this process. :returns: the results document."""
    return lambda broker, more, *seen: drive(broker, more, tmp_path, monkeypatch, *seen)


@contextmanager
def started(folder: Path, **lines: str) -> Iterator[brokers.Broker]:
    """Start a mosquitto with these lines in its configuration."""
    with running(
        brokers.BrokerRequest(
            kind="mqtt", mode="process", folder=folder / "mosquitto", settings=lines
        )
    ) as broker:
        yield broker


def port_of(broker: brokers.Broker) -> int:
    return int(broker.facts.url.rpartition(":")[2])


def concluded(document: dict[str, Any], conclusion: str, evidence: str) -> None:
    """Assert the conclusion, and evidence that matches, in the document and in the terminal."""
    found = document["bottleneck"]
    assert found["conclusion"] == conclusion
    assert re.search(evidence, found["evidence"]), found["evidence"]
    assert f"  bottleneck {conclusion}: {found['evidence']}" in terminal.summary_lines(
        parse_document(json.dumps(document))
    )


def test_a_flood_makes_the_brokers_cpu_the_bottleneck(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """mosquitto compares every message with a long access list, which costs many times our CPU."""
    rights = tmp_path / "rights"
    rights.write_text(
        "topic read $SYS/#\n"
        + "".join(f"topic read nothing/of/ours/{i}\n" for i in range(20_000))
        + "topic readwrite loadtest/#\n"
    )
    rights.chmod(0o644)
    with started(tmp_path, acl_file=str(rights)) as broker:
        more = "subscriptionsPerTopic: 0\nproducerRate: 15000\nmessageSize: 64\ndriver: {name: mqtt, qos: 0}\n"
        document = run(broker, more)
    concluded(
        document,
        "broker CPU",
        r"mosquitto's busiest thread used \d\.\d\d of a core.*, in \d of \d samples",
    )


def test_a_stopped_broker_does_not_read(run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    with started(tmp_path) as broker:
        pid = broker.facts.pid
        assert pid is not None

        def stop_for_two_seconds(progress: Progress) -> None:
            os.kill(pid, signal.SIGCONT if progress.elapsed > 2.8 * SECOND else signal.SIGSTOP)

        try:
            document = run(
                broker,
                "producerRate: 3000\nmessageSize: 1024\nmaxSendDelay: 1s\ndriver: {name: mqtt, qos: 0}\n",
                stop_for_two_seconds,
            )
        finally:
            os.kill(pid, signal.SIGCONT)
    concluded(
        document,
        "broker not reading",
        r"were unread at mosquitto, which was stopped by a signal; .* waited in the generator's sockets, in \d of \d samples",
    )


def test_a_memory_limit_makes_memory_the_bottleneck(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """The messages for an absent subscriber fill the broker's memory."""
    with started(
        tmp_path, memory_limit="2000000", max_queued_messages="0", max_inflight_messages="0"
    ) as broker:
        away = paho.Client(CallbackAPIVersion.VERSION2, "away", clean_session=False)
        go_away(away, port_of(broker), "ballast")
        fill(port_of(broker), 1_900_000 - heap_of(port_of(broker)))
        document = run(broker, "producerRate: 100\nmessageSize: 64\ndriver: {name: mqtt, qos: 0}\n")
    concluded(
        document,
        "broker memory",
        r"mosquitto's heap had 1\.\d\d MiB of its limit of 1\.91 MiB, in \d of \d samples",
    )


def test_a_slow_disk_is_the_bottleneck(run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    """The broker saves the messages for an absent subscriber after every change, and waits for the disk."""
    settings = {
        "persistence": "true",
        "autosave_on_changes": "true",
        "autosave_interval": "1",
        "max_queued_messages": "0",
    }
    with started(tmp_path, **settings) as broker:
        go_away(
            paho.Client(CallbackAPIVersion.VERSION2, "away", clean_session=False),
            port_of(broker),
            "loadtest/#",
        )
        pid = broker.facts.pid
        assert pid is not None
        with slow_disk(pid, tmp_path, 500_000):
            document = run(
                broker,
                "producerRate: 500\nmessageSize: 64\nmaxSendDelay: 1s\ndriver: {name: mqtt}\n",
            )
    concluded(
        document,
        "broker disk",
        r"mosquitto waited for the disk \d+(\.\d+)? % of the time while it wrote .*/s, in \d of \d samples",
    )


def go_away(away: paho.Client, port: int, topic: str) -> None:
    """Subscribe and disconnect, so that the broker keeps messages for the session."""
    subscribed = threading.Event()
    away.on_subscribe = lambda *_: subscribed.set()
    away.connect("127.0.0.1", port)
    away.loop_start()
    away.subscribe(topic, 1)
    assert subscribed.wait(30)
    away.disconnect()
    away.loop_stop()


def heap_of(port: int) -> int:
    """Return what a broker without messages needs, bytes: mosquitto 2.1 has tables of 0.9 MB."""
    return int(subscribe.simple("$SYS/broker/heap/current", port=port).payload)


def fill(port: int, total: int) -> None:
    """Make the broker keep this number of bytes."""
    sender = paho.Client(CallbackAPIVersion.VERSION2, "sender")
    sender.connect("127.0.0.1", port)
    sender.loop_start()
    for _ in range(total // 50_000):
        sender.publish("ballast", bytes(50_000), 1).wait_for_publish(30)
    sender.disconnect()
    sender.loop_stop()


def test_a_slow_relay_makes_the_network_the_bottleneck(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Half of our bytes get through to the broker."""
    with started(tmp_path) as broker, relay(port_of(broker), rate=500_000) as port:
        document = run(
            BehindRelay(broker, port),
            "producerRate: 1000\nmessageSize: 1024\ndriver: {name: mqtt, qos: 0}\n",
        )
    concluded(
        document,
        "network",
        r"waited in the generator's sockets, and no more than .* were unread at mosquitto, in \d of \d samples",
    )


@pytest.fixture
def sleeping(monkeypatch: pytest.MonkeyPatch) -> Act:
    """Return a callback for the run's progress: its subscriber reads nothing until the measured phase is nearly over."""
    drivers: list[NativeMqttDriver] = []
    opened = NativeMqttDriver.open_producers

    def fall_asleep(driver: NativeMqttDriver, streams: Sequence[int]) -> None:
        opened(driver, streams)
        driver.pause([0])
        drivers.append(driver)

    def wake_up(progress: Progress) -> None:
        if progress.elapsed > 2.8 * SECOND and drivers:
            drivers.pop().resume([0])

    monkeypatch.setattr(NativeMqttDriver, "open_producers", fall_asleep)
    return wake_up


def test_a_subscriber_that_does_not_read_is_the_bottleneck(
    run: Callable[..., dict[str, Any]], tmp_path: Path, sleeping: Act
) -> None:
    with started(tmp_path, max_queued_messages="0") as broker:
        document = run(
            broker, "producerRate: 200\nmessageSize: 40960\ndriver: {name: mqtt}\n", sleeping
        )
    concluded(
        document,
        "subscriber",
        r"were unread at subscribers; .* more waited at mosquitto, in \d of \d samples",
    )


def test_a_window_of_one_on_a_slow_path_is_the_bottleneck(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Each message waits for the acknowledgement of the one before, and those that waited for more than a second are dropped."""
    with started(tmp_path) as broker, relay(port_of(broker), delay=0.1) as port:
        more = "producerRate: 100\nmessageSize: 64\nmaxSendDelay: 1s\ndriver: {name: mqtt, qos: 1, maxInflightMessages: 1}\n"
        document = run(BehindRelay(broker, port), more)
    concluded(
        document,
        "publisher window",
        r"messages were dropped because the target's in-flight windows were full: topic 0 from",
    )


def test_an_overloaded_worker_makes_the_generator_the_bottleneck(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """paho needs several times the broker's CPU for a message."""
    with started(tmp_path) as broker:
        more = "producerRate: 150000\nmessageSize: 64\nmaxSendDelay: 1s\ndriver: {name: mqtt, client: library, qos: 0}\n"
        document = run(broker, more)
    concluded(
        document,
        "generator",
        r"worker main's busiest thread used \d\.\d\d of a core.*, in \d of \d samples",
    )


def test_a_light_load_saturates_nothing(run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    with started(tmp_path) as broker:
        document = run(broker, "producerRate: 100\nmessageSize: 64\ndriver: {name: mqtt, qos: 0}\n")
    concluded(
        document,
        "nothing saturated",
        r"mosquitto's busiest thread used 0\.\d\d of a core.*, no queue built up",
    )


@pytest.mark.parametrize("tls", [True, "subscribers"])
def test_a_broker_with_tls_for_subscribers_is_sampled_completely(
    run: Callable[..., dict[str, Any]], tmp_path: Path, tls: bool | str
) -> None:
    """Its counters come over the producers' address, with the run's keys if that has TLS; connections to both addresses count."""
    request = brokers.BrokerRequest(
        kind="mqtt",
        mode="process",
        folder=tmp_path / "mosquitto",
        security=SecuritySection(tls=tls),
    )  # type: ignore[arg-type]
    with running(request) as broker:
        document = run(
            broker,
            "producerRate: 20\nmessageSize: 64\ndriver: {name: mqtt, qos: 1, tls: {version: TLSv1.3}}\n",
        )
    found = document["bottleneck"]
    assert found["missing"] == []
    assert (
        max(found["columns"]["workers.connections"])
        == max(found["columns"]["broker.connections"])
        == 2
    )
    assert max(value for value in found["columns"]["sys.clients"] if value is not None) >= 2


def test_a_broken_run_keeps_its_samples(run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    """The broker dies three seconds into the phase; it was stopped before, which may be the cause."""
    with started(tmp_path) as broker:
        pid = broker.facts.pid
        assert pid is not None

        def stop_and_kill(progress: Progress) -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if progress.elapsed > 2.5 * SECOND else signal.SIGSTOP)

        more = "testDuration: 20s\nproducerRate: 3000\nmessageSize: 1024\nmaxSendDelay: 1s\ndriver: {name: mqtt, qos: 0}\n"
        document = run(broker, more, stop_and_kill, pytest.raises(TargetError, match="went away"))
    assert document["verdict"]["outcome"] == "no data"
    concluded(
        document,
        "broker not reading",
        r"mosquitto, which was stopped by a signal; .*, in \d of \d samples",
    )


# --- the broker's own counters


def test_drops_that_the_run_counts_as_lost_are_no_contradiction(
    run: Callable[..., dict[str, Any]], tmp_path: Path, sleeping: Act
) -> None:
    """A queue of ten messages overflows because its subscriber does not read."""
    with started(tmp_path, max_queued_messages="10", max_inflight_messages="10") as broker:
        document = run(
            broker, "producerRate: 200\nmessageSize: 64\ndriver: {name: mqtt}\n", sleeping
        )
    dropped = [
        value for value in document["bottleneck"]["columns"]["sys.dropped"] if value is not None
    ]
    assert 0 < dropped[-1] - dropped[0] <= document["measurements"]["counts"]["lost"]
    assert document["verdict"]["outcome"] == "missed"


def test_drops_that_the_run_does_not_count_make_it_no_data(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Another client's queue overflows on the broker that the run started, so one of the counts is wrong.

    Our queue is as short, so a slow machine may make it drop some messages too. mosquitto publishes its counter every second or two, and only
    its growth between two of its numbers counts.
    """
    with started(tmp_path, max_queued_messages="10") as broker:
        go_away(
            paho.Client(CallbackAPIVersion.VERSION2, "away", clean_session=False),
            port_of(broker),
            "loadtest/#",
        )
        document = run(
            broker, "testDuration: 7s\nproducerRate: 200\nmessageSize: 64\ndriver: {name: mqtt}\n"
        )
    assert document["verdict"]["outcome"] == "no data"
    assert re.search(
        r"^the broker dropped [\d ]+ messages .*, and \d+ are missing by the run's count",
        document["verdict"]["reasons"][0],
    )
