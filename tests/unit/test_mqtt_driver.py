"""The parts of the MQTT driver that need no broker: settings, packets on a socket, windows, columns."""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.enums import MQTTErrorCode

from pytest_loadtest import envelope
from pytest_loadtest.drivers import driver_class
from pytest_loadtest.drivers._base import Burst, ConsumerSpec, DriverContext, ProducerSpec, TargetAddress, TopicSpec
from pytest_loadtest.drivers._mqtt_clients import CHUNK, UNSENT, MqttConsumer, MqttProducer
from pytest_loadtest.drivers._mqtt_setup import find_endpoint, is_shared, topic_filter
from pytest_loadtest.drivers._mqtt_socket import Endpoint, PacketSocket
from pytest_loadtest.drivers.mqtt import MqttDriver
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.payloads import PayloadPool, build_pool
from pytest_loadtest.profile.settings import MqttSettings
from pytest_loadtest.samples import Flag, Status
from pytest_loadtest.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPIC = TopicSpec(index=0)


def pool(size: int = 64, checksum: bool = False) -> PayloadPool:
    return build_pool(
        buckets=None, message_size=size, randomized=True, random_ratio=1.0, file_content=None, seed=1, checksum=checksum, max_size=None
    )


def context(url: str = "mqtt://127.0.0.1:1", clock: Callable[[], int] | None = None, **given: Any) -> DriverContext:
    ordered, partitions = given.pop("ordered", True), given.pop("partitions", 1)
    payloads = pool(checksum=given.pop("checksum", False))
    return DriverContext(
        target=TargetAddress(url=url), settings=MqttSettings.model_validate(given), clock=clock or FakeClock(1000), run="r1", nonce=7,
        worker="gw0", topics=(TopicSpec(index=0, partitions=partitions),), pool=payloads, checksum=payloads.checksum, ordered=ordered,
    )  # fmt: skip


def burst(count: int) -> Burst:
    seq = np.arange(count, dtype=np.int64)
    return Burst(seq=seq, intended=seq + 5, payload=np.zeros(count, np.uint16), sent=np.zeros(count, np.int64))


