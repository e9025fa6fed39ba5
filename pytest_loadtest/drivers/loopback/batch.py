"""Messages on their way through a loopback relay, as columns: of any runs, topics and streams, in the order in which they came."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray


Index: TypeAlias = "NDArray[np.intp] | None"
"""Which messages, in which order; None: all of them, as they are."""

STREAM: Final = (1 << 32) - 1  # the half of ``producer`` that is the stream
_COPY_BELOW: Final = 2048  # bytes a message: smaller ones of one size are put together in one go


@dataclass(frozen=True, slots=True)
class Batch:
    """Columns of one length.

    :param topic: int64, run and topic: the same for the same topic of the same run only.
    :param producer: int64, sender and stream: the same for the same stream of the same sender only; the lower half is the stream.
    :param seq: int64, number of the message in its stream.
    :param size: int32. :param payload: uint8, end to end.
    """

    topic: NDArray[np.int64]
    producer: NDArray[np.int64]
    seq: NDArray[np.int64]
    size: NDArray[np.int32]
    payload: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.size)

    def offsets(self) -> NDArray[np.int64]:
        """Where each payload starts; int64 ``(n + 1,)``."""
        return np.concatenate([[0], np.cumsum(self.size, dtype=np.int64)])

    def split(self, count: int) -> tuple[Batch, Batch]:
        """The first ``count`` messages, and the rest."""
        at = int(self.size[:count].sum(dtype=np.int64))
        return self._cut(slice(None, count), self.payload[:at]), self._cut(slice(count, None), self.payload[at:])

    def where(self, mask: NDArray[np.bool_]) -> Batch:
        """The messages at which ``mask`` is true; copies unless these are all."""
        return self.take(None if mask.all() else np.flatnonzero(mask))

    def take(self, index: Index) -> Batch:
        """These messages, in this order; copies unless these are all."""
        if index is None:
            return self
        return self._cut(index, np.frombuffer(b"".join(self.pieces(index)), np.uint8))

    def _cut(self, index: slice | NDArray[np.intp], payload: NDArray[np.uint8]) -> Batch:
        return Batch(self.topic[index], self.producer[index], self.seq[index], self.size[index], payload)

    def pieces(self, index: Index) -> list[memoryview]:
        """The payloads of these messages end to end, in this order; where they lie, unless that would be many small pieces."""
        if index is None:
            return [self.payload.data]
        if not len(index):
            return []
        breaks = np.flatnonzero(np.diff(index) != 1) + 1
        size = int(self.size[0])
        if len(breaks) > 1 and size < _COPY_BELOW and (self.size == size).all():
            return [self.payload.reshape(len(self), size).take(index, axis=0).data.cast("B")]
        offsets = self.offsets()
        firsts = index[np.concatenate([[0], breaks])]
        lasts = index[np.concatenate([breaks, [len(index)]]) - 1]
        payload = self.payload.data
        return [payload[start:end] for start, end in zip(offsets[firsts].tolist(), offsets[lasts + 1].tolist(), strict=True)]


def pick(column: NDArray[Any], index: Index) -> NDArray[Any]:
    """The rows of a column at an index."""
    return column if index is None else column.take(index)


def compose_index(outer: Index, inner: Index) -> Index:
    """An index into what an index picks, as an index into the whole."""
    return inner if outer is None else pick(outer, inner)


def join_batches(batches: Sequence[Batch]) -> Batch:
    """All messages of at least one batch, one behind the other."""
    if len(batches) == 1:
        return batches[0]
    columns = ("topic", "producer", "seq", "size", "payload")
    return Batch(*(np.concatenate([getattr(batch, name) for batch in batches]) for name in columns))


def bundle(batches: Iterable[Batch], most: int = 1 << 18) -> list[Batch]:
    """The same messages in fewer batches: neighbours are joined as long as that copies at most ``most`` bytes of payload."""
    bundles: list[list[Batch]] = []
    room = 0
    for batch in batches:
        if not bundles or len(batch.payload) > room:
            bundles.append([])
            room = most
        bundles[-1].append(batch)
        room -= len(batch.payload)
    return list(map(join_batches, bundles))


# Delayed messages in a loopback relay: they wait until their time, then leave in the order of their times, never early.


class _Waiting(NamedTuple):
    """Messages of one batch, the earliest first. :param due: int64 ns of the relay's clock, ascending."""

    first: int
    number: int  # of equal times those that came first leave first
    due: NDArray[np.int64]
    batch: Batch


class DelayQueue:
    """Acknowledged messages that wait until they are due."""

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._numbers = itertools.count()

    def add(self, batch: Batch, due: NDArray[np.int64]) -> None:
        """:param due: int64 ns of the relay's clock, of each message."""
        order = np.argsort(due, kind="stable")
        self._push(batch.take(order), due[order])

    def _push(self, batch: Batch, due: NDArray[np.int64]) -> None:
        if len(due):
            heapq.heappush(self._waiting, _Waiting(int(due[0]), next(self._numbers), due, batch))

    def next(self) -> int | None:
        """When the next message is due, ns; None: none waits."""
        return self._waiting[0].first if self._waiting else None

    def release(self, now: int) -> Batch | None:
        """All that is due, in the order of its times; None where nothing is."""
        batches, times = [], []
        while self._waiting and self._waiting[0].first <= now:
            _, _, due, batch = heapq.heappop(self._waiting)
            count = int(np.searchsorted(due, now, side="right"))
            ready, rest = batch.split(count)
            batches.append(ready)
            times.append(due[:count])
            self._push(rest, due[count:])
        return join_batches(batches).take(np.argsort(np.concatenate(times), kind="stable")) if batches else None
