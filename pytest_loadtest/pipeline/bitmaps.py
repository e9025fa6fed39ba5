"""Bitmaps of messages offered, acknowledged and received, 64 sequences to a word. numpy only.

The rule: a message has one bit in each mask, so a message that came twice is received once, an
acknowledged one that did not come is lost, and both are found by comparing whole words. If several
outputs of each message are due, merged words have further masks: those of messages that came at
least twice, three times, and so on up to that number. A table of
words has for each word sums of rows (``WORD_SUMS``), masks of messages (``WORD_MASKS``) and
greatest values (``WORD_ENDS``). A column that a table lacks is 0.

Spark's workers (:mod:`pytest_loadtest.pipeline.executor`) make words of the rows that they read,
and count the words of each slot after the shuffle. The controller only asks here for the number of
words, in :mod:`pytest_loadtest.pipeline.aggregate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.errors import NoData
from pytest_loadtest.message.samples import Flag, Status
from pytest_loadtest.metrics.catalogue import without_own
from pytest_loadtest.metrics.in_time import masks_in_time
from pytest_loadtest.metrics.series import ranks_of_equal
from pytest_loadtest.pipeline.kernel import copies_of, measured
from pytest_loadtest.pipeline.tables import (
    Table,
    bucket_totals,
    column_of,
    count_bits,
    count_levels,
    cut_by,
    delivery_totals,
    level_name,
    levels,
    lost_edges,
    piece_totals,
    ranges_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.metrics.in_time import Begins
    from pytest_loadtest.pipeline.kernel import Rows

SENT_WORD_COLUMNS = ("stream", "bucket", "status", "seq", "resends")
RECEIVED_WORD_COLUMNS = ("subscription", "stream", "topic", "flags", "seq", "received")
# A word has 64 messages.
WORD_BITS = 6
WORD_SUMS = ("offered_rows", "copies")
# Only words of broadcasts have these.
WORD_ENDS = ("last", "last_without_own", "last_without_waits", "early", "due")
_WAYS = dict.fromkeys(WORD_SUMS, np.add) | dict.fromkeys(WORD_ENDS, np.maximum)
WORD_MASKS = ("offered", "acked", "resent", "got", "punctual")
# Ranges of repeated words of one slot: at most 128 KiB, so that those of all slots fit into the
# controller and every task.
RANGES = 1 << 13
# 2**17 words are merged at once: 8 million messages, some 13 MB.
SLOT_BITS = 17


class Words:
    """Words of 64 sequences, each of one stream and subscription.

    Every message has a number that is unique over all streams and
    subscriptions. 64 consecutive numbers are a word, consecutive words are a
    slot; ``_base`` is the number of the first word of each stream.

    While words are gathered, a word can have several rows. The messages of one row came equally
    often, so the copies of a subset of them can be computed from the copies of all.

    If the phase is cut for objectives, a word has the messages of one piece only: its number is
    that of its 64 sequences, times the number of pieces, plus the number of the piece.
    """

    def __init__(self, run: Expected) -> None:
        self.run = run
        self.pieces = self._split()
        self.in_time = ("in_time", *run.spans)
        if run.explains_throughput:
            self.in_time += tuple(map(without_own, self.in_time))
        self.planes = tuple(f"plane_{i}" for i in range(len(run.buckets).bit_length()))
        self._first = run.first >> WORD_BITS
        # A stream's words begin at a multiple of 64 of its sequences, so a word number and a bit
        # give the sequence without a table.
        lengths = np.where(run.end > run.first, (run.end - 1 >> WORD_BITS) - self._first + 1, 0)
        self._base = np.cumsum(lengths) - lengths
        self._words = int(lengths.sum())
        self._check_room()

    def _split(self) -> int:
        """Return the number of words for the same 64 sequences: one for each piece of the phase."""
        return 1 if self.run.slice_cut is None else len(self.run.slice_cut.starts)

    def _check_room(self) -> None:
        """:raises NoData: there are more words than can be numbered."""
        # A message number shares 63 bits with one bit for each of its marks
        # while words are sorted, see _words_and_order.
        marks = max(len(self.planes) + 2, 4)
        if (self._all_words() << WORD_BITS + marks).bit_length() > 63:
            raise NoData(
                f"{self._words:,} words of messages in {self.pieces:,} windows are more than can be"
                " counted: ask for longer windows"
            )

    def _all_words(self) -> int:
        """Return the number of words over all subscriptions and pieces, without overflow."""
        return self._words * max(self.run.subscriptions, 1) * self.pieces

    def sent(self, rows: Rows) -> Table:
        """Return the words of sent messages for every subscription.

        They have the number of rows, and masks of messages offered, acked and resent.

        The number of a message's size bucket is stored in *planes*: one mask for
        each of its bits. An invalid bucket number becomes one more than the last
        valid one. A run without subscriptions has the words of one subscription, in
        which nothing is expected, so nothing can be lost.

        :param rows: ``SENT_WORD_COLUMNS``.
        """
        rows = measured(rows, self.run)
        many = len(self.run.buckets)
        bucket = np.where((rows["bucket"] >= 0) & (rows["bucket"] < many), rows["bucket"], many)
        marks = {"acked": rows["status"] == int(Status.ACKED)}
        marks |= {plane: (bucket >> i & 1) != 0 for i, plane in enumerate(self.planes)}
        resent = rows["resends"] > 0
        if resent.any():  # most runs resend nothing and need no column for it
            marks["resent"] = resent
        # Counted for one subscription; all subscriptions of a topic expect the same messages.
        once = words(self._of_piece(self._number(rows), rows), marks, ("offered_rows", "offered"))
        return self._for_all(once)

    def _for_all(self, once: Mapping[str, NDArray[np.int64]]) -> Table:
        """Repeat the words of sent messages for every subscription.

        :param once: the words of the first.
        """
        times = max(self.run.subscriptions, 1)
        every = {name: np.tile(column, times) for name, column in once.items()}
        every["word"] += np.repeat(np.arange(times) * self._words * self.pieces, len(once["word"]))
        return every

    def copies(self, rows: Rows, begins: Begins) -> Table:
        """Return the words of copies.

        They have the number of rows, and masks of messages received, punctual, and in time.

        :param rows: ``RECEIVED_WORD_COLUMNS``, and ``intended`` if messages are delayed, or the
            phase is cut for objectives.
        """
        rows = copies_of(rows, self.run)
        arrived = rows["received"]
        if self.run.delays is not None:
            arrived = rows["intended"] + self.run.lateness(rows)
        marks = {"punctual": rows["flags"] & int(Flag.LATE) == 0}
        marks |= masks_in_time(rows, arrived, begins, self.run)
        if self.run.outputs > 1:
            return _layered(self.of_rows(rows), marks)
        table, number = _words_and_order(self.of_rows(rows), marks, ("copies", "got"))
        # Equal neighbours in the sorted numbers are second copies.
        further = number[1:][number[1:] == number[:-1]]
        if len(further):
            table = _apart(table, further)
        return self._with_ends(table, rows)

    def _of_piece(self, number: NDArray[np.int64], rows: Rows) -> NDArray[np.int64]:
        """Return the numbers of messages with their piece.

        :param number: without it; 64 consecutive ones are a word.
        """
        cut = self.run.slice_cut
        if cut is None:
            return number
        piece = cut.of(self.run.seconds(rows["intended"]))
        return (((number >> WORD_BITS) * self.pieces + piece) << WORD_BITS) + (number & 63)

    def _with_ends(self, table: Table, rows: Rows) -> Table:
        """Add columns for broadcasts. :param rows: the copies in the table."""
        return table

    def _delivery(self, rows: Rows) -> NDArray[np.int64]:
        """Return the number of each copy's message for its subscription."""
        # The column is int32, and numpy keeps a product with a Python integer at that width, which
        # 800 M messages would overflow.
        subscription = rows["subscription"].astype(np.int64)
        return self._number(rows) + subscription * (self._words << WORD_BITS)

    def _number(self, rows: Rows) -> NDArray[np.int64]:
        # Of sequence 0 of each stream.
        zero = (self._base - self._first) << WORD_BITS
        number: NDArray[np.int64] = zero[rows["stream"]] + rows["seq"]
        return number

    def compact(self, parts: Sequence[Table]) -> Table:
        """Merge tables of words, in order; a word with a repeated message keeps all its rows."""
        present = set().union(*parts)
        rows = _in_order(parts, [name for name in self._columns() if name in present])
        # How often each message came is counted from single rows, see merge().
        if self.run.outputs > 1:
            return rows
        starts = _starts(rows["word"])
        if "copies" in rows and len(starts):
            # More copies than distinct messages: some came twice, and how often each did is known
            # from the single rows only.
            received = count_bits(_any(rows["got"], starts))
            repeated = np.add.reduceat(rows["copies"], starts) > received
            alone = np.repeat(repeated, _lengths(starts, rows["word"]))
            alone[starts] = True
            starts = np.flatnonzero(alone)
        return _combined(rows, starts)

    def merge(self, parts: Sequence[Table]) -> Table:
        """Merge tables of words, in order, each word once.

        The result has one more column: ``copies_of_resent``, the copies of resent messages.
        """
        rows = _in_order(parts, self._columns())
        starts = _starts(rows["word"])
        merged = _combined(rows, starts)
        merged["copies_of_resent"] = np.zeros_like(merged["word"])
        if merged["resent"].any():
            # The messages of a row came equally often, so this division has no remainder.
            times = rows["copies"] // np.maximum(count_bits(rows["got"]), 1)
            resent = np.repeat(merged["resent"], _lengths(starts, rows["word"]))
            copies = times * count_bits(rows["got"] & resent)
            merged["copies_of_resent"] = np.add.reduceat(copies, starts)
        if self.run.outputs > 1:
            merged |= self._levels(rows, starts)
        return merged

    def _levels(self, rows: Table, starts: NDArray[np.int64]) -> Table:
        """Return masks of the messages of each word that came at least twice, three times …, with
        each property of copies.

        :param rows: in order of their words; each message of a row came once.
        """
        lengths = _lengths(starts, rows["word"])
        further = {}
        for name in ("got", "punctual", *self.in_time):
            masks = np.zeros((self.run.outputs, len(starts)), np.int64)
            # One row of each word at a time: who came in it and had come k times, came k + 1 times.
            for place in range(int(lengths.max(initial=0))):
                present = np.flatnonzero(lengths > place)
                came = rows[name][starts[present] + place]
                for level in range(self.run.outputs - 1, 0, -1):
                    masks[level, present] |= masks[level - 1, present] & came
                masks[0, present] |= came
            for level in range(1, self.run.outputs):
                further[level_name(name, level + 1)] = masks[level]
        return further

    def _columns(self) -> tuple[str, ...]:
        return (*WORD_SUMS, *WORD_MASKS, *self.in_time, *self.planes)

    def repeated(self, table: Table) -> Table:
        """Return ranges of the words with a message that came more often than it is due.

        :param table: the words of one slot, merged.
        """
        word = table["word"][table["copies"] > count_levels(table, "got")]
        return ranges_of(self._together(word), RANGES)

    def _together(self, word: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return these words and those whose copies must be compared with theirs.

        :param word: ascending.
        """
        return word

    def of_rows(self, rows: Rows) -> NDArray[np.int64]:
        """Return the number of each copy's delivery; 64 consecutive ones are a word.

        :param rows: measured copies.
        """
        return self._of_piece(self._delivery(rows), rows)

    def slot_words(self, bits: int) -> int:
        """Return the number of words of a slot, about ``2**bits``."""
        return self.pieces << bits

    def slots(self, table: Table) -> Iterator[tuple[int, Table]]:
        """Yield number and words of each slot.

        :param table: in the order of its words.
        """
        return cut_by(table, table["word"] // self.slot_words(SLOT_BITS))

    def tables(self, table: Table, ranges: int) -> dict[str, Table]:
        """Return the tables counted from all words of one slot.

        :param table: merged.
        :param ranges: of lost messages, at most.
        """
        named = self.named(table)
        tables = {
            "repeated": self.repeated(table),
            "deliveries": delivery_totals(named),
            "buckets": bucket_totals(named, len(self.run.buckets)),
            "edges": lost_edges(self.named(self._whole(table)), self.run.stream_topics, ranges),
        }
        if self.run.slice_cut is not None:
            tables["pieces"] = piece_totals(named)
        return tables

    def _whole(self, table: Table) -> Table:
        """Return the words of all pieces together: ranges of lost messages may cross them.

        A message is in such a range if one of its deliveries is missing.
        """
        if self.pieces == 1:
            return table
        complete = levels(table, "got")[-1]
        rows = {"word": table["word"] // self.pieces, "acked": table["acked"], "got": complete}
        whole = _combined(rows, _starts(rows["word"]))
        return whole | {"word": whole["word"] * self.pieces}

    def named(self, table: Table) -> Table:
        """Return the table with columns for subscription, stream and piece.

        Its words are numbered within their stream.
        """
        word, piece = np.divmod(table["word"], self.pieces)
        subscription, word = np.divmod(word, max(self._words, 1))
        stream = np.searchsorted(self._base, word, side="right") - 1
        if self.run.subscriptions:
            expected = column_of(table, "acked")
        else:
            expected = np.zeros_like(word)
        return {
            **table,
            "subscription": subscription,
            "stream": stream,
            "word": word + (self._first - self._base)[stream],
            "piece": piece,
            "expected": expected,
        }


def words(
    number: NDArray[np.int64], marks: Mapping[str, NDArray[np.bool_]], names: tuple[str, str]
) -> dict[str, NDArray[np.int64]]:
    """Return numbers as bitmaps.

    Each word has their count, their mask, and for every mark the mask of numbers that have it at
    least once. Numbers 1, 1 and 66, the last one marked, become words 0 and 1 with counts 2 and 1,
    masks 0b10 and 0b100, and masks 0 and 0b100 for the mark.

    :param names: of the columns for count and mask.
    """
    return _words_and_order(number, marks, names)[0]


def _words_and_order(
    number: NDArray[np.int64], marks: Mapping[str, NDArray[np.bool_]], names: tuple[str, str]
) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.int64]]:
    """Return the words, and the numbers in ascending order."""
    # One sort orders numbers and marks: each varying mark is one more low bit of the key. Marks of
    # all numbers, or of none, need no bit.
    varied = {name: mark for name, mark in marks.items() if mark.any() and not mark.all()}
    key = number << len(varied)
    for place, mark in enumerate(varied.values()):
        key |= mark.astype(np.int64) << place
    key.sort()
    number = key >> len(varied)
    word = number >> WORD_BITS
    starts = _starts(word)
    bit = np.left_shift(1, number & 63)
    which = _any(bit, starts)
    table = {"word": word[starts], names[0]: _lengths(starts, word), names[1]: which}
    for name, mark in marks.items():
        table[name] = which if mark.all() else np.zeros_like(which)
    for place, name in enumerate(varied):
        table[name] = _any(bit * (key >> place & 1), starts)
    return table, number


def _layered(
    number: NDArray[np.int64], marks: Mapping[str, NDArray[np.bool_]]
) -> dict[str, NDArray[np.int64]]:
    """Return words of copies in which each message came once: the first copies of all messages, the
    second ones, and so on.
    """
    order = np.argsort(number, kind="stable")
    rank = ranks_of_equal(number[order])
    layers = []
    for layer in range(int(rank.max(initial=0)) + 1):
        chosen = order[rank == layer]
        of_layer = {name: mark[chosen] for name, mark in marks.items()}
        layers.append(words(number[chosen], of_layer, ("copies", "got")))
    return _in_order(layers, [name for name in layers[0] if name != "word"])


def _apart(table: Table, further: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Split words into rows of first and of further copies.

    The messages of one row came equally often: of copies of the messages 1, 1, 1 and 2 the row of
    first copies has both messages, and another row has message 1, with 2 further copies.

    :param table: the words of all copies.
    :param further: the message number of every copy but the first.
    """
    parts = [{**table, "copies": count_bits(table["got"])}]
    number, times = np.unique(further, return_counts=True)
    # One row of a word for each number of further copies: few numbers occur.
    for many in np.unique(times).tolist():
        part = words(number[times == many], {}, ("copies", "got"))
        parts.append({**part, "copies": part["copies"] * many})
    return _in_order(parts, [name for name in table if name != "word"])


def _in_order(parts: Sequence[Table], columns: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the rows of many tables in the order of their words."""
    word = np.concatenate([part["word"] for part in parts])
    order = np.argsort(word, kind="stable")
    rows = {"word": word[order]}
    for name in columns:
        column = np.concatenate([column_of(part, name) for part in parts])
        rows[name] = column[order]
    return rows


def _combined(rows: Table, starts: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Combine the rows from each start to the next into one."""
    if not len(starts):
        return dict(rows)
    combined = {}
    for name, column in rows.items():
        if name == "word":
            combined[name] = column[starts]
        else:
            # Masks are combined by OR, never by a maximum: bit 63 makes a mask negative.
            combined[name] = _WAYS.get(name, np.bitwise_or).reduceat(column, starts)
    return combined


def _starts(ordered: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the position of the first of each group of equal values: 0, 2 of 7, 7, 9."""
    differs = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=differs[1:])
    return np.flatnonzero(differs)


def _lengths(starts: NDArray[np.int64], ordered: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the length of each group of equal values."""
    return np.diff(starts, append=len(ordered))


def _any(bits: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the OR of the bits from each start to the next."""
    if not len(starts):
        return bits[:0]
    return np.bitwise_or.reduceat(bits, starts)
