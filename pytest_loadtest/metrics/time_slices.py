"""Time slices of the measured phase, in whole seconds: their latencies as sparse histograms, and
their counts.

A message belongs to the slice in which it was *intended*. There are three sorts of slices: the
*intervals* of ten seconds in reports, the *windows* in which objectives must hold, and the first
and last *tenth* of a run, which are compared for drift. They can overlap. So the phase is cut
wherever one begins, latencies are counted in the *pieces* between the cuts, and each slice is the
sum of its pieces.

The plan of a run has its slices; Spark's workers look up the piece of each row, and the controller
sums pieces when the verdict or a report asks for a slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np

from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.metrics.histogram import HALF, Histogram, join_total, merge
from pytest_loadtest.metrics.signed import SIDES, Lateness, with_lateness
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from numpy.typing import NDArray


INTERVAL: Final = 10 * SECOND
WHOLE: Final = ("minimum", "maximum", "high", "low", "negative")
"""The facts of a piece that are not counts by bucket, see :class:`Histograms`."""
SHARD: Final = 128
"""Pieces whose counts are kept together.

No process holds those of all pieces: a day has thousands, of thousands of buckets each.
"""


class Boundaries:
    """The cuts of the measured phase.

    :ivar starts: int64 ``(n,)``, the start of each piece, whole seconds since the phase's start,
        ascending from 0. The last piece has no end, so that every message has a piece.
    """

    def __init__(self, *edges: NDArray[np.int64]) -> None:
        """Cut the phase at all of these seconds, and at 0."""
        self.starts = np.unique(np.concatenate([np.zeros(1, np.int64), *edges]))
        # The piece of each second: a lookup costs less than a search for every message. Pieces that
        # start at the seconds 0, 2 and 3 are [0, 0, 1, 2].
        lengths = np.diff(self.starts, append=self.starts[-1] + 1)
        self._pieces = np.repeat(np.arange(len(self.starts)), lengths)

    def of(self, seconds: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the piece of each second.

        :param seconds: since the phase's start, from 0.
        """
        return self._pieces[np.minimum(seconds, len(self._pieces) - 1)]


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The counts of consecutive pieces by HDR bucket; empty buckets take no memory.

    :param first: int64 ``(n + 1,)``, the position in ``index`` and ``count`` at which each of n
        pieces begins.
    :param index: int32 ``(k,)``, HDR buckets, ascending in each piece.
    :param count: ``(k,)``, messages per bucket: int32 if that is enough, otherwise int64.
    """

    first: NDArray[np.int64]
    index: NDArray[np.int32]
    count: NDArray[np.int32] | NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Histograms:
    """Latencies of one kind, a histogram for each piece.

    :param shards: the counts of ``SHARD`` pieces each; the last shard can have fewer. A day of
        short windows has a thousand million counts, so the sequence may read each shard when it is
        needed.
    :param minimum: and
    :param maximum: int64 ``(n,)``, ns, exact; 0 for an empty piece.
    :param high: and
    :param low: int64 ``(n,)``, the two halves of the sum.
    :param negative: int64 ``(n,)``, values below zero.
    """

    shards: Sequence[Cells]
    minimum: NDArray[np.int64]
    maximum: NDArray[np.int64]
    high: NDArray[np.int64]
    low: NDArray[np.int64]
    negative: NDArray[np.int64]

    def of(self, begin: int, end: int) -> Histogram | None:
        """Return the histogram of the pieces ``begin`` to ``end - 1`` together; None without
        values.
        """
        # Fast path: each of many short windows is one piece.
        if end - begin == 1:
            return self._one(begin)
        shards = range(begin // SHARD, -(-end // SHARD))
        parts = [self._in_shard(number, begin, end) for number in shards]
        return parts[0] if len(parts) == 1 else merge(parts)

    def _one(self, piece: int) -> Histogram | None:
        number, at = divmod(piece, SHARD)
        cells = self.shards[number]
        low, high = cells.first[at : at + 2].tolist()
        if low == high:
            return None
        # Stored in 32 bits to halve the memory, but computed with in 64: sums of counts can need
        # more than 32.
        return Histogram(
            index=cells.index[low:high].astype(np.int64),
            count=cells.count[low:high].astype(np.int64),
            minimum=int(self.minimum[piece]),
            maximum=int(self.maximum[piece]),
            total=join_total(int(self.high[piece]), int(self.low[piece])),
            negative=int(self.negative[piece]),
        )

    def _in_shard(self, number: int, begin: int, end: int) -> Histogram | None:
        """Return the histogram of those of the pieces that are in one shard."""
        cells = self.shards[number]
        before = number * SHARD
        pieces = slice(max(begin, before), min(end, before + SHARD))
        first = cells.first[pieces.start - before : pieces.stop - before + 1]
        low = int(first[0])
        high = int(first[-1])
        if low == high:
            return None
        index, place = np.unique(cells.index[low:high].astype(np.int64), return_inverse=True)
        count = np.zeros(len(index), np.int64)
        # Unbuffered: several pieces can have the same bucket.
        np.add.at(count, place, cells.count[low:high].astype(np.int64))
        # The extremes of an empty piece are 0, which is no value.
        filled = np.diff(first) > 0
        return Histogram(
            index=index,
            count=count,
            minimum=int(self.minimum[pieces][filled].min()),
            maximum=int(self.maximum[pieces][filled].max()),
            total=join_total(int(self.high[pieces].sum()), int(self.low[pieces].sum())),
            negative=int(self.negative[pieces].sum()),
        )


@dataclass(frozen=True, kw_only=True)
class SlicedStats:
    """The windows of the measured phase, or its two tenths.

    :param start: and
    :param end: int64 ``(n,)``, ns since the phase's start.
    :param begin: and
    :param after: int64 ``(n,)``: each consists of the pieces ``begin`` to ``after - 1`` of
        ``latencies``.
    :param offered: int64 ``(n,)``, messages.
    :param received: int64 ``(n,)``, deliveries with a copy, over all subscriptions.
    :param in_time: int64 ``(n,)``, deliveries with a copy before the slice's end, shifted by the
        median latency of the whole phase; delays of delayed messages are subtracted.
    :param own_late: int64 ``(n,)``, messages that only the generator's own send delay kept from
        being sent before the slice's end.
    :param fan_out: the deliveries due for each message.
    :param in_time_without_own: int64 ``(n,)``, deliveries that would have been in time without the
        generator's own delays; 0 if they are not counted.
    :param selective: a service chooses which messages have an output.
    :param latencies: by kind, the key of ``Measurements.latencies``; ``lateness`` and ``earliness``
        are the two sides of due, see :func:`~pytest_loadtest.metrics.signed.with_lateness`. A kind
        that the run does not have is missing.
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    begin: NDArray[np.int64]
    after: NDArray[np.int64]
    offered: NDArray[np.int64]
    received: NDArray[np.int64]
    in_time: NDArray[np.int64]
    own_late: NDArray[np.int64]
    in_time_without_own: NDArray[np.int64]
    fan_out: int
    latencies: Mapping[str, Histograms]
    selective: bool = False

    def __len__(self) -> int:
        return len(self.start)

    def of(self, kind: str, at: int) -> Histogram | Lateness | None:
        """Return the latencies of a kind in one window or tenth; None if there are none."""
        if kind not in SIDES:
            return self._histogram(kind, at)
        sides = {}
        for side in SIDES:
            values = self._histogram(side, at)
            if values is not None:
                sides[side] = values
        return with_lateness(sides).get(kind)

    def _histogram(self, kind: str, at: int) -> Histogram | None:
        pieces = self.latencies.get(kind)
        if pieces is None:
            return None
        return pieces.of(int(self.begin[at]), int(self.after[at]))

    def never_came(self, kind: str, at: int) -> int:
        """Return the number that were due and have no latency, as ``Measurements.never_came`` does.

        :param kind: one that the run has.
        """
        missing = LATENCIES[kind].never_came
        if not missing:
            return 0
        offered = int(self.offered[at])
        if missing == "deliveries":
            if self.selective:
                return 0
            return offered * self.fan_out - int(self.received[at])
        measured = self._histogram(kind, at)
        if measured is None:
            return offered
        return offered - measured.n

    def unstamped(self, kind: str, at: int) -> int:
        """Return the number of deliveries whose receive lag is unknown, as
        ``Measurements.unstamped`` does.
        """
        if kind != "receive_lag":
            return 0
        lag = self._histogram(kind, at)
        if lag is None:
            return 0
        return int(self.received[at]) - lag.n


