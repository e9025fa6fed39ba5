"""Which messages go into which batch, and to which partition: columns in, columns out, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.wire.pulsar.batches import prefix

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.int64]
    from collections.abc import Sequence

    from pytest_loadtest.message.payloads import PayloadPool

    Buffer = bytes | memoryview


_SWITCH: Final = 10  # publish delays that a producer stays with a partition: Java's batchingPartitionSwitchFrequencyByPublishDelay
_BEFORE: Final = len(prefix(2**31 - 1, b"key-%d" % (2**31 - 1)))  # bytes before a message in a batch, at most


class BatchLimits(NamedTuple):
    """Of one batch. :param messages: 0: no limit. :param size: bytes of payload. :param delay: ns that its first message may wait."""

    messages: int
    size: int
    delay: int

    def within(self, room: int, smallest: int) -> BatchLimits:
        """The same so that a batch takes at most ``room`` bytes with what stands before each of its messages.

        :param smallest: bytes of payload that each message has at least.
        """
        return self._replace(size=min(self.size, room * smallest // (smallest + _BEFORE)))


class Batches(NamedTuple):
    """Batches that are to go now.

    :param order: positions of messages, batch by batch; None: all, as they stand.
    :param starts: of each batch, its first place in ``order``. :param stops: one past its last. :param sizes: bytes of payload.
    :param kept: positions of the messages that wait on, ascending; None: none does.
    """

    order: Column | None
    starts: list[int]
    stops: list[int]
    sizes: list[int]
    kept: Column | None


def form_batches(group: Column, size: Column, since: Column, now: int, limits: BatchLimits) -> Batches:
    """Batches of messages that stand in the order in which they came, at least one.

    :param group: of each message, what it may be in one batch with: its producer at a partition, and its key where keys must not mix.
    :param since: ns, when it came.
    """
    most = limits.messages or len(group)
    order, starts = _groups(group)
    ripe = now - limits.delay
    if order is None and len(group) <= most and since[0] <= ripe and (total := int(np.add.reduce(size))) <= limits.size:
        return Batches(None, [0], [len(group)], [total], None)
    stops = np.empty_like(starts)
    stops[:-1], stops[-1] = starts[1:], len(group)
    counts = stops - starts
    ordered_size = size if order is None else size[order]
    bytes_ = np.add.reduceat(ordered_size, starts)
    due = since[starts if order is None else order[starts]] <= ripe
    if due.all() and int(counts.max()) <= most and int(bytes_.max()) <= limits.size:
        return Batches(order, starts.tolist(), stops.tolist(), bytes_.tolist(), None)
    return _cut(order, starts, counts, bytes_, due, ordered_size, most, limits.size)


def _groups(group: Column) -> tuple[Column | None, Column]:
    """:returns: positions by group, None where there is only one; and where each group begins."""
    if not np.count_nonzero(group != group[0]):
        return None, np.zeros(1, np.int64)
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    first = np.empty(len(group), np.bool_)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return order, np.flatnonzero(first)


def _cut(
    order: Column | None, starts: Column, counts: Column, bytes_: Column, due: NDArray[np.bool_], size: Column, most: int,
    most_bytes: int,
) -> Batches:  # fmt: skip
    """The same where some groups wait, or are more than one batch."""
    begins: list[int] = []
    ends: list[int] = []
    sums = np.zeros(len(size) + 1, np.int64)
    np.cumsum(size, out=sums[1:])
    kept: list[Column] = []
    for start, count, total, ripe in zip(starts.tolist(), counts.tolist(), bytes_.tolist(), due.tolist(), strict=True):
        stop = start + count
        place = start
        if ripe or count >= most or total >= most_bytes:
            for end in _ends(size[start:stop], most, most_bytes, whole=ripe):
                begins.append(place)
                place = start + end
                ends.append(place)
        if place < stop:
            kept.append(np.arange(place, stop))
    sizes = (sums[ends] - sums[begins]).tolist() if begins else []
    if not kept:
        return Batches(order, begins, ends, sizes, None)
    left = np.concatenate(kept)
    return Batches(order, begins, ends, sizes, np.sort(left if order is None else order[left]))


def _ends(size: Column, most: int, most_bytes: int, *, whole: bool) -> list[int]:
    """Where batches end, each as long as it may be; the last one only if it is full, or ``whole``."""
    ends: list[int] = []
    sums = np.cumsum(size, dtype=np.int64)
    place = before = 0
    while place < len(size):
        fits = int(np.searchsorted(sums, before + most_bytes, side="right"))
        end = min(max(fits, place + 1), place + most)
        if end == len(size) and not whole and end - place < most and int(sums[-1]) - before < most_bytes:
            break
        ends.append(end)
        place, before = end, int(sums[end - 1])
    return ends


class Partitioner:
    """Which partition of its topic a message goes to, as Pulsar's clients choose: by the hash of its key, or in turn.

    In turn, and with batches, a producer stays with a partition so that they fill: for ten publish delays, as the Java client, and for as
    many messages as a batch may have, as the C++ client.

    :param partitions: of each topic. :param limits: of a batch; of one message where there are no batches.
    """

    def __init__(self, partitions: int, limits: BatchLimits) -> None:
        self._partitions, self._most, self._stay = partitions, limits.messages, limits.delay * _SWITCH
        self._of_key = np.empty(0, np.int64)

    def choose(self, stream: NDArray[np.int32], seq: Column, intended: Column, key: NDArray[np.int32] | None) -> Column:
        """Of each message."""
        if self._partitions == 1:
            return np.zeros(len(seq), np.int64)
        if key is not None:
            most = int(key.max()) + 1
            if most > len(self._of_key):
                more = [java_hash(f"key-{number}") % self._partitions for number in range(len(self._of_key), most)]
                self._of_key = np.concatenate([self._of_key, np.array(more, np.int64)])
            return self._of_key.take(key)
        turn = stream.astype(np.int64)
        if self._most:
            turn += seq // self._most
        if self._stay:
            turn += intended // self._stay
        chosen: Column = turn % self._partitions
        return chosen


def java_hash(text: str) -> int:
    """``String.hashCode()`` of ASCII text without its sign, the Java client's default (``HashingScheme.JavaStringHash``)."""
    value = 0
    for code in text.encode("ascii"):
        value = (31 * value + code) & 0xFFFF_FFFF
    return value & 0x7FFF_FFFF


