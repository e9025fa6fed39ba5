"""The measured phase cut into stretches of whole seconds, and what was due in each: latencies as sparse histograms, and counts.

A message belongs to the stretch in which it was *intended*. SlicedStats are what is asked for by time: the intervals of ten seconds that
reports have, the *windows* in which objectives must hold, the first and the last *tenth* of a run, from which drift is told. They may
overlap, so the phase is cut wherever one of them begins, and each is put together of the pieces between the cuts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.metrics.histogram import HALF, Histogram, join_total, merge
from pytest_loadtest.metrics.signed import SIDES, with_lateness
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.signed import Lateness

INTERVAL: Final = 10 * SECOND


class Boundaries:
    """Pieces of the measured phase.

    :ivar starts: int64 ``(n,)``, whole seconds since the phase's start: where each piece begins, ascending from 0. The last one has no
        end, so that every message has its piece.
    """

    def __init__(self, *edges: NDArray[np.int64]) -> None:
        """Return the boundaries at all of these instants, and at 0."""
        self.starts = np.unique(np.concatenate([np.zeros(1, np.int64), *edges]))
        # by second: looking up costs less than a search for every message
        self._pieces = np.repeat(np.arange(len(self.starts)), np.diff(self.starts, append=self.starts[-1] + 1))

    def of(self, seconds: NDArray[np.int64]) -> NDArray[np.int64]:
        """The piece that each second lies in. :param seconds: since the phase's start, from 0."""
        found: NDArray[np.int64] = self._pieces[np.minimum(seconds, len(self._pieces) - 1)]
        return found


