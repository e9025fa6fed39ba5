"""A Pulsar broker as seen by a client, with faults on request: a real TCP server on loopback that stores nothing.

It answers each command as a broker would, unless the test sets another action by kind: in :attr:`FakeBroker.rules`, or in
:attr:`FakeBroker.once` for the next commands only. :attr:`FakeBroker.seen` has all commands in order.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import defaultdict, deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from crc32c import crc32c
from fake_server import FakeServer

from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar.entries import open_entry
from pytest_loadtest.wire.pulsar.framing import FrameDecoder, encode_command, split_frame

if TYPE_CHECKING:
    from collections.abc import Callable

_NAMES = {number: name for name, number in api.Command.Type.items()}


class Seen(NamedTuple):
    """A received command. :param kind: such as "SEND". :param said: its part of ``api.Command``. :param body: the bytes after it."""

    peer: Peer
    kind: str
    said: Any
    body: bytes


class Peer:
    """One connection of a client."""

    def __init__(self, broker: FakeBroker, connected: socket.socket) -> None:
        self.broker, self._socket, self._lock = broker, connected, threading.Lock()
        self.address = connected.getpeername()[0]
        self.gone = False

    def tell(self, kind: str, body: bytes = b"", **fields: Any) -> None:
        """Send a command, with its payload if it has one."""
        command = api.Command(type=getattr(api.Command, kind))
        part = getattr(command, kind.lower())
        part.SetInParent()
        for name, value in fields.items():
            if isinstance(value, list):
                getattr(part, name).extend(value)
            elif hasattr(value, "DESCRIPTOR"):
                getattr(part, name).CopyFrom(value)
            else:
                setattr(part, name, value)
        frame = encode_command(command)
        self.write(
            (int.from_bytes(frame[:4], "big") + len(body)).to_bytes(4, "big") + frame[4:] + body
        )

    def write(self, data: bytes) -> None:
        """Write bytes."""
        try:
            with self._lock:
                self._socket.sendall(data)
        except OSError:
            self.gone = True

    def deliver(self, consumer: int, body: bytes, entry: int = 0, **fields: Any) -> None:
        """Send an entry to a consumer. :param fields: ``redelivery_count``, ``ack_set``."""
        self.tell(
            "MESSAGE",
            body,
            consumer_id=consumer,
            message_id=api.MessageId(ledger_id=1, entry_id=entry),
            **fields,
        )

    def drop(self) -> None:
        """Close the connection."""
        self.gone = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def serve(self) -> None:
        """Answer commands until the connection ends."""
        decoder = FrameDecoder()
        with self._socket:
            while True:
                try:
                    size = self._socket.recv_into(decoder.space())
                except OSError:
                    size = 0
                if not size:
                    self.gone = True
                    return
                for frame in decoder.filled(size):
                    command, body = split_frame(frame)
                    self._one(api.Command.FromString(bytes(command)), bytes(body))

    def _one(self, command: api.Command, body: bytes) -> None:
        kind = _NAMES[command.type]
        seen = Seen(self, kind, getattr(command, kind.lower()), body)
        self.broker.seen.append(seen)
        waiting = self.broker.once[kind]
        rule = waiting.popleft() if waiting else self.broker.rules.get(kind, answer)
        rule(seen)


def answer(seen: Seen) -> None:
    """Answer as a healthy broker."""
    peer, said = seen.peer, seen.said
    if seen.kind == "CONNECT":
        peer.tell(
            "CONNECTED",
            server_version="fake",
            protocol_version=21,
            max_message_size=peer.broker.max_message,
        )
    elif seen.kind == "LOOKUP":
        peer.tell(
            "LOOKUP_RESPONSE",
            request_id=said.request_id,
            response=1,
            broker_service_url=peer.broker.url,
            authoritative=True,
        )
    elif seen.kind == "PARTITIONED_METADATA":
        peer.tell(
            "PARTITIONED_METADATA_RESPONSE",
            request_id=said.request_id,
            response=0,
            partitions=peer.broker.partitions,
        )
    elif seen.kind == "PRODUCER":
        peer.tell(
            "PRODUCER_SUCCESS",
            request_id=said.request_id,
            producer_name=said.producer_name or f"fake-{said.producer_id}",
        )
    elif seen.kind == "SEND":
        peer.tell("SEND_RECEIPT", producer_id=said.producer_id, sequence_id=said.sequence_id)
    elif seen.kind == "PING":
        peer.tell("PONG")
    elif hasattr(said, "request_id") and seen.kind != "ACK":
        peer.tell("SUCCESS", request_id=said.request_id)


def nothing(_: Seen) -> None:
    """Do not answer."""


def refuse(error: int, message: str = "no") -> Callable[[Seen], None]:
    """Return an action that answers a request with an error."""
    return lambda seen: seen.peer.tell(
        "ERROR", request_id=getattr(seen.said, "request_id", 0), error=error, message=message
    )


class FakeBroker(FakeServer[Peer]):
    """A broker that serves until it is closed; a context manager.

    :param partitions: number of partitions of each topic; 0: none.
    :ivar rules: kind of command → action instead of :func:`answer`. :ivar once: the same, for one command per entry.
    :ivar seen: all commands. :ivar peers: connections, oldest first.
    """

    def __init__(self, *, partitions: int = 0, max_message: int = 5 * 1024**2) -> None:
        self.partitions, self.max_message = partitions, max_message
        self.rules: dict[str, Callable[[Seen], None]] = {}
        self.once: defaultdict[str, deque[Callable[[Seen], None]]] = defaultdict(deque)
        self.seen: list[Seen] = []
        super().__init__("pulsar", partial(Peer, self))

    def of(self, kind: str) -> list[Any]:
        """Return the contents of all commands of one kind."""
        return [seen.said for seen in self.seen if seen.kind == kind]


def payload_of(sent: Seen) -> bytes:
    """Return the payload of a SEND, as a consumer would get it."""
    return bytes(open_entry(memoryview(sent.body))[1])


def damaged(body: bytes) -> bytes:
    """Return the entry with a changed last byte."""
    return body[:-1] + bytes([body[-1] ^ 1])


def entry_of(metadata: api.MessageMetadata, payload: bytes) -> bytes:
    """Return an entry with a valid CRC."""
    head = metadata.SerializeToString()
    guarded = len(head).to_bytes(4, "big") + head + payload
    return b"\x0e\x01" + crc32c(guarded).to_bytes(4, "big") + guarded