@dataclass(frozen=True, kw_only=True)
class Intervals(Sequence[Mapping[str, Histogram]]):
    """The latencies of each ten seconds, by kind; each interval is read when it is asked for.

    :param begin: and
    :param after: int64 ``(n,)``: each consists of the pieces ``begin`` to ``after - 1``.
    """

    begin: NDArray[np.int64]
    after: NDArray[np.int64]
    latencies: Mapping[str, Histograms]

    def __len__(self) -> int:
        return len(self.begin)

    @overload
    def __getitem__(self, at: int) -> Mapping[str, Histogram]: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Mapping[str, Histogram], ...]: ...

    def __getitem__(
        self, at: int | slice
    ) -> Mapping[str, Histogram] | tuple[Mapping[str, Histogram], ...]:
        if isinstance(at, slice):
            return tuple(self[number] for number in range(len(self))[at])
        interval = {}
        for kind, pieces in self.latencies.items():
            part = pieces.of(int(self.begin[at]), int(self.after[at]))
            if part is not None:
                interval[kind] = part
        return interval


@dataclass(frozen=True)
class Spans:
    """The places of windows, tenths or intervals, of which no two overlap.

    :param start: and
    :param end: int64 ``(n,)``, ns since the phase's start: whole seconds, except the end of the
        phase.
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]

    def pieces(self, cut: Boundaries) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first piece of each, and the piece after its last one.

        :param cut: it has a boundary at the start of each.
        """
        # The end of the phase lies in or behind the last piece, which has no end, so searchsorted
        # returns the number of pieces for it.
        starts = cut.starts * SECOND
        return np.searchsorted(starts, self.start), np.searchsorted(starts, self.end)

    def sums(self, values: NDArray[np.int64], cut: Boundaries) -> NDArray[np.int64]:
        """Return the sum over the pieces of each.

        :param values: int64, one for each piece.
        """
        begin, after = self.pieces(cut)
        # Cumulative sums: the sum of a slice is one subtraction, however many pieces it has.
        below = np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
        total: NDArray[np.int64] = below[after] - below[begin]
        return total

    def ends(self, cut: Boundaries) -> NDArray[np.int64]:
        """Return, by piece, the end of the slice that contains it, ns; 0 for pieces in none."""
        ends = np.zeros(len(cut.starts), np.int64)
        begin, after = self.pieces(cut)
        for number, end in enumerate(self.end.tolist()):
            ends[begin[number] : after[number]] = end
        return ends


