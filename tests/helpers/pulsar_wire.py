"""A small blocking client on the package's own protocol core: one socket, one request at a time."""

from __future__ import annotations

import socket
import time
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar.batches import BatchReader, prefix
from pytest_loadtest.wire.pulsar.compression import compress, decompress
from pytest_loadtest.wire.pulsar.connection import Entry, Event, PulsarConnection, Receipt
from pytest_loadtest.wire.pulsar.entries import (
    EntrySealer,
    compressed,
    field,
    open_entry,
    publish_time,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from numpy.typing import NDArray

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)
INDIVIDUAL, CUMULATIVE = range(2)
EARLIEST = 1
SECONDS = 30.0


class RefusedError(Exception):
    """An error of the broker. :param code: a ServerError of PulsarApi.proto."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Wire:
    """A connection after its handshake. :ivar answers: number of commands that it answered by itself (PONG). :ivar server: the broker's version."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), SECONDS)
        self.connection = PulsarConnection("tests", "none", bytes)
        self._events: list[Event] = []
        self._numbers = count(1)
        self.answers = 0
        self.connection.open()
        self._flush()
        self.server: str = self.event(
            lambda event: isinstance(event, api.Connected), "CONNECTED"
        ).server_version

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def next_number(self) -> int:
        """Return a new number for a producer, a consumer or a request."""
        return next(self._numbers)

    def command(self, name: str, **fields: Any) -> None:
        """Send a command without waiting for an answer."""
        command = api.Command(type=api.Command.Type.Value(name.upper()))
        part = getattr(command, name)
        part.MergeFrom(type(part)(**fields))
        self.connection.send(command)
        self._flush()

    def request(self, name: str, **fields: Any) -> Any:
        """Send a command and return its answer.

        :raises RefusedError: the answer is an error.
        """
        number = self.next_number()
        self.command(name, request_id=number, **fields)
        answer: Any = self.event(
            lambda event: getattr(event, "request_id", None) == number, f"an answer to {name}"
        )
        if isinstance(answer, api.Error) or (hasattr(answer, "error") and answer.HasField("error")):
            raise RefusedError(answer.error, answer.message)
        return answer

    def lookup(self, topic: str) -> None:
        """Make the broker, the only one, own the topic."""
        found = self.request("lookup", topic=topic)
        assert (found.response, urlsplit(found.broker_service_url).port) == (
            1,
            self._socket.getpeername()[1],
        ), found

    def add(self, buffers: Iterable[bytes | memoryview]) -> None:
        self.connection.add(buffers)
        self._flush()

    def event(self, wanted: Callable[[Event], bool], what: str, seconds: float = SECONDS) -> Event:
        """Return the first matching command; the others are kept for later calls."""
        end = time.monotonic() + seconds
        while True:
            for place, event in enumerate(self._events):
                if wanted(event):
                    return self._events.pop(place)
            assert time.monotonic() < end, f"{what} did not come; {self._events}"
            self.read(end - time.monotonic())

    def read(self, seconds: float) -> None:
        """Return the next command, or None if none comes in time."""
        self._socket.settimeout(max(seconds, 0.001))
        try:
            n = self._socket.recv_into(self.connection.space())
        except TimeoutError:
            return
        assert n, "the broker has closed the connection"
        self._events += self.connection.filled(n)
        if self.connection.waiting:
            self.answers += 1
            self._flush()

    def _flush(self) -> None:
        self._socket.settimeout(SECONDS)
        while self.connection.waiting:
            self.connection.sent(self._socket.sendmsg(self.connection.next()))