@dataclass(frozen=True, kw_only=True)
class Histograms:
    """Latencies of one kind, a histogram for each piece; only buckets that hold something take room.

    :param first: int64 ``(n + 1,)``, where in the next two each piece begins. :param index: int32 ``(k,)``, HDR buckets, ascending in each
        piece. :param count: ``(k,)``, messages per bucket: int32 where that is enough, or int64.
    :param minimum: and :param maximum: int64 ``(n,)``, ns, exact; 0 where there is nothing. :param high: and :param low: int64 ``(n,)``,
        the two halves of the sum. :param negative: int64 ``(n,)``, values below zero.
    """

    first: NDArray[np.int64]
    index: NDArray[np.int32]
    count: NDArray[np.int32] | NDArray[np.int64]
    minimum: NDArray[np.int64]
    maximum: NDArray[np.int64]
    high: NDArray[np.int64]
    low: NDArray[np.int64]
    negative: NDArray[np.int64]

    def of(self, begin: int, end: int) -> Histogram | None:
        """Of the pieces ``begin`` to ``end - 1`` together; None where nothing lies in them."""
        parts = [one for piece in range(begin, end) if (one := self._one(piece)) is not None]
        return parts[0] if len(parts) == 1 else merge(parts)

    def _one(self, piece: int) -> Histogram | None:
        low, high = self.first[piece : piece + 2].tolist()
        if low == high:
            return None
        # kept in half the room, but computed with in 64 bits: what is added to a count may be more than 32 bits hold
        index, count = self.index[low:high].astype(np.int64), self.count[low:high].astype(np.int64)
        return Histogram(
            index=index, count=count, minimum=int(self.minimum[piece]), maximum=int(self.maximum[piece]),
            total=join_total(int(self.high[piece]), int(self.low[piece])), negative=int(self.negative[piece]),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SlicedStats:
    """Windows of the measured phase, or its two tenths: what was due in each.

    :param start: and :param end: int64 ``(n,)``, ns since the phase's start. :param begin: and :param after: int64 ``(n,)``, the pieces of
        ``latencies`` that each is made of: ``begin`` to ``after - 1``.
    :param offered: int64 ``(n,)``, messages. :param received: int64 ``(n,)``, deliveries with a copy, over all subscriptions.
    :param in_time: int64 ``(n,)``, of those received the ones of which a copy came before the stretch's end, which is moved by the median
        latency of the whole phase; of delayed messages, less their delay.
    :param latencies: by kind, the key of ``Measurements.latencies``; ``lateness`` and ``earliness`` are the two sides of due, see
        :func:`~pytest_loadtest.metrics.signed.with_lateness`. A kind that the run does not have is missing.
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    begin: NDArray[np.int64]
    after: NDArray[np.int64]
    offered: NDArray[np.int64]
    received: NDArray[np.int64]
    in_time: NDArray[np.int64]
    subscriptions: int
    latencies: Mapping[str, Histograms]

    def __len__(self) -> int:
        return len(self.start)

    def of(self, kind: str, at: int) -> Histogram | Lateness | None:
        """Return the latencies of a kind in one window or tenth; None if there are none."""
        if kind not in SIDES:
            return self._histogram(kind, at)
        sides = {side: one for side in SIDES if (one := self._histogram(side, at)) is not None}
        return with_lateness(sides).get(kind)

    def _histogram(self, kind: str, at: int) -> Histogram | None:
        found = self.latencies.get(kind)
        return None if found is None else found.of(int(self.begin[at]), int(self.after[at]))

    def never_came(self, kind: str, at: int) -> int:
        """Return the number that were due and have no latency, as ``Measurements.never_came`` does. :param kind: one that the run has."""
        missing, offered = LATENCIES[kind].never_came, int(self.offered[at])
        if not missing:
            return 0
        if missing == "deliveries":
            return offered * self.subscriptions - int(self.received[at])
        found = self._histogram(kind, at)
        return offered - (0 if found is None else found.n)


@dataclass(frozen=True)
class Spans:
    """Where windows or tenths lie. :param start: and :param end: int64 ``(n,)``, ns since the phase's start; no two overlap.

    All are whole seconds but the end of a phase.
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]

    def pieces(self, cut: Boundaries) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The pieces that each is made of: the first, and the one behind the last. :param cut: where each of them begins, it is cut."""
        starts = cut.starts * SECOND
        return np.searchsorted(starts, self.start), np.searchsorted(starts, self.end)

    def sums(self, values: NDArray[np.int64], cut: Boundaries) -> NDArray[np.int64]:
        """What the pieces of each come to. :param values: int64, one a piece."""
        begin, after = self.pieces(cut)
        below = np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
        total: NDArray[np.int64] = below[after] - below[begin]
        return total

    def ends(self, cut: Boundaries) -> NDArray[np.int64]:
        """By piece, the end of the one that it is in, ns; 0 of pieces in none."""
        found = np.zeros(len(cut.starts), np.int64)
        for begin, after, end in zip(*(column.tolist() for column in (*self.pieces(cut), self.end)), strict=True):
            found[begin:after] = end
        return found


def windows(duration: int, width: int) -> Spans | None:
    """As many as there is room for, the last one up to the phase's end: it is up to twice as long; None where there is room for none.

    :param duration: and :param width: ns, the latter in whole seconds.
    """
    many = duration // width
    if not many:
        return None
    start = np.arange(many) * width
    return Spans(start, np.append(start[1:], duration))


def tenths(duration: int) -> Spans | None:
    """The first and the last tenth, in whole seconds; None of a phase of less than ten. The last one has up to a second more.

    :param duration: ns.
    """
    length = duration // (10 * SECOND) * SECOND
    if not length:
        return None
    return Spans(np.array([0, (duration - length) // SECOND * SECOND]), np.array([length, duration]))


def histograms(pieces: int, cells: Mapping[str, NDArray[np.int64]], whole: Mapping[str, NDArray[np.int64]]) -> Histograms | None:
    """Put them together; None where there is no latency at all.

    :param cells: in order, columns ``piece``, ``index``, ``n``. :param whole: columns ``piece``, ``minimum``, ``maximum``, ``high``,
        ``low``, ``negative``, one entry for each piece that has cells.
    """
    if not len(cells["n"]):
        return None
    extremes = {name: np.zeros(pieces, np.int64) for name in ("minimum", "maximum", "high", "low", "negative")}
    for name, column in extremes.items():
        column[whole["piece"]] = whole[name]
    extremes["high"] += extremes["low"] >> HALF
    extremes["low"] &= (1 << HALF) - 1
    small = int(cells["n"].max()) <= np.iinfo(np.int32).max
    return Histograms(
        first=np.searchsorted(cells["piece"], np.arange(pieces + 1, dtype=cells["piece"].dtype)),
        index=cells["index"].astype(np.int32),
        count=cells["n"].astype(np.int32) if small else cells["n"].astype(np.int64), **extremes,
    )  # fmt: skip


def of_parts(parts: Sequence[Histogram | None]) -> Histograms | None:
    """The same of histograms, one for each piece."""
    known = [(piece, one) for piece, one in enumerate(parts) if one is not None]
    if not known:
        return None
    cells = {
        "piece": np.concatenate([np.full(len(one.index), piece) for piece, one in known]),
        "index": np.concatenate([one.index for _, one in known]), "n": np.concatenate([one.count for _, one in known]),
    }  # fmt: skip
    whole = [(piece, one.minimum, one.maximum, one.total >> HALF, one.total & ((1 << HALF) - 1), one.negative) for piece, one in known]
    names = ("piece", "minimum", "maximum", "high", "low", "negative")
    return histograms(len(parts), cells, dict(zip(names, np.array(whole).T, strict=True)))


# Latencies by the second: how many of each HDR bucket there were, so that any stretch of the run can be looked at by itself.

MOST_BLOCKS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class OverTime:
    """End-to-end latencies of first copies by the second of their message's intended time, where there are any.

    :param second: int64 ``(k,)``, since the start of the measured phase, ascending. :param index: int64 ``(k,)``, HDR bucket of seven
        bits, as an HdrHistogram of two significant digits has it; ascending in each second. :param count: int64 ``(k,)``, copies.
    """

    second: NDArray[np.int64]
    index: NDArray[np.int64]
    count: NDArray[np.int64]

    def blocks(self, duration: int, most: int = MOST_BLOCKS) -> tuple[int, list[dict[int, int]]]:
        """The run in blocks of whole seconds, all of one length but the last: their length in ns, and of each its copies by bucket.

        :param duration: of the measured phase, ns. :param most: how many blocks there may be.
        """
        seconds = max(-(-duration // SECOND), 1)
        length = -(-seconds // most)
        found: list[dict[int, int]] = [{} for _ in range(-(-seconds // length))]
        for block, index, count in zip((self.second // length).tolist(), self.index.tolist(), self.count.tolist(), strict=True):
            found[block][index] = found[block].get(index, 0) + count
        return length * SECOND, found


def over_time(second: NDArray[np.int64], index: NDArray[np.int64], many: NDArray[np.int64] | None = None) -> OverTime | None:
    """Count pairs of second and bucket; None where there are none.

    :param many: how often each pair is there; once unless given.
    """
    if not len(second):
        return None
    width = int(index.max()) + 1
    packed, place = np.unique(second * width + index, return_inverse=True)
    count = np.zeros(len(packed), np.int64)
    np.add.at(count, place, 1 if many is None else many)
    return OverTime(second=packed // width, index=packed % width, count=count)