# Envelopes and payload numbers → the payloads of entries.

_TABLE_BELOW: Final = 2048  # bytes: larger bodies are handed to the socket where they lie
_JOIN_BELOW: Final = 2048  # bytes a message on average: smaller ones are put together


class EntryPacker:
    """:param batched: whether payloads are batches, where every message has a prefix of its own."""

    def __init__(self, pool: PayloadPool, *, batched: bool) -> None:
        self._pool, self._batched = pool, batched
        self._heads = pool.head_size.tolist()
        sizes = pool.sizes.tolist()
        self._prefixes = [prefix(size) if batched else b"" for size in sizes]
        self._table: NDArray[np.uint8] | None = None
        if len(set(sizes)) == 1 and sizes[0] < _TABLE_BELOW:
            rows = [front + bytes(head) + body for front, head, body in zip(self._prefixes, self._heads, pool.bodies, strict=True)]
            self._table = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)

    def pack(
        self, heads: NDArray[np.uint8], payload: NDArray[np.uint16], key: NDArray[np.int32] | None, starts: Sequence[int],
        stops: Sequence[int],
    ) -> list[list[Buffer]]:  # fmt: skip
        """Of each entry, its payload.

        :param heads: of the messages, ``(n, 32)``. :param starts: where entries begin among them. :param stops: where they end.
        """
        if self._table is not None and (key is None or not self._batched):
            return self._pack_even(heads, payload, starts, stops)
        fronts = heads.tobytes()
        numbers = payload.tolist()
        prefixes = [self._prefixes[number] for number in numbers]
        if key is not None and self._batched:
            sizes = self._pool.sizes.take(payload).tolist()
            prefixes = [prefix(size, b"key-%d" % each) for size, each in zip(sizes, key.tolist(), strict=True)]
        return [self._parts(fronts, numbers, prefixes, start, stop) for start, stop in zip(starts, stops, strict=True)]

    def _pack_even(
        self, heads: NDArray[np.uint8], payload: NDArray[np.uint16], starts: Sequence[int], stops: Sequence[int]
    ) -> list[list[Buffer]]:
        assert self._table is not None
        rows, before = self._table.take(payload, axis=0), len(self._prefixes[0])
        length, head = rows.shape[1], self._heads[0]
        rows[:, before : before + head] = heads[:, :head]
        whole = rows.data.cast("B")
        return [[whole[start * length : stop * length]] for start, stop in zip(starts, stops, strict=True)]

    def _parts(self, fronts: bytes, numbers: list[int], prefixes: list[bytes], start: int, stop: int) -> list[Buffer]:
        parts: list[Buffer] = []
        bodies = self._pool.bodies
        for place in range(start, stop):
            number = numbers[place]
            at = place * HEAD
            parts += (prefixes[place] + fronts[at : at + self._heads[number]], bodies[number])
        if sum(map(len, parts)) < _JOIN_BELOW * (stop - start):
            return [b"".join(parts)]
        return [part for part in parts if len(part)]
