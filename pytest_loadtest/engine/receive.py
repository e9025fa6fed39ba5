"""Arrivals at consumers: the run and phase of each, its order, and the rows that are recorded.

The driver stamps arrivals with their time, so the engine can look at many of them together, much
later, without a loss of precision.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.engine.order import DueOrder, OrderCheck
from pytest_loadtest.engine.progress import TimelyCounts, take_p99
from pytest_loadtest.engine.strays import KeptMessage, KeptMessages
from pytest_loadtest.message.envelope import CORRUPT, OURS, decode_heads
from pytest_loadtest.message.route import IN_BODY
from pytest_loadtest.message.samples import Flag
from pytest_loadtest.values.quantities import MICROSECOND, MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import Driver, Joined, Received
    from pytest_loadtest.message.due import Delays
    from pytest_loadtest.message.envelope import Heads
    from pytest_loadtest.message.payloads import PayloadPool
    from pytest_loadtest.message.route import EnvelopePlace
    from pytest_loadtest.plan.phases import Phase
    from pytest_loadtest.schedule.pacing import Pacer
    from pytest_loadtest.schedule.topology import Topology

    Columns = dict[str, NDArray[Any]]

EXACT = MILLISECOND
"""ns: a copy whose stamp is later than its arrival by at most this much is not counted as one with
a late stamp.
"""
LONG_PAUSE = 25 * MILLISECOND
_MOST_LAG = np.iinfo(np.int32).max  # of the column: 35 minutes

# of the type of the column, so that no operation widens it
_REDELIVERED = np.int8(Flag.REDELIVERED)
_LATE = np.int8(Flag.LATE)
_CORRUPT = np.int8(Flag.CORRUPT)
_UNDUE = np.int8(Flag.UNDUE)
_NONE = np.int8(0)


@dataclass(slots=True)
class ReceiveCounts:
    """Copies in the current phase so far; ``foreign``, ``corrupt`` and ``stragglers`` (copies of an
    earlier phase) in the whole run.

    :param beyond_bounds: for each bound, the copies that took longer.
    """

    beyond_bounds: list[int]
    received: int = 0
    redelivered: int = 0
    foreign: int = 0
    corrupt: int = 0
    stragglers: int = 0


class Arrivals:
    """Arrivals by second in a phase of a run without producers, which reads messages of others.

    :param start: the phase's start, ns.
    :param duration: ns; later arrivals, even in the same second, are not counted.
    """

    def __init__(self, start: int, duration: int) -> None:
        self.seconds: Counter[int] = Counter()
        self.start = start
        self.duration = duration

    def add(self, received: Received) -> None:
        """Count the arrivals within the phase."""
        passed = received.time - self.start
        within = passed[(passed >= 0) & (passed < self.duration)]
        seconds, counts = np.unique(within // SECOND, return_counts=True)
        self.seconds.update(dict(zip(seconds.tolist(), counts.tolist(), strict=True)))


class SizeCheck:
    """Checks that payloads have a size that was sent: any size of the bucket that the envelope
    names (and protects by its check).

    If a bucket has several sizes, the size of each message could be computed from seed, stream and
    number. This is not checked, because a consumer that hears late of a change of distribution
    would take whole payloads for damaged ones. By default a bucket has one size.
    """

    def __init__(self, pool: PayloadPool) -> None:
        buckets = pool.buckets.astype(np.int64)
        self._pairs = np.unique(buckets << 32 | pool.sizes)
        # the only size of each bucket; -1 where it has several, which then differs from every size
        # and is looked up in the pairs
        self._only = np.full(len(pool.bucket_names), -1, np.int32)
        self._only[buckets] = pool.sizes
        numbers, sizes = np.unique(self._pairs >> 32, return_counts=True)
        self._only[numbers[sizes > 1]] = -1

    def wrong(self, bucket: NDArray[np.int16], size: NDArray[np.int32]) -> NDArray[np.intp]:
        """Return the positions of the payloads with a size that their bucket does not have."""
        doubtful = np.flatnonzero(self._only.take(bucket) != size)
        if not len(doubtful):
            return doubtful
        # bucket and size as one number, so that one search finds the pair
        pairs = bucket[doubtful].astype(np.int64) << 32 | size[doubtful]
        nearest = np.minimum(np.searchsorted(self._pairs, pairs), len(self._pairs) - 1)
        wrong: NDArray[np.intp] = doubtful[self._pairs.take(nearest) != pairs]
        return wrong


class Inbox:
    """Everything that one worker's consumers get.

    :param pool: the payloads that may arrive; None: others make the messages, and their sizes are
        not known.
    :param bounds: latencies in ns; ``counts.beyond_bounds`` has the number of copies that took
        longer than each.
    :param place: the place of their envelopes.
    :param topology: of a run whose messages a service may send to another topic of the run.
    """

    def __init__(
        self,
        driver: Driver,
        pool: PayloadPool | None,
        *,
        nonce: int,
        ordered: bool,
        bounds: Sequence[int] = (),
        place: EnvelopePlace = IN_BODY,
        topology: Topology | None = None,
    ) -> None:
        self._place = place
        self._topology = topology
        self._strays = KeptMessages(place)
        self._sizes = None if pool is None else SizeCheck(pool)
        self.counts = ReceiveCounts(beyond_bounds=[0] * len(bounds))
        self._driver = driver
        self._nonce = nonce
        self._ordered = ordered
        self._bounds = bounds
        self.timely = TimelyCounts((), 0)
        self._lags: list[NDArray[np.int64]] = []  # of the copies since the last report
        self._pauses: list[tuple[int, int]] = []  # since the last collection
        self._unread: list[tuple[int, int]] = []  # earlier ones, of which copies may still come
        self.late_stamps = 0
        """Number of copies, over all phases, that may have arrived more than :data:`EXACT` before
        their stamp.
        """
        self.taken = 0
        """Number of copies of any kind that the driver handed over, over all phases."""
        self.took_at: NDArray[np.int64] | None = None
        """Instants at which the client took the last copies collected, ns; None if there were none,
        or no pause before.
        """
        self._order = OrderCheck()
        self._due_order = DueOrder()
        self._consumers = np.empty(0, np.int32)  # by place

    def add(self, joined: Joined) -> None:
        """Add consumers, by their places."""
        if len(joined.place):
            more = int(joined.place.max()) + 1 - len(self._consumers)
            self._consumers = np.append(self._consumers, np.full(max(more, 0), -1, np.int32))
            self._consumers[joined.place] = joined.consumer

    def begin(self, phase: Phase, start: int, delays: Delays | None = None) -> None:
        """Begin a phase, whose messages have sequences from ``phase.first`` on.

        :param delays: None if they are not delayed.
        """
        self._delays = delays
        self._first = phase.first
        self.repace(phase.pacer, start)
        self.counts.received = 0
        self.counts.redelivered = 0
        self.counts.beyond_bounds = [0] * len(self._bounds)
        self.arrivals = Arrivals(start, phase.duration)
        self.timely.begin(start)
        self._lags.clear()
        self._order.repeats = 0

    def repace(self, pacer: Pacer, start: int) -> None:
        """Change the rate, and with it the intended times of messages whose compact envelope leaves
        them out.
        """
        self.pacer = pacer
        self._start = start

    @property
    def repeats(self) -> int:
        """Number of the phase's received copies that may be second copies."""
        return self._order.repeats

    def take_strays(self) -> list[KeptMessage]:
        """Return the first foreign and corrupt messages since the last call."""
        strays = []
        for message in self._strays.take():
            consumer = int(self._consumers[message.consumer])
            strays.append(message._replace(consumer=consumer))
        return strays

    def note_pause(self, begin: int, end: int) -> None:
        """Note a time in which the worker may have looked at no connection, ns."""
        # After a long pause the driver may still have been reading what had come in it when the
        # next one began, also if copies were collected in between.
        before = self._pauses or self._unread
        if before:
            last_begin, last_end = before[-1]
            if begin <= last_end and last_end - last_begin > LONG_PAUSE:
                before.pop()
                begin = last_begin
        self._pauses.append((begin, end))

    def lag_p99(self) -> int | None:
        """Return the p99 of the receive lag of the copies taken since the last call; None if it is
        unknown for all of them.
        """
        self._lags[:] = [lag[lag >= 0] for lag in self._lags]
        return take_p99(self._lags)

    def collect(self) -> Columns | None:
        """Take arrivals from the driver.

        Returns the rows of the current phase, as they are recorded, or None.
        """
        received = self._driver.take()
        pauses = [*self._unread, *self._pauses]
        self._pauses = []
        self._unread = []
        self.took_at = None
        if received is None or not len(received.size):
            return None
        self.taken += len(received.size)
        if pauses:
            received = self._after_pauses(received, pauses)
        if received.lag is not None:
            self._lags.append(received.lag)
        if len(self._first):
            return self._rows(received)
        # a run without producers reads messages of others: they are counted, and none is recorded
        self.arrivals.add(received)
        self.counts.received += len(received.size)
        return None

    def _after_pauses(self, received: Received, pauses: list[tuple[int, int]]) -> Received:
        """Return arrivals with the longest lag that each can have had in the pauses."""
        if received.lag is None:
            self.took_at = received.time
            return received
        self.took_at = (received.time + received.lag)[received.lag >= 0]
        # The driver may need several collections to read all that came in a pause.
        oldest = int(received.time.min())
        self._unread = [pause for pause in pauses if pause[1] >= oldest]
        lag, late = longest_lag(received, received.lag, pauses)
        self.late_stamps += late
        return replace(received, lag=lag)

    def _rows(self, received: Received) -> Columns | None:
        sizes = None if self._place.outside else received.size
        heads = decode_heads(received.heads, sizes, self._nonce)
        columns: Columns = {
            "consumer": received.consumer,
            "stream": heads.stream,
            "bucket": heads.bucket,
            "size": received.size,
            "flags": received.flags,
            "seq": heads.seq,
            "intended": heads.intended,
            "received": received.time,
            "lag": _lag(received),
        }
        # Others' arrivals are removed first: the checks that follow index their tables by stream,
        # bucket and sequence.
        order = received.order
        current = self._current(received, heads)
        if current is not None:
            columns = {name: column[current] for name, column in columns.items()}
            order = order[current]
        if not len(order):
            return None
        self.counts.received += len(order) - self._misplaced(columns)
        self._complete(columns, order)
        if np.count_nonzero(columns["flags"]):
            flags = columns["flags"]
            self.counts.redelivered += int(np.count_nonzero(flags & _REDELIVERED))
            damaged = np.flatnonzero(flags & _CORRUPT)
            if current is not None:
                damaged = np.flatnonzero(current)[damaged]
            self._strays.note("corrupt", received, damaged)
        # Samples have the consumer's index; the checks needed its place, because a consumer that
        # joins again begins a new order.
        columns["consumer"] = self._consumers.take(columns["consumer"])
        return columns

    def _misplaced(self, columns: Columns) -> int:
        """Return the number of messages that a service sent to another topic of the run.

        They are no deliveries, so the drain must not end because of them.
        """
        if self._topology is None:
            return 0
        consumer = self._consumers.take(columns["consumer"])
        topic = self._topology.topic_of_consumer(consumer)
        sent_to = self._topology.topic_of_stream(columns["stream"])
        return int(np.count_nonzero(topic != sent_to))

    def _current(self, received: Received, heads: Heads) -> NDArray[np.bool_] | None:
        """Return a mask of the rows of this run and phase, None if all are.

        The others are counted by their kind, and the first of them kept.
        """
        # the envelope's stream number is unsigned
        beyond = heads.stream.view(np.uint32) >= len(self._first)
        # fast path: OURS is 0, so without a kind, a stream or a sequence out of place there is no
        # mask to build
        strange = np.count_nonzero(heads.kind) or np.count_nonzero(beyond)
        if not strange and not np.count_nonzero(heads.seq < self._first.take(heads.stream)):
            return None
        ours = (heads.kind == OURS) & ~beyond
        stream = np.where(ours, heads.stream, 0)
        current: NDArray[np.bool_] = ours & (heads.seq >= self._first[stream])
        is_corrupt = heads.kind == CORRUPT
        corrupt = np.flatnonzero(is_corrupt)
        # foreign: also an envelope with this run's nonce and a stream number that the run does not
        # have
        foreign = np.flatnonzero(~(ours | is_corrupt))
        self.counts.stragglers += int(np.count_nonzero(ours & ~current))
        self.counts.corrupt += len(corrupt)
        self.counts.foreign += len(foreign)
        self._strays.note("foreign", received, foreign)
        self._strays.note("corrupt", received, corrupt)
        return current

    def _complete(self, columns: Columns, order: NDArray[np.int64]) -> None:
        """Set the flags for wrong sizes and wrong order, fill in the intended times missing in
        compact envelopes, and count latencies.
        """
        stream = columns["stream"]
        seq = columns["seq"]
        damaged: Sequence[int] | NDArray[np.intp] = ()
        if self._sizes is not None:
            damaged = self._sizes.wrong(columns["bucket"], columns["size"])
        if len(damaged):
            columns["flags"] = columns["flags"].copy()  # the driver's column
            columns["flags"][damaged] |= _CORRUPT
        # checked also where order is not judged: the number of possible second copies comes from it
        late = self._order.late(columns["consumer"], stream, order, seq)
        if late is not None and self._ordered:
            columns["flags"] = columns["flags"] | np.where(late, _LATE, _NONE)
        compact = columns["intended"] < 0
        if np.count_nonzero(compact):
            # the plan's arithmetic: message k of stream s is number s + k * streams of the phase
            number = stream + (seq - self._first[stream]) * self.pacer.streams
            planned = self._start + self.pacer.times(number)
            columns["intended"] = np.where(compact, planned, columns["intended"])
        if self._delays is not None:
            due = self._delays.due(stream, seq, columns["intended"])
            undue = self._due_order.overtaken(columns["consumer"], due, self._delays.tick)
            # A message that is not delayed is due when it is intended to leave. It reaches the
            # target later than that, so delayed ones that are due in between overtake it at any
            # broker.
            undue &= due > columns["intended"]
            columns["flags"] = columns["flags"] | np.where(undue, _UNDUE, _NONE)
        self.timely.add(columns["intended"], columns["received"])
        if self._bounds:
            latency = columns["received"] - columns["intended"]
            beyond = self.counts.beyond_bounds
            for at, bound in enumerate(self._bounds):
                beyond[at] += int(np.count_nonzero(latency > bound))


