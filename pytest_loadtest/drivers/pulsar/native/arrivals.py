"""Conversion of received entries to columns of messages, many entries at once."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pytest_loadtest.drivers.base import Received
from pytest_loadtest.drivers.pulsar.names import OUTPUT_BITS, key_number
from pytest_loadtest.message.carried import body_tokens, carried_heads
from pytest_loadtest.message.envelope import HEAD, encode_heads, marks
from pytest_loadtest.message.payloads import body_ok
from pytest_loadtest.message.route import IN_BODY, PROPERTY, Carrier, EnvelopePlace
from pytest_loadtest.message.samples import Flag
from pytest_loadtest.message.token import (
    DIGITS,
    PREFIX,
    TOKEN,
    decode_columns,
    decode_digits,
)
from pytest_loadtest.metrics.strays import BEGINNING
from pytest_loadtest.wire.pulsar.batches import BatchReader
from pytest_loadtest.wire.pulsar.framing import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Buffer = bytes | memoryview

# Bytes: entries that are smaller on average are copied into one array, so that numpy is called once
# instead of once for each entry.
_JOIN_BELOW: Final = 1 << 15
_CORRUPT: Final = np.int8(Flag.CORRUPT)


class Arrival(NamedTuple):
    """One entry for one consumer.

    :param place: the consumer's place.
    :param time: ns.
    :param lag: as in :class:`~pytest_loadtest.drivers.base.Received`.
    :param order: the group in which order is judged.
    :param flags: for all messages.
    :param messages: the number in the batch; 0: the entry is one message, not a batch.
    :param data: the decompressed payload.
    :param chosen: indexes of the messages in the batch to take; None: all.
    :param value: of the property that has the envelope of a single message; the first bytes of an
        unreadable entry.
    """

    place: int
    time: int
    lag: int
    order: int
    flags: int
    messages: int
    data: Buffer
    chosen: NDArray[np.intp] | None = None
    value: bytes = b""


class _Part(NamedTuple):
    """Messages of some arrivals: number and message count per arrival.

    The other columns per message.
    """

    numbers: list[int]
    counts: list[int]
    heads: NDArray[np.uint8]
    sizes: NDArray[np.int32]
    corrupt: NDArray[np.bool_] | None = None
    order: NDArray[np.int64] | None = None


class _Front(NamedTuple):
    """The bytes before the payload of each message of a batch.

    :param digits: number of bytes between both parts, the digits of a token.
    """

    first: bytes
    rest: bytes
    digits: int

    @property
    def length(self) -> int:
        return len(self.first) + self.digits + len(self.rest)


class ArrivalReader:
    """:param damaged: the head, in the full form, of the message that represents an unreadable
        entry.
    :param checksum: verify bodies.
    :param keyed: order is judged by key.
    :param place: the place of the envelope.
    """

    def __init__(
        self,
        damaged: bytes,
        *,
        checksum: bool,
        keyed: bool,
        place: EnvelopePlace = IN_BODY,
    ) -> None:
        self._carrier = place.carrier
        self._outside = place.outside
        self._tokens = body_tokens(place)
        self._reader = BatchReader(PROPERTY, TOKEN) if self._outside else BatchReader()
        self._damaged = damaged
        self._checksum = checksum
        self._keyed = keyed

    def columns(self, came: Sequence[Arrival]) -> Received:
        """Return the messages of at least one arrival, in the order of arrival."""
        # The batches of one producer mostly have messages of one length with the same bytes before
        # each payload. Such arrivals are read together by slicing (even); only the others are read
        # message by message (odd).
        even: defaultdict[tuple[bytes, bytes, int], list[int]] = defaultdict(list)
        odd = []
        single = []
        for number, (*_, count, data, chosen, _) in enumerate(came):
            if not count and self._carrier is not Carrier.BODY:
                single.append(number)
                continue
            length = len(data) // count if count else len(data)
            before = 0
            if count:
                before = self._even(data, count) or -1
            # A token in JSON is not at one place of messages of one length.
            if before < 0 or chosen is not None or not length or self._tokens is not None:
                odd.append(number)
                continue
            first = bytes(data[:before])
            rest = b""
            if self._outside:
                digits = self._reader.value_start(first) + len(PREFIX)
                if digits < len(PREFIX):
                    odd.append(number)
                    continue
                rest = first[digits + DIGITS :]
                first = first[:digits]
            even[first, rest, length].append(number)
        gap = DIGITS if self._outside else 0
        parts = [
            self._read_even(came, numbers, _Front(first, rest, gap), length, odd)
            for (first, rest, length), numbers in even.items()
        ]
        if single:
            parts.append(self._read_single(came, single))
        parts += [self._read(came[number], number) for number in odd]
        return _received(came, [part for part in parts if part.numbers], self._body)

    def _body(self, came: Sequence[Arrival], which: NDArray[np.intp], row: int) -> bytes:
        """Return the body of a message; of an unreadable entry its first bytes.

        :param which: the number of the arrival of each message, ascending.
        """
        arrival = came[int(which[row])]
        if arrival.data is self._damaged:
            return arrival.value
        data = memoryview(arrival.data)
        if not arrival.messages:
            return bytes(data[:BEGINNING])
        try:
            batch = self._reader.messages(data, arrival.messages)
        except ProtocolError:
            return bytes(data[:BEGINNING])
        index = row - int(np.searchsorted(which, which[row]))
        if arrival.chosen is not None:
            index = int(arrival.chosen[index])
        start = int(batch.starts[index])
        return bytes(data[start : start + int(batch.sizes[index])])

    def _even(self, data: Buffer, count: int) -> int | None:
        try:
            return self._reader.even(memoryview(data), count)
        except ProtocolError:
            return None

    def _read_single(self, came: Sequence[Arrival], numbers: list[int]) -> _Part:
        """Read arrivals of one message each, whose envelopes do not begin bodies."""
        values = []
        sizes = []
        for number in numbers:
            arrival = came[number]
            value = arrival.value
            if self._tokens is not None:
                value = self._tokens.digits(bytes(arrival.data), 0, len(arrival.data))
            values.append(value)
            sizes.append(len(arrival.data))
        heads = carried_heads(self._carrier, values)
        for index, number in enumerate(numbers):
            if came[number].data is self._damaged:
                heads[index] = np.frombuffer(self._damaged, np.uint8)
        return _Part(numbers, [1] * len(numbers), heads, np.array(sizes, np.int32))

    def _read_even(
        self,
        came: Sequence[Arrival],
        numbers: list[int],
        front: _Front,
        length: int,
        odd: list[int],
    ) -> _Part:
        """Read arrivals whose messages all begin with the same bytes ``front``.

        Append the arrivals with other messages to ``odd``.
        """
        before = front.length
        blocks = [
            np.frombuffer(came[number].data, np.uint8).reshape(-1, length) for number in numbers
        ]
        if len(blocks) > 1 and sum(block.size for block in blocks) < _JOIN_BELOW * len(blocks):
            wholes = [
                np.frombuffer(
                    b"".join([came[number].data for number in numbers]), np.uint8
                ).reshape(-1, length)
            ]
        else:
            wholes = blocks
        if before and not _all_begin(wholes, front):
            good = [
                number
                for number, block in zip(numbers, blocks, strict=True)
                if _all_begin([block], front)
            ]
            odd += sorted(set(numbers) - set(good))
            return (
                self._read_even(came, good, front, length, odd)
                if good
                else _Part([], [], np.empty((0, HEAD), np.uint8), _sizes(0, 0))
            )
        size = length - before
        if front.digits:
            start = len(front.first)
            digits = [whole[:, start : start + DIGITS] for whole in wholes]
            together = decode_columns(_concatenated(digits))
        else:
            together = _concatenated([whole[:, before : before + HEAD] for whole in wholes])
            # Compact envelopes are shorter than HEAD: the rest of the head is zeros.
            if size < HEAD:
                together = np.pad(together, ((0, 0), (0, HEAD - size)))
        corrupt = None
        if self._checksum:
            corrupt = np.array(
                [not body_ok(row[before:].tobytes()) for whole in wholes for row in whole], np.bool_
            )
        return _Part(
            numbers,
            [len(block) for block in blocks],
            together,
            _sizes(len(together), size),
            corrupt,
        )

    def _read(self, arrival: Arrival, number: int) -> _Part:
        """Read one arrival, message by message."""
        data = memoryview(arrival.data)
        if not arrival.messages and data:
            return _Part([number], [1], self._heads([data]), _sizes(1, len(data)))
        if not arrival.messages:
            # A message without a byte has no envelope, so it is foreign.
            return _Part(
                [number],
                [1],
                np.zeros((1, HEAD), np.uint8),
                _sizes(1, 0),
                np.array([self._checksum]),
            )
        try:
            batch = self._reader.messages(data, arrival.messages)
        except ProtocolError:
            return _Part(
                [number],
                [1],
                np.frombuffer(self._damaged, np.uint8).reshape(1, HEAD),
                _sizes(1, max(len(data), HEAD)),
            )
        chosen = range(arrival.messages) if arrival.chosen is None else arrival.chosen.tolist()
        bodies = [
            data[start : start + size]
            for start, size in zip(batch.starts.tolist(), batch.sizes.tolist(), strict=True)
        ]
        if self._outside:
            heads = carried_heads(self._carrier, [batch.values[i] for i in chosen])
        else:
            heads = self._heads([bodies[i] for i in chosen])
        order = None
        if self._keyed and batch.keys is not None:
            order = np.array([key_number(batch.keys[i] or "") for i in chosen], np.int64)
        corrupt = None
        if self._checksum:
            corrupt = np.array([not body_ok(bytes(bodies[i])) for i in chosen], np.bool_)
        sizes = batch.sizes if arrival.chosen is None else batch.sizes[arrival.chosen]
        return _Part(
            [number],
            [len(sizes)],
            heads,
            sizes,
            corrupt,
            order,
        )

    def _heads(self, bodies: Sequence[memoryview]) -> NDArray[np.uint8]:
        """Return the envelopes of messages."""
        if self._tokens is not None:
            find = self._tokens.digits
            return decode_digits([find(bytes(body), 0, len(body)) for body in bodies])
        joined = b"".join([bytes(body[:HEAD]).ljust(HEAD, b"\0") for body in bodies])
        return np.frombuffer(joined, np.uint8).reshape(-1, HEAD)


class _Form(NamedTuple):
    """The attributes of a payload pool that ``encode_heads`` needs."""

    marks: NDArray[np.uint32]
    head_size: NDArray[np.uint8]
    compact: bool


def damaged_head(nonce: int) -> bytes:
    """Return a head of this run that is detected as damaged: one bit of its check is wrong.

    It has the full form in every run.
    """
    zero = np.zeros(1, np.int64)
    form = _Form(marks(zero.astype(np.int16)), np.full(1, HEAD, np.uint8), compact=False)
    stream = zero.astype(np.int32)
    payload = zero.astype(np.uint16)
    head = encode_heads(form, nonce=nonce, stream=stream, seq=zero, intended=zero, payload=payload)
    head[0, 12] ^= 1
    return head.tobytes()


def _sizes(count: int, size: int) -> NDArray[np.int32]:
    return np.full(count, size, np.int32)


def _all_begin(blocks: Sequence[NDArray[np.uint8]], front: _Front) -> bool:
    first = np.frombuffer(front.first, np.uint8)
    rest = np.frombuffer(front.rest, np.uint8)
    rest_start = front.length - len(rest)
    for block in blocks:
        if len(block) == 1:
            continue
        if not np.all(block[:, : len(first)] == first):
            return False
        if front.rest and not np.all(block[:, rest_start : front.length] == rest):
            return False
    return True


def _concatenated(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _received(
    arrivals: Sequence[Arrival], parts: Sequence[_Part], body: Callable[..., bytes]
) -> Received:
    """Join the parts and sort their messages by arrival.

    If arrivals 0, 1 and 2 have two, one and three messages, and the first part has those of 0 and
    2, the second those of 1, then ``which`` is 0 0 2 2 2 1, and ``turn`` is 0 1 5 2 3 4.

    :param body: returns the body of a message, as ``ArrivalReader._body``.
    """
    numbers = np.array([number for part in parts for number in part.numbers])
    counts = np.array([count for part in parts for count in part.counts])
    heads = [part.heads for part in parts]
    sizes = [part.sizes for part in parts]
    which = np.repeat(numbers, counts)
    facts = list(zip(*arrivals, strict=True))[:5]
    place, time, lag, order, flags = (np.array(fact, np.int64) for fact in facts)
    received = Received(
        consumer=place.take(which).astype(np.int32),
        heads=_concatenated(heads),
        size=_concatenated(sizes),
        time=time.take(which),
        order=order.take(which),
        flags=flags.take(which).astype(np.int8),
        lag=lag.take(which),
        bodies=partial(body, arrivals, which),
    )
    done = 0
    for part in parts:
        rows = slice(done, done := done + len(part.sizes))
        if part.corrupt is not None:
            received.flags[rows] |= np.where(part.corrupt, _CORRUPT, np.int8(0))
        if part.order is not None:
            # The number of the output topic is that of the entry.
            output = received.order[rows] >> OUTPUT_BITS << OUTPUT_BITS
            received.order[rows] = output | part.order
    if len(parts) == 1:
        return received
    turn = np.argsort(which, kind="stable")
    columns = {
        name: getattr(received, name)[turn]
        for name in ("consumer", "heads", "size", "time", "order", "flags", "lag")
    }
    return Received(**columns, bodies=partial(body, arrivals, which[turn]))
