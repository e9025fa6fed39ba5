"""Messages in a loopback relay, as columns.

They are of any runs, topics and streams, in order of arrival.
"""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from pytest_loadtest.values.records import immutable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray


Index: TypeAlias = "NDArray[np.intp] | None"
"""Positions of messages, in the order of delivery; None: all messages in their order."""

STREAM: Final = (1 << 32) - 1  # mask of the stream in ``producer``
# Bytes of a message. Scattered messages of one size below this are copied in one call, which is
# cheaper than many small buffers.
_COPY_BELOW: Final = 2048


@immutable
class Batch:
    """Columns of one length.

    :param topic: int64, identifies run and topic.
    :param producer: int64, identifies sender and stream; the lower half is the stream.
    :param seq: int64, number of the message in its stream.
    :param size: int32. :param payload: uint8, the concatenated payloads.
    """

    topic: NDArray[np.int64]
    producer: NDArray[np.int64]
    seq: NDArray[np.int64]
    size: NDArray[np.int32]
    payload: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.size)

    def offsets(self) -> NDArray[np.int64]:
        """Return the start of each payload, and the end of the last; int64 ``(n + 1,)``."""
        return np.concatenate([[0], np.cumsum(self.size, dtype=np.int64)])

    def split(self, count: int) -> tuple[Batch, Batch]:
        """Return the first ``count`` messages, and the rest."""
        at = int(self.size[:count].sum(dtype=np.int64))
        return self._cut(slice(None, count), self.payload[:at]), self._cut(
            slice(count, None), self.payload[at:]
        )

    def where(self, mask: NDArray[np.bool_]) -> Batch:
        """Return the messages for which ``mask`` is true; copied unless these are all."""
        return self.take(None if mask.all() else np.flatnonzero(mask))

    def take(self, index: Index) -> Batch:
        """Return the messages at an index; copied unless it is None."""
        if index is None:
            return self
        return self._cut(index, np.frombuffer(b"".join(self.pieces(index)), np.uint8))

    def _cut(self, index: slice | NDArray[np.intp], payload: NDArray[np.uint8]) -> Batch:
        return Batch(
            self.topic[index], self.producer[index], self.seq[index], self.size[index], payload
        )

    def pieces(self, index: Index) -> list[memoryview]:
        """Return the payloads of these messages as buffers in their order.

        Not copied, except many small ones.
        """
        if index is None:
            return [self.payload.data]
        if not len(index):
            return []
        # Neighbours whose payloads lie one after the other are one buffer.
        breaks = np.flatnonzero(np.diff(index) != 1) + 1
        size = int(self.size[0])
        if len(breaks) > 1 and 0 < size < _COPY_BELOW and (self.size == size).all():
            return [self.payload.reshape(len(self), size).take(index, axis=0).data.cast("B")]
        offsets = self.offsets()
        firsts = index[np.concatenate([[0], breaks])]
        lasts = index[np.concatenate([breaks, [len(index)]]) - 1]
        payload = self.payload.data
        return [
            payload[start:end]
            for start, end in zip(
                offsets[firsts].tolist(), offsets[lasts + 1].tolist(), strict=True
            )
        ]


def pick(column: NDArray[Any], index: Index) -> NDArray[Any]:
    """Return the elements of a column at an index."""
    return column if index is None else column.take(index)


def compose_index(outer: Index, inner: Index) -> Index:
    """Return the index that applies ``outer`` and then ``inner``."""
    return inner if outer is None else pick(outer, inner)


def join_batches(batches: Sequence[Batch]) -> Batch:
    """Concatenate at least one batch."""
    if len(batches) == 1:
        return batches[0]
    columns = ("topic", "producer", "seq", "size", "payload")
    joined = []
    for name in columns:
        joined.append(np.concatenate([getattr(batch, name) for batch in batches]))
    return Batch(*joined)


