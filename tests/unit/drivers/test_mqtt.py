"""The parts of the MQTT drivers that need no broker: settings, packets on a socket, windows, columns; and brokers that misbehave."""

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
from hypothesis import assume, given
from hypothesis import strategies as st
from paho.mqtt.enums import MQTTErrorCode

from pytest_loadtest.drivers import driver_class
from pytest_loadtest.drivers.base import Acks, Burst, DriverContext, TargetAddress
from pytest_loadtest.drivers.columns import ArrivedMessages
from pytest_loadtest.drivers.mqtt.broker_socket import BrokerEndpoint, BrokerSocket, find_endpoints
from pytest_loadtest.drivers.mqtt.loop import Loop
from pytest_loadtest.drivers.mqtt.options import is_shared, topic_filter
from pytest_loadtest.drivers.mqtt.paho.client import PacketSocket
from pytest_loadtest.drivers.mqtt.paho.driver import MqttConsumer, MqttDriver
from pytest_loadtest.drivers.mqtt.paho.producers import CHUNK, UNSENT, MqttProducers
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.drivers.mqtt.tls import ALERT
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.message import envelope
from pytest_loadtest.message.payloads import PayloadPool, build_pool
from pytest_loadtest.message.samples import Flag, Status
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.testing import FakeClock
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ONE = Topology(topics=1, partitions=1, producers=1, subscriptions=1, consumers=1)
FIRST_ROW = 2**33


def pool(size: int = 64, checksum: bool = False) -> PayloadPool:
    return build_pool(
        buckets=None, message_size=size, randomized=True, random_ratio=1.0, file_content=None, seed=1, checksum=checksum, max_size=None
    )


def context(url: str = "mqtt://127.0.0.1:1", clock: Callable[[], int] | None = None, **given: Any) -> DriverContext:
    ordered, topology = given.pop("ordered", True), given.pop("topology", ONE)
    payloads = pool(checksum=given.pop("checksum", False))
    return DriverContext(
        target=TargetAddress(url=url), settings=MqttSettings.model_validate(given), clock=clock or FakeClock(1000), run="r1", nonce=7,
        worker="gw0", topology=topology, pool=payloads, checksum=payloads.checksum, ordered=ordered,
    )  # fmt: skip


