"""Real brokers with real faults: the measurements show what happened, to the message if it can be counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mosquitto_versions import kept_messages
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

from pytest_loadtest.drivers.mqtt.paho.driver import PahoMqttDriver
from pytest_loadtest.fleet import workload_share
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    import pytest

    from pytest_loadtest.brokers.base import Broker
    from pytest_loadtest.engine.progress import Progress

    from .conftest import Bench

Report = Callable[[str, object], None]

IN_FLIGHT, QUEUED = 20, 1000  # the subscriber's Receive Maximum; mosquitto's max_queued_messages


class Sleeper(PahoMqttDriver):
    """A driver whose consumers sleep from the start until they are woken."""

    asleep: tuple[PahoMqttDriver, list[int]] | None = None

    def open_consumers(self, consumers: Any) -> Any:
        places = super().open_consumers(consumers)
        Sleeper.asleep = self, places.tolist()
        self.pause(places.tolist())
        return places


def test_a_sleeping_subscriber_loses_what_mosquitto_drops(
    bench: Bench, mosquitto_process: Broker, monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    """5 000 QoS 1 messages pass a subscriber that sleeps until all are acknowledged: the lost ones are those that mosquitto counts as dropped."""
    monkeypatch.setattr(workload_share, "driver_class", lambda name, client: Sleeper)

    def wake(progress: Progress) -> None:
        if progress.acked == 5000 and Sleeper.asleep is not None:
            driver, places = Sleeper.asleep
            driver.resume(places)
            Sleeper.asleep = None

    judged = bench.run(
        f"""
name: sleeper
messageSize: 128
producerRate: 5000
testDuration: 1s
drainTimeout: 8s
maxSendDelay: 60s
driver: {{name: mqtt, qos: 1, receiveMaximum: {IN_FLIGHT}}}
slo: {{endToEndLatency: {{p50: 60s}}, sent: 1%}}
generator: {{sendDelayP99: 30s, receiveLagP99: 30s, stalled: 1, cpu: 5}}
""",
        target=mosquitto_process.facts.url,
        act=wake,
    )
    counts = judged.measurements.counts
    dropped = sys_dropped(mosquitto_process.facts.url)
    report("counts", counts)
    report("$SYS dropped", dropped)
    assert counts.acked == counts.sent == counts.offered == 5000
    kept = kept_messages(mosquitto_process.facts, QUEUED, IN_FLIGHT)
    assert counts.lost == 5000 - counts.received == dropped == 5000 - kept
    assert judged.lost() == [(0, seq) for seq in range(kept, 5000)]
    assert counts.duplicates == counts.out_of_order == counts.corrupt == 0
    assert judged.outcome is Outcome.MISSED
    # What was lost was not delivered either, which is more than half.
    missed = {"loss", "throughput", "endToEndLatency.p50"}
    assert set(judged.missed()) == missed


def sys_dropped(url: str) -> int:
    """Return the broker's own count, once two of its publications, a second apart, agree."""
    seen: list[int] = []
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.on_message = lambda _client, _data, message: seen.append(int(message.payload))
    client.on_connect = lambda *_: client.subscribe("$SYS/broker/publish/messages/dropped")
    host, port = url.removeprefix("mqtt://").split(":")
    client.connect(host, int(port))
    # mosquitto publishes a value again only when it has changed, so the latest after two of its intervals is the count
    end = time.monotonic() + 2.5
    while time.monotonic() < end or not seen:
        client.loop(0.1)
    client.disconnect()
    client.loop(0.1)
    return seen[-1]


