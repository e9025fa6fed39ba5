"""What consumers got: whose it is, whether it came in order, and which rows of it are recorded.

Arrivals are stamped by the driver, so they may be looked at much later, many at a time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.engine.order import DueOrder, OrderCheck
from pytest_loadtest.engine.progress import TimelyCounts
from pytest_loadtest.message.envelope import CORRUPT, OURS, decode_heads
from pytest_loadtest.message.samples import Flag
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import Driver, Joined, Received
    from pytest_loadtest.message.due import Delays
    from pytest_loadtest.message.envelope import Heads
    from pytest_loadtest.message.payloads import PayloadPool
    from pytest_loadtest.plan.phases import Phase
    from pytest_loadtest.schedule.pacing import Pacer

    Columns = dict[str, NDArray[Any]]


_REDELIVERED: Final = np.int8(Flag.REDELIVERED)
_LATE: Final = np.int8(Flag.LATE)
_CORRUPT: Final = np.int8(Flag.CORRUPT)
_UNDUE: Final = np.int8(Flag.UNDUE)
_NONE: Final = np.int8(0)


@dataclass(slots=True)
class ReceiveCounts:
    """Copies of the current phase so far; of the whole run: foreign, corrupt, stragglers (of an earlier phase, too late for it).

    :param beyond_bounds: for each bound, how many copies took longer.
    """

    beyond_bounds: list[int]
    received: int = 0
    redelivered: int = 0
    foreign: int = 0
    corrupt: int = 0
    stragglers: int = 0


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


class SizeCheck:
    """Whether payloads have a size that was sent: any of their bucket, which the envelope names and its check protects.

    Which of several sizes of a bucket a message has follows from seed, stream and number as long as no distribution changes; a change
    that a consumer hears of late would make whole payloads look damaged, so that is not asked. By default a bucket has one size.
    """

    def __init__(self, pool: PayloadPool) -> None:
        buckets = pool.buckets.astype(np.int64)
        self._pairs = np.unique(buckets << 32 | pool.sizes)
        self._only = np.full(len(pool.bucket_names), -1, np.int32)
        self._only[buckets] = pool.sizes
        numbers, sizes = np.unique(self._pairs >> 32, return_counts=True)
        self._only[numbers[sizes > 1]] = -1

    def wrong(self, bucket: NDArray[np.int16], size: NDArray[np.int32]) -> NDArray[np.intp]:
        """Which of them have none."""
        doubtful = np.flatnonzero(self._only.take(bucket) != size)
        if not len(doubtful):
            return doubtful
        pairs = bucket[doubtful].astype(np.int64) << 32 | size[doubtful]
        nearest = np.minimum(np.searchsorted(self._pairs, pairs), len(self._pairs) - 1)
        wrong: NDArray[np.intp] = doubtful[self._pairs.take(nearest) != pairs]
        return wrong


class Inbox:
    """Everything that one worker's consumers get.

    :param pool: what may come.
    :param bounds: latencies in ns; ``counts.beyond_bounds`` tells how many copies took longer than each.
    """

    def __init__(self, driver: Driver, pool: PayloadPool, *, nonce: int, ordered: bool, bounds: Sequence[int] = ()) -> None:
        self._sizes = SizeCheck(pool)
        self.counts = ReceiveCounts(beyond_bounds=[0] * len(bounds))
        self._driver, self._nonce, self._ordered, self._bounds = driver, nonce, ordered, bounds
        self.prompt = TimelyCounts((), 0)
        self._order, self._due_order = OrderCheck(), DueOrder()
        self._consumers = np.empty(0, np.int32)  # by place

    def add(self, joined: Joined) -> None:
        """More consumers."""
        if len(joined.place):
            more = int(joined.place.max()) + 1 - len(self._consumers)
            self._consumers = np.append(self._consumers, np.full(max(more, 0), -1, np.int32))
            self._consumers[joined.place] = joined.consumer

    def begin(self, phase: Phase, start: int, delays: Delays | None = None) -> None:
        """A phase begins; its messages have sequences from ``phase.first`` on. :param delays: where they are delayed."""
        self._delays = delays
        self._first = phase.first
        self.repace(phase.pacer, start)
        self.counts.received, self.counts.redelivered, self.counts.beyond_bounds = 0, 0, [0] * len(self._bounds)
        self.arrivals = Arrivals(start, phase.duration)
        self.prompt.begin(start)
        self._order.repeats = 0

    def repace(self, pacer: Pacer, start: int) -> None:
        """The rate has changed: so have the intended times that compact envelopes leave out."""
        self.pacer, self._start = pacer, start

    def _compact_intended(self, stream: NDArray[np.int64], seq: NDArray[np.int64]) -> NDArray[np.int64]:
        """The intended time of messages whose envelope leaves it out: the plan's arithmetic."""
        return self._start + self.pacer.times(stream + (seq - self._first[stream]) * self.pacer.streams)

    @property
    def repeats(self) -> int:
        """How many of the phase's received copies may be second ones."""
        return self._order.repeats

    def collect(self) -> Columns | None:
        """Take what arrived; the rows of the current phase, as they are recorded, or None."""
        received = self._driver.take()
        if received is None or not len(received.size):
            return None
        if not len(self._first):
            self._count_others(received)
            return None
        return self._rows(received)

    def _rows(self, received: Received) -> Columns | None:
        heads = decode_heads(received.heads, received.size, self._nonce)
        columns: Columns = {
            "consumer": received.consumer, "stream": heads.stream, "bucket": heads.bucket, "size": received.size,
            "flags": received.flags, "seq": heads.seq, "intended": heads.intended, "received": received.time,
        }  # fmt: skip
        order, pick = received.order, self._current(heads)
        if pick is not None:
            columns, order = {name: column[pick] for name, column in columns.items()}, order[pick]
        n = len(order)
        self.counts.received += n
        if not n:
            return None
        self.counts.redelivered += int(np.count_nonzero(columns["flags"] & _REDELIVERED))
        self._complete(columns, order)
        columns["consumer"] = self._consumers.take(columns["consumer"])
        return columns

    def _count_others(self, received: Received) -> None:
        """Nobody of this run sends: count, and record nothing."""
        self.arrivals.add(received)
        self.counts.received += len(received.size)

    def _current(self, heads: Heads) -> NDArray[np.bool_] | None:
        """Which rows are this run's and this phase's; None when all are. Counts the others by what they are."""
        beyond = heads.stream.view(np.uint32) >= len(self._first)  # 32 bits without a sign in the envelope
        strange = np.count_nonzero(heads.kind) or np.count_nonzero(beyond)
        if not strange and not np.count_nonzero(heads.seq < self._first.take(heads.stream)):
            return None
        known = (heads.kind == OURS) & ~beyond
        stream = np.where(known, heads.stream, 0)
        current = known & (heads.seq >= self._first[stream])
        ours, corrupt = int(np.count_nonzero(known)), int(np.count_nonzero(heads.kind == CORRUPT))
        self.counts.stragglers += ours - int(np.count_nonzero(current))
        self.counts.corrupt += corrupt
        self.counts.foreign += len(stream) - corrupt - ours  # also what has our nonce, but a stream that the run does not have
        wanted: NDArray[np.bool_] = current
        return wanted

    def _complete(self, columns: Columns, order: NDArray[np.int64]) -> None:
        """Mark what has another size or came late, and work out the intended times that compact envelopes leave out."""
        stream, seq = columns["stream"], columns["seq"]
        damaged = self._sizes.wrong(columns["bucket"], columns["size"])
        if len(damaged):
            columns["flags"] = columns["flags"].copy()
            columns["flags"][damaged] |= _CORRUPT
        late = self._order.late(columns["consumer"], stream, order, seq)
        if late is not None and self._ordered:
            columns["flags"] = columns["flags"] | np.where(late, _LATE, _NONE)
        compact = columns["intended"] < 0
        if np.count_nonzero(compact):
            columns["intended"] = np.where(compact, self._compact_intended(stream.astype(np.int64), seq), columns["intended"])
        if self._delays is not None:
            due = self._delays.due(stream, seq, columns["intended"])
            undue = self._due_order.overtaken(columns["consumer"], due, self._delays.tick)
            # A message that is not delayed is due when it is intended to leave. It reaches the target later than that, so delayed ones that
            # are due in between overtake it at any broker.
            undue &= due > columns["intended"]
            columns["flags"] = columns["flags"] | np.where(undue, _UNDUE, _NONE)
        self.prompt.add(columns["intended"], columns["received"])
        if self._bounds:
            latency, before = columns["received"] - columns["intended"], self.counts.beyond_bounds
            self.counts.beyond_bounds = [n + int(np.count_nonzero(latency > bound)) for n, bound in zip(before, self._bounds, strict=True)]


