"""QoS 2 across restarts of a real mosquitto under load: each client's counts against the packets on the wire (docs/decisions/042)."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from mqtt_codec import PublishAnswer
from mqtt_tap import MqttTap, Seen, delivered
from running import running
from waiting_for import wait_until

from pytest_loadtest import brokers
from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.mqtt.native.driver import NativeMqttDriver
from pytest_loadtest.drivers.mqtt.paho.driver import PahoMqttDriver
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message import envelope
from pytest_loadtest.message.samples import Flag, Status
from pytest_loadtest.testing import Subject, rig
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.wire.mqtt import packets as p

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)
both = pytest.mark.parametrize(
    "driver", [PahoMqttDriver, NativeMqttDriver], ids=["library", "native"]
)

STREAMS = 2
DURABLE = {"cleanStart": False, "sessionExpiry": "1h", "receiveMaximum": 20, "qos": 2}
FORGOTTEN = "the broker had forgotten the session of a consumer, and what it held for it"
REJECTED = "message rejected by the broker: Quota exceeded"
Message = tuple[int, int]  # stream and sequence number


@both
@pytest.mark.parametrize("restart", ["in order", "killed after a save", "killed before a save"])
def test_counts_are_those_of_the_wire_when_mosquitto_restarts_under_load(
    tmp_path: Path, driver: Any, restart: str
) -> None:
    """Whatever a broker does, a client delivers each message that it gets once, and sends none again that the broker has taken."""
    settings = {"persistence": "true", "max_queued_messages": "0"}
    request = brokers.BrokerRequest(
        kind="mqtt", mode="process", folder=tmp_path / "broker", settings=settings
    )
    with running(request) as broker, MqttTap(int(broker.facts.url.rpartition(":")[2])) as tap:
        given = MqttSettings.model_validate(DURABLE)
        subject = Subject(
            driver=driver, target=TargetAddress(url=tap.url), settings=given, deadline=60 * SECOND
        )
        with rig(subject, streams=STREAMS) as r:
            try:
                sent = load_around(r, broker, tmp_path, restart)
            except TargetError as error:
                # mosquitto may hang up for good on a producer of which it has old messages that nobody will release.
                assert (
                    restart == "killed after a save"
                    and "the broker ended 10 connections in a row" in str(error)
                )
                return
            facts = r.driver.facts()
            check_producers(r, tap, sent)
            copies = check_consumer(r, tap, at_release=driver is PahoMqttDriver)
            acked = {
                (stream, seq)
                for stream in r.streams
                for answers in [r.answers(stream)]
                for seq in answers.seq[answers.status == Status.ACKED].tolist()
            }
        failed = STREAMS * sent - len(acked)
        assert failed == facts.incidents.get(REJECTED, 0)
        assert (facts.forgotten, facts.incidents.get(FORGOTTEN, 0)) == (
            (2, 1) if restart == "killed before a save" else (0, 0)
        )
        if restart == "in order":
            # mosquitto 2.0 sends some messages again that it had released before; each is marked.
            assert set(copies) == acked and failed == 0
            marked = np.concatenate([part.flags for part in r.received]) & Flag.REDELIVERED
            assert copies.total() - len(copies) <= np.count_nonzero(marked)


def load_around(r: Any, broker: brokers.Broker, folder: Path, restart: str) -> int:
    """Send before, while and after mosquitto restarts, until each message was answered; return the number of each stream's messages."""
    r.send(100)
    r.until(lambda: r.copies >= 100, "received")
    if restart == "killed after a save":
        assert broker.facts.pid is not None
        os.kill(broker.facts.pid, signal.SIGUSR1)
        r.send(60, 100)
        wait_until((folder / "broker" / "data" / "mosquitto.db").exists, "the saved state", 30)
        r.send(100, 160)
    sent = 260 if restart == "killed after a save" else 100
    burst = r.burst(100, sent)
    left = r.offer(burst)
    for _ in range(3):
        r.driver.poll(MILLISECOND // 5)
    broker.restart(kill=restart != "in order")
    while len(left):
        r.driver.poll(MILLISECOND)
        r.collect()
        left = r.offer(burst, left)
    r.until(lambda: r.acked == STREAMS * (sent + 100), "all answered")
    # Deliveries of what is at the broker: until nothing comes any more.
    quiet, copies = time.monotonic(), r.copies
    while time.monotonic() < quiet + 1:
        r.driver.poll(MILLISECOND)
        r.collect()
        if r.copies != copies:
            quiet, copies = time.monotonic(), r.copies
    return sent + 100


def check_producers(r: Any, tap: MqttTap, sent: int) -> None:
    """Check that each message has one answer, and that none is published again after its PUBREC unless the broker lost the session."""
    for stream in r.streams:
        assert len(r.answers(stream).seq) == len(set(r.answers(stream).seq.tolist())) == sent
        taken: set[int] = set()
        packets = tap.client(f"lt-p{stream}")
        # Only the packets of one direction are in their order.
        forgotten = {
            seen.connection
            for seen in packets
            if isinstance(seen.packet, p.Connack) and not seen.packet.session_present
        }
        for seen in packets:
            packet = seen.packet
            if isinstance(packet, p.Connect) and seen.connection in forgotten:
                taken.clear()
            elif isinstance(packet, p.Publish):
                assert packet.packet_id not in taken, (
                    f"stream {stream}: {packet.packet_id} published again after its PUBREC"
                )
            elif isinstance(packet, PublishAnswer) and packet.reason < p.FAILURE:
                {p.PUBREC: taken.add, p.PUBREL: lambda _: None, p.PUBCOMP: taken.discard}[
                    packet.kind
                ](packet.packet_id)


def check_consumer(r: Any, tap: MqttTap, *, at_release: bool) -> Counter[Message]:
    """Check that the consumer counted what the protocol delivers; return it."""
    seen: list[Seen] = tap.client("lt-c0")
    payloads = delivered(seen, at_release=at_release)
    heads = np.frombuffer(
        b"".join(payload[: envelope.HEAD] for payload in payloads), np.uint8
    ).reshape(len(payloads), envelope.HEAD)
    expected = envelope.decode_heads(heads, np.array(list(map(len, payloads)), np.int32), r.nonce)
    counted = r.heads(0)
    copies = Counter(zip(counted.stream.tolist(), counted.seq.tolist(), strict=True))
    assert copies == Counter(zip(expected.stream.tolist(), expected.seq.tolist(), strict=True))
    return copies