def burst(streams: int | list[int], first: int = 0) -> Burst:
    """Messages of these streams in this order, or so many of stream 3; their rows are numbered from 2**33 on."""
    stream = np.array([3] * streams if isinstance(streams, int) else streams, np.int32)
    count = len(stream)
    seq = np.array([first + np.count_nonzero(stream[:i] == stream[i]) for i in range(count)], np.int64)
    row = FIRST_ROW + first + np.arange(count, dtype=np.int64)
    sent, idle = np.zeros((2, count), np.int64)
    return Burst(row=row, stream=stream, seq=seq, intended=seq + 5, payload=np.zeros(count, np.uint16), sent=sent, idle=idle)


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
        facts = MqttDriver(
            context(protocolVersion="3.1.1", sessionExpiry="1h", receiveMaximum=9, topology=replace(ONE, partitions=4))
        ).facts()
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
        with pytest.raises(UsageError, match="sharedSubscription"):
            MqttDriver(context(sharedSubscription=False, topology=replace(ONE, consumers=2))).open_consumers([0, 1])

    def test_an_attached_consumer_must_be_alone_too(self) -> None:
        """With one that is there already, and before anything connects."""
        ctx = context(sharedSubscription=False, topology=replace(ONE, consumers=2))
        driver = MqttDriver(ctx)
        driver._consumers[0] = 0, FakeConnection()  # type: ignore[assignment]
        with pytest.raises(UsageError, match="sharedSubscription"):
            driver.attach([1])

    def test_an_existing_topic_is_taken_as_it_is(self) -> None:
        """Its name is the filter; the group of a shared subscription is the run's own, as in a topic of ours the topic is."""
        ours = replace(ONE, subscriptions=4)
        theirs = replace(ours, name="plant/1/t")
        found = [topic_filter(context(topology=topology), 3, shared=shared) for topology in (theirs, ours) for shared in (False, True)]
        assert found == ["plant/1/t", "$share/r1-00000007-sub-3/plant/1/t", "loadtest/r1/0", "$share/sub-3/loadtest/r1/0"]
        facts = MqttDriver(context(topicPrefix="x", topology=theirs)).facts()
        assert (facts.applied["topic"], facts.not_applied) == ("plant/1/t", {"topicPrefix": "the topic exists already"})

    def test_retain_is_refused_on_an_existing_topic(self) -> None:
        """It would replace what the topic keeps, and nothing could bring that back."""
        with pytest.raises(UsageError, match=r"retain: true would replace .*'plant/1/t' keeps: leave out retain, or topic"):
            MqttDriver(context(retain=True, topology=replace(ONE, name="plant/1/t")))

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
            ("mqtts://127.0.0.1", {"tls": {"caFile": "/nowhere/ca.pem"}}, "driver.tls.caFile /nowhere/ca.pem: No such file"),
        ],
    )
    def test_addresses_that_cannot_be(self, url: str, given: dict[str, Any], named: str) -> None:
        """A wrong address is a usage error that says what to write, and never repeats a password."""
        with pytest.raises(UsageError, match=named) as raised:
            find_endpoints(context(url, **given))
        assert "secret" not in str(raised.value)

    def test_an_insecure_client_skips_the_name_only(self) -> None:
        """``insecure`` leaves the certificate's chain checked."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            endpoints = find_endpoints(context(f"mqtts://127.0.0.1:{server.getsockname()[1]}", tls={"insecure": True}))
        assert endpoints.producers == endpoints.consumers
        assert endpoints.producers.tls is not None
        made = endpoints.producers.tls.context
        assert (made.check_hostname, made.verify_mode) == (False, ssl.CERT_REQUIRED)


@pytest.fixture(scope="module")
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=8) as listening:
        yield listening


def connected(server: socket.socket) -> tuple[PacketSocket, socket.socket]:
    host, port = server.getsockname()
    sock = PacketSocket(BrokerEndpoint(host=host, port=port, family=socket.AF_INET, address=(host, port), tls=None))
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
        assume(not data.startswith(ALERT))  # which is no MQTT, and ends the connection
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

    def test_connections_to_this_machine_go_out_from_many_addresses(self, server: socket.socket) -> None:
        """Ten thousand from each, so that ports do not run out; to another machine the system chooses."""
        here = BrokerEndpoint(host="localhost", port=1, family=socket.AF_INET, address=server.getsockname(), tls=None)
        assert [here.source(number) for number in (0, 9_999, 10_000, 2_560_000)] == ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.1.1"]
        assert [here.source(number, 3) for number in (0, 10_000)] == ["127.0.3.1", "127.0.3.2"], "workers do not share their ports"
        assert replace(here, address=("10.0.0.1", 1883)).source(20_000) is None
        assert replace(here, family=socket.AF_INET6, address=("::1", 1883, 0, 0)).source(20_000) is None
        sock = BrokerSocket(here, here.source(10_000))
        peer, (address, _) = server.accept()
        assert address == "127.0.0.2"
        peer.close()
        sock.close()

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


@dataclass(eq=False)
class Looked:
    """What the loop holds of a connection; counts how often it is looked at."""

    socket: PacketSocket | None
    looks: int = 0

    def keep_alive(self) -> None:
        self.looks += 1


class TestLoop:
    def test_each_connection_is_looked_at_within_its_keep_alive(self, server: socket.socket) -> None:
        """Sixteen times, each at its own instants; one that has ended no more, and one that was dialled again under its new socket only."""
        clock, pairs = FakeClock(0), [connected(server) for _ in range(3)]
        loop = Loop(clock, 16 * SECOND)
        first, second = Looked(pairs[0][0]), Looked(pairs[1][0])
        loop.watch(first, pairs[0][0], select.EPOLLIN)  # type: ignore[arg-type]
        clock.advance(SECOND // 2)
        loop.watch(second, pairs[1][0], select.EPOLLIN)  # type: ignore[arg-type]
        looks = []
        for _ in range(32):
            clock.advance(SECOND // 2)
            loop.poll(0)
            looks.append((first.looks, second.looks))
        assert looks == [((i + 1) // 2, i // 2) for i in range(1, 33)]
        first.socket, second.socket = None, pairs[2][0]
        loop.watch(second, pairs[2][0], select.EPOLLIN)  # type: ignore[arg-type]
        for _ in range(16):
            clock.advance(SECOND)
            loop.poll(0)
        assert (first.looks, second.looks) == (16, 32)
        loop.close()
        for sock, peer in pairs:
            sock.close()
            peer.close()


@dataclass
class FakeConnection:
    """Where a producer hands its messages, without a connection. A flush after ``lost_at`` messages finds it lost."""

    up: bool = True
    receive_maximum: int = 65_535
    unsent: int = 0
    grows: int = 0
    refuse: int | None = None
    lost_at: int | None = None
    arrived: int = 0
    woken: int = 0
    published: list[bytes] = field(default_factory=list)
    flushes: list[int] = field(default_factory=list)
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
        self.flushes.append(len(self.published))
        if self.lost_at is not None and len(self.published) >= self.lost_at:
            self.up = False

    def wake(self) -> None:
        self.woken += 1


OK, REFUSED = SimpleNamespace(value=0), SimpleNamespace(value=0x87)


def producers(clock: FakeClock, *connections: FakeConnection, **given: Any) -> MqttProducers:
    """Streams 3, 4, … over these connections."""
    made = MqttProducers(context(clock=clock, **given))
    for stream, connection in enumerate(connections, 3):
        made.add(stream, connection)  # type: ignore[arg-type]
    return made


def taken(made: MqttProducers, sending: Burst) -> int:
    """How many of the messages were taken; those that were not are told as they should be."""
    refused = made.send(sending)
    if refused is None:
        return len(sending)
    assert refused.dtype == np.int64 and np.all(np.diff(refused) > 0)
    assert np.flatnonzero(sending.sent == 0).tolist() == refused.tolist()
    return len(sending) - len(refused)


def answers(made: MqttProducers) -> Acks:
    acks = made.acks()
    assert acks is not None and made.acks() is None
    return acks


class TestProducers:
    def test_the_window_is_the_smaller_of_both(self) -> None:
        """A producer takes what maxInflightMessages and the broker's Receive Maximum both allow, and stamps what it takes."""
        connection, clock = FakeConnection(receive_maximum=7), FakeClock(1000)
        made = producers(clock, connection, maxInflightMessages=20)
        sending = burst(30)
        assert (taken(made, sending), taken(made, burst(30, first=7)), len(connection.published)) == (7, 0, 7)
        assert sending.sent.tolist() == [1000] * 7 + [0] * 23
        heads = np.frombuffer(b"".join(message[:32] for message in connection.published), np.uint8).reshape(-1, 32)
        decoded = envelope.decode_heads(heads, np.full(7, 64, np.int32), 7)
        assert decoded.seq.tolist() == list(range(7)) and set(decoded.stream.tolist()) == {3}
        assert decoded.intended.tolist() == list(range(5, 12))

    def test_answers_carry_time_and_outcome(self) -> None:
        """Acknowledged and refused messages come back with their row and instant; the last one is told as idle to the next message."""
        connection, clock = FakeConnection(), FakeClock(1000)
        made = producers(clock, connection)
        first = burst(2)
        assert taken(made, first) == 2
        assert first.idle.tolist() == [0, 0], "nothing was ever answered"
        clock.advance(10)
        connection.client.on_publish(None, None, 2, REFUSED, None)
        more = burst(1, first=2)
        assert (taken(made, more), more.idle.tolist()) == (1, [0]), "one was in flight"
        clock.advance(10)
        for mid in (1, 1, 3):
            connection.client.on_publish(None, None, mid, OK, None)
        acks = answers(made)
        assert acks.row.tolist() == [FIRST_ROW + 1, FIRST_ROW, FIRST_ROW + 2] and acks.time.tolist() == [1010, 1020, 1020]
        assert acks.status.tolist() == [Status.FAILED, Status.ACKED, Status.ACKED]
        assert acks.resends is None
        clock.advance(10)
        later = burst(2, first=3)
        assert (taken(made, later), later.idle.tolist(), connection.woken) == (2, [1020, 0], 0)

    def test_a_stream_that_is_full_holds_up_no_other(self) -> None:
        """Of each stream all from some message on are refused; answers of all streams come in one set of columns."""
        connections, clock = [FakeConnection() for _ in range(3)], FakeClock(1000)
        connections[1].up = False
        made = producers(clock, *connections, maxInflightMessages=2)
        sending = burst([3, 4, 3, 5, 3, 4, 5, 5])
        refused = made.send(sending)
        assert refused is not None and refused.tolist() == [1, 4, 5, 7]
        assert sending.sent.tolist() == [1000, 0, 1000, 1000, 0, 0, 1000, 0]
        clock.advance(1)
        connections[2].client.on_publish(None, None, 2, OK, None)
        connections[0].client.on_publish(None, None, 1, OK, None)
        acks = answers(made)
        assert (acks.row - FIRST_ROW).tolist() == [6, 0] and acks.time.tolist() == [1001, 1001]
        assert [connection.woken for connection in connections] == [1, 0, 1]

    def test_each_stream_is_written_once_in_a_chunk(self) -> None:
        """As soon as its last message of a chunk is published, and no later than 64 messages after the first."""
        connections, clock = [FakeConnection(), FakeConnection()], FakeClock(1000)
        made = producers(clock, *connections, maxInflightMessages=1000)
        assert taken(made, burst([3, 4, 3] + [4] * 97)) == 100
        assert [connection.flushes for connection in connections] == [[2], [62, 98]]

    def test_room_in_a_full_window_wakes_the_loop(self) -> None:
        """A producer that had to leave messages behind ends the driver's wait when an answer comes."""
        connection, clock = FakeConnection(), FakeClock(1000)
        made = producers(clock, connection, maxInflightMessages=1)
        assert taken(made, burst(2)) == 1
        connection.client.on_publish(None, None, 1, OK, None)
        assert connection.woken == 1

    def test_nothing_is_taken_while_the_connection_is_lost(self) -> None:
        """Without a connection the window is full."""
        made = producers(FakeClock(1000), FakeConnection(up=False))
        assert taken(made, burst(2)) == 0

    def test_nothing_is_taken_once_the_connection_is_lost(self) -> None:
        """A write may find the connection lost in the midst of a burst: what follows it is refused, and not published."""
        connection = FakeConnection(lost_at=CHUNK)
        made = producers(FakeClock(1000), connection, maxInflightMessages=1000)
        assert (taken(made, burst(CHUNK + 5)), len(connection.published)) == (CHUNK, CHUNK)

    def test_a_packet_id_in_use_ends_the_prefix(self) -> None:
        """When paho has no free packet id, what came before is taken and nothing behind it is sent."""
        connection = FakeConnection(refuse=2)
        made = producers(FakeClock(1000), connection)
        assert (taken(made, burst(5)), len(connection.published)) == (2, 3)

    def test_qos_0_waits_for_the_socket(self) -> None:
        """At QoS 0 messages are taken while the socket keeps up, acked as they are written, FAILED when the connection is lost first."""
        connection, clock = FakeConnection(grows=UNSENT // CHUNK + 1), FakeClock(1000)
        made = producers(clock, connection, qos=0)
        assert (taken(made, burst(CHUNK + 1)), len(connection.published)) == (CHUNK, CHUNK)
        connection.on_written(CHUNK - 2)
        clock.advance(5)
        connection.on_lost()
        acks = answers(made)
        assert (acks.row - FIRST_ROW).tolist() == list(range(CHUNK))
        assert acks.status.tolist() == [Status.ACKED] * (CHUNK - 2) + [Status.FAILED] * 2
        assert connection.woken == 2
        connection.unsent, again = 0, burst(1, first=CHUNK)
        assert (taken(made, again), again.idle.tolist()) == (1, [1005])

    def test_resends_are_counted_by_message(self) -> None:
        """As often as paho says, 255 at most; a packet id that is used again begins anew."""
        connection, clock = FakeConnection(), FakeClock(1000)
        made = producers(clock, connection)
        assert taken(made, burst(3)) == 3
        for mid in [1] * 300 + [3] * 2:
            connection.client.on_resend(mid)
        for mid in (2, 3, 1):
            connection.client.on_publish(None, None, mid, OK, None)
        acks = answers(made)
        assert acks.resends is not None and acks.resends.dtype == np.uint8
        assert dict(zip((acks.row - FIRST_ROW).tolist(), acks.resends.tolist(), strict=True)) == {0: 255, 1: 0, 2: 2}
        connection.published.clear()  # the next packet id is 1 again
        assert taken(made, burst(1, first=3)) == 1
        connection.client.on_publish(None, None, 1, OK, None)
        assert answers(made).resends is None


class TestConsumers:
    def test_columns(self) -> None:
        """Payloads become padded heads, sizes, instants and flags."""
        connection, clock, arrivals = FakeConnection(), FakeClock(1000), ArrivedMessages()
        MqttConsumer(connection, clock).settle(4, arrivals)  # type: ignore[arg-type]
        assert arrivals.take() is None
        for payload, dup in ((b"short", False), (b"x" * 100, True), (b"", False)):
            connection.client.on_message(None, None, SimpleNamespace(payload=payload, dup=dup))
            clock.advance(1)
        got = arrivals.take()
        assert got is not None and arrivals.take() is None
        assert [bytes(row) for row in got.heads] == [b"short".ljust(32, b"\0"), b"x" * 32, bytes(32)]
        assert (got.size.tolist(), got.time.tolist()) == ([5, 100, 0], [1000, 1001, 1002])
        assert (got.order.tolist(), got.flags.tolist()) == ([0, 0, 0], [0, Flag.REDELIVERED, 0])
        assert (got.consumer.tolist(), connection.arrived) == ([4, 4, 4], 3)

    def test_what_comes_before_the_place_waits_for_it(self) -> None:
        """Of two consumers, what the second one got before the engine knew its place comes afterwards, whole and with its own instant."""
        connections, clock, arrivals = [FakeConnection(), FakeConnection()], FakeClock(1000), ArrivedMessages()
        first, second = (MqttConsumer(connection, clock) for connection in connections)  # type: ignore[arg-type]
        first.settle(0, arrivals)
        for connection, payload in ((connections[1], b"early"), (connections[0], b"one")):
            connection.client.on_message(None, None, SimpleNamespace(payload=payload, dup=payload == b"early"))
            clock.advance(1)
        got = arrivals.take()
        assert got is not None and (got.consumer.tolist(), got.size.tolist()) == ([0], [3])
        second.settle(1, arrivals)
        connections[1].client.on_message(None, None, SimpleNamespace(payload=b"late", dup=False))
        got = arrivals.take()
        assert got is not None and (got.consumer.tolist(), got.size.tolist(), got.time.tolist()) == ([1, 1], [5, 4], [1000, 1002])
        assert got.flags.tolist() == [Flag.REDELIVERED, 0]

    def test_a_damaged_body_is_flagged(self) -> None:
        """With a checksum, a body that does not fit it is CORRUPT; without one nobody looks."""
        body = pool(checksum=True).bodies[0]
        whole = bytes(32) + body
        damaged = whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]
        for checksum, expected in ((True, [0, Flag.CORRUPT]), (False, [0, 0])):
            connection, arrivals = FakeConnection(), ArrivedMessages(checksum=checksum)
            MqttConsumer(connection, FakeClock(1000)).settle(0, arrivals)  # type: ignore[arg-type]
            for payload in (whole, damaged):
                connection.client.on_message(None, None, SimpleNamespace(payload=payload, dup=False))
            got = arrivals.take()
            assert got is not None and got.flags.tolist() == expected


