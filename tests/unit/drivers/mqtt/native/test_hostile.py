"""The native client and brokers that violate the protocol: an error that names broker and violation, in bounded time and memory."""

from __future__ import annotations

import threading
import time
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fake_mqtt import FakeMqttBroker, answer, nothing, with_bytes
from mqtt_codec import PublishAnswer, encode
from mqtt_rig import CONNACK, ONE, burst, context
from native_rig import MovedClock

from pytest_loadtest.drivers import driver_class
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message.samples import Status
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.wire.mqtt import packets as p

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fake_mqtt import MqttPeer

PATIENCE = 20  # s of real time that nothing here needs
SUBACK, UNSUBACK = (
    encode(p.SubscriptionAnswer(kind, number, (1,)))
    for kind, number in ((p.SUBACK, 1), (p.UNSUBACK, 2))
)
MESSAGE = encode(p.Publish("loadtest/r1/0", bytes(64), 1, packet_id=7))
# PUBLISH of 256 MiB, the most that MQTT can announce, and the start of its body.
HUGE = b"\x30\xff\xff\xff\x7f" + bytes(1000)


@pytest.fixture
def broker() -> Iterator[FakeMqttBroker]:
    with FakeMqttBroker() as made:
        yield made


class Rig:
    """A driver, its answers and arrivals."""

    def __init__(self, broker: FakeMqttBroker, **settings: Any) -> None:
        self.clock, self.acks, self.sizes = MovedClock(), list[tuple[int, int]](), list[int]()
        self.driver: Any = driver_class("mqtt", "native")(
            context(broker.url, self.clock, **settings)
        )  # type: ignore[call-arg]

    def turn(self) -> None:
        self.driver.poll(MILLISECOND)
        if (acks := self.driver.acks()) is not None:
            self.acks += zip(
                acks.status.tolist(),
                [0] * len(acks.row) if acks.resends is None else acks.resends.tolist(),
                strict=True,
            )
        if (received := self.driver.take()) is not None:
            self.sizes += received.size.tolist()

    def until(self, done: Callable[[], object], *, step: int = 0) -> None:
        """Poll until ``done`` returns something true; each turn adds ``step`` ns to the clock."""
        end = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < end, (
                f"not in time; disconnected: {self.driver.disconnected()}"
            )
            self.clock.advance(step)
            self.turn()


@pytest.fixture
def rig(broker: FakeMqttBroker) -> Iterator[Callable[..., Rig]]:
    """Return a function that makes a driver, which is closed at the end."""
    made = list[Rig]()

    def make(**settings: Any) -> Rig:
        made.append(Rig(broker, **settings))
        return made[-1]

    yield make
    broker.close()
    for each in made:
        each.driver.close()


