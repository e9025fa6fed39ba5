"""Small tables of counts that can be merged: rows with equal keys become one. numpy only; used by Spark's workers and the controller.

A table is a mapping of int64 columns of one length. ``TABLES`` has the
columns of each table and how they are merged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from pytest_loadtest.metrics.catalogue import COUNTED_LATENCIES

if TYPE_CHECKING:
    from numpy.typing import NDArray

Table = Mapping[str, "NDArray[np.int64]"]
Column = Literal["key", "sum", "minimum", "maximum", "union"]

# The fate of a received row.
COPY, CORRUPT, MISPLACED = 0, 1, 2
# Numbers of the kinds of latencies in the column ``what``. ``lateness`` and ``earliness`` are
# counted on their side of due only, see metrics.signed.with_lateness.
KINDS: Final = {kind: number for number, kind in enumerate(COUNTED_LATENCIES)}
# The column ``by``: a histogram is of the whole run, or of one topic,
# size bucket, piece of the phase or worker.
WHOLE, TOPIC, BUCKET, SPAN, WORKER = range(5)
# The column ``what`` of counts by second. BLOCKED counts ns instead of messages. KEPT (acknowledged
# messages), UNDUE (first copies out of due order), AGAIN (later copies) and WITHIN (first copies
# within one host) are counted by the second of the intended time.
OFFERED, SENT, ACKED, RECEIVED, BLOCKED, KEPT, UNDUE, AGAIN, WITHIN = range(9)

TABLES: Final[Mapping[str, Mapping[str, Column]]] = {
    "sent": {
        "topic": "key", "bucket": "key", "status": "key",
        "n": "sum", "bytes": "sum", "in_time": "sum", "own_late": "sum", "blocked_high": "sum", "blocked_low": "sum",
    },
    "received": {"fate": "key", "n": "sum"},
    "histograms": {
        "what": "key", "by": "key", "group": "key",
        "negative": "sum", "high": "sum", "low": "sum", "minimum": "minimum", "maximum": "maximum",
    },
    "counts": {"what": "key", "by": "key", "group": "key", "index": "key", "n": "sum"},
    "spans": {"what": "key", "piece": "key", "index": "key", "n": "sum"},
    "full_windows": {"topic": "key", "n": "sum", "first": "minimum", "last": "maximum"},
    "seconds": {"what": "key", "second": "key", "n": "sum"},
    "due": {"second": "key", "index": "key", "n": "sum"},
    "extremes": {"second": "key", "minimum": "minimum", "maximum": "maximum", "lag": "maximum"},
    "gaps": {"subscription": "key", "topic": "key", "cell": "key", "first": "minimum", "last": "maximum", "n": "sum"},
    "gaps_without_own": {"subscription": "key", "topic": "key", "cell": "key", "first": "minimum", "last": "maximum", "n": "sum"},
    "deliveries": {
        "subscription": "key", "stream": "key",
        "offered": "sum", "copies": "sum", "distinct": "sum", "received": "sum", "received_in_time": "sum", "lost": "sum", "late": "sum",
        "resent": "sum", "duplicates_of_resent": "sum", "acked": "sum",
    },
    "buckets": {"bucket": "key", "received": "sum", "received_in_time": "sum", "lost": "sum"},
    "reached": {"topic": "key", "group": "key", "mask": "union"},
    "own_late": {"piece": "key", "windows_own_late": "sum", "tenths_own_late": "sum"},
    "pieces": {"piece": "key", "received": "sum", "windows": "sum", "tenths": "sum"},
    "offers": {"window": "key", "n": "sum", "bytes": "sum"},
}  # fmt: skip
"""``sent``: measured sent rows. ``received``: measured received rows.
``histograms``: extremes and sums of histograms, in two halves. ``counts``: their values per HDR bucket.
``spans``: values per HDR bucket of pieces of the measured phase (:mod:`pytest_loadtest.metrics.time_slices`); their ``by`` is ``SPAN``.
``full_windows``: messages dropped before full windows (:mod:`pytest_loadtest.metrics.full_windows`), the earliest intended time, and the
latest instant up to which one waited.
``seconds``: messages by second. ``due``: latencies of first copies by the second of their intended time and HDR bucket of seven bits.
``extremes``: the same seconds' least and greatest latency, and greatest receive lag as it is recorded.
``gaps``: first copies by subscription, topic and cell of time (:mod:`pytest_loadtest.metrics.gaps`), with the earliest and latest receipt.
``gaps_without_own``: the same with each copy earlier by the part of its latency that the generator's own delays explain.
``deliveries``: messages with each property. ``buckets``: deliveries by size bucket.
``reached``: the subscriptions that received a message of the topic, by topic and ``group`` of 64 subscriptions (broadcasts only).
``own_late``: messages late by the generator, by the piece in which they were intended.
``offers``: messages due by the window of the plan (:mod:`pytest_loadtest.metrics.offering`).
``pieces``: deliveries by the piece in which their message was intended, and those before the end of their window, or tenth.
The tables of :func:`lost_edges`, which :func:`first_edges` merges, and of :func:`ranges_of`, without equal rows, are not among them."""

EDGES = ("topic", "subscription", "stream", "word", "first", "last")
# Bits 0 to 62; bit 63 is the sign of an int64.
_LOW = np.iinfo(np.int64).max

# Rows are grouped by counting, with one counter for every possible key. If that would take more
# than SPARSE counters for each row, and more than FEW in all, they are grouped by sorting.
SPARSE = 4
FEW = 1 << 16


class Groups:
    """Groups of rows with equal keys, in the order of the keys; the first key is most significant.

    :param keys: integer columns of one length, at least one row.
    """

    def __init__(self, keys: Mapping[str, NDArray[np.integer]]) -> None:
        packed, lows, widths = _pack(list(keys.values()))
        self._packed = packed
        self._ids: NDArray[np.int64] | None = None
        size = math.prod(widths)
        if size > max(FEW, SPARSE * len(packed)):
            self._found, self._ids, self.n = np.unique(
                packed, return_inverse=True, return_counts=True
            )
        else:
            counted = np.bincount(packed)
            self._found = np.flatnonzero(counted)
            self.n = counted[self._found]
        self.keys = dict(zip(keys, _unpack(self._found, lows, widths), strict=True))

    # Computed on demand: groups that are only counted never need it.
    def _of_rows(self) -> NDArray[np.int64]:
        """Return the number of each row's group."""
        if self._ids is None:
            place = np.zeros(int(self._found[-1]) + 1, np.int64)
            place[self._found] = np.arange(len(self._found))
            self._ids = place[self._packed]
        return self._ids

    def sum(self, values: NDArray[np.generic]) -> NDArray[np.int64]:
        """Return the sum in each group; the caller ensures that none overflows."""
        least = int(values.min())
        # Fast path: equal values, most often 0, because in a good
        # run nothing is lost, late or blocked.
        if least == values.max():
            return self.n * least
        return self._reduce(np.add, 0, values.astype(np.int64, copy=False))

    def minimum(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the least value in each group."""
        return self._reduce(np.minimum, np.iinfo(np.int64).max, values)

    def maximum(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the greatest value in each group."""
        return self._reduce(np.maximum, np.iinfo(np.int64).min, values)

    def union(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bits that are set in any row of each group."""
        return self._reduce(np.bitwise_or, 0, values)

    def _reduce(self, how: np.ufunc, first: int, values: NDArray[np.int64]) -> NDArray[np.int64]:
        reduced = np.full(len(self.n), first)
        # Fast path: a plain reduction is faster than ufunc.at, and
        # needs no number of each row's group.
        if len(reduced) == 1:
            reduced[0] = how.reduce(values)
        else:
            how.at(reduced, self._of_rows(), values)
        return reduced


def _pack(columns: list[NDArray[np.integer]]) -> tuple[NDArray[np.int64], list[int], list[int]]:
    """Return one integer for all keys of a row; and for each key its lowest value and its range."""
    lows = [int(column.min()) for column in columns]
    widths = [int(column.max()) - low + 1 for column, low in zip(columns, lows, strict=True)]
    # A copy, which the following lines change in place.
    packed = columns[0].astype(np.int64)
    if lows[0]:
        packed -= lows[0]
    for column, low, width in zip(columns[1:], lows[1:], widths[1:], strict=True):
        if width == 1:  # equal in all rows, as the status of a good run: it distinguishes nothing
            continue
        packed *= width
        packed += column
        if low:
            packed -= low
    return packed, lows, widths


def _unpack(
    packed: NDArray[np.int64], lows: list[int], widths: list[int]
) -> list[NDArray[np.int64]]:
    columns = []
    for low, width in zip(reversed(lows), reversed(widths), strict=True):
        columns.append(packed % width + low)
        packed = packed // width
    return columns[::-1]


def merge_rows(name: str, parts: Iterable[Table]) -> Table:
    """Merge tables of one name into one, in the order of its keys."""
    shape = TABLES[name]
    parts = list(parts)
    rows = {
        column: np.concatenate([part[column] for part in parts]) if parts else np.zeros(0, np.int64)
        for column in shape
    }
    if not len(next(iter(rows.values()))):
        return rows
    groups = Groups({column: rows[column] for column, how in shape.items() if how == "key"})
    ways = {
        "sum": groups.sum,
        "minimum": groups.minimum,
        "maximum": groups.maximum,
        "union": groups.union,
    }
    return {
        column: groups.keys[column] if how == "key" else ways[how](rows[column])
        for column, how in shape.items()
    }


def joined(parts: Sequence[Table]) -> Table:
    """Concatenate tables of which no two have a common key."""
    return (
        parts[0]
        if len(parts) == 1
        else {column: np.concatenate([part[column] for part in parts]) for column in parts[0]}
    )


def take(table: Mapping[str, NDArray[Any]], pick: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """Return the rows of a mask."""
    # Most masks select all rows: then no column is copied.
    return dict(table) if pick.all() else {name: column[pick] for name, column in table.items()}


def delivery_totals(words: Table) -> Table:
    """Count messages with each property, by subscription and stream.

    :param words: the words of one slot, named.
    """
    groups = Groups({name: words[name] for name in ("subscription", "stream")})
    masks = {
        "distinct": words["offered"], "received": words["got"], "received_in_time": words["in_time"], "lost": _missing(words),
        "late": words["got"] & ~words["punctual"], "resent": words["resent"], "acked": words["acked"],
    }  # fmt: skip
    further = words["copies_of_resent"] - count_bits(words["got"] & words["resent"])
    sums = {
        "offered": words["offered_rows"],
        "copies": words["copies"],
        "duplicates_of_resent": further,
    }
    sums |= {name: count_bits(mask) for name, mask in masks.items()}
    return groups.keys | {name: groups.sum(column) for name, column in sums.items()}


def bucket_totals(words: Table, buckets: int) -> Table:
    """Count deliveries received, received in time, and lost, by size bucket.

    :param words: the words of one slot, named.
    """
    planes = [words[name] for name in words if name.startswith("plane_")]
    masks = {
        "received": words["got"],
        "received_in_time": words["in_time"],
        "lost": _missing(words),
    }
    totals = {name: np.zeros(buckets, np.int64) for name in masks}
    for bucket in range(buckets):
        # The messages of a bucket are those whose planes have the bits of its number.
        own = np.full(len(words["word"]), -1)
        for place, plane in enumerate(planes):
            own &= plane if bucket >> place & 1 else ~plane
        for name, mask in masks.items():
            totals[name][bucket] = count_bits(mask & own).sum()
    return {"bucket": np.arange(buckets), **totals}


def piece_totals(words: Table) -> Table:
    """Count deliveries received, and those before the end of their window or tenth, by piece.

    :param words: of one slot, named.
    """
    groups = Groups({"piece": words["piece"]})
    masks = {
        "received": words["got"],
        **{name: words.get(name, np.zeros_like(words["got"])) for name in ("windows", "tenths")},
    }
    return groups.keys | {name: groups.sum(count_bits(mask)) for name, mask in masks.items()}


def _missing(words: Table) -> NDArray[np.int64]:
    """Return masks of the messages that were acked and not received.

    Without subscriptions none was expected.
    """
    return words["expected"] & ~words["got"]


def count_bits(masks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of set bits of each mask, including the sign bit."""
    return np.bitwise_count(masks.view(np.uint64)).astype(np.int64)


def ranges_of(numbers: NDArray[np.int64], most: int) -> Table:
    """Return ranges ``low`` to ``high``, inclusive, of these numbers; one range over all if there would be more than ``most``.

    :param numbers: ascending.
    """
    starts = np.flatnonzero(np.diff(numbers, prepend=-2) > 1)
    # One range over all costs rows that need not be shuffled, but never a wrong result.
    if len(starts) > most:
        starts = starts[:1]
    ends = np.append(starts[1:], len(numbers))[: len(starts)] - 1
    return {"low": numbers[starts], "high": numbers[ends]}


def within(numbers: NDArray[np.int64], ranges: Table) -> NDArray[np.bool_]:
    """Return a mask of the numbers in any of the ranges.

    :param ranges: in order, from :func:`ranges_of`.
    """
    if not len(ranges["low"]):
        return np.zeros(len(numbers), np.bool_)
    at = np.searchsorted(ranges["low"], numbers, side="right") - 1
    inside: NDArray[np.bool_] = (at >= 0) & (numbers <= ranges["high"][at])
    return inside


def lost_edges(words: Table, stream_topics: NDArray[np.int64], ranges: int) -> Table:
    """Return the beginnings and ends of ranges of lost messages, as bits of their words.

    :param words: the words of one slot, named.
    """
    mask = _missing(words)
    edges = {name: words[name] for name in ("subscription", "stream", "word")}
    edges |= {
        "topic": stream_topics[words["stream"]],
        "first": mask & ~(mask << 1),
        "last": mask & ~(mask >> 1 & _LOW),
    }
    return first_edges([edges], ranges)


def first_edges(parts: Iterable[Table], ranges: int) -> Table:
    """Return the edges of the first ranges of many slots, in the order of topic, subscription, stream, word.

    A range that ends with its word and one that begins with the next word are
    joined. Every row has an edge, and beginnings and ends alternate, so twice
    ``ranges`` rows contain the first ``ranges`` ranges.
    """
    parts = list(parts)
    edges = {name: np.concatenate([part[name] for part in parts]) for name in EDGES}
    edges = take(edges, (edges["first"] | edges["last"]) != 0)
    order = np.lexsort([edges[name] for name in EDGES[3::-1]])
    edges = {name: column[order] for name, column in edges.items()}
    # A word that ends lost (bit 63 is the sign) and the next one
    # that begins lost have no edge between them.
    next_word = (
        (np.diff(edges["word"]) == 1)
        & (np.diff(edges["stream"]) == 0)
        & (np.diff(edges["subscription"]) == 0)
    )
    goes_on = np.flatnonzero(next_word & (edges["last"][:-1] < 0) & (edges["first"][1:] & 1 == 1))
    edges["last"][goes_on] &= _LOW
    edges["first"][goes_on + 1] &= ~1
    return {
        name: column[: 2 * ranges]
        for name, column in take(edges, (edges["first"] | edges["last"]) != 0).items()
    }