def _lag(received: Received) -> NDArray[np.int32]:
    """Return the lag as it is recorded: whole microseconds, -1 where it is unknown."""
    if received.lag is None:
        return np.full(len(received.time), -1, np.int32)
    return (received.lag // MICROSECOND).clip(max=_MOST_LAG).astype(np.int32)


def longest_lag(
    received: Received, lag: NDArray[np.int64], pauses: Sequence[tuple[int, int]]
) -> tuple[NDArray[np.int64], int]:
    """Return the receive lag with the longest time for which copies that came in a pause may have
    waited, and how many stamps may be late.

    The kernel merges packets that wait in a connection, and stamps all of them with the time of the
    last one. So copies that share a stamp may have arrived at any time since the one before of
    their consumer and partition, or since the pause began. A copy with its own stamp is exact.

    :param pauses: begin and end of each, ns, in order.
    """
    time = received.time
    begins, ends = np.array(pauses, np.int64).T
    pause = np.searchsorted(begins, time, side="right") - 1
    there = np.flatnonzero((pause >= 0) & (time <= ends[pause]) & (lag >= 0))
    # Sorted by consumer, partition and time, the stamp before is that of the row before the first
    # one with the same stamp. Partitions may have connections of their own, to several brokers.
    order = there[np.lexsort((time[there], received.order[there], received.consumer[there]))]
    stamp = time[order]
    same_consumer = np.diff(received.consumer[order], prepend=-1) == 0
    same_source = same_consumer & (np.diff(received.order[order], prepend=-1) == 0)
    same_stamp = same_source & (np.diff(stamp, prepend=0) == 0)
    # stamps 20, 30, 30 of one consumer: first [0, 1, 1], earliest [0, 20, 20]
    first = np.maximum.accumulate(np.where(same_stamp, 0, np.arange(len(order))))
    earliest = np.where(same_source[first], stamp[first - 1], 0)
    waited = stamp - np.maximum(earliest, begins[pause[order]])
    # A copy with its own stamp is exact.
    _, group, sharing = np.unique(stamp, return_inverse=True, return_counts=True)
    late = (waited > EXACT) & (sharing[group] > 1)
    longest = lag.copy()
    longest[order[late]] += waited[late]
    return longest, int(np.count_nonzero(late))


_AWAY = -1  # in place of a consumer's place while it is not connected


class Consumers:
    """The consumers of one workload on one worker, which pause, leave and join while load runs.

    Every column has one entry for each consumer of this worker, in the order of their indexes.

    :param opened: the consumers that take messages from the beginning.
    :param later: indexes of consumers that may join.
    :param per_subscription: consumers ``n`` of one subscription when all have joined: consumer
        ``i`` is its ``i mod n``-th.
    """

    def __init__(
        self,
        driver: Driver,
        inbox: Inbox,
        opened: Joined,
        later: Sequence[int],
        per_subscription: int,
    ) -> None:
        self._driver = driver
        self._inbox = inbox
        self._all = np.union1d(opened.consumer, np.array(later, np.int32)).astype(np.int32)
        self._rank = self._all % per_subscription
        self._place = np.full(len(self._all), _AWAY, np.int32)
        self._active = np.zeros(len(self._all), np.bool_)
        # requested from the driver and not connected yet
        self._coming = np.zeros(len(self._all), np.bool_)
        self._paused = False
        self._active[self._join(opened)] = True

    def __len__(self) -> int:
        """Return the number of consumers of this worker, with those that may join."""
        return len(self._all)

    def _join(self, joined: Joined) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        at = np.searchsorted(self._all, joined.consumer)
        self._place[at] = joined.place
        self._coming[at] = False
        self._inbox.add(joined)
        return at

    def pause(self, *, paused: bool) -> None:
        """Make all consumers pause, or resume."""
        if paused != self._paused:
            self._paused = paused
            # those that are still connecting follow in welcome()
            here = self._place[self._place != _AWAY].tolist()
            if paused:
                self._driver.pause(here)
            else:
                self._driver.resume(here)

    def limit(self, number: int) -> None:
        """Let ``number`` consumers of each subscription take messages: the others leave, missing
        ones join once they are connected.
        """
        # the same consumers of every subscription, on whichever worker they are
        self._active = self._rank < number
        self._leave(~self._active)
        joining = self._active & ~self._coming & (self._place == _AWAY)
        if joining.any():
            self._coming |= joining
            self._driver.attach(self._all[joining].tolist())

    def _leave(self, who: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        leaving = who & (self._place != _AWAY)
        if leaving.any():
            self._driver.detach(self._place[leaving].tolist())
            self._place[leaving] = _AWAY

    def welcome(self) -> None:
        """Add the consumers that have connected since the last call."""
        joined = self._driver.attached()
        if joined is None:
            return
        self._join(joined)
        if self._paused:
            self._driver.pause(joined.place.tolist())
        # a later change made them leave before they were connected
        self._leave(~self._active)