def windows(duration: int, width: int) -> Spans | None:
    """Return the windows of a phase, or None if it is shorter than one.

    The last one ends with the phase, so it is up to twice as long: a shorter one of its own would
    have too few samples (decision 021).

    :param duration: and
    :param width: ns, the latter in whole seconds.
    """
    number = duration // width
    if not number:
        return None
    # The phase's end need not be a whole second; all other boundaries are.
    start = np.arange(number) * width
    return Spans(start, np.append(start[1:], duration))


def tenths(duration: int) -> Spans | None:
    """Return the first and the last tenth, in whole seconds; None for a phase shorter than ten.

    The last has up to a second more.

    :param duration: ns.
    """
    # Whole seconds: the counts of a tenth are sums of counts by second.
    length = duration // (10 * SECOND) * SECOND
    if not length:
        return None
    last_start = (duration - length) // SECOND * SECOND
    return Spans(np.array([0, last_start]), np.array([length, duration]))


def histograms(
    pieces: int, shards: Sequence[Cells], whole: Mapping[str, NDArray[np.int64]]
) -> Histograms | None:
    """Return histograms from columns; None without values.

    :param shards: see :class:`Histograms`.
    :param whole: columns ``piece``, ``minimum``, ``maximum``, ``high``, ``low``, ``negative``, one
        entry for each piece with values.
    """
    if not len(whole["piece"]):
        return None
    totals = {}
    for name in WHOLE:
        totals[name] = np.zeros(pieces, np.int64)
        totals[name][whole["piece"]] = whole[name]
    # Low halves are sums themselves and can be larger than their bits: the rest is carried into the
    # high half.
    totals["high"] += totals["low"] >> HALF
    totals["low"] &= (1 << HALF) - 1
    return Histograms(shards=shards, **totals)


