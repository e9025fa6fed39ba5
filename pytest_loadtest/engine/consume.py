"""What consumers got: whose it is, whether it came in order, and which rows of it are recorded.

Arrivals are stamped by the driver, so they may be looked at much later, many at a time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pytest_loadtest.envelope import CORRUPT, FOREIGN, OURS, decode_heads
from pytest_loadtest.quantities import SECOND
from pytest_loadtest.samples import Flag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers._base import Consumer, Received
    from pytest_loadtest.envelope import Heads
    from pytest_loadtest.pacing import Pacer
    from pytest_loadtest.phases import Phase
    from pytest_loadtest.topology import ConsumerSpec

_LATE: Final = np.int8(Flag.LATE)
_NONE: Final = np.int8(0)


@dataclass(slots=True)
class ReceiveCounts:
    """Copies of the current phase so far; of the whole run: foreign, corrupt, stragglers (of an earlier phase, too late for it)."""

    over: list[int]
    received: int = 0
    foreign: int = 0
    corrupt: int = 0
    stragglers: int = 0


class Order:
    """Tells at one consumer what comes after a higher sequence of the same stream and partition (or key)."""

    def __init__(self) -> None:
        self._highest: dict[tuple[int, int], int] = {}
        self.repeats = 0

    def late(self, stream: NDArray[np.int64], order: NDArray[np.int64], seq: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Rows, in arrival order, whose sequence is below the highest one seen before in their group; None when there are none.

        Counts in ``repeats`` the rows that are not above it: only these can be second copies.
        """
        if not np.count_nonzero(stream != stream[0]) and not np.count_nonzero(order != order[0]):
            return self._group((int(stream[0]), int(order[0])), seq)
        late = np.zeros(len(seq), np.bool_)
        rank = np.lexsort((order, stream))  # stable: arrival order is kept within a group
        edges = np.flatnonzero((np.diff(stream[rank]) != 0) | (np.diff(order[rank]) != 0)) + 1
        for rows in np.split(rank, edges):
            found = self._group((int(stream[rows[0]]), int(order[rows[0]])), seq[rows])
            if found is not None:
                late[rows] = found
        return late

    def _group(self, group: tuple[int, int], seq: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        before = self._highest.get(group, -1)
        if int(seq[0]) > before and not np.count_nonzero(seq[1:] <= seq[:-1]):
            self._highest[group] = int(seq[-1])
            return None
        highest = np.maximum.accumulate(np.concatenate([[before], seq]))
        self._highest[group] = int(highest[-1])
        self.repeats += int(np.count_nonzero(seq <= highest[:-1]))
        result: NDArray[np.bool_] = seq < highest[:-1]
        return result


class Rows(NamedTuple):
    """Received rows of one consumer: columns that are the same in all of them, columns that are not, and how many there are."""

    constant: dict[str, int]
    columns: dict[str, NDArray[Any]]
    n: int


class Arrivals:
    """What a run without producers of its own gets in a phase: other people's messages, counted by the second.

    :param start: of the phase, ns. :param duration: ns; what comes later, even in the same second, is not counted.
    """

    def __init__(self, start: int, duration: int) -> None:
        self.seconds: Counter[int] = Counter()
        self.start, self.duration = start, duration

    def add(self, received: Received) -> None:
        """Those of them that came within the phase."""
        passed = received.time - self.start
        seconds, counts = np.unique(passed[(passed >= 0) & (passed < self.duration)] // SECOND, return_counts=True)
        self.seconds.update(dict(zip(seconds.tolist(), counts.tolist(), strict=True)))


class Inbox:
    """Everything that one worker's consumers get.

    :param bounds: latencies in ns; ``counts.over`` tells how many copies took longer than each.
    """

    def __init__(self, *, nonce: int, ordered: bool, bounds: Sequence[int] = ()) -> None:
        self.counts = ReceiveCounts(over=[0] * len(bounds))
        self._specs: list[ConsumerSpec] = []
        self._consumers: list[Consumer] = []
        self._orders: list[Order] = []
        self._nonce, self._ordered, self._bounds = nonce, ordered, bounds

    def add(self, spec: ConsumerSpec, consumer: Consumer) -> None:
        """One more consumer."""
        self._specs.append(spec)
        self._consumers.append(consumer)
        self._orders.append(Order())

    def begin(self, phase: Phase, start: int) -> None:
        """A phase begins; its messages have sequences from ``phase.first`` on."""
        self._first = np.array(phase.first, np.int64)
        self.repace(phase.pacer, start)
        self.counts.received, self.counts.over = 0, [0] * len(self._bounds)
        self.arrivals = Arrivals(start, phase.duration)
        for order in self._orders:
            order.repeats = 0

    def repace(self, pacer: Pacer, start: int) -> None:
        """The rate has changed: so have the intended times that compact envelopes leave out."""
        self.pacer, self._start = pacer, start

    def _compact_intended(self, stream: NDArray[np.int64], seq: NDArray[np.int64]) -> NDArray[np.int64]:
        """The intended time of messages whose envelope leaves it out: the plan's arithmetic."""
        return self._start + self.pacer.times(stream + (seq - self._first[stream]) * self.pacer.streams)

    @property
    def repeats(self) -> int:
        """How many of the phase's received copies may be second ones."""
        return sum(order.repeats for order in self._orders)

    def collect(self) -> list[Rows]:
        """Take what arrived; return the rows of the current phase, consumer by consumer."""
        rows = []
        for i, consumer in enumerate(self._consumers):
            received = consumer.take()
            if received is not None and len(received.size):
                rows.append(self._rows(i, received))
        return rows

    def _rows(self, i: int, received: Received) -> Rows:
        heads = decode_heads(received.heads, received.size, self._nonce)
        if not len(self._first):
            return self._others(received)
        columns: dict[str, NDArray[Any]] = {
            "stream": heads.stream, "bucket": heads.bucket, "size": received.size, "flags": received.flags, "seq": heads.seq,
            "intended": heads.intended, "received": received.time,
        }  # fmt: skip
        order, pick = received.order, self._current(heads)
        if pick is not None:
            columns, order = {name: column[pick] for name, column in columns.items()}, order[pick]
        n = len(order)
        self.counts.received += n
        if n:
            self._complete(i, columns, order)
        spec = self._specs[i]
        return Rows({"consumer": spec.index, "subscription": spec.subscription, "topic": spec.topic.index}, columns, n)

    def _others(self, received: Received) -> Rows:
        """Nobody of this run sends: count, and record nothing."""
        self.arrivals.add(received)
        self.counts.received += len(received.size)
        return Rows({}, {}, 0)

    def _current(self, heads: Heads) -> NDArray[np.bool_] | None:
        """Which rows are this run's and this phase's; None when all are. Counts the others by what they are."""
        strange = np.count_nonzero(heads.kind) or np.count_nonzero(heads.stream >= len(self._first))
        if not strange and not np.count_nonzero(heads.seq < self._first[heads.stream]):
            return None
        known = (heads.kind == OURS) & (heads.stream < len(self._first))
        stream = np.where(known, heads.stream, 0)
        current = known & (heads.seq >= self._first[stream])
        foreign, ours = int(np.count_nonzero(heads.kind == FOREIGN)), int(np.count_nonzero(known))
        corrupt = int(np.count_nonzero(heads.kind == CORRUPT))
        self.counts.stragglers += ours - int(np.count_nonzero(current))
        self.counts.corrupt += corrupt
        self.counts.foreign += foreign + (len(stream) - foreign - corrupt - ours)  # the last: our mark, a stream that we do not have
        wanted: NDArray[np.bool_] = current
        return wanted

    def _complete(self, i: int, columns: dict[str, NDArray[Any]], order: NDArray[np.int64]) -> None:
        """Mark what came late and work out the intended times that compact envelopes leave out."""
        stream, seq = columns["stream"], columns["seq"]
        late = self._orders[i].late(stream, order, seq)
        if late is not None and self._ordered:
            columns["flags"] = columns["flags"] | np.where(late, _LATE, _NONE)
        compact = columns["intended"] < 0
        if np.count_nonzero(compact):
            columns["intended"] = np.where(compact, self._compact_intended(stream.astype(np.int64), seq), columns["intended"])
        if self._bounds:
            latency = columns["received"] - columns["intended"]
            self.counts.over = [n + int(np.count_nonzero(latency > bound)) for n, bound in zip(self.counts.over, self._bounds, strict=True)]