class TestSettings:
    def test_the_driver_is_found_by_name(self) -> None:
        """``driver: {name: mqtt}`` is this class."""
        assert driver_class("mqtt").__name__ == MqttDriver.__name__

    def test_facts_name_every_setting_and_no_password(self) -> None:
        """Facts need no connection, say what is applied, and keep the password to themselves."""
        facts = MqttDriver(context(sessionExpiry="1h", receiveMaximum=9, username="anna", password="secret")).facts()
        assert facts.client == "paho-mqtt"
        assert facts.applied["sessionExpiry"] == "60.0 min"
        assert facts.applied["receiveMaximum"] == "9"
        assert facts.applied["maxInflightMessages"] == "20"
        assert facts.applied["username"] == "anna"
        assert facts.not_applied == {}
        assert "secret" not in str(facts)

    def test_what_3_1_1_lacks_is_not_applied(self) -> None:
        """Settings of MQTT 5 only are listed with a reason under 3.1.1, as partitions are everywhere."""
        facts = MqttDriver(context(protocolVersion="3.1.1", sessionExpiry="1h", receiveMaximum=9, partitions=4)).facts()
        assert set(facts.not_applied) == {"sessionExpiry", "receiveMaximum", "partitionsPerTopic"}

    def test_strict_tuning_refuses_what_is_not_applied(self) -> None:
        """Under strictTuning such a setting is a usage error that names it."""
        with pytest.raises(UsageError, match=r"receiveMaximum: MQTT 3\.1\.1 has no such thing"):
            MqttDriver(context(protocolVersion="3.1.1", receiveMaximum=9, strictTuning=True))

    @pytest.mark.parametrize(
        ("given", "ordered", "shared"),
        [({}, True, False), ({}, False, True), ({"sharedSubscription": True}, True, True), ({"sharedSubscription": False}, True, False)],
    )
    def test_consumers_share_as_the_profile_says(self, given: dict[str, Any], ordered: bool, shared: bool) -> None:
        """Left open, consumers share exactly when order is not judged, which is when there are several."""
        assert is_shared(context(ordered=ordered, **given)) is shared

    def test_consumers_that_do_not_share_must_be_alone(self) -> None:
        """Two consumers of one subscription without sharing are a usage error, before anything connects."""
        specs = [ConsumerSpec(index=i, topic=TOPIC, subscription=0) for i in range(2)]
        with pytest.raises(UsageError, match="sharedSubscription"):
            MqttDriver(context(sharedSubscription=False)).open_consumers(specs)

    def test_an_attached_consumer_must_be_alone_too(self) -> None:
        """With one that is there already, and before anything connects."""
        driver = MqttDriver(context(sharedSubscription=False))
        driver._taken[object()] = (0, 0)  # type: ignore[index]
        with pytest.raises(UsageError, match="sharedSubscription"):
            driver.attach([ConsumerSpec(index=1, topic=TOPIC, subscription=0)])

    def test_an_existing_topic_is_taken_as_it_is(self) -> None:
        """Its name is the filter; the group of a shared subscription is the run's own, as in a topic of ours the topic is."""
        theirs = ConsumerSpec(index=0, topic=TopicSpec(index=0, name="plant/1/t"), subscription=3)
        ours = ConsumerSpec(index=0, topic=TOPIC, subscription=3)
        found = [topic_filter(context(), spec, shared=shared) for spec in (theirs, ours) for shared in (False, True)]
        assert found == ["plant/1/t", "$share/r1-00000007-sub-3/plant/1/t", "loadtest/r1/0", "$share/sub-3/loadtest/r1/0"]
        facts = MqttDriver(replace(context(topicPrefix="x"), topics=(theirs.topic,))).facts()
        assert (facts.applied["topic"], facts.not_applied) == ("plant/1/t", {"topicPrefix": "the topic exists already"})

    def test_retain_is_refused_on_an_existing_topic(self) -> None:
        """It would replace what the topic keeps, and nothing could bring that back."""
        with pytest.raises(UsageError, match=r"retain: true would replace .*'plant/1/t' keeps: leave out retain, or topic"):
            MqttDriver(replace(context(retain=True), topics=(TopicSpec(index=0, name="plant/1/t"),)))

    def test_a_window_has_no_meaning_at_qos_0(self) -> None:
        """It is listed when asked for, and only then."""
        assert set(MqttDriver(context(qos=0, maxInflightMessages=9)).facts().not_applied) == {"maxInflightMessages"}
        assert MqttDriver(context(qos=0)).facts().not_applied == {}

    @pytest.mark.parametrize(
        ("url", "given", "named"),
        [
            ("pulsar://127.0.0.1:1", {}, "not the address of an MQTT broker"),
            ("mqtt://", {}, "not the address of an MQTT broker"),
            ("mqtt://anna:secret@127.0.0.1", {}, "driver.username"),
            ("mqtt://127.0.0.1", {"tls": {}}, "write mqtts://"),
            ("mqtts://127.0.0.1", {"tls": {"caFile": "/nowhere/ca.pem"}}, "driver.tls: No such file"),
        ],
    )
    def test_addresses_that_cannot_be(self, url: str, given: dict[str, Any], named: str) -> None:
        """A wrong address is a usage error that says what to write, and never repeats a password."""
        with pytest.raises(UsageError, match=named) as raised:
            find_endpoint(context(url, **given))
        assert "secret" not in str(raised.value)

    def test_an_insecure_client_skips_the_name_only(self) -> None:
        """``insecure`` leaves the certificate's chain checked."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            endpoint = find_endpoint(context(f"mqtts://127.0.0.1:{server.getsockname()[1]}", tls={"insecure": True}))
        assert endpoint.tls is not None
        assert (endpoint.tls.check_hostname, endpoint.tls.verify_mode) == (False, ssl.CERT_REQUIRED)


@pytest.fixture(scope="module")
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=8) as listening:
        yield listening


def connected(server: socket.socket) -> tuple[PacketSocket, socket.socket]:
    host, port = server.getsockname()
    sock = PacketSocket(Endpoint(host=host, port=port, family=socket.AF_INET, address=(host, port), tls=None))
    peer, _ = server.accept()
    peer.settimeout(10)
    ready(sock, select.EPOLLOUT)
    assert sock.advance() == 0
    return sock, peer


def ready(sock: PacketSocket, mask: int) -> None:
    with select.epoll() as epoll:
        epoll.register(sock.fileno(), mask)
        assert epoll.poll(10)


def received(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += peer.recv(count - len(data))
    return data


Packet = tuple[int, bytes]
PACKETS = st.lists(st.tuples(st.sampled_from([0x30, 0x31, 0x32, 0x3A, 0x34, 0x40, 0x62, 0xC0]), st.binary(max_size=300)), max_size=30)


class TestPackets:
    @given(packets=PACKETS, flushes=st.sets(st.integers(0, 29)))
    def test_bytes_pass_whole_and_qos_0_is_counted(self, server: socket.socket, packets: list[Packet], flushes: set[int]) -> None:
        """Whatever is gathered and whenever it is written, the peer gets the same bytes, and each QoS 0 PUBLISH counts once."""
        sock, peer = connected(server)
        try:
            written = 0
            for i, (first, rest) in enumerate(packets):
                sock.send(bytes([first]) + rest)
                written += sock.flush() if i in flushes else 0
            written += sock.flush()
            sent = b"".join(bytes([first]) + rest for first, rest in packets)
            assert received(peer, len(sent)) == sent
            assert written == sum(first in (0x30, 0x31) for first, _ in packets)
            assert sock.unsent == 0
        finally:
            sock.close()
            peer.close()

    @given(data=st.binary(min_size=1, max_size=2000), sizes=st.lists(st.integers(1, 700), min_size=1))
    def test_reads_come_from_the_buffer(self, server: socket.socket, data: bytes, sizes: list[int]) -> None:
        """However a reader cuts it, it reads what the peer sent, and then is told to wait."""
        sock, peer = connected(server)
        try:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            got, turn = b"", 0
            while len(got) < len(data):
                ready(sock, select.EPOLLIN)
                sock.fill()
                while sock.unread and len(got) < len(data):
                    got += sock.recv(sizes[turn % len(sizes)])
                    turn += 1
            assert got == data
        finally:
            sock.close()
            peer.close()

    def test_a_write_that_the_kernel_cuts_counts_when_it_is_whole(self, server: socket.socket) -> None:
        """A QoS 0 PUBLISH larger than the socket's buffers is written only once its last byte is."""
        sock, peer = connected(server)
        packet = b"\x30" + bytes(8_000_000)
        sock.send(packet)
        sock.send(b"\xc0\x00")
        assert sock.flush() == 0 and sock.unsent > 0
        left, written = len(packet) + 2, 0
        while left:
            left -= len(peer.recv(1 << 20))
            written += sock.flush()
        assert (written, sock.unsent) == (1, 0)
        sock.close()
        peer.close()

    def test_nothing_to_read_is_not_the_end(self, server: socket.socket) -> None:
        """Before bytes come, paho is told to wait; after the peer has closed, it is told so."""
        sock, peer = connected(server)
        sock.fill()
        assert not sock.unread
        with pytest.raises(BlockingIOError):
            sock.recv(1)
        peer.close()
        ready(sock, select.EPOLLIN)
        sock.fill()
        assert sock.unread and sock.recv(1) == b""
        sock.close()
        assert not sock.unread


