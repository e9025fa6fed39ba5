"""Messages received through pulsar-client, while consumers pause, come and go."""

from __future__ import annotations

import threading
import time
from collections import deque
from queue import Empty, Queue
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import _pulsar
import numpy as np
import pulsar
import pytest
from pulsar_library_rig import NullConsumer, context, message_of, pool_of

from pytest_loadtest.drivers.pulsar.library.consumers import (
    PulsarConsumer,
    PulsarConsumers,
    key_of,
    received_columns,
    topic_order,
)
from pytest_loadtest.drivers.pulsar.names import OUTPUT_BITS
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message import payloads
from pytest_loadtest.message.route import PROPERTY, Carrier, Route, parse_place
from pytest_loadtest.message.samples import Flag
from pytest_loadtest.message.token import encode_tokens
from pytest_loadtest.testing.rig import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence


def received_by(consumer: PulsarConsumer, carrier: Carrier = Carrier.BODY) -> Any:
    """Receive until the client is closed."""
    copies: deque[Any] = deque()
    consumer.run(4, copies)
    return received_columns(copies, carrier)


def test_messages_become_columns_and_are_acknowledged() -> None:
    """Place, heads padded to 32 bytes, real size, time, flags; a timeout in between does not matter."""
    client, clock, gone = (
        NullConsumer(message_of(b"\x01" * 40), None, message_of(b"\x02" * 5)),
        FakeClock(9),
        [],
    )
    got = received_by(PulsarConsumer(client, "consumer 0", context(clock=clock), None, gone.append))
    assert [bytes(row) for row in got.heads] == [b"\x01" * 32, b"\x02" * 5 + b"\0" * 27]
    assert [got.bodies(row) for row in range(2)] == [b"\x01" * 40, b"\x02" * 5]
    assert [got.size.tolist(), got.time.tolist(), got.order.tolist(), got.flags.tolist()] == [
        [40, 5],
        [9, 9],
        [0, 0],
        [0, 0],
    ]
    assert [c.dtype for c in (got.heads, got.size, got.time, got.order, got.flags)] == [
        np.uint8,
        np.int32,
        np.int64,
        np.int64,
        np.int8,
    ]
    assert (got.consumer.tolist(), got.consumer.dtype) == ([4, 4], np.int32)
    assert len(client.acknowledged) == 2


def test_a_damaged_body_is_flagged_only_with_checksums() -> None:
    """One bit after the head is changed."""
    pool = pool_of(64, checksum=True)
    whole = payloads.whole_payloads(pool, np.zeros((1, 32), np.uint8), np.zeros(1, np.uint16))[0]
    damaged = whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]
    for checksum, expected in ((True, [0, Flag.CORRUPT]), (False, [0, 0])):
        client = NullConsumer(message_of(whole), message_of(damaged))
        got = received_by(PulsarConsumer(client, "c", context(checksum=checksum), None, [].append))
        assert got.flags.tolist() == expected


def test_the_token_of_a_message_is_its_envelope() -> None:
    head = bytes(range(32))
    (token,) = encode_tokens(np.frombuffer(head, np.uint8).reshape(1, 32))
    route = Route(input="in", output=("out",), received=parse_place("json:/ref"))
    client = NullConsumer(message_of(b'{"ref":"%b"}' % token), message_of(b"no token"))
    consumer = PulsarConsumer(client, "c", context(route=route), None, [].append)
    got = received_by(consumer, Carrier.JSON)
    assert [bytes(row) for row in got.heads] == [head, bytes(32)]


def test_a_property_of_a_message_is_its_envelope() -> None:
    head = bytes(range(32))
    (token,) = encode_tokens(np.frombuffer(head, np.uint8).reshape(1, 32))
    route = Route(input="in", output=("out",), received=parse_place("properties"))
    ours = _pulsar.MessageBuilder().content(b"").property(PROPERTY, token.decode()).build()
    client = NullConsumer(ours, message_of(token))
    consumer = PulsarConsumer(client, "c", context(route=route), None, [].append)
    got = received_by(consumer, Carrier.PROPERTIES)
    assert [bytes(row) for row in got.heads] == [head, bytes(32)]
    assert got.size.tolist() == [0, 48]


