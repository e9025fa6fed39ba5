"""What all connections of a driver read: messages to the consumers, answers to the producers, the rest to their connections."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.drivers.base import Received
from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.payloads import body_ok
from pytest_loadtest.message.samples import Flag
from pytest_loadtest.wire.mqtt.fields import MalformedPacket
from pytest_loadtest.wire.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL
from pytest_loadtest.wire.mqtt.reading import encode_answer, read_packets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.drivers.mqtt.native.connection import NativeConnection
    from pytest_loadtest.wire.mqtt.packets import Packet
    from pytest_loadtest.wire.mqtt.reading import Answer, Message

    Arrival = tuple[int, bytes, int]
    """A message: bytes of the payload, the first ones of them, flags."""

    _Piece = tuple[int, Sequence[Message], Sequence[Arrival], Sequence[int], Sequence[int], bytes, Sequence[Answer], Sequence[Packet]]
    """The whole packets of a read: how many bytes they take, messages, the same for the consumer, packet ids of those at QoS 2, packet ids
    that the broker releases, what is answered to all that, answers to the producer, other packets."""


class Inbound:
    """Reads, until :meth:`settle` looks at them: what one connection takes to be answered makes no other's instant later.

    A broadcast comes to one connection after the other in the same bytes, packet identifiers included where they go in step: what is in
    the bytes of the read before is not looked for again.

    :param version: of the protocol.
    """

    def __init__(self, clock: Callable[[], int], version: int, arrivals: ArrivalColumns) -> None:
        self._clock, self._version, self._arrivals = clock, version, arrivals
        self._reads: list[tuple[NativeConnection, bytes, int]] = []
        self._last: tuple[bytes, _Piece] = b"", (0, [], [], [], [], b"", [], [])

    def add(self, connection: NativeConnection, data: bytes) -> int:
        """What one connection has just read. :returns: the instant."""
        now = self._clock()
        self._reads.append((connection, data, now))
        return now

    def settle(self) -> None:
        """Look at what was read since the last time."""
        reads, self._reads = self._reads, []
        last, piece = self._last
        for connection, read, time in reads:
            data = connection.rest + read if connection.rest else read
            if data != last:
                try:
                    piece = self._taken_apart(data)
                except MalformedPacket as error:
                    connection.over(f"the broker sent no MQTT: {error}")
                    continue
                last = data
            used, messages, arrivals, exact, released, owed, answers, others = piece
            connection.rest = data[used:] if used < len(data) else b""
            if messages:
                if connection.leaving:
                    connection.arrived += len(messages)
                if exact:
                    arrivals = _unheld(connection.held, exact, messages, arrivals)
                self._arrivals.add(connection.number, time, arrivals)
            if released:
                connection.held.difference_update(released)
            if answers:
                owed += _releases(connection, answers, time)
            if owed:
                connection.answer(owed)
            for packet in others:  # behind the answers: one may end its connection
                connection.packet(packet)
        self._last = last, piece

    def _taken_apart(self, data: bytes) -> _Piece:
        """:raises MalformedPacket: it is no MQTT."""
        used, messages, answers, others = read_packets(data, self._version)
        exact, owed = [], []
        for qos, _, packet_id, _, _ in messages:
            if qos == 1:
                owed.append(encode_answer(PUBACK, packet_id))
            elif qos == 2:
                owed.append(encode_answer(PUBREC, packet_id))
                exact.append(packet_id)
        released: list[int] = []
        if answers:
            released = [packet_id for kind, packet_id, _ in answers if kind == PUBREL]
            owed += [encode_answer(PUBCOMP, packet_id) for packet_id in released]
            answers = [answer for answer in answers if answer[0] != PUBREL]
        arrivals = self._arrivals.of(data, messages) if messages else []
        return used, messages, arrivals, exact, released, b"".join(owed) if owed else b"", answers, others


def _unheld(held: set[int], exact: Sequence[int], messages: Sequence[Message], arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
    """Those of the messages that are no second copies at QoS 2, which are held from now on. :param exact: packet ids of those at QoS 2."""
    if len(exact) == 1 == len(messages) and exact[0] not in held:  # nearly always
        held.add(exact[0])
        return arrivals
    new = []
    for (qos, _, packet_id, _, _), arrival in zip(messages, arrivals, strict=True):
        if qos < 2 or packet_id not in held:
            new.append(arrival)
        if qos == 2:
            held.add(packet_id)
    return new


def _releases(connection: NativeConnection, answers: Sequence[Answer], time: int) -> bytes:
    """Tell the producer. :returns: PUBREL where that is the next step."""
    answered = connection.user.answered
    return b"".join([encode_answer(PUBREL, packet_id) for kind, packet_id, reason in answers if answered(kind, packet_id, reason, time)])


# Messages that all consumers of a driver got, until they are taken as columns.

_NOWHERE: Final = -1  # instead of a place, as long as the consumer has none
_REDELIVERED, _CORRUPT = int(Flag.REDELIVERED), int(Flag.CORRUPT)


class ArrivalColumns:
    """Messages until they are taken; those of a consumer that has no place yet wait for it.

    :param checksum: bodies are verified.
    """

    def __init__(self, *, checksum: bool) -> None:
        self._checksum = checksum
        self._came: list[tuple[int, int, Arrival]] = []  # number of the connection, instant in ns
        self._places = np.full(0, _NOWHERE, np.int32)  # by number of the connection

    def settle(self, number: int, place: int) -> None:
        """The consumer with that connection has its place now."""
        self._know(number)
        self._places[number] = place

    def _know(self, number: int) -> None:
        if number >= len(self._places):
            self._places = np.append(self._places, np.full(2 * number + 64 - len(self._places), _NOWHERE, np.int32))

    def of(self, data: bytes, messages: Sequence[Message]) -> list[Arrival]:
        """These messages in ``data``, for as many consumers as get them."""
        found = []
        for _, dup, _, start, end in messages:
            flags = _REDELIVERED if dup else 0
            if self._checksum and not body_ok(data[start:end]):
                flags |= _CORRUPT
            found.append((end - start, data[start : min(start + HEAD, end)], flags))
        return found

    def add(self, number: int, time: int, arrivals: Sequence[Arrival]) -> None:
        """The connection with that number read them then."""
        for arrival in arrivals:
            self._came.append((number, time, arrival))

    def take(self) -> Received | None:
        """All that came to consumers with a place, or None."""
        if not self._came:
            return None
        came, self._came = self._came, []
        number, time, arrivals = zip(*came, strict=True)
        self._know(max(number))
        place = self._places.take(number)
        here = place != _NOWHERE
        if not here.all():
            self._came = list(compress(came, ~here))
            if not here.any():
                return None
            place = place[here]
            _, time, arrivals = zip(*compress(came, here), strict=True)
        size, heads, flags = zip(*arrivals, strict=True)
        padded = heads if min(size) >= HEAD else (head.ljust(HEAD, b"\0") for head in heads)
        return Received(
            consumer=place, heads=np.frombuffer(b"".join(padded), np.uint8).reshape(len(place), HEAD), size=np.array(size, np.int32),
            time=np.array(time, np.int64), order=np.zeros(len(place), np.int64), flags=np.array(flags, np.int8),
        )  # fmt: skip