@dataclass
class FakeLink:
    """Where a producer hands its messages, without a connection."""

    up: bool = True
    receive_maximum: int = 65_535
    unsent: int = 0
    grows: int = 0
    refuse: int | None = None
    published: list[bytes] = field(default_factory=list)
    client: Any = None
    on_written: Any = None
    on_lost: Any = None

    def __post_init__(self) -> None:
        self.client = SimpleNamespace(publish=self._publish)

    def _publish(self, topic: str, message: bytes, qos: int, retain: bool) -> SimpleNamespace:
        full = len(self.published) == self.refuse
        self.published.append(message)
        self.unsent += self.grows
        return SimpleNamespace(mid=len(self.published), rc=MQTTErrorCode.MQTT_ERR_QUEUE_SIZE if full else MQTTErrorCode.MQTT_ERR_SUCCESS)

    def flush(self) -> None:
        pass


class FakeLoop:
    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


OK, REFUSED = SimpleNamespace(value=0), SimpleNamespace(value=0x87)


def producer(link: FakeLink, clock: FakeClock, **given: Any) -> tuple[MqttProducer, FakeLoop]:
    loop = FakeLoop()
    return MqttProducer(context(clock=clock, **given), ProducerSpec(stream=3, topic=TOPIC), link, loop), loop  # type: ignore[arg-type]


