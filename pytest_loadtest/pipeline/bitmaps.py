"""Which messages were offered, acked, received, as bitmaps: one bit a message, 64 sequences of a stream to a word. numpy only.

A table of words has, for each word, sums of rows (``WORD_SUMS``), masks of messages (``WORD_MASKS``) and greatest values (``WORD_ENDS``).
What a table does not have is 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.errors import NoData
from pytest_loadtest.message.samples import Flag, Status
from pytest_loadtest.pipeline.kernel import copies_of, measured
from pytest_loadtest.pipeline.tables import Table, bucket_totals, count_bits, delivery_totals, lost_edges, piece_totals, ranges_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.pipeline.kernel import Rows

SENT_WORD_COLUMNS = ("stream", "bucket", "status", "seq", "resends")
RECEIVED_WORD_COLUMNS = ("subscription", "stream", "topic", "flags", "seq", "received")
WORD_BITS = 6
WORD_SUMS = ("offered_rows", "copies")
WORD_ENDS = ("last", "early", "due")  # of broadcasts
WORD_MASKS = ("offered", "acked", "resent", "got", "punctual", "in_time")
RANGES = 1 << 13  # of repeated words, of one slot: at most 128 KiB, so that those of all slots fit on the controller and in every task
SLOT_BITS = 17  # so many words are merged at once: 8 million messages, some 13 MB


class Words:
    """Words of 64 sequences, each of one stream and subscription.

    Every message of the run has a number, its own over all streams and subscriptions, of which 64 in a row make a word; ``_base`` is the
    number of the first word of each stream. Words in a row make a slot.

    While words are gathered, a word may have several rows. The messages of a row came equally often, so that the copies of some of them
    can be told from all its copies.

    Where the phase is cut for objectives, the messages of a word that are of different pieces have a word each: the number of a word is
    that of its 64 sequences, times the number of pieces, plus that of its piece.
    """

    def __init__(self, run: Expected) -> None:
        self.run = run
        self.pieces = self._split()
        self.planes = tuple(f"plane_{i}" for i in range(len(run.buckets).bit_length()))
        self._first = run.first >> WORD_BITS
        lengths = np.where(run.end > run.first, (run.end - 1 >> WORD_BITS) - self._first + 1, 0)
        self._base = np.cumsum(lengths) - lengths
        self._words = int(lengths.sum())
        self._check_room()

    def _split(self) -> int:
        """Into how many words those of one number may fall: the pieces of the phase."""
        return 1 if self.run.slice_cut is None else len(self.run.slice_cut.starts)

    def _check_room(self) -> None:
        """:raises NoData: there are more words than have a number, with a bit for each mark of a message beside it."""
        marks = max(len(self.planes) + 2, 4)
        if (self._all_words() << WORD_BITS + marks).bit_length() > 63:
            raise NoData(
                f"{self._words:,} words of messages in {self.pieces:,} windows are more than can be counted: ask for longer windows"
            )

    def _all_words(self) -> int:
        """The number of words over all subscriptions and pieces, a Python integer."""
        return self._words * max(self.run.subscriptions, 1) * self.pieces

    def sent(self, rows: Rows) -> Table:
        """The words of sent messages, once for every subscription: how many rows, and which messages were offered, acked and resent.

        The number of each message's size bucket is spread over several columns of bits, its *planes*.

        A bucket number that the run does not have becomes one more than its last. A run without subscriptions has the words of one
        subscription all the same, in which nothing is expected: so nothing can be lost.

        :param rows: ``SENT_WORD_COLUMNS``.
        """
        rows = measured(rows, self.run)
        many = len(self.run.buckets)
        bucket = np.where((rows["bucket"] >= 0) & (rows["bucket"] < many), rows["bucket"], many)
        marks = {"acked": rows["status"] == int(Status.ACKED)}
        marks |= {plane: (bucket >> i & 1) != 0 for i, plane in enumerate(self.planes)}
        resent = rows["resends"] > 0
        if resent.any():  # most runs have none, and no column for it
            marks["resent"] = resent
        once = words(self._of_piece(self._number(rows), rows), marks, ("offered_rows", "offered"))
        return self._for_all(once)

    def _for_all(self, once: Mapping[str, NDArray[np.int64]]) -> Table:
        """The words of sent messages for every subscription. :param once: for the first."""
        times = max(self.run.subscriptions, 1)
        every = {name: np.tile(column, times) for name, column in once.items()}
        every["word"] += np.repeat(np.arange(times) * self._words * self.pieces, len(once["word"]))
        return every

    def copies(self, rows: Rows, begin: int, end: int) -> Table:
        """What each subscription got: rows, all sequences, those not late, those from ``begin`` until ``end``, less their delay.

        :param rows: ``RECEIVED_WORD_COLUMNS``, and ``intended`` where messages are delayed, or the phase is cut for objectives.
        """
        rows = copies_of(rows, self.run)
        punctual = rows["flags"] & int(Flag.LATE) == 0
        came = rows["received"] if self.run.delays is None else rows["intended"] + self.run.lateness(rows)
        in_time = (came >= begin) & (came < end)
        marks = {"punctual": punctual, "in_time": in_time} | self._before_ends(rows, came - begin)
        table, number = _words_and_order(self.of_rows(rows), marks, ("copies", "got"))
        further = number[1:][number[1:] == number[:-1]]
        return self._with_ends(_apart(table, further) if len(further) else table, rows)

    def _before_ends(self, rows: Rows, came: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
        """Which copies came before the end of their window, or tenth. :param came: when, ns after the begin, moved by the median."""
        cut = self.run.slice_cut
        if cut is None:
            return {}
        piece = cut.of(self.run.seconds(rows["intended"]))
        return {name: came < spans.ends(cut)[piece] for name, spans in self.run.spans.items()}

    def _of_piece(self, number: NDArray[np.int64], rows: Rows) -> NDArray[np.int64]:
        """The numbers of messages with their piece. :param number: 64 in a row make a word."""
        cut = self.run.slice_cut
        if cut is None:
            return number
        piece = cut.of(self.run.seconds(rows["intended"]))
        return (((number >> WORD_BITS) * self.pieces + piece) << WORD_BITS) + (number & 63)

    def _with_ends(self, table: Table, rows: Rows) -> Table:
        """What else the copies tell of their words. :param rows: the copies that are in the table."""
        return table

    def _delivery(self, rows: Rows) -> NDArray[np.int64]:
        """The number of the message for the subscription."""
        # The column is int32, and numpy keeps a product with a Python integer at that width: 800 M messages are too many for it.
        subscription = rows["subscription"].astype(np.int64)
        number: NDArray[np.int64] = self._number(rows) + subscription * (self._words << WORD_BITS)
        return number

    def _number(self, rows: Rows) -> NDArray[np.int64]:
        number: NDArray[np.int64] = ((self._base - self._first) << WORD_BITS)[rows["stream"]] + rows["seq"]
        return number

    def compact(self, parts: Sequence[Table]) -> Table:
        """The words of many tables in order, each once; only a word of which a message came more than once keeps all its rows."""
        rows = _in_order(parts, [name for name in self._columns() if any(name in part for part in parts)])
        starts = _starts(rows["word"])
        if "copies" in rows and len(starts):
            repeated = np.add.reduceat(rows["copies"], starts) > count_bits(_any(rows["got"], starts))
            alone = np.repeat(repeated, _lengths(starts, rows["word"]))
            alone[starts] = True
            starts = np.flatnonzero(alone)
        return _combined(rows, starts)

    def merge(self, parts: Sequence[Table]) -> Table:
        """All words of many tables in order, each once; with ``copies_of_resent``, the copies of the messages that were resent."""
        rows = _in_order(parts, self._columns())
        starts = _starts(rows["word"])
        found = _combined(rows, starts)
        found["copies_of_resent"] = np.zeros_like(found["word"])
        if found["resent"].any():
            each = rows["copies"] // np.maximum(count_bits(rows["got"]), 1)  # how often each message of a row came
            resent = np.repeat(found["resent"], _lengths(starts, rows["word"]))
            found["copies_of_resent"] = np.add.reduceat(each * count_bits(rows["got"] & resent), starts)
        return found

    def _columns(self) -> tuple[str, ...]:
        return (*WORD_SUMS, *WORD_MASKS, *self.run.spans, *self.planes)

    def repeated(self, table: Table) -> Table:
        """Ranges that have all words of which a message came more than once. :param table: the words of one slot, merged."""
        return ranges_of(self._together(table["word"][table["copies"] > count_bits(table["got"])]), RANGES)

    def _together(self, word: NDArray[np.int64]) -> NDArray[np.int64]:
        """These words, and those whose copies must be looked at together with theirs. :param word: ascending."""
        return word

    def of_rows(self, rows: Rows) -> NDArray[np.int64]:
        """The number of each copy's delivery, of which 64 in a row make a word. :param rows: measured copies."""
        return self._of_piece(self._delivery(rows), rows)

    def slot_words(self, bits: int) -> int:
        """How many words in a row make a slot. :param bits: 2**bits, or about as many."""
        return self.pieces << bits

    def slots(self, table: Table) -> Iterator[tuple[int, Table]]:
        """The words of each slot, by its number. :param table: in the order of its words."""
        slot = table["word"] // self.slot_words(SLOT_BITS)
        starts = _starts(slot)
        for number, low, high in zip(slot[starts].tolist(), starts, np.append(starts, len(slot))[1:], strict=True):
            yield number, {name: column[low:high] for name, column in table.items()}

    def tables(self, table: Table, ranges: int) -> dict[str, Table]:
        """What all words of one slot tell: ``deliveries``, ``buckets``, ``edges`` and ``repeated``. :param table: merged."""
        named = self.named(table)
        return {
            "repeated": self.repeated(table),
            "deliveries": delivery_totals(named),
            "buckets": bucket_totals(named, len(self.run.buckets)),
            "edges": lost_edges(self.named(self._whole(table)), self.run.stream_topics, ranges),
        } | ({} if self.run.slice_cut is None else {"pieces": piece_totals(named)})

    def _whole(self, table: Table) -> Table:
        """Each word once, of all its pieces."""
        if self.pieces == 1:
            return table
        rows = {"word": table["word"] // self.pieces, "acked": table["acked"], "got": table["got"]}
        found = _combined(rows, _starts(rows["word"]))
        return found | {"word": found["word"] * self.pieces}

    def named(self, table: Table) -> Table:
        """The table with columns for subscription, stream and piece, and with words numbered within their stream."""
        word, piece = np.divmod(table["word"], self.pieces)
        subscription, word = np.divmod(word, max(self._words, 1))
        stream = np.searchsorted(self._base, word, side="right") - 1
        own = word + (self._first - self._base)[stream]
        none = np.zeros_like(table["word"])
        expected = table.get("acked", none) if self.run.subscriptions else none
        return {**table, "subscription": subscription, "stream": stream, "word": own, "piece": piece, "expected": expected}


def words(number: NDArray[np.int64], marks: Mapping[str, NDArray[np.bool_]], names: tuple[str, str]) -> dict[str, NDArray[np.int64]]:
    """Numbers as bitmaps: per ``word`` of 64 how many there are and which, and for every mark, which of them have it at least once.

    :param names: of the columns of how many and which.
    """
    return _words_and_order(number, marks, names)[0]


def _words_and_order(
    number: NDArray[np.int64], marks: Mapping[str, NDArray[np.bool_]], names: tuple[str, str]
) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.int64]]:
    """The words, and the numbers in ascending order."""
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