ANSWERS_TO_CONNECT = {
    "a packet of 256 MiB": (HUGE, "not MQTT: a packet of 268435460 bytes, where the client accepts 10"),
    "a length without end": (b"\x20" + b"\xff" * 50, "not MQTT: a length of more than four bytes"),
    "properties without end": (b"\x20\x06\0\0\xff\xff\xff\xff", "not MQTT: a variable byte integer of more than four bytes"),
    "invalid UTF-8": (b"\x20\x08\0\0\x05\x1f\x00\x02\xff\xfe", "not MQTT: a string that is not UTF-8"),
    "a forbidden window": (b"\x20\x06\0\0\x03\x21\0\0", "not MQTT: property receive_maximum with the forbidden value 0"),
    "a forbidden QoS": (b"\x20\x05\0\0\x02\x24\x09", "not MQTT: property maximum_qos with the forbidden value 9"),
    "HTTP": (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not MQTT: 0x48 is not the first byte of a packet"),
    "another's answer": (SUBACK, "SUBACK 1, which answers no request"),
    "an answer to a request never sent": (UNSUBACK, "UNSUBACK 2, which answers no request"),
    "two answers": (CONNACK * 2, "a second CONNACK"),
    "a message without a subscription": (CONNACK + MESSAGE, "a message to a client without a subscription"),
    "authentication": (b"\xf0\x00", "AUTH, although the client names no authentication method"),
    "a client's packet": (b"\xc0\x00", "a packet that only clients may send: PINGREQ"),
}  # fmt: skip


@pytest.mark.parametrize("case", ANSWERS_TO_CONNECT)
def test_an_answer_to_connect_that_violates_the_protocol_is_named(
    broker: FakeMqttBroker, rig: Callable[..., Rig], case: str
) -> None:
    """With the address of the broker; the client takes no memory for what a packet announces."""
    sent, named = ANSWERS_TO_CONNECT[case]
    broker.rules[p.CONNECT] = with_bytes(sent)
    r = rig()
    tracemalloc.start()
    try:
        with pytest.raises(
            TargetError, match=f"{broker.url}: producer of stream 0: the broker sent .*({named})"
        ):
            r.driver.open_producers([0])
            r.until(lambda: False)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "sent", [b"", b"\x20", b"\x20\x03", b"\x20\x03\x00", b"\x20\xff\xff"], ids=len
)
def test_a_connection_that_ends_within_connack_is_an_error(
    broker: FakeMqttBroker, rig: Callable[..., Rig], sent: bytes
) -> None:
    def cut(peer: MqttPeer, _packet: Any) -> None:
        peer.send(sent)
        peer.drop()

    broker.rules[p.CONNECT] = cut
    with pytest.raises(
        TargetError,
        match=f"{broker.url}: producer of stream 0: (connection lost|the broker closes)",
    ):
        rig().driver.open_producers([0])


@pytest.mark.parametrize("bytewise", [False, True])
def test_a_connack_that_never_comes_is_an_error_after_10_s(
    broker: FakeMqttBroker, rig: Callable[..., Rig], bytewise: bool
) -> None:
    """Also if a byte of it comes now and then."""
    r = rig()

    def trickle(peer: MqttPeer, _packet: Any) -> None:
        for byte in CONNACK[:-1] if bytewise else b"":
            peer.send(bytes([byte]))
        r.clock.advance(11 * SECOND)

    broker.rules[p.CONNECT] = trickle
    with pytest.raises(TargetError, match="producer of stream 0: no answer in 10 s"):
        r.driver.open_producers([0])


IN_RUN = {
    "another's answer": lambda peer, _: peer.send(SUBACK),
    "an answer to a request never sent": lambda peer, _: peer.send(UNSUBACK * 3),
    "a second CONNACK": lambda peer, _: peer.send(CONNACK),
    "CONNACK after the end": lambda peer, _: peer.send(p.Ending(p.DISCONNECT, 0x8B), CONNACK),
    "a packet of 256 MiB": with_bytes(HUGE),
    "the answer to a message of another QoS": lambda peer, message: peer.send(
        PublishAnswer(p.PUBCOMP, message.packet_id)
    ),
    "half an answer": lambda peer, _: (peer.send(b"\x40"), peer.drop()),
}


@pytest.mark.parametrize("case", IN_RUN)
def test_a_single_violation_costs_a_connection_and_no_message(
    broker: FakeMqttBroker, rig: Callable[..., Rig], case: str
) -> None:
    """The message is sent again, and counts once."""
    r = rig(qos=1)
    r.driver.open_consumers([0])
    r.driver.open_producers([3])
    broker.once[p.PUBLISH].append(IN_RUN[case])
    assert r.driver.send(burst(1)) is None
    r.until(lambda: r.acks and r.sizes, step=MILLISECOND)
    assert (r.acks, r.sizes) == ([(Status.ACKED, 1)], [64])
    assert r.driver.disconnected() is None
    assert r.driver.facts().losses == 1