def test_a_key_becomes_its_number_or_a_hash() -> None:
    """Our keys contain a number; other keys have a hash of 31 bits, always the same."""
    assert key_of(message_of(b"", "key-0")) == 0
    assert key_of(message_of(b"", "key-9999")) == 9999
    assert 0 <= key_of(message_of(b"", "other")) == key_of(message_of(b"", "other")) < 2**31
    assert 0 <= key_of(message_of(b"", "")) < 2**31


def test_a_consumer_that_was_closed_is_reported_unless_the_driver_closes_it() -> None:
    for closing, expected in ((False, 1), (True, 0)):
        gone: list[str] = []
        consumer = PulsarConsumer(NullConsumer(), "consumer 4", context(), None, gone.append)
        if closing:
            consumer.expect_close()
        consumer.run(0, deque())
        assert len(gone) == expected
        assert all("consumer 4" in why for why in gone)


class Waiting:
    """A stand-in for the client's consumer: its messages come when a test puts them; without one, receive() times out."""

    def __init__(self) -> None:
        self.messages, self.acknowledged, self.closed = Queue(), [], False

    def receive(self, timeout: int) -> Any:
        try:
            return self.messages.get(timeout=timeout / 1000)
        except Empty:
            raise pulsar.Timeout("nothing") from None

    def acknowledge(self, message: Any) -> None:
        self.acknowledged.append(message.data())

    def close(self) -> None:
        self.closed = True


class Batched:
    """A message with its index in a batch; -1: it is in no batch."""

    def __init__(self, data: bytes, batch_index: int = -1, partition: int = -1) -> None:
        self._data, self._where = (
            data,
            SimpleNamespace(batch_index=lambda: batch_index, partition=lambda: partition),
        )

    def data(self) -> bytes:
        return self._data

    def redelivery_count(self) -> int:
        return 0

    def message_id(self) -> Any:
        return self._where


def running(*clients: Waiting, partitions: int = 1) -> PulsarConsumers:
    """Consumers in the places 0, 1, …, one for each client."""
    queue = deque(clients)

    def opening(consumers: Sequence[int]) -> list[PulsarConsumer]:
        made = [queue.popleft() for _ in consumers]
        return [
            PulsarConsumer(
                client, "c", context(clock=time.monotonic_ns), None, [].append, partitions
            )
            for client in made
        ]

    consumers = PulsarConsumers(opening)
    assert consumers.open(range(len(clients))).tolist() == list(range(len(clients)))
    return consumers


def stamps(consumers: PulsarConsumers, count: int) -> list[int]:
    """Wait for so many messages and return their times."""
    times: list[int] = []
    end = time.monotonic() + 10
    while len(times) < count and time.monotonic() < end:
        if (got := consumers.take()) is not None:
            times += got.time.tolist()
    return times


def ended(consumers: PulsarConsumers) -> None:
    """Wait for the end of all threads."""
    consumers.join_threads(time.monotonic() + 10)
    assert not [
        thread
        for thread in threading.enumerate()
        if thread.name in ("c", "pulsar-attach", "pulsar-detach")
    ]


def test_a_paused_consumer_acknowledges_nothing_until_it_resumes() -> None:
    """At most one message is taken from the client; the others stay there. Their times are from after the resume."""
    client = Waiting()
    consumers = running(client)
    consumers.pause([0])
    for number in range(5):
        client.messages.put(Batched(bytes([number])))
    while client.messages.qsize() > 4:
        time.sleep(0.001)
    assert (consumers.take(), client.acknowledged, client.messages.qsize()) == (None, [], 4)
    resumed = time.monotonic_ns()
    consumers.resume([0])
    assert all(stamp >= resumed for stamp in stamps(consumers, 5))
    assert client.acknowledged == [bytes([number]) for number in range(5)]
    consumers.detach([0])
    ended(consumers)
    assert client.closed


def test_closing_wakes_a_paused_consumer_without_acknowledging() -> None:
    """The message that it has taken stays unacknowledged."""
    client = Waiting()
    consumers = running(client)
    consumers.pause([0])
    client.messages.put(Batched(b"x"))
    consumers.expect_close()
    ended(consumers)
    assert (client.acknowledged, consumers.take()) == ([], None)


