"""Small tables of counts that can be merged: rows with equal keys become one row. numpy only.

The rule: every count of a run is a sum over rows, so it can be computed block by block, in any
order, and merged later. A table is a mapping of int64 columns of one length; ``TABLES`` has the
columns of each table and how they are merged.

Spark's workers (:mod:`pytest_loadtest.pipeline.executor`) make and merge tables in their processes;
:mod:`pytest_loadtest.pipeline.aggregate` merges and reads them in the controller's thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from pytest_loadtest.metrics.catalogue import COUNTED_LATENCIES

if TYPE_CHECKING:
    from numpy.typing import NDArray

Table = Mapping[str, "NDArray[np.int64]"]
Column = Literal["key", "sum", "minimum", "maximum", "union"]

# The fate of a received row.
COPY, CORRUPT, MISPLACED = range(3)
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


def _columns(
    keys: str, *, sums: str = "", minimum: str = "", maximum: str = "", union: str = ""
) -> dict[str, Column]:
    """Return the columns of a table and how each is merged; names are separated by spaces."""
    ways: dict[Column, str] = {
        "key": keys,
        "sum": sums,
        "minimum": minimum,
        "maximum": maximum,
        "union": union,
    }
    return {name: way for way, names in ways.items() for name in names.split()}


_DELIVERIES = (
    "offered copies distinct received received_in_time in_time_without_own lost late resent"
    " duplicates_of_resent acked"
)
_RECEIPTS = _columns("subscription topic cell", minimum="first", maximum="last", sums="n")

# The tables of edges, which first_edges merges, and of ranges_of, without equal rows, are not here.
TABLES: Final[Mapping[str, Mapping[str, Column]]] = {
    # Measured sent rows, with their earliest and latest intended time, and measured received rows.
    "sent": _columns(
        "topic bucket status",
        sums="n bytes in_time own_late blocked_high blocked_low",
        minimum="first",
        maximum="last",
    ),
    "received": _columns("fate", sums="n"),
    # Extremes and sums of histograms, in two halves, and their values per HDR bucket.
    "histograms": _columns(
        "what by group", sums="negative high low", minimum="minimum", maximum="maximum"
    ),
    "counts": _columns("what by group index", sums="n"),
    # Values per HDR bucket of pieces of the measured phase (metrics.time_slices); ``by`` is SPAN.
    "spans": _columns("what piece index", sums="n"),
    # Messages dropped before full windows (metrics.full_windows), with their earliest intended
    # time, and the latest instant up to which one waited.
    "full_windows": _columns("topic", sums="n", minimum="first", maximum="last"),
    # Messages by second.
    "seconds": _columns("what second", sums="n"),
    # Latencies of first copies by the second of their intended time and HDR bucket of seven bits,
    # and each second's least and greatest latency, and greatest receive lag as it is recorded.
    "due": _columns("second index", sums="n"),
    "extremes": _columns("second", minimum="minimum", maximum="maximum lag"),
    # First copies by subscription, topic and cell of time (metrics.gaps), with the earliest and the
    # latest receipt; and the same with each copy earlier by the part of its latency that the
    # generator's own delays explain.
    "gaps": _RECEIPTS,
    "gaps_without_own": _RECEIPTS,
    # Messages with each property, and deliveries by size bucket.
    "deliveries": _columns("subscription stream", sums=_DELIVERIES),
    "buckets": _columns("bucket", sums="received received_in_time in_time_without_own lost"),
    # The subscriptions that received a message of the topic, by topic and group of 64 subscriptions
    # (broadcasts only).
    "reached": _columns("topic group", union="mask"),
    # Messages late by the generator, by the piece in which they were intended.
    "own_late": _columns("piece", sums="windows_own_late tenths_own_late"),
    # Deliveries by the piece in which their message was intended, and those before the end of their
    # window, or tenth; also without the generator's own delays.
    "pieces": _columns(
        "piece", sums="received windows tenths windows_without_own tenths_without_own"
    ),
    # Messages due by the window of the plan (metrics.offering).
    "offers": _columns("window", sums="n bytes"),
}

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

    def totals(self, columns: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.int64]]:
        """Return the keys of the groups, and the sum of each column."""
        return self.keys | {name: self.sum(column) for name, column in columns.items()}

    def counted(self) -> dict[str, NDArray[np.int64]]:
        """Return the keys of the groups, and their numbers of rows as ``n``."""
        return {**self.keys, "n": self.n}

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
    """Return one integer for all keys of a row; and for each key its lowest value and its range.

    Keys (5, 20), (5, 22) and (6, 20) have the lowest values 5 and 20 and the ranges 2 and 3, and
    become 0 * 3 + 0 = 0, 0 * 3 + 2 = 2 and 1 * 3 + 0 = 3.
    """
    lows = []
    widths = []
    for column in columns:
        low = int(column.min())
        lows.append(low)
        widths.append(int(column.max()) - low + 1)
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
    if not parts:
        return dict.fromkeys(shape, np.zeros(0, np.int64))
    rows = joined(parts)
    keys = [column for column, way in shape.items() if way == "key"]
    if not len(rows[keys[0]]):
        return rows

    groups = Groups(select(rows, keys))
    merged = dict(groups.keys)
    for column, way in shape.items():
        if way != "key":
            # Groups has a method for each way.
            merged[column] = getattr(groups, way)(rows[column])
    return merged


def joined(parts: Sequence[Table]) -> Table:
    """Concatenate tables with the same columns, one or more."""
    if len(parts) == 1:
        return parts[0]
    table = {}
    for name in parts[0]:
        table[name] = np.concatenate([part[name] for part in parts])
    return table


def select(table: Mapping[str, NDArray[Any]], names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Return the named columns."""
    return {name: table[name] for name in names}