@pytest.mark.parametrize("kind", [p.PUBACK, p.PUBCOMP], ids=["PUBACK", "PUBCOMP"])
def test_a_message_at_qos_2_is_acknowledged_only_by_its_exchange(
    broker: FakeMqttBroker, rig: Callable[..., Rig], kind: int
) -> None:
    """Not by the answer of another QoS, and not by PUBCOMP before PUBREC."""
    r = rig(qos=2)
    r.driver.open_producers([3])
    broker.once[p.PUBLISH].append(
        lambda peer, message: peer.send(PublishAnswer(kind, message.packet_id))
    )
    r.driver.send(burst(1))
    r.until(lambda: r.acks, step=MILLISECOND)
    assert r.acks == [(Status.ACKED, 1)]


def test_answers_never_requested_do_not_end_a_subscription(
    broker: FakeMqttBroker, rig: Callable[..., Rig]
) -> None:
    """UNSUBACK makes the client connect again instead of leaving."""
    r = rig(qos=1)
    r.driver.open_consumers([0])
    subscriber = broker.peers[-1]
    for _ in range(3):
        subscriber.send(UNSUBACK)
    r.until(lambda: subscriber.gone.is_set() and r.driver.disconnected() is None, step=MILLISECOND)
    broker.route(p.Publish("loadtest/r1/0", bytes(64), 1))
    r.until(lambda: r.sizes)
    assert r.driver.facts().losses == 1


def test_a_broker_that_violates_the_protocol_again_and_again_ends_the_run(
    broker: FakeMqttBroker, rig: Callable[..., Rig]
) -> None:
    """After ten violations; the error names the last one."""
    r = rig(qos=1)
    r.driver.open_producers([3])
    broker.rules[p.PUBLISH] = with_bytes(b"\x90\x04\xff\xff\x00\x00")
    r.driver.send(burst(1))
    with pytest.raises(
        TargetError,
        match=rf"{broker.url}: producer of stream 3: the broker sent SUBACK 65535, .*10 violations",
    ):
        r.until(lambda: False, step=10 * MILLISECOND)
    assert not r.acks


def test_a_flood_leaves_the_loop_after_its_time(
    broker: FakeMqttBroker, rig: Callable[..., Rig]
) -> None:
    """However many messages wait; each counts once."""
    r = rig(qos=1)
    r.driver.open_consumers([0])
    broker.peers[-1].send(MESSAGE.replace(b"loadtest/r1/0", b"loadtest/r1/9") * 20_000)
    turns = 0
    while len(r.sizes) < 20_000:
        began = time.monotonic()
        r.turn()
        turns += 1
        assert time.monotonic() - began < PATIENCE
    assert turns > 1


def test_a_packet_of_many_reads_takes_linear_time(
    broker: FakeMqttBroker, rig: Callable[..., Rig]
) -> None:
    """16 MiB on an existing topic, where foreign messages may have any size. Each byte is copied a few times, not once for each read."""
    r = rig(topology=replace(ONE, name="existing"))
    r.driver.open_consumers([0])
    subscriber = broker.peers[-1]
    data = encode(p.Publish("existing", bytes(16 << 20)))
    tracemalloc.start()
    try:
        # Not encoded at once: the sender must not wait for the reader, which runs in the same thread.
        sender = threading.Thread(target=subscriber.send, args=(data,))
        sender.start()
        r.until(lambda: r.sizes)
        sender.join()
        assert tracemalloc.get_traced_memory()[1] < 5 * len(data)
    finally:
        tracemalloc.stop()
    assert r.sizes == [16 << 20]


def test_a_ping_that_is_answered_with_something_else_ends_the_connection(
    broker: FakeMqttBroker, rig: Callable[..., Rig]
) -> None:
    """Bytes of the broker alone do not prove that it answers."""
    r = rig(qos=1, keepAlive="10s")
    r.driver.open_producers([0])
    broker.rules[p.PINGREQ] = lambda peer, _: peer.send(b"\x40")
    broker.rules[p.CONNECT] = nothing
    r.until(r.driver.disconnected, step=SECOND)
    assert "no answer to a ping within keepAlive" in r.driver.disconnected()
    broker.rules[p.CONNECT] = answer