class Producer:
    """A producer. :raises RefusedError: the broker rejects it."""

    def __init__(self, wire: Wire, topic: str, **fields: Any) -> None:
        wire.lookup(topic)
        self.wire, self.number = wire, wire.next_number()
        found = wire.request("producer", topic=topic, producer_id=self.number, **fields)
        self.name = found.producer_name
        self.sealer = EntrySealer.of(self.number, self.name)

    def send(
        self, sequence: int, payloads: Sequence[bytes], *, batched: bool = False, compression: int = 0, keys: Sequence[str] | None = None,
        more: bytes = b"",
    ) -> None:  # fmt: skip
        """Send one entry, and wait for its receipt. :param payloads: one, unless ``batched``. :param keys: the same number, or none."""
        told = [key.encode() for key in keys] if keys else [None] * len(payloads)
        parts = (
            [
                prefix(len(payload), key) + payload
                for payload, key in zip(payloads, told, strict=True)
            ]
            if batched
            else list(payloads)
        )
        if not batched and told[0] is not None:
            more += field(6, told[0])
        if compression:
            whole = b"".join(parts)
            parts, more = [compress(compression, whole)], more + compressed(compression, len(whole))
        self.send_entry(sequence, parts, batched=batched, count=len(payloads), more=more)

    def send_entry(
        self, sequence: int, parts: list[bytes], *, batched: bool = False, count: int = 1, published: int | None = None, **more: Any
    ) -> None:  # fmt: skip
        """Send a payload unchanged. :param published: ms since 1970; None: now."""
        at = publish_time(time.time_ns() // 1_000_000 if published is None else published)
        sealed = self.sealer.seal(
            parts, sequence=sequence, count=count, published=at, batched=batched, **more
        )
        self.wire.add([part for part in (sealed, *parts) if part])
        self.wire.event(
            lambda event: isinstance(event, Receipt) and event == (self.number, sequence),
            f"the receipt of {sequence}",
        )


class Received(NamedTuple):
    """An entry at a consumer. :param metadata: of the entry. :param payloads: of its messages. :param keys: of its messages."""

    entry: Entry
    metadata: api.MessageMetadata
    payloads: list[bytes]
    keys: list[str | None]

    def id(self, **more: Any) -> api.MessageId:
        return api.MessageId(ledger_id=self.entry.ledger, entry_id=self.entry.entry, **more)


class Consumer:
    """A consumer. :raises RefusedError: the broker rejects it."""

    def __init__(
        self,
        wire: Wire,
        topic: str,
        subscription: str = "s",
        kind: int = SHARED,
        *,
        permits: int = 1000,
        **fields: Any,
    ) -> None:
        wire.lookup(topic)
        self.wire, self.number = wire, wire.next_number()
        self._told = {
            "topic": topic,
            "subscription": subscription,
            "sub_type": kind,
            "initial_position": EARLIEST,
        } | fields
        self._permits = permits
        self.subscribe()

    def subscribe(self) -> None:
        """Subscribe, also again after the broker has closed the consumer."""
        self.wire.request("subscribe", consumer_id=self.number, **self._told)
        if self._permits:
            self.wire.command("flow", consumer_id=self.number, message_permits=self._permits)

    def entry(self, seconds: float = SECONDS) -> Entry:
        found = self.wire.event(
            lambda event: isinstance(event, Entry) and event.consumer == self.number,
            "an entry",
            seconds,
        )
        assert isinstance(found, Entry)
        return found

    def receive(self) -> Received:
        """Return the next entry, with its messages unpacked."""
        entry = self.entry()
        metadata, body = open_entry(entry.body)
        if metadata.compression:
            body = decompress(metadata.compression, body, metadata.uncompressed_size)
        if not metadata.HasField("num_messages_in_batch"):
            return Received(
                entry,
                metadata,
                [bytes(body)],
                [metadata.partition_key if metadata.HasField("partition_key") else None],
            )
        n = metadata.num_messages_in_batch
        found = BatchReader().messages(body, n)
        payloads = [
            bytes(body[start : start + size])
            for start, size in zip(found.starts, found.sizes, strict=True)
        ]
        return Received(entry, metadata, payloads, found.keys or [None] * n)

    def acknowledge(self, *ids: api.MessageId, kind: int = INDIVIDUAL) -> None:
        """Acknowledge, and wait until the broker has confirmed it."""
        self.wire.request("ack", consumer_id=self.number, ack_type=kind, message_id=ids)

    def close(self) -> None:
        self.wire.request("close_consumer", consumer_id=self.number)


def ack_set_of(still: NDArray[np.bool_]) -> list[int]:
    """Return the words of an ACK that leaves the messages ``still`` of a batch pending; none for an ACK of the whole entry."""
    words = np.zeros(-(-len(still) // 64) * 8, np.uint8)
    bits = np.packbits(still, bitorder="little")
    words[: len(bits)] = bits
    found: list[int] = words.view("<i8").tolist()
    while found and not found[-1]:
        found.pop()
    return found