Script = list[bytes | None]


@pytest.fixture
def scripted(server: socket.socket) -> Iterator[Callable[[Script], str]]:
    """A broker that gives one answer to each packet, then says nothing more; None hangs up. Returns its address."""
    threads, peers = [], []

    def serve(answers: Script) -> None:
        peer, _ = server.accept()
        while answers:
            came = peer.recv(4096)
            answer = answers.pop(0) if came else None  # nothing came: the driver looked whether anybody answers
            if answer is None:
                peer.close()
                peer, _ = server.accept()
            else:
                peer.sendall(answer)
        peers.append(peer)

    def start(answers: Script) -> str:
        thread = threading.Thread(target=serve, args=(answers,), daemon=True)
        thread.start()
        threads.append(thread)
        return "mqtt://{}:{}".format(*server.getsockname())

    yield start
    for thread in threads:
        thread.join(10)
    for peer in peers:
        peer.close()


both = pytest.mark.parametrize("client", ["library", "native"])
CONNACK = b"\x20\x03\x00\x00\x00"
PUBACKS = b"\x40\x02\x00\x01\x40\x02\x00\x02"


class TestReconnects:
    @both
    def test_what_is_sent_again_is_counted(self, scripted: Callable[[Script], str], client: str) -> None:
        """A broker that hangs up twice before it answers: both messages were sent again twice, the one after them never."""
        url = scripted([CONNACK, None, CONNACK, None, CONNACK, PUBACKS, b"\x40\x02\x00\x03"])
        driver: Any = driver_class("mqtt", client)(context(url, time.monotonic_ns))  # type: ignore[call-arg]
        driver.open_producers(range(1))
        found: list[Acks] = []

        def answered(count: int) -> None:
            end = time.monotonic_ns() + 30 * 10**9
            while sum(len(acks.row) for acks in found) < count:
                assert time.monotonic_ns() < end, f"not answered in time; disconnected: {driver.disconnected()}"
                driver.poll(1_000_000)
                found.extend(acks for acks in [driver.acks()] if acks is not None)

        assert driver.send(burst([0, 0])) is None
        answered(2)
        assert driver.send(burst([0], first=2)) is None
        answered(3)
        driver.close()
        assert np.concatenate([acks.row for acks in found]).tolist() == [FIRST_ROW, FIRST_ROW + 1, FIRST_ROW + 2]
        resends = [np.zeros(len(acks.row), np.uint8) if acks.resends is None else acks.resends for acks in found]
        assert np.concatenate(resends).tolist() == [2, 2, 0]
        assert driver.facts().applied["connectionsLost"] == "2 in mid-run, dialled again"

    def test_what_came_before_the_subscription_was_confirmed_is_known_when_it_comes_again(self, scripted: Callable[[Script], str]) -> None:
        """A broker may deliver before its SUBACK (MQTT 5, 3.8.4): at QoS 2 the same packet after a reconnect is no second copy."""
        message = b"\x00\x0eloadtest/r1/0x\x00%c\x00" + bytes(32)
        first, again, last = b"\x34\x33" + message % 5, b"\x3c\x33" + message % 5, b"\x34\x33" + message % 6
        url = scripted([CONNACK, first + b"\x90\x04\x00\x01\x00\x02", None, b"\x20\x03\x01\x00\x00" + again, last])
        driver: Any = driver_class("mqtt", "native")(context(url, time.monotonic_ns, qos=2, sessionExpiry="60s"))  # type: ignore[call-arg]
        driver.open_consumers([0])
        flags: list[int] = []
        end = time.monotonic_ns() + 20 * 10**9
        while len(flags) < 2:
            assert time.monotonic_ns() < end, f"not in time; disconnected: {driver.disconnected()}"
            driver.poll(1_000_000)
            flags += [flag for received in [driver.take()] if received is not None for flag in received.flags.tolist()]
        assert flags == [0, 0]
        driver.close()


