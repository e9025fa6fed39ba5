"""Words of broadcasts: one bit for each subscription, 64 subscriptions of one message to a word.

The rule (decision 016): with thousands of subscriptions, words of 64 messages would be mostly
empty, and the data of the sent message would be repeated for each subscription. Here the words of a
message are consecutive, and its sent data is the lowest bit of its first word. With 130
subscriptions message 5 has the words 15, 16 and 17, and bit 1 of word 17 is subscription 129.

numpy only. Spark's workers (:mod:`pytest_loadtest.pipeline.executor`) make and count these words in
their processes, as those of :mod:`pytest_loadtest.pipeline.bitmaps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.message.broadcast import bits
from pytest_loadtest.metrics.own_delays import parts_of_copies
from pytest_loadtest.pipeline.bitmaps import WORD_BITS, WORD_ENDS, Words, words
from pytest_loadtest.pipeline.kernel import MANY, latency_tables, own_part_tables
from pytest_loadtest.pipeline.tables import (
    Groups,
    Table,
    column_of,
    count_bits,
    edges_of,
    first_edges,
    joined,
    rows_at,
    take,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.metrics.time_slices import Boundaries
    from pytest_loadtest.pipeline.kernel import Rows

_ALL: Final = np.int64(-1)


def words_of(run: Expected) -> Words:
    """Return the kind of words for the run."""
    return BroadcastWords(run) if run.broadcasts else Words(run)


class BroadcastWords(Words):
    """Words of 64 subscriptions; each message has ``width`` of them.

    Messages are numbered over all streams.
    """

    def __init__(self, run: Expected) -> None:
        self.width = (run.subscriptions - 1 >> WORD_BITS) + 1
        lengths = run.end - run.first
        self._before = np.cumsum(lengths) - lengths
        self._planned = int(lengths.sum())
        super().__init__(run)

    def _all_words(self) -> int:
        return max(self._planned * self.width, super()._all_words())

    def by_subscription(self, deliveries: Rows) -> Table:
        """Return deliveries as named words of 64 messages of one subscription, as in other runs.

        The column ``mask`` has their bits.

        :param deliveries: int64 ``subscription``, ``stream``, ``seq``.
        """
        before = deliveries["subscription"] * (self._words << WORD_BITS)
        return self.named(words(super()._number(deliveries) + before, {}, ("n", "mask")))

    def _with_ends(self, table: Table, rows: Rows) -> Table:
        """Add the columns of ``WORD_ENDS``.

        They are the ``last`` arrival of each word, the same without the generator's own delays, and
        without those after the target, the ``early`` value of the first arrival, and the ``due``
        time.
        """
        if not len(rows["seq"]):
            return table
        groups = Groups({"word": self._delivery(rows) >> WORD_BITS})
        # A word with second copies has several rows, each with the same ends.
        place = np.searchsorted(groups.keys["word"], table["word"])
        before, after = parts_of_copies(rows, self.run)
        ends = {
            "last": rows["received"],
            "last_without_own": rows["received"] - before - after,
            "last_without_waits": rows["received"] - after,
            # A missing column is 0 and ends are merged by their maximum, so
            # the first arrival is stored as a value that grows with earliness.
            "early": MANY - rows["received"],
            "due": rows["intended"],
        }
        widened = dict(table)
        for name, column in ends.items():
            widened[name] = groups.maximum(column.astype(np.int64))[place]
        return widened

    def tables(self, table: Table, ranges: int) -> dict[str, Table]:
        """Return the tables of one slot.

        Among them are ``histograms``, ``counts`` and ``spans`` of completion and spread.
        """
        messages = _Messages(self, table)
        repeated = self.repeated(table)
        tables = {
            "deliveries": messages.deliveries(),
            "buckets": messages.buckets(),
            "reached": messages.reached(),
            "edges": messages.edges(ranges),
            "repeated": repeated,
            **dict(messages.times(repeated)),
        }
        if self.run.slice_cut is not None:
            tables["pieces"] = messages.pieces(self.run.slice_cut)
        return tables

    def place(self, message: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return stream and sequence of numbered messages."""
        stream = np.searchsorted(self._before, message, side="right") - 1
        return stream, message - self._before[stream] + self.run.first[stream]

    def _number(self, rows: Rows) -> NDArray[np.int64]:
        message = self._before[rows["stream"]] + rows["seq"] - self.run.first[rows["stream"]]
        number: NDArray[np.int64] = message * (self.width << WORD_BITS)
        return number

    def _delivery(self, rows: Rows) -> NDArray[np.int64]:
        return self._number(rows) + rows["subscription"]

    def _split(self) -> int:
        return 1  # a word has one message, which lies in one piece

    def _of_piece(self, number: NDArray[np.int64], rows: Rows) -> NDArray[np.int64]:
        return number

    def _for_all(self, once: Mapping[str, NDArray[np.int64]]) -> Table:
        return once

    def _columns(self) -> tuple[str, ...]:
        return (*super()._columns(), *WORD_ENDS)

    def slot_words(self, bits: int) -> int:
        """Return the number of words of a slot, which has whole messages."""
        return self.width * max(super().slot_words(bits) // self.width, 1)

    def completions(self, number: NDArray[np.int64], rows: Rows) -> Iterator[tuple[str, Table]]:
        """Yield the tables of completion and spread for messages with second copies.

        :param number: of each row's delivery, ascending.
        :param rows: the first copies of all deliveries of these messages.
        """
        starts = np.flatnonzero(np.diff(number // (self.width << WORD_BITS), prepend=-1))
        if not len(starts):
            return
        many = np.diff(starts, append=len(number))
        all_got = many == self.run.subscriptions
        received = rows["received"]
        before, after = parts_of_copies(rows, self.run)
        ends = {
            "first": np.minimum.reduceat(received, starts)[all_got],
            "last": np.maximum.reduceat(received, starts)[all_got],
            "last_without_own": np.maximum.reduceat(received - before - after, starts)[all_got],
            "last_without_waits": np.maximum.reduceat(received - after, starts)[all_got],
            "due": rows["intended"][starts][all_got],
        }
        yield from _completions(ends, self.run)

    def _together(self, word: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return all words of the messages with one of these.

        Completion is computed from all copies of a message together.
        """
        message = np.unique(word // self.width)
        return (message[:, None] * self.width + np.arange(self.width)).ravel()


def _completions(ends: Table, run: Expected) -> Iterator[tuple[str, Table]]:
    """Yield the tables of messages that all subscriptions received.

    :param ends: ``first`` and ``last``, arrivals of the earliest and the latest first copy;
        ``last_without_own``, the latest of all copies without the generator's own delays;
        ``last_without_waits``, the same without those after the target, since a late send delays
        all copies alike; ``due``, the intended time; all ns.
    """
    rows = {"second": run.seconds(ends["due"])}
    kinds = {"completion": ends["last"] - ends["due"], "spread": ends["last"] - ends["first"]}
    own_delays = {
        "completion": ends["last"] - ends["last_without_own"],
        "spread": ends["last"] - ends["last_without_waits"],
    }

    tables = list(latency_tables(kinds, rows, run))
    for kind, values in kinds.items():
        tables += own_part_tables(kind, values, np.minimum(own_delays[kind], values), rows, run)

    by_name: dict[str, list[Table]] = {}
    for name, table in tables:
        by_name.setdefault(name, []).append(table)
    for name, parts in by_name.items():
        yield name, joined(parts)


class _Messages:
    """The messages of one slot, one row each, in dense arrays: they are consecutive.

    Masks of subscriptions have the shape ``(messages, width)``.

    :param table: merged words.
    """

    def __init__(self, words: BroadcastWords, table: Table) -> None:
        self._words = words
        self._run = words.run
        self._table = table
        message, self._group = np.divmod(table["word"], words.width)
        low = int(message.min())
        # The message of each word, counted from the slot's first one.
        self._message = message - low
        self._number = np.arange(low, int(message.max()) + 1)
        self._stream, self._seq = words.place(self._number)

        # The last word of a message has fewer than 64 subscriptions, unless their number is a
        # multiple of 64.
        valid = np.full(words.width, _ALL)
        if self._run.subscriptions & 63:
            valid[-1] = (1 << (self._run.subscriptions & 63)) - 1
        acked = self._of_sent("acked")
        resent = self._of_sent("resent")
        self._got = self._masks("got")
        self._missing = np.where(acked[:, None], valid & ~self._got, 0)
        self._ends = {name: self._of_message(np.maximum, name) for name in WORD_ENDS}

        copies = self._of_message(np.add, "copies")
        received = _set_bits(self._got)
        self._counts = {
            "offered": self._of_message(np.add, "offered_rows"),
            "copies": copies,
            "distinct": self._of_sent("offered"),
            "received": received,
            "received_in_time": _set_bits(self._masks("in_time")),
            "in_time_without_own": _set_bits(self._masks("in_time_without_own")),
            "lost": _set_bits(self._missing),
            "late": _set_bits(self._got & ~self._masks("punctual")),
            "resent": resent,
            "duplicates_of_resent": np.where(resent, copies - received, 0),
            "acked": acked,
        }

    def _masks(self, name: str) -> NDArray[np.int64]:
        masks = np.zeros((len(self._number), self._words.width), np.int64)
        masks[self._message, self._group] = column_of(self._table, name)
        return masks

    def _of_message(self, how: np.ufunc, name: str) -> NDArray[np.int64]:
        """Combine the words of each message."""
        combined = np.zeros(len(self._number), np.int64)
        how.at(combined, self._message, self._table[name])
        return combined

    def _of_sent(self, name: str) -> NDArray[np.int64]:
        """Return the data of each sent message: the lowest bit of its first word, 0 or 1."""
        first = self._group == 0
        data = np.zeros(len(self._number), np.int64)
        data[self._message[first]] = self._table[name][first] & 1
        return data

    def deliveries(self) -> Table:
        """Count by stream, with the sums over all subscriptions in the row of the first."""
        totals = Groups({"stream": self._stream}).totals(self._counts)
        return {"subscription": np.zeros_like(totals["stream"]), **totals}

    def reached(self) -> Table:
        """Return masks of the subscriptions that received a message.

        There is one for each topic and group of 64 subscriptions.
        """
        topic = self._run.stream_topics[self._stream]
        order = np.argsort(topic, kind="stable")
        starts = np.flatnonzero(np.diff(topic[order], prepend=-1))
        masks = np.bitwise_or.reduceat(self._got[order], starts, axis=0).ravel()
        reached = {
            "topic": np.repeat(topic[order][starts], self._words.width),
            "group": np.tile(np.arange(self._words.width), len(starts)),
            "mask": masks,
        }
        return take(reached, masks != 0)

    def buckets(self) -> Table:
        """Count by size bucket."""
        buckets = len(self._run.buckets)
        bucket = np.zeros(len(self._number), np.int64)
        for place, plane in enumerate(self._words.planes):
            bucket |= self._of_sent(plane) << place
        valid = bucket < buckets
        columns: dict[str, NDArray[np.int64]] = {"bucket": np.arange(buckets)}
        for name in ("received", "received_in_time", "in_time_without_own", "lost"):
            columns[name] = np.zeros(buckets, np.int64)
            np.add.at(columns[name], bucket[valid], self._counts[name][valid])
        return columns

    def pieces(self, cut: Boundaries) -> Table:
        """Count by the piece in which messages were intended."""
        # A message without copies has no due time here; it adds nothing to any piece.
        groups = Groups({"piece": cut.of(self._run.seconds(self._ends["due"]))})
        counts = {"received": self._counts["received"]}
        for name in ("windows", "tenths", "windows_without_own", "tenths_without_own"):
            counts[name] = _set_bits(self._masks(name))
        return groups.totals(counts)

    def times(self, repeated: Table) -> Iterator[tuple[str, Table]]:
        """Yield the tables of completion and spread.

        They have each message that every subscription received once.

        :param repeated: ranges of words that are left to :meth:`BroadcastWords.completions`,
            because ends here are of all copies.
        """
        once = self._counts["received"] == self._run.subscriptions
        once &= ~within(self._number * self._words.width, repeated)
        ends = rows_at(self._ends, once)
        yield from _completions(ends | {"first": MANY - ends["early"]}, self._run)

    def edges(self, ranges: int) -> Table:
        """Return the edges of lost messages, see ``tables.lost_edges``.

        It stops at the subscription with which there are enough ranges, so a run that lost
        everything does not list all of it.
        """
        # Empty edges with the columns of the others.
        edges = first_edges([self._edges_of(np.zeros(0, np.intp), 0)], ranges)
        topic = self._run.stream_topics[self._stream]
        lost = self._missing.any(axis=1)
        for number in np.unique(topic[lost]).tolist():
            messages = np.flatnonzero(lost & (topic == number))
            for group in np.flatnonzero(self._missing[messages].any(axis=0)).tolist():
                edges = first_edges([edges, self._edges_of(messages, group)], ranges)
                if len(edges["word"]) >= 2 * ranges:
                    return edges
        return edges

    def _edges_of(self, messages: NDArray[np.intp], group: int) -> Table:
        """Return the edges of 64 subscriptions."""
        row, bit = bits(self._missing[messages, group])
        message = messages[row]
        table = self._words.by_subscription(
            {
                "subscription": (group << WORD_BITS) + bit,
                "stream": self._stream[message],
                "seq": self._seq[message],
            }
        )
        return edges_of(table, table["mask"], self._run.stream_topics)


def _set_bits(masks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of subscriptions in the masks of each message."""
    counts: NDArray[np.int64] = count_bits(masks).sum(axis=1)
    return counts
