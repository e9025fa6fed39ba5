"""Entries that came → columns of messages, many entries at once."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pytest_loadtest.drivers.base import Received
from pytest_loadtest.drivers.pulsar.names import key_number
from pytest_loadtest.message.envelope import HEAD, encode_heads, marks
from pytest_loadtest.message.payloads import body_ok
from pytest_loadtest.message.samples import Flag
from pytest_loadtest.wire.pulsar.framing import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.wire.pulsar.batches import BatchReader

    Buffer = bytes | memoryview

_JOIN_BELOW: Final = 1 << 15  # bytes: entries that are smaller on average are read as one
_CORRUPT: Final = np.int8(Flag.CORRUPT)


class Arrival(NamedTuple):
    """One entry for one consumer.

    :param place: of the consumer. :param time: ns. :param order: what order is judged within. :param flags: of all its messages.
    :param messages: in its batch; 0: it is one message and no batch. :param data: its payload, decompressed.
    :param chosen: which messages of the batch are meant; None: all.
    """

    place: int
    time: int
    order: int
    flags: int
    messages: int
    data: Buffer
    chosen: NDArray[np.intp] | None = None


class _Part(NamedTuple):
    """Messages of some arrivals: of each arrival its number and how many it has; the rest by message."""

    numbers: list[int]
    counts: list[int]
    heads: NDArray[np.uint8]
    sizes: NDArray[np.int32]
    corrupt: NDArray[np.bool_] | None = None
    order: NDArray[np.int64] | None = None


class ArrivalReader:
    """:param damaged: the head of a message that stands for an entry that cannot be read: a full form.
    :param checksum: bodies are verified.
    :param keyed: order is judged by key.
    """

    def __init__(self, reader: BatchReader, damaged: bytes, *, checksum: bool, keyed: bool) -> None:
        self._reader, self._damaged, self._checksum, self._keyed = reader, damaged, checksum, keyed

    def columns(self, came: Sequence[Arrival]) -> Received:
        """The messages of at least one arrival, in the order in which they came."""
        even: defaultdict[tuple[bytes, int], list[int]] = defaultdict(list)
        odd: list[int] = []
        for number, (_, _, _, _, count, data, chosen) in enumerate(came):
            length = len(data) // count if count else len(data)
            before = 0
            if count:
                before = self._even(data, count) or -1
            if before < 0 or chosen is not None or not length:
                odd.append(number)
            else:
                even[bytes(data[:before]), length].append(number)
        parts = [self._read_even(came, numbers, front, length, odd) for (front, length), numbers in even.items()]
        parts += [self._read(came[number], number) for number in odd]
        return _received(came, [part for part in parts if part.numbers])

    def _even(self, data: Buffer, count: int) -> int | None:
        try:
            return self._reader.even(memoryview(data), count)
        except ProtocolError:
            return None

    def _read_even(self, came: Sequence[Arrival], numbers: list[int], front: bytes, length: int, odd: list[int]) -> _Part:
        """Arrivals whose messages all look like each other; those that only look so at first are added to ``odd``."""
        before = len(front)
        blocks = [np.frombuffer(came[number].data, np.uint8).reshape(-1, length) for number in numbers]
        if len(blocks) > 1 and sum(block.size for block in blocks) < _JOIN_BELOW * len(blocks):
            wholes = [np.frombuffer(b"".join([came[number].data for number in numbers]), np.uint8).reshape(-1, length)]
        else:
            wholes = blocks
        if before and not _all_begin(wholes, front):
            good = [number for number, block in zip(numbers, blocks, strict=True) if _all_begin([block], front)]
            odd += sorted(set(numbers) - set(good))
            return self._read_even(came, good, front, length, odd) if good else _Part([], [], np.empty((0, HEAD), np.uint8), _sizes(0, 0))
        heads = [whole[:, before : before + HEAD] for whole in wholes]
        together = heads[0] if len(heads) == 1 else np.concatenate(heads)
        size = length - before
        if size < HEAD:
            together = np.pad(together, ((0, 0), (0, HEAD - size)))
        corrupt = None
        if self._checksum:
            corrupt = np.array([not body_ok(row[before:].tobytes()) for whole in wholes for row in whole], np.bool_)
        return _Part(numbers, [len(block) for block in blocks], together, _sizes(len(together), size), corrupt)

    def _read(self, arrival: Arrival, number: int) -> _Part:
        """One arrival, message by message."""
        data = memoryview(arrival.data)
        if not arrival.messages:  # one message without a byte: nobody's of ours
            return _Part([number], [1], np.zeros((1, HEAD), np.uint8), _sizes(1, 0), np.array([self._checksum]))
        try:
            found = self._reader.messages(data, arrival.messages)
        except ProtocolError:
            return _Part([number], [1], np.frombuffer(self._damaged, np.uint8).reshape(1, HEAD), _sizes(1, max(len(data), HEAD)))
        chosen = range(arrival.messages) if arrival.chosen is None else arrival.chosen.tolist()
        bodies = [data[start : start + size] for start, size in zip(found.starts.tolist(), found.sizes.tolist(), strict=True)]
        heads = b"".join([bytes(bodies[i][:HEAD]).ljust(HEAD, b"\0") for i in chosen])
        order = None
        if self._keyed and found.keys is not None:
            order = np.array([key_number(found.keys[i] or "") for i in chosen], np.int64)
        corrupt = np.array([not body_ok(bytes(bodies[i])) for i in chosen], np.bool_) if self._checksum else None
        sizes = found.sizes if arrival.chosen is None else found.sizes[arrival.chosen]
        return _Part([number], [len(sizes)], np.frombuffer(heads, np.uint8).reshape(-1, HEAD), sizes, corrupt, order)


class _Form(NamedTuple):
    """What the envelope asks of a pool."""

    marks: NDArray[np.uint32]
    head_size: NDArray[np.uint8]
    compact: bool


def damaged_head(nonce: int) -> bytes:
    """One that is known as ours and as damaged: one bit of its check is wrong. The full form, also where the run has compact ones."""
    zero = np.zeros(1, np.int64)
    form = _Form(marks(zero.astype(np.int16)), np.full(1, HEAD, np.uint8), compact=False)
    stream, payload = zero.astype(np.int32), zero.astype(np.uint16)
    head = encode_heads(form, nonce=nonce, stream=stream, seq=zero, intended=zero, payload=payload)
    head[0, 12] ^= 1
    return head.tobytes()


def _sizes(count: int, size: int) -> NDArray[np.int32]:
    return np.full(count, size, np.int32)


def _all_begin(blocks: Sequence[NDArray[np.uint8]], front: bytes) -> bool:
    wanted = np.frombuffer(front, np.uint8)
    return all(len(block) == 1 or bool(np.all(block[:, : len(front)] == wanted)) for block in blocks)


def _received(came: Sequence[Arrival], parts: Sequence[_Part]) -> Received:
    """Parts in the order of their arrivals."""
    numbers = np.array([number for part in parts for number in part.numbers])
    counts = np.array([count for part in parts for count in part.counts])
    heads = [part.heads for part in parts]
    sizes = [part.sizes for part in parts]
    which = np.repeat(numbers, counts)
    place, time, order, flags = (np.array(column, np.int64) for column in list(zip(*came, strict=True))[:4])
    found = Received(
        consumer=place.take(which).astype(np.int32),
        heads=heads[0] if len(heads) == 1 else np.concatenate(heads),
        size=sizes[0] if len(sizes) == 1 else np.concatenate(sizes),
        time=time.take(which),
        order=order.take(which),
        flags=flags.take(which).astype(np.int8),
    )
    done = 0
    for part in parts:
        rows = slice(done, done := done + len(part.sizes))
        if part.corrupt is not None:
            found.flags[rows] |= np.where(part.corrupt, _CORRUPT, np.int8(0))
        if part.order is not None:
            found.order[rows] = part.order
    if len(parts) == 1:
        return found
    turn = np.argsort(which, kind="stable")
    return Received(*(getattr(found, name)[turn] for name in ("consumer", "heads", "size", "time", "order", "flags")))