def merge_small_batches(batches: Iterable[Batch], most: int = 1 << 18) -> list[Batch]:
    """Join neighbouring batches.

    At most ``most`` bytes of payload are copied at a time.
    """
    bundles: list[list[Batch]] = []
    room = 0
    for batch in batches:
        if not bundles or len(batch.payload) > room:
            bundles.append([])
            room = most
        bundles[-1].append(batch)
        room -= len(batch.payload)
    return list(map(join_batches, bundles))


class _Waiting(NamedTuple):
    """Delayed messages of one batch, the earliest first.

    :param number: orders batches with the same first time by arrival.
    :param due: int64 ns of the relay's clock, ascending.
    """

    first: int
    number: int
    due: NDArray[np.int64]
    batch: Batch


class DelayQueue:
    """Acknowledged messages that wait until they are due.

    They are then released in the order of these times, never early.
    """

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._numbers = itertools.count()

    @property
    def count(self) -> int:
        return sum(len(waiting.due) for waiting in self._waiting)

    def add(self, batch: Batch, due: NDArray[np.int64]) -> None:
        """Add messages. :param due: int64 ns of the relay's clock, for each message."""
        # Sorted once here, so that release() only splits at one position.
        order = np.argsort(due, kind="stable")
        self._push(next(self._numbers), batch.take(order), due[order])

    def _push(self, number: int, batch: Batch, due: NDArray[np.int64]) -> None:
        if len(due):
            heapq.heappush(self._waiting, _Waiting(int(due[0]), number, due, batch))

    def next_due(self) -> int | None:
        """Return when the next message is due, ns; None: no message waits."""
        return self._waiting[0].first if self._waiting else None

    def release(self, now: int) -> Batch | None:
        """Remove and return the messages that are due, in the order of their times.

        None if there are none.
        """
        batches = []
        times = []
        while self._waiting and self._waiting[0].first <= now:
            _, number, due, batch = heapq.heappop(self._waiting)
            count = int(np.searchsorted(due, now, side="right"))
            ready, rest = batch.split(count)
            batches.append(ready)
            times.append(due[:count])
            # With the same number: the rest also arrived before what was added in the meantime.
            self._push(number, rest, due[count:])
        # A stable sort: messages with the same due time leave in order of arrival.
        return (
            join_batches(batches).take(np.argsort(np.concatenate(times), kind="stable"))
            if batches
            else None
        )


_SMALL: Final = 1 << 16  # bytes of payload; smaller batches of held copies are joined


class HeldCopies:
    """Messages that wait for paused consumers, each with the key of its consumer."""

    def __init__(self) -> None:
        self._copies: list[tuple[Batch, NDArray[np.int64]]] = []

    @property
    def count(self) -> int:
        return sum(len(keys) for _, keys in self._copies)

    def add(self, batch: Batch, keys: NDArray[np.int64]) -> None:
        """Add a batch with one message for each of these consumers."""
        # During a long pause many small batches arrive. Joined, they
        # cost one entry and one search in take().
        if self._copies and len(self._copies[-1][0].payload) < _SMALL:
            last, of = self._copies.pop()
            batch = join_batches([last, batch])
            keys = np.concatenate([of, keys])
        self._copies.append((batch, keys))

    def take(self, keys: NDArray[np.int64]) -> list[tuple[Batch, NDArray[np.int64]]]:
        """Remove and return the messages for these consumers, in order."""
        if not self._copies:
            return []
        ends = np.cumsum([len(of) for _, of in self._copies])
        masks = np.split(np.isin(np.concatenate([of for _, of in self._copies]), keys), ends[:-1])
        waited = [(batch, of, mask) for (batch, of), mask in zip(self._copies, masks, strict=True)]
        self._copies = [
            (batch.where(~mask), of[~mask]) for batch, of, mask in waited if not mask.all()
        ]
        return [(batch.where(mask), of[mask]) for batch, of, mask in waited if mask.any()]