# The consumers of one workload on one worker: opened, paused, and more or fewer of them while load runs.

_AWAY = -1  # instead of a place, as long as the consumer has none


class Consumers:
    """Who takes messages just now; a column entry a consumer of this worker, in the order of their indexes.

    :param opened: those that take messages from the beginning. :param later: indexes of those that may join.
    :param per_subscription: how many consumers one subscription has when all have joined: consumer ``i`` is its ``i mod n``-th.
    """

    def __init__(self, driver: Driver, inbox: Inbox, opened: Joined, later: Sequence[int], per_subscription: int) -> None:
        self._driver, self._inbox = driver, inbox
        self._all = np.union1d(opened.consumer, np.array(later, np.int32)).astype(np.int32)
        self._rank = self._all % per_subscription
        self._place = np.full(len(self._all), _AWAY, np.int32)
        self._wanted = np.zeros(len(self._all), np.bool_)
        self._coming = np.zeros(len(self._all), np.bool_)  # asked for, and not connected yet
        self._paused = False
        self._wanted[self._join(opened)] = True

    def _join(self, joined: Joined) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        at = np.searchsorted(self._all, joined.consumer)
        self._place[at] = joined.place
        self._coming[at] = False
        self._inbox.add(joined)
        return at

    def pause(self, *, paused: bool) -> None:
        """All stop taking messages, or go on."""
        if paused != self._paused:
            self._paused = paused
            here = self._place[self._place != _AWAY].tolist()
            self._driver.pause(here) if paused else self._driver.resume(here)

    def limit(self, number: int) -> None:
        """``number`` of each subscription take messages: the others leave, missing ones join as soon as they are connected."""
        self._wanted = self._rank < number
        self._leave(~self._wanted)
        joining = self._wanted & ~self._coming & (self._place == _AWAY)
        if joining.any():
            self._coming |= joining
            self._driver.attach(self._all[joining].tolist())

    def _leave(self, who: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        leaving = who & (self._place != _AWAY)
        if leaving.any():
            self._driver.detach(self._place[leaving].tolist())
            self._place[leaving] = _AWAY

    def welcome(self) -> None:
        """Take those that have connected meanwhile."""
        joined = self._driver.attached()
        if joined is None:
            return
        at = self._join(joined)
        if self._paused:
            self._driver.pause(joined.place.tolist())
        told_to_leave = np.zeros(len(self._all), np.bool_)
        told_to_leave[at] = ~self._wanted[at]  # it was to leave again before its connection was up
        self._leave(told_to_leave)