def _apart(table: Table, further: NDArray[np.int64]) -> Table:
    """First copies and further ones in rows of their own, so that the messages of a row came equally often.

    :param table: the words of all copies. :param further: the number of the message of every copy but the first.
    """
    parts = [{**table, "copies": count_bits(table["got"])}]
    number, times = np.unique(further, return_counts=True)
    for many in np.unique(times).tolist():
        part = words(number[times == many], {}, ("copies", "got"))
        parts.append({**part, "copies": part["copies"] * many})
    return _in_order(parts, [name for name in table if name != "word"])


def _in_order(parts: Sequence[Table], columns: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The rows of many tables by their words."""
    word = np.concatenate([part["word"] for part in parts])
    order = np.argsort(word, kind="stable")
    rows = {"word": word[order]}
    for name in columns:
        rows[name] = np.concatenate([part[name] if name in part else np.zeros_like(part["word"]) for part in parts])[order]
    return rows


def _combined(rows: Table, starts: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """One row of those that begin at each start."""
    found = {"word": rows["word"][starts]}
    for name, column in rows.items():
        if name != "word":
            how = np.add if name in WORD_SUMS else np.maximum if name in WORD_ENDS else np.bitwise_or
            found[name] = how.reduceat(column, starts) if len(starts) else column
    return found


def _starts(ordered: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of the values begins."""
    return np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(ordered) else np.zeros(0, np.int64)


def _lengths(starts: NDArray[np.int64], ordered: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each of the values is there."""
    return np.diff(starts, append=len(ordered))


def _any(bits: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    found: NDArray[np.int64] = np.bitwise_or.reduceat(bits, starts) if len(starts) else bits[:0]
    return found
