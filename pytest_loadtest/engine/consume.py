"""What consumers got: whose it is, whether it came in order, and which rows of it are recorded.

Arrivals are stamped by the driver, so they may be looked at much later, many at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.envelope import FOREIGN, OURS, decode_heads
from pytest_loadtest.samples import Flag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers._base import Consumer, Received
    from pytest_loadtest.topology import ConsumerSpec

_LATE: Final = np.int8(Flag.LATE)


@dataclass(slots=True)
class ReceiveCounts:
    """Copies of the current phase so far; foreign, corrupt and stragglers (of an earlier phase) apart."""

    received: int = 0
    foreign: int = 0
    corrupt: int = 0
    stragglers: int = 0


class Order:
    """Marks at one consumer what came after a higher sequence of the same stream and partition (or key)."""

    def __init__(self) -> None:
        self._highest: dict[tuple[int, int], int] = {}

    def late(self, stream: NDArray[np.int64], order: NDArray[np.int64], seq: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Rows, in arrival order, whose sequence is below the highest one seen before in their group."""
        late = np.zeros(len(seq), np.bool_)
        if (stream == stream[0]).all() and (order == order[0]).all():
            late[:] = self._group((int(stream[0]), int(order[0])), seq)
            return late
        rank = np.lexsort((order, stream))  # stable: arrival order is kept within a group
        edges = np.flatnonzero((np.diff(stream[rank]) != 0) | (np.diff(order[rank]) != 0)) + 1
        for rows in np.split(rank, edges):
            late[rows] = self._group((int(stream[rows[0]]), int(order[rows[0]])), seq[rows])
        return late

    def _group(self, group: tuple[int, int], seq: NDArray[np.int64]) -> NDArray[np.bool_]:
        before = self._highest.get(group, -1)
        highest = np.maximum.accumulate(np.concatenate([[before], seq]))
        self._highest[group] = int(highest[-1])
        result: NDArray[np.bool_] = seq < highest[:-1]
        return result


class Inbox:
    """Everything that one worker's consumers get.
    """

    def __init__(self, specs: Sequence[ConsumerSpec], consumers: Sequence[Consumer], *, nonce: int, ordered: bool) -> None:
        self.counts = ReceiveCounts()
        self._specs, self._consumers, self._nonce = specs, consumers, nonce
        self._orders = [Order() for _ in specs] if ordered else None

    def begin(self, first: NDArray[np.int64], end: NDArray[np.int64], compact_intended: CompactIntended) -> None:
        """A phase begins: stream ``s`` sends ``first[s] … end[s]-1``.

        :param compact_intended: intended time (ns) of (stream, seq) columns, for envelopes that leave it out.
        """
        self._first, self._end, self._compact_intended = first, end, compact_intended
        self.counts = ReceiveCounts()

    def collect(self) -> list[dict[str, NDArray[np.generic]]]:
        """Take what arrived; return the rows of the current phase as columns (samples.RECEIVED), one dict per consumer."""
        rows = []
        for i, consumer in enumerate(self._consumers):
            received = consumer.take()
            if received is not None and len(received.size):
                rows.append(self._rows(i, received))
        return rows

    def _rows(self, i: int, received: Received) -> dict[str, NDArray[np.generic]]:
        heads = decode_heads(received.heads, received.size, self._nonce)
        spec, ours = self._specs[i], heads.kind == OURS
        stream, flags = heads.stream, received.flags
        known = ours & (stream < len(self._first))
        stream = np.where(known, stream, 0).astype(np.int64)
        current = known & (heads.seq >= self._first[stream]) & (heads.seq < self._end[stream])
        self._count(heads.kind, int(np.count_nonzero(known)), int(np.count_nonzero(current)), len(stream))
        pick: slice | NDArray[np.bool_] = slice(None) if current.all() else current
        stream, seq, intended, flags = stream[pick], heads.seq[pick], heads.intended[pick], flags[pick]
        if self._orders is not None and len(seq):
            late = self._orders[i].late(stream, received.order[pick], seq)
            flags = np.where(late, flags | _LATE, flags)
        compact = intended < 0
        if compact.any():
            intended = np.where(compact, self._compact_intended(stream, seq), intended)
        return {
            "consumer": np.full(len(seq), spec.index, np.int32), "subscription": np.full(len(seq), spec.subscription, np.int32),
            "stream": stream, "topic": np.full(len(seq), spec.topic.index, np.int32), "bucket": heads.bucket[pick],
            "size": received.size[pick], "flags": flags, "seq": seq, "intended": intended, "received": received.time[pick],
        }  # fmt: skip

    def _count(self, kind: NDArray[np.uint8], known: int, current: int, n: int) -> None:
        self.counts.received += current
        if current < n:
            foreign = int(np.count_nonzero(kind == FOREIGN))
            self.counts.stragglers += known - current
            self.counts.foreign += foreign + int(np.count_nonzero(kind == OURS)) - known
            self.counts.corrupt += n - foreign - int(np.count_nonzero(kind == OURS))


class CompactIntended:
    """The intended time of messages whose envelope leaves it out: the plan's arithmetic."""

    def __init__(self, start: int, numerator: int, denominator: int, streams: int, first: NDArray[np.int64]) -> None:
        self._start, self._numerator, self._denominator, self._streams, self._first = start, numerator, denominator, streams, first

    def __call__(self, stream: NDArray[np.int64], seq: NDArray[np.int64]) -> NDArray[np.int64]:
        number = (stream + (seq - self._first[stream]) * self._streams) * self._denominator
        seconds, rest = np.divmod(number, self._numerator)
        times: NDArray[np.int64] = self._start + seconds * 1_000_000_000 + rest * 1_000_000_000 // self._numerator
        return times
