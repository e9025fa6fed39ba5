"""Decoding of what all connections of a driver have read.

Messages go to the consumers, acknowledgements to the producers, other packets to their connections.
"""

from __future__ import annotations

from itertools import chain, compress
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.drivers.base import Received
from pytest_loadtest.drivers.mqtt.native.property_reader import PropertyReader
from pytest_loadtest.message.carried import body_tokens, carried_heads
from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.payloads import body_ok
from pytest_loadtest.message.route import IN_BODY, Carrier, EnvelopePlace
from pytest_loadtest.message.samples import Flag
from pytest_loadtest.wire.mqtt.fields import MalformedPacket
from pytest_loadtest.wire.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Packet
from pytest_loadtest.wire.mqtt.reading import (
    Answer,
    Message,
    encode_answer,
    packet_size,
    read_packets,
    read_topics,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.mqtt.native.connection import NativeConnection

    Arrival = tuple[int, bytes, int]
    """A message: size of the payload, the bytes that have its envelope, flags, and above the flags
    the number of its output topic.
    """

    _Read = tuple[NativeConnection, bytes, int, int]
    """A connection, what it has read, when that arrived, and its lag; ns."""
    _Waiting = tuple[int, int, int, Arrival]
    """A message: number of its connection, instant and lag in ns, the rest."""
    _Decoded = tuple[
        int,
        Sequence[Message],
        Sequence[Arrival],
        Sequence[int],
        Sequence[int],
        bytes,
        Sequence[Answer],
        Sequence[Packet],
    ]
    """The complete packets of a read.

    They are the number of bytes, messages, their arrivals, packet ids of messages at QoS 2, packet
    ids released by the broker, acknowledgements to write, answers for the producer, other packets.
    """


IDENTIFIER_IN_USE: Final = (
    "another message with a packet identifier in use: dropped as a second copy (MQTT 5, 4.3.3)"
)


class Inbound:
    """Collects what connections read, until :meth:`settle` decodes it.

    :param version: version of the protocol.
    """

    # Decoding is separate from reading, so that answering one connection does not
    # delay the timestamps of the others. A broadcast reaches one connection after the
    # other with the same bytes, including packet identifiers while these advance
    # together. So bytes that equal those of the previous read are not decoded again,
    # which halves the cost of reading (docs/decisions/015).

    def __init__(self, version: int, arrivals: ArrivalColumns) -> None:
        self._version = version
        self._arrivals = arrivals
        self._reads: list[_Read] = []
        self._last: tuple[bytes, _Decoded] = b"", (0, [], [], [], [], b"", [], [])

    def add(self, connection: NativeConnection, data: bytes, arrived: int, lag: int) -> None:
        """Add bytes that a connection has just read.

        :param arrived: ns.
        :param lag: ns since then; -1: unknown.
        """
        self._reads.append((connection, data, arrived, lag))

    def settle(self) -> None:
        """Decode the reads since the last call, and write their acknowledgements."""
        reads = self._reads
        self._reads = []
        if reads:
            self._arrivals.keep(reads)
        for connection, read, time, lag in reads:
            decoded = self._decode_read(connection, read)
            if decoded is None:
                continue
            _, messages, arrivals, exact, released, owed, answers, others = decoded
            if messages:
                if not connection.receives:
                    connection.reject("a message to a client without a subscription")
                    continue
                if connection.leaving:
                    connection.arrived += len(messages)
                if exact:
                    arrivals = _without_second_copies(connection, exact, messages, arrivals)
                self._arrivals.add(connection.number, time, lag, arrivals)
            for packet_id in released:
                connection.held.pop(packet_id, None)
            if answers:
                owed += _releases(connection, answers, time)
            if owed:
                connection.answer(owed)
            # After the acknowledgements, because one of these packets may end the connection.
            for packet in others:
                if connection.socket is not None:
                    connection.handle_packet(packet)

    def _decode_read(self, connection: NativeConnection, read: bytes) -> _Decoded | None:
        """Return the packets that a read completes.

        None: there is none, or the connection is over.
        """
        # A packet of an earlier read has ended the connection.
        if connection.socket is None:
            return None
        data = read
        if connection.rest:
            # A packet of many reads is joined once: decoding it again
            # after each read would take quadratic time.
            connection.rest += read
            if len(connection.rest) < connection.needed:
                self._arrivals.joined[id(read)] = b""
                return None
            data = bytes(connection.rest)
            self._arrivals.joined[id(read)] = data
        last, decoded = self._last
        try:
            if data != last:
                decoded = self._decode(data)
                self._last = data, decoded
            if decoded[0] < len(data) or connection.rest:
                _keep_rest(connection, data[decoded[0] :])
        except MalformedPacket as error:
            connection.reject(f"bytes that are not MQTT: {error}")
            return None
        return decoded

    def _decode(self, data: bytes) -> _Decoded:
        # The answers to all packets of a read are written with one system call.
        used, messages, answers, others = read_packets(data, self._version)
        exact = []
        owed = []
        for qos, _, packet_id, *_ in messages:
            if qos == 1:
                owed.append(encode_answer(PUBACK, packet_id))
            elif qos == 2:
                owed.append(encode_answer(PUBREC, packet_id))
                exact.append(packet_id)
        released = []
        if answers:
            released = [packet_id for kind, packet_id, _ in answers if kind == PUBREL]
            owed += [encode_answer(PUBCOMP, packet_id) for packet_id in released]
            answers = [answer for answer in answers if answer[0] != PUBREL]
        arrivals = self._arrivals.make_arrivals(data, messages, used) if messages else []
        return (
            used,
            messages,
            arrivals,
            exact,
            released,
            b"".join(owed),
            answers,
            others,
        )


def _keep_rest(connection: NativeConnection, rest: bytes) -> None:
    """Keep the start of an incomplete packet, if there is one.

    :raises MalformedPacket: it is larger than the client accepts.
    """
    connection.rest = bytearray(rest)
    connection.needed = packet_size(rest)
    if connection.needed > connection.largest:
        raise MalformedPacket(
            f"a packet of {connection.needed} bytes, where the client accepts {connection.largest}"
        )


def _without_second_copies(
    connection: NativeConnection,
    exact: Sequence[int],
    messages: Sequence[Message],
    arrivals: Sequence[Arrival],
) -> Sequence[Arrival]:
    """Return the arrivals that are not second copies of a held QoS 2 message.

    The new ones are held from now on.

    :param exact: packet ids of the messages at QoS 2.
    """
    held = connection.held
    # Fast path: nearly every read has a single message.
    if len(exact) == 1 == len(messages) and exact[0] not in held:
        held[exact[0]] = arrivals[0][1]
        return arrivals
    new = []
    for (qos, _, packet_id, *_), arrival in zip(messages, arrivals, strict=True):
        if qos < 2 or packet_id not in held:
            new.append(arrival)
            if qos == 2:
                held[packet_id] = arrival[1]
        # A broker that forgot which identifiers are in use. Only the identifier counts (MQTT 5,
        # 4.3.3), so clients never get this message.
        elif held[packet_id] != arrival[1]:
            connection.note_incident(IDENTIFIER_IN_USE)
    return new


def _releases(connection: NativeConnection, answers: Sequence[Answer], time: int) -> bytes:
    """Pass answers to the producer; return the PUBRELs that must follow."""
    answered = connection.user.answered
    return b"".join(
        [
            encode_answer(PUBREL, packet_id)
            for kind, packet_id, reason in answers
            if answered(kind, packet_id, reason, time)
        ]
    )


_NOWHERE: Final = -1  # place of a consumer that has none yet
_REDELIVERED = int(Flag.REDELIVERED)
_CORRUPT = int(Flag.CORRUPT)
_KEPT: Final = 64
"""Lists of reads that are kept until messages are taken, at most."""
_FLAG_BITS: Final = 8
"""Bits of an arrival's flags; the number of its output topic is above them. A member of its own
would cost every message of every run."""


class ArrivalColumns:
    """Received messages of all consumers, collected until they are taken.

    Messages of a consumer without a place wait until it has one.

    :param version: version of the protocol.
    :param checksum: verify the checksum of bodies.
    :param place: the place of the envelope.
    :param outputs: the number of each topic among those of its consumers; empty if they have one.
    """

    def __init__(
        self,
        version: int,
        *,
        checksum: bool,
        place: EnvelopePlace = IN_BODY,
        outputs: Mapping[bytes, int] | None = None,
    ) -> None:
        self._version = version
        self._checksum = checksum
        self._place = place
        self._in_body = place.carrier is Carrier.BODY
        self._tokens = body_tokens(place)
        self._values = PropertyReader(place.carrier) if place.outside else None
        self._outputs = outputs
        self._waiting: list[_Waiting] = []
        # Only reads are kept, not the body of each message: for the few bodies that the engine
        # looks at they are decoded again.
        self._kept: list[Sequence[_Read]] = []
        self.joined: dict[int, bytes] = {}
        """A read that begins within a packet, by its identity → the whole packet and what follows;
        empty if the packet is not complete.
        """
        self._taken: tuple[Sequence[_Waiting], Sequence[Sequence[_Read]], Mapping[int, bytes]] = (
            [],
            [],
            {},
        )
        self._bodies = self._body
        self._places = np.full(0, _NOWHERE, np.int32)  # by number of the connection

    def assign_place(self, number: int, place: int) -> None:
        """Assign a place to the consumer with this connection."""
        self._grow(number)
        self._places[number] = place

    def _grow(self, number: int) -> None:
        if number >= len(self._places):
            self._places = np.append(
                self._places, np.full(2 * number + 64 - len(self._places), _NOWHERE, np.int32)
            )

    def keep(self, reads: Sequence[_Read]) -> None:
        """Keep reads until their messages are taken."""
        # Before load begins nothing may be taken for minutes.
        if len(self._kept) == _KEPT:
            self._kept = []
            self.joined = {}
        self._kept.append(reads)

    def make_arrivals(self, data: bytes, messages: Sequence[Message], used: int) -> list[Arrival]:
        """Return the arrivals of these messages in ``data``.

        They can be added for several consumers.

        :param used: the bytes of the packets with these messages.
        """
        arrivals = []
        in_body = self._in_body
        for _, dup, _, properties, start, end in messages:
            flags = _REDELIVERED if dup else 0
            if self._checksum and not body_ok(data[start:end]):
                flags |= _CORRUPT
            if in_body:
                head = data[start : min(start + HEAD, end)]
            elif self._values is not None:
                head = self._values.value(data, properties, start)
            else:
                assert self._tokens is not None
                head = self._tokens.digits(data, start, end)
            arrivals.append((end - start, head, flags))
        if not self._outputs:
            return arrivals

        numbered = []
        for topic, (size, head, flags) in zip(read_topics(data, used), arrivals, strict=True):
            number = self._outputs.get(topic, 0)
            numbered.append((size, head, flags | number << _FLAG_BITS))
        return numbered

    def add(self, number: int, time: int, lag: int, arrivals: Sequence[Arrival]) -> None:
        """Add messages of the connection with this number.

        They arrived at ``time``, and were read ``lag`` ns later (-1: unknown).
        """
        for arrival in arrivals:
            self._waiting.append((number, time, lag, arrival))

    def take(self) -> Received | None:
        """Return the messages of consumers with a place since the last call, or None."""
        if not self._waiting:
            return None
        waiting = self._waiting
        self._waiting = []
        number, time, lag, arrivals = zip(*waiting, strict=True)
        self._grow(max(number))
        place = self._places.take(number)
        # A broker may send messages before the engine knows the place of their consumer.
        placed = place != _NOWHERE
        if not placed.all():
            self._waiting = list(compress(waiting, ~placed))
            if not placed.any():
                return None
            place = place[placed]
            waiting = list(compress(waiting, placed))
            _, time, lag, arrivals = zip(*waiting, strict=True)
        size, heads, marks = zip(*arrivals, strict=True)
        order = np.zeros(len(place), np.int64)
        if self._outputs:
            numbered = np.array(marks, np.int64)
            order = numbered >> _FLAG_BITS
            flags = (numbered & ((1 << _FLAG_BITS) - 1)).astype(np.int8)
        else:
            flags = np.array(marks, np.int8)
        self._taken = waiting, self._kept, self.joined
        self._kept = []
        if self.joined:
            self.joined = {}
        return Received(
            consumer=place,
            heads=self._heads(heads),
            size=np.array(size, np.int32),
            time=np.array(time, np.int64),
            order=order,
            flags=flags,
            lag=np.array(lag, np.int64),
            bodies=self._bodies,
        )

    def _body(self, row: int) -> bytes:
        """Return the body of a message that was taken; empty if its read was not kept."""
        waiting, kept, joined = self._taken
        number, time, _, wanted = waiting[row]
        # Of equal messages in a read this is the one with as many before it.
        before = waiting[:row].count(waiting[row])
        for connection, read, arrived, _ in chain.from_iterable(kept):
            if (connection.number, arrived) != (number, time):
                continue
            data = joined.get(id(read), read)
            try:
                used, messages, *_ = read_packets(data, self._version)
            except MalformedPacket:
                continue
            arrivals = self.make_arrivals(data, messages, used)
            found = [n for n, arrival in enumerate(arrivals) if arrival == wanted]
            if before < len(found):
                *_, start, end = messages[found[before]]
                return data[start:end]
            before -= len(found)
        return b""

    def _heads(self, heads: Sequence[bytes]) -> NDArray[np.uint8]:
        """Return envelopes as a column.

        :param heads: the beginning of each body, its token, or the value of its property.
        """
        if not self._in_body:
            return carried_heads(self._place.carrier, heads)
        joined = b"".join(heads)
        if len(joined) != len(heads) * HEAD:
            # Compact envelopes and foreign messages may be shorter than a head.
            joined = b"".join([head.ljust(HEAD, b"\0") for head in heads])
        return np.frombuffer(joined, np.uint8).reshape(len(heads), HEAD)