def test_a_stopped_broker_delays_every_message_due_meanwhile(
    bench: Bench, mosquitto_process: Broker, report: Report
) -> None:
    """SIGSTOP for 3 s: the latency is missed, nothing is lost, and the generator is not limited."""
    pid = mosquitto_process.facts.pid
    assert pid is not None
    text = """
name: standstill
messageSize: 128
producerRate: 300
testDuration: 10s
maxSendDelay: 60s
driver: {name: mqtt, qos: 1}
slo: {endToEndLatency: {p99: 500ms}, sent: 50%, throughput: 50%}
generator: {sendDelayP99: 2s, receiveLagP99: 2s, stalled: 1, cpu: 5}
"""
    with frozen(pid) as freezer:

        def run() -> Any:
            freezer.at.clear()
            return bench.run(text, target=mosquitto_process.facts.url, act=freezer.act)

        judged = bench.quiet(run, SECOND // 2, report)
    stopped, resumed = freezer.at
    measurements, counts = judged.measurements, judged.measurements.counts
    received = judged.samples("received")
    due_meanwhile = (received["intended"] > stopped + 100 * MILLISECOND) & (
        received["intended"] < resumed
    )
    report("due while it stood still", int(due_meanwhile.sum()))
    report("missed", judged.missed())
    own = measurements.latencies.get("own_send_delay")
    report("own send delay p99", f"{own and own.percentile(99) / MILLISECOND} ms")
    assert due_meanwhile.sum() > 800
    assert (received["received"][due_meanwhile] >= resumed).all()
    assert measurements.latencies["end_to_end"].maximum > 2800 * MILLISECOND
    assert counts.lost == 0
    assert counts.received == counts.acked == counts.offered == 3000
    # the window was full: taken for our own it would be beyond the limit
    assert measurements.latencies["send_delay"].percentile(99) > 2 * SECOND
    assert judged.outcome is Outcome.MISSED
    assert set(judged.missed()) == {"endToEndLatency.p99"}


class Freezer:
    """Stops a process 2 s into the run, and continues it 3 s later; ``at``: when, by the monotonic clock."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.at: list[int] = []

    def act(self, progress: Progress) -> None:
        now = time.monotonic_ns()
        if not self.at and progress.elapsed >= 2 * SECOND:
            os.kill(self._pid, signal.SIGSTOP)
            self.at.append(time.monotonic_ns())
        elif len(self.at) == 1 and now >= self.at[0] + 3 * SECOND:
            self.at.append(time.monotonic_ns())
            os.kill(self._pid, signal.SIGCONT)


@contextmanager
def frozen(pid: int) -> Iterator[Freezer]:
    try:
        yield Freezer(pid)
    finally:
        os.kill(pid, signal.SIGCONT)


EARLIER_RUN = """
import os, sys
from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.drivers.mqtt.paho.driver import PahoMqttDriver
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.testing import Subject, rig

settings = MqttSettings.model_validate({"qos": 1, "cleanStart": False, "sessionExpiry": "1h"})
with rig(Subject(driver=PahoMqttDriver, target=TargetAddress(url=sys.argv[1]), settings=settings)) as r:
    r.driver.pause(r.places)
    r.send(50)
    r.until(lambda: r.acked == 50, "all acknowledged")
    os._exit(9)
"""


def test_messages_of_an_earlier_run_are_foreign(
    bench: Bench, mosquitto_process: Broker, report: Report
) -> None:
    """A run that died left messages in its durable session: the next run gets them first, and counts them as foreign."""
    url = mosquitto_process.facts.url
    died = subprocess.run(
        [sys.executable, "-c", EARLIER_RUN, url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert died.returncode == 9, died.stderr
    judged = bench.run(
        """
name: durable
messageSize: 128
producerRate: 200
testDuration: 1500ms
maxSendDelay: 60s
driver: {name: mqtt, qos: 1, cleanStart: false, sessionExpiry: 1h}
slo: {endToEndLatency: {p50: 30s}, duplicates: 0, sent: 50%, throughput: 50%}
generator: {sendDelayP99: 5s, receiveLagP99: 5s, stalled: 1, cpu: 5}
""",
        target=url,
    )
    counts = judged.measurements.counts
    report("counts", counts)
    assert counts.foreign == 50
    strays = judged.measurements.strays
    assert [(stray.kind, stray.size) for stray in strays] == [("foreign", 128)] * 3
    assert all(stray.beginning and stray.beginning.startswith(r"PL\x01") for stray in strays)
    assert all(stray.topic.startswith("loadtest/") for stray in strays)
    assert (counts.offered, counts.acked, counts.received, counts.lost, counts.duplicates) == (
        300,
        300,
        300,
        0,
        0,
    )
    assert len(judged.samples("received")["seq"]) == 300
    assert judged.outcome is Outcome.MET