class TestProducers:
    def test_the_window_is_the_smaller_of_both(self) -> None:
        """A producer takes what maxInflightMessages and the broker's Receive Maximum both allow, and stamps what it takes."""
        link, clock = FakeLink(receive_maximum=7), FakeClock(1000)
        made, _ = producer(link, clock, maxInflightMessages=20)
        sending = burst(30)
        assert (made.send(sending), made.send(burst(30)), made.in_flight) == (7, 0, 7)
        assert sending.sent.tolist() == [1000] * 7 + [0] * 23
        heads = np.frombuffer(b"".join(message[:32] for message in link.published), np.uint8).reshape(-1, 32)
        decoded = envelope.decode_heads(heads, np.full(7, 64, np.int32), 7)
        assert decoded.seq.tolist() == list(range(7)) and set(decoded.stream.tolist()) == {3}
        assert decoded.intended.tolist() == list(range(5, 12))

    def test_answers_carry_time_and_outcome(self) -> None:
        """Acknowledged and refused messages come back with their sequence and instant; the last one sets idle_since."""
        link, clock = FakeLink(), FakeClock(1000)
        made, loop = producer(link, clock)
        made.send(burst(2))
        clock.advance(10)
        link.client.on_publish(None, None, 2, REFUSED, None)
        clock.advance(10)
        link.client.on_publish(None, None, 1, OK, None)
        link.client.on_publish(None, None, 1, OK, None)
        acks = made.acks()
        assert acks is not None and made.acks() is None
        assert acks.seq.tolist() == [1, 0] and acks.time.tolist() == [1010, 1020]
        assert acks.status.tolist() == [Status.FAILED, Status.ACKED]
        assert (made.in_flight, made.idle_since, loop.woken) == (0, 1020, 0)

    def test_room_in_a_full_window_wakes_the_loop(self) -> None:
        """A producer that had to leave messages behind ends the driver's wait when an answer comes."""
        link, clock = FakeLink(), FakeClock(1000)
        made, loop = producer(link, clock, maxInflightMessages=1)
        assert made.send(burst(2)) == 1
        link.client.on_publish(None, None, 1, OK, None)
        assert loop.woken == 1

    def test_nothing_is_taken_while_the_connection_is_lost(self) -> None:
        """Without a connection the window is full."""
        made, _ = producer(FakeLink(up=False), FakeClock(1000))
        assert made.send(burst(2)) == 0

    def test_a_packet_id_in_use_ends_the_prefix(self) -> None:
        """When paho has no free packet id, what came before is taken and nothing behind it is sent."""
        link = FakeLink(refuse=2)
        made, _ = producer(link, FakeClock(1000))
        assert (made.send(burst(5)), made.in_flight, len(link.published)) == (2, 2, 3)

    def test_qos_0_waits_for_the_socket(self) -> None:
        """At QoS 0 messages are taken while the socket keeps up, acked as they are written, FAILED when the connection is lost first."""
        link, clock = FakeLink(grows=UNSENT // CHUNK + 1), FakeClock(1000)
        made, loop = producer(link, clock, qos=0)
        assert (made.send(burst(CHUNK + 1)), made.in_flight) == (CHUNK, CHUNK)
        link.on_written(CHUNK - 2)
        clock.advance(5)
        link.on_lost()
        acks = made.acks()
        assert acks is not None and acks.seq.tolist() == list(range(CHUNK))
        assert acks.status.tolist() == [Status.ACKED] * (CHUNK - 2) + [Status.FAILED] * 2
        assert (made.in_flight, made.idle_since, loop.woken) == (0, 1005, 2)


class TestConsumers:
    def test_columns(self) -> None:
        """Payloads become padded heads, sizes, instants and flags."""
        link, clock = SimpleNamespace(client=SimpleNamespace(), arrived=0), FakeClock(1000)
        consumer = MqttConsumer(context(clock=clock), link)  # type: ignore[arg-type]
        assert consumer.take() is None
        for payload, dup in ((b"short", False), (b"x" * 100, True), (b"", False)):
            link.client.on_message(None, None, SimpleNamespace(payload=payload, dup=dup))
            clock.advance(1)
        got = consumer.take()
        assert got is not None and consumer.take() is None
        assert [bytes(row) for row in got.heads] == [b"short".ljust(32, b"\0"), b"x" * 32, bytes(32)]
        assert (got.size.tolist(), got.time.tolist()) == ([5, 100, 0], [1000, 1001, 1002])
        assert (got.order.tolist(), got.flags.tolist()) == ([0, 0, 0], [0, Flag.REDELIVERED, 0])

    def test_a_damaged_body_is_flagged(self) -> None:
        """With a checksum, a body that does not fit it is CORRUPT; without one nobody looks."""
        body = pool(checksum=True).bodies[0]
        whole = bytes(32) + body
        damaged = whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]
        for checksum, expected in ((True, [0, Flag.CORRUPT]), (False, [0, 0])):
            link = SimpleNamespace(client=SimpleNamespace(), arrived=0)
            consumer = MqttConsumer(context(checksum=checksum), link)  # type: ignore[arg-type]
            for payload in (whole, damaged):
                link.client.on_message(None, None, SimpleNamespace(payload=payload, dup=False))
            got = consumer.take()
            assert got is not None and got.flags.tolist() == expected