def rows_at(table: Mapping[str, NDArray[Any]], index: Any) -> dict[str, NDArray[Any]]:
    """Return the rows at positions, or in a slice."""
    return {name: column[index] for name, column in table.items()}


def take(table: Mapping[str, NDArray[Any]], pick: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """Return the rows of a mask."""
    # Most masks select all rows: then no column is copied.
    if pick.all():
        return dict(table)
    return rows_at(table, pick)


def cut_by(
    table: Mapping[str, NDArray[Any]], by: NDArray[np.int64]
) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
    """Cut a table wherever ``by`` changes; yield each value of ``by`` and its rows.

    With ``by`` 4, 4, 7 it yields 4 and rows 0 and 1, then 7 and row 2.

    :param by: of each row, ascending, 0 or more.
    """
    starts = np.flatnonzero(np.diff(by, prepend=-1))
    for low, high in pairwise([*starts.tolist(), len(by)]):
        yield int(by[low]), rows_at(table, slice(low, high))


def delivery_totals(words: Table) -> Table:
    """Count messages with each property, by subscription and stream.

    :param words: the words of one slot, named.
    """
    got = words["got"]
    late = np.zeros_like(got)
    duplicates_of_resent = words["copies_of_resent"]
    for came, punctual in zip(levels(words, "got"), levels(words, "punctual"), strict=True):
        late += count_bits(came & ~punctual)
        duplicates_of_resent = duplicates_of_resent - count_bits(came & words["resent"])
    groups = Groups(select(words, ("subscription", "stream")))
    return groups.totals(
        {
            "offered": words["offered_rows"],
            "copies": words["copies"],
            "distinct": count_bits(words["offered"]),
            "received": count_levels(words, "got"),
            "received_in_time": count_levels(words, "in_time"),
            "in_time_without_own": count_levels(words, "in_time_without_own"),
            "lost": sum(map(count_bits, _missing(words)), np.zeros_like(got)),
            "late": late,
            "resent": count_bits(words["resent"]),
            "duplicates_of_resent": duplicates_of_resent,
            "acked": count_bits(words["acked"]),
        }
    )


def bucket_totals(words: Table, buckets: int) -> Table:
    """Count deliveries received, received in time, and lost, by size bucket.

    :param words: the words of one slot, named.
    """
    planes = [words[name] for name in words if name.startswith("plane_")]
    masks = {
        "received": levels(words, "got"),
        "received_in_time": levels(words, "in_time"),
        "in_time_without_own": levels(words, "in_time_without_own"),
        "lost": _missing(words),
    }
    totals = {"bucket": np.arange(buckets)}
    for name in masks:
        totals[name] = np.zeros(buckets, np.int64)
    for bucket in range(buckets):
        # The messages of a bucket are those whose planes have the bits of its number: those of
        # bucket 2 have a 1 in plane 1 and a 0 in all others.
        of_bucket = np.full(len(words["word"]), -1)
        for place, plane in enumerate(planes):
            if bucket >> place & 1:
                of_bucket &= plane
            else:
                of_bucket &= ~plane
        for name, of_levels in masks.items():
            for mask in of_levels:
                totals[name][bucket] += count_bits(mask & of_bucket).sum()
    return totals


def piece_totals(words: Table) -> Table:
    """Count deliveries received, and those before the end of their window or tenth, by piece.

    :param words: the words of one slot, named.
    """
    totals = {"received": count_levels(words, "got")}
    for name in ("windows", "tenths", "windows_without_own", "tenths_without_own"):
        totals[name] = count_levels(words, name)
    return Groups({"piece": words["piece"]}).totals(totals)


def column_of(table: Table, name: str) -> NDArray[np.int64]:
    """Return a column of a table of words; one that it lacks is 0."""
    if name in table:
        return table[name]
    return np.zeros_like(table["word"])


def level_name(name: str, level: int) -> str:
    """Return the column of messages that came at least so often: ``got``, ``got_2``, ``got_3`` …"""
    return name if level == 1 else f"{name}_{level}"


def levels(words: Table, name: str) -> list[NDArray[np.int64]]:
    """Return the masks of messages that came at least once, at least twice … with a property.

    There is one for each output that is due.

    :param name: its first column.
    """
    masks = [column_of(words, name)]
    while (next_name := level_name(name, len(masks) + 1)) in words:
        masks.append(words[next_name])
    return masks


def count_levels(words: Table, name: str) -> NDArray[np.int64]:
    """Return the number of deliveries with a property: of c copies of a message at most as many as
    outputs are due.
    """
    return sum(map(count_bits, levels(words, name)), np.zeros_like(words["word"]))


def _missing(words: Table) -> list[NDArray[np.int64]]:
    """Return masks of the messages that were acked and of which a delivery was not received, for
    each output.

    Without subscriptions none was expected.
    """
    return [words["expected"] & ~came for came in levels(words, "got")]


def count_bits(masks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of set bits of each mask, including the sign bit."""
    return np.bitwise_count(masks.view(np.uint64)).astype(np.int64)


def ranges_of(numbers: NDArray[np.int64], most: int) -> Table:
    """Return the ranges ``low`` to ``high``, inclusive, that contain these numbers.

    Those of 3, 4, 8 are 3 to 4 and 8 to 8. More than ``most`` become one range over all numbers.

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
    return (at >= 0) & (numbers <= ranges["high"][at])


def lost_edges(words: Table, stream_topics: NDArray[np.int64], ranges: int) -> Table:
    """Return the beginnings and ends of ranges of lost messages, as bits of their words.

    :param words: the words of one slot, named.
    """
    return first_edges([edges_of(words, _missing(words)[-1], stream_topics)], ranges)


def edges_of(words: Table, lost: NDArray[np.int64], stream_topics: NDArray[np.int64]) -> Table:
    """Return the messages at which ranges of lost ones begin and end: masks ``first`` and ``last``.

    Of the lost messages 0b0111_0010 ``first`` is 0b0001_0010 and ``last`` is 0b0100_0010.

    :param words: named.
    :param lost: a mask of each word.
    """
    return {
        "topic": stream_topics[words["stream"]],
        **select(words, ("subscription", "stream", "word")),
        "first": lost & ~(lost << 1),
        "last": lost & ~(lost >> 1 & _LOW),
    }


def first_edges(parts: Sequence[Table], ranges: int) -> Table:
    """Return the edges of the first ranges of many slots.

    They are in the order of topic, subscription, stream and word. A range that ends with its word
    and one that begins with the next word are joined. Every row has an edge, and beginnings and
    ends alternate, so twice ``ranges`` rows contain the first ``ranges`` ranges.
    """
    edges = _with_edges(joined(parts))
    order = np.lexsort((edges["word"], edges["stream"], edges["subscription"], edges["topic"]))
    edges = rows_at(edges, order)
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
    return rows_at(_with_edges(edges), slice(2 * ranges))


def _with_edges(edges: Table) -> Table:
    return take(edges, (edges["first"] | edges["last"]) != 0)
