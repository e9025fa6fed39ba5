"""Brokers that violate the protocol, at both native clients: endless frames, wrong text, wrong checksums, answers never asked for."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .fault import MET, MISSED, NO_DATA, Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .session import FaultySession

ONE_STREAM = {
    "topics": 1,
    "producersPerTopic": 1,
    "producerRate": 200,
    "drainTimeout": "3s",
    "maxSendDelay": "3s",
}
MQTT = ONE_STREAM | {"driver": {"name": "mqtt", "client": "native", "qos": 1}}
PULSAR = ONE_STREAM | {
    "driver": {
        "name": "pulsar",
        "client": "native",
        "operationTimeout": "3s",
        "sendTimeout": 0,
        "batchingEnabled": False,
    }
}

# The client waits longer before each reconnect without progress, so ten violations take it eleven seconds (docs/decisions/041).
PATIENT = PULSAR | {"drainTimeout": "30s", "maxSendDelay": "30s"}


def mqtt(kind: str, rule: Callable[[Any, Any], None]) -> Callable[[FaultySession], Any]:
    """Prepare an MQTT broker that does this instead of an answer to a kind of packet."""

    @contextmanager
    def prepare(session: FaultySession) -> Iterator[None]:
        from fake_mqtt import FakeMqttBroker

        from pytest_loadtest.wire.mqtt import packets

        with FakeMqttBroker() as broker:
            if kind:
                broker.rules[getattr(packets, kind)] = rule
            session.profile["target"] = {"url": broker.url}
            yield

    return prepare


def pulsar(kind: str, rule: Callable[[Any], None]) -> Callable[[FaultySession], Any]:
    """Prepare a Pulsar broker that does this instead of an answer to a kind of command."""

    @contextmanager
    def prepare(session: FaultySession) -> Iterator[None]:
        from fake_pulsar import FakeBroker

        with FakeBroker() as broker:
            broker.rules[kind] = rule
            session.profile["target"] = {"url": broker.url}
            yield

    return prepare


def unasked_puback(peer: Any, packet: Any) -> None:
    """Acknowledge a message, and another one that was never sent."""
    from fake_mqtt import PublishAnswer, answer

    from pytest_loadtest.wire.mqtt import packets

    answer(peer, packet)
    peer.send(PublishAnswer(packets.PUBACK, 65_000))


def unasked_unsuback(peer: Any, packet: Any) -> None:
    """Acknowledge a message, and the end of a subscription that nobody ended."""
    from fake_mqtt import answer

    from pytest_loadtest.wire.mqtt import packets

    answer(peer, packet)
    peer.send(packets.SubscriptionAnswer(packets.UNSUBACK, 2, (0,)))


def invalid_topic(peer: Any, packet: Any) -> None:
    """Deliver a message, and another one with a topic that is not UTF-8."""
    from fake_mqtt import answer

    answer(peer, packet)
    for other in list(peer.broker.peers):
        if other.filters:
            other.send(b"\x30\x08\x00\x04\xff\xfe\xc0\x80\x00x")


def endless_header(peer: Any, _packet: Any) -> None:
    """Begin a packet whose length never ends."""
    peer.send(b"\x30" + b"\xff" * 100_000)


def damaged_entries(seen: Any) -> None:
    """Acknowledge a message and deliver it; every tenth with a wrong checksum."""
    from fake_pulsar import answer, damaged

    answer(seen)
    body = seen.body if seen.said.sequence_id % 10 else damaged(seen.body)
    subscribed = [
        (other.peer, other.said.consumer_id)
        for other in seen.peer.broker.seen
        if other.kind == "SUBSCRIBE"
    ]
    for number, (peer, consumer) in enumerate(subscribed):
        peer.deliver(consumer, body, entry=2 * seen.said.sequence_id + number)


def nothing(*_: Any) -> None:
    """Do not answer."""


HOSTILE = (
    Fault(
        name="mqtt-conforming",
        happens="No fault: the same fake broker keeps to the protocol.",
        made="A fake MQTT broker.",
        shares=True, profile=MQTT, prepare=mqtt("", nothing), verdict=MET, status=0,
        counts={"offered": 200, "acked": 200, "received": 200, "lost": 0},
    ),
    Fault(
        name="mqtt-huge-frame",
        happens="A packet claims to have 256 MiB, the most that MQTT can say.",
        made="A fake MQTT broker, in answer to each message.",
        shares=True, profile=MQTT, prepare=mqtt("PUBLISH", lambda peer, _: peer.send(b"\x30\xff\xff\xff\x7f" + bytes(1000))),
        verdict=NO_DATA, status=1, says=("a packet of 268435460 bytes, where the client accepts … 10 violations",),
    ),
    Fault(
        name="mqtt-endless-header",
        happens="The length of a packet never ends.",
        made="A fake MQTT broker, in answer to each message.",
        shares=True, profile=MQTT, prepare=mqtt("PUBLISH", endless_header), verdict=NO_DATA, status=1,
        says=("because … the broker sent bytes that are not MQTT: a length of more than four bytes: 10 violations",),
    ),
    Fault(
        name="mqtt-invalid-utf8",
        happens="Messages are delivered with a topic that is not UTF-8.",
        made="A fake MQTT broker, in addition to each message.",
        shares=True, profile=MQTT, prepare=mqtt("PUBLISH", invalid_topic), verdict=MISSED, status=1, says=("✗ foreign (implicit)",),
        counts={"offered": 200, "acked": 200, "received": 200, "lost": 0, "foreign": 200},
    ),
    Fault(
        name="mqtt-late-answer",
        happens="The broker acknowledges messages that are not in flight; such an answer may be late, and is ignored.",
        made="A fake MQTT broker sends PUBACK for another packet identifier in addition to each acknowledgement.",
        shares=True, profile=MQTT, prepare=mqtt("PUBLISH", unasked_puback), verdict=MET, status=0,
        counts={"offered": 200, "acked": 200, "received": 200, "lost": 0}, slow=True,
    ),
    Fault(
        name="mqtt-unasked-answer",
        happens="The broker answers a request that was never sent.",
        made="A fake MQTT broker sends UNSUBACK in addition to each acknowledgement.",
        shares=True, profile=MQTT, prepare=mqtt("PUBLISH", unasked_unsuback), verdict=NO_DATA, status=1,
        says=("UNSUBACK 2, which answers no request of the client: 10 violations",),
    ),
    Fault(
        name="mqtt-silent",
        happens="The broker accepts connections and never answers.",
        made="A fake MQTT broker that does not answer CONNECT.",
        shares=True, profile=MQTT, prepare=mqtt("CONNECT", nothing), verdict=NO_DATA, status=1, says=("because … no answer in 10 s",), slow=True,
    ),
    Fault(
        name="pulsar-huge-frame",
        happens="A frame claims to have 2 GiB.",
        made="A fake Pulsar broker, in answer to CONNECT.",
        shares=True, profile=PULSAR, prepare=pulsar("CONNECT", lambda seen: seen.peer.write(b"\x7f\xff\xff\xff\x00\x00\x00\x10" + bytes(1000))),
        verdict=NO_DATA, status=1, says=("a frame of 2147483647 bytes, …: is this its binary port",),
    ),
    Fault(
        name="pulsar-invalid-utf8",
        happens="Bytes of a command are no message of the protocol.",
        made="A fake Pulsar broker, in answer to each message.",
        shares=True, profile=PATIENT, prepare=pulsar("SEND", lambda seen: seen.peer.write(b"\x00\x00\x00\x0c\x00\x00\x00\x08" + b"\xff" * 8)),
        verdict=NO_DATA, status=1, says=("because … the broker sent bytes that are not Pulsar's protocol: … 10 violations",),
    ),
    Fault(
        name="pulsar-wrong-checksum",
        happens="Entries are delivered with a wrong checksum.",
        made="A fake Pulsar broker damages every tenth entry.",
        shares=True, profile=PULSAR, prepare=pulsar("SEND", damaged_entries), verdict=MISSED, status=1, says=("✗ loss (implicit) 20 <= 0", "✗ corrupt (implicit) 20 <= 0"),
        counts={"offered": 200, "acked": 200, "received": 180, "lost": 20, "corrupt": 20},
    ),
    Fault(
        name="pulsar-unasked-answer",
        happens="The broker acknowledges entries of a producer that does not exist.",
        made="A fake Pulsar broker, in answer to each message.",
        shares=True, profile=PATIENT, prepare=pulsar("SEND", lambda seen: seen.peer.tell("SEND_RECEIPT", producer_id=99, sequence_id=0)),
        verdict=NO_DATA, status=1, says=("acknowledged an entry of unknown producer 99: 10 violations",),
    ),
    Fault(
        name="pulsar-silent",
        happens="The broker accepts connections and never answers.",
        made="A fake Pulsar broker that does not answer CONNECT.",
        shares=True, profile=PULSAR, prepare=pulsar("CONNECT", nothing), verdict=NO_DATA, status=1, says=("because … timed out: is the broker running, and the address right?",), slow=True,
    ),
)  # fmt: skip