def test_a_leaving_consumer_takes_its_batches_to_their_end() -> None:
    """In each partition up to the next entry: a batch that is acknowledged in part would be delivered again as a whole."""
    client = Waiting()
    consumers = running(client, partitions=2)
    client.messages.put(Batched(b"p0 b0", 0, 0))
    assert len(stamps(consumers, 1)) == 1
    consumers.pause([0])
    for data, index, partition in [
        (b"p0 b1", 1, 0),
        (b"p1 next", 0, 1),
        (b"p1 rest", 1, 1),
        (b"p0 b2", 2, 0),
        (b"p0 next", -1, 0),
    ]:
        client.messages.put(Batched(data, index, partition))
    client.messages.put(Batched(b"never looked at", 0, 0))
    consumers.detach([0])
    ended(consumers)
    assert client.acknowledged == [b"p0 b0", b"p0 b1", b"p0 b2"]
    assert client.messages.qsize() == 1
    got = consumers.take()
    assert got is not None and (got.consumer.tolist(), got.size.tolist()) == ([0, 0], [5, 5]), (
        "a detached place delivers what it had"
    )


def test_leaving_ends_even_without_further_messages() -> None:
    """The wait for the end of batches is bounded."""
    client = Waiting()
    consumers = running(client, partitions=2)
    consumers.detach([0])
    client.messages.put(Batched(b"p0", 0, 0))
    ended(consumers)
    assert (client.acknowledged, client.closed) == ([], True)


def test_closing_is_no_failure_of_a_leaving_consumer() -> None:
    """The driver closes its clients while the consumer waits for the end of its batch."""

    class ClosedUnderway(Waiting):
        def receive(self, timeout: int) -> Any:
            self.messages.get()
            raise pulsar.AlreadyClosed("closed")

    client, gone = ClosedUnderway(), []
    consumers = PulsarConsumers(
        lambda _: [PulsarConsumer(client, "c", context(), None, gone.append)]
    )
    consumers.open([0])
    consumers.detach([0])
    consumers.expect_close()
    client.messages.put(None)
    ended(consumers)
    assert gone == []


def test_messages_wait_until_the_place_of_their_consumer_is_reported() -> None:
    """A consumer that leaves and returns gets a new place."""
    clients = [Waiting(), Waiting(), Waiting()]
    consumers = running(*clients[:1])
    consumers._opening = lambda numbers: [
        PulsarConsumer(
            clients[1 + int(number)], "c", context(clock=time.monotonic_ns), None, [].append
        )
        for number in numbers
    ]
    clients[1].messages.put(Batched(b"early"))
    consumers.attach([0, 1])
    while not clients[1].acknowledged:
        time.sleep(0.001)
    clients[0].messages.put(Batched(b"known"))
    assert len(stamps(consumers, 1)) == 1
    assert consumers.take() is None
    while (joined := consumers.attached()) is None:
        time.sleep(0.001)
    assert [joined.consumer.tolist(), joined.place.tolist()] == [[0, 1], [1, 2]]
    assert (joined.consumer.dtype, joined.place.dtype, consumers.attached()) == (
        np.int32,
        np.int32,
        None,
    )
    got = consumers.take()
    assert got is not None and got.consumer.tolist() == [1]
    consumers.detach(joined.place)
    consumers.detach([0])
    ended(consumers)
    assert all(client.closed for client in clients)


def test_attached_raises_the_error_of_an_attach() -> None:
    """On the engine's thread; the other consumers continue."""
    consumers = running(Waiting())

    def refuse(numbers: Sequence[int]) -> list[PulsarConsumer]:
        raise TargetError(f"consumer {numbers[0]} is one too many")

    consumers._opening = refuse
    consumers.attach([7])
    with pytest.raises(TargetError, match="consumer 7 is one too many"):
        while consumers.attached() is None:
            time.sleep(0.001)
    consumers.detach([0])
    ended(consumers)


def test_order_is_judged_for_each_of_several_topics() -> None:
    """With Key_Shared for each key of it."""
    messages = []
    for topic, key in (("a", "key-3"), ("b", "key-3"), ("b", "key-9999999999")):
        messages.append(
            SimpleNamespace(topic_name=lambda t=topic: t, partition_key=lambda k=key: k)
        )
    plain = topic_order(["a", "b"], keyed=False)
    keyed = topic_order(["a", "b"], keyed=True)
    assert [plain(message) >> OUTPUT_BITS for message in messages] == [0, 1, 1]
    assert [keyed(message) >> OUTPUT_BITS for message in messages] == [0, 1, 1]
    assert len({keyed(message) for message in messages}) == 3