def cells_of(number: int, pieces: int, counts: Mapping[str, NDArray[np.integer[Any]]]) -> Cells:
    """Return the counts of one shard.

    :param number: of the shard.
    :param pieces: of the whole phase.
    :param counts: in order, columns ``piece``, ``index``, ``n``, those of the shard's pieces.
    """
    begin = number * SHARD
    edges = np.arange(begin, min(begin + SHARD, pieces) + 1)
    # Nearly all counts are small: 32 bits halve their memory.
    count: NDArray[Any] = counts["n"].astype(np.int64)
    if int(count.max(initial=0)) <= np.iinfo(np.int32).max:
        count = count.astype(np.int32)
    return Cells(
        first=np.searchsorted(counts["piece"], edges),
        index=counts["index"].astype(np.int32),
        count=count,
    )


def in_shards(pieces: int, counts: Mapping[str, NDArray[np.int64]]) -> tuple[Cells, ...]:
    """Return the shards of counts that are in memory.

    :param counts: in order, columns ``piece``, ``index``, ``n``.
    """
    starts = np.arange(0, pieces, SHARD)
    edges = np.searchsorted(counts["piece"], np.append(starts, pieces))
    shards = []
    for number in range(len(starts)):
        rows = slice(edges[number], edges[number + 1])
        own = {name: column[rows] for name, column in counts.items()}
        shards.append(cells_of(number, pieces, own))
    return tuple(shards)


def of_parts(parts: Sequence[Histogram | None]) -> Histograms | None:
    """Return histograms from one for each piece; None without values."""
    cells = []
    whole = []
    for piece, part in enumerate(parts):
        if part is not None:
            # (3, buckets): piece, bucket and count
            cells.append(np.stack([np.full(len(part.index), piece), part.index, part.count]))
            high = part.total >> HALF
            low = part.total & (1 << HALF) - 1
            whole.append((piece, part.minimum, part.maximum, high, low, part.negative))
    if not whole:
        return None
    counts = dict(zip(("piece", "index", "n"), np.concatenate(cells, axis=1), strict=True))
    columns = dict(zip(("piece", *WHOLE), np.array(whole).T, strict=True))
    return histograms(len(parts), in_shards(len(parts), counts), columns)


# The most blocks of latencies by second in a results document.
MOST_BLOCKS: Final = 1000


@record
class OverTime:
    """End-to-end latencies of first copies by the block of seconds that has their message's
    intended time.

    :param second: int64 ``(k,)``, the first one of each block, since the start of the measured
        phase, ascending.
    :param index: int64 ``(k,)``, HDR bucket of seven bits, that of an HdrHistogram with two
        significant digits; ascending in each block.
    :param count: int64 ``(k,)``, copies.
    """

    second: NDArray[np.int64]
    index: NDArray[np.int64]
    count: NDArray[np.int64]

    def blocks(self, duration: int, most: int = MOST_BLOCKS) -> tuple[int, list[dict[int, int]]]:
        """Return the length, ns, of at most ``most`` blocks of whole seconds, and the copies of
        each by bucket.

        All but the last have this length.

        :param duration: of the measured phase, ns.
        """
        seconds = max(-(-duration // SECOND), 1)
        length = block_seconds(duration, most)
        blocks: list[Counter[int]] = [Counter() for _ in range(-(-seconds // length))]
        columns = (self.second // length, self.index, self.count)
        for block, index, count in np.stack(columns, axis=1).tolist():
            blocks[block][index] += count
        return length * SECOND, list(map(dict, blocks))


def block_seconds(duration: int, most: int = MOST_BLOCKS) -> int:
    """Return the length of at most ``most`` blocks of a measured phase, whole seconds.

    :param duration: ns.
    """
    return -(-max(-(-duration // SECOND), 1) // most)


def over_time(
    second: NDArray[np.int64], index: NDArray[np.int64], many: NDArray[np.int64] | None = None
) -> OverTime | None:
    """Count pairs of second and bucket; None without any.

    :param many: copies of each pair; 1 unless given.
    """
    if not len(second):
        return None
    width = int(index.max()) + 1
    # One integer for each pair of second and bucket, so that one sort orders them by both.
    packed, place = np.unique(second * width + index, return_inverse=True)
    count = np.zeros(len(packed), np.int64)
    np.add.at(count, place, 1 if many is None else many)
    return OverTime(second=packed // width, index=packed % width, count=count)