class TestRefusals:
    @both
    @pytest.mark.parametrize(
        ("code", "named"), [(0x00, "asked for QoS 1: Granted QoS 0"), (0x87, "refused 'loadtest/r1/0': Not authorized")]
    )
    def test_a_subscription_is_granted_as_asked_or_not_at_all(
        self, scripted: Callable[[Script], str], code: int, named: str, client: str
    ) -> None:
        """A broker that refuses the subscription, or lowers its QoS, ends the run before it starts."""
        url = scripted([CONNACK, b"\x90\x04\x00\x01\x00" + bytes([code])])
        driver: Any = driver_class("mqtt", client)(context(url, time.monotonic_ns))  # type: ignore[call-arg]
        with pytest.raises(TargetError, match=named):
            driver.open_consumers([0])
        driver.close()

    @both
    @pytest.mark.parametrize("hangs_up", [None, b"\xe0\x02\x83\x00"], ids=["silently", "with a reason"])
    def test_a_subscription_is_asked_for_again(self, scripted: Callable[[Script], str], hangs_up: bytes | None, client: str) -> None:
        """A broker that lets a client in and hangs up on its first two subscriptions, as Artemis may: the third is granted, and facts tell.

        At a rate it is one connection all the same: two more welcomes would stand for others that did not come up in time.
        """
        url = scripted([CONNACK, hangs_up, CONNACK, hangs_up, CONNACK, b"\x90\x04\x00\x01\x00\x01"])
        driver: Any = driver_class("mqtt", client)(context(url, time.monotonic_ns))  # type: ignore[call-arg]
        driver.pace(np.array([time.monotonic_ns()]), lambda: None)
        assert driver.open_consumers([0]).tolist() == [0]
        assert {name: len(times) for name, times in driver.opening_times().items()} == dict.fromkeys(
            ("connect", "subscribe", "dial", "up"), 1
        )
        driver.close()
        assert driver.facts().applied["subscriptionsRepeated"] == "2, on which the broker had hung up"
        assert "connectionsLost" not in driver.facts().applied

    @both
    def test_a_subscription_that_is_never_answered(self, scripted: Callable[[Script], str], client: str) -> None:
        """The third time is the last, and the broker's own word for it is told."""
        url = scripted([CONNACK, None, CONNACK, None, CONNACK, b"\xe0\x02\x83\x00"])
        driver: Any = driver_class("mqtt", client)(context(url, time.monotonic_ns))  # type: ignore[call-arg]
        with pytest.raises(TargetError, match="consumer 0: the broker closed the connection: Implementation specific error"):
            driver.open_consumers([0])
        driver.close()

    @both
    def test_a_client_id_in_use_ends_the_run(self, scripted: Callable[[Script], str], client: str) -> None:
        """Two clients with one id would throw each other out for ever: told so, the driver gives up and names the id."""
        url = scripted([CONNACK + b"\xe0\x02\x8e\x00"])
        driver: Any = driver_class("mqtt", client)(context(url, time.monotonic_ns))  # type: ignore[call-arg]
        end = time.monotonic_ns() + 10**10
        with pytest.raises(TargetError, match="'lt-r1-p0' is in use"):
            driver.open_producers([0])
            while time.monotonic_ns() < end:
                driver.poll(1_000_000)
        driver.close()

    @pytest.mark.parametrize(
        ("said", "named"),
        [
            (b"\x30\x02\xff\xff", "a packet that is shorter than its fields"),
            (b"\x30\xff\xff\xff\xff\x7f", "a length of more than four bytes"),
            (b"\x10\x02\x00\x00", "the broker sent what only clients send: CONNECT"),
            (b"\xe0\x02\x89\x00", "the broker closed the connection: Server busy"),
            (b"\x82\x06\x00\x01\x00\x00\x00\x00", "the broker sent what only clients send: SUBSCRIBE"),
        ],
        ids=["cut", "length", "protocol", "busy", "client"],
    )
    def test_a_broker_that_speaks_something_else_is_named(self, scripted: Callable[[Script], str], said: bytes, named: str) -> None:
        """With what was wrong in words."""
        url = scripted([said])
        driver: Any = driver_class("mqtt", "native")(context(url, time.monotonic_ns))  # type: ignore[call-arg]
        with pytest.raises(TargetError, match=f"producer of stream 0: .*{named}"):
            driver.open_producers([0])
        driver.close()

    @both
    @pytest.mark.parametrize(
        ("scheme", "said", "named"),
        [
            ("mqtt", b"\x15\x03\x01\x00\x02\x02\x46", "the port speaks TLS: write mqtts:// in place of mqtt://"),
            ("mqtts", CONNACK, "no TLS is spoken there: write mqtt:// in place of mqtts://"),
        ],
        ids=["an alert", "no TLS"],
    )
    def test_the_other_kind_of_port_is_named(
        self, scripted: Callable[[Script], str], client: str, scheme: str, said: bytes, named: str
    ) -> None:
        """TLS and plain MQTT do not understand each other; the beginning of an answer tells which of them it is."""
        url = scripted([said]).replace("mqtt", scheme)
        driver: Any = driver_class("mqtt", client)(context(url, time.monotonic_ns))  # type: ignore[call-arg]
        with pytest.raises(TargetError) as raised:
            driver.open_producers([0])
        driver.close()
        assert str(raised.value) == f"{url}: producer of stream 0: {named}"