@pytest.fixture
def scripted(server: socket.socket) -> Iterator[Callable[[list[bytes]], str]]:
    """A broker that gives one answer to each packet, then says nothing more; returns its address."""
    threads, peers = [], []

    def serve(answers: list[bytes]) -> None:
        peer, _ = server.accept()
        while peer.getpeername() and answers:
            if not peer.recv(4096):  # the driver looked whether anybody answers
                peer.close()
                peer, _ = server.accept()
                continue
            peer.sendall(answers.pop(0))
        peers.append(peer)

    def start(answers: list[bytes]) -> str:
        thread = threading.Thread(target=serve, args=(answers,), daemon=True)
        thread.start()
        threads.append(thread)
        return "mqtt://{}:{}".format(*server.getsockname())

    yield start
    for thread in threads:
        thread.join(10)
    for peer in peers:
        peer.close()


CONNACK = b"\x20\x03\x00\x00\x00"


class TestRefusals:
    @pytest.mark.parametrize(
        ("code", "named"), [(0x00, "asked for QoS 1: Granted QoS 0"), (0x87, "refused 'loadtest/r1/0': Not authorized")]
    )
    def test_a_subscription_is_granted_as_asked_or_not_at_all(self, scripted: Callable[[list[bytes]], str], code: int, named: str) -> None:
        """A broker that refuses the subscription, or lowers its QoS, ends the run before it starts."""
        url = scripted([CONNACK, b"\x90\x04\x00\x01\x00" + bytes([code])])
        driver = MqttDriver(context(url, time.monotonic_ns))
        with pytest.raises(TargetError, match=named):
            driver.open_consumers([ConsumerSpec(index=0, topic=TOPIC, subscription=0)])
        driver.close()

    def test_a_client_id_in_use_ends_the_run(self, scripted: Callable[[list[bytes]], str]) -> None:
        """Two clients with one id would throw each other out for ever: told so, the driver gives up and names the id."""
        url = scripted([CONNACK + b"\xe0\x02\x8e\x00"])
        driver = MqttDriver(context(url, time.monotonic_ns))
        end = time.monotonic_ns() + 10**10
        with pytest.raises(TargetError, match="'lt-r1-p0' is in use"):
            driver.open_producers([ProducerSpec(stream=0, topic=TOPIC)])
            while time.monotonic_ns() < end:
                driver.poll(1_000_000)
        driver.close()
