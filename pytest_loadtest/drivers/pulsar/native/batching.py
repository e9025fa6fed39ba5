"""Grouping of messages into batches and partitions, and the payloads of their entries.

Columns in, columns out, no I/O.
"""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.route import PROPERTY
from pytest_loadtest.message.token import TOKEN, encode_tokens, token_columns
from pytest_loadtest.wire.pulsar.batches import prefix
from pytest_loadtest.wire.pulsar.entries import property_front

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.int64]
    from collections.abc import Sequence

    from pytest_loadtest.message.payloads import PayloadPool

    Buffer = bytes | memoryview


# Publish delays that a producer stays with a partition: the Java client's
# batchingPartitionSwitchFrequencyByPublishDelay.
_SWITCH: Final = 10
_BEFORE: Final = len(
    prefix(2**31 - 1, b"key-%d" % (2**31 - 1))
)  # most bytes before a message in a batch


_FRONT: Final = property_front(1, PROPERTY, TOKEN)


class BatchLimits(NamedTuple):
    """The limits of a batch.

    :param messages: 0: no limit.
    :param size: bytes of payload.
    :param delay: ns that its first message waits.
    """

    messages: int
    size: int
    delay: int

    def within(self, room: int, smallest: int, *, outside: bool = False) -> BatchLimits:
        """Return a copy with ``size`` capped to fit into ``room`` bytes.

        Payloads and per-message headers count.

        :param smallest: bytes of the smallest payload.
        :param outside: the envelope is a property.
        """
        whole = smallest + _BEFORE + (len(_FRONT) + TOKEN if outside else 0)
        return self._replace(size=min(self.size, room * smallest // whole))


class Batches(NamedTuple):
    """The batches to send now.

    :param order: positions of messages, batch by batch; None: all, in their order.
    :param starts: index in ``order`` of each batch's first message.
    :param stops: one past its last.
    :param sizes: bytes of payload.
    :param kept: positions of the messages that keep waiting, ascending; None: there are none.
    """

    order: Column | None
    starts: list[int]
    stops: list[int]
    sizes: list[int]
    kept: Column | None


def form_batches(
    group: Column, size: Column, since: Column, now: int, limits: BatchLimits
) -> Batches:
    """Group at least one message into batches.

    :param group: for each message, in order of arrival: its producer and partition, with its key if
        a batch may hold only one key.
    :param since: for each message, its time of arrival, ns.
    """
    most = limits.messages or len(group)
    # Fast path: every message is a batch of its own.
    if most == 1:
        return single_batches(size)
    order, starts = _groups(group)
    ripe = now - limits.delay
    # Fast path: all messages are one batch.
    if (
        order is None
        and len(group) <= most
        and since[0] <= ripe
        and (total := int(np.add.reduce(size))) <= limits.size
    ):
        return Batches(None, [0], [len(group)], [total], None)
    stops = np.empty_like(starts)
    stops[:-1] = starts[1:]
    stops[-1] = len(group)
    counts = stops - starts
    ordered_size = size if order is None else size[order]
    bytes_ = np.add.reduceat(ordered_size, starts)
    due = since[starts if order is None else order[starts]] <= ripe
    # Fast path: every group is one batch.
    if due.all() and int(counts.max()) <= most and int(bytes_.max()) <= limits.size:
        return Batches(order, starts.tolist(), stops.tolist(), bytes_.tolist(), None)
    ordered_since = since if order is None else since[order]
    return _cut(
        order, starts, counts, bytes_, ordered_since <= ripe, ordered_size, most, limits.size
    )


def single_batches(size: Column) -> Batches:
    """Return a batch for each message."""
    starts = list(range(len(size)))
    return Batches(None, starts, [*starts[1:], len(starts)], size.tolist(), None)


def _groups(group: Column) -> tuple[Column | None, Column]:
    """:returns: positions sorted by group, None if there is only one group; and the start of each
    group.
    """
    if not np.count_nonzero(group != group[0]):
        return None, np.zeros(1, np.int64)
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    first = np.empty(len(group), np.bool_)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return order, np.flatnonzero(first)


def _cut(
    order: Column | None,
    starts: Column,
    counts: Column,
    bytes_: Column,
    due: NDArray[np.bool_],
    size: Column,
    most: int,
    most_bytes: int,
) -> Batches:
    """Return batches if some groups keep waiting or make several batches.

    :param due: for each message in order, its delay is over.
    """
    begins: list[int] = []
    ends: list[int] = []
    sums = np.zeros(len(size) + 1, np.int64)
    np.cumsum(size, out=sums[1:])
    kept: list[Column] = []
    for start, count, total in zip(starts.tolist(), counts.tolist(), bytes_.tolist(), strict=True):
        stop = start + count
        place = start
        if count >= most or total >= most_bytes:
            for end in _ends(size[start:stop], most, most_bytes):
                begins.append(place)
                place = start + end
                ends.append(place)
        # What is left after full batches is due when its own oldest message is.
        if place < stop and due[place]:
            begins.append(place)
            ends.append(stop)
        elif place < stop:
            kept.append(np.arange(place, stop))
    sizes = (sums[ends] - sums[begins]).tolist() if begins else []
    if not kept:
        return Batches(order, begins, ends, sizes, None)
    left = np.concatenate(kept)
    return Batches(order, begins, ends, sizes, np.sort(left if order is None else order[left]))


def _ends(size: Column, most: int, most_bytes: int) -> list[int]:
    """Return the ends of the longest possible batches; the last batch only if it is full."""
    ends = []
    sums = np.cumsum(size, dtype=np.int64)
    place = before = 0
    while place < len(size):
        fits = int(np.searchsorted(sums, before + most_bytes, side="right"))
        end = min(max(fits, place + 1), place + most)
        if end == len(size) and end - place < most and int(sums[-1]) - before < most_bytes:
            break
        ends.append(end)
        place = end
        before = int(sums[end - 1])
    return ends


class Partitioner:
    """The choice of partitions, as in Pulsar's clients.

    By the hash of the key, or round robin without keys.

    In round robin with batches, a producer stays with a partition so that
    batches fill: for ten publish delays, as in the Java client, and for as many
    messages as a batch may have, as in the C++ client.

    :param partitions: partitions of each topic.
    :param limits: limits of a batch; one message if batching is off.
    """

    def __init__(self, partitions: int, limits: BatchLimits) -> None:
        self._partitions = partitions
        self._most = limits.messages
        self._stay = limits.delay * _SWITCH
        self._of_key = np.empty(0, np.int64)

    def choose(
        self,
        stream: NDArray[np.int32],
        seq: Column,
        intended: Column,
        key: NDArray[np.int32] | None,
    ) -> Column:
        """Return the partition of each message."""
        if key is not None:
            most = int(key.max()) + 1
            if most > len(self._of_key):
                more = [
                    java_hash(f"key-{number}") % self._partitions
                    for number in range(len(self._of_key), most)
                ]
                self._of_key = np.concatenate([self._of_key, np.array(more, np.int64)])
            return self._of_key.take(key)
        turn = stream.astype(np.int64)
        if self._most:
            turn += seq // self._most
        if self._stay:
            turn += intended // self._stay
        return turn % self._partitions


def java_hash(text: str) -> int:
    """Return ``String.hashCode()`` of ASCII text without its sign.

    The Java client's default (``HashingScheme.JavaStringHash``).
    """
    value = 0
    for code in text.encode("ascii"):
        value = (31 * value + code) & 0xFFFF_FFFF
    return value & 0x7FFF_FFFF


# Envelopes and payload numbers → the payloads of entries.

# Bytes: larger bodies are given to the socket without a copy.
_TABLE_BELOW: Final = 2048
# Bytes per message on average: smaller messages are joined into one
# buffer, because each buffer has a cost in sendmsg.
_JOIN_BELOW: Final = 2048


class EntryPacker:
    """:param batched: payloads are batches, in which every message has a prefix."""

    def __init__(self, pool: PayloadPool, *, batched: bool) -> None:
        self._pool = pool
        self._batched = batched
        self._heads = pool.head_size.tolist()
        # Of a message that is no batch, the property is in the metadata of its entry.
        self._carries = batched and pool.place.outside
        sizes = pool.sizes.tolist()
        if batched:
            self._prefixes = [self._prefix(size) for size in sizes]
        else:
            self._prefixes = [b""] * len(sizes)
        # If all messages have one size, a table of them (prefix, envelope, body) makes packing a
        # single take() and one copy of the envelopes.
        self._width = TOKEN if self._carries else self._heads[0]
        self._table: NDArray[np.uint8] | None = None
        if len(set(sizes)) == 1 and sizes[0] < _TABLE_BELOW and pool.filler is None:
            rows = [
                front + bytes(self._width) + body
                for front, body in zip(self._prefixes, pool.bodies, strict=True)
            ]
            self._table = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)

    def _prefix(self, size: int, key: bytes | None = None) -> bytes:
        """Return the bytes before the payload, up to the token if it is a property."""
        if self._carries:
            return prefix(size, key, _FRONT, TOKEN)
        return prefix(size, key)

    def pack(
        self,
        heads: NDArray[np.uint8],
        payload: NDArray[np.uint16],
        key: NDArray[np.int32] | None,
        starts: Sequence[int],
        stops: Sequence[int],
    ) -> list[list[Buffer]]:
        """Return the payload of each entry.

        :param heads: heads of the messages, ``(n, 32)``.
        :param starts: start of each entry among the messages.
        :param stops: its end.
        """
        if self._table is not None and (key is None or not self._batched):
            return self._pack_even(heads, payload, starts, stops)
        numbers = payload.tolist()
        prefixes = [self._prefixes[number] for number in numbers]
        if key is not None and self._batched:
            sizes = self._pool.sizes.take(payload).tolist()
            prefixes = [
                self._prefix(size, b"key-%d" % each)
                for size, each in zip(sizes, key.tolist(), strict=True)
            ]
        if self._carries:
            prefixes = list(map(add, prefixes, encode_tokens(heads)))
        if self._pool.filler is not None:
            messages = self._pool.filler.messages(heads, payload, key)
            whole = list(map(add, prefixes, messages))
            return [
                [b"".join(whole[start:stop])] for start, stop in zip(starts, stops, strict=True)
            ]
        fronts = heads.tobytes()
        return [
            self._parts(fronts, numbers, prefixes, start, stop)
            for start, stop in zip(starts, stops, strict=True)
        ]

    def _pack_even(
        self,
        heads: NDArray[np.uint8],
        payload: NDArray[np.uint16],
        starts: Sequence[int],
        stops: Sequence[int],
    ) -> list[list[Buffer]]:
        assert self._table is not None
        rows = self._table.take(payload, axis=0)
        before = len(self._prefixes[0])
        length = rows.shape[1]
        envelopes = token_columns(heads) if self._carries else heads[:, : self._width]
        rows[:, before : before + self._width] = envelopes
        whole = rows.data.cast("B")
        return [
            [whole[start * length : stop * length]]
            for start, stop in zip(starts, stops, strict=True)
        ]

    def _parts(
        self, fronts: bytes, numbers: list[int], prefixes: list[bytes], start: int, stop: int
    ) -> list[Buffer]:
        parts: list[Buffer] = []
        bodies = self._pool.bodies
        for place in range(start, stop):
            number = numbers[place]
            at = place * HEAD
            parts += (prefixes[place] + fronts[at : at + self._heads[number]], bodies[number])
        if sum(map(len, parts)) < _JOIN_BELOW * (stop - start):
            return [b"".join(parts)]
        return [part for part in parts if len(part)]
